//! What is done without being asked: cleaning in bursts, by steps and by a thread; zones that the drive gives up.

use crate::support::{BUFFERED, bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::{ChunkId, ChunkStore, Durability, Options, RESERVE, StreamType, TENANT, ZoneState};
use imbrex_device::ZoneId;
use imbrex_emulator::Emulator;
use imbrex_zones::PoolCounts;
use std::time::Duration;

const DATA: StreamType = StreamType::DATA;

fn counts(store: &ChunkStore) -> PoolCounts {
    store.volume().tenant(TENANT).unwrap().counts()
}

/// Chunks 0 to `n`, of which those that three divides are left.
fn mostly_dead(store: &ChunkStore, n: u64) {
    for n in 0..n {
        store.create_with(id(n), DATA, Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(30_000, n), BUFFERED).unwrap();
    }
    (0..n).filter(|n| n % 3 != 0).for_each(|n| store.delete_with(id(n), Durability::Buffered).unwrap());
    store.sync().unwrap();
}

fn is_whole(store: &ChunkStore, n: u64) {
    (0..n).step_by(3).for_each(|n| assert!(content(store, id(n)) == bytes(30_000, n), "chunk {n}"));
    let report = store.check(|_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// Many zones shall be free.
fn wanting(below: u32) -> Options {
    Options { clean_below: Some(below), ..options() }
}

#[test]
fn steps_clean_what_users_then_need_not() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), Options { max_slowdown: None, ..options() }).unwrap();
    mostly_dead(&store, 180);
    store.close().unwrap();
    drop(store);
    let free = |store: &ChunkStore| counts(store).free - RESERVE;

    // Nobody but who takes zones cleans.
    let store = ChunkStore::open(drive(&emulator), Options { max_slowdown: None, ..wanting(40) }).unwrap();
    while store.step().unwrap() {}
    assert_eq!(store.stats().moved_bytes, 0);
    let few = free(&store);
    assert!(few < 35 && few > 20, "{few}");
    drop(store);

    let store = ChunkStore::open(drive(&emulator), wanting(40)).unwrap();
    let mut bursts = 0;
    let mut least = few;
    while free(&store) < 40 && store.step().unwrap() {
        bursts += 1;
        least = least.min(free(&store));
    }
    let stats = store.stats();
    assert!(bursts > 0 && stats.moved_bytes > 0 && stats.background_bytes == stats.moved_bytes, "{stats:?}");
    assert_eq!(free(&store), 40, "{stats:?}");
    assert!(least + 2 >= few, "{least} of {few}: cleaning took more than its own zones");
    is_whole(&store, 180);
    // Below that number, but not below half of it, users take zones and clean none.
    for n in 1000..1100 {
        store.create_with(id(n), DATA, Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(30_000, n), BUFFERED).unwrap();
    }
    store.sync().unwrap();
    assert!((20..40).contains(&free(&store)));
    assert_eq!(store.stats().moved_bytes, stats.moved_bytes);
    // Who stepped once and does so no more leaves it to them.
    for i in 100..400 {
        store.create_with(id(1000 + i), DATA, Durability::Buffered).unwrap();
        store.append_with(id(1000 + i), &bytes(30_000, i), BUFFERED).unwrap();
        // One of the hundred before, so that zones are left half dead.
        store.delete_with(id(900 + i / 100 * 100 + i * 37 % 100), Durability::Buffered).unwrap();
    }
    store.sync().unwrap();
    assert!(free(&store) > 22, "{}", free(&store));
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    is_whole(&store, 180);
}

#[test]
fn a_thread_cleans_while_users_go_on_and_ends_with_the_store() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), Options { max_slowdown: None, ..options() }).unwrap();
    mostly_dead(&store, 180);
    store.close().unwrap();
    drop(store);
    let mut threaded = wanting(40);
    threaded.volume.exec = imbrex_zones::Exec::Threads(1);
    let store = ChunkStore::open(drive(&emulator), threaded.clone()).unwrap();
    let mut n = 1000;
    while counts(&store).free - RESERVE < 40 {
        // Whatever is appended is deleted again.
        store.create(id(n), DATA).unwrap();
        store.append(id(n), &bytes(9000, n)).unwrap();
        assert!(content(&store, id(n)) == bytes(9000, n));
        store.delete(id(n)).unwrap();
        n += 1;
    }
    is_whole(&store, 180);
    let clone = store.clone();
    store.close().unwrap();
    drop(store);
    let stats = clone.stats();
    assert!(stats.background_bytes > 0 && stats.background_bytes <= stats.moved_bytes, "{stats:?}");
    // Who still has it goes on; nothing is done behind its back any more.
    clone.create(id(1), DATA).unwrap();
    clone.append(id(1), &bytes(100_000, 1)).unwrap();
    assert_eq!(clone.stats().background_bytes, stats.background_bytes);
    drop(clone);
    // Not closed: the thread ends all the same, whatever it is doing.
    for _ in 0..5 {
        drop(ChunkStore::open(drive(&emulator), Options { clean_below: Some(60), ..threaded.clone() }).unwrap());
    }
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    is_whole(&store, 180);
}

#[test]
fn a_drive_that_fails_under_the_thread_stops_nobody() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), Options { max_slowdown: None, ..options() }).unwrap();
    mostly_dead(&store, 120);
    drop(store);
    let mut threaded = wanting(50);
    threaded.volume.exec = imbrex_zones::Exec::Threads(1);
    let store = ChunkStore::open(drive(&emulator), threaded).unwrap();
    emulator.faults().fail_flushes(1);
    // Whose flush it is, nobody knows; afterwards no write succeeds, and nobody waits for ever.
    while store.sync().and_then(|()| store.create(ChunkId::random(), DATA)).is_ok() {}
    assert!(store.append(id(0), b"more").is_err());
    assert!(store.close().is_err());
    drop(store);
    emulator.faults().clear();
    is_whole(&ChunkStore::open(drive(&emulator), options()).unwrap(), 120);
}

/// The zones of chunk `n`.
fn zones(store: &ChunkStore, n: u64) -> Vec<u32> {
    store.places(id(n)).unwrap().iter().map(|place| place.zone).collect()
}

/// Chunks that fill zones, one each, sealed.
fn full_zones(store: &ChunkStore, n: u64) {
    for n in 0..n {
        store.create(id(n), DATA).unwrap();
        (0..8).for_each(|i| assert_eq!(store.append(id(n), &bytes(30_000, n << 8 | i)).unwrap(), i * 30_000));
        store.seal(id(n)).unwrap();
    }
}

fn full_zone(n: u64) -> Vec<u8> {
    (0..8).flat_map(|i| bytes(30_000, n << 8 | i)).collect()
}

#[test]
fn a_zone_that_turns_read_only_is_drained_without_being_asked() {
    for reopened in [false, true] {
        let (emulator, mut store) = crate::support::fresh(&config());
        full_zones(&store, 8);
        let zone = zones(&store, 3)[0];
        assert!(!store.step().unwrap(), "nothing is to be done");
        emulator.faults().make_read_only(ZoneId(zone)).unwrap();
        if reopened {
            drop(store);
            store = ChunkStore::open(drive(&emulator), options()).unwrap();
        } else {
            assert_eq!(store.patrol().unwrap(), [zone]);
        }
        assert_eq!(store.patrol().unwrap(), [0; 0], "once is enough");
        while store.step().unwrap() {}
        assert!(!zones(&store, 3).contains(&zone), "{:?}", store.places(id(3)));
        assert!(store.stats().background_bytes > 100_000);
        (0..8).for_each(|n| assert!(content(&store, id(n)) == full_zone(n), "chunk {n}"));
        assert!(store.lost().is_empty());
        store.close().unwrap();
        assert_eq!(counts(&store).dead, 1, "it is not used again");
        drop(store);
        // What is in it is not needed any more.
        emulator.faults().make_offline(ZoneId(zone)).unwrap();
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert!(store.open_report().damage.is_empty(), "{:?}", store.open_report());
        (0..8).for_each(|n| assert!(content(&store, id(n)) == full_zone(n), "chunk {n}"));
    }
}

/// The next cleaning that somebody asks for drains it, too; and so does the thread.
#[test]
fn a_cleaning_drains_it_too_and_so_does_the_thread() {
    for threads in [false, true] {
        let (emulator, store) = crate::support::fresh(&config());
        full_zones(&store, 8);
        let zone = zones(&store, 3)[0];
        emulator.faults().make_read_only(ZoneId(zone)).unwrap();
        if !threads {
            assert!(store.clean(1).unwrap() > 0);
            while store.clean(1 << 20).unwrap() > 0 {}
        } else {
            drop(store);
            let mut threaded = options();
            threaded.volume.exec = imbrex_zones::Exec::Threads(1);
            let store = ChunkStore::open(drive(&emulator), threaded).unwrap();
            while zones(&store, 3).contains(&zone) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert!(!zones(&store, 3).contains(&zone));
        (0..8).for_each(|n| assert!(content(&store, id(n)) == full_zone(n), "chunk {n}"));
    }
}

#[test]
fn what_an_offline_zone_has_taken_along_is_listed_and_nothing_else_is_lost() {
    let (emulator, store) = crate::support::fresh(&config());
    full_zones(&store, 8);
    let zone = zones(&store, 3)[0];
    let others: Vec<u64> = (0..8).filter(|n| !zones(&store, *n).contains(&zone)).collect();
    assert!(others.len() >= 6);
    emulator.faults().make_offline(ZoneId(zone)).unwrap();
    assert_eq!(store.patrol().unwrap(), [zone]);
    let expect = |store: &ChunkStore| {
        let lost = store.lost();
        let here = lost.iter().find(|one| one.id == id(3)).unwrap();
        assert!((here.zone, here.offset) == (zone, 0) && here.len > 100_000, "{lost:?}");
        assert!(lost.iter().all(|one| one.zone == zone && !others.contains(&u64::from(one.id.0[23]))), "{lost:?}");
        while store.step().unwrap() {}
        others.iter().for_each(|n| assert!(content(store, id(*n)) == full_zone(*n), "chunk {n}"));
        assert!(store.read(id(3), 0, &mut [0; 10]).is_err());
        assert!(!store.check(|_, _| {}).unwrap().problems.is_empty());
    };
    expect(&store);
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let damage = &store.open_report().damage;
    assert!(damage.iter().any(|what| what.contains(&format!("Zone {zone} is offline"))), "{damage:?}");
    expect(&store);
    let gone: Vec<ChunkId> = store.lost().iter().map(|one| one.id).collect();
    gone.iter().for_each(|id| drop(store.delete(*id)));
    assert!(store.lost().is_empty());
    store.close().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert!(store.open_report().damage.is_empty(), "{:?}", store.open_report());
    assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
}

/// On a drive that is full to the last zone nothing is drained from the reserve; when something is deleted there is room, and then it is.
#[test]
fn zones_that_die_on_a_full_drive_leave_the_reserve_alone() {
    let (emulator, store) = crate::support::fresh(&config());
    let mut n = 0;
    while store.create(id(n), DATA).and_then(|()| store.append(id(n), &bytes(240_000, n))).is_ok() {
        store.seal(id(n)).unwrap();
        n += 1;
    }
    store.delete(id(n)).unwrap();
    assert_eq!(counts(&store).free, RESERVE);
    let dying: Vec<u32> = [3, 9, 17, 20].iter().map(|n| zones(&store, *n)[0]).collect();
    dying.iter().for_each(|zone| emulator.faults().make_read_only(ZoneId(*zone)).unwrap());
    store.patrol().unwrap();
    while store.step().unwrap() {}
    while store.clean(1 << 20).unwrap() > 0 {}
    assert_eq!(counts(&store).free, RESERVE, "nothing was to be had for it");
    (0..n).for_each(|n| assert!(content(&store, id(n)) == bytes(240_000, n), "chunk {n}"));
    (0..n).filter(|n| n % 4 == 1).for_each(|n| store.delete(id(n)).unwrap());
    while store.step().unwrap() {}
    let left = store.zones().into_iter().filter(|zone| dying.contains(&zone.zone) && zone.live > 0);
    assert_eq!(left.count(), 0);
    assert!(store.zones().iter().all(|zone| zone.state != ZoneState::Closed || !dying.contains(&zone.zone)));
    (0..n).filter(|n| n % 4 != 1).for_each(|n| assert!(content(&store, id(n)) == bytes(240_000, n), "chunk {n}"));
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    (0..n).filter(|n| n % 4 != 1).for_each(|n| assert!(content(&store, id(n)) == bytes(240_000, n), "chunk {n}"));
    assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
}
