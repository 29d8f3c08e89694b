//! Our store on a drive in this process. What an OSD asks its store for in a write is one transaction: the object's bytes and attributes, and a record in the log of its collection, which is trimmed.

use super::super::hosts::Disk;
use super::super::images::bands;
use super::super::virtual_clock::why;
use super::super::{Rule, Run, Stop};
use super::load::{Job, Loaded, Moment, Pattern, Requests};
use super::{CAPACITY, Host, METADATA};
use crate::process::cpu_seconds;
use imbrex_bluestore::{BlueStore, CollectionId, ObjectId, Survives, Transaction};
use imbrex_device::{Drive, HeapSurvivor, ZonedDevice};
use imbrex_emulator::Emulator;
use imbrex_emulator::time::Pace;
use imbrex_image::Images;
use imbrex_store::{Db, MetadataIn, Options, Store};
use imbrex_zones::VolumeOptions;
use rand::seq::SliceRandom;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const MIB: usize = 1 << 20;
/// Longest command of an image, and the longest object of `store-ceph`.
const LONGEST: usize = 4 * MIB;
const MEMTABLE: usize = 64 * MIB;
const SURVIVOR: usize = 3 * MEMTABLE;
const CACHE: u64 = 512 << 20;
const POOL: i64 = 7;
/// A pool has eight collections, as the OSD's has placement groups.
const BITS: u8 = 3;
const COLLECTIONS: usize = 1 << BITS;
/// Records of a log.
const LOG: u64 = 3000 / COLLECTIONS as u64;
const LOST: &str = "what was written is not there; look into that first";

/// What a store may have, in words.
pub(crate) fn memory() -> String {
    format!("memtable {} MiB, cache {} MiB, {} MiB for what is on its way", MEMTABLE / MIB, CACHE >> 20, SURVIVOR / MIB)
}

/// A drive in memory that keeps time by itself, and how the store has it.
pub(crate) struct Medium {
    emulator: Emulator,
    device: Arc<dyn ZonedDevice>,
    survivor: Arc<HeapSurvivor>,
}

impl Medium {
    /// Of so many bytes, or as large as it is. A plain disk is cut into bands.
    pub(crate) fn new(run: &Run, disk: &Disk, capacity: Option<u64>) -> Result<Medium, Stop> {
        let config = disk.config_of(1, capacity, None)?;
        let emulator = Emulator::memory(&config).map_err(why)?;
        emulator.keep_own_time(Pace::Real { speed: run.speed(Rule::Fewer) }).map_err(why)?;
        if let Some(extents) = disk.preconditioned {
            emulator.precondition(extents as usize).map_err(why)?;
        }
        let device: Arc<dyn ZonedDevice> = match config.conventional == config.zones() {
            true => Arc::new(bands(&emulator, config.zone_size)?),
            false => Arc::new(emulator.clone()),
        };
        Ok(Medium { emulator, device, survivor: Arc::new(HeapSurvivor::default()) })
    }

    fn drive(&self) -> Drive {
        Drive { device: self.device.clone(), survivor: Some(self.survivor.clone()) }
    }

    fn now(&self, processor: f64) -> Moment {
        Moment::of(self.emulator.stats().total, self.emulator.time().as_ref(), processor)
    }
}

pub(crate) struct Ours {
    /// `None`: it could not be opened again.
    store: Option<Store>,
    objects: Medium,
    /// The drive with the metadata, where that is another one.
    db: Option<Medium>,
    /// The next record of each log.
    logged: [AtomicU64; COLLECTIONS],
    noise: Vec<u8>,
}

fn options() -> Options {
    let metadata = imbrex_kv::Options { memtable_bytes: MEMTABLE, cache_bytes: CACHE, ..imbrex_kv::Options::default() };
    let volume = VolumeOptions { survivor_bytes: SURVIVOR, ..VolumeOptions::default() };
    Options { metadata, volume, ..Options::default() }
}

fn collection(number: usize) -> CollectionId {
    CollectionId { pool: POOL, seed: number as u32 }
}

fn object(job: &Job, number: u64) -> (usize, ObjectId) {
    let id = ObjectId::new(POOL, b"", format!("{}_object{number}", job.prefix).as_bytes());
    (id.hash as usize % COLLECTIONS, id)
}

impl Ours {
    pub(super) fn start(run: &Run, disk: &Disk) -> Result<Ours, Stop> {
        Ours::on(Medium::new(run, disk, Some(CAPACITY))?, None, MetadataIn::Kv, LONGEST)
    }

    /// A new store on these drives, of objects of so many bytes at most.
    pub(crate) fn on(objects: Medium, db: Option<Medium>, metadata: MetadataIn, longest: usize) -> Result<Ours, Stop> {
        match &db {
            None => Store::format_with(&objects.drive(), metadata, None, false),
            Some(db) => Store::format_apart(&objects.drive(), &db.drive(), metadata, None, false),
        }
        .map_err(why)?;
        let mut noise = vec![0; longest];
        ChaCha8Rng::seed_from_u64(7).fill_bytes(&mut noise);
        let logged = [(); COLLECTIONS].map(|()| AtomicU64::new(0));
        let mut ours = Ours { store: None, objects, db, logged, noise };
        ours.open()?;
        let mut all = Transaction::new();
        for number in 0..COLLECTIONS {
            all.create_collection(collection(number), BITS);
        }
        ours.store()?.commit(all).map_err(why)?;
        Ok(ours)
    }

    fn open(&mut self) -> Result<(), Stop> {
        let db = self.db.as_ref().map(|db| Db::of_drive(db.drive()));
        self.store = Some(Store::open(self.objects.drive(), Options { db, ..options() }).map_err(why)?);
        Ok(())
    }

    fn store(&self) -> Result<&Store, Stop> {
        self.store.as_ref().ok_or_else(|| "there is no store any more".into())
    }

    fn images(&self) -> Result<Images, Stop> {
        Images::open(BlueStore::clone(self.store()?), ()).map_err(why)
    }

    /// So many bytes of an image that was written in order, from a multiple of that on.
    fn in_order(&self, at: u64, len: usize) -> &[u8] {
        let from = at as usize % self.noise.len();
        &self.noise[from..from + len]
    }

    /// An object's bytes: those of all, behind its number.
    fn fill(&self, number: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.noise[..out.len()]);
        out[..8].copy_from_slice(&number.to_le_bytes());
    }

    fn write(&self, job: &Job, number: u64, bytes: &mut [u8]) -> Result<(), Stop> {
        let (place, id) = object(job, number);
        let of = collection(place);
        self.fill(number, bytes);
        let mut one = Transaction::new();
        one.write(of, &id, 0, bytes).set_attributes(of, &id, &[(b"_", &[7; 250]), (b"snapset", &[7; 35])]);
        let log = ObjectId { hash: place as u32, ..ObjectId::new(POOL, b"log", b"") };
        let record = self.logged[place].fetch_add(1, Ordering::Relaxed);
        one.omap_set(of, &log, &[(&record.to_be_bytes(), &[7; 180])]);
        if let Some(old) = record.checked_sub(LOG) {
            one.omap_remove(of, &log, &[&old.to_be_bytes()]);
        }
        self.store()?.commit(one).map_err(why)
    }

    /// An object with its metadata, which are an attribute, and nothing else.
    fn write_new(&self, job: &Job, number: u64, bytes: &mut [u8]) -> Result<(), Stop> {
        let (place, id) = object(job, number);
        let of = collection(place);
        self.fill(number, bytes);
        let mut one = Transaction::new();
        one.write(of, &id, 0, bytes).set_attributes(of, &id, &[(b"_", &[7; METADATA])]);
        self.store()?.commit(one).map_err(why)
    }

    fn read(&self, job: &Job, number: u64, bytes: &mut [u8]) -> Result<(), Stop> {
        let (place, id) = object(job, number);
        let known = self.store()?.stat(collection(place), &id).map_err(why)?.attributes.len();
        let read = self.store()?.read_into(collection(place), &id, 0, bytes).map_err(why)?;
        let good = known == 2 && read == bytes.len();
        match good && bytes[..8] == number.to_le_bytes() && bytes[8..] == self.noise[8..bytes.len()] {
            true => Ok(()),
            false => Err(LOST.into()),
        }
    }

    /// Does this to each object of these numbers.
    fn each(
        &self,
        run: &Run,
        job: &Job,
        order: &[u64],
        act: impl Fn(u64, &mut [u8]) -> Result<(), Stop> + Sync,
    ) -> Result<Loaded, Stop> {
        let next = AtomicU64::new(0);
        self.threads(run, (job.seconds, job.at_once, job.size as usize), |_, bytes| {
            match order.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                Some(number) => act(*number, bytes).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// So many threads do this again and again for so many seconds, or until it says that there is no more. Each has a buffer of so many bytes.
    fn threads(
        &self,
        run: &Run,
        (seconds, at_once, size): (f64, usize, usize),
        act: impl Fn(&mut ChaCha8Rng, &mut [u8]) -> Result<bool, Stop> + Sync,
    ) -> Result<Loaded, Stop> {
        let (before, begun, act, stopped) = (self.now()?, Instant::now(), &act, &run.interrupted);
        let one = |thread: usize| {
            let (mut random, mut bytes) = (ChaCha8Rng::seed_from_u64(thread as u64), vec![0; size]);
            let mut ended = Vec::new();
            loop {
                let since = begun.elapsed().as_secs_f64();
                if stopped.load(Ordering::Relaxed) {
                    return Err(Stop::Interrupted);
                }
                if since >= seconds || !act(&mut random, &mut bytes)? {
                    return Ok(ended);
                }
                let now = begun.elapsed().as_secs_f64();
                ended.push((now, now - since));
            }
        };
        let ended = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|thread| scope.spawn(move || one(thread))).collect();
            threads.into_iter().try_fold(Vec::new(), |mut all, thread| {
                all.extend(thread.join().map_err(|_| Stop::Failed("a client has panicked".into()))??);
                Ok::<_, Stop>(all)
            })
        })?;
        let meanwhile = self.now()?.since(&before);
        let seconds = ended.iter().map(|(at, _)| *at).fold(0.0, f64::max);
        Ok(Loaded { seconds, operations: ended.len() as u64, ended, meanwhile })
    }
}

impl Host for Ours {
    fn load(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop> {
        let mut order: Vec<u64> = (0..job.objects).collect();
        if !job.writes {
            order.shuffle(&mut ChaCha8Rng::seed_from_u64(7));
        }
        self.each(run, job, &order, |number, bytes| match job.writes {
            true => self.write(job, number, bytes),
            false => self.read(job, number, bytes),
        })
    }

    fn create(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop> {
        let order: Vec<u64> = (0..job.objects).collect();
        let loaded = self.each(run, job, &order, |number, bytes| self.write_new(job, number, bytes))?;
        for number in 0..loaded.operations {
            let (place, id) = object(job, number);
            let is = self.store()?.stat(collection(place), &id).map_err(why)?;
            if is.size != job.size || is.attributes.values().map(Vec::len).sum::<usize>() != METADATA {
                return Err(LOST.into());
            }
        }
        Ok(loaded)
    }

    fn reopen(&mut self, _: &Run) -> Result<(), Stop> {
        drop(self.store.take());
        self.open()
    }

    fn image(&mut self, run: &Run, name: &str, bytes: u64, written: bool) -> Result<(), Stop> {
        let images = self.images()?;
        images.create(name, bytes).map_err(why)?;
        let image = images.image(name, false).map_err(why)?;
        for at in (0..if written { bytes } else { 0 }).step_by(self.noise.len()) {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            image.write(at, &self.noise, Survives::Power).map_err(why)?;
        }
        Ok(())
    }

    fn requests(&mut self, run: &Run, image: &str, requests: &Requests) -> Result<Loaded, Stop> {
        let image = self.images()?.image(image, false).map_err(why)?;
        let Requests { pattern, size, at_once, seconds, bytes } = *requests;
        let (count, len, next) = (bytes / size, size as usize, AtomicU64::new(0));
        self.threads(run, (seconds, at_once, len), |random, bytes| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(false);
            }
            let at = number * size;
            match pattern {
                Pattern::Reads => {
                    image.read(at, bytes).map_err(why)?;
                    if *bytes != *self.in_order(at, len) {
                        return Err(LOST.into());
                    }
                }
                Pattern::Writes => image.write(at, self.in_order(at, len), Survives::Power).map_err(why)?,
                Pattern::Random => {
                    let from = random.random_range(0..=self.noise.len() - len);
                    let at = random.random_range(0..count) * size;
                    image.write(at, &self.noise[from..from + len], Survives::Power).map_err(why)?;
                }
            }
            Ok(true)
        })
    }

    fn settle(&mut self) -> Result<(), Stop> {
        while self.store()?.pack().map_err(why)? {}
        self.store()?.sync().map_err(why)
    }

    fn now(&self) -> Result<Moment, Stop> {
        let processor = cpu_seconds(std::process::id()).unwrap_or(0.0);
        let db = self.db.as_ref().map(|db| Box::new(db.now(0.0)));
        Ok(Moment { db, ..self.objects.now(processor) })
    }
}
