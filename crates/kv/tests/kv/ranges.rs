//! Ranges of keys that are deleted at once.

use crate::support::{config, configs, formatted, options, value};
use imbrex_device::Code;
use imbrex_emulator::Config;
use imbrex_kv::{Batch, Kv, Make, Options, Order, forget_order, register_order};
use imbrex_zones::{Exec, VolumeOptions};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

const BYTES: &str = "leveldb.BytewiseComparator";

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn filled(store: &Kv, keys: u32) {
    (0..keys).for_each(|n| store.put(&key(n * 7919 % keys), &value(n.into(), 900), false).unwrap());
}

fn count(store: &Kv) -> u32 {
    let (mut iter, mut keys) = (store.iter().unwrap(), 0);
    iter.seek_to_first().unwrap();
    while iter.get().is_some() {
        keys += 1;
        iter.advance().unwrap();
    }
    keys
}

#[test]
fn tables_with_nothing_else_go_at_once_and_the_edges_when_all_is_merged() {
    for config in configs() {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options()).unwrap();
        filled(&store, 2000);
        store.compact().unwrap();
        let full = store.figures().zones;
        store.delete_range(Some(&key(100)), Some(&key(1900)), true).unwrap();
        assert_eq!((count(&store), store.get(&key(100)).unwrap(), store.get(&key(1899)).unwrap()), (200, None, None));
        // One step of background work, no merge.
        store.step().unwrap();
        let left = store.figures();
        assert!(left.zones.0 * 3 < full.0, "{left:?} of {full:?}");
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        assert_eq!((count(&store), store.figures().ranges), (200, 1));
        store.compact().unwrap();
        assert_eq!((count(&store), store.figures().ranges), (200, 0));
        assert!(store.get(&key(99)).unwrap().is_some() && store.get(&key(1900)).unwrap().is_some());
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

#[test]
fn whoever_reads_an_earlier_moment_still_sees_what_was_deleted_also_through_merges() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    filled(&store, 600);
    let before = store.snapshot();
    let mut iter = store.iter().unwrap();
    store.delete_range(None, Some(&key(400)), false).unwrap();
    store.put(&key(5), b"new", false).unwrap();
    let between = store.snapshot();
    store.delete_range(Some(&key(0)), None, false).unwrap();
    store.compact().unwrap();
    for n in 0..600 {
        assert!(store.get_at(&before, &key(n)).unwrap().is_some(), "{n}");
        assert_eq!(store.get_at(&between, &key(n)).unwrap().is_some(), n == 5 || n >= 400, "{n}");
        assert_eq!(store.get(&key(n)).unwrap(), None);
    }
    iter.seek_to_last().unwrap();
    assert_eq!(iter.get().unwrap().0, key(599));
    drop((before, between, iter));
    store.compact().unwrap();
    assert_eq!((count(&store), store.figures().ranges), (0, 0));
    assert!(store.figures().levels.iter().all(|level| level.0 == 0), "{:?}", store.figures());
}

#[test]
fn what_is_put_behind_it_stays_also_when_both_are_only_in_the_log() {
    let drive = formatted(&config());
    for round in 0..6u32 {
        let store = Kv::open(drive.clone(), options()).unwrap();
        assert_eq!(store.damage(), [""; 0]);
        if round > 0 {
            assert_eq!((count(&store), store.get(b"b").unwrap().unwrap()), (2, (round - 1).to_be_bytes().to_vec()));
        }
        let mut batch = Batch::new();
        batch.put(b"a", b"old");
        batch.delete_range(Some(b"a"), Some(b"c"));
        batch.put(b"b", &round.to_be_bytes());
        batch.put(b"c", b"behind the end");
        store.write(&batch, round % 2 == 0).unwrap();
        if round == 3 {
            store.step().unwrap();
        }
    }
}

#[test]
fn so_many_that_no_more_fit_make_the_store_merge() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    filled(&store, 600);
    for n in 0..2100u32 {
        store.delete_range(Some(&key(n % 600)), Some(&key(n % 600 + 1)), false).unwrap();
    }
    assert!(store.figures().ranges <= 1024);
    assert_eq!(count(&store), 0);
    filled(&store, 600);
    let before = store.snapshot();
    let refused =
        (0..1200u32).find_map(|n| store.delete_range(Some(&key(n % 600)), Some(&key(n % 600 + 1)), false).err());
    let refused = refused.expect("a snapshot keeps them");
    assert!(refused.code() == Code::NoSpace && refused.to_string().contains("snapshots"), "{refused}");
    drop(before);
    store.delete_range(None, None, true).unwrap();
    assert_eq!(count(&store), 0);
}

#[test]
fn a_range_that_makes_no_sense_is_refused() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    let refused = store.delete_range(Some(b"b"), Some(b"a"), false).unwrap_err().to_string();
    assert!(refused.contains("ends before it begins"), "{refused}");
    let refused = store.delete_range(None, Some(&[1; 65_537]), false).unwrap_err().to_string();
    assert!(refused.contains("too long"), "{refused}");
    store.put(b"a", b"1", false).unwrap();
    store.delete_range(Some(b"a"), Some(b"a"), true).unwrap();
    assert_eq!((store.get(b"a").unwrap().unwrap(), store.figures().ranges), (b"1".to_vec(), 0));
}

struct Backwards;

impl Order for Backwards {
    fn name(&self) -> &str {
        "ranges: backwards"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        assert!(!a.is_empty() && !b.is_empty(), "nobody has put an empty key");
        b.cmp(a)
    }
}

#[test]
fn a_dropped_space_is_gone_and_its_name_is_free() {
    register_order(Arc::new(Backwards));
    for order in [BYTES, Backwards.name()] {
        let drive = formatted(&config());
        let store = Kv::open(drive.clone(), options()).unwrap();
        let (a, b) = (store.space("a", order, Make::New).unwrap(), store.space("b", BYTES, Make::New).unwrap());
        filled(&store, 100);
        filled(&a, 1000);
        filled(&b, 100);
        let before = store.snapshot();
        let used = store.figures().zones.0;
        a.delete_range(Some(&key(u32::from(order == BYTES) * 500)), None, false).unwrap();
        assert_eq!(count(&a), if order == BYTES { 500 } else { 0 } + u32::from(order != BYTES) * 999);
        store.drop_space("a").unwrap();
        assert_eq!(store.spaces(), [("b".to_owned(), BYTES.to_owned())]);
        assert_eq!(a.put(b"k", b"v", false).unwrap_err().code(), Code::NotFound);
        assert_eq!(store.drop_space("a").unwrap_err().code(), Code::NotFound);
        assert!(store.drop_space("").is_err());
        // Who had a moment of it reads on.
        assert!(a.get_at(&before, &key(7)).unwrap().is_some() && a.get(&key(7)).unwrap().is_none());
        let again = store.space("a", BYTES, Make::New).unwrap();
        again.put(b"k", b"v", true).unwrap();
        // A handle of the old one is of no other.
        assert_eq!(a.put(b"k", b"w", false).unwrap_err().code(), Code::NotFound);
        drop((before, a, again, b, store));
        let store = Kv::open(drive, options()).unwrap();
        assert_eq!(store.damage(), [""; 0]);
        store.compact().unwrap();
        let (a, b) = (store.space("a", BYTES, Make::Never).unwrap(), store.space("b", BYTES, Make::Never).unwrap());
        assert_eq!((count(&store), count(&a), count(&b), store.figures().ranges), (100, 1, 100, 0));
        assert!(store.figures().zones.0 < used);
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

#[test]
fn partitions_that_begin_in_a_dropped_space_are_gone_before_its_order_is() {
    register_order(Arc::new(Backwards));
    let drive = formatted(&Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 48 << 20, ..config() });
    let options = || Options {
        memtable_bytes: 96 << 10,
        table_bytes: 240 << 10,
        step_bytes: 240 << 10,
        ..crate::support::options()
    };
    let store = Kv::open(drive.clone(), options()).unwrap();
    let names = [("a", BYTES), ("b", Backwards.name()), ("c", BYTES)];
    let spaces = names.map(|(name, order)| store.space(name, order, Make::New).unwrap());
    let spread = |n: u32| n * 7919 % 4000;
    for n in 0..4000 {
        for space in &spaces {
            space.put(&key(spread(n)), &value(n.into(), 1500), false).unwrap();
        }
    }
    store.compact().unwrap();
    assert!(store.figures().partitions > 6, "{:?}", store.figures());
    store.drop_space("b").unwrap();
    assert_eq!(store.figures().ranges, 0);
    drop(spaces);
    drop(store);
    forget_order(Backwards.name());
    let store = Kv::open(drive, options()).unwrap();
    assert_eq!(store.damage(), [""; 0]);
    for name in ["a", "c"] {
        assert_eq!(count(&store.space(name, BYTES, Make::Never).unwrap()), 4000);
    }
    register_order(Arc::new(Backwards));
}

#[test]
fn on_a_full_drive_a_range_makes_room_for_the_next_put() {
    for config in configs() {
        let store = Kv::open(formatted(&config), options()).unwrap();
        for round in 0..3u32 {
            let full =
                (0..).find(|n| store.put(&key(n * 31 % 10_000), &value(u64::from(*n), 2000), false).is_err()).unwrap();
            assert!(full > 300, "{full} in round {round}");
            store.delete_range(None, None, false).unwrap();
            store.put(b"one", b"more", true).unwrap();
            assert_eq!(count(&store), 1);
        }
    }
}

#[test]
fn a_batch_of_more_ranges_than_fit_is_refused_before_anything_is_merged() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    let mut batch = Batch::new();
    (0..1025).for_each(|n| batch.delete_range(Some(&key(n)), Some(&key(n + 1))));
    assert_eq!(store.write(&batch, false).unwrap_err().code(), Code::InvalidArgument);
    // Empty ranges are nothing.
    let before = store.figures().log;
    for _ in 0..5000 {
        store.delete_range(Some(b"a"), Some(b"a"), true).unwrap();
    }
    assert_eq!(store.figures().log, before);
}

#[test]
fn ranges_are_deleted_beside_merges_and_nothing_comes_back() {
    let options = Options { volume: VolumeOptions { exec: Exec::Threads(1), ..options().volume }, ..options() };
    let drive = formatted(&Config { capacity: 24 << 20, ..config() });
    let store = Kv::open(drive.clone(), options.clone()).unwrap();
    let (done, others) = (AtomicBool::new(false), |n: u32| [&b"other"[..], &key(n)].concat());
    std::thread::scope(|scope| {
        // Somebody else makes work for merges.
        scope.spawn(|| {
            for n in (0..200).cycle().take_while(|_| !done.load(Memory::Relaxed)) {
                store.put(&others(n), &value(n.into(), 800), false).unwrap();
            }
        });
        for round in 0..400u32 {
            let first = round * 20;
            (first..first + 20).for_each(|n| store.put(&key(n), &value(n.into(), 500), false).unwrap());
            store.delete_range(Some(&key(first)), Some(&key(first + 19)), false).unwrap();
            assert_eq!(store.get(&key(first)).unwrap(), None);
        }
        done.store(true, Memory::Relaxed);
    });
    for _ in 0..2 {
        let found: Vec<u32> = (0..8000).filter(|n| store.get(&key(*n)).unwrap().is_some()).collect();
        assert!(found.iter().copied().eq((0..400).map(|round| round * 20 + 19)), "{found:?}");
        store.compact().unwrap();
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
    drop(store);
    let store = Kv::open(drive, options).unwrap();
    assert_eq!((count(&store), store.damage()), (600, vec![]));
}
