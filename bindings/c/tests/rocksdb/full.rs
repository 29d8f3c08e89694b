//! Metadata that have no room: an error, and after a restart what is deleted makes room again.

use super::{config, drive_of, format, options};
use imbrex_device::Code;
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, ObjectId, Store, Transaction};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

fn id(n: u32) -> ObjectId {
    ObjectId::new(1, b"", format!("object {n}").as_bytes())
}

/// Bytes that nothing makes shorter, others for each number.
fn value(n: u32) -> Vec<u8> {
    let mut bytes = vec![0; 30_000];
    ChaCha8Rng::seed_from_u64(n.into()).fill_bytes(&mut bytes);
    bytes
}

#[test]
fn metadata_without_room_are_an_error_and_room_comes_back() {
    let drive = Emulator::memory(&config()).unwrap();
    let opened = || Store::open(drive_of(Arc::new(drive.clone())), options()).unwrap();
    format(&drive_of(Arc::new(drive.clone()))).unwrap();
    let mut store = opened();
    let mut begin = Transaction::new();
    begin.create_collection(ALL, 0);
    store.commit(begin).unwrap();
    let (mut there, mut least) = (0, 100);
    for round in 0..3 {
        let error = loop {
            assert!(there < 20_000, "it is never full");
            let mut transaction = Transaction::new();
            transaction.omap_set(ALL, &id(there), &[(&b"key"[..], &value(there)[..])]);
            match store.commit(transaction) {
                Ok(()) => there += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::NoSpace, "round {round}: {error}");
        drop(store);
        store = opened();
        println!("round {round}: {there} objects");
        // What was deleted is room again.
        assert!(there > least, "round {round}: {there} objects after {least}");
        least = there / 2;
        let keeps = |n: u32| store.omap(ALL, &id(n), b"", 1).unwrap().all == [(b"key".to_vec(), value(n))];
        assert!((0..there).all(keeps), "round {round}");
        assert_eq!(store.check_all(false).unwrap().wrong, [""; 0], "round {round}");
        // A few at a time, as somebody does who needs room.
        for n in there / 4..there + 1 {
            let mut delete = Transaction::new();
            if store.stat(ALL, &id(n)).is_ok() {
                delete.remove(ALL, &id(n));
                store.commit(delete).unwrap_or_else(|error| panic!("round {round}, {n} of {there}: {error}"));
            }
        }
        there /= 4;
    }
}

/// Who adds pairs and removes a small one with each makes no room, and does not get the bytes that deletions need.
#[test]
fn small_deletions_do_not_pay_for_what_is_put_with_them() {
    let drive = Emulator::memory(&config()).unwrap();
    let opened = || Store::open(drive_of(Arc::new(drive.clone())), options()).unwrap();
    format(&drive_of(Arc::new(drive.clone()))).unwrap();
    let mut store = opened();
    let mut begin = Transaction::new();
    begin.create_collection(ALL, 0);
    store.commit(begin).unwrap();
    let mut there = 0;
    let mut fill = |store: &Store, length: usize| {
        let error = loop {
            assert!(there < 20_000, "it is never full");
            let mut transaction = Transaction::new();
            transaction.omap_set(ALL, &id(there), &[(&b"key"[..], &value(there)[..length])]);
            transaction.omap_remove(ALL, &id(there), &[b"none"]);
            match store.commit(transaction) {
                Ok(()) => there += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::NoSpace, "after {there}: {error}");
        assert!(error.to_string().contains("for the metadata; delete something"), "after {there}: {error}");
        there
    };
    for (round, length) in [(0, 30_000), (1, 3500), (2, 3500)] {
        let there = fill(&store, length);
        println!("round {round}: {there} objects");
        drop(store);
        store = opened();
    }
    for n in 0..there {
        let mut delete = Transaction::new();
        delete.remove(ALL, &id(n));
        store.commit(delete).unwrap_or_else(|error| panic!("{n} of {there}: {error}"));
    }
    assert_eq!(store.check_all(false).unwrap().wrong, [""; 0]);
}
