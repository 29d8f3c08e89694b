//! What the tests share: a key-value store on a metadata log, a model of an object store, and transactions at random.

#![allow(dead_code)]

pub mod random;

use imbrex_bluestore::{
    BUDGET, BlueStore, Change, Checksum, CollectionId, Compression, Family, Hint, KeyValue, NAME, ObjectId, Options,
    Pair, Transaction,
};
use imbrex_device::banded::{Banded, Base, ConventionalZones, Layout};
use imbrex_device::kernel::Access;
use imbrex_device::{
    Cause, Code, Drive, Geometry, Identity, Priority, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice, report_all,
};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::log::{Batch, MetaLog};
use imbrex_zones::{Budget, Exec, FormatOptions, Tenant, TenantSpec, Volume, VolumeOptions};
use rand::Rng;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

const MAP: &str = "map";
const COPIES: u8 = 2;
const LOG_ZONES: u32 = 8;

/// Is called once, when a commit looks for deferred blobs or is about to write records, or the cleaner looks a blob up: between two of its steps.
#[derive(Clone, Default)]
pub struct Hook(Arc<Mutex<Option<(u32, bool, Between)>>>);

type Between = Box<dyn FnOnce() + Send>;
type Map = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

impl Hook {
    pub fn set(&self, between: impl FnOnce() + Send + 'static) {
        self.set_behind(0, between);
    }

    /// The same, when it could have been called so many times before.
    pub fn set_behind(&self, times: u32, between: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some((times, true, Box::new(between)));
    }

    /// The same, but never when a record is got: whoever gets one may have the right to prepare.
    pub fn set_outside_gets(&self, times: u32, between: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some((times, false, Box::new(between)));
    }

    pub fn call(&self) {
        self.call_from(false);
    }

    fn call_from(&self, get: bool) {
        let due = {
            let mut hook = self.0.lock().unwrap();
            match hook.as_mut() {
                Some((_, false, _)) if get => None,
                Some((times @ 1.., _, _)) => {
                    *times -= 1;
                    None
                }
                _ => hook.take(),
            }
        };
        due.into_iter().for_each(|(.., between)| between());
    }
}

/// Calls its hook when something is written.
pub struct Hooked {
    pub drive: Emulator,
    pub hook: Hook,
}

impl ZonedDevice for Hooked {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.drive.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.drive.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.hook.call();
        self.drive.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}

/// A deterministic key-value store: a map in memory, and a log of its batches on a tenant of its own.
pub struct MapStore {
    pub hook: Hook,
    tenant: Tenant,
    inner: Mutex<(MetaLog, Map)>,
}

fn encode(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    for change in changes {
        let (tag, family, a, b): (u8, _, _, &[u8]) = match change {
            Change::Put(family, key, value) => (0, family, key, value),
            Change::Delete(family, key) => (1, family, key, &[]),
            Change::DeleteRange(family, from, to) => (2, family, from, to),
        };
        out.extend([tag, *family as u8]);
        for part in [&a[..], b] {
            out.extend((part.len() as u32).to_le_bytes());
            out.extend(part);
        }
    }
    out
}

fn apply(map: &mut Map, mut bytes: &[u8]) {
    fn part<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
        let (len, rest) = bytes.split_at(4);
        let (part, rest) = rest.split_at(u32::from_le_bytes(len.try_into().unwrap()) as usize);
        *bytes = rest;
        part
    }
    while let [tag, family, rest @ ..] = bytes {
        bytes = rest;
        let family = Family::ALL[usize::from(*family)];
        let (a, b) = (part(&mut bytes).to_vec(), part(&mut bytes).to_vec());
        match tag {
            0 => drop(map.insert((family, a), b)),
            1 => drop(map.remove(&(family, a))),
            _ => map.retain(|(of, key), _| *of != family || *key < a || *key >= b),
        }
    }
}

impl MapStore {
    pub fn open(volume: &Volume) -> Result<MapStore> {
        let (tenant, clock) = (volume.tenant(MAP)?, Arc::new(|| 0));
        let mut map = BTreeMap::new();
        tenant.begin()?;
        let log = match MetaLog::open(&tenant, clock.clone(), None, &mut |_, _| {})? {
            Some((mut log, replay)) => {
                replay.pieces.iter().for_each(|piece| apply(&mut map, piece));
                replay.records(&mut |_, record| apply(&mut map, record));
                log.adopt()?;
                tenant.adoption_done();
                log.finish_all_left();
                tenant.recovered()?;
                log.forget_unread();
                log
            }
            None => {
                tenant.adoption_done();
                tenant.recovered()?;
                let mut log = MetaLog::create(&tenant, COPIES, LOG_ZONES, Vec::new(), clock)?;
                (0..COPIES).try_for_each(|_| log.write_snapshot(&Batch::default()))?;
                log
            }
        };
        Ok(MapStore { hook: Hook::default(), tenant, inner: Mutex::new((log, map)) })
    }
}

impl KeyValue for MapStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if family == Family::Blobs {
            self.hook.call_from(true);
        }
        Ok(self.inner.lock().unwrap().1.get(&(family, key.to_vec())).cloned())
    }

    /// Of two blobs in three, as if their records were not in memory.
    fn get_would_read(&self, family: Family, key: &[u8]) -> bool {
        family == Family::Blobs && !crc32c::crc32c(key).is_multiple_of(3)
    }

    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        if family == Family::Deferred || family == Family::Blobs {
            self.hook.call();
        }
        let inner = self.inner.lock().unwrap();
        let range = inner.1.range((Bound::Included((family, from.to_vec())), Bound::Unbounded));
        let within = range.take_while(|((of, key), _)| *of == family && to.is_none_or(|to| &key[..] < to));
        Ok(within.take(most).map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.hook.call();
        let mut inner = self.inner.lock().unwrap();
        let (log, map) = &mut *inner;
        let bytes = encode(changes);
        let whole = |map: &Map| {
            let mut all = Batch::default();
            for ((family, key), value) in map {
                let put = encode(&[Change::Put(*family, key.clone(), value.clone())]);
                all.push(|to| to.extend(put));
            }
            all
        };
        for _ in 0..COPIES {
            let size = whole(map).len() as u64;
            if !log.appender().has_room(bytes.len() as u64 + 64, Some(size)) {
                log.write_snapshot(&whole(map))?;
            }
        }
        let mut batch = Batch::default();
        batch.push(|to| to.extend(&bytes));
        log.appender().append_all(&mut batch)?;
        log.write(Priority::Normal)?;
        apply(map, &bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.tenant.volume().sync(Cause::Journal.into())
    }
}

/// 56 zones of 256 KiB, two of them conventional.
pub fn config() -> Config {
    Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 14 << 20, conventional: 2, ..Config::tiny() }
}

/// A ZNS drive on which just as many zones may be active as are needed.
pub fn few_active() -> Config {
    Config {
        conventional: 0,
        max_open: Some(10),
        max_active: Some(10),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        zone_capacity: 232 << 10,
        ..config()
    }
}

/// A plain disk: all of its zones are overwritten anywhere.
pub fn plain() -> Config {
    Config { conventional: 56, ..config() }
}

/// Cuts a plain disk into bands that are as long as its zones.
pub fn make_bands(drive: &Drive) -> Result<()> {
    let band = drive.device.geometry().zone_size;
    let base = ConventionalZones::new(drive.device.clone(), None)?;
    let plan = Layout::plan(base.facts().size, 4096, band, Some(2)).unwrap();
    Banded::format(&base, &Layout { uuid: [6; 16], ..plan }).map(drop)
}

/// The bands of a plain disk.
pub fn bands(drive: &Drive) -> Result<Drive> {
    let base = ConventionalZones::new(drive.device.clone(), drive.survivor.clone())?;
    Ok(Drive { device: Arc::new(Banded::open(Box::new(base), Access::Write)?), survivor: drive.survivor.clone() })
}

/// In units of so many bytes, in place, with short overwrites where the old blocks stood.
pub fn in_place(unit: u32) -> Options {
    Options { layout: imbrex_bluestore::Layout::InPlace, min_alloc: Some(unit), home: true, ..packed() }
}

pub fn format(drive: &Drive) -> Result<()> {
    let map = TenantSpec { name: MAP.into(), budget: Budget::keeping(0, 1).at_least(LOG_ZONES + 2) };
    let tenants = vec![map, TenantSpec { name: NAME.into(), budget: BUDGET }];
    Volume::format(drive, &FormatOptions { uuid: Some([5; 16]), tenants, force: false })
}

/// Writes of 16 KiB and more go to zones at once, so that short workloads have both. The cache has some twenty records, so that they come and go.
pub fn options() -> Options {
    Options {
        defer_below: 16 << 10,
        pack_from: 128 << 10,
        gather: 1 << 20,
        count_from: 12,
        cache: 8 << 10,
        ..Options::default()
    }
}

/// None; one in which records come and go; one that has all of a short test.
pub const CACHES: [u64; 3] = [0, 8 << 10, 16 << 20];

/// The same, and what can be compressed is; checksums are of the other kind.
pub fn packed() -> Options {
    Options { compression: Compression::Lz4, checksum: Checksum::Xxh3, ..options() }
}

pub fn open(drive: &Drive, exec: Exec) -> Result<BlueStore> {
    open_with(drive, exec, options())
}

pub fn open_with(drive: &Drive, exec: Exec, options: Options) -> Result<BlueStore> {
    open_hooked(drive, exec, options).map(|(store, _)| store)
}

pub fn open_hooked(drive: &Drive, exec: Exec, options: Options) -> Result<(BlueStore, Hook)> {
    let volume = VolumeOptions { exec, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let volume = Volume::open(drive.clone(), volume)?;
    let kv = MapStore::open(&volume)?;
    let hook = kv.hook.clone();
    Ok((BlueStore::open(&volume.tenant(NAME)?, Arc::new(kv), options)?, hook))
}

/// An object as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    pub bytes: Vec<u8>,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    pub omap: BTreeMap<Vec<u8>, Vec<u8>>,
    pub header: Option<Vec<u8>>,
}

/// A store as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub collections: BTreeMap<CollectionId, u8>,
    /// Models that follow each other share what no step changed.
    pub objects: BTreeMap<ObjectId, Arc<Object>>,
}

/// One step, as the model knows it.
#[derive(Clone, Debug)]
pub enum Op {
    Create(CollectionId, u8),
    Drop(CollectionId),
    Split(CollectionId, CollectionId),
    Merge(CollectionId, CollectionId),
    Touch(ObjectId),
    Write(ObjectId, u64, u64, u8),
    Zero(ObjectId, u64, u64),
    Truncate(ObjectId, u64),
    Remove(ObjectId),
    Rename(ObjectId, ObjectId),
    Clone(ObjectId, ObjectId),
    CloneRange(ObjectId, ObjectId, u64, u64, u64),
    Hint(ObjectId, Hint),
    Attribute(ObjectId, Vec<u8>, Vec<u8>),
    NoAttribute(ObjectId, Vec<u8>),
    NoAttributes(ObjectId),
    Set(ObjectId, Vec<u8>, Vec<u8>),
    Unset(ObjectId, Vec<u8>),
    UnsetRange(ObjectId, Vec<u8>, Vec<u8>),
    Clear(ObjectId),
    Header(ObjectId, Vec<u8>),
}

/// The same; of a third of the seeds it can be compressed.
fn some_content(len: u64, seed: u8) -> Vec<u8> {
    match seed % 3 {
        0 => (0..len).map(|n| seed ^ (n >> 9) as u8).collect(),
        _ => content(len, seed),
    }
}

/// Bytes of a write, which nothing makes shorter.
pub fn content(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 11) as u8 ^ seed ^ (n >> 12) as u8).collect()
}

fn put(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    if new.is_empty() {
        return;
    }
    let end = at as usize + new.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[at as usize..end].copy_from_slice(new);
}

impl Op {
    fn object(&self) -> Option<&ObjectId> {
        match self {
            Op::Create(..) | Op::Drop(_) | Op::Split(..) | Op::Merge(..) => None,
            Op::Touch(id)
            | Op::Write(id, ..)
            | Op::Zero(id, ..)
            | Op::Truncate(id, _)
            | Op::Remove(id)
            | Op::Rename(id, _)
            | Op::Clone(id, _)
            | Op::CloneRange(id, ..)
            | Op::Hint(id, _)
            | Op::Attribute(id, ..)
            | Op::NoAttribute(id, _)
            | Op::NoAttributes(id)
            | Op::Set(id, ..)
            | Op::Unset(id, _)
            | Op::UnsetRange(id, ..)
            | Op::Clear(id)
            | Op::Header(id, _) => Some(id),
        }
    }
}

impl Model {
    /// The collection of an object. Where there is none, one that does not exist.
    pub fn home(&self, id: &ObjectId) -> CollectionId {
        let has = |(collection, bits): &(&CollectionId, &u8)| {
            let mask = if **bits == 32 { u32::MAX } else { (1 << **bits) - 1 };
            collection.pool == id.pool && (collection.seed ^ id.hash) & mask == 0
        };
        self.collections.iter().find(has).map_or(CollectionId { pool: id.pool, seed: u32::MAX }, |(id, _)| *id)
    }

    /// Does it, and adds it to the transaction. The kind of the error that the store must give.
    pub fn apply(&mut self, op: &Op, to: &mut Transaction) -> Result<(), Code> {
        let Some(id) = op.object() else { return self.apply_to_collection(op, to) };
        let c = self.home(id);
        let known = self.collections.contains_key(&c);
        match op {
            Op::Touch(id) => _ = to.touch(c, id),
            Op::Write(id, at, len, seed) => _ = to.write(c, id, *at, &some_content(*len, *seed)),
            Op::Zero(id, at, len) => _ = to.zero(c, id, *at, *len),
            Op::Truncate(id, size) => _ = to.truncate(c, id, *size),
            Op::Remove(id) => _ = to.remove(c, id),
            Op::Rename(id, new) => _ = to.rename(c, id, new),
            Op::Clone(id, new) => _ = to.clone_object(c, id, new),
            Op::CloneRange(id, new, from, len, at) => _ = to.clone_range(c, id, new, (*from, *len, *at)),
            Op::Hint(id, hint) => _ = to.hint(c, id, *hint),
            Op::Attribute(id, name, value) => _ = to.set_attributes(c, id, &[(name, value)]),
            Op::NoAttribute(id, name) => _ = to.remove_attribute(c, id, name),
            Op::NoAttributes(id) => _ = to.remove_attributes(c, id),
            Op::Set(id, key, value) => _ = to.omap_set(c, id, &[(key, value)]),
            Op::Unset(id, key) => _ = to.omap_remove(c, id, &[key]),
            Op::UnsetRange(id, from, end) => _ = to.omap_remove_range(c, id, from, end),
            Op::Clear(id) => _ = to.omap_clear(c, id),
            Op::Header(id, header) => _ = to.omap_header(c, id, header),
            Op::Create(..) | Op::Drop(_) | Op::Split(..) | Op::Merge(..) => {}
        }
        if !known {
            return Err(Code::NotFound);
        }
        if let Op::Rename(_, to) | Op::Clone(_, to) | Op::CloneRange(_, to, ..) = op
            && self.home(to) != c
        {
            return Err(Code::InvalidArgument);
        }
        self.apply_to_object(op, id)
    }

    fn apply_to_object(&mut self, op: &Op, id: &ObjectId) -> Result<(), Code> {
        let there = self.objects.get(id).cloned();
        match op {
            Op::Truncate(_, size) => {
                drop(there.ok_or(Code::NotFound)?);
                Arc::make_mut(self.objects.get_mut(id).unwrap()).bytes.resize(*size as usize, 0);
            }
            Op::Remove(_) => drop(self.objects.remove(id).ok_or(Code::NotFound)?),
            Op::Rename(_, to) => {
                let object = there.ok_or(Code::NotFound)?;
                if to != id {
                    if self.objects.contains_key(to) {
                        return Err(Code::Exists);
                    }
                    self.objects.remove(id);
                    self.objects.insert(to.clone(), object);
                }
            }
            Op::Clone(_, to) => {
                let object = there.ok_or(Code::NotFound)?;
                if to == id {
                    return Err(Code::InvalidArgument);
                }
                self.objects.insert(to.clone(), object);
            }
            Op::CloneRange(_, to, from, len, at) => {
                let object = there.ok_or(Code::NotFound)?;
                if from + len > object.bytes.len() as u64 {
                    return Err(Code::Range);
                }
                if to == id && *from.max(at) < (from + len).min(at + len) {
                    return Err(Code::InvalidArgument);
                }
                let bytes = object.bytes[*from as usize..(from + len) as usize].to_vec();
                put(&mut Arc::make_mut(self.objects.entry(to.clone()).or_default()).bytes, *at, &bytes);
            }
            _ => {
                drop(there);
                let object = Arc::make_mut(self.objects.entry(id.clone()).or_default());
                match op {
                    Op::Write(_, at, len, seed) => put(&mut object.bytes, *at, &some_content(*len, *seed)),
                    Op::Zero(_, at, len) => put(&mut object.bytes, *at, &vec![0; *len as usize]),
                    Op::Attribute(_, name, value) => drop(object.attributes.insert(name.clone(), value.clone())),
                    Op::NoAttribute(_, name) => drop(object.attributes.remove(name)),
                    Op::NoAttributes(_) => object.attributes.clear(),
                    Op::Set(_, key, value) => drop(object.omap.insert(key.clone(), value.clone())),
                    Op::Unset(_, key) => drop(object.omap.remove(key)),
                    Op::UnsetRange(_, from, to) => object.omap.retain(|key, _| key < from || key >= to),
                    Op::Clear(_) => (object.omap, object.header) = (BTreeMap::new(), None),
                    Op::Header(_, header) => object.header = Some(header.clone()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn apply_to_collection(&mut self, op: &Op, to: &mut Transaction) -> Result<(), Code> {
        let mask = |bits: u8| if bits == 32 { u32::MAX } else { (1u32 << bits) - 1 };
        match *op {
            Op::Create(c, bits) => {
                to.create_collection(c, bits);
                if c.seed & !mask(bits) != 0 {
                    return Err(Code::InvalidArgument);
                }
                let shares = |(other, more): (&CollectionId, &u8)| {
                    other.pool == c.pool && (other.seed ^ c.seed) & mask(bits.min(*more)) == 0
                };
                if self.collections.iter().any(shares) {
                    return Err(Code::Exists);
                }
                self.collections.insert(c, bits);
            }
            Op::Drop(c) => {
                to.remove_collection(c);
                self.collections.get(&c).ok_or(Code::NotFound)?;
                if self.objects.keys().any(|id| self.home(id) == c) {
                    return Err(Code::NotEmpty);
                }
                self.collections.remove(&c);
            }
            Op::Split(c, into) => {
                to.split_collection(c, into);
                let bits = *self.collections.get(&c).ok_or(Code::NotFound)?;
                if bits == 32 || into != (CollectionId { seed: c.seed | 1 << bits, ..c }) {
                    return Err(Code::InvalidArgument);
                }
                self.collections.extend([(c, bits + 1), (into, bits + 1)]);
            }
            Op::Merge(c, into) => {
                to.merge_collection(c, into);
                let bits = *self.collections.get(&c).ok_or(Code::NotFound)?;
                let other = *self.collections.get(&into).ok_or(Code::NotFound)?;
                if bits != other
                    || bits == 0
                    || c == into
                    || into != (CollectionId { seed: c.seed & mask(bits - 1), ..c })
                {
                    return Err(Code::InvalidArgument);
                }
                self.collections.remove(&c);
                self.collections.insert(into, bits - 1);
            }
            _ => {}
        }
        Ok(())
    }

    /// What a store says that it has.
    pub fn of(store: &BlueStore) -> Result<Model> {
        let mut model = Model { collections: store.collections()?.into_iter().collect(), ..Model::default() };
        for c in model.collections.keys().copied().collect::<Vec<_>>() {
            let mut next = None;
            loop {
                let page = store.list(c, next.as_ref(), 3)?;
                for id in page.all {
                    let stat = store.stat(c, &id)?;
                    let bytes = store.read(c, &id, 0, u64::MAX)?;
                    assert_eq!(bytes.len() as u64, stat.size);
                    let (mut omap, mut from) = (BTreeMap::new(), Some(Vec::new()));
                    while let Some(begin) = from {
                        let page = store.omap(c, &id, &begin, 2)?;
                        omap.extend(page.all);
                        from = page.next;
                    }
                    let header = store.omap_header(c, &id)?;
                    let object = Object { bytes, attributes: stat.attributes, omap, header };
                    assert!(model.objects.insert(id, object.into()).is_none(), "an object is listed twice");
                }
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(model)
    }

    /// A number that another state has not, in practice.
    pub fn digest(&self) -> u64 {
        let (mut crc, mut sum) = (0u32, 0u64);
        let mut add = |bytes: &[u8]| {
            crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &(bytes.len() as u64).to_le_bytes()), bytes);
            sum = sum.rotate_left(5).wrapping_add(u64::from(crc)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        for (collection, bits) in &self.collections {
            add(format!("{collection:?} {bits}").as_bytes());
        }
        for (id, object) in &self.objects {
            add(format!("{id:?} {:?} {:?} {:?}", object.attributes, object.omap, object.header).as_bytes());
            add(&object.bytes);
        }
        sum
    }
}

const POOL: i64 = 1;

/// An object of a few.
pub fn any_object(rng: &mut impl Rng) -> ObjectId {
    let n: u8 = rng.random_range(0..6);
    // Half of them share a hash, so that they can be renamed to one another.
    let hash = if n < 4 { 0b10 } else { u32::from(n) };
    ObjectId { hash, ..ObjectId::new(POOL, b"", &[b'a' + n]) }
}

fn any_len(rng: &mut impl Rng, most: u64) -> u64 {
    let len = match rng.random_range(0..5) {
        0 => rng.random_range(0..200),
        1 => 4096 * rng.random_range(1..4),
        2 => rng.random_range(0..12_000),
        3 => 4096 * rng.random_range(0..most / 4096 + 1),
        _ => rng.random_range(0..most),
    };
    len.min(most)
}

fn any_offset(rng: &mut impl Rng, most: u64) -> u64 {
    let at = rng.random_range(0..most);
    if rng.random_bool(0.6) { at / 4096 * 4096 } else { at }
}

/// A step at random, for objects of at most about so many bytes.
pub fn any_op(rng: &mut impl Rng, model: &Model, most: u64) -> Op {
    let id = any_object(rng);
    let other = any_object(rng);
    let size = model.objects.get(&id).map_or(0, |object| object.bytes.len() as u64);
    let small = |rng: &mut dyn FnMut(u8) -> u8| vec![b'k', rng(5)];
    let mut byte = |n: u8| rng.random_range(0..n);
    let (key, key2) = (small(&mut byte), small(&mut byte));
    let value = vec![byte(255); usize::from(byte(40))];
    let c = CollectionId { pool: POOL, seed: u32::from(byte(4)) };
    let into = CollectionId { pool: POOL, seed: u32::from(byte(8)) };
    match rng.random_range(0..44) {
        0 => Op::Create(c, rng.random_range(0..4)),
        1 => Op::Drop(c),
        2 => Op::Split(c, into),
        3 => Op::Merge(into, c),
        4 => Op::Touch(id),
        5..16 => Op::Write(id, any_offset(rng, most), any_len(rng, most / 2), rng.random()),
        16..18 => Op::Zero(id, any_offset(rng, most), any_len(rng, most)),
        18..20 => Op::Truncate(id, any_offset(rng, most)),
        20..23 => Op::Remove(id),
        23..25 => Op::Rename(id, other),
        25..28 => Op::Clone(id, other),
        28..31 => {
            let from = rng.random_range(0..size + 1) / if rng.random_bool(0.6) { 4096 } else { 1 };
            let from = if size > 8192 { from * 4096 % size } else { from };
            let len = any_len(rng, size.saturating_sub(from) + 1);
            let at = if rng.random_bool(0.5) { from } else { any_offset(rng, most) };
            Op::CloneRange(id, other, from, len, at)
        }
        31 => Op::Hint(
            id,
            Hint {
                write: any_len(rng, most),
                immutable: rng.random(),
                short_lived: rng.random(),
                incompressible: rng.random_bool(0.2),
                object: 0,
            },
        ),
        32..34 => Op::Attribute(id, key, value),
        34 => Op::NoAttribute(id, key),
        35 => Op::NoAttributes(id),
        36..39 => Op::Set(id, key, value),
        39 => Op::Unset(id, key),
        40 => Op::UnsetRange(id, key, key2),
        41 => Op::Clear(id),
        _ => Op::Header(id, value),
    }
}

/// A transaction at random of a few steps that all make sense, and what the store is then.
pub fn any_transaction(rng: &mut impl Rng, model: &Model, most: u64) -> (Vec<Op>, Transaction, Model) {
    let (mut ops, mut transaction, mut then) = (Vec::new(), Transaction::new(), model.clone());
    let steps = rng.random_range(1..5);
    while ops.len() < steps {
        let op = any_op(rng, &then, most);
        let mut next = then.clone();
        if next.apply(&op, &mut Transaction::new()).is_ok() {
            next = then.clone();
            next.apply(&op, &mut transaction).unwrap();
            then = next;
            ops.push(op);
        }
    }
    (ops, transaction, then)
}

/// The collection that random transactions begin with.
pub fn first() -> (CollectionId, u8) {
    (CollectionId { pool: POOL, seed: 0 }, 0)
}

pub fn zones_of(drive: &Drive) -> usize {
    report_all(drive.device.as_ref()).unwrap().len()
}

/// Writes all objects anew that stand in many places.
pub fn defragment_all(store: &BlueStore, memory: u64) -> Result<()> {
    for (c, _) in store.collections()? {
        match store.list(c, None, 1000).and_then(|page| store.defragment(c, &page.all, memory)) {
            // Another transaction has removed it.
            Err(error) if error.code() == Code::NotFound => {}
            other => drop(other?),
        }
    }
    Ok(())
}
