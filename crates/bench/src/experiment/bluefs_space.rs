//! `bluefs-space`: zones over time, and at rest after compactions have ended (the paper's Figures 2 and 12d).

use super::bluefs_async::{HGST, INSERTS, inserts, needs, shrunk};
use super::chart::{Axis, Chart, Series, Shape};
use super::hosts::{Disk, Ran, on_bluefs_and};
use super::result::{Figure, Ratio, Row};
use super::rocks::{Job, Settings, version};
use super::{Experiment, Rule, Run, Stop};
use crate::ablation::open;
use imbrex_bluefs::Packed;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "bluefs-space",
    about: "RocksDB on bluefs: zones over time, and at rest after compactions have ended",
    paper: "BlueFS, section 5.6, Figures 2 and 12d",
    speed: 0.6,
    rows: |_| ROWS.iter().map(|row| row.name.to_owned()).collect(),
    extra: super::NONE,
    needs,
    run,
};

const GIB: f64 = (1u64 << 30) as f64;
const MIB: u64 = 1 << 20;

/// Zones at rest, for each byte of live files: what this project wants to reach.
const MOST_ZONES: f64 = 1.05;

struct Plan {
    name: &'static str,
    switches: &'static str,
    benchmarks: &'static str,
    settings: Settings,
    /// Whether nobody uses the drive for a while after the last compaction.
    rests: bool,
    /// GiB of zones, in the paper's text.
    paper: Option<f64>,
}

const ROWS: &[Plan] = &[
    Plan {
        name: "tuned, until the last insert",
        switches: "wal=sequential",
        benchmarks: "fillrandom",
        settings: Settings::Tuned,
        rests: false,
        paper: Some(42.0),
    },
    Plan {
        name: "tuned, at rest",
        switches: "wal=sequential",
        benchmarks: "fillrandom,waitforcompaction",
        settings: Settings::Tuned,
        rests: true,
        paper: Some(33.0),
    },
    Plan {
        name: "tuned, at rest, files do not share zones (as in the paper)",
        switches: "wal=sequential&share=off",
        benchmarks: "fillrandom,waitforcompaction",
        settings: Settings::Tuned,
        rests: true,
        paper: Some(33.0),
    },
    Plan {
        name: "default settings, at rest",
        switches: "wal=sequential",
        benchmarks: "fillrandom,waitforcompaction",
        settings: Settings::Default,
        rests: true,
        paper: None,
    },
];

/// What bluefs does while nobody uses the drive, at once: `db_bench` ends without giving it the time.
fn rest_a_while(uri: &str) -> Result<Packed, String> {
    let fs = open(uri).map_err(|e| e.to_string())?;
    let packed = fs.pack().map_err(|e| e.to_string())?;
    fs.sync_all().map_err(|e| e.to_string())?;
    Ok(packed)
}

fn measure(run: &Run, plan: &Plan) -> Result<Ran, Stop> {
    let options = run.options;
    let disk = Disk::named(HGST, Rule::All)?;
    let scale = disk.divides(options.scale);
    let job = Job {
        benchmarks: plan.benchmarks,
        measured: "fillrandom",
        records: inserts(options),
        sync: false,
        settings: plan.settings,
        scale,
        zone: 256 * MIB / u64::from(scale),
        seed: 1,
        account: false,
    };
    let mut packed = None;
    let mut ran = on_bluefs_and(run, &disk, &shrunk(plan.switches, true, scale), &job, |uri| {
        if plan.rests {
            packed = Some(rest_a_while(uri)?);
        }
        Ok(())
    })?;
    let rest = ran.rest;
    let row = &mut ran.row;
    let whole = |bytes: u64| bytes as f64 * (INSERTS as f64 / job.records as f64) / GIB;
    row.figures.insert("zones not empty".into(), rest.zones as f64);
    if let Some(packed) = packed {
        row.figures.insert("zones emptied at rest".into(), f64::from(packed.zones));
        row.figures.insert("GiB moved at rest, at full size".into(), whole(packed.bytes));
    }
    row.figures.insert("GiB of zones, at full size".into(), whole(rest.capacity));
    row.figures.insert("GiB of live files, at full size".into(), whole(rest.live));
    row.figures.insert("zones over live files".into(), rest.capacity as f64 / rest.live.max(1) as f64);
    row.figures.insert("valid table bytes over zones".into(), rest.tables as f64 / rest.capacity.max(1) as f64);
    row.paper = plan.paper.map(|gib| Figure::new(gib, "GiB of zones", "BlueFS, section 5.6"));
    Ok(ran)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("inserts", inserts(run.options));
    run.program("db_bench", version());
    let profile = Disk::named(HGST, Rule::All)?.profile;
    run.model(&profile);
    let (mut lines, mut bars) = (Vec::new(), Vec::new());
    for plan in ROWS {
        let mut left = None;
        run.row(plan.name, |run| {
            let ran = measure(run, plan)?;
            let row: Row = ran.row.clone();
            left.get_or_insert(ran);
            Ok(row)
        })?;
        let Some(ran) = left else { continue };
        lines.push(Series { name: short_name(plan.name), ..ran.traces.zones });
        if let Some(gib) = ran.row.figures.get("GiB of zones, at full size") {
            bars.push((short_name(plan.name), *gib, plan.paper));
        }
    }
    let zones = |row: &Row| row.figures.get("GiB of zones, at full size").copied();
    let [_, ours, apart, ..] = ROWS else { return Err("its rows are gone".into()) };
    // The goal is the other way round, zones of 1.05 times the files at most: above 1 the first would be better.
    let files = run.runs(ours.name, |row| row.space_efficiency).into_iter().flatten().collect::<Vec<f64>>();
    let files = Ratio::of("bytes of live files over those of their zones, at rest", &files);
    run.outcome.ratios.extend(files.map(|ratio| Ratio { goal: Some(1.0 / MOST_ZONES), ..ratio }));
    let pairs = run.pairs(apart.name, ours.name, zones);
    run.outcome.ratios.extend(Ratio::of("zones at rest: files that do not share zones, over files that do", &pairs));
    run.outcome.notes.push(
        "fillrandom draws keys with replacement, so 63 % of them are different: after all compactions the live data is as much of what \
         was inserted. The paper's 31 GiB are the size of all inserts, compressed. F2FS loses 15 to 20 % of the drive's capacity there \
         (section 1); what it loses here is told by kernel-write-amplification."
            .into(),
    );
    run.outcome.notes.push(
        "At rest: after waitforcompaction the drive is mounted again, and bluefs does at once what it does by itself while nobody uses a \
         drive for two seconds: it empties zones of short tables into others. Nothing of that is done where files do not share zones."
            .into(),
    );
    run.outcome.charts = vec![
        Chart {
            file: "zones".into(),
            title: "Zones that are not empty".into(),
            x: Axis::even("seconds of the drive"),
            y: Axis::even("zones"),
            shape: Shape::Lines(lines),
        },
        Chart {
            file: "space".into(),
            title: "Zones at the end, at full size".into(),
            x: Axis::default(),
            y: Axis::even("GiB"),
            shape: Shape::Bars(bars),
        },
    ];
    Ok(())
}

fn short_name(name: &str) -> String {
    name.replace(", files do not share zones (as in the paper)", ", share=off").replace("default settings", "default")
}
