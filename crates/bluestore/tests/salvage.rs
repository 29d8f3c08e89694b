//! What a salvage finds of a drive, with metadata, with a part of them, and without: nothing that was never written, and all that had a place.

mod support;

#[path = "salvage/hostile.rs"]
mod hostile;
#[path = "salvage/records.rs"]
mod records;
#[path = "salvage/tails.rs"]
mod tails;

use imbrex_bluestore::salvage::{Choice, Salvage, Salvaged, UNNAMED, Walked};
use imbrex_bluestore::{
    BlueStore, Change, CollectionId, Family, Head, KeyValue, ObjectId, Options, Pair, Taker, Transaction,
};
use imbrex_crashkit::seeds;
use imbrex_device::{AlignedBuf, Cause, Drive, Result, Zone, ZoneId, ZoneOp, ZoneState, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, Volume, VolumeOptions, ZoneHeader};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::{Model, Object, any_transaction, config, content, few_active, first, format, open_with, packed};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: usize = 4096;
const TAG: Cause = Cause::Check;

type Map = BTreeMap<(Family, Vec<u8>), Vec<u8>>;
/// Pairs of the metadata.
type Pairs = Vec<(Family, Vec<u8>, Vec<u8>)>;

/// A key-value store in memory, and how many pairs of ranges it gave.
#[derive(Default)]
struct Scratch(Mutex<Map>, AtomicUsize);

impl KeyValue for Scratch {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().get(&(family, key.to_vec())).cloned())
    }

    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        let map = self.0.lock().unwrap();
        let range = map.range((family, from.to_vec())..);
        let within = range.take_while(|((of, key), _)| *of == family && to.is_none_or(|to| &key[..] < to));
        let found: Vec<_> = within.take(most).map(|((_, key), value)| (key.clone(), value.clone())).collect();
        self.1.fetch_add(found.len(), Ordering::Relaxed);
        Ok(found)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut map = self.0.lock().unwrap();
        for change in changes {
            match change {
                Change::Put(family, key, value) => drop(map.insert((*family, key.clone()), value.clone())),
                _ => panic!("a salvage only puts"),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// What came.
#[derive(Default)]
struct Taken {
    model: Model,
    doubts: BTreeMap<ObjectId, Vec<String>>,
    now: Option<Head>,
    object: Object,
    /// Where the bytes of the object under way end.
    end: u64,
}

impl Taker for Taken {
    fn collection(&mut self, collection: CollectionId, bits: u8) -> Result<()> {
        self.model.collections.insert(collection, bits);
        Ok(())
    }

    fn begin(&mut self, head: &Head) -> Result<()> {
        assert!(self.now.is_none());
        self.object = Object { attributes: head.attributes.clone(), ..Object::default() };
        self.object.bytes.resize(head.size as usize, 0);
        (self.now, self.end) = (Some(head.clone()), 0);
        Ok(())
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        assert!(at >= self.end, "in order");
        self.end = at + bytes.len() as u64;
        self.object.bytes[at as usize..self.end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn omap_header(&mut self, header: &[u8]) -> Result<()> {
        self.object.header = Some(header.to_vec());
        Ok(())
    }

    fn omap(&mut self, pairs: Vec<Pair>) -> Result<()> {
        self.object.omap.extend(pairs);
        Ok(())
    }

    fn doubt(&mut self, sentence: &str) -> Result<()> {
        let id = self.now.as_ref().unwrap().id.clone();
        self.doubts.entry(id).or_default().push(sentence.into());
        Ok(())
    }

    fn again(&mut self) -> Result<()> {
        panic!("nobody changes anything");
    }

    fn end(&mut self) -> Result<()> {
        let id = self.now.take().unwrap().id;
        let before = self.model.objects.insert(id.clone(), std::mem::take(&mut self.object).into());
        assert!(before.is_none(), "{id} came twice");
        Ok(())
    }
}

struct Came {
    taken: Taken,
    walked: Walked,
    told: Salvaged,
}

/// All pairs of the metadata of a store that nobody has open.
fn pairs_of(drive: &Drive) -> Pairs {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let volume = Volume::open(drive.clone(), volume).unwrap();
    let kv = support::MapStore::open(&volume).unwrap();
    let mut all = Vec::new();
    for family in Family::ALL {
        all.extend(
            kv.pairs(family, &[], None, usize::MAX).unwrap().into_iter().map(|(key, value)| (family, key, value)),
        );
    }
    // As a key-value store of one order has them.
    all.sort_by_key(|(family, key, _)| (family.name(), key.clone()));
    all
}

fn salvaged(drive: &Drive, pairs: &[(Family, Vec<u8>, Vec<u8>)], choice: Choice) -> Came {
    salvaged_with(&Arc::default(), drive, pairs, choice)
}

fn salvaged_with(scratch: &Arc<Scratch>, drive: &Drive, pairs: &[(Family, Vec<u8>, Vec<u8>)], choice: Choice) -> Came {
    let scratch = scratch.clone();
    let mut salvage =
        Salvage::walk(drive.device.clone(), scratch, None, &mut |done, all| assert!(done <= all)).unwrap();
    pairs.iter().for_each(|(family, key, value)| salvage.add(*family, key, value).unwrap());
    let mut taken = Taken::default();
    let told = salvage.read(choice, &mut taken).unwrap();
    assert_eq!(told.objects, taken.model.objects.len() as u64);
    assert_eq!(told.doubtful, taken.doubts.len() as u64);
    Came { taken, walked: salvage.walked().clone(), told }
}

const WHOLE: Choice = Choice { whole: true, deleted: false };
const LOST: Choice = Choice { whole: false, deleted: false };

fn drive_on(config: &Config) -> (Emulator, Drive) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    (emulator, drive)
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(1, b"", name.as_bytes())
}

/// A store, and what was ever written to each block of each object, the newest last.
struct Written {
    store: BlueStore,
    objects: BTreeMap<String, Vec<Vec<Vec<u8>>>>,
}

impl Written {
    fn on(drive: &Drive, options: Options) -> Written {
        let store = open_with(drive, Exec::Inline, options).unwrap();
        let mut begin = Transaction::new();
        store.queue(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
        Written { store, objects: BTreeMap::new() }
    }

    fn write(&mut self, name: &str, block: usize, bytes: &[u8]) {
        let mut write = Transaction::new();
        self.store.queue(std::mem::take(write.write(ALL, &id(name), (block * BLOCK) as u64, bytes))).unwrap();
        let object = self.objects.entry(name.into()).or_default();
        object.resize(object.len().max(block + bytes.len() / BLOCK), Vec::new());
        for (n, bytes) in bytes.chunks(BLOCK).enumerate() {
            object[block + n].push(bytes.to_vec());
        }
    }

    fn settle(&self) {
        self.store.sync().unwrap();
        while self.store.pack().unwrap() {}
        self.store.sync().unwrap();
    }

    fn newest(&self, name: &str) -> Vec<u8> {
        let blocks = &self.objects[name];
        blocks.iter().flat_map(|block| block.last().cloned().unwrap_or_else(|| vec![0; BLOCK])).collect()
    }
}

fn text(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK).map(|n| seed ^ (n >> 9) as u8).collect()
}

/// Long and short writes, overwrites, what can be compressed, what was cleaned, and names that have changed.
fn worked_with(drive: &Drive) -> Written {
    let mut written = Written::on(drive, packed());
    written.write("long", 0, &content(150 * BLOCK as u64, 1));
    written.write("text", 0, &text(100, 2));
    written.settle();
    for n in 0..30 {
        written.write("long", n * 4, &content(BLOCK as u64, 50 + n as u8));
        written.write("short", n * 2, &content(BLOCK as u64, 90 + n as u8));
    }
    written.write("text", 10, &text(40, 3));
    written.write("long", 60, &content(40 * BLOCK as u64, 4));
    written.settle();
    let mut rename = Transaction::new();
    written.store.queue(std::mem::take(rename.rename(ALL, &id("short"), &id("renamed")))).unwrap();
    let blocks = written.objects.remove("short").unwrap();
    written.objects.insert("renamed".into(), blocks);
    written.write("renamed", 70, &content(9 * BLOCK as u64, 5));
    written.settle();
    assert!(written.store.clean(1 << 20).unwrap() > 0, "something moved");
    written.settle();
    written
}

#[test]
fn without_metadata_all_that_had_a_place_comes_back_by_its_name() {
    for config in [config(), few_active()] {
        let (_, drive) = drive_on(&config);
        let written = worked_with(&drive);
        for closed in [false, true] {
            let came = salvaged(&drive, &[], LOST);
            assert_eq!(came.taken.model.objects.len(), 3, "closed: {closed}");
            for name in written.objects.keys() {
                assert!(came.taken.model.objects[&id(name)].bytes == written.newest(name), "{name}");
                assert_eq!(came.taken.doubts[&id(name)].len(), 1, "{:?}", came.taken.doubts);
            }
            let Salvaged { of_runs, unnamed, lost, older, senseless, .. } = came.told;
            assert_eq!((of_runs, unnamed, lost, older, senseless), (3, 0, 0, 0, 0));
            assert_eq!((came.walked.damaged_zones, came.walked.damaged_runs), (0, 0));
            assert_eq!(came.walked.volume, [5; 16]);
        }
    }
}

#[test]
fn a_name_of_a_cleaned_zone_that_has_changed_since_does_not_come_back() {
    let (_, drive) = drive_on(&config());
    let mut written = worked_with(&drive);
    drop(written.store);
    // The names in memory are gone: the cleaner has those of headers.
    written.store = open_with(&drive, Exec::Inline, packed()).unwrap();
    let mut rename = Transaction::new();
    rename.rename(ALL, &id("long"), &id("longer")).write(ALL, &id("longer"), 0, &content(BLOCK as u64 * 8, 77));
    written.store.commit(rename).unwrap();
    written.store.clean(10 << 20).unwrap();
    written.settle();
    let came = salvaged(&drive, &[], LOST);
    let names: Vec<_> =
        came.taken.model.objects.keys().map(|id| String::from_utf8_lossy(&id.name).into_owned()).collect();
    assert!(names.contains(&"longer".to_owned()) && !names.contains(&"long".to_owned()), "{names:?}");
}

#[test]
fn with_whole_metadata_all_is_as_it_was() {
    for config in [config(), few_active()] {
        for seed in seeds(6) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (_, drive) = drive_on(&config);
            let store = open_with(&drive, Exec::Inline, packed()).unwrap();
            let (mut model, (c, bits)) = (Model::default(), first());
            let mut begin = Transaction::new();
            model.apply(&support::Op::Create(c, bits), &mut begin).unwrap();
            store.commit(begin).unwrap();
            for n in 0..120 {
                let (_, transaction, then) = any_transaction(&mut rng, &model, 700_000);
                store.queue(transaction).unwrap();
                model = then;
                match rng.random_range(0..20) {
                    0 => drop(store.pack().unwrap()),
                    1 => drop(store.clean(100_000).unwrap()),
                    _ => {}
                }
                if n % 40 == 39 {
                    store.sync().unwrap();
                }
            }
            store.sync().unwrap();
            drop(store);
            let came = salvaged(&drive, &pairs_of(&drive), WHOLE);
            assert!(came.taken.model == model, "seed {seed}");
            assert!(came.taken.doubts.is_empty(), "seed {seed}: {:?}", came.taken.doubts);
            assert_eq!((came.told.lost, came.told.older, came.told.of_runs), (0, 0, 0));
        }
    }
}

/// Each family of the metadata lost in turn: what the others and the runs tell is there.
#[test]
fn of_metadata_with_holes_the_rest_is_used() {
    let (_, drive) = drive_on(&config());
    let mut written = worked_with(&drive);
    let mut more = Transaction::new();
    more.set_attributes(ALL, &id("long"), &[(b"a", b"b")]).omap_set(ALL, &id("text"), &[(b"k", b"v")]);
    more.clone_object(ALL, &id("text"), &id("clone"));
    written.store.commit(more).unwrap();
    written.write("long", 0, &content(BLOCK as u64, 200));
    written.store.sync().unwrap();
    assert!(written.store.usage().deferred > 0);
    let Written { store, objects } = written;
    drop(store);
    let written: BTreeMap<_, _> = objects.iter().map(|(name, blocks)| (name.clone(), blocks)).collect();
    let newest = |name: &str| -> Vec<u8> {
        written[name].iter().flat_map(|b| b.last().cloned().unwrap_or(vec![0; BLOCK])).collect()
    };
    let pairs = pairs_of(&drive);
    let without = |families: &[Family]| {
        let left: Vec<_> = pairs.iter().filter(|(family, ..)| !families.contains(family)).cloned().collect();
        salvaged(&drive, &left, LOST)
    };
    let has = |came: &Came, name: &str, bytes: &[u8]| {
        came.taken.model.objects.get(&id(name)).is_some_and(|object| object.bytes == bytes)
    };
    let came = without(&[]);
    assert!(written.keys().all(|name| has(&came, name, &newest(name))) && has(&came, "clone", &newest("text")));
    assert_eq!(came.taken.model.objects[&id("clone")].omap.len(), 1);
    // Without records of blobs the headers say where they are. What waits has none, so that its checksum is not known.
    let came = without(&[Family::Blobs]);
    assert!(
        ["text", "renamed"].iter().all(|name| has(&came, name, &newest(name))) && has(&came, "clone", &newest("text"))
    );
    assert_eq!(came.told.lost, BLOCK as u64);
    assert!(came.taken.model.objects[&id("long")].bytes[BLOCK..] == newest("long")[BLOCK..]);
    // Without extents the blobs say what is where; a clone has nothing else than its record's.
    let came = without(&[Family::Extents]);
    assert!(written.keys().all(|name| has(&came, name, &newest(name))));
    // Without records of objects names are those of runs, and attributes are gone. What waits is there.
    let came = without(&[Family::Onodes]);
    assert!(written.keys().all(|name| has(&came, name, &newest(name))));
    assert!(!came.taken.model.objects.contains_key(&id("clone")));
    assert!(came.taken.model.objects[&id("long")].attributes.is_empty());
    // Without what waits it is lost, and told.
    let came = without(&[Family::Deferred]);
    assert_eq!(came.told.lost + came.told.older, BLOCK as u64);
    assert!(!came.taken.doubts[&id("long")].is_empty());
}

/// Headers of runs, as places on the drive in bytes with the length of what they tell of.
fn headers(drive: &Drive) -> Vec<u64> {
    let device = drive.device.as_ref();
    let mut found = Vec::new();
    for zone in data_zones(drive) {
        let start = device.geometry().start(zone.id);
        let mut bytes = AlignedBuf::zeroed(zone.wp.unwrap() as usize);
        device.read_at(&mut bytes, start, TAG.into()).unwrap();
        let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.starts_with(b"IMBXruns"));
        found.extend(blocks.map(|(n, _)| start + (n * BLOCK) as u64));
    }
    found
}

/// Zones that have data.
fn data_zones(drive: &Drive) -> Vec<Zone> {
    let device = drive.device.as_ref();
    let zones = report_all(device).unwrap().into_iter().filter(|zone| zone.state != ZoneState::Conventional);
    let is_data = |zone: &Zone| {
        let mut bytes = AlignedBuf::zeroed(2 * BLOCK);
        let read = zone.wp.is_some_and(|wp| wp >= 8192)
            && device.read_at(&mut bytes, device.geometry().start(zone.id), TAG.into()).is_ok();
        read && ZoneHeader::decode(&bytes).is_some_and(|header| header.kind == 1 && header.name.is_empty())
            && bytes[BLOCK..].starts_with(b"IMBXruns")
    };
    zones.filter(is_data).collect()
}

/// Whether all that came was written there once: of an object with this name, or one without.
fn all_was_written(written: &Written, came: &Came, what: &str) {
    for (found, object) in &came.taken.model.objects {
        let of: Vec<_> = match found.namespace == UNNAMED {
            true => written.objects.values().collect(),
            // Of which the newest name may be lost.
            false if found.name == b"short" => vec![&written.objects["renamed"]],
            false => vec![&written.objects[std::str::from_utf8(&found.name).unwrap()]],
        };
        for (n, bytes) in object.bytes.chunks(BLOCK).enumerate() {
            let is =
                |blocks: &Vec<Vec<Vec<u8>>>| blocks.get(n).is_some_and(|all| all.iter().any(|block| block == bytes));
            assert!(
                bytes.iter().all(|byte| *byte == 0) || of.iter().any(|blocks| is(blocks)),
                "{what}: block {n} of {found}"
            );
        }
    }
}

/// Blocks that are not the newest of their object, which are said to be.
fn silent(written: &Written, came: &Came) -> usize {
    let mut wrong = 0;
    for name in written.objects.keys() {
        let (newest, found) = (written.newest(name), came.taken.model.objects.get(&id(name)));
        let Some(found) = found else { continue };
        let doubted =
            came.taken.doubts.get(&id(name)).is_some_and(|all| all.iter().any(|doubt| doubt.contains("lost")));
        wrong += usize::from(!doubted && found.bytes != newest);
    }
    wrong
}

#[test]
fn a_damaged_header_costs_what_its_run_has_and_the_walk_goes_on_behind_it() {
    let (emulator, drive) = drive_on(&config());
    let written = worked_with(&drive);
    written.store.sync().unwrap();
    let all = headers(&drive);
    assert!(all.len() > 8, "{}", all.len());
    let whole = salvaged(&drive, &[], LOST);
    let mut seen = 0;
    for at in &all {
        emulator.faults().flip_bits(at + 100, 1).unwrap();
        let came = salvaged(&drive, &[], LOST);
        emulator.faults().flip_bits(at + 100, 1).unwrap();
        all_was_written(&written, &came, &format!("the header at {at}"));
        // One at the end of a zone is nothing that anything stands behind.
        seen += came.walked.damaged_runs;
        assert_eq!(came.walked.runs + 1, whole.walked.runs, "only this one, at {at}");
        // The same with a header that the drive does not give.
        emulator.faults().media_error(*at, 4096);
        let came = salvaged(&drive, &[], LOST);
        emulator.faults().clear();
        assert_eq!(came.walked.runs + 1, whole.walked.runs, "only this one, at {at}");
        // Records of blobs do not need it.
        emulator.faults().flip_bits(at + 100, 1).unwrap();
        let came = salvaged(&drive, &pairs_of(&drive), WHOLE);
        emulator.faults().flip_bits(at + 100, 1).unwrap();
        assert!(came.taken.doubts.is_empty());
        assert!(written.objects.keys().all(|name| came.taken.model.objects[&id(name)].bytes == written.newest(name)));
    }
    assert!(seen > 2, "{seen}");
}

#[test]
fn damaged_bytes_are_told_and_cost_no_others() {
    let (emulator, drive) = drive_on(&config());
    let written = worked_with(&drive);
    let (written, pairs) = pairs_of_open(&drive, written);
    let start_of_header = headers(&drive);
    let (mut lost, mut older) = (0, 0);
    for zone in data_zones(&drive) {
        let start = drive.device.geometry().start(zone.id);
        for at in (start + BLOCK as u64..start + zone.wp.unwrap()).step_by(BLOCK) {
            if start_of_header.contains(&at) || emulator.faults().flip_bits(at + 7, 8).is_err() {
                continue;
            }
            for (pairs, choice) in [(&[][..], LOST), (&pairs, WHOLE)] {
                let came = salvaged(&drive, pairs, choice);
                all_was_written(&written, &came, &format!("the block at {at}"));
                assert_eq!(silent(&written, &came), 0, "the block at {at}");
                // A blob that is compressed is one grain.
                assert!(came.told.lost + came.told.older <= 32 * BLOCK as u64, "{:?}", came.told);
                lost += u64::from(came.told.lost > 0);
                older += u64::from(came.told.older > 0);
            }
            emulator.faults().flip_bits(at + 7, 8).unwrap();
        }
    }
    assert!(lost > 50 && older > 5, "{lost} {older}");
}

/// The pairs of a store that is open, which is closed for it.
fn pairs_of_open(drive: &Drive, written: Written) -> (Written, Pairs) {
    let Written { store, objects } = written;
    drop(store);
    let pairs = pairs_of(drive);
    (Written { store: open_with(drive, Exec::Inline, packed()).unwrap(), objects }, pairs)
}

#[test]
fn a_zone_whose_header_is_damaged_is_read_all_the_same() {
    let (emulator, drive) = drive_on(&config());
    let written = worked_with(&drive);
    for zone in data_zones(&drive) {
        let start = drive.device.geometry().start(zone.id);
        emulator.faults().flip_bits(start + 20, 1).unwrap();
        let came = salvaged(&drive, &[], LOST);
        emulator.faults().flip_bits(start + 20, 1).unwrap();
        assert_eq!(came.walked.damaged_zones, 1);
        assert_eq!(came.told.lost + came.told.older, 0);
        // Its moment is not known: of a blob that was moved both places have the same.
        assert!(written.objects.keys().all(|name| came.taken.model.objects[&id(name)].bytes == written.newest(name)));
    }
}

#[test]
fn zones_that_are_gone_cost_what_stood_in_them() {
    let (_, drive) = drive_on(&config());
    let written = worked_with(&drive);
    let zones = data_zones(&drive);
    assert!(zones.len() > 3);
    for zone in zones {
        let (_, other) = drive_on(&config());
        for from in report_all(drive.device.as_ref()).unwrap() {
            if from.id == zone.id || from.state == ZoneState::Conventional || from.wp.is_none_or(|wp| wp == 0) {
                continue;
            }
            let start = drive.device.geometry().start(from.id);
            let mut bytes = AlignedBuf::zeroed(from.wp.unwrap() as usize);
            drive.device.read_at(&mut bytes, start, TAG.into()).unwrap();
            other.device.zone_op(ZoneOp::Reset, from.id, TAG.into()).unwrap();
            other.device.write_at(&bytes, start, TAG.into()).unwrap();
        }
        let came = salvaged(&other, &[], LOST);
        all_was_written(&written, &came, &format!("without zone {}", zone.id));
        assert!(!came.taken.model.objects.is_empty());
    }
}

#[test]
fn what_was_deleted_may_come_back_and_takes_nobodys_name() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write("keeps the zone", 0, &content(8 * BLOCK as u64, 1));
    written.write("a", 0, &content(8 * BLOCK as u64, 2));
    written.settle();
    let mut anew = Transaction::new();
    anew.remove(ALL, &id("a")).write(ALL, &id("a"), 0, &content(5 * BLOCK as u64, 3));
    written.store.commit(anew).unwrap();
    written.settle();
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == content(5 * BLOCK as u64, 3));
    let old: Vec<_> = came.taken.model.objects.iter().filter(|(id, _)| id.namespace == UNNAMED).collect();
    assert_eq!((old.len(), came.told.unnamed), (1, 1));
    assert!(old[0].1.bytes == content(8 * BLOCK as u64, 2));
    assert!(came.taken.doubts[old[0].0].iter().any(|doubt| doubt.contains("a newer object has")));
    // Whole metadata tell that it is gone.
    let (_, pairs) = pairs_of_open(&drive, written);
    assert_eq!(salvaged(&drive, &pairs, WHOLE).told.objects, 2);
    assert_eq!(salvaged(&drive, &pairs, Choice { deleted: true, ..WHOLE }).told.objects, 3);
}

#[test]
fn where_the_metadata_are_not_the_last_newer_blobs_count() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write("a", 0, &content(8 * BLOCK as u64, 1));
    written.settle();
    let (again, pairs) = pairs_of_open(&drive, written);
    written = again;
    // The metadata as they are now, and the data that a commit writes behind them.
    let before = data_zones(&drive).len();
    written.write("a", 0, &content(8 * BLOCK as u64, 99));
    written.store.sync().unwrap();
    assert!(data_zones(&drive).len() > before);
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == content(8 * BLOCK as u64, 99));
    // With the metadata from before, and whole, these count; where they are not known to be whole, the newer blob does.
    let came = salvaged(&drive, &pairs, WHOLE);
    assert!(came.taken.model.objects[&id("a")].bytes == content(8 * BLOCK as u64, 1));
    let came = salvaged(&drive, &pairs, LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == content(8 * BLOCK as u64, 99));
}

/// Whatever stands on the drive, nothing comes that nobody has written.
#[test]
fn hostile_drives_make_no_bytes_that_were_never_written() {
    let (_, drive) = drive_on(&config());
    let written = worked_with(&drive);
    let device = drive.device.as_ref();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut came_some = 0;
    for round in 0..40 {
        let other = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
        for zone in report_all(device).unwrap() {
            let Some(wp) = zone.wp.filter(|wp| *wp > 0 && zone.state != ZoneState::Conventional) else { continue };
            let mut bytes = AlignedBuf::zeroed(wp as usize);
            device.read_at(&mut bytes, device.geometry().start(zone.id), TAG.into()).unwrap();
            for _ in 0..random.random_range(0..1 + round) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            // Zones in other places, too: headers name theirs.
            let to = if random.random_bool(0.05) { ZoneId(20) } else { zone.id };
            let at = device.geometry().start(to);
            if report_all(other.device.as_ref()).unwrap()[to.0 as usize].wp == Some(0) {
                other.device.write_at(&bytes, at, TAG.into()).unwrap();
            }
        }
        let came = salvaged(&other, &[], LOST);
        all_was_written(&written, &came, &format!("round {round}"));
        came_some += came.told.objects;
    }
    assert!(came_some > 60, "{came_some}");
}

#[test]
fn a_drive_without_a_store_has_nothing() {
    let drive = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
    let came = salvaged(&drive, &[], LOST);
    assert_eq!((came.told, came.walked), (Salvaged::default(), Walked::default()));
}

/// A crash loses a group whose data were written already. Its numbers are given again, and what the next opening writes under them is what counts.
#[test]
fn of_two_blobs_of_one_number_the_one_that_came_later_counts() {
    let (emulator, drive) = drive_on(&config());
    let mut written = Written::on(&drive, packed());
    written.write("a", 0, &content(8 * BLOCK as u64, 1));
    written.settle();
    // The metadata fail behind the data: the group is lost, and its blob is on the drive.
    let Written { store, mut objects } = written;
    drop(store);
    let (store, hook) = support::open_hooked(&drive, Exec::Inline, support::options()).unwrap();
    for n in 0..4 {
        // Numbers of commits begin anew with each opening. What lives in the zone keeps it.
        let other = content(5 * BLOCK as u64, 7);
        store.commit(std::mem::take(Transaction::new().write(ALL, &id("b"), n << 15, &other))).unwrap();
    }
    let device = drive.device.clone();
    hook.set_outside_gets(0, move || {
        // A change of the map's log fails, as that zone does.
        for zone in report_all(device.as_ref()).unwrap() {
            let _ = device.zone_op(ZoneOp::Finish, zone.id, TAG.into());
        }
    });
    let mut lost = Transaction::new();
    store.queue(std::mem::take(lost.write(ALL, &id("a"), 0, &content(8 * BLOCK as u64, 50)))).unwrap();
    let failed = store.sync();
    drop(store);
    let store = open_with(&drive, Exec::Inline, packed()).unwrap();
    let is = store.read(ALL, &id("a"), 0, 8 * BLOCK as u64).unwrap();
    assert!(failed.is_err() && is == content(8 * BLOCK as u64, 1), "{failed:?}");
    let came = salvaged(&drive, &[], LOST);
    assert!(
        came.taken.model.objects[&id("a")].bytes == content(8 * BLOCK as u64, 50),
        "nobody knows that it was not durable"
    );
    let mut written = Written { store, objects: std::mem::take(&mut objects) };
    written.write("a", 0, &content(8 * BLOCK as u64, 60));
    written.settle();
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("a")].bytes == content(8 * BLOCK as u64, 60));
    // No zone's own header is needed to know it.
    for zone in data_zones(&drive) {
        let start = drive.device.geometry().start(zone.id);
        emulator.faults().flip_bits(start + 20, 1).unwrap();
        let came = salvaged(&drive, &[], LOST);
        emulator.faults().flip_bits(start + 20, 1).unwrap();
        assert_eq!(came.walked.damaged_zones, 1);
        assert!(came.taken.model.objects[&id("a")].bytes == content(8 * BLOCK as u64, 60), "zone {}", zone.id);
    }
}

#[test]
fn what_a_user_wrote_is_never_taken_for_a_header() {
    let (emulator, drive) = drive_on(&config());
    let mut written = Written::on(&drive, support::options());
    written.write("victim", 0, &content(8 * BLOCK as u64, 1));
    written.settle();
    let [at] = headers(&drive)[..] else { panic!("one run") };
    // The user has seen the drive, and knows all of the zone: a newer blob of the victim, with other bytes.
    let mut header = AlignedBuf::zeroed(BLOCK);
    drive.device.read_at(&mut header, at, TAG.into()).unwrap();
    let evil = content(8 * BLOCK as u64, 66);
    header[76..84].copy_from_slice(&1000u64.to_le_bytes());
    for (n, block) in evil.chunks(BLOCK).enumerate() {
        header[92 + n * 4..96 + n * 4].copy_from_slice(&crc32c::crc32c(block).to_le_bytes());
    }
    header[16..20].fill(0);
    let crc = crc32c::crc32c(&header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    written.write("evil", 0, &[&header[..], &evil].concat());
    written.settle();
    // A scan behind a damaged header comes by.
    let own = headers(&drive).into_iter().find(|other| *other > at).unwrap();
    emulator.faults().flip_bits(own + 100, 1).unwrap();
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("victim")].bytes == content(8 * BLOCK as u64, 1));
    // It would be one where it says.
    let copy = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
    let start = at - BLOCK as u64;
    let mut zone = AlignedBuf::zeroed(BLOCK * 10);
    drive.device.read_at(&mut zone[..BLOCK], start, TAG.into()).unwrap();
    zone[BLOCK..2 * BLOCK].copy_from_slice(&header);
    zone[2 * BLOCK..].copy_from_slice(&evil);
    copy.device.write_at(&zone, start, TAG.into()).unwrap();
    assert!(salvaged(&copy, &[], LOST).taken.model.objects[&id("victim")].bytes == evil);
}

#[test]
fn names_go_with_what_the_cleaner_moves() {
    let (_, drive) = drive_on(&config());
    let mut written = Written::on(&drive, support::options());
    written.write("stays", 0, &content(6 * BLOCK as u64, 1));
    written.write("goes", 0, &content(50 * BLOCK as u64, 2));
    written.settle();
    let [at] = headers(&drive)[..] else { panic!("one run") };
    drop(written.store);
    // No name is in memory.
    let store = open_with(&drive, Exec::Inline, support::options()).unwrap();
    store.commit(std::mem::take(Transaction::new().remove(ALL, &id("goes")))).unwrap();
    assert!(store.clean(1 << 20).unwrap() > 0);
    store.sync().unwrap();
    drop(store);
    // The zone is free, and is reset at some time.
    let zone = ZoneId((at / drive.device.geometry().zone_size) as u32);
    drive.device.zone_op(ZoneOp::Reset, zone, TAG.into()).unwrap();
    let came = salvaged(&drive, &[], LOST);
    assert!(came.taken.model.objects[&id("stays")].bytes == content(6 * BLOCK as u64, 1));
}
