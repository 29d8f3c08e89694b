//! The ioctls of `linux/blkzoned.h`. Everything is in sectors of 512 bytes there, whatever the drive's block is.
//!
//! The only `unsafe` of the kernel backend: each call hands the kernel a struct whose layout is checked when this is
//! compiled, and that is as large as the request says.

use rustix::fd::BorrowedFd;
use rustix::io::Result;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};
use std::ffi::c_void;
use std::mem::offset_of;

/// Bytes of the kernel's sector.
pub(super) const SECTOR: u64 = 512;
/// How many zones one report brings at most: 64 KiB.
const REPORT_ZONES: usize = 1024;
/// Report flag: the zones' `capacity` is valid (since Linux 5.9).
const REP_CAPACITY: u32 = 1;

/// `enum blk_zone_type`: what a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneType {
    Conventional,
    SequentialRequired,
    SequentialPreferred,
}

/// `enum blk_zone_cond`: what state it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    NotWp,
    Empty,
    ImplicitlyOpen,
    ExplicitlyOpen,
    Closed,
    ReadOnly,
    Full,
    Offline,
}

/// `struct blk_zone`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct BlkZone {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) wp: u64,
    kind: u8,
    cond: u8,
    non_seq: u8,
    reset: u8,
    resv: [u8; 4],
    capacity: u64,
    reserved: [u8; 24],
}

/// `struct blk_zone_report` without its zones: what the request's number is made of.
#[derive(Clone, Copy)]
#[repr(C)]
struct BlkZoneReport {
    sector: u64,
    nr_zones: u32,
    flags: u32,
}

/// `struct blk_zone_report` with room for zones.
#[repr(C)]
struct FullReport {
    head: BlkZoneReport,
    zones: [BlkZone; REPORT_ZONES],
}

/// `struct blk_zone_range`.
#[derive(Clone, Copy)]
#[repr(C)]
struct BlkZoneRange {
    sector: u64,
    nr_sectors: u64,
}

const _: () = {
    assert!(size_of::<BlkZone>() == 64);
    assert!(offset_of!(BlkZone, kind) == 24 && offset_of!(BlkZone, capacity) == 32);
    assert!(size_of::<BlkZoneReport>() == 16);
    assert!(offset_of!(FullReport, zones) == 16);
    assert!(size_of::<FullReport>() == 16 + 64 * REPORT_ZONES);
    assert!(size_of::<BlkZoneRange>() == 16);
};

const BLKREPORTZONE: Opcode = opcode::read_write::<BlkZoneReport>(0x12, 130);
const BLKRESETZONE: Opcode = opcode::write::<BlkZoneRange>(0x12, 131);
const BLKGETZONESZ: Opcode = opcode::read::<u32>(0x12, 132);
const BLKGETNRZONES: Opcode = opcode::read::<u32>(0x12, 133);
const BLKOPENZONE: Opcode = opcode::write::<BlkZoneRange>(0x12, 134);
const BLKCLOSEZONE: Opcode = opcode::write::<BlkZoneRange>(0x12, 135);
const BLKFINISHZONE: Opcode = opcode::write::<BlkZoneRange>(0x12, 136);

impl BlkZone {
    const ZERO: BlkZone = BlkZone {
        start: 0,
        len: 0,
        wp: 0,
        kind: 0,
        cond: 0,
        non_seq: 0,
        reset: 0,
        resv: [0; 4],
        capacity: 0,
        reserved: [0; 24],
    };

    /// What it is; `None` for a type that this header does not know.
    pub(super) fn zone_type(&self) -> Option<ZoneType> {
        match self.kind {
            1 => Some(ZoneType::Conventional),
            2 => Some(ZoneType::SequentialRequired),
            3 => Some(ZoneType::SequentialPreferred),
            _ => None,
        }
    }

    /// Its state; `None` for one that this header does not know.
    pub(super) fn condition(&self) -> Option<Condition> {
        match self.cond {
            0x0 => Some(Condition::NotWp),
            0x1 => Some(Condition::Empty),
            0x2 => Some(Condition::ImplicitlyOpen),
            0x3 => Some(Condition::ExplicitlyOpen),
            0x4 => Some(Condition::Closed),
            0xd => Some(Condition::ReadOnly),
            0xe => Some(Condition::Full),
            0xf => Some(Condition::Offline),
            _ => None,
        }
    }

    /// Writable sectors from its start.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity.min(self.len)
    }
}

struct ReportRequest<'a>(&'a mut FullReport);

// SAFETY: BLKREPORTZONE takes a pointer to a blk_zone_report and fills at most `nr_zones` zones behind it; `nr_zones` is
// never more than REPORT_ZONES, for which there is room. It keeps no pointer.
unsafe impl Ioctl for ReportRequest<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        BLKREPORTZONE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

/// Calls `each` with the zones from the one that holds `sector` on, at most `most` of them; returns how many there were.
pub(super) fn report(fd: BorrowedFd<'_>, sector: u64, most: usize, each: &mut dyn FnMut(&BlkZone)) -> Result<usize> {
    let asked = most.min(REPORT_ZONES);
    let head = BlkZoneReport { sector, nr_zones: asked as u32, flags: 0 };
    let mut buf = Box::new(FullReport { head, zones: [BlkZone::ZERO; REPORT_ZONES] });
    // SAFETY: a block device understands the request, anything else refuses it; the buffer is as `ReportRequest` says.
    unsafe { ioctl(fd, ReportRequest(&mut buf)) }?;
    let got = (buf.head.nr_zones as usize).min(asked);
    for zone in &mut buf.zones[..got] {
        if buf.head.flags & REP_CAPACITY == 0 {
            zone.capacity = zone.len;
        }
        each(zone);
    }
    Ok(got)
}

/// Sectors of a zone; 0 where the device is not zoned.
pub(super) fn zone_sectors(fd: BorrowedFd<'_>) -> Result<u32> {
    // SAFETY: the request writes one u32.
    unsafe { ioctl(fd, Getter::<BLKGETZONESZ, u32>::new()) }
}

/// Number of zones, a smaller last one included.
pub(super) fn zone_count(fd: BorrowedFd<'_>) -> Result<u32> {
    // SAFETY: the request writes one u32.
    unsafe { ioctl(fd, Getter::<BLKGETNRZONES, u32>::new()) }
}

/// One operation on the zones of a range, in sectors.
pub(super) fn zone_op(fd: BorrowedFd<'_>, op: crate::ZoneOp, sector: u64, nr_sectors: u64) -> Result<()> {
    let range = BlkZoneRange { sector, nr_sectors };
    // SAFETY: all four requests read one blk_zone_range and change no memory of ours.
    unsafe {
        match op {
            crate::ZoneOp::Open => ioctl(fd, Setter::<BLKOPENZONE, _>::new(range)),
            crate::ZoneOp::Close => ioctl(fd, Setter::<BLKCLOSEZONE, _>::new(range)),
            crate::ZoneOp::Finish => ioctl(fd, Setter::<BLKFINISHZONE, _>::new(range)),
            crate::ZoneOp::Reset => ioctl(fd, Setter::<BLKRESETZONE, _>::new(range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_have_the_kernels_numbers() {
        // As a C compiler makes them of linux/blkzoned.h on x86-64.
        assert_eq!(
            [BLKREPORTZONE, BLKRESETZONE, BLKGETZONESZ, BLKGETNRZONES, BLKOPENZONE, BLKCLOSEZONE, BLKFINISHZONE],
            [0xc010_1282, 0x4010_1283, 0x8004_1284, 0x8004_1285, 0x4010_1286, 0x4010_1287, 0x4010_1288]
        );
    }

    #[test]
    fn unknown_types_and_conditions_are_nothing() {
        let zone = BlkZone { kind: 9, cond: 5, len: 10, capacity: 99, ..BlkZone::ZERO };
        assert_eq!((zone.zone_type(), zone.condition(), zone.capacity()), (None, None, 10));
    }
}
