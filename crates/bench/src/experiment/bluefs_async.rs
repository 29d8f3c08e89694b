//! `bluefs-async`: asynchronous random inserts, the paper's Figures 9 to 13. What each step of bluefs is worth, against XFS on the
//! paper's conventional and drive-managed drives, and on a conventional drive with the host-managed one's own mechanics.

use super::chart::{Axis, Chart, Series, Shape};
use super::hosts::{Disk, Ran, on_bluefs, on_file_system};
use super::result::{Figure, Ratio, Row};
use super::rocks::{Job, KEY, Settings, VALUE, version};
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use crate::baseline::{Directory, FileSystem};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "bluefs-async",
    about: "RocksDB, asynchronous random inserts: what each step of bluefs is worth, against XFS on other drives",
    paper: "BlueFS, section 5.3 to 5.5, Figures 9 to 13",
    speed: 0.4,
    rows: |_| names(),
    extra: super::NONE,
    needs,
    run,
};

/// Inserts at full size.
pub(super) const INSERTS: u64 = 150_000_000;
const MIB: u64 = 1 << 20;
pub(super) const HGST: &str = "hgst-hsh721414al";
pub(super) const HITACHI: &str = "hitachi-hua72303";
pub(super) const DRIVE_MANAGED: &str = "seagate-st8000as0022";

pub(super) const XFS_CMR: &str = "XFS on CMR";
pub(super) const XFS_DM: &str = "XFS on DM-SMR";
const XFS_DM_AGED: &str = "XFS on DM-SMR, preconditioned";
const XFS_TWIN: &str = "XFS on CMR with the HM-SMR drive's mechanics";
const EXT4_TWIN: &str = "ext4 on CMR with the HM-SMR drive's mechanics";
const FIRST: &str = "bluefs, first version: WAL in conventional zones, synchronous";
const ASYNC: &str = "bluefs, asynchronous";
const FIFO: &str = "bluefs, asynchronous, FIFO cache by file";
pub(super) const OURS: &str = "bluefs, asynchronous, cache by block";
const FIRST_SEQUENTIAL: &str = "bluefs, first version, but WAL in sequential zones";

enum Where {
    Kernel {
        file_system: FileSystem,
        drive: &'static str,
        twin: bool,
        /// As after a long life.
        aged: bool,
    },
    /// Switches of bluefs; `cache` says whether it has one.
    Bluefs { switches: &'static str, cache: bool, rule: Rule },
}

struct Plan {
    name: &'static str,
    on: Where,
    /// Seconds, in the text of the paper.
    paper: Option<(f64, &'static str)>,
}

const XFS: FileSystem = FileSystem::Xfs;

const fn kernel(file_system: FileSystem, drive: &'static str, twin: bool, aged: bool) -> Where {
    Where::Kernel { file_system, drive, twin, aged }
}

const fn bluefs(switches: &'static str, cache: bool, rule: Rule) -> Where {
    Where::Bluefs { switches, cache, rule }
}

const ROWS: &[Plan] = &[
    Plan { name: XFS_CMR, on: kernel(XFS, HITACHI, false, false), paper: None },
    Plan { name: XFS_DM, on: kernel(XFS, DRIVE_MANAGED, false, false), paper: None },
    Plan { name: XFS_DM_AGED, on: kernel(XFS, DRIVE_MANAGED, false, true), paper: None },
    Plan { name: XFS_TWIN, on: kernel(XFS, HGST, true, false), paper: None },
    Plan { name: EXT4_TWIN, on: kernel(FileSystem::Ext4, HGST, true, false), paper: None },
    Plan { name: FIRST, on: bluefs("wal=first", false, Rule::Fewer), paper: Some((4800.0, "BlueFS, section 5.3")) },
    Plan { name: FIRST_SEQUENTIAL, on: bluefs("wal=unbuffered", false, Rule::Fewer), paper: None },
    Plan { name: ASYNC, on: bluefs("wal=sequential", false, Rule::All), paper: Some((3000.0, "BlueFS, section 5.4")) },
    Plan {
        name: FIFO,
        on: bluefs("wal=sequential&cache-policy=fifo", true, Rule::All),
        paper: Some((2500.0, "BlueFS, section 5.5")),
    },
    Plan { name: OURS, on: bluefs("wal=sequential", true, Rule::All), paper: None },
];

fn names() -> Vec<String> {
    ROWS.iter().map(|row| row.name.to_owned()).collect()
}

/// Inserts at full size.
fn whole(options: &Options) -> u64 {
    options.inserts.unwrap_or(INSERTS)
}

/// So many inserts at this scale.
pub(super) fn inserts(options: &Options) -> u64 {
    if options.short { 20_000 } else { (whole(options) / u64::from(options.scale)).max(1000) }
}

pub(super) fn needs(options: &Options) -> Needs {
    // Live data at its largest is about 1.4 of the inserts, compressed by half, and a drive's own memory of it.
    let data = inserts(options) * (KEY + VALUE);
    Needs { work: data * 2 + 256 * MIB, memory: data / 4 + 1024 * MIB }
}

/// Switches that shrink what bluefs has a size for.
pub(super) fn shrunk(switches: &str, cache: bool, scale: u32) -> String {
    let scaled = |mib: u64, least: u64| (mib * MIB / u64::from(scale)).max(least);
    // 1:15 of the data on disk: 2 GiB in the paper. Three eighths of it are for what waits to be written, logs above all; of the
    // kernel's page cache a fifth may be that.
    let waits = scaled(2048 / 8 * 3, MIB);
    let cache = if cache { scaled(2048, MIB).saturating_sub(waits).max(MIB) } else { 0 };
    let (journal, survivor) = (scaled(16, 64 << 10), waits / 4096 * 4096);
    format!("{switches}&cache={cache}&journal={journal}&survivor-size={survivor}&io-scale={scale}")
}

/// One run.
fn measure(run: &mut Run, plan: &Plan) -> Result<Ran, Stop> {
    let options = run.options;
    let (disk, switches, file_system) = match plan.on {
        Where::Kernel { file_system, drive, twin, aged } => {
            let disk = Disk { preconditioned: aged.then_some(0), ..Disk::named(drive, Rule::All)? };
            let disk = if twin { disk.twin() } else { disk };
            (disk, String::new(), Some(file_system))
        }
        Where::Bluefs { switches, cache, rule } => {
            let disk = Disk::named(HGST, rule)?;
            let switches = shrunk(switches, cache, disk.divides(options.scale));
            (disk, switches, None)
        }
    };
    run.model(&disk.profile);
    // Where an insert is a write each, and mechanics are real, a sixteenth is enough of them.
    let records = if disk.rule == Rule::Fewer && !options.short { inserts(options) / 16 } else { inserts(options) };
    let divides = disk.divides(options.scale);
    let job = Job {
        benchmarks: "fillrandom",
        measured: "fillrandom",
        records,
        sync: false,
        settings: Settings::Tuned,
        scale: divides,
        zone: 256 * MIB / u64::from(divides),
        seed: 1,
        account: disk.rule == Rule::Fewer,
    };
    let mut ran = match file_system {
        Some(file_system) => on_file_system(run, &disk, file_system, Directory::Root, &job)?,
        None => on_bluefs(run, &disk, &switches, &job)?,
    };
    let row = &mut ran.row;
    if let (Some(seconds), Some(n)) = (row.wall_seconds, row.operations) {
        // Everything is 1/S, or there were only fewer of the same: either way an insert takes what it takes.
        let all = seconds / n as f64 * whole(options) as f64;
        row.figures.insert("s for all inserts at full size".into(), all);
    }
    row.paper =
        plan.paper.filter(|_| whole(options) == INSERTS).map(|(seconds, source)| Figure::new(seconds, "s", source));
    Ok(ran)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("inserts", inserts(run.options));
    run.setting("key and value", format!("{KEY} and {VALUE} bytes, compressed to about a half by snappy"));
    run.program("db_bench", version());
    let mut ran = Vec::new();
    for plan in ROWS {
        let mut left = None;
        run.row(plan.name, |run| {
            let ran = measure(run, plan)?;
            let row: Row = ran.row.clone();
            left.get_or_insert(ran);
            Ok(row)
        })?;
        ran.extend(left.map(|left| (plan.name, left)));
    }
    ratios(run);
    charts(run, &ran);
    Ok(())
}

/// `a` over `b` by their seconds, in pairs of runs; more than 1: `b` is faster.
fn faster(run: &Run, slow: &str, fast: &str) -> Option<Ratio> {
    let pairs = run.pairs(slow, fast, |row| row.figures.get("s for all inserts at full size").copied());
    let mut ratio = Ratio::of(format!("{fast}, against {slow}"), &pairs)?.between(slow, fast);
    if let (Some(a), Some(b)) = (run.measured(slow), run.measured(fast))
        && a.rule != b.rule
    {
        ratio.flags.push("the two follow different rules of scaling; compared by the time of an insert".into());
    }
    Some(ratio)
}

fn ratios(run: &mut Run) {
    let paper = "BlueFS, section 1";
    let outer = |a: f64, b: f64| Some(a / b);
    let mut ratios = Vec::new();
    for (slow, fast, bandwidth, goal, figure) in [
        (XFS_TWIN, OURS, outer(237.0, 237.0), Some(1.1), None),
        (EXT4_TWIN, OURS, outer(237.0, 237.0), None, None),
        (XFS_CMR, OURS, outer(237.0, 160.0), Some(1.5), Some((1.30, paper))),
        // A drive of a laboratory has been written before and has stood idle since; a new one has every band empty.
        (XFS_DM_AGED, OURS, outer(237.0, 197.0), Some(1.8), Some((1.64, paper))),
        (XFS_DM, OURS, outer(237.0, 197.0), None, None),
        (XFS_DM_AGED, XFS_CMR, outer(160.0, 197.0), None, Some((1.27, "BlueFS, section 5.2; held out"))),
        (XFS_DM, XFS_CMR, outer(160.0, 197.0), None, None),
        (FIRST, ASYNC, Some(1.0), None, Some((1.6, "BlueFS, section 5.4"))),
        (ASYNC, FIFO, Some(1.0), None, Some((1.2, "BlueFS, Figure 9: 3,000 s to 2,500 s"))),
        (ASYNC, OURS, Some(1.0), None, None),
        (FIFO, OURS, Some(1.0), None, None),
        (FIRST, FIRST_SEQUENTIAL, Some(1.0), None, None),
    ] {
        let Some(ratio) = faster(run, slow, fast) else { continue };
        let ratio = Ratio { bandwidth_alone: bandwidth, goal, ..ratio };
        // What the paper has of other numbers of inserts.
        let figure = match whole(run.options) {
            INSERTS => figure,
            1_000_000_000 if (slow, fast) == (XFS_DM_AGED, XFS_CMR) => Some((1.5, "BlueFS, section 5.2; held out")),
            _ => None,
        };
        ratios.push(match figure {
            Some((value, source)) => ratio.paper(value, "x", source),
            None => ratio,
        });
    }
    run.outcome.ratios = ratios;
}

fn charts(run: &mut Run, ran: &[(&str, Ran)]) {
    // Those whose inserts are a write each take many times as long.
    let bars = |each: bool| -> Vec<(String, f64, Option<f64>)> {
        let of = |plan: &Plan| {
            let seconds = run.measured(plan.name)?.figures.get("s for all inserts at full size").copied()?;
            Some((short_name(plan.name), seconds, plan.paper.map(|(seconds, _)| seconds)))
        };
        ROWS.iter()
            .filter(|plan| matches!(plan.on, Where::Bluefs { rule: Rule::Fewer, .. }) == each)
            .filter_map(of)
            .collect()
    };
    let chart = |file: &str, title: &str, bars| Chart {
        file: file.into(),
        title: title.into(),
        x: Axis::default(),
        y: Axis::even("seconds, at full size"),
        shape: Shape::Bars(bars),
    };
    let million = whole(run.options) / 1_000_000;
    let mut charts = vec![
        chart("seconds", &format!("{million} million asynchronous inserts"), bars(false)),
        chart("first", &format!("{million} million inserts that are a write each"), bars(true)),
    ];
    charts.retain(|chart| chart.shape != Shape::Bars(Vec::new()));
    let lines = |file: &str, title: &str, y: &str, series: Vec<Series>| Chart {
        file: file.into(),
        title: title.into(),
        x: Axis::even("seconds of the drive"),
        y: Axis::even(y),
        shape: Shape::Lines(series),
    };
    let scaled: Vec<&(&str, Ran)> =
        ran.iter().filter(|(name, _)| *name != FIRST && *name != FIRST_SEQUENTIAL).collect();
    let inserts = scaled.iter().map(|(name, left)| {
        let points = left.traces.operations.iter().map(|(at, n)| (*at, n / 1e6)).collect();
        Series { name: short_name(name), points }
    });
    charts.push(lines("inserts", "Inserts so far", "million inserts", inserts.collect()));
    let last = ran.iter().find(|(name, _)| *name == OURS).or_else(|| ran.last());
    if let Some((name, left)) = last {
        let thousands = left.traces.rate.iter().map(|(at, rate)| (*at, rate / 1e3)).collect();
        let rate = Series { name: "inserts".into(), points: thousands };
        charts.push(lines("rate", &format!("Inserts a second: {name}"), "thousand inserts/s", vec![rate]));
        charts.push(lines("bandwidth", &format!("The drive: {name}"), "MiB/s", left.traces.bandwidth.clone()));
        charts.push(lines("jobs", &format!("Under way: {name}"), "jobs, on average", left.jobs.clone()));
        charts.push(lines("zones", &format!("Zones: {name}"), "zones", vec![left.traces.zones.clone()]));
    }
    run.outcome.charts = charts;
}

/// As it fits beside a chart.
fn short_name(name: &str) -> String {
    match name {
        XFS_TWIN => "XFS, same mechanics".into(),
        EXT4_TWIN => "ext4, same mechanics".into(),
        FIRST => "first version".into(),
        FIRST_SEQUENTIAL => "first, WAL in sequential zones".into(),
        ASYNC => "bluefs, no cache".into(),
        FIFO => "bluefs, FIFO by file".into(),
        OURS => "bluefs, cache by block".into(),
        other => other.into(),
    }
}
