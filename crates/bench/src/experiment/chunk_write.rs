//! `chunk-write`: appends of many to many chunks of a clean store, SMRSTORE's Figure 14: 4 jobs, each with 4 appends under way to its 128
//! files in turn, 4 KiB to 1 MiB each. Real mechanics, on the [virtual clock](super::virtual_clock).
//!
//! A clean store fills its drive from the front, so the zones that are open together lie side by side. A row is measured at several
//! places spread over the part of the drive that it is about, with a new store at each, whose metazones are at the drive's front; its
//! rate is all bytes over all time.
//!
//! **The same payload on both sides.** A size counts with the footers that a chunk server on a file system writes ([`segments`](crate::segments)), so an append of 1 MiB has
//! 256 x 4,048 bytes of the user, there and here. What is compared is told for both durabilities: an append with `fdatasync` is found after a power
//! loss, as the store's is; one without may read as zeros then.
//!
//! [`one_stream`] has the rows of one that writes one chunk after another.

mod clients;
mod compared;
mod one_stream;

pub(super) use clients::make_durable;

use super::kernel_chunks::{self, Kernel};
use super::result::Row;
use super::virtual_clock::{Host, Nanoseconds, Steps, why};
use super::{Experiment, Needs, Rule, Run, Stop};
use crate::ablation::place::Placement;
use crate::segments::{PAYLOAD, SEGMENT};
use clients::{Chunks, Clients, How, Measured, Next};
use imbrex_chunkstore::{ChunkId, ChunkStore, Durability, StreamType};
use imbrex_emulator::{Profile, TraceEntry};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-write",
    about: "Appends to many chunks of a clean store: 4 jobs, 4 under way in each, 128 chunks of each, 4 KiB to 1 MiB",
    paper: "SMRSTORE, section 6.1, Figure 14",
    speed: 1.0,
    rows: |_| cells().iter().map(Cell::name).chain(one_stream::names()).collect(),
    extra: |options| cells().iter().filter(|cell| cell.extra(options.short)).map(Cell::name).collect(),
    // The directory for drives holds what is written to ext4.
    needs: |options| Needs { work: if options.short { 256 << 20 } else { 4 << 30 }, memory: 3 << 30 },
    run,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
pub(super) const DRIVE: &str = "seagate-st20000nm001j";
/// As the paper: the jobs of its load generator, what each has under way, and its files.
pub(super) const JOBS: usize = 4;
pub(super) const DEPTH: usize = 4;
const FILES: u64 = 128;
pub(super) const SIZES: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 128 * KIB, 512 * KIB, MIB];
/// Bytes of memory of a row: its drive's are packed.
const A_STORE: u64 = 1 << 30;
/// The longest command of rows that say so: what Linux passes by default from 6.17 on.
pub(super) const LONG: u32 = 4 << 20;
/// Open zones of rows that say so: three for data.
const FEW_OPEN: u32 = 11;
/// Zones of a store's own drive: four for each that may be open, and the metazones.
pub(super) const ZONES: u32 = 256;
/// What a client does between an answer and its next append, and how far apart those are that are answered together. Assumed: a
/// few system calls; a drive takes longer for anything.
pub(super) const TURNAROUND: Nanoseconds = 20_000.0;

/// When an append of a load on the store is durable.
pub(super) const COMMITS: &str = "a group is written when somebody has appended and none is being written, beside the flush of those before it; nobody waits for others \
     (group-commit-delay=0); with the write cache off each append is \
     durable by itself, and a command takes as much as fits of what waits in its zone";

/// How much of the drive a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// What the paper formats.
    SixTb,
    Whole,
}

impl Span {
    pub(super) const ALL: [Span; 2] = [Span::SixTb, Span::Whole];

    pub(super) fn name(self) -> &'static str {
        match self {
            Span::SixTb => "6 TB",
            Span::Whole => "whole drive",
        }
    }

    /// Sequential zones of it: the first and how many.
    pub(super) fn zones(self, profile: &Profile) -> (u64, u64) {
        let first = u64::from(profile.conventional_zones);
        let all = profile.capacity / profile.zone_size - first;
        match self {
            Span::SixTb => (first, (6_000_000_000_000 / profile.zone_size).min(all)),
            Span::Whole => (first, all),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Durable,
    /// The same on a drive that takes longer commands.
    Long,
    /// The same again, with all zones at the drive that somebody writes; and with [`FEW_OPEN`] open.
    LongAll,
    LongFew,
    Buffered,
    OneZone,
    /// Its files side by side.
    Packed,
    /// Its files all over the span, as on one that has been in use.
    Scattered,
    F2fs,
    Xfs,
}

impl Engine {
    const ALL: [Engine; 10] = [
        Engine::Durable,
        Engine::Long,
        Engine::LongAll,
        Engine::LongFew,
        Engine::Buffered,
        Engine::OneZone,
        Engine::Packed,
        Engine::Scattered,
        Engine::F2fs,
        Engine::Xfs,
    ];

    fn name(self) -> &'static str {
        match self {
            Engine::Durable => "this store",
            Engine::Long => "this store, commands of 4 MiB",
            Engine::LongAll => "this store, commands of 4 MiB, all zones at once",
            Engine::LongFew => "this store, commands of 4 MiB, 11 open zones",
            Engine::Buffered => "this store, buffered",
            Engine::OneZone => "one zone",
            Engine::Packed => "ext4 on CMR, packed",
            Engine::Scattered => "ext4 on CMR, scattered",
            Engine::F2fs => "F2FS",
            Engine::Xfs => "Zoned XFS",
        }
    }
}

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    engine: Engine,
    span: Span,
    cache: bool,
    size: u64,
}

pub(super) fn size_name(size: u64) -> String {
    if size < MIB { format!("{} KiB", size / KIB) } else { format!("{} MiB", size / MIB) }
}

impl Cell {
    fn name(&self) -> String {
        let (engine, size, span) = (self.engine.name(), size_name(self.size), self.span.name());
        format!("{engine}, {size}, {span}, write cache {}", if self.cache { "on" } else { "off" })
    }

    /// Whether only the full form has it: kernel rows run by the world's clock, and the goal is about one size.
    fn extra(&self, short: bool) -> bool {
        match self.engine {
            // A VM for the plumbing.
            Engine::F2fs | Engine::Xfs if short => true,
            _ if short => false,
            Engine::Packed | Engine::Scattered => {
                self.span == Span::Whole || ![4 * KIB, 64 * KIB, MIB].contains(&self.size)
            }
            Engine::F2fs | Engine::Xfs => self.size != MIB,
            _ => false,
        }
    }

    /// What is asked of a file system of the kernel.
    fn kernel(&self) -> Option<kernel_chunks::Asked> {
        let kernel = match self.engine {
            Engine::Packed | Engine::Scattered => Kernel::Ext4,
            Engine::F2fs => Kernel::F2fs,
            Engine::Xfs => Kernel::Xfs,
            _ => return None,
        };
        let scattered = self.engine == Engine::Scattered;
        Some(kernel_chunks::Asked { kernel, span: self.span, cache: self.cache, size: self.size, scattered })
    }

    /// Sizes of which there are rows like this one, of any part of the drive: what is set up once serves all.
    fn wanted(&self, run: &Run) -> Vec<u64> {
        let any = |size: &u64| {
            cells().iter().any(|cell| cell.engine == self.engine && cell.size == *size && run.wants(&cell.name()))
        };
        SIZES.into_iter().filter(any).collect()
    }
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for cache in [false, true] {
        for span in Span::ALL {
            for engine in Engine::ALL {
                let has = |cell: &Cell| !matches!(engine, Engine::LongAll | Engine::LongFew) || !cell.cache;
                cells.extend(SIZES.map(|size| Cell { engine, span, cache, size }).into_iter().filter(has));
            }
        }
    }
    cells
}

/// What a row does, at each of how many places.
#[derive(Clone, Copy, Debug)]
struct Load {
    places: u64,
    bytes: u64,
    most_appends: u64,
}

impl Load {
    fn of(short: bool) -> Load {
        match short {
            true => Load { places: 1, bytes: 24 * MIB, most_appends: 128 },
            false => Load { places: 4, bytes: 1536 * MIB, most_appends: 4096 },
        }
    }

    /// Appends at a place. A buffered row is about the steady state, behind a full buffer.
    fn appends(&self, cell: &Cell) -> u64 {
        match cell.engine {
            Engine::Buffered => (self.bytes / cell.size).min(4 * self.most_appends).max(4 * self.most_appends.min(128)),
            _ => (self.bytes / cell.size).min(self.most_appends),
        }
    }
}

/// When zones were written: nanoseconds, and a zone.
type Written = Vec<(Nanoseconds, u32)>;

/// Bytes of the user in an append of so many with footers.
fn payload(size: u64) -> u64 {
    size / SEGMENT * PAYLOAD
}

fn chunk(job: usize, file: u64) -> ChunkId {
    ChunkId::of_number((job as u64) << 32 | file)
}

/// The files of each job in turn.
struct Files {
    size: u64,
    left: u64,
    /// Appends of each job.
    turn: [u64; JOBS],
    /// All of it shall be on the drive in the end.
    synced: bool,
}

impl Chunks for Files {
    fn next(&mut self, _: &Host, client: usize) -> Result<Option<Next>, Stop> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let job = client / DEPTH;
        let id = chunk(job, self.turn[job] % FILES);
        self.turn[job] += 1;
        Ok(Some(Next { id, bytes: payload(self.size), asked: Vec::new() }))
    }

    fn end(&mut self, host: &Host) -> Result<Vec<TraceEntry>, Stop> {
        if self.synced { Ok(host.took(ChunkStore::sync)?.1) } else { Ok(Vec::new()) }
    }
}

/// Where the zones of a store's drive lie: label and metazones at the front of the drive, all others side by side from `part` of the
/// span on.
fn layout(host: &Host, profile: &Profile, span: Span, part: f64) -> Vec<u64> {
    let (first, all) = span.zones(profile);
    let meta = host.store.zones().iter().filter(|zone| zone.usage.is_none()).map(|zone| zone.zone).max();
    let front = u64::from(meta.map_or(0, |zone| zone + 1));
    let room = all.saturating_sub(front + u64::from(ZONES)) as f64;
    let from = (room * part) as u64;
    let place = |zone: u64| if zone < front { first + zone } else { first + from + zone };
    (0..u64::from(ZONES)).map(|zone| place(zone) * profile.zone_size).collect()
}

fn at_place(
    profile: &Profile,
    cell: &Cell,
    load: Load,
    place: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<Measured, Stop> {
    let placement = if cell.engine == Engine::OneZone { Placement::ONE_ZONE } else { Placement::OURS };
    let long = matches!(cell.engine, Engine::Long | Engine::LongAll | Engine::LongFew);
    let max_io = if long { LONG } else { profile.max_io };
    let profile = &Profile { max_io, ..profile.clone() };
    let mut options = placement.options();
    if cell.engine == Engine::LongFew {
        options.open_zones = FEW_OPEN;
    }
    let host = Host::packed(profile, ZONES, cell.cache, options)?;
    for job in 0..JOBS {
        for file in 0..FILES {
            host.store.create_with(chunk(job, file), StreamType::DATA, Durability::Buffered).map_err(why)?;
        }
    }
    host.store.sync().map_err(why)?;
    let part = (place as f64 + 0.5) / load.places as f64;
    let steps = Steps::new(profile, cell.cache, layout(&host, profile, cell.span, part))?;
    let steps = if cell.engine == Engine::LongAll { steps.all_at_once() } else { steps };
    let buffered = cell.engine == Engine::Buffered;
    let how = if buffered { How::Buffered { sync: None } } else { How::Durable };
    let files = Files { size: cell.size, left: load.appends(cell), turn: [0; JOBS], synced: buffered };
    Clients::new((&host, steps), files, (JOBS * DEPTH, cell.size), how, cell.cache).run(stopped)
}

/// The part of all that is as small or smaller, in milliseconds.
pub(super) fn at_part(sorted: &[Nanoseconds], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part) as usize;
    sorted.get(rank.min(sorted.len().saturating_sub(1))).map_or(0.0, |ns| ns / 1e6)
}

/// The row, and when zones were written at the first place.
fn measure(profile: &Profile, cell: &Cell, load: Load, stopped: &dyn Fn() -> bool) -> Result<(Row, Written), Stop> {
    let mut all = Measured::default();
    for place in 0..load.places {
        all.add(at_place(profile, cell, load, place, stopped)?);
    }
    let written = std::mem::take(&mut all.written);
    Ok((row(profile, all), written))
}

fn row(profile: &Profile, mut all: Measured) -> Row {
    all.took.sort_by(f64::total_cmp);
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Fewer.name().into();
    (row.device_seconds, row.wall_seconds) = (Some(all.busy), Some(all.seconds));
    row.operations = Some(all.appends);
    (row.bytes_user, row.bytes_drive) = (Some(all.user), Some(all.turns.bytes));
    row.flushes = Some(all.flushes);
    row.drive_utilisation = (all.seconds > 0.0).then(|| (all.busy / all.seconds).min(1.0));
    let names = ["seek", "rotation", "transfer", "zone ops"].map(str::to_owned);
    row.seconds = names.into_iter().zip(all.kinds).collect();
    let figures = [
        ("MB/s", all.user as f64 / 1e6 / all.seconds.max(1e-9)),
        ("KiB a turn", all.turns.bytes as f64 / KIB as f64 / all.turns.turns.max(1) as f64),
        ("ms an append, median", at_part(&all.took, 0.5)),
        ("ms an append, 99 %", at_part(&all.took, 0.99)),
    ];
    row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    if all.commits > 0 {
        row.figures.insert("appends a commit".into(), all.appends as f64 / all.commits as f64);
    }
    row.amplified()
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    run.model(&profile);
    run.once("logical clients on a virtual clock: every run is the same");
    let load = Load::of(run.options.short);
    run.setting("bytes at a place, at most", load.bytes);
    run.setting("appends at a place, at most", load.most_appends);
    run.setting("places over the span", load.places);
    run.setting(
        "load",
        format!("{JOBS} jobs, {DEPTH} appends under way in each, {FILES} chunks of each in turn, stream data"),
    );
    run.setting("group commit", COMMITS);
    run.setting(
        "buffered",
        "four times the appends of short ones; 256 MiB may wait in memory; a sync at the end, whose time counts",
    );
    run.setting(
        "payload of an append",
        "4,048 bytes for each 4 KiB, on both sides: what segments with their footers leave",
    );
    run.setting("microseconds between an answer and the client's next append (assumed)", TURNAROUND / 1e3);
    let ours: Vec<Cell> = cells().into_iter().filter(|cell| cell.kernel().is_none()).collect();
    let names: Vec<String> = ours.iter().map(Cell::name).collect();
    let ran = run.at_once(&names, A_STORE, |i, stopped| measure(&profile, &ours[i], load, stopped))?;
    let mut written: Vec<(Cell, Written)> =
        ours.into_iter().zip(ran).filter_map(|(cell, ran)| Some((cell, ran?))).collect();
    one_stream::run(run, &profile)?;
    // By the world's clock, so alone.
    let mut kernels = kernel_chunks::Measured::default();
    for (cell, asked) in cells().iter().filter_map(|cell| Some((cell, cell.kernel()?))) {
        run.row(&cell.name(), |run| kernels.write(run, &profile, asked, &cell.wanted(run)))?;
        written.push((*cell, kernels.written()));
    }
    compared::all(run, &written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn measured(engine: Engine, cache: bool, size: u64) -> Measured {
        let profile = Profile::named(DRIVE).unwrap();
        let cell = Cell { engine, span: Span::Whole, cache, size };
        at_place(&profile, &cell, Load::of(true), 0, &|| false).unwrap()
    }

    #[test]
    fn all_appends_are_answered_and_those_that_come_together_share_a_commit() {
        let ours = measured(Engine::Durable, true, 64 * KIB);
        assert_eq!((ours.appends, ours.user, ours.took.len()), (128, 128 * 16 * PAYLOAD, 128));
        assert!((8..128).contains(&ours.commits), "{}", ours.commits);
        assert!(ours.turns.bytes > ours.user && ours.busy <= ours.seconds * 1.001, "{} {}", ours.busy, ours.seconds);
        let again = measured(Engine::Durable, true, 64 * KIB);
        assert_eq!((ours.seconds, ours.took), (again.seconds, again.took), "the same clients give the same times");
    }

    #[test]
    fn with_the_write_cache_off_zones_are_written_for_themselves() {
        let ours = measured(Engine::Durable, false, 64 * KIB);
        assert_eq!((ours.appends, ours.took.len()), (128, 128));
        let again = measured(Engine::Durable, false, 64 * KIB);
        assert_eq!((ours.seconds, ours.took.clone()), (again.seconds, again.took));
        assert_eq!(ours.commits, 0);
        let each: f64 = ours.took.iter().sum::<f64>() / 1e9;
        assert!(each > 10.0 * ours.seconds, "they overlap: {each} {}", ours.seconds);
    }

    #[test]
    fn one_zone_has_longer_turns_and_is_faster_on_a_clean_drive() {
        let (ours, one) = (measured(Engine::Durable, false, 64 * KIB), measured(Engine::OneZone, false, 64 * KIB));
        let zones = |of: &Measured| of.written.iter().map(|(_, zone)| *zone).collect::<BTreeSet<_>>().len();
        assert!(zones(&one) == 1 && zones(&ours) > 8, "{} {}", zones(&one), zones(&ours));
        assert_eq!(ours.user, one.user);
        assert!(one.turns.turns < ours.turns.turns && one.seconds < ours.seconds, "{} {}", one.seconds, ours.seconds);
    }

    #[test]
    fn with_long_commands_fewer_zones_at_once_make_fewer_commands() {
        let profile = Profile::named(DRIVE).unwrap();
        let load = Load { places: 1, bytes: 64 * MIB, most_appends: 1024 };
        let [few, all] = [Engine::Long, Engine::LongAll].map(|engine| {
            let cell = Cell { engine, span: Span::SixTb, cache: false, size: 64 * KIB };
            at_place(&profile, &cell, load, 0, &|| false).unwrap()
        });
        assert_eq!((few.appends, few.user), (all.appends, all.user));
        assert!(few.written.len() * 5 < all.written.len() * 4, "{} {}", few.written.len(), all.written.len());
        assert!(few.seconds < all.seconds, "{} {}", few.seconds, all.seconds);
    }

    #[test]
    fn what_is_buffered_is_on_the_drive_at_the_end() {
        let buffered = measured(Engine::Buffered, true, 64 * KIB);
        assert_eq!((buffered.appends, buffered.commits), (512, 1));
        assert!(buffered.turns.bytes > buffered.user && buffered.seconds > 0.0);
    }
}
