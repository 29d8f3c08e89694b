//! `bluefs-sync`: synchronous inserts, the paper's Figures 14 and 15b. The operation keeps its size, so mechanics are real and there
//! are only fewer of them.

use super::bluefs_async::{HGST, HITACHI};
use super::chart::{Axis, Chart, Shape};
use super::hosts::{Disk, on_bluefs, on_file_system};
use super::result::{Ratio, Row};
use super::rocks::{Job, Settings, version};
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use crate::baseline::{Directory, FileSystem};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "bluefs-sync",
    about: "RocksDB, synchronous inserts: where the write-ahead log stands, and what a flush costs",
    paper: "BlueFS, section 5.7, Figures 14 and 15b",
    speed: 4.0,
    rows: |_| rows().into_iter().map(|row| row.name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 1 << 30, memory: 2 << 30 },
    run,
};

/// At full size; the paper's Figure 14 is of 100,000 (section 5.7). What is told is the time of one.
const INSERTS: u64 = 150_000;
const MIB: u64 = 1 << 20;

#[derive(Clone, Copy)]
enum Where {
    Bluefs(&'static str),
    Kernel { file_system: FileSystem, drive: &'static str, twin: bool, directory: Directory },
    Nowhere(&'static str),
}

struct Plan {
    name: String,
    on: Where,
    write_cache: bool,
}

const CONVENTIONAL: &str = "bluefs, WAL in conventional zones";
const UNPREPARED: &str = "bluefs, WAL in sequential zones, not prepared";
const SEQUENTIAL: &str = "bluefs, WAL in sequential zones, prepared";
const ROOT: &str = "XFS on CMR, root directory";
const OWN: &str = "XFS on CMR, directory of its own";
const TWIN_ROOT: &str = "XFS on CMR with the HM-SMR drive's mechanics, root directory";
const TWIN_OWN: &str = "XFS on CMR with the HM-SMR drive's mechanics, directory of its own";

/// Only with the write cache on.
const EXT4: &str = "ext4 on CMR with the HM-SMR drive's mechanics, root directory";

const PLACES: &[(&str, Where)] = &[
    (CONVENTIONAL, Where::Bluefs("wal=conventional")),
    (UNPREPARED, Where::Bluefs("wal=unprepared")),
    (SEQUENTIAL, Where::Bluefs("wal=sequential")),
    (ROOT, Where::Kernel { file_system: FileSystem::Xfs, drive: HITACHI, twin: false, directory: Directory::Root }),
    (OWN, Where::Kernel { file_system: FileSystem::Xfs, drive: HITACHI, twin: false, directory: Directory::Own }),
    (TWIN_ROOT, Where::Kernel { file_system: FileSystem::Xfs, drive: HGST, twin: true, directory: Directory::Root }),
    (TWIN_OWN, Where::Kernel { file_system: FileSystem::Xfs, drive: HGST, twin: true, directory: Directory::Own }),
    (EXT4, Where::Kernel { file_system: FileSystem::Ext4, drive: HGST, twin: true, directory: Directory::Root }),
    (
        "XFS on CMR, recycled logs",
        Where::Nowhere(
            "RocksDB 7.8.3 sets recycle_log_file_num to 0 under its default recovery mode, and db_bench has no flag for another",
        ),
    ),
];

fn with_cache(name: &str, on: bool) -> String {
    format!("{name}, write cache {}", if on { "on" } else { "off" })
}

fn rows() -> Vec<Plan> {
    let both = |write_cache| {
        let places = PLACES.iter().filter(move |(name, _)| write_cache || *name != EXT4);
        places.map(move |(name, on)| Plan { name: with_cache(name, write_cache), on: *on, write_cache })
    };
    both(true).chain(both(false)).collect()
}

fn inserts(options: &Options) -> u64 {
    if options.short { 200 } else { (INSERTS / u64::from(options.scale)).max(500) }
}

fn measure(run: &mut Run, plan: &Plan) -> Result<Row, Stop> {
    let job = Job {
        benchmarks: "fillrandom",
        measured: "fillrandom",
        records: inserts(run.options),
        sync: true,
        settings: Settings::Tuned,
        scale: 1,
        zone: 256 * MIB,
        seed: 1,
        account: false,
    };
    let mut row = match plan.on {
        Where::Nowhere(why) => return Err(Stop::Failed(why.into())),
        Where::Bluefs(switches) => {
            let disk = Disk { write_cache: plan.write_cache, ..Disk::named(HGST, Rule::Fewer)? };
            run.model(&disk.profile);
            on_bluefs(run, &disk, &format!("{switches}&cache=64M"), &job)?.row
        }
        Where::Kernel { file_system, drive, twin, directory } => {
            let disk = Disk { write_cache: plan.write_cache, ..Disk::named(drive, Rule::Fewer)? };
            let disk = if twin { disk.twin() } else { disk };
            run.model(&disk.profile);
            on_file_system(run, &disk, file_system, directory, &job)?.row
        }
    };
    if let (Some(seconds), Some(n)) = (row.wall_seconds, row.operations.filter(|n| *n > 0)) {
        let each = seconds / n as f64;
        row.figures.insert("ms an insert".into(), each * 1e3);
        // All of these drives turn 7,200 times a minute.
        row.figures.insert("turns an insert".into(), each * 120.0);
        if let Some(flushes) = row.flushes {
            row.figures.insert("flushes an insert".into(), flushes as f64 / n as f64);
        }
    }
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("inserts", inserts(run.options));
    run.program("db_bench", version());
    for plan in rows() {
        run.row(&plan.name, |run| measure(run, &plan))?;
    }
    for cache in [true, false] {
        ratios(run, cache);
        chart(run, cache);
    }
    Ok(())
}

fn ms(row: &Row) -> Option<f64> {
    row.figures.get("ms an insert").copied()
}

/// The median of all runs of a row.
fn each(run: &Run, name: &str) -> Option<f64> {
    let all: Vec<f64> = run.runs(name, ms).into_iter().flatten().collect();
    Ratio::of(name, &all).map(|all| all.median)
}

fn ratios(run: &mut Run, cache: bool) {
    let paper = "BlueFS, section 5.7";
    let mut best: Option<(&str, f64)> = None;
    for name in [ROOT, OWN, TWIN_ROOT, TWIN_OWN, EXT4] {
        if let Some(ms) = each(run, &with_cache(name, cache))
            && best.is_none_or(|(_, least)| ms < least)
        {
            best = Some((name, ms));
        }
    }
    let mut pairs = vec![
        (ROOT, CONVENTIONAL, None, Some((1.0 / 1.4, "40 % slower"))),
        (ROOT, UNPREPARED, None, Some((1.48, "48 % faster"))),
        (ROOT, SEQUENTIAL, None, Some((3.0, "three times as fast, with recycled logs"))),
        (CONVENTIONAL, SEQUENTIAL, None, None),
        (TWIN_ROOT, SEQUENTIAL, Some(3.0), None),
    ];
    pairs.extend(best.map(|(name, _)| (name, SEQUENTIAL, Some(1.0), None)));
    for (slow, fast, goal, figure) in pairs {
        let (slow, fast) = (with_cache(slow, cache), with_cache(fast, cache));
        let all = run.pairs(&slow, &fast, ms);
        let Some(ratio) = Ratio::of(format!("{fast}, against {slow}"), &all) else { continue };
        let ratio = Ratio { goal, bandwidth_alone: Some(1.0), ..ratio.between(slow, fast) };
        run.outcome.ratios.push(match figure {
            Some((value, what)) => ratio.paper(value, "x", &format!("{paper}: {what}")),
            None => ratio,
        });
    }
    let flushes = |row: &Row| row.figures.get("flushes an insert").copied();
    let (twice, once) = (with_cache(UNPREPARED, cache), with_cache(SEQUENTIAL, cache));
    let halved = Ratio::of(format!("{twice}: flushes over those of {once}"), &run.pairs(&twice, &once, flushes));
    run.outcome.ratios.extend(halved.map(|ratio| ratio.paper(2.0, "x", &format!("{paper}, Figure 15 (b): halved"))));
}

fn chart(run: &mut Run, cache: bool) {
    let bar = |(name, _): &(&str, Where)| {
        let ms = each(run, &with_cache(name, cache))?;
        Some((name.replace(" on CMR with the HM-SMR drive's mechanics", ", same mechanics"), ms, None))
    };
    let bars: Vec<_> = PLACES.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return;
    }
    let on = if cache { "on" } else { "off" };
    run.outcome.charts.push(Chart {
        file: format!("insert-cache-{on}"),
        title: format!("A synchronous insert, write cache of the drive {on}"),
        x: Axis::default(),
        y: Axis::even("ms"),
        shape: Shape::Bars(bars),
    });
}
