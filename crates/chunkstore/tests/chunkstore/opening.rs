//! Recovery reads what it has to and no more: counted command by command; and it says how far it is.

use crate::support::{BUFFERED, bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::{ChunkStore, Error, OpenStep, StreamType, TENANT};
use imbrex_device::{Error as DriveError, Fault};
use imbrex_emulator::{Config, Emulator, Op};
use imbrex_zones::Volume;
use imbrex_zones::log::Root;
use std::collections::{BTreeMap, BTreeSet};

/// What an opening said of its progress.
type Steps = Vec<(OpenStep, u64, u64)>;

/// Zones that an opening reads, with the bytes of each; and its progress.
fn opening(emulator: &Emulator) -> (BTreeMap<u32, u64>, Steps, ChunkStore) {
    emulator.start_trace(1 << 16);
    let mut steps = Vec::new();
    let open = ChunkStore::open_watched(drive(emulator), options(), |step, done, all| steps.push((step, done, all)));
    let store = open.unwrap();
    let trace = emulator.trace();
    emulator.stop_trace();
    let mut read: BTreeMap<u32, u64> = BTreeMap::new();
    for command in trace.iter().filter(|command| command.op == Op::Read) {
        *read.entry(command.zone).or_default() += u64::from(command.len);
    }
    (read, steps, store)
}

fn metazones(store: &ChunkStore) -> BTreeSet<u32> {
    let all = store.zones();
    all.iter().filter(|zone| zone.usage.is_none()).map(|zone| zone.zone).collect()
}

#[test]
fn only_zones_that_were_open_since_the_checkpoint_are_read() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(
        drive(&emulator),
        imbrex_chunkstore::Options { checkpoint_bytes: 1 << 40, tell_bytes: 1 << 40, ..options() },
    );
    let store = store.unwrap();
    for n in 0..60 {
        store.create(id(n), StreamType::DATA).unwrap();
        store.append_with(id(n), &bytes(100_000, n), BUFFERED).unwrap();
    }
    store.checkpoint().unwrap();
    let zones = |store: &ChunkStore, n: u64| store.places(id(n)).unwrap().into_iter().map(|place| place.zone);
    let before: BTreeSet<u32> = (0..60).flat_map(|n| zones(&store, n)).collect();
    for n in 60..70 {
        store.create(id(n), StreamType::new(n as u8 % 2).unwrap()).unwrap();
        store.append(id(n), &bytes(50_000, n)).unwrap();
    }
    let since: BTreeSet<u32> = (60..70).flat_map(|n| zones(&store, n)).collect();
    let meta = metazones(&store);
    drop(store);

    let (read, steps, store) = opening(&emulator);
    let data: BTreeSet<u32> = read.keys().copied().filter(|zone| *zone >= 4 && !meta.contains(zone)).collect();
    assert!(since.is_subset(&data), "{since:?} {data:?}");
    let untouched = before.difference(&since).count();
    assert!(untouched > 15 && data.len() <= since.len() + 10, "{before:?} {since:?} {data:?}");
    // Zones that were closed before the checkpoint are not looked at at all, and of the others only what came since.
    let more: Vec<u32> = data.difference(&since).copied().collect();
    assert!(more.iter().all(|zone| before.contains(zone)) && more.len() < 10, "{more:?}");
    let bytes: u64 = data.iter().map(|zone| read[zone]).sum();
    assert!(bytes < 10 * 50_000 * 2, "{bytes} bytes for 500,000 that were appended");
    assert_eq!(store.open_report().scanned_zones as usize, data.len());

    // Each step from the beginning on, one zone after the other.
    for step in [OpenStep::Metazones, OpenStep::Scan] {
        let of: Vec<_> = steps.iter().filter(|(s, ..)| *s == step).collect();
        assert!(!of.is_empty());
        assert!(of.iter().enumerate().all(|(i, (_, done, all))| *done == i as u64 && done < all), "{steps:?}");
    }
    assert!(steps.is_sorted_by_key(|(step, ..)| *step == OpenStep::Scan));
    store.close().unwrap();
    drop(store);

    // Closed: nothing is scanned but what stands behind the ends that it knows, which is nothing.
    let (read, _, store) = opening(&emulator);
    let data: Vec<u32> = read.keys().copied().filter(|zone| *zone >= 4 && !meta.contains(zone)).collect();
    assert!(data.is_empty() && store.open_report().clean, "{data:?}");
}

/// Lives and serial numbers come from the volume's mount, and what it knows of zones is of the moment when it was opened.
#[test]
fn a_tenant_is_opened_once_on_a_volume() {
    let emulator = Emulator::memory(&config()).unwrap();
    format(&emulator);
    let volume = Volume::open(drive(&emulator), options().volume).unwrap();
    let open = || ChunkStore::open_tenant(volume.tenant(TENANT).unwrap(), options());
    let store = open().unwrap();
    store.create(id(1), StreamType::DATA).unwrap();
    for _ in 0..2 {
        match open().map(drop) {
            Err(Error::Drive(DriveError { fault: Fault::Unusable(sentence), .. })) => {
                assert!(sentence.contains("open the volume anew"), "{sentence}");
            }
            other => panic!("{other:?}"),
        }
        store.append(id(1), b"goes on").unwrap();
        store.close().unwrap();
    }
    drop(store);
    assert!(open().is_err(), "it was closed, but the volume was not");
    drop(volume);
    let store = ChunkStore::open(drive(&emulator), options()).unwrap();
    assert_eq!(content(&store, id(1)), b"goes ongoes on");
}

/// A label that is whole and says what cannot be: as of another drive.
#[test]
fn a_root_that_names_zones_that_are_no_metazones_is_refused() {
    let bogus = [
        // More than there are sequential zones, with all of these among them.
        (0..64).collect::<Vec<u32>>(),
        (1..64).collect(),
        (4..65).collect(),
        vec![3, 4, 5, 6],
        vec![62, 63, 64, 65],
        vec![u32::MAX - 3, u32::MAX - 2, u32::MAX - 1],
        vec![4, 5, 6],
        vec![],
    ];
    for metazones in bogus {
        let emulator = Emulator::memory(&config()).unwrap();
        format(&emulator);
        {
            let volume = imbrex_zones::Volume::open(drive(&emulator), options().volume).unwrap();
            let root = Root { copies: 2, zones: metazones.clone(), ..Root::default() };
            volume.tenant(TENANT).unwrap().set_root(&root.encode().unwrap()).unwrap();
        }
        for salvaging in [false, true] {
            let opened = match salvaging {
                false => ChunkStore::open(drive(&emulator), options()),
                true => ChunkStore::salvage(drive(&emulator), options(), |_, _| {}),
            };
            let error = opened.err().map(|error| error.to_string());
            let told = error.as_ref().is_some_and(|error| error.contains("the root of chunkstore names"));
            assert!(told, "{metazones:?}, salvaging {salvaging}: {error:?}");
        }
    }
    // On a drive without conventional zones the label is in two others.
    let emulator = Emulator::memory(&Config { conventional: 0, ..config() }).unwrap();
    format(&emulator);
    let volume = imbrex_zones::Volume::open(drive(&emulator), options().volume).unwrap();
    let root = Root { copies: 2, zones: (0..64).collect(), ..Root::default() };
    volume.tenant(TENANT).unwrap().set_root(&root.encode().unwrap()).unwrap();
    drop(volume);
    assert!(ChunkStore::open(drive(&emulator), options()).is_err());
}
