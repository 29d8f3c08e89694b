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
    /// The bytes `from..to` of a file are not where its extents say: they become a hole. What was conventional stays. A
    /// file that no longer reaches its size counts as open.
    pub fn forget_bytes(&mut self, serial: Serial, from: u64, to: u64) -> Result<Effect> {
        let inode = self.file(serial)?;
        let mut plan = Plan { at: 0..inode.extents.len(), ..Plan::default() };
        for e in &inode.extents {
            if e.conventional().is_some() || e.end() <= from || e.logical >= to {
                plan.with.push(*e);
                continue;
            }
            plan.with.extend(e.part(e.logical, from));
            plan.gone.extend(e.part(from, to));
            plan.with.extend(e.part(to, u64::MAX));
        }
        let effect = self.effect_of(serial, plan);
        let inode = self.file_mut(serial)?;
        if inode.kind.is_sequential() && inode.size > inode.reach() {
            inode.closed = false;
        }
        Ok(effect)
    }

    /// Gives a zone that nobody refers to back to the file that its header names, as far as the hole reaches that its
    /// first byte is in; behind the last extent it is open. A file that is not known is made in `lost+found`; one whose
    /// creation was lost gets its kind and name there.
    ///
    /// [`MetaError::Exists`] when the file has that byte elsewhere (an older copy was found, to be reset),
    /// [`MetaError::NotFound`] when the file was deleted, [`MetaError::Invalid`] when the zone is taken.
    pub fn restore(&mut self, witness: &Witness<'_>) -> Result<()> {
        let Witness { serial, kind, logical, place, .. } = *witness;
        let extent = Extent { logical, len: OPEN, place };
        extent.validate()?;
        if kind == FileKind::Directory || self.was_deleted(serial) {
            return Err(MetaError::NotFound);
        }
        self.space.admit(serial, &extent)?;
        match self.file(serial) {
            Ok(inode) if inode.extent_at(logical).is_some() => return Err(MetaError::Exists),
            Ok(_) => {}
            Err(MetaError::NotFound) if serial >= FIRST_SERIAL => self.admit_serial(serial, kind)?,
            Err(why) => return Err(why),
        }
        self.name_by(witness);
        let inode = self.file_mut(serial)?;
        let at = inode.extents.partition_point(|e| e.logical <= logical);
        let extent = match inode.extents.get(at) {
            Some(next) => Extent { len: next.logical - logical, ..extent },
            None => {
                inode.closed = false;
                extent
            }
        };
        self.carry_out(serial, Plan { at: at..at, with: vec![extent], gone: Vec::new() });
        Ok(())
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
            let _ = meta.apply_lenient(record);
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
    fn deleted_files_and_impossible_witnesses_bring_nothing_back() {
        let mut meta = table_without(usize::MAX);
        let unlink = meta.unlink_record(ROOT, &Name::new("7.sst").unwrap()).unwrap();
        let _ = meta.apply_lenient(&unlink);
        let before = meta.clone();
        assert_eq!(meta.restore(&witness(16, 0, 1)), Err(MetaError::NotFound));
        assert_eq!(meta.restore(&witness(ROOT, 0, 1)), Err(MetaError::IsADirectory));
        for bad in [0, 3, u64::MAX] {
            assert!(meta.restore(&witness(bad, 0, 1)).is_err(), "serial {bad}");
        }
        assert!(meta.restore(&witness(20, u64::MAX, 1)).is_err());
        assert_eq!(meta, before);
    }
}
