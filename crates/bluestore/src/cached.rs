//! Decoded records in memory: of collections, objects, extents and blobs. One memory for all of them, so that each kind has the part of it that its use earns.
//!
//! What is here of a key is what the key-value store has of it, or had since. The state's layers lie over it, so it is asked only for keys of which no layer tells. Then a record can only
//! become old when a group has come to the key-value store and its layer goes. So:
//!
//! 1. Who looks a record up takes the [moment](Cache::moment) first, then looks at the layers, then here, then at the key-value store. He puts what he has found here only
//!    if it is still that moment.
//! 2. Who has written records to the key-value store begins the next moment, and then has them [forgotten](Cache::forget). Only then may their layer go.
//!
//! So who has read an old record before it was written, and comes with it afterwards, is refused. Who comes with it before has it forgotten with the others. What he finds in a layer
//! he may put here, too: all records of layers are written and forgotten some time.

use crate::blob::{Blob, BlobId};
use crate::id::bits_of;
use crate::keyvalue::{Change, Family};
use crate::layer::within;
use crate::onode::{Extent, Onode, Span, of_span_key};
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A decoded record; `Nothing`: there is none.
#[derive(Clone)]
pub(crate) enum Record {
    Nothing,
    Bits(u8),
    Onode(Arc<Onode>),
    Span(Arc<Span>),
    Blob(Arc<Blob>),
}

/// What has records that are cached.
pub(crate) trait Kept: Clone {
    const FAMILY: Family;

    /// `None`: it makes no sense.
    fn decode(key: &[u8], bytes: &[u8]) -> Option<Self>;
    fn record(&self) -> Record;
    /// `None`: another kind's.
    fn of(record: Record) -> Option<Self>;
    /// What it is, where it makes no sense.
    fn name(key: &[u8]) -> String;
}

/// How many bits a collection goes by.
#[derive(Clone, Copy)]
pub(crate) struct Bits(pub u8);

impl Kept for Bits {
    const FAMILY: Family = Family::Collections;

    fn decode(_: &[u8], bytes: &[u8]) -> Option<Bits> {
        bits_of(bytes).map(Bits)
    }

    fn record(&self) -> Record {
        Record::Bits(self.0)
    }

    fn of(record: Record) -> Option<Bits> {
        if let Record::Bits(bits) = record { Some(Bits(bits)) } else { None }
    }

    fn name(_: &[u8]) -> String {
        "a collection's record".into()
    }
}

impl Kept for Arc<Onode> {
    const FAMILY: Family = Family::Onodes;

    fn decode(_: &[u8], bytes: &[u8]) -> Option<Arc<Onode>> {
        Onode::decode(bytes).map(Arc::new)
    }

    fn record(&self) -> Record {
        Record::Onode(self.clone())
    }

    fn of(record: Record) -> Option<Arc<Onode>> {
        if let Record::Onode(onode) = record { Some(onode) } else { None }
    }

    fn name(_: &[u8]) -> String {
        "an object's record".into()
    }
}

impl Kept for Arc<Span> {
    const FAMILY: Family = Family::Extents;

    fn decode(key: &[u8], bytes: &[u8]) -> Option<Arc<Span>> {
        Span::of_record(bytes, of_span_key(key)?.0).map(Arc::new)
    }

    fn record(&self) -> Record {
        Record::Span(self.clone())
    }

    fn of(record: Record) -> Option<Arc<Span>> {
        if let Record::Span(span) = record { Some(span) } else { None }
    }

    fn name(_: &[u8]) -> String {
        "extents of an object".into()
    }
}

impl Kept for Arc<Blob> {
    const FAMILY: Family = Family::Blobs;

    fn decode(_: &[u8], bytes: &[u8]) -> Option<Arc<Blob>> {
        Blob::decode(bytes).map(Arc::new)
    }

    fn record(&self) -> Record {
        Record::Blob(self.clone())
    }

    fn of(record: Record) -> Option<Arc<Blob>> {
        if let Record::Blob(blob) = record { Some(blob) } else { None }
    }

    fn name(key: &[u8]) -> String {
        BlobId::of_key(key).map_or_else(|| "a blob's record".into(), |id| format!("the record of {id}"))
    }
}

struct Key {
    family: Family,
    key: Box<[u8]>,
}

/// A key of which nobody needs to own the bytes.
struct KeyRef<'a>(Family, &'a [u8]);

impl KeyRef<'_> {
    fn owned(&self) -> Key {
        Key { family: self.0, key: self.1.into() }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        (self.family, &self.key) == (other.family, &other.key)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef(self.family, &self.key).hash(state);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.0 as u8);
        state.write(self.1);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.0 == key.family && *self.1 == *key.key
    }
}

/// Bytes of memory that a record takes, about, with what the cache needs for it.
#[derive(Clone)]
struct Bytes;

/// What the cache has for each record, with the key's and the record's own pieces of memory.
const EACH: usize = 128;

impl Weighter<Key, Record> for Bytes {
    fn weight(&self, key: &Key, record: &Record) -> u64 {
        let own = match record {
            Record::Nothing | Record::Bits(_) => 0,
            Record::Onode(onode) => onode.memory(),
            Record::Span(span) => span.memory(),
            Record::Blob(blob) => blob.memory(),
        };
        (EACH + key.key.len() + own) as u64
    }
}

impl Span {
    fn memory(&self) -> usize {
        size_of::<Span>() + self.0.len() * size_of::<Extent>()
    }
}

impl Onode {
    fn memory(&self) -> usize {
        // What a tree has for each pair, and two pieces of memory.
        let pairs = self.attributes.iter().map(|(name, value)| name.len() + value.len() + 96);
        size_of::<Onode>() + pairs.sum::<usize>() + self.first.memory()
    }
}

/// Equal in each run: what leaves must not depend on the run.
type Fixed = BuildHasherDefault<DefaultHasher>;
type Records = quick_cache::sync::Cache<Key, Record, Bytes, Fixed>;

/// Memory of a record as it mostly is.
const USUAL: u64 = 512;
/// Bytes of a part of the cache at least; each part has a lock, and takes no record that is longer.
const PART: u64 = 256 << 10;
/// Families of which records are cached.
const FAMILIES: [Family; 4] = [Family::Collections, Family::Onodes, Family::Extents, Family::Blobs];

/// See the module.
pub(crate) struct Cache {
    /// `None`: it has no memory.
    records: Option<Records>,
    moment: RwLock<u64>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What the cache has done, and what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Records that were found in it.
    pub hits: u64,
    /// Records that were looked up in the key-value store.
    pub misses: u64,
    /// Bytes of memory that it takes, about.
    pub bytes: u64,
}

impl Cache {
    /// Of so many bytes at most.
    pub fn new(bytes: u64) -> Cache {
        let items = (bytes / USUAL).max(1) as usize;
        let most = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64 * 4;
        let options = OptionsBuilder::new()
            .shards((bytes / PART).clamp(1, most) as usize)
            .estimated_items_capacity(items)
            .weight_capacity(bytes)
            .build();
        let records = options.ok().filter(|_| bytes > 0);
        Cache {
            records: records.map(|options| Records::with_options(options, Bytes, Fixed::default(), Default::default())),
            moment: RwLock::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Until the next group is in the key-value store.
    pub fn moment(&self) -> u64 {
        *self.moment.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a key; `Some(None)`: that there is no record.
    pub fn get<T: Kept>(&self, key: &[u8]) -> Option<Option<T>> {
        let found = self.records.as_ref()?.get(&KeyRef(T::FAMILY, key));
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        match found? {
            Record::Nothing => Some(None),
            record => T::of(record).map(Some),
        }
    }

    /// Whether it has what the key-value store says of a key.
    pub fn has(&self, family: Family, key: &[u8]) -> bool {
        self.records.as_ref().is_some_and(|records| records.contains_key(&KeyRef(family, key)))
    }

    /// What was found of a key, by who has looked since this moment began.
    pub fn put<T: Kept>(&self, moment: u64, key: &[u8], found: Option<&T>) {
        let Some(records) = &self.records else { return };
        // Nobody begins another one meanwhile.
        let now = self.moment.read().unwrap_or_else(PoisonError::into_inner);
        if *now == moment {
            records.insert(KeyRef(T::FAMILY, key).owned(), found.map_or(Record::Nothing, T::record));
        }
    }

    /// The key-value store has these changes. Their layer must go no earlier than this returns.
    pub fn forget(&self, changes: &[Change]) {
        let Some(records) = &self.records else { return };
        *self.moment.write().unwrap_or_else(PoisonError::into_inner) += 1;
        for change in changes {
            match change {
                Change::Put(family, key, _) | Change::Delete(family, key) if FAMILIES.contains(family) => {
                    records.remove(&KeyRef(*family, key));
                }
                Change::DeleteRange(family, from, to) if FAMILIES.contains(family) => {
                    records.retain(|key, _| key.family != *family || !within(&key.key, from, Some(to)));
                }
                _ => {}
            }
        }
    }

    pub fn usage(&self) -> CacheUse {
        CacheUse {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.records.as_ref().map_or(0, Records::weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(blocks: u64) -> Arc<Blob> {
        Arc::new(Blob::new(0, 0, crate::Checksum::Crc32c, &vec![0; (blocks * crate::codec::BLOCK) as usize]))
    }

    fn put(cache: &Cache, moment: u64, key: &[u8], blocks: u64) {
        cache.put(moment, key, Some(&blob(blocks)));
    }

    fn blocks(cache: &Cache, key: &[u8]) -> Option<u32> {
        cache.get::<Arc<Blob>>(key).flatten().map(|blob| blob.blocks)
    }

    #[test]
    fn who_comes_late_with_an_old_record_is_refused() {
        let cache = Cache::new(1 << 20);
        let (before, change) = (cache.moment(), Change::Put(Family::Blobs, vec![1], vec![]));
        put(&cache, before, &[1], 1);
        put(&cache, before, &[2], 2);
        assert_eq!((blocks(&cache, &[1]), blocks(&cache, &[2])), (Some(1), Some(2)));
        cache.forget(&[change]);
        put(&cache, before, &[1], 1);
        assert_eq!((blocks(&cache, &[1]), blocks(&cache, &[2])), (None, Some(2)));
        put(&cache, cache.moment(), &[1], 3);
        assert_eq!(blocks(&cache, &[1]), Some(3));
        assert!(cache.has(Family::Blobs, &[1]) && !cache.has(Family::Extents, &[1]));
        // Of each family its own keys.
        cache.forget(&[Change::DeleteRange(Family::Extents, vec![0], vec![9])]);
        assert!(cache.has(Family::Blobs, &[1]));
        cache.forget(&[Change::DeleteRange(Family::Blobs, vec![0], vec![2])]);
        assert_eq!((blocks(&cache, &[1]), blocks(&cache, &[2])), (None, Some(2)));
    }

    #[test]
    fn it_takes_no_more_memory_than_it_was_given() {
        for bytes in [1000, 100_000, 3 << 20] {
            let cache = Cache::new(bytes);
            for n in 0..20_000u64 {
                put(&cache, 0, &n.to_be_bytes(), 1 + n % 64);
                cache.put::<Arc<Span>>(0, &n.to_be_bytes(), None);
            }
            let used = cache.usage();
            assert!(used.bytes <= bytes && used.bytes * 2 > bytes, "{used:?} of {bytes}");
        }
        let none = Cache::new(0);
        put(&none, 0, &[1], 1);
        assert_eq!((blocks(&none, &[1]), none.usage()), (None, CacheUse::default()));
    }
}
