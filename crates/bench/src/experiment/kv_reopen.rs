//! `kv-reopen`: what opening the key-value store takes after its process was killed, and after the drive lost power. On the drive of the experiment `kv`, by
//! that drive's clock; and on a drive in memory, where only the processor is measured: how fast it brings the log back.

use super::chart::{Axis, Chart, Shape};
use super::kv_store::{CACHE, DRIVE, KEY, MEMTABLE, MIB, PUTS, Plan, Store, VALUE};
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_device::{Drive, HeapSurvivor, Survivor};
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_kv::{Kv, Options as KvOptions};
use imbrex_zones::{Exec, VolumeOptions};
use rustix::time::{ClockId, clock_gettime};
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
    /// A random load of 80 GB at full size. `full`: then puts go on until the log is as long as it becomes.
    Loaded { full: bool, end: End },
    /// Values of so many bytes, on a drive in memory that has the log, or has nothing of it.
    Replay { value: usize, on_drive: bool },
}

fn rows() -> Vec<(String, Case)> {
    let loaded = |name: &str, full, end| (name.to_owned(), Case::Loaded { full, end });
    let mut all = vec![
        loaded("80 GB loaded, killed", false, End::Killed),
        loaded("80 GB loaded, killed with a full log", true, End::Killed),
        loaded("80 GB loaded, power lost with a full log", true, End::PowerLost),
    ];
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

fn loaded(full: bool, end: End, options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let scale = u64::from(options.scale);
    let kv = Store::options(&Plan::ring(0), options);
    let memtable = MEMTABLE / scale;
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
    drive.keep_own_time(Pace::Account).map_err(why)?;
    drive.reset_stats();
    let began = drive.time().map_or(0.0, |time| time.total.busy());
    let by_cause = |drive: &Emulator| {
        drive
            .time()
            .into_iter()
            .flat_map(|time| time.by_cause)
            .map(|(cause, of)| (cause, of.busy()))
            .collect::<Vec<_>>()
    };
    let causes = by_cause(&drive);
    let cpu = on_cpu();
    let survivor = kept.map(|kept| Arc::new(kept) as Arc<dyn Survivor>);
    let store = Kv::open(Drive { device: Arc::new(drive.clone()), survivor }, kv).map_err(why)?;
    let cpu = (on_cpu() - cpu) as f64 / 1e9;
    let seconds = drive.time().map_or(0.0, |time| time.total.busy()) - began;
    let (counts, after) = (drive.stats().total, store.figures());
    let full_size = scale as f64;
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(seconds),
        bytes_read: Some(counts.bytes_read),
        bytes_drive: Some(counts.bytes_written),
        flushes: Some(counts.flushes),
        ..Row::new("", DRIVE)
    };
    for (cause, after) in by_cause(&drive) {
        let spent = after - causes.iter().find(|(known, _)| *known == cause).map_or(0.0, |(_, before)| *before);
        if spent > 0.0 {
            row.figures.insert(format!("s at full size, {cause}"), spent * full_size);
        }
    }
    let log = before.log as f64;
    row.figures.extend(
        [
            ("s of the drive at full size", seconds * full_size),
            ("s of the processor, log at full size", cpu * full_size),
            ("log before, memtables", log / memtable as f64),
            ("log before at full size, MB", log * full_size / 1e6),
            ("MB read at full size", counts.bytes_read as f64 * full_size / 1e6),
            ("commands that read", counts.reads as f64),
            ("commands that write", counts.writes as f64),
            ("changes in memory after it, MB at full size", after.memory as f64 * full_size / 1e6),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    row.figures.insert(SUM.into(), (seconds + cpu) * full_size);
    // What was acknowledged is there after a kill, to the last byte of it in memory.
    if end == End::Killed && after.memory < before.memory {
        row.invalid.push("changes that a dead process had in memory are gone; look into that first".into());
    }
    row.invalid.extend(store.damage());
    row.invalid.extend(store.check().map_err(why)?);
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
    let cpu = on_cpu();
    let store = Kv::open(handle(&forked, Arc::new(kept)), kv).map_err(why)?;
    let cpu = (on_cpu() - cpu) as f64 / 1e9;
    let mut row = Row { rule: Rule::Whole.name().into(), operations: Some(puts), ..Row::new("", "memory, no clock") };
    row.figures.extend([
        (REPLAY.to_owned(), log as f64 / 1e6 / cpu),
        ("changes/s".to_owned(), puts as f64 / cpu),
        ("log, MB".to_owned(), log as f64 / 1e6),
        ("s of the processor".to_owned(), cpu),
    ]);
    row.invalid.extend(store.damage());
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("record", format!("{KEY} + {VALUE} bytes, not compressible, where nothing else is said"));
    run.setting(
        "memory at full size",
        format!("memtable {} MiB, cache {} MiB; the survivor has three memtables", MEMTABLE / MIB, CACHE / MIB),
    );
    run.setting("log", "written, and never synced; it is read from the drive, but for what the survivor has");
    run.setting("processor", "the time of the thread that opens; of the loaded rows it is multiplied by the scale like the drive's, which counts what does not depend on the log too often");
    for (name, case) in rows() {
        run.row(&name, |run| {
            let interrupted = run.interrupted.clone();
            let stopped = move || interrupted.load(std::sync::atomic::Ordering::Relaxed);
            match case {
                Case::Loaded { full, end } => loaded(full, end, run.options, &stopped),
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
