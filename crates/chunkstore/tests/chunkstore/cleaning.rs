//! Cleaning, and drives that are full.

use crate::support::{BUFFERED, Heard, bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::Options;
use imbrex_chunkstore::{ChunkStore, CleaningPolicy, Durability, Fit, Placement, RESERVE, StreamType, TENANT};
use imbrex_device::{Cause, Error, Fault, ZoneId};
use imbrex_emulator::{Config, Emulator};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const DATA: StreamType = StreamType::DATA;

#[test]
fn what_is_live_moves_and_the_zone_is_free() {
    for cleaning_policy in [CleaningPolicy::Greedy, CleaningPolicy::CostBenefit, CleaningPolicy::Lifetime] {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        let open =
            || ChunkStore::open(drive(&emulator), imbrex_chunkstore::Options { cleaning_policy, ..options() }).unwrap();
        let store = open();
        for n in 0..60 {
            store.create_with(id(n), DATA, Durability::Buffered).unwrap();
            store.append_with(id(n), &bytes(30_000, n), BUFFERED).unwrap();
        }
        (0..60).filter(|n| n % 4 != 0).for_each(|n| store.delete_with(id(n), Durability::Buffered).unwrap());
        store.sync().unwrap();
        let before = store.stats();
        let moved = store.clean(1 << 20).unwrap();
        assert!(moved > 0, "{cleaning_policy:?}");
        let after = store.stats();
        assert!(after.cleaned_zones > 0 && after.garbage_zones > before.garbage_zones, "{before:?} {after:?}");
        // What was live stays: three quarters were not.
        assert!(moved <= 15 * 36_864, "{moved}");
        let whole = |store: &ChunkStore| {
            (0..60).step_by(4).for_each(|n| assert!(content(store, id(n)) == bytes(30_000, n), "chunk {n}"));
            let report = store.check(|_, _| {}).unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
        };
        whole(&store);
        while store.clean(1 << 20).unwrap() > 0 {}
        whole(&store);
        drop(store);
        whole(&open());
    }
}

/// Fills the drive, deletes at random, goes on: for as long as live bytes leave some room there is always a zone, and cleaning
/// never takes more than the reserve.
#[test]
fn a_full_drive_goes_on_when_something_is_deleted() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let mut live: Vec<(u64, usize)> = Vec::new();
    let mut next = 0u64;
    let mut fill = |store: &ChunkStore, live: &mut Vec<(u64, usize)>| loop {
        let n = 20_000 + (next as usize * 7919) % 60_000;
        store.create_with(id(next), StreamType::new(next as u8 % 3).unwrap(), Durability::Buffered).unwrap();
        // In pieces, so that little is left at the end of a zone.
        let all = bytes(n, next);
        match all.chunks(8000).try_for_each(|piece| store.append(id(next), piece).map(drop)) {
            Ok(()) => live.push((next, n)),
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                store.delete(id(next)).unwrap();
                next += 1;
                return;
            }
        }
        next += 1;
    };
    let capacity = 52 * (256 << 10);
    fill(&store, &mut live);
    for round in 0..8u64 {
        let used: usize = live.iter().map(|(_, n)| n).sum();
        assert!(used * 100 > capacity * 80, "round {round}: refused at {used} of {capacity} bytes");
        let counts = store.volume().tenant(TENANT).unwrap().counts();
        assert!(counts.free <= RESERVE + 1, "{counts:?}");
        // A fifth goes, here and there.
        let mut i = 0u64;
        live.retain(|(n, _)| {
            i += 1;
            let gone = (i * 2_654_435_761 + round).is_multiple_of(5);
            if gone {
                store.delete_with(id(*n), Durability::Buffered).unwrap();
            }
            !gone
        });
        store.sync().unwrap();
        fill(&store, &mut live);
        for (n, len) in &live {
            assert!(content(&store, id(*n)) == bytes(*len, *n), "round {round}, chunk {n}");
        }
    }
    assert!(store.stats().cleaned_zones > 0);
    let report = store.check(|_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(store.list(None, usize::MAX).len(), live.len());
    for (n, len) in &live {
        assert!(content(&store, id(*n)) == bytes(*len, *n), "chunk {n}");
    }
}

/// Every chunk of a drive that is full to the last zone can be deleted, and then all its zones are free again.
#[test]
fn a_drive_filled_to_the_last_zone_is_emptied_and_recovers() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let free = store.stats().free_zones;
    let mut n = 0;
    loop {
        store.create(id(n), DATA).unwrap();
        if store.append(id(n), &bytes(100_000, n)).is_err() {
            break;
        }
        n += 1;
    }
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(store.list(None, usize::MAX).len() as u64, n + 1);
    (0..=n).for_each(|n| store.delete(id(n)).unwrap());
    store.close().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let stats = store.stats();
    assert!(store.list(None, 1).is_empty());
    assert_eq!(stats.free_zones + stats.opened_zones + stats.activated_zones + stats.closed_zones, free, "{stats:?}");
}

/// An open chunk whose bytes were moved goes on in a zone of its own kind, and all of it is there after a crash.
#[test]
fn what_was_moved_and_grows_on_does_not_grow_in_a_zone_of_the_cleaner() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    for n in 0..2 {
        store.create(id(n), DATA).unwrap();
    }
    store.append(id(0), &bytes(20_000, 0)).unwrap();
    for piece in 0..5 {
        store.append(id(1), &bytes(45_000, piece)).unwrap();
    }
    store.delete(id(1)).unwrap();
    assert!(store.clean(1 << 20).unwrap() > 0);
    let moved = store.places(id(0)).unwrap()[0].zone;
    store.append(id(0), &bytes(40_000, 1)).unwrap();
    store.append(id(0), &bytes(3000, 2)).unwrap();
    assert!(store.places(id(0)).unwrap()[1..].iter().all(|place| place.zone != moved));
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let all = [bytes(20_000, 0), bytes(40_000, 1), bytes(3000, 2)].concat();
    assert!(content(&store, id(0)) == all, "{:?}", store.places(id(0)));
}

/// A zone that cannot be read costs no append while there are other zones, and is named once: offline between the look at it and the
/// read of it, or with an error that may pass.
#[test]
fn a_victim_that_cannot_be_read_fails_no_append() {
    for offline in [true, false] {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        let bad: Arc<Mutex<BTreeSet<ZoneId>>> = Arc::default();
        let (heard, faults) = (bad.clone(), emulator.clone());
        let hears = move |zone, cause| {
            let mut bad = heard.lock().unwrap();
            if cause != Cause::Cleaning || (bad.len() > 2 && !bad.contains(&zone)) {
                return Ok(());
            }
            bad.insert(zone);
            if offline {
                return faults.faults().make_offline(zone);
            }
            Err(Error::new(&"tiny".into(), Fault::Io(Arc::new(std::io::Error::other("the cable")))))
        };
        let wants = Options { clean_below: Some(40), ..options() };
        let store = ChunkStore::open(Heard::before(&emulator, hears), wants).unwrap();
        let mut next = 0;
        let mut live = BTreeSet::new();
        // A third lives; 52 zones take 400 of them.
        while next < 600 {
            store.create(id(next), DATA).unwrap();
            store.append(id(next), &bytes(30_000, next)).unwrap();
            live.insert(next);
            if next >= 8 && next % 3 != 0 {
                live.remove(&(next - 8));
                store.delete(id(next - 8)).unwrap();
            }
            if next % 4 == 0 && live.len() > 100 {
                let n = live.pop_first().unwrap();
                store.delete(id(n)).unwrap();
            }
            next += 1;
        }
        let bad = std::mem::take(&mut *bad.lock().unwrap());
        assert_eq!(bad.len(), 3, "nothing was cleaned: the test does nothing");
        assert!(store.stats().cleaned_zones > 3, "{:?}", store.stats());
        let lost: BTreeSet<ZoneId> = store.lost().iter().map(|lost| ZoneId(lost.zone)).collect();
        assert!(if offline { lost.is_subset(&bad) } else { lost.is_empty() }, "{lost:?} {bad:?}");
        assert_eq!(store.patrol().unwrap(), [0; 0], "what is offline was noticed");
        let gone: BTreeSet<_> = store.lost().iter().map(|lost| lost.id).collect();
        assert!(gone.len() < 30);
        for n in live.into_iter().filter(|n| !gone.contains(&id(*n))) {
            assert!(content(&store, id(n)) == bytes(30_000, n), "chunk {n}");
        }
    }
}

/// A chunk of which three zones hold a piece each, with other pieces between them, fills no zone of the cleaner: each piece needs one of
/// its own, and to close those early wins nothing. Cleaning comes to an end all the same.
#[test]
fn pieces_that_cannot_join_do_not_go_from_zone_to_zone_for_ever() {
    let zone = 32 << 20;
    let large = Config { zone_size: zone, zone_capacity: zone, capacity: 24 * zone, ..config() };
    let emulator = Emulator::memory(&large).unwrap();
    format(&emulator);
    let wants = Options { open_zones: 1, buffer_bytes: 16 << 20, ..options() };
    let store = ChunkStore::open(drive(&emulator), wants).unwrap();
    store.create(id(0), DATA).unwrap();
    for turn in 0..5 {
        store.append(id(0), &bytes(700_000, turn)).unwrap();
        // The rest of the zone.
        for n in [turn * 2 + 1, turn * 2 + 2] {
            store.create(id(n), DATA).unwrap();
            store.append(id(n), &bytes(15 << 20, n)).unwrap();
        }
        store.append(id(turn * 2 + 2), &bytes(900_000, 99)).unwrap();
    }
    let places = store.places(id(0)).unwrap();
    assert_eq!(places.len(), 5, "{places:?}");
    [1, 2, 5, 6, 9, 10].iter().for_each(|n| store.delete(id(*n)).unwrap());
    let wants = Options { clean_below: Some(1000), ..options() };
    drop(store);
    let store = ChunkStore::open(drive(&emulator), wants).unwrap();
    let steps = (0..60).take_while(|_| store.step().unwrap()).count();
    assert!((1..60).contains(&steps), "{steps} steps");
    assert!(store.stats().moved_bytes < 4 << 20, "{:?}", store.stats());
    let all: Vec<u8> = (0..5).flat_map(|turn| bytes(700_000, turn)).collect();
    assert!(content(&store, id(0)) == all);
}

/// Zones are taken from the drive's beginning on.
struct FirstFree;
impl Placement for FirstFree {
    fn goes_round(&self) -> bool {
        false
    }
}

/// A drive that is full of chunks, of which a third dies, all over it; some zones are taken there, and more die where the first of these are. By how many
/// zones the next one that is taken lies behind the last.
fn next_behind_the_last(round: bool, write_cache: bool) -> i64 {
    let emulator = Emulator::memory(&Config { write_cache, ..config() }).unwrap();
    format(&emulator);
    let placement: Arc<dyn Placement> = if round { Arc::new(Fit) } else { Arc::new(FirstFree) };
    let store = ChunkStore::open(drive(&emulator), Options { placement, max_slowdown: None, ..options() }).unwrap();
    let zone = |n: u64| i64::from(store.places(id(n)).unwrap()[0].zone);
    let put = |n: u64| {
        store.create_with(id(n), DATA, Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(200_000, n), BUFFERED).unwrap();
        store.seal_with(id(n), Durability::Buffered).unwrap();
    };
    let delete = |n: u64| store.delete_with(id(n), Durability::Buffered).unwrap();
    let mut n = 0;
    while store.stats().free_zones > RESERVE + 1 {
        put(n);
        n += 1;
    }
    assert!(n > 30, "{n}");
    (0..n).step_by(3).for_each(delete);
    store.sync().unwrap();
    // So many that free zones are short, and what has died is given back.
    (1000..1012).for_each(put);
    assert!(zone(1009) < zone(1010) && zone(1010) < zone(1011), "where the first have died");
    (1008..1010).for_each(delete);
    store.sync().unwrap();
    put(2000);
    store.sync().unwrap();
    assert!(content(&store, id(2000)) == bytes(200_000, 2000));
    zone(2000) - zone(1011)
}

#[test]
fn zones_are_taken_round_the_drive() {
    let (round, first) = (next_behind_the_last(true, false), next_behind_the_last(false, false));
    assert!((1..=4).contains(&round), "{round}");
    assert!(first < 0, "{first}");
    let cached = next_behind_the_last(true, true);
    assert!(cached < 0, "{cached}: the drive puts what it has in memory in order");
}

/// Chunks that fill a zone are usual, so that one of a mebibyte gets a zone for itself, which is closed behind it. What is left of such zones is not
/// free and is nobody's: it is told as what cleaning makes room of, and it does.
#[test]
fn what_is_left_at_the_end_of_closed_zones_is_told_and_won() {
    const ZONE: u64 = 64 << 20;
    let config = Config { zone_size: ZONE, zone_capacity: ZONE, capacity: 32 * ZONE, ..Config::tiny() };
    let emulator = Emulator::memory_packed(&config).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), Options { buffer_bytes: 64 << 20, ..options() }).unwrap();
    let mut n = 0;
    let mut put = |mebibytes: u64| {
        store.create_with(id(n), DATA, Durability::Buffered).unwrap();
        for _ in 0..mebibytes {
            store.append_with(id(n), &[7; 1 << 20], BUFFERED).unwrap();
        }
        store.seal(id(n)).unwrap();
        n += 1;
    };
    (0..8).for_each(|_| put(63));
    let before = store.space();
    assert_eq!(before.dead, 0, "{before:?}");
    (0..4).for_each(|_| put(1));
    let small = store.space();
    assert!(before.free - small.free > 3 * (63 << 20), "each has a zone for itself: {before:?} {small:?}");
    // All of these zones but a mebibyte, with its framing, and the first block.
    let end = ZONE - (1036 << 10) - 4096;
    assert_eq!(small.dead, 4 * end, "{small:?}");
    while store.clean(1 << 20).unwrap() > 0 {}
    store.close().unwrap();
    let cleaned = store.space();
    assert!(cleaned.free - small.free > 3 * (63 << 20) && cleaned.dead <= end, "{small:?} {cleaned:?}");
    assert!(cleaned.live == small.live && content(&store, id(11)) == [7; 1 << 20]);
}
