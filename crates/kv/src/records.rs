//! Records of the write-ahead log in its bytes, which come in stretches: from the drive, and from the memory of a dead process.

use crate::batch::{self, Found, Record};
use crate::wal;
use imbrex_device::{AlignedBuf, Result, Written, Zone};
use imbrex_zones::ZoneHeader;
use imbrex_zones::frame::{EachFrame, Frame, FrameId, ReadZone, scan_payloads};
use std::collections::BTreeSet;

/// A zone whose end nobody knows is read until so many bytes hold no frame.
const UNTOLD: u64 = 8 << 20;

/// Hands the whole frames of a zone of the log, from byte `from` of the zone on, to `each`. Returns where it is damaged behind the log's `front`, in bytes from
/// the zone's start; `None`: it is gone.
///
/// # Errors
/// Those of `read` that are not about single blocks.
pub(crate) fn frames(
    (zone, life, block): (&Zone, u64, u32),
    (front, from): (u64, u64),
    read: &mut ReadZone<'_>,
    each: &mut EachFrame<'_>,
) -> Result<Option<Vec<u64>>> {
    let (end, reach) = match zone.written() {
        Written::To(wp) => (wp, None),
        Written::Untold => (zone.capacity, Some(UNTOLD)),
        Written::Gone => return Ok(None),
    };
    let from = from.max(u64::from(block.max(4096)));
    let id = FrameId { file: wal::FILE, life };
    let scan = scan_payloads(read, id, (from, end.max(from)), block, reach, each)?;
    // A write that was cut off is the last one of its zone, and nobody was told of it. What stands before the log's front is in tables.
    let whole = scan.frames.last().map_or(0, |frame| frame.at);
    let behind = scan.frames.last().map_or(from, |frame| frame.at + frame.footprint(block));
    let needed = scan.frames.iter().rfind(|frame| frame.logical <= front).map_or(0, |frame| frame.at);
    let mut damaged: BTreeSet<u64> = scan.damaged.into_iter().filter(|at| *at < whole).collect();
    if reach.is_none() && scan.unreadable.iter().all(|at| *at < behind) {
        damaged.extend(damaged_end(id, block, (behind, end), read)?);
    }
    damaged.extend(scan.unreadable);
    Ok(Some(damaged.range(needed..).copied().collect()))
}

/// Where the frame behind the last whole one is damaged. It may be that of a write that power was lost in: blocks of such a one are missing and hold zeros, but what is
/// there is as it was written.
fn damaged_end(id: FrameId, block: u32, (mut at, end): (u64, u64), read: &mut ReadZone<'_>) -> Result<Option<u64>> {
    let header = u64::from(block.max(4096));
    let mut buf = AlignedBuf::zeroed(header as usize);
    while at + header <= end {
        read(at, &mut buf)?;
        if ZoneHeader::decode(&buf).is_none() {
            break;
        }
        // A section begins, and its first frame comes next.
        at += header;
    }
    if at + u64::from(block) > end {
        return Ok(None);
    }
    let mut buf = AlignedBuf::zeroed(block as usize);
    read(at, &mut buf)?;
    let len = Frame::decode(&buf, id, at).map_or(u64::from(block), |frame| frame.footprint(block));
    for at in (at..at + len).step_by(block as usize) {
        if at + u64::from(block) > end {
            return Ok(None);
        }
        read(at, &mut buf)?;
        if buf.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// A record, and where it was found.
pub(crate) struct FoundRecord<'a> {
    pub record: Record<'a>,
    /// Its position.
    pub at: u64,
    /// As it stands in the log.
    pub bytes: &'a [u8],
    /// Only memory has all of it.
    pub memory: bool,
}

/// The log as it is found. Stretches come in the order of their positions.
#[derive(Default)]
pub(crate) struct Records {
    salt: u32,
    /// Where the next byte stands that is expected.
    end: u64,
    /// Bytes before that, which begin a record that is not at its end.
    part: Vec<u8>,
    /// So many must be there before it is worth a look.
    wanted: usize,
    /// From this position on `part` is from memory.
    memory_from: u64,
}

impl Records {
    /// Those of the store with this salt, from a position on.
    pub fn new(salt: u32, end: u64) -> Records {
        Records { salt, end, memory_from: u64::MAX, ..Records::default() }
    }

    /// Where the next byte stands that is expected.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Takes bytes of the log that stand at `position`, on the drive or in memory, and hands the records that are whole to `each`.
    pub fn bytes(&mut self, position: u64, bytes: &[u8], memory: bool, each: &mut dyn FnMut(&FoundRecord<'_>)) {
        // What comes twice, or stands before the front, is passed over.
        let known = self.end.saturating_sub(position).min(bytes.len() as u64);
        let (position, bytes) = (position.saturating_add(known), &bytes[known as usize..]);
        if bytes.is_empty() {
            return;
        }
        if position > self.end {
            // A section begins here with a whole record, or the log has a hole. What went before goes on nowhere.
            self.part.clear();
            self.wanted = 0;
            self.end = position;
        }
        if self.part.is_empty() {
            self.memory_from = u64::MAX;
        }
        if memory {
            self.memory_from = self.memory_from.min(self.end);
        }
        let mut rest = bytes;
        // A record that was begun is copied until it is whole. Most are whole where they stand.
        while !self.part.is_empty() && !rest.is_empty() {
            let missing = self.wanted.saturating_sub(self.part.len()).max(1);
            let (front, behind) = rest.split_at(missing.min(rest.len()));
            self.part.extend_from_slice(front);
            self.end = self.end.saturating_add(front.len() as u64);
            rest = behind;
            if self.part.len() >= self.wanted {
                let mut part = std::mem::take(&mut self.part);
                let done = part.len() - self.take(&part, each).len();
                part.drain(..done);
                self.part = part;
            }
        }
        if !rest.is_empty() {
            self.end = self.end.saturating_add(rest.len() as u64);
            let begun = self.take(rest, each);
            self.part.extend_from_slice(begun);
        }
    }

    /// Hands whole records of `bytes`, which end at the end, to `each`. Returns what is left.
    fn take<'a>(&mut self, bytes: &'a [u8], each: &mut dyn FnMut(&FoundRecord<'_>)) -> &'a [u8] {
        let mut rest = bytes;
        self.wanted = loop {
            let at = self.end - rest.len() as u64;
            match batch::read(self.salt, rest) {
                Found::Record(record, len) => {
                    let memory = at + len as u64 > self.memory_from;
                    each(&FoundRecord { record, at, bytes: &rest[..len], memory });
                    rest = &rest[len..];
                }
                // Behind a hole the log goes on in the middle of a record.
                Found::Nothing if !rest.is_empty() => rest = &rest[1..],
                Found::Nothing => break 0,
                Found::Cut(wanted) => break wanted,
            }
        };
        rest
    }
}
