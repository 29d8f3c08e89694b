//! What the calls promise, one by one.

use crate::support::{BUFFERED, bytes, config, content, drive, format, fresh, id, options};
use imbrex_chunkstore::{Append, ChunkStore, Durability, Error, FormatOptions, StreamType};
use imbrex_emulator::{Config, Emulator};

#[test]
fn what_is_appended_is_read_in_any_range() {
    let (_, store) = fresh(&config());
    store.create(id(1), StreamType::DATA).unwrap();
    let mut all = Vec::new();
    // Over slices, records and zones.
    for (i, n) in [1usize, 4095, 4096, 4097, 20_000, 100_000, 7, 60_000].into_iter().enumerate() {
        let how = if i % 2 == 0 { BUFFERED } else { Append::default() };
        let part = bytes(n, i as u64);
        assert_eq!(store.append_with(id(1), &part, how).unwrap(), all.len() as u64);
        all.extend(part);
        assert_eq!(content(&store, id(1)), all);
    }
    for from in (0..all.len()).step_by(3001) {
        for n in [1usize, 100, 4096, 9000, 70_000] {
            let mut out = vec![0; n];
            let got = store.read(id(1), from as u64, &mut out).unwrap();
            assert_eq!(got, n.min(all.len() - from));
            assert!(out[..got] == all[from..from + got], "{n} bytes from {from}");
        }
    }
    assert_eq!(store.read(id(1), all.len() as u64, &mut [0; 4]).unwrap(), 0);
}

#[test]
fn misuse_is_a_typed_error_and_changes_nothing() {
    let (_, store) = fresh(&config());
    store.create(id(1), StreamType::DATA).unwrap();
    store.append(id(1), b"abc").unwrap();
    let before = store.stat(id(1)).unwrap();
    assert!(matches!(store.create(id(1), StreamType::GC), Err(Error::Exists(_))));
    assert!(matches!(store.create(id(2), StreamType::new(9).unwrap()), Err(Error::NoSuchStream(9))));
    assert!(matches!(store.append(id(1), b""), Err(Error::Empty)));
    assert!(matches!(store.append(id(3), b"x"), Err(Error::NotFound(_))));
    assert!(matches!(store.append(id(1), &vec![0; 4 << 20]), Err(Error::TooLong { .. })));
    let limit = store.chunk_limit(StreamType::DATA) as usize;
    assert!(limit <= 256 << 10 && limit > 240 << 10, "{limit}");
    assert!(matches!(store.append(id(1), &vec![0; limit - 2]), Err(Error::Limit { .. })));
    let at = |offset| Append { offset: Some(offset), durability: Durability::Durable };
    let wrong = store.append_with(id(1), b"abc", at(0));
    assert!(matches!(wrong, Err(Error::Offset { expected: 0, len: 3, .. })));
    assert!(matches!(store.read(id(1), 4, &mut [0]), Err(Error::Range { offset: 4, len: 3, .. })));
    for gone in [store.delete(id(7)).err(), store.seal(id(7)).err(), store.stat(id(7)).err()] {
        assert!(matches!(gone, Some(Error::NotFound(_))));
    }
    assert_eq!(store.stat(id(1)).unwrap(), before);
    assert_eq!(store.append_with(id(1), b"def", at(3)).unwrap(), 3);
    assert_eq!(store.seal(id(1)).unwrap(), 6);
    assert_eq!(store.seal(id(1)).unwrap(), 6);
    assert!(matches!(store.append(id(1), b"x"), Err(Error::Sealed { len: 6, .. })));
    assert_eq!(content(&store, id(1)), b"abcdef");
    store.delete(id(1)).unwrap();
    assert!(matches!(store.read(id(1), 0, &mut [0]), Err(Error::NotFound(_))));
    store.create(id(1), StreamType::GC).unwrap();
    assert_eq!(store.stat(id(1)).unwrap().len, 0);
}

#[test]
fn a_chunk_as_long_as_its_limit_fills_one_zone() {
    let (_, store) = fresh(&Config::tiny());
    let limit = store.chunk_limit(StreamType::GC) as usize;
    let most = store.limits().append as usize;
    assert!(most < 1 << 20, "zones of 1 MiB");
    store.create(id(1), StreamType::GC).unwrap();
    store.append(id(1), &bytes(most.min(limit), 1)).unwrap();
    let info = store.stat(id(1)).unwrap();
    assert_eq!((info.zones, info.len as usize), (1, limit), "the limit is what one append of this size leaves");
}

/// In the pieces that the limit is about, too; shorter ones, which take more framing, spill into a second zone, and none is refused.
#[test]
fn pieces_of_a_mebibyte_fill_one_zone_and_shorter_ones_may_need_another() {
    const ZONE: u64 = 8 << 20;
    let config = Config { zone_size: ZONE, zone_capacity: ZONE, capacity: 24 * ZONE, ..Config::tiny() };
    let (_, store) = fresh(&config);
    let limit = store.chunk_limit(StreamType::DATA) as usize;
    assert!(limit as u64 > ZONE - (1 << 20), "{limit}");
    for (n, piece, zones) in [(1, 1 << 20, 1), (2, 8 << 10, 2)] {
        store.create(id(n), StreamType::DATA).unwrap();
        let all = bytes(limit, n);
        for part in all.chunks(piece) {
            store.append_with(id(n), part, BUFFERED).unwrap();
        }
        assert!(matches!(store.append(id(n), b"x"), Err(Error::Limit { .. })));
        assert_eq!((store.stat(id(n)).unwrap().zones, content(&store, id(n)) == all), (zones, true), "{piece}");
    }
}

#[test]
fn chunks_are_listed_page_by_page() {
    let (_, store) = fresh(&config());
    for n in 0..25u64 {
        store.create_with(id(n * 7 % 25), StreamType::METADATA, Durability::Buffered).unwrap();
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after, 4);
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        seen.extend(page.iter().map(|info| info.id));
    }
    assert_eq!(seen, (0..25).map(id).collect::<Vec<_>>());
}

#[test]
fn what_was_closed_opens_clean_and_what_was_not_is_recovered() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let mut expected = Vec::new();
    for round in 0..6u64 {
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        let report = store.open_report().clone();
        assert_eq!(report.clean, round % 2 == 0, "{report:?}");
        assert!(report.damage.is_empty(), "{report:?}");
        for (n, content) in &expected {
            assert_eq!(&crate::support::content(&store, id(*n)), content);
        }
        assert_eq!(store.list(None, 1000).len(), expected.len());
        for n in 0..4 {
            let chunk = id(round * 4 + n);
            store.create(chunk, StreamType::new(n as u8 % 3).unwrap()).unwrap();
            let content = bytes(30_000 + n as usize * 777, n);
            store.append(chunk, &content).unwrap();
            expected.push((round * 4 + n, content));
        }
        let gone = expected.remove(0).0;
        store.delete(id(gone)).unwrap();
        assert_eq!(store.seal(id(expected[0].0)).unwrap(), expected[0].1.len() as u64);
        if round % 2 == 1 {
            store.close().unwrap();
        }
    }
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert!(store.stat(id(expected[0].0)).unwrap().sealed);
}

#[test]
fn streams_do_not_share_zones() {
    let (_, store) = fresh(&config());
    for n in 0..9u64 {
        store.create(id(n), StreamType::new(n as u8 % 3).unwrap()).unwrap();
        store.append(id(n), &bytes(5000, n)).unwrap();
    }
    let stats = store.stats();
    assert!(stats.activated_zones >= 3, "{stats:?}");
}

#[test]
fn a_drive_that_is_too_small_is_refused_with_the_size_that_works() {
    let config = Config { capacity: 12 * (256 << 10), ..config() };
    let emulator = Emulator::memory(&config).unwrap();
    let error = ChunkStore::format(&drive(&emulator), &FormatOptions::default()).unwrap_err().to_string();
    assert!(error.contains("needs 11"), "{error}");
}

#[test]
fn a_drive_of_another_engine_is_refused() {
    let emulator = Emulator::memory(&config()).unwrap();
    let error = ChunkStore::open(drive(&emulator), options()).err().unwrap().to_string();
    assert!(error.contains("no Imbrex label"), "{error}");
    format(&emulator);
    let error = ChunkStore::format(&drive(&emulator), &FormatOptions::default()).unwrap_err().to_string();
    assert!(error.contains("already formatted"), "{error}");
}

#[test]
fn threads_append_at_once_and_all_of_it_is_there() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    format(&emulator);
    let mut threaded = options();
    threaded.volume.exec = imbrex_zones::Exec::Threads(2);
    let store = ChunkStore::open(drive(&emulator), threaded).unwrap();
    std::thread::scope(|scope| {
        for t in 0..8u64 {
            let store = &store;
            scope.spawn(move || {
                store.create(id(t), StreamType::new(t as u8 % 3).unwrap()).unwrap();
                for i in 0..30 {
                    store.append(id(t), &bytes(3000 + i * 100, t)).unwrap();
                    let mut out = vec![0; 10];
                    store.read(id(t), 0, &mut out).unwrap();
                }
            });
        }
    });
    let commits = store.stats().commits;
    for n in 100..140 {
        store.create_with(id(n), StreamType::GC, Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(2000, n), BUFFERED).unwrap();
    }
    store.sync().unwrap();
    assert_eq!(store.stats().commits, commits + 1, "one flush for all of them");
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    for t in 0..8 {
        let expected: Vec<u8> = (0..30).flat_map(|i| bytes(3000 + i * 100, t)).collect();
        assert_eq!(content(&store, id(t)), expected);
    }
}
