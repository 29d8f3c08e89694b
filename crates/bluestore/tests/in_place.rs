//! A store in place: what its disk has to do, how full it can be, zones that come and go, and disks that fail.

mod support;

use imbrex_bluestore::{
    BlueStore, CollectionId, Compression, Fullness, Hint, Layout, ObjectId, Options, Survives, Transaction,
};
use imbrex_device::{Code, Drive, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use support::{bands, config, content, format, in_place, make_bands, open_with, options, plain};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: u64 = 4096;

/// A disk that counts, and fails when it is told to.
struct Watched {
    below: Arc<dyn ZonedDevice>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    /// Bytes of data that were written.
    written: u64,
    /// Commands of data, flushes, and zones that were set in place.
    writes: u64,
    flushes: u64,
    set: u64,
    /// So many of the next writes in place fail.
    failing: u64,
    /// All of these zones fail; `None`: all.
    bad: Option<BTreeSet<u32>>,
    /// None can be set in place.
    refuses: u64,
    /// Is called when something was written in place.
    behind: Option<Box<dyn FnMut() + Send>>,
}

impl Watched {
    fn fails(&self, zone: ZoneId) -> Result<()> {
        let mut now = self.now.lock().unwrap();
        let due = now.failing > 0 && now.bad.as_ref().is_none_or(|bad| bad.contains(&zone.0));
        if due {
            now.failing -= 1;
            return Err(Error::io(&self.identity().name, std::io::Error::other("told to fail")));
        }
        Ok(())
    }
}

impl ZonedDevice for Watched {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.below.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.below.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.now.lock().unwrap().flushes += 1;
        self.below.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn overwrites(&self) -> bool {
        true
    }
    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        let mut now = self.now.lock().unwrap();
        if now.refuses > 0 {
            now.refuses -= 1;
            return Err(Error::io(&self.identity().name, std::io::Error::other("told to fail")));
        }
        now.set += 1;
        drop(now);
        self.below.set_in_place(zone, tag)
    }
    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.fails(self.geometry().zone_of(at))?;
        let mut now = self.now.lock().unwrap();
        (now.writes, now.written) = (now.writes + 1, now.written + buf.len() as u64);
        let mut behind = now.behind.take();
        drop(now);
        self.below.write_in_place(buf, at, tag)?;
        behind.iter_mut().for_each(|behind| behind());
        self.now.lock().unwrap().behind = behind;
        Ok(())
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
}

struct All {
    emulator: Arc<Emulator>,
    watched: Arc<Watched>,
    drive: Drive,
    store: BlueStore,
}

/// What is written goes to its place at once, and stands there as it is.
fn at_once(unit: u32) -> Options {
    Options { defer_below: 0, compression: Default::default(), ..in_place(unit) }
}

fn new_on(config: &Config, options: Options) -> All {
    let emulator = Arc::new(Emulator::memory(config).unwrap());
    let below = Drive { device: emulator.clone(), survivor: None };
    make_bands(&below).unwrap();
    let watched = Arc::new(Watched { below: bands(&below).unwrap().device, now: Mutex::default() });
    let drive = Drive { device: watched.clone(), survivor: None };
    format(&drive).unwrap();
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0));
    All { emulator, watched, drive, store }
}

fn new(options: Options) -> All {
    new_on(&plain(), options)
}

fn id(n: u64) -> ObjectId {
    ObjectId::new(1, b"", format!("{n}").as_bytes())
}

fn queue(store: &BlueStore, what: impl FnOnce(&mut Transaction)) -> Result<()> {
    let mut t = Transaction::new();
    what(&mut t);
    store.queue(t).map(drop)
}

fn does(store: &BlueStore, what: impl FnOnce(&mut Transaction)) {
    queue(store, what).unwrap();
    store.sync().unwrap();
}

fn is_whole(store: &BlueStore) {
    assert_eq!(store.check(true).unwrap().wrong, Vec::<String>::new());
}

#[test]
fn what_is_overwritten_is_free_at_once_and_nothing_moves() {
    for unit in [4 << 10, 16 << 10] {
        let All { watched, drive, store, .. } = new(Options { full: 100, ..at_once(unit) });
        let (objects, each) = (24, 256 << 10);
        (0..objects).for_each(|n| does(&store, |t| _ = t.write(ALL, &id(n), 0, &content(each, n as u8))));
        let stored = store.usage().stored;
        assert_eq!(stored, objects * each);
        let before = watched.now.lock().unwrap().written;
        let mut rng = ChaCha8Rng::seed_from_u64(unit.into());
        let mut bytes: Vec<Vec<u8>> = (0..objects).map(|n| content(each, n as u8)).collect();
        let mut asked = 0;
        // In whole units, so that they come free.
        let unit = u64::from(unit);
        for n in 0..400 {
            let (object, len) = (rng.random_range(0..objects), unit * rng.random_range(1..4));
            let at = rng.random_range(0..=(each - len) / unit) * unit;
            let new = content(len, n as u8);
            bytes[object as usize][at as usize..(at + len) as usize].copy_from_slice(&new);
            queue(&store, |t| _ = t.write(ALL, &id(object), at, &new)).unwrap();
            asked += len;
            if n % 7 == 0 {
                store.sync().unwrap();
            }
        }
        store.sync().unwrap();
        store.check(false).unwrap();
        let now = watched.now.lock().unwrap();
        // But for headers of zones, and for what was overwritten before it was written.
        assert!(now.written - before <= asked + now.set * BLOCK, "{} for {asked}", now.written - before);
        drop(now);
        assert_eq!((store.usage().stored, store.usage().moved), (stored, 0));
        is_whole(&store);
        drop(store);
        // It is as it was made, also for whoever does not say so.
        let store = open_with(&drive, Exec::Inline, Options { layout: Layout::Usual, ..options() }).unwrap();
        for (n, bytes) in bytes.iter().enumerate() {
            assert!(store.read(ALL, &id(n as u64), 0, each).unwrap() == *bytes, "object {n}");
        }
        is_whole(&store);
    }
}

/// Writes objects of so many bytes until there is no room. Returns how many there are.
fn fill(store: &BlueStore, first: u64, each: u64) -> u64 {
    for n in first.. {
        match queue(store, |t| _ = t.write(ALL, &id(n), 0, &content(each, n as u8))) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.code(), Code::NoSpace, "{error}");
                store.sync().unwrap();
                return n - first;
            }
        }
    }
    unreachable!()
}

#[test]
fn a_full_store_takes_as_much_again_when_it_was_emptied() {
    for (unit, each) in [(4 << 10, 100 << 10), (16 << 10, 48 << 10)] {
        let All { drive, store, .. } = new(Options { full: 100, ..at_once(unit) });
        let count = fill(&store, 0, each);
        let capacity = store.usage().capacity;
        let rounded = each.next_multiple_of(u64::from(unit));
        assert!(count * rounded >= capacity * 9 / 10, "{count} objects of {rounded} bytes of {capacity}");
        assert!(store.usage().stored <= capacity);
        is_whole(&store);
        for n in 0..count {
            assert!(store.read(ALL, &id(n), 0, each).unwrap() == content(each, n as u8), "object {n}");
        }
        // Every second one: what comes then has to be cut into pieces.
        (0..count).step_by(2).for_each(|n| queue(&store, |t| _ = t.remove(ALL, &id(n))).unwrap());
        store.sync().unwrap();
        let more = fill(&store, 1000, 3 * each / 2);
        let longer = (3 * each / 2).next_multiple_of(u64::from(unit));
        assert!((more + 2) * longer >= count / 2 * rounded, "{more} of {count}");
        is_whole(&store);
        drop(store);
        let store = open_with(&drive, Exec::Inline, at_once(unit)).unwrap();
        for n in (1..count).step_by(2) {
            assert!(store.read(ALL, &id(n), 0, each).unwrap() == content(each, n as u8), "object {n}");
        }
        for n in 1000..1000 + more {
            assert!(store.read(ALL, &id(n), 0, 3 * each / 2).unwrap() == content(3 * each / 2, n as u8), "object {n}");
        }
        // All goes, and the zones with it, but for one.
        let all = (1..count).step_by(2).chain(1000..1000 + more);
        all.for_each(|n| queue(&store, |t| _ = t.remove(ALL, &id(n))).unwrap());
        // Changes of counts that wait are made.
        store.pack().unwrap();
        store.sync().unwrap();
        assert_eq!(store.usage().stored, 0);
        does(&store, |t| _ = t.touch(ALL, &id(1)));
        does(&store, |t| _ = t.touch(ALL, &id(2)));
        let free = store.usage().free;
        assert!(free >= capacity, "{free} of {capacity}");
        let again = fill(&store, 5000, each);
        // The metadata may have taken a zone or two meanwhile.
        assert!(again >= count * 9 / 10 && again * rounded >= store.usage().capacity * 9 / 10, "{again} of {count}");
        is_whole(&store);
    }
}

#[test]
fn a_store_that_is_full_takes_overwrites_when_what_they_replace_is_gone() {
    let All { store, .. } = new(Options { full: 100, ..at_once(4 << 10) });
    let count = fill(&store, 0, 100 << 10);
    for n in 0..3 * count {
        // The old blocks are free when the transaction is durable, and there is room for as many.
        let object = n * 7 % count;
        queue(&store, |t| _ = t.truncate(ALL, &id(object), 0)).unwrap();
        queue(&store, |t| _ = t.write(ALL, &id(object), 0, &content(100 << 10, n as u8))).unwrap();
    }
    store.sync().unwrap();
    is_whole(&store);
    assert!(store.usage().fullness > Fullness::Room);
}

#[test]
fn a_long_write_is_few_commands_and_a_transaction_one_flush() {
    let All { watched, store, .. } = new(at_once(4 << 10));
    does(&store, |t| _ = t.write(ALL, &id(0), 0, &content(4096, 1)));
    let count = || {
        let now = watched.now.lock().unwrap();
        (now.writes, now.flushes, now.set)
    };
    let before = count();
    // Four blobs of 256 KiB in zones of 256 KiB, of which one block each is the header.
    does(&store, |t| _ = t.write(ALL, &id(1), 0, &content(1 << 20, 2)));
    let (writes, _, set) = count();
    let (writes, set) = (writes - before.0, set - before.2);
    assert!(set >= 3 && writes <= 3 * set + 2, "{writes} writes, {set} zones");
    let before = count();
    // Short ones of one transaction stand side by side.
    does(&store, |t| (0..10).for_each(|n| _ = t.write(ALL, &id(10 + n), 0, &content(4096, n as u8))));
    let now = count();
    assert!(now.0 - before.0 <= 2 + 2 * (now.2 - before.2), "{} commands", now.0 - before.0);
    // One for data and one for records, of the key-value store of these tests.
    assert_eq!((now.1 - before.1, now.2 - before.2), (2, 0));
}

#[test]
fn a_write_that_fails_goes_elsewhere() {
    let All { watched, drive, store, .. } = new(at_once(4 << 10));
    does(&store, |t| _ = t.write(ALL, &id(0), 0, &content(50 << 10, 1)));
    // Once: nobody notices.
    watched.now.lock().unwrap().failing = 1;
    does(&store, |t| _ = t.write(ALL, &id(1), 0, &content(50 << 10, 2)));
    // A zone for good: it is left alone, and what stands there is read.
    watched.now.lock().unwrap().failing = 2;
    does(&store, |t| _ = t.write(ALL, &id(2), 0, &content(50 << 10, 3)));
    assert_eq!(watched.now.lock().unwrap().failing, 0);
    // Zones that cannot be set in place.
    watched.now.lock().unwrap().refuses = 1;
    does(&store, |t| _ = t.write(ALL, &id(3), 0, &content(900 << 10, 4)));
    let lengths = [50 << 10, 50 << 10, 50 << 10, 900 << 10];
    let all_there = |store: &BlueStore| {
        for (n, len) in lengths.into_iter().enumerate() {
            let n = n as u64;
            assert!(store.read(ALL, &id(n), 0, len).unwrap() == content(len, n as u8 + 1), "object {n}");
        }
        is_whole(store);
    };
    all_there(&store);
    drop(store);
    let store = open_with(&drive, Exec::Inline, at_once(4 << 10)).unwrap();
    all_there(&store);
    // Where every zone fails the key-value store takes the bytes.
    watched.now.lock().unwrap().failing = u64::MAX;
    does(&store, |t| _ = t.write(ALL, &id(4), 0, &content(50 << 10, 5)));
    assert_eq!(store.usage().deferred, 52 << 10);
    all_there(&store);
    drop(store);
    watched.now.lock().unwrap().failing = 0;
    let store = open_with(&drive, Exec::Inline, at_once(4 << 10)).unwrap();
    store.pack().unwrap();
    assert_eq!(store.usage().deferred, 0);
    assert!(store.read(ALL, &id(4), 0, 50 << 10).unwrap() == content(50 << 10, 5));
    all_there(&store);
}

#[test]
fn a_store_stays_as_it_was_made_and_says_so() {
    let All { drive, store, .. } = new(at_once(16 << 10));
    drop(store);
    let with = |layout, min_alloc| Options { layout, min_alloc, ..options() };
    let says = |drive: &Drive, options: Options, text: &str| {
        let error = open_with(drive, Exec::Inline, options).err().unwrap();
        assert!(matches!(error.fault, Fault::Unusable(_)) && error.to_string().contains(text), "{error}");
    };
    says(&drive, with(Layout::Zones, None), "leave layout=zones out");
    says(&drive, with(Layout::Usual, Some(4 << 10)), "units of 16384 bytes; leave min-alloc out");
    for min_alloc in [None, Some(16 << 10)] {
        drop(open_with(&drive, Exec::Inline, with(Layout::Usual, min_alloc)).unwrap());
    }
    // On zones, and on a disk that could be overwritten.
    let below = Drive { device: Arc::new(Emulator::memory(&plain()).unwrap()), survivor: None };
    make_bands(&below).unwrap();
    let bands = bands(&below).unwrap();
    let zoned = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
    for drive in [&bands, &zoned] {
        format(drive).unwrap();
        if !drive.device.overwrites() {
            says(drive, with(Layout::InPlace, None), "needs a drive that can overwrite");
        }
        says(drive, with(Layout::Usual, Some(5000)), "a power of two");
        says(drive, with(Layout::InPlace, Some(128 << 10)), "a sixteenth of a zone");
        let store = open_with(drive, Exec::Inline, with(Layout::Zones, None)).unwrap();
        does(&store, |t| _ = t.create_collection(ALL, 0).write(ALL, &id(1), 0, &content(100_000, 1)));
        drop(store);
        says(drive, with(Layout::InPlace, None), "leave layout=in-place out");
        let store = open_with(drive, Exec::Inline, with(Layout::Usual, None)).unwrap();
        is_whole(&store);
    }
}

/// A loss of power that keeps the last write only.
fn with_the_last_write(emulator: &Emulator) -> Emulator {
    let mut all = 0;
    let count = &mut |_| {
        all += 1;
        0
    };
    emulator.after_power_loss_choosing(count).unwrap();
    let mut n = 0;
    let choose = &mut |most| {
        n += 1;
        if n == all { most } else { 0 }
    };
    emulator.after_power_loss_choosing(choose).unwrap()
}

#[test]
fn nobody_gets_units_whose_end_is_not_durable() {
    let All { emulator, watched, store, .. } = new(Options { full: 100, ..at_once(4 << 10) });
    let each = 40 << 10;
    let count = fill(&store, 0, each);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let (to, of) = (lost.clone(), emulator.clone());
    watched.now.lock().unwrap().behind = Some(Box::new(move || to.lock().unwrap().push(with_the_last_write(&of))));
    for n in 0..12 {
        // It outlives the process, and nobody has made it durable.
        let mut t = Transaction::new();
        t.remove(ALL, &id(n));
        store.wait_for(store.queue(t).unwrap(), Survives::Process).unwrap();
        let mut t = Transaction::new();
        t.write(ALL, &id(count + n), 0, &content(each, 99));
        store.wait_for(store.queue(t).unwrap(), Survives::Process).unwrap();
    }
    watched.now.lock().unwrap().behind = None;
    let lost = std::mem::take(&mut *lost.lock().unwrap());
    assert!(lost.len() >= 12, "{} states", lost.len());
    for (state, lost) in lost.into_iter().enumerate() {
        let drive = bands(&Drive { device: Arc::new(lost), survivor: None }).unwrap();
        let store = open_with(&drive, Exec::Inline, at_once(4 << 10)).unwrap();
        is_whole(&store);
        for n in 0..count {
            match store.read(ALL, &id(n), 0, each) {
                Ok(read) => assert!(read == content(each, n as u8), "state {state}: object {n}"),
                Err(error) => assert_eq!((error.code(), n < 12), (Code::NotFound, true), "state {state}: {error}"),
            }
        }
    }
}

#[test]
fn free_units_that_are_too_short_are_no_room_and_end_nothing() {
    // A compressed blob has one piece, and the immutable one's grains are long.
    for hint in [Hint::default(), Hint { immutable: true, ..Hint::default() }] {
        let compression = if hint.immutable { Compression::Off } else { Compression::Lz4 };
        let All { drive, store, .. } = new(Options { full: 100, compression, ..at_once(4 << 10) });
        let count = fill(&store, 0, BLOCK);
        // Every second block of all that is there is free then.
        (0..count).step_by(2).for_each(|n| queue(&store, |t| _ = t.remove(ALL, &id(n))).unwrap());
        store.sync().unwrap();
        // Half of it stays when it is compressed. The metadata of these tests have room for two megabytes.
        let bytes: Vec<u8> =
            content(64 << 10, 3).chunks(4096).flat_map(|part| [&part[..2048], &[0; 2048]].concat()).collect();
        let mut more = 0;
        for n in 0..10 * count {
            let written =
                queue(&store, |t| _ = t.hint(ALL, &id(1 << 20 | n), hint).write(ALL, &id(1 << 20 | n), 0, &bytes));
            match written {
                Ok(()) => more += 1,
                Err(error) => {
                    assert_eq!(error.code(), Code::NoSpace, "{error}");
                    break;
                }
            }
            store.sync().unwrap();
        }
        // It goes on: deleting, and what is as short as what is free.
        queue(&store, |t| _ = t.remove(ALL, &id(1))).unwrap();
        store.sync().unwrap();
        queue(&store, |t| _ = t.write(ALL, &id(1), 0, &content(BLOCK, 1))).unwrap();
        store.sync().unwrap();
        is_whole(&store);
        drop(store);
        let store = open_with(&drive, Exec::Inline, at_once(4 << 10)).unwrap();
        for n in 0..more {
            assert!(store.read(ALL, &id(1 << 20 | n), 0, 1 << 20).unwrap() == bytes, "object {n} of {more}");
        }
    }
}
