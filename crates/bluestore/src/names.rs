//! Names of objects as headers of runs have them, so that a salvage without metadata can say whose bytes it has found.
//!
//! The metadata alone say what an object is called. The store keeps names of objects that were written lately in memory, bounded, and the header of each run has those
//! of its objects, as far as they are there and short. The cleaner takes over names from the headers of its victims.
//!
//! ```text
//!   flags: 1 named, 2 pool and namespace, 4 snapshot and generation as of the name before, 8 the hash is that of namespace and name
//!   pool (zigzag), namespace (length, bytes), hash (4 bytes), snapshot and generation + 1, as far as the flags do not say them
//!   bytes of the name that are those of the name before, length and bytes of its rest; size of the object; version, less that of the name before (zigzag);
//!   number of its next blob
//! ```

use crate::codec::{MAX_NUMBER, Reader, put_bytes, put_varint};
use crate::id::ObjectId;
use crate::onode::MAX_OBJECT;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A namespace and a name of more bytes together are in no header.
const LONGEST: usize = 1024;
/// So many names are in memory, and so many bytes of them.
const MOST: usize = 128 << 10;
const MOST_BYTES: usize = 16 << 20;
/// About what one takes beside its bytes.
const A_NAME: usize = 128;

const NAMED: u8 = 1;
const SAME_POOL: u8 = 2;
const SAME_SNAP: u8 = 4;
const USUAL_HASH: u8 = 8;

/// What an object was called when it was written, or looked at, last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub id: ObjectId,
    /// Its size then, in bytes.
    pub size: u64,
    /// The object's version then: of two names the one with the higher version counts.
    pub version: u64,
    /// Number of its next blob then: blobs from this one on are newer than the size.
    pub next_blob: u64,
}

fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

fn of_zigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

fn usual_hash(id: &ObjectId) -> u32 {
    ObjectId::new(id.pool, &id.namespace, &id.name).hash
}

/// A name as the header of a run has it, behind another one. `None`: it is too long.
pub(crate) fn encode(name: &Name, before: Option<&Name>) -> Option<Vec<u8>> {
    let Name { id, size, version, next_blob } = name;
    if id.namespace.len() + id.name.len() > LONGEST {
        return None;
    }
    let same_pool = before.is_some_and(|before| (before.id.pool, &before.id.namespace) == (id.pool, &id.namespace));
    let same_snap = before.is_some_and(|before| (before.id.snap, before.id.generation) == (id.snap, id.generation));
    let usual = usual_hash(id) == id.hash;
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let mut out = vec![NAMED | flag(same_pool, SAME_POOL) | flag(same_snap, SAME_SNAP) | flag(usual, USUAL_HASH)];
    if !same_pool {
        put_varint(&mut out, zigzag(id.pool));
        put_bytes(&mut out, &id.namespace);
    }
    if !usual {
        out.extend_from_slice(&id.hash.to_le_bytes());
    }
    if !same_snap {
        put_varint(&mut out, zigzag(id.snap as i64));
        // The highest is a usual one.
        put_varint(&mut out, id.generation.wrapping_add(1));
    }
    let last = before.map_or(&[][..], |before| &before.id.name);
    let shared = last.iter().zip(&id.name).take_while(|(a, b)| a == b).count();
    put_varint(&mut out, shared as u64);
    put_bytes(&mut out, &id.name[shared..]);
    put_varint(&mut out, *size);
    put_varint(&mut out, zigzag(version.wrapping_sub(before.map_or(0, |before| before.version)) as i64));
    put_varint(&mut out, *next_blob);
    Some(out)
}

/// Says that an object has no name here.
pub(crate) const UNNAMED: [u8; 1] = [0];

/// A name behind another one; `Some(None)`: there is none. `None`: the bytes make no sense.
pub(crate) fn decode(from: &mut Reader<'_>, before: Option<&Name>) -> Option<Option<Name>> {
    let flags = from.byte()?;
    if flags == 0 {
        return Some(None);
    }
    let known = NAMED | SAME_POOL | SAME_SNAP | USUAL_HASH;
    if flags & !known > 0 || flags & NAMED == 0 {
        return None;
    }
    let (pool, namespace) = match flags & SAME_POOL > 0 {
        true => (before?.id.pool, before?.id.namespace.clone()),
        false => (of_zigzag(from.varint()?), from.bytes()?.to_vec()),
    };
    let hash = if flags & USUAL_HASH > 0 { None } else { Some(from.u32()?) };
    let (snap, generation) = match flags & SAME_SNAP > 0 {
        true => (before?.id.snap, before?.id.generation),
        false => (of_zigzag(from.varint()?) as u64, from.varint()?.wrapping_sub(1)),
    };
    let shared = before.map_or(&[][..], |before| &before.id.name).get(..from.small()?)?;
    let name = [shared, from.bytes()?].concat();
    if namespace.len() + name.len() > LONGEST {
        return None;
    }
    let size = from.varint().filter(|size| *size <= MAX_OBJECT)?;
    let version = before.map_or(0, |before| before.version).wrapping_add(of_zigzag(from.varint()?) as u64);
    let next_blob = from.varint()?;
    if version.max(next_blob) > MAX_NUMBER {
        return None;
    }
    let mut id = ObjectId { pool, hash: 0, namespace, name, snap, generation };
    id.hash = hash.unwrap_or_else(|| usual_hash(&id));
    Some(Some(Name { id, size, version, next_blob }))
}

/// Names in memory, by the number of the object. Those that came first go first.
#[derive(Default)]
pub(crate) struct Names {
    by_number: HashMap<u64, Arc<Name>>,
    order: VecDeque<u64>,
    bytes: usize,
}

fn bytes_of(name: &Name) -> usize {
    A_NAME + name.id.namespace.len() + name.id.name.len()
}

impl Names {
    pub fn get(&self, number: u64) -> Option<Arc<Name>> {
        self.by_number.get(&number).cloned()
    }

    /// The object is called so, unless a newer name of it is there.
    pub fn set(&mut self, number: u64, name: Name) {
        if self.by_number.get(&number).is_some_and(|there| there.version > name.version) {
            return;
        }
        self.bytes += bytes_of(&name);
        match self.by_number.insert(number, Arc::new(name)) {
            Some(old) => self.bytes -= bytes_of(&old),
            None => self.order.push_back(number),
        }
        while self.order.len() > MOST || self.bytes > MOST_BYTES {
            let Some(first) = self.order.pop_front() else { break };
            if let Some(old) = self.by_number.remove(&first) {
                self.bytes -= bytes_of(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(pool: i64, name: &[u8], version: u64) -> Name {
        Name { id: ObjectId::new(pool, b"ns", name), size: 5000, version, next_blob: version % 100 }
    }

    #[test]
    fn names_of_one_image_take_few_bytes() {
        let piece = |n: u64| name(3, format!("rbd_data.1f3a.{n:016x}").as_bytes(), (7 << 32) + n * 3);
        let (first, second) = (piece(0x1230), piece(0x1234));
        assert!(encode(&second, Some(&first)).unwrap().len() <= 9);
        assert!(encode(&first, None).unwrap().len() <= 60);
    }

    #[test]
    fn the_newest_counts_and_the_oldest_goes() {
        let mut names = Names::default();
        names.set(1, name(1, b"a", 5));
        names.set(1, name(1, b"b", 4));
        assert_eq!(names.get(1).unwrap().id.name, b"a");
        names.set(1, name(1, b"c", 5));
        assert_eq!(names.get(1).unwrap().id.name, b"c");
        let long = vec![b'x'; 1000];
        (2..40_000).for_each(|n| names.set(n, name(1, &long, 1)));
        assert!(names.get(1).is_none() && names.get(39_999).is_some());
        assert!(names.bytes <= MOST_BYTES && names.by_number.len() == names.order.len());
        let all: usize = names.by_number.values().map(|name| bytes_of(name)).sum();
        assert_eq!(all, names.bytes);
    }

    #[test]
    fn one_that_is_too_long_is_left_out() {
        assert!(encode(&name(1, &[1; LONGEST - 2], 1), None).is_some());
        assert!(encode(&name(1, &[1; LONGEST - 1], 1), None).is_none());
    }

    proptest! {
        #[test]
        fn names_come_back(
            all in prop::collection::vec((-2..3i64, any::<bool>(), "[ab]{0,4}", "[ab/]{0,9}", 0..4u64, 0..4u64, 0..MAX_OBJECT, 0..MAX_NUMBER), 1..9),
        ) {
            let (mut bytes, mut names) = (Vec::new(), Vec::<Name>::new());
            for (pool, hashed, namespace, name, snap, generation, size, version) in all {
                let mut id = ObjectId::new(pool, namespace.as_bytes(), name.as_bytes());
                id.hash = if hashed { id.hash } else { 77 };
                (id.snap, id.generation) = (snap.wrapping_sub(2), generation.wrapping_sub(2));
                let name = Name { id, size, version, next_blob: size };
                bytes.extend(encode(&name, names.last()).unwrap());
                names.push(name);
            }
            let (mut from, mut found) = (Reader(&bytes), Vec::<Name>::new());
            while !from.is_empty() {
                found.push(decode(&mut from, found.last()).flatten().unwrap());
            }
            prop_assert_eq!(found, names);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let before = name(1, b"before", 9);
            let _ = decode(&mut Reader(&bytes), Some(&before));
        }
    }
}
