//! Scrub: every chunk is verified again and again, a little at a time, so that damage is found while there still is a copy to restore
//! from (issue 5, part 7). What is damaged is marked.
//!
//! How far it is and what it has marked stands in checkpoints ([`crate::format::entry::notes`]), so it goes on there after the store was closed;
//! after a crash, where the last checkpoint was. Invariants: a mark is of a record that a chunk of that serial number had when it was
//! verified; it goes when the chunk is deleted or the record is found whole.

use crate::check::Problem;
use crate::check::losses::Lost;
use crate::core::{Core, State};
use crate::error::Result;
use crate::format::entry::notes::{Mark, ScrubEntry};
use crate::format::id::ChunkId;
use imbrex_device::Cause;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Most marks that are kept; with so much damage the drive is to be replaced.
const MOST_MARKS: usize = 4096;

/// How far the scrub in the background is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// How often all chunks were verified.
    pub passes: u64,
    /// Bytes that this pass has verified.
    pub bytes: u64,
    /// The chunk where it goes on; `None`: a pass begins.
    pub next: Option<ChunkId>,
    /// What was damaged when it was verified last, by chunk and offset.
    pub damaged: Vec<Damaged>,
}

/// A record of a chunk that is damaged: only its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The chunk.
    pub id: ChunkId,
    /// Offset in the chunk of the record's first byte.
    pub offset: u32,
    /// Bytes of the record, of which some are damaged.
    pub len: u32,
    /// The zone where it stood when it was verified.
    pub zone: u32,
}

/// See the module.
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

    /// Some of a record is lost. With more marks than are kept only its chunk's readers are told.
    pub(crate) fn lose(&mut self, mark: Mark) {
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
    fn verified(&mut self, id: ChunkId, from: u32, to: u32) -> Vec<Mark> {
        if from > to {
            return Vec::new();
        }
        let gone: Vec<_> = self.marks.range((id, from)..=(id, to)).map(|(place, _)| *place).collect();
        gone.iter().filter_map(|place| self.marks.remove(place)).collect()
    }
}

impl State {
    /// Where the scrub goes on: a chunk and an offset in it. `None`: behind the last one.
    fn scrub_at(&self) -> Option<(ChunkId, u32)> {
        let Some(next) = self.scrub.next else { return self.index.range(None).next().map(|chunk| (chunk.id, 0)) };
        let here = self.index.find(&next).and_then(|slot| self.index.chunk(slot));
        match here.filter(|chunk| self.scrub.offset < chunk.len) {
            Some(chunk) => Some((chunk.id, self.scrub.offset)),
            None => self.index.range(Some(&next)).next().map(|chunk| (chunk.id, 0)),
        }
    }
}

impl Core {
    /// Verifies about `most` bytes from where the scrub is. How many it were, and what is wrong; a pass ends with the last chunk.
    pub(crate) fn scrub_on(&self, most: u64) -> Result<(u64, Vec<String>, bool)> {
        let (mut bytes, mut problems): (u64, Vec<Problem>) = (0, Vec::new());
        loop {
            let at = self.state().scrub_at();
            let Some((id, from)) = at else {
                let mut state = self.state();
                let scrub = &mut state.scrub;
                // Where nothing was there to be verified, nothing was.
                let over = scrub.bytes > 0;
                (scrub.passes, scrub.next, scrub.offset, scrub.bytes) = (scrub.passes + u64::from(over), None, 0, 0);
                return Ok((bytes, told(problems), true));
            };
            if bytes >= most {
                return Ok((bytes, told(problems), false));
            }
            let before = problems.len();
            let left = most.saturating_sub(bytes).max(1);
            let seen = self.verify_chunk(id, from, left, Cause::Check, &mut problems)?;
            let found = &problems[before..];
            self.counters.damaged.fetch_add(found.len() as u64, Ordering::Relaxed);
            bytes += seen.looked;
            let mut state = self.state();
            let to = seen.next.unwrap_or(u32::MAX);
            let before = state.scrub.verified(id, from, to.saturating_sub(1));
            for problem in found {
                let serial = problem.serial;
                let same = |slot| state.index.chunk(slot).is_some_and(|chunk| chunk.serial == serial);
                if state.index.find(&id).is_some_and(same) && state.scrub.marks.len() < MOST_MARKS {
                    let (offset, len, zone) = (problem.start, problem.end - problem.start, problem.zone);
                    let lost = before.iter().any(|mark| (mark.serial, mark.offset) == (serial, offset) && mark.lost);
                    state.scrub.marks.insert((id, offset), Mark { id, serial, offset, len, zone, lost });
                }
            }
            state.scrub.bytes += seen.looked;
            (state.scrub.next, state.scrub.offset) = (Some(id), to);
            drop(state);
            self.counters.scrubbed.fetch_add(seen.looked, Ordering::Relaxed);
        }
    }

    pub(crate) fn scrubbed(&self) -> Scrubbed {
        let state = self.state();
        let scrub = &state.scrub;
        let damaged = |mark: &Mark| Damaged { id: mark.id, offset: mark.offset, len: mark.len, zone: mark.zone };
        Scrubbed {
            passes: scrub.passes,
            bytes: scrub.bytes,
            next: scrub.next.and_then(|_| state.scrub_at()).map(|(id, _)| id),
            damaged: scrub.marks.values().map(damaged).collect(),
        }
    }
}

fn told(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
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
