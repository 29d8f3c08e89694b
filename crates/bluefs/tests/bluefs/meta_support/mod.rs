//! A simple model of the metadata, and random operations on both.
//!
//! The model knows names as full paths and bytes as steps of half a unit, each with the place it is at. It decides by itself
//! whether an operation is legal.

// Each test binary uses its part of this.
use imbrex_bluefs::kind::FileKind;
use imbrex_bluefs::meta::{Effect, Extent, FreedPlace, Meta, MetaError, Name, OPEN, Place, ROOT, Record, Serial};
use imbrex_zones::conventional::UNIT;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Half a unit of conventional space.
pub const STEP: u64 = UNIT / 2;
/// A serial that no file ever has.
const NOBODY: Serial = 1 << 40;

#[derive(Clone, Debug)]
pub enum Op {
    Mkdir(u8, u8),
    Create(u8, u8, FileKind),
    Link(u8, u8, u8),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Rename(u8, u8, u8, u8),
    Extend { file: u8, gap: i8, len: Option<u8>, place: u16 },
    Size { file: u8, steps: u8, volatile: bool },
    Seal { file: u8, steps: u8 },
    Reopen(u8),
    Remap { file: u8, at: u8, len: u8, place: u16 },
    Truncate { file: u8, steps: u8 },
    Times(u8),
    Allocate(u8),
}

pub fn op() -> impl Strategy<Value = Op> {
    let dir = || 0..12u8;
    let name = || 0..4u8;
    let file = || 0..12u8;
    let kind = prop_oneof![Just(FileKind::Random), Just(FileKind::Table), Just(FileKind::Log)];
    let len = prop_oneof![Just(None), (1..5u8).prop_map(Some)];
    prop_oneof![
        3 => (dir(), name()).prop_map(|(d, n)| Op::Mkdir(d, n)),
        6 => (dir(), name(), kind).prop_map(|(d, n, k)| Op::Create(d, n, k)),
        2 => (file(), dir(), name()).prop_map(|(f, d, n)| Op::Link(f, d, n)),
        2 => (dir(), name()).prop_map(|(d, n)| Op::Unlink(d, n)),
        1 => (dir(), name()).prop_map(|(d, n)| Op::Rmdir(d, n)),
        4 => (dir(), name(), dir(), name()).prop_map(|(a, b, c, d)| Op::Rename(a, b, c, d)),
        12 => (file(), -1..3i8, len, any::<u16>())
            .prop_map(|(file, gap, len, place)| Op::Extend { file, gap, len, place }),
        2 => (file(), 0..16u8, any::<bool>()).prop_map(|(file, steps, volatile)| Op::Size { file, steps, volatile }),
        4 => (file(), 0..12u8).prop_map(|(file, steps)| Op::Seal { file, steps }),
        2 => file().prop_map(Op::Reopen),
        4 => (file(), 0..10u8, 1..4u8, any::<u16>())
            .prop_map(|(file, at, len, place)| Op::Remap { file, at, len, place }),
        2 => (file(), 0..12u8).prop_map(|(file, steps)| Op::Truncate { file, steps }),
        1 => file().prop_map(Op::Times),
        1 => file().prop_map(Op::Allocate),
    ]
}

/// Where one step of a file is. Equal `run`: one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    place: Place,
    run: u64,
}

fn step_place(place: Place, steps: u64) -> Place {
    match place {
        Place::Conventional { addr } => Place::Conventional { addr: addr + steps * STEP },
        Place::Raw { zone, life, offset } => Place::Raw { zone, life, offset: offset + steps * STEP },
        Place::Framed { .. } => place,
    }
}

#[derive(Clone, Debug)]
struct File {
    kind: FileKind,
    closed: bool,
    size: u64,
    volatile: Option<u64>,
    spots: BTreeMap<u64, Spot>,
    open: Option<(u64, Spot)>,
}

impl File {
    fn sequential(&self) -> bool {
        self.kind != FileKind::Random
    }
    /// In steps.
    fn reach(&self) -> u64 {
        if self.open.is_some() { u64::MAX } else { self.spots.last_key_value().map_or(0, |(at, _)| at + 1) }
    }
    /// First step and place of the last extent.
    fn last(&self) -> Option<(u64, Spot)> {
        self.open.or_else(|| {
            let (_, last) = self.spots.last_key_value()?;
            self.spots.iter().find(|(_, spot)| spot.run == last.run).map(|(at, spot)| (*at, *spot))
        })
    }
    fn at(&self, step: u64) -> Option<Place> {
        match self.open {
            Some((from, spot)) if step >= from => Some(step_place(spot.place, step - from)),
            _ => self.spots.get(&step).map(|spot| spot.place),
        }
    }
    fn close_open(&mut self, end: u64) {
        if let Some((from, spot)) = self.open.take() {
            for at in from..end {
                self.spots.insert(at, Spot { place: step_place(spot.place, at - from), ..spot });
            }
        }
    }
    fn cut(&mut self, end: u64) {
        self.close_open(end);
        let sequential = self.sequential();
        let inside = end.checked_sub(1).and_then(|at| self.spots.get(&at)).map(|spot| spot.run);
        self.spots.retain(|at, spot| {
            let half_a_unit =
                matches!(spot.place, Place::Conventional { addr } if !(addr / STEP).is_multiple_of(2)) && *at == end;
            *at < end || (half_a_unit && !sequential && inside == Some(spot.run))
        });
    }
    /// Zone, and what is known to be taken of it: of frames, and of what is still growing, only where they begin.
    fn stretches(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let stretch = |place: Place, raw: u64| match place {
            Place::Conventional { .. } => None,
            Place::Raw { zone, offset, .. } => Some((zone, offset, offset + raw)),
            Place::Framed { zone, offset, .. } => Some((zone, offset, offset + 1)),
        };
        let closed = self.spots.values().filter_map(move |spot| stretch(spot.place, STEP));
        closed.chain(self.open.and_then(|(_, spot)| stretch(spot.place, 1)))
    }
    fn space(&self) -> impl Iterator<Item = Owned> + '_ {
        let places = self.spots.values().map(|spot| spot.place).chain(self.open.map(|(_, spot)| spot.place));
        places.map(|place| match place {
            Place::Conventional { addr } => Owned::Step(addr / STEP),
            Place::Raw { zone, life, .. } | Place::Framed { zone, life, .. } => Owned::Zone(zone, life),
        })
    }
}

/// A piece of the drive that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owned {
    Zone(u32, u64),
    Step(u64),
}

#[derive(Clone, Debug)]
enum Node {
    Dir,
    File(Serial),
}

/// The state under test beside its model.
#[derive(Clone, Debug)]
pub struct World {
    pub meta: Meta,
    /// Every record that was legal, in order.
    pub journal: Vec<Record>,
    names: BTreeMap<String, Node>,
    files: BTreeMap<Serial, File>,
    runs: u64,
    clock: u64,
}

impl World {
    pub fn new() -> World {
        let names = BTreeMap::from([("/".to_owned(), Node::Dir)]);
        let (meta, journal) = (Meta::new(), Vec::new());
        World { meta, journal, names, files: BTreeMap::new(), runs: 0, clock: 0 }
    }

    /// Serials of the files that exist.
    pub fn live(&self) -> impl Iterator<Item = Serial> + '_ {
        self.files.keys().copied()
    }

    fn apply(&mut self, record: Record) -> Result<Effect, MetaError> {
        let before = self.meta.clone();
        let result = self.meta.apply(&record);
        match &result {
            Ok(_) => self.journal.push(record),
            Err(_) => assert!(self.meta == before, "{record:?} was refused but changed something"),
        }
        result
    }

    /// Mostly directories, now and then a file or nothing.
    fn pick_dir(&self, n: u8) -> String {
        let dirs: Vec<&String> = self.names.iter().filter(|(_, n)| matches!(n, Node::Dir)).map(|(p, _)| p).collect();
        match n {
            0 => "/nothing/here".to_owned(),
            1 => self.names.keys().nth(self.names.len() / 2).cloned().unwrap_or_default(),
            _ => dirs[usize::from(n) % dirs.len()].clone(),
        }
    }

    fn pick_file(&self, n: u8) -> Serial {
        match (n, self.files.len()) {
            (0, _) | (_, 0) => NOBODY,
            (1, _) => ROOT,
            (n, len) => *self.files.keys().nth(usize::from(n) % len).unwrap(),
        }
    }

    fn path(&self, dir: &str, name: u8) -> (Name, String) {
        let name = ["a", "b", "LOG", "000012.sst"][usize::from(name) % 4];
        (Name::new(name).unwrap(), format!("{}/{name}", dir.trim_end_matches('/')))
    }

    fn want_dir(&self, path: &str) -> Result<(), MetaError> {
        match self.names.get(path) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(MetaError::NotADirectory),
            None => Err(MetaError::NotFound),
        }
    }

    fn want_node(&self, dir: &str, path: &str) -> Result<Node, MetaError> {
        self.want_dir(dir)?;
        self.names.get(path).cloned().ok_or(MetaError::NotFound)
    }

    fn is_empty(&self, dir: &str) -> bool {
        !self.names.keys().any(|path| path.starts_with(&format!("{dir}/")))
    }

    fn owned(&self) -> BTreeSet<Owned> {
        self.files.values().flat_map(File::space).collect()
    }

    fn admits(&self, place: Place, steps: u64) -> bool {
        let mut users = self.files.iter().flat_map(|(s, f)| f.space().map(move |owned| (*s, owned)));
        match place {
            Place::Conventional { addr } => {
                let (from, to) = (addr / STEP, addr / STEP + steps);
                !users.any(|(_, owned)| matches!(owned, Owned::Step(at) if (from..to).contains(&at)))
            }
            Place::Raw { zone, life, .. } | Place::Framed { zone, life, .. } => {
                !users.any(|(_, owned)| matches!(owned, Owned::Zone(z, l) if z == zone && l != life))
            }
        }
    }

    /// Whether bytes of this file and of another would stand in the same place of a zone, as far as metadata can know.
    fn clashes(&self, serial: Serial, file: &File) -> bool {
        let mine: Vec<_> = file.stretches().collect();
        let others = self.files.iter().filter(|(s, _)| **s != serial).flat_map(|(_, f)| f.stretches());
        others.into_iter().any(|(zone, from, to)| mine.iter().any(|m| m.0 == zone && m.1 < to && from < m.2))
    }

    /// A file's last name may have gone.
    fn reap(&mut self) {
        let named: BTreeSet<Serial> =
            self.names.values().filter_map(|n| if let Node::File(s) = n { Some(*s) } else { None }).collect();
        self.files.retain(|serial, _| named.contains(serial));
    }

    /// Does one operation to both, and compares what comes out.
    pub fn step(&mut self, op: &Op) {
        let before = (self.owned(), self.files.keys().copied().collect::<BTreeSet<_>>());
        self.clock += 1;
        let (got, want) = match op {
            Op::Mkdir(..) | Op::Create(..) | Op::Link(..) | Op::Unlink(..) | Op::Rmdir(..) | Op::Rename(..) => {
                let (got, want) = self.step_name(op);
                assert_eq!(got.as_ref().err(), want.as_ref().err(), "{op:?}");
                (got.ok(), want.is_ok())
            }
            _ => {
                let (got, want) = self.step_file(op);
                assert_eq!(got.is_ok(), want, "{op:?}: {got:?}");
                (got.ok(), want)
            }
        };
        self.reap();
        if !want {
            return;
        }
        let after = (self.owned(), self.files.keys().copied().collect::<BTreeSet<_>>());
        let effect = got.unwrap_or_default();
        let mut freed: Vec<Owned> = Vec::new();
        for place in effect.freed.iter().flat_map(|freed| &freed.places) {
            match *place {
                FreedPlace::Zone { zone, life } => freed.push(Owned::Zone(zone, life)),
                FreedPlace::Conventional { addr, len } => {
                    freed.extend((addr / STEP..(addr + len) / STEP).map(Owned::Step));
                }
            }
        }
        freed.sort();
        assert_eq!(freed, before.0.difference(&after.0).copied().collect::<Vec<_>>(), "space that {op:?} freed");
        let gone: Vec<Serial> = effect.freed.iter().filter(|f| f.unlinked).map(|f| f.serial).collect();
        assert_eq!(gone, before.1.difference(&after.1).copied().collect::<Vec<_>>(), "files that {op:?} deleted");
    }

    fn step_name(&mut self, op: &Op) -> (Result<Effect, MetaError>, Result<(), MetaError>) {
        match op {
            Op::Mkdir(dir, name) | Op::Create(dir, name, _) => {
                let dir = self.pick_dir(*dir);
                let (name, path) = self.path(&dir, *name);
                let want = match self.want_node(&dir, &path) {
                    Ok(_) => Err(MetaError::Exists),
                    Err(MetaError::NotFound) if self.want_dir(&dir).is_ok() => Ok(()),
                    Err(why) => Err(why),
                };
                let (serial, time) = (self.meta.next_serial(), self.clock);
                let got = self.meta.resolve(&dir).and_then(|parent| {
                    let record = match op {
                        Op::Create(_, _, kind) => Record::Create { parent, name, serial, kind: *kind, time },
                        _ => Record::Mkdir { parent, name, serial, time },
                    };
                    self.apply(record)
                });
                if want.is_ok() {
                    let node = match op {
                        Op::Create(_, _, kind) => {
                            let (spots, open) = (BTreeMap::new(), None);
                            let file = File { kind: *kind, closed: false, size: 0, volatile: None, spots, open };
                            self.files.insert(serial, file);
                            Node::File(serial)
                        }
                        _ => Node::Dir,
                    };
                    self.names.insert(path, node);
                }
                (got, want)
            }
            Op::Link(file, dir, name) => {
                let (serial, dir) = (self.pick_file(*file), self.pick_dir(*dir));
                let (name, path) = self.path(&dir, *name);
                let want = match (serial, self.want_node(&dir, &path)) {
                    (_, Err(why)) if self.want_dir(&dir).is_err() => Err(why),
                    (NOBODY, _) => Err(MetaError::NotFound),
                    (ROOT, _) => Err(MetaError::IsADirectory),
                    (_, Ok(_)) => Err(MetaError::Exists),
                    (_, Err(_)) => Ok(()),
                };
                // The directory is judged first here, as by a caller who resolves the path.
                let parent = self.meta.resolve(&dir).and_then(|parent| self.meta.entries(parent).map(|_| parent));
                let got = parent.and_then(|parent| self.apply(Record::Link { serial, parent, name }));
                if want.is_ok() {
                    self.names.insert(path, Node::File(serial));
                }
                (got, want)
            }
            Op::Unlink(dir, name) | Op::Rmdir(dir, name) => {
                let dir = self.pick_dir(*dir);
                let (name, path) = self.path(&dir, *name);
                let is_unlink = matches!(op, Op::Unlink(..));
                let want = match self.want_node(&dir, &path) {
                    Ok(Node::Dir) if is_unlink => Err(MetaError::IsADirectory),
                    Ok(Node::Dir) if !self.is_empty(&path) => Err(MetaError::NotEmpty),
                    Ok(Node::File(_)) if !is_unlink => Err(MetaError::NotADirectory),
                    other => other.map(drop),
                };
                let record = self.meta.resolve(&dir).and_then(|parent| match is_unlink {
                    true => self.meta.unlink_record(parent, &name),
                    false => self.meta.rmdir_record(parent, &name),
                });
                let got = record.and_then(|record| self.apply(record));
                if want.is_ok() {
                    self.names.remove(&path);
                }
                (got, want)
            }
            Op::Rename(from_dir, from, to_dir, to) => self.step_rename(*from_dir, *from, *to_dir, *to),
            _ => unreachable!("not about names"),
        }
    }

    fn step_rename(&mut self, a: u8, b: u8, c: u8, d: u8) -> (Result<Effect, MetaError>, Result<(), MetaError>) {
        let (from_dir, to_dir) = (self.pick_dir(a), self.pick_dir(c));
        let (from, from_path) = self.path(&from_dir, b);
        let (to, to_path) = self.path(&to_dir, d);
        let mut same = false;
        let want = (|| {
            let node = self.want_node(&from_dir, &from_path)?;
            self.want_dir(&to_dir)?;
            let old = self.names.get(&to_path);
            same = from_path == to_path || matches!((&node, old), (Node::File(a), Some(Node::File(b))) if a == b);
            if same {
                return Ok(());
            }
            match (&node, old) {
                (Node::Dir, _) if format!("{to_path}/").starts_with(&format!("{from_path}/")) => Err(MetaError::Loop),
                (Node::Dir, Some(Node::File(_))) => Err(MetaError::NotADirectory),
                (Node::File(_), Some(Node::Dir)) => Err(MetaError::IsADirectory),
                (Node::Dir, Some(Node::Dir)) if !self.is_empty(&to_path) => Err(MetaError::NotEmpty),
                _ => Ok(()),
            }
        })();
        let parents = self.meta.resolve(&from_dir).and_then(|x| Ok((x, self.lookup_first(x, &from, &to_dir)?)));
        let got = parents
            .and_then(|(x, y)| self.meta.rename_record((x, &from), (y, &to), self.clock))
            .and_then(|record| self.apply(record));
        if want.is_ok() && !same {
            let moved: Vec<String> = self
                .names
                .keys()
                .filter(|p| **p == from_path || p.starts_with(&format!("{from_path}/")))
                .cloned()
                .collect();
            for path in moved {
                if let Some(node) = self.names.remove(&path) {
                    self.names.insert(format!("{to_path}{}", &path[from_path.len()..]), node);
                }
            }
        }
        (got, want)
    }

    /// The source is judged before the target's directory.
    fn lookup_first(&self, parent: Serial, name: &Name, to_dir: &str) -> Result<Serial, MetaError> {
        self.meta.lookup(parent, name)?;
        self.meta.resolve(to_dir)
    }

    fn new_place(n: u16) -> Place {
        let zone = u32::from(n / 4 % 24);
        let life = 1 + u64::from((n / 128).is_multiple_of(5));
        match n % 4 {
            0 | 1 => Place::Conventional { addr: u64::from(n / 4 % 200) * STEP },
            2 => Place::Raw { zone, life, offset: STEP },
            _ => Place::Framed { zone, life, offset: STEP },
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    fn step_file(&mut self, op: &Op) -> (Result<Effect, MetaError>, bool) {
        let time = self.clock;
        let run = self.runs + 1;
        self.runs += 2;
        let (Op::Extend { file, .. }
        | Op::Size { file, .. }
        | Op::Seal { file, .. }
        | Op::Reopen(file)
        | Op::Remap { file, .. }
        | Op::Truncate { file, .. }
        | Op::Times(file)
        | Op::Allocate(file)) = op
        else {
            unreachable!("not about a file")
        };
        let serial = self.pick_file(*file);
        let Some(file) = self.files.get(&serial).cloned() else {
            let record = match op {
                Op::Times(_) => Record::Times { serial: NOBODY, modified: time },
                Op::Extend { place, .. } => {
                    let extent = Extent { logical: 0, len: STEP, place: World::new_place(*place) };
                    Record::Extend { serial, extent }
                }
                _ => Record::Seal { serial, size: 0, time },
            };
            return (self.apply(record), false);
        };
        let mut new = file.clone();
        let (record, legal) = match *op {
            Op::Extend { gap, len, place, .. } => {
                let end = file.open.map_or(file.reach(), |(from, _)| from);
                let at = end.saturating_add_signed(i64::from(gap));
                let place = World::new_place(place);
                let open = len.is_none();
                let steps = len.map_or(1, u64::from);
                let conventional = matches!(place, Place::Conventional { .. });
                let legal = !file.closed && at >= end && !(open && conventional) && self.admits(place, steps);
                new.close_open(at);
                let spot = Spot { place, run };
                if open {
                    new.open = Some((at, spot));
                } else {
                    let spots = (0..steps).map(|i| (at + i, Spot { place: step_place(place, i), run }));
                    new.spots.extend(spots);
                }
                let len = if open { OPEN } else { steps * STEP };
                (Record::Extend { serial, extent: Extent { logical: at * STEP, len, place } }, legal)
            }
            Op::Size { steps, volatile, .. } => {
                let size = u64::from(steps) * STEP;
                new.size = if volatile { file.size } else { size };
                new.volatile =
                    if volatile { Some(size) } else { file.volatile }.filter(|volatile| *volatile > new.size);
                (Record::Size { serial, size, time, volatile }, !file.closed && size >= file.size)
            }
            Op::Seal { steps, .. } => {
                let steps = u64::from(steps);
                let mut legal = true;
                if let Some((from, spot)) = file.last()
                    && !matches!(spot.place, Place::Conventional { .. })
                {
                    legal = steps >= from;
                    new.cut(steps);
                }
                legal &= !file.sequential() || steps <= new.reach();
                (new.closed, new.size, new.volatile) = (true, steps * STEP, None);
                (Record::Seal { serial, size: steps * STEP, time }, legal)
            }
            Op::Reopen(_) => {
                new.closed = false;
                (Record::Reopen { serial }, true)
            }
            Op::Remap { at, len, place, .. } => {
                let (at, len, place) = (u64::from(at), u64::from(len), World::new_place(place));
                let legal = (at..at + len).all(|i| file.at(i).is_some()) && self.admits(place, len);
                if let Some((from, spot)) = new.open
                    && at + len > from
                {
                    new.close_open(at.max(from));
                    let rest = Spot { place: step_place(spot.place, at + len - from), run: run + 1 };
                    new.open = Some((at + len, rest));
                }
                let old_run = new.spots.get(&(at + len)).map(|spot| spot.run);
                let spots = (0..len).map(|i| (at + i, Spot { place: step_place(place, i), run }));
                new.spots.extend(spots);
                for (_, spot) in new.spots.range_mut(at + len..).filter(|(_, spot)| Some(spot.run) == old_run) {
                    spot.run = run + 1;
                }
                (Record::Remap { serial, logical: at * STEP, len: len * STEP, place }, legal)
            }
            Op::Truncate { steps, .. } => {
                let steps = u64::from(steps);
                let known = file.size.max(file.volatile.unwrap_or(0)) / STEP;
                let known = if file.sequential() { known.max(file.reach()) } else { known };
                new.cut(steps);
                (new.size, new.volatile) = (steps * STEP, None);
                let in_hole = file.closed && file.sequential() && steps > new.reach();
                (Record::Truncate { serial, size: steps * STEP, time }, steps <= known && !in_hole)
            }
            Op::Times(_) => (Record::Times { serial, modified: time }, true),
            _ => (Record::Allocate { serial, bytes: time }, true),
        };
        let legal = legal && !self.clashes(serial, &new);
        if legal {
            self.files.insert(serial, new);
        }
        (self.apply(record), legal)
    }

    /// Compares everything that can be seen.
    pub fn compare(&self) {
        assert_eq!(self.meta.check(), Vec::<String>::new());
        for (path, node) in &self.names {
            let serial = self.meta.resolve(path).unwrap_or_else(|why| panic!("{path}: {why}"));
            match node {
                Node::Dir => {
                    let prefix = format!("{}/", path.trim_end_matches('/'));
                    let inside = |p: &&String| p.len() > prefix.len() && p.starts_with(&prefix);
                    let direct = |p: &&String| !p[prefix.len()..].contains('/');
                    let want: Vec<&str> =
                        self.names.keys().filter(inside).filter(direct).map(|p| &p[prefix.len()..]).collect();
                    let got: Vec<&str> = self.meta.entries(serial).unwrap().map(|(name, _)| name.as_str()).collect();
                    assert_eq!(got, want, "entries of {path}");
                    assert_eq!(self.meta.path_of(serial), *path);
                }
                Node::File(want) => {
                    assert_eq!(serial, *want, "{path}");
                    let links = self.names.values().filter(|n| matches!(n, Node::File(s) if s == want)).count();
                    assert_eq!(self.meta.inode(serial).unwrap().nlink as usize, links, "links of {path}");
                }
            }
        }
        let counts = self.meta.counts();
        assert_eq!(counts.files, self.files.len());
        assert_eq!(counts.directories, self.names.values().filter(|n| matches!(n, Node::Dir)).count());
        for (serial, file) in &self.files {
            let inode = self.meta.inode(*serial).unwrap();
            assert_eq!((inode.kind, inode.closed), (file.kind, file.closed), "file {serial}");
            assert_eq!((inode.size, inode.volatile_size), (file.size, file.volatile), "sizes of file {serial}");
            for step in 0..40 {
                let got = inode.extent_at(step * STEP).map(|i| {
                    let e = inode.extents[i];
                    step_place(e.place, step - e.logical / STEP)
                });
                assert_eq!(got, file.at(step), "file {serial} at step {step}");
            }
        }
    }
}
