//! Zones with room behind the bytes of closed files, and what of each is alive: the [bookkeeping](crate::policy::share::Parking), and the volume's of active zones,
//! which both change here and nowhere else.

use crate::meta::{Meta, Movable, Serial};
use crate::policy::share::{Class, Parking};
use crate::sync::lock;
use imbrex_device::ZoneId;
use imbrex_zones::{OpenZone, Tenant};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// See the module. Changed under the lock of the metadata, but for reservations.
pub(crate) struct Parked {
    tenant: Tenant,
    parking: Mutex<Parking>,
}

impl Parked {
    /// With these zones parked.
    pub(crate) fn new(tenant: Tenant, mut parking: Parking, meta: &Meta) -> Parked {
        parking.zones().for_each(|zone| tenant.let_go(zone));
        meta.zones().for_each(|(zone, _)| parking.note(zone, meta.movable(zone)));
        Parked { tenant, parking: Mutex::new(parking) }
    }

    /// Asks something of the bookkeeping.
    pub(crate) fn look<T>(&self, ask: impl FnOnce(&Parking) -> T) -> T {
        ask(&lock(&self.parking))
    }

    /// What moving all of these zones would take now.
    pub(crate) fn note(&self, zones: impl Iterator<Item = (u32, Option<Movable>)>) {
        let mut parking = lock(&self.parking);
        zones.for_each(|(zone, movable)| parking.note(zone, movable));
    }

    /// Parks a zone. Whoever takes it next finds that nobody has it.
    pub(crate) fn park(&self, open: OpenZone, class: Class) {
        let mut parking = lock(&self.parking);
        self.tenant.let_go(open.zone);
        parking.park(open, class);
    }

    /// Nothing stands in this zone any more, or nothing more is to be written there.
    pub(crate) fn forget(&self, zone: u32) {
        lock(&self.parking).forget(zone);
    }

    /// Takes one, which is about to be written. The volume hears of it before anybody can see that it is parked no more.
    fn take_by<T>(&self, take: impl FnOnce(&mut Parking) -> Option<T>, zone: impl Fn(&T) -> ZoneId) -> Option<T> {
        let mut parking = lock(&self.parking);
        take(&mut parking).inspect(|taken| self.tenant.taken(zone(taken)))
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
    pub(crate) fn take_chosen(&self, choose: impl FnOnce(&Parking) -> Option<u32>) -> Option<(OpenZone, Class)> {
        self.take_by(|parking| choose(parking).and_then(|zone| parking.take_zone(zone)), |(open, _)| open.zone)
    }

    /// The zone is about to be emptied, so nobody goes on there. False: room in it is reserved.
    pub(crate) fn claim(&self, zone: u32) -> bool {
        let mut parking = lock(&self.parking);
        if parking.is_reserved(zone) {
            return false;
        }
        parking.forget(zone);
        true
    }

    /// The zone with the least room, to be written no more.
    pub(crate) fn give_up_fullest(&self) -> Option<ZoneId> {
        lock(&self.parking).fullest().map(|open| open.zone)
    }

    /// Of these zones, those that are not parked.
    pub(crate) fn not_parked(&self, zones: Vec<ZoneId>) -> Vec<ZoneId> {
        let kept: BTreeSet<ZoneId> = self.look(|parking| parking.zones().collect());
        zones.into_iter().filter(|zone| !kept.contains(zone)).collect()
    }

    /// Reserves room for a file behind others' bytes; see [`Parking::reserve`].
    pub(crate) fn reserve(&self, file: Serial, class: Class, need: u64) -> bool {
        lock(&self.parking).reserve(file, class, need)
    }

    /// The file does not need what it had reserved.
    pub(crate) fn end_reservation(&self, file: Serial) {
        lock(&self.parking).end_reservation(file);
    }
}
