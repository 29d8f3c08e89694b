//! The drive fails at a command, or loses its power there. Nothing that was durable is lost, and after a restart the store goes on.

use super::faulty::{Faulty, Kind};
use super::{config, drive_of, format, options};
use crate::support::{Model, Op, any_transaction, first};
use imbrex_emulator::Emulator;
use imbrex_store::{Store, Transaction};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// What a run without a fault does of each kind, at least.
const RUNS: [(Kind, u64, u64); 5] =
    [(Kind::Read, 40, 8), (Kind::Write, 200, 14), (Kind::Flush, 60, 14), (Kind::ZoneOp, 12, 6), (Kind::Power, 260, 28)];

struct Done {
    /// The models after so many transactions; the last may have failed.
    states: Vec<Model>,
    /// So many were durable.
    durable: usize,
    failed: Option<String>,
}

/// Transactions at random until something fails, with a restart in the middle.
fn work(faulty: &Arc<Faulty>, rng: &mut ChaCha8Rng) -> Done {
    let mut done = Done { states: vec![Model::default()], durable: 0, failed: None };
    for mount in 0..2 {
        let store = match Store::open(drive_of(faulty.clone()), options()) {
            Ok(store) => store,
            Err(error) => {
                done.failed = Some(error.to_string());
                return done;
            }
        };
        for n in 0..16 {
            let model = &done.states[done.states.len() - 1];
            let (transaction, then) = if mount == 0 && n == 0 {
                let (c, bits) = first();
                let (mut begin, mut then) = (Transaction::new(), model.clone());
                then.apply(&Op::Create(c, bits), &mut begin).unwrap();
                (begin, then)
            } else {
                let (_, transaction, then) = any_transaction(rng, model, 150_000);
                (transaction, then)
            };
            done.states.push(then);
            let committed = match rng.random_bool(0.6) {
                true => store.commit(transaction).map(|()| done.durable = done.states.len() - 1),
                false => store.queue(transaction).map(drop),
            };
            let packed = committed.and_then(|()| if n == 9 { store.pack().map(drop) } else { Ok(()) });
            if let Err(error) = packed {
                done.failed = Some(error.to_string());
                return done;
            }
        }
        match store.sync() {
            Ok(()) => done.durable = done.states.len() - 1,
            Err(error) => {
                done.failed = Some(error.to_string());
                return done;
            }
        }
    }
    done
}

/// The store is one of those that may be there, nothing is wrong with it, and it goes on.
fn look(drive: &Emulator, done: &Done, what: &str, rng: &mut ChaCha8Rng) {
    let opened = || Store::open(drive_of(Arc::new(drive.clone())), options()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let store = opened();
    let wrong = store.check_all(true).unwrap().wrong;
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
    let mut model = Model::of(&store).unwrap();
    let may_be = &done.states[done.durable..];
    assert!(may_be.contains(&model), "{what}: it is none of the {} that may be there: {:?}", may_be.len(), done.failed);
    if model.collections.is_empty() {
        return;
    }
    for _ in 0..3 {
        let (_, transaction, then) = any_transaction(rng, &model, 40_000);
        store.commit(transaction).unwrap_or_else(|error| panic!("{what}: {error}"));
        model = then;
    }
    drop(store);
    assert!(Model::of(&opened()).unwrap() == model, "{what}: what was written since is not there");
}

#[test]
fn whatever_fails_nothing_that_was_durable_is_lost() {
    let (mut hit, mut told) = (0, 0);
    for (kind, commands, runs) in RUNS {
        for run in 0..runs {
            let mut rng = ChaCha8Rng::seed_from_u64(run * 5 + kind as u64);
            let drive = Emulator::memory(&config()).unwrap();
            format(&drive_of(Arc::new(drive.clone()))).unwrap();
            let skip = rng.random_range(0..commands);
            let what = format!("{kind:?} {skip}, run {run}");
            let faulty = Faulty::new(drive.clone(), kind, skip);
            let done = work(&faulty, &mut rng);
            hit += u32::from(faulty.heal() > 0);
            told += u32::from(done.failed.is_some());
            if kind == Kind::Power {
                assert!(done.failed.is_some() || done.durable + 1 == done.states.len(), "{what}");
                drive.faults().lose_power_by(true, run).unwrap();
            }
            look(&drive, &done, &what, &mut rng);
        }
    }
    // Some are healed below: a read that is tried again, a zone that another one stands in for.
    println!("{hit} runs were hit, and {told} of these heard of it");
    assert!(hit > 50 && told > 30, "{hit} {told}");
}
