//! `zoned-file-systems`: RocksDB on what a user could take instead of bluefs, Zoned XFS first: the same `db_bench` on each in the kernel VM
//! (`scripts/kernel-times`), on a zoned `null_blk`; what the kernel asked of that device is played on the frozen model of an HM-SMR disk
//! ([`blocktrace`](super::blocktrace)). bluefs runs in the same VM and is played by the same rules.
//!
//! The model is the whole drive at the scale of the experiment, so its zones are as large as the device's. Where the drive holds little, the device's zones
//! lie side by side at its outer edge; where it is full, evenly over the whole stroke, in their order. Reads and synchronous inserts, whose commands
//! keep their size, are played with the drive's real mechanics.
//!
//! [`real_time`] has the same runs where programs wait for the drive.

mod real_time;

use super::blocktrace::{Command as Asked, Drive, Order, behind_pauses, parse, play};
use super::bluefs_async::{HGST, shrunk};
use super::chart::{Axis, Chart, Shape};
use super::child::Running;
use super::hosts::{Disk, workplace};
use super::kernel_amplification::{self as amplification, BLUEFS, F2FS, System, XFS, script};
use super::kernel_chunks::Ran;
use super::result::{Ratio, Row};
use super::rocks::{Job, KEY, Settings, VALUE, timed};
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_emulator::Config;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "zoned-file-systems",
    about: "RocksDB on Zoned XFS, F2FS and bluefs: what a kernel asks of a zoned device in a VM takes on an HM-SMR disk, and how many bytes it is",
    paper: "BlueFS, section 2.3, has no file system for zoned drives beside it; Zoned XFS is younger",
    speed: 0.1,
    rows: |options| {
        let played = rows(options).map(|(system, what)| name(system, what));
        let waited_for = rows(options).map(|(system, what)| real_time::name(system, what));
        played.chain(waited_for).chain(amplification::headline(options)).collect()
    },
    extra: |options| {
        let extra = |row: (System, What)| {
            let (system, what) = row;
            let played = (!options.short && system == F2FS).then(|| name(system, what));
            played.into_iter().chain((!options.short).then(|| real_time::name(system, what)))
        };
        rows(options).flat_map(extra).collect()
    },
    needs: |options| Needs { work: 1 << 30, memory: (DEVICE + 3072).max(amplification::memory(options)) << 20 },
    run,
};

const SYSTEMS: [System; 3] = [XFS, BLUEFS, F2FS];
/// Of the device, in MiB, and its conventional zones: as many as XFS wants.
const DEVICE: u64 = 512;
const CONVENTIONAL: u64 = 16;
/// The largest part of the device that one of the systems fills, of what F2FS, which offers least, offers.
const FULL: f64 = 0.85;
/// What F2FS offers of such a device, in bytes; less than the others.
const OFFERED: u64 = 406 << 20;
/// Records that are put into an empty drive, and operations of a run that is no fill.
const COLD: u64 = 150_000;
const SOME: u64 = 1000;
/// Records of the nearly empty drive whose reads are measured: 120 MB with snappy, since those above would fit into the cache.
const TO_READ: u64 = 60_000;
/// Bytes of a value where the drive is full, and where reads are measured.
const LARGE: u64 = 4000;
/// Milliseconds after which the device answers. A command of the scaled drive takes a few tenths of one, and the VM's processor is ten times slower than a real one.
const LATE: u64 = 2;

/// Seconds in which nothing is asked of the drive: half of what `waitforcompaction` sleeps, which is 5.
const PAUSE: f64 = 2.4;

/// What is run.
#[derive(Clone, Copy, Debug)]
struct What {
    /// What the VM calls it: when, and which.
    file: &'static str,
    name: &'static str,
    /// Which of db_bench's.
    benchmark: &'static str,
    writes: bool,
    /// How many times as long Zoned XFS should take.
    goal: f64,
}

impl What {
    /// Which chart it is in.
    fn kind(self) -> &'static str {
        match self.benchmark {
            _ if self.file.contains("sync") => "synchronous",
            _ if self.writes => "inserts",
            _ => "reads",
        }
    }

    /// How the drive shrinks. Where commands keep their size, they would take a scaled drive mostly for their bytes.
    fn rule(self) -> Rule {
        if self.kind() == "inserts" { Rule::All } else { Rule::Fewer }
    }

    fn is_full(self) -> bool {
        self.file.starts_with("full")
    }

    /// What `db_bench` gets beside what all runs get, for so many records. `some`: how many operations there are in a run that fills nothing. A
    /// run of inserts flushes and compacts what it leaves. Synchronous ones are too few for that to come out even, so a run without a row does it after
    /// them. Synchronous inserts go to keys that are there, too.
    fn arguments(self, some: u64, records: u64) -> Vec<String> {
        let settled = |benchmark: &str| format!("--benchmarks={benchmark},flush,waitforcompaction");
        let old = "--use_existing_db=1".to_owned();
        let overwrite = || "--benchmarks=overwrite".to_owned();
        match self.file.split_once('-').map_or("", |(_, run)| run) {
            "overwrite" if self.is_full() => vec![settled("overwrite"), old, format!("--writes={}", some * 20)],
            "overwrite" => vec![settled("overwrite"), old, format!("--writes={records}")],
            "sync" => vec![overwrite(), old, format!("--writes={some}"), "--sync=1".into()],
            "sync16" => {
                vec![overwrite(), old, format!("--writes={}", some / 16), "--sync=1".into(), "--threads=16".into()]
            }
            "settle" => vec!["--benchmarks=flush,waitforcompaction".into(), old],
            "readrandom" => vec!["--benchmarks=readrandom".into(), old, format!("--reads={some}")],
            "readwhilewriting" => {
                let limit = "--benchmark_write_rate_limit=200000".into();
                vec!["--benchmarks=readwhilewriting".into(), old, format!("--reads={some}"), limit]
            }
            _ => vec![settled(self.benchmark)],
        }
    }

    /// Whether the database is one that [`FILL`] made: too many bytes for random inserts of small records, for which the VM's processor would take an hour.
    fn on_large(self) -> bool {
        self.is_full() || self.kind() == "reads" || self.benchmark == "fillseq"
    }

    /// Bytes of a record.
    fn record(self) -> u64 {
        KEY + if self.on_large() { LARGE } else { VALUE }
    }
}

const fn what(file: &'static str, name: &'static str, benchmark: &'static str, goal: f64) -> What {
    What { file, name, benchmark, writes: !matches!(benchmark.as_bytes()[0], b'r'), goal }
}

static RUNS: [What; 11] = [
    what("cold-fillrandom", "fillrandom, nearly empty", "fillrandom", 1.2),
    what("cold-overwrite", "overwrite, nearly empty", "overwrite", 1.2),
    what("cold-sync", "synchronous inserts, one thread, nearly empty", "overwrite", 2.0),
    what("cold-sync16", "synchronous inserts, 16 threads, nearly empty", "overwrite", 2.0),
    what("cold-readrandom", "readrandom, nearly empty", "readrandom", 1.0),
    what("cold-readwhilewriting", "readwhilewriting, nearly empty", "readwhilewriting", 1.0),
    what("full-overwrite", "overwrite, full", "overwrite", 1.2),
    what("full-sync", "synchronous inserts, one thread, full", "overwrite", 2.0),
    what("full-sync16", "synchronous inserts, 16 threads, full", "overwrite", 2.0),
    what("full-readrandom", "readrandom, full", "readrandom", 1.0),
    what("full-readwhilewriting", "readwhilewriting, full", "readwhilewriting", 1.0),
];

/// What makes a database of large records: a new one on the nearly empty drive, before its reads, and one that fills a drive. No row is of it.
const FILL: [What; 2] = [what("cold-fillseq", "", "fillseq", 0.0), what("full-fillseq", "", "fillseq", 0.0)];

/// What flushes and compacts what synchronous inserts left; no row is of it.
const SETTLE: [What; 2] = [what("cold-settle", "", "flush", 0.0), what("full-settle", "", "flush", 0.0)];

/// Runs in their order, with those that have no row; how many records there are then.
fn sequence(options: &Options) -> Vec<(What, u64)> {
    let cold = if options.short { COLD / 75 } else { COLD };
    // Snappy halves what is put. A table's overhead, and what stands in several levels at once, are a sixth.
    let full = (OFFERED as f64 * FULL / 7.0 * 6.0 * 2.0) as u64 / (KEY + LARGE);
    let records = |what: What| match what.on_large() {
        _ if what.is_full() => full,
        true => TO_READ.min(cold),
        false => cold,
    };
    let mut sequence: Vec<What> = Vec::new();
    for &what in runs(options) {
        let fill = FILL[usize::from(what.is_full())];
        if what.on_large() && !sequence.iter().any(|before| before.file == fill.file) {
            sequence.push(fill);
        }
        sequence.push(what);
        if what.kind() == "synchronous" {
            sequence.push(SETTLE[usize::from(what.is_full())]);
        }
    }
    sequence.into_iter().map(|what| (what, records(what))).collect()
}

/// What `db_bench` gets for a run, but [`flags`].
fn arguments(options: &Options, what: What, records: u64) -> Vec<String> {
    let some = if options.short { SOME / 32 } else { SOME };
    let mut words = vec![format!("--num={records}"), format!("--value_size={}", what.record() - KEY)];
    words.extend(what.arguments(some, records));
    if what.is_full() {
        // No more may wait to be compacted than there is room for, as in kernel-write-amplification.
        let limits = [
            "level_compaction_dynamic_level_bytes=true",
            "level0_slowdown_writes_trigger=6",
            "level0_stop_writes_trigger=8",
            "max_background_jobs=2",
        ];
        words.extend(limits.map(|limit| format!("--{limit}")));
        let room = [
            ("soft_pending_compaction_bytes_limit", DEVICE << 15),
            ("hard_pending_compaction_bytes_limit", DEVICE << 16),
            ("max_bytes_for_level_base", DEVICE << 15),
            ("max_compaction_bytes", DEVICE << 15),
        ];
        words.extend(room.map(|(name, bytes)| format!("--{name}={bytes}")));
    }
    words
}

/// The plumbing is tried with one system and a few runs of it.
fn runs(options: &Options) -> &'static [What] {
    if options.short { &RUNS[..3] } else { &RUNS }
}

fn rows(options: &Options) -> impl Iterator<Item = (System, What)> {
    let systems = if options.short { &SYSTEMS[..1] } else { &SYSTEMS[..] };
    runs(options).iter().flat_map(move |what| systems.iter().map(move |system| (*system, *what)))
}

fn name((_, system): System, what: What) -> String {
    format!("{system}: {}", what.name)
}

/// What the VM left of a system, and why it left no more, if that is known.
struct Left {
    dir: TempDir,
    why: Option<String>,
}

/// How db_bench is run, but for what each run asks for.
fn flags(scale: u32, zone: u64) -> String {
    let job = Job {
        benchmarks: "",
        measured: "",
        records: 0,
        sync: false,
        settings: Settings::Tuned,
        scale,
        zone,
        seed: 1,
        account: false,
    };
    let given = ["benchmarks", "num", "sync", "threads", "value_size", "stats_interval_seconds"];
    let flags = job.flags().into_iter().filter(|(name, _)| !given.contains(name));
    flags.map(|(name, value)| format!("--{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Runs everything on a system in the VM.
fn in_the_vm(run: &Run, system: System, config: &Config) -> Result<Left, Stop> {
    let options = run.options;
    let dir = workplace(&options.work)?;
    let line = |(what, records): (What, u64)| {
        let words = arguments(options, what, records).into_iter().map(|word| between_pauses(what, word));
        format!("{} {}", what.file, words.collect::<Vec<_>>().join(" "))
    };
    let settings = [
        ("TIME_DEVICE", DEVICE.to_string()),
        ("TIME_ZONE", (config.zone_size >> 20).to_string()),
        ("TIME_CONV", CONVENTIONAL.to_string()),
        ("TIME_KIB", (config.max_io >> 10).to_string()),
        ("TIME_LATE", LATE.to_string()),
        ("TIME_FLAGS", flags(options.scale, config.zone_size)),
        ("TIME_CACHE", ((2 << 30) / u64::from(options.scale)).to_string()),
        ("TIME_BLUEFS", shrunk("wal=sequential", true, options.scale)),
        ("TIME_RUNS", sequence(options).into_iter().map(line).collect::<Vec<_>>().join("\n")),
    ];
    let mut command = Command::new(script(options, "kernel-times")?);
    command.arg(dir.path()).arg(system.0).args(settings.map(|(name, value)| format!("{name}={value}")));
    command.env("BUILD_DIR", &options.build);
    let mut running = Running::start(&command, dir.path())?;
    run.says(&format!("{} in the VM; some ten minutes", system.1));
    let ended = running.wait(|_| if run.stopped() { Err(Stop::Interrupted) } else { Ok(()) });
    let why = match ended {
        Ok(()) => None,
        Err(Stop::Failed(why)) => {
            let output = running.output();
            Some(output.lines().find_map(|line| line.strip_prefix("times not-run ")).map_or(why, str::to_owned))
        }
        Err(Stop::Interrupted) => {
            running.terminate();
            return Err(Stop::Interrupted);
        }
    };
    Ok(Left { dir, why })
}

/// A file that the VM left.
fn text(dir: &Path, file: &str) -> Result<String, String> {
    std::fs::read_to_string(dir.join(file)).map_err(|error| format!("the VM left no {file} ({error})"))
}

/// A word for `db_bench`, with a benchmark that does nothing for 5 s behind the opening of the database and, where the run is no run of inserts, before
/// it is closed: on bluefs that mounts and unmounts a volume, and a kernel's file system stays mounted.
fn between_pauses(what: What, word: String) -> String {
    match word.strip_prefix("--benchmarks=") {
        Some(list) if what.kind() == "inserts" => format!("--benchmarks=waitforcompaction,{list}"),
        Some(list) => format!("--benchmarks=waitforcompaction,{list},waitforcompaction"),
        None => word,
    }
}

/// Of what was asked the part that [`between_pauses`] marked. The last command of all is none of `db_bench`'s: closing may ask nothing.
fn of_the_run(what: What, mut commands: Vec<Asked>) -> Result<Vec<Asked>, String> {
    let pauses = behind_pauses(&commands, PAUSE);
    let (first, end) = match pauses.as_slice() {
        [first, ..] if what.kind() == "inserts" => (*first, commands.len() - 1),
        // There may be a pause while the database is opened, too.
        [.., first, end] if what.kind() != "inserts" => (*first, *end),
        _ => {
            return Err(
                "the trace does not show where db_bench began and ended; what it read may fit into the cache".into()
            );
        }
    };
    commands.truncate(end);
    match commands.split_off(first) {
        none if none.is_empty() => Err("nothing was asked of the drive".into()),
        run => Ok(run),
    }
}

/// A run, on the model.
fn measured(left: &Left, what: What, scale: u32) -> Result<Row, Stop> {
    let disk = Disk::named(HGST, what.rule())?;
    let config = &disk.config(scale)?;
    let dir = left.dir.path();
    let left_behind = || -> Result<_, String> {
        let output = text(dir, &format!("{}.out", what.file))?;
        let said = timed(&output.replace('\r', "\n"), what.benchmark)
            .ok_or(format!("db_bench printed no result of {}", what.benchmark))?;
        Ok((said, of_the_run(what, parse(&text(dir, &format!("{}.trace", what.file))?)?)?))
    };
    let (said, commands) = left_behind().map_err(|error| left.why.clone().unwrap_or(error))?;
    let drive = Drive::scaled(config, CONVENTIONAL)?;
    let (first, all) = (u64::from(config.conventional), u64::from(config.zones()));
    let count = ((DEVICE << 20) / config.zone_size).saturating_sub(CONVENTIONAL).max(1);
    let step = if what.is_full() { (all - first) / count } else { 1 };
    let place = |zone: u64| match zone.checked_sub(CONVENTIONAL) {
        Some(rank) => (first + rank * step.max(1)) * config.zone_size,
        None => zone * config.zone_size,
    };
    let ran = play(drive, &commands, Order::AsAnswered, place);
    let payload = if what.writes { said.operations * what.record() } else { 0 };
    let ran = Ran { operations: said.operations, payload, ..ran };
    let mut row = ran.row(&disk.row().drive, what.writes);
    row.rule = what.rule().name().into();
    row.figures.remove("MB/s");
    row.figures.insert("operations/s".into(), said.operations as f64 / ran.seconds.max(1e-9));
    if !what.writes {
        (row.bytes_drive, row.flushes) = (Some(ran.written), Some(ran.flushes));
    }
    row.settings.insert("clock".into(), "virtual: what the kernel of the VM asked of its device, again".into());
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let disk = Disk::named(HGST, Rule::All)?;
    let config = disk.config(run.options.scale)?;
    run.model(&disk.profile);
    run.setting("device", format!("null_blk of {DEVICE} MiB in zones of {} MiB, {CONVENTIONAL} of them conventional; it answers after {LATE} ms", config.zone_size >> 20));
    run.setting(
        "full",
        format!(
            "{} % of {} MiB, what F2FS offers of such a device; over the whole stroke",
            FULL * 100.0,
            OFFERED >> 20
        ),
    );
    run.setting("db_bench", flags(run.options.scale, config.zone_size));
    run.setting("microseconds that the host takes between an answer and what follows it, at most (assumed; divided by the scale)", 20);
    let mut left: BTreeMap<(&str, usize), Result<Left, Stop>> = BTreeMap::new();
    for (system, what) in rows(run.options).collect::<Vec<_>>() {
        run.row(&name(system, what), |run| {
            let left = left.entry((system.0, run.repeat())).or_insert_with(|| in_the_vm(run, system, &config));
            measured(left.as_ref().map_err(Clone::clone)?, what, run.options.scale)
        })?;
    }
    charts(run);
    real_time::rows(run, &disk)?;
    amplification::headline_rows(run)?;
    for (system, what) in rows(run.options).filter(|(system, _)| *system != BLUEFS).collect::<Vec<_>>() {
        let (theirs, ours) = (name(system, what), name(BLUEFS, what));
        let pairs = run.pairs(&theirs, &ours, |row| Some(row.wall_seconds? / row.operations?.max(1) as f64));
        if let Some(ratio) = Ratio::of(format!("{theirs}: time, over that on bluefs"), &pairs) {
            let goal = (system == XFS).then_some(what.goal);
            run.outcome.ratios.push(Ratio { goal, ..ratio });
        }
    }
    real_time::ratios(run);
    Ok(())
}

/// One for each kind of run, since their rates lie far apart.
fn charts(run: &mut Run) {
    for (file, title) in [("inserts", "Inserts"), ("synchronous", "Synchronous inserts"), ("reads", "Reads")] {
        let bar = |(system, what)| {
            let name = name(system, what);
            let rate = run.measured(&name)?.figures.get("operations/s").copied()?;
            Some((name, rate, None))
        };
        let bars: Vec<_> = rows(run.options).filter(|(_, what)| what.kind() == file).filter_map(bar).collect();
        if !bars.is_empty() {
            run.outcome.charts.push(Chart {
                file: file.into(),
                title: format!("{title} of RocksDB, {HGST} at 1/{}", run.options.scale),
                x: Axis::default(),
                y: Axis::even("operations a second of the drive's clock"),
                shape: Shape::Bars(bars),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Nobody, options};
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    #[test]
    fn what_the_vm_leaves_is_played_and_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (build, scripts) = (dir.path().join("build"), dir.path().join("scripts"));
        [&build, &scripts].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        // Whoever is not bluefs asks for twice as many writes, each of which misses its place.
        let says = "#!/bin/sh\n\
            [ $2 = bluefs ] && n=20 || n=40\n\
            for run in cold-fillrandom full-overwrite; do\n\
            echo \"${run#*-} : 1.0 micros/op 1 ops/sec 1.0 seconds 100 operations;\" >$1/$run.out\n\
            for i in 0 $(seq 11 $((10 + n))); do\n\
            at=$((131072 + i * 8))\n\
            echo \"x [0] .. $i.0: block_rq_issue: 252,0 WS 4096 () $at + 8 [x]\"\n\
            echo \"x [0] .. $i.1: block_rq_complete: 252,0 WS () $at + 8 [0]\"\n\
            echo \"x [0] .. $i.2: block_rq_issue: 252,0 FF 0 () 0 + 0 [x]\"\n\
            echo \"x [0] .. $i.3: block_rq_complete: 252,0 FF () 0 + 0 [0]\"\n\
            done >$1/$run.trace\n\
            echo \"x [0] .. $i.4: block_rq_issue: 252,0 R 4096 () 0 + 8 [dd]\" >>$1/$run.trace\n\
            echo \"x [0] .. $i.5: block_rq_complete: 252,0 R () 0 + 8 [0]\" >>$1/$run.trace; done\n";
        let amplification = "#!/bin/sh\necho amplification $1 $2 not-run no room\n";
        for (name, says) in [("kernel-times", says), ("kernel-amplification", amplification)] {
            let script = scripts.join(name);
            std::fs::write(&script, says).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let options = Options { build, short: false, scale: 64, ..options(dir.path()) };
        let experiment = Experiment { needs: |_| Needs::default(), ..EXPERIMENT };
        let outcome = super::super::run(&experiment, &options, &Nobody, &Arc::default()).unwrap();
        let row = |name: &str| outcome.rows.iter().find(|row| row.name == name).unwrap();
        let ours = row("bluefs: fillrandom, nearly empty");
        assert_eq!((ours.operations, ours.flushes, ours.bytes_drive), (Some(100), Some(20), Some(20 * 4096)));
        assert!(row("Zoned XFS: readrandom, full").not_run.as_deref().unwrap().contains("left no full-readrandom.out"));
        assert!(!outcome.rows.iter().any(|row| row.name.starts_with("F2FS: ")), "only in the long form");
        let ratio = |name: &str| outcome.ratios.iter().find(|ratio| ratio.name.starts_with(name)).unwrap();
        let overwrite = ratio("Zoned XFS: overwrite, full");
        assert!((1.8..2.2).contains(&overwrite.median) && overwrite.goal == Some(1.2), "{overwrite:?}");
        assert_eq!(outcome.ratios.len(), 2);
    }

    #[test]
    fn what_opens_and_closes_the_database_is_left_out() {
        let command = |at: u32| {
            let line = |event: &str| format!("x [0] .. {at}.{event}");
            let (issue, complete) = (line("0: block_rq_issue: 252,0 R 4096"), line("1: block_rq_complete: 252,0 R"));
            format!("{issue} () 8 + 8 [x]\n{complete} () 8 + 8 [0]\n")
        };
        let at = |what, seconds: &[u32]| {
            let commands = parse(&seconds.iter().map(|at| command(*at)).collect::<String>()).unwrap();
            of_the_run(what, commands).map(|left| left.iter().map(|one| one.issued as u32).collect::<Vec<_>>())
        };
        let (fill, read) = (RUNS[0], RUNS[4]);
        assert_eq!(at(read, &[1, 2, 7, 8, 9, 14, 15]), Ok(vec![7, 8, 9]));
        assert_eq!(at(read, &[1, 2, 7, 8, 9, 14]), Ok(vec![7, 8, 9]), "closing asked nothing");
        assert_eq!(at(read, &[1, 4, 5, 10, 11, 16]), Ok(vec![10, 11]), "opening took a while");
        assert_eq!(at(fill, &[1, 2, 7, 8, 14]), Ok(vec![7, 8]));
        assert_eq!(at(fill, &[1, 2, 7, 8, 9]), Ok(vec![7, 8]));
        assert!(at(read, &[1, 2, 7, 8]).is_err() && at(fill, &[1, 2]).is_err() && at(fill, &[]).is_err());
        assert!(at(fill, &[1, 2, 7]).is_err(), "what is behind the pause is the mark");
        assert_eq!(between_pauses(fill, "--benchmarks=x,flush".into()), "--benchmarks=waitforcompaction,x,flush");
        assert_eq!(between_pauses(read, "--reads=1".into()), "--reads=1");
    }

    #[test]
    fn each_run_has_a_name_of_its_own_and_the_vm_is_told_what_rocksdb_is() {
        let names: std::collections::BTreeSet<_> = RUNS.iter().map(|what| what.name).collect();
        assert_eq!(names.len(), RUNS.len());
        assert!(RUNS.iter().all(|what| what.writes != what.benchmark.starts_with("read")));
        let flags = flags(64, 4 << 20);
        assert!(
            flags.contains("--write_buffer_size=4194304") && !flags.contains("--num=") && !flags.contains("--threads="),
            "{flags}"
        );
    }
}
