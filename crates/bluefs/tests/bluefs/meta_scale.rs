//! Many files. Nothing here is timed; what is quadratic would not come to an end.

use imbrex_bluefs::kind::FileKind;
use imbrex_bluefs::meta::{Extent, Meta, MetaError, Name, OPEN, Place, ROOT, Record, Victim};

const FILES: u64 = 100_000;

fn name(n: u64) -> Name {
    Name::new(&format!("{n:06}.sst")).unwrap()
}

fn journal() -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..FILES {
        let serial = 16 + n;
        let place = Place::Raw { zone: n as u32, life: n, offset: 4096 };
        for record in [
            Record::Create { parent: ROOT, name: name(n), serial, kind: FileKind::Table, time: n },
            Record::Extend { serial, extent: Extent { logical: 0, len: OPEN, place } },
            Record::Seal { serial, size: 1 << 20, time: n },
        ] {
            record.encode(&mut bytes);
        }
    }
    bytes
}

fn replay(bytes: &[u8], mut each: impl FnMut(&Record)) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (record, len) = Record::decode(rest).unwrap();
        each(&record);
        rest = &rest[len..];
    }
}

#[test]
fn a_directory_of_100_000_files_is_made_listed_snapshotted_and_emptied() {
    let bytes = journal();
    let mut meta = Meta::new();
    replay(&bytes, |record| assert!(meta.apply_repairing(record).is_applied()));
    assert_eq!(meta.finish_replay(), Vec::<String>::new());
    meta.forget_replay();
    assert_eq!(meta.counts().files as u64, FILES);
    assert_eq!(meta.counts().zones as u64, FILES);
    assert_eq!(meta.entries(ROOT).unwrap().len() as u64, FILES);
    assert_eq!(meta.check(), Vec::<String>::new());
    for n in 0..FILES {
        assert_eq!(meta.path_of(16 + n), format!("/{n:06}.sst"));
    }

    let mut copy = Meta::new();
    for record in meta.snapshot() {
        assert!(copy.apply(&record).is_ok());
    }
    assert!(copy == meta);

    for n in 0..FILES {
        let record = meta.unlink_record(ROOT, &name(n)).unwrap();
        let effect = meta.apply(&record).unwrap();
        assert_eq!((effect.freed[0].places.len(), effect.freed[0].unlinked), (1, true));
    }
    assert_eq!(meta.counts().files, 0);
    assert_eq!(meta.zones().len(), 0);
}

#[test]
fn a_damaged_journal_of_100_000_files_is_replayed() {
    let bytes = journal();
    let mut meta = Meta::new();
    let mut index = 0;
    replay(&bytes, |record| {
        index += 1;
        // Every third file loses its creation.
        if index % 9 != 1 {
            let _ = meta.apply_repairing(record);
        }
    });
    assert_eq!(meta.finish_replay(), Vec::<String>::new());
    assert_eq!(meta.counts().files as u64, FILES);
    assert_eq!(meta.entries(imbrex_bluefs::meta::LOST_FOUND).unwrap().len() as u64, FILES.div_ceil(3));
    for n in 0..FILES {
        let unlink = Record::Unlink { parent: ROOT, name: name(n), victim: Victim { serial: 16 + n, last: true } };
        let _ = meta.apply_repairing(&unlink);
    }
    assert_eq!(meta.counts().files, 0);
}

#[test]
fn a_file_has_at_most_65_000_names() {
    let mut meta = Meta::new();
    let create = Record::Create { parent: ROOT, name: name(0), serial: 16, kind: FileKind::Table, time: 0 };
    assert!(meta.apply(&create).is_ok());
    for n in 1..65_000 {
        assert!(meta.apply(&Record::Link { serial: 16, parent: ROOT, name: name(n) }).is_ok());
    }
    let one_more = Record::Link { serial: 16, parent: ROOT, name: name(65_000) };
    assert_eq!(meta.apply(&one_more), Err(MetaError::TooManyLinks));
    assert_eq!(meta.names_of(16).count(), 65_000);
}
