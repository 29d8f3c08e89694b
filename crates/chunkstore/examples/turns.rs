//! Device time of appends on the modelled 20 TB drive of SMRSTORE: how much is written between two flushes decides how long the
//! turns are, and so how much of the drive's bandwidth is left. For a first look; the experiments are `imbrex bench`.
//!
//! `cargo run --release -p imbrex-chunkstore --example turns`: so many streams append 1 MiB each, in turn, buffered; a sync
//! follows after so many appends of each.

use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
use imbrex_device::{Drive, ZonedDevice};
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

const ALL: u64 = 1 << 30;

fn run(streams: u64, depth: u64, cache: bool) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let config = Config::named("seagate-st20000nm001j", &Overrides::default())?;
    let emulator = Emulator::memory(&config)?;
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    ChunkStore::format(&drive, &FormatOptions::default())?;
    emulator.set_write_cache(cache)?;
    let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
    let store = ChunkStore::open(drive, Options { volume, buffer_bytes: 1 << 30, ..Options::default() })?;
    let bytes = vec![7; 1 << 20];
    store.sync()?;
    emulator.keep_own_time(Pace::Account)?;
    let how = Append { offset: None, durability: Durability::Buffered };
    let (mut commits, mut appended) = (0u64, 0u64);
    for _ in 0..ALL / ((streams * depth) << 20) {
        for _ in 0..depth {
            for stream in 0..streams {
                // A chunk takes 253 of them.
                let id = ChunkId::of_number((stream << 32) | (appended / 250));
                if appended.is_multiple_of(250) {
                    store.create_with(id, StreamType::GC, Durability::Buffered)?;
                }
                store.append_with(id, &bytes, how)?;
            }
            appended += 1;
        }
        store.sync()?;
        commits += 1;
    }
    let seconds = emulator.time().map_or(0.0, |time| time.elapsed - time.idle);
    Ok((((commits * streams * depth) << 20) as f64 / 1e6 / seconds, seconds / commits as f64))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("streams  MiB a stream and commit  write cache   MB/s  seconds a commit");
    for cache in [true, false] {
        for (streams, depth) in [(1, 1), (1, 16), (16, 1), (16, 4), (40, 1), (40, 4), (40, 12)] {
            let (speed, each) = run(streams, depth, cache)?;
            println!("{streams:7}  {depth:23}  {:>11}  {speed:5.1}  {each:16.3}", if cache { "on" } else { "off" });
        }
    }
    Ok(())
}
