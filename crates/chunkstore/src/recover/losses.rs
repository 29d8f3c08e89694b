//! Records that were found are put behind their chunks, and what is missing is told from what had never been acknowledged.

use super::FoundZone;
use super::holes::{Hole, Missing};
use super::replay::{Applied, FoundRecord, Rebuilt};
use crate::core::report::OpenReport;
use crate::format::entry::notes::Mark;
use crate::format::entry::{ChunkEnd, RecordIndex};
use crate::format::id::ChunkId;
use crate::format::{Header, MOVED, ZoneUse};
use crate::recover::scan::Scanned;

impl Rebuilt {
    /// A record goes behind what the chunk has. What is missing before it was not durable, and so it had not been acknowledged either, unless it
    /// may have stood where nothing can be read: then it is lost.
    pub(super) fn apply(&mut self, record: &FoundRecord, report: &mut OpenReport) {
        let FoundRecord { zone, header, damaged } = *record;
        let Some(chunk) = self.chunks.get_mut(&header.chunk).filter(|chunk| chunk.serial == header.serial) else {
            return;
        };
        // What the cleaner wrote is where the journal says, or still where it was.
        if header.flags & MOVED != 0 {
            return;
        }
        let applied = self.applied.entry(header.chunk).or_default();
        if header.offset < chunk.len {
            let place = RecordIndex { end: header.offset + header.data, at: header.at };
            let older = applied.partition_point(|(start, _)| *start < header.offset);
            if chunk.restore(zone, header.offset, place) {
                // It could not be read the last time.
            } else if applied
                .get(older)
                .is_some_and(|(start, number)| *start == header.offset && *number < header.sequence)
            {
                // What was found there had been left by a crash, and the chunk went on without it.
                chunk.cut(header.offset);
                applied.truncate(older);
            } else {
                return;
            }
        }
        // Nothing comes behind a seal, also where the end had been in doubt.
        let sealed = chunk.sealed || self.seals.get(&header.chunk).is_some_and(|len| header.offset >= *len);
        if sealed && header.offset >= chunk.len {
            return;
        }
        if header.offset > chunk.len {
            let after = applied.last().map_or(0, |(_, number)| *number);
            let missing = Missing { bytes: header.offset - chunk.len, after, before: header.sequence };
            let Some(hole) = self.holes.of(chunk, missing) else { return };
            report
                .damage
                .push(format!("Chunk {} has lost its bytes from {} to {}.", chunk.id, chunk.len, header.offset));
            let last = chunk.groups().last().map(|group| group.zone);
            let of = if last == Some(hole.zone) { hole.zone } else { zone };
            applied.push((chunk.len, header.sequence));
            chunk.lose(of, header.offset);
        }
        if header.offset == chunk.len {
            applied.push((chunk.len, header.sequence));
            chunk.push(zone, header.data, header.at);
        }
        if damaged {
            let Header { chunk: id, serial, offset, data: len, .. } = header;
            report
                .damage
                .push(format!("Chunk {id} has lost its bytes from {offset} to {}, or some of them.", offset + len));
            self.mark_lost(Mark { id, serial, offset, len, zone, lost: true });
        }
        report.records += 1;
    }

    /// Some of a record is lost, whatever was known of it before.
    pub(super) fn mark_lost(&mut self, mark: Mark) {
        self.scrub.marks.retain(|other| (other.id, other.offset) != (mark.id, mark.offset));
        self.scrub.marks.push(mark);
    }

    /// Chunks are sealed that were, and of those that are not it is said whether they may have gone on where nothing can be read.
    pub(super) fn end_chunks(&mut self, report: &mut OpenReport) {
        for (id, len) in std::mem::take(&mut self.seals) {
            let after = last(&self.applied, &id);
            let Some(chunk) = self.chunks.get_mut(&id) else { continue };
            let missing = Missing { bytes: len.saturating_sub(chunk.len), after, before: u64::MAX };
            if chunk.len < len
                && let Some(hole) = self.holes.of(chunk, missing)
            {
                report.damage.push(format!("Chunk {id} has lost its bytes from {} to {len}.", chunk.len));
                chunk.lose(hole.zone, len);
            }
            // What was not durable had not been acknowledged, and so had not the seal.
            if chunk.len == len {
                chunk.sealed = true;
                chunk.shrink();
            }
        }
        let before = self.doubts_of_before();
        for (id, chunk) in &mut self.chunks {
            if chunk.end == ChunkEnd::Unread {
                chunk.end = before;
                self.changed |= before != ChunkEnd::Unread;
            }
            let missing = Missing { bytes: 1, after: last(&self.applied, id), before: u64::MAX };
            let hole = Some(&self.holes).filter(|_| !chunk.sealed && !self.holes.is_empty());
            if let Some(hole) = hole.and_then(|holes| holes.of(chunk, missing)) {
                chunk.end = chunk.end.max(hole.end());
                self.changed = true;
            }
        }
    }

    /// What becomes of doubts because of places that could not be read when the store was opened before. All of them could be read this time: there
    /// are none any more. One is gone, and will never be read: they stay for ever.
    fn doubts_of_before(&self) -> ChunkEnd {
        let still = |(zone, life): &&(u32, u64)| self.zones.get(zone).filter(|found| found.life == *life);
        match self.unread.iter().try_fold(0, |n, one| still(&one).map(|zone| n + u32::from(zone.unread > 0))) {
            Some(0) if !self.unread.is_empty() => ChunkEnd::Known,
            Some(n) if n > 0 => ChunkEnd::Unread,
            _ => ChunkEnd::Lost,
        }
    }
}

/// The number of the last append that scanning has found of a chunk; 0: none.
fn last(applied: &Applied, id: &ChunkId) -> u64 {
    applied.get(id).and_then(|of| of.last()).map_or(0, |(_, number)| *number)
}

/// Says what of a zone could not be read.
pub(super) fn tell_unread(zone: u32, scanned: &Scanned, report: &mut OpenReport) {
    let count = |n: u32| if n == 1 { "1 block".into() } else { format!("{n} blocks") };
    let senseless: u32 = scanned.holes.iter().map(|hole| hole.to - hole.from).sum();
    if scanned.unreadable > 0 {
        report.damage.push(format!("{} of zone {zone} cannot be read.", count(scanned.unreadable)));
    } else if senseless > 0 {
        report.damage.push(format!("{} of zone {zone} make no sense.", count(senseless)));
    }
}

impl FoundZone {
    /// Where it is to be scanned from, if it is.
    pub(super) fn from(&self) -> Option<u32> {
        let unread = Some(self.unread).filter(|unread| *unread > 0);
        self.scan.into_iter().chain(unread).min()
    }

    /// So many of its blocks, or all, nobody can read. `None`: no appends were ever there, and what the cleaner had put there stands where it was.
    pub(super) fn hole(&self, zone: u32, blocks: Option<u32>) -> Option<Hole> {
        match self.usage {
            ZoneUse::Data(stream) => Some(Hole { zone, stream: Some(stream), blocks, after: 0, before: u64::MAX }),
            ZoneUse::Cleaner(_) => None,
        }
    }
}
