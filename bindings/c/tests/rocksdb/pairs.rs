//! RocksDB as a key-value store, against a map: whatever an object store may ask of it, with restarts.

use super::{config, directory, drive_of};
use imbrex::rocksdb::Library;
use imbrex_bluefs::{BlueFs, Options};
use imbrex_emulator::Emulator;
use imbrex_store::rocksdb::{Database, DatabaseOptions, RocksDb};
use imbrex_store::{Change, Family};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Map = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

fn open(drive: &Emulator, options: DatabaseOptions) -> (Box<dyn Database>, BlueFs) {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let mounted = Options { journal_bytes: 256 << 10, cache_bytes: 0, volume, ..Options::default() };
    let files = BlueFs::mount(drive_of(Arc::new(drive.clone())), mounted).unwrap();
    let library = Library::of(vec![directory().to_owned()]);
    (library.open(files.clone(), options).unwrap(), files)
}

/// Keys of one byte and of many, so that ranges are short and long, and empty ones.
fn any_key(rng: &mut impl Rng) -> Vec<u8> {
    match rng.random_range(0..10) {
        0 => Vec::new(),
        1 => vec![rng.random_range(0..4); rng.random_range(1..300)],
        _ => rng.random_range(0..2000u16).to_be_bytes().to_vec(),
    }
}

fn any_family(rng: &mut impl Rng) -> Family {
    [Family::Super, Family::Omap, Family::Deferred][rng.random_range(0..3)]
}

fn any_changes(rng: &mut ChaCha8Rng, map: &mut Map) -> Vec<Change> {
    let mut changes = Vec::new();
    if rng.random_bool(0.1) {
        // No other change of the batch is of such a key, but a put behind it.
        let (family, mut from, mut to) = (any_family(rng), any_key(rng), any_key(rng));
        if rng.random_bool(0.8) && from > to {
            std::mem::swap(&mut from, &mut to);
        }
        map.retain(|(of, key), _| *of != family || *key < from || *key >= to);
        changes.push(Change::DeleteRange(family, from, to));
    }
    for _ in 0..rng.random_range(0..40) {
        let (family, key) = (any_family(rng), any_key(rng));
        if !changes.is_empty() || rng.random_bool(0.7) {
            let mut value = vec![0; rng.random_range(0..300)];
            rng.fill_bytes(&mut value);
            map.insert((family, key.clone()), value.clone());
            changes.push(Change::Put(family, key, value));
        } else {
            map.remove(&(family, key.clone()));
            changes.push(Change::Delete(family, key));
        }
    }
    changes
}

fn look(database: &dyn Database, map: &Map, rng: &mut ChaCha8Rng) {
    for _ in 0..20 {
        let (family, key) = (any_family(rng), any_key(rng));
        assert_eq!(database.get(family, &key).unwrap().as_ref(), map.get(&(family, key)));
    }
    let (family, from, to) = (any_family(rng), any_key(rng), rng.random_bool(0.7).then(|| any_key(rng)));
    let most = [0, 1, 2, 7, 500, 5000][rng.random_range(0..6)];
    let range = map.range((Bound::Included((family, from.clone())), Bound::Unbounded));
    let within = range.take_while(|((of, key), _)| *of == family && to.as_ref().is_none_or(|to| key < to));
    let expected: Vec<_> = within.take(most).map(|((_, key), value)| (key.clone(), value.clone())).collect();
    assert!(
        database.pairs(family, &from, to.as_deref(), most).unwrap() == expected,
        "{family:?} {from:?} {to:?} {most}"
    );
}

#[test]
fn a_database_is_what_its_batches_made_of_it() {
    for (seed, cache_bytes, memtable_bytes) in [(1, 1 << 20, 64 << 10), (2, 0, 8 << 10)] {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let drive = Emulator::memory(&config()).unwrap();
        BlueFs::format(&drive_of(Arc::new(drive.clone())), false).unwrap();
        let (mut map, mut reads) = (Map::new(), 0);
        for mount in 0..4 {
            let options = DatabaseOptions {
                memtable_bytes,
                cache_bytes,
                table_bytes: 32 << 10,
                look: mount == 3,
                create: mount == 0,
            };
            let (database, files) = open(&drive, options);
            let all = Family::ALL.iter().flat_map(|family| {
                let pairs = database.pairs(*family, b"", None, usize::MAX).unwrap();
                pairs.into_iter().map(|(key, value)| ((*family, key), value))
            });
            assert!(all.collect::<Map>() == map, "seed {seed}, mount {mount}");
            for _ in 0..150 {
                let changes = any_changes(&mut rng, &mut map);
                database.write(&changes).unwrap();
                if rng.random_bool(0.1) {
                    database.sync().unwrap();
                }
                look(database.as_ref(), &map, &mut rng);
                let (family, key) = (any_family(&mut rng), any_key(&mut rng));
                if database.get_would_read(family, &key) {
                    reads += 1;
                    // What was read is in the cache.
                    database.get(family, &key).unwrap();
                    assert!(cache_bytes == 0 || !database.get_would_read(family, &key));
                }
            }
            // What was put just now is in memory.
            database.write(&[Change::Put(Family::Zones, b"z".to_vec(), b"z".to_vec())]).unwrap();
            map.insert((Family::Zones, b"z".to_vec()), b"z".to_vec());
            assert!(!database.get_would_read(Family::Zones, b"z"));
            assert_eq!(database.check().unwrap(), [""; 0]);
            drop((database, files));
        }
        assert!(reads > 0, "all was in memory, so tables were not read");
    }
}

#[test]
fn a_check_finds_what_no_read_has_met() {
    let drive = Emulator::memory(&config()).unwrap();
    BlueFs::format(&drive_of(Arc::new(drive.clone())), false).unwrap();
    let options =
        DatabaseOptions { memtable_bytes: 16 << 10, cache_bytes: 1 << 20, table_bytes: 0, look: false, create: true };
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut value = vec![0; 1000];
    {
        let (database, _files) = open(&drive, options);
        for n in 0..300u16 {
            rng.fill_bytes(&mut value);
            database.write(&[Change::Put(Family::Omap, n.to_be_bytes().to_vec(), value.clone())]).unwrap();
        }
        database.sync().unwrap();
    }
    let (places, path) = {
        let (_database, files) = open(&drive, DatabaseOptions { look: true, ..options });
        let tables = files.list("/rocksdb").unwrap().into_iter().filter(|entry| entry.name.ends_with(".sst"));
        let largest = tables.max_by_key(|entry| entry.attributes.size).expect("a table");
        let path = format!("/rocksdb/{}", largest.name);
        (files.runs(&path).unwrap(), path)
    };
    // In the middle of the first blocks of the table.
    drive.faults().flip_bits(places[0].address + 2000, 4).unwrap();
    let (database, _files) = open(&drive, DatabaseOptions { look: true, ..options });
    let wrong = database.check().unwrap();
    assert!(wrong.len() == 1 && wrong[0].contains("metadata in RocksDB are damaged"), "{path}: {wrong:?}");
}

/// Names and bytes.
fn tables(files: &BlueFs) -> Vec<(String, u64)> {
    let all = files.list("/rocksdb").unwrap().into_iter().filter(|entry| entry.name.ends_with(".sst"));
    all.map(|entry| (entry.name, entry.attributes.size)).collect()
}

fn bytes_of_tables(files: &BlueFs) -> u64 {
    tables(files).iter().map(|(_, size)| size).sum()
}

/// Whatever part is deleted, in whichever order, from tables or from memory, also before an opening.
#[test]
fn what_is_deleted_is_room_for_who_waits() {
    let options =
        DatabaseOptions { memtable_bytes: 64 << 10, cache_bytes: 1 << 20, table_bytes: 0, look: false, create: true };
    let step = |n: u64| Change::Delete(Family::Omap, (n as u16).to_be_bytes().to_vec());
    let range = |from: u64, to: u64| {
        let key = |n: u64| (n as u16).to_be_bytes().to_vec();
        Change::DeleteRange(Family::Omap, key(from), key(to))
    };
    // How many of 2000 keys, how they are deleted, how many at a time, and whether the database is opened anew then.
    for (seed, (count, how, together, again)) in (3..).zip([
        (2000, "in order", 2000, false),
        (1500, "in order", 7, false),
        (1500, "in no order", 7, false),
        (1500, "in no order", 300, true),
        (500, "in order", 1, false),
        (500, "in no order", 1, true),
        (1000, "as a range", 1000, false),
        (1000, "as a range", 100, true),
    ]) {
        let drive = Emulator::memory(&config()).unwrap();
        BlueFs::format(&drive_of(Arc::new(drive.clone())), false).unwrap();
        let (mut database, mut files) = open(&drive, options);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut value = vec![0; 2000];
        for n in 0..2000u16 {
            rng.fill_bytes(&mut value);
            database.write(&[Change::Put(Family::Omap, n.to_be_bytes().to_vec(), value.clone())]).unwrap();
        }
        database.make_room().unwrap();
        let all = bytes_of_tables(&files);
        assert!(all > 3 << 20, "{all}");
        for from in (0..count).step_by(together) {
            let to = (from + together as u64).min(count);
            let changes: Vec<Change> = match how {
                "in order" => (from..to).map(step).collect(),
                "in no order" => (from..to).map(|n| step(n * 1237 % 2000)).collect(),
                _ => vec![range(from, to)],
            };
            database.write(&changes).unwrap();
        }
        if again {
            drop((database, files));
            (database, files) = open(&drive, DatabaseOptions { create: false, ..options });
        }
        database.make_room().unwrap();
        let (left, expected) = (bytes_of_tables(&files), all * (2000 - count) / 2000);
        let what = format!("{count} {how}, {together} at once: {left} of {all} bytes of tables are left");
        println!("{what}");
        assert!(left < expected + expected / 8 + (64 << 10), "{what}");
        let there = database.pairs(Family::Omap, b"", None, usize::MAX).unwrap();
        assert_eq!(there.len() as u64, 2000 - count);
        // A deletion of little does not make RocksDB write everything anew.
        let before = tables(&files);
        if let Some((key, _)) = there.first() {
            database.write(&[Change::Delete(Family::Omap, key.clone())]).unwrap();
            database.make_room().unwrap();
            let after = tables(&files);
            assert!(before.iter().all(|table| after.contains(table)), "{what}; {before:?} {after:?}");
        }
    }
}

/// A table of deleted ranges that are far apart would lie above all that is between them, and a full drive has no room to write that anew at once.
#[test]
fn ranges_far_apart_are_compacted_apart() {
    let drive = Emulator::memory(&config()).unwrap();
    BlueFs::format(&drive_of(Arc::new(drive.clone())), false).unwrap();
    let options =
        DatabaseOptions { memtable_bytes: 64 << 10, cache_bytes: 1 << 20, table_bytes: 0, look: false, create: true };
    let (database, files) = open(&drive, options);
    let (mut rng, mut value, mut there) = (ChaCha8Rng::seed_from_u64(3), vec![0; 2000], 0..0u16);
    let key = |n: u16| n.to_be_bytes().to_vec();
    // Compactions give room back, but for what is kept.
    while files.space().free > 4 << 20 {
        while files.space().free > 3 << 20 {
            rng.fill_bytes(&mut value);
            database.write(&[Change::Put(Family::Omap, key(there.end), value.clone())]).unwrap();
            there.end += 1;
        }
        database.make_room().unwrap();
    }
    // Tables go to the last level with what is deleted first.
    let delete = |from: u16, to: u16| Change::DeleteRange(Family::Omap, key(from), key(to));
    database.write(&[delete(there.end / 2, there.end / 2 + 1000)]).unwrap();
    database.make_room().unwrap();
    let before = bytes_of_tables(&files);
    println!("{} keys in {before} bytes of tables, {} bytes are free", there.end, files.space().free);
    database.write(&[delete(0, 700), delete(there.end - 700, there.end)]).unwrap();
    database.make_room().unwrap();
    assert!(bytes_of_tables(&files) < before - 1400 * 2000, "{} of {before}", bytes_of_tables(&files));
    let left = database.pairs(Family::Omap, b"", None, usize::MAX).unwrap();
    assert_eq!(left.len(), usize::from(there.end) - 2400);
    database.write(&[Change::Put(Family::Omap, key(0), value)]).unwrap();
}

/// RocksDB compacts these by itself when there is a fourth.
#[test]
fn what_is_deleted_is_room_where_no_table_has_left_the_first_level() {
    let drive = Emulator::memory(&config()).unwrap();
    BlueFs::format(&drive_of(Arc::new(drive.clone())), false).unwrap();
    let options =
        DatabaseOptions { memtable_bytes: 256 << 10, cache_bytes: 0, table_bytes: 0, look: false, create: true };
    let (database, files) = open(&drive, options);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut value = vec![0; 2000];
    for n in 0..2 {
        for key in 0..50 {
            rng.fill_bytes(&mut value);
            database.write(&[Change::Put(Family::Omap, vec![n, key], value.clone())]).unwrap();
        }
        database.make_room().unwrap();
        assert_eq!(tables(&files).len(), usize::from(n) + 1);
    }
    database.write(&[Change::DeleteRange(Family::Omap, vec![0], vec![2])]).unwrap();
    database.make_room().unwrap();
    assert_eq!(tables(&files), []);
}
