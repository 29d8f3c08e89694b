//! Every invariant of the metadata, tested: what `imbrex fs check` says about it.

use super::inline::INLINE_PAGE;
use super::space::Space;
use super::{Extent, FileKind, Inode, LOST_FOUND, MAX_LINKS, MAX_SIZE, Meta, Name, Place, ROOT, Serial};
use std::collections::{BTreeMap, BTreeSet};

impl Meta {
    /// One sentence for each violation, naming the path; empty when all is well. In time n log n of files and extents.
    pub fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        let names = self.check_names(&mut found);
        let label = |serial: Serial| label(serial, &names);
        for inode in self.inodes.values() {
            let mut complain = |what: String| found.push(format!("{} {what}.", label(inode.serial)));
            self.check_inode(inode, &names, &mut complain);
            check_extents(inode, &mut complain);
        }
        self.check_tree(&names, &mut found);
        self.check_space(&names, &mut found);
        for (zone, _) in self.forgotten.iter().filter(|(zone, _)| self.space.zone_life(**zone).is_some()) {
            found.push(format!("Zone {zone} is both freed and in use."));
        }
        found
    }

    /// Every entry leads somewhere; collects the names of everything.
    fn check_names(&self, found: &mut Vec<String>) -> Names<'_> {
        let mut names = Names::new();
        let mut count = 0;
        for (parent, directory) in &self.directories {
            if !self.inodes.get(parent).is_some_and(Inode::is_directory) {
                found.push(format!("Directory {parent} has entries but no inode."));
            }
            for (name, serial) in &directory.entries {
                if !self.inodes.contains_key(serial) {
                    found.push(format!(
                        "The name {name} in directory {parent} leads to file {serial}, which is missing."
                    ));
                }
                names.entry(*serial).or_default().push((*parent, name));
                count += 1;
                if !self.names.contains(&(*serial, *parent, name.clone())) {
                    found.push(format!("The index of names lacks {name} in directory {parent}."));
                }
            }
        }
        if self.names.len() != count {
            found.push(format!("The index of names has {} names where there are {count}.", self.names.len()));
        }
        names
    }

    fn check_inode(&self, inode: &Inode, names: &Names, complain: &mut impl FnMut(String)) {
        let named = names.get(&inode.serial).map_or(0, Vec::len) + usize::from(inode.serial == ROOT);
        if named == 0 {
            complain("has no name".into());
        } else if named != inode.nlink as usize || inode.nlink > MAX_LINKS {
            complain(format!("has {named} names but a link count of {}", inode.nlink));
        }
        let reserved = inode.serial < super::FIRST_SERIAL && ![ROOT, LOST_FOUND].contains(&inode.serial);
        if inode.serial >= self.next_serial || reserved {
            complain(format!("has a serial that was not given out (the next one is {})", self.next_serial));
        }
        if inode.is_directory() {
            if named > 1 {
                complain("is a directory with several names".into());
            }
            if !self.directories.contains_key(&inode.serial) {
                complain("is a directory without a list of entries".into());
            }
            if inode.size > 0 || inode.closed || !inode.extents.is_empty() {
                complain("is a directory that claims to have bytes".into());
            }
        }
        if inode.volatile_size.is_some_and(|volatile| inode.closed || volatile <= inode.size) {
            complain(format!("has size {} but volatile size {:?}", inode.size, inode.volatile_size));
        }
        let reach = inode.reach();
        if inode.known_size() > MAX_SIZE {
            complain(format!("has an impossible size of {} bytes", inode.known_size()));
        }
        if inode.closed && inode.kind.is_sequential() && inode.size > reach {
            complain(format!("has size {} but its last extent ends at {reach}", inode.size));
        }
    }

    /// Every directory is where its parent says, and is reached from the root.
    fn check_tree(&self, names: &Names, found: &mut Vec<String>) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut todo = vec![ROOT];
        while let Some(at) = todo.pop() {
            let entries = self.directories.get(&at).into_iter().flat_map(|d| &d.entries);
            for (_, serial) in entries.filter(|(_, serial)| self.directories.contains_key(serial)) {
                if reached.insert(*serial) {
                    todo.push(*serial);
                }
            }
        }
        for (serial, directory) in &self.directories {
            let what = label(*serial, names);
            if !reached.contains(serial) {
                found.push(format!("{what} cannot be reached from the root."));
            }
            let has_entry = |list: &Vec<(Serial, &Name)>| list.iter().any(|(parent, _)| *parent == directory.parent);
            if *serial != ROOT && !names.get(serial).is_some_and(has_entry) {
                found.push(format!(
                    "{what} claims directory {} as its parent, which has no entry for it.",
                    directory.parent
                ));
            }
        }
    }

    /// No space belongs to two, and the index of it is right.
    fn check_space(&self, names: &Names, found: &mut Vec<String>) {
        let mut zones: BTreeMap<u32, (Serial, u64)> = BTreeMap::new();
        let mut pieces: Vec<(u32, u64, u64, Serial)> = Vec::new();
        let mut ranges: Vec<(u64, u64, Serial)> = Vec::new();
        let mut expected = Space::default();
        for inode in self.inodes.values() {
            for e in &inode.extents {
                expected.insert(inode.serial, e);
                let Some((zone, life)) = e.place.zone() else {
                    ranges.extend(e.conventional().map(|(addr, len)| (addr, len, inode.serial)));
                    continue;
                };
                if let (Place::Raw { offset, .. }, false) = (e.place, e.is_open()) {
                    pieces.push((zone, offset, e.len, inode.serial));
                }
                let user = *zones.entry(zone).or_insert((inode.serial, life));
                if user.1 != life {
                    let (a, b) = (label(user.0, names), label(inode.serial, names));
                    found.push(format!(
                        "Zone {zone} is claimed by {a} in life {:x} and by {b} in life {life:x}.",
                        user.1
                    ));
                }
            }
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((addr, len, a), (next, _, b)) = (pair[0], pair[1]);
            if addr.saturating_add(len) > next {
                let (a, b) = (label(a, names), label(b, names));
                found.push(format!("The conventional space at address {next} is claimed by {a} and by {b}."));
            }
        }
        pieces.sort_unstable();
        for pair in pieces.windows(2) {
            let ((zone, offset, len, a), (same, next, _, b)) = (pair[0], pair[1]);
            if zone == same && a != b && offset.saturating_add(len) > next {
                let (a, b) = (label(a, names), label(b, names));
                found.push(format!("The bytes at {next} of zone {zone} are claimed by {a} and by {b}."));
            }
        }
        for (at, _) in self.inline.all().filter(|(at, _)| self.space.conventional_user(*at, INLINE_PAGE).is_none()) {
            found.push(format!("The bytes at {at} of inline space belong to no file."));
        }
        if expected != self.space {
            found.push("The index of used space does not agree with the files.".into());
        }
    }
}

/// Serial → every (directory, name) of it.
type Names<'a> = BTreeMap<Serial, Vec<(Serial, &'a Name)>>;

/// The path of a file, or its serial when it has none.
fn label(serial: Serial, names: &Names) -> String {
    if serial == ROOT {
        return "/".into();
    }
    let mut parts = Vec::new();
    let mut at = serial;
    while at != ROOT {
        // The bound stops a cycle, which is one of the things that may be wrong.
        match names.get(&at).and_then(|list| list.first()) {
            Some((parent, name)) if parts.len() < 256 => {
                parts.push(name.as_str());
                at = *parent;
            }
            _ => return format!("File {serial}"),
        }
    }
    parts.push("");
    parts.reverse();
    format!("{} (serial {serial})", parts.join("/"))
}

fn check_extents(inode: &Inode, complain: &mut impl FnMut(String)) {
    let mut end = 0;
    for (index, e) in inode.extents.iter().enumerate() {
        let is_last = index + 1 == inode.extents.len();
        if e.validate().is_err() {
            complain(format!("has an impossible extent at offset {} of {} bytes", e.logical, e.len));
        }
        if e.logical < end {
            complain(format!("has two extents at offset {}", e.logical));
        }
        if e.is_open() && (!is_last || inode.closed || inode.kind == FileKind::Directory) {
            complain(format!("has an extent at offset {} that never ended", e.logical));
        }
        end = Extent::end(e);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Extent, MetaError, Place, Record};
    use super::*;

    /// /dir (16), /dir/t.sst (17) in zone 1, /CURRENT (18) in conventional space, /l.log (19) in zone 2, open.
    fn sound() -> Meta {
        let name = |text: &str| Name::new(text).unwrap();
        let raw = |zone| Place::Raw { zone, life: 9, offset: 4096 };
        let file = |parent, text, serial| Record::Create {
            parent,
            name: name(text),
            serial,
            kind: FileKind::of_name(text),
            time: 1,
        };
        let extend = |serial, len, place| Record::Extend { serial, extent: Extent { logical: 0, len, place } };
        let mut meta = Meta::new();
        for record in [
            Record::Mkdir { parent: ROOT, name: name("dir"), serial: 16, time: 1 },
            file(16, "t.sst", 17),
            extend(17, super::super::OPEN, raw(1)),
            Record::Seal { serial: 17, size: 100, time: 2 },
            file(ROOT, "CURRENT", 18),
            extend(18, 4096, Place::Conventional { addr: 0 }),
            file(ROOT, "l.log", 19),
            extend(19, super::super::OPEN, raw(2)),
        ] {
            assert_eq!(meta.apply(&record).map(|effect| effect.freed), Ok(vec![]));
        }
        assert_eq!(meta.check(), Vec::<String>::new());
        meta
    }

    fn complaint(break_it: impl FnOnce(&mut Meta), part: &str) {
        let mut meta = sound();
        break_it(&mut meta);
        let found = meta.check();
        assert!(found.iter().any(|sentence| sentence.contains(part)), "{found:?} lacks {part:?}");
    }

    fn file(meta: &mut Meta, serial: Serial) -> &mut Inode {
        meta.inodes.get_mut(&serial).unwrap()
    }

    #[test]
    fn damage_to_names_is_named() {
        complaint(|m| file(m, 17).nlink = 2, "/dir/t.sst (serial 17) has 1 names but a link count of 2");
        complaint(|m| m.directories.get_mut(&16).unwrap().entries.clear(), "File 17 has no name");
        complaint(|m| drop(m.inodes.remove(&18)), "leads to file 18, which is missing");
        complaint(|m| m.directories.get_mut(&16).unwrap().parent = 3, "claims directory 3 as its parent");
        complaint(|m| m.next_serial = 19, "/l.log (serial 19) has a serial that was not given out");
        complaint(|m| m.names.clear(), "The index of names");
        let again = |m: &mut Meta| {
            let directory = m.directories.get_mut(&16).unwrap();
            directory.entries.insert(Name::new("x").unwrap(), 16);
        };
        complaint(again, "is a directory with several names");
        let cut_off = |m: &mut Meta| {
            // A cycle that nothing leads to.
            m.detach(ROOT, &Name::new("dir").unwrap()).unwrap();
            m.attach(16, &Name::new("self").unwrap(), 16);
        };
        complaint(cut_off, "File 16 cannot be reached from the root");
    }

    #[test]
    fn damage_to_files_is_named() {
        complaint(|m| file(m, 17).size = 101, "has size 101 but its last extent ends at 100");
        complaint(|m| file(m, 19).closed = true, "has an extent at offset 0 that never ended");
        complaint(|m| file(m, 17).volatile_size = Some(200), "volatile size Some(200)");
        complaint(|m| file(m, 19).volatile_size = Some(0), "volatile size Some(0)");
        complaint(|m| file(m, 16).size = 1, "/dir (serial 16) is a directory that claims to have bytes");
        complaint(|m| file(m, 18).size = u64::MAX, "impossible size");
        complaint(|m| file(m, 17).extents[0].len = 0, "impossible extent");
        let twice = |m: &mut Meta| {
            let extent = file(m, 17).extents[0];
            file(m, 17).extents.push(extent);
        };
        complaint(twice, "has two extents at offset 0");
    }

    #[test]
    fn space_with_two_owners_is_named() {
        let older = |m: &mut Meta| file(m, 19).extents[0].place = Place::Raw { zone: 1, life: 8, offset: 8192 };
        complaint(older, "Zone 1 is claimed by /dir/t.sst (serial 17) in life 9 and by /l.log (serial 19) in life 8");
        complaint(older, "The index of used space");
        let into = |m: &mut Meta| {
            let place = Place::Raw { zone: 1, life: 9, offset: 4100 };
            file(m, 19).extents[0] = Extent { logical: 0, len: 50, place };
        };
        complaint(into, "The bytes at 4100 of zone 1 are claimed by /dir/t.sst (serial 17) and by /l.log (serial 19)");
        let overlap = |m: &mut Meta| {
            file(m, 17).extents[0].place = Place::Conventional { addr: 4095 };
        };
        complaint(overlap, "address 4095 is claimed by /CURRENT (serial 18) and by /dir/t.sst (serial 17)");
        // And the index does not let it come that far.
        let extent = Extent { logical: 4096, len: 1, place: Place::Conventional { addr: 4095 } };
        assert!(matches!(sound().apply(&Record::Extend { serial: 18, extent }), Err(MetaError::Invalid(_))));
        let raw = |offset| Extent { logical: 100, len: 8, place: Place::Raw { zone: 1, life: 9, offset } };
        for (offset, fits) in [(4090, false), (4100, false), (4196, true)] {
            let mut meta = sound();
            let extend = Record::Extend { serial: 19, extent: raw(offset) };
            assert_eq!(meta.apply(&extend).is_ok(), fits, "at {offset}");
        }
    }
}
