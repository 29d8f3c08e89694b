//! Clones of objects and of ranges, and what becomes of what they share.

use crate::Do::{Remount, Truncate, Write, Zero};
use crate::{Bed, HEAD, Known, META, filled, id, object, on_each};
use imbrex_bluestore::ObjectId;

/// The same object, as it was at a snapshot.
fn at_snap(id: &ObjectId, snap: u64) -> ObjectId {
    assert_eq!(id.snap, HEAD);
    ObjectId { snap, ..id.clone() }
}

fn cloned(bed: &mut Bed, from: &Known, to: &ObjectId) -> Known {
    bed.does(|t| _ = t.clone_object(META, &from.id, to));
    Known { c: META, id: to.clone(), bytes: from.bytes.clone() }
}

#[test]
fn simple_clone_test() {
    on_each(|bed| {
        let (a, b) = (object(-1, 123, "Object 1"), object(-1, 123, "Object 2"));
        bed.does(|t| {
            t.touch(META, &a);
            t.set_attributes(META, &a, &[(b"attr1", b"small"), (b"attr2", b"large"), (b"attr3", b"xlarge")]);
            t.write(META, &a, 0, b"small").write(META, &a, 10, b"small");
        });
        bed.does(|t| {
            t.clone_object(META, &a, &b).set_attributes(META, &b, &[(b"attr2", b"small")]);
            t.remove_attribute(META, &b, b"attr1");
            t.write(META, &a, 10, b"large");
            t.set_attributes(META, &a, &[(b"attr1", b"large"), (b"attr2", b"small")]);
        });
        for _ in 0..2 {
            assert_eq!(bed.read(&a, 0, 100), b"small\0\0\0\0\0large");
            assert_eq!(bed.read(&b, 0, 100), b"small\0\0\0\0\0small");
            let of = |id: &ObjectId| bed.store().stat(META, id).unwrap().attributes.into_values().collect::<Vec<_>>();
            assert_eq!(of(&b), [&b"small"[..], b"xlarge"]);
            assert_eq!(of(&a), [&b"large"[..], b"small", b"xlarge"]);
            bed.remount();
        }
        bed.does(|t| _ = t.remove(META, &a).remove(META, &b));
        // Written, cloned and written again, all in one transaction: where the two ends meet, and where they do not.
        let kib = 1 << 10;
        for (len, at, more) in [
            (16 * kib, 16 * kib, 4 * kib),
            (16 * kib, 20 * kib, 4 * kib),
            (16_000, 17_000, 8000),
            (kib * kib, 64 * kib, 64 * kib),
            (64 * kib, 32 * kib, 4 * kib),
            (64 * kib, 33_768, 4 * kib),
        ] {
            let [mut first, mut copy] = [&a, &b].map(|id| Known::new(META, id.clone()));
            bed.does(|t| {
                t.write(META, &a, 0, &filled(len, 111)).clone_object(META, &a, &b);
                t.write(META, &a, at, &filled(more, 112));
            });
            crate::over(&mut first.bytes, 0, &filled(len, 111));
            copy.bytes = first.bytes.clone();
            crate::over(&mut first.bytes, at, &filled(more, 112));
            bed.agrees(&first);
            bed.agrees(&copy);
            bed.does(|t| _ = t.remove(META, &a).remove(META, &b));
        }
        bed.cleans(&[]);
    });
}

/// A clone takes the place of what was there: its bytes, its attributes and its omap.
#[test]
fn simple_clone_test_onto_an_object_that_is_there() {
    on_each(|bed| {
        let (a, b) = (id("a"), id("b"));
        bed.does(|t| _ = t.write(META, &a, 0, b"new"));
        bed.does(|t| {
            t.write(META, &b, 0, &filled(300_000, 1)).set_attributes(META, &b, &[(b"old", b"1")]);
            t.omap_set(META, &b, &[(b"old", b"1")]).omap_header(META, &b, b"old");
        });
        bed.does(|t| _ = t.clone_object(META, &a, &b));
        for _ in 0..2 {
            assert_eq!(bed.read(&b, 0, u64::MAX), b"new");
            assert!(bed.store().stat(META, &b).unwrap().attributes.is_empty());
            assert!(bed.store().omap(META, &b, b"", 10).unwrap().all.is_empty());
            assert_eq!(bed.store().omap_header(META, &b).unwrap(), None);
            bed.remount();
        }
        bed.cleans(&[&a, &b]);
    });
}

#[test]
fn simple_clone_range_test() {
    on_each(|bed| {
        let (a, b) = (id("Object 1"), id("Object 2"));
        bed.does(|t| _ = t.write(META, &a, 10, b"small"));
        bed.does(|t| _ = t.clone_range(META, &a, &b, (10, 5, 10)));
        assert_eq!(bed.read(&b, 0, 100), b"\0\0\0\0\0\0\0\0\0\0small");
        bed.does(|t| _ = t.truncate(META, &a, 1 << 20).clone_range(META, &a, &b, (0, 1 << 20, 0)));
        assert_eq!((bed.size(&a), bed.size(&b)), (1 << 20, 1 << 20));
        assert!(bed.read(&a, 0, 1 << 20) == bed.read(&b, 0, 1 << 20));
        bed.refuses(imbrex_device::Code::Range, |t| _ = t.clone_range(META, &a, &b, (1 << 20, 1, 0)));
        bed.cleans(&[&a, &b]);
    });
}

/// What a cut leaves in the last block is not seen behind it, whoever shares the block.
#[test]
fn append_zero_trailing_shared_block() {
    on_each(|bed| {
        let (size, far) = (64 * 1024 / 3, 3 * 64 * 1024);
        let mut a = Known::new(META, id("fooo"));
        bed.follows(&mut a, &[Write(0, size + 12, b'B'), Write(0, size, 1), Truncate(size)]);
        let b = cloned(bed, &a, &at_snap(&a.id, 1));
        bed.follows(&mut a, &[Write(far, size, 2)]);
        bed.agrees(&b);
        bed.cleans(&[&a.id, &b.id]);
    });
}

/// When the clone is gone, its blocks are those of the object alone. They can be shared again.
#[test]
fn blue_store_unshare_blob_simple() {
    on_each(|bed| {
        let mut a = Known::new(META, id("Object 1"));
        let other = ObjectId { generation: 2, ..a.id.clone() };
        bed.write(&mut a, 0, &filled(4096, b'a'));
        for _ in 0..3 {
            let b = cloned(bed, &a, &other);
            bed.agrees(&b);
            assert_eq!(bed.took(), 4096);
            bed.does(|t| _ = t.remove(META, &other));
            assert_eq!(bed.took(), 4096);
        }
        let b = cloned(bed, &a, &other);
        bed.cleans(&[&a.id, &b.id]);
    });
}

/// A range is shared, the object is overwritten there, and the clone goes: nothing stays that nobody has.
#[test]
fn blue_store_unshare_blob_test() {
    on_each(|bed| {
        let mut a = Known::new(META, id("Object 1"));
        let other = ObjectId { generation: 2, ..a.id.clone() };
        bed.write(&mut a, 0, &filled(8192, b'a'));
        bed.does(|t| _ = t.clone_range(META, &a.id, &other, (0, 4096, 0)));
        bed.follows(&mut a, &[Write(0, 4096, b'b'), Remount]);
        assert_eq!(bed.read(&other, 0, 8192), filled(4096, b'a'));
        bed.does(|t| _ = t.remove(META, &other));
        bed.remount();
        bed.agrees(&a);
        assert_eq!(bed.took(), 8192);
        bed.cleans(&[&a.id]);
    });
}

/// The clone is overwritten instead: its blocks are its own then, and what nobody names any more is room. Ceph's own store keeps a record of sharing.
#[test]
fn blue_store_unshare_blob_bug_test() {
    on_each(|bed| {
        let mut a = Known::new(META, id("Object 1"));
        let other = ObjectId { generation: 2, ..a.id.clone() };
        bed.write(&mut a, 0, &filled(8192, b'a'));
        bed.does(|t| _ = t.clone_range(META, &a.id, &other, (0, 4096, 0)));
        bed.follows(&mut a, &[Write(0, 4096, b'b'), Remount]);
        assert!(bed.took() <= 12_288);
        bed.does(|t| _ = t.write(META, &other, 0, &filled(4096, b'b')));
        assert_eq!(bed.took(), 12_288);
        assert_eq!(bed.read(&other, 0, 8192), filled(4096, b'b'));
        bed.agrees(&a);
        bed.cleans(&[&a.id, &other]);
    });
}

#[test]
fn deferred_and_clone() {
    on_each(|bed| {
        let (a, b) = (id("test"), id("Object 2"));
        bed.does(|t| _ = t.touch(META, &a));
        bed.does(|t| _ = t.write(META, &a, 0, b"zzz"));
        bed.does(|t| _ = t.clone_range(META, &a, &b, (0, 3, 0)));
        bed.store().sync().unwrap();
        assert_eq!(bed.read(&b, 0, 100), b"zzz");
        bed.remount();
        assert_eq!(bed.read(&b, 0, 100), b"zzz");
        bed.cleans(&[&a, &b]);
    });
}

/// A short overwrite and a clone of all, in one transaction.
#[test]
fn deferred_and_clone_2() {
    on_each(|bed| {
        let (mut a, b) = (Known::new(META, id("test")), id("Object 2"));
        bed.follows(&mut a, &[Write(0, 0x10000, b'h')]);
        bed.store().sync().unwrap();
        bed.does(|t| {
            t.write(META, &a.id, 0, &filled(0x400, b'z')).clone_range(META, &a.id, &b, (0, 0x10000, 0));
        });
        crate::over(&mut a.bytes, 0, &filled(0x400, b'z'));
        let b = Known { c: META, id: b, bytes: a.bytes.clone() };
        bed.agrees(&a);
        bed.agrees(&b);
        bed.remount();
        bed.agrees(&b);
        bed.cleans(&[&a.id, &b.id]);
    });
}

/// Two objects that share blocks, and of which each has lost others.
#[test]
fn bluestore_repair_shared_blob_test() {
    on_each(|bed| {
        let mut a = Known::new(META, id("Object 1"));
        let between = id("Object 2");
        bed.write(&mut a, 0, &filled(4096, 1));
        bed.does(|t| _ = t.write(META, &between, 0, &filled(4096, 1)));
        bed.write(&mut a, 8192, &filled(4096, 1));
        let mut b = cloned(bed, &a, &at_snap(&a.id, 1));
        bed.follows(&mut a, &[Zero(0, 4096)]);
        bed.follows(&mut b, &[Zero(8192, 4096)]);
        assert_eq!(bed.took(), 3 * 4096);
        bed.remount();
        bed.checked();
        bed.agrees(&a);
        bed.agrees(&b);
        bed.cleans(&[&a.id, &b.id, &between]);
    });
}

/// A clone after each round of short writes all over an object. A quarter of the rounds, and a 16th of the object.
#[test]
fn repro_no_blob_multi_test() {
    on_each(|bed| {
        let mut a = Known::new(META, id("Object 1"));
        let (rounds, mut all) = (32u64, Vec::new());
        for round in 0..rounds {
            for at in (0..1 << 20).step_by(64 << 10) {
                bed.write(&mut a, at + round * 0x100, &filled(0x100, round as u8));
            }
            all.push(cloned(bed, &a, &at_snap(&a.id, round + 1)));
        }
        all.iter().for_each(|clone| bed.agrees(clone));
        // Each round wrote one block of each 64 KiB anew, and no clone costs more.
        assert!(bed.took() <= rounds * 16 * 4096, "{}", bed.took());
        let mut gone: Vec<&ObjectId> = all.iter().map(|clone| &clone.id).collect();
        gone.push(&a.id);
        bed.cleans(&gone);
    });
}
