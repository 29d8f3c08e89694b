//! Baselines of experiments: the kernel's file systems on simulated drives, set up and taken down. They need root, FUSE, loop devices
//! and mkfs; what cannot run here says so on stderr ("not run: …").

use imbrex_bench::baseline::{Baseline, FileSystem, NotRun, Setup, check};
use imbrex_emulator::time::Mechanics;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Set in the process that is going to be killed.
const RUNNER: &str = "IMBREX_TEST_RUNNER_IN";

fn not_run(test: &str, why: &NotRun) {
    let _ = writeln!(std::io::stderr(), "not run: {test}: {why}");
}

/// Killed ones concern the whole machine, and so do settings of loop devices: one test at a time, whoever runs them.
fn turn() -> File {
    let turn = std::env::temp_dir().join("imbrex-serve-tests.lock");
    let turn = File::options().create(true).truncate(false).write(true).open(turn).unwrap();
    turn.lock().unwrap();
    turn
}

fn setup(work: &Path, file_system: FileSystem) -> Setup {
    Setup {
        work: work.to_owned(),
        capacity: Some(640 << 20),
        file_system,
        speed: 20.0,
        cache_bytes: 8 << 20,
        dirty_bytes: 2 << 20,
        ..Setup::new(env!("CARGO_BIN_EXE_imbrex"), "hitachi-hua72303").scaled(64, Mechanics::Scaled)
    }
}

/// Mounts, loop devices, groups and files of what runs in `work`.
fn left(work: &Path) -> String {
    let here = work.to_str().unwrap();
    let losetup = Command::new("losetup").arg("-a").output().unwrap();
    let table = fs::read_to_string("/proc/mounts").unwrap() + &String::from_utf8_lossy(&losetup.stdout);
    let mut left: Vec<String> = table.lines().filter(|line| line.contains(here)).map(str::to_owned).collect();
    left.extend(fs::read_dir(work).unwrap().map(|entry| entry.unwrap().path().display().to_string()));
    left.join("\n")
}

fn settings(device: &str) -> String {
    let name = device.rsplit('/').next().unwrap();
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let queue = ["scheduler", "nr_requests", "max_sectors_kb", "read_ahead_kb"];
    let queue = queue.map(|file| format!("/sys/block/{name}/queue/{file}"));
    let bdi = ["strict_limit", "max_ratio"].map(|file| format!("/sys/class/bdi/{}/{file}", number.trim()));
    queue.iter().chain(&bdi).map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// The loop device under what runs in `work`.
fn device(work: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.starts_with("/dev/loop") && line.contains(work.to_str().unwrap()));
    line.unwrap().split(' ').next().unwrap().to_owned()
}

/// What all loop devices have, so that it can be compared without knowing which will be taken.
fn all_settings() -> Vec<(String, String)> {
    let free = |name: &String| !Path::new(&format!("/sys/block/{name}/loop/backing_file")).exists();
    let names = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let loops = names.filter(|name| name.starts_with("loop")).filter(free);
    loops.map(|name| (name.clone(), settings(&name))).collect()
}

fn runs(test: &str, file_system: FileSystem) {
    if let Err(why) = check(file_system) {
        return not_run(test, &why);
    }
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let before = all_settings();
    let baseline = Baseline::start(&setup(dir.path(), file_system)).unwrap();
    let name = device(dir.path());
    let was = before.iter().find(|(of, _)| name.ends_with(&format!("/{of}"))).map(|(_, text)| text.clone());
    let was = was.unwrap_or_else(|| panic!("{name} was free"));
    assert_ne!(settings(&name), was);
    assert!(settings(&name).contains("[mq-deadline]"));
    // 48 MiB through 8 MiB of page cache.
    let file = baseline.dir().join("file");
    let mut dd = baseline.command("dd");
    let output =
        dd.args(["if=/dev/urandom", "bs=64K", "count=768"]).arg(format!("of={}", file.display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    baseline.settle().unwrap();
    let stats = baseline.drive_stats().unwrap();
    assert!(stats.bytes_written >= 48 << 20 && stats.flushes >= 1, "{stats:?}");
    assert!(baseline.drive_time().unwrap().unwrap().total.transfer > 0.2);
    let sum = || {
        let output = Command::new("md5sum").arg(&file).output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    let first = sum();
    baseline.remount().unwrap();
    let read = baseline.drive_stats().unwrap().bytes_read;
    assert_eq!(sum(), first);
    assert!(baseline.drive_stats().unwrap().bytes_read >= read + (48 << 20), "nothing is in the page cache");
    match baseline.page_cache() {
        Ok(cache) => {
            assert!(cache.samples > 0 && cache.peak > 4 << 20, "{cache:?}");
            // 16 MiB at first and what is measured between two looks at it.
            assert!(cache.peak < 32 << 20, "{cache:?}");
        }
        Err(why) => not_run(test, &NotRun(format!("page cache: {why}"))),
    }
    let report = baseline.finish().unwrap();
    assert!(report.server_cpu > 0.0 && report.stats.bytes_written >= 48 << 20);
    assert_eq!(left(dir.path()), "");
    assert_eq!(settings(&name), was);
}

#[test]
fn ext4_runs_and_nothing_is_left_of_it() {
    runs("ext4_runs_and_nothing_is_left_of_it", FileSystem::Ext4);
}

#[test]
fn xfs_runs_and_nothing_is_left_of_it() {
    runs("xfs_runs_and_nothing_is_left_of_it", FileSystem::Xfs);
}

#[test]
fn what_cannot_be_set_up_says_why_and_leaves_nothing() {
    if let Err(why) = check(FileSystem::Ext4) {
        return not_run("what_cannot_be_set_up_says_why_and_leaves_nothing", &why);
    }
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let usual = || setup(dir.path(), FileSystem::Ext4);
    for (setup, says) in [
        (Setup { profile: "hgst-hsh721414al".into(), ..usual() }, "no conventional drive"),
        (Setup { profile: "floppy".into(), ..usual() }, "`imbrex drive profiles` lists all"),
        (Setup { imbrex: "/nowhere/imbrex".into(), ..usual() }, "/nowhere/imbrex cannot be run"),
        (Setup { imbrex: "/bin/false".into(), ..usual() }, "drive serve failed"),
        (Setup { work: "/nowhere".into(), ..usual() }, "/nowhere cannot be used"),
        // Fails when the loop device is there and has most settings.
        (Setup { dirty_bytes: 1 << 60, ..usual() }, "cannot be set to"),
    ] {
        let Err(NotRun(sentence)) = Baseline::start(&setup) else { panic!("{says}") };
        assert!(sentence.contains(says), "{sentence:?} lacks {says:?}");
        assert_eq!(left(dir.path()), "", "{sentence}");
    }
}

/// What the killed process does: all there is, with a program in the group, until it is killed.
fn run_until_killed(work: &Path) -> ! {
    let baseline = Baseline::start(&setup(work, FileSystem::Ext4)).unwrap();
    fs::write(baseline.dir().join("file"), vec![7; 1 << 20]).unwrap();
    let mut sleeper = baseline.command("sh");
    sleeper.args(["-c", "exec 3>\"$0\" && echo ready && exec sleep 1000"]).arg(baseline.dir().join("held"));
    let mut sleeper = sleeper.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(sleeper.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    println!("\nready {}", sleeper.id());
    sleeper.wait().unwrap();
    panic!("nobody killed it");
}

#[test]
fn what_a_killed_runner_leaves_is_undone_by_the_next() {
    let test = "what_a_killed_runner_leaves_is_undone_by_the_next";
    if let Some(work) = std::env::var_os(RUNNER) {
        run_until_killed(&PathBuf::from(work));
    }
    if let Err(why) = check(FileSystem::Ext4) {
        return not_run(test, &why);
    }
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let before = all_settings();
    let kill = |dir: &TempDir| {
        let mut runner = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(RUNNER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(runner.stdout.take().unwrap()).lines().map_while(Result::ok);
        let sleeper = lines.filter_map(|line| line.strip_prefix("ready ").map(str::to_owned)).next().unwrap();
        let served = left(dir.path()).lines().find(|line| line.starts_with("imbrex-drive:")).unwrap().to_owned();
        let served = served.split(' ').nth(1).unwrap().to_owned();
        // While it runs nobody takes that away.
        let refused = Command::new(env!("CARGO_BIN_EXE_imbrex")).args(["drive", "detach", &served]).output().unwrap();
        let says = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(says.contains(&format!("process {}", runner.id())), "{says}");
        runner.kill().unwrap();
        runner.wait().unwrap();
        assert!(left(dir.path()).lines().count() >= 3, "{}", left(dir.path()));
        assert!(Path::new("/proc").join(&sleeper).exists());
        sleeper
    };
    // By the command.
    let sleeper = kill(&dir);
    let detach = Command::new(env!("CARGO_BIN_EXE_imbrex")).args(["drive", "detach", "--all"]).output().unwrap();
    assert!(detach.status.success(), "{}", String::from_utf8_lossy(&detach.stderr));
    assert!(String::from_utf8_lossy(&detach.stdout).contains(dir.path().to_str().unwrap()));
    assert_eq!(left(dir.path()), "");
    assert_eq!(all_settings(), before);
    assert!(!is_running(&sleeper));
    // By the next start.
    let sleeper = kill(&dir);
    let baseline = Baseline::start(&setup(dir.path(), FileSystem::Ext4)).unwrap();
    assert!(!is_running(&sleeper));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(baseline);
    assert_eq!(left(dir.path()), "");
    assert_eq!(all_settings(), before);
}

#[test]
fn a_mkfs_that_runs_ends_with_its_runner() {
    let test = "a_mkfs_that_runs_ends_with_its_runner";
    if let Some(work) = std::env::var_os(RUNNER) {
        drop(Baseline::start(&setup(&PathBuf::from(work), FileSystem::Ext4)));
        panic!("nobody killed it");
    }
    if let Err(why) = check(FileSystem::Ext4) {
        return not_run(test, &why);
    }
    let _turn = turn();
    let (dir, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Has the device open, as the real one, and takes its time.
    let mkfs = programs.path().join("mkfs.ext4");
    fs::write(&mkfs, "#!/bin/sh\nfor last; do :; done\n[ -b \"$last\" ] || exit 0\nexec 3<>\"$last\"\necho $$ >\"$0.runs\"\nexec sleep 1000\n")
        .unwrap();
    fs::set_permissions(&mkfs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut runner = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(RUNNER, dir.path())
        .env("PATH", path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let said = programs.path().join("mkfs.ext4.runs");
    let process = loop {
        match fs::read_to_string(&said).unwrap_or_default().trim() {
            "" => assert!(runner.try_wait().unwrap().is_none(), "it ended before mkfs ran"),
            process => break process.to_owned(),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(is_running(&process));
    runner.kill().unwrap();
    runner.wait().unwrap();
    let detach = Command::new(env!("CARGO_BIN_EXE_imbrex")).args(["drive", "detach", "--all"]).output().unwrap();
    assert!(detach.status.success(), "{}", String::from_utf8_lossy(&detach.stderr));
    assert_eq!(left(dir.path()), "");
    assert!(!is_running(&process));
}

#[test]
fn the_drives_of_an_experiment_that_was_killed_are_removed() {
    let _turn = turn();
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return not_run("the_drives_of_an_experiment_that_was_killed_are_removed", &NotRun("no /dev/shm".into()));
    }
    // No process has the largest number.
    let dead = tempfile::Builder::new().prefix("imbrex-experiment-4194304-").tempdir_in(shm).unwrap();
    fs::write(dead.path().join("drive.img"), "x").unwrap();
    let mine = tempfile::Builder::new().prefix(&format!("imbrex-experiment-{}-", std::process::id())).tempdir_in(shm);
    let detach = Command::new(env!("CARGO_BIN_EXE_imbrex")).args(["drive", "detach", "--all"]).output().unwrap();
    assert!(String::from_utf8_lossy(&detach.stdout).contains(dead.path().to_str().unwrap()));
    assert!(!dead.path().exists() && mine.unwrap().path().exists());
}

fn is_running(process: &str) -> bool {
    // Its parent is gone, so whoever adopted it may not have looked yet that it ended.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
