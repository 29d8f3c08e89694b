//! ext4 on a conventional drive with the mechanics of the host-managed one, whole, as [`Baseline`] has it: the drive's clock runs with the
//! world's.
//!
//! Appends: each file has the space of a chunk taken beforehand. Packed: a file system in a part of the drive as large as its files need, at the places where
//! the store's zones begin. [`scattered`]: one over all of the span, whose files lie all over it. Reads: one over all of the span, which its files take, and which are read where they begin.

use super::super::chunk_write::{DEPTH, JOBS, Span, ZONES};
use super::super::hosts::{conventional_twin, profile_of, workplace};
use super::super::{Rule, Run, Stop};
use super::scattered::{begins, holes, one_of_clusters, shuffled};
use super::{Asked, Both, HOW, Ran, count};
use crate::baseline::{Baseline, Directory, FileSystem, Setup};
use crate::segments::{self, Answer, Args, What, make, paths};
use imbrex_emulator::Profile;
use std::collections::BTreeMap;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Places over the span, as the store's rows have them.
const PLACES: u64 = 4;
/// Files of a job, and what is taken for each beforehand: a chunk's limit in the paper.
const FILES: u64 = 128;
const TAKEN: u64 = 256 * MIB;
/// Of a file system for appends: its files and a quarter more.
const REGION: u64 = FILES * JOBS as u64 * TAKEN / 4 * 5;
/// Of a row at a place: at most so many bytes and appends, as the store's rows have.
const BYTES: u64 = 1536 * MIB;
const APPENDS: u64 = 4096;
/// Room for files, where space is in clusters.
pub(super) const INODES: u64 = 16_384;
/// Files of a job that are read, and how far they are.
const READ_FILES: u64 = 40;
const LENGTH: u64 = 4 * MIB;
const READS: u64 = 1500;

pub(super) fn setup(run: &Run, profile: &Profile, cache: bool, dir: &Path) -> Result<Setup, Stop> {
    let imbrex = std::env::current_exe().map_err(|e| format!("this program cannot be found ({e})"))?;
    Ok(Setup {
        work: run.options.work.clone(),
        file_system: FileSystem::Ext4,
        directory: Directory::Own,
        speed: run.speed(Rule::Fewer),
        write_cache: cache,
        // The plumbing does not need a drive that not every file system can hold as a file.
        capacity: run.options.short.then_some(512 * profile.zone_size),
        ..Setup::new(imbrex, &profile_of(&conventional_twin(profile), dir)?)
    })
}

pub(super) fn started(setup: &Setup) -> Result<Baseline, Stop> {
    Baseline::start(setup).map_err(|why| Stop::Failed(why.to_string()))
}

/// The program once, and what the drive counted meanwhile.
fn once(run: &Run, baseline: &Baseline, args: &Args) -> Result<Ran, Stop> {
    if run.stopped() {
        return Err(Stop::Interrupted);
    }
    let (answer, drive) = counted(baseline, || Ok(segments::run(args)?))?;
    let speed = run.speed(Rule::Fewer);
    let Answer { operations, payload, seconds, seconds_with_sync, took } = answer;
    Ok(Ran {
        seconds: speed * if args.settle { seconds_with_sync } else { seconds },
        operations,
        payload,
        took: took.into_iter().map(|seconds| seconds * speed).collect(),
        ..drive
    })
}

/// What something does, and what the drive counted meanwhile.
pub(super) fn counted<T>(baseline: &Baseline, what: impl FnOnce() -> Result<T, Stop>) -> Result<(T, Ran), Stop> {
    baseline.begin()?;
    let done = what()?;
    let (stats, time) = (baseline.drive_stats()?, baseline.drive_time()?);
    let time = time.ok_or("the drive kept no time; run it again")?;
    let (total, ran) = (&stats.total, Ran::of(&time));
    Ok((done, Ran { written: total.bytes_written, read: total.bytes_read, flushes: total.flushes, ..ran }))
}

/// Appends of all these sizes, with `fdatasync` and without.
pub(super) fn writes(
    run: &Run,
    profile: &Profile,
    asked: Asked,
    sizes: &[u64],
) -> Result<BTreeMap<u64, (Both, Lie)>, Stop> {
    let mut all: BTreeMap<u64, (Both, Lie)> = BTreeMap::new();
    let short = run.options.short;
    for place in 0..if short || asked.scattered { 1 } else { PLACES } {
        // One file system for each: what is written stays in memory until it goes. Where only the plumbing is tried that is nothing.
        for sizes in sizes.chunks(if short { sizes.len().max(1) } else { 1 }) {
            let dir = workplace(&run.options.work)?;
            let setup = setup(run, profile, asked.cache, dir.path())?;
            let (from, length) = match (short, asked.scattered) {
                (true, _) => (0, 4 << 30),
                (false, true) => whole(profile, asked.span),
                (false, false) => part(profile, asked.span, place),
            };
            let mkfs_more = if asked.scattered { one_of_clusters(INODES) } else { Vec::new() };
            let baseline = started(&Setup { part: Some((from, length)), mkfs_more, ..setup })?;
            let (files, taken) = if short { (FILES / 16, 8 * MIB) } else { (FILES, TAKEN) };
            let args = |what, size, count, at, sync| Args {
                what,
                dir: baseline.dir(),
                jobs: JOBS as u64,
                first: 0,
                files,
                depth: DEPTH as u64,
                size,
                count,
                at,
                sync,
                // What is in the drive's cache is not yet written.
                settle: what == What::Append && asked.cache && !sync,
            };
            let lie = made(&args(What::Make, 4096, 0, taken, false), asked.scattered.then_some(length))?;
            let mut at = 0;
            for (size, (n, (_, sync))) in
                sizes.iter().flat_map(|size| HOW.into_iter().enumerate().map(move |how| (*size, how)))
            {
                let count = count(run, size, BYTES, APPENDS);
                let ran = once(run, &baseline, &args(What::Append, size, count, at, sync))?;
                at += count.div_ceil(files * JOBS as u64) * size;
                let (both, lies) = all.entry(size).or_default();
                *lies = lie;
                if let Some(sum) = both.get_mut(n) {
                    sum.add(ran);
                }
            }
            baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
        }
    }
    Ok(all)
}

/// Where the files of a file system lie in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lie {
    /// Bytes from where the first begins to where the last does.
    pub(super) over: u64,
    /// Of one file from the one before it in its job, on average.
    pub(super) apart: u64,
}

impl Lie {
    fn of(begins: &[u64]) -> Lie {
        let ends = begins.iter().min().zip(begins.iter().max());
        let apart: u64 = begins.windows(2).map(|two| two[0].abs_diff(two[1])).sum();
        Lie {
            over: ends.map_or(0, |(first, last)| last - first),
            apart: apart / (begins.len() as u64).max(2).saturating_sub(1),
        }
    }
}

/// Makes the files: one after another, or all over a file system of this length.
fn made(args: &Args, scattered: Option<u64>) -> Result<Lie, Stop> {
    let all: Vec<_> = paths(args).collect();
    match scattered {
        Some(length) => {
            // Some more than files, and a little longer: the extents of what is there grow by the holes, and take some of their space.
            let count = all.len() as u64;
            holes(&args.dir, length, count + count / 16, args.at + 4 * MIB)?;
            make(args, shuffled(all.iter().cloned()))?;
        }
        None => drop(make(args, all.iter().cloned())?),
    }
    let lie = Lie::of(&begins(&all)?);
    match scattered {
        // Nine tenths of it at least, and the way between two is a third on average if they lie anywhere.
        Some(length) if lie.over < length / 10 * 9 || lie.apart < length / 5 => Err(Stop::Failed(format!(
            "the files lie within {} of {length} bytes, {} apart; they shall lie all over them",
            lie.over, lie.apart
        ))),
        _ => Ok(lie),
    }
}

/// Where on the drive the file system lies, and how long it is.
fn part(profile: &Profile, span: Span, place: u64) -> (u64, u64) {
    let (first, zones) = span.zones(profile);
    let part = (place as f64 + 0.5) / PLACES as f64;
    let from = first + (zones.saturating_sub(u64::from(ZONES)) as f64 * part) as u64;
    (from * profile.zone_size, REGION)
}

/// All of the span: where it begins, and how long it is.
pub(super) fn whole(profile: &Profile, span: Span) -> (u64, u64) {
    let (first, zones) = span.zones(profile);
    (first * profile.zone_size, zones * profile.zone_size)
}

/// Random reads of all these sizes.
pub(super) fn reads(run: &Run, profile: &Profile, span: Span, sizes: &[u64]) -> Result<BTreeMap<u64, Ran>, Stop> {
    let dir = workplace(&run.options.work)?;
    let (from, length) = if run.options.short { (0, 4 << 30) } else { whole(profile, span) };
    let setup = setup(run, profile, true, dir.path())?;
    let baseline = started(&Setup { part: Some((from, length)), mkfs_more: one_of_clusters(INODES), ..setup })?;
    let args = |what, size, count, at| Args {
        what,
        dir: baseline.dir(),
        jobs: JOBS as u64,
        first: 0,
        files: READ_FILES,
        depth: if what == What::Read { (JOBS * DEPTH) as u64 } else { DEPTH as u64 },
        size,
        count,
        at,
        sync: false,
        settle: false,
    };
    // All of the span is taken, a part of it by each file, and read is where files begin: that is all over it.
    let files = JOBS as u64 * READ_FILES;
    segments::run(&args(What::Make, 4096, 0, length / files / 100 * 97 / MIB * MIB))?;
    let filled = if run.options.short { MIB } else { LENGTH };
    segments::run(&args(What::Append, MIB, files * filled / MIB, 0))?;
    let reading = |size, count| args(What::Read, size, count, filled);
    // Where files lie is known then, as it is on a server that has run for a while.
    once(run, &baseline, &reading(MIB, if run.options.short { 16 } else { 8 * files }))?;
    let mut all = BTreeMap::new();
    for size in sizes {
        let count = if run.options.short { 16 } else { READS };
        all.insert(*size, once(run, &baseline, &reading(*size, count))?);
    }
    baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    Ok(all)
}
