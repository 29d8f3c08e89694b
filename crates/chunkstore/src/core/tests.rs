//! What zones count of their chunks is what their chunks are, after whatever has happened.

use super::*;
use crate::{Append, ChunkId, ChunkStore, Durability, FormatOptions};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writers and promised blocks of every zone, from a walk over all chunks.
fn walked(state: &State, zone: u32) -> (u32, u64) {
    let slots = (0..state.index.slots()).filter(|slot| {
        let chunk = state.index.chunk(*slot).filter(|chunk| chunk.bound);
        chunk.and_then(|chunk| chunk.groups().last()).is_some_and(|last| last.zone == zone)
    });
    slots.fold((0, 0), |(n, sum), slot| (n + 1, sum + state.promises.get(&slot).map_or(0, |n| u64::from(*n))))
}

/// How many zones are in the list of the active ones, and are active; none of these is missing there.
fn listed(state: &State) -> (usize, usize) {
    let listed: Vec<u32> = state.zones.active().map(|(zone, _)| zone).collect();
    let active = state.zones.all().iter().filter(|(zone, z)| z.state().is_open() || state.writer.knows(**zone));
    let missing = active.clone().find(|(zone, _)| !listed.contains(zone));
    assert_eq!(missing.map(|(zone, _)| zone), None, "{listed:?}");
    (listed.len(), active.count())
}

#[test]
fn what_is_promised_of_a_zone_is_what_is_expected_of_its_chunks() {
    let how = Append { offset: None, durability: Durability::Buffered };
    let (mut promised, mut died) = (0, 0);
    let (mut left_out, mut lingering) = (0, 0);
    for seed in 0..8 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let emulator = Emulator::memory(&config).unwrap();
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
        ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive, Options { volume, buffer_bytes: 300 << 10, ..Options::default() }).unwrap();
        // As of the last append of each chunk.
        let mut expected = BTreeMap::new();
        for step in 0..600 {
            let id = ChunkId::of_number(rng.random_range(0..40));
            let there = store.stat(id).is_ok();
            let bytes = vec![step as u8; [1, 4096, 20_000, 60_000][rng.random_range(0..4)]];
            // What is refused changes nothing, which is looked at, too.
            match rng.random_range(0..100) {
                0..3 => drop(store.sync()),
                3..6 => drop(store.clean(100 << 10)),
                6..8 if step > 300 && died < 4 * (seed + 1) => {
                    // What waits for it in memory goes elsewhere.
                    let open = |state: &State| state.zones.open().find(|(_, z)| z.writers > 0).map(|(zone, _)| zone);
                    if let Some(zone) = open(&store.core.state()) {
                        emulator.faults().make_read_only(ZoneId(zone)).unwrap();
                        died += 1;
                    }
                }
                8..20 => drop(store.seal_with(id, Durability::Buffered)),
                20..30 => drop(store.delete_with(id, Durability::Buffered)),
                _ if there => drop(store.append_with(id, &bytes, how)),
                _ => drop(store.create_with(id, StreamType::new(rng.random_range(0..3)).unwrap(), how.durability)),
            }
            let state = store.core.state();
            let (listed, active) = listed(&state);
            left_out = left_out.max(state.zones.all().len() - listed);
            lingering = lingering.max(listed - active);
            if let Some(slot) = state.index.find(&id) {
                expected.insert(slot, state.promises.get(&slot).copied());
            }
            for (zone, z) in state.zones.all().iter().filter(|(_, z)| !z.dead) {
                assert_eq!((z.writers, z.promised), walked(&state, *zone), "seed {seed}, step {step}, zone {zone}");
                promised += z.promised;
            }
            for (slot, blocks) in &state.promises {
                let chunk = state.index.chunk(*slot).unwrap();
                assert!(chunk.bound && !chunk.sealed && *blocks > 0, "seed {seed}, step {step}: {chunk:?}");
            }
            for slot in (0..state.index.slots()).filter(|slot| state.index.chunk(*slot).is_some_and(|c| c.bound)) {
                let kept = state.promises.get(&slot).copied();
                assert_eq!(kept, expected[&slot], "seed {seed}, step {step}: wherever it stands now");
            }
        }
    }
    assert!(promised > 10_000 && died > 8, "{promised} blocks, {died} zones");
    // What a commit finishes is struck off with the next one.
    assert!(left_out > 20 && lingering < 4, "{left_out} are not in the list, and {lingering} need not be");
}
