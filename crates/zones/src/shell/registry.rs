//! Registry: one open thing for everyone in the process.
//!
//! A drive is exclusive, and two plug-ins of one process (or an engine and its RocksDB) may both want it. Whoever asks
//! first opens it; whoever asks while it is open gets the same; the last to let go closes it.
//!
//! Invariants, for each key:
//! - At most one thing is open or being opened, and the next is opened only after the drop of the one before has
//!   *finished*: an exclusive drive can be opened again only when it has been let go of.
//! - An open that fails, or panics, leaves nothing behind; those who waited for it try for themselves, one at a time.
//! - Keys do not wait for each other: opening and dropping happen outside the registry's lock.
//!
//! How: [`Shared`] counts references to a pair of the thing and a *release*. Fields are dropped in the order of their
//! declaration, so the key is released right after the thing is gone, whatever panics in between. Between the last
//! reference's end and that moment the key is still taken but cannot be upgraded; whoever asks then waits.
//!
//! Source: DESIGN §1 (the registry in `zones`).

use crate::sync::{Condvar, Mutex, lock, wait};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// Open things by key, each handed to everyone who asks for it while it is open.
///
/// Opening a key, or dropping its thing, must not ask for the same key again: it would wait for itself.
pub struct Registry<K: Ord + Clone, T> {
    table: Arc<Table<K, T>>,
}

/// A reference to a thing that a [`Registry`] opened. Cloning it is cheap; when the last one is dropped, the thing is
/// dropped on that thread, and then its key may be opened again.
///
/// That promise covers the thing itself: whatever it shares by an `Arc` of its own with something that outlives it is not
/// waited for. A volume therefore joins its threads when it is dropped.
pub struct Shared<K: Ord + Clone, T>(Arc<Opened<K, T>>);

struct Table<K: Ord + Clone, T> {
    entries: Mutex<BTreeMap<K, Entry<K, T>>>,
    changed: Condvar,
}

/// A key without an entry is free.
enum Entry<K: Ord + Clone, T> {
    Opening,
    /// Open while the reference can be upgraded; after that, being dropped.
    Open(Weak<Opened<K, T>>),
}

/// The order of the fields is what makes it right: first the thing goes, then its key is released.
struct Opened<K: Ord + Clone, T> {
    thing: T,
    _release: Release<K, T>,
}

/// Owns a key from before its thing is opened until after it is dropped.
struct Release<K: Ord + Clone, T> {
    table: Arc<Table<K, T>>,
    key: K,
}

impl<K: Ord + Clone, T> Drop for Release<K, T> {
    fn drop(&mut self) {
        lock(&self.table.entries).remove(&self.key);
        self.table.changed.notify_all();
    }
}

impl<K: Ord + Clone, T> Registry<K, T> {
    /// A registry with nothing open.
    pub fn new() -> Self {
        Registry { table: Arc::new(Table { entries: Mutex::new(BTreeMap::new()), changed: Condvar::new() }) }
    }

    /// The thing of this key: the one that is open, or else what `open` returns. Waits while another thread opens or drops
    /// the thing of the same key. Fails when `open` does.
    pub fn get_or_open<E>(&self, key: K, open: impl FnOnce() -> Result<T, E>) -> Result<Shared<K, T>, E> {
        let mut entries = lock(&self.table.entries);
        loop {
            match entries.get(&key) {
                None => break,
                Some(Entry::Open(weak)) => {
                    if let Some(held) = weak.upgrade() {
                        return Ok(Shared(held));
                    }
                }
                Some(Entry::Opening) => {}
            }
            entries = wait(&self.table.changed, entries);
        }
        entries.insert(key.clone(), Entry::Opening);
        drop(entries);

        // From here on the key is ours; it is released if `open` fails or panics, and else by the thing's end.
        let release = Release { table: self.table.clone(), key: key.clone() };
        let held = Arc::new(Opened { thing: open()?, _release: release });
        lock(&self.table.entries).insert(key, Entry::Open(Arc::downgrade(&held)));
        self.table.changed.notify_all();
        Ok(Shared(held))
    }

    /// The thing of this key if it is open now. Does not wait.
    pub fn get(&self, key: &K) -> Option<Shared<K, T>> {
        match lock(&self.table.entries).get(key)? {
            Entry::Open(weak) => weak.upgrade().map(Shared),
            Entry::Opening => None,
        }
    }
}

impl<K: Ord + Clone, T> Default for Registry<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone, T> Clone for Shared<K, T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<K: Ord + Clone, T> Deref for Shared<K, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.thing
    }
}

impl<K: Ord + Clone, T: fmt::Debug> fmt::Debug for Shared<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.thing.fmt(f)
    }
}

#[cfg(test)]
mod tests;
