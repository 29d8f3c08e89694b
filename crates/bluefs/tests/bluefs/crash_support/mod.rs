//! The file system as a subject of the crash explorer: scripts of operations, and what each crash may leave of them.
//! The rules are in `model.rs`.

pub mod model;

use imbrex_bluefs::{BUDGET, BlueFs, Code, CreateOptions, FileKind, Options, Reader, SyncInSteps, TENANT, Writer};
use imbrex_crashkit::{Config, Crash, FaultKind, History, Log, Plan, Subject};
use imbrex_device::Drive;
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use model::{Found, Model, Op, Path, brief, bytes};
use model::{ordered, states, verify, verify_damaged};

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
/// The same as a ZNS SSD: no conventional zones, a capacity below the size, few active zones.
pub fn zns() -> Config {
    Config {
        conventional: 0,
        zone_capacity: 192 << 10,
        max_open: Some(6),
        max_active: Some(6),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        ..config()
    }
}

pub fn config() -> Config {
    Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 8 << 20, conventional: 4, ..Config::tiny() }
}

pub fn plan(seed: u64, states: u64) -> Plan {
    Plan { max_states: states, cuts_per_write: 3, ..Plan::new(seed) }
}

pub fn format(drive: &Drive) -> Result<(), String> {
    let tenants = vec![TenantSpec { name: TENANT.into(), budget: BUDGET }];
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

/// What the workload has open.
#[derive(Default)]
struct Handles {
    writers: BTreeMap<String, Writer>,
    /// Readers of files that were unlinked while open.
    readers: BTreeMap<String, Reader>,
    /// What other threads sync.
    syncs: BTreeMap<u8, SyncInSteps>,
    /// What the files should be, for those readers.
    model: Model,
}

impl Handles {
    fn writer(&self, path: &str) -> &Writer {
        self.writers.get(path).unwrap_or_else(|| panic!("the script has {path} not open"))
    }

    /// A name has changed, and with a directory's name those of everything in it.
    fn rename(&mut self, from: &str, to: &str) {
        let inside = format!("{from}/");
        // The handle of a file that is replaced goes with its name.
        self.writers.remove(to);
        let moved: Vec<String> =
            self.writers.keys().filter(|path| *path == from || path.starts_with(&inside)).cloned().collect();
        for path in moved {
            if let Some(writer) = self.writers.remove(&path) {
                self.writers.insert(path.replacen(from, to, 1), writer);
            }
        }
    }
}

/// Does one operation.
fn perform(fs: &BlueFs, handles: &mut Handles, op: &Op) -> imbrex_bluefs::Result<()> {
    match op {
        Op::Mkdir(path) => fs.mkdir(path),
        Op::Rmdir(path) => fs.rmdir(path),
        Op::Create(path) => {
            let writer = fs.create(path, CreateOptions::default())?;
            handles.writers.insert((*path).into(), writer);
            Ok(())
        }
        Op::Append(path, n, seed) => handles.writer(path).append(&bytes(*n as usize, *seed)),
        Op::Sync(path) => handles.writer(path).sync(),
        Op::SyncStart(path, sync) => {
            let steps = handles.writer(path).sync_in_steps()?;
            handles.syncs.insert(*sync, steps);
            Ok(())
        }
        Op::SyncStep(sync) => handles.syncs.get_mut(sync).map_or(Ok(()), |steps| steps.step().map(drop)),
        Op::SyncEnd(sync) => {
            let Some(mut steps) = handles.syncs.remove(sync) else { return Ok(()) };
            while steps.step()? {}
            Ok(())
        }
        Op::SyncAll => fs.sync_all(),
        Op::Close(path) => {
            handles.readers.remove(*path);
            handles.writers.remove(*path).map_or(Ok(()), |mut writer| writer.close())
        }
        Op::Reopen(path) => {
            let writer = fs.reopen(path)?;
            handles.writers.insert((*path).into(), writer);
            Ok(())
        }
        Op::Link(from, to) => fs.link(from, to),
        Op::Rename(from, to) => {
            fs.rename(from, to)?;
            handles.rename(from, to);
            Ok(())
        }
        Op::Unlink(path) => {
            let gone = handles.writers.remove(*path);
            let result = fs.unlink(path);
            drop(gone);
            result
        }
        Op::UnlinkHeld(path, held) => {
            let reader = fs.open_read(path)?;
            fs.unlink(path)?;
            handles.readers.insert((*held).into(), reader);
            if let Some(writer) = handles.writers.remove(*path) {
                handles.writers.insert((*held).into(), writer);
            }
            Ok(())
        }
        Op::ReadHeld(held) => {
            let want = handles.model.held.get(*held).map(|file| &handles.model.contents[*file]);
            let (Some(reader), Some(want)) = (handles.readers.get(*held), want) else {
                panic!("the script has {held} not open")
            };
            let mut content = vec![0; want.len() + 1];
            let n = reader.read_at(0, &mut content)?;
            assert!(content[..n] == want[..], "{held} has {n} bytes, not the {} that were written", want.len());
            Ok(())
        }
        Op::Preallocate(path, n) => handles.writer(path).preallocate(u64::from(*n)),
        Op::SyncRandom(path) => {
            let mut file = fs.open_random(path, false)?;
            file.sync()?;
            file.close()
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
        Op::Pack => fs.pack().map(drop),
        Op::Remount => Ok(()),
        Op::Fill(path, seed) => loop {
            match handles.writer(path).append(&bytes(30_000, *seed)) {
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
        let mut handles = Handles::default();
        for op in (self.script)(seed) {
            let id = log.begun(op.clone());
            if op == Op::Remount {
                (handles.writers, handles.readers, handles.syncs) = Default::default();
                drop(fs);
                fs = self.mount(&drive)?;
            } else {
                perform(&fs, &mut handles, &op).map_err(|e| format!("{op:?}: {e}"))?;
            }
            handles.model.apply(&op);
            match op {
                Op::Sync(_) | Op::SyncEnd(_) | Op::SyncRandom(_) | Op::SyncDir | Op::SyncAll | Op::Remount => {
                    log.synced(id);
                }
                _ => log.acked(id),
            }
        }
        drop(handles);
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.mount(&drive).map(drop)
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        let fs = self.mount(&drive).map_err(|why| format!("{why}\nof {:?}", history.entries()))?;
        let report = fs.mount_report().clone();
        if history.fault().is_none() && !report.damage.is_empty() {
            return Err(format!("damage without a fault: {:?}", report.damage));
        }
        let found = walk(&fs)?;
        let states = states(history);
        let context = |why| {
            let places: Vec<_> = found.files.keys().map(|path| (path, fs.runs(path).unwrap_or_default())).collect();
            format!("{why}\nmount: {report:?}\nplaces: {places:?}\nof {:?}", history.entries())
        };
        if let Some(fault) = history.fault().filter(|f| FaultKind::DAMAGING.contains(&f.kind)) {
            let mut touched = touched(&fs, &found, &drive, (fault.at, fault.len))?;
            // Of a file that was cut because its end is gone nothing may be left there; then the mount has said so.
            if !touched.is_empty() {
                let told = |path: &str| report.damage.iter().any(|what| what.contains(&format!("{path} ")));
                touched.extend(found.files.iter().filter(|(path, _)| told(path)).map(|(_, (serial, ..))| *serial));
            }
            return verify_damaged(history, &states, &found, fault.cause, &touched).map_err(context);
        }
        verify(history, &states, &found, &BTreeSet::new()).map_err(context)?;
        if crash != Crash::Process {
            ordered(self.chain, &states, &found)?;
        }
        // A mount that does not know that power was lost says what is shorter than was recorded, and the check repeats that.
        let quiet = history.fault().is_some_and(|fault| fault.kind == FaultKind::QuietPowerLoss);
        let told: &[String] = if quiet { &report.damage } else { &[] };
        sound(&fs, history, told).map_err(|why| format!("after recovery: {why}\nmount: {report:?}"))?;
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
        sound(&fs, history, &[]).map_err(|why| format!("at the second mount: {why}"))?;
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

/// Serial numbers of the files that have bytes in the zone of the damage; of a conventional zone, in the damaged bytes.
fn touched(fs: &BlueFs, found: &Found, drive: &Drive, (at, len): (u64, u64)) -> Result<BTreeSet<u64>, String> {
    let zone = drive.device.geometry().zone_of(at).0;
    let mut touched = BTreeSet::new();
    for (path, (serial, ..)) in &found.files {
        for run in fs.runs(path).map_err(|e| e.to_string())? {
            let hit = match run.zone {
                Some(here) => here == zone,
                None => run.address < at + len && at < run.address.saturating_add(run.len.next_multiple_of(4096)),
            };
            if hit {
                touched.insert(*serial);
            }
        }
    }
    Ok(touched)
}

/// The file system's own check finds nothing wrong but what the mount has `told`.
fn sound(fs: &BlueFs, history: &History<Op>, told: &[String]) -> Result<(), String> {
    let report = fs.check(|_, _| {}).map_err(|e| format!("the check fails: {e}"))?;
    match report.problems.iter().all(|problem| told.contains(problem)) {
        true => Ok(()),
        false => Err(format!("the check finds {:?}\nof {:?}", report.problems, history.entries())),
    }
}
