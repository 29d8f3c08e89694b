//! The four streams on ext4, for `chunk-multistream`: on the conventional drive of the same mechanics, whose clock runs with the world's.
//!
//! What is written has to fit into memory, and where it lies must be all over the stroke. So what is appended and deleted has only
//! [`scattered`](super::scattered) holes of a file system of the whole drive: as many as there are zones, and as large.

use super::super::chunk_write::{Span, at_part};
use super::super::hosts::workplace;
use super::super::result::Row;
use super::super::streams::{Answer, Load, open_bytes, run as files};
use super::super::{Needs, Options, Rule, Run, Stop, checks};
use super::scattered::{failed, holes, one_of_clusters};
use super::{Kernel, Ran, drive_name, ext4, zoned_streams};
use crate::baseline::Setup;
use imbrex_emulator::Profile;

const MIB: u64 = 1 << 20;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Asked {
    pub(in super::super) filled: f64,
    pub(in super::super) paced: bool,
    pub(in super::super) cache: bool,
}

/// What a file system said of its cleaner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Cleaned {
    /// Seconds.
    pub(in super::super) at: f64,
    pub(in super::super) dirty_segments: u64,
    /// Since it was mounted.
    pub(in super::super) calls: u64,
}

/// What happened when, in seconds of the drive's clock.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct OverTime {
    /// The user's bytes that were answered.
    pub(in super::super) bytes: Vec<(f64, u64)>,
    /// Of F2FS.
    pub(in super::super) cleaned: Vec<Cleaned>,
}

/// Both phases, and what was written over.
pub(super) struct Played {
    pub(super) clean: Phase,
    pub(super) deleting: Phase,
    pub(super) capacity: u64,
    /// What a row says of how it was played.
    pub(super) settings: Vec<(&'static str, String)>,
}

/// One of them, by the drive's clock.
pub(super) struct Phase {
    pub(super) ran: Ran,
    /// With footers.
    pub(super) bytes: u64,
    pub(super) deleted: u64,
    pub(super) over_time: OverTime,
}

impl Phase {
    fn of(answer: Answer, drive: Ran, speed: f64) -> Phase {
        let ran = Ran {
            seconds: speed * answer.seconds,
            operations: answer.appends,
            payload: answer.payload,
            took: answer.took.iter().map(|seconds| seconds * speed).collect(),
            ..drive
        };
        let bytes = answer.over_time.into_iter().map(|(at, bytes)| (at * speed, bytes)).collect();
        let over_time = OverTime { bytes, cleaned: Vec::new() };
        Phase { ran, bytes: answer.bytes, deleted: answer.deleted, over_time }
    }
}

impl Played {
    /// Both together, with the figures that rows of the store have.
    pub(super) fn row(&self, drive: &str) -> Row {
        let Played { clean, deleting, capacity, settings } = self;
        let mut all = clean.ran.clone();
        all.add(deleting.ran.clone());
        let mut row = all.row(drive, true);
        row.figures.clear();
        let figures = [
            ("MB/s, clean", clean.ran.rate()),
            ("MB/s, deleting", deleting.ran.rate()),
            ("deleting over clean", deleting.ran.rate() / clean.ran.rate().max(1e-9)),
            ("capacities written over", deleting.bytes as f64 / *capacity as f64),
            ("chunks deleted a second", deleting.deleted as f64 / deleting.ran.seconds.max(1e-9)),
        ];
        row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        let took =
            [("clean, 99 %", clean, 0.99), ("deleting, median", deleting, 0.5), ("deleting, 99 %", deleting, 0.99)];
        for (name, phase, part) in took.into_iter().filter(|(_, phase, _)| !phase.ran.took.is_empty()) {
            row.figures.insert(format!("ms an append, {name}"), at_part(&phase.ran.took, part) * 1e9);
        }
        row.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        row
    }

    /// Of both phases, one behind the other.
    pub(super) fn over_time(&self) -> OverTime {
        let mut all = self.clean.over_time.clone();
        let from = self.clean.ran.seconds;
        let behind = &self.deleting.over_time;
        all.bytes.extend(behind.bytes.iter().map(|(at, bytes)| (from + at, *bytes)));
        all.cleaned.extend(behind.cleaned.iter().map(|one| Cleaned { at: from + one.at, ..*one }));
        all
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

/// What a row takes: ext4 has all zones and tables in the directory for drives, the others a trace there and a VM.
pub(in super::super) fn needs(options: &Options, kernel: Kernel) -> Needs {
    let size = Size::of(options.short);
    match kernel {
        Kernel::Ext4 => Needs { work: size.free * size.zone + (512 << 20), memory: 0 },
        Kernel::F2fs | Kernel::Xfs => Needs { work: 64 << 20, memory: zoned_streams::MEMORY },
    }
}

/// The streams on ext4: the row, and the user's bytes over time.
fn ext4(run: &Run, profile: &Profile, asked: Asked) -> Result<(Row, OverTime), Stop> {
    let size = Size::of(run.options.short);
    let dir = workplace(&run.options.work)?;
    let (first, zones) = Span::Whole.zones(profile);
    let (from, length) = match run.options.short {
        true => (0, 4 << 30),
        false => (first * profile.zone_size, zones * profile.zone_size),
    };
    let setup = ext4::setup(run, profile, asked.cache, dir.path())?;
    let baseline =
        ext4::started(&Setup { part: Some((from, length)), mkfs_more: one_of_clusters(ext4::INODES), ..setup })?;
    run.says("ext4: all space but so many holes is taken");
    holes(&baseline.dir(), length, size.free, size.zone)?;
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
        let (answer, drive) = ext4::counted(&baseline, || files(load, &|| run.stopped()))?;
        Ok(Phase::of(answer, drive, speed))
    };
    let clean = phase(&load)?;
    let deleting = phase(&Load { over: Some((size.over * capacity as f64) as u64), ..load.clone() })?;
    baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    let Size { zone, zones, free, part, .. } = size;
    let shorter = format!(
        "{zones} zones of {} MiB count as capacity, {free} holes of that size over the whole stroke; chunks {part} times shorter",
        zone / MIB
    );
    let how = if asked.cache { "with fdatasync" } else { "without fdatasync: what is answered is on the medium" };
    let settings = vec![
        ("shorter than the store's rows", shorter),
        ("an append", how.into()),
        ("clock", format!("with the world's, {speed} times as fast")),
    ];
    let played = Played { clean, deleting, capacity, settings };
    let mut row = played.row(&drive_name(Kernel::Ext4, profile));
    // A file system that writes in place moves nothing.
    row.figures.insert("WA of cleaning".into(), 1.0);
    // At the paper's rate a drive has time left.
    if !asked.paced {
        checks::cpu_bound(&mut row);
    }
    Ok((row, played.over_time()))
}

/// The streams on a file system of the kernel: the row, and what happened when.
pub(in super::super) fn play(
    run: &Run,
    profile: &Profile,
    kernel: Kernel,
    asked: Asked,
) -> Result<(Row, OverTime), Stop> {
    match kernel {
        Kernel::Ext4 => ext4(run, profile, asked),
        Kernel::F2fs | Kernel::Xfs => zoned_streams::streams(run, profile, kernel, asked),
    }
}
