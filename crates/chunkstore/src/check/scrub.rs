//! Scrub: every chunk is verified again and again, a little at a time, so that damage is found while there still is a copy to restore
//! from (issue 5, part 7). What is damaged is marked.
//!
//! How far it is and what it has marked stands in checkpoints ([`crate::format::entry::notes`]), so it goes on there after the store was closed;
//! after a crash, where the last checkpoint was. Invariants: a mark is of a record that a chunk of that serial number had when it was
//! verified; it goes when the chunk is deleted or the record is found whole.

use crate::check::Problem;
use crate::core::Core;
use crate::error::Result;
use crate::format::entry::notes::Mark;
use crate::format::id::ChunkId;
use imbrex_device::Cause;
use std::sync::atomic::Ordering;

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

impl Core {
    /// Verifies about `most` bytes from where the scrub is. How many it were, and what is wrong; a pass ends with the last chunk.
    pub(crate) fn scrub_on(&self, most: u64) -> Result<(u64, Vec<String>, bool)> {
        let (mut bytes, mut problems): (u64, Vec<Problem>) = (0, Vec::new());
        loop {
            let at = {
                let state = self.state();
                state.scrub.at(&state.index)
            };
            let Some((id, from)) = at else {
                self.state().scrub.end_pass();
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
                if state.index.find(&id).is_some_and(same) {
                    let (offset, len, zone) = (problem.start, problem.end - problem.start, problem.zone);
                    let lost = before.iter().any(|mark| (mark.serial, mark.offset) == (serial, offset) && mark.lost);
                    state.scrub.mark(Mark { id, serial, offset, len, zone, lost });
                }
            }
            state.scrub.went_on(id, to, seen.looked);
            drop(state);
            self.counters.scrubbed.fetch_add(seen.looked, Ordering::Relaxed);
        }
    }

    pub(crate) fn scrubbed(&self) -> Scrubbed {
        let state = self.state();
        let scrub = &state.scrub;
        let damaged = |mark: &Mark| Damaged { id: mark.id, offset: mark.offset, len: mark.len, zone: mark.zone };
        Scrubbed {
            passes: scrub.passes(),
            bytes: scrub.bytes(),
            next: scrub.next(&state.index),
            damaged: scrub.marks().map(damaged).collect(),
        }
    }
}

fn told(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}
