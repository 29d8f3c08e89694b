//! What the fuzz targets call: hostile bytes where a store reads what it has written.

use crate::batch::{self, Found, HEADER, MAGIC};
use crate::manifest::{Manifest, Note, Places, notes, record};
use crate::order::Bytewise;
use crate::policy::{ALL, Goal, Open, Part, Sizes, Snapshot, Table, Window};
use crate::records::Records;
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
    for goal in [Goal::Usual, Goal::Ahead, Goal::Idle, Goal::Delete, Goal::Flush, Goal::All] {
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
                last: free % 2 == 0,
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

/// The store's number in its records.
const SALT: u32 = 0;
/// Where the bytes of the log begin.
const FROM: u64 = 1000;
/// What the first byte says: the bytes get the sums of records, and they come in stretches.
const SEALED: u8 = 1;
const STRETCHES: u8 = 2;

/// Makes records of the bytes: each is as long as its header says, or as there is.
fn sealed_records(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let mut rest = &mut all[..];
    while rest.len() >= HEADER {
        rest[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let most = rest.len() - HEADER;
        let len = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]).min(most as u32);
        rest[4..8].copy_from_slice(&len.to_le_bytes());
        let (record, behind) = rest.split_at_mut(HEADER + len as usize);
        batch::seal(SALT, record);
        rest = behind;
    }
    all
}

/// What is found in the log: where, and the bytes.
type InLog = Vec<(u64, Vec<u8>)>;

/// Hands stretches of the log over.
fn glued(log: &[u8], stretches: &[(usize, usize, bool)]) -> InLog {
    let (mut records, mut found) = (Records::new(SALT, FROM), InLog::new());
    for (from, to, memory) in stretches {
        records.bytes(FROM + *from as u64, &log[*from..*to], *memory, &mut |record| {
            found.push((record.at, record.bytes.to_vec()));
            assert!(!record.memory || stretches.iter().any(|stretch| stretch.2), "only what memory has is of memory");
        });
    }
    found
}

/// Bytes of the write-ahead log: one byte of choices, then the log, or stretches of it (their number, and for each a byte of choices, where it begins and how long it is: 2
/// bytes each) and the log. Records are found, or none is. Stretches without a gap have the same records as the whole, and others none that is not there.
pub fn fuzz_log(data: &[u8]) {
    let Some((choices, mut data)) = data.split_first() else { return };
    let mut stretches = Vec::new();
    if choices & STRETCHES != 0 {
        let Some((count, rest)) = data.split_first() else { return };
        let (heads, rest) = rest.split_at((usize::from(*count) * 5).min(rest.len()));
        (stretches, data) = (heads.chunks_exact(5).collect(), rest);
    }
    let log = if choices & SEALED != 0 { sealed_records(data) } else { data.to_vec() };
    let mut rest = &log[..];
    while let Found::Record(record, len) = batch::read(SALT, rest) {
        assert!(len > 0 && len <= rest.len(), "a record ends where its bytes end");
        assert_eq!(record.changes().count() as u64, record.count(), "it has as many changes as it says");
        for change in record.changes() {
            assert!(change.key.len() + change.value.len() <= len, "a change is in its record");
            change.range();
        }
        rest = &rest[len..];
    }
    let whole = glued(&log, &[(0, log.len(), false)]);
    let place = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])).min(log.len());
    let stretch = |head: &&[u8]| {
        let (from, len) = (place(&head[1..]), place(&head[3..]));
        (from, (from + len).min(log.len()), head[0] & 1 == 1)
    };
    let mut stretches: Vec<(usize, usize, bool)> = stretches.iter().map(stretch).collect();
    stretches.sort_unstable();
    let found = glued(&log, &stretches);
    let mut end = 0;
    for (at, bytes) in &found {
        let from = (at - FROM) as usize;
        assert!(from >= end && log[from..].starts_with(bytes), "a record of the log, once");
        end = from + bytes.len();
    }
    let mut reached = 0;
    let follows = stretches.iter().all(|(from, to, _)| {
        let follows = *from <= reached;
        reached = reached.max(*to);
        follows
    });
    if follows && reached == log.len() {
        assert_eq!(found, whole, "stretches without a gap are the whole");
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
    use crate::batch::{Batch, Body};
    use crate::done::Done;
    use crate::manifest::{Flushed, Space, TableInfo, WalFrame, WalZone};
    use crate::policy::{BOTTOM, Group, HIGHEST, Job, Kind};
    use crate::ranges::RangeTombstone;
    use crate::table::{Identity, Kind as Entry, TableBuilder, TableOptions};
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

    /// Notes of every kind, each record as long as an input can say.
    fn metadata() -> Vec<u8> {
        let mut more = valid();
        more.extend([
            vec![
                Note::WalZone(WalZone { zone: 3, life: 5, position: 0 }),
                Note::WalZone(WalZone { zone: 4, life: 6, position: 100 }),
                Note::Relabel(vec![5], Group { level: 2, part: 4 }),
                Note::Next(99),
            ],
            vec![
                Note::Space(8, Space { name: "eight".into(), order: "nobody's".into(), dropped: true }),
                Note::NoSpace(8),
                Note::Range(RangeTombstone { begin: vec![8], end: vec![9], seq: 6 }),
                Note::NoRange(6),
                Note::Jobs(vec![Job { kind: Kind::Own(2), part: 4, from: 0, before: 4, zones: vec![] }]),
            ],
        ]);
        let mut all = Vec::new();
        for mut notes_of in more {
            let mut bytes = Vec::new();
            record(&notes_of, &mut bytes);
            // A checkpoint that nobody made, with a name of the right length.
            let name = (32 - (bytes.len() + 5 - 1) % 32) % 32;
            notes_of.push(Note::NoCheckpoint("x".repeat(name)));
            bytes.clear();
            record(&notes_of, &mut bytes);
            assert_eq!(bytes.len() % 32, 1);
            all.push((bytes.len() / 32) as u8);
            all.extend(bytes);
        }
        all
    }

    /// Records of every kind of change, and where each begins.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let (mut log, mut begin, mut next) = (Vec::new(), Vec::new(), 9);
        for n in 0..4u16 {
            let mut batch = Batch::new();
            batch.put(b"key", &[7; 20]);
            batch.delete(b"other");
            if n > 0 {
                batch.go_to(n, 3);
                batch.merge(b"key", b"operand");
                batch.delete_range(Some(b"a"), (n == 1).then_some(b"b"));
                batch.delete_range(None, Some(b"c"));
            }
            if n == 2 {
                batch.drop_space(6);
            }
            if n == 3 {
                batch.clear();
                batch.ingest();
            }
            begin.push(log.len());
            let (front, rest) = Body::Batch(&batch).record(SALT, next, 5);
            log.extend([&front[..], rest].concat());
            next += batch.len() as u64;
        }
        (log, begin)
    }

    fn table_of_life_7() -> (Vec<u8>, usize) {
        let options = TableOptions { block: 4 << 10, ..TableOptions::default() };
        let identity = Identity { table: 3, life: 7 };
        let mut builder = TableBuilder::new(options, Arc::new(Bytewise), identity).unwrap();
        for n in 0..40u64 {
            let (kind, value) = match n % 5 {
                3 => (Entry::Delete, String::new()),
                4 => (Entry::Merge, format!("operand {n}")),
                _ => (Entry::Put, format!("value {n} ").repeat(20)),
            };
            builder.add(format!("key {n:02}").as_bytes(), 100 + n, kind, value.as_bytes()).unwrap();
        }
        let (bytes, meta) = builder.finish().unwrap();
        (bytes, meta.len as usize)
    }

    /// What the fuzz targets begin with: the target, the seed's name, and its bytes.
    fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
        let (log, begin) = log();
        let mut stretches = vec![SEALED | STRETCHES, 3];
        // The middle of the second record is where one ends, and the last comes twice: of the drive and of memory.
        for (memory, from, to) in [(0, 0, begin[1] + 50), (0, begin[1] + 50, log.len()), (1, begin[3], log.len())] {
            stretches.push(memory);
            stretches.extend((from as u16).to_le_bytes());
            stretches.extend(((to - from) as u16).to_le_bytes());
        }
        stretches.extend(&log);
        let (table, len) = table_of_life_7();
        assert_eq!(table.len(), len);
        // The first block of a table, without its trailer, in two parts of 504 bytes.
        let block = |table: &[u8]| table[..1008].to_vec();
        vec![
            ("kv_metadata", "every-note", metadata()),
            ("kv_log", "as-it-is", [&[0][..], &log].concat()),
            ("kv_log", "sealed", [&[SEALED][..], &log].concat()),
            ("kv_log", "stretches", stretches),
            ("kv_salvage", "a-table", [&[0][..], &table].concat()),
            ("kv_salvage", "blocks", [&[31 << 3 | 1][..], &block(&table)].concat()),
        ]
    }

    /// So the formats that they are in cannot change unseen. After a change: run with `IMBREX_WRITE_GOLDEN=1`, and raise the version once there was a release.
    #[test]
    fn the_golden_seeds_are_still_written_and_read() {
        for (target, name, bytes) in seeds() {
            let path = format!("{}/../../fuzz/seeds/{target}/{name}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("IMBREX_WRITE_GOLDEN").is_some() {
                std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
                std::fs::write(&path, &bytes).unwrap();
            }
            assert!(std::fs::read(&path).unwrap() == bytes, "{target}/{name} is written in another way");
            match target {
                "kv_metadata" => fuzz_metadata(&bytes),
                "kv_log" => fuzz_log(&bytes),
                _ => fuzz_salvage(&bytes),
            }
        }
        // They lead where the targets want to go.
        let (log, begin) = log();
        let found = glued(&log, &[(0, log.len(), false)]);
        assert!(found.iter().map(|(at, _)| (at - FROM) as usize).eq(begin), "all records are found");
        assert!(sealed_records(&log) == log, "a record that is whole is sealed as it was");
        let (table, len) = table_of_life_7();
        let mut read = |at: u64, len: u64| table[at as usize..][..len as usize].to_vec();
        assert!(tables_within(&mut read, 7, 512, 0..len as u64).iter().any(|place| place.1 == len as u64), "a table");
        let (mut manifest, metadata) = (Manifest::default(), metadata());
        let (mut rest, mut kinds) = (&metadata[..], std::collections::BTreeSet::new());
        while let Some((len, behind)) = rest.split_first() {
            let (bytes, behind) = behind.split_at(usize::from(*len) * 32 + 1);
            for note in notes(bytes).expect("notes") {
                let mut one = Vec::new();
                record(std::slice::from_ref(&note), &mut one);
                kinds.insert(one[1]);
                manifest.apply(note);
            }
            rest = behind;
        }
        assert!(kinds.into_iter().eq(1..=19), "each kind of note is there");
        let places = Places { zones: ZONES, front: 4096, capacity: &|_| ZONE };
        assert_eq!(manifest.check(&Bytewise, &places), Ok(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_hostile_log_makes_no_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cuts in prop::collection::vec((any::<bool>(), 0..400u16, 0..400u16), 0..8),
            sealed in any::<bool>(),
            gapless in any::<bool>(),
        ) {
            let mut log = log().0;
            let len = log.len();
            changes.iter().for_each(|(at, byte)| log[at.index(len)] = *byte);
            let mut input = vec![if sealed { SEALED | STRETCHES } else { STRETCHES }, cuts.len() as u8 + 1];
            let mut from = 0;
            for (memory, at, len) in &cuts {
                input.push((*memory).into());
                input.extend(if gapless { from } else { *at }.to_le_bytes());
                input.extend(len.to_le_bytes());
                from += len;
            }
            input.push(1);
            input.extend(if gapless { from } else { 300 }.to_le_bytes());
            input.extend(u16::MAX.to_le_bytes());
            input.extend(log);
            fuzz_log(&input);
        }
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
