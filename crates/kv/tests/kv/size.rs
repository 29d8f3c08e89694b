//! What is said about how much there is.

use crate::support::{config, configs, formatted, mixed, options, value};
use imbrex_device::{Cause, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::table::{Compression, TableOptions};
use imbrex_kv::{Kv, Make, Options};
use std::sync::Arc;

const BYTES: &str = "leveldb.BytewiseComparator";
const KEYS: u64 = 1500;
const VALUE: usize = 400;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn size(kv: &Kv, from: u64, to: u64) -> u64 {
    kv.approximate_bytes(Some(&key(from)), Some(&key(to))).unwrap()
}

fn tables(kv: &Kv) -> u64 {
    kv.figures().levels.iter().map(|level| level.1).sum()
}

#[test]
fn a_range_has_about_the_bytes_of_its_keys() {
    for config in configs() {
        let store = Kv::open(formatted(&config), options()).unwrap();
        let other = store.space("other", BYTES, Make::New).unwrap();
        assert_eq!((store.approximate_bytes(None, None).unwrap(), size(&store, 0, KEYS)), (0, 0));
        for n in 0..KEYS {
            // Not in order, so that slices overlap.
            let n = n * 7919 % KEYS;
            store.put(&key(n), &value(n, VALUE), false).unwrap();
            if n.is_multiple_of(10) {
                other.put(&key(n), &value(n, VALUE), false).unwrap();
            }
        }
        store.flush().unwrap();
        for merged in [false, true] {
            if merged {
                store.compact().unwrap();
            }
            // Tables hold no key of anything but the two spaces.
            let (all, others) =
                (store.approximate_bytes(None, None).unwrap(), other.approximate_bytes(None, None).unwrap());
            assert_eq!(all + others, tables(&store));
            let (user, users) = (KEYS * (VALUE as u64 + 9), KEYS / 10 * (VALUE as u64 + 9));
            assert!(all > user * 9 / 10 && all < user * 3 / 2, "{all} of {user}");
            assert!(others > users / 2 && others < users * 2, "{others} of {users}");
            // Parts are together the whole, and each is about as much as its keys: a block, or an index, more or less in each table.
            let parts: Vec<u64> = (0..10).map(|n| size(&store, n * KEYS / 10, (n + 1) * KEYS / 10)).collect();
            assert_eq!(parts.iter().sum::<u64>(), size(&store, 0, KEYS));
            let slack = 8192 * store.figures().depth as u64;
            assert!(parts.iter().all(|part| part.abs_diff(all / 10) < all / 20 + slack), "{parts:?} of {all}");
            assert_eq!((size(&store, 0, KEYS), size(&store, KEYS, KEYS + 1)), (all, 0));
            assert_eq!(store.approximate_bytes(None, Some(b"a")).unwrap(), 0);
            assert_eq!(store.approximate_bytes(Some(b""), None).unwrap(), all);
            // The wrong way round, and nothing in between.
            assert_eq!((size(&store, 9, 3), size(&store, 9, 9)), (0, 0));
        }
    }
}

#[test]
fn what_a_merge_has_taken_from_a_table_does_not_count() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    for n in 0..KEYS {
        store.put(&key(n * 7919 % KEYS), &value(n, VALUE), false).unwrap();
        if n % 50 == 0 {
            // In the middle of merges some tables are trimmed.
            assert_eq!(store.approximate_bytes(None, None).unwrap(), tables(&store));
            let split = key(n);
            let below = store.approximate_bytes(None, Some(&split)).unwrap();
            assert_eq!(below + store.approximate_bytes(Some(&split), None).unwrap(), tables(&store));
        }
    }
}

#[test]
fn no_data_is_read_for_it() {
    let emulator = Arc::new(Emulator::memory(&config()).unwrap());
    let drive = Drive { device: emulator.clone(), survivor: None };
    Kv::format(&drive, Some([9; 16]), false).unwrap();
    let store = Kv::open(drive, Options { cache_bytes: 0, ..options() }).unwrap();
    for n in 0..KEYS {
        store.put(&key(n * 7919 % KEYS), &value(n, VALUE), false).unwrap();
    }
    store.flush().unwrap();
    let read = || emulator.stats().of(Cause::UserRead).bytes_read;
    // Tables are opened once.
    let (from, to) = (key(KEYS / 3), key(KEYS / 2));
    store.approximate_bytes(Some(&from), Some(&to)).unwrap();
    let (opened, depth) = (read(), store.figures().depth as u64);
    assert!(store.approximate_bytes(Some(&from), Some(&to)).unwrap() > 0);
    // One index for each end in each run.
    assert!(read() - opened <= 2 * depth * 8192, "{} bytes, {depth} runs", read() - opened);
    let indexes = read();
    store.approximate_bytes(None, None).unwrap();
    assert_eq!(read(), indexes);
}

#[test]
fn a_range_is_compacted_and_what_lies_elsewhere_need_not_be() {
    const MANY: u64 = 10 * KEYS;
    let options = Options { memtable_bytes: 256 << 10, table_bytes: 256 << 10, step_bytes: 256 << 10, ..options() };
    let store = Kv::open(formatted(&Config::tiny()), options).unwrap();
    let other = store.space("other", BYTES, Make::New).unwrap();
    for n in 0..2 * MANY {
        store.put(&key(n * 7919 % MANY), &value(n, VALUE), false).unwrap();
    }
    other.put(b"k", b"v", false).unwrap();
    let ends = |part: u64| (key(part * MANY / 10), key((part + 1) * MANY / 10));
    let compact = |part| store.compact_range(Some(&ends(part).0), Some(&ends(part).1)).unwrap();
    let bytes = |part| store.approximate_bytes(Some(&ends(part).0), Some(&ends(part).1)).unwrap();
    for n in 3 * MANY / 10..4 * MANY / 10 {
        store.delete(&key(n), false).unwrap();
    }
    store.flush().unwrap();
    assert!(bytes(3) > 100_000);
    compact(3);
    // A block at each end has keys of others, too.
    assert!(bytes(3) < 20_000 && bytes(4) > 500_000, "{} {}", bytes(3), bytes(4));
    store.compact_range(None, None).unwrap();
    for n in 7 * MANY / 10 + 200..8 * MANY / 10 - 200 {
        store.put(&key(n), &value(n, VALUE), false).unwrap();
    }
    store.flush().unwrap();
    // Slices lie over the seventh part; what is asked for is merged already.
    let (levels, twice) = (store.figures().levels, bytes(7));
    assert!(levels[0].0 > 0);
    [0, 3, 5].into_iter().for_each(compact);
    other.compact_range(None, None).unwrap();
    store.compact_range(Some(b"x"), None).unwrap();
    assert_eq!((store.figures().levels, bytes(7)), (levels, twice));
    compact(7);
    assert!(bytes(7) < twice * 2 / 3, "{} of {twice}", bytes(7));
    assert_eq!((other.get(b"k").unwrap().unwrap(), store.get(&key(0)).unwrap().is_some()), (b"v".to_vec(), true));
    assert_eq!(store.check().unwrap(), [""; 0]);
}

#[test]
fn tables_are_compressed_as_the_opening_says_and_every_opening_reads_all() {
    let drive = formatted(&config());
    let ways = [Compression::Off, Compression::Lz4, Compression::Zstd];
    let mut sizes = Vec::new();
    for (round, compression) in (0..).zip(ways.into_iter().chain(ways)) {
        let table = TableOptions { compression, ..options().table };
        let store = Kv::open(drive.clone(), Options { table, ..options() }).unwrap();
        // What the opening before has written is read, too.
        for n in (0..300).filter(|_| round > 0) {
            assert_eq!(store.get(&key(n)).unwrap(), Some(mixed(2 * (round - 1 + n), VALUE)));
        }
        (0..300).for_each(|n| store.put(&key(n), &mixed(2 * (round + n), VALUE), false).unwrap());
        store.compact().unwrap();
        sizes.push(tables(&store));
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
    assert!(sizes[0].min(sizes[3]) > 300 * VALUE as u64, "{sizes:?}");
    assert!(sizes[1..3].iter().chain(&sizes[4..]).all(|size| size * 2 < sizes[0]), "{sizes:?}");
}

/// A table of the policy `band` takes 4 KiB of the metadata, which become more than a zone has.
#[test]
fn metadata_may_be_longer_than_a_zone() {
    let (zones, zone_size) = (200, 256 << 10);
    let config = Config { capacity: zones * zone_size, zone_size, zone_capacity: zone_size, ..config() };
    let small = Options { memtable_bytes: 96 << 10, table_bytes: zone_size, step_bytes: zone_size, ..options() };
    let options = |policy: &str| Options { policy: Some(policy.into()), ..small.clone() };
    for policy in ["ring", "band"] {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options(policy)).unwrap();
        let keys = zones * zone_size / 3 / 500;
        for n in 0..keys {
            store
                .put(&key(n * 7919 % keys), &value(n, 480), false)
                .unwrap_or_else(|error| panic!("{policy}, {n} of {keys}: {error}"));
        }
        drop(store);
        let store = Kv::open(drive, options(policy)).unwrap();
        assert_eq!(store.check().unwrap(), [""; 0]);
        assert!(store.figures().levels.iter().map(|level| level.0).sum::<u64>() > 50);
    }
}
