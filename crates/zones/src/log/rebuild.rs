//! The root of a log whose label is lost, of the zones that are left of its rings.

use super::Root;

impl Root {
    /// The root of a log of so many copies whose zones in use are known, with the ring of each, ascending: in a root the rings take turns, so empty
    /// zones between and around them fill the gaps, as unused zones of the log did. It has `want` zones, where that can be. A zone that cannot be fitted in
    /// is left out, and its copy counts. `None`: there are too few empty zones for the rings.
    pub(crate) fn of_zones(copies: u8, used: &[(u32, u8)], empty: &[u32], want: usize) -> Option<Root> {
        let root = |zones| Root { copies, zones, ..Root::default() };
        let fits = |all: &[u32]| root(all.to_vec()).encode().is_some();
        let copies = usize::from(copies.max(1));
        let mut all: Vec<u32> = Vec::new();
        for (n, (zone, ring)) in used.iter().enumerate() {
            // Before the first one only what is needed, and what stands next to it.
            let before: Vec<u32> = match all.last() {
                None => empty.iter().copied().filter(|e| e < zone).rev().take(usize::from(*ring)).collect(),
                Some(last) => empty.iter().copied().filter(|e| e > last && e < zone).collect(),
            };
            let room = want.saturating_sub(all.len() + used.len() - n);
            let odd = (all.len() + usize::from(*ring)) % copies;
            // As many as there is room for, but one at least where the ring has to change.
            let take = before.len().min(room.max(odd));
            let take = if take % copies == odd { take } else { take.saturating_sub(1) };
            if take % copies == odd {
                let kept = all.len();
                all.extend(before.into_iter().take(take));
                all.push(*zone);
                if !fits(&all) {
                    all.truncate(kept);
                }
            }
        }
        let last = all.last().copied();
        for zone in empty.iter().filter(|zone| last.is_none_or(|last| **zone > last)) {
            if all.len() >= want {
                break;
            }
            all.push(*zone);
            if !fits(&all) {
                all.pop();
                break;
            }
        }
        // In front one for each ring at a time: who comes behind them keeps its ring.
        while all.len() + copies <= want.max(2 * copies) {
            let first = all.first().copied().unwrap_or(0);
            let mut more: Vec<u32> = empty.iter().copied().filter(|zone| *zone < first).rev().take(copies).collect();
            more.reverse();
            more.extend(&all);
            if more.len() < all.len() + copies || !fits(&more) {
                break;
            }
            all = more;
        }
        let is_used = |zone: &u32| used.iter().any(|(used, _)| used == zone);
        // Each ring needs two; of two copies each one that a snapshot can be written to, since those rings do not grow.
        let free = |ring: usize| all.iter().skip(ring).step_by(2).any(|zone| !is_used(zone));
        (all.len() >= 2 * copies && (copies == 1 || (free(0) && free(1)))).then(|| root(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two copies, with six zones.
    fn made(used: &[(u32, u8)], empty: impl IntoIterator<Item = u32>) -> Option<Vec<u32>> {
        let root = Root::of_zones(2, used, &empty.into_iter().collect::<Vec<_>>(), 6)?;
        for (i, zone) in root.zones.iter().enumerate() {
            if let Some((_, ring)) = used.iter().find(|(used, _)| used == zone) {
                assert_eq!(usize::from(*ring), i % 2, "{root:?}");
            }
        }
        assert!(root.zones.windows(2).all(|two| two[0] < two[1]), "{root:?}");
        Some(root.zones)
    }

    #[test]
    fn unused_zones_are_found_again_around_the_used_ones() {
        // As they were taken: 4 to 9.
        for used in [&[(4, 0), (5, 1)][..], &[(5, 1), (6, 0)], &[(8, 0), (9, 1)], &[(4, 0), (9, 1)], &[(6, 0), (7, 1)]]
        {
            let empty = (4..10).filter(|zone| !used.iter().any(|(used, _)| used == zone));
            assert_eq!(made(used, empty).unwrap(), [4, 5, 6, 7, 8, 9], "{used:?}");
        }
        // Zones behind them are as good as those before.
        assert_eq!(made(&[(8, 0), (9, 1)], 10..60).unwrap(), [8, 9, 10, 11, 12, 13]);
        assert_eq!(made(&[], 20..60).unwrap(), [20, 21, 22, 23, 24, 25]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_nothing_is_made_without_room() {
        // Two of one ring with nothing between them: one is left out.
        assert_eq!(made(&[(4, 0), (5, 0)], 10..60).unwrap(), [4, 10, 11, 12, 13, 14]);
        assert_eq!(made(&[(4, 0), (6, 0)], [5, 10, 11, 12]).unwrap(), [4, 5, 6, 10, 11, 12]);
        // The first one in the second ring, and nothing before it.
        assert_eq!(made(&[(4, 1)], 10..14).unwrap(), [10, 11, 12, 13]);
        assert_eq!(made(&[(4, 0), (5, 1)], [6]), None, "one ring has nothing to write to");
        assert_eq!(made(&[(4, 0), (5, 1)], [6, 7]).unwrap(), [4, 5, 6, 7]);
        assert_eq!(made(&[], []), None);
        assert_eq!(made(&[], [6, 7]), None, "a ring of one zone cannot go round");
    }
    #[test]
    fn the_only_ring_needs_two_zones_and_no_free_one() {
        let made = |used: &[u32], empty: &[u32], want| {
            let used: Vec<_> = used.iter().map(|zone| (*zone, 0)).collect();
            Root::of_zones(1, &used, empty, want).map(|root| root.zones)
        };
        assert_eq!(made(&[4, 9], &[], 2), Some(vec![4, 9]));
        assert_eq!(made(&[4], &[2, 6], 2), Some(vec![4, 6]));
        assert_eq!(made(&[4], &[2, 3], 2), Some(vec![3, 4]));
        assert_eq!(made(&[4], &[], 2), None);
        assert_eq!(made(&[4], &[6], 0), None, "a header that says nonsense");
    }
}
