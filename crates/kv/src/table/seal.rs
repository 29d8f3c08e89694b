//! What stands round a block on the drive: its compression, and the trailer that ties it to its place in this life of the table.

use super::{Compression, Malformed};
use std::cell::RefCell;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longer blocks are not compressed. So no decoder takes more memory than this for bytes that it has not seen.
const MAX_UNPACKED: usize = 16 << 20;
/// It is fast enough to keep up with a drive.
const ZSTD_LEVEL: i32 = 1;

thread_local! {
    /// To make one takes longer than to decompress a block.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = RefCell::new(zstd::bulk::Decompressor::new().ok());
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    Data = 1,
    Index = 2,
    Filter = 3,
    Top = 4,
    Properties = 5,
}

impl What {
    pub(super) fn name(self) -> &'static str {
        match self {
            What::Data => "data block",
            What::Index => "index block",
            What::Filter => "filter",
            What::Top => "top index",
            What::Properties => "properties",
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Trailer {
    unpacked: U32,
    what: u8,
    compression: u8,
    zero: [u8; 2],
    crc: U32,
}

/// Bytes behind each block.
pub(super) const TRAILER: usize = size_of::<Trailer>();
const _: () = assert!(TRAILER == 12);

impl Trailer {
    fn sum(&self, packed: &[u8], life: u64, at: u64) -> u32 {
        self.behind(crc32c::crc32c(packed), life, at)
    }

    /// The same where the sum of the bytes before it is known.
    fn behind(&self, packed: u32, life: u64, at: u64) -> u32 {
        let sum = crc32c::crc32c_append(packed, &self.as_bytes()[..8]);
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &life.to_le_bytes()), &at.to_le_bytes())
    }
}

/// Looks for the end of a block that begins at a known place: the first trailer behind it that verifies.
pub(super) struct Search {
    life: u64,
    at: u64,
    /// The last bytes, in which a trailer may have begun, behind those that are summed.
    tail: Vec<u8>,
    /// How many bytes are summed, and their sum.
    summed: (u64, u32),
}

impl Search {
    /// Of the block at `at` in this life of a table.
    pub(super) fn new(life: u64, at: u64) -> Search {
        Search { life, at, tail: Vec::new(), summed: (0, 0) }
    }

    /// Takes the bytes that come next. Returns what the block is, and how many bytes it has with its trailer, if it ends in these.
    pub(super) fn more(&mut self, bytes: &[u8]) -> Option<(u8, u64)> {
        let mut all = std::mem::take(&mut self.tail);
        all.extend_from_slice(bytes);
        let mut summed = 0;
        for at in 0..(all.len() + 1).saturating_sub(TRAILER) {
            let trailer = &all[at..at + TRAILER];
            // Most places are none, and cost no sum.
            if self.summed.0 + at as u64 == 0
                || !(1..=5).contains(&trailer[4])
                || trailer[5] > 2
                || trailer[6..8] != [0; 2]
            {
                continue;
            }
            self.summed.1 = crc32c::crc32c_append(self.summed.1, &all[summed..at]);
            summed = at;
            let Ok(trailer) = Trailer::ref_from_bytes(trailer) else { continue };
            if trailer.behind(self.summed.1, self.life, self.at) == trailer.crc.get() {
                return Some((trailer.what, self.summed.0 + (at + TRAILER) as u64));
            }
        }
        let keep = (all.len() + 1).saturating_sub(TRAILER);
        self.summed = (self.summed.0 + keep as u64, crc32c::crc32c_append(self.summed.1, &all[summed..keep]));
        all.drain(..keep);
        self.tail = all;
        None
    }
}

/// Compresses blocks.
pub(super) struct Packer {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
}

impl Packer {
    pub(super) fn new(compression: Compression) -> Self {
        let zstd = match compression {
            Compression::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            _ => None,
        };
        Packer { compression, zstd, packed: Vec::new() }
    }

    /// Appends the block and its trailer to `out`; tells how many bytes that were. `at` is where they will stand in the table.
    pub(super) fn seal(&mut self, what: What, block: &[u8], life: u64, at: u64, out: &mut Vec<u8>) -> u64 {
        let packed = self.pack(what, block);
        let (bytes, compression, unpacked) = match packed {
            Some(len) => (&self.packed[..len], self.compression, block.len() as u32),
            None => (block, Compression::Off, 0),
        };
        let mut trailer = Trailer {
            unpacked: unpacked.into(),
            what: what as u8,
            compression: compression as u8,
            zero: [0; 2],
            crc: 0.into(),
        };
        trailer.crc = trailer.sum(bytes, life, at).into();
        out.extend_from_slice(bytes);
        out.extend_from_slice(trailer.as_bytes());
        (bytes.len() + TRAILER) as u64
    }

    /// How long the block has become, if that is at least an eighth shorter. Filters and properties stay as they are.
    fn pack(&mut self, what: What, block: &[u8]) -> Option<usize> {
        if block.len() > MAX_UNPACKED || matches!(what, What::Filter | What::Properties) {
            return None;
        }
        let most = block.len() - block.len().div_ceil(8);
        let room = match self.compression {
            Compression::Off => return None,
            Compression::Lz4 => lz4_flex::block::get_maximum_output_size(block.len()),
            Compression::Zstd => most,
        };
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        let packed = &mut self.packed[..room];
        let len = match self.compression {
            Compression::Off => return None,
            Compression::Lz4 => lz4_flex::block::compress_into(block, packed).ok()?,
            Compression::Zstd => self.zstd.as_mut()?.compress_to_buffer(block, packed).ok()?,
        };
        (len <= most).then_some(len)
    }
}

/// The block that was sealed, if these are its bytes. One that is not compressed stays where it is in memory.
pub(super) fn unseal(what: What, mut bytes: Vec<u8>, life: u64, at: u64) -> Result<Vec<u8>, Malformed> {
    let Ok((packed, trailer)) = Trailer::ref_from_suffix(&bytes) else { return Err(Malformed("too short")) };
    if trailer.sum(packed, life, at) != trailer.crc.get() {
        return Err(Malformed("checksum"));
    }
    if trailer.what != what as u8 || trailer.zero != [0; 2] {
        return Err(Malformed("another kind of block"));
    }
    let unpacked = trailer.unpacked.get() as usize;
    let compression = Compression::of(trailer.compression).ok_or(Malformed("unknown compression"))?;
    if compression == Compression::Off {
        if unpacked != 0 {
            return Err(Malformed("length"));
        }
        bytes.truncate(packed.len());
        return Ok(bytes);
    }
    if unpacked > MAX_UNPACKED {
        return Err(Malformed("length"));
    }
    let mut block = vec![0; unpacked];
    let got = match compression {
        Compression::Lz4 => lz4_flex::block::decompress_into(packed, &mut block).ok(),
        _ => ZSTD.with_borrow_mut(|zstd| zstd.as_mut()?.decompress_to_buffer(packed, &mut block[..]).ok()),
    };
    if got != Some(unpacked) {
        return Err(Malformed("compression"));
    }
    Ok(block)
}
