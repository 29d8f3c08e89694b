//! The journal as it was found: which of its records count, and in which order.
//!
//! Each record names the one before it, and no number is ever given twice. So the records that count are those on the way from the newest back to
//! the checkpoint. One that is not on that way had not been readable when the next mount began: that mount knew nothing of it and went on
//! without it, and so does everybody after it, also where it can be read again.

use crate::entry::{Entry, entries};
use crate::format::Header;
use std::collections::BTreeMap;

struct Record {
    /// The one before it.
    before: u64,
    payload: Vec<u8>,
}

/// All records that are there, by number.
#[derive(Default)]
pub(crate) struct Journal(BTreeMap<u64, Record>);

/// Records behind a checkpoint.
pub(super) struct Since<'a> {
    /// With their numbers, in order.
    pub(super) records: Vec<(u64, &'a [u8])>,
    /// None of them is missing.
    pub(super) whole: bool,
}

impl Journal {
    /// One that was read, perhaps a second copy.
    pub(super) fn put(&mut self, header: &Header, payload: &[u8]) {
        let number = header.sequence;
        // One that names none before it is no reason to go round for ever.
        let before = header.serial.min(number.saturating_sub(1));
        self.0.entry(number).or_insert_with(|| Record { before, payload: payload.to_vec() });
    }

    /// Number of the last one; 0: there is none.
    pub(super) fn newest(&self) -> u64 {
        self.0.keys().next_back().copied().unwrap_or(0)
    }

    /// Those that count behind the record of this number.
    pub(super) fn since(&self, start: u64) -> Since<'_> {
        let mut records = Vec::new();
        let mut whole = true;
        let mut next = self.newest();
        while next > start {
            match self.0.get(&next) {
                Some(record) => {
                    records.push((next, &record.payload[..]));
                    next = record.before;
                }
                // Nobody knows any more what that one named: it goes on with what is left.
                None => {
                    whole = false;
                    next = self.0.range(..next).next_back().map_or(start, |(number, _)| *number);
                }
            }
        }
        whole &= next == start || records.is_empty();
        records.reverse();
        Since { records, whole }
    }

    /// All entries of all records that count, as far as they make sense.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.since(0).records.into_iter().filter_map(|(_, payload)| entries(payload)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Kind;

    fn journal(records: &[(u64, u64)]) -> Journal {
        let mut journal = Journal::default();
        for (number, before) in records {
            let of = Header::of_payload(Kind::Journal, *number, 0, &[]);
            journal.put(&Header { serial: *before, ..of }, &[]);
        }
        journal
    }

    fn since(journal: &Journal, start: u64) -> (Vec<u64>, bool) {
        let since = journal.since(start);
        (since.records.iter().map(|(number, _)| *number).collect(), since.whole)
    }

    /// The third record of mount 1 could not be read when mount 2 began.
    #[test]
    fn what_a_mount_did_not_know_of_does_not_count_after_it() {
        let (one, two) = (1 << 40, 2 << 40);
        let all = [(one, 0), (one + 1, one), (one + 2, one + 1), (two, one + 1), (two + 1, two)];
        assert_eq!(since(&journal(&all), 0), (vec![one, one + 1, two, two + 1], true));
        assert_eq!(since(&journal(&all), one), (vec![one + 1, two, two + 1], true));
        assert_eq!(since(&journal(&all), two + 1), (vec![], true));
        assert_eq!(since(&journal(&all[..3]), one), (vec![one + 1, one + 2], true), "nobody went on without it");
    }

    #[test]
    fn a_record_that_is_missing_is_noticed_and_the_others_count() {
        let (one, two) = (1 << 40, 2 << 40);
        let all = [(one, 0), (one + 1, one), (one + 2, one + 1), (two, one + 2), (two + 1, two)];
        let without = |number| journal(&all.iter().copied().filter(|(n, _)| *n != number).collect::<Vec<_>>());
        assert_eq!(since(&without(two), one), (vec![one + 1, one + 2, two + 1], false));
        assert_eq!(since(&without(one + 1), one), (vec![one + 2, two, two + 1], false));
        assert_eq!(since(&without(two + 1), one), (vec![one + 1, one + 2, two], true), "of the last one nothing tells");
        assert_eq!(since(&journal(&[(two, one + 3)]), one), (vec![two], false));
    }

    #[test]
    fn nonsense_comes_to_an_end() {
        for before in [1 << 40, 2 << 40, u64::MAX] {
            let (numbers, whole) = since(&journal(&[(1 << 40, before)]), 0);
            assert_eq!((numbers, whole), (vec![1 << 40], false));
        }
        assert_eq!(since(&journal(&[(0, 9)]), 0), (vec![], true));
        assert_eq!(since(&journal(&[]), 5), (vec![], true));
    }
}
