//! Conventional zones that die, with the label, small files or overwritten blocks of tables in them: what that costs is at
//! most what stood there.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, Options};
use imbrex_device::{Drive, HeapSurvivor, ZoneId};
use imbrex_emulator::{Config, Emulator};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of a small file: several units of conventional space.
const SMALL: usize = 65_000;

fn drive_of(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) }
}

fn mount(emulator: &Emulator) -> BlueFs {
    BlueFs::mount(drive_of(emulator), options()).unwrap()
}

fn look(emulator: &Emulator) -> BlueFs {
    BlueFs::mount(drive_of(emulator), Options { read_only: true, ..options() }).unwrap()
}

fn write(fs: &BlueFs, path: &str, data: &[u8]) {
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

fn kill(emulator: &Emulator, zone: u32, offline: bool) {
    match offline {
        true => emulator.faults().make_offline(ZoneId(zone)).unwrap(),
        false => emulator.faults().make_read_only(ZoneId(zone)).unwrap(),
    }
}

fn small(i: u8) -> String {
    format!("/small-{i}")
}

/// The conventional zones that a file stands in.
fn zones_of(fs: &BlueFs, path: &str) -> BTreeSet<u32> {
    let size = fs.volume().geometry().zone_size;
    let runs = fs.runs(path).unwrap().into_iter().filter(|run| run.zone.is_none());
    runs.flat_map(|run| (run.address / size) as u32..=((run.address + run.len - 1) / size) as u32).collect()
}

/// A drive with four conventional zones of 1 MiB, nearly full of small files, and a table with an overwritten block, which
/// stands in the first of them; unmounted.
fn filled() -> Emulator {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    BlueFs::format(&drive_of(&emulator), false).unwrap();
    let fs = mount(&emulator);
    write(&fs, "/t.sst", &bytes(300_000, 200));
    let file = fs.open_random("/t.sst", false).unwrap();
    file.write_at(100_000, b"sequence").unwrap();
    file.sync().unwrap();
    for i in 0..50 {
        write(&fs, &small(i), &bytes(SMALL, i));
    }
    write(&fs, "/000001.log", &bytes(5000, 201));
    drop((file, fs));
    emulator
}

fn table() -> Vec<u8> {
    let mut table = bytes(300_000, 200);
    table[100_000..100_008].copy_from_slice(b"sequence");
    table
}

fn read(fs: &BlueFs, path: &str) -> imbrex_bluefs::Result<Vec<u8>> {
    let reader = fs.open_read(path)?;
    let mut out = vec![0; reader.size() as usize];
    let n = reader.read_at(0, &mut out)?;
    out.truncate(n);
    Ok(out)
}

/// Every file is whole, or cannot be read because the zone is offline that it stands in.
fn check_files(fs: &BlueFs, offline: Option<u32>) {
    let files = (0..50).map(|i| (small(i), bytes(SMALL, i)));
    let others = [("/t.sst".to_owned(), table()), ("/000001.log".to_owned(), bytes(5000, 201))];
    for (path, want) in files.chain(others) {
        let hit = offline.is_some_and(|zone| zones_of(fs, &path).contains(&zone));
        match read(fs, &path) {
            Ok(found) => assert!(!hit && found == want, "{path}"),
            Err(error) => {
                assert!(hit && error.code() == Code::Io, "{path}: {error}");
                assert!(error.to_string().contains("is offline") && error.to_string().contains("restore"), "{error}");
            }
        }
    }
}

#[test]
fn a_dead_conventional_zone_costs_what_stood_there_and_nothing_else() {
    for zone in 0..4 {
        for offline in [false, true] {
            let emulator = filled();
            let before = mount(&emulator);
            let hit = (0..50).filter(|i| zones_of(&before, &small(*i)).contains(&zone)).count();
            drop(before);
            assert!(hit > 3, "zone {zone} holds {hit} files");
            kill(&emulator, zone, offline);
            for how in [look, mount, mount] {
                let fs = how(&emulator);
                assert_eq!(fs.mount_report().damage, Vec::<String>::new());
                let notes = &fs.mount_report().notes;
                assert_eq!(notes.len(), usize::from(zone < 2), "{notes:?}");
                assert!(notes.iter().all(|n| n.contains(&format!("zone {zone} is "))), "{notes:?}");
                check_files(&fs, offline.then_some(zone));
                let report = fs.check(|_, _| {}).unwrap();
                assert!(notes.iter().all(|n| report.notes.contains(n)), "{report:?}");
                let lost = if offline { hit + usize::from(zones_of(&fs, "/t.sst").contains(&zone)) } else { 0 };
                assert_eq!(report.problems.len(), lost, "{report:?}");
            }
            // What stood there can be deleted, and its place is not given to anybody.
            let fs = mount(&emulator);
            for i in 0..50 {
                fs.unlink(&small(i)).unwrap();
            }
            fs.unlink("/t.sst").unwrap();
            fs.sync_dir("/").unwrap();
            for i in 0..40 {
                write(&fs, &small(i), &bytes(SMALL, i + 100));
                assert!(!zones_of(&fs, &small(i)).contains(&zone));
            }
            drop(fs);
            let fs = mount(&emulator);
            for i in 0..40 {
                assert_eq!(read_all(&fs, &small(i)), bytes(SMALL, i + 100));
            }
            assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn what_is_overwritten_in_a_read_only_zone_moves_and_in_an_offline_one_is_an_error() {
    for mounted in [false, true] {
        for offline in [false, true] {
            let emulator = filled();
            let fs = mount(&emulator);
            for i in 40..50 {
                fs.unlink(&small(i)).unwrap();
            }
            fs.sync_dir("/").unwrap();
            // It dies under the mount, or between two.
            let fs = if mounted { fs } else { mount_again(fs, &emulator, offline) };
            if mounted {
                kill(&emulator, 2, offline);
            }
            let (mut moved, mut overwritten) = (0, Vec::new());
            for i in 0..40 {
                let (path, mut want) = (small(i), bytes(SMALL, i));
                let zones = zones_of(&fs, &path);
                // Only the first file that is hit, in the middle of a block.
                if !zones.contains(&2) || moved > 0 {
                    continue;
                }
                let file = fs.open_random(&path, false).unwrap();
                let result = file.write_at(30_001, b"anew").and_then(|()| file.sync());
                if offline {
                    let error = result.unwrap_err();
                    assert!(error.code() == Code::Io && error.to_string().contains("is offline"), "{error}");
                } else {
                    result.unwrap();
                    want[30_001..30_005].copy_from_slice(b"anew");
                    assert_eq!(read_all(&fs, &path), want);
                    assert!(!zones_of(&fs, &path).contains(&2), "it moved");
                }
                moved += 1;
                drop(file);
                // New files are not put there, also where nobody has noticed so far that it is dead.
                for n in 0..12 {
                    write(&fs, &format!("/new-{n}"), &bytes(20_000, n));
                    assert!(!zones_of(&fs, &format!("/new-{n}")).contains(&2));
                }
                overwritten.push((path, want));
            }
            drop(fs);
            let fs = mount(&emulator);
            assert_eq!((moved, fs.mount_report().damage.len()), (1, 0));
            for n in 0..12 {
                assert_eq!(read_all(&fs, &format!("/new-{n}")), bytes(20_000, n));
            }
            for (path, want) in overwritten {
                match read(&fs, &path) {
                    Ok(found) => assert!(!offline && found == want),
                    Err(error) => assert!(offline, "{error}"),
                }
            }
        }
    }
}

fn mount_again(fs: BlueFs, emulator: &Emulator, offline: bool) -> BlueFs {
    drop(fs);
    kill(emulator, 2, offline);
    mount(emulator)
}

#[test]
fn a_zone_that_dies_under_new_files_and_overwritten_tables_is_left_to_itself() {
    for offline in [false, true] {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        BlueFs::format(&drive_of(&emulator), false).unwrap();
        let fs = mount(&emulator);
        write(&fs, "/t.sst", &bytes(300_000, 200));
        let open = fs.create("/open", CreateOptions::default()).unwrap();
        open.append(&bytes(100, 9)).unwrap();
        open.sync().unwrap();
        assert_eq!(zones_of(&fs, "/open"), BTreeSet::from([0]));
        kill(&emulator, 0, offline);
        write(&fs, "/CURRENT", b"MANIFEST-000001\n");
        let file = fs.open_random("/t.sst", false).unwrap();
        file.write_at(100_000, b"sequence").unwrap();
        file.sync().unwrap();
        // Unlinked while open.
        let orphan = fs.create("/orphan", CreateOptions::default()).unwrap();
        orphan.append(b"once").unwrap();
        fs.unlink("/orphan").unwrap();
        orphan.append(b" and again").unwrap();
        match open.append(&bytes(100, 9)).and_then(|()| open.sync()) {
            Ok(()) => assert!(!offline),
            Err(error) => assert!(offline && error.code() == Code::Io, "{error}"),
        }
        drop((file, open, orphan, fs));
        for how in [look, mount] {
            let fs = how(&emulator);
            assert_eq!(read_all(&fs, "/CURRENT"), b"MANIFEST-000001\n");
            assert_eq!(read_all(&fs, "/t.sst"), table());
            match read(&fs, "/open") {
                Ok(found) => assert!(!offline && found == [bytes(100, 9), bytes(100, 9)].concat()),
                Err(error) => assert!(offline && error.code() == Code::Io, "{error}"),
            }
        }
    }
}

#[test]
fn all_conventional_zones_may_die_and_the_rest_can_still_be_looked_at() {
    let emulator = filled();
    (0..4).for_each(|zone| kill(&emulator, zone, false));
    let why = BlueFs::mount(drive_of(&emulator), options()).err().unwrap();
    assert!(why.code() == Code::Io && why.to_string().contains("back up"), "{why}");
    let fs = look(&emulator);
    check_files(&fs, None);
    assert_eq!((fs.mount_report().notes.len(), fs.mount_report().damage.len()), (2, 0));
    // With one zone of the label left, files are written to zones of their own.
    let emulator = filled();
    (1..4).for_each(|zone| kill(&emulator, zone, true));
    let fs = mount(&emulator);
    write(&fs, "/000002.log", &bytes(5000, 3));
    write(&fs, "/small", &bytes(5000, 4));
    drop(fs);
    let fs = mount(&emulator);
    assert_eq!(read_all(&fs, "/small"), bytes(5000, 4));
    assert_eq!(read_all(&fs, "/000001.log"), bytes(5000, 201));
}
