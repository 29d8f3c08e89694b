//! What opening has to find again, and what it need not read for that.

use crate::support::{BUFFERED, bytes, config, content, drive, fresh, id, log_frames, options};
use imbrex_chunkstore::entry::Entry;
use imbrex_chunkstore::{ChunkStore, Durability, Options, StreamType};
use imbrex_emulator::Emulator;
use imbrex_zones::log::format::Kind;

/// Never a checkpoint, but what opening and closing write; zones are reset as soon as they may be.
fn seldom() -> Options {
    Options { checkpoint_bytes: u64::MAX / 2, clean_below: Some(1000), ..options() }
}

/// Records that no checkpoint knows are moved, and the zone where they stood is reset: then only the journal can tell of them.
#[test]
fn what_was_moved_since_the_checkpoint_is_there_although_its_old_zone_was_reset() {
    let (emulator, store) = fresh(&config());
    drop(store);
    let store = ChunkStore::open(drive(&emulator), seldom()).unwrap();
    for n in 0..6 {
        store.create_with(id(n), StreamType::DATA, Durability::Buffered).unwrap();
    }
    for n in 0..6 {
        for piece in 0..4 {
            store.append_with(id(n), &bytes(40_000, n * 10 + piece), BUFFERED).unwrap();
        }
        store.seal_with(id(n), Durability::Buffered).unwrap();
    }
    store.sync().unwrap();
    let before: Vec<_> = (0..6).map(|n| store.places(id(n)).unwrap()).collect();
    for n in 1..6 {
        store.delete(id(n)).unwrap();
    }
    assert!(store.clean(1 << 20).unwrap() > 0);
    let from = before[0][0].zone;
    assert!(store.places(id(0)).unwrap().iter().all(|place| place.zone != from), "it was moved");
    // Whoever takes a zone has the garbage reset.
    for n in 10..16 {
        store.create_with(id(n), StreamType::METADATA, Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(60_000, n), BUFFERED).unwrap();
        store.sync().unwrap();
    }
    while store.step().unwrap() {}
    drop(store);
    let store = ChunkStore::open(drive(&emulator), seldom()).unwrap();
    assert_eq!(store.open_report().damage, Vec::<String>::new());
    let all: Vec<u8> = (0..4).flat_map(|piece| bytes(40_000, piece)).collect();
    assert!(content(&store, id(0)) == all, "{:?}", store.stat(id(0)));
    assert!(store.stat(id(0)).unwrap().sealed);
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

/// Appends durably to chunks in turn; what they hold in the end.
fn work(store: &ChunkStore) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); 5];
    (0..5).for_each(|n| store.create(id(n), StreamType::new(n as u8 % 3).unwrap()).unwrap());
    for i in 0..40usize {
        let piece = bytes(20_000 + i, i as u64);
        store.append(id(i as u64 % 5), &piece).unwrap();
        all[i % 5].extend(piece);
    }
    all
}

fn opens_whole(emulator: &Emulator, all: &[Vec<u8>]) -> ChunkStore {
    let store = ChunkStore::open(drive(emulator), seldom()).unwrap();
    for (n, bytes) in all.iter().enumerate() {
        assert!(content(&store, id(n as u64)) == *bytes, "chunk {n}: {:?}", store.open_report());
    }
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    store
}

/// 800 KiB are appended since the checkpoint.
#[test]
fn what_the_journal_was_told_is_not_scanned() {
    let scanned = |tell_bytes| {
        let (emulator, store) = fresh(&config());
        drop(store);
        let store = ChunkStore::open(drive(&emulator), Options { tell_bytes, ..seldom() }).unwrap();
        let all = work(&store);
        drop(store);
        let report = opens_whole(&emulator, &all).open_report().clone();
        assert_eq!(report.damage, Vec::<String>::new());
        (report.scanned_bytes, report.records)
    };
    let (never, records) = scanned(u64::MAX / 2);
    assert!(never > 40 * 20_000 && records == 40, "{never} {records}");
    let (often, records) = scanned(100 << 10);
    // What was appended since, and the commit that it was told with.
    assert!(often < 150 << 10 && (1..8).contains(&records), "{often} {records}");
}

/// Both copies of a journal record that tells of appends are damaged: the zones still know them.
#[test]
fn what_a_lost_record_of_the_journal_told_is_found_in_the_zones() {
    let (emulator, store) = fresh(&config());
    drop(store);
    let store = ChunkStore::open(drive(&emulator), Options { tell_bytes: 100 << 10, ..seldom() }).unwrap();
    let all = work(&store);
    let metazones: Vec<u32> = store.zones().iter().filter(|z| z.chunks == 0 && z.live > 0).map(|z| z.zone).collect();
    drop(store);
    let tells = |record: &Vec<u8>| matches!(Entry::decode(record), Some(Entry::Told { .. }));
    let mut told = Vec::new();
    for (at, frame, records) in log_frames(&emulator, &metazones) {
        if frame.kind == Kind::Records && records.iter().any(tells) {
            told.push((frame.number, at));
        }
    }
    told.sort_unstable();
    let second = told.chunk_by(|a, b| a.0 == b.0).nth(1).unwrap();
    assert_eq!(second.len(), 2, "two copies: {told:?}");
    second.iter().for_each(|(_, at)| emulator.faults().flip_bits(at + 100, 4).unwrap());
    let store = opens_whole(&emulator, &all);
    let damage = &store.open_report().damage;
    let of_copies = damage.iter().filter(|what| what.contains("are not what was written; its other copy is used"));
    assert!(damage.len() == 3 && of_copies.count() == 2, "{damage:?}");
    assert!(store.open_report().records > 30, "the zones were not read: {:?}", store.open_report());
}
