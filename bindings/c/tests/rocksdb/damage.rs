//! Damage to the files of RocksDB: all is there, or an opening, a check or a read says that something is not. Never another store without a word.

use super::{config, drive_of, format, options};
use crate::support::{Model, Op, any_transaction, first};
use imbrex_emulator::Emulator;
use imbrex_store::{Options, Store, Transaction};
use imbrex_zones::Volume;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const BLOCK: u64 = 4096;
/// So many blocks of each kind of damage, at least.
const LEAST: usize = 60;

/// What somebody is told of a store.
enum Told {
    /// It is as it should be, and nobody says anything else.
    Whole,
    Damage(String),
}

fn look(drive: &Emulator, model: &Model) -> Told {
    let store = match Store::open(drive_of(Arc::new(drive.clone())), options()) {
        Ok(store) => store,
        Err(error) => return Told::Damage(error.to_string()),
    };
    let wrong = match store.check_all(true) {
        Ok(report) => report.wrong,
        Err(error) => return Told::Damage(error.to_string()),
    };
    if let Some(sentence) = store.damage().iter().chain(&wrong).next() {
        return Told::Damage(sentence.clone());
    }
    match Model::of(&store) {
        Ok(found) if found == *model => Told::Whole,
        Ok(_) => panic!("another store, and nothing says so"),
        Err(error) => Told::Damage(error.to_string()),
    }
}

/// A store that has been worked with, and whether each block of its metadata was written.
fn worked_with() -> (Emulator, Model, Vec<u64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let drive = Emulator::memory(&config()).unwrap();
    let as_drive = || drive_of(Arc::new(drive.clone()));
    format(&as_drive()).unwrap();
    let mut model = Model::default();
    for mount in 0..2 {
        // So little memory that tables are made.
        let metadata = imbrex_kv::Options { memtable_bytes: 16 << 10, ..options().metadata };
        let store = Store::open(as_drive(), Options { metadata, ..options() }).unwrap();
        if mount == 0 {
            let (mut begin, (c, bits)) = (Transaction::new(), first());
            model.apply(&Op::Create(c, bits), &mut begin).unwrap();
            store.commit(begin).unwrap();
        }
        for _ in 0..40 {
            let (_, transaction, then) = any_transaction(&mut rng, &model, 200_000);
            store.commit(transaction).unwrap();
            model = then;
        }
    }
    let volume = Volume::open(as_drive(), options().volume).unwrap();
    let table = volume.table();
    let metadata = table.tenants.iter().position(|tenant| tenant.name == "metadata-files");
    let zone = volume.geometry().zone_size;
    let owned = table.zones.iter().enumerate().filter(|(_, zone)| zone.tenant == metadata).map(|(n, _)| n as u64);
    let blocks = owned.flat_map(|n| (0..zone / BLOCK).map(move |block| n * zone + block * BLOCK)).collect();
    (drive.clone(), model, blocks)
}

#[test]
fn damage_of_its_files_is_told_or_does_no_harm() {
    let (drive, model, blocks) = worked_with();
    assert!(matches!(look(&drive.fork().unwrap(), &model), Told::Whole));
    // Some of them, spread over all that were written.
    let written: Vec<u64> =
        blocks.into_iter().filter(|at| drive.fork().unwrap().faults().flip_bits(at + 77, 1).is_ok()).collect();
    let every = (written.len() / LEAST).max(1);
    let (mut told, mut whole) = (0, 0);
    for (n, at) in written.iter().step_by(every).enumerate() {
        let harmed = drive.fork().unwrap();
        // Somewhere in it, or all of it.
        match n % 2 {
            0 => harmed.faults().flip_bits(at + at.wrapping_mul(0x9e37_79b9) % BLOCK, 0x10).unwrap(),
            _ => harmed.faults().media_error(*at, BLOCK),
        }
        match look(&harmed, &model) {
            Told::Whole => whole += 1,
            Told::Damage(sentence) => {
                told += 1;
                assert!(sentence.len() > 10, "{sentence}");
            }
        }
    }
    println!("{told} blocks of {} cost something, and that was told", told + whole);
    assert!(told >= 10 && told + whole >= LEAST, "{told} {whole}");
}
