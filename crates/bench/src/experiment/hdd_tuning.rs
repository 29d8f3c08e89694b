//! `hdd-tuning`: RocksDB's default settings against the paper's, on XFS on the conventional and the drive-managed drive (the paper's
//! Figures 6, 7 and 8); and on bluefs.

use super::bluefs_async::{self, DRIVE_MANAGED, HGST, HITACHI, INSERTS, OURS, XFS_CMR, XFS_DM, inserts, needs, shrunk};
use super::chart::{Axis, Chart, Shape};
use super::hosts::{Disk, on_bluefs, on_file_system};
use super::result::{Figure, Ratio, Row};
use super::rocks::{Job, Settings, version};
use super::{Experiment, Rule, Run, Stop};
use crate::baseline::{Directory, FileSystem};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hdd-tuning",
    about: "RocksDB with its default settings against the paper's for disks, on XFS and on bluefs",
    paper: "BlueFS, sections 5.1 and 5.2, Figures 6, 7 and 8",
    speed: 0.6,
    rows: |_| ROWS.iter().flat_map(|row| [name(row, Settings::Default), name(row, Settings::Tuned)]).collect(),
    extra: super::NONE,
    needs,
    run,
};

const MIB: u64 = 1 << 20;
/// What the paper's Figure 7 (a) has: 110 with the default settings, almost 20 with its own.
const SEEKS: &str = "seeks/s for reads at full size";

struct Plan {
    name: &'static str,
    drive: &'static str,
    bluefs: bool,
    /// The row of bluefs-async that is the same with the paper's settings.
    same: &'static str,
    /// How much faster the tuned one is, in the paper.
    paper: Option<(f64, &'static str)>,
}

const ROWS: &[Plan] = &[
    Plan {
        name: "XFS on CMR",
        drive: HITACHI,
        bluefs: false,
        same: XFS_CMR,
        paper: Some((1.34, "BlueFS, section 5.1, Figure 6: 34 % faster; held out")),
    },
    Plan {
        name: "XFS on DM-SMR",
        drive: DRIVE_MANAGED,
        bluefs: false,
        same: XFS_DM,
        paper: Some((1.63, "BlueFS, section 5.2, Figure 8: 63 % faster")),
    },
    Plan { name: "bluefs on HM-SMR", drive: HGST, bluefs: true, same: OURS, paper: None },
];

fn name(plan: &Plan, settings: Settings) -> String {
    let settings = if settings == Settings::Tuned { "the paper's settings" } else { "default settings" };
    format!("{}, {settings}", plan.name)
}

fn measure(run: &mut Run, plan: &Plan, settings: Settings) -> Result<Row, Stop> {
    let options = run.options;
    let disk = Disk::named(plan.drive, Rule::All)?;
    run.model(&disk.profile);
    let scale = disk.divides(options.scale);
    let job = Job {
        benchmarks: "fillrandom",
        measured: "fillrandom",
        records: inserts(options),
        sync: false,
        settings,
        scale,
        zone: 256 * MIB / u64::from(scale),
        seed: 1,
        account: false,
    };
    let measured = (settings == Settings::Tuned).then(|| run.shared(bluefs_async::EXPERIMENT.name, plan.same));
    let mut row = if let Some(row) = measured.flatten() {
        row
    } else if plan.bluefs {
        on_bluefs(run, &disk, &shrunk("wal=sequential", true, scale), &job)?.row
    } else {
        on_file_system(run, &disk, FileSystem::Xfs, Directory::Root, &job)?.row
    };
    row.paper = None;
    if plan.drive == HITACHI {
        let value = if settings == Settings::Tuned { 20.0 } else { 110.0 };
        row.paper = Some(Figure::new(value, "seeks/s for reads", "BlueFS, section 5.1, Figure 7 (a)"));
    }
    if let (Some(seconds), Some(n)) = (row.wall_seconds, row.operations.filter(|n| *n > 0)) {
        row.figures.insert("s for all inserts at full size".into(), seconds / n as f64 * INSERTS as f64);
        // Mechanical times are 1/S, so a drive that is 1/S moves its head S times as often.
        let commands: u64 = row.latency.values().map(|latency| latency.commands).sum();
        let moving = commands.saturating_sub(row.flushes.unwrap_or(0));
        row.figures.insert("reads and writes/s at full size".into(), moving as f64 / seconds / f64::from(scale));
        if let Some(seeks) = row.figures.get("seeks/s of the drive, for reads").copied() {
            row.figures.insert(SEEKS.into(), seeks / f64::from(scale));
        }
    }
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("inserts", inserts(run.options));
    run.program("db_bench", version());
    let mut bars = Vec::new();
    for plan in ROWS {
        for settings in [Settings::Default, Settings::Tuned] {
            let name = name(plan, settings);
            run.row(&name, |run| measure(run, plan, settings))?;
            let seconds = |row: &Row| row.figures.get("s for all inserts at full size").copied();
            if let Some(seconds) = run.measured(&name).and_then(seconds) {
                bars.push((name, seconds, None));
            }
        }
    }
    for plan in ROWS {
        let (slow, fast) = (name(plan, Settings::Default), name(plan, Settings::Tuned));
        let pairs = run.pairs(&slow, &fast, |row| row.wall_seconds);
        let Some(ratio) = Ratio::of(format!("{fast}, against {slow}"), &pairs) else { continue };
        let ratio = Ratio { bandwidth_alone: Some(1.0), ..ratio.between(slow, fast) };
        run.outcome.ratios.push(match plan.paper {
            Some((value, source)) => ratio.paper(value, "x", source),
            None => ratio,
        });
    }
    let seeks = |name: String| {
        let seeks = run.measured(&name)?.figures.get(SEEKS).copied()?;
        let paper = run.measured(&name)?.paper.as_ref().map(|figure| figure.value);
        Some((name, seeks, paper))
    };
    let seeks: Vec<_> = ROWS
        .iter()
        .flat_map(|plan| [Settings::Default, Settings::Tuned].map(|settings| name(plan, settings)))
        .filter_map(seeks)
        .collect();
    if !seeks.is_empty() {
        run.outcome.charts.push(Chart {
            file: "seeks".into(),
            title: "Seeks for reads".into(),
            x: Axis::default(),
            y: Axis::even("a second, at full size"),
            shape: Shape::Bars(seeks),
        });
        run.outcome.notes.push(
            "Seeks are reads for which the head left its track. The paper counts, in a trace of the block layer, reads that do not begin \
             where the last one ended."
                .into(),
        );
    }
    if !bars.is_empty() {
        run.outcome.charts.push(Chart {
            file: "seconds".into(),
            title: "150 million asynchronous inserts".into(),
            x: Axis::default(),
            y: Axis::even("seconds, at full size"),
            shape: Shape::Bars(bars),
        });
    }
    Ok(())
}
