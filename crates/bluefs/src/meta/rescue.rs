//! Putting back what a damaged journal no longer says, from what the zones say of themselves.
//!
//! The header of every sequential zone names its file and the logical offset of its first byte. When the record that
//! gave the zone to the file is lost, the extent before it seems to reach to the one behind it. Whoever reads the zones
//! first [takes away](Meta::forget_bytes) what cannot be where it is said to be, then [fills](Meta::restore) the holes.
//! Neither is a record: afterwards the journal is written anew from a snapshot.

use super::inode::{Extent, OPEN, Place, Plan};
use super::{Effect, FIRST_SERIAL, FileKind, Inode, Meta, MetaError, Result, Serial};

/// What the header of a zone says of its file.
#[derive(Clone, Copy, Debug)]
pub struct Witness<'a> {
    /// The file.
    pub serial: Serial,
    /// How its bytes are placed.
    pub kind: FileKind,
    /// Its name when it was created; need not be valid.
    pub name: &'a str,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Offset in the file of the zone's first byte.
    pub logical: u64,
    /// The zone, from its first byte of the file on.
    pub place: Place,
}

impl Meta {
    /// The bytes `from..to` of a file are not where its extents say: they become a hole. What was conventional stays, and an
    /// open extent that ends now ends before the next file in its zone. A file that no longer reaches its size counts as open.
    pub fn forget_bytes(&mut self, serial: Serial, from: u64, to: u64) -> Result<Effect> {
        let inode = self.file(serial)?;
        let mut plan = Plan { at: 0..inode.extents.len(), ..Plan::default() };
        for e in &inode.extents {
            if e.conventional().is_some() || e.end() <= from || e.logical >= to {
                plan.with.push(*e);
                continue;
            }
            let room = self.space.room_end(serial, e);
            plan.with.extend(e.part(e.logical, from).and_then(|rest| rest.before(room)));
            plan.gone.extend(e.part(from, to));
            plan.with.extend(e.part(to, u64::MAX).and_then(|rest| rest.before(room)));
        }
        let effect = self.effect_of(serial, plan);
        let inode = self.file_mut(serial)?;
        if inode.kind.is_sequential() && inode.size > inode.reach() {
            inode.closed = false;
        }
        Ok(effect)
    }

    /// Whether the file was deleted, or has given up the zone.
    pub fn is_given_up(&self, serial: Serial, place: Place) -> bool {
        let forgotten = |(zone, life)| self.is_forgotten(zone, life) && !self.may_have_lost(serial, zone, life);
        self.was_deleted(serial) || place.zone().is_some_and(forgotten)
    }

    /// Gives a zone that nobody refers to, or only to a later part of, back to the file that its header names, up to the next
    /// zone of the file or the next file in the zone; behind the last extent it is open. Bytes that were overwritten, and so
    /// stand in conventional space, stay there: the zone holds what is around them. A file that is not known is made in
    /// `lost+found`; one whose creation was lost gets its kind and name there.
    ///
    /// [`MetaError::Exists`] when the file has that byte in another zone (an older copy was found, to be reset), or has no
    /// hole behind it, [`MetaError::NotFound`] when the file was deleted or has given up
    /// the zone, [`MetaError::Invalid`] when the zone is taken.
    pub fn restore(&mut self, witness: &Witness<'_>) -> Result<()> {
        let Witness { serial, kind, logical, place, .. } = *witness;
        let extent = Extent { logical, len: OPEN, place };
        extent.validate()?;
        if kind == FileKind::Directory || self.is_given_up(serial, place) {
            return Err(MetaError::NotFound);
        }
        self.space.admit(serial, &extent)?;
        let room = self.space.room_end(serial, &extent);
        match self.file(serial) {
            Ok(inode) if filling(inode, &extent, room).is_none() => return Err(MetaError::Exists),
            Ok(_) => {}
            Err(MetaError::NotFound) if serial >= FIRST_SERIAL => self.admit_serial(serial, kind)?,
            Err(why) => return Err(why),
        }
        self.name_by(witness);
        let inode = self.file_mut(serial)?;
        let plan = filling(inode, &extent, room).ok_or(MetaError::Exists)?;
        if plan.with.last().is_some_and(Extent::is_open) {
            inode.closed = false;
        }
        self.carry_out(serial, plan);
        Ok(())
    }

    /// Fills a hole between two extents of a file. [`MetaError::Exists`] where it is none.
    pub fn fill(&mut self, serial: Serial, extent: Extent) -> Result<()> {
        extent.validate()?;
        self.space.admit(serial, &extent)?;
        let inode = self.file(serial)?;
        let at = inode.extents.partition_point(|e| e.end() <= extent.logical);
        if extent.is_open() || inode.extents.get(at).is_none_or(|next| next.logical < extent.end()) {
            return Err(MetaError::Exists);
        }
        self.carry_out(serial, Plan { at: at..at, with: vec![extent], gone: Vec::new() });
        Ok(())
    }

    /// Makes a file in `lost+found` whose creation is lost and whose first bytes the dead process still had in memory: as a
    /// log, which takes any bytes. One that was invented by a name of small files becomes a log where it is: only
    /// sequential files have bytes in memory. Returns a sentence about it.
    ///
    /// [`MetaError::Exists`] when it is known, [`MetaError::NotFound`] when it was deleted.
    pub fn restore_unplaced(&mut self, serial: Serial) -> Result<String> {
        let invented = self.was_invented(serial);
        match self.inodes.get_mut(&serial) {
            Some(inode) if invented && inode.kind == FileKind::Random && inode.extents.is_empty() => {
                (inode.kind, inode.closed) = (FileKind::Log, false);
                Ok(format!("{}, whose creation is lost, is a log: bytes of it were in memory", self.path_of(serial)))
            }
            _ => self.invent(serial, FileKind::Log, None).map(|(_, what)| what),
        }
    }

    /// Tables whose size was lost with its record end where their extents do. A sentence for each.
    pub fn restore_sizes(&mut self) -> Vec<String> {
        let lost = |inode: &&mut Inode| {
            let ends = !inode.extents.last().is_some_and(Extent::is_open);
            inode.kind == FileKind::Table && inode.size == 0 && ends && inode.reach() > 0
        };
        let restored = self.inodes.values_mut().filter(lost).map(|inode| {
            inode.size = inode.reach();
            format!("file {} had lost its size; it ends at {}, where its extents do", inode.serial, inode.size)
        });
        restored.collect()
    }

    /// Makes the file, or betters the guesses about one that was invented.
    fn name_by(&mut self, witness: &Witness<'_>) {
        let Witness { serial, kind, created, .. } = *witness;
        let is_known = self.inodes.contains_key(&serial);
        if is_known && !self.was_invented(serial) {
            return;
        }
        let home = self.lost_found();
        if is_known {
            if let Some(inode) = self.inodes.get_mut(&serial) {
                (inode.kind, inode.created) = (kind, created);
            }
            // A name that a record gave it is a better one.
            let Some((_, guess)) = self.name_of(serial).filter(|(parent, _)| *parent == home) else { return };
            let guess = guess.clone();
            if self.detach(home, &guess).is_err() {
                return;
            }
        } else {
            self.insert_inode(Inode::new(serial, kind, created));
        }
        let name = self.free_name(home, &format!("{serial}-{}", witness.name));
        self.attach(home, &name, serial);
    }
}

/// More than the last block of a raw file can be padded by, in bytes.
const PADDING: u64 = 4096;

/// What an open extent fills of a file: the holes from its first byte on to the next zone of the file, before `room`. Extents
/// in between are conventional and stay. `None`: there is nothing to fill.
fn filling(inode: &Inode, extent: &Extent, room: u64) -> Option<Plan> {
    let first = inode.extents.partition_point(|e| e.end() <= extent.logical);
    let conventional = inode.extents[first..].iter().take_while(|e| e.conventional().is_some()).count();
    let mut plan = Plan { at: first..first + conventional, ..Plan::default() };
    let mut here = extent.logical;
    for e in &inode.extents[plan.at.clone()] {
        plan.with.extend(extent.part(here, e.logical.min(room)));
        plan.with.push(*e);
        here = e.end();
    }
    match inode.extents.get(plan.at.end) {
        // In the same zone, a later part begins behind no more than the padding of the last block of the one before.
        Some(Extent { logical, place: Place::Raw { zone, offset, .. }, .. })
            if matches!(extent.place, Place::Raw { zone: z, offset: front, .. }
                if z == *zone && offset.wrapping_sub(front.saturating_add(logical.saturating_sub(extent.logical))) >= PADDING) =>
            {}
        Some(next) => plan.with.extend(extent.part(here, next.logical.min(room))),
        // Behind the end of a file that is closed there is no hole.
        None if conventional > 0 && inode.closed && inode.size <= here => {}
        None if here >= room => {}
        None => plan.with.extend(extent.part(here, u64::MAX)),
    }
    (plan.with.len() > conventional).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::super::{Name, ROOT, Record};
    use super::*;

    const ZONE: u64 = 1000;

    fn raw(zone: u32) -> Place {
        Place::Raw { zone, life: 9, offset: 4096 }
    }

    fn witness(serial: Serial, logical: u64, zone: u32) -> Witness<'static> {
        Witness { serial, kind: FileKind::Table, name: "7.sst", created: 5, logical, place: raw(zone) }
    }

    fn extend(logical: u64, zone: u32) -> Record {
        Record::Extend { serial: 16, extent: Extent { logical, len: OPEN, place: raw(zone) } }
    }

    /// A table of two and a half zones, without the record of index `lost`; then sealed.
    fn table_without(lost: usize) -> Meta {
        let create = Record::Create {
            parent: ROOT,
            name: Name::new("7.sst").unwrap(),
            serial: 16,
            kind: FileKind::Table,
            time: 5,
        };
        let seal = Record::Seal { serial: 16, size: 2500, time: 6 };
        let records = [create, extend(0, 1), extend(ZONE, 2), extend(2 * ZONE, 3), seal];
        let mut meta = Meta::new();
        for (_, record) in records.iter().enumerate().filter(|(index, _)| *index != lost) {
            let _ = meta.apply_repairing(record);
        }
        meta
    }

    #[test]
    fn a_table_whose_extent_is_lost_is_whole_again() {
        let whole = table_without(usize::MAX);
        for lost in 1..=3 {
            let mut meta = table_without(lost);
            assert!(meta != whole);
            let logical = (lost as u64 - 1) * ZONE;
            // The zones before hold no more than a zone's worth each.
            let Ok(_) = meta.forget_bytes(16, logical, (logical + ZONE).min(2500)) else { panic!("file 16 is there") };
            let file = meta.inode(16).unwrap();
            assert_eq!(file.extent_at(logical), None);
            assert_eq!(meta.restore(&witness(16, logical, lost as u32)), Ok(()));
            // Behind the last extent the end has to be looked for; the size is still known.
            assert_eq!(meta.inode(16).unwrap().closed, lost != 3);
            assert!(meta.apply(&Record::Seal { serial: 16, size: 2500, time: 6 }).is_ok());
            assert_eq!(meta.finish_replay(), Vec::<String>::new());
            assert_eq!(meta.check(), Vec::<String>::new());
            assert_eq!(meta, whole, "without record {lost}");
        }
    }

    #[test]
    fn an_older_copy_of_bytes_never_replaces_them() {
        let mut meta = table_without(usize::MAX);
        let before = meta.clone();
        assert_eq!(meta.restore(&witness(16, 0, 8)), Err(MetaError::Exists));
        assert_eq!(meta.restore(&witness(16, 1500, 8)), Err(MetaError::Exists));
        assert!(matches!(meta.restore(&witness(99, 0, 1)), Err(MetaError::Invalid(_))), "zone 1 is taken");
        assert_eq!(meta, before);
    }

    #[test]
    fn a_zone_comes_back_around_the_bytes_that_were_moved_out_of_it() {
        let moved = |logical, len, addr| Extent { logical, len, place: Place::Conventional { addr } };
        let remap = |e: Extent| Record::Remap { serial: 16, logical: e.logical, len: e.len, place: e.place };
        let whole = |mut meta: Meta| {
            for extent in [moved(0, 100, 1 << 20), moved(500, 100, 2 << 20)] {
                assert!(meta.apply(&remap(extent)).is_ok());
            }
            meta
        };
        // Nothing is known but where bytes were moved to.
        let mut meta = Meta::new();
        for extent in [moved(0, 100, 1 << 20), moved(500, 100, 2 << 20)] {
            let _ = meta.apply_repairing(&remap(extent));
        }
        assert_eq!(meta.restore(&witness(16, 0, 1)), Ok(()));
        let places: Vec<_> =
            meta.inode(16).unwrap().extents.iter().map(|e| (e.logical, e.len, e.place.zone())).collect();
        let zone = Some((1, 9));
        assert_eq!(places, [(0, 100, None), (100, 400, zone), (500, 100, None), (600, OPEN, zone)]);
        assert_eq!(meta.check(), Vec::<String>::new());
        // Only the zone's extent is lost, and the size is known.
        let mut meta = whole(table_without(usize::MAX));
        let before = meta.clone();
        assert_eq!(meta.restore(&witness(16, 0, 8)), Err(MetaError::Exists), "there is no hole");
        assert!(meta.forget_bytes(16, 0, ZONE).is_ok());
        assert_eq!(meta.restore(&witness(16, 0, 1)), Ok(()));
        assert_eq!(meta, before);
    }

    #[test]
    fn the_beginning_of_a_zone_comes_back_before_a_later_part_of_it() {
        let later = |offset| Place::Raw { zone: 1, life: 9, offset };
        for (offset, comes_back) in [(4096 + 1000, true), (8192, true), (4096 + 4096 + 1000, false), (4096, false)] {
            let mut meta = Meta::new();
            let extent = Extent { logical: 1000, len: OPEN, place: later(offset) };
            let _ = meta.apply_repairing(&Record::Extend { serial: 16, extent });
            assert_eq!(meta.restore(&witness(16, 0, 1)).is_ok(), comes_back, "{offset}");
            let extents = &meta.inode(16).unwrap().extents;
            assert_eq!(extents.len(), 1 + usize::from(comes_back));
            assert_eq!((extents[0].logical == 0, extents.last()), (comes_back, Some(&extent)));
            assert_eq!(meta.check(), Vec::<String>::new());
        }
    }

    #[test]
    fn an_unknown_file_gets_its_name_in_lost_and_found() {
        let mut meta = table_without(0);
        assert_eq!(meta.resolve("/lost+found/16-lost"), Ok(16));
        assert_eq!(meta.restore(&witness(16, 3 * ZONE, 4)), Ok(()));
        assert_eq!(meta.resolve("/lost+found/16-7.sst"), Ok(16));
        assert_eq!(meta.names_of(16).count(), 1);
        assert_eq!(meta.restore(&Witness { name: "a/b\0", ..witness(20, 0, 5) }), Ok(()));
        assert_eq!(meta.resolve("/lost+found/20-a_b_"), Ok(20));
        assert_eq!(meta.next_serial(), 21);
        assert_eq!(meta.check(), Vec::<String>::new());
    }

    #[test]
    fn bytes_in_memory_tell_that_an_invented_file_is_no_small_one() {
        let name = |name| Name::new(name).unwrap();
        let mut meta = table_without(usize::MAX);
        let rename = Record::Rename {
            from_parent: ROOT,
            from: name("3.log"),
            to_parent: ROOT,
            to: name("CURRENT"),
            serial: 20,
            victim: None,
            time: 7,
        };
        assert!(!meta.apply_repairing(&rename).is_applied());
        assert_eq!(meta.inode(20).map(|inode| inode.kind), Some(FileKind::Random));
        assert!(meta.restore_unplaced(20).is_ok());
        assert_eq!(meta.inode(20).map(|inode| inode.kind), Some(FileKind::Log));
        assert_eq!(meta.resolve("/CURRENT"), Ok(20));
        // What is known, or became a log already, stays as it is.
        assert_eq!(meta.restore_unplaced(20), Err(MetaError::Exists));
        assert_eq!(meta.restore_unplaced(16), Err(MetaError::Exists));
        assert_eq!(meta.inode(16).map(|inode| inode.kind), Some(FileKind::Table));
        assert_eq!(meta.check(), Vec::<String>::new());
    }

    #[test]
    fn a_cut_of_the_later_part_of_a_zone_does_not_forget_the_zone() {
        let framed = |offset| Place::Framed { zone: 1, life: 9, offset };
        let mut meta = Meta::new();
        let extent = Extent { logical: 74, len: OPEN, place: framed(8192) };
        for record in [
            Record::Link { serial: 16, parent: ROOT, name: Name::new("t").unwrap() },
            Record::Extend { serial: 16, extent },
            Record::Seal { serial: 16, size: 88, time: 1 },
            Record::Truncate { serial: 16, size: 45, time: 2 },
        ] {
            let _ = meta.apply_repairing(&record);
        }
        let witness = Witness { kind: FileKind::Log, name: "1.log", place: framed(4096), ..witness(16, 0, 1) };
        assert_eq!(meta.restore(&witness), Ok(()));
        let file = meta.inode(16).unwrap();
        assert_eq!((file.kind, file.size, file.extents.len()), (FileKind::Log, 45, 1));
        assert_eq!(meta.check(), Vec::<String>::new());
    }

    #[test]
    fn a_hole_is_filled_and_nothing_else() {
        let part = |logical, len, zone| Extent { logical, len, place: raw(zone) };
        let mut meta = table_without(usize::MAX);
        assert!(meta.forget_bytes(16, ZONE, 2 * ZONE).is_ok());
        for not in [part(0, ZONE, 2), part(ZONE, ZONE + 1, 2), part(ZONE, OPEN, 2), part(2500, 1, 2)] {
            assert_eq!(meta.fill(16, not), Err(MetaError::Exists), "{not:?}");
        }
        assert_eq!(meta.fill(16, part(ZONE, ZONE, 2)), Ok(()));
        assert_eq!(meta, table_without(usize::MAX));
        assert_eq!(meta.check(), Vec::<String>::new());
    }

    #[test]
    fn a_freed_zone_brings_nothing_back_in_its_old_life() {
        let mut meta = table_without(usize::MAX);
        let name = Name::new("7.sst").unwrap();
        let Ok(_) = meta.apply(&Record::Truncate { serial: 16, size: 1500, time: 7 }) else { panic!("it can be cut") };
        assert_eq!(
            meta.restore(&witness(16, 2 * ZONE, 3)),
            Err(MetaError::NotFound),
            "the file lives, the zone was freed"
        );
        let Ok(_) = meta.apply(&meta.unlink_record(ROOT, &name).unwrap()) else { panic!("it can be deleted") };
        // A journal that was compacted since knows the file no more.
        let mut later = Meta::new();
        for record in meta.snapshot() {
            assert!(later.apply_repairing(&record).is_applied(), "{record:?}");
        }
        assert_eq!(later, meta);
        for zone in 1..=3 {
            assert_eq!(later.restore(&witness(16, 0, zone)), Err(MetaError::NotFound));
        }
        // In another life the zone is somebody's again; and once reset it need not be remembered.
        let place = Place::Raw { zone: 2, life: 10, offset: 4096 };
        assert_eq!(later.restore(&Witness { place, ..witness(20, 0, 2) }), Ok(()));
        later.retain_forgotten(|zone| zone == 1);
        let kept = later.snapshot().filter(|r| matches!(r, Record::FreedZone { .. })).collect::<Vec<_>>();
        assert_eq!(kept, [Record::FreedZone { zone: 1, life: 9 }]);
        assert!(later.apply(&Record::FreedZone { zone: 2, life: 10 }).is_err(), "it is in use");
    }

    #[test]
    fn deleted_files_and_impossible_witnesses_bring_nothing_back() {
        let mut meta = table_without(usize::MAX);
        let unlink = meta.unlink_record(ROOT, &Name::new("7.sst").unwrap()).unwrap();
        let _ = meta.apply_repairing(&unlink);
        let before = meta.clone();
        assert_eq!(meta.restore(&witness(16, 0, 1)), Err(MetaError::NotFound));
        assert_eq!(meta.restore(&witness(ROOT, 0, 9)), Err(MetaError::IsADirectory));
        for bad in [0, 3, u64::MAX] {
            assert!(meta.restore(&witness(bad, 0, 1)).is_err(), "serial {bad}");
        }
        assert!(meta.restore(&witness(20, u64::MAX, 1)).is_err());
        assert_eq!(meta, before);
    }
}
