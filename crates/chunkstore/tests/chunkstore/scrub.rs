//! The scrub in the background: it goes on where it was, also after the store was closed, and what is damaged is marked until it is
//! deleted or whole again.

use crate::support::{bytes, config, drive, id, options};
use imbrex_chunkstore::{ChunkStore, Options, StreamType};
use imbrex_emulator::Emulator;
use std::time::Duration;

const DATA: StreamType = StreamType::DATA;
const LEN: usize = 9000;

fn chunks(store: &ChunkStore, n: u64) {
    for n in 0..n {
        store.create(id(n), DATA).unwrap();
        store.append(id(n), &bytes(LEN, n)).unwrap();
        store.append(id(n), &bytes(LEN, n + 1000)).unwrap();
    }
}

/// Flips a bit of chunk `n`'s record that begins at `offset`.
fn flip(emulator: &Emulator, store: &ChunkStore, n: u64, offset: u32) {
    let place = store.places(id(n)).unwrap().into_iter().rfind(|place| place.offset <= offset).unwrap();
    // Records of this length take three blocks.
    let at = u64::from(place.zone) * (256 << 10) + place.at.unwrap() + u64::from(offset / LEN as u32) * (3 << 12) + 500;
    emulator.faults().flip_bits(at, 4).unwrap();
}

#[test]
fn it_goes_on_where_it_was_when_the_store_is_opened_again() {
    let (emulator, mut store) = crate::support::fresh(&config());
    chunks(&store, 20);
    let mut verified = 0;
    // Two records a step, in the middle of a chunk, too.
    for step in 0..100 {
        let done = store.scrub_on(if step % 3 == 0 { LEN as u64 } else { 2 * LEN as u64 }).unwrap();
        verified += done.bytes;
        assert!(done.problems.is_empty());
        let scrubbed = store.scrubbed();
        if done.next.is_none() {
            assert_eq!((scrubbed.passes, scrubbed.next), (1, None));
            break;
        }
        assert_eq!((scrubbed.bytes, scrubbed.passes, scrubbed.next), (verified, 0, done.next));
        if step % 4 == 3 {
            store.close().unwrap();
            drop(store);
            store = ChunkStore::open(drive(&emulator), options()).unwrap();
            assert_eq!(store.scrubbed(), scrubbed);
        }
    }
    assert_eq!(verified, 40 * LEN as u64, "each record once, however often it was opened");
    store.close().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(store.scrubbed().passes, 1);
    // The chunk where it stands goes, and those before and behind it.
    assert!(store.scrub_on(7 * LEN as u64).unwrap().next.is_some());
    (2..6).for_each(|n| store.delete(id(n)).unwrap());
    assert_eq!(store.scrub_on(u64::MAX).unwrap().bytes, 28 * LEN as u64);
    assert_eq!(store.scrubbed().passes, 2);
}

#[test]
fn what_is_damaged_is_marked_until_it_is_deleted() {
    let (emulator, store) = crate::support::fresh(&config());
    chunks(&store, 10);
    flip(&emulator, &store, 3, LEN as u32);
    flip(&emulator, &store, 7, 0);
    let done = store.scrub_on(u64::MAX).unwrap();
    assert_eq!(done.problems.len(), 2, "{done:?}");
    let damaged = store.scrubbed().damaged;
    let places: Vec<_> = damaged.iter().map(|d| (d.id, d.offset, d.len)).collect();
    let len = LEN as u32;
    assert_eq!(places, [(id(3), len, len), (id(7), 0, len)]);
    assert_eq!(damaged[0].zone, store.places(id(3)).unwrap()[0].zone);
    assert_eq!((store.stats().damaged_records, store.stats().scrub_passes), (2, 1));
    store.close().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(store.scrubbed().damaged, damaged);
    // It is as damaged in the next pass, and marked once.
    store.scrub_on(u64::MAX).unwrap();
    assert_eq!(store.scrubbed().damaged, damaged);
    store.delete(id(7)).unwrap();
    store.create(id(7), DATA).unwrap();
    store.append(id(7), &bytes(LEN, 7)).unwrap();
    assert_eq!(store.scrubbed().damaged, damaged[..1]);
    // Whole again.
    flip(&emulator, &store, 3, LEN as u32);
    store.scrub_on(u64::MAX).unwrap();
    assert!(store.scrubbed().damaged.is_empty());
    drop(store);
    // Not closed: as the last checkpoint had it, but not of chunks that are gone.
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert!(store.scrubbed().damaged.iter().all(|d| d.id == id(3)), "{:?}", store.scrubbed());
}

#[test]
fn the_thread_scrubs_by_itself() {
    let (emulator, store) = crate::support::fresh(&config());
    chunks(&store, 10);
    flip(&emulator, &store, 3, 0);
    store.close().unwrap();
    drop(store);
    let mut threaded = Options { scrub: Some(Duration::from_millis(1)), ..options() };
    threaded.volume.exec = imbrex_zones::Exec::Threads(1);
    let store = ChunkStore::open(drive(&emulator), threaded.clone()).unwrap();
    while store.scrubbed().passes < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.scrubbed().damaged.len(), 1);
    assert!(store.stats().scrubbed_bytes >= 40 * LEN as u64);
    store.close().unwrap();
    let passes = store.scrubbed().passes;
    drop(store);
    for off in [Options { scrub: None, ..threaded.clone() }, Options { max_slowdown: None, ..threaded }] {
        let store = ChunkStore::open(drive(&emulator), off).unwrap();
        assert_eq!((store.scrubbed().passes, store.stats().scrubbed_bytes), (passes, 0));
    }
}
