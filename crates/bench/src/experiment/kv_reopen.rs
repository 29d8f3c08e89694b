//! `kv-reopen`: what opening the key-value store takes after its process was killed, and after the drive lost power. On the drive of the experiment `kv`, by
//! that drive's clock; and on a drive in memory, where only the processor is measured: how fast it brings the log back.

use super::chart::{Axis, Chart, Shape};
use super::kv_store::{CACHE, DRIVE, KEY, MEMTABLE, MIB, PUTS, Plan, Store, VALUE};
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_device::{Cause, Drive, HeapSurvivor, Survivor};
use imbrex_emulator::time::{Pace, Seconds};
use imbrex_emulator::{Config, Counts, Emulator, Overrides, Profile};
use imbrex_kv::{Kv, Options as KvOptions};
use imbrex_zones::{Exec, VolumeOptions};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-reopen",
    about: "Opening the key-value store after a kill and after a loss of power, and how fast it brings its log back",
    paper: "none",
    speed: 1.0,
    rows: |_| rows().into_iter().map(|(name, _)| name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 6 << 30 },
    run,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The memory for what waits to be written is there at the next opening.
    Killed,
    /// It is not.
    PowerLost,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A random load of 80 GB at full size, with so many bytes of memory. `full`: then puts go on until the log is as long as it becomes.
    Loaded { full: bool, end: End, memtable: u64 },
    /// Values of so many bytes, on a drive in memory that has the log, or has nothing of it.
    Replay { value: usize, on_drive: bool },
}

fn rows() -> Vec<(String, Case)> {
    let mut all = Vec::new();
    for memtable in [KvOptions::default().memtable_bytes as u64, MEMTABLE] {
        let mut row = |how: &str, full, end| {
            let name = format!("memtable {} MiB, 80 GB loaded, {how}", memtable / MIB);
            all.push((name, Case::Loaded { full, end, memtable }));
        };
        row("killed", false, End::Killed);
        row("killed with a full log", true, End::Killed);
        row("power lost with a full log", true, End::PowerLost);
    }
    for on_drive in [true, false] {
        let place = if on_drive { "log on the drive" } else { "log in the dead process's memory" };
        let row = |value| (format!("processor alone, {place}, values of {value} B"), Case::Replay { value, on_drive });
        all.extend([100, 1024, 4096].map(row));
    }
    all
}

/// Nanoseconds that this thread has had a processor.
fn on_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// So many puts at most until the log is as long as it becomes, and the part of twice the memory that it is wanted to have.
const MORE: u64 = 4;
const LONG: f64 = 1.9;

/// Puts until the log is long; what it has then, in memtables.
fn lengthen(store: &mut Store, keys: u64, memtable: u64, stopped: &dyn Fn() -> bool) -> Result<(), Stop> {
    let log = |store: &Store| store.kv.figures().log as f64 / memtable as f64;
    let most = MORE * memtable / VALUE as u64;
    let mut longest = 0.0f64;
    for n in 0..2 * most {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        let now = log(store);
        // As long as wanted, or as long as it was at all.
        if now >= LONG || n >= most && now >= 0.97 * longest {
            break;
        }
        longest = longest.max(now);
        store.put_random(keys)?;
    }
    Ok(())
}

/// What an opening took.
struct Opening {
    store: Kv,
    drive: Emulator,
    survivor: Option<Arc<HeapSurvivor>>,
    /// Seconds of the thread.
    cpu: f64,
    counts: Counts,
    /// Seconds of the drive by cause.
    by_cause: BTreeMap<&'static str, Seconds>,
}

/// Opens what the dead process left. `kept`: the memory that outlives a process.
fn open(drive: Emulator, kept: Option<HeapSurvivor>, kv: KvOptions) -> Result<Opening, Stop> {
    drive.keep_own_time(Pace::Account).map_err(why)?;
    drive.reset_stats();
    let survivor = kept.map(Arc::new);
    let memory = survivor.clone().map(|memory| memory as Arc<dyn Survivor>);
    let cpu = on_cpu();
    let store = Kv::open(Drive { device: Arc::new(drive.clone()), survivor: memory }, kv).map_err(why)?;
    let cpu = (on_cpu() - cpu) as f64 / 1e9;
    let by_cause = drive.time().map(|time| time.by_cause).unwrap_or_default();
    Ok(Opening { store, counts: drive.stats().total, drive, survivor, cpu, by_cause })
}

/// The same store, of which all is in tables and nothing in the log.
fn open_without_log(opening: &Opening, kv: KvOptions) -> Result<Opening, Stop> {
    opening.store.flush().map_err(why)?;
    open(opening.drive.fork().map_err(why)?, opening.survivor.as_ref().map(|memory| memory.snapshot()), kv)
}

/// Seconds of the drive at full size: only the log is longer then. Positioning and metadata are what they are: a store has as many tables at each scale.
fn at_full_size(cause: &str, seconds: &Seconds, scale: f64) -> f64 {
    let log = if cause == Cause::Wal.name() { scale } else { 1.0 };
    seconds.busy() + seconds.transfer * (log - 1.0)
}

fn loaded((full, end, memtable): (bool, End, u64), options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let scale = u64::from(options.scale);
    let memtable = memtable / scale;
    let mut kv = Store::options(&Plan::ring(0), options);
    kv.memtable_bytes = memtable as usize;
    // An opening may read a segment too much, which is small beside a log of full size.
    kv.segment_bytes = (kv.segment_bytes / scale as usize).max(4096);
    let survivor = Arc::new(HeapSurvivor::new());
    let drive = Emulator::memory(&Store::config(options)?).map_err(why)?;
    let mut store = Store::with(drive, Some(survivor.clone()), kv.clone(), options.scale)?;
    let puts = PUTS / scale / if options.short { 20 } else { 1 };
    for n in 0..puts {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        store.put_random(puts)?;
    }
    if full {
        lengthen(&mut store, puts, memtable, stopped)?;
    }
    let before = store.kv.figures();
    let (drive, kept) = match end {
        End::Killed => (store.drive.fork().map_err(why)?, Some(survivor.snapshot())),
        End::PowerLost => (store.drive.after_power_loss(1).map_err(why)?, None),
    };
    drop((store, survivor));
    let opening = open(drive, kept, kv.clone())?;
    let after = opening.store.figures();
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(opening.by_cause.values().map(Seconds::busy).sum()),
        bytes_read: Some(opening.counts.bytes_read),
        bytes_drive: Some(opening.counts.bytes_written),
        flushes: Some(opening.counts.flushes),
        ..Row::new("", DRIVE)
    };
    let full_size = scale as f64;
    let mut seconds = 0.0;
    for (cause, of) in &opening.by_cause {
        let of = at_full_size(cause, of, full_size);
        row.figures.insert(format!("s at full size, {cause}"), of);
        seconds += of;
    }
    // What was acknowledged is there after a kill, to the last byte of it in memory.
    if end == End::Killed && after.memory < before.memory {
        row.invalid.push("changes that a dead process had in memory are gone; look into that first".into());
    }
    row.invalid.extend(opening.store.damage());
    row.invalid.extend(opening.store.check().map_err(why)?);
    let without = open_without_log(&opening, kv)?;
    let cpu = without.cpu + (opening.cpu - without.cpu).max(0.0) * full_size;
    row.figures.extend(
        [
            ("s of the drive at full size", seconds),
            ("s of the processor at full size", cpu),
            ("s of the processor without the log", without.cpu),
            ("log before, memtables", before.log as f64 / memtable as f64),
            ("log before at full size, MB", before.log as f64 * full_size / 1e6),
            ("MB read of it, and of metadata, labels", opening.counts.bytes_read as f64 / 1e6),
            ("commands that read", opening.counts.reads as f64),
            ("commands that write", opening.counts.writes as f64),
            ("changes in memory after it, MB at full size", after.memory as f64 * full_size / 1e6),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    row.figures.insert(SUM.into(), seconds + cpu);
    Ok(row)
}

const SUM: &str = "s of drive and processor at full size";
const REPLAY: &str = "replay, MB/s of log by one core";

/// Opens a store in memory whose memtable is as full as it becomes before a part of it is made a table.
fn replay(value: usize, on_drive: bool, options: &Options) -> Result<Row, Stop> {
    let memtable = if options.short { 4 * MIB } else { 64 * MIB };
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    let over = Overrides {
        capacity: Some(64 * 64 * MIB),
        zone_size: Some(64 * MIB),
        conventional: Some(0),
        ..Overrides::default()
    };
    let drive = Emulator::memory_flat(&Config::new(&profile, &over)).map_err(why)?;
    let survivor = Arc::new(HeapSurvivor::new());
    let kv = KvOptions {
        memtable_bytes: memtable as usize,
        volume: VolumeOptions { exec: Exec::Inline, survivor_bytes: 3 * memtable as usize, ..VolumeOptions::default() },
        ..KvOptions::default()
    };
    let handle = |drive: &Emulator, survivor| Drive { device: Arc::new(drive.clone()), survivor: Some(survivor) };
    Kv::format(&handle(&drive, survivor.clone()), Some([7; 16]), false).map_err(why)?;
    let store = Kv::open(handle(&drive, survivor.clone()), kv.clone()).map_err(why)?;
    let mut puts = 0u64;
    // Random keys, so that they do not arrive in order.
    while store.figures().memory < memtable / 10 * 9 {
        for _ in 0..64 {
            let key = (puts.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
            store.put(&[&key[..], &key[..]].concat(), &vec![puts as u8; value], false).map_err(why)?;
            puts += 1;
        }
    }
    if on_drive {
        store.sync().map_err(why)?;
    }
    let log = store.figures().log;
    let (forked, kept) = (drive.fork().map_err(why)?, survivor.snapshot());
    drop((store, drive, survivor));
    let opening = open(forked, Some(kept), kv.clone())?;
    let damage = opening.store.damage();
    let without = open_without_log(&opening, kv)?;
    let cpu = opening.cpu - without.cpu;
    let mut row = Row { rule: Rule::Whole.name().into(), operations: Some(puts), ..Row::new("", "memory, no clock") };
    row.figures.extend([
        (REPLAY.to_owned(), log as f64 / 1e6 / cpu),
        ("changes/s".to_owned(), puts as f64 / cpu),
        ("log, MB".to_owned(), log as f64 / 1e6),
        ("s of the processor".to_owned(), opening.cpu),
        ("s of the processor without the log".to_owned(), without.cpu),
    ]);
    row.invalid.extend(damage);
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("record", format!("{KEY} + {VALUE} bytes, not compressible, where nothing else is said"));
    run.setting(
        "memory at full size",
        format!(
            "memtable by row, cache {} MiB; the survivor has three memtables of {} MiB",
            CACHE / MIB,
            MEMTABLE / MIB
        ),
    );
    run.setting("log", "written, and never synced; it is read from the drive, but for what the survivor has");
    run.setting(
        "full size",
        "the log's transfers, and what the log takes of the processor, are multiplied by the scale; metadata, labels and positioning are what they are",
    );
    run.setting(
        "processor",
        "the time of the thread that opens; replay is that less the time of an opening of the same store without a log, which has the same survivor",
    );
    for (name, case) in rows() {
        run.row(&name, |run| {
            let interrupted = run.interrupted.clone();
            let stopped = move || interrupted.load(std::sync::atomic::Ordering::Relaxed);
            match case {
                Case::Loaded { full, end, memtable } => loaded((full, end, memtable), run.options, &stopped),
                Case::Replay { value, on_drive } => replay(value, on_drive, run.options),
            }
        })?;
    }
    let goals = rows().into_iter().map(|(name, case)| match case {
        Case::Loaded { .. } => (name, SUM, 2.0, true),
        Case::Replay { .. } => (name, REPLAY, 500.0, false),
    });
    for (name, figure, wanted, at_most) in goals {
        let of = |row: &Row| row.figures.get(figure).copied();
        let all = run.runs(&name, of).into_iter().flatten();
        let all: Vec<f64> = all.map(|figure| if at_most { wanted / figure } else { figure / wanted }).collect();
        let text = format!(
            "{name}: {}, above 1 it is reached",
            if at_most { "2 s over what opening takes" } else { "replay over 500 MB/s" }
        );
        run.outcome.ratios.extend(Ratio::of(text, &all).map(|ratio| Ratio { goal: Some(1.0), ..ratio }));
    }
    let seconds = |(name, _): (String, Case)| Some((name.clone(), *run.measured(&name)?.figures.get(SUM)?, None));
    let bars = rows().into_iter().filter_map(seconds).collect();
    run.outcome.charts.push(Chart {
        file: "opening".into(),
        title: "What opening takes".into(),
        x: Axis::even(""),
        y: Axis::even(SUM),
        shape: Shape::Bars(bars),
    });
    Ok(())
}
