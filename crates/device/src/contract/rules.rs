//! What a drive does with commands that break the rules: they fail and change nothing.

use super::*;

/// Runs a write that must fail and leave the zone as it was.
fn refused(drive: &dyn ZonedDevice, zone: ZoneId, write: impl FnOnce() -> Result<(), Error>) -> Error {
    let before = state_of(drive, zone);
    let error = write().expect_err("a write that breaks a rule succeeded");
    assert_eq!(state_of(drive, zone), before, "a refused write changed the zone");
    error
}

pub(super) fn unaligned_commands_fail(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    let block = drive.geometry().block as usize;
    let start = drive.geometry().start(zone);
    write(drive, zone, 0, &pattern(drive, 2, 0)).unwrap();
    let buf = pattern(drive, 4, 1);
    let wp = start + 2 * block as u64;
    for (bytes, at) in [
        (&buf[..block - 1], wp),
        (&buf[..block + 1], wp),
        (&buf[..0], wp),
        (&buf[..block], wp + 1),
        (&buf[..block], wp - 1),
        (&buf[1..=block], wp),
    ] {
        let error = refused(drive, zone, || drive.write_at(bytes, at, TAG));
        assert!(is_invalid(&error), "{error}");
    }
    let mut buf = pattern(drive, 4, 1);
    for (from, len, at) in [(0, block - 1, start), (0, 0, start), (0, block, start + 1), (1, block, start)] {
        let error = drive.read_at(&mut buf[from..from + len], at, TAG).unwrap_err();
        assert!(is_invalid(&error), "{error}");
    }
    assert_eq!(&*buf, &*pattern(drive, 4, 1), "a refused read wrote into the buffer");
}

pub(super) fn long_commands_fail(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    let blocks = u64::from(drive.geometry().max_io / drive.geometry().block) + 1;
    let error = refused(drive, zone, || write(drive, zone, 0, &pattern(drive, blocks, 0)));
    assert!(is_invalid(&error), "{error}");
    assert!(is_invalid(&read(drive, zone, 0, blocks).unwrap_err()));
}

pub(super) fn commands_behind_the_end_fail(drive: &dyn ZonedDevice) {
    let geometry = drive.geometry();
    let block = u64::from(geometry.block);
    let huge = u64::MAX / block * block;
    for (blocks, at) in [(1, geometry.size()), (2, geometry.size() - block), (1, huge)] {
        let mut buf = pattern(drive, blocks, 0);
        let last = ZoneId(geometry.zones - 1);
        assert!(is_invalid(&refused(drive, last, || drive.write_at(&buf, at, TAG))));
        assert!(is_invalid(&drive.read_at(&mut buf, at, TAG).unwrap_err()));
    }
    assert!(drive.zone_op(ZoneOp::Reset, ZoneId(geometry.zones), TAG).is_err());
    assert!(drive.zone_op(ZoneOp::Reset, ZoneId(u32::MAX), TAG).is_err());
}

pub(super) fn writes_not_at_the_write_pointer_fail(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    let block = u64::from(drive.geometry().block);
    let ahead = refused(drive, zone, || write(drive, zone, 1, &pattern(drive, 1, 0)));
    assert!(matches!(ahead.fault, Fault::WritePointer { expected: 0, got } if got == block), "{ahead}");
    assert_eq!((ahead.zone, ahead.offset), (Some(zone), drive.geometry().start(zone) + block));
    write(drive, zone, 0, &pattern(drive, 2, 0)).unwrap();
    for at in [0, 1, 3] {
        let error = refused(drive, zone, || write(drive, zone, at, &pattern(drive, 1, 9)));
        assert!(
            matches!(error.fault, Fault::WritePointer { expected: e, got: g } if (e, g) == (2 * block, at * block)),
            "{error}"
        );
    }
    assert_eq!(&*read(drive, zone, 0, 2).unwrap(), &*pattern(drive, 2, 0));
    write(drive, zone, 2, &pattern(drive, 1, 2)).unwrap();
}

pub(super) fn writes_behind_the_capacity_fail(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0];
    let block = u64::from(drive.geometry().block);
    let blocks = zone.capacity / block;
    let most = u64::from(drive.geometry().max_io) / block;
    let mut at = 0;
    while at < blocks - 1 {
        let n = most.min(blocks - 1 - at);
        write(drive, zone.id, at, &pattern(drive, n, at)).unwrap();
        at += n;
    }
    // Where the capacity is the zone's size, the second block lies in the next zone: another rule.
    let error = refused(drive, zone.id, || write(drive, zone.id, at, &pattern(drive, 2, 0)));
    if zone.capacity < drive.geometry().zone_size {
        assert!(matches!(error.fault, Fault::ZoneFull), "{error}");
    }
    write(drive, zone.id, at, &pattern(drive, 1, 0)).unwrap();
    for at in [0, blocks - 1] {
        let error = refused(drive, zone.id, || write(drive, zone.id, at, &pattern(drive, 1, 0)));
        assert!(matches!(error.fault, Fault::ZoneFull), "{error}");
    }
}

pub(super) fn writes_across_zones_fail(drive: &dyn ZonedDevice) {
    let geometry = drive.geometry();
    let last = geometry.zone_size / u64::from(geometry.block) - 1;
    let zone = conventional(drive).unwrap_or_else(|| fresh(drive)[0].id);
    let next = ZoneId(zone.0 + 1);
    let before = read(drive, zone, last, 1).ok();
    let error = refused(drive, next, || write(drive, zone, last, &pattern(drive, 2, 0)));
    assert!(is_invalid(&error), "{error}");
    assert_eq!(read(drive, zone, last, 1).ok().as_deref(), before.as_deref());
}

pub(super) fn reads_across_zones(drive: &dyn ZonedDevice) {
    let geometry = drive.geometry();
    let zones = fresh(drive);
    let (first, second) = (zones[0].id, zones[1].id);
    if zones[0].capacity < geometry.zone_size {
        return;
    }
    assert_eq!(second.0, first.0 + 1);
    fill(drive, first);
    write(drive, second, 0, &pattern(drive, 1, 8)).unwrap();
    let last = zones[0].capacity / u64::from(geometry.block) - 1;
    match read(drive, first, last, 2) {
        Ok(bytes) => {
            assert!(geometry.reads_cross_zones);
            assert_eq!(&bytes[geometry.block as usize..], &*pattern(drive, 1, 8));
            assert_eq!(&bytes[..geometry.block as usize], &*read(drive, first, last, 1).unwrap());
        }
        Err(error) => assert!(!geometry.reads_cross_zones && is_invalid(&error), "{error}"),
    }
}

pub(super) fn reads_above_the_write_pointer(drive: &dyn ZonedDevice) {
    let geometry = drive.geometry();
    let zone = fresh(drive)[0].id;
    write(drive, zone, 0, &pattern(drive, 1, 3)).unwrap();
    match read(drive, zone, 0, 3) {
        Ok(bytes) => {
            assert!(geometry.reads_above_wp);
            let (data, zeros) = bytes.split_at(geometry.block as usize);
            assert_eq!(data, &*pattern(drive, 1, 3));
            assert!(zeros.iter().all(|byte| *byte == 0));
        }
        Err(error) => assert!(!geometry.reads_above_wp && is_invalid(&error), "{error}"),
    }
}

pub(super) fn operations_on_conventional_zones_fail(drive: &dyn ZonedDevice) {
    let Some(zone) = conventional(drive) else { return };
    write(drive, zone, 0, &pattern(drive, 1, 3)).unwrap();
    for op in [ZoneOp::Open, ZoneOp::Close, ZoneOp::Finish, ZoneOp::Reset] {
        let error = refused(drive, zone, || drive.zone_op(op, zone, TAG));
        assert!(is_invalid(&error), "{error}");
    }
    assert_eq!(&*read(drive, zone, 0, 1).unwrap(), &*pattern(drive, 1, 3));
}

pub(super) fn forbidden_transitions_fail(drive: &dyn ZonedDevice) {
    let zone = fresh(drive)[0].id;
    assert!(is_invalid(&refused(drive, zone, || drive.zone_op(ZoneOp::Close, zone, TAG))));
    drive.zone_op(ZoneOp::Finish, zone, TAG).unwrap();
    for op in [ZoneOp::Open, ZoneOp::Close] {
        assert!(is_invalid(&refused(drive, zone, || drive.zone_op(op, zone, TAG))));
    }
}

pub(super) fn the_drive_closes_implicitly_open_zones_itself(drive: &dyn ZonedDevice) {
    let Some(limit) = drive.geometry().max_open else { return };
    let limit = limit.get() as usize;
    let zones = fresh(drive);
    let active = drive.geometry().max_active.map_or(usize::MAX, |n| n.get() as usize);
    if zones.len() <= limit || active <= limit {
        return;
    }
    for zone in &zones[..=limit] {
        write(drive, zone.id, 0, &pattern(drive, 1, 0)).unwrap();
    }
    let now = report_all(drive).unwrap();
    assert_eq!(now.iter().filter(|zone| zone.state.is_open()).count(), limit);
    assert_eq!(now.iter().filter(|zone| zone.state == ZoneState::Closed).count(), 1);
    assert_eq!(state_of(drive, zones[limit].id).state, ZoneState::ImplicitlyOpen);
}

pub(super) fn the_open_limit_holds(drive: &dyn ZonedDevice) {
    let Some(limit) = drive.geometry().max_open else { return };
    let limit = limit.get() as usize;
    let zones = fresh(drive);
    if zones.len() <= limit {
        return;
    }
    for zone in &zones[..limit] {
        drive.zone_op(ZoneOp::Open, zone.id, TAG).unwrap();
    }
    let one_more = zones[limit].id;
    let written = refused(drive, one_more, || write(drive, one_more, 0, &pattern(drive, 1, 0)));
    let opened = refused(drive, one_more, || drive.zone_op(ZoneOp::Open, one_more, TAG));
    for error in [written, opened] {
        assert!(matches!(error.fault, Fault::TooManyOpen | Fault::TooManyActive), "{error}");
    }
    drive.zone_op(ZoneOp::Reset, zones[0].id, TAG).unwrap();
    write(drive, one_more, 0, &pattern(drive, 1, 0)).unwrap();
}

pub(super) fn the_active_limit_holds(drive: &dyn ZonedDevice) {
    let Some(limit) = drive.geometry().max_active else { return };
    let limit = limit.get() as usize;
    let zones = fresh(drive);
    for zone in &zones[..limit] {
        write(drive, zone.id, 0, &pattern(drive, 1, 0)).unwrap();
        drive.zone_op(ZoneOp::Close, zone.id, TAG).unwrap();
    }
    let one_more = zones[limit].id;
    let error = refused(drive, one_more, || write(drive, one_more, 0, &pattern(drive, 1, 0)));
    assert!(matches!(error.fault, Fault::TooManyActive), "{error}");
    write(drive, zones[0].id, 1, &pattern(drive, 1, 1)).unwrap();
    drive.zone_op(ZoneOp::Finish, zones[1].id, TAG).unwrap();
    write(drive, one_more, 0, &pattern(drive, 1, 0)).unwrap();
}
