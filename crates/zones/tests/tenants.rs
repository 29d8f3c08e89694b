//! Several engines on one volume, not all of which every process mounts: what a dead process of one had left in memory is
//! kept by the others until it asks, no zone gets two owners, and what is reserved for one is not for the other.

mod support;

use imbrex_device::{Drive, Error, Fill, HeapSurvivor, Region, Result, Survivor, SurvivorKey, ZoneId};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::write::Framing;
use imbrex_zones::{Budget, FormatOptions, Tenant, TenantSpec, Urgency, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Engine, bytes, config, options};

const FRAMED: Framing = Framing::Framed;

fn formatted() -> Drive {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator), survivor: Some(Arc::new(HeapSurvivor::new())) };
    let tenants = ["log", "other"].map(|name| TenantSpec { name: name.into(), budget: Budget::keeping(0, 1) }).to_vec();
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

/// As where the options of an opening are wrong, or another drive that it needs is not there.
#[test]
fn an_opening_of_which_no_engine_begins_gives_up_nothing() {
    let drive = formatted();
    both_die(&drive, 3000, 2000);
    open(&drive).shutdown(true).unwrap();
    let log = Engine::of(open(&drive), "log", FRAMED).unwrap();
    assert!(log.replayed == 3000 && log.contents().unwrap() == bytes(0, 3000), "{}", log.replayed);
}

/// The one mounts while the other is still at it, and the process dies.
#[test]
fn what_one_engine_is_replaying_is_kept_when_another_has_recovered() {
    let drive = formatted();
    both_die(&drive, 3000, 2000);
    let volume = open(&drive);
    let log = volume.tenant("log").unwrap();
    assert!(!log.left_behind().is_empty());
    let other = Engine::of(volume.clone(), "other", FRAMED).unwrap();
    assert_eq!(other.replayed, 2000);
    std::mem::forget((other, log, volume));
    let log = Engine::of(open(&drive), "log", FRAMED).unwrap();
    assert!(log.replayed == 3000 && log.contents().unwrap() == bytes(0, 3000), "{}", log.replayed);
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

/// A drive of 64 zones for two tenants with these reserves.
fn for_two(reserves: [u32; 2]) -> (Emulator, Drive) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    let tenants = [("one", reserves[0]), ("two", reserves[1])].map(|(name, reserve)| TenantSpec {
        name: name.into(),
        budget: Budget::keeping(reserve / 2, reserve - reserve / 2),
    });
    Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants: tenants.to_vec(), force: false }).unwrap();
    (emulator, drive)
}

fn both(volume: &Volume) -> [Tenant; 2] {
    let tenants = ["one", "two"].map(|name| volume.tenant(name).unwrap());
    tenants.iter().for_each(Tenant::adoption_done);
    tenants.iter().for_each(|tenant| tenant.recovered().unwrap());
    tenants
}

/// The label says of each zone that it belongs to who took it.
fn all_are_theirs(drive: &Drive, zones: [&[ZoneId]; 2]) {
    let volume = open(drive);
    for (name, zones) in ["one", "two"].into_iter().zip(zones) {
        let tenant = volume.tenant(name).unwrap();
        zones.iter().for_each(|zone| tenant.adopt(*zone).unwrap());
    }
}

#[test]
fn two_that_claim_zones_at_once_get_different_ones() {
    for fails in [false, true] {
        let (emulator, drive) = for_two([0, 0]);
        let volume = open(&drive);
        let [one, two] = both(&volume);
        // The first is in the middle of writing the label, which may fail, when the second asks.
        let held = emulator.faults().hold_write(ZoneId(0));
        if fails {
            emulator.faults().fail_write_in(ZoneId(0), 1);
        }
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| one.take(Urgency::User));
            held.arrived();
            let second = scope.spawn(|| two.take(Urgency::User).unwrap());
            // It comes as far as it can; however far that is, the answer is right.
            std::thread::sleep(std::time::Duration::from_millis(50));
            // Its own label takes longer than what the first does next.
            let behind = emulator.faults().hold_write(ZoneId(0));
            drop(held);
            behind.arrived();
            let first = first.join().unwrap();
            drop(behind);
            (first, second.join().unwrap())
        });
        assert_eq!(first.is_err(), fails);
        let first: Vec<ZoneId> = first.into_iter().chain(one.take(Urgency::User)).collect();
        assert!(!first.contains(&second), "{first:?} {second}");
        drop((one, two, volume));
        all_are_theirs(&drive, [&first, &[second]]);
    }
}

#[test]
fn what_one_has_reserved_is_there_when_the_other_has_filled_the_drive() {
    let (_, drive) = for_two([3, 3]);
    let volume = open(&drive);
    let [one, two] = both(&volume);
    let mut reserved: Vec<_> = (0..20).map(|_| one.reserve(0).unwrap()).collect();
    let full: Vec<ZoneId> = std::iter::from_fn(|| two.take(Urgency::Metadata).ok()).collect();
    assert!(full.len() > 30, "{}", full.len());
    let mut taken: Vec<ZoneId> = (0..20).map(|_| one.redeem(&mut reserved).unwrap()).collect();
    taken.extend((0..3).map(|_| one.take(Urgency::Metadata).unwrap()));
    drop((one, two, volume));
    all_are_theirs(&drive, [&taken, &full]);
}

/// Also where nobody has opened it since.
#[test]
fn the_reserve_of_a_tenant_that_is_not_open_is_kept_for_it() {
    let (_, drive) = for_two([3, 0]);
    let volume = open(&drive);
    let two = volume.tenant("two").unwrap();
    two.adoption_done();
    two.recovered().unwrap();
    let full: Vec<ZoneId> = std::iter::from_fn(|| two.take(Urgency::Metadata).ok()).collect();
    drop((two, volume));
    let volume = open(&drive);
    let one = volume.tenant("one").unwrap();
    one.adoption_done();
    one.recovered().unwrap();
    let reserve: Vec<ZoneId> = (0..3).map(|_| one.take(Urgency::Metadata).unwrap()).collect();
    assert!(one.take(Urgency::Metadata).is_err());
    drop((one, volume));
    all_are_theirs(&drive, [&reserve, &full]);
}

/// A process dies with bytes in memory that have a zone reserved; the other engine's next process fills the drive.
#[test]
fn what_a_dead_process_had_reserved_outlives_a_neighbour_that_fills_the_drive() {
    let drive = formatted();
    both_die(&drive, 3000, 0);
    let volume = open(&drive);
    let other = volume.tenant("other").unwrap();
    other.adoption_done();
    other.recovered().unwrap();
    while other.take(Urgency::Metadata).is_ok() {}
    std::mem::forget((other, volume));
    let log = Engine::of(open(&drive), "log", FRAMED).unwrap();
    assert!(log.replayed == 3000 && log.contents().unwrap() == bytes(0, 3000), "{}", log.replayed);
}
