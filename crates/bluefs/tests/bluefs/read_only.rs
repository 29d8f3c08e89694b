//! Looking at a drive: it sees what a mount would see, and drive and survivor stay as they are.

use imbrex_bluefs::{BlueFs, Code, CreateOptions, Options};
use imbrex_device::{AlignedBuf, Cause, Drive, HeapSurvivor, Zone, ZoneId, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

fn options(read_only: bool) -> Options {
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 2 << 20, unit_bytes: 16 << 10, turn_bytes: 256 << 10 };
    Options { cache_bytes: 0, journal_bytes: 1 << 20, segment_bytes: 64 << 10, volume, read_only, ..Options::default() }
}

/// A drive and the memory that outlives a process.
struct Machine {
    emulator: Emulator,
    survivor: Arc<HeapSurvivor>,
}

impl Machine {
    fn drive(&self) -> Drive {
        Drive { device: Arc::new(self.emulator.clone()), survivor: Some(self.survivor.clone()) }
    }

    fn mount(&self) -> BlueFs {
        BlueFs::mount(self.drive(), options(false)).unwrap()
    }

    fn look(&self) -> BlueFs {
        BlueFs::mount(self.drive(), options(true)).unwrap()
    }

    /// Every byte and every zone of the drive.
    fn state(&self) -> (Vec<Zone>, Vec<u8>) {
        let g = self.emulator.geometry();
        let mut all = Vec::new();
        let mut buf = AlignedBuf::zeroed(256 << 10);
        for at in (0..g.size()).step_by(buf.len()) {
            if self.emulator.read_at(&mut buf, at, Cause::Check.into()).is_err() {
                buf.fill(0xee);
            }
            all.extend_from_slice(&buf);
        }
        (report_all(&self.emulator).unwrap(), all)
    }
}

/// A process has died: a synced table, a small file, and a log of which the last bytes are only in the survivor.
fn died() -> Machine {
    let machine =
        Machine { emulator: Emulator::memory(&Config::tiny()).unwrap(), survivor: Arc::new(HeapSurvivor::new()) };
    BlueFs::format(&machine.drive(), false).unwrap();
    let fs = machine.mount();
    fs.mkdir("/db").unwrap();
    for (path, data) in [("/db/000007.sst", vec![7; 300_000]), ("/db/CURRENT", b"MANIFEST-1\n".to_vec())] {
        let mut file = fs.create(path, CreateOptions::default()).unwrap();
        file.append(&data).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
    }
    let log = fs.create("/db/000008.log", CreateOptions::default()).unwrap();
    log.append(&[1; 10_000]).unwrap();
    log.sync().unwrap();
    log.append(&[2; 10_000]).unwrap();
    // What a killed process does not do: unmount.
    std::mem::forget(log);
    std::mem::forget(fs);
    machine
}

fn read(fs: &BlueFs, path: &str) -> Vec<u8> {
    let reader = fs.open_read(path).unwrap();
    let mut out = vec![0; reader.size() as usize];
    let n = reader.read_at(0, &mut out).unwrap();
    assert_eq!(n, out.len());
    out
}

fn expect_all(fs: &BlueFs) {
    let log = read(fs, "/db/000008.log");
    assert_eq!((log.len(), &log[..10_000], &log[10_000..]), (20_000, &[1; 10_000][..], &[2; 10_000][..]));
    assert_eq!(read(fs, "/db/000007.sst"), vec![7; 300_000]);
    assert_eq!(read(fs, "/db/CURRENT"), b"MANIFEST-1\n");
}

#[test]
fn a_look_sees_what_a_mount_would_see_and_changes_nothing() {
    let machine = died();
    let before = machine.state();
    for _ in 0..3 {
        let fs = machine.look();
        assert!(!fs.mount_report().clean);
        assert!(fs.mount_report().replayed_bytes >= 10_000);
        expect_all(&fs);
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        drop(fs);
        assert!(machine.state() == before, "the drive has changed");
    }
    // Nor has the survivor: a mount still finds what only it holds.
    let fs = machine.mount();
    assert!(fs.mount_report().replayed_bytes >= 10_000);
    expect_all(&fs);
}

#[test]
fn every_change_is_refused_with_a_sentence() {
    let machine = died();
    let fs = machine.look();
    let refused = |result: Result<(), imbrex_bluefs::Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.code(), Code::ReadOnly, "{error}");
        assert!(error.to_string().contains("mounted read-only; mount it without"), "{error}");
    };
    refused(fs.create("/db/new", CreateOptions::default()).map(drop));
    refused(fs.create("/db/CURRENT", CreateOptions::default()).map(drop));
    refused(fs.reopen("/db/000008.log").map(drop));
    refused(fs.open_random("/db/000007.sst", false).map(drop));
    refused(fs.open_random("/db/CURRENT", false).map(drop));
    refused(fs.open_random("/db/none", true).map(drop));
    refused(fs.mkdir("/other"));
    refused(fs.unlink("/db/CURRENT"));
    refused(fs.rename("/db/CURRENT", "/db/OLD"));
    refused(fs.link("/db/CURRENT", "/db/SAME"));
    refused(fs.truncate("/db/000008.log", 5));
    refused(fs.truncate("/db/CURRENT", 1));
    refused(fs.lock("/db/LOCK").map(drop));
    assert_eq!(fs.rmdir("/db").unwrap_err().code(), Code::NotEmpty);
    // Asking for what there is already is fine.
    fs.sync_dir("/db").unwrap();
    fs.sync_all().unwrap();
    expect_all(&fs);
}

#[test]
fn a_check_tells_the_same_until_a_mount_repairs() {
    let machine = died();
    drop(machine.mount());
    let copy = machine.emulator.geometry().start(ZoneId(1));
    machine.emulator.faults().flip_bits(copy + 100, 4).unwrap();
    for _ in 0..2 {
        let problems = machine.look().check(|_, _| {}).unwrap().problems;
        assert!(matches!(&problems[..], [one] if one.starts_with("Copy 1 of the label")), "{problems:?}");
    }
    let report = machine.mount().check(|_, _| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.notes.iter().any(|note| note.starts_with("Copy 1 of the label")), "{:?}", report.notes);
    let report = machine.look().check(|_, _| {}).unwrap();
    assert_eq!((report.problems, report.notes), (vec![], vec![]));
}
