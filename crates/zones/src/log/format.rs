//! What stands in a zone of the log: a [zone header](ZoneHeader), and [frames](Frame) behind it.
//!
//! The payload of each frame begins with 16 bytes that say what it is:
//!
//! ```text
//!  offset  size
//!       0     1  kind: 1 a snapshot begins, 2 pieces of it, 3 it is whole, 4 records
//!       1     3  zeros
//!       4     4  where the first item begins behind these 16 bytes
//!       8     8  records: number of the frame before; snapshot: the last record frame that it knows all of (1), the frame's
//!                place in the snapshot (2), how many frames of pieces it has (3)
//! ```
//!
//! The frame's sequence is the number of the record frame, or of the snapshot. Its logical offset is where its records, or those that follow it,
//! begin in the stream of all record items of the log. Behind the 16 bytes follow [items](super::items).

use super::BLOCK;
use crate::frame::{FRAME_HEADER, Frame, FrameId, Scan, scan_payloads};
use crate::header::ZoneHeader;
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Written, Zone, ZonedDevice};

/// Kind byte of the zone headers of a log.
pub const LOG_KIND: u8 = 0xf1;
/// Number of a log as a file; the copy is added to it. In a header the number of copies stands above these 32 bits, and the number of zones above that.
const FILE: u64 = u32::from_le_bytes(*b"MLOG") as u64;
const MOST_ZONES: u32 = (1 << 24) - 1;
/// Bytes of a frame before its items.
pub(super) const FRONT: usize = FRAME_HEADER + SUB;
const SUB: usize = 16;
/// No log comes so far: what is more is no number, no place of a zone in its ring, and no offset. So one mount more always has some. A mount begins at its number times 2^40.
pub(super) const MOST: u64 = u64::MAX - (1 << 40);
/// How far frames are looked for behind the last one, in bytes, in a zone of which the drive does not tell how far it is written: further than any
/// frame is long.
const UNTOLD_REACH: u64 = 4 << 20;

/// The header of a zone of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Number of the zone.
    pub zone: u32,
    /// Whose log it is: the tenant's name, and its number in the label.
    pub tenant: String,
    /// See `tenant`.
    pub owner: u8,
    /// Which copy.
    pub copy: u8,
    /// How many there are.
    pub copies: u8,
    /// Zones of all rings together when this one was begun.
    pub zones: u32,
    /// This life of the zone: the mount's number << 40, and a counter.
    pub life: u64,
    /// The zone's place in the order of its ring, from 1.
    pub order: u64,
    /// When it was begun: nanoseconds since 1970.
    pub created: u64,
}

impl LogHead {
    /// As a block. Two of them stand one behind the other in the zone.
    pub fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        self.encode_into(&mut block);
        block
    }

    pub(super) fn encode_into(&self, block: &mut [u8]) {
        let zones = u64::from(self.zones.min(MOST_ZONES));
        let header = ZoneHeader {
            volume: self.volume,
            owner: self.owner,
            kind: LOG_KIND,
            file: FILE + u64::from(self.copy) + (u64::from(self.copies) << 32) + (zones << 40),
            life: self.life,
            logical: self.order,
            created: self.created,
            zone: self.zone,
            mount: (self.life >> 40) as u32,
            name: self.tenant.clone(),
        };
        header.encode_into(block);
    }

    /// From a zone's first block; `None`: it is no zone of a log.
    pub fn decode(block: &[u8]) -> Option<LogHead> {
        LogHead::of_header(&ZoneHeader::decode(block)?)
    }

    /// From a zone's header; `None`: it is none of a log.
    pub fn of_header(header: &ZoneHeader) -> Option<LogHead> {
        let (copies, zones) = ((header.file >> 32) as u8, (header.file >> 40) as u32);
        let copy = u8::try_from(u64::from(header.file as u32).checked_sub(FILE)?).ok()?;
        let sound = header.kind == LOG_KIND && header.life.max(header.logical) <= MOST && copy < copies && copies <= 2;
        sound.then(|| LogHead {
            volume: header.volume,
            zone: header.zone,
            tenant: header.name.clone(),
            owner: header.owner,
            copy,
            copies,
            zones,
            life: header.life,
            order: header.logical,
            created: header.created,
        })
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A snapshot begins.
    Begin = 1,
    /// Pieces of a snapshot.
    Pieces = 2,
    /// A snapshot is whole.
    Whole = 3,
    /// Records.
    Records = 4,
}

/// A frame of the log. See the module for its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFrame {
    /// What it is.
    pub kind: Kind,
    /// Number of the record frame, or of the snapshot.
    pub number: u64,
    /// See the module.
    pub before: u64,
    /// Where the first item begins.
    pub first: u32,
    /// Where the next record item begins in the stream of all of them, in bytes: of records, their own first byte.
    pub logical: u64,
}

/// Bytes that a frame with so many bytes of items takes.
pub(super) fn footprint(items: usize) -> u64 {
    (FRONT as u64 + items as u64).next_multiple_of(BLOCK)
}

fn id(copy: u8, life: u64) -> FrameId {
    FrameId { file: FILE + u64::from(copy), life }
}

impl LogFrame {
    /// As it stands at byte `at` of a zone of this copy in this life, padded to blocks.
    pub fn encode(&self, copy: u8, life: u64, at: u64, items: &[u8]) -> AlignedBuf {
        let mut image = AlignedBuf::zeroed(footprint(items.len()) as usize);
        self.encode_into(&mut image, copy, life, at, items);
        image
    }

    pub(super) fn encode_into(&self, image: &mut [u8], copy: u8, life: u64, at: u64, items: &[u8]) {
        let sub = &mut image[FRAME_HEADER..];
        sub[0] = self.kind as u8;
        sub[4..8].copy_from_slice(&self.first.to_le_bytes());
        sub[8..SUB].copy_from_slice(&self.before.to_le_bytes());
        sub[SUB..SUB + items.len()].copy_from_slice(items);
        let payload_crc = crc32c::crc32c(&sub[..SUB + items.len()]);
        let len = (SUB + items.len()) as u32;
        let frame = Frame { sequence: self.number, logical: self.logical, at, len, back: 0, payload_crc };
        image[..FRAME_HEADER].copy_from_slice(&frame.encode(id(copy, life)));
    }

    /// From the frame's sequence and payload, with its items; `None` where they make no sense.
    pub fn decode(number: u64, logical: u64, payload: &[u8]) -> Option<(LogFrame, &[u8])> {
        let (sub, items) = payload.split_at_checked(SUB)?;
        let kind = [Kind::Begin, Kind::Pieces, Kind::Whole, Kind::Records].into_iter().find(|k| *k as u8 == sub[0])?;
        let first = u32::from_le_bytes(sub[4..8].try_into().ok()?);
        let before = u64::from_le_bytes(sub[8..SUB].try_into().ok()?);
        let sound = sub[1..4] == [0; 3] && first as usize <= items.len() && number.max(logical).max(before) <= MOST;
        sound.then_some((LogFrame { kind, number, before, first, logical }, items))
    }
}

/// The frame that the block at byte `at` of a zone begins; `None`: it begins none.
pub(super) fn frame_at(block: &[u8], (copy, life): (u8, u64), at: u64) -> Option<Frame> {
    Frame::decode(block, id(copy, life), at)
}

/// Whether the block at byte `at` of a zone begins a frame that goes on behind what is written of the zone, up to byte `written`.
pub(super) fn is_cut_off(block: &[u8], of: (u8, u64), at: u64, written: u64) -> bool {
    frame_at(block, of, at).is_some_and(|frame| frame.footprint(BLOCK as u32) > written - at)
}

/// Hands every whole frame of a zone to `each`, with its address in bytes from the zone's start and its items. `life`: of the zone.
///
/// # Errors
/// Those of the drive, but for places that cannot be read: they are in the scan that is returned.
pub fn read_zone(
    device: &dyn ZonedDevice,
    zone: &Zone,
    (copy, life): (u8, u64),
    each: &mut dyn FnMut(u64, &LogFrame, &[u8]),
) -> Result<Scan> {
    let (to, reach) = match zone.written() {
        Written::To(wp) => (wp.min(zone.capacity) / BLOCK * BLOCK, None),
        Written::Untold => (zone.capacity / BLOCK * BLOCK, Some(UNTOLD_REACH)),
        Written::Gone => return Ok(Scan::default()),
    };
    let start = device.geometry().start(zone.id);
    let mut failed = None;
    let mut read = |at: u64, buf: &mut [u8]| {
        let mut once = || crate::volume::read_all(device, buf, start + at, Cause::Recovery.into());
        // What this takes for unreadable is passed over for good.
        once().or_else(|_| once()).map_err(|error| match error.fault {
            // The zone went offline since the report: no block of it can be read.
            Fault::Offline => Error { fault: Fault::Media { len: BLOCK }, ..error },
            Fault::Media { .. } | Fault::InvalidInput(_) => error,
            _ => {
                failed.get_or_insert_with(|| error.clone());
                error
            }
        })
    };
    let mut hand = |frame: &Frame, payload: &[u8]| {
        if let Some((of, items)) = LogFrame::decode(frame.sequence, frame.logical, payload) {
            each(frame.at, &of, items);
        }
    };
    let found = scan_payloads(&mut read, id(copy, life), (BLOCK, to.max(BLOCK)), BLOCK as u32, reach, &mut hand)?;
    // What the drive may read the next time is not taken for damage.
    failed.map_or(Ok(found), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_a_damaged_one_does_not() {
        let (volume, tenant) = ([3; 16], "an engine".to_owned());
        let head = LogHead {
            volume,
            zone: 7,
            tenant,
            owner: 2,
            copy: 1,
            copies: 2,
            zones: 6,
            life: 5 << 40,
            order: 9,
            created: 11,
        };
        let block = head.encode();
        assert_eq!(LogHead::decode(&block), Some(head));
        let other = ZoneHeader { kind: 0, ..ZoneHeader::decode(&block).unwrap() };
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        other.encode_into(&mut block);
        assert_eq!(LogHead::decode(&block), None, "a zone of something else");
        for kind in [Kind::Begin, Kind::Pieces, Kind::Whole, Kind::Records] {
            let frame = LogFrame { kind, number: 3, before: 2, first: 4, logical: 77 };
            let image = frame.encode(1, 77, 8192, b"items");
            let of = Frame::decode(&image, id(1, 77), 8192).unwrap();
            let payload = &image[FRAME_HEADER..FRAME_HEADER + of.len as usize];
            assert_eq!(LogFrame::decode(of.sequence, of.logical, payload), Some((frame, &b"items"[..])));
            assert_eq!(Frame::decode(&image, id(0, 77), 8192), None, "of the other copy");
            let mut beyond = payload.to_vec();
            beyond[4] = 6;
            assert_eq!(LogFrame::decode(3, 77, &beyond), None, "an item that begins behind the frame's end");
            beyond[0] = 5;
            assert_eq!(LogFrame::decode(3, 77, &beyond), None);
            assert_eq!(LogFrame::decode(3, 77, &payload[..15]), None);
            assert_eq!(LogFrame::decode(u64::MAX, 77, payload), None, "nothing could follow it");
            assert_eq!(LogFrame::decode(3, u64::MAX, payload), None);
        }
    }
}
