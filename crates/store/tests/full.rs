//! A drive that metadata fill: what brings more of them is refused, and no commit fails.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_device::{Code, Drive, Result};
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{CollectionId, ObjectId, Options, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{config, plain};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const PART: u64 = 1 << 20;

/// What fills a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Pairs of one omap.
    Pairs,
    /// Objects with attributes and without bytes.
    Attributes,
    /// Objects of a block with an attribute.
    Small,
    /// Objects that are overwritten in single blocks, at random.
    Blocks,
}

fn options() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata =
        imbrex_kv::Options { memtable_bytes: 64 << 10, segment_bytes: 64 << 10, ..imbrex_kv::Options::default() };
    Options { store: support::options(), metadata, volume, ..Options::default() }
}

fn commit(store: &Store, add: impl FnOnce(&mut Transaction)) -> Result<()> {
    let mut transaction = Transaction::new();
    add(&mut transaction);
    store.commit(transaction)
}

fn name(n: u32) -> ObjectId {
    ObjectId::new(1, b"", &n.to_be_bytes())
}

/// Goes on until somebody is refused, or says that it will never be. Returns how many transactions there were, and why it ended.
fn fill(store: &Store, load: Load, random: &mut ChaCha8Rng) -> (u32, Option<imbrex_device::Error>) {
    let parts = (store.usage().capacity / 2 / PART) as u32;
    let most = if load == Load::Blocks { 4 * parts * (PART / 4096) as u32 } else { 60_000 };
    for added in 0..most {
        let bytes: Vec<u8> = (0..4000).map(|_| random.random()).collect();
        let key = added.to_be_bytes();
        let done = match load {
            Load::Pairs => commit(store, |new| _ = new.omap_set(ALL, &name(0), &[(&key, &bytes[..3000])])),
            Load::Attributes => {
                commit(store, |new| _ = new.set_attributes(ALL, &name(added + 1), &[(&key, &bytes[..3000])]))
            }
            Load::Small => commit(store, |new| {
                let id = name(added + 1);
                _ = new.write(ALL, &id, 0, &bytes).set_attributes(ALL, &id, &[(&key, &bytes[..2000])]);
            }),
            Load::Blocks => {
                let (object, block) = (random.random_range(0..parts), random.random_range(0..PART / 4096));
                commit(store, |new| _ = new.write(ALL, &name(object + 1), block * 4096, &bytes))
            }
        };
        if let Err(why) = done {
            return (added, Some(why));
        }
    }
    (most, None)
}

#[test]
fn what_brings_metadata_is_refused_before_a_commit_fails_and_deletions_go_on() {
    let many = Config { zone_size: 512 << 10, zone_capacity: 512 << 10, capacity: 64 << 20, ..config() };
    for (drive, config) in [("zones", config()), ("many zones", many), ("plain", plain())] {
        for load in [Load::Pairs, Load::Attributes, Load::Small, Load::Blocks] {
            let emulator = Emulator::memory(&config).unwrap();
            let disk = Drive { device: Arc::new(emulator), survivor: None };
            let disk = match drive {
                "plain" => support::make_bands(&disk).and_then(|()| support::bands(&disk)).unwrap(),
                _ => disk,
            };
            Store::format(&disk, Some([7; 16]), false).unwrap();
            let mut store = Store::open(disk.clone(), options()).unwrap();
            commit(&store, |new| _ = new.create_collection(ALL, 0).touch(ALL, &name(0))).unwrap();
            let mut random = ChaCha8Rng::seed_from_u64(7);
            for round in 0..2 {
                let (added, why) = fill(&store, load, &mut random);
                println!("{drive}, {load:?}, round {round}: {added}, {why:?}, {:?}", store.usage());
                match why {
                    Some(why) => assert_eq!(why.code(), Code::NoSpace, "{drive}, {load:?}: {why}"),
                    None => assert_eq!(load, Load::Blocks, "{drive}: it is never full"),
                }
                if round == 0 {
                    drop(store);
                    store = Store::open(disk.clone(), options()).unwrap();
                }
                assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
                if load == Load::Pairs {
                    (0..added).step_by(64).for_each(|from| {
                        let keys: Vec<_> = (from..added.min(from + 64)).map(u32::to_be_bytes).collect();
                        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                        let done = commit(&store, |gone| _ = gone.omap_remove(ALL, &name(0), &keys));
                        done.unwrap_or_else(|error| {
                            panic!("{drive}, {load:?}, round {round}: {from} of {added}: {error}")
                        });
                    });
                }
                for n in 0..added {
                    let done = commit(&store, |gone| _ = gone.remove_if_there(ALL, &name(n + 1)));
                    done.unwrap_or_else(|error| panic!("{drive}, {load:?}, round {round}: {n} of {added}: {error}"));
                }
                while store.pack().unwrap() {}
                let usage = store.usage();
                assert_eq!((usage.objects, usage.stored, usage.deferred), (1, 0, 0), "{drive}, {load:?}");
            }
        }
    }
}
