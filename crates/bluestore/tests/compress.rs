//! Compressed objects: what they take, and what is read of them.

mod support;

use imbrex_bluestore::{BlueStore, CollectionId, Compression, Hint, ObjectId, Options, Transaction};
use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::sync::Arc;
use support::{config, format, open_with, packed};

const C: CollectionId = CollectionId { pool: 1, seed: 0 };

fn id(name: &[u8]) -> ObjectId {
    ObjectId::new(1, b"", name)
}

fn made() -> (Emulator, Drive) {
    let config = Config { zone_size: 2 << 20, zone_capacity: 2 << 20, capacity: 96 << 20, ..config() };
    let emulator = Emulator::memory(&config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    (emulator, drive)
}

fn text(len: u64) -> Vec<u8> {
    (0..len).map(|n| b"a drive of zones and what stands in them "[(n % 41) as usize] ^ (n >> 14) as u8).collect()
}

fn wrote(store: &BlueStore, name: &[u8], at: u64, bytes: &[u8]) {
    let mut write = Transaction::new();
    store.commit(std::mem::take(write.write(C, &id(name), at, bytes))).unwrap();
}

fn checked(store: &BlueStore) {
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

#[test]
fn text_takes_a_fraction_and_is_what_it_was() {
    for how in [Compression::Lz4, Compression::Zstd] {
        let (_, drive) = made();
        let options = Options { compression: how, ..packed() };
        let store = open_with(&drive, Exec::Inline, options).unwrap();
        let mut begin = Transaction::new();
        begin.create_collection(C, 0);
        begin.hint(C, &id(b"left"), Hint { incompressible: true, ..Hint::default() });
        store.commit(begin).unwrap();
        let mut bytes = text(4 << 20);
        wrote(&store, b"a", 0, &bytes);
        while store.pack().unwrap() {}
        let packed = store.usage().stored;
        assert!(packed <= 1 << 20, "{packed} of 4 MiB with {how:?}");
        wrote(&store, b"left", 0, &bytes);
        assert_eq!(store.usage().stored - packed, 4 << 20, "a hint says that nobody need try");
        // A part is overwritten, a part goes, a part is read.
        wrote(&store, b"a", 300_000, &[7; 10_000]);
        bytes[300_000..310_000].fill(7);
        let mut zero = Transaction::new();
        zero.zero(C, &id(b"a"), 1 << 20, 500_000).clone_object(C, &id(b"a"), &id(b"b"));
        store.commit(zero).unwrap();
        bytes[1 << 20..(1 << 20) + 500_000].fill(0);
        for at in [0, 299_999, 309_990, 1_048_570, 1_548_000, 4_194_000] {
            let end = (at + 9000).min(bytes.len());
            assert!(store.read(C, &id(b"b"), at as u64, 9000).unwrap() == bytes[at..end], "{how:?}: {at}");
        }
        checked(&store);
        drop(store);
        // Who opens it without the option reads it all the same, and writes as it says.
        let store = open_with(&drive, Exec::Inline, Options { compression: Compression::Off, ..options }).unwrap();
        for name in [b"a", b"b"] {
            assert!(store.read(C, &id(name), 0, u64::MAX).unwrap() == bytes);
        }
        let before = store.usage().stored;
        wrote(&store, b"c", 0, &text(1 << 20));
        assert_eq!(store.usage().stored - before, 1 << 20);
        let mut remove = Transaction::new();
        remove.remove(C, &id(b"a")).remove(C, &id(b"b")).remove(C, &id(b"c")).remove(C, &id(b"left"));
        store.commit(remove).unwrap();
        while store.pack().unwrap() {}
        assert_eq!((store.usage().stored, store.usage().deferred), (0, 0));
        checked(&store);
    }
}

#[test]
fn an_object_never_takes_more_than_its_size_however_it_is_overwritten() {
    let (_, drive) = made();
    let store = open_with(&drive, Exec::Inline, Options { defer_below: 0, ..packed() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(C, 0))).unwrap();
    let mut bytes = text(128 << 10);
    wrote(&store, b"a", 0, &bytes);
    let whole = store.usage().stored;
    assert!(whole <= 32 << 10, "{whole}");
    for n in (0..32u64).rev() {
        let new = support::content(4096, 1);
        bytes[n as usize * 4096..][..4096].copy_from_slice(&new);
        wrote(&store, b"a", n * 4096, &new);
        // As soon as the rest takes no more by itself, it is by itself; and compressed again.
        let stored = store.usage().stored;
        let rest = if n * 4096 > whole { whole } else { n * 4096 };
        assert!(stored <= 4096 * (32 - n) + rest, "{n}: {stored}");
        assert!(stored <= 128 << 10, "{n}: {stored}");
        assert!(store.read(C, &id(b"a"), 0, u64::MAX).unwrap() == bytes);
    }
    // At random, with what gains an eighth and no more.
    let mut random = 1u64;
    let mut noise = |len: usize| -> Vec<u8> {
        let one = |_| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 56) as u8
        };
        (0..len).map(one).collect()
    };
    let before = store.usage().stored;
    let mut all = noise(1 << 20);
    all.chunks_mut(128 << 10).for_each(|part| part[..20 << 10].fill(1));
    wrote(&store, b"c", 0, &all);
    assert!(store.usage().stored - before < 1 << 20);
    for n in 0..600u64 {
        let (at, new) = ((n * 151 % 256) as usize * 4096, noise(4096));
        all[at..at + 4096].copy_from_slice(&new);
        wrote(&store, b"c", at as u64, &new);
        let usage = store.usage();
        // But for blocks of which nobody knows yet that they are dead.
        assert!(usage.stored - before <= (1 << 20) + 4096 * usage.uncounted, "{n}: {usage:?}");
    }
    assert!(store.read(C, &id(b"c"), 0, u64::MAX).unwrap() == all);
    checked(&store);
    // In many places, of which some are compressed.
    wrote(&store, b"b", 0, &text(4 << 20));
    for n in (0..1024).step_by(3) {
        wrote(&store, b"b", n * 4096, &text(4096));
    }
    let mut all = text(4 << 20);
    (0..1024usize).step_by(3).for_each(|n| all[n * 4096..][..4096].copy_from_slice(&text(4096)));
    let before = store.usage().stored;
    let done = store.defragment(C, &[id(b"b")], 64 << 20).unwrap();
    assert!(done.left == 0 && done.written > 0, "{done:?}");
    assert!(store.usage().stored < before / 2, "{} of {before}", store.usage().stored);
    assert!(store.read(C, &id(b"b"), 0, u64::MAX).unwrap() == all);
    checked(&store);
}

#[test]
fn a_damaged_byte_of_a_compressed_blob_fails_its_blocks_and_no_others() {
    let (emulator, drive) = made();
    let store = open_with(&drive, Exec::Inline, Options { defer_below: 0, ..packed() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(C, 0))).unwrap();
    let bytes = text(1 << 20);
    let mut before = vec![0; (96 << 20) / 4096];
    let crcs = |of: &mut Vec<u32>| {
        let mut block = imbrex_device::AlignedBuf::zeroed(4096);
        let read = |n: usize| {
            use imbrex_device::{Cause, ZonedDevice};
            let at = n as u64 * 4096;
            emulator.read_at(&mut block, at, Cause::UserRead.into()).map_or(0, |()| crc32c::crc32c(&block))
        };
        *of = (0..of.len()).map(read).collect();
    };
    crcs(&mut before);
    wrote(&store, b"a", 0, &bytes);
    let mut after = before.clone();
    crcs(&mut after);
    // Blocks of the write: one of the first that have bytes of the object is hit.
    let written: Vec<usize> = (0..before.len()).filter(|n| before[*n] != after[*n]).collect();
    let (mut hit, mut fine) = (0, 0);
    for block in written {
        emulator.faults().flip_bits(block as u64 * 4096 + 9, 1).unwrap();
        for part in 0..8u64 {
            match store.read(C, &id(b"a"), part << 17, 1 << 17) {
                Ok(found) => {
                    assert!(found == bytes[(part << 17) as usize..][..1 << 17]);
                    fine += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::Corruption);
                    hit += 1;
                }
            }
        }
        emulator.faults().flip_bits(block as u64 * 4096 + 9, 1).unwrap();
    }
    assert!(hit >= 8 && fine > 7 * hit, "{hit} {fine}");
}
