//! Records that make no sense, or are gone.

use crate::support::{config, content};
use crate::{
    ALL, BLOCK, LOST, Scratch, WHOLE, Written, drive_on, id, packed, pairs_of_open, salvaged, salvaged_with,
    worked_with,
};
use imbrex_bluestore::salvage::{Choice, UNNAMED};
use imbrex_bluestore::{Family, ObjectId, Transaction};
use imbrex_emulator::Config;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether the key of an object's record has this name.
fn names(key: &[u8], name: &[u8]) -> bool {
    key.windows(name.len()).any(|part| part == name)
}

/// Metadata that are whole say that what they do not know was deleted. A record that makes no sense is not a deletion.
#[test]
fn an_object_whose_record_makes_no_sense_comes_back_from_its_runs() {
    let (_, drive) = drive_on(&config());
    let (written, mut pairs) = pairs_of_open(&drive, worked_with(&drive));
    assert_eq!(salvaged(&drive, &pairs, WHOLE).told.of_runs, 0);
    let record = |(family, key, _): &(Family, Vec<u8>, Vec<u8>)| *family == Family::Onodes && names(key, b"long");
    let at = pairs.iter().position(record).unwrap();
    pairs[at].2[0] ^= 0x40;
    let came = salvaged(&drive, &pairs, WHOLE);
    assert_eq!((came.told.senseless, came.told.of_runs, came.told.lost), (1, 1, 0));
    for name in written.objects.keys() {
        assert!(came.taken.model.objects[&id(name)].bytes == written.newest(name), "{name}");
        assert_eq!(came.taken.doubts.contains_key(&id(name)), name == "long", "{name}");
    }
}

/// A clone names blobs of its parent, and where these are only the headers of runs know.
#[test]
fn extents_of_a_clone_are_found_without_a_pass_over_the_parent_for_each() {
    let (_, drive) = drive_on(&Config { zone_size: 2 << 20, zone_capacity: 2 << 20, capacity: 56 << 20, ..config() });
    let mut written = Written::on(&drive, packed());
    let many = 200;
    for n in 0..many {
        written.write("parent", n * 4, &content(4 * BLOCK as u64, n as u8));
        if n % 40 == 39 {
            written.settle();
        }
    }
    let mut clone = Transaction::new();
    written.store.commit(std::mem::take(clone.clone_object(ALL, &id("parent"), &id("clone")))).unwrap();
    written.settle();
    let (written, mut pairs) = pairs_of_open(&drive, written);
    pairs.retain(|(family, ..)| *family != Family::Blobs);
    for choice in [LOST, WHOLE] {
        let scratch = Arc::new(Scratch::default());
        let came = salvaged_with(&scratch, &drive, &pairs, choice);
        assert!(came.taken.model.objects[&id("clone")].bytes == written.newest("parent"));
        // 16 blobs stand in a span, and each extent looks at these.
        let handed = scratch.1.load(Ordering::Relaxed);
        assert!(handed < 2 * many * (16 + 8), "{handed}");
    }
}

/// A salvage before has made names for objects that had none.
#[test]
fn an_object_without_a_name_takes_none_that_another_has() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write(&"n".repeat(1100), 0, &content(8 * BLOCK as u64, 1));
    written.settle();
    let came = salvaged(&drive, &[], LOST);
    let first = came.taken.model.objects.keys().next().unwrap().clone();
    assert_eq!((first.namespace.as_slice(), came.told.unnamed), (UNNAMED, 1));
    let mut twin = Transaction::new();
    let zero = imbrex_bluestore::CollectionId { pool: 0, seed: 0 };
    twin.create_collection(zero, 0).write(zero, &first, 0, &content(9 * BLOCK as u64, 2));
    written.store.commit(twin).unwrap();
    written.settle();
    let other = ObjectId::new(0, UNNAMED, &[&first.name[..], b"-1"].concat());
    let (_, mut pairs) = pairs_of_open(&drive, written);
    pairs.retain(|(family, key, _)| *family != Family::Onodes || names(key, &first.name));
    for (pairs, choice) in [(&[][..], LOST), (&pairs, LOST), (&pairs, Choice { deleted: true, ..WHOLE })] {
        let came = salvaged(&drive, pairs, choice);
        assert!(came.taken.model.objects[&first].bytes == content(9 * BLOCK as u64, 2));
        assert!(came.taken.model.objects[&other].bytes == content(8 * BLOCK as u64, 1));
    }
}
