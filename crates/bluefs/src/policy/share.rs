//! Zones that several files share: files smaller than a zone stand one behind the other in it, those that are expected to be
//! deleted at about the same time together.
//!
//! A stream has a zone to itself while it writes. When its file is closed, a zone with room left is *parked*, and the next
//! file of the same [`Class`] goes on in it. So files are not interleaved, a file is in one stretch or two (more only where few zones may be active), and zones fill up
//! one after the other. Room below a sixteenth of a zone is not worth a stretch of its own: a file as large as a zone, as the
//! paper advises, keeps its zone for itself, and its deletion is a zone to reset (BlueFS §4).
//!
//! Pure bookkeeping, under the metadata's lock: a zone in which nothing stands any more is taken out in the same step, so that
//! nobody writes to a zone that is about to be reset.

use crate::kind::{FileKind, Purpose};
use crate::meta::{Movable, Serial};
use crate::policy::cleaning::{Candidate, Candidates};
use crate::policy::pack::Partial;
use imbrex_zones::OpenZone;
use std::collections::{BTreeMap, BTreeSet};

/// What is expected to be deleted at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Write-ahead logs: deleted in order, soon.
    Wal,
    /// Other logs: rewritten now and then.
    Log,
    /// Tables and blobs by the application's hint, as Linux and RocksDB number them: 0 or 1 none, 2 short to 5 extreme.
    Table(u8),
}

impl Class {
    /// Of a file; the hint counts for tables.
    pub fn of(kind: FileKind, purpose: Purpose, hint: u8) -> Class {
        match (kind, purpose) {
            (_, Purpose::Wal) => Class::Wal,
            (FileKind::Log, _) => Class::Log,
            _ => Class::Table(hint),
        }
    }

    /// How well a file of this class fits to what stands in a zone of class `there`; the smaller the better, `None` not at
    /// all: frames and bare bytes never share a zone.
    fn distance(self, there: Class) -> Option<u8> {
        match (self, there) {
            (Class::Table(a), Class::Table(b)) if a == b => Some(0),
            // Since the last mount nobody knows what lives there.
            (Class::Table(_), Class::Table(0)) => Some(1),
            (Class::Table(_), Class::Table(_)) => Some(2),
            (Class::Wal, Class::Wal) | (Class::Log, Class::Log) => Some(0),
            (Class::Wal, Class::Log) | (Class::Log, Class::Wal) => Some(2),
            _ => None,
        }
    }
}

/// A zone with room that nobody writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parked {
    open: OpenZone,
    class: Class,
    /// A file that has reserved the room.
    reserved: Option<Serial>,
}

impl Parked {
    fn room(&self) -> u64 {
        self.open.capacity.saturating_sub(self.open.at)
    }
}

/// The parked zones, and those that are worth cleaning: how far a parked one is written decides what is dead in it. Every question
/// costs about as much on a drive of many zones as on one of few.
#[derive(Debug)]
pub struct Parking {
    capacity: u64,
    parked: BTreeMap<u32, Parked>,
    /// Those that are reserved for nobody: room and zone, by class.
    rooms: BTreeMap<Class, BTreeSet<(u64, u32)>>,
    reserved: BTreeMap<Serial, u32>,
    /// Zones in which nothing but closed pieces of files stands.
    movable: BTreeMap<u32, Movable>,
    candidates: Candidates,
}

impl Parking {
    /// Nothing is parked; of a drive whose zones take so many bytes.
    pub fn new(capacity: u64) -> Parking {
        Parking {
            capacity,
            parked: BTreeMap::new(),
            rooms: BTreeMap::new(),
            reserved: BTreeMap::new(),
            movable: BTreeMap::new(),
            candidates: Candidates::new(capacity),
        }
    }

    /// A file that was written to this zone is closed.
    pub fn park(&mut self, open: OpenZone, class: Class) {
        debug_assert!(!self.parked.contains_key(&open.zone.0));
        let parked = Parked { open, class, reserved: None };
        self.rooms.entry(class).or_default().insert((parked.room(), open.zone.0));
        self.parked.insert(open.zone.0, parked);
        self.judge(open.zone.0);
    }

    fn unpark(&mut self, zone: u32) -> Option<OpenZone> {
        let parked = self.parked.remove(&zone)?;
        match parked.reserved {
            Some(serial) => drop(self.reserved.remove(&serial)),
            None => self.rooms_of(parked.class, |rooms| rooms.remove(&(parked.room(), zone))),
        }
        self.judge(zone);
        Some(parked.open)
    }

    fn rooms_of(&mut self, class: Class, change: impl FnOnce(&mut BTreeSet<(u64, u32)>) -> bool) {
        let rooms = self.rooms.entry(class).or_default();
        let changed = change(rooms);
        debug_assert!(changed);
        if rooms.is_empty() {
            self.rooms.remove(&class);
        }
    }

    /// What moving all of this zone would take now; `None`: that cannot be moved.
    pub fn note(&mut self, zone: u32, movable: Option<Movable>) {
        match movable {
            Some(movable) => drop(self.movable.insert(zone, movable)),
            None => drop(self.movable.remove(&zone)),
        }
        self.judge(zone);
    }

    fn judge(&mut self, zone: u32) {
        let written = self.parked.get(&zone).map_or(self.capacity, |parked| parked.open.at);
        let candidate = |m: &Movable| {
            let dead = written.saturating_sub(m.live);
            Candidate { zone, live: m.live, dead, last: m.last }
        };
        let candidate = self.movable.get(&zone).map(candidate);
        self.candidates.set(zone, candidate);
    }

    /// The zones that are worth cleaning.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// Whether logs stand in this zone, as far as it could be emptied.
    pub fn has_logs(&self, zone: u32) -> bool {
        self.movable.get(&zone).is_some_and(|movable| movable.framed)
    }

    /// Every zone of tables that could be emptied at rest, of those that `may` be, or of `logs`; none that is reserved.
    pub fn partials(&self, logs: bool, may: impl Fn(u32) -> bool) -> Vec<Partial> {
        let partial = |(zone, movable): (&u32, &Movable)| {
            let parked = self.parked.get(zone);
            let free = movable.framed == logs && parked.is_none_or(|parked| parked.reserved.is_none()) && may(*zone);
            free.then(|| Partial { zone: *zone, live: movable.live, room: parked.map_or(0, Parked::room) })
        };
        self.movable.iter().filter_map(partial).collect()
    }

    /// Zones of logs that could be emptied.
    pub fn zones_of_logs(&self) -> impl Iterator<Item = u32> + '_ {
        self.movable.iter().filter(|(_, movable)| movable.framed).map(|(zone, _)| *zone)
    }

    /// How many zones become free at least where logs move together: of those that `may` be emptied and are half empty at least.
    pub fn zones_of_logs_to_spare(&self, may: impl Fn(u32) -> bool) -> u64 {
        let few =
            |(zone, movable): &(&u32, &Movable)| movable.framed && movable.live <= self.capacity / 2 && may(**zone);
        let (zones, live) =
            self.movable.iter().filter(few).fold((0, 0), |(n, live), (_, movable)| (n + 1, live + movable.live));
        // One more for what does not fit at the ends of those that they move to.
        zones - u64::min(zones, live.div_ceil(self.capacity) + 1)
    }

    /// Bytes in zones of tables that could be emptied, headers included.
    pub fn live(&self) -> u64 {
        self.movable.values().filter(|movable| !movable.framed).map(|movable| movable.live).sum()
    }

    /// The parked zones of tables, or of `logs`, that are reserved for nobody: room and zone.
    pub fn rooms(&self, logs: bool) -> impl Iterator<Item = (u64, u32)> + '_ {
        let wanted = self.rooms.iter().filter(move |(class, _)| matches!(class, Class::Table(_)) != logs);
        wanted.flat_map(|(_, rooms)| rooms.iter().copied())
    }

    /// A parked zone that is reserved for nobody, and what it was parked as.
    pub fn take_zone(&mut self, zone: u32) -> Option<(OpenZone, Class)> {
        let class = self.parked.get(&zone)?.class;
        Some((self.take_back(zone)?, class))
    }

    /// Nothing stands in this zone any more: it is to be reset. Or nothing more is to be written there.
    pub fn forget(&mut self, zone: u32) {
        self.unpark(zone);
    }

    /// The zone, for the file that ends in it.
    pub fn take_back(&mut self, zone: u32) -> Option<OpenZone> {
        match self.is_reserved(zone) {
            true => None,
            false => self.unpark(zone),
        }
    }

    /// The best zone for a file: the one it has reserved, or else of those within `distance` of its class the one that is
    /// nearest to it, and fullest.
    fn find(&self, serial: Serial, class: Class, need: u64, distance: u8) -> Option<u32> {
        if let Some(zone) = self.reserved.get(&serial) {
            return Some(*zone);
        }
        let fits = |(there, rooms): (&Class, &BTreeSet<(u64, u32)>)| {
            let distance = class.distance(*there).filter(|d| *d <= distance)?;
            let (room, zone) = rooms.range((need, 0)..).next()?;
            Some((distance, *room, *zone))
        };
        self.rooms.iter().filter_map(fits).min().map(|(_, _, zone)| zone)
    }

    /// Reserves `need` bytes of room for a file that is about to have bytes, in a zone of any class that it may share.
    pub fn reserve(&mut self, serial: Serial, class: Class, need: u64) -> bool {
        let Some(zone) = self.find(serial, class, need, u8::MAX) else { return false };
        let Some(parked) = self.parked.get_mut(&zone) else { return false };
        if parked.reserved.replace(serial).is_none() {
            let (class, room) = (parked.class, parked.room());
            self.rooms_of(class, |rooms| rooms.remove(&(room, zone)));
            self.reserved.insert(serial, zone);
        }
        true
    }

    /// Every parked zone.
    pub fn zones(&self) -> impl Iterator<Item = OpenZone> + '_ {
        self.parked.values().map(|p| p.open)
    }

    /// Zones that somebody has reserved room in.
    pub fn reserved_zones(&self) -> impl Iterator<Item = u32> + '_ {
        self.reserved.values().copied()
    }

    /// Whether somebody has reserved room in this zone.
    pub fn is_reserved(&self, zone: u32) -> bool {
        self.parked.get(&zone).is_some_and(|parked| parked.reserved.is_some())
    }

    /// The file does not need what it had reserved.
    pub fn end_reservation(&mut self, serial: Serial) {
        let Some(zone) = self.reserved.remove(&serial) else { return };
        let Some(parked) = self.parked.get_mut(&zone) else { return };
        parked.reserved = None;
        let (class, room) = (parked.class, parked.room());
        self.rooms_of(class, |rooms| rooms.insert((room, zone)));
    }

    /// A zone for a file's next bytes, with room for `need` of them. `crowded`: there are no empty zones, so that even one of
    /// another class will do.
    pub fn take(&mut self, serial: Serial, class: Class, need: u64, crowded: bool) -> Option<OpenZone> {
        let zone = self.find(serial, class, need, if crowded { u8::MAX } else { 1 })?;
        self.unpark(zone)
    }
}

/// Bytes of room that make a zone worth parking.
pub fn worth_parking(capacity: u64) -> u64 {
    capacity / 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::ZoneId;

    fn zone(n: u32, at: u64) -> OpenZone {
        OpenZone { zone: ZoneId(n), life: 7, at, capacity: 1000 }
    }

    fn parking(zones: &[(u32, u64, Class)]) -> Parking {
        let mut parking = Parking::new(1000);
        zones.iter().for_each(|&(n, at, class)| parking.park(zone(n, at), class));
        parking
    }

    #[test]
    fn files_of_a_class_fill_the_fullest_zone() {
        let mut p = parking(&[(1, 100, Class::Table(3)), (2, 600, Class::Table(3)), (3, 700, Class::Table(4))]);
        assert_eq!(p.take(9, Class::Table(3), 10, false), Some(zone(2, 600)));
        assert_eq!(p.take(9, Class::Table(3), 10, false), Some(zone(1, 100)));
        assert_eq!(p.take(9, Class::Table(3), 10, false), None, "of another class");
        assert_eq!(p.take(9, Class::Table(3), 301, true), None, "too little room");
        assert_eq!(p.take(9, Class::Log, 10, true), None, "frames and bare bytes never mix");
        assert_eq!(p.take(9, Class::Table(3), 10, true), Some(zone(3, 700)));
    }

    #[test]
    fn zones_from_before_the_mount_are_second_best() {
        let mut p = parking(&[(1, 100, Class::Table(0)), (2, 100, Class::Table(2))]);
        assert_eq!(p.take(9, Class::Table(2), 1, false), Some(zone(2, 100)));
        assert_eq!(p.take(9, Class::Table(2), 1, false), Some(zone(1, 100)));
    }

    #[test]
    fn a_reserved_zone_waits_for_its_file() {
        let mut p = parking(&[(1, 100, Class::Wal), (2, 800, Class::Log)]);
        assert!(p.reserve(5, Class::Wal, 500));
        assert!(p.reserve(5, Class::Wal, 500), "once is enough");
        assert_eq!(p.take(6, Class::Wal, 1, false), None);
        assert_eq!(p.take_back(1), None);
        assert!(!p.reserve(6, Class::Wal, 500));
        assert_eq!(p.take(5, Class::Wal, 1, false), Some(zone(1, 100)));
        assert!(p.reserve(6, Class::Wal, 100));
        p.end_reservation(6);
        assert_eq!(p.take_back(2), Some(zone(2, 800)));
        let mut p = parking(&[(1, 100, Class::Wal)]);
        p.forget(1);
        assert_eq!(p.take(6, Class::Wal, 1, true), None);
    }

    #[test]
    fn at_rest_every_zone_of_closed_tables_counts_with_its_room() {
        let mut p = parking(&[(1, 600, Class::Table(3)), (2, 300, Class::Table(4)), (3, 100, Class::Log)]);
        let live = |live| Some(Movable { live, last: 5, framed: false });
        [(1, 400), (2, 300), (4, 900)].into_iter().for_each(|(zone, n)| p.note(zone, live(n)));
        let partial = |zone, live, room| Partial { zone, live, room };
        assert_eq!(p.partials(false, |_| true), [partial(1, 400, 400), partial(2, 300, 700), partial(4, 900, 0)]);
        assert_eq!(p.partials(false, |zone| zone != 1), [partial(2, 300, 700), partial(4, 900, 0)]);
        assert_eq!(p.rooms(false).collect::<Vec<_>>(), [(400, 1), (700, 2)]);
        assert!(p.reserve(7, Class::Table(4), 10));
        assert_eq!((p.partials(false, |_| true).len(), p.rooms(false).count()), (2, 1), "one is reserved");
        assert_eq!(p.take_zone(2), None);
        assert_eq!(p.take_zone(1), Some((zone(1, 600), Class::Table(3))));
        assert_eq!(p.take_zone(1), None);
    }

    #[test]
    fn room_for_the_next_file_is_not_dead() {
        let mut p = parking(&[(1, 600, Class::Table(3))]);
        let live = |live| Some(Movable { live, last: 5, framed: false });
        p.note(1, live(400));
        assert_eq!(p.candidates().dead(), 200);
        let open = p.take(9, Class::Table(3), 10, false).unwrap();
        assert_eq!(p.candidates().dead(), 600, "written to the end, or never more");
        p.note(1, None);
        assert_eq!(p.candidates().dead(), 0, "somebody writes there");
        p.park(OpenZone { at: 900, ..open }, Class::Table(3));
        p.note(1, live(700));
        assert_eq!(p.candidates().dead(), 200);
        p.forget(1);
        assert_eq!(p.candidates().dead(), 300, "finished early");
    }
}
