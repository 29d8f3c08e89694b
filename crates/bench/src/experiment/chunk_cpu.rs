//! `chunk-cpu`: what appends and reads of 1 MiB cost the processor, on a drive in memory whose pages are there already (DESIGN, section 8). The
//! drive's own copy is in it; nothing waits and nobody else runs in this thread. What the drive alone takes for as many bytes is measured beside it: without that,
//! it is compared with a chunk server on ext4 that does the [same work](super::kernel_chunks::processor).

use super::chart::{Axis, Chart, Shape};
use super::hosts::conventional_twin;
use super::kernel_chunks::processor::processor;
use super::result::{Figure, Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
use imbrex_device::{AlignedBuf, Cause, Drive, Tag, ZonedDevice};
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_zones::{Exec, VolumeOptions};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-cpu",
    about: "CPU seconds a GiB for appends and reads of 1 MiB, checksums included, on a drive in memory",
    paper: "SMRSTORE, section 6.5",
    speed: 1.0,
    rows: |_| [APPEND, READ, EXT4_APPEND, EXT4_READ].map(str::to_owned).into(),
    extra: super::NONE,
    // The directory for drives holds what is written to ext4.
    needs: |options| Needs { work: if options.short { 128 << 20 } else { 1 << 30 }, memory: 3 << 30 },
    run,
};

const APPEND: &str = "appends of 1 MiB";
const READ: &str = "reads of 1 MiB";
const EXT4_APPEND: &str = "appends of 1 MiB, ext4 on CMR";
const EXT4_READ: &str = "reads of 1 MiB, ext4 on CMR";
const A_GIB: &str = "CPU seconds a GiB";
const WITHOUT: &str = "CPU seconds a GiB, without the drive's own";
const DRIVE: &str = "seagate-st20000nm001j";
const MIB: u64 = 1 << 20;
/// Smaller zones than the drive's, so that less memory is enough.
const ZONE: u64 = 64 * MIB;
const A_CHUNK: u64 = 60;

/// Nanoseconds that this thread has had a processor.
fn on_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of the processor, and of these what the drive takes alone.
#[derive(Clone, Copy, Debug)]
struct Took {
    all: u64,
    drive: u64,
}

/// For so many appends, and for reading them again.
fn measure(profile: &Profile, appends: u64) -> Result<[Took; 2], Stop> {
    let zones = 12 + appends.div_ceil(A_CHUNK) + 4;
    let over = Overrides {
        capacity: Some(zones * ZONE),
        zone_size: Some(ZONE),
        conventional: Some(0),
        ..Overrides::default()
    };
    let config = Config::new(profile, &over);
    let emulator = Arc::new(Emulator::memory_prefaulted(&config).map_err(why)?);
    let drive = Drive { device: emulator.clone(), survivor: None };
    ChunkStore::format(&drive, &FormatOptions::default()).map_err(why)?;
    let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
    let store =
        ChunkStore::open(drive, Options { volume, buffer_bytes: 32 * MIB, ..Options::default() }).map_err(why)?;
    let mut bytes: Vec<u8> = (0..MIB as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let expected = bytes.clone();
    let how = Append { offset: None, durability: Durability::Buffered };
    let chunk = |i: u64| ChunkId::of_number(i / A_CHUNK);
    emulator.reset_stats();
    let began = on_cpu();
    for i in 0..appends {
        if i % A_CHUNK == 0 {
            store.create_with(chunk(i), StreamType::DATA, Durability::Buffered).map_err(why)?;
        }
        store.append_with(chunk(i), &bytes, how).map_err(why)?;
    }
    store.sync().map_err(why)?;
    let appended = on_cpu() - began;
    let began = on_cpu();
    for i in 0..appends {
        store.read(chunk(i), i % A_CHUNK * MIB, &mut bytes).map_err(why)?;
    }
    let read = on_cpu() - began;
    if bytes != expected {
        return Err("the store gave out other bytes than it was given; look into that first".into());
    }
    let moved = emulator.stats().total;
    drop((store, emulator));
    let [writes, reads] = alone(&config, moved.bytes_written, moved.bytes_read)?;
    Ok([Took { all: appended, drive: writes }, Took { all: read, drive: reads }])
}

/// What the drive takes for so many bytes, and for reading so many, in commands of 1 MiB.
fn alone(config: &Config, written: u64, read: u64) -> Result<[u64; 2], Stop> {
    let drive = Emulator::memory_prefaulted(config).map_err(why)?;
    let mut buffer = AlignedBuf::zeroed(MIB as usize);
    buffer.fill(7);
    let began = on_cpu();
    for n in 0..written / MIB {
        drive.write_at(&buffer, n * MIB, Tag::new(Cause::UserWrite)).map_err(why)?;
    }
    let writes = on_cpu() - began;
    let began = on_cpu();
    for n in 0..read / MIB {
        drive.read_at(&mut buffer, n * MIB, Tag::new(Cause::UserRead)).map_err(why)?;
    }
    Ok([writes, on_cpu() - began])
}

/// The row of so many operations, and bytes of the user, that took so long.
fn row(drive: &str, operations: u64, bytes: u64, took: Took) -> Row {
    let mut row = Row::new("", drive);
    row.rule = Rule::Fewer.name().into();
    row.operations = Some(operations);
    let gib = bytes as f64 / (1u64 << 30) as f64;
    // Where the drive alone took as long, so short a run tells nothing of the rest.
    if let Some(rest) = took.all.checked_sub(took.drive).filter(|rest| *rest > 0) {
        row.figures.insert(WITHOUT.into(), rest as f64 / 1e9 / gib);
    }
    row
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    let mib = if run.options.short { 64 } else { 768 };
    run.setting("MiB that are appended and read", mib);
    run.setting(
        "memory",
        "zones of 64 MiB, their pages there before the first command; 32 MiB may wait in the store's memory",
    );
    for (i, name) in [APPEND, READ].into_iter().enumerate() {
        run.row(name, |_| {
            let took = measure(&profile, mib)?[i];
            let mut row = row("memory", mib, mib * MIB, took);
            let ns = took.all.max(1) as f64;
            row.figures.insert(A_GIB.into(), ns / 1e9 / (mib as f64 / 1024.0));
            row.figures.insert("GB/s of one core".into(), (mib * MIB) as f64 / ns);
            Ok(row)
        })?;
    }
    for (i, name) in [EXT4_APPEND, EXT4_READ].into_iter().enumerate() {
        run.row(name, |run| {
            let took = processor(run, &profile, mib, on_cpu)?;
            let all = [took.appended, took.read][i];
            Ok(row(&conventional_twin(&profile).name, mib, took.bytes, Took { all, drive: 0 }))
        })?;
    }
    for (ours, theirs, paper) in [(APPEND, EXT4_APPEND, Some(1.267)), (READ, EXT4_READ, None)] {
        let of = |name| run.measured(name)?.figures.get(WITHOUT).copied();
        let Some((ours_took, theirs_took)) = of(ours).zip(of(theirs)) else { continue };
        let name = format!("{ours}: CPU seconds a GiB over those of ext4, the drive's own not counted");
        let paper =
            paper.map(|paper| Figure::new(paper, "of a whole server, network included", "SMRSTORE, section 6.5"));
        let ratio = Ratio::of(name, &[ours_took / theirs_took]);
        run.outcome.ratios.extend(ratio.map(|ratio| Ratio { paper, ..ratio }));
    }
    let speeds = run.runs(APPEND, |row| row.figures.get("GB/s of one core").copied());
    let over: Vec<f64> = speeds.into_iter().flatten().map(|speed| speed / 2.0).collect();
    let ratio = Ratio::of("appends of 1 MiB on one core, over the 2 GB/s that are wanted", &over);
    run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal: Some(1.0), ..ratio }));
    let speed = |name: &str| run.measured(name)?.figures.get("GB/s of one core").copied();
    let bars = [APPEND, READ].into_iter().filter_map(|name| Some((name.to_owned(), speed(name)?, None))).collect();
    run.outcome.charts.push(Chart {
        file: "cpu".into(),
        title: "What one core does of 1 MiB at once, checksums included".into(),
        x: Axis::even(""),
        y: Axis::even("GB/s"),
        shape: Shape::Bars(bars),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_is_appended_and_read_and_costs_something() {
        let profile = Profile::named(DRIVE).unwrap();
        for took in measure(&profile, 8).unwrap() {
            assert!(took.all > 0 && took.drive > 0, "{took:?}");
        }
    }
}
