//! Salvage of a store whose metadata are on another drive: with that drive, without it, and with one that does not go with it.

use super::*;
use imbrex_device::{ZoneOp, ZoneState};
use imbrex_store::{Import, Salvage, Salvaged, Scratch};

/// What comes back, what is said, and whether the metadata are whole.
fn salvaged(objects: &Drive, db: Option<&Drive>) -> (Model, Salvaged, Vec<String>, bool) {
    let scratch = Scratch::in_memory(objects).unwrap();
    let found = Salvage::search_apart((objects, db), scratch, None, &mut tempfile::tempfile, &mut |_, _| {}).unwrap();
    let (notes, whole) = (found.notes().to_vec(), found.is_whole());
    let into = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
    Store::format(&into, None, false).unwrap();
    let into = Store::open(into, options()).unwrap();
    let mut import = Import::new(&into, false).unwrap();
    let told = found.read(false, &mut import).unwrap();
    import.finish().unwrap();
    (Model::of(&into).unwrap(), told, notes, whole)
}

fn says(notes: &[String], part: &str) {
    assert!(notes.iter().any(|note| note.contains(part)), "{notes:?} lacks {part:?}");
}

/// Objects with bytes that have a place, one that was deleted, and attributes.
fn used() -> (Two, Model) {
    let two = Two::formatted();
    let store = two.open().unwrap();
    (0..6).for_each(|n| put(&store, n, &content(100_000, n as u8)).unwrap());
    let mut more = Transaction::new();
    more.remove(ALL, &name(5)).set_attributes(ALL, &name(4), &[(b"a", b"b")]);
    store.commit(more).unwrap();
    let model = Model::of(&store).unwrap();
    drop(store);
    (two, model)
}

/// Zeroes the labels, which are conventional zones here.
fn lose_labels(drive: &Drive) {
    for zone in report_all(drive.device.as_ref()).unwrap() {
        if zone.state == ZoneState::Conventional {
            let start = drive.device.geometry().start(zone.id);
            drive.device.write_at(&AlignedBuf::zeroed(256 << 10), start, Cause::Label.into()).unwrap();
        }
    }
}

#[test]
fn all_comes_back_with_both_drives_whichever_label_is_lost() {
    let (two, model) = used();
    for lost in 0..4 {
        let two = two.copy();
        (0..2).filter(|n| lost & 1 << n != 0).for_each(|n| lose_labels(&two.drive(n)));
        let before = [two.bytes(0), two.bytes(1)];
        let (found, told, notes, whole) = salvaged(&two.drive(0), Some(&two.drive(1)));
        assert!(before == [two.bytes(0), two.bytes(1)]);
        // Metadata without their label may not be the last: what was deleted comes back.
        let again = u64::from(lost & 2 != 0);
        assert_eq!((whole, told.of_runs, told.objects), (again == 0, again, 5 + again), "{lost}: {notes:?}");
        assert!(model.objects.iter().all(|(id, object)| found.objects[id] == *object), "{lost}: {told:?} {notes:?}");
    }
}

#[test]
fn bytes_names_and_sizes_come_back_without_the_metadata() {
    let (two, model) = used();
    for lost in [false, true] {
        if lost {
            lose_labels(&two.drive(0));
        }
        let (found, told, notes, whole) = salvaged(&two.drive(0), None);
        assert!(!whole);
        says(&notes, if lost { "cannot be read" } else { "on another drive (volume 08080808" });
        // The deleted one comes back, and attributes do not.
        assert_eq!((told.objects, told.of_runs, told.lost), (6, 6, 0), "{notes:?}");
        for (id, object) in &model.objects {
            assert!(found.objects[id].bytes == object.bytes, "{id}");
        }
    }
}

#[test]
fn metadata_of_another_drive_are_left_out_and_older_ones_are_not_whole() {
    let (two, model) = used();
    let other = Two::new(&config(), &config());
    Store::format_apart(&other.drive(0), &other.drive(1), MetadataIn::Kv, None, false).unwrap();
    put(&other.open().unwrap(), 77, &content(100_000, 9)).unwrap();
    for label in [true, false] {
        if !label {
            // Its first record tells as well.
            lose_labels(&other.drive(1));
        }
        let (found, told, notes, whole) = salvaged(&two.drive(0), Some(&other.drive(1)));
        says(&notes, "of another volume, and are left out");
        assert!(!whole && told.of_runs == 6 && !found.objects.contains_key(&name(77)), "{told:?}");
    }
    // Something that is no metadata.
    let blank = Two::new(&config(), &config());
    let (_, told, notes, _) = salvaged(&two.drive(0), Some(&blank.drive(1)));
    says(&notes, "cannot be read");
    assert_eq!(told.of_runs, 6);

    let old = two.copy();
    put(&two.open().unwrap(), 8, &content(100_000, 8)).unwrap();
    let (found, told, notes, whole) = salvaged(&two.drive(0), Some(&old.drive(1)));
    says(&notes, "do not go together");
    says(&notes, "copy of an earlier moment");
    // What is newer than they are comes by its runs, and what they have with attributes.
    assert!(!whole && told.of_runs >= 1, "{told:?}");
    assert!(found.objects[&name(8)].bytes == content(100_000, 8));
    assert!(found.objects[&name(4)] == model.objects[&name(4)]);
    // Zones that were used again since are no harm.
    for zone in report_all(two.drive(0).device.as_ref()).unwrap().iter().filter(|zone| zone.state == ZoneState::Full) {
        two.drive(0).device.zone_op(ZoneOp::Reset, zone.id, Cause::Check.into()).unwrap();
    }
    salvaged(&two.drive(0), Some(&old.drive(1)));
}
