//! Objects on one drive, and their metadata in RocksDB on another one.

use super::{config, options, provide};
use crate::support::{Model, Op, any_transaction, content, first};
use imbrex_device::{Code, Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{CollectionId, Db, MetadataIn, ObjectId, Options, Store, Survives, Transaction};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

struct Two {
    drives: [Emulator; 2],
    survivors: [Arc<HeapSurvivor>; 2],
}

impl Two {
    fn formatted(metadata: &Config) -> Two {
        Two::formatted_as([&config(), metadata])
    }

    fn formatted_as(configs: [&Config; 2]) -> Two {
        provide();
        let drives = configs.map(|config| Emulator::memory(config).unwrap());
        let two = Two { drives, survivors: Default::default() };
        Store::format_apart(&two.drive(0), &two.drive(1), MetadataIn::RocksDb, Some([[7; 16], [8; 16]]), false)
            .unwrap();
        two
    }

    fn drive(&self, n: usize) -> Drive {
        Drive { device: Arc::new(self.drives[n].clone()), survivor: Some(self.survivors[n].clone()) }
    }

    fn open(&self) -> Result<Store, String> {
        let options = Options { db: Some(Db::of_drive(self.drive(1))), metadata_in: None, ..options() };
        Store::open(self.drive(0), options).map_err(|error| error.to_string())
    }

    /// The process is killed, and these drives lose their power. RocksDB's threads go on in the process that these are copies
    /// of, so they are copies of one moment only if nothing has changed meanwhile: what is in memory in one copy and on its way to a
    /// drive in the other is in neither.
    fn killed(&self, lose: [bool; 2], seed: u64) -> Two {
        let commands = || self.drives.each_ref().map(Emulator::stats);
        let memory = || self.survivors.each_ref().map(|survivor| survivor.snapshot());
        loop {
            let (counted, survivors) = (commands(), memory());
            let drives = [0, 1].map(|n| match lose[n] {
                true => self.drives[n].after_power_loss(seed + n as u64).unwrap(),
                false => self.drives[n].fork().unwrap(),
            });
            if memory() == survivors && commands() == counted {
                return Two { drives, survivors: survivors.map(Arc::new) };
            }
        }
    }
}

#[test]
fn transactions_survive_what_either_drive_loses() {
    let two = Two::formatted(&config());
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut model, mut then) = (Model::default(), vec![Model::default().digest()]);
    let (mut synced, mut acked) = (0, 0);
    for mount in 0..3 {
        let store = two.open().unwrap();
        assert_eq!((store.metadata_in(), store.db().unwrap().uuid()), (MetadataIn::RocksDb, [8; 16]));
        assert_eq!(store.damage(), [""; 0]);
        if mount == 0 {
            let ((c, bits), mut begin) = (first(), Transaction::new());
            model.apply(&Op::Create(c, bits), &mut begin).unwrap();
            then.push(model.digest());
            store.commit(begin).unwrap();
        }
        for n in 0..24 {
            let (_, transaction, after) = any_transaction(&mut rng, &model, 300_000);
            let ticket = store.queue(transaction).unwrap();
            model = after;
            then.push(model.digest());
            match rng.random_range(0..4) {
                0 => {
                    store.sync().unwrap();
                    (synced, acked) = (then.len() - 1, then.len() - 1);
                }
                1 => {
                    store.wait_for(ticket, Survives::Process).unwrap();
                    acked = then.len() - 1;
                }
                2 => drop(store.pack().unwrap()),
                _ => {}
            }
            if n % 4 != 0 {
                continue;
            }
            for lose in [[false, false], [true, false], [false, true], [true, true]] {
                let killed = two.killed(lose, n);
                let least = if lose[1] { synced } else { acked };
                let what = format!("mount {mount}, {n}, {lose:?}");
                let store = killed.open().unwrap_or_else(|error| panic!("{what}: {error}"));
                let found = Model::of(&store).unwrap().digest();
                let at = then.iter().rposition(|digest| *digest == found);
                assert!(at.is_some_and(|at| at >= least), "{what}: as after {at:?}, {least} at least");
                assert_eq!(store.check_all(true).unwrap().wrong, [""; 0], "{what}");
                let (_, transaction, after) = any_transaction(&mut rng.clone(), &Model::of(&store).unwrap(), 50_000);
                store.commit(transaction).unwrap();
                drop(store);
                assert!(Model::of(&killed.open().unwrap()).unwrap() == after, "{what}");
            }
        }
        assert!(Model::of(&store).unwrap() == model);
        drop(store);
        (synced, acked) = (then.len() - 1, then.len() - 1);
    }
    // Each engine says which it is, and none makes a second database.
    let kv = Options { db: Some(Db::of_drive(two.drive(1))), metadata_in: Some(MetadataIn::Kv), ..options() };
    let why = Store::open(two.drive(0), kv).err().unwrap().to_string();
    assert!(why.contains("its metadata are in rocksdb"), "{why}");
    let why = Store::open(two.drive(0), options()).err().unwrap().to_string();
    assert!(why.contains("on another drive"), "{why}");
    drop(two.open().unwrap());
}

/// They belong to the objects from the formatting on, since these are the first tenant there. The label has two of them.
#[test]
fn conventional_zones_of_the_objects_drive_are_no_objects() {
    let two = Two::formatted_as([&Config { conventional: 8, ..config() }, &config()]);
    for mount in 0..2 {
        let store = two.open().unwrap();
        let mut one = Transaction::new();
        if mount == 0 {
            one.create_collection(ALL, 0);
        }
        one.touch(ALL, &ObjectId::new(1, b"", &[mount]));
        store.commit(one).unwrap();
    }
}

/// A commit that finds no room ends a store. So what brings more is refused before, and what is deleted is room at once.
#[test]
fn a_full_drive_of_metadata_refuses_what_brings_more_and_takes_deletions() {
    let two = Two::formatted(&Config { capacity: 16 << 20, ..config() });
    let store = two.open().unwrap();
    let id = |n: u32| ObjectId::new(1, b"", &n.to_be_bytes());
    let mut begin = Transaction::new();
    begin.create_collection(ALL, 0).write(ALL, &id(0), 0, &content(200_000, 1));
    store.commit(begin).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..3 {
        let mut added = 0;
        let why = loop {
            let mut value = vec![0; 4000];
            rng.fill_bytes(&mut value);
            let mut one = Transaction::new();
            one.omap_set(ALL, &id(added + 1), &[(b"key", &value)]);
            match store.commit(one) {
                Ok(()) => added += 1,
                Err(why) => break why,
            }
            assert!(added < 20_000, "it is never full");
        };
        println!("round {round}: {added}");
        assert_eq!(why.code(), Code::NoSpace, "{why}");
        assert!(why.to_string().contains("for the metadata"), "{why}");
        assert!(added > 50, "round {round}: {added} is too few");
        assert!(store.read(ALL, &id(0), 0, 1 << 20).unwrap() == content(200_000, 1));
        for n in 0..added {
            let mut gone = Transaction::new();
            gone.remove(ALL, &id(n + 1));
            store.commit(gone).unwrap_or_else(|error| panic!("round {round}, {n} of {added}: {error}"));
        }
    }
    assert_eq!(store.check_all(true).unwrap().wrong, [""; 0]);
}
