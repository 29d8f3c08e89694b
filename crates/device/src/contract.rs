//! The contract of [`ZonedDevice`] as checks that any drive can be run through: the emulator in all its forms, the
//! overlay over one, kernel devices. Each check panics where the drive does not keep the contract, and works on whatever
//! state the drive is in: it resets the zones that it uses, so **it destroys what is on the drive**. Feature `contract`.

mod rules;
mod states;

use crate::{AlignedBuf, Cause, Error, Fault, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};

/// A check and its name.
pub type Check = (&'static str, fn(&dyn ZonedDevice));

/// Every check.
pub const CHECKS: &[Check] = &[
    ("geometry is consistent", states::geometry_is_consistent),
    ("a zone is written and read back", states::a_zone_is_written_and_read_back),
    ("states follow the operations", states::states_follow_the_operations),
    ("a finished zone reads zeros behind its data", states::a_finished_zone_reads_zeros_behind_its_data),
    ("reset zones forget", states::reset_zones_forget),
    ("reports can be taken in parts", states::reports_can_be_taken_in_parts),
    ("conventional zones are written anywhere", states::conventional_zones_are_written_anywhere),
    ("zones in place are written anywhere", states::zones_in_place_are_written_anywhere),
    ("the write cache can be switched", states::the_write_cache_can_be_switched),
    ("unaligned commands fail", rules::unaligned_commands_fail),
    ("long commands fail", rules::long_commands_fail),
    ("commands behind the end fail", rules::commands_behind_the_end_fail),
    ("writes not at the write pointer fail", rules::writes_not_at_the_write_pointer_fail),
    ("writes behind the capacity fail", rules::writes_behind_the_capacity_fail),
    ("writes across zones fail", rules::writes_across_zones_fail),
    ("reads across zones keep to the geometry", rules::reads_across_zones),
    ("reads above the write pointer keep to the geometry", rules::reads_above_the_write_pointer),
    ("operations on conventional zones fail", rules::operations_on_conventional_zones_fail),
    ("forbidden transitions fail", rules::forbidden_transitions_fail),
    ("the drive closes implicitly open zones itself", rules::the_drive_closes_implicitly_open_zones_itself),
    ("past the explicit open limit a zone does not open", rules::the_open_limit_holds),
    ("the active limit holds", rules::the_active_limit_holds),
];

/// Runs every check on drives from `make`, a new one for each.
pub fn run(make: &dyn Fn() -> Box<dyn ZonedDevice>) {
    for (name, check) in CHECKS {
        let drive = make();
        println!("{}: {name}", drive.identity().name);
        check(drive.as_ref());
    }
}

const TAG: Tag = Tag::new(Cause::Check);

/// The sequential zones, all reset.
fn fresh(drive: &dyn ZonedDevice) -> Vec<Zone> {
    let sequential = |zone: &Zone| zone.state != ZoneState::Conventional && zone.wp.is_some();
    let zones: Vec<Zone> = report_all(drive).unwrap().into_iter().filter(sequential).collect();
    for zone in zones.iter().filter(|zone| zone.state != ZoneState::Empty) {
        drive.zone_op(ZoneOp::Reset, zone.id, TAG).unwrap();
    }
    zones.into_iter().map(|zone| state_of(drive, zone.id)).collect()
}

fn state_of(drive: &dyn ZonedDevice, zone: ZoneId) -> Zone {
    let mut out = [Zone::EMPTY];
    assert_eq!(drive.report(zone, &mut out).unwrap(), 1);
    out[0]
}

fn conventional(drive: &dyn ZonedDevice) -> Option<ZoneId> {
    report_all(drive).unwrap().into_iter().find(|zone| zone.state == ZoneState::Conventional).map(|zone| zone.id)
}

/// `blocks` blocks of bytes that depend on `seed` and their place, none of them 0.
fn pattern(drive: &dyn ZonedDevice, blocks: u64, seed: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed((blocks * u64::from(drive.geometry().block)) as usize);
    for (i, byte) in buf.iter_mut().enumerate() {
        *byte = ((i as u64 / 64 * 31 + i as u64 + seed * 17) % 255) as u8 + 1;
    }
    buf
}

fn write(drive: &dyn ZonedDevice, zone: ZoneId, block: u64, bytes: &[u8]) -> Result<(), Error> {
    drive.write_at(bytes, drive.geometry().start(zone) + block * u64::from(drive.geometry().block), TAG)
}

fn read(drive: &dyn ZonedDevice, zone: ZoneId, block: u64, blocks: u64) -> Result<AlignedBuf, Error> {
    let geometry = drive.geometry();
    let mut buf = AlignedBuf::zeroed((blocks * u64::from(geometry.block)) as usize);
    buf.fill(0xee);
    drive.read_at(&mut buf, geometry.start(zone) + block * u64::from(geometry.block), TAG)?;
    Ok(buf)
}

/// Writes the zone from its write pointer to its capacity.
fn fill(drive: &dyn ZonedDevice, zone: ZoneId) {
    let block = u64::from(drive.geometry().block);
    let most = u64::from(drive.geometry().max_io) / block;
    loop {
        let now = state_of(drive, zone);
        let wp = now.wp.unwrap() / block;
        let left = now.capacity / block - wp;
        if left == 0 {
            return;
        }
        write(drive, zone, wp, &pattern(drive, left.min(most), wp)).unwrap();
    }
}

fn is_invalid(error: &Error) -> bool {
    matches!(error.fault, Fault::InvalidInput(_))
}
