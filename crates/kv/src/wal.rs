//! The write-ahead log: one endless log of bytes, in frames, in memory that outlives the process until it is written.
//!
//! A byte of the log has a *position*, which is never given twice. A writer writes a *section*, which begins with a whole record. Where a section ends with a
//! part of a record (the process died in the middle, or there was no space), the next one begins behind a gap in the positions. A reader drops the part there. The
//! numbers of changes tell whether more is missing than that. Sections are written in order, and go on in the zone of the last one.
//!
//! A zone is named in the metadata, durably, before a byte goes there. So a synced put is one write and one flush, and two more flushes each time the log
//! comes to a new zone.

use crate::manifest::WalFrame;
use crate::sync::{Mutex, lock};
use imbrex_device::{Cause, Error, Fault, Priority, Result, Tag, ZoneId};
use imbrex_zones::write::{
    ByteWriter, Framing, NewZone, PlaceRequest, Placed, Rank, Step, WriteGuard, Writer, WriterSpec, WriterStart,
    Writers,
};
use imbrex_zones::{OpenZone, Reservation, Tenant, Urgency, ZoneHeader, ZoneKeeper};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The log's number as a file, in frames and in memory.
pub(crate) const FILE: u64 = 1;
/// What the header of its zones says.
pub(crate) const KIND: u8 = 1;
/// And whose.
pub(crate) const NAME: &str = "wal";
const WAL: Tag = Tag::new(Cause::Wal);

/// Sentences about a zone of the log that is damaged at these bytes, or is gone.
pub(crate) fn damage(zone: u32, damaged: Option<Vec<u64>>) -> Vec<String> {
    let at = |at: u64| format!("zone {zone} of the write-ahead log is damaged at byte {at}");
    match damaged {
        None => vec![format!("zone {zone} of the write-ahead log is gone")],
        Some(damaged) => damaged.into_iter().map(at).collect(),
    }
}

/// Whoever keeps the names of the log's zones.
pub(crate) trait ZoneNames: Send + Sync {
    /// The log goes on in this zone from `position` on: durable when it returns.
    fn name_zone(&self, zone: ZoneId, life: u64, position: u64) -> Result<()>;
}

/// How the log is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    /// Bytes of a device write.
    pub segment_bytes: usize,
}

struct Shared {
    tenant: Tenant,
    options: WalOptions,
    names: Weak<dyn ZoneNames>,
    frames: Mutex<Frames>,
    /// The last section that was given a zone; its successor goes on there.
    last: Mutex<Option<Arc<Section>>>,
    /// What the opening found to be written again may use the reserve.
    recovering: AtomicBool,
    /// So may what is appended now.
    spare: AtomicBool,
}

/// Frames of the log that are on the drive, by the positions where they begin. Of frames in a zone that begin near one another only the first is here, so that
/// small ones take little memory; an opening may read so many bytes too much.
pub(crate) struct Frames {
    all: BTreeMap<u64, WalFrame>,
    /// Bytes.
    apart: u64,
}

impl Frames {
    /// None so far.
    pub fn new(options: WalOptions) -> Frames {
        Frames { all: BTreeMap::new(), apart: options.segment_bytes as u64 }
    }

    pub fn add(&mut self, position: u64, frame: WalFrame) {
        let near = |last: &WalFrame| {
            (last.zone, last.life) == (frame.zone, frame.life) && frame.at.wrapping_sub(last.at) < self.apart
        };
        if !self.all.last_key_value().is_some_and(|(_, last)| near(last)) {
            self.all.insert(position, frame);
        }
    }

    /// The last one that does not begin behind `position`. Those before it are forgotten.
    fn of(&mut self, position: u64) -> Option<WalFrame> {
        let (from, frame) = self.all.range(..=position).next_back().map(|(from, frame)| (*from, *frame))?;
        self.all = self.all.split_off(&from);
        Some(frame)
    }
}

/// A stretch of the log.
pub(crate) struct Section {
    me: Weak<Section>,
    shared: Arc<Shared>,
    bytes: ByteWriter,
    reserved: Mutex<Vec<Reservation>>,
    /// It has a zone, or had one.
    begun: AtomicBool,
    /// A zone, and its life, that was taken for the log and that no writer has so far: an attempt has failed. The metadata names it, or may do so later.
    taken: Mutex<Option<(ZoneId, u64)>>,
}

/// See the module.
pub(crate) struct Wal {
    shared: Arc<Shared>,
    writers: Arc<Writers<Section>>,
    /// The oldest first; the last takes appends.
    sections: Mutex<VecDeque<Arc<Section>>>,
}

/// Nobody has a zone of the log but its sections, which follow one another.
struct NoOther;

impl ZoneKeeper for NoOther {
    fn leave_one(&self) -> Result<bool> {
        Ok(false)
    }
}

impl Section {
    fn rank(start: u64) -> Rank {
        Rank { group: FILE, number: start }
    }

    fn new(shared: &Arc<Shared>, start: u64) -> Arc<Section> {
        let WalOptions { segment_bytes } = shared.options;
        let spec = WriterSpec {
            file: FILE,
            life: start,
            framing: Framing::Framed,
            segment_bytes,
            segments: 4,
            cause: Cause::Wal,
            ordered: true,
            rank: Some(Section::rank(start)),
            deferred: 0,
        };
        let bytes = ByteWriter::new(&shared.tenant, spec, WriterStart { logical: start, ..WriterStart::default() });
        let (shared, begun) = (shared.clone(), AtomicBool::new(false));
        let (reserved, taken) = (Mutex::default(), Mutex::default());
        Arc::new_cyclic(|me| Section { me: me.clone(), shared, bytes, reserved, begun, taken })
    }

    /// Bytes of a zone header.
    fn front(&self) -> u64 {
        u64::from(self.shared.tenant.volume().geometry().block.max(4096))
    }

    fn header(&self, zone: ZoneId, life: u64, logical: u64) -> ZoneHeader {
        ZoneHeader { kind: KIND, file: FILE, logical, name: NAME.into(), ..self.shared.tenant.header(zone, life) }
    }

    /// Room behind the section before, which is written and durable.
    fn behind_the_last(&self, need: u64) -> Option<OpenZone> {
        if self.begun.load(Ordering::Acquire) {
            return None;
        }
        let last = lock(&self.shared.last).take()?;
        let open = last.bytes.give_back().0?;
        if open.at + self.front() + need <= open.capacity {
            return Some(open);
        }
        self.shared.tenant.finish_unused(open.zone);
        None
    }

    fn next_zone(&self, logical: u64, need: u64) -> Result<NewZone> {
        let tenant = &self.shared.tenant;
        let behind = self.behind_the_last(need);
        self.begun.store(true, Ordering::Release);
        *lock(&self.shared.last) = self.me.upgrade();
        if let Some(open) = behind {
            return Ok(NewZone { zone: open.zone, at: open.at, header: self.header(open.zone, open.life, logical) });
        }
        let before = *lock(&self.taken);
        let (zone, life) = match before {
            Some(taken) => taken,
            None => (self.take()?, tenant.new_life()),
        };
        *lock(&self.taken) = Some((zone, life));
        let names = self.shared.names.upgrade().ok_or_else(|| self.error("the store was closed"))?;
        names.name_zone(zone, life, logical)?;
        Ok(NewZone { zone, at: 0, header: self.header(zone, life, logical) })
    }

    /// An empty zone for bytes that were acknowledged. Where its reservation is gone with a zone that died, it may be one of those that are kept free.
    fn take(&self) -> Result<ZoneId> {
        let tenant = &self.shared.tenant;
        let mut reserved = std::mem::take(&mut *lock(&self.reserved));
        let zone = match reserved.is_empty() {
            true => tenant.take(Urgency::Recovered),
            false => tenant.redeem(&mut reserved),
        };
        lock(&self.reserved).append(&mut reserved);
        zone
    }

    fn error(&self, what: &str) -> Error {
        Error::new(&self.shared.tenant.volume().name(), Fault::InvalidInput(what.into()))
    }
}

impl Writer for Section {
    fn bytes(&self) -> &ByteWriter {
        &self.bytes
    }

    fn reserve(&self, _: &PlaceRequest<'_>) -> Result<()> {
        if self.shared.recovering.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut reserved = lock(&self.reserved);
        if reserved.is_empty() {
            match self.shared.tenant.reserve(0) {
                Ok(zone) => reserved.push(zone),
                Err(_) if self.shared.spare.load(Ordering::Acquire) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn idle(&self) {
        lock(&self.reserved).clear();
    }

    fn write_front(&self, guard: &mut WriteGuard<'_>, priority: Priority) -> Result<u64> {
        loop {
            match guard.write(priority)? {
                Step::Nothing => return Ok(0),
                Step::Wrote(bytes) => return Ok(bytes),
                Step::Zone { logical, need } => {
                    guard.give(self.next_zone(logical, need)?, &NoOther)?;
                    *lock(&self.taken) = None;
                }
                Step::Resume { .. } => guard.resumed(),
                Step::Announce { size } => guard.announced(size),
                Step::Placed(Placed { logical, zone, life, at, .. }, _) => {
                    lock(&self.shared.frames).add(logical, WalFrame { zone: zone.0, life, at });
                }
            }
        }
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        // The last section keeps what keeps it.
        let _last = lock(&self.shared.last).take();
    }
}

impl Wal {
    /// A log that goes on at `start`, behind `frames`.
    pub fn new(
        tenant: &Tenant,
        options: WalOptions,
        names: Weak<dyn ZoneNames>,
        (start, frames): (u64, Frames),
    ) -> Wal {
        let shared = Arc::new(Shared {
            tenant: tenant.clone(),
            options,
            names,
            frames: Mutex::new(frames),
            last: Mutex::default(),
            recovering: AtomicBool::new(true),
            spare: AtomicBool::new(false),
        });
        let wal = Wal { shared, writers: Writers::new(tenant), sections: Mutex::default() };
        wal.begin_section(start);
        wal
    }

    /// What the opening had to write again is written.
    pub fn recovered(&self) {
        self.shared.recovering.store(false, Ordering::Release);
    }

    fn begin_section(&self, start: u64) -> Arc<Section> {
        let section = Section::new(&self.shared, start);
        self.writers.add(&section);
        let mut sections = lock(&self.sections);
        if let Some(last) = sections.back() {
            last.bytes.seal();
        }
        sections.push_back(section.clone());
        section
    }

    /// The section that takes appends; there always is one.
    fn current(&self) -> Arc<Section> {
        let last = lock(&self.sections).back().cloned();
        last.unwrap_or_else(|| self.begin_section(0))
    }

    /// A frame from which on an opening finds what stands at `position` and behind it, also if power fails with the next flush; the front never comes
    /// back before it. `None`: that of the front before.
    pub fn frame_of(&self, position: u64) -> Option<WalFrame> {
        lock(&self.shared.frames).of(position)
    }

    /// Where the next record will stand, at the least.
    pub fn end(&self) -> u64 {
        self.current().bytes.len()
    }

    /// Appends a record in memory, and returns its position. Waits for the drive where memory is short. One caller at a time. `spare`: the record makes room, so
    /// its zone may be one that is kept free.
    ///
    /// # Errors
    /// `NoSpace`, and those of what has to be written for it. Then nothing of the record counts.
    pub fn append(&self, spare: bool, parts: &[&[u8]]) -> Result<u64> {
        self.shared.spare.store(spare, Ordering::Release);
        let section = self.current();
        let at = section.bytes.len();
        for part in parts {
            if let Err(error) = self.writers.append(&section, part) {
                if section.bytes.len() > at {
                    // What follows must not be taken for the rest of this record.
                    self.begin_section(section.bytes.len() + 1);
                }
                return Err(error);
            }
        }
        Ok(at)
    }

    /// Writes what was appended. Not a flush.
    ///
    /// # Errors
    /// Those of the writes.
    pub fn write(&self) -> Result<()> {
        // The last one alone would not do: it may be empty, and then it waits for nobody.
        let sections: Vec<_> = lock(&self.sections).iter().cloned().collect();
        for section in sections {
            self.writers.drain(&section, Priority::High)?;
        }
        let mut sections = lock(&self.sections);
        while sections.len() > 1 && sections[0].bytes.is_durable() {
            sections.pop_front();
        }
        Ok(())
    }

    /// All that was appended is durable when it returns.
    ///
    /// # Errors
    /// Those of the writes and of the flush.
    pub fn sync(&self) -> Result<()> {
        self.write()?;
        self.shared.tenant.volume().sync(WAL)
    }
}
