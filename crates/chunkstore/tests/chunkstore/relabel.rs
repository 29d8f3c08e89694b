//! A drive that has lost both copies of its label: what a salvage makes anew from the heads of the zones, and what it leaves alone.

use crate::drive_support::Watched;
use crate::support::{bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::format::ZoneUse;
use imbrex_chunkstore::{ChunkId, ChunkStore, Error, Options, Relabel, StreamType, TENANT};
use imbrex_device::{AlignedBuf, Cause, Drive, Tag, Written, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::label::KEPT;
use imbrex_zones::{Volume, ZoneHeader};
use std::collections::BTreeMap;

const TAG: Tag = Tag::new(Cause::Other);
const SIZE: u64 = 256 << 10;
const UUID: [u8; 16] = *b"chunkstore-tests";

type Expected = BTreeMap<ChunkId, (Vec<u8>, bool)>;

/// With the label in conventional zones, and in rings.
fn drives() -> [Config; 2] {
    [config(), Config { conventional: 0, ..config() }]
}

/// A store with chunks that are open, sealed and deleted, checkpoints, and zones that were given back; what must be found again.
fn history(emulator: &Emulator) -> Expected {
    format(emulator);
    let store = ChunkStore::open(drive(emulator), options()).unwrap();
    let mut expected = BTreeMap::new();
    for n in 0..40u64 {
        store.create(id(n), StreamType::new(n as u8 % 3).unwrap()).unwrap();
        let all = bytes(30_000 + n as usize, n);
        store.append(id(n), &all).unwrap();
        expected.insert(id(n), (all, n % 4 == 1));
        if n % 4 == 1 {
            store.seal(id(n)).unwrap();
        }
        if n % 3 == 2 {
            store.delete(id(n - 1)).unwrap();
            expected.remove(&id(n - 1));
        }
        if n == 20 {
            store.clean(1 << 20).unwrap();
            store.checkpoint().unwrap();
        }
    }
    expected
}

/// A zone that the last checkpoint has is given back and reset, and no checkpoint says so, when the label is lost.
#[test]
fn a_zone_that_was_reset_since_the_checkpoint_is_free() {
    for config in drives() {
        let emulator = Emulator::memory(&config).unwrap();
        let mut expected = history(&emulator);
        // Zones are always short, so that each is given back soon.
        let hurried = Options { clean_below: Some(1000), ..options() };
        let store = ChunkStore::open(drive(&emulator), hurried).unwrap();
        for n in 100..110u64 {
            store.create(id(n), StreamType::DATA).unwrap();
            store.append(id(n), &bytes(120_000, n)).unwrap();
            store.seal(id(n)).unwrap();
        }
        store.checkpoint().unwrap();
        let used =
            |emulator: &Emulator| zones_of(emulator).iter().filter(|zone| zone.state != ZoneState::Empty).count();
        let before = used(&emulator);
        (100..110).for_each(|n| store.delete(id(n)).unwrap());
        store.step().unwrap();
        while store.volume().step().unwrap() {}
        assert!(used(&emulator) < before, "no zone was reset");
        let killed = emulator.fork().unwrap();
        lose_label(&killed, false);
        let store = salvage(&killed, Relabel::Only).unwrap();
        compare(&store, &expected, "relabelled");
        store.create(id(200), StreamType::DATA).unwrap();
        store.append(id(200), &bytes(200_000, 200)).unwrap();
        expected.insert(id(200), (bytes(200_000, 200), false));
        drop(store);
        compare(&ChunkStore::open(drive(&killed), options()).unwrap(), &expected, "opened again");
    }
}

fn zones_of(emulator: &Emulator) -> Vec<Zone> {
    report_all(emulator).unwrap()
}

/// Both copies of the label are gone: unreadable, or overwritten.
fn lose_label(emulator: &Emulator, unreadable: bool) {
    let conventional = zones_of(emulator)[0].state == ZoneState::Conventional;
    for zone in 0..2u32 {
        let at = u64::from(zone) * SIZE;
        if unreadable {
            let len = if conventional { 32 << 10 } else { SIZE };
            emulator.faults().media_error(at, len);
        } else if conventional {
            emulator.write_at(&AlignedBuf::zeroed(32 << 10), at, TAG).unwrap();
        } else {
            emulator.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).unwrap();
            emulator.write_at(&AlignedBuf::zeroed(8192), at, TAG).unwrap();
        }
    }
}

fn salvage(emulator: &Emulator, how: Relabel) -> imbrex_chunkstore::Result<ChunkStore> {
    ChunkStore::salvage_as(drive(emulator), options(), how, |_, _| {})
}

fn sentence(result: imbrex_chunkstore::Result<ChunkStore>) -> String {
    match result {
        Err(Error::Drive(error)) => error.to_string(),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it opened"),
    }
}

fn compare(store: &ChunkStore, expected: &Expected, what: &str) {
    let found: Vec<_> = store.list(None, 1000).iter().map(|info| (info.id, info.sealed)).collect();
    let wanted: Vec<_> = expected.iter().map(|(id, (_, sealed))| (*id, *sealed)).collect();
    assert_eq!(found, wanted, "{what}");
    for (id, (all, _)) in expected {
        assert!(&content(store, *id) == all, "{what}: {id}");
    }
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "{what}");
}

fn metazones(emulator: &Emulator) -> Vec<u32> {
    let tenant = Volume::open(drive(emulator), options().volume).unwrap().tenant(TENANT).unwrap();
    imbrex_zones::log::Root::decode(&tenant.root()).unwrap().zones
}

/// When the label says that the store is whole, nothing that it is made of can be lost with the drive's power.
#[test]
fn the_label_is_written_over_nothing_that_is_not_flushed() {
    for config in drives() {
        for metazones_lost in [false, true] {
            let emulator = Emulator::memory(&Config { write_cache: true, ..config.clone() }).unwrap();
            let expected = history(&emulator);
            if metazones_lost {
                for zone in metazones(&emulator) {
                    emulator.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).unwrap();
                }
            }
            lose_label(&emulator, false);
            let watched = Watched::new(emulator);
            let drive = Drive { device: watched.clone(), survivor: None };
            let store = ChunkStore::salvage_as(drive, options(), Relabel::Only, |_, _| {}).unwrap();
            let seen = watched.seen();
            assert!(seen.writes > 4 && seen.labels_over_unflushed == 0, "{}", seen.labels_over_unflushed);
            drop(seen);
            assert!(expected.keys().all(|id| store.stat(*id).is_ok()));
        }
    }
}

#[test]
fn with_whole_metazones_everything_is_as_it_was() {
    for config in drives() {
        for unreadable in [true, false] {
            let emulator = Emulator::memory(&config).unwrap();
            let expected = history(&emulator);
            let what = format!("{} conventional, unreadable {unreadable}", config.conventional);
            lose_label(&emulator, unreadable);
            let before = zones_of(&emulator);
            let error = ChunkStore::open(drive(&emulator), options()).err().unwrap().to_string();
            assert!(!unreadable || error.contains("imbrex chunk salvage"), "{error}");
            let error = sentence(salvage(&emulator, Relabel::No));
            assert!(error.contains("--relabel") && error.contains("6368756e-6b73-746f-7265-2d7465737473"), "{error}");
            assert_eq!(zones_of(&emulator), before, "{what}: nothing was changed without being asked");
            let store = salvage(&emulator, Relabel::Only).unwrap();
            let report = store.open_report().clone();
            let new = report.relabelled.unwrap();
            assert_eq!((new.store.volume, new.kept), (UUID, 0), "{what}");
            assert!(new.store.metazones >= 2 && new.store.datazones >= 3, "{new:?}");
            assert_eq!(report.damage, Vec::<String>::new(), "{what}");
            compare(&store, &expected, &what);
            store.create(id(500), StreamType::DATA).unwrap();
            store.append(id(500), b"after").unwrap();
            drop(store);
            let store = ChunkStore::open(drive(&emulator), options()).unwrap();
            assert_eq!(content(&store, id(500)), b"after", "{what}");
            store.delete(id(500)).unwrap();
            compare(&store, &expected, &what);
            assert_eq!(store.volume().uuid(), UUID);
            // With a label there is nothing to be made anew.
            drop(store);
            let store = salvage(&emulator, Relabel::Only).unwrap();
            assert_eq!(store.open_report().relabelled, None);
        }
    }
}

/// The head of a metazone is lost, too: the new label does not know of it, and what stood in it alone must not be missed.
#[test]
fn a_lost_metazone_is_noticed_and_the_records_are_read() {
    for config in drives() {
        let emulator = Emulator::memory(&config).unwrap();
        let mut expected = history(&emulator);
        // Mounts that no zone's head tells of.
        for _ in 0..9 {
            drop(ChunkStore::open(drive(&emulator), options()).unwrap());
        }
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        store.delete(id(0)).unwrap();
        store.create(id(0), StreamType::DATA).unwrap();
        store.append(id(0), b"late").unwrap();
        drop(store);
        expected.insert(id(0), (b"late".to_vec(), false));
        for zone in metazones(&emulator) {
            // All of the journal that was written last, in both copies.
            let written = zones_of(&emulator)[zone as usize].written();
            if !matches!(written, Written::To(0)) {
                emulator.faults().media_error(u64::from(zone) * SIZE, SIZE);
            }
        }
        lose_label(&emulator, true);
        let store = salvage(&emulator, Relabel::Only).unwrap();
        assert!(store.open_report().scanned_zones > 2, "{:?}", store.open_report());
        assert!(store.open_report().relabelled.unwrap().kept > 0, "nobody can tell that they were metazones");
        for (id, (all, _)) in &expected {
            assert!(&content(&store, *id) == all, "{id}");
            assert!(!store.stat(*id).unwrap().sealed, "nothing tells");
        }
        assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        // Numbers go on behind those of mounts that the lost label counted: of two chunks of one name the later one counts.
        let again = *expected.keys().next().unwrap();
        store.delete(again).unwrap();
        store.create(again, StreamType::DATA).unwrap();
        store.append(again, b"anew").unwrap();
        drop(store);
        let store = salvage(&emulator, Relabel::No).unwrap();
        assert_eq!(content(&store, again), b"anew");
    }
}

/// Only one of a ring's metazones is lost, the newest: what the other copy says is enough, but zones are read to be sure.
#[test]
fn one_lost_metazone_loses_nothing() {
    for which in 0..6 {
        let emulator = Emulator::memory(&config()).unwrap();
        let expected = history(&emulator);
        let zone = metazones(&emulator)[which];
        emulator.faults().media_error(u64::from(zone) * SIZE, SIZE);
        lose_label(&emulator, true);
        let store = salvage(&emulator, Relabel::Only).unwrap();
        for (id, (all, _)) in &expected {
            assert!(&content(&store, *id) == all, "{which}: {id}");
        }
        assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    }
}

/// Copies what is written in a zone of one drive into an empty zone of the same number of another.
fn copy_zone(from: &Emulator, to: &Emulator, zone: u32) {
    let Written::To(len) = zones_of(from)[zone as usize].written() else { panic!("zone {zone}") };
    let mut buf = AlignedBuf::zeroed(len as usize);
    from.read_at(&mut buf, u64::from(zone) * SIZE, TAG).unwrap();
    to.write_at(&buf, u64::from(zone) * SIZE, TAG).unwrap();
}

fn bytes_of(emulator: &Emulator, zone: u32) -> Vec<u8> {
    let mut buf = AlignedBuf::zeroed(SIZE as usize);
    emulator.read_at(&mut buf, u64::from(zone) * SIZE, TAG).unwrap();
    buf.to_vec()
}

/// Until there is no room any more; everything again after half of it was deleted.
fn fill(store: &ChunkStore) {
    for round in 0..3u64 {
        for n in 1000.. {
            let chunk = id(n + round * 1000);
            if store.create(chunk, StreamType::DATA).is_err() || store.append(chunk, &bytes(200_000, n)).is_err() {
                break;
            }
        }
        let all = store.list(None, 10_000);
        all.iter().filter(|info| info.id >= id(1000)).step_by(2).for_each(|info| store.delete(info.id).unwrap());
        while store.step().unwrap() {}
    }
}

/// Of a zone of the volume.
fn header(zone: u32) -> ZoneHeader {
    ZoneHeader {
        volume: UUID,
        owner: 1,
        kind: ZoneUse::Data(StreamType::DATA).kind(),
        file: 0,
        life: 77,
        logical: 0,
        created: 5,
        zone,
        mount: 1,
        name: String::new(),
    }
}

#[test]
fn zones_of_others_are_kept_as_they_are() {
    for config in drives() {
        // An older volume, of which zones were left over.
        let old = Emulator::memory(&config).unwrap();
        let other = imbrex_chunkstore::FormatOptions { uuid: Some([7; 16]), force: false };
        ChunkStore::format(&drive(&old), &other).unwrap();
        let store = ChunkStore::open(drive(&old), options()).unwrap();
        (0..60).for_each(|n| {
            store.create(id(n), StreamType::DATA).unwrap();
            store.append(id(n), &bytes(100_000, n)).unwrap();
        });
        let used: Vec<u32> = store.zones().iter().filter(|zone| zone.live > 0).map(|zone| zone.zone).collect();
        drop(store);
        let emulator = Emulator::memory(&config).unwrap();
        let expected = history(&emulator);
        let is_empty = |zone: &&u32| zones_of(&emulator)[**zone as usize].state == ZoneState::Empty;
        let left = *used.iter().rev().find(is_empty).unwrap();
        copy_zone(&old, &emulator, left);
        // A file of another engine, and bytes of nobody.
        let (file, unknown) = (left - 1, left - 2);
        assert!([file, unknown].iter().all(|zone| is_empty(&zone)), "{used:?}");
        let mut block = AlignedBuf::zeroed(8192);
        ZoneHeader { owner: 2, kind: 1, name: "000005.sst".into(), ..header(file) }.encode_into(&mut block);
        emulator.write_at(&block, u64::from(file) * SIZE, TAG).unwrap();
        block.fill(0xab);
        emulator.write_at(&block, u64::from(unknown) * SIZE, TAG).unwrap();
        lose_label(&emulator, false);

        let error = sentence(salvage(&emulator, Relabel::Only));
        for part in ["2 chunk stores", "--volume", "07070707-0707", "6368756e-6b73", "1 zones of chunks"] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
        let error = sentence(salvage(&emulator, Relabel::Volume([9; 16])));
        assert!(error.contains("09090909-0909") && error.contains("07070707-0707"), "{error}");
        let kept = [left, file, unknown];
        let before: Vec<_> = kept.iter().map(|zone| bytes_of(&emulator, *zone)).collect();
        let store = salvage(&emulator, Relabel::Volume(UUID)).unwrap();
        assert_eq!(store.open_report().relabelled.unwrap().kept, 3);
        compare(&store, &expected, "beside others");
        fill(&store);
        for (id, (all, _)) in &expected {
            assert!(&content(&store, *id) == all, "{id}");
        }
        drop(store);
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        store.clean(u64::MAX).unwrap();
        fill(&store);
        let after: Vec<_> = kept.iter().map(|zone| bytes_of(&emulator, *zone)).collect();
        assert!(before == after, "a zone that is somebody else's was written");
        for (tenant, zones) in [(KEPT, vec![unknown, left]), ("unknown-2", vec![file])] {
            let of = store.volume().tenant(tenant).unwrap().unadopted();
            assert_eq!(of.into_iter().map(|zone| zone.0).collect::<Vec<_>>(), zones, "{tenant}");
        }
    }
}

/// A salvage that fails on the way has changed nothing but the label, and until one comes to its end nothing else opens the store.
#[test]
fn a_salvage_that_fails_is_repeated() {
    let emulator = Emulator::memory(&config()).unwrap();
    let expected = history(&emulator);
    lose_label(&emulator, false);
    let (mut failed, mut unfinished) = (0, 0);
    for nth in 1..20 {
        let emulator = emulator.fork().unwrap();
        emulator.faults().fail_write(nth, 0);
        if let Ok(store) = salvage(&emulator, Relabel::Only) {
            compare(&store, &expected, "it did not matter");
            continue;
        }
        failed += 1;
        emulator.faults().clear();
        let error = match ChunkStore::open(drive(&emulator), options()) {
            // It was at its very end: one of the label's copies says so.
            Ok(store) => {
                compare(&store, &expected, "at the end");
                continue;
            }
            Err(error) => error.to_string(),
        };
        assert!(error.contains("imbrex chunk salvage") || error.contains("no Imbrex label"), "{nth}: {error}");
        unfinished += usize::from(error.contains("`imbrex chunk salvage` again"));
        let store = salvage(&emulator, Relabel::Only).unwrap();
        compare(&store, &expected, "again");
    }
    assert!(failed > 3 && unfinished > 2, "{failed} {unfinished}");
}

#[test]
fn what_cannot_be_relabelled_says_why_and_stays_as_it_is() {
    let empty = Emulator::memory(&config()).unwrap();
    let error = sentence(salvage(&empty, Relabel::Only));
    assert!(error.contains("no zone of it was ever written by a chunk store"), "{error}");
    // A label of another version is none that was lost.
    let emulator = Emulator::memory(&config()).unwrap();
    history(&emulator);
    let drive_of = drive(&emulator);
    let label = imbrex_zones::label::Label::encoded_len(64);
    for zone in 0..2 {
        let mut block = AlignedBuf::zeroed(label.next_multiple_of(4096));
        emulator.read_at(&mut block, zone * SIZE, TAG).unwrap();
        block[8] = 9;
        block[16..20].fill(0);
        let crc = crc32c::crc32c(&block[..label]);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        emulator.write_at(&block, zone * SIZE, TAG).unwrap();
    }
    let before = bytes_of(&emulator, 0);
    let error = sentence(ChunkStore::salvage_as(drive_of, options(), Relabel::Only, |_, _| {}));
    assert!(error.contains("another version of Imbrex"), "{error}");
    assert!(bytes_of(&emulator, 0) == before);
    // Where the label would stand, chunks do: the drive had other conventional zones when it was formatted.
    let emulator = Emulator::memory(&Config { conventional: 0, ..config() }).unwrap();
    history(&emulator);
    lose_label(&emulator, false);
    emulator.zone_op(ZoneOp::Reset, ZoneId(1), TAG).unwrap();
    let mut head = AlignedBuf::zeroed(4096);
    header(1).encode_into(&mut head);
    emulator.write_at(&head, SIZE, TAG).unwrap();
    let error = sentence(salvage(&emulator, Relabel::Only));
    assert!(error.contains("in zone 1, something else does"), "{error}");
    assert!(bytes_of(&emulator, 1)[..4096] == head[..]);
    // Dead zones in front: nobody can tell where a label stood.
    let emulator = Emulator::memory(&config()).unwrap();
    history(&emulator);
    lose_label(&emulator, false);
    (0..4).for_each(|zone| emulator.faults().make_offline(ZoneId(zone)).unwrap());
    let error = sentence(salvage(&emulator, Relabel::Only));
    assert!(error.contains("nobody can tell where the label stood"), "{error}");
}
