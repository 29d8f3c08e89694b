//! Several engines on one volume, not all of which every process mounts: what a dead process of one had left in memory is
//! kept by the others until it asks.

mod support;

use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::Emulator;
use imbrex_zones::{FormatOptions, Framing, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;
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
