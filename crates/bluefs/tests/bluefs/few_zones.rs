//! Drives of few zones under what RocksDB's `db_stress` makes of one: many small logs that live long, tables of mixed sizes that come and
//! go, a MANIFEST that is synced with each of them, and more and more live bytes.
//!
//! Held against a file system without zones, `tmpfs` of the same size, which takes a file's bytes in whole pages and has nothing
//! else to account for: with so much of the drive alive it never says that there is no space, and so must this. Every byte that was
//! accepted is there, now and after the next mount.

use crate::support::{bytes, bytes_from, read_all};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, Error, Options, Writer};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Logs that are alive, and open, at a time.
const LOGS: usize = 40;
/// Tables that are written at a time.
const AT_ONCE: usize = 4;
/// Bytes that `tmpfs` gives out at a time.
const PAGE: u64 = 4096;

/// A drive, and how large its tables and logs are beside its zones.
#[derive(Clone, Copy)]
struct Shape {
    /// Sequential zones.
    zones: u32,
    zone_size: u64,
    conventional: u32,
    /// Tables that are alive at a time, once the drive is as full as it gets.
    tables: u64,
    /// A log is replaced once in so many rounds.
    log_lives: u32,
}

impl Shape {
    /// With room for the conventional zones that hold the label and the small files, which count on no side.
    fn usual(zones: u32, zone_size: u64) -> Shape {
        Shape { zones, zone_size, conventional: 4, tables: 100, log_lives: 40 }
    }

    fn capacity(self) -> u64 {
        u64::from(self.zones) * self.zone_size
    }

    fn machine(self) -> Drive {
        let Shape { zone_size, conventional, .. } = self;
        let capacity = self.capacity() + u64::from(conventional) * zone_size;
        let config =
            Config { capacity, zone_size, zone_capacity: zone_size, conventional, max_open: None, ..Config::tiny() };
        let emulator = Emulator::memory(&config).unwrap();
        let drive = Drive { device: Arc::new(emulator), survivor: Some(Arc::new(HeapSurvivor::new())) };
        BlueFs::format(&drive, false).unwrap();
        drive
    }
}

/// A file that is known by its seed and length.
struct Known {
    path: String,
    seed: u8,
    len: usize,
}

impl Known {
    /// What comes next.
    fn more(&mut self, n: usize) -> Vec<u8> {
        let next = bytes_from(self.len, n, self.seed);
        self.len += n;
        next
    }

    fn pages(&self) -> u64 {
        (self.len as u64).next_multiple_of(PAGE)
    }

    fn check(&self, fs: &BlueFs) {
        assert!(read_all(fs, &self.path) == bytes(self.len, self.seed), "{} has other bytes", self.path);
    }
}

/// A file that is open for writing.
struct Growing {
    file: Known,
    writer: Writer,
    /// How long it is to be.
    size: usize,
    number: usize,
}

impl Growing {
    fn grow(&mut self, n: usize) -> Result<(), Error> {
        let next = self.file.more(n);
        self.writer.append(&next)
    }
}

struct Database {
    fs: BlueFs,
    rng: ChaCha8Rng,
    /// Bytes that are alive in the end.
    most: u64,
    shape: Shape,
    next: usize,
    logs: Vec<Growing>,
    manifest: Growing,
    writing: Vec<Growing>,
    tables: BTreeMap<usize, Known>,
}

impl Database {
    fn new(drive: &Drive, shape: Shape, most: u64, seed: u64) -> Database {
        let options = Options { segment_bytes: 64 << 10, ..crate::support::options() };
        let fs =
            BlueFs::mount(Drive { device: drive.device.clone(), survivor: drive.survivor.clone() }, options).unwrap();
        let manifest = begin(&fs, "/MANIFEST-000001".into(), 1, usize::MAX).unwrap();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (logs, writing) = (Vec::new(), Vec::new());
        Database { fs, rng, most, shape, next: 2, logs, manifest, writing, tables: BTreeMap::new() }
    }

    /// Bytes that are alive, as `tmpfs` counts them.
    fn live(&self) -> u64 {
        let open = self.logs.iter().chain(&self.writing).chain([&self.manifest]).map(|growing| growing.file.pages());
        open.chain(self.tables.values().map(Known::pages)).sum()
    }

    fn number(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// One round: every log may grow, tables are written piece by piece, and what is too much is deleted. `most`: bytes that may live.
    fn round(&mut self, most: u64) -> Result<(), Error> {
        for log in &mut self.logs {
            if self.rng.random_ratio(1, 4) {
                log.grow(self.rng.random_range(20..3000))?;
            }
            if self.rng.random_ratio(1, 200) {
                log.writer.sync()?;
            }
        }
        while self.logs.len() < LOGS || self.rng.random_ratio(1, self.shape.log_lives) {
            if self.logs.len() >= LOGS {
                let mut old = self.logs.remove(0);
                old.writer.close()?;
                self.fs.unlink(&old.file.path)?;
            }
            let n = self.number();
            let mut log = begin(&self.fs, format!("/{n:06}.log"), n, usize::MAX)?;
            log.grow(self.rng.random_range(20..3000))?;
            self.logs.push(log);
        }
        while self.writing.len() < AT_ONCE {
            let n = self.number();
            // Most are small; a few are as large as eight usual ones.
            let usual = (self.most / self.shape.tables) as usize;
            let size = usual * [1, 2, 4, 8, 8, 12, 16, 64][self.rng.random_range(0..8usize)] / 16 + n % 5000 + 1;
            let table = begin(&self.fs, format!("/{n:06}.sst"), n, size)?;
            table.writer.set_hint([0, 3, 3, 4, 5][self.rng.random_range(0..5usize)])?;
            self.writing.push(table);
        }
        for table in &mut self.writing {
            let n = self.rng.random_range(1..150_000).min(table.size - table.file.len);
            table.grow(n)?;
        }
        while let Some(i) = self.writing.iter().position(|table| table.file.len == table.size) {
            let mut table = self.writing.remove(i);
            table.writer.sync()?;
            table.writer.close()?;
            self.manifest.grow(self.rng.random_range(50..400))?;
            self.manifest.writer.sync()?;
            self.tables.insert(table.number, table.file);
        }
        while self.live() > most && !self.tables.is_empty() {
            let i = self.rng.random_range(0..self.tables.len());
            let key = *self.tables.keys().nth(i).unwrap();
            let old = self.tables.remove(&key).unwrap();
            self.fs.unlink(&old.path)?;
        }
        while self.fs.step()? {}
        Ok(())
    }

    /// More and more lives, and then as many tables as are alive are written once more.
    fn fill(&mut self) -> Result<(), Error> {
        let full = self.most;
        let mut most = full / 30;
        while most < full {
            self.round(most)?;
            most += full / (5 * self.shape.tables);
        }
        let before = self.next;
        while self.next < before + self.shape.tables as usize {
            self.round(full)?;
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = &Known> {
        let open = self.logs.iter().chain(&self.writing).chain([&self.manifest]).map(|growing| &growing.file);
        open.chain(self.tables.values())
    }
}

fn begin(fs: &BlueFs, path: String, seed: usize, size: usize) -> Result<Growing, Error> {
    let writer = fs.create(&path, CreateOptions::default())?;
    Ok(Growing { file: Known { path, seed: seed as u8, len: 0 }, writer, size, number: seed })
}

fn three_fifths_fit(shape: Shape, seeds: u64) {
    so_much_fits(shape, 60, seeds);
}

/// So many percent of the drive's bytes are alive in the end.
fn so_much_fits(shape: Shape, percent: u64, seeds: u64) {
    for seed in 0..seeds {
        let drive = shape.machine();
        let capacity = shape.capacity();
        let mut db = Database::new(&drive, shape, capacity * percent / 100, seed);
        if let Err(why) = db.fill() {
            assert_eq!(why.code(), Code::NoSpace, "{why}");
            let (live, space) = (db.live() * 100 / capacity, db.fs.space());
            panic!("{} zones, seed {seed}: no space with {live} % alive, {space:?}: {why}", shape.zones);
        }
        db.files().for_each(|file| file.check(&db.fs));
        assert_eq!(db.fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        let files: Vec<Known> = {
            let Database { logs, writing, manifest, tables, fs, .. } = db;
            drop(fs);
            let open = logs.into_iter().chain(writing).chain([manifest]).map(|growing| growing.file);
            open.chain(tables.into_values()).collect()
        };
        let fs = BlueFs::mount(drive, crate::support::options()).unwrap();
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        files.iter().for_each(|file| file.check(&fs));
    }
}

/// Logs, of which some are open, are moved together where a table takes all the room there is; who reads them notices nothing.
#[test]
fn logs_that_are_moved_read_the_same_through_every_handle() {
    let drive = Shape::usual(24, 256 << 10).machine();
    let fs = BlueFs::mount(drive, crate::support::options()).unwrap();
    let mut logs: Vec<Growing> = (0..6).map(|n| begin(&fs, format!("/{n:06}.log"), n, usize::MAX).unwrap()).collect();
    for round in 0..20 {
        for log in &mut logs {
            log.grow(100 + round).unwrap();
            log.writer.sync().unwrap();
        }
    }
    let zones = |logs: &[Growing]| -> BTreeSet<u32> {
        logs.iter().flat_map(|log| fs.runs(&log.file.path).unwrap()).filter_map(|run| run.zone).collect()
    };
    let before = zones(&logs);
    let held: Vec<_> = logs.iter().map(|log| fs.open_read(&log.file.path).unwrap()).collect();
    let read = |logs: &[Growing]| {
        for (reader, log) in held.iter().zip(logs) {
            let mut out = vec![0; log.file.len];
            assert_eq!(reader.read_at(0, &mut out).unwrap(), out.len());
            assert!(out == bytes(log.file.len, log.file.seed), "{}", log.file.path);
        }
    };
    read(&logs);
    logs.truncate(4);
    let mut table = begin(&fs, "/table.sst".into(), 7, usize::MAX).unwrap();
    while table.grow(10_000).is_ok() {}
    let after = zones(&logs);
    assert!(before.len() >= 6 && after.len() < 3, "in zones {before:?}, then {after:?}");
    read(&logs);
    // What the drive takes from a log that left its zone stands elsewhere.
    drop(table);
    fs.unlink("/table.sst").unwrap();
    logs.iter_mut().for_each(|log| log.grow(5000).unwrap());
    read(&logs);
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

/// Closed logs of a few bytes, each in a zone that has room for no table, are hardly less free space than none, before a table has been
/// refused and after; and a table of as many bytes as the drive says is taken.
#[test]
fn what_moving_logs_would_free_is_free() {
    let drive = Shape::usual(24, 256 << 10).machine();
    let fs = BlueFs::mount(drive, crate::support::options()).unwrap();
    let empty = fs.space().free;
    let mut logs: Vec<Growing> = (0..8).map(|n| begin(&fs, format!("/{n:06}.log"), n, usize::MAX).unwrap()).collect();
    for log in &mut logs {
        log.grow(3000).unwrap();
        log.writer.sync().unwrap();
    }
    assert!(fs.space().free + 6 * (256 << 10) < empty, "each has a zone while it is written");
    logs.iter_mut().for_each(|log| log.writer.close().unwrap());
    assert!(fs.space().free + 3 * (256 << 10) > empty, "{:?}, and {empty} before", fs.space());
    for round in 0..3 {
        let free = fs.space().free as usize;
        let mut table = begin(&fs, format!("/{round}.sst"), 9, free).unwrap();
        table.grow(free).unwrap();
        table.writer.close().unwrap();
        table.file.check(&fs);
        let mut more = begin(&fs, "/more.sst".into(), 1, usize::MAX).unwrap();
        while more.grow(9999).is_ok() {}
        drop(more);
        fs.unlink("/more.sst").unwrap();
        fs.unlink(&table.file.path).unwrap();
        assert!(fs.space().free + 3 * (256 << 10) > empty, "round {round}: {:?}, and {empty} before", fs.space());
    }
    logs.iter().for_each(|log| log.file.check(&fs));
}

#[test]
fn three_fifths_of_24_zones_fit() {
    three_fifths_fit(Shape::usual(24, 4 << 20), 3);
}

#[test]
fn three_fifths_of_64_zones_fit() {
    three_fifths_fit(Shape::usual(64, 2 << 20), 3);
}

#[test]
fn three_fifths_of_256_zones_fit() {
    three_fifths_fit(Shape::usual(256, 512 << 10), 3);
}

/// Zones that are large beside tables and logs, and none of them conventional: label, journal and reserve take six of them, and live bytes most of
/// the rest.
#[test]
fn three_fifths_of_24_large_zones_fit() {
    three_fifths_fit(Shape { zones: 24, zone_size: 8 << 20, conventional: 0, tables: 900, log_lives: 5 }, 2);
}

/// Where one zone is more than a hundredth of the drive, what is kept back and what lies dead between live bytes counts: zones are squeezed before
/// anybody is refused.
#[test]
fn six_sevenths_of_72_zones_fit() {
    so_much_fits(Shape::usual(72, 2 << 20), 86, 3);
}
