//! A drive that is put back to an earlier state under what a later process left in shared memory: a backup image restored in
//! place. What is there is the copy, whole, and nothing of the later mount.

use crate::support::{bytes, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;

/// A drive and what it has in shared memory. A copy of one is what another process would find.
struct Machine {
    drive: Emulator,
    memory: Arc<HeapSurvivor>,
}

impl Machine {
    fn new() -> Machine {
        let drive = Emulator::memory(&Config::tiny()).unwrap();
        let machine = Machine { drive, memory: Arc::default() };
        BlueFs::format(&machine.hands(), false).unwrap();
        machine
    }

    fn hands(&self) -> Drive {
        Drive { device: Arc::new(self.drive.clone()), survivor: Some(self.memory.clone()) }
    }

    fn mount(&self) -> BlueFs {
        BlueFs::mount(self.hands(), crate::support::apart()).unwrap()
    }

    /// The image as `cp` copies it at this moment.
    fn backup(&self) -> Emulator {
        self.drive.fork().unwrap()
    }

    /// The process is killed, and the image is overwritten with a copy.
    fn killed_and_restored(&self, fs: BlueFs, backup: &Emulator) -> Machine {
        let memory = Arc::new(self.memory.snapshot());
        std::mem::forget(fs);
        Machine { drive: backup.fork().unwrap(), memory }
    }
}

fn put(fs: &BlueFs, name: &str, n: usize, seed: u8) {
    let mut file = fs.create(name, CreateOptions::default()).unwrap();
    file.append(&bytes(n, seed)).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

/// Appends to a file that stays open: its bytes are in memory only.
fn leave(fs: &BlueFs, name: &str, n: usize, seed: u8) {
    let file = fs.create(name, CreateOptions::default()).unwrap();
    file.append(&bytes(n, seed)).unwrap();
    std::mem::forget(file);
}

fn names(fs: &BlueFs) -> Vec<String> {
    fs.list("/").unwrap().into_iter().map(|entry| entry.name).collect()
}

/// The drive is exactly the copy, works, and needs no repair after that.
fn is_the_copy(machine: &Machine, files: &[(&str, usize, u8)], told: bool) {
    let fs = machine.mount();
    assert_eq!(names(&fs), files.iter().map(|(name, ..)| name[1..].to_owned()).collect::<Vec<_>>());
    for (name, n, seed) in files {
        assert!(read_all(&fs, name) == bytes(*n, *seed), "{name}");
    }
    let report = fs.mount_report();
    assert_eq!((&report.damage, report.replayed_bytes), (&vec![], 0));
    let restored = |notes: &Vec<String>| notes.iter().any(|note| note.contains("restored"));
    assert_eq!(restored(&report.notes), told, "{:?}", report.notes);
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    put(&fs, "/z.sst", 50_000, 9);
    drop(fs);
    let fs = machine.mount();
    assert_eq!((&fs.mount_report().damage, &fs.mount_report().notes), (&vec![], &vec![]));
    assert!(read_all(&fs, "/z.sst") == bytes(50_000, 9));
}

#[test]
fn a_copy_made_after_a_clean_end_is_restored_without_what_a_later_mount_left() {
    let machine = Machine::new();
    put(&machine.mount(), "/a.sst", 70_000, 1);
    let backup = machine.backup();
    let fs = machine.mount();
    fs.unlink("/a.sst").unwrap();
    leave(&fs, "/000007.log", 5, 2);
    is_the_copy(&machine.killed_and_restored(fs, &backup), &[("/a.sst", 70_000, 1)], true);
}

#[test]
fn a_copy_made_of_a_killed_drive_is_restored_with_its_own_memory_and_without_a_later_one() {
    let machine = Machine::new();
    put(&machine.mount(), "/a.sst", 70_000, 1);
    let fs = machine.mount();
    leave(&fs, "/000007.log", 50_000, 2);
    let backup = machine.backup();
    let own = machine.killed_and_restored(fs, &backup);
    // Nobody mounted it since: it is the drive that the memory belongs to.
    let fs = Machine { drive: backup.fork().unwrap(), memory: Arc::new(own.memory.snapshot()) }.mount();
    assert!(read_all(&fs, "/000007.log") == bytes(50_000, 2));
    assert_eq!(fs.mount_report().notes, Vec::<String>::new());
    drop(fs);
    // A later mount has taken the memory over, and put it on the drive that the copy replaces.
    let fs = own.mount();
    fs.unlink("/a.sst").unwrap();
    leave(&fs, "/000008.log", 5, 3);
    let restored = own.killed_and_restored(fs, &backup);
    let fs = restored.mount();
    assert_eq!(names(&fs), ["a.sst"], "what was synced when it was copied");
    assert!(read_all(&fs, "/a.sst") == bytes(70_000, 1));
    assert!(fs.mount_report().notes.iter().any(|note| note.contains("restored")), "{:?}", fs.mount_report());
}

#[test]
fn a_copy_made_of_a_mounted_drive_is_not_given_what_came_later() {
    let machine = Machine::new();
    let fs = machine.mount();
    put(&fs, "/a.sst", 70_000, 1);
    fs.sync_dir("/").unwrap();
    let backup = machine.backup();
    // Nothing has reached the drive since: the copy is that drive, and has what its process was promised.
    fs.mkdir("/in-memory").unwrap();
    let same = Machine { drive: backup.fork().unwrap(), memory: Arc::new(machine.memory.snapshot()) };
    let again = same.mount();
    assert!(again.stat("/in-memory").is_ok());
    drop(again);
    // Now it has: names first, then bytes.
    fs.sync_dir("/").unwrap();
    fs.unlink("/a.sst").unwrap();
    leave(&fs, "/000008.log", 5, 3);
    let names_later = Machine { drive: backup.fork().unwrap(), memory: Arc::new(machine.memory.snapshot()) };
    is_the_copy(&names_later, &[("/a.sst", 70_000, 1)], true);
    for n in 0..8 {
        put(&fs, &format!("/{n}.sst"), 900_000, n);
    }
    is_the_copy(&machine.killed_and_restored(fs, &backup), &[("/a.sst", 70_000, 1)], true);
}

#[test]
fn a_power_loss_of_a_restored_copy_brings_nothing_back() {
    let machine = Machine::new();
    put(&machine.mount(), "/a.sst", 70_000, 1);
    let backup = machine.backup();
    // The later mount has lost power once, as the copy will have then: their power epochs have one number.
    let lost = Machine { drive: machine.drive.after_power_loss(1).unwrap(), memory: machine.memory.clone() };
    let fs = lost.mount();
    fs.unlink("/a.sst").unwrap();
    leave(&fs, "/000007.log", 5, 2);
    let restored = lost.killed_and_restored(fs, &backup);
    let after = Machine { drive: restored.drive.after_power_loss(2).unwrap(), memory: restored.memory.clone() };
    is_the_copy(&after, &[("/a.sst", 70_000, 1)], true);
}
