//! Changes in memory: of one partition of a space, sorted by key, the newest first.

use crate::order::Order;
use crate::table::Kind;
use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering as Memory};

/// What an entry takes beside its key and its value: the node, boxes, and the order.
const NODE: usize = 112;

/// A key of so many bytes stands in its node, and most do. A search then waits for memory once a node, and not twice.
const SHORT: usize = 30;

/// A key of the map, or what looks for one.
trait Probe {
    fn parts(&self) -> (&dyn Order, &[u8], u64);
}

/// Bytes of a key.
enum KeyBytes {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl KeyBytes {
    fn new(key: &[u8]) -> KeyBytes {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..key.len()) {
            Some(front) => {
                front.copy_from_slice(key);
                KeyBytes::Short(key.len() as u8, bytes)
            }
            None => KeyBytes::Long(key.into()),
        }
    }

    fn get(&self) -> &[u8] {
        match self {
            KeyBytes::Short(len, bytes) => &bytes[..usize::from(*len)],
            KeyBytes::Long(bytes) => bytes,
        }
    }
}

/// A key with the number of its change.
struct Owned {
    order: Arc<dyn Order>,
    key: KeyBytes,
    seq: u64,
}

/// The same, borrowed.
struct Look<'a>(&'a dyn Order, &'a [u8], u64);

impl Probe for Owned {
    fn parts(&self) -> (&dyn Order, &[u8], u64) {
        (self.order.as_ref(), self.key.get(), self.seq)
    }
}

impl Probe for Look<'_> {
    fn parts(&self) -> (&dyn Order, &[u8], u64) {
        (self.0, self.1, self.2)
    }
}

impl<'a> Borrow<dyn Probe + 'a> for Owned {
    fn borrow(&self) -> &(dyn Probe + 'a) {
        self
    }
}

impl Ord for dyn Probe + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((order, key, seq), (_, other, other_seq)) = (self.parts(), other.parts());
        order.compare(key, other).then(other_seq.cmp(&seq))
    }
}

impl PartialOrd for dyn Probe + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Probe + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Probe + '_ {}

impl Ord for Owned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self as &dyn Probe).cmp(other)
    }
}

impl PartialOrd for Owned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Owned {}

type Node<'a> = Entry<'a, Owned, (Kind, Box<[u8]>)>;

/// See the module.
pub(crate) struct MemTable {
    order: Arc<dyn Order>,
    map: SkipMap<Owned, (Kind, Box<[u8]>)>,
    bytes: AtomicUsize,
    deletes: AtomicUsize,
    operands: AtomicBool,
    /// Where the log has the record of its oldest change, and the number of that record.
    oldest: (AtomicU64, AtomicU64),
}

/// A change that was found.
pub(crate) struct Version {
    pub key: Vec<u8>,
    pub seq: u64,
    pub kind: Kind,
    pub value: Vec<u8>,
}

impl MemTable {
    pub fn new(order: &Arc<dyn Order>) -> MemTable {
        let order = order.clone();
        let (bytes, deletes, operands) = Default::default();
        MemTable { order, map: SkipMap::new(), bytes, deletes, operands, oldest: (u64::MAX.into(), u64::MAX.into()) }
    }

    /// Adds a change, whose key is the tree's; `record`: where the log has its record, and the number of that.
    pub fn add(&self, seq: u64, kind: Kind, key: &[u8], value: &[u8], record: (u64, u64)) {
        self.oldest.0.fetch_min(record.0, Memory::Relaxed);
        self.oldest.1.fetch_min(record.1, Memory::Relaxed);
        self.bytes.fetch_add(NODE + key.len() + value.len(), Memory::Relaxed);
        // A key that is deleted again hides nothing more.
        if kind == Kind::Delete && self.newest(key) != Some(Kind::Delete) {
            self.deletes.fetch_add(1, Memory::Relaxed);
        }
        if kind == Kind::Merge {
            self.operands.store(true, Memory::Relaxed);
        }
        self.map.insert(Owned { order: self.order.clone(), key: KeyBytes::new(key), seq }, (kind, value.into()));
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Memory::Relaxed)
    }

    /// Where the log has the record of its oldest change, and the number of that record; `u64::MAX`: it has none.
    pub fn oldest(&self) -> (u64, u64) {
        (self.oldest.0.load(Memory::Relaxed), self.oldest.1.load(Memory::Relaxed))
    }

    /// How many of its changes delete a key that the one before did not.
    pub fn deletes(&self) -> usize {
        self.deletes.load(Memory::Relaxed)
    }

    /// Whether some of its changes are operands.
    pub fn has_operands(&self) -> bool {
        self.operands.load(Memory::Relaxed)
    }

    /// How many changes it has.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// What the newest change of a key does.
    fn newest(&self, key: &[u8]) -> Option<Kind> {
        let entry = self.first(Bound::Included(&Look(self.order.as_ref(), key, u64::MAX)))?;
        self.order.compare(entry.key().key.get(), key).is_eq().then(|| entry.value().0)
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Adds what another one has of the keys from `from` on and before `until`.
    pub fn add_all(&self, other: &MemTable, from: Option<&[u8]>, until: Option<&[u8]>) {
        let mut entry = match from {
            Some(from) => other.first(Bound::Included(&Look(self.order.as_ref(), from, u64::MAX))),
            None => other.map.front(),
        };
        while let Some(e) =
            entry.filter(|e| until.is_none_or(|until| self.order.compare(e.key().key.get(), until).is_lt()))
        {
            self.add(e.key().seq, e.value().0, e.key().key.get(), &e.value().1, other.oldest());
            entry = e.next();
        }
    }

    fn at(&self, entry: Option<Node<'_>>) -> Option<Version> {
        entry.map(|e| Version {
            key: e.key().key.get().to_vec(),
            seq: e.key().seq,
            kind: e.value().0,
            value: e.value().1.to_vec(),
        })
    }

    /// The newest change of the key that is not newer than `seq`.
    pub fn get(&self, key: &[u8], seq: u64) -> Option<Version> {
        let entry = self.first(Bound::Included(&Look(self.order.as_ref(), key, seq)));
        self.at(entry.filter(|entry| self.order.compare(entry.key().key.get(), key).is_eq()))
    }

    fn first(&self, from: Bound<&Look<'_>>) -> Option<Node<'_>> {
        let from: Bound<&dyn Probe> = match from {
            Bound::Included(look) => Bound::Included(look),
            Bound::Excluded(look) => Bound::Excluded(look),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.map.lower_bound(from)
    }

    fn last(&self, to: Bound<&Look<'_>>) -> Option<Node<'_>> {
        let to: Bound<&dyn Probe> = match to {
            Bound::Included(look) => Bound::Included(look),
            Bound::Excluded(look) => Bound::Excluded(look),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.map.upper_bound(to)
    }

    /// The first change at or behind (key, seq) in the order of the table; `None` as key: the first of all.
    pub fn at_or_after(&self, from: Option<(&[u8], u64)>) -> Option<Version> {
        self.at(self.stand(from).map(|stand| stand.0))
    }

    /// The first change behind (key, seq).
    pub fn after(&self, key: &[u8], seq: u64) -> Option<Version> {
        self.at(self.first(Bound::Excluded(&Look(self.order.as_ref(), key, seq))))
    }

    /// Where the first change at or behind (key, seq) stands; `None` as key: the first of all.
    pub fn stand(&self, from: Option<(&[u8], u64)>) -> Option<Stand<'_>> {
        let entry = match from {
            Some((key, seq)) => self.first(Bound::Included(&Look(self.order.as_ref(), key, seq))),
            None => self.map.front(),
        };
        entry.map(Stand)
    }

    /// Where the last change before (key, seq) stands; `None`: the last of all.
    pub fn stand_before(&self, to: Option<(&[u8], u64)>) -> Option<Stand<'_>> {
        let entry = match to {
            Some((key, seq)) => self.last(Bound::Excluded(&Look(self.order.as_ref(), key, seq))),
            None => self.map.back(),
        };
        entry.map(Stand)
    }

    /// The last change before (key, seq); `None`: the last of all.
    pub fn before(&self, to: Option<(&[u8], u64)>) -> Option<Version> {
        self.at(self.stand_before(to).map(|stand| stand.0))
    }
}

/// A change of the table, and its neighbours without a search.
pub(crate) struct Stand<'a>(Node<'a>);

impl<'a> Stand<'a> {
    /// Its key, number, kind and value.
    pub fn change(&self) -> (&[u8], u64, Kind, &[u8]) {
        (self.0.key().key.get(), self.0.key().seq, self.0.value().0, &self.0.value().1)
    }

    pub fn next(&self) -> Option<Stand<'a>> {
        self.0.next().map(Stand)
    }

    pub fn prev(&self) -> Option<Stand<'a>> {
        self.0.prev().map(Stand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Bytewise;

    #[test]
    fn the_newest_change_that_is_not_too_new_is_found() {
        let order: Arc<dyn Order> = Arc::new(Bytewise);
        let table = MemTable::new(&order);
        table.add(3, Kind::Put, b"b", b"3", (30, 3));
        table.add(5, Kind::Delete, b"b", b"", (50, 5));
        table.add(4, Kind::Put, b"a", b"4", (40, 4));
        let get = |key: &[u8], seq| table.get(key, seq).map(|v| (v.seq, v.kind));
        assert_eq!(get(b"b", 2), None);
        assert_eq!(get(b"b", 4), Some((3, Kind::Put)));
        assert_eq!(get(b"b", u64::MAX), Some((5, Kind::Delete)));
        assert_eq!(get(b"aa", u64::MAX), None);
        assert_eq!(table.oldest(), (30, 3));
        // In order: a4, b5, b3.
        let mut all = vec![];
        let mut next = table.at_or_after(None);
        while let Some(v) = next {
            all.push((v.key[0], v.seq));
            next = table.after(&v.key, v.seq);
        }
        assert_eq!(all, [(b'a', 4), (b'b', 5), (b'b', 3)]);
        let mut back = vec![];
        let mut next = table.before(None);
        while let Some(v) = next {
            back.push((v.key[0], v.seq));
            next = table.before(Some((&v.key, v.seq)));
        }
        all.reverse();
        assert_eq!(back, all);
        all.reverse();
        let mut through = vec![];
        let mut stand = table.stand(None);
        while let Some(at) = stand {
            through.push((at.change().0[0], at.change().1));
            stand = at.next();
        }
        assert_eq!(through, all);
        let seq = |stand: Option<Stand<'_>>| stand.map(|stand| stand.change().1);
        assert_eq!(seq(table.stand(Some((b"b", 4)))), Some(3));
        assert_eq!(seq(table.stand(Some((b"b", 4))).and_then(|stand| stand.prev())), Some(5));
        assert_eq!(seq(table.stand_before(Some((b"b", 5)))), Some(4));
    }

    #[test]
    fn keys_of_any_length_come_back_as_they_were() {
        let order: Arc<dyn Order> = Arc::new(Bytewise);
        let table = MemTable::new(&order);
        let key = |len: usize| vec![7; len];
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 300] {
            table.add(len as u64 + 1, Kind::Put, &key(len), &[len as u8], (1, 1));
        }
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 300] {
            let found = table.get(&key(len), u64::MAX).unwrap();
            assert_eq!((found.key, found.seq, found.value), (key(len), len as u64 + 1, vec![len as u8]));
        }
        // The shorter one is first, as bytes are ordered.
        assert_eq!(table.after(&key(SHORT), 0).map(|version| version.key.len()), Some(SHORT + 1));
    }
}
