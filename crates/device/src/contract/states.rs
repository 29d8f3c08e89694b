//! What a drive does with commands that keep the rules.

use super::*;

pub(super) fn geometry_is_consistent(drive: &dyn ZonedDevice) {
    let geometry = drive.geometry();
    assert!(geometry.block == 512 || geometry.block == 4096);
    assert!(geometry.mem_align.is_power_of_two() && geometry.mem_align as usize <= crate::MEM_ALIGN);
    assert!(geometry.max_io >= geometry.block && geometry.max_io.is_multiple_of(geometry.block));
    assert!(geometry.zones >= 2 && geometry.zone_size.is_multiple_of(u64::from(geometry.block)));
    let zones = report_all(drive).unwrap();
    assert_eq!(zones.len(), geometry.zones as usize);
    for (i, zone) in zones.iter().enumerate() {
        assert_eq!(zone.id, ZoneId(i as u32));
        assert!(zone.capacity > 0 && zone.capacity <= geometry.zone_size);
        assert!(zone.wp.is_none_or(|wp| wp <= zone.capacity));
        assert!(zone.state != ZoneState::Conventional || zone.wp.is_none());
    }
}

pub(super) fn a_zone_is_written_and_read_back(drive: &dyn ZonedDevice) {
    let zones = fresh(drive);
    let (zone, other) = (zones[0], zones[1]);
    let block = u64::from(drive.geometry().block);
    let most = u64::from(drive.geometry().max_io) / block;
    let mut at = 0;
    for blocks in [1, 2, 3, most, 1] {
        let blocks = blocks.min(zone.capacity / block - at);
        if blocks == 0 {
            break;
        }
        write(drive, zone.id, at, &pattern(drive, blocks, at)).unwrap();
        assert_eq!(&*read(drive, zone.id, at, blocks).unwrap(), &*pattern(drive, blocks, at));
        at += blocks;
        assert_eq!(state_of(drive, zone.id).wp, Some(at * block));
    }
    drive.flush(TAG).unwrap();
    assert_eq!(&*read(drive, zone.id, 1, 2).unwrap(), &*pattern(drive, 2, 1));
    assert_eq!(state_of(drive, other.id).wp, Some(0), "a write to one zone changed another");
    fill(drive, zone.id);
    let full = state_of(drive, zone.id);
    assert_eq!((full.state, full.wp), (ZoneState::Full, Some(full.capacity)));
}

pub(super) fn states_follow_the_operations(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    let block = u64::from(drive.geometry().block);
    let expect = |state, wp| {
        let now = state_of(drive, zone);
        assert_eq!((now.state, now.wp), (state, Some(wp)));
    };
    let op = |op| drive.zone_op(op, zone, TAG).unwrap();
    expect(ZoneState::Empty, 0);
    op(ZoneOp::Open);
    expect(ZoneState::ExplicitlyOpen, 0);
    op(ZoneOp::Close);
    assert!(matches!(state_of(drive, zone).state, ZoneState::Empty | ZoneState::Closed));
    write(drive, zone, 0, &pattern(drive, 1, 0)).unwrap();
    expect(ZoneState::ImplicitlyOpen, block);
    op(ZoneOp::Open);
    expect(ZoneState::ExplicitlyOpen, block);
    op(ZoneOp::Open);
    expect(ZoneState::ExplicitlyOpen, block);
    write(drive, zone, 1, &pattern(drive, 1, 1)).unwrap();
    expect(ZoneState::ExplicitlyOpen, 2 * block);
    op(ZoneOp::Close);
    op(ZoneOp::Close);
    expect(ZoneState::Closed, 2 * block);
    write(drive, zone, 2, &pattern(drive, 1, 2)).unwrap();
    expect(ZoneState::ImplicitlyOpen, 3 * block);
    op(ZoneOp::Finish);
    expect(ZoneState::Full, state_of(drive, zone).capacity);
    op(ZoneOp::Finish);
    op(ZoneOp::Reset);
    expect(ZoneState::Empty, 0);
    op(ZoneOp::Reset);
    expect(ZoneState::Empty, 0);
}

pub(super) fn a_finished_zone_reads_zeros_behind_its_data(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0];
    let blocks = zone.capacity / u64::from(drive.geometry().block);
    write(drive, zone.id, 0, &pattern(drive, 2, 5)).unwrap();
    drive.zone_op(ZoneOp::Finish, zone.id, TAG).unwrap();
    let bytes = read(drive, zone.id, 0, 3).unwrap();
    let (data, rest) = bytes.split_at(2 * drive.geometry().block as usize);
    assert_eq!(data, &*pattern(drive, 2, 5));
    assert!(rest.iter().all(|byte| *byte == 0));
    assert!(read(drive, zone.id, blocks - 1, 1).unwrap().iter().all(|byte| *byte == 0));
}

pub(super) fn reset_zones_forget(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    fill(drive, zone);
    drive.zone_op(ZoneOp::Reset, zone, TAG).unwrap();
    write(drive, zone, 0, &pattern(drive, 1, 77)).unwrap();
    assert_eq!(&*read(drive, zone, 0, 1).unwrap(), &*pattern(drive, 1, 77));
    if drive.geometry().reads_above_wp {
        assert!(read(drive, zone, 1, 3).unwrap().iter().all(|byte| *byte == 0), "bytes of an earlier life");
    }
}

pub(super) fn reports_can_be_taken_in_parts(drive: &dyn ZonedDevice) {
    let all = report_all(drive).unwrap();
    let mut part = [Zone::EMPTY; 3];
    assert_eq!(drive.report(ZoneId(1), &mut part).unwrap(), 3.min(all.len() - 1));
    assert_eq!(part[0], all[1]);
    let last = drive.geometry().zones - 1;
    assert_eq!(drive.report(ZoneId(last), &mut part).unwrap(), 1);
    assert_eq!(part[0], all[last as usize]);
    assert_eq!(drive.report(ZoneId(last + 1), &mut part).unwrap_or(0), 0);
}

pub(super) fn conventional_zones_are_written_anywhere(drive: &dyn ZonedDevice) {
    let Some(zone) = conventional(drive) else { return };
    for (block, seed) in [(5, 1), (2, 2), (5, 3), (4, 4)] {
        write(drive, zone, block, &pattern(drive, 2, seed)).unwrap();
        assert_eq!(&*read(drive, zone, block, 2).unwrap(), &*pattern(drive, 2, seed));
    }
    let size = drive.geometry().block as usize;
    assert_eq!(&*read(drive, zone, 6, 1).unwrap(), &pattern(drive, 2, 3)[size..]);
    assert_eq!(&*read(drive, zone, 2, 2).unwrap(), &*pattern(drive, 2, 2));
}

pub(super) fn zones_in_place_are_written_anywhere(drive: &dyn ZonedDevice) {
    let zones = fresh(drive);
    let (zone, other) = (zones[0], zones[1]);
    let block = u64::from(drive.geometry().block);
    let put = |zone: ZoneId, at: u64, bytes: &[u8]| {
        drive.write_in_place(bytes, drive.geometry().start(zone) + at * block, TAG)
    };
    if !drive.overwrites() {
        assert!(is_invalid(&drive.set_in_place(zone.id, TAG).unwrap_err()));
        fill(drive, zone.id);
        assert!(is_invalid(&put(zone.id, 0, &pattern(drive, 1, 7)).unwrap_err()));
        return;
    }
    write(drive, zone.id, 0, &pattern(drive, 2, 0)).unwrap();
    for id in [zone.id, other.id] {
        assert!(is_invalid(&put(id, 0, &pattern(drive, 1, 7)).unwrap_err()), "a zone that is not in place");
    }
    drive.set_in_place(zone.id, TAG).unwrap();
    let full = state_of(drive, zone.id);
    assert_eq!((full.state, full.wp), (ZoneState::Full, Some(full.capacity)));
    assert_eq!(&*read(drive, zone.id, 0, 2).unwrap(), &*pattern(drive, 2, 0), "what was written before stays");
    let last = full.capacity / block - 1;
    for (at, blocks, seed) in [(last, 1, 1), (5, 3, 2), (0, 2, 3), (6, 1, 4)] {
        put(zone.id, at, &pattern(drive, blocks, seed)).unwrap();
        assert_eq!(&*read(drive, zone.id, at, blocks).unwrap(), &*pattern(drive, blocks, seed));
    }
    assert_eq!(&*read(drive, zone.id, 5, 1).unwrap(), &pattern(drive, 3, 2)[..block as usize]);
    assert!(is_invalid(&put(zone.id, last, &pattern(drive, 2, 5)).unwrap_err()), "across zones");
    assert!(write(drive, zone.id, 0, &pattern(drive, 1, 5)).is_err(), "it is full for all others");
    drive.flush(TAG).unwrap();
    // A life that was not in place is written at its write pointer again.
    drive.zone_op(ZoneOp::Reset, zone.id, TAG).unwrap();
    assert!(is_invalid(&put(zone.id, 0, &pattern(drive, 1, 6)).unwrap_err()));
    write(drive, zone.id, 0, &pattern(drive, 1, 8)).unwrap();
    fill(drive, zone.id);
    put(zone.id, 3, &pattern(drive, 1, 9)).unwrap();
    assert_eq!(&*read(drive, zone.id, 3, 1).unwrap(), &*pattern(drive, 1, 9), "so is one that was written to its end");
}

pub(super) fn the_write_cache_can_be_switched(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    let before = drive.write_cache().unwrap();
    for on in [false, true, false] {
        drive.set_write_cache(on).unwrap();
        assert_eq!(drive.write_cache().unwrap(), on);
        let wp = state_of(drive, zone).wp.unwrap() / u64::from(drive.geometry().block);
        write(drive, zone, wp, &pattern(drive, 1, wp)).unwrap();
        drive.flush(TAG).unwrap();
        assert_eq!(&*read(drive, zone, wp, 1).unwrap(), &*pattern(drive, 1, wp));
    }
    drive.set_write_cache(before).unwrap();
}
