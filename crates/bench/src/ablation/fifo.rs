//! The policy of the paper's first cache: whole files leave, the one that came first at first.
//!
//! A file comes with its first page and leaves as a whole when another page needs room; if it is inserted into after that,
//! it comes anew. A file that fills the whole cache alone keeps the pages that it has, and more are not taken. There is one
//! lock, which hits share: this policy is here to be compared with, not to be fast.
//!
//! Source: BlueFS §4 (Caching) and §5.5.

use imbrex_zones::cache::{Page, Pages};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) struct Fifo {
    capacity: u64,
    /// Bytes that a page costs.
    weight: u64,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, File>,
    /// File numbers by arrival.
    order: BTreeMap<u64, u64>,
    arrivals: u64,
    used: u64,
}

#[derive(Default)]
struct File {
    arrival: u64,
    used: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Fifo {
    pub(super) fn new(capacity: u64, weight: u64) -> Self {
        Fifo { capacity, weight, state: RwLock::default() }
    }

    fn shared(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages for Fifo {
    fn get(&self, file: u64, page: u64) -> Option<Arc<Page>> {
        self.shared().files.get(&file)?.pages.get(&page).cloned()
    }

    fn insert(&self, file: u64, page: u64, data: Arc<Page>) {
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

    fn remove(&self, file: u64, page: u64) {
        self.exclusive().remove(file, page, self.weight);
    }

    fn forget(&self, file: u64, pages: u64) {
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

    fn used_bytes(&self) -> u64 {
        self.shared().used
    }

    /// Only what was written.
    fn keep_reads(&self) -> bool {
        false
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

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_zones::cache::BlockCache;
    use std::collections::HashMap;

    const PAGE: usize = 4096;

    fn cache(pages: u64) -> BlockCache {
        // What a page costs.
        let mut cost = 0;
        BlockCache::by(1, PAGE as u32, |weight| {
            cost = weight;
            Box::new(Fifo::new(0, weight))
        });
        BlockCache::by(pages * cost, PAGE as u32, |weight| Box::new(Fifo::new(pages * weight, weight)))
    }

    #[test]
    fn whole_files_leave_in_the_order_of_their_first_pages() {
        let cache = cache(10);
        let fill = |file, pages: std::ops::Range<u64>| {
            pages.for_each(|page| cache.insert(file, page, &[page as u8; PAGE]));
        };
        let held = |file| (0..20).filter(|page| cache.contains(file, *page)).count();
        fill(1, 0..2);
        fill(2, 0..4);
        fill(1, 2..4);
        // Reading does not make it younger.
        assert!(cache.read(1, 0, 0, &mut [0; 8]));
        fill(3, 0..3);
        assert_eq!((held(1), held(2), held(3)), (0, 4, 3));
        fill(3, 3..6);
        assert_eq!((held(2), held(3), cache.used_bytes()), (4, 6, cache.capacity()));
        // One byte too many, and into the oldest file itself: it goes and begins anew with this page.
        fill(2, 9..10);
        assert_eq!((held(2), held(3)), (1, 6));
        fill(2, 0..3);
        assert_eq!((held(2), held(3)), (4, 6));
        fill(2, 3..4);
        assert_eq!((held(2), held(3)), (5, 0));
    }

    #[test]
    fn of_a_file_larger_than_the_cache_it_keeps_what_fits() {
        let cache = cache(10);
        for page in 0..50 {
            cache.insert(1, page, &[page as u8; PAGE]);
        }
        assert!((0..10).all(|page| cache.contains(1, page)) && !cache.contains(1, 10));
        assert_eq!(cache.used_bytes(), cache.capacity());
    }

    /// Every byte that is read is the last that was inserted there, and nothing that was removed comes back. With room for all
    /// (100 pages) every read that the model answers is answered.
    #[test]
    fn it_answers_as_a_map_does() {
        for (seed, pages) in (1..40u64).zip([6, 100].into_iter().cycle()) {
            let cache = cache(pages);
            let mut model: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
            let mut random = seed;
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below
            };
            for step in 0..500u64 {
                let (file, page) = (next(4), next(20));
                match next(11) {
                    0..4 => {
                        let (from, len) = (next(PAGE as u64) as usize, next(PAGE as u64) as usize);
                        let mut out = vec![0; len];
                        let expected = model.get(&(file, page)).and_then(|data| data.get(from..from + len));
                        match cache.read(file, page, from, &mut out) {
                            true => assert_eq!(Some(&out[..]), expected),
                            false => assert!(pages < 100 || expected.is_none()),
                        }
                    }
                    4..9 => {
                        let data = vec![step as u8; next(PAGE as u64) as usize + 1];
                        // A small cache may have lost the longer version that would make it drop this one.
                        let dropped = model.get(&(file, page)).is_some_and(|held| held.len() > data.len());
                        if !(dropped && cache.contains(file, page)) {
                            model.insert((file, page), data.clone());
                        }
                        cache.insert(file, page, &data);
                    }
                    9 => {
                        model.remove(&(file, page));
                        cache.remove(file, page);
                    }
                    _ => {
                        model.retain(|key, _| key.0 != file || key.1 >= page);
                        cache.forget_file(file, page);
                    }
                }
                assert!(cache.used_bytes() <= cache.capacity());
            }
            let all = cache.capacity() / pages * model.len() as u64;
            assert!(pages < 100 || cache.used_bytes() == all);
        }
    }
}
