//! `IMBREX_METRICS`, as a program meets it that opens a drive through the C API. The variable counts for a whole process, so
//! each test runs the program, which is this binary once more, in a process of its own.

use imbrex::*;
use imbrex_bluefs::BlueFs;
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, Observer, OpenOptions, Overrides, Stats};
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::Arc;

const DRIVE: &str = "IMBREX_TEST_DRIVE";
const PORT: &str = "IMBREX_TEST_PORT";
/// More options of the drive, as `&time=account`.
const OPTIONS: &str = "IMBREX_TEST_OPTIONS";

/// The program: opens the drive, writes a log of three synced appends, reads it, asks for the metrics where it is told a port.
#[test]
fn program() {
    let Ok(drive) = std::env::var(DRIVE) else { return };
    let options = std::env::var(OPTIONS).unwrap_or_default();
    let uri = CString::new(format!("imbrex://{drive}?survivor-size=4M&cache=1M{options}")).expect("a path");
    let mut fs = null_mut();
    let mut file = null_mut();
    // SAFETY: valid pointers, and each handle is given back once.
    unsafe {
        assert!(imbrex_fs_open(uri.as_ptr(), &mut fs).is_null(), "the drive is opened whatever becomes of the metrics");
        // A second handle of the same mount is not a second drive.
        let mut again = null_mut();
        assert!(imbrex_fs_open(uri.as_ptr(), &mut again).is_null());
        assert!(imbrex_writer_create(fs, c"/000001.log".as_ptr(), &mut file).is_null());
        for _ in 0..3 {
            assert!(imbrex_writer_append(file, c"hello".as_ptr().cast(), 5).is_null());
            assert!(imbrex_writer_sync(file).is_null());
        }
        if let Ok(port) = std::env::var(PORT) {
            print!("{}", ask(&port, "/metrics").expect("the metrics are served"));
            assert!(ask(&port, "/other").expect("an answer").starts_with("HTTP/1.1 404"));
        }
        assert!(imbrex_writer_close(file).is_null());
        imbrex_writer_free(file);
        imbrex_fs_close(again);
        imbrex_fs_close(fs);
    }
}

fn ask(port: &str, page: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    write!(stream, "GET {page} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn drive_in(dir: &Path) -> PathBuf {
    made_in(dir, &Config::tiny())
}

fn made_in(dir: &Path, config: &Config) -> PathBuf {
    let path = dir.join("drive.img");
    let emulator = Emulator::create(&path, config, false).expect("a drive");
    drop(emulator);
    let device = Arc::new(Emulator::open(&path, OpenOptions::default()).expect("the drive"));
    BlueFs::format(&Drive { device, survivor: None }, false).expect("formatted");
    path
}

fn command(drive: &Path, metrics: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "program", "--nocapture"]).env(DRIVE, drive).env("IMBREX_METRICS", metrics);
    command
}

fn run(drive: &Path, metrics: &str, port: Option<u16>) -> Output {
    let mut command = command(drive, metrics);
    if let Some(port) = port {
        command.env(PORT, port.to_string());
    }
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
    output
}

/// The value of a line.
fn value(text: &str, line: &str) -> Option<u64> {
    text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
}

fn stats(drive: &Path) -> Stats {
    Observer::open(drive).expect("the drive").stats()
}

#[test]
fn a_file_of_metrics_says_what_the_drive_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let drive = drive_in(dir.path());
    let file = dir.path().join("imbrex.prom");
    // Whoever opens a drive by its name looks first whether its conventional zones were cut, before there is an engine that counts.
    let untouched = stats(&drive);
    drop(imbrex_drives::open(drive.to_str().expect("UTF-8"), &Default::default()).expect("the drive"));
    let before = stats(&drive);
    run(&drive, file.to_str().expect("UTF-8"), None);
    let after = stats(&drive);
    let look = before.total.since(&untouched.total);
    assert_eq!((look.reads, look.writes, look.flushes), (2, 0, 0), "{look:?}");
    let text = std::fs::read_to_string(&file).expect("the file is there");
    let name = drive.display();
    let mut compared = 0;
    for (cause, counts) in &after.by_cause {
        let new =
            counts.since(&before.by_cause[cause]).since(&before.by_cause[cause].since(&untouched.by_cause[cause]));
        let commands = [
            ("read", new.reads),
            ("write", new.writes),
            ("flush", new.flushes),
            ("zone_reset", new.zone_resets),
            ("zone_open", new.zone_opens),
            ("zone_close", new.zone_closes),
            ("zone_finish", new.zone_finishes),
        ];
        for (command, n) in commands {
            let line = format!("imbrex_commands_total{{drive=\"{name}\",cause=\"{cause}\",command=\"{command}\"}}");
            assert_eq!(value(&text, &line).unwrap_or(0), n, "{line}\n{text}");
            compared += u64::from(n > 0);
        }
        for (command, n) in [("read", new.bytes_read), ("write", new.bytes_written)] {
            let line = format!("imbrex_bytes_total{{drive=\"{name}\",cause=\"{cause}\",command=\"{command}\"}}");
            assert_eq!(value(&text, &line).unwrap_or(0), n, "{line}\n{text}");
        }
    }
    assert!(compared > 5, "{text}");
    let of = |name: &str| value(&text, &format!("{name}{{drive=\"{}\"}}", drive.display()));
    assert_eq!(of("imbrex_flushes_total"), Some(after.flushes - before.flushes));
    assert!(of("imbrex_flushes_total") >= Some(3));
    assert_eq!((of("imbrex_files"), of("imbrex_poisoned"), of("imbrex_mount")), (Some(1), Some(0), Some(1)));
    assert!(of("imbrex_free_bytes") > Some(1 << 20) && of("imbrex_journal_bytes") > Some(0), "{text}");
    assert_eq!(of("imbrex_survivor_bytes"), Some(0), "everything is written at unmount");
    let zones = Observer::open(&drive).expect("the drive").zones();
    for state in imbrex_device::ZoneState::ALL {
        let n = zones.iter().filter(|zone| zone.state == state).count() as u64;
        let line = format!("imbrex_zones{{drive=\"{name}\",state=\"{}\"}}", state.name());
        assert_eq!(value(&text, &line), Some(n), "{line}\n{text}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("the directory").flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{left:?}");
}

#[test]
fn a_drive_that_keeps_time_tells_its_seconds_and_others_none() {
    let overrides = Overrides { capacity: Some(64 << 20), zone_size: Some(1 << 20), ..Overrides::default() };
    let config = Config::named("seagate-st20000nm001j", &overrides).expect("a profile");
    for (options, keeps_time) in [("&time=account", true), ("", false)] {
        let dir = tempfile::tempdir().expect("a directory");
        let drive = made_in(dir.path(), &config);
        let file = dir.path().join("imbrex.prom");
        let mut command = command(&drive, file.to_str().expect("UTF-8"));
        let output = command.env(OPTIONS, options).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&file).expect("the file is there");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("imbrex_device_seconds_total{")).collect();
        assert_eq!(!lines.is_empty(), keeps_time, "{text}");
        if keeps_time {
            let value = |line: &&str| line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("a number");
            let told: f64 = lines.iter().map(value).sum();
            let time = Observer::open(&drive).and_then(|seen| seen.time()).expect("the drive").expect("its time");
            // The drive writes its cache out when it is closed, after the last figures.
            assert!(told > 0.0 && told <= time.total.busy() + 1e-9, "{told} {time:?}");
            assert!(lines.iter().any(|line| line.contains("kind=\"zone_ops\"")), "{text}");
        }
    }
}

#[test]
fn metrics_are_served_while_the_drive_is_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let drive = drive_in(dir.path());
    // Free when asked for; that somebody takes it before the program does is possible and unlikely.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let output = run(&drive, &port.to_string(), Some(port));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Content-Type: text/plain"), "{text}");
    let name = drive.display();
    assert_eq!(value(&text, &format!("imbrex_files{{drive=\"{name}\"}}")), Some(1), "{text}");
    assert!(text.contains("cause=\"wal\",command=\"write\"} 3"), "{text}");
    let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("imbrex_")).collect();
    let mut once: Vec<&str> = samples.iter().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), samples.len(), "no sample twice\n{text}");
}

#[test]
fn what_cannot_be_had_is_one_warning_and_the_program_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let drive = drive_in(dir.path());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    for (wanted, why) in [
        (address.as_str(), "in use by another process"),
        ("/nowhere/at/all.prom", "choose a directory"),
        ("metrics", "neither an address"),
    ] {
        let output = run(&drive, wanted, None);
        let said = String::from_utf8_lossy(&output.stderr);
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("IMBREX_METRICS")).collect();
        assert_eq!(warnings.len(), 1, "{said}");
        assert!(warnings[0].contains(why) && warnings[0].contains("going on without metrics"), "{said}");
    }
}
