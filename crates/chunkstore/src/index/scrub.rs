//! What is known of damage: how far the scrub is, the records that it found damaged, and what is lost.

use crate::format::entry::notes::{Mark, ScrubEntry};
use crate::format::id::ChunkId;
use crate::index::Index;
use std::collections::BTreeMap;

/// Most marks that are kept; with so much damage the drive is to be replaced.
const MOST_MARKS: usize = 4096;

/// Bytes of a chunk that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The zone where they stood, as far as is known; [`Lost::NOWHERE`]: it is not.
    pub zone: u32,
    /// The chunk.
    pub id: ChunkId,
    /// Offset in the chunk of the first byte.
    pub offset: u32,
    /// Bytes. Of a record that can be read in part, all of its bytes.
    pub len: u32,
    /// Nobody knows how many bytes there were from `offset` on, or whether there were any: the chunk ends there now, and `len` is 0.
    pub open: bool,
}

impl Lost {
    /// No zone has this number.
    pub const NOWHERE: u32 = u32::MAX;
}

/// How far the scrub is, and what it found damaged.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    passes: u64,
    bytes: u64,
    next: Option<ChunkId>,
    offset: u32,
    marks: BTreeMap<(ChunkId, u32), Mark>,
}

impl Scrub {
    /// As the checkpoint has it, with at most so many marks; `None`: nothing was scrubbed yet.
    pub(crate) fn entry(&self, most: usize) -> Option<ScrubEntry> {
        let marks = self.marks.values().take(most).copied().collect();
        let entry = ScrubEntry { passes: self.passes, bytes: self.bytes, next: self.next, offset: self.offset, marks };
        (entry != ScrubEntry::default()).then_some(entry)
    }

    /// Records of which some was lost when the store was opened, or when they were moved.
    pub(crate) fn lost(&self) -> impl Iterator<Item = Lost> {
        let of = |mark: &Mark| Lost { zone: mark.zone, id: mark.id, offset: mark.offset, len: mark.len, open: false };
        self.marks.values().filter(|mark| mark.lost).map(of)
    }

    /// Some of a record is damaged, or lost. With more marks than are kept only its chunk's readers are told.
    pub(crate) fn mark(&mut self, mark: Mark) {
        if self.marks.len() < MOST_MARKS {
            self.marks.insert((mark.id, mark.offset), mark);
        }
    }

    /// From the checkpoint, of chunks that are still the same.
    pub(crate) fn of_entry(entry: ScrubEntry, is_there: impl Fn(ChunkId, u64) -> bool) -> Scrub {
        let marks = entry.marks.into_iter().filter(|mark| is_there(mark.id, mark.serial));
        Scrub {
            passes: entry.passes,
            bytes: entry.bytes,
            next: entry.next,
            offset: entry.offset,
            marks: marks.map(|mark| ((mark.id, mark.offset), mark)).collect(),
        }
    }

    /// The chunk is gone.
    pub(crate) fn forget(&mut self, id: ChunkId) {
        self.verified(id, 0, u32::MAX);
    }

    /// Takes away, and returns, the marks of what has been verified again.
    pub(crate) fn verified(&mut self, id: ChunkId, from: u32, to: u32) -> Vec<Mark> {
        if from > to {
            return Vec::new();
        }
        let gone: Vec<_> = self.marks.range((id, from)..=(id, to)).map(|(place, _)| *place).collect();
        gone.iter().filter_map(|place| self.marks.remove(place)).collect()
    }

    /// Where it goes on: a chunk and an offset in it. `None`: behind the last one.
    pub(crate) fn at(&self, index: &Index) -> Option<(ChunkId, u32)> {
        let Some(next) = self.next else { return index.range(None).next().map(|chunk| (chunk.id, 0)) };
        let here = index.find(&next).and_then(|slot| index.chunk(slot));
        match here.filter(|chunk| self.offset < chunk.len) {
            Some(chunk) => Some((chunk.id, self.offset)),
            None => index.range(Some(&next)).next().map(|chunk| (chunk.id, 0)),
        }
    }

    /// The chunk where a pass that has begun goes on.
    pub(crate) fn next(&self, index: &Index) -> Option<ChunkId> {
        self.next.and_then(|_| self.at(index)).map(|(id, _)| id)
    }

    /// This chunk was verified up to here, so many bytes of it.
    pub(crate) fn went_on(&mut self, id: ChunkId, to: u32, bytes: u64) {
        self.bytes += bytes;
        (self.next, self.offset) = (Some(id), to);
    }

    /// The last chunk was verified. Where nothing was there to be verified, nothing was.
    pub(crate) fn end_pass(&mut self) {
        let over = self.bytes > 0;
        (self.passes, self.next, self.offset, self.bytes) = (self.passes + u64::from(over), None, 0, 0);
    }

    /// Passes over all chunks that have ended.
    pub(crate) fn passes(&self) -> u64 {
        self.passes
    }

    /// Bytes that this pass has verified.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records that are damaged.
    pub(crate) fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.marks.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_verified_loses_its_marks_and_nothing_else_does() {
        let mut scrub = Scrub::default();
        for (n, offset) in [(1, 0), (1, 9000), (2, 0), (2, 9000), (2, 18_000), (3, 0)] {
            let id = ChunkId::of_number(n);
            scrub.marks.insert((id, offset), Mark { id, serial: 1, offset, len: 9000, zone: 1, lost: false });
        }
        let left = |scrub: &Scrub| -> Vec<_> { scrub.marks.values().map(|mark| (mark.id, mark.offset)).collect() };
        let id = ChunkId::of_number;
        // Nothing was verified.
        scrub.verified(id(2), 9000, 8999);
        assert_eq!(left(&scrub).len(), 6);
        scrub.verified(id(2), 9000, 17_999);
        assert_eq!(left(&scrub), [(id(1), 0), (id(1), 9000), (id(2), 0), (id(2), 18_000), (id(3), 0)]);
        scrub.forget(id(1));
        assert_eq!(left(&scrub), [(id(2), 0), (id(2), 18_000), (id(3), 0)]);
    }
}
