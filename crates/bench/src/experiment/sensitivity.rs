//! What rests on assumptions: the commands of a row once more, on drives of which one assumed number is a half less or a half more.
//!
//! While a row runs, its drive records what it is asked and when. [`measure`] replays that in a closed loop ([`Recording`]) on the drive as
//! it is and on each of its [`variants`]; no program runs for it, so a row takes seconds. [`ratios`] says what that does to
//! every ratio between two rows, [`charts`] draws it.
//!
//! A replay asks for the same commands in the same order. What the engine would have done otherwise on another drive (larger memtables
//! while it waits, another compaction first) is not in it, and what the host thought between two commands stays as long as it was. How well
//! it does stands with each row: what the drive was busy for when it was recorded, and in the replay.

use super::chart::{Axis, Chart, Shape};
use super::hosts::Disk;
use super::result::{Outcome, Row};
use super::{Run, Stop};
use imbrex_emulator::time::{NAMES, Recording, TimeStats};
use imbrex_emulator::{Config, Op, Profile, TimedEntry, TraceEntry};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Commands that are recorded of a row, at most, 48 bytes each: a row at any scale has a quarter of it or less.
pub(super) const ENTRIES: u32 = 1 << 21;
/// The same of the short form.
pub(super) const SHORT_ENTRIES: u32 = 1 << 16;
/// A replay that lies further from what was measured says so.
const NEAR: f64 = 0.1;
/// Changes that a chart has room for.
const BARS: usize = 14;
/// A change that moves a ratio by a smaller part is in the table alone.
const SEEN: f64 = 0.002;
/// Charts of a report, at most; the table has all.
const CHARTS: usize = 4;

/// What the commands of a row would have taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// Commands that were replayed and counted.
    pub commands: u64,
    /// Commands before them that the record had no room for.
    pub forgotten: u64,
    /// Seconds that the drive was busy when they were recorded, and in the replay with nothing changed.
    pub measured: f64,
    /// See `measured`.
    pub busy: f64,
    /// Seconds of the replay from the first command to the last.
    pub elapsed: f64,
    /// With one number changed.
    pub changes: Vec<Change>,
}

/// One number changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub parameter: String,
    /// At a half less; `None` where that makes no drive.
    pub low: Option<Point>,
    /// At a half more.
    pub high: Option<Point>,
}

/// What the commands would have taken on one drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The number.
    pub value: String,
    /// Seconds that the drive would have been busy.
    pub busy: f64,
    /// Seconds from the first command to the last.
    pub elapsed: f64,
}

/// What a change does to a ratio.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Swing {
    /// Which number.
    pub parameter: String,
    /// The ratio with it a half less, on both drives where both assume it.
    pub low: Option<f64>,
    /// A half more.
    pub high: Option<f64>,
}

impl Swing {
    /// How far it takes the ratio.
    fn width(&self, middle: f64) -> f64 {
        [self.low, self.high].into_iter().flatten().map(|ratio| (ratio - middle).abs()).fold(0.0, f64::max)
    }
}

/// A drive with one number changed.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) parameter: String,
    /// The number as people read it, and the drive.
    pub(super) low: Option<(String, Profile)>,
    pub(super) high: Option<(String, Profile)>,
}

const BANDWIDTH: [&str; 2] = ["bandwidth_outer_mib_s", "bandwidth_average_mib_s"];
/// Parameters that count something.
const WHOLE: [&str; 5] = ["queue_depth", "readahead_segments", "destage_choice", "streams", "persistent_cache_extents"];
/// Of this drive it is published how long zone operations take (SMRSTORE, section 2.2), and how many zones are conventional.
const MEASURED_ZONES: &str = "seagate-st20000nm001j";

fn value(profile: &Profile, name: &str) -> Option<f64> {
    profile.parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.value)
}

/// The profile with these numbers; `None` where that makes no drive.
fn with(profile: &Profile, values: &[(&str, f64)]) -> Option<Profile> {
    let mut profile = profile.clone();
    for parameter in &mut profile.parameters {
        let Some((name, value)) = values.iter().find(|(name, _)| *name == parameter.name) else { continue };
        let (_, least, most) = NAMES.iter().find(|(known, ..)| known == name)?;
        let value = if WHOLE.contains(name) { value.round().max(1.0) } else { *value };
        parameter.value = value.clamp(*least, *most);
    }
    profile.time().ok()?.map(|_| profile)
}

fn halves(parameter: &str, of: impl Fn(f64) -> Option<(String, Profile)>) -> Variant {
    Variant { parameter: parameter.into(), low: of(0.5), high: of(1.5) }
}

/// Every number of the drive that nobody measured, at a half less and a half more. What is 0 for want of a figure gets that of the one
/// drive of which it is known.
pub(super) fn variants(profile: &Profile) -> Vec<Variant> {
    let assumed = |name: &str| profile.parameters.iter().any(|p| p.name == name && p.is_assumed());
    let mut variants = Vec::new();
    let text = |value: f64| super::report::number(value);
    for parameter in profile.parameters.iter().filter(|p| p.is_assumed() && p.value != 0.0) {
        let (name, now) = (parameter.name.as_str(), parameter.value);
        if name == BANDWIDTH[0] {
            // One without the other would make another kind of drive.
            let average = value(profile, BANDWIDTH[1]).unwrap_or(now);
            variants.push(halves("bandwidth, outer and average, MiB/s", |factor| {
                let changed = with(profile, &[(BANDWIDTH[0], now * factor), (BANDWIDTH[1], average * factor)])?;
                Some((format!("{} and {}", text(now * factor), text(average * factor)), changed))
            }));
        } else if name == BANDWIDTH[1] {
            // It lies between the outer one and half of it.
            let outer = value(profile, BANDWIDTH[0]).unwrap_or(now);
            variants.push(halves("bandwidth_average_mib_s, as far as it can be", |factor| {
                let average = (now * factor).clamp(outer * 0.51, outer);
                Some((text(average), with(profile, &[(name, average)])?))
            }));
        } else {
            variants.push(halves(name, |factor| {
                let changed = with(profile, &[(name, now * factor)])?;
                Some((text(value(&changed, name)?), changed))
            }));
        }
    }
    let zone_ops = ["zone_open_ms", "zone_close_ms", "zone_finish_ms", "zone_reset_ms"];
    if zone_ops.iter().any(|name| assumed(name) && value(profile, name) == Some(0.0))
        && let Some(known) = Profile::named(MEASURED_ZONES)
    {
        let values: Vec<(&str, f64)> = zone_ops.iter().filter_map(|name| Some((*name, value(&known, name)?))).collect();
        let list: Vec<String> = values.iter().map(|(_, ms)| text(*ms)).collect();
        let high = with(profile, &values).map(|changed| (format!("{} ms", list.join(", ")), changed));
        let parameter = format!("zone open, close, finish, reset: 0, or as {MEASURED_ZONES}'s");
        variants.push(Variant { parameter, low: None, high });
    }
    variants.extend(fields(profile));
    variants
}

/// What the profiles assume beside their parameters.
fn fields(profile: &Profile) -> Vec<Variant> {
    let block = u64::from(profile.block.max(1));
    let times = |whole: u64, factor: f64, unit: u64| ((whole as f64 * factor) as u64 / unit * unit).max(unit);
    let mut variants = vec![
        halves("write cache, MiB", |factor| {
            let write_cache_bytes = times(profile.write_cache_bytes, factor, block);
            let text = super::report::number(write_cache_bytes as f64 / 1_048_576.0);
            (profile.write_cache_bytes > 0).then(|| (text, Profile { write_cache_bytes, ..profile.clone() }))
        }),
        halves("largest command, KiB", |factor| {
            let max_io = u32::try_from(times(u64::from(profile.max_io), factor, block)).ok()?;
            Some(((max_io >> 10).to_string(), Profile { max_io, ..profile.clone() }))
        }),
    ];
    let whole = |n: u32, factor: f64| ((f64::from(n) * factor) as u32).max(1);
    if let Some(open) = profile.max_open {
        variants.push(halves("open zones", |factor| {
            let max_open = whole(open, factor);
            Some((max_open.to_string(), Profile { max_open: Some(max_open), ..profile.clone() }))
        }));
    }
    if !profile.kind.is_plain() && profile.conventional_zones > 0 && profile.name != MEASURED_ZONES {
        variants.push(halves("conventional zones", |factor| {
            let conventional_zones = whole(profile.conventional_zones, factor);
            Some((conventional_zones.to_string(), Profile { conventional_zones, ..profile.clone() }))
        }));
    }
    variants
}

/// What the host's limit cut is put together again and cut at another one. What follows directly on a command of the old length, and came
/// with its end, belongs to it.
fn cut_again(trace: &[TimedEntry], old: u64, new: u64) -> Vec<TimedEntry> {
    /// Seconds of the drive between one piece and the next, where one host writes both.
    const PAUSE: f64 = 1e-4;
    /// Nothing was longer than this.
    const MOST: u64 = 64;
    let mut order: Vec<&TimedEntry> = trace.iter().filter(|timed| timed.began.is_some()).collect();
    order.sort_by(|a, b| a.began.partial_cmp(&b.began).unwrap_or(std::cmp::Ordering::Equal));
    let mut runs: Vec<Vec<&TimedEntry>> = Vec::new();
    let mut ends: HashMap<(Op, u64), usize> = HashMap::new();
    for timed in order {
        let entry = &timed.entry;
        let place = |at| (entry.op, at);
        let before = ends.remove(&place(entry.offset)).and_then(|run| Some((run, *runs.get(run)?.last()?)));
        let run = before.filter(|(run, last)| {
            let soon = timed.began.zip(last.ended).is_some_and(|(began, ended)| began <= ended + PAUSE);
            u64::from(last.entry.len) == old && soon && runs[*run].len() < MOST as usize
        });
        let run = match run {
            Some((run, _)) => {
                runs[run].push(timed);
                run
            }
            None => {
                runs.push(vec![timed]);
                runs.len() - 1
            }
        };
        if matches!(entry.op, Op::Read | Op::Write) {
            ends.insert(place(entry.offset + u64::from(entry.len)), run);
        }
    }
    let mut out = Vec::with_capacity(trace.len());
    for run in runs {
        let Some(first) = run.first() else { continue };
        if !matches!(first.entry.op, Op::Read | Op::Write) {
            out.extend(run.into_iter().cloned());
            continue;
        }
        let end = run.last().map_or(0, |last| last.entry.offset + u64::from(last.entry.len));
        let holds = |at: u64| {
            run.iter().find(|piece| at < piece.entry.offset + u64::from(piece.entry.len)).or(run.last()).copied()
        };
        let mut at = first.entry.offset;
        while at < end {
            let len = (end - at).min(new.max(1));
            let (Some(head), Some(tail)) = (holds(at), holds(at + len - 1)) else { break };
            let entry = TraceEntry { offset: at, len: len as u32, ..head.entry.clone() };
            out.push(TimedEntry { entry, began: head.began, ended: tail.ended });
            at += len;
        }
    }
    out
}

/// The same zones, sequential ones behind another number of conventional ones.
fn moved(trace: &[TimedEntry], old: &Config, new: &Config) -> Vec<TimedEntry> {
    let (before, after) = (u64::from(old.conventional), u64::from(new.conventional).max(1));
    let place = |offset: u64| {
        let (zone, within) = (offset / old.zone_size.max(1), offset % old.zone_size.max(1));
        let zone = if zone < before { zone % after } else { zone - before + after };
        zone * new.zone_size + within
    };
    let change = |timed: &TimedEntry| {
        let entry = TraceEntry { offset: place(timed.entry.offset), ..timed.entry.clone() };
        TimedEntry { entry, ..timed.clone() }
    };
    trace.iter().map(change).collect()
}

/// What was recorded of a row.
pub(super) struct Recorded<'a> {
    disk: &'a Disk,
    /// Up to the row's end.
    trace: &'a [TimedEntry],
    /// Commands before this are of what came before the row: they are replayed, so that head, cache and translation are where they were,
    /// and not counted.
    from: u64,
}

impl<'a> Recorded<'a> {
    /// A row of these commands, of all that its drive recorded.
    pub(super) fn new(disk: &'a Disk, trace: &'a [TimedEntry], row: Range<u64>) -> Recorded<'a> {
        let end = trace.partition_point(|timed| timed.entry.sequence < row.end);
        Recorded { disk, trace: trace.get(..end).unwrap_or(trace), from: row.start }
    }

    fn recording(&self, disk: &Disk, trace: &[TimedEntry]) -> Recording {
        Recording::new(trace).preconditioned(disk.preconditioned.map(|extents| extents as usize))
    }

    fn on(&self, disk: &Disk, scale: u32, usual: (&Config, &Recording)) -> Result<TimeStats, String> {
        let (was, recording) = usual;
        let config = disk.config(scale)?;
        let other = if config.max_io != was.max_io {
            Some(cut_again(self.trace, u64::from(was.max_io), u64::from(config.max_io)))
        } else if config.conventional != was.conventional {
            Some(moved(self.trace, was, &config))
        } else {
            None
        };
        match other {
            Some(trace) => self.recording(disk, &trace).replay(&config, self.from),
            None => recording.replay(&config, self.from),
        }
    }
}

/// Replays what was recorded of a row on its drive, which was busy for `measured` seconds, and on all variants of that.
pub(super) fn measure(run: &Run, recorded: &Recorded, measured: f64) -> Result<Replayed, Stop> {
    let (disk, scale) = (recorded.disk, run.options.scale);
    let config = disk.config(scale)?;
    let recording = recorded.recording(disk, recorded.trace);
    let usual = recording.replay(&config, recorded.from)?;
    let first = recorded.trace.first().map_or(0, |timed| timed.entry.sequence);
    let mut replayed = Replayed {
        commands: recording.commands(recorded.from) as u64,
        forgotten: first,
        measured,
        busy: usual.total.busy(),
        elapsed: usual.elapsed,
        changes: Vec::new(),
    };
    replayed.changes = each(run, variants(&disk.profile), |profile| {
        let other = Disk { profile: profile.clone(), ..disk.clone() };
        let stats = recorded.on(&other, scale, (&config, &recording))?;
        Ok((stats.total.busy(), stats.elapsed))
    })?;
    Ok(replayed)
}

/// What `took` says of every variant, as many at once as there are processors.
pub(super) fn each(
    run: &Run,
    variants: Vec<Variant>,
    took: impl Fn(&Profile) -> Result<(f64, f64), String> + Sync,
) -> Result<Vec<Change>, Stop> {
    let jobs: Vec<(usize, bool, &(String, Profile))> = variants
        .iter()
        .enumerate()
        .flat_map(|(i, variant)| [(i, false, &variant.low), (i, true, &variant.high)])
        .filter_map(|(i, high, side)| Some((i, high, side.as_ref()?)))
        .collect();
    let changes: Vec<Change> =
        variants.iter().map(|variant| Change { parameter: variant.parameter.clone(), ..Change::default() }).collect();
    let (changes, next, failed) = (Mutex::new(changes), AtomicUsize::new(0), Mutex::new(None));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(4);
    let work = || {
        while let Some((i, high, (value, profile))) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if run.stopped() {
                return;
            }
            match took(profile) {
                Ok((busy, elapsed)) => {
                    let point = Some(Point { value: value.clone(), busy, elapsed });
                    if let Ok(mut changes) = changes.lock()
                        && let Some(change) = changes.get_mut(*i)
                    {
                        if *high { change.high = point } else { change.low = point }
                    }
                }
                Err(why) => {
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Some(why);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    if run.stopped() {
        return Err(Stop::Interrupted);
    }
    match failed.into_inner() {
        Ok(None) => Ok(changes.into_inner().unwrap_or_default()),
        Ok(Some(why)) => Err(Stop::Failed(why)),
        Err(_) => Err("a replay ended early".into()),
    }
}

/// Flags a row whose replay is not near what was measured.
pub(super) fn judge(row: &mut Row) {
    let Some(replayed) = &row.replayed else { return };
    if replayed.forgotten > 0 {
        row.flags.push(format!(
            "its first {} commands were not recorded any more; what assumptions are worth is told of the others",
            replayed.forgotten
        ));
    } else if replayed.measured > 0.0 && (replayed.busy / replayed.measured - 1.0).abs() > NEAR {
        row.flags.push(format!(
            "replayed with nothing changed, its drive is busy for {:.1} s, {:+.0} % of what was measured: what assumptions are worth is told \
             as roughly",
            replayed.busy,
            (replayed.busy / replayed.measured - 1.0) * 100.0
        ));
    }
}

/// What a change of `parameter` does to the time of a row, as a factor.
fn factor(replayed: &Replayed, parameter: &str, high: bool) -> Option<f64> {
    let change = replayed.changes.iter().find(|change| change.parameter == parameter)?;
    let point = if high { &change.high } else { &change.low }.as_ref()?;
    (replayed.elapsed > 0.0).then(|| point.elapsed / replayed.elapsed)
}

/// Fills in what changes do to every ratio between two rows that were replayed: a number that both drives assume is changed on both.
pub(super) fn ratios(outcome: &mut Outcome) {
    let rows = &outcome.rows;
    for ratio in &mut outcome.ratios {
        let Some([slow, fast]) = &ratio.between else { continue };
        let replayed = |name: &String| rows.iter().find(|row| row.name == *name)?.replayed.as_ref();
        let (Some(slow), Some(fast)) = (replayed(slow), replayed(fast)) else { continue };
        let mut names: Vec<&String> =
            fast.changes.iter().chain(&slow.changes).map(|change| &change.parameter).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        let side = |name: &str, high: bool| match (factor(slow, name, high), factor(fast, name, high)) {
            (None, None) => None,
            (slow, fast) => Some(ratio.median * slow.unwrap_or(1.0) / fast.unwrap_or(1.0)),
        };
        let swing = |name: &String| Swing { parameter: name.clone(), low: side(name, false), high: side(name, true) };
        let mut swings: Vec<Swing> = names.into_iter().map(swing).collect();
        swings.sort_by(|a, b| b.width(ratio.median).total_cmp(&a.width(ratio.median)));
        ratio.swings = swings;
    }
}

/// Draws what changes do to ratios, those of which there is a goal or a published figure first.
pub(super) fn charts(outcome: &mut Outcome) {
    let mut ratios: Vec<_> = outcome.ratios.iter().filter(|ratio| !ratio.swings.is_empty()).collect();
    ratios.sort_by_key(|ratio| (ratio.goal.is_none(), ratio.paper.is_none()));
    let chart = |(i, ratio): (usize, &&super::result::Ratio)| Chart {
        file: format!("sensitivity-{}", i + 1),
        title: format!("What it rests on: {}", ratio.name),
        x: Axis::default(),
        y: Axis::even("ratio, with an assumption a half less (orange) or a half more (blue)"),
        shape: Shape::Tornado {
            middle: ratio.median,
            bars: ratio
                .swings
                .iter()
                .take(BARS)
                .filter(|swing| swing.width(ratio.median) > ratio.median.abs() * SEEN)
                .map(|s| (s.parameter.clone(), s.low, s.high))
                .collect(),
        },
    };
    let charts: Vec<Chart> = ratios.iter().take(CHARTS).enumerate().map(chart).collect();
    outcome.charts.extend(charts);
}

#[cfg(test)]
mod tests {
    use super::super::Rule;
    use super::super::result::Ratio;
    use super::*;

    fn entry(sequence: u64, op: Op, offset: u64, len: u32, began: f64, ended: f64) -> TimedEntry {
        let entry = TraceEntry { sequence, op, cause: "table", priority: "normal", zone: 0, offset, len, result: "ok" };
        TimedEntry { entry, began: Some(began), ended: Some(ended) }
    }

    #[test]
    fn every_assumed_number_of_every_drive_is_varied_and_makes_a_drive() {
        for profile in Profile::all().into_iter().filter(|profile| !profile.parameters.is_empty()) {
            let variants = variants(&profile);
            for parameter in profile.parameters.iter().filter(|p| p.is_assumed()) {
                let covers = |v: &Variant| {
                    v.parameter.starts_with(&parameter.name)
                        || parameter.name.starts_with("bandwidth") && v.parameter.starts_with("bandwidth")
                        || parameter.name.starts_with("zone_") && v.parameter.starts_with("zone open")
                };
                assert!(variants.iter().any(covers), "{} {}", profile.name, parameter.name);
            }
            for variant in &variants {
                assert!(variant.high.is_some(), "{} {}", profile.name, variant.parameter);
                let sides = [&variant.low, &variant.high];
                for (text, changed) in sides.into_iter().flatten() {
                    assert_ne!(*changed, profile, "{} {} {text}", profile.name, variant.parameter);
                    let disk =
                        Disk { profile: changed.clone(), rule: Rule::All, write_cache: true, preconditioned: None };
                    disk.config(64).unwrap();
                }
            }
        }
        let hgst = variants(&Profile::named("hgst-hsh721414al").unwrap());
        let zones = hgst.iter().find(|variant| variant.parameter.starts_with("zone open")).unwrap();
        assert!(zones.low.is_none() && zones.high.as_ref().unwrap().0.starts_with("20.00, 24.00"), "{zones:?}");
        assert!(hgst.iter().any(|variant| variant.parameter == "conventional zones"));
        // What was measured stays.
        assert!(!hgst.iter().any(|variant| variant.parameter.starts_with("bandwidth")));
    }

    #[test]
    fn commands_are_cut_at_another_length() {
        let kib = 1 << 10;
        // A write of 40 KiB in pieces of 16, one of another place between them, and one that came long after.
        let trace = [
            entry(0, Op::Write, 0, 16 << 10, 0.0, 0.001),
            entry(1, Op::Read, 900 * kib, 4096, 0.0, 0.0011),
            entry(2, Op::Write, 16 * kib, 16 << 10, 0.001, 0.002),
            entry(3, Op::Write, 32 * kib, 8 << 10, 0.002, 0.003),
            entry(4, Op::Write, 40 * kib, 16 << 10, 0.9, 0.91),
            entry(5, Op::Flush, 0, 0, 1.0, 1.1),
        ];
        let of = |new: u64| -> Vec<(u64, u64)> {
            let writes = cut_again(&trace, 16 * kib, new * kib);
            assert!(writes.iter().any(|t| t.entry.op == Op::Flush) && writes.iter().any(|t| t.entry.op == Op::Read));
            let writes = writes.into_iter().filter(|t| t.entry.op == Op::Write);
            writes.map(|t| (t.entry.offset / kib, u64::from(t.entry.len) / kib)).collect()
        };
        assert_eq!(of(24), [(0, 24), (24, 16), (40, 16)]);
        assert_eq!(of(8), [(0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8)]);
        let pieces = cut_again(&trace, 16 * kib, 24 * kib);
        let first = pieces.iter().find(|t| t.entry.op == Op::Write).unwrap();
        assert_eq!((first.began, first.ended), (Some(0.0), Some(0.002)));
    }

    #[test]
    fn sequential_zones_follow_the_conventional_ones() {
        let disk = Disk::named("hgst-hsh721414al", Rule::All).unwrap();
        let was = disk.config(64).unwrap();
        let fewer = Config { conventional: 262, ..was.clone() };
        let zone = was.zone_size;
        let trace =
            [entry(0, Op::Write, 300 * zone + 5, 4096, 0.0, 1.0), entry(1, Op::Write, 524 * zone + 7, 4096, 0.0, 1.0)];
        let moved: Vec<u64> = moved(&trace, &was, &fewer).iter().map(|t| t.entry.offset).collect();
        assert_eq!(moved, [38 * zone + 5, 262 * zone + 7]);
    }

    #[test]
    fn of_a_part_what_was_before_is_replayed_and_not_counted() {
        let disk = Disk::named("hitachi-hua72303", Rule::Fewer).unwrap();
        // Filled with 199 MiB, which are flushed, read at random, read in order: one command after another, 5 ms each.
        let write = |i: u64| (Op::Write, i << 20, 1 << 20);
        let random = |i: u64| (Op::Read, (i * 7919 % 20_000) << 20, 16 << 10);
        let order = |i: u64| (Op::Read, (30_000 << 20) + (i << 16), 64 << 10);
        let flush = std::iter::once((Op::Flush, 0, 0));
        let all = (0..199).map(write).chain(flush).chain((0..100).map(random)).chain((0..100).map(order));
        let of = |(i, (op, at, len)): (usize, (Op, u64, u32))| {
            entry(i as u64, op, at, len, i as f64 * 0.005, (i as f64 + 0.9) * 0.005)
        };
        let trace: Vec<TimedEntry> = all.enumerate().map(of).collect();
        let time = |from: u64, until: u64, disk: &Disk| {
            let recorded = Recorded::new(disk, &trace, from..until);
            let recording = recorded.recording(disk, recorded.trace);
            let config = disk.config(64).unwrap();
            let time = recorded.on(disk, 64, (&config, &recording)).unwrap();
            let commands = time.latency.values().map(|latency| latency.commands).sum::<u64>();
            assert_eq!((commands, recording.commands(from)), (until.min(400) - from, (until.min(400) - from) as usize));
            time
        };
        let [filling, reading, scanning, whole] =
            [(0, 200), (200, 300), (300, u64::MAX), (0, u64::MAX)].map(|(from, until)| time(from, until, &disk));
        let sum = filling.total.busy() + reading.total.busy() + scanning.total.busy();
        assert!((sum / whole.total.busy() - 1.0).abs() < 0.05, "{sum} {whole:?}");
        assert!(reading.total.busy() > 10.0 * scanning.total.busy(), "{reading:?} {scanning:?}");
        assert!(reading.elapsed < 0.8 * whole.elapsed && scanning.elapsed < reading.elapsed, "{reading:?} {whole:?}");
        // Where the head is when a part begins is what came before: the first of these is no seek from the edge.
        let (here, there) = (time(350, 351, &disk), Recorded::new(&disk, &trace[350..], 350..351));
        let alone = there.recording(&disk, there.trace).replay(&disk.config(64).unwrap(), 350).unwrap();
        assert!(here.total.seek < alone.total.seek, "{here:?} {alone:?}");
        // What a slower drive makes of the part alone.
        let slow = |name: &str| {
            let now = value(&disk.profile, name).unwrap();
            Disk { profile: with(&disk.profile, &[(name, now * 0.5)]).unwrap(), ..disk.clone() }
        };
        let turns = slow("rotation_rpm");
        assert!(time(200, 300, &turns).total.rotation > 1.6 * reading.total.rotation);
    }

    #[test]
    fn a_ratio_swings_with_both_of_its_rows() {
        let row = |name: &str, elapsed: f64, low: Option<f64>, high: f64| {
            let point = |elapsed| Point { value: "v".into(), busy: elapsed, elapsed };
            let change =
                |parameter: &str| Change { parameter: parameter.into(), low: low.map(point), high: Some(point(high)) };
            let changes = vec![change("seek"), change(name)];
            let replayed = Replayed { elapsed, measured: elapsed, busy: elapsed * 1.2, changes, ..Replayed::default() };
            Row { replayed: Some(replayed), ..Row::new(name, "d") }
        };
        let mut outcome = Outcome {
            rows: vec![row("slow", 20.0, Some(10.0), 30.0), row("fast", 10.0, None, 10.0)],
            ratios: vec![Ratio::of("r", &[2.0]).unwrap().between("slow", "fast"), Ratio::of("other", &[1.0]).unwrap()],
            ..Outcome::default()
        };
        ratios(&mut outcome);
        let swings = &outcome.ratios[0].swings;
        assert_eq!(swings.len(), 3);
        let of = |name: &str| swings.iter().find(|swing| swing.parameter == name).map(|s| (s.low, s.high)).unwrap();
        assert_eq!(of("seek"), (Some(1.0), Some(3.0)));
        assert_eq!((of("slow"), of("fast")), ((Some(1.0), Some(3.0)), (None, Some(2.0))));
        // What swings most is first.
        assert_eq!(swings.last().unwrap().parameter, "fast");
        assert!(outcome.ratios[1].swings.is_empty());
        charts(&mut outcome);
        assert!(outcome.charts.len() == 1 && outcome.charts[0].svg().unwrap().contains("seek"));
        judge(&mut outcome.rows[0]);
        assert!(outcome.rows[0].flags[0].contains("+20 %"), "{:?}", outcome.rows[0].flags);
    }
}
