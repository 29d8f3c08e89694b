//! Experiments: what a workload takes on a drive whose time is modelled, beside what the papers have.
//!
//! [`Experiment`] is one of them, [`run`] carries it out and leaves `result.json`, `report.html` and a PNG file for each chart in a
//! directory. What was measured is on the disk after each row, marked as not complete until the end, so that whatever happens
//! leaves what there is. [`result`] is what is written, [`checks`] what must be said about it, [`report`] the page.

pub mod agreement;
pub mod beside;
mod blocktrace;
mod bluefs_async;
mod bluefs_space;
mod bluefs_sync;
mod cache_policy;
mod calibration;
pub mod chart;
pub mod checks;
mod child;
mod chunk_cpu;
mod chunk_lifetime;
mod chunk_multistream;
mod chunk_placement;
mod chunk_read;
mod chunk_recovery;
mod chunk_write;
#[cfg(test)]
mod group_commit_delay;
mod hdd_tuning;
mod hosts;
mod images;
mod images_paced;
mod interleave;
mod kernel_amplification;
mod kernel_chunks;
mod kv_at_once;
mod kv_cpu;
mod kv_driven;
mod kv_gear;
mod kv_keys;
mod kv_paced;
mod kv_reopen;
mod kv_simulated;
mod kv_smrdb;
mod kv_stock;
mod kv_store;
mod kv_workloads;
mod kv_ycsb;
mod leveldb_bluefs;
mod log_placement;
mod machine;
mod object_workload;
mod oss;
pub mod report;
pub mod result;
mod rocks;
mod running;
mod sample;
pub mod sensitivity;
mod store_ceph;
mod store_cpu;
mod store_db;
mod store_ec;
mod store_objects;
pub mod streams;
#[cfg(test)]
mod throttled;
mod virtual_clock;
mod ycsb;
mod zoned_file_systems;

pub use hosts::remove_left;
use imbrex_device::words::the_nearest;
use result::{Config, Outcome};
pub(crate) use running::Run;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where drives of experiments live, unless told otherwise: in memory, so that only a drive's model takes time.
pub const WORK: &str = "/dev/shm";

/// What is scaled, and what keeps its size (DESIGN, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing: the drive is as large and as slow as it is.
    Whole,
    /// Everything: sizes and mechanical times, with bandwidth, block and record kept.
    All,
    /// Only how many operations and zones there are: the operation keeps its size, and so the mechanics are real.
    Fewer,
}

impl Rule {
    /// What a row prints.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Whole => "unscaled",
            Rule::All => "all scaled",
            Rule::Fewer => "fewer operations, real mechanics",
        }
    }
}

/// How a run is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes are divided by this.
    pub scale: u32,
    /// Where the result goes; must not exist, unless `force`.
    pub out: PathBuf,
    /// Whether an older result there is replaced.
    pub force: bool,
    /// Only rows whose name contains one of these; all, if there is none.
    pub only: Vec<String>,
    /// Whether rows that the usual form leaves out are wanted, too.
    pub full: bool,
    /// Inserts at full size, instead of the paper's 150 million; bluefs-async only.
    pub inserts: Option<u64>,
    /// Where drives live meanwhile.
    pub work: PathBuf,
    /// Where the plug-ins are.
    pub build: PathBuf,
    /// Runs of each row.
    pub repeats: usize,
    /// Seconds of the drives' clocks in a second, where programs run on them; [`Experiment::speed`] without it.
    pub speed: Option<f64>,
    /// Whether what a row asked of its drive is replayed with every assumption changed.
    pub sensitivity: bool,
    /// Whether only the plumbing is tried, with next to no work.
    pub short: bool,
    /// The command line, to be repeated.
    pub command: String,
    /// Where the same command leaves the results of other experiments: what one of them measured is not measured again.
    pub shared: Option<PathBuf>,
    /// What is at work at the same time, for the report.
    pub beside: Option<String>,
}

impl Options {
    /// Whether this row of an experiment is wanted: one that [`Experiment::extra`] names, only by its name or with all.
    fn wants(&self, name: &str, extra: &[String]) -> bool {
        if self.only.is_empty() {
            return self.full || !extra.iter().any(|row| row == name);
        }
        self.only.iter().any(|only| name.contains(only.as_str()))
    }
}

/// What an experiment takes while it runs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Of the directory for drives.
    pub work: u64,
    /// Of memory, the directory for drives not counted.
    pub memory: u64,
}

/// Why an experiment ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Somebody asked for it.
    Interrupted,
    /// It failed; the sentence says what to do next.
    Failed(String),
}

impl From<String> for Stop {
    fn from(sentence: String) -> Stop {
        Stop::Failed(sentence)
    }
}

impl From<&str> for Stop {
    fn from(sentence: &str) -> Stop {
        Stop::Failed(sentence.into())
    }
}

/// One experiment.
pub struct Experiment {
    /// What the command line calls it.
    pub name: &'static str,
    /// What it asks, in one line.
    pub about: &'static str,
    /// Where the papers have it.
    pub paper: &'static str,
    /// Seconds of the drives' clocks in a second at 1/64 at which a machine of four cores keeps the drives busy, for 80 % of the time and more.
    pub(crate) speed: f64,
    pub(crate) rows: fn(&Options) -> Vec<String>,
    /// Those of them that the usual form leaves out, since no conclusion hangs on them.
    pub(crate) extra: fn(&Options) -> Vec<String>,
    pub(crate) needs: fn(&Options) -> Needs,
    pub(crate) run: fn(&mut Run) -> Result<(), Stop>,
}

impl Experiment {
    /// The speed that it runs at where none is asked for. The drive of a larger scale does less in a second, so it may run faster, for the
    /// same load of the host; but not faster than it is.
    pub fn speed(&self, scale: u32) -> f64 {
        (self.speed * 64.0 / f64::from(scale.max(1))).clamp(0.01, self.speed.max(1.0))
    }
}

/// All experiments, in the order in which they are best read.
pub const ALL: &[Experiment] = &[
    calibration::EXPERIMENT,
    interleave::EXPERIMENT,
    log_placement::EXPERIMENT,
    // Others begin beside the experiments behind it.
    bluefs_sync::EXPERIMENT,
    bluefs_async::EXPERIMENT,
    // It has rows of the one before.
    hdd_tuning::EXPERIMENT,
    bluefs_space::EXPERIMENT,
    leveldb_bluefs::EXPERIMENT,
    kernel_amplification::EXPERIMENT,
    zoned_file_systems::EXPERIMENT,
    chunk_write::EXPERIMENT,
    chunk_read::EXPERIMENT,
    chunk_recovery::EXPERIMENT,
    chunk_cpu::EXPERIMENT,
    chunk_multistream::EXPERIMENT,
    chunk_placement::EXPERIMENT,
    chunk_lifetime::EXPERIMENT,
    kv_simulated::EXPERIMENT,
    kv_store::EXPERIMENT,
    kv_stock::EXPERIMENT,
    kv_workloads::EXPERIMENT,
    kv_cpu::EXPERIMENT,
    kv_at_once::EXPERIMENT,
    kv_paced::EXPERIMENT,
    kv_reopen::EXPERIMENT,
    kv_ycsb::EXPERIMENT,
    kv_gear::EXPERIMENT,
    kv_smrdb::EXPERIMENT,
    store_cpu::EXPERIMENT,
    store_objects::EXPERIMENT,
    store_ec::EXPERIMENT,
    cache_policy::EXPERIMENT,
    images::EXPERIMENT,
    images_paced::EXPERIMENT,
    store_ceph::EXPERIMENT,
    store_db::EXPERIMENT,
];

/// The experiment of this name; the error names all.
pub fn named(name: &str) -> Result<&'static Experiment, String> {
    ALL.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let nearest = the_nearest(name, ALL.iter().map(|experiment| experiment.name));
        format!("there is no experiment {name:?}; {nearest}, and `imbrex bench list` lists all")
    })
}

/// Of an experiment whose rows are all run.
const NONE: fn(&Options) -> Vec<String> = |_| Vec::new();

/// The speed of rows whose operations keep their size.
const FEWER_SPEED: f64 = 4.0;

/// Somebody who watches.
pub trait Watcher: Sync {
    /// So much of everything is done, 0 to 1, and this is what it does now.
    fn at(&self, done: f64, what: &str);
}

fn failed(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}; see that there is room, and that it may be written", path.display())
}

/// The result that a run left in `dir`; the error is a sentence.
pub fn load(dir: &Path) -> Result<Outcome, String> {
    let path = dir.join("result.json");
    let refuse = |why: String| format!("{}: {why}; name a directory that `imbrex bench run` left", path.display());
    let text = std::fs::read_to_string(&path).map_err(|e| refuse(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))
}

/// Writes a result and its report to where it was read from.
pub fn store(dir: &Path, outcome: &Outcome) -> Result<(), String> {
    save(dir, outcome)?;
    report::write(dir, outcome)
}

fn save(out: &Path, outcome: &Outcome) -> Result<(), String> {
    // In one step: whoever reads it, or a process that dies now, leaves a whole file.
    let (file, new) = (out.join("result.json"), out.join("result.json.new"));
    let text = serde_json::to_string_pretty(outcome).map_err(|e| failed(&file, e))?;
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file)).map_err(|e| failed(&file, e))
}

/// Refuses a directory for results that is there already, unless older ones are replaced. The error is a sentence.
pub fn fresh(out: &Path, force: bool) -> Result<(), String> {
    if out.exists() && !force {
        return Err(format!(
            "{} exists already; name another directory with --out, or replace what is in it with --force",
            out.display()
        ));
    }
    Ok(())
}

/// Makes the directory, or clears an older result out of it.
fn prepare(out: &Path) -> Result<(), String> {
    if out.exists() {
        let entries = std::fs::read_dir(out).map_err(|e| failed(out, e))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let ours = path.file_name().is_some_and(|name| name == "result.json" || name == "report.html")
                || path.extension().is_some_and(|end| end == "png");
            if ours && path.is_file() {
                std::fs::remove_file(&path).map_err(|e| failed(&path, e))?;
            }
        }
    }
    std::fs::create_dir_all(out).map_err(|e| failed(out, e))
}

/// Refuses, before anything begins, what cannot end well.
pub fn check(experiment: &Experiment, options: &Options) -> Result<(), String> {
    asked(experiment, options)?;
    room(experiment, options)
}

/// Refuses what makes no sense, however large the machine is.
pub fn asked(experiment: &Experiment, options: &Options) -> Result<(), String> {
    fresh(&options.out, options.force)?;
    let names = (experiment.rows)(options);
    if options.inserts.is_some() && experiment.name != bluefs_async::EXPERIMENT.name {
        return Err(format!("only {} can have another number of inserts", bluefs_async::EXPERIMENT.name));
    }
    if let Some(only) = options.only.iter().find(|only| !names.iter().any(|name| name.contains(only.as_str()))) {
        return Err(format!("{} has no row {only:?}; its rows are: {}", experiment.name, names.join("; ")));
    }
    Ok(())
}

/// Refuses what does not fit this machine, with what it would need.
pub fn room(experiment: &Experiment, options: &Options) -> Result<(), String> {
    machine::check(experiment.name, needs(experiment, options), options)
}

/// What an experiment takes in this form.
fn needs(experiment: &Experiment, options: &Options) -> Needs {
    let mut needs = (experiment.needs)(options);
    if options.sensitivity && !options.short && needs.work > 0 {
        // What a drive records, and replays of that side by side.
        needs.work += u64::from(sensitivity::ENTRIES) * 48;
        needs.memory += 512 << 20;
    }
    needs
}

/// Runs an experiment and leaves result and report in `options.out`. The error is a sentence; where something was measured before,
/// it is there, marked as not complete.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    watcher: &dyn Watcher,
    interrupted: &Arc<AtomicBool>,
) -> Result<Outcome, String> {
    check(experiment, options)?;
    prepare(&options.out)?;
    let names = (experiment.rows)(options);
    let (extra, all) = ((experiment.extra)(options), names.len());
    let rows = names.iter().filter(|name| options.wants(name, &extra)).count();
    let speed = options.speed.unwrap_or_else(|| experiment.speed(options.scale));
    let outcome = Outcome {
        experiment: experiment.name.into(),
        about: experiment.about.into(),
        config: Config { speed: Some(speed), ..machine::config(options) },
        ..Outcome::default()
    };
    let mut run = Run::new(options, outcome, watcher, interrupted.clone(), (names, extra.clone(), rows), speed);
    if let Some(what) = &options.beside {
        run.setting("at work beside it", what);
    }
    let ended = (experiment.run)(&mut run);
    let mut outcome = run.outcome;
    let left: Vec<&str> = extra.iter().map(String::as_str).filter(|name| !options.wants(name, &extra)).collect();
    if options.only.is_empty() && !left.is_empty() {
        outcome.notes.push(format!(
            "Left out, {} of {all} rows: {}. `--full` runs all, `--only ROW` those whose name contains ROW.",
            left.len(),
            left.join("; ")
        ));
    }
    checks::artefacts(&mut outcome);
    sensitivity::ratios(&mut outcome);
    sensitivity::charts(&mut outcome);
    outcome.complete = ended.is_ok();
    outcome.stopped = match &ended {
        Ok(()) => None,
        Err(Stop::Interrupted) => Some("it was interrupted".into()),
        Err(Stop::Failed(sentence)) => Some(sentence.clone()),
    };
    save(&options.out, &outcome)?;
    report::write(&options.out, &outcome)?;
    watcher.at(1.0, "");
    let kept = |why: &str| {
        format!(
            "{}: {why}; what was measured before is in {}, marked as partial",
            experiment.name,
            options.out.display()
        )
    };
    match ended {
        Ok(()) => Ok(outcome),
        Err(Stop::Interrupted) => Err(kept("it was interrupted")),
        Err(Stop::Failed(sentence)) => Err(kept(&sentence)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use result::Row;
    use std::sync::atomic::Ordering;

    pub(crate) struct Nobody;
    impl Watcher for Nobody {
        fn at(&self, _: f64, _: &str) {}
    }

    pub(crate) fn options(out: &Path) -> Options {
        Options {
            scale: 64,
            out: out.join("out"),
            force: false,
            only: Vec::new(),
            full: false,
            inserts: None,
            work: out.to_owned(),
            build: out.to_owned(),
            repeats: 1,
            speed: None,
            sensitivity: false,
            short: true,
            command: String::new(),
            shared: None,
            beside: None,
        }
    }

    fn fails_in_the_second(run: &mut Run) -> Result<(), Stop> {
        run.row("first", |_| Ok(Row { operations: Some(7), ..Row::new("", "none") }))?;
        run.row("second", |_| Err(Stop::Failed("it has no legs".into())))?;
        run.row("third", |run| {
            run.interrupted.store(true, Ordering::Relaxed);
            Ok(Row::default())
        })?;
        run.row("fourth", |_| Ok(Row::default()))
    }

    const ODD: Experiment = Experiment {
        name: "odd",
        about: "odd",
        paper: "none",
        speed: 1.0,
        rows: |_| ["first", "second", "third", "fourth"].map(String::from).to_vec(),
        extra: NONE,
        needs: |_| Needs::default(),
        run: fails_in_the_second,
    };

    fn read(out: &Path) -> Outcome {
        serde_json::from_str(&std::fs::read_to_string(out.join("result.json")).unwrap()).unwrap()
    }

    #[test]
    fn what_was_measured_before_an_interruption_is_kept_and_marked() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let sentence = run(&ODD, &options, &Nobody, &Arc::default()).unwrap_err();
        assert!(sentence.contains("partial"), "{sentence}");
        let kept = read(&options.out);
        assert!(!kept.complete && kept.stopped.is_some());
        let names: Vec<&str> = kept.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!(kept.rows[0].operations, Some(7));
        assert_eq!(kept.rows[1].not_run.as_deref(), Some("it has no legs"));
        assert!(std::fs::read_to_string(options.out.join("report.html")).unwrap().contains("partial"));
    }

    fn counts(run: &mut Run) -> Result<(), Stop> {
        let mut n = 0.0;
        for name in ["slow", "fast"] {
            run.row(name, |run| {
                n += 1.0;
                // The slow one fails in its second run.
                if n == 2.0 {
                    return Err(Stop::Failed("it stumbled".into()));
                }
                Ok(Row { wall_seconds: Some(n), operations: Some(run.repeat() as u64), ..Row::default() })
            })?;
        }
        let pairs = run.pairs("slow", "fast", |row| row.wall_seconds);
        run.outcome.ratios.extend(result::Ratio::of("slow over fast", &pairs));
        Ok(())
    }

    #[test]
    fn rows_are_repeated_and_compared_run_by_run() {
        let dir = tempfile::tempdir().unwrap();
        let experiment = Experiment { run: counts, rows: |_| vec!["slow".into(), "fast".into()], ..ODD };
        let options = Options { repeats: 3, ..options(dir.path()) };
        let outcome = run(&experiment, &options, &Nobody, &Arc::default()).unwrap();
        let names: Vec<&str> = outcome.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["slow", "slow (run 2)", "slow (run 3)", "fast", "fast (run 2)", "fast (run 3)"]);
        assert_eq!(outcome.rows[1].not_run.as_deref(), Some("it stumbled"));
        assert_eq!(outcome.rows[5].operations, Some(2));
        // Their second runs are no pair: 1 over 4, and 3 over 6.
        assert_eq!(outcome.ratios[0].all, [0.25, 0.5]);
        assert_eq!(outcome.config.repeats, 3);
        let once = Experiment {
            run: |run| {
                run.once("it is always the same");
                counts(run)
            },
            ..experiment
        };
        let options = Options { force: true, ..options };
        let outcome = super::run(&once, &options, &Nobody, &Arc::default()).unwrap();
        assert_eq!((outcome.rows.len(), outcome.config.repeats), (2, 1));
        assert!(outcome.config.settings.values().any(|why| why == "it is always the same"));
    }

    #[test]
    fn only_what_the_same_command_measured_is_shared() {
        let dir = tempfile::tempdir().unwrap();
        let wants = Experiment {
            run: |run| run.row("first", |run| run.shared("other", "first").ok_or("nobody has it".into())),
            ..ODD
        };
        let of = |out: &str, command: &str| Options {
            out: dir.path().join(out),
            force: true,
            command: command.into(),
            only: vec!["first".into()],
            shared: Some(dir.path().to_owned()),
            ..options(dir.path())
        };
        run(&ODD, &of("other", "all"), &Nobody, &Arc::default()).unwrap();
        let row = run(&wants, &of("mine", "all"), &Nobody, &Arc::default()).unwrap().rows.remove(0);
        assert_eq!((row.operations, row.settings["measured by"].as_str()), (Some(7), "other: first"));
        let row = run(&wants, &of("mine", "another"), &Nobody, &Arc::default()).unwrap().rows.remove(0);
        assert_eq!(row.not_run.as_deref(), Some("nobody has it"));
    }

    #[test]
    fn an_older_result_is_replaced_only_when_told_to_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options { only: vec!["first".into()], ..options(dir.path()) };
        assert!(run(&ODD, &options, &Nobody, &Arc::default()).unwrap().complete);
        std::fs::write(options.out.join("mine.txt"), "mine").unwrap();
        std::fs::write(options.out.join("old.png"), "old").unwrap();
        assert!(run(&ODD, &options, &Nobody, &Arc::default()).unwrap_err().contains("--force"));
        assert!(options.out.join("old.png").exists());
        options.force = true;
        run(&ODD, &options, &Nobody, &Arc::default()).unwrap();
        assert!(options.out.join("mine.txt").exists() && !options.out.join("old.png").exists());
    }

    #[test]
    fn what_cannot_end_well_does_not_begin() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        assert!(named("calibrate").err().unwrap().contains("calibration"));
        let sentence =
            check(&ODD, &Options { only: vec!["first".into(), "fifth".into()], ..options.clone() }).unwrap_err();
        assert!(sentence.contains("first; second"), "{sentence}");
        let large = Experiment { needs: |_| Needs { work: 1 << 60, memory: 0 }, ..ODD };
        assert!(
            check(&large, &options).unwrap_err().contains("1048576.0 TiB"),
            "{}",
            check(&large, &options).unwrap_err()
        );
        let greedy = Experiment { needs: |_| Needs { work: 0, memory: 1 << 60 }, ..ODD };
        assert!(run(&greedy, &options, &Nobody, &Arc::default()).unwrap_err().contains("memory"));
        assert!(!options.out.exists());
    }
}
