//! How a store is opened.

use crate::order::{Bytewise, Order};
use crate::table::TableOptions;
use imbrex_zones::VolumeOptions;
use std::fmt;
use std::sync::Arc;

/// How a store is opened. Sizes are bytes.
#[derive(Clone)]
pub struct Options {
    /// The order of keys; a store remembers its name.
    pub order: Arc<dyn Order>,
    /// Changes in memory at most, before some of them become a table.
    pub memtable_bytes: usize,
    /// Bytes of a table at most.
    pub table_bytes: u64,
    /// How tables are made.
    pub table: TableOptions,
    /// Blocks in memory.
    pub cache_bytes: u64,
    /// Parts of the key space that flush and merge by themselves.
    pub partitions: usize,
    /// Bytes in upper tables at most, before a partition is merged with the bottom.
    pub upper_bytes: u64,
    /// Bytes of one write of the write-ahead log.
    pub segment_bytes: usize,
    /// How the volume is opened.
    pub volume: VolumeOptions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            order: Arc::new(Bytewise),
            memtable_bytes: 64 << 20,
            table_bytes: 64 << 20,
            table: TableOptions::default(),
            cache_bytes: 64 << 20,
            partitions: 8,
            upper_bytes: 1 << 30,
            segment_bytes: 1 << 20,
            volume: VolumeOptions::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("order", &self.order.name())
            .field("volume", &self.volume)
            .finish_non_exhaustive()
    }
}
