//! `imbrex bench`: experiments on drives whose time is modelled.

use crate::installed;
use crate::known;
use crate::output::{Failure, Outcome, print, print_json};
use imbrex_bench::experiment::agreement::{self, Agreement};
use imbrex_bench::experiment::{self, ALL, Experiment, Options, Watcher, beside, report, streams};
use imbrex_bench::segments;
use imbrex_emulator::time::parse_scale;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// `imbrex bench …`
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = "Example:\n  imbrex bench run calibration --out results")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// The experiments, a line each.
    List(List),
    /// Run one and leave a result and a report.
    Run(RunArgs),
    /// Draw the report of a result anew, from its result.json.
    Draw(Draw),
    /// Whether results of an experiment at several scales and speeds agree; marks in them what does not.
    Compare(Compare),
    /// Appends and reads of a chunk server on a kernel's file system, which experiments run.
    #[command(hide = true)]
    Segments(segments::Args),
    /// The streams of an object store as files of a kernel's file system, which an experiment runs.
    #[command(hide = true)]
    Streams(streams::Args),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  imbrex bench compare results/at-1-64 results/at-1-32 results/at-1-16\n  \
                        imbrex bench compare first/bluefs-async second/bluefs-async --json\n\nA directory holds a result, or several in \
                        directories of their own; what is of one experiment is compared.")]
struct Compare {
    /// Where result.json is, or directories that have one.
    #[arg(required = true, num_args = 1..)]
    dirs: Vec<PathBuf>,
    /// Leave the results as they are: only print.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  imbrex bench draw results/calibration")]
struct Draw {
    /// Where result.json is.
    dir: PathBuf,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  imbrex bench list")]
struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  imbrex bench run calibration --out results\n  \
                        imbrex bench run all --scale 1/64 --out results")]
struct RunArgs {
    /// One of `imbrex bench list`, or all: each then has a directory of its own in --out, and an index page.
    #[arg(value_parser = known::experiment(), hide_possible_values = true)]
    name: String,
    /// How much smaller than the paper's.
    #[arg(long, value_name = "1/N", default_value = "1/64", value_parser = parse_scale)]
    scale: u32,
    /// Where result.json, report.html and the charts go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an older result in --out.
    #[arg(long)]
    force: bool,
    /// Only rows whose name contains this; may be given several times.
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// All rows: the usual form of experiments on chunks leaves out those that no conclusion hangs on, and says which.
    #[arg(long)]
    full: bool,
    /// So many inserts at full size instead of the paper's 150 million (bluefs-async only).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000_000..=100_000_000_000))]
    inserts: Option<u64>,
    /// Runs of each row.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// Seconds of the drives' clocks in one second: less than 1 where the machine cannot keep a drive busy. Without it, what
    /// four cores can keep up with, which each experiment knows.
    #[arg(long, value_name = "N", value_parser = speed)]
    speed: Option<f64>,
    /// Run it at 1/64, 1/32 and 1/16 and at two speeds, each into a directory of its own in --out, and compare them.
    #[arg(long, conflicts_with_all = ["scale", "speed"])]
    agreement: bool,
    /// With --agreement: what was run at 1/64 and the usual speed before, which then is not run again.
    #[arg(long, value_name = "DIR", requires = "agreement")]
    base: Option<PathBuf>,
    /// Leave out what the commands would have taken with every assumed parameter of the drives at a half less and a half more.
    #[arg(long)]
    no_sensitivity: bool,
    /// Next to no work: checks that everything runs, and measures nothing.
    #[arg(long)]
    short: bool,
    /// Where drives live meanwhile.
    #[arg(long, value_name = "DIR", default_value = experiment::WORK)]
    work: PathBuf,
    /// Where librocksdb_imbrex.so and libleveldb_imbrex.so are; beside this program, or in ../lib or its directory for this architecture, by default.
    #[arg(long, value_name = "DIR")]
    build: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (0.01..=1000.0).contains(speed));
    speed.ok_or_else(|| "a speed is a number from 0.01 to 1000, as 0.5".into())
}

/// A bar on a terminal, a line for each step elsewhere.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new(quiet: bool) -> Bar {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| ProgressBar::new(1000));
        if let Some(bar) = &bar {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {elapsed:>5}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Bar(bar)
    }
}

impl Watcher for Bar {
    fn at(&self, done: f64, what: &str) {
        let Some(bar) = &self.0 else { return };
        bar.set_position((done * 1000.0) as u64);
        bar.set_message(what.to_owned());
        if done >= 1.0 {
            bar.finish_and_clear();
        }
    }
}

/// Where the plug-ins are; where there are none, beside this program.
fn libraries() -> PathBuf {
    let [beside, ..] = installed::directories();
    installed::with("librocksdb_imbrex.so").unwrap_or(beside)
}

fn list(args: &List) -> Outcome {
    if args.json {
        let all: Vec<_> = ALL.iter().map(|e| json!({ "name": e.name, "about": e.about, "paper": e.paper })).collect();
        return print_json(&all);
    }
    let width = ALL.iter().map(|e| e.name.len()).max().unwrap_or(0);
    let lines: Vec<String> = ALL.iter().map(|e| format!("{:width$}  {}", e.name, e.about)).collect();
    print(lines.join("\n"))
}

fn draw(args: &Draw) -> Outcome {
    let outcome = experiment::load(&args.dir).map_err(Failure::failed)?;
    report::write(&args.dir, &outcome).map_err(Failure::failed)?;
    print(format!("{}", args.dir.join("report.html").display()))
}

fn options(args: &RunArgs, out: PathBuf) -> Options {
    Options {
        scale: args.scale,
        out,
        force: args.force,
        only: args.only.clone(),
        full: args.full,
        inserts: args.inserts,
        work: args.work.clone(),
        build: args.build.clone().unwrap_or_else(libraries),
        repeats: usize::from(args.repeat),
        speed: args.speed,
        sensitivity: !args.no_sensitivity,
        short: args.short,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        shared: None,
        beside: None,
    }
}

/// What came of it, for people.
fn summary(outcome: &experiment::result::Outcome, out: &Path) -> String {
    let mut lines = Vec::new();
    for ratio in &outcome.ratios {
        let paper =
            ratio.paper.as_ref().map_or(String::new(), |f| format!("; {} has {}", f.source, report::number(f.value)));
        lines.push(format!("{}: {}{paper}", ratio.name, report::number(ratio.median)));
        lines.extend(ratio.flags.iter().map(|flag| format!("  {flag}")));
    }
    for row in &outcome.rows {
        if let Some(why) = &row.not_run {
            lines.push(format!("{}: not run: {why}", row.name));
        }
    }
    lines.extend(outcome.invalid.iter().map(|why| format!("invalid: {why}")));
    lines.push(format!("{} rows; the report is {}", outcome.rows.len(), out.join("report.html").display()));
    lines.join("\n")
}

fn run_one(experiment: &Experiment, options: &Options, json: bool, interrupted: &Arc<AtomicBool>) -> Outcome {
    let bar = Bar::new(json);
    let outcome = experiment::run(experiment, options, &bar, interrupted).map_err(Failure::failed)?;
    if json { print_json(&outcome) } else { print(summary(&outcome, &options.out)) }
}

/// The results in these directories, or in directories of those, by experiment and in the order of their names.
fn results(dirs: &[PathBuf]) -> Result<Vec<Vec<(PathBuf, experiment::result::Outcome)>>, Failure> {
    let mut found: Vec<Vec<(PathBuf, experiment::result::Outcome)>> = Vec::new();
    for dir in dirs {
        let mut here = vec![dir.clone()];
        if !dir.join("result.json").exists() {
            let entries = std::fs::read_dir(dir).map_err(|e| {
                Failure::failed(format!("{}: {e}; name a directory that `imbrex bench run` left", dir.display()))
            })?;
            here = entries.flatten().map(|entry| entry.path()).filter(|dir| dir.join("result.json").exists()).collect();
            here.sort();
        }
        if here.is_empty() {
            let dir = dir.display();
            return Err(Failure::failed(format!("{dir} has no result; name a directory that `imbrex bench run` left")));
        }
        for dir in here {
            let outcome = experiment::load(&dir).map_err(Failure::failed)?;
            match found.iter_mut().find(|same| same.iter().any(|(_, one)| one.experiment == outcome.experiment)) {
                Some(same) => same.push((dir, outcome)),
                None => found.push(vec![(dir, outcome)]),
            }
        }
    }
    Ok(found)
}

/// What was compared, for people.
fn table(experiment: &str, agreement: &Agreement) -> String {
    let columns: Vec<String> = agreement.results.iter().map(agreement::column).collect();
    let mut lines = vec![format!("{experiment}: {}", columns.join("; "))];
    for line in &agreement.lines {
        let values: Vec<String> = line.values.iter().map(|value| value.map_or("-".into(), report::number)).collect();
        let verdict = if line.agrees { "" } else { "  DIFFERS" };
        lines.push(format!(
            "  {}, {}: {}  {:.1} % apart{verdict}",
            line.of,
            line.figure,
            values.join(", "),
            line.apart * 100.0
        ));
    }
    lines.extend(agreement.notes.iter().map(|note| format!("  {note}")));
    lines.join("\n")
}

/// Compares results; `left` says what was not run.
fn compare(args: &Compare, left: &[String]) -> Outcome {
    let mut agreements = Vec::new();
    for mut results in results(&args.dirs)? {
        let named: Vec<_> = results.iter().map(|(dir, one)| (dir.display().to_string(), one.clone())).collect();
        // Experiments that are there once are no mistake where directories of several are named.
        if let ([_], true) = (named.as_slice(), args.dirs.len() > 1) {
            continue;
        }
        let mut agreement = agreement::compare(&named).map_err(Failure::failed)?;
        agreement.notes.extend_from_slice(left);
        for (dir, outcome) in results.iter_mut().filter(|_| !args.dry_run) {
            agreement::mark(outcome, &agreement);
            experiment::store(dir, outcome).map_err(Failure::failed)?;
            // The page that leads to it, where there is one.
            if let Some(above) = dir.parent().filter(|above| above.join("index.html").exists()) {
                report::index(above).map_err(Failure::failed)?;
            }
        }
        if !args.json {
            print(table(&named[0].1.experiment, &agreement))?;
        }
        agreements.push(agreement);
    }
    if agreements.is_empty() {
        return Err(Failure::failed(
            "no experiment has two results there; name the results of several scales or speeds",
        ));
    }
    if args.json { print_json(&agreements) } else { Ok(()) }
}

/// The same load for the host at each: a drive of twice the scale has half as much to do in a second.
fn series(experiment: &Experiment) -> Vec<(u32, f64)> {
    let base = experiment.speed(64);
    vec![(64, base), (32, base * 2.0), (16, base * 4.0), (64, base * 2.0)]
}

/// Runs an experiment at several scales and speeds, and compares them. A scale that this machine has no room for is left out, and the comparison says so.
fn run_series(experiment: &Experiment, args: &RunArgs, interrupted: &Arc<AtomicBool>) -> Outcome {
    let all = series(experiment).into_iter().skip(usize::from(args.base.is_some())).map(|(scale, speed)| {
        let out = args.out.join(format!("at-1-{scale}-speed-{speed}"));
        Options { scale, speed: Some(speed), ..options(args, out) }
    });
    // What cannot end well is said before the first begins.
    experiment::fresh(&args.out, args.force).map_err(Failure::failed)?;
    if let Some(base) = &args.base {
        results(std::slice::from_ref(base))?;
    }
    let (mut fit, mut left) = (Vec::new(), Vec::new());
    for options in all {
        experiment::asked(experiment, &options).map_err(Failure::failed)?;
        match experiment::room(experiment, &options) {
            Ok(()) => fit.push(options),
            Err(why) => left.push(format!("left out: {why}")),
        }
    }
    if fit.len() + args.base.iter().count() < 2 {
        return Err(Failure::failed(format!("nothing is left to compare: {}", left.join("; "))));
    }
    // In JSON there is the comparison alone.
    let say = |what: String| if args.json { Ok(()) } else { print(what) };
    left.iter().cloned().try_for_each(say)?;
    for options in &fit {
        say(format!("== {} at 1/{}, speed {}", experiment.name, options.scale, options.speed.unwrap_or(1.0)))?;
        let outcome =
            experiment::run(experiment, options, &Bar::new(args.json), interrupted).map_err(Failure::failed)?;
        say(summary(&outcome, &options.out))?;
        report::index(&args.out).map_err(Failure::failed)?;
    }
    let dirs = args.base.iter().cloned().chain(fit.into_iter().map(|options| options.out)).collect();
    compare(&Compare { dirs, dry_run: false, json: args.json }, &left)
}

/// How often it is looked at who runs beside the others.
const WAIT: Duration = Duration::from_millis(250);

/// How far the experiments beside the others are.
#[derive(Default)]
struct Quiet(Mutex<(f64, String)>);

impl Watcher for Quiet {
    fn at(&self, done: f64, what: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (done, what.to_owned());
    }
}

/// What came of all experiments so far.
#[derive(Default)]
struct Told {
    /// In JSON they are told together, in the end.
    results: Vec<experiment::result::Outcome>,
    /// Sentences of those that failed, which stop no other.
    failed: Vec<String>,
}

impl Told {
    /// What an experiment came to.
    fn tell(
        &mut self,
        experiment: &Experiment,
        ended: Result<experiment::result::Outcome, String>,
        args: &RunArgs,
    ) -> Outcome {
        match ended {
            Ok(outcome) if args.json => self.results.push(outcome),
            Ok(outcome) => print(summary(&outcome, &args.out.join(experiment.name)))?,
            Err(sentence) => self.failed.push(sentence),
        }
        report::index(&args.out).map(drop).map_err(Failure::failed)
    }
}

/// Runs all, in their order, but for those that run beside them: what nothing times does not wait for its turn where memory holds both.
fn run_all(args: &RunArgs, interrupted: &Arc<AtomicBool>) -> Outcome {
    if args.agreement {
        return Err(Failure::usage("--agreement runs one experiment several times; name that instead of all"));
    }
    if !args.only.is_empty() {
        return Err(Failure::usage("--only names a row of one experiment; name that instead of all"));
    }
    let all: Vec<(&Experiment, Options)> = ALL
        .iter()
        .map(|experiment| {
            let options = options(args, args.out.join(experiment.name));
            (experiment, Options { shared: Some(args.out.clone()), ..options })
        })
        .collect();
    // What cannot end well is said of all of them before the first begins.
    experiment::fresh(&args.out, args.force).map_err(Failure::failed)?;
    for (experiment, options) in &all {
        experiment::check(experiment, options).map_err(Failure::failed)?;
    }
    let named = |experiment: &Experiment| beside::BESIDE.contains(&experiment.name);
    let (aside, others): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|(experiment, _)| named(experiment));
    let told = if beside::possible() {
        let said = |all: Vec<(&'static Experiment, Options)>| -> Vec<(&'static Experiment, Options)> {
            let quiet = all.iter().rposition(|(one, _)| one.name == beside::ALONE).map_or(0, |at| at + 1);
            let beside = |at, one| (at >= quiet).then(|| beside::told(one));
            let all = all.into_iter().enumerate();
            all.map(|(at, (one, options))| (one, Options { beside: beside(at, one), ..options })).collect()
        };
        run_both(&said(others), said(aside), args, interrupted, beside::step_back)
    } else {
        run_both(&all, Vec::new(), args, interrupted, beside::step_back)
    }?;
    if args.json {
        print_json(&told.results)?;
    } else {
        print(format!("the index of all is {}", args.out.join("index.html").display()))?;
    }
    if told.failed.is_empty() { Ok(()) } else { Err(Failure::failed(told.failed.join("; "))) }
}

/// Runs experiments one after the other, and those `aside` at the same time, each behind `step_back`. What came of those is told between
/// the others and behind the last.
fn run_both(
    others: &[(&'static Experiment, Options)],
    mut aside: Vec<(&'static Experiment, Options)>,
    args: &RunArgs,
    interrupted: &Arc<AtomicBool>,
    step_back: fn() -> Result<(), String>,
) -> Result<Told, Failure> {
    let (said, heard) = mpsc::channel();
    let (quiet, begin, done) = (Quiet::default(), AtomicBool::new(false), AtomicBool::new(false));
    let mut told = Told::default();
    std::thread::scope(|scope| {
        let (quiet, begin, done) = (&quiet, &begin, &done);
        scope.spawn(move || {
            while !aside.is_empty() && !interrupted.load(Ordering::Relaxed) {
                // The first that memory has room for; behind the others, the first, and then it gives way to nobody.
                let alone = done.load(Ordering::Relaxed);
                let fits = || {
                    let begun = begin.load(Ordering::Relaxed);
                    aside.iter().position(|one| begun && beside::fits(one, others))
                };
                let Some(next) = alone.then_some(0).or_else(fits) else {
                    std::thread::sleep(WAIT);
                    continue;
                };
                let (experiment, options) = aside.remove(next);
                let options = Options { beside: options.beside.filter(|_| !alone), ..options };
                let run = || {
                    if !alone {
                        step_back()?;
                    }
                    experiment::run(experiment, &options, quiet, interrupted)
                };
                // A thread of its own, since what has stepped back once stays there.
                let ended = std::thread::scope(|scope| scope.spawn(run).join());
                let ended = ended.unwrap_or_else(|_| Err(format!("{} panicked", experiment.name)));
                // Somebody hears it as long as this runs.
                let _ = said.send((experiment, ended));
            }
        });
        let mut all = || -> Outcome {
            let header = |experiment: &Experiment| {
                if args.json { Ok(()) } else { print(format!("== {}: {}", experiment.name, experiment.about)) }
            };
            for (experiment, options) in others {
                if interrupted.load(Ordering::Relaxed) {
                    break;
                }
                header(experiment)?;
                // From the first on that says so in its report.
                begin.fetch_or(options.beside.is_some(), Ordering::Relaxed);
                let ended = experiment::run(experiment, options, &Bar::new(args.json), interrupted);
                told.tell(experiment, ended, args)?;
                for (experiment, ended) in heard.try_iter() {
                    header(experiment)?;
                    told.tell(experiment, ended, args)?;
                }
            }
            done.store(true, Ordering::Relaxed);
            loop {
                let bar = Bar::new(args.json);
                let ended = loop {
                    match heard.recv_timeout(WAIT) {
                        Err(mpsc::RecvTimeoutError::Timeout) => {
                            let (done, what) = quiet.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                            bar.at(done.min(0.999), &what);
                        }
                        other => break other,
                    }
                };
                bar.at(1.0, "");
                let Ok((experiment, ended)) = ended else { return Ok(()) };
                header(experiment)?;
                told.tell(experiment, ended, args)?;
            }
        };
        let ended = all();
        // Whoever cannot be told does not wait for those that still run.
        interrupted.fetch_or(ended.is_err(), Ordering::Relaxed);
        ended
    })?;
    Ok(told)
}

/// Does what the command line says.
pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::List(args) => list(&args),
        Verb::Draw(args) => draw(&args),
        Verb::Compare(args) => compare(&args, &[]),
        Verb::Segments(args) => print_json(&segments::run(&args).map_err(Failure::failed)?),
        Verb::Streams(args) => print_json(&streams::both(&args).map_err(Failure::failed)?),
        Verb::Run(args) => {
            let interrupted: Arc<AtomicBool> = Arc::default();
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
                signal_hook::flag::register(signal, interrupted.clone()).map_err(Failure::failed)?;
            }
            if args.name == "all" {
                return run_all(&args, &interrupted);
            }
            let experiment = experiment::named(&args.name).map_err(Failure::usage)?;
            if args.agreement {
                return run_series(experiment, &args, &interrupted);
            }
            run_one(experiment, &options(&args, args.out.clone()), args.json, &interrupted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn line(out: &Path) -> RunArgs {
        let out = out.to_string_lossy().into_owned();
        <Line as clap::Parser>::parse_from(["run", "all", "--short", "--out", &out, "--work", &out]).args
    }

    fn both(args: &RunArgs, stop: bool) -> Result<Told, Failure> {
        let one = |name: &str| {
            let experiment = experiment::named(name).unwrap();
            let options = options(args, args.out.join(name));
            vec![(experiment, Options { beside: Some(beside::told(experiment)), ..options })]
        };
        // On a machine whose processors all have work it would wait as long as that lasts.
        run_both(&one("interleave"), one("calibration"), args, &Arc::new(AtomicBool::new(stop)), || Ok(()))
    }

    #[test]
    fn what_runs_beside_the_others_stands_on_the_same_page_and_ends_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let args = line(dir.path());
        let told = both(&args, false).unwrap();
        assert!(told.failed.is_empty() && told.results.is_empty());
        let page = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
        let place = |name: &str| page.find(&format!("{name}/report.html")).unwrap();
        assert!(place("calibration") < place("interleave"), "in the order of all, whichever ended first");
        // Both refuse what is there, and one does not hide the other.
        let sentences = both(&args, false).unwrap().failed;
        assert!(sentences.len() == 2 && sentences.iter().all(|why| why.contains("--force")), "{sentences:?}");
        // In JSON all of it is one value, printed in the end.
        let told = both(&RunArgs { json: true, force: true, ..args }, false).unwrap();
        let mut names: Vec<&str> = told.results.iter().map(|result| result.experiment.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["calibration", "interleave"]);
        // Who asked to stop waits for nobody.
        let other = tempfile::tempdir().unwrap();
        assert!(both(&line(other.path()), true).unwrap().failed.iter().all(|why| why.contains("interrupted")));
        assert!(!other.path().join("interleave").exists());
    }

    #[test]
    fn a_scale_that_there_is_no_room_for_is_left_out_of_a_comparison() {
        let dir = tempfile::tempdir().unwrap();
        // No machine has room for drives at /proc, which is no reason to run nothing where none is needed.
        let mut args = line(&dir.path().join("series"));
        args.work = "/proc".into();
        let leveldb = experiment::named("leveldb-bluefs").unwrap();
        let sentence = match run_series(leveldb, &args, &Arc::default()) {
            Err(Failure::Told(_, sentence)) => sentence,
            _ => panic!("it ran without room"),
        };
        assert!(sentence.contains("nothing is left to compare") && sentence.contains("at 1/16"), "{sentence}");
    }
}
