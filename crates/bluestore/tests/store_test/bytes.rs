//! Bytes of objects: written, overwritten, zeroed and cut, on blocks and beside them.

use crate::Do::{Remount, Truncate, Write, Zero};
use crate::{Bed, KIB, Known, META, filled, id, on_each};
use imbrex_device::Code;

/// An object that follows these steps, and goes.
fn steps(all: &[crate::Do]) {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        bed.does(|t| _ = t.touch(META, &known.id));
        bed.follows(&mut known, all);
        bed.remount();
        bed.agrees(&known);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn small_block_writes() {
    steps(&[
        Write(0, 4096, b'a'),
        Write(4096, 4096, b'b'),
        Write(0x3000, 4096, b'c'),
        Write(0x2000, 4096, b'a'),
        Write(0, 4096, b'c'),
    ]);
}

#[test]
fn buffer_cache_read_test() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        assert!(!bed.is_there(META, &known.id));
        bed.does(|t| _ = t.touch(META, &known.id));
        let turns: [&[(u64, &[u8])]; 4] = [
            &[(0, b"abcde"), (10, b"abcde")],
            &[(0, b"edcba"), (10, b"edcba")],
            &[(20, b"1234567890")],
            &[(30, b"1234567890"), (1, b"DCB"), (13, b"BA")],
        ];
        for writes in turns {
            bed.does(|t| writes.iter().for_each(|(at, bytes)| _ = t.write(META, &known.id, *at, bytes)));
            writes.iter().for_each(|(at, bytes)| crate::over(&mut known.bytes, *at, bytes));
            bed.agrees(&known);
        }
        assert_eq!(&bed.read(&known.id, 0, 20)[..], b"eDCBa\0\0\0\0\0edcBA\0\0\0\0\0");
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn simple_object_test() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        let is = known.id.clone();
        assert!(!bed.is_there(META, &is));
        assert_eq!(bed.store().read(META, &is, 0, 5).map_err(|error| error.code()), Err(Code::NotFound));
        bed.does(|t| _ = t.touch(META, &is));
        bed.does(|t| _ = t.remove(META, &is).touch(META, &is));
        bed.does(|t| _ = t.remove(META, &is).write(META, &is, 0, b"abcde"));
        known.bytes = b"abcde".to_vec();
        bed.agrees(&known);
        for (at, bytes) in [(5, &b"abcde"[..]), (0, b"abcdeabcde"), (3, b"abcde")] {
            bed.write(&mut known, at, bytes);
            bed.agrees(&known);
        }
        assert_eq!(known.bytes, b"abcabcdede");
        bed.does(|t| _ = t.truncate(META, &is, 0).write(META, &is, 5, b"fghij"));
        known.bytes = b"\0\0\0\0\0fghij".to_vec();
        bed.agrees(&known);
        bed.write(&mut known, 0, b"abcde");
        bed.write(&mut known, 0, &b"abcde01234012340123401234".repeat(4));
        bed.agrees(&known);
        // A byte, a whole block, and bytes on the other side of the first block's border.
        bed.follows(&mut known, &[Truncate(0), Write(4095, 1, b'1'), Write(4096, 4096, b'2'), Write(1, 2, b'0')]);
        bed.cleans(&[&is]);
    });
}

#[test]
fn many_small_write() {
    on_each(|bed| {
        let [mut a, mut b] = ["Object 1", "Object 2"].map(|name| Known::new(META, id(name)));
        for n in 0..100u64 {
            bed.write(&mut a, n * 4096, &filled(4096, n as u8));
            bed.write(&mut b, n * 389 % 512 * 4096, &filled(4096, !n as u8));
        }
        bed.agrees(&a);
        bed.agrees(&b);
        bed.cleans(&[&a.id, &b.id]);
    });
}

/// The same blocks in one transaction, and in transactions that are not durable yet.
#[test]
fn multi_small_write_same_block() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        let (told, heard) = std::sync::mpsc::channel();
        for turn in [[0, 5, 4094, 9000, 10, 7000], [40, 45, 4094, 6000, 610, 11_000]] {
            for part in [&turn[..4], &turn[4..]] {
                let told = told.clone();
                bed.does(|t| {
                    part.iter().for_each(|at| _ = t.write(META, &known.id, *at, b"short"));
                    t.on_commit(move |result| told.send(result.is_ok()).unwrap());
                });
                part.iter().for_each(|at| crate::over(&mut known.bytes, *at, b"short"));
            }
        }
        bed.agrees(&known);
        bed.store().sync().unwrap();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [true; 4]);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn small_skip_front() {
    steps(&[Truncate(3000), Write(4096, 4096, 1)]);
}

#[test]
fn append_deferred_vs_tail_cache() {
    // A third of what Ceph allocates at least, three times, with a restart between.
    let third = 64 * KIB / 3;
    steps(&[Write(0, third, 1), Remount, Write(third, third, 2), Write(2 * third, third, 3)]);
}

#[test]
fn small_sequential_unaligned() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        (0..500u64).for_each(|n| bed.write(&mut known, n * 1000, &filled(1000, n as u8)));
        bed.agrees(&known);
        bed.cleans(&[&known.id]);
    });
}

/// A quarter of the bytes of each, since drives of tests are small. Offsets are spread as far.
#[test]
fn many_big_write() {
    on_each(|bed| {
        let [mut a, b] = ["Object 1", "Object 2"].map(|name| Known::new(META, id(name)));
        (0..4u64).for_each(|n| bed.write(&mut a, n * ((1 << 20) + 10), &filled(1 << 20, n as u8)));
        bed.agrees(&a);
        let mut random = 7u64;
        let mut any = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut last = Vec::new();
        for n in 0..12u64 {
            let at = if n < 4 { any(256) << 22 } else { any(256 * 4096) * KIB };
            match n {
                // All that it had goes, so that a small drive has room.
                3 | 6 => bed.does(|t| _ = t.truncate(META, &b.id, 0).write(META, &b.id, at, &filled(1 << 20, n as u8))),
                0..8 => bed.does(|t| _ = t.write(META, &b.id, at, &filled(1 << 20, n as u8))),
                _ => bed.does(|t| _ = t.zero(META, &b.id, at, 16 << 20)),
            }
            let (with, len) = if n < 8 { (n as u8, 1 << 20) } else { (0, 16 << 20) };
            assert!(bed.read(&b.id, at, len) == filled(len, with));
            last = vec![at, len];
        }
        assert!(bed.size(&b.id) >= last.iter().sum::<u64>());
        bed.cleans(&[&a.id, &b.id]);
    });
}

#[test]
fn big_write_big_zero() {
    steps(&[Write(0, 1 << 20, b'b'), Zero(1 << 18, 1 << 19), Write(1 << 19, 4096, b's')]);
}

#[test]
fn misc_fragment_tests() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        bed.follows(&mut known, &[Write(0, 1 << 19, 7), Write(1 << 20, 1 << 19, 8)]);
        assert_eq!(bed.read(&known.id, (1 << 19) + (1 << 17), 1024), filled(1024, 0));
        bed.follows(&mut known, &[Write((1 << 20) - 4096, 1 << 19, 9)]);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn zero_vs_object_size() {
    steps(&[Write(0, 5, b's'), Zero(1, 2), Zero(3, 200), Zero(100_000, 200)]);
}

/// Nothing stands nowhere.
#[test]
fn zero_length_write() {
    on_each(|bed| {
        let (is, other) = (id("foo"), id("bar"));
        bed.does(|t| _ = t.touch(META, &is));
        bed.does(|t| _ = t.write(META, &is, 1 << 20, b""));
        assert_eq!((bed.size(&is), bed.read(&is, 0, 1 << 20)), (0, Vec::new()));
        // It is there, then.
        bed.does(|t| _ = t.write(META, &other, 7, b""));
        assert_eq!(bed.size(&other), 0);
        bed.does(|t| _ = t.clone_range(META, &is, &other, (0, 0, 1 << 20)));
        bed.does(|t| _ = t.clone_range(META, &is, &is, (0, 0, 1 << 20)));
        assert_eq!((bed.size(&is), bed.size(&other)), (0, 0));
        bed.cleans(&[&is, &other]);
    });
}

#[test]
fn zero_length_zero() {
    on_each(|bed| {
        let is = id("foo");
        bed.does(|t| _ = t.touch(META, &is));
        bed.does(|t| _ = t.zero(META, &is, 1 << 20, 0));
        assert_eq!((bed.size(&is), bed.read(&is, 0, 1 << 20)), (0, Vec::new()));
        bed.cleans(&[&is]);
    });
}

/// Parts of an object where something is stored, as offsets and lengths.
fn stored_parts(bed: &Bed, is: &imbrex_bluestore::ObjectId, from: u64, to: u64) -> Vec<(u64, u64)> {
    let (mut at, mut all) = (from, Vec::new());
    while at < to {
        let (stored, len) = bed.store().stored_at(META, is, at, to - at).unwrap();
        assert!(len > 0);
        if stored {
            all.push((at, len));
        }
        at += len;
    }
    all
}

#[test]
fn fiemap_empty() {
    on_each(|bed| {
        let is = id("fiemap_object");
        bed.does(|t| _ = t.touch(META, &is).truncate(META, &is, 100_000));
        assert_eq!(stored_parts(bed, &is, 0, 100_000), []);
        bed.cleans(&[&is]);
    });
}

#[test]
fn fiemap_holes() {
    on_each(|bed| {
        let (is, count, step) = (id("fiemap_object"), 400, 65_536);
        bed.does(|t| (0..count).for_each(|n| _ = t.write(META, &is, step * n, b"foo")));
        let all: Vec<(u64, u64)> = (0..count - 1).map(|n| (step * n, 4096)).chain([(step * (count - 1), 3)]).collect();
        for _ in 0..2 {
            assert_eq!(stored_parts(bed, &is, 0, step * (count - 1) + 3), all);
            assert_eq!(stored_parts(bed, &is, step, step * (count - 2)), all[1..all.len() - 2]);
            bed.remount();
        }
        bed.cleans(&[&is]);
    });
}

/// Parts that touch, that overlap, and that lie a byte apart.
#[test]
fn merge_region_test() {
    let chunk = 4096;
    steps(&[
        Write(0, 5, 1),
        Write(10, 5, 2),
        Write(20, 5, 3),
        Write(chunk, 5, 4),
        Write(2 * chunk + 3, 5, 5),
        Write(2 * chunk, 5, 6),
        Write(3 * chunk - 2, 5, 7),
        Write(3 * chunk, chunk + 2, 0),
        Write(4 * chunk + 3, 5, 8),
        Write(13 * chunk - 3, 2 * chunk, 9),
        Write(11 * chunk - 2, 2 * chunk + 2, 10),
    ]);
}

/// A block of each two first, and then all that is between, a byte beside the border.
#[test]
fn zipper_pattern_sharded() {
    on_each(|bed| {
        let mut known = Known::new(META, id("Object 1"));
        (0..300u64).for_each(|n| bed.write(&mut known, n * 8192, &filled(4096, n as u8)));
        bed.agrees(&known);
        (0..300u64).for_each(|n| bed.write(&mut known, n * 8192 + 1, &filled(4096, !n as u8)));
        bed.agrees(&known);
        bed.cleans(&[&known.id]);
    });
}

/// A byte in each block of 16 MiB, in transactions of 256; read in one, and each part by itself.
#[test]
fn many_many_extents() {
    let mut bed = Bed::new(crate::Kind::Plain, &crate::usual(), crate::options());
    let (is, turns, writes) = (id("test"), 16, 256);
    let with = |n: u64| b'a' + (n % writes % 26) as u8;
    for turn in 0..turns {
        let all = turn * writes..(turn + 1) * writes;
        bed.does(|t| all.for_each(|n| _ = t.write(META, &is, n * 4096, &[with(n)])));
    }
    bed.remount();
    let found = bed.read(&is, 0, u64::MAX);
    assert_eq!(found.len() as u64, (turns * writes - 1) * 4096 + 1);
    for n in 0..turns * writes {
        assert_eq!(found[n as usize * 4096], with(n));
        assert_eq!(bed.read(&is, n * 4096, 1), [with(n)]);
    }
    assert_eq!(found.iter().filter(|byte| **byte != 0).count() as u64, turns * writes);
    bed.cleans(&[&is]);
    bed.end();
}

/// There is no read of many parts at once: each byte of two is a read.
#[test]
fn many_many_extents_2() {
    let mut bed = Bed::new(crate::Kind::Packed, &crate::usual(), crate::options());
    let is = id("test");
    let bytes: Vec<u8> = (0..1u32 << 20).map(|n| (n / 1000) as u8).collect();
    bed.does(|t| _ = t.write(META, &is, 0, &bytes));
    bed.remount();
    for at in (0..1 << 20).step_by(2002) {
        assert_eq!(bed.read(&is, at, 1), [bytes[at as usize]]);
    }
    bed.cleans(&[&is]);
    bed.end();
}

/// Ceph may leave out blocks of zeros that somebody writes (it does not by default). Here they are stored, or compressed, and read all the same.
fn zero_blocks(at: u64, len: u64) {
    on_each(|bed| {
        let mut known = Known::new(META, id("test"));
        bed.follows(&mut known, &[Write(at, len, 0), Write(at + len, len, b'c')]);
        bed.follows(&mut known, &[Write(at + len, len, 0), Write(at, len, b'c'), Remount]);
        bed.cleans(&[&known.id]);
    });
}

#[test]
fn zero_block_detection_small_append() {
    zero_blocks(0, 4096);
}

#[test]
fn zero_block_detection_small_overwrite() {
    zero_blocks(100, 4096);
}

#[test]
fn zero_block_detection_big_append() {
    zero_blocks(0, 256 * KIB);
}

#[test]
fn zero_block_detection_big_overwrite() {
    zero_blocks(4096, 200 * KIB);
}
