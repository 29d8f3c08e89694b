//! What iterators keep of a store, and how the store gets it back.
//!
//! An iterator keeps the tables of a view, and old versions of keys. The tables it needs for a moment only: any later view reads as well at its number. So it
//! gives them back when they are gone from the store, and goes on with those of now. Old versions it keeps until it is let go of, or expires.

use super::Core;
use super::view::Tables;
use crate::sync::lock;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Tables that are gone are kept so long, since each new view costs an iterator a search.
const KEPT: Duration = Duration::from_secs(10);

/// What an iterator keeps.
pub(crate) trait Lease: Send + Sync {
    /// Gives back other tables than these that it has had since `before` at least. False: it has none. One that is just moving does so with its next step.
    fn rest(&self, now: &Arc<Tables>, before: Instant) -> bool;
    /// Gives back all, if it is as old as this; it reads nothing more then. False: it is younger, or had nothing.
    fn expire(&self, age: Duration) -> bool;
}

impl Core {
    /// An iterator began.
    pub fn lend(&self, lease: Weak<dyn Lease>) {
        let mut leases = lock(&self.leases);
        // Looked through each time that they are twice as many.
        if leases.len() == leases.capacity() {
            leases.retain(|known| known.strong_count() > 0);
        }
        leases.push(lease);
    }

    fn each_lease(&self, mut give_back: impl FnMut(&dyn Lease) -> bool) -> bool {
        let all: Vec<_> = lock(&self.leases).iter().filter_map(Weak::upgrade).collect();
        // Each of them is asked.
        all.iter().filter(|lease| give_back(lease.as_ref())).count() > 0
    }

    /// Iterators give back tables that are gone, when they have kept them for long.
    pub fn rest_iterators(&self) {
        if let Some(before) = Instant::now().checked_sub(KEPT).filter(|_| !lock(&self.leases).is_empty()) {
            let tables = self.view().tables.clone();
            self.each_lease(|lease| lease.rest(&tables, before));
        }
    }

    /// The same at once, because zones lack. False: there were none.
    pub fn rest_all_iterators(&self) -> bool {
        let tables = self.view().tables.clone();
        self.each_lease(|lease| lease.rest(&tables, Instant::now()))
    }

    /// Iterators that are older than the options allow expire, because zones lack. False: there were none.
    pub fn expire_iterators(&self) -> bool {
        self.each_lease(|lease| lease.expire(self.options.lease))
    }
}
