//! `kv-ycsb`: YCSB's core workloads on a store that was loaded, with the policies that the papers have and with the store's own.
//!
//! A read keeps its size whatever the scale, and so the way to it is the real one. What is written in the background is divided by the scale, and so must its ways
//! be. So each row is carried out twice, with the same operations: on a drive with real mechanics, of which the reads of users count, and on one with mechanics
//! that are divided, of which the rest counts. One thread does everything, so both do the same.

use super::chart::{Axis, Chart, Shape};
use super::kv_store::{At, CACHE, DRIVE, KEY, MEMTABLE, MIB, Plan as Load, Store, VALUE, ZONE};
use super::result::Row;
use super::virtual_clock::why;
use super::ycsb::{Operation, Operations, Workload, hash};
use super::{Experiment, Needs, Options, Run, Stop};
use imbrex_emulator::Emulator;
use imbrex_emulator::time::Mechanics;
use imbrex_kv::policy::{Active, Gear, Sizes};
use imbrex_kv::{MakePolicy, Options as KvOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-ycsb",
    about: "YCSB A to F on a loaded key-value store, with ring, GearDB's, SMRDB's and levelled compaction",
    paper: "GearDB (FAST 2019), Figure 13; SMRDB (SYSTOR 2015), Figure 14",
    speed: 1.0,
    rows: |_| plans().into_iter().map(|plan| plan.name.to_owned()).collect(),
    extra: super::NONE,
    needs: |options| Needs { work: 0, memory: u64::from(ZONES) * ZONE / u64::from(options.scale) * 2 + (1 << 30) },
    run,
};

/// So many records are what GearDB's random load of 80 GB leaves: 54 GB.
const RECORDS: u64 = 13_000_000;
const OPERATIONS: u64 = 1_280_000;
/// Gear and band need more room than ring, and this is about space only in that each has the same.
const ZONES: u32 = 400;
/// In the order that YCSB's wiki has: what inserts comes last.
const ORDER: [&str; 6] = ["A", "B", "C", "F", "D", "E"];
const USER: &str = "user_read";

struct Plan {
    name: &'static str,
    policy: &'static str,
    make: Option<MakePolicy>,
}

fn plans() -> Vec<Plan> {
    let code: MakePolicy = Arc::new(|sizes: Sizes| Box::new(Gear { active: Active::Code, ..Gear::new(sizes) }));
    let plan = |name, policy, make| Plan { name, policy, make };
    vec![
        plan("ring", "ring", None),
        plan("gear as in the paper", "gear", None),
        plan("gear as in the code", "gear", Some(code)),
        plan("band", "band", None),
        plan("levels without windows", "leveled", None),
    ]
}

/// The key of a record: YCSB hashes its number, so records are loaded in random order.
fn key(record: u64) -> [u8; KEY as usize] {
    let mut key = *b"user0000\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&hash(record).to_be_bytes());
    key
}

/// What a workload took, on one of the two drives.
#[derive(Clone, Default)]
struct Took {
    by_cause: BTreeMap<&'static str, f64>,
    counts: imbrex_emulator::Counts,
    /// Commands of those that read which were for users.
    user_reads: u64,
    /// Puts, reads and scans.
    done: [u64; 3],
}

/// The moment at which a part begins.
fn begin(store: &mut Store) -> (At, u64) {
    (store.start(), user_reads(store))
}

fn user_reads(store: &Store) -> u64 {
    store.drive.stats().by_cause.get(USER).map_or(0, |counts| counts.reads)
}

fn since(store: &Store, (begun, reads): &(At, u64), done: [u64; 3]) -> Took {
    let now = store.at();
    let counts = now.counts.since(&begun.counts);
    Took { by_cause: now.spent_since(begun), counts, user_reads: user_reads(store) - reads, done }
}

/// The load, settling, and each workload, with these mechanics.
fn play(
    plan: &Plan,
    mechanics: Mechanics,
    options: &Options,
    stopped: &dyn Fn() -> bool,
) -> Result<(Vec<Took>, Vec<String>), Stop> {
    let scale = u64::from(options.scale);
    let part = |count: u64| count / scale / if options.short { 20 } else { 1 };
    let config = Store::drive(options.scale, ZONES, ZONE / scale, mechanics)?;
    let kv = KvOptions {
        policy: Some(plan.policy.to_owned()),
        make_policy: plan.make.clone(),
        ..Store::options(&Load::ring(0), options)
    };
    let mut store = Store::with(Emulator::memory(&config).map_err(why)?, None, kv, options.scale)?;
    let records = part(RECORDS);
    let mut all = Vec::new();
    let begun = begin(&mut store);
    for record in 0..records {
        if record % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        store.put_key(&key(record))?;
    }
    all.push(since(&store, &begun, [records, 0, 0]));
    let begun = begin(&mut store);
    while store.kv.step().map_err(why)? {}
    all.push(since(&store, &begun, [0; 3]));
    let mut there = records;
    for (n, name) in ORDER.iter().enumerate() {
        let Some((workload, _)) = Workload::ALL.iter().find(|(_, known)| known == name) else { continue };
        let count = part(OPERATIONS) / if *workload == Workload::E { 4 } else { 1 };
        let mut operations = Operations::new(*workload, there, count, n as u64 + 1);
        let (begun, mut done) = (begin(&mut store), [0; 3]);
        for at in 0..count {
            if at % 256 == 0 && stopped() {
                return Err(Stop::Interrupted);
            }
            match operations.next() {
                Operation::Read(record) => {
                    read(&store, record)?;
                    done[1] += 1;
                }
                Operation::Update(record) => {
                    store.put_key(&key(record))?;
                    done[0] += 1;
                }
                Operation::Insert(record) => {
                    store.put_key(&key(record))?;
                    (done[0], there) = (done[0] + 1, record + 1);
                }
                Operation::Change(record) => {
                    read(&store, record)?;
                    store.put_key(&key(record))?;
                    done = [done[0] + 1, done[1] + 1, done[2]];
                }
                Operation::Scan(record, long) => {
                    let mut iter = store.kv.iter().map_err(why)?;
                    iter.seek(&key(record)).map_err(why)?;
                    for _ in 1..long {
                        iter.advance().map_err(why)?;
                    }
                    done[2] += 1;
                }
            }
        }
        all.push(since(&store, &begun, done));
    }
    Ok((all, store.kv.check().map_err(why)?))
}

fn read(store: &Store, record: u64) -> Result<(), Stop> {
    match store.kv.get(&key(record)).map_err(why)? {
        Some(value) if value.len() == VALUE => Ok(()),
        _ => Err("a record that was put is not there; look into that first".into()),
    }
}

/// Seconds of the drive: of the user's reads with real mechanics, and of the rest with those that are divided.
fn seconds(real: &Took, scaled: &Took) -> f64 {
    let reads = real.by_cause.get(USER).copied().unwrap_or(0.0);
    let rest: f64 = scaled.by_cause.iter().filter(|(cause, _)| **cause != USER).map(|(_, spent)| spent).sum();
    reads + rest
}

fn row(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let (real, wrong) = play(plan, Mechanics::Real, options, stopped)?;
    let (scaled, more) = play(plan, Mechanics::Scaled, options, stopped)?;
    let mut row = Row { rule: "reads with real mechanics, the rest all scaled".into(), ..Row::new("", DRIVE) };
    row.invalid.extend(wrong.into_iter().chain(more));
    // The clock decides nothing of what the store does.
    let differ = |(real, scaled): (&Took, &Took)| real.counts.bytes_written != scaled.counts.bytes_written;
    if real.iter().zip(&scaled).any(differ) {
        row.invalid.push("the two runs did not do the same; look into that first".into());
    }
    let scale = f64::from(options.scale);
    let record = KEY + VALUE as u64;
    let busy = |took: &Took| took.by_cause.values().sum::<f64>();
    row.operations = Some(real.iter().map(|took| took.done.iter().sum::<u64>()).sum());
    row.device_seconds = Some(real.iter().zip(&scaled).map(|(real, scaled)| seconds(real, scaled)).sum());
    row.figures.extend([
        ("load: s at full size".to_owned(), busy(&scaled[0]) * scale),
        ("load: ops/s".to_owned(), scaled[0].done[0] as f64 / busy(&scaled[0]).max(1e-9)),
        ("load: WA".to_owned(), scaled[0].counts.bytes_written as f64 / (scaled[0].done[0] * record) as f64),
        ("settling: s at full size".to_owned(), busy(&scaled[1]) * scale),
    ]);
    for (name, (real, scaled)) in ORDER.iter().zip(real.iter().zip(&scaled).skip(2)) {
        let [puts, reads, scans] = real.done;
        let count = (puts + reads + scans - if *name == "F" { puts } else { 0 }) as f64;
        let all = seconds(real, scaled).max(1e-9);
        row.figures.insert(format!("{name}: ops/s"), count / all);
        row.figures.insert(format!("{name}: ops/s, all mechanics real"), count / busy(real).max(1e-9));
        let of_reads = real.by_cause.get(USER).copied().unwrap_or(0.0);
        row.figures.insert(format!("{name}: part of the time in the user's reads, %"), of_reads / all * 100.0);
        if puts > 0 {
            row.figures.insert(format!("{name}: WA"), real.counts.bytes_written as f64 / (puts * record) as f64);
        }
        if reads + scans > 0 {
            let each = real.user_reads as f64 / (reads + scans) as f64;
            row.figures.insert(format!("{name}: reads of the drive, a get or scan"), each);
        }
    }
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("one thread on the drive's own clock: it is always the same");
    let part = |count: u64| count / u64::from(run.options.scale);
    run.setting("record", format!("{KEY} + {VALUE} bytes, not compressible; keys are hashes of the records' numbers"));
    run.setting("records", part(RECORDS));
    run.setting("operations of each workload; a quarter in E", part(OPERATIONS));
    run.setting("order", format!("load, settling, then {} on the same store", ORDER.join(", ")));
    run.setting("generator", "by the rules of YCSB's core 0.17.0; tests hold it to what that gives out");
    run.setting(
        "memory at full size, in every row",
        format!("memtable {} MiB, cache {} MiB; tables and steps of 64 MiB", MEMTABLE / MIB, CACHE / MIB),
    );
    run.setting("log", "written, and counted; all puts unsynced");
    run.setting("drive", format!("{ZONES} zones of 256 MiB at full size"));
    let plans = plans();
    let names: Vec<String> = plans.iter().map(|plan| plan.name.to_owned()).collect();
    let each = u64::from(ZONES) * ZONE / u64::from(run.options.scale) + (1 << 28);
    let options = run.options.clone();
    run.at_once(&names, each, |at, stopped| Ok((row(&plans[at], &options, stopped)?, ())))?;
    for workload in ORDER {
        let figure = format!("{workload}: ops/s");
        let rate = |name: &String| Some((name.clone(), *run.measured(name)?.figures.get(&figure)?, None));
        let bars: Vec<_> = names.iter().filter_map(rate).collect();
        run.outcome.charts.push(Chart {
            file: format!("ycsb-{}", workload.to_lowercase()),
            title: format!("YCSB {workload}"),
            x: Axis::even(""),
            y: Axis::even("operations/s of the drive"),
            shape: Shape::Bars(bars),
        });
    }
    Ok(())
}
