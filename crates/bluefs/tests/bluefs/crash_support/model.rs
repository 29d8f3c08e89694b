//! What a script does, what the file system should be after each operation, and what a crash may leave of it.
//!
//! The rule for names: the journal is one ordered log, so what is there after a crash is what *some* prefix of the operations
//! made, one that reaches at least to the last operation that was promised. The rule for bytes: a file's content is a prefix
//! of what it was at some moment since its last promise, and not shorter than at any of those moments; where bytes were
//! overwritten in place, each is one that it was at some of those moments.

use imbrex_bluefs::FileKind;
use imbrex_crashkit::{FaultKind, History, Status};
use imbrex_device::Cause;
use std::collections::{BTreeMap, BTreeSet};

pub type Path = &'static str;

/// One call. Paths are the names at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Mkdir(Path),
    Rmdir(Path),
    Create(Path),
    Append(Path, u32, u8),
    Sync(Path),
    Close(Path),
    Reopen(Path),
    Link(Path, Path),
    Rename(Path, Path),
    Unlink(Path),
    /// Unlinks a name whose file stays open: the second is what the handle is called from now on.
    UnlinkHeld(Path, Path),
    /// Compares what a reader of such a file sees with what was appended to it.
    ReadHeld(Path),
    /// Another thread begins to sync a file, and does the next step of that, and the rest: the number is the sync's.
    SyncStart(Path, u8),
    SyncStep(u8),
    SyncEnd(u8),
    SyncAll,
    /// Opens for random access, syncs and closes; nothing is written.
    SyncRandom(Path),
    Preallocate(Path, u32),
    Truncate(Path, u32),
    Overwrite(Path, u32, u8),
    SyncDir,
    /// Background work: one step.
    Step,
    /// What is done at rest: live bytes of zones move together.
    Pack,
    /// Unmount and mount again.
    Remount,
    /// Appends until the drive is full; the file is deleted next.
    Fill(Path, u8),
}

pub fn bytes(n: usize, seed: u8) -> Vec<u8> {
    crate::support::bytes_from(1, n, seed.wrapping_mul(37))
}

/// Names and contents: what the file system should be.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub dirs: BTreeSet<String>,
    /// Path to number of the file.
    pub names: BTreeMap<String, usize>,
    pub contents: Vec<Vec<u8>>,
    /// Files that were unlinked while open, by the name of the handle.
    pub held: BTreeMap<String, usize>,
}

impl Model {
    /// Applies an operation that is legal; returns the file whose bytes it is about.
    pub fn apply(&mut self, op: &Op) -> Option<usize> {
        let of = |model: &Model, path: &str| model.names.get(path).or_else(|| model.held.get(path)).copied();
        match op {
            Op::Mkdir(path) => drop(self.dirs.insert((*path).into())),
            Op::Rmdir(path) => drop(self.dirs.remove(*path)),
            Op::Create(path) => {
                self.contents.push(Vec::new());
                self.names.insert((*path).into(), self.contents.len() - 1);
                return of(self, path);
            }
            Op::Append(path, n, seed) => {
                let file = of(self, path)?;
                self.contents[file].extend(bytes(*n as usize, *seed));
                return Some(file);
            }
            Op::Truncate(path, n) => {
                let file = of(self, path)?;
                self.contents[file].truncate(*n as usize);
                return Some(file);
            }
            Op::Overwrite(path, at, seed) => {
                let file = of(self, path)?;
                self.contents[file][*at as usize..*at as usize + 8].copy_from_slice(&[*seed; 8]);
                return Some(file);
            }
            Op::Sync(path) | Op::Reopen(path) | Op::SyncRandom(path) => return of(self, path),
            Op::Close(path) => {
                let file = of(self, path);
                self.held.remove(*path);
                return file;
            }
            Op::Link(from, to) => {
                let file = of(self, from)?;
                self.names.insert((*to).into(), file);
                return Some(file);
            }
            Op::Unlink(path) => return self.names.remove(*path),
            Op::UnlinkHeld(path, held) => {
                let file = self.names.remove(*path)?;
                self.held.insert((*held).into(), file);
                return Some(file);
            }
            Op::Rename(from, to) => {
                if let Some(file) = self.names.remove(*from) {
                    self.names.insert((*to).into(), file);
                    return Some(file);
                }
                let moved = |path: &str| match path.strip_prefix(from) {
                    Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
                    _ => path.to_owned(),
                };
                self.dirs = self.dirs.iter().map(|d| moved(d)).collect();
                self.names = self.names.iter().map(|(p, f)| (moved(p), *f)).collect();
            }
            Op::Fill(path, _) => return of(self, path),
            Op::Remount => self.held.clear(),
            Op::SyncStart(path, _) => return of(self, path),
            Op::SyncStep(_) | Op::SyncEnd(_) | Op::SyncAll => {}
            Op::SyncDir | Op::Step | Op::Pack | Op::Preallocate(..) | Op::ReadHeld(_) => {}
        }
        None
    }
}

/// Serial number, kind, and content, or why it could not be read.
pub type FoundFile = (u64, FileKind, Result<Vec<u8>, String>);

/// What is on the drive.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Found {
    pub dirs: BTreeSet<String>,
    /// By path.
    pub files: BTreeMap<String, FoundFile>,
}

pub fn brief(found: &Found) -> String {
    let files: Vec<String> = found
        .files
        .iter()
        .map(|(path, (serial, kind, content))| match content {
            Ok(bytes) => format!("{path} ({serial} {kind:?} {} bytes)", bytes.len()),
            Err(why) => format!("{path} ({serial} {kind:?} {why})"),
        })
        .collect();
    format!("{:?} {}", found.dirs, files.join(", "))
}

/// Every moment of a history, and what of it was promised.
pub struct States {
    /// Before each operation, and after the last.
    models: Vec<Model>,
    /// Names are those of a model from here on.
    names_from: usize,
    /// Bytes of each file are those of a model from here on.
    bytes_from: Vec<usize>,
    /// Which file each operation is about.
    about: Vec<Option<usize>>,
}

/// Goes through a history.
pub fn states(history: &History<Op>) -> States {
    let mut model = Model::default();
    let mut about = Vec::new();
    let mut models = vec![model.clone()];
    let (mut names_from, mut named_at, mut bytes_from) = (0, BTreeMap::new(), Vec::new());
    // What syncs under way will have promised: the file, the moment of its bytes, and that of its names.
    let mut started: BTreeMap<u8, (usize, usize, usize)> = BTreeMap::new();
    let everything = history.floor() == Status::Acked;
    for (i, entry) in history.entries().iter().enumerate() {
        let file = model.apply(&entry.op);
        models.push(model.clone());
        about.push(file);
        bytes_from.resize(model.contents.len(), i + 1);
        if matches!(entry.op, Op::Create(_) | Op::Rename(..) | Op::Link(..))
            && let Some(file) = file
        {
            named_at.insert(file, i + 1);
        }
        if let (Op::SyncStart(_, sync), Some(file)) = (&entry.op, file) {
            started.insert(*sync, (file, i + 1, named_at.get(&file).copied().unwrap_or(0)));
        }
        if !history.is_must(entry) {
            continue;
        }
        match (&entry.op, file) {
            (Op::SyncDir, _) => names_from = i + 1,
            (Op::SyncEnd(sync), _) => {
                if let Some((file, bytes, names)) = started.get(sync).copied()
                    && model.names.values().any(|f| *f == file)
                {
                    bytes_from[file] = bytes_from[file].max(bytes);
                    names_from = names_from.max(names);
                }
            }
            // The sync of a file without a name promises nothing: nobody but its handles can ever see it.
            (Op::Sync(_) | Op::SyncRandom(_) | Op::Overwrite(..), Some(file))
                if model.names.values().any(|f| *f == file) =>
            {
                bytes_from[file] = i + 1;
                names_from = names_from.max(named_at.get(&file).copied().unwrap_or(0));
            }
            (Op::Remount | Op::SyncAll, _) => {
                names_from = i + 1;
                bytes_from.fill(i + 1);
            }
            _ => {}
        }
        if everything {
            names_from = i + 1;
            bytes_from.fill(i + 1);
        }
    }
    States { models, names_from, bytes_from, about }
}

/// Whether names and contents are what the history allows. Files of `exempt`, by their numbers, were damaged: of them it
/// is enough that no byte is wrong.
pub fn verify(history: &History<Op>, states: &States, found: &Found, exempt: &BTreeSet<usize>) -> Result<(), String> {
    let mut why = format!("names are those of no moment from operation {} on:\n{}", states.names_from, brief(found));
    for (k, model) in states.models.iter().enumerate().skip(states.names_from) {
        if !same_names(model, found) {
            continue;
        }
        match contents(history, states, model, found, exempt) {
            Ok(()) => return Ok(()),
            Err(wrong) => why = format!("(names of moment {k}) {wrong}"),
        }
    }
    Err(why)
}

fn same_names(model: &Model, found: &Found) -> bool {
    let pairs: BTreeSet<(usize, u64)> = model
        .names
        .iter()
        .filter_map(|(path, file)| found.files.get(path).map(|(serial, ..)| (*file, *serial)))
        .collect();
    let files: BTreeSet<usize> = pairs.iter().map(|p| p.0).collect();
    let serials: BTreeSet<u64> = pairs.iter().map(|p| p.1).collect();
    model.dirs == found.dirs
        && model.names.keys().eq(found.files.keys())
        && files.len() == pairs.len()
        && serials.len() == pairs.len()
}

fn contents(
    history: &History<Op>,
    states: &States,
    model: &Model,
    found: &Found,
    exempt: &BTreeSet<usize>,
) -> Result<(), String> {
    for (path, file) in &model.names {
        let (_, kind, content) = &found.files[path];
        // What is written while the drive fills up is deleted next; it only has to be what was written.
        if history.entries().iter().any(|e| matches!(e.op, Op::Fill(p, _) if p == path)) {
            continue;
        }
        if exempt.contains(file) {
            damaged(states, *file, *kind, content, history).map_err(|why| format!("{path} ({kind:?}) {why}"))?;
            continue;
        }
        let content = content.as_ref().map_err(|why| format!("{path} cannot be read: {why}"))?;
        let from = states.bytes_from[*file];
        let moments = states.moments(*file, from);
        if !allowed(content, &moments, states.overwritten(history, *file, from)) {
            let most = moments.iter().max_by_key(|m| m.len());
            let wrong = most.map(|m| m.iter().zip(content).position(|(a, b)| a != b));
            return Err(format!(
                "{path} ({kind:?}) has {} bytes; from moment {from} on it had {:?}; first difference at {wrong:?}",
                content.len(),
                moments.iter().map(|m| m.len()).collect::<Vec<_>>()
            ));
        }
    }
    Ok(())
}

impl States {
    /// What a file held at each moment from `from` on.
    fn moments(&self, file: usize, from: usize) -> Vec<&[u8]> {
        self.models[from..].iter().filter_map(|m| m.contents.get(file)).map(Vec::as_slice).collect()
    }

    /// Whether a table was appended to after a sync, a close or a truncation.
    fn goes_on(&self, history: &History<Op>, file: usize) -> bool {
        let (mut table, mut padded) = (false, false);
        for (entry, _) in history.entries().iter().zip(&self.about).filter(|(_, about)| **about == Some(file)) {
            match entry.op {
                Op::Create(path) => table = path.ends_with(".sst"),
                Op::Append(..) if padded => return table,
                Op::Sync(_) | Op::SyncRandom(_) | Op::Close(_) | Op::Truncate(..) | Op::Reopen(_) => padded = true,
                Op::SyncStart(..) => padded = true,
                _ => {}
            }
        }
        false
    }

    /// Whether bytes of the file were overwritten since.
    fn overwritten(&self, history: &History<Op>, file: usize, from: usize) -> bool {
        let ops = history.entries().iter().zip(&self.about).skip(from.saturating_sub(1));
        ops.into_iter().any(|(e, about)| matches!(e.op, Op::Overwrite(..)) && *about == Some(file))
    }
}

fn allowed(content: &[u8], moments: &[&[u8]], overwritten: bool) -> bool {
    let least = moments.iter().map(|m| m.len()).min().unwrap_or(0);
    if overwritten {
        return content.len() >= least
            && content.iter().enumerate().all(|(i, b)| moments.iter().any(|m| m.get(i) == Some(b)));
    }
    content.len() >= least && moments.iter().any(|m| m.starts_with(content))
}

/// No byte of a log without all of the logs before it.
pub fn ordered(chain: &[Path], states: &States, found: &Found) -> Result<(), String> {
    let last = states.models.last().ok_or("no state")?;
    let mut incomplete: Option<&str> = None;
    for path in chain {
        let (Some(file), Some((_, _, Ok(content)))) = (last.names.get(*path), found.files.get(*path)) else { continue };
        if let Some(before) = incomplete
            && !content.is_empty()
        {
            return Err(format!("{path} has {} bytes although {before} is not whole", content.len()));
        }
        if content.len() < last.contents[*file].len() {
            incomplete = Some(path);
        }
    }
    Ok(())
}

/// Of a file that damage hit: an error, or fewer bytes than were written, but no wrong ones. A flipped bit is a byte that is
/// wrong in files without checksums of ours.
fn damaged(
    states: &States,
    file: usize,
    kind: FileKind,
    content: &Result<Vec<u8>, String>,
    history: &History<Op>,
) -> Result<(), String> {
    let Ok(content) = content else { return Ok(()) };
    let flipped = usize::from(history.fault().is_some_and(|f| f.kind == FaultKind::BitFlip) && kind != FileKind::Log);
    let moments = states.moments(file, 0);
    let right = |i: usize, b: &u8| moments.iter().any(|m| m.get(i) == Some(b));
    let wrong = content.iter().enumerate().filter(|(i, b)| !right(*i, b)).count();
    if wrong > flipped {
        return Err(format!("has {wrong} bytes that were never written to it, of {}", content.len()));
    }
    Ok(())
}

/// What one place on the drive that went bad may cost, besides what stood in it: nothing. `causes` says what was being
/// written there; `touched` are the serial numbers of the files that have bytes in that place now.
pub fn verify_damaged(
    history: &History<Op>,
    states: &States,
    found: &Found,
    causes: Cause,
    touched: &BTreeSet<u64>,
) -> Result<(), String> {
    let nothing = verify(history, states, found, &BTreeSet::new());
    let Err(why) = nothing else { return Ok(()) };
    match causes {
        Cause::Label => Err(why),
        // Names may be lost with their records, and sizes; bytes that were promised are found by the headers of their zones.
        Cause::Journal | Cause::Checkpoint => every_byte_somewhere(history, states, found),
        _ => {
            let serials = |file: usize| {
                let paths = states.models.iter().flat_map(move |m| m.names.iter().filter(move |(_, f)| **f == file));
                paths.filter_map(|(path, _)| found.files.get(path)).map(|(serial, ..)| *serial)
            };
            let hit = |file: &usize| touched.is_empty() || serials(*file).any(|serial| touched.contains(&serial));
            let hit: BTreeSet<usize> = (0..states.bytes_from.len()).filter(hit).collect();
            // A zone that is gone costs all files that share it; a block, one file.
            let exempt: Vec<BTreeSet<usize>> = match history.fault().map(|fault| fault.kind) {
                Some(FaultKind::ZoneOffline) if !touched.is_empty() => vec![hit],
                _ => hit.into_iter().map(|file| [file].into()).collect(),
            };
            match exempt.iter().any(|exempt| verify(history, states, found, exempt).is_ok()) {
                true => Ok(()),
                false => Err(format!("{why}\n(touched: {touched:?})")),
            }
        }
    }
}

/// The bytes of every log and table that must be there are there, under whatever name. Not asked of tables that went on
/// growing after their last block was padded: only the journal knows where.
fn every_byte_somewhere(history: &History<Op>, states: &States, found: &Found) -> Result<(), String> {
    let Some(last) = states.models.last() else { return Ok(()) };
    for (path, file) in &last.names {
        let born = states.models.iter().position(|m| m.contents.len() > *file).unwrap_or(0);
        let created = history.entries().get(born.wrapping_sub(1)).map(|e| &e.op);
        let sequential = matches!(created, Some(Op::Create(p)) if p.contains(".log") || p.contains(".sst"));
        // Names that were changed after the last promise may be gone by right.
        let stable = states.models[states.names_from..].iter().all(|m| m.names.values().any(|f| f == file));
        if !sequential || !stable || states.goes_on(history, *file) {
            continue;
        }
        let moments = states.moments(*file, states.bytes_from[*file]);
        let least = moments.iter().map(|m| m.len()).min().unwrap_or(0);
        // Blocks that were overwritten stand in conventional space, which no header tells of.
        let moved: Vec<usize> = history
            .entries()
            .iter()
            .zip(&states.about)
            .filter(|(_, f)| **f == Some(*file))
            .filter_map(|(e, _)| if let Op::Overwrite(_, at, _) = e.op { Some(at as usize) } else { None })
            .collect();
        let asked: Vec<usize> = (0..least).filter(|i| !moved.iter().any(|at| i.abs_diff(*at) < 2 * 4096)).collect();
        if asked.is_empty() {
            continue;
        }
        let ever = states.moments(*file, 0);
        let holds = |content: &[u8]| {
            content.len() >= least && asked.iter().all(|&i| ever.iter().any(|m| m.get(i) == content.get(i)))
        };
        if !found.files.values().any(|(_, _, content)| content.as_ref().is_ok_and(|c| holds(c))) {
            return Err(format!("the {least} bytes of {path} are nowhere:\n{}", brief(found)));
        }
    }
    Ok(())
}
