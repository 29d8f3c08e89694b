//! A drive image: bytes of its front (header, state, counters, ring of pre-images) are changed, then it is looked at, opened,
//! used, powered off and opened again. No panic; zones that are reported are sound; what was written is read back.
//!
//! Input: per change, a place in the front (4 bytes) and a byte.

#![no_main]

use imbrex_device::{AlignedBuf, Cause, Tag, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator, Observer, OpenOptions, Overrides};
use libfuzzer_sys::fuzz_target;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::LazyLock;

const TAG: Tag = Tag::new(Cause::Check);
const HEADER: usize = 4096;

/// Where the image stands, and its front as it was when it was whole.
static IMAGE: LazyLock<(PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("imbrex-fuzz-{}.img", std::process::id()));
    let overrides = Overrides { capacity: Some(16 << 20), ..Overrides::default() };
    let config = Config { cache_bytes: 256 << 10, ..Config::named("tiny", &overrides).expect("a profile") };
    let drive = Emulator::create(&path, &config, true).expect("an image");
    let page = AlignedBuf::zeroed(HEADER);
    for at in [0, 8 << 10, 5 << 20, 6 << 20] {
        drive.write_at(&page, at, TAG).expect("a write");
    }
    drop(drive);
    let file = std::fs::File::open(&path).expect("the image");
    let len = file.metadata().expect("its length").len() - (16 << 20);
    let mut front = vec![0; len as usize];
    file.read_exact_at(&mut front, 0).expect("its front");
    (path, front)
});

fn sound(drive: &dyn ZonedDevice) {
    for zone in report_all(drive).expect("a report") {
        assert!(zone.wp.is_none_or(|wp| wp <= drive.geometry().zone_size), "{zone:?}");
        assert!(zone.capacity <= drive.geometry().zone_size, "{zone:?}");
    }
}

fn used(drive: &Emulator) {
    sound(drive);
    let mut page = AlignedBuf::zeroed(HEADER);
    for zone in report_all(drive).expect("a report").iter().take(8) {
        let start = drive.geometry().start(zone.id);
        let _ = drive.read_at(&mut page, start, TAG);
        let at = start + zone.wp.unwrap_or(0);
        page.fill(7);
        if drive.write_at(&page, at, TAG).is_ok() {
            page.fill(0);
            drive.read_at(&mut page, at, TAG).expect("what was written");
            assert!(page.iter().all(|byte| *byte == 7), "zone {}", zone.id);
        }
    }
    let _ = drive.flush(TAG);
    sound(drive);
}

fuzz_target!(|data: &[u8]| {
    let (path, whole) = &*IMAGE;
    let mut front = whole.clone();
    let places = front.len();
    for change in data.chunks_exact(5) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize % places;
        front[at] = change[4];
    }
    if data.len() % 5 != 0 {
        front[16..20].fill(0);
        let crc = crc32c::crc32c(&front[..HEADER]);
        front[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    let file = std::fs::File::options().write(true).open(path).expect("the image");
    file.write_all_at(&front, 0).expect("its front");
    drop(file);
    if let Ok(seen) = Observer::open(path) {
        let _ = (seen.zones(), seen.stats(), seen.unflushed(), seen.holder());
    }
    let opened = Emulator::open(path, OpenOptions { read_only: true, ..OpenOptions::default() });
    if let Ok(drive) = &opened {
        sound(drive);
    }
    let can = opened.is_ok();
    drop(opened);
    let Ok(drive) = Emulator::open(path, OpenOptions::default()) else { return };
    assert!(can, "what can be written can be looked at");
    used(&drive);
    drop(drive);
    if Emulator::power_loss_image(path, 3).is_ok() {
        let drive = Emulator::open(path, OpenOptions::default()).expect("after a power loss");
        used(&drive);
    }
});
