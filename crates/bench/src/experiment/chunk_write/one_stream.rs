//! One stream: one client that fills one chunk after another with appends of 1 MiB, in a store of its own with default settings.
//!
//! **What it is measured by.** What the profile leaves after opening and closing zones and framing: the same bytes, with their framing, by a plain writer
//! on the same model, zone after zone in commands as long as the drive takes, each as soon as the one before is answered; with the same zone operations; without
//! any flush but one in the end.

use super::super::result::{Ratio, Row};
use super::super::virtual_clock::{Host, Steps};
use super::super::{Run, Stop};
use super::clients::{Chunks, Clients, How, Measured, Next};
use super::{MIB, Span, ZONES, layout, row};
use imbrex_chunkstore::{ChunkId, Durability, Options, StreamType};
use imbrex_device::Cause;
use imbrex_emulator::{Op, Profile, TraceEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of memory of a row: its drive's are packed.
const A_STORE: u64 = 1 << 30;
/// What `imbrex chunk put` appends before it asks for a sync.
const PUT: u64 = 256 * MIB;

const SETTING: &str = "chunk after chunk of stream data, each filled with appends of 1 MiB in a zone of its own and sealed, four chunks at a place; default settings: a group is written when somebody \
     has appended and none is being written, beside the flush of those before it; nobody waits for others (group-commit-delay=0); buffered: a sync after 256 MiB, as chunk put does";

/// How appends are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Durable, so many under way at once.
    Durable(usize),
    /// As `imbrex chunk put`: one client, buffered, with a sync from time to time.
    Buffered,
}

impl Way {
    const ALL: [Way; 4] = [Way::Durable(1), Way::Durable(16), Way::Durable(64), Way::Buffered];

    fn name(self) -> String {
        match self {
            Way::Durable(1) => "one at a time".into(),
            Way::Durable(n) => format!("{n} under way"),
            Way::Buffered => "buffered".into(),
        }
    }

    fn clients(self) -> usize {
        match self {
            Way::Durable(n) => n,
            Way::Buffered => 1,
        }
    }

    fn how(self) -> How {
        match self {
            Way::Durable(_) => How::Durable,
            Way::Buffered => How::Buffered { sync: Some(PUT) },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    way: Way,
    span: Span,
    cache: bool,
}

impl Cell {
    fn name(&self) -> String {
        let on = if self.cache { "on" } else { "off" };
        format!("one stream, {}, {}, write cache {on}", self.way.name(), self.span.name())
    }

    /// What is to be reached, with the write cache on: by appends that are durable, and by what the command does.
    fn goal(&self) -> Option<f64> {
        (self.cache && matches!(self.way, Way::Durable(16) | Way::Buffered)).then_some(0.97)
    }
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for cache in [false, true] {
        for span in Span::ALL {
            cells.extend(Way::ALL.map(|way| Cell { way, span, cache }));
        }
    }
    cells
}

pub(super) fn names() -> impl Iterator<Item = String> {
    cells().into_iter().map(|cell| cell.name())
}

/// At each of how many places how many chunks, and how many appends at most.
#[derive(Clone, Copy, Debug)]
struct Load {
    places: u64,
    chunks: u64,
    appends: u64,
}

impl Load {
    fn of(short: bool) -> Load {
        match short {
            true => Load { places: 1, chunks: 1, appends: 64 },
            false => Load { places: 4, chunks: 4, appends: u64::MAX },
        }
    }
}

/// One chunk after another, each full.
struct Stream {
    limit: u64,
    /// The chunk that is filled, from 1, and what it has.
    chunk: u64,
    len: u64,
    load: Load,
}

impl Stream {
    fn id(&self) -> ChunkId {
        ChunkId::of_number(self.chunk)
    }
}

impl Chunks for Stream {
    fn next(&mut self, host: &Host, _: usize) -> Result<Option<Next>, Stop> {
        let mut asked = Vec::new();
        if self.load.appends == 0 {
            return Ok(None);
        }
        if self.chunk == 0 || self.len == self.limit {
            if self.chunk == self.load.chunks {
                return Ok(None);
            }
            if self.chunk > 0 {
                let full = self.id();
                asked.extend(host.took(|store| store.seal_with(full, Durability::Buffered))?.1);
            }
            (self.chunk, self.len) = (self.chunk + 1, 0);
            let id = self.id();
            asked.extend(host.took(|store| store.create_with(id, StreamType::DATA, Durability::Buffered))?.1);
        }
        let bytes = MIB.min(self.limit - self.len);
        self.len += bytes;
        self.load.appends -= 1;
        Ok(Some(Next { id: self.id(), bytes, asked }))
    }

    fn end(&mut self, host: &Host) -> Result<Vec<TraceEntry>, Stop> {
        Ok(host.took(|store| store.seal(self.id()))?.1)
    }
}

/// What a plain writer would ask of the drive for the same data: see the module.
fn plain(trace: &[TraceEntry], zone_size: u64, command_bytes: u64) -> Vec<TraceEntry> {
    let written = trace.iter().filter(|one| one.op == Op::Write);
    let (data, other): (Vec<_>, Vec<_>) = written.partition(|one| one.cause == Cause::UserWrite.name());
    let command = |op, zone: u32, at: u64, len: u64| TraceEntry {
        op,
        zone,
        offset: u64::from(zone) * zone_size + at,
        len: len as u32,
        cause: Cause::Other.name(),
        ..trace[0].clone()
    };
    // Metazones that were not open yet.
    let meta: BTreeSet<u32> = other.iter().map(|one| one.zone).collect();
    let mut commands: Vec<_> = meta.into_iter().map(|zone| command(Op::Open, zone, 0, 0)).collect();
    let mut zones: BTreeMap<u32, u64> = BTreeMap::new();
    data.iter().for_each(|one| *zones.entry(one.zone).or_default() += u64::from(one.len));
    for (zone, bytes) in zones {
        let at_once = |at: u64| command_bytes.min(bytes - at);
        commands.extend((0..bytes).step_by(command_bytes as usize).map(|at| command(Op::Write, zone, at, at_once(at))));
        let behind = trace.iter().filter(|one| one.zone == zone && !matches!(one.op, Op::Write | Op::Read | Op::Flush));
        commands.extend(behind.map(|one| command(one.op, zone, 0, 0)));
    }
    commands.push(command(Op::Flush, 0, 0, 0));
    commands
}

/// How long that takes.
fn plain_seconds(profile: &Profile, cache: bool, places: Vec<u64>, trace: &[TraceEntry]) -> Result<f64, Stop> {
    let mut steps = Steps::new(profile, cache, places)?;
    steps.begin(0, plain(trace, profile.zone_size, u64::from(profile.max_io.max(1))), 0.0);
    let (_, end) = steps.next().ok_or("the plain writer did not end")?;
    Ok(end / 1e9)
}

/// What was measured at a place, and what the plain writer takes there, in seconds.
fn at_place(
    profile: &Profile,
    cell: &Cell,
    load: Load,
    place: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<(Measured, f64), Stop> {
    let host = Host::packed(profile, ZONES, cell.cache, Options::default())?;
    let part = (place as f64 + 0.5) / load.places as f64;
    let places = layout(&host, profile, cell.span, part);
    let stream = Stream { limit: u64::from(host.store.chunk_limit(StreamType::DATA)), chunk: 0, len: 0, load };
    let steps = Steps::new(profile, cell.cache, places.clone())?;
    let mut clients = Clients::new((&host, steps), stream, (cell.way.clients(), MIB), cell.way.how(), cell.cache);
    let measured = clients.run(stopped)?;
    Ok((measured, plain_seconds(profile, cell.cache, places, &clients.trace)?))
}

const LEFT: &str = "MB/s that opening and closing zones and framing leave";

fn measure(profile: &Profile, cell: &Cell, load: Load, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let (mut all, mut left) = (Measured::default(), 0.0);
    for place in 0..load.places {
        let (one, plain) = at_place(profile, cell, load, place, stopped)?;
        all.add(one);
        left += plain;
    }
    let user = all.user;
    let mut row = row(profile, all);
    row.figures.insert(LEFT.into(), user as f64 / 1e6 / left);
    Ok(row)
}

pub(super) fn run(run: &mut Run, profile: &Profile) -> Result<(), Stop> {
    let load = Load::of(run.options.short);
    run.setting("one stream", SETTING);
    let (cells, names) = (cells(), names().collect::<Vec<_>>());
    run.at_once(&names, A_STORE, |i, stopped| Ok((measure(profile, &cells[i], load, stopped)?, ())))?;
    for (cell, name) in cells.iter().zip(names) {
        let Some(row) = run.measured(&name) else { continue };
        let figure = |name: &str| row.figures.get(name).copied();
        let Some(part) = figure("MB/s").zip(figure(LEFT)).map(|(ours, left)| ours / left) else { continue };
        let ratio = Ratio::of(format!("{name}: MB/s over what opening and closing zones and framing leave"), &[part]);
        let goal = cell.goal();
        run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal, ..ratio }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { way: Way::Durable(16), span: Span::SixTb, cache: true };

    fn profile() -> Profile {
        Profile::named(super::super::DRIVE).unwrap()
    }

    fn entry(op: Op, zone: u32, at: u64, len: u64, cause: Cause) -> TraceEntry {
        let (offset, len) = ((u64::from(zone) << 28) + at, len as u32);
        TraceEntry { sequence: 0, op, cause: cause.name(), priority: "normal", zone, offset, len, result: "ok" }
    }

    #[test]
    fn a_plain_writer_writes_the_same_bytes_to_the_same_zones_without_the_journal_and_flushes() {
        let user = Cause::UserWrite;
        let trace = [
            entry(Op::Write, 2, 0, 4096, Cause::Journal),
            entry(Op::Write, 9, 0, 4096, user),
            entry(Op::Write, 9, 4096, MIB, user),
            entry(Op::Flush, 0, 0, 0, user),
            entry(Op::Write, 9, 4096 + MIB, MIB, user),
            entry(Op::Write, 10, 0, 4096, user),
            entry(Op::Finish, 9, 0, 0, Cause::Pool),
            entry(Op::Flush, 0, 0, 0, user),
        ];
        let asked: Vec<_> =
            plain(&trace, 1 << 28, MIB).iter().map(|one| (one.op, one.zone, one.offset, one.len)).collect();
        let (nine, mib) = (9 << 28, MIB as u32);
        let expected = [
            (Op::Open, 2, 2 << 28, 0),
            (Op::Write, 9, nine, mib),
            (Op::Write, 9, nine + MIB, mib),
            (Op::Write, 9, nine + 2 * MIB, 4096),
            (Op::Finish, 9, nine, 0),
            (Op::Write, 10, 10 << 28, 4096),
            (Op::Flush, 0, 0, 0),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn a_plain_writer_takes_what_the_profile_says() {
        let trace: Vec<_> = (0..512)
            .map(|i| entry(Op::Write, 2 + (i / 256) as u32, i % 256 * MIB, MIB, Cause::UserWrite))
            .chain([entry(Op::Write, 0, 0, 4096, Cause::Journal)])
            .collect();
        // The outermost zones that are not conventional, a hundredth of the drive in.
        let seconds = plain_seconds(&profile(), true, (800..804).map(|zone| zone << 28).collect(), &trace).unwrap();
        let expected = 512.0 * MIB as f64 / (0.994 * 255.6e6) + 3.0 * 0.020;
        assert!((seconds / expected - 1.0).abs() < 0.01, "{seconds} {expected}");
    }

    #[test]
    fn one_chunk_is_filled_after_another_each_in_a_zone_of_its_own() {
        let load = Load { places: 1, chunks: 2, appends: u64::MAX };
        let (measured, plain) = at_place(&profile(), &CELL, load, 0, &|| false).unwrap();
        // 253 MiB and what is left of the zone.
        assert_eq!((measured.appends, measured.user / MIB), (2 * 254, 2 * 253));
        assert!(
            measured.turns.bytes > 1009 * measured.user / 1000 && measured.turns.bytes < 1013 * measured.user / 1000
        );
        assert!(measured.turns.turns < 12, "{} turns: zones are written one after the other", measured.turns.turns);
        assert!(plain < measured.seconds && plain > 0.5 * measured.seconds, "{plain} {}", measured.seconds);
        let again = at_place(&profile(), &CELL, load, 0, &|| false).unwrap();
        assert_eq!((measured.seconds, plain), (again.0.seconds, again.1));
    }

    #[test]
    fn what_is_buffered_is_synced_and_one_at_a_time_waits_for_each() {
        let load = Load { places: 1, chunks: 1, appends: 24 };
        let of = |way| at_place(&profile(), &Cell { way, ..CELL }, load, 0, &|| false).unwrap().0;
        let (one, buffered) = (of(Way::Durable(1)), of(Way::Buffered));
        // The seal comes behind.
        assert_eq!((one.appends, one.commits, buffered.commits), (24, 25, 1));
        assert!(buffered.turns.bytes > buffered.user && buffered.seconds < 0.5 * one.seconds);
    }
}
