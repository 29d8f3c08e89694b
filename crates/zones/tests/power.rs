//! The drive alone loses power while it is mounted: whoever syncs hears of it, and by which zone.

mod support;

use imbrex_device::{Cause, Drive, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::Emulator;
use imbrex_zones::write::Framing;
use imbrex_zones::{Exec, OpenZone, Tenant, Urgency, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    for framing in [Framing::Framed, Framing::Raw] {
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

/// An emulated drive that counts reports.
struct CountsReports {
    below: Emulator,
    reports: AtomicU64,
}

impl ZonedDevice for CountsReports {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.reports.fetch_add(1, Ordering::Relaxed);
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.below.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.below.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.below.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
}

/// A report is a command, and a synced put is to be one write and one flush. What went is noticed all the same: by the writer's thread a second
/// later, or by who gives the drive up.
#[test]
fn with_threads_write_pointers_are_looked_at_once_a_second() {
    let threads = || VolumeOptions { exec: Exec::Threads(1), ..options() };
    let block = imbrex_device::AlignedBuf::zeroed(4096);
    let lost = |emulator: &Emulator, volume: &Volume, open: &mut OpenZone| {
        volume.write_sequential(open, &block, TAG).unwrap();
        volume.sync(TAG).unwrap();
        volume.write_sequential(open, &block, TAG).unwrap();
        all_lost(emulator, false);
        // A host that is slow may look here already.
        volume.sync(TAG)
    };
    let (emulator, drive) = self::drive();
    let counted = Arc::new(CountsReports { below: emulator.clone(), reports: AtomicU64::new(0) });
    let volume = Volume::open(Drive { device: counted.clone(), survivor: None }, threads()).unwrap();
    let (_tenant, mut open) = zone(&volume);
    let reports = || counted.reports.load(Ordering::Relaxed);
    let (began, before, reported) = (std::time::Instant::now(), emulator.stats().total, reports());
    for _ in 0..8 {
        volume.write_sequential(&mut open, &block, TAG).unwrap();
        volume.sync(TAG).unwrap();
    }
    let did = emulator.stats().total.since(&before);
    let looks = began.elapsed().as_secs() + 1;
    let reported = reports() - reported;
    assert!((did.writes, did.flushes) == (8, 8) && (1..=looks).contains(&reported), "{reported} reports, {did:?}");
    if lost(&emulator, &volume, &mut open).is_ok() {
        while volume.check_poison().is_ok() {
            assert!(began.elapsed().as_secs() < 300, "nobody has looked");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let why = volume.sync(TAG).unwrap_err().to_string();
    assert!(why.contains("lost power") && why.contains(&format!("zone {},", open.zone)), "{why}");
    drop(volume);

    let volume = Volume::open(drive, threads()).unwrap();
    let (_tenant, mut open) = zone(&volume);
    let synced = lost(&emulator, &volume, &mut open);
    assert!(synced.and_then(|()| volume.shutdown(true)).unwrap_err().to_string().contains("lost power"));
}

/// A zone that is full does not tell by its write pointer what went.
#[test]
fn a_zone_is_finished_only_when_what_it_has_is_there() {
    let block = imbrex_device::AlignedBuf::zeroed(4096);
    for exec in [Exec::Inline, Exec::Threads(1)] {
        for (synced, unused) in [(false, false), (false, true), (true, false)] {
            let (emulator, drive) = self::drive();
            let volume = Volume::open(drive, VolumeOptions { exec, ..options() }).unwrap();
            let (tenant, mut open) = zone(&volume);
            volume.write_sequential(&mut open, &block, TAG).unwrap();
            if synced {
                volume.sync(TAG).unwrap();
            }
            all_lost(&emulator, false);
            if unused {
                tenant.finish_unused(open.zone);
            }
            let flushes = emulator.stats().total.flushes;
            let finished = tenant.finish(open.zone);
            if synced {
                finished.unwrap();
                assert_eq!(emulator.stats().total.flushes, flushes, "it was durable already");
                volume.sync(TAG).unwrap();
                continue;
            }
            let why = finished.unwrap_err().to_string();
            assert!(why.contains("lost power") && why.contains(&format!("zone {},", open.zone)), "{why}");
            assert!(volume.check_poison().is_err() && volume.sync(TAG).is_err());
        }
    }
}
