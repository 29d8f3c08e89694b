//! bluefs alone, on drives in memory.

use super::spread;
use imbrex_bluefs::{BlueFs, CreateOptions};
use serde_json::{Value, json};
use std::time::Instant;

/// User and system seconds of this process so far, and its resident bytes.
fn usage() -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    // Fields 14 and 15 of the whole line, in clock ticks of a hundredth of a second.
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some((ticks / 100.0, pages * 4096.0))
}

fn cpu() -> f64 {
    usage().map_or(f64::NAN, |u| u.0)
}

fn row(name: &str, unit: &str, values: &[f64], goal: (&str, f64)) -> Value {
    let (median, smallest, largest) = spread(values);
    let mut row = json!({ "name": name, "unit": unit, "median": median, "smallest": smallest, "largest": largest, "all": values });
    if !goal.0.is_empty() {
        row[goal.0] = goal.1.into();
    }
    row
}

/// GB/s of copying 1 MiB pieces of 256 MiB, both sides touched before.
fn memcpy() -> f64 {
    let (from, mut to) = (vec![1u8; 256 << 20], vec![2u8; 256 << 20]);
    let began = Instant::now();
    for (from, to) in from.chunks(1 << 20).zip(to.chunks_mut(1 << 20)) {
        to.copy_from_slice(from);
    }
    std::hint::black_box(&to);
    from.len() as f64 / 1e9 / began.elapsed().as_secs_f64()
}

/// GB per CPU second of streaming tables of 240 MB to a pre-faulted drive, durably, without a cache.
fn stream() -> Result<f64, imbrex_bluefs::Error> {
    let fs = BlueFs::open_uri("imbrex://mem:?profile=hgst-hsh721414al&size=4G&zone-size=64M&prefault=1&cache=0")?;
    let piece = vec![7u8; 1 << 20];
    let began = cpu();
    let mut bytes = 0u64;
    for n in 0..8 {
        let mut table = fs.create(&format!("/{n:06}.sst"), CreateOptions::default())?;
        for _ in 0..240 {
            table.append(&piece)?;
            bytes += piece.len() as u64;
        }
        table.sync()?;
        table.close()?;
    }
    Ok(bytes as f64 / 1e9 / (cpu() - began))
}

/// Seconds of a mount with 10,000 files, and the memory that it takes in MiB.
fn mount() -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let dir = tempfile::Builder::new().prefix("imbrex-bench-").tempdir_in("/dev/shm")?;
    let image = dir.path().join("drive.img");
    // The drive is made by the command, so that this crate needs no emulator.
    let command = std::env::var_os("IMBREX").unwrap_or_else(|| "build/imbrex".into());
    let made = std::process::Command::new(&command)
        .args(["drive", "create", &image.to_string_lossy(), "--profile", "hgst-hsh721414al"])
        .output();
    if !made.is_ok_and(|o| o.status.success()) {
        return Err(format!("{} made no drive; run `make build`", command.to_string_lossy()).into());
    }
    let uri = format!("imbrex://{}?format=on&cache=64M", image.display());
    {
        let fs = BlueFs::open_uri(&uri)?;
        for n in 0..10_000 {
            let mut table = fs.create(&format!("/{n:06}.sst"), CreateOptions::default())?;
            table.append(b"some bytes")?;
            table.close()?;
        }
    }
    let before = usage().map_or(f64::NAN, |u| u.1);
    let began = Instant::now();
    let fs = BlueFs::open_uri(&uri)?;
    let seconds = began.elapsed().as_secs_f64();
    let after = usage().map_or(f64::NAN, |u| u.1);
    drop(fs);
    Ok((seconds, (after - before) / f64::from(1 << 20)))
}

/// All rows on the engine alone.
pub fn rows(pairs: usize) -> Vec<Value> {
    let not_run = |name: &str, why: String| json!({ "name": name, "not_run": why });
    let mut rows =
        vec![row("memcpy of this machine", "GB/s", &(0..pairs).map(|_| memcpy()).collect::<Vec<_>>(), ("", 0.0))];
    let streamed: Result<Vec<f64>, _> = (0..pairs).map(|_| stream()).collect();
    rows.push(match streamed {
        Ok(values) => row("streaming through bluefs, per CPU second", "GB/s", &values, ("at_least", 2.0)),
        Err(why) => not_run("streaming through bluefs", why.to_string()),
    });
    match (0..pairs.min(3)).map(|_| mount()).collect::<Result<Vec<_>, _>>() {
        Ok(values) => {
            let (seconds, memory): (Vec<f64>, Vec<f64>) = values.into_iter().unzip();
            rows.push(row("mount with 10,000 files", "s", &seconds, ("at_most", 1.0)));
            rows.push(row("memory of that mount, survivor included", "MiB", &memory, ("at_most", 128.0)));
        }
        Err(why) => rows.push(not_run("mount with 10,000 files", why.to_string())),
    }
    rows
}
