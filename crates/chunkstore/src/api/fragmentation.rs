//! How scattered what lives is between what is dead: one number that says what cleaning would cost.
//!
//! Rosenblum and Ousterhout (The Design and Implementation of a Log-Structured File System, TOCS 1992, §3.4 and §3.5) measure a log's
//! segment by its utilisation `u`, the live part of it, and show that what decides is not the mean `u` but how live bytes are distributed:
//! segments should be either full or empty. So the score is the mean of `1 - u` over *live bytes*, not over zones: how much
//! of the zone in which an average live byte stands is dead. A zone with nothing live costs nothing to free and does not count.

use crate::api::store::ChunkStore;
use crate::format::BLOCK;

/// The score of zones, of each its live and its dead bytes: 0 where nothing is dead beside what lives, and towards 1 the more zones
/// hold little that lives between much that is dead.
pub fn fragmentation(zones: impl IntoIterator<Item = (u64, u64)>) -> f64 {
    let (mut live, mut weighed) = (0.0, 0.0);
    for (alive, dead) in zones.into_iter().filter(|(alive, _)| *alive > 0) {
        live += alive as f64;
        weighed += alive as f64 * (dead as f64 / (alive as f64 + dead as f64));
    }
    if live > 0.0 { weighed / live } else { 0.0 }
}

impl ChunkStore {
    /// The [score](fragmentation) of the store's zones of chunks. Bytes behind a zone's write pointer are neither live nor dead.
    pub fn fragmentation(&self) -> f64 {
        let data = self.zones().into_iter().filter(|zone| zone.usage.is_some());
        // Each zone begins with a header of a block, which is not of chunks.
        fragmentation(data.map(|zone| (zone.live, zone.written.saturating_sub(BLOCK as u64 + zone.live))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_whole_or_empty_scores_0() {
        assert_eq!(fragmentation([]), 0.0);
        assert_eq!(fragmentation([(0, 0), (0, 100), (100, 0), (7, 0)]), 0.0);
    }

    #[test]
    fn the_score_is_the_dead_part_beside_an_average_live_byte() {
        assert_eq!(fragmentation([(50, 50)]), 0.5);
        assert_eq!(fragmentation([(1, 99)]), 0.99);
        // Half of the live bytes stand alone, half in a zone that is half dead.
        assert_eq!(fragmentation([(50, 50), (50, 0)]), 0.25);
        // As many bytes are dead in both, and the second is cheaper to clean: its dead ones stand together.
        assert!(fragmentation([(50, 50), (50, 50)]) > fragmentation([(90, 10), (10, 90)]));
        assert_eq!(fragmentation([(100, 0), (0, 100)]), 0.0);
    }

    proptest! {
        #[test]
        fn it_is_a_part_whatever_the_zones_and_their_order(mut zones: Vec<(u64, u64)>) {
            let score = fragmentation(zones.iter().copied());
            prop_assert!((0.0..=1.0).contains(&score), "{score}");
            zones.reverse();
            prop_assert!((fragmentation(zones) - score).abs() < 1e-9);
        }

        #[test]
        fn a_death_never_lowers_it_nor_does_emptying_a_zone_raise_it(zones in prop::collection::vec((1_u64..1000, 0_u64..1000), 1..20)) {
            let score = fragmentation(zones.iter().copied());
            let mut worse = zones.clone();
            worse[0].1 += 100;
            prop_assert!(fragmentation(worse) >= score - 1e-12);
            // Moved to a zone of its own, what lived in the worst one has nothing dead beside it.
            let mut cleaned = zones;
            let worst = cleaned.iter_mut().max_by(|a, b| (a.1 * b.0).cmp(&(b.1 * a.0))).expect("one at least");
            worst.1 = 0;
            prop_assert!(fragmentation(cleaned) <= score + 1e-12);
        }
    }
}
