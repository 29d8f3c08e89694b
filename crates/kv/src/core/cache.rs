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
        // Who waits for another's load would wait outside of the model checker.
        #[cfg(feature = "shuttle")]
        return match self.0.get(&(table, at)) {
            Some(block) => Ok(block),
            None => load().inspect(|block| self.0.insert((table, at), block.clone())),
        };
        #[cfg(not(feature = "shuttle"))]
        self.0.get_or_insert_with(&(table, at), load)
    }

    fn peek(&self, table: u64, at: u64) -> Option<Arc<Block>> {
        self.0.peek(&(table, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Bytewise;
    use crate::table::{Identity, Kind, Source, Table, TableBuilder, TableOptions};
    use rand::{Rng, SeedableRng};
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(Vec<u8>, AtomicUsize);

    impl Source for Counted {
        fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(self.0[at as usize..at as usize + len].to_vec())
        }

        fn drive(&self) -> Arc<str> {
            "memory".into()
        }
    }

    #[test]
    fn blocks_of_the_index_stay_among_random_gets() {
        let identity = Identity { table: 1, life: 2 };
        let options = TableOptions { block: 4096, ..TableOptions::default() };
        let mut builder = TableBuilder::new(options, Arc::new(Bytewise), identity).unwrap();
        for n in 0..8000u64 {
            builder.add(&n.to_be_bytes(), n, Kind::Put, &[7; 1000]).unwrap();
        }
        let mut bytes = builder.take_ready();
        bytes.extend(builder.finish().unwrap().0);
        let source = Arc::new(Counted(bytes, AtomicUsize::new(0)));
        // The index takes more than half of it, and a block of the index is read again after some forty others.
        let cache = Arc::new(Cache::new(32 * 4096, 4096));
        let len = source.0.len() as u64;
        let table = Table::open(source.clone(), len, Arc::new(Bytewise), identity, cache).unwrap();
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut reads = |gets: usize| {
            let before = source.1.load(Ordering::Relaxed);
            for _ in 0..gets {
                assert!(table.get(&random.random_range(0..8000u64).to_be_bytes(), 8000).unwrap().is_some());
            }
            (source.1.load(Ordering::Relaxed) - before) as f64 / gets as f64
        };
        reads(1000);
        let each = reads(4000);
        assert!(each < 1.05, "{each}");
    }
}
