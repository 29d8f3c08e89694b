//! From a request of the kernel to commands of a drive, and from the drive's answer to the kernel's numbers.

use crate::abi::{BlkZone, IoDesc, SECTOR};
use imbrex_device::{
    AlignedBuf, Cause, Error, Fault, Geometry, Tag, Written, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice,
};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Most bytes of one request: more than Linux asks of a disk without being told to. It maps no longer buffer for a report
/// (`BIO_MAX_INLINE_VECS`, 1024 pages).
const MOST: u32 = 4 << 20;
/// Request flag: durable when it is answered.
const FUA: u32 = 1 << 13;

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read `len` bytes.
    Read,
    /// Write `len` bytes; `durable`: and make them durable.
    Write {
        /// Whether it is durable when it is answered.
        durable: bool,
    },
    /// Write `len` bytes at the write pointer of the zone that begins at `at`, and say where that was.
    Append {
        /// Whether it is durable when it is answered.
        durable: bool,
    },
    /// Make everything durable that was acknowledged.
    Flush,
    /// An operation on the zone that begins at `at`.
    Zone(ZoneOp),
    /// Reset every sequential zone.
    ResetAll,
    /// Report `zones` zones from the one on that holds `at`.
    Report {
        /// How many at most.
        zones: u32,
    },
}

/// A request of the kernel, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it wants.
    pub op: Op,
    /// Byte address.
    pub at: u64,
    /// Bytes; 0 where there are none.
    pub len: u64,
}

impl Request {
    /// Understands what the kernel wrote down; the number to answer with where it asks for what no zoned drive does.
    pub(crate) fn parse(desc: &IoDesc) -> Result<Request, Errno> {
        let durable = desc.op_flags & FUA != 0;
        let at = desc.start_sector.checked_mul(SECTOR);
        let len = u64::from(desc.count) * SECTOR;
        let (op, len) = match desc.op_flags & 0xff {
            0 => (Op::Read, len),
            1 => (Op::Write { durable }, len),
            2 => (Op::Flush, 0),
            10 => (Op::Zone(ZoneOp::Open), 0),
            11 => (Op::Zone(ZoneOp::Close), 0),
            12 => (Op::Zone(ZoneOp::Finish), 0),
            13 => (Op::Append { durable }, len),
            14 => (Op::ResetAll, 0),
            15 => (Op::Zone(ZoneOp::Reset), 0),
            18 => (Op::Report { zones: desc.count }, 0),
            // Discards, writes of zeros: disks of these kinds know none, and the kernel was told of none.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let at = match op {
            // The kernel writes down any place there.
            Op::Flush | Op::ResetAll => 0,
            _ => at.filter(|at| at.checked_add(len).is_some()).ok_or(Errno::INVAL)?,
        };
        Ok(Request { op, at, len })
    }
}

/// The bytes of a request, which lie with the kernel.
pub trait Data {
    /// Copies what is to be written, from this byte of the request on.
    fn take(&self, from: u64, out: &mut [u8]) -> io::Result<()>;
    /// Gives what was read, from this byte of the request on; returns how many bytes there was room for.
    fn give(&self, from: u64, bytes: &[u8]) -> io::Result<usize>;
}

/// What the kernel gets to know of a request that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Bytes that were moved.
    pub bytes: u32,
    /// Of an append: the byte address that it was written at. Of all else 0; the kernel takes nothing else.
    pub written_at: u64,
}

/// Why a drive cannot be a block device of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// None of its zones is sequential.
    NotZoned,
    /// Linux knows only zones whose size is a power of two (and of a page at least).
    ZoneSize,
    /// The largest command is less than a page of the kernel.
    SmallCommands,
    /// The driver of Linux 7.2 mixes up the zones of a report for which it needs more than one request. So many zones fit into the largest.
    ManyZones(u32),
}

/// A drive as the kernel sees it.
#[derive(Clone)]
pub struct Served {
    drive: Arc<dyn ZonedDevice>,
    /// So many zones, from the first, are conventional.
    conventional: u32,
    /// Bytes of the drive's largest command, in whole pages.
    command: u32,
    /// Bytes of the largest request.
    limit: u32,
}

impl Served {
    /// `conventional`: how many zones, from the first, are conventional. No report tells that of a zone that is dead.
    pub fn new(drive: Arc<dyn ZonedDevice>, conventional: u32) -> Result<Served, Unfit> {
        let geometry = drive.geometry();
        // What the kernel's queues count in.
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(MOST);
        if conventional >= geometry.zones {
            return Err(Unfit::NotZoned);
        }
        if !geometry.zone_size.is_power_of_two()
            || geometry.zone_size < u64::from(page)
            || geometry.zone_size / SECTOR > u64::from(u32::MAX)
        {
            return Err(Unfit::ZoneSize);
        }
        let largest = geometry.max_io.min(MOST).min(u32::try_from(geometry.zone_size).unwrap_or(MOST));
        let command = largest / page * page;
        if command == 0 {
            return Err(Unfit::SmallCommands);
        }
        // A report of all zones is one request.
        let report = u64::from(geometry.zones) * size_of::<BlkZone>() as u64;
        match u32::try_from(report.next_multiple_of(page.into())) {
            Ok(report) if report <= MOST => Ok(Served { drive, conventional, command, limit: command.max(report) }),
            _ => Err(Unfit::ManyZones(MOST / size_of::<BlkZone>() as u32)),
        }
    }

    /// Bytes of the drive's largest command, in whole pages of the kernel.
    pub fn command(&self) -> u32 {
        self.command
    }

    /// Bytes of the largest request: of one command, or of a report of all zones. A longer read or write than the drive's largest command
    /// becomes several commands.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The drive.
    pub fn drive(&self) -> &dyn ZonedDevice {
        self.drive.as_ref()
    }

    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn sequential(&self, zone: ZoneId) -> bool {
        zone.0 >= self.conventional
    }

    /// The bytes that nothing else may write or operate on meanwhile: of a sequential zone all, of a conventional one those that are written.
    pub(crate) fn claims(&self, request: &Request) -> Range<u64> {
        let geometry = self.geometry();
        let start_of = |at: u64| at / geometry.zone_size * geometry.zone_size;
        let whole = |at: u64| start_of(at)..start_of(at).saturating_add(geometry.zone_size);
        match request.op {
            Op::Read | Op::Flush | Op::Report { .. } => 0..0,
            Op::ResetAll => 0..u64::MAX,
            Op::Zone(_) | Op::Append { .. } => whole(request.at),
            Op::Write { .. } => {
                let (from, to) = (request.at, request.at.saturating_add(request.len));
                let last = to.saturating_sub(1).max(from);
                let from = if self.sequential(geometry.zone_of(from)) { start_of(from) } else { from };
                let to = if self.sequential(geometry.zone_of(last)) { whole(last).end } else { to };
                from..to
            }
        }
    }

    /// Answers a request. `buffer`: memory for the drive's largest command.
    pub fn run(&self, request: &Request, data: &dyn Data, buffer: &mut AlignedBuf) -> Result<Answer, Errno> {
        let tag = Tag::new(match request.op {
            Op::Read | Op::Report { .. } => Cause::UserRead,
            _ => Cause::UserWrite,
        });
        let bytes = u32::try_from(request.len).ok().filter(|len| *len <= self.limit).ok_or(Errno::INVAL)?;
        match request.op {
            Op::Read => {
                self.commands(request, buffer, |piece, from| {
                    self.drive.read_at(piece, request.at + from, tag).map_err(number)?;
                    let given = data.give(from, piece).map_err(lost)?;
                    if given == piece.len() { Ok(()) } else { Err(Errno::IO) }
                })?;
                Ok(Answer { bytes, written_at: 0 })
            }
            Op::Write { durable } => {
                self.write(request, request.at, durable, tag, data, buffer)?;
                Ok(Answer { bytes, written_at: 0 })
            }
            Op::Append { durable } => {
                let at = self.end_of(request.at, request.len).map_err(number)?;
                self.write(request, at, durable, tag, data, buffer)?;
                Ok(Answer { bytes, written_at: at })
            }
            Op::Flush => self.drive.flush(tag).map(|()| Answer::default()).map_err(number),
            Op::Zone(op) => {
                let zone = self.begins_at(request.at).map_err(number)?;
                self.drive.zone_op(op, zone, tag).map(|()| Answer::default()).map_err(number)
            }
            Op::ResetAll => self.reset_all(tag).map(|()| Answer::default()).map_err(number),
            Op::Report { zones } => {
                let report = self.report(request.at, zones).map_err(number)?;
                let given = data.give(0, report.as_bytes()).map_err(lost)?;
                if given == 0 { Err(Errno::IO) } else { Ok(Answer { bytes: given as u32, written_at: 0 }) }
            }
        }
    }

    /// One command after the other of a request's bytes, each with its part of the buffer, and the byte of the request that it begins at.
    fn commands(
        &self,
        request: &Request,
        buffer: &mut AlignedBuf,
        mut command: impl FnMut(&mut [u8], u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let most = u64::from(self.command);
        (0..request.len).step_by(self.command as usize).try_for_each(|from| {
            let len = usize::try_from(most.min(request.len - from)).ok();
            let piece = len.and_then(|len| buffer.get_mut(..len)).ok_or(Errno::INVAL)?;
            command(piece, from)
        })
    }

    fn write(
        &self,
        request: &Request,
        at: u64,
        durable: bool,
        tag: Tag,
        data: &dyn Data,
        buffer: &mut AlignedBuf,
    ) -> Result<(), Errno> {
        self.commands(request, buffer, |piece, from| {
            data.take(from, piece).map_err(lost)?;
            self.drive.write_at(piece, at + from, tag).map_err(number)
        })?;
        if durable { self.drive.flush(tag).map_err(number) } else { Ok(()) }
    }

    fn refused(&self, what: impl Into<String>) -> Error {
        Error::invalid(&self.drive.identity().name, what.into())
    }

    /// The zone that begins at this byte address.
    fn begins_at(&self, at: u64) -> Result<ZoneId, Error> {
        let geometry = self.geometry();
        match at.is_multiple_of(geometry.zone_size) && at < geometry.size() {
            true => Ok(geometry.zone_of(at)),
            false => Err(self.refused(format!("no zone begins at {at}"))),
        }
    }

    /// The byte address at which an append of `len` bytes to this zone is written.
    fn end_of(&self, at: u64, len: u64) -> Result<u64, Error> {
        let id = self.begins_at(at)?;
        if !self.sequential(id) {
            return Err(self.refused("an append to a conventional zone").at(id, at));
        }
        let mut out = [Zone::EMPTY];
        self.drive.report(id, &mut out)?;
        let [zone] = out;
        match zone.written() {
            // What is behind a full zone is another one.
            Written::To(end) if zone.capacity.saturating_sub(end) < len => {
                Err(Error::new(&self.drive.identity().name, Fault::ZoneFull).at(id, at))
            }
            Written::To(end) => Ok(at + end),
            // The drive says what is wrong with it.
            Written::Untold | Written::Gone => Ok(at),
        }
    }

    fn reset_all(&self, tag: Tag) -> Result<(), Error> {
        let zones = imbrex_device::report_all(self.drive.as_ref())?;
        let left = [ZoneState::Conventional, ZoneState::Empty, ZoneState::ReadOnly, ZoneState::Offline];
        let written = zones.iter().filter(|zone| self.sequential(zone.id) && !left.contains(&zone.state));
        written.map(|zone| zone.id).try_for_each(|zone| self.drive.zone_op(ZoneOp::Reset, zone, tag))
    }

    fn report(&self, at: u64, most: u32) -> Result<Vec<BlkZone>, Error> {
        let geometry = self.geometry();
        // From the zone in which the place lies, as disks do; programs may name any.
        let first = self.begins_at(at / geometry.zone_size * geometry.zone_size)?;
        let asked = most.min(geometry.zones - first.0);
        let mut zones = vec![Zone::EMPTY; asked as usize];
        let got = self.drive.report(first, &mut zones)?;
        zones.truncate(got);
        Ok(zones.iter().map(|zone| self.describe(zone)).collect())
    }

    /// A zone in the kernel's words.
    fn describe(&self, zone: &Zone) -> BlkZone {
        let geometry = self.geometry();
        let (start, len) = (geometry.start(zone.id) / SECTOR, geometry.zone_size / SECTOR);
        let cond = match zone.state {
            ZoneState::Conventional => 0x0,
            ZoneState::Empty => 0x1,
            ZoneState::ImplicitlyOpen => 0x2,
            ZoneState::ExplicitlyOpen => 0x3,
            ZoneState::Closed => 0x4,
            ZoneState::ReadOnly => 0xd,
            ZoneState::Full => 0xe,
            ZoneState::Offline => 0xf,
        };
        let wp = match (zone.state, zone.wp) {
            (ZoneState::Full, _) => start + len,
            (_, Some(wp)) => start + wp / SECTOR,
            // There is none.
            (_, None) => u64::MAX,
        };
        let (kind, capacity) = match self.sequential(zone.id) {
            true => (2, zone.capacity / SECTOR),
            false => (1, len),
        };
        BlkZone { start, len, wp, kind, cond, capacity, ..BlkZone::default() }
    }
}

/// The number for bytes that did not come from the kernel, or did not get there.
fn lost(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The number by which the kernel tells its callers what a drive said, the same as of a disk: `EREMOTEIO` where the drive refused the command,
/// `ENODATA` where the medium failed, `ETOOMANYREFS` and `EOVERFLOW` past the limits of open and active zones.
fn number(error: Error) -> Errno {
    tracing::warn!(%error, "a command of the served drive failed");
    match &error.fault {
        Fault::InvalidInput(_)
        | Fault::WritePointer { .. }
        | Fault::ZoneFull
        | Fault::ReadOnly
        | Fault::Offline
        | Fault::Misuse(_)
        | Fault::Refused(..)
        | Fault::Unusable(_) => Errno::REMOTEIO,
        Fault::TooManyOpen => Errno::TOOMANYREFS,
        Fault::TooManyActive => Errno::OVERFLOW,
        Fault::Media { .. } | Fault::Corrupt { .. } => Errno::NODATA,
        Fault::NoSpace => Errno::NOSPC,
        Fault::Io(error) if error.kind() == ErrorKind::StorageFull => Errno::NOSPC,
        Fault::Busy { .. } | Fault::Io(_) => Errno::IO,
    }
}

#[cfg(test)]
mod tests;
