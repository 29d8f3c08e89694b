//! A full drive: it mounts, is read and deleted from, whatever a dead process had left behind.

use crate::support::{bytes, read_all as read};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, Options, RESERVE, WAL_SPARE, Writer};
use imbrex_device::{Drive, HeapSurvivor, ZoneState, report_all};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;

/// Every file in zones of its own, so that it is known when there is none left.
fn own_zones() -> Options {
    crate::support::apart()
}

/// A drive whose memory outlives the process.
struct Machine {
    emulator: Emulator,
    survivor: Arc<HeapSurvivor>,
}

impl Machine {
    fn new() -> Machine {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        let machine = Machine { emulator, survivor: Arc::new(HeapSurvivor::new()) };
        BlueFs::format(&machine.drive(), false).unwrap();
        machine
    }

    fn drive(&self) -> Drive {
        Drive { device: Arc::new(self.emulator.clone()), survivor: Some(self.survivor.clone()) }
    }

    fn mount(&self) -> BlueFs {
        let fs = BlueFs::mount(self.drive(), own_zones()).unwrap();
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        fs
    }

    /// The process dies, and with `power` the machine loses power with it.
    fn kill(&mut self, fs: BlueFs, power: bool) {
        std::mem::forget(fs);
        let survivor = if power { HeapSurvivor::new() } else { self.survivor.snapshot() };
        let after = if power { self.emulator.after_power_loss(5).unwrap() } else { self.emulator.fork().unwrap() };
        *self = Machine { emulator: after, survivor: Arc::new(survivor) };
    }
}

/// Fills the drive; returns the tables.
fn fill(fs: &BlueFs) -> u32 {
    for n in 0.. {
        let mut file = fs.create(&format!("/{n:06}.sst"), CreateOptions::default()).unwrap();
        let written = file.append(&bytes(900_000, n as u8)).and_then(|()| file.sync()).and_then(|()| file.close());
        if let Err(why) = written {
            assert_eq!(why.code(), Code::NoSpace, "{why}");
            drop(file);
            fs.unlink(&format!("/{n:06}.sst")).unwrap();
            fs.sync_dir("/").unwrap();
            return n;
        }
    }
    unreachable!("the loop ends with the drive's space")
}

/// New files with a few bytes that nobody syncs, until the drive takes no more; those that were acknowledged.
fn promise(fs: &BlueFs) -> Vec<(String, Writer)> {
    let mut open = Vec::new();
    for n in 0..100 {
        let name = format!("/promised-{n}.{}", ["sst", "log"][n % 2]);
        let file = fs.create(&name, CreateOptions::default()).unwrap();
        match file.append(&bytes(5000, n as u8)) {
            Ok(()) => open.push((name, file)),
            Err(why) => {
                assert_eq!((why.code(), file.len()), (Code::NoSpace, 0), "{why}");
                return open;
            }
        }
    }
    panic!("a full drive takes any number of files");
}

#[test]
fn what_is_acknowledged_has_a_place() {
    let machine = Machine::new();
    let fs = machine.mount();
    let n = fill(&fs);
    (0..4).for_each(|n| fs.unlink(&format!("/{n:06}.sst")).unwrap());
    fs.sync_dir("/").unwrap();
    let open = promise(&fs);
    assert!((4..8).contains(&open.len()), "{} files", open.len());
    assert_eq!(fs.space().free, 0);
    for (_, mut file) in open {
        file.sync().unwrap();
        file.close().unwrap();
    }
    (4..n).for_each(|n| assert_eq!(read(&fs, &format!("/{n:06}.sst")), bytes(900_000, n as u8)));
}

/// Appends to a log until the drive takes no more; how many of them it took.
fn fill_log(log: &Writer) -> u32 {
    for n in 0..1000 {
        if let Err(why) = log.append(&bytes(10_000, n as u8)).and_then(|()| log.sync()) {
            assert_eq!(why.code(), Code::NoSpace, "{why}");
            return n;
        }
    }
    panic!("a full drive takes any number of records");
}

#[test]
fn a_drive_that_becomes_full_refuses_a_table_or_a_later_record_before_the_first_of_a_log() {
    let machine = Machine::new();
    let fs = machine.mount();
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    log.append(b"its first zone").unwrap();
    log.sync().unwrap();
    let n = fill(&fs);
    assert_eq!(fs.space().free, 0);
    // Not for more of a log that has a zone, and not for other logs.
    assert!(fill_log(&log) > 0);
    let other = fs.create("/MANIFEST-000005", CreateOptions::default()).unwrap();
    assert_eq!(other.append(b"first").unwrap_err().code(), Code::NoSpace);
    for round in 0..3 {
        let mut logs = Vec::new();
        for number in 0..WAL_SPARE {
            let log = fs.create(&format!("/{:06}.log", 10 + number), CreateOptions::default()).unwrap();
            log.append(b"first").unwrap();
            log.sync().unwrap();
            // It has the whole of that zone, and no other.
            let records = fill_log(&log);
            assert!(records > 10, "{records} records in round {round}");
            logs.push(log);
        }
        let last = fs.create("/000099.log", CreateOptions::default()).unwrap();
        assert_eq!(last.append(b"first").unwrap_err().code(), Code::NoSpace);
        // Deleted logs leave their zones to new ones, not to tables.
        drop((last, logs));
        (0..WAL_SPARE).for_each(|number| fs.unlink(&format!("/{:06}.log", 10 + number)).unwrap());
        fs.unlink("/000099.log").unwrap();
        fs.sync_dir("/").unwrap();
        let table = fs.create("/table.sst", CreateOptions::default()).unwrap();
        assert_eq!(table.append(b"first").unwrap_err().code(), Code::NoSpace);
        drop(table);
        fs.unlink("/table.sst").unwrap();
    }
    (0..n).for_each(|n| assert_eq!(read(&fs, &format!("/{n:06}.sst")), bytes(900_000, n as u8)));
}

#[test]
fn what_the_journal_could_do_without_is_not_missing_where_files_need_it() {
    for share in [false, true] {
        let machine = Machine::new();
        let options = Options { journal_bytes: 20 << 20, ..crate::support::sharing(share) };
        let fs = BlueFs::mount(machine.drive(), options).unwrap();
        let names: Vec<String> = (0..9000).map(|n| format!("/{n:0250}")).collect();
        let room = fs.space().free;
        // The journal of a drive of which all was deleted. Its snapshot was longer than a zone.
        names.iter().for_each(|name| fs.mkdir(name).unwrap());
        names.iter().for_each(|name| fs.rmdir(name).unwrap());
        fs.sync_all().unwrap();
        let free = fs.space().free;
        assert!(free + (2 << 20) <= room, "{free} of {room}: it has grown by some zones");
        let table = fs.create("/table.sst", CreateOptions::default()).unwrap();
        let piece = bytes(100_000, 7);
        for written in 0..room / 100_000 {
            let what = format!("{} of {room} bytes", written * 100_000);
            table.append(&piece).unwrap_or_else(|why| panic!("{what}: {why}"));
        }
        table.sync().unwrap();
        let why = (0..100).find_map(|_| table.append(&piece).err()).unwrap();
        assert_eq!(why.code(), Code::NoSpace, "{why}");
        // With nothing more to be had, it is not written again and again.
        let written = || machine.emulator.stats().of(imbrex_device::Cause::Checkpoint).bytes_written;
        let before = written();
        (0..100).for_each(|_| drop(table.append(&piece).unwrap_err()));
        assert_eq!(written(), before);
    }
}

#[test]
fn a_drive_takes_a_table_as_large_as_it_says() {
    let zns = Config {
        conventional: 0,
        zone_capacity: 700 << 10,
        max_open: Some(8),
        max_active: Some(8),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        ..Config::tiny()
    };
    for (config, share) in [(Config::tiny(), false), (Config::tiny(), true), (zns.clone(), false), (zns, true)] {
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        BlueFs::format(&drive, false).unwrap();
        let fs = BlueFs::mount(drive, crate::support::sharing(share)).unwrap();
        let before = fs.space();
        for n in 0..3 {
            let bytes = bytes(before.free as usize, n);
            let table = fs.create("/table.sst", CreateOptions::default()).unwrap();
            bytes.chunks(77_777).for_each(|piece| table.append(piece).unwrap());
            table.sync().unwrap();
            drop(table);
            assert_eq!((fs.space().free, fs.space().total), (0, before.total));
            fs.unlink("/table.sst").unwrap();
            fs.sync_all().unwrap();
            assert_eq!(fs.space(), before);
        }
    }
}

#[test]
fn a_promise_that_is_not_needed_is_given_back() {
    let machine = Machine::new();
    let fs = machine.mount();
    let free = fs.space().free;
    let file = fs.create("/a.sst", CreateOptions::default()).unwrap();
    file.append(b"some bytes").unwrap();
    assert!(fs.space().free < free);
    fs.unlink("/a.sst").unwrap();
    drop(file);
    fs.sync_dir("/").unwrap();
    assert_eq!(fs.space().free, free);
}

#[test]
fn a_full_drive_mounts_after_any_number_of_kills() {
    for power in [false, true] {
        let mut machine = Machine::new();
        let fs = machine.mount();
        let n = fill(&fs);
        let open = promise(&fs);
        let names: Vec<String> = open.iter().map(|(name, _)| name.clone()).collect();
        std::mem::forget(open);
        machine.kill(fs, power);
        for round in 0..6 {
            let fs = machine.mount();
            for (i, name) in names.iter().enumerate().filter(|_| !power) {
                assert_eq!(read(&fs, name), bytes(5000, i as u8), "{name} in round {round}");
            }
            // What a full drive takes, it keeps.
            let log = fs.reopen("/small").unwrap();
            log.append(b"+").unwrap();
            log.sync().unwrap();
            std::mem::forget((log, promise(&fs)));
            machine.kill(fs, power);
        }
        let fs = machine.mount();
        assert_eq!(read(&fs, "/small"), [b'+'; 6]);
        (0..n).for_each(|n| assert_eq!(read(&fs, &format!("/{n:06}.sst")), bytes(900_000, n as u8)));
        (0..n).for_each(|n| fs.unlink(&format!("/{n:06}.sst")).unwrap());
        let again = fill(&fs);
        assert!(again + RESERVE >= n - 8, "{again} of {n} files");
    }
}

/// Every zone that is ready for use dies.
fn lose_the_reserve(machine: &Machine) {
    for zone in report_all(&machine.emulator).unwrap().iter().filter(|zone| zone.state == ZoneState::Empty) {
        machine.emulator.faults().make_read_only(zone.id).unwrap();
    }
}

#[test]
fn a_full_drive_mounts_even_without_its_reserve() {
    for power in [false, true] {
        let mut machine = Machine::new();
        let fs = machine.mount();
        let n = fill(&fs);
        (0..2).for_each(|n| fs.unlink(&format!("/{n:06}.sst")).unwrap());
        fs.sync_dir("/").unwrap();
        while fs.step().unwrap() {}
        let open = promise(&fs);
        assert!(open.len() >= 2);
        let names: Vec<String> = open.iter().map(|(name, _)| name.clone()).collect();
        std::mem::forget(open);
        fs.mkdir("/not-synced").unwrap();
        machine.kill(fs, power);
        for _ in 0..2 {
            lose_the_reserve(&machine);
            let fs = machine.mount();
            for (i, name) in names.iter().enumerate().filter(|_| !power) {
                assert_eq!(read(&fs, name), bytes(5000, i as u8), "{name}");
            }
            assert_eq!(fs.stat("/not-synced").is_ok(), !power);
            machine.kill(fs, false);
        }
        lose_the_reserve(&machine);
        let fs = machine.mount();
        (2..n).for_each(|n| assert_eq!(read(&fs, &format!("/{n:06}.sst")), bytes(900_000, n as u8)));
        (2..12).for_each(|n| fs.unlink(&format!("/{n:06}.sst")).unwrap());
        fs.sync_dir("/").unwrap();
        let mut file = fs.create("/new.sst", CreateOptions::default()).unwrap();
        file.append(&bytes(500_000, 77)).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        drop((file, fs));
        let fs = machine.mount();
        assert!(fs.mount_report().clean);
        assert_eq!(read(&fs, "/new.sst"), bytes(500_000, 77));
        for (i, name) in names.iter().enumerate().filter(|_| !power) {
            assert_eq!(read(&fs, name), bytes(5000, i as u8), "{name}");
        }
    }
}

/// Metadata of half a zone and more on a drive without a free one, whose ring is as long as may be, or has one zone left that takes writes: names are
/// refused at some point, files can be deleted, and it mounts as often as anybody likes.
#[test]
fn a_full_drive_with_a_long_journal_mounts_again_and_again_and_can_be_deleted_from() {
    for (many, dead) in [(9000, false), (1000, true), (1800, true), (9000, true)] {
        let mut machine = Machine::new();
        let mut fs = machine.mount();
        let name = |n: usize| format!("/{n:0250}");
        let mut names = 0;
        while names < many / 2 && fs.mkdir(&name(names)).is_ok() {
            names += 1;
        }
        let tables = fill(&fs);
        while names < many && fs.mkdir(&name(names)).is_ok() {
            names += 1;
        }
        assert!(names > 100, "{names} names");
        let _ = fs.sync_all();
        for round in 0..16 {
            machine.kill(fs, round % 3 < 2);
            if dead && round == 0 {
                for zone in report_all(&machine.emulator).unwrap() {
                    if zone.state == imbrex_device::ZoneState::Empty {
                        machine.emulator.faults().make_read_only(zone.id).unwrap();
                    }
                }
            }
            fs = BlueFs::mount(machine.drive(), own_zones())
                .unwrap_or_else(|why| panic!("{many}, {dead}, {round}: {why}"));
            assert!(fs.mount_report().damage.is_empty() && fs.stat("/000000.sst").is_ok(), "round {round}");
        }
        for n in 0..tables {
            let path = format!("/{n:06}.sst");
            fs.unlink(&path).unwrap_or_else(|why| panic!("{many}, {dead}: table {n} of {tables}: {why}"));
        }
        fs.sync_dir("/").unwrap();
        (0..names).filter(|n| fs.stat(&name(*n)).is_ok()).for_each(|n| fs.rmdir(&name(n)).unwrap());
        assert!(fill(&fs) + 8 >= tables, "the space comes back");
    }
}
