//! Unflushed writes to conventional zones: what stood there before each of them, oldest first, so that a power loss can
//! keep, lose or tear every one for itself. In an image the bytes stand in a ring inside the mapping (`docs/on-disk-format.md`), in
//! memory on the heap; both are bounded by the same arithmetic and destage the oldest write when they are full.
//!
//! Invariants: positions only grow; a record lies in one lap of the ring; its bytes are complete before the head passes
//! it. The data of write *i* to a block is the pre-image of the next record on that block, or what stands there now.

use crate::config::Config;
use crate::state::{PAGE, State};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes of pre-images in all, and no more than the conventional zones hold; they are for small things.
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
    let conventional = u64::from(config.conventional) * config.zone_size;
    let len = config.cache_bytes.min(MOST).min(conventional).max(least);
    len.next_multiple_of(PAGE as u64) as usize
}

fn record_bytes(len: usize) -> u64 {
    UNIT + (len as u64).next_multiple_of(UNIT)
}

fn encode(kind: u16, at: u64, position: u64, bytes: &[u8]) -> Header {
    let len = bytes.len() as u32;
    let mut header = Header { magic: MAGIC, version: VERSION, kind, crc: 0, len, at, position, reserved: [0; 4] };
    header.crc = checksum(header, bytes);
    header
}

fn checksum(header: Header, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(Header { crc: 0, ..header }.as_bytes()), bytes)
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
        if header.crc != checksum(header, bytes) {
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
    /// Room of a record that was destaged, for the next one.
    spare: Option<Arc<[u8]>>,
    /// Where bytes are put together before they go into the ring.
    scratch: Vec<u8>,
}

impl PreImages {
    /// An empty log on the heap.
    pub(crate) fn in_memory(state: &State) -> PreImages {
        Self::of(VecDeque::new(), false, state.layout.ring_len as u64, (0, 0))
    }

    fn of(records: VecDeque<Record>, mapped: bool, lap: u64, (tail, head): (u64, u64)) -> PreImages {
        PreImages { records, mapped, lap, head, tail, spare: None, scratch: Vec::new() }
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
        Ok(Self::of(records, true, ring.len() as u64, (tail, head)))
    }

    /// A copy on the heap.
    pub(crate) fn copy(&self, state: &State) -> PreImages {
        let records = (0..self.records.len())
            .map(|i| Record { bytes: Some(self.shared(state, i)), ..self.records[i].clone() })
            .collect();
        Self::of(records, false, self.lap, (self.tail, self.head))
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

    /// What stood there before the newest write.
    pub(crate) fn newest(&self, state: &State) -> Option<Arc<[u8]>> {
        Some(self.shared(state, self.len().checked_sub(1)?))
    }

    /// What stood there before the `i`th write.
    pub(crate) fn before(&self, state: &State, i: usize) -> Arc<[u8]> {
        self.shared(state, i)
    }

    /// Records that `len` bytes at `at` are about to be overwritten; `read` copies what stands there. The oldest writes are destaged until
    /// it fits. After an error nothing is recorded.
    pub(crate) fn push(
        &mut self,
        state: &State,
        at: u64,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let size = record_bytes(len);
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
        let bytes = if self.mapped {
            let mut before = std::mem::take(&mut self.scratch);
            before.resize(len, 0);
            let done = read(&mut before);
            if done.is_ok() {
                self.write(state, position, &encode(KIND_RECORD, at, position, &before), &before);
            }
            self.scratch = before;
            done?;
            None
        } else {
            // Copied once, to where it stays.
            let mut bytes = self.spare.take().filter(|spare| spare.len() == len).unwrap_or_else(|| vec![0; len].into());
            match Arc::get_mut(&mut bytes) {
                Some(room) => read(room)?,
                None => return Err(io::Error::other("the room of a pre-image is shared")),
            }
            Some(bytes)
        };
        self.set_head(state, position + size);
        self.records.push_back(Record { at, len, position, bytes });
        Ok(())
    }

    /// Destages the oldest writes until the ring may reach up to `end`.
    fn make_room(&mut self, state: &State, end: u64) {
        while end - self.tail > self.lap {
            let oldest = self.records.pop_front().and_then(|oldest| oldest.bytes);
            // A fork may have it, too.
            self.spare = oldest.and_then(|mut bytes| Arc::get_mut(&mut bytes).is_some().then_some(bytes));
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    /// A state with a ring, as an image has it.
    fn with_ring() -> State {
        let config = Config { cache_bytes: 0, ..Config::tiny() };
        let mut state = State::in_memory(&config);
        state.region = crate::region::Region::heap(state.layout.total());
        state.initialise(&config);
        state
    }

    fn push(log: &mut PreImages, state: &State, at: u64, before: &[u8]) {
        let read = |out: &mut [u8]| {
            out.copy_from_slice(before);
            Ok(())
        };
        log.push(state, at, before.len(), read).unwrap();
    }

    #[test]
    fn what_a_fork_has_stays_when_room_is_used_again_and_a_failed_read_is_no_record() {
        let (state, mapped) = (State::in_memory(&Config::tiny()), with_ring());
        let mut heap = PreImages::in_memory(&state);
        let many = heap.lap / record_bytes(4096);
        (0..many).for_each(|i| push(&mut heap, &state, i * 4096, &[i as u8; 4096]));
        let held: Vec<Arc<[u8]>> = (0..heap.len()).map(|i| heap.before(&state, i)).collect();
        let fork = heap.copy(&state);
        (0..many / 2).for_each(|i| push(&mut heap, &state, i * 4096, &[!(i as u8); 4096]));
        drop(held);
        (0..many).for_each(|i| push(&mut heap, &state, i * 4096, &[!(i as u8); 4096]));
        for i in 0..fork.len() {
            let (at, _) = fork.range(i);
            assert!(fork.before(&state, i).iter().all(|byte| *byte == (at / 4096) as u8), "{i}");
        }
        assert_eq!(heap.newest(&state).unwrap()[0], !((many - 1) as u8));
        for (log, state) in [(&mut heap, &state), (&mut PreImages::in_ring(&mapped).unwrap(), &mapped)] {
            let before = log.len();
            assert!(log.push(state, 0, 4096, |_| Err(io::ErrorKind::StorageFull.into())).is_err());
            assert!(log.len() <= before);
            push(log, state, 4096, &[9; 4096]);
            assert!(log.newest(state).unwrap().iter().all(|byte| *byte == 9));
        }
        assert!(PreImages::in_ring(&mapped).is_ok());
    }

    #[test]
    fn a_ring_holds_what_memory_holds_over_many_laps() {
        let state = with_ring();
        let mut mapped = PreImages::in_ring(&state).unwrap();
        let mut heap = PreImages::in_memory(&state);
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for round in 0..400u64 {
            let blocks = [1, 2, 9, 64][rng.random_range(0..4)];
            let before = vec![round as u8; blocks * 4096];
            for log in [&mut mapped, &mut heap] {
                push(log, &state, round * 4096, &before);
                match round % 50 {
                    17 => log.undo_push(&state),
                    33 => log.clear(&state),
                    _ => {}
                }
            }
            let reopened = PreImages::in_ring(&state).unwrap();
            assert_eq!((reopened.len(), reopened.head, reopened.tail), (heap.len(), heap.head, heap.tail));
            for i in 0..heap.len() {
                assert_eq!(reopened.range(i), heap.range(i));
                assert_eq!(reopened.before(&state, i), heap.before(&state, i));
            }
        }
        assert!(mapped.head > 5 * mapped.lap);
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let state = with_ring();
        let mut log = PreImages::in_ring(&state).unwrap();
        push(&mut log, &state, 4096, &[7; 4096]);
        push(&mut log, &state, 8192, &[8; 4096]);
        let mut ring = vec![0; state.layout.ring_len];
        state.region.copy_out(state.layout.ring, &mut ring);
        assert_eq!(decode_ring(&ring, 0, log.head).unwrap().len(), 2);
        for at in 0..log.head as usize {
            ring[at] ^= 0x10;
            assert!(decode_ring(&ring, 0, log.head).is_err(), "byte {at}");
            ring[at] ^= 0x10;
        }
    }

    #[test]
    fn no_input_panics() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(2);
        for len in [0usize, 1, 63, 64, 640, 4096] {
            for _ in 0..2000 {
                let mut ring: Vec<u8> = (0..len).map(|_| rng.random()).collect();
                if len >= 64 && rng.random() {
                    ring[..4].copy_from_slice(&MAGIC);
                    ring[4..6].copy_from_slice(&VERSION.to_le_bytes());
                    ring[24..32].fill(0);
                }
                let (tail, head) = match rng.random_range(0..3) {
                    0 => (0, len as u64),
                    1 => (rng.random(), rng.random()),
                    _ => (u64::MAX - 64, u64::MAX),
                };
                let _ = decode_ring(&ring, tail, head);
            }
        }
    }
}
