//! Names for chunks: what they stand for, what is refused, and how many there may be.

use crate::support::{BUFFERED, bytes, config, content, drive, fresh, id, options};
use imbrex_chunkstore::{ChunkId, ChunkStore, Error, Result, StreamType};
use imbrex_emulator::{Config, Emulator};

fn named(store: &ChunkStore) -> Vec<(String, Vec<ChunkId>)> {
    let all = store.names(None, "", usize::MAX);
    all.iter().map(|found| (found.name.to_string(), store.named(&found.name).unwrap())).collect()
}

fn made(store: &ChunkStore, numbers: std::ops::Range<u64>) {
    for n in numbers {
        store.create_with(id(n), StreamType::DATA, imbrex_chunkstore::Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(1000 + n as usize, n), BUFFERED).unwrap();
    }
}

fn is_right(store: &ChunkStore) {
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn names_are_given_replaced_and_taken_off() {
    let (emulator, store) = fresh(&config());
    made(&store, 0..8);
    store.name(&[("b/2", &[id(2), id(1)]), ("a", &[id(0)]), ("b/3", &[id(3)])], false).unwrap();
    let found = store.names(None, "", 10);
    assert_eq!((&*found[1].name, found[1].chunks, found[1].len, found[1].sealed), ("b/2", 2, 2003, false));
    assert_eq!(store.name_of(id(1)).map(|of| (of.name, of.place, of.chunks)), Some(("b/2".into(), 1, 2)));
    assert_eq!(store.name_of(id(7)), None);
    let page = |after, prefix, most| -> Vec<String> {
        store.names(after, prefix, most).iter().map(|found| found.name.to_string()).collect()
    };
    assert_eq!(page(None, "b", 10), ["b/2", "b/3"]);
    assert_eq!(page(Some("a"), "", 1), ["b/2"]);
    assert_eq!(page(Some("b/2"), "b/", 9), ["b/3"]);
    assert_eq!(page(None, "b/3x", 9), [""; 0]);
    assert_eq!(page(Some("a"), "b/3", 9), ["b/3"]);
    // Another name; a chunk more for it; another chunk, and the one before is gone.
    store.name(&[("c", &[id(3)])], false).unwrap();
    store.name(&[("c", &[id(3), id(4)])], false).unwrap();
    store.name(&[("a", &[id(5)])], true).unwrap();
    assert!(matches!(store.stat(id(0)), Err(Error::NotFound(_))));
    // With a chunk the name goes, and the other one stays.
    store.delete(id(2)).unwrap();
    store.unname("c").unwrap();
    assert_eq!(named(&store), [("a".into(), vec![id(5)])]);
    assert_eq!(content(&store, id(1)), bytes(1001, 1));
    is_right(&store);
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(named(&store), [("a".into(), vec![id(5)])]);
    store.close().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert!(store.open_report().clean);
    assert_eq!(named(&store), [("a".into(), vec![id(5)])]);
    is_right(&store);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let (_, store) = fresh(&config());
    made(&store, 0..5);
    store.name(&[("a", &[id(0)]), ("two", &[id(1), id(2)])], false).unwrap();
    let before = named(&store);
    let refused = |result: Result<()>, said: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(named(&store), before, "{error}");
    };
    refused(store.name(&[("../b", &[id(3)])], false), "relative path");
    refused(store.name(&[(&id(3).to_string(), &[id(3)])], false), "are an id");
    refused(store.name(&[("fine", &[id(4)]), ("a\nb", &[id(3)])], false), "control character");
    refused(store.name(&[("fine", &[id(4)]), ("a", &[id(3)])], false), "named \"a\" already");
    refused(store.name(&[("fine", &[id(4)]), ("fine", &[id(3)])], false), "already");
    refused(store.name(&[("b", &[])], false), "no chunk");
    refused(store.name(&[("b", &[id(3), id(3)])], false), "twice");
    refused(store.name(&[("b", &[id(3), id(9)])], false), "there is no chunk");
    refused(store.name(&[("b", &[id(1)])], true), "would lose its name");
    let many: Vec<ChunkId> = (0..5000).map(id).collect();
    refused(store.name(&[("b", &many)], false), "chunks at most");
    refused(store.unname("b"), "no chunk is named");
    assert!(matches!(store.named("b"), Err(Error::NoSuchName(_))));
    is_right(&store);
}

/// More names than the metazones have room for: the rest is refused, nothing is lost, and there is room when some are gone.
#[test]
fn there_are_as_many_names_as_the_metazones_take() {
    let (emulator, store) = fresh(&config());
    let name = |n: u64| format!("{n:04}/{}", "n".repeat(900));
    let mut given = 0;
    let full = loop {
        made(&store, given..given + 1);
        match store.name(&[(&name(given), &[id(given)])], false) {
            Ok(()) => given += 1,
            Err(error) => break error,
        }
    };
    assert!(full.is_no_space() && given > 40, "{given}: {full}");
    let expected: Vec<_> = (0..given).map(|n| (name(n), vec![id(n)])).collect();
    assert_eq!(named(&store), expected);
    store.sync().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(named(&store), expected);
    store.delete(id(0)).unwrap();
    store.name(&[("short", &[id(given)])], false).unwrap();
    assert_eq!(named(&store).len() as u64, given);
    is_right(&store);
}

/// Several threads name at once, and more in a call than a journal record holds.
#[test]
fn many_names_at_once_are_all_there() {
    let config = Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 64 << 20, ..Config::tiny() };
    let (emulator, store) = fresh(&config);
    let each = 150u64;
    made(&store, 0..4 * each);
    let name = |n: u64| format!("{n:04}/{}", "n".repeat(150));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let names: Vec<(String, [ChunkId; 1])> =
                    (0..each).map(|n| n * 4 + thread).map(|n| (name(n), [id(n)])).collect();
                let names: Vec<(&str, &[ChunkId])> =
                    names.iter().map(|(name, ids)| (name.as_str(), &ids[..])).collect();
                store.name(&names, false).unwrap();
            });
        }
    });
    // As if the process had died there.
    let copy: Emulator = emulator.after_power_loss(3).unwrap();
    for emulator in [copy, emulator.clone()] {
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert_eq!(named(&store), (0..4 * each).map(|n| (name(n), vec![id(n)])).collect::<Vec<_>>());
        is_right(&store);
    }
}
