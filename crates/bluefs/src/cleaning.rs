//! What is known of cleaning from one step to the next: the [cleaner](imbrex_zones::clean), zones that it leaves alone, and what was written and moved. Nothing here is
//! locked across I/O.

use crate::meta::Serial;
use crate::policy::pack::budget;
use crate::sync::lock;
use imbrex_zones::Tenant;
use imbrex_zones::clean::{Cleaner, Rules};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cleaner, among the files that zones are reserved for.
pub(crate) const CLEANER: Serial = 4;

/// See the module.
pub(crate) struct Cleaning {
    cleaner: Cleaner,
    /// Zones with bytes that cannot be read: they stay as they are until the next mount.
    unreadable: Mutex<BTreeSet<u32>>,
    /// Bytes of tables that were written since zones were last cleaned ahead, and since the mount.
    unpaid: AtomicU64,
    written: AtomicU64,
    /// Bytes that were moved at rest.
    moved_at_rest: AtomicU64,
}

impl Cleaning {
    /// Of this tenant's zones of so many bytes. The policies of bluefs say when zones are cleaned, so the cleaner's own throttle has nothing to do.
    pub(crate) fn new(tenant: &Tenant, zone: u64) -> Cleaning {
        Cleaning {
            cleaner: Cleaner::new(tenant, Rules { below: 0, leave: 0, zone, step: u64::MAX }),
            unreadable: Mutex::default(),
            unpaid: AtomicU64::new(0),
            written: AtomicU64::new(0),
            moved_at_rest: AtomicU64::new(0),
        }
    }

    pub(crate) fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    /// Some of the zone cannot be read.
    pub(crate) fn give_up(&self, zone: u32) {
        lock(&self.unreadable).insert(zone);
    }

    pub(crate) fn given_up(&self) -> BTreeSet<u32> {
        lock(&self.unreadable).clone()
    }

    /// So many bytes were written to a table.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.owe(bytes);
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of tables for which nobody has cleaned ahead. Whoever asks does.
    pub(crate) fn take_unpaid(&self) -> u64 {
        self.unpaid.swap(0, Ordering::AcqRel)
    }

    /// Nobody has cleaned ahead for so many bytes yet.
    pub(crate) fn owe(&self, bytes: u64) {
        self.unpaid.fetch_add(bytes, Ordering::AcqRel);
    }

    /// So many bytes were moved at rest.
    pub(crate) fn moved_at_rest(&self, bytes: u64) {
        self.moved_at_rest.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that may be moved at rest; see [`budget`].
    pub(crate) fn rest_budget(&self, live: u64) -> u64 {
        let [written, moved] = [&self.written, &self.moved_at_rest].map(|n| n.load(Ordering::Relaxed));
        budget(live, written, moved)
    }
}
