//! The scenarios of Ceph's `store_test`, by their names. `docs/store-test.md` has the list: what each asks for, and what is otherwise here.
//!
//! Each runs on stores that are plain, that compress, and that hardly have room, on which the cleaner works all the time. Each ends with a deep check, a restart, and the same bytes.

#[path = "../support/mod.rs"]
mod support;

mod blobs;
mod bytes;
mod clones;
mod collections;
mod deferred;
mod lists;
mod objects;
mod pairs;
mod synthetic;

use imbrex_bluestore::{BlueStore, CollectionId, Compression, ObjectId, Options, Transaction};
use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::sync::Arc;
use support::{Model, config, format, open_with, options};

/// What Ceph calls `meta`: the collection of an OSD's own objects.
const META: CollectionId = CollectionId { pool: -1, seed: 0 };
/// Of what fills a store beforehand.
const BALLAST: CollectionId = CollectionId { pool: 1 << 40, seed: 0 };
/// The snapshot and the generation of an object as it is now, as an OSD numbers them.
const HEAD: u64 = u64::MAX - 1;
const NO_GENERATION: u64 = u64::MAX;
const KIB: u64 = 1024;

/// An object of this pool and hash, as it is now.
fn object(pool: i64, hash: u32, name: impl AsRef<[u8]>) -> ObjectId {
    ObjectId { hash, snap: HEAD, generation: NO_GENERATION, ..ObjectId::new(pool, b"", name.as_ref()) }
}

/// An object of `meta`.
fn id(name: &str) -> ObjectId {
    object(-1, 0, name)
}

fn filled(len: u64, with: u8) -> Vec<u8> {
    vec![with; len as usize]
}

/// Bytes are overwritten, and the end moves if it must.
fn over(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    if !new.is_empty() {
        bytes.resize(bytes.len().max(at as usize + new.len()), 0);
        bytes[at as usize..at as usize + new.len()].copy_from_slice(new);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Packed,
    Full,
}

/// What a scenario has: a store, in which `meta` is.
struct Bed {
    kind: Kind,
    drive: Drive,
    options: Options,
    store: Option<BlueStore>,
    /// Transactions until now: some are waited for, most are not.
    done: u32,
    /// Bytes that were stored before the scenario began.
    before: u64,
}

/// What is done to an object, and to what is known of it.
enum Do {
    Write(u64, u64, u8),
    Zero(u64, u64),
    Truncate(u64),
    Remount,
}

/// An object, and what its bytes should be.
struct Known {
    c: CollectionId,
    id: ObjectId,
    bytes: Vec<u8>,
}

impl Known {
    fn new(c: CollectionId, id: ObjectId) -> Known {
        Known { c, id, bytes: Vec::new() }
    }
}

/// 28 zones of 2 MiB, twelve of them for metadata.
fn usual() -> Config {
    Config { zone_size: 2 << 20, zone_capacity: 2 << 20, capacity: 56 << 20, conventional: 2, ..config() }
}

/// Runs a scenario on each kind of store.
fn on_each(scenario: impl Fn(&mut Bed)) {
    for kind in [Kind::Plain, Kind::Packed, Kind::Full] {
        let mut bed = Bed::new(kind, &usual(), options());
        scenario(&mut bed);
        bed.end();
    }
}

impl Bed {
    fn new(kind: Kind, config: &Config, options: Options) -> Bed {
        let drive = Drive { device: Arc::new(Emulator::memory(config).unwrap()), survivor: None };
        format(&drive).unwrap();
        let options = match kind {
            Kind::Packed => Options { compression: Compression::Lz4, ..options },
            _ => options,
        };
        let store = Some(open_with(&drive, Exec::Inline, options).unwrap());
        let mut bed = Bed { kind, drive, options, store, done: 0, before: 0 };
        if kind == Kind::Full {
            bed.fill();
        }
        bed.before = bed.stored();
        bed.does(|t| _ = t.create_collection(META, 0));
        bed
    }

    /// Until hardly a zone is free, with a part of each zone dead.
    fn fill(&mut self) {
        self.does(|t| _ = t.create_collection(BALLAST, 0));
        let ballast = |n: u64| object(BALLAST.pool, n as u32, format!("ballast {n}"));
        let (mut n, most) = (0, self.store().usage().capacity * 3 / 4);
        while self.store().usage().stored < most {
            self.does(|t| _ = t.write(BALLAST, &ballast(n), 0, &support::content(96 * KIB, n as u8)));
            self.store().sync().unwrap();
            n += 1;
        }
        for n in (0..n).step_by(5) {
            self.does(|t| _ = t.remove(BALLAST, &ballast(n)));
        }
    }

    fn store(&self) -> &BlueStore {
        self.store.as_ref().unwrap()
    }

    /// It is queued, and seen at once. Every third is waited for.
    fn does(&mut self, what: impl FnOnce(&mut Transaction)) {
        let mut transaction = Transaction::new();
        what(&mut transaction);
        let ticket = self.store().queue(transaction).unwrap_or_else(|error| panic!("{:?}: {error}", self.kind));
        self.done += 1;
        if self.done.is_multiple_of(3) {
            self.store().wait(ticket).unwrap();
        }
    }

    /// It is refused for this reason, and changes nothing.
    fn refuses(&mut self, code: Code, what: impl FnOnce(&mut Transaction)) {
        let mut transaction = Transaction::new();
        what(&mut transaction);
        let before = Model::of(self.store()).unwrap();
        assert_eq!(self.store().queue(transaction).map_err(|error| error.code()), Err(code));
        assert!(Model::of(self.store()).unwrap() == before);
    }

    fn remount(&mut self) {
        self.store().sync().unwrap();
        self.store = None;
        self.store = Some(open_with(&self.drive, Exec::Inline, self.options).unwrap());
    }

    fn checked(&self) {
        let report = self.store().check(true).unwrap();
        assert!(report.wrong.is_empty(), "{:?}: {:#?}", self.kind, report.wrong);
    }

    fn is_there(&self, c: CollectionId, id: &ObjectId) -> bool {
        match self.store().stat(c, id) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.code(), Code::NotFound);
                false
            }
        }
    }

    fn read(&self, id: &ObjectId, offset: u64, len: u64) -> Vec<u8> {
        self.store().read(META, id, offset, len).unwrap()
    }

    fn size(&self, id: &ObjectId) -> u64 {
        self.store().stat(META, id).unwrap().size
    }

    /// All objects of a collection, by pages of so many.
    fn ids(&self, c: CollectionId, page: usize) -> Vec<ObjectId> {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let found = self.store().list(c, next.as_ref(), page).unwrap();
            assert!(found.all.len() <= page && found.next.as_ref().is_none_or(|next| Some(next) > found.all.last()));
            all.extend(found.all);
            next = found.next;
            if next.is_none() {
                assert!(all.is_sorted_by(|a, b| a < b), "in order, and none twice");
                return all;
            }
        }
    }

    /// Bytes of blocks that objects name, deferred ones among them.
    fn stored(&self) -> u64 {
        while self.store().pack().unwrap() {}
        self.store().sync().unwrap();
        let usage = self.store().usage();
        assert_eq!((usage.uncounted, usage.deferred), (0, 0));
        usage.stored
    }

    /// The same, of this scenario.
    fn took(&self) -> u64 {
        self.stored() - self.before
    }

    /// The object has these bytes, all at once and around each border that may matter.
    fn agrees(&self, known: &Known) {
        let (store, bytes) = (self.store(), &known.bytes);
        assert_eq!(store.stat(known.c, &known.id).unwrap().size, bytes.len() as u64);
        let found = store.read(known.c, &known.id, 0, u64::MAX).unwrap();
        let at = found.iter().zip(bytes).position(|(a, b)| a != b);
        assert!(found == *bytes, "{:?}: {} differs at {at:?} of {}", self.kind, known.id, found.len());
        let step = (bytes.len() as u64 / 16).max(1);
        for at in (0..bytes.len() as u64 + 1).step_by(step as usize) {
            let (from, len) = (at.saturating_sub(1), step.min(5000) + 2);
            let should = &bytes[from as usize..bytes.len().min((from + len) as usize)];
            assert!(store.read(known.c, &known.id, from, len).unwrap() == should, "{} at {from}", known.id);
        }
    }

    fn write(&mut self, known: &mut Known, at: u64, bytes: &[u8]) {
        let (c, id) = (known.c, known.id.clone());
        self.does(|t| _ = t.write(c, &id, at, bytes));
        over(&mut known.bytes, at, bytes);
    }

    /// One step after the other, each looked at.
    fn follows(&mut self, known: &mut Known, steps: &[Do]) {
        for step in steps {
            let (c, id) = (known.c, known.id.clone());
            match *step {
                Do::Write(at, len, with) => self.write(known, at, &filled(len, with)),
                Do::Zero(at, len) => {
                    self.does(|t| _ = t.zero(c, &id, at, len));
                    over(&mut known.bytes, at, &filled(len, 0));
                }
                Do::Truncate(size) => {
                    self.does(|t| _ = t.truncate(c, &id, size));
                    known.bytes.resize(size as usize, 0);
                }
                Do::Remount => self.remount(),
            }
            self.agrees(known);
        }
    }

    /// These objects are all that `meta` has. They go, and so does it.
    fn cleans(&mut self, objects: &[&ObjectId]) {
        self.does(|t| {
            objects.iter().for_each(|id| _ = t.remove(META, id));
            t.remove_collection(META);
        });
        self.takes_nothing();
    }

    /// What there was is gone, and its room with it.
    fn takes_nothing(&self) {
        assert_eq!(self.took(), 0, "{:?}", self.kind);
    }

    fn end(mut self) {
        self.checked();
        let before = Model::of(self.store()).unwrap();
        self.remount();
        assert!(Model::of(self.store()).unwrap() == before, "{:?}: a restart changed something", self.kind);
        self.checked();
    }
}
