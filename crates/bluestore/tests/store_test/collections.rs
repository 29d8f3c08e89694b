//! Collections, restarts, division and joining.

use crate::{Bed, HEAD, Kind, META, NO_GENERATION, filled, id, object, on_each, usual};
use imbrex_bluestore::{CollectionId, ObjectId};
use imbrex_device::Code;
use std::collections::BTreeSet;

#[test]
fn trivial() {
    on_each(|bed| bed.checked());
}

#[test]
fn trivial_remount() {
    on_each(Bed::remount);
}

#[test]
fn trivial_remount_fsck() {
    on_each(|bed| {
        bed.remount();
        bed.checked();
        bed.remount();
    });
}

#[test]
fn simple_remount() {
    on_each(|bed| {
        let (a, b) = (id("Object 1"), id("Object 2"));
        bed.does(|t| _ = t.write(META, &a, 0, b"1234512345"));
        bed.remount();
        bed.does(|t| _ = t.write(META, &b, 0, b"1234512345"));
        bed.cleans(&[&a, &b]);
        bed.remount();
        bed.does(|t| _ = t.create_collection(META, 0));
        assert!(!bed.is_there(META, &a));
        bed.cleans(&[]);
    });
}

#[test]
fn io_remount() {
    on_each(|bed| {
        let all: Vec<ObjectId> = (1..=100).map(|n| id(&format!("Object {n}"))).collect();
        bed.does(|t| all.iter().for_each(|id| _ = t.write(META, id, 0, b"1234512345")));
        for id in &all {
            bed.does(|t| _ = t.write(META, id, 1, b"1234512345"));
        }
        bed.remount();
        for id in &all {
            assert_eq!(bed.read(id, 0, 100), b"11234512345");
        }
        bed.cleans(&all.iter().collect::<Vec<_>>());
    });
}

/// An OSD's own collection, and one of a placement group: made, gone, and made again in both.
fn made_and_gone(bed: &mut Bed, c: CollectionId, bits: u8) {
    for _ in 0..2 {
        bed.does(|t| _ = t.create_collection(c, bits));
        bed.refuses(Code::Exists, |t| _ = t.create_collection(c, bits));
        assert!(bed.store().collections().unwrap().contains(&(c, bits)));
        bed.does(|t| _ = t.remove_collection(c));
        bed.refuses(Code::NotFound, |t| _ = t.remove_collection(c));
    }
}

#[test]
fn simple_meta_col_test() {
    on_each(|bed| {
        bed.does(|t| _ = t.remove_collection(META));
        made_and_gone(bed, META, 0);
    });
}

#[test]
fn simple_pg_col_test() {
    on_each(|bed| made_and_gone(bed, CollectionId { pool: 2, seed: 1 }, 4));
}

/// There is no hint for a collection, since it is a range of keys and nothing has to be made for it.
#[test]
fn simple_col_pre_hash_test() {
    on_each(|bed| {
        for seed in [0, 1, 77, 127] {
            made_and_gone(bed, CollectionId { pool: 15, seed }, 7);
        }
    });
}

/// A collection of objects is divided, and joined again.
fn col_split(objects: u32, bits: u8, clones: bool) {
    on_each(|bed| {
        let (whole, half) = (CollectionId { pool: 52, seed: 0 }, CollectionId { pool: 52, seed: 1 << bits });
        bed.does(|t| _ = t.create_collection(whole, bits));
        let of = |n: u32, name: String| object(52, n << bits, name);
        let (mut all, count) = (BTreeSet::new(), if clones { objects } else { 2 * objects });
        for n in (0..count).step_by(100) {
            bed.does(|t| {
                for n in n..count.min(n + 100) {
                    let a = of(n, format!("obj{n}"));
                    t.write(whole, &a, 0, b"small");
                    if clones {
                        let b = of(n, format!("obj{n}-clone"));
                        t.clone_object(whole, &a, &b);
                        all.insert(b);
                    }
                    all.insert(a);
                }
            });
        }
        bed.does(|t| _ = t.split_collection(whole, half));
        for (c, bit) in [(whole, 0), (half, 1 << bits)] {
            let ids = bed.ids(c, 1000);
            assert_eq!(ids.len(), all.len() / 2);
            assert!(ids.iter().all(|id| id.hash & 1 << bits == bit && all.contains(id)));
            assert!(ids.iter().all(|id| bed.store().read(c, id, 0, 10).unwrap() == b"small"));
        }
        bed.remount();
        bed.does(|t| _ = t.merge_collection(half, whole));
        let ids = bed.ids(whole, 1000);
        assert!(ids.iter().eq(&all), "both halves, in order");
        for ids in ids.chunks(100) {
            bed.does(|t| ids.iter().for_each(|id| _ = t.remove(whole, id)));
        }
        bed.does(|t| _ = t.remove_collection(whole));
        assert!(bed.store().collections().unwrap().iter().all(|(c, _)| ![whole, half].contains(c)));
        bed.takes_nothing();
    });
}

#[test]
fn col_split_test_0() {
    col_split(10, 5, false);
}

#[test]
fn col_split_test_1() {
    col_split(1000, 11, false);
}

#[test]
fn col_split_test_1_clones() {
    col_split(1000, 11, true);
}

#[test]
fn col_split_test_2() {
    col_split(100, 7, false);
}

#[test]
fn col_split_test_2_clones() {
    col_split(100, 7, true);
}

/// Halves with many objects and with few become one.
#[test]
fn merge_skewed() {
    for (many, few) in [(1000u32, 10u32), (10, 1000)] {
        let mut bed = Bed::new(Kind::Plain, &usual(), crate::options());
        let (base, bits) = (0xf, 4);
        let a = CollectionId { pool: 52, seed: base };
        let b = CollectionId { pool: 52, seed: base | 1 << bits };
        bed.does(|t| _ = t.create_collection(a, bits + 1).create_collection(b, bits + 1));
        let mut all = BTreeSet::new();
        for (c, count) in [(a, many), (b, few)] {
            for n in (0..count).step_by(100) {
                bed.does(|t| {
                    for n in n..count.min(n + 100) {
                        let id = object(52, n << (bits + 1) | c.seed, format!("{n}{}", "o".repeat(200)));
                        t.write(c, &id, 0, b"small");
                        all.insert(id);
                    }
                });
            }
        }
        bed.does(|t| _ = t.merge_collection(b, a));
        assert!(bed.ids(a, 64).iter().eq(&all));
        assert!(all.iter().all(|id| bed.is_there(a, id) && !bed.is_there(META, id)));
        bed.remount();
        assert!(all.iter().all(|id| bed.store().read(a, id, 0, 9).unwrap() == b"small"));
        bed.does(|t| all.iter().for_each(|id| _ = t.remove(a, id)));
        bed.does(|t| _ = t.remove_collection(a));
        bed.end();
    }
}

/// Two groups of objects whose hashes begin alike, of which half goes.
#[test]
fn two_hash() {
    on_each(|bed| {
        let of = |n: u32, end: u32| object(-1, n << 16 | end, "");
        for n in 0..360 {
            bed.does(|t| {
                if n < 8 {
                    t.touch(META, &of(n, 0xa1));
                }
                t.touch(META, &of(n, 0xb1));
            });
        }
        (1..8).for_each(|n| bed.does(|t| _ = t.remove(META, &of(n, 0xa1))));
        assert!((1..8).all(|n| !bed.is_there(META, &of(n, 0xa1))));
        assert!(bed.is_there(META, &of(0, 0xa1)));
        // An OSD removes what is not there, too.
        for n in 0..360 {
            bed.does(|t| _ = t.remove_if_there(META, &of(n, 0xa1)).remove_if_there(META, &of(n, 0xb1)));
        }
        bed.refuses(Code::NotFound, |t| _ = t.remove(META, &of(0, 0xa1)));
        bed.cleans(&[]);
    });
}

/// An object per generation of a name that is as long as RADOS Gateway makes them.
#[test]
fn big_rgw_object_name() {
    on_each(|bed| {
        let c = CollectionId { pool: 12, seed: 0 };
        let head = object(12, 0x8192_0472, format!("default.4106.50_{}", "a".repeat(1200)));
        assert_eq!((head.snap, head.generation), (HEAD, NO_GENERATION));
        let [old, newer] = [15, 17].map(|generation| ObjectId { generation, ..head.clone() });
        bed.does(|t| {
            t.create_collection(c, 0).touch(c, &head).rename(c, &head, &old);
            t.touch(c, &head).rename(c, &head, &newer);
        });
        bed.does(|t| _ = t.remove(c, &old));
        assert_eq!(bed.ids(c, 10), std::slice::from_ref(&newer));
        assert!(!bed.is_there(c, &old) && !bed.is_there(c, &head));
        bed.does(|t| _ = t.remove(c, &newer).remove_collection(c));
    });
}

/// A collection that has objects stays, whatever of them is in memory only.
#[test]
fn simple_clone_test_of_a_collection_that_is_not_empty() {
    on_each(|bed| {
        let [a, b, c] = ["Object 1", "Object 2", "Object 3"].map(id);
        bed.does(|t| _ = t.write(META, &a, 0, &filled(65_536, 9)).clone_object(META, &a, &b));
        bed.remount();
        bed.refuses(Code::NotEmpty, |t| _ = t.remove_collection(META));
        bed.does(|t| _ = t.touch(META, &c));
        bed.remount();
        bed.refuses(Code::NotEmpty, |t| _ = t.remove(META, &a).remove(META, &b).remove_collection(META));
        bed.cleans(&[&a, &b, &c]);
    });
}
