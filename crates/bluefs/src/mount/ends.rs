//! Where the files that were open really end: by frames, by write pointers, by what the journal and memory vouch for.
//!
//! Invariant: what was promised is inside the end, and no byte of another file, or of an earlier life of a zone, is. Where a log may
//! have gone on in a place that cannot be read, it ends in an error and not early.
//!
//! Ends of logs are looked for in order of place, several at a time, and each in what the journal leaves it: a log's part of a zone ends where
//! the next file's begins. What the journal has found durable before ([`Meta::is_settled`](crate::meta::Meta::is_settled)) is not looked for again.

use super::{Found, TAG, read_twice};
use crate::file::log::{frames_of, is_of};
use crate::kind::FileKind;
use crate::meta::{Extent, Inode, Place, Record, Serial, next_stretch};
use crate::mount::rescue::Stretches;
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Result, Written, Zone, ZoneId};
use imbrex_zones::frame::{Frame, FrameId, LastFrame, last_frame, scan};
use imbrex_zones::{Tenant, Volume, ZoneHeader};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes from an extent's start that the zone's write pointer vouches for, or the next stretch in it; `None`: the drive does
/// not tell.
pub(crate) fn covered(zones: &[Zone], stretches: &Stretches, extent: &Extent) -> Option<u64> {
    let (Place::Raw { zone, offset, .. } | Place::Framed { zone, offset, .. }) = extent.place else { return None };
    match zones.get(zone as usize)?.written() {
        Written::To(wp) => Some(stretches.end_of(zone, offset).unwrap_or(wp).min(wp).saturating_sub(offset)),
        Written::Untold | Written::Gone => None,
    }
}

/// How far back from its write pointer a log's last frame is looked for, in bytes, before all of the zone is.
const REACH: u64 = 4 << 20;

/// Logs whose ends are looked for at a time, where the volume has threads: the drive serves the nearest first.
pub(super) const AT_ONCE: usize = 4;

/// Where a log's last whole frame ends.
#[derive(Default)]
pub(crate) struct LogEnd {
    /// The logical offset; `None`: the drive does not tell.
    pub(crate) end: Option<u64>,
    /// Places behind it that cannot be read, the last one first. Frames may have stood there, of this log or of others.
    unreadable: Vec<Place>,
    /// The first written block behind it, of this log or of others.
    behind: Option<Place>,
}

/// End of a log, or of its extents up to `last`, by the last whole frame. `others`: where behind this offset in this zone the next file's bytes
/// begin, if that is known.
pub(crate) fn log_end(
    volume: &Volume,
    zones: &[Zone],
    inode: &Inode,
    last: usize,
    others: &dyn Fn(u32, u64) -> Option<u64>,
) -> Result<LogEnd> {
    let (mut unreadable, mut behind) = (Vec::new(), None);
    let geometry = volume.geometry();
    for (i, extent) in inode.extents.iter().enumerate().take(last.saturating_add(1)).rev() {
        let Place::Framed { zone, life, offset } = extent.place else {
            return Ok(LogEnd { end: Some(extent.end()), unreadable, behind });
        };
        let Some(state) = zones.get(zone as usize) else { return Ok(LogEnd { end: None, unreadable, behind }) };
        let start = geometry.start(ZoneId(zone));
        let mut to = match state.written() {
            Written::To(to) => to.max(offset),
            Written::Untold => state.capacity,
            // Its length is known, so that reading it is an error and not an end.
            Written::Gone if inode.closed => return Ok(LogEnd { end: None, unreadable, behind }),
            Written::Gone if !extent.is_open() => return Ok(LogEnd { end: Some(extent.end()), unreadable, behind }),
            Written::Gone => {
                unreadable.push(extent.place);
                continue;
            }
        };
        for next in next_stretch(&inode.extents, i).into_iter().chain(others(zone, offset)) {
            to = to.min(next);
        }
        let id = FrameId { file: inode.serial, life };
        let mut read = |at: u64, buf: &mut [u8]| read_twice(volume, buf, start + at, TAG);
        if state.written() == Written::Untold {
            match frames_of(extent, state, &mut read, id, (offset, to), geometry.block)?.frames.last() {
                Some(frame) => return Ok(LogEnd { end: Some(frame.end().min(extent.end())), unreadable, behind }),
                None => continue,
            }
        }
        let ours = |frame: &Frame| is_of(extent, frame);
        let LastFrame { mut frame, unreadable: mut lost } =
            last_frame(&mut read, id, (offset, to), geometry.block, REACH, ours)?;
        if let Some(frame) = frame.filter(|_| !lost.is_empty()) {
            // Another file's bytes, deleted or not, begin where this log's end: no frame of it follows.
            let mut block = AlignedBuf::zeroed(geometry.block.max(4096) as usize);
            let is_read = read(frame.at + frame.footprint(geometry.block), &mut block).is_ok();
            if is_read && ZoneHeader::decode(&block).is_some_and(|h| h.life == life && h.file != inode.serial) {
                lost.clear();
            }
        } else if frame.is_none() && to.saturating_sub(offset) > REACH {
            let rest = scan(&mut read, id, offset, to, geometry.block)?;
            frame = rest.frames.iter().rfind(|frame| ours(frame)).copied();
            let behind = |place: &u64| frame.is_none_or(|frame| *place > frame.at);
            lost = rest.unreadable.into_iter().rev().filter(behind).collect();
        }
        unreadable.extend(lost.into_iter().map(|offset| Place::Framed { zone, life, offset }));
        let next = frame.map_or(offset, |frame| frame.at + frame.footprint(geometry.block));
        if next < to && frame.is_none_or(|frame| frame.end() < extent.end()) {
            behind = Some(Place::Framed { zone, life, offset: next });
        }
        if let Some(frame) = frame {
            return Ok(LogEnd { end: Some(frame.end().min(extent.end())), unreadable, behind });
        }
    }
    Ok(LogEnd { end: Some(0), unreadable, behind })
}

/// Whether a log's end has to be looked for: that of one which is closed is known, unless the power failed before its bytes were surely durable, or the
/// drive says that it does not have them: it may have lost power without telling.
fn is_looked_for(zones: &[Zone], inode: &Inode, found: &Found) -> bool {
    let is_short = |last: &Extent| covered(zones, &found.stretches, last).is_some_and(|bytes| bytes < last.len);
    let settled = || found.meta.is_settled(inode.serial) && !found.damaged;
    let unsure = || found.report.power_lost && !inode.extents.is_empty() && !settled();
    inode.kind == FileKind::Log && (!inode.closed || unsure() || inode.extents.last().is_some_and(is_short))
}

/// The ends of all logs that have to be looked for, by file.
fn log_ends(volume: &Volume, zones: &[Zone], found: &Found, at_once: usize) -> Result<BTreeMap<Serial, LogEnd>> {
    let mut logs: Vec<&Inode> = found.meta.files().filter(|inode| is_looked_for(zones, inode, found)).collect();
    logs.sort_by_key(|inode| inode.extents.last().map(|last| place_of(last.place)));
    let next = AtomicUsize::new(0);
    let ends = Mutex::new(BTreeMap::new());
    let look = || -> Result<()> {
        while let Some(inode) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let others = |zone, offset| {
                let known = !found.damaged;
                known.then(|| found.meta.next_in_zone(zone, offset, inode.serial)).flatten()
            };
            let end = log_end(volume, zones, inode, usize::MAX, &others)?;
            lock(&ends).insert(inode.serial, end);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        // Where the system has no more threads, this one does it all.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, look).ok();
        let threads: Vec<_> = (1..at_once.min(logs.len())).filter_map(spawn).collect();
        let mine = look();
        let of_thread = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(of_thread).fold(mine, Result::and)
    })?;
    Ok(ends.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// By which places on the drive are in order.
fn place_of(place: Place) -> (u32, u64) {
    match place {
        Place::Conventional { addr } => (0, addr),
        Place::Raw { zone, offset, .. } | Place::Framed { zone, offset, .. } => (zone, offset),
    }
}

/// How long a table is whose last zone does not tell. A size is announced before it is written; what a dead process had left
/// in memory begins where its writes ended, and where it left nothing everything was written.
fn vouched(inode: &Inode, found: &Found) -> u64 {
    match &found.left_of {
        Some(left) if !found.report.power_lost => {
            left.get(&inode.serial).map_or(inode.known_size(), |bytes| bytes.start)
        }
        _ => inode.size,
    }
}

/// What a dead process had left of a file in memory. It ends where the file does: bytes are written in order.
fn left_of<'a>(inode: &Inode, found: &'a Found) -> Option<&'a Range<u64>> {
    found.left_of.as_ref().filter(|_| !found.report.power_lost)?.get(&inode.serial)
}

/// The bytes of a log in a dead process's memory, where these do not begin at the end that was found of it.
fn left_behind_a_gap<'a>(inode: &Inode, found: &'a Found, end: u64) -> Option<&'a Range<u64>> {
    let left = left_of(inode, found).filter(|_| inode.kind == FileKind::Log)?;
    (left.start > end && left.end > left.start).then_some(left)
}

/// A place behind the end of a log where some of its bytes may have stood, that do not stand there now.
struct Hole {
    place: Place,
    /// What is wrong with it.
    why: &'static str,
}

/// Whether what stands behind the end of an open log was a frame of it, where the power was not lost: else another stretch begins there, and that
/// with a header. (Copies that the cleaner was about to move there have one as well.)
fn is_damaged(volume: &Volume, found: &Found, place: Place) -> bool {
    let Place::Framed { zone, life, offset } = place else { return false };
    let geometry = volume.geometry();
    let mut block = AlignedBuf::zeroed(geometry.block.max(4096) as usize);
    if found.meta.pieces(zone).any(|piece| piece.offset == offset + block.len() as u64) {
        return false;
    }
    let read = read_twice(volume, &mut block, geometry.start(ZoneId(zone)) + offset, TAG);
    read.is_err() || ZoneHeader::decode(&block).is_none_or(|header| header.life != life)
}

/// The hole behind the end that was found of a log, if there is one.
fn hole_behind(volume: &Volume, inode: &Inode, found: &Found, log: LogEnd) -> Option<Hole> {
    let end = log.end?;
    // What a dead process left in memory reaches to where the file ended: where it goes on at this end, nothing stood behind that.
    if left_of(inode, found).is_some_and(|left| (left.start..=left.end).contains(&end)) {
        return None;
    }
    let front = u64::from(volume.geometry().block.max(4096));
    let ours = |place: &Place| {
        let Place::Framed { zone, offset, .. } = *place else { return true };
        // What stands behind the header of another file's bytes is that one's. Of this log nothing is behind them but what the
        // journal says, or the bytes would have been found by their header.
        let before = found.meta.pieces(zone).take_while(|piece| piece.offset <= offset + front).last();
        before.is_none_or(|piece| piece.serial == inode.serial)
    };
    if let Some(place) = log.unreadable.into_iter().find(ours) {
        return Some(Hole { place, why: "cannot be read" });
    }
    // A loss of power tears what was being written, and so does the death of a process whose memory is gone. Bytes of a damaged journal are
    // told of in another way.
    let whole = volume.found_memory() && !found.report.power_lost && !found.restored && !found.damaged;
    let place = log.behind.filter(|_| whole && !inode.closed)?;
    is_damaged(volume, found, place).then_some(Hole { place, why: "is damaged" })
}

/// Where a file's bytes really end. `None`: as recorded.
/// `log`: where the frames of a log end, if that was looked for. `hole`: gets what is behind the end of a log.
fn true_end(
    volume: &Volume,
    zones: &[Zone],
    inode: &Inode,
    found: &Found,
    log: Option<LogEnd>,
    hole: &mut Option<Hole>,
) -> Option<u64> {
    let lost = found.report.power_lost;
    match inode.kind {
        FileKind::Directory => None,
        FileKind::Random if inode.closed => None,
        FileKind::Random => Some(if lost { inode.size } else { inode.known_size() }),
        FileKind::Log => {
            let log = log?;
            let end = log.end;
            *hole = hole_behind(volume, inode, found, log);
            end.filter(|end| !inode.closed || *end < inode.size)
        }
        FileKind::Table => {
            let (mut start, mut end) = (0, 0);
            let stretches = &found.stretches;
            let untold = inode.extents.last().is_some_and(|e| e.is_open() && covered(zones, stretches, e).is_none());
            let known = if untold { vouched(inode, found) } else { inode.known_size() };
            for extent in &inode.extents {
                let here = match (covered(zones, stretches, extent), extent.is_open()) {
                    (Some(covered), _) => covered.min(extent.len),
                    (None, false) => extent.len,
                    (None, true) => known.saturating_sub(extent.logical),
                };
                (start, end) = (extent.logical, extent.logical + here);
                // A hole that damage left in the middle costs what stood there, not what stands behind it.
                if here < extent.len && !found.damaged {
                    break;
                }
            }
            if inode.closed {
                return (end < inode.size).then_some(end);
            }
            // A mount that was killed while it wrote what is left may have begun another file's stretch behind this one, before its journal
            // said so.
            let end = left_of(inode, found).map_or(end, |bytes| end.min(bytes.end));
            // The last block may be padded; where the file ended was recorded before that block was written. What stands before the last
            // extent was there when that began, whatever size is recorded.
            let padded = |size: u64| (start..=end).contains(&size) && end - size < u64::from(volume.geometry().block);
            let size = match (found.damaged, lost) {
                (false, true) => inode.size.min(end),
                _ if padded(known) => known,
                _ if padded(inode.size) => inode.size,
                _ => end,
            };
            Some(size)
        }
    }
}

/// The programs' readers of logs take so many bytes at a time, and drop all of them where one cannot be read (the log formats of RocksDB
/// and LevelDB; zeros up to there are no record).
const LOG_BLOCK: u64 = 32 << 10;

/// Behind the end of a log bytes of it are lost, or may be. To end there would hide that: a MANIFEST that is shorter than it was makes RocksDB
/// delete the tables that the rest of it named. So bytes are said to stand there, and who reads so far gets the error: up to where memory goes on,
/// or one byte at the next boundary at which a reader of logs begins.
fn lost_end(inode: &Inode, found: &Found, end: u64, place: Place) -> [Record; 3] {
    let (serial, time) = (inode.serial, inode.modified);
    let extent = match left_behind_a_gap(inode, found, end) {
        Some(left) => Extent { logical: end, len: left.start - end, place },
        None => Extent { logical: end.next_multiple_of(LOG_BLOCK), len: 1, place },
    };
    [Record::Reopen { serial }, Record::Extend { serial, extent }, Record::Seal { serial, size: extent.end(), time }]
}

/// Gives every file that was open its exact end. True where anything was changed.
pub(super) fn fix_ends(tenant: &Tenant, zones: &[Zone], found: &mut Found, at_once: usize) -> Result<bool> {
    let volume = tenant.volume();
    let mut ends = log_ends(volume, zones, found, at_once)?;
    let mut fixes: Vec<(Serial, Vec<Record>)> = Vec::new();
    for inode in found.meta.files() {
        let (serial, time) = (inode.serial, inode.modified);
        let mut hole = None;
        let log = ends.remove(&serial);
        let Some(end) = true_end(volume, zones, inode, found, log, &mut hole) else { continue };
        if let Some(Hole { place: Place::Framed { zone, offset, .. }, why }) = hole {
            let (path, at) = (found.meta.path_of(serial), volume.geometry().start(ZoneId(zone)) + offset);
            found.report.damage.push(format!(
                "the block of the drive at {at} {why}: what {path} held from {end} on may be lost, and reading on there is an error"
            ));
        } else if let Some(left) = left_behind_a_gap(inode, found, end) {
            let (path, bytes) = (found.meta.path_of(serial), left.end - left.start);
            found.report.damage.push(format!(
                "{path} ends at {end}: its bytes up to {} are lost, so {bytes} behind them, which a dead process had left in memory, are dropped",
                left.start
            ));
        } else if end < inode.size && !found.report.power_lost {
            let path = found.meta.path_of(serial);
            found.report.damage.push(format!("{path} ends at {end}, but {} bytes were recorded", inode.size));
        }
        // Zones that nothing was found in, or that are gone, lie behind the end.
        let beyond = inode.extents.last().is_some_and(|last| last.logical > end);
        let cut = end < inode.size || inode.closed || beyond;
        // Freed zones stay unadopted, and so are reset like all others that nobody refers to.
        let cut = cut.then_some(Record::Truncate { serial, size: end, time });
        let records = cut.into_iter().chain([Record::Seal { serial, size: end, time }]);
        fixes.push((
            serial,
            records.chain(hole.into_iter().flat_map(|hole| lost_end(inode, found, end, hole.place))).collect(),
        ));
    }
    for (serial, records) in &fixes {
        let done = records.iter().try_for_each(|record| {
            let _ = found.meta.apply(record)?;
            found.unwritten.push(record.clone());
            Ok::<_, crate::meta::MetaError>(())
        });
        if let Err(why) = done {
            let path = found.meta.path_of(*serial);
            found.report.damage.push(format!("{path} cannot be given its size ({why})"));
        }
    }
    Ok(!fixes.is_empty())
}
