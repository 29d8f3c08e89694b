//! Reading logs: framed streams.
//!
//! Where a frame stands is not kept while a log is written; a reader (a recovery, or somebody who follows a live log)
//! scans what is new and keeps the index. The last verified frame is kept, because logs are read in small steps.

use imbrex_device::{AlignedBuf, Error, Fault, Result, Tag, Written, Zone, ZoneId};
use imbrex_zones::Volume;
use imbrex_zones::frame::{FRAME_HEADER, Frame, FrameId, ReadZone, Scan, scan_until, scan_untold};
use imbrex_zones::write::Placed;

use crate::meta::{Extent, Place, Serial, next_stretch};
use std::sync::Arc;

/// How far frames are looked for behind the last one, in bytes, where the drive does not tell how far a zone is written. No frame is as long.
const UNTOLD_REACH: u64 = 4 << 20;

/// Whether a frame holds bytes of this extent of its log. In the same zone may stand copies of other bytes of the log, that the cleaner was
/// about to move there.
pub(crate) fn is_of(extent: &Extent, frame: &Frame) -> bool {
    frame.end() > extent.logical && frame.logical < extent.end()
}

/// The frames of a log's extent, of those that stand between `from` and `to` in its zone.
pub(crate) fn frames_of(
    extent: &Extent,
    zone: &Zone,
    read: &mut ReadZone<'_>,
    id: FrameId,
    (from, to): (u64, u64),
    block: u32,
) -> Result<Scan> {
    let mut found = match zone.written() {
        Written::Untold => scan_untold(read, id, from, to, block, UNTOLD_REACH)?,
        // Behind the frame with its last byte stands nothing of it.
        _ => scan_until(read, id, (from, to), block, extent.end())?,
    };
    found.frames.retain(|frame| is_of(extent, frame));
    Ok(found)
}

#[derive(Clone, Copy, Debug)]
struct Known {
    zone: u32,
    frame: Frame,
    /// Logical offset behind its last byte that counts: what a truncation cut off, or a later frame holds, does not.
    end: u64,
}

/// What is known of a log's frames.
#[derive(Default)]
pub(crate) struct LogIndex {
    /// By their logical offsets; none reaches over the next one's.
    frames: Vec<Known>,
    /// How far each extent was scanned: (zone, offset of the extent, next byte to look at).
    scanned: Vec<(u32, u64, u64)>,
    /// Behind the last frame that the stream placed: (zone, its life, frame's start, payload length).
    tail: Option<(u32, u64, u64, u64)>,
    /// Of the file's map that it was made of.
    version: u64,
    last: Option<(u64, Arc<Vec<u8>>)>,
}

impl LogIndex {
    /// The stream has placed a frame.
    pub(crate) fn note_tail(&mut self, placed: &Placed) {
        self.tail = Some((placed.zone.0, placed.life, placed.at, placed.len));
    }

    /// Forgets everything: the file was cut.
    pub(crate) fn clear(&mut self) {
        *self = LogIndex { tail: self.tail, ..LogIndex::default() };
    }

    /// What is known is of this version of the file's map, or forgotten.
    pub(crate) fn at_version(&mut self, version: u64) {
        if self.version != version {
            self.clear();
            self.version = version;
        }
    }

    /// Looks for frames that were written since the last time.
    fn update(&mut self, volume: &Volume, serial: Serial, extents: &[Extent], tag: Tag) -> Result<()> {
        let geometry = volume.geometry();
        for (i, extent) in extents.iter().enumerate() {
            let Place::Framed { zone, life, offset } = extent.place else { continue };
            let slot = match self.scanned.iter().position(|s| (s.0, s.1) == (zone, offset)) {
                Some(slot) => slot,
                None => {
                    self.scanned.push((zone, offset, offset));
                    self.scanned.len() - 1
                }
            };
            let from = self.scanned[slot].2;
            // An extent ends where the next one in the same zone begins, or at the write pointer; of the zone that is being
            // written only what the stream has placed is looked at, because behind it a write may be under way.
            let next = next_stretch(extents, i);
            let mut state = [imbrex_device::Zone::EMPTY];
            let to = match (next, self.tail) {
                (Some(next), _) => next,
                (None, Some((z, l, at, len))) if (z, l) == (zone, life) && (at >= offset || extent.is_open()) => {
                    at + (FRAME_HEADER as u64 + len).next_multiple_of(u64::from(geometry.block))
                }
                _ => {
                    volume.device().report(ZoneId(zone), &mut state)?;
                    match state[0].written() {
                        Written::To(to) => to,
                        Written::Untold => state[0].capacity,
                        Written::Gone => offset,
                    }
                }
            };
            if from >= to {
                continue;
            }
            let start = geometry.start(ZoneId(zone));
            let mut read = |at: u64, buf: &mut [u8]| volume.read(buf, start + at, tag);
            let id = FrameId { file: serial, life };
            let found = match frames_of(extent, &state[0], &mut read, id, (from, to), geometry.block) {
                Ok(found) => found,
                // What stands in other zones can be read all the same.
                Err(error) if matches!(error.fault, Fault::Offline) => continue,
                Err(error) => return Err(error),
            };
            self.scanned[slot].2 = to;
            let end = extent.end();
            for &frame in found.frames.iter().filter(|f| f.len > 0) {
                self.add(Known { zone, frame, end: frame.end().min(end) }, end);
            }
        }
        Ok(())
    }

    /// Takes in a frame that stands behind all known ones of its extent, which ends at `end`. A log is only appended to: what they
    /// hold of the bytes from its first one on was cut off before it was written, or is the same written twice.
    fn add(&mut self, known: Known, end: u64) {
        let from = known.frame.logical;
        let at = self.frames.partition_point(|k| k.frame.logical < from);
        let behind = self.frames.partition_point(|k| k.frame.logical < end);
        if let Some(before) = at.checked_sub(1).and_then(|i| self.frames.get_mut(i)) {
            before.end = before.end.min(from);
        }
        self.frames.splice(at..behind, [known]);
    }

    fn find(&self, at: u64) -> Option<Known> {
        let behind = self.frames.partition_point(|k| k.frame.logical <= at);
        self.frames[..behind].iter().rev().find(|k| at < k.end).copied()
    }

    /// Copies bytes at `at` into `out`, at most to the end of their frame; returns how many.
    ///
    /// # Errors
    /// `Corrupt` where the frame that held them is damaged.
    pub(crate) fn read(
        &mut self,
        volume: &Volume,
        serial: Serial,
        extents: &[Extent],
        at: u64,
        out: &mut [u8],
        tag: Tag,
    ) -> Result<usize> {
        let kept = self.last.as_ref().filter(|(logical, b)| *logical <= at && at < logical + b.len() as u64);
        if kept.is_none() {
            let known = match self.find(at) {
                Some(known) => known,
                None => {
                    let extent = extents.iter().find(|extent| at < extent.end());
                    if let Some(hole) = extent.map(|extent| extent.logical.saturating_sub(at)).filter(|hole| *hole > 0)
                    {
                        let n = out.len().min(usize::try_from(hole).unwrap_or(usize::MAX));
                        out[..n].fill(0);
                        return Ok(n);
                    }
                    self.update(volume, serial, extents, tag)?;
                    match (self.find(at), extent.map(|extent| extent.place)) {
                        (Some(known), _) => known,
                        (None, place) => return Err(why_not(volume, serial, at, place)),
                    }
                }
            };
            let geometry = volume.geometry();
            let mut buf = AlignedBuf::zeroed(known.frame.footprint(geometry.block) as usize);
            let address = geometry.start(ZoneId(known.zone)) + known.frame.at;
            volume.read(&mut buf, address, tag)?;
            let payload = buf.get(FRAME_HEADER..FRAME_HEADER + known.frame.len as usize).unwrap_or_default();
            if crc32c::crc32c(payload) != known.frame.payload_crc {
                let what = format!("the frame of log {serial} that holds byte {at}");
                return Err(Error::corrupt(&volume.name(), what)
                    .checked_by("imbrex fs check")
                    .at(ZoneId(known.zone), known.frame.at));
            }
            let counts = (known.end - known.frame.logical) as usize;
            self.last = Some((known.frame.logical, Arc::new(payload[..counts.min(payload.len())].to_vec())));
        }
        let Some((logical, bytes)) = &self.last else { return Ok(0) };
        let from = (at - logical) as usize;
        let n = out.len().min(bytes.len() - from);
        out[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }
}

/// Why no frame has the byte at `at`.
fn why_not(volume: &Volume, serial: Serial, at: u64, place: Option<Place>) -> Error {
    if let Some(Place::Framed { zone, offset, .. }) = place {
        let mut state = [imbrex_device::Zone::EMPTY];
        if volume.device().report(ZoneId(zone), &mut state).is_ok() && state[0].written() == Written::Gone {
            return Error::new(&volume.name(), Fault::Offline).at(ZoneId(zone), offset);
        }
    }
    Error::corrupt(&volume.name(), format!("byte {at} of log {serial}: the frame that held it"))
        .checked_by("imbrex fs check")
}
