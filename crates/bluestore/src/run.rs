//! A run: blocks of blobs that were written together, behind a header that says whose they are. So the cleaner and a [salvage](crate::salvage) need nobody else to know
//! what stands in a zone.
//!
//! ```text
//!   0     8        12      16     20      24     32     40      56    60   64    68
//!   magic version  length  crc    pieces  life   group  volume  zone  at   mount pieces, 24 bytes each: object, blob, offset, first, blocks, blocks
//!   of the blob, grain, compression and kind of checksum; checksums of the grains of all pieces, 4 bytes each; a name for each piece of another object than
//!   the piece before it; zeros
//! ```
//!
//! A header names the place that it stands at, so that bytes that a user wrote are never taken for one.

use crate::blob::{BLOCK, Blob, BlobId, MAX_BLOCKS, kind, of_kind};
use crate::checksum::Checksum;
use crate::codec::{MAX_NUMBER, Reader};
use crate::compress::{Compression, TOGETHER};
use crate::names::{self, Name, UNNAMED};
use std::sync::Arc;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBXruns";
const VERSION: u32 = 4;
/// A header has at most so many blocks. Whoever looks for what a zone has reads one after the other, and a disk waits for each.
pub(crate) const LONGEST: usize = 8;
/// Bytes of names that a run may have in any case, and for each block of data.
const NAMES: usize = 512;
const NAMES_A_BLOCK: usize = 16;
const HEAD: usize = size_of::<RawHeader>();
const PIECE: usize = size_of::<RawPiece>();
const SUM: usize = 4;
/// Blocks of data that each block of a header has at least, where runs are long.
pub(crate) const A_BLOCK: usize = (BLOCK as usize - HEAD) / (PIECE + SUM + NAMES_A_BLOCK);

/// Blocks that headers take at most of so many blocks in so many pieces, where they are all in one run.
pub(crate) fn most_header_blocks(pieces: u64, blocks: u64) -> u64 {
    let bytes = pieces * PIECE as u64 + blocks * (SUM + NAMES_A_BLOCK) as u64;
    bytes.div_ceil(BLOCK - HEAD as u64) + 1
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    pieces: U32,
    life: U64,
    group: U64,
    volume: [u8; 16],
    zone: U32,
    at: U32,
    mount: U32,
}
const _: () = assert!(size_of::<RawHeader>() == 68);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawPiece {
    onode: U64,
    blob: U64,
    offset: U32,
    first: u8,
    blocks: u8,
    named: u8,
    kind: u8,
}
const _: () = assert!(size_of::<RawPiece>() == 24);

/// Blocks of a blob in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPiece {
    pub blob: BlobId,
    /// Where the blob is in its object, in blocks.
    pub offset: u64,
    /// The first of them, in the blob.
    pub first: u32,
    pub blocks: u32,
    /// Blocks of a grain, as a power of two.
    pub grain: u8,
    pub codec: Compression,
    pub checksum: Checksum,
    /// Blocks of the object that all of the blob stands for.
    pub named: u32,
}

impl RunPiece {
    /// Stored blocks of a blob.
    pub fn of_blob(id: BlobId, of: &Blob, first: u32, blocks: u32) -> RunPiece {
        let (grain, codec, checksum) = (of.grain(), of.codec(), of.checksum());
        RunPiece { blob: id, offset: of.offset, first, blocks, grain, codec, checksum, named: of.named }
    }

    /// Grains that it has.
    pub fn grains(&self) -> usize {
        self.blocks.div_ceil(1 << self.grain) as usize
    }

    /// As a header has it.
    pub fn encode(&self) -> Vec<u8> {
        self.raw().as_bytes().to_vec()
    }

    pub fn decode(bytes: &[u8]) -> Option<RunPiece> {
        RunPiece::of(&RawPiece::read_from_bytes(bytes).ok()?)
    }

    fn raw(&self) -> RawPiece {
        RawPiece {
            onode: self.blob.onode.into(),
            blob: self.blob.number.into(),
            offset: (self.offset as u32).into(),
            first: self.first as u8,
            blocks: self.blocks as u8,
            named: self.named as u8,
            kind: kind(self.grain, self.codec, self.checksum),
        }
    }

    /// `None`: it makes no sense.
    fn of(raw: &RawPiece) -> Option<RunPiece> {
        let (grain, codec, checksum) = of_kind(raw.kind)?;
        let piece = RunPiece {
            blob: BlobId { onode: raw.onode.get(), number: raw.blob.get() },
            offset: raw.offset.get().into(),
            first: raw.first.into(),
            blocks: raw.blocks.into(),
            grain,
            codec,
            checksum,
            named: raw.named.into(),
        };
        let RunPiece { blob, first, blocks, named, .. } = piece;
        let within = blocks > 0 && first + blocks <= MAX_BLOCKS && first % (1 << grain) == 0;
        let whole = match codec {
            Compression::Off => first + blocks <= named && named <= MAX_BLOCKS,
            _ => first == 0 && blocks <= 1 << grain && (blocks..=TOGETHER).contains(&named),
        };
        (within && whole && blob.onode <= MAX_NUMBER && blob.number <= MAX_NUMBER).then_some(piece)
    }
}

/// Where a header stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub volume: [u8; 16],
    pub zone: u32,
    /// In blocks from the zone's start.
    pub block: u32,
}

/// What a run's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunHeader {
    pub at: At,
    /// Blocks that it takes.
    pub blocks: u32,
    /// The zone's.
    pub life: u64,
    /// That of the volume (its low 32 bits) when it was written. Of two blobs of one number the later counts.
    pub mount: u32,
    /// Number of the commit that wrote it.
    pub group: u64,
    /// Their blocks follow in this order.
    pub pieces: Vec<RunPiece>,
    /// Checksums of the grains of all pieces.
    pub sums: Vec<u32>,
    /// Objects by their numbers, as far as their names are known.
    pub names: Vec<(u64, Name)>,
}

/// What is to be written as a run.
#[derive(Default)]
pub(crate) struct Building {
    pieces: Vec<RawPiece>,
    sums: Vec<u32>,
    names: Vec<u8>,
    /// Bytes that names may still take.
    credit: usize,
    last: Option<u64>,
    name: Option<Arc<Name>>,
}

fn blocks_of_bytes(bytes: usize) -> u32 {
    bytes.div_ceil(BLOCK as usize) as u32
}

impl Building {
    fn bytes(&self) -> usize {
        HEAD + self.pieces.len() * PIECE + self.sums.len() * SUM + self.names.len()
    }

    /// Blocks of the header.
    pub fn blocks(&self) -> u32 {
        blocks_of_bytes(self.bytes())
    }

    /// How many blocks it has at most with another piece; `None`: more than a header may have.
    pub fn blocks_with(&self, piece: &RunPiece) -> Option<u32> {
        let names = self.names.len() + self.credit + NAMES_A_BLOCK * piece.blocks as usize;
        let names = names.max(NAMES + NAMES_A_BLOCK * piece.blocks as usize);
        let bytes = HEAD + (self.pieces.len() + 1) * PIECE + (self.sums.len() + piece.grains()) * SUM + names;
        Some(blocks_of_bytes(bytes)).filter(|blocks| *blocks as usize <= LONGEST)
    }

    /// Adds a piece. `sums`: those of its grains; `name`: what its object is called, if somebody knows.
    pub fn add(&mut self, piece: &RunPiece, sums: &[u32], name: Option<Arc<Name>>) {
        if self.pieces.is_empty() {
            self.credit = NAMES;
        }
        self.credit += NAMES_A_BLOCK * piece.blocks as usize;
        if self.last.replace(piece.blob.onode) != Some(piece.blob.onode) {
            let encoded = name.as_ref().and_then(|name| names::encode(name, self.name.as_deref()));
            match encoded.filter(|encoded| encoded.len() <= self.credit) {
                Some(encoded) => {
                    self.names.extend_from_slice(&encoded);
                    self.credit -= encoded.len();
                    self.name = name;
                }
                None => {
                    self.names.extend_from_slice(&UNNAMED);
                    self.credit = self.credit.saturating_sub(UNNAMED.len());
                }
            }
        }
        self.pieces.push(piece.raw());
        self.sums.extend_from_slice(sums);
    }

    /// The header, into the first [`Building::blocks`] of these bytes.
    pub fn encode_into(&self, (at, life, mount, group): (At, u64, u32, u64), bytes: &mut [u8]) {
        let block = &mut bytes[..self.blocks() as usize * BLOCK as usize];
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: (block.len() as u32).into(),
            crc: 0.into(),
            pieces: (self.pieces.len() as u32).into(),
            life: life.into(),
            group: group.into(),
            volume: at.volume,
            zone: at.zone.into(),
            at: at.block.into(),
            mount: mount.into(),
        };
        let (head, rest) = block.split_at_mut(HEAD);
        rest.fill(0);
        let (pieces, rest) = rest.split_at_mut(self.pieces.len() * PIECE);
        pieces.copy_from_slice(self.pieces.as_bytes());
        let (sums, rest) = rest.split_at_mut(self.sums.len() * SUM);
        self.sums.iter().zip(sums.chunks_exact_mut(SUM)).for_each(|(sum, to)| to.copy_from_slice(&sum.to_le_bytes()));
        rest[..self.names.len()].copy_from_slice(&self.names);
        head.copy_from_slice(raw.as_bytes());
        raw.crc = crc32c::crc32c(block).into();
        block[..HEAD].copy_from_slice(raw.as_bytes());
    }
}

impl RunHeader {
    /// Blocks of the header that begins with this one, if one does.
    pub fn blocks_of(first: &[u8]) -> Option<u32> {
        let (raw, _) = RawHeader::read_from_prefix(first).ok()?;
        let (length, pieces) = (raw.length.get() as usize, raw.pieces.get() as usize);
        let whole = length.is_multiple_of(BLOCK as usize) && (1..=LONGEST).contains(&(length / BLOCK as usize));
        let fits = pieces.checked_mul(PIECE + SUM).is_some_and(|bytes| HEAD + bytes <= length);
        let known = raw.magic == MAGIC && raw.version.get() == VERSION;
        (known && whole && fits).then_some((length / BLOCK as usize) as u32)
    }

    /// `None`: no header of this version stands there, or not all of it.
    pub fn decode(bytes: &[u8]) -> Option<RunHeader> {
        let blocks = RunHeader::blocks_of(bytes)?;
        let (raw, rest) = RawHeader::read_from_prefix(bytes.get(..blocks as usize * BLOCK as usize)?).ok()?;
        let unsummed = RawHeader { crc: 0.into(), ..raw.clone() };
        if crc32c::crc32c_append(crc32c::crc32c(unsummed.as_bytes()), rest) != raw.crc.get() {
            return None;
        }
        let (pieces, rest) = rest.split_at_checked(raw.pieces.get() as usize * PIECE)?;
        let pieces = pieces.chunks_exact(PIECE).map(|bytes| RunPiece::of(&RawPiece::read_from_bytes(bytes).ok()?));
        let pieces = pieces.collect::<Option<Vec<_>>>()?;
        let grains = pieces.iter().map(RunPiece::grains).sum::<usize>();
        let mut rest = Reader(rest);
        let sums = (0..grains).map(|_| rest.u32()).collect::<Option<Vec<_>>>()?;
        let (mut names, mut last) = (Vec::<(u64, Name)>::new(), None);
        for piece in &pieces {
            let number = piece.blob.onode;
            if last.replace(number) != Some(number) {
                let name = names::decode(&mut rest, names.last().map(|(_, name)| name))?;
                names.extend(name.map(|name| (number, name)));
            }
        }
        let at = At { volume: raw.volume, zone: raw.zone.get(), block: raw.at.get() };
        Some(RunHeader {
            at,
            blocks,
            life: raw.life.get(),
            mount: raw.mount.get(),
            group: raw.group.get(),
            pieces,
            sums,
            names,
        })
    }

    /// Each piece with the checksums of its grains.
    pub fn summed(&self) -> impl Iterator<Item = (&RunPiece, &[u32])> {
        let mut at = 0;
        self.pieces.iter().map(move |piece| {
            let sums = self.sums.get(at..at + piece.grains()).unwrap_or_default();
            at += piece.grains();
            (piece, sums)
        })
    }

    /// Blocks of data that follow it.
    pub fn data(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.blocks)).sum()
    }

    /// As it was built, but without names.
    pub fn building(&self) -> Building {
        let mut building = Building::default();
        self.summed().for_each(|(piece, sums)| building.add(piece, sums, None));
        building
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ObjectId;

    const AT: At = At { volume: [4; 16], zone: 7, block: 9 };

    fn piece(onode: u64, blocks: u32) -> RunPiece {
        let blob = BlobId { onode, number: MAX_NUMBER.saturating_sub(onode) };
        let (codec, checksum) = (Compression::Off, Checksum::Crc32c);
        RunPiece { blob, offset: onode * 3, first: 0, blocks, grain: 0, codec, checksum, named: blocks }
    }

    fn name(n: u64) -> Arc<Name> {
        Arc::new(Name {
            id: ObjectId::new(1, b"", format!("object {n}").as_bytes()),
            size: n,
            version: n,
            next_blob: n,
        })
    }

    fn built(n: u64, blocks: u32) -> Building {
        let mut building = Building::default();
        for n in 0..n {
            let piece = piece(n / 2, blocks);
            assert!(building.blocks_with(&piece).is_some(), "{n}");
            building.add(&piece, &vec![n as u32; piece.grains()], (n % 3 > 0).then(|| name(n / 2)));
        }
        building
    }

    #[test]
    fn a_header_comes_back_and_a_flipped_bit_does_not() {
        for (n, blocks) in [(0, 1), (1, 1), (1, 64), (A_BLOCK as u64, 1), (A_BLOCK as u64 + 9, 1), (600, 1), (20, 64)] {
            let building = built(n, blocks);
            let mut block = vec![0xee; building.blocks() as usize * BLOCK as usize];
            building.encode_into((AT, 5, 7, 6), &mut block);
            assert_eq!(RunHeader::blocks_of(&block[..BLOCK as usize]), Some(building.blocks()));
            assert_eq!(RunHeader::decode(&block[..block.len() - 1]), None);
            let header = RunHeader::decode(&block).unwrap();
            assert_eq!((header.at, header.life, header.mount, header.group), (AT, 5, 7, 6));
            assert_eq!(header.pieces.len() as u64, n);
            assert_eq!(header.data(), n * u64::from(blocks));
            for (at, (piece, sums)) in header.summed().enumerate() {
                assert_eq!(*piece, self::piece(at as u64 / 2, blocks));
                assert_eq!(sums, vec![at as u32; blocks as usize]);
            }
            // Both pieces of an object have the name that came with the first.
            let named: Vec<_> = (0..n.div_ceil(2)).filter(|n| n * 2 % 3 > 0).collect();
            assert_eq!(header.names, named.iter().map(|n| (*n, (*name(*n)).clone())).collect::<Vec<_>>());
            for at in (0..block.len()).step_by(61) {
                block[at] ^= 4;
                assert_eq!(RunHeader::decode(&block), None, "{at}");
                block[at] ^= 4;
            }
        }
        assert_eq!(RunHeader::decode(&[0; 100]), None);
    }

    #[test]
    fn headers_take_no_more_than_was_counted_for_them_whatever_names_are() {
        let long = |n: u64| {
            Arc::new(Name {
                id: ObjectId { hash: 3, ..ObjectId::new(n as i64, &[n as u8; 500], &[n as u8; 500]) },
                size: 1 << 39,
                version: n << 40,
                next_blob: MAX_NUMBER,
            })
        };
        for blocks in [1, 3, 64] {
            let (mut building, mut n) = (Building::default(), 0);
            while let Some(most) = building.blocks_with(&piece(n, blocks)) {
                building.add(&piece(n, blocks), &vec![1; blocks as usize], Some(long(n)));
                n += 1;
                assert!(building.blocks() <= most);
                assert!(
                    u64::from(building.blocks()) <= most_header_blocks(n, n * u64::from(blocks)),
                    "{n} of {blocks}"
                );
            }
            assert!(n * u64::from(blocks) >= (LONGEST * A_BLOCK) as u64 - 16, "{n} of {blocks}");
        }
    }

    #[test]
    fn pieces_that_make_no_sense_are_refused() {
        let fine = RunPiece {
            blocks: 3,
            named: 20,
            grain: 2,
            codec: Compression::Zstd,
            checksum: Checksum::Xxh3,
            ..piece(1, 3)
        };
        assert_eq!(RunPiece::of(&fine.raw()), Some(fine));
        for wrong in [
            RunPiece { blocks: 0, ..fine },
            RunPiece { blocks: 5, ..fine },
            RunPiece { named: 2, ..fine },
            RunPiece { named: 33, ..fine },
            RunPiece { first: 4, ..fine },
            RunPiece { grain: 6, ..fine },
            RunPiece { blocks: 60, first: 8, ..piece(1, 64) },
            RunPiece { blocks: 4, first: 61, ..piece(1, 64) },
            RunPiece { first: 1, blocks: 2, grain: 1, ..piece(1, 64) },
            piece(MAX_NUMBER + 1, 1),
        ] {
            assert_eq!(RunPiece::of(&wrong.raw()), None, "{wrong:?}");
        }
    }
}
