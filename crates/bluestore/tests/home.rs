//! Overwritten blocks of a store in place go where the old ones stood, if that is free.

mod support;

use imbrex_bluestore::{BlueStore, CollectionId, Compression, ObjectId, Options, Survives, Transaction};
use imbrex_device::{Cause, Code, Drive, Error, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use support::{bands, content, format, in_place, make_bands, open_with, plain};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: u64 = 4096;

/// A disk that says where blocks of data were written, and that fails in some zones.
struct Seen {
    below: Arc<dyn ZonedDevice>,
    blocks: Mutex<Vec<u64>>,
    bad: Mutex<BTreeSet<u32>>,
    refused: Mutex<u64>,
}

impl Seen {
    /// Where blocks were written since the last call.
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.blocks.lock().unwrap())
    }
}

impl ZonedDevice for Seen {
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
        self.below.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn overwrites(&self) -> bool {
        true
    }
    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.set_in_place(zone, tag)
    }
    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let zone = self.geometry().zone_of(at);
        if self.bad.lock().unwrap().contains(&zone.0) {
            *self.refused.lock().unwrap() += 1;
            return Err(Error::io(&self.identity().name, std::io::Error::other("told to fail")));
        }
        // The first block of a zone is its header.
        let blocks = (at..at + buf.len() as u64).step_by(BLOCK as usize);
        self.blocks.lock().unwrap().extend(blocks.filter(|at| *at > self.geometry().start(zone)));
        self.below.write_in_place(buf, at, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
}

/// 64 zones of a MiB.
fn large() -> Config {
    Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 64 << 20, conventional: 64, ..plain() }
}

struct All {
    emulator: Arc<Emulator>,
    seen: Arc<Seen>,
    drive: Drive,
    store: BlueStore,
    /// What objects have, by number.
    bytes: Vec<Vec<u8>>,
    rng: ChaCha8Rng,
}

/// Changes of counts wait until they are asked for.
fn options(unit: u32) -> Options {
    let compression = Compression::Off;
    Options { defer_below: 64 << 10, count_from: 64 << 10, full: 100, compression, ..in_place(unit) }
}

fn id(n: usize) -> ObjectId {
    ObjectId::new(1, b"", format!("{n}").as_bytes())
}

/// Objects that were written in order.
fn new(config: &Config, options: Options, objects: usize, each: u64) -> All {
    let emulator = Arc::new(Emulator::memory(config).unwrap());
    let below = Drive { device: emulator.clone(), survivor: None };
    make_bands(&below).unwrap();
    let below = bands(&below).unwrap().device;
    let seen = Seen { below, blocks: Mutex::default(), bad: Mutex::default(), refused: Mutex::default() };
    let seen = Arc::new(seen);
    let drive = Drive { device: seen.clone(), survivor: None };
    format(&drive).unwrap();
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    let mut t = Transaction::new();
    store.commit(std::mem::take(t.create_collection(ALL, 0))).unwrap();
    let bytes: Vec<_> = (0..objects).map(|n| content(each, n as u8)).collect();
    for (n, bytes) in bytes.iter().enumerate() {
        store.commit(std::mem::take(t.write(ALL, &id(n), 0, bytes))).unwrap();
    }
    All { emulator, seen, drive, store, bytes, rng: ChaCha8Rng::seed_from_u64(1) }
}

impl All {
    /// Overwrites so many bytes of an object, which no process forgets.
    fn overwrite(&mut self, object: usize, at: u64, len: u64) {
        let new = content(len, self.rng.random());
        self.bytes[object][at as usize..(at + len) as usize].copy_from_slice(&new);
        let mut t = Transaction::new();
        t.write(ALL, &id(object), at, &new);
        self.store.wait_for(self.store.queue(t).unwrap(), Survives::Process).unwrap();
    }

    /// Anywhere, where a unit begins, a number of units.
    fn overwrite_any(&mut self, unit: u64) {
        let object = self.rng.random_range(0..self.bytes.len());
        let units = self.bytes[object].len() as u64 / unit;
        let len = self.rng.random_range(1..=(32 << 10) / unit).min(units);
        let at = self.rng.random_range(0..=units - len);
        self.overwrite(object, at * unit, len * unit);
    }

    fn pack(&self) {
        while self.store.pack().unwrap() {}
        assert_eq!(self.store.usage().deferred, 0);
    }

    fn is_right(&self) {
        for (n, bytes) in self.bytes.iter().enumerate() {
            assert!(self.store.read(ALL, &id(n), 0, u64::MAX).unwrap() == *bytes, "object {n}");
        }
        assert_eq!(self.store.check(true).unwrap().wrong, Vec::<String>::new());
    }

    /// Commands that reading all in order takes.
    fn commands(&self) -> u64 {
        self.emulator.reset_stats();
        for (n, bytes) in self.bytes.iter().enumerate() {
            for (at, part) in (0..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
                assert!(self.store.read(ALL, &id(n), at, 1 << 20).unwrap() == part);
            }
        }
        self.emulator.stats().by_cause[Cause::UserRead.name()].reads
    }
}

fn set(blocks: Vec<u64>) -> BTreeSet<u64> {
    blocks.into_iter().collect()
}

#[test]
fn what_is_overwritten_stands_where_it_stood_and_is_read_in_as_few_commands() {
    for (unit, cache) in [(4 << 10, 0), (4 << 10, 16 << 20), (16 << 10, 8 << 10)] {
        let mut a = new(&large(), Options { cache, ..options(unit) }, 4, 2 << 20);
        let (first, commands) = (set(a.seen.take()), a.commands());
        assert_eq!(first.len() as u64 * BLOCK, 8 << 20);
        for round in 0..4 {
            for n in 0..60 {
                a.overwrite_any(unit.into());
                if n % 17 == round {
                    a.store.sync().unwrap();
                }
            }
            a.pack();
            let written = set(a.seen.take());
            assert!(written.len() > 60 && written.is_subset(&first), "{:?}", written.difference(&first).next());
            assert_eq!((a.store.usage().stored, a.commands()), (8 << 20, commands));
        }
        a.is_right();
        // An opening changes nothing of that.
        let All { drive, store, .. } = a;
        drop(store);
        a = All { store: open_with(&drive, Exec::Inline, options(unit)).unwrap(), drive, ..a };
        a.overwrite_any(unit.into());
        a.pack();
        assert!(set(a.seen.take()).is_subset(&first));
        a.is_right();
    }
}

#[test]
fn commits_pack_by_themselves_when_enough_has_gathered() {
    let mut a = new(&large(), options(4 << 10), 4, 2 << 20);
    let (first, commands) = (set(a.seen.take()), a.commands());
    let (mut most, mut written) = (0, 0);
    for n in 0..800 {
        a.overwrite_any(BLOCK);
        most = most.max(a.store.usage().deferred);
        let now = a.seen.take();
        written += now.len();
        assert!(set(now).is_subset(&first), "write {n}");
    }
    // A MiB on a drive of this size, and what comes until it is packed.
    assert!((1 << 20..2 << 20).contains(&most) && written > 1000, "{most} bytes, {written} blocks");
    a.pack();
    assert!(set(a.seen.take()).is_subset(&first));
    assert_eq!(a.commands(), commands);
    a.is_right();
}

#[test]
fn what_a_clone_shares_is_not_overwritten() {
    let mut a = new(&large(), options(4 << 10), 2, 1 << 20);
    let first = set(a.seen.take());
    let mut t = Transaction::new();
    a.store.commit(std::mem::take(t.clone_object(ALL, &id(0), &id(9)))).unwrap();
    let old = a.bytes[0].clone();
    (0..40).for_each(|n| a.overwrite(0, n * 5 * BLOCK, BLOCK));
    a.pack();
    let second = set(a.seen.take());
    assert!(second.len() == 40 && second.is_disjoint(&first));
    // The same blocks again: those are nobody else's. They stand side by side, and not in the order of the object, so any place is as good.
    (0..40).for_each(|n| a.overwrite(0, n * 5 * BLOCK, BLOCK));
    a.pack();
    assert!(set(a.seen.take()).is_disjoint(&first));
    assert!(a.store.read(ALL, &id(9), 0, u64::MAX).unwrap() == old);
    a.is_right();
    // What the clone overwrites dies with it, and is not the object's.
    a.store.commit(std::mem::take(t.remove(ALL, &id(9)))).unwrap();
    (0..40).for_each(|n| a.overwrite(0, n * 5 * BLOCK, BLOCK));
    a.pack();
    a.is_right();
    assert_eq!(a.store.usage().stored, 2 << 20);
}

#[test]
fn a_zone_that_refuses_writes_or_was_given_back_is_nobodys_home() {
    let mut a = new(&plain(), options(4 << 10), 4, 512 << 10);
    let first = a.seen.take();
    let zone = |at: u64| a.seen.geometry().zone_of(at).0;
    // The zone of the first block of all.
    let bad = zone(first[0]);
    let here = |a: &All, blocks: &[u64]| blocks.iter().filter(|at| a.seen.geometry().zone_of(**at).0 == bad).count();
    a.seen.bad.lock().unwrap().insert(bad);
    (0..16).for_each(|n| a.overwrite(0, n * 3 * BLOCK, BLOCK));
    a.pack();
    let refused = *a.seen.refused.lock().unwrap();
    assert!(refused > 0);
    let written = a.seen.take();
    assert!(written.len() >= 16 && here(&a, &written) == 0);
    // Nobody tries again.
    (0..16).for_each(|n| a.overwrite(0, (n * 3 + 1) * BLOCK, BLOCK));
    a.pack();
    assert_eq!(*a.seen.refused.lock().unwrap(), refused);
    assert!(here(&a, &a.seen.take()) == 0);
    a.is_right();
    // All of an object is overwritten before anything of it is packed, so its zones go back to the pool.
    for round in 0..3 {
        (0..128).for_each(|n| a.overwrite(1 + round, n * BLOCK, BLOCK));
        a.pack();
        a.is_right();
    }
    assert_eq!(a.store.usage().stored, 2 << 20);
}

#[test]
fn what_an_earlier_opening_has_deferred_goes_anywhere_and_stays_right() {
    let mut a = new(&large(), options(4 << 10), 2, 1 << 20);
    (0..30).for_each(|_| a.overwrite_any(BLOCK));
    a.store.sync().unwrap();
    assert!(a.store.usage().deferred > 0);
    let All { drive, store, .. } = a;
    drop(store);
    a = All { store: open_with(&drive, Exec::Inline, options(4 << 10)).unwrap(), drive, ..a };
    (0..30).for_each(|_| a.overwrite_any(BLOCK));
    a.pack();
    a.is_right();
    assert_eq!(a.store.usage().stored, 2 << 20);
}

#[test]
fn who_wants_more_writes_than_order_gets_places_side_by_side() {
    let mut a = new(&large(), Options { home: false, ..options(4 << 10) }, 2, 1 << 20);
    let first = set(a.seen.take());
    (0..30).for_each(|n| a.overwrite(0, n * 7 * BLOCK, BLOCK));
    a.pack();
    let written = set(a.seen.take());
    assert!(written.len() == 30 && written.is_disjoint(&first));
    assert_eq!(written.last().unwrap() - written.first().unwrap(), 29 * BLOCK);
    // Another opening wants order. What stands side by side is in none, but what stands in order stays there.
    let All { drive, store, .. } = a;
    drop(store);
    a = All { store: open_with(&drive, Exec::Inline, options(4 << 10)).unwrap(), drive, ..a };
    (0..30).for_each(|n| a.overwrite(0, (n * 7 + 1) * BLOCK, BLOCK));
    a.pack();
    assert!(set(a.seen.take()).is_subset(&first));
    a.is_right();
}

#[test]
fn a_home_between_others_is_not_taken_from_who_has_it() {
    let mut a = new(&large(), options(4 << 10), 2, 1 << 20);
    let blocks = || (0..20).map(|n| n * 10 + 5);
    let mut t = Transaction::new();
    for n in blocks() {
        t.clone_range(ALL, &id(0), &id(9), (n * BLOCK, BLOCK, n * BLOCK));
    }
    a.store.commit(t).unwrap();
    let (old, first) = (a.bytes[0].clone(), set(a.seen.take()));
    for _ in 0..2 {
        // The other object has the one in the middle, and those beside it are nobody's then.
        blocks().for_each(|n| (n - 1..n + 2).for_each(|n| a.overwrite(0, n * BLOCK, BLOCK)));
        a.pack();
        assert_eq!(set(a.seen.take()).intersection(&first).count(), 40);
        a.is_right();
        for n in blocks().map(|n| n as usize * BLOCK as usize) {
            let shared = a.store.read(ALL, &id(9), n as u64, BLOCK).unwrap();
            assert!(shared == old[n..n + BLOCK as usize], "block at {n}");
        }
    }
    // When that is gone they go back.
    a.store.commit(std::mem::take(Transaction::new().remove(ALL, &id(9)))).unwrap();
    blocks().for_each(|n| (n - 1..n + 2).for_each(|n| a.overwrite(0, n * BLOCK, BLOCK)));
    a.pack();
    assert!(set(a.seen.take()).is_subset(&first));
    a.is_right();
}

#[test]
fn a_home_that_somebody_has_taken_meanwhile_is_his() {
    let mut a = new(&large(), Options { defer_below: 16 << 10, ..options(4 << 10) }, 2, 1 << 20);
    let first = set(a.seen.take());
    // Free from the next sync on, a stretch of 64 KiB in each span.
    (0..4).for_each(|n| (0..16).for_each(|m| a.overwrite(0, (n * 64 + m) * BLOCK, BLOCK)));
    a.store.check(false).unwrap();
    assert_eq!(a.store.usage().deferred, 256 << 10);
    for n in 10.. {
        let mut t = Transaction::new();
        match a.store.queue(std::mem::take(t.write(ALL, &id(n), 0, &content(64 << 10, n as u8)))) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.code(), Code::NoSpace, "{error}");
                break;
            }
        }
    }
    a.store.sync().unwrap();
    let taken = set(a.seen.take()).intersection(&first).count();
    assert!(taken > 32, "{taken}");
    a.pack();
    a.is_right();
}
