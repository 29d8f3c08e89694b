//! What is done at rest: short tables that had a zone each move together, and what is left of dead ones.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions, Options, Packed};
use imbrex_device::{Cause, Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ZONE: usize = 1 << 20;

fn machine() -> (Emulator, Drive) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap();
    (emulator, drive)
}

type Tables = BTreeMap<String, Vec<u8>>;

/// Tables of these sizes, each announced as large as a zone.
fn write(fs: &BlueFs, sizes: &[usize], tables: &mut Tables) {
    for &size in sizes {
        let path = format!("/{:06}.sst", tables.len());
        let data = bytes(size, tables.len() as u8);
        let mut file = fs.create(&path, CreateOptions::default()).unwrap();
        file.preallocate(ZONE as u64 - 8192).unwrap();
        file.append(&data).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        tables.insert(path, data);
    }
}

fn zones(fs: &BlueFs) -> BTreeSet<u32> {
    let paths = fs.list("/").unwrap().into_iter().map(|entry| format!("/{}", entry.name));
    paths.flat_map(|path| fs.runs(&path).unwrap()).filter_map(|run| run.zone).collect()
}

fn expect(fs: &BlueFs, tables: &Tables) {
    for (path, data) in tables {
        assert!(read_all(fs, path) == *data, "{path}");
    }
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

/// In thousandths of a zone: six that fill one, and five that do not.
const SIZES: [usize; 11] = [980, 20, 980, 500, 980, 110, 980, 300, 980, 1, 980];

fn sizes() -> Vec<usize> {
    SIZES.iter().map(|n| n * ZONE / 1000).collect()
}

#[test]
fn short_tables_of_a_zone_each_are_packed_and_nothing_else_is_moved() {
    let (emulator, drive) = machine();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let mut tables = Tables::new();
    write(&fs, &sizes(), &mut tables);
    assert_eq!(zones(&fs).len(), 11);
    let reader = fs.open_read("/000005.sst").unwrap();
    let packed = fs.pack().unwrap();
    assert_eq!((packed.zones, zones(&fs).len()), (4, 7), "{packed:?}");
    let written = emulator.stats().of(Cause::Cleaning).bytes_written;
    assert!(packed.bytes == written && (written as usize) < ZONE / 2, "{packed:?}, {written}");
    let mut out = vec![0; tables["/000005.sst"].len()];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), out.len());
    assert!(out == tables["/000005.sst"], "of a reader that was there before");
    expect(&fs, &tables);
    assert_eq!(fs.pack().unwrap(), Packed::default(), "once is enough");
    // The zones are free, and what was moved is where the next mount looks for it.
    while fs.step().unwrap() {}
    let used = |fs: &BlueFs| fs.watch().figures().unwrap().zones_used;
    let before = used(&fs);
    drop((reader, fs));
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert!(fs.mount_report().clean && used(&fs) == before && before == 9, "{before}: the journal has two");
    expect(&fs, &tables);
    assert_eq!(fs.pack().unwrap(), Packed::default());
}

#[test]
fn dead_zones_are_packed_within_the_bounds() {
    let (_, drive) = machine();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let mut tables = Tables::new();
    for n in 0..40 {
        let path = format!("/{n:06}.sst");
        let mut file = fs.create(&path, CreateOptions::default()).unwrap();
        file.append(&bytes(ZONE / 4 - 8192, n)).unwrap();
        file.close().unwrap();
        tables.insert(path, bytes(ZONE / 4 - 8192, n));
    }
    assert_eq!(zones(&fs).len(), 10);
    // Of each zone two tables are left.
    for n in (0..40).filter(|n| n % 4 < 2) {
        fs.unlink(&format!("/{n:06}.sst")).unwrap();
        tables.remove(&format!("/{n:06}.sst"));
    }
    fs.sync_dir("/").unwrap();
    let packed = fs.pack().unwrap();
    let (live, written) = (20 * ZONE as u64 / 4, 40 * ZONE as u64 / 4);
    assert!(packed.zones == 2 && packed.bytes <= live / 4 + written / 16, "{packed:?}");
    assert_eq!(zones(&fs).len(), 9, "two, of half a zone each, went to one");
    expect(&fs, &tables);
    // Each mount may move as much again.
    drop(fs);
    for _ in 0..4 {
        BlueFs::mount(drive.clone(), options()).unwrap().pack().unwrap();
    }
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert_eq!(zones(&fs).len(), 5);
    expect(&fs, &tables);
}

#[test]
fn a_log_that_finds_no_zone_gets_those_of_short_tables() {
    let (emulator, drive) = machine();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let mut tables = Tables::new();
    // Until zones are scarce, so that one gets no zone of its own any more.
    while zones(&fs).len() == tables.len() {
        write(&fs, &[ZONE * 6 / 10], &mut tables);
    }
    assert_eq!(emulator.stats().of(Cause::Cleaning).bytes_written, 0);
    // More than the zones that are free.
    let log = bytes(12 * ZONE, 7);
    let mut file = fs.create("/000999.log", CreateOptions::default()).unwrap();
    for piece in log.chunks(ZONE / 4) {
        file.append(piece).unwrap();
        file.sync().unwrap();
    }
    file.close().unwrap();
    assert!(emulator.stats().of(Cause::Cleaning).bytes_written > 0, "nothing had to move");
    tables.insert("/000999.log".into(), log);
    expect(&fs, &tables);
    drop(fs);
    expect(&BlueFs::mount(drive, options()).unwrap(), &tables);
}

#[test]
fn a_file_that_somebody_writes_stays_where_it_is() {
    let (_, drive) = machine();
    let fs = BlueFs::mount(drive, options()).unwrap();
    let mut tables = Tables::new();
    write(&fs, &[ZONE / 10, ZONE / 2], &mut tables);
    let mut file = fs.reopen("/000000.sst").unwrap();
    file.append(b"more").unwrap();
    let before = zones(&fs);
    assert_eq!((fs.pack().unwrap(), zones(&fs)), (Packed::default(), before));
    file.close().unwrap();
    tables.get_mut("/000000.sst").unwrap().extend(b"more");
    assert_eq!((fs.pack().unwrap().zones, zones(&fs).len()), (1, 1));
    expect(&fs, &tables);
}

/// Mounted with threads and this time of rest; `tables` are short ones.
fn with_threads(drive: &Drive, idle_pack: Option<Duration>, share: bool) -> BlueFs {
    let mut options = Options { idle_pack, ..crate::support::sharing(share) };
    options.volume.exec = Exec::Threads(1);
    BlueFs::mount(drive.clone(), options).unwrap()
}

#[test]
fn a_drive_that_nobody_uses_packs_itself() {
    let (emulator, drive) = machine();
    let fs = with_threads(&drive, Some(Duration::from_millis(10)), true);
    let mut tables = Tables::new();
    write(&fs, &sizes(), &mut tables);
    let until = Instant::now() + Duration::from_secs(60);
    while zones(&fs).len() > 7 {
        assert!(Instant::now() < until, "{:?}", zones(&fs));
        std::thread::sleep(Duration::from_millis(5));
    }
    expect(&fs, &tables);
    drop(fs);
    // And where it is not wanted it does not, nor where files do not share zones.
    for (rest, share) in [(None, true), (Some(Duration::from_millis(1)), false)] {
        let before = emulator.stats().of(Cause::Cleaning).bytes_written;
        let fs = with_threads(&drive, rest, share);
        write(&fs, &[ZONE / 10, ZONE / 5, ZONE / 3], &mut tables);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(emulator.stats().of(Cause::Cleaning).bytes_written, before);
        expect(&fs, &tables);
    }
    // It ends with the mount, whatever it is doing.
    for wait in 0..20 {
        let fs = with_threads(&drive, Some(Duration::from_millis(1)), true);
        write(&fs, &[ZONE / 3], &mut tables);
        std::thread::sleep(Duration::from_millis(wait));
        drop(fs);
    }
    let fs = with_threads(&drive, None, true);
    assert!(fs.mount_report().clean);
    expect(&fs, &tables);
    assert_eq!(emulator.stats().total.rule_violations, 0);
}
