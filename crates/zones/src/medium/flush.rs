//! Flush tickets: one flush covers everybody who wrote before it.
//!
//! A ticket names the first flush that *starts* after the ticket was drawn. Whoever needs it done and finds no flush
//! running leads one; the others wait. A failed flush poisons the volume: what stood in the drive's cache may be gone, so
//! no later success may hide it. So does the news that the drive no longer has what it had acknowledged (`volume/taken.rs`).

use crate::sync::{Condvar, Mutex, lock, wait};
use imbrex_device::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Covers every write that was acknowledged before it was drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

struct State {
    started: u64,
    completed: u64,
    poison: Option<Error>,
}

/// The flushes of one drive.
pub(crate) struct Flusher {
    state: Mutex<State>,
    done: Condvar,
    poisoned: AtomicBool,
}

impl Flusher {
    pub(crate) fn new() -> Self {
        let state = State { started: 0, completed: 0, poison: None };
        Flusher { state: Mutex::new(state), done: Condvar::new(), poisoned: AtomicBool::new(false) }
    }

    /// Fails once a flush has failed.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.state).poison.clone().map_or(Ok(()), Err)
    }

    /// Waits for the flush that is under way, if there is one.
    pub(crate) fn wait_for_current(&self) {
        let mut state = lock(&self.state);
        let current = state.started;
        while state.completed < current {
            state = wait(&self.done, state);
        }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(lock(&self.state).started + 1)
    }

    /// Whether the ticket's flush, or a later one, has completed.
    pub(crate) fn is_durable(&self, ticket: Ticket) -> bool {
        let state = lock(&self.state);
        state.completed >= ticket.0 && state.poison.is_none()
    }

    /// From now on nothing is written or acknowledged any more. Returns why: the first error there was.
    pub(crate) fn poison(&self, error: Error) -> Error {
        tracing::error!(%error, "the volume takes no more writes until it is mounted again");
        let error = lock(&self.state).poison.get_or_insert(error).clone();
        self.poisoned.store(true, Ordering::Release);
        error
    }

    /// Returns when the ticket's flush, or a later one, has completed.
    pub(crate) fn durable(&self, ticket: Ticket, flush: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            if let Some(error) = &state.poison {
                return Err(error.clone());
            }
            if state.completed >= ticket.0 {
                return Ok(());
            }
            if state.started > state.completed {
                state = wait(&self.done, state);
                continue;
            }
            state.started += 1;
            let mine = state.started;
            drop(state);
            if let Err(error) = flush() {
                self.poison(error);
            }
            state = lock(&self.state);
            // Also on failure: nobody may wait for a flush that has ended.
            state.completed = mine;
            self.done.notify_all();
        }
    }
}
