//! The journal: the only copy of the metadata, as a framed stream of records (BlueFS §4, "Journaling").
//!
//! One frame a 4 KiB block, whole records in each, so that a bad sector costs the records in it and nothing else. The
//! tenant's root blob names the zones of the journal, in order, and its generation; a zone is in the root before a record
//! stands in it. A compaction writes a snapshot to new zones, makes it durable, moves the root, and only then gives up the
//! old zones: at every moment the root names a whole journal.

use crate::meta::Record;
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Priority, Result, Tag, Written, Zone, ZoneId};
use imbrex_zones::frame::{FRAME_HEADER, Frame, FrameId, ReadZone, Scan, scan, scan_payloads, scan_untold};
use imbrex_zones::{
    AppendStream, Framing, NewZone, OpenZone, Placed, Placer, StreamSpec, StreamStart, Tenant, Urgency, ZoneHeader,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The journal's number as a file.
pub const JOURNAL_FILE: u64 = 3;
/// Kind byte of the journal's zone headers.
pub const JOURNAL_KIND: u8 = 0xf0;
/// Bytes of a frame of the journal.
pub const JOURNAL_FRAME: u32 = 4096;
/// Payload bytes of a full frame.
pub const JOURNAL_PAYLOAD: usize = JOURNAL_FRAME as usize - imbrex_zones::frame::FRAME_HEADER;
/// Most zones that a journal can have: what fits into a root blob.
pub const MAX_ZONES: usize = 60;

const MAGIC: u32 = u32::from_le_bytes(*b"IMjr");
const VERSION: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawRoot {
    magic: U32,
    crc: U32,
    version: U16,
    count: U16,
    reserved: U32,
    generation: U64,
    power_epoch: [u8; 16],
}
const _: () = assert!(size_of::<RawRoot>() == 40);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawRootZone {
    zone: U32,
    reserved: U32,
    life: U64,
}
const _: () = assert!(size_of::<RawRoot>() + MAX_ZONES * size_of::<RawRootZone>() <= 1024);

/// What the root blob says: where the journal is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Root {
    /// Counts compactions.
    pub generation: u64,
    /// The drive's power epoch when the file system was last mounted: another one now means that power may have failed.
    pub power_epoch: [u8; 16],
    /// The journal's zones with their lives, in order.
    pub zones: Vec<(u32, u64)>,
}

impl Root {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawRoot {
            magic: MAGIC.into(),
            crc: 0.into(),
            version: VERSION.into(),
            count: (self.zones.len() as u16).into(),
            reserved: 0.into(),
            generation: self.generation.into(),
            power_epoch: self.power_epoch,
        };
        let mut zones = Vec::new();
        for &(zone, life) in &self.zones {
            let entry = RawRootZone { zone: zone.into(), reserved: 0.into(), life: life.into() };
            zones.extend_from_slice(entry.as_bytes());
        }
        raw.crc = crc32c::crc32c_append(crc32c::crc32c(raw.as_bytes()), &zones).into();
        [raw.as_bytes(), &zones].concat()
    }

    /// Reads one; the error is a phrase.
    pub fn decode(bytes: &[u8]) -> Result<Root, &'static str> {
        let (mut raw, rest) = RawRoot::read_from_prefix(bytes).map_err(|_| "it is too short")?;
        if raw.magic.get() != MAGIC {
            return Err("it does not begin as one");
        }
        if raw.version.get() != VERSION {
            return Err("another version of Imbrex wrote it");
        }
        let count = usize::from(raw.count.get());
        let zones =
            rest.get(..count * size_of::<RawRootZone>()).filter(|_| count <= MAX_ZONES).ok_or("it is cut off")?;
        let crc = raw.crc.get();
        raw.crc = 0.into();
        if crc32c::crc32c_append(crc32c::crc32c(raw.as_bytes()), zones) != crc {
            return Err("its checksum is wrong");
        }
        let mut list = Vec::with_capacity(count);
        for entry in zones.chunks_exact(size_of::<RawRootZone>()) {
            let entry = RawRootZone::read_from_bytes(entry).map_err(|_| "it is cut off")?;
            let zone = entry.zone.get();
            if list.iter().any(|(other, _)| *other == zone) {
                return Err("it names a zone twice");
            }
            list.push((zone, entry.life.get()));
        }
        Ok(Root { generation: raw.generation.get(), power_epoch: raw.power_epoch, zones: list })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The root blob and its only writer.
pub(crate) struct RootKeeper {
    tenant: Tenant,
    root: Mutex<Root>,
    /// Generations up to this one were used.
    used: u64,
    /// A change of the root failed half-way and could not be taken back: the next mount may find either.
    unsure: AtomicBool,
}

impl RootKeeper {
    /// `used`: the highest generation of which a dead process left bytes in memory. It may have died before the root named
    /// that journal: what the next mount writes must not be taken for the same.
    pub(crate) fn new(tenant: Tenant, root: Root, used: u64) -> Arc<Self> {
        Arc::new(RootKeeper { tenant, root: Mutex::new(root), used, unsure: AtomicBool::new(false) })
    }
    /// Whether the next mount may find another root than this one thinks: nothing may change any more.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::Acquire)
    }
    /// Writes `next` over `root`. Where that fails half-way, one copy of the label may name it: the old root is written again.
    fn set(&self, root: &mut Root, next: Root) -> Result<Root> {
        if let Err(error) = self.tenant.set_root(&next.encode()) {
            if let Err(again) = self.tenant.set_root(&root.encode()) {
                tracing::error!(%again, "the root of the file system cannot be written; nothing more is changed");
                self.unsure.store(true, Ordering::Release);
            }
            return Err(error);
        }
        Ok(std::mem::replace(root, next))
    }
    fn next_generation(&self) -> u64 {
        self.get().generation.max(self.used).saturating_add(1)
    }
    pub(crate) fn get(&self) -> Root {
        lock(&self.root).clone()
    }
    /// The journal of `generation` goes on in one more zone.
    fn add_zone(&self, generation: u64, zone: (u32, u64)) -> Result<()> {
        let mut root = lock(&self.root);
        let error = |what: &str| Error::invalid(&self.tenant.volume().name(), what);
        if root.generation != generation {
            return Err(error("the journal was compacted meanwhile"));
        }
        if root.zones.len() >= MAX_ZONES {
            return Err(Error::new(&self.tenant.volume().name(), Fault::NoSpace));
        }
        let mut next = root.clone();
        next.zones.push(zone);
        self.set(&mut root, next).map(drop)
    }
    /// Moves the root; returns what it was.
    fn replace(&self, next: Root) -> Result<Root> {
        self.set(&mut lock(&self.root), next)
    }
}

struct JournalPlacer {
    keeper: Arc<RootKeeper>,
    generation: u64,
    clock: crate::options::Clock,
    /// Zones of a journal that the root does not name yet; `None` once it does.
    staged: Mutex<Option<Vec<(u32, u64)>>>,
    /// Bytes that its frames take of the drive: what the next mount has to read.
    written: AtomicU64,
}

impl Placer for JournalPlacer {
    fn next_zone(&self, logical: u64, _: u64) -> Result<NewZone> {
        let tenant = &self.keeper.tenant;
        let zone = tenant.take(Urgency::Metadata)?;
        let life = tenant.new_life();
        let mut staged = lock(&self.staged);
        match &mut *staged {
            Some(zones) => zones.push((zone.0, life)),
            None => {
                if let Err(error) = self.keeper.add_zone(self.generation, (zone.0, life)) {
                    if !self.keeper.is_unsure() {
                        tenant.release(zone);
                    }
                    return Err(error);
                }
            }
        }
        let header = ZoneHeader {
            volume: tenant.volume().uuid(),
            owner: tenant.owner(),
            kind: JOURNAL_KIND,
            file: JOURNAL_FILE,
            life,
            logical,
            created: (self.clock)(),
            zone: zone.0,
            mount: tenant.volume().mount() as u32,
            name: format!("journal.{}", self.generation),
        };
        Ok(NewZone { zone, at: 0, header })
    }

    fn placed(&self, placed: &Placed, _: &[u8]) {
        let block = u64::from(self.keeper.tenant.volume().geometry().block);
        let bytes = (FRAME_HEADER as u64 + placed.len).next_multiple_of(block);
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The open journal.
pub(crate) struct Journal {
    stream: AppendStream,
    placer: Arc<JournalPlacer>,
    /// Bytes that it took of the drive when it was made, or resumed: what a mount had to read already.
    pub(crate) snapshot_bytes: u64,
}

impl Journal {
    fn start(
        keeper: &Arc<RootKeeper>,
        generation: u64,
        clock: &crate::options::Clock,
        start: StreamStart,
        staged: bool,
    ) -> Self {
        let tenant = &keeper.tenant;
        let capacity = tenant.volume().report_at_open().iter().map(|z| z.capacity).max().unwrap_or(0);
        let segment_bytes = (256u64 << 10).min(capacity / 8).max(16 << 10) as usize;
        let spec = StreamSpec {
            file: JOURNAL_FILE,
            life: generation,
            framing: Framing::Framed { max_frame: JOURNAL_FRAME },
            segment_bytes,
            segments: 4,
            cause: if staged { Cause::Checkpoint } else { Cause::Journal },
            ordered: true,
            deferred: 0,
            journal: true,
        };
        let placer = Arc::new(JournalPlacer {
            keeper: keeper.clone(),
            generation,
            clock: clock.clone(),
            staged: Mutex::new(staged.then(Vec::new)),
            written: AtomicU64::new(0),
        });
        let stream = AppendStream::new(tenant, spec, start, placer.clone());
        Journal { stream, placer, snapshot_bytes: 0 }
    }

    /// Goes on where a mount found the end.
    pub(crate) fn resume(keeper: &Arc<RootKeeper>, clock: &crate::options::Clock, end: &JournalEnd) -> Self {
        let start = StreamStart { logical: end.logical, zone: end.zone, sequence: end.sequence };
        let generation = keeper.get().generation;
        let journal = Self::start(keeper, generation, clock, start, false);
        journal.placer.written.store(end.read, Ordering::Relaxed);
        Journal { snapshot_bytes: end.read, ..journal }
    }

    /// Goes on where a mount found the end, or behind what a power loss tore there, with `records` that only a dead process's
    /// memory held or that the mount found; durable when it returns. For a drive without any zone for a new journal.
    pub(crate) fn go_on(
        keeper: &Arc<RootKeeper>,
        clock: &crate::options::Clock,
        end: &JournalEnd,
        records: &[Record],
    ) -> Result<Journal> {
        let end = JournalEnd { zone: end.zone.or(end.torn), ..end.clone() };
        let journal = Self::resume(keeper, clock, &end);
        let mut buf = Vec::new();
        for record in records {
            buf.clear();
            record.encode(&mut buf);
            journal.append(&buf)?;
        }
        journal.drain(Priority::Normal)?;
        let volume = keeper.tenant.volume();
        volume.sync(Tag::new(Cause::Journal))?;
        keeper.replace(Root { power_epoch: volume.power_epoch(), ..keeper.get() })?;
        Ok(journal)
    }

    /// Bytes that a journal of just these records takes of the drive, without the headers of its zones.
    pub(crate) fn bytes_of(records: impl Iterator<Item = Record>) -> u64 {
        let (mut frames, mut filled) = (0, JOURNAL_PAYLOAD);
        let mut buf = Vec::new();
        for record in records {
            buf.clear();
            record.encode(&mut buf);
            // Whole records in each frame.
            if filled + buf.len() > JOURNAL_PAYLOAD {
                (frames, filled) = (frames + 1, 0);
            }
            filled += buf.len();
        }
        frames * u64::from(JOURNAL_FRAME)
    }

    /// Writes `records` as a new journal, moves the root to it, and returns it with the zones of the old one, which nothing
    /// refers to any more.
    pub(crate) fn compact(
        keeper: &Arc<RootKeeper>,
        clock: &crate::options::Clock,
        records: impl Iterator<Item = Record>,
    ) -> Result<(Journal, Vec<(u32, u64)>)> {
        let generation = keeper.next_generation();
        let mut journal = Self::start(keeper, generation, clock, StreamStart::default(), true);
        let written = (|| {
            let mut buf = Vec::new();
            for record in records {
                buf.clear();
                record.encode(&mut buf);
                journal.stream.append_whole(&buf)?;
            }
            journal.drain(Priority::Normal)?;
            let volume = keeper.tenant.volume();
            volume.sync(Tag::new(Cause::Checkpoint))?;
            let zones = lock(&journal.placer.staged).clone().unwrap_or_default();
            if zones.len() > MAX_ZONES {
                return Err(Error::new(&volume.name(), Fault::NoSpace));
            }
            let power_epoch = volume.power_epoch();
            keeper.replace(Root { generation, power_epoch, zones })
        })();
        match written {
            Ok(old) => {
                *lock(&journal.placer.staged) = None;
                journal.stream.set_cause(Cause::Journal);
                journal.snapshot_bytes = journal.len();
                Ok((journal, old.zones))
            }
            Err(error) => {
                journal.stream.abandon();
                // If the root may name the new journal, its zones stay as they are until the next mount.
                let zones = lock(&journal.placer.staged).take().unwrap_or_default();
                if !keeper.is_unsure() {
                    zones.iter().for_each(|(zone, _)| keeper.tenant.release(ZoneId(*zone)));
                }
                Err(error)
            }
        }
    }

    /// Appends records so that they stand in one frame: all of them survive or none.
    pub(crate) fn append(&self, records: &[u8]) -> Result<()> {
        self.stream.append_whole(records).map(drop)
    }

    pub(crate) fn drain(&self, priority: Priority) -> Result<()> {
        self.stream.drain(priority)
    }

    /// Bytes that it takes of the drive. Every sync takes a block, however little it says.
    pub(crate) fn len(&self) -> u64 {
        self.placer.written.load(Ordering::Relaxed)
    }

    /// Ends it for good; its zones may be given up after this.
    pub(crate) fn abandon(&self) {
        self.stream.abandon();
    }
}

/// Where a journal ends on the drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalEnd {
    pub(crate) logical: u64,
    /// The zone that it can go on in.
    pub(crate) zone: Option<OpenZone>,
    /// The same where the last thing in the zone is torn.
    pub(crate) torn: Option<OpenZone>,
    pub(crate) sequence: u64,
    /// Bytes of the frames before it.
    pub(crate) read: u64,
}

/// What a journal on the drive holds.
#[derive(Debug, Default)]
pub(crate) struct JournalContents {
    /// Payloads of its frames, in order.
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) end: JournalEnd,
    /// Sentences about places that could not be read or are torn.
    pub(crate) damage: Vec<String>,
    /// Whether only the very end is torn, as a power loss leaves it.
    pub(crate) torn_tail_only: bool,
    /// How many frames stand before the first that is missing.
    pub(crate) whole: usize,
}

/// Reads, once more where that failed: what a mount takes for unreadable it cuts off for good.
pub(crate) fn read_twice(volume: &imbrex_zones::Volume, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
    volume.read(buf, at, tag).or_else(|_| volume.read(buf, at, tag))
}

/// How far frames are looked for behind the last one, in bytes, in a zone of which the drive does not tell how far it is
/// written: further than any frame is long.
const UNTOLD_REACH: u64 = 4 << 20;

/// Finds the frames of a zone between `from` and `to`, whether the drive tells how far it is written or not.
pub(crate) fn scan_written(
    zone: &Zone,
    read: &mut ReadZone<'_>,
    id: FrameId,
    from: u64,
    to: u64,
    block: u32,
) -> Result<Scan> {
    match zone.written() {
        Written::Untold => scan_untold(read, id, from, to, block, UNTOLD_REACH),
        _ => scan(read, id, from, to, block),
    }
}

/// Reads the journal that `root` names.
pub(crate) fn read_journal(tenant: &Tenant, root: &Root, report: &[Zone], tag: Tag) -> Result<JournalContents> {
    let volume = tenant.volume();
    let geometry = volume.geometry();
    let front = u64::from(geometry.block.max(4096));
    let mut out = JournalContents { torn_tail_only: true, ..Default::default() };
    let mut broken = false;
    for (i, &(zone, life)) in root.zones.iter().enumerate() {
        let Some(state) = report.get(zone as usize) else {
            return Err(Error::corrupt(&volume.name(), "the root, which names a zone that does not exist,"));
        };
        let last = i + 1 == root.zones.len();
        let to = match state.written() {
            Written::To(to) => to,
            // The drive does not say how far a read-only zone is written; its frames do.
            Written::Untold => state.capacity,
            Written::Gone => {
                out.damage.push(format!("zone {zone} of the journal is {}", state.state.name()));
                out.torn_tail_only = false;
                continue;
            }
        };
        if to <= front {
            // A compaction is durable before the root names it: where the journal begins there are records. Only one that never
            // was compacted begins with a zone that is named first.
            if i == 0 && root.generation > 0 {
                out.damage.push(format!("zone {zone}, where the journal begins, is empty"));
                out.torn_tail_only = false;
            }
            // Named by the root, and died or lost power before anything was written: had there been records in it that
            // count, those in the next zone would not go on where the last zone ended.
            continue;
        }
        let start = geometry.start(ZoneId(zone));
        let mut read = |at: u64, buf: &mut [u8]| read_twice(volume, buf, start + at, tag);
        let id = FrameId { file: JOURNAL_FILE, life };
        let reach = (state.written() == Written::Untold).then_some(UNTOLD_REACH);
        let mut payloads = Vec::new();
        let mut each = |_: &Frame, payload: &[u8]| payloads.push(payload.to_vec());
        let found = scan_payloads(&mut read, id, (front, to), geometry.block, reach, &mut each)?;
        let mut at = front;
        for (frame, payload) in found.frames.iter().zip(payloads) {
            out.end.read += frame.footprint(geometry.block);
            at = frame.at + frame.footprint(geometry.block);
            // A write of several frames that failed half-way: those that the drive took stand there once more, in the next attempt.
            if frame.sequence < out.end.sequence && frame.end() <= out.end.logical {
                continue;
            }
            if frame.logical != out.end.logical {
                out.damage.push(format!(
                    "the journal misses {} bytes before offset {} of zone {zone}",
                    frame.logical.abs_diff(out.end.logical),
                    frame.at
                ));
                out.torn_tail_only = false;
                broken = true;
            }
            if !broken {
                out.whole += 1;
            }
            out.frames.push(payload);
            out.end.logical = frame.end();
            out.end.sequence = frame.sequence + 1;
        }
        if let Some(place) = found.unreadable.first() {
            out.damage.push(format!("the journal cannot be read at offset {place} of zone {zone}"));
            out.torn_tail_only = false;
        } else if at < to && state.wp.is_some() {
            out.damage.push(format!("the journal is torn at offset {at} of zone {zone}"));
            // Power loss cuts a zone at a block boundary: of a frame that it tore, the beginning is there and the end is not.
            // Anything else below the write pointer was whole once.
            let mut block = AlignedBuf::zeroed(geometry.block as usize);
            let torn = read(at, &mut block).is_ok()
                && Frame::decode(&block, id, at).is_some_and(|frame| frame.footprint(geometry.block) > to - at);
            out.torn_tail_only &= last && torn;
        }
        let room = state.state.writable() && to < state.capacity;
        out.end.torn = room.then_some(OpenZone { zone: ZoneId(zone), life, at: to, capacity: state.capacity });
        out.end.zone = out.end.torn.filter(|_| at == to);
    }
    Ok(out)
}

/// Cuts records into runs, each of which fits into a frame.
pub(crate) fn frames_of(records: &[Record]) -> Vec<&[Record]> {
    let (mut frames, mut from, mut filled) = (Vec::new(), 0, 0);
    let mut buf = Vec::new();
    for (i, record) in records.iter().enumerate() {
        buf.clear();
        record.encode(&mut buf);
        if filled + buf.len() > JOURNAL_PAYLOAD {
            frames.push(&records[from..i]);
            (from, filled) = (i, 0);
        }
        filled += buf.len();
    }
    frames.push(&records[from..]);
    frames
}

/// Cuts the payload of a frame into records; what cannot be read is counted, and stepped over where its length is known.
pub(crate) fn records_of(mut payload: &[u8], mut each: impl FnMut(Record)) -> usize {
    let mut bad = 0;
    // A zero length is the padding behind the last record of a frame.
    while payload.len() >= 2 && payload[..2] != [0, 0] {
        match Record::decode(payload) {
            Ok((record, n)) => {
                each(record);
                payload = &payload[n..];
            }
            Err(error) => {
                bad += 1;
                match error.skip().filter(|n| *n > 0 && *n <= payload.len()) {
                    Some(n) => payload = &payload[n..],
                    None => break,
                }
            }
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_round_trips_and_every_flipped_bit_is_noticed() {
        let root = Root { generation: 7, power_epoch: [9; 16], zones: vec![(5, 55), (6, 66)] };
        let bytes = root.encode();
        assert_eq!(Root::decode(&bytes), Ok(root));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Root::decode(&bad).is_err(), "bit {bit}");
        }
        let most = Root { zones: (0..MAX_ZONES as u32).map(|zone| (zone, 2)).collect(), ..Root::default() };
        assert!(most.encode().len() <= 1024);
        assert_eq!(Root::decode(&most.encode()), Ok(most));
        for cut in 0..bytes.len() {
            assert!(Root::decode(&bytes[..cut]).is_err());
        }
        // With a right checksum, whatever wrote it: the zone would be given back twice one day.
        let twice = Root { zones: vec![(5, 55), (6, 66), (5, 56)], ..Root::default() };
        assert_eq!(Root::decode(&twice.encode()), Err("it names a zone twice"));
    }
}
