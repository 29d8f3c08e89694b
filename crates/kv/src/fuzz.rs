//! What the fuzz targets call: hostile bytes where a store reads what it has written.

use crate::batch::{self, Found};
use crate::manifest::{Manifest, Note, Places, notes, record};
use crate::order::Bytewise;
use crate::policy::{ALL, Goal, Open, Part, Sizes, Snapshot, Table, Window};
use crate::salvage::tables_within;
use crate::table::left::{Left, properties, sealed};
use crate::table::{Compression, MAX_KEY, Source};
use imbrex_device::{Error, Result};
use std::sync::Arc;

/// Zones of the drive that the bytes are about, and bytes of each.
const ZONES: u32 = 64;
const ZONE: u64 = 1 << 20;

/// Records of the metadata log: each is a byte that tells how long it is, in 32 bytes, and the notes. What is accepted is written as it was, and what cannot be
/// true is refused. Of all else a snapshot gives the same again, and each policy finds a choice.
pub fn fuzz_metadata(mut data: &[u8]) {
    let mut manifest = Manifest::default();
    while let Some((len, rest)) = data.split_first() {
        let (bytes, rest) = rest.split_at((usize::from(*len) * 32 + 1).min(rest.len()));
        data = rest;
        let Some(found) = notes(bytes) else { continue };
        let mut again = Vec::new();
        record(&found, &mut again);
        assert_eq!(again, bytes, "notes are written as they were");
        found.into_iter().for_each(|note| manifest.apply(note));
    }
    let places = Places { zones: ZONES, front: 4096, capacity: &|_| ZONE };
    if manifest.check(&Bytewise, &places).is_err() {
        return;
    }
    manifest.settle(&Bytewise);
    let mut again = Manifest::default();
    let mut apply = |all: &[Note]| all.iter().cloned().for_each(|note| again.apply(note));
    manifest.snapshot(&mut apply);
    assert_eq!(again, manifest, "a snapshot makes the same state");
    choose(&manifest);
}

/// Asks each policy about it.
fn choose(manifest: &Manifest) {
    let mut tables: Vec<Table> = manifest.tables.values().map(|table| table.described(100)).collect();
    tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    let part = |(id, from): &(u32, Option<crate::policy::Key>)| Part {
        id: *id,
        from: from.clone(),
        bytes: ZONE,
        hidden: 10,
        log: ZONE,
    };
    let parts: Vec<Part> = manifest.parts.iter().map(part).collect();
    let windows: Vec<Window> = manifest.windows.values().cloned().collect();
    let open: Vec<Open> =
        tables.first().map(|table| Open { group: table.group, zone: table.zone, room: 100 }).into_iter().collect();
    let sizes = Sizes { memtable: ZONE, table: ZONE / 4, step: ZONE / 4 };
    for goal in [Goal::Usual, Goal::Ahead, Goal::Idle, Goal::Flush, Goal::All] {
        for free in [0, 8, ZONES] {
            let tree = Snapshot {
                order: &Bytewise,
                tables: &tables,
                parts: &parts,
                jobs: &manifest.jobs,
                windows: &windows,
                open: &open,
                zones: ZONES,
                free,
                zone: ZONE,
                writes: 8,
                next: manifest.next,
                settled: u64::MAX,
                goal,
            };
            for (_, make) in ALL {
                let policy = make(sizes);
                policy.choose(&tree);
                policy.pressure(&tree);
            }
        }
    }
}

/// Bytes of the write-ahead log: records are found, or none is.
pub fn fuzz_log(data: &[u8]) {
    let mut rest = data;
    while let Found::Record(record, len) = batch::read(0, rest) {
        assert!(len > 0 && len <= rest.len(), "a record ends where its bytes end");
        assert_eq!(record.changes().count() as u64, record.count(), "it has as many changes as it says");
        rest = &rest[len..];
    }
}

/// Bytes in memory.
struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.0.get(at as usize..).and_then(|rest| rest.get(..len));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::invalid(&self.drive(), "bytes behind the end"))
    }

    fn drive(&self) -> Arc<str> {
        "fuzz".into()
    }
}

/// A zone with tables that are damaged: one byte of choices, then its bytes. They are taken as they are, or as the contents of data blocks with the right sums. What is
/// found ends, and lies within what is there.
pub fn fuzz_salvage(data: &[u8]) {
    let Some((choices, bytes)) = data.split_first() else { return };
    let (life, len) = (7, usize::from(choices >> 3) * 16 + 8);
    let bytes = match choices & 3 {
        0 => bytes.to_vec(),
        1 => sealed(bytes.chunks(len), Compression::Off, life),
        2 => sealed(bytes.chunks(len), Compression::Lz4, life),
        _ => sealed(bytes.chunks(len), Compression::Zstd, life),
    };
    let end = bytes.len() as u64;
    let mut read = |at: u64, len: u64| bytes[at as usize..][..len as usize].to_vec();
    let mut places = tables_within(&mut read, life, 512, 0..end);
    places.push((0, end, None));
    for (at, len, _) in places {
        let table = Arc::new(Bytes(bytes[at as usize..][..len as usize].to_vec()));
        let mut left = Left::new(table.clone(), table.clone(), len, life);
        let mut entries = 0;
        while left.next() {
            let Some((key, _, _, value)) = left.entry() else { panic!("it is at an entry") };
            assert!(key.len() <= MAX_KEY && value.len() as u64 <= len.saturating_mul(256));
            entries += 1;
            assert!(entries <= len.saturating_mul(256), "an entry takes bytes");
        }
        assert!(left.lost().1 <= len, "what is lost was there");
        properties(table.as_ref(), len, life);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::counters::Done;
    use crate::manifest::{Flushed, Space, TableInfo, WalFrame};
    use crate::policy::{BOTTOM, Group, HIGHEST, Job, Kind};
    use crate::ranges::RangeTombstone;
    use proptest::prelude::*;

    fn table(id: u64, group: Group, zone: u32, keys: (u8, u8)) -> Note {
        Note::Table(TableInfo {
            id,
            group,
            zone,
            life: 5,
            at: 4096 + id * 1000,
            len: 1000,
            live: 900,
            entries: 7,
            deletes: 2,
            stale: u64::from(id != 2),
            seqs: if id == 2 { (8, 8) } else { (1, 8) },
            ingested: id == 2,
            smallest: [keys.0][..].into(),
            largest: [keys.1][..].into(),
            from: None,
            marks: [[keys.0][..].into()].into(),
        })
    }

    fn valid() -> Vec<Vec<Note>> {
        let slice = Group { level: 0, part: 3 };
        vec![
            vec![
                Note::Space(0, Space { name: "".into(), order: "leveldb.BytewiseComparator".into(), dropped: false }),
                Note::Space(
                    6,
                    Space { name: "six".into(), order: "leveldb.BytewiseComparator".into(), dropped: false },
                ),
                Note::Policy("ring".into()),
            ],
            vec![Note::Parts(vec![(3, None), (4, Some([50][..].into()))])],
            vec![table(1, BOTTOM, 5, (1, 30)), table(2, BOTTOM, 5, (31, 80)), table(3, slice, 6, (5, 44))],
            vec![Note::Range(RangeTombstone { begin: vec![7], end: vec![70], seq: 5 })],
            vec![table(4, slice, 6, (2, 49)), table(5, Group { level: 1, part: 9 }, 7, (60, 70))],
            vec![Note::Jobs(vec![
                Job { kind: Kind::Slices(HIGHEST), part: 4, from: 0, before: 3, zones: vec![] },
                Job { kind: Kind::Sweep, part: 3, from: 0, before: 4, zones: vec![5] },
            ])],
            vec![Note::Checkpoint("monday".into(), 6), Note::NoCheckpoint("sunday".into())],
            vec![Note::From { id: 3, key: [9][..].into(), live: 400 }, Note::Gone(4)],
            vec![Note::Flushed(Flushed { from: None, to: Some([50][..].into()), seq: 7 })],
            vec![Note::Done(Done { puts: 7, written: vec![(3, 4)], ..Done::default() })],
            vec![
                Note::Window(Window { level: 2, zones: vec![7] }),
                Note::Front { position: 9, seq: 4, frame: Some(WalFrame { zone: 3, life: 5, at: 4096 }) },
            ],
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hostile_tables_make_no_panic(data in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..600)) {
            fuzz_salvage(&data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hostile_metadata_makes_no_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut manifest = Manifest::default();
            for notes_of in valid() {
                let mut one = Vec::new();
                record(&notes_of, &mut one);
                for (at, byte) in &changes {
                    let at = at.index(one.len() * 4);
                    if at < one.len() {
                        one[at] = *byte;
                    }
                }
                if let Some(found) = notes(&one) {
                    found.into_iter().for_each(|note| manifest.apply(note));
                }
            }
            let places = Places { zones: ZONES, front: 4096, capacity: &|_| ZONE };
            let checked = manifest.check(&Bytewise, &places);
            prop_assert!(!changes.is_empty() || checked.is_ok(), "{checked:?}");
            if checked.is_ok() {
                manifest.settle(&Bytewise);
                choose(&manifest);
            }
        }
    }
}
