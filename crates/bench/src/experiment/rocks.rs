//! Debian's `db_bench`, untouched, on a modelled drive: its settings at a scale, how it is run, and what is read off it.
//!
//! Everything that RocksDB has a size for is divided by the scale (DESIGN, section 4): memtable, table, level, limits of pending
//! compaction, buffers and read-ahead; keys, values and blocks keep their size.

use super::chart::Series;
use super::child::{POLL, Running, machine_ticks};
use super::hosts::Disk;
use super::result::Row;
use super::sample::Sampler;
use super::sensitivity::{self, Recorded};
use super::{Run, Stop, checks};
use crate::process::cpu_seconds;
use imbrex_emulator::{Observer, image_trace_length, read_timed_trace};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Bytes of a key and of a value in the paper (section 5).
pub(super) const KEY: u64 = 20;
/// See [`KEY`].
pub(super) const VALUE: u64 = 400;

/// RocksDB's settings, by the paper's section 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settings {
    /// As it comes.
    Default,
    /// Memtable 256 MiB, tables of a zone, 2 MiB read ahead, four jobs.
    Tuned,
}

/// What `db_bench` is asked to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// `--benchmarks`.
    pub(super) benchmarks: &'static str,
    /// The one whose time counts.
    pub(super) measured: &'static str,
    pub(super) records: u64,
    pub(super) sync: bool,
    pub(super) settings: Settings,
    /// What the settings are divided by.
    pub(super) scale: u32,
    /// Writable bytes of a zone of the drive, for the size of tables; of 256 MiB / scale on drives without.
    pub(super) zone: u64,
    pub(super) seed: u64,
    /// Whether service times are added up, because one thread does everything.
    pub(super) account: bool,
}

impl Job {
    /// The flags, as pairs of name and value.
    pub(super) fn flags(&self) -> Vec<(&'static str, String)> {
        let scaled = |bytes: u64| (bytes / u64::from(self.scale)).max(4 * KIB).to_string();
        let tuned = self.settings == Settings::Tuned;
        // Compactions overshoot by half a per cent (`imbrex fs advise` says the same).
        let table = if tuned { (self.zone / 100 * 98).to_string() } else { scaled(64 * MIB) };
        vec![
            ("benchmarks", self.benchmarks.into()),
            ("num", self.records.to_string()),
            ("key_size", KEY.to_string()),
            ("value_size", VALUE.to_string()),
            ("compression_type", "snappy".into()),
            ("compression_ratio", "0.5".into()),
            ("seed", self.seed.to_string()),
            ("sync", u8::from(self.sync).to_string()),
            ("threads", "1".into()),
            ("stats_interval_seconds", "1".into()),
            ("write_buffer_size", scaled(if tuned { 256 * MIB } else { 64 * MIB })),
            ("target_file_size_base", table),
            ("compaction_readahead_size", if tuned { scaled(2 * MIB) } else { "0".into() }),
            ("max_background_jobs", if tuned { "4" } else { "2" }.into()),
            ("max_bytes_for_level_base", scaled(256 * MIB)),
            ("soft_pending_compaction_bytes_limit", scaled(64 * GIB)),
            ("hard_pending_compaction_bytes_limit", scaled(256 * GIB)),
            ("writable_file_max_buffer_size", scaled(MIB)),
            ("cache_size", scaled(8 * MIB)),
        ]
    }

    /// The flags as the command line has them.
    pub(super) fn text(&self) -> String {
        self.flags().iter().map(|(name, value)| format!("--{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    fn arguments(&self, command: &mut Command) {
        command.args(self.flags().iter().map(|(name, value)| format!("--{name}={value}")));
    }
}

/// What a run left beside its row.
pub(super) struct Traces {
    /// Operations so far over time, from what `db_bench` prints each second.
    pub(super) operations: Vec<(f64, f64)>,
    /// The same as a rate.
    pub(super) rate: Vec<(f64, f64)>,
    /// Read and written.
    pub(super) bandwidth: Vec<Series>,
    /// Zones in use.
    pub(super) zones: Series,
}

/// A line of `db_bench` about one benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) seconds: f64,
    pub(super) operations: u64,
}

/// What `db_bench` says of the benchmark `name`: `fillrandom : 5.5 micros/op 180562 ops/sec 4.431 seconds 800000 operations; …`.
pub(super) fn timed(output: &str, name: &str) -> Option<Timed> {
    let line = output.lines().rev().find(|line| {
        let line = line.trim_start_matches(['\r', '\0', ' ']);
        line.split([' ', ':']).next() == Some(name) && line.contains("ops/sec")
    })?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |unit: &str| {
        let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
        words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
    };
    Some(Timed { seconds: before("seconds")?, operations: before("operations")? as u64 })
}

/// Operations so far over time, of `… thread 0: (35000,120000) ops and (…) ops/second in (1.000295,3.401) seconds`.
fn progress(complaints: &str, speed: f64) -> Vec<(f64, f64)> {
    let pair = |text: &str, from: &str| -> Option<f64> {
        let (_, rest) = text.split_once(from)?;
        let (inside, _) = rest.split_once(')')?;
        inside.split(',').nth(1)?.parse().ok()
    };
    let point = |line: &str| {
        let (_, line) = line.split_once("thread ")?;
        Some((pair(line, " in (")? * speed, pair(line, ": (")?))
    };
    complaints.lines().filter_map(point).collect()
}

/// How a run is started and seen.
pub(super) struct On<'a> {
    /// The program with everything but the flags of the job.
    pub(super) command: Command,
    /// The image of its drive.
    pub(super) image: &'a Path,
    /// How its drive keeps time.
    pub(super) pace: Pace,
    /// The drive.
    pub(super) disk: &'a Disk,
}

/// How a drive keeps time under a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// So many seconds of its own in one of the world's; the program waits.
    Real(f64),
    /// Service times are added up: right where one thread waits for each command, and then exact, however short they are.
    Account,
}

impl Pace {
    /// Drive seconds in a second, where that means something.
    pub(super) fn speed(self) -> f64 {
        if let Pace::Real(speed) = self { speed } else { 1.0 }
    }

    /// As options of a drive.
    pub(super) fn options(self) -> String {
        match self {
            Pace::Real(speed) => format!("time=pace&speed={speed}"),
            Pace::Account => "time=account".into(),
        }
    }
}

/// A program that ran on a drive.
pub(super) struct Watched {
    /// Of all of it, or of each of its parts.
    pub(super) rows: Vec<Row>,
    /// What looked at all of it, or at its last part.
    pub(super) sampler: Sampler,
    pub(super) output: String,
    pub(super) complaints: String,
}

/// What a program says when it is about to begin a part, or has ended the last one, and waits to be told to go on.
fn announces(output: &str, part: &str) -> bool {
    output.lines().any(|line| line.strip_suffix(" is next") == Some(part))
}

/// What is counted from a moment on until the row is filled.
struct Counted {
    sampler: Sampler,
    /// Commands that the drive had recorded until then.
    from: Option<u64>,
    ticks: Option<(f64, f64)>,
    cpu_seconds: f64,
}

impl Counted {
    fn new(on: &On, cpu_seconds: f64) -> Result<Counted, Stop> {
        let from = image_trace_length(on.image).map_err(|e| e.to_string())?;
        let sampler = Sampler::new(on.image, on.pace.speed())?;
        Ok(Counted { sampler, from, ticks: machine_ticks(), cpu_seconds })
    }

    fn row(&mut self, on: &On, row: &Row, cpu_seconds: f64) -> Row {
        let mut row = row.clone();
        self.sampler.look();
        self.sampler.fill(&mut row);
        row.figures.insert("CPU s of the program".into(), cpu_seconds - self.cpu_seconds);
        if let (Some((busy, all)), Some((busy_now, all_now))) = (self.ticks, machine_ticks()) {
            row.cpu_saturation = Some((busy_now - busy) / (all_now - all).max(1.0));
        }
        row.settings.insert("time".into(), on.pace.options());
        row
    }
}

/// Runs a program on a drive, looks at both until it ends, and fills a copy of `row` with what the drive counted and the processors did.
///
/// Where `parts` are named there is a row of each, and what comes before the first is in none: the program says `NAME is next` before each
/// of them, and `end is next` behind the last, and begins when it is told to by a line at its standard input. The drive's counters are
/// set to 0 meanwhile, and a replay has all that was recorded before in it and counts the part.
pub(super) fn watch(run: &Run, on: &On, dir: &Path, row: &Row, parts: &[&str]) -> Result<Watched, Stop> {
    let name = run.doing();
    let mut counted = Counted::new(on, 0.0)?;
    let (mut running, mut input) = if parts.is_empty() {
        (Running::start(&on.command, dir)?, None)
    } else {
        Running::start_told(&on.command, dir).map(|(running, input)| (running, Some(input)))?
    };
    let pid = running.id();
    // Rows, and which commands they are of.
    let mut rows: Vec<(Row, Option<(u64, u64)>)> = Vec::new();
    let mut marks = parts.iter().copied().chain(["end"]).enumerate().peekable();
    let mut looked = Instant::now();
    let pause = if parts.is_empty() { POLL } else { POLL / 20 };
    running.wait_each(pause, |output| {
        if run.stopped() {
            return Err(Stop::Interrupted);
        }
        if looked.elapsed() >= POLL.saturating_sub(pause) {
            looked = Instant::now();
            counted.sampler.look();
            run.says(&format!("{name}: {:.0} s of the drive", counted.sampler.elapsed()));
        }
        if let Some(input) = &mut input
            && let Some((number, _)) = marks.next_if(|(_, part)| announces(output, part))
        {
            let cpu = cpu_seconds(pid).unwrap_or(0.0);
            if number > 0 {
                let row = counted.row(on, row, cpu);
                let until = image_trace_length(on.image).map_err(|e| e.to_string())?;
                rows.push((row, counted.from.zip(until)));
            }
            Observer::reset_stats(on.image).map_err(|e| e.to_string())?;
            counted = Counted::new(on, cpu)?;
            // If it is gone, that is seen next.
            let _ = input.write_all(b"\n");
        }
        Ok(())
    })?;
    if parts.is_empty() {
        let row = counted.row(on, row, running.cpu_seconds());
        rows.push((row, counted.from.map(|from| (from, u64::MAX))));
    } else if marks.peek().is_some() {
        return Err(Stop::Failed(
            "the program did not say when its parts begin; `make build` makes what belongs together".into(),
        ));
    }
    // Once is enough of a row that is repeated.
    if rows.iter().any(|(_, recorded)| recorded.is_some()) && !name.contains(" (run ") {
        let trace = read_timed_trace(on.image).map_err(|e| e.to_string())?.unwrap_or_default();
        run.says(&format!("{name}: what assumptions are worth"));
        for (row, recorded) in &mut rows {
            let Some((from, until)) = *recorded else { continue };
            let recorded = Recorded::new(on.disk, &trace, from..until);
            row.replayed = Some(sensitivity::measure(run, &recorded, row.device_seconds.unwrap_or(0.0))?);
            sensitivity::judge(row);
        }
    }
    let judged = rows.into_iter().map(|(mut row, _)| {
        match on.pace {
            Pace::Real(_) => checks::cpu_bound(&mut row),
            // Nothing could have been busy meanwhile.
            Pace::Account => row.flags.push("service times were added up: the host's own time counts as none".into()),
        }
        row
    });
    let rows = judged.collect();
    Ok(Watched { rows, sampler: counted.sampler, output: running.output(), complaints: running.complaints() })
}

/// Runs a job and fills a row with what came of it. `row` has name, drive and rule.
pub(super) fn measure(run: &Run, job: &Job, mut on: On, dir: &Path, row: Row) -> Result<(Row, Traces), Stop> {
    job.arguments(&mut on.command);
    let Watched { mut rows, sampler, output, complaints } = watch(run, &on, dir, &row, &[])?;
    let Some(mut row) = rows.pop() else { return Err("nothing was measured".into()) };
    let speed = on.pace.speed();
    let Some(timed) = timed(&output, job.measured) else {
        return Err(Stop::Failed(format!("db_bench printed no result of {}; try its command by hand", job.measured)));
    };
    let seconds = match on.pace {
        Pace::Real(speed) => timed.seconds * speed,
        Pace::Account => {
            sampler.elapsed_by_drive().ok_or("the drive kept no time; `make build` makes what belongs together")?
        }
    };
    row.wall_seconds = Some(seconds);
    row.operations = Some(timed.operations);
    row.bytes_user = Some(timed.operations * (KEY + VALUE));
    row.figures.insert("operations/s".into(), timed.operations as f64 / seconds);
    row.settings.insert("db_bench".into(), job.text());
    let operations = progress(&complaints, speed);
    let rate = operations.windows(2).filter_map(|pair| match pair {
        [(a, n), (b, m)] if b > a => Some(((a + b) / 2.0, (m - n) / (b - a))),
        _ => None,
    });
    let traces = Traces {
        rate: rate.collect(),
        operations,
        bandwidth: sampler.bandwidth(),
        zones: sampler.zone_line("zones in use"),
    };
    Ok((row.amplified(), traces))
}

/// Flushes and compactions under way over time, from RocksDB's own log: `EVENT_LOG_v1 {"time_micros": …, "event": …}`.
pub(super) fn under_way(log: &str, speed: f64) -> Vec<Series> {
    let field = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
        let end = rest.find([',', '}'])?;
        rest.get(..end).map(|text| text.trim_matches('"').to_owned())
    };
    // When each began or ended, and how many there were from then on.
    let mut steps =
        [("flushes", "flush"), ("compactions", "compaction")].map(|(name, event)| (name, event, 0.0, vec![(0.0, 0.0)]));
    let mut first = None;
    let mut last = 0.0;
    for line in log.lines().filter(|line| line.contains("EVENT_LOG_v1")) {
        let Some(time) = field(line, "time_micros").and_then(|micros| micros.parse::<f64>().ok()) else { continue };
        let at = (time - *first.get_or_insert(time)) / 1e6 * speed;
        let Some(event) = field(line, "event") else { continue };
        for (_, name, running, points) in &mut steps {
            let step = match event.strip_prefix(*name) {
                Some("_started") => 1.0,
                Some("_finished") => -1.0,
                _ => continue,
            };
            *running = f64::max(*running + step, 0.0);
            points.push((at, *running));
            last = f64::max(last, at);
        }
    }
    let series = |(name, _, _, points): (&str, &str, f64, Vec<(f64, f64)>)| Series {
        name: name.into(),
        points: averaged(&points, last),
    };
    steps.into_iter().map(series).collect()
}

/// The mean of a step function over each of so many pieces of the time up to `end`.
fn averaged(steps: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    const PIECES: usize = 100;
    let piece = end / PIECES as f64;
    if piece <= 0.0 {
        return Vec::new();
    }
    let mut area = [0.0; PIECES];
    let until = steps.iter().skip(1).map(|(at, _)| *at).chain([end]);
    for ((from, height), to) in steps.iter().zip(until) {
        for (i, area) in area.iter_mut().enumerate() {
            let (left, right) = (i as f64 * piece, (i + 1) as f64 * piece);
            *area += (to.min(right) - from.max(left)).max(0.0) * height;
        }
    }
    area.iter().enumerate().map(|(i, area)| ((i as f64 + 0.5) * piece, area / piece)).collect()
}

/// What a program says of its version in its first lines, `db_bench`: `RocksDB: version 7.8.3`.
pub(super) fn version() -> Result<String, String> {
    let output = Command::new("db_bench").arg("--version").output();
    let output = output.map_err(|e| format!("db_bench: {e}; install rocksdb-tools"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job {
        benchmarks: "fillrandom",
        measured: "fillrandom",
        records: 10,
        sync: false,
        settings: Settings::Tuned,
        scale: 64,
        zone: 4 << 20,
        seed: 1,
        account: false,
    };

    #[test]
    fn sizes_shrink_and_records_do_not() {
        let text = JOB.text();
        for part in ["--write_buffer_size=4194304", "--target_file_size_base=4110", "--key_size=20", "--value_size=400"]
        {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        let whole = Job { scale: 1, settings: Settings::Default, ..JOB }.text();
        for part in
            ["--write_buffer_size=67108864", "--target_file_size_base=67108864", "--compaction_readahead_size=0"]
        {
            assert!(whole.contains(part), "{whole} lacks {part}");
        }
    }

    #[test]
    fn what_db_bench_prints_is_understood() {
        let out = "DB path: [/bench]\nfillrandom   :       5.538 micros/op 180562 ops/sec 4.431 seconds 800000 operations;   72.3 MB/s\n";
        assert_eq!(timed(out, "fillrandom"), Some(Timed { seconds: 4.431, operations: 800_000 }));
        assert_eq!(timed(out, "fillseq"), None);
        assert_eq!(timed("fillrandom : nonsense ops/sec", "fillrandom"), None);
        let parts = "fillrandom 7 ops/sec\nreadrandom is next\n";
        assert!(
            announces(parts, "readrandom")
                && !announces(parts, "readseq")
                && !announces("readrandom is ne", "readrandom")
        );
        let err = "2026/11/21-17:07:15  ... thread 0: (35000,70000) ops and (34990.3,34990.3) ops/second in (1.0,2.5) seconds\nodd\n";
        assert_eq!(progress(err, 2.0), [(5.0, 70_000.0)]);
    }

    #[test]
    fn the_log_says_what_is_under_way() {
        let line = |at: u64, event: &str| {
            format!("x EVENT_LOG_v1 {{\"time_micros\": {at}, \"job\": 2, \"event\": \"{event}\"}}\n")
        };
        let log = [
            line(1_000_000, "flush_started"),
            line(1_500_000, "compaction_started"),
            line(2_000_000, "flush_finished"),
            "torn EVENT_LOG_v1 {\"time_mic".to_owned(),
        ]
        .concat();
        let [flushes, compactions] = under_way(&log, 1.0).try_into().unwrap();
        let mean = |series: &Series| series.points.iter().map(|(_, y)| y).sum::<f64>() / series.points.len() as f64;
        assert!((mean(&flushes) - 1.0).abs() < 1e-9, "{flushes:?}");
        assert!((mean(&compactions) - 0.5).abs() < 1e-9, "{compactions:?}");
        assert!(compactions.points[0].1.abs() < 1e-9 && (compactions.points[99].1 - 1.0).abs() < 1e-9);
        assert!(under_way("", 1.0).iter().all(|series| series.points.is_empty()));
    }
}
