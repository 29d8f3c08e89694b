//! `kv-paced`: how long puts take that arrive at fixed times, while the store's own threads merge on a drive that keeps real time. A store is loaded on the drive's clock
//! as in `kv`, closed, and opened with its threads. A row takes as long as it says: at 1/16 from 3 to 8 minutes. The processor's time counts, and what else runs on the machine.

use super::chart::{Axis, Chart, Series, Shape};
use super::kv_store::{DRIVE, KEY, PART, PERCENTILES, Plan, Store, VALUE, counts, key, row_of_paced};
use super::result::Row;
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_device::Drive;
use imbrex_emulator::time::Pace;
use imbrex_kv::{Kv, Options as KvOptions};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-paced",
    about: "Puts into the key-value store that arrive at fixed times, in real time and beside its threads",
    paper: "none",
    speed: 1.0,
    rows: |_| Plan::paced().map(|plan| plan.name().to_owned()).collect(),
    extra: super::NONE,
    needs: |options| Needs { work: 0, memory: Store::bytes(options) * 2 + (1 << 30) },
    run,
};

/// Puts random keys of so many, so many a second of the drive, each at its time, whether those before are done or not. Returns how long each took after its time, in seconds
/// of the wall, ascending. The first quarter is left out: until then the store gets used to the rate.
fn pace(kv: &Kv, (puts, keys): (u64, u64), rate: f64, stopped: &dyn Fn() -> bool) -> Result<Vec<f64>, Stop> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let (mut value, mut waits) = (vec![0; VALUE], Vec::with_capacity(puts as usize));
    let begun = Instant::now();
    for n in 0..puts {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        random.fill(&mut value[..]);
        let (key, arrives) = (key(random.random_range(0..keys)), Duration::from_secs_f64(n as f64 / rate));
        if let Some(left) = arrives.checked_sub(begun.elapsed()) {
            std::thread::sleep(left);
        }
        kv.put(&key, &value, false).map_err(why)?;
        if n >= puts / 4 {
            waits.push((begun.elapsed() - arrives).as_secs_f64());
        }
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}

fn row(plan: &Plan, (options, speed): (&Options, f64), stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let (store, rate) = Store::sustained(plan, options, stopped)?;
    let before = store.drive.clone();
    drop(store);
    // A drive keeps one kind of time.
    let drive = before.fork().map_err(why)?;
    drop(before);
    let scale = f64::from(options.scale);
    drive.keep_own_time(Pace::Real { speed }).map_err(why)?;
    let kv = Store::options(plan, options);
    let volume = VolumeOptions { exec: Exec::Threads(1), ..kv.volume };
    // As everything that takes time.
    let rest = kv.rest.div_f64(scale * speed);
    let kv = KvOptions { volume, rest, ..kv };
    let store = Kv::open(Drive { device: Arc::new(drive.clone()), survivor: None }, kv).map_err(why)?;
    drive.reset_stats();
    let busy = || drive.time().map_or(0.0, |time| time.total.busy());
    let (begun, before) = (Instant::now(), busy());
    let (keys, puts) = counts(plan, options);
    let waits = pace(&store, (puts, keys), PART * rate * speed, stopped)?;
    let (wall, seconds, counts) = (begun.elapsed().as_secs_f64(), busy() - before, drive.stats().total);
    let waits: Vec<f64> = waits.into_iter().map(|wait| wait * speed * scale).collect();
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(seconds),
        wall_seconds: Some(wall),
        operations: Some(puts),
        bytes_user: Some(puts * (KEY + VALUE as u64)),
        bytes_drive: Some(counts.bytes_written),
        bytes_read: Some(counts.bytes_read),
        ..Row::new("", DRIVE)
    }
    .amplified();
    row_of_paced(&mut row.figures, (PART * rate, seconds / (wall * speed)), &waits);
    // That takes no time on a drive that keeps none.
    drop(store);
    let drive = Arc::new(drive.fork().map_err(why)?);
    let store = Kv::open(Drive { device: drive, survivor: None }, Store::options(plan, options)).map_err(why)?;
    row.invalid.extend(store.check().map_err(why)?);
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("record", format!("{KEY} + {VALUE} bytes, not compressible"));
    run.setting("seconds of a put", "of the wall, from the moment that it was to arrive, times the scale");
    let interrupted = run.interrupted.clone();
    let stopped = move || interrupted.load(Ordering::Relaxed);
    for plan in Plan::paced() {
        run.row(plan.name(), |run| row(plan, (run.options, run.speed(Rule::All)), &stopped))?;
    }
    let line = |plan: &Plan| {
        let row = run.measured(plan.name())?;
        // The longest of all puts is one in as many as there were; a logarithm has no room for no wait at all.
        let point = |(percent, name): &(f64, &str)| {
            let one_in = if *percent < 100.0 { 100.0 / (100.0 - percent) } else { row.operations? as f64 };
            Some((one_in, row.figures.get(*name)?.max(0.001)))
        };
        Some(Series { name: plan.name().into(), points: PERCENTILES.iter().filter_map(point).collect() })
    };
    let lines: Vec<Series> = Plan::paced().filter_map(line).collect();
    run.outcome.charts.push(Chart {
        file: "waits".into(),
        title: "Puts that arrive at fixed times: how long the slowest of so many takes".into(),
        x: Axis::log("puts of which one takes as long"),
        y: Axis::log("s at full size, a thousandth at least"),
        shape: Shape::Lines(lines),
    });
    Ok(())
}
