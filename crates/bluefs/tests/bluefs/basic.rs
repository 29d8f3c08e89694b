//! The file system on an emulated drive in memory: what its users rely on, without crashes.

use crate::support::{bytes, read_all};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, Options};
use imbrex_device::{Drive, HeapSurvivor, ZoneState, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

fn options(exec: Exec) -> Options {
    let base = crate::support::options();
    let volume = VolumeOptions { exec, ..base.volume };
    Options { cache_bytes: 1 << 20, journal_bytes: 64 << 10, volume, ..base }
}

fn drive() -> (Drive, Emulator) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap();
    (drive, emulator)
}

#[test]
fn files_of_every_kind_are_there_after_a_remount() {
    for exec in [Exec::Inline, Exec::Threads(2)] {
        let (drive, emulator) = drive();
        let fs = BlueFs::mount(drive.clone(), options(exec)).unwrap();
        fs.mkdir("/db").unwrap();
        let names = ["/db/000001.log", "/db/000002.sst", "/db/CURRENT", "/db/MANIFEST-000003", "/db/LOG"];
        for (i, name) in names.iter().enumerate() {
            let mut file = fs.create(name, CreateOptions::default()).unwrap();
            let data = bytes(300_000 + i * 7, i as u8);
            for piece in data.chunks(1000 + i * 333) {
                file.append(piece).unwrap();
            }
            assert_eq!(file.len(), data.len() as u64);
            assert_eq!(read_all(&fs, name), data, "{name} while open");
            if i % 2 == 0 {
                file.sync().unwrap();
                assert_eq!(read_all(&fs, name), data, "{name} after sync");
            }
            file.close().unwrap();
            assert_eq!(read_all(&fs, name), data, "{name} after close");
        }
        drop(fs);
        let fs = BlueFs::mount(drive.clone(), options(exec)).unwrap();
        assert!(fs.mount_report().clean, "{:?}", fs.mount_report());
        for (i, name) in names.iter().enumerate() {
            assert_eq!(read_all(&fs, name), bytes(300_000 + i * 7, i as u8), "{name} after remount");
        }
        assert_eq!(fs.list("/db").unwrap().len(), names.len());
        for name in names {
            fs.unlink(name).unwrap();
        }
        fs.rmdir("/db").unwrap();
        drop(fs);
        let written = report_all(drive.device.as_ref())
            .unwrap()
            .into_iter()
            .filter(|z| !matches!(z.state, ZoneState::Conventional | ZoneState::Empty));
        assert!(written.count() <= 1, "only the journal is left");
        assert_eq!(emulator.stats().by_rule.values().sum::<u64>(), 0);
    }
}

#[test]
fn a_synced_put_is_one_write_and_one_flush_and_an_unsynced_one_nothing() {
    let (drive, emulator) = drive();
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    log.append(b"first").unwrap();
    log.sync().unwrap();
    emulator.reset_stats();
    for _ in 0..100 {
        log.append(&[7; 443]).unwrap();
        log.sync().unwrap();
    }
    let stats = emulator.stats();
    assert_eq!((stats.total.writes, stats.total.flushes), (100, 100));
    for _ in 0..20 {
        log.append(&[7; 443]).unwrap();
    }
    assert_eq!(emulator.stats().total.writes, 100);
}

#[test]
fn names_behave_as_in_posix() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    let code = |r: imbrex_bluefs::Result<()>| r.unwrap_err().code();
    assert_eq!(code(fs.unlink("/nothing")), Code::NotFound);
    assert_eq!(code(fs.mkdir("/a/b")), Code::NotFound);
    fs.mkdir("/a").unwrap();
    assert_eq!(code(fs.mkdir("/a")), Code::Exists);
    fs.create("/a/x.sst", CreateOptions::default()).unwrap().append(b"one").unwrap();
    fs.create("/a/y.sst", CreateOptions::default()).unwrap().append(b"two").unwrap();
    fs.link("/a/x.sst", "/a/z.sst").unwrap();
    assert_eq!(fs.stat("/a/x.sst").unwrap().links, 2);
    fs.rename("/a/y.sst", "/a/x.sst").unwrap();
    assert_eq!((read_all(&fs, "/a/x.sst"), read_all(&fs, "/a/z.sst")), (b"two".to_vec(), b"one".to_vec()));
    assert_eq!(code(fs.rmdir("/a")), Code::NotEmpty);
    fs.rename("/a", "/b").unwrap();
    assert_eq!(read_all(&fs, "/b/z.sst"), b"one");
    assert_eq!(code(fs.create("/b", CreateOptions::default()).map(drop)), Code::IsADirectory);
    assert_eq!(code(fs.mkdir(&format!("/{}", "n".repeat(256)))), Code::NameTooLong);
    fs.mkdir(&format!("/{}", "n".repeat(255))).unwrap();
}

#[test]
fn a_deleted_file_goes_on_while_it_is_open() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    let mut log = fs.create("/LOG", CreateOptions::default()).unwrap();
    log.append(&bytes(200_000, 1)).unwrap();
    let reader = fs.open_read("/LOG").unwrap();
    fs.unlink("/LOG").unwrap();
    log.append(&bytes(200_000, 1)[..100_000]).unwrap();
    log.sync().unwrap();
    let mut out = vec![0; 300_000];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), 300_000);
    assert_eq!(out[..200_000], bytes(200_000, 1));
    log.close().unwrap();
    drop((log, reader, fs));
    let open = report_all(drive.device.as_ref()).unwrap();
    let written = open.iter().filter(|z| !matches!(z.state, ZoneState::Conventional | ZoneState::Empty)).count();
    assert!(written <= 1);
}

#[test]
fn a_table_can_be_overwritten_in_place_as_by_global_sequence_numbers() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    let mut data = bytes(100_001, 3);
    let mut table = fs.create("/000001.sst", CreateOptions::default()).unwrap();
    table.append(&data).unwrap();
    table.close().unwrap();
    assert_eq!(read_all(&fs, "/000001.sst"), data);
    for at in [8190, 99_990, 0] {
        let mut file = fs.open_random("/000001.sst", false).unwrap();
        file.write_at(at as u64, b"sequence").unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        data[at..at + 8].copy_from_slice(b"sequence");
        assert_eq!(read_all(&fs, "/000001.sst"), data);
    }
    drop(fs);
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    assert_eq!(read_all(&fs, "/000001.sst"), data);
}

#[test]
fn a_deleted_table_that_is_open_can_be_overwritten_like_any_other() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    let free = fs.space();
    let mut data = bytes(100_001, 3);
    let mut table = fs.create("/000001.sst", CreateOptions::default()).unwrap();
    table.append(&data).unwrap();
    table.close().unwrap();
    let file = fs.open_random("/000001.sst", false).unwrap();
    file.write_at(40_000, b"while it has a name").unwrap();
    fs.unlink("/000001.sst").unwrap();
    file.write_at(8190, b"sequence").unwrap();
    file.write_at(40_004, b"twice").unwrap();
    file.write_at(99_990, b"the end").unwrap();
    file.sync().unwrap();
    data[40_000..40_019].copy_from_slice(b"while it has a name");
    data[8190..8198].copy_from_slice(b"sequence");
    data[40_004..40_009].copy_from_slice(b"twice");
    data[99_990..99_997].copy_from_slice(b"the end");
    let mut out = vec![0; data.len()];
    assert_eq!(file.read_at(0, &mut out).unwrap(), data.len());
    assert!(out == data);
    drop(file);
    fs.sync_dir("/").unwrap();
    assert_eq!(fs.space(), free, "all of its space is free again");
    drop(fs);
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    assert_eq!((fs.list("/").unwrap().len(), fs.space()), (0, free));
}

#[test]
fn a_full_drive_says_so_and_heals_when_files_are_deleted() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    let mut n = 0;
    let why = loop {
        let mut file = fs.create(&format!("/{n:06}.sst"), CreateOptions::default()).unwrap();
        let written = file.append(&bytes(900_000, n as u8)).and_then(|()| file.sync()).and_then(|()| file.close());
        match written {
            Ok(()) => n += 1,
            Err(why) => break why,
        }
    };
    assert_eq!(why.code(), Code::NoSpace, "{why}");
    assert!(n > 40, "{n} files fitted");
    for i in 0..n {
        assert_eq!(read_all(&fs, &format!("/{i:06}.sst")), bytes(900_000, i as u8));
        fs.unlink(&format!("/{i:06}.sst")).unwrap();
    }
    let mut file = fs.create("/again.sst", CreateOptions::default()).unwrap();
    file.append(&bytes(2_000_000, 9)).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    assert_eq!(read_all(&fs, "/again.sst"), bytes(2_000_000, 9));
}

/// Forgets the file system as `kill -9` would: nothing is written, drained or closed.
fn kill(fs: BlueFs, drive: &Drive, emulator: &Emulator) -> (Drive, Emulator) {
    let _ = drive;
    std::mem::forget(fs);
    let after = emulator.fork().unwrap();
    (Drive { device: Arc::new(after.clone()), survivor: None }, after)
}

#[test]
fn a_killed_process_loses_nothing_that_it_had_appended() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let survivor = Arc::new(HeapSurvivor::new());
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) };
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    let names = ["/000001.log", "/000002.sst", "/CURRENT", "/MANIFEST-000003"];
    let mut open = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let file = fs.create(name, CreateOptions::default()).unwrap();
        for piece in bytes(150_000 + i * 11, i as u8).chunks(777) {
            file.append(piece).unwrap();
        }
        open.push(file);
    }
    std::mem::forget(open);
    let (mut after, _) = kill(fs, &drive, &emulator);
    after.survivor = Some(Arc::new(survivor.snapshot()));
    let fs = BlueFs::mount(after.clone(), options(Exec::Inline)).unwrap();
    assert!(!fs.mount_report().clean && fs.mount_report().damage.is_empty(), "{:?}", fs.mount_report());
    for (i, name) in names.iter().enumerate() {
        assert_eq!(read_all(&fs, name), bytes(150_000 + i * 11, i as u8), "{name}");
    }
    drop(fs);
    let fs = BlueFs::mount(after, options(Exec::Inline)).unwrap();
    assert!(fs.mount_report().clean);
    for (i, name) in names.iter().enumerate() {
        assert_eq!(read_all(&fs, name), bytes(150_000 + i * 11, i as u8), "{name} after a clean remount");
    }
}

#[test]
fn a_cut_log_goes_on_with_the_new_bytes_not_the_old() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    let mut log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    log.append(&[1; 1000]).unwrap();
    log.sync().unwrap();
    log.truncate(600).unwrap();
    let reader = fs.open_read("/000001.log").unwrap();
    let mut out = [0; 1100];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), 600);
    log.append(&[2; 500]).unwrap();
    log.sync().unwrap();
    assert_eq!(reader.read_at(700, &mut out[700..]).unwrap(), 400);
    assert!(out[700..].iter().all(|b| *b == 2));
    log.close().unwrap();
    drop((log, reader, fs));
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    assert_eq!(read_all(&fs, "/000001.log"), [vec![1; 600], vec![2; 500]].concat());
}

#[test]
fn a_file_in_place_may_reach_over_several_conventional_zones() {
    let (drive, emulator) = drive();
    let zone = emulator.config().zone_size as usize;
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    let mut file = fs.create("/unknown", CreateOptions::default()).unwrap();
    let mut data = bytes(zone + zone / 2, 3);
    file.append(&data[..1000]).unwrap();
    file.append(&data[1000..]).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    let random = fs.open_random("/unknown", false).unwrap();
    for at in (0..data.len() - 70_000).step_by(100_001) {
        let piece = bytes(70_000, at as u8);
        random.write_at(at as u64, &piece).unwrap();
        data[at..at + piece.len()].copy_from_slice(&piece);
    }
    random.sync().unwrap();
    drop(random);
    assert!(read_all(&fs, "/unknown") == data);
    drop(fs);
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    assert!(read_all(&fs, "/unknown") == data);
}

#[test]
fn a_small_file_goes_on_after_a_clean_remount() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive.clone(), options(Exec::Inline)).unwrap();
    fs.create("/CURRENT", CreateOptions::default()).unwrap().append(b"one").unwrap();
    drop(fs);
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    let file = fs.reopen("/CURRENT").unwrap();
    file.append(b"two").unwrap();
    file.sync().unwrap();
    assert_eq!(read_all(&fs, "/CURRENT"), b"onetwo");
}

/// The block that is remembered is not taken for one that stands in its place by now.
#[test]
fn cut_and_written_again_a_file_in_place_has_its_own_bytes() {
    let (drive, _) = drive();
    let fs = BlueFs::mount(drive, options(Exec::Inline)).unwrap();
    let file = fs.create("/notes", CreateOptions::default()).unwrap();
    let other = fs.create("/others", CreateOptions::default()).unwrap();
    let mut want = (Vec::new(), Vec::new());
    for round in 0..6_u8 {
        let piece = bytes(5000 + usize::from(round) * 700, round);
        file.append(&piece).unwrap();
        want.0.extend_from_slice(&piece);
        other.append(&piece[100..]).unwrap();
        want.1.extend_from_slice(&piece[100..]);
        assert_eq!((read_all(&fs, "/notes"), read_all(&fs, "/others")), want, "{round}");
        let keep = if round % 2 == 0 { 0 } else { 4500 };
        file.truncate(keep as u64).unwrap();
        file.sync().unwrap();
        want.0.truncate(keep);
    }
    file.append(b"end").unwrap();
    want.0.extend_from_slice(b"end");
    drop((file, other));
    assert_eq!((read_all(&fs, "/notes"), read_all(&fs, "/others")), want);
}
