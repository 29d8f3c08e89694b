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
    /// Data of the next group were written before it: so they will be again.
    ahead: bool,
}

impl Ended {
    fn left(&self) -> Duration {
        self.window.saturating_sub(self.at.elapsed())
    }

    /// So long it is worth waiting for others; zero: not at all. `gathers`: the group that is to be synced takes whoever comes.
    fn worth(&self, left: Duration, gathers: bool) -> Duration {
        let gains = gathers || self.ahead;
        if gains && self.come_back && self.came < self.durable { left } else { Duration::ZERO }
    }

    /// The sync behind it.
    fn then(&self, last: u64, (took, ahead): (Duration, bool), at: Instant) -> Ended {
        let window = (took / PART).min(MOST);
        let come_back = self.durable > 0 && self.came * 4 >= self.durable * 3;
        Ended { at, window, last, durable: last.saturating_sub(self.last), came: 0, come_back, ahead }
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
        let ended = Ended {
            at: Instant::now(),
            window: Duration::ZERO,
            last,
            durable: 0,
            came: 0,
            come_back: false,
            ahead: false,
        };
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

    /// A sync has ended, and transactions up to this one are durable. `ahead`: data of the next group were written before it.
    pub fn synced(&self, transaction: u64, took: Duration, ahead: bool) {
        let mut last = lock(&self.last);
        *last = last.then(transaction, (took, ahead), Instant::now());
    }

    /// Before a sync: waits for others as long as that is worth it. `gathers`: the group that is to be synced takes whoever comes.
    pub fn wait(&self, gathers: bool) {
        let mut last = lock(&self.last);
        loop {
            let worth = last.worth(last.left(), gathers);
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
        let at = Instant::now();
        Ended { at, window: TURN, last: 100, durable, came, come_back: false, ahead: false }
    }

    /// The sync behind this one, which makes some more durable.
    fn next(of: &Ended, more: u64, took: Duration) -> Ended {
        of.then(100 + more, (took, false), Instant::now())
    }

    #[test]
    fn others_are_waited_for_where_most_came_back() {
        let cases = [
            (8, 8, true),
            (8, 6, true),
            (8, 5, false),
            (16, 0, false),
            (1, 1, true),
            (1, 0, false),
            // Nobody was let go.
            (0, 0, false),
        ];
        for (durable, came, worth) in cases {
            let next = next(&ended(durable, came), 8, TURN);
            assert_eq!(!next.worth(TURN, true).is_zero(), worth, "{came} of {durable}");
            assert_eq!((next.durable, next.came), (8, 0));
        }
    }

    #[test]
    fn nobody_waits_for_those_who_would_gain_nothing() {
        let next = next(&ended(8, 8), 8, TURN);
        assert!(next.worth(TURN, false).is_zero());
        // Their data will be written before the sync.
        assert!(!Ended { ahead: true, ..next }.worth(TURN, false).is_zero());
    }

    #[test]
    fn nobody_waits_longer_than_for_all_of_them_or_a_part_of_a_sync() {
        let of = next(&ended(8, 8), 8, TURN);
        assert_eq!(of.window, TURN / 8);
        assert!(Ended { came: 8, ..of }.worth(TURN, true).is_zero());
        assert_eq!(next(&ended(8, 8), 8, Duration::from_secs(1)).window, MOST);
        // Whoever syncs has queued its own before: alone it waits for nobody.
        let of = next(&ended(1, 1), 1, TURN);
        assert!(Ended { came: 1, ..of }.worth(TURN, true).is_zero());
    }
}
