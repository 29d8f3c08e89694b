//! What is known of the bytes that an image takes, where there is a limit to them: a number that they are not above. No I/O.
//!
//! A write adds what it could add, before it is queued. A look at all objects finds what they have; what was added meanwhile counts beside that, since the look may have missed it.
//! So the number may be too large, and never too small.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// `None`: nobody has looked.
    most: Option<u64>,
    /// It may be too large.
    loose: bool,
    /// What those could add that are not queued yet.
    under_way: u64,
    /// What was added since somebody began to look, or was under way then.
    since: u64,
    /// What is being found is not to be believed.
    forgotten: bool,
}

impl Bound {
    /// Somebody wants to add so many bytes; `could` is the most that he adds whatever others do meanwhile. False: they are not in the limit, as far as is known.
    pub fn admit(&mut self, bytes: u64, could: u64, limit: u64) -> bool {
        // What adds nothing is no worse where the image takes too much already.
        let fits = bytes == 0 || self.most.and_then(|most| most.checked_add(bytes)).is_some_and(|all| all <= limit);
        if fits {
            self.add(bytes, could);
        }
        fits
    }

    /// The same, for what is not refused.
    pub fn add(&mut self, bytes: u64, could: u64) {
        self.most = self.most.map(|most| most.saturating_add(bytes));
        self.loose |= bytes > 0;
        self.under_way = self.under_way.saturating_add(could);
        self.since = self.since.saturating_add(could);
    }

    /// It was queued, or failed.
    pub fn ended(&mut self, could: u64) {
        self.under_way = self.under_way.saturating_sub(could);
    }

    /// Something is gone.
    pub fn freed(&mut self) {
        self.loose = true;
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        (self.most, self.forgotten) = (None, true);
    }

    /// A look might find less.
    pub fn is_loose(&self) -> bool {
        self.most.is_none() || self.loose
    }

    pub fn begin_look(&mut self) {
        (self.loose, self.forgotten, self.since) = (false, false, self.under_way);
    }

    pub fn end_look(&mut self, found: u64) {
        if !self.forgotten {
            self.most = Some(found.saturating_add(self.since));
            self.loose |= self.since > 0;
        }
    }

    pub fn most(&self) -> Option<u64> {
        self.most
    }
}

/// The bound of an image.
#[derive(Default)]
pub(crate) struct Quota {
    bound: Mutex<Bound>,
    /// Who is close to the limit goes alone.
    close: Mutex<()>,
}

impl Quota {
    pub fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.close.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_admitted_before_a_look_and_no_more_than_fits_behind_it() {
        let mut bound = Bound::default();
        assert!(!bound.admit(1, 1, 100) && bound.is_loose());
        bound.begin_look();
        bound.end_look(60);
        assert!(!bound.is_loose() && !bound.admit(41, 41, 100) && !bound.admit(u64::MAX, 1, 100));
        assert!(bound.admit(40, 40, 100) && bound.is_loose() && !bound.admit(1, 1, 100));
        bound.begin_look();
        bound.ended(40);
        bound.end_look(100);
        assert!(bound.most() == Some(140) && bound.is_loose());
        bound.begin_look();
        bound.end_look(100);
        // Overwriting adds nothing, and makes nothing less certain. It may always be.
        assert!(bound.admit(0, 8, 100) && bound.admit(0, 8, 99) && !bound.is_loose());
    }

    #[test]
    fn a_look_may_have_missed_what_was_under_way_and_what_came() {
        let mut bound = Bound::default();
        bound.begin_look();
        bound.end_look(0);
        bound.add(0, 8);
        bound.begin_look();
        bound.add(4, 5);
        bound.ended(8);
        bound.end_look(50);
        assert_eq!((bound.most(), bound.is_loose()), (Some(63), true));
        bound.ended(5);
        bound.begin_look();
        bound.freed();
        bound.end_look(50);
        assert_eq!((bound.most(), bound.is_loose()), (Some(50), true));
        bound.begin_look();
        bound.forget();
        bound.end_look(50);
        assert_eq!(bound.most(), None);
    }
}
