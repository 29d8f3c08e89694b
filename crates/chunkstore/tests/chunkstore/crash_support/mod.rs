//! The chunk store as a subject of the crash explorer: scripts of operations, and what each crash may leave of them.

pub mod bad;

use crate::support::{Heard, bytes, id};
use imbrex_chunkstore::format::{BLOCK, HEADER, Header};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, Error, PendingSync, StreamType, TENANT, budget};
use imbrex_crashkit::{Config, Crash, History, Log, Subject};
use imbrex_device::{Cause, Drive, Tag, ZoneState, ZonedDevice};
use imbrex_zones::{FormatOptions, TenantSpec, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create(u64, u8, Durability),
    Append(u64, u32, u8, Durability),
    Seal(u64, Durability),
    Delete(u64, Durability),
    /// A name, by number, for these chunks, by bits; whatever had it before is gone.
    Name(u8, u64),
    Unname(u8),
    Sync,
    Checkpoint,
    BeginCheckpoint,
    Step,
    Clean,
    Scrub,
    Remount,
    /// Writes what there is as a group, and holds it.
    Write,
    /// Flushes the group of this place among those that are held.
    Flush(usize),
    /// The operation of this number was refused and changed nothing.
    Refused(u64),
}
use Durability::{Buffered, Durable};
use Op::*;

impl Op {
    fn chunk(self) -> Option<u64> {
        match self {
            Create(n, ..) | Append(n, ..) | Seal(n, _) | Delete(n, _) => Some(n),
            _ => None,
        }
    }
    fn durability(self) -> Durability {
        match self {
            Create(.., d) | Append(.., d) | Seal(_, d) | Delete(_, d) => d,
            Clean | Scrub | Step | BeginCheckpoint | Write | Flush(_) | Refused(_) => Buffered,
            Sync | Checkpoint | Remount | Name(..) | Unname(_) => Durable,
        }
    }
}

/// What a chunk is: its bytes, whether it is sealed, its kind of stream.
pub type Content = Option<(Vec<u8>, bool, u8)>;

/// What each chunk may be: one of these, from that number on.
pub type Expected = BTreeMap<ChunkId, (Vec<Content>, usize)>;

fn apply(content: &mut Content, op: Op) {
    match op {
        Create(_, stream, _) => *content = Some((Vec::new(), false, stream)),
        Append(_, n, seed, _) => {
            if let Some((all, ..)) = content {
                all.extend(bytes(n as usize, u64::from(seed)));
            }
        }
        Seal(..) => {
            if let Some((_, sealed, _)) = content {
                *sealed = true;
            }
        }
        Delete(..) => *content = None,
        _ => {}
    }
}

/// What a name of this number is.
fn name(n: u8) -> String {
    format!("dir {n}/{}", "x".repeat(500 + usize::from(n) * 37 % 500))
}

/// Chunks of a naming.
fn chunks_of(bits: u64) -> Vec<u64> {
    (0..64).filter(|n| bits >> n & 1 == 1).collect()
}

/// Names, and what they stand for: chunks with the lengths that they had when they were named.
pub type Table = BTreeMap<String, Vec<(ChunkId, usize)>>;

/// What an operation does to names. Returns the chunks that are gone with a name.
fn apply_to_names(table: &mut Table, op: Op, len: impl Fn(u64) -> usize) -> Vec<ChunkId> {
    let mut gone = Vec::new();
    match op {
        Name(n, bits) => {
            let chunks: Vec<_> = chunks_of(bits).into_iter().map(|n| (id(n), len(n))).collect();
            let is_new = |old: &ChunkId| chunks.iter().any(|(new, _)| new == old);
            gone = table.remove(&name(n)).unwrap_or_default().into_iter().map(|(old, _)| old).collect();
            gone.retain(|old| !is_new(old));
            table.retain(|_, of| !of.iter().any(|(old, _)| is_new(old)));
            table.insert(name(n), chunks);
        }
        Unname(n) => drop(table.remove(&name(n))),
        Delete(n, _) => table.retain(|_, of| of.iter().all(|(chunk, _)| *chunk != id(n))),
        _ => {}
    }
    gone
}

/// A script on a store.
pub struct Scripted(pub fn(u64) -> Vec<Op>);

fn options() -> imbrex_chunkstore::Options {
    imbrex_chunkstore::Options {
        buffer_bytes: 100 << 10,
        segment_bytes: 16 << 10,
        checkpoint_bytes: 200 << 10,
        tell_bytes: 70 << 10,
        zones_at_once: Some(2),
        ..crate::support::options()
    }
}

/// Each record of this chunk is damaged for whoever verifies it.
pub const DAMAGED: u64 = 66;

fn read_damaged(drive: &dyn ZonedDevice, buf: &mut [u8], at: u64, tag: Tag) -> imbrex_device::Result<()> {
    drive.read_at(buf, at, tag)?;
    if tag.cause == Cause::Check {
        for block in buf.chunks_mut(BLOCK) {
            if Header::decode_anywhere(block).is_ok_and(|h| h.chunk == id(DAMAGED)) {
                block[HEADER + 70] ^= 1;
            }
        }
    }
    Ok(())
}

/// What each chunk may be after a crash; and the tables of names that there may be.
pub fn expected(history: &History<Op>) -> (Expected, Vec<Table>) {
    let mut expected = Expected::new();
    let refused: Vec<u64> =
        history.entries().iter().filter_map(|e| if let Refused(n) = e.op { Some(n) } else { None }).collect();
    let mut moments = vec![Table::new()];
    let mut must_moment = 0;
    for (number, entry) in history.entries().iter().enumerate() {
        if refused.contains(&(number as u64)) {
            continue;
        }
        let mut table = moments.last().cloned().unwrap_or_default();
        let len = |n: u64| {
            let content = expected.get(&id(n)).and_then(|(states, _)| states.last().cloned().flatten());
            content.map_or(0, |(bytes, ..)| bytes.len())
        };
        let gone = apply_to_names(&mut table, entry.op, len);
        let gone = gone.into_iter().map(|chunk| (chunk, Delete(0, Durable)));
        for (chunk, op) in entry.op.chunk().map(|n| (id(n), entry.op)).into_iter().chain(gone) {
            let (states, must) = expected.entry(chunk).or_insert_with(|| (vec![None], 0));
            let mut content = states.last().cloned().flatten();
            apply(&mut content, op);
            states.push(content);
            if history.is_must(entry) {
                *must = states.len() - 1;
            }
        }
        if moments.last() != Some(&table) {
            moments.push(table);
        }
        if history.is_must(entry) {
            must_moment = moments.len() - 1;
        }
    }
    (expected, moments.split_off(must_moment))
}

pub fn open(drive: &Drive) -> Result<ChunkStore, String> {
    let device = Heard { drive: drive.device.clone(), reads: Box::new(read_damaged), writes: Box::new(|_| {}) };
    let drive = Drive { device: Arc::new(device), survivor: drive.survivor.clone() };
    ChunkStore::open(drive, options()).map_err(|e| format!("open: {e}"))
}

/// What the scrub has marked, by chunk and offset.
fn marks(store: &ChunkStore) -> Vec<(ChunkId, u32)> {
    store.scrubbed().damaged.iter().map(|mark| (mark.id, mark.offset)).collect()
}

fn perform(store: &ChunkStore, op: Op) -> imbrex_chunkstore::Result<()> {
    match op {
        Create(n, stream, how) => store.create_with(id(n), StreamType::new(stream).unwrap(), how),
        Append(n, len, seed, durability) => {
            let how = Append { offset: None, durability };
            store.append_with(id(n), &bytes(len as usize, u64::from(seed)), how).map(drop)
        }
        Seal(n, how) => store.seal_with(id(n), how).map(drop),
        Delete(n, how) => store.delete_with(id(n), how),
        Name(n, bits) => {
            let chunks: Vec<ChunkId> = chunks_of(bits).into_iter().map(id).collect();
            store.name(&[(&name(n), &chunks)], true)
        }
        Unname(n) => store.unname(&name(n)),
        Sync => store.sync(),
        Checkpoint => store.checkpoint(),
        BeginCheckpoint => store.begin_checkpoint(),
        Step => store.step().map(drop),
        Clean => store.clean(100 << 10).map(drop),
        Scrub => store.scrub_on(30_000).map(drop),
        Remount | Write | Flush(_) | Refused(_) => Ok(()),
    }
}

type Found = BTreeMap<ChunkId, (Vec<u8>, bool, u8)>;

fn found(store: &ChunkStore) -> Result<Found, String> {
    let mut all = BTreeMap::new();
    for info in store.list(None, usize::MAX) {
        let mut out = vec![0; info.len as usize];
        let n = store.read(info.id, 0, &mut out).map_err(|e| e.to_string())?;
        if n != out.len() {
            return Err(format!("chunk {} has {} bytes, and {n} could be read", info.id, out.len()));
        }
        all.insert(info.id, (out, info.sealed, info.stream.number()));
    }
    Ok(all)
}

fn found_names(store: &ChunkStore) -> Result<BTreeMap<String, Vec<ChunkId>>, String> {
    let mut all = BTreeMap::new();
    for found in store.names(None, "", usize::MAX) {
        let chunks = store.named(&found.name).map_err(|e| e.to_string())?;
        let has = |(place, id): (usize, &ChunkId)| {
            store.name_of(*id).is_some_and(|of| (&of.name, of.place as usize) == (&found.name, place))
        };
        if !chunks.iter().enumerate().all(has) || chunks.len() != found.chunks as usize {
            return Err(format!("name {:?} is for {chunks:?}, which do not have it", found.name));
        }
        all.insert(found.name.to_string(), chunks);
    }
    Ok(all)
}

/// The names are those of one moment, and whatever they stand for is there as it was when it was named.
fn names_are_right(store: &ChunkStore, all: &Found, moments: &[Table], history: &History<Op>) -> Result<(), String> {
    let here = found_names(store)?;
    let ids = |table: &Table| -> BTreeMap<String, Vec<ChunkId>> {
        table.iter().map(|(name, of)| (name.clone(), of.iter().map(|(id, _)| *id).collect())).collect()
    };
    let Some(moment) = moments.iter().find(|moment| ids(moment) == here) else {
        let allowed: Vec<_> = moments.iter().map(ids).collect();
        return Err(format!("names are {here:?}, not one of {allowed:?}\nof {:?}", history.entries()));
    };
    for (name, of) in moment {
        if let Some((id, len)) = of.iter().find(|(id, len)| all.get(id).is_none_or(|(bytes, ..)| bytes.len() < *len)) {
            let here = all.get(id).map(|(bytes, ..)| bytes.len());
            return Err(format!(
                "{name:?} stands for {id} of {here:?} bytes, which had {len}\nof {:?}",
                history.entries()
            ));
        }
    }
    Ok(())
}

/// Every sequential zone is a metazone, a datazone that the store knows, free, or the label's.
fn no_zone_is_lost(store: &ChunkStore, drive: &Drive) -> Result<(), String> {
    let stats = store.stats();
    let counts = store.volume().tenant(TENANT).map_err(|e| e.to_string())?.counts();
    let report = imbrex_device::report_all(drive.device.as_ref()).map_err(|e| e.to_string())?;
    let sequential = report.iter().filter(|zone| zone.state != ZoneState::Conventional).count() as u32;
    let label = if sequential == report.len() as u32 { 2 } else { 0 };
    let data = stats.opened_zones + stats.activated_zones + stats.closed_zones + stats.garbage_zones;
    let metazones = 6;
    if counts.leased != data + metazones || counts.leased + counts.free + counts.dead + label != sequential {
        return Err(format!("of {sequential} zones, {data} are datazones, and the pool says {counts:?}"));
    }
    Ok(())
}

/// The store's own check finds nothing wrong, but for what is damaged.
fn sound(store: &ChunkStore) -> Result<(), String> {
    let mut report = store.check(|_, _| {}).map_err(|e| e.to_string())?;
    let damaged = store.stat(id(DAMAGED)).map_or(0, |info| info.records as usize);
    let found = report.problems.len();
    report.problems.retain(|what| !what.contains(&id(DAMAGED).to_string()));
    match report.problems.is_empty() && found == damaged {
        true => Ok(()),
        false => Err(format!("the check says {:?}, and {found} of {damaged} damaged records", report.problems)),
    }
}

/// Groups that are written and not flushed, and the operations that each covers.
type Held<'a> = Vec<(PendingSync<'a>, Vec<u64>)>;

/// Operations up to the next mount. Whether there is one.
fn mounted<'a>(
    store: &'a ChunkStore,
    ops: &mut dyn Iterator<Item = Op>,
    waiting: &mut Vec<(u64, Op)>,
    held: &mut Held<'a>,
    through: bool,
    log: &Log<Op>,
) -> Result<bool, String> {
    for op in ops {
        let number = log.begun(op);
        let fails = |e: Error| format!("{op:?}: {e}");
        match op {
            Write => {
                held.push((store.begin_sync().map_err(fails)?, waiting.iter().map(|(number, _)| *number).collect()))
            }
            Flush(i) => {
                let (group, covers) = held.remove(i);
                group.finish().map_err(fails)?;
                for (number, _) in waiting.extract_if(.., |(number, _)| covers.contains(number)) {
                    log.synced(number);
                }
            }
            Remount => {
                // A process that ends takes along what is only in its memory.
                store.sync().map_err(fails)?;
                waiting.drain(..).for_each(|(number, _)| log.synced(number));
                log.synced(number);
                return Ok(true);
            }
            _ => {}
        }
        let len = || op.chunk().and_then(|n| store.stat(id(n)).ok()).map(|info| info.len);
        let before = len();
        match perform(store, op) {
            // Such a name would have split another one, or there is none to take.
            Err(Error::NameSplit { .. } | Error::NotFound(_) | Error::NoSuchName(_))
                if matches!(op, Name(..) | Unname(_)) =>
            {
                log.begun(Refused(number));
                continue;
            }
            Err(error) if error.is_no_space() => {
                // What had been done in memory may yet come to the drive.
                if len() == before && matches!(op, Create(..) | Append(..)) {
                    log.begun(Refused(number));
                }
                continue;
            }
            other => other.map_err(fails)?,
        }
        waiting.push((number, op));
        if op.durability() == Durable {
            // An append that is durable by itself takes only its own chunk along.
            let along =
                |(_, other): &mut (u64, Op)| !(through && matches!(op, Append(..))) || other.chunk() == op.chunk();
            waiting.extract_if(.., along).for_each(|(number, _)| log.synced(number));
        }
    }
    Ok(false)
}

impl Subject for Scripted {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        // As `ChunkStore::format`, but with a clock that is the same every time.
        let tenants = vec![TenantSpec { name: TENANT.into(), budget: budget(drive.device.geometry().zones) }];
        let format = FormatOptions { uuid: Some(*b"chunkstore-crash"), tenants, force: false };
        Volume::format(drive, &format).map_err(|e| e.to_string())?;
        open(drive)?.close().map_err(|e| e.to_string())
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let device = &drive.device;
        let through = device.geometry().max_active.is_none() && !device.write_cache().map_err(|e| e.to_string())?;
        let (mut ops, mut waiting) = ((self.0)(seed).into_iter(), Vec::new());
        loop {
            let store = open(&drive)?;
            let mut held = Vec::new();
            let ended = mounted(&store, &mut ops, &mut waiting, &mut held, through, log);
            if ended.is_err() && store.volume().check_poison().is_err() {
                // One of their flushes has failed, or one before it.
                assert!(
                    held.into_iter().all(|(group, _)| group.finish().is_err()),
                    "a flush hides the one that failed"
                );
            }
            if !ended? {
                return Ok(());
            }
        }
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        open(&drive).map(drop)
    }

    fn check(&self, drive: Drive, _crash: Crash, history: &History<Op>) -> Result<(), String> {
        let store = open(&drive).map_err(|why| format!("{why}\nof {:?}", history.entries()))?;
        let report = store.open_report().clone();
        // A fault that passes may be told, but must cost nothing.
        if history.fault().is_none() && !report.damage.is_empty() {
            return Err(format!("damage without a fault: {report:?}"));
        }
        let all = found(&store)?;
        let (expected, moments) = expected(history);
        names_are_right(&store, &all, &moments, history)?;
        let brief = |content: &Content| content.as_ref().map(|(all, sealed, stream)| (all.len(), *sealed, *stream));
        for (chunk, (states, must)) in &expected {
            let here = all.get(chunk).cloned();
            if !states[*must..].contains(&here) {
                let allowed: Vec<_> = states[*must..].iter().map(brief).collect();
                return Err(format!(
                    "chunk {chunk} is {:?}, not one of {allowed:?}\nopen: {report:?}\nof {:?}",
                    brief(&here),
                    history.entries()
                ));
            }
        }
        if let Some(strange) = all.keys().find(|chunk| !expected.contains_key(*chunk)) {
            return Err(format!("chunk {strange} was never made"));
        }
        sound(&store)?;
        no_zone_is_lost(&store, &drive)?;
        // The scrub goes on from wherever it was, to the end.
        let passes = store.scrubbed().passes;
        let marked = marks(&store);
        let here =
            |mark: &(ChunkId, u32)| mark.0 == id(DAMAGED) && store.stat(mark.0).is_ok_and(|info| mark.1 < info.len);
        if history.fault().is_none() && !marked.iter().all(here) {
            return Err(format!("marked is what is not damaged: {marked:?}"));
        }
        let step = store.scrub_on(u64::MAX).map_err(|e| e.to_string())?;
        // What is behind it in this pass is in the next one.
        store.scrub_on(u64::MAX).map_err(|e| e.to_string())?;
        let damaged = store.stat(id(DAMAGED)).map_or(0, |info| info.records as usize);
        let marked = marks(&store);
        if history.fault().is_none() && !(marked.len() == damaged && marked.iter().all(here)) {
            return Err(format!("the scrub says {:?} and has marked {marked:?} of {damaged} records", step.problems));
        }
        let ended = store.scrubbed();
        if ended.passes > passes && all.values().all(|(bytes, ..)| bytes.is_empty()) {
            return Err(format!("the scrub counts passes over nothing: {ended:?}"));
        }
        if step.next.is_some() || ended.passes > passes + 2 || ended.next.is_some() {
            return Err(format!("the scrub does not end: {step:?}, {ended:?}"));
        }
        // It goes on working, and what was found stays.
        let after = id(999);
        let more = store.create(after, StreamType::DATA).and_then(|()| store.append(after, &bytes(9000, 1)).map(drop));
        match more {
            Err(error) if error.is_no_space() => drop(store.delete(after)),
            other => other.map_err(|e| format!("writing after the crash: {e}"))?,
        }
        store.sync().map_err(|e| e.to_string())?;
        let before = (found(&store)?, found_names(&store)?);
        drop(store);
        let store = open(&drive)?;
        if (found(&store)?, found_names(&store)?) != before {
            return Err("opening it again changed something".into());
        }
        no_zone_is_lost(&store, &drive).map_err(|why| format!("opened again: {why}"))?;
        sound(&store).map_err(|why| format!("opened again: {why}"))?;
        // What no checkpoint knew of is found again; what a close has written is known.
        for _ in 0..2 {
            store.scrub_on(u64::MAX).map_err(|e| e.to_string())?;
        }
        if marks(&store) != marked {
            return Err(format!("the scrub has marked {marked:?}, and then {:?}", marks(&store)));
        }
        store.close().map_err(|e| e.to_string())?;
        drop(store);
        let store = open(&drive)?;
        let now = (found(&store)?, found_names(&store)?);
        match store.open_report().clean && now == before && marks(&store) == marked {
            true => Ok(()),
            false => Err(format!("a clean opening is not: {:?}", store.open_report())),
        }
    }
}

/// 32 zones of 256 KiB, four of them conventional.
pub fn config() -> Config {
    Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 8 << 20, conventional: 4, ..Config::tiny() }
}

/// The same as a ZNS SSD: no conventional zones, a capacity below the size, few active zones.
pub fn zns() -> Config {
    Config {
        conventional: 0,
        zone_capacity: 192 << 10,
        max_open: Some(8),
        max_active: Some(8),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        ..config()
    }
}

pub fn short(_: u64) -> Vec<Op> {
    vec![
        Create(1, 0, Durable),
        Append(1, 5000, 1, Durable),
        Create(2, 1, Buffered),
        Append(2, 100, 2, Buffered),
        Append(1, 9000, 3, Buffered),
        Append(2, 70_000, 4, Durable),
        Seal(1, Durable),
        Create(3, 2, Durable),
        Append(3, 30_000, 5, Buffered),
        Seal(3, Buffered),
        Delete(2, Buffered),
        Create(2, 1, Buffered),
        Append(2, 777, 6, Buffered),
        Sync,
        Delete(1, Durable),
        Create(1, 2, Durable),
        Append(1, 1, 7, Durable),
        Checkpoint,
        Append(1, 4096, 8, Durable),
        Delete(3, Durable),
    ]
}

/// Chunks over several zones, and zones that are used again and again.
pub fn turnover(_: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..9u64 {
        let n = round % 3;
        if round >= 3 {
            ops.push(Delete(n, if round % 2 == 0 { Durable } else { Buffered }));
        }
        ops.push(Create(n, (round % 3) as u8, Buffered));
        for i in 0..4 {
            ops.push(Append(n, 45_000 + i * 3, (round * 4) as u8 + i as u8, if i == 3 { Durable } else { Buffered }));
        }
        if round % 2 == 0 {
            ops.push(Seal(n, Durable));
        }
        if round == 5 {
            ops.push(Remount);
        }
    }
    ops
}

pub fn random(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut chunks: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
    let mut ops = Vec::new();
    for _ in 0..70 {
        let n = rng.random_range(0..8u64);
        let how = if rng.random_bool(0.5) { Durable } else { Buffered };
        let op = match (chunks.get(&n).copied(), rng.random_range(0..100)) {
            (_, 0..4) => Sync,
            (_, 4..7) => Checkpoint,
            (_, 7..9) => Remount,
            (_, 9..14) => Clean,
            (_, 14..17) => BeginCheckpoint,
            (_, 17..23) => Step,
            (None, _) => {
                chunks.insert(n, (0, false));
                Create(n, rng.random_range(0..3), how)
            }
            (Some(_), 23..32) => {
                chunks.remove(&n);
                Delete(n, how)
            }
            (Some((len, _)), 32..38) => {
                chunks.insert(n, (len, true));
                Seal(n, how)
            }
            (Some((len, false)), _) if len < 100_000 => {
                let more = [1, 100, 4096, 9000, 40_000, 70_000][rng.random_range(0..6)] + rng.random_range(0..50);
                chunks.insert(n, (len + more, false));
                Append(n, more, rng.random(), how)
            }
            _ => Sync,
        };
        ops.push(op);
    }
    ops
}

/// Appends to chunks of all kinds, each durable by itself or not at all, in zones that fill, are cleaned, and get a checkpoint.
pub fn through(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut ops: Vec<Op> = (0..6).map(|n| Create(n, (n % 3) as u8, Buffered)).collect();
    for round in 0..48u64 {
        let n = rng.random_range(0..6);
        let how = if rng.random_bool(0.6) { Durable } else { Buffered };
        ops.push(Append(n, [300, 4096, 9000, 30_000][rng.random_range(0..4)], round as u8, how));
        match round {
            8 | 30 => ops.push(BeginCheckpoint),
            10 | 14 | 33 => ops.push(Step),
            // What is made anew must be found by its second name.
            12 | 22 | 36 => ops.extend([Delete(n, Buffered), Create(n, 1, Buffered), Append(n, 5000, 200, Durable)]),
            20 | 28 | 40 => ops.push(Clean),
            _ => {}
        }
    }
    ops
}

/// Groups of the group commit, written and flushed in every order; then at random, with moves, deletions, names and checkpoints between.
pub fn overlapped(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut ops: Vec<Op> = (0..4).map(|n| Create(n, (n % 3) as u8, Buffered)).collect();
    let mut written = 0u8;
    let mut group = |ops: &mut Vec<Op>| {
        written += 1;
        let n = u64::from(written % 4);
        ops.extend([Append(n, 9000, written, Buffered), Append((n + 1) % 4, 5000, 100 + written, Buffered), Write]);
    };
    for order in [[0, 0], [1, 0]] {
        group(&mut ops);
        group(&mut ops);
        // While two wait, what is durable by itself goes first, too.
        ops.extend([Flush(order[0]), Append(3, 300, 200 + order[0] as u8, Durable), Flush(order[1])]);
        group(&mut ops);
        ops.push(Flush(0));
    }
    for order in [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0], [2, 0, 0], [2, 1, 0]] {
        (0..3).for_each(|_| group(&mut ops));
        ops.extend(order.map(Flush));
    }
    // Chunks that are there, and their lengths.
    let mut there: BTreeMap<u64, u32> = BTreeMap::new();
    let mut held = 0;
    for round in 0..150u64 {
        let n = 10 + rng.random_range(0..8u64);
        let how = if rng.random_bool(0.2) { Durable } else { Buffered };
        match (there.get(&n).copied(), rng.random_range(0..12)) {
            (_, 0..3) if held < 3 => {
                held += 1;
                ops.push(Write);
            }
            (_, 0..5) if held > 0 => {
                ops.push(Flush(rng.random_range(0..held)));
                held -= 1;
            }
            (None, _) => {
                there.insert(n, 30_000);
                ops.extend([Create(n, (n % 3) as u8, Buffered), Append(n, 30_000, round as u8, how)]);
            }
            (Some(_), 5 | 6) => {
                there.remove(&n);
                ops.push(Delete(n, how));
            }
            (_, 7) => ops.push(Clean),
            (_, 8) => ops.extend([BeginCheckpoint, Step]),
            (_, 9) => ops.push(Step),
            (Some(len), _) if len < 100_000 => {
                there.insert(n, len + 20_000);
                ops.push(Append(n, 20_000, round as u8, how));
            }
            _ if round % 5 == 0 => {
                ops.push(Remount);
                held = 0;
            }
            _ => ops.push(Sync),
        }
    }
    ops
}

/// Zones that are half dead, cleaned with checkpoints under way.
pub fn cleaning(_: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for n in 0..16u64 {
        ops.extend([Create(n, (n % 2) as u8, Buffered), Append(n, 30_000 + n as u32, n as u8, Buffered)]);
        if n % 4 == 3 {
            ops.push(Append(n - 2, 20_000, 100 + n as u8, Durable));
        }
    }
    ops.extend((0..16).filter(|n| n % 3 != 0).map(|n| Delete(n, Buffered)));
    ops.extend([Sync, BeginCheckpoint, Clean, Step, Append(15, 5000, 77, Buffered), Clean, Step, Step, Clean]);
    // What was moved goes on growing.
    ops.extend((0..16).step_by(3).map(|n| Append(n, 3000, 50 + n as u8, if n % 2 == 0 { Durable } else { Buffered })));
    ops.extend((20..26).flat_map(|n| [Create(n, 0, Buffered), Append(n, 90_000, n as u8, Durable)]));
    ops.extend([BeginCheckpoint, Step, Clean, Delete(9, Durable), Clean, Step, Step, Step, Clean]);
    ops
}

/// To the last zone, and on after something was deleted.
pub fn full(_: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for n in 0..34u64 {
        ops.extend([Create(n, (n % 3) as u8, Buffered), Append(n, 150_000, n as u8, Durable)]);
    }
    ops.extend((0..34).step_by(3).map(|n| Delete(n, Durable)));
    ops.extend((40..50).flat_map(|n| [Create(n, 1, Buffered), Append(n, 100_000, n as u8, Durable)]));
    ops
}

/// Checkpoints whose pieces see what is not durable yet.
pub fn checkpoints(_: u64) -> Vec<Op> {
    let mut ops = vec![Create(1, 0, Durable), Append(1, 9000, 1, Durable)];
    for round in 0..4u64 {
        let n = 2 + round;
        ops.push(BeginCheckpoint);
        ops.extend([
            Append(1, 5000, 10 + round as u8, Buffered),
            Create(n, 1, Buffered),
            Append(n, 20_000, 3, Buffered),
        ]);
        ops.extend([Step, Seal(n, Buffered), Scrub, Step, Step, Append(1, 3000, 20 + round as u8, Buffered)]);
        if round % 2 == 1 {
            ops.extend([Delete(n - 1, Buffered), BeginCheckpoint, Step, Append(1, 100, 9, Durable), Scrub, Step]);
        }
    }
    ops.extend([Checkpoint, Scrub, Checkpoint]);
    ops
}

/// Names that are given, taken, replaced and lost, before, while and after a checkpoint sees them.
pub fn names(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut ops = Vec::new();
    let mut there = [false; 14];
    for round in 0..90u64 {
        let n = rng.random_range(0..14u64);
        let how = if rng.random_bool(0.3) { Durable } else { Buffered };
        match (there[n as usize], rng.random_range(0..10)) {
            (false, _) => {
                ops.extend([Create(n, (n % 3) as u8, Buffered), Append(n, 9000 + n as u32, round as u8, how)]);
            }
            (true, 0) => ops.push(Delete(n, how)),
            (true, 1) => ops.push(Append(n, 5000, round as u8, how)),
            (true, 2) => ops.push(BeginCheckpoint),
            (true, 3..5) => ops.push(Step),
            (true, 5) if round % 3 == 0 => ops.push(Remount),
            (true, 6) => ops.push(Unname(rng.random_range(0..9))),
            (true, _) => ops.push(Name(
                rng.random_range(0..9),
                1 << n | if rng.random_bool(0.4) { 1 << ((n + 1) % 14) } else { 0 },
            )),
        }
        if round % 9 == 8 {
            ops.extend([BeginCheckpoint, Name(round as u8, 1 << n), Step]);
        }
        there = still_there(&ops);
    }
    ops
}

/// Which chunks there are after these operations, all of which are possible but for namings.
fn still_there(ops: &[Op]) -> [bool; 14] {
    let mut there = [false; 14];
    let mut table = Table::new();
    for op in ops {
        if let Name(n, bits) = op {
            let chunks: Vec<ChunkId> = chunks_of(*bits).into_iter().map(id).collect();
            let splits = |(name, of): (&String, &Vec<(ChunkId, usize)>)| {
                let taken = of.iter().filter(|(id, _)| chunks.contains(id)).count();
                *name != self::name(*n) && taken > 0 && taken < of.len()
            };
            if chunks_of(*bits).iter().any(|n| !there[*n as usize]) || table.iter().any(splits) {
                continue;
            }
        }
        let gone = apply_to_names(&mut table, *op, |_| 0);
        (0..14).filter(|n| gone.contains(&id(*n))).for_each(|n| there[n as usize] = false);
        match op {
            Create(n, ..) => there[*n as usize] = true,
            Delete(n, _) => there[*n as usize] = false,
            _ => {}
        }
    }
    there
}

/// Nothing durable for long: what the journal has not flushed goes on from one metazone to the next.
pub fn unflushed(_: u64) -> Vec<Op> {
    let mut ops = vec![Create(0, 0, Durable)];
    for n in 1..150u64 {
        ops.extend([Create(n, (n % 3) as u8, Buffered), Append(n, 52_000, n as u8, Buffered)]);
        if n > 8 {
            ops.push(Delete(n - 8, Buffered));
        }
    }
    ops
}

/// What is damaged is marked, moved, deleted and made anew, with checkpoints that know of the marks or do not yet.
pub fn damaged(_: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..3u64 {
        for n in [round * 10 + 1, DAMAGED, round * 10 + 70] {
            ops.extend([Create(n, 0, Buffered), Append(n, 9000, n as u8, Buffered), Append(n, 20_000, 7, Durable)]);
        }
        ops.extend([Scrub, BeginCheckpoint, Scrub, Step, Append(DAMAGED, 5000, 3, Durable), Scrub, Step, Checkpoint]);
        ops.extend(
            (round * 10 + 2..round * 10 + 6).flat_map(|n| [Create(n, 0, Buffered), Append(n, 60_000, 9, Buffered)]),
        );
        ops.extend([Scrub, Scrub, Delete(round * 10 + 1, Buffered), Clean, Scrub, Scrub, Checkpoint]);
        match round {
            0 => ops.push(Remount),
            1 => ops.push(Clean),
            _ => ops.push(Seal(DAMAGED, Durable)),
        }
        if round < 2 {
            ops.extend([Delete(DAMAGED, if round == 0 { Durable } else { Buffered }), Scrub]);
        }
    }
    ops.extend([Scrub, Scrub, Scrub, Checkpoint, Delete(80, Durable)]);
    ops
}
