//! What objects take on the drive, and compression.

use crate::Do::{Remount, Write, Zero};
use crate::{Bed, KIB, Kind, Known, META, filled, id, object, on_each, usual};
use imbrex_bluestore::{CollectionId, Compression, Hint, ObjectId, Options};

/// Bytes of which each 256 are alike.
fn steps_of(len: u64, plus: u64) -> Vec<u8> {
    (0..len).map(|n| ((n + plus) / 256) as u8).collect()
}

#[test]
fn compression_test() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let mut bed = Bed::new(Kind::Plain, &usual(), Options { compression, ..crate::options() });
        let mut known = Known::new(META, id("Object 1"));
        bed.does(|t| _ = t.touch(META, &known.id));
        let size = 256 * KIB;
        for (at, len, plus) in [(0, size, 0), (0x8000, size - 0x9000, 1), (0, 0x3f000, 2), (0x3f000 - 1, 0x1001, 3)] {
            bed.write(&mut known, at, &steps_of(len, plus));
            bed.agrees(&known);
            assert!(bed.took() < size / 4, "{}", bed.took());
        }
        bed.does(|t| _ = t.remove(META, &known.id));
        bed.remount();
        bed.checked();
        known.bytes.clear();
        bed.write(&mut known, 0, &steps_of(6 * 64 * KIB, 0));
        bed.remount();
        bed.checked();
        bed.agrees(&known);
        bed.cleans(&[&known.id]);
        bed.end();
    }
}

/// What a store says of itself, step by step. Its blocks are of 4 KiB, and each part is counted to the block. It counts all pools together.
#[test]
fn bluestore_stat_fs_test() {
    let mut bed = Bed::new(Kind::Packed, &usual(), crate::options());
    let c = CollectionId { pool: 4373, seed: 0 };
    let mut known = Known::new(c, object(4373, 0, "Object 1"));
    bed.does(|t| _ = t.create_collection(c, 0).touch(c, &known.id));
    let usage = bed.store().usage();
    assert_eq!((bed.took(), usage.objects, usage.bytes), (0, 1, 0));
    // Of 56 MiB, of which metadata have a part.
    assert!(usage.capacity > 20 << 20 && usage.capacity < 56 << 20 && usage.free > 0 && usage.free < 56 << 20);
    // Bytes of objects, and the most that these take on the drive.
    let mut step = |bed: &mut Bed, steps: &[crate::Do], most: u64| {
        bed.follows(&mut known, steps);
        assert_eq!(bed.store().usage().bytes, known.bytes.len() as u64);
        assert!(bed.took() <= most, "{} of {most}", bed.took());
        bed.remount();
        bed.checked();
        bed.took()
    };
    assert_eq!(step(&mut bed, &[Write(0, 5, b'a')], 4096), 4096);
    // Compressed: 12 blocks of each 16 and more are saved.
    let packed = step(&mut bed, &[Write(0x10000, 0x30000, b'a')], 0x10000);
    assert!(step(&mut bed, &[Zero(1, 3), Zero(0x20000, 9)], packed + 0x1000) >= packed);
    step(&mut bed, &[Write(1, 0x1000, b'b'), Write(0x10001, 0x1000, b'b')], 0x10000);
    assert_eq!(step(&mut bed, &[Zero(0, 0x40000)], 0), 0);
    let packed = step(&mut bed, &[Write(0, 0x40000 - 2, b'c')], 0x10000);
    // A clone takes nothing.
    let clone = ObjectId { snap: 1, ..object(4373, 0, "Object 1") };
    assert_eq!(clone.generation, crate::NO_GENERATION);
    bed.does(|t| _ = t.clone_object(c, &object(4373, 0, "Object 1"), &clone));
    let usage = bed.store().usage();
    assert_eq!((bed.took(), usage.objects, usage.bytes), (packed, 2, 2 * 0x40000));
    // Objects of other pools, one of which is renamed.
    let (c3, a, b) = (CollectionId { pool: 4375, seed: 0 }, object(4375, 0, "temp"), object(4375, 0, "Object 3"));
    bed.does(|t| _ = t.create_collection(c3, 0).write(c3, &a, 0, b"abcde"));
    let took = bed.took();
    assert_eq!(took, packed + 4096);
    bed.does(|t| _ = t.rename(c3, &a, &b));
    assert_eq!(bed.took(), took);
    bed.remount();
    bed.does(|t| _ = t.remove(c3, &b).remove_collection(c3));
    bed.does(|t| _ = t.remove(c, &object(4373, 0, "Object 1")).remove(c, &clone).remove_collection(c));
    let usage = bed.store().usage();
    assert_eq!((bed.took(), usage.objects, usage.bytes), (0, 0, 0));
    bed.end();
}

/// Holes at the beginning, in the middle and at the end take no room, and bytes in them do.
#[test]
fn bluestore_fragmented_blob_test() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        let part = 0x10000;
        let is = |bed: &Bed, most: u64| match bed.kind {
            Kind::Packed => assert!(bed.took() <= most),
            _ => assert_eq!(bed.took(), most),
        };
        bed.write(&mut known, 0, &steps_of(3 * part, 256));
        bed.follows(&mut known, &[Zero(part, part)]);
        is(bed, 2 * part);
        bed.follows(&mut known, &[Remount, Write(2 * part, 3, b'b')]);
        is(bed, 2 * part);
        bed.follows(&mut known, &[Remount, Write(part + 1, 3, b'a')]);
        is(bed, 2 * part + 4096);
        bed.follows(&mut known, &[Write(0, 3 * part, b'c'), Zero(0, part), Zero(2 * part, part)]);
        is(bed, part);
        bed.follows(&mut known, &[Remount]);
        bed.checked();
        bed.cleans(&[&known.id]);
    });
}

/// An object grows, is overwritten, and its gaps are filled. Ceph counts its blobs; here they never change, and what is stored is counted.
#[test]
fn blob_reuse_on_overwrite() {
    on_each(|bed| {
        let mut known = Known::new(META, id("test_hint"));
        let block = 4096;
        bed.follows(
            &mut known,
            &[
                Write(0, 2 * block, b'a'),
                Write(0, block, b'b'),
                Write(2 * block, 2 * block, b'c'),
                Write(5 * block, 2 * block, b'd'),
                Write(6 * block, 2 * block, b'e'),
                Write(4 * block, block, b'f'),
            ],
        );
        assert!(bed.took() <= 8 * block);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn blob_reuse_on_overwrite_reverse() {
    on_each(|bed| {
        let mut known = Known::new(META, id("test_hint"));
        let writes =
            [(10, 2, b'a'), (9, 1, b'b'), (7, 1, b'c'), (13, 1, b'd'), (17, 1, b'e'), (19, 1, b'e'), (16, 1, b'f')];
        for (at, blocks, with) in writes {
            bed.follows(&mut known, &[Write(at * 4096, blocks * 4096, with)]);
        }
        bed.follows(&mut known, &[Write(18 * 4096, 4096, b'f')]);
        assert!(bed.took() <= 9 * 4096);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn blob_reuse_on_small_overwrite() {
    on_each(|bed| {
        let mut known = Known::new(META, id("test_hint"));
        bed.follows(&mut known, &[Write(0, 4096, b'a'), Write(8192, 4096, b'a'), Write(4097, 3, b'b')]);
        assert!(bed.took() <= 3 * 4096);
        bed.cleans(&[&known.id]);
    });
}

/// A write into zeros between two parts of a blob, behind a border of records, after a restart.
#[test]
fn small_write_on_sharded_extents() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        bed.follows(
            &mut known,
            &[
                Write(0, 0x80000, b'a'),
                Zero(0x719e0, 0x75b0),
                Write(0, 0x70000, b'b'),
                Zero(0, 0x50000),
                Remount,
                Write(0x71c00, 0x6520, b'c'),
            ],
        );
        let parts = [(0x19e0, b'a'), (0x220, 0), (0x6520, b'c'), (0xe70, 0), (0xc70, b'a')];
        assert_eq!(bed.read(&known.id, 0x70000, 0x9c00), parts.map(|(len, with)| filled(len, with)).concat());
        bed.cleans(&[&known.id]);
    });
}

/// Overwrites of parts of what is compressed: what is left of a blob is written anew before the object takes more than its size.
#[test]
fn garbage_collection() {
    let mut bed = Bed::new(Kind::Packed, &usual(), crate::options());
    let mut known = Known::new(META, id("Object 1"));
    bed.does(|t| _ = t.touch(META, &known.id));
    let (len, part) = (256 * KIB, 64 * KIB);
    let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let writes = [
        (0, len),
        (len - 2 * part, len),
        (len - part, len),
        (len - 3 * part, len),
        (len + 1, part - 1),
        (len + 1, part),
        (0, len - 1),
        (1, part - 2),
        (2 * part + 1, part - 2),
        (part + 1, part - 2),
    ];
    for (at, len) in writes {
        bed.write(&mut known, at, &bytes[..len as usize]);
        bed.agrees(&known);
        let most = (known.bytes.len() as u64).next_multiple_of(4096);
        assert!(bed.took() <= most, "{} of {most}", bed.took());
    }
    bed.cleans(&[&known.id]);
    bed.end();
}

/// Checksums cannot be switched off. The hints that make their grains longer change in their place.
#[test]
fn bluestore_on_off_csum_test() {
    on_each(|bed| {
        let long = Hint { object: 4 << 20, write: 8 * KIB, immutable: true, ..Hint::default() };
        let mut known = Known::new(META, id("Object 1"));
        let anew = |bed: &mut Bed, known: &mut Known, hint: Hint| {
            bed.does(|t| _ = t.remove_if_there(META, &known.id).hint(META, &known.id, hint));
            known.bytes.clear();
        };
        for hint in [long, Hint::default()] {
            anew(bed, &mut known, hint);
            bed.follows(&mut known, &[Write(0, 64 * KIB, b'a')]);
        }
        for (first, then) in [(long, Hint::default()), (Hint::default(), long)] {
            anew(bed, &mut known, first);
            bed.follows(&mut known, &[Write(0, 8000, b'a')]);
            bed.does(|t| _ = t.hint(META, &known.id, then));
            bed.follows(&mut known, &[Write(16_000, 8000, b'a')]);
            anew(bed, &mut known, first);
            bed.follows(&mut known, &[Write(0, 0x10000, b'a')]);
            bed.does(|t| _ = t.hint(META, &known.id, then));
            bed.follows(&mut known, &[Write(0, 9000, b'b'), Write(0x10000, 9000, b'b')]);
            bed.does(|t| _ = t.hint(META, &known.id, first));
            bed.follows(&mut known, &[Write(0x10000, 5000, b'c'), Remount]);
        }
        bed.cleans(&[&known.id]);
    });
}

/// A drive whose zones have fewer bytes than they span is checked and opened as any.
#[test]
fn zones_of_an_odd_capacity() {
    let config = crate::Config { zone_capacity: (2 << 20) - 20 * KIB, ..usual() };
    let mut bed = Bed::new(Kind::Plain, &config, crate::options());
    bed.checked();
    let mut known = Known::new(META, id("a"));
    bed.follows(&mut known, &[Write(0, 3 << 20, 7), Remount]);
    bed.cleans(&[&known.id]);
    bed.end();
}
