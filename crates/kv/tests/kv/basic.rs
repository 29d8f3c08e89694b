//! One caller, no faults.

use crate::support::{configs, formatted, options, value};
use imbrex_kv::{Batch, Kv};
use std::collections::BTreeMap;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn all(store: &Kv) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut iter = store.iter().unwrap();
    iter.seek_to_first().unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = iter.get() {
        found.push((key.to_vec(), value.to_vec()));
        iter.advance().unwrap();
    }
    let mut back = Vec::new();
    iter.seek_to_last().unwrap();
    while let Some((key, value)) = iter.get() {
        back.push((key.to_vec(), value.to_vec()));
        iter.retreat().unwrap();
    }
    back.reverse();
    assert_eq!(found, back);
    found
}

#[test]
fn what_is_put_is_found_also_after_flushes_merges_and_restarts() {
    for config in configs() {
        let drive = formatted(&config);
        let mut model = BTreeMap::new();
        for round in 0..4u64 {
            let store = Kv::open(drive.clone(), options()).unwrap();
            assert_eq!(store.damage(), [""; 0]);
            for n in 0..600u64 {
                let n = (n * 7919 + round * 31) % 700;
                let mut batch = Batch::new();
                if n % 9 == round {
                    batch.delete(&key(n));
                    model.remove(&key(n));
                } else {
                    let value = value(n + round, (n % 1500) as usize);
                    batch.put(&key(n), &value);
                    model.insert(key(n), value);
                }
                store.write(&batch, n % 50 == 0).unwrap();
            }
            for n in 0..700 {
                assert_eq!(
                    store.get(&key(n)).unwrap(),
                    model.get(&key(n)).cloned(),
                    "{n} in round {round} of {config:?}"
                );
            }
            assert!(all(&store).into_iter().eq(model.clone()));
            assert_eq!(store.check().unwrap(), [""; 0]);
            if round == 2 {
                store.compact().unwrap();
                assert!(all(&store).into_iter().eq(model.clone()));
            }
        }
    }
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let store = Kv::open(formatted(&configs()[0]), options()).unwrap();
    (0..100).for_each(|n| store.put(&key(n), b"old", false).unwrap());
    let snapshot = store.snapshot();
    let mut before = store.iter().unwrap();
    (0..100).filter(|n| n % 3 == 0).for_each(|n| store.delete(&key(n), false).unwrap());
    (0..100).filter(|n| n % 3 == 1).for_each(|n| store.put(&key(n), &value(n, 900), false).unwrap());
    store.compact().unwrap();
    before.seek_to_first().unwrap();
    for n in 0..100 {
        assert_eq!(store.get_at(&snapshot, &key(n)).unwrap(), Some(b"old".to_vec()));
        assert_eq!(before.get(), Some((&key(n)[..], &b"old"[..])));
        before.advance().unwrap();
        let now = store.get(&key(n)).unwrap();
        assert_eq!(now, [None, Some(value(n, 900)), Some(b"old".to_vec())][n as usize % 3]);
    }
    assert_eq!(before.get(), None);
}

#[test]
fn overwriting_for_ever_needs_no_more_room() {
    for config in configs() {
        let store = Kv::open(formatted(&config), options()).unwrap();
        // The drive has some six MiB; this is twenty.
        for n in 0..20_000u64 {
            store.put(&key(n * 31 % 500), &value(n, 1000), false).unwrap_or_else(|error| panic!("{n}: {error}"));
            if n % 100 == 0 {
                while store.step().unwrap() {}
            }
        }
        for k in 0..500 {
            let newest = (0..20_000u64).rev().find(|n| n * 31 % 500 == k).unwrap();
            assert_eq!(store.get(&key(k)).unwrap(), Some(value(newest, 1000)));
        }
        store.compact().unwrap();
        assert_eq!(all(&store).len(), 500);
    }
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_sentence() {
    let store = Kv::open(formatted(&configs()[0]), options()).unwrap();
    assert!(store.put(&[1; 65537], b"v", false).unwrap_err().to_string().contains("65537 bytes is too long"));
    // A zone takes so much of one entry, and no more.
    let refused = store.put(&[1; 30_000], b"v", false).unwrap_err().to_string();
    assert!(refused.contains("too long for a zone of this drive"), "{refused}");
    store.put(&[1; 19_000], b"v", true).unwrap();
    store.put(b"k", &value(1, 114_000), true).unwrap();
    store.compact().unwrap();
    assert_eq!(store.get(&[1; 19_000]).unwrap(), Some(b"v".to_vec()));
    assert_eq!(store.get(b"k").unwrap(), Some(value(1, 114_000)));
}

#[test]
fn a_snapshot_and_an_iterator_keep_the_store_open() {
    let drive = formatted(&configs()[0]);
    let store = Kv::open(drive.clone(), options()).unwrap();
    (0..50u64).for_each(|n| store.put(&n.to_be_bytes(), &value(n, 500), false).unwrap());
    let (moment, mut iter) = (store.snapshot(), store.iter().unwrap());
    drop(store);
    iter.seek_to_first().unwrap();
    for n in 0..50u64 {
        assert_eq!(iter.get(), Some((&n.to_be_bytes()[..], &value(n, 500)[..])));
        iter.advance().unwrap();
    }
    drop((moment, iter));
    let store = Kv::open(drive, options()).unwrap();
    assert_eq!(store.get(&7u64.to_be_bytes()).unwrap(), Some(value(7, 500)));
}

#[test]
fn a_process_opens_a_drive_again_that_it_has_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    drop(imbrex_emulator::Emulator::create(&path, &crate::support::config(), false).unwrap());
    let uri = format!("imbrex://{}?memtable=64K&survivor-size=1M&format=on", path.display());
    for round in 0..4 {
        let store = Kv::open_uri(&uri, &[]).unwrap();
        assert_eq!(store.get(&key(round)).unwrap().is_some(), round > 0);
        for n in 0..200 {
            store.put(&key(n), &value(n, 400), n % 20 == 0).unwrap();
        }
    }
}
