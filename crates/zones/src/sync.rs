//! The locks of this crate: the standard library's, or `shuttle`'s when its scheduler explores the interleavings.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks, also after a panic of another holder: every structure behind a lock here is valid between any two statements,
/// and a volume whose I/O failed half-way is poisoned by its own flag, not by the lock's.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condvar` for so long at most; under `shuttle`, where nothing takes time, until it is notified.
pub(crate) fn wait_at_most<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: std::time::Duration,
) -> MutexGuard<'a, T> {
    #[cfg(feature = "shuttle")]
    return wait(condvar, {
        let _ = time;
        guard
    });
    #[cfg(not(feature = "shuttle"))]
    condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits on `condvar`, as [`lock`] locks.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
