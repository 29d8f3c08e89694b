//! `imbrex drive serve` and `detach`: a simulated conventional drive under the kernel's file systems. Most of it needs root, FUSE
//! and loop devices; what cannot run here says so on stderr, where no test's output is hidden ("not run: …").

use imbrex_device::AlignedBuf;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CMR: &str = "hitachi-hua72303";

fn imbrex(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_imbrex")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn fails(output: Output, code: i32, says: &str) {
    let sentence = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(sentence.contains(says), "{sentence:?} lacks {says:?}");
    if code == 1 {
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}

/// Says, past the capture of test output, that a test did not run.
fn not_run(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {test}: {why}");
}

/// Why no drive can be served and mounted here; `None`: it can.
fn missing() -> Option<String> {
    if !is_root() {
        return Some("needs root".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = File::options().read(true).write(true).open(device) {
            return Some(format!("needs {device} ({error})"));
        }
    }
    let mkfs = Command::new("mkfs.ext4").arg("-V").output();
    mkfs.is_err().then(|| "needs mkfs.ext4 (package e2fsprogs)".into())
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t0"))
}

/// An image, a directory to serve it in, one to mount at; and everything undone in the end, whatever a test found.
struct Place {
    dir: TempDir,
    server: Option<Child>,
    /// `--all` and killed servers concern the whole machine: one test at a time, whoever runs them.
    _turn: File,
}

impl Place {
    fn new() -> Place {
        let turn = std::env::temp_dir().join("imbrex-serve-tests.lock");
        let turn = File::options().create(true).truncate(false).write(true).open(turn).unwrap();
        turn.lock().unwrap();
        let at = Place { dir: tempfile::tempdir().unwrap(), server: None, _turn: turn };
        for dir in ["served", "mounted"] {
            fs::create_dir(at.path(dir)).unwrap();
        }
        at.create("drive.img", CMR, &["--capacity", "512M"]);
        at
    }

    fn create(&self, name: &str, profile: &str, more: &[&str]) {
        done(imbrex(&[&["drive", "create", &self.name(name), "--profile", profile], more].concat()));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn serve(&mut self, more: &[&str]) -> Value {
        let mut server = Command::new(env!("CARGO_BIN_EXE_imbrex"))
            .args(["drive", "serve", &self.name("drive.img"), "--at", &self.name("served"), "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut json = String::new();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        while serde_json::from_str::<Value>(&json).is_err() {
            match lines.next() {
                Some(line) => json.push_str(&line.unwrap()),
                None => panic!("{}", text(&server.wait_with_output().unwrap().stderr)),
            }
        }
        self.server = Some(server);
        serde_json::from_str(&json).unwrap()
    }

    /// The loop device.
    fn attach(&self) -> String {
        let args = ["--find", "--show", "--direct-io=on", "--sector-size", "4096", &self.name("served/drive")];
        run(Command::new("losetup").args(args)).trim().to_owned()
    }

    fn mount(&self, device: &str) {
        run(Command::new("mount").args([device, &self.name("mounted")]));
    }

    fn signal(&mut self, signal: &str) {
        let id = self.server.as_ref().unwrap().id().to_string();
        run(Command::new("kill").args([signal, &id]));
    }

    fn ended(&mut self) -> Output {
        self.server.take().unwrap().wait_with_output().unwrap()
    }

    /// Mounts and loop devices with this place in their names.
    fn left(&self) -> String {
        let here = self.dir.path().to_str().unwrap();
        let table = fs::read_to_string("/proc/mounts").unwrap() + &run(Command::new("losetup").arg("-a"));
        table.lines().filter(|line| line.contains(here)).collect()
    }

    fn stats(&self) -> Value {
        serde_json::from_str(&done(imbrex(&["drive", "stats", &self.name("drive.img"), "--json"]))).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        imbrex(&["drive", "detach", &self.name("served")]);
        if let Some(mut server) = self.server.take() {
            let end = Instant::now() + Duration::from_secs(10);
            while server.try_wait().unwrap().is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
        // Nothing of a failed test may stay mounted below the directory that is removed now.
        imbrex(&["drive", "detach", &self.name("served")]);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn what_cannot_be_served_is_refused_with_a_sentence() {
    let at = Place::new();
    let serve = |image: &str, dir: &str, more: &[&str]| {
        imbrex(&[&["drive", "serve", &at.name(image), "--at", &at.name(dir)], more].concat())
    };
    fails(serve("none.img", "served", &[]), 1, "drive create");
    fails(serve("drive.img", "none", &[]), 1, "mkdir");
    fails(serve("drive.img", "drive.img", &[]), 1, "no directory");
    fs::write(at.path("mounted/precious"), "x").unwrap();
    fails(serve("drive.img", "mounted", &[]), 1, "not empty");
    at.create("zoned.img", "hgst-hsh721414al", &["--capacity", "4G"]);
    fails(serve("zoned.img", "served", &[]), 1, "sequential");
    at.create("plain.img", "tiny", &["--conventional", "64"]);
    fails(serve("plain.img", "served", &[]), 1, "no time model");
    fails(serve("drive.img", "served", &["--time", "soon"]), 2, "account");
    fails(serve("drive.img", "served", &["--speed", "0"]), 2, "between");
    fails(serve("drive.img", "served", &["--time", "account", "--speed", "2"]), 2, "nobody waits");
    fails(serve("drive.img?time=off", "served", &["--time", "pace"]), 2, "leave out");
    fails(imbrex(&["drive", "serve", "mem:?profile=tiny", "--at", &at.name("served")]), 2, "in memory");
    fails(imbrex(&["drive", "serve", "/dev/null", "--at", &at.name("served")]), 2, "only emulated drives");
    fails(imbrex(&["drive", "detach"]), 2, "--all");
    fails(imbrex(&["drive", "detach", &at.name("served")]), 1, "no drive is served there");
    assert!(at.left().is_empty());
}

/// What the kernel makes of zoned devices, scripts/vm/part-ublk asks in a VM.
#[test]
fn what_no_zoned_device_can_be_is_refused_with_a_sentence() {
    let at = Place::new();
    let serve = |image: &str, more: &[&str]| imbrex(&[&["drive", "serve", &at.name(image), "--zoned"], more].concat());
    fails(serve("none.img", &[]), 1, "drive create");
    fails(serve("drive.img", &["--time", "off"]), 1, "serve it with --at DIRECTORY");
    fails(serve("drive.img", &["--at", &at.name("served")]), 2, "cannot be used with");
    fails(imbrex(&["drive", "serve", &at.name("drive.img")]), 2, "--at");
    at.create("tiny.img", "tiny", &[]);
    fails(serve("tiny.img", &[]), 1, "no time model");
    fails(serve("tiny.img", &["--time", "soon"]), 2, "account");
    at.create("odd.img", "tiny", &["--zone-size", "3M", "--capacity", "63M"]);
    fails(
        serve("odd.img", &["--time", "off"]),
        1,
        "3145728 bytes, and Linux knows only zones whose size is a power of two",
    );
    at.create("short.img", "tiny", &["--block-size", "512", "--max-io", "2K"]);
    fails(serve("short.img", &["--time", "off"]), 1, "its largest command has 2048 bytes");
    at.create("many.img", "tiny", &["--capacity", "65537M"]);
    let many = "it has 65537 zones, and Linux can report 65536 of them; make a drive with a larger --zone-size";
    fails(serve("many.img", &["--time", "off"]), 1, many);
    let none = format!("/dev/ublkb{}", u32::MAX);
    fails(imbrex(&["drive", "detach", &none]), 1, "no drive is served there");
    if !Path::new("/dev/ublk-control").exists() {
        fails(serve("tiny.img", &["--time", "off"]), 1, "modprobe ublk_drv");
    }
    // It is nobody's afterwards.
    done(imbrex(&["drive", "reset", &at.name("tiny.img"), "all", "--force"]));
}

#[test]
fn the_file_is_the_drive() {
    let test = "the_file_is_the_drive";
    if let Some(why) = missing() {
        return not_run(test, &why);
    }
    let mut at = Place::new();
    let said = at.serve(&["--time", "pace", "--speed", "1000"]);
    assert_eq!((&said["bytes"], &said["commands_at_once"]), (&(512u64 << 20).into(), &32.into()));
    assert_eq!((&said["time"], &said["speed"]), (&"pace".into(), &1000.0.into()));
    // Its only user.
    let again = imbrex(&["drive", "serve", &at.name("drive.img"), "--at", &at.name("mounted")]);
    fails(again, 4, &format!("in use by process {}", said["pid"]));
    fails(imbrex(&["drive", "serve", &at.name("drive.img"), "--at", &at.name("served")]), 4, "mount point");
    let file = File::options().read(true).write(true).open(said["file"].as_str().unwrap()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 512 << 20);
    let (mut data, mut back) = (AlignedBuf::zeroed(3 << 20), AlignedBuf::zeroed(3 << 20));
    data.copy_from_slice(&bytes(3 << 20));
    let before = at.stats();
    file.write_all_at(&data, (256 << 20) - (1 << 20)).unwrap();
    file.read_exact_at(&mut back, (256 << 20) - (1 << 20)).unwrap();
    assert!(*data == *back);
    assert_eq!(at.stats()["flushes"], before["flushes"]);
    file.sync_all().unwrap();
    let stats = at.stats();
    assert_eq!(stats["flushes"].as_u64().unwrap(), before["flushes"].as_u64().unwrap() + 1);
    assert_eq!(stats["by_cause"]["user_write"]["bytes_written"], 3 << 20);
    // O_DSYNC: each write is a flush, too.
    let durable = File::options().write(true).custom_flags(0o10000).open(said["file"].as_str().unwrap()).unwrap();
    durable.write_all_at(&data[..8192], 0).unwrap();
    assert_eq!(at.stats()["flushes"].as_u64().unwrap(), before["flushes"].as_u64().unwrap() + 2);
    drop(durable);
    // A drive has whole blocks, one size, and an end.
    assert_eq!(file.write_at(&data[..100], 0).unwrap_err().raw_os_error(), Some(22));
    assert_eq!(file.read_at(&mut back[..512], 512).unwrap_err().raw_os_error(), Some(22));
    assert!(file.set_len(4096).is_err());
    assert_eq!(file.read_at(&mut back, 512 << 20).unwrap(), 0);
    assert!(file.write_at(&data[..4096], 512 << 20).is_err());
    assert!(fs::write(at.path("served/other"), "x").is_err());
    assert_eq!(at.stats()["rule_violations"], 0);
    drop(file);
    at.signal("-INT");
    let output = at.ended();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(at.left().is_empty(), "{}", at.left());
}

#[test]
fn a_file_system_on_it_is_taken_away_by_an_interrupt_and_found_again() {
    let test = "a_file_system_on_it_is_taken_away_by_an_interrupt_and_found_again";
    if let Some(why) = missing() {
        return not_run(test, &why);
    }
    let mut at = Place::new();
    at.serve(&["--speed", "200"]);
    let device = at.attach();
    run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", &device]));
    at.mount(&device);
    let flushes = at.stats()["flushes"].as_u64().unwrap();
    let data = bytes(5_000_001);
    for i in 0..20 {
        let mut file = File::create(at.path("mounted").join(i.to_string())).unwrap();
        file.write_all(&data[i..]).unwrap();
        file.sync_all().unwrap();
    }
    // ext4 writes its journal with every sync: each is a flush of the drive or more.
    let seen = at.stats()["flushes"].as_u64().unwrap() - flushes;
    assert!(seen >= 20, "{seen} flushes for 20 syncs");
    let all = imbrex(&["drive", "detach", "--all", "--json"]);
    let still = serde_json::from_str::<Value>(&done(all)).unwrap()["still_served"].to_string();
    assert!(still.contains(&device) && still.contains(&at.name("mounted")), "{still}");
    at.signal("-TERM");
    let output = at.ended();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(at.left().is_empty(), "{}", at.left());
    at.serve(&["--time", "off"]);
    let device = at.attach();
    at.mount(&device);
    for i in 0..20 {
        assert!(fs::read(at.path("mounted").join(i.to_string())).unwrap() == data[i..], "file {i}");
    }
    // By its name it ends, served or not, and the server with it.
    let said = done(imbrex(&["drive", "detach", &at.name("served")]));
    assert!(said.contains(&device) && said.contains(&at.name("mounted")), "{said}");
    assert!(at.ended().status.success() && at.left().is_empty());
}

/// The most commands that were at the drive at once, of what it recorded.
fn most_at_once(trace: &Value) -> usize {
    let time = |entry: &Value, name: &str| entry[name].as_f64().unwrap();
    let all = trace.as_array().unwrap();
    let began = all.iter().map(|entry| time(entry, "began"));
    let at = |moment: f64| all.iter().filter(|e| time(e, "began") <= moment && moment < time(e, "ended")).count();
    began.map(at).max().unwrap_or(0)
}

#[test]
fn partitions_of_a_served_drive_go_with_it() {
    let missing = missing().or_else(|| {
        let there = Command::new("addpart").arg("-V").output().is_ok();
        (!there).then(|| "needs addpart (package util-linux)".into())
    });
    if let Some(why) = missing {
        return not_run("partitions", &why);
    }
    let mut at = Place::new();
    at.serve(&["--time", "off"]);
    let device = at.attach();
    let name = device.trim_start_matches("/dev/").to_owned();
    run(Command::new("addpart").args([&device, "1", "2048", "131072"]));
    let part = format!("/sys/block/{name}/{name}p1");
    let number = fs::read_to_string(format!("{part}/dev")).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    // There is no udev everywhere that would make it.
    let node = at.name("partition");
    run(Command::new("mknod").args([&node, "b", major, minor]));
    run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", &node]));
    at.mount(&node);
    fs::write(at.path("mounted/file"), "x").unwrap();
    let said = done(imbrex(&["drive", "detach", &at.name("served")]));
    assert!(said.contains(&at.name("mounted")), "{said}");
    assert!(at.left().is_empty(), "{}", at.left());
    assert!(!Path::new(&part).exists());
}

#[test]
fn the_drive_gets_as_many_commands_at_once_as_the_loop_device_does() {
    let test = "the_drive_gets_as_many_commands_at_once_as_the_loop_device_does";
    if let Some(why) = missing() {
        return not_run(test, &why);
    }
    let mut at = Place::new();
    done(imbrex(&["drive", "trace", &at.name("drive.img"), "--start"]));
    // So slow that all threads have a command there before the first is done, on any machine.
    at.serve(&["--speed", "0.02"]);
    let device = at.attach();
    // O_DIRECT; eight threads read and eight write, each somewhere else.
    let file = File::options().read(true).write(true).custom_flags(0o40000).open(&device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let file = &file;
            scope.spawn(move || {
                let (mut block, place) = (AlignedBuf::zeroed(4096), (thread * 29 + 7) << 20);
                match thread % 2 {
                    0 => file.read_exact_at(&mut block, place).unwrap(),
                    _ => file.write_all_at(&block, place).unwrap(),
                }
            });
        }
    });
    drop(file);
    done(imbrex(&["drive", "detach", &at.name("served")]));
    assert!(at.ended().status.success());
    let trace = done(imbrex(&["drive", "trace", &at.name("drive.img"), "--json"]));
    let most = most_at_once(&serde_json::from_str(&trace).unwrap());
    // Writes are soon in the drive's cache.
    assert!((6..=32).contains(&most), "{most} at once");
}

/// A loop device that is told to go while a file system is on it (and any that `mount -o loop` makes) detaches itself with that.
#[test]
fn a_signal_ends_it_with_a_loop_device_that_detaches_itself() {
    if let Some(why) = missing() {
        return not_run("a loop device that detaches itself", &why);
    }
    for signal in ["-INT", "-TERM"] {
        let mut at = Place::new();
        at.serve(&["--time", "off"]);
        let device = at.attach();
        run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", &device]));
        at.mount(&device);
        run(Command::new("losetup").args(["--detach", &device]));
        assert!(at.left().contains(&device), "{}", at.left());
        fs::write(at.path("mounted/file"), "x").unwrap();
        at.signal(signal);
        let output = at.ended();
        assert!(output.status.success(), "{signal}: {}", text(&output.stderr));
        assert!(at.left().is_empty(), "{signal}: {}", at.left());
    }
}

/// Who has the file, the loop device or the file system open does not keep the server; and what was written is on the drive.
#[test]
fn a_signal_ends_it_whoever_has_it_open() {
    if let Some(why) = missing() {
        return not_run("a drive that is in use", &why);
    }
    let mut at = Place::new();
    at.serve(&["--time", "off"]);
    let held = File::open(at.path("served/drive")).unwrap();
    at.signal("-INT");
    fails(at.ended(), 4, "in use; it was cut off");
    drop(held);
    assert!(at.left().is_empty(), "{}", at.left());

    at.serve(&["--time", "off"]);
    let device = at.attach();
    let held = File::options().read(true).write(true).open(&device).unwrap();
    let data = bytes(3 << 20);
    // In the page cache, and no further.
    held.write_all_at(&data, 1 << 20).unwrap();
    at.signal("-TERM");
    let output = at.ended();
    let name = format!("{device} is held open by process {} (", std::process::id());
    fails(output, 4, &name);
    drop(held);
    assert!(at.left().is_empty(), "{}", at.left());

    let said = at.serve(&["--time", "off"]);
    let mut back = AlignedBuf::zeroed(data.len());
    File::open(said["file"].as_str().unwrap()).unwrap().read_exact_at(&mut back, 1 << 20).unwrap();
    assert!(*back == *data);
    let device = at.attach();
    run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", &device]));
    at.mount(&device);
    let mut file = File::create(at.path("mounted/file")).unwrap();
    file.write_all(&data).unwrap();
    at.signal("-INT");
    fails(at.ended(), 4, "mounted is in use; it was cut off");
    drop(file);
    assert!(at.left().is_empty(), "{}", at.left());
    at.serve(&["--time", "off"]);
    let device = at.attach();
    at.mount(&device);
    assert!(fs::read(at.path("mounted/file")).unwrap() == data);
}

#[test]
fn a_killed_server_is_cleaned_up_behind() {
    let test = "a_killed_server_is_cleaned_up_behind";
    if let Some(why) = missing() {
        return not_run(test, &why);
    }
    let mut at = Place::new();
    at.serve(&["--time", "off"]);
    let device = at.attach();
    run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", &device]));
    at.mount(&device);
    let mut kept = File::create(at.path("mounted/kept")).unwrap();
    kept.write_all(b"kept").unwrap();
    kept.sync_all().unwrap();
    drop(kept);
    fs::write(at.path("mounted/not-synced"), bytes(1 << 20)).unwrap();
    at.signal("-KILL");
    assert!(!at.ended().status.success());
    assert!(at.left().contains(&device));
    fails(imbrex(&["drive", "serve", &at.name("drive.img"), "--at", &at.name("served")]), 1, "drive detach");
    let said = done(imbrex(&["drive", "detach", "--all"]));
    assert!(said.contains(&device) && said.contains(&at.name("served")), "{said}");
    assert!(at.left().is_empty(), "{}", at.left());
    fails(imbrex(&["drive", "detach", &at.name("served")]), 1, "no drive is served there");
    // What was synced is on the drive.
    at.serve(&["--time", "off"]);
    let device = at.attach();
    at.mount(&device);
    assert_eq!(fs::read(at.path("mounted/kept")).unwrap(), b"kept");
}

#[test]
fn detach_leaves_other_mounts_alone() {
    for dir in ["/", "/proc", "/dev/shm"] {
        if Path::new(dir).exists() {
            fails(imbrex(&["drive", "detach", dir]), 1, "no drive is served there");
        }
    }
}
