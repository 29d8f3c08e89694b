//! Locks. Every structure behind one is valid between any two statements, so a panic of another holder does not spoil it. A panic in a commit is another thing: it ends the store.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits no longer than this.
pub(crate) fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, most: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0
}
