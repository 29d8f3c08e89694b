//! What iterators and checkpoints keep of a store, and when they let go of it.

use crate::support::{config, configs, formatted, options, value};
use imbrex_device::{Code, Drive};
use imbrex_emulator::Emulator;
use imbrex_kv::{Iter, Kv, Options};
use std::sync::Arc;
use std::time::Duration;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

fn version(version: u64, n: u64) -> Vec<u8> {
    value((version << 32) + n, 3000)
}

fn put(store: &Kv, n: u64, of: u64) -> imbrex_device::Result<()> {
    store.put(&key(n), &version(of, n), false)
}

#[test]
fn an_iterator_keeps_no_tables_that_are_gone() {
    for config in configs() {
        let store = Kv::open(formatted(&config), options()).unwrap();
        // Of 5.5 MiB of zones these take a third, and stay as they are.
        (0..600).for_each(|n| put(&store, 2 * n, 1).unwrap());
        let mut iter = store.iter().unwrap();
        iter.seek_to_first().unwrap();
        // Merges write all tables anew several times over, and nothing that the iterator sees is replaced.
        for round in 2..30 {
            for n in 0..200 {
                put(&store, 6 * n + 1, round).unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        }
        for n in 0..600 {
            assert_eq!(iter.get(), Some((&key(2 * n)[..], &version(1, 2 * n)[..])));
            // It turns round, since it may have to find its place anew.
            if n % 50 == 49 {
                iter.retreat().unwrap();
                iter.advance().unwrap();
            }
            iter.advance().unwrap();
        }
        assert_eq!(iter.get(), None);
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

#[test]
fn an_iterator_expires_only_where_the_store_is_full_and_its_lease_is_over() {
    for (lease, expires) in [(0, true), (3600, false)] {
        let lease = Duration::from_secs(lease);
        let store = Kv::open(formatted(&config()), Options { lease, ..options() }).unwrap();
        let mut iter = store.iter().unwrap();
        (0..700).for_each(|n| put(&store, n, 1).unwrap());
        let mut old = store.iter().unwrap();
        let snapshot = store.snapshot();
        let mut of_snapshot = store.iter_at(&snapshot).unwrap();
        drop(snapshot);
        old.seek_to_first().unwrap();
        iter.seek_to_first().unwrap();
        // No room is lacking yet.
        store.compact().unwrap();
        old.advance().unwrap();
        // All that they keep is replaced, several times: 2.1 MB of old values, and 2.7 MB of new ones.
        let done = (2..6).flat_map(|round| (0..900).map(move |n| (n, round)));
        let refused = done.map(|(n, round)| put(&store, n, round)).find_map(Result::err);
        assert_eq!(refused.map(|error| error.code()), (!expires).then_some(Code::NoSpace));
        let code = |moved: imbrex_device::Result<()>| moved.err().map(|error| error.code());
        assert_eq!(code(old.advance()), expires.then_some(Code::Expired));
        assert_eq!(code(of_snapshot.seek_to_last()), expires.then_some(Code::Expired));
        if !expires {
            assert_eq!(old.get(), Some((&key(2)[..], &version(1, 2)[..])));
            assert_eq!(iter.get(), None);
            drop((iter, old, of_snapshot));
            (0..300).for_each(|n| put(&store, n, 9).unwrap());
        } else {
            // Another one may begin.
            let mut again = store.iter().unwrap();
            again.seek(&key(7)).unwrap();
            assert_eq!(again.get(), Some((&key(7)[..], &version(5, 7)[..])));
        }
    }
}

#[test]
fn an_iterator_that_cannot_read_stays_where_it_is() {
    let drive = Emulator::memory(&config()).unwrap();
    let hands = Drive { device: Arc::new(drive.clone()), survivor: None };
    Kv::format(&hands, None, false).unwrap();
    let store = Kv::open(hands, Options { cache_bytes: 0, ..options() }).unwrap();
    (0..200).for_each(|n| put(&store, n, 1).unwrap());
    store.compact().unwrap();
    for back in [false, true] {
        let step = |iter: &mut Iter| if back { iter.retreat() } else { iter.advance() };
        let mut iter = store.iter().unwrap();
        if back {
            iter.seek_to_last().unwrap()
        } else {
            iter.seek_to_first().unwrap()
        };
        let (mut keys, mut failed) = (Vec::new(), 0);
        while let Some((key, _)) = iter.get() {
            let here = key.to_vec();
            if keys.len() % 40 == 20 {
                (2..48).for_each(|zone| drive.faults().media_error(zone * (128 << 10), 128 << 10));
                // It may have read a little ahead.
                let stays = |iter: &mut Iter| {
                    let before = iter.get().map(|(key, _)| key.to_vec());
                    let refused = step(iter).is_err();
                    assert!(!refused || iter.get().map(|(key, _)| key.to_vec()) == before);
                    refused
                };
                let mut passed = Vec::new();
                while !stays(&mut iter) {
                    passed.extend(iter.get().map(|(key, _)| key.to_vec()));
                }
                assert!(stays(&mut iter));
                drive.faults().clear();
                failed += 1;
                keys.push(here);
                keys.append(&mut passed);
                step(&mut iter).unwrap();
                continue;
            }
            keys.push(here);
            step(&mut iter).unwrap();
        }
        if back {
            keys.reverse();
        }
        assert!(keys.iter().eq(&(0..200).map(key).collect::<Vec<_>>()), "back {back}: {}", keys.len());
        assert!(failed > 2);
    }
}

#[test]
fn a_checkpoint_outlives_restarts_and_its_room_comes_back() {
    let drive = formatted(&config());
    let store = Kv::open(drive.clone(), options()).unwrap();
    let code = |done: imbrex_device::Result<()>| done.err().map(|error| error.code());
    (0..300).for_each(|n| put(&store, n, 1).unwrap());
    store.checkpoint("one").unwrap();
    assert_eq!(code(store.checkpoint("one")), Some(Code::Exists));
    assert_eq!(code(store.checkpoint("")), Some(Code::InvalidArgument));
    assert_eq!(code(store.checkpoint(&"x".repeat(1025))), Some(Code::InvalidArgument));
    assert_eq!(code(store.drop_checkpoint("two")), Some(Code::NotFound));
    (0..300).for_each(|n| store.delete(&key(n), false).unwrap());
    store.checkpoint("empty").unwrap();
    store.compact().unwrap();
    drop(store);
    let store = Kv::open(drive, options()).unwrap();
    assert_eq!(store.checkpoints(), ["empty", "one"]);
    let (one, empty) = (store.at_checkpoint("one").unwrap(), store.at_checkpoint("empty").unwrap());
    (0..300).for_each(|n| {
        assert_eq!(store.get(&key(n)).unwrap(), None);
        assert_eq!(store.get_at(&empty, &key(n)).unwrap(), None);
        assert_eq!(store.get_at(&one, &key(n)).unwrap(), Some(version(1, n)));
    });
    let mut iter = store.iter_at(&one).unwrap();
    iter.seek_to_last().unwrap();
    assert_eq!(iter.get().unwrap().0, key(299));
    let used = || store.figures().zones.0;
    let before = used();
    // Whoever has it open keeps it.
    store.drop_checkpoint("one").unwrap();
    assert_eq!(store.get_at(&one, &key(5)).unwrap(), Some(version(1, 5)));
    drop((one, iter));
    store.compact().unwrap();
    store.step().unwrap();
    // 900 KB of values, in zones of 128 KiB.
    assert!(used() + 6 <= before, "{before} zones became {}", used());
    assert_eq!(store.checkpoints(), ["empty"]);
}

#[test]
fn a_thousand_checkpoints_are_enough() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    (0..1024).for_each(|n| store.checkpoint(&format!("{n}")).unwrap());
    assert_eq!(store.checkpoint("more").unwrap_err().code(), Code::NoSpace);
    store.drop_checkpoint("7").unwrap();
    store.checkpoint("more").unwrap();
}
