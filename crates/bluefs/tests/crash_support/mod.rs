//! The file system as a subject of the crash explorer: scripts of operations, and what each crash may leave of them.
//!
//! The rule for names: the journal is one ordered log, so what is there after a crash is what *some* prefix of the operations
//! made, one that reaches at least to the last operation that was promised. The rule for bytes: a file's content is a prefix
//! of what it was at some moment since its last promise, and not shorter than at any of those moments; where bytes were
//! overwritten in place, each is one that it was at some of those moments.

#![allow(dead_code, reason = "each test file uses its own share")]

use imbrex_bluefs::{BlueFs, Code, CreateOptions, FileKind, Options, RESERVE, TENANT, Writer};
use imbrex_crashkit::{Config, Crash, FaultKind, History, Log, Plan, Status, Subject};
use imbrex_device::Drive;
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    Truncate(Path, u32),
    Overwrite(Path, u32, u8),
    SyncDir,
    /// Background work: one step.
    Step,
    /// Unmount and mount again.
    Remount,
    /// Appends until the drive is full; the file is deleted next.
    Fill(Path, u8),
}

pub fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n as u32).map(|i| (i + 1).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed.wrapping_mul(37)).collect()
}

/// Names and contents: what the file system should be.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub dirs: BTreeSet<String>,
    /// Path to number of the file.
    pub names: BTreeMap<String, usize>,
    pub contents: Vec<Vec<u8>>,
}

impl Model {
    /// Applies an operation that is legal; returns the file whose bytes it is about.
    pub fn apply(&mut self, op: &Op) -> Option<usize> {
        let of = |model: &Model, path: &str| model.names.get(path).copied();
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
            Op::Sync(path) | Op::Close(path) | Op::Reopen(path) => return of(self, path),
            Op::Link(from, to) => {
                let file = of(self, from)?;
                self.names.insert((*to).into(), file);
                return Some(file);
            }
            Op::Unlink(path) => return self.names.remove(*path),
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
            Op::SyncDir | Op::Step | Op::Remount => {}
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

pub fn read(fs: &BlueFs, path: &str) -> Result<Vec<u8>, String> {
    let reader = fs.open_read(path).map_err(|e| e.to_string())?;
    let mut out = vec![0; reader.size() as usize];
    let n = reader.read_at(0, &mut out).map_err(|e| e.to_string())?;
    if n != out.len() {
        return Err(format!("{path} has {} bytes by its size, but {n} could be read", out.len()));
    }
    Ok(out)
}

pub fn walk(fs: &BlueFs) -> Result<Found, String> {
    let mut found = Found::default();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        let path = if dir.is_empty() { "/" } else { &dir };
        for entry in fs.list(path).map_err(|e| e.to_string())? {
            let path = format!("{dir}/{}", entry.name);
            if entry.attributes.kind == FileKind::Directory {
                found.dirs.insert(path.clone());
                todo.push(path);
            } else {
                let content = read(fs, &path);
                found.files.insert(path, (entry.attributes.serial, entry.attributes.kind, content));
            }
        }
    }
    Ok(found)
}

/// Times that do not depend on the clock on the wall.
pub fn options(journal_bytes: u64) -> Options {
    let clock = AtomicU64::new(1);
    Options {
        cache_bytes: 0,
        journal_bytes,
        segment_bytes: 64 << 10,
        volume: VolumeOptions {
            exec: Exec::Inline,
            survivor_bytes: 512 << 10,
            unit_bytes: 16 << 10,
            turn_bytes: 1 << 20,
        },
        clock: Arc::new(move || clock.fetch_add(1, Ordering::Relaxed)),
        ..Options::default()
    }
}

/// 32 zones of 256 KiB, four of them conventional.
pub fn config() -> Config {
    Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 8 << 20, conventional: 4, ..Config::tiny() }
}

pub fn plan(seed: u64, states: u64) -> Plan {
    Plan { max_states: states, cuts_per_write: 3, ..Plan::new(seed) }
}

pub fn format(drive: &Drive) -> Result<(), String> {
    let tenants = vec![TenantSpec { name: TENANT.into(), reserve: RESERVE }];
    let options = FormatOptions { uuid: Some(*b"bluefs-crash-tst"), tenants, force: false };
    Volume::format(drive, &options).map_err(|e| e.to_string())
}

/// A script on a file system.
pub struct Scripted {
    pub script: fn(u64) -> Vec<Op>,
    pub journal_bytes: u64,
    /// Write-ahead logs in order: nothing of a later one may be there without all of the ones before it.
    pub chain: &'static [Path],
}

impl Scripted {
    pub fn new(script: fn(u64) -> Vec<Op>) -> Arc<Scripted> {
        Arc::new(Scripted { script, journal_bytes: 64 << 10, chain: &[] })
    }

    fn mount(&self, drive: &Drive) -> Result<BlueFs, String> {
        BlueFs::mount(drive.clone(), options(self.journal_bytes)).map_err(|e| format!("mount: {e}"))
    }
}

type Handles = BTreeMap<String, Writer>;

fn handle<'a>(handles: &'a Handles, path: &str) -> &'a Writer {
    handles.get(path).unwrap_or_else(|| panic!("the script has {path} not open"))
}

/// Does one operation.
fn perform(fs: &BlueFs, handles: &mut Handles, op: &Op) -> imbrex_bluefs::Result<()> {
    match op {
        Op::Mkdir(path) => fs.mkdir(path),
        Op::Rmdir(path) => fs.rmdir(path),
        Op::Create(path) => {
            let writer = fs.create(path, CreateOptions::default())?;
            handles.insert((*path).into(), writer);
            Ok(())
        }
        Op::Append(path, n, seed) => handle(handles, path).append(&bytes(*n as usize, *seed)),
        Op::Sync(path) => handle(handles, path).sync(),
        Op::Close(path) => handles.remove(*path).map_or(Ok(()), |mut writer| writer.close()),
        Op::Reopen(path) => {
            let writer = fs.reopen(path)?;
            handles.insert((*path).into(), writer);
            Ok(())
        }
        Op::Link(from, to) => fs.link(from, to),
        Op::Rename(from, to) => {
            fs.rename(from, to)?;
            if let Some(writer) = handles.remove(*from) {
                handles.insert((*to).into(), writer);
            }
            Ok(())
        }
        Op::Unlink(path) => {
            let gone = handles.remove(*path);
            let result = fs.unlink(path);
            drop(gone);
            result
        }
        Op::Truncate(path, n) => fs.truncate(path, u64::from(*n)),
        Op::Overwrite(path, at, seed) => {
            let mut file = fs.open_random(path, false)?;
            file.write_at(u64::from(*at), &[*seed; 8])?;
            file.sync()?;
            file.close()
        }
        Op::SyncDir => fs.sync_dir("/"),
        Op::Step => fs.step().map(drop),
        Op::Remount => Ok(()),
        Op::Fill(path, seed) => loop {
            match handle(handles, path).append(&bytes(30_000, *seed)) {
                Ok(()) => {}
                Err(why) if why.code() == Code::NoSpace => return Ok(()),
                Err(why) => return Err(why),
            }
        },
    }
}

impl Subject for Scripted {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        format(drive)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let mut fs = self.mount(&drive)?;
        let mut handles = Handles::new();
        for op in (self.script)(seed) {
            let id = log.begun(op.clone());
            if op == Op::Remount {
                handles.clear();
                drop(fs);
                fs = self.mount(&drive)?;
            } else {
                perform(&fs, &mut handles, &op).map_err(|e| format!("{op:?}: {e}"))?;
            }
            match op {
                Op::Sync(_) | Op::SyncDir | Op::Remount => log.synced(id),
                _ => log.acked(id),
            }
        }
        handles.clear();
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.mount(&drive).map(drop)
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        let damaging = history.fault().is_some_and(|f| FaultKind::DAMAGING.contains(&f.kind));
        let fs = match self.mount(&drive) {
            Err(_) if damaging => return Ok(()),
            other => other?,
        };
        let report = fs.mount_report().clone();
        if history.fault().is_none() && !report.damage.is_empty() {
            return Err(format!("damage without a fault: {:?}", report.damage));
        }
        let found = walk(&fs)?;
        if damaging {
            return no_wrong_bytes(history, &found);
        }
        let states = states(history);
        verify(history, &states, &found).map_err(|why| format!("{why}\nmount: {report:?}"))?;
        if crash != Crash::Process {
            ordered(self.chain, &states, &found)?;
        }
        sound(&fs, history).map_err(|why| format!("after recovery: {why}\nmount: {report:?}"))?;
        // It goes on working, and what was found stays.
        let mut more = fs.create("/after.log", CreateOptions::default()).map_err(|e| e.to_string())?;
        let writing = more.append(&bytes(5000, 99)).and_then(|()| more.sync()).and_then(|()| more.close());
        let full = match writing {
            Err(why) if why.code() == Code::NoSpace => true,
            other => other.map(|()| false).map_err(|e| format!("writing after the crash: {e}"))?,
        };
        drop((more, fs));
        let fs = self.mount(&drive)?;
        let second = fs.mount_report();
        if !full && (!second.clean || !second.damage.is_empty() || second.replayed_bytes > 0) {
            return Err(format!("the mount after a clean unmount still repairs: {second:?}"));
        }
        sound(&fs, history).map_err(|why| format!("at the second mount: {why}"))?;
        let mut again = walk(&fs)?;
        match again.files.remove("/after.log") {
            Some((_, _, Ok(content))) if full || content == bytes(5000, 99) => {}
            other => {
                return Err(format!("what was written after the crash is {:?}", other.map(|f| f.2.map(|b| b.len()))));
            }
        }
        if again != found {
            return Err(format!("a clean remount changed something:\n{}\nwas\n{}", brief(&again), brief(&found)));
        }
        Ok(())
    }
}

/// The file system's own check finds nothing wrong.
fn sound(fs: &BlueFs, history: &History<Op>) -> Result<(), String> {
    let report = fs.check(|_, _| {}).map_err(|e| format!("the check fails: {e}"))?;
    match report.problems.is_empty() {
        true => Ok(()),
        false => Err(format!("the check finds {:?}\nof {:?}", report.problems, history.entries())),
    }
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

struct States {
    /// Before each operation, and after the last.
    models: Vec<Model>,
    /// Names are those of a model from here on.
    names_from: usize,
    /// Bytes of each file are those of a model from here on.
    bytes_from: Vec<usize>,
}

fn states(history: &History<Op>) -> States {
    let mut model = Model::default();
    let mut models = vec![model.clone()];
    let (mut names_from, mut named_at, mut bytes_from) = (0, BTreeMap::new(), Vec::new());
    let everything = history.floor() == Status::Acked;
    for (i, entry) in history.entries().iter().enumerate() {
        let file = model.apply(&entry.op);
        models.push(model.clone());
        bytes_from.resize(model.contents.len(), i + 1);
        if matches!(entry.op, Op::Create(_) | Op::Rename(..) | Op::Link(..))
            && let Some(file) = file
        {
            named_at.insert(file, i + 1);
        }
        if !history.is_must(entry) {
            continue;
        }
        match (&entry.op, file) {
            (Op::SyncDir, _) => names_from = i + 1,
            (Op::Sync(_) | Op::Overwrite(..), Some(file)) => {
                bytes_from[file] = i + 1;
                names_from = names_from.max(named_at.get(&file).copied().unwrap_or(0));
            }
            (Op::Remount, _) => {
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
    States { models, names_from, bytes_from }
}

fn verify(history: &History<Op>, states: &States, found: &Found) -> Result<(), String> {
    let mut why = format!(
        "names are those of no moment from operation {} on:\n{}\nof {:?}",
        states.names_from,
        brief(found),
        history.entries()
    );
    for (k, model) in states.models.iter().enumerate().skip(states.names_from) {
        if !same_names(model, found) {
            continue;
        }
        match contents(history, states, model, found) {
            Ok(()) => return Ok(()),
            Err(wrong) => why = format!("(names of moment {k}) {wrong}\nof {:?}", history.entries()),
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

fn contents(history: &History<Op>, states: &States, model: &Model, found: &Found) -> Result<(), String> {
    for (path, file) in &model.names {
        let (_, kind, content) = &found.files[path];
        let content = content.as_ref().map_err(|why| format!("{path} cannot be read: {why}"))?;
        let from = states.bytes_from[*file];
        let moments: Vec<&[u8]> =
            states.models[from..].iter().filter_map(|m| m.contents.get(*file)).map(Vec::as_slice).collect();
        // What is written while the drive fills up is deleted next; it only has to be what was written.
        if history.entries().iter().any(|e| matches!(e.op, Op::Fill(p, _) if p == path)) {
            continue;
        }
        let overwritten = history.entries()[from.saturating_sub(1)..].iter().any(|e| matches!(e.op, Op::Overwrite(..)));
        if !allowed(content, &moments, overwritten) {
            let wrong = moments.first().map(|m| m.iter().zip(content).position(|(a, b)| a != b));
            return Err(format!(
                "{path} ({kind:?}) has {} bytes; from moment {from} on it had {:?}; first difference at {wrong:?}",
                content.len(),
                moments.iter().map(|m| m.len()).collect::<Vec<_>>()
            ));
        }
    }
    Ok(())
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
fn ordered(chain: &[Path], states: &States, found: &Found) -> Result<(), String> {
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

/// After damage: what is read of a log is what was written, or an error.
fn no_wrong_bytes(history: &History<Op>, found: &Found) -> Result<(), String> {
    let states = states(history);
    for (path, (_, kind, content)) in &found.files {
        let (Ok(content), FileKind::Log) = (content, kind) else { continue };
        let mut any = false;
        let mut known = false;
        for model in &states.models {
            if let Some(file) = model.names.get(path) {
                known = true;
                any |= states.models.iter().any(|m| m.contents.get(*file).is_some_and(|c| c.starts_with(content)));
            }
        }
        if known && !any {
            return Err(format!("{path} has bytes that were never written to it ({} bytes)", content.len()));
        }
    }
    Ok(())
}
