//! An object store whose metadata are on another drive.

#[path = "../../../bluestore/tests/support/mod.rs"]
mod support;

mod copies;
mod crash;
mod faults;
mod formats;
mod full;
mod salvage;
mod watched;

use imbrex_device::{AlignedBuf, Cause, Drive, HeapSurvivor, Result, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{CollectionId, Db, MetadataIn, ObjectId, Options, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{Model, any_transaction, bands, config, content, few_active, first, make_bands, plain};
use watched::{Watch, Watched};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const UUIDS: [[u8; 16]; 2] = [[7; 16], [8; 16]];

fn options() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata =
        imbrex_kv::Options { memtable_bytes: 64 << 10, segment_bytes: 64 << 10, ..imbrex_kv::Options::default() };
    Options { store: support::packed(), metadata, volume, ..Options::default() }
}

/// Two drives: of the objects, and of their metadata.
#[derive(Clone)]
struct Two {
    drives: [Emulator; 2],
    survivors: [Option<Arc<HeapSurvivor>>; 2],
    /// Sees each command that changes one of them.
    watch: Option<Arc<Watch>>,
    /// The first is a plain disk that is cut into bands.
    banded: bool,
}

impl Two {
    fn new(objects: &Config, metadata: &Config) -> Two {
        let drives = [objects, metadata].map(|config| Emulator::memory(config).unwrap());
        let banded = objects.conventional == plain().conventional;
        let two = Two { drives, survivors: [None, None], watch: None, banded };
        if banded {
            make_bands(&two.plain_drive(0)).unwrap();
        }
        two
    }

    /// Formatted ones.
    fn formatted() -> Two {
        let two = Two::new(&config(), &config());
        two.format(false).unwrap();
        two
    }

    fn drive(&self, n: usize) -> Drive {
        let drive = self.plain_drive(n);
        if n == 0 && self.banded { bands(&drive).unwrap() } else { drive }
    }

    fn plain_drive(&self, n: usize) -> Drive {
        let survivor = self.survivors[n].clone().map(|survivor| survivor as _);
        let device: Arc<dyn ZonedDevice> = match &self.watch {
            Some(watch) => Arc::new(Watched { drive: self.drives[n].clone(), n, watch: watch.clone() }),
            None => Arc::new(self.drives[n].clone()),
        };
        Drive { device, survivor }
    }

    fn format(&self, force: bool) -> Result<()> {
        Store::format_apart(&self.drive(0), &self.drive(1), MetadataIn::Kv, Some(UUIDS), force)
    }

    fn open_as(&self, options: Options) -> Result<Store> {
        Store::open(self.drive(0), Options { db: Some(Db::of_drive(self.drive(1))), ..options })
    }

    fn open(&self) -> Result<Store> {
        self.open_as(options())
    }

    /// Copies of both, as they are now.
    fn copy(&self) -> Two {
        let survivors = self.survivors.clone().map(|survivor| survivor.map(|survivor| Arc::new(survivor.snapshot())));
        Two { drives: self.drives.clone().map(|drive| drive.fork().unwrap()), survivors, watch: None, ..*self }
    }

    /// All that stands on a drive.
    fn bytes(&self, n: usize) -> Vec<u8> {
        bytes_of(self.drive(n).device.as_ref())
    }
}

/// All that stands on a drive.
fn bytes_of(drive: &dyn ZonedDevice) -> Vec<u8> {
    let (geometry, mut all) = (drive.geometry().clone(), Vec::new());
    for zone in report_all(drive).unwrap() {
        let len = zone.wp.unwrap_or(geometry.zone_size).min(zone.capacity);
        let mut bytes = AlignedBuf::zeroed(len as usize);
        imbrex_zones::volume::read_all(drive, &mut bytes, geometry.start(zone.id), Cause::Recovery.into()).unwrap();
        all.extend(format!("{:?}", zone.state).bytes());
        all.extend_from_slice(&bytes);
    }
    all
}

fn name(n: u32) -> ObjectId {
    ObjectId::new(1, b"", n.to_string().as_bytes())
}

/// Writes an object, in a collection that is made with the first.
fn put(store: &Store, n: u32, bytes: &[u8]) -> Result<()> {
    let mut transaction = Transaction::new();
    if store.collections()?.is_empty() {
        transaction.create_collection(ALL, 0);
    }
    transaction.write(ALL, &name(n), 0, bytes);
    store.commit(transaction)
}

#[test]
fn a_store_is_what_its_transactions_made_of_it() {
    let zns = Config { max_open: Some(16), max_active: Some(16), ..few_active() };
    for (objects, metadata) in [(config(), zns.clone()), (zns, config())] {
        for seed in imbrex_crashkit::seeds(2) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let two = Two::new(&objects, &metadata);
            two.format(false).unwrap();
            let mut model = Model::default();
            for mount in 0..3 {
                let store = two.open().unwrap();
                assert!(store.damage().is_empty());
                let db = store.db().unwrap();
                assert_eq!((store.volume().uuid(), db.uuid()), (UUIDS[0], UUIDS[1]));
                assert_eq!(store.label().unwrap().db.unwrap().volume, UUIDS[1]);
                if mount == 0 {
                    let (c, bits) = first();
                    let mut begin = Transaction::new();
                    model.apply(&support::Op::Create(c, bits), &mut begin).unwrap();
                    store.commit(begin).unwrap();
                }
                for n in 0..30 {
                    let (ops, transaction, then) = any_transaction(&mut rng, &model, 400_000);
                    store.queue(transaction).unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}, {ops:?}"));
                    model = then;
                }
                assert!(Model::of(&store).unwrap() == model, "seed {seed}");
                assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
                // The metadata take no zone of the first drive.
                let tenants = store.volume().table().tenants;
                assert_eq!(tenants.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>(), ["bluestore"]);
            }
            let store = two.open().unwrap();
            assert!(Model::of(&store).unwrap() == model, "seed {seed}, after the last opening");
        }
    }
}

/// All zones but those of the label and of the cleaner are the objects'.
#[test]
fn what_a_store_can_have_is_its_whole_drive() {
    let two = Two::formatted();
    let apart = two.open().unwrap().usage();
    let alone = {
        let drive = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
        Store::format(&drive, None, false).unwrap();
        Store::open(drive, options()).unwrap().usage()
    };
    let zone = config().zone_capacity;
    assert!(apart.capacity >= alone.capacity + 8 * zone, "{apart:?} {alone:?}");
    // 56 zones, of which two have labels, and two are the cleaner's; each takes whole blocks.
    assert_eq!(apart.capacity % (52 * 4096), 0, "{apart:?}");
    assert!(apart.free >= 2 * alone.free - 4 * zone, "{apart:?} {alone:?}");
}

/// Each drive has its own flush. So who waits for the metadata writes no data of those who come behind him.
#[test]
fn a_sync_of_the_metadata_is_no_flush_of_the_objects_drive() {
    use std::sync::Mutex;
    use watched::Kind;
    let mut two = Two::formatted();
    let seen: Arc<Mutex<Vec<(usize, Kind)>>> = Arc::default();
    let to = seen.clone();
    two.watch = Some(Watch::new(move |n, kind| {
        to.lock().unwrap().push((n, kind));
        Ok(())
    }));
    let store = two.open().unwrap();
    put(&store, 0, &content(40_000, 0)).unwrap();
    let write = |n| {
        let mut transaction = Transaction::new();
        transaction.write(ALL, &name(n), 0, &content(40_000, n as u8));
        store.queue(transaction).unwrap()
    };
    let on = |n: usize| {
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        seen.into_iter().filter(|(of, _)| *of == n).map(|(_, kind)| kind).collect::<Vec<_>>()
    };
    on(0);
    let first = write(1);
    store.wait_for(first, imbrex_store::Survives::Process).unwrap();
    assert_eq!(on(0), [Kind::Write, Kind::Flush], "its data");
    let next = write(2);
    store.wait(first).unwrap();
    assert_eq!(on(0), [], "those of the next one");
    store.wait(next).unwrap();
    assert_eq!(on(0), [Kind::Write, Kind::Flush], "its data, and a flush of their own");
}

/// What was deleted is there as long as the metadata may come back that name it: until their drive has the deletion.
#[test]
fn zones_of_what_was_deleted_are_reset_when_the_other_drive_has_the_deletion() {
    let two = Two::formatted();
    let store = two.open().unwrap();
    put(&store, 0, &content(1_500_000, 3)).unwrap();
    // Nothing more goes to its zones.
    put(&store, 1, &content(400_000, 4)).unwrap();
    let empty = || {
        store.volume().quiesce().unwrap();
        let zones = report_all(&two.drives[0]).unwrap();
        zones.iter().filter(|zone| zone.state == imbrex_device::ZoneState::Empty).count()
    };
    let before = empty();
    let mut gone = Transaction::new();
    gone.remove(ALL, &name(0));
    let ticket = store.queue(gone).unwrap();
    store.wait_for(ticket, imbrex_store::Survives::Process).unwrap();
    // It outlives the process only: a loss of power of the metadata brings all back.
    assert_eq!(empty(), before);
    let mut after = two.copy();
    after.drives[1] = two.drives[1].after_power_loss_choosing(&mut |_| 0).unwrap();
    {
        let store = after.open().unwrap();
        assert!(store.read(ALL, &name(0), 0, 2 << 20).unwrap() == content(1_500_000, 3));
        assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
    }
    store.wait(ticket).unwrap();
    assert!(empty() >= before + 4, "{before}, {}", empty());
}
