//! Many threads at once: writers with a chunk each, readers, a cleaner, checkpoints; and after it, as if the process had died there,
//! everything is what was acknowledged.

use crate::support::{Heard, bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::{Append, ChunkStore, Durability, Error, Options, StreamType};
use imbrex_device::Cause;
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What every chunk holds at least, and all that it may hold: bytes by number of appends.
type Model = Mutex<BTreeMap<u64, usize>>;

const PIECE: usize = 7000;

fn expected(n: u64, appends: usize) -> Vec<u8> {
    (0..appends).flat_map(|i| bytes(PIECE + i * 13, n << 8 | i as u64)).collect()
}

/// One writer: chunks that grow, are sealed, and of which all but every third are deleted.
fn write(store: &ChunkStore, model: &Model, thread: u64, rounds: u64) {
    for round in 0..rounds {
        let n = thread * 1000 + round;
        let stream = StreamType::new((n % 3) as u8).unwrap();
        store.create_with(id(n), stream, Durability::Buffered).unwrap();
        let appends = 3 + (n % 11) as usize;
        let mut at = 0;
        for i in 0..appends {
            let piece = bytes(PIECE + i * 13, n << 8 | i as u64);
            let durability = if i + 1 == appends || i % 4 == 0 { Durability::Durable } else { Durability::Buffered };
            let how = Append { offset: Some(at), durability };
            assert_eq!(store.append_with(id(n), &piece, how).unwrap(), at);
            at += piece.len() as u64;
        }
        store.seal(id(n)).unwrap();
        model.lock().unwrap().insert(n, appends);
        if round >= 4 && round % 3 != 0 {
            let gone = n - 4;
            if model.lock().unwrap().remove(&gone).is_some() {
                store.delete(id(gone)).unwrap();
            }
        }
    }
}

fn read(store: &ChunkStore, model: &Model, stop: &AtomicBool) {
    let mut turn = 0usize;
    while !stop.load(Ordering::Relaxed) {
        let chosen = {
            let model = model.lock().unwrap();
            model.iter().nth(turn % model.len().max(1)).map(|(n, appends)| (*n, *appends))
        };
        turn += 7;
        let Some((n, appends)) = chosen else { continue };
        let all = expected(n, appends);
        let mut out = vec![0; all.len()];
        match store.read(id(n), 0, &mut out) {
            Ok(len) => assert!(len == all.len() && out == all, "chunk {n}"),
            // Deleted meanwhile.
            Err(Error::NotFound(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn writers_readers_and_a_cleaner_do_not_disturb_each_other() {
    let through = Config { write_cache: false, rotational: true, ..Config::tiny() };
    for config in [Config::tiny(), through, Config { conventional: 0, rotational: false, ..Config::tiny() }] {
        let emulator = Emulator::memory(&config).unwrap();
        format(&emulator);
        let mut threaded = options();
        threaded.volume.exec = imbrex_zones::Exec::Threads(2);
        threaded.checkpoint_bytes = 3 << 20;
        let store = ChunkStore::open(drive(&emulator), threaded).unwrap();
        let model = Model::default();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let (store, model) = (&store, &model);
                    scope.spawn(move || write(store, model, thread, 90))
                })
                .collect();
            for _ in 0..2 {
                scope.spawn(|| read(&store, &model, &stop));
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    store.clean(1 << 20).unwrap();
                    store.begin_checkpoint().unwrap();
                    while store.step().unwrap() {}
                    std::thread::yield_now();
                }
            });
            let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            stop.store(true, Ordering::Relaxed);
            results.into_iter().for_each(|result| result.unwrap());
        });
        let model = model.into_inner().unwrap();
        let whole = |store: &ChunkStore| {
            let ids: Vec<_> = store.list(None, usize::MAX).iter().map(|info| info.id).collect();
            assert_eq!(ids, model.keys().map(|n| id(*n)).collect::<Vec<_>>());
            for (n, appends) in &model {
                assert!(content(store, id(*n)) == expected(*n, *appends), "chunk {n}");
            }
            let report = store.check(|_, _| {}).unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
        };
        whole(&store);
        while store.clean(1 << 20).unwrap() > 0 {}
        whole(&store);
        assert!(store.stats().cleaned_zones > 0, "{:?}", store.stats());
        drop(store);
        whole(&ChunkStore::open(drive(&emulator), options()).unwrap());
    }
}

/// Nothing is done in the background once any `close` has returned, also where several end the store at the same time.
#[test]
fn everybody_who_closes_waits_for_the_background() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let (arrived, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (at, on) = (arrived.clone(), go.clone());
    let hears = move |_, cause| {
        while cause == Cause::Check && !on.load(Ordering::SeqCst) {
            at.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        Ok(())
    };
    let mut threaded = Options { scrub: Some(Duration::from_millis(1)), ..options() };
    threaded.volume.exec = Exec::Threads(1);
    let store = ChunkStore::open(Heard::before(&emulator, hears), threaded).unwrap();
    store.create(id(1), StreamType::DATA).unwrap();
    store.append(id(1), &bytes(9000, 1)).unwrap();
    while !arrived.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                store.close().unwrap();
                assert!(go.load(Ordering::SeqCst), "the scrub was still reading");
            });
        }
        // Long enough for who does not wait.
        std::thread::sleep(Duration::from_millis(200));
        go.store(true, Ordering::SeqCst);
    });
}
