//! The cleaner, step by step: at every look that it takes at the drive it stands still, while others delete, make durable, give zones back, take
//! them again and write. Whatever they do, what they have written is there.

use crate::support::{BUFFERED, bytes, config, content, drive, format, id, options};
use imbrex_chunkstore::{ChunkStore, CleaningPolicy, Durability, Options, RESERVE, StreamType, ZoneInfo, ZoneState};
use imbrex_device::{
    Cause, Drive, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState as ZoneIs, ZonedDevice,
};
use imbrex_emulator::{Config, Emulator};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Longer than anything takes that goes on at all.
const FOREVER: Duration = Duration::from_secs(60);

/// What the cleaner says to who lets it go on.
#[derive(PartialEq, Eq)]
enum Says {
    /// It is about to look at the drive.
    Looks,
    Done,
}

/// The thread that cleans.
struct Cleaner {
    thread: ThreadId,
    says: SyncSender<Says>,
    goes: Mutex<Receiver<()>>,
}

/// A drive at which one thread stands still before each of its looks for cleaning.
struct Stepped {
    drive: Emulator,
    metazones: BTreeSet<u32>,
    cleaner: Mutex<Option<Arc<Cleaner>>>,
}

impl Stepped {
    fn stand_still(&self) {
        let cleaner = self.cleaner.lock().unwrap().clone();
        if let Some(cleaner) = cleaner.filter(|cleaner| cleaner.thread == thread::current().id()) {
            cleaner.says.send(Says::Looks).unwrap();
            cleaner.goes.lock().unwrap().recv().unwrap();
        }
    }

    /// Cleans on a thread of its own, and does the same as `between` each time that it stands still. How often that was.
    fn clean(&self, store: &ChunkStore, mut between: impl FnMut(&ChunkStore)) -> usize {
        let ((says, said), (go, goes)) = (sync_channel(1), sync_channel(1));
        thread::scope(|scope| {
            let cleaner = scope.spawn(|| {
                let (done, goes) = (says.clone(), Mutex::new(goes));
                let cleaner = Cleaner { thread: thread::current().id(), says, goes };
                *self.cleaner.lock().unwrap() = Some(Arc::new(cleaner));
                let moved = store.clean(1 << 20);
                *self.cleaner.lock().unwrap() = None;
                done.send(Says::Done).unwrap();
                moved
            });
            let mut steps = 0;
            while said.recv_timeout(FOREVER).expect("the cleaner neither looks nor ends") == Says::Looks {
                steps += 1;
                between(store);
                go.send(()).unwrap();
            }
            cleaner.join().unwrap().unwrap();
            steps
        })
    }
}

impl ZonedDevice for Stepped {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let found = self.drive.report(from, out)?;
        // Of a zone that may be a victim. A datazone that is finished only now, in the middle of a commit, is not full: see `PIECES`.
        if out.len() == 1 && out[0].state == ZoneIs::Full && !self.metazones.contains(&from.0) {
            self.stand_still();
        }
        Ok(found)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        if tag.cause == Cause::Cleaning {
            self.stand_still();
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

/// Each takes an even number of blocks, and so no zone is ever filled to its last one.
const PIECES: [usize; 3] = [4000, 22_000, 37_000];

/// Chunks by number.
type Model = BTreeMap<u64, Vec<u8>>;

/// More than so many zones are free for users.
fn has_room(store: &ChunkStore, zones: u32) -> bool {
    store.stats().free_zones > RESERVE + zones
}

struct User {
    rng: ChaCha8Rng,
    next: u64,
    model: Model,
}

impl User {
    /// A new chunk of a few records, if there is room without cleaning: who finds none waits for the cleaner.
    fn write(&mut self, store: &ChunkStore) {
        if !has_room(store, 2) {
            return;
        }
        let (n, stream) = (self.next, StreamType::new(self.rng.random_range(0..2)).unwrap());
        self.next += 1;
        store.create_with(id(n), stream, Durability::Buffered).unwrap();
        self.model.insert(n, Vec::new());
        for _ in 0..self.rng.random_range(1..6) {
            self.append(store, n);
        }
    }

    fn append(&mut self, store: &ChunkStore, n: u64) {
        let piece = bytes(PIECES[self.rng.random_range(0..3)], self.rng.random::<u32>().into());
        let durable = self.rng.random_bool(0.2);
        match durable {
            true => store.append(id(n), &piece).unwrap(),
            false => store.append_with(id(n), &piece, BUFFERED).unwrap(),
        };
        self.model.get_mut(&n).unwrap().extend(piece);
    }

    fn delete(&mut self, store: &ChunkStore, n: u64) {
        store.delete_with(id(n), Durability::Buffered).unwrap();
        self.model.remove(&n);
    }

    fn any(&mut self) -> Option<u64> {
        let n = self.rng.random_range(0..self.model.len().max(1));
        self.model.keys().nth(n).copied()
    }

    /// All that is in the closed zone that is most worth cleaning, and so perhaps being cleaned.
    fn empty_a_zone(&mut self, store: &ChunkStore) {
        let zones = store.zones().into_iter().filter(|z| z.state == ZoneState::Closed && z.chunks > 0);
        let Some(zone) = zones.min_by_key(|z| z.live).map(|z| z.zone) else { return };
        let here = |n: &u64| store.places(id(*n)).unwrap().iter().any(|place| place.zone == zone);
        let gone: Vec<u64> = self.model.keys().copied().filter(here).collect();
        gone.into_iter().for_each(|n| self.delete(store, n));
    }

    fn act(&mut self, store: &ChunkStore) {
        for _ in 0..self.rng.random_range(0..5) {
            match self.rng.random_range(0..10) {
                0..2 => self.empty_a_zone(store),
                2 => store.sync().unwrap(),
                // What is to be reset is: so it is the next that is taken.
                3 => store.volume().quiesce().unwrap(),
                4 => {
                    if let Some(n) = self.any() {
                        self.delete(store, n);
                    }
                }
                5 => {
                    if let Some(n) = self.any().filter(|_| has_room(store, 2))
                        && !store.stat(id(n)).unwrap().sealed
                        && self.model[&n].len() < 150_000
                    {
                        self.append(store, n);
                    }
                }
                6 => {
                    if let Some(n) = self.any() {
                        store.seal_with(id(n), Durability::Buffered).unwrap();
                    }
                }
                _ => self.write(store),
            }
        }
    }

    fn compare(&self, store: &ChunkStore, what: &str) {
        assert_eq!(store.list(None, usize::MAX).len(), self.model.len(), "{what}");
        for (n, all) in &self.model {
            assert!(&content(store, id(*n)) == all, "{what}: chunk {n}");
        }
        assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "{what}");
    }
}

fn round(seed: u64, config: &Config) -> (usize, u64) {
    let emulator = Emulator::memory(config).unwrap();
    format(&emulator);
    let metazones = {
        let store = ChunkStore::open(drive(&emulator), options()).unwrap();
        let is_meta = |zone: &ZoneInfo| zone.usage.is_none();
        store.zones().iter().filter(|zone| is_meta(zone)).map(|zone| zone.zone).collect()
    };
    let device = Arc::new(Stepped { drive: emulator.clone(), metazones, cleaner: Mutex::default() });
    let own = Options {
        open_zones: 1,
        cleaning_policy: CleaningPolicy::Greedy,
        max_slowdown: None,
        clean_below: Some(0),
        buffer_bytes: 8 << 20,
        ..options()
    };
    let store = ChunkStore::open(Drive { device: device.clone(), survivor: None }, own).unwrap();
    let mut user = User { rng: ChaCha8Rng::seed_from_u64(seed), next: 0, model: Model::new() };
    let mut steps = 0;
    for turn in 0..12 {
        while has_room(&store, 4) {
            user.write(&store);
        }
        // Garbage is reset when somebody takes a zone.
        for _ in 0..user.model.len() / 3 {
            let n = user.any().unwrap();
            user.delete(&store, n);
        }
        store.sync().unwrap();
        user.write(&store);
        steps += device.clean(&store, |store| user.act(store));
        user.compare(&store, &format!("seed {seed}, turn {turn}"));
    }
    store.sync().unwrap();
    let cleaned = store.stats().cleaned_zones;
    drop(store);
    user.compare(&ChunkStore::open(drive(&emulator), options()).unwrap(), &format!("seed {seed}, opened again"));
    (steps, cleaned)
}

#[test]
fn whatever_others_do_between_its_steps_the_cleaner_costs_no_byte() {
    let small = Config { capacity: 32 * (256 << 10), ..config() };
    let (mut steps, mut cleaned) = (0, 0);
    for seed in imbrex_crashkit::seeds(40) {
        for write_cache in [true, false] {
            let (more, zones) = round(seed, &Config { write_cache, ..small.clone() });
            steps += more;
            cleaned += zones;
        }
    }
    println!("{steps} steps, {cleaned} zones cleaned");
    assert!(steps > 100 && cleaned > 20, "{steps} steps, {cleaned} zones cleaned");
}
