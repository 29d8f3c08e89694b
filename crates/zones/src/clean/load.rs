//! What users' operations take, and which of them a burst of background work touched: what the [throttle](super::throttle) is told.

use super::throttle::Mean;
use crate::sync::{Mutex, lock};
use std::sync::atomic::{AtomicU64, Ordering};

/// What users wait for that background work must not slow down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// An append.
    Append,
    /// A read.
    Read,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Load {
    /// Counts beginnings and ends of bursts: odd while one is under way.
    bursts: AtomicU64,
    /// Appends and reads that no burst touched, and all of them, since somebody asked last.
    since: Mutex<([Mean; 2], [Mean; 2])>,
}

impl Load {
    /// An operation begins. Its [end](Load::ended) is told with what this returns.
    pub fn begun(&self) -> u64 {
        self.bursts.load(Ordering::Relaxed)
    }

    /// An operation has ended that took so long.
    pub fn ended(&self, begun: u64, what: Waits, nanoseconds: u64) {
        let calm = begun.is_multiple_of(2) && begun == self.begun();
        let mut since = lock(&self.since);
        since.1[what as usize].add(nanoseconds);
        if calm {
            since.0[what as usize].add(nanoseconds);
        }
    }

    /// Does background work, on one thread at a time. Operations that overlap with it count as touched.
    pub fn burst<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bursts.fetch_add(1, Ordering::Relaxed);
        let done = work();
        self.bursts.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Appends and reads that no burst touched, and all of them, since this was asked last.
    pub fn since_last(&self) -> ([Mean; 2], [Mean; 2]) {
        std::mem::take(&mut lock(&self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_burst_touches_is_told_apart() {
        let load = Load::default();
        let append = || load.ended(load.begun(), Waits::Append, 1);
        append();
        load.burst(append);
        append();
        // One that a whole burst falls into.
        let begun = load.begun();
        load.burst(|| {});
        load.ended(begun, Waits::Read, 5);
        let (calm, all) = load.since_last();
        assert_eq!((calm.map(|of| of.count), all.map(|of| of.count)), ([2, 0], [3, 1]));
        assert_eq!(all[1].nanoseconds, 5);
        assert_eq!(load.since_last(), Default::default());
    }
}
