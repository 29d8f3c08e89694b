//! What damage costs: what stood there, and nothing else.

use crate::support::{bytes, config, content, drive, format, id, log_frames, options};
use imbrex_chunkstore::{ChunkId, ChunkStore, Error, StreamType, TENANT};
use imbrex_device::ZoneId;
use imbrex_emulator::Emulator;
use imbrex_zones::log::format::Kind;
use std::collections::BTreeMap;

/// Blocks of the drive that hold these bytes.
fn find(emulator: &Emulator, needle: &[u8]) -> u64 {
    let geometry = imbrex_device::ZonedDevice::geometry(emulator).clone();
    let mut block = imbrex_device::AlignedBuf::zeroed(geometry.zone_size as usize);
    for zone in 0..geometry.zones {
        let at = geometry.start(ZoneId(zone));
        let tag = imbrex_device::Cause::Other.into();
        imbrex_device::ZonedDevice::read_at(emulator, &mut block, at, tag).unwrap();
        if let Some(i) = block.windows(needle.len()).position(|window| window == needle) {
            return at + i as u64;
        }
    }
    panic!("it is nowhere on the drive");
}

#[test]
fn a_damaged_slice_is_named_and_the_rest_is_read() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let all = bytes(60_000, 3);
    store.create(id(1), StreamType::DATA).unwrap();
    store.append(id(1), &all).unwrap();
    let at = find(&emulator, &all[5 * 4096 + 10..5 * 4096 + 60]);
    emulator.faults().flip_bits(at, 1).unwrap();
    let mut out = vec![0; 60_000];
    match store.read(id(1), 0, &mut out) {
        Err(Error::Damaged { id: which, offset, zone }) => {
            assert_eq!((which, offset), (id(1), 5 * 4096));
            assert_eq!(u64::from(zone), at / (256 << 10));
        }
        other => panic!("{other:?}"),
    }
    let mut slice = vec![0; 4096];
    for i in (0..14).filter(|i| *i != 5) {
        assert_eq!(store.read(id(1), i * 4096, &mut slice).unwrap(), 4096, "slice {i}");
        assert!(slice == all[i as usize * 4096..(i as usize + 1) * 4096]);
    }
    assert_eq!(store.rescue_read(id(1), 0, &mut out).unwrap(), 60_000);
    assert_eq!(out.iter().zip(&all).filter(|(a, b)| a != b).count(), 1, "one byte is another one");
    let report = store.check(|_, _| {}).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].contains(&id(1).to_string()));
    let step = store.scrub(None, u64::MAX).unwrap();
    assert_eq!((step.next, step.problems.len()), (None, 1));
}

#[test]
fn a_scrub_goes_on_where_it_stopped() {
    let (_, store) = crate::support::fresh(&config());
    for n in 0..10 {
        store.create(id(n), StreamType::GC).unwrap();
        store.append(id(n), &bytes(9000, n)).unwrap();
    }
    let (mut next, mut steps, mut all) = (None, 0, 0);
    loop {
        let step = store.scrub(next, 20_000).unwrap();
        (next, steps, all) = (step.next, steps + 1, all + step.bytes);
        assert!(step.problems.is_empty());
        if next.is_none() {
            break;
        }
    }
    assert_eq!((all, steps), (90_000, 4));
}

/// A store with chunks that are open, sealed and deleted, and a checkpoint in the middle of it; what must be found again.
fn history(emulator: &Emulator) -> BTreeMap<ChunkId, (Vec<u8>, bool)> {
    let store = ChunkStore::open(drive(emulator), options()).unwrap();
    let mut expected = BTreeMap::new();
    for n in 0..30u64 {
        store.create(id(n), StreamType::new(n as u8 % 3).unwrap()).unwrap();
        let all = bytes(7000 + n as usize, n);
        store.append(id(n), &all).unwrap();
        expected.insert(id(n), (all, false));
        if n % 5 == 0 {
            // By way of another name, and of a chunk that another had this name before.
            store.name(&[("first", &[id(n)])], false).unwrap();
            store.name(&[(&format!("name/{n}"), &[id(n)])], false).unwrap();
        }
        if n % 4 == 1 {
            store.seal(id(n)).unwrap();
            expected.insert(id(n), (bytes(7000 + n as usize, n), true));
        }
        if n % 3 == 2 {
            store.delete(id(n - 1)).unwrap();
            expected.remove(&id(n - 1));
        }
        if n == 12 || n == 20 {
            store.checkpoint().unwrap();
        }
    }
    expected
}

/// The names of these chunks that [`history`] has given.
fn names<'a>(chunks: impl Iterator<Item = &'a ChunkId>) -> BTreeMap<String, Vec<ChunkId>> {
    let here: Vec<ChunkId> = chunks.copied().collect();
    let named = (0..30).step_by(5).filter(|n| here.contains(&id(*n)));
    named.map(|n| (format!("name/{n}"), vec![id(n)])).collect()
}

fn found_names(store: &ChunkStore) -> BTreeMap<String, Vec<ChunkId>> {
    let all = store.names(None, "", usize::MAX);
    all.into_iter().map(|found| (found.name.to_string(), store.named(&found.name).unwrap())).collect()
}

fn compare(store: &ChunkStore, expected: &BTreeMap<ChunkId, (Vec<u8>, bool)>, what: &str) {
    let found: Vec<_> = store.list(None, 1000).iter().map(|info| (info.id, info.sealed)).collect();
    let wanted: Vec<_> = expected.iter().map(|(id, (_, sealed))| (*id, *sealed)).collect();
    assert_eq!(found, wanted, "{what}");
    assert_eq!(found_names(store), names(expected.keys()), "{what}");
    for (id, (all, _)) in expected {
        assert!(&content(store, *id) == all, "{what}: {id}");
    }
}

/// Zones that hold records and no chunk: the metazones.
fn metazones(emulator: &Emulator) -> Vec<u32> {
    let store = ChunkStore::open(drive(emulator), options()).unwrap();
    let root = store.volume().tenant(TENANT).unwrap().root();
    imbrex_zones::log::Root::decode(&root).unwrap().zones
}

#[test]
fn one_lost_metazone_loses_nothing() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let zones = metazones(&emulator);
    assert_eq!(zones.len(), 6);
    let mut told = 0;
    for zone in zones {
        for kind in 0..3 {
            let emulator = Emulator::memory(&config()).unwrap();
            format(&emulator);
            let expected = history(&emulator);
            let what = format!("zone {zone}, kind {kind}");
            match kind {
                0 => emulator.faults().make_offline(ZoneId(zone)).unwrap(),
                1 => emulator.faults().make_read_only(ZoneId(zone)).unwrap(),
                _ => emulator.faults().media_error(u64::from(zone) * (256 << 10), 256 << 10),
            }
            let store = ChunkStore::open(drive(&emulator), options()).unwrap();
            told += usize::from(!store.open_report().damage.is_empty());
            compare(&store, &expected, &what);
            // It goes on, and that is found again.
            store.create(id(500), StreamType::DATA).unwrap();
            store.append(id(500), b"after").unwrap();
            drop(store);
            let store = ChunkStore::open(drive(&emulator), options()).unwrap();
            assert_eq!(content(&store, id(500)), b"after", "{what}");
            store.delete(id(500)).unwrap();
            compare(&store, &expected, &what);
        }
    }
    assert!(told > 0, "nothing was ever lost: the test does nothing");
}

/// A whole copy of the metadata takes no writes any more: the other one is all there is, checkpoints go on in it, and that is said.
#[test]
fn a_copy_of_the_metadata_that_dies_is_told_and_the_other_goes_on() {
    for (ring, reopened) in [(0, false), (1, false), (0, true), (1, true)] {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        let expected = history(&emulator);
        let zones: Vec<u32> = metazones(&emulator).into_iter().skip(ring).step_by(2).collect();
        let kill = || zones.iter().for_each(|zone| emulator.faults().make_read_only(ZoneId(*zone)).unwrap());
        let open = || ChunkStore::open(drive(&emulator), options()).unwrap();
        let mut store = open();
        let says = |told: &[String]| told.iter().any(|what| what.contains("One of the two copies"));
        kill();
        if reopened {
            drop(store);
            store = open();
            assert!(says(&store.open_report().damage), "{:?}", store.open_report());
        }
        // Several times what the metazones take.
        for n in 0..300 {
            store.create(id(900), StreamType::DATA).unwrap();
            store.append(id(900), &bytes(20_000, n)).unwrap();
            store.delete(id(900)).unwrap();
        }
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        compare(&store, &expected, "goes on");
        let report = store.check(|_, _| {}).unwrap();
        assert!(says(&report.problems) && report.problems.len() == 1, "{report:?}");
        store.create(id(900), StreamType::DATA).unwrap();
        let checkpoint = store.open_report().checkpoint;
        drop(store);
        let store = open();
        assert!(store.open_report().checkpoint > checkpoint + 4, "{:?}", store.open_report());
        store.delete(id(900)).unwrap();
        compare(&store, &expected, "opened again");
        store.close().unwrap();
    }
}

/// A block that cannot be read in a zone that is scanned costs the record that it is in; what is behind it in the zone and in
/// the chunk is there, and the gap is told.
#[test]
fn a_bad_block_where_recovery_scans_costs_one_record() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    store.create(id(1), StreamType::DATA).unwrap();
    let parts: Vec<_> = (0..6).map(|i| bytes(5000, i)).collect();
    for part in &parts {
        store.append(id(1), part).unwrap();
    }
    store.seal(id(1)).unwrap();
    drop(store);
    let at = find(&emulator, &parts[2][..50]) / 4096 * 4096;
    assert!(parts[2].len() > 4096, "its record has two blocks");
    emulator.faults().media_error(at, 4096);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    let report = store.open_report();
    assert!(report.damage.iter().any(|what| what.contains("has lost its bytes from 10000 to 15000")), "{report:?}");
    assert_eq!((store.stat(id(1)).unwrap().len, store.stat(id(1)).unwrap().sealed), (30_000, true));
    let mut out = vec![0; 5000];
    for (i, part) in parts.iter().enumerate() {
        match (i, store.read(id(1), i as u64 * 5000, &mut out)) {
            (2, Err(Error::Damaged { offset: 10_000, .. })) => {}
            (2, other) => panic!("{other:?}"),
            (_, read) => assert!(read.unwrap() == 5000 && out == *part, "part {i}"),
        }
    }
    assert_eq!(store.check(|_, _| {}).unwrap().problems.len(), 1);
}

/// A zone that turns read-only while it is written: what was in memory goes elsewhere, what stands there is read and then moved.
#[test]
fn a_zone_that_dies_while_it_is_written_loses_nothing() {
    for read_only in [true, false] {
        let (emulator, store) = crate::support::fresh(&config());
        store.create(id(1), StreamType::DATA).unwrap();
        let mut all = bytes(10_000, 1);
        store.append(id(1), &all).unwrap();
        let zone = find(&emulator, &all[..60]) / (256 << 10);
        let zone = ZoneId(zone as u32);
        match read_only {
            true => emulator.faults().make_read_only(zone).unwrap(),
            // Again and again, with half of it taken.
            false => (0..6).for_each(|i| emulator.faults().fail_write_in(zone, i % 2)),
        }
        for n in 2..5 {
            let more = bytes(9000, n);
            store.append(id(1), &more).unwrap();
            all.extend(more);
        }
        assert!(content(&store, id(1)) == all);
        assert!(!read_only || store.stat(id(1)).unwrap().zones == 2);
        let report = store.check(|_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        drop(store);
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert!(content(&store, id(1)) == all, "opened again");
    }
}

/// All metazones lost: the records alone make the index again; what the journal said is gone with it.
#[test]
fn without_metazones_chunks_are_salvaged_by_their_records() {
    for keep_journal in [true, false] {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        let expected = history(&emulator);
        let sealed_or_deleted = (0..30u64).filter(|n| n % 3 == 1).map(id).collect::<Vec<_>>();
        for zone in metazones_of(&emulator) {
            let start = u64::from(zone) * (256 << 10);
            match keep_journal {
                // The heads of checkpoints only: every start of one is unreadable.
                true => unreadable_checkpoints(&emulator, zone),
                false => emulator.faults().media_error(start, 256 << 10),
            }
        }
        let error = ChunkStore::open(drive(&emulator), options()).err().unwrap().to_string();
        assert!(error.contains("salvage"), "{error}");
        let mut calls = 0;
        let store = ChunkStore::salvage(drive(&emulator), options(), |_, _| calls += 1).unwrap();
        assert!(calls > 0);
        for (id, (all, sealed)) in &expected {
            assert!(&content(&store, *id) == all, "{id}");
            assert_eq!(store.stat(*id).unwrap().sealed, *sealed && keep_journal);
        }
        for gone in sealed_or_deleted.iter().filter(|id| !expected.contains_key(id)) {
            assert_eq!(store.stat(*gone).is_ok(), !keep_journal, "{gone}");
        }
        let kept = if keep_journal { names(expected.keys()) } else { BTreeMap::new() };
        assert_eq!(found_names(&store), kept);
        assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
        store.create(id(700), StreamType::DATA).unwrap();
        store.append(id(700), b"more").unwrap();
        let before = store.list(None, 1000);
        drop(store);
        // Metazones that cannot be read can still be written after a reset.
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        assert_eq!(store.list(None, 1000), before);
        assert_eq!(found_names(&store), kept);
        assert_eq!(content(&store, id(700)), b"more");
    }
}

fn metazones_of(emulator: &Emulator) -> Vec<u32> {
    // Looking must not change what is there.
    let tenant = imbrex_zones::Volume::open(drive(emulator), options().volume).unwrap().tenant(TENANT).unwrap();
    imbrex_zones::log::Root::decode(&tenant.root()).unwrap().zones
}

fn unreadable_checkpoints(emulator: &Emulator, zone: u32) {
    for (at, _, _) in log_frames(emulator, &[zone]).into_iter().filter(|(_, frame, _)| frame.kind == Kind::Whole) {
        emulator.faults().media_error(at, 4096);
    }
}

/// Somebody has reset zones while the store was not open, of one all and of another the end: what stood there is told when it is opened and by
/// the check, chunk by chunk, everything else is there, and nothing new goes to these zones.
#[test]
fn a_write_pointer_that_stands_before_what_was_written_is_told() {
    for sealed in [false, true] {
        for kept in [0, 60_000] {
            let emulator = Emulator::memory(&config()).unwrap();
            format(&emulator);
            let store = ChunkStore::open(drive(&emulator), options()).unwrap();
            for n in 0..6 {
                // Two share a zone that nobody else has.
                let stream = if n % 3 == 2 { StreamType::METADATA } else { StreamType::DATA };
                store.create(id(n), stream).unwrap();
                for i in 0..4 {
                    store.append(id(n), &bytes(27_000, n << 8 | i)).unwrap();
                }
                if sealed {
                    store.seal(id(n)).unwrap();
                }
            }
            let all = |n: u64| (0..4).flat_map(|i| bytes(27_000, n << 8 | i)).collect::<Vec<u8>>();
            let zone = store.places(id(2)).unwrap()[0].zone;
            assert_eq!(store.places(id(5)).unwrap().iter().filter(|place| place.zone == zone).count(), 1);
            store.close().unwrap();
            drop(store);
            cut(&emulator, zone, kept);
            let store = ChunkStore::open(drive(&emulator), options()).unwrap();
            let damage = store.open_report().damage.clone();
            let says = |part: &str| damage.iter().any(|what| what.contains(part));
            assert!(
                damage.len() == 1 && says(&format!("Zone {zone} is written up to byte {}", kept / 4096 * 4096)),
                "{damage:?}"
            );
            let lost = if kept == 0 { 8 * 27_000 } else { 7 * 27_000 };
            assert!(says(&format!("{lost} bytes of 2 chunks")), "{damage:?}");
            let problems = store.check(|_, _| {}).unwrap().problems;
            let named = |n| problems.iter().filter(|what| what.contains(&id(n).to_string())).count();
            assert_eq!((named(2), named(5)), (if kept == 0 { 4 } else { 3 }, 4), "{problems:#?}");
            assert_eq!(problems.len(), if kept == 0 { 8 } else { 7 }, "{problems:#?}");
            let mut out = vec![0; 27_000];
            assert_eq!(store.read(id(2), 0, &mut out).is_ok(), kept > 0);
            assert!(kept == 0 || out == bytes(27_000, 2 << 8));
            assert!(matches!(store.read(id(2), 27_000, &mut out), Err(Error::Damaged { .. })));
            for n in [0, 1, 3, 4] {
                assert!(content(&store, id(n)) == all(n), "chunk {n}");
            }
            // It goes on, elsewhere.
            for n in 10..16 {
                store.create(id(n), StreamType::new(n as u8 % 3).unwrap()).unwrap();
                store.append(id(n), &bytes(27_000, n)).unwrap();
                assert!(store.places(id(n)).unwrap().iter().all(|place| place.zone != zone));
            }
            for n in [2, 5] {
                store.delete(id(n)).unwrap();
            }
            assert!(store.check(|_, _| {}).unwrap().problems.is_empty());
            drop(store);
            let store = ChunkStore::open(drive(&emulator), options()).unwrap();
            assert!(store.open_report().damage.is_empty(), "{:?}", store.open_report());
            assert!((10..16).all(|n| content(&store, id(n)) == bytes(27_000, n)));
        }
    }
}

/// Resets a zone, but for its first `kept` bytes (whole blocks of them).
fn cut(emulator: &Emulator, zone: u32, kept: usize) {
    use imbrex_device::{AlignedBuf, Cause, ZoneOp, ZonedDevice};
    let at = emulator.geometry().start(ZoneId(zone));
    let mut first = AlignedBuf::zeroed(256 << 10);
    emulator.read_at(&mut first, at, Cause::Other.into()).unwrap();
    emulator.zone_op(ZoneOp::Reset, ZoneId(zone), Cause::Other.into()).unwrap();
    if kept >= 4096 {
        emulator.write_at(&first[..kept / 4096 * 4096], at, Cause::Other.into()).unwrap();
    }
}
