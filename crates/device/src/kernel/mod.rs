//! Zoned block devices of the Linux kernel: host-managed SMR disks and ZNS namespaces, and what the kernel makes up
//! (`null_blk`, `scsi_debug`).
//!
//! Reports and zone operations are the ioctls of `linux/blkzoned.h`; reads and writes go past the page cache
//! (`O_DIRECT`); a flush is an fdatasync of the device. The rules of the contract are kept as follows:
//!
//! - **The drive decides about writes.** A write goes to the drive as it is asked for, in one command (`max_io` is so
//!   small that the kernel never splits one, which could leave half of a refused write behind; [long](self::long) ones go from large pages). Only where the kernel
//!   would do something else than fail (crossing zones, misalignment) it is refused here. After an error the zone is
//!   reported and the error is told from its state.
//! - **Zones are reported before they are opened or closed**, since drives differ about forbidden transitions: ZBC ignores
//!   the close of an empty zone, ZNS refuses it. Here it is refused.
//! - **Reads above the write pointer return zeros on every drive.** Some drives return 0xff there, some fail. The write
//!   pointer of each zone is kept in memory (the drive is ours alone), and what lies above it is never asked for.
//! - **At most one write or zone operation is in flight per sequential zone**: the volume's promise; a second one is refused
//!   at once.
//! - **Write cache off** means that acknowledged is durable: every write carries `RWF_DSYNC`. The file
//!   `queue/write_cache` is only read: writing it does not change the drive, only whether the kernel flushes.

mod advice;
mod errors;
mod ioctl;
mod long;
mod open;
mod plain;
mod sysfs;

use crate::{Cause, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice};
pub use advice::Advice;
use errors::Doing;
use ioctl::{BlkZone, Condition, SECTOR, ZoneType};
use long::{LargeBuffers, Longest};
pub(crate) use plain::{PlainDisk, boot, is_rotational, open_plain};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sysfs::Sysfs;

/// What the opener wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything, alone.
    Write,
    /// Read and report, beside others who only read.
    ReadOnly,
    /// Read and report beside whoever has it: what is seen may be old when it is looked at.
    Observe,
}

/// What a kernel device is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The kernel's name, as `sdb`.
    pub kernel_name: String,
    /// Vendor and model, where the drive tells.
    pub model: Option<String>,
    /// Serial number or world-wide name, where the drive tells.
    pub serial: Option<String>,
    /// Logical block of the drive, in bytes.
    pub logical_block: u32,
    /// Physical block of the drive, in bytes.
    pub physical_block: u32,
    /// Conventional zones.
    pub conventional: u32,
    /// Process that has it, where the system tells.
    pub in_use_by: Option<u32>,
    /// What to know or change about its settings.
    pub advice: Vec<Advice>,
}

/// An open zoned block device.
pub struct KernelDevice {
    file: File,
    sysfs: Sysfs,
    access: Access,
    identity: Identity,
    geometry: Geometry,
    slots: Vec<Slot>,
    /// The caller wants the cache; `false` makes every write durable by itself.
    cache: AtomicBool,
    /// Longest write from any memory; longer ones go from large pages.
    plain_io: usize,
    large: Option<LargeBuffers>,
}

/// What is known of a zone beside the drive's own word.
struct Slot {
    conventional: bool,
    /// A write or a zone operation is in flight.
    claimed: AtomicBool,
    /// Bytes from the zone's start that reads ask the drive for.
    readable: AtomicU64,
}

struct Claim<'a>(&'a Slot);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.claimed.store(false, Ordering::Release);
    }
}

impl KernelDevice {
    /// Opens the zoned block device at `path`.
    ///
    /// Errors: `Unusable` with a sentence for what is no whole, unmounted, host-managed drive; `Busy` where somebody has
    /// it; `Io` where the kernel says so.
    pub fn open(path: &Path, access: Access) -> Result<KernelDevice> {
        let name: Arc<str> = path.display().to_string().into();
        let (file, sysfs) = open::open(path, &name, access)?;
        let mut geometry = geometry(&file, &sysfs, &name)?;
        let Longest { plain, large } = Longest::of(&sysfs, geometry.block);
        // Who only reads needs none: reads may be cut.
        let buffers = if large > plain && access == Access::Write { LargeBuffers::new(large) } else { None };
        if buffers.is_some() || access != Access::Write {
            geometry.max_io = large;
        }
        let identity = identity(&name, &sysfs);
        let cache = sysfs.text("queue/write_cache").is_none_or(|text| text == "write back");
        let mut device = KernelDevice {
            file,
            sysfs,
            access,
            identity,
            geometry,
            slots: Vec::new(),
            cache: AtomicBool::new(cache),
            plain_io: plain as usize,
            large: buffers,
        };
        device.load()?;
        if access == Access::Write {
            for advice in device.advice().iter().filter(|advice| !advice.good) {
                tracing::warn!("{name}: {}: {}", advice.subject, advice.sentence);
            }
        }
        Ok(device)
    }

    /// Settings of the drive that are worth a sentence.
    pub fn advice(&self) -> Vec<Advice> {
        advice::advise(&self.sysfs, sysfs::release(&rustix::system::uname().release().to_string_lossy()))
    }

    /// What it is, for people.
    pub fn about(&self) -> About {
        let block = |file| self.sysfs.number(file).and_then(|n| u32::try_from(n).ok()).unwrap_or(self.geometry.block);
        About {
            kernel_name: self.sysfs.name(),
            model: self.sysfs.model(),
            serial: self.sysfs.identities().into_iter().next(),
            logical_block: block("queue/logical_block_size"),
            physical_block: block("queue/physical_block_size"),
            conventional: self.slots.iter().filter(|slot| slot.conventional).count() as u32,
            in_use_by: self.file.metadata().ok().and_then(|meta| crate::lock_holder(&meta)),
            advice: self.advice(),
        }
    }

    /// Writable bytes of its first sequential zone; the zone size where there is none.
    pub fn zone_capacity(&self) -> Result<u64> {
        let first = self.slots.iter().position(|slot| !slot.conventional);
        first.map_or(Ok(self.geometry.zone_size), |zone| Ok(self.look(ZoneId(zone as u32))?.capacity))
    }

    /// Fills `slots` from a report of the whole drive.
    fn load(&mut self) -> Result<()> {
        let mut slots = Vec::with_capacity(self.geometry.zones as usize);
        let mut odd = None;
        while slots.len() < self.geometry.zones as usize {
            let from = slots.len() as u64;
            let left = self.geometry.zones as usize - slots.len();
            let got = self.report_raw(ZoneId(from as u32), left, &mut |raw| match self.zone(raw) {
                Ok(zone) => slots.push(Slot {
                    conventional: zone.state == ZoneState::Conventional,
                    claimed: AtomicBool::new(false),
                    readable: AtomicU64::new(self.readable(&zone)),
                }),
                Err(error) => odd = odd.take().or(Some(error)),
            })?;
            if let Some(error) = odd.take() {
                return Err(error);
            }
            if got == 0 {
                let text = format!("the kernel reports {} of its {} zones; check the drive", from, self.geometry.zones);
                return Err(Error::unusable(&self.identity.name, text));
            }
        }
        self.slots = slots;
        Ok(())
    }

    fn report_raw(&self, from: ZoneId, most: usize, each: &mut dyn FnMut(&BlkZone)) -> Result<usize> {
        let sector = self.geometry.start(from) / SECTOR;
        ioctl::report(self.file.as_fd(), sector, most, each)
            .map_err(|errno| Error::io(&self.identity.name, errno.into()).at(from, self.geometry.start(from)))
    }

    /// The kernel's zone in our words.
    fn zone(&self, raw: &BlkZone) -> Result<Zone> {
        let id = self.geometry.zone_of(raw.start.saturating_mul(SECTOR));
        let odd = |what: &str| Error::unusable(&self.identity.name, format!("zone {id} {what}; use another drive"));
        if raw.len.checked_mul(SECTOR) != Some(self.geometry.zone_size) {
            return Err(odd("has another size than the others"));
        }
        let capacity = raw.capacity() * SECTOR;
        let wp = raw.wp.checked_sub(raw.start).and_then(|sectors| sectors.checked_mul(SECTOR));
        let wp = wp.filter(|wp| *wp <= capacity);
        let condition = raw.condition().ok_or_else(|| odd("is in a state that is not known here"))?;
        let (state, wp) = match (raw.zone_type(), condition) {
            (Some(ZoneType::Conventional), Condition::ReadOnly) => (ZoneState::ReadOnly, None),
            (_, Condition::Offline) => (ZoneState::Offline, None),
            (Some(ZoneType::Conventional), _) => (ZoneState::Conventional, None),
            (Some(ZoneType::SequentialRequired), Condition::Empty) => (ZoneState::Empty, Some(0)),
            (Some(ZoneType::SequentialRequired), Condition::ImplicitlyOpen) => (ZoneState::ImplicitlyOpen, wp),
            (Some(ZoneType::SequentialRequired), Condition::ExplicitlyOpen) => (ZoneState::ExplicitlyOpen, wp),
            (Some(ZoneType::SequentialRequired), Condition::Closed) => (ZoneState::Closed, wp),
            (Some(ZoneType::SequentialRequired), Condition::Full) => (ZoneState::Full, Some(capacity)),
            // ZBC: the write pointer of such a zone is not valid.
            (Some(ZoneType::SequentialRequired), Condition::ReadOnly) => (ZoneState::ReadOnly, None),
            (Some(ZoneType::SequentialPreferred), _) => return Err(odd("is host-aware")),
            _ => return Err(odd("is of a type that is not known here")),
        };
        if wp.is_none() && !matches!(state, ZoneState::Conventional | ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(odd("has a write pointer that lies outside of it"));
        }
        Ok(Zone { id, state, capacity, wp })
    }

    /// Bytes that reads of a zone in this state may ask the drive for.
    fn readable(&self, zone: &Zone) -> u64 {
        match zone.state {
            // Let the drive say no.
            ZoneState::Conventional | ZoneState::Offline => self.geometry.zone_size,
            _ => zone.wp.unwrap_or(zone.capacity),
        }
    }

    fn slot(&self, zone: ZoneId) -> Option<&Slot> {
        self.slots.get(zone.0 as usize)
    }

    fn claim(&self, zone: ZoneId, at: u64) -> Result<Claim<'_>> {
        let slot = self.slot(zone).ok_or_else(|| self.invalid("there is no such zone".into(), zone, at))?;
        if slot.claimed.swap(true, Ordering::Acquire) {
            return Err(self.invalid("a second command on a zone that has one in flight".into(), zone, at));
        }
        Ok(Claim(slot))
    }

    fn invalid(&self, text: String, zone: ZoneId, at: u64) -> Error {
        Error::new(&self.identity.name, Fault::InvalidInput(text.into())).at(zone, at)
    }

    fn fault(&self, fault: Fault, zone: ZoneId, at: u64) -> Error {
        Error::new(&self.identity.name, fault).at(zone, at)
    }

    /// One zone as the drive reports it now.
    fn look(&self, zone: ZoneId) -> Result<Zone> {
        let mut seen = None;
        self.report_raw(zone, 1, &mut |raw| seen = Some(self.zone(raw)))?;
        seen.unwrap_or_else(|| Err(self.invalid("the kernel does not report this zone".into(), zone, 0)))
    }

    /// Looks at a zone after something failed there, so that reads know where its write pointer is now.
    fn look_again(&self, zone: ZoneId) -> Option<Zone> {
        let seen = self.look(zone).ok()?;
        if let Some(slot) = self.slot(zone) {
            slot.readable.store(self.readable(&seen), Ordering::Release);
        }
        Some(seen)
    }

    fn check_command(&self, buf: &[u8], at: u64) -> Result<()> {
        let geometry = &self.geometry;
        let (block, len) = (u64::from(geometry.block), buf.len() as u64);
        let refuse = |text: String| Err(self.invalid(text, geometry.zone_of(at), at));
        if len == 0 || !len.is_multiple_of(block) {
            return refuse(format!("length {len} is not a positive multiple of the block size {block}"));
        }
        if !at.is_multiple_of(block) {
            return refuse(format!("offset {at} is not a multiple of the block size {block}"));
        }
        if !(buf.as_ptr() as usize).is_multiple_of(geometry.mem_align as usize) {
            return refuse(format!("the buffer is not aligned to {} bytes", geometry.mem_align));
        }
        if len > u64::from(geometry.max_io) {
            return refuse(format!("length {len} is more than the largest command {}", geometry.max_io));
        }
        if at >= geometry.size() || len > geometry.size() - at {
            return refuse(format!("{len} bytes at {at} end behind the drive's {} bytes", geometry.size()));
        }
        Ok(())
    }

    /// Writes all of `buf`, or says how much went before the error.
    fn write_all(&self, buf: &[u8], at: u64) -> Result<(), (usize, Errno)> {
        if buf.len() > self.plain_io
            && let Some(written) =
                self.large.as_ref().and_then(|large| large.with(buf, |buf| self.write_by(buf, at, buf.len())))
        {
            return written;
        }
        self.write_by(buf, at, self.plain_io)
    }

    /// The same in pieces of `most` bytes, each of which the kernel passes on whole.
    fn write_by(&self, buf: &[u8], at: u64, most: usize) -> Result<(), (usize, Errno)> {
        let cached = self.cache.load(Ordering::Relaxed);
        let flags = if cached { ReadWriteFlags::empty() } else { ReadWriteFlags::DSYNC };
        let mut done = 0;
        while done < buf.len() {
            let piece = &buf[done..buf.len().min(done + most.max(1))];
            match rustix::io::pwritev2(&self.file, &[IoSlice::new(piece)], at + done as u64, flags) {
                Ok(0) => return Err((done, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err((done, errno)),
            }
        }
        Ok(())
    }

    fn read_all(&self, buf: &mut [u8], at: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.file, &mut buf[done..], at + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reads one zone's part of a read: what was written from the drive, the rest is zeros. An error says how many bytes
    /// of the part are good.
    fn read_in_zone(&self, buf: &mut [u8], zone: ZoneId, offset: u64) -> Result<(), (u64, Fault)> {
        let readable = self.slot(zone).map_or(0, |slot| slot.readable.load(Ordering::Acquire));
        let stored = readable.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (data, zeros) = buf.split_at_mut(stored);
        if !data.is_empty() {
            let at = self.geometry.start(zone) + offset;
            if let Err(errno) = self.read_all(data, at) {
                self.read_slowly(data, at, zone, errno)?;
            }
        }
        zeros.fill(0);
        Ok(())
    }

    /// Reads block by block after an error, to find the first bad block; transient errors go away by it.
    fn read_slowly(&self, data: &mut [u8], at: u64, zone: ZoneId, first: Errno) -> Result<(), (u64, Fault)> {
        if errors::is_gone(first) {
            return Err((0, errors::io_fault(first)));
        }
        let mut good = 0;
        for block in data.chunks_mut(self.geometry.block as usize) {
            if let Err(errno) = self.read_all(block, at + good) {
                let seen = self.look(zone).ok();
                return Err((good, errors::explain(errno, Doing::Read { good }, seen.as_ref())));
            }
            good += block.len() as u64;
        }
        Ok(())
    }

    fn sequential_write(&self, buf: &[u8], zone: ZoneId, offset: u64) -> Result<()> {
        let at = self.geometry.start(zone) + offset;
        let claim = self.claim(zone, at)?;
        let before = claim.0.readable.load(Ordering::Acquire);
        match self.write_all(buf, at) {
            Ok(()) => {
                claim.0.readable.store(offset + buf.len() as u64, Ordering::Release);
                Ok(())
            }
            Err((_, errno)) => {
                let seen = self.look_again(zone);
                let doing = Doing::Write { offset, len: buf.len() as u64, before };
                Err(self.fault(errors::explain(errno, doing, seen.as_ref()), zone, at))
            }
        }
    }

    fn may_write(&self, zone: ZoneId, at: u64) -> Result<()> {
        if self.access == Access::Write { Ok(()) } else { Err(self.fault(Fault::ReadOnly, zone, at)) }
    }
}

impl ZonedDevice for KernelDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let wanted = out.len().min(self.geometry.zones.saturating_sub(from.0) as usize);
        let mut done = 0;
        while done < wanted {
            let mut odd = None;
            let next = ZoneId(from.0 + done as u32);
            let (_, rest) = out.split_at_mut(done);
            let mut slots = rest.iter_mut();
            let got = self.report_raw(next, wanted - done, &mut |raw| match (self.zone(raw), slots.next()) {
                (Ok(zone), Some(slot)) => *slot = zone,
                (Err(error), _) => odd = odd.take().or(Some(error)),
                (Ok(_), None) => {}
            })?;
            if let Some(error) = odd {
                return Err(error);
            }
            if got == 0 {
                break;
            }
            done += got;
        }
        Ok(done)
    }

    fn read_at(&self, buf: &mut [u8], at: u64, _: Tag) -> Result<()> {
        self.check_command(buf, at)?;
        let mut done = 0;
        while done < buf.len() {
            let here = at + done as u64;
            let (zone, offset) = (self.geometry.zone_of(here), here % self.geometry.zone_size);
            let n = (buf.len() - done).min((self.geometry.zone_size - offset) as usize);
            self.read_in_zone(&mut buf[done..done + n], zone, offset).map_err(|(good, fault)| {
                let fault = match fault {
                    Fault::Media { .. } => Fault::Media { len: done as u64 + good },
                    other => other,
                };
                self.fault(fault, zone, at)
            })?;
            done += n;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: u64, _: Tag) -> Result<()> {
        self.check_command(buf, at)?;
        let (zone, offset) = (self.geometry.zone_of(at), at % self.geometry.zone_size);
        self.may_write(zone, at)?;
        if offset + buf.len() as u64 > self.geometry.zone_size {
            return Err(self.invalid("a write across zones".into(), zone, at));
        }
        if !self.slot(zone).is_some_and(|slot| slot.conventional) {
            return self.sequential_write(buf, zone, offset);
        }
        self.write_all(buf, at).map_err(|(done, errno)| {
            let seen = self.look(zone).ok();
            self.fault(errors::explain(errno, Doing::Overwrite { done: done as u64 }, seen.as_ref()), zone, at)
        })
    }

    fn flush(&self, _: Tag) -> Result<()> {
        rustix::fs::fdatasync(&self.file).map_err(|errno| Error::io(&self.identity.name, errno.into()))
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, _: Tag) -> Result<()> {
        let at = self.geometry.start(zone);
        if zone.0 >= self.geometry.zones {
            return Err(self.invalid(format!("there is no zone {zone}"), zone, at));
        }
        if self.slot(zone).is_some_and(|slot| slot.conventional) {
            return Err(self.invalid(format!("{} of a conventional zone", op.name()), zone, at));
        }
        self.may_write(zone, at)?;
        let claim = self.claim(zone, at)?;
        let before = self.look(zone)?;
        let forbidden = match (op, before.state) {
            (_, ZoneState::ReadOnly) => return Err(self.fault(Fault::ReadOnly, zone, at)),
            (_, ZoneState::Offline) => return Err(self.fault(Fault::Offline, zone, at)),
            (ZoneOp::Open, ZoneState::Full) => true,
            (ZoneOp::Close, state) => !state.is_open() && state != ZoneState::Closed,
            _ => false,
        };
        if forbidden {
            return Err(self.invalid(format!("{} of a zone that is {}", op.name(), before.state.name()), zone, at));
        }
        if op == ZoneOp::Reset {
            // From here on until it has failed nobody may believe in the old bytes.
            claim.0.readable.store(0, Ordering::Release);
        }
        match ioctl::zone_op(self.file.as_fd(), op, at / SECTOR, self.geometry.zone_size / SECTOR) {
            // A finish writes nothing: what lies behind the data is zeros still, while some drives show old bytes there.
            Ok(()) => Ok(()),
            Err(errno) => {
                let seen = self.look_again(zone);
                Err(self.fault(errors::explain(errno, Doing::ZoneOp, seen.as_ref()), zone, at))
            }
        }
    }

    fn write_cache(&self) -> Result<bool> {
        Ok(self.cache.load(Ordering::Relaxed))
    }

    /// As long as the drive is open: with `off`, each write is made durable before it is acknowledged.
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.cache.store(on, Ordering::SeqCst);
        if on { Ok(()) } else { self.flush(Tag::new(Cause::Other)) }
    }
}

impl std::fmt::Debug for KernelDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelDevice({}, {:?})", self.identity.name, self.access)
    }
}

/// The geometry by ioctls and sysfs.
fn geometry(file: &File, sysfs: &Sysfs, name: &Arc<str>) -> Result<Geometry> {
    let io = |errno: Errno| Error::io(name, errno.into());
    let refuse = |sentence: String| Err(Error::unusable(name, sentence));
    let zone_size = u64::from(ioctl::zone_sectors(file.as_fd()).map_err(io)?) * SECTOR;
    let counted = ioctl::zone_count(file.as_fd()).map_err(io)?;
    let size = sysfs.number("size").unwrap_or(0).saturating_mul(SECTOR);
    if zone_size == 0 || size / zone_size < 2 {
        return refuse(format!("it has {counted} zones of {zone_size} bytes on {size} bytes; two at least are needed"));
    }
    // A smaller last zone, which ZBC allows, is left alone.
    let zones = counted.min(u32::try_from(size / zone_size).unwrap_or(u32::MAX));
    // Host-managed disks that emulate blocks of 512 bytes want whole physical ones in sequential zones.
    let logical = sysfs.number("queue/logical_block_size").unwrap_or(SECTOR);
    let block = sysfs.number("queue/zone_write_granularity").unwrap_or(0).max(logical);
    if block != 512 && block != 4096 {
        return refuse(format!("its zones are written in blocks of {block} bytes; drives of 512 or 4096 can be used"));
    }
    let block = block as u32;
    Ok(Geometry {
        block,
        mem_align: block,
        max_io: Longest::of(sysfs, block).plain,
        zones,
        zone_size,
        max_open: sysfs.limit("queue/max_open_zones"),
        max_active: sysfs.limit("queue/max_active_zones"),
        rotational: sysfs.number("queue/rotational") == Some(1),
        reads_cross_zones: true,
        reads_above_wp: true,
    })
}

/// Who it is. A drive that tells no name of its own is a new medium after every boot.
fn identity(name: &Arc<str>, sysfs: &Sysfs) -> Identity {
    let boot = sysfs::boot_id();
    let hash = |text: String| *uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, text.as_bytes()).as_bytes();
    let mut names = sysfs.identities().join("\n");
    if names.is_empty() {
        names = format!("{}\n{boot}", sysfs.name());
    }
    // The number of this disk among all that appeared since boot: another one when a drive was pulled and put back.
    let sequence = sysfs.text("diskseq").unwrap_or_default();
    Identity {
        name: name.clone(),
        medium: hash(format!("imbrex medium\n{names}")),
        power_epoch: hash(format!("imbrex power epoch\n{boot}\n{sequence}")),
    }
}
