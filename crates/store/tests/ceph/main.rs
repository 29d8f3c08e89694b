//! What an OSD of Ceph does to its object store, done to ours. `scripts/test-ceph` records it; without a recording only the reader of it is tested.

#[path = "../../../bluestore/tests/support/mod.rs"]
mod support;

mod hostile;
mod journal;
mod librados;
mod overwrites;
mod replay;
mod tree;

use imbrex_bluestore::Compression;
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{Options, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions};
use journal::{Entry, Op};
use replay::{PROGRESS, Translator, came_to, progress};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::Model;
use tree::Tree;

/// A GiB in zones of 4 MiB.
fn config() -> Config {
    Config { zone_size: 4 << 20, zone_capacity: 4 << 20, capacity: 1 << 30, conventional: 4, ..support::config() }
}

fn options(compression: Compression) -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata = imbrex_kv::Options { memtable_bytes: 1 << 20, ..imbrex_kv::Options::default() };
    let store = imbrex_bluestore::Options { compression, pack_from: 1 << 20, ..imbrex_bluestore::Options::default() };
    Options { store, metadata, volume, ..Options::default() }
}

fn opened(emulator: &Emulator, compression: Compression) -> Store {
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Store::open(drive, options(compression)).unwrap()
}

fn new_store(compression: Compression) -> (Emulator, Store) {
    let emulator = Emulator::memory(&config()).unwrap();
    Store::format(&Drive { device: Arc::new(emulator.clone()), survivor: None }, Some([9; 16]), false).unwrap();
    let store = opened(&emulator, compression);
    (emulator, store)
}

fn checked(store: &Store) {
    let report = store.check_all(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

/// The first thing that is not the same.
fn same(found: &Model, should: &Model) {
    assert_eq!(found.collections, should.collections);
    let names = |model: &Model| model.objects.keys().map(|id| format!("{id} {id:?}")).collect::<Vec<_>>();
    let (is, must) = (names(found), names(should));
    let odd: Vec<&String> =
        is.iter().filter(|id| !must.contains(id)).chain(must.iter().filter(|id| !is.contains(id))).collect();
    assert!(odd.is_empty(), "in one of them only: {odd:#?}");
    for (id, content) in &found.objects {
        let other = &should.objects[id];
        let at = content.bytes.iter().zip(&other.bytes).position(|(a, b)| a != b);
        assert!(content.bytes == other.bytes, "{id}: {} bytes of {}, {at:?}", content.bytes.len(), other.bytes.len());
        assert_eq!(content.attributes, other.attributes, "{id}");
        assert_eq!((&content.omap, &content.header), (&other.omap, &other.header), "{id}");
    }
}

struct Recording {
    before: Tree,
    after: Tree,
    entries: Vec<Entry>,
}

impl Recording {
    fn read(path: &Path) -> Recording {
        let journal = std::fs::read(path.join("journal")).unwrap();
        let entries = journal::entries(&journal).unwrap();
        // What Ceph's own reader of the journal says of it.
        let dump = std::fs::read(path.join("journal.json")).unwrap();
        let count = |what: &[u8]| dump.windows(what.len()).filter(|found| *found == what).count();
        assert_eq!(entries.len(), count(b"{\"offset\":"));
        assert_eq!(entries.iter().map(|entry| entry.ops.len()).sum::<usize>(), count(b"{\"op_num\":"));
        let [before, after] = ["before", "after"].map(|tree| tree::read(&path.join(tree)).unwrap());
        Recording { before, after, entries }
    }

    fn queue(&self, store: &Store, entry: &Entry, translator: &mut Translator) {
        let mut t = Transaction::new();
        translator.translate(&entry.ops, &mut t);
        t.omap_set(PROGRESS, &progress(), &[(b"number", &entry.number.to_le_bytes())]);
        store.queue(t).unwrap_or_else(|error| panic!("entry {}: {error}, {:?}", entry.number, entry.ops));
    }

    /// Does it all, and is as FileStore was. Power fails at some moments, and it goes on with what was lost.
    fn replay(&self, compression: Compression, crashes: usize) {
        let (mut emulator, mut store) = new_store(compression);
        store.commit(replay::beginning(&self.before)).unwrap();
        let mut translator = Translator::of(&self.before);
        // As it was behind each entry.
        let (mut known, mut durable) = (BTreeMap::from([(0, translator.clone())]), 0);
        let crash_at: Vec<usize> = (1..=crashes).map(|n| self.entries.len() * n / (crashes + 1)).collect();
        let (mut at, mut next) = (0, crash_at.iter());
        let mut due = next.next();
        while at < self.entries.len() {
            let entry = &self.entries[at];
            known.insert(entry.number - 1, translator.clone());
            self.queue(&store, entry, &mut translator);
            at += 1;
            if at.is_multiple_of(17) {
                store.sync().unwrap();
                durable = entry.number;
            }
            if due.is_some_and(|due| *due <= at) {
                due = next.next();
                let lost = emulator.after_power_loss(at as u64).unwrap();
                drop(store);
                emulator = lost;
                store = opened(&emulator, compression);
                checked(&store);
                let there = came_to(&store);
                assert!((durable..=entry.number).contains(&there), "{there} of {durable} to {}", entry.number);
                at = self.entries.iter().position(|entry| entry.number > there).unwrap_or(self.entries.len());
                translator = known.get(&there).cloned().unwrap_or(translator);
            }
        }
        for _ in 0..2 {
            checked(&store);
            let mut found = Model::of(&store).unwrap();
            found.collections.remove(&PROGRESS);
            found.objects.remove(&progress());
            same(&found, &replay::model(&self.after));
            drop(store);
            store = opened(&emulator, compression);
        }
    }
}

/// Where a recording is. `scripts/test-ceph` makes it, and says so where it cannot; without one there is nothing to compare.
fn given(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

#[test]
fn recorded_transactions() {
    let Some(path) = given("IMBREX_CEPH_RECORDING") else { return };
    let recording = Recording::read(&path);
    let has = |of: fn(&Op) -> bool| recording.entries.iter().flat_map(|entry| &entry.ops).filter(|op| of(op)).count();
    let (writes, clones) = (has(|op| matches!(op, Op::Write(..))), has(|op| matches!(op, Op::Clone(..))));
    let splits = has(|op| matches!(op, Op::Split { .. }));
    assert!(writes > 100 && clones > 0 && splits > 0, "{writes} {clones} {splits}");
    recording.replay(Compression::Off, 0);
    recording.replay(Compression::Lz4, 12);
    recording.replay(Compression::Off, 40);
    let objects: usize = recording.after.values().map(|(_, objects)| objects.len()).sum();
    let operations: usize = recording.entries.iter().map(|entry| entry.ops.len()).sum();
    println!(
        "recording: {} transactions with {operations} operations ({writes} writes, {clones} clones, {splits} divisions), {objects} objects, 52 power losses",
        recording.entries.len()
    );
}
