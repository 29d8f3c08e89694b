//! What iterators keep of a store, and how the store gets it back.
//!
//! An iterator keeps the tables of a view, and old versions of keys. The tables it needs for a moment only: any later view reads as well at its number. So it
//! gives them back when they are gone from the store, and goes on with those of now. Old versions it keeps until it is let go of, or expires.

use super::Core;
use super::view::Tables;
use crate::sync::lock;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Tables that are gone are kept so long, since each new view costs an iterator a search.
pub(crate) const KEPT: Duration = Duration::from_secs(10);

/// What an iterator keeps.
pub(crate) trait Lease: Send + Sync {
    /// Gives back other tables than these, if it has had them for [`KEPT`]. One that is just moving does so with its next step.
    fn rest(&self, now: &Arc<Tables>);
    /// The same at once, however long it has had them. False: it has none.
    fn rest_at_once(&self, now: &Arc<Tables>) -> bool;
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
            let twice = leases.len() + 1;
            leases.reserve(twice);
        }
        leases.push(lease);
    }

    fn iterators(&self) -> Vec<Arc<dyn Lease>> {
        lock(&self.leases).iter().filter_map(Weak::upgrade).collect()
    }

    /// Iterators give back tables that are gone, when they have kept them for long.
    pub fn rest_iterators(&self) {
        let tables = self.view().tables.clone();
        self.iterators().iter().for_each(|lease| lease.rest(&tables));
    }

    /// Zones lack: iterators give back tables that are gone, or else those expire that are older than the options allow. False: there was nothing to give back.
    pub fn take_back(&self) -> bool {
        let (tables, iterators) = (self.view().tables.clone(), self.iterators());
        // Each of them is asked.
        let any = |give_back: &dyn Fn(&dyn Lease) -> bool| {
            iterators.iter().filter(|lease| give_back(lease.as_ref())).count() > 0
        };
        let given = any(&|lease| lease.rest_at_once(&tables)) || any(&|lease| lease.expire(self.options.lease));
        if given {
            self.free();
        }
        given
    }
}
