//! Who is at the drive, where [few zones at once](crate::policy::turn) pay: a thread that has a zone's [guard](crate::write::ZoneGuard) waits here before each
//! command. Meanwhile others append behind what it is about to write, so the command is longer.
//!
//! A turn is given once, by who makes it free: what gathers until its thread is awake changes nothing any more. If each thread looked for itself whose turn it is, two could each
//! find that it is the other's, and both sleep.
//!
//! Invariants: where somebody waits, all turns are given. A thread waits for one zone at a time, and for each zone one waits at most: who has its pen. Who has a turn waits for nobody but the drive.

use crate::core::{Core, State};
use crate::format::BLOCK;
use crate::policy::turn::{Backlog, next};
use std::collections::{BTreeMap, BTreeSet};

/// Who waits, and how many are at the drive.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By zone, how often others went first.
    waiting: BTreeMap<u32, u32>,
    /// Zones that may go on and whose threads do not know it yet.
    given: BTreeSet<u32>,
    /// Turns that were given and are not given back.
    writing: usize,
}

/// How many zones are written at once; only with the write cache off and without a limit of active zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtOnce {
    pub(crate) zones: usize,
    /// The longest command, in bytes.
    pub(crate) command: u64,
}

/// The right to give the drive a command of a zone; given back when dropped.
pub(crate) struct Turn<'a>(Option<&'a Core>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(core) = self.0 else { return };
        let mut state = core.state();
        state.turns.writing = state.turns.writing.saturating_sub(1);
        core.at_once.into_iter().for_each(|limit| state.give_turns(limit));
        let given = !state.turns.given.is_empty();
        drop(state);
        // All who append wait for the same: none of them is woken in vain.
        if given {
            core.changed.notify_all();
        }
    }
}

impl State {
    /// The zone whose turn it is now.
    fn whose_turn(&self, limit: AtOnce) -> Option<u32> {
        let waits = self.turns.waiting.iter().map(|(zone, passed)| {
            let blocks = self.zones.get(*zone).map_or(0, |z| z.tail.saturating_sub(z.buffer.written()));
            Backlog { zone: *zone, bytes: u64::from(blocks) * BLOCK as u64, passed: *passed }
        });
        next(waits, limit.command, self.turns.writing, limit.zones)
    }

    /// Gives the turns that are free.
    fn give_turns(&mut self, limit: AtOnce) {
        while let Some(zone) = self.whose_turn(limit) {
            self.turns.waiting.remove(&zone);
            self.turns.waiting.values_mut().for_each(|passed| *passed += 1);
            self.turns.given.insert(zone);
            self.turns.writing += 1;
        }
    }
}

impl Core {
    /// Waits until the zone's next command may go to the drive; `None`: it is written up to block `upto`. Who calls has the zone's pen.
    pub(crate) fn turn(&self, zone: u32, upto: u32) -> Option<Turn<'_>> {
        let mut state = self.state();
        state.zones.get(zone).filter(|z| z.buffer.written() < upto)?;
        let Some(limit) = self.at_once else { return Some(Turn(None)) };
        state.turns.waiting.insert(zone, 0);
        state.give_turns(limit);
        while !state.turns.given.remove(&zone) {
            state = self.wait(state);
        }
        Some(Turn(Some(self)))
    }
}

#[cfg(test)]
mod tests;
