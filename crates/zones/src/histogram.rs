//! How long operations took, counted in buckets: what metrics of engines, and of what stands on them, have in common.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper ends of the buckets of times, in nanoseconds: 10 µs to 10 s.
pub const TIMES: [u64; 13] = [
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
];

/// How many of something were how large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Upper end of each bucket, included, and how many were no larger than that (those of smaller buckets, too).
    pub buckets: Vec<(u64, u64)>,
    /// How many there were in all.
    pub count: u64,
    /// The sum of all.
    pub sum: u64,
}

/// Counts values in buckets. The bounds are those of who counts, the same each time.
#[derive(Debug, Default)]
pub struct Counts {
    buckets: [AtomicU64; 14],
    sum: AtomicU64,
}

impl Counts {
    /// One more value.
    pub fn add(&self, bounds: &[u64; 13], value: u64) {
        self.buckets[bounds.partition_point(|end| *end < value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self, bounds: &[u64; 13]) -> Histogram {
        let mut count = 0;
        let mut buckets = Vec::new();
        for (i, one) in self.buckets.iter().enumerate() {
            count += one.load(Ordering::Relaxed);
            buckets.extend(bounds.get(i).map(|end| (*end, count)));
        }
        Histogram { buckets, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}
