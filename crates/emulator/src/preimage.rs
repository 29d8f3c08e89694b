//! Unflushed writes to conventional zones: what stood there before each of them, oldest first, so that a power loss can
//! keep, lose or tear every one for itself. In an image the bytes stand in a ring inside the mapping (`FORMAT.md`), in
//! memory on the heap; both are bounded by the same arithmetic and destage the oldest write when they are full.
//!
//! Invariants: positions only grow; a record lies in one lap of the ring; its bytes are complete before the head passes
//! it. The data of write *i* to a block is the pre-image of the next record on that block, or what stands there now.

use crate::config::Config;
use crate::state::{PAGE, State};
use std::collections::VecDeque;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes of pre-images in all; conventional zones are for small things.
const MOST: u64 = 16 << 20;
const UNIT: u64 = 64;
const MAGIC: [u8; 4] = *b"IXPI";
const VERSION: u16 = 1;
const KIND_RECORD: u16 = 1;
/// Fills the rest of a lap.
const KIND_SKIP: u16 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u16,
    kind: u16,
    /// Of header (with this field 0) and bytes.
    crc: u32,
    /// Bytes that follow the header.
    len: u32,
    /// Byte address on the drive.
    at: u64,
    /// Where in the ring the record believes to be.
    position: u64,
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<Header>() as u64 == UNIT);

/// Bytes of the ring for a drive; at least two of the largest commands fit.
pub(crate) fn ring_len(config: &Config) -> usize {
    let least = 2 * (u64::from(config.max_io) + UNIT);
    let len = config.cache_bytes.clamp(least, MOST.max(least));
    len.next_multiple_of(PAGE as u64) as usize
}

fn record_bytes(len: usize) -> u64 {
    UNIT + (len as u64).next_multiple_of(UNIT)
}

fn encode(kind: u16, at: u64, position: u64, bytes: &[u8]) -> Header {
    let len = bytes.len() as u32;
    let mut header = Header { magic: MAGIC, version: VERSION, kind, crc: 0, len, at, position, reserved: [0; 4] };
    header.crc = crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), bytes);
    header
}

/// A record as it stands in a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRecord {
    /// Byte address on the drive.
    pub at: u64,
    /// Where in the ring's bytes the pre-image stands.
    pub bytes: std::ops::Range<usize>,
    position: u64,
}

/// Decodes the records between two positions of a ring. Never panics and allocates nothing by an unchecked length; the
/// error says what is damaged.
pub fn decode_ring(ring: &[u8], tail: u64, head: u64) -> Result<Vec<RingRecord>, String> {
    let lap = ring.len() as u64;
    if lap == 0 || !lap.is_multiple_of(UNIT) || tail > head || head - tail > lap || !tail.is_multiple_of(UNIT) {
        return Err(format!("the range {tail}..{head} of the pre-images"));
    }
    let mut records = Vec::new();
    let mut position = tail;
    while position < head {
        let damaged = || format!("the pre-image at ring position {position}");
        let from = (position % lap) as usize;
        let header = ring.get(from..from + UNIT as usize).ok_or_else(damaged)?;
        let header = Header::read_from_bytes(header).map_err(|_| damaged())?;
        if header.magic != MAGIC || header.version != VERSION || header.position != position {
            return Err(damaged());
        }
        let body = from + UNIT as usize;
        let bytes = ring.get(body..body.saturating_add(header.len as usize)).ok_or_else(damaged)?;
        if header.crc != encode(header.kind, header.at, position, bytes).crc {
            return Err(damaged());
        }
        match header.kind {
            KIND_SKIP => position = (position / lap + 1) * lap,
            KIND_RECORD => {
                records.push(RingRecord { at: header.at, bytes: body..body + bytes.len(), position });
                position += record_bytes(bytes.len());
            }
            _ => return Err(damaged()),
        }
    }
    if position == head { Ok(records) } else { Err(format!("the end {head} of the pre-images")) }
}

#[derive(Clone)]
struct Record {
    at: u64,
    len: usize,
    position: u64,
    /// `None`: in the ring.
    bytes: Option<Arc<[u8]>>,
}

/// The log of unflushed conventional writes.
pub(crate) struct PreImages {
    records: VecDeque<Record>,
    /// Whether the bytes stand in the state's ring.
    mapped: bool,
    lap: u64,
    head: u64,
    tail: u64,
}

impl PreImages {
    /// An empty log on the heap.
    pub(crate) fn in_memory(state: &State) -> PreImages {
        PreImages { records: VecDeque::new(), mapped: false, lap: state.layout.ring_len as u64, head: 0, tail: 0 }
    }

    /// The log that stands in an image's ring.
    pub(crate) fn in_ring(state: &State) -> Result<PreImages, String> {
        let mut ring = vec![0; state.layout.ring_len];
        state.region.copy_out(state.layout.ring, &mut ring);
        let (tail, head) = (state.ring_tail(), state.ring_head());
        let records = decode_ring(&ring, tail, head)?
            .into_iter()
            .map(|r| Record { at: r.at, len: r.bytes.len(), position: r.position, bytes: None })
            .collect();
        Ok(PreImages { records, mapped: true, lap: ring.len() as u64, head, tail })
    }

    /// A copy on the heap.
    pub(crate) fn copy(&self, state: &State) -> PreImages {
        let records = (0..self.records.len())
            .map(|i| Record { bytes: Some(self.shared(state, i)), ..self.records[i].clone() })
            .collect();
        PreImages { records, mapped: false, ..*self }
    }

    /// Number of writes at risk.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Address and length of the `i`th write, oldest first.
    pub(crate) fn range(&self, i: usize) -> (u64, usize) {
        (self.records[i].at, self.records[i].len)
    }

    fn shared(&self, state: &State, i: usize) -> Arc<[u8]> {
        let record = &self.records[i];
        match &record.bytes {
            Some(bytes) => bytes.clone(),
            None => {
                let mut bytes = vec![0; record.len];
                let from = (record.position % self.lap + UNIT) as usize;
                state.region.copy_out(state.layout.ring + from, &mut bytes);
                bytes.into()
            }
        }
    }

    /// What stood there before the `i`th write.
    pub(crate) fn before(&self, state: &State, i: usize) -> Arc<[u8]> {
        self.shared(state, i)
    }

    /// Records that `before` is about to be overwritten at `at`. The oldest writes are destaged until it fits.
    pub(crate) fn push(&mut self, state: &State, at: u64, before: &[u8]) {
        let size = record_bytes(before.len());
        assert!(size <= self.lap, "a command longer than the pre-images' ring");
        let room = self.lap - self.head % self.lap;
        if room < size {
            let next_lap = self.head + room;
            self.make_room(state, next_lap);
            if self.mapped {
                self.write(state, self.head, &encode(KIND_SKIP, 0, self.head, &[]), &[]);
            }
            self.set_head(state, next_lap);
        }
        let position = self.head;
        self.make_room(state, position + size);
        if self.mapped {
            self.write(state, position, &encode(KIND_RECORD, at, position, before), before);
        }
        self.set_head(state, position + size);
        let bytes = (!self.mapped).then(|| before.into());
        self.records.push_back(Record { at, len: before.len(), position, bytes });
    }

    /// Destages the oldest writes until the ring may reach up to `end`.
    fn make_room(&mut self, state: &State, end: u64) {
        while end - self.tail > self.lap {
            self.records.pop_front();
            self.set_tail(state, self.records.front().map_or(self.head, |oldest| oldest.position));
        }
    }

    /// Takes the newest record back: its write did not happen.
    pub(crate) fn undo_push(&mut self, state: &State) {
        if let Some(record) = self.records.pop_back() {
            self.set_head(state, record.position.max(self.tail));
        }
    }

    /// Everything is durable.
    pub(crate) fn clear(&mut self, state: &State) {
        self.records.clear();
        self.set_tail(state, self.head);
    }

    fn write(&self, state: &State, position: u64, header: &Header, bytes: &[u8]) {
        let from = state.layout.ring + (position % self.lap) as usize;
        state.region.copy_in(from, header.as_bytes());
        state.region.copy_in(from + UNIT as usize, bytes);
    }

    fn set_head(&mut self, state: &State, head: u64) {
        self.head = head;
        if self.mapped {
            state.set_ring_head(head);
        }
    }

    fn set_tail(&mut self, state: &State, tail: u64) {
        self.tail = tail;
        if self.mapped {
            state.set_ring_tail(tail);
        }
    }
}
