//! Threads that wait for a turn at a drive that counts.

#[allow(dead_code, reason = "the other tests on such a drive use the rest")]
#[path = "../../../tests/chunkstore/drive_support/mod.rs"]
mod drive_support;

use crate::format::{BLOCK, data_blocks};
use crate::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
use drive_support::Watched;
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

fn id(n: u64) -> ChunkId {
    ChunkId::of_number(n)
}

/// A store on a disk with its write cache off that writes so many zones at once, and a chunk in each of these zones.
fn store(zones_at_once: u32) -> (Arc<Watched>, ChunkStore, Vec<u32>) {
    let config = Config {
        zone_size: 256 << 10,
        zone_capacity: 256 << 10,
        capacity: 16 << 20,
        write_cache: false,
        rotational: true,
        ..Config::tiny()
    };
    let watched = Watched::new(Emulator::memory(&config).unwrap());
    let drive = Drive { device: watched.clone(), survivor: None };
    ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
    let volume = VolumeOptions { exec: Exec::Threads(2), survivor_bytes: 1 << 20, ..VolumeOptions::default() };
    let options = Options { volume, max_slowdown: None, zones_at_once: Some(zones_at_once), ..Options::default() };
    let store = ChunkStore::open(drive, options).unwrap();
    for n in 0..3 {
        store.create_with(id(n), StreamType::new(n as u8).unwrap(), Durability::Buffered).unwrap();
        store.append_with(id(n), &[1; 3000], BUFFERED).unwrap();
    }
    store.sync().unwrap();
    let zones = (0..3).map(|n| store.places(id(n)).unwrap()[0].zone).collect();
    (watched, store, zones)
}

#[test]
fn the_largest_backlog_goes_first_and_takes_along_what_came_while_it_waited() {
    let (drive, store, zones) = store(1);
    let core = &store.core;
    store.append_with(id(0), &[2; 3000], BUFFERED).unwrap();
    *drive.seen() = Default::default();
    std::thread::scope(|scope| {
        // Somebody is at the drive.
        let turn = core.turn(zones[0], u32::MAX).unwrap();
        for (n, len, waiting) in [(1, 5000, 1), (2, 20_000, 2)] {
            let store = &store;
            scope.spawn(move || store.append(id(n), &vec![3; len]).unwrap());
            while core.state().turns.waiting.len() < waiting {
                std::thread::yield_now();
            }
        }
        store.append_with(id(2), &[4; 5000], BUFFERED).unwrap();
        assert_eq!(drive.seen().user_writes, [], "nobody else has a turn");
        drop(turn);
    });
    let bytes = |lengths: &[u32]| lengths.iter().map(|len| data_blocks(*len) as usize * BLOCK).sum::<usize>();
    assert_eq!(drive.seen().user_writes, [(zones[2], bytes(&[20_000, 5000])), (zones[1], bytes(&[5000]))]);
    assert_eq!(drive.seen().most, 1);
    let state = core.state();
    assert_eq!((state.turns.writing, state.turns.waiting.len()), (0, 0));
}

#[test]
fn who_finds_a_turn_free_waits_for_nobody() {
    let (drive, store, zones) = store(2);
    drive.hold(zones[0]);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| store.append(id(0), &[2; 5000]).unwrap());
        drive.wait_for(zones[0]);
        for _ in 0..3 {
            store.append(id(1), &[3; 5000]).unwrap();
            store.append(id(2), &[3; 5000]).unwrap();
        }
        assert!(!slow.is_finished());
        drive.let_go();
        assert_eq!(slow.join().unwrap(), 3000);
    });
    assert_eq!(drive.seen().most, 2);
}

#[test]
fn a_zone_that_fails_gives_its_turn_back() {
    let (drive, store, zones) = store(1);
    drive.fail(zones[0]);
    store.append(id(0), &[2; 5000]).unwrap();
    assert_ne!(store.places(id(0)).unwrap().last().unwrap().zone, zones[0], "its bytes found another place");
    drive.let_go();
    assert_eq!(store.core.state().turns.writing, 0);
    store.append(id(1), &[2; 5000]).unwrap();
}
