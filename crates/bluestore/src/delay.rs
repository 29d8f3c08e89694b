//! Whoever syncs waits a moment for transactions of those whom the last sync has let go.
//!
//! Clients that waited for a sync often come back at once, each with its next transaction. A sync that begins before they do has the other half of them, and each waits for two: its own, and the one
//! that was under way when it came. On a disk a synced write takes a turn of the platters, whether it has the transactions of eight clients or of sixteen. Databases call this the commit delay.
//!
//! Nobody waits unless most of those who were let go have come back in that time behind the sync before.

use crate::lock::{lock, wait_for};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The part of the time of a sync that whoever makes the next one waits at most, and how long at most: what is lost where nobody comes.
const PART: u32 = 8;
const MOST: Duration = Duration::from_millis(4);

/// A sync that has ended.
struct Ended {
    at: Instant,
    /// For so long whoever makes the next one may wait.
    window: Duration,
    /// Number of the last transaction that it made durable, and how many it made durable.
    last: u64,
    durable: u64,
    /// Transactions that have come in the window.
    came: u64,
    /// In the window of the sync before most came back.
    come_back: bool,
}

impl Ended {
    fn left(&self) -> Duration {
        self.window.saturating_sub(self.at.elapsed())
    }

    /// So long it is worth waiting for others; zero: not at all.
    fn worth(&self, left: Duration) -> Duration {
        if self.come_back && self.came < self.durable { left } else { Duration::ZERO }
    }

    /// The sync behind it.
    fn then(&self, last: u64, took: Duration, at: Instant) -> Ended {
        let window = (took / PART).min(MOST);
        let come_back = self.came * 4 >= self.durable * 3;
        Ended { at, window, last, durable: last.saturating_sub(self.last), came: 0, come_back }
    }
}

/// See the module.
pub(crate) struct Delay {
    last: Mutex<Ended>,
    came: Condvar,
}

impl Delay {
    /// Of a store whose last transaction had that number.
    pub fn after(last: u64) -> Delay {
        let ended = Ended { at: Instant::now(), window: Duration::ZERO, last, durable: 1, came: 0, come_back: false };
        Delay { last: Mutex::new(ended), came: Condvar::new() }
    }

    /// A transaction was queued.
    pub fn queued(&self) {
        let mut last = lock(&self.last);
        if last.left() > Duration::ZERO {
            last.came += 1;
            if last.came == last.durable {
                self.came.notify_all();
            }
        }
    }

    /// A sync has ended, and transactions up to this one are durable.
    pub fn synced(&self, transaction: u64, took: Duration) {
        let mut last = lock(&self.last);
        *last = last.then(transaction, took, Instant::now());
    }

    /// Before a sync: waits for others as long as that is worth it.
    pub fn wait(&self) {
        let mut last = lock(&self.last);
        loop {
            let worth = last.worth(last.left());
            if worth.is_zero() {
                return;
            }
            last = wait_for(&self.came, last, worth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(8333);

    fn ended(durable: u64, came: u64) -> Ended {
        Ended { at: Instant::now(), window: TURN, last: 100, durable, came, come_back: false }
    }

    #[test]
    fn others_are_waited_for_where_most_came_back() {
        for (durable, came, worth) in
            [(8, 8, true), (8, 6, true), (8, 5, false), (16, 0, false), (1, 1, true), (1, 0, false)]
        {
            let next = ended(durable, came).then(108, TURN, Instant::now());
            assert_eq!(!next.worth(TURN).is_zero(), worth, "{came} of {durable}");
            assert_eq!((next.durable, next.came), (8, 0));
        }
    }

    #[test]
    fn nobody_waits_longer_than_for_all_of_them_or_a_part_of_a_sync() {
        let next = ended(8, 8).then(108, TURN, Instant::now());
        assert_eq!(next.window, TURN / 8);
        assert!(Ended { came: 8, ..next }.worth(TURN).is_zero());
        assert_eq!(ended(8, 8).then(108, Duration::from_secs(1), Instant::now()).window, MOST);
        // Whoever syncs has queued its own before: alone it waits for nobody.
        let next = ended(1, 1).then(101, TURN, Instant::now());
        assert!(Ended { came: 1, ..next }.worth(TURN).is_zero());
    }
}
