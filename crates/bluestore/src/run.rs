//! A run: blocks of blobs that were written together, behind a header that says whose they are. So the cleaner and a salvage need nobody else to know what
//! stands in a zone.
//!
//! ```text
//!   0     8        12      16     20      24     32       40
//!   magic version  length  crc    pieces  life   group    pieces, 32 bytes each: object, blob, offset, first block in the blob, blocks
//! ```

use crate::blob::{BLOCK, BlobId};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBXruns";
const VERSION: u32 = 2;
/// A header has at most so many blocks. Whoever looks for what a zone has reads one after the other, and a disk waits for each.
pub(crate) const LONGEST: usize = 8;
/// Most pieces of a run.
pub(crate) const MOST: usize = (LONGEST * BLOCK as usize - size_of::<RawHeader>()) / size_of::<RawPiece>();
/// Pieces that each block of a header has at least.
pub(crate) const A_BLOCK: usize = (BLOCK as usize - size_of::<RawHeader>()) / size_of::<RawPiece>();

/// Blocks of the header of a run of so many pieces.
pub(crate) fn header_blocks(pieces: usize) -> u32 {
    (size_of::<RawHeader>() + pieces * size_of::<RawPiece>()).div_ceil(BLOCK as usize) as u32
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
}
const _: () = assert!(size_of::<RawHeader>() == 40);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawPiece {
    onode: U64,
    blob: U64,
    offset: U64,
    first: U32,
    blocks: U32,
}
const _: () = assert!(size_of::<RawPiece>() == 32);

/// Blocks of a blob in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPiece {
    pub blob: BlobId,
    /// Where the blob is in its object, in blocks.
    pub offset: u64,
    /// The first of them, in the blob.
    pub first: u32,
    pub blocks: u32,
}

/// What a run's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunHeader {
    /// The zone's.
    pub life: u64,
    /// Number of the commit that wrote it.
    pub group: u64,
    /// At most [`MOST`]; their blocks follow in this order.
    pub pieces: Vec<RunPiece>,
}

impl RunHeader {
    /// Blocks that it takes.
    pub fn blocks(&self) -> u32 {
        header_blocks(self.pieces.len())
    }

    /// Into the first [`RunHeader::blocks`] of these bytes.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let block = &mut bytes[..self.blocks() as usize * BLOCK as usize];
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: (block.len() as u32).into(),
            crc: 0.into(),
            pieces: (self.pieces.len() as u32).into(),
            life: self.life.into(),
            group: self.group.into(),
        };
        let (head, rest) = block.split_at_mut(size_of::<RawHeader>());
        rest.fill(0);
        for (piece, to) in self.pieces.iter().zip(rest.chunks_exact_mut(size_of::<RawPiece>())) {
            let RunPiece { blob: BlobId { onode, number }, offset, first, blocks } = *piece;
            let raw = RawPiece {
                onode: onode.into(),
                blob: number.into(),
                offset: offset.into(),
                first: first.into(),
                blocks: blocks.into(),
            };
            to.copy_from_slice(raw.as_bytes());
        }
        head.copy_from_slice(raw.as_bytes());
        raw.crc = crc32c::crc32c(block).into();
        block[..size_of::<RawHeader>()].copy_from_slice(raw.as_bytes());
    }

    /// Blocks of the header that begins with this one, if one does.
    pub fn blocks_of(first: &[u8]) -> Option<u32> {
        let (raw, _) = RawHeader::read_from_prefix(first).ok()?;
        let blocks = header_blocks(usize::try_from(raw.pieces.get()).ok().filter(|pieces| *pieces <= MOST)?);
        let whole = raw.length.get() == blocks * BLOCK as u32;
        (raw.magic == MAGIC && raw.version.get() == VERSION && whole).then_some(blocks)
    }

    /// `None`: no header of this version stands there, or not all of it.
    pub fn decode(bytes: &[u8]) -> Option<RunHeader> {
        let blocks = RunHeader::blocks_of(bytes)?;
        let (raw, rest) = RawHeader::read_from_prefix(bytes.get(..blocks as usize * BLOCK as usize)?).ok()?;
        let unsummed = RawHeader { crc: 0.into(), ..raw.clone() };
        let crc = crc32c::crc32c_append(crc32c::crc32c(unsummed.as_bytes()), rest);
        let pieces = raw.pieces.get() as usize;
        if crc != raw.crc.get() {
            return None;
        }
        let pieces = rest.chunks_exact(size_of::<RawPiece>()).take(pieces).map(|bytes| {
            let raw = RawPiece::read_from_bytes(bytes).ok()?;
            let blob = BlobId { onode: raw.onode.get(), number: raw.blob.get() };
            Some(RunPiece { blob, offset: raw.offset.get(), first: raw.first.get(), blocks: raw.blocks.get() })
        });
        Some(RunHeader { life: raw.life.get(), group: raw.group.get(), pieces: pieces.collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_a_flipped_bit_does_not() {
        let piece = |n: u64| {
            let blob = BlobId { onode: n, number: u64::MAX - n };
            RunPiece { blob, offset: n * 3, first: n as u32, blocks: 64 }
        };
        for n in [0, 1, A_BLOCK as u64, A_BLOCK as u64 + 1, MOST as u64] {
            let header = RunHeader { life: 5, group: 6, pieces: (0..n).map(piece).collect() };
            let mut block = vec![0xee; header.blocks() as usize * BLOCK as usize];
            header.encode_into(&mut block);
            assert_eq!(RunHeader::blocks_of(&block[..BLOCK as usize]), Some(header.blocks()));
            assert_eq!(RunHeader::decode(&block[..block.len() - 1]), None);
            assert_eq!(RunHeader::decode(&block), Some(header));
            for at in (0..block.len()).step_by(61) {
                block[at] ^= 4;
                assert_eq!(RunHeader::decode(&block), None, "{at}");
                block[at] ^= 4;
            }
        }
        assert_eq!(RunHeader::decode(&[0; 100]), None);
    }
}
