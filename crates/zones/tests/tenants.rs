//! Several engines on one volume, not all of which every process mounts: what a dead process of one had left in memory is
//! kept by the others until it asks.

mod support;

use imbrex_device::{Drive, Error, Fill, HeapSurvivor, Region, Result, Survivor, SurvivorKey};
use imbrex_emulator::Emulator;
use imbrex_zones::{FormatOptions, Framing, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Engine, bytes, config, options};

const FRAMED: Framing = Framing::Framed { max_frame: 64 << 10 };

fn formatted() -> Drive {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator), survivor: Some(Arc::new(HeapSurvivor::new())) };
    let tenants = ["log", "other"].map(|name| TenantSpec { name: name.into(), reserve: 1 }).to_vec();
    Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
    drive
}

fn open(drive: &Drive) -> Volume {
    Volume::open(drive.clone(), options()).unwrap()
}

/// Both engines append, and the process dies.
fn both_die(drive: &Drive, log: usize, other: usize) {
    let volume = open(drive);
    let engines = ["log", "other"].map(|name| Engine::of(volume.clone(), name, FRAMED).unwrap());
    engines[0].append(log).unwrap();
    engines[1].append(other).unwrap();
    std::mem::forget((volume, engines));
}

#[test]
fn what_another_engine_left_in_memory_is_kept_until_it_asks() {
    for clean in [false, true] {
        let drive = formatted();
        both_die(&drive, 3000, 2000);
        // Two processes that know nothing of the other engine; the first dies, too, or ends in order.
        let log = Engine::of(open(&drive), "log", FRAMED).unwrap();
        assert_eq!(log.replayed, 3000);
        log.append(1000).unwrap();
        if clean {
            log.sync().unwrap();
            log.volume.shutdown(true).unwrap();
        }
        std::mem::forget(log);
        let log = Engine::of(open(&drive), "log", FRAMED).unwrap();
        assert_eq!(log.replayed, if clean { 0 } else { 1000 });
        log.append(500).unwrap();
        std::mem::forget(log);

        let other = Engine::of(open(&drive), "other", FRAMED).unwrap();
        assert!(other.replayed == 2000 && other.contents().unwrap() == bytes(0, 2000), "{}", other.replayed);
        std::mem::forget(other);

        let log = Engine::of(open(&drive), "log", FRAMED).unwrap();
        assert!(log.replayed == 500 && log.contents().unwrap() == bytes(0, 4500), "{}", log.replayed);
        let other = Engine::of(log.volume.clone(), "other", FRAMED).unwrap();
        assert_eq!(other.replayed, 0, "what it has on the drive is forgotten");
        log.append(10).unwrap();
        drop(other);
        // The second of two that recover in one process takes nothing from the first.
        std::mem::forget(log);
        assert_eq!(Engine::of(open(&drive), "log", FRAMED).unwrap().replayed, 10);
    }
}

#[test]
fn without_room_for_it_nothing_is_given_up() {
    let drive = formatted();
    both_die(&drive, 100, 40_000);
    let small = VolumeOptions { survivor_bytes: 32 << 10, ..options() };
    let volume = Volume::open(drive.clone(), small).unwrap();
    let why = Engine::of(volume, "log", FRAMED).err().unwrap().to_string();
    assert!(why.contains("survivor-size") && why.contains("another engine"), "{why}");
    let other = Engine::of(open(&drive), "other", FRAMED).unwrap();
    assert!(other.replayed > 20_000 && other.contents().unwrap() == bytes(0, 40_000), "{}", other.replayed);
}

/// A survivor whose user dies at a step of making a region: before it, while it is filled, and when it has replaced the old one.
struct Deadly {
    heap: HeapSurvivor,
    step: AtomicU32,
}

impl Survivor for Deadly {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        self.heap.left_behind(key)
    }
    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        let dies = |step| (self.step.load(Ordering::Relaxed) == step).then(|| Error::invalid(&"test".into(), "dies"));
        dies(1).map_or(Ok(()), Err)?;
        let mut and_die = |region: &Arc<dyn Region>| fill(region).and(dies(2).map_or(Ok(()), Err));
        let region = self.heap.create_filled(key, capacity, &mut and_die)?;
        dies(3).map_or(Ok(region), Err)
    }
    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        self.heap.discard(volume)
    }
}

#[test]
fn a_process_that_dies_while_it_moves_what_another_engine_left_loses_none_of_it() {
    for step in 1..=3 {
        let survivor = Arc::new(Deadly { heap: HeapSurvivor::new(), step: AtomicU32::new(0) });
        let drive = Drive { survivor: Some(survivor.clone()), ..formatted() };
        both_die(&drive, 3000, 2000);
        for _ in 0..2 {
            survivor.step.store(step, Ordering::Relaxed);
            let volume = open(&drive);
            assert!(Engine::of(volume.clone(), "log", FRAMED).is_err());
            std::mem::forget(volume);
        }
        survivor.step.store(0, Ordering::Relaxed);
        let volume = open(&drive);
        let log = Engine::of(volume.clone(), "log", FRAMED).unwrap();
        assert_eq!(log.contents().unwrap(), bytes(0, 3000), "step {step}");
        let other = Engine::of(volume, "other", FRAMED).unwrap();
        assert_eq!(other.contents().unwrap(), bytes(0, 2000), "step {step}");
    }
}
