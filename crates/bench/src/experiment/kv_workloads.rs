//! `kv-workloads`: the key-value store beside stock LevelDB and RocksDB on bluefs, with what [`super::kv_stock`] leaves out: a load in order, small and large
//! values, skewed overwrites, and deletes. Each store is given the same keys in the same order, and each has a drive of equal size and mechanics.

use super::chart::{Axis, Chart, Shape};
use super::kv_driven::{Driven, Plan as StockPlan, Side, Stock, space};
use super::kv_keys::{Keys, Source};
use super::kv_store::{DRIVE, KEY, MEMTABLE, Plan as Load, Store, VALUE, ZONE, ZONES, key, there};
use super::result::{Ratio, Row};
use super::rocks::Pace;
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop, checks};
use imbrex_emulator::Emulator;
use imbrex_emulator::time::Mechanics;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-workloads",
    about: "The key-value store beside stock LevelDB and RocksDB: a load in order, small and large values, skewed overwrites, deletes",
    paper: "GearDB (FAST 2019), Figures 10 and 11; SMRDB (SYSTOR 2015), Figures 8 and 9",
    speed: 1.0,
    rows: |_| plans().iter().map(Plan::name).collect(),
    extra: super::NONE,
    needs: |options| Needs { work: Store::bytes(options) * 2, memory: Store::bytes(options) * 2 + (1 << 30) },
    run,
};

/// Bytes that a load puts at full size; of one in order, and of overwriting, see [`counts`].
const LOAD: u64 = 80_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Ring,
    Stock(Stock),
}

impl What {
    const ALL: [(What, &str); 3] = [
        (What::Ring, "ring"),
        (What::Stock(Stock::LevelDb), "LevelDB on bluefs"),
        (What::Stock(Stock::RocksDb), "RocksDB on bluefs, tight limits"),
    ];
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Four fifths of [`LOAD`].
    InOrder,
    /// [`LOAD`], random keys of as many as there are puts.
    Random,
    /// A quarter of [`LOAD`] into a store that takes so many percent of all zones.
    Overwrite(u64, Keys),
    /// Half of the keys of such a store are deleted in random order.
    Deletes(u64),
}

/// What is done, and the bytes of a value.
const WORKS: [(&str, Work, usize); 9] = [
    ("load of 64 GB in order", Work::InOrder, VALUE),
    ("random load of 80 GB, values of 100 B", Work::Random, 100),
    ("random load of 80 GB, values of 100 KB", Work::Random, 100_000),
    ("60 % full, zipf 0.99, overwritten", Work::Overwrite(60, Keys::Zipf), VALUE),
    ("60 % full, moving hot spot, overwritten", Work::Overwrite(60, Keys::Moving), VALUE),
    ("85 % full, zipf 0.99, overwritten", Work::Overwrite(85, Keys::Zipf), VALUE),
    ("85 % full, moving hot spot, overwritten", Work::Overwrite(85, Keys::Moving), VALUE),
    ("60 % full, half is deleted", Work::Deletes(60), VALUE),
    ("85 % full, half is deleted", Work::Deletes(85), VALUE),
];

struct Plan {
    work: (&'static str, Work, usize),
    side: (What, &'static str),
}

impl Plan {
    fn name(&self) -> String {
        format!("{}: {}", self.work.0, self.side.1)
    }
}

fn plans() -> Vec<Plan> {
    WORKS.iter().flat_map(|work| What::ALL.map(|side| Plan { work: *work, side })).collect()
}

/// Keys that are there before, and operations that are measured.
fn counts(work: Work, value: usize, options: &Options) -> (u64, u64) {
    let record = KEY + value as u64;
    let short = |count: u64| if options.short { count.min(4000) } else { count };
    let puts = short(LOAD / record / u64::from(options.scale));
    let full = |percent: u64| short(Store::bytes(options) * percent / 100 / record);
    match work {
        Work::InOrder => (0, puts * 4 / 5),
        Work::Random => (0, puts),
        Work::Overwrite(percent, _) => (full(percent), puts / 4),
        Work::Deletes(percent) => (full(percent), full(percent) / 2),
    }
}

/// The store of a row, on a new drive.
fn side(plan: &Plan, options: &Options, speed: f64) -> Result<Box<dyn Side>, Stop> {
    let scale = u64::from(options.scale);
    let config = Store::drive(options.scale, ZONES, ZONE / scale, Mechanics::Scaled)?;
    let What::Stock(store) = plan.side.0 else {
        let kv = Store::options(&Load::ring(0), options);
        return Ok(Box::new(Store::with(Emulator::memory(&config).map_err(why)?, None, kv, options.scale)?));
    };
    let plan = StockPlan {
        store,
        memtable: MEMTABLE / scale,
        // Compactions overshoot by half a per cent.
        table: ZONE / scale / 100 * 98,
        scale: options.scale,
        io_scale: options.scale,
        pace: Pace::Real(speed),
    };
    Ok(Box::new(Driven::new(&plan, &config, options)?))
}

/// The numbers of the keys that are put or deleted, one after the other.
fn keys(work: Work, (there, count): (u64, u64), scale: u32) -> Box<dyn Iterator<Item = u64>> {
    let drawn = |keys: Keys, space: u64| {
        let mut source = Source::new(keys, space.max(1), u64::from(scale));
        Box::new((0..count).map(move |at| source.next(at)))
    };
    match work {
        Work::InOrder => Box::new(0..count),
        Work::Random => drawn(Keys::Uniform, count),
        Work::Overwrite(_, keys) => drawn(keys, there),
        Work::Deletes(_) => {
            let mut all: Vec<u64> = (0..there).collect();
            all.shuffle(&mut ChaCha8Rng::seed_from_u64(2));
            Box::new(all.into_iter().take(count as usize))
        }
    }
}

const LAST: &str = "s at full size, until the last operation";
const SETTLED: &str = "s at full size, until settled";

fn play(run: &Run, plan: &Plan) -> Result<Row, Stop> {
    let options = run.options;
    let (_, work, value) = plan.work;
    let (before, count) = counts(work, value, options);
    let (scale, zone) = (f64::from(options.scale), ZONE / u64::from(options.scale));
    let record = KEY + value as u64;
    let mut row = Row { rule: Rule::All.name().into(), ..Row::new("", DRIVE) };
    let mut store = side(plan, options, run.speed(Rule::All))?;
    let stopped = |n: u64| if n.is_multiple_of(1024) && run.stopped() { Err(Stop::Interrupted) } else { Ok(()) };
    // A stock store that stops is a result, and a store of ours is none.
    let ended = |error: Stop| match (error, plan.side.0) {
        (Stop::Failed(why), What::Stock(_)) => Ok(why),
        (error, _) => Err(error),
    };
    let mut filled = Ok(());
    for n in 0..before {
        stopped(n)?;
        filled = store.put(&key(n), value, false);
        if filled.is_err() {
            break;
        }
    }
    if let Err(error) = filled.and_then(|()| store.settle()) {
        row.flags.push(format!("it stopped while the keys came that are to be there before: {}", ended(error)?));
        store.fill(&mut row);
        return Ok(row);
    }
    let (begun, at_first) = (store.spent()?, store.zones().0);
    let mut failed = None;
    for (n, of) in (0..).zip(keys(work, (before, count), options.scale)) {
        stopped(n)?;
        if n.is_multiple_of((count / 100).max(1)) {
            run.says(&format!("{}: {} %", run.doing(), n * 100 / count));
        }
        let changed = match work {
            Work::Deletes(_) => store.delete(&key(of)),
            _ => store.put(&key(of), value, false),
        };
        if let Err(error) = changed {
            failed = Some((n, ended(error)?));
            break;
        }
    }
    let (last, then) = (store.spent()?.since(&begun), store.zones().0);
    store.fill(&mut row);
    row.figures.insert("zones, before".into(), f64::from(at_first));
    if last.elapsed > 0.0 && plan.side.0 != What::Ring {
        row.drive_utilisation = Some(last.seconds / last.elapsed);
        checks::cpu_bound(&mut row);
    }
    if let Some((n, why)) = failed {
        row.flags.push(format!("it stopped after {n} of {count} operations: {why}"));
        row.figures.insert("operations until it stopped".into(), n as f64);
        row.figures.insert("s at full size, until it stopped".into(), last.seconds * scale);
        return Ok(row);
    }
    let rests = store.settle();
    row.figures.insert(LAST.into(), last.seconds * scale);
    if let Err(error) = rests {
        row.flags.push(format!("it does not come to rest: {}", ended(error)?));
        return Ok(row);
    }
    let settled = store.spent()?.since(&begun);
    let user = count * if matches!(work, Work::Deletes(_)) { KEY } else { record };
    row.device_seconds = Some(settled.seconds);
    row.operations = Some(count);
    row.bytes_user = Some(user);
    row.bytes_drive = Some(settled.counts.bytes_written);
    row.bytes_read = Some(settled.counts.bytes_read);
    row.flushes = Some(settled.counts.flushes);
    row.zone_resets = Some(settled.counts.zone_resets);
    let figures = [(SETTLED, settled.seconds * scale), ("operations/s", count as f64 / last.seconds.max(1e-9))];
    row.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    let left = match work {
        Work::InOrder => count as f64,
        Work::Random => there(count),
        Work::Overwrite(..) => before as f64,
        Work::Deletes(_) => (before - count) as f64,
    };
    space(&mut row, store.as_ref(), (left * record as f64) as u64, zone);
    if matches!(work, Work::Deletes(_)) {
        let taken = (count * record) as f64 / zone as f64;
        let freed = |zones: u32| (f64::from(at_first) - f64::from(zones)) / taken * 100.0;
        row.figures.insert("zones freed of those that the deleted pairs took, after the last, %".into(), freed(then));
        row.figures
            .insert("zones freed of those that the deleted pairs took, settled, %".into(), freed(store.zones().0));
    }
    // Not random loads: which keys are there is known, and how many.
    if work != Work::Random {
        let pairs = store.all()?;
        if pairs != left as u64 {
            row.invalid.push(format!("{pairs} pairs are there of {left}"));
        }
    }
    row.invalid.extend(store.check()?);
    Ok(row.amplified())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("each takes minutes, and ring is always the same");
    run.setting("record", format!("{KEY} + {VALUE} bytes unless a row says otherwise, not compressible"));
    run.setting("drive", format!("{ZONES} zones of 256 MiB at full size, seconds in which it was busy"));
    run.setting("memory", "memtable 256 MiB, cache 256 MiB; stock stores have two memtables and a smaller survivor");
    run.setting("log", "written; all puts and deletes unsynced");
    run.setting("before", "where a store is filled before, that is in order of the keys, and it settles then");
    let plans = plans();
    for plan in &plans {
        run.row(&plan.name(), |run| play(run, plan))?;
    }
    let figure = |run: &Run, plan: &Plan, name: &str| run.measured(&plan.name())?.figures.get(name).copied();
    let mut ratios = Vec::new();
    for sides in plans.chunks(What::ALL.len()) {
        let [ours, stock @ ..] = sides else { continue };
        for (plan, (name, what)) in stock
            .iter()
            .flat_map(|plan| [(LAST, "until the last operation"), (SETTLED, "until settled")].map(|of| (plan, of)))
        {
            if let (Some(theirs), Some(ours)) = (figure(run, plan, name), figure(run, ours, name)) {
                ratios.extend(Ratio::of(
                    format!("{}, {what}: ring against {}", plan.work.0, plan.side.1),
                    &[theirs / ours],
                ));
            }
        }
    }
    for (n, (title, ..)) in WORKS.iter().enumerate() {
        let bar = |plan: &Plan| Some((plan.side.1.to_owned(), figure(run, plan, "operations/s")?, None));
        let bars = plans.iter().filter(|plan| plan.work.0 == *title).filter_map(bar).collect();
        run.outcome.charts.push(Chart {
            file: format!("workload-{}", n + 1),
            title: (*title).into(),
            x: Axis::even(""),
            y: Axis::even("operations/s of the drive"),
            shape: Shape::Bars(bars),
        });
    }
    run.outcome.ratios = ratios;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn half_of_the_keys_are_deleted_each_once() {
        let deleted: Vec<u64> = keys(Work::Deletes(60), (1000, 500), 64).collect();
        assert_eq!(deleted.len(), 500);
        assert_eq!(deleted.iter().collect::<BTreeSet<_>>().len(), 500);
        assert!(deleted.iter().all(|key| *key < 1000) && !deleted.is_sorted());
    }

    #[test]
    fn a_store_is_overwritten_with_keys_that_it_has() {
        for of in [Keys::Zipf, Keys::Moving] {
            let work = Work::Overwrite(60, of);
            assert!(keys(work, (1000, 300), 64).all(|key| key < 1000));
            let again: Vec<u64> = keys(work, (1000, 300), 64).collect();
            assert_eq!(again, keys(work, (1000, 300), 64).collect::<Vec<_>>(), "each side has the same");
        }
    }
}
