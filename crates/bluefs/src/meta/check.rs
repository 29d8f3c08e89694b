//! Every invariant of the metadata, tested: what `imbrex fs check` says about it.

use super::space::Space;
use super::{Extent, FileKind, Inode, LOST_FOUND, MAX_LINKS, MAX_SIZE, Meta, Name, ROOT, Serial};
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
        let mut ranges: Vec<(u64, u64, Serial)> = Vec::new();
        let mut expected = Space::default();
        for inode in self.inodes.values() {
            for e in &inode.extents {
                expected.insert(inode.serial, e);
                let Some((zone, life)) = e.place.zone() else {
                    ranges.extend(e.conventional().map(|(addr, len)| (addr, len, inode.serial)));
                    continue;
                };
                let user = *zones.entry(zone).or_insert((inode.serial, life));
                if user != (inode.serial, life) {
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
