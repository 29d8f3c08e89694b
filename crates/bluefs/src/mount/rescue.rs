//! After the journal lost records: what the drive and the survivor still know of it.
//!
//! The headers of sequential zones name their files, frames say how far a log goes, write pointers how far a table does, and
//! the survivor holds bytes that were never written. What is found becomes part of the metadata before the journal is written
//! anew, so that a bad sector in it costs names and times at most, and no bytes of a log or table. Where it cannot be told
//! whether bytes were lost or cut off on purpose, they are kept.

use crate::kind::FileKind;
use crate::meta::{Extent, Inode, Meta, MetaError, Place, Record, Serial, Witness};
use crate::mount::{TAG, covered, log_end};
use imbrex_device::{Result, Written, Zone, ZoneId};
use imbrex_zones::frame::{Frame, FrameId, scan};
use imbrex_zones::shell::salvage::stretches;
use imbrex_zones::{LeftSegment, Tenant, Volume, ZoneHeader};
use std::collections::BTreeMap;

/// What there is to find things on.
pub(crate) struct Scene<'a> {
    pub(crate) volume: &'a Volume,
    /// The zones as they were when the volume was opened.
    pub(crate) zones: &'a [Zone],
    pub(crate) left: &'a [LeftSegment],
    pub(crate) stretches: &'a Stretches,
}

/// A header in a zone, and the offset behind it, where its file's bytes begin.
type Stretch = (ZoneHeader, u64);

/// Where in every zone files begin, by the headers that stand there.
#[derive(Default)]
pub(crate) struct Stretches(BTreeMap<u32, Vec<Stretch>>);

impl Stretches {
    /// Reads all that is written to the tenant's zones but the journal's: the first block of every zone, and behind it, block
    /// by block, what may be the header of another file's bytes.
    pub(crate) fn find(tenant: &Tenant, zones: &[Zone]) -> Stretches {
        let (volume, owner) = (tenant.volume(), tenant.owner());
        let of = |id: ZoneId| {
            let mut all = stretches(volume.device().as_ref(), &zones[id.0 as usize]);
            let life = all.first().map(|first| first.header.life);
            let is_ours = |h: &ZoneHeader| (h.volume, h.owner, Some(h.life)) == (volume.uuid(), owner, life);
            all.retain(|stretch| is_ours(&stretch.header));
            (id.0, all.into_iter().map(|stretch| (stretch.header, stretch.from)).collect())
        };
        Stretches(tenant.unadopted().into_iter().map(of).collect())
    }

    fn all(&self) -> impl Iterator<Item = &Stretch> {
        self.0.values().flatten()
    }

    /// Where the stretch that holds `offset` ends, if another one follows.
    pub(crate) fn end_of(&self, zone: u32, offset: u64) -> Option<u64> {
        let next = self.0.get(&zone)?.iter().find(|(_, begin)| *begin > offset)?;
        let front = self.0.get(&zone)?.first().map_or(0, |(_, begin)| *begin);
        Some(next.1.saturating_sub(front))
    }

    /// The file whose stretch holds `offset`.
    fn file_at(&self, zone: u32, life: u64, offset: u64) -> Option<Serial> {
        let stretch = self.0.get(&zone)?.iter().rev().find(|(_, begin)| *begin <= offset)?;
        (stretch.0.life == life).then_some(stretch.0.file)
    }
}

/// Puts back what the journal no longer says; a sentence about each thing goes to `damage`.
pub(crate) fn rescue(scene: &Scene<'_>, meta: &mut Meta, damage: &mut Vec<String>) -> Result<()> {
    find_lost_zones(scene, meta, damage)?;
    damage.extend(meta.restore_sizes());
    fill_holes(scene, meta, damage)?;
    lengthen_files(scene, meta, damage)?;
    // Files whose bytes were only in memory yet.
    for segment in scene.left.iter().filter(|s| s.key.logical == 0) {
        if let Ok(what) = meta.restore_unplaced(segment.key.file) {
            damage.push(what);
        }
    }
    Ok(())
}

/// After the journal lost records: what cannot be where it is said to be is taken away, and zones that no metadata refers
/// to, but whose headers name a file that was not deleted, are given back to it, or to a file in `lost+found`.
fn find_lost_zones(scene: &Scene<'_>, meta: &mut Meta, damage: &mut Vec<String>) -> Result<()> {
    let &Scene { volume, zones, stretches, .. } = scene;
    forget_what_is_not_there(scene, meta, damage)?;
    // Of a zone that is known, the record of its beginning may be lost, and one of a later part not.
    let known: BTreeMap<u32, u64> = meta.zones().collect();
    let fits = |stretch: &&Stretch| known.get(&stretch.0.zone).is_none_or(|life| *life == stretch.0.life);
    let mut lost: Vec<Stretch> = scene.stretches.all().filter(fits).cloned().collect();
    lost.sort_by_key(|(header, _)| (header.file, header.logical, header.created));
    for (header, offset) in lost {
        let Some(kind) = FileKind::from_number(header.kind).filter(|k| k.is_sequential()) else { continue };
        let (zone, life) = (header.zone, header.life);
        let place = match kind {
            FileKind::Log => Place::Framed { zone, life, offset },
            _ => Place::Raw { zone, life, offset },
        };
        let (serial, name, created, logical) = (header.file, header.name.as_str(), header.created, header.logical);
        if kind == FileKind::Log && !meta.is_given_up(serial, place) {
            forget_cut_off(stretches, &header, meta, damage);
        }
        match meta.restore(&Witness { serial, kind, name, created, logical, place }) {
            Ok(()) => {
                // Only as far as the zone holds bytes: the next one may go on behind it.
                let mut beyond = Vec::new();
                if let Some(inode) = meta.inode(serial) {
                    for extent in inode.extents.iter().filter(|e| e.place.zone() == Some((zone, life))) {
                        beyond.extend(overreach(volume, zones, stretches, inode, extent.logical)?);
                    }
                }
                for (from, to) in beyond {
                    if let Err(why) = meta.forget_bytes(serial, from, to) {
                        damage.push(format!("zone {zone} of file {serial} does not fit ({why})"));
                    }
                }
                let path = meta.path_of(serial);
                damage.push(format!("the journal lost zone {zone} of {path}; it was found by its header"));
            }
            // Deleted, or an older copy of bytes that are there: to be reset like any other zone.
            Err(MetaError::NotFound | MetaError::Exists) => {}
            Err(why) => damage.push(format!("zone {zone} of file {serial} was found but does not fit ({why})")),
        }
    }
    Ok(())
}

/// Bytes of a log that stand in an older zone, where a newer one begins before they end, were cut off, or written again after an
/// error; the log went on in the newer one. That is certain only of bytes that follow the older zone's header without a break: what
/// a log was reopened for may be newer than the newer zone.
fn forget_cut_off(stretches: &Stretches, newer: &ZoneHeader, meta: &mut Meta, damage: &mut Vec<String>) {
    let Some(inode) = meta.inode(newer.file) else { return };
    let is_older = |e: &Extent| {
        let Place::Framed { zone, life, offset } = e.place else { return false };
        zone != newer.zone
            && stretches.all().any(|(h, begin)| {
                (h.zone, h.life, h.file, *begin) == (zone, life, newer.file, offset) && h.created < newer.created
            })
    };
    let over: Vec<(u64, u64)> = inode
        .extents
        .iter()
        .filter(|e| newer.logical < e.end() && is_older(e))
        .map(|e| (e.logical.max(newer.logical), e.end()))
        .collect();
    for (from, to) in over {
        if let Err(why) = meta.forget_bytes(newer.file, from, to) {
            damage.push(format!("bytes {from} to {to} of {} were cut off, but stay ({why})", meta.path_of(newer.file)));
        }
    }
}

/// The bytes that the extent at `logical` claims and its zone does not hold.
fn overreach(
    volume: &Volume,
    zones: &[Zone],
    stretches: &Stretches,
    inode: &Inode,
    logical: u64,
) -> Result<Option<(u64, u64)>> {
    let Some((i, extent)) = inode.extents.iter().enumerate().find(|(_, e)| e.logical == logical) else {
        return Ok(None);
    };
    let gone = |zone: u32| zones.get(zone as usize).is_none_or(|zone| zone.written() == Written::Gone);
    let here = match extent.place {
        Place::Framed { zone, .. } if gone(zone) => None,
        Place::Framed { .. } => log_end(volume, zones, inode, i, &|_, _| None)?.end.map(|end| end.max(extent.logical)),
        Place::Raw { .. } => covered(zones, stretches, extent).map(|covered| extent.logical + covered.min(extent.len)),
        Place::Conventional { .. } => None,
    };
    Ok(here.filter(|here| *here < extent.end()).map(|here| (here, extent.end())))
}

/// An extent before a lost one seems to reach to the one behind it: only as far as its zone holds bytes is believed.
fn forget_what_is_not_there(scene: &Scene<'_>, meta: &mut Meta, damage: &mut Vec<String>) -> Result<()> {
    let &Scene { volume, zones, stretches, .. } = scene;
    let mut gone = Vec::new();
    for inode in meta.files().filter(|i| i.kind.is_sequential()) {
        for extent in inode.extents.iter().rev().skip(1) {
            if let Some((from, to)) = overreach(volume, zones, stretches, inode, extent.logical)? {
                gone.push((inode.serial, from, to));
            }
        }
    }
    for (serial, from, to) in gone {
        if let Err(why) = meta.forget_bytes(serial, from, to) {
            let path = meta.path_of(serial);
            damage.push(format!("bytes {from} to {to} of {path} are lost ({why})"));
        }
    }
    Ok(())
}

/// A log that was cut or reopened goes on in the zone where it was; where the record of that is lost, but not that of the next
/// part, in the same zone or another, there is a hole between the two. Frames tell where its bytes are.
fn fill_holes(scene: &Scene<'_>, meta: &mut Meta, damage: &mut Vec<String>) -> Result<()> {
    let mut holes = Vec::new();
    for inode in meta.files().filter(|inode| inode.kind == FileKind::Log) {
        for (before, behind) in inode.extents.iter().zip(inode.extents.iter().skip(1)) {
            if before.end() >= behind.logical {
                continue;
            }
            let to = match behind.place {
                Place::Framed { offset, .. } if behind.place.zone() == before.place.zone() => offset,
                _ => u64::MAX,
            };
            if let Some((place, _)) = goes_on(scene, inode, before, to)?.filter(|(_, end)| *end >= behind.logical) {
                holes.push((inode.serial, before.end(), behind.logical, place));
            }
        }
    }
    for (serial, from, to, place) in holes {
        let path = meta.path_of(serial);
        damage.push(match meta.fill(serial, Extent { logical: from, len: to - from, place }) {
            Ok(()) => format!("the journal lost where bytes {from} to {to} of {path} are; they were found"),
            Err(why) => format!("bytes {from} to {to} of {path} were found but do not fit ({why})"),
        });
    }
    Ok(())
}

/// Where in the zone of a log's extent, below the offset `to`, its bytes go on behind the extent's end, and the logical offset at which they
/// end. Behind the bytes of other files, too: a log that is reopened writes no second header to the zone where it ended, but its
/// frames name it. `None`: they do not, or the drive does not tell how far the zone is written.
fn goes_on(scene: &Scene<'_>, inode: &Inode, extent: &Extent, to: u64) -> Result<Option<(Place, u64)>> {
    let &Scene { volume, zones, .. } = scene;
    let geometry = volume.geometry();
    let Place::Framed { zone, life, offset } = extent.place else { return Ok(None) };
    let Some(Written::To(wp)) = zones.get(zone as usize).map(Zone::written) else { return Ok(None) };
    let start = geometry.start(ZoneId(zone));
    let mut read = |at: u64, buf: &mut [u8]| crate::mount::read_twice(volume, buf, start + at, TAG);
    let found = scan(&mut read, FrameId { file: inode.serial, life }, offset, to.min(wp), geometry.block)?;
    let run = last_run(&found.frames, extent.end());
    Ok(run.map(|(offset, end)| (Place::Framed { zone, life, offset }, end)))
}

/// What stands in a file's last zone behind the end that is recorded for it: as an extent. The record that it was appended
/// is lost; that the file was cut there on purpose is what it could mean else, and then too much is kept rather than too
/// little. Frames tell a log's end; a table's is that of its last block.
fn continuation(scene: &Scene<'_>, inode: &Inode) -> Result<Option<Extent>> {
    let &Scene { volume, zones, stretches, .. } = scene;
    let Some(last) = inode.extents.last().filter(|e| !e.is_open()) else { return Ok(None) };
    match last.place {
        Place::Conventional { .. } => Ok(None),
        Place::Raw { zone, life, offset } => {
            let Some(covered) = covered(zones, stretches, last) else { return Ok(None) };
            let end = volume.geometry().round_up(last.len);
            let ours = covered > end && stretches.file_at(zone, life, offset) == Some(inode.serial);
            let place = Place::Raw { zone, life, offset: offset + end };
            Ok(ours.then_some(Extent { logical: last.end(), len: covered.saturating_sub(end), place }))
        }
        Place::Framed { .. } => {
            let found = goes_on(scene, inode, last, u64::MAX)?;
            Ok(found.map(|(place, end)| Extent { logical: last.end(), len: end - last.end(), place }))
        }
    }
}

/// Where the last run of frames that goes on at `from` begins, and the logical offset at which it ends. Before it may stand
/// what was cut off, and in it: there a frame takes back what those before it hold of its bytes.
fn last_run(frames: &[Frame], from: u64) -> Option<(u64, u64)> {
    let mut run: Option<(u64, u64)> = None;
    for frame in frames.iter().filter(|frame| frame.len > 0) {
        match &mut run {
            Some((_, end)) if from < frame.logical && frame.logical <= *end => *end = frame.end(),
            _ if frame.logical == from => run = Some((frame.at, frame.end())),
            _ => {}
        }
    }
    run
}

/// Gives files the bytes back whose records the damaged journal lost.
fn lengthen_files(scene: &Scene<'_>, meta: &mut Meta, damage: &mut Vec<String>) -> Result<()> {
    let mut longer = Vec::new();
    for inode in meta.files().filter(|i| i.kind.is_sequential()) {
        if let Some(extent) = continuation(scene, inode)? {
            longer.push((inode.serial, inode.modified, extent));
        }
    }
    for (serial, time, extent) in longer {
        let size = extent.end();
        let lost = [Record::Reopen { serial }, Record::Extend { serial, extent }, Record::Seal { serial, size, time }];
        let done = lost.iter().try_for_each(|record| meta.apply(record).map(drop));
        let path = meta.path_of(serial);
        damage.push(match done {
            Ok(()) => format!("the journal lost that {path} goes on for {} bytes; they were found", extent.len),
            Err(why) => format!("{} bytes at the end of {path} were found but do not fit ({why})", extent.len),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_frames_ends_where_the_last_one_does_that_was_written() {
        let run = |written: &[(u64, u32)]| {
            let frame = |(i, &(logical, len)): (usize, &(u64, u32))| {
                let at = i as u64 * 4096;
                Frame { sequence: i as u64, logical, at, len, back: 0, payload_crc: 0 }
            };
            last_run(&written.iter().enumerate().map(frame).collect::<Vec<_>>(), 100)
        };
        assert_eq!(run(&[(0, 100)]), None);
        assert_eq!(run(&[(0, 100), (100, 50), (150, 50)]), Some((4096, 200)));
        // Written twice, the first one or a later one.
        assert_eq!(run(&[(0, 100), (100, 50), (100, 50), (150, 50)]), Some((8192, 200)));
        assert_eq!(run(&[(0, 100), (100, 50), (150, 50), (150, 50)]), Some((4096, 200)));
        // Cut where it began, and in the middle, and written anew.
        assert_eq!(run(&[(0, 100), (100, 50), (150, 50), (100, 20)]), Some((12288, 120)));
        assert_eq!(run(&[(0, 100), (100, 50), (150, 50), (130, 10)]), Some((4096, 140)));
        assert_eq!(run(&[(0, 100), (100, 50), (130, 90), (220, 5)]), Some((4096, 225)));
        // What does not follow does not count.
        assert_eq!(run(&[(0, 100), (100, 50), (151, 50)]), Some((4096, 150)));
        assert_eq!(run(&[(0, 90), (110, 50)]), None);
    }
}
