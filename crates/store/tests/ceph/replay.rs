//! An OSD's transactions, done to the object store.

use crate::journal::{Coll, Name, Op, Pairs};
use crate::support::{Model, Object};
use crate::tree::Tree;
use imbrex_bluestore::Hint;
use imbrex_store::{CollectionId, ObjectId, Store, Transaction};
use std::collections::BTreeMap;

/// Where it stands how far a replay has come: not of the OSD.
pub const PROGRESS: CollectionId = CollectionId { pool: i64::MIN, seed: 0 };
/// The namespace of what an OSD makes beside a pool's objects; no client has one that begins so.
const BESIDE: &[u8] = b"\0beside";

pub fn progress() -> ObjectId {
    ObjectId { hash: 0, ..ObjectId::new(PROGRESS.pool, b"", b"progress") }
}

/// A shard of a pool is a pool of its own: an OSD has collections of one and of the other, and no operation has both.
fn pool_of(pool: i64, shard: Option<u8>) -> i64 {
    assert!((0..1 << 32).contains(&pool), "a pool of number {pool}");
    pool | shard.map_or(0, |shard| i64::from(shard) + 1) << 32
}

pub fn collection(coll: &Coll) -> CollectionId {
    match *coll {
        Coll::Meta => CollectionId { pool: -1, seed: 0 },
        Coll::Group { pool, seed, shard } => CollectionId { pool: pool_of(pool, shard), seed },
    }
}

pub fn object(name: &Name) -> ObjectId {
    let Name { pool, hash, namespace, key, name, snap, generation, shard } = name;
    let (pool, mut namespace) = match *pool {
        beside @ ..-1 => (pool_of(-2 - beside, *shard), [BESIDE, namespace].concat()),
        -1 => (-1, namespace.clone()),
        pool => (pool_of(pool, *shard), namespace.clone()),
    };
    // A name of its own for each place that a client has chosen.
    if !key.is_empty() {
        namespace.extend([&[0], &key[..]].concat());
    }
    ObjectId { pool, hash: *hash, namespace, name: name.clone(), snap: *snap, generation: *generation }
}

fn slices(pairs: &Pairs) -> Vec<(&[u8], &[u8])> {
    pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect()
}

/// Makes transactions of an OSD's operations. It knows by how many bits each collection goes.
#[derive(Clone, Default)]
pub struct Translator {
    bits: BTreeMap<CollectionId, u8>,
}

impl Translator {
    pub fn of(tree: &Tree) -> Translator {
        Translator { bits: tree.iter().map(|(coll, (bits, _))| (collection(coll), *bits)).collect() }
    }

    /// Divides a collection until it goes by so many bits, and its parts as well.
    fn split(&mut self, t: &mut Transaction, c: CollectionId, bits: u8) {
        let Some(now) = self.bits.get(&c).copied().filter(|now| *now < bits) else { return };
        let half = CollectionId { seed: c.seed | 1 << now, ..c };
        t.split_collection(c, half);
        self.bits.extend([(c, now + 1), (half, now + 1)]);
        self.split(t, c, bits);
        self.split(t, half, bits);
    }

    pub fn translate(&mut self, ops: &[Op], t: &mut Transaction) {
        for (n, op) in ops.iter().enumerate() {
            match op {
                // Ceph makes the second half before it divides.
                Op::CreateCollection(coll, bits) => {
                    let split = ops[n..].iter().find_map(|op| match op {
                        Op::Split { from, bits, into } if into == coll => Some((from, bits)),
                        _ => None,
                    });
                    match split {
                        Some((from, bits)) => self.split(t, collection(from), *bits),
                        None => {
                            t.create_collection(collection(coll), *bits);
                            self.bits.insert(collection(coll), *bits);
                        }
                    }
                }
                Op::RemoveCollection(coll) => {
                    t.remove_collection(collection(coll));
                    self.bits.remove(&collection(coll));
                }
                Op::Split { from, bits, .. } => self.split(t, collection(from), *bits),
                Op::Merge { from, into } => {
                    t.merge_collection(collection(from), collection(into));
                    let bits = self.bits.remove(&collection(from)).unwrap_or(1);
                    self.bits.insert(collection(into), bits - 1);
                }
                op => act(op, t),
            }
        }
    }
}

fn act(op: &Op, t: &mut Transaction) {
    let at = |(coll, name): &(Coll, Name)| (collection(coll), object(name));
    match op {
        Op::Touch(place) => {
            let (c, id) = at(place);
            t.touch(c, &id);
        }
        Op::Write(place, offset, bytes) => {
            let (c, id) = at(place);
            t.write(c, &id, *offset, bytes);
        }
        Op::Zero(place, offset, len) => {
            let (c, id) = at(place);
            t.zero(c, &id, *offset, *len);
        }
        Op::Truncate(place, size) => {
            let (c, id) = at(place);
            t.truncate(c, &id, *size);
        }
        Op::Remove(place) => {
            let (c, id) = at(place);
            t.remove_if_there(c, &id);
        }
        Op::Clone(place, to) => {
            let (c, id) = at(place);
            t.clone_object(c, &id, &object(to));
        }
        Op::CloneRange { from, to, at: offset, len, goal } => {
            let (c, id) = at(from);
            t.clone_range(c, &id, &object(to), (*offset, *len, *goal));
        }
        Op::Rename { from, to, must } => {
            let ((c, id), to) = (at(from), object(&to.1));
            if *must {
                t.rename(c, &id, &to)
            } else {
                t.rename_if_there(c, &id, &to)
            };
        }
        Op::Hint { of, object, write, flags } => {
            let (c, id) = at(of);
            let has = |flag: u32| flags & flag != 0;
            let (immutable, short_lived, incompressible) = (has(0x10 | 0x20), has(0x40), has(0x200));
            t.hint(c, &id, Hint { object: *object, write: *write, immutable, short_lived, incompressible });
        }
        op => act_on_pairs(op, t),
    }
}

fn act_on_pairs(op: &Op, t: &mut Transaction) {
    let at = |(coll, name): &(Coll, Name)| (collection(coll), object(name));
    match op {
        Op::SetAttributes(place, pairs) => {
            let (c, id) = at(place);
            t.set_attributes(c, &id, &slices(pairs));
        }
        Op::RemoveAttribute(place, name) => {
            let (c, id) = at(place);
            t.remove_attribute(c, &id, name);
        }
        Op::RemoveAttributes(place) => {
            let (c, id) = at(place);
            t.remove_attributes(c, &id);
        }
        Op::OmapClear(place) => {
            let (c, id) = at(place);
            t.omap_clear(c, &id);
        }
        Op::OmapSet(place, pairs) => {
            let (c, id) = at(place);
            t.omap_set(c, &id, &slices(pairs));
        }
        Op::OmapRemove(place, keys) => {
            let (c, id) = at(place);
            t.omap_remove(c, &id, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
        }
        Op::OmapRemoveRange(place, from, to) => {
            let (c, id) = at(place);
            t.omap_remove_range(c, &id, from, to);
        }
        Op::OmapHeader(place, header) => {
            let (c, id) = at(place);
            t.omap_header(c, &id, header);
        }
        _ => {}
    }
}

/// What the store had before the first transaction, as a transaction.
pub fn beginning(tree: &Tree) -> Transaction {
    let mut t = Transaction::new();
    t.create_collection(PROGRESS, 0).touch(PROGRESS, &progress());
    for (coll, (bits, objects)) in tree {
        let c = collection(coll);
        t.create_collection(c, *bits);
        for (name, Object { bytes, attributes, omap, header }) in objects {
            let (id, pairs) = (object(name), |map: &BTreeMap<Vec<u8>, Vec<u8>>| map.clone().into_iter().collect());
            t.write(c, &id, 0, bytes);
            t.set_attributes(c, &id, &slices(&pairs(attributes))).omap_set(c, &id, &slices(&pairs(omap)));
            header.iter().for_each(|header| _ = t.omap_header(c, &id, header));
        }
    }
    t
}

/// The number of the last entry that is there.
pub fn came_to(store: &Store) -> u64 {
    let found = store.omap_get(PROGRESS, &progress(), &[b"number"]).unwrap();
    found[0].as_ref().map_or(0, |number| u64::from_le_bytes(number[..].try_into().unwrap()))
}

/// What a tree is in the names of our store.
pub fn model(tree: &Tree) -> Model {
    let mut model = Model::default();
    for (coll, (bits, objects)) in tree {
        model.collections.insert(collection(coll), *bits);
        model.objects.extend(objects.iter().map(|(name, content)| (object(name), content.clone().into())));
    }
    model
}
