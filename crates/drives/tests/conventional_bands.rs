//! The conventional zones of a zoned drive, cut into bands that serve as sequential zones: the device contract on them, the
//! death of the process, and the drive's own power losses.

use imbrex_device::banded::{Banded, Base, ConventionalZones, Layout, SequentialOnly};
use imbrex_device::kernel::Access;
use imbrex_device::{
    AlignedBuf, Cause, Fault, HeapSurvivor, Survivor, Tag, ZoneId, ZoneOp, ZoneState, ZonedDevice, contract, report_all,
};
use imbrex_drives::{AS_SEQUENTIAL, OpenOptions};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Check);
const BAND: u64 = 256 << 10;

/// 16 conventional zones of 1 MiB each, so that bands cross them.
fn drive() -> Arc<Emulator> {
    let config = Config { conventional: 16, ..Config::tiny() };
    let drive = Arc::new(Emulator::memory(&config).unwrap());
    let base = ConventionalZones::new(drive.clone(), None).unwrap();
    let plan = Layout::plan(base.facts().size, 4096, BAND, Some(2)).unwrap();
    Banded::format(&base, &plan).unwrap();
    drive
}

fn open(drive: &Arc<Emulator>, survivor: &Arc<HeapSurvivor>) -> Banded {
    let survivor: Arc<dyn Survivor> = survivor.clone();
    let base = ConventionalZones::new(drive.clone(), Some(survivor)).unwrap();
    Banded::open(Box::new(base), Access::Write).unwrap()
}

fn write(drive: &Banded, zone: u64, block: u64, fill: u8) {
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(fill);
    drive.write_at(&buf, zone * BAND + block * 4096, TAG).unwrap();
}

fn written(drive: &Banded) -> Vec<u64> {
    report_all(drive).unwrap()[2..6].iter().map(|zone| zone.wp.unwrap() / 4096).collect()
}

#[test]
fn conventional_zones_serve_as_sequential_ones() {
    contract::run(&|| Box::new(open(&drive(), &Arc::new(HeapSurvivor::new()))));
}

#[test]
fn the_death_of_the_process_loses_nothing_and_a_power_loss_only_what_was_not_flushed() {
    let (drive, survivor) = (drive(), Arc::new(HeapSurvivor::new()));
    let first = open(&drive, &survivor);
    write(&first, 2, 0, 1);
    first.flush(TAG).unwrap();
    write(&first, 2, 1, 2);
    write(&first, 3, 0, 3);
    first.zone_op(ZoneOp::Finish, ZoneId(4), TAG).unwrap();
    // Dead, without a close.
    let left = Arc::new(survivor.snapshot());
    let at_death = Arc::new(drive.fork().unwrap());
    std::mem::forget(first);
    let second = open(&drive, &left);
    assert_eq!(written(&second), [2, 1, BAND / 4096, 0]);
    let mut buf = AlignedBuf::zeroed(8192);
    second.read_at(&mut buf, 2 * BAND, TAG).unwrap();
    assert_eq!((buf[0], buf[4096]), (1, 2));
    drop(second);
    // The same drive without its power: whatever is left in memory is another epoch's.
    for seed in 0..20 {
        let after = Arc::new(at_death.after_power_loss(seed).unwrap());
        let third = open(&after, &Arc::new(survivor.snapshot()));
        let now = written(&third);
        assert_eq!(now, [1, 0, BAND / 4096, 0], "seed {seed}");
        third.read_at(&mut buf, 2 * BAND, TAG).unwrap();
        assert_eq!((buf[0], buf[4096]), (1, 0), "seed {seed}");
        write(&third, 2, 1, 9);
        third.flush(TAG).unwrap();
    }
}

/// What is in shared memory of the bands is not believed under a drive that was put back to an earlier state.
#[test]
fn a_copy_that_is_restored_in_place_has_the_bands_that_it_was_copied_with() {
    let (drive, survivor) = (drive(), Arc::new(HeapSurvivor::new()));
    let first = open(&drive, &survivor);
    write(&first, 2, 0, 1);
    write(&first, 3, 0, 1);
    drop(first);
    let backup = drive.fork().unwrap();
    let later = open(&drive, &survivor);
    let in_use = drive.fork().unwrap();
    write(&later, 2, 1, 2);
    let restored = |copy: &Emulator| open(&Arc::new(copy.fork().unwrap()), &Arc::new(survivor.snapshot()));
    assert_eq!(written(&restored(&backup)), [1, 1, 0, 0], "written, not flushed");
    later.flush(TAG).unwrap();
    later.zone_op(ZoneOp::Reset, ZoneId(3), TAG).unwrap();
    write(&later, 4, 0, 2);
    for copy in [&backup, &in_use] {
        assert_eq!(written(&restored(copy)), [1, 1, 0, 0]);
    }
    assert_eq!(written(&restored(&drive)), [2, 0, 1, 0], "its own");
    std::mem::forget(later);
    // And it goes on from there.
    let again = Arc::new(backup.fork().unwrap());
    let drive = open(&again, &survivor);
    write(&drive, 3, 1, 3);
    std::mem::forget(drive);
    assert_eq!(written(&open(&again, &survivor)), [1, 2, 0, 0]);
}

#[test]
fn a_drive_without_conventional_zones_has_nothing_to_cut() {
    let drive = Arc::new(Emulator::memory(&Config { conventional: 0, ..Config::tiny() }).unwrap());
    let error = ConventionalZones::new(drive, None).err().unwrap().to_string();
    assert!(error.contains("nothing to cut"), "{error}");
}

/// A drive as it is, with a band table for its conventional zones.
fn mixed(config: &Config) -> Arc<Emulator> {
    let drive = Arc::new(Emulator::memory(config).unwrap());
    let device: Arc<dyn ZonedDevice> = drive.clone();
    SequentialOnly::format(&device).unwrap();
    drive
}

fn open_mixed(drive: &Arc<Emulator>, survivor: &Arc<HeapSurvivor>) -> SequentialOnly {
    let survivor: Arc<dyn Survivor> = survivor.clone();
    SequentialOnly::open(drive.clone(), Some(survivor), Access::Write).unwrap()
}

/// As many bands as the drive has conventional zones, but for the table's.
#[test]
fn a_drive_with_bands_for_conventional_zones_keeps_the_contract() {
    let config = Config { conventional: 16, max_open: None, ..Config::tiny() };
    let small = Config { block: 512, ..config.clone() };
    let all = Config { conventional: 64, ..config.clone() };
    for config in [config, small, all] {
        contract::run(&|| Box::new(open_mixed(&mixed(&config), &Arc::new(HeapSurvivor::new()))));
    }
    // Bands count against no limit; the drive's own zones keep theirs.
    let limited = Config { conventional: 16, ..Config::tiny() };
    let drive = open_mixed(&mixed(&limited), &Arc::new(HeapSurvivor::new()));
    for (name, check) in
        contract::CHECKS.iter().filter(|(name, _)| !name.contains("open limit") && !name.contains("itself"))
    {
        println!("{name}");
        check(&drive);
    }
    (0..drive.geometry().zones).for_each(|zone| drive.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).unwrap());
    let open = |zone: u32| drive.zone_op(ZoneOp::Open, ZoneId(zone), TAG);
    let limit = drive.geometry().max_open.unwrap().get();
    (0..limit).for_each(|zone| open(drive.bands() + zone).unwrap());
    assert!(matches!(open(drive.bands() + limit).unwrap_err().fault, Fault::TooManyOpen));
    (0..drive.bands()).for_each(|band| open(band).unwrap());
}

#[test]
fn bands_come_first_and_errors_are_in_their_zones() {
    let config = Config { conventional: 16, ..Config::tiny() };
    let drive = mixed(&config);
    let zones = open_mixed(&drive, &Arc::new(HeapSurvivor::new()));
    let shift = 16 - zones.bands();
    assert!((1..4).contains(&shift), "{shift} zones hold the table");
    assert_eq!(zones.geometry().zones, 64 - shift);
    let report = report_all(&zones).unwrap();
    assert!(report.iter().enumerate().all(|(i, z)| z.id.0 as usize == i && z.state == ZoneState::Empty));
    let size = zones.geometry().zone_size;
    let own = zones.bands();
    let mut buf = AlignedBuf::zeroed(4096);
    for zone in [0, own] {
        let at = u64::from(zone) * size + 4096;
        let error = zones.write_at(&buf, at, TAG).unwrap_err();
        assert!(matches!(error.fault, Fault::WritePointer { expected: 0, got: 4096 }), "{error}");
        assert_eq!((error.zone, error.offset), (Some(ZoneId(zone)), at));
    }
    // The drive's own zone is where it was: `shift` zones further.
    buf.fill(7);
    zones.write_at(&buf, u64::from(own) * size, TAG).unwrap();
    let mut seen = AlignedBuf::zeroed(4096);
    drive.read_at(&mut seen, 16 * size, TAG).unwrap();
    assert_eq!(*seen, *buf);
    // A conventional zone that dies is a dead band, and no other.
    // What was flushed there stays in the log of the band table, and every log that follows.
    for band in [1, 2] {
        zones.write_at(&buf, band * size, TAG).unwrap();
    }
    zones.flush(TAG).unwrap();
    drive.faults().make_offline(ZoneId(shift + 2)).unwrap();
    let report = report_all(&zones).unwrap();
    assert_eq!((report[2].state, report[3].state), (ZoneState::Offline, ZoneState::Empty));
    let mut zones = zones;
    for _ in 0..3 {
        for _ in 0..1100 {
            zones.zone_op(ZoneOp::Reset, ZoneId(3), TAG).unwrap();
        }
        zones.write_at(&buf, 3 * size, TAG).unwrap();
        zones.flush(TAG).unwrap();
        for band in [1, 3] {
            zones.read_at(&mut seen, band * size, TAG).unwrap();
            assert_eq!(*seen, *buf);
        }
        drop(zones);
        zones = open_mixed(&drive, &Arc::new(HeapSurvivor::new()));
    }
}

#[test]
fn one_flush_covers_bands_and_zones_and_a_power_loss_takes_the_rest() {
    let (drive, survivor) = (mixed(&Config { conventional: 16, ..Config::tiny() }), Arc::new(HeapSurvivor::new()));
    let first = open_mixed(&drive, &survivor);
    let (size, own) = (first.geometry().zone_size, first.bands());
    let write = |drive: &SequentialOnly, zone: u32, block: u64| {
        drive.write_at(&AlignedBuf::zeroed(4096), u64::from(zone) * size + block * 4096, TAG).unwrap();
    };
    let written =
        |drive: &SequentialOnly| [1, own].map(|zone| report_all(drive).unwrap()[zone as usize].wp.unwrap() / 4096);
    for zone in [1, own] {
        write(&first, zone, 0);
    }
    let flushes = drive.stats().total.flushes;
    first.flush(TAG).unwrap();
    assert_eq!(drive.stats().total.flushes, flushes + 1);
    for zone in [1, own] {
        write(&first, zone, 1);
        write(&first, zone, 2);
    }
    let left = Arc::new(survivor.snapshot());
    let at_death = Arc::new(drive.fork().unwrap());
    std::mem::forget(first);
    assert_eq!(written(&open_mixed(&drive, &left)), [3, 3], "the death of the process loses nothing");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let after = Arc::new(at_death.after_power_loss(seed).unwrap());
        let [band, zone] = written(&open_mixed(&after, &Arc::new(survivor.snapshot())));
        assert_eq!(band, 1, "seed {seed}");
        assert!((1..=3).contains(&zone), "seed {seed}");
        seen.insert(zone);
    }
    assert!(seen.len() > 1, "power losses differ");
}

/// What is written to a band is durable with a flush only, though the drive under it keeps what it has acknowledged.
#[test]
fn a_drive_without_a_write_cache_has_one_with_bands() {
    let config = Config { conventional: 16, write_cache: false, ..Config::tiny() };
    let (drive, survivor) = (mixed(&config), Arc::new(HeapSurvivor::new()));
    let first = open_mixed(&drive, &survivor);
    assert!(first.write_cache().unwrap());
    let block = AlignedBuf::zeroed(4096);
    first.write_at(&block, 0, TAG).unwrap();
    let without = Arc::new(drive.after_power_loss(1).unwrap());
    first.flush(TAG).unwrap();
    let with = Arc::new(drive.after_power_loss(1).unwrap());
    let written = |drive: &Arc<Emulator>| report_all(&open_mixed(drive, &Arc::new(HeapSurvivor::new()))).unwrap()[0].wp;
    assert_eq!((written(&without), written(&with)), (Some(0), Some(4096)));
    // Asked for, it is off: then every write is durable by itself.
    first.set_write_cache(false).unwrap();
    assert!(!first.write_cache().unwrap());
    first.write_at(&block, 4096, TAG).unwrap();
    assert_eq!(written(&Arc::new(drive.after_power_loss(1).unwrap())), Some(8192));
}

#[test]
fn names_lead_to_drives_as_they_are_and_as_sequential_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    drop(Emulator::create(&path, &Config { conventional: 16, ..Config::tiny() }, false).unwrap());
    let plain = path.to_str().unwrap().to_owned();
    let name = format!("{plain}{AS_SEQUENTIAL}");
    let open = |name: &str| imbrex_drives::open(name, &OpenOptions::default());
    let says = |name: &str, text: &str| {
        let error = open(name).err().unwrap().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(&name, &format!("imbrex drive create --banded '{name}'"));
    says(&format!("{plain}?conventional=7"), "conventional=as-sequential");
    // Somebody's bytes are kept.
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(1);
    open(&plain).unwrap().device.write_at(&buf, 1 << 20, TAG).unwrap();
    let error = imbrex_drives::make_sequential(&path, false).unwrap_err().to_string();
    assert!(error.contains("--force"), "{error}");
    let bands = imbrex_drives::make_sequential(&path, true).unwrap();
    let drive = open(&name).unwrap();
    assert!(drive.survivor.is_some());
    assert_eq!(report_all(drive.device.as_ref()).unwrap().iter().filter(|z| z.wp.is_some()).count() as u32, 48 + bands);
    says(&plain, "in use by process");
    assert_ne!(imbrex_drives::key(&plain), imbrex_drives::key(&name));
    let zones = drive.device.geometry().zones;
    drop(drive);
    // The name alone finds the bands, too; whoever formats may ask for the drive as it is.
    assert_eq!(open(&plain).unwrap().device.geometry().zones, zones);
    let as_it_is = OpenOptions { as_it_is: true, ..OpenOptions::default() };
    assert_eq!(imbrex_drives::open(&plain, &as_it_is).unwrap().device.geometry().zones, 64);
    let looks = OpenOptions { read_only: true, ..OpenOptions::default() };
    let both = [0, 1].map(|_| imbrex_drives::open(&name, &looks).unwrap());
    assert!(matches!(both[0].device.write_at(&buf, 0, TAG).unwrap_err().fault, Fault::ReadOnly));
    drop(both);
    drop(Emulator::create(&path, &Config { conventional: 3, ..Config::tiny() }, true).unwrap());
    let error = imbrex_drives::make_sequential(&path, false).unwrap_err().to_string();
    assert!(error.contains("use the drive as it is"), "{error}");
}
