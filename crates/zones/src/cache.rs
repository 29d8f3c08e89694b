//! Block cache: pages of files in memory, shared by threads.
//!
//! Keys are numbers that the caller gives files, and page numbers within them. A page is whole, or shorter at the end of a
//! file that was shorter when it was cached; it answers a read only when it holds all of the range. A hit copies out of the
//! page and allocates nothing.
//!
//! Pages leave by how recently and how often they were read: the crate `quick_cache`, sharded, each shard behind a lock that hits
//! share, so that a hit writes nothing but its page's small counters. New pages go through a first-in-first-out half and stay
//! on when they are read again: pages that were just written are what compaction reads next, which its default (3 % for
//! the new) would give away. Whoever wants another rule brings [`Pages`] that follow it.
//!
//! Invariants:
//! - [`BlockCache::used_bytes`] counts pages, short ones as whole, *and* what it costs to keep them, and never exceeds the capacity by more than
//!   rounding. What readers [pin](BlockCache::view) is a part of it.
//! - Which pages stay depends on the order of the calls alone, not on the machine or the process: crash exploration depends
//!   on it.
//!
//! The cache knows nothing of staleness. Whoever changes the bytes of a page [removes](BlockCache::remove) it, and lets no
//! reader that still has the old bytes insert them afterwards; appending to a file needs neither, since a longer page
//! replaces a shorter one.

mod filling;
mod pages;
mod views;

pub use filling::Filling;
pub use pages::Page;
use pages::{Buffers, RUN};
use quick_cache::{OptionsBuilder, Weighter, sync::Cache};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
pub use views::Views;
use views::{Keep, Pool, RESERVED};

/// The usual page, in bytes.
pub const DEFAULT_PAGE: u32 = 16 << 10;
/// Locks and eviction queues of a large cache. A constant, so that eviction does not depend on the number of processors.
const SHARDS: usize = 32;
/// Part of the capacity for pages that were read again; the rest is for the new.
const HOT: f64 = 0.5;
/// Bytes that an entry costs beside its page: its slot in the slab and the table, half a slot for the memory of an evicted
/// one, what growing by doubling leaves unused, the counted handle of its buffer, and the place that the buffer goes back to. A test
/// weighs it.
const ENTRY_COST: u64 = 196;
/// The counters are spread over this many cache lines.
const COUNTERS: usize = 16;

/// Pages that leave the cache by a rule of their own. Which stay depends on the order of the calls alone.
pub trait Pages: Send + Sync {
    /// A page of a file, if it is here.
    fn get(&self, file: u64, page: u64) -> Option<Arc<Page>>;
    /// Takes a page, in the place of an older version of it, or leaves it.
    fn insert(&self, file: u64, page: u64, data: Arc<Page>);
    /// Forgets a page.
    fn remove(&self, file: u64, page: u64);
    /// Forgets a file's pages 0 to `pages` (exclusive).
    fn forget(&self, file: u64, pages: u64);
    /// Bytes that all of them cost.
    fn used_bytes(&self) -> u64;
    /// Whether they are for what was read, too, or only for what was written.
    fn keep_reads(&self) -> bool;
}

type Key = (u64, u64);

enum Store {
    Off,
    ByBlock(Arc<Pool>),
    Given(Box<dyn Pages>),
}

/// A cache of file pages. All methods may be called by many threads at once.
pub struct BlockCache {
    page: usize,
    capacity: u64,
    store: Store,
    buffers: Arc<Buffers>,
    counters: [Counters; COUNTERS],
}

/// Hits and misses of some of the keys; alone on its cache lines, so that threads do not slow each other down.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache that takes up to `capacity` bytes of memory (0: it keeps nothing) in pages of `page` bytes.
    ///
    /// # Panics
    /// When `page` is 0.
    pub fn new(capacity: u64, page: u32) -> Self {
        Self::with(capacity, page, |weight, buffers| {
            let pages = capacity / weight + 1;
            let options = OptionsBuilder::new()
                .estimated_items_capacity(usize::try_from(pages).unwrap_or(usize::MAX))
                .weight_capacity(capacity)
                .hot_allocation(HOT)
                .shards(SHARDS)
                .build()
                .expect("both sizes are given");
            let weigh = PageWeight { page: weight, reserved: Pool::step(capacity, weight) };
            let cache = Cache::with_options(options, weigh, PageHash, Keep);
            Store::ByBlock(Pool::new(cache, capacity, (page as usize, weight), buffers))
        })
    }

    /// The same with a rule of its own: `make` makes the pages, each of which costs so many bytes. Nothing of it can be
    /// [viewed](BlockCache::view).
    ///
    /// # Panics
    /// When `page` is 0.
    pub fn by(capacity: u64, page: u32, make: impl FnOnce(u64) -> Box<dyn Pages>) -> Self {
        Self::with(capacity, page, |weight, _| Store::Given(make(weight)))
    }

    fn with(capacity: u64, page: u32, make: impl FnOnce(u64, &Arc<Buffers>) -> Store) -> Self {
        assert!(page > 0, "a page has bytes");
        let buffers = Buffers::new(page as usize, capacity);
        let store = if capacity == 0 { Store::Off } else { make(u64::from(page) + ENTRY_COST, &buffers) };
        BlockCache { page: page as usize, capacity, store, buffers, counters: Default::default() }
    }

    /// Whether what is read is to be inserted.
    pub fn keeps_reads(&self) -> bool {
        match &self.store {
            Store::Off => false,
            Store::ByBlock(_) => true,
            Store::Given(pages) => pages.keep_reads(),
        }
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u32 {
        self.page as u32
    }

    /// Bytes that the cache may take; 0 when it is off.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Copies the bytes of `page` from `offset` (in bytes, within the page) on to `out`. Returns false, leaving `out` as it
    /// was, unless the cached page holds the whole range.
    pub fn read(&self, file: u64, page: u64, offset: usize, out: &mut [u8]) -> bool {
        let held = match &self.store {
            Store::Off => return false,
            Store::ByBlock(pool) => pool.pages.get(&(file, page)),
            Store::Given(pages) => pages.get(file, page),
        };
        let counters = self.counters_of(file, page);
        let range = offset..offset.saturating_add(out.len());
        match held.as_ref().and_then(|bytes| bytes.get(range)) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                counters.hits.fetch_add(1, Ordering::Relaxed);
                true
            }
            None => {
                counters.misses.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// What readers will hold of a file of `size` bytes, see [`BlockCache::view`].
    pub fn views(&self, size: u64) -> Views {
        let pool = match &self.store {
            Store::ByBlock(pool) => Some(pool),
            _ => None,
        };
        Views::new(pool, self.page as u64, size)
    }

    /// Bytes of a file where they stand in memory, without a copy, for as long as `views` lives; they stay as they are
    /// even when the page is removed. `None` where they are not in the cache, or as much is pinned as may be:
    /// then they have to be read. `at` and `len` are in bytes; `views` is this cache's and this file's.
    pub fn view<'a>(&self, views: &'a Views, file: u64, at: u64, len: usize) -> Option<&'a [u8]> {
        let bytes = views.get(at, len).or_else(|| views.take(file, at, len))?;
        self.counters_of(file, at / self.page as u64).hits.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }

    /// Bytes of a *span*, of [`BlockCache::span_size`], for as long as `views` lives and as they were when they were first asked for: all of
    /// it, or up to the file's end. `None` where they do not stand together in the cache, or it is nearly full: what nobody read may not push out
    /// others. Counts as one hit when it is first given.
    pub fn span<'a>(&self, views: &'a Views, file: u64, span: u64) -> Option<&'a [u8]> {
        if let Some(bytes) = views.run(span) {
            return Some(bytes);
        }
        let bytes = views.take_run(file, span)?;
        self.counters_of(file, span).hits.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }

    /// Bytes of a span: the first begins where the file does.
    pub fn span_size(&self) -> u64 {
        u64::from(RUN) * self.page as u64
    }

    /// Whether readers hold a page.
    pub fn is_pinned(&self, views: &Views, page: u64) -> bool {
        views.page(page).is_some()
    }

    /// As [`BlockCache::read`], of a page that readers hold.
    pub fn read_pinned(&self, views: &Views, file: u64, page: u64, offset: usize, out: &mut [u8]) -> bool {
        let range = offset..offset.saturating_add(out.len());
        let Some(bytes) = views.page(page).and_then(|held| held.get(range)) else { return false };
        out.copy_from_slice(bytes);
        self.counters_of(file, page).hits.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn counters_of(&self, file: u64, page: u64) -> &Counters {
        &self.counters[(file ^ page) as usize % COUNTERS]
    }

    /// Bytes of memory that readers hold, of those that the cache takes.
    pub fn pinned_bytes(&self) -> u64 {
        match &self.store {
            Store::ByBlock(pool) => pool.pinned(),
            _ => 0,
        }
    }

    /// Whether any part of a page is cached. Counts as neither hit nor miss.
    pub fn contains(&self, file: u64, page: u64) -> bool {
        self.held_len(file, page).is_some()
    }

    /// Keeps a copy of `data` as a page, from its beginning. A shorter version than the one held is dropped; one as long or longer
    /// replaces it.
    ///
    /// # Panics
    /// When `data` is longer than a page.
    pub fn insert(&self, file: u64, page: u64, data: &[u8]) {
        let len = data.len();
        assert!(len <= self.page, "{len} bytes are more than a page of {}", self.page);
        // Between this look and the insertion another thread may insert a longer version, which is then lost: a miss later,
        // never a wrong byte.
        if len == 0 || matches!(self.store, Store::Off) || self.held_len(file, page).is_some_and(|held| held > len) {
            return;
        }
        let data = self.buffers.page(&[data]);
        self.put(file, page, data);
    }

    /// As [`BlockCache::insert`], of a page that is filled already.
    fn keep(&self, file: u64, page: u64, data: Arc<Page>) {
        if self.held_len(file, page).is_none_or(|held| held <= data.len()) {
            self.put(file, page, data);
        }
    }

    fn put(&self, file: u64, page: u64, data: Arc<Page>) {
        match &self.store {
            Store::Off => {}
            Store::ByBlock(pool) => pool.pages.insert((file, page), data),
            Store::Given(pages) => pages.insert(file, page, data),
        }
    }

    /// Forgets one page.
    pub fn remove(&self, file: u64, page: u64) {
        match &self.store {
            Store::Off => {}
            Store::ByBlock(pool) => drop(pool.pages.remove(&(file, page))),
            Store::Given(pages) => pages.remove(file, page),
        }
    }

    /// Forgets a file's pages 0 to `pages` (exclusive), all that it can have.
    pub fn forget_file(&self, file: u64, pages: u64) {
        match &self.store {
            Store::Off => {}
            Store::ByBlock(pool) => {
                for page in 0..pages {
                    drop(pool.pages.remove(&(file, page)));
                }
            }
            Store::Given(given) => given.forget(file, pages),
        }
    }

    /// Bytes of memory that the cached pages take, everything included.
    pub fn used_bytes(&self) -> u64 {
        match &self.store {
            Store::Off => 0,
            Store::ByBlock(pool) => pool.pages.weight(),
            Store::Given(pages) => pages.used_bytes(),
        }
    }

    /// Whether less than a sixteenth of it is free: then whatever comes costs something else its place.
    pub fn is_nearly_full(&self) -> bool {
        self.used_bytes() > self.capacity / 16 * 15
    }

    /// Bytes of memory that the cache takes: those of cached pages, and of buffers that wait for their next page.
    pub fn held_bytes(&self) -> u64 {
        self.used_bytes() + (self.buffers.free() * self.page) as u64
    }

    /// Reads that the cache answered.
    pub fn hits(&self) -> u64 {
        self.counters.iter().map(|c| c.hits.load(Ordering::Relaxed)).sum()
    }

    /// Reads that it did not answer; none are counted while it is off.
    pub fn misses(&self) -> u64 {
        self.counters.iter().map(|c| c.misses.load(Ordering::Relaxed)).sum()
    }

    fn held_len(&self, file: u64, page: u64) -> Option<usize> {
        match &self.store {
            Store::Off => None,
            Store::ByBlock(pool) => pool.pages.peek(&(file, page)).map(|bytes| bytes.len()),
            Store::Given(pages) => pages.get(file, page).map(|bytes| bytes.len()),
        }
    }
}

/// What a page costs, in bytes, and an entry in place of pinned memory.
#[derive(Clone)]
struct PageWeight {
    page: u64,
    reserved: u64,
}

impl Weighter<Key, Arc<Page>> for PageWeight {
    fn weight(&self, key: &Key, _: &Arc<Page>) -> u64 {
        if key.0 == RESERVED { self.reserved } else { self.page }
    }
}

/// A fixed hash: the default one differs between processes, and with it what is evicted.
///
/// `quick_cache` takes the shard from the bits from 32 on. There, successive pages of a file get successive numbers, so that
/// all shards fill evenly; by chance alone some of them would overflow while a tenth of the cache is still empty. (Should a
/// later version take other bits, only that evenness is lost.)
#[derive(Clone, Default)]
struct PageHash;

impl BuildHasher for PageHash {
    type Hasher = PageHasher;
    fn build_hasher(&self) -> PageHasher {
        PageHasher { hash: 0, lane: 0 }
    }
}

struct PageHasher {
    hash: u64,
    lane: u64,
}

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        const LANE: u64 = 0xffff << 32;
        (self.hash & !LANE) | ((self.lane << 32) & LANE)
    }
    fn write_u64(&mut self, n: u64) {
        self.lane = self.hash.wrapping_add(n);
        self.hash = mix(self.hash, n);
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
}

/// Spreads two numbers over all 64 bits: a product of 128 bits folded, as in wyhash.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests;
