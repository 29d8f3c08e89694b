//! Space of a store that overwrites in place: which allocation units of its zones are free, which will be, and what the key-value store is told of that.
//!
//! A unit has blocks of one blob, so it is free when none of that blob's blocks lives there any more. Whoever changes the blob's record knows ([`Blob::dead_units`](crate::blob::Blob::dead_units)), and no
//! unit has a count.
//!
//! - **Taken** by a commit, for its own group. Nobody else takes any.
//! - **Dying** from when a transaction of some group has let go of its blocks, until that group is durable: a crash may bring back the records that name them. Then it is free. Readers
//!   are not waited for: who reads an object looks at it again behind the read, and it has changed, or it would still name the blocks.
//! - **Records** ([`Key`]) say of 128 units which are taken as of a group: those that are, but for those that die with it or before.

use crate::units::{Allocator, Units};
use std::collections::{BTreeMap, BTreeSet};

/// Units of a record.
pub(crate) const RECORD: u32 = 128;

/// Which 128 units of a zone a record is of: the zone, and their number.
pub(crate) type Key = (u32, u32);

/// See the module.
pub(crate) struct Space {
    /// Blocks of a unit.
    unit: u32,
    /// Units of a zone. The first has the zone's header.
    units: u32,
    alloc: Allocator,
    /// Units that are taken, headers aside.
    used: u64,
    /// By zone and first unit: how many, and with which group they die.
    dying: BTreeMap<(u32, u32), (u32, u64)>,
    dying_units: u64,
    /// The same by group.
    waiting: BTreeMap<u64, Vec<Units>>,
    /// Records that change with a group.
    changed: BTreeMap<u64, BTreeSet<Key>>,
    /// Zones of which a unit has come free.
    emptied: BTreeSet<u32>,
}

/// The unit that has a zone's header.
const HEADER: u32 = 1;

impl Space {
    /// Of zones of so many blocks, in units of so many.
    pub fn new(unit: u32, blocks: u32) -> Space {
        let units = blocks / unit;
        Space {
            unit,
            units,
            alloc: Allocator::new(units),
            dying: BTreeMap::new(),
            dying_units: 0,
            used: 0,
            waiting: BTreeMap::new(),
            changed: BTreeMap::new(),
            emptied: BTreeSet::new(),
        }
    }

    /// Blocks of a unit.
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// A zone of which all is free.
    pub fn add(&mut self, zone: u32) {
        self.alloc.add(zone);
        self.alloc.set_taken(Units { zone, first: 0, units: HEADER });
    }

    /// So far units of a zone are taken. False: the zone has none such.
    pub fn load(&mut self, key: Key, taken: u128) -> bool {
        let (zone, first) = (key.0, u64::from(key.1) * u64::from(RECORD));
        let end = first + u64::from(u128::BITS - taken.leading_zeros());
        if end > self.units.into() || !self.has(zone) {
            return false;
        }
        let was = self.taken_in(zone);
        (0..RECORD).filter(|n| taken >> n & 1 == 1).for_each(|n| {
            self.alloc.set_taken(Units { zone, first: first as u32 + n, units: 1 });
        });
        self.used += u64::from(self.taken_in(zone) - was);
        true
    }

    /// All was loaded of a zone, whose record says that so many blocks live there. Where none is taken it is kept as it is, since a repair has kept its record; or it can be given back.
    pub fn loaded(&mut self, zone: u32, live: u64) {
        match (self.taken_in(zone), live) {
            (0, 0) => _ = self.emptied.insert(zone),
            (0, _) => self.close(zone),
            _ => {}
        }
    }

    /// Whether a zone is one of these.
    pub fn has(&self, zone: u32) -> bool {
        self.alloc.taken(zone) >= HEADER
    }

    /// The zone is somebody else's from here on. Nothing is taken there.
    pub fn remove(&mut self, zone: u32) {
        let gone: Vec<_> = self.dying.range((zone, 0)..=(zone, u32::MAX)).map(|(key, _)| *key).collect();
        for key in gone {
            self.dying_units -= self.dying.remove(&key).map_or(0, |(units, _)| u64::from(units));
        }
        self.waiting.values_mut().for_each(|all| all.retain(|of| of.zone != zone));
        self.used -= u64::from(self.taken_in(zone));
        self.alloc.remove(zone);
        self.emptied.remove(&zone);
    }

    /// Nothing more goes to the zone.
    pub fn close(&mut self, zone: u32) {
        self.alloc.close(zone);
    }

    /// Blocks that somebody may get.
    pub fn free(&self) -> u64 {
        self.alloc.free() * u64::from(self.unit)
    }

    /// Units of a zone that have data or wait to be free.
    pub fn taken_in(&self, zone: u32) -> u32 {
        self.alloc.taken(zone).saturating_sub(HEADER)
    }

    /// Blocks of units that have data or wait to be free.
    pub fn used(&self) -> u64 {
        self.used * u64::from(self.unit)
    }

    /// Blocks of units that wait to be free.
    #[cfg(test)]
    fn dying(&self) -> u64 {
        self.dying_units * u64::from(self.unit)
    }

    /// Room for so many blocks, which stand together.
    pub fn take(&mut self, blocks: u32, group: u64) -> Option<Units> {
        let taken = self.alloc.take(blocks.div_ceil(self.unit));
        self.mark_all(taken, group)
    }

    /// Room for a part of so many blocks, a multiple of `grain` of them.
    pub fn take_part(&mut self, blocks: u32, grain: u32, group: u64) -> Option<Units> {
        let taken = self.alloc.take_part(blocks.div_ceil(self.unit), (grain / self.unit).max(1));
        self.mark_all(taken, group)
    }

    /// Room for so many blocks from this one of a zone on, if all of it is free: durably, as all that is free. It has to be where a unit begins.
    pub fn take_at(&mut self, (zone, block): (u32, u32), blocks: u32, group: u64) -> bool {
        let of = Units { zone, first: block / self.unit, units: blocks.div_ceil(self.unit) };
        let taken = block.is_multiple_of(self.unit) && self.alloc.take_at(of);
        self.mark_all(taken.then_some(of), group).is_some()
    }

    fn mark_all(&mut self, taken: Option<Units>, group: u64) -> Option<Units> {
        taken.inspect(|of| {
            self.used += u64::from(of.units);
            self.mark(*of, group);
        })
    }

    fn mark(&mut self, of: Units, group: u64) {
        let keys = of.first / RECORD..=(of.first + of.units - 1) / RECORD;
        self.changed.entry(group).or_default().extend(keys.map(|n| (of.zone, n)));
    }

    fn is_dying(&self, zone: u32, unit: u32) -> bool {
        let before = self.dying.range((zone, 0)..=(zone, unit)).next_back();
        before.is_some_and(|((_, first), (units, _))| unit < first + units)
    }

    /// With this group nobody names them any more. Those that die already, or are free, are left as they are.
    pub fn die(&mut self, of: Units, group: u64) {
        let mut at = of.first.max(HEADER);
        let end = of.first.saturating_add(of.units).min(self.units);
        let lives = |space: &Space, unit: u32| {
            space.has(of.zone) && !space.alloc.is_free(of.zone, unit) && !space.is_dying(of.zone, unit)
        };
        while at < end {
            let first = at;
            while at < end && lives(self, at) {
                at += 1;
            }
            if at > first {
                let of = Units { zone: of.zone, first, units: at - first };
                self.dying.insert((of.zone, first), (of.units, group));
                self.dying_units += u64::from(of.units);
                self.waiting.entry(group).or_default().push(of);
                self.mark(of, group);
            }
            at += 1;
        }
    }

    /// Groups up to this one are durable: what dies with them is free.
    pub fn release(&mut self, durable: u64) {
        let later = self.waiting.split_off(&(durable + 1));
        for of in std::mem::replace(&mut self.waiting, later).into_values().flatten() {
            if let Some((units, _)) = self.dying.remove(&(of.zone, of.first)) {
                self.dying_units -= u64::from(units);
                self.used -= u64::from(units);
                self.alloc.give(of);
                self.emptied.insert(of.zone);
            }
        }
    }

    /// Whether so many blocks have room together.
    pub fn has_room(&mut self, blocks: u32) -> bool {
        let units = blocks.div_ceil(self.unit);
        let found = self.alloc.take_part(units, units);
        found.inspect(|of| self.alloc.give(*of)).is_some()
    }

    /// Zones of which nothing is taken any more, but for the one where the next write goes. `all`: with that one.
    pub fn empty(&mut self, all: bool) -> Vec<u32> {
        let last = self.alloc.last();
        let (empty, _) = std::mem::take(&mut self.emptied)
            .into_iter()
            .partition::<Vec<u32>, _>(|zone| self.has(*zone) && self.taken_in(*zone) == 0);
        let (kept, empty) = empty.into_iter().partition(|zone| *zone == last && !all);
        self.emptied.extend::<Vec<u32>>(kept);
        empty
    }

    /// A zone that was [empty](Space::empty) is not given away yet.
    pub fn keep(&mut self, zone: u32) {
        self.emptied.insert(zone);
    }

    /// Records that change with this group. Those of earlier ones were asked for.
    pub fn take_changed(&mut self, group: u64) -> BTreeSet<Key> {
        self.changed.remove(&group).unwrap_or_default()
    }

    /// Which units of a record are taken as of a group. 0: none is.
    pub fn record(&self, (zone, n): Key, group: u64) -> u128 {
        let word = |n: u32| u128::from(self.alloc.word(zone, n));
        let mut taken = word(2 * n) | word(2 * n + 1) << 64;
        let (first, end) = (n * RECORD, (n + 1) * RECORD);
        // A stretch that begins before may reach into it.
        let before = self.dying.range((zone, 0)..(zone, first)).next_back();
        for ((_, from), (units, of)) in before.into_iter().chain(self.dying.range((zone, first)..(zone, end))) {
            let (from, to) = ((*from).max(first), (from + units).min(end));
            if *of <= group && from < to {
                taken &= !((u128::MAX >> (RECORD - (to - from))) << (from - first));
            }
        }
        if n == 0 { taken & !u128::from(HEADER) } else { taken }
    }

    /// All records that are not 0, as of a group.
    pub fn records(&self, group: u64) -> BTreeMap<Key, u128> {
        let keys = self.alloc.zones().flat_map(|zone| (0..self.units.div_ceil(RECORD)).map(move |n| (zone, n)));
        keys.map(|key| (key, self.record(key, group))).filter(|(_, taken)| *taken != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(zone: u32, first: u32, units: u32) -> Units {
        Units { zone, first, units }
    }

    #[test]
    fn what_dies_is_free_when_its_group_is_durable_and_records_are_of_their_groups() {
        let mut space = Space::new(1, 300);
        space.add(7);
        assert_eq!((space.free(), space.taken_in(7)), (299, 0));
        assert_eq!(space.take(200, 5), Some(of(7, 1, 200)));
        assert_eq!(space.take_changed(5), BTreeSet::from([(7, 0), (7, 1)]));
        let all = |space: &Space, group| (space.record((7, 0), group), space.record((7, 1), group));
        assert_eq!(all(&space, 5), (u128::MAX - 1, (1 << 73) - 1));
        space.die(of(7, 120, 20), 6);
        // Again, and with more: each unit dies once.
        space.die(of(7, 119, 22), 8);
        assert_eq!(space.dying(), 22);
        assert_eq!(all(&space, 5), (u128::MAX - 1, (1 << 73) - 1));
        assert_eq!(all(&space, 6), ((1 << 120) - 2, (1 << 73) - (1 << 12)));
        assert_eq!(all(&space, 8), ((1 << 119) - 2, (1 << 73) - (1 << 13)));
        assert_eq!(space.take_changed(6), BTreeSet::from([(7, 0), (7, 1)]));
        space.release(7);
        assert_eq!((space.free(), space.dying()), (119, 2));
        assert_eq!(all(&space, 7), ((1 << 120) - 2, (1 << 73) - (1 << 12)));
        assert_eq!(space.take(150, 9), None);
        assert_eq!(space.take_part(150, 32, 9), Some(of(7, 201, 96)));
        space.release(8);
        assert_eq!((space.free(), space.dying(), space.used()), (25, 0, 274));
    }

    #[test]
    fn a_zone_of_which_all_is_free_can_be_given_back() {
        let mut space = Space::new(4, 403);
        space.add(1);
        space.add(2);
        assert_eq!(space.free(), 99 * 4 * 2);
        let first = space.take(99 * 4, 1).unwrap();
        let second = space.take(5, 1).unwrap();
        assert_eq!((first.zone, second), (1, of(2, 1, 2)));
        space.die(first, 2);
        space.die(second, 3);
        assert_eq!(space.empty(true), []);
        space.release(2);
        assert_eq!(space.empty(false), [1]);
        space.remove(1);
        space.release(3);
        // The next write goes there.
        assert_eq!(space.empty(false), []);
        assert_eq!(space.empty(true), [2]);
        space.remove(2);
        assert_eq!((space.free(), space.take(1, 4), space.records(9).len()), (0, None, 0));
    }

    #[test]
    fn records_come_back_and_no_others() {
        let mut space = Space::new(1, 200);
        space.add(1);
        let taken = space.take(150, 1).unwrap();
        let records = space.records(1);
        let mut again = Space::new(1, 200);
        again.add(1);
        for (key, record) in &records {
            assert!(again.load(*key, *record));
        }
        assert_eq!((again.records(9), again.free()), (records, space.free()));
        assert_eq!(taken.units, 150);
        // Of another zone, and behind the zone's end.
        assert!(!again.load((2, 0), 1));
        assert!(!again.load((1, 1), 1 << 72) && again.load((1, 1), 1 << 71));
        assert!(!again.load((1, u32::MAX), 1));
    }

    #[test]
    fn a_wanted_place_is_taken_only_where_all_of_it_is_durably_free() {
        let mut space = Space::new(4, 400);
        space.add(7);
        space.add(8);
        // The header, and what lives.
        assert_eq!(space.take(40, 1), Some(of(7, 1, 10)));
        assert!(!space.take_at((7, 0), 4, 1) && !space.take_at((7, 8), 4, 1));
        // What has died, until that is durable.
        space.die(of(7, 2, 4), 2);
        space.release(1);
        assert!(!space.take_at((7, 8), 4, 2));
        space.release(2);
        // Where no unit begins; where a part of it lives; behind the zone's end.
        assert!(!space.take_at((7, 10), 4, 3) && !space.take_at((7, 8), 17, 3));
        assert!(!space.take_at((7, 392), 9, 3) && !space.take_at((7, u32::MAX - 3), u32::MAX, 3));
        // A zone of others.
        assert!(!space.take_at((9, 8), 4, 3));
        assert_eq!((space.used(), space.take_changed(3)), (24, BTreeSet::new()));
        assert!(space.take_at((7, 8), 6, 3));
        assert_eq!((space.used(), space.take_changed(3)), (32, BTreeSet::from([(7, 0)])));
        assert_eq!(space.record((7, 0), 3), 0b111_1100_1110);
        // Two want the same.
        assert!(!space.take_at((7, 8), 4, 3) && !space.take_at((7, 12), 4, 3) && space.take_at((7, 16), 8, 3));
        // A zone that refuses writes, and one that was given back.
        space.die(of(7, 2, 1), 4);
        space.release(4);
        space.close(7);
        space.remove(8);
        assert!(!space.take_at((7, 8), 4, 5) && !space.take_at((8, 8), 4, 5));
        space.add(8);
        assert!(space.take_at((8, 8), 4, 5));
    }
}
