//! `chunk-multistream`: SMRSTORE's macro benchmark (Table 3, Figures 17 and 18) at one drive's share, on the
//! [virtual clock](super::virtual_clock): four streams fill the drive, then sealed chunks die at random. [`super::object_workload`] says what is scaled.

use super::chart::{Axis, Chart, Series, Shape};
use super::chunk_write::{COMMITS, DRIVE, LONG, at_part};
use super::kernel_chunks::Kernel;
use super::kernel_chunks::streams::{self, Cleaned};
use super::object_workload::{CLIENTS, Phase, Play, Played, play};
use super::oss::{Source, in_flight, shrunk, table3};
use super::result::{Figure, Ratio, Row};
use super::{Experiment, Needs, Options as RunOptions, Rule, Run, Stop};
use crate::ablation::place::Placement;
use imbrex_chunkstore::{CleaningPolicy, Options};
use imbrex_emulator::Profile;
use std::collections::BTreeMap;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-multistream",
    about: "Four streams of an object store fill a drive to 80, 90 or 95 %, then sealed chunks are deleted at random until two capacities are written over",
    paper: "SMRSTORE, sections 3.2 and 6.2, Table 3, Figures 17 and 18",
    speed: 1.0,
    rows: |_| cells().iter().map(Cell::name).collect(),
    extra,
    needs: |options| {
        let mut needs = Needs { work: 0, memory: 2 << 30 };
        for cell in cells().iter().filter(|cell| options.wants(&cell.name(), &extra(options))) {
            let kernel = cell.engine.kernel().map(|kernel| streams::needs(options, kernel)).unwrap_or_default();
            needs = Needs { work: needs.work.max(kernel.work), memory: needs.memory.max(kernel.memory) };
        }
        needs
    },
    run,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Engine {
    Ours,
    /// With as many appends under way as the paper has for each drive.
    Share,
    /// The same as the first on a drive that takes commands of 4 MiB.
    Long,
    OneZone,
    Ext4,
    F2fs,
    Xfs,
}

impl Engine {
    const ALL: [Engine; 7] =
        [Engine::Ours, Engine::Share, Engine::Long, Engine::OneZone, Engine::Ext4, Engine::F2fs, Engine::Xfs];

    fn name(self) -> &'static str {
        match self {
            Engine::Ours => "this store",
            Engine::Share => "this store, 10 under way as in Table 3",
            Engine::Long => "this store, commands of 4 MiB",
            Engine::OneZone => "one zone",
            Engine::Ext4 => "ext4 on CMR",
            Engine::F2fs => "F2FS",
            Engine::Xfs => "Zoned XFS",
        }
    }

    /// Appends under way.
    fn clients(self) -> usize {
        if self == Engine::Share { in_flight() } else { CLIENTS }
    }

    /// The file system, where it is one of the kernel's.
    fn kernel(self) -> Option<Kernel> {
        match self {
            Engine::Ext4 => Some(Kernel::Ext4),
            Engine::F2fs => Some(Kernel::F2fs),
            Engine::Xfs => Some(Kernel::Xfs),
            Engine::Ours | Engine::Share | Engine::Long | Engine::OneZone => None,
        }
    }
}

/// Throughput over time; how full closed zones are, where there are any; and what F2FS says of its cleaner.
type Lines = (Series, Option<Series>, Vec<Cleaned>);

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    percent: u32,
    paced: bool,
    cache: bool,
    engine: Engine,
}

impl Cell {
    fn name(&self) -> String {
        format!("{}, {}", self.engine.name(), self.load())
    }

    /// Whether only the full form has it: goals are about this store as fast as it goes, comparisons about 80 %, and files of the kernel
    /// run by the world's clock.
    fn extra(&self) -> bool {
        match self.engine {
            Engine::Ours => self.percent > 90 || self.percent > 80 && self.paced,
            Engine::Share => self.percent > 80,
            Engine::OneZone => self.percent > 80 || self.paced,
            Engine::Ext4 => self.percent > 80 || self.paced || self.cache,
            Engine::Long => self.percent > 80,
            // Minutes of an emulated processor.
            Engine::F2fs | Engine::Xfs => true,
        }
    }

    fn load(&self) -> String {
        let rate = if self.paced { "the paper's rate" } else { "as fast as it goes" };
        format!("{} % full, {rate}, write cache {}", self.percent, if self.cache { "on" } else { "off" })
    }
}

fn extra(options: &RunOptions) -> Vec<String> {
    // Each row on a file system of the kernel sets a drive up. So the short form has a few, and none in the VM.
    let left_out = |cell: &&Cell| {
        if options.short {
            matches!(cell.engine, Engine::F2fs | Engine::Xfs) || cell.engine.kernel().is_some() && cell.percent > 80
        } else {
            cell.extra()
        }
    };
    cells().iter().filter(left_out).map(Cell::name).collect()
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for percent in [80, 90, 95] {
        for paced in [true, false] {
            for cache in [false, true] {
                // The paper has the write cache off.
                let there = |engine: &Engine| match engine {
                    Engine::Share => !cache && percent <= 90,
                    Engine::Long => !cache,
                    _ => true,
                };
                let engines = Engine::ALL.into_iter().filter(there);
                cells.extend(engines.map(|engine| Cell { percent, paced, cache, engine }));
            }
        }
    }
    cells
}

const UNDER_WAY: &str = "appends under way";
/// Figures of a row: the second phase as a part of the first.
const PART: &str = "deleting over clean";
const EQUALISED: &str = "the same, were its bytes transferred as fast";

/// Bytes of memory of a row: the drive's, packed, and the store's.
pub(super) const A_STORE: u64 = 700 << 20;

/// Zones that count as capacity: of 73,708 at full size.
pub(super) fn zones(options: &RunOptions) -> u32 {
    if options.short { 24 } else { (6144 / options.scale.max(1)).clamp(96, 12_288) }
}

/// Bytes of a zone: as on the drive, but where only the plumbing is tried.
pub(super) fn zone_size(options: &RunOptions, profile: &Profile) -> u64 {
    if options.short { 16 << 20 } else { profile.zone_size }
}

/// Table 3, for zones of that size.
pub(super) fn sources(options: &RunOptions) -> Vec<Source> {
    if options.short { shrunk(table3(), 16) } else { table3() }
}

/// What is written over, in capacities: the two; next to nothing where only the plumbing is tried.
pub(super) fn overwrite(options: &RunOptions) -> f64 {
    if options.short { 0.2 } else { 2.0 }
}

pub(super) fn row_of(profile: &Profile, played: &Played) -> Row {
    let Played { clean, deleting, .. } = played;
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Fewer.name().into();
    let sum = |of: fn(&Phase) -> f64| of(clean) + of(deleting);
    let count = |of: fn(&Phase) -> u64| of(clean) + of(deleting);
    let (busy, seconds) = (sum(|p| p.busy), sum(|p| p.seconds));
    (row.device_seconds, row.wall_seconds) = (Some(busy), Some(seconds));
    row.operations = Some(count(|p| p.appends));
    row.bytes_user = Some(count(|p| p.user));
    row.bytes_drive = Some(count(|p| p.data + p.meta));
    row.bytes_read = Some(count(|p| p.read));
    row.flushes = Some(count(|p| p.flushes));
    row.zone_resets = Some(count(|p| p.resets));
    row.drive_utilisation = (seconds > 0.0).then(|| (busy / seconds).min(1.0));
    for (i, name) in ["seek", "rotation", "transfer", "zone ops"].into_iter().enumerate() {
        row.seconds.insert(name.into(), clean.kinds[i] + deleting.kinds[i]);
    }
    let full = played.utilisation.iter().filter(|part| **part > 0.98).count() as f64;
    let figures = [
        ("MB/s, clean", clean.rate()),
        ("MB/s, deleting", deleting.rate()),
        (PART, deleting.rate() / clean.rate().max(1e-9)),
        (EQUALISED, clean.seconds / clean.user.max(1) as f64 * deleting.user as f64 / as_fast(played).max(1e-9)),
        ("WA of cleaning", deleting.cleaning()),
        ("capacities written over", deleting.user as f64 / played.capacity.max(1) as f64),
        ("chunks deleted a second", played.deleted as f64 / deleting.seconds.max(1e-9)),
        ("ms an append, clean, 99 %", at_part(&clean.took, 0.99)),
        ("ms an append, deleting, median", at_part(&deleting.took, 0.5)),
        ("ms an append, deleting, 99 %", at_part(&deleting.took, 0.99)),
        ("journal and checkpoints over data", deleting.meta as f64 / deleting.data.max(1) as f64),
        ("closed zones that are full of live data, %", 100.0 * full / played.utilisation.len().max(1) as f64),
        ("zones of the store's drive", f64::from(played.drive_zones)),
    ];
    row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    if deleting.commits > 0 {
        let commits = [
            ("turns a commit, clean", clean.turns as f64 / clean.commits.max(1) as f64),
            ("turns a commit, deleting", deleting.turns as f64 / deleting.commits as f64),
            ("MiB a commit, deleting", deleting.user as f64 / 1048576.0 / deleting.commits as f64),
        ];
        row.figures.extend(commits.map(|(name, value)| (name.to_owned(), value)));
    }
    for (name, phase) in [("clean", clean), ("deleting", deleting)] {
        let gib = phase.user.max(1) as f64 / GIB;
        row.figures.insert(format!("open zones, {name}"), phase.open.1 as f64 / phase.open.0.max(1) as f64);
        row.figures.insert(format!("seeks a GiB, {name}"), phase.seeks as f64 / gib);
        row.figures.insert(format!("ms a seek, {name}"), phase.kinds[0] * 1e3 / phase.seeks.max(1) as f64);
    }
    for (i, name) in ["seek", "rotation", "transfer", "zone ops"].into_iter().enumerate() {
        row.figures.insert(format!("seconds a GiB, clean: {name}"), clean.kinds[i] * GIB / clean.user.max(1) as f64);
        row.figures
            .insert(format!("seconds a GiB, deleting: {name}"), deleting.kinds[i] * GIB / deleting.user.max(1) as f64);
    }
    if let Some(at) = played.stopped_at {
        let why = if played.no_space {
            "the store found no space, nor anything to clean"
        } else {
            "cleaning writes too much for the rest"
        };
        row.flags.push(format!("stopped after {at:.2} capacities: {why}"));
    }
    row.amplified()
}

/// Seconds of the second phase, were its bytes transferred as fast as those of the first: where zones lie and come to lie is the drive's
/// doing, which is less than half as fast at its inner edge.
fn as_fast(played: &Played) -> f64 {
    let Played { clean, deleting, .. } = played;
    let moved = |phase: &Phase| (phase.data + phase.meta + phase.read) as f64;
    deleting.seconds - deleting.kinds[2] + clean.kinds[2] / moved(clean).max(1.0) * moved(deleting)
}

const GIB: f64 = (1u64 << 30) as f64;

/// Throughput over time, in as many steps as a chart has room for.
pub(super) fn over_time(name: &str, answered: &[(f64, u64)]) -> Series {
    const STEPS: f64 = 80.0;
    let end = answered.last().map_or(0.0, |point| point.0).max(1e-9);
    let mut steps = vec![0u64; STEPS as usize];
    for (at, bytes) in answered {
        let last = steps.len() - 1;
        steps[((at / end * STEPS) as usize).min(last)] += bytes;
    }
    let width = end / STEPS;
    let point = |(i, bytes): (usize, &u64)| ((i as f64 + 0.5) * width / 60.0, *bytes as f64 / 1e6 / width);
    Series { name: name.into(), points: steps.iter().enumerate().map(point).collect() }
}

/// The part of closed zones that is as full of live data or less.
pub(super) fn cdf(name: &str, utilisation: &[f64]) -> Series {
    let n = utilisation.len().max(1) as f64;
    let mut points = vec![(0.0, 0.0)];
    for (i, part) in utilisation.iter().enumerate() {
        points.push((100.0 * part, i as f64 / n));
        points.push((100.0 * part, (i + 1) as f64 / n));
    }
    Series { name: name.into(), points }
}

pub(super) fn setting(run: &mut Run, profile: &Profile) {
    let zones = zones(run.options);
    run.model(profile);
    run.once("logical clients on a virtual clock: every run is the same");
    run.setting(
        "zones that count as capacity",
        format!("{zones} of {} MiB, evenly over the whole stroke", zone_size(run.options, profile) >> 20),
    );
    run.setting("capacities written over", overwrite(run.options));
    run.setting("appends under way, where the row says nothing else", CLIENTS);
    run.setting("group commit", COMMITS);
    for source in sources(run.options) {
        let size = source.most.map_or("as large as a zone takes".into(), |most| format!("{} MiB", most >> 20));
        let pieces = (source.pieces.0 >> 10, source.pieces.1 >> 10);
        run.setting(
            source.name,
            format!(
                "{:.2} MB/s, {} chunks open, {size}, {} to {} KiB an append",
                source.rate / 1e6,
                source.open,
                pieces.0,
                pieces.1
            ),
        );
    }
}

fn measure(run: &RunOptions, profile: &Profile, cell: Cell, stopped: &dyn Fn() -> bool) -> Result<Played, Stop> {
    let options = match cell.engine {
        Engine::Ours | Engine::Share | Engine::Long => Options::default(),
        Engine::OneZone => Options { cleaning_policy: CleaningPolicy::Greedy, ..Placement::ONE_ZONE.options() },
        Engine::Ext4 | Engine::F2fs | Engine::Xfs => {
            return Err(Stop::Failed("a file system of the kernel has no virtual clock".into()));
        }
    };
    let load = Play {
        sources: sources(run),
        zones: zones(run),
        zone_size: zone_size(run, profile),
        filled: f64::from(cell.percent) / 100.0,
        settle: 0.0,
        overwrite: overwrite(run),
        paced: cell.paced,
        cache: cell.cache,
        clients: cell.engine.clients(),
        most: 8.0,
        seed: 1,
    };
    let max_io = if cell.engine == Engine::Long { LONG } else { profile.max_io };
    play(&Profile { max_io, ..profile.clone() }, &load, options, stopped)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    setting(run, &profile);
    let (kernels, ours): (Vec<Cell>, Vec<Cell>) = cells().into_iter().partition(|cell| cell.engine.kernel().is_some());
    let names: Vec<String> = ours.iter().map(Cell::name).collect();
    let options = run.options;
    let all = run.at_once(&names, A_STORE, |i, stopped| {
        let cell = ours[i];
        let one = measure(options, &profile, cell, stopped)?;
        let name = cell.engine.name();
        let mut row = row_of(&profile, &one);
        row.figures.insert(UNDER_WAY.into(), cell.engine.clients() as f64);
        if cell.percent == 80 && cell.paced {
            row.paper = Some(Figure::new(4000.0 / 60.0, "MB/s, clean", "SMRSTORE, Figure 17, a drive's share"));
        }
        Ok((row, (over_time(name, &one.over_time), Some(cdf(name, &one.utilisation)), Vec::new())))
    })?;
    let mut played: BTreeMap<Cell, Lines> =
        ours.into_iter().zip(all).filter_map(|(cell, lines)| Some((cell, lines?))).collect();
    // By the world's clock or in a VM, so alone.
    for (cell, kernel) in kernels.into_iter().filter_map(|cell| Some((cell, cell.engine.kernel()?))) {
        run.row(&cell.name(), |run| {
            let (filled, paced, cache) = (f64::from(cell.percent) / 100.0, cell.paced, cell.cache);
            let (mut row, answered) = streams::play(run, &profile, kernel, streams::Asked { filled, paced, cache })?;
            row.figures.insert(UNDER_WAY.into(), cell.engine.clients() as f64);
            if kernel == Kernel::F2fs && cell.percent == 80 {
                row.paper = Some(Figure::new(0.385, "deleting over clean: 61.5 % are lost", "SMRSTORE, section 1"));
            }
            played.insert(cell, (over_time(cell.engine.name(), &answered.bytes), None, answered.cleaned));
            Ok(row)
        })?;
    }
    ratios(run);
    charts(run, &played);
    Ok(())
}

fn figure(run: &Run, cell: Cell, name: &str) -> Option<f64> {
    run.measured(&cell.name())?.figures.get(name).copied()
}

fn ratios(run: &mut Run) {
    for percent in [80, 90, 95] {
        for (paced, cache) in [(false, false), (false, true), (true, false), (true, true)] {
            let of = |engine| Cell { percent, paced, cache, engine };
            for engine in [Engine::Ours, Engine::Share, Engine::Long, Engine::OneZone] {
                let cell = of(engine);
                // As fast as it goes the clean phase has the outer tracks, so the part that is possible is 0.9: what is wanted is one of equal transfers. At the paper's rate the drive
                // has time left.
                let ours = matches!(engine, Engine::Ours | Engine::Long);
                let goal = (ours && paced && percent <= 90).then_some(1.0);
                let equalised = (ours && !paced && percent == 80).then_some(0.85);
                for (what, behind, goal) in
                    [(PART, "", goal), (EQUALISED, ", were its bytes transferred as fast", equalised)]
                {
                    let Some(ratio) = figure(run, cell, what) else { continue };
                    let name = format!("{}: MB/s while deleting over clean{behind}", cell.name());
                    run.outcome.ratios.extend(Ratio::of(name, &[ratio]).map(|ratio| Ratio { goal, ..ratio }));
                }
            }
            for under in [Engine::OneZone, Engine::Ext4, Engine::F2fs, Engine::Xfs] {
                let rate = |engine| figure(run, of(engine), "MB/s, deleting");
                let (Some(ours), Some(theirs)) = (rate(Engine::Ours), rate(under)) else { continue };
                let name = format!("{}: MB/s while deleting over those of {}", of(Engine::Ours).name(), under.name());
                run.outcome.ratios.extend(Ratio::of(name, &[ours / theirs]));
            }
        }
    }
}

/// As SMRSTORE's Figure 7: what waits to be cleaned, and how often the cleaner ran.
fn cleaner_charts(run: &mut Run, kind: &str, cell: &Cell, cleaned: &[Cleaned]) {
    type Count = fn(&Cleaned) -> u64;
    let what: [(&str, &str, Count); 2] = [
        ("dirty", "dirty segments", |one| one.dirty_segments),
        ("calls", "calls of the cleaner since the mount", |one| one.calls),
    ];
    for (file, label, of) in what {
        let points = cleaned.iter().map(|one| (one.at / 60.0, of(one) as f64)).collect();
        run.outcome.charts.push(Chart {
            file: format!("cleaner-{file}-{kind}"),
            title: format!("Four streams, then deletes at random: {}, {label}", cell.name()),
            x: Axis::even("minutes of the drive's clock"),
            y: Axis::even(label),
            shape: Shape::Lines(vec![Series { name: cell.engine.name().into(), points }]),
        });
    }
}

fn charts(run: &mut Run, played: &BTreeMap<Cell, Lines>) {
    for percent in [80, 90, 95] {
        for (paced, cache) in [(true, false), (true, true), (false, false), (false, true)] {
            let same = |cell: &Cell| (cell.percent, cell.paced, cell.cache) == (percent, paced, cache);
            let of: Vec<_> = played.iter().filter(|(cell, _)| same(cell)).collect();
            let Some((first, _)) = of.first() else { continue };
            let kind = format!(
                "{percent}-{}-cache-{}",
                if paced { "paced" } else { "closed" },
                if cache { "on" } else { "off" }
            );
            run.outcome.charts.push(Chart {
                file: format!("throughput-{kind}"),
                title: format!("Four streams, then deletes at random: {}", first.load()),
                x: Axis::even("minutes of the drive's clock"),
                y: Axis::even("MB/s"),
                shape: Shape::Lines(of.iter().map(|(_, (line, ..))| line.clone()).collect()),
            });
            for (cell, (.., cleaned)) in of.iter().filter(|(_, (.., cleaned))| !cleaned.is_empty()) {
                cleaner_charts(run, &kind, cell, cleaned);
            }
            let full: Vec<Series> = of.iter().filter_map(|(_, (_, line, _))| line.clone()).collect();
            if full.is_empty() {
                continue;
            }
            run.outcome.charts.push(Chart {
                file: format!("utilisation-{kind}"),
                title: format!("Live part of closed zones at the end: {}", first.load()),
                x: Axis::even("live, %"),
                y: Axis::even("part of the zones"),
                shape: Shape::Lines(full),
            });
        }
    }
}
