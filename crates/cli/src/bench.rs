//! `imbrex bench`: experiments on drives whose time is modelled.

use crate::output::{Failure, Outcome, print, print_json};
use imbrex_bench::experiment::{self, ALL, Experiment, Options, Watcher, report};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// `imbrex bench …`
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
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
    name: String,
    /// How much smaller than the paper's.
    #[arg(long, value_name = "1/N", default_value = "1/64", value_parser = scale)]
    scale: u32,
    /// Where result.json, report.html and the charts go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an older result in --out.
    #[arg(long)]
    force: bool,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "ROW")]
    only: Option<String>,
    /// Runs of each row.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// Seconds of the drives' clocks in one second: less than 1 where the machine cannot keep a drive busy.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Vary every assumed parameter of the drives by half, too.
    #[arg(long)]
    sensitivity: bool,
    /// Next to no work: checks that everything runs, and measures nothing.
    #[arg(long)]
    short: bool,
    /// Where drives live meanwhile.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
    /// Where librocksdb_imbrex.so and libleveldb_imbrex.so are; beside this program, or in ../lib, by default.
    #[arg(long, value_name = "DIR")]
    build: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// `1/64` or `64`.
fn scale(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text);
    match number.parse() {
        Ok(scale @ 1..=65_536) => Ok(scale),
        _ => Err("a scale is 1/N, N from 1 to 65536, as 1/64".into()),
    }
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
            bar.enable_steady_tick(std::time::Duration::from_millis(250));
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

/// Where the plug-ins are: beside the program, as `make build` leaves them, or in the directory of libraries next to it.
fn libraries() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)).unwrap_or_default();
    let lib = beside.join("../lib");
    if !beside.join("librocksdb_imbrex.so").exists() && lib.join("librocksdb_imbrex.so").exists() {
        lib
    } else {
        beside
    }
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
    let path = args.dir.join("result.json");
    let refuse = |why: String| {
        Failure::failed(format!("{}: {why}; name a directory that `imbrex bench run` left", path.display()))
    };
    let text = std::fs::read_to_string(&path).map_err(|e| refuse(e.to_string()))?;
    let outcome: experiment::result::Outcome = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    report::write(&args.dir, &outcome).map_err(Failure::failed)?;
    print(format!("{}", args.dir.join("report.html").display()))
}

fn options(args: &RunArgs, out: PathBuf) -> Options {
    Options {
        scale: args.scale,
        out,
        force: args.force,
        only: args.only.clone(),
        work: args.work.clone(),
        build: args.build.clone().unwrap_or_else(libraries),
        repeats: usize::from(args.repeat),
        speed: args.speed,
        sensitivity: args.sensitivity,
        short: args.short,
        command: std::env::args().collect::<Vec<_>>().join(" "),
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

fn run_all(args: &RunArgs, interrupted: &Arc<AtomicBool>) -> Outcome {
    if args.only.is_some() {
        return Err(Failure::usage("--only names a row of one experiment; name that instead of all"));
    }
    // What cannot end well is said of all of them before the first begins.
    for experiment in ALL {
        experiment::check(experiment, &options(args, args.out.join(experiment.name))).map_err(Failure::failed)?;
    }
    let mut stopped = Vec::new();
    for experiment in ALL {
        print(format!("== {}: {}", experiment.name, experiment.about))?;
        let outcome = run_one(experiment, &options(args, args.out.join(experiment.name)), args.json, interrupted);
        match outcome {
            Err(Failure::Failed(sentence)) => stopped.push(sentence),
            other => other?,
        }
        report::index(&args.out).map_err(Failure::failed)?;
        if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
    }
    print(format!("the index of all is {}", args.out.join("index.html").display()))?;
    if stopped.is_empty() { Ok(()) } else { Err(Failure::failed(stopped.join("; "))) }
}

/// Does what the command line says.
pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::List(args) => list(&args),
        Verb::Draw(args) => draw(&args),
        Verb::Run(args) => {
            let interrupted: Arc<AtomicBool> = Arc::default();
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
                signal_hook::flag::register(signal, interrupted.clone()).map_err(Failure::failed)?;
            }
            if args.name == "all" {
                return run_all(&args, &interrupted);
            }
            let experiment = experiment::named(&args.name).map_err(Failure::usage)?;
            run_one(experiment, &options(&args, args.out.clone()), args.json, &interrupted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_parts() {
        assert_eq!((scale("1/64"), scale("32"), scale("1/1")), (Ok(64), Ok(32), Ok(1)));
        for nonsense in ["0", "1/0", "2/64", "1/", "", "-1", "1/70000", "x"] {
            assert!(scale(nonsense).is_err(), "{nonsense}");
        }
    }
}
