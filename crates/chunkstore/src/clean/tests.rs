//! What is chosen under the lock and done after it.

use super::*;
use crate::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::clean::Goal;
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

fn piece(n: u8) -> Vec<u8> {
    (0..30_000u32).map(|i| (i / 256) as u8 ^ n).collect()
}

fn id(n: u64) -> ChunkId {
    ChunkId::of_number(n)
}

/// A store that writes nothing before it is asked to.
fn store() -> ChunkStore {
    let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
    let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
    let options = Options { volume, buffer_bytes: 8 << 20, open_zones: 1, ..Options::default() };
    ChunkStore::open(drive, options).unwrap()
}

/// Chunk 1 lives in a closed zone with a hole, which is chosen.
fn chosen(store: &ChunkStore) -> Victim {
    let core = &store.core;
    for n in [1, 2] {
        store.create(id(n), StreamType::DATA).unwrap();
    }
    for i in 0..4 {
        store.append(id(1), &piece(i)).unwrap();
    }
    let zone = store.places(id(1)).unwrap()[0].zone;
    store.append(id(2), &piece(9)).unwrap();
    store.delete(id(2)).unwrap();
    core.state().close_zone(zone);
    store.sync().unwrap();
    let chosen = core.next_victim(&Search::new(false, &|_| false)).unwrap();
    assert_eq!(chosen.zone, zone);
    let victim = Victim { zone, life: chosen.life, most: u64::MAX, pressed: false };
    assert!(!core.residents(&victim).is_empty());
    victim
}

/// All in the chosen zone is deleted, the zone is given back, taken again, and gets other bytes, some of them in memory still: no other
/// thread need be unlucky for that, it only has to be fast.
#[test]
fn a_victim_that_is_reused_is_not_cleaned() {
    let store = store();
    let core = &store.core;
    let victim = chosen(&store);
    store.delete(id(1)).unwrap();
    core.reset_garbage(true);
    store.volume().quiesce().unwrap();
    let mut n = 10;
    let chunk = loop {
        store.create(id(n), StreamType::DATA).unwrap();
        for i in 0..3 {
            store.append_with(id(n), &piece(n as u8 * 3 + i), BUFFERED).unwrap();
        }
        if store.places(id(n)).unwrap().iter().all(|place| place.zone == victim.zone) {
            break id(n);
        }
        n += 1;
        assert!(n < 60, "the zone does not come again");
    };
    for closed in [false, true] {
        if closed {
            core.state().close_zone(victim.zone);
        }
        assert!(core.residents(&victim).is_empty(), "closed {closed}");
        store.sync().unwrap();
        let mut out = vec![0; 90_000];
        assert_eq!(store.read(chunk, 0, &mut out).unwrap(), 90_000);
        let all: Vec<u8> = (0..3).flat_map(|i| piece(n as u8 * 3 + i)).collect();
        assert!(out == all, "closed {closed}");
    }
    assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
}

/// The zone is still what it was, but for that it cannot be read any more.
#[test]
fn a_victim_that_has_died_is_not_cleaned() {
    let store = store();
    let victim = chosen(&store);
    store.core.zones_died(&[(victim.zone, true)]);
    assert!(store.core.residents(&victim).is_empty());
    assert_eq!(store.lost().len(), 1);
}

/// A zone of the cleaner that is chosen is not anybody else's before it has what it was chosen for, whoever closes it meanwhile.
#[test]
fn a_zone_that_copies_are_expected_in_is_not_given_back() {
    let store = store();
    let core = &store.core;
    let victim = chosen(&store);
    let one = {
        let state = core.state();
        let slot = state.index.find(&id(1)).unwrap();
        let chunk = state.index.chunk(slot).unwrap();
        let group = &chunk.groups()[0];
        Move {
            slot,
            id: id(1),
            serial: chunk.serial,
            stream: chunk.stream,
            from: victim.zone,
            start: 0,
            records: group.records().to_vec(),
            rate: 1.0,
            give_up: 0,
        }
    };
    let to = core.cleaner_zone(&one, None, 8).unwrap().unwrap();
    core.state().close_zone(to);
    store.sync().unwrap();
    assert_eq!(core.reset_garbage(true), 0, "it is still expected to get copies");
    // When a step is over it is garbage as any other, and so is the victim.
    core.cleaner.clean(&**core, Goal::Ahead, u64::MAX).unwrap();
    store.create(id(3), StreamType::DATA).unwrap();
    assert_eq!(core.reset_garbage(true), 2);
}

/// The cleaner pins before it looks. So it may pin a zone that somebody has just taken, and gives back unused.
#[test]
fn a_zone_that_is_released_while_it_is_pinned_for_a_look_is_free_again() {
    let store = store();
    let tenant = &store.core.tenant;
    let zone = tenant.take(Urgency::User).unwrap();
    tenant.pin(zone);
    tenant.release(zone);
    assert_eq!(store.core.reset_garbage(true), 0);
    tenant.unpin(zone);
    assert_eq!((store.core.reset_garbage(true), tenant.counts().forgotten), (1, 0));
}
