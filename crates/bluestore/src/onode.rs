//! An object's record, the onode, and its extents: which blocks of which blobs are its bytes.
//!
//! An object is cut into *spans* of 256 KiB, which no extent and no blob crosses. The extents of the first span stand in the onode, so a small object is one record; the
//! extents of any other span have a record of their own ([`Family::Extents`](crate::keyvalue::Family::Extents)).

use crate::blob::{BLOCK, BlobId, MAX_BLOCKS};
use crate::codec::{MAX_NUMBER, Reader, put_bytes, put_ordered, put_varint};
use std::collections::BTreeMap;

/// Blocks of a span.
pub(crate) const SPAN: u64 = MAX_BLOCKS as u64;
/// Of the records, so that others are refused.
const VERSION: u8 = 2;
/// Longest object, in bytes.
pub const MAX_OBJECT: u64 = 1 << 40;

/// What a caller expects of an object ([`Transaction::hint`](crate::Transaction::hint)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// It will be this long, in bytes; 0: unknown.
    pub object: u64,
    /// It is written in pieces of so many bytes; 0: unknown.
    pub write: u64,
    /// It is written once, or only appended to, and read in long pieces. Checksums are over up to 128 KiB then.
    pub immutable: bool,
    /// It will be gone soon.
    pub short_lived: bool,
    /// Its bytes are compressed already, or noise: nobody need try.
    pub incompressible: bool,
}

impl Hint {
    /// Blocks of a grain, as a power of two.
    pub fn grain(&self) -> u8 {
        if !self.immutable {
            return 0;
        }
        // No longer than what is written at once.
        let blocks = if self.write == 0 { SPAN } else { self.write / BLOCK };
        (blocks.max(1).ilog2() as u8).min(crate::blob::MAX_GRAIN)
    }
}

/// Blocks of an object, and where their bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// In blocks from the span's start.
    pub at: u32,
    pub blocks: u32,
    pub blob: BlobId,
    /// The first block, in the blob.
    pub first: u32,
    /// Of a compressed blob: whoever overwrites a part has to look whether the rest is worth keeping.
    pub packed: bool,
}

impl Extent {
    pub fn end(&self) -> u32 {
        self.at + self.blocks
    }

    /// The part of it between two blocks of the span.
    pub fn part(&self, from: u32, to: u32) -> Option<Extent> {
        let (from, to) = (from.max(self.at), to.min(self.end()));
        (from < to).then(|| Extent { at: from, blocks: to - from, first: self.first + from - self.at, ..*self })
    }
}

/// Extents of a span, in order. None overlaps another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span(pub Vec<Extent>);

impl Span {
    /// Takes what is between these blocks out. Returns it, and what is left of extents that were cut.
    pub fn punch(&mut self, from: u32, to: u32) -> (Vec<Extent>, Vec<Extent>) {
        let (mut gone, mut left, mut all) = (Vec::new(), Vec::new(), Vec::with_capacity(self.0.len() + 1));
        for extent in std::mem::take(&mut self.0) {
            if extent.part(from, to).is_none() {
                all.push(extent);
                continue;
            }
            gone.push(extent);
            let parts = [extent.part(0, from), extent.part(to, u32::MAX)];
            left.extend(parts.into_iter().flatten());
            all.extend(parts.into_iter().flatten());
        }
        self.0 = all;
        (gone, left)
    }

    /// Where nothing is.
    pub fn insert(&mut self, extent: Extent) {
        let at = self.0.partition_point(|other| other.at < extent.at);
        self.0.insert(at, extent);
    }

    /// The record of a span of an object of this number.
    pub fn record(&self, onode: u64) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.encode(&mut out, onode);
        out
    }

    pub fn of_record(bytes: &[u8], onode: u64) -> Option<Span> {
        let mut from = Reader(bytes);
        if from.byte()? != VERSION {
            return None;
        }
        let span = Span::decode(&mut from, onode)?;
        from.is_empty().then_some(span)
    }

    /// Of an object of this number.
    pub fn encode(&self, out: &mut Vec<u8>, onode: u64) {
        put_varint(out, self.0.len() as u64);
        let (mut end, mut last) = (0, 0u64);
        for extent in &self.0 {
            let own = extent.blob.onode == onode;
            put_varint(out, u64::from(extent.at - end) << 2 | u64::from(extent.packed) << 1 | u64::from(!own));
            put_varint(out, extent.blocks.into());
            if !own {
                put_varint(out, extent.blob.onode);
            }
            // Blobs that were written one after the other are near one another.
            let step = extent.blob.number.wrapping_sub(last) as i64;
            put_varint(out, (step << 1 ^ step >> 63) as u64);
            put_varint(out, extent.first.into());
            (end, last) = (extent.end(), extent.blob.number);
        }
    }

    pub fn decode(from: &mut Reader<'_>, onode: u64) -> Option<Span> {
        let n = from.small::<u32>()?;
        let (mut all, mut end, mut last) = (Vec::new(), 0u32, 0u64);
        for _ in 0..n {
            let head = from.varint()?;
            let at = u32::try_from(head >> 2).ok()?.checked_add(end)?;
            let blocks = from.small::<u32>()?;
            let owner = if head & 1 == 1 { from.varint().filter(|n| *n <= MAX_NUMBER)? } else { onode };
            let step = from.varint()?;
            let number = last.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg());
            let first = from.small::<u32>()?;
            end = at.checked_add(blocks).filter(|end| blocks > 0 && *end <= MAX_BLOCKS)?;
            first.checked_add(blocks).filter(|end| *end <= MAX_BLOCKS)?;
            last = Some(number).filter(|n| *n <= MAX_NUMBER)?;
            let packed = head & 2 > 0;
            all.push(Extent { at, blocks, blob: BlobId { onode: owner, number }, first, packed });
        }
        Some(Span(all))
    }
}

/// An object's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Onode {
    /// Nobody else has or had it. Blobs and spans go by it.
    pub number: u64,
    /// Another one with each transaction that changes the object.
    pub version: u64,
    /// In bytes.
    pub size: u64,
    /// Number of its next blob.
    pub next_blob: u64,
    /// Keys of its omap go by this; 0: it never had one.
    pub omap: u64,
    pub hint: Hint,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first span.
    pub first: Span,
}

impl Onode {
    pub fn new(number: u64) -> Onode {
        let (hint, attributes, first) = (Hint::default(), BTreeMap::new(), Span::default());
        Onode { number, version: 0, size: 0, next_blob: 0, omap: 0, hint, attributes, first }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for n in [self.number, self.version, self.size, self.next_blob, self.omap, self.hint.object, self.hint.write] {
            put_varint(&mut out, n);
        }
        let Hint { immutable, short_lived, incompressible, .. } = self.hint;
        out.push(u8::from(immutable) | u8::from(short_lived) << 1 | u8::from(incompressible) << 2);
        put_varint(&mut out, self.attributes.len() as u64);
        for (name, value) in &self.attributes {
            put_bytes(&mut out, name);
            put_bytes(&mut out, value);
        }
        self.first.encode(&mut out, self.number);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Onode> {
        let mut from = Reader(bytes);
        if from.byte()? != VERSION {
            return None;
        }
        let mut onode = Onode::new(from.varint()?);
        let Onode { version, size, next_blob, omap, hint, .. } = &mut onode;
        for to in [version, size, next_blob, omap, &mut hint.object, &mut hint.write] {
            *to = from.varint()?;
        }
        let flags = from.byte()?;
        (hint.immutable, hint.short_lived, hint.incompressible) = (flags & 1 > 0, flags & 2 > 0, flags & 4 > 0);
        for _ in 0..from.small::<u32>()? {
            let (name, value) = (from.bytes()?.to_vec(), from.bytes()?.to_vec());
            onode.attributes.insert(name, value);
        }
        onode.first = Span::decode(&mut from, onode.number)?;
        let numbers = [onode.number, onode.version, onode.next_blob, onode.omap];
        let sane = onode.size <= MAX_OBJECT && numbers.iter().all(|n| *n <= MAX_NUMBER);
        (from.is_empty() && sane).then_some(onode)
    }
}

/// Key of a span that is not the first, in [`Family::Extents`](crate::keyvalue::Family::Extents).
pub(crate) fn span_key(onode: u64, span: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(12);
    put_ordered(&mut key, onode);
    put_ordered(&mut key, span);
    key
}

/// The number and the span of such a key.
pub(crate) fn of_span_key(key: &[u8]) -> Option<(u64, u64)> {
    let mut key = Reader(key);
    let both = (key.number()?, key.number()?);
    key.is_empty().then_some(both)
}

/// Begin and end of the keys that begin with this number.
pub(crate) fn keys_of(number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = |n| {
        let mut key = Vec::with_capacity(9);
        put_ordered(&mut key, n);
        key
    };
    (key(number), key(number + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(at: u32, blocks: u32, onode: u64, number: u64, first: u32) -> Extent {
        Extent { at, blocks, blob: BlobId { onode, number }, first, packed: number.is_multiple_of(5) }
    }

    #[test]
    fn an_onode_comes_back() {
        let mut onode = Onode::new(77);
        (onode.size, onode.version, onode.next_blob, onode.omap) = (123_456, 9, 4, 78);
        onode.hint =
            Hint { object: 1 << 22, write: 1 << 16, immutable: true, short_lived: false, incompressible: true };
        onode.attributes.insert(b"".to_vec(), vec![0; 300]);
        onode.attributes.insert(vec![0xff; 3], vec![]);
        onode.first = Span(vec![extent(0, 3, 77, 0, 0), extent(3, 1, 12, MAX_NUMBER, 63), extent(9, 4, 77, 3, 2)]);
        assert_eq!(Onode::decode(&onode.encode()), Some(onode.clone()));
        let bytes = onode.encode();
        assert!((0..bytes.len()).all(|len| Onode::decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn a_small_overwrite_takes_few_bytes() {
        let mut span = Span::default();
        (0..64).for_each(|n| span.insert(extent(n, 1, 5, 1000 + u64::from(n * 7 % 64), 0)));
        let mut out = Vec::new();
        span.encode(&mut out, 5);
        assert!(out.len() <= 64 * 5 + 4, "{} bytes", out.len());
    }

    #[test]
    fn grains_are_as_long_as_writes_of_immutable_objects() {
        let grain = |write, immutable| Hint { write, immutable, ..Hint::default() }.grain();
        assert_eq!([grain(0, false), grain(1 << 20, false)], [0, 0]);
        assert_eq!([grain(0, true), grain(1, true), grain(16 << 10, true), grain(1 << 30, true)], [5, 0, 2, 5]);
    }

    proptest! {
        #[test]
        fn what_is_punched_and_what_is_left_are_what_was_there(
            cuts in prop::collection::btree_set(0..=64u32, 2..20), from in 0..64u32, len in 1..=64u32,
        ) {
            let cuts: Vec<u32> = cuts.into_iter().collect();
            let mut span = Span::default();
            for (n, pair) in cuts.windows(2).enumerate().filter(|(n, _)| n % 3 > 0) {
                span.insert(extent(pair[0], pair[1] - pair[0], 1, n as u64, 0));
            }
            let owner = |span: &Span, block: u32| {
                span.0.iter().find(|e| (e.at..e.end()).contains(&block)).map(|e| (e.blob.number, e.first + block - e.at))
            };
            let (before, to) = (span.clone(), (from + len).min(64));
            let (gone, left) = span.punch(from, to);
            for block in 0..64 {
                let expected = if (from..to).contains(&block) { None } else { owner(&before, block) };
                prop_assert_eq!(owner(&span, block), expected);
            }
            prop_assert!(gone.iter().all(|extent| before.0.contains(extent)));
            prop_assert!(left.iter().all(|extent| span.0.contains(extent) && !before.0.contains(extent)));
            let mut out = Vec::new();
            span.encode(&mut out, 2);
            prop_assert_eq!(Span::decode(&mut Reader(&out), 2), Some(span));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Onode::decode(&bytes);
        }
    }
}
