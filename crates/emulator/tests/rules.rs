//! Every rule, broken once: the command fails, is counted under its rule and cause, and changes nothing else.

mod common;

use common::*;
use imbrex_device::{AlignedBuf, Cause, Fault, Result, Tag, ZoneId, ZoneOp, ZoneState, ZonedDevice};
use imbrex_emulator::{Config, Counts, Emulator, Rule};

const BREAKING: Tag = Tag::new(Cause::Pool);

/// Runs the one command that breaks `rule`.
fn breaks(drive: &Emulator, rule: Rule, command: impl FnOnce() -> Result<()>) {
    let before = drive.stats();
    command().expect_err("a command that breaks a rule succeeded");
    let after = drive.stats();
    for (name, count) in &after.by_rule {
        let expected = before.by_rule[name] + u64::from(*name == rule.name());
        assert_eq!(*count, expected, "rule {name} after breaking {}", rule.name());
    }
    let pool = after.of(Cause::Pool).since(&before.of(Cause::Pool));
    assert_eq!(pool, Counts { rule_violations: 1, ..Counts::default() });
    assert_eq!(after.rule_violations, before.rule_violations + 1);
}

fn zns() -> Config {
    Config {
        zone_capacity: 512 << 10,
        max_open: Some(2),
        max_active: Some(3),
        reads_cross_zones: false,
        reads_above_wp: false,
        ..Config::tiny()
    }
}

#[test]
fn each_rule_has_its_counter() {
    let drive = Emulator::memory(&Config::tiny()).unwrap();
    let start = drive.geometry().start(FIRST);
    let mut buf = AlignedBuf::zeroed(512 << 10);
    let block = BLOCK as usize;
    breaks(&drive, Rule::Alignment, || drive.write_at(&buf[..100], start, BREAKING));
    breaks(&drive, Rule::Alignment, || drive.write_at(&buf[..block], start + 1, BREAKING));
    breaks(&drive, Rule::Alignment, || drive.write_at(&buf[8..block + 8], start, BREAKING));
    breaks(&drive, Rule::TooLong, || drive.write_at(&buf, start, BREAKING));
    breaks(&drive, Rule::Range, || drive.read_at(&mut buf[..block], drive.geometry().size(), BREAKING));
    breaks(&drive, Rule::CrossesZones, || drive.write_at(&buf[..2 * block], start - BLOCK, BREAKING));
    breaks(&drive, Rule::WritePointer, || drive.write_at(&buf[..block], start + BLOCK, BREAKING));
    breaks(&drive, Rule::ConventionalOp, || drive.zone_op(ZoneOp::Reset, ZoneId(0), BREAKING));
    breaks(&drive, Rule::Transition, || drive.zone_op(ZoneOp::Close, FIRST, BREAKING));
    drive.zone_op(ZoneOp::Finish, FIRST, TAG).unwrap();
    breaks(&drive, Rule::Capacity, || drive.write_at(&buf[..block], start, BREAKING));

    let drive = Emulator::memory(&zns()).unwrap();
    let at = |zone: u32| drive.geometry().start(ZoneId(zone));
    breaks(&drive, Rule::ReadAboveWp, || drive.read_at(&mut buf[..block], start, BREAKING));
    breaks(&drive, Rule::CrossesZones, || drive.read_at(&mut buf[..2 * block], start - BLOCK, BREAKING));
    drive.zone_op(ZoneOp::Open, ZoneId(4), TAG).unwrap();
    drive.zone_op(ZoneOp::Open, ZoneId(5), TAG).unwrap();
    breaks(&drive, Rule::OpenLimit, || drive.write_at(&buf[..block], at(6), BREAKING));
    drive.write_at(&buf[..block], at(4), TAG).unwrap();
    drive.zone_op(ZoneOp::Close, ZoneId(4), TAG).unwrap();
    drive.zone_op(ZoneOp::Open, ZoneId(6), TAG).unwrap();
    breaks(&drive, Rule::ActiveLimit, || drive.zone_op(ZoneOp::Open, ZoneId(7), BREAKING));
    let report = |zone| report(&drive, ZoneId(zone)).state;
    assert_eq!([report(4), report(6), report(7)], [ZoneState::Closed, ZoneState::ExplicitlyOpen, ZoneState::Empty]);
}

/// While a write stands still in the middle of `zone`, `other` runs.
fn during_a_write(drive: &Emulator, zone: ZoneId, other: impl FnOnce()) {
    let held = drive.faults().hold_write(zone);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| write(drive, zone, 0, 7, 2));
        held.arrived();
        other();
        drop(held);
        slow.join().unwrap().unwrap();
    });
}

#[test]
fn a_second_command_on_a_zone_in_flight_is_refused_at_once() {
    let drive = Emulator::memory(&Config::tiny()).unwrap();
    during_a_write(&drive, FIRST, || {
        let start = drive.geometry().start(FIRST);
        for block in [0, 2] {
            breaks(&drive, Rule::InFlight, || drive.write_at(&full_of(1, 1), start + block * BLOCK, BREAKING));
        }
        for op in [ZoneOp::Open, ZoneOp::Close, ZoneOp::Finish, ZoneOp::Reset] {
            breaks(&drive, Rule::InFlight, || drive.zone_op(op, FIRST, BREAKING));
        }
        // Another zone, a read, a report and a flush go on.
        write(&drive, ZoneId(5), 0, 9, 1).unwrap();
        assert_eq!(bytes(&drive, FIRST, 0, 2), [0, 0], "bytes that nobody acknowledged");
        assert_eq!(written(&drive, FIRST), 0);
        drive.flush(TAG).unwrap();
    });
    assert_eq!(bytes(&drive, FIRST, 0, 3), [7, 7, 0]);
    write(&drive, FIRST, 2, 8, 1).unwrap();
}

#[test]
fn overlapping_writes_in_flight_to_a_conventional_zone_are_refused() {
    let drive = Emulator::memory(&Config::tiny()).unwrap();
    during_a_write(&drive, ZoneId(1), || {
        let start = drive.geometry().start(ZoneId(1));
        breaks(&drive, Rule::InFlight, || drive.write_at(&full_of(1, 2), start + BLOCK, BREAKING));
        write(&drive, ZoneId(1), 2, 9, 1).unwrap();
    });
    assert_eq!(bytes(&drive, ZoneId(1), 0, 3), [7, 7, 9]);
    write(&drive, ZoneId(1), 0, 1, 3).unwrap();
}

#[test]
fn the_drive_does_not_close_a_zone_that_is_being_written() {
    let drive = Emulator::memory(&Config { max_open: Some(2), ..Config::tiny() }).unwrap();
    during_a_write(&drive, ZoneId(4), || {
        write(&drive, ZoneId(5), 0, 1, 1).unwrap();
        write(&drive, ZoneId(6), 0, 1, 1).unwrap();
        assert_eq!(report(&drive, ZoneId(4)).state, ZoneState::ImplicitlyOpen);
        assert_eq!(report(&drive, ZoneId(5)).state, ZoneState::Closed);
        assert_eq!(drive.stats().zones_closed_by_drive, 1);
    });
}

#[test]
fn many_threads_on_their_own_zones_break_nothing() {
    for drive in [
        Emulator::memory(&Config::tiny()).unwrap(),
        Emulator::memory_flat(&Config { cache_bytes: 64 << 10, ..Config::tiny() }).unwrap(),
    ] {
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let drive = &drive;
                scope.spawn(move || {
                    for round in 0..20u8 {
                        // More zones than may be open, so that the drive has to close some even where the threads run one by one.
                        for zone in (0..9).map(|n| ZoneId(4 + thread * 9 + n)) {
                            write(drive, zone, u64::from(round % 10), round + 1, 1).unwrap();
                            assert_eq!(bytes(drive, zone, u64::from(round % 10), 1), [round + 1]);
                            if round % 10 == 9 {
                                drive.flush(TAG).unwrap();
                                drive.zone_op(ZoneOp::Reset, zone, TAG).unwrap();
                            }
                        }
                    }
                });
            }
        });
        let stats = drive.stats();
        assert_eq!((stats.rule_violations, stats.writes, stats.zone_resets, stats.flushes), (0, 720, 72, 72));
        assert!(stats.zones_closed_by_drive > 0);
        assert!(drive.unflushed().is_empty());
    }
}

#[test]
fn counters_add_up_by_cause_and_kind() {
    let drive = Emulator::memory(&Config::tiny()).unwrap();
    drive.write_at(&full_of(1, 2), 0, Cause::Label.into()).unwrap();
    drive.write_at(&full_of(1, 3), drive.geometry().start(FIRST), Cause::Wal.into()).unwrap();
    drive.read_at(&mut full_of(0, 1), 0, Cause::UserRead.into()).unwrap();
    drive.flush(Cause::Wal.into()).unwrap();
    for zone in [4, 5] {
        drive.zone_op(ZoneOp::Reset, ZoneId(zone), Cause::Pool.into()).unwrap();
    }
    let stats = drive.stats();
    let label = Counts {
        writes: 1,
        writes_conventional: 1,
        bytes_written: 8192,
        bytes_written_conventional: 8192,
        ..Counts::default()
    };
    assert_eq!(stats.of(Cause::Label), label);
    assert_eq!(stats.of(Cause::Wal), Counts { writes: 1, bytes_written: 3 * BLOCK, flushes: 1, ..Counts::default() });
    assert_eq!(stats.of(Cause::UserRead), Counts { reads: 1, bytes_read: BLOCK, ..Counts::default() });
    let resets = Counts { zone_resets: 2, zone_resets_partial: 1, zone_resets_empty: 1, ..Counts::default() };
    assert_eq!(stats.of(Cause::Pool), resets);
    assert_eq!((stats.total.writes, stats.total.bytes_written, stats.total.zone_resets), (2, 5 * BLOCK, 2));
    drive.reset_stats();
    assert_eq!(drive.stats().total, Counts::default());
}

#[test]
fn a_trace_says_what_happened() {
    let drive = Emulator::memory(&Config::tiny()).unwrap();
    drive.flush(TAG).unwrap();
    drive.start_trace(100);
    write(&drive, FIRST, 0, 1, 2).unwrap();
    write(&drive, FIRST, 0, 1, 1).unwrap_err();
    drive.flush(Cause::Wal.into()).unwrap();
    drive.zone_op(ZoneOp::Reset, FIRST, TAG).unwrap();
    let seen: Vec<_> = drive.trace().iter().map(|e| (e.op.name(), e.cause, e.zone, e.len, e.result)).collect();
    assert_eq!(
        seen,
        [
            ("write", "other", 4, 8192, "ok"),
            ("write", "other", 4, 4096, "write-pointer"),
            ("flush", "wal", 0, 0, "ok"),
            ("reset", "other", 4, 0, "ok"),
        ]
    );
    drive.stop_trace();
    assert!(drive.trace().is_empty());
}

#[test]
fn a_refused_write_does_not_cost_an_open_zone() {
    let drive = Emulator::memory(&Config { max_open: Some(1), ..Config::tiny() }).unwrap();
    drive.zone_op(ZoneOp::Open, ZoneId(4), TAG).unwrap();
    let error = write(&drive, ZoneId(5), 0, 1, 1).unwrap_err();
    assert!(matches!(error.fault, Fault::TooManyOpen));
    drive.zone_op(ZoneOp::Close, ZoneId(4), TAG).unwrap();
    drive.faults().host_full(true);
    write(&drive, ZoneId(5), 0, 1, 1).unwrap_err();
    assert_eq!(report(&drive, ZoneId(5)).state, ZoneState::Empty);
    drive.faults().host_full(false);
    drive.zone_op(ZoneOp::Open, ZoneId(6), TAG).unwrap();
}
