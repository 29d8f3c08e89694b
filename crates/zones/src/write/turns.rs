//! Whose command goes to the drive next, where written bytes are durable (write cache off) and commands are long.
//!
//! A disk that is given a command of each zone at once has a choice and takes the one that comes round first, and every command is as short as what its zone
//! had in memory when it came. With fewer at the drive, more gathers behind each, so there are fewer seeks and turns of the platters; with too
//! few the drive has no choice. Where a command takes 4 MiB, [four](at_once) are best; with the 1,280 KiB of most hosts little more fits a command than one append of
//! 1 MiB, and all the drive's queue holds is better. `docs/experiments.md` (chunk-write) has the figures.
//!
//! A turn is given once, by who makes it free: what gathers until its thread is awake changes nothing any more. If each thread looked for itself whose turn
//! it is, two could each find that it is the other's, and both sleep.
//!
//! Invariants: where somebody waits, all turns are given. For each zone one thread waits at most: who has its [zone guard](super::ZoneGuard).

use std::collections::{BTreeMap, BTreeSet};

/// Commands from so many bytes on are long.
pub const LONG: u64 = 4 << 20;
/// So many zones are written at once with long commands.
pub const FEW: usize = 4;
/// So often others go first, at most.
pub const PATIENCE: u32 = 16;

/// A zone that somebody wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Which.
    pub zone: u32,
    /// Bytes that wait for it in memory.
    pub bytes: u64,
    /// How often others went first since it has waited.
    pub passed: u32,
}

/// How many zones are written at once by default: `queue` is what the drive's queue holds, `command` the longest command in bytes.
pub fn at_once(command: u64, rotational: bool, queue: usize) -> usize {
    if rotational && command >= LONG { FEW.min(queue) } else { queue }
}

/// The zone that is written next, of those that wait: the one with the most bytes for one command of `command` bytes; among equals the one that others went before most often,
/// then the lowest. One that [`PATIENCE`] others went before has its turn.
/// `None`: nobody waits, or `writing` zones are being written and there may be no more than `most`.
pub fn next(waiting: impl IntoIterator<Item = Backlog>, command: u64, writing: usize, most: usize) -> Option<u32> {
    if writing >= most.max(1) {
        return None;
    }
    let worth = |one: &Backlog| {
        let late = if one.passed < PATIENCE { 0 } else { one.passed };
        (late, one.bytes.min(command), one.passed, std::cmp::Reverse(one.zone))
    };
    waiting.into_iter().max_by_key(worth).map(|one| one.zone)
}

/// How many zones are written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtOnce {
    pub(super) zones: usize,
    /// The longest command, in bytes.
    pub(super) command: u64,
}

/// Who waits, and how many are at the drive.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By zone, how often others went first.
    waiting: BTreeMap<u32, u32>,
    /// Zones that may go on and whose threads do not know it yet.
    given: BTreeSet<u32>,
    /// Turns that were given and are not given back.
    writing: usize,
}

impl Turns {
    /// Who has the zone's guard waits for its turn from now on.
    pub(super) fn wait(&mut self, zone: u32) {
        self.waiting.insert(zone, 0);
    }

    /// Whether it is the zone's turn; said once.
    pub(super) fn take(&mut self, zone: u32) -> bool {
        self.given.remove(&zone)
    }

    /// A turn is over.
    pub(super) fn end(&mut self) {
        self.writing = self.writing.saturating_sub(1);
    }

    /// Gives the turns that are free; `bytes` wait for a zone. Whether some thread has to know of one.
    pub(super) fn give(&mut self, limit: AtOnce, bytes: impl Fn(u32) -> u64) -> bool {
        loop {
            let all = self.waiting.iter().map(|(&zone, &passed)| Backlog { zone, bytes: bytes(zone), passed });
            let Some(zone) = next(all, limit.command, self.writing, limit.zones) else { break };
            self.waiting.remove(&zone);
            self.waiting.values_mut().for_each(|passed| *passed += 1);
            self.given.insert(zone);
            self.writing += 1;
        }
        !self.given.is_empty()
    }

    /// How many wait, and how many are at the drive.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.waiting.len(), self.writing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn waits(zone: u32, bytes: u64, passed: u32) -> Backlog {
        Backlog { zone, bytes, passed }
    }

    #[test]
    fn the_longest_command_goes_first() {
        let all = [waits(1, MIB, 0), waits(2, 3 * MIB, 0), waits(3, 2 * MIB, 9)];
        assert_eq!(next(all, 4 * MIB, 0, 4), Some(2));
        assert_eq!(next(all, 2 * MIB, 0, 4), Some(3), "of both a whole command waits, and it has waited longer");
        assert_eq!(next(all, MIB, 3, 4), Some(3));
        assert_eq!(next([waits(7, MIB, 2), waits(5, MIB, 2)], 4 * MIB, 0, 1), Some(5));
    }

    #[test]
    fn no_more_are_at_the_drive_than_may_be() {
        let one = [waits(1, MIB, 99)];
        assert_eq!((next(one, MIB, 4, 4), next(one, MIB, 3, 4)), (None, Some(1)));
        assert_eq!(next(one, MIB, 0, 0), Some(1), "else nothing would ever be written");
        assert_eq!(next([], MIB, 0, 4), None);
    }

    #[test]
    fn few_at_once_pay_on_disks_that_take_long_commands() {
        assert_eq!((at_once(4 * MIB, true, 32), at_once(16 * MIB, true, 32)), (FEW, FEW));
        assert_eq!((at_once(1280 << 10, true, 32), at_once(4 * MIB, false, 32)), (32, 32));
        assert_eq!((at_once(4 * MIB, true, 1), at_once(MIB, true, 1)), (1, 1));
    }

    proptest::proptest! {
        /// Whatever comes: as many are at the drive as may be while somebody waits, and nobody is passed for ever.
        #[test]
        fn everybody_gets_a_turn(
            zones in 1u32..40, most in 1usize..8,
            come in proptest::collection::vec((0u32..40, 1u64..9, proptest::bool::ANY), 1..400),
        ) {
            let mut waiting: Vec<Backlog> = Vec::new();
            let mut writing = std::collections::VecDeque::new();
            for (zone, mib, ends) in come {
                let zone = zone % zones;
                match waiting.iter_mut().find(|one| one.zone == zone) {
                    Some(one) => one.bytes += mib * MIB,
                    None if writing.contains(&zone) => {}
                    None => waiting.push(waits(zone, mib * MIB, 0)),
                }
                if ends {
                    writing.pop_front();
                }
                while let Some(chosen) = next(waiting.iter().copied(), 4 * MIB, writing.len(), most) {
                    waiting.retain(|one| one.zone != chosen);
                    waiting.iter_mut().for_each(|one| one.passed += 1);
                    writing.push_back(chosen);
                }
                proptest::prop_assert!(writing.len() <= most && (waiting.is_empty() || writing.len() == most));
                // Those that have lost patience go one after the other, and there are no more of them than zones.
                proptest::prop_assert!(waiting.iter().all(|one| one.passed <= PATIENCE + zones));
            }
        }
    }
}
