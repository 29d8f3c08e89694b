//! The writer of records: of each open zone what is not on the drive yet, and who writes it.
//!
//! An engine hands a zone down ([`open`](RecordWriter::open)) and then [pushes](RecordWriter::push) encoded records to it, each behind the last. They are in memory
//! until a [commit](super::Lead::write) takes them, or whoever has the zone's [`ZoneGuard`]. What a zone does not take comes back as a value: its zone guard, with
//! the records that wait. The engine puts them elsewhere before it tells anybody. A [closed](RecordWriter::close) zone is finished once all is on the drive.
//!
//! With the drive's write cache off a written byte is durable. Then [`RecordWriter::writes_through`], and whoever appends may write the zone without a commit. On a
//! rotating drive each command waits for its place to come round, so zones are then written side by side, as many as the drive's queue holds; it takes
//! whichever comes round first. With threads each zone has one; without, zone follows zone. With its write cache on such a drive puts in order what is in its
//! memory, and long turns in one zone suit it better.
//!
//! Calls that only work in memory (rule M) are those of the first block below and [`ZoneGuard::waiting`] and [`ZoneGuard::discard`]. An engine may make them under its own
//! locks. All others may wait for the drive.
//!
//! Invariants:
//! - Of each zone one write is at the drive at a time, in the order of its bytes. Who does it has the zone's [`ZoneGuard`]. Nobody waits for a zone guard or a turn while
//!   holding a turn, nor for one zone guard while holding another.
//! - An error of one zone stops no other: what the others wrote counts.
//! - The writer knows a zone while bytes of it wait, are not durable, or may still come, and while it is not finished; and one whose bytes were discarded, until
//!   it is given back. Of any other all is on the drive.

use super::buffer::{Segment, ZoneBuffer, command};
use super::commit::Seq;
use super::memory::{BufPool, PooledBuf};
use super::turns::{AtOnce, Turns, at_once};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::volume::{OpenZone, Tenant};
use imbrex_device::{Cause, Result, Tag, Zone, ZoneId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// So many bytes of one zone are copied together for one write, where the write cache is off: else a record of 1 MiB would be two commands, each of which
/// waits for its sector to come round. With the cache on, copying gains nothing.
const TOGETHER: usize = 16 << 20;
/// What a drive's queue holds.
const BESIDE: usize = 32;
/// So often a write is tried again where its zone still takes some.
const TRIES: u32 = 2;

/// How records are written.
#[derive(Clone, Copy, Debug)]
pub struct RecordOptions {
    /// Records of up to half as many bytes gather in pieces of this length.
    pub gather: usize,
    /// The unit of records, in bytes: a multiple of the drive's block.
    pub block: usize,
    /// Most zones that are written at once where a written byte is durable; `None`: [as many as pay](super::turns::at_once).
    pub zones_at_once: Option<u32>,
}

/// See the module.
pub struct RecordWriter {
    tenant: Tenant,
    pool: Arc<BufPool>,
    options: RecordOptions,
    together: usize,
    /// So many zones are written side by side.
    beside: usize,
    through: bool,
    at_once: Option<AtOnce>,
    zones: Mutex<Zones>,
    changed: Condvar,
    /// Bytes that are not written yet.
    buffered: AtomicU64,
    /// Bytes that ever became durable.
    flushed: AtomicU64,
}

#[derive(Default)]
struct Zones {
    all: BTreeMap<u32, OneZone>,
    /// Zones that were written since the last group.
    unflushed: BTreeSet<u32>,
    /// Groups that are written and not durable, the oldest first.
    groups: VecDeque<(Seq, Vec<End>)>,
    turns: Turns,
}

/// A zone, its life, and up to where it was written.
type End = (u32, u64, u64);

struct OneZone {
    life: u64,
    capacity: u64,
    buffer: ZoneBuffer,
    /// Up to here no power loss takes anything of it.
    durable: u64,
    /// Somebody has its zone guard.
    writing: bool,
    /// It took no more when it was written last.
    refused: bool,
    /// Bytes of it were [discarded](ZoneGuard::discard).
    discarded: bool,
    /// Nothing comes any more.
    closed: bool,
    /// The drive was told so.
    finished: bool,
}

/// What became of a zone's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// They are on the drive.
    All,
    /// It takes no more of them: what is left needs another place.
    Refused,
}

/// A zone that has something to write or is to be finished, and the end of what it had in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub zone: u32,
    /// In bytes from its start.
    pub end: u64,
}

/// The right to write one zone; given back when dropped.
#[must_use]
pub struct ZoneGuard<'a> {
    writer: &'a RecordWriter,
    zone: u32,
}

/// The right to give the drive one command; given back when dropped.
struct Turn<'a>(&'a RecordWriter, AtOnce);

impl Zones {
    /// What this life of the zone has up to `end` is durable. Returns how many bytes of it were not.
    fn durable_to(&mut self, zone: u32, life: u64, end: u64) -> u64 {
        let Some(z) = self.all.get_mut(&zone).filter(|z| z.life == life && z.durable < end) else { return 0 };
        let new = end - std::mem::replace(&mut z.durable, end);
        self.settle(zone);
        new
    }

    /// Forgets a zone of which nothing is left to do.
    fn settle(&mut self, zone: u32) {
        let done = |z: &OneZone| {
            let idle = z.finished && z.buffer.is_empty() && !z.writing;
            idle && z.durable >= z.buffer.written() && !z.discarded
        };
        if self.all.get(&zone).is_some_and(done) {
            self.all.remove(&zone);
        }
    }

    fn give_turns(&mut self, limit: AtOnce) -> bool {
        let Zones { all, turns, .. } = self;
        turns.give(limit, |zone| all.get(&zone).map_or(0, |z| z.buffer.end() - z.buffer.written()))
    }
}

/// What works in memory.
impl RecordWriter {
    /// Of this tenant's zones.
    pub fn new(tenant: &Tenant, mut options: RecordOptions) -> RecordWriter {
        let (volume, limited) = (tenant.volume(), tenant.limits_active());
        let (command, rotational) = (u64::from(volume.geometry().max_io), volume.geometry().rotational);
        let cached = volume.device().write_cache().unwrap_or(true);
        // Where active zones are limited, one that is closed is finished before the next is begun.
        let (alone, through) = (cached && rotational || limited, !cached && !limited);
        let asked = options.zones_at_once.map(|zones| zones.max(1) as usize);
        let zones = asked.unwrap_or_else(|| at_once(command, rotational, BESIDE));
        options.gather = options.gather.next_multiple_of(options.block).max(options.block);
        RecordWriter {
            tenant: tenant.clone(),
            pool: Arc::default(),
            options,
            together: if cached { 0 } else { TOGETHER },
            beside: if alone { 1 } else { BESIDE },
            through,
            at_once: (through && zones < BESIDE).then_some(AtOnce { zones, command }),
            zones: Mutex::default(),
            changed: Condvar::new(),
            buffered: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        }
    }

    fn zones(&self) -> MutexGuard<'_, Zones> {
        lock(&self.zones)
    }

    fn of<T>(&self, zone: u32, look: impl FnOnce(&OneZone) -> T) -> Option<T> {
        self.zones().all.get(&zone).map(look)
    }

    /// The tenant whose zones these are.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Whether a written byte is durable.
    pub fn writes_through(&self) -> bool {
        self.through
    }

    /// Memory for a record of so many bytes, of any content.
    pub fn memory(&self, len: usize) -> PooledBuf {
        self.pool.take(len)
    }

    /// A zone that the engine has leased: the next record goes to `zone.at`, and all before it is durable.
    pub fn open(&self, zone: OpenZone) {
        let OpenZone { zone, life, at, capacity } = zone;
        let one = OneZone {
            life,
            capacity,
            buffer: ZoneBuffer::new(at),
            durable: at,
            writing: false,
            refused: false,
            discarded: false,
            closed: false,
            finished: false,
        };
        self.zones().all.insert(zone.0, one);
    }

    /// Puts a record, whole blocks, behind the last one of an open zone. Returns where; `None`: the zone is not open, or has no room for it.
    pub fn push(&self, zone: u32, record: PooledBuf) -> Option<u64> {
        let mut zones = self.zones();
        let fits = |z: &&mut OneZone| !z.closed && z.buffer.end() + record.len() as u64 <= z.capacity;
        let z = zones.all.get_mut(&zone).filter(fits)?;
        let at = z.buffer.end();
        self.buffered.fetch_add(record.len() as u64, Ordering::Relaxed);
        z.buffer.push(record, self.options.gather, &self.pool);
        Some(at)
    }

    /// Nothing more comes to the zone: it is finished when all of it is on the drive.
    pub fn close(&self, zone: u32) {
        if let Some(z) = self.zones().all.get_mut(&zone) {
            z.closed = true;
        }
    }

    /// The zone is about to be given back. False: it is not the moment, since bytes wait for it or somebody writes it.
    pub fn forget(&self, zone: u32) -> bool {
        let mut zones = self.zones();
        let free = zones.all.get(&zone).is_none_or(|z| !z.writing && z.buffer.is_empty());
        if free {
            zones.all.remove(&zone);
        }
        free
    }

    /// Whether the writer has anything left to do with the zone.
    pub fn knows(&self, zone: u32) -> bool {
        self.of(zone, |_| ()).is_some()
    }

    /// Whether bytes of the zone wait in memory.
    pub fn waits(&self, zone: u32) -> bool {
        self.of(zone, |z| !z.buffer.is_empty()).unwrap_or(false)
    }

    /// All zones that the writer [knows](RecordWriter::knows), and whether bytes of them [wait](RecordWriter::waits).
    pub fn known(&self) -> BTreeMap<u32, bool> {
        self.zones().all.iter().map(|(zone, z)| (*zone, !z.buffer.is_empty())).collect()
    }

    /// Up to here the zone is on the drive; `u64::MAX`: nothing of it waits.
    pub fn written(&self, zone: u32) -> u64 {
        let waiting = |z: &OneZone| (!z.buffer.is_empty()).then(|| z.buffer.written());
        self.of(zone, waiting).flatten().unwrap_or(u64::MAX)
    }

    /// Up to here no power loss takes anything of the zone.
    pub fn durable(&self, zone: u32) -> u64 {
        self.of(zone, |z| z.durable).unwrap_or(u64::MAX)
    }

    /// Copies bytes of a zone, `from` counts from its start. False: not all of them are in memory.
    pub fn read(&self, zone: u32, from: u64, out: &mut [u8]) -> bool {
        self.of(zone, |z| z.buffer.read(from, out)).unwrap_or(false)
    }

    /// Bytes that wait in memory.
    pub fn buffered(&self) -> u64 {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Bytes that ever became durable.
    pub fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed)
    }

    /// What a commit writes now. An engine asks for it under the lock under which it decides. Zones that are closed come first, so that they count no more
    /// as open when others are begun.
    pub fn due(&self) -> Vec<Due> {
        let zones = self.zones();
        let due = zones.all.iter().filter(|(_, z)| !z.buffer.is_empty() || z.closed && !z.finished);
        let (closed, open): (Vec<_>, Vec<_>) = due.partition(|(_, z)| z.closed);
        closed.into_iter().chain(open).map(|(zone, z)| Due { zone: *zone, end: z.buffer.end() }).collect()
    }

    /// A group is written up to this number. Who commits without a [`Committer`](super::Committer) says so, and when it is [durable](RecordWriter::group_durable).
    pub fn group_written(&self, seq: Seq) {
        let mut zones = self.zones();
        let written = std::mem::take(&mut zones.unflushed);
        let end = |zone| zones.all.get(&zone).map(|z| (zone, z.life, z.buffer.written()));
        let ends = written.into_iter().filter_map(end).collect();
        zones.groups.push_back((seq, ends));
    }

    /// Groups up to this number are durable, which whoever commits without a [`Committer`](super::Committer) says. False: that was known.
    pub fn group_durable(&self, seq: Seq) -> bool {
        let mut zones = self.zones();
        let due = zones.groups.partition_point(|(group, _)| *group <= seq);
        let groups: Vec<_> = zones.groups.drain(..due).collect();
        let ends = groups.into_iter().flat_map(|(_, ends)| ends);
        let new = ends.map(|(zone, life, end)| zones.durable_to(zone, life, end)).sum();
        self.flushed.fetch_add(new, Ordering::Relaxed);
        due > 0
    }
}

/// What may wait for the drive.
impl RecordWriter {
    /// Writes what these zones have in memory, up to these ends at least, and finishes those that are closed. Returns the zone guards of those that did not take
    /// it.
    pub fn write(&self, due: &[Due]) -> Result<Vec<ZoneGuard<'_>>> {
        let next = AtomicUsize::new(0);
        let outcome = Mutex::new((Vec::new(), Ok(())));
        let work = || {
            while let Some(Due { zone, end }) = due.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Some(zone_guard) = self.zone_guard(*zone, *end) else { continue };
                let wrote = zone_guard.write();
                let mut outcome = lock(&outcome);
                match wrote {
                    Ok(Wrote::Refused) => outcome.0.push(zone_guard),
                    Ok(Wrote::All) => {
                        drop(outcome);
                        zone_guard.finish();
                    }
                    Err(error) if outcome.1.is_ok() => outcome.1 = Err(error),
                    // The first says enough.
                    Err(_) => {}
                }
            }
        };
        let helpers = if self.tenant.volume().is_threaded() { self.beside.min(due.len()).saturating_sub(1) } else { 0 };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                // Without them (the system has no more) this one does it all.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        let (refused, result) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.map(|()| refused)
    }

    /// Waits for the right to write the zone; `None`: others have written it up to `end`, or there is nothing left to do with it.
    pub fn zone_guard(&self, zone: u32, end: u64) -> Option<ZoneGuard<'_>> {
        let mut zones = self.zones();
        loop {
            let z = zones.all.get_mut(&zone)?;
            if z.buffer.written() >= end && (!z.closed || z.finished) {
                return None;
            }
            if !std::mem::replace(&mut z.writing, true) {
                return Some(ZoneGuard { writer: self, zone });
            }
            zones = wait(&self.changed, zones);
        }
    }

    /// Waits until the zone's next command may go to the drive. Who calls has its zone guard.
    fn turn(&self, zone: u32) -> Option<Turn<'_>> {
        let limit = self.at_once?;
        let mut zones = self.zones();
        zones.turns.wait(zone);
        // All who append wait for the same condition: none of them is woken in vain.
        zones.give_turns(limit);
        while !zones.turns.take(zone) {
            zones = wait(&self.changed, zones);
        }
        Some(Turn(self, limit))
    }

    /// The zone's write pointer; `None`: it takes no writes.
    fn report_wp(&self, zone: u32) -> Result<Option<u64>> {
        let mut report = [Zone::EMPTY];
        self.tenant.volume().device().report(ZoneId(zone), &mut report)?;
        let [report] = report;
        let block = self.options.block as u64;
        Ok(report.wp.filter(|_| report.state.writable()).map(|wp| wp / block * block))
    }

    /// The drive has taken what is between these two.
    fn wrote(&self, zone: u32, from: u64, to: u64) {
        self.buffered.fetch_sub(to - from, Ordering::Relaxed);
        let mut zones = self.zones();
        let Some(z) = zones.all.get_mut(&zone) else { return };
        z.buffer.written_to(to);
        z.refused &= to == from;
        let life = z.life;
        match self.through {
            true => drop(self.flushed.fetch_add(zones.durable_to(zone, life, to), Ordering::Relaxed)),
            false => drop(zones.unflushed.insert(zone)),
        }
        self.changed.notify_all();
    }
}

impl ZoneGuard<'_> {
    /// Which zone's it is.
    pub fn zone(&self) -> u32 {
        self.zone
    }

    /// What is not on the drive, and from where on that is. The first segment may begin before that. Waits for nothing.
    pub fn waiting(&self) -> (u64, Vec<Arc<Segment>>) {
        let mut zones = self.writer.zones();
        let z = zones.all.get_mut(&self.zone).map(|z| &mut z.buffer).filter(|buffer| !buffer.is_empty());
        z.map_or((u64::MAX, Vec::new()), |buffer| (buffer.written(), buffer.front(usize::MAX)))
    }

    /// What is [waiting](ZoneGuard::waiting) has another place, or nobody needs it. Returns where the zone ends now. Waits for nothing.
    pub fn discard(&self) -> u64 {
        let mut zones = self.writer.zones();
        let Some(z) = zones.all.get_mut(&self.zone) else { return 0 };
        (z.refused, z.discarded) = (false, true);
        self.writer.buffered.fetch_sub(z.buffer.discard(), Ordering::Relaxed);
        z.buffer.end()
    }

    /// Writes what the zone has in memory this moment.
    ///
    /// # Errors
    /// Those of a volume that takes no more writes, and of a report of zones; that of a write for which the host under an emulated drive has no room. What the zone refuses is no
    /// error.
    pub fn write(&self) -> Result<Wrote> {
        let (writer, zone, volume) = (self.writer, self.zone, self.writer.tenant.volume());
        let Some((upto, refused)) = writer.of(zone, |z| (z.buffer.end(), z.refused)) else { return Ok(Wrote::All) };
        if refused && writer.report_wp(zone)?.is_none() {
            // It would only say so again.
            return Ok(Wrote::Refused);
        }
        let mut tried = 0;
        // Command by command where others append meanwhile: what is left of a record goes with what has gathered behind it.
        let block = writer.options.block;
        let longest = (volume.geometry().max_io as usize / block * block).max(block);
        let most = if writer.through { longest } else { usize::MAX };
        while writer.written(zone) < upto {
            let turn = writer.turn(zone);
            let Some((mut open, segments)) = self.front() else { break };
            let at = open.at;
            if at == 0 {
                writer.tenant.activate(open.zone, None)?;
            }
            let pieces = command(&segments, at, most);
            let joined = (pieces.len() > 1).then(|| writer.join(&pieces));
            let bytes = joined.as_deref().or(pieces.first().copied()).unwrap_or_default();
            let (end, tag) = (at + bytes.len() as u64, Tag::new(Cause::UserWrite));
            let result = match writer.beside {
                1 => volume.write_sequential(&mut open, bytes, tag),
                _ => volume.write_beside(&mut open, bytes, tag),
            };
            drop(joined);
            let now = match &result {
                Ok(()) => end,
                Err(_) => writer.report_wp(zone)?.map_or(at, |wp| wp.clamp(at, end)),
            };
            writer.wrote(zone, at, now);
            drop(turn);
            if let Err(error) = result {
                volume.check_poison()?;
                tried += 1;
                tracing::warn!(%error, zone, "a write failed; the zone was asked what it took");
                if tried > TRIES && error.is_host_full() {
                    // No other zone has room then, and this one has once somebody makes room.
                    return Err(error);
                }
                if tried > TRIES || writer.report_wp(zone)?.is_none() {
                    writer.zones().all.get_mut(&zone).into_iter().for_each(|z| z.refused = true);
                    return Ok(Wrote::Refused);
                }
            }
        }
        Ok(Wrote::All)
    }

    /// The zone where its next command goes, and segments for it.
    fn front(&self) -> Option<(OpenZone, Vec<Arc<Segment>>)> {
        let mut zones = self.writer.zones();
        let z = zones.all.get_mut(&self.zone).filter(|z| !z.buffer.is_empty())?;
        let open = OpenZone { zone: ZoneId(self.zone), life: z.life, at: z.buffer.written(), capacity: z.capacity };
        Some((open, z.buffer.front(self.writer.together)))
    }

    /// Tells the drive that a closed zone is not written any more. What fails is tried again with the next commit.
    fn finish(&self) {
        let writer = self.writer;
        if writer.of(self.zone, |z| z.closed && !z.finished && z.buffer.is_empty()) == Some(true) {
            match writer.tenant.finish(ZoneId(self.zone)) {
                Ok(()) => writer.zones().all.get_mut(&self.zone).into_iter().for_each(|z| z.finished = true),
                Err(error) => tracing::warn!(%error, "a zone could not be finished"),
            }
        }
    }
}

impl RecordWriter {
    fn join(&self, pieces: &[&[u8]]) -> PooledBuf {
        let mut all = self.pool.take(pieces.iter().map(|piece| piece.len()).sum());
        let mut at = 0;
        for piece in pieces {
            all[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        all
    }
}

impl Drop for ZoneGuard<'_> {
    fn drop(&mut self) {
        let mut zones = self.writer.zones();
        if let Some(z) = zones.all.get_mut(&self.zone) {
            z.writing = false;
        }
        zones.settle(self.zone);
        self.writer.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut zones = self.0.zones();
        zones.turns.end();
        if zones.give_turns(self.1) {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
