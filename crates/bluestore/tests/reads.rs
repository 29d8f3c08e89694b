//! Reads of objects: in few commands, past damage that is not theirs, past whatever moves meanwhile, and never from records that are old.

mod support;

use imbrex_bluestore::*;
use imbrex_device::{
    AlignedBuf, Cause, Code, Drive, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice,
};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, Volume, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use support::{CACHES, content, format, options};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: u64 = 4096;

/// Where a command of a user's read goes: memory, and bytes.
type Command = (usize, usize);

/// A drive that keeps in mind what users read, and does not read some blocks.
struct Watched {
    drive: Emulator,
    reads: Mutex<Vec<Command>>,
    /// By place; `true`: always, `false`: once.
    bad: Mutex<BTreeMap<u64, bool>>,
    /// Reads of users that are there, and those that each waits for.
    meeting: Mutex<(usize, usize)>,
    met: Condvar,
}

impl Watched {
    /// Waits until as many reads have come as are to meet.
    fn meet(&self) {
        let mut meeting = self.meeting.lock().unwrap();
        meeting.0 += 1;
        self.met.notify_all();
        let patience = Duration::from_secs(60);
        let waited = self.met.wait_timeout_while(meeting, patience, |(there, wanted)| there < wanted).unwrap();
        assert!(!waited.1.timed_out(), "a read waits for one that does not come before it has ended");
    }

    fn is_bad(&self, at: u64, len: usize) -> bool {
        let mut bad = self.bad.lock().unwrap();
        let hit = bad.range(at..at + len as u64).next().map(|(at, always)| (*at, *always));
        if let Some((at, false)) = hit {
            bad.remove(&at);
        }
        hit.is_some()
    }
}

impl ZonedDevice for Watched {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.drive.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        if tag.cause == Cause::UserRead {
            self.reads.lock().unwrap().push((buf.as_ptr() as usize, buf.len()));
            self.meet();
        }
        if self.is_bad(at, buf.len()) {
            return Err(Error::new(&self.drive.name(), Fault::Media { len: 0 }));
        }
        self.drive.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.drive.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}

type Hook = Box<dyn FnOnce() + Send>;
type Map = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

/// A key-value store in memory. Its hook is called when a record of a family was got, and whoever got it does not have it yet.
#[derive(Default)]
struct Mem {
    map: Mutex<Map>,
    hook: Mutex<Option<(Family, Hook)>>,
    gets: Mutex<BTreeMap<Family, u64>>,
    /// Records of blobs would have to be read.
    far: AtomicBool,
}

impl Mem {
    fn hook(&self, family: Family, then: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((family, Box::new(then)));
    }

    fn got(&self, family: Family) {
        *self.gets.lock().unwrap().entry(family).or_default() += 1;
        let due = self.hook.lock().unwrap().take_if(|(of, _)| *of == family);
        due.into_iter().for_each(|(_, then)| then());
    }

    /// How often records were asked for since the last time.
    fn gets(&self) -> u64 {
        std::mem::take(&mut *self.gets.lock().unwrap()).values().sum()
    }
}

impl KeyValue for Mem {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.map.lock().unwrap().get(&(family, key.to_vec())).cloned();
        self.got(family);
        Ok(found)
    }
    fn get_would_read(&self, family: Family, _: &[u8]) -> bool {
        family == Family::Blobs && self.far.load(Ordering::Relaxed)
    }
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        let all = {
            let map = self.map.lock().unwrap();
            let within = map.range((family, from.to_vec())..);
            let within = within.take_while(|((of, key), _)| *of == family && to.is_none_or(|to| &key[..] < to));
            within.take(most).map(|((_, key), value)| (key.clone(), value.clone())).collect()
        };
        self.got(family);
        Ok(all)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut map = self.map.lock().unwrap();
        for change in changes {
            match change.clone() {
                Change::Put(family, key, value) => drop(map.insert((family, key), value)),
                Change::Delete(family, key) => drop(map.remove(&(family, key))),
                Change::DeleteRange(family, from, to) => {
                    map.retain(|(of, key), _| *of != family || *key < from || *key >= to)
                }
            }
        }
        Ok(())
    }
}

struct All {
    watched: Arc<Watched>,
    kv: Arc<Mem>,
    store: BlueStore,
    _volume: Volume,
}

/// Zones of 4 MiB.
fn large() -> Config {
    Config {
        zone_size: 4 << 20,
        zone_capacity: 4 << 20,
        capacity: 256 << 20,
        max_io: 4 << 20,
        rotational: true,
        conventional: 2,
        ..Config::tiny()
    }
}

fn new(options: Options, exec: Exec) -> All {
    on(large(), options, exec)
}

fn on(config: Config, options: Options, exec: Exec) -> All {
    let drive = Emulator::memory(&config).unwrap();
    let watched = Arc::new(Watched {
        drive,
        reads: Mutex::default(),
        bad: Mutex::default(),
        meeting: Mutex::default(),
        met: Condvar::new(),
    });
    let drive = Drive { device: watched.clone(), survivor: None };
    format(&drive).unwrap();
    let volume = VolumeOptions { exec, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let (volume, kv) = (Volume::open(drive, volume).unwrap(), Arc::new(Mem::default()));
    let store = BlueStore::open(&volume.tenant(NAME).unwrap(), kv.clone(), options).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0));
    All { watched, kv, store, _volume: volume }
}

fn id(name: &str) -> ObjectId {
    ObjectId { hash: 7, ..ObjectId::new(1, b"", name.as_bytes()) }
}

fn does(store: &BlueStore, what: impl FnOnce(&mut Transaction)) {
    let mut t = Transaction::new();
    what(&mut t);
    store.commit(t).unwrap();
}

fn fine(store: &BlueStore) {
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

impl All {
    /// Commands of a read, with the bytes of each.
    fn commands(&self, name: &str, at: u64, bytes: &[u8]) -> Vec<usize> {
        self.watched.reads.lock().unwrap().clear();
        assert!(self.store.read(ALL, &id(name), at, bytes.len() as u64).unwrap() == bytes);
        self.watched.reads.lock().unwrap().drain(..).map(|(_, len)| len).collect()
    }

    /// Where the drive has these blocks.
    fn place_of(&self, block: &[u8]) -> u64 {
        let mut there = AlignedBuf::zeroed(block.len());
        let geometry = self.watched.drive.geometry();
        let all = u64::from(geometry.zones) * geometry.zone_size;
        let is =
            |at: &u64| self.watched.drive.read_at(&mut there, *at, Cause::Check.into()).is_ok() && there[..] == *block;
        (0..all).step_by(BLOCK as usize).find(is).expect("a block of these bytes")
    }
}

#[test]
fn what_was_written_in_order_is_read_in_few_long_commands() {
    for write in [64 << 10, 256 << 10, 4 << 20] {
        for cache in CACHES {
            let a = new(Options { cache, ..options() }, Exec::Inline);
            let all = content(4 << 20, 1);
            for (n, part) in all.chunks(write).enumerate() {
                does(&a.store, |t| _ = t.write(ALL, &id("a"), (n * write) as u64, part));
            }
            // It stands in one zone, or in two. The headers of its runs make it a little longer than a command.
            for _ in 0..2 {
                let commands = a.commands("a", 0, &all);
                assert!(commands.len() <= 3, "{write}, {cache}: {commands:?}");
            }
            assert_eq!(a.commands("a", 1 << 20, &all[1 << 20..][..100]), [BLOCK as usize]);
        }
    }
}

#[test]
fn one_aligned_stretch_is_read_straight_to_where_it_is_wanted() {
    let a = new(options(), Exec::Inline);
    let all = content(1 << 20, 1);
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &all));
    let mut out = AlignedBuf::zeroed(1 << 20);
    for (at, len, straight) in
        [(0, 1 << 20, true), (300 << 10, 500 << 10, true), (4096, 4096, true), (4097, 4096, false), (0, 100, false)]
    {
        a.watched.reads.lock().unwrap().clear();
        out.fill(9);
        assert_eq!(a.store.read_into(ALL, &id("a"), at, &mut out[..len]).unwrap(), len);
        assert!(out[..len] == all[at as usize..][..len], "{at}, {len}");
        let to = out.as_ptr() as usize;
        let reads = a.watched.reads.lock().unwrap();
        assert_eq!(reads.iter().all(|(memory, _)| (to..to + len).contains(memory)), straight, "{at}, {len}: {reads:?}");
    }
    // What is wrong there is read again.
    let at = a.place_of(&all[400 << 10..404 << 10]);
    a.watched.bad.lock().unwrap().insert(at, false);
    assert_eq!(a.store.read_into(ALL, &id("a"), 0, &mut out).unwrap(), 1 << 20);
    assert!(out[..] == all[..]);
    assert_eq!(a.store.usage().read_again, 1);
}

#[test]
fn what_is_longer_than_a_command_of_a_disk_is_there_in_all_its_commands_at_once() {
    // 65 blocks, of 256.
    let config = |rotational| Config { max_io: 260 << 10, rotational, ..large() };
    let all = content(1 << 20, 1);
    let lens = |blocks: [usize; 4]| blocks.map(|blocks| blocks * BLOCK as usize);
    let written = |config: Config, exec| {
        let a = on(config, options(), exec);
        does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &all));
        a
    };
    let a = written(config(true), Exec::Threads(1));
    *a.watched.meeting.lock().unwrap() = (0, 4);
    let mut commands = a.commands("a", 0, &all);
    commands.sort_unstable();
    assert_eq!(commands, lens([61, 65, 65, 65]));
    *a.watched.meeting.lock().unwrap() = (0, 0);
    // One of them fails: its bytes are read again, each grain alone, and those of the others are not hurt.
    for always in [false, true] {
        let at = a.place_of(&all[600 << 10..604 << 10]);
        a.watched.bad.lock().unwrap().insert(at, always);
        let read = a.store.read(ALL, &id("a"), 0, 1 << 20);
        assert_eq!(read.as_ref().map_err(|error| error.code()).err(), always.then_some(Code::Io));
        assert!(read.is_err() || read.unwrap() == all);
        assert!(a.store.read(ALL, &id("a"), 0, 600 << 10).unwrap() == all[..600 << 10]);
        assert_eq!((a.store.usage().read_again, a.store.usage().read_in_vain), (1, u64::from(always)));
    }
    // Without threads, and without a head, it is one after the other.
    for (rotational, exec) in [(true, Exec::Inline), (false, Exec::Threads(1))] {
        let a = written(config(rotational), exec);
        assert_eq!(a.commands("a", 0, &all), lens([65, 65, 65, 61]));
    }
}

/// More clients than the drive's queue has commands for: four of each, and 32 in all.
#[test]
fn long_reads_of_many_clients_take_turns_and_one_that_fails_keeps_nobody_waiting() {
    let a = on(Config { max_io: 260 << 10, rotational: true, ..large() }, options(), Exec::Threads(1));
    let all = [content(1 << 20, 1), content(1 << 20, 2)];
    for (name, bytes) in ["good", "bad"].into_iter().zip(&all) {
        does(&a.store, |t| _ = t.write(ALL, &id(name), 0, bytes));
    }
    let at = a.place_of(&all[1][600 << 10..604 << 10]);
    a.watched.bad.lock().unwrap().insert(at, true);
    let (store, all) = (&a.store, &all);
    std::thread::scope(|scope| {
        for client in 0..48 {
            scope.spawn(move || {
                for round in 0..6 {
                    let bad = (client + round) % 3 == 0;
                    let read = store.read(ALL, &id(if bad { "bad" } else { "good" }), 0, 1 << 20);
                    match bad {
                        true => assert_eq!(read.unwrap_err().code(), Code::Io),
                        false => assert!(read.unwrap() == all[0]),
                    }
                    // What stands before it.
                    assert!(store.read(ALL, &id("bad"), 0, 600 << 10).unwrap() == all[1][..600 << 10]);
                }
            });
        }
    });
}

/// Blocks of two objects, one and the other.
fn interleaved(a: &All) -> [Vec<u8>; 2] {
    let all = [content(256 << 10, 1), content(256 << 10, 2)];
    for n in 0..64 {
        does(&a.store, |t| {
            for (name, bytes) in ["a", "b"].into_iter().zip(&all) {
                t.write(ALL, &id(name), n * 4 * BLOCK, &bytes[(n * BLOCK) as usize..][..BLOCK as usize]);
            }
        });
    }
    a.store.pack().unwrap();
    all.map(|bytes| {
        let spread = bytes.chunks(BLOCK as usize).flat_map(|block| [block, &[0; 3 * BLOCK as usize]].concat());
        spread.take(253 * BLOCK as usize).collect()
    })
}

#[test]
fn damage_in_the_middle_of_a_command_hits_who_wants_it_and_nobody_else() {
    for (always, cache) in [true, false].into_iter().flat_map(|always| CACHES.map(|cache| (always, cache))) {
        let a = new(Options { defer_below: 64 << 10, cache, ..options() }, Exec::Inline);
        let [one, other] = interleaved(&a);
        assert!(a.commands("a", 0, &one).len() <= 2, "blocks of both are read together");
        let at = a.place_of(&other[40 * BLOCK as usize..41 * BLOCK as usize]);
        a.watched.bad.lock().unwrap().insert(at, always);
        // The command fails, and each block of it is read alone.
        a.commands("a", 0, &one);
        assert_eq!((a.store.usage().read_again, a.store.usage().read_in_vain), (1, 0));
        let read = |first: u64, blocks: u64| a.store.read(ALL, &id("b"), first * BLOCK, blocks * BLOCK);
        assert_eq!(read(0, 253).map_err(|error| error.code()).err(), always.then_some(Code::Io));
        let gone: Vec<u64> = (0..253).filter(|n| read(*n, 1).is_err()).collect();
        assert_eq!(gone, if always { vec![40] } else { vec![] });
        assert!(read(41, 300).unwrap() == other[41 * BLOCK as usize..]);
        a.watched.bad.lock().unwrap().clear();
        fine(&a.store);
    }
}

#[test]
fn a_zone_that_dies_costs_what_it_has() {
    for cache in CACHES {
        let a = new(Options { cache, ..options() }, Exec::Inline);
        let all = [content(3 << 20, 1), content(3 << 20, 2), content(3 << 20, 3)];
        for (name, bytes) in ["a", "b", "c"].into_iter().zip(&all) {
            does(&a.store, |t| _ = t.write(ALL, &id(name), 0, bytes));
        }
        a.commands("b", 0, &all[1]);
        let dead = a.place_of(&all[1][2 << 20..][..4096]) / (4 << 20);
        a.watched.drive.faults().make_offline(ZoneId(dead as u32)).unwrap();
        let lost = |name: &str, of: &[u8]| -> Vec<bool> {
            let block = |n: u64| a.store.read(ALL, &id(name), n * BLOCK, BLOCK);
            (0..768)
                .map(|n| match block(n) {
                    Ok(bytes) => bytes != of[(n * BLOCK) as usize..][..BLOCK as usize],
                    Err(_) => true,
                })
                .collect()
        };
        let [first, second, third] = [("a", &all[0]), ("b", &all[1]), ("c", &all[2])].map(|(name, of)| lost(name, of));
        assert!(first.iter().all(|lost| !lost) || third.iter().all(|lost| !lost));
        let hit = second.iter().filter(|lost| **lost).count();
        assert!((200..768).contains(&hit), "{hit} blocks of the object are in another zone");
        let error = a.store.read(ALL, &id("b"), 0, 3 << 20).unwrap_err();
        assert_eq!(error.code(), Code::Io, "{error}");
        let from = second.iter().position(|lost| *lost).unwrap() as u64 * BLOCK;
        assert!(a.store.read(ALL, &id("b"), 0, from).unwrap() == all[1][..from as usize]);
    }
}

/// Whoever has read an old record may come with it when a newer one has been written.
#[test]
fn no_record_is_kept_that_became_old_while_it_was_read() {
    for family in [Family::Collections, Family::Onodes, Family::Extents, Family::Blobs] {
        for deletes in [false, true] {
            let a = new(options(), Exec::Inline);
            does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(600 << 10, 1)));
            // Only the key-value store has the records, and the cache has others'.
            for n in 0..40 {
                does(&a.store, |t| _ = t.touch(ALL, &id(&n.to_string())));
                a.store.stat(ALL, &id(&n.to_string())).unwrap();
            }
            let half = CollectionId { seed: 1, ..ALL };
            does(&a.store, |t| _ = t.split_collection(ALL, half));
            does(&a.store, |t| _ = t.merge_collection(half, ALL));
            let store = a.store.clone();
            a.kv.hook(family, move || {
                does(&store, |t| match (family, deletes) {
                    // Another half of it has the object.
                    (Family::Collections, _) => _ = t.split_collection(ALL, half),
                    (_, true) => _ = t.remove(ALL, &id("a")),
                    // The record of a blob changes, and so do both of extents.
                    (_, false) => _ = t.write(ALL, &id("a"), 200 << 10, &content(200 << 10, 2)),
                });
            });
            let first = a.store.read(ALL, &id("a"), 0, u64::MAX);
            assert!(a.kv.hook.lock().unwrap().is_none(), "{family:?} was not got");
            let mut now = content(600 << 10, 1);
            now[200 << 10..400 << 10].copy_from_slice(&content(200 << 10, 2));
            // The object did not change when its collection did: a read may be before that.
            let first = Some(first).filter(|_| family != Family::Collections);
            for read in first.into_iter().chain([a.store.read(ALL, &id("a"), 0, u64::MAX)]) {
                match (family, deletes) {
                    (Family::Collections, _) | (_, true) => {
                        assert_eq!(read.map_err(|error| error.code()).err(), Some(Code::NotFound), "{family:?}");
                    }
                    (_, false) => assert!(read.unwrap() == now, "{family:?}"),
                }
            }
            fine(&a.store);
        }
    }
}

#[test]
fn what_the_cleaner_moves_between_two_steps_of_a_read_is_read_from_its_new_place() {
    for cache in CACHES {
        let a = new(Options { cache, defer_below: 0, ..options() }, Exec::Inline);
        let kept = content(1 << 20, 1);
        for n in 0..4 {
            does(&a.store, |t| {
                t.write(ALL, &id("a"), n << 18, &kept[(n as usize) << 18..][..256 << 10]);
                t.write(ALL, &id(&n.to_string()), 0, &content(700 << 10, n as u8));
            });
        }
        // Nothing more goes to its zones.
        does(&a.store, |t| _ = t.write(ALL, &id("rest"), 0, &content(8 << 20, 9)));
        does(&a.store, |t| (0..4).for_each(|n| _ = t.remove(ALL, &id(&n.to_string()))));
        let (store, moved) = (a.store.clone(), Arc::new(Mutex::new(0)));
        let by = moved.clone();
        a.kv.hook(Family::Blobs, move || {
            *by.lock().unwrap() = store.clean(64 << 20).unwrap();
            store.sync().unwrap();
        });
        assert!(a.store.read(ALL, &id("a"), 0, 1 << 20).unwrap() == kept);
        assert!(*moved.lock().unwrap() >= 512 << 10, "{moved:?}");
        assert!(a.store.read(ALL, &id("a"), 0, 1 << 20).unwrap() == kept);
        fine(&a.store);
    }
}

#[test]
fn clones_and_what_was_overwritten_since_are_read_as_they_were() {
    for cache in CACHES {
        let a = new(Options { cache, ..options() }, Exec::Inline);
        let mut rng = ChaCha8Rng::seed_from_u64(cache);
        let mut now = content(1 << 20, 1);
        does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &now));
        let mut all = Vec::new();
        for n in 0..6 {
            does(&a.store, |t| _ = t.clone_object(ALL, &id("a"), &id(&format!("snap{n}"))));
            all.push(now.clone());
            for _ in 0..8 {
                let (at, len) = (rng.random_range(0..255usize) * 4096, rng.random_range(1..50_000));
                let new = content(len.min((1 << 20) - at as u64), rng.random());
                now[at..at + new.len()].copy_from_slice(&new);
                let mut t = Transaction::new();
                t.write(ALL, &id("a"), at as u64, &new);
                a.store.queue(t).unwrap();
            }
            for (m, of) in all.iter().enumerate() {
                assert!(a.store.read(ALL, &id(&format!("snap{m}")), 0, u64::MAX).unwrap() == *of, "{m} of {n}");
            }
            assert!(a.store.read(ALL, &id("a"), 0, u64::MAX).unwrap() == now);
        }
        fine(&a.store);
    }
}

/// Holes, deferred bytes, compressed ones, long ones, those that no commit has written yet; any range of them.
#[test]
fn any_range_of_any_mixture_is_what_was_written() {
    for (cache, seed) in CACHES.into_iter().zip(1..) {
        for compression in [Compression::Off, Compression::Lz4] {
            let a = new(Options { cache, compression, ..options() }, Exec::Inline);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let size = 3u64 << 20;
            let mut now = vec![0; size as usize];
            does(&a.store, |t| _ = t.touch(ALL, &id("a")).truncate(ALL, &id("a"), size));
            let mut memory = AlignedBuf::zeroed(size as usize);
            for n in 0..120 {
                let at = rng.random_range(0..size) / if rng.random() { 1 } else { BLOCK }
                    * if n % 2 > 0 { BLOCK } else { 1 };
                let at = at % size;
                let len = [3000, 4096, 20_000, 300_000][n % 4].min(size - at);
                let mut t = Transaction::new();
                let bytes = match n % 5 {
                    0 => {
                        t.zero(ALL, &id("a"), at, len);
                        vec![0; len as usize]
                    }
                    1 => vec![n as u8; len as usize],
                    _ => content(len, n as u8),
                };
                if n % 5 > 0 {
                    t.write(ALL, &id("a"), at, &bytes);
                }
                now[at as usize..(at + len) as usize].copy_from_slice(&bytes);
                a.store.queue(t).unwrap();
                match n % 11 {
                    3 => a.store.sync().unwrap(),
                    7 => _ = a.store.pack().unwrap(),
                    _ => {}
                }
                let begin = rng.random_range(0..size);
                let (begin, end) = (begin, begin + rng.random_range(0..2u64 << 20));
                let (begin, end) = if n % 3 == 0 { (begin / BLOCK * BLOCK, end / BLOCK * BLOCK) } else { (begin, end) };
                let wanted = &now[begin as usize..end.clamp(begin, size) as usize];
                assert!(a.store.read(ALL, &id("a"), begin, end.saturating_sub(begin)).unwrap() == wanted, "{n}");
                memory.fill(7);
                let to = &mut memory[..end.saturating_sub(begin).min(size) as usize];
                let got = a.store.read_into(ALL, &id("a"), begin, to).unwrap();
                assert!(to[..got] == wanted[..got] && got == wanted.len().min(to.len()), "{n}");
                assert!(to[got..].iter().all(|byte| *byte == 7), "{n}: bytes behind the end were touched");
            }
            fine(&a.store);
        }
    }
}

#[test]
fn what_is_in_the_cache_is_not_asked_for_and_its_counts_do_not_wait() {
    let a = new(Options { cache: 16 << 20, defer_below: 0, ..options() }, Exec::Inline);
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(4 << 20, 1)));
    a.commands("a", 0, &content(4 << 20, 1));
    let (first, _) = (a.store.usage().cache, a.kv.gets());
    assert!(first.misses >= 4 && first.bytes > 1000, "{first:?}");
    a.commands("a", 0, &content(4 << 20, 1));
    let second = a.store.usage().cache;
    // A collection, an onode, 15 spans, 16 blobs.
    assert_eq!((a.kv.gets(), second.misses, second.hits - first.hits), (0, first.misses, 33));
    assert!(a.store.read(ALL, &id("none"), 0, 1).is_err() && a.store.read(ALL, &id("none"), 0, 1).is_err());
    assert_eq!(a.kv.gets(), 1, "that there is no such object is known as well");
    a.kv.far.store(true, Ordering::Relaxed);
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 1 << 20, &content(4096, 2)));
    assert_eq!(a.store.usage().uncounted, 0);
    // That record was just written, and the cache has it no more.
    does(&a.store, |t| _ = t.write(ALL, &id("a"), (1 << 20) + 8192, &content(4096, 2)));
    assert!(a.store.usage().uncounted > 0);
    a.store.pack().unwrap();
    fine(&a.store);
}

/// Records of blobs that stand side by side are asked for together, and those of clones, which do not, one by one.
#[test]
fn many_records_are_read_in_one_pass() {
    let a = new(Options { cache: 16 << 20, defer_below: 0, ..options() }, Exec::Inline);
    for n in 0..256 {
        does(&a.store, |t| _ = t.write(ALL, &id("a"), n * BLOCK, &content(4096, n as u8)));
        // Each has blobs of its own between.
        does(&a.store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &content(65 << 10, 5)));
    }
    for n in 0..100 {
        does(&a.store, |t| _ = t.clone_range(ALL, &id(&n.to_string()), &id("b"), (0, BLOCK, n * BLOCK)));
    }
    a.kv.gets();
    let all: Vec<u8> = (0..256).flat_map(|n| content(4096, n as u8)).collect();
    a.commands("a", 0, &all);
    let gets = a.kv.gets();
    assert!(gets <= 8, "{gets}");
    let all: Vec<u8> = (0..100).flat_map(|_| content(4096, 5)).collect();
    a.commands("b", 0, &all);
    assert!(a.kv.gets() <= 110);
}

/// Writers, readers and a cleaner at once, on a drive that reads with the help of threads. An object is always of one version, all of it.
#[test]
fn everybody_at_once_reads_whole_versions() {
    let rounds = 60;
    for cache in CACHES {
        let config = Config { capacity: 48 << 20, zone_size: 1 << 20, zone_capacity: 1 << 20, ..large() };
        let a = on(config, Options { cache, defer_below: 32 << 10, ..options() }, Exec::Threads(1));
        let version = |n: u8| content(700 << 10, n);
        let name = |n: usize| id(&format!("object {n}"));
        (0..4).for_each(|n| does(&a.store, |t| _ = t.write(ALL, &name(n), 0, &version(0))));
        let over = AtomicBool::new(false);
        let (store, over) = (&a.store, &over);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|w| {
                    scope.spawn(move || {
                        for n in 1..=rounds {
                            let mut t = Transaction::new();
                            let bytes = version(n);
                            // In pieces that are deferred and others, of both of its objects.
                            for object in [w, w + 2] {
                                for (at, piece) in bytes.chunks(60 << 10).enumerate() {
                                    let (short, long) = piece.split_at(piece.len().min(9000));
                                    t.write(ALL, &name(object), (at * (60 << 10)) as u64, short);
                                    t.write(ALL, &name(object), (at * (60 << 10) + short.len()) as u64, long);
                                }
                            }
                            store.queue(t).unwrap();
                        }
                    })
                })
                .collect();
            for r in 0..2u64 {
                scope.spawn(move || {
                    let mut rng = ChaCha8Rng::seed_from_u64(r);
                    let mut last = [0u8; 4];
                    while !over.load(Ordering::Relaxed) {
                        let n = rng.random_range(0..4);
                        let found = store.read(ALL, &name(n), 0, u64::MAX).unwrap();
                        let is = (last[n]..=rounds).find(|of| found == version(*of));
                        last[n] = is.expect("one version, and none older than what was read before");
                    }
                });
            }
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    store.clean(2 << 20).unwrap();
                    store.pack().unwrap();
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok));
        });
        (0..4).for_each(|n| assert!(store.read(ALL, &name(n), 0, u64::MAX).unwrap() == version(rounds)));
        fine(store);
    }
}
