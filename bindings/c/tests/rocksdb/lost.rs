//! Files of RocksDB of which something is lost: an opening fails and changes nothing, so what can be had again is had again. Nobody gets a store with less in it.

use super::{config, drive_of, format, options};
use crate::support::content;
use imbrex_bluefs::BlueFs;
use imbrex_device::{Code, Error};
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, MetadataIn, ObjectId, Options, Store, Transaction};
use imbrex_zones::Volume;
use std::sync::Arc;

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const OBJECTS: u32 = 12;
/// So long that they get zones.
const LONG: u64 = 70_000;

fn id(n: u32) -> ObjectId {
    ObjectId::new(1, b"", &n.to_be_bytes())
}

fn open(drive: &Emulator) -> Result<Store, Error> {
    Store::open(drive_of(Arc::new(drive.clone())), options())
}

/// All objects are there, and nothing is wrong.
fn look(drive: &Emulator, what: &str) {
    let store = open(drive).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(store.damage(), [""; 0], "{what}");
    for n in 0..OBJECTS {
        assert!(store.read(ALL, &id(n), 0, u64::MAX).unwrap() == content(LONG, n as u8), "{what}: object {n}");
    }
    assert_eq!(store.check_all(true).unwrap().wrong, [""; 0], "{what}");
}

/// A store that was closed. All of its metadata are in the log.
fn made() -> Emulator {
    let drive = Emulator::memory(&config()).unwrap();
    format(&drive_of(Arc::new(drive.clone()))).unwrap();
    let store = open(&drive).unwrap();
    for n in 0..OBJECTS {
        let mut transaction = Transaction::new();
        if n == 0 {
            transaction.create_collection(ALL, 0);
        }
        transaction.write(ALL, &id(n), 0, &content(LONG, n as u8));
        // RocksDB reads 32 KiB of a log at once. With more it may lose the last ones alone.
        transaction.omap_set(ALL, &id(n), &[(&b"pair"[..], &content(3500, n as u8)[..])]);
        store.commit(transaction).unwrap();
    }
    drop(store);
    drive
}

/// RocksDB's files, as nobody else mounts them.
fn files(drive: &Emulator) -> BlueFs {
    let volume = Volume::open(drive_of(Arc::new(drive.clone())), options().volume).unwrap();
    let journal_bytes = volume.geometry().zone_size;
    let options =
        imbrex_bluefs::Options { journal_bytes, volume: options().volume, ..imbrex_bluefs::Options::default() };
    BlueFs::mount_tenant(volume.tenant("metadata-files").unwrap(), options).unwrap()
}

fn names(files: &BlueFs) -> Vec<String> {
    let mut names: Vec<String> = files.list("/rocksdb").unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// The blocks of the log, which has a zone of its own.
fn log(drive: &Emulator) -> Vec<u64> {
    let files = files(&drive.fork().unwrap());
    let names = names(&files).into_iter().filter(|name| name.ends_with(".log"));
    let runs: Vec<_> = names.flat_map(|name| files.runs(&format!("/rocksdb/{name}")).unwrap()).collect();
    let [run] = runs[..] else { panic!("{runs:?}") };
    let zone = files.volume().geometry().zone_size;
    let end = (run.address / zone + 1) * zone;
    let blocks = (run.address..end).step_by(4096);
    // Of those that were not written it has no bits.
    blocks.take_while(|at| drive.fork().unwrap().faults().flip_bits(*at, 1).is_ok()).collect()
}

/// The opening fails with a sentence that names the file and what to do.
fn refused(drive: &Emulator, file: &str, what: &str) {
    let error = open(drive).map(drop).expect_err(what);
    assert_eq!(error.code(), Code::Corruption, "{what}: {error}");
    let sentence = error.to_string();
    assert!(sentence.contains(file) && sentence.contains("`imbrex store salvage`"), "{what}: {sentence}");
}

#[test]
fn damage_of_the_log_costs_nothing_that_was_synced() {
    let made = made();
    let blocks = log(&made);
    assert!(blocks.len() >= OBJECTS as usize, "{blocks:?}");
    for (where_, block) in
        [("last", blocks[blocks.len() - 1]), ("middle", blocks[blocks.len() / 2]), ("first", blocks[0])]
    {
        // A flipped bit, and a block that the drive does not give. Twice: the first opening has changed nothing.
        let drive = made.fork().unwrap();
        drive.faults().flip_bits(block + 100, 4).unwrap();
        (0..2).for_each(|n| refused(&drive, ".log", &format!("{where_} block, opening {n}")));
        drive.faults().flip_bits(block + 100, 4).unwrap();
        look(&drive, where_);
        let drive = made.fork().unwrap();
        drive.faults().media_error(block, 4096);
        let error = open(&drive).err().unwrap_or_else(|| panic!("{where_}: the block cannot be read"));
        assert!(error.to_string().contains(".log"), "{where_}: {error}");
    }
}

/// Where the file is lost that says which tables there are, another database in its place would delete them.
#[test]
fn no_second_database_is_made_where_one_was() {
    let drive = made();
    // Tables, too: an opening with less memory makes some.
    let metadata = imbrex_kv::Options { memtable_bytes: 16 << 10, ..options().metadata };
    let store = Store::open(drive_of(Arc::new(drive.clone())), Options { metadata, ..options() }).unwrap();
    for n in 0..OBJECTS {
        let mut transaction = Transaction::new();
        transaction.omap_set(ALL, &id(n), &[(&b"key"[..], &content(30_000, n as u8)[..])]);
        store.commit(transaction).unwrap();
    }
    drop(store);
    let lost = drive.fork().unwrap();
    let before = {
        let files = files(&lost);
        files.unlink("/rocksdb/CURRENT").unwrap();
        files.sync_all().unwrap();
        names(&files)
    };
    assert!(before.iter().any(|name| name.ends_with(".sst")), "{before:?}");
    for n in 0..2 {
        refused(&lost, "CURRENT", &format!("opening {n}"));
        assert_eq!(names(&files(&lost)), before, "opening {n}");
    }
    // All files are lost.
    for name in &before {
        files(&lost).unlink(&format!("/rocksdb/{name}")).unwrap();
    }
    refused(&lost, "CURRENT", "nothing is there");
    // Formatted anew it is a new store.
    Store::format_with(&drive_of(Arc::new(lost.clone())), MetadataIn::RocksDb, None, true).unwrap();
    assert!(open(&lost).unwrap().read(ALL, &id(0), 0, 1).is_err());
}
