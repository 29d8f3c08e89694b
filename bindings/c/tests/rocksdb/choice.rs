//! Which of the two keeps the metadata, and stores beside each other.

use super::{config, drive_of, format, options, provide};
use crate::support::content;
use imbrex_device::Code;
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{CollectionId, MetadataIn, ObjectId, Options, Store, Transaction};
use std::path::Path;
use std::sync::Arc;

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

fn name(n: u32) -> ObjectId {
    ObjectId::new(1, b"", &n.to_be_bytes())
}

fn image(dir: &Path, file: &str) -> String {
    let path = dir.join(file);
    drop(Emulator::create(&path, &Config { capacity: 64 << 20, ..config() }, false).unwrap());
    format!("imbrex://{}?survivor=off&memtable=256K", path.display())
}

#[test]
fn the_choice_is_made_once_and_nobody_gets_another_empty_store() {
    provide();
    let dir = tempfile::tempdir().unwrap();
    for (file, mine, other) in [("a", MetadataIn::RocksDb, MetadataIn::Kv), ("b", MetadataIn::Kv, MetadataIn::RocksDb)]
    {
        let uri = image(dir.path(), file);
        let with = |which: MetadataIn| format!("{uri}&metadata={}", which.name());
        {
            let store = Store::open_uri(&with(mine), &[("format", "on")]).unwrap();
            let mut begin = Transaction::new();
            begin.create_collection(ALL, 0).write(ALL, &name(1), 0, &content(200_000, 3));
            store.commit(begin).unwrap();
        }
        // Asked for the other one it says which it has, also where a blank drive would be formatted.
        for more in [&[][..], &[("format", "on")], &[("read-only", "on")]] {
            let refused = Store::open_uri(&with(other), more).err().unwrap();
            assert_eq!(refused.code(), Code::InvalidArgument);
            let (says, asked) = (format!("its metadata are in {}", mine.name()), format!("metadata={}", other.name()));
            assert!(refused.to_string().contains(&says) && refused.to_string().contains(&asked), "{refused}");
        }
        for uri in [uri.clone(), with(mine)] {
            let store = Store::open_uri(&uri, &[]).unwrap();
            assert_eq!(store.metadata_in(), mine);
            assert!(store.read(ALL, &name(1), 0, u64::MAX).unwrap() == content(200_000, 3));
        }
        // A look changes nothing.
        let path = dir.path().join(file);
        let before = std::fs::read(&path).unwrap();
        {
            let look = Store::open_uri(&uri, &[("read-only", "on")]).unwrap();
            assert!(look.read(ALL, &name(1), 0, 100).unwrap() == content(200_000, 3)[..100]);
            assert_eq!(look.check_all(true).unwrap().wrong, [""; 0]);
        }
        assert!(std::fs::read(&path).unwrap() == before);
    }
    let wrong = Store::open_uri(&format!("{}&metadata=leveldb", image(dir.path(), "c")), &[]).err().unwrap();
    assert!(wrong.to_string().contains("metadata=leveldb is neither kv nor rocksdb"), "{wrong}");
}

/// Neither RocksDB's files nor its tenant are a user's file system.
#[test]
fn its_files_are_nobody_elses() {
    provide();
    let dir = tempfile::tempdir().unwrap();
    let uri = image(dir.path(), "drive");
    drop(Store::open_uri(&format!("{uri}&metadata=rocksdb"), &[("format", "on")]).unwrap());
    let refused = imbrex_bluefs::BlueFs::open_uri(uri.split('?').next().unwrap()).err().unwrap().to_string();
    assert!(refused.contains("is formatted for metadata-files and bluestore, not for bluefs"), "{refused}");
}

#[test]
fn two_stores_of_one_process_have_a_database_each() {
    let drives = [0, 1].map(|_| Emulator::memory(&config()).unwrap());
    let opened = |n: usize| {
        let metadata_in = [None, Some(MetadataIn::RocksDb)][n];
        Store::open(drive_of(Arc::new(drives[n].clone())), Options { metadata_in, ..options() }).unwrap()
    };
    for round in 0..3u32 {
        if round == 0 {
            drives.iter().for_each(|drive| format(&drive_of(Arc::new(drive.clone()))).unwrap());
        }
        let stores = [opened(0), opened(1)];
        std::thread::scope(|threads| {
            for (which, store) in stores.iter().enumerate() {
                threads.spawn(move || {
                    if round == 0 {
                        let mut begin = Transaction::new();
                        begin.create_collection(ALL, 0);
                        store.commit(begin).unwrap();
                    }
                    for n in 0..40 {
                        let mut transaction = Transaction::new();
                        let bytes = content(9_000, (n + 40 * round) as u8 ^ (which as u8 * 0x80));
                        transaction.write(ALL, &name(n), u64::from(round) * 9_000, &bytes);
                        store.commit(transaction).unwrap();
                    }
                });
            }
        });
        for (which, store) in stores.iter().enumerate() {
            for (n, round) in (0..40).flat_map(|n| (0..=round).map(move |round| (n, round))) {
                let found = store.read(ALL, &name(n), u64::from(round) * 9_000, 9_000).unwrap();
                assert!(found == content(9_000, (n + 40 * round) as u8 ^ (which as u8 * 0x80)), "{which} {n} {round}");
            }
            assert_eq!(store.check_all(true).unwrap().wrong, [""; 0]);
        }
    }
}

/// A range that is deleted may be short, which RocksDB's keys are deleted one by one for, or long.
#[test]
fn ranges_of_any_length_are_deleted_and_lists_go_on_behind_them() {
    let drive = Emulator::memory(&config()).unwrap();
    format(&drive_of(Arc::new(drive.clone()))).unwrap();
    let opened = || Store::open(drive_of(Arc::new(drive.clone())), options()).unwrap();
    let key = |n: u32| format!("{n:05}").into_bytes();
    let keys = |store: &Store| -> Vec<Vec<u8>> {
        store.omap(ALL, &name(1), b"", 10_000).unwrap().all.into_iter().map(|(key, _)| key).collect()
    };
    {
        let store = opened();
        let mut begin = Transaction::new();
        begin.create_collection(ALL, 0);
        for n in 0..1000 {
            begin.omap_set(ALL, &name(1), &[(&key(n)[..], &n.to_be_bytes()[..])]);
        }
        store.commit(begin).unwrap();
        assert_eq!(keys(&store).len(), 1000);
        let mut delete = Transaction::new();
        delete.omap_remove_range(ALL, &name(1), &key(10), &key(20));
        delete.omap_remove_range(ALL, &name(1), &key(200), &key(900));
        delete.omap_remove_range(ALL, &name(1), &key(5), &key(5));
        store.commit(delete).unwrap();
    }
    let left: Vec<Vec<u8>> = (0..10).chain(20..200).chain(900..1000).map(key).collect();
    let store = opened();
    assert_eq!(keys(&store), left);
    // What is put again behind a deletion is there.
    let mut again = Transaction::new();
    again.omap_clear(ALL, &name(1)).omap_set(ALL, &name(1), &[(&key(500)[..], &b"again"[..])]);
    store.commit(again).unwrap();
    drop(store);
    let store = opened();
    assert_eq!(keys(&store), [key(500)]);
    // Nothing is left of what was deleted.
    assert_eq!(store.check_all(false).unwrap().wrong, [""; 0]);
}
