//! The `imbrex` command: nouns, then verbs.
//!
//! Facts go to stdout, with `--json` as JSON. A failure is one sentence on stderr that says what to do next, with `--json` the
//! object `{"error": {"code", "kind", "message"}}` in one line; stdout never has errors. [`EXIT_STATUS`] has the exit codes.
//!
//! A library, so that the fuzz targets reach what reads a backup, and pairs; the program is `main.rs`.

mod backup;
mod banded;
mod bench;
mod chunk;
mod drive;
mod engine;
mod fs;
mod image;
mod installed;
mod kernel;
mod known;
mod kv;
mod man;
mod mountpoint;
mod output;
mod picture;
mod shell;
mod store;
mod top;
mod usage;

use clap::{CommandFactory, Parser, Subcommand};
use output::Outcome;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

#[doc(hidden)]
pub use fs::fuzz_restore;
#[doc(hidden)]
pub use kv::fuzz_pairs;
pub use output::{EXIT_STATUS, ExitStatus};

/// Store files and chunks on zoned drives, without a kernel file system
#[derive(Parser)]
#[command(name = "imbrex", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = format!("Example:\n  imbrex drive create drive.img --profile hgst-hsh721414al\n\n\
                        Exit status:\n{}\n\n\
                        Set IMBREX_LOG=debug to see what it does.", output::exit_table()))]
struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
enum Noun {
    /// Emulated zoned drives: make them, look at them, break them.
    Drive(drive::Args),
    /// Files on a drive: format, list, copy, check.
    Fs(fs::Args),
    /// Append-only chunks on a drive: format, put, get, list, check.
    Chunk(chunk::Args),
    /// Keys and values on a drive: format, put, get, scan, load.
    Kv(kv::Args),
    /// Objects on a drive, with transactions and clones: format, put, get, list, check.
    Store(store::Args),
    /// Block images on an object store: make, snapshot, clone and serve them.
    Image(image::Args),
    /// Watch a drive while somebody uses it: zones, and throughput by cause.
    Top(top::Args),
    /// Experiments: what a workload takes on drives whose time is modelled.
    Bench(bench::Args),
    /// Print completions for a shell.
    Completions(shell::Completions),
    /// Write man pages into a directory.
    Man(shell::Man),
}

fn run(cli: Cli) -> Outcome {
    match cli.noun {
        Noun::Drive(args) => drive::run(args),
        Noun::Fs(args) => fs::run(args),
        Noun::Chunk(args) => chunk::run(args),
        Noun::Kv(args) => kv::run(args),
        Noun::Store(args) => store::run(args),
        Noun::Image(args) => image::run(args),
        Noun::Top(args) => top::run(args),
        Noun::Bench(args) => bench::run(args),
        Noun::Completions(args) => shell::completions(&args, Cli::command()),
        Noun::Man(args) => shell::man(&args, &Cli::command()),
    }
}

/// The program.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("IMBREX_LOG"))
        .with_writer(std::io::stderr)
        .init();
    // So that a limit on the size of files (ulimit -f) is an error with a sentence, and not the end of the process.
    let limited = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    if let Err(error) = limited {
        tracing::warn!(%error, "a limit on the size of files ends this process");
    }
    // Object stores may have their metadata in RocksDB.
    imbrex::rocksdb::provide();
    let words: Vec<OsString> = std::env::args_os().collect();
    let as_json = output::wants_json(&words);
    match Cli::try_parse_from(&words) {
        Ok(cli) => {
            let began = Instant::now();
            tracing::debug!(words = ?words.get(1..).unwrap_or_default(), version = env!("CARGO_PKG_VERSION"), "the command begins");
            let outcome = run(cli);
            tracing::debug!(seconds = began.elapsed().as_secs_f64(), done = outcome.is_ok(), "the command ends");
            output::exit(outcome, as_json)
        }
        Err(error) => usage::end(error, &words, &Cli::command(), as_json),
    }
}
