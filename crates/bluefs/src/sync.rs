//! Locks of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: what is behind a lock here is valid between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
