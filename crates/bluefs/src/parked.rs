//! Zones with room behind the bytes of closed files, and what of each is alive: the [bookkeeping](crate::policy::share::Parking), and the volume's list of parked zones,
//! which both change here and nowhere else. The volume may finish a parked zone at any moment where few zones may be active.

use crate::meta::{Meta, Movable, Serial};
use crate::policy::share::{Class, Parking};
use crate::sync::lock;
use imbrex_device::ZoneId;
use imbrex_zones::{OpenZone, Tenant};
use std::sync::{Mutex, MutexGuard};

/// See the module. Changed under the lock of the metadata, but for reservations.
pub(crate) struct Parked {
    tenant: Tenant,
    parking: Mutex<Parking>,
}

impl Parked {
    /// With these zones parked.
    pub(crate) fn new(tenant: Tenant, mut parking: Parking, meta: &Meta) -> Parked {
        parking.zones().for_each(|open| tenant.park(open.zone, open.capacity - open.at));
        meta.zones().for_each(|(zone, _)| parking.note(zone, meta.movable(zone)));
        Parked { tenant, parking: Mutex::new(parking) }
    }

    /// The bookkeeping, without zones that the volume has finished because few may be active.
    fn lock(&self) -> MutexGuard<'_, Parking> {
        let mut parking = lock(&self.parking);
        if self.tenant.limits_active() {
            let gone: Vec<_> =
                parking.zones().map(|open| open.zone).filter(|zone| !self.tenant.is_parked(*zone)).collect();
            gone.into_iter().for_each(|zone| parking.forget(zone.0));
        }
        parking
    }

    /// Asks something of the bookkeeping.
    pub(crate) fn look<T>(&self, ask: impl FnOnce(&Parking) -> T) -> T {
        ask(&self.lock())
    }

    /// What moving all of these zones would take now.
    pub(crate) fn note(&self, zones: impl Iterator<Item = (u32, Option<Movable>)>) {
        let mut parking = lock(&self.parking);
        zones.for_each(|(zone, movable)| parking.note(zone, movable));
    }

    /// Parks a zone. Whoever takes it next finds that nobody has it.
    pub(crate) fn park(&self, open: OpenZone, class: Class) {
        let mut parking = lock(&self.parking);
        self.tenant.park(open.zone, open.capacity - open.at);
        parking.park(open, class);
    }

    /// Nothing stands in this zone any more, or nothing more is to be written there.
    pub(crate) fn forget(&self, zone: u32) {
        self.tenant.unpark(ZoneId(zone));
        lock(&self.parking).forget(zone);
    }

    /// Takes one, which is about to be written.
    fn take_by<T>(&self, mut take: impl FnMut(&mut Parking) -> Option<T>, zone: impl Fn(&T) -> ZoneId) -> Option<T> {
        let mut parking = self.lock();
        loop {
            let taken = take(&mut parking)?;
            // Unless the volume has finished it this moment.
            if self.tenant.take_parked(zone(&taken)) {
                return Some(taken);
            }
        }
    }

    /// A zone for a file's next bytes; see [`Parking::take`].
    pub(crate) fn take(&self, file: Serial, class: Class, need: u64, crowded: bool) -> Option<OpenZone> {
        self.take_by(|parking| parking.take(file, class, need, crowded), |open| open.zone)
    }

    /// The zone, for the file that ends in it.
    pub(crate) fn take_back(&self, zone: u32) -> Option<OpenZone> {
        self.take_by(|parking| parking.take_back(zone), |open| open.zone)
    }

    /// The zone that is chosen, if it is reserved for nobody, and what it was parked as.
    pub(crate) fn take_chosen(&self, mut choose: impl FnMut(&Parking) -> Option<u32>) -> Option<(OpenZone, Class)> {
        self.take_by(|parking| choose(parking).and_then(|zone| parking.take_zone(zone)), |(open, _)| open.zone)
    }

    /// The zone that is chosen to be emptied. Nobody goes on there from this moment.
    pub(crate) fn claim(&self, choose: impl FnOnce(&Parking) -> Option<u32>) -> Option<u32> {
        let mut parking = self.lock();
        let zone = choose(&parking)?;
        self.tenant.unpark(ZoneId(zone));
        parking.forget(zone);
        Some(zone)
    }

    /// Reserves room for a file behind others' bytes; see [`Parking::reserve`].
    pub(crate) fn reserve(&self, file: Serial, class: Class, need: u64) -> bool {
        self.lock().reserve(file, class, need)
    }

    /// The file does not need what it had reserved.
    pub(crate) fn end_reservation(&self, file: Serial) {
        lock(&self.parking).end_reservation(file);
    }
}
