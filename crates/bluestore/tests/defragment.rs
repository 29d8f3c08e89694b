//! Defragmentation: what was written at random stands in order, and nothing else happens to it.

mod support;

use imbrex_bluestore::{BlueStore, CollectionId, Compression, Defragmented, Hint, ObjectId, Options, Transaction};
use imbrex_device::{AlignedBuf, Cause, Code, Drive, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{config, content, format, open_hooked, open_with, options};

const C: CollectionId = CollectionId { pool: 1, seed: 0 };
const MEMORY: u64 = 64 << 20;

fn id(name: &[u8]) -> ObjectId {
    ObjectId::new(1, b"", name)
}

fn large() -> Config {
    Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 64 << 20, ..config() }
}

fn made(config: &Config) -> (Emulator, Drive) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    (emulator, drive)
}

/// Two objects of 4 MiB, written in order, then block by block, one and the other, at random. Returns what they have.
fn scattered(store: &BlueStore) -> [Vec<u8>; 2] {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut all = [content(4 << 20, 1), content(4 << 20, 2)];
    let mut begin = Transaction::new();
    begin.create_collection(C, 0);
    store.commit(begin).unwrap();
    for (name, bytes) in [b"a", b"b"].into_iter().zip(&all) {
        let mut write = Transaction::new();
        write.write(C, &id(name), 0, bytes);
        store.commit(write).unwrap();
    }
    for n in 0..1500 {
        let (which, block) = (n % 2, rng.random_range(0..1024usize));
        let new = content(4096, n as u8);
        all[which][block * 4096..][..4096].copy_from_slice(&new);
        let mut write = Transaction::new();
        write.write(C, &id([b"a", b"b"][which]), block as u64 * 4096, &new);
        store.queue(write).unwrap();
    }
    store.sync().unwrap();
    while store.pack().unwrap() {}
    all
}

/// Commands that reading an object in order takes, 256 KiB at a time.
fn commands(emulator: &Emulator, store: &BlueStore, name: &[u8], bytes: &[u8]) -> u64 {
    emulator.reset_stats();
    for (n, part) in bytes.chunks(256 << 10).enumerate() {
        assert!(store.read(C, &id(name), (n as u64) << 18, 256 << 10).unwrap() == part);
    }
    emulator.stats().by_cause[Cause::UserRead.name()].reads
}

fn checked(store: &BlueStore) {
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

#[test]
fn what_was_written_at_random_is_read_in_few_commands() {
    let (emulator, drive) = made(&large());
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    let all = scattered(&store);
    let before = commands(&emulator, &store, b"a", &all[0]);
    assert!(before > 80, "{before} commands");
    let done = store.defragment(C, &[id(b"a"), id(b"b")], MEMORY).unwrap();
    assert_eq!(done, Defragmented { looked: 8 << 20, written: 8 << 20, left: 0 });
    for (name, bytes) in [b"a", b"b"].into_iter().zip(&all) {
        let after = commands(&emulator, &store, name, bytes);
        // One for each span of 256 KiB, and where a zone ends.
        assert!(after <= 16 + 6, "{after} commands");
    }
    checked(&store);
    // Again there is nothing to do, whatever the memory.
    let again = store.defragment(C, &[id(b"a"), id(b"b")], 1).unwrap();
    assert_eq!(again, Defragmented { looked: 8 << 20, written: 0, left: 0 });
    drop(store);
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    commands(&emulator, &store, b"b", &all[1]);
    checked(&store);
}

/// Blocks that were written one by one, in order, stand in order, but each has a record.
#[test]
fn what_has_a_record_for_each_block_gets_few() {
    let (emulator, drive) = made(&large());
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(C, 0))).unwrap();
    let all = content(4 << 20, 1);
    for (n, block) in all.chunks(4096).enumerate() {
        let mut write = Transaction::new();
        store.queue(std::mem::take(write.write(C, &id(b"a"), n as u64 * 4096, block))).unwrap();
    }
    while store.pack().unwrap() {}
    assert!(commands(&emulator, &store, b"a", &all) < 64);
    for written in [4 << 20, 0] {
        let done = store.defragment(C, &[id(b"a")], MEMORY).unwrap();
        assert_eq!(done, Defragmented { looked: 4 << 20, written, left: 0 });
    }
    checked(&store);
}

#[test]
fn little_memory_does_it_in_many_steps() {
    let (_, drive) = made(&large());
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    let all = scattered(&store);
    let done = store.defragment(C, &[id(b"none"), id(b"a"), id(b"b")], 1).unwrap();
    assert_eq!(done.written, 8 << 20);
    assert!(store.read(C, &id(b"b"), 0, u64::MAX).unwrap() == all[1]);
    checked(&store);
}

#[test]
fn what_a_clone_shares_stays_and_takes_no_room() {
    let (_, drive) = made(&large());
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    let all = scattered(&store);
    let mut clone = Transaction::new();
    clone.clone_object(C, &id(b"a"), &id(b"c"));
    store.commit(clone).unwrap();
    let before = store.usage().stored;
    let done = store.defragment(C, &[id(b"a"), id(b"c")], MEMORY).unwrap();
    assert_eq!(done.written, 0);
    assert_eq!(store.usage().stored, before);
    for (name, bytes) in [(b"a", &all[0]), (b"c", &all[0])] {
        assert!(&store.read(C, &id(name), 0, u64::MAX).unwrap() == bytes);
    }
    checked(&store);
    // As soon as they are one object's they are written.
    let mut remove = Transaction::new();
    remove.remove(C, &id(b"a"));
    store.commit(remove).unwrap();
    let done = store.defragment(C, &[id(b"c")], MEMORY).unwrap();
    assert_eq!((done.written, done.left), (4 << 20, 0));
    assert!(store.read(C, &id(b"c"), 0, u64::MAX).unwrap() == all[0]);
    checked(&store);
}

#[test]
fn damaged_bytes_stay_damaged_and_cost_no_others() {
    let (emulator, drive) = made(&large());
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    let all = scattered(&store);
    // The last block that was written to the first object.
    let needle = content(4096, (1498u32 % 256) as u8);
    let at = all[0].chunks(4096).position(|block| block == needle).unwrap() as u64 * 4096;
    let (mut hit, mut block) = (0, AlignedBuf::zeroed(4096));
    for here in (0..64 << 20).step_by(4096) {
        if emulator.read_at(&mut block, here, Cause::UserRead.into()).is_ok() && block[..] == needle[..] {
            emulator.faults().flip_bits(here + 100, 1).unwrap();
            hit += 1;
        }
    }
    assert!(hit > 0);
    let damaged = store.read(C, &id(b"a"), at, 4096).unwrap_err();
    assert_eq!(damaged.code(), Code::Corruption);
    let done = store.defragment(C, &[id(b"a"), id(b"b")], MEMORY).unwrap();
    assert!(done.left >= 4096 && done.left <= hit * 4096 && done.written == (8 << 20) - done.left, "{done:?}");
    assert_eq!(store.read(C, &id(b"a"), at, 4096).unwrap_err().code(), Code::Corruption);
    let mut wrong = 0;
    for (name, bytes) in [b"a", b"b"].into_iter().zip(&all) {
        for (n, block) in bytes.chunks(4096).enumerate() {
            match store.read(C, &id(name), n as u64 * 4096, 4096) {
                Ok(found) => assert!(found == block, "{n}"),
                Err(_) => wrong += 1,
            }
        }
    }
    assert!(wrong >= 1 && wrong <= hit, "{wrong} blocks of {hit}");
}

#[test]
fn what_is_written_in_the_middle_counts() {
    for times in [0, 1, 2, 3, 5] {
        let (_, drive) = made(&large());
        let (store, hook) = open_hooked(&drive, Exec::Inline, options()).unwrap();
        let mut all = scattered(&store);
        let (new, writer) = (content(40_000, 77), store.clone());
        all[1][100_000..140_000].copy_from_slice(&new);
        all[0].truncate(1_000_000);
        hook.set_outside_gets(times, move || {
            let mut write = Transaction::new();
            write.write(C, &id(b"b"), 100_000, &new).truncate(C, &id(b"a"), 1_000_000);
            writer.queue(write).unwrap();
        });
        store.defragment(C, &[id(b"a"), id(b"b")], MEMORY).unwrap();
        // If nothing came between.
        (0..10).for_each(|_| hook.call());
        for (name, bytes) in [b"a", b"b"].into_iter().zip(&all) {
            assert!(&store.read(C, &id(name), 0, u64::MAX).unwrap() == bytes, "{times}");
        }
        checked(&store);
    }
}

#[test]
fn what_goes_to_another_collection_in_the_middle_stays_as_it_is() {
    // The first bit by which one of them is divided off.
    let bit = (id(b"a").hash | id(b"b").hash).trailing_zeros();
    let half = CollectionId { pool: 1, seed: 1 << bit };
    for times in [0, 1, 2, 3, 5, 8, 13] {
        let (_, drive) = made(&large());
        let (store, hook) = open_hooked(&drive, Exec::Inline, options()).unwrap();
        let all = scattered(&store);
        let writer = store.clone();
        hook.set_outside_gets(times, move || {
            let mut split = Transaction::new();
            (0..=bit).for_each(|bit| _ = split.split_collection(C, CollectionId { pool: 1, seed: 1 << bit }));
            writer.queue(split).unwrap();
        });
        store.defragment(C, &[id(b"a"), id(b"b")], MEMORY).unwrap();
        (0..20).for_each(|_| hook.call());
        for (name, bytes) in [b"a", b"b"].into_iter().zip(&all) {
            let at = [C, half][(id(name).hash >> bit & 1) as usize];
            assert!(&store.read(at, &id(name), 0, u64::MAX).unwrap() == bytes, "{times}");
        }
        checked(&store);
    }
}

/// Checksums of an immutable object are for 128 KiB each, and extents that were cut have parts of one.
#[test]
fn long_grains_that_were_cut_are_written_once_and_for_all() {
    let (_, drive) = made(&large());
    let store = open_with(&drive, Exec::Inline, options()).unwrap();
    let mut all = content(4 << 20, 1);
    let mut begin = Transaction::new();
    begin.create_collection(C, 0).hint(C, &id(b"a"), Hint { immutable: true, ..Hint::default() });
    begin.write(C, &id(b"a"), 0, &all);
    store.commit(begin).unwrap();
    for n in 0..16 {
        let (at, new) = ((n << 18) + 8192, content(4096, n as u8));
        all[at..at + 4096].copy_from_slice(&new);
        let mut write = Transaction::new();
        store.commit(std::mem::take(write.write(C, &id(b"a"), at as u64, &new))).unwrap();
        while store.pack().unwrap() {}
    }
    let done = store.defragment(C, &[id(b"a")], MEMORY).unwrap();
    assert_eq!((done.looked, done.left), (4 << 20, 0));
    while store.pack().unwrap() {}
    // Nothing of what was written first is there any more.
    assert_eq!(store.usage().stored, 4 << 20, "{done:?}");
    assert!(store.read(C, &id(b"a"), 0, u64::MAX).unwrap() == all);
    checked(&store);
}

/// What is compressed is not so in memory.
#[test]
fn memory_is_that_of_what_was_compressed() {
    let (emulator, drive) = made(&large());
    let options = Options { compression: Compression::Lz4, defer_below: 0, ..options() };
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(C, 0))).unwrap();
    // A block for 32 each, and those of an object are not side by side.
    for n in 0..128u64 {
        for name in [b"a", b"b"] {
            let mut write = Transaction::new();
            store.commit(std::mem::take(write.write(C, &id(name), n << 17, &[n as u8; 128 << 10]))).unwrap();
        }
        let mut other = Transaction::new();
        store.commit(std::mem::take(other.write(C, &id(b"c"), n << 16, &content(64 << 10, n as u8)))).unwrap();
    }
    emulator.reset_stats();
    let done = store.defragment(C, &[id(b"a"), id(b"b")], 4 << 20).unwrap();
    assert_eq!((done.written, done.left), (256 * 4096, 0));
    // Bytes of 32 MiB: each 4 MiB of them are durable before others are read.
    let flushes = emulator.stats().total.flushes;
    assert!(flushes >= 8, "{flushes} flushes");
    for n in 0..128u64 {
        assert!(store.read(C, &id(b"b"), n << 17, 128 << 10).unwrap() == [n as u8; 128 << 10]);
    }
    checked(&store);
}
