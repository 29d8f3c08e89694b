//! Several commands at the drive at once: zones of a commit side by side, appends that are durable by themselves, reads; one write a zone.

use crate::drive_support::Watched;
use crate::support::{bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::{Append, ChunkStore, Durability, Error, Options, StreamType};
use imbrex_device::{Drive, Zone, ZoneId, ZoneState, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

/// A new drive that is watched, with a threaded store.
fn watched(config: Config, change: impl FnOnce(&mut Options)) -> (Arc<Watched>, ChunkStore) {
    let emulator = Emulator::memory(&config).unwrap();
    format(&emulator);
    let watched = Watched::new(emulator);
    let mut threaded = Options { max_slowdown: None, ..options() };
    threaded.volume.exec = imbrex_zones::Exec::Threads(2);
    change(&mut threaded);
    let drive = Drive { device: watched.clone(), survivor: None };
    let store = ChunkStore::open(drive, threaded).unwrap();
    (watched, store)
}

fn cache_off() -> Config {
    Config { write_cache: false, rotational: true, ..config() }
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
fn no_more_zones_of_a_commit_are_at_the_drive_than_may_be() {
    let (drive, store) = watched(cache_off(), |options| options.zones_at_once = Some(2));
    three(&store);
    drive.seen().most = 0;
    for n in 0..3 {
        for i in 0..8 {
            store.append_with(id(n), &bytes(20_000, n << 8 | i), BUFFERED).unwrap();
        }
    }
    drive.meet(2);
    store.sync().unwrap();
    drive.meet(0);
    let seen = drive.seen();
    assert_eq!((seen.most, seen.most_of_a_zone), (2, 1));
    drop(seen);
    for n in 0..3 {
        assert!(content(&store, id(n))[3000..] == (0..8).flat_map(|i| bytes(20_000, n << 8 | i)).collect::<Vec<_>>());
    }
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

#[test]
fn an_append_is_durable_while_another_zone_is_still_being_written() {
    let (drive, store) = watched(cache_off(), |_| {});
    let zones = three(&store);
    drive.hold(zones[0]);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| store.append(id(0), &bytes(5000, 10)).unwrap());
        drive.wait_for(zones[0]);
        // With a commit for both this would never return.
        assert_eq!(store.append(id(1), &bytes(5000, 11)).unwrap(), 3000);
        assert!(!slow.is_finished());
        drive.let_go();
        assert_eq!(slow.join().unwrap(), 3000);
    });
    assert_eq!(drive.seen().most_of_a_zone, 1);
}

#[test]
fn those_who_wait_for_one_zone_share_its_next_write() {
    let (drive, store) = watched(cache_off(), |_| {});
    let zones = three(&store);
    drive.hold(zones[0]);
    std::thread::scope(|scope| {
        let appends: Vec<_> = (0..5u64)
            .map(|i| {
                let (drive, store, zones) = (&drive, &store, &zones);
                scope.spawn(move || {
                    if i > 0 {
                        drive.wait_for(zones[0]);
                    }
                    store.append(id(0), &bytes(5000, 20 + i)).unwrap();
                })
            })
            .collect();
        while store.stat(id(0)).unwrap().len < 3000 + 5 * 5000 {
            std::thread::yield_now();
        }
        drive.seen().writes = 0;
        drive.let_go();
        appends.into_iter().for_each(|append| append.join().unwrap());
    });
    // What gathered behind the first is one more; the first is counted when it came.
    assert_eq!(drive.seen().writes, 1);
}

/// A piece of the checkpoint has told of bytes that are in memory, and before its last piece their zone refuses them.
#[test]
fn a_checkpoint_does_not_tell_of_places_that_took_no_bytes() {
    for config in [config(), cache_off()] {
        let (drive, store) = watched(config, |_| {});
        let zones = three(&store);
        store.begin_checkpoint().unwrap();
        store.append_with(id(0), &bytes(9000, 9), BUFFERED).unwrap();
        assert!(store.step().unwrap());
        drive.fail(zones[0]);
        assert!(store.step().unwrap());
        store.sync().unwrap();
        drive.let_go();
        drop(store);
        let store = ChunkStore::open(Drive { device: drive, survivor: None }, options()).unwrap();
        assert!(content(&store, id(0)) == [bytes(3000, 0), bytes(9000, 9)].concat());
        assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
    }
}

#[test]
fn a_zone_that_could_not_be_finished_is_finished_with_the_next_commit() {
    let large = Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 64 << 20, ..config() };
    let (drive, store) = watched(large, |_| {});
    store.create(id(1), StreamType::DATA).unwrap();
    drive.seen().fail_finishes = 1;
    // More than a zone takes; three blocks of it are left.
    for i in 0..38 {
        store.append_with(id(1), &bytes(25_000, i), BUFFERED).unwrap();
    }
    store.create(id(2), StreamType::DATA).unwrap();
    store.append(id(2), &bytes(60_000, 1)).unwrap();
    assert_eq!(drive.seen().fail_finishes, 0, "a zone was closed");
    store.append(id(2), &bytes(1000, 2)).unwrap();
    let zone = store.places(id(1)).unwrap()[0].zone;
    let mut report = [Zone::EMPTY];
    drive.report(ZoneId(zone), &mut report).unwrap();
    assert_eq!(report[0].state, ZoneState::Full);
}

/// Nothing says any more how far its zone was written, but for who appends and knows where the chunk ended.
#[test]
fn a_chunk_whose_zone_is_offline_goes_on() {
    let options = || Options { tell_bytes: 1, ..options() };
    let emulator = Emulator::memory(&cache_off()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    store.create(id(1), StreamType::DATA).unwrap();
    for n in 0..2 {
        store.append(id(1), &bytes(5000, n)).unwrap();
        store.sync().unwrap();
    }
    // With it the journal is told where they stand.
    store.create(id(2), StreamType::DATA).unwrap();
    let zone = store.places(id(1)).unwrap()[0].zone;
    drop(store);
    emulator.faults().make_offline(imbrex_device::ZoneId(zone)).unwrap();
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(store.stat(id(1)).unwrap().len, 10_000);
    assert!(matches!(store.append(id(1), &bytes(5000, 2)), Err(Error::EndLost { len: 10_000, .. })));
    let here = Append { offset: Some(10_000), durability: Durability::Durable };
    assert_eq!(store.append_with(id(1), &bytes(5000, 2), here).unwrap(), 10_000);
    assert_eq!(store.append(id(1), b"more").unwrap(), 15_000);
    let mut out = vec![0; 5000];
    store.read(id(1), 10_000, &mut out).unwrap();
    assert!(out == bytes(5000, 2));
}

/// One zone after the other, two or three at once, or as many as there are threads.
fn at_once(round: usize) -> Option<u32> {
    Some(round as u32 % 4).filter(|zones| *zones > 0)
}

/// What became of a chunk: appends that were acknowledged, and that were begun.
type Model = Mutex<BTreeMap<u64, (usize, usize)>>;

fn piece(n: u64, i: usize) -> Vec<u8> {
    bytes(500 + (n as usize * 37 + i * 811) % 9000, n << 8 | i as u64)
}

/// Makes chunks and appends to them until the drive takes nothing any more.
fn write(store: &ChunkStore, model: &Model, thread: u64) -> Error {
    for round in 0u64.. {
        let n = thread * 1000 + round;
        if let Err(error) = store.create(id(n), StreamType::new((n % 3) as u8).unwrap()) {
            return error;
        }
        for i in 0..12 {
            model.lock().unwrap().entry(n).or_default().1 = i + 1;
            // Some do not wait; then the next one that does takes them along.
            let durability = if i % 4 == 1 { Durability::Buffered } else { Durability::Durable };
            if let Err(error) = store.append_with(id(n), &piece(n, i), Append { offset: None, durability }) {
                return error;
            }
            if durability == Durability::Durable {
                model.lock().unwrap().entry(n).or_default().0 = i + 1;
            }
        }
    }
    unreachable!()
}

/// Four threads write until the drive gives nothing but errors.
fn all_write(store: &ChunkStore, model: &Model) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..5).map(|thread| scope.spawn(move || write(store, model, thread))).collect();
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Error::Drive(_)));
        }
    });
}

/// Every chunk has whole appends, all that were acknowledged among them.
fn all_is_there(store: &ChunkStore, model: &Model, what: &str) {
    for (n, (acknowledged, begun)) in model.lock().unwrap().iter() {
        let found = content(store, id(*n));
        let mut all = Vec::new();
        let mut whole = *acknowledged == 0 && found.is_empty();
        for i in 0..*begun {
            all.extend(piece(*n, i));
            whole |= i + 1 >= *acknowledged && found == all;
        }
        assert!(whole, "{what}: chunk {n} has {} bytes, of {acknowledged} appends and {begun}", found.len());
    }
    assert!(store.check(|_, _| {}).unwrap().problems.is_empty(), "{what}");
}

#[test]
fn what_was_acknowledged_is_there_whenever_the_drive_stops() {
    for round in 0..60 {
        let (drive, store) = watched(cache_off(), |options| options.zones_at_once = at_once(round));
        let zones = three(&store);
        drive.die_after(round * 5 + 3);
        if round % 2 == 1 {
            // What was to go there goes to another zone, for which the journal has to be written first.
            drive.fail(zones[round % 3]);
        }
        let model = Model::default();
        all_write(&store, &model);
        assert!(drive.seen().most_of_a_zone <= 1);
        drop(store);
        drive.let_go();
        let store = ChunkStore::open(Drive { device: drive, survivor: None }, options()).unwrap();
        all_is_there(&store, &model, &format!("round {round}"));
    }
}

/// Several threads append, and the power fails after any number of commands, with writes of several of them under way.
#[test]
fn what_was_acknowledged_is_there_whenever_the_power_fails() {
    for (round, cache) in (0..120).flat_map(|round| [(round, false), (round, true)]) {
        let config = if cache { Config { rotational: true, ..config() } } else { cache_off() };
        let (drive, store) = watched(config, |options| {
            (options.checkpoint_bytes, options.zones_at_once) = (200 << 10, at_once(round));
        });
        three(&store);
        drive.power_fails_after(round * 2 + 1);
        let model = Model::default();
        all_write(&store, &model);
        drop(store);
        let left = drive.after_power_loss(round as u64);
        let store = ChunkStore::open(crate::support::drive(&left), options()).unwrap();
        assert_eq!(store.open_report().damage, Vec::<String>::new(), "round {round}, cache {cache}");
        all_is_there(&store, &model, &format!("round {round}, cache {cache}"));
    }
}

#[test]
fn all_commands_of_a_read_are_at_the_drive_at_once() {
    let (drive, store) = watched(Config { rotational: true, ..config() }, |_| {});
    store.create(id(7), StreamType::DATA).unwrap();
    let all: Vec<u8> = (0..8).flat_map(|i| bytes(25_000, i)).collect();
    for piece in all.chunks(25_000) {
        store.append(id(7), piece).unwrap();
    }
    drive.meet_reads(8);
    let mut out = vec![0; all.len() - 1234];
    assert_eq!(store.read(id(7), 617, &mut out).unwrap(), out.len());
    drive.meet_reads(0);
    assert!(out == all[617..all.len() - 617]);
}
