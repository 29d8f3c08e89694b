//! What the tests on tiny drives have in common.

use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options};
use imbrex_device::{AlignedBuf, Cause, Drive, Geometry, Identity, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::log::format::{LogFrame, LogHead, read_zone};
use imbrex_zones::log::items::Assembler;
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small buffers, a clock of its own, no threads.
pub fn options() -> Options {
    let clock = AtomicU64::new(1);
    Options {
        volume: VolumeOptions {
            exec: Exec::Inline,
            survivor_bytes: 1 << 20,
            unit_bytes: 16 << 10,
            turn_bytes: 1 << 20,
        },
        buffer_bytes: 512 << 10,
        segment_bytes: 32 << 10,
        checkpoint_bytes: 1 << 20,
        tell_bytes: 300 << 10,
        clock: Arc::new(move || clock.fetch_add(1, Ordering::Relaxed)),
        ..Options::default()
    }
}

/// 64 zones of 256 KiB, four of them conventional.
pub fn config() -> Config {
    Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() }
}

pub fn format(emulator: &Emulator) {
    let options = FormatOptions { uuid: Some(*b"chunkstore-tests"), force: false };
    ChunkStore::format(&drive(emulator), &options).unwrap();
}

pub fn drive(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: None }
}

/// A new drive with an open store.
pub fn fresh(config: &Config) -> (Emulator, ChunkStore) {
    let emulator = Emulator::memory(config).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    (emulator, store)
}

pub fn id(n: u64) -> ChunkId {
    ChunkId::of_number(n)
}

/// Bytes that differ by place and seed, so that no piece of them looks like another.
pub fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let word = |i: usize| {
        let mut z = (seed << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_le_bytes()
    };
    // By words: a third of the time of some tests went into this, byte by byte.
    let mut all = vec![0; n.next_multiple_of(8)];
    all.chunks_exact_mut(8).enumerate().for_each(|(i, to)| to.copy_from_slice(&word(i)));
    all.truncate(n);
    all
}

pub fn content(store: &ChunkStore, id: ChunkId) -> Vec<u8> {
    let mut out = vec![0; store.stat(id).unwrap().len as usize];
    assert_eq!(store.read(id, 0, &mut out).unwrap(), out.len());
    out
}

pub const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

/// How a [`Heard`] drive reads.
pub type Reads = Box<dyn Fn(&dyn ZonedDevice, &mut [u8], u64, Tag) -> imbrex_device::Result<()> + Send + Sync>;

/// What hears the bytes of each write before it happens.
pub type Writes = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A drive that somebody else reads for, and whose writes are heard.
pub struct Heard {
    pub drive: Arc<dyn ZonedDevice>,
    pub reads: Reads,
    pub writes: Writes,
}

impl Heard {
    /// Reads are heard before they happen; one that is answered with an error fails.
    pub fn before(
        emulator: &Emulator,
        hears: impl Fn(ZoneId, Cause) -> imbrex_device::Result<()> + Send + Sync + 'static,
    ) -> Drive {
        let reads = move |drive: &dyn ZonedDevice, buf: &mut [u8], at: u64, tag: Tag| {
            hears(drive.geometry().zone_of(at), tag.cause)?;
            drive.read_at(buf, at, tag)
        };
        let device = Heard { drive: Arc::new(emulator.clone()), reads: Box::new(reads), writes: Box::new(|_| {}) };
        Drive { device: Arc::new(device), survivor: None }
    }
}

impl ZonedDevice for Heard {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.drive.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> imbrex_device::Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> imbrex_device::Result<()> {
        (self.reads)(self.drive.as_ref(), buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> imbrex_device::Result<()> {
        (self.writes)(buf);
        self.drive.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> imbrex_device::Result<()> {
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> imbrex_device::Result<()> {
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> imbrex_device::Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> imbrex_device::Result<()> {
        self.drive.set_write_cache(on)
    }
}

/// The frames of the metadata log in these zones: the address of each on the drive, and the records or pieces that begin and end in it.
pub fn log_frames(emulator: &Emulator, zones: &[u32]) -> Vec<(u64, LogFrame, Vec<Vec<u8>>)> {
    let report = imbrex_device::report_all(emulator).unwrap();
    let mut found = Vec::new();
    for number in zones {
        let start = emulator.geometry().start(ZoneId(*number));
        let mut block = AlignedBuf::zeroed(4096);
        emulator.read_at(&mut block, start, Cause::Other.into()).unwrap();
        let Some(head) = LogHead::decode(&block) else { continue };
        let mut each = |at: u64, frame: &LogFrame, items: &[u8]| {
            let mut whole = Vec::new();
            Assembler::default().put(frame.first as usize, items, &mut |item| whole.push(item.to_vec()));
            found.push((start + at, *frame, whole));
        };
        read_zone(emulator, &report[*number as usize], (head.copy, head.life), &mut each).unwrap();
    }
    found
}
