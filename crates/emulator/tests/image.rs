//! Drives in images: what survives, who may have them, and what bad files get.

mod common;

use common::*;
use imbrex_device::{AlignedBuf, Cause, Fault, Result, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{AtRisk, Config, Emulator, Observed, Observer, OpenOptions, start_image_trace, trace_path};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const READ_ONLY: OpenOptions = OpenOptions { host_sync: false, read_only: true };

struct Place {
    _dir: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    Place { _dir: dir, path }
}

fn create(path: &Path) -> Emulator {
    Emulator::create(path, &Config::tiny(), false).unwrap()
}

fn open(path: &Path) -> Result<Emulator> {
    Emulator::open(path, OpenOptions::default())
}

/// What is said of `path` when it is opened: a sentence of `Unusable`, or of this kind of failure.
fn told(path: &Path, kind: Option<ErrorKind>) -> String {
    let error = open(path).err().expect("a bad image was opened");
    match &error.fault {
        Fault::Unusable(_) => assert_eq!(kind, None, "{error:?}"),
        Fault::Io(io) => assert_eq!(kind, Some(io.kind()), "{error:?}"),
        _ => panic!("{error:?}"),
    }
    error.to_string()
}

/// What is said of a file that is no image.
fn sentence(path: &Path) -> String {
    told(path, None)
}

/// What is said of an image that is not what it was.
fn damage(path: &Path) -> String {
    told(path, Some(ErrorKind::InvalidData))
}

#[test]
fn everything_is_there_when_it_is_opened_again() {
    let at = place();
    let drive = create(&at.path);
    write(&drive, ZoneId(1), 3, 7, 2).unwrap();
    write(&drive, ZoneId(4), 0, 8, 3).unwrap();
    drive.zone_op(ZoneOp::Open, ZoneId(5), TAG).unwrap();
    drive.flush(TAG).unwrap();
    write(&drive, ZoneId(4), 3, 9, 1).unwrap();
    write(&drive, ZoneId(1), 4, 9, 1).unwrap();
    drive.faults().make_read_only(ZoneId(6)).unwrap();
    let before = (drive.stats(), report_all(&drive).unwrap(), drive.unflushed(), drive.identity().clone());
    drop(drive);
    let drive = open(&at.path).unwrap();
    assert_eq!((drive.stats(), report_all(&drive).unwrap(), drive.unflushed()), (before.0, before.1, before.2));
    assert_eq!((drive.identity().medium, drive.identity().power_epoch), (before.3.medium, before.3.power_epoch));
    assert_eq!((bytes(&drive, ZoneId(1), 3, 2), bytes(&drive, ZoneId(4), 0, 5)), (vec![7, 9], vec![8, 8, 8, 9, 0]));
    drive.set_write_cache(false).unwrap();
    drop(drive);
    assert!(!open(&at.path).unwrap().write_cache().unwrap());
}

#[test]
fn one_process_at_a_time() {
    let at = place();
    let drive = create(&at.path);
    for options in [OpenOptions::default(), READ_ONLY] {
        let error = Emulator::open(&at.path, options).err().unwrap();
        assert!(error.to_string().contains(&format!("in use by process {} (", std::process::id())), "{error}");
    }
    let error = Emulator::create(&at.path, &Config::tiny(), true).err().unwrap();
    assert!(matches!(error.fault, Fault::Busy { .. }), "{error}");
    assert_eq!(Observer::open(&at.path).unwrap().holder(), Some(std::process::id()));
    drop(drive);
    assert_eq!(Observer::open(&at.path).unwrap().holder(), None);
    let readers = [Emulator::open(&at.path, READ_ONLY).unwrap(), Emulator::open(&at.path, READ_ONLY).unwrap()];
    assert!(matches!(open(&at.path).err().unwrap().fault, Fault::Busy { .. }));
    drop(readers);
    open(&at.path).unwrap();
}

#[test]
fn read_only_changes_nothing() {
    let at = place();
    let drive = create(&at.path);
    write(&drive, FIRST, 0, 5, 2).unwrap();
    write(&drive, ZoneId(0), 0, 5, 2).unwrap();
    drop(drive);
    let content = || {
        let mut front = vec![0; 8 << 20];
        File::open(&at.path).unwrap().read_exact_at(&mut front, 0).unwrap();
        front
    };
    let before = content();
    let drive = Emulator::open(&at.path, READ_ONLY).unwrap();
    assert_eq!(bytes(&drive, FIRST, 0, 3), [5, 5, 0]);
    assert_eq!(drive.unflushed().len(), 2);
    for zone in [FIRST, ZoneId(0)] {
        assert!(matches!(write(&drive, zone, 2, 1, 1).unwrap_err().fault, Fault::ReadOnly));
    }
    assert!(matches!(drive.zone_op(ZoneOp::Reset, FIRST, TAG).unwrap_err().fault, Fault::ReadOnly));
    assert!(drive.set_write_cache(false).is_err());
    drive.flush(TAG).unwrap();
    drive.reset_stats();
    drop(drive);
    assert!(before == content());
}

#[test]
fn a_copy_is_another_medium() {
    let at = place();
    let drive = create(&at.path);
    let medium = drive.identity().medium;
    write(&drive, FIRST, 0, 5, 2).unwrap();
    drop(drive);
    let copy = at.path.with_extension("copy");
    fs::copy(&at.path, &copy).unwrap();
    let drive = open(&copy).unwrap();
    assert_ne!(drive.identity().medium, medium);
    assert_eq!(bytes(&drive, FIRST, 0, 2), [5, 5]);
    let moved = at.path.with_extension("moved");
    fs::rename(&at.path, &moved).unwrap();
    assert_eq!(open(&moved).unwrap().identity().medium, medium);
}

#[test]
fn power_loss_of_an_image_is_that_of_memory() {
    let script = |drive: &Emulator| {
        write(drive, ZoneId(0), 0, 1, 4).unwrap();
        write(drive, FIRST, 0, 1, 4).unwrap();
        drive.flush(TAG).unwrap();
        for i in 0..5 {
            write(drive, ZoneId(0), i, 10 + i as u8, 3).unwrap();
            write(drive, FIRST, 4 + i, 10 + i as u8, 1).unwrap();
        }
    };
    let memory = Emulator::memory(&Config::tiny()).unwrap();
    script(&memory);
    let outcome = |drive: &Emulator| (bytes(drive, ZoneId(0), 0, 8), bytes(drive, FIRST, 0, 10), written(drive, FIRST));
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let at = place();
        let drive = create(&at.path);
        script(&drive);
        let epoch = drive.identity().power_epoch;
        drop(drive);
        let lost = Emulator::power_loss_image(&at.path, seed).unwrap();
        assert_eq!(lost, [AtRisk { zone: ZoneId(0), blocks: 15 }, AtRisk { zone: FIRST, blocks: 5 }]);
        let drive = open(&at.path).unwrap();
        assert_eq!(outcome(&drive), outcome(&memory.after_power_loss(seed).unwrap()), "seed {seed}");
        assert_ne!(drive.identity().power_epoch, epoch);
        assert_eq!((drive.stats().power_losses, drive.unflushed().len()), (1, 0));
        seen.insert(outcome(&drive));
    }
    assert!(seen.len() > 6, "the seeds hardly differ");
}

#[test]
fn an_image_takes_only_what_is_live() {
    let at = place();
    let config = Config { conventional: 0, cache_bytes: 0, ..Config::tiny() };
    let drive = Emulator::create(&at.path, &config, false).unwrap();
    let takes = || fs::metadata(&at.path).unwrap().blocks() * 512;
    let empty = takes();
    assert!(empty < 1 << 20, "{empty} bytes for an empty drive");
    for block in (0..256).step_by(64) {
        write(&drive, FIRST, block, 1, 64).unwrap();
    }
    assert!(takes() >= empty + (1 << 20));
    drive.zone_op(ZoneOp::Reset, FIRST, TAG).unwrap();
    assert!(takes() < empty + (64 << 10), "a reset zone still takes {} bytes", takes() - empty);
}

#[test]
fn create_asks_before_it_destroys() {
    let at = place();
    fs::write(&at.path, "precious").unwrap();
    let error = Emulator::create(&at.path, &Config::tiny(), false).err().unwrap();
    assert!(error.to_string().contains("--force"), "{error}");
    assert_eq!(fs::read(&at.path).unwrap(), b"precious");
    let drive = Emulator::create(&at.path, &Config::tiny(), true).unwrap();
    write(&drive, FIRST, 0, 1, 1).unwrap();
    drop(drive);
    let drive = Emulator::create(&at.path, &Config::tiny(), true).unwrap();
    assert_eq!((written(&drive, FIRST), bytes(&drive, FIRST, 0, 1)), (0, vec![0]));
    for (path, says) in [
        (at.path.parent().unwrap().to_owned(), "not a regular file"),
        (at.path.join("under/a/file"), "irectory"),
        (at.path.with_file_name("no/such/directory.img"), "create it first"),
    ] {
        let error = Emulator::create(&path, &Config::tiny(), true).err().unwrap();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn bad_files_get_a_sentence() {
    let at = place();
    assert!(told(&at.path, Some(ErrorKind::NotFound)).contains("imbrex drive create"));
    assert!(sentence(at.path.parent().unwrap()).contains("directory"));
    for content in ["", "#!/bin/sh\n", &"x".repeat(10_000)] {
        fs::write(&at.path, content).unwrap();
        assert!(sentence(&at.path).contains("not a drive image"), "{}", sentence(&at.path));
    }
    fs::remove_file(&at.path).unwrap();
    drop(create(&at.path));
    let file = File::options().write(true).read(true).open(&at.path).unwrap();
    let len = file.metadata().unwrap().len();
    for cut in [1, 1 << 20, len - 5000, len - 100] {
        let copy = at.path.with_extension("cut");
        fs::copy(&at.path, &copy).unwrap();
        File::options().write(true).open(&copy).unwrap().set_len(len - cut).unwrap();
        assert!(damage(&copy).contains("truncated"), "{}", damage(&copy));
        assert!(Observer::open(&copy).is_err());
    }
    let mut version = [0; 4];
    file.read_exact_at(&mut version, 8).unwrap();
    file.write_all_at(&[99, 0, 0, 0], 8).unwrap();
    assert!(sentence(&at.path).contains("newer version"));
    file.write_all_at(&version, 8).unwrap();
    file.write_all_at(&[1], 100).unwrap();
    assert!(damage(&at.path).contains("header"));
    file.set_len(1000).unwrap();
    assert!(damage(&at.path).contains("inside its header"));
}

#[test]
fn flipped_bits_in_the_state_are_found() {
    let at = place();
    let drive = create(&at.path);
    write(&drive, ZoneId(0), 0, 3, 2).unwrap();
    drop(drive);
    let file = File::options().write(true).read(true).open(&at.path).unwrap();
    let flip = |at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    };
    // Epoch, write cache, first and last zone of the table.
    for (place, says) in [(4096, "epoch"), (4104, "write cache"), (8192, "zone 0"), (8192 + 63 * 16 + 9, "zone 63")] {
        flip(place);
        assert!(damage(&at.path).contains(says), "{}", damage(&at.path));
        flip(place);
    }
    // The pre-image of the unflushed conventional write is the first thing in the ring.
    let ring = (8192 + 64 * 16 + 8 * (64 * 32 + 64) as u64).next_multiple_of(4096);
    for place in [ring, ring + 20, ring + 64, ring + 8000] {
        flip(place);
        assert!(damage(&at.path).contains("pre-image"), "{}", damage(&at.path));
        flip(place);
    }
    assert_eq!(bytes(&open(&at.path).unwrap(), ZoneId(0), 0, 2), [3, 3]);
}

#[test]
fn permissions_are_explained() {
    let at = place();
    drop(create(&at.path));
    fs::set_permissions(&at.path, fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(&at.path).is_ok() {
        eprintln!("skipped: this user may open everything");
        return;
    }
    assert!(told(&at.path, Some(ErrorKind::PermissionDenied)).contains("no permission"));
}

#[test]
fn looking_needs_no_lock_and_sees_the_present() {
    let at = place();
    let drive = create(&at.path);
    let observed = Observed::open(&at.path).unwrap();
    let seen = Observer::open(&at.path).unwrap();
    write(&drive, FIRST, 0, 1, 2).unwrap();
    assert_eq!((seen.stats().writes, seen.stats().bytes_written), (1, 8192));
    let zone = seen.zones()[FIRST.0 as usize];
    assert_eq!((zone.state, zone.wp), (ZoneState::ImplicitlyOpen, Some(8192)));
    assert_eq!(seen.unflushed(), drive.unflushed());
    assert_eq!(seen.config().profile, "tiny");
    // So does one that reads, and refuses all else.
    let (start, tag) = (drive.geometry().start(FIRST), Cause::Other.into());
    let (mut wanted, mut found) = (AlignedBuf::zeroed(8192), AlignedBuf::zeroed(8192));
    drive.read_at(&mut wanted, start, tag).unwrap();
    observed.read_at(&mut found, start, tag).unwrap();
    assert!(found[..] == wanted[..] && found.iter().any(|byte| *byte != 0));
    assert_eq!(report_all(&observed).unwrap(), report_all(&drive).unwrap());
    assert_eq!(observed.geometry(), drive.geometry());
    let size = drive.geometry().size();
    for at in [size, size - 4096, u64::MAX - 4096] {
        assert!(observed.read_at(&mut found, at, tag).is_err(), "{at}");
    }
    assert!(observed.write_at(&wanted, start + 8192, tag).is_err() && observed.flush(tag).is_err());
    assert!(observed.zone_op(ZoneOp::Reset, FIRST, tag).is_err() && observed.set_write_cache(false).is_err());
    Observer::reset_stats(&at.path).unwrap();
    assert_eq!((drive.stats().writes, seen.stats().writes), (0, 0));
}

#[test]
fn traces_are_kept_beside_the_image() {
    let at = place();
    drop(create(&at.path));
    assert_eq!(imbrex_emulator::read_image_trace(&at.path).unwrap(), None);
    start_image_trace(&at.path, 3).unwrap();
    let drive = open(&at.path).unwrap();
    for i in 0..5 {
        write(&drive, FIRST, i, 1, 1).unwrap();
    }
    let seen = imbrex_emulator::read_image_trace(&at.path).unwrap().unwrap();
    assert_eq!(seen.iter().map(|e| (e.sequence, e.offset)).collect::<Vec<_>>(), {
        let start = drive.geometry().start(FIRST);
        [2u64, 3, 4].map(|i| (i, start + i * BLOCK))
    });
    assert_eq!(seen, drive.trace());
    drop(drive);
    let drive = open(&at.path).unwrap();
    drive.flush(TAG).unwrap();
    assert_eq!(drive.trace().last().unwrap().sequence, 5);
    drop(drive);
    fs::write(trace_path(&at.path), "nonsense").unwrap();
    assert!(sentence(&at.path).contains("remove it"));
}

#[test]
fn flushes_can_reach_the_hosts_disk() {
    let at = place();
    drop(create(&at.path));
    let drive = Emulator::open(&at.path, OpenOptions { host_sync: true, read_only: false }).unwrap();
    write(&drive, FIRST, 0, 1, 2).unwrap();
    write(&drive, ZoneId(0), 0, 1, 2).unwrap();
    drive.flush(TAG).unwrap();
    assert!(drive.unflushed().is_empty());
    drive.zone_op(ZoneOp::Reset, FIRST, TAG).unwrap();
    drive.set_write_cache(false).unwrap();
    write(&drive, FIRST, 0, 2, 2).unwrap();
    assert_eq!(bytes(&drive, FIRST, 0, 3), [2, 2, 0]);
}

#[test]
fn an_image_forks_into_memory() {
    let at = place();
    let drive = create(&at.path);
    write(&drive, ZoneId(0), 0, 1, 2).unwrap();
    drive.flush(TAG).unwrap();
    write(&drive, ZoneId(0), 1, 2, 2).unwrap();
    write(&drive, FIRST, 0, 2, 2).unwrap();
    let fork = drive.fork().unwrap();
    drop(drive);
    fs::remove_file(&at.path).unwrap();
    assert_eq!((bytes(&fork, ZoneId(0), 0, 3), bytes(&fork, FIRST, 0, 3)), (vec![1, 2, 2], vec![2, 2, 0]));
    let worst = fork.after_power_loss_choosing(&mut |_| 0).unwrap();
    assert_eq!((bytes(&worst, ZoneId(0), 0, 3), bytes(&worst, FIRST, 0, 1)), (vec![1, 1, 0], vec![0]));
}
