//! Drives that keep time: in memory and in images, over openings, with several threads and several who look.

use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZonedDevice};
use imbrex_emulator::time::{Mechanics, Pace, TimeStats};
use imbrex_emulator::{Config, Emulator, Observer, OpenOptions, Overrides, decode_time_header, time_path};
use std::path::{Path, PathBuf};

const ACCOUNT: Pace = Pace::Account;
/// So fast that nobody waits long.
const PACE: Pace = Pace::Real { speed: 1000.0 };

fn config(profile: &str) -> Config {
    let over =
        Overrides { capacity: Some(2 << 30), scale: Some(64), mechanics: Mechanics::Scaled, ..Default::default() };
    Config::named(profile, &over).unwrap()
}

struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn image(profile: &str) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.img");
    drop(Emulator::create(&path, &config(profile), false).unwrap());
    Place { _dir: dir, path }
}

fn open(path: &Path, pace: Pace) -> Emulator {
    let drive = Emulator::open(path, OpenOptions::default()).unwrap();
    drive.keep_own_time(pace).unwrap();
    drive
}

fn seen(path: &Path) -> TimeStats {
    Observer::open(path).unwrap().time().unwrap().unwrap()
}

fn read(drive: &Emulator, at: u64) {
    drive.read_at(&mut AlignedBuf::zeroed(4096), at, Cause::UserRead.into()).unwrap();
}

/// Reads `n` blocks far from one another.
fn reads(drive: &Emulator, n: u64) {
    (0..n).for_each(|i| read(drive, i * 7919 % n * ((2 << 30) / n / 4096 * 4096)));
}

fn append(drive: &Emulator, zone: u32, blocks: u64) {
    let start = drive.geometry().start(ZoneId(zone));
    (0..blocks).for_each(|i| drive.write_at(&AlignedBuf::zeroed(4096), start + i * 4096, Cause::Wal.into()).unwrap());
}

fn refused(path: &Path) -> String {
    let drive = Emulator::open(path, OpenOptions::default()).unwrap();
    drive.keep_own_time(ACCOUNT).unwrap_err().to_string()
}

#[test]
fn what_an_image_counts_is_seen_by_others_meanwhile_and_afterwards() {
    let at = image("hgst-hsh721414al");
    assert_eq!(Observer::open(&at.path).unwrap().time().unwrap(), None, "it never kept time");
    let drive = open(&at.path, ACCOUNT);
    reads(&drive, 100);
    let live = seen(&at.path);
    assert_eq!((live.latency["user_read"].commands, live.pace), (100, Some(ACCOUNT)));
    assert_eq!(Some(&live), drive.time().as_ref());
    assert!(live.total.seek > 0.0 && live.total.rotation > 0.0 && live.total.transfer > 0.0, "{live:?}");
    assert!((live.total.busy() + live.idle - live.elapsed).abs() < 1e-9);
    append(&drive, 300, 16);
    drive.flush(Tag::new(Cause::Wal)).unwrap();
    let (before, looks) = (seen(&at.path), [seen(&at.path), seen(&at.path)]);
    assert!(looks.iter().all(|look| *look == before), "looking takes no time");
    drop(drive);
    let after = seen(&at.path);
    assert_eq!((after.by_cause.get("wal"), after.pace), (before.by_cause.get("wal"), None));
    assert_eq!(after.latency["wal"].commands, 17);
    assert!(live.added_up && after.added_up, "also when nobody has it any more");
    Observer::reset_stats(&at.path).unwrap();
    reads(&open(&at.path, PACE), 2);
    assert!(!seen(&at.path).added_up);
}

#[test]
fn the_clock_goes_on_where_it_stopped_and_what_was_cached_is_written_first() {
    let at = image("hgst-hsh721414al");
    let drive = open(&at.path, ACCOUNT);
    append(&drive, 300, 200);
    let transfer = |path: &Path| seen(path).by_cause["wal"].transfer;
    let before = (seen(&at.path).elapsed, transfer(&at.path));
    drop(drive);
    let closed = (seen(&at.path).elapsed, transfer(&at.path));
    // 800 KiB at 103 to 237 MiB/s, of which some were in the write cache.
    assert!(before.1 < closed.1 && (103.0..237.0).contains(&(0.78125 / closed.1)), "{before:?} {closed:?}");
    let drive = open(&at.path, ACCOUNT);
    assert_eq!(drive.time().unwrap().elapsed, closed.0);
    append(&drive, 301, 1);
    assert!(drive.time().unwrap().elapsed > closed.0);
    // Without time nothing is counted, and nothing is forgotten.
    drop(drive);
    let last = seen(&at.path);
    let untimed = Emulator::open(&at.path, OpenOptions::default()).unwrap();
    reads(&untimed, 10);
    drop(untimed);
    assert_eq!(seen(&at.path), last);
}

#[test]
fn counters_are_reset_by_others_too_and_the_clock_is_not() {
    let at = image("hgst-hsh721414al");
    let drive = open(&at.path, ACCOUNT);
    reads(&drive, 50);
    Observer::reset_stats(&at.path).unwrap();
    let zero = seen(&at.path);
    assert_eq!((zero.elapsed, zero.total.busy(), zero.latency.len()), (0.0, 0.0, 0));
    reads(&drive, 7);
    let few = seen(&at.path);
    assert_eq!(few.latency["user_read"].commands, 7);
    assert!(few.elapsed > 0.0 && (few.total.busy() / few.elapsed - 1.0).abs() < 0.1, "{few:?}");
    drive.reset_stats();
    assert_eq!(drive.time().unwrap().total.busy(), 0.0);
}

#[test]
fn a_killed_process_leaves_the_clock_and_the_last_kept_state() {
    let at = image("seagate-st8000as0022");
    let drive = open(&at.path, ACCOUNT);
    drive.precondition(1000).unwrap();
    drop(drive);
    let kept = seen(&at.path);
    let drive = open(&at.path, ACCOUNT);
    (0..50).for_each(|i| drive.write_at(&AlignedBuf::zeroed(4096), i << 21, Cause::Wal.into()).unwrap());
    drive.flush(Tag::new(Cause::Wal)).unwrap();
    let (moved, now) = (seen(&at.path).persistent_cache.unwrap(), seen(&at.path).elapsed);
    assert!(moved.extents > kept.persistent_cache.unwrap().extents && now > kept.elapsed);
    // What a process that dies here leaves: the files as they are.
    let copy = at.path.with_extension("copy");
    std::fs::copy(&at.path, &copy).unwrap();
    std::fs::copy(time_path(&at.path), time_path(&copy)).unwrap();
    let after = open(&copy, ACCOUNT).time().unwrap();
    assert_eq!(after.persistent_cache, kept.persistent_cache);
    assert_eq!(after.elapsed, now);
    drop(drive);
    assert_eq!(open(&at.path, ACCOUNT).time().unwrap().persistent_cache, Some(moved));
}

#[test]
fn a_preconditioned_drive_is_slower_and_only_a_drive_managed_one_can_be() {
    let writes = |precondition: bool| {
        let at = image("seagate-st8000as0022");
        let drive = open(&at.path, ACCOUNT);
        if precondition {
            drive.precondition(usize::MAX).unwrap();
        }
        drop(drive);
        let drive = open(&at.path, ACCOUNT);
        (0..2000).for_each(|i| {
            let at = (i * 7919 % 2000) << 20;
            drive.write_at(&AlignedBuf::zeroed(4096), at, Cause::Wal.into()).unwrap();
        });
        drive.flush(Tag::new(Cause::Wal)).unwrap();
        drop(drive);
        seen(&at.path)
    };
    let (fresh, worn) = (writes(false), writes(true));
    assert!(worn.total.cleaning > 0.0 && fresh.total.cleaning == 0.0, "{fresh:?} {worn:?}");
    assert!(worn.elapsed > 2.0 * fresh.elapsed, "{} {}", worn.elapsed, fresh.elapsed);
    let at = image("hitachi-hua72303");
    assert!(open(&at.path, ACCOUNT).precondition(1).unwrap_err().to_string().contains("drive-managed"));
}

#[test]
fn several_threads_count_every_command_once_whatever_the_pace() {
    for pace in [ACCOUNT, PACE] {
        let at = image("hgst-hsh721414al");
        let drives = [open(&at.path, pace), {
            let drive = Emulator::memory(&config("hgst-hsh721414al")).unwrap();
            drive.keep_own_time(pace).unwrap();
            drive
        }];
        for drive in drives {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let drive = &drive;
                    scope.spawn(move || {
                        append(drive, 300 + thread, 25);
                        (0..25).for_each(|i| read(drive, (u64::from(thread) * 25 + i) << 24));
                        drive.flush(Tag::new(Cause::Journal)).unwrap();
                    });
                }
            });
            let time = drive.time().unwrap();
            let commands = |cause: &str| time.latency[cause].commands;
            assert_eq!((commands("wal"), commands("user_read"), commands("journal")), (100, 100, 4), "{pace:?}");
            assert!(time.total.busy() <= time.elapsed + 1e-6, "{pace:?} {time:?}");
        }
    }
}

#[test]
fn two_openings_and_a_second_clock_are_refused() {
    let at = image("hgst-hsh721414al");
    let drive = open(&at.path, ACCOUNT);
    assert!(drive.keep_own_time(PACE).unwrap_err().to_string().contains("keeps time already"));
    let looks = Emulator::open(&at.path, OpenOptions { read_only: true, ..Default::default() });
    assert!(looks.is_err(), "it is in use");
    drop(drive);
    // A look keeps its time for itself.
    let before = seen(&at.path);
    let look = Emulator::open(&at.path, OpenOptions { read_only: true, ..Default::default() }).unwrap();
    look.keep_own_time(ACCOUNT).unwrap();
    reads(&look, 5);
    assert_eq!(look.time().unwrap().latency["user_read"].commands, 5);
    drop(look);
    assert_eq!(seen(&at.path), before);
}

#[test]
fn a_time_file_that_is_none_says_so() {
    let at = image("hgst-hsh721414al");
    drop(open(&at.path, ACCOUNT));
    let file = time_path(&at.path);
    let good = std::fs::read(&file).unwrap();
    assert!(decode_time_header(&good).is_ok());
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        let said = refused(&at.path);
        assert!(Observer::open(&at.path).unwrap().time().is_err());
        assert!(said.contains("x.img.time"), "{said}");
        said
    };
    assert!(with(&|bytes| bytes.truncate(30)).contains("truncated; remove it"));
    assert!(with(&|bytes| bytes.truncate(100_000)).contains("truncated; remove it"));
    assert!(with(&|bytes| bytes[0] = b'x').contains("move it away"));
    assert!(with(&|bytes| bytes[8] = 9).contains("newer version"));
    for byte in 9..64 {
        assert!(!with(&|bytes| bytes[byte] ^= 1).is_empty());
    }
    let other = image("hgst-hsh721414al");
    drop(open(&other.path, ACCOUNT));
    std::fs::copy(time_path(&other.path), &file).unwrap();
    assert!(refused(&at.path).contains("another drive image"));
    // A damaged state costs the state, not the counters.
    let mut bytes = good.clone();
    let states = bytes.len() - 2 * 4096;
    bytes[states..].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    drop(open(&at.path, ACCOUNT));
    // A new image begins anew, with force and without.
    drop(Emulator::create(&at.path, &config("hgst-hsh721414al"), true).unwrap());
    assert!(!file.exists());
    drop(open(&at.path, ACCOUNT));
    std::fs::remove_file(&at.path).unwrap();
    drop(Emulator::create(&at.path, &config("hgst-hsh721414al"), false).unwrap());
    assert!(!file.exists());
    // What is no such file is left alone.
    std::fs::write(&file, "precious").unwrap();
    drop(Emulator::create(&at.path, &config("hgst-hsh721414al"), true).unwrap());
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

/// At 1/S, with everything of the commands divided by S too, a drive takes 1/S of the time.
#[test]
fn a_scaled_drive_takes_a_scaled_time() {
    let seconds = |profile: &str, write_cache: bool, scale: u32| {
        let over = Overrides {
            scale: Some(scale),
            capacity: Some((1 << 40) / u64::from(scale)),
            write_cache: Some(write_cache),
            ..Default::default()
        };
        let drive = Emulator::memory(&Config::named(profile, &over).unwrap()).unwrap();
        drive.keep_own_time(ACCOUNT).unwrap();
        let geometry = drive.geometry().clone();
        let mut buf = AlignedBuf::zeroed((1 << 20) / scale as usize);
        let len = buf.len() as u64;
        let first = if drive.config().conventional == geometry.zones { 0 } else { drive.config().conventional };
        for turn in 0..48_u64 {
            let zone = geometry.start(ZoneId(first + 10 + (turn % 6) as u32 * 97));
            for i in 0..16 {
                drive.write_at(&buf, zone + (turn / 6 * 16 + i) * len, Cause::Compaction.into()).unwrap();
                if i % 4 == 0 {
                    let at = geometry.start(ZoneId(first + ((turn * 16 + i) * 7919 % 600) as u32));
                    drive.read_at(&mut buf, at, Cause::UserRead.into()).unwrap();
                }
            }
            if turn % 4 == 3 {
                drive.flush(Tag::new(Cause::Wal)).unwrap();
            }
        }
        drive.time().unwrap().elapsed * f64::from(scale)
    };
    for (profile, cache) in [
        ("seagate-st20000nm001j", true),
        ("hgst-hsh721414al", false),
        ("hitachi-hua72303", true),
        ("seagate-st8000as0022", true),
    ] {
        let times = [256, 128, 64].map(|scale| seconds(profile, cache, scale));
        assert!(times.iter().all(|time| (time / times[0] - 1.0).abs() < 1e-3), "{profile}: {times:?}");
    }
}
