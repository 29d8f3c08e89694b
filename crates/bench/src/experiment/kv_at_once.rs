//! `kv-at-once`: what many keys, and pairs in order, take of a disk with real mechanics: by one read after the other, and with several under way at once. A store is
//! loaded, and opened anew for each row; nothing is merged meanwhile. Iterators read one run after the other on any disk.
//!
//! Only a part of the disk is used, as large as the scale says, so its head moves less far than at full size.

use super::kv_store::{CACHE, DRIVE, KEY, LONG, MEMTABLE, MIB, PUTS, Plan, Store, VALUE, ZONE, ZONES, key};
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_device::Drive;
use imbrex_emulator::Emulator;
use imbrex_emulator::time::{Mechanics, Pace};
use imbrex_kv::policy::{Choice, Policy, Pressure, Snapshot};
use imbrex_kv::{Kv, Options as KvOptions};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-at-once",
    about: "Multi-gets of the key-value store with one read and with several under way at once, seeks, and scans in both directions",
    paper: "none",
    speed: 1.0,
    rows: |_| rows().into_iter().map(|(name, ..)| name).collect(),
    extra: super::NONE,
    needs: |options| Needs { work: 0, memory: Store::bytes(options) * 2 + (1 << 30) },
    run,
};

/// Reads at once.
const AT_ONCE: [usize; 3] = [1, 4, 16];
/// Keys of a multi-get.
const KEYS: usize = 32;
/// Operations of a row, and as many before them, so that tables are open.
const COUNT: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    MultiGet,
    Seek,
    Scan,
    ScanBack,
}

fn rows() -> Vec<(String, What, usize)> {
    let keys = |reads| format!("{KEYS} keys, {reads} {} at once", if reads == 1 { "read" } else { "reads" });
    let mut all: Vec<_> = AT_ONCE.map(|reads| (keys(reads), What::MultiGet, reads)).into();
    all.push(("seek".into(), What::Seek, 1));
    all.push((format!("scan of {LONG}"), What::Scan, 1));
    all.push((format!("scan of {LONG} back"), What::ScanBack, 1));
    all
}

/// Merges nothing.
struct Still;

impl Policy for Still {
    fn choose(&self, _: &Snapshot) -> Choice {
        Choice::Nothing
    }

    fn pressure(&self, _: &Snapshot) -> Pressure {
        Pressure::None
    }
}

/// The store after its load, and keys in it.
fn loaded(options: &Options, stopped: &dyn Fn() -> bool) -> Result<(Emulator, u64), Stop> {
    let scale = u64::from(options.scale);
    let config = Store::drive(options.scale, ZONES, ZONE / scale, Mechanics::Real)?;
    let drive = Emulator::memory(&config).map_err(why)?;
    let mut store = Store::with(drive, None, Store::options(&Plan::ring(0), options), options.scale)?;
    let puts = PUTS / scale / if options.short { 20 } else { 1 };
    for n in 0..puts {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        store.put_random(puts)?;
    }
    store.kv.sync().map_err(why)?;
    Ok((store.drive.fork().map_err(why)?, puts))
}

fn operate(store: &Kv, what: What, random: &mut ChaCha8Rng, keys: u64) -> Result<u64, Stop> {
    if what == What::MultiGet {
        let keys: Vec<_> = (0..KEYS).map(|_| key(random.random_range(0..keys))).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        return Ok(store.multi_get(&keys).map_err(why)?.into_iter().flatten().map(|value| value.len() as u64).sum());
    }
    let (mut iter, from) = (store.iter().map_err(why)?, key(random.random_range(0..keys)));
    if what == What::ScanBack { iter.seek_for_prev(&from) } else { iter.seek(&from) }.map_err(why)?;
    let mut bytes = 0;
    for _ in 0..if what == What::Seek { 1 } else { LONG } {
        bytes += iter.get().map_or(0, |(key, value)| (key.len() + value.len()) as u64);
        match what {
            What::Scan => iter.advance(),
            What::ScanBack => iter.retreat(),
            _ => Ok(()),
        }
        .map_err(why)?;
    }
    Ok(bytes)
}

fn row((drive, keys): &(Emulator, u64), (what, reads): (What, usize), options: &Options) -> Result<Row, Stop> {
    let drive = drive.fork().map_err(why)?;
    drive.keep_own_time(Pace::Account).map_err(why)?;
    let kv = KvOptions {
        reads_at_once: reads,
        make_policy: Some(Arc::new(|_| Box::new(Still))),
        ..Store::options(&Plan::ring(0), options)
    };
    let kv = KvOptions { volume: VolumeOptions { exec: Exec::Threads(1), ..kv.volume }, ..kv };
    let store = Kv::open(Drive { device: Arc::new(drive.clone()), survivor: None }, kv).map_err(why)?;
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let count = if options.short { COUNT / 10 } else { COUNT };
    for _ in 0..count {
        operate(&store, what, &mut random, *keys)?;
    }
    drive.reset_stats();
    let elapsed = || drive.time().map_or(0.0, |time| time.elapsed);
    let before = elapsed();
    let mut bytes = 0;
    for _ in 0..count {
        bytes += operate(&store, what, &mut random, *keys)?;
    }
    let (seconds, counts) = (elapsed() - before, drive.stats().total);
    let mut row = Row {
        rule: Rule::Fewer.name().into(),
        device_seconds: drive.time().map(|time| time.total.busy()),
        wall_seconds: Some(seconds),
        operations: Some(count),
        bytes_read: Some(counts.bytes_read),
        ..Row::new("", DRIVE)
    };
    row.figures.extend([
        (EACH.to_owned(), seconds / count as f64 * 1e3),
        ("commands an operation".to_owned(), counts.reads as f64 / count as f64),
        ("KiB read an operation".to_owned(), counts.bytes_read as f64 / 1024.0 / count as f64),
        ("bytes of pairs".to_owned(), bytes as f64),
        ("most runs that a key is in".to_owned(), store.figures().depth as f64),
    ]);
    Ok(row)
}

const EACH: &str = "ms of the drive an operation";

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("record", format!("{KEY} + {VALUE} bytes, not compressible"));
    run.setting("load", "random puts of 80 GB at full size, with ring; nothing is settled");
    run.setting("memory at full size", format!("memtable {} MiB, cache {} MiB", MEMTABLE / MIB, CACHE / MIB));
    let interrupted = run.interrupted.clone();
    let stopped = move || interrupted.load(std::sync::atomic::Ordering::Relaxed);
    let mut drive = None;
    for (name, what, reads) in rows() {
        run.row(&name, |run| {
            if drive.is_none() {
                drive = Some(loaded(run.options, &stopped)?);
            }
            drive.as_ref().map_or_else(|| Err("no store".into()), |drive| row(drive, (what, reads), run.options))
        })?;
    }
    let each = |run: &Run, reads| {
        let name = rows().into_iter().find(|row| row.1 == What::MultiGet && row.2 == reads).map(|row| row.0);
        let of = |name: String| run.runs(&name, |row| row.figures.get(EACH).copied());
        name.into_iter().flat_map(of).flatten().collect::<Vec<f64>>()
    };
    let mut ratios = Vec::new();
    for reads in &AT_ONCE[1..] {
        let all: Vec<f64> = each(run, 1).into_iter().zip(each(run, *reads)).map(|(one, more)| one / more).collect();
        ratios.extend(Ratio::of(format!("{KEYS} keys: one read after the other against {reads} at once"), &all));
    }
    run.outcome.ratios.extend(ratios);
    Ok(())
}
