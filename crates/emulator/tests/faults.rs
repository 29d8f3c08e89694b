//! Faults on request.

mod common;

use common::*;
use imbrex_device::{AlignedBuf, Fault, ZoneId, ZoneOp, ZoneState, ZonedDevice};
use imbrex_emulator::{AtRisk, Config, Emulator};
use std::io::ErrorKind;

fn tiny() -> Emulator {
    Emulator::memory(&Config::tiny()).unwrap()
}

fn io_kind(fault: &Fault) -> Option<ErrorKind> {
    match fault {
        Fault::Io(error) => Some(error.kind()),
        _ => None,
    }
}

#[test]
fn a_bad_block_fails_reads_until_it_is_overwritten() {
    let drive = tiny();
    write(&drive, ZoneId(0), 0, 5, 8).unwrap();
    drive.faults().media_error(3 * BLOCK + 100, 10);
    let mut buf = AlignedBuf::zeroed(8 * BLOCK as usize);
    let error = drive.read_at(&mut buf, BLOCK, TAG).unwrap_err();
    assert!(matches!(error.fault, Fault::Media { len } if len == 2 * BLOCK), "{error}");
    assert!(buf[..2 * BLOCK as usize].iter().all(|byte| *byte == 5), "what was read before the bad block is there");
    assert_eq!(bytes(&drive, ZoneId(0), 4, 2), [5, 5]);
    write(&drive, ZoneId(0), 3, 6, 1).unwrap();
    assert_eq!(bytes(&drive, ZoneId(0), 2, 3), [5, 6, 5]);
    assert_eq!((drive.stats().errors, drive.stats().rule_violations), (1, 0));
}

#[test]
fn a_reset_heals_a_sequential_zone_and_clear_heals_all() {
    let drive = tiny();
    write(&drive, FIRST, 0, 1, 2).unwrap();
    let start = drive.geometry().start(FIRST);
    drive.faults().media_error(start, BLOCK);
    drive.faults().media_error(0, BLOCK);
    drive.read_at(&mut full_of(0, 1), start, TAG).unwrap_err();
    drive.zone_op(ZoneOp::Reset, FIRST, TAG).unwrap();
    assert_eq!(bytes(&drive, FIRST, 0, 1), [0]);
    drive.read_at(&mut full_of(0, 1), 0, TAG).unwrap_err();
    drive.faults().clear();
    assert_eq!(bytes(&drive, ZoneId(0), 0, 1), [0]);
}

#[test]
fn bits_flip_where_something_is_written() {
    for drive in [tiny(), Emulator::memory_flat(&Config::tiny()).unwrap()] {
        write(&drive, FIRST, 0, 0b1010, 1).unwrap();
        let at = drive.geometry().start(FIRST) + 77;
        drive.faults().flip_bits(at, 0b0110).unwrap();
        let mut buf = AlignedBuf::zeroed(BLOCK as usize);
        drive.read_at(&mut buf, at - 77, TAG).unwrap();
        assert_eq!((buf[76], buf[77], buf[78]), (0b1010, 0b1100, 0b1010));
        assert!(drive.faults().flip_bits(at + BLOCK, 1).is_err());
    }
}

#[test]
fn failing_flushes_make_nothing_durable() {
    let drive = tiny();
    write(&drive, FIRST, 0, 1, 2).unwrap();
    drive.faults().fail_flushes(2);
    for _ in 0..2 {
        assert!(io_kind(&drive.flush(TAG).unwrap_err().fault).is_some());
        assert_eq!(drive.unflushed(), [AtRisk { zone: FIRST, blocks: 2 }]);
    }
    drive.flush(TAG).unwrap();
    assert!(drive.unflushed().is_empty());
    assert_eq!((drive.stats().flushes, drive.stats().errors), (1, 2));
}

#[test]
fn the_nth_write_fails_and_keeps_a_prefix() {
    let drive = tiny();
    drive.faults().fail_write(2, 3);
    write(&drive, FIRST, 0, 1, 1).unwrap();
    let error = write(&drive, FIRST, 1, 2, 5).unwrap_err();
    assert!(io_kind(&error.fault).is_some());
    assert_eq!((written(&drive, FIRST), bytes(&drive, FIRST, 0, 6)), (4, vec![1, 2, 2, 2, 0, 0]));
    assert_eq!(drive.stats().writes, 1);
    write(&drive, FIRST, 4, 3, 1).unwrap();
}

#[test]
fn a_torn_write_never_is_whole() {
    let drive = tiny();
    drive.faults().fail_write(1, 100);
    write(&drive, FIRST, 0, 1, 2).unwrap_err();
    assert_eq!(written(&drive, FIRST), 1);
    drive.faults().fail_write_in(ZoneId(2), 1);
    write(&drive, ZoneId(1), 0, 1, 2).unwrap();
    write(&drive, ZoneId(2), 0, 1, 2).unwrap_err();
    assert_eq!(bytes(&drive, ZoneId(2), 0, 2), [1, 0]);
    drive.faults().fail_write_in(ZoneId(5), 0);
    write(&drive, ZoneId(5), 0, 1, 1).unwrap_err();
    assert_eq!((report(&drive, ZoneId(5)).state, written(&drive, ZoneId(5))), (ZoneState::Empty, 0));
}

#[test]
fn dead_zones() {
    let drive = tiny();
    write(&drive, ZoneId(4), 0, 1, 2).unwrap();
    write(&drive, ZoneId(5), 0, 1, 2).unwrap();
    drive.faults().make_read_only(ZoneId(4)).unwrap();
    drive.faults().make_offline(ZoneId(5)).unwrap();
    drive.faults().make_offline(ZoneId(1)).unwrap();
    assert!(drive.faults().make_offline(ZoneId(64)).is_err());
    let mut buf = AlignedBuf::zeroed(BLOCK as usize);

    assert_eq!((report(&drive, ZoneId(4)).state, bytes(&drive, ZoneId(4), 0, 2)), (ZoneState::ReadOnly, vec![1, 1]));
    assert_eq!(report(&drive, ZoneId(4)).wp, None, "it is not valid, as on a real drive");
    assert!(matches!(write(&drive, ZoneId(4), 2, 1, 1).unwrap_err().fault, Fault::ReadOnly));
    let offline = report(&drive, ZoneId(5));
    assert_eq!((offline.state, offline.wp), (ZoneState::Offline, None));
    for zone in [1, 5] {
        assert!(matches!(write(&drive, ZoneId(zone), 2, 1, 1).unwrap_err().fault, Fault::Offline));
        let start = drive.geometry().start(ZoneId(zone));
        assert!(matches!(drive.read_at(&mut buf, start, TAG).unwrap_err().fault, Fault::Offline));
    }
    for op in [ZoneOp::Open, ZoneOp::Close, ZoneOp::Finish, ZoneOp::Reset] {
        assert!(matches!(drive.zone_op(op, ZoneId(4), TAG).unwrap_err().fault, Fault::ReadOnly));
        assert!(matches!(drive.zone_op(op, ZoneId(5), TAG).unwrap_err().fault, Fault::Offline));
    }
    assert_eq!(drive.stats().rule_violations, 0, "the host could not know");
    let after = drive.after_power_loss(3).unwrap();
    assert_eq!(
        (report(&after, ZoneId(4)).state, report(&after, ZoneId(5)).state),
        (ZoneState::ReadOnly, ZoneState::Offline)
    );
    // Dead zones hold no open resource.
    for zone in 10..18 {
        drive.zone_op(ZoneOp::Open, ZoneId(zone), TAG).unwrap();
    }
}

#[test]
fn a_zone_that_dies_under_a_write_fails_it() {
    let drive = tiny();
    let held = drive.faults().hold_write(FIRST);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| write(&drive, FIRST, 0, 1, 1));
        held.arrived();
        drive.faults().make_read_only(FIRST).unwrap();
        drop(held);
        assert!(matches!(slow.join().unwrap().unwrap_err().fault, Fault::ReadOnly));
    });
    assert_eq!((report(&drive, FIRST).state, bytes(&drive, FIRST, 0, 1)), (ZoneState::ReadOnly, vec![0]));
}

#[test]
fn a_full_host_changes_nothing() {
    let drive = tiny();
    write(&drive, ZoneId(0), 0, 1, 1).unwrap();
    drive.faults().host_full(true);
    for zone in [ZoneId(0), FIRST] {
        let error = write(&drive, zone, 0, 2, 1).unwrap_err();
        assert_eq!(io_kind(&error.fault), Some(ErrorKind::StorageFull));
        assert!(error.to_string().contains("make room"), "{error}");
    }
    assert_eq!((bytes(&drive, ZoneId(0), 0, 1), written(&drive, FIRST)), (vec![1], 0));
    drive.faults().host_full(false);
    write(&drive, FIRST, 0, 2, 1).unwrap();
}
