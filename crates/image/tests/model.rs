//! Images at random against vectors of bytes, and crashes at any moment.
//!
//! `IMBREX_IMAGE_STATES` says how many states of a seed each exploration looks at (1,000), `IMBREX_CRASH_ROUNDS` of how many seeds, `IMBREX_IMAGE_SEEDS` how many seeds the model has (12).

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_bluestore::BlueStore;
use imbrex_crashkit::{Config, Crash, FaultKind, FaultPlan, History, Log, Plan, Subject, explore, fault_sweep, seeds};
use imbrex_device::{Code, Drive, Error};
use imbrex_emulator::Emulator;
use imbrex_image::{DIFF_MAGIC, Images, LimitChange, Survives};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Pieces of 8 KiB.
const ORDER: u8 = 13;
const PIECE: u64 = 1 << ORDER;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const SNAPS: [&str; 4] = ["s", "t", "u", "v"];

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Disk {
    bytes: Vec<u8>,
    snaps: BTreeMap<&'static str, Vec<u8>>,
    /// Image and snapshot.
    parent: Option<(u64, &'static str)>,
    /// Nobody else has or had it.
    id: u64,
    /// Of the bytes that it takes; 0: none.
    limit: u64,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Model {
    disks: BTreeMap<&'static str, Disk>,
    next: u64,
}

#[derive(Clone, Debug)]
enum Op {
    Create(&'static str, u64),
    Write(&'static str, u64, u64, u8),
    Zero(&'static str, u64, u64),
    Resize(&'static str, u64),
    Snapshot(&'static str, &'static str),
    RemoveSnapshot(&'static str, &'static str),
    Rollback(&'static str, &'static str),
    Clone(&'static str, &'static str, &'static str),
    Flatten(&'static str),
    Optimize(&'static str),
    Limit(&'static str, u64),
    Rename(&'static str, &'static str),
    Remove(&'static str),
}

impl Op {
    /// It is durable when it returns.
    fn is_durable(&self) -> bool {
        !matches!(self, Op::Write(..) | Op::Zero(..))
    }
}

fn some<T: Copy>(rng: &mut impl Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

impl Model {
    fn clones(&self, id: u64, snap: &str) -> bool {
        self.disks.values().any(|disk| disk.parent.is_some_and(|(of, at)| of == id && at == snap))
    }

    /// What the operation must lead to.
    fn apply(&mut self, op: &Op) -> Result<(), Code> {
        let there = |model: &Model, name: &str| model.disks.contains_key(name);
        match op.clone() {
            Op::Create(name, size) => {
                if there(self, name) {
                    return Err(Code::Exists);
                }
                self.next += 1;
                self.disks.insert(name, Disk { bytes: vec![0; size as usize], id: self.next, ..Disk::default() });
            }
            Op::Write(name, at, len, seed) => {
                let disk = self.disks.get_mut(name).ok_or(Code::NotFound)?;
                let to = disk.bytes.get_mut(at as usize..(at + len) as usize).ok_or(Code::Range)?;
                to.copy_from_slice(&support::content(len, seed));
            }
            Op::Zero(name, at, len) => {
                let disk = self.disks.get_mut(name).ok_or(Code::NotFound)?;
                disk.bytes.get_mut(at as usize..(at + len) as usize).ok_or(Code::Range)?.fill(0);
            }
            Op::Resize(name, size) => {
                self.disks.get_mut(name).ok_or(Code::NotFound)?.bytes.resize(size as usize, 0);
            }
            Op::Snapshot(name, snap) => {
                let disk = self.disks.get_mut(name).ok_or(Code::NotFound)?;
                if disk.snaps.contains_key(snap) {
                    return Err(Code::Exists);
                }
                disk.snaps.insert(snap, disk.bytes.clone());
            }
            Op::RemoveSnapshot(name, snap) => {
                let id = self.disks.get(name).ok_or(Code::NotFound)?.id;
                let has_clones = self.clones(id, snap);
                let disk = self.disks.get_mut(name).ok_or(Code::NotFound)?;
                if !disk.snaps.contains_key(snap) {
                    return Err(Code::NotFound);
                }
                if has_clones {
                    return Err(Code::Busy);
                }
                disk.snaps.remove(snap);
            }
            Op::Rollback(name, snap) => {
                let disk = self.disks.get_mut(name).ok_or(Code::NotFound)?;
                disk.bytes = disk.snaps.get(snap).ok_or(Code::NotFound)?.clone();
            }
            Op::Clone(name, snap, to) => {
                let disk = self.disks.get(name).ok_or(Code::NotFound)?;
                let bytes = disk.snaps.get(snap).ok_or(Code::NotFound)?.clone();
                if there(self, to) {
                    return Err(Code::Exists);
                }
                let parent = Some((disk.id, snap));
                self.next += 1;
                self.disks.insert(to, Disk { bytes, parent, id: self.next, ..Disk::default() });
            }
            Op::Flatten(name) => self.disks.get_mut(name).ok_or(Code::NotFound)?.parent = None,
            Op::Optimize(name) => drop(self.disks.get(name).ok_or(Code::NotFound)?),
            Op::Limit(name, limit) => self.disks.get_mut(name).ok_or(Code::NotFound)?.limit = limit,
            Op::Rename(name, to) => {
                if !there(self, name) {
                    return Err(Code::NotFound);
                }
                if there(self, to) {
                    return Err(Code::Exists);
                }
                let disk = self.disks.remove(name).ok_or(Code::NotFound)?;
                self.disks.insert(to, disk);
            }
            Op::Remove(name) => {
                let disk = self.disks.get(name).ok_or(Code::NotFound)?;
                if !disk.snaps.is_empty() {
                    return Err(Code::NotEmpty);
                }
                self.disks.remove(name);
            }
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut sum = 0u64;
        let mut add = |bytes: &[u8]| {
            sum = sum.rotate_left(7).wrapping_add(u64::from(crc32c(bytes))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        for (name, disk) in &self.disks {
            add(name.as_bytes());
            add(&disk.bytes);
            add(&(disk.bytes.len() as u64).to_le_bytes());
            for (name, bytes) in &disk.snaps {
                add(name.as_bytes());
                add(bytes);
            }
            add(format!("{} {}", disk.parent.is_some(), disk.limit).as_bytes());
        }
        sum
    }

    /// What the images are.
    fn of(images: &Images) -> Result<Model, Error> {
        let mut model = Model::default();
        let known = |all: &[&'static str], name: &str| all.iter().find(|n| **n == name).copied().unwrap_or("?");
        for name in images.names()? {
            let info = images.info(&name)?;
            let read = |name: &str| {
                let image = images.image(name, true)?;
                let mut bytes = vec![1; image.size()? as usize];
                image.read(0, &mut bytes)?;
                // What is said to be a hole is zeros.
                let (mut at, size) = (0, bytes.len() as u64);
                while at < size {
                    let (stored, len) = image.extent(at, size - at)?;
                    assert!(len > 0 && at + len <= size, "{name}: {len} bytes from {at} on");
                    let zeros = bytes[at as usize..(at + len) as usize].iter().all(|byte| *byte == 0);
                    assert!(stored || zeros, "{name}: bytes are in a hole of {len} bytes from {at} on");
                    at += len;
                }
                Ok::<_, Error>(bytes)
            };
            let limit = info.limits.used.unwrap_or(0);
            let mut disk = Disk { bytes: read(&name)?, limit, ..Disk::default() };
            assert_eq!(disk.bytes.len() as u64, info.size);
            for snap in &info.snapshots {
                let bytes = read(&format!("{name}@{}", snap.name))?;
                disk.snaps.insert(known(&SNAPS, &snap.name), bytes);
            }
            disk.parent = info.parent.map(|parent| (0, known(&SNAPS, &parent.snapshot)));
            model.disks.insert(known(&NAMES, &name), disk);
        }
        Ok(model)
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

fn any_op(rng: &mut impl Rng, model: &Model) -> Op {
    let name = some(rng, &NAMES);
    let (mut snap, mut other) = (some(rng, &SNAPS), some(rng, &NAMES));
    // Mostly what makes sense.
    let there: Vec<_> = model.disks.get(name).map_or(Vec::new(), |disk| disk.snaps.keys().copied().collect());
    let known = (!there.is_empty() && rng.random_bool(0.8)).then(|| some(rng, &there));
    let free: Vec<_> = NAMES.into_iter().filter(|name| !model.disks.contains_key(name)).collect();
    if !free.is_empty() && rng.random_bool(0.8) {
        other = some(rng, &free);
    }
    let size = model.disks.get(name).map_or(0, |disk| disk.bytes.len() as u64);
    let range = |rng: &mut dyn FnMut(u64) -> u64| {
        let at = rng(size + 1);
        let at = if rng(2) == 0 { at / 4096 * 4096 } else { at };
        let most = size - at;
        let len = match rng(3) {
            0 => rng(5000),
            1 => rng(6) * 4096,
            _ => rng(most + 2),
        };
        // A little too long now and then.
        (at, if rng(20) == 0 { len } else { len.min(most) })
    };
    let mut number = |n: u64| rng.random_range(0..n.max(1));
    let (at, len) = range(&mut number);
    let sizes = number(6) * PIECE + if number(2) == 0 { number(PIECE) } else { 0 };
    let kind = rng.random_range(0..50);
    if kind >= 28 {
        snap = known.unwrap_or(snap);
    }
    match kind {
        0..3 => Op::Create(name, sizes),
        3..17 => Op::Write(name, at, len, rng.random()),
        17..22 => Op::Zero(name, at, len),
        22..24 => Op::Resize(name, sizes),
        24..28 => Op::Snapshot(name, snap),
        28..33 => Op::RemoveSnapshot(name, snap),
        33..35 => Op::Rollback(name, snap),
        35..40 => Op::Clone(name, snap, other),
        40 => Op::Flatten(name),
        46..48 => Op::Optimize(name),
        48..50 => Op::Limit(name, at % 3 * 1_000_000_000),
        41..43 => Op::Rename(name, other),
        _ => Op::Remove(name),
    }
}

fn perform(images: &Images, op: &Op) -> Result<(), Error> {
    match *op {
        Op::Create(name, size) => images.create_of(name, size, ORDER),
        Op::Write(name, at, len, seed) => {
            images.image(name, false)?.write(at, &support::content(len, seed), Survives::Process)
        }
        Op::Zero(name, at, len) => images.image(name, false)?.zero(at, len, Survives::Process),
        Op::Resize(name, size) => images.resize(name, size),
        Op::Snapshot(name, snap) => images.snapshot(name, snap),
        Op::RemoveSnapshot(name, snap) => images.remove_snapshot(name, snap),
        Op::Rollback(name, snap) => images.rollback(name, snap),
        Op::Clone(name, snap, to) => images.clone_image(name, snap, to),
        Op::Flatten(name) => images.flatten(name),
        Op::Optimize(name) => images.optimize(name, 100_000, &mut std::io::sink()),
        // More than a model's image takes, so that no write is refused.
        Op::Limit(name, limit) => images.limit(name, LimitChange { used: Some(limit), ..LimitChange::default() }),
        Op::Rename(name, to) => images.rename(name, to),
        Op::Remove(name) => images.remove(name),
    }
}

fn open(drive: &Drive) -> Result<(BlueStore, Images), Error> {
    let store = support::open(drive, Exec::Inline)?;
    let images = Images::open(store.clone(), ())?;
    Ok((store, images))
}

fn same(found: &Model, model: &Model) -> Result<(), String> {
    if found.disks.keys().ne(model.disks.keys()) {
        return Err(format!("{:?} are there", found.disks.keys()));
    }
    for (name, disk) in &model.disks {
        let other = &found.disks[name];
        let moments =
            |disk: &Disk| disk.snaps.clone().into_iter().chain([("", disk.bytes.clone())]).collect::<Vec<_>>();
        for ((snap, bytes), (other_snap, other_bytes)) in moments(disk).into_iter().zip(moments(other)) {
            let at = bytes.iter().zip(&other_bytes).position(|(a, b)| a != b);
            if snap != other_snap || at.is_some() || bytes.len() != other_bytes.len() {
                return Err(format!(
                    "{name}@{snap}: other bytes from {at:?} on, {} of {}",
                    other_bytes.len(),
                    bytes.len()
                ));
            }
        }
        if disk.limit != other.limit {
            return Err(format!("{name} has the limit {}, not {}", other.limit, disk.limit));
        }
        if disk.parent.map(|(_, snap)| snap) != other.parent.map(|(_, snap)| snap) {
            return Err(format!("{name} has another parent"));
        }
    }
    Ok(())
}

#[test]
fn images_are_what_was_done_to_them() {
    let zoned = Config { capacity: 64 << 20, ..support::config() };
    let mut kinds: HashMap<String, u32> = HashMap::new();
    for seed in 0..std::env::var("IMBREX_IMAGE_SEEDS").map_or(12, |n| n.parse().unwrap()) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Every third on a plain disk, in place.
        let is_plain = seed % 3 == 2;
        let conventional = if is_plain { zoned.zones() } else { zoned.conventional };
        let config = Config { conventional, ..zoned.clone() };
        let mut drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        if is_plain {
            support::make_bands(&drive).unwrap();
            drive = support::bands(&drive).unwrap();
        }
        support::format(&drive).unwrap();
        let mut model = Model::default();
        for _ in 0..4 {
            let (store, images) = open(&drive).unwrap();
            for n in 0..150 {
                let op = any_op(&mut rng, &model);
                let mut next = model.clone();
                let expected = next.apply(&op);
                let done = perform(&images, &op).map_err(|error| error.code());
                assert_eq!(done, expected, "seed {seed}, {n}: {op:?}");
                if expected.is_ok() {
                    model = next;
                    *kinds.entry(format!("{op:?}").split('(').next().unwrap().to_owned()).or_default() += 1;
                }
                if n % 10 == 0 {
                    let found = Model::of(&images).unwrap();
                    same(&found, &model).unwrap_or_else(|why| panic!("seed {seed}, {n}: {op:?}: {why}"));
                }
            }
            let report = store.check(true).unwrap();
            assert!(report.wrong.is_empty(), "seed {seed}: {:?}", report.wrong);
        }
        let (_, images) = open(&drive).unwrap();
        same(&Model::of(&images).unwrap(), &model).unwrap_or_else(|why| panic!("seed {seed}, at the end: {why}"));
        // When all are gone nothing is left.
        for (name, disk) in &model.disks {
            images.flatten(name).unwrap();
            assert!(images.info(name).unwrap().parent.is_none(), "{name}");
            assert_eq!(disk.bytes.len() as u64, images.info(name).unwrap().size);
        }
        for (name, disk) in &model.disks {
            disk.snaps.keys().for_each(|snap| images.remove_snapshot(name, snap).unwrap());
            images.remove(name).unwrap();
        }
        let (store, _) = open(&drive).unwrap();
        store.pack().unwrap();
        assert_eq!((store.usage().objects, store.usage().stored + store.usage().deferred), (1, 0), "seed {seed}");
    }
    assert!(kinds.len() == 13 && kinds.values().all(|n| *n > 50), "{kinds:?}");
}

/// Applies a stream of `export_diff` to what was there before.
fn applied(mut diff: &[u8], before: &[u8]) -> Vec<u8> {
    let mut take = |n: usize| {
        let (taken, rest) = diff.split_at(n);
        diff = rest;
        taken
    };
    assert_eq!(take(DIFF_MAGIC.len()), DIFF_MAGIC);
    let mut bytes = before.to_vec();
    loop {
        let tag = take(1)[0];
        let mut number = |n: usize| take(n).iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        match tag {
            b'f' | b't' => {
                let len = number(4) as usize;
                take(len);
            }
            b's' => {
                let size = number(8) as usize;
                bytes.resize(size, 0);
            }
            b'w' | b'z' => {
                let (at, len) = (number(8) as usize, number(8) as usize);
                let new = if tag == b'w' { take(len).to_vec() } else { vec![0; len] };
                bytes[at..at + len].copy_from_slice(&new);
            }
            b'e' => return bytes,
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_diff_leads_from_one_moment_to_the_other() {
    let config = Config { capacity: 64 << 20, ..support::config() };
    let (mut compared, mut saved) = (0, 0);
    for seed in 20..26 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        support::format(&drive).unwrap();
        let (_store, images) = open(&drive).unwrap();
        let mut model = Model::default();
        for n in 0..300 {
            let op = any_op(&mut rng, &model);
            let mut next = model.clone();
            if next.apply(&op).is_ok() {
                perform(&images, &op).unwrap();
                model = next;
            }
            if n % 30 > 0 {
                continue;
            }
            for (name, disk) in &model.disks {
                let names: Vec<_> = disk.snaps.keys().copied().map(Some).chain([None]).collect();
                let bytes = |moment: Option<&str>| moment.map_or(&disk.bytes, |moment| &disk.snaps[moment]);
                for from in &names {
                    for to in &names {
                        let mut diff = Vec::new();
                        images.export_diff(name, *from, *to, &mut diff).unwrap();
                        let empty = Vec::new();
                        let before = if from.is_some() { bytes(*from) } else { &empty };
                        assert!(applied(&diff, before) == *bytes(*to), "seed {seed}, {n}: {name}, {from:?} to {to:?}");
                        compared += 1;
                        saved += u32::from(diff.len() < bytes(*to).len() / 2);
                    }
                }
            }
        }
    }
    assert!(compared > 100 && saved > 30, "{compared}, {saved}");
}

struct Random;

fn text(error: Error) -> String {
    error.to_string()
}

impl Subject for Random {
    type Op = u64;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        support::format(drive).map_err(text)?;
        open(drive).map(drop).map_err(text)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<u64>) -> Result<(), String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut model = Model::default();
        for _ in 0..2 {
            let (store, images) = open(&drive).map_err(text)?;
            for _ in 0..40 {
                if rng.random_bool(0.1) {
                    store.clean(rng.random_range(1..200_000)).map_err(text)?;
                }
                let op = any_op(&mut rng, &model);
                let mut next = model.clone();
                if next.apply(&op).is_err() {
                    continue;
                }
                let id = log.begun(next.digest());
                perform(&images, &op).map_err(text)?;
                model = next;
                log.acked(id);
                if op.is_durable() && !matches!(op, Op::Flatten(_)) {
                    log.synced_up_to(id);
                }
                if rng.random_bool(0.1) {
                    let Some(name) = model.disks.keys().next() else { continue };
                    images.image(name, true).and_then(|image| image.flush()).map_err(text)?;
                    log.synced_up_to(id);
                }
            }
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        let (_store, images) = open(&drive).map_err(text)?;
        images.names().map_err(text)?.iter().try_for_each(|name| images.info(name).map(drop).map_err(text))
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<u64>) -> Result<(), String> {
        let (store, images) = open(&drive).map_err(text)?;
        let mut model = Model::of(&images).map_err(text)?;
        let (found, entries) = (model.digest(), history.entries());
        let least = history.must_prefix();
        let after = |n: usize| if n == 0 { Model::default().digest() } else { entries[n - 1].op };
        if !(least..=entries.len()).any(|n| after(n) == found) {
            let earlier = (0..least).find(|n| after(*n) == found);
            return Err(format!("images are as after {earlier:?} operations of {}, at least {least}", entries.len()));
        }
        // It goes on. Whose clones there are the model does not know now.
        let mut rng = ChaCha8Rng::seed_from_u64(found);
        for _ in 0..6 {
            let op = any_op(&mut rng, &model);
            let mut next = model.clone();
            if matches!(op, Op::RemoveSnapshot(..)) || next.apply(&op).is_err() {
                continue;
            }
            perform(&images, &op).map_err(|error| format!("after the crash, {op:?}: {error}"))?;
            model = next;
        }
        same(&Model::of(&images).map_err(text)?, &model)?;
        let report = store.check(true).map_err(text)?;
        if report.wrong.is_empty() { Ok(()) } else { Err(format!("{:?}", report.wrong)) }
    }
}

fn states() -> u64 {
    std::env::var("IMBREX_IMAGE_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_operations_and_those_that_were_promised() {
    for config in [support::config(), Config { write_cache: false, ..support::config() }] {
        for seed in seeds(2) {
            let plan = Plan { threads: 2, max_states: states(), ..Plan::new(seed) };
            let report = explore(&Arc::new(Random), &config, &plan).unwrap_or_else(|failure| panic!("{failure}"));
            println!("seed {seed}: {} of {} states", report.states, report.possible);
            assert!(report.states * 3 >= states().min(report.possible) * 2, "{report:?}");
        }
    }
}

#[test]
fn whatever_fails_nothing_that_was_durable_is_lost() {
    for seed in seeds(1) {
        let kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
        let plan = FaultPlan { threads: 2, max_runs: 200, recoveries: 2, kinds, ..FaultPlan::new(seed) };
        let report =
            fault_sweep(&Arc::new(Random), &support::config(), &plan).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.runs >= 100, "{report:?}");
    }
}
