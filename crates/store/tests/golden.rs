//! A store that an earlier build has written, with every kind of record: this one still opens it, and finds all of it.
//!
//! Changing a format means changing the image: run with `IMBREX_WRITE_GOLDEN=1`, and raise the version of what has changed once there was a release.

#[path = "../../kv/tests/kv/image.rs"]
#[allow(dead_code)]
mod image;
#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use image::{drive_of, packed, unpacked, zones_of};
use imbrex_bluestore::{Checksum, Compression};
use imbrex_device::Drive;
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, Hint, Import, ObjectId, Options, Salvage, Scratch, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;
use support::{Model, config};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
/// All objects have its hash, so that they stay together when the collection is divided.
const HASH: u32 = 0b10;

/// Records of blobs are read from the drive, so that changes of counts wait.
fn options(compression: Compression) -> Options {
    let checksum = if compression == Compression::Zstd { Checksum::Xxh3 } else { Checksum::Crc32c };
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata = imbrex_kv::Options {
        memtable_bytes: 16 << 10,
        table_bytes: 32 << 10,
        step_bytes: 20 << 10,
        cache_bytes: 0,
        segment_bytes: 16 << 10,
        ..imbrex_kv::Options::default()
    };
    Options {
        store: imbrex_bluestore::Options { compression, checksum, ..support::options() },
        metadata,
        volume,
        ..Options::default()
    }
}

fn open(drive: &Drive, compression: Compression) -> Store {
    Store::open(drive.clone(), options(compression)).unwrap()
}

fn id(name: &str) -> ObjectId {
    ObjectId { hash: HASH, ..ObjectId::new(1, b"ns", name.as_bytes()) }
}

fn commit(store: &Store, change: impl FnOnce(&mut Transaction)) {
    let mut transaction = Transaction::new();
    change(&mut transaction);
    store.commit(transaction).unwrap();
}

/// Bytes of which each block is another one, and which take few bytes where they are compressed.
fn text(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| b"all that is written of a store "[n % 31] ^ seed ^ (n >> 12) as u8 & 15).collect()
}

/// Writes it. Returns what it has.
fn written(drive: &Drive) -> Model {
    let raw = Hint { incompressible: true, ..Hint::default() };
    let store = open(drive, Compression::Lz4);
    commit(&store, |t| _ = t.create_collection(ALL, 0).create_collection(CollectionId { pool: -2, seed: 0 }, 0));
    // Blocks as they are, with grains of one block and of many; compressed ones; such that will be gone soon.
    commit(&store, |t| _ = t.hint(ALL, &id("raw"), raw).write(ALL, &id("raw"), 0, &text(600_000, 1)));
    let grains = Hint { immutable: true, write: 1 << 20, ..raw };
    commit(&store, |t| _ = t.hint(ALL, &id("grains"), grains).write(ALL, &id("grains"), 0, &text(300_000, 2)));
    commit(&store, |t| _ = t.hint(ALL, &id("gone"), raw).write(ALL, &id("gone"), 0, &text(300_000, 11)));
    commit(&store, |t| _ = t.write(ALL, &id("lz4"), 4096, &text(500_000, 3)));
    let short = Hint { short_lived: true, object: 1 << 20, ..raw };
    commit(&store, |t| _ = t.hint(ALL, &id("short"), short).write(ALL, &id("short"), 0, &text(50_000, 4)));
    // Shared as a whole, and in part at another offset; then written again in the middle.
    commit(&store, |t| _ = t.clone_object(ALL, &id("raw"), &id("clone")));
    commit(&store, |t| _ = t.clone_range(ALL, &id("raw"), &id("range"), (8192, 400_000, 40_960)));
    commit(&store, |t| _ = t.write(ALL, &id("raw"), 100_000, &text(30_000, 5)).zero(ALL, &id("raw"), 300_000, 50_000));
    commit(&store, |t| _ = t.write(ALL, &id("lz4"), 60_000, &text(70_000, 6)).truncate(ALL, &id("grains"), 250_000));
    for n in 0..12 {
        commit(&store, |t| _ = t.hint(ALL, &id("small"), raw).write(ALL, &id("small"), n * 9000, &text(4096, n as u8)));
    }
    commit(&store, |t| _ = t.remove(ALL, &id("short")).remove(ALL, &id("gone")));
    while store.pack().unwrap() {}
    assert!(store.clean(1 << 20).unwrap() > 0, "something has moved");
    commit(&store, |t| {
        t.set_attributes(ALL, &id("raw"), &[(b"name", b"value"), (b"", b""), (b"long", &text(3000, 7))]);
        t.omap_header(ALL, &id("map"), b"a header").omap_set(ALL, &id("map"), &[(b"", b"none"), (b"k\0", &[0, 255])]);
        t.omap_set(ALL, &id("raw"), &[(b"key", b"value")]);
    });
    let hashed = ObjectId { hash: 0b01, snap: u64::MAX - 1, generation: u64::MAX, ..id("hashed") };
    commit(&store, |t| _ = t.write(ALL, &hashed, 0, b"few").split_collection(ALL, CollectionId { pool: 1, seed: 1 }));
    store.scrub(|_| {}).unwrap();
    store.set_label(&[("who".into(), Some("golden".into()))]).unwrap();
    drop(store);
    let store = open(drive, Compression::Zstd);
    commit(&store, |t| _ = t.write(ALL, &id("zstd"), 0, &text(400_000, 8)));
    // Records of blobs are in tables behind this.
    for n in 0..60u8 {
        commit(&store, |t| _ = t.omap_set(ALL, &id("map"), &[(&[b'n', n], &text(1000, n))]));
    }
    // What waits at the end: bytes, and changes of counts.
    commit(&store, |t| {
        _ = t.write(ALL, &id("small"), 9000, b"it waits").write(ALL, &id("clone"), 204_800, &text(61_440, 9))
    });
    commit(&store, |t| _ = t.write(ALL, &id("range"), 98_304, &text(20_480, 10)));
    Model::of(&store).unwrap()
}

fn fresh() -> Drive {
    let drive = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
    Store::format(&drive, Some([7; 16]), false).unwrap();
    drive
}

#[test]
fn the_golden_store_is_still_read() {
    let drive = fresh();
    let model = written(&drive);
    let path = format!("{}/tests/golden/store", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("IMBREX_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, packed(&zones_of(drive.device.as_ref()))).unwrap();
    }
    let golden = unpacked(&std::fs::read(&path).unwrap());
    // What it has by its headers and its metadata, without an opening.
    let (_, drive) = drive_of(&config(), &golden);
    let scratch = Scratch::in_memory(&drive).unwrap();
    let found = Salvage::search(&drive, scratch, None, &mut tempfile::tempfile, &mut |_, _| {}).unwrap();
    assert!(found.is_whole() && found.walked().runs > 8, "{:?} {:?}", found.notes(), found.walked());
    let into = open(&fresh(), Compression::Off);
    let mut import = Import::new(&into, false).unwrap();
    let told = found.read(false, &mut import).unwrap();
    import.finish().unwrap();
    assert_eq!((told.objects, told.doubtful), (model.objects.len() as u64, 0));
    assert!(Model::of(&into).unwrap() == model);
    // Opened, as it is and with all that waits.
    let store = open(&drive, Compression::Off);
    assert!(store.damage().is_empty());
    let usage = store.usage();
    assert!(usage.deferred > 0 && usage.uncounted > 0 && store.scrubbed().ended > 0, "{usage:?}");
    assert_eq!(store.label().unwrap().pairs, [("who".to_owned(), "golden".to_owned())].into());
    assert!(Model::of(&store).unwrap() == model, "the golden store has others than were put");
    let hint = store.stat(ALL, &id("grains")).unwrap().hint;
    assert_eq!(hint, Hint { immutable: true, incompressible: true, write: 1 << 20, ..Hint::default() });
    // It goes on, and ends in the same.
    while store.pack().unwrap() {}
    store.clean(1 << 30).unwrap();
    assert_eq!(store.usage().deferred + store.usage().uncounted, 0);
    let report = store.check_all(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
    assert!(Model::of(&store).unwrap() == model);
}
