//! A whole drive: blocks of one that was used until its process died are changed, checksums made right where the input says
//! so, and so is what that process left in the survivor; then the drive is mounted, read, checked, used, and mounted again,
//! and what is below everything is salvaged. No panic, no hang; what was synced after the mount is there after the next.
//!
//! Input: a byte of choices, then per change a block (2 bytes), a place in it (2 bytes) and a byte.

#![no_main]

use imbrex_bluefs::salvage::Salvage;
use imbrex_bluefs::{BlueFs, Code, CreateOptions, FileKind, Options};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Fill, Geometry, HeapSurvivor, Identity, Region, Result, Survivor, SurvivorKey, Tag, Zone,
    ZoneId, ZoneOp, ZonedDevice, report_all,
};
use imbrex_drives::overlay::Overlay;
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_zones::frame::FRAME_HEADER;
use imbrex_zones::{Exec, VolumeOptions};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

const BLOCK: usize = 4096;
const TAG: Tag = Tag::new(Cause::Check);
/// Choices of an input.
const WITH_SURVIVOR: u8 = 1;
const SEALED: u8 = 2;
const SALVAGED: u8 = 4;

fn options() -> Options {
    Options {
        cache_bytes: 0,
        journal_bytes: 64 << 10,
        segment_bytes: 64 << 10,
        volume: VolumeOptions {
            exec: Exec::Inline,
            survivor_bytes: 1 << 20,
            unit_bytes: 16 << 10,
            turn_bytes: 256 << 10,
        },
        ..Options::default()
    }
}

/// A survivor that gives the first who asks what it was told, whatever the key.
#[derive(Default)]
struct Memory {
    heap: HeapSurvivor,
    first: Mutex<Option<Vec<u8>>>,
    key: Mutex<Option<SurvivorKey>>,
}

impl Memory {
    /// What the process that has it now would leave.
    fn left(&self) -> Option<Vec<u8>> {
        let key = (*self.key.lock().expect("a lock"))?;
        self.heap.left_behind(&key).expect("a copy")
    }
}

impl Survivor for Memory {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        match self.first.lock().expect("a lock").take() {
            Some(bytes) => Ok(Some(bytes)),
            None => self.heap.left_behind(key),
        }
    }
    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        *self.key.lock().expect("a lock") = Some(*key);
        self.heap.create_filled(key, capacity, fill)
    }
    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        self.heap.discard(volume)
    }
}

struct Used {
    emulator: Emulator,
    left: Vec<u8>,
    /// Addresses of the blocks that are not all zeros.
    blocks: Vec<u64>,
}

fn write(fs: &BlueFs, path: &str, pieces: usize, piece: usize) {
    let mut file = fs.create(path, CreateOptions::default()).expect("a file");
    for i in 0..pieces {
        file.append(&vec![i as u8 + 1; piece]).expect("an append");
        file.sync().expect("a sync");
    }
    file.close().expect("a close");
}

/// A drive with files of every kind, whose process died; one without conventional zones, where small files stand in the
/// journal.
fn used(conventional: u32) -> Used {
    let overrides = Overrides { capacity: Some(20 << 20), conventional: Some(conventional), ..Overrides::default() };
    let emulator = Emulator::memory(&Config::named("tiny", &overrides).expect("a profile")).expect("a drive");
    let survivor = Arc::new(Memory::default());
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) };
    BlueFs::format(&drive, false).expect("a format");
    let fs = BlueFs::mount(drive, options()).expect("a mount");
    fs.mkdir("/db").expect("a directory");
    write(&fs, "/db/000001.sst", 3, 5000);
    write(&fs, "/db/CURRENT", 1, 16);
    write(&fs, "/db/000002.log", 4, 700);
    fs.rename("/db/000001.sst", "/db/000003.sst").expect("a rename");
    fs.link("/db/000003.sst", "/link").expect("a link");
    write(&fs, "/gone.sst", 1, 9000);
    fs.unlink("/gone.sst").expect("an unlink");
    let log = fs.create("/db/000004.log", CreateOptions::default()).expect("a log");
    log.append(&[9; 3000]).expect("an append");
    // Killed: nothing of this is drained.
    std::mem::forget((log, fs));
    let left = survivor.left().expect("a region");
    let geometry = emulator.geometry().clone();
    let mut blocks = Vec::new();
    let mut buf = AlignedBuf::zeroed(BLOCK);
    for at in (0..geometry.size()).step_by(BLOCK) {
        emulator.read_at(&mut buf, at, TAG).expect("a read");
        if buf.iter().any(|byte| *byte != 0) {
            blocks.push(at);
        }
    }
    assert!(blocks.len() > 20 && !left.is_empty());
    Used { emulator, left, blocks }
}

static DRIVES: LazyLock<[Used; 2]> = LazyLock::new(|| [used(4), used(0)]);

/// A drive some of whose blocks are other ones; only to read.
struct Changed {
    below: Emulator,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl ZonedDevice for Changed {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.below.read_at(buf, at, tag)?;
        for (block, bytes) in self.blocks.range(at..at + buf.len() as u64) {
            buf[(block - at) as usize..][..BLOCK].copy_from_slice(bytes);
        }
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64, _: Tag) -> Result<()> {
        unreachable!("an overlay takes every write")
    }
    fn flush(&self, _: Tag) -> Result<()> {
        Ok(())
    }
    fn zone_op(&self, _: ZoneOp, _: ZoneId, _: Tag) -> Result<()> {
        unreachable!("an overlay takes every operation")
    }
    fn write_cache(&self) -> Result<bool> {
        Ok(true)
    }
    fn set_write_cache(&self, _: bool) -> Result<()> {
        Ok(())
    }
}

fn word(block: &[u8], at: usize) -> usize {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]) as usize
}

/// Makes the checksum at `at` of the first `len` bytes right.
fn put_crc(bytes: &mut [u8], at: usize, len: usize) {
    let len = len.clamp(at + 4, bytes.len());
    bytes[at..at + 4].fill(0);
    let crc = crc32c::crc32c(&bytes[..len]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Seals whatever the block at `at` says it is.
fn seal(blocks: &mut BTreeMap<u64, Vec<u8>>, below: &Emulator, at: u64) {
    let Some(block) = blocks.get_mut(&at) else { return };
    if block.starts_with(b"IMBXLABL") {
        let len = word(block, 12);
        put_crc(block, 16, len);
    } else if block.starts_with(b"IMBXzone") {
        put_crc(block, 16, 336);
    } else if block.starts_with(b"IMfr") {
        let end = FRAME_HEADER + word(block, 48);
        let mut payload = block.clone();
        let mut next = AlignedBuf::zeroed(BLOCK);
        while payload.len() < end.min(64 << 10) {
            let here = at + payload.len() as u64;
            match blocks.get(&here) {
                Some(bytes) => payload.extend_from_slice(bytes),
                None if below.read_at(&mut next, here, TAG).is_ok() => payload.extend_from_slice(&next),
                None => return,
            }
        }
        let crc = payload.get(FRAME_HEADER..end).map_or(0, crc32c::crc32c);
        let Some(block) = blocks.get_mut(&at) else { return };
        block[56..60].copy_from_slice(&crc.to_le_bytes());
        block[60..64].fill(0);
        let crc = crc32c::crc32c(&block[..FRAME_HEADER]);
        block[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Everything below a directory is read, as far as it can be.
fn read_all(fs: &BlueFs) -> usize {
    let mut names = 0;
    let mut left = vec![String::from("/")];
    while let Some(path) = left.pop() {
        for entry in fs.list(&path).expect("a directory that was listed") {
            names += 1;
            assert!(names < 10_000, "more names than the drive has room for");
            let path = format!("{}/{}", path.trim_end_matches('/'), entry.name);
            if entry.attributes.kind == FileKind::Directory {
                left.push(path);
                continue;
            }
            let _ = fs.runs(&path);
            let Ok(reader) = fs.open_read(&path) else { continue };
            let mut buf = vec![0; 64 << 10];
            for at in (0..reader.size().min(1 << 20)).step_by(buf.len()) {
                let _ = reader.read_at(at, &mut buf);
            }
            let _ = reader.read_at(reader.size().saturating_sub(7), &mut buf);
        }
    }
    names
}

/// Mounts, looks at everything, writes a log; returns how many names there were, and whether the log is durable.
fn go(drive: &Drive) -> Option<(usize, bool)> {
    let fs = BlueFs::mount(drive.clone(), options()).ok()?;
    let _ = fs.check(|_, _| {});
    let names = read_all(&fs);
    let durable = (|| -> imbrex_bluefs::Result<()> {
        let log = fs.create("/written.log", CreateOptions::default())?;
        log.append(b"after the mount")?;
        log.sync()
    })();
    if let Err(error) = &durable {
        assert_ne!(error.code(), Code::Panic);
    }
    Some((names, durable.is_ok()))
}

fuzz_target!(|data: &[u8]| {
    let Some((choices, changes)) = data.split_first() else { return };
    let used = &DRIVES[usize::from(choices >> 7)];
    let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut left = used.left.clone();
    let mut buf = AlignedBuf::zeroed(BLOCK);
    for change in changes.chunks_exact(5) {
        let (which, value) = (usize::from(u16::from_le_bytes([change[0], change[1]])), change[4]);
        let at = usize::from(u16::from_le_bytes([change[2], change[3]]));
        // The last block stands for the survivor.
        match used.blocks.get(which % (used.blocks.len() + 1)) {
            None => left[at] = value,
            Some(block) => {
                let bytes = blocks.entry(*block).or_insert_with(|| {
                    used.emulator.read_at(&mut buf, *block, TAG).expect("a read");
                    buf.to_vec()
                });
                bytes[at % BLOCK] = value;
            }
        }
    }
    if choices & SEALED != 0 {
        let all: Vec<u64> = blocks.keys().copied().collect();
        all.into_iter().for_each(|at| seal(&mut blocks, &used.emulator, at));
    }
    let changed = Arc::new(Changed { below: used.emulator.clone(), blocks });
    let survivor = Arc::new(Memory::default());
    if choices & WITH_SURVIVOR != 0 {
        *survivor.first.lock().expect("a lock") = Some(left);
    }
    let cover = || Arc::new(Overlay::new(changed.clone(), 64 << 20).expect("an overlay"));
    if choices & SALVAGED != 0 {
        let drive = Drive { device: cover(), survivor: None };
        if let Ok(found) = Salvage::search(&drive, true, &mut |_, _| {}) {
            found.fs().map(read_all);
            for file in found.lost_files() {
                let _ = found.rebuild(file, &mut |at, bytes| {
                    assert!(
                        bytes.len() as u64 <= changed.geometry().size() && at.checked_add(bytes.len() as u64).is_some()
                    );
                    Ok(())
                });
            }
        }
    }
    let device = cover();
    assert_eq!(report_all(device.as_ref()).expect("a report").len(), device.geometry().zones as usize);
    let drive = Drive { device, survivor: Some(survivor) };
    let Some((names, durable)) = go(&drive) else { return };
    if durable {
        let fs = BlueFs::mount(drive.clone(), options()).expect("a drive that was just mounted");
        let reader = fs.open_read("/written.log").expect("what was synced");
        let mut got = [0; 15];
        assert_eq!(reader.read_at(0, &mut got).expect("what was synced"), 15);
        assert_eq!(&got, b"after the mount");
        assert!(read_all(&fs) >= names, "names that were there before");
    }
});
