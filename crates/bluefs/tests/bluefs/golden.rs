//! Yesterday's drives open today: images made by the code of each format version are opened, checked and read exactly.
//!
//! Three files for each version in `golden/`: `vN.drive`, a drive in the middle of its work; `vN.survivor`, the memory that
//! its killed process left; `vN.image`, the file of an emulated drive (header, state words, zone table, pre-images) with a
//! file system on it. All three are lists of runs of bytes (8 bytes offset, 4 bytes length, the bytes), because nearly all
//! of a drive is zeros; `vN.drive` begins with the write pointers.
//!
//! After a change of the format: raise [`FORMAT`], run with `IMBREX_GOLDEN=write`, commit the new files. What is there is
//! never written again.

use imbrex_bluefs::{BlueFs, CreateOptions, Options, TENANT};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Fill, Geometry, HeapSurvivor, Region, Survivor, SurvivorKey, Tag, ZoneId, ZoneState,
    ZonedDevice, report_all, zeroed_region,
};
use imbrex_emulator::{Config, Emulator, OpenOptions};
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The newest version of the format: the highest of those of label, zone header, frame, root, survivor and image.
const FORMAT: u32 = 2;
const TAG: Tag = Tag::new(Cause::Other);
const NOW: u64 = 1_767_225_600_000_000_000;
const VOLUME: [u8; 16] = *b"a golden volume!";
/// The mount that was killed.
const MOUNT: u64 = 2;

/// The header of a survivor's file, as version 1 writes it.
const SURVIVOR_HEADER_V1: &str = "494d42585355525601000000580000006120676f6c64656e20766f6c756d6521020202020202020202020202020202\
                                  0203030303030303030303030303030303040000000000000000002000000000000000000\
                                  00c395e6b";

fn options() -> Options {
    Options {
        cache_bytes: 0,
        journal_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        volume: VolumeOptions {
            exec: Exec::Inline,
            survivor_bytes: 1 << 20,
            unit_bytes: 16 << 10,
            turn_bytes: 1 << 20,
        },
        clock: Arc::new(|| NOW),
        ..Options::default()
    }
}

/// Bytes of a file: mostly zeros, so that the images stay small, but each at a place of its own.
fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| if i % 97 == 0 { (i / 97) as u8 ^ seed } else { 0 }).collect()
}

/// A file and what it holds; for those that were being written, how much of it was synced.
struct Expected {
    path: &'static str,
    bytes: Vec<u8>,
    synced: usize,
}

fn expected() -> Vec<Expected> {
    let whole = |path, bytes: Vec<u8>| Expected { path, synced: bytes.len(), bytes };
    let mut patched = bytes(9000, 2);
    patched[5000..5003].copy_from_slice(b"new");
    vec![
        Expected { path: "/db/000005.log", bytes: bytes(900, 5), synced: 600 },
        whole("/db/000002.sst", patched),
        Expected { path: "/db/000006.sst", bytes: bytes(6000, 6), synced: 4500 },
        whole("/db/CURRENT", b"MANIFEST-000003\n".to_vec()),
        whole("/db/sub/same", b"MANIFEST-000003\n".to_vec()),
        whole("/db/MANIFEST-000003", bytes(700, 3)),
        whole("/db/LOG", bytes(250, 4)),
    ]
}

fn write(fs: &BlueFs, path: &str, data: &[u8]) {
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

fn format(drive: &Drive) {
    let tenants = vec![TenantSpec { name: TENANT.into(), reserve: imbrex_bluefs::RESERVE }];
    Volume::format(drive, &FormatOptions { uuid: Some(VOLUME), tenants, force: false }).unwrap();
}

/// What the first mount does, before it is unmounted.
fn populate(fs: &BlueFs) {
    fs.mkdir("/db").unwrap();
    fs.mkdir("/db/gone").unwrap();
    fs.mkdir("/db/sub").unwrap();
    write(fs, "/db/000001.log", &bytes(300, 1));
    write(fs, "/db/000002.sst", &bytes(9000, 2));
    write(fs, "/db/000003.dbtmp", b"MANIFEST-000003\n");
    fs.rename("/db/000003.dbtmp", "/db/CURRENT").unwrap();
    fs.link("/db/CURRENT", "/db/sub/same").unwrap();
    write(fs, "/db/MANIFEST-000003", &bytes(700, 3));
    write(fs, "/db/LOG", &bytes(400, 4));
}

/// What the second mount does before its process is killed. The handles that it returns are lost with it.
fn work(fs: &BlueFs) -> impl Sized + use<> {
    fs.unlink("/db/000001.log").unwrap();
    fs.rmdir("/db/gone").unwrap();
    fs.truncate("/db/LOG", 250).unwrap();
    let table = fs.open_random("/db/000002.sst", false).unwrap();
    table.write_at(5000, b"new").unwrap();
    table.sync().unwrap();
    let log = fs.create("/db/000005.log", CreateOptions::default()).unwrap();
    for piece in bytes(600, 5).chunks(200) {
        log.append(piece).unwrap();
        log.sync().unwrap();
    }
    log.append(&bytes(900, 5)[600..]).unwrap();
    let growing = fs.create("/db/000006.sst", CreateOptions::default()).unwrap();
    growing.append(&bytes(4500, 6)).unwrap();
    growing.sync().unwrap();
    growing.append(&bytes(6000, 6)[4500..]).unwrap();
    (table, log, growing)
}

// ---- runs of bytes

/// The runs of `data` that are not zeros, `base` added to their offsets.
fn runs(data: &[u8], base: u64, out: &mut Vec<u8>) {
    const GAP: usize = 16;
    let mut at = 0;
    while let Some(start) = data[at..].iter().position(|b| *b != 0).map(|i| at + i) {
        let mut end = start + 1;
        while let Some(next) = data[end..].iter().take(GAP).position(|b| *b != 0) {
            end += next + 1;
        }
        out.extend((base + start as u64).to_le_bytes());
        out.extend(((end - start) as u32).to_le_bytes());
        out.extend(&data[start..end]);
        at = end;
    }
}

fn each_run(mut list: &[u8], mut each: impl FnMut(u64, &[u8])) {
    while !list.is_empty() {
        let offset = u64::from_le_bytes(list[..8].try_into().unwrap());
        let len = u32::from_le_bytes(list[8..12].try_into().unwrap()) as usize;
        each(offset, &list[12..12 + len]);
        list = &list[12 + len..];
    }
}

fn dense(list: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    each_run(list, |at, bytes| out[at as usize..at as usize + bytes.len()].copy_from_slice(bytes));
    out
}

// ---- a drive as bytes

fn config() -> Config {
    Config { uuid: *b"a golden medium!", ..Config::tiny() }
}

/// Number of zones, a write pointer each (all ones: conventional), then runs.
fn capture(device: &dyn ZonedDevice) -> Vec<u8> {
    let (zones, size) = (report_all(device).unwrap(), device.geometry().zone_size);
    let mut out = (zones.len() as u32).to_le_bytes().to_vec();
    for zone in &zones {
        out.extend(zone.wp.unwrap_or(u64::MAX).to_le_bytes());
    }
    let mut buf = AlignedBuf::zeroed(size as usize);
    for zone in &zones {
        let start = device.geometry().start(zone.id);
        for (i, piece) in buf.chunks_mut(device.geometry().max_io as usize).enumerate() {
            let at = start + i as u64 * u64::from(device.geometry().max_io);
            device.read_at(piece, at, TAG).unwrap();
        }
        runs(&buf, start, &mut out);
    }
    out
}

fn restore(golden: &[u8]) -> Emulator {
    let drive = Emulator::memory(&config()).unwrap();
    let geometry: Geometry = drive.geometry().clone();
    let zones = u32::from_le_bytes(golden[..4].try_into().unwrap()) as usize;
    assert_eq!(zones, geometry.zones as usize);
    let (pointers, list) = golden[4..].split_at(zones * 8);
    let all = dense(list, geometry.size() as usize);
    for (i, wp) in pointers.chunks_exact(8).enumerate() {
        let start = geometry.start(ZoneId(i as u32)) as usize;
        let wp = u64::from_le_bytes(wp.try_into().unwrap()).min(geometry.zone_size) as usize;
        if wp > 0 {
            let buf = AlignedBuf::padded(&all[start..start + wp], 4096);
            for (i, piece) in buf.chunks(geometry.max_io as usize).enumerate() {
                drive.write_at(piece, start as u64 + i as u64 * u64::from(geometry.max_io), TAG).unwrap();
            }
        }
    }
    drive.flush(TAG).unwrap();
    drive
}

/// Holds the golden region, for its own key only.
struct Kept {
    key: SurvivorKey,
    bytes: Vec<u8>,
}

impl Survivor for Kept {
    fn left_behind(&self, key: &SurvivorKey) -> imbrex_device::Result<Option<Vec<u8>>> {
        Ok((*key == self.key).then(|| self.bytes.clone()))
    }
    fn create_filled(
        &self,
        _: &SurvivorKey,
        capacity: usize,
        fill: &mut Fill<'_>,
    ) -> imbrex_device::Result<Arc<dyn Region>> {
        let region = zeroed_region(capacity);
        fill(&region)?;
        Ok(region)
    }
    fn discard(&self, _: &[u8; 16]) -> imbrex_device::Result<()> {
        Ok(())
    }
}

fn key(device: &dyn ZonedDevice) -> SurvivorKey {
    let identity = device.identity();
    SurvivorKey { volume: VOLUME, medium: identity.medium, power_epoch: identity.power_epoch, mount: MOUNT }
}

fn path(version: u32, what: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}.{what}"))
}

fn golden(version: u32, what: &str) -> Vec<u8> {
    let path = path(version, what);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; IMBREX_GOLDEN=write makes it", path.display()))
}

/// Where nobody asked for new images, nothing.
fn keep(what: &str, made: impl FnOnce() -> Vec<u8>) {
    if std::env::var("IMBREX_GOLDEN").is_ok_and(|v| v == "write") && !path(FORMAT, what).exists() {
        std::fs::write(path(FORMAT, what), made()).unwrap();
    }
}

fn killed() -> (Emulator, HeapSurvivor) {
    let emulator = Emulator::memory(&config()).unwrap();
    let survivor = Arc::new(HeapSurvivor::new());
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) };
    format(&drive);
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    populate(&fs);
    drop(fs);
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert_eq!(fs.volume().mount(), MOUNT);
    let handles = work(&fs);
    let left = survivor.snapshot();
    std::mem::forget((handles, fs));
    (emulator, left)
}

fn read(fs: &BlueFs, path: &str) -> Vec<u8> {
    let reader = fs.open_read(path).unwrap();
    let mut out = vec![0; reader.size() as usize];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), out.len(), "{path}");
    out
}

fn names(fs: &BlueFs, dir: &str) -> Vec<String> {
    fs.list(dir).unwrap().into_iter().map(|e| e.name).collect()
}

fn holds_everything(fs: &BlueFs, synced_only: bool) {
    assert_eq!(fs.mount_report().damage, Vec::<String>::new());
    assert_eq!(names(fs, "/"), ["db"]);
    let db = ["000002.sst", "000005.log", "000006.sst", "CURRENT", "LOG", "MANIFEST-000003", "sub"];
    assert_eq!(names(fs, "/db"), db);
    assert_eq!(names(fs, "/db/sub"), ["same"]);
    for file in expected() {
        let want = if synced_only { &file.bytes[..file.synced] } else { &file.bytes[..] };
        assert_eq!(read(fs, file.path), want, "{}", file.path);
    }
    assert_eq!(fs.stat("/db/CURRENT").unwrap().serial, fs.stat("/db/sub/same").unwrap().serial);
    assert_eq!((fs.stat("/db/CURRENT").unwrap().links, fs.stat("/db/LOG").unwrap().modified), (2, NOW));
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    write(fs, "/db/new.log", &bytes(100, 9));
    assert_eq!(read(fs, "/db/new.log"), bytes(100, 9));
}

#[test]
fn a_killed_process_of_every_version_is_recovered() {
    keep("drive", || capture(&killed().0));
    keep("survivor", || {
        let (emulator, left) = killed();
        let mut list = Vec::new();
        let region = left.left_behind(&key(&emulator)).unwrap().unwrap();
        runs(&region, 0, &mut list);
        list
    });
    for version in 1..=FORMAT {
        let emulator = restore(&golden(version, "drive"));
        let kept = Kept { key: key(&emulator), bytes: dense(&golden(version, "survivor"), 1 << 20) };
        let left = imbrex_zones::memory::parse(&kept.bytes);
        assert!(left.len() >= 2, "unwritten bytes of the log and of the growing table");
        let drive = Drive { device: Arc::new(emulator), survivor: Some(Arc::new(kept)) };
        let fs = BlueFs::mount(drive.clone(), options()).unwrap();
        assert!(fs.mount_report().replayed_bytes >= 300 + 1500 && !fs.mount_report().clean);
        assert_eq!(fs.volume().uuid(), VOLUME);
        holds_everything(&fs, false);
        drop(fs);
        assert!(BlueFs::mount(drive, options()).unwrap().mount_report().clean);
    }
}

#[test]
fn after_a_power_loss_every_version_has_what_was_synced() {
    for version in 1..=FORMAT {
        let emulator = restore(&golden(version, "drive")).after_power_loss(1).unwrap();
        let fs = BlueFs::mount(Drive { device: Arc::new(emulator), survivor: None }, options()).unwrap();
        assert!(fs.mount_report().power_lost);
        holds_everything(&fs, true);
    }
}

/// The mark of the host's boot in an image (docs/on-disk-format.md).
const BOOT: std::ops::Range<usize> = 4096 + 48..4096 + 56;

#[test]
fn drive_images_of_every_version_open() {
    let dir = tempfile::tempdir().unwrap();
    keep("image", || {
        let made = dir.path().join("made.img");
        let emulator = Emulator::create(&made, &Config::tiny(), false).unwrap();
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
        format(&drive);
        let fs = BlueFs::mount(drive, options()).unwrap();
        write(&fs, "/CURRENT", b"old");
        // Not flushed: what it replaces stands in the ring of pre-images.
        fs.open_random("/CURRENT", false).unwrap().write_at(0, b"new").unwrap();
        let len = std::fs::metadata(&made).unwrap().len();
        let mut list = len.to_le_bytes().to_vec();
        runs(&std::fs::read(&made).unwrap(), 0, &mut list);
        std::mem::forget(fs);
        list
    });
    // Of another boot of the host what was not flushed would be gone: the process died, the host did not.
    let own = dir.path().join("own.img");
    drop(Emulator::create(&own, &Config::tiny(), false).unwrap());
    let boot = std::fs::read(&own).unwrap()[BOOT].to_vec();
    for version in 1..=FORMAT {
        let golden = golden(version, "image");
        let (len, list) = golden.split_at(8);
        let mut file = dense(list, u64::from_le_bytes(len.try_into().unwrap()) as usize);
        file[BOOT].copy_from_slice(&boot);
        for cut in [false, true] {
            let path = dir.path().join(format!("v{version}-{cut}.img"));
            std::fs::write(&path, &file).unwrap();
            if cut {
                assert!(!Emulator::power_loss_image(&path, 0).unwrap().is_empty(), "something was at risk");
            }
            let emulator = Emulator::open(&path, OpenOptions::default()).unwrap();
            assert_eq!(emulator.config().zones(), Config::tiny().zones());
            assert_eq!(emulator.unflushed().is_empty(), cut);
            assert!(
                report_all(&emulator)
                    .unwrap()
                    .iter()
                    .any(|zone| zone.state == ZoneState::ImplicitlyOpen || zone.state == ZoneState::Closed)
            );
            let fs = BlueFs::mount(Drive { device: Arc::new(emulator), survivor: None }, options()).unwrap();
            let now = read(&fs, "/CURRENT");
            assert!(now == b"new" || (cut && now == b"old"), "{now:?}");
            assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn the_header_of_a_survivor_is_what_it_was() {
    let header = imbrex_drives::survivor::Header {
        key: SurvivorKey { volume: VOLUME, medium: [2; 16], power_epoch: [3; 16], mount: 4 },
        capacity: 2 << 20,
    };
    let hex: String = header.encode().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, SURVIVOR_HEADER_V1);
}
