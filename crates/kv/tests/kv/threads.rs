//! Several callers at once, with the maintenance thread beside them.

use crate::support::{Append, configs, formatted, options, value};
use imbrex_device::Drive;
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_kv::{Kv, Options};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn threaded() -> Options {
    let inline = options();
    Options { volume: VolumeOptions { exec: Exec::Threads(1), ..inline.volume }, ..inline }
}

fn key(thread: u64, n: u64) -> Vec<u8> {
    format!("t{thread}-{n:05}").into_bytes()
}

/// A new table is opened when somebody looks into it first. If many do at once, one of them reads its end.
#[test]
fn a_table_is_opened_once_by_however_many_at_once() {
    let (capacity, zone_size, conventional) = (Some(64 << 20), Some(1 << 20), Some(2));
    let sizes = Overrides { capacity, zone_size, conventional, ..Overrides::default() };
    let emulator = Emulator::memory(&Config::named("hgst-hsh721414al", &sizes).unwrap()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Kv::format(&drive, None, false).unwrap();
    let store = Kv::open(drive.clone(), options()).unwrap();
    for n in 0..300 {
        store.put(&key(1, n), &value(n, 392), false).unwrap();
    }
    store.compact().unwrap();
    drop(store);
    let store = Kv::open(drive, options()).unwrap();
    emulator.keep_own_time(Pace::Real { speed: 1.0 }).unwrap();
    let reads = || emulator.stats().by_cause["user_read"].reads;
    let (before, together) = (reads(), std::sync::Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                together.wait();
                assert_eq!(store.get(b"t1-00100x").unwrap(), None);
            });
        }
    });
    // All tables are on one level, so one of them may have the key.
    assert_eq!(reads() - before, 1);
}

#[test]
fn each_reads_what_it_wrote_whatever_others_do() {
    for config in configs() {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), threaded()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let store = &store;
                    scope.spawn(move || {
                        for n in 0..600u64 {
                            let (k, v) = (key(thread, n % 100), value(n << 8 | thread, (n % 900) as usize));
                            store.put(&k, &v, n % 97 == 0).unwrap();
                            assert_eq!(store.get(&k).unwrap(), Some(v));
                            if n % 10 == 9 {
                                let gone = key(thread, (n * 7) % 100);
                                store.delete(&gone, false).unwrap();
                                assert_eq!(store.get(&gone).unwrap(), None);
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // What an iterator sees does not change while it goes on.
                    let mut iter = store.iter().unwrap();
                    let mut seen = Vec::new();
                    iter.seek_to_first().unwrap();
                    while let Some((key, _)) = iter.get() {
                        seen.push(key.to_vec());
                        iter.advance().unwrap();
                    }
                    assert!(seen.is_sorted());
                    iter.seek_to_last().unwrap();
                    while let Some((key, _)) = iter.get() {
                        assert_eq!(seen.pop().as_deref(), Some(key));
                        iter.retreat().unwrap();
                    }
                    assert_eq!(seen.len(), 0);
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            over.store(true, Ordering::Relaxed);
        });
        let mut keys = 0;
        let mut iter = store.iter().unwrap();
        iter.seek_to_first().unwrap();
        while iter.get().is_some() {
            keys += 1;
            iter.advance().unwrap();
        }
        drop(iter);
        assert_eq!(store.check().unwrap(), [""; 0]);
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        store.compact().unwrap();
        assert_eq!(store.figures().levels.iter().map(|level| level.2).sum::<u64>(), keys);
    }
}

#[test]
fn operands_of_several_threads_count_once_each_in_the_order_of_their_thread() {
    for (config, combines) in configs().into_iter().zip([true, false, true]) {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), threaded()).unwrap();
        let key = |n: u64| format!("k{n}").into_bytes();
        let operand = |thread: u64, n: u64| format!("{thread}.{n}");
        let operator = || Arc::new(Append { combines });
        store.merge_operator(operator());
        // What a thread has appended to a key is there, once and in its order, whatever others append.
        let own = |value: &[u8], thread: u64| -> Vec<String> {
            let text = String::from_utf8(value.to_vec()).unwrap();
            let mine = text.split('|').filter(|part| part.starts_with(&format!("{thread}.")));
            mine.map(str::to_owned).collect()
        };
        let sent = |thread: u64, upto: u64, k: u64| {
            (0..upto).filter(|n| n % 3 == k).map(|n| operand(thread, n)).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..300u64 {
                        store.merge(&key(n % 3), operand(thread, n).as_bytes(), n % 50 == 0).unwrap();
                        // So that there is something to flush and to merge.
                        store.put(format!("k-{thread}-{n}").as_bytes(), &value(n, 700), false).unwrap();
                        if n % 20 == 19 {
                            let found = store.get(&key(n % 3)).unwrap().unwrap();
                            assert_eq!(own(&found, thread), sent(thread, n + 1, n % 3));
                        }
                    }
                });
            }
        });
        let whole = |store: &Kv| {
            for k in 0..3 {
                let found = store.get(&key(k)).unwrap().unwrap();
                (0..4).for_each(|thread| assert_eq!(own(&found, thread), sent(thread, 300, k)));
            }
        };
        whole(&store);
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        store.merge_operator(operator());
        whole(&store);
        store.compact().unwrap();
        whole(&store);
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

/// Much may be admitted at once after merges. The thread looks after memory meanwhile: what is full becomes tables, although nobody waits for it.
#[test]
fn memory_that_is_full_is_flushed_although_more_is_admitted() {
    let store = Kv::open(formatted(&configs()[0]), threaded()).unwrap();
    let memtable = options().memtable_bytes as u64;
    let mut n = 0u64;
    for round in 0..5 {
        // Choices of which each admits something.
        for _ in 0..40 {
            store.put(&key(round, n % 300), b"little", false).unwrap();
            store.flush().unwrap();
            n += 1;
        }
        while store.step().unwrap() {}
        let put = n;
        while store.figures().memory < memtable && (n - put) * 200 < memtable {
            store.put(&key(9, n % 300), &value(n, 200), false).unwrap();
            n += 1;
        }
        // A part of what was put is in tables soon, without another put.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while store.figures().memory >= memtable {
            assert!(std::time::Instant::now() < until, "nobody looks after memory: {} bytes", store.figures().memory);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
