//! ext4 on a conventional drive with the mechanics of the host-managed one, whole, as [`Baseline`] has it: the drive's clock runs with the
//! world's.
//!
//! Appends: a file system in a part of the drive as large as its files need, at the places where the store's zones begin, each file with the
//! space of a chunk taken beforehand. Reads: one over all of the span, which its files take, and which are read where they begin.

use super::super::chunk_write::{DEPTH, JOBS, Span, ZONES};
use super::super::hosts::{conventional_twin, profile_of, workplace};
use super::super::{Rule, Run, Stop};
use super::{Both, HOW, Ran, count};
use crate::baseline::{Baseline, Directory, FileSystem, Setup};
use crate::segments::{self, Answer, Args, What};
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
    span: Span,
    cache: bool,
    sizes: &[u64],
) -> Result<BTreeMap<u64, Both>, Stop> {
    let mut all: BTreeMap<u64, Both> = BTreeMap::new();
    let short = run.options.short;
    for place in 0..if short { 1 } else { PLACES } {
        // One file system for each: what is written stays in memory until it goes. Where only the plumbing is tried that is nothing.
        for sizes in sizes.chunks(if short { sizes.len().max(1) } else { 1 }) {
            let dir = workplace(&run.options.work)?;
            let setup = setup(run, profile, cache, dir.path())?;
            let part = if short { (0, 4 << 30) } else { part(profile, span, place) };
            let baseline = started(&Setup { part: Some(part), ..setup })?;
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
                settle: what == What::Append && cache && !sync,
            };
            segments::run(&args(What::Make, 4096, 0, taken, false))?;
            let mut at = 0;
            for (size, (n, (_, sync))) in
                sizes.iter().flat_map(|size| HOW.into_iter().enumerate().map(move |how| (*size, how)))
            {
                let count = count(run, size, BYTES, APPENDS);
                let ran = once(run, &baseline, &args(What::Append, size, count, at, sync))?;
                at += count.div_ceil(files * JOBS as u64) * size;
                if let Some(sum) = all.entry(size).or_default().get_mut(n) {
                    sum.add(ran);
                }
            }
            baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
        }
    }
    Ok(all)
}

/// Where on the drive the file system lies, and how long it is.
fn part(profile: &Profile, span: Span, place: u64) -> (u64, u64) {
    let (first, zones) = span.zones(profile);
    let part = (place as f64 + 0.5) / PLACES as f64;
    let from = first + (zones.saturating_sub(u64::from(ZONES)) as f64 * part) as u64;
    (from * profile.zone_size, REGION)
}

/// Random reads of all these sizes.
pub(super) fn reads(run: &Run, profile: &Profile, span: Span, sizes: &[u64]) -> Result<BTreeMap<u64, Ran>, Stop> {
    let dir = workplace(&run.options.work)?;
    let (first, zones) = span.zones(profile);
    let (from, length) = match run.options.short {
        true => (0, 4 << 30),
        false => (first * profile.zone_size, zones * profile.zone_size),
    };
    let setup = setup(run, profile, true, dir.path())?;
    // Space in clusters of 1 MiB: all of the span is taken in a moment, and reads are the same.
    let more = ["-O", "bigalloc", "-C", "1048576", "-N", "16384"].map(String::from).to_vec();
    let baseline = started(&Setup { part: Some((from, length)), mkfs_more: more, ..setup })?;
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
