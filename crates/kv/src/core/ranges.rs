//! Ranges of keys that were deleted at once.
//!
//! They are not in tables. There are few, and a view has all of them: those that only the log has, and those that are *noted* in the metadata. A table that a range
//! covers, and that is older, goes without being read. A merge drops what noted ranges hide. When no older table is left in its keys, a range is forgotten.

use crate::manifest::TableInfo;
use crate::order::Order;
use crate::ranges::{RangeTombstone, RangeTombstones};

/// Ranges of a store at most, and bytes of their keys.
pub(crate) const MOST_RANGES: usize = 1024;
pub(crate) const MOST_RANGE_BYTES: u64 = 1 << 20;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub deleted: RangeTombstone,
    /// Where the log has its record, and the number of that.
    pub record: (u64, u64),
    /// The metadata has it; tables from this number on have nothing of what it deletes.
    pub noted: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ranges {
    all: Vec<Range>,
    index: RangeTombstones,
    /// The highest number that one had, also of those that are forgotten.
    newest: u64,
}

impl Ranges {
    pub fn of(order: &dyn Order, all: Vec<Range>) -> Ranges {
        let newest = all.iter().map(|range| range.deleted.seq).max().unwrap_or(0);
        let index = RangeTombstones::new(all.iter().map(|range| range.deleted.clone()).collect(), order);
        Ranges { all, index, newest }
    }

    /// The same, as `change` has them.
    pub fn changed(&self, order: &dyn Order, change: impl FnOnce(&mut Vec<Range>)) -> Ranges {
        let mut all = self.all.clone();
        change(&mut all);
        let ranges = Ranges::of(order, all);
        Ranges { newest: ranges.newest.max(self.newest), ..ranges }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range> {
        self.all.iter()
    }

    /// The highest number that one had.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Who reads at `seq` sees no change of the key with a lower number than this.
    pub fn floor(&self, order: &dyn Order, key: &[u8], seq: u64) -> u64 {
        if self.all.is_empty() { 0 } else { self.index.cover(order, key, seq).unwrap_or(0) }
    }

    /// Those of the metadata alone, if there are any.
    pub fn noted(&self, order: &dyn Order) -> Option<RangeTombstones> {
        let noted: Vec<_> = self.all.iter().filter(|range| range.noted.is_some()).collect();
        let all = || noted.iter().map(|range| range.deleted.clone()).collect();
        (!noted.is_empty()).then(|| RangeTombstones::new(all(), order))
    }

    /// The oldest record of the log that has one which the metadata has not.
    pub fn oldest_record(&self) -> Option<(u64, u64)> {
        self.all.iter().filter(|range| range.noted.is_none()).map(|range| range.record).min()
    }
}

/// How a range that the metadata has meets a table.
pub(crate) enum Meets {
    /// Nothing of the table is hidden.
    No,
    /// Some of it is, or may be.
    Some,
    /// All of it.
    All,
}

impl Range {
    /// Bytes of its keys.
    pub fn bytes(&self) -> u64 {
        (self.deleted.begin.len() + self.deleted.end.len()) as u64
    }

    /// How it meets the table.
    pub fn meets(&self, order: &dyn Order, table: &TableInfo) -> Meets {
        let (begin, end) = (&self.deleted.begin, &self.deleted.end);
        let apart = order.compare(&table.largest, begin).is_lt() || order.compare(end, table.first()).is_le();
        let older = table.seqs.0 < self.deleted.seq && self.noted.is_none_or(|from| table.id < from);
        if apart || !older {
            return Meets::No;
        }
        let inside = order.compare(begin, table.first()).is_le() && order.compare(&table.largest, end).is_lt();
        if inside && table.seqs.1 < self.deleted.seq { Meets::All } else { Meets::Some }
    }

    /// Bytes of the table that it hides, about.
    pub fn hides(&self, order: &dyn Order, table: &TableInfo) -> u64 {
        match self.meets(order, table) {
            Meets::No => 0,
            Meets::All => table.live,
            Meets::Some => {
                let (begin, end) = (&self.deleted.begin, &self.deleted.end);
                let counts = |key: &[u8]| order.compare(table.first(), key).is_le();
                let marks = table.marks.iter().filter(|mark| counts(mark));
                let inside = |mark: &[u8]| order.compare(begin, mark).is_le() && order.compare(mark, end).is_lt();
                let (all, hidden) =
                    marks.fold((1, 0), |(all, hidden), mark| (all + 1, hidden + u64::from(inside(mark))));
                (table.live / all * hidden).max(1)
            }
        }
    }
}
