//! Overwrites of erasure-coded objects, in two phases (BlueStore §5.2): before an OSD overwrites its shard it keeps the old bytes in an object of another generation. That
//! goes when all OSDs have the new bytes, or gives the old ones back.

use crate::journal::{Coll, Entry, NEWEST, Name, Op, Place};
use crate::tree::Tree;
use crate::{Recording, given, replay};
use imbrex_bluestore::Compression;
use std::collections::{BTreeMap, BTreeSet};

/// What transactions have of the two phases.
#[derive(Default)]
struct Phases {
    /// Writes to bytes that the same transaction had kept, by how many bytes of it those were.
    overwrites: BTreeMap<u64, usize>,
    /// Objects of older generations that went, in transactions with an overwrite and in those of their own.
    discarded: [usize; 2],
    /// How many transactions of their own that were.
    apart: usize,
    /// Objects of older generations that gave their bytes back first.
    returned: usize,
    /// Those that are there.
    kept: BTreeSet<Place>,
}

fn is_old(name: &Name) -> bool {
    name.generation != NEWEST
}

fn old_objects(tree: &Tree) -> BTreeSet<Place> {
    let all = tree.iter().flat_map(|(coll, (_, objects))| objects.keys().map(|name| (coll.clone(), name.clone())));
    all.filter(|(_, name)| is_old(name)).collect()
}

impl Phases {
    fn of(before: &Tree, entries: &[Entry]) -> Phases {
        let mut phases = Phases { kept: old_objects(before), ..Phases::default() };
        entries.iter().for_each(|entry| phases.see(&entry.ops));
        phases
    }

    fn see(&mut self, ops: &[Op]) {
        // Parts of objects that this transaction has kept, and old objects that have given theirs back.
        let (mut safe, mut returned) = (Vec::new(), BTreeSet::new());
        let overwrites = |phases: &Phases| phases.overwrites.values().sum::<usize>();
        let (before, mut discarded) = (overwrites(self), 0);
        for op in ops {
            match op {
                Op::CloneRange { from, to, at, len, goal } if at == goal => {
                    let to = (from.0.clone(), to.clone());
                    match (is_old(&from.1), is_old(&to.1)) {
                        (false, true) if to.1 == (Name { generation: to.1.generation, ..from.1.clone() }) => {
                            self.kept.insert(to);
                            safe.push((from, *at, *at + *len));
                        }
                        (true, false) if self.kept.contains(from) => _ = returned.insert(from),
                        _ => {}
                    }
                }
                Op::Write(place, at, bytes) => {
                    let end = at + bytes.len() as u64;
                    if safe.iter().any(|(of, from, to)| *of == place && from <= at && end <= *to) {
                        *self.overwrites.entry(end - at).or_default() += 1;
                    }
                }
                // What a client deletes is kept, too.
                Op::Rename { to, .. } if is_old(&to.1) => _ = self.kept.insert(to.clone()),
                Op::Remove(place) if self.kept.remove(place) => match returned.contains(place) {
                    true => self.returned += 1,
                    false => discarded += 1,
                },
                _ => {}
            }
        }
        let alone = overwrites(self) == before;
        self.discarded[usize::from(alone)] += discarded;
        self.apart += usize::from(alone && discarded > 0);
    }
}

#[test]
fn recorded_overwrites() {
    let Some(path) = given("IMBREX_CEPH_OVERWRITES") else { return };
    let (mut returned, mut left) = (0, 0);
    for osd in ["osd.0", "osd.1", "osd.2"] {
        let [overwritten, back] = ["overwrites", "back"].map(|part| Recording::read(&path.join(part).join(osd)));
        let shards: BTreeSet<Option<u8>> = overwritten
            .after
            .keys()
            .filter_map(|coll| if let Coll::Group { shard, .. } = coll { Some(*shard) } else { None })
            .collect();
        assert!(shards.len() > 1 && !shards.contains(&None), "{shards:?}");
        let phases = Phases::of(&overwritten.before, &overwritten.entries);
        let count: usize = phases.overwrites.values().sum();
        let [with, alone] = phases.discarded;
        assert!(count > 100 && with > 0 && alone > 0, "{osd}: {:?}, {:?}", phases.overwrites, phases.discarded);
        assert_eq!(phases.kept, old_objects(&overwritten.after), "{osd}");
        left += phases.kept.len();
        let behind = Phases::of(&back.before, &back.entries);
        returned += behind.returned;
        assert_eq!(behind.kept, old_objects(&back.after), "{osd}");
        for recording in [&overwritten, &back] {
            recording.replay(Compression::Off, 12);
        }
        println!(
            "recording: {osd}: {} transactions; {count} overwrites of bytes that were kept ({:?}); of older generations {with} objects went with another overwrite and {alone} in {} other transactions, {} were left, {} of which gave their bytes back",
            overwritten.entries.len() + back.entries.len(),
            phases.overwrites,
            phases.apart,
            phases.kept.len(),
            behind.returned,
        );
    }
    // Of those that the third OSD never heard of.
    assert!(left > 0 && returned > 0, "{left} left, {returned} gave their bytes back");
}

fn shard(name: &[u8], generation: u64) -> Name {
    let (namespace, key) = (Vec::new(), Vec::new());
    Name { pool: 1, hash: 7, namespace, key, name: name.into(), snap: u64::MAX - 1, generation, shard: Some(2) }
}

fn place(name: &[u8], generation: u64) -> Place {
    (Coll::Group { pool: 1, seed: 1, shard: Some(2) }, shard(name, generation))
}

/// Only who keeps the old bytes first has overwritten in two phases.
#[test]
fn the_phases_of_an_overwrite_are_found() {
    let keep = |at| Op::CloneRange { from: place(b"a", NEWEST), to: shard(b"a", 3), at, len: 4096, goal: at };
    let write = Op::Write(place(b"a", NEWEST), 4096, vec![7; 4096]);
    let entries = |all: &[&[Op]]| -> Vec<Entry> {
        (1..).zip(all).map(|(number, ops)| Entry { number, ops: ops.to_vec() }).collect()
    };
    let of = |all: &[&[Op]]| Phases::of(&Tree::new(), &entries(all));
    let count = |phases: &Phases| phases.overwrites.values().sum::<usize>();
    let whole = of(&[&[keep(4096), write.clone()], &[Op::Remove(place(b"a", 3))]]);
    assert_eq!(whole.overwrites, BTreeMap::from([(4096, 1)]));
    assert_eq!((whole.discarded, whole.apart, whole.returned, whole.kept.len()), ([0, 1], 1, 0, 0));
    for none in [
        &[&[write.clone(), keep(4096)][..]][..],
        &[&[keep(0), write.clone()]],
        &[&[keep(4096)], std::slice::from_ref(&write)],
        &[std::slice::from_ref(&write)],
    ] {
        assert_eq!(count(&of(none)), 0, "{none:?}");
    }
    let next = [
        Op::CloneRange { from: place(b"a", NEWEST), to: shard(b"a", 4), at: 4096, len: 4096, goal: 4096 },
        write.clone(),
        Op::Remove(place(b"a", 3)),
    ];
    let with = of(&[&[keep(4096), write.clone()], &next]);
    assert_eq!((count(&with), with.discarded, with.apart, with.kept.len()), (2, [1, 0], 0, 1));
    let gives = Op::CloneRange { from: place(b"a", 3), to: shard(b"a", NEWEST), at: 4096, len: 4096, goal: 4096 };
    let back = of(&[&[keep(4096), write], &[gives, Op::Remove(place(b"a", 3))]]);
    assert_eq!((back.returned, back.discarded, back.kept.len()), (1, [0, 0], 0));
    // Of nothing that was kept nothing goes.
    assert_eq!(of(&[&[Op::Remove(place(b"a", 3))]]).discarded, [0, 0]);
}

/// An OSD has different shards of a pool's groups. None may have names of another one, and an object has the pool of its collection.
#[test]
fn shards_have_pools_of_their_own() {
    let (mut pools, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for shard in [None, Some(0), Some(1), Some(127)] {
        // What is made beside the pool has its place there.
        for (pool, of) in [(0, 0), (1, 1), (7, 7), (-3, 1)] {
            let c = replay::collection(&Coll::Group { pool: of, seed: 1, shard });
            let id = replay::object(&Name { pool, shard, ..self::shard(b"a", NEWEST) });
            assert_eq!(id.pool, c.pool);
            pools.insert(c.pool);
            assert!(ids.insert(id), "{shard:?} {pool}");
        }
    }
    assert_eq!(pools.len(), 4 * 3);
}
