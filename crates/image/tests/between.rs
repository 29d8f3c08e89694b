//! What comes between two steps of something, or fails in the middle of it: others who write, remove, snapshot; commands of the drive; a second opening; hostile records.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_bluestore::{BlueStore, Change, CollectionId, Family, KeyValue, NAME, Pair};
use imbrex_device::{Code, Drive, Error, Result};
use imbrex_emulator::{Config, Emulator};
use imbrex_image::{Images, Survives};
use imbrex_zones::{Exec, Volume, VolumeOptions};
use std::cell::RefCell;
use std::io::Write;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const ORDER: u8 = 13;
const PIECE: u64 = 1 << ORDER;
type Act = Box<dyn FnOnce() -> Result<()> + Send>;

/// Does something behind the nth look-up of a family.
#[derive(Clone, Default)]
struct Trap(Arc<Mutex<Option<Set>>>);

/// Of which family, whether of pairs, how many times before, and what is done then.
type Set = (Family, bool, usize, Act);

impl Trap {
    fn set(&self, family: Family, pairs: bool, nth: usize, act: impl FnOnce() -> Result<()> + Send + 'static) {
        *self.0.lock().unwrap() = Some((family, pairs, nth, Box::new(act)));
    }
    fn came(&self, family: Family, pairs: bool) -> Result<()> {
        let act = {
            let mut set = self.0.lock().unwrap();
            match &mut *set {
                Some((of, p, nth, _)) if *of == family && *p == pairs => {
                    *nth -= 1;
                    if *nth == 0 { set.take().map(|set| set.3) } else { None }
                }
                _ => None,
            }
        };
        act.map_or(Ok(()), |act| act())
    }
    fn is_set(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

struct Trapped(support::MapStore, Trap);

impl KeyValue for Trapped {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.0.get(family, key);
        self.1.came(family, false)?;
        found
    }
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        let found = self.0.pairs(family, from, to, most);
        self.1.came(family, true)?;
        found
    }
    fn write(&self, changes: &[Change]) -> Result<()> {
        self.1.came(Family::Statistics, true)?;
        self.0.write(changes)
    }
    fn sync(&self) -> Result<()> {
        self.1.came(Family::Super, true)?;
        self.0.sync()
    }
}

fn drive(capacity: u64) -> Drive {
    let config = Config { capacity, ..support::config() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    support::format(&drive).unwrap();
    drive
}

/// Where it is full nothing has room, not even what becomes smaller within a block.
fn open(drive: &Drive) -> (BlueStore, Images, Trap) {
    open_with(drive, imbrex_bluestore::Options { full: 100, ..support::options() })
}

fn open_with(drive: &Drive, options: imbrex_bluestore::Options) -> (BlueStore, Images, Trap) {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() };
    let volume = Volume::open(drive.clone(), volume).unwrap();
    let trap = Trap::default();
    let kv = Trapped(support::MapStore::open(&volume).unwrap(), trap.clone());
    let store = BlueStore::open(&volume.tenant(NAME).unwrap(), Arc::new(kv), options).unwrap();
    let images = Images::open(store.clone(), ()).unwrap();
    (store, images, trap)
}

thread_local! {
    static OTHERS: RefCell<Vec<JoinHandle<()>>> = const { RefCell::new(Vec::new()) };
}

/// Somebody else does it now, if he may; else when he may.
fn on_thread(images: &Images, work: impl FnOnce(&Images) + Send + 'static) {
    let (images, (done, ended)) = (images.clone(), channel());
    let other = std::thread::spawn(move || {
        work(&images);
        drop(images);
        let _ = done.send(());
    });
    let _ = ended.recv_timeout(Duration::from_millis(200));
    OTHERS.with_borrow_mut(|others| others.push(other));
}

/// The others have ended.
fn ended() {
    OTHERS.take().into_iter().for_each(|other| other.join().unwrap());
}

fn read(images: &Images, name: &str, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![9; len];
    images.image(name, true).unwrap().read(at, &mut out).unwrap();
    out
}

/// Reading of a snapshot while the image is first written behind it.
#[test]
fn snapshot_read_against_first_write() {
    let drive = drive(64 << 20);
    let (store, images, trap) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    let a = images.image("a", false).unwrap();
    a.write(0, &[1; 4096], Survives::Power).unwrap();
    images.snapshot("a", "s").unwrap();
    store.sync().unwrap();
    let s = images.image("a@s", true).unwrap();
    let other = images.clone();
    // Behind `stat` of the head that `find` has chosen.
    trap.set(Family::Onodes, false, 1, move || {
        on_thread(&other, |images| {
            images.image("a", false).unwrap().write(0, &[2; 4096], Survives::Process).unwrap();
        });
        Ok(())
    });
    let mut out = [0; 4096];
    s.read(0, &mut out).unwrap();
    ended();
    assert!(!trap.is_set());
    assert_eq!(out[0], 1, "the snapshot has a byte that was written after it");
}

/// A clone's first write against the parent's first write: for good.
#[test]
fn clone_copies_against_first_write_of_parent() {
    let drive = drive(64 << 20);
    let (store, images, trap) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    images.image("a", false).unwrap().write(0, &[1; 8192], Survives::Power).unwrap();
    images.snapshot("a", "s").unwrap();
    images.clone_image("a", "s", "c").unwrap();
    store.sync().unwrap();
    let c = images.image("c", false).unwrap();
    let other = images.clone();
    // epochs(head of c), and then epochs(head of a) in `find`.
    trap.set(Family::Onodes, false, 2, move || {
        on_thread(&other, |images| {
            images.image("a", false).unwrap().write(0, &[2; 8192], Survives::Process).unwrap();
        });
        Ok(())
    });
    c.write(0, &[3; 512], Survives::Power).unwrap();
    ended();
    assert!(!trap.is_set());
    drop((c, store, images));
    let (_store, images, _) = open(&drive);
    assert_eq!(read(&images, "a@s", 4096, 1)[0], 1);
    assert_eq!(
        read(&images, "c", 4096, 1)[0],
        1,
        "the clone has a byte that was written to its parent behind the snapshot"
    );
}

/// Flatten.
#[test]
fn flatten_against_first_write_of_parent() {
    let drive = drive(64 << 20);
    let (store, images, trap) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    images.image("a", false).unwrap().write(0, &[1; 8192], Survives::Power).unwrap();
    images.snapshot("a", "s").unwrap();
    images.clone_image("a", "s", "c").unwrap();
    store.sync().unwrap();
    let c = images.image("c", true).unwrap();
    let other = images.clone();
    trap.set(Family::Onodes, false, 3, move || {
        on_thread(&other, |images| {
            images.image("a", false).unwrap().write(0, &[2; 8192], Survives::Process).unwrap();
        });
        Ok(())
    });
    images.flatten("c").unwrap();
    ended();
    assert!(!trap.is_set());
    drop((c, store, images));
    let (_store, images, _) = open(&drive);
    assert_eq!(
        read(&images, "c", 4096, 1)[0],
        1,
        "the flattened clone has a byte that was written to its parent behind the snapshot"
    );
}

struct Then<F: FnMut(usize)>(Vec<u8>, F);
impl<F: FnMut(usize)> Write for Then<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend(bytes);
        let n = self.0.len();
        (self.1)(n);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// export_diff of a snapshot that goes meanwhile ends well, with other bytes.
#[test]
fn export_of_a_snapshot_that_is_removed() {
    let drive = drive(64 << 20);
    let (_store, images, _) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    let a = images.image("a", false).unwrap();
    a.write(0, &[1; 4 * PIECE as usize], Survives::Power).unwrap();
    images.snapshot("a", "s").unwrap();
    a.write(0, &[2; 4 * PIECE as usize], Survives::Power).unwrap();
    let mut full = Vec::new();
    images.export_diff("a", None, Some("s"), &mut full).unwrap();
    let other = images.clone();
    let mut done = false;
    let mut out = Then(Vec::new(), move |len| {
        if len > 8192 && !done {
            done = true;
            other.remove_snapshot("a", "s").unwrap();
        }
    });
    let said = images.export_diff("a", None, Some("s"), &mut out);
    assert!(
        said.is_err() || out.0 == full,
        "export_diff said Ok, {} bytes of {}, with twos: {}",
        out.0.len(),
        full.len(),
        out.0.contains(&2)
    );
}

/// Of an image that is removed.
#[test]
fn export_of_an_image_that_is_removed() {
    let drive = drive(64 << 20);
    let (_store, images, _) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    images.image("a", false).unwrap().write(0, &[1; 4 * PIECE as usize], Survives::Power).unwrap();
    let mut full = Vec::new();
    images.export_diff("a", None, None, &mut full).unwrap();
    let other = images.clone();
    let mut done = false;
    let mut out = Then(Vec::new(), move |len| {
        if len > 8192 && !done {
            done = true;
            other.remove("a").unwrap();
        }
    });
    let said = images.export_diff("a", None, None, &mut out);
    assert!(said.is_err() || out.0 == full, "export_diff said Ok, {} bytes of {}", out.0.len(), full.len());
}

/// `Images::open` twice on a store, which two calls of imbrex_images_open() of one URI do.
#[test]
fn two_openings_of_one_store() {
    let drive = drive(64 << 20);
    let (store, images, _) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    let a = images.image("a", false).unwrap();
    images.snapshot("a", "r").unwrap();
    a.write(0, &[1; 4096], Survives::Power).unwrap();
    let second = Images::open(store.clone(), ()).unwrap();
    second.snapshot("a", "s").unwrap();
    a.write(0, &[2; 4096], Survives::Power).unwrap();
    assert_eq!(read(&second, "a@s", 0, 1)[0], 1, "a snapshot has changed");
}

fn fill(store: &BlueStore) {
    fill_to(store, b"x");
}

fn fill_to(store: &BlueStore, name: &[u8]) {
    use imbrex_bluestore::{ObjectId, Transaction};
    // Until it is full, in another collection.
    let all = CollectionId { pool: 7, seed: 0 };
    let mut t = Transaction::new();
    t.create_collection(all, 0);
    let _ = store.commit(t);
    let id = ObjectId { pool: 7, hash: 0, namespace: Vec::new(), name: name.to_vec(), snap: 0, generation: 0 };
    let mut at = 0;
    for len in [64 << 10, 16 << 10, 4 << 10] {
        loop {
            let mut t = Transaction::new();
            t.write(all, &id, at, &vec![7; len]);
            match store.commit(t) {
                Ok(()) => at += len as u64,
                Err(error) if error.code() == Code::NoSpace => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    store.pack().unwrap();
    for len in [16 << 10, 4 << 10] {
        loop {
            let mut t = Transaction::new();
            t.write(all, &id, at, &vec![7; len]);
            match store.commit(t) {
                Ok(()) => at += len as u64,
                Err(error) if error.code() == Code::NoSpace => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    eprintln!("filled {at}");
}

fn unfill(store: &BlueStore) {
    use imbrex_bluestore::{ObjectId, Transaction};
    let all = CollectionId { pool: 7, seed: 0 };
    let id = ObjectId { pool: 7, hash: 0, namespace: Vec::new(), name: b"x".to_vec(), snap: 0, generation: 0 };
    let mut t = Transaction::new();
    t.remove(all, &id);
    store.commit(t).unwrap();
}

/// A smaller size on a full drive fails in the middle; then a larger one shows what was there.
#[test]
fn shrink_that_fails_and_then_grow() {
    let drive = drive(14 << 20);
    let (store, images, _) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    images.image("a", false).unwrap().write(0, &[1; 4 * PIECE as usize], Survives::Power).unwrap();
    fill(&store);
    let reader = images.image("a", true).unwrap();
    let said = images.resize("a", PIECE + 100);
    eprintln!("resize: {said:?}, size {}", images.info("a").unwrap().size);
    assert_eq!(said.unwrap_err().code(), Code::NoSpace);
    unfill(&store);
    images.resize("a", 4 * PIECE).unwrap();
    let found = read(&images, "a", 0, 4 * PIECE as usize);
    let same = found == vec![1; 4 * PIECE as usize];
    let cut = found[PIECE as usize + 100..].iter().all(|b| *b == 0);
    eprintln!("all as before: {same}; zeros behind the smaller size: {cut}");
    drop(reader);
    assert!(cut, "the image was smaller, and what was behind its end is there again");
}

/// And an opening on the full drive cannot read the image at all.
#[test]
fn shrink_that_fails_and_then_an_opening() {
    let drive = drive(14 << 20);
    let (store, images, _) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    images.create_of("b", 4 * PIECE, ORDER).unwrap();
    images.image("a", false).unwrap().write(0, &[1; 4 * PIECE as usize], Survives::Power).unwrap();
    fill(&store);
    assert_eq!(images.resize("a", PIECE + 100).unwrap_err().code(), Code::NoSpace);
    store.sync().unwrap();
    drop((store, images));
    let (_store, images, _) = open(&drive);
    fill_to(&_store, b"y");
    // It can be read, and removed; what ends the change first has no room.
    assert_eq!(images.info("a").unwrap().size, PIECE + 100);
    assert_eq!(read(&images, "a", 0, 4096), [1; 4096]);
    assert_eq!(images.image("a", false).err().unwrap().code(), Code::NoSpace);
    assert_eq!(images.resize("a", 4 * PIECE).err().unwrap().code(), Code::NoSpace);
    images.remove("a").unwrap();
    assert_eq!(images.names().unwrap(), ["b"]);
}

/// A rollback that fails in the middle, by one read of the metadata that fails: what is written then is gone with the next opening.
#[test]
fn rollback_that_fails_and_then_writes() {
    let drive = drive(64 << 20);
    let (store, images, trap) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    images.image("a", false).unwrap().write(0, &[1; 4 * PIECE as usize], Survives::Power).unwrap();
    images.snapshot("a", "s").unwrap();
    images.image("a", false).unwrap().write(0, &[2; 4 * PIECE as usize], Survives::Power).unwrap();
    store.sync().unwrap();
    // Anybody who reads it, or has a clone of it open, keeps it in memory.
    let reader = images.image("a@s", true).unwrap();
    trap.set(Family::Onodes, true, 2, || Err(Error::io(&"drive".into(), std::io::Error::other("a read fails"))));
    let said = images.rollback("a", "s");
    eprintln!("{said:?}");
    assert!(said.is_err() && !trap.is_set());
    // It goes on as an image.
    images.image("a", false).unwrap().write(0, &[3; 4 * PIECE as usize], Survives::Power).unwrap();
    assert_eq!(read(&images, "a", 0, 1)[0], 3);
    drop((store, images, reader));
    let (_store, images, _) = open(&drive);
    assert_eq!(read(&images, "a", 0, 1)[0], 3, "a write that was acknowledged as durable is gone");
}

/// Clones of clones: the one too many can be made and never opened.
#[test]
fn a_long_chain_of_clones() {
    let drive = drive(64 << 20);
    let (store, images, _) = open(&drive);
    images.create_of("c0", 4 * PIECE, ORDER).unwrap();
    images.image("c0", false).unwrap().write(0, &[1; 4096], Survives::Power).unwrap();
    let mut made = 0;
    for n in 0..300 {
        let done = images
            .snapshot(&format!("c{n}"), "s")
            .and_then(|()| images.clone_image(&format!("c{n}"), "s", &format!("c{}", n + 1)));
        if let Err(error) = done {
            eprintln!("{n}: {error}");
            break;
        }
        made = n + 1;
    }
    let last = format!("c{made}");
    eprintln!("image {last} was made; remove: {:?}; flatten: {:?}", images.remove(&last), images.flatten(&last));
    drop((store, images));
    let (_store, images, _) = open(&drive);
    images.image(&last, true).map(drop).unwrap_or_else(|error| panic!("{last}: {error}"));
}

/// Changes of an image that is removed at that moment.
#[test]
fn what_comes_behind_a_removal() {
    let drive = drive(64 << 20);
    let (store, images, _trap) = open(&drive);
    let over = std::sync::atomic::AtomicBool::new(false);
    let over = &over;
    let rounds = 400;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let images = images.clone();
            scope.spawn(move || {
                let mut size = 4 * PIECE;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    size += 1;
                    let _ = images.resize("a", size);
                }
            });
        }
        for _ in 0..rounds {
            images.create_of("a", 4 * PIECE, ORDER).unwrap();
            std::thread::yield_now();
            images.remove("a").unwrap();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(images.names().unwrap().is_empty());
    assert_eq!(store.usage().objects, 1, "objects of images that were removed");
}

/// Two snapshots that go at once: what is passed to one that goes stays for ever.
#[test]
fn two_snapshots_that_go_at_once() {
    let drive = drive(64 << 20);
    let (store, images, trap) = open_with(&drive, imbrex_bluestore::Options { defer_below: 0, ..support::options() });
    images.create_of("a", 400 << 12, 12).unwrap();
    let a = images.image("a", false).unwrap();
    a.write(0, &vec![1; 400 << 12], Survives::Power).unwrap();
    for snap in ["r", "s", "t"] {
        images.snapshot("a", snap).unwrap();
    }
    a.write(0, &vec![2; 400 << 12], Survives::Power).unwrap();
    store.sync().unwrap();
    let other = images.clone();
    // "s" has looked at the first page of pieces; "t" goes, and passes what was kept for it to "s".
    trap.set(Family::Onodes, true, 3, move || {
        on_thread(&other, |images| images.remove_snapshot("a", "t").unwrap());
        Ok(())
    });
    images.remove_snapshot("a", "s").unwrap();
    ended();
    assert!(!trap.is_set());
    assert!(read(&images, "a@r", 0, 400 << 12).iter().all(|b| *b == 1));
    images.remove_snapshot("a", "r").unwrap();
    let all = store.list(CollectionId { pool: 1, seed: 0 }, None, 10000).unwrap().all;
    let old: Vec<_> = all.iter().filter(|id| id.snap != 0 && id.snap != u64::MAX).map(|id| id.snap).collect();
    assert!(old.is_empty(), "{} objects of snapshots that are gone", old.len());
}

/// An error while a snapshot goes: nobody goes on with it.
#[test]
fn a_removal_of_a_snapshot_that_fails() {
    let drive = drive(64 << 20);
    let (store, images, trap) = open(&drive);
    images.create_of("a", 4 * PIECE, ORDER).unwrap();
    let a = images.image("a", false).unwrap();
    a.write(0, &[1; 4096], Survives::Power).unwrap();
    images.snapshot("a", "s").unwrap();
    a.write(0, &[2; 4096], Survives::Power).unwrap();
    store.sync().unwrap();
    trap.set(Family::Onodes, true, 1, || Err(Error::io(&"drive".into(), std::io::Error::other("a read fails"))));
    eprintln!("{:?}", images.remove_snapshot("a", "s"));
    eprintln!("again: {:?}", images.remove_snapshot("a", "s"));
    let reader = images.image("a", true).unwrap();
    drop(a);
    let said = images.remove("a");
    drop(reader);
    said.unwrap();
}

/// A second control socket for the same path, as two calls of imbrex_images_open(uri, true) make: the first never ends.
#[test]
fn two_control_sockets() {
    use imbrex_image::control::Control;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let drive = drive(14 << 20);
    let (_store, images, _) = open(&drive);
    let first = Control::new(images.clone(), &path).unwrap();
    let second = Control::new(images.clone(), &path).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(first);
        tx.send(()).unwrap();
    });
    let ended = rx.recv_timeout(std::time::Duration::from_secs(5)).is_ok();
    let there = path.exists();
    std::mem::forget(second);
    assert!(ended && there, "the first ended: {ended}; the socket of the second is there: {there}");
}

/// A discard of a clone makes an object for each piece that nobody ever wrote.
#[test]
fn a_discard_of_an_empty_clone() {
    let drive = drive(64 << 20);
    let (store, images, _) = open(&drive);
    images.create_of("a", 1000 * PIECE, ORDER).unwrap();
    images.snapshot("a", "s").unwrap();
    images.clone_image("a", "s", "c").unwrap();
    let before = store.usage().objects;
    images.image("c", false).unwrap().zero(0, 1000 * PIECE, Survives::Power).unwrap();
    assert_eq!(store.usage().objects, before);
}

/// Callbacks are told once, whatever fails.
#[test]
fn callbacks_are_told_once() {
    use imbrex_bluestore::{ObjectId, Transaction};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    for round in 0..150u64 {
        let drive = drive(64 << 20);
        let (store, _images, trap) = open(&drive);
        let all = CollectionId { pool: 7, seed: 0 };
        let mut t = Transaction::new();
        t.create_collection(all, 0);
        store.commit(t).unwrap();
        if round % 3 > 0 {
            let family = if round % 3 == 1 { Family::Statistics } else { Family::Super };
            // `Super` stands for a sync, `Statistics` for a write; see below.
            trap.set(family, true, 5 + (round % 17) as usize, || {
                Err(Error::io(&"drive".into(), std::io::Error::other("it fails")))
            });
        }
        let told: Arc<Vec<(AtomicU32, AtomicU32)>> = Arc::new((0..400).map(|_| Default::default()).collect());
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (store, told, next) = (store.clone(), told.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= 400 {
                            break;
                        }
                        let id = ObjectId {
                            pool: 7,
                            hash: 0,
                            namespace: Vec::new(),
                            name: n.to_le_bytes().to_vec(),
                            snap: 0,
                            generation: 0,
                        };
                        let mut t = Transaction::new();
                        t.write(all, &id, 0, &vec![1; 1000 + (n as usize % 5) * 9000]);
                        let mine = told.clone();
                        t.on_commit(move |done| {
                            match done {
                                Ok(()) => mine[n as usize].0.fetch_add(1, Ordering::SeqCst),
                                Err(_) => mine[n as usize].1.fetch_add(1, Ordering::SeqCst),
                            };
                        });
                        let Ok(ticket) = store.queue(t) else { continue };
                        let waited = match (n + thread) % 4 {
                            0 => store.wait(ticket).map(|()| true),
                            1 => store.wait_for(ticket, Survives::Process).map(|()| false),
                            2 => store.pack().map(|_| true),
                            _ => Ok(false),
                        };
                        let _ = waited;
                    }
                });
            }
        });
        let synced = store.sync();
        for (n, (good, bad)) in told.iter().enumerate() {
            let (good, bad) = (good.load(Ordering::SeqCst), bad.load(Ordering::SeqCst));
            assert_eq!(good + bad, 1, "round {round}, {n}: {good} {bad}, {synced:?}");
            assert!(synced.is_err() || good == 1);
        }
    }
}

/// Records with a right checksum and numbers that cannot be.
#[test]
fn hostile_headers() {
    use imbrex_bluestore::{ObjectId, Transaction};
    let mut bad = Vec::new();
    for (what, size, next) in [("next", 4 * PIECE, u64::MAX), ("size", u64::MAX, 1u64)] {
        let drive = drive(64 << 20);
        let (store, images, _) = open(&drive);
        images.create_of("a", 4 * PIECE, ORDER).unwrap();
        images.image("a", false).unwrap().write(0, &[1; 4096], Survives::Power).unwrap();
        let mut record = b"imIM\x02".to_vec();
        record.push(ORDER);
        [size, next, 0].iter().for_each(|n| record.extend(n.to_le_bytes()));
        record.push(0);
        record.extend([0; 4 * 8]);
        record.extend(crc32c::crc32c(&record).to_le_bytes());
        let id = ObjectId {
            pool: 1,
            hash: 0,
            namespace: b"image".to_vec(),
            name: 1u64.to_be_bytes().to_vec(),
            snap: 0,
            generation: 0,
        };
        let mut t = Transaction::new();
        t.omap_header(CollectionId { pool: 1, seed: 0 }, &id, &record);
        store.commit(t).unwrap();
        let again = Images::open(store.clone(), ()).unwrap();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_eq!(again.snapshot("a", "s").err().unwrap().code(), Code::Corruption);
            assert_eq!(again.image("a", false).err().unwrap().code(), Code::Corruption);
        }));
        if done.is_err() {
            bad.push(what);
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// A drive that becomes full under many threads: writes are refused, and nothing else.
#[test]
fn a_full_drive_under_threads() {
    use imbrex_store::{Options, Store};
    use rand::{Rng, SeedableRng};
    let mut said = Vec::new();
    for (seed, zones) in [(0u64, 64u64), (1, 96), (2, 128), (3, 64), (4, 96)] {
        let config = Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: zones << 20, ..support::config() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        Store::format(&drive, None, false).unwrap();
        let mut options = Options::default();
        options.metadata.memtable_bytes = 1 << 20;
        let store = Store::open(drive, options).unwrap();
        let images = Images::open((*store).clone(), store.clone()).unwrap();
        images.create("a", 256 << 20).unwrap();
        let a = &images.image("a", false).unwrap();
        let (refused, others) = (std::sync::atomic::AtomicU64::new(0), Mutex::new(Vec::new()));
        let (refused_ref, others_ref) = (&refused, &others);
        std::thread::scope(|scope| {
            for me in 0..4u64 {
                scope.spawn(move || {
                    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed * 10 + me);
                    for _ in 0..3000 {
                        let len = if rng.random_bool(0.5) { 4096 } else { rng.random_range(1..300_000) };
                        let at = me * (64 << 20) + rng.random_range(0..(64 << 20) - len);
                        match a.write(at, &vec![me as u8 + 1; len as usize], Survives::Process) {
                            Ok(()) => {}
                            Err(error) if error.code() == Code::NoSpace => {
                                if refused_ref.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 60 {
                                    break;
                                }
                            }
                            Err(error) => {
                                others_ref.lock().unwrap().push(error.to_string());
                                break;
                            }
                        }
                    }
                });
            }
        });
        let zero = a.zero(0, 256 << 20, Survives::Power).map_err(|e| e.to_string());
        let write = a.write(0, &vec![1; 1 << 20], Survives::Power).map_err(|e| e.to_string());
        eprintln!(
            "{zones}: {} refused, {:?}, zero {zero:?}, write {write:?}",
            refused.load(std::sync::atomic::Ordering::Relaxed),
            others.lock().unwrap()
        );
        if !others.lock().unwrap().is_empty() || zero.is_err() || write.is_err() {
            said.push(zones);
        }
    }
    assert!(said.is_empty(), "{said:?}");
}

/// All extents of an image that are stored.
fn stored(images: &Images, name: &str) -> Vec<(u64, u64)> {
    let image = images.image(name, true).unwrap();
    let (mut all, mut at, size): (Vec<(u64, u64)>, _, _) = (Vec::new(), 0, image.size().unwrap());
    while at < size {
        let (stored, len) = image.extent(at, size - at).unwrap();
        match all.last_mut() {
            Some((_, end)) if stored && *end == at => *end += len,
            _ if stored => all.push((at, at + len)),
            _ => {}
        }
        at += len;
    }
    all
}

/// Extents are told by blocks, of snapshots and of what a parent has, too.
#[test]
fn extents_are_what_was_written() {
    const MIB: u64 = 1 << 20;
    let drive = drive(64 << 20);
    let (_, images, _) = open(&drive);
    images.create("disk", 40 * MIB).unwrap();
    let image = images.image("disk", false).unwrap();
    assert_eq!(image.extent(0, 40 * MIB).unwrap(), (false, 40 * MIB));
    for (at, len) in [(MIB, 8192), (MIB + 12288, 1), (5 * MIB - 4096, 8192), (12 * MIB - 100, 200)] {
        image.write(at, &support::content(len, 1), Survives::Process).unwrap();
    }
    let written = [
        (MIB, MIB + 8192),
        (MIB + 12288, MIB + 16384),
        (5 * MIB - 4096, 5 * MIB + 4096),
        (12 * MIB - 4096, 12 * MIB + 4096),
    ];
    // An object ends in a block that is stored as a whole.
    assert_eq!(stored(&images, "disk"), written);
    assert_eq!(image.extent(MIB + 100, 3 * MIB).unwrap(), (true, 8192 - 100));
    images.snapshot("disk", "one").unwrap();
    image.zero(MIB, 4096, Survives::Process).unwrap();
    assert_eq!(stored(&images, "disk@one"), written);
    assert_eq!(stored(&images, "disk")[0], (MIB + 4096, MIB + 8192));
    images.clone_image("disk", "one", "copy").unwrap();
    let copy = images.image("copy", false).unwrap();
    assert_eq!(stored(&images, "copy"), written);
    copy.write(2 * MIB, &support::content(4096, 2), Survives::Process).unwrap();
    assert_eq!(stored(&images, "copy")[2], (2 * MIB, 2 * MIB + 4096));
    drop(copy);
    images.resize("copy", MIB + 4096).unwrap();
    images.resize("copy", 40 * MIB).unwrap();
    assert_eq!(stored(&images, "copy"), [(MIB, MIB + 4096)]);
    assert!(image.extent(40 * MIB, 1).is_err() && image.extent(0, 0).unwrap() == (false, 0));
}
