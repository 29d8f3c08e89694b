//! `kv-simulated`: what the compaction policies of `kv` write, and what they leave of the space, on keys without values. The functions that
//! run are those of the store; the worker is a model, and so is the drive: 180 MB/s, 9 ms a move of the head, 22 ms a reset.

use super::chart::{Axis, Chart, Series, Shape as ChartShape};
use super::kv_keys::{Keys, Source};
use super::result::{Ratio, Row};
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_kv::policy::model::{Counts, Model, Shape};
use imbrex_kv::policy::{Active, Band, Cleaning, Gear, Leveled, Policy, Ring, Sizes, Victim};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-simulated",
    about: "What the compaction policies of kv write, how long the drive takes, and what they leave of the space, simulated",
    paper: "GearDB (FAST 2019), Figures 3 to 5, 11 and 14 to 17; SMRDB (SYSTOR 2015), section 5",
    speed: 1.0,
    rows: |_| rows().into_iter().map(|plan| plan.name).collect(),
    extra: |options| rows().into_iter().filter(|plan| !options.short && plan.extra).map(|plan| plan.name).collect(),
    needs: |_| Needs { work: 0, memory: 1 << 30 },
    run,
};

/// The drive, as each row prints it.
const DRIVE: &str = "model: 180 MB/s, 9 ms a move of the head, 22 ms a reset, zones of 256 MiB";

/// Bytes of the log that the model's drive writes in a second.
const LOG: f64 = 180e6;

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
    /// Of memtable, tables and steps, at full size.
    sizes: Sizes,
    /// Tables are placed as in a log, whose zones are cleaned.
    cleaning: Option<Cleaning>,
    keys: Keys,
    load: Load,
    extra: bool,
}

const MIB: u64 = 1 << 20;
/// Memtable and tables of GearDB's paper. Its tables of 4 MB are merged one by one; a step here may write several.
const PAPER: Sizes = Sizes { memtable: 4 * MIB, table: 4 * MIB, step: 64 * MIB };
const MILLION: u64 = 1_000_000;
/// Zones are cleaned when so many percent of them are in use. GearDB's paper says 80; its own times are those of 90 in an earlier simulation.
const USUAL: u32 = 90;
/// Parts of a load after which it is looked at.
const LOOKS: u64 = 20;
/// Seconds of a merge that is long.
const LONG: f64 = 60.0;

fn ring(sizes: Sizes) -> Box<dyn Policy> {
    Box::new(Ring::new(sizes))
}

fn dialled(sizes: Sizes) -> Box<dyn Policy> {
    Box::new(Ring { bottom: 90, ..Ring::new(sizes) })
}

/// LevelDB's levels at the paper's sizes: the first has 10 MB.
fn small(sizes: Sizes) -> Leveled {
    Leveled { base: sizes.memtable / 4 * 10, ..Leveled::new(sizes) }
}

/// Random loads with the sizes of GearDB's paper.
fn papers() -> Vec<Plan> {
    let plan = |name: &str, zones, policy: fn(Sizes) -> Box<dyn Policy>, cleaning| Plan {
        name: format!("random load of 80 GB: {name}, tables and memtable of 4 MB"),
        zones,
        policy,
        sizes: PAPER,
        cleaning,
        keys: Keys::Uniform,
        load: Load::Empty(20 * MILLION),
        // A choice looks at all tables, of which there are sixteen times as many.
        extra: true,
    };
    let low = 280 - 280 * USUAL / 100;
    let cleaned = |name: &str, victim| {
        let name = format!("leveled on a log, {name} cleaning, 280 zones");
        plan(&name, 280, |sizes| Box::new(small(sizes)), Some(Cleaning { victim, low }))
    };
    vec![
        cleaned("greedy", Victim::Greedy),
        cleaned("cost-benefit", Victim::CostBenefit),
        // Nothing bounds its peak: in 600 zones it finds no space before the end.
        plan("gear", 2400, |sizes| Box::new(Gear { levels: small(sizes), ..Gear::new(sizes) }), None),
        plan(
            "gear as in the code",
            2400,
            |sizes| Box::new(Gear { levels: small(sizes), active: Active::Code, ..Gear::new(sizes) }),
            None,
        ),
        plan("ring", 280, |sizes| Box::new(Ring::new(sizes)), None),
    ]
}

fn rows() -> Vec<Plan> {
    let load = |name: &str, zones, policy: fn(Sizes) -> Box<dyn Policy>, extra| Plan {
        name: format!("random load of 80 GB: {name}"),
        zones,
        policy,
        sizes: Sizes::DISK,
        cleaning: None,
        keys: Keys::Uniform,
        load: Load::Empty(20 * MILLION),
        extra,
    };
    // LevelDB's policy where GearDB's paper has it. Cleaning begins when so many percent of the zones are in use.
    let cleaned = |victim, zones: u32, percent: u32, extra| {
        let name = match victim {
            Victim::Greedy => "greedy",
            Victim::CostBenefit => "cost-benefit",
        };
        let name = match percent {
            USUAL => format!("leveled on a log, {name} cleaning, {zones} zones"),
            _ => format!("leveled on a log, {name} cleaning, {zones} zones, from {percent} % in use on"),
        };
        let low = zones - zones * percent / 100;
        let base = load(&name, zones, |sizes| Box::new(Leveled::new(sizes)), extra);
        Plan { cleaning: Some(Cleaning { victim, low }), ..base }
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
        load("ring, 600 zones", 600, ring, false),
    ];
    for victim in [Victim::Greedy, Victim::CostBenefit] {
        all.extend([280, 600].map(|zones| cleaned(victim, zones, USUAL, false)));
    }
    all.extend([99, 80, 70, 60, 50].map(|percent| cleaned(Victim::Greedy, 440, percent, false)));
    all.push(cleaned(Victim::Greedy, 440, USUAL, false));
    all.extend(papers());
    for percent in [50, 70, 85, 92] {
        for (keys, name) in Keys::ALL {
            let puts = if keys == Keys::Queue { percent.min(85) } else { percent };
            all.push(Plan {
                name: format!("ring, 280 zones {puts} % full, {name}, overwritten"),
                zones: 280,
                policy: ring,
                sizes: Sizes::DISK,
                cleaning: None,
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
        sizes: Sizes::DISK,
        cleaning: None,
        keys: Keys::Uniform,
        load,
        extra,
    };
    all.extend([
        Plan {
            name: "ring, 280 zones 92 % full, half is deleted".into(),
            zones: 280,
            policy: ring,
            sizes: Sizes::DISK,
            cleaning: None,
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

/// What a load was like after a part of it.
struct Look {
    puts: u64,
    counts: Counts,
    /// Bytes of tables, over all zones.
    valid: f64,
    /// How full each zone in use is, in percent, ascending.
    fills: Vec<f64>,
}

/// What came of a row.
struct Played {
    model: Model,
    /// Zones in use, and counts, before the rest.
    busy: u32,
    counts: Counts,
    looks: Vec<Look>,
}

/// Carries a row out.
fn play(plan: &Plan, scale: u64, short: bool, stopped: &dyn Fn() -> bool) -> Result<Played, String> {
    let shape = Shape { sizes: plan.sizes.divided(scale), ..Shape::divided(plan.zones, scale) };
    let policy = (plan.policy)(shape.sizes);
    let mut model = match plan.cleaning {
        Some(cleaning) => Model::cleaned(policy, shape, cleaning),
        None => Model::new(policy, shape),
    };
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
    let mut looks = Vec::new();
    for at in 0..puts {
        if at % 4096 == 0 && stopped() {
            return Err("it was interrupted".into());
        }
        model.put(source.next(at) as u32).map_err(|why| format!("after {at} of {puts} puts: {why}"))?;
        if (at + 1) % (puts / LOOKS).max(1) == 0 && percent == 0 {
            let all = (u64::from(plan.zones) * shape.zone) as f64;
            let valid = model.valid() as f64 / all;
            looks.push(Look { puts: at + 1, counts: model.counts.clone(), valid, fills: model.fills() });
        }
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
    Ok(Played { model, busy, counts, looks })
}

/// The mean of some percentages, and the part of them that is at least `from` and below `to`, in percent.
fn spread(fills: &[f64], from: f64, to: f64) -> (f64, f64) {
    let count = fills.len().max(1) as f64;
    let within = fills.iter().filter(|fill| (from..to).contains(*fill)).count();
    (fills.iter().sum::<f64>() / count, within as f64 * 100.0 / count)
}

/// How long merges took, one by one: of all that ended so many percent took no longer.
fn merges(row: &mut Row, each: &[f64]) {
    let mut sorted = each.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(0.0);
    row.figures.extend([10, 50, 90, 99].map(|percent| (format!("a merge, s, p{percent}"), at(percent))));
    let long = sorted.iter().filter(|seconds| **seconds > LONG).sum::<f64>();
    let part = long * 100.0 / sorted.iter().sum::<f64>().max(1e-9) + 0.0;
    row.figures.insert(format!("part of the time in merges of more than {LONG} s, %"), part);
}

/// What a load was like after each quarter.
fn quarters(row: &mut Row, looks: &[Look], scale: u64) {
    let mut before = (0.0, 0.0);
    for (at, look) in looks.iter().enumerate().filter(|(at, _)| (*at as u64 + 1).is_multiple_of(LOOKS / 4)) {
        let (seconds, cleaning) = (look.counts.seconds(scale), look.counts.cleaning);
        let (mean, between) = spread(&look.fills, 45.0, 80.0);
        let gb = (at as u64 + 1) * 80 / LOOKS;
        let part = (cleaning - before.1) / (seconds - before.0).max(1e-9) * 100.0;
        before = (seconds, cleaning);
        row.figures.extend(
            [
                ("WA", look.counts.amplification()),
                ("table bytes over all zones, %", look.valid * 100.0),
                ("zones in use", look.fills.len() as f64),
                ("a zone in use is full, mean, %", mean),
                ("zones that are 45 to 80 % full, %", between),
                ("part of the quarter in cleaning, %", part),
            ]
            .map(|(name, value)| (format!("after {gb} GB: {name}"), value)),
        );
    }
}

fn row_of(plan: &Plan, scale: u64, played: &Played) -> Row {
    let Played { model, busy, counts, looks } = played;
    let (busy, zone) = (*busy, model.shape.zone);
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
        ("merges", counts.jobs as f64),
        ("s in merges", counts.merging.0),
        ("a merge, s, mean", counts.merging.0 / counts.jobs.max(1) as f64),
        ("a merge, s, longest", counts.merging.1),
        ("s in cleaning", counts.cleaning),
        ("GB that cleaning moved", gb(counts.cleaned)),
        ("partitions", model.parts() as f64),
    ];
    row.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    let sizes = [("memtable", plan.sizes.memtable), ("tables", plan.sizes.table), ("steps", plan.sizes.step)];
    row.settings.extend(sizes.map(|(name, bytes)| (name.to_owned(), format!("{} MiB at full size", bytes / MIB))));
    merges(&mut row, &counts.each);
    quarters(&mut row, looks, scale);
    row
}

/// Rows that charts have; all are more than there are colours.
const CHARTED: [&str; 6] = [
    "ring",
    "gear",
    "gear as in the code",
    "leveled",
    "leveled on a log, greedy cleaning, 280 zones",
    "leveled on a log, cost-benefit cleaning, 280 zones",
];

type Points = Vec<(f64, f64)>;
/// What draws a line for each row that charts have.
type Lines<'a> = &'a dyn Fn(&dyn Fn(&[Look]) -> Points) -> Vec<Series>;

/// A chart of lines over even axes.
fn chart(file: &str, title: &str, (x, y): (&str, &str), lines: Vec<Series>) -> Chart {
    Chart {
        file: file.into(),
        title: title.into(),
        x: Axis::even(x),
        y: Axis::even(y),
        shape: ChartShape::Lines(lines),
    }
}

/// Each merge, as in GearDB's figure 15: in the order in which they ended, and by how long they took.
fn merge_charts(lines: Lines) -> [Chart; 2] {
    let each = |looks: &[Look]| looks.last().map_or_else(Vec::new, |look| look.counts.each.clone());
    let ended =
        lines(&|looks| each(looks).into_iter().enumerate().map(|(n, seconds)| ((n + 1) as f64, seconds)).collect());
    let sorted = lines(&|looks| {
        let mut all = each(looks);
        // A logarithm has no place for what took no time.
        all.retain(|seconds| *seconds > 0.0);
        all.sort_by(f64::total_cmp);
        let count = all.len().max(1) as f64;
        all.into_iter().enumerate().map(|(n, seconds)| ((n + 1) as f64 * 100.0 / count, seconds)).collect()
    });
    let title = "Seconds of each merge, one after the other";
    let one =
        Chart { shape: ChartShape::Points(ended), ..chart("merges", title, ("merges that ended", "s"), Vec::new()) };
    let two = chart("merges-sorted", "The same, the shortest first", ("% of merges", "s"), sorted);
    [one, Chart { y: Axis::log("s"), ..two }]
}

/// Charts like GearDB's figures 3, 4, 11 and 15 to 17.
fn charts(names: &[String], all: &[Option<Vec<Look>>], scale: u64) -> Vec<Chart> {
    let lines = |of: &dyn Fn(&[Look]) -> Points| {
        let line = |(name, looks): (&String, &Option<Vec<Look>>)| {
            let name = name.strip_prefix("random load of 80 GB: ").filter(|name| CHARTED.contains(name))?;
            Some(Series { name: name.to_owned(), points: of(looks.as_ref()?) })
        };
        names.iter().zip(all).filter_map(line).collect::<Vec<_>>()
    };
    let over = |of: fn(&Look) -> f64| lines(&|looks| looks.iter().map(|look| (look.puts as f64, of(look))).collect());
    // Between one look and the next.
    let between = |of: &dyn Fn(&Counts, &Counts, f64) -> f64| {
        lines(&|looks| {
            let first = Counts::default();
            let before = std::iter::once(&first).chain(looks.iter().map(|look| &look.counts));
            let one = |(before, look): (&Counts, &Look)| {
                let seconds = look.counts.seconds(scale) - before.seconds(scale);
                (look.puts as f64, of(before, &look.counts, seconds.max(1e-9)))
            };
            before.zip(looks).map(one).collect()
        })
    };
    let fills = |after: u64| {
        lines(&|looks| {
            let fills = looks.get(after as usize - 1).map_or(&[][..], |look| &look.fills);
            let one = |(n, fill): (usize, &f64)| (*fill, (n + 1) as f64 * 100.0 / fills.len() as f64);
            fills.iter().enumerate().map(one).collect()
        })
    };
    let part = |before: &Counts, now: &Counts, seconds: f64| (now.cleaning - before.cleaning) * 100.0 / seconds;
    let rate =
        |before: &Counts, now: &Counts, seconds: f64| ((now.operations - before.operations) * scale) as f64 / seconds;
    let mut all = vec![
        chart("cleaning", "Time in cleaning", ("puts", "%"), between(&part)),
        chart("valid", "Bytes of tables over all zones", ("puts", "%"), over(|look| look.valid * 100.0)),
        chart("rate", "Random load of 80 GB", ("puts", "puts/s"), between(&rate)),
        chart(
            "wa",
            "Write amplification as the load goes on",
            ("puts", "WA"),
            over(|look| look.counts.amplification()),
        ),
    ];
    all.extend(merge_charts(&lines));
    all.extend((1..=4).flat_map(|quarter| {
        let (gb, fills) = (quarter * 20, fills(LOOKS / 4 * quarter));
        let by_zone = fills.iter().map(|series| Series {
            name: series.name.clone(),
            points: series.points.iter().enumerate().map(|(n, (full, _))| ((n + 1) as f64, *full)).collect(),
        });
        let by_zone = by_zone.collect();
        let title = format!("Zones in use after {gb} GB, the emptiest first, and how full each is");
        let part = format!("Zones in use that are full so far at most, after {gb} GB");
        [
            chart(&format!("zones-{gb}-each"), &title, ("zones", "% full"), by_zone),
            chart(&format!("zones-{gb}"), &part, ("% full", "% of zones"), fills),
        ]
    }));
    all
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("it is simulated, and always the same");
    run.setting("entry", "4,126 bytes on the drive; a tombstone 30");
    run.setting("log", "kept in the survivor; where it is written, WA is larger by 1");
    let (scale, short) = (u64::from(run.options.scale), run.options.short);
    let plans = rows();
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    let looks = run.at_once(&names, A_ROW, |at, stopped| {
        let played = play(&plans[at], scale, short, stopped)?;
        Ok((row_of(&plans[at], scale, &played), played.looks))
    })?;
    run.outcome.charts = charts(&names, &looks, scale);
    ratios(run);
    Ok(())
}

/// Others' seconds over ring's, with a log in both.
fn ratios(run: &mut Run) {
    let seconds = |name: &str| {
        let row = run.measured(&format!("random load of 80 GB: {name}"))?;
        Some(row.device_seconds? + row.bytes_user? as f64 / LOG)
    };
    let small = |name: &str| format!("{name}, tables and memtable of 4 MB");
    let greedy = "leveled on a log, greedy cleaning, 280 zones";
    let mut all = Vec::new();
    for (theirs, goal) in [(greedy.to_owned(), 2.3), (small(greedy), 6.0), (small("gear"), 3.0)] {
        let same = if theirs == greedy { None } else { Some((small("ring"), None)) };
        for (ours, goal) in [Some(("ring".to_owned(), Some(goal))), same].into_iter().flatten() {
            if let (Some(a), Some(b)) = (seconds(&theirs), seconds(&ours)) {
                let ratio = Ratio::of(format!("{ours} against {theirs}, with a log that is written"), &[a / b]);
                all.extend(ratio.map(|ratio| Ratio { goal, ..ratio }));
            }
        }
    }
    run.outcome.ratios = all;
}
