//! `chunk-placement`: what each of SMRSTORE's strategies of placement is worth alone and together (section 6.3, Figures 19 and 20), with the two
//! imitations, and what this store does in place of the third. The load is that of [`super::chunk_multistream`], as fast as it goes.

use super::chart::{Axis, Chart, Series, Shape};
use super::chunk_multistream::{A_STORE, cdf, over_time, row_of, setting, sources, zone_size, zones};
use super::chunk_write::DRIVE;
use super::object_workload::{CLIENTS, Play, play};
use super::result::{Ratio, Row};
use super::{Experiment, Needs, Run, Stop};
use crate::ablation::place::{Pick, Placement};
use imbrex_chunkstore::{CleaningPolicy, Options};
use imbrex_emulator::Profile;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-placement",
    about: "Each strategy of placing chunks alone and together: four streams at 80 % full, sealed chunks deleted at random until a capacity is written over",
    paper: "SMRSTORE, sections 5.4 and 6.3, Figures 19 and 20",
    speed: 1.0,
    rows: |_| ROWS.iter().map(name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 2 << 30 },
    run,
};

/// What it is called, how chunks are placed, and how victims are chosen.
type Way = (&'static str, Placement, CleaningPolicy);

const fn of(separate: bool, match_limit: bool, pick: Pick) -> Placement {
    Placement { separate, match_limit, pick, round: false }
}

const ROUND: Placement = Placement { round: true, ..of(true, true, Pick::Fit) };

const ROWS: [Way; 11] = [
    ("no strategy: 64 MiB, at random", Placement::RANDOM, CleaningPolicy::Greedy),
    ("one zone", Placement::ONE_ZONE, CleaningPolicy::Greedy),
    ("1: streams apart", of(true, false, Pick::Random), CleaningPolicy::Greedy),
    ("2: limit matched to the zone", of(false, true, Pick::Random), CleaningPolicy::Greedy),
    ("3: round robin", of(false, false, Pick::RoundRobin), CleaningPolicy::Greedy),
    ("1 and 2", of(true, true, Pick::Random), CleaningPolicy::Greedy),
    ("1 and 3", of(true, false, Pick::RoundRobin), CleaningPolicy::Greedy),
    ("1, 2 and 3: the paper's", Placement::STREAMS, CleaningPolicy::Greedy),
    ("1, 2 and room for what chunks become", of(true, true, Pick::Fit), CleaningPolicy::Greedy),
    ("the same, zones round the drive", ROUND, CleaningPolicy::Greedy),
    ("this store: the same, victims by lifetime", ROUND, CleaningPolicy::Lifetime),
];

fn name(way: &Way) -> String {
    format!("{}, write cache off", way.0)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    setting(run, &profile);
    let over = if run.options.short { 0.2 } else { 1.0 };
    run.setting("capacities written over", over);
    run.setting("full before chunks are deleted, %", 80);
    let load = Play {
        sources: sources(run.options),
        zones: zones(run.options),
        zone_size: zone_size(run.options, &profile),
        filled: 0.8,
        settle: 0.0,
        overwrite: over,
        paced: false,
        cache: false,
        clients: CLIENTS,
        most: 5.0,
        seed: 1,
    };
    let lines = run.at_once(&ROWS.each_ref().map(name), A_STORE, |i, stopped| {
        let (way, placement, cleaning_policy) = ROWS[i];
        let played = play(&profile, &load, Options { cleaning_policy, ..placement.options() }, stopped)?;
        Ok((row_of(&profile, &played), (over_time(way, &played.over_time), cdf(way, &played.utilisation))))
    })?;
    let (rates, cdfs): (Vec<Series>, Vec<Series>) = lines.into_iter().flatten().unzip();
    let bars = |run: &Run, figure: &str| -> Vec<(String, f64, Option<f64>)> {
        let value = |way: &Way| Some((way.0.to_owned(), *run.measured(&name(way))?.figures.get(figure)?, None));
        ROWS.iter().filter_map(value).collect()
    };
    let rate = |row: &Row| row.figures.get("MB/s, deleting").copied();
    for way in ROWS.iter().skip(1) {
        let pairs = run.pairs(&name(way), &name(&ROWS[0]), rate);
        let ratio = Ratio::of(format!("{}: MB/s while deleting over those without a strategy", way.0), &pairs);
        run.outcome.ratios.extend(ratio);
    }
    for (file, figure) in [("rate", "MB/s, deleting"), ("cleaning", "WA of cleaning")] {
        let bars = bars(run, figure);
        if !bars.is_empty() {
            let title = format!("{figure}, by placement (80 % full, write cache off)");
            run.outcome.charts.push(Chart {
                file: file.into(),
                title,
                x: Axis::default(),
                y: Axis::even(figure),
                shape: Shape::Bars(bars),
            });
        }
    }
    if !rates.is_empty() {
        let (rate, live) = ("Throughput, by placement", "Live part of closed zones at the end, by placement");
        run.outcome.charts.push(Chart {
            file: "throughput".into(),
            title: rate.into(),
            x: Axis::even("minutes of the drive's clock"),
            y: Axis::even("MB/s"),
            shape: Shape::Lines(rates),
        });
        run.outcome.charts.push(Chart {
            file: "utilisation".into(),
            title: live.into(),
            x: Axis::even("live, %"),
            y: Axis::even("part of the zones"),
            shape: Shape::Lines(cdfs),
        });
    }
    Ok(())
}
