//! What stands at a table's end: the properties, and the footer that leads to everything.

use super::ranges::RangeTombstones;
use super::seal::TRAILER;
use super::{Compression, Identity, Kind, MAX_KEY, Malformed};
use crate::order::Order;
use std::cmp::Ordering;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBXtabl";
const VERSION: u32 = 1;

/// Lengths of a table's parts, in their order. A filter or range tombstones that are not there have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) data: u64,
    pub(super) index: u64,
    pub(super) filter: u64,
    pub(super) ranges: u64,
    pub(super) top: u64,
    pub(super) properties: u64,
}

impl Parts {
    fn all(&self) -> [u64; 6] {
        [self.data, self.index, self.filter, self.ranges, self.top, self.properties]
    }

    /// Where the first `n` parts end.
    fn end(&self, n: usize) -> u64 {
        self.all()[..n].iter().sum()
    }

    pub(super) fn filter_at(&self) -> u64 {
        self.end(2)
    }

    pub(super) fn ranges_at(&self) -> u64 {
        self.end(3)
    }

    pub(super) fn top_at(&self) -> u64 {
        self.end(4)
    }

    pub(super) fn properties_at(&self) -> u64 {
        self.end(5)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawFooter {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    zero: U32,
    table: U64,
    space: U64,
    life: U64,
    parts: [U64; 6],
}

/// Bytes of the footer.
pub(super) const FOOTER: usize = size_of::<RawFooter>();
const _: () = assert!(FOOTER == 96);

pub(super) enum BadFooter {
    Malformed(Malformed),
    Version(u32),
}

/// The last bytes of a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) identity: Identity,
    pub(super) parts: Parts,
}

impl Footer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut raw = RawFooter {
            magic: MAGIC,
            version: VERSION.into(),
            length: (FOOTER as u32).into(),
            crc: 0.into(),
            zero: 0.into(),
            table: self.identity.table.into(),
            space: self.identity.space.into(),
            life: self.identity.life.into(),
            parts: self.parts.all().map(U64::new),
        };
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        out.extend_from_slice(raw.as_bytes());
    }

    /// The footer of a table of so many bytes.
    pub(super) fn decode(bytes: &[u8], table_len: u64) -> Result<Footer, BadFooter> {
        let bad = |why| BadFooter::Malformed(Malformed(why));
        let raw = RawFooter::read_from_bytes(bytes).map_err(|_| bad("too short"))?;
        if raw.magic != MAGIC {
            return Err(bad("magic"));
        }
        let mut unsummed = raw.clone();
        unsummed.crc = 0.into();
        if crc32c::crc32c(unsummed.as_bytes()) != raw.crc.get() {
            return Err(bad("checksum"));
        }
        if raw.version.get() != VERSION {
            return Err(BadFooter::Version(raw.version.get()));
        }
        if raw.length.get() as usize != FOOTER || raw.zero.get() != 0 {
            return Err(bad("length"));
        }
        let [data, index, filter, ranges, top, properties] = raw.parts.map(U64::get);
        let parts = Parts { data, index, filter, ranges, top, properties };
        let all = parts.all().iter().try_fold(FOOTER as u64, |sum, part| sum.checked_add(*part));
        // Whether the last two are there is seen when they are read.
        let blocks = parts.all().iter().all(|part| *part == 0 || *part > TRAILER as u64);
        if all != Some(table_len) || !blocks || (data == 0) != (index == 0) || (index == 0) != (top == 0) {
            return Err(bad("lengths of the parts"));
        }
        let identity = Identity { table: raw.table.get(), space: raw.space.get(), life: raw.life.get() };
        Ok(Footer { identity, parts })
    }
}

/// What a table says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Which table it is. The footer has this.
    pub identity: Identity,
    /// Name of the order of its keys.
    pub order: String,
    /// How blocks are compressed.
    pub compression: Compression,
    /// What a data block was aimed at, in bytes.
    pub block: u32,
    /// First key of all entries and range tombstones.
    pub smallest: Vec<u8>,
    /// Last key of all entries and range tombstones.
    pub largest: Vec<u8>,
    /// Whether `largest` is where a range tombstone ends, so that nothing in the table concerns this key itself.
    pub open_end: bool,
    /// Lowest sequence number of all entries and range tombstones.
    pub smallest_seq: u64,
    /// Highest sequence number of all entries and range tombstones.
    pub largest_seq: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that delete their key.
    pub deletions: u64,
    /// Entries that are merge operands.
    pub merges: u64,
    /// Range tombstones.
    pub ranges: u64,
    /// Bytes elsewhere that the deletions hide, as far as whoever made the table knew.
    pub hidden_bytes: u64,
    /// Bytes of all entries' keys.
    pub key_bytes: u64,
    /// Bytes of all entries' values.
    pub value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawProperties {
    numbers: [U64; 10],
    block: U32,
    smallest: U32,
    largest: U32,
    order: U32,
    compression: u8,
    open_end: u8,
    zero: [u8; 6],
}

/// Bytes of the properties beside the two keys and the order's name.
pub(super) const PROPERTIES: usize = size_of::<RawProperties>();
const _: () = assert!(PROPERTIES == 104);

impl Properties {
    /// Counts an entry. Who adds them keeps the first and the last key.
    pub(super) fn count(&mut self, key: usize, seq: u64, kind: Kind, value: usize) {
        self.smallest_seq = self.smallest_seq.min(seq);
        self.largest_seq = self.largest_seq.max(seq);
        self.entries += 1;
        self.deletions += u64::from(kind == Kind::Delete);
        self.merges += u64::from(kind == Kind::Merge);
        self.key_bytes += key as u64;
        self.value_bytes += value as u64;
    }

    /// Counts all range tombstones, after all entries.
    pub(super) fn cover(&mut self, ranges: &RangeTombstones, order: &dyn Order) {
        self.ranges = ranges.all().len() as u64;
        for range in ranges.all() {
            self.smallest_seq = self.smallest_seq.min(range.seq);
            self.largest_seq = self.largest_seq.max(range.seq);
        }
        let (Some(first), Some(end)) = (ranges.all().first(), ranges.last_end()) else { return };
        if self.entries == 0 || order.compare(&first.begin, &self.smallest) == Ordering::Less {
            self.smallest = first.begin.clone();
        }
        if self.entries == 0 || order.compare(end, &self.largest) == Ordering::Greater {
            self.largest = end.to_vec();
            self.open_end = true;
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [
            self.smallest_seq,
            self.largest_seq,
            self.entries,
            self.deletions,
            self.merges,
            self.ranges,
            self.hidden_bytes,
            self.key_bytes,
            self.value_bytes,
            self.data_blocks,
        ];
        let raw = RawProperties {
            numbers: numbers.map(U64::new),
            block: self.block.into(),
            smallest: (self.smallest.len() as u32).into(),
            largest: (self.largest.len() as u32).into(),
            order: (self.order.len() as u32).into(),
            compression: self.compression as u8,
            open_end: self.open_end.into(),
            zero: [0; 6],
        };
        [raw.as_bytes(), &self.smallest, &self.largest, self.order.as_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8], identity: Identity) -> Result<Properties, Malformed> {
        let (raw, rest) = RawProperties::ref_from_prefix(bytes).map_err(|_| Malformed("too short"))?;
        let [smallest, largest, order] = [raw.smallest, raw.largest, raw.order].map(|len| len.get() as usize);
        if smallest > MAX_KEY
            || largest > MAX_KEY
            || smallest + largest > rest.len()
            || raw.open_end > 1
            || raw.zero != [0; 6]
        {
            return Err(Malformed("lengths"));
        }
        let (smallest, rest) = rest.split_at(smallest);
        let (largest, rest) = rest.split_at(largest);
        let name = std::str::from_utf8(rest).ok().filter(|name| name.len() == order);
        let [
            smallest_seq,
            largest_seq,
            entries,
            deletions,
            merges,
            ranges,
            hidden_bytes,
            key_bytes,
            value_bytes,
            data_blocks,
        ] = raw.numbers.map(U64::get);
        Ok(Properties {
            identity,
            order: name.ok_or(Malformed("name of the order"))?.to_owned(),
            compression: Compression::of(raw.compression).ok_or(Malformed("compression"))?,
            block: raw.block.get(),
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            open_end: raw.open_end == 1,
            smallest_seq,
            largest_seq,
            entries,
            deletions,
            merges,
            ranges,
            hidden_bytes,
            key_bytes,
            value_bytes,
            data_blocks,
        })
    }
}
