//! `imbrex bench run store-ceph` and `store-db`: all sides, what is left of them when it is stopped, and a machine that cannot have Ceph. `scripts/test-ceph` runs those with a real OSD, where it has unpacked one.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Place, done, fails, place};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
const SIDES: [&str; 4] = ["Ceph's FileStore", "Ceph's BlueStore", "ours in place", "ours on zones"];
/// What has to be downloaded first.
const NEWER: &str = "BlueStore of Ceph 18.2";
/// Of the rows without Ceph.
const OTHERS: [&str; 3] = ["XFS", "ours in place", "ours on zones"];
/// How long something may take that takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether there is an OSD of that release to be asked.
fn ceph_of(release: &str) -> bool {
    let there = std::env::var_os("IMBREX_CEPH_EXPERIMENT").is_some_and(|which| which == release);
    if !there {
        println!("not run: scripts/test-ceph sets IMBREX_CEPH_EXPERIMENT where Ceph is unpacked");
    }
    there
}

fn ceph() -> bool {
    ceph_of("1")
}

/// Settings of loop devices concern the whole machine: one test at a time, whoever runs them.
fn turn() -> File {
    let turn = std::env::temp_dir().join("imbrex-serve-tests.lock");
    let turn = File::options().create(true).truncate(false).write(true).open(turn).unwrap();
    turn.lock().unwrap();
    turn
}

/// The experiment in a tree with the scripts, where everything that it makes is in directories of its own.
fn experiment(at: &Place, name: &str, only: &[&str]) -> Command {
    for dir in ["work", "tmp", "tree/build"] {
        fs::create_dir_all(at.host(dir)).unwrap();
    }
    if !Path::new(&at.host("tree/scripts")).exists() {
        symlink(SCRIPTS, at.host("tree/scripts")).unwrap();
    }
    let (out, work, build) = (at.host("out"), at.host("work"), at.host("tree/build"));
    let mut args = vec!["bench", "run", name, "--short", "--force", "--full"];
    args.extend(["--out", &out, "--work", &work, "--build", &build]);
    only.iter().for_each(|only| args.extend(["--only", *only]));
    let mut command = at.command(&args);
    command.env("TMPDIR", at.host("tmp")).stdin(Stdio::null());
    command
}

fn result(at: &Place) -> Value {
    serde_json::from_str(&fs::read_to_string(at.host("out/result.json")).unwrap()).unwrap()
}

/// Runs these rows, and looks at what is left of them.
fn measured(at: &Place, name: &str, only: &[&str]) -> Value {
    done(experiment(at, name, only).output().unwrap());
    nothing_is_left(at);
    result(at)
}

fn row<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Processes, mounts and loop devices of what runs there.
fn runs(at: &Place) -> String {
    let here = at.host("");
    let here = here.trim_end_matches('/');
    let of = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let processes = of(Command::new("pgrep").args(["-a", "-f", &format!("{here}/(tmp|work)/")]));
    let loops = of(Command::new("losetup").arg("-a"));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let table = mounts.lines().chain(loops.lines()).filter(|line| line.contains(here));
    processes
        .lines()
        .filter(|line| !line.contains("imbrex bench run"))
        .chain(table)
        .fold(String::new(), |all, line| format!("{all}{line}\n"))
}

/// All of it but for processes that were killed a moment ago.
fn nothing_runs(at: &Place) {
    let end = Instant::now() + PATIENCE;
    while !runs(at).is_empty() {
        assert!(Instant::now() < end, "{}", runs(at));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn nothing_is_left(at: &Place) {
    assert_eq!(runs(at), "");
    for dir in ["work", "tmp"] {
        assert_eq!(fs::read_dir(at.host(dir)).unwrap().count(), 0, "{dir}");
    }
}

/// Starts it, and returns when a command line of what it started has these words.
fn started_until(at: &Place, words: &str) -> Child {
    let mut child =
        experiment(at, "store-ceph", &["writes of 4 MiB, 1 at once: Ceph's"]).stderr(Stdio::piped()).spawn().unwrap();
    while !runs(at).contains(words) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before {words} ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn each_side_writes_creates_reads_and_has_an_image() {
    if !ceph() {
        return;
    }
    let (_turn, at) = (turn(), place());
    let whats = [
        "writes of 16 KiB, 16 at once",
        "creates of 4 KiB over 40 s, 16 at once",
        "reads of 16 KiB, 16 at once",
        "image, random writes of 4 KiB, 32 at once",
        "creates of 4 KiB, 128 at once, 1 million or 300 s of the wall",
        "image, reads in order of 64 KiB, 256 at once",
        "image, random writes of 64 KiB, 256 at once",
        "image, writes in order of 64 KiB, 256 at once",
    ];
    let of = |whose: &str| SIDES.into_iter().filter(|side| side.starts_with(whose)).count();
    assert_eq!(of("Ceph's") + of("ours"), SIDES.len());
    let only: Vec<_> =
        whats.iter().flat_map(|what| ["Ceph's", "ours"].map(|whose| format!("{what}: {whose}"))).collect();
    let only: Vec<_> = only.iter().map(String::as_str).collect();
    let result = measured(&at, "store-ceph", &only);
    assert_eq!(result["rows"].as_array().unwrap().len(), whats.len() * SIDES.len());
    assert_eq!(result["ratios"].as_array().unwrap().len(), whats.len() * 4);
    for row in result["rows"].as_array().unwrap() {
        let (name, figures) = (row["name"].as_str().unwrap(), &row["figures"]);
        assert!(row["not_run"].is_null(), "{row}");
        assert!(figures["operations/s"].as_f64().unwrap() > 0.0, "{row}");
        if !name.starts_with("image") {
            assert!(figures["ms, p99"].as_f64().unwrap() >= figures["ms, p50"].as_f64().unwrap(), "{row}");
        }
        let (written, read) = (row["bytes_drive"].as_u64().unwrap(), row["bytes_read"].as_u64().unwrap());
        match name.contains("reads") {
            // Whatever wrote them has been closed: they come from the drive.
            true => {
                let size = if name.starts_with("image") { 64 << 10 } else { 16 << 10 };
                assert!(read >= row["operations"].as_u64().unwrap() * size, "{row}");
            }
            // A write that is acknowledged is on the drive, unless another one to the same place was there at once and came later.
            false => {
                let least = if name.starts_with("image, random writes of 64 KiB") { 2 } else { 1 };
                assert!(written >= row["bytes_user"].as_u64().unwrap() / least, "{row}");
            }
        }
    }
    let lines = result["charts"][0]["shape"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), SIDES.len());
    for (side, line) in SIDES.into_iter().zip(lines) {
        let of = |what: &str| row(&result, &format!("{what}: {side}"))["operations"].as_u64().unwrap();
        assert!(of("reads of 16 KiB, 16 at once") <= of("writes of 16 KiB, 16 at once"), "each is read once");
        assert!(line["name"] == side && line["points"].as_array().unwrap().len() > 1, "{line}");
    }
}

#[test]
fn stopped_at_any_time_it_takes_everything_down() {
    if !ceph() {
        return;
    }
    let _turn = turn();
    for (signal, words) in [(Signal::INT, "ceph-load.py"), (Signal::TERM, "ceph-load.py"), (Signal::INT, "--mkfs")] {
        let at = place();
        let child = started_until(&at, words);
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
        let sentence = fails(child.wait_with_output().unwrap(), 1);
        assert!(sentence.contains("interrupted"), "{sentence}");
        nothing_is_left(&at);
        assert_eq!(result(&at)["complete"], false);
    }
    // Killed, it can undo nothing; its processes end, and the command takes away what they had.
    let at = place();
    let mut child = started_until(&at, "ceph-load.py");
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + PATIENCE;
    while runs(&at).contains("ceph-osd") || runs(&at).contains("ceph-mon") {
        assert!(Instant::now() < end, "{}", runs(&at));
        std::thread::sleep(Duration::from_millis(50));
    }
    done(at.run(&["drive", "detach", "--all"]));
    nothing_runs(&at);
}

#[test]
fn new_objects_have_metadata_on_xfs_and_on_ours_without_ceph() {
    if let Err(why) = imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Xfs) {
        println!("not run: {why}");
        return;
    }
    let (_turn, at) = (turn(), place());
    // No script that gets Ceph, or needs it.
    fs::create_dir_all(at.host("tree/scripts")).unwrap();
    symlink(format!("{SCRIPTS}/xfs-load.py"), at.host("tree/scripts/xfs-load.py")).unwrap();
    let whats = [1, 16].map(|at_once| format!("new objects of 512 KiB with metadata of 500 bytes, {at_once} at once"));
    let result = measured(&at, "store-ceph", &["new objects of 512 KiB"]);
    assert_eq!(result["rows"].as_array().unwrap().len(), whats.len() * OTHERS.len());
    for side in OTHERS {
        let [one, many] = [0, 1].map(|what| row(&result, &format!("{}: {side}", whats[what])));
        for row in [one, many] {
            assert!(row["not_run"].is_null(), "{row}");
            let (objects, written) = (row["operations"].as_u64().unwrap(), row["bytes_drive"].as_u64().unwrap());
            assert!(objects > 0 && written >= objects * ((512 << 10) + 500), "{row}");
        }
        // One at a time shares its flushes with nobody: the file's and the database's, or the transaction's.
        let least = if side == "XFS" { 2.0 } else { 1.0 };
        assert!(one["figures"]["flushes, each"].as_f64().unwrap() >= least, "{one}");
    }
    let ratios = result["ratios"].as_array().unwrap();
    let goals: Vec<_> = ratios.iter().map(|ratio| ratio["goal"].as_f64().unwrap()).collect();
    assert_eq!(goals, [1.5, 1.5, 1.8, 1.8]);
    assert!(ratios.iter().all(|ratio| ratio["name"].as_str().unwrap().ends_with("over that of XFS")), "{ratios:?}");
}

/// All scripts, but for the one that gets Ceph.
fn without_ceph(at: &Place) {
    fs::create_dir_all(at.host("tree/scripts")).unwrap();
    for name in ["common.sh", "ceph.sh", "ceph-side", "ceph-load.py"] {
        symlink(format!("{SCRIPTS}/{name}"), at.host(&format!("tree/scripts/{name}"))).unwrap();
    }
    let (setup, text) = (at.host("tree/scripts/ceph-setup"), "#!/bin/sh\necho not run: Ceph: it rains\nexit 3\n");
    fs::write(&setup, text).unwrap();
    fs::set_permissions(&setup, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn rows_of_ceph_say_why_there_is_none_and_ours_run() {
    let (_turn, at) = (turn(), place());
    without_ceph(&at);
    let result = measured(&at, "store-ceph", &["writes of 16 KiB, 16 at once"]);
    for side in SIDES.into_iter().chain([NEWER]) {
        let row = row(&result, &format!("writes of 16 KiB, 16 at once: {side}"));
        match (side.contains("Ceph"), imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Xfs)) {
            (true, Ok(())) => assert_eq!(row["not_run"], "Ceph: it rains"),
            (true, Err(why)) => assert_eq!(row["not_run"], why.to_string()),
            (false, _) => assert!(row["not_run"].is_null() && row["operations"].as_u64().unwrap() > 0, "{row}"),
        }
    }
    assert!(result["ratios"].as_array().unwrap().is_empty());
}

/// That the bytes are on the drive of the data, and metadata where the row's name says.
fn is_apart(row: &Value) {
    let (name, figures) = (row["name"].as_str().unwrap(), &row["figures"]);
    assert!(row["not_run"].is_null() && figures["objects/s"].as_f64().unwrap() > 0.0, "{row}");
    assert!(figures["ms, p99"].as_f64().unwrap() >= figures["ms, p50"].as_f64().unwrap(), "{row}");
    assert!(row["bytes_drive"].as_u64().unwrap() >= row["bytes_user"].as_u64().unwrap(), "{row}");
    let metadata = figures["bytes written to the metadata's drive, each"].as_f64();
    match name.ends_with("the same disk") {
        true => assert_eq!(metadata, None, "{row}"),
        // Of 256 KiB; the least row has some forty objects.
        false => assert!(metadata.is_some_and(|each| (100.0..64e3).contains(&each)), "{row}"),
    }
}

#[test]
fn metadata_of_an_osd_are_on_a_drive_of_their_own() {
    if !ceph() {
        return;
    }
    let (_turn, at) = (turn(), place());
    let result = measured(&at, "store-db", &["of 256 KiB: Ceph's"]);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!((rows.len(), result["ratios"].as_array().unwrap().len()), (4, 2));
    rows.iter().for_each(is_apart);
}

#[test]
fn a_newer_release_of_ceph_is_measured() {
    if !ceph_of("newer") {
        return;
    }
    let (_turn, at) = (turn(), place());
    let whats = [
        "writes of 16 KiB, 16 at once",
        "reads of 16 KiB, 16 at once",
        "image, random writes of 4 KiB, 32 at once",
        "image, reads in order of 64 KiB, 256 at once",
    ];
    let only = whats.map(|what| format!("{what}: {NEWER}"));
    let of_objects = measured(&at, "store-ceph", &only.each_ref().map(String::as_str));
    for what in whats {
        let row = row(&of_objects, &format!("{what}: {NEWER}"));
        assert!(row["not_run"].is_null() && row["operations"].as_u64().unwrap() > 0, "{row}");
        let (read, written) = (row["bytes_read"].as_u64().unwrap(), row["bytes_drive"].as_u64().unwrap());
        assert!(if what.contains("reads") { read } else { written } > 0, "{row}");
    }
    let apart = measured(&at, "store-db", &[&format!("of 256 KiB: {NEWER}")]);
    assert_eq!(apart["rows"].as_array().unwrap().len(), 1);
    is_apart(&apart["rows"][0]);
}

#[test]
fn our_metadata_are_on_a_drive_of_their_own_where_there_is_no_ceph() {
    let (_turn, at) = (turn(), place());
    without_ceph(&at);
    let result = measured(&at, "store-db", &["of 256 KiB"]);
    let (mut ours, mut rocksdb) = (0, 0);
    for row in result["rows"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        let not = row["not_run"].as_str();
        match (name.contains("Ceph"), imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Raw)) {
            (true, Ok(())) => assert_eq!(not, Some("Ceph: it rains")),
            (true, Err(why)) => assert_eq!(not, Some(&*why.to_string())),
            // The library is beside the command once `make build` has built both.
            (false, _) if name.contains("RocksDB") && not.is_some() => {
                assert!(not.is_some_and(|why| why.contains("librocksdb_kv_imbrex")), "{row}");
            }
            (false, _) => {
                is_apart(row);
                ours += u32::from(!name.contains("RocksDB"));
                rocksdb += u32::from(name.contains("RocksDB"));
            }
        }
    }
    assert_eq!(ours, 5);
    // On another conventional disk, on a drive-managed drive in both states; and once more with RocksDB.
    assert_eq!(result["ratios"].as_array().unwrap().len(), 3 + usize::from(rocksdb > 0));
}
