//! Range tombstones: deletions of all keys from one to another.

use crate::order::Order;
use std::cmp::Ordering;

/// All versions of the keys from `begin` to before `end` that are older than `seq` are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    /// The first key.
    pub begin: Vec<u8>,
    /// The key behind the last.
    pub end: Vec<u8>,
    /// Its sequence number.
    pub seq: u64,
}

/// Range tombstones by where they begin, then the newest first. As a tree: the middle of a piece is above both of its halves.
#[derive(Default)]
pub(crate) struct RangeTombstones {
    all: Vec<RangeTombstone>,
    /// Of the piece whose middle this is, the tombstone that ends last, and the highest sequence number.
    below: Vec<(usize, u64)>,
}

impl RangeTombstones {
    /// Puts them in order. Of those that begin together with the same sequence number the longest counts, and those that cover nothing are left out.
    pub fn new(mut all: Vec<RangeTombstone>, order: &dyn Order) -> Self {
        all.retain(|range| order.compare(&range.begin, &range.end) == Ordering::Less);
        all.sort_by(|a, b| {
            let begin = order.compare(&a.begin, &b.begin).then(b.seq.cmp(&a.seq));
            begin.then_with(|| order.compare(&b.end, &a.end))
        });
        all.dedup_by(|next, kept| next.seq == kept.seq && order.compare(&next.begin, &kept.begin) == Ordering::Equal);
        let mut ranges = RangeTombstones { below: vec![(0, 0); all.len()], all };
        ranges.link(0, ranges.all.len(), order);
        ranges
    }

    fn link(&mut self, from: usize, to: usize, order: &dyn Order) -> Option<(usize, u64)> {
        if from == to {
            return None;
        }
        let middle = (from + to) / 2;
        let mut most = (middle, self.all[middle].seq);
        for half in [self.link(from, middle, order), self.link(middle + 1, to, order)].into_iter().flatten() {
            if order.compare(&self.all[half.0].end, &self.all[most.0].end) == Ordering::Greater {
                most.0 = half.0;
            }
            most.1 = most.1.max(half.1);
        }
        self.below[middle] = most;
        Some(most)
    }

    /// The highest sequence number up to `at_seq` of those that cover the key. Versions with lower ones are deleted.
    pub fn cover(&self, order: &dyn Order, key: &[u8], at_seq: u64) -> Option<u64> {
        let mut best = None;
        if !self.all.is_empty() {
            self.search((0, self.all.len()), order, key, at_seq, &mut best);
        }
        best
    }

    fn search(&self, piece: (usize, usize), order: &dyn Order, key: &[u8], at_seq: u64, best: &mut Option<u64>) {
        let (from, to) = piece;
        if from == to {
            return;
        }
        let middle = (from + to) / 2;
        let (last, newest) = self.below[middle];
        if best.is_some_and(|best| best >= newest) || order.compare(&self.all[last].end, key) != Ordering::Greater {
            return;
        }
        let range = &self.all[middle];
        if order.compare(&range.begin, key) != Ordering::Greater {
            if range.seq <= at_seq && order.compare(&range.end, key) == Ordering::Greater {
                *best = (*best).max(Some(range.seq));
            }
            self.search((middle + 1, to), order, key, at_seq, best);
        }
        self.search((from, middle), order, key, at_seq, best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Bytewise;

    #[test]
    fn what_covers_a_key_is_what_a_look_at_all_finds() {
        let mut random = 1u64;
        let mut next = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        for n in [0, 1, 2, 3, 7, 50] {
            for _ in 0..20 {
                let mut all = Vec::new();
                for _ in 0..n {
                    all.push(RangeTombstone { begin: vec![next(20) as u8], end: vec![next(20) as u8], seq: next(30) });
                }
                let ranges = RangeTombstones::new(all.clone(), &Bytewise);
                for (key, at_seq) in (0..21).flat_map(|key| (0..31).map(move |seq| (vec![key], seq))) {
                    let covers = |range: &&RangeTombstone| range.begin <= key && key < range.end && range.seq <= at_seq;
                    let want = all.iter().filter(covers).map(|range| range.seq).max();
                    assert_eq!(ranges.cover(&Bytewise, &key, at_seq), want);
                }
            }
        }
    }
}
