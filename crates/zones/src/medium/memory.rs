//! Segments: the bytes that were appended and not yet written, in memory that outlives the process.
//!
//! The region begins with a header block, then one 64-byte descriptor a unit, then the units themselves. A segment is a run
//! of units; its descriptor stands in the place of its first unit. Invariants, which hold between any two instructions of
//! the process, so that a `kill -9` anywhere leaves a region that [`parse`] reads rightly:
//!
//! - a descriptor's `state` becomes LIVE only after all its other fields are stored, and FREE before its units are reused;
//! - `filled`, which is length and checksum of the payload in one word, changes only after the bytes below it are stored;
//! - the label on the drive is not older than the one whose generation the header has: that is stored after the label is written.
//!
//! The checksum is for what may happen to memory between two processes: a segment that does not have it any more is dropped
//! as a whole and reported ([`LeftSegment::lost`]), and never replayed.
//!
//! A segment begins with bytes that are kept free for a zone header, and of a framed stream for the header of its frame. So a segment is written to the drive
//! from where it stands, without a copy.
//!
//! This module holds all `unsafe` of the crate.

use crate::sync::{Mutex, lock};
use imbrex_device::{MEM_ALIGN, Region};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const MAGIC: u64 = u64::from_le_bytes(*b"IMBXsegm");
/// Version of a region.
pub const VERSION: u32 = 4;
const FREE: u32 = 0;
const LIVE: u32 = 0x4c49_5645;
const DESCRIPTOR: usize = 64;
/// See [`SegmentMemory::note_power_loss`].
const POWER_LOST: u64 = u64::from_le_bytes(*b"\0\0IMBXpw");
/// Bytes of a segment at most; lengths have 32 bits.
const MAX_SEGMENT: usize = 1 << 30;

/// Header of a region.
#[repr(C)]
struct RegionHeader {
    magic: AtomicU64,
    version: AtomicU32,
    unit: AtomicU32,
    units: AtomicU32,
    crc: AtomicU32,
    /// The lowest generation of the label that the drive may have, [sealed](seal).
    label: AtomicU64,
    /// Tenants that have to be told that the drive lost power, a bit each, below the upper bytes of [`POWER_LOST`]; 0: none.
    power: AtomicU64,
}

/// Descriptor of a segment.
#[repr(C)]
struct Descriptor {
    state: AtomicU32,
    units: AtomicU32,
    owner: AtomicU32,
    front: AtomicU32,
    zero: AtomicU32,
    crc: AtomicU32,
    file: AtomicU64,
    life: AtomicU64,
    logical: AtomicU64,
    filled: AtomicU64,
    reserved: AtomicU64,
}
const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR);
const _: () = assert!(std::mem::offset_of!(RegionHeader, label) == 24 && size_of::<RegionHeader>() <= MEM_ALIGN);

/// Whose bytes a segment holds, and where in the file they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentKey {
    /// Tenant.
    pub owner: u8,
    /// The engine's number of the file.
    pub file: u64,
    /// What tells this file's bytes from others under the same number (the journal's generation).
    pub life: u64,
    /// Logical offset of the first byte.
    pub logical: u64,
}

/// One segment that a dead process left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftSegment {
    /// Whose.
    pub key: SegmentKey,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Bytes that it had and that are not what was appended; then `bytes` is empty.
    pub lost: usize,
}

/// Payload bytes of a segment, at most 4 GiB, and their CRC-32C, in one word: both change in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filled {
    len: u32,
    crc: u32,
}

impl Filled {
    fn pack(self) -> u64 {
        u64::from(self.len) | u64::from(self.crc) << 32
    }

    fn unpack(word: u64) -> Filled {
        Filled { len: word as u32, crc: (word >> 32) as u32 }
    }
}

/// Memory cut into units, from which segments are claimed.
pub struct SegmentMemory {
    region: Arc<dyn Region>,
    unit: usize,
    units: usize,
    data: usize,
    used: Mutex<Used>,
}

struct Used {
    map: Vec<bool>,
    count: usize,
    hint: usize,
    /// Those of `count` whose bytes are in no hurry to be written.
    deferred: usize,
}

/// Whether the bytes of a segment are written as soon as it is full, or wait in memory while there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hurry {
    /// As soon as it is full.
    Soon,
    /// When somebody else needs the memory. Such segments take up to [`SegmentMemory::most_deferred`] of it.
    Deferred,
    /// As soon as it is full; and some of the memory is for these alone. For the log of an engine, which appends while it holds locks
    /// that whoever makes room for it would need.
    Log,
}

fn units_of(len: usize, unit: usize) -> usize {
    len.saturating_sub(2 * MEM_ALIGN) / (unit + DESCRIPTOR)
}

fn data_offset(units: usize) -> usize {
    (MEM_ALIGN + units * DESCRIPTOR).next_multiple_of(MEM_ALIGN)
}

fn static_crc(units: u32, key: &SegmentKey, front: u32) -> u32 {
    let mut bytes = [0u8; 40];
    bytes[..4].copy_from_slice(&units.to_le_bytes());
    bytes[4..8].copy_from_slice(&u32::from(key.owner).to_le_bytes());
    bytes[8..12].copy_from_slice(&front.to_le_bytes());
    bytes[16..24].copy_from_slice(&key.file.to_le_bytes());
    bytes[24..32].copy_from_slice(&key.life.to_le_bytes());
    bytes[32..].copy_from_slice(&key.logical.to_le_bytes());
    crc32c::crc32c(&bytes)
}

fn header_crc(unit: u32, units: u32) -> u32 {
    crc32c::crc32c(&[MAGIC.to_le_bytes(), (u64::from(unit) << 32 | u64::from(units)).to_le_bytes()].concat())
}

/// Bits of a label's generation in a word; the others are a checksum.
const GENERATION_BITS: u32 = 40;

/// A generation of the label with a checksum, in one word: it changes in one instruction, and a flipped bit is seen.
fn seal(generation: u64) -> u64 {
    let generation = generation & ((1 << GENERATION_BITS) - 1);
    generation | u64::from(crc32c::crc32c(&[MAGIC.to_le_bytes(), generation.to_le_bytes()].concat())) << GENERATION_BITS
}

fn unseal(word: u64) -> Option<u64> {
    let generation = word & ((1 << GENERATION_BITS) - 1);
    (seal(generation) == word).then_some(generation)
}

impl SegmentMemory {
    /// Lays an empty set of units of `unit` bytes (a multiple of [`MEM_ALIGN`]) into a fresh, zeroed region.
    pub fn new(region: Arc<dyn Region>, unit: usize) -> Arc<Self> {
        assert!(unit >= MEM_ALIGN && unit.is_multiple_of(MEM_ALIGN));
        assert!((region.base().as_ptr() as usize).is_multiple_of(MEM_ALIGN));
        let units = units_of(region.len(), unit);
        let memory = SegmentMemory {
            unit,
            units,
            data: data_offset(units),
            used: Mutex::new(Used { map: vec![false; units], count: 0, hint: 0, deferred: 0 }),
            region,
        };
        let header = memory.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.unit.store(unit as u32, Ordering::Relaxed);
        header.units.store(units as u32, Ordering::Relaxed);
        header.crc.store(header_crc(unit as u32, units as u32), Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Arc::new(memory)
    }

    /// The drive's label has this generation at least, from now on: what stands here is not the memory of a drive with an older one.
    pub(crate) fn goes_with(&self, generation: u64) {
        self.header().label.store(seal(generation), Ordering::Release);
    }

    /// The drive has lost power under a process of these tenants (bit by number) and does not tell whoever opens it next: what was written and not flushed is
    /// gone, so what stands here of them does not go on where the drive ends.
    pub(crate) fn note_power_loss(&self, tenants: u16) {
        let word = if tenants > 0 { POWER_LOST | u64::from(tenants) } else { 0 };
        self.header().power.store(word, Ordering::Release);
    }

    /// A tenant has heard of it.
    pub(crate) fn heard_of_power_loss(&self, tenant: u16) {
        self.header().power.fetch_and(!u64::from(tenant), Ordering::AcqRel);
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Units in use and in all.
    pub fn usage(&self) -> (usize, usize) {
        (lock(&self.used).count, self.units)
    }

    /// Units that deferred segments may take: three of four, so that those in a hurry always find some.
    pub fn most_deferred(&self) -> usize {
        self.units / 4 * 3
    }

    /// Units that nobody but a log gets: the least for what it is writing, and for what is appended meanwhile.
    fn kept(&self, least: usize) -> usize {
        (2 * least).min(self.units / 8)
    }

    /// Units that deferred segments take.
    pub fn deferred(&self) -> usize {
        lock(&self.used).deferred
    }

    fn header(&self) -> &RegionHeader {
        // SAFETY: the region is at least one page long (checked by `units_of` leaving room, and by the assert in `new`),
        // aligned, lives as long as `self`, and this part of it is only ever accessed as this struct of atomics.
        unsafe { self.region.base().cast::<RegionHeader>().as_ref() }
    }

    fn descriptor(&self, unit: usize) -> &Descriptor {
        assert!(unit < self.units);
        // SAFETY: descriptor `unit` lies within the region (`data_offset`), is 64-byte aligned, lives as long as `self`, and
        // is only ever accessed as this struct of atomics.
        unsafe { self.region.base().add(MEM_ALIGN + unit * DESCRIPTOR).cast::<Descriptor>().as_ref() }
    }

    /// Claims a segment of `want` bytes, of which `front` are kept free, or, where memory is short, of less, but at least as many units as hold a byte
    /// (one, unless a unit is no longer than what stands in front). Once more than half of all units (without those that deferred segments
    /// take) are in use, nobody gets more than that, so that many slow writers cannot starve each other. `None`: nothing is left.
    pub fn claim(self: &Arc<Self>, key: SegmentKey, front: u32, want: usize, hurry: Hurry) -> Option<Segment> {
        let mut used = lock(&self.used);
        // A segment without room for a byte would be full, and never be written.
        let least = (front as usize + 1).div_ceil(self.unit);
        let mut n = want.min(MAX_SEGMENT).div_ceil(self.unit).min(self.units).max(least);
        if (used.count - used.deferred) * 2 > self.units - used.deferred {
            n = least;
        }
        if hurry == Hurry::Deferred && used.deferred + n > self.most_deferred() {
            return None;
        }
        let free = self.units - used.count;
        let free = if hurry == Hurry::Log { free } else { free.saturating_sub(self.kept(least)) };
        if free < least {
            return None;
        }
        n = n.min(free);
        let first = loop {
            match find_run(&used.map, used.hint, n).or_else(|| find_run(&used.map, 0, n)) {
                Some(first) => break first,
                None if n == least => return None,
                None => n = (n / 2).max(least),
            }
        };
        used.map[first..first + n].fill(true);
        used.count += n;
        if hurry == Hurry::Deferred {
            used.deferred += n;
        }
        used.hint = first + n;
        drop(used);
        let d = self.descriptor(first);
        d.units.store(n as u32, Ordering::Relaxed);
        d.owner.store(u32::from(key.owner), Ordering::Relaxed);
        d.front.store(front, Ordering::Relaxed);
        d.zero.store(0, Ordering::Relaxed);
        d.file.store(key.file, Ordering::Relaxed);
        d.life.store(key.life, Ordering::Relaxed);
        d.logical.store(key.logical, Ordering::Relaxed);
        d.filled.store(Filled { len: 0, crc: 0 }.pack(), Ordering::Relaxed);
        d.crc.store(static_crc(n as u32, &key, front), Ordering::Relaxed);
        d.state.store(LIVE, Ordering::Release);
        let capacity = n * self.unit - front as usize;
        Some(Segment {
            memory: self.clone(),
            first,
            units: n,
            front: front as usize,
            key,
            capacity,
            hurry,
            since: Duration::ZERO,
            left: AtomicBool::new(false),
        })
    }
}

fn find_run(map: &[bool], from: usize, n: usize) -> Option<usize> {
    let mut run = 0;
    for (i, used) in map.iter().enumerate().skip(from) {
        run = if *used { 0 } else { run + 1 };
        if run == n {
            return Some(i + 1 - n);
        }
    }
    None
}

/// A run of units that belongs to one stream. Dropping it gives the memory back: do so only when its bytes are written.
///
/// One thread appends at a time; others may read what lies below [`Segment::len`] at any time.
pub struct Segment {
    memory: Arc<SegmentMemory>,
    first: usize,
    units: usize,
    front: usize,
    key: SegmentKey,
    capacity: usize,
    hurry: Hurry,
    since: Duration,
    left: AtomicBool,
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.left.load(Ordering::Acquire) {
            return;
        }
        self.memory.descriptor(self.first).state.store(FREE, Ordering::Release);
        let mut used = lock(&self.memory.used);
        used.map[self.first..self.first + self.units].fill(false);
        used.count -= self.units;
        if self.hurry == Hurry::Deferred {
            used.deferred -= self.units;
        }
        used.hint = used.hint.min(self.first);
    }
}

impl Segment {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: the units of this segment lie within the region.
        unsafe { self.memory.region.base().add(self.memory.data + self.first * self.memory.unit) }
    }

    /// From now on its bytes stay for the next mount, as if the process had died here: dropping it gives nothing back.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// The same, claimed at this time of the volume.
    pub(crate) fn claimed_at(mut self, since: Duration) -> Segment {
        self.since = since;
        self
    }

    /// When it was claimed: no byte in it is older.
    pub(crate) fn since(&self) -> Duration {
        self.since
    }

    /// It is no longer needed by the next mount: dropping it gives its memory back.
    pub(crate) fn give_back(&self) {
        self.left.store(false, Ordering::Release);
    }

    /// Whose, and where.
    pub fn key(&self) -> &SegmentKey {
        &self.key
    }

    /// Payload bytes that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn filled(&self) -> Filled {
        Filled::unpack(self.memory.descriptor(self.first).filled.load(Ordering::Acquire))
    }

    /// Payload bytes in it.
    pub fn len(&self) -> usize {
        self.filled().len as usize
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logical offset behind its last byte.
    pub fn end(&self) -> u64 {
        self.key.logical + self.len() as u64
    }

    /// Copies as much of `bytes` as fits behind the last byte; returns how much. Only one thread may append at a time, which
    /// the stream's state lock ensures.
    pub fn append(&self, bytes: &[u8]) -> usize {
        let filled = self.filled();
        let len = filled.len as usize;
        let take = bytes.len().min(self.capacity - len);
        assert!(self.front + len + take <= self.units * self.memory.unit);
        // SAFETY: within this segment's units (asserted); bytes at and above `len` are accessed by nobody else.
        unsafe {
            let to = self.base().as_ptr().add(self.front + len);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, take);
        }
        // Of the caller's bytes, which the copy has just brought into the cache.
        let crc = crc32c::crc32c_append(filled.crc, &bytes[..take]);
        let filled = Filled { len: (len + take) as u32, crc };
        self.memory.descriptor(self.first).filled.store(filled.pack(), Ordering::Release);
        take
    }

    /// Copies payload bytes from `from` on into `out`; returns how many there were.
    pub fn read(&self, from: usize, out: &mut [u8]) -> usize {
        let take = out.len().min(self.len().saturating_sub(from));
        assert!(self.front + from + take <= self.units * self.memory.unit || take == 0);
        // SAFETY: within this segment's units (asserted) and below `len`, where bytes no longer change.
        unsafe {
            let from = self.base().as_ptr().add(self.front + if take > 0 { from } else { 0 });
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), take);
        }
        take
    }

    /// The memory between byte offsets `from` and `to` of the segment, as the drive shall see it. To be used only by the one
    /// thread that writes this segment out, after its last append ([`SegmentImage`] borrows keep that in one place).
    pub(crate) fn image(&self) -> SegmentImage<'_> {
        SegmentImage { segment: self }
    }
}

/// The raw memory of a sealed segment, for the thread that writes it out.
pub(crate) struct SegmentImage<'a> {
    segment: &'a Segment,
}

impl<'a> SegmentImage<'a> {
    fn slot(&self, at: usize, n: usize) -> *mut u8 {
        assert!(at.checked_add(n).is_some_and(|end| end <= self.segment.units * self.segment.memory.unit));
        // SAFETY: within the segment's units, as asserted.
        unsafe { self.segment.base().as_ptr().add(at) }
    }

    /// Stores `bytes` at byte offset `at`: headers, which are no part of the payload.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        let to = self.slot(at, bytes.len());
        // SAFETY: in bounds; this is header space, which only the writing thread touches.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Zeroes `n` bytes at `at`: padding behind the payload.
    pub(crate) fn zero(&self, at: usize, n: usize) {
        let to = self.slot(at, n);
        // SAFETY: in bounds; bytes behind the payload of a sealed segment are touched by nobody else.
        unsafe { std::ptr::write_bytes(to, 0, n) }
    }

    /// The bytes from `at` on, `n` of them.
    pub(crate) fn bytes(&self, at: usize, n: usize) -> &'a [u8] {
        let from = self.slot(at, n);
        // SAFETY: in bounds, initialised (the region starts zeroed), and nobody writes to a sealed segment but this thread.
        unsafe { std::slice::from_raw_parts(from, n) }
    }
}

/// Whether another version of this program left the region: nothing in it can be understood, and it must not be replaced.
pub fn is_of_another_version(region: &[u8]) -> bool {
    region.starts_with(&MAGIC.to_le_bytes())
        && region.get(8..12).is_some_and(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) != VERSION)
}

/// The lowest generation of the label that the region's drive has: with an older one the drive was put back to an earlier state, and this
/// is not its memory. `None`: the region does not say.
pub fn label_of(region: &[u8]) -> Option<u64> {
    let word = |at: usize| region.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let ours = word(0)? == MAGIC && word(8)? as u32 == VERSION;
    unseal(word(24)?).filter(|_| ours)
}

/// Tenants under whom the drive [lost power](SegmentMemory::note_power_loss), and that have not heard of it yet.
pub fn power_losses(region: &[u8]) -> u16 {
    let word = |at: usize| region.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let noted = word(std::mem::offset_of!(RegionHeader, power)).filter(|noted| noted & !0xffff == POWER_LOST);
    noted.filter(|_| word(0) == Some(MAGIC)).map_or(0, |noted| noted as u16)
}

/// Reads what a dead process left behind. Trusts nothing: what does not fit is left out, and a segment whose bytes are not
/// those that were appended comes without them.
pub fn parse(region: &[u8]) -> Vec<LeftSegment> {
    let u32_at = |at: usize| region.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let u64_at = |at: usize| Some(u64::from(u32_at(at)?) | u64::from(u32_at(at + 4)?) << 32);
    let mut left = Vec::new();
    let (Some(MAGIC), Some(VERSION)) = (u64_at(0), u32_at(8)) else { return left };
    let (Some(unit), Some(units), Some(crc)) = (u32_at(12), u32_at(16), u32_at(20)) else { return left };
    let unit_bytes = unit as usize;
    if crc != header_crc(unit, units) || unit_bytes < MEM_ALIGN || units as usize != units_of(region.len(), unit_bytes)
    {
        return left;
    }
    let units = units as usize;
    let mut i = 0;
    while i < units {
        let at = MEM_ALIGN + i * DESCRIPTOR;
        let segment = (|| {
            if u32_at(at)? != LIVE {
                return None;
            }
            let n = u32_at(at + 4)?;
            let key = SegmentKey {
                owner: u8::try_from(u32_at(at + 8)?).ok()?,
                file: u64_at(at + 24)?,
                life: u64_at(at + 32)?,
                logical: u64_at(at + 40)?,
            };
            let front = u32_at(at + 12)?;
            let filled = Filled::unpack(u64_at(at + 48)?);
            let len = filled.len as usize;
            let sane = u32_at(at + 20)? == static_crc(n, &key, front) && n >= 1 && n as usize <= units - i;
            if !sane {
                return None;
            }
            let base = data_offset(units) + i * unit_bytes + front as usize;
            // A length that cannot be is damage, too.
            let most = (n as usize * unit_bytes).saturating_sub(front as usize);
            let mut bytes = Vec::new();
            if len <= most {
                bytes.extend_from_slice(region.get(base..base + len)?);
            }
            let whole = len <= most && filled.crc == crc32c::crc32c(&bytes);
            let lost = if whole { 0 } else { len.min(most) };
            if !whole {
                bytes.clear();
            }
            Some((n as usize, LeftSegment { key, bytes, lost }))
        })();
        match segment {
            Some((n, segment)) => {
                left.push(segment);
                i += n;
            }
            None => i += 1,
        }
    }
    left.sort_by_key(|s| (s.key.owner, s.key.file, s.key.life, s.key.logical));
    left
}

#[cfg(test)]
mod tests;
