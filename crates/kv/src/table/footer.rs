//! What stands at a table's end: the properties, and the footer that leads to everything.

use super::seal::TRAILER;
use super::{Compression, Identity, Kind, MAX_KEY, Malformed};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const MAGIC: [u8; 8] = *b"IMBXtabl";
const VERSION: u32 = 2;

/// Lengths of a table's parts, in their order. A filter that is not there has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) data: u64,
    pub(super) index: u64,
    pub(super) filter: u64,
    pub(super) top: u64,
    pub(super) properties: u64,
}

impl Parts {
    fn all(&self) -> [u64; 5] {
        [self.data, self.index, self.filter, self.top, self.properties]
    }

    /// Where the first `n` parts end.
    pub(super) fn end(&self, n: usize) -> u64 {
        self.all()[..n].iter().sum()
    }

    pub(super) fn filter_at(&self) -> u64 {
        self.end(2)
    }

    pub(super) fn top_at(&self) -> u64 {
        self.end(3)
    }

    pub(super) fn properties_at(&self) -> u64 {
        self.end(4)
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
    life: U64,
    parts: [U64; 5],
}

/// Bytes of the footer.
pub(super) const FOOTER: usize = size_of::<RawFooter>();
const _: () = assert!(FOOTER == 80);

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
            life: self.identity.life.into(),
            parts: self.parts.all().map(U64::new),
        };
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        out.extend_from_slice(raw.as_bytes());
    }

    /// A footer, whatever the length of its table.
    pub(super) fn decode_any(bytes: &[u8]) -> Option<Footer> {
        let raw = RawFooter::ref_from_bytes(bytes).ok()?;
        let len = raw.parts.iter().try_fold(FOOTER as u64, |sum, part| sum.checked_add(part.get()))?;
        Footer::decode(bytes, len).ok()
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
        let [data, index, filter, top, properties] = raw.parts.map(U64::get);
        let parts = Parts { data, index, filter, top, properties };
        let all = parts.all().iter().try_fold(FOOTER as u64, |sum, part| sum.checked_add(*part));
        // Only a filter may be missing.
        let blocks = parts.all().iter().all(|part| *part == 0 || *part > TRAILER as u64);
        if all != Some(table_len) || !blocks || [data, index, top, properties].contains(&0) {
            return Err(bad("lengths of the parts"));
        }
        let identity = Identity { table: raw.table.get(), life: raw.life.get() };
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
    /// First key of all entries.
    pub smallest: Vec<u8>,
    /// Last key of all entries.
    pub largest: Vec<u8>,
    /// Lowest sequence number of all entries.
    pub smallest_seq: u64,
    /// Highest sequence number of all entries.
    pub largest_seq: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that delete their key.
    pub deletions: u64,
    /// Entries that are merge operands.
    pub merges: u64,
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
    numbers: [U64; 9],
    block: U32,
    smallest: U32,
    largest: U32,
    order: U32,
    compression: u8,
    zero: [u8; 7],
}

/// Bytes of the properties beside the two keys and the order's name.
pub(super) const PROPERTIES: usize = size_of::<RawProperties>();
const _: () = assert!(PROPERTIES == 96);

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

    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [
            self.smallest_seq,
            self.largest_seq,
            self.entries,
            self.deletions,
            self.merges,
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
            zero: [0; 7],
        };
        [raw.as_bytes(), &self.smallest, &self.largest, self.order.as_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8], identity: Identity) -> Result<Properties, Malformed> {
        let (raw, rest) = RawProperties::ref_from_prefix(bytes).map_err(|_| Malformed("too short"))?;
        let [smallest, largest, order] = [raw.smallest, raw.largest, raw.order].map(|len| len.get() as usize);
        if smallest > MAX_KEY || largest > MAX_KEY || smallest + largest > rest.len() || raw.zero != [0; 7] {
            return Err(Malformed("lengths"));
        }
        let (smallest, rest) = rest.split_at(smallest);
        let (largest, rest) = rest.split_at(largest);
        let name = std::str::from_utf8(rest).ok().filter(|name| name.len() == order);
        let [smallest_seq, largest_seq, entries, deletions, merges, hidden_bytes, key_bytes, value_bytes, data_blocks] =
            raw.numbers.map(U64::get);
        Ok(Properties {
            identity,
            order: name.ok_or(Malformed("name of the order"))?.to_owned(),
            compression: Compression::of(raw.compression).ok_or(Malformed("compression"))?,
            block: raw.block.get(),
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            smallest_seq,
            largest_seq,
            entries,
            deletions,
            merges,
            hidden_bytes,
            key_bytes,
            value_bytes,
            data_blocks,
        })
    }
}
