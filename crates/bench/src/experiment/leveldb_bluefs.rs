//! `leveldb-bluefs`: LevelDB on bluefs on GearDB's drive, against LevelDB on XFS on a conventional drive with the same mechanics, beside
//! GearDB's figure (the paper's Figure 16).

use super::chart::{Axis, Chart, Shape};
use super::hosts::{Disk, made, on_kernel, preload, workplace};
use super::result::{Figure, Ratio, Row};
use super::rocks::{On, Pace, watch};
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use crate::baseline::{Directory, FileSystem};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "leveldb-bluefs",
    about: "LevelDB on bluefs on GearDB's drive, against XFS on a conventional drive of the same mechanics",
    paper: "BlueFS, section 5.8, Figure 16; GearDB, section 2",
    speed: 0.4,
    rows: |_| PLANS.iter().flat_map(|plan| [name(plan, true), name(plan, false)]).collect(),
    extra: super::NONE,
    needs,
    run,
};

const DRIVE: &str = "seagate-st13125nm007";
const MIB: u64 = 1 << 20;
/// Bytes of a key and a value.
const RECORD: u64 = 16 + 4096;
/// At full size: records, and reads.
const RECORDS: u64 = 20_000_000;
const READS: u64 = 1_000_000;
/// Page cache of a machine with 32 GiB, at full size; LevelDB on bluefs has as much in bluefs.
const CACHE: u64 = 28 << 30;

struct Plan {
    name: &'static str,
    /// What the program calls it.
    measured: &'static str,
    rule: Rule,
    in_order: bool,
    reads: bool,
    /// GearDB's, in operations a second.
    gear: Option<f64>,
}

const PLANS: &[Plan] = &[
    Plan {
        name: "fillrandom",
        measured: "fillrandom",
        rule: Rule::All,
        in_order: false,
        reads: false,
        gear: Some(1489.0),
    },
    Plan { name: "fillseq", measured: "fillseq", rule: Rule::All, in_order: true, reads: false, gear: None },
    Plan { name: "readrandom", measured: "readrandom", rule: Rule::Fewer, in_order: false, reads: true, gear: None },
    Plan { name: "readseq", measured: "readseq", rule: Rule::Fewer, in_order: false, reads: true, gear: None },
];

/// Parts of a run that reads, behind the filling and a full compaction.
const READING: [&str; 2] = ["readrandom", "readseq"];

fn name(plan: &Plan, bluefs: bool) -> String {
    format!("{}, {}", plan.name, if bluefs { "bluefs" } else { "XFS on CMR with the same mechanics" })
}

fn records(options: &Options) -> u64 {
    if options.short { 3000 } else { (RECORDS / u64::from(options.scale)).max(3000) }
}

fn reads(options: &Options) -> u64 {
    if options.short { 500 } else { (READS / u64::from(options.scale)).max(500) }
}

fn needs(options: &Options) -> Needs {
    let data = records(options) * RECORD;
    Needs { work: data * 3 + 256 * MIB, memory: CACHE / u64::from(options.scale) + 1024 * MIB }
}

/// Operations a second of the line that begins with `name`.
fn rate(output: &str, name: &str) -> Option<f64> {
    let number = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.split_whitespace().next()?.parse().ok();
    output.lines().find_map(number)
}

fn run_on(run: &Run, plan: &Plan, disk: &Disk, mut command: Command, image: &Path, dir: &Path) -> Result<Ran, Stop> {
    let options = run.options;
    let (n, reads) = (records(options), reads(options));
    // Tables of a zone, and memtables as large.
    let table = 256 * MIB / u64::from(disk.divides(options.scale)) / 100 * 98;
    command.args([
        format!("--num={n}"),
        format!("--file-size={table}"),
        format!("--write-buffer={table}"),
        "--seed=1".into(),
    ]);
    if plan.in_order {
        command.arg("--in-order=1");
    }
    command.args(if plan.reads {
        vec![format!("--reads={reads}"), format!("--scan={reads}"), "--told=1".into()]
    } else {
        vec!["--reads=1".into(), "--scan=0".into()]
    });
    let mut row = disk.row();
    let arguments: Vec<_> =
        command.get_args().map(|arg| arg.to_string_lossy()).filter(|arg| arg.starts_with("--")).collect();
    row.settings.insert("leveldb_bench".into(), arguments.join(" "));
    let speed = run.speed(disk.rule);
    let parts: &[&str] = if plan.reads { &READING } else { &[] };
    let watched = watch(run, &On { command, image, pace: Pace::Real(speed), disk }, dir, &row, parts)?;
    Ok(Ran { rows: watched.rows, output: watched.output })
}

/// A run of the program, from which the rows of several plans can be read.
#[derive(Clone)]
struct Ran {
    /// One, or one of each part of [`READING`].
    rows: Vec<Row>,
    output: String,
}

impl Ran {
    fn each(&mut self, change: impl Fn(&mut Row)) {
        self.rows.iter_mut().for_each(change);
    }

    /// The row of a plan.
    fn row(&self, plan: &Plan, options: &Options, speed: f64) -> Result<Row, Stop> {
        let rate = rate(&self.output, plan.measured)
            .ok_or("leveldb_bench printed no result; `bindings/leveldb/build.sh build tests` makes it")?;
        let operations = if plan.reads { reads(options) } else { records(options) };
        let part = READING.iter().position(|part| *part == plan.measured).unwrap_or(0);
        let mut row = self.rows.get(part).cloned().ok_or("nothing was measured of it")?;
        row.operations = Some(operations);
        row.wall_seconds = Some(operations as f64 / rate * speed);
        // Readers write nothing.
        row.bytes_user = (!plan.reads).then_some(operations * RECORD);
        row.figures.insert("operations/s".into(), rate / speed);
        let source = "GearDB, section 2; 0.9 of its zones hold valid data";
        row.paper = plan.gear.map(|rate| Figure::new(rate, "operations/s of GearDB", source));
        Ok(row.amplified())
    }
}

fn measure(run: &mut Run, plan: &Plan, bluefs: bool) -> Result<Ran, Stop> {
    let options = run.options;
    let program = options.build.join("leveldb_bench");
    if !program.exists() {
        return Err(Stop::Failed(format!(
            "{} is not there; `bindings/leveldb/build.sh build tests` makes it",
            program.display()
        )));
    }
    let disk = Disk::named(DRIVE, plan.rule)?;
    let cache = (CACHE / u64::from(options.scale)).max(MIB);
    let dir = workplace(&options.work)?;
    if bluefs {
        run.model(&disk.profile);
        let image = made(&disk, options, dir.path())?;
        let io = disk.divides(options.scale);
        let time = Pace::Real(run.speed(disk.rule)).options();
        let journal = (16 * MIB / u64::from(io)).max(64 << 10);
        // Memory for what waits to be written, three logs at most, is a part of the same bytes.
        let survivor = (768 * MIB / u64::from(io)).min(cache / 8 / 4096 * 4096).max(MIB);
        let switches = format!(
            "cache={}&io-scale={io}&journal={journal}&survivor-size={survivor}",
            cache.saturating_sub(survivor)
        );
        let mut command = Command::new(program);
        command.arg(format!("--uri=imbrex://{}?format=on&{time}&{switches}", image.display())).arg("--db=/bench");
        command.env("LD_PRELOAD", preload(&options.build, &[])?).env("IMBREX_SHM_DIR", dir.path());
        return run_on(run, plan, &disk, command, &image, dir.path());
    }
    let disk = disk.twin();
    run.model(&disk.profile);
    let baseline = on_kernel(run, &disk, FileSystem::Xfs, Directory::Own, CACHE, dir.path())?;
    let mut command = baseline.command(program);
    command.arg(format!("--db={}", baseline.dir().join("bench").display()));
    let image = baseline.image().to_owned();
    let mut ran = run_on(run, plan, &disk, command, &image, dir.path())?;
    let report = baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    match report.page_cache {
        Ok(cache) => ran.each(|row| _ = row.settings.insert("page cache".into(), format!("{cache:?}"))),
        Err(why) => ran.each(|row| row.flags.push(format!("the page cache was not limited: {why}"))),
    }
    Ok(ran)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("records", records(run.options));
    run.setting("reads", reads(run.options));
    run.setting("cache, bytes", CACHE / u64::from(run.options.scale));
    // A reader waits for each read, and at a faster clock a few tenths of a millisecond of the host for each are what is measured.
    run.real_mechanics_at(1.0);
    // Reads at random and in order come from one run.
    let mut kept: [BTreeMap<usize, Ran>; 2] = Default::default();
    for plan in PLANS {
        let mut bars = Vec::new();
        for (bluefs, kept) in [true, false].into_iter().zip(&mut kept) {
            let name = name(plan, bluefs);
            run.row(&name, |run| {
                let ran = match kept.remove(&run.repeat()) {
                    Some(ran) => ran,
                    None => measure(run, plan, bluefs)?,
                };
                if plan.reads {
                    kept.insert(run.repeat(), ran.clone());
                }
                ran.row(plan, run.options, run.speed(plan.rule))
            })?;
            if let Some(rate) = run.measured(&name).and_then(|row| row.figures.get("operations/s")) {
                bars.push((name, *rate, plan.gear.filter(|_| bluefs)));
            }
        }
        if !bars.is_empty() {
            // One for each, since rates of reads at random and of a filling in order are a hundredfold apart.
            run.outcome.charts.push(Chart {
                file: plan.name.into(),
                title: format!("LevelDB on {DRIVE}: {}", plan.name),
                x: Axis::default(),
                y: Axis::even("operations/s"),
                shape: Shape::Bars(bars),
            });
        }
        let of = |row: &Row| row.figures.get("operations/s").copied();
        let (ours, theirs) = (name(plan, true), name(plan, false));
        let pairs = run.pairs(&ours, &theirs, of);
        let ratio = Ratio::of(format!("{}: bluefs against XFS on a drive of the same mechanics", plan.name), &pairs);
        let gear = plan.gear.and_then(|gear| {
            let all: Vec<f64> = run.runs(&ours, of).into_iter().flatten().map(|rate| rate / gear).collect();
            Ratio::of(format!("{}: bluefs against GearDB's figure", plan.name), &all)
        });
        let ratio = ratio.map(|ratio| ratio.between(theirs, ours));
        run.outcome.ratios.extend(ratio.map(|ratio| Ratio { bandwidth_alone: Some(1.0), ..ratio }));
        run.outcome.ratios.extend(gear.map(|ratio| ratio.paper(2.2, "x", "BlueFS, section 5.8")));
    }
    run.outcome.notes.push(
        "The paper has 2.2, 21 and 2 times GearDB's rate for fillrandom, readrandom and readseq; of GearDB's rates its own text has only \
         that of fillrandom. A full compaction stands here between filling and reading, which GearDB's benchmark does not have."
            .into(),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_prints_is_understood() {
        let out = "fillrandom 91298 ops/sec, 11.36 us of processor time each\nreadrandom is next\nreadrandom 5 ops/sec, 1 us\n";
        assert_eq!(
            (rate(out, "fillrandom"), rate(out, "readrandom"), rate(out, "readseq")),
            (Some(91298.0), Some(5.0), None)
        );
    }
}
