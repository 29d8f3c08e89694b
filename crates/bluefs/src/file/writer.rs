//! How a file of a sequential kind is written: memory and device writes are [`ByteWriter`]'s; here are zones of its own or room behind others' bytes,
//! reserved before a byte is taken, and the records that say where its bytes are.

use crate::file::FileState;
use crate::file::core::Core;
use crate::kind::{FileKind, Purpose};
use crate::meta::{Extent, OPEN, Place, Record};
use crate::sync::lock;
use imbrex_device::{Code, Error, Priority, Result, ZoneId};
use imbrex_zones::write::{
    ByteWriter, NewZone, PlaceRequest, Placed, Step, WriteGuard, Writer, WriterSpec, WriterStart,
};
use imbrex_zones::{OpenZone, Reservation, Urgency, ZoneHeader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Zones that a write-ahead log waiting in memory may need at most: RocksDB's are somewhat longer than a memtable, for which a zone is a
/// good size.
const DEFERRED_ZONES: usize = 2;
/// Zones beyond the reserve that must be free besides, or logs do not wait.
const PLENTY: u32 = 8;

/// Zones that are squeezed at most before somebody is told that there is no space: each makes room for a thirty-second of a zone at least.
const MOST_SQUEEZED: u32 = 8;

/// The longest of the lifetimes that applications tell: RocksDB's last levels.
const EXTREME: u8 = 5;

/// How many segments of a write-ahead log wait at most.
pub(crate) fn deferred_segments(core: &Core, segment_bytes: usize) -> usize {
    DEFERRED_ZONES * (zone_room(core) as usize / segment_bytes)
}

/// Bytes of a file that an empty zone takes.
fn zone_room(core: &Core) -> u64 {
    core.zone_capacity.saturating_sub(core.front)
}

/// Writes a file.
pub(crate) struct FileWriter {
    core: Weak<Core>,
    state: Arc<FileState>,
    bytes: ByteWriter,
    /// Whether it was made to wait.
    deferred: bool,
    /// Zones that are reserved for what is in memory.
    reserved: Mutex<Vec<Reservation>>,
    /// One of them is on its way to a zone.
    redeeming: AtomicBool,
    /// Room in a zone with other files is.
    reserved_room: AtomicBool,
    /// The zone that it is to go on in, before metadata says so: nobody else may clean it.
    going_on: Mutex<Option<u32>>,
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else { return };
        self.unpin(&core);
        self.end_reservations(&core);
    }
}

impl FileWriter {
    /// A writer of the file, behind what it has.
    pub(crate) fn new(
        core: &Arc<Core>,
        state: &Arc<FileState>,
        spec: WriterSpec,
        start: WriterStart,
    ) -> Arc<FileWriter> {
        let writer = Arc::new(FileWriter {
            core: Arc::downgrade(core),
            state: state.clone(),
            bytes: ByteWriter::new(&core.tenant, spec, start),
            deferred: spec.deferred > 0,
            reserved: Mutex::default(),
            redeeming: AtomicBool::new(false),
            reserved_room: AtomicBool::new(false),
            going_on: Mutex::new(start.zone.map(|open| open.zone.0)),
        });
        core.writers.add(&writer);
        writer
    }

    /// See [`ByteWriter::abandon`].
    pub(crate) fn abandon(&self) {
        self.bytes.abandon();
        self.idle();
    }

    /// See [`ByteWriter::leave`].
    pub(crate) fn leave(&self) {
        self.bytes.leave();
        self.idle();
    }

    /// See [`ByteWriter::give_back`].
    pub(crate) fn give_back(&self) -> Option<OpenZone> {
        let (zone, idle) = self.bytes.give_back();
        if idle {
            self.idle();
        }
        zone
    }

    fn end_reservations(&self, core: &Core) {
        lock(&self.reserved).clear();
        if self.reserved_room.swap(false, Ordering::AcqRel) {
            core.parked.end_reservation(self.state.serial);
        }
    }

    fn unpin(&self, core: &Core) {
        if let Some(zone) = lock(&self.going_on).take() {
            core.tenant.unpin(ZoneId(zone));
        }
    }

    fn core(&self) -> Result<Arc<Core>> {
        let gone = || Error::invalid(&"bluefs".into(), "the file system was closed");
        self.core.upgrade().ok_or_else(gone)
    }

    fn place(&self, zone: ZoneId, life: u64, offset: u64) -> Place {
        match self.state.kind {
            FileKind::Log => Place::Framed { zone: zone.0, life, offset },
            _ => Place::Raw { zone: zone.0, life, offset },
        }
    }

    /// What tells, in the zone itself, whose the bytes behind it are.
    fn header(&self, core: &Core, zone: ZoneId, life: u64, logical: u64) -> ZoneHeader {
        ZoneHeader {
            kind: self.state.kind as u8,
            file: self.state.serial,
            logical,
            created: core.now(),
            name: self.state.name.clone(),
            ..core.tenant.header(zone, life)
        }
    }

    /// Room behind the bytes of other files, if there is any for this one.
    fn shared_zone(&self, core: &Core, logical: u64, need: u64, crowded: bool) -> Result<Option<NewZone>> {
        let make = |open: &OpenZone| Record::Extend {
            serial: self.state.serial,
            extent: Extent { logical, len: OPEN, place: self.place(open.zone, open.life, open.at + core.front) },
        };
        let taken = core.take_room(&self.state, need, crowded, make)?;
        let Some(open) = taken else { return Ok(None) };
        core.refresh(&self.state);
        self.reserved_room.store(false, Ordering::Release);
        // What is in memory fits in there; but more may wait than this room holds.
        if !self.deferred {
            lock(&self.reserved).clear();
        }
        let header = self.header(core, open.zone, open.life, logical);
        Ok(Some(NewZone { zone: open.zone, at: open.at, header }))
    }

    /// Reserves a zone for the file, or room for `need` bytes in one with other files.
    fn reserve_place(&self, core: &Core, need: u64, new_wal: bool) -> Result<()> {
        match core.reserve_zone(new_wal) {
            Ok(reservation) => lock(&self.reserved).push(reservation),
            Err(_) if core.reserve_room(&self.state, need) => self.reserved_room.store(true, Ordering::Release),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A zone, for which a reservation is used up where there are some.
    fn take_zone(&self, core: &Core, urgency: Urgency) -> Result<ZoneId> {
        match urgency {
            Urgency::Reserved => {
                // For who appends meanwhile it is still reserved.
                self.redeeming.store(true, Ordering::Release);
                let mut one: Vec<_> = lock(&self.reserved).pop().into_iter().collect();
                let zone = core.redeem_zone(&mut one);
                lock(&self.reserved).append(&mut one);
                self.redeeming.store(false, Ordering::Release);
                zone
            }
            _ => core.take_zone(urgency),
        }
    }

    fn has_reserved(&self) -> bool {
        self.redeeming.load(Ordering::Acquire) || !lock(&self.reserved).is_empty()
    }

    /// Reserves a place for `need` bytes of the file, whatever has to be moved or written for it.
    fn find_place(&self, core: &Core, need: u64) -> Result<()> {
        let new_wal = self.state.purpose == Purpose::Wal && self.state.map().extents.is_empty();
        let is_full = |result: &Result<()>| result.as_ref().is_err_and(|error| error.code() == Code::NoSpace);
        let mut result = self.reserve_place(core, need, new_wal);
        if is_full(&result) && core.unwritten.write_waiting() {
            // Logs that wait have more reserved than they take.
            result = self.reserve_place(core, need, new_wal);
        }
        // So are those that are open, and each of them that was written has a zone to itself. What one gives up another may take before this one.
        let mut patience = if self.state.kind == FileKind::Log { 8 } else { 1 };
        while is_full(&result) && core.options.policy.shares() && patience > 0 {
            core.writers.rest_logs()?;
            result = self.reserve_place(core, need, new_wal);
            patience -= 1;
        }
        while is_full(&result) && core.options.policy.shares() && core.writers.leave_one(Some(false), need)? {
            result = self.reserve_place(core, need, new_wal);
        }
        let leave = if new_wal { 0 } else { core.wal_spare() };
        let mut patience = 4;
        while is_full(&result) && patience > 1 && core.pack_for_room(leave)? {
            patience -= 1;
            // Another one may be faster.
            result = self.reserve_place(core, need, new_wal);
        }
        let mut patience = MOST_SQUEEZED;
        while is_full(&result) && patience > 0 && core.squeeze()? {
            patience -= 1;
            result = self.reserve_place(core, need, new_wal);
        }
        result
    }

    fn extend(&self, core: &Core, extent: Extent) -> Result<()> {
        let record = Record::Extend { serial: self.state.serial, extent };
        match core.log_unless_orphan(&self.state, &[record]) {
            Ok(true) => {
                core.refresh(&self.state);
                Ok(())
            }
            Ok(false) => {
                // Nobody will find it again: only this process has to know, and the journal that it is nobody's.
                let (zone, life) = extent.place.zone().unzip();
                if let (Some(zone), Some(life)) = (zone, life) {
                    core.log_freed(&self.state, zone, life)?;
                }
                let mut map = self.state.map_mut();
                if let Some(last) = map.extents.last_mut().filter(|e| e.len == OPEN) {
                    last.len = extent.logical - last.logical;
                }
                map.extents.retain(|e| e.len > 0);
                map.extents.push(extent);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A zone for the bytes from `logical` on, with room for a header and `need` bytes. The journal has it when this returns.
    fn next_zone(&self, logical: u64, need: u64) -> Result<NewZone> {
        let core = self.core()?;
        if self.state.kind == FileKind::Table {
            core.clean_ahead();
        }
        if let Some(open) = self.shared_zone(&core, logical, need, false)? {
            return Ok(open);
        }
        // Where few zones may be active, files share them before any is finished early.
        if core.options.policy.shares() && core.tenant.is_crowded()? {
            if let Some(open) = self.shared_zone(&core, logical, need, true)? {
                return Ok(open);
            }
            let framed = self.state.kind == FileKind::Log;
            if core.writers.leave_one(Some(framed), core.front + need)?
                && let Some(open) = self.shared_zone(&core, logical, need, true)?
            {
                return Ok(open);
            }
        }
        let reserved = self.has_reserved();
        // In a mount what a dead process had reserved may use half of the reserve, like a reservation; the rest is the journal's.
        let urgency = match core.recovering.load(Ordering::Acquire) {
            _ if reserved => Urgency::Reserved,
            true => Urgency::Recovered,
            false => Urgency::User,
        };
        if urgency == Urgency::User {
            core.make_room(0)?;
        }
        let zone = match self.take_zone(&core, urgency) {
            Err(error) if error.code() == Code::NoSpace => {
                if let Some(open) = self.shared_zone(&core, logical, need, true)? {
                    return Ok(open);
                }
                let framed = self.state.kind == FileKind::Log;
                if core.options.policy.shares()
                    && core.writers.leave_one(Some(framed), core.front + need)?
                    && let Some(open) = self.shared_zone(&core, logical, need, true)?
                {
                    return Ok(open);
                }
                if urgency != Urgency::User || !core.pack_for_room(0)? {
                    return Err(error);
                }
                self.take_zone(&core, urgency)?
            }
            other => other?,
        };
        let life = core.tenant.new_life();
        let extent = Extent { logical, len: OPEN, place: self.place(zone, life, core.front) };
        if let Err(error) = self.extend(&core, extent) {
            core.tenant.release(zone);
            return Err(error);
        }
        Ok(NewZone { zone, at: 0, header: self.header(&core, zone, life, logical) })
    }

    /// The bytes from `logical` on stand there.
    fn resume(&self, logical: u64, open: OpenZone) -> Result<()> {
        let core = self.core()?;
        let extent = Extent { logical, len: OPEN, place: self.place(open.zone, open.life, open.at) };
        self.extend(&core, extent)?;
        {
            // All that stood there before may have been moved or deleted meanwhile. What comes now keeps the zone.
            let state = lock(&core.meta);
            if state.meta.zone_life(open.zone.0) == Some(open.life) {
                core.tenant.recall(open.zone);
            }
        }
        self.unpin(&core);
        Ok(())
    }

    /// The next write ends in padding, and the file at `size`.
    fn announce(&self, size: u64) -> Result<()> {
        let core = self.core()?;
        let record = Record::Size { serial: self.state.serial, size, time: core.now(), volatile: true };
        core.log_unless_orphan(&self.state, &[record])?;
        if core.recovering.load(Ordering::Acquire) {
            // The memory of this mount does not survive it yet: the record must not be missing where the padding is there.
            core.sync_journal()?;
        }
        Ok(())
    }

    /// These bytes are on the drive: from now on readers look there.
    fn placed(&self, placed: &Placed, bytes: &[u8]) {
        if let Some(core) = self.core.upgrade()
            && self.state.kind == FileKind::Table
        {
            core.cleaning.wrote(placed.len);
            // What will live longest is what a compaction reads last: it takes no room from others.
            if self.state.hint.load(Ordering::Relaxed) < EXTREME || !core.cache.is_nearly_full() {
                core.cache.append(&mut lock(&self.state.filling), self.state.serial, placed.logical, bytes);
            }
        }
        if self.state.kind == FileKind::Log {
            lock(&self.state.log).note_tail(placed);
        }
        self.state.placed.store(placed.logical + placed.len, Ordering::Release);
    }
}

impl Writer for FileWriter {
    fn bytes(&self) -> &ByteWriter {
        &self.bytes
    }

    fn reserve(&self, request: &PlaceRequest<'_>) -> Result<()> {
        let (core, bytes) = (self.core()?, request.bytes());
        // What a dead process had reserved is taken as far as there is room: a mount must not fail for it.
        if core.recovering.load(Ordering::Acquire) {
            return Ok(());
        }
        if request.is_deferred() {
            let zones = bytes.div_ceil(zone_room(&core).max(1));
            // Only where there is plenty: nothing is cleaned for what will probably be deleted.
            let mut reserved = lock(&self.reserved);
            while (reserved.len() as u64) < zones {
                reserved.push(core.tenant.reserve(PLENTY)?);
            }
            return Ok(());
        }
        if self.has_reserved() {
            return Ok(());
        }
        let (segment, _) = core.segment_sizes(self.state.purpose, self.state.kind);
        self.find_place(&core, core.front + bytes + segment as u64)
    }

    fn idle(&self) {
        // It may live on for a while: in the queue of background work, or as a log that others wait for.
        if let Some(core) = self.core.upgrade() {
            self.end_reservations(&core);
        }
    }

    fn write_front(&self, guard: &mut WriteGuard<'_>, priority: Priority) -> Result<u64> {
        loop {
            match guard.write(priority)? {
                Step::Nothing => return Ok(0),
                Step::Wrote(bytes) => return Ok(bytes),
                Step::Zone { logical, need } => {
                    let new = self.next_zone(logical, need)?;
                    guard.give(new, &*self.core()?)?;
                }
                Step::Resume { logical, zone } => {
                    self.resume(logical, zone)?;
                    guard.resumed();
                }
                Step::Announce { size } => {
                    self.announce(size)?;
                    guard.announced(size);
                }
                Step::Placed(placed, bytes) => self.placed(&placed, bytes.get()),
            }
        }
    }

    fn leave_zone(&self, zone: &OpenZone, end: u64) -> Result<bool> {
        let core = self.core()?;
        let serial = self.state.serial;
        // Together: what stands in the zone has its length, and the file goes on.
        let ends = [Record::Seal { serial, size: end, time: core.now() }, Record::Reopen { serial }];
        if core.log_unless_orphan(&self.state, &ends)? {
            core.refresh(&self.state);
        }
        self.unpin(&core);
        core.park(&self.state, *zone);
        Ok(true)
    }
}
