//! Benchmarks: both sides of every comparison in one run, interleaved, with their ratio and its spread. JSON first, then a
//! table for people. Nothing here passes or fails: a goal that is missed is printed as missed.
//!
//! `rocksdb`: Debian's `db_bench` on bluefs over a drive in memory, against the same on tmpfs, and the memory that it takes.
//! `full`: the same on a drive that is 85 % full, against one that is not.
//! `leveldb`: LevelDB through the Env on a drive in memory, against LevelDB on tmpfs.
//! `engine`: bluefs alone. `ablation`: bluefs against itself with one idea switched off.

mod ablation;
mod engine;
mod full;
mod leveldb;
mod memory;
mod rocksdb;

use clap::Parser;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Imbrex against what it replaces.
#[derive(Parser)]
#[command(after_help = "Example:\n  imbrex-bench --pairs 7 --only rocksdb")]
struct Cli {
    /// Runs of each side of a comparison.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Records of the RocksDB rows; a synchronous row takes a fiftieth, a LevelDB row, whose records are ten times as large, a fifth; those on a full
    /// drive twice as many.
    #[arg(long, default_value_t = 500_000)]
    records: u64,
    /// Only these rows.
    #[arg(long, value_parser = ["rocksdb", "full", "few-zones", "leveldb", "engine", "ablation"])]
    only: Option<String>,
    /// Where build/ is.
    #[arg(long, default_value = "build")]
    build: PathBuf,
    /// Where the result goes as JSON.
    #[arg(long, default_value = "build/bench.json")]
    out: PathBuf,
}

/// Median, smallest and largest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [] => (f64::NAN, f64::NAN, f64::NAN),
        // Of an even number the mean of the two in the middle.
        all => ((all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0, all[0], all[all.len() - 1]),
    }
}

/// Runs both sides so many times, and who is first changes from pair to pair: what each run of us and of them gave.
fn interleaved<T>(
    pairs: usize,
    mut us: impl FnMut(usize) -> Result<T, String>,
    mut them: impl FnMut(usize) -> Result<T, String>,
) -> Result<Vec<(T, T)>, String> {
    let mut results = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        results.push(if pair % 2 == 0 {
            let second = them(pair)?;
            (us(pair)?, second)
        } else {
            (us(pair)?, them(pair)?)
        });
    }
    Ok(results)
}

/// The ratio of operations a second, over all pairs.
fn ratio_row(name: &str, pairs: &[(f64, f64)], goal: Option<f64>, records: u64) -> Value {
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    let (median, smallest, largest) = spread(&ratios);
    let ours: Vec<f64> = pairs.iter().map(|p| p.0).collect();
    let theirs: Vec<f64> = pairs.iter().map(|p| p.1).collect();
    json!({ "name": format!("{name} against tmpfs"), "unit": "x", "median": median, "smallest": smallest,
            "largest": largest, "at_least": goal, "ours_ops": ours, "tmpfs_ops": theirs, "records": records })
}

/// A row for people: name, value with its spread, goal and whether it is met.
fn line(row: &Value) -> String {
    let name = row["name"].as_str().unwrap_or_default();
    if let Some(why) = row["not_run"].as_str() {
        return format!("{name:44} not run: {why}");
    }
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let unit = row["unit"].as_str().unwrap_or_default();
    let goal = match (row["at_least"].as_f64(), row["at_most"].as_f64()) {
        (Some(goal), _) => format!("goal ≥ {goal}: {}", if number("median") >= goal { "met" } else { "MISSED" }),
        (_, Some(goal)) => format!("goal ≤ {goal}: {}", if number("median") <= goal { "met" } else { "MISSED" }),
        _ => String::new(),
    };
    let spread = format!("({:.3} to {:.3})", number("smallest"), number("largest"));
    format!("{name:44} {:>9.3} {unit:6} {spread:22} {goal}", number("median"))
}

/// The program `imbrex-bench`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut rows = Vec::new();
    let wanted = |part: &str| cli.only.as_deref().is_none_or(|only| only == part);
    if wanted("engine") {
        rows.extend(engine::rows(cli.pairs));
    }
    if wanted("ablation") {
        rows.extend(ablation::rows(cli.pairs));
    }
    if wanted("rocksdb") {
        rows.extend(rocksdb::rows(&cli.build, cli.pairs, cli.records));
    }
    if wanted("full") {
        rows.extend(full::rows(&cli.build, cli.pairs, 2 * cli.records));
    }
    if wanted("few-zones") {
        rows.extend(full::rows_of_few_zones(&cli.build, cli.pairs));
    }
    if wanted("leveldb") {
        rows.extend(leveldb::rows(&cli.build, cli.pairs, cli.records / 5));
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let all = json!({ "cores": cores, "pairs": cli.pairs, "records": cli.records, "rows": rows });
    let text = serde_json::to_string_pretty(&all).unwrap_or_default();
    if let Err(error) = std::fs::write(&cli.out, text) {
        eprintln!("imbrex-bench: {}: {error}; name another file with --out", cli.out.display());
        return ExitCode::FAILURE;
    }
    println!("\n{cores} cores, {} pairs, {} records; in full in {}", cli.pairs, cli.records, cli.out.display());
    for row in &rows {
        println!("{}", line(row));
    }
    ExitCode::SUCCESS
}
