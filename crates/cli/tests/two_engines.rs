//! One drive, two tenants: files for a database and chunks of object data, each with its own zones.

use imbrex_bluefs::{BlueFs, CreateOptions};
use imbrex_chunkstore::{ChunkId, ChunkStore, Options, StreamType};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;

fn volume_options() -> VolumeOptions {
    VolumeOptions { exec: Exec::Inline, survivor_bytes: 2 << 20, unit_bytes: 16 << 10, turn_bytes: 1 << 20 }
}

fn files(drive: &Drive) -> BlueFs {
    let options =
        imbrex_bluefs::Options { cache_bytes: 0, volume: volume_options(), ..imbrex_bluefs::Options::default() };
    BlueFs::mount(drive.clone(), options).unwrap()
}

fn chunks(drive: &Drive) -> ChunkStore {
    ChunkStore::open(drive.clone(), Options { volume: volume_options(), ..Options::default() }).unwrap()
}

fn formatted() -> (Emulator, Drive) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    let tenant = |name: &str, budget| TenantSpec { name: name.into(), budget };
    let tenants = vec![
        tenant(imbrex_bluefs::TENANT, imbrex_bluefs::BUDGET),
        tenant(imbrex_chunkstore::TENANT, imbrex_chunkstore::budget(drive.device.geometry().zones)),
    ];
    Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
    (emulator, drive)
}

fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

#[test]
fn a_file_system_and_a_chunk_store_share_a_drive() {
    let (_, drive) = formatted();
    for round in 0..4u8 {
        let fs = files(&drive);
        for before in 0..round {
            let reader = fs.open_read(&format!("/{before}.sst")).unwrap();
            let mut out = vec![0; 700_000];
            assert!(reader.read_at(0, &mut out).unwrap() == out.len() && out == bytes(700_000, before));
        }
        let mut file = fs.create(&format!("/{round}.sst"), CreateOptions::default()).unwrap();
        file.append(&bytes(700_000, round)).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        drop((file, fs));

        let store = chunks(&drive);
        for before in 0..round {
            let mut out = vec![0; 600_000];
            assert_eq!(store.read(ChunkId::of_number(before.into()), 0, &mut out).unwrap(), out.len());
            assert!(out == bytes(600_000, before ^ 0x80));
        }
        let id = ChunkId::of_number(round.into());
        store.create(id, StreamType::GC).unwrap();
        store.append(id, &bytes(600_000, round ^ 0x80)).unwrap();
        // Closed or not.
        if round % 2 == 0 {
            store.close().unwrap();
        }
        assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
    }
    assert!(files(&drive).check(|_, _| {}).unwrap().problems.is_empty());
}

/// What a process that died had written to files and not synced is still there after the chunk store has had the drive.
#[test]
fn what_one_engine_s_dead_process_left_is_kept_by_the_other() {
    let (_, drive) = formatted();
    let fs = files(&drive);
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    log.append(b"not synced").unwrap();
    // The process dies: nothing is dropped.
    std::mem::forget((log, fs));
    let store = chunks(&drive);
    store.create(ChunkId::of_number(1), StreamType::DATA).unwrap();
    store.append(ChunkId::of_number(1), b"durable").unwrap();
    drop(store);
    let fs = files(&drive);
    let mut out = [0; 10];
    assert_eq!(fs.open_read("/000001.log").unwrap().read_at(0, &mut out).unwrap(), 10);
    assert_eq!(&out, b"not synced");
    drop(fs);
    assert_eq!(chunks(&drive).stat(ChunkId::of_number(1)).unwrap().len, 7);
}

/// A program that opens both engines by the drive's name has both at once.
#[test]
fn both_engines_are_opened_by_name_in_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("drive.img");
    drop(Emulator::create(&image, &Config::tiny(), false).unwrap());
    let uri = format!("imbrex://{}", image.display());
    let make = || {
        let drive = imbrex_drives::open(image.to_str().unwrap(), &imbrex_drives::OpenOptions::default()).unwrap();
        let fs = TenantSpec { name: imbrex_bluefs::TENANT.into(), budget: imbrex_bluefs::BUDGET };
        ChunkStore::format_shared(&drive, &imbrex_chunkstore::FormatOptions::default(), vec![fs]).unwrap();
    };
    make();
    let id = ChunkId::of_number(1);
    for (round, first) in [(0u8, true), (1, false)] {
        let open_fs = || BlueFs::open_uri_with(&uri, &[("cache", "1M")]).unwrap();
        let open_store = || ChunkStore::open_uri(&uri).unwrap();
        let (fs, store) = match first {
            true => {
                let fs = open_fs();
                (fs, open_store())
            }
            false => {
                let store = open_store();
                (open_fs(), store)
            }
        };
        // Side by side, from two threads.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = fs.create(&format!("/{round}.sst"), CreateOptions::default()).unwrap();
                file.append(&bytes(700_000, round)).unwrap();
                file.sync().unwrap();
                file.close().unwrap();
            });
            scope.spawn(|| {
                if round > 0 {
                    store.delete(id).unwrap();
                }
                store.create(id, StreamType::GC).unwrap();
                store.append(id, &bytes(600_000, round ^ 0x80)).unwrap();
            });
        });
        // One of them ends first; the other goes on.
        if first {
            drop(fs);
            let again = BlueFs::open_uri_with(&uri, &[("cache", "1M")]).err().unwrap().to_string();
            assert!(again.contains("bluefs has been closed") && again.contains("close that one, too"), "{again}");
            store.append(id, b"more").unwrap();
            store.close().unwrap();
        } else {
            drop(store);
            assert!(fs.check(|_, _| {}).unwrap().problems.is_empty());
            fs.create("/LOG", CreateOptions::default()).unwrap().append(b"unsynced").unwrap();
        }
    }
    // All was let go of: each by itself finds what it had.
    let fs = BlueFs::open_uri_with(&uri, &[("cache", "1M")]).unwrap();
    for round in 0..2 {
        let mut out = vec![0; 700_000];
        assert_eq!(fs.open_read(&format!("/{round}.sst")).unwrap().read_at(0, &mut out).unwrap(), out.len());
        assert!(out == bytes(700_000, round));
    }
    assert_eq!(fs.stat("/LOG").unwrap().size, 8);
    assert!(fs.check(|_, _| {}).unwrap().problems.is_empty());
    drop(fs);
    let store = ChunkStore::open_uri(&uri).unwrap();
    let mut out = vec![0; 600_000];
    assert_eq!(store.read(id, 0, &mut out).unwrap(), out.len());
    assert!(out == bytes(600_000, 1 ^ 0x80) && store.check(|_, _| {}).unwrap().problems.is_empty());
}

/// A drive that limits active zones to what both need at least, and to some more: neither engine breaks its rules, whatever the other writes.
#[test]
fn both_engines_write_more_files_and_chunks_than_the_drive_has_active_zones() {
    for limit in [10, 13] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        let config = Config {
            conventional: 0,
            max_open: Some(limit),
            max_active: Some(limit),
            rotational: false,
            reads_cross_zones: false,
            reads_above_wp: false,
            zone_capacity: 768 << 10,
            capacity: 128 << 20,
            ..Config::tiny()
        };
        drop(Emulator::create(&image, &config, false).unwrap());
        let uri = format!("imbrex://{}", image.display());
        let drive = imbrex_drives::open(image.to_str().unwrap(), &imbrex_drives::OpenOptions::default()).unwrap();
        let fs = TenantSpec { name: imbrex_bluefs::TENANT.into(), budget: imbrex_bluefs::BUDGET };
        ChunkStore::format_shared(&drive, &imbrex_chunkstore::FormatOptions::default(), vec![fs]).unwrap();
        drop(drive);
        for round in 0..3u8 {
            let fs = BlueFs::open_uri_with(&uri, &[("cache", "1M")]).unwrap();
            let store = ChunkStore::open_uri(&uri).unwrap();
            let files = 0..2 * limit as u8;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let create = |i| fs.create(&format!("/{round}-{i}.sst"), CreateOptions::default()).unwrap();
                    let mut writers: Vec<_> = files.clone().map(create).collect();
                    for piece in 0..4 {
                        for (writer, i) in writers.iter_mut().zip(files.clone()) {
                            writer.append(&bytes(70_000, i ^ piece)).unwrap();
                            writer.sync().unwrap();
                        }
                    }
                    writers.iter_mut().for_each(|writer| writer.close().unwrap());
                });
                scope.spawn(|| {
                    for piece in 0..4 {
                        for i in files.clone() {
                            let id = ChunkId::of_number(u64::from(round) << 8 | u64::from(i));
                            if piece == 0 {
                                store.create(id, StreamType::new(i % 3).unwrap()).unwrap();
                            }
                            store.append(id, &bytes(70_000, i ^ piece)).unwrap();
                        }
                    }
                });
            });
            for i in files.clone() {
                let whole: Vec<u8> = (0..4).flat_map(|piece| bytes(70_000, i ^ piece)).collect();
                let mut out = vec![0; whole.len()];
                let file = fs.open_read(&format!("/{round}-{i}.sst")).unwrap();
                assert!(file.read_at(0, &mut out).unwrap() == out.len() && out == whole, "{limit}: file {i}");
                let id = ChunkId::of_number(u64::from(round) << 8 | u64::from(i));
                assert!(store.read(id, 0, &mut out).unwrap() == out.len() && out == whole, "{limit}: chunk {i}");
                if i % 2 == 0 {
                    fs.unlink(&format!("/{round}-{i}.sst")).unwrap();
                    store.delete(id).unwrap();
                }
            }
            assert!(fs.check(|_, _| {}).unwrap().problems.is_empty());
            assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
        }
    }
}

/// Who formats a drive for more engines than it has active zones for is told which need how many.
#[test]
fn a_drive_with_too_few_active_zones_for_both_is_refused() {
    let config = Config { conventional: 0, max_open: Some(9), max_active: Some(9), ..Config::tiny() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    let fs = TenantSpec { name: imbrex_bluefs::TENANT.into(), budget: imbrex_bluefs::BUDGET };
    let both = ChunkStore::format_shared(&drive, &imbrex_chunkstore::FormatOptions::default(), vec![fs]);
    let error = both.unwrap_err().to_string();
    assert!(
        error.contains("can have 7 active zones") && error.contains("bluefs 4") && error.contains("chunkstore 4"),
        "{error}"
    );
}
