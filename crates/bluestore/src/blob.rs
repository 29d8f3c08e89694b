//! A blob: bytes that were written together, a number of blocks. It never changes, but its parts may come and go: extents of objects name its
//! blocks, and what nobody names any more is dead.
//!
//! Objects name a blob by its number. Only the blob's own record says where it is. So who moves it changes no object, and a clone costs it a count.
//! A blob is cut into *grains*, for which it has a checksum each. A *piece* is a number of grains that as many extents name and that stand together.

use crate::checksum::Checksum;
use crate::codec::{Reader, put_ordered, put_varint};
use crate::compress::{Compression, TOGETHER, decompress};
use crate::units::Units;
use imbrex_device::AlignedBuf;
use std::fmt;
use std::sync::Arc;

pub(crate) use crate::codec::BLOCK;

/// A blob's number: the object that wrote it, and a number of that one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlobId {
    pub onode: u64,
    pub number: u64,
}

/// Where a piece begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub zone: u32,
    /// In blocks from the zone's start.
    pub block: u32,
    /// The lower half of the zone's life.
    pub life: u32,
}

/// Where blocks are that a repair has found gone: nowhere. Extents that name them count, and reading them is an error.
pub(crate) const LOST: Place = Place { zone: u32::MAX - 1, block: 0, life: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    grains: u32,
    /// So many extents name each of them; 0: dead.
    refs: u32,
    /// `None`, of one that lives: its bytes are deferred.
    place: Option<Place>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    /// Where in the object it was written, in blocks.
    pub offset: u64,
    /// Blocks of a grain, as a power of two.
    grain: u8,
    /// Blocks that are stored. The last grain may be shorter than others.
    pub blocks: u32,
    /// Blocks that extents may name. They are those that are stored; or those that were compressed: then all that is stored is one grain.
    pub named: u32,
    codec: Compression,
    checksum: Checksum,
    pieces: Vec<Piece>,
    /// Of each grain; of a dead one nothing.
    sums: Vec<u32>,
}

/// Blocks of a blob that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first, in the blob.
    pub first: u32,
    pub blocks: u32,
    pub place: Option<Place>,
}

/// A grain has at most so many blocks, as a power of two: 128 KiB.
pub(crate) const MAX_GRAIN: u8 = 5;
/// A blob has at most so many blocks: those of a span of an object.
pub(crate) const MAX_BLOCKS: u32 = 64;

/// How blocks of a grain (as a power of two), compression and checksum stand in a byte of a record.
pub(crate) fn kind(grain: u8, codec: Compression, checksum: Checksum) -> u8 {
    grain | codec.number() << 4 | checksum.number() << 6
}

/// What [`kind`] has made; `None`: it makes no sense.
pub(crate) fn of_kind(kind: u8) -> Option<(u8, Compression, Checksum)> {
    let grain = Some(kind & 15).filter(|grain| *grain <= MAX_GRAIN)?;
    Some((grain, Compression::of_number(kind >> 4 & 3)?, Checksum::of_number(kind >> 6)?))
}

impl BlobId {
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(16);
        put_ordered(&mut key, self.onode);
        put_ordered(&mut key, self.number);
        key
    }

    /// The number behind it in their order.
    pub fn next(&self) -> BlobId {
        BlobId { number: self.number + 1, ..*self }
    }

    pub fn of_key(key: &[u8]) -> Option<BlobId> {
        let mut key = Reader(key);
        let id = BlobId { onode: key.number()?, number: key.number()? };
        key.is_empty().then_some(id)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blob {} of object number {}", self.number, self.onode)
    }
}

impl Blob {
    /// A new one, which nobody names yet. `bytes` are whole blocks.
    pub fn new(offset: u64, grain: u8, checksum: Checksum, bytes: &[u8]) -> Blob {
        let blocks = (bytes.len() as u64 / BLOCK) as u32;
        let sums: Vec<u32> = bytes.chunks((BLOCK as usize) << grain).map(|grain| checksum.of(grain)).collect();
        let pieces = vec![Piece { grains: sums.len() as u32, refs: 0, place: None }];
        Blob { offset, grain, blocks, named: blocks, codec: Compression::Off, checksum, pieces, sums }
    }

    /// A new one, of so many blocks, for which `stored` stand.
    pub fn compressed(offset: u64, (codec, named): (Compression, u32), checksum: Checksum, stored: &[u8]) -> Blob {
        let grain = (stored.len() as u64 / BLOCK).next_power_of_two().ilog2() as u8;
        Blob { named, codec, ..Blob::new(offset, grain, checksum, stored) }
    }

    /// The blocks that stand for what is stored of all of it, or of a part where it is not compressed; `None`: they make no sense.
    pub fn unpack(&self, stored: AlignedBuf) -> Option<AlignedBuf> {
        if self.is_compressed() { self.decompressed(&stored) } else { Some(stored) }
    }

    /// Whether what is stored stands for other bytes.
    pub fn is_compressed(&self) -> bool {
        self.codec != Compression::Off
    }

    /// The blocks that stored ones stand for, of one that is compressed; `None`: they make no sense.
    pub fn decompressed(&self, stored: &[u8]) -> Option<AlignedBuf> {
        decompress(self.codec, stored, self.named)
    }

    /// Whether it has these blocks, which extents may name.
    pub fn has(&self, first: u32, blocks: u32) -> bool {
        u64::from(first) + u64::from(blocks) <= u64::from(self.named) && blocks > 0
    }

    /// Which stored blocks have these.
    fn stored(&self, first: u32, blocks: u32) -> (u32, u32) {
        if self.codec == Compression::Off { (first, blocks) } else { (0, self.blocks) }
    }

    /// Which blocks that extents may name are in these stored ones.
    pub fn named_in(&self, first: u32, blocks: u32) -> (u32, u32) {
        if self.codec == Compression::Off { (first, blocks) } else { (0, self.named) }
    }

    /// Whether these blocks, which extents may name, live.
    pub fn lives(&self, first: u32, blocks: u32) -> bool {
        let (from, len) = self.whole(first, blocks);
        first.checked_add(blocks).is_some_and(|end| end <= self.named) && self.find(from, len).is_some()
    }

    /// As these extents name it, each a first block and blocks of what may be named. What they name and is dead is lost, and so is what has no place where its bytes are not there, either. `keeps`: no count goes down.
    pub fn recounted(&self, extents: &[(u32, u32)], has_bytes: bool, keeps: bool) -> Blob {
        let mut now = self.clone();
        let mut counts = vec![0u32; self.sums.len()];
        for (first, blocks) in extents {
            let (first, blocks) = self.stored(*first, *blocks);
            let (from, to) = self.grains(first, blocks);
            counts.iter_mut().take(to as usize).skip(from as usize).for_each(|count| *count += 1);
        }
        let mut dead = Vec::new();
        for (grain, count) in counts.into_iter().enumerate() {
            now.each(grain as u32, grain as u32 + 1, |_, piece| {
                let gone = piece.refs == 0 || piece.place.is_none() && !has_bytes;
                piece.refs = if keeps { count.max(piece.refs) } else { count };
                if piece.refs == 0 {
                    piece.place = None;
                    dead.push(grain);
                } else if gone {
                    piece.place = Some(LOST);
                }
            });
        }
        dead.into_iter().for_each(|grain| now.sums[grain] = 0);
        now
    }

    /// One of which nothing is left but that extents name it; `None`: they make no sense.
    pub fn all_lost(offset: u64, extents: &[(u32, u32)]) -> Option<Blob> {
        let ends = extents.iter().map(|(first, blocks)| first.checked_add(*blocks));
        let blocks = ends.max().flatten().filter(|end| (1..=MAX_BLOCKS).contains(end))?;
        let pieces = vec![Piece { grains: blocks, refs: 0, place: None }];
        let sums = vec![0; blocks as usize];
        let (codec, checksum) = (Compression::Off, Checksum::Crc32c);
        let blob = Blob { offset, grain: 0, blocks, named: blocks, codec, checksum, pieces, sums };
        Some(blob.recounted(extents, false, false))
    }

    /// How many blocks are lost.
    pub fn lost(&self) -> u32 {
        self.living().filter(|run| run.place.is_some_and(|place| place.zone == LOST.zone)).map(|run| run.blocks).sum()
    }

    /// How it is compressed.
    pub fn codec(&self) -> Compression {
        self.codec
    }

    /// What its checksums are made by.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Checksums of all its grains; of a dead one nothing.
    pub fn sums(&self) -> Arc<[u32]> {
        self.sums.as_slice().into()
    }

    /// Blocks that live and die together, of those that extents name.
    pub fn together(&self) -> u32 {
        if self.codec == Compression::Off { 1 << self.grain } else { self.named }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        size_of::<Blob>() + self.pieces.len() * size_of::<Piece>() + self.sums.len() * size_of::<u32>()
    }

    /// Blocks of a grain, as a power of two.
    pub fn grain(&self) -> u8 {
        self.grain
    }

    fn grain_of(&self, block: u32) -> u32 {
        block >> self.grain
    }

    /// The grains that these blocks touch, as the first and the one behind the last.
    fn grains(&self, first: u32, blocks: u32) -> (u32, u32) {
        (self.grain_of(first), self.grain_of(first + blocks - 1) + 1)
    }

    /// Where a grain begins, in blocks; where the blob ends, of the one behind the last.
    fn begin(&self, grain: u32) -> u32 {
        (grain << self.grain).min(self.blocks)
    }

    /// The whole grains that have these blocks, as stored blocks.
    pub fn whole(&self, first: u32, blocks: u32) -> (u32, u32) {
        let (first, blocks) = self.stored(first, blocks);
        let (from, to) = self.grains(first, blocks);
        (self.begin(from), self.begin(to) - self.begin(from))
    }

    /// Has `change` look at the part of each piece that is between these grains.
    fn each(&mut self, from: u32, to: u32, mut change: impl FnMut(u32, &mut Piece)) {
        let mut pieces: Vec<Piece> = Vec::with_capacity(self.pieces.len() + 2);
        let mut at = 0;
        for piece in std::mem::take(&mut self.pieces) {
            let end = at + piece.grains;
            let cuts = [at, from.clamp(at, end), to.clamp(at, end), end];
            for (part, cut) in cuts.windows(2).enumerate().filter(|(_, cut)| cut[0] < cut[1]) {
                let mut new = Piece { grains: cut[1] - cut[0], ..piece };
                if let Some(place) = &mut new.place {
                    place.block += self.begin(cut[0]) - self.begin(at);
                }
                if part == 1 {
                    change(self.begin(cut[0]), &mut new);
                }
                let (start, grains) = (pieces.iter().map(|piece| piece.grains).sum::<u32>(), new.grains);
                match pieces.last_mut() {
                    Some(last) if last.refs == new.refs && self.follows(last, start, &new) => last.grains += grains,
                    _ => pieces.push(new),
                }
            }
            at = end;
        }
        self.pieces = pieces;
    }

    /// Whether a piece goes on where one ends that ends with grain `end`.
    fn follows(&self, last: &Piece, end: u32, next: &Piece) -> bool {
        match (last.place, next.place) {
            (None, None) => true,
            (Some(last_at), Some(next_at)) => {
                let blocks = self.begin(end) - self.begin(end - last.grains);
                Place { block: last_at.block + blocks, ..last_at } == next_at
            }
            _ => false,
        }
    }

    /// One more extent names these blocks.
    pub fn name(&mut self, first: u32, blocks: u32) {
        let (first, blocks) = self.stored(first, blocks);
        let (from, to) = self.grains(first, blocks);
        self.each(from, to, |_, piece| piece.refs = piece.refs.saturating_add(1));
    }

    /// One extent less names them. Returns what is dead now and stood on the drive, and whether it was named at all.
    pub fn unname(&mut self, first: u32, blocks: u32) -> (Vec<(Place, u32)>, bool) {
        let (mut dead, mut known) = (Vec::new(), first + blocks <= self.named);
        let (first, blocks) = self.stored(first, blocks);
        let (from, to) = self.grains(first, blocks);
        let (grain, all) = (self.grain, self.blocks);
        let blocks_of = |first: u32, grains: u32| (first + (grains << grain)).min(all) - first;
        let mut gone = Vec::new();
        self.each(from, to, |begin, piece| {
            known &= piece.refs > 0;
            piece.refs = piece.refs.saturating_sub(1);
            if piece.refs == 0 {
                gone.push((begin >> grain, piece.grains));
                dead.extend(piece.place.take().map(|place| (place, blocks_of(begin, piece.grains))));
            }
        });
        for (first, grains) in gone {
            self.sums[first as usize..(first + grains) as usize].fill(0);
        }
        (dead, known)
    }

    /// Whether nobody names any of it.
    pub fn is_dead(&self) -> bool {
        self.pieces.iter().all(|piece| piece.refs == 0)
    }

    /// These blocks, which begin and end with grains, stand here now, as far as they live and had no place. Returns how many these are.
    pub fn put(&mut self, first: u32, blocks: u32, to: Place) -> u32 {
        let (from, end) = self.grains(first, blocks);
        let (grain, all, mut put) = (self.grain, self.blocks, 0);
        self.each(from, end, |begin, piece| {
            if piece.refs > 0 && piece.place.is_none() {
                piece.place = Some(Place { block: to.block + begin - first, ..to });
                put += (begin + (piece.grains << grain)).min(all) - begin;
            }
        });
        put
    }

    /// What of these blocks, which begin and end with grains, stands where `from` says goes to `to`. Returns how many these are.
    pub fn relocate(&mut self, first: u32, blocks: u32, from: Place, to: Place) -> u32 {
        let (begin, end) = self.grains(first, blocks);
        let (grain, all, mut moved) = (self.grain, self.blocks, 0);
        self.each(begin, end, |begin, piece| {
            let at = |place: Place| Place { block: place.block + begin - first, ..place };
            if piece.refs > 0 && piece.place == Some(at(from)) {
                piece.place = Some(at(to));
                moved += (begin + (piece.grains << grain)).min(all) - begin;
            }
        });
        moved
    }

    fn runs(&self) -> impl Iterator<Item = (Run, u32)> {
        let mut at = 0;
        self.pieces.iter().map(move |piece| {
            let first = self.begin(at);
            at += piece.grains;
            (Run { first, blocks: self.begin(at) - first, place: piece.place }, piece.refs)
        })
    }

    /// What lives of it.
    pub fn living(&self) -> impl Iterator<Item = Run> {
        self.runs().filter(|(_, refs)| *refs > 0).map(|(run, _)| run)
    }

    /// Units of so many blocks, of those that these blocks of a zone are in, in which nothing of it lives.
    pub fn dead_units(&self, unit: u32, at: Place, blocks: u32) -> Vec<Units> {
        let there: Vec<(u32, u32)> = self
            .living()
            .filter_map(|run| Some((run.place?, run.blocks)))
            .filter(|(place, _)| (place.zone, place.life) == (at.zone, at.life))
            .map(|(place, blocks)| (place.block, place.block + blocks))
            .collect();
        let mut dead: Vec<Units> = Vec::new();
        for n in at.block / unit..at.block.saturating_add(blocks).div_ceil(unit) {
            let (from, to) = (u64::from(n) * u64::from(unit), (u64::from(n) + 1) * u64::from(unit));
            if there.iter().any(|(first, end)| u64::from(*first) < to && from < u64::from(*end)) {
                continue;
            }
            match dead.last_mut() {
                Some(last) if last.first + last.units == n => last.units += 1,
                _ => dead.push(Units { zone: at.zone, first: n, units: 1 }),
            }
        }
        dead
    }

    /// What has no place yet.
    pub fn deferred(&self) -> impl Iterator<Item = Run> {
        self.living().filter(|run| run.place.is_none())
    }

    /// Whether others than these extents name grains of the first one's blocks. Each is a first block and blocks.
    pub fn is_shared(&self, (first, blocks): (u32, u32), extents: &[(u32, u32)]) -> bool {
        let own = |grain: u32| {
            let touches = |of: &&(u32, u32)| {
                let (first, blocks) = self.stored(of.0, of.1);
                let (from, to) = self.grains(first, blocks);
                (from..to).contains(&grain)
            };
            extents.iter().filter(touches).count() as u32
        };
        let (first, blocks) = self.stored(first, blocks);
        let (from, to) = self.grains(first, blocks);
        let mut at = 0;
        self.pieces.iter().any(|piece| {
            let of = at.max(from)..(at + piece.grains).min(to);
            at += piece.grains;
            of.into_iter().any(|grain| piece.refs > own(grain))
        })
    }

    /// How many extents name each block.
    pub fn counts(&self) -> Vec<u32> {
        if self.codec != Compression::Off {
            return vec![self.pieces.first().map_or(0, |piece| piece.refs); self.named as usize];
        }
        self.runs().flat_map(|(run, refs)| std::iter::repeat_n(refs, run.blocks as usize)).collect()
    }

    /// Where these blocks are; `None`: not all of them live.
    pub fn find(&self, first: u32, blocks: u32) -> Option<Vec<Run>> {
        let end = first.checked_add(blocks).filter(|end| *end <= self.blocks)?;
        let mut found = Vec::new();
        for (run, refs) in self.runs() {
            let (from, to) = (run.first.max(first), (run.first + run.blocks).min(end));
            if from >= to {
                continue;
            }
            if refs == 0 {
                return None;
            }
            let place = run.place.map(|place| Place { block: place.block + from - run.first, ..place });
            found.push(Run { first: from, blocks: to - from, place });
        }
        Some(found)
    }

    /// Whether these bytes are whole grains of it, from block `first` on: the first block of the grain that is not what it was.
    pub fn verify(&self, first: u32, bytes: &[u8]) -> Option<u32> {
        let from = self.grain_of(first) as usize;
        let grains = bytes.chunks((BLOCK as usize) << self.grain);
        let wrong = grains.zip(&self.sums[from..]).position(|(grain, sum)| self.checksum.of(grain) != *sum);
        wrong.map(|n| self.begin((from + n) as u32))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.offset);
        out.push(kind(self.grain, self.codec, self.checksum));
        put_varint(&mut out, self.blocks.into());
        if self.codec != Compression::Off {
            put_varint(&mut out, self.named.into());
        }
        let mut grain = 0usize;
        for piece in &self.pieces {
            put_varint(&mut out, piece.grains.into());
            put_varint(&mut out, piece.refs.into());
            let end = grain + piece.grains as usize;
            if piece.refs > 0 {
                put_varint(&mut out, piece.place.map_or(0, |place| u64::from(place.zone) + 1));
                if let Some(place) = piece.place {
                    put_varint(&mut out, place.block.into());
                    out.extend_from_slice(&place.life.to_le_bytes());
                }
                self.sums[grain..end].iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
            }
            grain = end;
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Blob> {
        let mut from = Reader(bytes);
        let (offset, head, blocks) = (from.varint()?, from.byte()?, from.small::<u32>()?);
        let (grain, codec, checksum) = of_kind(head)?;
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            return None;
        }
        let grains = blocks.div_ceil(1 << grain);
        let named = match codec {
            Compression::Off => blocks,
            _ => from.small::<u32>().filter(|named| grains == 1 && (blocks..=TOGETHER).contains(named))?,
        };
        let (mut pieces, mut sums) = (Vec::new(), Vec::with_capacity(grains as usize));
        while (sums.len() as u32) < grains {
            let (n, refs) = (from.small::<u32>()?, from.small::<u32>()?);
            if n == 0 || n > grains - sums.len() as u32 {
                return None;
            }
            let mut place = None;
            if refs > 0 {
                if let Some(zone) = from.small::<u32>()?.checked_sub(1) {
                    let (block, life) = (from.small::<u32>()?, from.u32()?);
                    // No zone has as many blocks, and sums of places are numbers.
                    (block < 1 << 31).then_some(())?;
                    place = Some(Place { zone, block, life });
                }
                for _ in 0..n {
                    sums.push(from.u32()?);
                }
            } else {
                sums.resize(sums.len() + n as usize, 0);
            }
            pieces.push(Piece { grains: n, refs, place });
        }
        from.is_empty().then_some(Blob { offset, grain, blocks, named, codec, checksum, pieces, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(blocks: u32) -> Vec<u8> {
        (0..u64::from(blocks) * BLOCK).map(|n| (n / 7 + n % 251) as u8).collect()
    }

    fn at(block: u32) -> Place {
        Place { zone: 3, block, life: 9 }
    }

    #[test]
    fn what_is_overwritten_in_the_middle_leaves_two_pieces() {
        let mut blob = Blob::new(5, 0, Checksum::Crc32c, &bytes(8));
        blob.name(0, 8);
        assert_eq!(blob.put(0, 8, at(100)), 8);
        // An extent of all blocks becomes two.
        blob.name(0, 3);
        blob.name(5, 3);
        assert_eq!(blob.unname(0, 8), (vec![(at(103), 2)], true));
        let run = |first, blocks, block| Run { first, blocks, place: Some(at(block)) };
        assert_eq!(blob.living().collect::<Vec<_>>(), [run(0, 3, 100), run(5, 3, 105)]);
        assert_eq!(blob.find(1, 2), Some(vec![run(1, 2, 101)]));
        assert_eq!(blob.find(2, 2), None);
        assert_eq!(blob.counts(), [1, 1, 1, 0, 0, 1, 1, 1]);
        assert_eq!(Blob::decode(&blob.encode()), Some(blob.clone()));
        assert_eq!(blob.unname(3, 1), (vec![], false));
    }

    #[test]
    fn a_grain_lives_as_long_as_one_of_its_blocks() {
        let all = bytes(10);
        let mut blob = Blob::new(0, 2, Checksum::Crc32c, &all);
        blob.name(0, 10);
        assert_eq!(blob.whole(5, 1), (4, 4));
        assert_eq!(blob.whole(9, 1), (8, 2));
        blob.put(0, 10, at(0));
        blob.name(0, 5);
        blob.name(6, 4);
        assert_eq!(blob.unname(0, 10).0, []);
        assert_eq!(blob.unname(6, 4).0, [(at(8), 2)]);
        assert_eq!(blob.verify(4, &all[4 * 4096..8 * 4096]), None);
        let mut wrong = all[..8 * 4096].to_vec();
        wrong[5 * 4096] ^= 1;
        assert_eq!(blob.verify(0, &wrong), Some(4));
    }

    #[test]
    fn what_is_compressed_lives_and_moves_as_one() {
        let mut blob = Blob::compressed(3, (Compression::Lz4, 20), Checksum::Xxh3, &bytes(5));
        blob.name(0, 20);
        assert_eq!((blob.grain(), blob.together(), blob.whole(7, 1)), (3, 20, (0, 5)));
        assert_eq!(blob.put(0, 5, at(100)), 5);
        blob.name(0, 4);
        blob.name(8, 12);
        assert_eq!(blob.unname(0, 20), (vec![], true));
        assert_eq!(blob.counts(), vec![2; 20]);
        assert!(blob.is_shared((8, 12), &[(8, 12)]) && !blob.is_shared((8, 12), &[(8, 12), (0, 4)]));
        assert_eq!(blob.relocate(0, 5, at(100), at(300)), 5);
        assert_eq!(blob.find(0, 5).map(|runs| runs[0].place), Some(Some(at(300))));
        assert_eq!(blob.verify(0, &bytes(5)), None);
        assert_eq!(Blob::decode(&blob.encode()), Some(blob.clone()));
        assert_eq!(blob.unname(8, 13), (vec![], false));
        assert_eq!(blob.unname(0, 4), (vec![(at(300), 5)], true));
        assert!(blob.is_dead());
        // One of more blocks than were compressed, or of several grains.
        let mut record = Blob::compressed(3, (Compression::Zstd, 20), Checksum::Xxh3, &bytes(5)).encode();
        assert!(Blob::decode(&record).is_some());
        record[1] -= 1;
        assert_eq!(Blob::decode(&record), None);
    }

    #[test]
    fn a_unit_is_dead_when_none_of_its_blocks_lives() {
        let mut blob = Blob::new(0, 0, Checksum::Crc32c, &bytes(10));
        blob.name(0, 10);
        // Two pieces, each in units of its own.
        blob.put(0, 6, at(8));
        blob.put(6, 4, at(40));
        let units = |first, units| Units { zone: 3, first, units };
        assert_eq!(blob.dead_units(4, at(8), 6), []);
        let gone = |blob: &mut Blob, first, blocks| {
            let (dead, _) = blob.unname(first, blocks);
            dead.into_iter().flat_map(|(place, blocks)| blob.dead_units(4, place, blocks)).collect::<Vec<_>>()
        };
        assert_eq!(gone(&mut blob, 1, 3), []);
        assert_eq!(gone(&mut blob, 0, 1), [units(2, 1)]);
        assert_eq!(gone(&mut blob, 4, 1), []);
        assert_eq!(gone(&mut blob, 5, 5), [units(3, 1), units(10, 1)]);
        assert_eq!(blob.dead_units(1, at(8), 3), [units(8, 3)]);
        assert_eq!(blob.dead_units(4, at(u32::MAX - 3), 3).len(), 1);
    }

    #[test]
    fn a_place_behind_any_zone_is_refused() {
        let mut blob = Blob::new(0, 0, Checksum::Crc32c, &bytes(9));
        blob.name(0, 9);
        blob.put(0, 9, at((1 << 31) - 1));
        assert!(Blob::decode(&blob.encode()).is_some());
        blob.relocate(0, 9, at((1 << 31) - 1), at(u32::MAX - MAX_BLOCKS));
        assert_eq!(Blob::decode(&blob.encode()), None);
    }

    #[test]
    fn what_has_moved_meanwhile_stays_where_it_is() {
        let mut blob = Blob::new(0, 1, Checksum::Crc32c, &bytes(9));
        blob.name(0, 9);
        blob.put(0, 9, at(100));
        blob.unname(2, 2);
        // The first two blocks, and the last five, of which one grain is short.
        assert_eq!(blob.relocate(4, 2, at(104), Place { zone: 5, block: 7, life: 1 }), 2);
        assert_eq!(blob.relocate(0, 9, at(100), at(300)), 5);
        let found = |first, blocks| blob.find(first, blocks).map(|runs| runs[0].place);
        assert_eq!(found(4, 2), Some(Some(Place { zone: 5, block: 7, life: 1 })));
        assert_eq!((found(0, 2), found(8, 1)), (Some(Some(at(300))), Some(Some(at(308)))));
        assert_eq!(blob.relocate(0, 9, at(100), at(500)), 0);
        assert_eq!(Blob::decode(&blob.encode()), Some(blob));
    }

    proptest! {
        #[test]
        fn counts_and_places_are_those_of_single_blocks(
            grain in 0..=MAX_GRAIN, blocks in 1..=MAX_BLOCKS, ops in prop::collection::vec((0..3u8, 0..64u32, 1..=64u32), 1..40),
        ) {
            let mut blob = Blob::new(1, grain, Checksum::Crc32c, &bytes(blocks));
            let size = 1 << grain;
            // A new blob is named as a whole.
            blob.name(0, blocks);
            let mut counts = vec![1u32; blocks.div_ceil(size) as usize];
            let mut places = vec![None; counts.len()];
            let mut named = vec![(0, blocks)];
            for (n, (op, first, len)) in ops.into_iter().enumerate() {
                let first = first % blocks;
                let len = len.min(blocks - first);
                match op {
                    0 => {
                        blob.name(first, len);
                        named.push((first, len));
                        (first / size..=(first + len - 1) / size).for_each(|grain| counts[grain as usize] += 1);
                    }
                    1 if !named.is_empty() => {
                        let (first, len) = named.swap_remove(first as usize % named.len());
                        let (dead, known) = blob.unname(first, len);
                        prop_assert!(known);
                        let mut was = 0;
                        for grain in first / size..=(first + len - 1) / size {
                            counts[grain as usize] -= 1;
                            if counts[grain as usize] == 0 && places[grain as usize].take().is_some() {
                                was += size.min(blocks - grain * size);
                            }
                        }
                        prop_assert_eq!(dead.iter().map(|(_, blocks)| blocks).sum::<u32>(), was);
                    }
                    _ => {
                        let (first, len) = blob.whole(first, len);
                        let base = n as u32 * 1000;
                        let mut new = 0;
                        for grain in first / size..(first + len).div_ceil(size) {
                            if counts[grain as usize] > 0 && places[grain as usize].is_none() {
                                places[grain as usize] = Some(base + grain * size - first);
                                new += size.min(blocks - grain * size);
                            }
                        }
                        prop_assert_eq!(blob.put(first, len, at(base)), new);
                    }
                }
                let expected: Vec<u32> = (0..blocks).map(|block| counts[(block / size) as usize]).collect();
                prop_assert_eq!(blob.counts(), expected);
                for run in blob.living() {
                    for block in run.first..run.first + run.blocks {
                        let place = places[(block / size) as usize].map(|at| at + block % size);
                        prop_assert_eq!(run.place.map(|place| place.block + block - run.first), place);
                    }
                }
                let again = Blob::decode(&blob.encode());
                prop_assert_eq!(again.as_ref(), Some(&blob));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(blob) = Blob::decode(&bytes) {
                prop_assert_eq!(Blob::decode(&blob.encode()), Some(blob));
            }
        }
    }
}
