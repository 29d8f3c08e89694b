//! What the store knows of how long its chunks live: how old they are, what has died, and what that makes expect of each closed zone.
//!
//! A chunk's serial number tells when it was made, so that nothing is kept for it, the cleaner may move it, and its age outlives a mount. What is
//! expected of a zone is the mean of its chunks', looked up when it is closed and then in turn, some with each victim that is chosen.

use crate::core::{Core, State};
use crate::format::BLOCK;
use crate::index::Chunk;
use crate::policy::lifetime::{Births, Deaths, Rates};
use crate::zone::ZoneState;
use std::ops::Bound::{Excluded, Unbounded};

/// So many chunks are looked at, about, when a victim is chosen.
const LOOKS: usize = 4096;
/// What was seen counts half when so many times what lives was written.
const FADE: u64 = 4;

/// See the module.
pub(crate) struct LifetimeModel {
    births: Births,
    deaths: Deaths,
    rates: Rates,
    now: u64,
    /// When older figures faded last, in blocks that were given to the store.
    faded: u64,
    /// The zone that was looked at last.
    looked: u32,
}

impl Default for LifetimeModel {
    fn default() -> LifetimeModel {
        let deaths = Deaths::new([], 1, 0);
        LifetimeModel { births: Births::default(), rates: deaths.rates(), deaths, now: 0, faded: 0, looked: 0 }
    }
}

fn kind_of(chunk: &Chunk) -> usize {
    usize::from(chunk.stream.number())
}

impl LifetimeModel {
    /// The store has given out this number.
    pub(crate) fn tick(&mut self, number: u64) {
        self.now = self.now.max(self.births.time(number));
    }

    /// So many blocks were put behind a chunk.
    pub(crate) fn grew(&mut self, chunk: &Chunk, blocks: u32) {
        self.deaths.grew(kind_of(chunk), self.births.time(chunk.serial), u64::from(blocks), self.now);
    }

    /// A chunk is deleted.
    pub(crate) fn died(&mut self, chunk: &Chunk) {
        let blocks = chunk.groups().iter().map(|group| u64::from(group.blocks())).sum();
        self.deaths.died(kind_of(chunk), self.births.time(chunk.serial), blocks, self.now);
    }

    /// What is estimated to die of a chunk, see [`Rates::of`].
    pub(crate) fn rate(&self, chunk: &Chunk) -> f64 {
        self.rates.of(kind_of(chunk), self.now.saturating_sub(self.births.time(chunk.serial)))
    }
}

impl Core {
    /// From the chunks that there are when the store is opened, and the first number that it gives out.
    pub(crate) fn learn_lifetimes(&self, next: u64) {
        let mut state = self.state();
        let state = &mut *state;
        let births = Births::new(state.index.range(None).map(|chunk| chunk.serial), next);
        let now = births.time(next);
        let lifetimes = self.options.streams.iter().map(|stream| stream.lifetime.as_secs_f64());
        let blocks = u32::try_from(self.limits.zone_bytes / BLOCK as u64).unwrap_or(u32::MAX);
        let deaths = Deaths::new(lifetimes, blocks, now);
        let faded = state.work.appended() / BLOCK as u64;
        state.lifetimes = LifetimeModel { births, rates: deaths.rates(), deaths, now, faded, looked: 0 };
        for chunk in state.index.range(None) {
            let blocks = chunk.groups().iter().map(|group| group.blocks()).sum();
            state.lifetimes.grew(chunk, blocks);
        }
        let zones: Vec<u32> = state.zones.all().keys().copied().collect();
        zones.into_iter().for_each(|zone| state.look_at(zone));
    }
}

impl State {
    /// Counts what has lived since it was counted last. Cheap enough for once a zone that is written.
    pub(crate) fn count_lifetimes(&mut self) {
        let written = self.work.appended() / BLOCK as u64;
        let lives = &mut self.lifetimes;
        lives.deaths.count(lives.now);
        if written - lives.faded > FADE * lives.deaths.live().max(1) {
            lives.deaths.fade();
            lives.faded = written;
        }
        lives.rates = lives.deaths.rates();
    }

    /// Estimates what will die of a zone, from what lives there now.
    pub(crate) fn look_at(&mut self, zone: u32) {
        let Some(z) = self.zones.get_mut(zone) else { return };
        let (mut rates, mut all) = (0.0, 0.0);
        for chunk in z.live.iter().filter_map(|slot| self.index.chunk(*slot)) {
            let Some(group) = chunk.groups().iter().find(|group| group.zone == zone) else { continue };
            let bytes = f64::from(group.end() - group.start);
            rates += bytes * self.lifetimes.rate(chunk);
            all += bytes;
        }
        if all > 0.0 {
            z.rate = rates / all;
        }
    }

    /// Looks at some of the closed zones, in turn: what lives there has grown older, or died.
    pub(crate) fn look_on(&mut self) {
        let from = self.lifetimes.looked;
        let all = self.zones.all().range((Excluded(from), Unbounded)).chain(self.zones.all().range(..=from));
        let mut left = LOOKS;
        let mut due = Vec::new();
        for (zone, z) in all.filter(|(_, z)| z.state() == ZoneState::Closed && !z.live.is_empty()) {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(z.live.len());
            due.push(*zone);
        }
        self.lifetimes.looked = due.last().copied().unwrap_or(from);
        due.into_iter().for_each(|zone| self.look_at(zone));
    }
}

#[cfg(test)]
mod tests {
    use crate::{ChunkId, ChunkStore, FormatOptions, Options, StreamType};
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};
    use std::sync::Arc;

    fn drive() -> Drive {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
        drive
    }

    fn open(drive: &Drive) -> ChunkStore {
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        ChunkStore::open(drive.clone(), Options { volume, ..Options::default() }).unwrap()
    }

    fn put(store: &ChunkStore, n: u64, stream: StreamType, bytes: usize) {
        store.create(ChunkId::of_number(n), stream).unwrap();
        store.append(ChunkId::of_number(n), &vec![n as u8; bytes]).unwrap();
        store.seal(ChunkId::of_number(n)).unwrap();
    }

    /// Blocks that live as their ages have it, and as their zones do.
    fn live(store: &ChunkStore) -> (u64, u64) {
        let state = store.core.state();
        (state.lifetimes.deaths.live(), state.zones.all().values().map(|z| u64::from(z.live_blocks)).sum())
    }

    /// Numbers since a chunk was made.
    fn age(store: &ChunkStore, n: u64) -> u64 {
        let state = store.core.state();
        let slot = state.index.find(&ChunkId::of_number(n)).unwrap();
        state.lifetimes.now - state.lifetimes.births.time(state.index.chunk(slot).unwrap().serial)
    }

    #[test]
    fn ages_and_what_lives_outlast_a_mount() {
        let drive = drive();
        let store = open(&drive);
        for n in 0..60 {
            put(&store, n, if n % 2 == 0 { StreamType::DATA } else { StreamType::GC }, 30_000);
        }
        (0..20).for_each(|n| store.delete(ChunkId::of_number(n)).unwrap());
        let before = (age(&store, 20), age(&store, 59));
        assert!(before.0 > before.1 + 70, "{before:?}");
        let (aged, zoned) = live(&store);
        assert!(aged == zoned && zoned > 0, "{aged} {zoned}");
        store.close().unwrap();
        drop(store);
        let store = open(&drive);
        assert_eq!(live(&store), (zoned, zoned));
        let after = (age(&store, 20), age(&store, 59));
        assert!(after.0 - after.1 == before.0 - before.1 && after.1 < 1000, "{before:?} {after:?}");
        store.close().unwrap();
    }

    #[test]
    fn a_zone_is_expected_to_die_as_its_chunks_are() {
        let store = open(&drive());
        // They fill some zones, which are closed.
        (0..40).for_each(|n| put(&store, n, StreamType::DATA, 60_000));
        let mut state = store.core.state();
        let state = &mut *state;
        let closed = |state: &crate::core::State| {
            let closed =
                state.zones.all().iter().filter(|(_, z)| z.state() == crate::ZoneState::Closed && !z.live.is_empty());
            closed.map(|(zone, z)| (*zone, z.rate)).collect::<Vec<_>>()
        };
        let before = closed(state);
        assert!(before.len() > 3, "{before:?}");
        // From then on it is young chunks that die.
        let slot = state.index.find(&ChunkId::of_number(0)).unwrap();
        let serial = state.index.chunk(slot).unwrap().serial;
        state.lifetimes.tick(serial + (3 << 19));
        let now = state.lifetimes.now;
        state.lifetimes.deaths.died(0, now, 1 << 20, now);
        state.count_lifetimes();
        assert_eq!(closed(state), before, "nobody has looked");
        state.look_on();
        let (young, old) = (state.lifetimes.rates.of(0, 0), state.lifetimes.rate(state.index.chunk(slot).unwrap()));
        assert!(young > 2.0 * old, "{young} {old}");
        for (zone, rate) in closed(state) {
            assert!((rate / old - 1.0).abs() < 0.01, "{zone}: {rate} {old}");
        }
    }
}
