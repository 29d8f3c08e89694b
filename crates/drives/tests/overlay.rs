//! The overlay: it keeps the contract of a drive, and never writes to the one below.

use imbrex_device::banded::{Banded, Layout, MemoryBase};
use imbrex_device::kernel::Access;
use imbrex_device::{
    AlignedBuf, Cause, Fault, HeapSurvivor, Survivor, SurvivorKey, Tag, ZoneId, ZoneOp, ZoneState, ZonedDevice,
    contract, report_all,
};
use imbrex_drives::overlay::{DEFAULT_LIMIT, Overlay, Untouched};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Other);

fn block(n: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(n * 4096);
    buf.fill(byte);
    buf
}

fn write(drive: &dyn ZonedDevice, zone: u32, at: u64, byte: u8) -> imbrex_device::Result<()> {
    drive.write_at(&block(1, byte), drive.geometry().start(ZoneId(zone)) + at * 4096, TAG)
}

fn read(drive: &dyn ZonedDevice, zone: u32, blocks: usize) -> Vec<u8> {
    let mut buf = block(blocks, 0xee);
    drive.read_at(&mut buf, drive.geometry().start(ZoneId(zone)), TAG).unwrap();
    buf.chunks(4096).map(|b| b[0]).collect()
}

/// A drive with something in a conventional zone and in two sequential ones.
fn used() -> Emulator {
    let drive = Emulator::memory(&Config::tiny()).unwrap();
    for (zone, at, byte) in [(0, 1, 1), (0, 2, 2), (8, 0, 3), (8, 1, 4), (9, 0, 5)] {
        write(&drive, zone, at, byte).unwrap();
    }
    drive.zone_op(ZoneOp::Finish, ZoneId(9), TAG).unwrap();
    drive
}

#[test]
fn it_keeps_the_contract_of_a_drive() {
    let tiny = Config::tiny();
    let configs = [
        tiny.clone(),
        Config { write_cache: false, ..tiny.clone() },
        Config { block: 512, max_io: 128 << 10, ..tiny.clone() },
        Config { conventional: 0, max_open: None, ..tiny.clone() },
        Config {
            zone_capacity: 768 << 10,
            max_open: Some(4),
            max_active: Some(6),
            reads_cross_zones: false,
            reads_above_wp: false,
            ..tiny
        },
    ];
    for config in configs {
        contract::run(&|| {
            let below = Arc::new(Emulator::memory(&config).unwrap());
            Box::new(Overlay::new(below, DEFAULT_LIMIT).unwrap())
        });
    }
    // And over zones that are not empty.
    contract::run(&|| Box::new(Overlay::new(Arc::new(used()), DEFAULT_LIMIT).unwrap()));
    // And over a disk whose zones are written in place.
    contract::run(&|| {
        let plan = Layout::plan(48 << 20, 4096, 1 << 20, Some(2)).unwrap();
        let base = MemoryBase::new(vec![0xee; 48 << 20], 4096);
        Banded::format(&base, &plan).unwrap();
        let below = Arc::new(Banded::open(Box::new(base), Access::Write).unwrap());
        assert!(below.overwrites());
        Box::new(Overlay::new(below, DEFAULT_LIMIT).unwrap())
    });
}

#[test]
fn what_is_overwritten_in_place_stays_as_it_is_below() {
    let plan = Layout::plan(48 << 20, 4096, 1 << 20, Some(0)).unwrap();
    let base = MemoryBase::new(vec![0; 48 << 20], 4096);
    Banded::format(&base, &plan).unwrap();
    let below = Arc::new(Banded::open(Box::new(base), Access::Write).unwrap());
    let start = below.geometry().start(ZoneId(3));
    below.set_in_place(ZoneId(3), TAG).unwrap();
    (0..3).for_each(|n| below.write_in_place(&block(1, 1 + n as u8), start + n * 4096, TAG).unwrap());
    let drive = Overlay::new(below.clone(), 2 * 4096).unwrap();
    drive.write_in_place(&block(1, 9), start + 4096, TAG).unwrap();
    assert_eq!((read(&drive, 3, 3), read(below.as_ref(), 3, 3)), (vec![1, 9, 3], vec![1, 2, 3]));
    let error = drive.write_in_place(&block(2, 9), start, TAG).unwrap_err();
    assert!(matches!(error.fault, Fault::Unusable(_)), "{error}");
    drive.zone_op(ZoneOp::Reset, ZoneId(3), TAG).unwrap();
    assert_eq!((read(&drive, 3, 1), drive.kept()), (vec![0], 0));
}

#[test]
fn what_was_there_is_seen_until_it_is_written_or_reset_here() {
    let below = used();
    below.reset_stats();
    let before = report_all(&below).unwrap();
    let drive = Overlay::new(Arc::new(below.clone()), DEFAULT_LIMIT).unwrap();
    assert_eq!(report_all(&drive).unwrap(), before);
    assert_eq!((read(&drive, 0, 4), read(&drive, 8, 3)), (vec![0, 1, 2, 0], vec![3, 4, 0]));
    write(&drive, 0, 2, 9).unwrap();
    write(&drive, 8, 2, 6).unwrap();
    assert_eq!((read(&drive, 0, 4), read(&drive, 8, 4)), (vec![0, 1, 9, 0], vec![3, 4, 6, 0]));
    drive.zone_op(ZoneOp::Reset, ZoneId(8), TAG).unwrap();
    drive.zone_op(ZoneOp::Reset, ZoneId(9), TAG).unwrap();
    assert_eq!((read(&drive, 8, 3), read(&drive, 9, 2)), (vec![0, 0, 0], vec![0, 0]));
    write(&drive, 8, 0, 7).unwrap();
    assert_eq!(read(&drive, 8, 3), [7, 0, 0]);
    // A read over a zone that is as below and one that is not.
    let mut buf = block(2, 0);
    drive.read_at(&mut buf, drive.geometry().start(ZoneId(8)) - 4096, TAG).unwrap();
    assert_eq!((buf[0], buf[4096]), (0, 7));
    // Below, nothing has happened.
    assert_eq!(report_all(&below).unwrap(), before);
    assert_eq!((read(&below, 0, 4), read(&below, 8, 3)), (vec![0, 1, 2, 0], vec![3, 4, 0]));
    let stats = below.stats();
    assert_eq!((stats.total.writes, stats.total.flushes, stats.total.zone_resets), (0, 0, 0));
}

#[test]
fn its_memory_is_bounded_and_resets_give_it_back() {
    let drive = Overlay::new(Arc::new(used()), 3 * 4096).unwrap();
    for at in 0..3 {
        write(&drive, 10, at, 1).unwrap();
    }
    for (zone, at) in [(10, 3), (0, 0)] {
        let error = write(&drive, zone, at, 1).unwrap_err();
        assert!(matches!(error.fault, Fault::Unusable(_)), "{error}");
    }
    assert_eq!(drive.kept(), 3 * 4096);
    drive.zone_op(ZoneOp::Reset, ZoneId(10), TAG).unwrap();
    assert_eq!(drive.kept(), 0);
    write(&drive, 0, 0, 1).unwrap();
}

#[test]
fn dead_zones_are_dead_here_too() {
    let below = used();
    below.faults().make_read_only(ZoneId(8)).unwrap();
    below.faults().make_offline(ZoneId(9)).unwrap();
    let drive = Overlay::new(Arc::new(below), DEFAULT_LIMIT).unwrap();
    assert!(matches!(write(&drive, 8, 2, 1).unwrap_err().fault, Fault::ReadOnly));
    assert!(matches!(drive.zone_op(ZoneOp::Reset, ZoneId(9), TAG).unwrap_err().fault, Fault::Offline));
    assert_eq!(read(&drive, 8, 2), [3, 4]);
    assert_eq!(report_all(&drive).unwrap()[9].state, ZoneState::Offline);
}

#[test]
fn a_survivor_that_is_looked_at_stays() {
    let key = SurvivorKey { volume: [1; 16], medium: [2; 16], power_epoch: [3; 16], mount: 4 };
    let kept = Arc::new(HeapSurvivor::new());
    kept.create(&key, 4096).unwrap();
    let look = Untouched(kept.clone());
    assert_eq!(look.left_behind(&key).unwrap().unwrap().len(), 4096);
    assert_eq!(look.create(&SurvivorKey { mount: 5, ..key }, 8192).unwrap().len(), 8192);
    look.discard(&key.volume).unwrap();
    assert_eq!(kept.left_behind(&key).unwrap().unwrap().len(), 4096);
}
