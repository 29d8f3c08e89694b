//! Debian's `db_bench`, untouched: on bluefs by preloading, and on tmpfs.

use super::{interleaved, ratio_row};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// Size of the drive in memory; it takes what is written.
const DRIVE: &str = "imbrex://mem:?profile=hgst-hsh721414al&size=16G&cache=4G";

struct Row {
    name: &'static str,
    /// What runs, the measured one last.
    benchmarks: &'static str,
    measured: &'static str,
    sync: bool,
    prefault: bool,
    goal: Option<f64>,
}

const ROWS: &[Row] = &[
    Row { name: "fillseq", benchmarks: "fillseq", measured: "fillseq", sync: false, prefault: false, goal: Some(0.95) },
    Row {
        name: "fillrandom",
        benchmarks: "fillrandom",
        measured: "fillrandom",
        sync: false,
        prefault: false,
        goal: Some(0.95),
    },
    Row {
        name: "overwrite",
        benchmarks: "fillseq,overwrite",
        measured: "overwrite",
        sync: false,
        prefault: false,
        goal: Some(0.95),
    },
    Row {
        name: "readseq",
        benchmarks: "fillrandom,waitforcompaction,readseq",
        measured: "readseq",
        sync: false,
        prefault: false,
        goal: Some(0.95),
    },
    Row {
        name: "readrandom",
        benchmarks: "fillrandom,waitforcompaction,readrandom",
        measured: "readrandom",
        sync: false,
        prefault: false,
        goal: Some(0.95),
    },
    Row {
        name: "fillseq --sync=1",
        benchmarks: "fillseq",
        measured: "fillseq",
        sync: true,
        prefault: false,
        goal: None,
    },
    Row {
        name: "fillrandom, drive pre-faulted",
        benchmarks: "fillrandom",
        measured: "fillrandom",
        sync: false,
        prefault: true,
        goal: None,
    },
];

/// Operations a second of one run; the error is a sentence.
fn run(row: &Row, records: u64, seed: usize, on: &[String], preload: Option<&Path>) -> Result<f64, String> {
    let mut command = Command::new("db_bench");
    command
        .arg(format!("--benchmarks={}", row.benchmarks))
        .arg(format!("--num={records}"))
        .args(["--key_size=20", "--value_size=400", "--compression_type=none"])
        .arg(format!("--seed={}", seed + 1))
        .arg(format!("--sync={}", u8::from(row.sync)))
        .args(on)
        .stdin(Stdio::null());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().map_err(|e| format!("db_bench: {e}; install rocksdb-tools"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text
        .lines()
        .rev()
        .find(|l| l.trim_start_matches(['\r', '\0']).contains(&format!("{} ", row.measured)) && l.contains("ops/sec"));
    let words: Vec<&str> = result.unwrap_or_default().split_whitespace().collect();
    let at = words.iter().position(|w| *w == "ops/sec");
    let rate = at.and_then(|i| words.get(i.checked_sub(1)?)).and_then(|w| w.parse().ok());
    match rate {
        Some(rate) if output.status.success() => Ok(rate),
        _ => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("db_bench ended with {} ({})", output.status, why.lines().last().unwrap_or("no message")))
        }
    }
}

fn compare(row: &Row, build: &Path, pairs: usize, records: u64) -> Result<Value, String> {
    let library = build.join("librocksdb_imbrex.so");
    let library = library.canonicalize().map_err(|e| format!("{}: {e}; run `make build`", library.display()))?;
    let records = if row.sync { (records / 50).max(1) } else { records };
    let drive = format!("{DRIVE}&prefault={}", u8::from(row.prefault));
    // A pre-faulted drive must fit into memory.
    let drive = if row.prefault { drive.replace("size=16G", "size=4G&zone-size=64M") } else { drive };
    let us = |pair| {
        let rate = run(row, records, pair, &[format!("--fs_uri={drive}"), "--db=/bench".into()], Some(&library))?;
        eprintln!("{}: pair {} of {pairs}: {rate:.0} ops/s", row.name, pair + 1);
        Ok(rate)
    };
    let them = |pair| {
        let tmpfs = tempfile::Builder::new()
            .prefix("imbrex-bench-")
            .tempdir_in("/dev/shm")
            .map_err(|e| format!("/dev/shm: {e}"))?;
        let rate = run(row, records, pair, &[format!("--db={}", tmpfs.path().join("db").display())], None)?;
        eprintln!("{}: pair {} of {pairs}: {rate:.0} ops/s on tmpfs", row.name, pair + 1);
        Ok(rate)
    };
    let pairs = interleaved(pairs, us, them)?;
    Ok(ratio_row(row.name, &pairs, row.goal, records))
}

/// WAL bytes on the drive over WAL bytes that RocksDB appended, in asynchronous fillrandom.
fn wal_overhead(build: &Path, records: u64) -> Result<Value, String> {
    let dir = tempfile::Builder::new()
        .prefix("imbrex-bench-")
        .tempdir_in("/dev/shm")
        .map_err(|e| format!("/dev/shm: {e}"))?;
    let image = dir.path().join("drive.img");
    let imbrex = build.join("imbrex");
    let text = |args: &[&str]| -> Result<String, String> {
        let out = Command::new(&imbrex)
            .args(args)
            .output()
            .map_err(|e| format!("{}: {e}; run `make build`", imbrex.display()))?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let path = image.to_string_lossy();
    text(&["drive", "create", &path, "--profile", "hgst-hsh721414al", "--capacity", "64G"])?;
    text(&["fs", "format", &path])?;
    let row = &ROWS[1];
    let library = build.join("librocksdb_imbrex.so").canonicalize().map_err(|e| e.to_string())?;
    let on = [format!("--fs_uri=imbrex://{path}?cache=1G"), "--db=/bench".to_owned()];
    run(row, records, 0, &on, Some(&library))?;
    let stats: Value = serde_json::from_str(&text(&["drive", "stats", "--json", &path])?).map_err(|e| e.to_string())?;
    let written = stats["by_cause"]["wal"]["bytes_written"].as_f64().ok_or("the statistics have no WAL bytes")?;
    // What RocksDB appended: a record header of 7 bytes, a batch header of 12, one of kind and lengths of 4, key and value.
    let appended = records as f64 * (7.0 + 12.0 + 4.0 + 20.0 + 400.0);
    let ratio = written / appended;
    Ok(json!({ "name": "WAL bytes on the drive per byte appended", "unit": "x", "median": ratio, "smallest": ratio,
               "largest": ratio, "at_most": 1.01 }))
}

/// All rows on RocksDB.
pub fn rows(build: &Path, pairs: usize, records: u64) -> Vec<Value> {
    let not_run = |name: &str, why: String| json!({ "name": name, "not_run": why });
    let mut rows: Vec<Value> = ROWS
        .iter()
        .map(|row| compare(row, build, pairs, records).unwrap_or_else(|why| not_run(row.name, why)))
        .collect();
    rows.push(super::memory::row(build, pairs, records).unwrap_or_else(|why| not_run("memory", why)));
    rows.push(wal_overhead(build, records).unwrap_or_else(|why| not_run("WAL bytes on the drive", why)));
    rows
}
