//! Strict application of records: check all of it, then change.

use super::inode::Plan;
use super::{
    Directory, Effect, Extent, FIRST_SERIAL, FileKind, Freed, FreedPlace, Inode, LOST_FOUND, MAX_LINKS, MAX_SIZE, Meta,
    MetaError, Name, ROOT, Record, Result, Serial, Victim,
};
use imbrex_zones::conventional::UNIT;

impl Meta {
    /// Applies one record. An illegal one changes nothing and is an error.
    pub fn apply(&mut self, record: &Record) -> Result<Effect> {
        match record {
            Record::Mkdir { parent, name, serial, time } => {
                self.create(*parent, name, Inode::new(*serial, FileKind::Directory, *time))
            }
            Record::Create { kind: FileKind::Directory, .. } => {
                Err(MetaError::Invalid("a directory is made by its own record; record a Mkdir"))
            }
            Record::Create { parent, name, serial, kind, time } => {
                self.create(*parent, name, Inode::new(*serial, *kind, *time))
            }
            Record::Link { serial, parent, name } => {
                self.file(*serial)?;
                self.add_name(*parent, name, *serial)
            }
            Record::Unlink { parent, name, .. } => {
                self.demand(record, self.unlink_record(*parent, name)?)?;
                self.unlink(*parent, name)
            }
            Record::Rmdir { parent, name, .. } => {
                self.demand(record, self.rmdir_record(*parent, name)?)?;
                self.unlink(*parent, name)
            }
            Record::Rename { from_parent, from, to_parent, to, serial, victim, time } => {
                self.demand(record, self.rename_record((*from_parent, from), (*to_parent, to), *time)?)?;
                // POSIX: two names of one file stay as they are.
                match victim.is_some_and(|victim| victim.serial == *serial) {
                    true => Ok(Effect::default()),
                    false => self.rename((*from_parent, from), (*to_parent, to), *time),
                }
            }
            Record::Extend { serial, extent } => self.extend(*serial, *extent),
            Record::Size { serial, size, time, volatile } => self.set_size(*serial, *size, *time, *volatile),
            Record::Seal { serial, size, time } => self.seal(*serial, *size, *time),
            Record::Reopen { serial } => {
                self.file_mut(*serial)?.closed = false;
                Ok(Effect::default())
            }
            Record::Remap { serial, logical, len, place } => {
                self.remap(*serial, Extent { logical: *logical, len: *len, place: *place })
            }
            Record::Truncate { serial, size, time } => self.truncate(*serial, *size, *time),
            Record::Times { serial, modified } => {
                self.inodes.get_mut(serial).ok_or(MetaError::NotFound)?.modified = *modified;
                Ok(Effect::default())
            }
            Record::Inode { serial, kind, created, modified, size, volatile_size, closed, allocated } => self
                .add_inode(Inode {
                    modified: *modified,
                    size: *size,
                    volatile_size: *volatile_size,
                    closed: *closed,
                    allocated: *allocated,
                    ..Inode::new(*serial, *kind, *created)
                }),
            Record::Extent { serial, extent } => self.add_extent(*serial, *extent),
            Record::Entry { parent, name, serial } => self.add_name(*parent, name, *serial),
            Record::Replace { old, new } => self.replace(*old, *new),
            Record::NextSerial { serial } => {
                if *serial < self.next_serial {
                    return Err(MetaError::Invalid("serials below this one are in use; record a higher one"));
                }
                self.next_serial = *serial;
                Ok(Effect::default())
            }
            Record::FreedZone { zone, life } => {
                if self.space.zone_life(*zone).is_some() {
                    return Err(MetaError::Invalid("the zone belongs to a file; delete that file first"));
                }
                self.forgotten.insert(*zone, *life);
                self.replay.note_freed(*zone);
                Ok(Effect::default())
            }
            Record::Settled => Ok(Effect::default()),
            Record::Allocate { serial, bytes } => {
                self.file_mut(*serial)?.allocated = *bytes;
                Ok(Effect::default())
            }
            Record::Inline { addr, bytes } => {
                if !self.space.covers(*addr, bytes.len() as u64) {
                    return Err(MetaError::Invalid("bytes for space that no file has; record the extent first"));
                }
                self.inline.write(*addr, bytes);
                Ok(Effect::default())
            }
        }
    }

    /// Refuses a serial that is taken or that nobody may have.
    pub(super) fn admit_serial(&self, serial: Serial, kind: FileKind) -> Result<()> {
        if self.inodes.contains_key(&serial) {
            return Err(MetaError::Exists);
        }
        let reserved = serial < FIRST_SERIAL && (serial, kind) != (LOST_FOUND, FileKind::Directory);
        if reserved || serial == Serial::MAX {
            return Err(MetaError::Invalid("the serial is reserved; take the next free one"));
        }
        Ok(())
    }

    /// Puts a checked inode in its place, without a name.
    pub(super) fn insert_inode(&mut self, inode: Inode) {
        self.next_serial = self.next_serial.max(inode.serial + 1);
        if inode.is_directory() {
            self.directories.insert(inode.serial, Directory::default());
        }
        self.inodes.insert(inode.serial, inode);
    }

    fn create(&mut self, parent: Serial, name: &Name, inode: Inode) -> Result<Effect> {
        self.admit_serial(inode.serial, inode.kind)?;
        if self.directory(parent)?.entries.contains_key(name) {
            return Err(MetaError::Exists);
        }
        let (serial, time) = (inode.serial, inode.modified);
        self.insert_inode(inode);
        self.attach(parent, name, serial);
        self.touch(parent, time);
        Ok(Effect::default())
    }

    pub(super) fn touch(&mut self, directory: Serial, time: u64) {
        if let Some(inode) = self.inodes.get_mut(&directory) {
            inode.modified = time;
        }
    }

    /// Adds an entry, which the caller has checked, and counts it.
    pub(super) fn attach(&mut self, parent: Serial, name: &Name, serial: Serial) {
        if let Some(directory) = self.directories.get_mut(&parent) {
            directory.entries.insert(name.clone(), serial);
            self.names.insert((serial, parent, name.clone()));
        }
        if let Some(directory) = self.directories.get_mut(&serial) {
            directory.parent = parent;
        }
        if let Some(inode) = self.inodes.get_mut(&serial) {
            inode.nlink += 1;
        }
    }

    /// Removes an entry and counts it; what it named stays, and is returned.
    pub(super) fn detach(&mut self, parent: Serial, name: &Name) -> Result<Serial> {
        let serial = self.directory_mut(parent)?.entries.remove(name).ok_or(MetaError::NotFound)?;
        self.names.remove(&(serial, parent, name.clone()));
        if let Some(inode) = self.inodes.get_mut(&serial) {
            inode.nlink = inode.nlink.saturating_sub(1);
        }
        Ok(serial)
    }

    /// Links and entries of a snapshot: one more name for something that may have none yet.
    fn add_name(&mut self, parent: Serial, name: &Name, serial: Serial) -> Result<Effect> {
        let inode = self.inodes.get(&serial).ok_or(MetaError::NotFound)?;
        let directory = self.directory(parent)?;
        if directory.entries.contains_key(name) {
            return Err(MetaError::Exists);
        }
        if inode.is_directory() {
            if inode.nlink > 0 {
                return Err(MetaError::IsADirectory);
            }
            if self.is_within(parent, serial) {
                return Err(MetaError::Loop);
            }
        }
        if inode.nlink >= MAX_LINKS {
            return Err(MetaError::TooManyLinks);
        }
        if inode.closed && inode.kind.is_sequential() && inode.size > inode.reach() {
            return Err(MetaError::Invalid("the file's size lies beyond its last extent; record its extents first"));
        }
        self.attach(parent, name, serial);
        Ok(Effect::default())
    }

    /// The record that deletes a file's name. [`MetaError::NotFound`], [`MetaError::NotADirectory`],
    /// [`MetaError::IsADirectory`].
    pub fn unlink_record(&self, parent: Serial, name: &Name) -> Result<Record> {
        let inode = self.file(self.lookup(parent, name)?)?;
        Ok(Record::Unlink { parent, name: name.clone(), victim: victim(inode) })
    }

    /// The record that deletes an empty directory. As [`Self::unlink_record`], and [`MetaError::NotEmpty`].
    pub fn rmdir_record(&self, parent: Serial, name: &Name) -> Result<Record> {
        let serial = self.lookup(parent, name)?;
        match self.directory(serial)?.entries.is_empty() {
            true => Ok(Record::Rmdir { parent, name: name.clone(), serial }),
            false => Err(MetaError::NotEmpty),
        }
    }

    /// The record that renames a file or directory, each given by its directory and name there. [`MetaError::NotFound`],
    /// [`MetaError::Loop`], and when the new name is taken by what cannot be replaced [`MetaError::IsADirectory`],
    /// [`MetaError::NotADirectory`], [`MetaError::NotEmpty`].
    pub fn rename_record(&self, from: (Serial, &Name), to: (Serial, &Name), time: u64) -> Result<Record> {
        let serial = self.lookup(from.0, from.1)?;
        let old = self.directory(to.0)?.entries.get(to.1).and_then(|old| self.inodes.get(old));
        let with = |victim| Record::Rename {
            from_parent: from.0,
            from: from.1.clone(),
            to_parent: to.0,
            to: to.1.clone(),
            serial,
            victim,
            time,
        };
        if old.is_some_and(|old| old.serial == serial) {
            return Ok(with(Some(Victim { serial, last: false })));
        }
        let record = with(old.map(victim));
        let is_directory = self.directories.contains_key(&serial);
        if is_directory && self.is_within(to.0, serial) {
            return Err(MetaError::Loop);
        }
        match old.map(|old| self.directories.get(&old.serial)) {
            Some(Some(_)) if !is_directory => Err(MetaError::IsADirectory),
            Some(Some(directory)) if !directory.entries.is_empty() => Err(MetaError::NotEmpty),
            Some(None) if is_directory => Err(MetaError::NotADirectory),
            _ => Ok(record),
        }
    }

    /// Refuses a record about names that is not the one the present state would make.
    fn demand(&self, record: &Record, present: Record) -> Result<()> {
        match *record == present {
            true => Ok(()),
            false => Err(MetaError::Invalid("the name belongs to another file than the record says; look it up again")),
        }
    }

    fn unlink(&mut self, parent: Serial, name: &Name) -> Result<Effect> {
        let serial = self.detach(parent, name)?;
        Ok(self.drop_unnamed(serial))
    }

    /// Removes a file or directory whose last name is gone, and hands back its space.
    pub(super) fn drop_unnamed(&mut self, serial: Serial) -> Effect {
        let Some(inode) = self.inodes.get(&serial).filter(|inode| inode.nlink == 0) else {
            return Effect::default();
        };
        let is_file = !inode.is_directory();
        let size = inode.known_size();
        let plan = Plan { at: 0..inode.extents.len(), with: Vec::new(), gone: inode.extents.clone() };
        let places = self.carry_out(serial, plan);
        self.inodes.remove(&serial);
        self.directories.remove(&serial);
        self.replay.note_deleted(serial);
        // Whoever holds the file open must hear of it even when it had no space.
        let freed = if is_file { vec![Freed { serial, places, unlinked: true, size }] } else { Vec::new() };
        Effect { freed }
    }

    fn rename(&mut self, from: (Serial, &Name), to: (Serial, &Name), time: u64) -> Result<Effect> {
        let effect = match self.detach(to.0, to.1) {
            Ok(old) => self.drop_unnamed(old),
            Err(_) => Effect::default(),
        };
        let serial = self.detach(from.0, from.1)?;
        self.attach(to.0, to.1, serial);
        self.touch(from.0, time);
        self.touch(to.0, time);
        Ok(effect)
    }

    fn replace(&mut self, old: Serial, new: Serial) -> Result<Effect> {
        if self.file(old)?.nlink == 0 || self.file(new)?.nlink > 0 {
            return Err(MetaError::Invalid(
                "only a file without a name takes the names of one that has some; make a new file",
            ));
        }
        Ok(self.take_names(old, new))
    }

    /// All names of a file become another one's. It goes, and its space is handed back.
    pub(super) fn take_names(&mut self, old: Serial, new: Serial) -> Effect {
        let names: Vec<(Serial, Name)> = self.names_of(old).map(|(parent, name)| (parent, name.clone())).collect();
        for (parent, name) in names {
            if self.detach(parent, &name).is_ok() {
                self.attach(parent, &name, new);
            }
        }
        self.drop_unnamed(old)
    }

    fn extend(&mut self, serial: Serial, extent: Extent) -> Result<Effect> {
        let inode = self.file(serial)?;
        if inode.closed {
            return Err(MetaError::Invalid("the file is closed; reopen it before appending"));
        }
        let plan = inode.plan_extend(extent)?;
        self.space.admit(serial, &extent)?;
        self.admit_plan(serial, &plan)?;
        Ok(self.carry_out_for(serial, plan))
    }

    /// Refuses a plan by which bytes of a file would seem to stand where another's do.
    fn admit_plan(&self, serial: Serial, plan: &Plan) -> Result<()> {
        plan.with.iter().filter(|e| e.place.zone().is_some()).try_for_each(|e| self.space.admit(serial, e))
    }

    fn set_size(&mut self, serial: Serial, size: u64, time: u64, volatile: bool) -> Result<Effect> {
        admit_size(size)?;
        let inode = self.file_mut(serial)?;
        if inode.closed {
            return Err(MetaError::Invalid("the file is closed; reopen it before appending"));
        }
        if size < inode.size {
            return Err(MetaError::Invalid("the size is below the file's; truncate the file instead"));
        }
        inode.modified = time;
        if volatile {
            inode.volatile_size = (size > inode.size).then_some(size);
        } else {
            inode.size = size;
            // What was appended while this size became durable.
            inode.volatile_size = inode.volatile_size.filter(|volatile| *volatile > size);
        }
        Ok(Effect::default())
    }

    fn seal(&mut self, serial: Serial, size: u64, time: u64) -> Result<Effect> {
        admit_size(size)?;
        let plan = self.file(serial)?.plan_seal(size)?;
        self.admit_plan(serial, &plan)?;
        let effect = self.carry_out_for(serial, plan);
        let inode = self.file_mut(serial)?;
        inode.closed = true;
        inode.size = size;
        inode.volatile_size = None;
        inode.modified = time;
        Ok(effect)
    }

    fn remap(&mut self, serial: Serial, extent: Extent) -> Result<Effect> {
        let plan = self.file(serial)?.plan_remap(extent, true)?;
        self.space.admit(serial, &extent)?;
        self.admit_plan(serial, &plan)?;
        Ok(self.carry_out_for(serial, plan))
    }

    fn truncate(&mut self, serial: Serial, size: u64, time: u64) -> Result<Effect> {
        admit_size(size)?;
        let inode = self.file(serial)?;
        let reach = if inode.kind.is_sequential() { inode.reach() } else { 0 };
        if size > inode.known_size().max(reach) {
            return Err(MetaError::Invalid("truncation cannot make a file longer; write to it instead"));
        }
        // What is appended to a table next stands in a zone, so its blocks in conventional space must not reach past the cut.
        let unit = if inode.kind.is_sequential() { 1 } else { UNIT };
        let plan = inode.plan_cut(size, unit);
        self.admit_plan(serial, &plan)?;
        if inode.closed && inode.kind.is_sequential() && size > inode.reach_after(&plan) {
            return Err(MetaError::Invalid("the file would end in a hole; copy what is left of it and delete it"));
        }
        // Where a hole is left below the cut, which only damage makes, the zone of what is cut may hold the hole's bytes too.
        let effect = match size > inode.reach_after(&plan) {
            true => self.effect_of(serial, plan),
            false => self.carry_out_for(serial, plan),
        };
        let inode = self.file_mut(serial)?;
        inode.size = size;
        inode.volatile_size = None;
        inode.modified = time;
        Ok(effect)
    }

    fn add_inode(&mut self, inode: Inode) -> Result<Effect> {
        let has_bytes = inode.closed || inode.size > 0 || inode.volatile_size.is_some() || inode.allocated > 0;
        if inode.is_directory() && has_bytes {
            return Err(MetaError::IsADirectory);
        }
        admit_size(inode.known_size())?;
        if inode.volatile_size.is_some_and(|volatile| inode.closed || volatile <= inode.size) {
            return Err(MetaError::Invalid("the volatile size contradicts the file's size; leave it out"));
        }
        if inode.serial == ROOT && inode.is_directory() {
            if let Some(root) = self.inodes.get_mut(&ROOT) {
                (root.created, root.modified) = (inode.created, inode.modified);
            }
            return Ok(Effect::default());
        }
        self.admit_serial(inode.serial, inode.kind)?;
        self.replay.note_back(inode.serial);
        self.insert_inode(inode);
        Ok(Effect::default())
    }

    fn add_extent(&mut self, serial: Serial, extent: Extent) -> Result<Effect> {
        let inode = self.file(serial)?;
        if inode.nlink > 0 {
            return Err(MetaError::Invalid("the file has its name already; record an Extend"));
        }
        if inode.closed && extent.is_open() {
            return Err(MetaError::Invalid("a closed file has no open extent; give its length"));
        }
        if inode.extents.last().is_some_and(Extent::is_open) {
            return Err(MetaError::Invalid("only the last extent of a file can be open; give its length"));
        }
        let plan = inode.plan_extend(extent)?;
        self.space.admit(serial, &extent)?;
        Ok(self.carry_out_for(serial, plan))
    }

    fn carry_out_for(&mut self, serial: Serial, plan: Plan) -> Effect {
        let places = self.carry_out(serial, plan);
        let freed =
            if places.is_empty() { Vec::new() } else { vec![Freed { serial, places, unlinked: false, size: 0 }] };
        Effect { freed }
    }

    /// Replaces extents of a file as planned, keeps the index of space in step, and says what became free. Nothing for
    /// a serial that does not exist.
    pub(super) fn carry_out(&mut self, serial: Serial, plan: Plan) -> Vec<FreedPlace> {
        let Some(inode) = self.inodes.get_mut(&serial) else {
            return Vec::new();
        };
        for old in &inode.extents[plan.at.clone()] {
            self.space.remove(serial, old);
            self.touched.extend(old.place.zone().map(|(zone, _)| zone));
        }
        for new in &plan.with {
            self.space.insert(serial, new);
            if let Some((zone, _)) = new.place.zone() {
                self.forgotten.remove(&zone);
                self.touched.insert(zone);
            }
        }
        if inode.extents.capacity() == 0 {
            // Most files have one extent; a Vec would start with room for four.
            inode.extents.reserve_exact(plan.with.len());
        }
        inode.extents.splice(plan.at, plan.with);
        let mut freed = Vec::new();
        for piece in &plan.gone {
            match piece.place.zone() {
                None => {
                    if let Some((addr, len)) = piece.conventional() {
                        self.inline.forget(addr, len, &self.space);
                        freed.push(FreedPlace::Conventional { addr, len });
                    }
                }
                Some((zone, life)) => {
                    let free = self.space.remove_empty_zone(zone);
                    self.replay.note_gave_up(serial, zone, life, free);
                    if free {
                        self.forgotten.insert(zone, life);
                        freed.push(FreedPlace::Zone { zone, life });
                    }
                }
            }
        }
        freed
    }
}

fn admit_size(size: u64) -> Result<()> {
    match size <= MAX_SIZE {
        true => Ok(()),
        false => Err(MetaError::Invalid("no file can be that large; choose a smaller size")),
    }
}

fn victim(inode: &Inode) -> Victim {
    Victim { serial: inode.serial, last: inode.nlink == 1 }
}
