//! Whose turn it is to write on a rotating drive.
//!
//! Alternating between two zones in 1 MiB writes leaves about a quarter of a disk's bandwidth, 16 MiB turns leave 85 %
//! (DESIGN §3). So one writer at a time, and whoever has the turn keeps it until it has written a turn's worth or has
//! nothing more; a synchronous commit goes first.
//!
//! A writer that knows better shares its turn with itself: several of its writes, to zones that are no two the same, are at the
//! drive at once, whose queue puts them in order.

use crate::sync::{Condvar, Mutex, lock, wait};
use imbrex_device::Priority;

/// Somebody who waits for the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Which stream.
    pub stream: u64,
    /// How urgent.
    pub priority: Priority,
    /// Order of arrival.
    pub arrival: u64,
}

/// Policy: which of `waiters` goes next, after `last` (stream, bytes written in its turn so far). Commits first, then the
/// stream whose turn it still is, then by arrival. `None` only where nobody waits.
pub fn next_turn(last: Option<(u64, u64)>, waiters: &[Waiter], turn_bytes: u64) -> Option<usize> {
    let continues = |w: &Waiter| last.is_some_and(|(stream, bytes)| w.stream == stream && bytes < turn_bytes);
    let key = |w: &Waiter| (std::cmp::Reverse(w.priority), !continues(w), w.arrival);
    (0..waiters.len()).min_by_key(|&i| key(&waiters[i]))
}

struct State {
    /// Writes under way; more than one only where they share.
    inside: u32,
    shared: bool,
    last: Option<(u64, u64)>,
    waiters: Vec<Waiter>,
    arrivals: u64,
}

/// The turn of one drive.
pub(crate) struct Turn {
    turn_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Turn {
    /// `turn_bytes`: how much a stream may write before another one gets the turn.
    pub(crate) fn new(turn_bytes: u64) -> Self {
        let state = State { inside: 0, shared: false, last: None, waiters: Vec::new(), arrivals: 0 };
        Turn { turn_bytes, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Runs `write` (which writes `bytes`) when it is the stream's turn.
    pub(crate) fn run<T>(&self, stream: u64, priority: Priority, bytes: u64, write: impl FnOnce() -> T) -> T {
        self.run_as(stream, priority, bytes, false, write)
    }

    /// The same, beside others of the stream that share.
    pub(crate) fn run_shared<T>(&self, stream: u64, priority: Priority, bytes: u64, write: impl FnOnce() -> T) -> T {
        self.run_as(stream, priority, bytes, true, write)
    }

    fn run_as<T>(&self, stream: u64, priority: Priority, bytes: u64, share: bool, write: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.state);
        let me = Waiter { stream, priority, arrival: state.arrivals };
        state.arrivals += 1;
        state.waiters.push(me);
        loop {
            let beside = share && state.shared && state.last.is_some_and(|(last, _)| last == stream);
            if state.inside == 0 || beside {
                let next = next_turn(state.last, &state.waiters, self.turn_bytes);
                if next.is_some_and(|i| state.waiters[i] == me) {
                    break;
                }
                // Only where that one can go now: two who tell each other of a third would never rest.
                if state.inside == 0 || next.is_some_and(|i| state.waiters[i].stream == stream) {
                    self.changed.notify_all();
                }
            }
            state = wait(&self.changed, state);
        }
        state.waiters.retain(|w| *w != me);
        state.inside += 1;
        state.shared = share;
        let so_far = match state.last {
            Some((last, n)) if last == stream && n < self.turn_bytes => n,
            _ => 0,
        };
        state.last = Some((stream, so_far + bytes));
        if share && !state.waiters.is_empty() {
            self.changed.notify_all();
        }
        drop(state);
        let give_back = GiveBack(self);
        let result = write();
        drop(give_back);
        result
    }
}

/// Gives the turn back, also when the write panics.
struct GiveBack<'a>(&'a Turn);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).inside -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(stream: u64, priority: Priority, arrival: u64) -> Waiter {
        Waiter { stream, priority, arrival }
    }

    #[test]
    fn commits_first_then_the_turn_then_arrival() {
        use Priority::*;
        let w = [waiter(1, Normal, 0), waiter(2, Normal, 1), waiter(3, High, 2)];
        assert_eq!(next_turn(None, &w, 100), Some(2));
        assert_eq!(next_turn(Some((2, 50)), &w[..2], 100), Some(1), "still its turn");
        assert_eq!(next_turn(Some((2, 100)), &w[..2], 100), Some(0), "its turn is over");
        assert_eq!(next_turn(None, &[], 100), None);
        let background = [waiter(1, Background, 0), waiter(2, Normal, 1)];
        assert_eq!(next_turn(Some((1, 0)), &background, 100), Some(1));
    }

    #[test]
    fn only_one_writes_at_a_time() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let (turn, inside) = (Turn::new(100), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for stream in 0..4 {
                let (turn, inside) = (&turn, &inside);
                scope.spawn(move || {
                    for _ in 0..200 {
                        turn.run(stream, Priority::Normal, 30, || {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
    }

    #[test]
    fn those_that_share_write_side_by_side_and_nobody_else_beside_them() {
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicBool, Ordering};
        let (turn, both, sharing) = (Turn::new(100), Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    turn.run_shared(1, Priority::Normal, 30, || {
                        sharing.store(true, Ordering::SeqCst);
                        // Neither goes on before both are there.
                        both.wait();
                        both.wait();
                        sharing.store(false, Ordering::SeqCst);
                        both.wait();
                    })
                });
            }
            scope.spawn(|| {
                for _ in 0..50 {
                    turn.run(2, Priority::Normal, 30, || assert!(!sharing.load(Ordering::SeqCst)));
                }
            });
        });
    }
}
