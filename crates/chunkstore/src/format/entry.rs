//! What stands in the payloads of metadata: entries of the journal, and the pieces of a checkpoint (SMRSTORE §5.6).
//!
//! The journal tells of chunks that were created, sealed and deleted, of zones that were taken and closed, of what the cleaner
//! moved, of names, and now and then of where records stand that have become durable; not of each append, which the zones tell themselves. A checkpoint is a list of zones and a list of chunks with
//! all their index groups. Decoders check every length before they use it and never panic.

pub mod names;
pub mod notes;

use crate::format::id::{ChunkId, StreamType};
use crate::format::{BLOCK, ZoneUse};
use names::NameEntry;
use notes::Mark;
use std::sync::Arc;

/// Record index: where one record of a chunk stands. It begins in the chunk where the one before it ends (SMRSTORE §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RecordIndex {
    /// Offset in the chunk where its data ends, in bytes.
    pub end: u32,
    /// Block of the zone where it begins; [`LOST`]: nowhere.
    pub at: u32,
}

/// [`RecordIndex::at`] of bytes that are known to be lost.
pub const LOST: u32 = u32::MAX;

/// Index group: what stands of one chunk in one zone, as it stands in checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// The zone.
    pub zone: u32,
    /// Offset in the chunk of its first byte.
    pub start: u32,
    /// Its records, in order, at least one.
    pub records: Vec<RecordIndex>,
}

impl GroupEntry {
    /// Each record with the offset where its data begins.
    pub fn spans(&self) -> impl Iterator<Item = (u32, RecordIndex)> + '_ {
        let starts = std::iter::once(self.start).chain(self.records.iter().map(|r| r.end));
        starts.zip(self.records.iter().copied())
    }
}

/// What is known of a chunk's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChunkEnd {
    /// Where its bytes end.
    #[default]
    Known = 0,
    /// Bytes behind it may have been acknowledged that stood where nothing could be read when the store was opened. Those places are read again
    /// each time.
    Unread = 1,
    /// The same, and there is nothing left to be read.
    Lost = 2,
}

/// A chunk, as it stands in checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Its id.
    pub id: ChunkId,
    /// Number that no other chunk of this id has.
    pub serial: u64,
    /// Bytes.
    pub len: u32,
    /// Kind of stream.
    pub stream: StreamType,
    /// Whether it takes no more appends.
    pub sealed: bool,
    /// What is known of its end.
    pub end: ChunkEnd,
    /// Ascending by offset, without gaps.
    pub groups: Vec<GroupEntry>,
}

/// State of a datazone (SMRSTORE, Fig. 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneState {
    /// Reset, or to be reset before use; not the store's to look at.
    Free = 0,
    /// Taken, and in the pool: no chunk has anything there.
    Opened = 1,
    /// Chunks are written to it.
    Activated = 2,
    /// Full or given up: not written before it is reset.
    Closed = 3,
    /// Closed, and nothing in it is of use any more.
    Garbage = 4,
}

impl ZoneState {
    /// Every state.
    pub const ALL: [ZoneState; 5] =
        [ZoneState::Free, ZoneState::Opened, ZoneState::Activated, ZoneState::Closed, ZoneState::Garbage];

    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            ZoneState::Free => "free",
            ZoneState::Opened => "opened",
            ZoneState::Activated => "activated",
            ZoneState::Closed => "closed",
            ZoneState::Garbage => "garbage",
        }
    }
}

/// A datazone, as it stands in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneEntry {
    /// Which.
    pub zone: u32,
    /// Where its records end that the checkpoint knows of, in blocks.
    pub tail: u32,
    /// Its life.
    pub life: u64,
    /// Its state.
    pub state: ZoneState,
    /// What it is for.
    pub usage: ZoneUse,
    /// From this block on some of it could not be read, and whose it was is not known; 0: all is known.
    pub unread: u32,
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A chunk is there.
    Create {
        /// Its id.
        id: ChunkId,
        /// Its serial number.
        serial: u64,
        /// Its kind of stream.
        stream: StreamType,
    },
    /// A chunk takes no more appends.
    Seal {
        /// Its id.
        id: ChunkId,
        /// Its serial number.
        serial: u64,
        /// Its length in bytes.
        len: u32,
    },
    /// A chunk is gone.
    Delete {
        /// Its id.
        id: ChunkId,
        /// Its serial number.
        serial: u64,
    },
    /// A zone begins a new life: whatever stood in it before was of no more use.
    ZoneTaken {
        /// Which.
        zone: u32,
        /// The new life.
        life: u64,
        /// What it is for.
        usage: ZoneUse,
    },
    /// A zone is written no more.
    ZoneClosed {
        /// Which.
        zone: u32,
        /// Its life.
        life: u64,
        /// Where its records end, in blocks.
        tail: u32,
    },
    /// The first records of a chunk's group in one zone stand in another one now, durably.
    Moved {
        /// The chunk's id.
        id: ChunkId,
        /// Its serial number.
        serial: u64,
        /// The zone that they stood in.
        from: u32,
        /// Where they stand now.
        to: GroupEntry,
    },
    /// These records of a chunk are durable and stand here; those before them are known.
    Told {
        /// The chunk's id.
        id: ChunkId,
        /// Its serial number.
        serial: u64,
        /// Its records in one zone.
        group: GroupEntry,
    },
    /// Of the records of a zone up to here the journal has told all that are of use.
    ZoneTold {
        /// Which.
        zone: u32,
        /// Its life.
        life: u64,
        /// Up to which block.
        tail: u32,
    },
    /// A name stands for these chunks; it stood for no others from here on, and they have no other name.
    Named(NameEntry),
    /// A naming ends.
    Unnamed {
        /// The name.
        name: Arc<str>,
        /// The naming's number.
        number: u64,
    },
    /// Some of a record could not be read when it was moved, and is lost. Before the entry that tells of the move.
    Lost(Mark),
}

/// Bytes of an entry's header.
const ENTRY: usize = 8;
const ZONE_ENTRY: usize = 24;
const CHUNK_ENTRY: usize = 48;
const GROUP_ENTRY: usize = 12;
const RECORD: usize = 8;

/// Reads fixed-width numbers from the front; every method says `None` where there is too little.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }
    fn half(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn id(&mut self) -> Option<ChunkId> {
        self.array().map(ChunkId)
    }
    /// `count` records, which must be there and ascend from `start`.
    fn records(&mut self, start: u32, count: u32) -> Option<Vec<RecordIndex>> {
        let bytes = self.take((count as usize).checked_mul(RECORD)?)?;
        let mut before = start;
        let mut records = Vec::with_capacity(count as usize);
        for pair in bytes.chunks_exact(RECORD) {
            let mut pair = Input(pair);
            let record = RecordIndex { end: pair.word()?, at: pair.word()? };
            if record.end <= before {
                return None;
            }
            before = record.end;
            records.push(record);
        }
        (!records.is_empty()).then_some(records)
    }
}

fn put_records(out: &mut Vec<u8>, records: &[RecordIndex]) {
    for record in records {
        out.extend_from_slice(&record.end.to_le_bytes());
        out.extend_from_slice(&record.at.to_le_bytes());
    }
}

impl Entry {
    /// Appends it to a journal record's payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let from = out.len();
        let (kind, detail) = match self {
            Entry::Create { stream, .. } => (1, stream.number()),
            Entry::Seal { .. } => (2, 0),
            Entry::Delete { .. } => (3, 0),
            Entry::ZoneTaken { usage, .. } => (4, usage.kind()),
            Entry::ZoneClosed { .. } => (5, 0),
            Entry::Moved { .. } => (6, 0),
            Entry::Told { .. } => (7, 0),
            Entry::ZoneTold { .. } => (8, 0),
            Entry::Named(_) => (9, 0),
            Entry::Unnamed { .. } => (10, 0),
            Entry::Lost(_) => (11, 0),
        };
        out.extend_from_slice(&[kind, detail, 0, 0, 0, 0, 0, 0]);
        match self {
            Entry::Create { id, serial, .. } | Entry::Delete { id, serial } => {
                out.extend_from_slice(&serial.to_le_bytes());
                out.extend_from_slice(&id.0);
            }
            Entry::Seal { id, serial, len } => {
                out.extend_from_slice(&serial.to_le_bytes());
                out.extend_from_slice(&id.0);
                out.extend_from_slice(&u64::from(*len).to_le_bytes());
            }
            Entry::ZoneTaken { zone, life, .. } => {
                out.extend_from_slice(&life.to_le_bytes());
                out.extend_from_slice(&u64::from(*zone).to_le_bytes());
            }
            Entry::ZoneClosed { zone, life, tail } | Entry::ZoneTold { zone, life, tail } => {
                out.extend_from_slice(&life.to_le_bytes());
                out.extend_from_slice(&zone.to_le_bytes());
                out.extend_from_slice(&tail.to_le_bytes());
            }
            Entry::Moved { id, serial, from, to } => {
                out.extend_from_slice(&serial.to_le_bytes());
                out.extend_from_slice(&id.0);
                for word in [*from, to.zone, to.start, to.records.len() as u32] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                put_records(out, &to.records);
            }
            Entry::Told { id, serial, group } => {
                out.extend_from_slice(&serial.to_le_bytes());
                out.extend_from_slice(&id.0);
                for word in [group.zone, group.start, group.records.len() as u32, 0] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                put_records(out, &group.records);
            }
            Entry::Named(entry) => entry.encode(out),
            Entry::Unnamed { name, number } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&(name.len() as u64).to_le_bytes());
                names::put_text(out, name);
            }
            Entry::Lost(mark) => mark.encode(out),
        }
        let len = (out.len() - from) as u32;
        out[from + 4..from + ENTRY].copy_from_slice(&len.to_le_bytes());
    }

    /// From a record of the journal; `None` where any of it makes no sense.
    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let mut head = Input(bytes);
        let [kind, detail, zeros @ ..]: [u8; 4] = head.array()?;
        let len = head.word()? as usize;
        let mut body = Input(bytes.get(ENTRY..).filter(|_| len == bytes.len())?);
        let entry = match kind {
            1 => {
                let (serial, id) = (body.long()?, body.id()?);
                Entry::Create { id, serial, stream: StreamType::new(detail)? }
            }
            2 => {
                let (serial, id) = (body.long()?, body.id()?);
                Entry::Seal { id, serial, len: u32::try_from(body.long()?).ok()? }
            }
            3 => {
                let (serial, id) = (body.long()?, body.id()?);
                Entry::Delete { id, serial }
            }
            4 => {
                let (life, zone) = (body.long()?, u32::try_from(body.long()?).ok()?);
                Entry::ZoneTaken { zone, life, usage: ZoneUse::of_kind(detail)? }
            }
            5 => Entry::ZoneClosed { life: body.long()?, zone: body.word()?, tail: body.word()? },
            6 => {
                let (serial, id) = (body.long()?, body.id()?);
                let (from, zone, start, count) = (body.word()?, body.word()?, body.word()?, body.word()?);
                Entry::Moved { id, serial, from, to: GroupEntry { zone, start, records: body.records(start, count)? } }
            }
            7 => {
                let (serial, id) = (body.long()?, body.id()?);
                let (zone, start, count, zero) = (body.word()?, body.word()?, body.word()?, body.word()?);
                (zero == 0).then_some(())?;
                Entry::Told { id, serial, group: GroupEntry { zone, start, records: body.records(start, count)? } }
            }
            8 => Entry::ZoneTold { life: body.long()?, zone: body.word()?, tail: body.word()? },
            9 => Entry::Named(NameEntry::decode(&mut body)?),
            10 => {
                let (number, len) = (body.long()?, u16::try_from(body.long()?).ok()?);
                Entry::Unnamed { name: body.name(len)?, number }
            }
            11 => Entry::Lost(Mark::decode(&mut body).filter(|mark| mark.lost)?),
            _ => return None,
        };
        (body.0.is_empty() && zeros == [0; 2]).then_some(entry)
    }
}

/// A piece of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Datazones that are not free.
    Zones(Vec<ZoneEntry>),
    /// Chunks.
    Chunks(Vec<ChunkEntry>),
    /// How far the scrub is.
    Scrub(notes::ScrubEntry),
    /// The user's own kinds of streams.
    Streams(Vec<notes::StreamEntry>),
    /// Names.
    Names(Vec<NameEntry>),
}

/// Gathers the payload of a part, so that nobody has to hold all of it twice.
#[derive(Default)]
pub struct PartWriter {
    bytes: Vec<u8>,
    count: u32,
}

impl PartWriter {
    fn begin(&mut self, kind: u32) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&kind.to_le_bytes());
            self.bytes.extend_from_slice(&[0; 4]);
        }
        self.count += 1;
    }

    /// Adds a zone; a part holds zones, chunks or names.
    pub fn zone(&mut self, entry: &ZoneEntry) {
        self.begin(1);
        self.bytes.extend_from_slice(&entry.zone.to_le_bytes());
        self.bytes.extend_from_slice(&entry.tail.to_le_bytes());
        self.bytes.extend_from_slice(&entry.life.to_le_bytes());
        self.bytes.extend_from_slice(&[entry.state as u8, entry.usage.kind(), 0, 0]);
        self.bytes.extend_from_slice(&entry.unread.to_le_bytes());
    }

    /// Adds a chunk, group by group: its fields, how many groups there are, and each one's zone, start and records.
    pub fn chunk<'a>(
        &mut self,
        (id, serial, len, stream, sealed, end): (ChunkId, u64, u32, StreamType, bool, ChunkEnd),
        groups: impl ExactSizeIterator<Item = (u32, u32, &'a [RecordIndex])>,
    ) {
        self.begin(2);
        self.bytes.extend_from_slice(&id.0);
        self.bytes.extend_from_slice(&serial.to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(&(groups.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&[stream.number(), u8::from(sealed), end as u8, 0, 0, 0, 0, 0]);
        for (zone, start, records) in groups {
            for word in [zone, start, records.len() as u32] {
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
            put_records(&mut self.bytes, records);
        }
    }

    /// Adds a name.
    pub fn name(&mut self, entry: &NameEntry) {
        self.begin(5);
        entry.encode(&mut self.bytes);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The payload; the writer is empty again.
    pub fn finish(&mut self) -> Vec<u8> {
        if let Some(count) = self.bytes.get_mut(4..8) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
        self.count = 0;
        std::mem::take(&mut self.bytes)
    }
}

impl Part {
    /// The same, but `None` for zones, chunks and names, too, of which there may be many.
    pub(crate) fn decode_notes(payload: &[u8]) -> Option<Part> {
        let is_note = matches!(payload.first(), Some(3 | 4));
        is_note.then(|| Part::decode(payload)).flatten()
    }

    /// Whether it is one of names.
    pub(crate) fn has_names(payload: &[u8]) -> bool {
        payload.first() == Some(&5)
    }

    /// The names of a part; `None`: it is not one of names, or makes no sense.
    pub(crate) fn decode_names(payload: &[u8]) -> Option<Vec<NameEntry>> {
        match Part::has_names(payload).then(|| Part::decode(payload))? {
            Some(Part::Names(names)) => Some(names),
            _ => None,
        }
    }

    /// From a payload; `None` where any of it makes no sense.
    pub fn decode(payload: &[u8]) -> Option<Part> {
        let mut input = Input(payload);
        let (kind, count) = (input.word()?, input.word()? as usize);
        let part = match kind {
            1 => {
                let count = (count <= input.0.len() / ZONE_ENTRY).then_some(count)?;
                Part::Zones((0..count).map(|_| zone(&mut input)).collect::<Option<_>>()?)
            }
            2 => {
                let count = (count <= input.0.len() / CHUNK_ENTRY).then_some(count)?;
                Part::Chunks((0..count).map(|_| chunk(&mut input)).collect::<Option<_>>()?)
            }
            3 => Part::Scrub(notes::ScrubEntry::decode(&mut input, count)?),
            4 => Part::Streams(notes::StreamEntry::decode_all(&mut input, count)?),
            5 => Part::Names(NameEntry::decode_all(&mut input, count)?),
            _ => return None,
        };
        input.0.is_empty().then_some(part)
    }
}

fn zone(input: &mut Input) -> Option<ZoneEntry> {
    let (zone, tail, life) = (input.word()?, input.word()?, input.long()?);
    let ([state, kind, zeros @ ..], unread): ([u8; 4], u32) = (input.array()?, input.word()?);
    let state = ZoneState::ALL.into_iter().find(|s| *s as u8 == state)?;
    // A zone has no more blocks than its bytes can be counted.
    (zeros == [0; 2] && u64::from(tail.max(unread)) * BLOCK as u64 <= 1 << 43).then_some(())?;
    Some(ZoneEntry { zone, tail, life, state, usage: ZoneUse::of_kind(kind)?, unread })
}

fn chunk(input: &mut Input) -> Option<ChunkEntry> {
    let (id, serial, len, count) = (input.id()?, input.long()?, input.word()?, input.word()? as usize);
    let (stream, [sealed, known]) = (StreamType::new(input.byte()?)?, input.array()?);
    let zero = (input.byte()?, input.word()?);
    if sealed > 1 || zero != (0, 0) || count > input.0.len() / GROUP_ENTRY {
        return None;
    }
    let known = [ChunkEnd::Known, ChunkEnd::Unread, ChunkEnd::Lost].into_iter().find(|end| *end as u8 == known)?;
    let mut groups = Vec::with_capacity(count);
    let mut end = 0;
    for _ in 0..count {
        let (zone, start, count) = (input.word()?, input.word()?, input.word()?);
        let group = GroupEntry { zone, start, records: input.records(start, count)? };
        if start != end {
            return None;
        }
        end = group.records.last()?.end;
        groups.push(group);
    }
    (end == len).then_some(ChunkEntry { id, serial, len, stream, sealed: sealed == 1, end: known, groups })
}

#[cfg(test)]
mod tests;
