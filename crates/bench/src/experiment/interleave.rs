//! `interleave`: what long turns are worth. One to 55 zones are written in turn, 64 KiB to 64 MiB a turn; SMRSTORE keeps 55 zones
//! open (section 4) with the drive's write cache off (section 3.1). The model alone, with real mechanics.

use super::chart::{Axis, Chart, Series, Shape};
use super::result::{Ratio, Row};
use super::sample::timed;
use super::sensitivity::{self, Replayed};
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_emulator::time::{Replay, TimeStats, replay};
use imbrex_emulator::{Op, Profile, TraceEntry};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "interleave",
    about: "What long turns are worth: 1 to 55 zones written in turn, 64 KiB to 64 MiB a turn",
    paper: "SMRSTORE, sections 3.1 and 4 (55 open zones, write cache off); the paper has no figure of it",
    speed: 1.0,
    rows: |_| cells().iter().map(Cell::name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 256 << 20 },
    run,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DRIVE: &str = "seagate-st20000nm001j";
const ZONES: [u64; 6] = [1, 2, 4, 8, 21, 55];
const TURNS: [u64; 6] = [64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB];

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    zones: u64,
    turn: u64,
    cache: bool,
}

impl Cell {
    /// Whether one of [`ratios`] is about it.
    fn stands_in_a_ratio(&self) -> bool {
        [1, 55].contains(&self.zones) && [MIB, 64 * MIB].contains(&self.turn)
    }

    fn name(&self) -> String {
        let turn =
            if self.turn < MIB { format!("{} KiB", self.turn / KIB) } else { format!("{} MiB", self.turn / MIB) };
        let cache = if self.cache { "on" } else { "off" };
        let zones = if self.zones == 1 { "1 zone".into() } else { format!("{} zones", self.zones) };
        format!("{zones}, {turn} a turn, write cache {cache}")
    }

    /// The writes, in order: zones that stand side by side, as an allocator gives them, are written to `fill` bytes each, and
    /// then the next ones until there were `least` bytes.
    fn trace(&self, profile: &Profile, fill: u64, least: u64) -> Vec<TraceEntry> {
        let command = self.turn.min(u64::from(profile.max_io));
        let mut trace = Vec::new();
        for set in 0..least.div_ceil(self.zones * fill) {
            let first = u64::from(profile.conventional_zones) + set * self.zones;
            for round in 0..fill / self.turn {
                for zone in first..first + self.zones {
                    for piece in 0..self.turn.div_ceil(command) {
                        let offset = zone * profile.zone_size + round * self.turn + piece * command;
                        let command = command.min(self.turn - piece * command);
                        trace.push(TraceEntry {
                            sequence: trace.len() as u64,
                            op: Op::Write,
                            cause: "table",
                            priority: "normal",
                            zone: zone as u32,
                            offset,
                            len: command as u32,
                            result: "ok",
                        });
                    }
                }
            }
        }
        trace
    }
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for cache in [false, true] {
        for zones in ZONES {
            cells.extend(TURNS.map(|turn| Cell { zones, turn, cache }));
        }
    }
    cells
}

/// The writes of a cell, and the time that they take.
fn replayed(profile: &Profile, cell: Cell, fill: u64, least: u64) -> Result<(Vec<TraceEntry>, TimeStats), String> {
    let trace = cell.trace(profile, fill, least);
    // Two at once, so that the drive never waits for its host; a zone has one.
    let stats = replay(profile, &trace, Replay { depth: 2, write_cache: cell.cache })?;
    Ok((trace, stats))
}

fn measure(profile: &Profile, cell: Cell, fill: u64, least: u64) -> Result<Row, Stop> {
    let (trace, stats) = replayed(profile, cell, fill, least)?;
    let written: u64 = trace.iter().map(|entry| u64::from(entry.len)).sum();
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Whole.name().into();
    timed(&mut row, &stats);
    row.wall_seconds = Some(stats.elapsed);
    // One behind the last command.
    row.flushes = Some(1);
    row.operations = Some(trace.len() as u64);
    (row.bytes_user, row.bytes_drive) = (Some(written), Some(written));
    row.figures.insert("MiB/s".into(), written as f64 / MIB as f64 / stats.elapsed);
    Ok(row.amplified())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    // Zones are filled, so that a row pays for opening as many as it has bytes.
    let (fill, least) =
        if run.options.short { (64 * MIB, 64 * MIB) } else { (profile.zone_size, 16 * profile.zone_size) };
    run.model(&profile);
    run.once("the model alone: every run is the same");
    run.setting("bytes of a row, at least", least);
    run.setting("bytes of a zone", fill);
    run.setting("commands", "as long as the drive takes or as the turn, if that is less; 2 at once, 1 a zone");
    for cell in cells() {
        run.row(&cell.name(), |run| {
            let mut row = measure(&profile, cell, fill, least)?;
            if run.options.sensitivity && cell.stands_in_a_ratio() {
                let (busy, elapsed) = (row.device_seconds.unwrap_or(0.0), row.wall_seconds.unwrap_or(0.0));
                // The model alone: no record is needed, and a change asks it anew.
                let changes = sensitivity::each(run, sensitivity::variants(&profile), |changed| {
                    let stats = replayed(changed, cell, fill, least)?.1;
                    Ok((stats.total.busy(), stats.elapsed))
                })?;
                let commands = row.operations.unwrap_or(0);
                row.replayed = Some(Replayed { commands, forgotten: 0, measured: busy, busy, elapsed, changes });
            }
            Ok(row)
        })?;
    }
    ratios(run);
    run.outcome.notes.push(
        "With the write cache off a zone has one write in flight, which then waits for its place to come round again: what counts is \
         the length of a command, and from one command a turn on the length of a turn is worth nothing. With the cache \
         on the drive gathers what belongs together, and turns are worth what they save it in seeks."
            .into(),
    );
    for cache in [false, true] {
        chart(run, cache);
    }
    Ok(())
}

fn rate(run: &Run, zones: u64, turn: u64, cache: bool) -> Option<f64> {
    run.measured(&Cell { zones, turn, cache }.name())?.figures.get("MiB/s").copied()
}

fn ratios(run: &mut Run) {
    for cache in [false, true] {
        for turn in [MIB, 64 * MIB] {
            let (Some(many), Some(one)) = (rate(run, 55, turn, cache), rate(run, 1, turn, cache)) else { continue };
            let (many_name, on) = (Cell { zones: 55, turn, cache }.name(), if cache { "on" } else { "off" });
            let name = format!("{many_name}: MiB/s over those of one zone, write cache {on}");
            let slow = Cell { zones: 1, turn, cache }.name();
            run.outcome.ratios.extend(Ratio::of(name, &[many / one]).map(|ratio| ratio.between(slow, many_name)));
        }
    }
}

fn chart(run: &mut Run, cache: bool) {
    let line = |zones: u64| {
        let point = |turn: u64| rate(run, zones, turn, cache).map(|rate| (turn as f64 / MIB as f64, rate));
        let name = if zones == 1 { "1 zone".into() } else { format!("{zones} zones") };
        Series { name, points: TURNS.into_iter().filter_map(point).collect() }
    };
    let series: Vec<Series> = ZONES.into_iter().map(line).filter(|line| line.points.len() > 1).collect();
    if series.is_empty() {
        return;
    }
    let on = if cache { "on" } else { "off" };
    run.outcome.charts.push(Chart {
        file: format!("turns-cache-{on}"),
        title: format!("Zones written in turn, write cache {on} ({DRIVE})"),
        x: Axis::log("MiB a turn"),
        y: Axis::even("MiB/s"),
        shape: Shape::Lines(series),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_is_written_in_order_and_in_turn() {
        let profile = Profile::named(DRIVE).unwrap();
        let cell = Cell { zones: 3, turn: 4 * MIB, cache: false };
        let trace = cell.trace(&profile, 8 * MIB, 40 * MIB);
        assert_eq!(trace.len(), 48);
        let mut pointers = std::collections::BTreeMap::new();
        for entry in &trace {
            let wp = pointers.entry(entry.zone).or_insert(u64::from(entry.zone) * profile.zone_size);
            assert_eq!(*wp, entry.offset);
            *wp += u64::from(entry.len);
        }
        assert_eq!(pointers.len(), 6);
        let turns: Vec<u32> = trace.chunks(4).map(|turn| turn[0].zone - trace[0].zone).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    }
}
