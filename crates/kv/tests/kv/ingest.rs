//! Sorted pairs that become tables at once.

use crate::support::{config, configs, formatted, options, value};
use imbrex_device::Code;
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::policy::ALL;
use imbrex_kv::{Bytewise, Expiry, Ingest, Kv, Make, Options, Order, register_order};
use imbrex_zones::{Exec, VolumeOptions};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

/// Ingests these keys, with values of this seed, and has the map know.
fn ingest(store: &Kv, map: &mut Map, keys: impl Iterator<Item = u64>, seed: u64) {
    let mut ingest = store.ingest().unwrap();
    let mut count = 0;
    for n in keys {
        let content = value(seed << 32 | n, 700);
        ingest.put(&key(n), &content).unwrap();
        map.insert(key(n), content);
        count += 1;
    }
    ingest.finish().unwrap();
    assert_eq!(ingest.stored(), count);
}

fn put(store: &Kv, map: &mut Map, keys: impl Iterator<Item = u64>, seed: u64) {
    for n in keys {
        store.put(&key(n), &value(seed << 32 | n, 300), false).unwrap();
        map.insert(key(n), value(seed << 32 | n, 300));
    }
}

fn delete(store: &Kv, map: &mut Map, keys: impl Iterator<Item = u64>) {
    for n in keys {
        store.delete(&key(n), false).unwrap();
        map.remove(&key(n));
    }
}

/// What an iterator finds in both directions, and gets.
fn holds(store: &Kv, map: &Map, when: &str) {
    let at = store.snapshot();
    let mut iter = store.iter_at(&at).unwrap();
    let (mut found, mut back) = (Vec::new(), Vec::new());
    iter.seek_to_first().unwrap();
    while let Some((key, value)) = iter.get() {
        found.push((key.to_vec(), value.to_vec()));
        iter.advance().unwrap();
    }
    iter.seek_to_last().unwrap();
    while let Some((key, value)) = iter.get() {
        back.push((key.to_vec(), value.to_vec()));
        iter.retreat().unwrap();
    }
    back.reverse();
    let wanted: Vec<_> = map.clone().into_iter().collect();
    assert!(found == wanted, "{when}: {} keys, not {}", found.len(), wanted.len());
    assert!(back == wanted, "{when}, backwards: {} keys, not {}", back.len(), wanted.len());
    for n in 0..400 {
        assert_eq!(store.get(&key(n)).unwrap(), map.get(&key(n)).cloned(), "{when}, key {n}");
        assert_eq!(store.get_at(&at, &key(n)).unwrap(), map.get(&key(n)).cloned(), "{when}, key {n} at a snapshot");
    }
}

fn stores() -> impl Iterator<Item = (Config, Options)> {
    let each = |config: Config| ALL.iter().map(move |(name, _)| (config.clone(), with(name)));
    configs().into_iter().flat_map(each)
}

fn with(policy: &str) -> Options {
    Options { policy: Some(policy.to_owned()), ..options() }
}

#[test]
fn they_replace_what_is_older_and_are_replaced_by_what_is_newer() {
    for (config, options) in stores() {
        let drive = formatted(&config);
        let policy = options.policy.clone();
        let mut store = Kv::open(drive.clone(), options.clone()).unwrap();
        let mut map = Map::new();
        // Below: in tables, in memory, deleted in both.
        put(&store, &mut map, (0..200).step_by(2), 1);
        store.flush().unwrap();
        delete(&store, &mut map, (0..200).step_by(6));
        put(&store, &mut map, (0..300).step_by(5), 2);
        delete(&store, &mut map, (0..300).step_by(15));
        let (before, old) = (store.snapshot(), map.clone());
        let mut walking = store.iter().unwrap();
        walking.seek_to_first().unwrap();
        ingest(&store, &mut map, (50..150).step_by(3), 3);
        holds(&store, &map, "ingested");
        // Above: puts, deletes, another ingest.
        put(&store, &mut map, (50..100).step_by(4), 4);
        delete(&store, &mut map, (60..150).step_by(9));
        store.delete_range(Some(&key(80)), Some(&key(90)), false).unwrap();
        map.retain(|k, _| *k < key(80) || *k >= key(90));
        ingest(&store, &mut map, (85..95).chain(120..130), 5);
        holds(&store, &map, "replaced");
        let (between, middle) = (store.snapshot(), map.clone());
        // Memory that is older than tables becomes tables, and all is merged.
        store.flush().unwrap();
        holds(&store, &map, "flushed");
        store.compact().unwrap();
        holds(&store, &map, "merged");
        let mut seen = Map::new();
        while let Some((key, value)) = walking.get() {
            seen.insert(key.to_vec(), value.to_vec());
            walking.advance().unwrap();
        }
        assert_eq!(seen, old, "{policy:?}");
        for n in 0..300 {
            assert_eq!(store.get_at(&before, &key(n)).unwrap(), old.get(&key(n)).cloned(), "{policy:?}, key {n}");
            assert_eq!(store.get_at(&between, &key(n)).unwrap(), middle.get(&key(n)).cloned(), "{policy:?}, key {n}");
        }
        drop((walking, before, between));
        ingest(&store, &mut map, 0..40, 6);
        delete(&store, &mut map, 10..20);
        assert_eq!(store.check().unwrap(), [""; 0]);
        drop(store);
        store = Kv::open(drive, options).unwrap();
        assert_eq!(store.damage(), [""; 0]);
        holds(&store, &map, "opened");
        put(&store, &mut map, 5..15, 7);
        store.compact().unwrap();
        holds(&store, &map, "merged after an opening");
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

#[test]
fn what_memory_has_is_older_after_an_opening_too() {
    for (config, options) in stores() {
        let drive = formatted(&config);
        let mut map = Map::new();
        let store = Kv::open(drive.clone(), options.clone()).unwrap();
        put(&store, &mut map, 0..20, 1);
        delete(&store, &mut map, 10..20);
        ingest(&store, &mut map, 5..15, 2);
        drop(store);
        for _ in 0..2 {
            // The log has the puts, and brings them back.
            let store = Kv::open(drive.clone(), options.clone()).unwrap();
            assert_eq!(store.damage(), [""; 0]);
            assert!(store.figures().memory > 0);
            holds(&store, &map, "opened");
        }
        let store = Kv::open(drive, options).unwrap();
        store.compact().unwrap();
        holds(&store, &map, "merged");
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

#[test]
fn they_are_written_once_and_no_log_has_them() {
    let zone = 1 << 20;
    let config = Config { zone_size: zone, zone_capacity: zone, capacity: 48 << 20, ..config() };
    let emulator = Emulator::memory(&config).unwrap();
    let drive = imbrex_device::Drive { device: Arc::new(emulator.clone()), survivor: None };
    Kv::format(&drive, None, false).unwrap();
    let large = Options { memtable_bytes: 256 << 10, table_bytes: 256 << 10, step_bytes: 256 << 10, ..with("ring") };
    let store = Kv::open(drive, large).unwrap();
    let before = emulator.stats().total.bytes_written;
    let mut map = Map::new();
    ingest(&store, &mut map, 0..20_000, 1);
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    let written = emulator.stats().total.bytes_written - before;
    // Some blocks of metadata for each 256 KiB.
    assert!(written < bytes as u64 * 23 / 20, "{written} bytes for {bytes}");
    while store.step().unwrap() {}
    let figures = store.figures();
    let merged: u64 = figures.done.written.iter().map(|(_, merged)| merged).sum();
    let (tables, bottom, _) = *figures.levels.last().unwrap();
    assert!(merged < bytes as u64 / 20 && tables > 50 && bottom > bytes as u64 * 9 / 10, "{figures:?}");
    assert_eq!((figures.done.puts, figures.done.put_bytes), (20_000, bytes as u64));
    assert!(figures.log < 64 << 10, "{figures:?}");
    assert_eq!(store.check().unwrap(), [""; 0]);
}

#[test]
fn keys_that_do_not_ascend_are_refused_and_cost_nothing() {
    let drive = formatted(&config());
    let store = Kv::open(drive.clone(), options()).unwrap();
    let mut ingest = store.ingest().unwrap();
    ingest.put(b"b", b"1").unwrap();
    for key in [&b"b"[..], b"a", b""] {
        let error = ingest.put(key, b"2").unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains("not behind the one before"), "{error}");
    }
    let error = ingest.put(&[b'c'; 70_000], b"").unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.to_string().contains("too long"), "{error}");
    assert_eq!((store.get(b"b").unwrap(), ingest.stored()), (None, 0));
    ingest.finish().unwrap();
    assert_eq!((store.get(b"b").unwrap(), ingest.stored()), (Some(b"1".to_vec()), 1));
    // It goes on, and behind the last key.
    ingest.finish().unwrap();
    assert_eq!(ingest.put(b"b", b"2").unwrap_err().code(), Code::InvalidArgument);
    ingest.put(b"c", b"3").unwrap();
    // What nobody has finished is not there.
    drop(ingest);
    assert_eq!((store.get(b"b").unwrap(), store.get(b"c").unwrap()), (Some(b"1".to_vec()), None));
}

/// Backwards.
struct Reversed;

impl Order for Reversed {
    fn name(&self) -> &str {
        "reversed"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

#[test]
fn each_space_has_its_own_order_and_a_dropped_one_takes_none() {
    register_order(Arc::new(Reversed));
    for config in configs() {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options()).unwrap();
        let reversed = store.space("reversed", "reversed", Make::New).unwrap();
        let other = store.space("other", Bytewise.name(), Make::New).unwrap();
        let (mut map, mut of_other) = (Map::new(), Map::new());
        put(&store, &mut map, (0..100).step_by(2), 1);
        let (mut a, mut b) = (reversed.ingest().unwrap(), store.ingest().unwrap());
        for n in 0..200 {
            a.put(&key(400 - n), &value(n, 900)).unwrap();
            b.put(&key(n), &value(7 << 32 | n, 700)).unwrap();
        }
        assert_eq!(a.put(&key(300), b"").unwrap_err().code(), Code::InvalidArgument);
        b.finish().unwrap();
        a.finish().unwrap();
        map.extend((0..200).map(|n| (key(n), value(7 << 32 | n, 700))));
        ingest(&other, &mut of_other, 0..50, 2);
        let mut late = other.ingest().unwrap();
        late.put(b"k", b"late").unwrap();
        store.drop_space("other").unwrap();
        assert_eq!(late.finish().unwrap_err().code(), Code::NotFound);
        assert_eq!(other.ingest().map(drop).unwrap_err().code(), Code::NotFound);
        let other = store.space("other", Bytewise.name(), Make::New).unwrap();
        holds(&other, &Map::new(), "dropped");
        store.compact().unwrap();
        for store in [store.clone(), store] {
            holds(&store, &map, "the unnamed space");
            let mut iter = reversed.iter().unwrap();
            iter.seek_to_first().unwrap();
            for n in 0..200 {
                assert_eq!(iter.get(), Some((&key(400 - n)[..], &value(n, 900)[..])));
                iter.advance().unwrap();
            }
            assert_eq!(iter.get(), None);
        }
        assert_eq!(reversed.check().unwrap(), [""; 0]);
    }
}

#[test]
fn checkpoints_keep_what_was_before() {
    for (config, options) in stores() {
        let drive = formatted(&config);
        let mut map = Map::new();
        let mut kept = Vec::new();
        for round in 0..4u64 {
            let store = Kv::open(drive.clone(), options.clone()).unwrap();
            put(&store, &mut map, (0..60).step_by(4), round * 2);
            store.checkpoint(&format!("{round} before")).unwrap();
            kept.push((format!("{round} before"), map.clone()));
            ingest(&store, &mut map, round * 10..round * 10 + 40, round * 2 + 1);
            store.checkpoint(&format!("{round} after")).unwrap();
            kept.push((format!("{round} after"), map.clone()));
            if round % 2 == 1 {
                store.compact().unwrap();
            }
            for (name, map) in &kept {
                let at = store.at_checkpoint(name).unwrap();
                for n in 0..80 {
                    assert_eq!(store.get_at(&at, &key(n)).unwrap(), map.get(&key(n)).cloned(), "{name}, key {n}");
                }
            }
            holds(&store, &map, "now");
            assert_eq!(store.check().unwrap(), [""; 0]);
        }
    }
}

/// Pairs whose value begins with an x are over, once that is said.
#[derive(Default)]
struct Marked(AtomicBool);

impl Expiry for Marked {
    fn is_over(&self, _: &[u8], value: &[u8]) -> bool {
        self.0.load(Relaxed) && value.first() == Some(&b'x')
    }
}

#[test]
fn a_pair_that_is_over_hides_what_memory_has() {
    for (policy, _) in ALL {
        let drive = formatted(&config());
        let store = Kv::open(drive.clone(), with(policy)).unwrap();
        let marked = Arc::new(Marked::default());
        store.expire(marked.clone());
        store.put(b"k", b"old", false).unwrap();
        let mut ingest = store.ingest().unwrap();
        ingest.put(b"k", b"x").unwrap();
        ingest.finish().unwrap();
        assert_eq!(store.get(b"k").unwrap(), Some(b"x".to_vec()));
        marked.0.store(true, Relaxed);
        assert_eq!(store.get(b"k").unwrap(), None);
        while store.step().unwrap() {}
        assert_eq!(store.get(b"k").unwrap(), None);
        store.compact().unwrap();
        assert_eq!(store.get(b"k").unwrap(), None);
        drop(store);
        let store = Kv::open(drive, with(policy)).unwrap();
        // Not every policy merges all, and nobody says here that the pair is over.
        assert_ne!(store.get(b"k").unwrap(), Some(b"old".to_vec()), "{policy}");
    }
}

/// Ingests new keys until there is no room. Returns how many there are.
fn fill(ingest: &mut Ingest, from: u64) -> u64 {
    for n in from.. {
        match ingest.put(&key(n), &value(n, 3000)) {
            Err(error) if error.code() == Code::NoSpace => break,
            put => put.unwrap(),
        }
    }
    ingest.stored()
}

#[test]
fn a_full_store_refuses_a_piece_and_keeps_those_before() {
    for (config, options) in stores() {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options.clone()).unwrap();
        let ring = options.policy.as_deref() == Some("ring");
        let mut ingest = store.ingest().unwrap();
        let stored = fill(&mut ingest, 0);
        assert!(stored * 3000 > if ring { 3 << 20 } else { 1 << 20 }, "{stored} of {options:?}");
        assert_eq!(ingest.finish().unwrap_err().code(), Code::NoSpace);
        assert_eq!(ingest.stored(), stored);
        let there = |store: &Kv| (0..stored).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 3000)));
        assert!(there(&store) && store.get(&key(stored)).unwrap().is_none());
        if ring {
            // Once there is room, it goes on with the piece that was refused.
            store.delete_range(Some(&key(0)), Some(&key(stored / 2)), false).unwrap();
            store.compact().unwrap();
            ingest.finish().unwrap();
            assert!(ingest.stored() > stored);
            let last = ingest.stored() - 1;
            assert_eq!(store.get(&key(last)).unwrap(), Some(value(last, 3000)));
        } else {
            drop((store, ingest));
            let store = Kv::open(drive, options).unwrap();
            assert!(there(&store) && store.get(&key(stored)).unwrap().is_none());
            assert_eq!(store.check().unwrap(), [""; 0]);
        }
    }
}

#[test]
fn others_put_and_read_meanwhile() {
    for config in configs() {
        let drive = formatted(&config);
        let inline = options();
        let threaded = Options { volume: VolumeOptions { exec: Exec::Threads(1), ..inline.volume }, ..inline };
        let store = Kv::open(drive.clone(), threaded.clone()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ingests: Vec<_> = (0..2u64)
                .map(|thread| {
                    let store = &store;
                    scope.spawn(move || {
                        for round in 0..6u64 {
                            // Both have the same keys: each is one of the two.
                            let mut ingest = store.ingest().unwrap();
                            for n in 0..120 {
                                ingest.put(&key(n), &value(round << 8 | thread, 500)).unwrap();
                            }
                            ingest.finish().unwrap();
                        }
                    })
                })
                .collect();
            let puts = scope.spawn(|| {
                for n in 0..3000u64 {
                    let k = format!("p{:03}", n % 90).into_bytes();
                    store.put(&k, &value(n, 200), n % 50 == 0).unwrap();
                    assert_eq!(store.get(&k).unwrap(), Some(value(n, 200)));
                    // Keys that are ingested, too.
                    let k = [&key(n % 120)[..], b"+"].concat();
                    store.put(&k, &value(n, 100), false).unwrap();
                    assert_eq!(store.get(&k).unwrap(), Some(value(n, 100)));
                    if n % 3 == 0 {
                        store.delete(&key(n % 120), false).unwrap();
                    }
                }
            });
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // A snapshot does not change.
                    let at = store.snapshot();
                    let read = || (0..120).map(|n| store.get_at(&at, &key(n)).unwrap()).collect::<Vec<_>>();
                    let first = read();
                    let mut iter = store.iter_at(&at).unwrap();
                    for (n, was) in first.iter().enumerate() {
                        iter.seek(&key(n as u64)).unwrap();
                        let here =
                            iter.get().filter(|(found, _)| *found == key(n as u64)).map(|(_, value)| value.to_vec());
                        assert_eq!(here, *was);
                    }
                    assert!(read() == first);
                }
            });
            // Also where one of them panicked: who reads must come to an end.
            let done: Vec<_> = ingests.into_iter().chain([puts]).map(|thread| thread.join()).collect();
            over.store(true, Relaxed);
            done.into_iter().for_each(|done| done.unwrap());
        });
        let all = |store: &Kv| {
            let (mut iter, mut all) = (store.iter().unwrap(), Map::new());
            iter.seek_to_first().unwrap();
            while let Some((key, value)) = iter.get() {
                all.insert(key.to_vec(), value.to_vec());
                iter.advance().unwrap();
            }
            all
        };
        let now = all(&store);
        let ingested = |value: &Vec<u8>| (0..6).any(|round| (0..2).any(|t| *value == self::value(round << 8 | t, 500)));
        assert!((0..120).filter_map(|n| now.get(&key(n))).all(ingested));
        store.compact().unwrap();
        assert!(all(&store) == now);
        assert_eq!(store.check().unwrap(), [""; 0]);
        drop(store);
        assert!(all(&Kv::open(drive, threaded).unwrap()) == now);
    }
}
