//! Blocks of tables in memory, checked and unpacked.

use crate::table::{Block, Blocks};
use imbrex_device::Result;
use quick_cache::Weighter;
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

impl Cache {
    /// For so many bytes, in blocks of about so many.
    pub fn new(bytes: u64, block: u32) -> Cache {
        let blocks = (bytes / u64::from(block.max(1))).max(1) as usize;
        Cache(quick_cache::sync::Cache::with_weighter(blocks, bytes, Bytes))
    }
}

impl Blocks for Cache {
    fn block(&self, table: u64, at: u64, load: &mut dyn FnMut() -> Result<Arc<Block>>) -> Result<Arc<Block>> {
        self.0.get_or_insert_with(&(table, at), load)
    }
}
