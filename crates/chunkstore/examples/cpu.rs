//! What appends and reads cost the processor, on a drive in memory whose pages are there already.
//!
//! `cargo run --release -p imbrex-chunkstore --example cpu [GIB]`: prints CPU seconds (user and system, from the kernel's own
//! account of this thread) a GiB, and GB/s of one core, for appends and reads of 1 MiB.

use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
use imbrex_zones::{Exec, VolumeOptions};

/// Nanoseconds that this thread has had a processor.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gib: u64 = std::env::args().nth(1).map_or(Ok(1), |n| n.parse())?;
    let size = format!("mem:?profile=seagate-st20000nm001j&size={}G&prefault=on", gib * 2 + 4);
    let drive = imbrex_drives::open(&size, &imbrex_drives::OpenOptions::default())?;
    ChunkStore::format(&drive, &FormatOptions::default())?;
    let options = Options {
        volume: VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() },
        buffer_bytes: 32 << 20,
        ..Options::default()
    };
    let store = ChunkStore::open(drive, options)?;
    let mut bytes: Vec<u8> = (0..1 << 20).map(|i: u32| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let how = Append { offset: None, durability: Durability::Buffered };
    let report = |what: &str, ns: u64| {
        let (each, speed) = (ns as f64 / 1e9 / gib as f64, (gib << 30) as f64 / ns as f64);
        println!("{what}: {each:.3} CPU seconds a GiB, {speed:.2} GB/s of one core");
    };
    let chunk = |i: u64| ChunkId::of_number(i / 250);
    let start = on_cpu();
    for i in 0..gib << 10 {
        if i % 250 == 0 {
            store.create_with(chunk(i), StreamType::DATA, Durability::Buffered)?;
        }
        store.append_with(chunk(i), &bytes, how)?;
    }
    store.sync()?;
    report("append 1 MiB", on_cpu() - start);
    let start = on_cpu();
    for i in 0..gib << 10 {
        store.read(chunk(i), (i % 250) << 20, &mut bytes)?;
    }
    report("read 1 MiB", on_cpu() - start);
    Ok(())
}
