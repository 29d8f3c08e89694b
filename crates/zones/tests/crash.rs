//! Volume, label, pool, streams and survivor under every crash (DESIGN §5): a log whose zones stand in the root blob is
//! appended to, synced, trimmed and its root rewritten; what is left must hold what was promised, byte by byte.

mod support;

use imbrex_crashkit::{Crash, FaultKind, FaultPlan, History, Log, Plan, Subject, explore, fault_sweep, seeds};
use imbrex_device::Drive;
use imbrex_emulator::Config;
use imbrex_zones::write::Framing;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{Engine, Mortal, bytes, config};

#[derive(Clone, Debug)]
enum Op {
    /// The log ends there.
    Append(u64),
    /// The log begins there.
    Trim(u64),
    /// The root has this version.
    Root(u64),
}

struct LogSubject {
    framing: Framing,
    steps: usize,
    /// Rings may fill up, because one of them is alone.
    may_fill: bool,
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl LogSubject {
    fn step(&self, engine: &Engine, rng: &mut ChaCha8Rng, log: &Log<Op>) -> Result<(), String> {
        match rng.random_range(0..10) {
            0..5 => {
                let n = *[1, 300, 4032, 4096, 9000, 17_000, 40_000].get(rng.random_range(0..7usize)).unwrap_or(&1);
                let id = log.begun(Op::Append(engine.stream.len() + n));
                engine.append(n as usize).map_err(text)?;
                log.acked(id);
            }
            5..7 => {
                let last = log.snapshot().len();
                let synced = engine.sync();
                if let Err(error) = synced {
                    // Whoever tries again must not be told that it is safe when it is not.
                    if engine.sync().is_ok() && last > 0 {
                        log.synced_up_to(last as u64 - 1);
                    }
                    return Err(text(error));
                }
                if last > 0 {
                    log.synced_up_to(last as u64 - 1);
                }
            }
            7 => {
                if let Some(base) = engine.trim_to() {
                    let id = log.begun(Op::Trim(base));
                    engine.trim(base).map_err(text)?;
                    log.synced(id);
                }
            }
            8 => {
                let version = engine.root().version + 1;
                let id = log.begun(Op::Root(version));
                engine.keeper.change(|root| root.version = version).map_err(text)?;
                log.synced(id);
            }
            _ => {
                engine.volume.step().map_err(text)?;
            }
        }
        // A root holds so many pieces.
        if engine.root().pieces.len() > 20
            && let Some(base) = engine.trim_to()
        {
            let id = log.begun(Op::Trim(base));
            engine.trim(base).map_err(text)?;
            log.synced(id);
        }
        Ok(())
    }
}

/// Least and most that a kind of operation may have reached.
fn range(history: &History<Op>, value: impl Fn(&Op) -> Option<u64>) -> (u64, u64) {
    let least = history.must().filter_map(&value).max().unwrap_or(0);
    let most = history.entries().iter().filter_map(|e| value(&e.op)).max().unwrap_or(0);
    (least, most)
}

fn within(what: &str, found: u64, (least, most): (u64, u64)) -> Result<(), String> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!("{what} is {found}, but must be {least} to {most}")),
    }
}

fn same(engine: &Engine, end: u64) -> Result<(), String> {
    let base = engine.root().base;
    let found = engine.contents().map_err(text)?;
    let wanted = bytes(base, (end - base) as usize);
    match found.iter().zip(&wanted).position(|(a, b)| a != b) {
        Some(i) => Err(format!("byte {} of the log is wrong", base + i as u64)),
        None if found.len() < wanted.len() => {
            Err(format!("{} of {} bytes are on the drive", found.len(), wanted.len()))
        }
        None => Ok(()),
    }
}

impl Subject for LogSubject {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        support::format(drive).map_err(text)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut engine = Mortal::open(drive.clone(), self.framing)?;
        for step in 0..self.steps {
            if step == self.steps / 2 {
                // A process that dies in the middle of it all, as far as the volume can tell.
                drop(engine);
                engine = Mortal::open(drive.clone(), self.framing)?;
            }
            self.step(&engine, &mut rng, log)?;
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        Engine::open(drive, self.framing).map(drop)
    }

    fn check(&self, drive: Drive, _crash: Crash, history: &History<Op>) -> Result<(), String> {
        // A ring that is alone may be full: then nothing can be changed any more, and everything is there to be read.
        let (engine, full) = match Engine::open(drive.clone(), self.framing) {
            Err(why) if why.contains("back up") => (Engine::look(drive.clone(), self.framing)?, true),
            other => (other?, false),
        };
        let root = engine.root();
        within(
            "the root's version",
            root.version,
            range(history, |op| if let Op::Root(n) = op { Some(*n) } else { None }),
        )?;
        within("the log's base", root.base, range(history, |op| if let Op::Trim(n) = op { Some(*n) } else { None }))?;
        let end = engine.stream.len();
        within("the log's end", end, range(history, |op| if let Op::Append(n) = op { Some(*n) } else { None }))?;
        same(&engine, end)?;
        if full {
            return if self.may_fill { Ok(()) } else { Err("the label can no longer be written".into()) };
        }
        // It goes on working.
        let work = engine.append(5000).and_then(|end| engine.sync().map(|()| end));
        let end = match work.map_err(text) {
            Err(why) if self.may_fill && why.contains("back up") => return Ok(()),
            end => end?,
        };
        engine.volume.quiesce().map_err(text)?;
        drop(engine);
        let engine = match Engine::open(drive.clone(), self.framing) {
            Err(why) if self.may_fill && why.contains("back up") => Engine::look(drive, self.framing)?,
            other => other?,
        };
        match engine.stream.len() {
            len if len == end => same(&engine, end),
            len => Err(format!("after a sync and a reopen the log ends at {len}, not {end}")),
        }
    }
}

const FRAMINGS: [Framing; 2] = [Framing::Framed, Framing::Raw];

fn crashes(framing: Framing) {
    crashes_on(&config(), framing, 3);
}

fn crashes_on(config: &Config, framing: Framing, count: u64) {
    for seed in seeds(count) {
        let plan = Plan { threads: 2, max_states: 800, ..Plan::new(seed) };
        let report = explore(&Arc::new(LogSubject { framing, steps: 40, may_fill: false }), config, &plan).unwrap();
        assert!(report.states >= 500, "{report:?}");
    }
}

#[test]
fn a_framed_log_keeps_its_promises() {
    crashes(Framing::Framed);
}

#[test]
fn a_raw_log_keeps_its_promises() {
    crashes(Framing::Raw);
}

#[test]
fn labels_in_sequential_zones_keep_every_promise() {
    for conventional in [0, 1] {
        crashes_on(&support::with_conventional(conventional), Framing::Framed, 2);
        crashes_on(&Config { write_cache: false, ..support::with_conventional(conventional) }, Framing::Raw, 1);
    }
}

#[test]
fn failing_commands_and_dying_zones_lose_nothing() {
    for framing in FRAMINGS {
        for seed in seeds(1) {
            let plan =
                FaultPlan { threads: 2, max_runs: 500, kinds: FaultKind::PASSING.to_vec(), ..FaultPlan::new(seed) };
            let report =
                fault_sweep(&Arc::new(LogSubject { framing, steps: 40, may_fill: false }), &config(), &plan).unwrap();
            // Some faults end the workload, others the volume gets over.
            assert!(report.refused > 20 && report.runs - report.refused > 20, "{report:?}");
        }
    }
}

/// The drive alone loses power and goes on: from then on no sync succeeds, and a mount finds what was synced before.
#[test]
fn a_drive_that_loses_power_under_a_mount_is_noticed() {
    for framing in FRAMINGS {
        for seed in seeds(1) {
            let plan =
                FaultPlan { threads: 2, max_runs: 500, kinds: FaultKind::POWER.to_vec(), ..FaultPlan::new(seed) };
            let subject = LogSubject { framing, steps: 40, may_fill: false };
            let report = fault_sweep(&Arc::new(subject), &config(), &plan).unwrap();
            assert!(report.refused > 50 && report.runs > 100, "{report:?}");
        }
    }
}

#[test]
fn a_zone_of_the_label_that_dies_in_the_middle_of_an_update_loses_nothing() {
    for conventional in [0, 1, 3] {
        let size = 256 << 10;
        let large = Config {
            capacity: 16 * size,
            zone_size: size,
            zone_capacity: size,
            ..support::with_conventional(conventional)
        };
        for (config, framing) in [(large, Framing::Framed), (support::with_conventional(conventional), Framing::Raw)] {
            for seed in seeds(1) {
                let plan = FaultPlan {
                    threads: 2,
                    max_runs: 300,
                    kinds: vec![FaultKind::ZoneReadOnly],
                    conventional: true,
                    recoveries: 8,
                    ..FaultPlan::new(seed)
                };
                let subject = LogSubject { framing, steps: 40, may_fill: conventional < 2 };
                let report = fault_sweep(&Arc::new(subject), &config, &plan).unwrap();
                // A conventional zone has room for two labels: nobody hears that it is alone.
                assert!(report.runs > 50 && (conventional < 2 || report.refused == 0), "{report:?}");
            }
        }
    }
}
