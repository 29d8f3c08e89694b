//! The journal: the only copy of the metadata, as records in the [metadata log](imbrex_zones::log) (BlueFS §4, "Journaling").
//!
//! An item of the log has the records of one step, so that all of them count or none. A piece of a snapshot has as many records as fill a frame, so that a
//! bad sector costs the records in it and nothing else.

use crate::meta::{Meta, Record};
use crate::options::Clock;
use crate::sync::lock;
use imbrex_device::{Cause, Code, Error, Fault, Priority, Result, Tag};
use imbrex_zones::log::{Admission, Admitted, Appender, BLOCK, Batch, LogZone, MetaLog, Replay, Root};
use imbrex_zones::{Tenant, Urgency};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Zones of a new journal: one to write to, and one for the next snapshot.
const ZONES: u32 = 2;
/// Bytes of pieces that are handed to the log at once.
const TOGETHER: usize = 256 << 10;

/// The open journal.
pub(crate) struct Journal {
    tenant: Tenant,
    appender: Appender,
    log: Mutex<MetaLog>,
    /// Bytes that the last snapshot takes of the drive.
    snapshot: AtomicU64,
    /// Bytes of frames behind it.
    grown: AtomicU64,
    /// Bytes of records that were appended since.
    appended: AtomicU64,
    /// Number of the last step, and of the last durable one, of this mount.
    last: AtomicU64,
    durable: AtomicU64,
    /// Number of the last step that the mount itself appended.
    first: AtomicU64,
    /// It could not take a step: nothing may change any more.
    broken: AtomicBool,
}

impl Journal {
    /// Of a file system that has none, with this metadata; durable when it returns.
    ///
    /// # Errors
    /// Those of the drive, and `NoSpace`. The zones that it took are nobody's after the next mount.
    pub(crate) fn create(tenant: &Tenant, clock: Clock, meta: &Meta) -> Result<Journal> {
        let log = MetaLog::create(tenant, 1, ZONES, tenant.volume().power_epoch().to_vec(), clock)?;
        let journal = Journal::of(tenant, log, 0, 0);
        journal.compact(meta)?;
        Ok(journal)
    }

    /// That a mount opened: with a snapshot of so many frames, and so many of records behind it.
    pub(crate) fn of(tenant: &Tenant, log: MetaLog, snapshot: u64, records: u64) -> Journal {
        Journal {
            tenant: tenant.clone(),
            appender: log.appender().clone(),
            log: Mutex::new(log),
            snapshot: AtomicU64::new(snapshot * BLOCK),
            grown: AtomicU64::new(records * BLOCK),
            appended: AtomicU64::new(records * BLOCK),
            last: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            first: AtomicU64::new(0),
            broken: AtomicBool::new(false),
        }
    }

    fn log(&self) -> MutexGuard<'_, MetaLog> {
        lock(&self.log)
    }

    /// Bytes that a snapshot takes at most.
    fn needs(&self) -> u64 {
        self.snapshot.load(Ordering::Relaxed) + 2 * self.appended.load(Ordering::Relaxed) + 2 * BLOCK
    }

    /// Whether records of so many bytes of a [`Batch`] may come. `last`: they may take the room that is kept for a snapshot.
    pub(crate) fn admit(&self, bytes: u64, last: bool) -> Option<Admission> {
        match self.appender.admit(bytes, (!last).then(|| self.needs())) {
            Admitted::Room(room) => Some(room),
            Admitted::Snapshot => None,
        }
    }

    /// They do not come.
    pub(crate) fn give_back(&self, room: Admission) {
        self.appender.give_back(room);
    }

    /// Fails where nothing may change any more.
    pub(crate) fn check(&self) -> Result<()> {
        let volume = self.tenant.volume();
        if self.broken.load(Ordering::Acquire) {
            let what = "an earlier failure kept metadata from being written; close everything and mount again";
            return Err(Error::refused(Code::Poisoned, &volume.name(), what));
        }
        volume.check_poison()
    }

    /// Appends the records of a step, and returns its number; from now on they survive the death of the process. Only where memory is short does this
    /// write.
    ///
    /// # Errors
    /// Those of such a write. Then what was appended may or may not be durable one day, and nothing may change any more.
    pub(crate) fn append(&self, room: Admission, records: Batch) -> Result<u64> {
        match self.append_or_write(room, records) {
            Ok(()) => Ok(self.last.fetch_add(1, Ordering::AcqRel) + 1),
            Err(error) => {
                self.broken.store(true, Ordering::Release);
                Err(error)
            }
        }
    }

    fn append_or_write(&self, room: Admission, records: Batch) -> Result<()> {
        self.appended.fetch_add(records.len() as u64, Ordering::Relaxed);
        let Err((room, records)) = self.appender.append_kept(room, records) else { return Ok(()) };
        self.write(Priority::High)?;
        let Err((room, records)) = self.appender.append_kept(room, records) else { return Ok(()) };
        self.appender.append(room, records);
        self.write(Priority::High)
    }

    /// Writes what was appended. Not a flush.
    pub(crate) fn write(&self, priority: Priority) -> Result<()> {
        let mut log = self.log();
        let before = log.grown();
        let result = log.write(priority);
        self.grown.fetch_add(log.grown() - before, Ordering::Relaxed);
        result
    }

    /// Number of the last step.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Everything so far is the mount's own, and durable.
    pub(crate) fn begins(&self) {
        self.durable.store(self.last(), Ordering::Release);
        self.first.store(self.last(), Ordering::Release);
    }

    /// Whether anything was appended since.
    pub(crate) fn has_recorded(&self) -> bool {
        self.last() > self.first.load(Ordering::Acquire)
    }

    /// Number of the last step that is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Makes every step durable that was appended before the call.
    ///
    /// # Errors
    /// Those of the write and the flush, and where nothing may change any more.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check()?;
        let (last, volume) = (self.last(), self.tenant.volume());
        if last <= self.durable() {
            return volume.check_power();
        }
        self.write(Priority::High)?;
        volume.sync(Tag::new(Cause::Journal).at(Priority::High))?;
        self.durable.fetch_max(last, Ordering::AcqRel);
        Ok(())
    }

    /// Zones of its ring.
    pub(crate) fn zone_count(&self) -> u64 {
        self.appender.zones()
    }

    /// Bytes that it takes of the drive. Every sync takes a block, however little it says.
    pub(crate) fn len(&self) -> u64 {
        self.snapshot.load(Ordering::Relaxed) + self.grown()
    }

    /// Bytes that it takes beside the last snapshot.
    pub(crate) fn grown(&self) -> u64 {
        self.grown.load(Ordering::Relaxed)
    }

    /// Bytes of the last snapshot.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshot.load(Ordering::Relaxed)
    }

    /// Writes all metadata anew; durable when it returns, and what stands before it on the drive is given up. Nothing may be appended meanwhile.
    ///
    /// # Errors
    /// Then the journal is as it was. `NoSpace` where the snapshot does not fit.
    pub(crate) fn compact(&self, meta: &Meta) -> Result<()> {
        let last = self.last();
        let mut log = self.log();
        // An estimate that does not fit is not believed.
        let needs = if log.fits(self.needs()) { self.needs() } else { bytes_of(meta) };
        let bytes = self.write_snapshot(&mut log, meta, needs)?;
        self.snapshot.store(bytes, Ordering::Relaxed);
        self.durable.fetch_max(last, Ordering::AcqRel);
        self.grown.store(0, Ordering::Relaxed);
        self.appended.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a snapshot of all metadata; returns how many bytes it takes.
    fn write_snapshot(&self, log: &mut MetaLog, meta: &Meta, needs: u64) -> Result<u64> {
        log.begin_snapshot_of_all(needs)?;
        let (most, mut frames) = (log.item_bytes(), 2);
        let (mut item, mut next, mut batch) = (Vec::new(), Vec::new(), Batch::default());
        for record in meta.snapshot() {
            next.clear();
            record.encode(&mut next);
            if item.len() + next.len() > most {
                batch.push(|to| to.append(&mut item));
                frames += 1;
                if batch.len() >= TOGETHER {
                    log.pieces(&std::mem::take(&mut batch))?;
                }
            }
            item.append(&mut next);
        }
        batch.push(|to| to.append(&mut item));
        log.pieces(&batch)?;
        match log.finish_snapshot()? {
            true => Ok((frames + 1) * BLOCK),
            false => Err(Error::new(&self.tenant.volume().name(), Fault::NoSpace)),
        }
    }

    /// Whether there is a zone that is free for a snapshot of this metadata, in the ring or for it.
    pub(crate) fn can_begin_anew(&self, meta: &Meta) -> bool {
        let mut log = self.log();
        let bytes = bytes_of(meta);
        log.fits_apart(bytes) || (log.grow(Urgency::Metadata).is_ok() && log.fits_apart(bytes)) || log.ring_size().0 > 2
    }

    /// Takes one more zone, where the metadata has outgrown those that there are; none that is kept back, or reserved for anybody.
    pub(crate) fn grow(&self) -> Result<()> {
        self.log().grow(Urgency::User)
    }

    /// Zones that it can give back when it is written anew, where its snapshot takes so many bytes.
    pub(crate) fn spare_zones(&self, bytes: u64) -> u64 {
        let (zones, zone) = self.log().ring_size();
        zones.saturating_sub((bytes.div_ceil(zone.max(1)) + 1).max(ZONES.into()))
    }

    /// Gives those back that are free. Returns how many.
    pub(crate) fn shrink(&self) -> Result<usize> {
        let mut log = self.log();
        let (_, zone) = log.ring_size();
        let least = self.needs().div_ceil(zone.max(1)) + 1;
        log.shrink(least as usize)
    }

    /// The next mount finds out by this whether power may have failed since.
    pub(crate) fn note_epoch(&self) -> Result<()> {
        self.log().set_engine(self.tenant.volume().power_epoch().to_vec())
    }

    /// What the label says of it.
    pub(crate) fn root(&self) -> Root {
        self.log().root().clone()
    }

    /// What it holds on the drive. Nobody writes to it meanwhile.
    pub(crate) fn look(&self) -> Result<Replay> {
        self.log().reread()
    }

    /// The zones of its ring.
    pub(crate) fn zones(&self) -> Vec<LogZone> {
        self.log().zones()
    }

    /// How many snapshots there were.
    pub(crate) fn generation(&self) -> u64 {
        self.log().snapshot()
    }
}

/// Bytes that a snapshot of just this metadata takes of the drive.
pub(crate) fn bytes_of(meta: &Meta) -> u64 {
    let mut buf = Vec::new();
    let mut bytes = 0;
    for record in meta.snapshot() {
        buf.clear();
        record.encode(&mut buf);
        bytes += buf.len() as u64;
    }
    // Frames have headers, and are not full: a record of 523 bytes leaves a tenth.
    (bytes + bytes / 8).next_multiple_of(BLOCK) + 3 * BLOCK
}

/// The records of a step.
pub(crate) fn step_of(records: &[Record]) -> Batch {
    let mut batch = Batch::default();
    batch.push(|to| records.iter().for_each(|record| record.encode(to)));
    batch
}

/// Cuts an item into records; what cannot be read is counted, and stepped over where its length is known.
pub(crate) fn records_of(mut item: &[u8], mut each: impl FnMut(Record)) -> usize {
    let mut bad = 0;
    while !item.is_empty() {
        match Record::decode(item) {
            Ok((record, n)) => {
                each(record);
                item = &item[n..];
            }
            Err(error) => {
                bad += 1;
                match error.skip().filter(|n| *n > 0 && *n <= item.len()) {
                    Some(n) => item = &item[n..],
                    None => break,
                }
            }
        }
    }
    bad
}
