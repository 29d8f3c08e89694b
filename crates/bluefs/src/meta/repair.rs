//! Replay after damage: what to make of records whose predecessors are lost.
//!
//! A bad sector of the journal costs the records in it, no more: replay goes on behind it. Later records may then speak
//! of files that nobody created, or of names that were never given up. The rules, in order:
//!
//! 1. A record that is legal is applied as it is. On an undamaged journal nothing else happens.
//! 2. Nothing that may be somebody's data is dropped: what has no place goes to `lost+found`, as `<serial>-<name>`.
//! 3. The later record is right about space: a zone in a new life, or conventional space in a new extent, no longer
//!    belongs to the file that had it.
//! 4. What is known to be deleted stays deleted; and nothing is deleted that no record says was.
//!
//! A lost `Extend` between two others cannot be seen here: the one before then seems to reach further than its zone has
//! room. Whoever knows the zones' contents must compare.

use super::inode::{Place, Plan};
use super::{
    Effect, Extent, FIRST_SERIAL, FileKind, Inode, LOST_FOUND, MAX_LINKS, MAX_SIZE, Meta, MetaError, Name, ROOT,
    Record, Serial, Victim,
};
use imbrex_zones::conventional::UNIT;
use std::collections::BTreeSet;

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    /// Applied as it is.
    Applied(Effect),
    /// Applied as far as it made sense.
    Repaired {
        /// What the record freed.
        effect: Effect,
        /// What was done about it, a sentence.
        what: String,
    },
    /// Nothing was changed: it is about something that is not there.
    Skipped(MetaError),
}

impl RepairOutcome {
    /// Whether it was applied as it is.
    pub fn is_applied(&self) -> bool {
        matches!(self, RepairOutcome::Applied(_))
    }
}

/// What a replay remembers beyond the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    active: bool,
    deleted: BTreeSet<Serial>,
    invented: BTreeSet<Serial>,
    /// Records are missing from here on.
    gap: bool,
    /// The journal's snapshot has begun.
    begun: bool,
    /// Files that gave up their last bytes in a zone of a life, as records say.
    gave_up: BTreeSet<(Serial, u32, u64)>,
    /// Zones that are free because the last file that is known to have bytes there gave them up: that another one took room in
    /// it may be what is lost.
    inferred: BTreeSet<u32>,
    /// Of a whole snapshot: its next serial, and the serials below that are in use. All others below are deleted.
    snapshot: Option<(Serial, BTreeSet<Serial>)>,
    /// See [`Meta::is_settled`].
    settled: BTreeSet<Serial>,
}

impl Replay {
    /// Given back by a later record: a file that had no name has one now.
    pub fn note_back(&mut self, serial: Serial) {
        self.deleted.remove(&serial);
        if let Some((_, used)) = &mut self.snapshot {
            used.insert(serial);
        }
    }

    /// A record took the last bytes of the file in this zone; `free`: and the last of all that are known.
    pub fn note_gave_up(&mut self, serial: Serial, zone: u32, life: u64, free: bool) {
        if self.active {
            self.gave_up.insert((serial, zone, life));
            if free {
                self.inferred.insert(zone);
            }
        }
    }

    /// That was no record but a guess.
    pub fn note_guess(&mut self, serial: Serial, zone: u32, life: u64) {
        self.gave_up.remove(&(serial, zone, life));
    }

    /// A record says that nobody has bytes in the zone.
    pub fn note_freed(&mut self, zone: u32) {
        self.inferred.remove(&zone);
    }

    pub fn note_deleted(&mut self, serial: Serial) {
        if self.active {
            self.deleted.insert(serial);
            self.invented.remove(&serial);
        }
    }
}

/// How a repair ends: what it freed and what it did, or why nothing could be done.
type Repair = Result<(Effect, String), MetaError>;

impl Meta {
    /// Applies a record of a journal that may have lost some. Never fails.
    ///
    /// What the effects say was freed may belong to another file again by the end of the journal: only then ask
    /// [`Meta::zone_life`] and [`Meta::conventional`].
    pub fn apply_repairing(&mut self, record: &Record) -> RepairOutcome {
        self.replay.active = true;
        let why = match self.apply(record) {
            Ok(effect) => {
                match record {
                    Record::NextSerial { serial } => self.note_snapshot(*serial),
                    Record::Settled => self.note_settled(),
                    Record::Reopen { serial } => drop(self.replay.settled.remove(serial)),
                    _ => {}
                }
                return RepairOutcome::Applied(effect);
            }
            Err(why) => why,
        };
        match self.repair(record, why) {
            Ok((effect, what)) => RepairOutcome::Repaired { effect, what },
            Err(why) => RepairOutcome::Skipped(why),
        }
    }

    /// Ends a replay: what still has no name goes to `lost+found`, and a file whose extents do not reach its size counts
    /// as open, so that its end is looked for. Returns a sentence for each; none after an undamaged journal.
    pub fn finish_replay(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for serial in &self.replay.invented {
            // How its bytes are kept is a better witness than its name.
            let Some(inode) = self.inodes.get_mut(serial) else { continue };
            if let Some(kind) = inode.extents.iter().find_map(|e| match e.place {
                Place::Framed { .. } => Some(FileKind::Log),
                Place::Raw { .. } => Some(FileKind::Table),
                Place::Conventional { .. } => None,
            }) {
                inode.kind = kind;
            }
        }
        for inode in self.inodes.values_mut() {
            if inode.closed && inode.kind.is_sequential() && inode.size > inode.reach() {
                inode.closed = false;
                done.push(format!(
                    "File {} has {} bytes but its extents end at {}; its end must be looked for.",
                    inode.serial,
                    inode.size,
                    inode.reach()
                ));
            }
        }
        let unnamed: Vec<Serial> = self.inodes.values().filter(|i| i.nlink == 0).map(|i| i.serial).collect();
        for serial in unnamed {
            let home = self.lost_found();
            // Making `lost+found` reachable may have given this one its place.
            if self.inodes.get(&serial).is_some_and(|inode| inode.nlink == 0) {
                let name = self.free_name(home, &format!("{serial}-lost"));
                self.attach(home, &name, serial);
                done.push(format!("File {serial} had lost its name; it is {} now.", self.path_in(home, &name)));
            } else {
                done.push(format!("Directory {serial} had lost its name; it is in the root now."));
            }
        }
        done
    }

    /// Whether a record of this replay deleted the file, or one before its snapshot: its bytes need not be rescued.
    pub fn was_deleted(&self, serial: Serial) -> bool {
        let before = |(next, used): &(Serial, BTreeSet<Serial>)| serial < *next && !used.contains(&serial);
        self.replay.deleted.contains(&serial) || self.replay.snapshot.as_ref().is_some_and(before)
    }

    /// Whether the zone is forgotten, but maybe only because the record that gave room in it to this file is lost: no record
    /// says that the file gave it up.
    pub fn may_have_lost(&self, serial: Serial, zone: u32, life: u64) -> bool {
        let new = self.replay.snapshot.as_ref().is_some_and(|(next, _)| serial >= *next);
        (new || self.inodes.contains_key(&serial))
            && self.replay.inferred.contains(&zone)
            && !self.replay.gave_up.contains(&(serial, zone, life))
    }

    /// Records of the journal are missing from here on.
    pub fn note_gap(&mut self) {
        self.replay.gap = true;
    }

    /// A snapshot begins and ends with the next serial. What a whole one does not have was deleted before it. The bytes of files that are
    /// closed in it were flushed before the root named its journal.
    fn note_snapshot(&mut self, next: Serial) {
        if self.replay.begun && !self.replay.gap && self.replay.snapshot.is_none() {
            self.replay.snapshot = Some((next, self.inodes.keys().copied().collect()));
            self.note_settled();
        }
        self.replay.begun = true;
    }

    fn note_settled(&mut self) {
        self.replay.settled = self.inodes.values().filter(|inode| inode.closed).map(|inode| inode.serial).collect();
    }

    /// Whether the journal says that all bytes of the closed file are durable: it was closed when a snapshot was written, or at an unmount,
    /// and has not been opened for writing since.
    pub fn is_settled(&self, serial: Serial) -> bool {
        self.replay.settled.contains(&serial)
    }

    /// Whether the file's creation was lost, so that its kind and name are guesses that its zone's header can better.
    pub fn was_invented(&self, serial: Serial) -> bool {
        self.replay.invented.contains(&serial)
    }

    /// Drops what the replay remembers; deletions are no longer noted.
    pub fn forget_replay(&mut self) {
        self.replay = Replay::default();
    }

    fn repair(&mut self, record: &Record, why: MetaError) -> Repair {
        match record {
            Record::Mkdir { parent, name, serial, .. } | Record::Create { parent, name, serial, .. } => {
                self.repair_create(record, *parent, name, *serial)
            }
            Record::Link { serial, parent, name } => self.repair_link(*serial, *parent, name, why),
            Record::Entry { parent, name, serial } => self.repair_entry(*serial, *parent, name, why),
            Record::Unlink { parent, name, victim } => self.repair_unlink(*parent, name, *victim, why),
            Record::Rmdir { serial, .. } => self.repair_rmdir(*serial, why),
            Record::Rename { from_parent, from, to_parent, to, serial, victim, time } => {
                self.repair_rename(*serial, (*from_parent, from), (*to_parent, to), *victim, *time)
            }
            // One of a snapshot that contradicts the rest leaves its file open: the end has to be looked for.
            Record::Extend { serial, extent } | Record::Extent { serial, extent } => {
                self.repair_extend(*serial, *extent, why)
            }
            Record::Size { serial, size, time, volatile } => self.repair_size(*serial, *size, *time, *volatile, why),
            Record::Seal { serial, size, time } => self.repair_seal(*serial, *size, *time, why),
            Record::Remap { serial, logical, len, place } => {
                self.repair_remap(*serial, Extent { logical: *logical, len: *len, place: *place }, why)
            }
            Record::Replace { old, new } => self.repair_replace(*old, *new, why),
            Record::Truncate { serial, size, time } => self.repair_truncate(*serial, *size, *time, why),
            Record::Reopen { .. }
            | Record::Times { .. }
            | Record::Inode { .. }
            | Record::NextSerial { .. }
            | Record::FreedZone { .. }
            | Record::Settled
            | Record::Allocate { .. }
            | Record::Inline { .. } => Err(why),
        }
    }

    fn repair_create(&mut self, record: &Record, parent: Serial, name: &Name, serial: Serial) -> Repair {
        let kind = match record {
            Record::Create { kind: FileKind::Directory, .. } => {
                return Err(MetaError::Invalid("a directory is made by its own record; record a Mkdir"));
            }
            Record::Create { kind, .. } => *kind,
            _ => FileKind::Directory,
        };
        self.admit_serial(serial, kind)?;
        let (home, free) = self.place_for(parent, name, serial);
        // Making room may have made `lost+found`, and with it taken its serial.
        self.admit_serial(serial, kind)?;
        let mut moved = record.clone();
        if let Record::Mkdir { parent, name, .. } | Record::Create { parent, name, .. } = &mut moved {
            (*parent, *name) = (home, free);
        }
        let effect = self.apply(&moved)?;
        Ok((effect, format!("file {serial}, {name}, was made in {}", self.path_of(home))))
    }

    fn repair_link(&mut self, serial: Serial, parent: Serial, name: &Name, why: MetaError) -> Repair {
        if self.inodes.contains_key(&serial) {
            self.repair_entry(serial, parent, name, why)
        } else {
            self.invent(serial, FileKind::of_name(name), Some((parent, name)))
        }
    }

    fn repair_entry(&mut self, serial: Serial, parent: Serial, name: &Name, why: MetaError) -> Repair {
        if self.was_deleted(serial) {
            return Err(why);
        }
        let Some(inode) = self.inodes.get_mut(&serial) else {
            return self.invent(serial, FileKind::of_name(name), Some((parent, name)));
        };
        if serial == ROOT || (inode.is_directory() && inode.nlink > 0) || inode.nlink >= MAX_LINKS {
            return Err(why);
        }
        if inode.closed && inode.kind.is_sequential() && inode.size > inode.reach() {
            inode.closed = false;
        }
        let is_directory = inode.is_directory();
        if is_directory && self.is_within(parent, serial) {
            return Err(MetaError::Loop);
        }
        let (mut home, mut free) = self.place_for(parent, name, serial);
        // Making room may have made `lost+found` inside what is to be named.
        if is_directory && self.is_within(home, serial) {
            (home, free) = (ROOT, self.free_name(ROOT, &format!("{serial}-{name}")));
        }
        if self.inodes.get(&serial).is_some_and(|inode| inode.is_directory() && inode.nlink > 0) {
            return Err(MetaError::IsADirectory);
        }
        self.attach(home, &free, serial);
        Ok((Effect::default(), format!("file {serial} is named {}", self.path_in(home, &free))))
    }

    fn repair_unlink(&mut self, parent: Serial, name: &Name, victim: Victim, why: MetaError) -> Repair {
        let Victim { serial, last } = victim;
        if self.directories.contains_key(&serial) {
            return Err(why);
        }
        if last {
            let known = self.inodes.contains_key(&serial);
            let effect = self.bury(serial);
            return Ok((
                effect,
                format!("file {serial} was deleted, {}", if known { "with all names" } else { "unknown" }),
            ));
        }
        // It lives on under other names. If this was the last that is known, the others are lost.
        if self.lookup(parent, name) == Ok(serial) && self.displace(parent, name) {
            return Ok((Effect::default(), format!("file {serial} lost its known name; it is in lost+found")));
        }
        Err(why)
    }

    fn repair_rmdir(&mut self, serial: Serial, why: MetaError) -> Repair {
        match self.directories.get(&serial) {
            Some(directory) if !directory.entries.is_empty() || serial == ROOT => Err(why),
            None if self.inodes.contains_key(&serial) => Err(why),
            _ => Ok((self.bury(serial), format!("directory {serial} was deleted"))),
        }
    }

    /// What of the new file was recorded before may be lost: its zones tell whose they are. The old one is gone in any case.
    fn repair_replace(&mut self, old: Serial, new: Serial, why: MetaError) -> Repair {
        // `lost+found` may only be made on the way.
        if old == new
            || old < FIRST_SERIAL
            || self.directories.contains_key(&old)
            || self.directories.contains_key(&new)
        {
            return Err(why);
        }
        self.require_file(new, FileKind::Log)?;
        let made_up: Vec<(Serial, Name)> = self.names_of(new).map(|(parent, name)| (parent, name.clone())).collect();
        let known = self.name_of(old).is_some();
        let effect = if known { self.take_names(old, new) } else { self.bury(old) };
        if known && self.replay.invented.contains(&new) {
            for (parent, name) in made_up {
                // It has others.
                self.detach(parent, &name)?;
            }
        }
        Ok((effect, format!("file {new} took the names of file {old}, though not all of it was known")))
    }

    /// `from` is where the record says that `serial` was; it may be elsewhere, or unknown.
    fn repair_rename(
        &mut self,
        serial: Serial,
        from: (Serial, &Name),
        (to_parent, to): (Serial, &Name),
        victim: Option<Victim>,
        time: u64,
    ) -> Repair {
        if serial == ROOT || victim.is_some_and(|victim| victim.serial == serial) {
            return Err(MetaError::Invalid("the record renames nothing"));
        }
        let is_directory = self.directories.contains_key(&serial);
        if is_directory && self.is_within(to_parent, serial) {
            return Err(MetaError::Loop);
        }
        let mut effect = Effect::default();
        if let Some(Victim { serial: old, last: true }) = victim {
            let blocked = self.directories.get(&old).is_some_and(|d| !d.entries.is_empty()) || old == ROOT;
            if !blocked {
                effect = self.bury(old);
            }
        }
        if let Some(Victim { serial: old, last: false }) = victim
            && self.lookup(to_parent, to) == Ok(old)
            && self.inodes.get(&old).is_some_and(|inode| inode.nlink > 1)
        {
            self.detach(to_parent, to)?;
        }
        if !self.inodes.contains_key(&serial) {
            let (_, what) = self.invent(serial, FileKind::of_name(to), Some((to_parent, to)))?;
            return Ok((effect, what));
        }
        let (mut home, mut free) = self.place_for(to_parent, to, serial);
        if is_directory && self.is_within(home, serial) {
            (home, free) = (ROOT, self.free_name(ROOT, &format!("{serial}-{to}")));
        }
        if let Some((parent, name)) = self.entry_of(serial, from) {
            self.detach(parent, &name)?;
            self.touch(parent, time);
        }
        self.attach(home, &free, serial);
        self.touch(home, time);
        Ok((effect, format!("file {serial} was renamed to {}", self.path_in(home, &free))))
    }

    /// The entry that names `serial`, if possible the one given.
    fn entry_of(&self, serial: Serial, (parent, name): (Serial, &Name)) -> Option<(Serial, Name)> {
        if self.lookup(parent, name) == Ok(serial) {
            return Some((parent, name.clone()));
        }
        self.name_of(serial).map(|(parent, name)| (parent, name.clone()))
    }

    /// Deletes a file, or an empty directory, with all its names; remembers it even when it is not known.
    fn bury(&mut self, serial: Serial) -> Effect {
        if !self.inodes.contains_key(&serial) {
            self.replay.note_deleted(serial);
            return Effect::default();
        }
        while let Some((parent, name)) = self.name_of(serial).map(|(parent, name)| (parent, name.clone())) {
            if self.detach(parent, &name).is_err() {
                break;
            }
        }
        self.drop_unnamed(serial)
    }

    fn path_in(&self, parent: Serial, name: &Name) -> String {
        format!("{}/{name}", self.path_of(parent).trim_end_matches('/'))
    }

    fn repair_extend(&mut self, serial: Serial, extent: Extent, why: MetaError) -> Repair {
        extent.validate()?;
        self.require_file(serial, kind_of_place(&extent))?;
        if self.replay.invented.contains(&serial) && self.file(serial)?.extents.is_empty() {
            self.file_mut(serial)?.kind = kind_of_place(&extent);
        }
        let inode = self.file_mut(serial)?;
        inode.closed = false;
        let mut effect = Effect::default();
        if inode.plan_extend(extent).is_err() {
            // A truncation was lost.
            inode.size = inode.size.min(extent.logical);
            inode.volatile_size = None;
            let plan = inode.plan_cut(extent.logical, 1);
            effect = self.effect_of(serial, plan);
        }
        self.evict(serial, &extent)?;
        let applied = self.apply(&Record::Extend { serial, extent })?;
        effect.freed.extend(applied.freed);
        Ok((effect, format!("file {serial} got an extent although {why}")))
    }

    fn repair_size(&mut self, serial: Serial, size: u64, time: u64, volatile: bool, why: MetaError) -> Repair {
        if size > MAX_SIZE {
            return Err(why);
        }
        self.require_file(serial, FileKind::Random)?;
        let inode = self.file_mut(serial)?;
        if size < inode.size {
            if volatile {
                return Err(why);
            }
            // A truncation was lost. What lies behind the size goes when the file is sealed.
            (inode.size, inode.volatile_size) = (size, None);
        }
        inode.closed = false;
        let effect = self.apply(&Record::Size { serial, size, time, volatile })?;
        Ok((effect, format!("file {serial} got its size although {why}")))
    }

    fn repair_seal(&mut self, serial: Serial, size: u64, time: u64, why: MetaError) -> Repair {
        if size > MAX_SIZE {
            return Err(why);
        }
        self.require_file(serial, FileKind::Table)?;
        let inode = self.file_mut(serial)?;
        let mut effect = Effect::default();
        if inode.extents.last().is_some_and(|last| size < last.logical) {
            let plan = inode.plan_cut(size, UNIT);
            effect = self.effect_of(serial, plan);
        }
        match self.apply(&Record::Seal { serial, size, time }) {
            Ok(applied) => effect.freed.extend(applied.freed),
            // An extent was lost: the size is right, the end has to be looked for on the drive.
            Err(_) => {
                let inode = self.file_mut(serial)?;
                (inode.size, inode.modified, inode.volatile_size, inode.closed) = (size, time, None, false);
            }
        }
        Ok((effect, format!("file {serial} got its final size although {why}")))
    }

    /// Of a closed file whose beginning is lost what stood behind the cut goes all the same: its space may be another's by now. The end of what is
    /// found of the rest has to be looked for.
    fn repair_truncate(&mut self, serial: Serial, size: u64, time: u64, why: MetaError) -> Repair {
        let Ok(inode) = self.file_mut(serial) else { return Err(why) };
        if !std::mem::replace(&mut inode.closed, false) {
            return Err(why);
        }
        match self.apply(&Record::Truncate { serial, size, time }) {
            Ok(effect) => Ok((effect, format!("file {serial} was cut to {size} bytes although {why}"))),
            Err(_) => {
                self.file_mut(serial)?.closed = true;
                Err(why)
            }
        }
    }

    fn repair_remap(&mut self, serial: Serial, extent: Extent, why: MetaError) -> Repair {
        extent.validate()?;
        if extent.is_open() {
            return Err(why);
        }
        self.require_file(serial, FileKind::Table)?;
        self.evict(serial, &extent)?;
        let inode = self.file(serial)?;
        let mut plan = inode.plan_remap(extent, false)?;
        if let Some(open) = inode.extents.last().filter(|last| last.is_open()) {
            // What is left of it around the moved bytes must not be the next file's in its zone.
            let room = self.space.room_end(serial, open);
            let fitting = |e: Extent| if e == extent || e.logical < open.logical { Some(e) } else { e.before(room) };
            plan.with = plan.with.into_iter().filter_map(fitting).collect();
        }
        let effect = self.effect_of(serial, plan);
        Ok((effect, format!("bytes of file {serial} were moved although {why}")))
    }

    /// Makes sure that the file exists: one whose creation was lost is made in `lost+found`.
    fn require_file(&mut self, serial: Serial, kind: FileKind) -> Result<(), MetaError> {
        match self.file(serial) {
            Ok(_) => Ok(()),
            Err(MetaError::NotFound) => self.invent(serial, kind, None).map(drop),
            Err(why) => Err(why),
        }
    }

    /// Makes a file whose creation was lost, at `place` or in `lost+found`.
    pub(super) fn invent(&mut self, serial: Serial, kind: FileKind, place: Option<(Serial, &Name)>) -> Repair {
        if self.was_deleted(serial) || serial < FIRST_SERIAL {
            return Err(MetaError::NotFound);
        }
        self.admit_serial(serial, kind)?;
        let (parent, name) = match place {
            Some((parent, name)) => self.place_for(parent, name, serial),
            None => {
                let home = self.lost_found();
                (home, self.free_name(home, &format!("{serial}-lost")))
            }
        };
        let what = format!("file {serial}, whose creation is lost, was made as {}", self.path_in(parent, &name));
        let effect = self.apply(&Record::Create { parent, name, serial, kind, time: 0 })?;
        self.replay.invented.insert(serial);
        Ok((effect, what))
    }

    /// Takes the space of `extent` from whoever has it; what they lose is not free, it is the new owner's.
    fn evict(&mut self, serial: Serial, extent: &Extent) -> Result<(), MetaError> {
        while self.space.admit(serial, extent).is_err() {
            let (owner, plan) = match (extent.place.zone(), extent.conventional()) {
                (Some((zone, _)), _) => {
                    let owner = self.space.zone_user(serial, extent).unwrap_or(serial);
                    (owner, self.file(owner)?.plan_evict(Some(zone), 0, 0))
                }
                (None, Some((addr, len))) => {
                    let owner = self.space.conventional_user(addr, len).unwrap_or(serial);
                    (owner, self.file(owner)?.plan_evict(None, addr, addr.saturating_add(len)))
                }
                (None, None) => return Ok(()),
            };
            if plan.gone.is_empty() {
                return Err(MetaError::Corrupt(format!("the space of file {owner} is not where it should be")));
            }
            self.carry_out(owner, plan);
            let inode = self.file_mut(owner)?;
            if inode.closed && inode.kind.is_sequential() {
                inode.size = inode.size.min(inode.reach());
            }
        }
        Ok(())
    }

    /// Takes bytes of conventional space, by address, from a file: somebody else has them, or they are no place for bytes.
    pub fn take_conventional(&mut self, serial: Serial, addr: u64, len: u64) -> Result<(), MetaError> {
        let plan = self.file(serial)?.plan_evict(None, addr, addr.saturating_add(len));
        self.carry_out(serial, plan);
        let inode = self.file_mut(serial)?;
        if inode.closed && inode.kind.is_sequential() {
            inode.size = inode.size.min(inode.reach());
        }
        Ok(())
    }

    pub(super) fn effect_of(&mut self, serial: Serial, plan: Plan) -> Effect {
        let gone: BTreeSet<_> = plan.gone.iter().filter_map(|e| e.place.zone()).collect();
        let places = self.carry_out(serial, plan);
        gone.into_iter().for_each(|(zone, life)| self.replay.note_guess(serial, zone, life));
        for place in &places {
            // A guess: no record says that the zone was freed, so its header may bring it back.
            if let super::FreedPlace::Zone { zone, .. } = place {
                self.forgotten.remove(zone);
            }
        }
        let freed = super::Freed { serial, places, unlinked: false, size: 0 };
        Effect { freed: if freed.places.is_empty() { Vec::new() } else { vec![freed] } }
    }

    /// A free name for `serial`, as near to the one asked for as can be: whoever has that goes to `lost+found`.
    fn place_for(&mut self, parent: Serial, name: &Name, serial: Serial) -> (Serial, Name) {
        if self.directories.contains_key(&parent) && self.displace(parent, name) {
            return (parent, name.clone());
        }
        let home = self.lost_found();
        let free = self.free_name(home, &format!("{serial}-{name}"));
        (home, free)
    }

    /// Makes a name free by moving what has it to `lost+found`; fails for what `lost+found` is in.
    fn displace(&mut self, parent: Serial, name: &Name) -> bool {
        let Ok(serial) = self.lookup(parent, name) else {
            return true;
        };
        let home = self.lost_found();
        if self.is_within(home, serial) {
            return false;
        }
        let free = self.free_name(home, &format!("{serial}-{name}"));
        if self.detach(parent, name).is_ok() {
            self.attach(home, &free, serial);
        }
        true
    }

    /// The directory `lost+found`, made when it is not there; always reached from the root.
    pub(super) fn lost_found(&mut self) -> Serial {
        if let Ok(serial) = self.lookup(ROOT, "lost+found")
            && self.directories.contains_key(&serial)
        {
            return serial;
        }
        let name = self.free_name(ROOT, "lost+found");
        if self.directories.contains_key(&LOST_FOUND) {
            let mut top = LOST_FOUND;
            while let Some(parent) = self.parent_of(top).filter(|parent| *parent != top) {
                top = parent;
            }
            if top != ROOT {
                let name = if top == LOST_FOUND { name } else { self.free_name(ROOT, &format!("{top}-lost")) };
                self.attach(ROOT, &name, top);
            }
            return LOST_FOUND;
        }
        self.inodes.insert(LOST_FOUND, Inode::new(LOST_FOUND, FileKind::Directory, 0));
        self.directories.insert(LOST_FOUND, super::Directory::default());
        self.replay.deleted.remove(&LOST_FOUND);
        self.attach(ROOT, &name, LOST_FOUND);
        LOST_FOUND
    }

    /// A name that is free in `parent`, made from `wanted`.
    pub(super) fn free_name(&self, parent: Serial, wanted: &str) -> Name {
        let taken = |name: &Name| self.lookup(parent, name).is_ok();
        let mut base = wanted.to_owned();
        // Room for the number that may follow.
        while base.len() > super::MAX_NAME - 21 {
            base.pop();
        }
        let mut name = Name::nearest(&base);
        let mut number = 1u64;
        while taken(&name) {
            name = Name::nearest(&format!("{base}-{number}"));
            number += 1;
        }
        name
    }
}

/// What a file is when only the place of one extent is known.
fn kind_of_place(extent: &Extent) -> FileKind {
    match extent.place {
        super::Place::Conventional { .. } => FileKind::Random,
        super::Place::Raw { .. } => FileKind::Table,
        super::Place::Framed { .. } => FileKind::Log,
    }
}
