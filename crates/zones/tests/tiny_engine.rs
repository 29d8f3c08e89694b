//! The [tiny engine](tiny) keeps its promises: after a crash at any moment, when any command fails, on a full drive, and with few active zones.

mod tiny;

use imbrex_crashkit::{Config, Crash, FaultKind, FaultPlan, History, Log, Plan, Subject, explore, fault_sweep, seeds};
use imbrex_device::{Drive, Error, Fault};
use imbrex_emulator::Emulator;
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use tiny::Tiny;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// An item of this number and length.
    Append(u64, usize),
    Delete(u64),
}

fn content(id: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (id.wrapping_mul(31) ^ i.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect()
}

fn text(error: Error) -> String {
    error.to_string()
}

fn open(drive: &Drive, exec: Exec) -> Result<Tiny, String> {
    let options = VolumeOptions { exec, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    Volume::open(drive.clone(), options).and_then(|volume| Tiny::open(&volume)).map_err(text)
}

/// 32 zones of 64 KiB, two of them conventional.
fn config() -> Config {
    Config { zone_size: 64 << 10, zone_capacity: 64 << 10, capacity: 2 << 20, conventional: 2, ..Config::tiny() }
}

/// The label, the log's ring, the cleaner and the leader have what they need, and no more.
fn few_active() -> Config {
    Config {
        conventional: 0,
        max_open: Some(6),
        max_active: Some(6),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        zone_capacity: 60 << 10,
        ..config()
    }
}

fn drives() -> [Config; 3] {
    [config(), Config { write_cache: false, ..config() }, few_active()]
}

/// Appends, deletes and cleans, in any order; more than the drive holds, if it is to be `full`.
struct Random {
    full: bool,
}

impl Random {
    fn step(&self, tiny: &Tiny, rng: &mut ChaCha8Rng, log: &Log<Op>) -> Result<(), String> {
        let ids = tiny.ids();
        let deletes = if self.full { 3 } else { 7 };
        match rng.random_range(0..20) {
            n if n < deletes && !ids.is_empty() => {
                let id = ids[rng.random_range(0..ids.len())];
                let op = log.begun(Op::Delete(id));
                tiny.delete(id).map_err(text)?;
                log.synced(op);
            }
            17 => drop(tiny.clean().map_err(text)?),
            18 => drop(tiny.tenant.volume().step().map_err(text)?),
            _ => {
                let most = if self.full { 60_000 } else { 9_000 };
                let (id, len) = (tiny.next(), rng.random_range(0..most));
                let op = log.begun(Op::Append(id, len));
                match tiny.append(&content(id, len)) {
                    Ok(given) => {
                        assert_eq!(given, id);
                        log.synced(op);
                    }
                    Err(error) if matches!(error.fault, Fault::NoSpace) => {}
                    Err(error) => return Err(text(error)),
                }
            }
        }
        Ok(())
    }
}

impl Subject for Random {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        let tenants = vec![TenantSpec { name: tiny::NAME.into(), budget: tiny::BUDGET }];
        Volume::format(drive, &FormatOptions { uuid: Some([3; 16]), tenants, force: false }).map_err(text)?;
        open(drive, Exec::Inline).map(drop)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..3 {
            let tiny = open(&drive, Exec::Inline)?;
            (0..25).try_for_each(|_| self.step(&tiny, &mut rng, log))?;
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        open(&drive, Exec::Inline).map(drop)
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<Op>) -> Result<(), String> {
        let context = |why: String| format!("{why}\nof {:?}", history.entries());
        let tiny = open(&drive, Exec::Inline).map_err(context)?;
        if history.fault().is_none() && !tiny.damage.is_empty() {
            return Err(context(format!("damage without a fault: {:?}", tiny.damage)));
        }
        // What may be there, what must be, and what must not.
        let (mut may, mut must) = (BTreeMap::new(), BTreeMap::new());
        for entry in history.entries() {
            match entry.op {
                Op::Append(id, len) => {
                    may.insert(id, len);
                    if history.is_must(entry) {
                        must.insert(id, len);
                    }
                }
                Op::Delete(id) => {
                    must.remove(&id);
                    if history.is_must(entry) {
                        may.remove(&id);
                    }
                }
            }
        }
        let found = tiny.ids();
        if let Some(lost) = must.keys().find(|id| !found.contains(id)) {
            return Err(context(format!("item {lost} is lost")));
        }
        for id in &found {
            let bytes = tiny.read(*id).map_err(text)?.unwrap_or_default();
            if may.get(id).is_none_or(|len| bytes != content(*id, *len)) {
                return Err(context(format!("item {id} has {} bytes, and may have {:?}", bytes.len(), may.get(id))));
            }
        }
        // It goes on.
        let more = match tiny.append(&content(0, 5000)) {
            Ok(id) => Some(id),
            Err(error) if self.full && matches!(error.fault, Fault::NoSpace) => None,
            Err(error) => return Err(context(format!("after the crash: {error}"))),
        };
        drop(tiny);
        let tiny = open(&drive, Exec::Inline).map_err(context)?;
        let now: Vec<u64> = found.into_iter().chain(more).collect();
        if tiny.ids() != now {
            return Err(context(format!("after a restart there are {:?}, not {now:?}", tiny.ids())));
        }
        match more.map(|id| tiny.read(id)).transpose().map_err(text)?.flatten() {
            Some(bytes) if bytes != content(0, 5000) => Err("what was appended after the crash is not there".into()),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_crash_at_any_moment_leaves_what_was_promised() {
    for (config, full) in drives().into_iter().flat_map(|config| [(config.clone(), false), (config, true)]) {
        for seed in seeds(2) {
            let plan = Plan { threads: 2, max_states: 300, ..Plan::new(seed) };
            let report = explore(&Arc::new(Random { full }), &config, &plan).unwrap_or_else(|e| panic!("{full}: {e}"));
            assert!(report.states >= 200, "{report:?}");
        }
    }
}

#[test]
fn whatever_fails_nothing_that_was_promised_is_lost() {
    for config in drives() {
        for seed in seeds(1) {
            let mut kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
            // Where the label is in sequential zones and one of them has died, the other takes no label any more when it is full.
            kinds.retain(|kind| config.conventional > 0 || *kind != FaultKind::ZoneReadOnly);
            let plan = FaultPlan { threads: 2, max_runs: 300, recoveries: 2, kinds, ..FaultPlan::new(seed) };
            let report = fault_sweep(&Arc::new(Random { full: false }), &config, &plan).unwrap();
            assert!(report.runs >= 100, "{report:?}");
        }
    }
}

/// Zones move to and fro for ever, if what lives in two of them does not fit in one.
#[test]
fn mounts_that_write_little_do_not_fill_the_log() {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator), survivor: None };
    let tenants = vec![TenantSpec { name: tiny::NAME.into(), budget: tiny::BUDGET }];
    Volume::format(&drive, &FormatOptions { uuid: None, tenants, force: false }).unwrap();
    // The log has four zones of 64 KiB, and each mount writes one group.
    for round in 0..200u64 {
        let tiny = open(&drive, Exec::Inline).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let done = match tiny.ids().first() {
            Some(id) => tiny.delete(*id),
            None => tiny.append(&content(round, 100)).map(drop),
        };
        done.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

#[test]
fn on_a_full_drive_an_append_is_refused_in_the_end() {
    for config in drives() {
        for seed in seeds(40) {
            let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
            Random { full: true }.format(&drive).unwrap();
            let tiny = open(&drive, Exec::Inline).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut refused = false;
            while !refused {
                match tiny.append(&content(tiny.next(), rng.random_range(0..60_000))) {
                    Err(error) if matches!(error.fault, Fault::NoSpace) => refused = true,
                    appended => drop(appended.unwrap()),
                }
            }
        }
    }
}

#[test]
fn threads_share_flushes_and_read_what_others_append_while_it_is_cleaned() {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Random { full: false }.format(&drive).unwrap();
    let tiny = open(&drive, Exec::Threads(1)).unwrap();
    let left: Vec<u64> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let tiny = &tiny;
            move || {
                let mut mine = Vec::new();
                for n in 0..120 {
                    let bytes = vec![thread as u8 + 1; 500 + 40 * n];
                    mine.push((tiny.append(&bytes).unwrap(), bytes));
                    if mine.len() > 6 {
                        let (id, bytes) = mine.remove(n % 5);
                        assert_eq!(tiny.read(id).unwrap(), Some(bytes));
                        tiny.delete(id).unwrap();
                    }
                    if n % 10 == thread {
                        tiny.clean().unwrap();
                    }
                }
                mine.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    drop(tiny);
    let tiny = open(&drive, Exec::Inline).unwrap();
    let mut left = left;
    left.sort_unstable();
    assert_eq!(tiny.ids(), left);
    assert!(left.iter().all(|id| tiny.read(*id).unwrap().is_some_and(|bytes| !bytes.is_empty())));
}
