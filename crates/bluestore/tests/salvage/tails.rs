//! How long an object is: what was written behind a size that is older comes, and is doubted.

use crate::support::content;
use crate::{
    ALL, BLOCK, LOST, WHOLE, Written, drive_on, id, open_with, packed, pairs_of_open, salvaged, support::config,
};
use imbrex_bluestore::Transaction;
use imbrex_zones::Exec;

fn blocks(n: u64, seed: u8) -> Vec<u8> {
    content(n * BLOCK as u64, seed)
}

fn says(came: &crate::Came, name: &str, what: &str) -> bool {
    came.taken.doubts.get(&id(name)).is_some_and(|all| all.iter().any(|doubt| doubt.contains(what)))
}

/// Names are in memory only: after a restart, packing writes a header without one.
#[test]
fn without_metadata_what_was_appended_before_a_restart_comes() {
    for cleaned in [false, true] {
        let (_, drive) = drive_on(&config());
        let mut written = Written::on(&drive, packed());
        written.write("other", 0, &blocks(20, 3));
        written.write("a", 0, &blocks(256, 1));
        written.settle();
        written.write("a", 256, &blocks(1, 2));
        assert!(written.store.usage().deferred > 0);
        written.store.sync().unwrap();
        drop(written.store);
        written.store = open_with(&drive, Exec::Inline, packed()).unwrap();
        if cleaned {
            // The cleaner takes the name that is older than what waits, and the pack writes it down.
            let mut remove = Transaction::new();
            written.store.commit(std::mem::take(remove.remove(ALL, &id("other")))).unwrap();
            assert!(written.store.clean(1 << 20).unwrap() > 0);
        }
        written.settle();
        let came = salvaged(&drive, &[], LOST);
        assert!(came.taken.model.objects[&id("a")].bytes == written.newest("a"), "cleaned: {cleaned}");
        assert!(says(&came, "a", "behind its size of 1048576"), "{:?}", came.taken.doubts);
    }
}

#[test]
fn what_was_appended_under_a_name_too_long_for_a_header_comes_under_the_one_before() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write("a", 0, &blocks(30, 1));
    written.settle();
    let long = "n".repeat(1100);
    let mut rename = Transaction::new();
    rename.rename(ALL, &id("a"), &id(&long)).write(ALL, &id(&long), 30 * BLOCK as u64, &blocks(50, 2));
    written.store.commit(rename).unwrap();
    written.settle();
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == [blocks(30, 1), blocks(50, 2)].concat());
    assert!(says(&came, "a", "behind its size"));
}

/// What was cut off is not what was written behind an end: its blobs are older than the size.
#[test]
fn what_a_truncation_has_cut_off_stays_away_where_a_header_tells_the_size() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write("a", 0, &blocks(100, 1));
    written.settle();
    let mut cut = Transaction::new();
    cut.truncate(ALL, &id("a"), 40 * BLOCK as u64 + 100).write(ALL, &id("a"), 0, &blocks(8, 2));
    written.store.commit(cut).unwrap();
    written.settle();
    let is = [&blocks(8, 2)[..], &blocks(100, 1)[8 * BLOCK..40 * BLOCK + 100]].concat();
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == is);
    assert_eq!(came.taken.doubts[&id("a")].len(), 1, "{:?}", came.taken.doubts);
    // The same with the record of the object, whether or not the metadata are whole.
    let (_, pairs) = pairs_of_open(&drive, written);
    for choice in [LOST, WHOLE] {
        let came = salvaged(&drive, &pairs, choice);
        assert!(came.taken.model.objects[&id("a")].bytes == is && came.taken.doubts.is_empty());
    }
}

/// The metadata are older than an object, which has grown: a header has its size.
#[test]
fn an_object_that_has_grown_since_its_record_has_the_size_of_a_newer_header() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write("a", 0, &blocks(8, 1));
    written.write("same", 0, &blocks(8, 9));
    written.settle();
    let (again, pairs) = pairs_of_open(&drive, written);
    let mut more = Transaction::new();
    let tail = &blocks(100, 2)[..99 * BLOCK + 5];
    again.store.commit(std::mem::take(more.write(ALL, &id("a"), 8 * BLOCK as u64, tail))).unwrap();
    let came = salvaged(&drive, &pairs, LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == [&blocks(8, 1), tail].concat());
    assert!(says(&came, "a", "its size is that of a header") && says(&came, "a", "older than some of its bytes"));
    assert!(!came.taken.doubts.contains_key(&id("same")), "{:?}", came.taken.doubts);
    // Whole metadata know better.
    let came = salvaged(&drive, &pairs, WHOLE);
    assert!(came.taken.model.objects[&id("a")].bytes == blocks(8, 1) && came.taken.doubts.is_empty());
}

/// The same, and no header has the name: the blobs alone tell how long it is.
#[test]
fn an_object_that_has_grown_since_its_record_is_as_long_as_its_newer_blobs() {
    for at in [8, 64, 150] {
        let (_, drive) = drive_on(&config());
        let mut written = Written::on(&drive, packed());
        written.write("a", 0, &blocks(8, 1));
        written.settle();
        let (mut written, pairs) = pairs_of_open(&drive, written);
        written.write("a", at, &blocks(1, 2));
        written.store.sync().unwrap();
        drop(written.store);
        written.store = open_with(&drive, Exec::Inline, packed()).unwrap();
        written.settle();
        let came = salvaged(&drive, &pairs, LOST);
        let found = &came.taken.model.objects[&id("a")].bytes;
        assert!(
            found.len() == (at + 1) * BLOCK
                && found[at * BLOCK..] == blocks(1, 2)
                && found[..8 * BLOCK] == blocks(8, 1)
        );
        assert!(says(&came, "a", "behind its size of 32768"), "{:?}", came.taken.doubts);
    }
}
