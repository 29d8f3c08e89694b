//! `kv-ycsb`: YCSB's core workloads on a store that was loaded, with the policies that the papers have and with the store's own.
//!
//! A read keeps its size whatever the scale, and so the way to it is the real one. What is written in the background is divided by the scale, and so must its ways
//! be. So each row is carried out twice, with the same operations: on a drive with real mechanics, of which the reads of users count, and on one with mechanics
//! that are divided, of which the rest counts. One thread does everything, so both do the same. Stock LevelDB and RocksDB on bluefs get the same operations, and
//! are measured by the same rule ([`super::kv_driven`]).

use super::chart::{Axis, Chart, Shape};
use super::kv_driven::{Driven, Plan as StockPlan, Side, Spent, Stock, space};
use super::kv_store::{CACHE, DRIVE, KEY, MEMTABLE, MIB, Plan as Load, Store, VALUE, ZONE};
use super::result::{Ratio, Row};
use super::rocks::Pace;
use super::virtual_clock::why;
use super::ycsb::{Operation, Operations, Workload, hash};
use super::{Experiment, Needs, Options, Run, Stop};
use imbrex_emulator::Emulator;
use imbrex_emulator::time::Mechanics;
use imbrex_kv::policy::{Active, Gear, Sizes};
use imbrex_kv::{MakePolicy, Options as KvOptions};
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-ycsb",
    about: "YCSB A to F on a loaded key-value store, with ring, GearDB's, SMRDB's and levelled compaction, and on stock LevelDB and RocksDB",
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
/// With this row the others are compared.
const RING: &str = "ring";
/// Bytes written in the two runs of a row differ by no more than this part. Those of the store do not differ at all; of stock stores the background has threads.
const SAME: f64 = 0.03;

struct Plan {
    name: &'static str,
    store: What,
}

enum What {
    /// The key-value store with this policy.
    Kv(&'static str, Option<MakePolicy>),
    Stock(Stock),
}

fn plans() -> Vec<Plan> {
    let code: MakePolicy = Arc::new(|sizes: Sizes| Box::new(Gear { active: Active::Code, ..Gear::new(sizes) }));
    let plan = |name, policy, make| Plan { name, store: What::Kv(policy, make) };
    let stock = |name, store| Plan { name, store: What::Stock(store) };
    vec![
        plan(RING, "ring", None),
        plan("gear as in the paper", "gear", None),
        plan("gear as in the code", "gear", Some(code)),
        plan("band", "band", None),
        plan("levels without windows", "leveled", None),
        stock("LevelDB on bluefs", Stock::LevelDb),
        stock("RocksDB on bluefs", Stock::RocksDb),
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
    spent: Spent,
    /// Puts, reads and scans.
    done: [u64; 3],
}

/// The store of a row, on a new drive.
fn side(plan: &Plan, mechanics: Mechanics, options: &Options) -> Result<Box<dyn Side>, Stop> {
    let scale = u64::from(options.scale);
    let config = Store::drive(options.scale, ZONES, ZONE / scale, mechanics)?;
    match &plan.store {
        What::Kv(policy, make) => {
            let kv = KvOptions {
                policy: Some((*policy).to_owned()),
                make_policy: make.clone(),
                ..Store::options(&Load::ring(0), options)
            };
            Ok(Box::new(Store::with(Emulator::memory(&config).map_err(why)?, None, kv, options.scale)?))
        }
        What::Stock(store) => {
            let plan = StockPlan {
                store: *store,
                memtable: MEMTABLE / scale,
                // Compactions overshoot by half a per cent.
                table: ZONE / scale / 100 * 98,
                scale: options.scale,
                // Reads of users keep their size.
                io_scale: if mechanics == Mechanics::Real { 1 } else { options.scale },
                pace: Pace::Account,
            };
            Ok(Box::new(Driven::new(&plan, &config, options)?))
        }
    }
}

/// The load, settling, and each workload, with these mechanics. What a row has beside the times is filled in.
fn play(
    plan: &Plan,
    mechanics: Mechanics,
    options: &Options,
    row: &mut Row,
    stopped: &dyn Fn() -> bool,
) -> Result<Vec<Took>, Stop> {
    let part = |count: u64| count / u64::from(options.scale) / if options.short { 20 } else { 1 };
    let mut store = side(plan, mechanics, options)?;
    let store = store.as_mut();
    let records = part(RECORDS);
    let mut all = Vec::new();
    let mut begun = store.spent()?;
    for record in 0..records {
        if record % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        store.put(&key(record), VALUE, false)?;
    }
    let mut took = |store: &dyn Side, done| -> Result<(), Stop> {
        let now = store.spent()?;
        all.push(Took { spent: now.since(&begun), done });
        begun = now;
        Ok(())
    };
    took(store, [records, 0, 0])?;
    store.settle()?;
    took(store, [0; 3])?;
    let mut there = records;
    for (n, name) in ORDER.iter().enumerate() {
        let Some((workload, _)) = Workload::ALL.iter().find(|(_, known)| known == name) else { continue };
        let count = part(OPERATIONS) / if *workload == Workload::E { 4 } else { 1 };
        let mut operations = Operations::new(*workload, there, count, n as u64 + 1);
        let mut done = [0; 3];
        for at in 0..count {
            if at % 256 == 0 && stopped() {
                return Err(Stop::Interrupted);
            }
            operate(store, operations.next(), &mut done, &mut there)?;
        }
        took(store, done)?;
    }
    row.invalid.extend(store.check()?);
    store.fill(row);
    space(row, store, there * (KEY + VALUE as u64), ZONE / u64::from(options.scale));
    Ok(all)
}

/// Does one operation, and counts what it is.
fn operate(store: &mut dyn Side, operation: Operation, done: &mut [u64; 3], there: &mut u64) -> Result<(), Stop> {
    match operation {
        Operation::Read(record) => {
            read(store, record)?;
            done[1] += 1;
        }
        Operation::Update(record) => {
            store.put(&key(record), VALUE, false)?;
            done[0] += 1;
        }
        Operation::Insert(record) => {
            store.put(&key(record), VALUE, false)?;
            (done[0], *there) = (done[0] + 1, record + 1);
        }
        Operation::Change(record) => {
            read(store, record)?;
            store.put(&key(record), VALUE, false)?;
            *done = [done[0] + 1, done[1] + 1, done[2]];
        }
        Operation::Scan(record, long) => {
            store.scan(&key(record), long)?;
            done[2] += 1;
        }
    }
    Ok(())
}

fn read(store: &mut dyn Side, record: u64) -> Result<(), Stop> {
    match store.get(&key(record))? {
        Some(VALUE) => Ok(()),
        _ => Err("a record that was put is not there; look into that first".into()),
    }
}

/// Seconds of the drive: of the user's reads with real mechanics, and of the rest with those that are divided.
fn seconds(real: &Took, scaled: &Took) -> f64 {
    real.spent.user + scaled.spent.seconds - scaled.spent.user
}

fn row(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let mut row = Row { rule: "reads with real mechanics, the rest all scaled".into(), ..Row::new("", DRIVE) };
    let real = play(plan, Mechanics::Real, options, &mut row, stopped)?;
    let scaled = play(plan, Mechanics::Scaled, options, &mut row, stopped)?;
    // The clock decides nothing of what the store does.
    let written = |took: &Took| took.spent.counts.bytes_written;
    let (one, other) = (real.iter().map(written).sum::<u64>(), scaled.iter().map(written).sum::<u64>());
    let most = if matches!(plan.store, What::Stock(_)) { SAME } else { 0.0 };
    let differ = |(real, scaled): (&Took, &Took)| written(real).abs_diff(written(scaled)) as f64 > most * one as f64;
    if real.iter().zip(&scaled).any(differ) {
        row.invalid.push("the two runs did not do the same; look into that first".into());
    }
    row.figures.insert(
        "bytes written with scaled mechanics over those with real ones".into(),
        other as f64 / one.max(1) as f64,
    );
    let scale = f64::from(options.scale);
    let record = KEY + VALUE as u64;
    let busy = |took: &Took| took.spent.seconds;
    row.operations = Some(real.iter().map(|took| took.done.iter().sum::<u64>()).sum());
    row.device_seconds = Some(real.iter().zip(&scaled).map(|(real, scaled)| seconds(real, scaled)).sum());
    row.figures.extend([
        ("load: s at full size".to_owned(), busy(&scaled[0]) * scale),
        ("load: ops/s".to_owned(), scaled[0].done[0] as f64 / busy(&scaled[0]).max(1e-9)),
        ("load: WA".to_owned(), scaled[0].spent.counts.bytes_written as f64 / (scaled[0].done[0] * record) as f64),
        ("settling: s at full size".to_owned(), busy(&scaled[1]) * scale),
    ]);
    for (name, (real, scaled)) in ORDER.iter().zip(real.iter().zip(&scaled).skip(2)) {
        let [puts, reads, scans] = real.done;
        let count = (puts + reads + scans - if *name == "F" { puts } else { 0 }) as f64;
        let all = seconds(real, scaled).max(1e-9);
        row.figures.insert(format!("{name}: ops/s"), count / all);
        row.figures.insert(format!("{name}: ops/s, all mechanics real"), count / busy(real).max(1e-9));
        let of_reads = real.spent.user;
        row.figures.insert(format!("{name}: part of the time in the user's reads, %"), of_reads / all * 100.0);
        if puts > 0 {
            row.figures.insert(format!("{name}: WA"), real.spent.counts.bytes_written as f64 / (puts * record) as f64);
        }
        if reads + scans > 0 {
            let each = real.spent.user_reads as f64 / (reads + scans) as f64;
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
    ratios(run, &plans);
    Ok(())
}

/// Ring against each stock store: above 1, ring is better.
fn ratios(run: &mut Run, plans: &[Plan]) {
    let mut all = Vec::new();
    for plan in plans.iter().filter(|plan| matches!(plan.store, What::Stock(_))) {
        // Not of the load: there puts would run ahead of compactions, and here they cannot.
        for part in ORDER {
            let of = |row: &str| run.measured(row).and_then(|row| row.figures.get(&format!("{part}: ops/s")).copied());
            if let (Some(ours), Some(theirs)) = (of(RING), of(plan.name)) {
                all.extend(Ratio::of(format!("{part}: ring against {}", plan.name), &[ours / theirs]));
            }
        }
    }
    run.outcome.ratios = all;
}
