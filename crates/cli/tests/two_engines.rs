//! One drive, two tenants: files for a database and chunks of object data, each with its own zones.

use imbrex_bluefs::salvage::Salvage;
use imbrex_bluefs::{BlueFs, CreateOptions};
use imbrex_chunkstore::{ChunkId, ChunkStore, Options, Relabel, StreamType};
use imbrex_device::{AlignedBuf, Cause, Drive, HeapSurvivor, Tag, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::log::format::{LOG_KIND, LogHead};
use imbrex_zones::{Budget, Exec, FormatOptions, TenantSpec, Volume, VolumeOptions, ZoneHeader};
use std::sync::Arc;

/// An engine that this program does not know.
const THIRD: &str = "third";
const TAG: Tag = Tag::new(Cause::Other);

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
    formatted_as(&Config::tiny())
}

fn formatted_as(config: &Config) -> (Emulator, Drive) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    let tenant = |name: &str, budget| TenantSpec { name: name.into(), budget };
    let tenants = vec![
        tenant(imbrex_bluefs::TENANT, imbrex_bluefs::BUDGET),
        tenant(imbrex_chunkstore::TENANT, imbrex_chunkstore::budget(drive.device.geometry().zones)),
        tenant(THIRD, Budget::keeping(0, 0)),
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

fn lose_label(emulator: &Emulator) {
    for zone in &report_all(emulator).unwrap()[..2] {
        if zone.state == ZoneState::Conventional {
            emulator.write_at(&AlignedBuf::zeroed(64 << 10), emulator.geometry().start(zone.id), TAG).unwrap();
        } else {
            emulator.zone_op(ZoneOp::Reset, zone.id, TAG).unwrap();
        }
    }
    emulator.flush(TAG).unwrap();
}

/// A drive with files, chunks and zones of a third engine, whose label is lost. The zones of the third engine: its log, and another.
fn without_label(config: &Config) -> (Emulator, Drive, [u32; 2]) {
    let (emulator, drive) = formatted_as(config);
    let fs = files(&drive);
    for n in 0..3 {
        let mut file = fs.create(&format!("/{n}.sst"), CreateOptions::default()).unwrap();
        file.append(&bytes(700_000, n)).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
    }
    fs.create("/CURRENT", CreateOptions::default()).unwrap().append(b"MANIFEST-1").unwrap();
    drop(fs);
    let store = chunks(&drive);
    for n in 0..3 {
        let id = ChunkId::of_number(u64::from(n));
        store.create(id, StreamType::new(n).unwrap()).unwrap();
        store.append(id, &bytes(300_000, n)).unwrap();
    }
    drop(store);
    let third = Volume::open(drive.clone(), volume_options()).unwrap().tenant(THIRD).unwrap();
    third.begin().unwrap();
    third.adoption_done();
    third.recovered().unwrap();
    let zones = [0; 2].map(|_| third.take(imbrex_zones::Urgency::User).unwrap().0);
    let header = |zone: u32, kind, name: &str| ZoneHeader {
        volume: [7; 16],
        owner: 3,
        kind,
        file: 0,
        life: 9,
        logical: 0,
        created: 5,
        zone,
        mount: 1,
        name: name.into(),
    };
    let log = LogHead {
        volume: [7; 16],
        zone: zones[0],
        tenant: THIRD.into(),
        owner: 3,
        copy: 0,
        copies: 1,
        zones: 2,
        life: 9,
        order: 1,
        created: 5,
    };
    let mut other = AlignedBuf::zeroed(4096);
    header(zones[1], 0x77, "").encode_into(&mut other);
    for (zone, block) in zones.into_iter().zip([log.encode(), other]) {
        emulator.write_at(&block, emulator.geometry().start(ZoneId(zone)), TAG).unwrap();
    }
    drop(third);
    lose_label(&emulator);
    (emulator, drive, zones)
}

/// The headers of all zones that have one, by zone.
fn headers(emulator: &Emulator) -> Vec<ZoneHeader> {
    let mut block = AlignedBuf::zeroed(4096);
    let written = report_all(emulator).unwrap().into_iter().filter(|zone| zone.wp.is_some_and(|wp| wp > 0));
    let read = |zone: imbrex_device::Zone| {
        emulator.read_at(&mut block, emulator.geometry().start(zone.id), TAG).ok()?;
        ZoneHeader::decode(&block)
    };
    written.filter_map(read).collect()
}

fn zones_with(emulator: &Emulator, owner: u8) -> Vec<u32> {
    headers(emulator).into_iter().filter(|header| header.owner == owner).map(|header| header.zone).collect()
}

fn all_files_are_there(fs: &BlueFs) {
    for n in 0..3 {
        let mut out = vec![0; 700_000];
        assert_eq!(fs.open_read(&format!("/{n}.sst")).unwrap().read_at(0, &mut out).unwrap(), out.len());
        assert!(out == bytes(700_000, n), "{n}");
    }
    assert_eq!(fs.stat("/CURRENT").unwrap().size, 10);
}

fn all_chunks_are_there(store: &ChunkStore) {
    for n in 0..3 {
        let mut out = vec![0; 300_000];
        assert_eq!(store.read(ChunkId::of_number(u64::from(n)), 0, &mut out).unwrap(), out.len());
        assert!(out == bytes(300_000, n), "{n}");
    }
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

fn relabelled(drive: &Drive) -> ChunkStore {
    let options = Options { volume: volume_options(), ..Options::default() };
    ChunkStore::salvage_as(drive.clone(), options, Relabel::Only, |_, _| {}).unwrap()
}

/// Whose zones are, as a volume says; what is not the tenant's by its header may be empty ones of its log.
fn owns(volume: &Volume, tenant: &str, zones: &[u32]) {
    let owned = volume.tenant(tenant).unwrap().unadopted();
    assert!(zones.iter().all(|zone| owned.contains(&ZoneId(*zone))), "{tenant}: {owned:?} without some of {zones:?}");
}

/// Conventional zones for the label, and rings.
fn drives() -> [Config; 2] {
    [Config::tiny(), Config { conventional: 0, ..Config::tiny() }]
}

#[test]
fn without_its_label_a_drive_comes_back_with_all_engines_whichever_salvages() {
    for config in drives() {
        let (emulator, drive, third) = without_label(&config);
        let of_chunks = zones_with(&emulator, 2);
        let before = report_all(&emulator).unwrap();
        for every_block in [false, true] {
            let found = Salvage::search(&drive, every_block, &mut |_, _| {}).unwrap();
            let fs = found.fs().unwrap();
            all_files_are_there(fs);
            assert_eq!((found.gone().len(), found.notes().len()), (0, 1), "{:?}", found.notes());
            owns(fs.volume(), imbrex_chunkstore::TENANT, &of_chunks);
            owns(fs.volume(), THIRD, &third);
        }
        assert_eq!(report_all(&emulator).unwrap(), before, "bluefs salvages in memory");

        let store = relabelled(&drive);
        assert!(store.open_report().relabelled.unwrap().kept > 0);
        assert_eq!(store.open_report().damage, Vec::<String>::new());
        all_chunks_are_there(&store);
        owns(store.volume(), THIRD, &third);
        let root = store.volume().tenant(THIRD).unwrap().root();
        let root = imbrex_zones::log::Root::decode(&root).unwrap();
        assert!(root.zones.len() == 2 && root.zones.contains(&third[0]) && root.unfinished, "{root:?}");
        assert!(store.volume().tenant(imbrex_zones::label::KEPT).is_err(), "nothing is in doubt");
        drop(store);
        for round in 3..6 {
            let fs = files(&drive);
            assert!(fs.mount_report().damage.is_empty(), "{:?}", fs.mount_report());
            all_files_are_there(&fs);
            let mut file = fs.create(&format!("/{round}.sst"), CreateOptions::default()).unwrap();
            file.append(&bytes(700_000, round)).unwrap();
            file.sync().unwrap();
            file.close().unwrap();
            assert!(fs.check(|_, _| {}).unwrap().problems.is_empty());
            drop((file, fs));
            let store = chunks(&drive);
            all_chunks_are_there(&store);
            let id = ChunkId::of_number(u64::from(round));
            store.create(id, StreamType::DATA).unwrap();
            store.append(id, &bytes(300_000, round)).unwrap();
        }
        owns(&Volume::open(drive, volume_options()).unwrap(), THIRD, &third);
    }
}

/// Zones of which nobody can tell go to the engine whose journal speaks of them; and it searches its zones, since one might have been of its journal.
#[test]
fn a_zone_without_a_header_goes_to_the_engine_that_knows_it() {
    for config in drives() {
        let (emulator, drive, third) = without_label(&config);
        let header = headers(&emulator).into_iter().find(|header| header.name == "1.sst").unwrap();
        emulator.faults().media_error(emulator.geometry().start(ZoneId(header.zone)), 4096);
        let store = relabelled(&drive);
        all_chunks_are_there(&store);
        owns(store.volume(), imbrex_zones::label::KEPT, &[header.zone]);
        drop(store);
        let unfinished = |drive: &Drive| {
            let tenant = Volume::open(drive.clone(), volume_options()).unwrap().tenant(imbrex_bluefs::TENANT).unwrap();
            imbrex_zones::log::Root::decode(&tenant.root()).unwrap().unfinished
        };
        assert!(unfinished(&drive));
        let fs = files(&drive);
        assert!(!fs.mount_report().clean);
        all_files_are_there(&fs);
        drop(fs);
        assert!(!unfinished(&drive));
        let fs = files(&drive);
        assert!(fs.mount_report().clean, "{:?}", fs.mount_report());
        all_files_are_there(&fs);
        drop(fs);
        owns(&Volume::open(drive.clone(), volume_options()).unwrap(), THIRD, &third);
        all_chunks_are_there(&chunks(&drive));
    }
}

/// The engine's name is lost with its log. Its zones are nobody else's, and another engine's salvage finds what it can all the same.
#[test]
fn an_engine_whose_log_is_lost_keeps_its_zones() {
    for config in drives() {
        let (emulator, drive, _) = without_label(&config);
        let journal = headers(&emulator).into_iter().filter(|header| header.owner == 1 && header.kind == LOG_KIND);
        journal.for_each(|header| emulator.zone_op(ZoneOp::Reset, ZoneId(header.zone), TAG).unwrap());
        let of_files = zones_with(&emulator, 1);
        assert!(!of_files.is_empty());
        drop(relabelled(&drive));
        let options = || imbrex_bluefs::Options { volume: volume_options(), ..imbrex_bluefs::Options::default() };
        let error = BlueFs::mount(drive.clone(), options()).err().unwrap().to_string();
        assert!(error.contains("unknown-1") && error.contains("bluefs"), "{error}");
        let store = chunks(&drive);
        for n in 10.. {
            store.create(ChunkId::of_number(n), StreamType::DATA).unwrap();
            if store.append(ChunkId::of_number(n), &bytes(700_000, 1)).is_err() {
                break;
            }
        }
        drop(store);
        let found = Salvage::search(&drive, true, &mut |_, _| {}).unwrap();
        let mut lost: Vec<&str> = found.lost_files().iter().map(|file| file.name.as_str()).collect();
        lost.sort_unstable();
        assert_eq!(lost, ["0.sst", "1.sst", "2.sst"]);
        for file in found.lost_files() {
            let mut all = vec![0; 700_000];
            let mut put = |at: u64, bytes: &[u8]| {
                all[at as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            assert!(found.rebuild(file, &mut put).unwrap().is_empty());
            let seed = file.name.as_bytes()[0] - b'0';
            assert!(all == bytes(700_000, seed), "{}", file.name);
        }
    }
}

#[test]
fn a_drive_without_files_says_what_is_on_it() {
    let (emulator, drive) = formatted();
    let store = chunks(&drive);
    store.create(ChunkId::of_number(1), StreamType::DATA).unwrap();
    store.append(ChunkId::of_number(1), b"chunk").unwrap();
    drop(store);
    lose_label(&emulator);
    let error = Salvage::search(&drive, false, &mut |_, _| {}).err().unwrap().to_string();
    assert!(error.contains("has zones of chunkstore, and none of a file system"), "{error}");
}
