//! What readers keep of a store, under `shuttle`: random interleavings of those that read, put and merge.
//!
//! Runs with `cargo test -p imbrex-kv --features shuttle --test shuttle`; without the feature there is nothing here. Shuttle itself fails a run that deadlocks. A reader
//! whose zone was reset under it would meet a checksum that is wrong, and a zone that is never given back fails the check at the end.

#![cfg(feature = "shuttle")]

use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::table::TableOptions;
use imbrex_kv::{Batch, Bytewise, Iter, Kv, Make, Options, Order};
use imbrex_zones::{Exec, Volume, VolumeOptions};
use shuttle::sync::mpsc;
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;

/// Keys, each with the same value at any moment.
const KEYS: u64 = 8;
/// Bytes of a value.
const VALUE: usize = 3000;

/// Schedules that each test tries: 100, or IMBREX_SHUTTLE times as many.
fn rounds() -> usize {
    let times = std::env::var("IMBREX_SHUTTLE").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    100usize.saturating_mul(times)
}

fn store(zones: u64, options: Options) -> Kv {
    let zone = 64 << 10;
    let config =
        Config { zone_size: zone, zone_capacity: zone, capacity: zones * zone, conventional: 2, ..Config::tiny() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    Kv::format(&drive, Some([9; 16]), false).unwrap();
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 128 << 10, unit_bytes: 4 << 10, turn_bytes: 64 << 10 };
    let tenant = Volume::open(drive, volume.clone()).unwrap().tenant("kv").unwrap();
    let sizes = Options {
        memtable_bytes: 24 << 10,
        table_bytes: 24 << 10,
        step_bytes: 8 << 10,
        // Each key has a block of its own, which is read when a reader comes there.
        table: TableOptions { block: 4 << 10, ..TableOptions::default() },
        cache_bytes: 0,
        segment_bytes: 8 << 10,
        reads_at_once: 1,
        volume,
        ..options
    };
    Kv::open_tenant(tenant, sizes).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

fn value(round: u64) -> Vec<u8> {
    (0..VALUE as u64).map(|i| (round.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i * i) >> 11) as u8).collect()
}

/// All keys get the value of this round, together.
fn put(store: &Kv, round: u64) -> imbrex_device::Result<()> {
    let mut batch = Batch::new();
    (0..KEYS).for_each(|n| batch.put(&key(n), &value(round)));
    store.write(&batch, false)
}

/// What an iterator has, forwards or back: all keys, each with the value of one round. `pause` is called between two keys.
fn is_one_round(mut iter: Iter, back: bool, mut pause: impl FnMut()) -> imbrex_device::Result<()> {
    let (mut found, mut first) = (0, None);
    if back { iter.seek_to_last() } else { iter.seek_to_first() }?;
    while let Some((key_there, value_there)) = iter.get() {
        let n = if back { KEYS - 1 - found } else { found };
        assert_eq!(key_there, key(n));
        assert_eq!(value_there, first.get_or_insert_with(|| value_there.to_vec()), "two rounds at once");
        found += 1;
        pause();
        if back { iter.retreat() } else { iter.advance() }?;
    }
    assert_eq!(found, KEYS);
    Ok(())
}

/// All that may be merged is, and each zone that is taken holds something.
fn is_whole(store: &Kv, round: u64) {
    while store.step().unwrap() {}
    for n in 0..KEYS {
        assert!(store.get(&key(n)).unwrap() == Some(value(round)), "key {n} does not have the last round");
    }
    assert_eq!(store.check().unwrap(), [""; 0]);
}

#[test]
fn readers_keep_what_they_read_while_tables_come_and_go() {
    shuttle::check_random(
        || {
            let store = store(48, Options::default());
            put(&store, 0).unwrap();
            store.compact().unwrap();
            let (done, rounds) = mpsc::channel();
            let writer = thread::spawn({
                let store = store.clone();
                move || {
                    for round in 1..=KEYS {
                        put(&store, round).unwrap();
                        store.compact().unwrap();
                        // Zones that nobody keeps are reset.
                        while store.volume().step().unwrap() {}
                        done.send(()).unwrap();
                    }
                }
            });
            let merger = thread::spawn({
                let store = store.clone();
                move || {
                    for _ in 0..8 {
                        store.compact().unwrap();
                        store.step().unwrap();
                    }
                }
            });
            // A step of it for each round: what it reads is long gone for everybody else.
            let slow = store.iter().unwrap();
            let slow = thread::spawn(move || is_one_round(slow, false, || rounds.recv().unwrap()).unwrap());
            let reader = thread::spawn({
                let store = store.clone();
                move || {
                    for back in [false, true] {
                        let moment = store.snapshot();
                        is_one_round(store.iter_at(&moment).unwrap(), back, thread::yield_now).unwrap();
                        let values: Vec<_> =
                            (0..KEYS).map(|n| store.get_at(&moment, &key(n)).unwrap().unwrap()).collect();
                        assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "gets of one moment");
                    }
                }
            });
            [writer, merger, slow, reader].into_iter().for_each(|thread| thread.join().unwrap());
            is_whole(&store, KEYS);
        },
        rounds(),
    );
}

#[test]
fn iterators_that_expire_give_their_zones_back() {
    shuttle::check_random(
        || {
            // So few zones that old rounds must go for new ones.
            let store = store(26, Options { lease: Duration::ZERO, ..Options::default() });
            put(&store, 0).unwrap();
            store.compact().unwrap();
            let reader = thread::spawn({
                let store = store.clone();
                move || {
                    for back in [false, true, false] {
                        let done = store.iter().and_then(|iter| is_one_round(iter, back, thread::yield_now));
                        assert!(
                            done.as_ref().is_err_and(|error| error.code() == Code::Expired) || done.is_ok(),
                            "{done:?}"
                        );
                    }
                }
            });
            let mut kept = store.iter().unwrap();
            kept.seek_to_first().unwrap();
            for round in 1..40 {
                put(&store, round).unwrap();
            }
            reader.join().unwrap();
            drop(kept);
            is_whole(&store, 39);
        },
        rounds(),
    );
}

#[test]
fn a_checkpoint_and_a_dropped_space_keep_and_free_what_they_should() {
    shuttle::check_random(
        || {
            let store = store(48, Options::default());
            put(&store, 0).unwrap();
            let other = store.space("other", Bytewise.name(), Make::IfMissing).unwrap();
            (0..KEYS).for_each(|n| other.put(&key(n), &value(n), false).unwrap());
            let keeper = thread::spawn({
                let store = store.clone();
                move || {
                    store.checkpoint("kept").unwrap();
                    let moment = store.at_checkpoint("kept").unwrap();
                    is_one_round(store.iter_at(&moment).unwrap(), false, thread::yield_now).unwrap();
                    store.drop_checkpoint("kept").unwrap();
                    is_one_round(store.iter_at(&moment).unwrap(), true, thread::yield_now).unwrap();
                }
            });
            let dropper = thread::spawn({
                let store = store.clone();
                move || {
                    store.drop_space("other").unwrap();
                    store.compact().unwrap();
                }
            });
            (1..4).for_each(|round| put(&store, round).unwrap());
            [keeper, dropper].into_iter().for_each(|thread| thread.join().unwrap());
            drop(other);
            store.compact().unwrap();
            is_whole(&store, 3);
        },
        rounds(),
    );
}
