//! A right that one has at a time, and for which the others wait.

use crate::lock::{lock, wait};
use std::convert::Infallible;
use std::sync::{Condvar, Mutex};

/// See the module.
#[derive(Default)]
pub(crate) struct Right {
    taken: Mutex<bool>,
    changed: Condvar,
}

/// The right of whoever has this; given back when dropped.
#[must_use]
pub(crate) struct Taken<'a>(&'a Right);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) = false;
        self.0.changed.notify_all();
    }
}

impl Right {
    /// Waits for it.
    pub fn take(&self) -> Taken<'_> {
        let Err(taken) = self.take_unless(|| None::<Infallible>);
        taken
    }

    /// Takes it where nobody has it.
    pub fn try_take(&self) -> Option<Taken<'_>> {
        (!std::mem::replace(&mut *lock(&self.taken), true)).then(|| Taken(self))
    }

    /// Waits until this is so, or for the right, which is an error here. Is asked again each time somebody has given the right back.
    pub fn take_unless<T>(&self, so: impl Fn() -> Option<T>) -> Result<T, Taken<'_>> {
        let mut taken = lock(&self.taken);
        loop {
            if let Some(so) = so() {
                return Ok(so);
            }
            if !std::mem::replace(&mut *taken, true) {
                return Err(Taken(self));
            }
            taken = wait(&self.changed, taken);
        }
    }
}
