//! How a store is opened.

use crate::order::{Bytewise, Order};
use crate::policy::{Active, Policy, Sizes};
use crate::table::TableOptions;
use imbrex_zones::{Exec, VolumeOptions};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes a policy.
pub type MakePolicy = Arc<dyn Fn(Sizes) -> Box<dyn Policy> + Send + Sync>;

/// How a store is opened. Sizes are bytes.
#[derive(Clone)]
pub struct Options {
    /// The order of keys; a store remembers its name.
    pub order: Arc<dyn Order>,
    /// Changes in memory, before some of them become a table. A drive has a 32nd of it at most there.
    pub memtable_bytes: usize,
    /// Bytes of a table at most.
    pub table_bytes: u64,
    /// How tables are made.
    pub table: TableOptions,
    /// Blocks in memory.
    pub cache_bytes: u64,
    /// Bytes that a step of a merge writes, about.
    pub step_bytes: u64,
    /// Name of the [policy](crate::policy::ALL) of compactions; a new store's is `ring`, and it keeps its own.
    pub policy: Option<String>,
    /// Makes the policy of that name with other numbers than [`ALL`](crate::policy::ALL) has: for experiments. `bottom`, `gear_k` and `gear_active` do not count then.
    pub make_policy: Option<MakePolicy>,
    /// For `ring`: of all zones in use the bottom takes at least so many percent. More saves space and costs speed; 0 saves none.
    pub bottom: u32,
    /// For `gear`: a window has a `gear_k`-th of a level, 1 to 10.
    pub gear_k: u32,
    /// For `gear`: which tables begin a compaction.
    pub gear_active: Active,
    /// An iterator that is older than this expires where the store is full and needs the old values that it keeps.
    pub lease: Duration,
    /// How long the maintenance thread rests where there is nothing to do. Once puts have left it a whole rest, it merges ahead of them. A millisecond at least.
    pub rest: Duration,
    /// Reads of the drive that a [multi-get](crate::Kv::multi_get) has under way at once, or an iterator that seeks in several runs on a drive that does not rotate. With
    /// [`Exec::Inline`] it is one, so that each run of a program is the same.
    pub reads_at_once: usize,
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
            step_bytes: 64 << 20,
            policy: None,
            make_policy: None,
            bottom: 0,
            gear_k: 4,
            gear_active: Active::Paper,
            lease: Duration::from_secs(600),
            rest: Duration::from_millis(100),
            reads_at_once: 16,
            segment_bytes: 1 << 20,
            volume: VolumeOptions::default(),
        }
    }
}

impl Options {
    /// Reads that may be under way at once.
    pub(crate) fn reads(&self) -> usize {
        if matches!(self.volume.exec, Exec::Inline) { 1 } else { self.reads_at_once }
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
