//! The frames of framed streams.
//!
//! A frame is bound to its place: it names its file, life and position under a checksum. So bytes are never taken for ours that were copied, left over from an
//! earlier life of the zone, or written by a user as file contents. A frame that was torn by power loss is skipped. What follows it is found by looking at every
//! block, never by trusting the torn frame's length.

use imbrex_device::{AlignedBuf, Fault, Result};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 64;
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"IMfr");
/// Version of frames.
const VERSION: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawFrame {
    magic: U32,
    version: U16,
    flags: U16,
    file: U64,
    life: U64,
    sequence: U64,
    logical: U64,
    at: U64,
    len: U32,
    back: U32,
    payload_crc: U32,
    header_crc: U32,
}
const _: () = assert!(size_of::<RawFrame>() == FRAME_HEADER);

/// What binds a frame to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId {
    /// The file.
    pub file: u64,
    /// The life of the zone.
    pub life: u64,
}

/// A frame's header: one frame stands round each device write of a framed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Counts the frames of the file, over all its zones.
    pub sequence: u64,
    /// Logical offset of the payload's first byte.
    pub logical: u64,
    /// Where the header stands, in bytes from the zone's start.
    pub at: u64,
    /// Payload bytes.
    pub len: u32,
    /// Distance back to the header of the frame before in this zone, in bytes; 0: none.
    pub back: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

impl Frame {
    /// The header's bytes.
    pub fn encode(&self, id: FrameId) -> [u8; FRAME_HEADER] {
        let mut raw = RawFrame {
            magic: FRAME_MAGIC.into(),
            version: VERSION.into(),
            flags: 0.into(),
            file: id.file.into(),
            life: id.life.into(),
            sequence: self.sequence.into(),
            logical: self.logical.into(),
            at: self.at.into(),
            len: self.len.into(),
            back: self.back.into(),
            payload_crc: self.payload_crc.into(),
            header_crc: 0.into(),
        };
        raw.header_crc = crc32c::crc32c(raw.as_bytes()).into();
        let mut out = [0; FRAME_HEADER];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// Reads the header of a frame of `id` that must stand at `at` (bytes from the zone's start).
    pub fn decode(bytes: &[u8], id: FrameId, at: u64) -> Option<Frame> {
        let (raw, _) = RawFrame::read_from_prefix(bytes).ok()?;
        let bound = raw.magic.get() == FRAME_MAGIC
            && raw.version.get() == VERSION
            && raw.file.get() == id.file
            && raw.life.get() == id.life
            && raw.at.get() == at;
        if !bound {
            return None;
        }
        let mut unsummed = raw.clone();
        unsummed.header_crc = 0.into();
        if crc32c::crc32c(unsummed.as_bytes()) != raw.header_crc.get() {
            return None;
        }
        Some(Frame {
            sequence: raw.sequence.get(),
            logical: raw.logical.get(),
            at,
            len: raw.len.get(),
            back: raw.back.get(),
            payload_crc: raw.payload_crc.get(),
        })
    }

    /// Bytes it takes on the drive: header, payload, padding to the block.
    pub fn footprint(&self, block: u32) -> u64 {
        (FRAME_HEADER as u64 + u64::from(self.len)).next_multiple_of(u64::from(block))
    }

    /// Logical offset behind its payload.
    pub fn end(&self) -> u64 {
        self.logical.saturating_add(u64::from(self.len))
    }
}

/// Reads whole blocks of one zone: `(at, buf)` with `at` in bytes from the zone's start.
pub type ReadZone<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;

/// What a scan of a zone found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Whole frames, in order.
    pub frames: Vec<Frame>,
    /// Places (bytes from the zone's start) that hold a frame header whose payload is damaged or torn, or a block that could
    /// not be read.
    pub damaged: Vec<u64>,
    /// Those of them that the drive could not read: a power loss leaves torn frames, but no such places.
    pub unreadable: Vec<u64>,
}

/// Window of a scan: large enough that a scan streams, small enough to be nothing beside a segment.
const WINDOW: usize = 1 << 20;
/// That of a scan that hands out payloads: it has most frames whole, so that their payloads are copied nowhere.
const PAYLOADS: usize = 4 << 20;

struct Window<'a, 'b> {
    read: &'a mut ReadZone<'b>,
    /// How far the zone is written is not known: what cannot be read may lie behind the write pointer.
    untold: bool,
    buf: AlignedBuf,
    start: u64,
    len: usize,
    end: u64,
    block: usize,
}

impl<'a, 'b> Window<'a, 'b> {
    /// For reads from `from` (bytes from the zone's start) on, up to `end`.
    fn new(read: &'a mut ReadZone<'b>, from: u64, end: u64, block: u32) -> Self {
        Window::of(WINDOW, read, from, end, block)
    }

    fn of(most: usize, read: &'a mut ReadZone<'b>, from: u64, end: u64, block: u32) -> Self {
        let size = usize::try_from(end.saturating_sub(from)).unwrap_or(most).min(most);
        Window { read, untold: false, buf: AlignedBuf::zeroed(size), start: from, len: 0, end, block: block as usize }
    }

    /// The bytes from `at` (block-aligned) to the window's end; at least one block, or an error.
    fn get(&mut self, at: u64) -> Result<&[u8]> {
        if at < self.start || at >= self.start + self.len as u64 {
            let mut want = usize::try_from(self.end - at).unwrap_or(WINDOW).min(self.buf.len());
            self.start = at;
            self.len = 0;
            if let Err(error) = (self.read)(at, &mut self.buf[..want]) {
                if !is_local(&error, self.untold) {
                    return Err(error);
                }
                // Somewhere in the window is a bad block: go on block by block. Also a single block is read twice before it counts as lost: drives
                // have errors that pass.
                want = self.block;
                (self.read)(at, &mut self.buf[..want])?;
            }
            self.len = want;
        }
        Ok(&self.buf[(at - self.start) as usize..self.len])
    }

    /// The payload of a frame, unchecked, where the window can have all of it; `None`: it is too large, or some of it cannot be read.
    fn payload(&mut self, frame: &Frame) -> Result<Option<&[u8]>> {
        let bytes = frame.footprint(self.block as u32) as usize;
        let there = (self.start + self.len as u64).saturating_sub(frame.at) as usize;
        if bytes > self.buf.len() || there == 0 {
            return Ok(None);
        }
        if bytes > there {
            // The part that is there moves to the front, and what follows is read behind it.
            let from = (frame.at - self.start) as usize;
            self.buf.copy_within(from..self.len, 0);
            (self.start, self.len) = (frame.at, there);
            let want = usize::try_from(self.end - frame.at).unwrap_or(self.buf.len()).min(self.buf.len());
            match (self.read)(frame.at + there as u64, &mut self.buf[there..want]) {
                Ok(()) => self.len = want,
                Err(error) if is_local(&error, self.untold) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let from = (frame.at - self.start) as usize + FRAME_HEADER;
        Ok(self.buf[..self.len].get(from..from + frame.len as usize))
    }

    /// Checks the payload of a frame; `keep` gets it.
    fn payload_ok(&mut self, frame: &Frame, mut keep: Option<&mut Vec<u8>>) -> Result<bool> {
        let mut at = frame.at;
        let mut skip = FRAME_HEADER;
        let mut left = frame.len as usize;
        let mut crc = 0;
        while left > 0 {
            let bytes = self.get(at)?;
            let here = bytes.len();
            let take = left.min(here - skip);
            crc = crc32c::crc32c_append(crc, &bytes[skip..skip + take]);
            if let Some(keep) = &mut keep {
                keep.extend_from_slice(&bytes[skip..skip + take]);
            }
            left -= take;
            at += here as u64;
            skip = 0;
        }
        Ok(crc == frame.payload_crc)
    }
}

/// Whether an error is about a place, not about the zone as a whole. `untold`: the place may lie behind the write pointer,
/// where a drive may refuse to read.
fn is_local(error: &imbrex_device::Error, untold: bool) -> bool {
    matches!(error.fault, Fault::Media { .. } | Fault::Io(_))
        || (untold && matches!(error.fault, Fault::InvalidInput(_)))
}

/// Finds every whole frame of `id` between `from` and `to` (bytes from the zone's start, block multiples).
///
/// Damage never ends the scan: whatever is no whole frame is stepped over block by block. Errors only where the zone as a
/// whole cannot be read.
pub fn scan(read: &mut ReadZone<'_>, id: FrameId, from: u64, to: u64, block: u32) -> Result<Scan> {
    scan_window(Window::new(read, from, to, block), id, (from, to), u64::MAX, u64::MAX, None)
}

/// The same, but no further than the first frame that reaches the logical offset `end`.
pub fn scan_until(read: &mut ReadZone<'_>, id: FrameId, (from, to): (u64, u64), block: u32, end: u64) -> Result<Scan> {
    scan_window(Window::new(read, from, to, block), id, (from, to), u64::MAX, end, None)
}

/// The same for a zone of which nobody knows how far it is written: the frames are over where `reach` bytes hold none.
///
/// What is damaged or cannot be read behind the last whole frame is not reported: maybe nothing was ever written there.
pub fn scan_untold(read: &mut ReadZone<'_>, id: FrameId, from: u64, to: u64, block: u32, reach: u64) -> Result<Scan> {
    let window = Window { untold: true, ..Window::new(read, from, to, block) };
    Ok(scan_window(window, id, (from, to), reach, u64::MAX, None)?.without_end())
}

/// Is handed a whole frame and its payload.
pub type EachFrame<'a> = dyn FnMut(&Frame, &[u8]) + 'a;

/// [`scan`], or with a `reach` [`scan_untold`], that hands the payload of each whole frame to `each`: nothing has to be read again for it.
pub fn scan_payloads(
    read: &mut ReadZone<'_>,
    id: FrameId,
    (from, to): (u64, u64),
    block: u32,
    reach: Option<u64>,
    each: &mut EachFrame<'_>,
) -> Result<Scan> {
    let window = Window { untold: reach.is_some(), ..Window::of(PAYLOADS, read, from, to, block) };
    let found = scan_window(window, id, (from, to), reach.unwrap_or(u64::MAX), u64::MAX, Some(each))?;
    Ok(if reach.is_some() { found.without_end() } else { found })
}

impl Scan {
    /// Without what is damaged behind the last whole frame.
    fn without_end(mut self) -> Scan {
        let last = self.frames.last().map(|frame| frame.at);
        self.damaged.retain(|at| last.is_some_and(|last| *at < last));
        self.unreadable.retain(|at| last.is_some_and(|last| *at < last));
        self
    }
}

fn scan_window(
    mut window: Window<'_, '_>,
    id: FrameId,
    (from, to): (u64, u64),
    reach: u64,
    end: u64,
    mut each: Option<&mut EachFrame<'_>>,
) -> Result<Scan> {
    let (block, untold) = (window.block as u32, window.untold);
    let mut found = Scan::default();
    let mut payload = Vec::new();
    let (mut at, mut behind) = (from, from);
    while at < to && at - behind < reach {
        let header = match window.get(at) {
            Ok(bytes) => Frame::decode(bytes, id, at),
            Err(error) if is_local(&error, untold) => {
                found.damaged.push(at);
                found.unreadable.push(at);
                at += u64::from(block);
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(frame) = header else {
            at += u64::from(block);
            continue;
        };
        let fits = frame.footprint(block) <= to - at;
        payload.clear();
        if fits
            && let Some(each) = &mut each
            && let Some(payload) = window.payload(&frame)?
            && crc32c::crc32c(payload) == frame.payload_crc
        {
            each(&frame, payload);
            at += frame.footprint(block);
            behind = at;
            found.frames.push(frame);
            continue;
        }
        let whole = fits
            && match window.payload_ok(&frame, each.is_some().then_some(&mut payload)) {
                Ok(ok) => ok,
                Err(error) if is_local(&error, untold) => {
                    found.unreadable.push(at);
                    false
                }
                Err(error) => return Err(error),
            };
        if whole {
            at += frame.footprint(block);
            behind = at;
            if let Some(each) = &mut each {
                each(&frame, &payload);
            }
            found.frames.push(frame);
            if frame.end() >= end {
                break;
            }
        } else {
            found.damaged.push(at);
            at += u64::from(block);
        }
    }
    Ok(found)
}

/// A search backwards begins with a piece of this many bytes, and doubles it up to the second number: a log's end is usually near, and where
/// it is not, each read costs a rotating drive a turn, whatever its length.
const BACK: [u64; 2] = [64 << 10, 1 << 20];

/// Reads a piece of a zone. A block that cannot be read, not even a second time, is zeros, which no frame is, and goes to `bad`: only the halves
/// around it are read again.
fn read_around(read: &mut ReadZone<'_>, at: u64, buf: &mut [u8], block: usize, bad: &mut Vec<u64>) -> Result<()> {
    match read(at, buf) {
        Err(error) if is_local(&error, false) && buf.len() <= block => match read(at, buf) {
            Err(error) if is_local(&error, false) => {
                buf.fill(0);
                bad.push(at);
                Ok(())
            }
            other => other,
        },
        Err(error) if is_local(&error, false) => {
            let half = (buf.len() / block / 2).max(1) * block;
            let (front, back) = buf.split_at_mut(half);
            read_around(read, at + half as u64, back, block, bad)?;
            read_around(read, at, front, block, bad)
        }
        other => other,
    }
}

/// What a search backwards found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastFrame {
    /// The last whole frame; `None`: there is none within reach, so [`scan`] has to tell.
    pub frame: Option<Frame>,
    /// Blocks behind it, in bytes from the zone's start, that the drive could not read; the last one first.
    pub unreadable: Vec<u64>,
}

/// Finds the last whole frame below `to` that `counts`, looking backwards over at most `reach` bytes: how a mount learns the size of a
/// log without reading it.
pub fn last_frame(
    read: &mut ReadZone<'_>,
    id: FrameId,
    (from, to): (u64, u64),
    block: u32,
    reach: u64,
    counts: impl Fn(&Frame) -> bool,
) -> Result<LastFrame> {
    let mut unreadable = Vec::new();
    let floor = from.max(to.saturating_sub(reach));
    let [mut piece, most] = BACK;
    let mut buf = AlignedBuf::zeroed(usize::try_from((to - floor.min(to)).min(most)).unwrap_or(0));
    let mut end = to;
    while end > floor {
        let start = floor.max(end.saturating_sub(piece));
        let bytes = &mut buf[..(end - start) as usize];
        read_around(read, start, bytes, block as usize, &mut unreadable)?;
        for offset in (0..bytes.len()).step_by(block as usize).rev() {
            let (at, here) = (start + offset as u64, &bytes[offset..]);
            let Some(frame) = Frame::decode(here, id, at) else { continue };
            if frame.footprint(block) > to - at || !counts(&frame) {
                continue;
            }
            let whole = match here.get(FRAME_HEADER..FRAME_HEADER + frame.len as usize) {
                Some(payload) => Ok(crc32c::crc32c(payload) == frame.payload_crc),
                // It goes on in the piece behind this one.
                None => Window::new(read, at, at + frame.footprint(block), block).payload_ok(&frame, None),
            };
            match whole {
                Ok(true) => {
                    unreadable.retain(|bad| *bad >= at + frame.footprint(block));
                    return Ok(LastFrame { frame: Some(frame), unreadable });
                }
                Ok(false) => {}
                Err(error) if is_local(&error, false) => {}
                Err(error) => return Err(error),
            }
        }
        end = start;
        piece = (2 * piece).min(most);
    }
    Ok(LastFrame { frame: None, unreadable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{Error, ZoneId};

    const ID: FrameId = FrameId { file: 5, life: 77 };
    const BLOCK: u32 = 512;

    /// A zone of frames with the given payload sizes; returns its bytes and the frames.
    fn zone_of(sizes: &[u32]) -> (Vec<u8>, Vec<Frame>) {
        let (mut zone, mut frames) = (vec![0; BLOCK as usize], Vec::new());
        let (mut logical, mut back) = (0, 0);
        for (i, &len) in sizes.iter().enumerate() {
            let payload: Vec<u8> = (0..len).map(|b| (b as usize * 7 + i) as u8).collect();
            let frame = Frame {
                sequence: i as u64,
                logical,
                at: zone.len() as u64,
                len,
                back,
                payload_crc: crc32c::crc32c(&payload),
            };
            zone.extend_from_slice(&frame.encode(ID));
            zone.extend_from_slice(&payload);
            zone.resize(zone.len().next_multiple_of(BLOCK as usize), 0);
            back = frame.footprint(BLOCK) as u32;
            logical += u64::from(len);
            frames.push(frame);
        }
        (zone, frames)
    }

    fn reader(zone: &[u8], bad: Option<u64>) -> impl FnMut(u64, &mut [u8]) -> Result<()> + '_ {
        move |at, buf| {
            if bad.is_some_and(|b| b >= at && b < at + buf.len() as u64) {
                return Err(Error::new(&"t".into(), Fault::Media { len: 0 }).at(ZoneId(0), at));
            }
            buf.copy_from_slice(&zone[at as usize..at as usize + buf.len()]);
            Ok(())
        }
    }

    #[test]
    fn scan_finds_all_and_last_frame_finds_the_last() {
        let (zone, frames) = zone_of(&[1, 448, 449, 5000, 0, 3]);
        let to = zone.len() as u64;
        let found = scan(&mut reader(&zone, None), ID, 512, to, BLOCK).unwrap();
        assert_eq!(found, Scan { frames: frames.clone(), ..Scan::default() });
        let last = last_frame(&mut reader(&zone, None), ID, (512, to), BLOCK, 1 << 20, |_| true).unwrap();
        assert_eq!(last, LastFrame { frame: frames.last().copied(), unreadable: Vec::new() });
        let mut payloads = Vec::new();
        let mut each = |frame: &Frame, payload: &[u8]| payloads.push((*frame, payload.to_vec()));
        let again = scan_payloads(&mut reader(&zone, None), ID, (512, to), BLOCK, None, &mut each).unwrap();
        assert_eq!(again, found);
        for (frame, payload) in payloads {
            let from = frame.at as usize + FRAME_HEADER;
            assert_eq!(payload, zone[from..from + frame.len as usize]);
        }
    }

    #[test]
    fn a_zone_of_untold_length_ends_with_its_frames() {
        let (mut zone, frames) = zone_of(&[1, 448, 3000, 7]);
        let end = zone.len() as u64;
        // What was torn, and an old block that happens to lie behind it, are not told; nor what cannot be read.
        zone.extend_from_slice(&Frame { at: end, len: 90_000, ..frames[0] }.encode(ID));
        zone.resize(end as usize + 40 * BLOCK as usize, 0);
        let to = zone.len() as u64;
        for bad in [None, Some(end + 5 * u64::from(BLOCK)), Some(1024)] {
            let mut inner = reader(&zone, bad);
            let mut read = |at: u64, buf: &mut [u8]| {
                inner(at, buf).map_err(|e| match at < end {
                    true => e,
                    // As drives say that do not allow reads behind the write pointer.
                    false => Error::invalid(&"t".into(), "behind the write pointer"),
                })
            };
            let found = scan_untold(&mut read, ID, 512, to, BLOCK, 8 * u64::from(BLOCK)).unwrap();
            let lost = usize::from(bad == Some(1024));
            assert_eq!(found.frames.len(), frames.len() - lost);
            assert_eq!(found.frames.last(), frames.last());
            assert_eq!((found.damaged.len(), found.unreadable.len()), (lost, lost));
            assert_eq!(scan(&mut reader(&zone, None), ID, 512, to, BLOCK).unwrap().damaged, [end]);
        }
    }

    #[test]
    fn another_life_or_place_is_not_taken_for_a_frame() {
        let (zone, _) = zone_of(&[100, 200]);
        let to = zone.len() as u64;
        let other = FrameId { life: 78, ..ID };
        assert!(scan(&mut reader(&zone, None), other, 512, to, BLOCK).unwrap().frames.is_empty());
        let mut moved = vec![0; 512];
        moved.extend_from_slice(&zone);
        let found = scan(&mut reader(&moved, None), ID, 512, moved.len() as u64, BLOCK).unwrap();
        assert!(found.frames.is_empty());
    }

    #[test]
    fn every_torn_end_leaves_the_frames_before_it() {
        let (zone, frames) = zone_of(&[100, 3000, 700]);
        for cut in (512..=zone.len()).step_by(512) {
            let whole: Vec<_> = frames.iter().filter(|f| f.at + f.footprint(BLOCK) <= cut as u64).copied().collect();
            let found = scan(&mut reader(&zone, None), ID, 512, cut as u64, BLOCK).unwrap();
            assert_eq!(found.frames, whole, "cut {cut}");
            let last = last_frame(&mut reader(&zone, None), ID, (512, cut as u64), BLOCK, 1 << 20, |_| true).unwrap();
            assert_eq!(last.frame, whole.last().copied(), "cut {cut}");
        }
    }

    #[test]
    fn a_bad_block_costs_only_its_frame() {
        let (zone, frames) = zone_of(&[100, 3000, 700, 40]);
        for bad in (512..zone.len() as u64).step_by(512) {
            let found = scan(&mut reader(&zone, Some(bad)), ID, 512, zone.len() as u64, BLOCK).unwrap();
            let rest: Vec<_> =
                frames.iter().filter(|f| !(f.at..f.at + f.footprint(BLOCK)).contains(&bad)).copied().collect();
            assert_eq!(found.frames, rest, "bad {bad}");
            assert!(!found.damaged.is_empty());
        }
    }

    #[test]
    fn an_error_that_passes_costs_no_frame() {
        // Also where all there is to read is one block.
        for sizes in [&[100][..], &[100, 3000, 700, 40]] {
            let (zone, frames) = zone_of(sizes);
            let to = zone.len() as u64;
            let mut failed = std::collections::HashSet::new();
            let mut read = |at: u64, buf: &mut [u8]| match failed.insert(at) {
                true => Err(Error::new(&"t".into(), Fault::Media { len: 0 }).at(ZoneId(0), at)),
                false => reader(&zone, None)(at, buf),
            };
            let found = scan(&mut read, ID, 512, to, BLOCK).unwrap();
            assert_eq!(found, Scan { frames: frames.clone(), ..Scan::default() });
            let last = last_frame(&mut read, ID, (512, to), BLOCK, 1 << 20, |_| true).unwrap();
            assert_eq!(last, LastFrame { frame: frames.last().copied(), unreadable: Vec::new() });
        }
    }

    /// A torn end of megabytes costs a turn of the platters a piece, not one a block; a bad block in it costs that block.
    #[test]
    fn the_last_frame_is_found_in_few_reads_however_far_back_it_is() {
        let (mut zone, frames) = zone_of(&[100, 3000, 150_000]);
        let whole = zone.len() as u64;
        for behind in [0, 512, 60 << 10, 1 << 20, 4 << 20, 18 << 20] {
            zone.resize((whole + behind) as usize, 0);
            for bad in [None, Some(whole), Some(whole + behind / 2), Some(frames[2].at)] {
                let bad = bad.filter(|bad| (*bad >= whole) == (*bad < whole + behind));
                let mut reads = 0;
                let mut inner = reader(&zone, bad);
                let mut read = |at: u64, buf: &mut [u8]| {
                    reads += 1;
                    inner(at, buf)
                };
                let found = last_frame(&mut read, ID, (512, zone.len() as u64), BLOCK, 20 << 20, |_| true).unwrap();
                let lost = usize::from(bad == Some(frames[2].at));
                assert_eq!(found.frame, Some(frames[2 - lost]), "{behind} bytes behind it, bad {bad:?}");
                assert_eq!(
                    found.unreadable,
                    bad.map_or(vec![], |bad| vec![bad / 512 * 512]),
                    "{behind} bytes behind it"
                );
                // Four pieces that double, then one a MiB; around a bad block the halves of a piece.
                let most = 7 + (behind >> 20) + if bad.is_some() { 2 * 12 } else { 0 };
                assert!(reads <= most, "{reads} reads, {behind} bytes behind it, bad {bad:?}");
            }
        }
    }

    #[test]
    fn a_frame_inside_a_payload_is_not_seen() {
        // A user stores the very bytes of a frame, aligned as a frame would be.
        let (inner, _) = zone_of(&[100, 200]);
        let (mut zone, mut frames) = zone_of(&[4000]);
        let payload_at = 512 + 448;
        zone[512 + 64 + 448..512 + 64 + 448 + 1024].copy_from_slice(&inner[512..1536]);
        frames[0].payload_crc = crc32c::crc32c(&zone[512 + 64..512 + 64 + 4000]);
        let encoded = frames[0].encode(ID);
        zone[512..576].copy_from_slice(&encoded);
        let found = scan(&mut reader(&zone, None), ID, 512, zone.len() as u64, BLOCK).unwrap();
        assert_eq!(found.frames, frames, "payload at {payload_at}");
    }
}
