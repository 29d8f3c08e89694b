//! What appends and reads cost the processor, on a drive in memory whose pages are there already.
//!
//! `cargo run --release -p imbrex-chunkstore --example cpu [GIB]`: prints CPU seconds (user and system, from the kernel's own
//! account of this thread) a GiB, and GB/s of one core, for appends and reads of 1 MiB; and microseconds of the first append to a chunk where many
//! are open.

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
    // Chunks of 4 KiB are known to be expected, and none of these is sealed.
    let (open, last) = (40_000, 10_000);
    let mut start = 0;
    for n in 0..open {
        let id = ChunkId::of_number(n | 1 << 40);
        if n == open - last {
            start = on_cpu();
        }
        store.create_with(id, StreamType::METADATA, Durability::Buffered)?;
        store.append_with(id, &bytes[..4096], how)?;
        if n < 100 {
            store.seal_with(id, Durability::Buffered)?;
        }
    }
    let each = (on_cpu() - start) as f64 / 1e3 / last as f64;
    println!("create and append 4 KiB with {open} chunks open: {each:.1} CPU microseconds");
    Ok(())
}
