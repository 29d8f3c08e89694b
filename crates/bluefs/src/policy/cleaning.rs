//! When zones are cleaned, which, and how much at a time: pure functions of a few numbers, replayed over a recorded trace in
//! `tests/unit/replay.rs`.
//!
//! *Which*: benefit over cost. Dead bytes are what is gained, live bytes what it costs, and a zone in which nothing was
//! written for long is a better choice than a young one, whose files are likely to die by themselves and cost nothing then
//! (the cost-benefit of Rosenblum and Ousterhout's LFS, with the square root of the age: on the recorded traces of `db_bench`
//! that moved the least, a fifth less than without the age; the age itself moved more).
//!
//! *When*: while more than [`low_water`] zones are free, never. Below, tables pay as they are written: for each byte at most one is
//! moved, and the fewer zones are free, the fewer dead bytes make a zone worth it. So the last zone is rarely taken, and
//! whoever needs a zone then cleans as many as it takes, at once.

use crate::meta::Serial;
use std::collections::{BTreeMap, BTreeSet};

/// A zone that could be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The zone.
    pub zone: u32,
    /// Bytes that would have to be moved, headers included.
    pub live: u64,
    /// Bytes that nobody can use before the zone is reset: room that the next file will get is not among them.
    pub dead: u64,
    /// The last file that was written there and still has bytes there: how many were created since is its age.
    pub last: Serial,
}

impl Candidate {
    /// `next`: the serial that the next file will get.
    fn score(&self, next: Serial) -> f64 {
        let age = next.saturating_sub(self.last);
        // One more, so that neither nothing to move nor no age is a division by or a product with nothing.
        self.dead as f64 / (self.live + 1) as f64 * ((age + 1) as f64).sqrt()
    }
}

/// Dead bytes that make a zone worth cleaning when there is none left.
pub fn least_dead(capacity: u64) -> u64 {
    capacity / 8
}

/// Dead bytes that make a zone worth squeezing, where few zones are all that there is and somebody would be refused room.
pub fn least_squeezed(capacity: u64) -> u64 {
    capacity / 32
}

/// Below so many zones one zone is a large part of the drive, about a hundredth: nobody is refused room while zones can be squeezed, and no zone is
/// kept empty for what room behind logs can do. RocksDB on 70 to 78 zones was refused while 86 to 89 % were alive when this was 64.
pub fn are_few(zones: u32) -> bool {
    zones < 128
}

/// So few zones are free, beside the reserve and what is reserved, that tables as large as a zone stand in the room behind others, too. Each compaction
/// ends with a short table, so a fifth of all zones has room that no other table would take, and zones would be cleaned for want of it.
/// At 90 % full that moved a seventh of what RocksDB wrote (`kernel-write-amplification`).
pub fn are_scarce(free: u32, zones: u32) -> bool {
    free < zones / 8
}

/// Steps of dead bytes by which candidates are kept.
const STEPS: u64 = 64;

/// Every zone that is worth cleaning or squeezing at all, kept so that the one to clean is found without a look at all others: by dead bytes in
/// steps of a 64th of a zone, and within a step by age. Zones of a step gain and cost about the same, so only its oldest is looked
/// at.
#[derive(Debug)]
pub struct Candidates {
    capacity: u64,
    zones: BTreeMap<u32, Candidate>,
    steps: Vec<BTreeSet<(Serial, u32)>>,
    dead: u64,
}

impl Candidates {
    /// None yet, of zones of so many bytes.
    pub fn new(capacity: u64) -> Candidates {
        let steps = vec![BTreeSet::new(); STEPS as usize + 1];
        Candidates { capacity: capacity.max(1), zones: BTreeMap::new(), steps, dead: 0 }
    }

    fn step(&self, dead: u64) -> usize {
        (u128::from(dead) * u128::from(STEPS) / u128::from(self.capacity)).min(u128::from(STEPS)) as usize
    }

    /// What cleaning the zone gains; nothing where it is not worth it.
    fn worth(&self, candidate: &Candidate) -> u64 {
        if candidate.dead >= least_dead(self.capacity) { candidate.dead } else { 0 }
    }

    /// What a zone is like now; `None`: it cannot be cleaned.
    pub fn set(&mut self, zone: u32, candidate: Option<Candidate>) {
        if let Some(old) = self.zones.remove(&zone) {
            let step = self.step(old.dead);
            self.steps[step].remove(&(old.last, zone));
            self.dead -= self.worth(&old);
        }
        if let Some(new) = candidate.filter(|c| c.dead >= least_squeezed(self.capacity)) {
            let step = self.step(new.dead);
            self.steps[step].insert((new.last, zone));
            self.dead += self.worth(&new);
            self.zones.insert(zone, new);
        }
    }

    /// The zone, if it is worth cleaning when there is none left.
    pub fn get(&self, zone: u32) -> Option<Candidate> {
        self.zones.get(&zone).filter(|candidate| self.worth(candidate) > 0).copied()
    }

    /// Dead bytes of all of them.
    pub fn dead(&self) -> u64 {
        self.dead
    }

    /// The zone to clean next, of those with at least `least` dead bytes that `may` be cleaned. `next`: the serial that the next
    /// file will get.
    pub fn victim(&self, next: Serial, least: u64, mut may: impl FnMut(u32) -> bool) -> Option<Candidate> {
        let steps = &self.steps[self.step(least)..];
        let oldest = steps.iter().filter_map(|step| {
            let zones = step.iter().filter_map(|(_, zone)| self.zones.get(zone));
            zones.filter(|c| c.dead >= least).find(|c| may(c.zone))
        });
        oldest.max_by(|a, b| a.score(next).total_cmp(&b.score(next)).then(b.zone.cmp(&a.zone))).copied()
    }
}

/// Free zones beside the reserve and what is reserved, below which cleaning begins, on a drive of so many.
pub fn low_water(zones: u32) -> u32 {
    (zones / 32).clamp(1, 16)
}

/// What is cleaned ahead, now that `free` zones are left of `zones`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Dead bytes that make a zone worth it.
    pub least: u64,
    /// Bytes that may be moved, or as many more as the piece takes that is begun.
    pub budget: u64,
}

/// What is to be cleaned ahead after `written` bytes of tables since the last time. `None`: nothing.
pub fn ahead(free: u32, zones: u32, capacity: u64, written: u64) -> Option<Ahead> {
    let low = low_water(zones);
    if free >= low || written == 0 {
        return None;
    }
    // From an eighth, where no zone is left, to seven eighths at the low-water mark.
    let least = least_dead(capacity) + capacity / 4 * 3 * u64::from(free) / u64::from(low);
    Some(Ahead { least, budget: written })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of zones of 800 bytes, as (zone, live, dead, last file): the one to clean when file 1,000,000 is next.
    fn choose(list: &[(u32, u64, u64, Serial)], least: u64) -> Option<u32> {
        let mut candidates = Candidates::new(800);
        for &(zone, live, dead, last) in list {
            candidates.set(zone, Some(Candidate { zone, live, dead, last }));
        }
        candidates.victim(1_000_000, least, |_| true).map(|c| c.zone)
    }

    #[test]
    fn the_deadest_of_an_age_is_cleaned_and_live_ones_are_left() {
        assert_eq!(choose(&[(1, 500, 300, 9), (2, 300, 500, 9), (3, 700, 100, 9)], 100), Some(2));
        assert_eq!(choose(&[(5, 0, 800, 0), (4, 0, 800, 0)], 100), Some(4), "the first of equals");
        assert_eq!(choose(&[(1, 701, 99, 9), (2, 800, 0, 9)], 100), None, "too little to gain");
        assert_eq!(choose(&[(1, 100, 0, 9)], 1), None, "its room is for the next file");
        assert_eq!(choose(&[], 0), None);
    }

    #[test]
    fn an_old_zone_is_cleaned_before_a_young_one() {
        assert_eq!(choose(&[(1, 400, 400, 0), (2, 300, 500, 999_900)], 100), Some(1));
        assert_eq!(choose(&[(1, 400, 400, 999_890), (2, 300, 500, 999_900)], 100), Some(2), "but not for a little age");
        assert_eq!(choose(&[(1, 799, 1, 0), (2, 400, 400, 999_900)], 100), Some(2), "nor where nothing is gained");
    }

    #[test]
    fn candidates_change_and_go() {
        let mut candidates = Candidates::new(800);
        let zone = |zone, dead| Candidate { zone, live: 800 - dead, dead, last: 5 };
        candidates.set(1, Some(zone(1, 400)));
        candidates.set(2, Some(zone(2, 300)));
        assert_eq!((candidates.dead(), candidates.victim(9, 100, |_| true).map(|c| c.zone)), (700, Some(1)));
        assert_eq!(candidates.victim(9, 100, |zone| zone != 1).map(|c| c.zone), Some(2), "the first is busy");
        candidates.set(1, Some(zone(1, 200)));
        assert_eq!((candidates.dead(), candidates.victim(9, 100, |_| true).map(|c| c.zone)), (500, Some(2)));
        candidates.set(2, None);
        candidates.set(1, Some(zone(1, 99)));
        assert_eq!((candidates.dead(), candidates.get(1), candidates.victim(9, 100, |_| true)), (0, None, None));
        let squeezed = |candidates: &Candidates| candidates.victim(9, least_squeezed(800), |_| true).map(|c| c.zone);
        assert_eq!(squeezed(&candidates), Some(1), "only where it would be refused else");
        candidates.set(1, Some(zone(1, 24)));
        assert_eq!((candidates.dead(), squeezed(&candidates)), (0, None));
    }

    #[test]
    fn choosing_looks_at_as_many_zones_on_a_large_drive_as_on_a_small_one() {
        let looks = |zones: u32| {
            let mut candidates = Candidates::new(1 << 28);
            for zone in 0..zones {
                let dead = u64::from(zone).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36;
                candidates.set(zone, Some(Candidate { zone, live: (1 << 28) - dead, dead, last: u64::from(zone) }));
            }
            let mut looks = 0;
            let all = |_| {
                looks += 1;
                true
            };
            assert!(candidates.victim(u64::from(zones), least_dead(1 << 28), all).is_some());
            looks
        };
        let most = (STEPS - STEPS / 8 + 1) as u32;
        assert!(looks(1000) <= most && looks(100_000) <= most, "{} and {}", looks(1000), looks(100_000));
    }

    #[test]
    fn zones_are_scarce_before_any_is_cleaned() {
        assert!(!are_scarce(8, 64) && are_scarce(7, 64));
        assert!((16..100_000).all(|zones| are_scarce(low_water(zones), zones)));
    }

    #[test]
    fn cleaning_begins_at_the_low_water_mark_and_is_less_choosy_as_zones_run_out() {
        let zones = 64;
        let low = low_water(zones);
        assert!(low >= 2);
        assert_eq!(ahead(low, zones, 800, 1000), None);
        assert_eq!(ahead(0, zones, 800, 0), None, "nobody writes");
        let least: Vec<u64> = (0..low).filter_map(|free| Some(ahead(free, zones, 800, 1000)?.least)).collect();
        assert_eq!(least.len() as u32, low);
        assert!(least.is_sorted_by(|a, b| a < b), "{least:?}");
        assert_eq!(least.first(), Some(&100));
        assert!(ahead(0, zones, 800, 1000).is_some_and(|a| a.budget <= 1000), "no more than was written");
        assert_eq!((low_water(0), low_water(75_000)), (1, 16));
    }
}
