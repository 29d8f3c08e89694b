//! `IMBREX_METRICS`, as a program meets it that opens a drive through the C API. The variable counts for a whole process, so
//! each test runs the program, which is this binary once more, in a process of its own.

use imbrex::*;
use imbrex_bluefs::BlueFs;
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, Observer, OpenOptions, Overrides, Stats};
use imbrex_zones::{Budget, FormatOptions, TenantSpec, Volume};
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{null, null_mut};
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

/// A program of two engines on one drive: puts keys with values, reads one, and makes tables of them; then it opens the files.
#[test]
fn program_of_pairs() {
    let Ok(drive) = std::env::var(DRIVE) else { return };
    let uri = CString::new(format!("imbrex://{drive}?survivor-size=4M&memtable=256K")).expect("a path");
    let files = CString::new(format!("imbrex://{drive}?survivor-size=4M&cache=1M")).expect("a path");
    let (mut kv, mut fs) = (null_mut(), null_mut());
    // SAFETY: valid pointers, and each handle is given back once.
    unsafe {
        assert!(imbrex_kv_open(uri.as_ptr(), c"".as_ptr(), null(), 0, &mut kv).is_null());
        assert!(imbrex_fs_open(files.as_ptr(), &mut fs).is_null());
        let value = [7u8; 992];
        for key in 0..500 {
            let key = format!("key{key:05}");
            let put = imbrex_kv_put(kv, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len(), false);
            assert!(put.is_null());
        }
        assert!(imbrex_kv_delete(kv, c"key00000".as_ptr().cast(), 8, true).is_null());
        let mut found = null_mut();
        assert!(imbrex_kv_get(kv, null(), c"key00001".as_ptr().cast(), 8, &mut found).is_null());
        imbrex_kv_value_free(found);
        assert!(imbrex_kv_flush(kv).is_null());
        print!("{}", ask(&std::env::var(PORT).expect("a port"), "/metrics").expect("the metrics are served"));
        imbrex_kv_close(kv);
        imbrex_fs_close(fs);
    }
}

/// A program that has images: it writes to one, and closes them behind the metrics.
#[test]
fn program_of_images() {
    let Ok(drive) = std::env::var(DRIVE) else { return };
    let uri = CString::new(format!("imbrex://{drive}?survivor-size=1M&memtable=256K")).expect("a path");
    let (mut images, mut disk) = (null_mut(), null_mut());
    // SAFETY: valid pointers, and each handle is given back once.
    unsafe {
        assert!(imbrex_images_open(uri.as_ptr(), false, &mut images).is_null());
        // The same ones again are told once.
        let mut again = null_mut();
        assert!(imbrex_images_open(uri.as_ptr(), false, &mut again).is_null());
        assert!(imbrex_image_create(images, c"disk".as_ptr(), 1 << 20).is_null());
        assert!(imbrex_image_open(images, c"disk".as_ptr(), false, &mut disk).is_null());
        for at in 0..3 {
            assert!(imbrex_image_write(disk, at * 4096, [7u8; 4096].as_ptr().cast(), 4096, false).is_null());
        }
        assert!(imbrex_image_snapshot(images, c"disk".as_ptr(), c"one".as_ptr()).is_null());
        if let Ok(port) = std::env::var(PORT) {
            print!("{}", ask(&port, "/metrics").expect("the metrics are served"));
        }
        imbrex_images_close(again);
        imbrex_image_close(disk);
        imbrex_images_close(images);
        // Metrics keep nothing open.
        assert!(imbrex_images_open(uri.as_ptr(), false, &mut images).is_null());
        imbrex_images_close(images);
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
fn images_and_their_store_are_among_the_metrics() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |name: &str, metrics: &str, port: Option<u16>| {
        let path = dir.path().join(name);
        drop(Emulator::create(&path, &Config::tiny(), false).expect("a drive"));
        let device = Arc::new(Emulator::open(&path, OpenOptions::default()).expect("the drive"));
        ::imbrex_store::Store::format(&Drive { device, survivor: None }, None, false).expect("formatted");
        let mut program = Command::new(std::env::current_exe().expect("this program"));
        program.args(["--exact", "program_of_images", "--nocapture"]).env(DRIVE, &path);
        program.env("IMBREX_METRICS", metrics).env("IMBREX_SHM_DIR", dir.path());
        port.map(|port| program.env(PORT, port.to_string()));
        let output = program.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let look = |text: &str, name: &str, written: Option<u64>| {
        let name = dir.path().join(name);
        let drive = format!("drive=\"{}\"", name.display());
        let image =
            |metric: &str, more: &str| value(text, &format!("imbrex_image_{metric}{{{drive},image=\"disk\"{more}}}"));
        let write = ",operation=\"write\"";
        assert_eq!(image("seconds_count", write), written, "{text}");
        assert_eq!(image("bytes_total", write), written.map(|n| n * 4096));
        assert_eq!((image("size_bytes", ""), image("snapshots", "")), (Some(1 << 20), Some(1)));
        assert_eq!((image("used_bytes", ""), image("kept_bytes", "")), (Some(12288), Some(0)));
        assert!(image("used_age_seconds", "").is_some_and(|age| age < 60));
        let stored = ["stored", "deferred"].map(|of| value(text, &format!("imbrex_store_{of}_bytes{{{drive}}}")));
        assert_eq!(stored.into_iter().flatten().sum::<u64>(), 12288);
        assert!(value(text, &format!("imbrex_mount{{{drive}}}")).is_some());
    };
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    look(&run("a.img", &port.to_string(), Some(port)), "a.img", Some(3));
    // The last words are those of the second opening, which has written nothing.
    let file = dir.path().join("imbrex.prom");
    run("b.img", file.to_str().expect("UTF-8"), None);
    look(&std::fs::read_to_string(&file).expect("the file is there"), "b.img", None);
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

#[test]
fn a_key_value_store_says_what_it_did_beside_another_engine_of_its_drive() {
    let dir = tempfile::tempdir().expect("a directory");
    let drive = dir.path().join("drive.img");
    drop(Emulator::create(&drive, &Config::tiny(), false).expect("a drive"));
    let device = Arc::new(Emulator::open(&drive, OpenOptions::default()).expect("the drive"));
    let tenant = |name: &str, budget| TenantSpec { name: name.into(), budget };
    let tenants = vec![tenant("kv", Budget::keeping(4, 4)), tenant(imbrex_bluefs::TENANT, imbrex_bluefs::BUDGET)];
    let options = FormatOptions { uuid: None, tenants, force: false };
    Volume::format(&Drive { device, survivor: None }, &options).expect("formatted");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "program_of_pairs", "--nocapture"]).env(DRIVE, &drive);
    let output = command.env("IMBREX_METRICS", port.to_string()).env(PORT, port.to_string()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = |name: &str, labels: &str| -> Option<f64> {
        let line = format!("{name}{{drive=\"{}\"{labels}}} ", drive.display());
        text.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok())
    };
    let told = |name: &str, expected: f64| assert_eq!(figure(name, ""), Some(expected), "{name}\n{text}");
    told("imbrex_kv_puts_total", 500.0);
    told("imbrex_kv_put_bytes_total", 500_000.0);
    told("imbrex_kv_deletes_total", 1.0);
    told("imbrex_kv_gets_total", 1.0);
    told("imbrex_kv_memory_bytes", 0.0);
    told("imbrex_kv_log_bytes", 0.0);
    told("imbrex_kv_deleted_ranges", 0.0);
    // Whatever was merged by now: each table is in a level, and each byte that counts was written.
    let levels = |name: &str, more: &str| -> f64 {
        let sum = (0..16).map(|n| n.to_string()).chain(["bottom".to_owned()]);
        sum.filter_map(|level| figure(name, &format!(",level=\"{level}\"{more}"))).sum()
    };
    let entries = levels("imbrex_kv_level_entries", "");
    assert!((499.0..=501.0).contains(&entries) && figure("imbrex_kv_entries", "") == Some(entries), "{text}");
    assert!(levels("imbrex_kv_level_tables", "") >= 1.0, "{text}");
    let (live, flushed) =
        (levels("imbrex_kv_level_bytes", ""), levels("imbrex_kv_written_bytes_total", ",by=\"flush\""));
    assert!(live > 0.0 && live <= flushed + levels("imbrex_kv_written_bytes_total", ",by=\"merge\""), "{text}");
    let amplification = levels("imbrex_kv_write_amplification", "");
    assert!(amplification >= flushed / 500_000.0 && flushed > 0.0, "{text}");
    let zones = |name| figure(name, "").unwrap_or_default();
    assert!(zones("imbrex_kv_used_zones_bytes") == zones("imbrex_kv_used_zones") * f64::from(1 << 20), "{text}");
    assert!(zones("imbrex_kv_used_zones") >= 1.0 && zones("imbrex_kv_free_zones") >= 1.0, "{text}");
    // Both engines are there, and what is the drive's is there once.
    told("imbrex_files", 0.0);
    for name in ["imbrex_flushes_total", "imbrex_mount", "imbrex_poisoned", "imbrex_zones{", "imbrex_commands_total{"] {
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with(name)).collect();
        let labels: std::collections::BTreeSet<_> =
            lines.iter().filter_map(|line| line.rsplit_once(' ')).map(|of| of.0).collect();
        assert!(!lines.is_empty() && labels.len() == lines.len(), "{name}: {lines:?}");
    }
}
