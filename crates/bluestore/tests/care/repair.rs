//! Repair: each thing that a check looks at is broken behind the store's back. What can be derived is mended, what is gone is told, and a crash at any write of a repair does no harm.

use crate::support::{bands, content, format, make_bands};
use crate::{ALL, BLOCK, does, id, large, plain};
use imbrex_bluestore::{BlueStore, Change, Family, KeyValue, Layout, Mend, NAME, Options, Pair, Transaction};
use imbrex_device::{Code, Drive, Error, Fault, Result};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Map = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

/// Pairs in memory; after so many writes the power is gone.
#[derive(Default)]
struct Mem {
    map: Mutex<Map>,
    left: Mutex<Option<usize>>,
}

impl KeyValue for Mem {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map.lock().unwrap().get(&(family, key.to_vec())).cloned())
    }
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        let map = self.map.lock().unwrap();
        let all = map.range((family, from.to_vec())..);
        let all = all.take_while(|((of, key), _)| *of == family && to.is_none_or(|to| &key[..] < to));
        Ok(all.take(most).map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }
    fn write(&self, changes: &[Change]) -> Result<()> {
        if let Some(left) = self.left.lock().unwrap().as_mut() {
            *left = left.checked_sub(1).ok_or_else(|| {
                Error::new(&"metadata".into(), Fault::Io(Arc::new(std::io::Error::other("no power"))))
            })?;
        }
        let mut map = self.map.lock().unwrap();
        for change in changes.iter().cloned() {
            match change {
                Change::Put(of, key, value) => drop(map.insert((of, key), value)),
                Change::Delete(of, key) => drop(map.remove(&(of, key))),
                Change::DeleteRange(of, a, b) => map.retain(|(g, key), _| *g != of || *key < a || *key >= b),
            }
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    /// So that changes of counts wait.
    fn get_would_read(&self, family: Family, _: &[u8]) -> bool {
        family == Family::Blobs
            && self.map.lock().unwrap().keys().any(|(of, key)| *of == Family::Super && key == b"wait")
    }
}

struct Opened {
    store: BlueStore,
    _volume: Volume,
}

fn open(emulator: &Emulator, kv: &Arc<Mem>, repair: bool) -> Result<Opened> {
    let (drive, options) = on(emulator);
    let volume = Volume::open(
        drive,
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() },
    )?;
    let store = BlueStore::open(&volume.tenant(NAME)?, kv.clone(), Options { repair, ..options })?;
    Ok(Opened { store, _volume: volume })
}

/// The drive, and how stores are opened there: in place where it is a plain disk.
fn on(emulator: &Emulator) -> (Drive, Options) {
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    match emulator.config().conventional == emulator.config().zones() {
        true => (bands(&drive).unwrap(), Options { layout: Layout::InPlace, ..plain() }),
        false => (drive, plain()),
    }
}

fn kv(map: &Map) -> Arc<Mem> {
    Arc::new(Mem { map: Mutex::new(map.clone()), left: Mutex::default() })
}

const NAMES: [&str; 4] = ["long", "clone", "short", "waits"];

/// Bytes of the objects.
fn bytes(name: &str) -> Vec<u8> {
    match name {
        "long" | "clone" => content(100 * BLOCK, 1),
        "short" => content(5 * BLOCK, 2),
        _ => content(2 * BLOCK, 3),
    }
}

/// A drive, and the metadata of its store.
fn built() -> (Emulator, Map) {
    built_on(&large())
}

/// The same on a plain disk.
fn built_in_place() -> (Emulator, Map) {
    built_on(&Config { conventional: large().zones(), ..large() })
}

fn built_on(config: &Config) -> (Emulator, Map) {
    let emulator = Emulator::memory(config).unwrap();
    if config.conventional == config.zones() {
        make_bands(&Drive { device: Arc::new(emulator.clone()), survivor: None }).unwrap();
    }
    format(&on(&emulator).0).unwrap();
    let kv = kv(&Map::new());
    let Opened { store, .. } = open(&emulator, &kv, false).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0).write(ALL, &id("long"), 0, &bytes("long")));
    does(&store, |t| _ = t.write(ALL, &id("short"), 0, &bytes("short")).omap_set(ALL, &id("short"), &[(b"k", b"v")]));
    does(&store, |t| _ = t.clone_object(ALL, &id("long"), &id("clone")));
    store.pack().unwrap();
    does(&store, |t| _ = t.write(ALL, &id("waits"), 0, &bytes("waits")));
    assert!(store.scrub_step(u64::MAX, 1).unwrap());
    store.sync().unwrap();
    let map = kv.map.lock().unwrap().clone();
    (emulator, map)
}

/// Keys of a family.
fn keys(map: &Map, family: Family) -> Vec<(Family, Vec<u8>)> {
    map.keys().filter(|(of, _)| *of == family).cloned().collect()
}

/// Changes the nth value of a family.
fn value(map: &mut Map, family: Family, n: usize) -> &mut Vec<u8> {
    let key = keys(map, family)[n].clone();
    map.get_mut(&key).unwrap()
}

type Harm = (&'static str, fn(&mut Map), &'static [&'static str]);

/// What is done to the metadata, and which objects lose bytes.
fn harms() -> Vec<Harm> {
    vec![
        // A record begins with offset, grain, blocks, grains, count. Both blobs of `long` are shared.
        ("a count is too high", |map| value(map, Family::Blobs, 0)[4] = 9, &[]),
        ("a count is too low", |map| value(map, Family::Blobs, 0)[4] = 1, &[]),
        (
            "all counts are too high",
            |map| {
                (0..keys(map, Family::Blobs).len()).for_each(|n| value(map, Family::Blobs, n)[4] += 1);
            },
            &[],
        ),
        ("a blob is gone", |map| drop(map.remove(&keys(map, Family::Blobs)[1])), &["clone", "long"]),
        ("blobs are gone", |map| map.retain(|(of, _), _| *of != Family::Blobs), &NAMES),
        (
            "nobody names a blob",
            |map| {
                let record = value(map, Family::Blobs, 0).clone();
                map.insert((Family::Blobs, vec![1, 1, 1, 99]), record);
            },
            &[],
        ),
        (
            "blocks are dead that extents name",
            |map| {
                // 40 blocks of 64 live, as they were: those with their checksums, 16 bytes each with what is before them.
                let record = value(map, Family::Blobs, 0);
                let place = record[5..record.len() - 64 * 4].to_vec();
                let sums = record[record.len() - 64 * 4..][..40 * 4].to_vec();
                *record = [&record[..3], &[40, 2], &place, &sums, &[24, 0]].concat();
            },
            &["clone", "long"],
        ),
        (
            "an object is gone",
            |map| {
                let short =
                    keys(map, Family::Onodes).into_iter().find(|(_, key)| key.windows(5).any(|at| at == b"short"));
                map.remove(&short.unwrap());
            },
            &[],
        ),
        ("a zone's record is gone", |map| drop(map.remove(&keys(map, Family::Zones)[0])), &[]),
        ("all zones' records are gone", |map| map.retain(|(of, _), _| *of != Family::Zones), &[]),
        ("a zone's record makes no sense", |map| value(map, Family::Zones, 0).truncate(3), &[]),
        ("a zone has fewer blocks", |map| value(map, Family::Zones, 0)[8] = 1, &[]),
        ("a zone has more blocks", |map| value(map, Family::Zones, 0)[8] += 1, &[]),
        ("a zone has another life", |map| value(map, Family::Zones, 0)[0] ^= 1, &[]),
        ("the sums are gone", |map| map.retain(|(of, _), _| *of != Family::Statistics), &[]),
        ("the sums make no sense", |map| value(map, Family::Statistics, 0).push(1), &[]),
        ("the sums are wrong", |map| value(map, Family::Statistics, 0)[0] += 1, &[]),
        (
            "bytes are deferred of no blob",
            |map| drop(map.insert((Family::Deferred, vec![1, 77, 0]), vec![1; 4096])),
            &[],
        ),
        (
            "bytes are deferred of a blob with a place",
            |map| {
                let key = keys(map, Family::Blobs)[0].1.clone();
                map.insert((Family::Deferred, key), vec![1; 64 * 4096]);
            },
            &[],
        ),
        ("the key of deferred bytes makes no sense", |map| drop(map.insert((Family::Deferred, vec![9]), vec![1])), &[]),
        ("deferred bytes are gone", |map| map.retain(|(of, _), _| *of != Family::Deferred), &["waits"]),
        (
            "extents are nobody's",
            |map| {
                let record = value(map, Family::Extents, 0).clone();
                map.insert((Family::Extents, vec![1, 77, 1, 1]), record);
            },
            &[],
        ),
        ("pairs are nobody's", |map| drop(map.insert((Family::Omap, vec![1, 77, 1, 5]), vec![1])), &[]),
        (
            "changes of counts fit nothing",
            |map| drop(map.insert((Family::Counts, vec![1, 77, 0, 1, 5]), vec![0, 1])),
            &[],
        ),
        ("changes of counts make no sense", |map| drop(map.insert((Family::Counts, vec![0]), vec![0, 1])), &[]),
        ("the next number is gone", |map| drop(map.remove(&(Family::Super, b"next".to_vec()))), &[]),
        (
            "the record of scrubbing makes no sense",
            |map| map.get_mut(&(Family::Super, b"scrub".to_vec())).unwrap()[0] ^= 1,
            &[],
        ),
    ]
}

/// What is done to the freelist of a store in place. It costs nobody anything.
fn harms_in_place() -> Vec<Harm> {
    vec![
        ("records of units are gone", |map| map.retain(|(of, _), _| *of != Family::Units), &[]),
        ("a record of units is gone", |map| drop(map.remove(&keys(map, Family::Units)[0])), &[]),
        ("a unit is free that is taken", |map| value(map, Family::Units, 0)[0] &= 0xfd, &[]),
        ("a unit is taken that is free", |map| *value(map, Family::Units, 0).last_mut().unwrap() |= 0x80, &[]),
        ("a record of units makes no sense", |map| value(map, Family::Units, 0).truncate(15), &[]),
        ("a record of no units", |map| value(map, Family::Units, 0).fill(0), &[]),
        ("units of a zone of others", |map| drop(map.insert((Family::Units, vec![0; 8]), vec![1; 16])), &[]),
        (
            "units behind a zone",
            |map| {
                let zone = keys(map, Family::Units)[0].1[..4].to_vec();
                map.insert((Family::Units, [zone, vec![9; 4]].concat()), vec![1; 16]);
            },
            &[],
        ),
        ("the key of units makes no sense", |map| drop(map.insert((Family::Units, vec![3]), vec![1; 16])), &[]),
    ]
}

/// All but what is lost is there, and a check says what that is and nothing else.
fn is_mended(store: &BlueStore, name: &str, lost: &[&str]) {
    let wrong = store.check(true).unwrap().wrong;
    for sentence in &wrong {
        // The zone is not free: what is lost is perhaps still there.
        let is_kept = name == "blobs are gone" && sentence.starts_with("0 blocks live in zone");
        assert!(sentence.contains("are lost, which") || is_kept, "{name}: {wrong:#?}");
    }
    for object in NAMES {
        let (is_lost, id) = (lost.contains(&object), id(object));
        let said = wrong.iter().any(|sentence| sentence.contains(&id.to_string()));
        assert_eq!(said, is_lost, "{name}: {object}, {wrong:#?}");
        if name == "an object is gone" && object == "short" {
            assert!(store.stat(ALL, &id).is_err());
            continue;
        }
        let all = bytes(object);
        assert_eq!(store.stat(ALL, &id).unwrap().size, all.len() as u64);
        let mut errors = 0;
        for (n, block) in all.chunks(BLOCK as usize).enumerate() {
            match store.read(ALL, &id, n as u64 * BLOCK, BLOCK) {
                Ok(read) => assert!(read == block, "{name}: {object}, block {n}"),
                Err(error) => {
                    assert_eq!(error.code(), Code::Corruption, "{name}: {error}");
                    errors += 1;
                }
            }
        }
        assert_eq!(errors > 0, is_lost, "{name}: {errors} blocks of {object} cannot be read");
    }
    if name != "an object is gone" {
        assert_eq!(store.omap_get(ALL, &id("short"), &[b"k"]).unwrap(), [Some(b"v".to_vec())]);
    }
}

/// What is lost can be overwritten and deleted. New objects share no number with others.
fn goes_on(store: &BlueStore, name: &str) {
    does(store, |t| _ = t.write(ALL, &id("new"), 0, &content(70_000, 5)).omap_set(ALL, &id("new"), &[(b"k", b"n")]));
    for object in NAMES.into_iter().filter(|object| store.stat(ALL, &id(object)).is_ok()) {
        does(store, |t| _ = t.write(ALL, &id(object), 0, &bytes(object)));
        assert!(store.read(ALL, &id(object), 0, u64::MAX).unwrap() == bytes(object), "{name}: {object}");
    }
    store.pack().unwrap();
    store.clean(8 << 20).unwrap();
    let is_whole = || {
        let mut wrong = store.check(true).unwrap().wrong;
        wrong.retain(|sentence| name != "blobs are gone" || !sentence.starts_with("0 blocks live in zone"));
        assert_eq!(wrong, Vec::<String>::new(), "{name}");
    };
    is_whole();
    for object in NAMES.into_iter().filter(|object| store.stat(ALL, &id(object)).is_ok()) {
        does(store, |t| _ = t.remove(ALL, &id(object)));
    }
    store.pack().unwrap();
    assert!(store.read(ALL, &id("new"), 0, u64::MAX).unwrap() == content(70_000, 5));
    is_whole();
}

#[test]
fn what_can_be_derived_is_mended_and_what_is_lost_is_told() {
    is_derived_and_told(&built(), harms());
}

#[test]
fn so_it_is_in_place() {
    let built = built_in_place();
    assert!(!keys(&built.1, Family::Units).is_empty());
    is_derived_and_told(&built, harms().into_iter().chain(harms_in_place()).collect());
}

/// A check finds what is wrong with the freelist. Where some of it would be taken for free no opening goes on but one that repairs.
#[test]
fn harm_to_the_freelist_is_found() {
    let (emulator, map) = built_in_place();
    for (name, harm, _) in harms_in_place() {
        let mut map = map.clone();
        harm(&mut map);
        match open(&emulator.fork().unwrap(), &kv(&map), false) {
            Ok(Opened { store, .. }) => {
                assert!(!store.check(false).unwrap().wrong.is_empty(), "{name}");
                // Nobody gets what others have.
                does(&store, |t| _ = t.write(ALL, &id("new"), 0, &content(3 << 20, 5)));
                for object in NAMES {
                    assert!(store.read(ALL, &id(object), 0, u64::MAX).unwrap() == bytes(object), "{name}: {object}");
                }
            }
            Err(error) => {
                assert_eq!(error.code(), Code::Corruption, "{name}: {error}");
                assert!(error.to_string().contains("which units are taken"), "{name}: {error}");
            }
        }
    }
}

fn is_derived_and_told((emulator, map): &(Emulator, Map), harms: Vec<Harm>) {
    let is_whole = open(&emulator.fork().unwrap(), &kv(map), true).unwrap().store;
    assert_eq!(is_whole.repair(Mend::All).unwrap().mended, Vec::<String>::new());
    is_mended(&is_whole, "nothing", &[]);
    for (name, harm, lost) in harms {
        let mut map = map.clone();
        harm(&mut map);
        let (drive, kv) = (emulator.fork().unwrap(), kv(&map));
        let Opened { store, _volume } = open(&drive, &kv, true).unwrap();
        let mended = store.repair(Mend::All).unwrap().mended;
        println!("{name}: {mended:?}");
        assert!(!mended.is_empty(), "{name}");
        is_mended(&store, name, lost);
        assert_eq!(store.repair(Mend::All).unwrap().mended, Vec::<String>::new(), "{name}: a second time");
        is_mended(&store, name, lost);
        drop((store, _volume));
        let Opened { store, .. } = open(&drive, &kv, false).unwrap();
        is_mended(&store, name, lost);
        goes_on(&store, name);
        if name == "blobs are gone" {
            is_free_in_the_end(store, &drive, &kv);
        }
    }
}

/// Where nothing is lost any more, what was kept for it is free.
fn is_free_in_the_end(store: BlueStore, drive: &Emulator, kv: &Arc<Mem>) {
    assert_eq!(store.check(false).unwrap().wrong.len(), 1);
    drop(store);
    let Opened { store, .. } = open(drive, kv, true).unwrap();
    assert!(store.repair(Mend::All).unwrap().mended[0].starts_with("0 blocks live in zone"));
    assert_eq!(store.check(true).unwrap().wrong, Vec::<String>::new());
}

#[test]
fn power_may_fail_at_any_write_of_a_repair() {
    repair_is_cut(&built(), harms());
}

#[test]
fn so_it_may_in_place() {
    repair_is_cut(&built_in_place(), harms().into_iter().step_by(2).chain(harms_in_place()).collect());
}

fn repair_is_cut((emulator, map): &(Emulator, Map), harms: Vec<Harm>) {
    let mut crashes = 0;
    for (name, harm, lost) in harms {
        let mut map = map.clone();
        harm(&mut map);
        for n in 0.. {
            let (drive, kv) = (emulator.fork().unwrap(), kv(&map));
            *kv.left.lock().unwrap() = Some(n);
            let repaired = open(&drive, &kv, true).and_then(|opened| opened.store.repair(Mend::All).map(drop));
            *kv.left.lock().unwrap() = None;
            let Err(error) = repaired else { break };
            assert!(error.to_string().contains("no power"), "{name}, {n}: {error}");
            crashes += 1;
            let Opened { store, .. } = open(&drive, &kv, true).unwrap();
            store.repair(Mend::All).unwrap();
            is_mended(&store, name, lost);
            goes_on(&store, name);
        }
    }
    assert!(crashes > 25, "{crashes}");
}

/// Changes of counts that wait are no fault. They are not made where a count is too low: that would cost a clone its blocks.
#[test]
fn changes_that_wait_are_in_what_extents_say() {
    let (emulator, mut map) = built();
    map.insert((Family::Super, b"wait".to_vec()), vec![]);
    let kv = kv(&map);
    let Opened { store, _volume } = open(&emulator, &kv, false).unwrap();
    does(&store, |t| _ = t.write(ALL, &id("long"), 0, &content(64 * BLOCK, 7)));
    assert_eq!(store.usage().uncounted, 1);
    drop((store, _volume));
    let waits = kv.map.lock().unwrap().clone();
    for too_low in [false, true] {
        let mut map = waits.clone();
        if too_low {
            value(&mut map, Family::Blobs, 0)[4] = 1;
        }
        let (drive, kv) = (emulator.fork().unwrap(), self::kv(&map));
        let Opened { store, _volume } = open(&drive, &kv, true).unwrap();
        assert_eq!(store.usage().uncounted, 1);
        let mended = store.repair(Mend::All).unwrap().mended;
        assert_eq!(mended.len(), usize::from(too_low), "{mended:?}");
        assert_eq!(store.usage().uncounted, 0);
        assert_eq!(store.check(true).unwrap().wrong, Vec::<String>::new());
        assert!(store.read(ALL, &id("clone"), 0, u64::MAX).unwrap() == bytes("clone"));
        assert!(store.read(ALL, &id("long"), 0, 64 * BLOCK).unwrap() == content(64 * BLOCK, 7));
    }
}

/// Where a record of extents is gone, or metadata are known to be, what seems to be nobody's is kept.
#[test]
fn what_may_be_somebodys_is_kept() {
    let (emulator, whole) = built();
    let gone: Map =
        whole.iter().filter(|((of, _), _)| *of != Family::Extents).map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut nobodys = whole.clone();
    nobodys.insert((Family::Omap, vec![1, 77, 1, 5]), vec![1]);
    nobodys.insert((Family::Blobs, vec![1, 77, 0]), value(&mut whole.clone(), Family::Blobs, 0).clone());
    for (map, mend) in [(gone, Mend::All), (nobodys, Mend::Keeping)] {
        let kv = kv(&map);
        let Opened { store, _volume } = open(&emulator.fork().unwrap(), &kv, true).unwrap();
        let before = keys(&map, Family::Blobs);
        store.repair(mend).unwrap();
        assert!(!store.check(true).unwrap().wrong.is_empty());
        let now = kv.map.lock().unwrap().clone();
        assert_eq!((keys(&now, Family::Blobs), keys(&now, Family::Omap)), (before, keys(&map, Family::Omap)));
        assert!(store.read(ALL, &id("short"), 0, u64::MAX).unwrap() == bytes("short"));
    }
}

/// A repair that failed takes no more. The quick one mends zones and sums, and nothing else.
#[test]
fn a_quick_repair_mends_zones_and_sums() {
    let (emulator, mut map) = built();
    value(&mut map, Family::Zones, 0)[8] = 1;
    value(&mut map, Family::Statistics, 0)[0] += 1;
    map.insert((Family::Omap, vec![1, 77, 1, 5]), vec![1]);
    let kv = kv(&map);
    let Opened { store, _volume } = open(&emulator, &kv, true).unwrap();
    *kv.left.lock().unwrap() = Some(0);
    assert!(store.repair(Mend::Zones).is_err());
    *kv.left.lock().unwrap() = None;
    let mut more = Transaction::new();
    more.touch(ALL, &id("more"));
    assert_eq!(store.commit(more).map_err(|error| error.code()), Err(Code::Poisoned));
    drop((store, _volume));
    let Opened { store, _volume } = open(&emulator, &kv, false).unwrap();
    assert_eq!(store.repair(Mend::Zones).map_err(|error| error.code()), Err(Code::InvalidArgument));
    drop((store, _volume));
    let Opened { store, .. } = open(&emulator, &kv, true).unwrap();
    // The zone was mended when it was opened first.
    let mended = store.repair(Mend::Zones).unwrap().mended;
    assert!(mended.len() == 1 && mended[0].starts_with("the sums"), "{mended:?}");
    assert_eq!(store.check(true).unwrap().wrong, ["a pair of an omap belongs to no object"]);
}
