//! A journal that is built here, read back, and read when it is damaged.

use crate::journal::{Coll, NEWEST, Name, Op, Pairs, entries};
use crate::tree::object_of;

const FSID: [u8; 16] = [3; 16];

fn bytes(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

fn pairs(pairs: &Pairs) -> Vec<u8> {
    let all = pairs.iter().flat_map(|(key, value)| [bytes(key), bytes(value)].concat());
    (pairs.len() as u32).to_le_bytes().into_iter().chain(all).collect()
}

fn coll(coll: &Coll) -> Vec<u8> {
    let (kind, pool, seed, shard) = match *coll {
        Coll::Meta => (0, 0, 0, None),
        Coll::Group { pool, seed, shard } => (2, pool, seed, shard),
    };
    let group = [&[1][..], &pool.to_le_bytes(), &seed.to_le_bytes(), &[0xff; 4], &[shard.unwrap_or(0xff)]].concat();
    [&[2, kind, 1, 1][..], &bytes(&group), &(u64::MAX - 1).to_le_bytes()].concat()
}

fn name(of: &Name) -> Vec<u8> {
    let first = [bytes(&of.key), bytes(&of.name), of.snap.to_le_bytes().into(), of.hash.to_le_bytes().into(), vec![0]];
    let last = vec![of.shard.unwrap_or(0xff), 0];
    let rest = [bytes(&of.namespace), of.pool.to_le_bytes().into(), of.generation.to_le_bytes().into(), last];
    [&[6, 3][..], &bytes(&[first.concat(), rest.concat()].concat())].concat()
}

fn raw(op: u32, offset: u64, len: u64, other: u32, bits: u32) -> Vec<u8> {
    let mut out = [op, 0, 0].map(u32::to_le_bytes).concat();
    out.extend([offset, len].map(u64::to_le_bytes).concat());
    out.extend([1, other].map(u32::to_le_bytes).concat());
    out.extend(77u64.to_le_bytes());
    out.extend(0x40u32.to_le_bytes());
    out.extend([1 << 22, 4096].map(u64::to_le_bytes).concat());
    out.extend([bits, 5].map(u32::to_le_bytes).concat());
    out
}

fn transaction(data: &[u8], ops: &[Vec<u8>], colls: &[Coll], names: &[Name]) -> Vec<u8> {
    let mut inside = [bytes(data), bytes(&ops.concat())].concat();
    inside.extend((colls.len() as u32).to_le_bytes());
    colls.iter().enumerate().for_each(|(n, one)| inside.extend([coll(one), (n as u32).to_le_bytes().into()].concat()));
    inside.extend((names.len() as u32).to_le_bytes());
    names.iter().enumerate().for_each(|(n, one)| inside.extend([name(one), (n as u32).to_le_bytes().into()].concat()));
    inside.extend([0; 24]);
    [&[9, 9][..], &bytes(&inside)].concat()
}

fn journal(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut header = 1u64.to_le_bytes().to_vec();
    header.extend(FSID);
    header.extend([512, 512].map(u32::to_le_bytes).concat());
    header.extend([1 << 20, 512, 6, 7].map(u64::to_le_bytes).concat());
    let mut out = [&4u32.to_le_bytes(), &bytes(&header)[..]].concat();
    out.resize(512, 0);
    for (number, payload) in (7u64..).zip(payloads) {
        let (at, len) = (out.len() as u64, payload.len() as u64);
        let after = (80 + len).next_multiple_of(512) - 80 - len;
        let mut head = number.to_le_bytes().to_vec();
        head.extend((!crc32c::crc32c_append(!0, payload)).to_le_bytes());
        head.extend([len as u32, 0, after as u32].map(u32::to_le_bytes).concat());
        head.extend(at.to_le_bytes());
        head.extend((u64::from_le_bytes([3; 8]) ^ number ^ len).to_le_bytes());
        out.extend([&head[..], payload, &vec![0; after as usize], &head].concat());
    }
    out.resize(out.len() + 512, 0);
    out
}

fn built(shard: Option<u8>) -> (Vec<Op>, Vec<u8>) {
    let group = Coll::Group { pool: 3, seed: 5, shard };
    let half = Coll::Group { pool: 3, seed: 13, shard };
    let a = Name {
        pool: 3,
        hash: 5,
        namespace: b"n".to_vec(),
        key: b"k".to_vec(),
        name: b"a/:%".to_vec(),
        snap: 4,
        generation: NEWEST,
        shard,
    };
    let b = Name { generation: 9, ..a.clone() };
    let (place, map) = ((group.clone(), a.clone()), vec![(b"one".to_vec(), b"1".to_vec())]);
    let data = [bytes(b"bytes"), pairs(&map), bytes(b"gone"), pairs(&map), bytes(b"from"), bytes(b"to")].concat();
    let raws = [
        raw(20, 0, 0, 0, 3),
        raw(9, 0, 0, 0, 0),
        raw(10, 100, 5, 0, 0),
        raw(15, 0, 0, 0, 0),
        raw(16, 0, 0, 0, 0),
        raw(32, 0, 0, 0, 0),
        raw(37, 0, 0, 0, 0),
        raw(17, 0, 0, 1, 0),
        raw(30, 8, 16, 1, 0),
        raw(12, 3, 0, 0, 0),
        raw(39, 0, 0, 0, 0),
        raw(36, 0, 0, 0, 4),
        raw(13, 0, 0, 0, 0),
    ];
    let ops = vec![
        Op::CreateCollection(group.clone(), 3),
        Op::Touch(place.clone()),
        Op::Write(place.clone(), 100, b"bytes".to_vec()),
        Op::SetAttributes(place.clone(), map.clone()),
        Op::RemoveAttribute(place.clone(), b"gone".to_vec()),
        Op::OmapSet(place.clone(), map),
        Op::OmapRemoveRange(place.clone(), b"from".to_vec(), b"to".to_vec()),
        Op::Clone(place.clone(), b.clone()),
        Op::CloneRange { from: place.clone(), to: b.clone(), at: 8, len: 16, goal: 77 },
        Op::Truncate(place.clone(), 3),
        Op::Hint { of: place.clone(), object: 1 << 22, write: 4096, flags: 0x40 },
        Op::Split { from: group.clone(), bits: 4, into: half.clone() },
        Op::Remove(place),
    ];
    (ops, transaction(&data, &raws, &[group, half], &[a, b]))
}

#[test]
fn a_journal_is_read_as_it_was_written() {
    for (shard, seen) in [(None, &b"#3:a0000000:n:k:a%2f%3a%25:4#"[..]), (Some(2), b"2#3:a0000000:n:k:a%2f%3a%25:4#")] {
        let (ops, transaction) = built(shard);
        let all = entries(&journal(&[transaction.clone(), [&transaction[..], &transaction].concat()])).unwrap();
        assert_eq!(all.iter().map(|entry| entry.number).collect::<Vec<_>>(), [7, 8]);
        assert_eq!((&all[0].ops, &all[1].ops), (&ops, &[&ops[..], &ops].concat()));
        let name = object_of(seen).unwrap();
        assert!(ops.contains(&Op::Touch((Coll::Group { pool: 3, seed: 5, shard }, name))));
    }
}

/// A damaged journal ends before what is damaged. What its checksum does not know of is refused, and costs no memory.
#[test]
fn damaged_journals_are_refused_or_end() {
    let (ops, transaction) = built(Some(2));
    let whole = journal(&[transaction.clone(), transaction.clone()]);
    for at in 0..whole.len() {
        for mask in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= mask;
            let found = entries(&damaged);
            // Padding has no checksum, and the first block none at all.
            let Ok(found) = found else { continue };
            assert!(at < 512 || found.len() <= 2 && found.iter().all(|entry| entry.ops == ops), "{at}");
        }
        drop(entries(&whole[..at]));
    }
    for at in 0..transaction.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = transaction.clone();
            damaged[at] = value;
            drop(entries(&journal(&[damaged])));
        }
        assert!(at == 0 || entries(&journal(&[transaction[..at].to_vec()])).is_err());
    }
    for name in [
        "",
        "#",
        "##",
        "#1:2#",
        "x#1:00000000:::a:head#",
        "#1:x:::a:head#",
        "#1:00000000:::%:head#",
        "#1:00000000:::%zz:head#",
        "é",
    ] {
        assert_eq!(object_of(name.as_bytes()), None, "{name}");
    }
}
