//! What a power loss may leave, and what it must.

mod common;

use common::*;
use imbrex_device::{Fault, ZoneId, ZoneOp, ZoneState, ZonedDevice};
use imbrex_emulator::{AtRisk, Config, Emulator};
use std::collections::BTreeSet;

fn tiny() -> Emulator {
    Emulator::memory(&Config::tiny()).unwrap()
}

/// After a power loss in which each zone keeps as much as `keep` says of it.
fn keeping(drive: &Emulator, mut keep: impl FnMut(u64) -> u64) -> Emulator {
    drive.after_power_loss_choosing(&mut keep).unwrap()
}

#[test]
fn a_zone_keeps_any_prefix_of_what_was_not_flushed() {
    let drive = tiny();
    write(&drive, FIRST, 0, 1, 2).unwrap();
    drive.flush(TAG).unwrap();
    write(&drive, FIRST, 2, 2, 2).unwrap();
    write(&drive, FIRST, 4, 3, 1).unwrap();
    assert_eq!(drive.unflushed(), [AtRisk { zone: FIRST, blocks: 3 }]);
    for (keep, left) in
        [vec![1, 1, 0, 0, 0], vec![1, 1, 2, 0, 0], vec![1, 1, 2, 2, 0], vec![1, 1, 2, 2, 3]].into_iter().enumerate()
    {
        let after = keeping(&drive, |most| {
            assert_eq!(most, 3);
            keep as u64
        });
        assert_eq!(bytes(&after, FIRST, 0, 5), left);
        assert_eq!((report(&after, FIRST).state, written(&after, FIRST)), (ZoneState::Closed, 2 + keep as u64));
        assert!(after.unflushed().is_empty());
        write(&after, FIRST, 2 + keep as u64, 9, 1).unwrap();
    }
    assert_eq!(bytes(&drive, FIRST, 0, 5), [1, 1, 2, 2, 3], "the drive itself lost nothing");
}

#[test]
fn seeds_reach_every_outcome_and_repeat() {
    let drive = tiny();
    write(&drive, ZoneId(4), 0, 1, 3).unwrap();
    write(&drive, ZoneId(5), 0, 1, 3).unwrap();
    let outcome = |seed| {
        let after = drive.after_power_loss(seed).unwrap();
        (written(&after, ZoneId(4)), written(&after, ZoneId(5)))
    };
    let reached: BTreeSet<_> = (0..500).map(outcome).collect();
    assert_eq!(reached.len(), 16, "{reached:?}");
    assert!((0..50).all(|seed| outcome(seed) == outcome(seed)));
}

#[test]
fn a_zone_whose_every_write_is_lost_is_empty() {
    let drive = tiny();
    write(&drive, FIRST, 0, 1, 2).unwrap();
    drive.zone_op(ZoneOp::Open, ZoneId(5), TAG).unwrap();
    let after = keeping(&drive, |_| 0);
    for zone in [FIRST, ZoneId(5)] {
        assert_eq!((report(&after, zone).state, written(&after, zone)), (ZoneState::Empty, 0));
    }
}

#[test]
fn zone_operations_are_durable() {
    let drive = tiny();
    for zone in 4..8 {
        write(&drive, ZoneId(zone), 0, 1, 2).unwrap();
    }
    drive.flush(TAG).unwrap();
    drive.zone_op(ZoneOp::Reset, ZoneId(4), TAG).unwrap();
    write(&drive, ZoneId(6), 2, 5, 2).unwrap();
    drive.zone_op(ZoneOp::Finish, ZoneId(6), TAG).unwrap();
    drive.zone_op(ZoneOp::Reset, ZoneId(7), TAG).unwrap();
    write(&drive, ZoneId(7), 0, 8, 1).unwrap();
    let worst = keeping(&drive, |_| 0);
    assert_eq!(report(&worst, ZoneId(4)).state, ZoneState::Empty);
    assert_eq!((report(&worst, ZoneId(6)).state, bytes(&worst, ZoneId(6), 0, 4)), (ZoneState::Full, vec![1, 1, 0, 0]));
    // No byte of the earlier life comes back.
    assert_eq!((report(&worst, ZoneId(7)).state, bytes(&worst, ZoneId(7), 0, 2)), (ZoneState::Empty, vec![0, 0]));
    let best = keeping(&drive, |most| most);
    assert_eq!(bytes(&best, ZoneId(6), 0, 4), [1, 1, 5, 5]);
    assert_eq!(bytes(&best, ZoneId(7), 0, 2), [8, 0]);
}

#[test]
fn a_full_zone_falls_back_when_its_end_was_not_flushed() {
    let drive = tiny();
    for block in (0..256).step_by(64) {
        write(&drive, FIRST, block, 3, 64).unwrap();
    }
    assert_eq!(report(&drive, FIRST).state, ZoneState::Full);
    let after = keeping(&drive, |most| most - 1);
    assert_eq!((report(&after, FIRST).state, written(&after, FIRST)), (ZoneState::Closed, 255));
    write(&after, FIRST, 255, 4, 1).unwrap();
    drive.flush(TAG).unwrap();
    assert_eq!(report(&keeping(&drive, |_| 0), FIRST).state, ZoneState::Full);
}

#[test]
fn conventional_writes_are_each_kept_lost_or_torn() {
    let drive = tiny();
    let zone = ZoneId(1);
    write(&drive, zone, 0, 1, 4).unwrap();
    drive.flush(TAG).unwrap();
    write(&drive, zone, 0, 2, 2).unwrap();
    write(&drive, zone, 1, 3, 2).unwrap();
    assert_eq!(drive.unflushed(), [AtRisk { zone, blocks: 4 }]);
    // Two blocks each: 0 lost, 1 front, 2 end, 3 kept.
    let with = |first: u64, second: u64| {
        let mut choices = [first, second].into_iter();
        let after = keeping(&drive, |most| {
            assert_eq!(most, 3);
            choices.next().unwrap()
        });
        assert_eq!(choices.next(), None);
        bytes(&after, zone, 0, 4)
    };
    assert_eq!(with(0, 0), [1, 1, 1, 1]);
    assert_eq!(with(3, 0), [2, 2, 1, 1]);
    assert_eq!(with(0, 3), [1, 3, 3, 1]);
    assert_eq!(with(3, 3), [2, 3, 3, 1]);
    assert_eq!(with(1, 2), [2, 1, 3, 1]);
    assert_eq!(with(2, 1), [1, 3, 1, 1]);
    assert_eq!(bytes(&drive, zone, 0, 4), [2, 3, 3, 1]);
}

#[test]
fn flushed_is_safe_and_so_is_everything_without_a_cache() {
    for cache in [true, false] {
        let drive = tiny();
        drive.set_write_cache(cache).unwrap();
        write(&drive, ZoneId(0), 3, 1, 2).unwrap();
        write(&drive, FIRST, 0, 2, 2).unwrap();
        if cache {
            assert_eq!(drive.unflushed().len(), 2);
            drive.flush(TAG).unwrap();
        }
        assert!(drive.unflushed().is_empty());
        let after = keeping(&drive, |_| panic!("nothing is at risk"));
        assert_eq!((bytes(&after, ZoneId(0), 3, 2), bytes(&after, FIRST, 0, 2)), (vec![1, 1], vec![2, 2]));
    }
}

#[test]
fn switching_the_cache_off_makes_everything_durable() {
    let drive = tiny();
    write(&drive, ZoneId(0), 0, 1, 1).unwrap();
    write(&drive, FIRST, 0, 1, 1).unwrap();
    drive.set_write_cache(false).unwrap();
    assert!(drive.unflushed().is_empty());
    drive.set_write_cache(true).unwrap();
    write(&drive, FIRST, 1, 1, 1).unwrap();
    assert_eq!(drive.unflushed(), [AtRisk { zone: FIRST, blocks: 1 }]);
    assert_eq!(drive.stats().flushes, 0);
}

#[test]
fn the_cache_is_bounded_and_destages_the_oldest_zone() {
    let drive = Emulator::memory(&Config { cache_bytes: 8 * BLOCK, ..Config::tiny() }).unwrap();
    write(&drive, ZoneId(4), 0, 1, 3).unwrap();
    write(&drive, ZoneId(5), 0, 1, 5).unwrap();
    assert_eq!(drive.unflushed().len(), 2);
    write(&drive, ZoneId(5), 5, 1, 1).unwrap();
    assert_eq!(drive.unflushed(), [AtRisk { zone: ZoneId(5), blocks: 6 }]);
    write(&drive, ZoneId(5), 6, 1, 8).unwrap();
    assert!(drive.unflushed().is_empty());
}

#[test]
fn pre_images_are_bounded_and_destage_the_oldest_write() {
    let config = Config { cache_bytes: 0, ..Config::tiny() };
    let drive = Emulator::memory(&config).unwrap();
    let zone = ZoneId(0);
    let most = u64::from(config.max_io) / BLOCK;
    let mut longest = 0;
    for round in 0..40u8 {
        let blocks = [most, 1, 7, 33][usize::from(round % 4)];
        write(&drive, zone, 0, round + 1, blocks).unwrap();
        longest = longest.max(drive.unflushed()[0].blocks);
        // The newest write is always at risk: losing all shows what was durable before it.
        assert_eq!(bytes(&keeping(&drive, |most| most), zone, 0, 1), [round + 1]);
        assert!(bytes(&keeping(&drive, |_| 0), zone, 0, 1)[0] <= round);
    }
    assert!(longest <= 2 * most + 2, "{longest} blocks at risk");
    assert!(bytes(&keeping(&drive, |_| 0), zone, 0, 1)[0] > 30, "the oldest writes are durable long since");
}

#[test]
fn a_power_loss_starts_an_epoch_and_a_fork_does_not() {
    let drive = tiny();
    let epoch = |drive: &Emulator| drive.identity().power_epoch;
    let fork = drive.fork().unwrap();
    let after = drive.after_power_loss(1).unwrap();
    let twice = after.after_power_loss(1).unwrap();
    assert_eq!(epoch(&drive), epoch(&fork));
    assert_eq!(BTreeSet::from([epoch(&drive), epoch(&after), epoch(&twice)]).len(), 3);
    assert_eq!(drive.identity().medium, twice.identity().medium);
    assert_eq!((drive.stats().power_losses, twice.stats().power_losses), (0, 2));
}

#[test]
fn a_fork_is_the_same_and_independent() {
    let drive = tiny();
    write(&drive, ZoneId(0), 0, 1, 2).unwrap();
    write(&drive, ZoneId(4), 0, 1, 3).unwrap();
    drive.zone_op(ZoneOp::Open, ZoneId(5), TAG).unwrap();
    drive.faults().fail_flushes(1);
    drive.faults().media_error(0, BLOCK);
    drive.faults().make_offline(ZoneId(9)).unwrap();
    let fork = drive.fork().unwrap();
    assert_eq!((fork.stats(), fork.unflushed()), (drive.stats(), drive.unflushed()));
    let all = |drive: &Emulator| imbrex_device::report_all(drive).unwrap();
    assert_eq!(all(&fork), all(&drive));
    for drive in [&drive, &fork] {
        let mut buf = full_of(0, 1);
        assert!(matches!(drive.read_at(&mut buf, 0, TAG).unwrap_err().fault, Fault::Media { len: 0 }));
        drive.flush(TAG).unwrap_err();
    }
    write(&fork, ZoneId(4), 3, 9, 1).unwrap();
    write(&fork, ZoneId(0), 1, 9, 1).unwrap();
    drive.zone_op(ZoneOp::Reset, ZoneId(4), TAG).unwrap();
    assert_eq!(bytes(&fork, ZoneId(4), 0, 4), [1, 1, 1, 9]);
    assert_eq!((bytes(&fork, ZoneId(0), 1, 1), bytes(&drive, ZoneId(0), 1, 1)), (vec![9], vec![1]));
    assert_eq!(written(&drive, ZoneId(4)), 0);
}

#[test]
fn a_fork_closes_the_same_zone_next() {
    let drive = Emulator::memory(&Config { max_open: Some(2), ..Config::tiny() }).unwrap();
    write(&drive, ZoneId(9), 0, 1, 1).unwrap();
    write(&drive, ZoneId(4), 0, 1, 1).unwrap();
    let fork = drive.fork().unwrap();
    for drive in [drive, fork] {
        write(&drive, ZoneId(5), 0, 1, 1).unwrap();
        assert_eq!(report(&drive, ZoneId(9)).state, ZoneState::Closed);
        assert_eq!(report(&drive, ZoneId(4)).state, ZoneState::ImplicitlyOpen);
    }
}

#[test]
fn flat_drives_fork_into_pages() {
    let drive = Emulator::memory_flat(&Config::tiny()).unwrap();
    write(&drive, ZoneId(2), 7, 1, 2).unwrap();
    write(&drive, FIRST, 0, 2, 3).unwrap();
    let fork = drive.fork().unwrap();
    drive.zone_op(ZoneOp::Reset, FIRST, TAG).unwrap();
    write(&drive, FIRST, 0, 5, 3).unwrap();
    assert_eq!((bytes(&fork, ZoneId(2), 6, 4), bytes(&fork, FIRST, 0, 4)), (vec![0, 1, 1, 0], vec![2, 2, 2, 0]));
    assert_eq!(written(&keeping(&fork, |_| 1), FIRST), 1);
}

#[test]
fn the_same_commands_and_seed_give_the_same_drive() {
    let run = || {
        let drive = tiny();
        for i in 0..200u32 {
            let zone = ZoneId(4 + i * 7 % 20);
            let block = written(&drive, zone);
            write(&drive, zone, block, i as u8 | 1, 1 + u64::from(i % 3)).unwrap();
            write(&drive, ZoneId(i % 4), u64::from(i * 13 % 100), i as u8 | 1, 2).unwrap();
            if i % 37 == 0 {
                drive.flush(TAG).unwrap();
            }
        }
        let after = drive.after_power_loss(99).unwrap();
        let mut image = Vec::new();
        for zone in 0..24 {
            image.extend(bytes(&after, ZoneId(zone), 0, 110));
        }
        (image, imbrex_device::report_all(&after).unwrap(), after.identity().power_epoch, after.stats())
    };
    assert_eq!(run(), run());
}
