//! Damage of the memory that a dead process left: what is not what was appended is dropped and told, never replayed.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions};
use imbrex_device::{Drive, Fill, HeapSurvivor, Region, Result, Survivor, SurvivorKey};
use imbrex_emulator::{Config, Emulator};
use std::sync::{Arc, Mutex};

/// A survivor whose contents a test can change between two processes.
#[derive(Default)]
struct Memory {
    heap: HeapSurvivor,
    key: Mutex<Option<SurvivorKey>>,
    instead: Mutex<Option<Vec<u8>>>,
}

impl Survivor for Memory {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        let instead = self.instead.lock().unwrap().take();
        if instead.is_some() { Ok(instead) } else { self.heap.left_behind(key) }
    }
    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        *self.key.lock().unwrap() = Some(*key);
        self.heap.create_filled(key, capacity, fill)
    }
    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        self.heap.discard(volume)
    }
}

const SYNCED: usize = 1000;
const ALL: usize = 31_000;

/// A process with a synced beginning of a log, appended bytes, and a directory that is only in memory, dies. The next one
/// finds its memory as `change` made it.
fn killed(change: impl FnOnce(&mut [u8])) -> Drive {
    let survivor = Arc::new(Memory::default());
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator), survivor: Some(survivor.clone()) };
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
    log.append(&bytes(ALL, 1)[..SYNCED]).unwrap();
    log.sync().unwrap();
    log.append(&bytes(ALL, 1)[SYNCED..]).unwrap();
    fs.mkdir("/only-in-memory").unwrap();
    std::mem::forget((log, fs));
    let key = survivor.key.lock().unwrap().unwrap();
    let mut left = survivor.heap.left_behind(&key).unwrap().unwrap();
    change(&mut left);
    *survivor.instead.lock().unwrap() = Some(left);
    drive
}

fn place_of(region: &[u8], what: &[u8]) -> usize {
    region.windows(what.len()).position(|bytes| bytes == what).expect("in memory")
}

/// Mounts, looks, and mounts again.
fn told(drive: Drive, log: &[u8], directory: bool) -> Vec<String> {
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let damage = fs.mount_report().damage.clone();
    let look = |fs: &BlueFs| {
        assert!(read_all(fs, "/000001.log") == log, "{} bytes", fs.stat("/000001.log").unwrap().size);
        assert_eq!(fs.stat("/only-in-memory").is_ok(), directory);
        // What the mount told a check tells again; there is nothing else.
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, fs.mount_report().damage);
    };
    look(&fs);
    drop(fs);
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert_eq!(fs.mount_report().damage, Vec::<String>::new());
    look(&fs);
    damage
}

#[test]
fn whole_memory_is_replayed() {
    assert_eq!(told(killed(|_| {}), &bytes(ALL, 1), true), Vec::<String>::new());
}

#[test]
fn a_flipped_bit_in_memory_cuts_the_file_before_it_and_is_told() {
    for at in [SYNCED, SYNCED + 7777, ALL - 32] {
        let what = &bytes(ALL, 1)[at..at + 32];
        let drive = killed(|left| left[place_of(left, what) + 5] ^= 0x10);
        let damage = told(drive, &bytes(ALL, 1)[..SYNCED], true);
        assert!(damage.len() == 1 && damage[0].contains("/000001.log") && damage[0].contains("dropped"), "{damage:?}");
    }
}

#[test]
fn a_flipped_bit_in_the_journals_memory_makes_up_no_metadata() {
    let drive = killed(|left| left[place_of(left, b"only-in-memory") + 3] ^= 1);
    let damage = told(drive, &bytes(ALL, 1), false);
    assert!(damage.iter().any(|what| what.contains("Records that a dead process left in memory")), "{damage:?}");
}

#[test]
fn what_another_version_left_is_not_thrown_away() {
    let drive = killed(|left| left[8] = 99);
    let why = BlueFs::mount(drive.clone(), options()).err().unwrap().to_string();
    assert!(why.contains("another version of Imbrex"), "{why}");
}
