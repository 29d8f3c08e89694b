//! `chunk-cpu`: what appends and reads of 1 MiB cost the processor, on a drive in memory whose pages are there already (DESIGN, section 8). The
//! drive's own copy is in it; nothing waits and nobody else runs in this thread.

use super::chart::{Axis, Chart, Shape};
use super::result::{Ratio, Row};
use super::stepped::why;
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_zones::{Exec, VolumeOptions};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-cpu",
    about: "CPU seconds a GiB for appends and reads of 1 MiB, checksums included, on a drive in memory",
    paper: "SMRSTORE, section 6.5",
    speed: 1.0,
    rows: |_| [APPEND, READ].map(str::to_owned).into(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 3 << 30 },
    run,
};

const APPEND: &str = "appends of 1 MiB";
const READ: &str = "reads of 1 MiB";
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

/// Nanoseconds of the processor for so many appends, and for reading them again.
fn measure(profile: &Profile, appends: u64) -> Result<[u64; 2], Stop> {
    let zones = 12 + appends.div_ceil(A_CHUNK) + 4;
    let over = Overrides {
        capacity: Some(zones * ZONE),
        zone_size: Some(ZONE),
        conventional: Some(0),
        ..Overrides::default()
    };
    let emulator = Emulator::memory_prefaulted(&Config::new(profile, &over)).map_err(why)?;
    let drive = Drive { device: Arc::new(emulator), survivor: None };
    ChunkStore::format(&drive, &FormatOptions::default()).map_err(why)?;
    let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
    let store =
        ChunkStore::open(drive, Options { volume, buffer_bytes: 32 * MIB, ..Options::default() }).map_err(why)?;
    let mut bytes: Vec<u8> = (0..MIB as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let expected = bytes.clone();
    let how = Append { offset: None, durability: Durability::Buffered };
    let chunk = |i: u64| ChunkId::of_number(i / A_CHUNK);
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
    Ok([appended, read])
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
            let ns = measure(&profile, mib)?[i].max(1);
            let mut row = Row::new("", "memory");
            row.rule = Rule::Fewer.name().into();
            row.operations = Some(mib);
            let gib = mib as f64 / 1024.0;
            row.figures.insert("CPU seconds a GiB".into(), ns as f64 / 1e9 / gib);
            row.figures.insert("GB/s of one core".into(), (mib * MIB) as f64 / ns as f64);
            Ok(row)
        })?;
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
        let [appended, read] = measure(&profile, 8).unwrap();
        assert!(appended > 0 && read > 0, "{appended} {read}");
    }
}
