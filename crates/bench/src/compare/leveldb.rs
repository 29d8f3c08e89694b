//! LevelDB through the Env on a pre-faulted drive in memory, and on tmpfs. The program is `bindings/leveldb/tests/leveldb_bench.cc`,
//! since Debian ships none.

use super::{interleaved, ratio_row};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

struct Setting {
    name: &'static str,
    zone_size: &'static str,
    options: &'static [&'static str],
}

const SETTINGS: &[Setting] = &[
    // Tables of 2 MiB and memtables of 4; zones of a size that holds two tables.
    Setting { name: "LevelDB's own options", zone_size: "4M", options: &[] },
    // As advised for zones of 64 MiB, which a pre-faulted drive can have enough of.
    Setting {
        name: "advised options",
        zone_size: "64M",
        options: &["--file-size=62000000", "--write-buffer=62000000"],
    },
];

const MEASURED: [&str; 2] = ["fillrandom", "readrandom"];

/// Operations a second of [`MEASURED`]; the error is a sentence.
fn run(build: &Path, setting: &Setting, records: u64, seed: usize, on: &[String]) -> Result<[f64; 2], String> {
    let program = build.join("leveldb_bench");
    let output = Command::new(&program)
        .arg(format!("--num={records}"))
        .arg(format!("--seed={}", seed + 1))
        .args(setting.options)
        .args(on)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}; run `bindings/leveldb/build.sh build tests`", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = |name: &str| -> Option<f64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    match MEASURED.map(rate) {
        [Some(fill), Some(read)] if output.status.success() => Ok([fill, read]),
        _ => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("leveldb_bench ended with {} ({})", output.status, why.lines().last().unwrap_or("no message")))
        }
    }
}

fn compare(build: &Path, setting: &Setting, pairs: usize, records: u64) -> Result<Vec<Value>, String> {
    let drive =
        format!("imbrex://mem:?profile=hgst-hsh721414al&size=4G&zone-size={}&prefault=1&cache=1G", setting.zone_size);
    let say = |pair: usize, on: &str, rates: [f64; 2]| {
        eprintln!(
            "LevelDB, {}: pair {} of {pairs}: {:.0}, {:.0} ops/s on {on}",
            setting.name,
            pair + 1,
            rates[0],
            rates[1]
        );
        rates
    };
    let us = |pair| {
        let on = [format!("--uri={drive}"), "--db=/bench".to_owned()];
        Ok(say(pair, "the drive", run(build, setting, records, pair, &on)?))
    };
    let them = |pair| {
        let tmpfs = tempfile::Builder::new()
            .prefix("imbrex-bench-")
            .tempdir_in("/dev/shm")
            .map_err(|e| format!("/dev/shm: {e}"))?;
        let on = [format!("--db={}", tmpfs.path().join("db").display())];
        Ok(say(pair, "tmpfs", run(build, setting, records, pair, &on)?))
    };
    let results = interleaved(pairs, us, them)?;
    let rows = MEASURED.iter().enumerate().map(|(i, measured)| {
        let rates: Vec<(f64, f64)> = results.iter().map(|(a, b)| (a[i], b[i])).collect();
        ratio_row(&format!("LevelDB {measured}, {}", setting.name), &rates, Some(0.95), records)
    });
    Ok(rows.collect())
}

/// All rows on LevelDB.
pub fn rows(build: &Path, pairs: usize, records: u64) -> Vec<Value> {
    let records = records.max(1);
    SETTINGS
        .iter()
        .flat_map(|setting| {
            compare(build, setting, pairs, records)
                .unwrap_or_else(|why| vec![json!({ "name": format!("LevelDB, {}", setting.name), "not_run": why })])
        })
        .collect()
}
