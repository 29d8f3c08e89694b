//! What a store has done: for people, who read it of an open store and of the metadata log.

use crate::policy::HIGHEST;
use std::time::Duration;

/// Levels, and the bottom.
pub(crate) const LEVELS: usize = HIGHEST as usize + 2;

/// What a store has done since some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Keys that were given a value, or an operand.
    pub puts: u64,
    /// Other changes: keys and ranges that were deleted.
    pub deletes: u64,
    /// Bytes of the keys, values and operands that were put.
    pub put_bytes: u64,
    /// Reads of one key.
    pub gets: u64,
    /// Bytes of tables that flushes (and ingests) and merges wrote to each level, the bottom last.
    pub written: Vec<(u64, u64)>,
    /// Steps of merges.
    pub steps: u64,
    /// Writes that were held back for a millisecond or longer.
    pub stalls: u64,
    /// How long these waited together.
    pub stalled: Duration,
    /// How long one of them waited at most.
    pub longest_stall: Duration,
}

impl Done {
    /// Bytes of tables that were written to a level, over bytes that were put; `None`: nothing was put.
    pub fn amplification(&self, written: u64) -> Option<f64> {
        (self.put_bytes > 0).then(|| written as f64 / self.put_bytes as f64)
    }
}
