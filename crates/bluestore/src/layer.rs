//! Changes of metadata that lie over the key-value store: those of a transaction that is being prepared, and those of groups that it does not have yet.

use crate::keyvalue::{Change, Family};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Keys with their values, or without one where they are gone.
type Keys = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Layer {
    keys: [Keys; Family::ALL.len()],
    /// Ranges that were deleted before the keys above were put: where one ends, by where it begins. Those of a family are apart.
    ranges: [BTreeMap<Vec<u8>, Vec<u8>>; Family::ALL.len()],
    /// Bytes that ever came, about.
    bytes: u64,
}

/// Whether a key is in a range whose end may be open.
pub(crate) fn within(key: &[u8], from: &[u8], to: Option<&[u8]>) -> bool {
    key >= from && to.is_none_or(|to| key < to)
}

impl Layer {
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().all(BTreeMap::is_empty) && self.keys.iter().all(BTreeMap::is_empty)
    }

    /// What it says of a key: nothing, that it is gone, or its value.
    pub fn get(&self, family: Family, key: &[u8]) -> Option<Option<&Vec<u8>>> {
        if let Some(value) = self.keys[family as usize].get(key) {
            return Some(value.as_ref());
        }
        let before = self.ranges[family as usize].range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        let gone = before.last().is_some_and(|(_, to)| key < &to[..]);
        gone.then_some(None)
    }

    /// Keys that have changed, ranges that were deleted aside.
    pub fn keys(&self, family: Family) -> impl Iterator<Item = &[u8]> {
        self.keys[family as usize].keys().map(Vec::as_slice)
    }

    /// Bytes of all changes, those that others have replaced with them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn put(&mut self, family: Family, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += (key.len() + value.len()) as u64;
        self.keys[family as usize].insert(key, Some(value));
    }

    pub fn delete(&mut self, family: Family, key: Vec<u8>) {
        self.bytes += key.len() as u64;
        self.keys[family as usize].insert(key, None);
    }

    /// All keys from the first on and before the second. Ranges that overlap begin with the same key.
    pub fn delete_range(&mut self, family: Family, from: Vec<u8>, to: Vec<u8>) {
        let keys = &mut self.keys[family as usize];
        let gone: Vec<_> = keys.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| drop(keys.remove(key)));
        let end = self.ranges[family as usize].entry(from).or_default();
        *end = to.max(std::mem::take(end));
    }

    /// Lies over this one from now on: what is in both is as `above` has it.
    pub fn absorb(&mut self, above: Layer) {
        self.bytes += above.bytes;
        for (family, ranges) in Family::ALL.into_iter().zip(above.ranges) {
            ranges.into_iter().for_each(|(from, to)| self.delete_range(family, from, to));
        }
        for (mine, theirs) in self.keys.iter_mut().zip(above.keys) {
            mine.extend(theirs);
        }
    }

    /// What it says of a range, as far as its first `most` keys there go.
    pub fn overlay(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Overlay {
        let to_bound = to.map_or(Bound::Unbounded, Bound::Excluded);
        let empty = to.is_some_and(|to| to <= from);
        let mut keys = Keys::new();
        let mut end = None;
        if !empty {
            let mut range = self.keys[family as usize].range::<[u8], _>((Bound::Included(from), to_bound));
            keys.extend(range.by_ref().take(most).map(|(key, value)| (key.clone(), value.clone())));
            end = range.next().map(|(key, _)| key.clone());
        }
        let gone = self.ranges[family as usize].iter().filter(|(_, end)| from < &end[..]);
        let gone = gone.take_while(|(begin, _)| to.is_none_or(|to| &begin[..] < to));
        let ranges = gone.map(|(from, to)| (from.clone(), to.clone())).collect();
        Overlay { keys, end, ranges }
    }

    /// As a key-value store takes it.
    pub fn changes(&self) -> Vec<Change> {
        let ranges = Family::ALL.into_iter().zip(&self.ranges).flat_map(|(family, ranges)| {
            ranges.iter().map(move |(from, to)| Change::DeleteRange(family, from.clone(), to.clone()))
        });
        let keys = Family::ALL.into_iter().zip(&self.keys).flat_map(|(family, keys)| {
            keys.iter().map(move |(key, value)| match value {
                Some(value) => Change::Put(family, key.clone(), value.clone()),
                None => Change::Delete(family, key.clone()),
            })
        });
        ranges.chain(keys).collect()
    }
}

/// A part of a [`Layer`].
pub(crate) struct Overlay {
    keys: Keys,
    /// What the layer says of this key and those behind it is not here.
    pub end: Option<Vec<u8>>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Overlay {
    /// Lies over what is below.
    pub fn over(&self, below: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        below.retain(|key, _| !self.ranges.iter().any(|(from, to)| within(key, from, Some(to))));
        for (key, value) in &self.keys {
            match value {
                Some(value) => drop(below.insert(key.clone(), value.clone())),
                None => drop(below.remove(key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Family = Family::Omap;

    fn key(n: u8) -> Vec<u8> {
        vec![n]
    }

    #[test]
    fn what_was_put_behind_a_range_that_was_deleted_is_there() {
        let mut layer = Layer::default();
        layer.put(F, key(3), key(30));
        layer.put(Family::Onodes, key(3), key(31));
        layer.delete_range(F, key(2), key(5));
        layer.put(F, key(4), key(40));
        assert_eq!(layer.get(F, &key(3)), Some(None));
        assert_eq!(layer.get(F, &key(4)), Some(Some(&key(40))));
        assert_eq!(layer.get(F, &key(5)), None);
        assert_eq!(layer.get(Family::Onodes, &key(3)), Some(Some(&key(31))));
        let mut below = BTreeMap::from([1, 2, 4, 5].map(|n| (key(n), key(n))));
        layer.overlay(F, &[], None, 10).over(&mut below);
        assert_eq!(below, BTreeMap::from([(key(1), key(1)), (key(4), key(40)), (key(5), key(5))]));
    }

    #[test]
    fn one_layer_over_another_is_both() {
        let (mut below, mut above) = (Layer::default(), Layer::default());
        for n in 0..6 {
            below.put(F, key(n), key(10 + n));
        }
        above.delete(F, key(0));
        above.put(F, key(3), key(1));
        above.delete_range(F, key(1), key(3));
        above.put(F, key(2), key(2));
        below.absorb(above);
        let found: Vec<_> = (0..6).map(|n| below.get(F, &key(n)).unwrap().cloned()).collect();
        assert_eq!(found, [None, None, Some(key(2)), Some(key(1)), Some(key(14)), Some(key(15))]);
        let overlay = below.overlay(F, &key(1), Some(&key(5)), 2);
        assert_eq!(overlay.end, Some(key(4)));
    }
}
