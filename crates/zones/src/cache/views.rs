//! Pointers into the cache: pages that a file's readers hold for as long as the file is open, so that a hit copies nothing.
//!
//! A program that maps files (LevelDB on a host's file system) uses their bytes where they stand; here it may do the same with a
//! bounded part of the cache. What is pinned leaves with the [`Views`] only, since nobody tells when a pointer is used no more.
//!
//! Invariants:
//! - Pinned memory counts: up to [`LIMIT`] of the capacity is pinned, and other pages have so much less. The cache holds
//!   entries without bytes in its place, which are never evicted. (`quick_cache`'s own capacity is not changed for it: each
//!   change rounds its memory of evicted pages down.)
//! - A page is pinned when it is found in the cache, not when it is read from the drive: what is read only once pins nothing.
//!   Neither does a stream, which reads each byte once.
//! - Where the cache is tight, a page is pinned or in the cache, not both: else it would be charged twice, and the cache would hold so much less
//!   of other pages. The handles of a file share its [`Views`], so each of them finds a pinned page there. What is let go of is read again.
//!   While there is room it stays in the cache too, so that its run can be pinned as a whole.
//! - Pages that were written one after the other stand so in memory, in *runs* ([`RUN`]). A run is pinned as a whole, with one look and at
//!   once, but only while the cache is not nearly full: until then pages that nobody read take nothing from others.
//! - Alone, only whole pages are pinned. A range that crosses into the next page is copied once and then pinned as the copy. Such
//!   copies are memory beside the cache's buffers, and buffers are not given back: so they are at most [`COPIES`] of what may
//!   be pinned, and the process takes that much more at worst.

use super::pages::{Buffers, Page, RUN};
use super::{Key, PageHash, PageWeight};
use imbrex_device::{Held, Part};
use quick_cache::{Lifecycle, sync::Cache};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// As the number of a file: an entry in place of pinned memory.
pub(super) const RESERVED: u64 = u64::MAX;
/// The part of the capacity that may be pinned.
const LIMIT: u64 = 2;
/// The part of what may be pinned that may be copies.
const COPIES: u64 = 4;
/// Buffers for copies are made in sizes of so many bytes.
const COPY_STEP: usize = 1 << 10;
/// Caches below this, in bytes, pin nothing: their shards hold a few pages each.
const SMALLEST: u64 = 16 << 20;

type Pages = Cache<Key, Arc<Page>, PageWeight, PageHash, Keep>;

/// Entries in place of pinned memory stay.
#[derive(Clone)]
pub(super) struct Keep;

impl Lifecycle<Key, Arc<Page>> for Keep {
    /// Evicted pages are dropped after the lock is released.
    type RequestState = Vec<Arc<Page>>;

    fn is_pinned(&self, key: &Key, _: &Arc<Page>) -> bool {
        key.0 == RESERVED
    }
    fn on_evict(&self, state: &mut Vec<Arc<Page>>, _: Key, page: Arc<Page>) {
        state.push(page);
    }
}

/// The pages of the cache, and how much of it is pinned.
pub(super) struct Pool {
    pub(super) pages: Pages,
    /// What a page costs, in bytes.
    weight: u64,
    /// Bytes that may be pinned.
    limit: u64,
    /// Bytes that one entry in place of pinned memory stands for.
    step: u64,
    pinned: AtomicU64,
    /// Bytes of copies, of the pinned ones.
    copied: AtomicU64,
    /// Buffers for copies, by how many steps of [`COPY_STEP`] they hold.
    copies: Box<[OnceLock<Arc<Buffers>>]>,
    buffers: Arc<Buffers>,
    capacity: u64,
    /// How many such entries there are; they are numbered from 0 on.
    entries: Mutex<u64>,
    /// Bytes that they stand for.
    reserved: AtomicU64,
    empty: Arc<Page>,
}

impl Pool {
    /// Bytes that an entry in place of pinned memory stands for, in a cache of `capacity` bytes whose pages cost `weight` each.
    pub(super) fn step(capacity: u64, weight: u64) -> u64 {
        (capacity / 512).max(weight)
    }

    pub(super) fn new(pages: Pages, capacity: u64, (page, weight): (usize, u64), buffers: &Arc<Buffers>) -> Arc<Pool> {
        Arc::new(Pool {
            pages,
            weight,
            limit: if capacity < SMALLEST { 0 } else { capacity / LIMIT },
            step: Pool::step(capacity, weight),
            pinned: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            copies: std::iter::repeat_with(OnceLock::new).take(page / COPY_STEP + 1).collect(),
            buffers: buffers.clone(),
            capacity,
            entries: Mutex::new(0),
            reserved: AtomicU64::new(0),
            empty: buffers.empty(),
        })
    }

    pub(super) fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Whether pages take more than seven eighths of the cache, each of them counted once, whoever holds it.
    fn is_tight(&self) -> bool {
        self.buffers.used_bytes() > self.capacity - self.capacity / 8
    }

    /// Takes so many bytes for pinned memory, if there are.
    fn charge(&self, bytes: u64) -> bool {
        let now = self.pinned.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if now > self.limit {
            self.pinned.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        if now > self.reserved.load(Ordering::Acquire) {
            self.settle();
        }
        true
    }

    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.pinned.fetch_sub(bytes, Ordering::AcqRel);
            self.settle();
        }
    }

    /// What a copy of `len` bytes costs, and buffers for it: longer than a page there are none.
    fn copies_of(&self, len: usize) -> Option<(u64, &Arc<Buffers>)> {
        let class = len.div_ceil(COPY_STEP);
        let size = class * COPY_STEP;
        let copies = self.copies.get(class)?.get_or_init(|| Buffers::new(size, self.capacity));
        Some((size as u64 + KEPT_COST, copies))
    }

    fn charge_copy(&self, bytes: u64) -> bool {
        let room = self.copied.fetch_add(bytes, Ordering::AcqRel) + bytes <= self.limit / COPIES;
        if room && self.charge(bytes) {
            return true;
        }
        self.copied.fetch_sub(bytes, Ordering::AcqRel);
        false
    }

    fn give_back_copies(&self, bytes: u64) {
        self.copied.fetch_sub(bytes, Ordering::AcqRel);
        self.give_back(bytes);
    }

    /// Makes the entries as many as pinned memory needs.
    fn settle(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = self.pinned().min(self.limit).div_ceil(self.step);
        while *entries < needed {
            self.pages.insert((RESERVED, *entries), self.empty.clone());
            *entries += 1;
        }
        while *entries > needed {
            *entries -= 1;
            drop(self.pages.remove(&(RESERVED, *entries)));
        }
        self.reserved.store(*entries * self.step, Ordering::Release);
    }
}

/// What the readers of one file hold of it. Dropping it lets everything go.
pub struct Views {
    pool: Option<Arc<Pool>>,
    page: u64,
    pages: Held,
    /// For each page, the range that begins in it and ends in the next; its tag is where it begins in the page.
    across: Held,
    /// Runs of pages that stand together.
    runs: Held,
    /// Bytes of the file.
    size: u64,
    /// Bytes that it was charged for.
    cost: AtomicU64,
    /// The same for copies.
    copied: AtomicU64,
    /// Where the last range ended that was not pinned.
    stream: AtomicU64,
}

/// The end of no range, and far from every beginning.
const NOWHERE: u64 = u64::MAX / 2;

/// What a slot keeps; with its counts on the heap.
struct Kept(Arc<Page>);
const KEPT_COST: u64 = 48;

impl Deref for Kept {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Pages that stand one behind the other, up to the end of the file.
struct Run {
    pages: Vec<Arc<Page>>,
    len: usize,
}

impl Deref for Run {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // One without a buffer ends the file too early, and then there is no run.
        let joined = Part::joined(self.pages.iter().map_while(|page| page.memory()));
        joined.and_then(|bytes| bytes.get(..self.len)).unwrap_or_default()
    }
}

impl Views {
    /// Of a file of `size` bytes, in pages of `page` bytes. Without a pool it pins nothing.
    pub(super) fn new(pool: Option<&Arc<Pool>>, page: u64, size: u64) -> Views {
        let pages = size / page;
        let runs = size.div_ceil(page * u64::from(RUN));
        let table = pages.saturating_mul(2).saturating_add(runs).saturating_mul(Held::SLOT_COST as u64);
        let pool = pool.filter(|pool| pages > 0 && pool.charge(table)).cloned();
        let (slots, runs, cost) = if pool.is_some() { (pages as usize, runs as usize, table) } else { (0, 0, 0) };
        Views {
            pool,
            page,
            pages: Held::new(slots),
            across: Held::new(slots),
            runs: Held::new(runs),
            size,
            cost: AtomicU64::new(cost),
            copied: AtomicU64::new(0),
            stream: AtomicU64::new(NOWHERE),
        }
    }

    /// Number of the page that a range begins in, and where in it the range begins and ends.
    fn range(&self, at: u64, len: usize) -> Option<(usize, usize, usize)> {
        let skip = (at % self.page) as usize;
        Some((usize::try_from(at / self.page).ok()?, skip, skip.checked_add(len)?))
    }

    /// The bytes, if they are pinned.
    pub(super) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let (number, skip, end) = self.range(at, len)?;
        let in_run = number % RUN as usize * self.page as usize;
        if let Some(bytes) =
            self.run(number as u64 / u64::from(RUN)).and_then(|run| run.get(in_run + skip..in_run.checked_add(end)?))
        {
            return Some(bytes);
        }
        if end as u64 <= self.page {
            return self.pages.get(number)?.0.get(skip..end);
        }
        let (bytes, tag) = self.across.get(number)?;
        if tag as usize == skip { bytes.get(..len) } else { None }
    }

    /// A pinned page.
    pub(super) fn page(&self, page: u64) -> Option<&[u8]> {
        if let Some((bytes, _)) = self.pages.get(usize::try_from(page).ok()?) {
            return Some(bytes);
        }
        let from = (page % u64::from(RUN) * self.page) as usize;
        let run = self.run(page / u64::from(RUN))?.get(from..)?;
        Some(&run[..run.len().min(self.page as usize)])
    }

    /// A pinned run.
    pub(super) fn run(&self, run: u64) -> Option<&[u8]> {
        Some(self.runs.get(usize::try_from(run).ok()?)?.0)
    }

    /// Pins a run, if all of it is in the cache and stands together.
    pub(super) fn take_run(&self, file: u64, run: u64) -> Option<&[u8]> {
        let pool = self.pool.as_ref()?;
        let start = run.checked_mul(u64::from(RUN))?;
        let len = self.size.checked_sub(start.checked_mul(self.page)?)?.min(u64::from(RUN) * self.page);
        if pool.pinned() >= pool.limit || pool.is_tight() {
            return None;
        }
        // Not a read: who reads pinned bytes does not read those in the cache.
        let pages = (0..len.div_ceil(self.page)).map(|i| {
            let page = pool.pages.peek(&(file, start + i))?;
            (page.len() as u64 == self.page.min(len - i * self.page)).then_some(page)
        });
        let pages: Vec<_> = pages.collect::<Option<_>>()?;
        let cost = pages.len() as u64 * (pool.weight + KEPT_COST);
        let count = pages.len() as u64;
        let bytes = Run { pages, len: len as usize };
        if !bytes.is_empty() && pool.charge(cost) {
            if self.runs.set(usize::try_from(run).ok()?, 0, bytes) {
                self.cost.fetch_add(cost, Ordering::Relaxed);
                (start..start + count).for_each(|page| drop(pool.pages.remove(&(file, page))));
            } else {
                pool.give_back(cost);
            }
        }
        self.run(run)
    }

    /// Pins the bytes if they are in the cache, and do not follow those that were asked for before.
    pub(super) fn take(&self, file: u64, at: u64, len: usize) -> Option<&[u8]> {
        let pool = self.pool.as_ref()?;
        let (slot, skip, end) = self.range(at, len)?;
        // A stream meets pages that are pinned, too: what begins within a page behind the last range goes on from there.
        let last = self.stream.swap(at.checked_add(len as u64)?, Ordering::Relaxed);
        if at.wrapping_sub(last) < self.page || pool.pinned() >= pool.limit {
            return None;
        }
        let (number, page) = (at / self.page, self.page as usize);
        if end <= page {
            self.pin(pool, file, number)?;
        } else if end <= 2 * page && self.across.get(slot).is_none() {
            // Both will be asked for, too, and are looked up once.
            let first = self.pin(pool, file, number)?.get(skip..)?;
            let second = self.pin(pool, file, number + 1)?.get(..end - page)?;
            let (cost, copies) = pool.copies_of(len)?;
            if pool.charge_copy(cost) {
                if self.across.set(slot, skip as u32, Kept(copies.page(&[first, second]))) {
                    self.copied.fetch_add(cost, Ordering::Relaxed);
                } else {
                    pool.give_back_copies(cost);
                }
            }
        }
        self.get(at, len)
    }

    /// Pins a page that is in the cache, if it is whole and there is room.
    fn pin(&self, pool: &Pool, file: u64, number: u64) -> Option<&[u8]> {
        if let Some(held) = self.page(number) {
            return Some(held);
        }
        let page = pool.pages.get(&(file, number)).filter(|page| page.len() as u64 == self.page)?;
        let cost = pool.weight + KEPT_COST;
        if pool.charge(cost) {
            if self.pages.set(usize::try_from(number).ok()?, 0, Kept(page)) {
                self.cost.fetch_add(cost, Ordering::Relaxed);
                if pool.is_tight() {
                    drop(pool.pages.remove(&(file, number)));
                }
            } else {
                pool.give_back(cost);
            }
        }
        self.page(number)
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        // The memory goes first: what is given back may be taken at once.
        (self.pages, self.across, self.runs) = Default::default();
        if let Some(pool) = &self.pool {
            pool.give_back(self.cost.load(Ordering::Relaxed));
            pool.give_back_copies(self.copied.load(Ordering::Relaxed));
        }
    }
}
