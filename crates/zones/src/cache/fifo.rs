//! The policy of the paper's first cache: whole files leave, the one that came first at first.
//!
//! A file comes with its first page and leaves as a whole when another page needs room; if it is inserted into after that,
//! it comes anew. A file that fills the whole cache alone keeps the pages that it has, and more are not taken. There is one
//! lock, which hits share: this policy is here to be compared with, not to be fast.
//!
//! Source: BlueFS §4 (Caching) and §5.5.

use super::PageHash;
use super::pages::Page;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) struct Fifo {
    capacity: u64,
    /// Bytes that a page costs.
    weight: u64,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, File, PageHash>,
    /// File numbers by arrival.
    order: BTreeMap<u64, u64>,
    arrivals: u64,
    used: u64,
}

#[derive(Default)]
struct File {
    arrival: u64,
    used: u64,
    pages: HashMap<u64, Arc<Page>, PageHash>,
}

impl Fifo {
    pub(super) fn new(capacity: u64, weight: u64) -> Self {
        Fifo { capacity, weight, state: RwLock::default() }
    }

    pub(super) fn get(&self, file: u64, page: u64) -> Option<Arc<Page>> {
        self.shared().files.get(&file)?.pages.get(&page).cloned()
    }

    pub(super) fn insert(&self, file: u64, page: u64, data: Arc<Page>) {
        // Dropped after the lock is released: freeing a file's pages takes long.
        let mut evicted = Vec::new();
        let mut state = self.exclusive();
        state.remove(file, page, self.weight);
        while state.used + self.weight > self.capacity {
            match state.order.first_key_value() {
                Some((_, &first)) if first != file || state.order.len() > 1 => evicted.extend(state.evict(first)),
                _ => return,
            }
        }
        state.insert(file, page, data, self.weight);
    }

    pub(super) fn remove(&self, file: u64, page: u64) {
        self.exclusive().remove(file, page, self.weight);
    }

    pub(super) fn forget(&self, file: u64, pages: u64) {
        let mut state = self.exclusive();
        let Some(held) = state.files.get(&file) else { return };
        if held.pages.keys().all(|page| *page < pages) {
            let gone = state.evict(file);
            drop(state);
            drop(gone);
        } else {
            for page in 0..pages {
                state.remove(file, page, self.weight);
            }
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.shared().used
    }

    fn shared(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, file: u64, page: u64, data: Arc<Page>, more: u64) {
        let held = self.files.entry(file).or_insert_with(|| {
            self.arrivals += 1;
            self.order.insert(self.arrivals, file);
            File { arrival: self.arrivals, ..File::default() }
        });
        held.used += more;
        self.used += more;
        held.pages.insert(page, data);
    }

    /// Removes a page; a file without pages stays in its place until it is evicted or forgotten.
    fn remove(&mut self, file: u64, page: u64, weight: u64) {
        let Some(held) = self.files.get_mut(&file) else { return };
        if held.pages.remove(&page).is_some() {
            held.used -= weight;
            self.used -= weight;
        }
    }

    fn evict(&mut self, file: u64) -> Option<File> {
        let gone = self.files.remove(&file)?;
        self.order.remove(&gone.arrival);
        self.used -= gone.used;
        Some(gone)
    }
}
