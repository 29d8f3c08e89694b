//! Replay of damaged journals: whatever is lost, what is left is sound, and a lost record costs only its own operation.

use crate::meta_support::{World, op};
use imbrex_bluefs::kind::FileKind;
use imbrex_bluefs::meta::{
    Extent, LOST_FOUND, Meta, Name, OPEN, Place, ROOT, Record, RepairOutcome, Serial, Victim, Witness,
    fuzz_journal_bytes,
};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::BTreeSet;

/// The file whose inode or extents a record changes; not those that it only names.
fn changes(record: &Record) -> Option<Serial> {
    match *record {
        Record::Create { serial, .. }
        | Record::Extend { serial, .. }
        | Record::Size { serial, .. }
        | Record::Seal { serial, .. }
        | Record::Reopen { serial }
        | Record::Remap { serial, .. }
        | Record::Truncate { serial, .. }
        | Record::Times { serial, .. }
        | Record::Inode { serial, .. }
        | Record::Extent { serial, .. }
        | Record::Allocate { serial, .. } => Some(serial),
        _ => None,
    }
}

fn deletes(record: &Record) -> Option<Serial> {
    match record {
        Record::Unlink { victim, .. } | Record::Rename { victim: Some(victim), .. } if victim.last => {
            Some(victim.serial)
        }
        _ => None,
    }
}

/// Replays what `lost` leaves of `journal`, and demands all that can be demanded of it.
fn replay_with_losses(truth: &World, journal: &[Record], lost: &BTreeSet<usize>) -> Result<(), TestCaseError> {
    let lost = |index: usize| lost.contains(&index);
    let mut meta = Meta::new();
    let mut hurt = BTreeSet::new();
    let mut deleted = BTreeSet::new();
    let mut repairs = 0;
    for (index, record) in journal.iter().enumerate() {
        if lost(index) {
            hurt.extend(changes(record));
        } else {
            deleted.extend(deletes(record).filter(|serial| !meta.directories().any(|d| d.serial == *serial)));
            repairs += usize::from(!meta.apply_repairing(record).is_applied());
        }
    }
    repairs += meta.finish_replay().len();
    prop_assert_eq!(meta.check(), Vec::<String>::new());
    if (0..journal.len()).all(|index| !lost(index)) {
        prop_assert_eq!(repairs, 0, "an undamaged journal needs no repair");
        prop_assert!(meta == truth.meta);
    }
    // A file whose own records are all there is there, whole, whatever happened to the names around it.
    for serial in truth.live().filter(|serial| !hurt.contains(serial)) {
        let want = truth.meta.inode(serial).unwrap();
        let got = meta.inode(serial);
        prop_assert!(got.is_some(), "file {} is lost though none of its records is", serial);
        let got = got.unwrap();
        prop_assert_eq!(&got.extents, &want.extents, "extents of file {}", serial);
        let facts = |i: &imbrex_bluefs::meta::Inode| (i.kind, i.closed, i.size, i.volatile_size, i.created, i.modified);
        prop_assert_eq!(facts(got), facts(want), "file {}", serial);
        prop_assert!(!meta.was_deleted(serial));
    }
    // What a record that is left deleted is gone.
    for serial in deleted.iter().filter(|serial| truth.meta.inode(**serial).is_none()) {
        prop_assert!(meta.inode(*serial).is_none(), "file {} was deleted but is there", serial);
        prop_assert!(meta.was_deleted(*serial), "deletion of file {} is forgotten", serial);
    }
    let mut copy = Meta::new();
    for record in meta.snapshot() {
        let _ = copy.apply(&record).map_err(|why| TestCaseError::fail(format!("{record:?}: {why}")))?;
    }
    prop_assert!(copy == meta, "the snapshot gives another state");
    Ok(())
}

/// Indices of lost records.
fn losses() -> impl Strategy<Value = BTreeSet<usize>> {
    (0..4usize).prop_flat_map(|few| prop::collection::btree_set(0..200usize, 0..[1, 4, 15, 100][few]))
}

/// A sector's worth of records in one place.
fn one_gap() -> impl Strategy<Value = BTreeSet<usize>> {
    (0..60usize, 1..30usize).prop_map(|(from, len)| (from..from + len).collect())
}

fn run(ops: &[crate::meta_support::Op]) -> World {
    let mut world = World::new();
    for op in ops {
        world.step(op);
    }
    world
}

fn place() -> impl Strategy<Value = Place> {
    let zone = || (any::<u32>(), any::<u64>(), any::<u64>());
    prop_oneof![
        any::<u64>().prop_map(|addr| Place::Conventional { addr }),
        zone().prop_map(|(zone, life, offset)| Place::Raw { zone, life, offset }),
        zone().prop_map(|(zone, life, offset)| Place::Framed { zone, life, offset }),
        // Few of each, so that they meet.
        (0..4u64).prop_map(|n| Place::Conventional { addr: n * 1000 }),
        (0..3u32, 0..2u64).prop_map(|(zone, life)| Place::Raw { zone, life, offset: 4096 }),
    ]
}

/// Any record whatever, legal or not; serials and names from so few that they meet.
fn record() -> impl Strategy<Value = Record> {
    let serial = || prop_oneof![8 => 14..26u64, 2 => 0..4u64, 1 => any::<u64>()];
    let dir = || prop_oneof![4 => Just(ROOT), 3 => 16..20u64, 1 => serial()];
    const NAMES: [&str; 6] = ["a", "b", "lost+found", "16-a", "000012.sst", "CURRENT"];
    let name = || prop_oneof![6 => prop::sample::select(&NAMES[..]).prop_map(|n| Name::new(n).unwrap()), 1 => "[^/\\x00]{1,63}".prop_filter_map("dots", |n| Name::new(&n).ok())];
    let size = || prop_oneof![4 => 0..5000u64, 1 => any::<u64>()];
    let kind = || prop::sample::select(&FileKind::ALL[..]);
    let extent = move || {
        (size(), prop_oneof![3 => 0..3000u64, 1 => Just(OPEN), 1 => any::<u64>()], place())
            .prop_map(|(logical, len, place)| Extent { logical, len, place })
    };
    let victim = move || (serial(), any::<bool>()).prop_map(|(serial, last)| Victim { serial, last });
    let names_part = prop_oneof![
        (dir(), name(), serial(), size()).prop_map(|(parent, name, serial, time)| Record::Mkdir {
            parent,
            name,
            serial,
            time
        }),
        (dir(), name(), serial(), kind(), size()).prop_map(|(parent, name, serial, kind, time)| Record::Create {
            parent,
            name,
            serial,
            kind,
            time
        }),
        (serial(), dir(), name()).prop_map(|(serial, parent, name)| Record::Link { serial, parent, name }),
        (dir(), name(), victim()).prop_map(|(parent, name, victim)| Record::Unlink { parent, name, victim }),
        (dir(), name(), serial()).prop_map(|(parent, name, serial)| Record::Rmdir { parent, name, serial }),
        (dir(), name(), dir(), name(), serial(), prop::option::of(victim()), size()).prop_map(
            |(from_parent, from, to_parent, to, serial, victim, time)| Record::Rename {
                from_parent,
                from,
                to_parent,
                to,
                serial,
                victim,
                time
            }
        ),
        (dir(), name(), serial()).prop_map(|(parent, name, serial)| Record::Entry { parent, name, serial }),
    ];
    let bytes_part = prop_oneof![
        (serial(), extent()).prop_map(|(serial, extent)| Record::Extend { serial, extent }),
        (serial(), size(), size(), any::<bool>()).prop_map(|(serial, size, time, volatile)| Record::Size {
            serial,
            size,
            time,
            volatile
        }),
        (serial(), size(), size()).prop_map(|(serial, size, time)| Record::Seal { serial, size, time }),
        serial().prop_map(|serial| Record::Reopen { serial }),
        (serial(), extent()).prop_map(|(serial, e)| Record::Remap {
            serial,
            logical: e.logical,
            len: e.len,
            place: e.place
        }),
        (serial(), size(), size()).prop_map(|(serial, size, time)| Record::Truncate { serial, size, time }),
        (serial(), size()).prop_map(|(serial, modified)| Record::Times { serial, modified }),
        (serial(), extent()).prop_map(|(serial, extent)| Record::Extent { serial, extent }),
        (serial(), size()).prop_map(|(serial, bytes)| Record::Allocate { serial, bytes }),
        (0..40u32, 0..4u64).prop_map(|(zone, life)| Record::FreedZone { zone, life }),
        (size(), prop::collection::vec(any::<u8>(), 1..=512)).prop_map(|(addr, bytes)| Record::Inline { addr, bytes }),
    ];
    let rest = prop_oneof![
        (serial(), kind(), size(), size(), prop::option::of(size()), any::<bool>()).prop_map(
            |(serial, kind, created, size, volatile_size, closed)| {
                let (modified, allocated) = (created, if kind == FileKind::Directory { 0 } else { size });
                let size = if kind == FileKind::Directory { 0 } else { size };
                Record::Inode { serial, kind, created, modified, size, volatile_size, closed, allocated }
            }
        ),
        serial().prop_map(|serial| Record::NextSerial { serial: serial % 1000 }),
        Just(Record::Settled),
        (serial(), serial()).prop_map(|(old, new)| Record::Replace { old, new }),
    ];
    prop_oneof![7 => names_part, 9 => bytes_part, 2 => rest]
}

proptest! {
    #![proptest_config(Config { cases: 1500, failure_persistence: None, ..Config::default() })]

    #[test]
    fn random_losses_cost_only_what_was_lost(ops in prop::collection::vec(op(), 1..120), lost in losses()) {
        let world = run(&ops);
        replay_with_losses(&world, &world.journal, &lost)?;
    }

    #[test]
    fn one_bad_sector_costs_only_what_stood_in_it(ops in prop::collection::vec(op(), 40..160), lost in one_gap()) {
        let world = run(&ops);
        replay_with_losses(&world, &world.journal, &lost)?;
    }

    #[test]
    fn a_damaged_snapshot_costs_only_what_was_lost(
        ops in prop::collection::vec(op(), 20..120),
        later in prop::collection::vec(op(), 0..60),
        lost in losses(),
    ) {
        let mut world = run(&ops);
        let mut journal: Vec<Record> = world.meta.snapshot().collect();
        let before = world.journal.len();
        for op in &later {
            world.step(op);
        }
        journal.extend_from_slice(&world.journal[before..]);
        replay_with_losses(&world, &journal, &lost)?;
    }

    #[test]
    fn any_records_in_any_order_leave_a_sound_state(records in prop::collection::vec(record(), 0..120)) {
        let mut bytes = Vec::new();
        for record in &records {
            record.encode(&mut bytes);
        }
        fuzz_journal_bytes(&bytes);
    }

    #[test]
    fn any_rescue_leaves_a_sound_state(
        records in prop::collection::vec(record(), 0..80),
        found in prop::collection::vec((14..30u64, 0..6000u64, place(), any::<bool>()), 0..20),
    ) {
        let mut meta = Meta::new();
        for record in &records {
            let _ = meta.apply_repairing(record);
        }
        for (serial, logical, place, forget) in found {
            if forget {
                let _ = meta.forget_bytes(serial, logical, logical.saturating_add(1000));
            } else {
                let before = meta.clone();
                let kind = if matches!(place, Place::Framed { .. }) { FileKind::Log } else { FileKind::Table };
                let witness = Witness { serial, kind, name: "a", created: 1, logical, place };
                match meta.restore(&witness) {
                    Ok(()) => prop_assert!(meta.inode(serial).unwrap().extent_at(logical).is_some()),
                    Err(_) => prop_assert!(meta == before, "{:?} was refused but changed something", witness),
                }
            }
        }
        let _ = meta.finish_replay();
        prop_assert_eq!(meta.check(), Vec::<String>::new());
    }

    #[test]
    fn strict_application_of_any_records_keeps_every_invariant(records in prop::collection::vec(record(), 0..120)) {
        let mut meta = Meta::new();
        for record in &records {
            let before = meta.clone();
            if meta.apply(record).is_err() {
                prop_assert!(meta == before, "{:?} was refused but changed something", record);
            }
        }
        // Only what a snapshot leaves unfinished may be open.
        let _ = meta.finish_replay();
        prop_assert_eq!(meta.check(), Vec::<String>::new());
    }

    #[test]
    fn every_record_survives_its_encoding(record in record(), behind in prop::collection::vec(any::<u8>(), 0..8)) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let len = bytes.len();
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(Record::decode(&bytes), Ok((record, len)));
        prop_assert!(Record::decode(&bytes[..len - 1]).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz_journal_bytes(&bytes);
    }

    #[test]
    fn flipped_bytes_never_panic(
        records in prop::collection::vec(record(), 1..60),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = Vec::new();
        for record in &records {
            record.encode(&mut bytes);
        }
        for (at, to) in &flips {
            let at = at.index(bytes.len());
            bytes[at] = *to;
        }
        fuzz_journal_bytes(&bytes);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn raw(zone: u32, life: u64) -> Extent {
    Extent { logical: 0, len: OPEN, place: Place::Raw { zone, life, offset: 4096 } }
}

fn create(parent: Serial, text: &str, serial: Serial) -> Record {
    Record::Create { parent, name: name(text), serial, kind: FileKind::of_name(text), time: 7 }
}

#[test]
fn a_table_whose_creation_is_lost_is_found_again() {
    let mut meta = Meta::new();
    assert!(!meta.apply_repairing(&Record::Extend { serial: 20, extent: raw(5, 9) }).is_applied());
    assert!(meta.apply_repairing(&Record::Seal { serial: 20, size: 1000, time: 3 }).is_applied());
    assert_eq!(meta.resolve("/lost+found/20-lost"), Ok(20));
    assert_eq!(meta.parent_of(LOST_FOUND), Some(ROOT));
    let inode = meta.inode(20).unwrap();
    assert_eq!((inode.kind, inode.size, inode.closed), (FileKind::Table, 1000, true));
    assert!(meta.was_invented(20));
    assert_eq!(meta.next_serial(), 21);
}

#[test]
fn a_seal_alone_keeps_the_size_for_whoever_finds_the_zone() {
    let mut meta = Meta::new();
    assert!(!meta.apply_repairing(&Record::Seal { serial: 20, size: 1000, time: 3 }).is_applied());
    let inode = meta.inode(20).unwrap();
    assert_eq!((inode.size, inode.closed), (1000, false), "open: its end must be looked for");
}

#[test]
fn a_file_of_an_unknown_directory_goes_to_lost_and_found() {
    let mut meta = Meta::new();
    assert!(!meta.apply_repairing(&create(17, "000012.sst", 20)).is_applied());
    assert_eq!(meta.resolve("/lost+found/20-000012.sst"), Ok(20));
    let long = "x".repeat(255);
    assert!(!meta.apply_repairing(&create(17, &long, 21)).is_applied());
    assert_eq!(meta.check(), Vec::<String>::new());
}

#[test]
fn a_name_that_was_given_up_in_a_lost_record_does_not_cost_the_file() {
    // LOG was renamed to LOG.old.1 in a record that is lost; then a new LOG was made and deleted.
    let mut meta = Meta::new();
    assert!(meta.apply_repairing(&create(ROOT, "LOG", 16)).is_applied());
    assert!(!meta.apply_repairing(&create(ROOT, "LOG", 17)).is_applied());
    assert_eq!(meta.resolve("/LOG"), Ok(17));
    assert_eq!(meta.resolve("/lost+found/16-LOG"), Ok(16));

    // The same, with the new LOG's creation lost too: its deletion must not hit the old one.
    let mut meta = Meta::new();
    let _ = meta.apply_repairing(&create(ROOT, "LOG", 16));
    let unlink = Record::Unlink { parent: ROOT, name: name("LOG"), victim: Victim { serial: 17, last: true } };
    let _ = meta.apply_repairing(&unlink);
    assert!(meta.inode(16).is_some());
    assert!(meta.was_deleted(17) && !meta.was_deleted(16));
    let late = Record::Seal { serial: 17, size: 5, time: 1 };
    assert!(matches!(meta.apply_repairing(&late), RepairOutcome::Skipped(_)), "deleted files stay deleted");
}

#[test]
fn a_zone_in_a_new_life_no_longer_belongs_to_the_file_that_had_it() {
    let mut meta = Meta::new();
    for record in [
        create(ROOT, "1.sst", 16),
        Record::Extend { serial: 16, extent: raw(5, 1) },
        Record::Seal { serial: 16, size: 100, time: 1 },
        // The deletion of 16 is lost here.
        create(ROOT, "2.sst", 17),
    ] {
        assert!(meta.apply_repairing(&record).is_applied());
    }
    match meta.apply_repairing(&Record::Extend { serial: 17, extent: raw(5, 2) }) {
        RepairOutcome::Repaired { effect, .. } => assert!(effect.freed.is_empty(), "the zone is in use"),
        other => panic!("{other:?}"),
    }
    assert_eq!(meta.zone_life(5), Some(2));
    assert_eq!(meta.pieces(5).map(|p| p.serial).collect::<Vec<_>>(), [17]);
    let old = meta.inode(16).unwrap();
    assert_eq!((old.size, old.extents.len()), (0, 0));
    assert_eq!(meta.check(), Vec::<String>::new());
}

#[test]
fn current_follows_the_truth_when_the_new_ones_creation_is_lost() {
    let mut meta = Meta::new();
    let _ = meta.apply_repairing(&create(ROOT, "CURRENT", 16));
    let rename = Record::Rename {
        from_parent: ROOT,
        from: name("000005.dbtmp"),
        to_parent: ROOT,
        to: name("CURRENT"),
        serial: 17,
        victim: Some(Victim { serial: 16, last: true }),
        time: 1,
    };
    assert!(!meta.apply_repairing(&rename).is_applied());
    assert_eq!(meta.resolve("/CURRENT"), Ok(17));
    assert!(meta.was_deleted(16));
}

#[test]
fn a_user_file_called_lost_found_is_left_alone() {
    let mut meta = Meta::new();
    let _ = meta.apply_repairing(&create(ROOT, "lost+found", 16));
    let _ = meta.apply_repairing(&create(99, "x", 17));
    assert_eq!(meta.resolve("/lost+found"), Ok(16));
    assert_eq!(meta.resolve("/lost+found-1/17-x"), Ok(17));
}

#[test]
fn forgetting_the_replay_changes_nothing_else() {
    let mut meta = Meta::new();
    let _ = meta.apply_repairing(&create(ROOT, "a", 16));
    let _ = meta.apply_repairing(&meta.unlink_record(ROOT, &name("a")).unwrap());
    assert!(meta.was_deleted(16));
    let before = meta.clone();
    meta.forget_replay();
    assert!(meta == before && !meta.was_deleted(16));
}

/// Two files in one zone, as a random rescue found them: what of an open extent is left before forgotten bytes ends where the
/// next file begins, or writing to one file would change the other.
#[test]
fn forgetting_bytes_of_an_open_extent_never_claims_those_of_the_next_file() {
    let mut meta = Meta::new();
    let place = Place::Raw { zone: 0, life: 1, offset: 4096 };
    let found = |serial, logical| Witness { serial, kind: FileKind::Table, name: "a", created: 1, logical, place };
    assert_eq!(meta.restore(&found(19, 208)), Ok(()));
    assert!(meta.forget_bytes(19, 0, 1000).is_ok());
    assert_eq!(meta.restore(&found(27, 0)), Ok(()));
    // From here on bytes 792 and behind of 27 would be those of 19.
    assert!(meta.forget_bytes(19, 1001, 2001).is_ok());
    assert!(meta.forget_bytes(27, 793, 1793).is_ok());
    let _ = meta.finish_replay();
    assert_eq!(meta.check(), Vec::<String>::new());
    let extents = |serial| meta.inode(serial).unwrap().extents.iter().map(|e| (e.logical, e.len)).collect::<Vec<_>>();
    assert_eq!((extents(19), extents(27)), (vec![(1000, 1), (2001, OPEN)], vec![(0, 792)]));
}

/// File 16 stands in zone 5 from 8192 on, 1000 bytes of it; the journal lost what stood before it.
fn second_in_zone() -> Meta {
    let mut meta = Meta::new();
    let extent = Extent { place: Place::Raw { zone: 5, life: 9, offset: 8192 }, ..raw(5, 9) };
    for record in [
        create(ROOT, "2.sst", 16),
        Record::Extend { serial: 16, extent },
        Record::Seal { serial: 16, size: 1000, time: 1 },
    ] {
        assert!(meta.apply_repairing(&record).is_applied());
    }
    meta
}

#[test]
fn a_zone_that_is_given_back_is_so_up_to_the_next_file_in_it() {
    let mut meta = second_in_zone();
    // File 17 goes on in zone 6; zone 5 is found to have held its first bytes.
    let next = Extent { logical: 6000, ..raw(6, 9) };
    assert!(meta.apply_repairing(&create(ROOT, "1.sst", 17)).is_applied());
    assert!(meta.apply_repairing(&Record::Extend { serial: 17, extent: next }).is_applied());
    let place = Place::Raw { zone: 5, life: 9, offset: 4096 };
    let witness = Witness { serial: 17, kind: FileKind::Table, name: "1.sst", created: 1, logical: 0, place };
    assert_eq!(meta.restore(&witness), Ok(()));
    assert_eq!(meta.inode(17).unwrap().extents, [Extent { logical: 0, len: 4096, place }, next]);
    assert_eq!(meta.check(), Vec::<String>::new());
}

#[test]
fn moved_bytes_leave_an_open_extent_nothing_of_the_next_file() {
    let moved = |logical, len| Record::Remap { serial: 17, logical, len, place: Place::Conventional { addr: 1 << 20 } };
    for (logical, len, kept) in [
        (100, 4000, vec![(0, 100), (100, 4000)]),
        (4100, 100, vec![(0, 4096), (4100, 100)]),
        (100, 200, vec![(0, 100), (100, 200), (300, OPEN)]),
    ] {
        let mut meta = second_in_zone();
        assert!(meta.apply_repairing(&create(ROOT, "1.sst", 17)).is_applied());
        assert!(meta.apply_repairing(&Record::Extend { serial: 17, extent: raw(5, 9) }).is_applied());
        let _ = meta.apply_repairing(&moved(logical, len));
        let extents = &meta.inode(17).unwrap().extents;
        assert_eq!(extents.iter().map(|e| (e.logical, e.len)).collect::<Vec<_>>(), kept, "{logical}");
        assert_eq!(meta.check(), Vec::<String>::new(), "{logical}");
    }
}

/// Only a snapshot and an unmount say that what is closed is durable; and only until the file goes on.
#[test]
fn files_are_settled_by_a_snapshot_and_by_an_unmount_until_they_are_reopened() {
    let mut meta = Meta::new();
    let mut play = |record: Record| {
        assert!(matches!(meta.apply_repairing(&record), RepairOutcome::Applied(_)), "{record:?}");
        [16, 17].map(|serial| meta.is_settled(serial))
    };
    let log = |serial, closed| {
        let (kind, size) = (FileKind::Log, 0);
        Record::Inode { serial, kind, created: 1, modified: 1, size, volatile_size: None, closed, allocated: 0 }
    };
    let seal = |serial| Record::Seal { serial, size: 0, time: 2 };
    assert_eq!(play(Record::NextSerial { serial: 18 }), [false, false]);
    assert_eq!(play(log(16, true)), [false, false]);
    assert_eq!(play(log(17, false)), [false, false]);
    assert_eq!(play(Record::NextSerial { serial: 18 }), [true, false], "the snapshot is whole");
    assert_eq!(play(seal(17)), [true, false], "closed, but nobody flushed it");
    // As where a small file goes on as a log.
    assert_eq!(play(Record::NextSerial { serial: 19 }), [true, false]);
    assert_eq!(play(Record::Settled), [true, true]);
    assert_eq!(play(Record::Reopen { serial: 16 }), [false, true]);
    assert_eq!(play(seal(16)), [false, true], "what was appended meanwhile may not be durable");
    assert_eq!(play(Record::Settled), [true, true]);
}

/// What a cut took must not come back because the file's beginning is lost: its zone may be another's, or reset.
#[test]
fn a_cut_of_a_file_whose_beginning_is_lost_takes_what_was_behind_it() {
    let mut meta = Meta::new();
    meta.note_gap();
    let extent = Extent { logical: 23_748, len: OPEN, place: Place::Framed { zone: 5, life: 1, offset: 4096 } };
    let records = [
        Record::Link { serial: 17, parent: ROOT, name: Name::new("1.log").unwrap() },
        Record::Reopen { serial: 17 },
        Record::Extend { serial: 17, extent },
        Record::Seal { serial: 17, size: 54_482, time: 2 },
        Record::Truncate { serial: 17, size: 16_485, time: 3 },
        Record::Truncate { serial: 17, size: 1265, time: 4 },
    ];
    for record in &records {
        assert!(!matches!(meta.apply_repairing(record), RepairOutcome::Skipped(_)), "{record:?}");
    }
    let inode = meta.inode(17).unwrap();
    assert_eq!((inode.extents.len(), inode.size, inode.closed), (0, 1265, false), "its end is looked for");
    assert_eq!(meta.zone_life(5), None);
}
