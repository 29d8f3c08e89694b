//! The same work on every kind of drive: all emulated host-managed and ZNS profiles, the tiny one with blocks of 512 bytes
//! and with six active zones, a plain file and
//! conventional zones cut into bands, and what `IMBREX_TEST_DRIVE` names, which is destroyed (`scripts/test-kernel` names devices of the
//! kernel). Chunks are put, read, deleted and checked; then the process ends without closing the store, or the power fails.

use crate::support::{BUFFERED, bytes, content, id, options};
use imbrex_chunkstore::{ChunkStore, Durability, Error, FormatOptions, Options, StreamType};
use imbrex_device::banded::{Banded, Base, ConventionalZones, FileBase, Layout};
use imbrex_device::kernel::Access;
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_drives::OpenOptions;
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use std::sync::Arc;

/// Fewer, as what stands in the last is deleted.
const CHUNKS: u64 = 9;

fn small() -> Options {
    Options { tell_bytes: 2 << 20, checkpoint_bytes: 8 << 20, ..options() }
}

/// Some durable appends to each chunk in turn, one that is not at all, and one chunk that is gone.
fn put(store: &ChunkStore) {
    for n in 0..CHUNKS {
        store.create_with(id(n), StreamType::new(n as u8 % 3).unwrap(), Durability::Buffered).unwrap();
    }
    for piece in 0..4 {
        for n in 0..CHUNKS {
            store.append_with(id(n), &bytes(190_000 + n as usize, n + piece * 100), BUFFERED).unwrap();
        }
        store.sync().unwrap();
    }
    (0..3).for_each(|n| assert!(store.seal(id(n)).unwrap() > 0));
    store.delete(id(CHUNKS - 1)).unwrap();
    let last: Vec<u8> = bytes(10_000, 7);
    assert_eq!(store.append_with(id(5), &last, BUFFERED).unwrap(), 4 * 190_005);
}

fn holds(store: &ChunkStore) {
    for n in 0..CHUNKS - 1 {
        let all: Vec<u8> = (0..4).flat_map(|piece| bytes(190_000 + n as usize, n + piece * 100)).collect();
        let found = content(store, id(n));
        assert!(found.starts_with(&all), "chunk {n} has {} bytes", found.len());
        let more = if n == 5 { &[0, 10_000][..] } else { &[0] };
        assert!(more.contains(&(found.len() - all.len())), "chunk {n} has {} bytes", found.len());
        assert_eq!(store.stat(id(n)).unwrap().sealed, n < 3);
    }
    assert!(matches!(store.stat(id(CHUNKS - 1)), Err(Error::NotFound(_))));
    assert_eq!(store.open_report().damage, Vec::<String>::new());
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

/// Goes on with what was left of it, and closes it.
fn goes_on(drive: &Drive) {
    let store = ChunkStore::open(drive.clone(), small()).unwrap();
    holds(&store);
    (20..26).for_each(|n| {
        store.create(id(n), StreamType::GC).unwrap();
        store.append(id(n), &bytes(200_000, n)).unwrap();
    });
    store.clean(64 << 20).unwrap();
    holds(&store);
    store.close().unwrap();
    drop(store);
    let store = ChunkStore::open(drive.clone(), small()).unwrap();
    assert!(store.open_report().clean);
    holds(&store);
    (20..26).for_each(|n| assert!(content(&store, id(n)) == bytes(200_000, n)));
}

fn format(drive: &Drive) {
    ChunkStore::format(drive, &FormatOptions { uuid: None, force: true }).unwrap();
}

fn on_emulator(config: &Config) {
    let emulator = Emulator::memory(config).unwrap();
    let on = |emulator: &Emulator| Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&on(&emulator));
    let store = ChunkStore::open(on(&emulator), small()).unwrap();
    put(&store);
    for seed in 0..2 {
        let cut = emulator.after_power_loss(seed).unwrap();
        goes_on(&on(&cut));
    }
    drop(store);
    goes_on(&on(&emulator));
}

#[test]
fn every_profile_of_a_zoned_drive() {
    let zoned = Profile::all().into_iter().filter(|profile| !profile.kind.is_plain());
    let mut names = Vec::new();
    for profile in zoned {
        // Zones as large as they are; the memory of those that are not written is not there.
        let zones = if profile.zone_size < 4 << 20 { 96 } else { 40 };
        for (conventional, write_cache) in [(None, true), (Some(0), true), (None, false)] {
            let over = Overrides {
                capacity: Some(zones * profile.zone_size),
                conventional,
                write_cache: Some(write_cache),
                ..Overrides::default()
            };
            on_emulator(&Config::new(&profile, &over));
        }
        names.push(profile.name);
    }
    assert!(names.len() >= 4, "{names:?}");
}

#[test]
fn blocks_of_512_bytes() {
    on_emulator(&Config { block: 512, ..Config::tiny() });
}

/// The least that is promised without conventional zones.
#[test]
fn six_active_zones() {
    let few = Config { max_open: Some(6), max_active: Some(6), conventional: 0, ..Config::tiny() };
    on_emulator(&Config { zone_capacity: 768 << 10, reads_cross_zones: false, reads_above_wp: false, ..few });
}

#[test]
fn a_file_cut_into_bands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let size = 128 << 20;
    {
        let base = FileBase::create(&path, size).unwrap();
        let layout = Layout::plan(base.facts().size, 4096, 2 << 20, None).unwrap();
        Banded::format(&base, &layout).unwrap();
    }
    let name = format!("banded:{}", path.display());
    let open = || imbrex_drives::open(&name, &OpenOptions::default()).unwrap();
    format(&open());
    let store = ChunkStore::open(open(), small()).unwrap();
    put(&store);
    drop(store);
    goes_on(&open());
}

#[test]
fn conventional_zones_cut_into_bands_lose_their_power() {
    let emulator = Emulator::memory(&Config { conventional: 96, capacity: 100 << 20, ..Config::tiny() }).unwrap();
    {
        let base = ConventionalZones::new(Arc::new(emulator.clone()), None).unwrap();
        let layout = Layout::plan(base.facts().size, 4096, 1 << 20, Some(2)).unwrap();
        Banded::format(&base, &layout).unwrap();
    }
    let open = |emulator: &Emulator| {
        let base = ConventionalZones::new(Arc::new(emulator.clone()), Some(Arc::new(HeapSurvivor::new()))).unwrap();
        Drive { device: Arc::new(Banded::open(Box::new(base), Access::Write).unwrap()), survivor: None }
    };
    let drive = open(&emulator);
    format(&drive);
    let store = ChunkStore::open(drive, small()).unwrap();
    put(&store);
    for seed in 0..4 {
        goes_on(&open(&emulator.after_power_loss(seed).unwrap()));
    }
}

/// Nothing to do where no drive is named: the other tests have done it.
#[test]
fn a_drive_that_is_named() {
    let Ok(locator) = std::env::var("IMBREX_TEST_DRIVE") else { return };
    let device = imbrex_drives::open(&locator, &OpenOptions::default()).unwrap().device;
    let drive = Drive { device, survivor: None };
    format(&drive);
    let store = ChunkStore::open(drive.clone(), small()).unwrap();
    put(&store);
    // As if the process had died: nothing is written any more.
    drop(store);
    goes_on(&drive);
}
