//! The record frames as they were found: which of them count, and in which order. Pure.
//!
//! Each frame names the one before it, and no number is ever given twice. So the frames that count are those on the way from the newest back to
//! the snapshot. A frame that is not on that way had not been readable when the next mount began: that mount knew nothing of it and went on
//! without it, and so does everybody after it, also where the frame can be read again.

use super::items::Assembler;
use std::collections::BTreeMap;

struct Link {
    /// The frame before it.
    before: u64,
    first: usize,
    items: Vec<u8>,
}

/// All record frames that are there, by number.
#[derive(Default)]
pub struct Chain {
    frames: BTreeMap<u64, Link>,
    /// The last one of which anything else says that it was written.
    told: u64,
}

/// What is known of the records behind a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// Frames that count.
    pub frames: u64,
    /// No record is missing.
    pub whole: bool,
}

/// Is handed the records with the numbers of the frames where they end; `None`: some are missing before the next one.
pub type EachOrGap<'a> = dyn FnMut(Option<(u64, &[u8])>) + 'a;

impl Chain {
    /// A frame that was read, perhaps a second copy. `first`: where an item begins in it.
    pub fn put(&mut self, number: u64, before: u64, first: usize, items: &[u8]) {
        // One that names none before it is no reason to go round for ever.
        let before = before.min(number.saturating_sub(1));
        self.frames.entry(number).or_insert_with(|| Link { before, first, items: items.to_vec() });
    }

    /// A frame of this number was written, whether it can be read or not.
    pub fn tell(&mut self, number: u64) {
        self.told = number.max(self.told);
    }

    /// Number of the last one; 0: there is none.
    pub fn newest(&self) -> u64 {
        self.frames.keys().next_back().copied().unwrap_or(0)
    }

    /// The frames that count behind the one of this number, in order, and whether none of them is missing.
    fn path(&self, start: u64) -> (Vec<(u64, &Link)>, bool) {
        let (mut path, mut whole) = (Vec::new(), true);
        let mut next = self.newest();
        while next > start {
            match self.frames.get(&next) {
                Some(link) => {
                    path.push((next, link));
                    next = link.before;
                }
                // Nobody knows any more what that one named: it goes on with what is left.
                None => {
                    whole = false;
                    next = self.frames.range(..next).next_back().map_or(start, |(number, _)| *number);
                }
            }
        }
        whole &= (next == start || path.is_empty()) && self.told <= self.newest().max(start);
        path.reverse();
        (path, whole)
    }

    /// Hands the records that count behind the frame of this number to `each`, in order, each with the number of the frame where it ends.
    pub fn since(&self, start: u64, each: &mut dyn FnMut(u64, &[u8])) -> Since {
        self.since_with_gaps(start, &mut |found| {
            if let Some((number, record)) = found {
                each(number, record);
            }
        })
    }

    /// The same, and where records are missing.
    pub fn since_with_gaps(&self, start: u64, each: &mut EachOrGap<'_>) -> Since {
        let (path, mut whole) = self.path(start);
        let mut records = Assembler::default();
        let mut before = start;
        for (number, link) in &path {
            if link.before != before {
                records.gap();
                each(None);
            }
            if !records.put(link.first, &link.items, &mut |record| each(Some((*number, record)))) {
                whole = false;
                each(None);
            }
            before = *number;
        }
        Since { frames: path.len() as u64, whole }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Batch;
    use super::*;

    fn chain(frames: &[(u64, u64)]) -> Chain {
        let mut chain = Chain::default();
        for (number, before) in frames {
            let mut record = Batch::default();
            record.push(|to| to.extend(number.to_le_bytes()));
            chain.put(*number, *before, 0, record.bytes());
        }
        chain
    }

    fn since(chain: &Chain, start: u64) -> (Vec<u64>, bool) {
        let mut numbers = Vec::new();
        let found = chain.since(start, &mut |number, record| {
            assert_eq!(record, number.to_le_bytes());
            numbers.push(number);
        });
        assert_eq!(found.frames, numbers.len() as u64);
        (numbers, found.whole)
    }

    /// The third frame of mount 1 could not be read when mount 2 began.
    #[test]
    fn what_a_mount_did_not_know_of_does_not_count_after_it() {
        let (one, two) = (1 << 40, 2 << 40);
        let all = [(one, 0), (one + 1, one), (one + 2, one + 1), (two, one + 1), (two + 1, two)];
        assert_eq!(since(&chain(&all), 0), (vec![one, one + 1, two, two + 1], true));
        assert_eq!(since(&chain(&all), one), (vec![one + 1, two, two + 1], true));
        assert_eq!(since(&chain(&all), two + 1), (vec![], true));
        assert_eq!(since(&chain(&all[..3]), one), (vec![one + 1, one + 2], true), "nobody went on without it");
    }

    #[test]
    fn a_frame_that_is_missing_is_noticed_and_the_others_count() {
        let (one, two) = (1 << 40, 2 << 40);
        let all = [(one, 0), (one + 1, one), (one + 2, one + 1), (two, one + 2), (two + 1, two)];
        let without = |number| chain(&all.iter().copied().filter(|(n, _)| *n != number).collect::<Vec<_>>());
        assert_eq!(since(&without(two), one), (vec![one + 1, one + 2, two + 1], false));
        assert_eq!(since(&without(one + 1), one), (vec![one + 2, two, two + 1], false));
        assert_eq!(since(&without(two + 1), one), (vec![one + 1, one + 2, two], true), "of the last one nothing tells");
        assert_eq!(since(&chain(&[(two, one + 3)]), one), (vec![two], false));
    }

    #[test]
    fn nonsense_comes_to_an_end() {
        for before in [1 << 40, 2 << 40, u64::MAX] {
            let (numbers, whole) = since(&chain(&[(1 << 40, before)]), 0);
            assert_eq!((numbers, whole), (vec![1 << 40], false));
        }
        assert_eq!(since(&chain(&[(0, 9)]), 0), (vec![], true));
        assert_eq!(since(&chain(&[]), 5), (vec![], true));
    }

    /// A record in three frames: of the middle one nothing is left, or the mount that wrote it never came to its end.
    #[test]
    fn all_of_a_long_record_counts_or_nothing() {
        let mut batch = Batch::default();
        (0..3u8).for_each(|n| batch.push(|to| to.extend([n; 10])));
        let stream = batch.bytes().to_vec();
        let pieces = [(0, &stream[..20]), (8, &stream[20..30]), (10, &stream[30..40]), (2, &stream[40..])];
        let put = |which: &[usize]| {
            let mut chain = Chain::default();
            for i in which {
                let (first, bytes) = pieces[*i];
                chain.put(*i as u64 + 1, *i as u64, first, bytes);
            }
            let mut found = Vec::new();
            let since = chain.since(0, &mut |_, record| found.push(record.to_vec()));
            (found.iter().map(|record| record[0]).collect::<Vec<_>>(), since.whole)
        };
        assert_eq!(put(&[0, 1, 2, 3]), (vec![0, 1, 2], true));
        assert_eq!(put(&[0, 1]), (vec![0, 1], true), "the end is torn");
        assert_eq!(put(&[0, 2, 3]), (vec![0], false));
        assert_eq!(put(&[1, 2, 3]), (vec![2], false));
        // Another mount goes on where the front of a record is, and begins with a new one.
        let mut chain = Chain::default();
        chain.put(1, 0, 0, pieces[0].1);
        chain.put(2, 1, 0, &stream[28..]);
        let mut found = Vec::new();
        assert!(chain.since(0, &mut |_, record| found.push(record[0])).whole);
        assert_eq!(found, [0, 2]);
    }
}
