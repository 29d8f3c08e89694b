//! A killed process loses nothing that the drive acknowledged; a full host disk changes nothing.
//!
//! The tests run this same program again as a child that works on an image, and compare what is left of the image with
//! the same commands on a drive in memory.

mod common;

use common::*;
use imbrex_device::{AlignedBuf, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator, OpenOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Names the image to a child.
const IMAGE: &str = "IMBREX_TEST_IMAGE";
const SEED: &str = "IMBREX_TEST_SEED";

fn config() -> Config {
    Config { conventional: 2, cache_bytes: 2 << 20, max_open: Some(3), ..Config::tiny() }
}

/// One command that follows from `rng` and the drive's state. Returns the conventional blocks that it overwrites.
fn step(drive: &Emulator, rng: &mut ChaCha8Rng) -> Range<u64> {
    let zone = ZoneId(2 + rng.random_range(0..6));
    let fill = rng.random_range(1..=255u8);
    let blocks = rng.random_range(1..=24);
    match rng.random_range(0..20) {
        0 => drive.flush(TAG).unwrap(),
        1 => drive.zone_op(ZoneOp::Reset, zone, TAG).unwrap(),
        2 => drive.zone_op(ZoneOp::Finish, zone, TAG).unwrap(),
        3..8 => {
            let block = rng.random_range(0..100);
            write(drive, ZoneId(1), block, fill, blocks).unwrap();
            return 256 + block..256 + block + blocks;
        }
        _ => {
            let now = report(drive, zone);
            let room = (now.capacity - now.wp.unwrap()) / BLOCK;
            match now.state {
                ZoneState::Full => drive.zone_op(ZoneOp::Reset, zone, TAG).unwrap(),
                _ => write(drive, zone, now.wp.unwrap() / BLOCK, fill, blocks.min(room)).unwrap(),
            }
        }
    }
    0..0
}

/// What every block holds, but those of `except`, and every write pointer.
fn seen(drive: &Emulator, except: &Range<u64>) -> (Vec<u64>, Vec<Option<u64>>) {
    let mut sums = Vec::new();
    for block in (0..8 * 256).filter(|block| !except.contains(block)) {
        let mut buf = AlignedBuf::zeroed(BLOCK as usize);
        drive.read_at(&mut buf, block * BLOCK, TAG).unwrap();
        sums.push(buf.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte))));
    }
    (sums, report_all(drive).unwrap().iter().map(|zone| zone.wp).collect())
}

/// Blocks at risk of each sequential zone.
fn at_risk(drive: &Emulator) -> Vec<u64> {
    let mut blocks = vec![0; 64];
    drive.unflushed().iter().for_each(|risk| blocks[risk.zone.0 as usize] = risk.blocks);
    blocks.split_off(config().conventional as usize)
}

#[test]
#[ignore = "what the child of the next test does"]
fn child_works_until_it_is_killed() {
    let (Ok(path), Ok(seed)) = (std::env::var(IMAGE), std::env::var(SEED)) else { return };
    let drive = Emulator::open(Path::new(&path), OpenOptions::default()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed.parse().unwrap());
    let mut out = std::io::stderr();
    loop {
        step(&drive, &mut rng);
        out.write_all(b"acknowledged\n").unwrap();
    }
}

fn child(test: &str, path: &Path, seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(IMAGE, path).env(SEED, seed.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    let mut most = 0;
    for round in 0..20u64 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive.img");
        drop(Emulator::create(&path, &config(), false).unwrap());
        let mut child = child("child_works_until_it_is_killed", &path, round).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reader =
            std::thread::spawn(move || lines.map_while(Result::ok).filter(|line| line == "acknowledged").count());
        std::thread::sleep(Duration::from_millis(60 + round * 7));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reader.join().unwrap();
        most = most.max(acknowledged);

        let memory = Emulator::memory(&config()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(round);
        for _ in 0..acknowledged {
            step(&memory, &mut rng);
        }
        let ahead = memory.fork().unwrap();
        let torn = step(&ahead, &mut rng);
        let drive = Emulator::open(&path, OpenOptions::default()).unwrap();
        let left = seen(&drive, &torn);
        // The command that was cut has happened or not; a conventional write may have happened in part.
        assert!(
            left == seen(&memory, &torn) || left == seen(&ahead, &torn),
            "round {round}: after {acknowledged} acknowledged commands the image is neither before nor behind the next"
        );
        // A flush that was cut may have covered some zones and not others.
        for ((now, old), new) in at_risk(&drive).iter().zip(at_risk(&memory)).zip(at_risk(&ahead)) {
            assert!(*now == old || *now == new, "round {round}: {now} blocks at risk, {old} before, {new} behind");
        }
        for block in torn {
            let now = bytes(&drive, ZoneId(1), block - 256, 1);
            let (old, new) = (bytes(&memory, ZoneId(1), block - 256, 1), bytes(&ahead, ZoneId(1), block - 256, 1));
            assert!(now == old || now == new, "round {round}: block {block} is neither old nor new");
        }
        // What is left can lose power like any drive.
        drop(drive);
        Emulator::power_loss_image(&path, round).unwrap();
        let drive = Emulator::open(&path, OpenOptions::default()).unwrap();
        assert!(drive.unflushed().is_empty());
    }
    assert!(most > 20, "the children were killed before they did anything: {most} commands");
}

#[test]
#[ignore = "what the child of the next test does"]
fn child_fills_its_host() {
    let Ok(path) = std::env::var(IMAGE) else { return };
    let drive = Emulator::create(Path::new(&path), &config(), false).unwrap();
    let ballast = Path::new(&path).with_extension("ballast");
    std::fs::write(&ballast, [1; 10 * BLOCK as usize]).unwrap();
    let zones = 2..60;
    let mut full = None;
    'fill: for zone in zones.map(ZoneId) {
        for block in (0..256).step_by(64) {
            if let Err(error) = write(&drive, zone, block, zone.0 as u8, 64) {
                full = Some((zone, block, error));
                break 'fill;
            }
        }
    }
    let (zone, block, error) = full.expect("the host is smaller than the drive");
    let imbrex_device::Fault::Io(io) = &error.fault else { panic!("{error}") };
    assert_eq!(io.kind(), ErrorKind::StorageFull);
    assert_eq!(written(&drive, zone), block, "a failed write moved the write pointer");
    // A conventional zone: with room for a part of a write, none of it is left.
    std::fs::remove_file(&ballast).unwrap();
    let error = write(&drive, ZoneId(0), 20, 9, 64).expect_err("the host has room for ten blocks only");
    assert!(matches!(error.fault, imbrex_device::Fault::Io(_)));
    assert_eq!(bytes(&drive, ZoneId(0), 0, 100), [0; 100], "a failed write left something behind");
    assert!(drive.unflushed().iter().all(|risk| risk.zone != ZoneId(0)));
    // Flushing, reporting, reading and resetting go on, and a reset makes room again.
    drive.flush(TAG).unwrap();
    assert_eq!(bytes(&drive, ZoneId(2), 0, 2), [2, 2]);
    drive.zone_op(ZoneOp::Reset, ZoneId(2), TAG).unwrap();
    write(&drive, zone, block, 77, 64).unwrap();
    assert_eq!(bytes(&drive, zone, block, 2), [77, 77]);
}

#[test]
fn a_full_host_disk_is_a_clean_error() {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    // A small file system in a name space of its own goes away with the child.
    let script = "mount -t tmpfs -o size=24m none \"$0\" || exit 42; exec \"$1\" --exact child_fills_its_host --ignored --nocapture";
    let run = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", script])
        .arg(dir.path())
        .arg(&exe)
        .env(IMAGE, dir.path().join("drive.img"))
        .output();
    match run {
        Ok(run) if run.status.success() => assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed")),
        Ok(run) if run.status.code() == Some(101) => {
            panic!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr))
        }
        other => eprintln!("skipped: no name space for a small file system ({other:?})"),
    }
}
