//! What a store says of itself: what it did, and what is in its zones.

use crate::support::{configs, formatted, options, value};
use imbrex_device::{Drive, report_all};
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_kv::{Batch, Done, Holds, Kv, Options};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 2000;

fn fill(store: &Kv) {
    for n in 0..KEYS {
        store.put(format!("key{:05}", n * 7919 % KEYS).as_bytes(), &value(n, 392), false).unwrap();
    }
}

#[test]
fn what_was_put_and_written_is_counted() {
    for config in configs() {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options()).unwrap();
        assert_eq!(store.figures().done, Done { written: vec![(0, 0); 2], ..Done::default() });
        fill(&store);
        let mut batch = Batch::new();
        batch.put(b"one", b"1");
        batch.delete(b"two");
        batch.delete_range(Some(b"x"), Some(b"y"));
        store.write(&batch, true).unwrap();
        let snapshot = store.snapshot();
        assert!(store.get(b"one").unwrap().is_some() && store.get_at(&snapshot, b"two").unwrap().is_none());
        drop(snapshot);
        let done = store.figures().done;
        assert_eq!((done.puts, done.deletes, done.gets), (KEYS + 1, 2, 2));
        assert_eq!(done.put_bytes, KEYS * 400 + 4);
        store.compact().unwrap();
        let figures = store.figures();
        let done = &figures.done;
        let (flushed, merged) = done.written.iter().fold((0, 0), |(a, b), level| (a + level.0, b + level.1));
        // All was flushed once, and all was merged.
        assert!(flushed > KEYS * 400 * 9 / 10 && flushed < KEYS * 400 * 3 / 2, "{done:?}");
        assert!(merged > flushed * 9 / 10 && done.steps > 1 && done.amplification(merged) > Some(0.9), "{done:?}");
        assert_eq!(done.written.len(), figures.levels.len());
        // What counts now was written by somebody.
        for (level, written) in figures.levels.iter().zip(&done.written) {
            assert!(level.1 <= written.0 + written.1, "{figures:?}");
        }
        assert_eq!(figures.merges, 0);
        drop(store);
        // The next opening begins anew, and knows the tables.
        let again = Kv::open(drive, options()).unwrap().figures();
        let before = figures.levels.iter().map(|level| level.0).sum::<u64>();
        assert_eq!(again.levels.iter().map(|level| level.0).sum::<u64>(), before);
        assert_eq!((again.done.puts, again.done.steps), (0, 0));
    }
}

/// On a drive that takes its time, whoever finds nothing admitted waits for a flush or a step.
#[test]
fn puts_that_wait_for_the_drive_are_counted() {
    let (capacity, zone_size, conventional) = (Some(64 << 20), Some(1 << 20), Some(2));
    let sizes = Overrides { capacity, zone_size, conventional, ..Overrides::default() };
    let emulator = Emulator::memory(&Config::named("hgst-hsh721414al", &sizes).unwrap()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Kv::format(&drive, None, false).unwrap();
    let store = Kv::open(drive, options()).unwrap();
    emulator.keep_own_time(Pace::Real { speed: 1.0 }).unwrap();
    for n in 0..150 {
        store.put(format!("key{:05}", n * 7919 % KEYS).as_bytes(), &value(n, 392), false).unwrap();
    }
    let done = store.figures().done;
    assert!((1..150).contains(&done.stalls), "{done:?}");
    assert!(done.stalled >= done.longest_stall && done.longest_stall >= Duration::from_millis(1), "{done:?}");
}

#[test]
fn each_zone_tells_what_is_in_it() {
    for (policy, config) in ["ring", "gear", "band"].iter().flat_map(|policy| configs().map(|config| (policy, config)))
    {
        let drive = formatted(&config);
        let options = || Options { policy: Some((*policy).to_owned()), ..options() };
        let store = Kv::open(drive.clone(), options()).unwrap();
        fill(&store);
        let (zones, figures) = (store.zones().unwrap(), store.figures());
        let used: Vec<_> = zones.iter().filter(|zone| zone.holds != Holds::Metadata).collect();
        assert_eq!(used.iter().map(|zone| zone.capacity).sum::<u64>(), figures.capacity_used);
        let metadata = zones.len() - used.len();
        assert!((1..=8).contains(&metadata), "{policy}: {zones:?}");
        // All tables and their bytes are in some zone of their level.
        for (at, level) in figures.levels.iter().enumerate() {
            let bottom = at + 1 == figures.levels.len();
            let holds = Holds::Tables((!bottom).then_some(at as u8));
            let of = zones.iter().filter(|zone| zone.holds == holds);
            let sums = of.fold((0, 0), |(tables, live), zone| (tables + zone.tables, live + zone.live));
            assert_eq!(sums, (level.0, level.1), "{policy}: {figures:?}");
        }
        let log: Vec<_> = zones.iter().filter(|zone| zone.holds == Holds::Log).collect();
        // What is in memory only is behind the last byte of the last zone.
        assert!(log.iter().map(|zone| zone.live).sum::<u64>() <= figures.log, "{policy}: {zones:?} {figures:?}");
        let report = report_all(drive.device.as_ref()).unwrap();
        for zone in &zones {
            assert_eq!(zone.capacity, report[zone.zone as usize].capacity);
            assert!(zone.written <= zone.capacity, "{policy}: {zone:?}");
            assert!(zone.part.is_none_or(|part| part < figures.partitions), "{policy}: {zone:?}");
        }
        let parts: BTreeSet<_> = zones.iter().filter_map(|zone| zone.part).collect();
        assert!(*policy != "ring" || figures.partitions == 1 || !parts.is_empty(), "{zones:?}");
        assert!(*policy == "ring" || parts.is_empty(), "{zones:?}");
        // Zones are the same for who opens it again, but for the log.
        let of_tables = |zones: &[imbrex_kv::ZoneContent]| -> Vec<_> {
            let tables = zones.iter().filter(|zone| matches!(zone.holds, Holds::Tables(_)));
            tables.map(|zone| (zone.zone, zone.live, zone.part, zone.window)).collect()
        };
        store.flush().unwrap();
        let before = of_tables(&store.zones().unwrap());
        drop(store);
        assert_eq!(of_tables(&Kv::open(drive, options()).unwrap().zones().unwrap()), before, "{policy}");
    }
}
