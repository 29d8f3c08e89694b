//! What comes back of a store whose drive or metadata is damaged, and that nothing comes that was never there.

use crate::support::{config, configs, few_active, formatted, options, value};
use imbrex_device::{AlignedBuf, Cause, Drive, HeapSurvivor, ZoneId, ZoneOp, ZoneState, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::{Bytewise, FoundSpace, Kv, Make, Order, Pairs, Salvage, Salvaged, forget_order, register_order};
use imbrex_zones::ZoneHeader;
use imbrex_zones::log::format::LOG_KIND;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const TAG: Cause = Cause::Check;

type All = BTreeMap<(u16, Vec<u8>), Vec<u8>>;

/// What was handed over.
#[derive(Default)]
struct Taken {
    all: All,
    spaces: BTreeMap<u16, FoundSpace>,
    again: u32,
    told: u32,
}

impl Pairs for Taken {
    fn pair(&mut self, space: &FoundSpace, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.spaces.insert(space.number, space.clone());
        let before = self.all.insert((space.number, key.to_vec()), value.to_vec());
        assert!(before.is_none(), "{key:?} came twice");
        Ok(())
    }

    fn again(&mut self) -> io::Result<()> {
        self.all.clear();
        self.again += 1;
        Ok(())
    }

    fn progress(&mut self, done: u64, all: u64) -> io::Result<()> {
        assert!(done <= all);
        self.told += 1;
        Ok(())
    }
}

struct Came {
    taken: Taken,
    notes: Vec<String>,
    told: Salvaged,
}

fn salvaged(drive: &Drive) -> Came {
    let salvage = Salvage::search(drive, &mut |_, _| {}).unwrap();
    let mut taken = Taken::default();
    let told = salvage.read(&mut tempfile::tempfile, &mut taken).unwrap();
    assert_eq!(told.pairs, taken.all.len() as u64);
    Came { taken, notes: salvage.notes(), told }
}

/// What a scan of all spaces has. They have these numbers.
fn scanned(store: &Kv, spaces: &[(u16, &str, &str)]) -> All {
    let mut all = All::new();
    for (number, name, order) in spaces {
        let space = if *number == 0 { store.clone() } else { store.space(name, order, Make::Never).unwrap() };
        let mut iter = space.iter().unwrap();
        iter.seek_to_first().unwrap();
        while let Some((key, value)) = iter.get() {
            all.insert((*number, key.to_vec()), value.to_vec());
            iter.advance().unwrap();
        }
    }
    all
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

/// The longest key is the first.
struct Longest;

impl Order for Longest {
    fn name(&self) -> &str {
        "the longest first"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.len().cmp(&a.len()).then_with(|| b.cmp(a))
    }
}

/// Zones whose headers have one of these kinds and names.
fn zones(drive: &Drive, is: impl Fn(&ZoneHeader) -> bool) -> Vec<u32> {
    let device = drive.device.as_ref();
    let mut found = Vec::new();
    for zone in report_all(device).unwrap() {
        if zone.state == ZoneState::Conventional || zone.wp.is_none_or(|wp| wp < 4096) {
            continue;
        }
        let mut buf = AlignedBuf::zeroed(4096);
        device.read_at(&mut buf, device.geometry().start(zone.id), TAG.into()).unwrap();
        found.extend(ZoneHeader::decode(&buf).filter(|header| is(header)).map(|_| zone.id.0));
    }
    found
}

fn reset(drive: &Drive, zones: &[u32]) {
    for zone in zones {
        drive.device.zone_op(ZoneOp::Reset, ZoneId(*zone), TAG.into()).unwrap();
    }
}

fn lose_metadata(drive: &Drive) {
    let log = zones(drive, |header| header.kind == LOG_KIND);
    assert!(!log.is_empty());
    reset(drive, &log);
}

fn lose_labels(drive: &Drive) {
    let device = drive.device.as_ref();
    for zone in [0, 1] {
        match report_all(device).unwrap()[zone as usize].state {
            ZoneState::Conventional => {
                let zeros = AlignedBuf::zeroed(64 << 10);
                device.write_at(&zeros, device.geometry().start(ZoneId(zone)), TAG.into()).unwrap();
            }
            _ => reset(drive, &[zone]),
        }
    }
}

#[test]
fn of_a_healthy_store_comes_what_a_scan_has() {
    register_order(Arc::new(Longest));
    let bytes = Bytewise.name();
    let spaces = [(0, "", bytes), (1, "longest", Longest.name()), (3, "last", bytes)];
    for (seed, config) in configs().into_iter().enumerate() {
        let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
        let survivor = Some(Arc::new(HeapSurvivor::new()) as _);
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor };
        Kv::format(&drive, Some([9; 16]), false).unwrap();
        let mut store = Kv::open(drive.clone(), options()).unwrap();
        for (name, order) in [("longest", Longest.name()), ("dropped", bytes), ("last", bytes)] {
            store.space(name, order, Make::New).unwrap();
        }
        let dropped = store.space("dropped", bytes, Make::Never).unwrap();
        (0..50).for_each(|n| dropped.put(&key(n), b"gone", false).unwrap());
        drop(dropped);
        for round in 0..1500u64 {
            let (_, name, order) = spaces[random.random_range(0..3)];
            let space = if name.is_empty() { store.clone() } else { store.space(name, order, Make::Never).unwrap() };
            let at = key(random.random_range(0..200));
            match random.random_range(0..100) {
                0..70 => space.put(&at, &value(round, random.random_range(0..300)), false).unwrap(),
                70..90 => space.delete(&at, false).unwrap(),
                90..92 => {
                    let other = key(random.random_range(0..200));
                    let (from, to) = if space_order(order, &at, &other) { (at, other) } else { (other, at) };
                    space.delete_range(Some(&from), Some(&to), false).unwrap();
                }
                92 => store.flush().unwrap(),
                93 => {
                    let mut ingest = space.ingest().unwrap();
                    let mut all: Vec<_> = (0..random.random_range(1..30)).map(|n| key(n * 7)).collect();
                    all.sort_by(|a, b| if order == Longest.name() { Longest.compare(a, b) } else { a.cmp(b) });
                    all.iter().for_each(|key| ingest.put(key, &value(round, 100)).unwrap());
                    ingest.finish().unwrap();
                }
                _ => drop(store.step().unwrap()),
            }
            if round == 700 {
                store.checkpoint("half").unwrap();
                store.drop_space("dropped").unwrap();
            }
            if round % 400 == 399 {
                drop(space);
                drop(store);
                store = Kv::open(drive.clone(), options()).unwrap();
            }
        }
        let wanted = scanned(&store, &spaces);
        assert!(wanted.len() > 100);
        // The process dies, with records that only memory has.
        std::mem::forget(store);
        let came = salvaged(&drive);
        assert!(came.taken.all == wanted, "{} of {}", came.taken.all.len(), wanted.len());
        assert!(came.notes.is_empty() && came.told.notes.is_empty(), "{:?} {:?}", came.notes, came.told.notes);
        assert_eq!((came.taken.again, came.told.damaged_tables), (0, 0));
        assert!(came.taken.told > 0);
        let named = |number| came.taken.spaces[&number].name.clone();
        assert_eq!((named(0), named(3)), (Some(String::new()), Some("last".into())));
        assert_eq!(came.taken.spaces[&1].order.as_deref(), Some(Longest.name()));
        // It has changed nothing: the store opens with all of it.
        assert!(scanned(&Kv::open(drive, options()).unwrap(), &spaces) == wanted);
    }
}

/// Whether one key is before another one.
fn space_order(order: &str, a: &[u8], b: &[u8]) -> bool {
    if order == Longest.name() { Longest.compare(a, b).is_le() } else { a <= b }
}

const KEYS: u64 = 300;

/// A store of one space and of tables, each key once.
fn compacted(config: &Config) -> (Emulator, Drive, All) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Kv::format(&drive, Some([9; 16]), false).unwrap();
    let store = Kv::open(drive.clone(), options()).unwrap();
    (0..KEYS).for_each(|n| store.put(&key(n), &value(n, 400), false).unwrap());
    store.compact().unwrap();
    let all = scanned(&store, &[(0, "", "")]);
    (emulator, drive, all)
}

#[test]
fn a_flipped_bit_costs_the_pairs_of_its_block_and_no_others() {
    for lost in [false, true] {
        let (emulator, drive, all) = compacted(&config());
        if lost {
            lose_metadata(&drive);
        }
        let report = report_all(drive.device.as_ref()).unwrap();
        let (mut harmless, mut harmful) = (0, 0);
        for zone in zones(&drive, |header| header.name == "tables") {
            let start = drive.device.geometry().start(ZoneId(zone));
            // Odd, so that no two blocks have the same place hit.
            for at in (4096..report[zone as usize].wp.unwrap()).step_by(769) {
                if emulator.faults().flip_bits(start + at, 1).is_err() {
                    // The zone was finished, and nothing stands there.
                    continue;
                }
                let came = salvaged(&drive);
                emulator.faults().flip_bits(start + at, 1).unwrap();
                let gone: Vec<_> = all.iter().filter(|pair| came.taken.all.get(pair.0) != Some(pair.1)).collect();
                assert!(gone.len() <= 41, "a block has 16 KiB: {}", gone.len());
                assert!(came.taken.all.len() + gone.len() == all.len(), "nothing else comes");
                let numbers: Vec<u64> =
                    gone.iter().map(|((_, key), _)| String::from_utf8_lossy(&key[1..]).parse().unwrap()).collect();
                assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]), "{numbers:?}");
                assert!(gone.is_empty() || came.told.damaged_tables > 0, "{:?}", came.told);
                if gone.is_empty() { harmless += 1 } else { harmful += 1 }
            }
        }
        assert!(harmless > 0 && harmful > 100, "{harmless} {harmful}");
        assert!(salvaged(&drive).taken.all == all);
    }
}

#[test]
fn without_metadata_or_labels_the_pairs_are_back() {
    for config in [config(), few_active()] {
        for (metadata, labels) in [(true, false), (false, true), (true, true)] {
            let (_, drive, mut all) = compacted(&config);
            let store = Kv::open(drive.clone(), options()).unwrap();
            let users = store.space("users", Bytewise.name(), Make::IfMissing).unwrap();
            for n in 0..20 {
                users.put(&key(n), &value(n, 50), true).unwrap();
                all.insert((1, key(n)), value(n, 50));
            }
            store.delete(&key(3), true).unwrap();
            store.put(&key(4), b"new", true).unwrap();
            store.delete_range(Some(&key(100)), Some(&key(110)), true).unwrap();
            all.remove(&(0, key(3)));
            all.insert((0, key(4)), b"new".to_vec());
            (100..110).for_each(|n| drop(all.remove(&(0, key(n)))));
            let mut ingest = store.ingest().unwrap();
            for n in 20..30 {
                ingest.put(&key(n), b"ingested").unwrap();
                all.insert((0, key(n)), b"ingested".to_vec());
            }
            ingest.finish().unwrap();
            store.put(&key(25), b"put later", true).unwrap();
            all.insert((0, key(25)), b"put later".to_vec());
            drop((ingest, users, store));
            if metadata {
                lose_metadata(&drive);
            }
            if labels {
                lose_labels(&drive);
            }
            assert!(Kv::open(drive.clone(), options()).is_err());
            let came = salvaged(&drive);
            assert!(came.taken.all == all, "{metadata} {labels}: {} of {}", came.taken.all.len(), all.len());
            assert!(!came.notes.is_empty());
            assert_eq!(came.notes.iter().any(|note| note.contains("metadata is lost")), metadata, "{:?}", came.notes);
            assert_eq!(came.notes.iter().any(|note| note.contains("label was made anew")), labels, "{:?}", came.notes);
            assert_eq!(came.notes.iter().any(|note| note.contains("were ingested")), metadata, "{:?}", came.notes);
            assert_eq!(came.taken.spaces[&1].name.as_deref(), (!metadata).then_some("users"));
        }
    }
}

#[test]
fn tables_that_are_newer_than_the_metadata_count() {
    // The metadata is put back to a moment before.
    let (_, drive, _) = compacted(&config());
    let log = zones(&drive, |header| header.kind == LOG_KIND);
    let device = drive.device.as_ref();
    let copies: Vec<(u32, u64, AlignedBuf)> = log
        .iter()
        .map(|zone| {
            let wp = report_all(device).unwrap()[*zone as usize].wp.unwrap();
            let mut buf = AlignedBuf::zeroed(wp as usize);
            device.read_at(&mut buf, device.geometry().start(ZoneId(*zone)), TAG.into()).unwrap();
            (*zone, wp, buf)
        })
        .collect();
    let store = Kv::open(drive.clone(), options()).unwrap();
    (200..500).for_each(|n| store.put(&key(n), &value(n + 1, 300), true).unwrap());
    store.flush().unwrap();
    let all = scanned(&store, &[(0, "", "")]);
    drop(store);
    reset(&drive, &zones(&drive, |header| header.kind == LOG_KIND));
    for (zone, _, buf) in &copies {
        device.write_at(buf, device.geometry().start(ZoneId(*zone)), TAG.into()).unwrap();
    }
    lose_labels(&drive);
    let came = salvaged(&drive);
    let missing = all.iter().filter(|pair| came.taken.all.get(pair.0) != Some(pair.1)).count();
    assert_eq!(missing, 0, "{:?}", came.notes);
}

#[test]
fn a_log_zone_that_is_gone_costs_what_stood_in_it() {
    let drive = formatted(&config());
    let store = Kv::open(drive.clone(), options()).unwrap();
    (0..40).for_each(|n| store.put(&key(n), &value(n, 300), false).unwrap());
    store.flush().unwrap();
    (40..60).for_each(|n| store.put(&key(n), &value(n, 300), true).unwrap());
    drop(store);
    let log = zones(&drive, |header| header.name == "wal");
    let whole = salvaged(&drive);
    assert_eq!(whole.taken.all.len(), 60);
    reset(&drive, &log);
    let came = salvaged(&drive);
    let kept: Vec<_> = came.taken.all.keys().map(|(_, key)| key.clone()).collect();
    assert!((0..40).all(|n| kept.contains(&key(n))), "{}", kept.len());
    assert!(came.taken.all.iter().all(|pair| whole.taken.all.get(pair.0) == Some(pair.1)));
}

#[test]
fn an_order_that_nobody_knows_costs_no_pair() {
    struct Own;
    impl Order for Own {
        fn name(&self) -> &str {
            "nobody's"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            b.cmp(a)
        }
    }
    register_order(Arc::new(Own));
    let drive = formatted(&config());
    let store = Kv::open(drive.clone(), options()).unwrap();
    let own = store.space("own", Own.name(), Make::New).unwrap();
    let mut all = All::new();
    for n in 0..300 {
        store.put(&key(n), &value(n, 100), false).unwrap();
        own.put(&key(n % 200), &value(n, 200), false).unwrap();
        all.insert((0, key(n)), value(n, 100));
        all.insert((1, key(n % 200)), value(n, 200));
    }
    own.delete(&key(7), true).unwrap();
    all.remove(&(1, key(7)));
    store.flush().unwrap();
    own.delete_range(Some(&key(20)), Some(&key(10)), true).unwrap();
    drop((own, store));
    forget_order(Own.name());
    assert!(Kv::open(drive.clone(), options()).is_err());
    for lost in [false, true] {
        if lost {
            lose_metadata(&drive);
        }
        let came = salvaged(&drive);
        assert!(came.taken.all == all, "{} of {}", came.taken.all.len(), all.len());
        assert_eq!(came.taken.again, 1);
        assert!(came.told.notes.iter().any(|note| note.contains("order is not known")), "{:?}", came.told.notes);
    }
}

#[test]
fn a_drive_without_a_store_is_told() {
    let drive = crate::support::drive(&config());
    let told = Salvage::search(&drive, &mut |_, _| {}).err().unwrap().to_string();
    assert!(told.contains("ever written by Imbrex"), "{told}");
    // A store that has never been opened has nothing.
    let came = salvaged(&formatted(&config()));
    assert!(came.taken.all.is_empty());
}

/// Whatever stands on the drive, nothing comes that nobody put.
#[test]
fn damage_anywhere_makes_no_pair_that_was_never_put() {
    let (_, drive, all) = compacted(&config());
    let device = drive.device.as_ref();
    let report = report_all(device).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for round in 0..60 {
        let emulator = Emulator::memory(&config()).unwrap();
        let other = Drive { device: Arc::new(emulator), survivor: None };
        for zone in &report {
            let written = if zone.state == ZoneState::Conventional { 128 << 10 } else { zone.wp.unwrap() as usize };
            if written == 0 {
                continue;
            }
            let start = device.geometry().start(zone.id);
            let mut bytes = AlignedBuf::zeroed(written);
            device.read_at(&mut bytes, start, TAG.into()).unwrap();
            for _ in 0..random.random_range(0..1 + round) {
                let at = random.random_range(0..written);
                bytes[at] = random.random();
            }
            other.device.write_at(&bytes, start, TAG.into()).unwrap();
        }
        let Ok(salvage) = Salvage::search(&other, &mut |_, _| {}) else { continue };
        let mut taken = Taken::default();
        salvage.read(&mut tempfile::tempfile, &mut taken).unwrap();
        assert!(taken.all.iter().all(|pair| all.get(pair.0) == Some(pair.1)), "round {round}");
    }
}

#[test]
fn what_the_drive_cannot_read_costs_no_more() {
    for lost in [false, true] {
        let (emulator, drive, all) = compacted(&config());
        if lost {
            lose_metadata(&drive);
        }
        let tables = zones(&drive, |header| header.name == "tables");
        let counts = |came: &Came| all.iter().filter(|pair| came.taken.all.get(pair.0) == Some(pair.1)).count();
        let mut harmful = 0;
        for zone in &tables {
            let start = drive.device.geometry().start(ZoneId(*zone));
            emulator.faults().media_error(start + 4096 + 20_480, 4096);
            let came = salvaged(&drive);
            emulator.faults().clear();
            // It may be the end of a block and the beginning of the next one.
            assert!(counts(&came) + 82 >= all.len() && counts(&came) == came.taken.all.len());
            harmful += u32::from(counts(&came) < all.len() && !came.told.notes.is_empty());
        }
        assert!(harmful > 0);
        // Of a whole zone only its pairs.
        let before = salvaged(&drive).told.tables;
        emulator.faults().make_offline(ZoneId(*tables.last().unwrap())).unwrap();
        let came = salvaged(&drive);
        assert!(counts(&came) == came.taken.all.len() && before > 0);
        assert!(counts(&came) == all.len() || lost || !came.told.notes.is_empty(), "{:?}", came.told);
    }
}
