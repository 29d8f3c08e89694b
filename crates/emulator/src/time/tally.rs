//! What the drive's time went into, and how long commands took: by cause.

use serde::Serialize;

/// What the drive does with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum Kind {
    /// The arm moves.
    Seek,
    /// The place comes round.
    Rotation,
    /// The head passes over what was asked for.
    Transfer,
    /// Zones open, close, finish, reset; those that the drive does by itself too.
    ZoneOps,
    /// A drive-managed drive reads, merges and writes bands.
    Cleaning,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 5] = [Kind::Seek, Kind::Rotation, Kind::Transfer, Kind::ZoneOps, Kind::Cleaning];

    /// The name that statistics print.
    pub fn name(self) -> &'static str {
        ["seek", "rotation", "transfer", "zone_ops", "cleaning"][self as usize]
    }
}

/// Buckets of a histogram of latencies: eight to each power of two of nanoseconds.
pub(crate) const BUCKETS: usize = 8 * 45;

/// The bucket of a latency.
pub(crate) fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let power = ns.ilog2() as usize;
    (8 * (power - 3) + (ns >> (power - 3) & 7) as usize).min(BUCKETS - 1)
}

/// The middle of a bucket, in nanoseconds.
pub(crate) fn middle(bucket: usize) -> f64 {
    let (power, part) = (bucket / 8, bucket % 8);
    (part as f64 + 8.5)
        * f64::from(1_u32 << power.min(31))
        * if power > 31 { f64::from(1_u32 << (power - 31)) } else { 1.0 }
}

/// Where the engine books time. Nanoseconds.
pub(crate) trait Tally {
    /// The head did something for a cause.
    fn spent(&mut self, cause: u8, kind: Kind, ns: f64);
    /// The head left its place for a command or a piece of the cache, to read or to write.
    fn sought(&mut self, _cause: u8, _reads: bool) {}
    /// The head did nothing.
    fn idle(&mut self, ns: f64);
    /// A command took so long, from its arrival to its completion.
    fn took(&mut self, cause: u8, ns: f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (0..10_000).chain([1 << 20, 1 << 30, 1 << 40, u64::MAX]) {
            let bucket = bucket(ns);
            assert!(bucket >= last && bucket < BUCKETS);
            last = bucket;
            if (8..1 << 40).contains(&ns) {
                let error = middle(bucket) / ns as f64;
                assert!((0.93..1.07).contains(&error), "{ns}: {}", middle(bucket));
            }
        }
    }
}
