//! What a mount after a power loss asks of the drive: few reads, in order of place, and nothing twice.
//!
//! Seconds are those of the drive on its own clock, and are printed (`--nocapture`; docs/experiments.md has them); reads are counted.

use crate::support::{bytes, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions, Options};
use imbrex_device::{Cause, Drive, HeapSurvivor};
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

/// A drive of real mechanics and zones, of which few are used, and buffers as large as they are by default.
fn drive() -> Emulator {
    drive_of(64 << 30)
}

fn drive_of(capacity: u64) -> Emulator {
    let over = Overrides { capacity: Some(capacity), conventional: Some(8), ..Overrides::default() };
    let emulator = Emulator::memory(&Config::named("hgst-hsh721414al", &over).unwrap()).unwrap();
    BlueFs::format(&with(&emulator), false).unwrap();
    emulator
}

fn with(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) }
}

fn options(exec: Exec) -> Options {
    Options { cache_bytes: 0, volume: VolumeOptions { exec, ..VolumeOptions::default() }, ..Options::default() }
}

/// As the drive is after its power failed: what was not flushed is there (`kept`) or not.
fn after_power_loss(emulator: &Emulator, kept: bool) -> Emulator {
    emulator.after_power_loss_choosing(&mut |n| if kept { n } else { 0 }).unwrap()
}

/// Mounts; how many reads that took, and seconds of the drive; with one command at a time, and as threads do it. The first is
/// returned, not unmounted.
fn mount(what: &str, emulator: &Emulator) -> (BlueFs, Emulator, u64) {
    let run = |exec| {
        let drive = emulator.fork().unwrap();
        drive.keep_own_time(Pace::Account).unwrap();
        let before = drive.stats().of(Cause::Recovery);
        let fs = BlueFs::mount(with(&drive), options(exec)).unwrap();
        let (stats, time) = (drive.stats().of(Cause::Recovery), drive.time().unwrap());
        let (reads, bytes) = (stats.reads - before.reads, stats.bytes_read - before.bytes_read);
        println!(
            "{what}, {exec:?}: {reads} reads, {bytes} bytes, {:.2} s ({:?})",
            time.elapsed, time.by_cause["recovery"]
        );
        (fs, drive, reads)
    };
    let (threaded, _, reads) = run(Exec::Threads(2));
    drop(threaded);
    let (fs, drive, inline) = run(Exec::Inline);
    assert_eq!(reads, inline, "the same reads, whoever does them");
    (fs, drive, inline)
}

#[test]
fn one_log_of_eighteen_megabytes_that_nobody_flushed() {
    let emulator = drive();
    let fs = BlueFs::mount(with(&emulator), options(Exec::Inline)).unwrap();
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    log.append(&bytes(100_000, 1)).unwrap();
    log.sync().unwrap();
    let data = bytes(18 << 20, 2);
    data.chunks(100_000).for_each(|piece| log.append(piece).unwrap());
    while fs.step().unwrap() {}
    for kept in [true, false] {
        let lost = after_power_loss(&emulator, kept);
        let (after, drive, reads) = mount(&format!("18 MB of one log, kept: {kept}"), &lost);
        assert!(read_all(&after, "/000001.log").starts_with(&bytes(100_000, 1)));
        assert!(reads <= 40, "{reads} reads");
        let (_, _, again) = mount("once more", &after_power_loss(&drive, true));
        assert!(again <= 12, "{again} reads the second time");
    }
}

#[test]
fn three_hundred_logs_and_tables_that_were_written_since_the_last_mount() {
    let emulator = drive();
    let fs = BlueFs::mount(with(&emulator), options(Exec::Inline)).unwrap();
    let mut open = Vec::new();
    for i in 0..328_u32 {
        let name = if i.is_multiple_of(2) { format!("/MANIFEST-{i:06}") } else { format!("/{i:06}.log") };
        let data = bytes(20_000 + 1000 * i as usize, i as u8);
        let writer = fs.create(&name, CreateOptions::default()).unwrap();
        writer.append(&data).unwrap();
        if i.is_multiple_of(3) {
            writer.sync().unwrap();
        }
        // Most are closed and share zones, some not.
        if i.is_multiple_of(16) { open.push(writer) } else { drop(writer) }
    }
    while fs.step().unwrap() {}
    open[0].sync().unwrap();
    let (after, drive, reads) = mount("328 files", &after_power_loss(&emulator, true));
    for i in [0, 1, 100, 327_u32] {
        let name = if i.is_multiple_of(2) { format!("/MANIFEST-{i:06}") } else { format!("/{i:06}.log") };
        assert!(read_all(&after, &name) == bytes(20_000 + 1000 * i as usize, i as u8), "{name}");
    }
    assert!(reads <= 2 * 328 + 40, "{reads} reads");
    let (_, _, again) = mount("328 files once more", &after_power_loss(&drive, true));
    assert!(again <= 12, "{again} reads: what was found is remembered");
}

#[test]
fn three_hundred_open_files_each_in_a_zone_of_its_own() {
    let emulator = drive_of(14_000_000_000_000 >> 28 << 28);
    let fs = BlueFs::mount(with(&emulator), options(Exec::Inline)).unwrap();
    let names: Vec<String> = (0..328).map(|i| format!("/{i:06}.{}", ["log", "sst", "txt"][i % 3])).collect();
    let contents = |i: usize| bytes(300_000 + 1000 * i, i as u8);
    let mut open = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let writer = fs.create(name, CreateOptions::default()).unwrap();
        writer.append(&contents(i)).unwrap();
        writer.sync().unwrap();
        writer.append(&contents(i)[..90_000]).unwrap();
        open.push(writer);
    }
    while fs.step().unwrap() {}
    let (after, drive, reads) = mount("328 open files", &after_power_loss(&emulator, true));
    for (i, name) in names.iter().enumerate() {
        assert!(read_all(&after, name).starts_with(&contents(i)), "{name}");
    }
    assert!(reads <= 2 * 328 + 40, "{reads} reads");
    let (_, _, again) = mount("328 open files once more", &after_power_loss(&drive, true));
    assert!(again <= 12, "{again} reads: what was found is remembered");
}

#[test]
fn a_copy_of_a_drive_of_many_files_that_was_unmounted() {
    let emulator = drive();
    let fs = BlueFs::mount(with(&emulator), options(Exec::Inline)).unwrap();
    for i in 0..1500_u32 {
        let data = bytes(100_000 + 200 * i as usize, i as u8);
        let writer = fs.create(&format!("/MANIFEST-{i:06}"), CreateOptions::default()).unwrap();
        writer.append(&data).unwrap();
        drop(writer);
        // Dead bytes behind those that live.
        if i % 5 > 1 {
            fs.unlink(&format!("/MANIFEST-{i:06}")).unwrap();
        }
    }
    drop(fs);
    // A copy does not have the drive's word that its power never failed.
    let (after, drive, reads) = mount("a copied drive", &after_power_loss(&emulator, true));
    assert!(read_all(&after, "/MANIFEST-001000") == bytes(300_000, 1000_u32 as u8));
    assert!(reads <= 20, "{reads} reads");
    drop(after);
    let (_, _, again) = mount("a copy of the copy", &after_power_loss(&drive, true));
    assert!(again <= 20, "{again} reads");
}
