//! Transactions at random, against a model.

mod support;

use imbrex_bluestore::{BlueStore, Layout, Options, Transaction};
use imbrex_crashkit::seeds;
use imbrex_device::Drive;
use imbrex_emulator::Emulator;
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{
    CACHES, Model, any_op, any_transaction, bands, config, defragment_all, few_active, first, format, in_place,
    make_bands, open_with, packed, plain,
};

fn checked(store: &BlueStore, deep: bool, what: &dyn std::fmt::Debug) {
    let report = store.check(deep).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}\nafter {what:?}", report.wrong);
}

#[test]
fn a_store_is_what_its_transactions_made_of_it() {
    let zones = [config(), few_active()].map(|config| (config, packed()));
    let units = [4 << 10, 16 << 10].map(|unit| (plain(), in_place(unit)));
    for (config, options) in zones.into_iter().chain(units) {
        for seed in seeds(if options.layout == Layout::InPlace { 6 } else { 12 }) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
            if options.layout == Layout::InPlace {
                make_bands(&drive).unwrap();
                drive = bands(&drive).unwrap();
            }
            format(&drive).unwrap();
            let options = Options { cache: CACHES[seed as usize % CACHES.len()], ..options };
            let mut store = open_with(&drive, Exec::Inline, options).unwrap();
            let mut model = Model::default();
            let (c, bits) = first();
            let mut begin = Transaction::new();
            model.apply(&support::Op::Create(c, bits), &mut begin).unwrap();
            store.commit(begin).unwrap();
            for n in 0..150 {
                match rng.random_range(0..30) {
                    0 => {
                        store.sync().unwrap();
                        drop(store);
                        store = open_with(&drive, Exec::Inline, options).unwrap();
                    }
                    1 => drop(store.pack().unwrap()),
                    2 => checked(&store, true, &(seed, n)),
                    3 => store.sync().unwrap(),
                    4 => defragment_all(&store, rng.random_range(1..700_000)).unwrap(),
                    5..9 => {
                        // One step of several may make no sense: then nothing happens.
                        let (mut then, mut transaction) = (model.clone(), Transaction::new());
                        let ops: Vec<_> = (0..3).map(|_| any_op(&mut rng, &then, 700_000)).collect();
                        let made = ops.iter().try_for_each(|op| then.apply(op, &mut transaction));
                        match (store.queue(transaction), made) {
                            (Ok(_), Ok(())) => model = then,
                            (Err(error), Err(code)) => {
                                assert_eq!(error.code(), code, "seed {seed}, {n}: {error}, {ops:?}")
                            }
                            (queued, made) => {
                                panic!("seed {seed}, {n}: {queued:?} where the model says {made:?}, {ops:?}")
                            }
                        }
                    }
                    _ => {
                        let (ops, transaction, then) = any_transaction(&mut rng, &model, 700_000);
                        store.queue(transaction).unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}, {ops:?}"));
                        model = then;
                    }
                }
                if n % 5 == 0 {
                    let found = Model::of(&store).unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}"));
                    assert!(found == model, "seed {seed}, {n}: {}", difference(&found, &model));
                }
            }
            checked(&store, true, &seed);
            drop(store);
            let store = open_with(&drive, Exec::Inline, options).unwrap();
            assert!(Model::of(&store).unwrap() == model, "seed {seed}, after the last opening");
            checked(&store, true, &seed);
        }
    }
}

fn difference(found: &Model, model: &Model) -> String {
    if found.collections != model.collections {
        return format!("collections {:?}, not {:?}", found.collections, model.collections);
    }
    for id in found.objects.keys().chain(model.objects.keys()) {
        let (is, should) = (found.objects.get(id), model.objects.get(id));
        if is == should {
            continue;
        }
        let (Some(is), Some(should)) = (is, should) else {
            return format!("{id} is {} and should be {}", is.is_some(), should.is_some());
        };
        if is.bytes != should.bytes {
            let at = is.bytes.iter().zip(&should.bytes).position(|(a, b)| a != b);
            return format!("{id} has {} bytes, not {}; they differ at {at:?}", is.bytes.len(), should.bytes.len());
        }
        return format!(
            "{id}: {:?} {:?} {:?}, not {:?} {:?} {:?}",
            is.attributes, is.omap, is.header, should.attributes, should.omap, should.header
        );
    }
    "nothing".into()
}
