//! What must come to an end, and what must not fill up: cleaning where nothing is dead, and a journal that nobody commits.

use crate::support::{BUFFERED, bytes, config, content, drive, format, fresh, id, options};
use imbrex_chunkstore::{ChunkStore, CleaningPolicy, Durability, Options, StreamType, TENANT};
use imbrex_device::{AlignedBuf, Cause, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::Config;
use imbrex_zones::log::Root;

/// Records so large that zones end with room for less than one: it is not won by moving them.
#[test]
fn cleaning_ends_where_nothing_is_dead() {
    let (_emulator, store) = fresh(&config());
    let record = bytes(150_000, 1);
    for n in 0.. {
        store.create(id(n), StreamType::DATA).unwrap();
        if store.append(id(n), &record).is_err() {
            assert!(n > 20, "{n}");
            break;
        }
        store.seal(id(n)).unwrap();
    }
    let before = store.stats().moved_bytes;
    let steps = (0..500).take_while(|_| store.step().unwrap()).count();
    assert!(steps < 500, "{} bytes were moved for nothing", store.stats().moved_bytes - before);
}

/// Nobody calls anything durable: the metazones must not fill up with entries that no checkpoint replaces.
#[test]
fn buffered_calls_alone_do_not_fill_the_metazones() {
    let config = Config { zone_size: 4 << 20, zone_capacity: 4 << 20, capacity: 128 << 20, ..config() };
    let emulator = imbrex_emulator::Emulator::memory(&config).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), Options { buffer_bytes: 64 << 20, ..options() }).unwrap();
    for n in 0..400_000 {
        store.create_with(id(n), StreamType::DATA, Durability::Buffered).unwrap_or_else(|e| panic!("{n}: {e}"));
        store.delete_with(id(n), Durability::Buffered).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    store.create(id(1), StreamType::DATA).unwrap();
    store.append_with(id(1), b"still here", BUFFERED).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(store.stat(id(1)).unwrap().len, 10);
}

/// The zone most worth cleaning has gone offline, and nobody knows it yet: others are cleaned all the same.
#[test]
fn a_victim_that_is_offline_is_not_the_end_of_cleaning() {
    let emulator = imbrex_emulator::Emulator::memory(&config()).unwrap();
    format(&emulator);
    let own =
        Options { cleaning_policy: CleaningPolicy::Greedy, max_slowdown: None, clean_below: Some(0), ..options() };
    let store = ChunkStore::open(drive(&emulator), own).unwrap();
    let record = bytes(30_000, 1);
    let write = |n| {
        store.create_with(id(n), StreamType::DATA, Durability::Buffered).unwrap();
        let result = store.append_with(id(n), &record, BUFFERED);
        result.inspect(|_| assert_eq!(store.seal_with(id(n), Durability::Buffered).unwrap(), 30_000))
    };
    let full = (0..).find(|n| write(*n).is_err()).unwrap();
    store.delete(id(full)).unwrap();
    let zone = |n| store.places(id(n)).unwrap()[0].zone;
    let worst = zone(0);
    for n in 1..full {
        if n % 2 == 1 || zone(n) == worst {
            store.delete_with(id(n), Durability::Buffered).unwrap();
        }
    }
    store.sync().unwrap();
    emulator.faults().make_offline(ZoneId(worst)).unwrap();
    for n in 1000..1030 {
        write(n).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
}

/// A crash has left as many active zones as there may be, and one copy of the label, in a zone of its own, is damaged.
#[test]
fn a_label_is_repaired_when_there_is_an_active_zone_for_it() {
    let limited = Config { conventional: 0, max_open: Some(8), max_active: Some(8), rotational: false, ..config() };
    let emulator = imbrex_emulator::Emulator::memory(&limited).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    store.create(id(1), StreamType::DATA).unwrap();
    store.append(id(1), &bytes(9000, 1)).unwrap();
    let root = store.volume().tenant(TENANT).unwrap().root();
    let metazones = Root::decode(&root).unwrap().zones;
    drop(store);
    emulator.zone_op(ZoneOp::Reset, ZoneId(1), Cause::Other.into()).unwrap();
    // Metazones that were begun and took no record.
    for zone in report_all(&emulator).unwrap() {
        if metazones.contains(&zone.id.0) && zone.state == ZoneState::Empty {
            let start = emulator.geometry().start(zone.id);
            emulator.write_at(&AlignedBuf::zeroed(8192), start, Cause::Other.into()).unwrap();
        }
    }
    let zones = report_all(&emulator).unwrap();
    assert_eq!(zones.iter().filter(|zone| zone.state.is_open() || zone.state == ZoneState::Closed).count(), 8);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(content(&store, id(1)), bytes(9000, 1));
    assert_ne!(report_all(&emulator).unwrap()[1].state, ZoneState::Empty, "the label is there twice again");
    assert_eq!(emulator.stats().total.rule_violations, 0);
}
