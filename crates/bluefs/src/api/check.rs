//! Checking a mounted file system: every checksum of ours, every invariant.
//!
//! Reads everything that carries a checksum (labels, root, journal, zone headers, frames of logs) and compares metadata with
//! what the drive says of its zones. Changes nothing; to leave the drive itself as it is, mount with `read_only`, and what the
//! mount had to repair is in the report, too. Contents of tables carry the application's checksums, not ours; that
//! their blocks can be read is checked.

use crate::api::fs::BlueFs;
use crate::file::log::frames_of;
use crate::journal::records_of;
use crate::meta::{Inode, Place, next_stretch};
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Cause, Code, Error, Result, Tag, Written, Zone, ZoneId, ZoneState, report_all};
use imbrex_zones::frame::FrameId;
use imbrex_zones::log::Root;
use imbrex_zones::{RESTORED, ZoneHeader};
use std::collections::BTreeMap;

const TAG: Tag = Tag::new(Cause::Check);

/// How often a file is looked at that changes meanwhile.
const LOOKS: u32 = 8;

/// No inline space is larger.
const INLINE_MOST: usize = 8 << 20;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong, a sentence each. Empty: nothing is.
    pub problems: Vec<String>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
    /// Files and directories.
    pub files: u64,
    /// Sequential zones that files or the journal use.
    pub zones: u64,
    /// Bytes that were read and verified, or at least read.
    pub bytes: u64,
}

impl BlueFs {
    /// Checks everything; `progress` hears how many of how many files are done.
    ///
    /// # Errors
    /// Only where the drive as a whole cannot be read; what is wrong with its contents is in the report.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        // What is in buffers would look like a difference between metadata and drive.
        self.sync_all()?;
        let core = self.core();
        let mut report = CheckReport { problems: self.mount_report().damage.clone(), ..Default::default() };
        let found = self.mount_report();
        let of_label = core.volume.check_labels()?;
        // What a power loss may have torn, or this mount has repaired, is not wrong.
        report.notes.extend(found.label.clone().filter(|label| !of_label.contains(label)));
        report.problems.extend(of_label);
        report.notes.extend(core.volume.dead_labels()?);
        report.notes.extend(found.notes.iter().find(|note| *note == RESTORED).cloned());
        let zones = report_all(core.volume.device().as_ref())?;
        let (inodes, paths, known) = {
            let state = lock(&core.meta);
            report.problems.extend(state.meta.check());
            let inodes: Vec<Inode> = state.meta.files().cloned().collect();
            let paths: Vec<String> = inodes.iter().map(|i| state.meta.path_of(i.serial)).collect();
            let known: BTreeMap<u32, u64> = state.meta.zones().collect();
            (inodes, paths, known)
        };
        self.check_journal(&mut report)?;
        report.files = inodes.len() as u64;
        for (i, (inode, path)) in inodes.iter().zip(&paths).enumerate() {
            progress(i as u64, inodes.len() as u64);
            let before = report.problems.len();
            self.check_file(inode, path, &zones, &mut report);
            if report.problems.len() > before {
                report.problems.truncate(before);
                self.check_again(inode, path, &mut report)?;
            }
        }
        progress(inodes.len() as u64, inodes.len() as u64);
        let root = core.journal.root();
        report.zones = (known.len() + root.zones.len()) as u64;
        let written = zones.iter().filter(|z| z.wp.is_some_and(|wp| wp > 0));
        let loose = written.filter(|z| !known.contains_key(&z.id.0) && !root.zones.contains(&z.id.0)).count();
        if loose > 0 {
            report
                .notes
                .push(format!("written zones that belong to no file, to be reset before their next use: {loose}"));
        }
        let dead = zones.iter().filter(|z| matches!(z.state, ZoneState::ReadOnly | ZoneState::Offline)).count();
        if dead > 0 {
            let zones = if dead == 1 { "zone is" } else { "zones are" };
            report.notes.push(format!("{dead} {zones} read-only or offline; plan to replace the drive"));
        }
        Ok(report)
    }

    /// Of a file that somebody writes, moves or removes meanwhile what was said may not be so. What is wrong stays wrong.
    fn check_again(&self, inode: &Inode, path: &str, report: &mut CheckReport) -> Result<()> {
        let core = self.core();
        let now = || lock(&core.meta).meta.inode(inode.serial).cloned();
        let before = report.problems.len();
        for _ in 0..LOOKS {
            let Some(inode) = now() else { return Ok(()) };
            report.problems.truncate(before);
            // Behind the look at its metadata: what these speak of is on the drive then.
            self.sync_all()?;
            let zones = report_all(core.volume.device().as_ref())?;
            self.check_file(&inode, path, &zones, report);
            if report.problems.len() == before || now() == Some(inode) {
                break;
            }
        }
        Ok(())
    }

    fn check_journal(&self, report: &mut CheckReport) -> Result<()> {
        let core = self.core();
        let root = core.journal.root();
        match Root::decode(&core.tenant.root()) {
            Ok(on_drive) if on_drive == root => {}
            Ok(_) => report.problems.push("The root on the drive is not the one in use; mount again.".into()),
            Err(why) => report.problems.push(format!("The root is damaged: {why}.")),
        }
        let contents = core.journal.look()?;
        let (mut bytes, mut bad) = (0, 0);
        let mut item = |item: &[u8]| {
            bytes += item.len() as u64;
            bad += records_of(item, drop);
        };
        contents.pieces.iter().for_each(|piece| item(piece));
        let since = contents.records(&mut |_, record| item(record));
        report.bytes += bytes;
        report.problems.extend(contents.skipped);
        if contents.snapshot.is_none() {
            report.problems.push("The journal has no snapshot.".into());
        }
        if !since.whole {
            report.problems.push("Records of the journal are missing.".into());
        }
        if bad > 0 {
            report.problems.push(format!("Records of the journal that cannot be read: {bad}."));
        }
        Ok(())
    }

    /// The header at `at` of a zone, behind which a file's bytes begin. It is further back where those that stood first have been moved.
    fn check_header(&self, zone: u32, life: u64, at: u64, file: u64, path: &str, report: &mut CheckReport) {
        let core = self.core();
        let mut buf = AlignedBuf::zeroed(core.front as usize);
        let start = core.volume.geometry().start(ZoneId(zone)) + at;
        if let Err(error) = core.volume.read(&mut buf, start, TAG) {
            report.problems.push(format!("The header of zone {zone} of {path} cannot be read: {error}."));
            return;
        }
        report.bytes += buf.len() as u64;
        let header = ZoneHeader::decode(&buf);
        let block = u64::from(core.volume.geometry().block);
        let mut earlier = (0..at / block).rev().filter_map(|n| {
            let read = core.volume.read(&mut buf, start - at + n * block, TAG);
            read.ok()
                .and_then(|()| ZoneHeader::decode(&buf))
                .filter(|header| (header.zone, header.life) == (zone, life))
        });
        match header.or_else(|| earlier.next()) {
            None => report.problems.push(format!("The header of zone {zone} of {path} is damaged.")),
            Some(h) if h.volume != core.volume.uuid() || h.zone != zone || h.life != life || h.file != file => {
                report
                    .problems
                    .push(format!("The header of zone {zone} names file {} ({}), not {path}.", h.file, h.name));
            }
            Some(_) => {}
        }
    }

    fn check_file(&self, inode: &Inode, path: &str, zones: &[Zone], report: &mut CheckReport) {
        let core = self.core();
        let geometry = core.volume.geometry();
        let mut seen = Vec::new();
        for (i, extent) in inode.extents.iter().enumerate() {
            let (zone, life, offset) = match extent.place {
                Place::Conventional { addr } => {
                    let len = extent.len.min(inode.known_size().saturating_sub(extent.logical));
                    if core.has_inline() {
                        let mut buf = vec![0; usize::try_from(len).unwrap_or(0).min(INLINE_MOST)];
                        if !lock(&core.meta).meta.inline().read(addr, &mut buf) {
                            report
                                .problems
                                .push(format!("Bytes of {path} stood in a part of the journal that is lost."));
                        }
                        report.bytes += len;
                    } else {
                        self.check_readable(addr, len, path, report);
                    }
                    continue;
                }
                Place::Raw { zone, life, offset } | Place::Framed { zone, life, offset } => (zone, life, offset),
            };
            let Some(state) = zones.get(zone as usize) else {
                report.problems.push(format!("{path} refers to zone {zone}, which does not exist."));
                continue;
            };
            if state.state == ZoneState::Offline {
                report.problems.push(format!("Zone {zone} of {path} is offline: what stood there is lost."));
                continue;
            }
            // Of a read-only zone the drive does not tell how far it is written: then what it holds is looked at.
            let wp = match state.written() {
                Written::To(wp) => wp,
                Written::Untold => state.capacity,
                Written::Gone => 0,
            };
            if !seen.contains(&zone) && wp > 0 {
                // Of a stretch whose first bytes were overwritten, and so stand elsewhere, the header is further back.
                let moved = inode.extents.iter().any(|e| e.place.zone().is_none() && e.end() == extent.logical);
                let front = (offset / u64::from(geometry.block) * u64::from(geometry.block)).saturating_sub(core.front);
                if !moved {
                    self.check_header(zone, life, front, inode.serial, path, report);
                }
                seen.push(zone);
            }
            match extent.place {
                Place::Raw { .. } if extent.is_open() => {}
                Place::Raw { .. } => {
                    if geometry.round_up(offset + extent.len) > wp {
                        let has = wp.saturating_sub(offset);
                        report
                            .problems
                            .push(format!("{path} should have {} bytes in zone {zone} and has {has}.", extent.len));
                    } else {
                        self.check_readable(geometry.start(ZoneId(zone)) + offset, extent.len, path, report);
                    }
                }
                _ => {
                    let next = next_stretch(&inode.extents, i);
                    let id = FrameId { file: inode.serial, life };
                    let to = next.unwrap_or(wp);
                    self.check_frames(id, state, offset, to, (extent.logical, inode, i), path, report);
                }
            }
        }
        if inode.kind.is_sequential() {
            for (at, len) in inode.holes() {
                report.problems.push(format!("{len} bytes at {at} of {path} are lost."));
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn check_frames(
        &self,
        id: FrameId,
        state: &Zone,
        from: u64,
        to: u64,
        (logical, inode, index): (u64, &Inode, usize),
        path: &str,
        report: &mut CheckReport,
    ) {
        let core = self.core();
        let geometry = core.volume.geometry();
        let zone = state.id;
        let start = geometry.start(zone);
        let mut read = |at: u64, buf: &mut [u8]| core.volume.read(buf, start + at, TAG);
        let extent = &inode.extents[index];
        let found = match frames_of(extent, state, &mut read, id, (from, to), geometry.block) {
            Ok(found) => found,
            Err(error) => {
                report.problems.push(format!("Zone {zone} of {path} cannot be read: {error}."));
                return;
            }
        };
        let mut end = logical;
        for frame in &found.frames {
            report.bytes += u64::from(frame.len);
            if frame.logical > end {
                report.problems.push(format!("{} bytes at {end} of {path} are damaged.", frame.logical - end));
            }
            end = end.max(frame.end());
        }
        let want = if extent.is_open() { end } else { extent.end().min(inode.known_size().max(extent.logical)) };
        if end < want {
            report.problems.push(format!("{} bytes at {end} of {path} are damaged.", want - end));
        }
    }

    fn check_readable(&self, at: u64, len: u64, path: &str, report: &mut CheckReport) {
        let core = self.core();
        let block = u64::from(core.volume.geometry().block);
        let (mut here, end) = (at / block * block, (at + len).next_multiple_of(block));
        let mut buf = AlignedBuf::zeroed(1 << 20);
        while here < end {
            let n = (end - here).min(buf.len() as u64);
            if let Err(error) = core.volume.read(&mut buf[..n as usize], here, TAG) {
                report.problems.push(format!("{path} cannot be read: {error}."));
                return;
            }
            report.bytes += n;
            here += n;
        }
    }
}

impl CheckReport {
    /// Fails where there is a problem.
    pub fn into_result(self) -> Result<CheckReport> {
        match self.problems.first() {
            None => Ok(self),
            Some(first) => Err(Error::refused(Code::Corruption, "", first.as_str())),
        }
    }
}
