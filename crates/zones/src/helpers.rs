//! Threads that help whoever has several commands for a drive at once, so that its queue has them all: a disk takes them in the order that it likes best, and nobody else's has the head
//! in between. They are of the engine, not of one call: where many call at once, each has fewer, down to none.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Most threads that help all: with the one that calls, what a drive's queue holds.
const MOST: usize = 31;

/// Helpers of all calls of an engine.
#[derive(Default)]
pub struct Helpers {
    busy: AtomicUsize,
}

/// Threads that help one call; they are given back when this is dropped.
struct Taken<'a> {
    busy: &'a AtomicUsize,
    count: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.busy.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl Helpers {
    /// As many of `want` as nobody else has.
    fn take(&self, want: usize) -> Taken<'_> {
        let more = |now: usize| Some(now + want.min(MOST.saturating_sub(now)));
        let before = self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).unwrap_or(MOST);
        Taken { busy: &self.busy, count: want.min(MOST.saturating_sub(before)) }
    }

    /// Has this thread do the work, and beside it as many others as `want` says and there are. Each goes on until nothing is left.
    pub fn beside(&self, want: usize, work: impl Fn() + Sync) {
        let taken = self.take(want);
        std::thread::scope(|scope| {
            for _ in 0..taken.count {
                // Without them (the system has no more) this one does it all.
                if std::thread::Builder::new().spawn_scoped(scope, &work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn those_who_read_share_their_helpers() {
        let helpers = Helpers::default();
        let first = helpers.take(20);
        let second = helpers.take(20);
        let third = helpers.take(20);
        assert_eq!((first.count, second.count, third.count), (20, 11, 0));
        drop(second);
        assert_eq!(helpers.take(5).count, 5);
        drop((first, third));
        assert_eq!(helpers.busy.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_work_at_once() {
        // Nobody passes before the others are there.
        let (helpers, all) = (Helpers::default(), Barrier::new(4));
        helpers.beside(3, || _ = all.wait());
        assert_eq!(helpers.busy.load(Ordering::Relaxed), 0);
    }
}
