//! A store that an earlier build has written: this one still opens it, and finds all of it.

use crate::image::{ZoneBytes, drive_of, header_of, packed, unpacked, zones_of};
use crate::support::{Append, appended, config, formatted, options};
use imbrex_device::Drive;
use imbrex_kv::{Batch, Bytewise, Figures, Kv, Make, Order, Snapshot, register_order};
use imbrex_zones::ZoneHeader;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The last key is the first.
pub struct Backwards;

impl Order for Backwards {
    fn name(&self) -> &str {
        "backwards, as in the golden store"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

/// Text, so that the image is small.
fn text(round: u64, n: u64) -> Vec<u8> {
    format!("{n} in round {round}, ").repeat(60).into_bytes()
}

/// A space and what it should have.
struct Room {
    kv: Kv,
    map: Map,
}

impl Room {
    fn put(&mut self, round: u64, n: u64) {
        self.kv.put(&key(n), &text(round, n), false).unwrap();
        self.map.insert(key(n), text(round, n));
    }

    fn merge(&mut self, n: u64, operand: &[u8]) {
        self.kv.merge(&key(n), operand, false).unwrap();
        let value = appended(self.map.get(&key(n)).map(Vec::as_slice), [operand]);
        self.map.insert(key(n), value);
    }

    fn delete_range(&mut self, from: u64, to: u64) {
        let (from, to) = (key(from), key(to));
        self.kv.delete_range(Some(&from), Some(&to), false).unwrap();
        let order: &dyn Order = if from < to { &Bytewise } else { &Backwards };
        self.map.retain(|key, _| order.compare(key, &from).is_lt() || order.compare(key, &to).is_ge());
    }
}

/// What the golden store has.
#[derive(Debug, PartialEq)]
pub struct Has {
    pub unnamed: Map,
    pub users: Map,
    /// At the checkpoint.
    pub monday: Map,
}

fn opened(drive: &Drive) -> Kv {
    register_order(Arc::new(Backwards));
    let store = Kv::open(drive.clone(), options()).unwrap();
    store.merge_operator(Arc::new(Append { combines: true }));
    store
}

/// Writes it: tables in three levels, a merge that is under way, changes that only the log has, and whatever else a store may have.
fn written(drive: &Drive) -> Has {
    let store = opened(drive);
    let users = store.space("users", Backwards.name(), Make::New).unwrap();
    let gone = store.space("gone", Bytewise.name(), Make::New).unwrap();
    let (mut unnamed, mut users) = (Room { kv: store.clone(), map: Map::new() }, Room { kv: users, map: Map::new() });
    for n in 0..100 {
        unnamed.put(1, n * 7 % 100);
        users.put(1, n * 11 % 30);
        gone.put(&key(n % 5), b"gone", false).unwrap();
    }
    store.compact().unwrap();
    let mut ingest = users.kv.ingest().unwrap();
    for n in (50..60).rev() {
        ingest.put(&key(n), &text(2, n)).unwrap();
        users.map.insert(key(n), text(2, n));
    }
    ingest.finish().unwrap();
    store.checkpoint("sunday").unwrap();
    store.checkpoint("monday").unwrap();
    let monday = unnamed.map.clone();
    store.drop_checkpoint("sunday").unwrap();
    store.drop_space("gone").unwrap();
    drop(gone);
    // Merges begin now and then; one is under way at the end.
    for round in 3..20 {
        (0..3).for_each(|n| unnamed.put(round, (n * 31 + round) % 100));
        unnamed.merge(40 + round % 3, b"an operand");
        if round % 8 == 0 {
            unnamed.delete_range(round, round + 5);
            users.delete_range(round, round - 4);
        }
        store.flush().unwrap();
        store.step().unwrap();
    }
    // What comes now is in the log only.
    let mut batch = Batch::new();
    batch.space(&users.kv);
    batch.put(&key(1), b"of a batch");
    batch.space(&unnamed.kv);
    batch.put(&key(1), b"of the same batch");
    batch.delete(&key(2));
    store.write(&batch, true).unwrap();
    users.map.insert(key(1), b"of a batch".to_vec());
    unnamed.map.insert(key(1), b"of the same batch".to_vec());
    unnamed.map.remove(&key(2));
    (60..63).for_each(|n| unnamed.put(20, n));
    store.sync().unwrap();
    users.put(20, 4);
    unnamed.merge(41, b"an operand in the log");
    unnamed.delete_range(90, 95);
    store.sync().unwrap();
    Has { unnamed: unnamed.map, users: users.map, monday }
}

fn map_of(kv: &Kv, at: &Snapshot) -> Map {
    let (mut map, mut iter) = (Map::new(), kv.iter_at(at).unwrap());
    iter.seek_to_first().unwrap();
    while let Some((key, value)) = iter.get() {
        assert_eq!(kv.get_at(at, key).unwrap().as_deref(), Some(value));
        map.insert(key.to_vec(), value.to_vec());
        iter.advance().unwrap();
    }
    map
}

/// The golden store, and what it has.
pub fn golden() -> (Vec<ZoneBytes>, Has) {
    let bytes = std::fs::read(format!("{}/tests/golden/store", env!("CARGO_MANIFEST_DIR"))).unwrap();
    (unpacked(&bytes), written(&formatted(&config())))
}

fn read(store: &Kv) -> Has {
    let users = store.space("users", Backwards.name(), Make::Never).unwrap();
    users.merge_operator(Arc::new(Append { combines: true }));
    assert_eq!(store.spaces().iter().map(|space| &space.0[..]).collect::<Vec<_>>(), ["users"]);
    assert_eq!(store.checkpoints(), ["monday"]);
    let (now, monday) = (store.snapshot(), store.at_checkpoint("monday").unwrap());
    Has { unnamed: map_of(store, &now), users: map_of(&users, &now), monday: map_of(store, &monday) }
}

fn told(drive: &Drive) -> (Has, Figures) {
    let store = opened(drive);
    assert_eq!(store.damage(), [""; 0]);
    assert_eq!(store.check().unwrap(), [""; 0]);
    (read(&store), store.figures())
}

/// Changing a format means changing this image: run with `IMBREX_WRITE_GOLDEN=1`, and raise the version of what has changed once there was a release.
#[test]
fn the_golden_store_is_still_read() {
    let drive = formatted(&config());
    let has = written(&drive);
    let path = format!("{}/tests/golden/store", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("IMBREX_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, packed(&zones_of(drive.device.as_ref()))).unwrap();
    }
    let golden = unpacked(&std::fs::read(&path).unwrap());
    let drive = drive_of(&config(), &golden).1;
    assert!(zones_of(drive.device.as_ref()) == golden, "it is on the drive as it was");
    let (found, figures) = told(&drive);
    assert!(found == has, "the golden store has other pairs than were put");
    let levels = figures.levels.iter().filter(|level| level.0 > 0).count();
    assert!(levels >= 3 && figures.ranges > 0 && figures.log > 0 && figures.merges > 0, "{figures:?}");
    // It goes on, and all merges end in the same.
    let store = opened(&drive);
    store.compact().unwrap();
    assert!(read(&store) == has);
    assert_eq!(store.check().unwrap(), [""; 0]);
    drop(store);
    assert!(told(&drive).0 == has);
    // What this build writes in headers is what stands there.
    let headers: Vec<(ZoneHeader, &[u8])> =
        golden.iter().filter_map(|zone| Some((header_of(zone)?, &zone.bytes[..512]))).collect();
    for (header, bytes) in &headers {
        let mut again = [0; 512];
        header.encode_into(&mut again);
        assert!(again == *bytes, "{header:?} is written in another way");
    }
    let kinds: BTreeSet<u8> = headers.iter().map(|(header, _)| header.kind).collect();
    assert!(kinds.len() == 3, "metadata, log and tables: {kinds:?}");
}
