//! Records: pieces of chunks, as they follow one another in a datazone (SMRSTORE §5.2). A [zone header](ZoneHeader) stands in the zone's first block, and
//! records behind it.
//!
//! A record is a header, a payload, and padding to the block of 4,096 bytes. It is bound to its place: the header names the
//! life of the zone and the block where it stands, so bytes of an earlier life, or a user's copy of a record, are never taken
//! for one. The payload is cut into *slices* of 4,096 bytes, each with a *footer* of 32 bytes behind it, so
//! that 4 KiB in the middle are read and verified by reading two slices.
//!
//! Invariants: nothing is believed before its checksum; decoders never panic and never allocate by a length that was not
//! checked; what is written here reads back as itself.

pub mod entry;
pub(crate) mod id;

use crate::format::id::{ChunkId, StreamType};
#[cfg(doc)]
use imbrex_zones::ZoneHeader;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Records begin and end at multiples of this, in bytes, whatever the drive's block.
pub const BLOCK: usize = 4096;
/// Bytes of a record's header.
pub const HEADER: usize = 96;
/// Bytes of a user's data in a slice.
pub const SLICE: usize = 4096;
/// Bytes of a slice's footer.
pub const FOOTER: usize = 32;
/// Version of records.
pub const VERSION: u32 = 5;
/// No record is longer, in bytes, padding included.
pub const MAX_RECORD: usize = 32 << 20;

const MAGIC: [u8; 8] = *b"IMBXCrec";
const CRC_AT: usize = 16;

/// The record was written by the cleaner: the bytes stood elsewhere before.
pub const MOVED: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    payload_crc: U32,
    life: U64,
    at: U32,
    data: U32,
    unused: u8,
    stream: u8,
    flags: U16,
    offset: U32,
    sequence: U64,
    serial: U64,
    chunk: [u8; 24],
    reserved: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawFooter {
    chunk: [u8; 24],
    offset: U32,
    crc: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER && size_of::<RawFooter>() == FOOTER);

/// What a record's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Life of the zone that it stands in.
    pub life: u64,
    /// Where it stands, in blocks of [`BLOCK`] from the zone's start.
    pub at: u32,
    /// Bytes of header and payload, without the padding.
    pub length: u32,
    /// Checksum of the payload's footers, which hold those of the data.
    pub payload_crc: u32,
    /// Order among all appends.
    pub sequence: u64,
    /// Bytes of the chunk in it.
    pub data: u32,
    /// The chunk's kind of stream.
    pub stream: u8,
    /// See [`MOVED`].
    pub flags: u16,
    /// Offset in the chunk.
    pub offset: u32,
    /// Serial number of the chunk, which no other chunk of the same id has.
    pub serial: u64,
    /// The chunk's id.
    pub chunk: ChunkId,
}

/// Why bytes are not a record's header that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotARecord {
    /// There is none.
    Nothing,
    /// One of another version.
    OfVersion(u32),
    /// One that is damaged, or that stood elsewhere or in another life of the zone.
    Damaged,
}

impl Header {
    /// The header of the append of this number, of a record that has no bytes and no place yet.
    pub fn of_append(sequence: u64) -> Header {
        Header {
            life: 0,
            at: 0,
            length: HEADER as u32,
            payload_crc: 0,
            sequence,
            data: 0,
            stream: 0,
            flags: 0,
            offset: 0,
            serial: 0,
            chunk: ChunkId::default(),
        }
    }

    /// Blocks that the record takes.
    pub fn blocks(&self) -> u32 {
        (self.length as usize).div_ceil(BLOCK) as u32
    }

    /// The header as it stands on the drive.
    pub fn encode(&self) -> [u8; HEADER] {
        let raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: self.length.into(),
            crc: 0.into(),
            payload_crc: self.payload_crc.into(),
            life: self.life.into(),
            at: self.at.into(),
            data: self.data.into(),
            unused: 0,
            stream: self.stream,
            flags: self.flags.into(),
            offset: self.offset.into(),
            sequence: self.sequence.into(),
            serial: self.serial.into(),
            chunk: self.chunk.0,
            reserved: 0.into(),
        };
        let mut bytes = [0; HEADER];
        bytes.copy_from_slice(raw.as_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header that `bytes` begin with, whatever place it says it stands at.
    ///
    /// # Errors
    /// See [`NotARecord`].
    pub fn decode_anywhere(bytes: &[u8]) -> Result<Header, NotARecord> {
        let Ok((raw, _)) = RawHeader::read_from_prefix(bytes) else { return Err(NotARecord::Nothing) };
        if raw.magic != MAGIC {
            return Err(NotARecord::Nothing);
        }
        let mut unsummed = raw.clone();
        unsummed.crc = 0.into();
        if crc32c::crc32c(unsummed.as_bytes()) != raw.crc.get() {
            return Err(NotARecord::Damaged);
        }
        if raw.version.get() != VERSION {
            return Err(NotARecord::OfVersion(raw.version.get()));
        }
        let header = Header {
            life: raw.life.get(),
            at: raw.at.get(),
            length: raw.length.get(),
            payload_crc: raw.payload_crc.get(),
            sequence: raw.sequence.get(),
            data: raw.data.get(),
            stream: raw.stream,
            flags: raw.flags.get(),
            offset: raw.offset.get(),
            serial: raw.serial.get(),
            chunk: ChunkId(raw.chunk),
        };
        match header.is_sound() && raw.unused == 0 && raw.reserved.get() == 0 {
            true => Ok(header),
            false => Err(NotARecord::Damaged),
        }
    }

    /// The same, of a record that must stand at this block of a zone in this life.
    ///
    /// # Errors
    /// See [`NotARecord`].
    pub fn decode(bytes: &[u8], life: u64, at: u32) -> Result<Header, NotARecord> {
        let header = Self::decode_anywhere(bytes)?;
        if header.life == life && header.at == at { Ok(header) } else { Err(NotARecord::Damaged) }
    }

    fn is_sound(&self) -> bool {
        self.data > 0
            && data_length(self.data as usize) == Some(self.length as usize)
            && self.offset.checked_add(self.data).is_some()
            && usize::from(self.stream) < StreamType::MOST
    }

    /// Whether `payload`, the bytes behind the header, is what was written; all of it is looked at.
    pub fn verify(&self, payload: &[u8]) -> bool {
        let Some(payload) = payload.get(..self.length as usize - HEADER) else { return false };
        let mut crc = 0;
        let mut done = 0;
        for stored in payload.chunks(SLICE + FOOTER) {
            let Some(slice) = check_slice(stored, self.chunk, self.offset + done) else { return false };
            done += slice.len() as u32;
            crc = crc32c::crc32c_append(crc, &stored[slice.len()..]);
        }
        done == self.data && crc == self.payload_crc
    }
}

/// Bytes of header and payload of a data record of so many bytes; `None`: more than a record holds.
pub fn data_length(data: usize) -> Option<usize> {
    let length = data.checked_add(data.div_ceil(SLICE) * FOOTER)?.checked_add(HEADER)?;
    (length <= MAX_RECORD).then_some(length)
}

/// Blocks of a data record of so many bytes, which a record holds.
pub fn data_blocks(data: u32) -> u32 {
    let data = data as usize;
    (HEADER + data + data.div_ceil(SLICE) * FOOTER).div_ceil(BLOCK) as u32
}

/// The most bytes of data whose record takes no more than so many blocks.
pub fn most_data(blocks: u32) -> u32 {
    let room = (blocks as usize * BLOCK).min(MAX_RECORD).saturating_sub(HEADER);
    let (whole, rest) = (room / (SLICE + FOOTER), room % (SLICE + FOOTER));
    (whole * SLICE + rest.saturating_sub(FOOTER)) as u32
}

/// Where the slice that holds byte `offset` of a data record's data begins in the record, in bytes from its header.
pub fn slice_at(offset: u32) -> usize {
    HEADER + offset as usize / SLICE * (SLICE + FOOTER)
}

/// The data of one slice with its footer behind it, if it belongs to this chunk at this offset and is what was written.
pub fn check_slice(stored: &[u8], chunk: ChunkId, offset: u32) -> Option<&[u8]> {
    let (data, footer) = stored.split_at_checked(stored.len().checked_sub(FOOTER)?)?;
    let footer = RawFooter::ref_from_bytes(footer).ok()?;
    let whole = !data.is_empty()
        && footer.chunk == chunk.0
        && footer.offset.get() == offset
        && footer.crc.get() == footer_crc(crc32c::crc32c(data), &footer.chunk, footer.offset.get());
    whole.then_some(data)
}

/// Checksum of a slice: over its data, the chunk's id and the offset.
fn footer_crc(data_crc: u32, chunk: &[u8; 24], offset: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(data_crc, chunk), &offset.to_le_bytes())
}

/// Encodes a data record in two steps, since only its place in the zone and in the chunk have to be decided by one after the
/// other: the bytes are copied and summed first, by everybody at the same time. `image`: the record's blocks, of any content; `data` must
/// fit them.
pub fn put_data(image: &mut [u8], chunk: ChunkId, data: &[u8]) {
    let end = HEADER + data.len() + data.len().div_ceil(SLICE) * FOOTER;
    if let Some(padding) = image.get_mut(end..) {
        padding.fill(0);
    }
    let payload = image[HEADER..].chunks_mut(SLICE + FOOTER);
    for (stored, slice) in payload.zip(data.chunks(SLICE)) {
        stored[..slice.len()].copy_from_slice(slice);
        let footer = RawFooter { chunk: chunk.0, offset: 0.into(), crc: crc32c::crc32c(slice).into() };
        stored[slice.len()..slice.len() + FOOTER].copy_from_slice(footer.as_bytes());
    }
}

/// Where a data record's header stands a second time: at the end of its last block, if there is room behind the payload. So one block that cannot
/// be read does not hide whose bytes the others are. In bytes from the record's beginning.
pub fn second_header_at(length: usize) -> Option<usize> {
    let end = length.next_multiple_of(BLOCK);
    (end - length >= HEADER).then_some(end - HEADER)
}

/// The header in both its places.
pub fn put_header(image: &mut [u8], header: &Header) {
    let bytes = header.encode();
    image[..HEADER].copy_from_slice(&bytes);
    if let Some(second) = second_header_at(header.length as usize).and_then(|at| image.get_mut(at..at + HEADER)) {
        second.copy_from_slice(&bytes);
    }
}

/// The second header that a record's last block, `at` of its zone in this life, ends with.
pub fn second_header(block: &[u8], life: u64, at: u32) -> Option<Header> {
    let header = Header::decode_anywhere(block.get(BLOCK - HEADER..BLOCK)?).ok()?;
    let is_last = header.at.checked_add(header.blocks())? == at.checked_add(1)?;
    (header.life == life && is_last).then_some(header)
}

/// The second step: now `header` says where the data stands. Its length and checksum are filled in.
pub fn seal_data(image: &mut [u8], mut header: Header) -> Header {
    let data = header.data as usize;
    header.length = (HEADER + data + data.div_ceil(SLICE) * FOOTER) as u32;
    let mut crc = 0;
    for (i, stored) in image[HEADER..header.length as usize].chunks_mut(SLICE + FOOTER).enumerate() {
        let at = stored.len() - FOOTER;
        let Ok(footer) = RawFooter::mut_from_bytes(&mut stored[at..]) else { continue };
        footer.offset = (header.offset + (i * SLICE) as u32).into();
        footer.crc = footer_crc(footer.crc.get(), &footer.chunk, footer.offset.get()).into();
        crc = crc32c::crc32c_append(crc, footer.as_bytes());
    }
    header.payload_crc = crc;
    put_header(image, &header);
    header
}

/// Kinds of [zone headers](ZoneHeader): these and the number of the kind of stream.
const DATA_KIND: u8 = 0x10;
const CLEANER_KIND: u8 = 0x20;

/// What a datazone is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneUse {
    /// Chunks of one kind of stream.
    Data(StreamType),
    /// What the cleaner moves.
    Cleaner(StreamType),
}

impl ZoneUse {
    /// The kind that stands in the zone's header.
    pub fn kind(self) -> u8 {
        match self {
            ZoneUse::Data(stream) => DATA_KIND | stream.number(),
            ZoneUse::Cleaner(stream) => CLEANER_KIND | stream.number(),
        }
    }

    /// The kind of stream.
    pub fn stream(self) -> StreamType {
        match self {
            ZoneUse::Data(stream) | ZoneUse::Cleaner(stream) => stream,
        }
    }

    /// From the kind that a zone's header has; `None`: it is no datazone.
    pub fn of_kind(kind: u8) -> Option<ZoneUse> {
        let stream = StreamType::new(kind & 0xf)?;
        match kind & 0xf0 {
            DATA_KIND => Some(ZoneUse::Data(stream)),
            CLEANER_KIND => Some(ZoneUse::Cleaner(stream)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
