//! The band table's blocks: snapshots of all bands, and the log of what changed since. Pure encoding; `docs/on-disk-format.md`
//! draws it.
//!
//! Each block carries a checksum that begins with the table's identity, so blocks of an earlier table on the same disk are
//! nothing, and its generation, so blocks of an earlier turn are nothing either.

use super::layout::{Layout, PAGE};
use crate::ZoneState;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SNAPSHOT: [u8; 8] = *b"IMBXBSNP";
const LOG: [u8; 8] = *b"IMBXBLOG";
const LIVE: [u8; 8] = *b"IMBXBLIV";
const HEAD: usize = size_of::<Head>();
/// Bands of one block of a snapshot.
pub(super) const ENTRIES_PER_BLOCK: usize = (PAGE - HEAD) / size_of::<RawEntry>();
/// Bytes of a batch that one block of the log has room for: records, then what they carry.
pub(super) const PAYLOAD: usize = PAGE - HEAD;
/// Records of one block of the log.
pub(super) const RECORDS_PER_BLOCK: usize = PAYLOAD / size_of::<RawRecord>();
/// The record's bytes must be checked after a power loss.
const CHECKED: u32 = 1;
/// The record's bytes are in the batch, behind its records.
const CARRIED: u32 = 2;

/// What is known of a band. Counts are blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) state: ZoneState,
    /// Full because it was finished, not because it was written to its end.
    pub(super) finished: bool,
    /// Blocks from its start that were written; what lies above reads as zeros.
    pub(super) written: u64,
    /// How often it was reset. Bytes of another life are nobody's.
    pub(super) life: u32,
}

impl Word {
    pub(super) const fn empty(life: u32) -> Word {
        Word { state: ZoneState::Empty, finished: false, written: 0, life }
    }
    pub(super) const CONVENTIONAL: Word = Word { state: ZoneState::Conventional, ..Word::empty(0) };

    fn pack(self) -> u64 {
        self.state as u64 | u64::from(self.finished) << 3 | self.written << 4
    }

    /// `None` where no band is ever so.
    fn unpack(value: u64, life: u32, band: u32, layout: &Layout) -> Option<Word> {
        let state = *ZoneState::ALL.get((value & 7) as usize)?;
        let word = Word { state, finished: value & 8 != 0, written: value >> 4, life };
        let (capacity, conventional) = (layout.capacity(), band < layout.conventional);
        let sound = match state {
            ZoneState::Conventional => word == Word { life, ..Word::CONVENTIONAL },
            ZoneState::Empty => word == Word::empty(life),
            ZoneState::ImplicitlyOpen | ZoneState::Closed => !word.finished && (1..capacity).contains(&word.written),
            ZoneState::ExplicitlyOpen => !word.finished && word.written < capacity,
            ZoneState::Full => word.finished == (word.written < capacity) && word.written <= capacity,
            ZoneState::ReadOnly | ZoneState::Offline => false,
        };
        (sound && band < layout.bands && conventional == (state == ZoneState::Conventional)).then_some(word)
    }

    /// What a power loss makes of it where `written` blocks are left.
    pub(super) fn cut(self, written: u64, capacity: u64) -> Word {
        let written = written.min(self.written);
        let state = match self.state {
            ZoneState::Conventional => ZoneState::Conventional,
            // A finished band stays full whatever became of its bytes; the cut ones read as zeros.
            _ if self.finished || written == capacity => ZoneState::Full,
            _ if written == 0 => ZoneState::Empty,
            _ => ZoneState::Closed,
        };
        Word { state, written, ..self }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// CRC-32C of the table's uuid and the block with this field 0.
    crc: U32,
    /// Entries or records in this block.
    used: U32,
    generation: U64,
    /// Log: the batch's number. Snapshot: that of the next batch.
    sequence: U64,
    /// Which block of the batch or snapshot this is, of `count`.
    index: U32,
    count: U32,
    epoch: U64,
    reserved: [u8; 16],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    word: U64,
    life: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawRecord {
    band: U32,
    life: U32,
    word: U64,
    from: U64,
    sum: U32,
    flags: U32,
}

const _: () = assert!(HEAD == 64 && size_of::<RawEntry>() == 16 && size_of::<RawRecord>() == 32);
// No record is cut by the end of a block.
const _: () = assert!(PAYLOAD.is_multiple_of(size_of::<RawRecord>()));

/// Which block of which table this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) sequence: u64,
    pub(super) index: u32,
    pub(super) count: u32,
    /// Goes up with every power loss that was noticed.
    pub(super) epoch: u64,
}

/// A band that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) band: u32,
    pub(super) word: Word,
    /// Blocks that were durable before.
    pub(super) from: u64,
    pub(super) proof: Proof,
}

/// Why a power loss leaves the blocks from a record's `from` to its word's `written`, once its batch is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// They, and all before them, stood in the band and were durable before the record was written.
    Durable,
    /// They stand in the band if this is their checksum. Those before may be what earlier records carry.
    Sum(u32),
    /// The batch carries them. So may earlier ones those before.
    Carried,
}

impl Record {
    /// Bytes that the batch carries for it.
    pub(super) fn carried(&self, block: u32) -> u64 {
        if self.proof == Proof::Carried { (self.word.written - self.from) * u64::from(block) } else { 0 }
    }
}

/// Where the checksum of a record's blocks begins.
pub(super) fn seed(layout: &Layout, band: u32, life: u32, from: u64) -> u32 {
    let sum = crc32c::crc32c(&layout.uuid);
    let sum = crc32c::crc32c_append(sum, &band.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &life.to_le_bytes());
    crc32c::crc32c_append(sum, &from.to_le_bytes())
}

fn seal(uuid: &[u8; 16], block: &mut [u8]) {
    let sum = crc32c::crc32c_append(crc32c::crc32c(uuid), block);
    if let Some(crc) = block.get_mut(8..12) {
        crc.copy_from_slice(&sum.to_le_bytes());
    }
}

fn encode(magic: [u8; 8], uuid: &[u8; 16], place: Place, used: usize, payload: &[u8]) -> Vec<u8> {
    let head = Head {
        magic,
        crc: 0.into(),
        used: (used as u32).into(),
        generation: place.generation.into(),
        sequence: place.sequence.into(),
        index: place.index.into(),
        count: place.count.into(),
        epoch: place.epoch.into(),
        reserved: [0; 16],
    };
    let mut block = Vec::with_capacity(PAGE);
    block.extend_from_slice(head.as_bytes());
    block.extend_from_slice(payload);
    block.resize(PAGE, 0);
    seal(uuid, &mut block);
    block
}

/// Head, items and what is behind them of a block of ours; `None` for everything else.
fn decode<'a, T: FromBytes + Immutable + Copy>(
    magic: [u8; 8],
    uuid: &[u8; 16],
    block: &'a [u8],
) -> Option<(Place, Vec<T>, &'a [u8])> {
    let (head, rest) = Head::read_from_prefix(block).ok()?;
    if head.magic != magic || block.len() != PAGE {
        return None;
    }
    let unsealed = Head { crc: 0.into(), ..head };
    let sum = crc32c::crc32c_append(crc32c::crc32c(uuid), unsealed.as_bytes());
    if crc32c::crc32c_append(sum, rest) != head.crc.get() {
        return None;
    }
    let place = Place {
        generation: head.generation.get(),
        sequence: head.sequence.get(),
        index: head.index.get(),
        count: head.count.get(),
        epoch: head.epoch.get(),
    };
    let used = head.used.get() as usize;
    let (items, rest) = rest.split_at_checked(used.checked_mul(size_of::<T>())?)?;
    let items = items.chunks_exact(size_of::<T>()).filter_map(|item| T::read_from_bytes(item).ok()).collect();
    (place.index < place.count).then_some((place, items, rest))
}

/// The blocks of a snapshot, one behind the other.
pub(super) fn encode_snapshot(layout: &Layout, generation: u64, sequence: u64, epoch: u64, words: &[Word]) -> Vec<u8> {
    let count = layout.snapshot_blocks() as u32;
    let mut bytes = Vec::with_capacity(count as usize * PAGE);
    for (index, part) in words.chunks(ENTRIES_PER_BLOCK).enumerate() {
        let entries: Vec<RawEntry> = part
            .iter()
            .map(|word| RawEntry { word: word.pack().into(), life: word.life.into(), reserved: 0.into() })
            .collect();
        let place = Place { generation, sequence, index: index as u32, count, epoch };
        bytes.extend_from_slice(&encode(SNAPSHOT, &layout.uuid, place, entries.len(), entries.as_bytes()));
    }
    bytes
}

/// All words of a snapshot, if it is whole.
pub(super) fn decode_snapshot(layout: &Layout, bytes: &[u8]) -> Option<(Place, Vec<Word>)> {
    let mut words = Vec::with_capacity(layout.bands as usize);
    let mut first = None;
    for (index, block) in bytes.chunks(PAGE).enumerate() {
        let (place, entries, _) = decode::<RawEntry>(SNAPSHOT, &layout.uuid, block)?;
        let all = *first.get_or_insert(place);
        if place != (Place { index: index as u32, ..all }) || place.count as usize != layout.snapshot_blocks() {
            return None;
        }
        for entry in entries {
            words.push(Word::unpack(entry.word.get(), entry.life.get(), words.len() as u32, layout)?);
        }
    }
    let place = first?;
    (words.len() == layout.bands as usize).then_some((place, words))
}

/// The blocks of a batch, one behind the other; `sequence` and `generation` from `place`. `data`: what the records carry, in their
/// order. An empty batch has one block.
pub(super) fn encode_batch(layout: &Layout, place: Place, records: &[Record], data: &[u8]) -> Vec<Vec<u8>> {
    let raw = |record: &Record| {
        let (sum, flags) = match record.proof {
            Proof::Durable => (0, 0),
            Proof::Sum(sum) => (sum, CHECKED),
            Proof::Carried => (0, CARRIED),
        };
        RawRecord {
            band: record.band.into(),
            life: record.word.life.into(),
            word: record.word.pack().into(),
            from: record.from.into(),
            sum: sum.into(),
            flags: flags.into(),
        }
    };
    let mut payload = Vec::with_capacity(size_of_val(records) + data.len());
    records.iter().for_each(|record| payload.extend_from_slice(raw(record).as_bytes()));
    payload.extend_from_slice(data);
    let count = batch_blocks(records.len(), data.len()) as u32;
    let mut parts = payload.chunks(PAYLOAD);
    let block = |index: u32| {
        let used = records.len().saturating_sub(index as usize * RECORDS_PER_BLOCK).min(RECORDS_PER_BLOCK);
        encode(LOG, &layout.uuid, Place { index, count, ..place }, used, parts.next().unwrap_or_default())
    };
    (0..count).map(block).collect()
}

/// Blocks of a batch of so many records, which carry so many bytes.
pub(super) fn batch_blocks(records: usize, carried: usize) -> usize {
    (records * size_of::<RawRecord>() + carried).div_ceil(PAYLOAD).max(1)
}

/// A block of the log. Without `records` the checksum is right and the content is not.
pub(super) struct LogBlock<'a> {
    pub(super) place: Place,
    pub(super) records: Option<Vec<Record>>,
    /// What is behind the records: a part of what the batch carries, or zeros.
    pub(super) rest: &'a [u8],
}

/// What `block` is, if it is one of the log.
pub(super) fn decode_log<'a>(layout: &Layout, block: &'a [u8]) -> Option<LogBlock<'a>> {
    let (place, raw, rest) = decode::<RawRecord>(LOG, &layout.uuid, block)?;
    let record = |raw: &RawRecord| {
        let band = raw.band.get();
        let word = Word::unpack(raw.word.get(), raw.life.get(), band, layout)?;
        let proof = match raw.flags.get() {
            0 => Proof::Durable,
            CHECKED => Proof::Sum(raw.sum.get()),
            CARRIED if layout.half() > 0 => Proof::Carried,
            _ => return None,
        };
        let sound = word.state != ZoneState::Conventional && raw.from.get() <= word.written;
        sound.then_some(Record { band, word, from: raw.from.get(), proof })
    };
    Some(LogBlock { place, records: raw.iter().map(record).collect(), rest })
}

/// A band's live word.
pub(super) fn encode_live(layout: &Layout, band: u32, word: Word) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&word.pack().to_le_bytes());
    bytes[8..12].copy_from_slice(&word.life.to_le_bytes());
    let sum = crc32c::crc32c_append(seed(layout, band, 0, 0), &bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(super) fn decode_live(layout: &Layout, band: u32, bytes: &[u8]) -> Option<Word> {
    let (value, rest) = bytes.split_first_chunk::<8>()?;
    let life = u32::from_le_bytes(*rest.first_chunk()?);
    let word = Word::unpack(u64::from_le_bytes(*value), life, band, layout)?;
    (encode_live(layout, band, word) == *bytes).then_some(word)
}

/// The live part's header: under which boot and epoch its words are true.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawLive {
    magic: [u8; 8],
    crc: U32,
    reserved: U32,
    boot: [u8; 16],
    epoch: U64,
}

/// Bytes of the live part's header.
pub(super) const LIVE_HEAD: usize = size_of::<RawLive>();

pub(super) fn encode_live_head(layout: &Layout, boot: &[u8; 16], epoch: u64) -> [u8; LIVE_HEAD] {
    let mut raw = RawLive { magic: LIVE, crc: 0.into(), reserved: 0.into(), boot: *boot, epoch: epoch.into() };
    raw.crc = crc32c::crc32c_append(crc32c::crc32c(&layout.uuid), raw.as_bytes()).into();
    zerocopy::transmute!(raw)
}

/// Bytes of the live part's mark.
pub(super) const LIVE_MARK: usize = 16;

/// How far the table has come that the live part goes with: the number of its next batch.
pub(super) fn encode_live_mark(layout: &Layout, sequence: u64) -> [u8; LIVE_MARK] {
    let mut bytes = [0; LIVE_MARK];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..12].copy_from_slice(&LIVE[4..]);
    let sum = crc32c::crc32c_append(crc32c::crc32c(&layout.uuid), &bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(super) fn decode_live_mark(layout: &Layout, bytes: &[u8]) -> Option<u64> {
    let sequence = u64::from_le_bytes(*bytes.first_chunk()?);
    (encode_live_mark(layout, sequence) == *bytes).then_some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout { uuid: [9; 16], ..Layout::plan(64 << 20, 4096, 64 << 10, Some(2)).unwrap() }
    }

    #[test]
    fn snapshots_and_batches_are_read_back() {
        let layout = layout();
        let mut words = vec![Word::CONVENTIONAL; 2];
        for band in 2..layout.bands {
            let states = [ZoneState::Closed, ZoneState::ImplicitlyOpen, ZoneState::ExplicitlyOpen];
            let word = Word { state: states[band as usize % 3], finished: false, written: 3, life: band };
            words.push(if band % 5 == 0 { word.cut(0, layout.capacity()) } else { word });
        }
        let bytes = encode_snapshot(&layout, 8, 70, 3, &words);
        let (place, read) = decode_snapshot(&layout, &bytes).unwrap();
        assert_eq!((place.generation, place.sequence, place.epoch, &read), (8, 70, 3, &words));
        assert!(decode_snapshot(&layout, &bytes[PAGE..]).is_none());
        assert!(decode_snapshot(&Layout { uuid: [1; 16], ..layout }, &bytes).is_none(), "another table's");

        let records: Vec<Record> = (2..400)
            .map(|band| {
                let proof = [Proof::Durable, Proof::Sum(band), Proof::Carried][band as usize % 3];
                Record { band, word: words[band as usize], from: 0, proof }
            })
            .collect();
        let carried: u64 = records.iter().map(|record| record.carried(layout.block)).sum();
        let data: Vec<u8> = (0..carried).map(|i| (i / 7) as u8).collect();
        let blocks = encode_batch(&layout, Place { index: 0, ..place }, &records, &data);
        assert_eq!(blocks.len(), batch_blocks(records.len(), data.len()));
        let (mut read, mut behind) = (Vec::new(), Vec::new());
        for block in &blocks {
            let block = decode_log(&layout, block).unwrap();
            read.extend(block.records.unwrap());
            behind.extend_from_slice(block.rest);
        }
        assert_eq!(read, records);
        assert!(data.len() > 1 << 20 && behind.starts_with(&data));
        assert!(behind[data.len()..].iter().all(|byte| *byte == 0));
        let older = Layout { version: 1, ..layout };
        assert!(decode_log(&older, &blocks[0]).unwrap().records.is_none(), "version 1 carries nothing");
        assert_eq!(encode_batch(&layout, place, &[], &[]).len(), 1);
        for bit in (0..8 * PAGE).step_by(7) {
            let mut bad = blocks[0].clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_log(&layout, &bad).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn words_that_no_band_has_are_refused() {
        let layout = layout();
        let cap = layout.capacity();
        let good = Word { state: ZoneState::Full, finished: true, written: 3, life: 1 };
        assert_eq!(decode_live(&layout, 5, &encode_live(&layout, 5, good)), Some(good));
        assert_eq!(decode_live(&layout, 6, &encode_live(&layout, 5, good)), None, "another band's word");
        for bad in [
            Word { written: cap + 1, ..good },
            Word { finished: false, ..good },
            Word { state: ZoneState::Empty, ..good },
            Word { state: ZoneState::Closed, finished: false, written: cap, life: 0 },
            Word { state: ZoneState::Offline, ..good },
            Word::CONVENTIONAL,
        ] {
            assert_eq!(decode_live(&layout, 5, &encode_live(&layout, 5, bad)), None, "{bad:?}");
        }
        assert_eq!(decode_live(&layout, 1, &encode_live(&layout, 1, good)), None, "a conventional band");
    }
}
