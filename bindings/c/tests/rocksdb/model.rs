//! Transactions at random against a model of the store, with restarts.

use super::{config, drive_of, format, options};
use crate::support::{Model, Op, any_transaction, few_active, first};
use imbrex_crashkit::seeds;
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{MetadataIn, Options, Store, Transaction};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Metadata are on the drive, mostly, and read from there, so that changes of counts wait.
fn reading() -> Options {
    let Options { store, metadata, .. } = options();
    let metadata = imbrex_kv::Options { memtable_bytes: 8 << 10, cache_bytes: 0, ..metadata };
    Options { store: imbrex_bluestore::Options { count_from: 4, ..store }, metadata, ..options() }
}

#[test]
fn a_store_is_what_its_transactions_made_of_it() {
    let zns = Config { capacity: 40 << 20, max_open: Some(12), max_active: Some(12), ..few_active() };
    for (config, options) in [(config(), options as fn() -> Options), (config(), reading), (zns, options)] {
        for seed in seeds(1) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let drive = drive_of(Arc::new(Emulator::memory(&config).unwrap()));
            format(&drive).unwrap();
            let mut model = Model::default();
            for mount in 0..4 {
                let asked = [None, Some(MetadataIn::RocksDb)][mount % 2];
                let store = Store::open(drive.clone(), Options { metadata_in: asked, ..options() }).unwrap();
                assert_eq!(store.metadata_in(), MetadataIn::RocksDb);
                assert_eq!(store.damage(), [""; 0]);
                if mount == 0 {
                    let (c, bits) = first();
                    let mut begin = Transaction::new();
                    model.apply(&Op::Create(c, bits), &mut begin).unwrap();
                    store.commit(begin).unwrap();
                }
                for n in 0..60 {
                    let (ops, transaction, then) = any_transaction(&mut rng, &model, 400_000);
                    store.queue(transaction).unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}, {ops:?}"));
                    model = then;
                    if n % 20 == 10 {
                        store.pack().unwrap();
                        store.clean(1 << 20).unwrap();
                    }
                }
                assert!(Model::of(&store).unwrap() == model, "seed {seed}");
                let report = store.check_all(true).unwrap();
                assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
                // What was queued is durable when the store closes.
            }
            let store = Store::open(drive, options()).unwrap();
            assert!(Model::of(&store).unwrap() == model, "seed {seed}, after the last opening");
        }
    }
}
