//! Merges what is left of tables and of the log, and chooses the newest change of each key.

use super::sort::Sorted;
use crate::order::Order;
use crate::ranges::RangeTombstones;
use crate::space::MARK;
use crate::table::Kind;
use crate::table::left::Left;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

/// Tables that are open at once. Where more of them have keys in one place, sorting takes less memory than merging.
const MOST_OPEN: usize = 512;

/// A change of a key of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub key: Vec<u8>,
    pub seq: u64,
    pub kind: Kind,
    pub value: Vec<u8>,
}

/// By key, then the newest first. Of two with one number the delete comes first: a merge has made it of the other, whose time was over.
pub(super) fn compare(order: &dyn Order, a: &Change, b: &Change) -> Ordering {
    order.compare(&a.key, &b.key).then(b.seq.cmp(&a.seq)).then((a.kind as u8).cmp(&(b.kind as u8)))
}

/// A table, from a key on.
pub(super) struct Of {
    pub left: Left,
    /// Changes of keys before this one are elsewhere.
    pub from: Option<Vec<u8>>,
    /// Its place among all tables.
    pub table: usize,
    /// In place of the numbers that its changes have.
    pub number: Option<u64>,
}

impl Of {
    /// The next change that counts.
    pub fn next(&mut self, order: &dyn Order) -> Option<Change> {
        while self.left.next() {
            let (key, seq, kind, value) = self.left.entry()?;
            // A key of the tree begins with the mark of a space, which is odd.
            let counts = key.get(MARK - 1).is_some_and(|mark| mark % 2 == 1)
                && self.from.as_ref().is_none_or(|from| order.compare(from, key).is_le());
            if counts {
                return Some(Change {
                    key: key.to_vec(),
                    seq: self.number.unwrap_or(seq),
                    kind,
                    value: value.to_vec(),
                });
            }
        }
        None
    }
}

/// A part that is merged.
pub(super) enum Part {
    /// A table that is not open yet, whose first key is known or empty.
    Closed {
        table: usize,
    },
    Table(Box<Of>),
    Sorted(Sorted),
}

/// What comes next of a part.
struct Head {
    order: Arc<dyn Order>,
    change: Change,
    part: Part,
}

impl Head {
    /// A table that is to be opened comes before the changes of its first key.
    fn rank(&self) -> bool {
        !matches!(self.part, Part::Closed { .. })
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    /// The heap has its greatest in front.
    fn cmp(&self, other: &Head) -> Ordering {
        let keys = self.order.compare(&self.change.key, &other.change.key);
        let all =
            keys.then(self.rank().cmp(&other.rank())).then_with(|| compare(&*self.order, &self.change, &other.change));
        all.reverse()
    }
}

/// Why a merge ended early.
pub(super) enum Stopped {
    /// A table is in another order; so is this space, unless it is damaged in a way that its checksums do not tell.
    Disorder(u16),
    /// Too many tables have keys in one place.
    Wide,
    Failed(imbrex_device::Error),
    Host(io::Error),
}

/// All parts, merged.
pub(super) struct Merge<'a> {
    order: Arc<dyn Order>,
    heads: BinaryHeap<Head>,
    open: usize,
    pub open_table: &'a mut dyn FnMut(usize) -> Of,
    pub closed_table: &'a mut dyn FnMut(Box<Of>),
}

/// The space of a key of the tree.
pub(super) fn space_of(key: &[u8]) -> u16 {
    key.first_chunk::<MARK>().map_or(0, |mark| u16::from_be_bytes(*mark) / 2)
}

impl<'a> Merge<'a> {
    /// `tables`: their first keys, empty where they are not known.
    pub fn new(
        order: &Arc<dyn Order>,
        tables: Vec<(usize, Vec<u8>)>,
        sorted: Vec<Sorted>,
        open_table: &'a mut dyn FnMut(usize) -> Of,
        closed_table: &'a mut dyn FnMut(Box<Of>),
    ) -> io::Result<Merge<'a>> {
        let mut merge = Merge { order: order.clone(), heads: BinaryHeap::new(), open: 0, open_table, closed_table };
        for (table, key) in tables {
            merge.push(Change { key, seq: u64::MAX, kind: Kind::Delete, value: Vec::new() }, Part::Closed { table });
        }
        for mut part in sorted {
            if let Some(change) = part.next()? {
                merge.push(change, Part::Sorted(part));
            }
        }
        Ok(merge)
    }

    fn push(&mut self, change: Change, part: Part) {
        self.heads.push(Head { order: self.order.clone(), change, part });
    }

    /// The next change of all.
    pub fn next(&mut self) -> std::result::Result<Option<Change>, Stopped> {
        while let Some(Head { change, part, .. }) = self.heads.pop() {
            match part {
                Part::Closed { table } => {
                    let of = (self.open_table)(table);
                    self.open += 1;
                    if self.open > MOST_OPEN {
                        return Err(Stopped::Wide);
                    }
                    self.go_on(&change, Box::new(of))?;
                }
                Part::Table(of) => {
                    self.go_on(&change, of)?;
                    return Ok(Some(change));
                }
                Part::Sorted(mut sorted) => {
                    if let Some(next) = sorted.next().map_err(Stopped::Host)? {
                        self.push(next, Part::Sorted(sorted));
                    }
                    return Ok(Some(change));
                }
            }
        }
        Ok(None)
    }

    /// What comes behind `before` of a table.
    fn go_on(&mut self, before: &Change, mut of: Box<Of>) -> std::result::Result<(), Stopped> {
        match of.next(self.order.as_ref()) {
            Some(next) if self.order.compare(&before.key, &next.key).then(next.seq.cmp(&before.seq)).is_gt() => {
                Err(Stopped::Disorder(space_of(&next.key)))
            }
            Some(next) => {
                self.push(next, Part::Table(of));
                Ok(())
            }
            None => {
                self.open -= 1;
                (self.closed_table)(of);
                Ok(())
            }
        }
    }
}

/// Chooses what counts of the changes of a key.
pub(super) struct Newest<'a> {
    order: Arc<dyn Order>,
    ranges: &'a RangeTombstones,
    key: Option<Vec<u8>>,
    /// It is known what the key has.
    settled: bool,
    /// Keys whose newest changes are operands of a merge operator, which only programs have.
    pub operands: u64,
}

impl<'a> Newest<'a> {
    pub fn new(order: &Arc<dyn Order>, ranges: &'a RangeTombstones) -> Newest<'a> {
        Newest { order: order.clone(), ranges, key: None, settled: false, operands: 0 }
    }

    /// Whether the change is the pair that its key has. Changes come in their order.
    pub fn counts(&mut self, change: &Change) -> bool {
        let same = self.key.as_ref().is_some_and(|key| self.order.compare(key, &change.key).is_eq());
        if same && self.settled {
            return false;
        }
        if !same {
            self.key = Some(change.key.clone());
            self.settled = false;
        }
        let covered = self.ranges.cover(self.order.as_ref(), &change.key, u64::MAX).is_some_and(|seq| change.seq < seq);
        match change.kind {
            _ if covered => self.settled = true,
            Kind::Delete => self.settled = true,
            Kind::Put => {
                self.settled = true;
                return true;
            }
            // Without the operator, the newest full value is the nearest to it.
            Kind::Merge => self.operands += u64::from(!same),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Bytewise;
    use crate::ranges::RangeTombstone;
    use crate::space::full;

    #[test]
    fn the_newest_change_of_each_key_counts() {
        let order: Arc<dyn Order> = Arc::new(Bytewise);
        let change = |key: &str, seq, kind, value: &str| Change {
            key: full(0, key.as_bytes()),
            seq,
            kind,
            value: value.as_bytes().to_vec(),
        };
        let deleted = RangeTombstone { begin: full(0, b"e"), end: full(0, b"g"), seq: 20 };
        let ranges = RangeTombstones::new(vec![deleted], &Bytewise);
        let mut newest = Newest::new(&order, &ranges);
        let all = [
            (change("a", 9, Kind::Put, "new"), true),
            (change("a", 8, Kind::Delete, ""), false),
            (change("a", 7, Kind::Put, "old"), false),
            (change("b", 9, Kind::Delete, ""), false),
            (change("b", 7, Kind::Put, "old"), false),
            // A pair that is over, and what a merge made of it.
            (change("c", 5, Kind::Delete, ""), false),
            (change("c", 5, Kind::Put, "over"), false),
            (change("d", 5, Kind::Put, "twice"), true),
            (change("d", 5, Kind::Put, "twice"), false),
            (change("e", 21, Kind::Put, "behind the range"), true),
            (change("f", 19, Kind::Put, "in the range"), false),
            (change("g", 19, Kind::Put, "at its end"), true),
            (change("h", 9, Kind::Merge, "+1"), false),
            (change("h", 8, Kind::Merge, "+1"), false),
            (change("h", 7, Kind::Put, "1"), true),
            (change("h", 6, Kind::Put, "0"), false),
            (change("i", 9, Kind::Merge, "+1"), false),
        ];
        for (change, counts) in &all {
            assert_eq!(newest.counts(change), *counts, "{change:?}");
        }
        assert_eq!(newest.operands, 2);
        assert!(all.is_sorted_by(|a, b| compare(&Bytewise, &a.0, &b.0).is_le()));
    }
}
