//! When zones are cleaned, which, and how much at a time: pure functions of a few numbers, replayed over a recorded trace in
//! [`crate::replay`].
//!
//! *Which*: benefit over cost. Dead bytes are what is gained, live bytes what it costs, and a zone in which nothing was
//! written for long is a better choice than a young one, whose files are likely to die by themselves and cost nothing then
//! (the cost-benefit of Rosenblum and Ousterhout's LFS, with the square root of the age: on the recorded traces of `db_bench`
//! that moved the least, a fifth less than without the age; the age itself moved more).
//!
//! *When*: while more than [`low_water`] zones are free, never. Below, tables pay as they are written: for each byte at most one is
//! moved, and the fewer zones are free, the fewer dead bytes make a zone worth it. So the last zone is rarely taken, and
//! whoever needs a zone then cleans as many as it takes, at once.

/// A zone that could be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The zone.
    pub zone: u32,
    /// Bytes that would have to be moved, headers included.
    pub live: u64,
    /// Bytes that nobody can use before the zone is reset: room that the next file will get is not among them.
    pub dead: u64,
    /// Since the youngest of its files was written; in any unit, the same for all candidates.
    pub age: u64,
}

impl Candidate {
    fn score(&self) -> f64 {
        // One more, so that neither nothing to move nor no age is a division by or a product with nothing.
        self.dead as f64 / (self.live + 1) as f64 * ((self.age + 1) as f64).sqrt()
    }
}

/// Dead bytes that make a zone worth cleaning when there is none left.
pub fn least_dead(capacity: u64) -> u64 {
    capacity / 8
}

/// The zone to clean next, of those with at least `least` dead bytes.
pub fn victim(candidates: impl Iterator<Item = Candidate>, least: u64) -> Option<Candidate> {
    let worth = candidates.filter(|c| c.dead >= least);
    worth.max_by(|a, b| a.score().total_cmp(&b.score()).then(b.zone.cmp(&a.zone)))
}

/// Free zones beside the reserve and what is promised, below which cleaning begins, on a drive of so many.
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

    fn choose(list: &[(u32, u64, u64, u64)], least: u64) -> Option<u32> {
        let candidate = |&(zone, live, dead, age): &(u32, u64, u64, u64)| Candidate { zone, live, dead, age };
        victim(list.iter().map(candidate), least).map(|c| c.zone)
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
        assert_eq!(choose(&[(1, 400, 400, 1_000_000), (2, 300, 500, 100)], 100), Some(1));
        assert_eq!(choose(&[(1, 400, 400, 110), (2, 300, 500, 100)], 100), Some(2), "but not for a little age");
        assert_eq!(choose(&[(1, 799, 1, 1_000_000), (2, 400, 400, 100)], 100), Some(2), "nor where nothing is gained");
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
