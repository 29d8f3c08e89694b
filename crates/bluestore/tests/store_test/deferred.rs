//! Short writes, which go to the metadata first and to the drive later.

use crate::Do::{Remount, Write, Zero};
use crate::{Bed, KIB, Kind, Known, META, filled, id, object, on_each, usual};
use imbrex_bluestore::{Hint, Options};

/// Each offset with each length. What is shorter than the limit, in whole blocks, is deferred, and what is not is not.
#[test]
fn new_data() {
    let limits = [0, 4, 16, 32, 64, 128].map(|n| n * KIB);
    for defer_below in limits {
        let options = Options { defer_below, pack_from: 64 << 20, gather: 64 << 20, ..crate::options() };
        let mut bed = Bed::new(Kind::Plain, &usual(), options);
        let mut gone = Vec::new();
        for offset in [0, 3000, 4096, 20_000, 32_768, 65_000, 65_536, 80_000, 128 * KIB] {
            for len in [1, 1000, 4096, 12_000, 32_768, 30_000, 80_000, 128 * KIB] {
                let mut known = Known::new(META, id(&format!("test-{offset}-{len}")));
                bed.took();
                bed.write(&mut known, offset, &filled(len, b'x'));
                bed.store().sync().unwrap();
                let blocks = (offset + len).next_multiple_of(4096) - offset / 4096 * 4096;
                let deferred = bed.store().usage().deferred;
                assert_eq!(deferred, if blocks < defer_below { blocks } else { 0 }, "{offset} {len} {defer_below}");
                bed.agrees(&known);
                gone.push(known.id);
            }
        }
        bed.cleans(&gone.iter().collect::<Vec<_>>());
        bed.end();
    }
}

/// What waits when the store closes is there when it opens, and goes to the drive then.
#[test]
fn deferred_replay() {
    for kind in [Kind::Plain, Kind::Full] {
        let options = Options { pack_from: 64 << 20, ..crate::options() };
        let mut bed = Bed::new(kind, &usual(), options);
        let mut known = Known::new(META, id("test"));
        bed.follows(&mut known, &[Write(0, 1, b'x'), Write(9000, 5000, b'y')]);
        for _ in 0..2 {
            bed.remount();
            assert_eq!(bed.store().usage().deferred, 3 * 4096);
            bed.agrees(&known);
        }
        assert_eq!(bed.took(), 3 * 4096);
        bed.agrees(&known);
        bed.cleans(&[&known.id]);
        bed.end();
    }
}

#[test]
fn repro_bug_41901_test() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        bed.follows(&mut known, &[Write(0x11000, 4096, b'a'), Write(0x15000, 3 * 4096, b'a')]);
        bed.follows(&mut known, &[Write(0xe000, 8192, b'a'), Write(0xf000, 4096, b'b'), Write(0x10000, 4096, b'c')]);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn repro_bug_56488_test() {
    on_each(|bed| {
        let [mut a, mut b] = ["test", "test-a"].map(|name| Known::new(META, id(name)));
        bed.follows(&mut a, &[Write(0, 4096, b'x')]);
        // On both sides of the border of what Ceph allocates.
        bed.follows(&mut b, &[Write(65_536 - 4096, 8192, b'x')]);
        assert!(bed.took() == 3 * 4096 || bed.kind == Kind::Packed);
        bed.cleans(&[&a.id, &b.id]);
    });
}

#[test]
fn ticket_45195_repro() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object"));
        let hint = Hint { object: 1 << 20, write: 0x8000, immutable: true, ..Hint::default() };
        bed.does(|t| _ = t.touch(META, &known.id).hint(META, &known.id, hint));
        bed.follows(
            &mut known,
            &[
                Write(0xb000, 0xc000, b'0'),
                Write(0x16000, 0x10000, b'1'),
                Write(0x1b000, 0x4000, b'1'),
                Remount,
                Write(0xf000, 0xf000, b'3'),
            ],
        );
        bed.cleans(&[&known.id]);
    });
}

/// Short overwrites of what is on the drive, at its beginning and its end, before they are packed and after. No more is stored than there is.
#[test]
fn deferred_on_big_overwrite_1() {
    on_each(|bed| {
        let [mut a, mut b] = ["test", "test2"].map(|name| Known::new(META, id(name)));
        bed.does(|t| _ = t.hint(META, &b.id, Hint { object: 16 * KIB, write: 16 * KIB, ..Hint::default() }));
        bed.write(&mut a, 0, &filled(8192, b'c'));
        bed.write(&mut b, 0, &filled(3 * 4096, b'd'));
        // Before the overwrites all of it has a place.
        assert!(bed.took() <= 5 * 4096);
        bed.follows(&mut a, &[Write(0, 4096, b'b'), Write(4096, 4096, b'g')]);
        bed.follows(&mut b, &[Write(4096, 4096, b'e')]);
        while bed.store().pack().unwrap() {}
        bed.agrees(&a);
        bed.agrees(&b);
        assert!(bed.took() <= 5 * 4096);
        bed.cleans(&[&a.id, &b.id]);
    });
}

#[test]
fn deferred_on_big_overwrite_2() {
    on_each(|bed| {
        let mut a = Known::new(META, id("test"));
        bed.follows(&mut a, &[Write(0, 8192, b'f'), Zero(0, 100)]);
        assert!(bed.took() <= 8192);
        bed.follows(&mut a, &[Write(0, 4096, b'g')]);
        assert!(bed.took() <= 8192);
        bed.follows(&mut a, &[Write(0, 8192, b'h')]);
        assert!(bed.took() <= 8192);
        bed.cleans(&[&a.id]);
    });
}

/// Overwrites of the end of one blob and the beginning of the next.
#[test]
fn deferred_on_big_overwrite_3() {
    on_each(|bed| {
        let mut a = Known::new(META, id("test"));
        let block = 4096;
        bed.follows(&mut a, &[Write(0, 32 * block, b'a'), Write(32 * block, 32 * block, b'a')]);
        for write in [
            Write(0x20000 - block, 3 * block, b'b'),
            Write(0x10000 + block, 30 * block, b'c'),
            Write(0x20000 - block, 30 * block, b'e'),
            Remount,
        ] {
            bed.follows(&mut a, &[write]);
            assert!(bed.took() <= 64 * block);
        }
        bed.cleans(&[&a.id]);
    });
}

/// 128 KiB a block beside where they were.
#[test]
fn deferred_on_big_overwrite_4() {
    on_each(|bed| {
        let mut a = Known::new(META, id("test"));
        bed.follows(&mut a, &[Write(0x1000, 128 * KIB, b'c'), Write(0x2000, 128 * KIB, b'd')]);
        assert!(bed.took() <= 132 * KIB);
        // An OSD may remove what it has removed.
        bed.does(|t| _ = t.remove(META, &a.id).remove_if_there(META, &a.id).remove_collection(META));
        bed.takes_nothing();
    });
}

/// A MiB a block beside where it was. A quarter of Ceph's.
#[test]
fn deferred_on_big_overwrite_5() {
    on_each(|bed| {
        let mut a = Known::new(META, id("test"));
        bed.follows(&mut a, &[Write(0, 1 << 20, b'c'), Write(0x1000, 1 << 20, b'd')]);
        assert!(bed.took() <= (1 << 20) + 4096);
        bed.cleans(&[&a.id]);
    });
}

/// A short overwrite close to the end of objects of each length of grains.
#[test]
fn deferred_different_chunks() {
    on_each(|bed| {
        let (size, mut all) = (256 * KIB, Vec::new());
        for write in (10..=16).map(|bits| 1u64 << bits) {
            let mut known = Known::new(META, id(&format!("test-{write}")));
            let hint = Hint { object: size, write, immutable: true, ..Hint::default() };
            bed.does(|t| _ = t.hint(META, &known.id, hint));
            bed.follows(&mut known, &[Write(0, size, b'h'), Write(size - 2 * 4096 - 1, 4096 + 2, b'z')]);
            all.push(known);
        }
        bed.remount();
        all.iter().for_each(|known| bed.agrees(known));
        bed.cleans(&all.iter().map(|known| &known.id).collect::<Vec<_>>());
    });
}

/// A thousand short writes at random: what is stored is never more than the object has.
fn many_4k_writes(options: Options) {
    use rand::{Rng, SeedableRng};
    for kind in [Kind::Plain, Kind::Packed, Kind::Full] {
        let mut bed = Bed::new(kind, &usual(), options);
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(4096);
        let mut known = Known { c: META, id: object(-1, 7, "OBJ"), bytes: Vec::new() };
        for n in 0..1000u32 {
            let (at, len) = (rng.random_range(0..2 << 20), rng.random_range(0..4096));
            bed.write(&mut known, at, &filled(len, n as u8));
        }
        bed.agrees(&known);
        assert!(bed.took() <= (known.bytes.len() as u64).next_multiple_of(4096));
        bed.cleans(&[&known.id]);
        bed.end();
    }
}

#[test]
fn many_4k_writes_test() {
    many_4k_writes(crate::options());
}

/// With records of counts that wait for long.
#[test]
fn too_many_blobs_test() {
    many_4k_writes(Options { count_from: 4096, pack_from: 4 << 20, ..crate::options() });
}
