//! From the kernel's error number, and what the drive reports of the zone afterwards, to our one error.
//!
//! The block layer says `ETOOMANYREFS` for the open limit, `EOVERFLOW` for the active limit, `ENODATA` for a medium error,
//! `EREMOTEIO` for a command that the drive refused, and `EIO` for nearly everything (`blk_errors` in
//! `block/blk-core.c`); a write not at the write pointer is one of the last two. So the zone is asked.

use crate::{Fault, Zone, ZoneState};
use rustix::io::Errno;
use std::sync::Arc;

/// What failed. Bytes are from the zone's start, or counted from the start of the command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doing {
    /// A read; so many bytes before the bad block.
    Read { good: u64 },
    /// A write to a sequential zone, whose write pointer was at `before` where that is known.
    Write { offset: u64, len: u64, before: u64 },
    /// A write to a conventional zone; so many bytes went well.
    Overwrite { done: u64 },
    /// An operation on a zone.
    ZoneOp,
}

/// The drive does not answer any more, so nothing is gained by asking again.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NXIO | Errno::NODEV | Errno::NOLINK | Errno::SHUTDOWN)
}

pub(super) fn io_fault(errno: Errno) -> Fault {
    Fault::Io(Arc::new(errno.into()))
}

/// `seen`: the zone after the error, where the drive still reports it.
pub(super) fn explain(errno: Errno, doing: Doing, seen: Option<&Zone>) -> Fault {
    match errno {
        Errno::TOOMANYREFS => return Fault::TooManyOpen,
        Errno::OVERFLOW => return Fault::TooManyActive,
        // What the caller did wrong, or the host lacks; the drive has nothing to do with it.
        Errno::INVAL | Errno::NOMEM | Errno::AGAIN | Errno::FAULT | Errno::BADF | Errno::PERM | Errno::ACCESS => {
            return io_fault(errno);
        }
        _ if is_gone(errno) => return io_fault(errno),
        _ => {}
    }
    let Some(zone) = seen else { return io_fault(errno) };
    match (zone.state, doing) {
        (ZoneState::Offline, _) => return Fault::Offline,
        (ZoneState::ReadOnly, Doing::Write { .. } | Doing::Overwrite { .. } | Doing::ZoneOp) => return Fault::ReadOnly,
        _ => {}
    }
    match doing {
        Doing::Read { good } => Fault::Media { len: good },
        Doing::Overwrite { done } => Fault::Media { len: done },
        Doing::Write { offset, len, before } => write_fault(zone, offset, len, before),
        Doing::ZoneOp => io_fault(errno),
    }
}

fn write_fault(zone: &Zone, offset: u64, len: u64, before: u64) -> Fault {
    if zone.state == ZoneState::Full {
        return Fault::ZoneFull;
    }
    match zone.wp {
        // Part of it is there: the medium failed on the way.
        Some(wp) if before == offset && wp > offset && wp < offset + len => Fault::Media { len: wp - offset },
        Some(wp) if wp != offset => Fault::WritePointer { expected: wp, got: offset },
        _ if offset + len > zone.capacity => Fault::ZoneFull,
        _ => Fault::Media { len: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZoneId;

    fn zone(state: ZoneState, wp: u64) -> Zone {
        Zone { id: ZoneId(3), state, capacity: 100, wp: Some(wp) }
    }

    #[test]
    fn the_zone_tells_what_the_number_does_not() {
        use ZoneState::*;
        let write = |offset| Doing::Write { offset, len: 8, before: offset };
        let is = |fault: Fault, name: &str| {
            let text = format!("{fault:?}");
            assert!(text.starts_with(name), "{text} is not {name}");
        };
        is(explain(Errno::TOOMANYREFS, write(0), None), "TooManyOpen");
        is(explain(Errno::OVERFLOW, Doing::ZoneOp, None), "TooManyActive");
        is(explain(Errno::IO, write(8), None), "Io");
        is(explain(Errno::NODEV, write(8), Some(&zone(Empty, 0))), "Io");
        is(explain(Errno::INVAL, write(8), Some(&zone(Empty, 0))), "Io");
        for errno in [Errno::IO, Errno::REMOTEIO, Errno::NODATA] {
            is(explain(errno, write(0), Some(&zone(Full, 100))), "ZoneFull");
            is(explain(errno, write(96), Some(&zone(Closed, 96))), "ZoneFull");
            is(explain(errno, write(8), Some(&zone(Empty, 0))), "WritePointer { expected: 0, got: 8 }");
            is(explain(errno, write(8), Some(&zone(ImplicitlyOpen, 8))), "Media { len: 0 }");
            is(explain(errno, write(8), Some(&zone(ImplicitlyOpen, 12))), "Media { len: 4 }");
            let behind = Doing::Write { offset: 8, len: 8, before: 12 };
            is(explain(errno, behind, Some(&zone(ImplicitlyOpen, 12))), "WritePointer { expected: 12, got: 8 }");
            is(explain(errno, write(8), Some(&zone(ReadOnly, 8))), "ReadOnly");
            is(explain(errno, write(8), Some(&zone(Offline, 8))), "Offline");
            is(explain(errno, Doing::Read { good: 4 }, Some(&zone(ReadOnly, 8))), "Media { len: 4 }");
            is(explain(errno, Doing::Read { good: 4 }, Some(&zone(Offline, 8))), "Offline");
            is(explain(errno, Doing::Overwrite { done: 4 }, Some(&zone(Conventional, 0))), "Media { len: 4 }");
        }
    }
}
