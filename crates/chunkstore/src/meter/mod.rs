//! What operations took: bytes and seconds, as histograms.

mod stats;

pub(crate) use stats::Counters;
pub use stats::Stats;

use imbrex_zones::clean::{Load, Waits};
pub use imbrex_zones::histogram::Histogram;
use imbrex_zones::histogram::{Counts, TIMES};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A chunk was made.
    Create,
    /// Bytes were appended.
    Append,
    /// Bytes were read.
    Read,
    /// A chunk was sealed.
    Seal,
    /// A chunk was deleted.
    Delete,
    /// What had returned was made durable.
    Sync,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 6] =
        [Operation::Create, Operation::Append, Operation::Read, Operation::Seal, Operation::Delete, Operation::Sync];

    /// The name that metrics have.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Append => "append",
            Operation::Read => "read",
            Operation::Seal => "seal",
            Operation::Delete => "delete",
            Operation::Sync => "sync",
        }
    }
}

/// Upper ends of the buckets of sizes, in bytes: 4 KiB to 16 MiB.
const SIZES: [u64; 13] = [
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
];

/// The figures of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Which.
    pub operation: Operation,
    /// Those that succeeded, by nanoseconds from call to return.
    pub nanoseconds: Histogram,
    /// Of appends and reads, by bytes.
    pub bytes: Option<Histogram>,
    /// Those that failed.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct OfOperation {
    times: Counts,
    sizes: Counts,
    failed: AtomicU64,
}

/// Measures operations.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    of: [OfOperation; 6],
    /// What background work must not slow down.
    pub(crate) load: Load,
}

impl Meter {
    /// Does it, and takes note; `size` says how many bytes it was about.
    pub(crate) fn measure<T, E>(
        &self,
        operation: Operation,
        size: impl FnOnce(&T) -> u64,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (begun, began) = (self.load.begun(), Instant::now());
        let result = work();
        let of = &self.of[operation as usize];
        match &result {
            Ok(value) => {
                let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                of.times.add(&TIMES, nanoseconds);
                of.sizes.add(&SIZES, size(value));
                match operation {
                    Operation::Append => self.load.ended(begun, Waits::Append, nanoseconds),
                    Operation::Read => self.load.ended(begun, Waits::Read, nanoseconds),
                    _ => {}
                }
            }
            Err(_) => drop(of.failed.fetch_add(1, Ordering::Relaxed)),
        }
        result
    }

    pub(crate) fn read(&self) -> Vec<Measured> {
        let with_bytes = [Operation::Append, Operation::Read];
        let of = |operation: Operation| {
            let of = &self.of[operation as usize];
            Measured {
                operation,
                nanoseconds: of.times.read(&TIMES),
                bytes: with_bytes.contains(&operation).then(|| of.sizes.read(&SIZES)),
                failed: of.failed.load(Ordering::Relaxed),
            }
        };
        Operation::ALL.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_is_told_of_appends_and_reads() {
        let meter = Meter::default();
        let measure = |operation| meter.measure(operation, |()| 0, || Ok::<(), ()>(())).unwrap();
        Operation::ALL.into_iter().for_each(measure);
        measure(Operation::Read);
        meter.load.burst(|| measure(Operation::Append));
        let (calm, all) = meter.load.since_last();
        assert_eq!((calm.map(|of| of.count), all.map(|of| of.count)), ([1, 2], [2, 2]));
    }

    #[test]
    fn each_value_is_in_its_bucket_and_those_above() {
        let meter = Meter::default();
        for bytes in [1, 4096, 4097, 1 << 20, 1 << 30] {
            let done: Result<u64, ()> = meter.measure(Operation::Append, |n| *n, || Ok(bytes));
            assert_eq!(done, Ok(bytes));
        }
        assert_eq!(meter.measure(Operation::Append, |()| 0, || Err::<(), ()>(())), Err(()));
        let all = meter.read();
        let append = &all[Operation::Append as usize];
        let bytes = append.bytes.as_ref().unwrap();
        assert_eq!((bytes.buckets[0], bytes.buckets[1]), ((4096, 2), (8192, 3)));
        assert_eq!((bytes.buckets[8], bytes.buckets[12]), ((1 << 20, 4), (16 << 20, 4)));
        assert_eq!((bytes.count, bytes.sum), (5, 1 + 4096 + 4097 + (1 << 20) + (1 << 30)));
        assert_eq!((append.nanoseconds.count, append.failed), (5, 1));
        assert!(append.nanoseconds.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        let create = &all[Operation::Create as usize];
        assert_eq!((create.nanoseconds.count, &create.bytes), (0, &None));
    }
}
