//! The end of a chunk that stood where nothing can be read: it is not forgotten that it was there. What was sealed stays sealed, with its length; of
//! what was open it is told that nobody knows where it ended, and nothing is put in the place of what may have been acknowledged.

use crate::support::{BUFFERED, bytes, config, content, drive, format, id, log_frames, options};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, Error, Lost, Options, Relabel, StreamType, TENANT};
use imbrex_device::{AlignedBuf, Cause, ZoneId, ZonedDevice};
use imbrex_emulator::Emulator;
use imbrex_zones::log::format::Kind;

const PIECE: usize = 5000;

fn open(emulator: &Emulator) -> ChunkStore {
    ChunkStore::open(drive(emulator), options()).unwrap()
}

/// Where on the drive the record begins that holds these bytes.
fn place(emulator: &Emulator, needle: &[u8]) -> u64 {
    let geometry = emulator.geometry().clone();
    let mut zone = AlignedBuf::zeroed(geometry.zone_size as usize);
    for number in 0..geometry.zones {
        let start = geometry.start(ZoneId(number));
        emulator.read_at(&mut zone, start, Cause::Other.into()).unwrap();
        if let Some(at) = zone.windows(needle.len()).position(|window| window == needle) {
            return (start + at as u64) / 4096 * 4096;
        }
    }
    panic!("it is nowhere on the drive");
}

/// Six appends to chunk 1.
fn parts() -> Vec<Vec<u8>> {
    (0..6).map(|i| bytes(PIECE, i)).collect()
}

/// A drive with chunk 1, and what it holds.
fn written(sealed: bool) -> (Emulator, Vec<u8>) {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = open(&emulator);
    store.create(id(1), StreamType::DATA).unwrap();
    for part in parts() {
        store.append(id(1), &part).unwrap();
    }
    if sealed {
        store.seal(id(1)).unwrap();
    }
    drop(store);
    (emulator, parts().concat())
}

/// How the place of the last append dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    /// The block with the header of its record; there are two.
    Header,
    /// Both.
    Record,
    /// Its zone.
    Zone,
}

fn die(emulator: &Emulator, how: Dies) -> u32 {
    let at = place(emulator, &parts()[5][..50]);
    let zone = (at / (256 << 10)) as u32;
    match how {
        Dies::Header => emulator.faults().media_error(at, 4096),
        Dies::Record => emulator.faults().media_error(at, 8192),
        Dies::Zone => emulator.faults().make_offline(ZoneId(zone)).unwrap(),
    }
    zone
}

/// Chunk 1 as it is listed: where, how much, and whether nobody knows how much.
fn lost(store: &ChunkStore) -> Vec<(u32, u32, bool)> {
    let of = |one: &Lost| (one.id == id(1)).then_some((one.offset, one.len, one.open));
    store.lost().iter().filter_map(of).collect()
}

fn facts(store: &ChunkStore) -> (u32, bool) {
    store.stat(id(1)).map(|info| (info.len, info.sealed)).unwrap()
}

fn problems(store: &ChunkStore) -> usize {
    let all = store.check(|_, _| {}).unwrap().problems;
    assert!(all.iter().all(|what| what.contains(&id(1).to_string())), "{all:?}");
    all.len()
}

/// What can be read of chunk 1 is what was written; how many bytes cannot.
fn unread(store: &ChunkStore, all: &[u8]) -> usize {
    let mut gone = 0;
    let len = store.stat(id(1)).unwrap().len as usize;
    for at in (0..len).step_by(100) {
        let mut out = [0; 100];
        match store.read(id(1), at as u64, &mut out) {
            Ok(n) => assert!(out[..n] == all[at..at + n], "at {at}"),
            Err(Error::Damaged { id: of, .. }) if of == id(1) => gone += 100,
            Err(error) => panic!("{error}"),
        }
    }
    gone
}

#[test]
fn a_bad_last_record_does_not_unseal_a_chunk() {
    for how in [Dies::Header, Dies::Record, Dies::Zone] {
        let (emulator, all) = written(true);
        let zone = die(&emulator, how);
        let mut store = open(&emulator);
        // Nothing changes by itself, whatever is done to the store.
        for step in 0..5 {
            assert_eq!(facts(&store), (30_000, true), "{how:?}, step {step}");
            let want = if how == Dies::Zone { (0, 30_000, false) } else { (25_000, 5000, false) };
            assert_eq!(lost(&store), [want], "{how:?}, step {step}");
            assert!(store.lost().iter().all(|one| one.zone == zone || step > 2), "{:?}", store.lost());
            assert!(store.stats().lost_bytes >= 5000);
            assert_eq!(problems(&store), 1, "{how:?}, step {step}");
            // Of a record that is known by its second header only the block that is bad.
            let gone = unread(&store, &all);
            let some = match how {
                Dies::Header => gone > 0 && gone < 5000,
                Dies::Record => gone == 5000,
                Dies::Zone => gone == 30_000,
            };
            assert!(some, "{how:?}, step {step}: {gone} bytes");
            assert!(matches!(store.append(id(1), b"more"), Err(Error::Sealed { len: 30_000, .. })));
            let told = &store.open_report().damage;
            assert!(
                step > 0 && !told.is_empty()
                    || told.iter().any(|what| what.contains("25000 to 30000"))
                    || how == Dies::Zone
            );
            match step {
                0 => store.checkpoint().unwrap(),
                1 => {
                    drop(store);
                    store = open(&emulator);
                }
                2 => clean(&store),
                3 => {
                    store.close().unwrap();
                    drop(store);
                    store = open(&emulator);
                    assert!(store.open_report().damage.iter().any(|what| what.contains("lost")));
                }
                _ => {}
            }
        }
        store.delete(id(1)).unwrap();
        assert!(store.lost().is_empty() && store.check(|_, _| {}).unwrap().problems.is_empty());
    }
}

/// All that is live moves.
fn clean(store: &ChunkStore) {
    for n in 50..60 {
        store.create_with(id(n), StreamType::DATA, Durability::Buffered).unwrap();
        store.append_with(id(n), &bytes(60_000, n), BUFFERED).unwrap();
    }
    (50..60).for_each(|n| store.delete_with(id(n), Durability::Buffered).unwrap());
    store.sync().unwrap();
    while store.clean(1 << 20).unwrap() > 0 {}
}

/// What could not be read at one opening can be at the next: then nothing is lost, and nothing in doubt.
#[test]
fn what_can_be_read_again_is_there_again() {
    for sealed in [true, false] {
        for how in [Dies::Header, Dies::Record] {
            let (emulator, all) = written(sealed);
            die(&emulator, how);
            let store = open(&emulator);
            assert!(!lost(&store).is_empty());
            let clean = sealed;
            if clean {
                store.close().unwrap();
            }
            drop(store);
            emulator.faults().clear();
            let store = open(&emulator);
            assert_eq!(facts(&store), (30_000, sealed), "{how:?}");
            assert!(content(&store, id(1)) == all, "{how:?}");
            // A mark stays until the scrub has found it whole.
            store.scrub_on(u64::MAX).unwrap();
            assert!(store.lost().is_empty(), "{how:?}: {:?}", store.lost());
            assert_eq!(problems(&store), 0);
            drop(store);
            let store = open(&emulator);
            assert!(content(&store, id(1)) == all && store.scrub_on(u64::MAX).unwrap().problems.is_empty());
            if !sealed {
                assert_eq!(store.append(id(1), b"more").unwrap(), 30_000);
            }
            store.close().unwrap();
            drop(store);
            let store = open(&emulator);
            assert!(store.open_report().clean && store.open_report().damage.is_empty(), "{:?}", store.open_report());
        }
    }
}

/// Nothing tells whether an open chunk went on where nothing can be read.
#[test]
fn an_append_behind_an_end_that_is_in_doubt_says_where_it_expects_it() {
    for how in [Dies::Record, Dies::Zone] {
        let (emulator, all) = written(false);
        die(&emulator, how);
        let mut store = open(&emulator);
        let len = if how == Dies::Zone { 0 } else { 25_000 };
        for step in 0..4 {
            assert_eq!((facts(&store), lost(&store)), ((len, false), vec![(len, 0, true)]), "{how:?}, step {step}");
            assert_eq!(problems(&store), 1);
            assert_eq!(unread(&store, &all), 0);
            match store.append(id(1), b"more") {
                Err(Error::EndLost { id: of, len: at }) => assert_eq!((of, at), (id(1), len)),
                other => panic!("{other:?}"),
            }
            let further = Append { offset: Some(30_000), durability: Durability::Durable };
            assert!(matches!(store.append_with(id(1), b"more", further), Err(Error::Offset { .. })));
            match step {
                0 => store.checkpoint().unwrap(),
                1 => clean(&store),
                _ => {
                    drop(store);
                    store = open(&emulator);
                }
            }
        }
        // Who knows that it ended there goes on; that is remembered.
        let here = Append { offset: Some(len.into()), durability: Durability::Durable };
        assert_eq!(store.append_with(id(1), b"more", here).unwrap(), u64::from(len));
        assert_eq!(store.append(id(1), b" of it").unwrap(), u64::from(len) + 4);
        for _ in 0..2 {
            assert!(store.lost().is_empty() && problems(&store) == 0, "{how:?}: {:?}", store.lost());
            let mut out = [0; 10];
            store.read(id(1), len.into(), &mut out).unwrap();
            assert_eq!(&out, b"more of it");
            drop(store);
            store = open(&emulator);
        }
    }
}

/// One that is sealed as it is keeps being listed until it is deleted: it may have been longer.
#[test]
fn an_end_in_doubt_can_be_sealed_and_deleted() {
    let (emulator, _) = written(false);
    die(&emulator, Dies::Record);
    let store = open(&emulator);
    assert_eq!(store.seal(id(1)).unwrap(), 25_000);
    drop(store);
    let store = open(&emulator);
    assert_eq!((facts(&store), lost(&store)), ((25_000, true), vec![(25_000, 0, true)]));
    store.delete(id(1)).unwrap();
    store.create(id(1), StreamType::DATA).unwrap();
    store.append(id(1), b"anew").unwrap();
    assert!(store.lost().is_empty());
    drop(store);
    assert!(open(&emulator).lost().is_empty());
}

/// The end of a chunk is in doubt only where it may have gone on in the place that cannot be read.
#[test]
fn other_chunks_ends_are_not_in_doubt() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = open(&emulator);
    let create = |n, stream| store.create(id(n), stream).unwrap();
    create(1, StreamType::DATA);
    create(2, StreamType::DATA);
    create(3, StreamType::METADATA);
    create(4, StreamType::DATA);
    let append = |n: u64, i: u64| {
        store.append(id(n), &bytes(PIECE, n << 8 | i)).unwrap();
    };
    (1..5).for_each(|n| append(n, 0));
    store.seal(id(4)).unwrap();
    append(1, 1);
    let at = place(&emulator, &bytes(PIECE, 1 << 8 | 1)[..50]);
    // What follows in the zone was appended later: this chunk was longer, and so was every one that was made later.
    append(2, 1);
    create(5, StreamType::DATA);
    append(5, 0);
    drop(store);
    emulator.faults().media_error(at, 8192);
    let store = open(&emulator);
    let doubted: Vec<ChunkId> = store.lost().iter().filter(|one| one.open).map(|one| one.id).collect();
    assert_eq!(doubted, [id(1)], "{:?}", store.lost());
    for (n, appends) in [(1, 1), (2, 2), (3, 1), (4, 1), (5, 1)] {
        assert!(content(&store, id(n)) == (0..appends).flat_map(|i| bytes(PIECE, n << 8 | i)).collect::<Vec<u8>>());
    }
    assert_eq!(problems(&store), 1);
    // A later record of it tells how much is missing, and its end is known.
    let store = {
        emulator.faults().clear();
        drop(store);
        let store = open(&emulator);
        store.append(id(1), &bytes(PIECE, 1 << 8 | 2)).unwrap();
        store
    };
    assert!(store.lost().is_empty());
}

/// A power loss has kept the seal and not the bytes, as it may; something else cannot be read. Neither was acknowledged, so nothing is lost.
#[test]
fn what_was_never_durable_is_not_taken_for_lost() {
    for seed in 0..40 {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        let store = open(&emulator);
        store.create(id(2), StreamType::METADATA).unwrap();
        store.append(id(2), &bytes(PIECE, 77)).unwrap();
        store.create(id(1), StreamType::DATA).unwrap();
        store.append(id(1), &parts()[0]).unwrap();
        // The journal goes before the zones, and nothing is flushed.
        store.append_with(id(1), &parts()[1], BUFFERED).unwrap();
        store.seal_with(id(1), Durability::Buffered).unwrap();
        emulator.faults().fail_flushes(1);
        store.sync().unwrap_err();
        drop(store);
        let at = place(&emulator, &bytes(PIECE, 77)[..50]);
        let left = emulator.after_power_loss(seed).unwrap();
        left.faults().clear();
        left.faults().media_error(at, 8192);
        let store = open(&left);
        assert!(matches!(facts(&store), (5000, false) | (10_000, _)), "seed {seed}: {:?}", facts(&store));
        let of_it = store.lost().into_iter().filter(|one| one.id == id(1)).count();
        assert_eq!(of_it, 0, "seed {seed}: {:?}", store.lost());
        assert!(store.lost().iter().any(|one| one.id == id(2) && one.open), "{:?}", store.lost());
    }
}

fn metazones(emulator: &Emulator) -> Vec<u32> {
    let tenant = imbrex_zones::Volume::open(drive(emulator), options().volume).unwrap().tenant(TENANT).unwrap();
    imbrex_zones::log::Root::decode(&tenant.root()).unwrap().zones
}

/// Neither a salvage nor a new label brings it back shorter and whole.
#[test]
fn a_salvage_tells_it_too() {
    for (label, checkpoints) in [(false, true), (true, false), (true, true)] {
        for sealed in [true, false] {
            for how in [Dies::Record, Dies::Header] {
                let (emulator, all) = written(sealed);
                die(&emulator, how);
                let what = format!("label {label}, checkpoints {checkpoints}, sealed {sealed}, {how:?}");
                if checkpoints {
                    lose_checkpoints(&emulator, &metazones(&emulator));
                }
                if label {
                    for zone in 0..2u64 {
                        emulator.faults().flip_bits(zone * (256 << 10) + 16, 1).unwrap();
                    }
                }
                let how_to = if label { Relabel::Only } else { Relabel::No };
                let store = ChunkStore::salvage_as(drive(&emulator), options(), how_to, |_, _| {}).unwrap();
                for opened in 0..2 {
                    let whole = if sealed || how == Dies::Header { 30_000 } else { 25_000 };
                    assert_eq!(facts(&store), (whole, sealed), "{what}, opened {opened}");
                    assert!(!lost(&store).is_empty(), "{what}: {:?}", store.lost());
                    assert_eq!(problems(&store), 1, "{what}: {:?}", store.check(|_, _| {}));
                    unread(&store, &all);
                }
                assert!(store.append(id(1), b"more").is_err() == (sealed || how == Dies::Record), "{what}");
                drop(store);
                assert!(!lost(&open(&emulator)).is_empty(), "{what}");
            }
        }
    }
}

/// No checkpoint is whole any more; the journal is.
fn lose_checkpoints(emulator: &Emulator, metazones: &[u32]) {
    for (at, _, _) in log_frames(emulator, metazones).into_iter().filter(|(_, frame, _)| frame.kind == Kind::Whole) {
        emulator.faults().media_error(at, 4096);
    }
}

/// A journal record of which both copies cannot be read at one opening, and can be at the next: the store went on without it, and so it does.
#[test]
fn a_record_of_the_journal_that_comes_back_is_not_taken_for_what_followed() {
    for closed in [false, true] {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        let store = open(&emulator);
        for n in 0..4 {
            store.create(id(n), StreamType::DATA).unwrap();
            store.append(id(n), &bytes(PIECE, n)).unwrap();
        }
        // The last record: it is the one that will be missing.
        store.delete(id(1)).unwrap();
        let zones = metazones_of(&store);
        drop(store);
        let records = log_frames(&emulator, &zones).into_iter().filter(|(_, frame, _)| frame.kind == Kind::Records);
        let mut last: Vec<(u64, u64)> = records.map(|(at, frame, _)| (frame.number, at)).collect();
        let newest = last.iter().map(|(number, _)| *number).max().unwrap();
        last.retain(|(number, _)| *number == newest);
        assert_eq!(last.len(), 2, "two copies");
        last.iter().for_each(|(_, at)| emulator.faults().media_error(*at, 4096));

        let store = open(&emulator);
        assert!(!store.open_report().damage.is_empty());
        assert!(content(&store, id(1)) == bytes(PIECE, 1), "nothing says that it was deleted");
        store.append(id(1), &bytes(PIECE, 11)).unwrap();
        store.create(id(10), StreamType::DATA).unwrap();
        store.append(id(10), b"its successor").unwrap();
        store.delete(id(2)).unwrap();
        if closed {
            store.close().unwrap();
        }
        drop(store);
        emulator.faults().clear();
        for _ in 0..2 {
            let store = open(&emulator);
            assert_eq!(store.open_report().damage, Vec::<String>::new());
            let there: Vec<ChunkId> = store.list(None, 100).iter().map(|info| info.id).collect();
            assert_eq!(there, [id(0), id(1), id(3), id(10)], "closed {closed}");
            assert!(content(&store, id(1)) == [bytes(PIECE, 1), bytes(PIECE, 11)].concat());
            assert_eq!(content(&store, id(10)), b"its successor");
            assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        }
    }
}

fn metazones_of(store: &ChunkStore) -> Vec<u32> {
    let root = store.volume().tenant(TENANT).unwrap().root();
    imbrex_zones::log::Root::decode(&root).unwrap().zones
}

/// A lost record of the journal told that a zone was taken: the zone says it itself, and what stands in it is found.
#[test]
fn what_stands_in_a_zone_that_no_journal_tells_of_is_found() {
    use imbrex_chunkstore::entry::Entry;
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store =
        ChunkStore::open(drive(&emulator), Options { checkpoint_bytes: 1 << 40, tell_bytes: 1 << 40, ..options() });
    let store = store.unwrap();
    let mut n = 0;
    // Until a second zone is in use.
    while store.zones().iter().filter(|zone| zone.chunks > 0).count() < 3 {
        store.create(id(n), StreamType::DATA).unwrap();
        store.append(id(n), &bytes(20_000, n)).unwrap();
        n += 1;
    }
    store.create(id(n), StreamType::DATA).unwrap();
    let taken: Vec<u32> = store.zones().iter().filter(|zone| zone.chunks > 0).map(|zone| zone.zone).collect();
    let zones = metazones_of(&store);
    drop(store);
    let mut bad = 0;
    for (at, frame, records) in log_frames(&emulator, &zones) {
        let tells = |entry: &Entry| matches!(entry, Entry::ZoneTaken { zone, .. } if *zone == taken[1]);
        let told: Vec<Entry> = records.iter().filter_map(|record| Entry::decode(record)).collect();
        // It created no chunk.
        if frame.kind == Kind::Records && told.iter().any(tells) && told.len() < 3 {
            emulator.faults().media_error(at, 4096);
            bad += 1;
        }
    }
    assert_eq!(bad, 2, "both copies");
    let store = open(&emulator);
    assert!(
        store.open_report().damage.iter().any(|what| what.contains("lost in both copies")),
        "{:?}",
        store.open_report()
    );
    for n in 0..n {
        assert!(content(&store, id(n)) == bytes(20_000, n), "chunk {n}");
    }
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}
