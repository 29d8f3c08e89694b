//! What is said about how much there is.

use crate::support::{config, configs, formatted, options, value};
use imbrex_device::{Cause, Drive};
use imbrex_emulator::Emulator;
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
