//! What `imbrex fs …` answers to everything that can be wrong with a drive, a host, a path or an option: one sentence, the
//! right exit code, and nothing lost. `docs/bad-input.md` lists it all.

mod support;

use imbrex_device::{AlignedBuf, Cause, ZoneId, ZonedDevice};
use imbrex_emulator::{Emulator, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use support::*;

/// Every verb with what it needs behind the drive.
const ALL: [&[&str]; 9] = [
    &["format"],
    &["ls"],
    &["cat", "/x"],
    &["cp", "/dev/null", ":/x"],
    &["rm", "/x"],
    &["df"],
    &["stat"],
    &["check"],
    &["advise"],
];

/// What each verb says of `drive`, all of it failing with this exit code.
fn all_fail(at: &Place, drive: &str, code: i32) -> Vec<String> {
    let run = |words: &&[&str]| fails(at.run(&[&["fs", words[0], drive], &words[1..]].concat()), code);
    ALL.iter().map(run).collect()
}

fn open(path: &Path) -> Emulator {
    Emulator::open(path, OpenOptions::default()).unwrap()
}

/// Changes a block of a drive that nobody has.
fn change(drive: &Emulator, address: u64, change: impl FnOnce(&mut [u8])) {
    let mut buf = AlignedBuf::zeroed(4096);
    drive.read_at(&mut buf, address, Cause::Other.into()).unwrap();
    change(&mut buf);
    drive.write_at(&buf, address, Cause::Other.into()).unwrap();
}

/// A formatted drive with a table of two zones, a log and a small file.
fn filled() -> Place {
    let at = formatted();
    for (name, bytes) in [("000001.sst", bytes(1_500_000)), ("000002.log", bytes(200_000)), ("CURRENT", b"x".into())] {
        done(at.fs("cp", &[&at.file(name, bytes), ":/"]));
    }
    at
}

fn intact(at: &Place) {
    for name in ["000001.sst", "000002.log", "CURRENT"] {
        assert!(at.fs("cat", &[&format!("/{name}")]).stdout == content(at.host(name)), "{name}");
    }
}

fn zone_of(at: &Place, path: &str) -> u32 {
    json(at.fs("stat", &[path, "--json"]))["extents"][0]["zone"].as_u64().unwrap() as u32
}

#[test]
fn what_is_no_drive_is_left_alone() {
    let at = place();
    for content in ["", "not a drive", &"x".repeat(100_000)] {
        let path = at.file("plain", content);
        for sentence in all_fail(&at, &path, 1) {
            says(&sentence, &[&path, "this is not a drive image", "imbrex drive create"]);
        }
        fails(at.run(&["fs", "format", "--force", &path]), 1);
        assert_eq!(std::fs::read(&path).unwrap(), content.as_bytes());
    }
    for (drive, parts) in [
        (at.host("nothing"), ["there is no such file", "imbrex drive create"]),
        (at.host(""), ["this is a directory", "not a drive image"]),
        ("/dev/null".into(), ["/dev/null", "not a block device"]),
        (String::new(), ["the name of the drive is empty", "path of a drive image"]),
        ("mem:tiny".into(), ["question mark", "mem:?profile=tiny"]),
        ("banded:x".into(), ["there is no such file", "imbrex drive create --banded"]),
    ] {
        // `format` takes what the drives' own crate says.
        let code = if drive.is_empty() || drive == "mem:tiny" { 2 } else { 1 };
        for sentence in &all_fail(&at, &drive, code)[1..] {
            says(sentence, &parts);
        }
    }
}

#[test]
fn an_unformatted_drive_says_so() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    for words in &ALL[1..] {
        let sentence = fails(at.fs(words[0], &words[1..]), 1);
        says(&sentence, &[at.drive(), "has no Imbrex label", "imbrex fs format"]);
    }
}

#[test]
fn what_somebody_else_formatted_is_never_overwritten_without_force() {
    for address in [0, 64 << 10, 9 << 20] {
        let at = place();
        done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
        change(&open(&at.path), address, |block| block[..4].copy_from_slice(b"XFSB"));
        says(&fails(at.fs("ls", &[]), 1), &["has no Imbrex label"]);
        says(&fails(at.fs("format", &[]), 1), &["somebody else", "--force"]);
        let mut block = AlignedBuf::zeroed(4096);
        open(&at.path).read_at(&mut block, address, Cause::Other.into()).unwrap();
        assert_eq!(&block[..4], b"XFSB");
        done(at.fs("format", &["--force"]));
        done(at.fs("ls", &[]));
    }
}

#[test]
fn another_geometry_and_another_version_are_told() {
    let at = filled();
    let small = open(&at.path);
    let other = place();
    done(at.run(&["drive", "create", other.drive(), "--profile", "tiny", "--zone-size", "2M"]));
    let large = open(&other.path);
    let mut label = AlignedBuf::zeroed(64 << 10);
    small.read_at(&mut label, 0, Cause::Other.into()).unwrap();
    for copy in [0, 2 << 20] {
        large.write_at(&label, copy, Cause::Other.into()).unwrap();
    }
    drop(large);
    for words in &ALL[1..] {
        says(&fails(other.fs(words[0], &words[1..]), 1), &["was formatted as", "but is", "drive settings"]);
    }
    says(&fails(other.fs("format", &[]), 1), &["--force"]);

    // Another version's label may be longer than a zone of this one.
    for copy in [0, 1 << 20] {
        change(&small, copy, |block| {
            block[8..12].copy_from_slice(&7u32.to_le_bytes());
            block[12..16].copy_from_slice(&(2u32 << 20).to_le_bytes());
        });
    }
    drop(small);
    for words in &ALL[1..] {
        says(&fails(at.fs(words[0], &words[1..]), 1), &["another version of Imbrex (label version 7", "use that one"]);
    }
    says(&fails(at.fs("format", &[]), 1), &["another version of Imbrex (version 7)", "--force"]);
}

/// Runs the command as a user who owns nothing. Only root can.
fn as_nobody(at: &Place, verb: &str) -> Option<Output> {
    if !is_root() {
        return None;
    }
    // By a process of its own: a file that any thread has open for writing cannot be run.
    let exe = at.host("imbrex");
    assert!(Command::new("cp").args([env!("CARGO_BIN_EXE_imbrex"), &exe]).status().unwrap().success());
    for path in [exe.as_str(), &at.host("")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&exe);
    Some(command.args(["fs", verb, at.drive()]).uid(65_534).gid(65_534).output().unwrap())
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t0\t0\t0")
}

#[test]
fn no_permission_is_told() {
    let at = formatted();
    std::fs::set_permissions(&at.path, std::fs::Permissions::from_mode(0o600)).unwrap();
    for verb in ["ls", "format"] {
        let output = match as_nobody(&at, verb) {
            Some(output) => output,
            None => {
                // Who owns a file may still be kept from it.
                std::fs::set_permissions(&at.path, std::fs::Permissions::from_mode(0o0)).unwrap();
                at.fs(verb, &[])
            }
        };
        says(&fails(output, 1), &["no permission to", "run as its owner or change its mode"]);
    }
    std::fs::set_permissions(&at.path, std::fs::Permissions::from_mode(0o600)).unwrap();
    done(at.fs("ls", &[]));
}

#[test]
fn a_drive_in_use_names_who_has_it() {
    let at = formatted();
    let mut child = at.copying(":/stream", b"in the middle");
    let holder = format!("in use by process {}", child.id());
    // The child may not have it yet.
    while !json(at.run(&["drive", "info", at.drive(), "--json"]))["in_use_by"].is_u64() {
        std::thread::yield_now();
    }
    for sentence in all_fail(&at, at.drive(), 4) {
        says(&sentence, &[&holder, "stop it first"]);
    }
    says(&fails(at.fs("format", &["--force"]), 4), &[&holder]);
    drop(child.stdin.take());
    done(child.wait_with_output().unwrap());
    assert_eq!(done(at.fs("cat", &["/stream"])), "in the middle");
}

#[test]
fn a_truncated_image_is_told_and_left_as_it_is() {
    let at = filled();
    let whole = content(&at.path);
    for (len, says_what) in [(whole.len() - 4096, "is truncated: it has"), (1000, "truncated inside its header")] {
        let cut = at.file("cut.img", &whole[..len]);
        for sentence in all_fail(&at, &cut, 3) {
            says(&sentence, &[says_what, "restore it from a copy"]);
        }
        assert!(content(&cut) == whole[..len]);
    }
    intact(&at);
}

#[test]
fn a_copied_image_is_a_drive_of_its_own() {
    let at = filled();
    // Killed in the middle, when shared memory holds bytes that the drive does not.
    let sent = bytes(5000);
    let mut child = at.copying(":/000003.log", &sent);
    let holds = |e: std::fs::DirEntry| is_survivor(&e) && content(e.path()).windows(5000).any(|w| w == sent);
    while !std::fs::read_dir(at.host("")).unwrap().flatten().any(holds) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let copy = at.host("copy.img");
    std::fs::copy(&at.path, &copy).unwrap();
    for drive in [at.drive(), &copy] {
        done(at.run(&["fs", "cp", drive, &at.file("mark", drive), ":/mark"]));
    }
    // The copy never has what only the original's memory held; the original has all of it.
    assert!(at.run(&["fs", "cat", &copy, "/000003.log"]).stdout.len() < 5000);
    assert!(at.fs("cat", &["/000003.log"]).stdout == sent, "what a killed process wrote is there");
    for drive in [at.drive(), &copy] {
        assert_eq!(done(at.run(&["fs", "cat", drive, "/mark"])), drive);
        says(&done(at.run(&["fs", "check", drive])), &["nothing is wrong"]);
    }
    intact(&at);
}

fn is_survivor(entry: &std::fs::DirEntry) -> bool {
    entry.file_name().to_str().is_some_and(|name| name.starts_with("imbrex-"))
}

#[test]
fn a_host_without_room_is_an_error_that_goes_away() {
    let at = filled();
    let limited = |kib: u32, words: &str| {
        let script = format!("ulimit -f {kib}; exec \"$0\" {words}");
        let drive = format!("imbrex://{}?survivor=off", at.drive());
        let mut shell = Command::new("bash");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_imbrex")]).env("DRIVE", drive).env("BIG", at.host("big"));
        shell.output().unwrap()
    };
    at.file("big", bytes(20_000_000));
    let sentence = fails(limited(20_000, "fs cp \"$DRIVE\" \"$BIG\" :/big.sst"), 1);
    says(&sentence, &["limit on file sizes", "raise it (ulimit -f)"]);
    intact(&at);
    assert!(!done(at.fs("ls", &[])).contains("big"), "no half of a copy");
    done(at.fs("cp", &[&at.host("big"), ":/big.sst"]));
    done(limited(20_000, "fs rm \"$DRIVE\" /big.sst"));
    says(&done(at.fs("check", &[])), &["nothing is wrong (3 files"]);

    let script = "ulimit -f 1000; exec \"$0\" drive create \"$1\" --profile tiny";
    let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_imbrex"), &at.host("new.img")]).output();
    says(&fails(output.unwrap(), 1), &["file size limit", "smaller --capacity"]);
    assert!(!Path::new(&at.host("new.img")).exists(), "no half of an image");
}

#[test]
fn a_full_drive_keeps_what_it_has_and_can_be_deleted_from() {
    let at = filled();
    at.file("big", bytes(20_000_000));
    done(at.fs("cp", &[&at.host("big"), ":/1.sst"]));
    done(at.fs("cp", &[&at.host("big"), ":/2.sst"]));
    let sentence = fails(at.fs("cp", &[&at.host("big"), ":/3.sst"]), 1);
    says(&sentence, &[at.drive(), "no space left; delete something or use a larger drive", " needs ", " are free "]);
    assert_eq!(done(at.fs("ls", &[])), "000001.sst\n000002.log\n1.sst\n2.sst\nCURRENT\n", "no half of a copy");
    intact(&at);
    done(at.fs("rm", &["/1.sst"]));
    done(at.fs("cp", &[&at.host("big"), ":/3.sst"]));
    assert!(at.fs("cat", &["/3.sst"]).stdout == content(at.host("big")));
    says(&done(at.fs("check", &[])), &["nothing is wrong (5 files"]);
}

#[test]
fn a_dead_zone_costs_its_file_and_no_other() {
    for (offline, part) in [(true, "offline"), (false, "")] {
        let at = filled();
        let zone = ZoneId(zone_of(&at, "/000001.sst"));
        match offline {
            true => open(&at.path).faults().make_offline(zone).unwrap(),
            false => open(&at.path).faults().make_read_only(zone).unwrap(),
        }
        if offline {
            let sentence = fails(at.fs("cat", &["/000001.sst"]), 3);
            says(&sentence, &[&format!("zone {zone}"), part, "restore it from a copy and replace the drive"]);
            let output = at.fs("check", &[]);
            says(&text(&output.stdout), &["/000001.sst"]);
            says(&fails(output, 3), &["imbrex fs cp"]);
            assert!(at.fs("cat", &["/000002.log"]).stdout == content(at.host("000002.log")));
        } else {
            intact(&at);
        }
        done(at.fs("cp", &[&at.file("new", "new"), ":/new"]));
        done(at.fs("rm", &["/000001.sst"]));
        assert_eq!(done(at.fs("ls", &[])), "000002.log\nCURRENT\nnew\n");
        says(&done(at.fs("check", &[])), &["nothing is wrong"]);
    }
}

#[test]
fn flipped_bits_are_found() {
    // Either copy of the label: found, and repaired by the next mount.
    for copy in [0, 1 << 20] {
        let at = filled();
        change(&open(&at.path), copy, |block| block[100] ^= 4);
        let output = at.fs("check", &[]);
        says(&text(&output.stdout), &["label"]);
        says(&fails(output, 3), &["--repair"]);
        intact(&at);
        at.fs("check", &["--repair"]);
        says(&done(at.fs("check", &[])), &["nothing is wrong"]);
        intact(&at);
    }
    let at = filled();
    for copy in [0, 1 << 20] {
        change(&open(&at.path), copy, |block| block[100] ^= 4);
    }
    for words in &ALL[1..] {
        says(&fails(at.fs(words[0], &words[1..]), 3), &["damaged label", "restore the drive from a copy"]);
    }

    // In a log's frame: an error there, never a wrong byte.
    let at = filled();
    let log = u64::from(zone_of(&at, "/000002.log"));
    open(&at.path).faults().flip_bits((log << 20) + 4096 + 500, 1).unwrap();
    says(&fails(at.fs("cat", &["/000002.log"]), 3), &["is damaged", "imbrex fs check"]);
    let output = at.fs("check", &[]);
    says(&text(&output.stdout), &["/000002.log"]);
    says(&fails(output, 3), &["1 problem;"]);
    assert!(at.fs("cat", &["/000001.sst"]).stdout == content(at.host("000001.sst")));
}

#[test]
fn shared_memory_that_cannot_be_had_is_told_with_the_way_out() {
    let at = filled();
    let with = |dir: &str, words: &[&str]| at.command(words).env("IMBREX_SHM_DIR", dir).output().unwrap();
    let copy = ["fs", "cp", at.drive(), &at.file("more", "more"), ":/more"];
    for dir in [at.host("nothing"), at.file("plain", "")] {
        says(&fails(with(&dir, &copy), 1), &[&dir, "IMBREX_SHM_DIR", "survivor=off"]);
    }
    // Too small: the largest that may be asked for, under a limit.
    let script = "ulimit -f 30000; exec \"$0\" fs rm \"$1\" /CURRENT";
    let mut shell = Command::new("bash");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_imbrex"), at.drive()]).env("IMBREX_SHM_DIR", at.host(""));
    says(
        &fails(shell.output().unwrap(), 1),
        &["KiB of shared memory", "free some", "smaller survivor", "survivor=off"],
    );
    intact(&at);
    let off = format!("imbrex://{}?survivor=off", at.drive());
    done(with(&at.host("nothing"), &["fs", "cp", &off, copy[3], ":/more"]));
    assert_eq!(done(at.fs("cat", &["/more"])), "more");
}

#[test]
fn shared_memory_wiped_under_a_mount_costs_it_nothing() {
    let at = filled();
    let mut child = at.copying(":/000003.log", &bytes(5000));
    let found = loop {
        if let Some(found) = std::fs::read_dir(at.host("")).unwrap().flatten().find(is_survivor) {
            break found.path();
        }
        std::thread::yield_now();
    };
    std::fs::remove_file(found).unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), &bytes(5000)).unwrap();
    drop(child.stdin.take());
    done(child.wait_with_output().unwrap());
    assert_eq!(at.fs("cat", &["/000003.log"]).stdout.len(), 10_000);
    intact(&at);
    says(&done(at.fs("check", &[])), &["nothing is wrong"]);
}

/// A process that appends to a log is killed when its bytes are in shared memory, whose file this returns.
fn killed(at: &Place, content: &[u8]) -> std::path::PathBuf {
    let drive = format!("imbrex://{}?survivor-size=1M", at.drive());
    let mut command = at.command(&["fs", "cp", &drive, "-", ":/000003.log"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), content).unwrap();
    let end = &content[content.len() - 32..];
    let path = loop {
        let found = std::fs::read_dir(at.host("")).unwrap().flatten().find(is_survivor).map(|found| found.path());
        let has = |path: &std::path::PathBuf| std::fs::read(path).unwrap().windows(end.len()).any(|bytes| bytes == end);
        if let Some(path) = found.filter(has) {
            break path;
        }
        std::thread::yield_now();
    };
    child.kill().unwrap();
    child.wait().unwrap();
    path
}

#[test]
fn what_another_user_s_killed_process_left_is_not_thrown_away() {
    let at = filled();
    let log = bytes(50_000);
    let memory = killed(&at, &log);
    let root = is_root();
    // Who is not root cannot give a file away, but cannot read this one either.
    let away = |away: bool| match root {
        true => std::os::unix::fs::chown(&memory, Some(if away { 65_534 } else { 0 }), None).unwrap(),
        false => {
            std::fs::set_permissions(&memory, std::fs::Permissions::from_mode(if away { 0 } else { 0o600 })).unwrap();
        }
    };
    away(true);
    let off = format!("imbrex://{}?survivor=off", at.drive());
    let parts = ["used it last", memory.to_str().unwrap(), "mount it once as user", "read-only=on&survivor=off"];
    for words in
        [&["rm", at.drive(), "/CURRENT"][..], &["rm", &off, "/CURRENT"], &["ls", at.drive()], &["check", at.drive()]]
    {
        says(&fails(at.run(&[&["fs"], words].concat()), 1), &parts);
        assert!(memory.exists());
    }
    for look in [&off, &format!("imbrex://{}?read-only=on&survivor=off", at.drive())] {
        assert!(done(at.run(&["fs", "ls", look])).contains("CURRENT"));
        assert!(memory.exists());
    }
    away(false);
    if root {
        // The other way round.
        let exe = at.host("imbrex");
        assert!(Command::new("cp").args([env!("CARGO_BIN_EXE_imbrex"), &exe]).status().unwrap().success());
        for (path, mode) in [(exe.as_str(), 0o755), (&at.host(""), 0o1777), (at.drive(), 0o666)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut nobody = Command::new(&exe);
        nobody.args(["fs", "rm", at.drive(), "/CURRENT"]).env("IMBREX_SHM_DIR", at.host("")).uid(65_534).gid(65_534);
        says(&fails(nobody.output().unwrap(), 1), &["user 0 used it last", memory.to_str().unwrap()]);
        assert!(memory.exists());
    }
    // A mount that keeps nothing itself writes what is there.
    done(at.run(&["fs", "cp", &off, &at.file("more", "more"), ":/more"]));
    assert!(!memory.exists());
    assert!(at.fs("cat", &["/000003.log"]).stdout == log);
    intact(&at);
    says(&done(at.fs("check", &[])), &["nothing is wrong"]);
}

#[test]
fn names_and_paths_that_make_no_sense_are_told() {
    let at = formatted();
    let file = at.file("x", "x");
    let (longest, longer) = (format!("/{}", "n".repeat(255)), format!("/{}", "n".repeat(256)));
    done(at.fs("cp", &[&file, &format!(":{longest}")]));
    assert_eq!(done(at.fs("cat", &[&longest])), "x");
    let deep = "/d".repeat(70);
    for (words, parts) in [
        (vec!["cp", &file, &format!(":{longer}")], vec!["the name is too long", "255 bytes"]),
        (vec!["cat", &longer], vec!["the name is too long"]),
        (vec!["cp", &file, &format!(":{deep}")], vec!["more than 64 directories"]),
        (vec!["cp", &file, &format!(":/{}", "d/".repeat(3000))], vec!["too long"]),
        (vec!["cat", ""], vec!["is a directory"]),
        (vec!["cat", "/"], vec!["is a directory", "give the path of a file"]),
        (vec!["cat", "/.."], vec!["is a directory"]),
        (vec!["cat", "/none"], vec!["/none", "no such file or directory", "check the path"]),
        (vec!["rm", "/none"], vec!["/none", "no such file or directory"]),
        (vec!["rm", "/.."], vec!["is a directory"]),
        (vec!["ls", "/none"], vec!["/none", "no such file or directory"]),
        (vec!["stat", "/none"], vec!["/none", "no such file or directory"]),
        (vec!["cp", ":/none", "-"], vec!["/none", "no such file or directory"]),
        (vec!["cp", "/none/at/all", ":/"], vec!["/none/at/all", "check the path on the host"]),
        (vec!["cp", &file, ":/none/x"], vec!["/none/x", "no such file or directory"]),
        (vec!["cp", &format!(":{longest}"), "/none/x"], vec!["/none/x", "check the path on the host"]),
        (vec!["cp", &format!(":{longest}"), "/dev/full"], vec!["writing the copy", "see where it goes"]),
        (vec!["cp", &format!(":{longest}"), &format!(":{longest}")], vec!["cannot be copied into itself"]),
    ] {
        says(&fails(at.fs(words[0], &words[1..]), 1), &parts);
    }
    says(&fails(at.fs("cp", &[&file, &file]), 2), &["write it with a colon in front"]);
    assert_eq!(done(at.fs("ls", &[])), format!("{}\n", &longest[1..]));
    // As deep as it goes.
    let deep = "d/".repeat(63);
    std::fs::create_dir_all(at.host(&deep)).unwrap();
    at.file(&format!("{deep}leaf"), "deep");
    done(at.fs("cp", &[&at.host("d"), ":/"]));
    assert_eq!(done(at.fs("cat", &[&format!("/{deep}leaf")])), "deep");
}

#[test]
fn what_is_no_file_in_a_directory_is_not_waited_for() {
    let at = formatted();
    std::fs::create_dir(at.host("in")).unwrap();
    assert!(Command::new("mkfifo").arg(at.host("in/pipe")).status().unwrap().success());
    says(&fails(at.fs("cp", &[&at.host("in"), ":/in"]), 1), &["in/pipe", "neither a file nor a directory"]);
    std::fs::remove_file(at.host("in/pipe")).unwrap();
    std::os::unix::fs::symlink("nowhere", at.host("in/link")).unwrap();
    says(&fails(at.fs("cp", &[&at.host("in"), ":/in"]), 1), &["in/link", "check the path on the host"]);
}

#[test]
fn bad_uris_and_options_are_told() {
    let at = formatted();
    let image = at.drive();
    for (uri, parts) in [
        ("imbrex://".into(), ["names no drive", "imbrex:///path/to/drive.img"]),
        (format!("imbrex://{image}?survivor-sice=3"), ["there is no option", "survivor-size"]),
        (format!("imbrex://{image}?cache=lots"), ["is not a size", "256M"]),
        (format!("imbrex://{image}?cache=1M&cache=2M"), ["is there twice", "leave one out"]),
        (format!("imbrex://{image}?survivor=maybe"), ["neither on nor off", "survivor"]),
        (format!("imbrex://{image}?survivor-size=9T"), ["between 1M and 4G", "survivor-size"]),
        (format!("imbrex://{image}?wal=first"), ["there is no option", "wal"]),
        (format!("imbrex://{image}?idle-pack=soon"), ["neither on, off nor a number of seconds", "idle-pack"]),
        (format!("imbrex://{image}?format=perhaps"), ["neither on nor off", "format"]),
        (format!("imbrex://{image}?cache=99999999999T"), ["64 bits", "cache"]),
    ] {
        let sentence = fails(at.run(&["fs", "rm", &uri, "/x"]), 2);
        says(&sentence, &parts);
        // What the command asks for by itself is none of the user's words.
        assert!(
            !sentence.contains("64M&") && !sentence.contains("cache=64M") && !sentence.contains("read-only=on"),
            "{sentence}"
        );
    }
    let path = format!("{image}?colour=3");
    let sentence = fails(at.run(&["fs", "ls", &path]), 2);
    assert!(sentence.starts_with(&format!("imbrex: {path}: there is no option")), "{sentence}");
    fails(at.run(&["fs", "ls", &format!("imbrex://{image}?cache=1M"), "--cache", "2M"]), 2);
    done(at.fs("ls", &[]));
}

#[test]
fn a_format_on_the_way_that_is_refused_says_why() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.run(&["drive", "finish", at.drive(), "9"]));
    let uri = format!("imbrex://{}?format=on", at.drive());
    let file = at.file("x", "x");
    says(
        &fails(at.run(&["fs", "cp", &uri, &file, ":/x"]), 1),
        &["somebody else in zone 9", "imbrex fs format --force"],
    );
    // A look formats nothing.
    says(&fails(at.run(&["fs", "ls", &uri]), 1), &["imbrex fs format"]);
    done(at.run(&["drive", "reset", at.drive(), "9", "--force"]));
    done(at.run(&["fs", "cp", &uri, &file, ":/x"]));
    // What is formatted is mounted.
    done(at.run(&["fs", "cp", &uri, &file, ":/y"]));
    assert_eq!(done(at.fs("ls", &[])).lines().count(), 2);
}

#[test]
fn a_directory_of_20_000_files_goes_in_and_is_listed_and_removed() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "hgst-hsh721414al", "--capacity", "64G"]));
    done(at.fs("format", &[]));
    std::fs::create_dir(at.host("d")).unwrap();
    for i in 0..20_000 {
        at.file(&format!("d/{i:06}"), "");
    }
    done(at.fs("cp", &[&at.host("d"), ":/d"]));
    let list = done(at.fs("ls", &["/d"]));
    assert_eq!((list.lines().count(), list.lines().last()), (20_000, Some("019999")));
    says(&done(at.fs("check", &[])), &["nothing is wrong (20,000 files"]);
    assert_eq!(json(at.fs("rm", &["-r", "/d", "--json"]))["removed"], 20_001);
    assert_eq!(done(at.fs("ls", &[])), "");
}
