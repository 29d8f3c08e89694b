//! Tests only: `libimbrex_faults.so`, the whole C API and a drive in memory that fails when it is told to.
//!
//! A test of what RocksDB or LevelDB make of a drive's errors links this library in the place of `libimbrex.so`, so nothing
//! of it is in what users get. A process has one such drive ([`imbrex_faults_make`]), which lasts as long as the process and
//! can be mounted again and again; faults are armed from outside, at the moment when the work that they are to hit begins.
//! The functions are for tests: what cannot happen in one ends the process with a sentence.

#![allow(non_camel_case_types)]

mod device;

use device::{Faulty, Kind, Plan};
use imbrex::imbrex_fs;
use imbrex_bluefs::{BlueFs, Options};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator, Overrides};
use std::process::abort;
use std::sync::{Arc, OnceLock};

static DRIVE: OnceLock<Drive> = OnceLock::new();
static PLAN: Plan = Plan::new();

/// The test cannot go on.
fn die(what: &str, why: impl std::fmt::Display) -> ! {
    eprintln!("imbrex_faults: {what}: {why}");
    abort()
}

fn options() -> Options {
    let mut options = Options { cache_bytes: 0, journal_bytes: 256 << 10, ..Options::default() };
    options.volume.survivor_bytes = 8 << 20;
    options
}

/// Makes the drive of this process, formatted: 1 GiB in zones of 1 MiB, `conventional` of them conventional; with 0, it is
/// as an NVMe SSD. Without a cache, so that what a database reads is read from the drive. To be called once.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_faults_make(conventional: u32) {
    let overrides = Overrides { capacity: Some(1 << 30), conventional: Some(conventional), ..Overrides::default() };
    let config = Config::named("tiny", &overrides).unwrap_or_else(|why| die("the drive's profile", why));
    let emulator = Emulator::memory(&config).unwrap_or_else(|why| die("making the drive", why));
    let device = Arc::new(Faulty::new(Arc::new(emulator), &PLAN));
    let drive = Drive { device, survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap_or_else(|why| die("formatting the drive", why));
    if DRIVE.set(drive).is_err() {
        die("imbrex_faults_make", "there is a drive already");
    }
}

fn mount() -> Result<BlueFs, imbrex_bluefs::Error> {
    let drive = DRIVE.get().unwrap_or_else(|| die("mounting", "make the drive first"));
    BlueFs::mount(drive.clone(), options())
}

/// Mounts the drive; the handle is closed like any other. NULL, with a sentence on standard error, where that fails.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_faults_mount() -> *mut imbrex_fs {
    mount().map(imbrex_fs::from).map_or_else(
        |why| {
            eprintln!("mounting: {why}");
            std::ptr::null_mut()
        },
        |fs| Box::into_raw(Box::new(fs)),
    )
}

/// From now on the commands that a fault of this kind can hit are counted; the first `skip` pass, the next `times` are hit.
/// What was armed before is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_faults_arm(kind: u32, skip: u64, times: u64) {
    let kind = Kind::of(kind).unwrap_or_else(|| die("arming a fault", format!("there is no kind {kind}")));
    PLAN.arm(kind, skip, times);
}

/// No more faults; returns how many commands were hit since they were armed.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_faults_disarm() -> u64 {
    PLAN.disarm()
}

/// Commands that were hit since a fault was armed.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_faults_hits() -> u64 {
    PLAN.hits()
}

/// Mounts the drive, which nobody may use, and looks through all of it as `imbrex fs check` does. Returns the number of
/// problems, each told on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_faults_check() -> u64 {
    let problems = mount()
        .and_then(|fs| fs.check(|_, _| ()))
        .map_or_else(|why| vec![format!("cannot be checked: {why}")], |report| report.problems);
    for problem in &problems {
        eprintln!("fs check: {problem}");
    }
    problems.len() as u64
}
