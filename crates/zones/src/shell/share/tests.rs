use super::*;
use crate::{Budget, FormatOptions, Tenant, TenantSpec, VolumeOptions};
use imbrex_device::{Drive, Fill, HeapSurvivor, Region, Survivor, SurvivorKey};
use imbrex_emulator::{Config, Emulator};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts how often it is given up.
#[derive(Default)]
struct Counting {
    heap: HeapSurvivor,
    discards: AtomicU32,
}

impl Survivor for Counting {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        self.heap.left_behind(key)
    }
    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        self.heap.create_filled(key, capacity, fill)
    }
    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        self.discards.fetch_add(1, Ordering::Relaxed);
        self.heap.discard(volume)
    }
}

fn formatted() -> (Arc<Counting>, Drive) {
    let survivor = Arc::new(Counting::default());
    let device = Arc::new(Emulator::memory(&Config::tiny()).unwrap());
    let drive = Drive { device, survivor: Some(survivor.clone()) };
    let tenants = ["one", "two"].map(|name| TenantSpec { name: name.into(), budget: Budget::keeping(0, 1) }).to_vec();
    Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
    (survivor, drive)
}

/// An engine that has begun.
fn engine(key: &str, name: &str, drive: &Drive) -> (SharedVolume, Tenant) {
    let open = || -> Result<Counted> {
        let options = VolumeOptions { survivor_bytes: 1 << 20, ..VolumeOptions::default() };
        Ok((Volume::open(drive.clone(), options)?, Arc::default()))
    };
    let shared = SharedVolume::open(key, name, open).unwrap();
    let tenant = shared.counted().0.tenant(name).unwrap();
    tenant.begin().unwrap();
    tenant.adoption_done();
    (shared, tenant)
}

/// In whatever order engines end and let go, the shared memory is given up once, by the last one.
#[test]
fn engines_that_end_at_the_same_time_end_the_volume_once() {
    let (survivor, drive) = formatted();
    for round in 1..=200 {
        let (one, two) = (engine("same time", "one", &drive), engine("same time", "two", &drive));
        one.1.recovered().unwrap();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for (shared, tenant) in [one, two] {
                let barrier = &barrier;
                scope.spawn(move || {
                    tenant.volume().shutdown(true).unwrap();
                    // Here each has ended while the other still has its share.
                    if round % 2 == 0 {
                        barrier.wait();
                    }
                    drop(tenant);
                    drop(shared);
                });
            }
        });
        assert_eq!(survivor.discards.load(Ordering::Relaxed), round);
    }
}

/// Memory is kept where an engine did not say that its bytes are on the drive: it ended in disorder, or left without a word.
#[test]
fn what_one_engine_left_is_not_given_up_by_the_other() {
    let (survivor, drive) = formatted();
    for says in [Some(false), None] {
        for first in [true, false] {
            let (one, two) = (engine("disorder", "one", &drive), engine("disorder", "two", &drive));
            let (bad, good) = if first { (one, two) } else { (two, one) };
            says.into_iter().for_each(|clean| bad.0.counted().0.shutdown(clean).unwrap());
            drop(bad);
            good.0.counted().0.shutdown(true).unwrap();
            drop(good);
            assert_eq!(survivor.discards.load(Ordering::Relaxed), 0);
        }
    }
}

/// An engine that could not be opened has left nothing.
#[test]
fn an_engine_that_never_began_keeps_no_memory() {
    let (survivor, drive) = formatted();
    let (one, _) = engine("never", "one", &drive);
    let two = SharedVolume::open("never", "two", || -> Result<_> { unreachable!("it is open") }).unwrap();
    drop(two);
    one.counted().0.shutdown(true).unwrap();
    drop(one);
    assert_eq!(survivor.discards.load(Ordering::Relaxed), 1);
}

#[test]
fn a_tenant_begins_once_on_an_open_volume() {
    let (_, drive) = formatted();
    let volume = Volume::open(drive.clone(), VolumeOptions::default()).unwrap();
    volume.tenant("one").unwrap().begin().unwrap();
    volume.tenant("two").unwrap().begin().unwrap();
    let sentence = volume.tenant("one").unwrap().begin().unwrap_err().to_string();
    assert!(sentence.contains("its one is open"), "{sentence}");
    drop(volume);
    Volume::open(drive, VolumeOptions::default()).unwrap().tenant("one").unwrap().begin().unwrap();
}
