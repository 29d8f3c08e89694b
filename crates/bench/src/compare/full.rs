//! A drive that is 85 % full against one that is nearly empty: stock `db_bench`, default options, on bluefs over a pre-faulted
//! drive in memory.
//!
//! Everything that RocksDB and the drive are given is a 64th of its real size (memtable, tables, the first level, zones), so a
//! zone holds four tables as it does with tables of 64 MiB and zones of 256 MiB, and the drive has some hundred zones and not
//! four. Two runs on the large drive tell how many bytes are alive at the fullest moment; the small drive has room for that
//! and 15 % more in its zones, those for metadata and the reserve included. Figures come from `IMBREX_METRICS`, asked while
//! the program runs; processor time counts from when the drive is there.

use super::{interleaved, spread};
use crate::process::cpu_seconds;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

const SCALE: u64 = 64;
const MIB: u64 = 1 << 20;
const ZONE: u64 = 256 * MIB / SCALE;
const CONVENTIONAL: u64 = 8;
/// How full the small drive is, at the fullest moment.
const FULL: f64 = 0.85;

/// Figures of one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    /// Bytes of all files.
    live: f64,
    /// Zones in use.
    zones: f64,
    /// Bytes written for users.
    written: f64,
    /// Bytes moved by cleaning.
    moved: f64,
    /// User and system seconds of the process.
    cpu: f64,
}

/// What one run gave.
#[derive(Clone, Debug)]
struct Run {
    /// Bytes alive, and space efficiency, at the moment when most were alive.
    fullest: (f64, f64),
    /// Mean space efficiency of the second half.
    mean: f64,
    /// Written with what was moved, over written without: in all, and since half was written, when the drive is full.
    moving: (f64, f64),
    /// Microseconds of the processor for each operation.
    cpu: f64,
    /// Largest latency of a put in microseconds.
    slowest: f64,
}

/// The program's figures now; `None`: it does not answer, as before its drive is open and after its end.
fn look(port: u16, pid: u32) -> Option<Moment> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let mut moment = Moment { cpu: cpu_seconds(pid)?, ..Moment::default() };
    for line in text.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        if name.starts_with("imbrex_live_bytes{") {
            moment.live = value;
        } else if name.starts_with("imbrex_used_zones{") {
            moment.zones = value;
        } else if name.starts_with("imbrex_bytes_total{") && name.contains("command=\"write\"") {
            let cause = |cause: &str| name.contains(&format!("cause=\"{cause}\""));
            if cause("cleaning") {
                moment.moved += value;
            } else if !["journal", "label", "checkpoint", "recovery"].into_iter().any(cause) {
                moment.written += value;
            }
        }
    }
    (moment.zones > 0.0).then_some(moment)
}

/// The program's figures until it ended, and how it ended.
fn moments(child: &mut Child, port: u16) -> Result<(Vec<Moment>, ExitStatus), String> {
    let mut moments = Vec::new();
    loop {
        if let Some(ended) = child.try_wait().map_err(|e| format!("db_bench: {e}"))? {
            return Ok((moments, ended));
        }
        moments.extend(look(port, child.id()));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A `db_bench` that has ended.
struct Ended {
    moments: Vec<Moment>,
    /// Its standard output.
    out: String,
    /// Why it ended early.
    failed: Option<String>,
}

impl Ended {
    /// Bytes of all files when they were most.
    fn fullest(&self) -> f64 {
        self.moments.iter().map(|moment| moment.live).fold(0.0, f64::max)
    }
}

fn play(build: &Path, records: u64, seed: usize, size: u64) -> Result<Ended, String> {
    let library = build.join("librocksdb_imbrex.so");
    let library = library.canonicalize().map_err(|e| format!("{}: {e}; run `make build`", library.display()))?;
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| format!("a port: {e}"))?.port();
    let drive = format!(
        "--fs_uri=imbrex://mem:?profile=hgst-hsh721414al&size={size}&zone-size={ZONE}&conventional={CONVENTIONAL}\
         &prefault=1&cache=64M"
    );
    let mut child = Command::new("db_bench")
        .args(["--benchmarks=fillrandom,overwrite", "--compression_type=none", "--key_size=20", "--value_size=400"])
        .arg(format!("--num={records}"))
        .arg(format!("--seed={}", seed + 1))
        .arg(format!("--write_buffer_size={}", 64 * MIB / SCALE))
        .arg(format!("--target_file_size_base={}", 64 * MIB / SCALE))
        .arg(format!("--max_bytes_for_level_base={}", 256 * MIB / SCALE))
        .args(["--histogram=1", "--db=/bench", &drive])
        .env("LD_PRELOAD", library)
        .env("IMBREX_METRICS", format!("127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("db_bench: {e}; install rocksdb-tools"))?;
    let pipes = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(pipes.0.map(|p| Box::new(p) as _));
    let err = read(pipes.1.map(|p| Box::new(p) as _));
    let ended = moments(&mut child, port);
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    let (moments, ended) = ended?;
    let failed = (!ended.success()).then(|| {
        let mut lines = err.split(['\r', '\n']).chain(out.lines());
        let said = lines.find_map(|l| Some(&l[l.find("error:")?..])).unwrap_or("no message");
        format!("db_bench ended with {ended} ({})", said.trim())
    });
    Ok(Ended { moments, out, failed })
}

fn run(build: &Path, records: u64, seed: usize, size: u64) -> Result<Run, String> {
    let Ended { moments, out, failed } = play(build, records, seed, size)?;
    failed.map_or(Ok(()), Err)?;
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
        return Err("db_bench gave no figures".into());
    };
    let efficiency = |m: &Moment| m.live / (m.zones * ZONE as f64);
    let fullest = moments.iter().max_by(|a, b| a.live.total_cmp(&b.live)).unwrap_or(last);
    let middle = moments.iter().find(|m| m.written >= last.written / 2.0).unwrap_or(last);
    let moving = |since: &Moment| 1.0 + (last.moved - since.moved) / (last.written - since.written);
    let half = &moments[moments.len() / 2..];
    let max = |line: &str| -> Option<f64> { line.split("Max: ").nth(1)?.split_whitespace().next()?.parse().ok() };
    Ok(Run {
        fullest: (fullest.live, efficiency(fullest)),
        mean: half.iter().map(efficiency).sum::<f64>() / half.len() as f64,
        moving: (moving(&Moment::default()), moving(middle)),
        cpu: (last.cpu - first.cpu) * 1e6 / (2 * records) as f64,
        slowest: out.lines().filter_map(max).fold(0.0, f64::max),
    })
}

fn row(name: &str, unit: &str, values: &[f64], goal: Option<(&str, f64)>) -> Value {
    let (median, smallest, largest) = spread(values);
    let mut row = json!({ "name": name, "unit": unit, "median": median, "smallest": smallest, "largest": largest,
                          "all": values, "scale": SCALE, "zone": ZONE });
    if let Some((key, goal)) = goal {
        row[key] = goal.into();
    }
    row
}

fn compare(build: &Path, pairs: usize, records: u64) -> Result<Vec<Value>, String> {
    // Three times what the keys take; nothing is cleaned there.
    let large = (3 * records * 440 / ZONE + 32) * ZONE;
    // Large compactions let it differ from run to run: the larger of two.
    let fullest = run(build, records, 0, large)?.fullest.0.max(run(build, records, 1, large)?.fullest.0);
    let zones = (fullest / FULL / ZONE as f64).round() as u64;
    let small = (zones + CONVENTIONAL) * ZONE;
    let say = |pair: usize, on: &str, run: Run| {
        eprintln!("{on}: pair {} of {pairs}: {run:.3?}", pair + 1);
        run
    };
    let us = |pair| Ok(say(pair, "the full drive", run(build, records, pair, small)?));
    let them = |pair| Ok(say(pair, "the empty drive", run(build, records, pair, large)?));
    let results = interleaved(pairs, us, them)?;
    let of = |figure: &dyn Fn(&(Run, Run)) -> f64| results.iter().map(figure).collect::<Vec<f64>>();
    let room = (zones * ZONE) as f64;
    Ok(vec![
        row("full drive: live bytes, of its zones", "x", &of(&|r| r.0.fullest.0 / room), None),
        row("full drive: space efficiency then", "x", &of(&|r| r.0.fullest.1), Some(("at_least", 0.85))),
        row("full drive: mean efficiency, second half", "x", &of(&|r| r.0.mean), None),
        row("full drive: WA of moving", "x", &of(&|r| r.0.moving.0), Some(("at_most", 1.15))),
        row("full drive: WA of moving, second half", "x", &of(&|r| r.0.moving.1), Some(("at_most", 1.15))),
        row("full drive: CPU per put against an empty one", "x", &of(&|r| r.0.cpu / r.1.cpu), Some(("at_most", 1.1))),
        row("full drive: slowest put", "ms", &of(&|r| r.0.slowest / 1000.0), None),
        row("empty drive: slowest put", "ms", &of(&|r| r.1.slowest / 1000.0), None),
    ])
}

/// Zones of the drives that are filled until RocksDB is refused, or nearly so.
const FEW: RangeInclusive<u64> = 70..=78;
/// Records for each zone there: some runs have nine tenths of the drive alive for a moment, others three quarters.
const RECORDS: u64 = 7100;

/// How full small drives become: three runs for each pair. RocksDB decides how far its compactions fall behind, so every run is as full as it happens to be,
/// and a run that was refused wanted more than was seen.
fn few_zones(build: &Path, pairs: usize) -> Result<Vec<Value>, String> {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for (seed, zones) in (0..3 * pairs).zip(FEW.step_by(2).cycle()) {
        let ended = play(build, RECORDS * zones, seed, (zones + CONVENTIONAL) * ZONE)?;
        let full = ended.fullest() / (zones * ZONE) as f64;
        eprintln!("{zones} zones: {full:.3} alive, {}", ended.failed.as_deref().unwrap_or("all was taken"));
        match ended.failed {
            None => taken.push(full),
            Some(why) if why.contains("No space") => refused.push(full),
            Some(why) => return Err(why),
        }
    }
    let least = refused.iter().copied().fold(f64::INFINITY, f64::min);
    let mut rows = vec![row("70 to 78 zones: live bytes, all taken", "x", &taken, None)];
    if !refused.is_empty() {
        rows.push(row("70 to 78 zones: live bytes, refused", "x", &refused, None));
        rows.push(row("70 to 78 zones: least live bytes, refused", "x", &[least], Some(("at_least", 0.88))));
    }
    Ok(rows)
}

fn not_run(name: &str, why: String) -> Vec<Value> {
    vec![json!({ "name": name, "not_run": why })]
}

/// The rows on drives of 70 to 78 zones.
pub fn rows_of_few_zones(build: &Path, pairs: usize) -> Vec<Value> {
    few_zones(build, pairs).unwrap_or_else(|why| not_run("a full drive of 70 to 78 zones", why))
}

/// The other rows on a full drive.
pub fn rows(build: &Path, pairs: usize, records: u64) -> Vec<Value> {
    compare(build, pairs, records.max(1)).unwrap_or_else(|why| not_run("a full drive", why))
}
