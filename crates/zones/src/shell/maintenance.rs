//! The maintenance thread of an open engine: what is done without being asked.
//!
//! The thread does one [chore](super::Engine::chore) after the other and rests between them as long as the engine says. Nothing an engine promises
//! may depend on the thread: the system may have none to give.
//!
//! Invariants: the thread holds no lock while it rests; it is told to stop before the engine closes, and joined. A chore that is under way
//! then ends by itself, and looks at [`Maintenance::is_over`] where it takes long.

use super::Engine;
use crate::sync::{Condvar, Mutex, lock, wait_at_most};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread rests before the next chore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// So long at most.
    pub time: Duration,
    /// [`Maintenance::ring`] ends it.
    pub until_rung: bool,
}

#[derive(Default)]
struct Signal {
    over: bool,
    rung: bool,
}

/// See the module. The engine has it to ring, and to see that it is over.
#[derive(Default)]
pub struct Maintenance {
    signal: Mutex<Signal>,
    changed: Condvar,
    attended: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    /// There is something to do: a rest that may be ended so ends.
    pub fn ring(&self) {
        if self.is_attended() {
            lock(&self.signal).rung = true;
            self.changed.notify_all();
        }
    }

    /// Whether there is a thread that will do the next chore.
    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }

    /// Whether no more chores are wanted.
    pub fn is_over(&self) -> bool {
        lock(&self.signal).over
    }

    /// No chore is done any more once this returns, also if somebody else ends it at the same time.
    pub fn end(&self) {
        lock(&self.signal).over = true;
        self.attended.store(false, Ordering::Relaxed);
        self.changed.notify_all();
        let mut thread = lock(&self.thread);
        // One that panicked has already said so.
        drop(thread.take().map(JoinHandle::join));
    }

    /// Sets out. Without a thread (the system has no more) whoever needs something done does it.
    pub(super) fn start<E: Engine>(self: &Arc<Self>, engine: &Arc<E>) {
        let (with, own) = (engine.clone(), self.clone());
        let attend = move || {
            let mut chores = E::Chores::default();
            while let Some(rest) = with.chore(&mut chores) {
                if own.rest(rest) {
                    return;
                }
            }
            own.attended.store(false, Ordering::Relaxed);
        };
        self.attended.store(true, Ordering::Relaxed);
        match std::thread::Builder::new().name(format!("imbrex-{}", E::TENANT)).spawn(attend) {
            Ok(thread) => *lock(&self.thread) = Some(thread),
            Err(error) => {
                self.attended.store(false, Ordering::Relaxed);
                tracing::warn!(%error, "no thread for maintenance");
            }
        }
    }

    /// Rests; true: it is over.
    fn rest(&self, rest: Rest) -> bool {
        let until = Instant::now() + rest.time;
        let mut signal = lock(&self.signal);
        while !(signal.over || rest.until_rung && signal.rung) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            signal = wait_at_most(&self.changed, signal, left);
        }
        signal.rung = false;
        signal.over
    }
}
