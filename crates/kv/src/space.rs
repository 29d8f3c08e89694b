//! Spaces: trees of keys with names and orders of their own, in one store.
//!
//! All of them are one tree: a key of the tree is the space's mark and the user's key. So one write-ahead log, one policy and one batch serve all spaces. The marks
//! of spaces are odd numbers of two bytes. An even one, alone, stands between two spaces, and no order of a user is ever asked about it.

use crate::operator::MergeOperator;
use crate::order::{Bytewise, Order};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Bytes before a user's key.
pub(crate) const MARK: usize = 2;
/// The space without a name.
pub(crate) const UNNAMED: u16 = 0;
/// Spaces have numbers below this one.
pub(crate) const MOST_SPACES: u16 = (1 << 15) - 1;
/// Longest name of a space, in bytes.
pub(crate) const LONGEST_NAME: usize = 1024;

/// What stands before the keys of a space, and behind those of the one before.
pub(crate) fn begin(space: u16) -> [u8; MARK] {
    (2 * space).to_be_bytes()
}

/// The same, where the space was dropped: so the metadata tells that from a deletion of all its keys.
pub(crate) fn dropped(space: u16) -> [u8; MARK + 1] {
    let [high, low] = begin(space);
    [high, low, 1]
}

/// What stands behind the keys of a space.
pub(crate) fn end(space: u16) -> [u8; MARK] {
    (2 * space + 2).to_be_bytes()
}

/// The tree's key of a user's key.
pub(crate) fn full(space: u16, key: &[u8]) -> Vec<u8> {
    [&(2 * space + 1).to_be_bytes()[..], key].concat()
}

/// The tree's keys between which the keys of a space from `from` on and before `to` are; `None`: from the first, or to the last.
pub(crate) fn ends(space: u16, from: Option<&[u8]>, to: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    let from = from.map_or_else(|| begin(space).to_vec(), |from| full(space, from));
    (from, to.map_or_else(|| end(space).to_vec(), |to| full(space, to)))
}

/// The user's key, where the tree's key is of this space.
pub(crate) fn user(space: u16, full: &[u8]) -> Option<&[u8]> {
    full.strip_prefix(&(2 * space + 1).to_be_bytes())
}

/// The space of a key of the tree, and the user's key.
pub(crate) fn split(full: &[u8]) -> Option<(u16, &[u8])> {
    let (mark, user) = full.split_first_chunk::<MARK>()?;
    Some((u16::from_be_bytes(*mark) / 2, user))
}

/// Orders that this process knows, by their names.
static KNOWN: Mutex<BTreeMap<String, Arc<dyn Order>>> = Mutex::new(BTreeMap::new());

/// Makes an order known to stores that this process opens from now on, and to spaces that it makes. Of two with one name the later one counts. [`Bytewise`] is
/// always known.
pub fn register_order(order: Arc<dyn Order>) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(order.name().to_owned(), order);
}

/// Stores that are opened from now on do not find the order of this name. Those that are open keep it.
pub fn forget_order(name: &str) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
}

/// The order of this name, if this process knows it.
pub(crate) fn known(name: &str) -> Option<Arc<dyn Order>> {
    if name == Bytewise.name() {
        return Some(Arc::new(Bytewise));
    }
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// When pairs of a space are over: their time to live, or any other reason. Values say it themselves, as by a time that their first bytes have.
pub trait Expiry: Send + Sync {
    /// Whether the pair is over. Once it is, it must stay so. Any thread may call it, also in the background, and with locks of the store: it must not use the store, nor
    /// panic.
    fn is_over(&self, key: &[u8], value: &[u8]) -> bool;
}

/// The spaces of an open store, and the order of the tree's keys: by spaces, and each in its own.
#[derive(Default)]
pub(crate) struct Spaces {
    /// Those that may be written to.
    there: RwLock<BTreeSet<u16>>,
    /// Those that were there since the store was opened.
    had: Mutex<BTreeSet<u16>>,
    /// Orders that are not bytewise; without one the tree's keys are in the order of their bytes.
    orders: RwLock<BTreeMap<u16, Arc<dyn Order>>>,
    any: AtomicBool,
    /// Of spaces whose pairs are over one day.
    expiries: RwLock<BTreeMap<u16, Arc<dyn Expiry>>>,
    expire: AtomicBool,
    /// Of spaces whose values come of operands.
    operators: RwLock<BTreeMap<u16, Arc<dyn MergeOperator>>>,
}

impl Spaces {
    /// A number that no space has had since the store was opened: whoever still has a handle of a dropped one must not write to another.
    pub fn unused(&self) -> Option<u16> {
        let had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
        (0..MOST_SPACES).find(|number| !had.contains(number))
    }

    /// Whether all of these may be written to.
    pub fn are_there(&self, mut spaces: impl Iterator<Item = u16>) -> bool {
        let there = self.there.read().unwrap_or_else(PoisonError::into_inner);
        spaces.all(|space| there.contains(&space))
    }

    /// From now on the space may be written to.
    pub fn add(&self, space: u16) {
        self.there.write().unwrap_or_else(PoisonError::into_inner).insert(space);
    }

    /// From now on the space must not be written to.
    pub fn remove(&self, space: u16) {
        self.there.write().unwrap_or_else(PoisonError::into_inner).remove(&space);
    }

    /// The space's keys are in this order from now on; it has none yet.
    pub fn set(&self, space: u16, order: &Arc<dyn Order>) {
        self.had.lock().unwrap_or_else(PoisonError::into_inner).insert(space);
        let mut orders = self.orders.write().unwrap_or_else(PoisonError::into_inner);
        match order.name() == Bytewise.name() {
            true => drop(orders.remove(&space)),
            false => drop(orders.insert(space, order.clone())),
        }
        self.any.store(!orders.is_empty(), Memory::Release);
    }

    /// From now on pairs of the space are over when this says so.
    pub fn set_expiry(&self, space: u16, expiry: Arc<dyn Expiry>) {
        self.expiries.write().unwrap_or_else(PoisonError::into_inner).insert(space, expiry);
        self.expire.store(true, Memory::Release);
    }

    /// Whether this pair of the tree is over.
    pub fn is_over(&self, key: &[u8], value: &[u8]) -> bool {
        let Some((space, user)) = split(key).filter(|_| self.expire.load(Memory::Acquire)) else { return false };
        let expiry = self.expiries.read().unwrap_or_else(PoisonError::into_inner).get(&space).cloned();
        expiry.is_some_and(|expiry| expiry.is_over(user, value))
    }

    /// From now on values of the space come of operands in this way.
    pub fn set_operator(&self, space: u16, operator: Arc<dyn MergeOperator>) {
        self.operators.write().unwrap_or_else(PoisonError::into_inner).insert(space, operator);
    }

    /// How values of the space come of operands.
    pub fn operator(&self, space: u16) -> Option<Arc<dyn MergeOperator>> {
        self.operators.read().unwrap_or_else(PoisonError::into_inner).get(&space).cloned()
    }

    /// Asks the order of the keys' space, if both are of one that has its own.
    fn within<T>(&self, a: &[u8], b: &[u8], ask: impl FnOnce(&dyn Order, &[u8], &[u8]) -> T) -> Option<T> {
        if !self.any.load(Memory::Acquire) {
            return None;
        }
        let (Some((mark, a)), Some((other, b))) = (a.split_first_chunk::<MARK>(), b.split_first_chunk::<MARK>()) else {
            return None;
        };
        let mark = (mark == other).then(|| u16::from_be_bytes(*mark)).filter(|mark| mark % 2 == 1)?;
        let orders = self.orders.read().unwrap_or_else(PoisonError::into_inner);
        orders.get(&(mark / 2)).map(|order| ask(order.as_ref(), a, b))
    }
}

impl Order for Spaces {
    fn name(&self) -> &str {
        "imbrex.spaces"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.within(a, b, |order, a, b| order.compare(a, b)).unwrap_or_else(|| a.cmp(b))
    }

    fn is_exact(&self, key: &[u8]) -> bool {
        self.within(key, key, |order, key, _| order.is_exact(key)).unwrap_or(true)
    }

    fn separator(&self, from: &[u8], limit: &[u8]) -> Vec<u8> {
        let own = self.within(from, limit, |order, a, b| [&from[..MARK], &order.separator(a, b)].concat());
        // Two spaces may have the first byte of their marks in common: nothing shorter than a mark is a key.
        own.unwrap_or_else(|| match from.get(..MARK) == limit.get(..MARK) {
            true => Bytewise.separator(from, limit),
            false => from.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers;

    impl Order for Numbers {
        fn name(&self) -> &str {
            "numbers"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            let number = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<u64>().unwrap();
            number(a).cmp(&number(b))
        }
    }

    #[test]
    fn each_space_is_in_its_own_order_between_its_ends() {
        let spaces = Spaces::default();
        spaces.set(1, &(Arc::new(Numbers) as Arc<dyn Order>));
        let sorted: Vec<Vec<u8>> = vec![
            begin(0).into(),
            dropped(0).into(),
            full(0, b""),
            full(0, b"10"),
            full(0, b"9"),
            end(0).into(),
            dropped(1).into(),
            full(1, b"9"),
            full(1, b"10"),
            end(1).into(),
            full(127, b"x"),
            full(128, b""),
            full(MOST_SPACES - 1, b"\xff"),
            end(MOST_SPACES - 1).into(),
        ];
        for (at, key) in sorted.iter().enumerate() {
            for (other, limit) in sorted.iter().enumerate() {
                assert_eq!(spaces.compare(key, limit), at.cmp(&other), "{key:?} {limit:?}");
                if at < other {
                    let short = spaces.separator(key, limit);
                    assert!(spaces.compare(&short, key).is_ge() && spaces.compare(&short, limit).is_lt());
                }
            }
        }
        assert_eq!(begin(1), end(0));
        assert_eq!((user(1, &full(1, b"k")), user(2, &full(1, b"k"))), (Some(&b"k"[..]), None));
    }
}
