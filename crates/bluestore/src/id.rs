//! Names of objects and collections, and how they stand in keys.
//!
//! An object's key begins with its pool and the bits of its hash in reverse, the lowest first. So a collection, whose objects agree in the lowest bits of their
//! hashes, is one range of keys, and so is each of its halves (BlueStore §4.1). To divide a collection changes no object.

use crate::codec::{Reader, put_escaped};
use imbrex_device::{Code, Error, Result};
use std::cmp::Ordering;
use std::fmt;

/// Longest name and longest namespace of an object, in bytes.
pub const MAX_NAME: usize = 4096;

/// What an object is called. Any bytes will do. Names are in the order of [lists](crate::BlueStore::list).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    /// Which pool.
    pub pool: i64,
    /// Decides in which collection of the pool it is, and where.
    pub hash: u32,
    /// Names of one namespace stand together.
    pub namespace: Vec<u8>,
    /// Its name there.
    pub name: Vec<u8>,
    /// Of which snapshot; the caller's number.
    pub snap: u64,
    /// Which generation; the caller's number.
    pub generation: u64,
}

/// What a collection is called: a part of a pool. Its objects' hashes have the same lowest bits as `seed`; how many, [a record](crate::Transaction::create_collection)
/// says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectionId {
    /// Which pool.
    pub pool: i64,
    /// The lowest bits of its objects' hashes.
    pub seed: u32,
}

impl Ord for ObjectId {
    fn cmp(&self, other: &ObjectId) -> Ordering {
        let place = |id: &ObjectId| (id.pool, id.hash.reverse_bits());
        let version = |id: &ObjectId| (id.snap, id.generation);
        let name = (&self.namespace, &self.name).cmp(&(&other.namespace, &other.name));
        place(self).cmp(&place(other)).then(name).then_with(|| version(self).cmp(&version(other)))
    }
}

impl PartialOrd for ObjectId {
    fn partial_cmp(&self, other: &ObjectId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ObjectId {
    /// An object of this pool and name, with a hash of both namespace and name.
    pub fn new(pool: i64, namespace: &[u8], name: &[u8]) -> ObjectId {
        let hash = crc32c::crc32c_append(crc32c::crc32c(namespace), name);
        ObjectId { pool, hash, namespace: namespace.to_vec(), name: name.to_vec(), snap: 0, generation: 0 }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let long = [(&self.name, "name"), (&self.namespace, "namespace")].into_iter().find(|(n, _)| n.len() > MAX_NAME);
        long.map_or(Ok(()), |(bytes, what)| {
            let len = bytes.len();
            let sentence = format!("a {what} of {len} bytes is too long; it may have {MAX_NAME}");
            Err(Error::refused(Code::NameTooLong, "", sentence))
        })
    }

    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(40 + self.namespace.len() + self.name.len());
        put_pool(&mut key, self.pool);
        key.extend_from_slice(&self.hash.reverse_bits().to_be_bytes());
        put_escaped(&mut key, &self.namespace);
        put_escaped(&mut key, &self.name);
        key.extend_from_slice(&self.snap.to_be_bytes());
        key.extend_from_slice(&self.generation.to_be_bytes());
        key
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<ObjectId> {
        let mut key = Reader(key);
        let pool = get_pool(&mut key)?;
        let hash = key.big_u32()?.reverse_bits();
        let (namespace, name) = (key.escaped()?, key.escaped()?);
        let (snap, generation) = (key.big_u64()?, key.big_u64()?);
        key.is_empty().then_some(ObjectId { pool, hash, namespace, name, snap, generation })
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name[..self.name.len().min(64)].escape_ascii();
        write!(f, "object {}:{:08x}:{name}", self.pool, self.hash)?;
        if (self.snap, self.generation) != (0, 0) {
            write!(f, ":{}:{}", self.snap, self.generation)?;
        }
        Ok(())
    }
}

impl CollectionId {
    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(12);
        put_pool(&mut key, self.pool);
        key.extend_from_slice(&self.seed.to_be_bytes());
        key
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<CollectionId> {
        let mut key = Reader(key);
        let id = CollectionId { pool: get_pool(&mut key)?, seed: key.big_u32()? };
        key.is_empty().then_some(id)
    }

    /// Whether the object is in it, if it goes by so many bits.
    pub(crate) fn has(&self, bits: u8, object: &ObjectId) -> bool {
        self.pool == object.pool && (self.seed ^ object.hash) & mask(bits) == 0
    }

    /// Keys of its objects: from the first on, and before the second, if there is one.
    pub(crate) fn range(&self, bits: u8) -> (Vec<u8>, Option<Vec<u8>>) {
        let first = (self.seed & mask(bits)).reverse_bits();
        let end = u64::from(first) + (1u64 << (32 - u32::from(bits)));
        let key = |pool: i64, hash: u32| {
            let mut key = Vec::with_capacity(12);
            put_pool(&mut key, pool);
            key.extend_from_slice(&hash.to_be_bytes());
            key
        };
        let end = match u32::try_from(end) {
            Ok(end) => Some(key(self.pool, end)),
            Err(_) => self.pool.checked_add(1).map(|next| key(next, 0)),
        };
        (key(self.pool, first), end)
    }
}

impl fmt::Display for CollectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "collection {}.{:x}", self.pool, self.seed)
    }
}

/// The bits that a collection's record says.
pub(crate) fn bits_of(record: &[u8]) -> Option<u8> {
    match record {
        [bits @ 0..=32] => Some(*bits),
        _ => None,
    }
}

/// The lowest bits.
pub(crate) fn mask(bits: u8) -> u32 {
    1u32.checked_shl(bits.into()).map_or(u32::MAX, |bit| bit - 1)
}

/// Pools below zero come first.
fn put_pool(key: &mut Vec<u8>, pool: i64) {
    key.extend_from_slice(&(pool ^ i64::MIN).to_be_bytes());
}

fn get_pool(key: &mut Reader<'_>) -> Option<i64> {
    Some(key.big_u64()? as i64 ^ i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(pool: i64, hash: u32, name: &[u8]) -> ObjectId {
        ObjectId { hash, snap: 7, generation: u64::MAX, ..ObjectId::new(pool, b"n\0s", name) }
    }

    #[test]
    fn names_of_every_byte_come_back() {
        let every: Vec<u8> = (0..=255).collect();
        for name in [&b""[..], b"\0", &every, &[0; MAX_NAME]] {
            let id = object(-3, 0xdead_beef, name);
            assert_eq!(ObjectId::of_key(&id.key()), Some(id));
        }
        assert!(object(0, 0, &[1; MAX_NAME + 1]).check().is_err());
        assert_eq!(ObjectId::of_key(b"short"), None);
    }

    #[test]
    fn names_are_in_the_order_of_their_keys() {
        let names = [&b""[..], b"\0", b"\0\0", b"\x01", b"a", b"a\0", b"a\0b", b"a\x01", b"ab", b"b", b"\xff"];
        let (mut all, base) = (Vec::new(), object(1, 0, b""));
        for (pool, hash) in [(-3, 2), (i64::MIN, 0), (0, 1), (0, 2), (0, 0x8000_0000), (7, u32::MAX)] {
            for namespace in [&b""[..], b"n", b"n\0"] {
                for name in names {
                    let id =
                        ObjectId { pool, hash, namespace: namespace.to_vec(), name: name.to_vec(), ..base.clone() };
                    all.extend([
                        id.clone(),
                        ObjectId { snap: 8, generation: 0, ..id.clone() },
                        ObjectId { generation: 3, ..id },
                    ]);
                }
            }
        }
        let mut by_key = all.clone();
        by_key.sort_by_key(ObjectId::key);
        all.sort();
        assert_eq!(all, by_key);
    }

    #[test]
    fn a_collection_and_its_halves_are_ranges_of_keys() {
        for bits in 0..=32u8 {
            for seed in [0, 0b1011, u32::MAX] {
                let seed = seed & mask(bits);
                let id = CollectionId { pool: 5, seed };
                let (from, to) = id.range(bits);
                for hash in [0, 1, 0b1011, 0x8000_0000, u32::MAX, seed, seed | 0x4000_0000] {
                    for pool in [i64::MIN, 4, 5, 6] {
                        let object = object(pool, hash, b"a");
                        let key = object.key();
                        let in_range = key >= from && to.as_ref().is_none_or(|to| key < *to);
                        assert_eq!(in_range, id.has(bits, &object), "{bits} {seed:x} {hash:x} {pool}");
                    }
                }
            }
        }
        assert_eq!(CollectionId { pool: i64::MAX, seed: 0 }.range(0).1, None);
    }
}
