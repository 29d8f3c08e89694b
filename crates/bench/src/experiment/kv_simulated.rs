//! `kv-simulated`: what the compaction policies of `kv` write, and what they leave of the space, on keys without values. The functions that
//! run are those of the store; the worker is a model, and so is the drive: 180 MB/s, 9 ms a move of the head, 22 ms a reset.

use super::kv_keys::{Keys, Source};
use super::result::Row;
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_kv::policy::model::{Counts, Model, Shape};
use imbrex_kv::policy::{Active, Band, Gear, Leveled, Policy, Ring, Sizes};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-simulated",
    about: "What the compaction policies of kv write, how long the drive takes, and what they leave of the space, simulated",
    paper: "GearDB (FAST 2019), Figures 10 to 13; SMRDB (SYSTOR 2015), section 5",
    speed: 1.0,
    rows: |_| rows().into_iter().map(|plan| plan.name).collect(),
    extra: |options| rows().into_iter().filter(|plan| !options.short && plan.extra).map(|plan| plan.name).collect(),
    needs: |_| Needs { work: 0, memory: 1 << 30 },
    run,
};

/// The drive, as each row prints it.
const DRIVE: &str = "model: 180 MB/s, 9 ms a move of the head, 22 ms a reset, zones of 256 MiB";

/// Memory of one row: keys take 12 bytes a version.
const A_ROW: u64 = 256 << 20;

/// What a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// So many puts into an empty store, over as many keys.
    Empty(u64),
    /// So many puts into a store that takes so many percent of all zones.
    Filled(u32, u64),
    /// Half of the keys of such a store are deleted, and nothing is put.
    Deletes(u32),
}

struct Plan {
    name: String,
    zones: u32,
    policy: fn(Sizes) -> Box<dyn Policy>,
    keys: Keys,
    load: Load,
    extra: bool,
}

const MILLION: u64 = 1_000_000;

fn ring(sizes: Sizes) -> Box<dyn Policy> {
    Box::new(Ring::new(sizes))
}

fn dialled(sizes: Sizes) -> Box<dyn Policy> {
    Box::new(Ring { bottom: 90, ..Ring::new(sizes) })
}

fn rows() -> Vec<Plan> {
    let load = |name: &str, zones, policy: fn(Sizes) -> Box<dyn Policy>, extra| Plan {
        name: format!("random load of 80 GB: {name}"),
        zones,
        policy,
        keys: Keys::Uniform,
        load: Load::Empty(20 * MILLION),
        extra,
    };
    let mut all = vec![
        load("ring", 280, ring, false),
        load("ring, bottom at least 90 %", 280, dialled, false),
        load(
            "ring, slices unbounded, 8 GB above",
            280,
            |sizes| Box::new(Ring { bottom: 90, least: 32, slices: 100, ..Ring::new(sizes) }),
            false,
        ),
        load(
            "ring, slices unbounded, 18 GB above",
            280,
            |sizes| Box::new(Ring { bottom: 74, least: 72, slices: 100, ..Ring::new(sizes) }),
            false,
        ),
        load("gear", 600, |sizes| Box::new(Gear::new(sizes)), false),
        load("gear as in the code", 600, |sizes| Box::new(Gear { active: Active::Code, ..Gear::new(sizes) }), false),
        load("band", 600, |sizes| Box::new(Band::new(sizes)), false),
        load("band, not pruned", 600, |sizes| Box::new(Band { unpruned: true, ..Band::new(sizes) }), true),
        load("leveled", 600, |sizes| Box::new(Leveled::new(sizes)), false),
    ];
    for percent in [50, 70, 85, 92] {
        for (keys, name) in Keys::ALL {
            let puts = if keys == Keys::Queue { percent.min(85) } else { percent };
            all.push(Plan {
                name: format!("ring, 280 zones {puts} % full, {name}, overwritten"),
                zones: 280,
                policy: ring,
                keys,
                load: Load::Filled(puts, 5 * MILLION),
                extra: false,
            });
        }
    }
    all.dedup_by(|a, b| a.name == b.name);
    let mut seen = std::collections::HashSet::new();
    all.retain(|plan| seen.insert(plan.name.clone()));
    let large = |name: &str, policy, load, extra| Plan {
        name: format!("2,800 zones: {name}"),
        zones: 2800,
        policy,
        keys: Keys::Uniform,
        load,
        extra,
    };
    all.extend([
        Plan {
            name: "ring, 280 zones 92 % full, half is deleted".into(),
            zones: 280,
            policy: ring,
            keys: Keys::Uniform,
            load: Load::Deletes(92),
            extra: false,
        },
        large("ring, random load of 800 GB", ring, Load::Empty(200 * MILLION), true),
        large("ring, bottom at least 90 %, random load of 800 GB", dialled, Load::Empty(200 * MILLION), true),
        large("ring, 70 % full, uniform, overwritten", ring, Load::Filled(70, 20 * MILLION), true),
        large("ring, 85 % full, uniform, overwritten", ring, Load::Filled(85, 20 * MILLION), true),
        large("ring, 92 % full, uniform, overwritten", ring, Load::Filled(92, 20 * MILLION), true),
    ]);
    all
}

/// Carries a row out: the model afterwards, and zones in use before and after the rest.
fn play(plan: &Plan, scale: u64, short: bool, stopped: &dyn Fn() -> bool) -> Result<(Model, u32, Counts), String> {
    let shape = Shape::divided(plan.zones, scale);
    let mut model = Model::new((plan.policy)(shape.sizes), shape);
    let part = |puts: u64| puts / scale / if short { 20 } else { 1 };
    let (percent, puts) = match plan.load {
        Load::Empty(puts) => (0, part(puts)),
        Load::Filled(percent, puts) => (percent, part(puts)),
        Load::Deletes(percent) => (percent, 0),
    };
    let all = u64::from(plan.zones) * shape.zone / shape.entry;
    let space = if percent == 0 { puts } else { all * u64::from(percent) / 100 };
    if percent > 0 {
        for key in 0..space {
            model.put(key as u32)?;
        }
        model.restart();
    }
    let mut source = Source::new(plan.keys, space.max(1), scale);
    for at in 0..puts {
        if at % 4096 == 0 && stopped() {
            return Err("it was interrupted".into());
        }
        model.put(source.next(at) as u32)?;
        if plan.keys == Keys::Queue {
            model.delete(at as u32)?;
        }
    }
    if matches!(plan.load, Load::Deletes(_)) {
        for key in (0..space).step_by(2) {
            model.delete((key * 7919 % space) as u32)?;
        }
    }
    let (busy, counts) = (model.used(), model.counts.clone());
    model.settle(true)?;
    model.check()?;
    Ok((model, busy, counts))
}

fn row_of(plan: &Plan, scale: u64, (model, busy, counts): (Model, u32, Counts)) -> Row {
    let zone = model.shape.zone;
    let zones = |used: u32| f64::from(used) * zone as f64;
    let seconds = counts.seconds(scale);
    let gb = |bytes: u64| (bytes * scale) as f64 / 1e9;
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(seconds),
        operations: Some(counts.operations * scale),
        bytes_user: Some(counts.user * scale),
        bytes_drive: Some(counts.written() * scale),
        bytes_read: Some(counts.read * scale),
        zone_resets: Some(counts.resets),
        space_efficiency: Some(model.live() as f64 / zones(model.used())),
        ..Row::new(plan.name.clone(), DRIVE)
    }
    .amplified();
    let figures = [
        ("WA of merges of slices", counts.sliced as f64 / counts.user.max(1) as f64),
        ("puts/s", (counts.operations * scale) as f64 / seconds.max(1e-9)),
        ("zones, peak", f64::from(counts.peak)),
        ("zones, at the end", f64::from(busy)),
        ("zones, at rest", f64::from(model.used())),
        ("live over zones, at the end", model.live() as f64 / zones(busy)),
        ("table bytes over zones, mean, %", counts.valid.0 / counts.valid.1.max(1) as f64),
        ("live over peak", model.live() as f64 / zones(counts.peak)),
        ("slices a key, mean", counts.looked.0 as f64 / counts.looked.1.max(1) as f64),
        ("slices a key, most", counts.slices as f64),
        ("largest merge, GB read and written", gb(counts.job)),
        ("log, memtables", counts.log as f64 / model.shape.sizes.memtable as f64),
        ("longest stall, s", counts.stall),
        ("partitions", model.parts() as f64),
    ];
    row.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    row
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("it is simulated, and always the same");
    run.setting("entry", "4,126 bytes on the drive; a tombstone 30");
    run.setting("memtable", "256 MiB; tables and steps of 64 MiB");
    run.setting("log", "kept in the survivor; where it is written, WA is larger by 1");
    let (scale, short) = (u64::from(run.options.scale), run.options.short);
    let plans = rows();
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    run.at_once(&names, A_ROW, |at, stopped| {
        let played = play(&plans[at], scale, short, stopped)?;
        Ok((row_of(&plans[at], scale, played), ()))
    })?;
    Ok(())
}
