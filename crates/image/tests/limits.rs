//! Limits of images: the bytes that one may take, and the requests that its clients may make.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_bluestore::{BlueStore, Change, Family, KeyValue, NAME, Pair};
use imbrex_device::{Code, Drive, Result};
use imbrex_emulator::{Config, Emulator};
use imbrex_image::{Clock, Image, Images, LimitChange, Limits, Survives};
use imbrex_zones::{Exec, Volume, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pieces of 16 KiB.
const ORDER: u8 = 14;
const PIECE: u64 = 1 << ORDER;
const BLOCK: u64 = 4096;

fn drive() -> Drive {
    let config = Config { capacity: 64 << 20, ..support::config() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    support::format(&drive).unwrap();
    drive
}

fn open(drive: &Drive) -> Images {
    Images::open(support::open(drive, Exec::Inline).unwrap(), ()).unwrap()
}

fn used(bytes: u64) -> LimitChange {
    LimitChange { used: Some(bytes), ..LimitChange::default() }
}

/// What counts against the limit.
fn takes(images: &Images, name: &str) -> u64 {
    let info = images.info(name).unwrap();
    info.used + info.kept
}

fn write(image: &Image, block: u64, blocks: u64) -> Result<(), Code> {
    let bytes = vec![7; (blocks * BLOCK) as usize];
    image.write(block * BLOCK, &bytes, Survives::Process).map_err(|error| error.code())
}

#[test]
fn an_image_takes_no_more_than_it_may() {
    let images = open(&drive());
    images.create_of("a", 64 * PIECE, ORDER).unwrap();
    images.limit("a", used(8 * BLOCK)).unwrap();
    let a = images.image("a", false).unwrap();
    assert_eq!(write(&a, 0, 8), Ok(()));
    assert_eq!(write(&a, 8, 1), Err(Code::NoSpace));
    assert_eq!(write(&a, 7, 2), Err(Code::NoSpace));
    let error = a.write(8 * BLOCK, b"x", Survives::Process).unwrap_err().to_string();
    assert!(error.contains("may take 32768 bytes and takes 32768") && error.contains("raise the limit"), "{error}");
    // What is there may be overwritten and read.
    assert_eq!(write(&a, 0, 8), Ok(()));
    a.read(0, &mut [0; 40_000]).unwrap();
    a.zero(BLOCK, 2 * BLOCK, Survives::Process).unwrap();
    assert_eq!((write(&a, 20, 2), write(&a, 30, 1)), (Ok(()), Err(Code::NoSpace)));
    // A whole piece.
    a.zero(PIECE, PIECE, Survives::Process).unwrap();
    assert_eq!((write(&a, 40, 4), write(&a, 50, 1)), (Ok(()), Err(Code::NoSpace)));
    assert_eq!(takes(&images, "a"), 8 * BLOCK);
    images.limit("a", used(9 * BLOCK)).unwrap();
    assert_eq!((write(&a, 50, 1), write(&a, 51, 1)), (Ok(()), Err(Code::NoSpace)));
    // It has more than it may: nothing is added, and nothing is lost.
    images.limit("a", used(BLOCK)).unwrap();
    assert_eq!((write(&a, 50, 1), write(&a, 51, 1)), (Ok(()), Err(Code::NoSpace)));
    images.limit("a", used(0)).unwrap();
    assert_eq!(write(&a, 51, 100), Ok(()));
}

#[test]
fn what_snapshots_keep_counts_until_they_are_removed() {
    let images = open(&drive());
    images.create_of("a", 64 * PIECE, ORDER).unwrap();
    let a = images.image("a", false).unwrap();
    assert_eq!(write(&a, 0, 8), Ok(()));
    images.limit("a", used(11 * BLOCK)).unwrap();
    images.snapshot("a", "s").unwrap();
    // The piece would be kept with its four blocks.
    assert_eq!((write(&a, 0, 1), write(&a, 8, 3), write(&a, 11, 1)), (Err(Code::NoSpace), Ok(()), Err(Code::NoSpace)));
    assert_eq!(takes(&images, "a"), 11 * BLOCK);
    // A discard is done, although it keeps a piece for the snapshot.
    a.zero(BLOCK, BLOCK, Survives::Process).unwrap();
    assert_eq!(takes(&images, "a"), 14 * BLOCK);
    assert_eq!((write(&a, 0, 1), write(&a, 1, 1)), (Ok(()), Err(Code::NoSpace)));
    images.remove_snapshot("a", "s").unwrap();
    assert_eq!((write(&a, 1, 1), write(&a, 4, 1), write(&a, 11, 1)), (Ok(()), Ok(()), Err(Code::NoSpace)));
    assert_eq!(takes(&images, "a"), 11 * BLOCK);
}

#[test]
fn what_a_clone_copies_of_its_parent_counts() {
    let drive = drive();
    let images = open(&drive);
    images.create_of("a", 64 * PIECE, ORDER).unwrap();
    assert_eq!(write(&images.image("a", false).unwrap(), 0, 12), Ok(()));
    images.limit("a", LimitChange { used: Some(1 << 30), iops: Some(5), bandwidth: Some(6) }).unwrap();
    images.snapshot("a", "s").unwrap();
    images.clone_image("a", "s", "b").unwrap();
    assert_eq!(images.info("b").unwrap().limits, Limits::default());
    images.limit("b", used(6 * BLOCK)).unwrap();
    let b = images.image("b", false).unwrap();
    assert_eq!((write(&b, 0, 1), write(&b, 4, 1)), (Ok(()), Err(Code::NoSpace)));
    assert_eq!((write(&b, 20, 2), write(&b, 22, 1)), (Ok(()), Err(Code::NoSpace)));
    images.limit("b", used(10 * BLOCK)).unwrap();
    // Nothing refuses this, and then it takes too much.
    images.flatten("b").unwrap();
    assert_eq!(takes(&images, "b"), 14 * BLOCK);
    assert_eq!((write(&b, 4, 1), write(&b, 22, 1)), (Ok(()), Err(Code::NoSpace)));
    drop(b);
    // Limits stay with the image, through a rollback and an opening.
    images.rollback("a", "s").unwrap();
    drop(images);
    let expected = Limits { used: Some(1 << 30), iops: Some(5), bandwidth: Some(6) };
    assert_eq!(open(&drive).info("a").unwrap().limits, expected);
}

/// Whatever is done: no write brings the image beyond its limit, and none is refused that would not.
#[test]
fn a_limit_is_kept_and_no_write_is_refused_for_nothing() {
    let (mut refused, mut done) = (0, 0);
    for seed in 0..8 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let images = open(&drive());
        images.create_of("a", 12 * PIECE, ORDER).unwrap();
        let mut snaps = 0..0;
        let limit = rng.random_range(20..60) * BLOCK;
        images.limit("a", used(limit)).unwrap();
        for n in 0..400 {
            let (at, len) = (rng.random_range(0..44 * BLOCK), rng.random_range(1..4 * BLOCK));
            let a = images.image("a", false).unwrap();
            match rng.random_range(0..10) {
                0..7 => {
                    let before = takes(&images, "a");
                    let bytes = vec![3; len as usize];
                    match a.write(at, &bytes, Survives::Process).map_err(|error| error.code()) {
                        Ok(()) => {
                            let after = takes(&images, "a");
                            assert!(after <= limit.max(before), "seed {seed}, {n}: {before} to {after} of {limit}");
                            done += 1;
                        }
                        Err(Code::NoSpace) => {
                            images.limit("a", used(0)).unwrap();
                            a.write(at, &bytes, Survives::Process).unwrap();
                            let after = takes(&images, "a");
                            assert!(after > limit, "seed {seed}, {n}: {before} to {after} of {limit}");
                            images.limit("a", used(limit)).unwrap();
                            refused += 1;
                        }
                        Err(code) => panic!("{code:?}"),
                    }
                }
                7 | 8 => a.zero(at, (2 * len).min(12 * PIECE - at), Survives::Process).unwrap(),
                _ if snaps.len() < 3 => {
                    images.snapshot("a", &snaps.end.to_string()).unwrap();
                    snaps.end += 1;
                }
                _ => {
                    images.remove_snapshot("a", &snaps.start.to_string()).unwrap();
                    snaps.start += 1;
                    images.limit("a", used(limit)).unwrap();
                }
            }
        }
    }
    assert!(refused > 200 && done > 200, "{refused} refused, {done} done");
}

#[test]
fn a_limit_is_kept_under_threads() {
    for seed in 0..3 {
        let images = open(&drive());
        images.create_of("a", 40 * PIECE, ORDER).unwrap();
        let limit = 60 * BLOCK;
        images.limit("a", used(limit)).unwrap();
        let refused = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for me in 0..4 {
                let (images, refused) = (&images, &refused);
                scope.spawn(move || {
                    let mut rng = ChaCha8Rng::seed_from_u64(seed * 10 + me);
                    let a = images.image("a", false).unwrap();
                    for n in 0..300 {
                        let (block, blocks) = (rng.random_range(0..150), rng.random_range(1..6));
                        if rng.random_bool(0.3) {
                            a.zero(block * BLOCK, blocks * BLOCK, Survives::Process).unwrap();
                        } else if let Err(code) = write(&a, block, blocks) {
                            assert_eq!(code, Code::NoSpace);
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        if me == 0 && n % 60 == 30 {
                            images.snapshot("a", "s").unwrap();
                        }
                        if me == 0 && n % 60 == 50 {
                            images.remove_snapshot("a", "s").unwrap();
                        }
                    }
                });
            }
        });
        // Discards may bring it beyond the limit while there is a snapshot; without one nobody can be.
        let takes = takes(&images, "a");
        assert!(takes <= limit, "seed {seed}: {takes} of {limit}");
        assert!(refused.into_inner() > 0);
    }
}

/// Counts the pages of objects that are listed.
struct Counting(support::MapStore, Arc<AtomicU64>);

impl KeyValue for Counting {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(family, key)
    }
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        self.1.fetch_add(u64::from(family == Family::Onodes), Ordering::Relaxed);
        self.0.pairs(family, from, to, most)
    }
    fn write(&self, changes: &[Change]) -> Result<()> {
        self.0.write(changes)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}

#[test]
fn the_usual_write_looks_at_no_other_objects() {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let volume = Volume::open(drive(), volume).unwrap();
    let looks = Arc::new(AtomicU64::new(0));
    let kv = Arc::new(Counting(support::MapStore::open(&volume).unwrap(), looks.clone()));
    let store = BlueStore::open(&volume.tenant(NAME).unwrap(), kv, support::options()).unwrap();
    let images = Images::open(store, ()).unwrap();
    images.create_of("a", 64 * PIECE, ORDER).unwrap();
    let a = images.image("a", false).unwrap();
    let looked = |work: &dyn Fn()| {
        let before = looks.load(Ordering::Relaxed);
        work();
        looks.load(Ordering::Relaxed) - before
    };
    images.limit("a", used(128 * BLOCK)).unwrap();
    assert!(looked(&|| write(&a, 0, 1).unwrap()) > 0, "the first");
    assert_eq!(looked(&|| (0..100).for_each(|n| write(&a, n, 1).unwrap())), 0, "far from the limit");
    // These would be beyond it, if they were new. What is new is found by the objects of the write.
    assert_eq!(looked(&|| (0..100).for_each(|n| write(&a, n, 1).unwrap())), 0, "overwrites");
    assert_eq!(looked(&|| (100..128).for_each(|n| _ = write(&a, n, 1))), 1, "one, since overwrites were charged");
    assert_eq!(takes(&images, "a"), 128 * BLOCK);
    assert!(looked(&|| assert!(write(&a, 128, 1).is_err())) <= 1, "it takes what it may, and that is looked at once");
    assert_eq!(looked(&|| (0..50).for_each(|n| _ = write(&a, 128 + n, 1))), 0, "nothing has gone since");
    a.zero(0, BLOCK, Survives::Process).unwrap();
    assert_eq!(looked(&|| write(&a, 128, 1).unwrap()), 1, "something has");
}

/// A clock that stands until it is put forward.
#[derive(Default)]
struct Hands(Mutex<Duration>, AtomicU64);

impl Hands {
    fn forward(&self, milliseconds: u64) {
        *self.0.lock().unwrap() += Duration::from_millis(milliseconds);
    }
    /// Until somebody has looked at it so many times again, since who waits does so again and again.
    fn seen(&self, times: u64) {
        let begin = self.1.load(Ordering::SeqCst);
        while self.1.load(Ordering::SeqCst) < begin + times {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Clock for Hands {
    fn now(&self) -> Duration {
        self.1.fetch_add(1, Ordering::SeqCst);
        *self.0.lock().unwrap()
    }
    fn nap(&self, _: Duration) -> Duration {
        Duration::from_millis(1)
    }
}

/// Nobody waits any more when this is dropped, however the test ends.
struct End<'a>(&'a Hands);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.forward(1 << 40);
    }
}

fn clocked() -> (Images, Arc<Hands>) {
    let (drive, hands) = (drive(), Arc::new(Hands::default()));
    let store = support::open(&drive, Exec::Inline).unwrap();
    (Images::open_clocked(store, (), hands.clone()).unwrap(), hands)
}

#[test]
fn requests_of_all_clients_wait_for_the_limit_together() {
    let (images, hands) = clocked();
    images.create("a", 1 << 20).unwrap();
    images.limit("a", LimitChange { iops: Some(10), ..LimitChange::default() }).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for me in 0..3 {
            let (images, done) = (&images, &done);
            scope.spawn(move || {
                let a = images.image("a", false).unwrap();
                for n in 0..10 {
                    match (me, n % 2) {
                        (0, _) => a.read(0, &mut [0]).unwrap(),
                        (_, 0) => write(&a, me, 1).unwrap(),
                        _ => a.zero(0, 1, Survives::Process).unwrap(),
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let _end = End(&hands);
        for second in 1..=20 {
            // The last of them to be let through has been.
            hands.seen(30);
            assert_eq!(done.load(Ordering::SeqCst), 9 + second, "after {} ms", (second - 1) * 100);
            hands.forward(100);
        }
    });
}

#[test]
fn nobody_else_waits_and_a_change_counts_at_once() {
    let (images, hands) = clocked();
    images.create("a", 1 << 20).unwrap();
    images.limit("a", LimitChange { bandwidth: Some(10_000), ..LimitChange::default() }).unwrap();
    let a = images.image("a", false).unwrap();
    a.write(0, &[1; 10_000], Survives::Process).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| a.write(0, &[2; 10_000], Survives::Process));
        let _end = End(&hands);
        hands.seen(10);
        assert!(!waits.is_finished());
        // It has no lock of the image: this needs it alone. And others look what the image is.
        images.snapshot("a", "s").unwrap();
        images.info("a").unwrap();
        a.flush().unwrap();
        hands.forward(900);
        hands.seen(10);
        assert!(!waits.is_finished());
        images.limit("a", LimitChange { bandwidth: Some(0), ..LimitChange::default() }).unwrap();
        for _ in 0..5000 {
            std::thread::sleep(Duration::from_millis(u64::from(!waits.is_finished())));
        }
        assert!(waits.is_finished());
        waits.join().unwrap().unwrap();
    });
    let mut found = [0];
    images.image("a@s", true).unwrap().read(9_999, &mut found).unwrap();
    assert_eq!(found, [1]);
}
