//! Zones that die with bytes in memory while no zone is free: these bytes have no place, and whoever waits for them is told. Nothing else waits: what
//! is deleted makes room, checkpoints are written, and in the end the bytes find their place.

use crate::support::{BUFFERED, bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::{ChunkStore, Durability, Options, StreamType, TENANT};
use imbrex_device::ZoneId;
use imbrex_emulator::{Config, Emulator};

/// Records of this length take ten blocks; six fill a zone.
const PIECE: usize = 39_000;

fn free(store: &ChunkStore) -> u32 {
    store.volume().tenant(TENANT).unwrap().counts().free
}

fn piece(n: u64, i: u64) -> Vec<u8> {
    bytes(PIECE, n << 8 | i)
}

/// Chunks that fill all zones but the reserve, and one more with a little in a zone of its own kind; the reserve is used up by zones that died.
fn crowded(config: &Config) -> (Emulator, ChunkStore, u64) {
    let emulator = Emulator::memory(config).unwrap();
    format(&emulator);
    let wants = Options { buffer_bytes: 8 << 20, max_slowdown: None, ..options() };
    let store = ChunkStore::open(drive(&emulator), wants).unwrap();
    store.create(id(900), StreamType::METADATA).unwrap();
    store.append(id(900), &piece(900, 0)).unwrap();
    let mut n = 0;
    let fill = |n: u64| {
        store.create(id(n), StreamType::DATA).and_then(|()| {
            (0..6).try_for_each(|i| store.append_with(id(n), &piece(n, i), BUFFERED).map(drop))?;
            store.seal(id(n)).map(drop)
        })
    };
    while fill(n).is_ok() {
        n += 1;
    }
    store.delete(id(n)).unwrap();
    let mut appends = 1;
    while free(&store) > 0 {
        store.append_with(id(900), &piece(900, appends), BUFFERED).unwrap();
        appends += 1;
        kill_last(&emulator, &store);
        store.sync().unwrap();
    }
    store.append_with(id(900), &piece(900, appends), BUFFERED).unwrap();
    kill_last(&emulator, &store);
    (emulator, store, n)
}

/// The zone dies where chunk 900 goes on.
fn kill_last(emulator: &Emulator, store: &ChunkStore) {
    let zone = store.places(id(900)).unwrap().last().unwrap().zone;
    emulator.faults().make_read_only(ZoneId(zone)).unwrap();
}

fn whole(store: &ChunkStore, chunks: impl Iterator<Item = u64>) {
    for n in chunks {
        assert!(content(store, id(n)) == (0..6).flat_map(|i| piece(n, i)).collect::<Vec<u8>>(), "chunk {n}");
    }
}

/// Chunk 900 is a front of what was appended to it, of whole appends.
fn is_front(store: &ChunkStore) -> usize {
    let found = content(store, id(900));
    let all: Vec<u8> = (0..20).flat_map(|i| piece(900, i)).collect();
    assert!(found.len().is_multiple_of(PIECE) && all.starts_with(&found));
    found.len() / PIECE
}

#[test]
fn only_who_waits_for_bytes_without_a_place_is_told() {
    for write_cache in [true, false] {
        let small = Config { capacity: 24 * (256 << 10), write_cache, ..config() };
        let (emulator, store, n) = crowded(&small);
        let len = store.stat(id(900)).unwrap().len as usize;
        for round in 0..3 {
            assert!(store.sync().unwrap_err().is_no_space(), "round {round}");
            assert!(store.sync_chunk(id(900)).unwrap_err().is_no_space(), "round {round}");
            assert!(store.append(id(900), b"more").is_err());
            // All else goes on.
            store.create(id(500 + round), StreamType::DATA).unwrap();
            store.delete(id(500 + round)).unwrap();
            store.sync_chunk(id(0)).unwrap();
            store.checkpoint().unwrap();
            whole(&store, 0..n);
            assert!(content(&store, id(900)).len() == len && is_front(&store) * PIECE == len, "it is read from memory");
            assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        }
        assert!(store.seal(id(900)).unwrap_err().is_no_space());
        // What is deleted makes room for it.
        store.delete(id(3)).unwrap();
        store.sync().unwrap();
        assert_eq!(store.seal(id(900)).unwrap(), len as u64);
        whole(&store, (0..n).filter(|n| *n != 3));
        drop(store);
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert_eq!((is_front(&store) * PIECE, store.stat(id(900)).unwrap().sealed), (len, true));
        whole(&store, (0..n).filter(|n| *n != 3));
        assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    }
}

/// Nobody needs the bytes any more: no zone is needed either.
#[test]
fn what_is_deleted_needs_no_place() {
    let (_, store, n) = crowded(&Config { capacity: 24 * (256 << 10), ..config() });
    assert!(store.sync().unwrap_err().is_no_space());
    store.delete(id(900)).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stats().buffered_bytes, 0);
    whole(&store, 0..n);
    store.close().unwrap();
}

/// The process dies: what was acknowledged is there, and of the rest whole appends or nothing, whatever checkpoints were written meanwhile.
#[test]
fn a_crash_meanwhile_costs_only_what_was_not_acknowledged() {
    for (checkpoints, deletes, closed) in [(0, 0, false), (1, 0, false), (2, 2, false), (1, 1, true), (40, 0, false)] {
        let (emulator, store, n) = crowded(&Config { capacity: 24 * (256 << 10), ..config() });
        let acknowledged = (store.stat(id(900)).unwrap().len as usize - PIECE) / PIECE;
        assert!(store.sync().unwrap_err().is_no_space());
        let what = format!("{checkpoints} checkpoints, {deletes} deleted, closed {closed}");
        for round in 0..checkpoints {
            store.create_with(id(600 + round), StreamType::GC, Durability::Durable).unwrap();
            store.checkpoint().unwrap();
        }
        (0..deletes).for_each(|n| store.delete(id(n)).unwrap());
        if closed {
            // With room it has found its place.
            store.close().unwrap();
        }
        drop(store);
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert_eq!(store.open_report().damage, Vec::<String>::new(), "{what}");
        assert!(
            is_front(&store) >= acknowledged + usize::from(closed),
            "{what}: {} of {acknowledged}",
            is_front(&store)
        );
        whole(&store, deletes..n);
        assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "{what}");
        store.close().unwrap();
    }
}

/// The zone only failed for a while: then it takes the bytes after all.
#[test]
fn a_zone_that_takes_writes_again_takes_what_waited() {
    let (emulator, store, _) = crowded(&Config { capacity: 24 * (256 << 10), ..config() });
    let zone = store.places(id(900)).unwrap().last().unwrap().zone;
    // The reserve is used up, and this one is alive.
    store.delete(id(0)).unwrap();
    store.sync().unwrap();
    let now = store.places(id(900)).unwrap().last().unwrap().zone;
    assert_ne!(now, zone);
    let len = store.stat(id(900)).unwrap().len;
    let i = u64::from(len) / PIECE as u64;
    store.append_with(id(900), &piece(900, i), BUFFERED).unwrap();
    let where_now = store.places(id(900)).unwrap().last().unwrap().zone;
    (0..3).for_each(|_| emulator.faults().fail_write_in(ZoneId(where_now), 0));
    let first = store.sync();
    store.sync().unwrap();
    assert!(first.is_err() || free(&store) == 0 || where_now != store.places(id(900)).unwrap().last().unwrap().zone);
    assert_eq!(is_front(&store) as u64, i + 1);
}
