//! `log-placement`: what a synchronous append of one block takes, by where the log stands. In one sequential zone the next block's place has just gone by, so
//! each append waits for a turn of the platters. The model alone, with real mechanics.
//!
//! Two ways below a turn, neither of which bluefs has yet: several zones in turn, and places ahead of the head in conventional zones (Chiueh, Huang:
//! Track-based disk logging, DSN 2002).

use super::chart::{Axis, Chart, Series, Shape};
use super::result::{Ratio, Row};
use super::sample::timed;
use super::sensitivity::{self, Replayed};
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_emulator::time::{Replay, TimeStats, replay};
use imbrex_emulator::{Op, Profile, TraceEntry};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "log-placement",
    about: "What a synchronous append takes: a log in one zone, in several in turn, or ahead of the head in conventional zones",
    paper: "BlueFS, section 4, writes a log to one sequential zone; the paper has no figure of another place but conventional zones",
    speed: 1.0,
    rows: |_| places().map(Place::name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 256 << 20 },
    run,
};

const KIB: u64 = 1 << 10;
const DRIVE: &str = "hgst-hsh721414al";
const BLOCK: u64 = 4 * KIB;
const ZONES: [u64; 5] = [1, 2, 3, 4, 8];
/// How much further on the next append goes, in conventional zones. The host may take as long as these bytes take to pass below the head.
const SKIPS: [u64; 7] = [4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB];
/// Bytes by which each zone is written further than the one before, to be tried: all angles, since a track has 2 MB at most.
const STAGGER: u64 = 16 * KIB;
const STAGGERS: u64 = 128;
/// Of conventional zones: written in a circle.
const RING: u64 = 64 << 20;

/// Where the blocks of a log stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// So many sequential zones in turn; staggered: so that they come round one after the other.
    Zones { zones: u64, staggered: bool },
    /// Each so many bytes behind the one before, in conventional zones.
    Ahead { skip: u64 },
}

fn places() -> impl Iterator<Item = Place> {
    let zones = ZONES.into_iter().flat_map(|zones| {
        let plain = Place::Zones { zones, staggered: false };
        std::iter::once(plain).chain((zones > 1).then_some(Place::Zones { zones, staggered: true }))
    });
    zones.chain(SKIPS.map(|skip| Place::Ahead { skip }))
}

impl Place {
    fn name(self) -> String {
        match self {
            Place::Zones { zones: 1, .. } => "one zone".into(),
            Place::Zones { zones, staggered: false } => format!("{zones} zones in turn"),
            Place::Zones { zones, staggered: true } => format!("{zones} zones in turn, staggered"),
            Place::Ahead { skip } => format!("conventional zones, each {} KiB further on", skip / KIB),
        }
    }

    /// So many appends, each with a flush, and the commands before them, which bring each zone `stagger` bytes further than the one before.
    fn trace(self, profile: &Profile, appends: u64, stagger: u64) -> (usize, Vec<TraceEntry>) {
        let mut trace = Vec::new();
        let mut ask = |op, offset: u64, len: u64| {
            let (sequence, zone) = (trace.len() as u64, (offset / profile.zone_size) as u32);
            trace.push(TraceEntry {
                sequence,
                op,
                cause: "wal",
                priority: "normal",
                zone,
                offset,
                len: len as u32,
                result: "ok",
            });
        };
        let mut before = 0;
        match self {
            Place::Zones { zones, .. } => {
                let mut ends: Vec<u64> =
                    (0..zones).map(|zone| (u64::from(profile.conventional_zones) + zone) * profile.zone_size).collect();
                for (zone, end) in ends.iter_mut().enumerate() {
                    let mut left = zone as u64 * stagger;
                    while left > 0 {
                        let piece = left.min(profile.max_io.into());
                        ask(Op::Write, *end, piece);
                        before += 1;
                        *end += piece;
                        left -= piece;
                    }
                }
                for append in 0..appends {
                    let end = &mut ends[(append % zones) as usize];
                    ask(Op::Write, *end, BLOCK);
                    ask(Op::Flush, 0, 0);
                    *end += BLOCK;
                }
            }
            Place::Ahead { skip } => {
                for append in 0..appends {
                    ask(Op::Write, append * skip % RING, BLOCK);
                    ask(Op::Flush, 0, 0);
                }
            }
        }
        (before, trace)
    }

    /// What the appends take, and how long the drive was busy with them, both in seconds.
    fn played(self, profile: &Profile, appends: u64, stagger: u64) -> Result<(TimeStats, f64), String> {
        let (before, trace) = self.trace(profile, appends, stagger);
        let how = Replay { depth: 1, write_cache: true };
        let first = replay(profile, &trace[..before], how)?.elapsed;
        let all = replay(profile, &trace, how)?;
        let seconds = all.elapsed - first;
        Ok((all, seconds))
    }

    /// The stagger with which the fewest seconds pass.
    fn best(self, profile: &Profile, appends: u64) -> Result<u64, String> {
        if !matches!(self, Place::Zones { staggered: true, .. }) {
            return Ok(0);
        }
        let mut best = (f64::INFINITY, 0);
        for stagger in (1..STAGGERS).map(|n| n * STAGGER) {
            let (_, seconds) = self.played(profile, appends, stagger)?;
            if seconds < best.0 {
                best = (seconds, stagger);
            }
        }
        Ok(best.1)
    }
}

const MS: &str = "ms an append";

fn measure(run: &Run, profile: &Profile, place: Place) -> Result<Row, Stop> {
    let appends = if run.options.short { 48 } else { 960 };
    let stagger = place.best(profile, appends.min(96))?;
    let (stats, seconds) = place.played(profile, appends, stagger)?;
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Whole.name().into();
    timed(&mut row, &stats);
    row.wall_seconds = Some(seconds);
    (row.operations, row.flushes) = (Some(appends), Some(appends));
    (row.bytes_user, row.bytes_drive) = (Some(appends * BLOCK), Some(appends * BLOCK));
    row.figures.insert(MS.into(), seconds / appends as f64 * 1e3);
    if stagger > 0 {
        row.settings.insert("bytes by which each zone is further than the one before".into(), stagger.to_string());
    }
    if run.options.sensitivity {
        let busy = stats.total.busy();
        let changes = sensitivity::each(run, sensitivity::variants(profile), |changed| {
            let (stats, seconds) = place.played(changed, appends, stagger)?;
            Ok((stats.total.busy(), seconds))
        })?;
        row.replayed =
            Some(Replayed { commands: 2 * appends, forgotten: 0, measured: busy, busy, elapsed: seconds, changes });
    }
    Ok(row.amplified())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    run.model(&profile);
    run.once("the model alone: every run is the same");
    run.setting(
        "an append",
        format!("a write of {BLOCK} bytes and a flush, the write cache on; the next one comes at once"),
    );
    run.setting("staggered", format!("the best of {} distances of {} KiB", STAGGERS - 1, STAGGER / KIB));
    for place in places() {
        run.row(&place.name(), |run| measure(run, &profile, place))?;
    }
    let one = Place::Zones { zones: 1, staggered: false }.name();
    for place in places().filter(|place| place.name() != one) {
        let pairs = run.pairs(&one, &place.name(), |row| row.figures.get(MS).copied());
        let ratio = Ratio::of(format!("one zone: time, over that of {}", place.name()), &pairs);
        run.outcome.ratios.extend(ratio.map(|ratio| ratio.between(one.clone(), place.name())));
    }
    run.outcome.notes.push(
        "Nobody else wants the drive here, and the host takes no time. Who takes longer than the skipped bytes take to pass waits for a turn. \
         Where reads come between, the head is elsewhere, and what is won is less."
            .into(),
    );
    let points = SKIPS.into_iter().filter_map(|skip| {
        let ms = run.measured(&Place::Ahead { skip }.name())?.figures.get(MS).copied()?;
        Some((skip as f64 / KIB as f64, ms))
    });
    let points: Vec<_> = points.collect();
    if points.len() > 1 {
        run.outcome.charts.push(Chart {
            file: "ahead".into(),
            title: format!("A synchronous append ahead of the head, in conventional zones ({DRIVE})"),
            x: Axis::log("KiB further on than the one before"),
            y: Axis::even("ms an append"),
            shape: Shape::Lines(vec![Series { name: "conventional zones".into(), points }]),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_written_at_their_write_pointers_in_turn() {
        let profile = Profile::named(DRIVE).unwrap();
        let (before, trace) = Place::Zones { zones: 3, staggered: true }.trace(&profile, 7, 2 << 20);
        assert!(before > 2, "longer than a command");
        let mut pointers = std::collections::BTreeMap::new();
        for entry in trace.iter().filter(|entry| entry.op == Op::Write) {
            let wp = pointers.entry(entry.zone).or_insert(u64::from(entry.zone) * profile.zone_size);
            assert_eq!(*wp, entry.offset);
            *wp += u64::from(entry.len);
        }
        assert_eq!(pointers.len(), 3);
        assert_eq!(trace[before..].iter().filter(|entry| entry.op == Op::Flush).count(), 7);
    }

    #[test]
    fn one_zone_takes_a_turn_and_two_half_of_it() {
        let profile = Profile::named(DRIVE).unwrap();
        let ms = |place: Place| place.played(&profile, 48, 0).unwrap().1 / 48.0 * 1e3;
        let turn = 60e3 / 7200.0;
        assert!((ms(Place::Zones { zones: 1, staggered: false }) - turn).abs() < 0.3);
        assert!((ms(Place::Zones { zones: 2, staggered: false }) - turn / 2.0).abs() < 0.3);
        assert!(ms(Place::Ahead { skip: BLOCK }) > 0.9 * turn && ms(Place::Ahead { skip: 64 * KIB }) < 0.1 * turn);
    }
}
