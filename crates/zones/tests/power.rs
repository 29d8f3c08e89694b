//! The drive alone loses power while it is mounted: whoever syncs hears of it, and by which zone.

mod support;

use imbrex_device::{Cause, Drive, Tag, ZoneId};
use imbrex_emulator::Emulator;
use imbrex_zones::{Framing, OpenZone, Tenant, Urgency, Volume};
use std::sync::Arc;
use support::{Engine, bytes, config, format, options};

const TAG: Tag = Tag::new(Cause::Wal);

fn drive() -> (Emulator, Drive) {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    (emulator, drive)
}

fn all_lost(emulator: &Emulator, told: bool) {
    emulator.faults().lose_power(told, &mut |_| 0).unwrap();
}

fn zone(volume: &Volume) -> (Tenant, OpenZone) {
    let tenant = volume.tenant("log").unwrap();
    tenant.adoption_done();
    tenant.recovered().unwrap();
    let zone = tenant.take(Urgency::User).unwrap();
    (tenant, OpenZone { zone, life: 1, at: 0, capacity: 64 << 10 })
}

/// Nothing is written after it, and a mount finds what was synced.
#[test]
fn a_stream_whose_bytes_went_is_not_synced() {
    for framing in [Framing::Framed { max_frame: 0 }, Framing::Raw] {
        for (told, more) in [(true, 0), (false, 0), (true, 9000), (false, 9000)] {
            let (emulator, drive) = drive();
            let engine = Engine::open(drive.clone(), framing).unwrap();
            engine.append(20_000).unwrap();
            engine.sync().unwrap();
            engine.append(20_000).unwrap();
            engine.volume.quiesce().unwrap();
            let zone = engine.root().pieces.last().unwrap().zone;
            all_lost(&emulator, told);
            // With or without another write behind what went.
            let appended = if more > 0 { engine.append(more).map(drop) } else { Ok(()) };
            let why = appended.and_then(|()| engine.sync()).unwrap_err().to_string();
            assert!(why.contains("lost power") && why.contains("open it again"), "{why}");
            assert!(told || why.contains(&format!("zone {zone},")), "{why}");
            let before = emulator.stats().total.writes;
            assert!(engine.append(50_000).and_then(|_| engine.sync()).is_err());
            assert!(engine.volume.check_poison().is_err());
            assert_eq!(emulator.stats().total.writes, before, "it was written behind a hole");
            drop(engine);
            let engine = Engine::open(drive, framing).unwrap();
            let found = engine.contents().unwrap();
            assert!(found.len() >= 20_000 && found == bytes(0, found.len()), "{}", found.len());
            engine.append(1000).unwrap();
            engine.sync().unwrap();
        }
    }
}

#[test]
fn a_write_behind_bytes_that_went_is_the_end_of_the_volume() {
    for beside in [false, true] {
        let (emulator, drive) = drive();
        let volume = Volume::open(drive, options()).unwrap();
        let (_, mut open) = zone(&volume);
        let block = imbrex_device::AlignedBuf::zeroed(4096);
        volume.write_sequential(&mut open, &block, TAG).unwrap();
        all_lost(&emulator, false);
        let again = match beside {
            false => volume.write_sequential(&mut open, &block, TAG),
            true => volume.write_beside(&mut open, &block, TAG),
        };
        let why = again.unwrap_err().to_string();
        assert!(why.contains(&format!("zone {},", open.zone)) && why.contains("first 4096 bytes"), "{why}");
        assert!(volume.check_poison().is_err() && volume.sync(TAG).is_err());
    }
}

/// What a drive does not tell of conventional zones it may tell by its epoch.
#[test]
fn a_conventional_write_that_went_is_noticed_where_the_drive_can_tell() {
    let (emulator, drive) = drive();
    let volume = Volume::open(drive.clone(), options()).unwrap();
    volume.write_conventional(&imbrex_device::AlignedBuf::zeroed(4096), 2 * (64 << 10), TAG).unwrap();
    all_lost(&emulator, true);
    let why = volume.sync(TAG).unwrap_err().to_string();
    assert!(why.contains("lost power while it was mounted"), "{why}");
    drop(volume);
    Volume::open(drive, options()).unwrap().sync(TAG).unwrap();
}

/// A zone that is reset and written anew has less than before, and that is right; so is one that died, and one that was flushed.
#[test]
fn a_zone_that_was_reset_or_has_died_has_lost_nothing() {
    let (emulator, drive) = drive();
    let volume = Volume::open(drive, options()).unwrap();
    let (tenant, mut open) = zone(&volume);
    let block = imbrex_device::AlignedBuf::zeroed(8192);
    volume.write_sequential(&mut open, &block, TAG).unwrap();
    tenant.reset(open.zone).unwrap();
    volume.sync(TAG).unwrap();
    open.at = 0;
    volume.write_sequential(&mut open, &block[..4096], TAG).unwrap();
    volume.sync(TAG).unwrap();
    all_lost(&emulator, false);
    volume.sync(TAG).unwrap();
    volume.write_sequential(&mut open, &block, TAG).unwrap();
    emulator.faults().make_read_only(ZoneId(open.zone.0)).unwrap();
    volume.sync(TAG).unwrap();
}
