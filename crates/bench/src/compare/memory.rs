//! Memory that bluefs takes inside `db_bench`: what the process holds of its own (anonymous pages; the survivor is shared
//! memory and the image is a mapped file, so neither counts), less the same on tmpfs, less the configured cache.

use super::spread;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: f64 = 1_048_576.0;
/// Size of bluefs's cache, in MiB. The data is several times larger, so the cache is full at the end.
const CACHE: f64 = 64.0;

/// Largest anonymous memory of a run, in bytes. Sampled: a peak shorter than a few milliseconds may be missed.
fn peak(records: u64, on: &[String], preload: Option<&Path>) -> Result<f64, String> {
    let mut command = Command::new("db_bench");
    command
        .args(["--benchmarks=fillrandom,overwrite,readrandom", "--key_size=20", "--value_size=400", "--seed=1"])
        // Small write buffers: how many of them are full at one moment differs from run to run.
        .args(["--compression_type=none", "--write_buffer_size=4194304", "--max_write_buffer_number=2"])
        .arg(format!("--num={records}"))
        .args(on)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let mut child = command.spawn().map_err(|e| format!("db_bench: {e}; install rocksdb-tools"))?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0f64;
    loop {
        if let Some(ended) = child.try_wait().map_err(|e| format!("db_bench: {e}"))? {
            return if ended.success() { Ok(peak) } else { Err(format!("db_bench ended with {ended}")) };
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let anonymous = text.lines().find_map(|l| l.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok());
        peak = peak.max(anonymous.unwrap_or(0.0) * 1024.0);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// MiB beyond cache, write buffers and survivor; at most three pairs.
pub fn row(build: &Path, pairs: usize, records: u64) -> Result<Value, String> {
    let library = build.join("librocksdb_imbrex.so");
    let library = library.canonicalize().map_err(|e| format!("{}: {e}; run `make build`", library.display()))?;
    let mut beyond = Vec::new();
    for _ in 0..pairs.min(3) {
        let dir = tempfile::Builder::new()
            .prefix("imbrex-bench-")
            .tempdir_in("/dev/shm")
            .map_err(|e| format!("/dev/shm: {e}"))?;
        let image = dir.path().join("drive.img");
        let made = Command::new(build.join("imbrex"))
            .args(["drive", "create", &image.to_string_lossy(), "--profile", "hgst-hsh721414al", "--capacity", "64G"])
            .output();
        if !made.is_ok_and(|o| o.status.success()) {
            return Err("no drive could be made; run `make build`".into());
        }
        let uri = format!("--fs_uri=imbrex://{}?format=on&cache={CACHE}M", image.display());
        let ours = peak(records, &[uri, "--db=/bench".into()], Some(&library))?;
        let theirs = peak(records, &[format!("--db={}", dir.path().join("db").display())], None)?;
        beyond.push((ours - theirs) / MIB - CACHE);
    }
    let (median, smallest, largest) = spread(&beyond);
    Ok(json!({ "name": "memory beyond cache, buffers and survivor", "unit": "MiB", "median": median,
               "smallest": smallest, "largest": largest, "at_most": 64.0, "all": beyond }))
}
