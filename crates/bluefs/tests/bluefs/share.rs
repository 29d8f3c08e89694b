//! Zones that several files share, and cleaning.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, Code, CreateOptions};
use imbrex_device::{Cause, Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn machine() -> (Emulator, Drive) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap();
    (emulator, drive)
}

fn write(fs: &BlueFs, path: &str, data: &[u8]) -> Result<(), Code> {
    let mut file = fs.create(path, CreateOptions::default()).map_err(|e| e.code())?;
    file.append(data).map_err(|e| e.code())?;
    file.sync().map_err(|e| e.code())?;
    file.close().map_err(|e| e.code())
}

fn zones_of(fs: &BlueFs, path: &str) -> Vec<u32> {
    fs.runs(path).unwrap().iter().filter_map(|run| run.zone).collect()
}

fn sound(fs: &BlueFs) {
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

/// Small tables until the drive takes no more: their sizes and contents by number.
fn fill(fs: &BlueFs, files: &mut BTreeMap<usize, Vec<u8>>, from: usize) -> usize {
    for n in from.. {
        let data = bytes(60_000 + n * 7919 % 90_000, n as u8);
        match write(fs, &format!("/{n:06}.sst"), &data) {
            Ok(()) => drop(files.insert(n, data)),
            Err(Code::NoSpace) => {
                // Whatever of it is there is nobody's.
                fs.unlink(&format!("/{n:06}.sst")).unwrap();
                return n;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("the loop ends with the drive's space")
}

fn expect_all(fs: &BlueFs, files: &BTreeMap<usize, Vec<u8>>) {
    for (n, data) in files {
        assert!(read_all(fs, &format!("/{n:06}.sst")) == *data, "table {n}");
    }
}

#[test]
fn small_files_of_a_kind_fill_a_zone_before_the_next_is_taken() {
    let (_, drive) = machine();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let mut zones = Vec::new();
    for n in 0..18 {
        let path = format!("/{n:06}.sst");
        write(&fs, &path, &bytes(100_000, n)).unwrap();
        zones.extend(zones_of(&fs, &path));
    }
    write(&fs, "/000100.log", &bytes(1000, 1)).unwrap();
    write(&fs, "/000101.log", &bytes(1000, 2)).unwrap();
    assert_eq!(zones_of(&fs, "/000100.log"), zones_of(&fs, "/000101.log"));
    assert!(!zones.contains(&zones_of(&fs, "/000100.log")[0]), "frames and bare bytes do not mix");
    zones.dedup();
    assert_eq!(zones.len(), 2, "18 files of 100 kB in zones of 1 MiB: {zones:?}");
    sound(&fs);
    drop(fs);
    // The next mount goes on where this one ended.
    let fs = BlueFs::mount(drive, options()).unwrap();
    write(&fs, "/000200.sst", &bytes(100_000, 9)).unwrap();
    assert_eq!(zones_of(&fs, "/000200.sst")[0], zones[1]);
    (0..18).for_each(|n| assert!(read_all(&fs, &format!("/{n:06}.sst")) == bytes(100_000, n)));
    sound(&fs);
}

#[test]
fn hints_and_sizes_keep_files_apart_and_so_does_the_switch() {
    let (_, drive) = machine();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let hinted = |path: &str, hint: u8, expected: u64| {
        let mut file = fs.create(path, CreateOptions::default()).unwrap();
        file.set_hint(hint).unwrap();
        file.preallocate(expected).unwrap();
        file.append(&bytes(50_000, hint)).unwrap();
        file.close().unwrap();
        zones_of(&fs, path)[0]
    };
    let (short, long) = (hinted("/1.sst", 2, 0), hinted("/2.sst", 5, 0));
    assert_ne!(short, long);
    assert_eq!((hinted("/3.sst", 5, 0), hinted("/4.sst", 2, 0)), (long, short));
    assert!(![short, long].contains(&hinted("/5.sst", 2, 1_000_000)), "as large as a zone");
    drop(fs);
    let fs = BlueFs::mount(drive, crate::support::apart()).unwrap();
    write(&fs, "/6.sst", &bytes(50_000, 1)).unwrap();
    write(&fs, "/7.sst", &bytes(50_000, 2)).unwrap();
    assert_ne!(zones_of(&fs, "/6.sst"), zones_of(&fs, "/7.sst"));
}

/// What ends a compaction is announced as large as a zone, and is shorter.
#[test]
fn where_zones_are_scarce_tables_of_a_zones_size_stand_behind_others() {
    let (emulator, drive) = machine();
    let fs = BlueFs::mount(drive, options()).unwrap();
    let table = |n: u8| {
        let path = format!("/{n}.sst");
        let mut file = fs.create(&path, CreateOptions::default()).unwrap();
        file.preallocate(1_000_000).unwrap();
        file.append(&bytes(600_000, n)).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        zones_of(&fs, &path)
    };
    let zones: Vec<Vec<u32>> = (0..70).map(table).collect();
    let alone = (0..).find(|n: &usize| zones[..*n].iter().flatten().any(|zone| zones[*n].contains(zone))).unwrap();
    // An eighth of the 60 sequential zones is left then, and the reserve.
    assert!((42..52).contains(&alone), "the first that shares is table {alone}");
    assert!(zones[alone..].iter().all(|zones| zones.len() <= 3), "few stretches: {:?}", &zones[alone..]);
    assert_eq!(emulator.stats().of(Cause::Cleaning).bytes_written, 0, "nothing is moved for it");
    (0..70).for_each(|n| assert!(read_all(&fs, &format!("/{n}.sst")) == bytes(600_000, n)));
    sound(&fs);
}

#[test]
fn a_drive_that_is_filled_again_and_again_is_cleaned_and_keeps_every_byte() {
    let (emulator, drive) = machine();
    let mut fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let mut files = BTreeMap::new();
    let mut next = fill(&fs, &mut files, 0);
    assert!(next > 350, "{next} tables of 100 kB on a drive of 57 MB");
    for round in 0..6 {
        // Every third file goes: no zone is dead as a whole.
        let gone: Vec<usize> = files.keys().copied().filter(|n| (n + round) % 3 == 0).collect();
        for n in &gone {
            fs.unlink(&format!("/{n:06}.sst")).unwrap();
            files.remove(n);
        }
        fs.sync_dir("/").unwrap();
        assert!(fs.space().free > gone.len() as u64 * 60_000, "what cleaning can free counts as free");
        let before = files.len();
        next = fill(&fs, &mut files, next);
        assert!(
            files.len() - before > gone.len() * 2 / 3,
            "{} for {} in round {round}",
            files.len() - before,
            gone.len()
        );
        expect_all(&fs, &files);
        sound(&fs);
        if round % 2 == 1 {
            drop(fs);
            fs = BlueFs::mount(drive.clone(), options()).unwrap();
            expect_all(&fs, &files);
        }
    }
    let stats = emulator.stats();
    assert_eq!(stats.total.rule_violations, 0);
    assert!(stats.of(Cause::Cleaning).bytes_written > 0, "nothing was cleaned");
    // After deleting everything, everything is free again.
    let all = BlueFs::space(&fs).total;
    files.keys().for_each(|n| fs.unlink(&format!("/{n:06}.sst")).unwrap());
    fs.sync_all().unwrap();
    assert!(fs.space().free + (3 << 20) > all, "{} of {all}", fs.space().free);
}

#[test]
fn deleted_files_that_are_open_stay_readable_while_their_neighbours_go() {
    let (_, drive) = machine();
    let fs = BlueFs::mount(drive, options()).unwrap();
    let mut files = BTreeMap::new();
    let next = fill(&fs, &mut files, 0);
    let held: Vec<_> = [1, 100, 200].iter().map(|n| (*n, fs.open_read(&format!("/{n:06}.sst")).unwrap())).collect();
    let want: Vec<Vec<u8>> = held.iter().map(|(n, _)| files[n].clone()).collect();
    files.keys().for_each(|n| fs.unlink(&format!("/{n:06}.sst")).unwrap());
    files.clear();
    fs.sync_all().unwrap();
    fill(&fs, &mut files, next);
    for ((n, reader), want) in held.iter().zip(&want) {
        let mut got = vec![0; want.len()];
        assert_eq!(reader.read_at(0, &mut got).unwrap(), want.len());
        assert!(got == *want, "table {n}");
    }
    expect_all(&fs, &files);
}

#[test]
fn readers_see_the_same_bytes_while_they_are_moved() {
    let (_, drive) = machine();
    let mut with_threads = options();
    with_threads.volume.exec = Exec::Threads(2);
    let fs = BlueFs::mount(drive, with_threads).unwrap();
    let mut files = BTreeMap::new();
    let mut next = fill(&fs, &mut files, 0);
    // Those with these numbers stay.
    let kept: BTreeMap<usize, Vec<u8>> =
        files.iter().filter(|(n, _)| *n % 5 == 0).map(|(n, d)| (*n, d.clone())).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (fs, kept, stop) = (&fs, &kept, &stop);
            scope.spawn(move || {
                let readers: Vec<_> =
                    kept.keys().map(|n| (n, fs.open_read(&format!("/{n:06}.sst")).unwrap())).collect();
                while !stop.load(Ordering::Relaxed) {
                    for (n, reader) in readers.iter().skip(part).step_by(2) {
                        let mut got = vec![0; kept[n].len()];
                        assert_eq!(reader.read_at(0, &mut got).unwrap(), got.len());
                        assert!(got == kept[n], "table {n} while zones are cleaned");
                    }
                }
            });
        }
        for round in 1..5 {
            let gone: Vec<usize> = files.keys().copied().filter(|n| n % 5 == round).collect();
            for n in gone {
                fs.unlink(&format!("/{n:06}.sst")).unwrap();
                files.remove(&n);
            }
            next = fill(&fs, &mut files, next);
        }
        stop.store(true, Ordering::Relaxed);
    });
    expect_all(&fs, &kept);
    sound(&fs);
}
