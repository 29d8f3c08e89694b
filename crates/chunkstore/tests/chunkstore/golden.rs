//! Yesterday's drives open today: an image that the code of each version of the format made is opened, checked and read exactly.
//!
//! `golden/vN.drive` is a drive whose store was in the middle of its work when its process died: chunks in all states, records that a
//! checkpoint knows, that the journal was told of, that were moved, and that only their zones know; since version 2 with names that a checkpoint
//! knows, and that the journal has. It begins with the write pointers
//! (4 bytes of how many, 8 bytes each, all ones for conventional zones); then come runs of what is not zero (8 bytes offset, 4 bytes
//! length, the bytes).
//!
//! After a change of the format: raise [`FORMAT`], run with `IMBREX_GOLDEN=write`, commit the new file. What is there is never
//! written again.

use crate::support::{BUFFERED, config, content, drive, format, id, options};
use imbrex_chunkstore::{ChunkStore, Durability, Error, Options, StreamType};
use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use std::path::{Path, PathBuf};

/// The newest version of the format.
const FORMAT: u32 = 3;
const TAG: Tag = Tag::new(Cause::Other);

fn settings() -> Options {
    Options { checkpoint_bytes: u64::MAX / 2, tell_bytes: 60 << 10, ..options() }
}

fn golden_config() -> Config {
    Config { uuid: *b"a golden medium!", ..config() }
}

/// Mostly zeros, so that the image stays small, but each at a place of its own.
fn piece(n: usize, seed: u64) -> Vec<u8> {
    (0..n).map(|i| if i % 997 == 0 { (i / 997) as u8 ^ seed as u8 } else { 0 }).collect()
}

/// What each chunk holds in the end, whether it is sealed, and its kind of stream; chunk 3 is deleted, 4 is empty.
fn expected() -> Vec<(u64, Vec<u8>, bool, StreamType)> {
    vec![
        (1, [piece(9000, 1), piece(50_000, 2), piece(100, 3)].concat(), true, StreamType::DATA),
        (2, [piece(30_000, 4), piece(30_000, 5)].concat(), false, StreamType::METADATA),
        (4, Vec::new(), false, StreamType::GC),
        (5, [piece(20_000, 6), piece(41_000, 7), piece(5000, 8)].concat(), false, StreamType::DATA),
    ]
}

/// Names that there are since version 2.
fn names(version: u32) -> Vec<(&'static str, Vec<u64>)> {
    if version < 2 { Vec::new() } else { vec![("a name", vec![1]), ("dir/two of them", vec![5, 4])] }
}

fn killed() -> Emulator {
    let emulator = Emulator::memory(&golden_config()).unwrap();
    format(&emulator);
    let store = ChunkStore::open(drive(&emulator), settings()).unwrap();
    let append = |n: u64, len: usize, seed: u64| {
        store.append_with(id(n), &piece(len, seed), BUFFERED).unwrap();
    };
    let create = |n: u64, stream| store.create_with(id(n), stream, Durability::Buffered).unwrap();
    create(1, StreamType::DATA);
    create(2, StreamType::METADATA);
    create(3, StreamType::DATA);
    append(1, 9000, 1);
    append(3, 120_000, 9);
    append(2, 30_000, 4);
    store.name(&[("another name", &[id(2)]), ("a name", &[id(1)]), ("of chunk 3", &[id(3)])], false).unwrap();
    store.checkpoint().unwrap();
    append(1, 50_000, 2);
    append(1, 100, 3);
    append(3, 40_000, 9);
    store.seal(id(1)).unwrap();
    // The first zone is full, and most of it dead: what is live in it is moved.
    create(5, StreamType::DATA);
    append(5, 20_000, 6);
    append(3, 60_000, 9);
    store.sync().unwrap();
    store.delete(id(3)).unwrap();
    assert!(store.clean(1 << 20).unwrap() > 0);
    create(4, StreamType::GC);
    store.name(&[("dir/two of them", &[id(5), id(4)])], false).unwrap();
    store.unname("another name").unwrap();
    append(5, 41_000, 7);
    append(2, 30_000, 5);
    store.sync().unwrap();
    // Only its zone knows this one.
    append(5, 5000, 8);
    store.sync().unwrap();
    std::mem::forget(store);
    emulator
}

fn runs(data: &[u8], base: u64, out: &mut Vec<u8>) {
    const GAP: usize = 16;
    let mut at = 0;
    while let Some(start) = data[at..].iter().position(|b| *b != 0).map(|i| at + i) {
        let mut end = start + 1;
        while let Some(next) = data[end..].iter().take(GAP).position(|b| *b != 0) {
            end += next + 1;
        }
        out.extend((base + start as u64).to_le_bytes());
        out.extend(((end - start) as u32).to_le_bytes());
        out.extend(&data[start..end]);
        at = end;
    }
}

fn capture(device: &Emulator) -> Vec<u8> {
    let zones = report_all(device).unwrap();
    let mut out = (zones.len() as u32).to_le_bytes().to_vec();
    zones.iter().for_each(|zone| out.extend(zone.wp.unwrap_or(u64::MAX).to_le_bytes()));
    let mut buf = AlignedBuf::zeroed(device.geometry().zone_size as usize);
    for zone in &zones {
        let start = device.geometry().start(zone.id);
        device.read_at(&mut buf, start, TAG).unwrap();
        runs(&buf, start, &mut out);
    }
    out
}

fn restore(golden: &[u8]) -> Emulator {
    let drive = Emulator::memory(&golden_config()).unwrap();
    let geometry = drive.geometry().clone();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let zones = u32::from_le_bytes(golden[..4].try_into().unwrap()) as usize;
    assert_eq!(zones, geometry.zones as usize);
    let (pointers, mut list) = golden[4..].split_at(zones * 8);
    let mut all = vec![0; geometry.size() as usize];
    while !list.is_empty() {
        let (at, len) = (number(&list[..8]) as usize, u32::from_le_bytes(list[8..12].try_into().unwrap()) as usize);
        all[at..at + len].copy_from_slice(&list[12..12 + len]);
        list = &list[12 + len..];
    }
    for (i, wp) in pointers.chunks_exact(8).enumerate() {
        let start = geometry.start(ZoneId(i as u32)) as usize;
        let wp = number(wp).min(geometry.zone_size) as usize;
        if wp > 0 {
            drive.write_at(&AlignedBuf::padded(&all[start..start + wp], 4096), start as u64, TAG).unwrap();
        }
    }
    drive.flush(TAG).unwrap();
    drive
}

fn path(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}.drive"))
}

fn holds_everything(store: &ChunkStore, version: u32) {
    assert_eq!(store.open_report().damage, Vec::<String>::new());
    let found: Vec<_> =
        store.list(None, 100).iter().map(|i| (i.id, content(store, i.id), i.sealed, i.stream)).collect();
    let mut want: Vec<_> =
        expected().into_iter().map(|(n, all, sealed, stream)| (id(n), all, sealed, stream)).collect();
    want.sort_by_key(|(id, ..)| *id);
    assert!(found == want, "{:?}", store.list(None, 100));
    assert!(matches!(store.stat(id(3)), Err(Error::NotFound(_))));
    let found: Vec<_> = store.names(None, "", 100).into_iter().map(|found| found.name).collect();
    let want = names(version);
    assert_eq!(
        found.iter().map(|name| &**name).collect::<Vec<_>>(),
        want.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
    for (name, chunks) in want {
        assert_eq!(store.named(name).unwrap(), chunks.into_iter().map(id).collect::<Vec<_>>());
    }
    assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_killed_store_of_every_version_is_recovered() {
    if std::env::var("IMBREX_GOLDEN").is_ok_and(|v| v == "write") && !path(FORMAT).exists() {
        std::fs::write(path(FORMAT), capture(&killed())).unwrap();
    }
    for version in 1..=FORMAT {
        let path = path(version);
        let golden =
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; IMBREX_GOLDEN=write makes it", path.display()));
        let emulator = restore(&golden);
        for cut in [None, Some(1)] {
            let emulator =
                cut.map_or_else(|| emulator.fork().unwrap(), |seed| emulator.after_power_loss(seed).unwrap());
            let store = ChunkStore::open(drive(&emulator), settings()).unwrap();
            let report = store.open_report().clone();
            assert!(!report.clean && report.records == 1 && report.journal_records > 2, "{report:?}");
            holds_everything(&store, version);
            store.create(id(9), StreamType::DATA).unwrap();
            store.append(id(9), &piece(7000, 9)).unwrap();
            store.delete(id(9)).unwrap();
            store.close().unwrap();
            drop(store);
            let store = ChunkStore::open(drive(&emulator), settings()).unwrap();
            assert!(store.open_report().clean);
            holds_everything(&store, version);
        }
    }
}
