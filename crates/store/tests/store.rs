//! An object store whose metadata are in the key-value store of its drive.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_crashkit::{Config, FaultKind, FaultPlan, Plan, explore, fault_sweep, seeds};
use imbrex_device::{Class, Drive, Result};
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, ObjectId, Options, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::random::{Kind, Opened, Random};
use support::{Hook, Model, any_transaction, config, content, few_active, first};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

fn inline() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata =
        imbrex_kv::Options { memtable_bytes: 64 << 10, segment_bytes: 64 << 10, ..imbrex_kv::Options::default() };
    Options { store: support::options(), metadata, volume }
}

struct OnKv;

impl Kind for OnKv {
    fn format(&self, drive: &Drive) -> Result<()> {
        Store::format(drive, Some([7; 16]), false)
    }

    fn open(&self, drive: &Drive) -> Result<Opened> {
        let store = Store::open(drive.clone(), inline())?;
        Ok(Opened { store: (*store).clone(), hook: Hook::default(), kept: Box::new(store) })
    }
}

#[test]
fn a_store_is_what_its_transactions_made_of_it() {
    for config in [config(), Config { max_open: Some(16), max_active: Some(16), ..few_active() }] {
        for seed in seeds(3) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
            OnKv.format(&drive).unwrap();
            let mut model = Model::default();
            for mount in 0..4 {
                let store = Store::open(drive.clone(), inline()).unwrap();
                assert!(store.damage().is_empty());
                if mount == 0 {
                    let (c, bits) = first();
                    let mut begin = Transaction::new();
                    model.apply(&support::Op::Create(c, bits), &mut begin).unwrap();
                    store.commit(begin).unwrap();
                }
                for n in 0..40 {
                    let (ops, transaction, then) = any_transaction(&mut rng, &model, 400_000);
                    store.queue(transaction).unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}, {ops:?}"));
                    model = then;
                }
                assert!(Model::of(&store).unwrap() == model, "seed {seed}");
                let report = store.check(true).unwrap();
                assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
                // What was queued is durable when the store closes.
            }
            let store = Store::open(drive, inline()).unwrap();
            assert!(Model::of(&store).unwrap() == model, "seed {seed}, after the last opening");
        }
    }
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_transactions_and_those_that_were_durable() {
    for (config, full) in [(config(), false), (Config { write_cache: false, ..config() }, false), (config(), true)] {
        for seed in seeds(1) {
            let plan = Plan { threads: 2, max_states: 300, ..Plan::new(seed) };
            let subject = Arc::new(Random { kind: OnKv, full });
            let report = explore(&subject, &config, &plan).unwrap_or_else(|failure| panic!("{failure}"));
            println!("seed {seed}: {} of {} states", report.states, report.possible);
            assert!(report.states >= 200, "{report:?}");
        }
    }
}

#[test]
fn whatever_fails_nothing_that_was_durable_is_lost() {
    for seed in seeds(1) {
        let kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
        let plan = FaultPlan { threads: 2, max_runs: 200, recoveries: 2, kinds, ..FaultPlan::new(seed) };
        let subject = Arc::new(Random { kind: OnKv, full: false });
        let report = fault_sweep(&subject, &config(), &plan).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.runs >= 100, "{report:?}");
    }
}

#[test]
fn a_drive_has_one_store_which_is_there_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    drop(Emulator::create(&path, &Config { capacity: 64 << 20, ..config() }, false).unwrap());
    let uri = format!("imbrex://{}?survivor=off&memtable=1M", path.display());
    let opened = |more: &[(&str, &str)]| Store::open_uri(&uri, more);
    // It says what to do with a drive that is not formatted.
    assert!(opened(&[]).is_err());
    let id = ObjectId::new(1, b"", b"a");
    {
        let store = opened(&[("format", "on")]).unwrap();
        let same = opened(&[]).unwrap();
        let mut transaction = Transaction::new();
        transaction.create_collection(ALL, 0).write(ALL, &id, 0, &content(3_000_000, 1));
        store.queue(transaction).unwrap();
        assert_eq!(same.stat(ALL, &id).unwrap().size, 3_000_000);
        // Its metadata are no store of their own meanwhile.
        assert!(imbrex_kv::Kv::open_uri(&uri, &[]).is_err());
    }
    let store = opened(&[]).unwrap();
    assert!(store.read(ALL, &id, 0, u64::MAX).unwrap() == content(3_000_000, 1));
    assert!(store.check(true).unwrap().wrong.is_empty());
    drop(store);
    // Who only looks changes nothing.
    let before = std::fs::read(&path).unwrap();
    let look = opened(&[("read-only", "on")]).unwrap();
    assert!(look.read(ALL, &id, 0, 100).unwrap() == content(3_000_000, 1)[..100]);
    drop(look);
    assert!(std::fs::read(&path).unwrap() == before);
    let wrong = opened(&[("defer-below", "never")]).err().unwrap();
    assert_eq!(wrong.class(), Class::Usage);
}
