//! Threads that help whoever has several commands for a drive at once, so that its queue has them all: a disk takes them in the order that it likes best, and nobody else's has the head
//! in between. They are of the engine, not of one call: where many call at once, each has fewer, down to none.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Commands that a drive's queue holds.
const QUEUE: usize = 32;
/// Most threads that help all: the one that calls has a command, too.
const MOST: usize = QUEUE - 1;

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

/// Turns of those who have several commands that go on where others end: as many are at the drive as its queue holds, and whoever waits comes in order. With more at once the head goes
/// from the first command of one to that of another, and comes back for each.
pub struct Turns(Mutex<Now>);

struct Now {
    /// Commands that may come.
    free: usize,
    waiting: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    commands: usize,
    thread: Thread,
    comes: AtomicBool,
}

/// A turn, which ends when this is dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    commands: usize,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns(Mutex::new(Now { free: QUEUE, waiting: VecDeque::new() }))
    }
}

impl Turns {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many commands have room, or all that there is, behind those who came before. Whoever has a turn must not ask for another one.
    pub fn wait(&self, commands: usize) -> Turn<'_> {
        let commands = commands.min(QUEUE);
        let mut now = self.now();
        if now.waiting.is_empty() && now.free >= commands {
            now.free -= commands;
            return Turn { turns: self, commands };
        }
        let waiter = Arc::new(Waiter { commands, thread: std::thread::current(), comes: AtomicBool::new(false) });
        now.waiting.push_back(waiter.clone());
        drop(now);
        while !waiter.comes.load(Ordering::Acquire) {
            std::thread::park();
        }
        Turn { turns: self, commands }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = &mut *self.turns.now();
        now.free += self.commands;
        while let Some(next) = now.waiting.pop_front_if(|next| next.commands <= now.free) {
            now.free -= next.commands;
            next.comes.store(true, Ordering::Release);
            next.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_more_commands_have_a_turn_than_the_queue_holds_and_all_come() {
        let (turns, under_way, most, done) =
            (Turns::default(), AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for n in 0..40 {
                let (turns, under_way, most, done) = (&turns, &under_way, &most, &done);
                scope.spawn(move || {
                    for commands in [n % 7 + 1, 40, 3] {
                        let turn = turns.wait(commands);
                        let now = under_way.fetch_add(turn.commands, Ordering::Relaxed) + turn.commands;
                        most.fetch_max(now, Ordering::Relaxed);
                        std::thread::yield_now();
                        under_way.fetch_sub(turn.commands, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((done.into_inner(), under_way.into_inner()), (120, 0));
        assert_eq!(most.into_inner(), QUEUE);
        assert!(turns.now().free == QUEUE && turns.now().waiting.is_empty());
    }

    #[test]
    fn whoever_waits_comes_before_those_who_ask_later() {
        let turns = Turns::default();
        let first = turns.wait(QUEUE - 1);
        std::thread::scope(|scope| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let later = |n, commands| {
                let (turns, order) = (&turns, order.clone());
                scope.spawn(move || {
                    let turn = turns.wait(commands);
                    order.lock().unwrap().push(n);
                    drop(turn);
                });
                while turns.now().waiting.len() < n {
                    std::thread::yield_now();
                }
            };
            // The second would have room.
            later(1, 8);
            later(2, 1);
            assert!(order.lock().unwrap().is_empty());
            drop(first);
            while order.lock().unwrap().len() < 2 {
                std::thread::yield_now();
            }
        });
        assert_eq!(turns.now().free, QUEUE);
    }

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
