//! The crash explorer with three engines on one drive: a file system, a chunk store and a [third one](notes) of one process write, sync, delete and
//! clean in turn. After each crash each of them finds what it had been promised, whoever is opened first and whether the others are opened at all; and
//! what fails for one, or finds the drive full, takes nothing from the others. A [key-value store](pairs) does so beside files, beside chunks, and beside both,
//! and so does an [object store](objects).
//!
//! `IMBREX_BOTH_STATES` says how many states it looks at (320: a sixth of that of each script on each drive, as many with pairs, and as many with objects),
//! `IMBREX_CRASH_ROUNDS` of how many seeds.

mod notes;
mod objects;
mod pairs;

use imbrex_bluefs::{BlueFs, Code, CreateOptions, Writer};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, StreamType};
use imbrex_crashkit::{Config, Crash, FaultKind, FaultPlan, History, Log, Plan, Subject, explore, fault_sweep, seeds};
use imbrex_device::{AlignedBuf, Cause, Drive, Geometry, report_all};
use imbrex_emulator::Emulator;
use imbrex_kv::Kv;
use imbrex_store::Store;
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions, ZoneHeader};
use notes::Notes;
use objects::{Objects, Step, Wait};
use pairs::{Act, Pairs};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use Durability::{Buffered, Durable};
use Op::*;

/// A file or a chunk, by number, or the notes. Numbers of files are given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    File(u32),
    Chunk(u32),
    Notes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Create(u32),
    Write(u32, u32),
    SyncFile(u32),
    Close(u32),
    Unlink(u32),
    SyncNames,
    /// Live bytes of tables move together, as at rest.
    Pack,
    /// A step of what the file system does in the background.
    FileStep,
    Make(u32, Durability),
    Put(u32, u32, Durability),
    Delete(u32, Durability),
    SyncChunks,
    Clean,
    Checkpoint,
    /// A step of what the chunk store does in the background.
    ChunkStep,
    /// So many blocks.
    Note(u32),
    SyncNotes,
    TrimNotes,
    Pairs(Act),
    Objects(Step),
    /// The process ends in order, and the next one begins.
    Restart,
    /// The next one does without this engine.
    Without(Engine),
    /// That engine is opened, while the others have been at work.
    Join(Engine),
    /// The operation of this number was refused, and its thing has so many bytes now, if it is there. One of pairs was carried out even so, or has nothing here.
    Refused(u64, Option<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Engine {
    Files,
    Chunks,
    Notes,
    Pairs,
    Objects,
}

impl Op {
    fn thing(self) -> Option<Thing> {
        match self {
            Create(n) | Write(n, _) | SyncFile(n) | Close(n) | Unlink(n) => Some(Thing::File(n)),
            Make(n, _) | Put(n, ..) | Delete(n, _) => Some(Thing::Chunk(n)),
            Note(_) => Some(Thing::Notes),
            _ => None,
        }
    }

    fn engine(self) -> Engine {
        match self {
            Create(_) | Write(..) | SyncFile(_) | Close(_) | Unlink(_) | SyncNames | Pack | FileStep => Engine::Files,
            Note(_) | SyncNotes | TrimNotes => Engine::Notes,
            Op::Pairs(_) => Engine::Pairs,
            Op::Objects(_) => Engine::Objects,
            _ => Engine::Chunks,
        }
    }

    /// It is the processes', and no engine's.
    fn of_processes(self) -> bool {
        matches!(self, Restart | Without(_) | Join(_) | Refused(..))
    }
}

type Content = Option<Vec<u8>>;

/// What each thing may be: one of these, from that number on.
type Expected = BTreeMap<Thing, (Vec<Content>, usize)>;

/// Bytes that tell whose they are, and where they stand there.
fn bytes(thing: Thing, from: usize, n: u32) -> Vec<u8> {
    let seed = match thing {
        Thing::File(n) => u64::from(n) << 1,
        Thing::Chunk(n) => u64::from(n) << 1 | 1,
        // Only their number: each block tells its own.
        Thing::Notes => return vec![0; n as usize],
    };
    let byte = |at: usize| {
        let mixed = (seed << 32 ^ (at as u64 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32 ^ mixed >> 51) as u8
    };
    (from..from + n as usize).map(byte).collect()
}

fn expected(history: &History<Op>) -> Expected {
    let refused: BTreeMap<u64, Option<u32>> = history
        .entries()
        .iter()
        .filter_map(|e| if let Refused(n, len) = e.op { Some((n, len)) } else { None })
        .collect();
    let mut expected = Expected::new();
    for (number, entry) in (0..).zip(history.entries()) {
        let Some(thing) = entry.op.thing() else { continue };
        let nothing = (thing == Thing::Notes).then(Vec::new);
        let (states, must) = expected.entry(thing).or_insert_with(|| (vec![nothing], 0));
        let mut content = states.last().cloned().flatten();
        match entry.op {
            _ if refused.contains_key(&number) => {
                content = refused[&number].map(|len| bytes(thing, 0, len));
            }
            Create(_) | Make(..) => content = Some(Vec::new()),
            Note(n) => content.get_or_insert_default().extend(bytes(thing, 0, n)),
            Write(_, n) | Put(_, n, _) => {
                if let Some(all) = &mut content {
                    all.extend(bytes(thing, all.len(), n));
                }
            }
            Unlink(_) | Delete(..) => content = None,
            _ => {}
        }
        states.push(content);
        if history.is_must(entry) {
            *must = states.len() - 1;
        }
    }
    expected
}

/// Whether a thing may be that. A file, or the notes, may end inside a write that had not been promised; a chunk has whole appends.
fn may_be(thing: Thing, found: Option<&Vec<u8>>, states: &[Content]) -> bool {
    let Some(found) = found else { return states.contains(&None) };
    let least = states.iter().flatten().map(Vec::len).min().unwrap_or(0);
    states.iter().flatten().any(|state| match thing {
        Thing::Chunk(_) => found == state,
        Thing::File(_) | Thing::Notes => found.len() >= least && state.starts_with(found),
    })
}

fn volume_options() -> VolumeOptions {
    VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, unit_bytes: 16 << 10, turn_bytes: 1 << 20 }
}

fn clock() -> Arc<dyn Fn() -> u64 + Send + Sync> {
    let clock = AtomicU64::new(1);
    Arc::new(move || clock.fetch_add(1, Ordering::Relaxed))
}

fn mount(drive: &Drive) -> Result<BlueFs, String> {
    let options = imbrex_bluefs::Options {
        cache_bytes: 0,
        journal_bytes: 64 << 10,
        segment_bytes: 64 << 10,
        volume: volume_options(),
        clock: clock(),
        ..imbrex_bluefs::Options::default()
    };
    BlueFs::mount(drive.clone(), options).map_err(|e| format!("mount: {e}"))
}

fn chunk_options() -> imbrex_chunkstore::Options {
    imbrex_chunkstore::Options {
        volume: volume_options(),
        buffer_bytes: 100 << 10,
        segment_bytes: 16 << 10,
        checkpoint_bytes: 200 << 10,
        tell_bytes: 70 << 10,
        clock: clock(),
        ..imbrex_chunkstore::Options::default()
    }
}

/// A process that has some of them, or all.
struct Engines {
    notes: Option<Notes>,
    pairs: Option<Pairs>,
    objects: Option<Objects>,
    writers: BTreeMap<u32, Writer>,
    store: Option<ChunkStore>,
    fs: Option<BlueFs>,
    volume: Volume,
}

/// Sentences of damage.
#[derive(Debug, Default, PartialEq)]
struct Told {
    files: Vec<String>,
    chunks: Vec<String>,
    pairs: Vec<String>,
    objects: Vec<String>,
}

/// What was found in each.
#[derive(PartialEq)]
struct Found {
    things: BTreeMap<Thing, Vec<u8>>,
    pairs: pairs::Model,
    objects: objects::Model,
}

/// What came of an operation.
enum Came {
    Done,
    Full,
    Failed(String),
}

impl From<imbrex_device::Result<()>> for Came {
    fn from(result: imbrex_device::Result<()>) -> Came {
        match result {
            Ok(()) => Came::Done,
            Err(error) if error.code() == Code::NoSpace => Came::Full,
            Err(error) => Came::Failed(error.to_string()),
        }
    }
}

impl From<imbrex_chunkstore::Result<()>> for Came {
    fn from(result: imbrex_chunkstore::Result<()>) -> Came {
        match result {
            Ok(()) => Came::Done,
            // A chunk has its own limit, too.
            Err(error) if error.is_no_space() || matches!(error, imbrex_chunkstore::Error::Limit { .. }) => Came::Full,
            Err(error) => Came::Failed(error.to_string()),
        }
    }
}

fn path(n: u32) -> String {
    format!("/{n:06}.{}", if n.is_multiple_of(2) { "log" } else { "sst" })
}

fn id(n: u32) -> ChunkId {
    ChunkId::of_number(n.into())
}

impl Engines {
    /// In this order; but files are what opens the drive, where they are among them.
    fn open(drive: &Drive, engines: &[Engine]) -> Result<Engines, String> {
        let fs = if engines.contains(&Engine::Files) { Some(mount(drive)?) } else { None };
        let volume = match &fs {
            Some(fs) => fs.volume().clone(),
            None => Volume::open(drive.clone(), volume_options()).map_err(|e| format!("the volume: {e}"))?,
        };
        let mut opened =
            Engines { notes: None, pairs: None, objects: None, writers: BTreeMap::new(), store: None, fs, volume };
        engines.iter().filter(|engine| **engine != Engine::Files).try_for_each(|engine| opened.join(*engine))?;
        Ok(opened)
    }

    fn join(&mut self, engine: Engine) -> Result<(), String> {
        match engine {
            Engine::Files => return Err("files come first".into()),
            Engine::Chunks => {
                let tenant = self.volume.tenant(imbrex_chunkstore::TENANT).map_err(|e| e.to_string())?;
                let store = ChunkStore::open_tenant(tenant, chunk_options()).map_err(|e| format!("open: {e}"))?;
                self.store = Some(store);
            }
            Engine::Notes => self.notes = Some(Notes::open(&self.volume).map_err(|e| format!("notes: {e}"))?),
            Engine::Pairs => self.pairs = Some(Pairs::open(&self.volume).map_err(|e| format!("pairs: {e}"))?),
            Engine::Objects => {
                self.objects = Some(Objects::open(&self.volume).map_err(|e| format!("objects: {e}"))?);
            }
        }
        Ok(())
    }

    fn has(&self, engine: Engine) -> bool {
        match engine {
            Engine::Files => self.fs.is_some(),
            Engine::Chunks => self.store.is_some(),
            Engine::Notes => self.notes.is_some(),
            Engine::Pairs => self.pairs.is_some(),
            Engine::Objects => self.objects.is_some(),
        }
    }

    /// What the openings have told of damage.
    fn told(&self) -> Told {
        Told {
            files: self.fs.as_ref().map(|fs| fs.mount_report().damage.clone()).unwrap_or_default(),
            chunks: self.store.as_ref().map(|store| store.open_report().damage.clone()).unwrap_or_default(),
            pairs: self.pairs.as_ref().map(Pairs::damage).unwrap_or_default(),
            objects: self.objects.as_ref().map(Objects::damage).unwrap_or_default(),
        }
    }

    /// Bytes of a thing; `None`: it is not there.
    fn len(&self, thing: Thing) -> Option<u64> {
        match thing {
            Thing::File(n) => self.fs.as_ref()?.stat(&path(n)).ok().map(|file| file.size),
            Thing::Chunk(n) => self.store.as_ref()?.stat(id(n)).ok().map(|chunk| chunk.len.into()),
            Thing::Notes => self.notes.as_ref().map(Notes::count),
        }
    }

    /// The same, which says what it makes of what is there.
    fn planned(&mut self, op: Op) -> Result<Op, String> {
        match (op, &mut self.objects) {
            (Op::Objects(step), Some(objects)) => objects.planned(step).map(Op::Objects),
            _ => Ok(op),
        }
    }

    fn perform(&mut self, op: Op) -> Came {
        if let (Op::Objects(step), Some(objects)) = (op, &mut self.objects) {
            return objects.perform(step);
        }
        match (op.engine(), &self.fs, &self.store, &mut self.notes, &mut self.pairs) {
            _ if op.of_processes() => Came::Done,
            (Engine::Files, Some(_), ..) => self.perform_on_files(op),
            (Engine::Chunks, _, Some(store), ..) => self.perform_on_chunks(store, op),
            (Engine::Notes, _, _, Some(notes), _) => match op {
                Note(n) => (0..n).try_for_each(|_| notes.append()).into(),
                SyncNotes => notes.sync().into(),
                _ => notes.trim().into(),
            },
            (.., Some(pairs)) if let Op::Pairs(act) = op => pairs.perform(act).into(),
            _ => Came::Failed("it is not open".into()),
        }
    }

    fn perform_on_files(&mut self, op: Op) -> Came {
        let Some(fs) = &self.fs else { return Came::Full };
        match op {
            Create(n) => match fs.create(&path(n), CreateOptions::default()) {
                Ok(writer) => {
                    self.writers.insert(n, writer);
                    Came::Done
                }
                Err(error) => Err(error).into(),
            },
            // Files of which making was refused.
            Write(n, _) | SyncFile(n) | Close(n) if !self.writers.contains_key(&n) => Came::Full,
            Write(n, len) => {
                let from = self.len(Thing::File(n)).unwrap_or(0);
                self.writers[&n].append(&bytes(Thing::File(n), from as usize, len)).into()
            }
            SyncFile(n) => self.writers[&n].sync().into(),
            Close(n) => self.writers.remove(&n).map_or(Ok(()), |mut writer| writer.close()).into(),
            Unlink(n) => {
                self.writers.remove(&n);
                match fs.unlink(&path(n)) {
                    Err(error) if error.code() == Code::NotFound => Came::Full,
                    other => other.into(),
                }
            }
            SyncNames => fs.sync_dir("/").into(),
            Pack => fs.pack().map(drop).into(),
            FileStep => fs.step().map(drop).into(),
            _ => Came::Done,
        }
    }

    fn perform_on_chunks(&self, store: &ChunkStore, op: Op) -> Came {
        match op {
            Make(n, how) => store.create_with(id(n), StreamType::DATA, how).into(),
            Put(n, ..) | Delete(n, _) if store.stat(id(n)).is_err() => Came::Full,
            Put(n, len, durability) => {
                let from = self.len(Thing::Chunk(n)).unwrap_or(0);
                let how = Append { offset: None, durability };
                store.append_with(id(n), &bytes(Thing::Chunk(n), from as usize, len), how).map(drop).into()
            }
            Delete(n, how) => store.delete_with(id(n), how).into(),
            SyncChunks => store.sync().into(),
            Clean => store.clean(100 << 10).map(drop).into(),
            Checkpoint => store.checkpoint().into(),
            ChunkStep => store.step().map(drop).into(),
            _ => Came::Done,
        }
    }

    fn found(&self) -> Result<Found, String> {
        let mut all = BTreeMap::new();
        if let Some(fs) = &self.fs {
            for entry in fs.list("/").map_err(|e| e.to_string())? {
                let reader = fs.open_read(&format!("/{}", entry.name)).map_err(|e| e.to_string())?;
                let mut out = vec![0; reader.size() as usize];
                let n = reader.read_at(0, &mut out).map_err(|e| format!("{}: {e}", entry.name))?;
                let number = entry.name.split('.').next().and_then(|n| n.parse().ok());
                let number = number.filter(|_| n == out.len()).ok_or_else(|| format!("{n} bytes of {entry:?}"))?;
                all.insert(Thing::File(number), out);
            }
        }
        for (store, info) in
            self.store.iter().flat_map(|store| store.list(None, usize::MAX).into_iter().map(move |i| (store, i)))
        {
            let mut out = vec![0; info.len as usize];
            let n = store.read(info.id, 0, &mut out).map_err(|e| e.to_string())?;
            let number = (0..1000).find(|n| id(*n) == info.id).filter(|_| n == out.len());
            all.insert(Thing::Chunk(number.ok_or_else(|| format!("{n} bytes of {info:?}"))?), out);
        }
        if let Some(notes) = &self.notes {
            all.insert(Thing::Notes, bytes(Thing::Notes, 0, notes.count() as u32));
        }
        let pairs = self.pairs.as_ref().map_or(Ok(pairs::Model::new()), Pairs::found)?;
        let objects = self.objects.as_ref().map_or(Ok(objects::Model::default()), Objects::found)?;
        Ok(Found { things: all, pairs, objects })
    }

    /// Each engine's own check finds nothing wrong but what the mount has `told`.
    fn sound(&self, told: &[String]) -> Result<(), String> {
        self.notes.as_ref().map_or(Ok(()), Notes::check)?;
        self.pairs.as_ref().map_or(Ok(()), Pairs::check)?;
        self.objects.as_ref().map_or(Ok(()), Objects::check)?;
        let (mut files, mut chunks) = (Vec::new(), Vec::new());
        if let Some(fs) = &self.fs {
            files = fs.check(|_, _| {}).map_err(|e| e.to_string())?.problems;
        }
        if let Some(store) = &self.store {
            chunks = store.check(|_, _| {}).map_err(|e| e.to_string())?.problems;
        }
        files.retain(|problem| !told.contains(problem));
        match files.is_empty() && chunks.is_empty() {
            true => Ok(()),
            false => Err(format!("the checks find {files:?} and {chunks:?}")),
        }
    }

    fn end(self) -> Result<(), String> {
        let Engines { notes, pairs, objects, writers, store, fs, volume } = self;
        if let Some(notes) = notes {
            notes.sync().map_err(|e| format!("the notes' last sync: {e}"))?;
        }
        drop((pairs, objects, writers));
        if let Some(store) = store {
            store.close().map_err(|e| format!("closing: {e}"))?;
        }
        drop((fs, volume));
        Ok(())
    }
}

/// What is written down as promised.
#[derive(Default)]
struct Promises {
    /// Operations that are done and not durable.
    waiting: Vec<(u64, Op)>,
}

impl Promises {
    fn done(&mut self, log: &Log<Op>, number: u64, op: Op) {
        if matches!(
            op,
            Pack | FileStep
                | Clean
                | ChunkStep
                | TrimNotes
                | Op::Pairs(Act::Flush | Act::Compact | Act::Step)
                | Op::Objects(Step::Clean(_))
        ) {
            // They promise nothing.
            return;
        }
        self.waiting.push((number, op));
        if let Op::Objects(step) = op
            && step.keeps()
        {
            // All that was queued before it outlives the process, too.
            let before = self.waiting.iter().filter(|(_, other)| other.engine() == Engine::Objects);
            before.for_each(|(number, _)| log.acked(*number));
        } else if !matches!(op.engine(), Engine::Chunks | Engine::Objects) {
            log.acked(number);
        }
        let covered = |other: Op| match op {
            SyncFile(_) => other.thing() == op.thing(),
            SyncNames => matches!(other, Create(_) | Unlink(_) | SyncNames),
            // Whatever else it takes along, it takes along what was done to the same chunk.
            Make(_, Durable) | Put(_, _, Durable) | Delete(_, Durable) => other.thing() == op.thing(),
            SyncChunks | Checkpoint => other.engine() == Engine::Chunks,
            SyncNotes => other.engine() == Engine::Notes,
            Op::Pairs(act) => act.syncs() && other.engine() == Engine::Pairs,
            Op::Objects(step) => step.syncs() && other.engine() == Engine::Objects,
            _ => false,
        };
        let syncs = matches!(op, SyncFile(_) | SyncNames | SyncChunks | SyncNotes | Op::Pairs(Act::Sync))
            || matches!(op, Op::Objects(step) if !step.changes());
        if syncs && !self.waiting.iter().any(|(before, other)| *before != number && covered(*other)) {
            // Of nothing.
            self.waiting.pop();
            return;
        }
        let (durable, still) = self.waiting.drain(..).partition(|(_, other)| covered(*other));
        self.waiting = still;
        let durable: Vec<(u64, Op)> = durable;
        durable.into_iter().for_each(|(number, _)| log.synced(number));
    }
}

/// A script on some engines, which are opened in this order, or in another one.
struct Scripted {
    script: fn(u64) -> Vec<Op>,
    engines: &'static [Engine],
}

const THREE: &[Engine] = &[Engine::Files, Engine::Chunks, Engine::Notes];
const WITH_PAIRS: [&[Engine]; 3] = [
    &[Engine::Files, Engine::Pairs],
    &[Engine::Chunks, Engine::Pairs],
    &[Engine::Files, Engine::Chunks, Engine::Pairs],
];
const WITH_OBJECTS: [&[Engine]; 3] = [
    &[Engine::Files, Engine::Objects],
    &[Engine::Chunks, Engine::Objects],
    &[Engine::Files, Engine::Chunks, Engine::Objects],
];

impl Scripted {
    /// In an order that this number tells.
    fn open(&self, drive: &Drive, number: usize) -> Result<Engines, String> {
        let mut engines = self.engines.to_vec();
        engines.rotate_left(number % self.engines.len());
        Engines::open(drive, &engines)
    }
}

/// What the label says for an engine.
fn tenants(engine: Engine, geometry: &Geometry) -> Vec<TenantSpec> {
    let one = |name: &str, budget| vec![TenantSpec { name: name.into(), budget }];
    match engine {
        Engine::Files => one(imbrex_bluefs::TENANT, imbrex_bluefs::BUDGET),
        Engine::Chunks => one(imbrex_chunkstore::TENANT, imbrex_chunkstore::budget(geometry.zones)),
        Engine::Notes => one(notes::NAME, notes::BUDGET),
        Engine::Pairs => one(pairs::NAME, pairs::BUDGET),
        Engine::Objects => Store::tenants(geometry),
    }
}

impl Subject for Scripted {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        let tenants = self.engines.iter().flat_map(|engine| tenants(*engine, drive.device.geometry())).collect();
        let options = FormatOptions { uuid: Some(*b"many-engine-test"), tenants, force: false };
        Volume::format(drive, &options).map_err(|e| e.to_string())?;
        let opened = self.open(drive, 0)?;
        opened.objects.as_ref().map_or(Ok(()), Objects::begin).map_err(|e| e.to_string())?;
        opened.end()
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let mut both = self.open(&drive, 0)?;
        let mut promises = Promises::default();
        let mut restarts = 0;
        // The first that failed, and why; the other goes on.
        let mut failed: Option<(Engine, String)> = None;
        for op in (self.script)(seed) {
            if !op.of_processes() && !both.has(op.engine()) {
                continue;
            }
            // What was refused to an engine that has failed may not be planned, either.
            let dead = failed.as_ref().is_some_and(|(engine, _)| *engine == op.engine());
            let op = if dead { op } else { both.planned(op)? };
            let number = log.begun(op);
            if let Restart | Without(_) = op {
                if failed.is_some() {
                    break;
                }
                if let Some(store) = &both.store {
                    store.sync().map_err(|e| e.to_string())?;
                    promises.done(log, number, SyncChunks);
                }
                if let Some(objects) = &both.objects {
                    objects.sync().map_err(|e| e.to_string())?;
                    promises.done(log, number, Op::Objects(Step::Sync));
                }
                both.end()?;
                restarts += 1;
                both = match op {
                    Without(engine) if self.engines.len() > 1 => {
                        let others: Vec<_> = self.engines.iter().copied().filter(|other| *other != engine).collect();
                        Engines::open(&drive, &others)?
                    }
                    _ => self.open(&drive, restarts)?,
                };
                continue;
            }
            if let Join(engine) = op {
                if failed.is_none() && self.engines.contains(&engine) && !both.has(engine) {
                    both.join(engine)?;
                }
                continue;
            }
            if failed.as_ref().is_some_and(|(engine, _)| *engine == op.engine()) {
                continue;
            }
            match both.perform(op) {
                Came::Done => promises.done(log, number, op),
                // A file may have taken some of it.
                Came::Full => {
                    let now = match (op, &both.pairs) {
                        (Op::Pairs(act), Some(pairs)) => pairs.has_done(act).map_err(|e| e.to_string())?.then_some(1),
                        _ => op.thing().and_then(|thing| both.len(thing)),
                    };
                    log.begun(Refused(number, now.map(|len| len as u32)));
                }
                Came::Failed(why) if failed.is_none() => failed = Some((op.engine(), format!("{op:?}: {why}"))),
                Came::Failed(why) => return Err(format!("{op:?}: {why}")),
            }
        }
        match failed {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.open(&drive, 0)?.end()
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        let context = |why| format!("{why}\nof {:?}", history.entries());
        // Processes that know of one engine only come first, or none.
        let number = history.entries().len() + crash as usize;
        if let Some(engine) = self.engines.get(number % (self.engines.len() + 1)) {
            alone(*engine, &drive).map_err(|why| context(format!("{engine:?} alone: {why}")))?;
        }
        let both = self.open(&drive, number / 5).map_err(context)?;
        let told = both.told();
        if history.fault().is_none() && told != Told::default() {
            return Err(context(format!("damage without a fault: {told:?}")));
        }
        let found = both.found().map_err(context)?;
        let (acts, least) = acts_of(history);
        if !pairs::may_be(&found.pairs, &acts, least) {
            let sentence = "pairs are those of no number of acts from";
            return Err(context(format!("{} {sentence} {least} to {}; {told:?}", found.pairs.len(), acts.len())));
        }
        let (states, least) = states_of(history);
        let digest = found.objects.digest();
        if both.has(Engine::Objects) && !states[least..].contains(&digest) {
            let earlier = states[..least].contains(&digest);
            let sentence = "objects are those of no number of transactions from";
            return Err(context(format!("{sentence} {least} to {}; of fewer: {earlier}; {told:?}", states.len() - 1)));
        }
        let expected = expected(history);
        for (thing, (states, must)) in &expected {
            let here = found.things.get(thing);
            if !may_be(*thing, here, &states[*must..]) {
                let lens: Vec<_> = states[*must..].iter().map(|state| state.as_ref().map(Vec::len)).collect();
                let here = here.map(Vec::len);
                return Err(context(format!("{thing:?} has {here:?} bytes, and may have {lens:?}; {told:?}")));
            }
        }
        let made = |thing: &Thing| *thing == Thing::Notes || expected.contains_key(thing);
        if let Some(strange) = found.things.keys().find(|thing| !made(thing)) {
            return Err(context(format!("{strange:?} was never made")));
        }
        // A mount that does not know that power was lost says what is shorter than was recorded, and the check repeats that.
        let quiet = history.fault().is_some_and(|fault| fault.kind == FaultKind::QuietPowerLoss);
        both.sound(if quiet { &told.files } else { &[] }).map_err(context)?;
        self.goes_on(both, &drive, found).map_err(context)
    }
}

impl Scripted {
    /// All go on working, and what was found stays.
    fn goes_on(&self, mut both: Engines, drive: &Drive, mut found: Found) -> Result<(), String> {
        let put = Act::Write { seed: 900, most: 5000, sync: true };
        let change = Op::Objects(Step::Do { seed: 900, most: 40_000, wait: Wait::Durable, state: 0 });
        let more = [
            Create(900),
            Write(900, 5000),
            SyncFile(900),
            Op::Pairs(put),
            Close(900),
            Op::Pairs(Act::Flush),
            Make(901, Durable),
            Put(901, 9000, Durable),
            change,
            Note(3),
        ];
        for op in more {
            match both.perform(op) {
                _ if !both.has(op.engine()) => {}
                Came::Failed(why) => return Err(format!("{op:?} after the crash: {why}")),
                Came::Done if op == Op::Pairs(put) => put.apply(&mut found.pairs),
                Came::Done if op == change => {
                    found.objects = both.objects.as_mut().map_or(Ok(objects::Model::default()), Objects::model)?
                }
                Came::Done | Came::Full => {}
            }
        }
        let now = both.found()?;
        let whole = |thing: &Thing, content: &Vec<u8>| *content == bytes(*thing, 0, content.len() as u32);
        let mut new = now.things.iter().filter(|(thing, _)| !found.things.contains_key(thing));
        if let Some((wrong, _)) = new.find(|(thing, content)| !whole(thing, content)) {
            return Err(format!("{wrong:?} is not what was written after the crash"));
        }
        found.things.extend(
            now.things
                .iter()
                .filter(|(thing, _)| matches!(thing, Thing::File(900) | Thing::Chunk(901) | Thing::Notes))
                .map(|(t, c)| (*t, c.clone())),
        );
        if now != found {
            return Err("writing after the crash changed what was there".into());
        }
        both.end()?;
        let both = self.open(drive, 1)?;
        if both.found()? != found {
            return Err("a clean restart changed something".into());
        }
        both.sound(&[]).map_err(|why| format!("after a clean restart: {why}"))
    }
}

/// A process that knows of this engine only: it opens it, and works on its zones while those of the others may be dirty.
fn alone(engine: Engine, drive: &Drive) -> Result<(), String> {
    match engine {
        Engine::Files => drop(mount(drive)?),
        Engine::Chunks => drop(ChunkStore::open(drive.clone(), chunk_options()).map_err(|why| why.to_string())?),
        Engine::Notes => {
            let volume = Volume::open(drive.clone(), volume_options()).map_err(|why| why.to_string())?;
            drop(Notes::open(&volume).map_err(|why| why.to_string())?);
        }
        Engine::Pairs => {
            let store = Kv::open(drive.clone(), pairs::options());
            let mut pairs = store.and_then(Pairs::of).map_err(|why| why.to_string())?;
            for act in [Act::Flush, Act::Compact] {
                if let Came::Failed(why) = pairs.perform(act).into() {
                    return Err(format!("{act:?}: {why}"));
                }
            }
        }
        Engine::Objects => {
            let store = Store::open(drive.clone(), objects::options()).map_err(|why| why.to_string())?;
            store.pack().and_then(|_| store.clean(200 << 10)).map_err(|why| why.to_string())?;
        }
    }
    Ok(())
}

/// What was done to the pairs, and how much of it must be there. What was refused is not there, unless the process died in it, or
/// only could not be made durable.
fn acts_of(history: &History<Op>) -> (Vec<Act>, usize) {
    let refused = |number: u64| history.entries().iter().any(|e| matches!(e.op, Refused(n, None) if n == number));
    let (mut acts, mut least) = (Vec::new(), 0);
    for (number, entry) in (0..).zip(history.entries()) {
        if let Op::Pairs(act) = entry.op
            && act.changes()
            && !refused(number)
        {
            acts.push(act);
            if history.is_must(entry) {
                least = acts.len();
            }
        }
    }
    (acts, least)
}

/// What the objects may be, and which of that they must be at the least.
fn states_of(history: &History<Op>) -> (Vec<u64>, usize) {
    let refused = |number: u64| history.entries().iter().any(|e| matches!(e.op, Refused(n, _) if n == number));
    let (mut states, mut least) = (vec![objects::first()], 0);
    for (number, entry) in (0..).zip(history.entries()) {
        if let Op::Objects(Step::Do { state, .. }) = entry.op
            && !refused(number)
        {
            states.push(state);
            if history.is_must(entry) {
                least = states.len() - 1;
            }
        }
    }
    (states, least)
}

/// All write, sync, delete and clean, in any order.
fn random(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut files, mut open, mut chunks) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut next = 1;
    let mut ops = Vec::new();
    for _ in 0..80 {
        let n = rng.random_range(0..7u32);
        let how = if rng.random_bool(0.5) { Durable } else { Buffered };
        let len = [1, 700, 4096, 9000, 40_000, 90_000][rng.random_range(0..6)] + rng.random_range(0..50);
        let any = |rng: &mut ChaCha8Rng, of: &[u32]| (!of.is_empty()).then(|| of[rng.random_range(0..of.len())]);
        match rng.random_range(0..100) {
            0..8 => {
                files.push(next);
                open.push(next);
                ops.push(Create(next));
                next += 1;
            }
            8..28 => ops.extend(any(&mut rng, &open).map(|file| Write(file, len))),
            28..36 => ops.extend(any(&mut rng, &open).map(SyncFile)),
            36..39 => {
                if let Some(file) = any(&mut rng, &open) {
                    open.retain(|other| *other != file);
                    ops.push(Close(file));
                }
            }
            39..44 => {
                if let Some(file) = any(&mut rng, &files) {
                    files.retain(|other| *other != file);
                    open.retain(|other| *other != file);
                    ops.push(Unlink(file));
                }
            }
            44..47 => ops.push(SyncNames),
            47..50 => ops.push(Pack),
            50..54 => ops.push(FileStep),
            54..78 if chunks.insert(n) => ops.push(Make(n, how)),
            54..78 => ops.push(Put(n, len, how)),
            78..84 if chunks.remove(&n) => ops.push(Delete(n, how)),
            84..87 => ops.push(SyncChunks),
            87..91 => ops.push(Clean),
            91..93 => ops.push(Checkpoint),
            93..97 => ops.push(ChunkStep),
            97..99 => {
                open.clear();
                ops.push(Restart);
            }
            _ => {}
        }
        match rng.random_range(0..20) {
            0..3 => ops.push(Note(rng.random_range(1..9))),
            3 => ops.push(SyncNotes),
            4 => ops.push(TrimNotes),
            _ => {}
        }
    }
    ops
}

/// All write until none finds room; then each deletes in turn, and all go on.
fn full(_: u64) -> Vec<Op> {
    let mut ops = vec![Create(1), Create(2), Write(2, 5000), SyncFile(2)];
    for n in 0..26 {
        let file = 3 + n * 2;
        ops.extend([Write(2, 3000), Create(file), Write(file, 110_000), SyncFile(file), Close(file)]);
        ops.extend([Make(n, Buffered), Put(n, 120_000, Durable), Note(4)]);
    }
    ops.extend((0..26).step_by(3).flat_map(|n| [Delete(n, Buffered), Unlink(3 + n * 2)]));
    ops.extend([SyncNames, SyncChunks, FileStep, Clean, Write(2, 9000), SyncFile(2)]);
    ops.extend((30..36).flat_map(|n| [Make(n, Buffered), Put(n, 100_000, Durable), Write(1, 70_000), SyncFile(1)]));
    ops.extend([
        SyncNotes,
        TrimNotes,
        Note(20),
        Restart,
        Note(20),
        Pack,
        Clean,
        Delete(1, Durable),
        Unlink(5),
        SyncNames,
        Make(40, Durable),
        FileStep,
        ChunkStep,
    ]);
    ops
}

/// The same, with others of an engine between; each engine is left out of a process now and then, and comes later.
fn with_others(ops: Vec<Op>, seed: u64, mut others: impl Iterator<Item = Op>, other: Engine) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut all = Vec::new();
    for op in ops {
        all.push(op);
        all.extend(others.by_ref().take(rng.random_range(0..3)));
        let engine = [Engine::Files, Engine::Chunks, other][rng.random_range(0..3)];
        match rng.random_range(0..25) {
            0 => all.push(Without(engine)),
            // Files come with the next process.
            1..4 if engine != Engine::Files => all.push(Join(engine)),
            _ => {}
        }
    }
    all
}

fn random_with_pairs(seed: u64) -> Vec<Op> {
    with_others(random(seed), seed, pairs::acts(seed, 3000).map(Op::Pairs), Engine::Pairs)
}

fn full_with_pairs(seed: u64) -> Vec<Op> {
    with_others(full(seed), seed, pairs::acts(seed, 20_000).map(Op::Pairs), Engine::Pairs)
}

fn random_with_objects(seed: u64) -> Vec<Op> {
    with_others(random(seed), seed, objects::steps(seed, 60_000).map(Op::Objects), Engine::Objects)
}

fn full_with_objects(seed: u64) -> Vec<Op> {
    with_others(full(seed), seed, objects::steps(seed, 600_000).map(Op::Objects), Engine::Objects)
}

/// 32 zones of 256 KiB, four of them conventional.
fn config() -> Config {
    Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 8 << 20, conventional: 4, ..Config::tiny() }
}

/// The same without conventional zones and with 14 active ones: two are the label's, and each engine has four.
fn few_active() -> Config {
    Config {
        conventional: 0,
        max_open: Some(14),
        max_active: Some(14),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        zone_capacity: 224 << 10,
        ..config()
    }
}

fn drives() -> [(&'static str, Config); 3] {
    [
        ("write cache on", config()),
        ("off", Config { write_cache: false, ..config() }),
        ("few active zones", few_active()),
    ]
}

/// Those with pairs, which keep 18 zones for themselves: 40 zones, and where few may be active two more for each engine and four for the pairs.
fn drives_with_pairs() -> [(&'static str, Config); 3] {
    larger(10 << 20, 4)
}

/// Those with objects, whose metadata keep as many: 52 zones. Where few may be active, six are the metadata's and four the objects'.
fn drives_with_objects() -> [(&'static str, Config); 3] {
    larger(13 << 20, 6)
}

fn larger(capacity: u64, active: u32) -> [(&'static str, Config); 3] {
    drives().map(|(name, config)| {
        let more = |most: Option<u32>| most.map(|n| n + active);
        let config =
            Config { capacity, max_open: more(config.max_open), max_active: more(config.max_active), ..config };
        (name, config)
    })
}

fn states() -> u64 {
    std::env::var("IMBREX_BOTH_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(320)
}

/// A script, who takes part, and on which drives.
type Setting = (fn(u64) -> Vec<Op>, &'static [Engine], [(&'static str, Config); 3]);

fn settings_with_pairs(script: fn(u64) -> Vec<Op>) -> impl Iterator<Item = Setting> {
    WITH_PAIRS.into_iter().map(move |engines| (script, engines, drives_with_pairs()))
}

fn settings_with_objects(script: fn(u64) -> Vec<Op>) -> impl Iterator<Item = Setting> {
    WITH_OBJECTS.into_iter().map(move |engines| (script, engines, drives_with_objects()))
}

fn run((script, engines, drives): Setting, states: u64) {
    for seed in seeds(1) {
        for (drive, config) in &drives {
            let plan = Plan { max_states: states.max(1), cuts_per_write: 3, ..Plan::new(seed) };
            match explore(&Arc::new(Scripted { script, engines }), config, &plan) {
                Ok(report) => {
                    println!("{engines:?}, seed {seed}, {drive}: {} of {} states", report.states, report.possible);
                }
                Err(failure) => panic!("{engines:?}, {drive}: {failure}"),
            }
        }
    }
}

#[test]
fn three_engines_keep_what_each_has_promised() {
    run((random, THREE, drives()), states() / 6);
}

#[test]
fn three_engines_on_a_full_drive_keep_what_each_has_promised() {
    run((full, THREE, drives()), states() / 6);
}

#[test]
fn pairs_beside_others_keep_what_each_has_promised() {
    settings_with_pairs(random_with_pairs).for_each(|setting| run(setting, states() / 18));
}

#[test]
fn pairs_beside_others_on_a_full_drive_keep_what_each_has_promised() {
    settings_with_pairs(full_with_pairs).for_each(|setting| run(setting, states() / 18));
}

#[test]
fn objects_beside_others_keep_what_each_has_promised() {
    settings_with_objects(random_with_objects).for_each(|setting| run(setting, states() / 18));
}

#[test]
fn objects_beside_others_on_a_full_drive_keep_what_each_has_promised() {
    settings_with_objects(full_with_objects).for_each(|setting| run(setting, states() / 18));
}

fn sweep((script, engines, drives): Setting, kinds: &[FaultKind], runs: u64) {
    for seed in seeds(1) {
        for (drive, config) in &drives {
            let mut plan = FaultPlan { kinds: kinds.to_vec(), max_runs: runs, recoveries: 2, ..FaultPlan::new(seed) };
            // Where the label is in sequential zones and one of them has died, the other takes no label any more when it is full.
            plan.kinds.retain(|kind| config.conventional > 0 || *kind != FaultKind::ZoneReadOnly);
            match fault_sweep(&Arc::new(Scripted { script, engines }), config, &plan) {
                Ok(report) => assert!(report.runs > 0, "{report:?}"),
                Err(failure) => panic!("{engines:?}, {drive}: {failure}"),
            }
        }
    }
}

#[test]
fn what_fails_for_one_engine_takes_nothing_from_the_others() {
    sweep((random, THREE, drives()), &FaultKind::PASSING, 40);
    sweep((full, THREE, drives()), &FaultKind::PASSING, 12);
}

#[test]
fn a_drive_that_loses_power_takes_from_no_engine_what_was_promised() {
    sweep((random, THREE, drives()), &FaultKind::POWER, 20);
    sweep((full, THREE, drives()), &FaultKind::POWER, 8);
}

fn fails_beside_pairs(kinds: &[FaultKind]) {
    settings_with_pairs(random_with_pairs).for_each(|setting| sweep(setting, kinds, 6));
    settings_with_pairs(full_with_pairs).for_each(|setting| sweep(setting, kinds, 2));
}

/// Commands fail, and zones die.
#[test]
fn what_fails_beside_pairs_takes_nothing_from_anybody() {
    fails_beside_pairs(&FaultKind::PASSING);
}

#[test]
fn a_drive_that_loses_power_beside_pairs_takes_nothing_from_anybody() {
    fails_beside_pairs(&FaultKind::POWER);
}

/// The same of objects.
#[test]
fn what_fails_beside_objects_takes_nothing_from_anybody() {
    let kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
    settings_with_objects(random_with_objects).for_each(|setting| sweep(setting, &kinds, 6));
    settings_with_objects(full_with_objects).for_each(|setting| sweep(setting, &kinds, 1));
}

impl Found {
    /// What is of this engine, or of any other.
    fn only(&self, engine: Engine, of_it: bool) -> Found {
        let of = |thing: &Thing| match thing {
            Thing::File(_) => Engine::Files,
            Thing::Chunk(_) => Engine::Chunks,
            Thing::Notes => Engine::Notes,
        };
        let things = self.things.iter().filter(|(thing, _)| (of(thing) == engine) == of_it);
        let pairs = if (engine == Engine::Pairs) == of_it { self.pairs.clone() } else { pairs::Model::new() };
        let objects =
            if (engine == Engine::Objects) == of_it { self.objects.clone() } else { objects::Model::default() };
        Found { things: things.map(|(thing, content)| (*thing, content.clone())).collect(), pairs, objects }
    }
}

impl Told {
    fn of(&self, engine: Engine) -> &[String] {
        match engine {
            Engine::Files => &self.files,
            Engine::Chunks => &self.chunks,
            Engine::Notes => &[],
            Engine::Pairs => &self.pairs,
            Engine::Objects => &self.objects,
        }
    }
}

/// What came of damage to a zone of an engine.
enum Damaged {
    Refused,
    Told,
    Whole,
}

/// All others find what they had, whether that engine is opened or not, and it finds what it had, or says that it does not.
fn damaged(drive: &Drive, engines: &'static [Engine], engine: Engine, had: &Found) -> Result<Damaged, String> {
    let others: Vec<Engine> = engines.iter().copied().filter(|other| *other != engine).collect();
    let whole = |opened: &Engines| {
        let told = opened.told();
        if let Some(other) = others.iter().find(|other| !told.of(**other).is_empty()) {
            return Err(format!("{other:?} tells of damage: {told:?}"));
        }
        match opened.found()?.only(engine, false) == had.only(engine, false) {
            true => Ok(()),
            false => Err("another engine has something else".into()),
        }
    };
    let without = || {
        let opened = Engines::open(drive, &others)?;
        whole(&opened)?;
        opened.sound(&[])?;
        opened.end()
    };
    without()?;
    let Ok(mut opened) = Engines::open(drive, engines) else { return without().map(|()| Damaged::Refused) };
    let told = !opened.told().of(engine).is_empty();
    let found = opened.found().map(|found| found.only(engine, true) == had.only(engine, true));
    let sound = opened.sound(&[]);
    let came = match (found, told || sound.is_err()) {
        (Ok(true), false) => Damaged::Whole,
        (Ok(true) | Err(_), _) | (Ok(false), true) => Damaged::Told,
        // Tables of a file system have the sums of whoever writes them, and no others.
        (Ok(false), false) if engine == Engine::Files => Damaged::Whole,
        (Ok(false), false) => return Err(format!("{engine:?} has something else, and does not say so")),
    };
    // It goes away, and the others are as they were.
    match engine {
        Engine::Files => {
            opened.writers.clear();
            opened.fs = None;
        }
        Engine::Chunks => opened.store = None,
        Engine::Notes => opened.notes = None,
        Engine::Pairs => opened.pairs = None,
        Engine::Objects => opened.objects = None,
    }
    whole(&opened)?;
    opened.sound(&[])?;
    drop(opened);
    without().map(|()| came)
}

/// A zone that dies, or a flipped bit, is damage to the engine whose it is, and to nobody else.
#[test]
fn damage_beside_pairs_is_told_by_whose_it_is_and_costs_the_others_nothing() {
    damage_beside(WITH_PAIRS, drives_with_pairs(), random_with_pairs);
}

/// Also where it hits the metadata of objects.
#[test]
fn damage_beside_objects_is_told_by_whose_it_is_and_costs_the_others_nothing() {
    damage_beside(WITH_OBJECTS, drives_with_objects(), random_with_objects);
}

fn damage_beside(settings: [&'static [Engine]; 3], drives: [(&'static str, Config); 3], script: fn(u64) -> Vec<Op>) {
    for (engines, (name, config)) in settings.into_iter().zip(drives) {
        let emulator = Emulator::memory(&config).unwrap();
        let of = |emulator: &Emulator| Drive { device: Arc::new(emulator.clone()), survivor: None };
        let drive = of(&emulator);
        let subject = Scripted { script, engines };
        subject.format(&drive).unwrap();
        let mut opened = subject.open(&drive, 0).unwrap();
        for op in script(3).into_iter().filter(|op| !op.of_processes() && engines.contains(&op.engine())) {
            if let Came::Failed(why) = opened.perform(op) {
                panic!("{op:?}: {why}");
            }
        }
        for op in [SyncNames, SyncChunks, Op::Pairs(Act::Flush), Op::Pairs(Act::Sync), Op::Objects(Step::Pack)] {
            opened.perform(op);
        }
        opened.end().unwrap();
        let opened = subject.open(&drive, 0).unwrap();
        let had = opened.found().unwrap();
        opened.end().unwrap();
        let mut zones = Vec::new();
        for zone in report_all(drive.device.as_ref()).unwrap() {
            let mut buf = AlignedBuf::zeroed(4096);
            let start = drive.device.geometry().start(zone.id);
            if zone.wp.is_some_and(|wp| wp >= 4096)
                && drive.device.read_at(&mut buf, start, Cause::Check.into()).is_ok()
            {
                zones.extend(ZoneHeader::decode(&buf).map(|header| (zone.id, header.owner, zone.wp.unwrap_or(0))));
            }
        }
        let owners: BTreeSet<u8> = zones.iter().map(|zone| zone.1).collect();
        let whose = engines.iter().flat_map(|engine| vec![*engine; tenants(*engine, drive.device.geometry()).len()]);
        let tenants: BTreeMap<u8, Engine> = owners.into_iter().zip(whose.clone()).collect();
        assert_eq!(tenants.len(), whose.count(), "each has zones");
        let (mut rng, mut came) = (ChaCha8Rng::seed_from_u64(9), [0; 3]);
        for (zone, owner, written) in zones {
            let Some(engine) = tenants.get(&owner) else { continue };
            // The zone dies, or a bit of it is another.
            for case in 0..3 {
                let fork = emulator.fork().unwrap();
                let at = drive.device.geometry().start(zone) + rng.random_range(0..written);
                match case {
                    0 => fork.faults().make_offline(zone).unwrap(),
                    _ if fork.faults().flip_bits(at, 1 << rng.random_range(0..8)).is_err() => continue,
                    _ => {}
                }
                match damaged(&of(&fork), engines, *engine, &had) {
                    Ok(what) => came[what as usize] += 1,
                    Err(why) => panic!("{engines:?}, {name}, {engine:?}, {zone:?}, case {case}, at {at}: {why}"),
                }
            }
        }
        println!("{engines:?}, {name}: {came:?}");
        assert!(came[1] > 3 && came[2] > 3, "{came:?}");
    }
}

/// Each engine writes to more zones than its share of the active ones, all at once, and deletes; each finds all of it again.
#[test]
fn three_engines_write_at_once_to_more_zones_than_may_be_active() {
    let config = Config { capacity: 64 << 20, ..few_active() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    Scripted { script: random, engines: THREE }.format(&drive).unwrap();
    let threads = |options: VolumeOptions| VolumeOptions { exec: Exec::Threads(2), ..options };
    for round in 0..3 {
        let fs = imbrex_bluefs::Options { volume: threads(volume_options()), ..imbrex_bluefs::Options::default() };
        let fs = BlueFs::mount(drive.clone(), fs).unwrap();
        let tenant = fs.volume().tenant(imbrex_chunkstore::TENANT).unwrap();
        let options = imbrex_chunkstore::Options { volume: threads(volume_options()), ..Default::default() };
        let store = ChunkStore::open_tenant(tenant, options).unwrap();
        let mut notes = Notes::open(fs.volume()).unwrap();
        let before = notes.count();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let files = round * 100..round * 100 + 20;
                let mut writers: Vec<_> =
                    files.clone().map(|n| fs.create(&path(n), CreateOptions::default()).unwrap()).collect();
                for piece in 0..4 {
                    for (n, writer) in files.clone().zip(&mut writers) {
                        writer.append(&bytes(Thing::File(n), piece * 50_000, 50_000)).unwrap();
                        writer.sync().unwrap();
                    }
                }
                writers.iter_mut().for_each(|writer| writer.close().unwrap());
                files.filter(|n| n % 3 == 0).for_each(|n| fs.unlink(&path(n)).unwrap());
            });
            scope.spawn(|| {
                let chunks = round * 100..round * 100 + 20;
                for n in chunks.clone() {
                    store.create(id(n), StreamType::new(n as u8 % 3).unwrap()).unwrap();
                }
                for piece in 0..4 {
                    for n in chunks.clone() {
                        store.append(id(n), &bytes(Thing::Chunk(n), piece * 50_000, 50_000)).unwrap();
                    }
                }
                chunks.filter(|n| n % 3 == 0).for_each(|n| store.delete(id(n)).unwrap());
            });
            scope.spawn(|| {
                for n in 0..300 {
                    notes.append().unwrap();
                    notes.sync().unwrap();
                    if n % 100 == 99 {
                        notes.trim().unwrap();
                    }
                }
            });
        });
        assert_eq!(notes.count(), before + 300);
        let volume = fs.volume().clone();
        let (notes, store, fs) = (Some(notes), Some(store), Some(fs));
        let engines = Engines { notes, pairs: None, objects: None, writers: BTreeMap::new(), store, fs, volume };
        for (thing, content) in engines.found().unwrap().things {
            assert!(thing == Thing::Notes || content == bytes(thing, 0, 200_000), "{thing:?} has {}", content.len());
        }
        engines.sound(&[]).unwrap();
        engines.end().unwrap();
    }
}
