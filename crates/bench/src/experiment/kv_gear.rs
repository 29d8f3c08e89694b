//! `kv-gear`: GearDB's load on the key-value store with GearDB's policy: how large windows are (`k`), the rule of the paper and that of the code, and what is
//! in zones after each quarter. Beside it the store's own policy and levels without windows. Everything is written, the log as well.

use super::chart::{Axis, Chart, Series, Shape};
use super::hosts::workplace;
use super::kv_store::{CACHE, DRIVE, KEY, LONG, MEMTABLE, MIB, PUTS, Plan as Load, Store, VALUE, ZONE, ZONES, there};
use super::result::{Figure, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_emulator::time::Mechanics;
use imbrex_kv::policy::{Active, Gear, Leveled, Policy, Sizes};
use imbrex_kv::{MakePolicy, Options as KvOptions};
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-gear",
    about: "GearDB's random load with GearDB's policy at several windows, with levels, and with ring: seconds, write amplification, and how full zones are",
    paper: "GearDB (FAST 2019), Figures 10 to 12, 14, 16 and 17; section 5.1",
    speed: 1.0,
    rows: |_| plans().into_iter().map(|plan| plan.name).collect(),
    extra: super::NONE,
    needs: |options| Needs {
        work: u64::from(WIDE) * ZONE / u64::from(options.scale) * 2,
        memory: u64::from(WIDE) * ZONE / u64::from(options.scale) * 2 + (1 << 30),
    },
    run,
};

/// Zones where none lack.
const WIDE: u32 = 600;
/// Parts of the load after which it is looked at.
const QUARTERS: u64 = 4;
/// Gets, and scans of as many pairs as kv's, once all was put.
const READS: u64 = 128_000;
/// So often it is looked how full zones are.
const LOOK: u64 = 1024;

#[derive(Clone)]
struct Plan {
    name: String,
    policy: &'static str,
    make: Option<MakePolicy>,
    zones: u32,
    /// Seconds of GearDB's paper, where it has this row.
    paper: Option<f64>,
}

fn plans() -> Vec<Plan> {
    let gear = |active, k| -> MakePolicy {
        Arc::new(move |sizes: Sizes| Box::new(Gear { active, k, ..Gear::new(sizes) }) as Box<dyn Policy>)
    };
    let plan = |name: &str, policy, make, zones, paper| Plan { name: name.into(), policy, make, zones, paper };
    let mut all = vec![
        plan("ring", "ring", None, ZONES, None),
        plan("ring, no limit of space", "ring", None, WIDE, None),
        plan("gear as in the paper, k = 4", "gear", Some(gear(Active::Paper, 4)), ZONES, Some(13_432.0)),
    ];
    all.extend([1, 2, 4, 6, 8, 10].map(|k| {
        let name = format!("gear as in the paper, k = {k}, no limit of space");
        plan(&name, "gear", Some(gear(Active::Paper, k)), WIDE, None)
    }));
    all.extend([
        plan("gear as in the code, k = 4", "gear", Some(gear(Active::Code, 4)), ZONES, None),
        plan("gear as in the code, k = 4, no limit of space", "gear", Some(gear(Active::Code, 4)), WIDE, None),
        plan("levels without windows", "leveled", None, ZONES, None),
        plan(
            "levels without windows, no limit of space",
            "leveled",
            Some(Arc::new(|sizes| Box::new(Leveled::new(sizes)))),
            WIDE,
            None,
        ),
    ]);
    all
}

/// Bytes of tables that count, over what the zones in use can hold, in percent.
fn fill(store: &Store) -> f64 {
    let figures = store.kv.figures();
    let live: u64 = figures.levels.iter().map(|(_, bytes, _)| bytes).sum();
    live as f64 * 100.0 / figures.capacity_used.max(1) as f64
}

/// Fills in gets and scans of random keys of so many, with real mechanics, since reads keep their size.
fn reads(store: &mut Store, row: &mut Row, keys: u64, options: &Options) -> Result<(), Stop> {
    let count = (READS / u64::from(options.scale) / if options.short { 20 } else { 1 }).max(50);
    // So that tables are open.
    store.gets(count, keys)?;
    for (what, long) in [("get", 0), ("scan", LONG)] {
        let before = store.at();
        match long {
            0 => store.gets(count, keys)?,
            long => store.scans(count, keys, long)?,
        }
        let after = store.at();
        let reads = after.counts.since(&before.counts).reads;
        row.figures.extend([
            (format!("then {what}s/s"), count as f64 / (after.seconds - before.seconds).max(1e-9)),
            (format!("then reads of the drive a {what}"), reads as f64 / count as f64),
        ]);
    }
    Ok(())
}

/// What the load was after some of it: puts, seconds at full size, write amplification, fill.
type Moment = (u64, f64, f64, f64);

fn play(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<(Row, Vec<Moment>), Stop> {
    let scale = u64::from(options.scale);
    let kv = KvOptions {
        policy: Some(plan.policy.to_owned()),
        make_policy: plan.make.clone(),
        ..Store::options(&Load::ring(0), options)
    };
    let dir = workplace(&options.work)?;
    let image = dir.path().join("drive.img");
    let mut store = Store::new_in(&image, plan.zones, kv.clone(), options.scale)?;
    let puts = PUTS / scale / if options.short { 20 } else { 1 };
    let begun = store.start();
    let (mut moments, mut fills) = (Vec::new(), Vec::new());
    let user = |puts: u64| puts * (KEY + VALUE as u64);
    for n in 0..puts {
        if n % LOOK == 0 {
            if stopped() {
                return Err(Stop::Interrupted);
            }
            fills.push(fill(&store));
        }
        store.put_random(puts).map_err(|stop| match stop {
            Stop::Failed(why) => Stop::Failed(format!("after {n} of {puts} puts: {why}")),
            stop => stop,
        })?;
        if (n + 1) % (puts / QUARTERS).max(1) == 0 {
            let now = store.at();
            let written = now.counts.since(&begun.counts).bytes_written;
            let seconds = (now.seconds - begun.seconds) * scale as f64;
            moments.push((n + 1, seconds, written as f64 / user(n + 1) as f64, fill(&store)));
        }
    }
    let now = store.at();
    let counts = now.counts.since(&begun.counts);
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(now.seconds - begun.seconds),
        operations: Some(puts),
        bytes_user: Some(user(puts)),
        bytes_drive: Some(counts.bytes_written),
        bytes_read: Some(counts.bytes_read),
        flushes: Some(counts.flushes),
        zone_resets: Some(counts.zone_resets),
        paper: plan.paper.map(|seconds| {
            Figure::new(seconds, "s, drive of 280 zones, 4 GB of memory for tables", "GearDB, section 5.1")
        }),
        ..Row::new("", DRIVE)
    }
    .amplified();
    for (cause, spent) in now.spent_since(&begun) {
        row.figures.insert(format!("s at full size, {cause}"), spent * scale as f64);
    }
    let zone = ZONE as f64 / scale as f64;
    let live = there(puts) * (KEY + VALUE as u64) as f64;
    let later = &fills[fills.len() / 2..];
    let figures = store.kv.figures();
    let (pairs, scanned) = store.scan_all()?;
    row.figures.insert("then all in order, MB/s".into(), user(pairs) as f64 / 1e6 / scanned.max(1e-9));
    row.figures.extend(
        [
            ("s at full size", (now.seconds - begun.seconds) * scale as f64),
            ("puts/s", puts as f64 / (now.seconds - begun.seconds)),
            ("zones, peak", f64::from(store.peak())),
            ("live over peak", live / (f64::from(store.peak()) * zone)),
            ("tables fill zones, mean of the second half, %", later.iter().sum::<f64>() / later.len().max(1) as f64),
            ("steps of merges", figures.done.steps as f64),
            ("tables", figures.levels.iter().map(|(tables, ..)| *tables).sum::<u64>() as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    for (at, (_, seconds, wa, fill)) in moments.iter().enumerate() {
        let gb = (at + 1) * 20;
        row.figures.extend([
            (format!("after {gb} GB: s at full size"), *seconds),
            (format!("after {gb} GB: WA"), *wa),
            (format!("after {gb} GB: tables fill zones, %"), *fill),
        ]);
    }
    store = store.again(&image, Mechanics::Real, kv)?;
    reads(&mut store, &mut row, puts, options)?;
    store.tell(&mut row);
    row.space_efficiency = Some(live / (f64::from(figures.zones.0) * zone));
    row.invalid.extend(store.kv.check().map_err(why)?);
    Ok((row, moments))
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("one thread on the drive's own clock: it is always the same");
    run.setting(
        "record",
        format!("{KEY} + {VALUE} bytes, not compressible; puts uniform over as many keys as there are puts"),
    );
    run.setting(
        "memory at full size, in every row",
        format!("memtable {} MiB, cache {} MiB; tables and steps of 64 MiB", MEMTABLE / MIB, CACHE / MIB),
    );
    run.setting("log", "written, and counted; all puts unsynced");
    run.setting("zones", format!("{ZONES}, or {WIDE} where space has no limit"));
    let plans = plans();
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    let each = u64::from(WIDE) * ZONE / u64::from(run.options.scale) + (1 << 28);
    let options = run.options.clone();
    let moments = run.at_once(&names, each, |at, stopped| play(&plans[at], &options, stopped))?;
    let series = |of: fn(&Moment) -> f64| {
        let line = |(plan, moments): (&Plan, &Option<Vec<Moment>>)| {
            let points = moments.as_ref()?.iter().map(|moment| (moment.0 as f64, of(moment))).collect();
            Some(Series { name: plan.name.clone(), points })
        };
        // All rows are more than there are colours.
        plans.iter().zip(&moments).filter(|(plan, _)| plan.zones == WIDE).filter_map(line).collect::<Vec<_>>()
    };
    for (file, title, unit, of) in [
        ("wa", "Write amplification as the load goes on", "WA", (|moment| moment.2) as fn(&Moment) -> f64),
        ("fill", "How full of tables that count the zones in use are", "%", |moment| moment.3),
    ] {
        let lines = series(of);
        run.outcome.charts.push(Chart {
            file: file.into(),
            title: title.into(),
            x: Axis::even("puts"),
            y: Axis::even(unit),
            shape: Shape::Lines(lines),
        });
    }
    Ok(())
}
