//! Blocks of tables in memory, checked and unpacked.

use crate::table::{Block, Blocks};
use imbrex_device::Result;
use quick_cache::{OptionsBuilder, Weighter};
use std::sync::Arc;

#[derive(Clone)]
struct Bytes;

impl Weighter<(u64, u64), Arc<Block>> for Bytes {
    fn weight(&self, _: &(u64, u64), block: &Arc<Block>) -> u64 {
        block.memory() as u64
    }
}

/// See the module.
pub(crate) struct Cache(quick_cache::sync::Cache<(u64, u64), Arc<Block>, Bytes>);

/// It remembers which blocks it had lately: so many times as many as it holds. Where all reads are random, a block of an index is read again only after hundreds
/// of data blocks. It is known then, and stays; without that it was gone and forgotten, and each get read its index from the drive.
const REMEMBERED: usize = 8;
/// Blocks of a part of the cache at least; each part has a lock.
const PART: usize = 32;

impl Cache {
    /// For so many bytes, in blocks of about so many.
    pub fn new(bytes: u64, block: u32) -> Cache {
        let blocks = (bytes / u64::from(block.max(1))).max(1) as usize;
        let most = std::thread::available_parallelism().map_or(1, |n| n.get()) * 4;
        let options = OptionsBuilder::new()
            .shards((blocks / PART).clamp(1, most))
            .estimated_items_capacity(blocks * REMEMBERED)
            .ghost_allocation(1.0)
            .weight_capacity(bytes)
            .build();
        Cache(match options {
            Ok(options) => {
                quick_cache::sync::Cache::with_options(options, Bytes, Default::default(), Default::default())
            }
            Err(_) => quick_cache::sync::Cache::with_weighter(blocks, bytes, Bytes),
        })
    }
}

impl Blocks for Cache {
    fn block(&self, table: u64, at: u64, load: &mut dyn FnMut() -> Result<Arc<Block>>) -> Result<Arc<Block>> {
        self.0.get_or_insert_with(&(table, at), load)
    }
}
