//! Damage: media errors, flipped bits, dead zones, failed flushes, a full host, and what each costs: at most what stood there.

use crate::support::bytes;
use imbrex_bluefs::{BlueFs, Code, CreateOptions, Options};
use imbrex_device::{Drive, Fault, HeapSurvivor, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_zones::log::format::{LOG_KIND, LogHead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every file in zones of its own, so that it is known what stands where.
fn options() -> Options {
    crate::support::apart()
}

fn drive_of(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) }
}

fn write(fs: &BlueFs, path: &str, data: &[u8]) {
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

fn read(fs: &BlueFs, path: &str) -> Result<Vec<u8>, Code> {
    let reader = fs.open_read(path).map_err(|e| e.code())?;
    let mut out = vec![0; reader.size() as usize];
    let n = reader.read_at(0, &mut out).map_err(|e| e.code())?;
    out.truncate(n);
    Ok(out)
}

/// A drive with a table over two zones, a log of many frames and a small file, unmounted.
fn filled() -> Emulator {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = drive_of(&emulator);
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive, options()).unwrap();
    write(&fs, "/long.sst", &bytes(1_500_000, 1));
    write(&fs, "/CURRENT", b"MANIFEST-000001\n");
    let mut log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    for i in 0..50 {
        log.append(&[i; 1000]).unwrap();
        log.sync().unwrap();
    }
    log.close().unwrap();
    drop(fs);
    emulator
}

fn whole_log() -> Vec<u8> {
    (0..50).flat_map(|i| [i; 1000]).collect()
}

/// Byte addresses of the blocks of the one zone whose header names `name`.
fn zone_named(emulator: &Emulator, name: &str) -> u64 {
    let size = emulator.geometry().zone_size;
    let mut buf = imbrex_device::AlignedBuf::zeroed(4096);
    for zone in report_all(emulator).unwrap() {
        if zone.state == ZoneState::Conventional || zone.wp == Some(0) {
            continue;
        }
        let at = u64::from(zone.id.0) * size;
        emulator.read_at(&mut buf, at, imbrex_device::Cause::Check.into()).unwrap();
        let journal = |h: &imbrex_zones::ZoneHeader| name == "journal" && h.kind == LOG_KIND;
        if imbrex_zones::ZoneHeader::decode(&buf).is_some_and(|h| journal(&h) || h.name.starts_with(name)) {
            return at;
        }
    }
    panic!("no zone of {name}");
}

fn mount(emulator: &Emulator) -> BlueFs {
    BlueFs::mount(drive_of(emulator), options()).unwrap()
}

fn intact(fs: &BlueFs) {
    assert_eq!(read(fs, "/long.sst").unwrap(), bytes(1_500_000, 1));
    assert_eq!(read(fs, "/CURRENT").unwrap(), b"MANIFEST-000001\n");
    assert_eq!(read(fs, "/000001.log").unwrap(), whole_log());
}

#[test]
fn either_copy_of_the_label_is_enough_and_the_other_is_repaired() {
    for copy in 0..2 {
        for media in [false, true] {
            let emulator = filled();
            let at = copy * emulator.geometry().zone_size;
            if media {
                emulator.faults().media_error(at, 4096);
            } else {
                emulator.faults().flip_bits(at + 100, 4).unwrap();
            }
            let fs = mount(&emulator);
            intact(&fs);
            assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        }
    }
    let emulator = filled();
    for copy in 0..2 {
        emulator.faults().flip_bits(copy * emulator.geometry().zone_size + 100, 4).unwrap();
    }
    let why = BlueFs::mount(drive_of(&emulator), options()).err().unwrap();
    assert!(why.code() == Code::Corruption && why.to_string().contains("damaged label"), "{why}");
}

#[test]
fn a_journal_that_is_gone_as_a_whole_is_damage_and_its_files_are_found() {
    let emulator = filled();
    let zone = (zone_named(&emulator, "journal") / emulator.geometry().zone_size) as u32;
    emulator.zone_op(ZoneOp::Reset, ZoneId(zone), imbrex_device::Cause::Other.into()).unwrap();
    let fs = mount(&emulator);
    assert!(!fs.mount_report().damage.is_empty(), "an empty journal is no empty file system");
    let names = fs.list("/lost+found").unwrap();
    let found: Vec<Vec<u8>> =
        names.iter().map(|entry| read(&fs, &format!("/lost+found/{}", entry.name)).unwrap()).collect();
    assert!(found.contains(&whole_log()));
    // A table whose size is lost ends with its last block.
    assert!(found.iter().any(|bytes_found| bytes_found.starts_with(&bytes(1_500_000, 1))));
}

#[test]
fn a_bad_block_of_the_journal_costs_no_file_its_bytes() {
    let journal = zone_named(&filled(), "journal");
    let end = filled().geometry().zone_size;
    let mut damaged = 0;
    for block in 0..end / 4096 {
        let emulator = filled();
        let at = journal + block * 4096;
        if emulator.faults().flip_bits(at + 66, 1).is_err() {
            break;
        }
        damaged += 1;
        let fs = mount(&emulator);
        // The first two blocks are two headers, of which one is enough.
        assert_eq!(fs.mount_report().damage.is_empty(), block < 2, "block {block}: {:?}", fs.mount_report());
        // Every byte is somewhere: under its name, or, where that is lost, in lost+found; a small file's place can be lost.
        let mut found: Vec<Vec<u8>> = Vec::new();
        for dir in ["/", "/lost+found"] {
            for entry in fs.list(dir).unwrap_or_default() {
                let path = format!("{}/{}", dir.trim_end_matches('/'), entry.name);
                if let Ok(data) = read(&fs, &path) {
                    found.push(data);
                }
            }
        }
        for (name, want) in [("long.sst", bytes(1_500_000, 1)), ("log", whole_log())] {
            let whole = found.iter().any(|data| data.starts_with(&want));
            assert!(whole, "block {block}: {name} is lost; {:?}", fs.mount_report().damage);
        }
        drop(fs);
        let again = mount(&emulator);
        assert!(again.mount_report().damage.is_empty(), "the journal was written anew");
    }
    assert!(damaged > 2, "{damaged} blocks of the journal were tried");
}

#[test]
fn a_damaged_frame_of_a_log_is_an_error_and_the_rest_is_read() {
    let emulator = filled();
    let at = zone_named(&emulator, "000001.log");
    // The 20th frame; each takes one block behind the header's.
    emulator.faults().flip_bits(at + 20 * 4096 + 500, 16).unwrap();
    let fs = mount(&emulator);
    assert_eq!(read(&fs, "/000001.log"), Err(Code::Corruption));
    let reader = fs.open_read("/000001.log").unwrap();
    let mut out = vec![0; 19_000];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), 19_000);
    assert_eq!(out, whole_log()[..19_000]);
    assert_eq!(reader.read_at(20_000, &mut out).unwrap(), 19_000);
    assert_eq!(out, whole_log()[20_000..39_000]);
    let problems = fs.check(|_, _| {}).unwrap().problems;
    assert!(problems.len() == 1 && problems[0].contains("/000001.log"), "{problems:?}");
}

/// Its zones are other files' when it comes to be looked at; and what is wrong with a file that stays is told.
#[test]
fn a_check_tells_what_is_wrong_with_files_that_are_still_there() {
    for damaged in [false, true] {
        let emulator = filled();
        let (gone, log) = (zone_named(&emulator, "long.sst"), zone_named(&emulator, "000001.log"));
        if damaged {
            emulator.faults().flip_bits(log + 20 * 4096 + 500, 16).unwrap();
        }
        let fs = mount(&emulator);
        let report = fs.check(|done, _| {
            if done > 0 {
                return;
            }
            fs.unlink("/long.sst").unwrap();
            let taken = |path: &str| fs.runs(path).unwrap().iter().any(|run| run.address == gone + 4096);
            let names = (0..200).map(|n| format!("/new{n}.sst"));
            let last = names.into_iter().find(|name| {
                write(&fs, name, &bytes(1_500_000, 2));
                let taken = taken(name);
                if !taken {
                    fs.unlink(name).unwrap();
                }
                taken
            });
            assert!(last.is_some(), "nobody takes its zone");
        });
        let problems = report.unwrap().problems;
        let told = problems.iter().filter(|problem| problem.contains("/000001.log")).count();
        assert_eq!((problems.len(), told), if damaged { (1, 1) } else { (0, 0) }, "{problems:?}");
    }
}

/// Also of one that has been begun, and is in memory yet.
#[test]
fn a_check_finds_nothing_wrong_with_files_that_somebody_writes() {
    let fs = mount(&filled());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..=u8::MAX).cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let path = format!("/{}.sst", n % 4);
                let mut file = fs.create(&path, CreateOptions::default()).unwrap();
                for _ in 0..4 {
                    file.append(&bytes(usize::from(n) * 700, n)).unwrap();
                }
                file.sync().unwrap();
                file.close().unwrap();
                fs.unlink(&path).unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(2);
        let mut found = Vec::new();
        while Instant::now() < end {
            found.extend(fs.check(|_, _| {}).unwrap().problems);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(found, Vec::<String>::new());
    });
}

#[test]
fn a_media_error_of_a_table_is_an_error_where_it_is() {
    let emulator = filled();
    let at = zone_named(&emulator, "long.sst");
    emulator.faults().media_error(at + 4096 + 8192, 4096);
    let fs = mount(&emulator);
    assert_eq!(read(&fs, "/long.sst"), Err(Code::Io));
    let reader = fs.open_read("/long.sst").unwrap();
    let mut out = vec![0; 100_000];
    reader.read_at(32_768, &mut out).unwrap();
    assert_eq!(out, bytes(1_500_000, 1)[32_768..132_768]);
    let problems = fs.check(|_, _| {}).unwrap().problems;
    assert!(problems.iter().any(|p| p.contains("/long.sst")), "{problems:?}");
}

#[test]
fn a_zone_that_dies_under_a_file_costs_what_was_in_it_and_nothing_else() {
    for offline in [false, true] {
        let emulator = filled();
        let fs = mount(&emulator);
        let file = fs.create("/new.sst", CreateOptions::default()).unwrap();
        file.append(&bytes(300_000, 7)).unwrap();
        file.sync().unwrap();
        let at = zone_named(&emulator, "new.sst");
        let zone = ZoneId((at / emulator.geometry().zone_size) as u32);
        match offline {
            true => emulator.faults().make_offline(zone).unwrap(),
            false => emulator.faults().make_read_only(zone).unwrap(),
        }
        file.append(&bytes(300_000, 8)).unwrap();
        file.sync().unwrap();
        drop(file);
        intact(&fs);
        let reader = fs.open_read("/new.sst").unwrap();
        let mut out = vec![0; 300_000];
        reader.read_at(300_000, &mut out).unwrap();
        assert_eq!(out, bytes(300_000, 8));
        match (offline, reader.read_at(0, &mut out)) {
            (true, Err(why)) => assert_eq!(why.code(), Code::Io),
            (false, Ok(_)) => assert_eq!(out, bytes(300_000, 7)),
            (offline, other) => panic!("offline {offline}: {other:?}"),
        }
    }
}

#[test]
fn a_failed_flush_stops_all_writes_until_the_next_mount() {
    let emulator = filled();
    let fs = mount(&emulator);
    let log = fs.create("/000002.log", CreateOptions::default()).unwrap();
    log.append(b"one").unwrap();
    emulator.faults().fail_flushes(1);
    assert!(log.sync().is_err());
    assert!(log.sync().is_err(), "no later success hides it");
    assert!(fs.mkdir("/d").is_err());
    intact(&fs);
    std::mem::forget((log, fs));
    let after = emulator.after_power_loss(3).unwrap();
    intact(&mount(&after));
}

#[test]
fn a_full_host_is_an_error_that_goes_away_with_its_cause() {
    let emulator = filled();
    let fs = mount(&emulator);
    let log = fs.create("/000002.log", CreateOptions::default()).unwrap();
    log.append(&bytes(100_000, 4)).unwrap();
    emulator.faults().host_full(true);
    assert_eq!(log.sync().unwrap_err().code(), Code::NoSpace);
    intact(&fs);
    emulator.faults().host_full(false);
    log.sync().unwrap();
    assert_eq!(read(&fs, "/000002.log").unwrap(), bytes(100_000, 4));
    assert!(!matches!(fs.volume().check_poison(), Err(e) if matches!(e.fault, Fault::Io(_))));
}

#[test]
fn a_hundred_thousand_files_in_one_directory() {
    let config = Config::named(
        "hgst-hsh721414al",
        &Overrides { capacity: Some(8 << 30), zone_size: Some(16 << 20), ..Default::default() },
    )
    .unwrap();
    let emulator = Emulator::memory(&config).unwrap();
    let drive = drive_of(&emulator);
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    fs.mkdir("/d").unwrap();
    for i in 0..100_000 {
        fs.create(&format!("/d/{i}"), CreateOptions::default()).unwrap().close().unwrap();
    }
    drop(fs);
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert_eq!(fs.list("/d").unwrap().len(), 100_000);
    assert_eq!(fs.stat("/d/99999").unwrap().size, 0);
}

/// A log that nobody closed, of 50 synced frames, as a crash leaves it.
fn left_open(power_lost: bool) -> Emulator {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    leave_open(&drive_of(&emulator));
    if power_lost { emulator.after_power_loss(1).unwrap() } else { emulator }
}

fn leave_open(drive: &Drive) {
    BlueFs::format(drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    for i in 0..50 {
        log.append(&[i; 1000]).unwrap();
        log.sync().unwrap();
    }
    fs.sync_dir("/").unwrap();
    std::mem::forget((fs, log));
}

#[test]
fn an_unreadable_end_of_an_open_log_is_told() {
    for power_lost in [false, true] {
        let fs = mount(&left_open(power_lost));
        assert_eq!(read(&fs, "/000001.log").unwrap(), whole_log());
        assert_eq!(fs.mount_report().damage, Vec::<String>::new(), "nothing is wrong yet");

        let emulator = left_open(power_lost);
        let at = zone_named(&emulator, "000001.log");
        emulator.faults().media_error(at + 50 * 4096, 4096);
        let fs = mount(&emulator);
        let damage = &fs.mount_report().damage;
        assert!(damage.len() == 1 && damage[0].contains("/000001.log"), "{damage:?}");
        drop(fs);
        // It stays told, to whoever mounts and whoever reads.
        for mount in [mount(&emulator), mount(&emulator)] {
            ends_in_an_error(&mount, "/000001.log", &whole_log()[..49_000], Code::Corruption);
            drop(mount);
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_frame_of_an_open_log_is_told() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = drive_of(&emulator);
    leave_open(&drive);
    let at = zone_named(&emulator, "000001.log") + 50 * 4096 + 100;
    emulator.faults().flip_bits(at, 1).unwrap();
    for told in [1, 0] {
        let fs = BlueFs::mount(drive.clone(), options()).unwrap();
        let damage = &fs.mount_report().damage;
        assert!(damage.len() == told && damage.iter().all(|what| what.contains("/000001.log")), "{damage:?}");
        ends_in_an_error(&fs, "/000001.log", &whole_log()[..49_000], Code::Corruption);
    }
}

/// A power loss tears what was being written and not promised, and so does a kill where the process's memory is gone.
#[test]
fn a_torn_end_of_an_open_log_is_no_damage() {
    for power_lost in [false, true] {
        let emulator = left_open(power_lost);
        let at = zone_named(&emulator, "000001.log") + 50 * 4096 + 100;
        emulator.faults().flip_bits(at, 1).unwrap();
        let fs = mount(&emulator);
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        assert_eq!(read(&fs, "/000001.log").unwrap(), &whole_log()[..49_000]);
    }
}

#[test]
fn bytes_in_memory_behind_a_damaged_frame_of_an_open_log_stay() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = drive_of(&emulator);
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    for i in 0..5 {
        log.append(&[i; 1000]).unwrap();
        log.sync().unwrap();
    }
    log.append(&[5; 1000]).unwrap();
    std::mem::forget((fs, log));
    let at = zone_named(&emulator, "000001.log");
    emulator.faults().flip_bits(at + 5 * 4096 + 100, 1).unwrap();
    for told in [1, 0] {
        let fs = BlueFs::mount(drive.clone(), options()).unwrap();
        assert_eq!(fs.mount_report().damage.len(), told, "{:?}", fs.mount_report().damage);
        let reader = fs.open_read("/000001.log").unwrap();
        assert_eq!(reader.size(), 6000);
        let mut out = vec![9; 1000];
        for i in [0, 1, 2, 3, 5] {
            assert_eq!(reader.read_at(u64::from(i) * 1000, &mut out).unwrap(), 1000);
            assert_eq!(out, [i; 1000]);
        }
        assert_eq!(reader.read_at(4000, &mut out).unwrap_err().code(), Code::Corruption);
    }
}

/// The log holds `bytes`, zeros to the end of their block of 32 KiB, and one byte that cannot be read.
#[track_caller]
fn ends_in_an_error(fs: &BlueFs, path: &str, bytes: &[u8], code: Code) {
    let reader = fs.open_read(path).unwrap();
    let block = 32 << 10;
    assert_eq!(reader.size(), (bytes.len() as u64).next_multiple_of(block) + 1);
    let mut found = vec![1; reader.size() as usize - 1];
    // As a reader of logs does.
    for (i, piece) in found.chunks_mut(block as usize).enumerate() {
        assert_eq!(reader.read_at(i as u64 * block, piece).unwrap(), piece.len());
    }
    assert!(found[..bytes.len()] == *bytes && found[bytes.len()..].iter().all(|byte| *byte == 0));
    assert_eq!(reader.read_at(reader.size() - 1, &mut [0]).unwrap_err().code(), code);
}

/// The zone of the first file whose name begins so, read-only from now on: the drive no longer tells how far it is written.
fn make_read_only(emulator: &Emulator, name: &str) {
    let zone = ZoneId((zone_named(emulator, name) / emulator.geometry().zone_size) as u32);
    emulator.faults().make_read_only(zone).unwrap();
    let report = report_all(emulator).unwrap();
    assert_eq!((report[zone.0 as usize].state, report[zone.0 as usize].wp), (ZoneState::ReadOnly, None));
}

#[test]
fn files_in_zones_that_turned_read_only_stay_readable() {
    let emulator = filled();
    for name in ["long.sst", "000001.log", "journal"] {
        make_read_only(&emulator, name);
        for _ in 0..2 {
            let fs = mount(&emulator);
            assert_eq!(fs.mount_report().damage, Vec::<String>::new(), "{name}");
            intact(&fs);
            assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "{name}");
            write(&fs, "/new.sst", &bytes(5000, 3));
        }
    }
}

#[test]
fn the_end_of_an_open_log_is_found_in_a_read_only_zone() {
    for power_lost in [false, true] {
        let emulator = left_open(power_lost);
        make_read_only(&emulator, "000001.log");
        let fs = mount(&emulator);
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        assert_eq!(read(&fs, "/000001.log").unwrap(), whole_log());
        let mut log = fs.reopen("/000001.log").unwrap();
        log.append(b"more").unwrap();
        log.close().unwrap();
        drop((log, fs));
        let fs = mount(&emulator);
        assert!(fs.mount_report().clean);
        assert_eq!(read(&fs, "/000001.log").unwrap(), [whole_log(), b"more".to_vec()].concat());
    }
}

#[test]
fn a_table_in_a_read_only_zone_is_as_long_as_memory_and_journal_vouch() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let survivor = Arc::new(HeapSurvivor::new());
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) };
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive, options()).unwrap();
    let table = fs.create("/000001.sst", CreateOptions::default()).unwrap();
    table.append(&bytes(300_000, 1)).unwrap();
    while fs.step().unwrap() {}
    std::mem::forget((fs, table));
    make_read_only(&emulator, "000001.sst");
    let left = Arc::new(survivor.snapshot());
    let fs = BlueFs::mount(Drive { device: Arc::new(emulator), survivor: Some(left) }, options()).unwrap();
    assert_eq!(fs.mount_report().damage, Vec::<String>::new());
    assert_eq!(read(&fs, "/000001.sst").unwrap(), bytes(300_000, 1));
}

#[test]
fn an_offline_zone_under_an_open_log_costs_what_was_in_it() {
    for dead in 0..2 {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        BlueFs::format(&drive_of(&emulator), false).unwrap();
        let fs = BlueFs::mount(drive_of(&emulator), options()).unwrap();
        let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
        while fs.runs("/000001.log").unwrap().len() < 2 {
            log.append(&bytes(100_000, 5)).unwrap();
            log.sync().unwrap();
        }
        let (size, runs) = (log.len(), fs.runs("/000001.log").unwrap());
        std::mem::forget((fs, log));
        emulator.faults().make_offline(ZoneId(runs[dead].zone.unwrap())).unwrap();
        let fs = mount(&emulator);
        let reader = fs.open_read("/000001.log").unwrap();
        let mut out = vec![0; size as usize];
        if dead == 0 {
            assert_eq!(reader.size(), size);
            assert!(reader.read_at(0, &mut out).is_err());
            let second = runs[1].logical as usize;
            assert_eq!(reader.read_at(second as u64, &mut out[second..]).unwrap(), out.len() - second);
        } else {
            assert!(fs.mount_report().damage.iter().any(|d| d.contains("/000001.log")), "it is told");
            let first = &bytes(100_000, 5).repeat(size as usize / 100_000)[..runs[1].logical as usize];
            ends_in_an_error(&fs, "/000001.log", first, Code::Io);
        }
        drop((reader, fs));
        assert!(mount(&emulator).mount_report().clean);
    }
}

/// A drive whose survivor outlives the mounts, mounted; and a table whose closing failed.
fn failed_close() -> (Emulator, Drive, BlueFs) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = drive_of(&emulator);
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let mut table = fs.create("/000001.sst", CreateOptions::default()).unwrap();
    fs.sync_dir("/").unwrap();
    table.append(&bytes(100_000, 6)).unwrap();
    emulator.faults().host_full(true);
    assert_eq!(table.close().unwrap_err().code(), Code::NoSpace);
    drop(table);
    assert_eq!(fs.stat("/000001.sst").unwrap().size, 100_000, "what was acknowledged is there");
    assert_eq!(read(&fs, "/000001.sst").unwrap(), bytes(100_000, 6));
    assert!(fs.sync_dir("/").is_err() && fs.sync_all().is_err(), "nobody is told that all is well");
    (emulator, drive, fs)
}

#[test]
fn what_a_failed_close_left_in_memory_is_written_by_the_next_sync() {
    for all in [false, true] {
        let (emulator, _, fs) = failed_close();
        emulator.faults().host_full(false);
        if all {
            fs.sync_all().unwrap()
        } else {
            fs.sync_dir("/").unwrap()
        }
        std::mem::forget(fs);
        // Without the survivor: all of it is on the drive.
        let fs = mount(&if all { emulator.after_power_loss(1).unwrap() } else { emulator });
        assert_eq!(read(&fs, "/000001.sst").unwrap(), bytes(100_000, 6));
    }
}

#[test]
fn what_a_failed_close_left_in_memory_survives_a_failed_unmount() {
    let (emulator, drive, fs) = failed_close();
    drop(fs);
    emulator.faults().host_full(false);
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    assert_eq!((fs.mount_report().replayed_bytes > 0, fs.mount_report().damage.len()), (true, 0));
    assert_eq!(read(&fs, "/000001.sst").unwrap(), bytes(100_000, 6));
    drop(fs);
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert!(fs.mount_report().clean);
    assert_eq!(read(&fs, "/000001.sst").unwrap(), bytes(100_000, 6));
}

#[test]
fn a_file_whose_close_failed_can_be_appended_to_and_deleted() {
    let (emulator, drive, fs) = failed_close();
    emulator.faults().host_full(false);
    let mut table = fs.reopen("/000001.sst").unwrap();
    table.append(b"more").unwrap();
    table.close().unwrap();
    assert_eq!(read(&fs, "/000001.sst").unwrap(), [bytes(100_000, 6), b"more".to_vec()].concat());
    drop((table, fs));
    assert!(BlueFs::mount(drive, options()).unwrap().mount_report().clean);

    let (emulator, drive, fs) = failed_close();
    emulator.faults().host_full(false);
    fs.unlink("/000001.sst").unwrap();
    fs.sync_dir("/").unwrap();
    drop(fs);
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert!(fs.mount_report().clean && fs.list("/").unwrap().is_empty());
    let zones = report_all(&emulator).unwrap();
    let written = zones.iter().filter(|z| !matches!(z.state, ZoneState::Conventional | ZoneState::Empty));
    assert!(written.count() <= 1, "only the journal is left");
}

#[test]
fn deleting_another_file_lets_what_a_failed_close_left_be_written() {
    let (emulator, _, fs) = failed_close();
    emulator.faults().host_full(false);
    write(&fs, "/other.sst", b"short");
    fs.unlink("/other.sst").unwrap();
    assert!(fs.runs("/000001.sst").unwrap().iter().all(|run| run.len < u64::MAX), "it is closed");
}

/// Where the zone begins that the journal is written to.
fn newest_journal(emulator: &Emulator) -> u64 {
    let zones = report_all(emulator).unwrap();
    let size = emulator.geometry().zone_size;
    let mut buf = imbrex_device::AlignedBuf::zeroed(4096);
    let mut order = |zone: &&Zone| {
        let at = u64::from(zone.id.0) * size;
        emulator.read_at(&mut buf, at, imbrex_device::Cause::Check.into()).unwrap();
        LogHead::decode(&buf).filter(|_| zone.wp.is_some_and(|wp| wp > 0)).map(|head| (head.order, at))
    };
    zones.iter().filter_map(|zone| order(&zone)).max().expect("a journal").1
}

/// Tables in `lost+found` after each block of the journal is damaged in turn, but for headers, the snapshot's beginning and its first piece, which tells of
/// zones that were freed.
fn back_after_damage(emulator: &Emulator) -> Vec<String> {
    let journal = newest_journal(emulator);
    let (mut found, mut told) = (Vec::new(), 0);
    for block in 4..emulator.geometry().zone_size / 4096 {
        let emulator = emulator.fork().unwrap();
        if emulator.faults().flip_bits(journal + block * 4096 + 66, 1).is_err() {
            assert!(block > 4, "the journal has five blocks at least");
            break;
        }
        let fs = mount(&emulator);
        // What stands before the newest snapshot is of no use.
        told += usize::from(!fs.mount_report().damage.is_empty());
        let names = fs.list("/lost+found").unwrap_or_default().into_iter().map(|entry| entry.name);
        found.extend(names.filter(|name| name.ends_with(".sst")));
    }
    assert!(told > 1, "{told} blocks of the journal are missed");
    found
}

/// Makes the journal longer by a few blocks.
fn link_much(fs: &BlueFs) {
    write(fs, "/x", b"some bytes");
    (0..60).for_each(|i| fs.link("/x", &format!("/{i}-{}", "n".repeat(200))).unwrap());
    (0..60).for_each(|i| fs.unlink(&format!("/{i}-{}", "n".repeat(200))).unwrap());
    fs.unlink("/x").unwrap();
    fs.sync_dir("/").unwrap();
}

#[test]
fn a_deleted_file_does_not_come_back_by_a_zone_that_was_not_reset_yet() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    BlueFs::format(&drive_of(&emulator), false).unwrap();
    let fs = mount(&emulator);
    write(&fs, "/deleted.sst", &bytes(100_000, 1));
    fs.unlink("/deleted.sst").unwrap();
    fs.sync_dir("/").unwrap();
    std::mem::forget(fs);
    // The mount after a power loss writes the journal anew: no record speaks of the file any more.
    let emulator = emulator.after_power_loss(1).unwrap();
    let fs = mount(&emulator);
    link_much(&fs);
    std::mem::forget(fs);
    assert!(zone_named(&emulator, "deleted.sst") > 0, "its zone is not reset");
    assert_eq!(back_after_damage(&emulator), Vec::<String>::new());
}

#[test]
fn a_file_without_a_name_does_not_come_back_by_a_zone_that_it_took_later() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    BlueFs::format(&drive_of(&emulator), false).unwrap();
    let fs = BlueFs::mount(drive_of(&emulator), Options { journal_bytes: 8 << 10, ..options() }).unwrap();
    let file = fs.create("/nameless.sst", CreateOptions::default()).unwrap();
    fs.unlink("/nameless.sst").unwrap();
    // Enough for a compaction, which forgets the deletion.
    link_much(&fs);
    file.append(&bytes(100_000, 2)).unwrap();
    file.sync().unwrap();
    for name in ["/d", "/e", "/f"] {
        fs.mkdir(name).unwrap();
        fs.sync_dir("/").unwrap();
    }
    std::mem::forget((fs, file));
    assert!(zone_named(&emulator, "nameless.sst") > 0);
    // Only the block that says that the zone is nobody's may cost that.
    assert!(back_after_damage(&emulator).len() <= 1);
}

/// A write of the journal's that is several frames long fails half-way: the frames that the drive took are in the next attempt
/// once more, and a mount takes them once.
#[test]
fn a_journal_write_that_fails_half_way_costs_nothing() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = drive_of(&emulator);
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    // Records of far more than one frame, in one write.
    let directories = || (0..200).map(|i| format!("/a directory with a name that takes some room {i}"));
    directories().for_each(|path| fs.mkdir(&path).unwrap());
    emulator.faults().fail_write(1, 2);
    fs.sync_dir("/").unwrap();
    emulator.faults().clear();
    directories().step_by(2).for_each(|path| fs.rmdir(&path).unwrap());
    fs.sync_dir("/").unwrap();
    drop(fs);
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert_eq!(fs.mount_report().damage, Vec::<String>::new());
    let left = fs.list("/").unwrap().len();
    assert_eq!(left, 100);
    assert_eq!(fs.check(|_, _| ()).unwrap().problems, Vec::<String>::new());
}

#[test]
fn an_unreadable_place_behind_an_open_log_that_is_another_files_costs_that_one_only() {
    // In a frame of the other's, and its header.
    for (block, deleted) in [(2, false), (2, true), (-1i64, false)] {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        BlueFs::format(&drive_of(&emulator), false).unwrap();
        let fs = BlueFs::mount(drive_of(&emulator), crate::support::options()).unwrap();
        let write = |path: &str, byte: u8| {
            let log = fs.create(path, CreateOptions::default()).unwrap();
            for _ in 0..3 {
                log.append(&[byte; 1000]).unwrap();
                log.sync().unwrap();
            }
            log
        };
        write("/000001.log", 1).close().unwrap();
        let second = write("/000002.log", 2);
        let place = fs.runs("/000002.log").unwrap()[0].address;
        assert_eq!(place / (1 << 20), zone_named(&emulator, "000001.log") / (1 << 20), "they share a zone");
        let first = fs.reopen("/000001.log").unwrap();
        if deleted {
            fs.unlink("/000002.log").unwrap();
        }
        fs.sync_all().unwrap();
        std::mem::forget((fs, first, second));
        emulator.faults().media_error(place.wrapping_add_signed(block * 4096), 4096);
        let fs = mount(&emulator);
        let damage = &fs.mount_report().damage;
        assert_eq!(read(&fs, "/000001.log").unwrap(), [1; 3000]);
        if deleted || block < 0 {
            assert_eq!(*damage, Vec::<String>::new());
            assert!(deleted || read(&fs, "/000002.log").unwrap() == [2; 3000]);
        } else {
            assert!(damage.len() == 1 && damage[0].contains("/000002.log"), "{damage:?}");
            ends_in_an_error(&fs, "/000002.log", &[2; 2000], Code::Corruption);
        }
    }
}
