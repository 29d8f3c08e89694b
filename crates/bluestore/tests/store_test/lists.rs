//! Lists of objects, and their order.

use crate::{META, NO_GENERATION, id, object, on_each};
use imbrex_bluestore::{CollectionId, ObjectId};
use std::collections::BTreeSet;

/// Objects of pool 1, of hashes that are far from each other.
fn two_hundred() -> BTreeSet<ObjectId> {
    (0..200u32).map(|n| object(1, n.wrapping_mul(0x9e37_79b9), format!("object_{n}"))).collect()
}

#[test]
fn simple_list_test() {
    on_each(|bed| {
        let (c, all) = (CollectionId { pool: 1, seed: 0 }, two_hundred());
        bed.does(|t| {
            t.create_collection(c, 0);
            all.iter().for_each(|id| _ = t.touch(c, id));
        });
        for page in [1, 7, 50, 200, 500] {
            assert!(bed.ids(c, page).iter().eq(&all));
        }
        bed.does(|t| {
            all.iter().for_each(|id| _ = t.remove(c, id));
            t.remove_collection(c);
        });
    });
}

/// A list has no end but a number: whoever wants one compares names, which are in the order of lists.
#[test]
fn list_end_test() {
    on_each(|bed| {
        let (c, all) = (CollectionId { pool: 1, seed: 0 }, two_hundred());
        bed.does(|t| {
            t.create_collection(c, 0);
            all.iter().for_each(|id| _ = t.touch(c, id));
        });
        let end = all.iter().find(|id| id.name == b"object_100").unwrap();
        let before: Vec<ObjectId> = bed.ids(c, 500).into_iter().take_while(|id| id < end).collect();
        assert!(before.iter().eq(all.range(..end)));
        let from = bed.store().list(c, Some(end), 500).unwrap().all;
        assert!(from.iter().eq(all.range(end..)), "the first is the one that was asked for");
    });
}

/// The last hash that there is.
fn list_0xffffffff(c: CollectionId) {
    on_each(|bed| {
        let last = ObjectId { namespace: b"nspace".to_vec(), ..object(c.pool, u32::MAX, "obj") };
        if c != META {
            bed.does(|t| _ = t.create_collection(c, 0));
        }
        bed.does(|t| _ = t.touch(c, &last));
        assert_eq!(bed.ids(c, usize::MAX), std::slice::from_ref(&last));
        bed.remount();
        assert_eq!(bed.ids(c, 1), [last]);
    });
}

#[test]
fn list_0xfffffff_hash_test_in_meta() {
    list_0xffffffff(META);
}

#[test]
fn list_0xfffffff_hash_test_in_pg() {
    list_0xffffffff(CollectionId { pool: 1, seed: 0 });
}

#[test]
fn sort() {
    let (a, b) = (object(0, 0, "a"), object(0, 0, "b"));
    assert!(a == a.clone() && a != b && a < b);
    assert!(ObjectId { pool: 1, ..a.clone() } < ObjectId { pool: 2, ..b.clone() });
    assert!(ObjectId { pool: 3, ..a.clone() } > ObjectId { pool: 2, ..b.clone() });
    assert!(ObjectId { pool: -3, ..a.clone() } < ObjectId { pool: 1, ..b.clone() });
    assert!(ObjectId { pool: 1, ..a.clone() } > ObjectId { pool: -3, ..b });
    // By the lowest bit of the hash first, as collections are divided.
    assert!(ObjectId { hash: 2, ..a.clone() } < ObjectId { hash: 1, ..a.clone() });
    assert!(ObjectId { generation: 1, ..a.clone() } < ObjectId { generation: NO_GENERATION, ..a });
}

/// An OSD has a pool of its own number for what it makes beside a pool's objects. Here it is a pool as others, with a collection of its own.
#[test]
fn multipool_list_test() {
    on_each(|bed| {
        let (pool, beside) = (4373, -2 - 4373);
        let mut saw = BTreeSet::new();
        let all: BTreeSet<ObjectId> = (0..200)
            .map(|n: u32| {
                object(if n.count_ones().is_multiple_of(2) { pool } else { beside }, n << 20, format!("object_{n}"))
            })
            .collect();
        let home = |id: &ObjectId| CollectionId { pool: id.pool, seed: 0 };
        bed.does(|t| {
            [pool, beside].into_iter().for_each(|pool| _ = t.create_collection(CollectionId { pool, seed: 0 }, 0));
            all.iter().for_each(|id| _ = t.touch(home(id), id));
        });
        for pool in [beside, pool] {
            saw.extend(bed.ids(CollectionId { pool, seed: 0 }, 50));
        }
        assert_eq!(saw, all);
        bed.does(|t| all.iter().for_each(|id| _ = t.remove(home(id), id)));
        assert!(bed.ids(CollectionId { pool, seed: 0 }, 50).is_empty());
    });
}

/// Objects of one hash, in several namespaces.
#[test]
fn hash_collision_test() {
    on_each(|bed| {
        let mut all = BTreeSet::new();
        for n in 0..10 {
            bed.does(|t| {
                for i in 0..100 {
                    let name = format!("{i}{}", "aaaaa".repeat(100));
                    let one = ObjectId { namespace: format!("n{n}").into_bytes(), ..id(&name) };
                    t.touch(META, &one);
                    all.insert(one);
                }
            });
        }
        for page in [usize::MAX, 60] {
            assert!(bed.ids(META, page).iter().eq(&all));
        }
        for some in bed.ids(META, 60).chunks(50) {
            bed.does(|t| some.iter().for_each(|id| _ = t.remove(META, id)));
        }
        bed.cleans(&[]);
    });
}

/// Names that are not text, of two hashes: each page begins where it was asked to, and the next one behind it.
#[test]
fn hash_collision_sorting() {
    on_each(|bed| {
        let names: [&[u8]; 5] =
            [&[18, 137, 135, 145], &[19, 127, 135, 32], &[19, 138, 15, 19], &[28, 27, 140, 143], &[28, 27, 141, 132]];
        let mut all = Vec::new();
        for hash in [121_664_318, 121_666_222] {
            for name in names {
                let one = object(-1, hash, name);
                bed.does(|t| _ = t.touch(META, &one));
                all.push(one);
            }
        }
        all.sort();
        assert_eq!(bed.ids(META, usize::MAX), all);
        for i in 0..all.len() {
            for j in i + 1..all.len() {
                let page = bed.store().list(META, Some(&all[i]), j - i).unwrap();
                assert_eq!((&page.all[..], page.next.as_ref()), (&all[i..j], all.get(j)));
            }
        }
    });
}

/// Pages of a list, while nothing changes: each object once.
#[test]
fn scrub_test() {
    on_each(|bed| {
        let mut all: BTreeSet<ObjectId> = (0..1000u32).map(|n| object(-1, n, format!("{n}aaaaa"))).collect();
        all.extend([1, 2, NO_GENERATION].map(|generation| ObjectId { generation, ..id("same-object") }));
        for some in all.iter().collect::<Vec<_>>().chunks(20) {
            bed.does(|t| some.iter().for_each(|id| _ = t.touch(META, id)));
        }
        for page in [usize::MAX, 60] {
            assert!(bed.ids(META, page).iter().eq(&all));
        }
        for some in bed.ids(META, 60).chunks(50) {
            bed.does(|t| some.iter().for_each(|id| _ = t.remove(META, id)));
        }
        bed.cleans(&[]);
    });
}
