//! `chunk-lifetime`: what it is worth to choose victims, and what moved chunks stand beside, by the remaining lifetime that the store estimates:
//! where all chunks die alike, where those of a stream do not, and where streams do not. What counts is what cleaning writes; so zones,
//! chunks and appends are smaller than on the drive, and there are more zones.

use super::chart::{Axis, Chart, Shape};
use super::chunk_multistream::{A_STORE, row_of, setting};
use super::chunk_write::DRIVE;
use super::object_workload::{CLIENTS, Play, play};
use super::oss::{ALIKE, Class, MIB, Source, shrunk, table3};
use super::result::Ratio;
use super::{Experiment, Needs, Rule, Run, Stop};
use crate::ablation::place::{Pick, Placement};
use imbrex_chunkstore::{CleaningPolicy, Options};
use imbrex_emulator::Profile;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-lifetime",
    about: "What cleaning writes when victims are chosen by greed, by cost and benefit, or by estimated lifetime: chunks that die alike and such that do not, 80 to 95 % full",
    paper: "none: of this project; SepBIT (FAST 2022) and MDC (ICDE 2021) are what it rests on",
    speed: 1.0,
    rows: |_| cells().iter().map(name).collect(),
    extra: |options| cells().iter().filter(|cell| !options.short && extra(cell)).map(name).collect(),
    needs: |_| Needs { work: 0, memory: 1 << 30 },
    run,
};

/// Zones are a sixteenth as large.
const PART: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    Alike,
    Skewed,
    ByStream,
}

impl Lives {
    const ALL: [Lives; 3] = [Lives::Alike, Lives::Skewed, Lives::ByStream];

    fn name(self) -> &'static str {
        match self {
            Lives::Alike => "all die alike",
            Lives::Skewed => "skewed in each stream",
            Lives::ByStream => "by stream",
        }
    }

    /// Table 3 with more short chunks than the paper has, so that there is something to clean: half of the bytes of each kind.
    fn sources(self) -> Vec<Source> {
        // Of ten chunks nine die ten times as fast as the tenth: most of what is live has long outlived the others.
        const SKEWED: &[Class] = &[Class { part: 0.9, weight: 10.0 }, Class { part: 0.1, weight: 1.0 }];
        // Table 1: less than 90, 7 and 60 days.
        const GC: &[Class] = &[Class { part: 1.0, weight: 1.0 / 90.0 }];
        const DATA: &[Class] = &[Class { part: 1.0, weight: 1.0 / 7.0 }];
        const META: &[Class] = &[Class { part: 1.0, weight: 1.0 / 60.0 }];
        let mut all = table3();
        for (source, lives) in all.iter_mut().zip([GC, GC, DATA, META]) {
            source.classes = match self {
                Lives::Alike => ALIKE,
                Lives::Skewed => SKEWED,
                Lives::ByStream => lives,
            };
            source.open = source.open.min(4);
            (source.rate, source.most) = match source.name {
                "OSS GC Wr 1" => (20e6, None),
                "OSS GC Wr 2" => (20e6, Some(24 * MIB)),
                "OSS Data Wr" => (20e6, Some(24 * MIB)),
                _ => (7e6, Some(8 * MIB)),
            };
        }
        shrunk(all, PART)
    }
}

type Cell = (Lives, u32, (&'static str, Placement, CleaningPolicy));

const WAYS: [(&str, Placement, CleaningPolicy); 5] = [
    ("paper's placement, greedy", Placement::STREAMS, CleaningPolicy::Greedy),
    ("paper's placement, lifetime", Placement::STREAMS, CleaningPolicy::Lifetime),
    ("greedy", FIT, CleaningPolicy::Greedy),
    ("cost-benefit", FIT, CleaningPolicy::CostBenefit),
    ("lifetime", FIT, CleaningPolicy::Lifetime),
];

const FIT: Placement = Placement { pick: Pick::Fit, ..Placement::STREAMS };

fn cells() -> Vec<Cell> {
    let percents = [80, 90, 95];
    let of = |lives| percents.into_iter().flat_map(move |percent| WAYS.map(|way| (lives, percent, way)));
    Lives::ALL.into_iter().flat_map(of).collect()
}

fn name((lives, percent, way): &Cell) -> String {
    format!("{}, {}, {percent} % full", way.0, lives.name())
}

/// Whether only the full form has it: what is claimed is about greed and lifetimes on the same placement.
fn extra((_, percent, way): &Cell) -> bool {
    *percent > 90 || !["greedy", "lifetime"].contains(&way.0)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    setting(run, &profile);
    let (zones, settle, over) = if run.options.short { (16, 0.1, 0.2) } else { (160, 3.0, 3.0) };
    run.setting("zones that count as capacity", format!("{zones} of {} MiB", profile.zone_size / PART / MIB));
    // Chunks that live long gather while others are deleted; before, they are as rare as they are written.
    run.setting("capacities written over before it is measured", settle);
    run.setting("capacities written over", over);
    for source in Lives::Alike.sources() {
        let size = source.most.map_or("as large as a zone takes".into(), |most| format!("{} KiB", most >> 10));
        run.setting(source.name, format!("{} parts of 67, {} chunks open, {size}", source.rate / 1e6, source.open));
    }
    run.setting("skewed", "nine of ten chunks die ten times as fast as the tenth");
    run.setting("by stream", "as Table 1: GC 90, data 7, metadata 60 days");
    let names: Vec<String> = cells().iter().map(name).collect();
    run.at_once(&names, A_STORE, |i, stopped| {
        let (lives, percent, (_, placement, cleaning_policy)) = cells()[i];
        let load = Play {
            sources: lives.sources(),
            zones,
            zone_size: profile.zone_size / PART,
            filled: f64::from(percent) / 100.0,
            settle,
            overwrite: over,
            paced: false,
            cache: true,
            clients: CLIENTS,
            most: 20.0,
            seed: 1,
        };
        let options = Options { cleaning_policy, ..placement.options() };
        let played = play(&profile, &load, options, stopped)?;
        let mut row = row_of(&profile, &played);
        row.rule = Rule::All.name().into();
        // Zone operations and turns take what they take on the drive, and zones are smaller: rates mean nothing.
        row.figures
            .retain(|figure, _| !figure.contains("MB/s") && !figure.contains("ms ") && !figure.contains("seconds"));
        (row.device_seconds, row.wall_seconds, row.drive_utilisation) = (None, None, None);
        row.seconds.clear();
        Ok((row, ()))
    })?;
    for lives in Lives::ALL {
        for percent in [80, 90, 95] {
            let wa = |run: &Run, way: usize| {
                run.measured(&name(&(lives, percent, WAYS[way])))?.figures.get("WA of cleaning").copied()
            };
            for (under, other) in WAYS.iter().enumerate().take(4) {
                let (Some(ours), Some(theirs)) = (wa(run, 4), wa(run, under)) else { continue };
                let ratio = format!("{}, {percent} % full: written with {} over with lifetime", lives.name(), other.0);
                run.outcome.ratios.extend(Ratio::of(ratio, &[theirs / ours]));
            }
        }
        let bar = |cell: &Cell| {
            let value = *run.measured(&name(cell))?.figures.get("WA of cleaning")?;
            Some((format!("{} %, {}", cell.1, cell.2.0), value, None))
        };
        let bars: Vec<_> = cells().iter().filter(|cell| cell.0 == lives).filter_map(bar).collect();
        if !bars.is_empty() {
            run.outcome.charts.push(Chart {
                file: format!("cleaning-{}", lives.name().replace(' ', "-")),
                title: format!("WA of cleaning: {}", lives.name()),
                x: Axis::default(),
                y: Axis::even("WA of cleaning"),
                shape: Shape::Bars(bars),
            });
        }
    }
    Ok(())
}
