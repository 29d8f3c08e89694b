//! Records: the one structure of which everything on the drive is made (SMRSTORE §5.2).
//!
//! A record is a header, a payload, and padding to the block of 4,096 bytes. It is bound to its place: the header names the
//! life of the zone and the block where it stands, so bytes of an earlier life, or a user's copy of a record, are never taken
//! for one. The payload of a data record is cut into *slices* of 4,096 bytes, each with a *footer* of 32 bytes behind it, so
//! that 4 KiB in the middle are read and verified by reading two slices.
//!
//! Invariants: nothing is believed before its checksum; decoders never panic and never allocate by a length that was not
//! checked; what is written here reads back as itself.

pub mod entry;
pub(crate) mod id;

use crate::format::id::{ChunkId, StreamType};
use imbrex_device::AlignedBuf;
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
pub const VERSION: u32 = 4;
/// No record is longer, in bytes, padding included.
pub const MAX_RECORD: usize = 32 << 20;

const MAGIC: [u8; 8] = *b"IMBXCrec";
const CRC_AT: usize = 16;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// First record of a zone.
    ZoneHead = 1,
    /// A piece of a chunk.
    Data = 2,
}

impl Kind {
    fn new(number: u8) -> Option<Kind> {
        [Kind::ZoneHead, Kind::Data].into_iter().find(|k| *k as u8 == number)
    }
}

/// The header of a data record was written by the cleaner: the bytes stood elsewhere before.
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
    kind: u8,
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

/// What a record's header says. Fields that mean nothing for its kind are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the record is.
    pub kind: Kind,
    /// Life of the zone that it stands in.
    pub life: u64,
    /// Where it stands, in blocks of [`BLOCK`] from the zone's start.
    pub at: u32,
    /// Bytes of header and payload, without the padding.
    pub length: u32,
    /// Checksum of the payload; of a data record, of its footers, which hold those of the data.
    pub payload_crc: u32,
    /// Data: order among all appends.
    pub sequence: u64,
    /// Data: bytes of the chunk in it.
    pub data: u32,
    /// Data: the chunk's kind of stream.
    pub stream: u8,
    /// Data: see [`MOVED`].
    pub flags: u16,
    /// Data: offset in the chunk.
    pub offset: u32,
    /// Data: serial number of the chunk, which no other chunk of the same id has.
    pub serial: u64,
    /// Data: the chunk's id.
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
    /// A header of a record of this kind; length and checksum are those of `payload`.
    pub fn of_payload(kind: Kind, sequence: u64, payload: &[u8]) -> Header {
        Header {
            kind,
            life: 0,
            at: 0,
            length: (HEADER + payload.len()) as u32,
            payload_crc: crc32c::crc32c(payload),
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
            kind: self.kind as u8,
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
            kind: Kind::new(raw.kind).ok_or(NotARecord::Damaged)?,
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
        match header.is_sound() && raw.reserved.get() == 0 {
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
        let length = self.length as usize;
        if !(HEADER..=MAX_RECORD).contains(&length) {
            return false;
        }
        match self.kind {
            Kind::Data => {
                self.data > 0
                    && data_length(self.data as usize) == Some(length)
                    && self.offset.checked_add(self.data).is_some()
                    && usize::from(self.stream) < StreamType::MOST
            }
            _ => true,
        }
    }

    /// Whether `payload`, the bytes behind the header, is what was written; all of it is looked at.
    pub fn verify(&self, payload: &[u8]) -> bool {
        let Some(payload) = payload.get(..self.length as usize - HEADER) else { return false };
        if self.kind != Kind::Data {
            return crc32c::crc32c(payload) == self.payload_crc;
        }
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
    (header.kind == Kind::Data && header.life == life && is_last).then_some(header)
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

/// A whole record that is not data, padded to blocks.
pub fn record(mut header: Header, life: u64, at: u32, payload: &[u8]) -> AlignedBuf {
    (header.life, header.at) = (life, at);
    let mut image = AlignedBuf::zeroed((HEADER + payload.len()).next_multiple_of(BLOCK));
    image[..HEADER].copy_from_slice(&header.encode());
    image[HEADER..HEADER + payload.len()].copy_from_slice(payload);
    image
}

/// What a zone is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneUse {
    /// Journal and checkpoints: the first or the second copy. The [metadata log](imbrex_zones::log) writes these, with headers of its own.
    Meta(u8),
    /// Chunks of one kind of stream.
    Data(StreamType),
    /// What the cleaner moves.
    Cleaner(StreamType),
}

/// The payload of a zone's first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneHead {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Number of the zone.
    pub zone: u32,
    /// What it is for.
    pub usage: ZoneUse,
    /// When it was taken: nanoseconds since 1970.
    pub time: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawZoneHead {
    volume: [u8; 16],
    zone: U32,
    usage: u8,
    detail: u8,
    reserved: U16,
    time: U64,
}
const _: () = assert!(size_of::<RawZoneHead>() == 32);

impl ZoneHead {
    /// As the payload of a record.
    pub fn encode(&self) -> Vec<u8> {
        let (usage, detail) = match self.usage {
            ZoneUse::Meta(copy) => (1, copy),
            ZoneUse::Data(stream) => (2, stream.number()),
            ZoneUse::Cleaner(stream) => (3, stream.number()),
        };
        let raw = RawZoneHead {
            volume: self.volume,
            zone: self.zone.into(),
            usage,
            detail,
            reserved: 0.into(),
            time: self.time.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Reads one from a record's payload; `None` where it is not one.
    pub fn decode(payload: &[u8]) -> Option<ZoneHead> {
        let raw = RawZoneHead::read_from_bytes(payload).ok()?;
        let usage = match (raw.usage, raw.detail) {
            (2, stream) => ZoneUse::Data(StreamType::new(stream)?),
            (3, stream) => ZoneUse::Cleaner(StreamType::new(stream)?),
            _ => return None,
        };
        (raw.reserved.get() == 0).then_some(ZoneHead {
            volume: raw.volume,
            zone: raw.zone.get(),
            usage,
            time: raw.time.get(),
        })
    }
}

/// The head that a zone's first block holds, and the life of the zone.
pub fn zone_head(block: &[u8]) -> Option<(ZoneHead, u64)> {
    let header = Header::decode_anywhere(block).ok()?;
    let payload = block.get(HEADER..header.length as usize)?;
    if header.kind != Kind::ZoneHead || header.at != 0 || !header.verify(payload) {
        return None;
    }
    Some((ZoneHead::decode(payload)?, header.life))
}

#[cfg(test)]
mod tests;
