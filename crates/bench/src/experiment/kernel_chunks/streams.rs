//! The four streams on ext4, for `chunk-multistream`: on the conventional drive of the same mechanics, whose clock runs with the world's.
//!
//! What is written has to fit into memory, and where it lies must be all over the stroke. So the file system is one of the whole drive, all of whose
//! space a few files have taken; of these, as many holes as there are zones are given back, as large as zones and evenly over the stroke. What is appended
//! and deleted has only those.

use super::super::chunk_write::{Span, at_part};
use super::super::hosts::workplace;
use super::super::result::Row;
use super::super::streams::{Answer, Load, open_bytes, run as play};
use super::super::{Rule, Run, Stop};
use super::{Kernel, Ran, drive_name, ext4};
use crate::baseline::Setup;
use imbrex_emulator::Profile;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Files that take what nobody shall use.
const FILLERS: u64 = 160;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Asked {
    pub(in super::super) filled: f64,
    pub(in super::super) paced: bool,
    pub(in super::super) cache: bool,
}

/// Both phases, and what was written over.
pub(in super::super) struct Played {
    clean: Phase,
    deleting: Phase,
    capacity: u64,
    /// Zones that count as capacity, and all that were free in the beginning; bytes of each.
    zones: (u64, u64, u64),
    /// So many times shorter are chunks.
    part: u64,
}

/// One of them, by the drive's clock.
struct Phase {
    ran: Ran,
    /// With footers.
    bytes: u64,
    deleted: u64,
    sync: bool,
    over_time: Vec<(f64, u64)>,
}

impl Phase {
    fn of(answer: Answer, drive: Ran, sync: bool, speed: f64) -> Phase {
        let ran = Ran {
            seconds: speed * answer.seconds,
            operations: answer.appends,
            payload: answer.payload,
            took: answer.took.iter().map(|seconds| seconds * speed).collect(),
            ..drive
        };
        let over_time = answer.over_time.into_iter().map(|(at, bytes)| (at * speed, bytes)).collect();
        Phase { ran, bytes: answer.bytes, deleted: answer.deleted, sync, over_time }
    }
}

impl Played {
    /// Both together, with the figures that rows of the store have.
    pub(in super::super) fn row(&self, run: &Run, profile: &Profile) -> Row {
        let Played { clean, deleting, capacity, zones: (zones, free, zone), part } = self;
        let mut all = clean.ran.clone();
        all.add(deleting.ran.clone());
        let mut row = all.row(&drive_name(Kernel::Ext4, profile), true);
        row.figures.clear();
        let ms = |phase: &Phase, part: f64| at_part(&phase.ran.took, part) * 1e9;
        let figures = [
            ("MB/s, clean", clean.ran.rate()),
            ("MB/s, deleting", deleting.ran.rate()),
            ("deleting over clean", deleting.ran.rate() / clean.ran.rate().max(1e-9)),
            // A file system that writes in place moves nothing.
            ("WA of cleaning", 1.0),
            ("capacities written over", deleting.bytes as f64 / *capacity as f64),
            ("chunks deleted a second", deleting.deleted as f64 / deleting.ran.seconds.max(1e-9)),
            ("ms an append, clean, 99 %", ms(clean, 0.99)),
            ("ms an append, deleting, median", ms(deleting, 0.5)),
            ("ms an append, deleting, 99 %", ms(deleting, 0.99)),
        ];
        row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        let shorter = format!(
            "{zones} zones of {} MiB count as capacity, {free} holes of that size over the whole stroke; chunks {part} times shorter",
            zone / MIB
        );
        row.settings.insert("shorter than the store's rows".into(), shorter);
        let how = if clean.sync { "with fdatasync" } else { "without fdatasync: what is answered is on the medium" };
        row.settings.insert("an append".into(), how.into());
        row.settings.insert("clock".into(), format!("with the world's, {} times as fast", run.speed(Rule::Fewer)));
        row
    }

    /// Seconds of the drive's clock, and the user's bytes that were answered then.
    pub(in super::super) fn over_time(&self) -> Vec<(f64, u64)> {
        let behind = self.deleting.over_time.iter().map(|(at, bytes)| (self.clean.ran.seconds + at, *bytes));
        self.clean.over_time.iter().copied().chain(behind).collect()
    }
}

/// How much of it there is.
#[derive(Clone, Copy, Debug)]
struct Size {
    zone: u64,
    /// That count as capacity, and that are free.
    zones: u64,
    free: u64,
    part: u64,
    /// What is written over, in capacities.
    over: f64,
}

impl Size {
    /// Beside the capacity there is room for what is open, and a sixteenth for what is not a whole chunk.
    fn of(short: bool) -> Size {
        let (zone, zones, part, over) = if short { (16 * MIB, 6, 64, 0.5) } else { (256 * MIB, 16, 4, 1.5) };
        let free = zones + open_bytes(part).div_ceil(zone) + zones.div_ceil(16);
        Size { zone, zones, free, part, over }
    }
}

/// Bytes of the directory for drives that a row takes: all zones, and tables.
pub(in super::super) fn work(short: bool) -> u64 {
    let size = Size::of(short);
    size.free * size.zone + (512 << 20)
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Stop {
    Stop::Failed(format!("{}: {error}; see that the file system has room", path.display()))
}

/// Takes all space, and gives back holes.
fn holes(dir: &Path, length: u64, size: Size) -> Result<(), Stop> {
    let each = length / FILLERS / MIB * MIB;
    let path = |n: u64| dir.join(format!("filler-{n}"));
    let mut last = 0;
    // The last ones find less than they ask for, or nothing: then all is taken.
    for n in 0..2 * FILLERS {
        let file = File::create(path(n)).map_err(|error| failed(&path(n), error))?;
        last = n;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, each) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOSPC) => break,
            Err(error) => return Err(failed(&path(n), error)),
        }
    }
    let whole = (last.max(1) * each) as f64;
    for hole in 0..size.free {
        let at = (whole * (hole as f64 + 0.5) / size.free as f64) as u64;
        // Whole within its file.
        let (n, at) = (at / each, (at % each / MIB * MIB).min(each.saturating_sub(size.zone)));
        let file = OpenOptions::new().write(true).open(path(n)).map_err(|error| failed(&path(n), error))?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, at, size.zone).map_err(|error| failed(&path(n), error))?;
    }
    Ok(())
}

/// The streams on ext4.
pub(in super::super) fn ext4(run: &Run, profile: &Profile, asked: Asked) -> Result<Played, Stop> {
    let size = Size::of(run.options.short);
    let dir = workplace(&run.options.work)?;
    let (first, zones) = Span::Whole.zones(profile);
    let (from, length) = match run.options.short {
        true => (0, 4 << 30),
        false => (first * profile.zone_size, zones * profile.zone_size),
    };
    let setup = ext4::setup(run, profile, asked.cache, dir.path())?;
    // Space in clusters of 1 MiB: all of it is taken in a moment. None is kept for root, who runs this.
    let more = ["-O", "bigalloc", "-C", "1048576", "-N", "16384", "-m", "0"].map(String::from).to_vec();
    let baseline = ext4::started(&Setup { part: Some((from, length)), mkfs_more: more, ..setup })?;
    run.says("ext4: all space but so many holes is taken");
    holes(&baseline.dir(), length, size)?;
    let chunks = baseline.dir().join("chunks");
    std::fs::create_dir(&chunks).map_err(|error| failed(&chunks, error))?;
    let capacity = size.zones * size.zone;
    let speed = run.speed(Rule::Fewer);
    let load = Load {
        dir: chunks,
        part: size.part,
        target: (asked.filled * capacity as f64) as u64,
        over: None,
        // With the cache off what is answered is on the medium.
        sync: asked.cache,
        pace: asked.paced.then_some(speed),
    };
    let phase = |load: &Load| -> Result<Phase, Stop> {
        run.says(&format!("{}: {}", run.doing(), if load.over.is_some() { "deleting" } else { "filling" }));
        let (answer, drive) = ext4::counted(&baseline, || play(load, &|| run.stopped()))?;
        Ok(Phase::of(answer, drive, load.sync, speed))
    };
    let clean = phase(&load)?;
    let deleting = phase(&Load { over: Some((size.over * capacity as f64) as u64), ..load.clone() })?;
    baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    Ok(Played { clean, deleting, capacity, zones: (size.zones, size.free, size.zone), part: size.part })
}
