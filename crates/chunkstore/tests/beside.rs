//! Several commands at the drive at once: zones of a commit side by side, one write a zone.

mod drive_support;
mod support;

use drive_support::Watched;
use imbrex_chunkstore::{Append, ChunkStore, Durability, Options, StreamType};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;
use support::{bytes, config, content, format, id, options};

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

/// A new drive that is watched, with a threaded store.
fn watched(config: Config, change: impl FnOnce(&mut Options)) -> (Arc<Watched>, ChunkStore) {
    let emulator = Emulator::memory(&config).unwrap();
    format(&emulator);
    let watched = Watched::new(emulator);
    let mut threaded = Options { slowdown: None, ..options() };
    threaded.volume.exec = imbrex_zones::Exec::Threads(2);
    change(&mut threaded);
    let drive = Drive { device: watched.clone(), survivor: None };
    let store = ChunkStore::open(drive, threaded).unwrap();
    (watched, store)
}

fn cache_off() -> Config {
    Config { write_cache: false, ..config() }
}

/// Chunks of all three kinds, which have zones of their own, with a little in them that is durable.
fn three(store: &ChunkStore) -> Vec<u32> {
    for n in 0..3 {
        store.create_with(id(n), StreamType::new(n as u8).unwrap(), Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(3000, n), BUFFERED).unwrap();
    }
    store.sync().unwrap();
    (0..3).map(|n| store.places(id(n)).unwrap()[0].zone).collect()
}

#[test]
fn zones_of_a_commit_are_at_the_drive_at_once_and_one_write_of_each() {
    let (drive, store) = watched(cache_off(), |_| {});
    three(&store);
    drive.seen().most = 0;
    for n in 0..3 {
        // More than one command of each.
        for i in 0..8 {
            store.append_with(id(n), &bytes(20_000, n << 8 | i), BUFFERED).unwrap();
        }
    }
    drive.meet(3);
    store.sync().unwrap();
    drive.meet(0);
    let seen = drive.seen();
    assert_eq!((seen.most, seen.most_of_a_zone), (3, 1));
    drop(seen);
    for n in 0..3 {
        let all = (0..8).fold(bytes(3000, n), |mut all, i| {
            all.extend(bytes(20_000, n << 8 | i));
            all
        });
        assert!(content(&store, id(n)) == all);
    }
}

#[test]
fn with_its_cache_on_a_rotating_drive_gets_one_zone_after_the_other() {
    let (drive, store) = watched(config(), |_| {});
    three(&store);
    for n in 0..3 {
        store.append_with(id(n), &bytes(60_000, n), BUFFERED).unwrap();
    }
    store.sync().unwrap();
    assert_eq!(drive.seen().most, 1);
}

#[test]
fn a_zone_that_fails_keeps_nobody_elses_bytes_from_the_drive() {
    let (drive, store) = watched(cache_off(), |_| {});
    let zones = three(&store);
    for n in 0..3 {
        store.append_with(id(n), &bytes(9000, 9 + n), BUFFERED).unwrap();
    }
    // It fails while the others are being written, and its bytes find another place.
    drive.fail(zones[1]);
    store.sync().unwrap();
    assert_ne!(store.places(id(1)).unwrap().last().unwrap().zone, zones[1]);
    drive.let_go();
    drop(store);
    let drive = Drive { device: drive, survivor: None };
    let store = ChunkStore::open(drive, options()).unwrap();
    for n in 0..3 {
        assert!(content(&store, id(n)) == [bytes(3000, n), bytes(9000, 9 + n)].concat(), "chunk {n}");
    }
}
