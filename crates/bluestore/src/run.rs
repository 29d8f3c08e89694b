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
const VERSION: u32 = 1;
/// Most pieces of a run.
pub(crate) const MOST: usize = (BLOCK as usize - size_of::<RawHeader>()) / size_of::<RawPiece>();

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
    /// Into the first block.
    pub fn encode_into(&self, block: &mut [u8]) {
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: (BLOCK as u32).into(),
            crc: 0.into(),
            pieces: (self.pieces.len() as u32).into(),
            life: self.life.into(),
            group: self.group.into(),
        };
        let (head, rest) = block[..BLOCK as usize].split_at_mut(size_of::<RawHeader>());
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
        raw.crc = crc32c::crc32c(&block[..BLOCK as usize]).into();
        block[..size_of::<RawHeader>()].copy_from_slice(raw.as_bytes());
    }

    /// `None`: no header of this version stands there.
    pub fn decode(block: &[u8]) -> Option<RunHeader> {
        let block = block.get(..BLOCK as usize)?;
        let (raw, rest) = RawHeader::read_from_prefix(block).ok()?;
        if raw.magic != MAGIC || raw.version.get() != VERSION || raw.length.get() != BLOCK as u32 {
            return None;
        }
        let unsummed = RawHeader { crc: 0.into(), ..raw.clone() };
        let crc = crc32c::crc32c_append(crc32c::crc32c(unsummed.as_bytes()), rest);
        let pieces = raw.pieces.get() as usize;
        if crc != raw.crc.get() || pieces > MOST {
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
        for n in [0, 1, MOST as u64] {
            let header = RunHeader { life: 5, group: 6, pieces: (0..n).map(piece).collect() };
            let mut block = vec![0xee; BLOCK as usize];
            header.encode_into(&mut block);
            assert_eq!(RunHeader::decode(&block), Some(header));
            for at in (0..BLOCK as usize).step_by(61) {
                block[at] ^= 4;
                assert_eq!(RunHeader::decode(&block), None, "{at}");
                block[at] ^= 4;
            }
        }
        assert_eq!(RunHeader::decode(&[0; 100]), None);
    }
}
