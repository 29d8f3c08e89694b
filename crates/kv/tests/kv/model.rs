//! Against a sorted map, with snapshots and iterators that stay while the store goes on.

use crate::support::{Append, appended, configs, formatted, mixed, options};
use imbrex_emulator::Config;
use imbrex_kv::policy::ALL;
use imbrex_kv::table::{Compression, TableOptions};
use imbrex_kv::{Batch, Ingest, Iter, Kv, Options, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What becomes of a key.
#[derive(Clone, Debug)]
enum To {
    Value(u16),
    Gone,
    /// An operand of so many bytes is appended.
    Appended(u8),
}

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<(u8, To)>),
    /// Begins to ingest a value of so many bytes for each of these keys, or ends the ingest that is under way.
    Ingest(BTreeMap<u8, u16>),
    /// Deletes a range, from this key on and before that one, between two puts in it.
    DeleteRange(Option<u8>, Option<u8>),
    Snapshot,
    /// A snapshot that outlives restarts.
    Checkpoint,
    Release(u8),
    /// Reads a key as it was at a snapshot.
    Get(u8, u8),
    /// Opens an iterator at a snapshot.
    Iterate(u8),
    /// Moves an iterator: so many keys on, or back, from this key on.
    Move(u8, u8, i8),
    Flush,
    Compact,
    Step,
    Restart,
    /// Some work is done without the operator.
    Ignorant,
}

fn op() -> impl Strategy<Value = Op> {
    let to = prop_oneof![
        6 => (0..2500u16).prop_map(To::Value),
        2 => Just(To::Gone),
        3 => (0..200u8).prop_map(To::Appended),
    ];
    let change = (prop_oneof![2 => any::<u8>(), 1 => 0..8u8], to);
    prop_oneof![
        12 => prop::collection::vec(change, 1..8).prop_map(Op::Write),
        2 => prop::collection::btree_map(any::<u8>(), 0..2500u16, 1..30).prop_map(Op::Ingest),
        1 => any::<(Option<u8>, Option<u8>)>().prop_map(|(from, to)| Op::DeleteRange(from, to)),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Checkpoint),
        1 => any::<u8>().prop_map(Op::Release),
        4 => any::<(u8, u8)>().prop_map(|(at, key)| Op::Get(at, key)),
        1 => any::<u8>().prop_map(Op::Iterate),
        6 => any::<(u8, u8, i8)>().prop_map(|(iter, key, steps)| Op::Move(iter, key, steps)),
        1 => Just(Op::Flush),
        1 => Just(Op::Compact),
        2 => Just(Op::Step),
        1 => Just(Op::Restart),
        1 => Just(Op::Ignorant),
    ]
}

fn key(n: u8) -> Vec<u8> {
    // Some are prefixes of others.
    vec![b'k'; usize::from(n % 5) + 1].into_iter().chain([n]).collect()
}

/// A moment, and what was there.
struct Moment {
    at: Snapshot,
    map: Map,
    /// The name of its checkpoint.
    name: Option<String>,
}

/// An ingest, what it was given, and how much of that is in the map.
struct Ingesting {
    ingest: Ingest,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    stored: usize,
}

impl Ingesting {
    fn tell(&mut self, map: &mut Map) {
        let stored = self.ingest.stored() as usize;
        map.extend(self.pairs[self.stored..stored].iter().cloned());
        self.stored = stored;
    }
}

fn pick<T>(all: &mut [T], n: u8) -> Option<&mut T> {
    let len = all.len();
    all.get_mut(usize::from(n) % len.max(1))
}

fn walk(iter: &mut Iter, map: &Map, from: u8, steps: i8) {
    let from = key(from);
    let pair = |(k, v): (&Vec<u8>, &Vec<u8>)| (k.clone(), v.clone());
    let at = |iter: &Iter| iter.get().map(|(k, v)| (k.to_vec(), v.to_vec()));
    if steps >= 0 {
        iter.seek(&from).unwrap();
    } else {
        iter.seek_for_prev(&from).unwrap();
    }
    let mut here = match steps >= 0 {
        true => map.range(from..).next().map(pair),
        false => map.range(..=from).next_back().map(pair),
    };
    assert_eq!(at(iter), here);
    for n in 0..steps.unsigned_abs() {
        let Some((key, _)) = here else { return };
        // It turns round now and then.
        let on = (steps >= 0) != (n % 7 == 6);
        here = match on {
            true => map.range(key.clone()..).nth(1).map(pair),
            false => map.range(..key).next_back().map(pair),
        };
        if on {
            iter.advance().unwrap()
        } else {
            iter.retreat().unwrap()
        }
        assert_eq!(at(iter), here);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_sorted_map(drive in 0..3usize, policy in 0..8usize, compression in 0..3usize, combines: bool, ops in prop::collection::vec(op(), 1..120)) {
        // A drive that is not much larger than what is put makes merges.
        let policy = ALL.get(policy).map(|(name, _)| *name);
        let config = Config { capacity: if policy.is_none() { 25 * (128 << 10) } else { 6 << 20 }, ..configs()[drive].clone() };
        let drive = formatted(&config);
        let compression = [Compression::Off, Compression::Lz4, Compression::Zstd][compression];
        let table = TableOptions { compression, ..options().table };
        let options = || Options { policy: policy.map(str::to_owned), table, ..options() };
        let open = || {
            let store = Kv::open(drive.clone(), options()).unwrap();
            store.merge_operator(Arc::new(Append { combines }));
            store
        };
        let mut store = open();
        let (mut map, mut number) = (Map::new(), 0);
        let mut moments: Vec<Moment> = Vec::new();
        let mut iters: Vec<(Iter, Map)> = Vec::new();
        let mut under_way: Option<Ingesting> = None;
        for op in ops {
            match op {
                Op::Write(changes) => {
                    let mut batch = Batch::new();
                    for (k, to) in changes {
                        number += 1;
                        match to {
                            To::Value(len) => {
                                batch.put(&key(k), &mixed(number, len.into()));
                                map.insert(key(k), mixed(number, len.into()));
                            }
                            To::Gone => {
                                batch.delete(&key(k));
                                map.remove(&key(k));
                            }
                            To::Appended(len) => {
                                let operand = mixed(number, len.into());
                                batch.merge(&key(k), &operand);
                                map.insert(key(k), appended(map.get(&key(k)).map(Vec::as_slice), [&operand[..]]));
                            }
                        }
                    }
                    store.write(&batch, number % 11 == 0).unwrap();
                }
                Op::Ingest(keys) => match under_way.take() {
                    Some(mut ingesting) => {
                        ingesting.ingest.finish().unwrap();
                        ingesting.tell(&mut map);
                        prop_assert_eq!(ingesting.stored, ingesting.pairs.len());
                    }
                    None => {
                        number += 1;
                        let mut pairs: Vec<_> = keys.iter().map(|(k, len)| (key(*k), mixed(number << 8 | u64::from(*k), (*len).into()))).collect();
                        pairs.sort();
                        let mut ingesting = Ingesting { ingest: store.ingest().unwrap(), pairs, stored: 0 };
                        for at in 0..ingesting.pairs.len() {
                            let (key, value) = &ingesting.pairs[at];
                            ingesting.ingest.put(key, value).unwrap();
                            ingesting.tell(&mut map);
                        }
                        under_way = Some(ingesting);
                    }
                },
                Op::DeleteRange(from, to) => {
                    let (mut from, mut to) = (from.map(key), to.map(key));
                    if from > to && to.is_some() {
                        (from, to) = (to, from);
                    }
                    number += 2;
                    let inside = from.clone().unwrap_or_default();
                    let mut batch = Batch::new();
                    batch.put(&inside, b"before");
                    batch.delete_range(from.as_deref(), to.as_deref());
                    batch.put(&key(7), &mixed(number, 40));
                    store.write(&batch, number % 11 == 0).unwrap();
                    map.insert(inside, b"before".to_vec());
                    map.retain(|k, _| from.as_ref().is_some_and(|from| k < from) || to.as_ref().is_some_and(|to| k >= to));
                    map.insert(key(7), mixed(number, 40));
                }
                Op::Snapshot if moments.len() < 4 => moments.push(Moment { at: store.snapshot(), map: map.clone(), name: None }),
                Op::Checkpoint if moments.len() < 4 => {
                    number += 1;
                    let name = format!("c{number}");
                    store.checkpoint(&name).unwrap();
                    moments.push(Moment { at: store.at_checkpoint(&name).unwrap(), map: map.clone(), name: Some(name) });
                }
                Op::Release(n) if !moments.is_empty() => {
                    let moment = moments.remove(usize::from(n) % moments.len());
                    moment.name.iter().for_each(|name| store.drop_checkpoint(name).unwrap());
                }
                Op::Get(n, k) => {
                    prop_assert_eq!(store.get(&key(k)).unwrap(), map.get(&key(k)).cloned());
                    if let Some(moment) = pick(&mut moments, n) {
                        prop_assert_eq!(store.get_at(&moment.at, &key(k)).unwrap(), moment.map.get(&key(k)).cloned());
                    }
                }
                Op::Iterate(n) if iters.len() < 3 => match pick(&mut moments, n) {
                    Some(moment) => iters.push((store.iter_at(&moment.at).unwrap(), moment.map.clone())),
                    None => iters.push((store.iter().unwrap(), map.clone())),
                },
                Op::Move(n, k, steps) => {
                    if let Some((iter, map)) = pick(&mut iters, n) {
                        walk(iter, map, k, steps);
                    }
                    walk(&mut store.iter().unwrap(), &map, k, steps / 8);
                    walk(&mut store.iter_far().unwrap(), &map, k, steps / 4);
                }
                Op::Flush => store.flush().unwrap(),
                Op::Compact => store.compact().unwrap(),
                Op::Step => drop(store.step().unwrap()),
                Op::Restart | Op::Ignorant => {
                    (iters, under_way) = Default::default();
                    let kept: Vec<_> = moments.drain(..).filter_map(|moment| Some((moment.name?, moment.map))).collect();
                    drop(store);
                    if matches!(op, Op::Ignorant) {
                        let store = Kv::open(drive.clone(), options()).unwrap();
                        store.flush().unwrap();
                        store.compact().unwrap();
                        store.step().unwrap();
                    }
                    store = open();
                    prop_assert_eq!(store.checkpoints().len(), kept.len());
                    for (name, map) in kept {
                        moments.push(Moment { at: store.at_checkpoint(&name).unwrap(), map, name: Some(name) });
                    }
                }
                Op::Snapshot | Op::Checkpoint | Op::Release(_) | Op::Iterate(_) => {}
            }
        }
        prop_assert_eq!(store.check().unwrap(), Vec::<String>::new());
        if policy.is_none_or(|policy| policy == "ring") {
            // Nobody reads any more, so nothing is left of what was deleted.
            store.checkpoints().iter().for_each(|name| store.drop_checkpoint(name).unwrap());
            (moments, iters) = Default::default();
            store.compact().unwrap();
            prop_assert_eq!(store.figures().ranges, 0);
            drop((moments, iters));
        }
        walk(&mut store.iter().unwrap(), &map, 0, i8::MAX);
        walk(&mut store.iter_far().unwrap(), &map, 0, i8::MAX);
    }
}
