//! What a store promises beside crashes: what is refused, what is shared, what it costs, what damage does, and who may do it at once.

mod support;

use imbrex_bluestore::{
    BlueStore, Change, CollectionId, Family, Hint, KeyValue, MAX_ATTRIBUTE, MAX_NAME, MAX_OBJECT, NAME, ObjectId,
    Options, Pair, Ticket, Transaction,
};
use imbrex_device::{Code, Drive, Result};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, Volume, VolumeOptions};
use std::sync::{Arc, Mutex, mpsc};
use support::{Hook, MapStore, config, content, format, open, open_hooked, open_with, options};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

/// 120 zones of 1 MiB: long writes have room.
fn large() -> Config {
    Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 120 << 20, conventional: 2, ..Config::tiny() }
}

fn new_store(config: &Config, options: Options) -> (Emulator, Drive, BlueStore) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    let mut begin = Transaction::new();
    begin.create_collection(ALL, 0);
    store.commit(begin).unwrap();
    (emulator, drive, store)
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(1, b"", name.as_bytes())
}

fn does(store: &BlueStore, what: impl FnOnce(&mut Transaction)) -> Result<(), Code> {
    let mut transaction = Transaction::new();
    what(&mut transaction);
    store.commit(transaction).map_err(|error| error.code())
}

fn fine(store: &BlueStore) {
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let (_, _, store) = new_store(&config(), options());
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(5000, 1))).unwrap();
    let long = ObjectId::new(1, b"", &[b'x'; MAX_NAME + 1]);
    let elsewhere = ObjectId::new(2, b"", b"a");
    let nowhere = CollectionId { pool: 9, seed: 0 };
    let refused = |what: &dyn Fn(&mut Transaction), code: Code| {
        let before = support::Model::of(&store).unwrap();
        // What makes sense before it does not happen either.
        let both = |t: &mut Transaction| {
            t.write(ALL, &id("a"), 100, b"lost").touch(ALL, &id("lost"));
            what(t);
        };
        assert_eq!(does(&store, both), Err(code));
        assert!(support::Model::of(&store).unwrap() == before);
    };
    refused(&|t| _ = t.touch(ALL, &long), Code::NameTooLong);
    refused(&|t| _ = t.rename(ALL, &id("a"), &long), Code::NameTooLong);
    refused(&|t| _ = t.touch(ALL, &elsewhere), Code::InvalidArgument);
    refused(&|t| _ = t.touch(nowhere, &id("b")), Code::NotFound);
    refused(&|t| _ = t.write(ALL, &id("a"), u64::MAX, b"x"), Code::InvalidArgument);
    refused(&|t| _ = t.write(ALL, &id("a"), MAX_OBJECT, b"x"), Code::InvalidArgument);
    refused(&|t| _ = t.zero(ALL, &id("a"), 1, u64::MAX), Code::InvalidArgument);
    refused(&|t| _ = t.truncate(ALL, &id("a"), u64::MAX), Code::InvalidArgument);
    refused(&|t| _ = t.truncate(ALL, &id("none"), 0), Code::NotFound);
    refused(&|t| _ = t.remove(ALL, &id("none")), Code::NotFound);
    refused(&|t| _ = t.clone_range(ALL, &id("a"), &id("b"), (0, 5001, 0)), Code::Range);
    refused(&|t| _ = t.clone_range(ALL, &id("a"), &id("b"), (u64::MAX, 2, 0)), Code::Range);
    refused(&|t| _ = t.clone_range(ALL, &id("a"), &id("b"), (0, 10, u64::MAX - 5)), Code::InvalidArgument);
    refused(&|t| _ = t.set_attributes(ALL, &id("a"), &[(b"n", &vec![0; MAX_ATTRIBUTE + 1])]), Code::InvalidArgument);
    refused(&|t| _ = t.set_attributes(ALL, &id("a"), &[(&[b'n'; 257], b"")]), Code::InvalidArgument);
    refused(&|t| _ = t.omap_set(ALL, &id("a"), &[(&vec![1; 32_769], b"")]), Code::InvalidArgument);
    refused(&|t| _ = t.remove_collection(ALL), Code::NotEmpty);
    refused(&|t| _ = t.create_collection(CollectionId { pool: 1, seed: 3 }, 2), Code::Exists);
    refused(&|t| _ = t.create_collection(nowhere, 33), Code::InvalidArgument);
    assert_eq!(store.read(ALL, &id("none"), 0, 1).map_err(|e| e.code()), Err(Code::NotFound));
    assert_eq!(store.read(ALL, &id("a"), u64::MAX, u64::MAX).unwrap(), b"");
    assert_eq!(store.read(ALL, &id("a"), 4999, 7).unwrap().len(), 1);
    fine(&store);
}

#[test]
fn the_longest_and_the_shortest_things_are_there_after_a_restart() {
    let (_, drive, store) = new_store(&large(), options());
    let every: Vec<u8> = (0..=255).cycle().take(MAX_NAME).collect();
    let names: [&[u8]; 4] = [b"", &[0xff; 255], &every, &[0; MAX_NAME]];
    for (n, name) in names.iter().enumerate() {
        let id = ObjectId { snap: u64::MAX, generation: n as u64, ..ObjectId::new(1, &every, name) };
        does(&store, |t| {
            t.write(ALL, &id, n as u64 * 300_000, &content(10, n as u8));
            t.set_attributes(ALL, &id, &[(&every[..256], &vec![7; MAX_ATTRIBUTE]), (b"", b"")]);
            t.omap_set(ALL, &id, &[(&vec![0; 32 << 10], b"long"), (b"", &vec![3; 1 << 18])]);
        })
        .unwrap();
    }
    // A million bytes behind nothing, and an object as long as there can be.
    does(&store, |t| _ = t.truncate(ALL, &ObjectId { snap: u64::MAX, ..ObjectId::new(1, &every, b"") }, MAX_OBJECT))
        .unwrap();
    drop(store);
    let store = open(&drive, Exec::Inline).unwrap();
    assert_eq!(store.list(ALL, None, 100).unwrap().all.len(), 4);
    let first = ObjectId { snap: u64::MAX, ..ObjectId::new(1, &every, b"") };
    assert_eq!(store.stat(ALL, &first).unwrap().size, MAX_OBJECT);
    assert_eq!(store.read(ALL, &first, MAX_OBJECT - 5, 100).unwrap(), [0; 5]);
    assert_eq!(store.read(ALL, &first, 0, 10).unwrap(), content(10, 0));
    assert_eq!(store.omap(ALL, &first, b"", 10).unwrap().all.len(), 2);
    fine(&store);
}

/// BlueStore §3.1.2: what a log of operations would do twice.
#[test]
fn operations_that_must_not_be_done_twice_are_not() {
    let (_, drive, store) = new_store(&config(), options());
    let (a, b, c, d) = (id("a"), id("b"), id("c"), id("d"));
    let [a, b, c, d] = [a, b, c, d].map(|id| ObjectId { hash: 0, ..id });
    let at = |n| content(20_000, n);
    does(&store, |t| _ = t.write(ALL, &a, 0, &at(1)).write(ALL, &c, 0, &at(2))).unwrap();
    does(&store, |t| _ = t.clone_object(ALL, &a, &b).write(ALL, &a, 0, &at(3)).write(ALL, &c, 0, &at(4))).unwrap();
    let read = |store: &BlueStore, id: &ObjectId| store.read(ALL, id, 0, u64::MAX).unwrap();
    assert!([(&a, 3), (&b, 1), (&c, 4)].iter().all(|(id, n)| read(&store, id) == at(*n)));
    does(&store, |t| {
        t.remove(ALL, &c).write(ALL, &b, 0, &at(5)).rename(ALL, &b, &c).rename(ALL, &a, &b).write(ALL, &d, 0, &at(6));
    })
    .unwrap();
    drop(store);
    let store = open(&drive, Exec::Inline).unwrap();
    assert!([(&c, 5), (&b, 3), (&d, 6)].iter().all(|(id, n)| read(&store, id) == at(*n)));
    assert!(store.stat(ALL, &a).is_err());
    fine(&store);
}

#[test]
fn a_commit_of_short_writes_is_one_write_and_one_flush_and_one_of_long_ones_two_of_each() {
    let (emulator, _, store) = new_store(&large(), options());
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(200_000, 1))).unwrap();
    for (len, flushes, writes) in [(4096, 1, 2), (100, 1, 2), (100_000, 2, 3)] {
        let before = emulator.stats();
        does(&store, |t| _ = t.write(ALL, &id("a"), 4096, &content(len, 2))).unwrap();
        let after = emulator.stats();
        // The log of the tests' key-value store has two copies.
        assert_eq!(
            (after.flushes - before.flushes, after.total.writes - before.total.writes),
            (flushes, writes),
            "{len}"
        );
    }
}

/// While records of a group are written a transaction comes, so many times. They are told of their tickets.
fn follow(store: &BlueStore, hook: &Hook, n: u8, told: mpsc::Sender<Ticket>) {
    let Some(less) = n.checked_sub(1) else { return };
    let (again, of) = (hook.clone(), store.clone());
    hook.set_outside_gets(0, move || {
        let mut next = Transaction::new();
        next.write(ALL, &id("a"), u64::from(n) << 20, &content(100_000, n));
        told.send(of.queue(next).unwrap()).unwrap();
        follow(&of, &again, less, told);
    });
}

#[test]
fn groups_of_long_writes_that_follow_each_other_take_one_flush_each() {
    let (emulator, drive, store) = new_store(&large(), options());
    drop(store);
    let (store, hook) = open_hooked(&drive, Exec::Inline, options()).unwrap();
    // Its first zones are there.
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 8))).unwrap();
    let (told, tickets) = mpsc::channel();
    follow(&store, &hook, 5, told);
    let before = emulator.stats().flushes;
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 9))).unwrap();
    assert_eq!(emulator.stats().flushes - before, 2, "its data, and its records with the data of the next one");
    for n in 0..5 {
        let before = emulator.stats().flushes;
        store.wait(tickets.try_recv().unwrap()).unwrap();
        assert_eq!(emulator.stats().flushes - before, 1, "{n}");
    }
    assert!(tickets.try_recv().is_err());
    // Nothing was written that is not durable.
    drop((store, drive));
    let drive = Drive { device: Arc::new(emulator.after_power_loss(1).unwrap()), survivor: None };
    let store = open(&drive, Exec::Inline).unwrap();
    for n in 1..6 {
        assert!(store.read(ALL, &id("a"), u64::from(n) << 20, 100_000).unwrap() == content(100_000, n), "{n}");
    }
    fine(&store);
}

#[test]
fn a_store_knows_that_somebody_waits_although_nothing_comes_of_it() {
    let (_, drive, store) = new_store(&large(), options());
    drop(store);
    let (store, hook) = open_hooked(&drive, Exec::Inline, options()).unwrap();
    let (told, hears) = mpsc::channel();
    let of = store.clone();
    hook.set_outside_gets(0, move || told.send((of.is_waited_for(), of.activity())).unwrap());
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(4096, 1))).unwrap();
    assert_eq!(hears.recv(), Ok((true, store.activity())), "while its records are written");
    assert!(!store.is_waited_for());
    assert!(store.read(ALL, &id("none"), 0, 1).is_err() && !store.is_waited_for(), "who fails waits no more");
}

#[test]
fn a_clone_writes_no_data_and_outlives_what_it_was_made_of() {
    let (emulator, drive, store) = new_store(&large(), options());
    let bytes = content(4 << 20, 3);
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &bytes)).unwrap();
    let stored = store.usage().stored;
    let before = emulator.stats().total.bytes_written;
    does(&store, |t| _ = t.clone_object(ALL, &id("a"), &id("b"))).unwrap();
    let written = emulator.stats().total.bytes_written - before;
    assert!(written < 64 << 10, "{written} bytes for a clone");
    assert_eq!(store.usage().stored, stored);
    does(&store, |t| _ = t.write(ALL, &id("b"), 8192, &content(4096, 9)).remove(ALL, &id("a"))).unwrap();
    // The block that only the first one had is free.
    assert_eq!(store.usage().stored, stored - 4096);
    let mut then = bytes.clone();
    then[8192..12_288].copy_from_slice(&content(4096, 9));
    drop(store);
    let store = open(&drive, Exec::Inline).unwrap();
    assert!(store.read(ALL, &id("b"), 0, u64::MAX).unwrap() == then);
    does(&store, |t| _ = t.remove(ALL, &id("b"))).unwrap();
    store.pack().unwrap();
    assert_eq!((store.usage().stored, store.usage().deferred, store.usage().objects), (0, 0, 0));
    fine(&store);
}

/// Counts what it is asked to change.
struct Counting {
    inner: MapStore,
    changes: Mutex<Vec<Change>>,
}

impl KeyValue for Counting {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(family, key)
    }
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        self.inner.pairs(family, from, to, most)
    }
    fn write(&self, changes: &[Change]) -> Result<()> {
        self.changes.lock().unwrap().extend_from_slice(changes);
        self.inner.write(changes)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
}

fn counting(config: &Config, options: Options) -> (Arc<Counting>, BlueStore) {
    let drive = Drive { device: Arc::new(Emulator::memory(config).unwrap()), survivor: None };
    format(&drive).unwrap();
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let volume = Volume::open(drive, volume).unwrap();
    let kv = Arc::new(Counting { inner: MapStore::open(&volume).unwrap(), changes: Mutex::default() });
    let store = BlueStore::open(&volume.tenant(NAME).unwrap(), kv.clone(), options).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0)).unwrap();
    (kv, store)
}

#[test]
fn a_collection_is_divided_and_joined_by_two_records_however_many_objects_it_has() {
    let (kv, store) = counting(&large(), options());
    let mut all = Transaction::new();
    (0..2000).for_each(|n| _ = all.touch(ALL, &id(&n.to_string())));
    store.commit(all).unwrap();
    let list = |c| store.list(c, None, 5000).unwrap().all;
    let before = list(ALL);
    let half = CollectionId { pool: 1, seed: 1 };
    kv.changes.lock().unwrap().clear();
    does(&store, |t| _ = t.split_collection(ALL, half)).unwrap();
    let records = |kv: &Counting| {
        let changes = std::mem::take(&mut *kv.changes.lock().unwrap());
        changes.iter().filter(|change| !matches!(change, Change::Put(Family::Statistics, ..))).count()
    };
    assert_eq!(records(&kv), 2);
    let (one, other) = (list(ALL), list(half));
    assert!(one.iter().all(|id| id.hash & 1 == 0) && other.iter().all(|id| id.hash & 1 == 1));
    assert_eq!([one, other].concat(), before);
    fine(&store);
    does(&store, |t| _ = t.merge_collection(half, ALL)).unwrap();
    assert_eq!(records(&kv), 2);
    assert_eq!(list(ALL), before);
}

/// Bytes of records about objects' data, keys with them.
fn metadata(kv: &Counting) -> u64 {
    let families = [Family::Onodes, Family::Extents, Family::Blobs];
    let pairs = families.iter().flat_map(|family| kv.pairs(*family, &[], None, usize::MAX).unwrap());
    pairs.map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

#[test]
fn metadata_of_an_object_of_4_mib_are_few_kib() {
    for (hint, most) in [(Hint::default(), 6 << 10), (Hint { immutable: true, ..Hint::default() }, 1536)] {
        let (kv, store) = counting(&large(), options());
        for n in 0..16u64 {
            does(&store, |t| _ = t.hint(ALL, &id("a"), hint).write(ALL, &id("a"), n << 18, &content(1 << 18, n as u8)))
                .unwrap();
        }
        assert!(metadata(&kv) <= most, "{} bytes of {most}", metadata(&kv));
    }
    let (kv, store) = counting(&large(), options());
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(4 << 20, 0))).unwrap();
    for n in 0..1024u64 {
        let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        does(&store, |t| _ = t.write(ALL, &id("a"), at << 12, &content(4096, n as u8))).unwrap();
    }
    store.pack().unwrap();
    assert!(metadata(&kv) <= 64 << 10, "{} bytes after overwrites", metadata(&kv));
    fine(&store);
}

#[test]
fn a_flipped_bit_is_an_error_of_what_it_hit_and_of_nothing_else() {
    let (emulator, drive, store) = new_store(&large(), options());
    for n in 0..8u8 {
        does(&store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &content(100_000, n))).unwrap();
    }
    // The bytes of an object stand somewhere.
    let needle = &content(100_000, 5)[4096..4160];
    let geometry = drive.device.geometry().clone();
    let mut zone = imbrex_device::AlignedBuf::zeroed(1 << 20);
    let found = (2..120u32).find_map(|n| {
        let start = geometry.start(imbrex_device::ZoneId(n));
        imbrex_zones::volume::read_all(drive.device.as_ref(), &mut zone, start, imbrex_device::Cause::UserRead.into())
            .ok()?;
        zone.windows(64).step_by(64).position(|bytes| bytes == needle).map(|at| start + at as u64 * 64)
    });
    emulator.faults().flip_bits(found.unwrap() + 7, 16).unwrap();
    for n in 0..8u8 {
        let read = |at, len| store.read(ALL, &id(&n.to_string()), at, len).map_err(|error| error.code());
        let all = content(100_000, n);
        let expected = if n == 5 { Err(Code::Corruption) } else { Ok(all.clone()) };
        assert!(read(0, u64::MAX) == expected, "{n}");
        assert_eq!(read(0, 4096), Ok(all[..4096].to_vec()), "{n}");
        assert_eq!(read(8192, 91_808), Ok(all[8192..].to_vec()), "{n}");
    }
    let wrong = store.check(true).unwrap().wrong;
    assert!(wrong.len() == 1 && wrong[0].contains("cannot be read"), "{wrong:?}");
    assert!(store.check(false).unwrap().wrong.is_empty());
    // Whoever writes a part of the block hears of it; whoever writes all of it does not.
    assert_eq!(does(&store, |t| _ = t.write(ALL, &id("5"), 5000, b"x")), Err(Code::Corruption));
    does(&store, |t| _ = t.write(ALL, &id("5"), 4096, &content(4096, 50))).unwrap();
    fine(&store);
}

#[test]
fn metadata_of_another_store_are_refused() {
    let (_, drive, store) = new_store(&config(), options());
    drop(store);
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let volume = Volume::open(drive, volume).unwrap();
    let kv = Arc::new(MapStore::open(&volume).unwrap());
    let tenant = volume.tenant(NAME).unwrap();
    let first = kv.get(Family::Super, b"all").unwrap().unwrap();
    for at in [0, 8, 20, 30] {
        let mut other = first.clone();
        other[at] ^= 1;
        kv.write(&[Change::Put(Family::Super, b"all".to_vec(), other)]).unwrap();
        assert!(BlueStore::open(&tenant, kv.clone(), options()).is_err(), "{at}");
    }
    kv.write(&[Change::Delete(Family::Super, b"all".to_vec())]).unwrap();
    let error = BlueStore::open(&tenant, kv.clone(), options()).err().unwrap();
    assert_eq!(error.code(), Code::Corruption);
    kv.write(&[Change::Put(Family::Super, b"all".to_vec(), first)]).unwrap();
    fine(&BlueStore::open(&tenant, kv, options()).unwrap());
}

#[test]
fn callbacks_are_told_in_order_and_only_when_all_is_durable() {
    let (_, _, store) = new_store(&config(), options());
    let (told, hears) = mpsc::channel();
    let queue = |n: u32, step: &dyn Fn(&mut Transaction)| {
        let (mut transaction, told) = (Transaction::new(), told.clone());
        step(&mut transaction);
        transaction.on_commit(move |done| told.send((n, done.map_err(|error| error.code()))).unwrap());
        store.queue(transaction)
    };
    let tickets: Vec<_> = (0..3).map(|n| queue(n, &|t| _ = t.touch(ALL, &id("a"))).unwrap()).collect();
    queue(3, &|t| _ = t.remove(ALL, &id("none"))).unwrap_err();
    assert_eq!(hears.try_recv(), Ok((3, Err(Code::NotFound))));
    assert!(hears.try_recv().is_err());
    store.wait(tickets[0]).unwrap();
    assert_eq!(
        hears.try_iter().map(|(n, done)| (n, done.is_ok())).collect::<Vec<_>>(),
        [(0, true), (1, true), (2, true)]
    );
}

#[test]
fn a_failed_commit_ends_all_and_says_so() {
    let (emulator, drive, store) = new_store(&config(), options());
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(9000, 1))).unwrap();
    emulator.faults().fail_flushes(1);
    let (told, hears) = mpsc::channel();
    let mut transaction = Transaction::new();
    transaction.write(ALL, &id("a"), 0, b"new").on_commit(move |done| told.send(done.is_ok()).unwrap());
    assert!(store.commit(transaction).is_err());
    assert_eq!(hears.recv(), Ok(false));
    assert_eq!(does(&store, |t| _ = t.touch(ALL, &id("b"))), Err(Code::Poisoned));
    drop(store);
    let store = open(&drive, Exec::Inline).unwrap();
    let bytes = store.read(ALL, &id("a"), 0, 3).unwrap();
    assert!(bytes == b"new" || bytes == content(9000, 1)[..3]);
    fine(&store);
}

#[test]
fn a_full_drive_refuses_bytes_and_takes_them_when_others_are_deleted() {
    let (_, drive, store) = new_store(&config(), options());
    let mut n = 0;
    while does(&store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(200_000, n as u8))).is_ok() {
        n += 1;
    }
    assert!(n > 20, "{n} objects fit");
    assert_eq!(does(&store, |t| _ = t.write(ALL, &id("more"), 0, &content(200_000, 1))), Err(Code::NoSpace));
    assert!((0..n).all(|n| store.read(ALL, &id(&format!("{n}")), 0, u64::MAX).unwrap() == content(200_000, n as u8)));
    fine(&store);
    drop(store);
    let store = open(&drive, Exec::Inline).unwrap();
    let mut all = Transaction::new();
    (0..n).for_each(|n| _ = all.remove(ALL, &id(&format!("{n}"))));
    store.commit(all).unwrap();
    store.pack().unwrap();
    assert_eq!((store.usage().stored, store.usage().uncounted), (0, 0));
    let again = (0..n)
        .take_while(|n| does(&store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(200_000, 1))).is_ok());
    assert!(again.count() + 1 >= n, "the room of what was deleted has not come back");
    fine(&store);
}

#[test]
fn threads_change_objects_while_others_read_them() {
    let drive = Drive { device: Arc::new(Emulator::memory(&large()).unwrap()), survivor: None };
    format(&drive).unwrap();
    let store = open(&drive, Exec::Threads(1)).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0)).unwrap();
    // Each version of an object has one byte, all over it.
    let lens = [70_000usize, 5000, 300_000];
    for (n, len) in lens.iter().enumerate() {
        does(&store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &vec![1; *len])).unwrap();
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3usize {
            let (store, over) = (&store, &over);
            scope.spawn(move || {
                let mut reads = 0;
                while !over.load(std::sync::atomic::Ordering::Relaxed) || reads < 10 {
                    let n = (reads + reader) % 3;
                    let bytes = store.read(ALL, &id(&n.to_string()), 0, u64::MAX).unwrap();
                    assert_eq!(bytes.len(), lens[n]);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "an object of two versions");
                    reads += 1;
                }
            });
        }
        let writers: Vec<_> = (0..3usize)
            .map(|n| {
                let store = &store;
                scope.spawn(move || {
                    for version in 2..40u8 {
                        does(store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &vec![version; lens[n]])).unwrap();
                        if version % 10 == 0 {
                            store.pack().unwrap();
                        }
                    }
                })
            })
            .collect();
        // Also where one has failed, so that the readers end.
        let done: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        done.into_iter().for_each(|done| done.unwrap());
    });
    fine(&store);
    drop(store);
    let store = open(&drive, Exec::Inline).unwrap();
    assert!((0..3).all(|n| store.read(ALL, &id(&n.to_string()), 0, 1).unwrap() == [39]));
}

#[test]
fn where_zones_have_died_the_key_value_store_takes_what_was_accepted() {
    let (emulator, drive, store) = new_store(&large(), options());
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 1))).unwrap();
    let mut transaction = Transaction::new();
    transaction.write(ALL, &id("b"), 0, &content(1_500_000, 2)).write(ALL, &id("c"), 0, &content(100_000, 3));
    store.queue(transaction).unwrap();
    // The first zones are those of the key-value store's log.
    for zone in imbrex_device::report_all(drive.device.as_ref()).unwrap().iter().filter(|zone| zone.id.0 >= 11) {
        emulator.faults().make_read_only(zone.id).unwrap();
    }
    store.sync().unwrap();
    assert!(store.usage().deferred > 0, "{:?}", store.usage());
    // Some of it goes before it is packed.
    does(&store, |t| _ = t.zero(ALL, &id("b"), 300_000, 50_000).remove(ALL, &id("c"))).unwrap();
    store.pack().unwrap();
    let expected = {
        let mut bytes = content(1_500_000, 2);
        bytes[300_000..350_000].fill(0);
        bytes
    };
    let right = |store: &BlueStore| {
        assert!(store.read(ALL, &id("a"), 0, u64::MAX).unwrap() == content(100_000, 1));
        assert!(store.read(ALL, &id("b"), 0, u64::MAX).unwrap() == expected);
        fine(store);
    };
    right(&store);
    drop(store);
    right(&open(&drive, Exec::Inline).unwrap());
}

#[test]
fn a_zone_that_goes_offline_costs_what_was_in_it() {
    for restart in [false, true] {
        let (emulator, drive, mut store) = new_store(&large(), options());
        // Each has more than a zone, so that no zone has more than two.
        for n in 0..4u8 {
            does(&store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &content(1_500_000, n))).unwrap();
        }
        let written = |zone: &imbrex_device::Zone| zone.state == imbrex_device::ZoneState::Full;
        let full: Vec<_> =
            imbrex_device::report_all(drive.device.as_ref()).unwrap().into_iter().filter(written).collect();
        emulator.faults().make_offline(full[full.len() / 2].id).unwrap();
        if restart {
            drop(store);
            store = open(&drive, Exec::Inline).unwrap();
        }
        let read = |n: u8| store.read(ALL, &id(&n.to_string()), 0, u64::MAX);
        let lost = (0..4u8).filter(|n| read(*n).map_or(true, |bytes| bytes != content(1_500_000, *n))).count();
        assert!((1..=2).contains(&lost), "{lost} objects of 4");
        assert!((0..4u8).all(|n| read(n).is_ok_and(|bytes| bytes == content(1_500_000, n)) || read(n).is_err()));
        let wrong = store.check(true).unwrap().wrong;
        assert!(!wrong.is_empty() && store.check(false).unwrap().wrong.is_empty(), "{wrong:#?}");
        // It goes on, and what is lost can be deleted.
        does(&store, |t| _ = t.write(ALL, &id("new"), 0, &content(1_500_000, 9))).unwrap();
        let mut all = Transaction::new();
        (0..4u8).for_each(|n| _ = all.remove(ALL, &id(&n.to_string())));
        store.commit(all).unwrap();
        fine(&store);
        drop(store);
        let store = open(&drive, Exec::Inline).unwrap();
        assert!(store.read(ALL, &id("new"), 0, u64::MAX).unwrap() == content(1_500_000, 9));
        fine(&store);
    }
}

/// What an overwrite takes away waits, where the records of its blobs are not in memory, over restarts, too. Clones keep what they share.
#[test]
fn changes_of_counts_wait_and_are_made_together() {
    let (_, drive, store) = new_store(&config(), Options { count_from: 1000, defer_below: 0, ..options() });
    let bytes = content(1 << 20, 1);
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &bytes).clone_object(ALL, &id("a"), &id("b"))).unwrap();
    let stored = store.usage().stored;
    for n in (0..256).step_by(3) {
        does(&store, |t| _ = t.write(ALL, &id("a"), n << 12, &content(4096, 9))).unwrap();
    }
    does(&store, |t| _ = t.remove(ALL, &id("b"))).unwrap();
    let waiting = store.usage().uncounted;
    assert!(waiting > 40, "{waiting}");
    drop(store);
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    assert_eq!(store.usage().uncounted, waiting);
    assert!(store.usage().stored > stored);
    let mut expected = bytes;
    (0..256).step_by(3).for_each(|n| expected[n << 12..(n + 1) << 12].copy_from_slice(&content(4096, 9)));
    assert!(store.read(ALL, &id("a"), 0, u64::MAX).unwrap() == expected);
    // More than shall wait now: whoever writes makes them, a page at a time.
    does(&store, |t| _ = t.touch(ALL, &id("c"))).unwrap();
    assert_eq!((store.usage().uncounted, store.usage().stored), (0, stored));
    assert!(store.read(ALL, &id("a"), 0, u64::MAX).unwrap() == expected);
    fine(&store);
}

/// 400 short blobs are packed into two runs of a zone each, whose headers have two blocks. What is read again, moved and checked says that they are understood.
#[test]
fn a_run_of_many_pieces_has_a_header_of_several_blocks() {
    let (emulator, _, store) = new_store(&large(), options());
    let mut expected = vec![0; 801 << 12];
    let mut all = Transaction::new();
    for n in 0..400 {
        let bytes = content(4096, n as u8);
        all.write(ALL, &id("a"), (2 * n) << 12, &bytes);
        expected[(2 * n as usize) << 12..(2 * n as usize + 1) << 12].copy_from_slice(&bytes);
    }
    expected.truncate(799 << 12);
    store.commit(all).unwrap();
    assert!(store.pack().unwrap());
    assert_eq!(store.usage().deferred, 0);
    assert!(store.read(ALL, &id("a"), 0, u64::MAX).unwrap() == expected);
    fine(&store);
    // What lives of it moves, after a loss of power.
    let drive = Drive { device: Arc::new(emulator.after_power_loss(7).unwrap()), survivor: None };
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    does(&store, |t| _ = t.zero(ALL, &id("a"), 0, 300 << 12)).unwrap();
    store.pack().unwrap();
    expected[..300 << 12].fill(0);
    assert!(store.clean(64 << 20).unwrap() > 50 << 12);
    assert!(store.read(ALL, &id("a"), 0, u64::MAX).unwrap() == expected);
    fine(&store);
}
