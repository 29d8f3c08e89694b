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
    Options { store: support::packed(), metadata, volume, ..Options::default() }
}

/// Metadata are on the drive, mostly, and read from there, so that changes of counts wait and are made in passes.
fn reading() -> Options {
    let Options { store, metadata, volume, .. } = inline();
    let metadata = imbrex_kv::Options {
        memtable_bytes: 8 << 10,
        table_bytes: 32 << 10,
        cache_bytes: 0,
        segment_bytes: 16 << 10,
        ..metadata
    };
    Options { store: imbrex_bluestore::Options { count_from: 4, ..store }, metadata, volume, ..Options::default() }
}

struct OnKv(fn() -> Options);

impl Kind for OnKv {
    fn format(&self, drive: &Drive) -> Result<()> {
        Store::format(drive, Some([7; 16]), false)
    }

    fn open(&self, drive: &Drive) -> Result<Opened> {
        let store = Store::open(drive.clone(), self.0())?;
        Ok(Opened { store: (*store).clone(), hook: Hook::default(), kept: Box::new(store) })
    }
}

#[test]
fn a_store_is_what_its_transactions_made_of_it() {
    for config in [config(), Config { max_open: Some(16), max_active: Some(16), ..few_active() }] {
        for seed in seeds(3) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
            OnKv(inline).format(&drive).unwrap();
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
    let uncached = Config { write_cache: false, ..config() };
    for (config, full, options) in [
        (config(), false, inline as fn() -> Options),
        (uncached, false, inline),
        (config(), true, inline),
        (config(), false, reading),
    ] {
        for seed in seeds(1) {
            let plan = Plan { threads: 2, max_states: 300, ..Plan::new(seed) };
            let subject = Arc::new(Random { kind: OnKv(options), full });
            let report = explore(&subject, &config, &plan).unwrap_or_else(|failure| panic!("{failure}"));
            println!("seed {seed}: {} of {} states", report.states, report.possible);
            assert!(report.states >= 200, "{report:?}");
        }
    }
}

#[test]
fn whatever_fails_nothing_that_was_durable_is_lost() {
    for options in [inline as fn() -> Options, reading] {
        for seed in seeds(1) {
            let kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
            let plan = FaultPlan { threads: 2, max_runs: 200, recoveries: 2, kinds, ..FaultPlan::new(seed) };
            let subject = Arc::new(Random { kind: OnKv(options), full: false });
            let report = fault_sweep(&subject, &config(), &plan).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.runs >= 100, "{report:?}");
        }
    }
}

/// The maintenance thread goes over all that lives, and rests until the next period.
#[test]
fn a_store_that_is_open_is_scrubbed_unless_it_is_told_not_to() {
    let name = ObjectId::new(1, b"", b"a");
    let dir = tempfile::tempdir().unwrap();
    let opened = |file: &str, option: &str| {
        let path = dir.path().join(file);
        drop(Emulator::create(&path, &Config { capacity: 64 << 20, ..config() }, false).unwrap());
        let uri = format!("imbrex://{}?survivor=off&memtable=1M{option}", path.display());
        let store = Store::open_uri(&uri, &[("format", "on")]).unwrap();
        let mut begin = Transaction::new();
        begin.create_collection(ALL, 0).write(ALL, &name, 0, &content(1 << 20, 1));
        store.commit(begin).unwrap();
        store
    };
    let (on, off) = (opened("on", ""), opened("off", "&scrub=off"));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while on.scrubbed().ended == 0 || on.scrubbed().read == 0 {
        assert!(std::time::Instant::now() < until, "{:?}", on.scrubbed());
        // A round of a store that was still empty is over at once.
        if on.scrubbed().ended > 0 {
            on.scrub_anew();
            on.scrub_step(1, 1).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!((on.scrubbed().damaged, off.scrubbed().began), (0, 0));
    for bad in ["often", "0", "7w"] {
        let error = Store::open_uri(&format!("imbrex://mem:?scrub={bad}"), &[]).err().unwrap().to_string();
        assert!(error.contains(&format!("scrub={bad}")) && error.contains("7d"), "{error}");
    }
}

/// Records of zones and sums that are gone from the key-value store are made anew, before their zones are free.
#[test]
fn a_store_is_repaired_whose_zones_and_sums_are_gone() {
    let name = ObjectId::new(1, b"", b"a");
    for repair in [true, false] {
        let drive = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
        OnKv(inline).format(&drive).unwrap();
        {
            let store = Store::open(drive.clone(), inline()).unwrap();
            let mut begin = Transaction::new();
            begin.create_collection(ALL, 0).write(ALL, &name, 0, &content(400_000, 1));
            store.commit(begin).unwrap();
        }
        {
            let volume = imbrex_zones::Volume::open(drive.clone(), inline().volume).unwrap();
            let kv = imbrex_kv::Kv::open_tenant(volume.tenant("metadata").unwrap(), inline().metadata).unwrap();
            let mut batch = imbrex_kv::Batch::new();
            batch.delete_range(Some(b"T"), Some(b"U"));
            batch.delete_range(Some(b"Z"), Some(b"["));
            kv.write(&batch, true).unwrap();
        }
        let options = inline();
        let store = imbrex_bluestore::Options { repair, ..options.store };
        let store = Store::open(drive.clone(), Options { store, ..options }).unwrap();
        if !repair {
            // Which is why a repair opens it otherwise.
            assert!(store.read(ALL, &name, 0, 400_000).is_err());
            continue;
        }
        let mended = store.repair(false).unwrap().mended;
        assert!(mended.len() >= 2, "{mended:?}");
        assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
        drop(store);
        let store = Store::open(drive, inline()).unwrap();
        assert!(store.read(ALL, &name, 0, 400_000).unwrap() == content(400_000, 1));
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

fn image(dir: &std::path::Path, zones: u64) -> (std::path::PathBuf, String) {
    let path = dir.join("drive.img");
    drop(Emulator::create(&path, &Config { capacity: zones << 18, ..config() }, false).unwrap());
    let uri = format!("imbrex://{}?survivor=off&memtable=256K", path.display());
    (path, uri)
}

#[test]
fn what_is_deferred_is_packed_when_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (_, uri) = image(dir.path(), 128);
    let store = Store::open_uri(&uri, &[("format", "on")]).unwrap();
    let id = ObjectId::new(1, b"", b"a");
    let mut transaction = Transaction::new();
    transaction.create_collection(ALL, 0).write(ALL, &id, 0, &content(5000, 1));
    store.commit(transaction).unwrap();
    assert_eq!(store.usage().deferred, 8192);
    let began = std::time::Instant::now();
    while store.usage().deferred > 0 {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "it is never packed");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(store.usage().stored, 8192);
    assert!(store.read(ALL, &id, 0, u64::MAX).unwrap() == content(5000, 1));
    assert!(store.check_all(true).unwrap().wrong.is_empty());
}

/// A drive of three tenants: pairs of a user's own beside the objects.
#[test]
fn a_store_beside_another_engine_fills_the_drive_and_neither_loses_anything() {
    let dir = tempfile::tempdir().unwrap();
    let (path, uri) = image(dir.path(), 160);
    {
        let drive = imbrex_drives::open(path.to_str().unwrap(), &imbrex_drives::OpenOptions::default()).unwrap();
        let budget = imbrex_kv::budget(drive.device.geometry());
        let mut tenants = Store::tenants(drive.device.geometry());
        tenants.push(imbrex_zones::TenantSpec { name: "kv".into(), budget });
        let options = imbrex_zones::FormatOptions { uuid: None, tenants, force: false };
        imbrex_zones::Volume::format(&drive, &options).unwrap();
    }
    let id = |n: u32| ObjectId::new(1, b"", n.to_string().as_bytes());
    let (mut objects, mut pairs, mut full) = (0u32, 0u32, [false; 2]);
    for round in 0..3 {
        let kv = imbrex_kv::Kv::open_uri(&uri, &[]).unwrap();
        let store = Store::open_uri(&uri, &[]).unwrap();
        if round == 0 {
            let mut begin = Transaction::new();
            begin.create_collection(ALL, 0);
            store.commit(begin).unwrap();
        }
        let most = if round == 2 { u32::MAX } else { 20 };
        for _ in 0..most {
            let mut transaction = Transaction::new();
            transaction.write(ALL, &id(objects), 0, &content(200_000, objects as u8));
            full[0] |= match store.commit(transaction) {
                Ok(()) => {
                    objects += 1;
                    false
                }
                Err(error) => {
                    assert_eq!(error.code(), imbrex_device::Code::NoSpace, "{error}");
                    true
                }
            };
            full[1] |= match kv.put(&pairs.to_be_bytes(), &content(60_000, pairs as u8), true) {
                Ok(()) => {
                    pairs += 1;
                    false
                }
                Err(error) => {
                    assert_eq!(error.code(), imbrex_device::Code::NoSpace, "{error}");
                    true
                }
            };
            if full == [true; 2] {
                break;
            }
        }
        let found = store.check_all(true).unwrap().wrong;
        assert!(found.is_empty(), "{found:#?}");
        assert!((0..objects).all(|n| store.read(ALL, &id(n), 0, u64::MAX).unwrap() == content(200_000, n as u8)));
        assert!((0..pairs).all(|n| kv.get(&n.to_be_bytes()).unwrap().unwrap() == content(60_000, n as u8)));
    }
    assert!(full == [true; 2] && objects > 40 && pairs > 40, "{objects} objects, {pairs} pairs, {full:?}");
    // What is deleted is room for both.
    let store = Store::open_uri(&uri, &[]).unwrap();
    let mut all = Transaction::new();
    (0..objects).for_each(|n| _ = all.remove(ALL, &id(n)));
    store.commit(all).unwrap();
    let mut again = Transaction::new();
    again.write(ALL, &id(0), 0, &content(1_000_000, 5));
    store.commit(again).unwrap();
    assert!(store.check_all(true).unwrap().wrong.is_empty());
}
