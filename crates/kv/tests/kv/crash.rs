//! A crash at any moment leaves the first so many batches, each whole: all that were synced, and after the death of the process alone all that returned.
//!
//! `IMBREX_KV_STATES` says how many states of a seed each exploration looks at (1,820, some 20,000 in all; on a full drive half, with each policy a fifth), `IMBREX_CRASH_ROUNDS` of how
//! many seeds.

use crate::support::{Append, appended, configs, mixed, options, value};
use imbrex_crashkit::{
    Crash, Entry, FaultKind, FaultPlan, History, Log, Plan, Status, Subject, explore, fault_sweep, seeds,
};
use imbrex_device::{Code, Drive, Error};
use imbrex_kv::policy::ALL;
use imbrex_kv::table::{Compression, TableOptions};
use imbrex_kv::{Batch, Bytewise, Kv, Make, Options, Order};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The keys of a batch, and what becomes of each.
type Op = Vec<(u16, To)>;

#[derive(Clone, Copy, Debug)]
enum To {
    /// A value of so many bytes.
    Value(u16),
    /// The same, but it is ingested; alone in its batch.
    Ingested(u16),
    Gone,
    /// An operand of so many bytes is merged into its value.
    Appended(u8),
    /// It goes, and all keys before this one.
    Range(u16),
    /// All keys of the other space go, and with them that space; alone in its batch.
    Dropped,
    /// A checkpoint keeps what is there; alone in its batch.
    Kept,
    /// The checkpoint of that batch goes; alone in its batch.
    Left(u64),
}

/// Keys with these numbers are in the other space.
fn is_other(key: u16) -> bool {
    key.is_multiple_of(3)
}

/// What is put into one of two spaces.
struct Spaces {
    unnamed: Kv,
    other: Kv,
}

impl Spaces {
    fn of(&self, key: u16) -> &Kv {
        if is_other(key) { &self.other } else { &self.unnamed }
    }
}

struct Random {
    policy: Option<&'static str>,
    /// Of tables.
    compression: Compression,
    /// More than the drive holds is put.
    full: bool,
    keys: u16,
    steps: usize,
}

fn text(error: Error) -> String {
    error.to_string()
}

fn key(n: u16) -> Vec<u8> {
    format!("k{n:04}").into_bytes()
}

fn content(number: u64, key: u16, len: u16) -> Vec<u8> {
    mixed(number << 16 | u64::from(key), len.into())
}

impl Random {
    fn open(&self, drive: &Drive) -> Result<Spaces, String> {
        let table = TableOptions { compression: self.compression, ..options().table };
        let options = Options { policy: self.policy.map(str::to_owned), table, ..options() };
        let unnamed = Kv::open(drive.clone(), options).map_err(text)?;
        let other = self.other(&unnamed)?;
        unnamed.merge_operator(Arc::new(Append { combines: false }));
        Ok(Spaces { unnamed, other })
    }

    fn other(&self, store: &Kv) -> Result<Kv, String> {
        let other = store.space("other", Bytewise.name(), Make::IfMissing).map_err(text)?;
        other.merge_operator(Arc::new(Append { combines: true }));
        Ok(other)
    }

    /// A full drive may have no room for tables, but what was put is there, and can be synced.
    fn may_be_refused(&self, done: imbrex_device::Result<()>) -> Result<(), String> {
        match done {
            Err(error) if self.full && error.code() == Code::NoSpace => Ok(()),
            done => done.map_err(text),
        }
    }

    /// Ingests pairs of one space; each is a batch of its own.
    fn ingest(&self, spaces: &Spaces, rng: &mut ChaCha8Rng, log: &Log<Op>) -> Result<(), String> {
        let most = if self.full { 9000 } else { 3000 };
        let is_other = rng.random();
        let mut keys: Vec<_> = (0..rng.random_range(1..20)).map(|_| rng.random_range(0..self.keys)).collect();
        keys.retain(|key| self::is_other(*key) == is_other);
        keys.sort_unstable();
        keys.dedup();
        let space = if is_other { &spaces.other } else { &spaces.unnamed };
        let (mut ingest, mut numbers) = (space.ingest().map_err(text)?, Vec::new());
        let ingested = || {
            for k in keys {
                let len = rng.random_range(0..most);
                let number = log.begun(vec![(k, To::Ingested(len))]);
                numbers.push(number);
                ingest.put(&key(k), &content(number, k, len))?;
                if rng.random_range(0..6) == 0 {
                    ingest.finish()?;
                }
            }
            ingest.finish()
        };
        let done = ingested();
        for number in &numbers[..ingest.stored() as usize] {
            log.acked(*number);
            log.synced_up_to(*number);
        }
        self.may_be_refused(done)
    }

    fn step(&self, spaces: &mut Spaces, rng: &mut ChaCha8Rng, log: &Log<Op>) -> Result<(), String> {
        let store = &spaces.unnamed;
        match rng.random_range(0..46) {
            0 => self.may_be_refused(store.flush())?,
            1 => self.may_be_refused(store.compact())?,
            2..5 => self.may_be_refused(store.step().map(drop))?,
            5..8 => {
                let last = log.snapshot().len() as u64;
                store.sync().map_err(text)?;
                if last > 0 {
                    log.synced_up_to(last - 1);
                }
            }
            40 => {
                let number = log.begun(vec![(0, To::Dropped)]);
                let done = store.drop_space("other");
                if done.is_ok() {
                    log.acked(number);
                    log.synced_up_to(number);
                }
                self.may_be_refused(done)?;
                spaces.other = self.other(store)?;
            }
            41 => {
                let number = log.begun(vec![(0, To::Kept)]);
                let done = store.checkpoint(&format!("{number}"));
                if done.is_ok() {
                    log.acked(number);
                    log.synced_up_to(number);
                }
                self.may_be_refused(done)?;
            }
            42 => {
                if let Some(name) = store.checkpoints().into_iter().min_by_key(|name| name.len()) {
                    let number = log.begun(vec![(0, To::Left(name.parse().map_err(|_| name.clone())?))]);
                    store.drop_checkpoint(&name).map_err(text)?;
                    log.acked(number);
                    // Also if a batch before it is not.
                    store.sync().map_err(text)?;
                    log.synced_up_to(number);
                }
            }
            43..46 => self.ingest(spaces, rng, log)?,
            _ => {
                let (most, deletes) = if self.full { (9000, 1) } else { (3000, 4) };
                let change = |rng: &mut ChaCha8Rng| {
                    let key = rng.random_range(0..self.keys);
                    let to = match rng.random_range(0..14) {
                        12.. => To::Appended(rng.random_range(0..100)),
                        n if n >= deletes => To::Value(rng.random_range(0..most)),
                        0 => To::Range(key + rng.random_range(1..self.keys / 8)),
                        _ => To::Gone,
                    };
                    (key, to)
                };
                let op: Op = (0..rng.random_range(1..6)).map(|_| change(rng)).collect();
                let number = log.begun(op.clone());
                let mut batch = Batch::new();
                for (k, to) in &op {
                    batch.space(spaces.of(*k));
                    match to {
                        To::Ingested(_) | To::Dropped | To::Kept | To::Left(_) => {}
                        To::Value(len) => batch.put(&key(*k), &content(number, *k, *len)),
                        To::Gone => batch.delete(&key(*k)),
                        To::Appended(len) => batch.merge(&key(*k), &content(number, *k, (*len).into())),
                        To::Range(end) => batch.delete_range(Some(&key(*k)), Some(&key(*end))),
                    }
                }
                let sync = rng.random_range(0..4) == 0;
                match store.write(&batch, sync) {
                    Ok(()) if sync => {
                        log.acked(number);
                        log.synced_up_to(number);
                    }
                    Ok(()) => log.acked(number),
                    Err(error) if self.full && error.code() == Code::NoSpace => {}
                    Err(error) => return Err(text(error)),
                }
            }
        }
        Ok(())
    }
}

/// Whether it is of the other space, and the key.
type Name = (bool, Vec<u8>);

fn name(n: u16) -> Name {
    (is_other(n), key(n))
}

fn contents(spaces: &Spaces) -> Result<BTreeMap<Name, Vec<u8>>, String> {
    let mut all = BTreeMap::new();
    for (is_other, space) in [(false, &spaces.unnamed), (true, &spaces.other)] {
        let mut iter = space.iter().map_err(text)?;
        iter.seek_to_first().map_err(text)?;
        while let Some((key, value)) = iter.get() {
            all.insert((is_other, key.to_vec()), value.to_vec());
            iter.advance().map_err(text)?;
        }
    }
    Ok(all)
}

/// Each checkpoint has what was there when it was made, and those that returned are there. The other space may have been dropped since.
fn checkpoints(spaces: &Spaces, kept: BTreeMap<u64, (Status, BTreeMap<Name, Vec<u8>>)>) -> Result<(), String> {
    let store = &spaces.unnamed;
    let names = store.checkpoints();
    for (number, (status, model)) in &kept {
        let name = format!("{number}");
        if !names.contains(&name) {
            if *status == Status::Begun {
                continue;
            }
            return Err(format!("the checkpoint {name} is lost"));
        }
        let (at, mut found) = (store.at_checkpoint(&name).map_err(text)?, BTreeMap::new());
        let mut iter = store.iter_at(&at).map_err(text)?;
        iter.seek_to_first().map_err(text)?;
        while let Some((key, value)) = iter.get() {
            found.insert((false, key.to_vec()), value.to_vec());
            iter.advance().map_err(text)?;
        }
        if !found.iter().eq(model.iter().filter(|((is_other, _), _)| !is_other)) {
            return Err(format!("the checkpoint {name} has {} keys, but others than it had", found.len()));
        }
    }
    match names.iter().all(|name| name.parse().is_ok_and(|number| kept.contains_key(&number))) {
        true => Ok(()),
        false => Err(format!("checkpoints that nobody made, or that are gone: {names:?}")),
    }
}

/// What is found of the keys that differ, and what there was.
fn differences(found: &BTreeMap<Name, Vec<u8>>, model: &BTreeMap<Name, Vec<u8>>) -> Vec<String> {
    let names: BTreeSet<&Name> = found.keys().chain(model.keys()).collect();
    let differ = names.into_iter().filter(|name| found.get(*name) != model.get(*name));
    let len = |of: &BTreeMap<Name, Vec<u8>>, name: &Name| of.get(name).map(Vec::len);
    differ.map(|name| format!("{name:?}: {:?} bytes, not {:?}", len(found, name), len(model, name))).collect()
}

fn backwards(spaces: &Spaces) -> Result<BTreeMap<Name, Vec<u8>>, String> {
    let mut all = BTreeMap::new();
    for (is_other, space) in [(false, &spaces.unnamed), (true, &spaces.other)] {
        let mut iter = space.iter().map_err(text)?;
        iter.seek_to_last().map_err(text)?;
        while let Some((key, value)) = iter.get() {
            all.insert((is_other, key.to_vec()), value.to_vec());
            iter.retreat().map_err(text)?;
        }
    }
    Ok(all)
}

fn apply(model: &mut BTreeMap<Name, Vec<u8>>, number: u64, op: &Op) {
    for (k, to) in op {
        match to {
            To::Value(len) | To::Ingested(len) => drop(model.insert(name(*k), content(number, *k, *len))),
            To::Gone => drop(model.remove(&name(*k))),
            To::Appended(len) => {
                let operand = content(number, *k, (*len).into());
                let value = appended(model.get(&name(*k)).map(Vec::as_slice), [&operand[..]]);
                model.insert(name(*k), value);
            }
            To::Range(end) => {
                let (first, last) = (name(*k), (is_other(*k), key(*end)));
                model.retain(|at, _| *at < first || *at >= last);
            }
            To::Dropped => model.retain(|(is_other, _), _| !is_other),
            To::Kept | To::Left(_) => {}
        }
    }
}

/// Gives `look` the number of each batch, the batch, and what is there after it.
fn replay(entries: &[Entry<Op>], mut look: impl FnMut(usize, &Entry<Op>, &BTreeMap<Name, Vec<u8>>)) {
    // Pairs that the process died in ingesting: any number of them may be there.
    let is_under_way = |entry: &Entry<Op>| entry.status == Status::Begun && matches!(entry.op[0].1, To::Ingested(_));
    let under_way = entries.iter().rposition(|entry| !is_under_way(entry)).map_or(0, |last| last + 1);
    let mut model = BTreeMap::new();
    for (number, entry) in entries.iter().enumerate() {
        // One that was refused is not there, unless the process died in it.
        if entry.status > Status::Begun || number + 1 == entries.len() || number >= under_way {
            apply(&mut model, number as u64, &entry.op);
        }
        look(number, entry, &model);
    }
}

impl Subject for Random {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        Kv::format(drive, Some([3; 16]), false).map_err(text)?;
        self.open(drive).map(drop)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..3 {
            let mut spaces = self.open(&drive)?;
            (0..self.steps).try_for_each(|_| self.step(&mut spaces, &mut rng, log))?;
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.open(&drive).map(drop)
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        let spaces = self.open(&drive)?;
        let store = &spaces.unnamed;
        if history.fault().is_none() && !store.damage().is_empty() {
            return Err(format!("damage without a fault: {:?}", store.damage()));
        }
        let found = contents(&spaces)?;
        let entries = history.entries();
        let least = history.must_prefix();
        let mut fits = least == 0 && found.is_empty();
        let mut kept = BTreeMap::new();
        replay(entries, |number, entry, model| {
            match entry.op[0].1 {
                To::Kept => drop(kept.insert(number as u64, (entry.status, model.clone()))),
                To::Left(gone) if entry.status == Status::Synced => drop(kept.remove(&gone)),
                // It may be gone.
                To::Left(gone) => {
                    kept.entry(gone).and_modify(|(status, _)| *status = Status::Begun);
                }
                _ => {}
            }
            fits = fits || number + 1 >= least && found == *model;
        });
        if !fits {
            let of = found.len();
            // Of the number of batches that fits best: keys that differ.
            let mut closest: Option<(usize, Vec<String>)> = None;
            replay(entries, |number, _, model| {
                let differs = if number + 1 >= least { differences(&found, model) } else { return };
                if closest.as_ref().is_none_or(|(_, keys)| differs.len() < keys.len()) {
                    closest = Some((number + 1, differs));
                }
            });
            return Err(format!(
                "{crash:?}: {of} keys are those of no number of batches from {least} to {}; the closest number and what differs: {closest:?}",
                entries.len()
            ));
        }
        checkpoints(&spaces, kept)?;
        let problems = store.check().map_err(text)?;
        if history.fault().is_none() && !problems.is_empty() {
            return Err(format!("the check finds {problems:?}"));
        }
        // Also of keys that are not there.
        for name in (0..self.keys).map(name).chain(found.keys().cloned()) {
            let space = if name.0 { &spaces.other } else { store };
            if space.get(&name.1).map_err(text)?.as_ref() != found.get(&name) {
                return Err(format!("a get and an iterator differ about {name:?}"));
            }
        }
        if backwards(&spaces)? != found {
            return Err("an iterator that goes back finds something else".into());
        }
        // It goes on, for longer than its log had been, and what is synced behind a flush is there after a restart.
        let mut found = found;
        for n in 0..24u64 {
            let key = format!("more{}", n % 3).into_bytes();
            match store.put(&key, &value(n, 5000), true) {
                Err(error) if self.full && error.code() == Code::NoSpace => break,
                put => put.map_err(text)?,
            }
            found.insert((false, key), value(n, 5000));
            if n % 8 == 7 {
                self.may_be_refused(store.flush())?;
            }
        }
        drop(spaces);
        let now = contents(&self.open(&drive)?)?;
        if now != found {
            let differ = |name: &&Name| now.get(*name) != found.get(*name);
            let keys: BTreeSet<_> =
                found.keys().chain(now.keys()).filter(differ).map(|(_, key)| String::from_utf8_lossy(key)).collect();
            return Err(format!("after a restart {} keys are there, not {}: {keys:?}", now.len(), found.len()));
        }
        Ok(())
    }
}

/// States of a seed.
fn states() -> u64 {
    std::env::var("IMBREX_KV_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1820)
}

fn explored(drive: usize, full: bool) {
    let (keys, steps) = if full { (900, 120) } else { (60, 60) };
    explored_as(drive, if full { states() / 2 } else { states() }, || Random {
        policy: None,
        compression: Compression::Off,
        full,
        keys,
        steps,
    });
}

fn explored_as(drive: usize, states: u64, subject: impl Fn() -> Random) {
    for seed in seeds(2) {
        let plan = Plan { threads: 2, max_states: states, ..Plan::new(seed) };
        let report = explore(&Arc::new(subject()), &configs()[drive], &plan).unwrap_or_else(|e| panic!("{e}"));
        println!("seed {seed}: {} of {} states", report.states, report.possible);
        assert!(report.states * 3 >= states.min(report.possible) * 2, "{report:?}");
    }
}

#[test]
fn so_it_does_with_each_policy() {
    for (name, _) in ALL {
        explored_as(0, states() / 5, || Random {
            policy: Some(name),
            compression: Compression::Off,
            full: false,
            keys: 200,
            steps: 100,
        });
    }
}

#[test]
fn so_it_does_with_compressed_tables() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        explored_as(0, states() / 10, || Random { policy: None, compression, full: false, keys: 200, steps: 100 });
    }
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_so_many_batches() {
    explored(0, false);
}

#[test]
fn so_it_does_without_a_write_cache() {
    explored(1, false);
}

#[test]
fn so_it_does_where_few_zones_may_be_active() {
    explored(2, false);
}

#[test]
fn so_it_does_on_a_full_drive() {
    explored(0, true);
}

#[test]
fn so_it_does_on_a_full_drive_without_a_write_cache() {
    explored(1, true);
}

#[test]
fn so_it_does_on_a_full_drive_where_few_zones_may_be_active() {
    explored(2, true);
}

#[test]
fn whatever_fails_nothing_that_was_promised_is_lost() {
    for config in configs() {
        for seed in seeds(1) {
            let mut kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
            // Where the label is in sequential zones and one of them has died, the other takes no label any more when it is full.
            kinds.retain(|kind| config.conventional > 0 || *kind != FaultKind::ZoneReadOnly);
            let plan = FaultPlan { threads: 2, max_runs: 200, recoveries: 2, kinds, ..FaultPlan::new(seed) };
            let subject = Random { policy: None, compression: Compression::Off, full: false, keys: 60, steps: 40 };
            let report = fault_sweep(&Arc::new(subject), &config, &plan).unwrap_or_else(|e| panic!("{e}"));
            // A replay is one run, and of one of the drives.
            let replayed = std::env::var_os("IMBREX_FAULT_REPLAY").is_some();
            assert!(report.runs >= 100 || replayed, "{report:?}");
        }
    }
}
