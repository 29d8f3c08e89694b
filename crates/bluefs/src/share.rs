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
use crate::meta::Serial;
use imbrex_device::ZoneId;
use imbrex_zones::OpenZone;
use std::collections::BTreeMap;

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
    /// A file that has been promised the room.
    promised: Option<Serial>,
}

/// The parked zones.
#[derive(Debug, Default)]
pub struct Parking(Vec<Parked>);

impl Parking {
    /// A file that was written to this zone is closed.
    pub fn park(&mut self, open: OpenZone, class: Class) {
        debug_assert!(!self.0.iter().any(|p| p.open.zone == open.zone));
        self.0.push(Parked { open, class, promised: None });
    }

    /// Nothing stands in this zone any more: it is to be reset.
    pub fn forget(&mut self, zone: u32) {
        self.0.retain(|p| p.open.zone.0 != zone);
    }

    /// The zone, for the file that ends in it.
    pub fn take_back(&mut self, zone: u32) -> Option<OpenZone> {
        let i = self.0.iter().position(|p| p.open.zone.0 == zone && p.promised.is_none())?;
        Some(self.0.swap_remove(i).open)
    }

    /// The best zone for a file: the one it was promised, or else of those within `distance` of its class the one that is
    /// nearest to it, and fullest.
    fn find(&self, serial: Serial, class: Class, need: u64, distance: u8) -> Option<usize> {
        let room = |p: &Parked| p.open.capacity.saturating_sub(p.open.at);
        let fits = |(i, p): (usize, &Parked)| match p.promised {
            Some(to) => (to == serial).then_some((0, 0, i)),
            None if room(p) < need => None,
            None => class.distance(p.class).filter(|d| *d <= distance).map(|d| (d + 1, room(p), i)),
        };
        self.0.iter().enumerate().filter_map(fits).min().map(|(_, _, i)| i)
    }

    /// Promises a file, which is about to have bytes, `need` bytes of room in a zone of any class that it may share.
    pub fn promise(&mut self, serial: Serial, class: Class, need: u64) -> bool {
        let found = self.find(serial, class, need, u8::MAX);
        if let Some(i) = found {
            self.0[i].promised = Some(serial);
        }
        found.is_some()
    }

    /// The zone with the least room, which is parked no more; none that is promised.
    pub fn fullest(&mut self) -> Option<OpenZone> {
        let free = self.0.iter().enumerate().filter(|(_, p)| p.promised.is_none());
        let (i, _) = free.min_by_key(|(_, p)| p.open.capacity.saturating_sub(p.open.at))?;
        Some(self.0.swap_remove(i).open)
    }

    /// Every parked zone.
    pub fn zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.0.iter().map(|p| p.open.zone)
    }

    /// How far each parked zone is written, in bytes.
    pub fn written(&self) -> BTreeMap<u32, u64> {
        self.0.iter().map(|p| (p.open.zone.0, p.open.at)).collect()
    }

    /// Zones that somebody has been promised room in.
    pub fn promised_zones(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().filter(|p| p.promised.is_some()).map(|p| p.open.zone.0)
    }

    /// The file does not need what it was promised.
    pub fn promise_over(&mut self, serial: Serial) {
        self.0.iter_mut().filter(|p| p.promised == Some(serial)).for_each(|p| p.promised = None);
    }

    /// A zone for a file's next bytes, with room for `need` of them. `crowded`: there are no empty zones, so that even one of
    /// another class will do.
    pub fn take(&mut self, serial: Serial, class: Class, need: u64, crowded: bool) -> Option<OpenZone> {
        let i = self.find(serial, class, need, if crowded { u8::MAX } else { 1 })?;
        Some(self.0.swap_remove(i).open)
    }
}

/// Bytes of room that make a zone worth parking.
pub fn worth_parking(capacity: u64) -> u64 {
    capacity / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(n: u32, at: u64) -> OpenZone {
        OpenZone { zone: ZoneId(n), life: 7, at, capacity: 1000 }
    }

    fn parking(zones: &[(u32, u64, Class)]) -> Parking {
        let mut parking = Parking::default();
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
    fn a_promised_zone_waits_for_its_file() {
        let mut p = parking(&[(1, 100, Class::Wal), (2, 800, Class::Log)]);
        assert!(p.promise(5, Class::Wal, 500));
        assert!(p.promise(5, Class::Wal, 500), "once is enough");
        assert_eq!(p.take(6, Class::Wal, 1, false), None);
        assert_eq!(p.take_back(1), None);
        assert!(!p.promise(6, Class::Wal, 500));
        assert_eq!(p.take(5, Class::Wal, 1, false), Some(zone(1, 100)));
        assert!(p.promise(6, Class::Wal, 100));
        p.promise_over(6);
        assert_eq!(p.take_back(2), Some(zone(2, 800)));
        let mut p = parking(&[(1, 100, Class::Wal)]);
        p.forget(1);
        assert_eq!(p.take(6, Class::Wal, 1, true), None);
    }
}
