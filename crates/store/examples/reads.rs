//! Reads of an object that was overwritten at random, on the model of a host-managed disk, in real time: one command at a time, and several at once with the
//! threads of the volume. For a first look; the experiments are `imbrex bench`.
//!
//! `cargo run --release -p imbrex-store --example reads`

use imbrex_device::Drive;
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_store::{CollectionId, ObjectId, Options, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const OBJECT: u64 = 64 << 20;
const BLOCK: u64 = 4096;
const READS: u64 = 24;
/// Overwrites come in so many parts, and others write so many bytes between: then they are far apart.
const PARTS: u64 = 24;
const OTHERS: u64 = 64 << 20;

fn name() -> ObjectId {
    ObjectId::new(1, b"", b"object")
}

fn options(exec: Exec) -> Options {
    let volume = VolumeOptions { exec, ..VolumeOptions::default() };
    // The drive is there for these reads alone.
    let store = imbrex_bluestore::Options { scrub: None, ..imbrex_bluestore::Options::default() };
    Options { volume, store, ..Options::default() }
}

/// A drive with an object that was written in order, and then block by block, as many bytes as `part` of it.
fn written(profile: &str, part: f64) -> Result<Emulator, Failure> {
    let over = Overrides { capacity: Some(32 << 30), ..Overrides::default() };
    let config = Config { max_open: None, max_active: None, ..Config::named(profile, &over)? };
    let emulator = Emulator::memory(&config)?;
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Store::format(&drive, None, false)?;
    let store = Store::open(drive, options(Exec::Inline))?;
    let mut begin = Transaction::new();
    begin.create_collection(ALL, 0);
    store.commit(begin)?;
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let noise: Vec<u8> = (0..1 << 20).map(|_| next(256) as u8).collect();
    let put = |name: &ObjectId, at: u64, len: u64| -> Result<(), Failure> {
        let mut transaction = Transaction::new();
        transaction.write(ALL, name, at, &noise[..len as usize]);
        store.queue(transaction)?;
        Ok(())
    };
    (0..OBJECT >> 20).try_for_each(|n| put(&name(), n << 20, 1 << 20))?;
    let blocks = (part * (OBJECT / BLOCK) as f64) as u64;
    for n in 0..if blocks > 0 { PARTS } else { 0 } {
        (0..blocks / PARTS).try_for_each(|_| put(&name(), next(OBJECT / BLOCK) * BLOCK, BLOCK))?;
        while store.pack()? {}
        let other = ObjectId::new(1, b"", format!("other {n}").as_bytes());
        (0..OTHERS >> 20).try_for_each(|n| put(&other, n << 20, 1 << 20))?;
    }
    store.sync()?;
    Ok(emulator)
}

fn main() -> Result<(), Failure> {
    println!("drive               overwritten  read      commands at once  ms each");
    for profile in ["hgst-hsh721414al"] {
        for part in [0.05, 0.5] {
            let emulator = written(profile, part)?;
            for len in [64u64 << 10, 1 << 20, 4 << 20] {
                for (exec, many) in [(Exec::Inline, "one"), (Exec::Threads(1), "several")] {
                    let emulator = emulator.fork()?;
                    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
                    emulator.keep_own_time(Pace::Real { speed: 1.0 })?;
                    let store = Store::open(drive, options(exec))?;
                    // Records are in memory then.
                    let at = |n: u64| n * 5 % (OBJECT / len) * len;
                    let mut memory = imbrex_device::AlignedBuf::zeroed(len as usize);
                    for n in 0..READS {
                        store.stored_at(ALL, &name(), at(n), len)?;
                    }
                    let begun = Instant::now();
                    for n in 0..READS {
                        store.read_into(ALL, &name(), at(n), &mut memory)?;
                    }
                    let each = begun.elapsed().as_secs_f64() * 1e3 / READS as f64;
                    println!("{profile:19} {:9.0} %  {:4} KiB  {many:>16}  {each:7.2}", part * 100.0, len >> 10);
                }
            }
        }
    }
    Ok(())
}
