//! `imbrex drive create|rm|mv|cp` of a drive of more than 8 TiB, whose image is several files.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn imbrex(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_imbrex")).args(args).output().unwrap()
}

#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(output: Output, code: i32, says: &[&str]) -> String {
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), sentence.lines().count()), (Some(code), 1), "{sentence}");
    assert!(says.iter().all(|says| sentence.contains(says)), "{sentence:?} lacks one of {says:?}");
    sentence
}

struct Place(TempDir);

impl Place {
    /// With a drive of 12.7 TiB: two files.
    fn new() -> Place {
        let at = Place(tempfile::tempdir().unwrap());
        let said = done(at.create("x.img", &[]));
        assert!(said.contains("2 files") && said.contains("x.img.1"), "{said}");
        at
    }
    fn create(&self, name: &str, more: &[&str]) -> Output {
        imbrex(&[&["drive", "create", &self.name(name), "--profile", "hgst-hsh721414al"], more].concat())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
    fn drive(&self, verb: &str, names: &[&str]) -> Output {
        let names: Vec<String> = names.iter().map(|name| self.name(name)).collect();
        imbrex(&[&["drive", verb], &*names.iter().map(String::as_str).collect::<Vec<_>>()].concat())
    }
    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut all: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}

#[test]
fn all_files_of_a_drive_go_together() {
    let at = Place::new();
    // Something in the second file, behind a hole.
    let mark = [7; 4096];
    File::options().write(true).open(at.path("x.img.1")).unwrap().write_all_at(&mark, 1 << 40).unwrap();
    done(at.drive("cp", &["x.img", "y.img"]));
    assert_eq!(at.entries(), ["x.img", "x.img.1", "y.img", "y.img.1"]);
    let mut back = [0; 4096];
    File::open(at.path("y.img.1")).unwrap().read_exact_at(&mut back, 1 << 40).unwrap();
    assert_eq!(back, mark);
    assert!(blocks(&at.path("y.img.1")) <= blocks(&at.path("x.img.1")) + 64, "holes stay holes");
    done(at.drive("info", &["y.img"]));
    done(at.drive("mv", &["y.img", "z.img"]));
    assert_eq!(at.entries(), ["x.img", "x.img.1", "z.img", "z.img.1"]);
    done(at.drive("info", &["z.img"]));
    done(at.drive("rm", &["z.img"]));
    assert_eq!(at.entries(), ["x.img", "x.img.1"]);
    // Nothing is replaced, and what is no drive is left alone.
    fs::write(at.path("mine"), "precious").unwrap();
    refused(at.drive("cp", &["x.img", "mine"]), 1, &["mine", "exists"]);
    refused(at.drive("mv", &["x.img", "mine"]), 1, &["mine", "exists"]);
    assert!(!at.drive("rm", &["mine"]).status.success());
    refused(at.drive("rm", &["none.img"]), 1, &["no such file"]);
    fs::write(at.path("y.img.1"), "precious").unwrap();
    refused(at.drive("cp", &["x.img", "y.img"]), 1, &["y.img.1", "in the way", "part 1"]);
    refused(at.create("y.img", &["--force"]), 1, &["y.img.1", "in the way", "part 1"]);
    assert_eq!(at.entries(), ["mine", "x.img", "x.img.1", "y.img.1"]);
    assert_eq!(fs::read(at.path("y.img.1")).unwrap(), b"precious");
}

#[test]
fn a_left_over_part_is_named_with_what_to_do() {
    let at = Place::new();
    fs::remove_file(at.path("x.img")).unwrap();
    let way_out = format!("imbrex drive rm {}", at.name("x.img"));
    refused(at.create("x.img", &[]), 1, &["x.img.1", "in the way", "another path", &way_out]);
    assert_eq!(at.entries(), ["x.img.1"]);
    done(at.create("x.img", &["--force"]));
    done(at.drive("info", &["x.img"]));
    fs::remove_file(at.path("x.img")).unwrap();
    done(at.drive("rm", &["x.img"]));
    assert!(at.entries().is_empty());
    // The other way round: what is missing is named, and what a part is.
    done(at.create("x.img", &[]));
    fs::rename(at.path("x.img.1"), at.path("kept")).unwrap();
    for verb in ["cp", "mv"] {
        refused(at.drive(verb, &["x.img", "y.img"]), 3, &["x.img.1", "missing", "8T", "put it back"]);
    }
    assert_eq!(at.entries(), ["kept", "x.img"]);
    // A smaller drive in its place leaves no part of it.
    fs::rename(at.path("kept"), at.path("x.img.1")).unwrap();
    done(at.create("x.img", &["--capacity", "64G", "--force"]));
    assert_eq!(at.entries(), ["x.img"]);
}

#[test]
fn a_drive_in_use_stays() {
    let at = Place::new();
    // What has the drive is this process: the lock belongs to the open file.
    let held = File::open(at.path("x.img")).unwrap();
    held.lock().unwrap();
    // A child that another test is starting has the drive, too, until it is its own program.
    let user = ["in use by process", &format!(" {} (", std::process::id())];
    refused(at.drive("rm", &["x.img"]), 4, &user);
    refused(at.drive("mv", &["x.img", "y.img"]), 4, &user);
    refused(at.drive("cp", &["x.img", "y.img"]), 4, &user);
    refused(at.create("x.img", &["--force"]), 4, &user);
    assert_eq!(at.entries(), ["x.img", "x.img.1"]);
    drop(held);
    done(at.drive("info", &["x.img"]));
}

#[test]
fn a_move_that_is_ended_anywhere_is_named_with_what_to_do() {
    // As `drive mv` goes: parts and the first file get their new names, and lose the old ones, the first file before its parts.
    let link = |at: &Place, from: &str, to: &str| fs::hard_link(at.path(from), at.path(to)).unwrap();
    let at = Place::new();
    link(&at, "x.img.1", "y.img.1");
    let way_out = format!("imbrex drive rm {}", at.name("y.img"));
    refused(at.drive("mv", &["x.img", "y.img"]), 1, &["y.img.1", "in the way", &way_out]);
    refused(at.drive("info", &["y.img"]), 1, &["y.img.1", "no such file", &way_out]);
    done(at.drive("rm", &["y.img"]));
    assert_eq!(at.entries(), ["x.img", "x.img.1"]);
    link(&at, "x.img.1", "y.img.1");
    link(&at, "x.img", "y.img");
    refused(at.drive("mv", &["x.img", "y.img"]), 1, &["under another name", "imbrex drive rm"]);
    done(at.drive("info", &["x.img"]));
    done(at.drive("info", &["y.img"]));
    fs::remove_file(at.path("x.img")).unwrap();
    // Not that it is two drives, one of which may be removed.
    for verb in ["mv", "cp"] {
        let said = refused(at.drive(verb, &["y.img", "./y.img"]), 1, &["this is the drive itself"]);
        assert!(!said.contains("drive rm"), "{said}");
    }
    let way_out = format!("imbrex drive rm {}", at.name("x.img"));
    for verb in ["mv", "cp"] {
        refused(at.drive(verb, &["x.img", "z.img"]), 1, &["x.img.1", "no such file", &way_out]);
    }
    done(at.drive("rm", &["x.img"]));
    assert_eq!(at.entries(), ["y.img", "y.img.1"]);
    done(at.drive("info", &["y.img"]));
}

/// Kills a command that makes `name` while it has files there without a name, or when it is done if it was faster. What is there then is whole, or
/// no drive and named with what to do.
#[track_caller]
fn killed(at: &Place, args: &[&str], name: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_imbrex")).args(args).stdout(Stdio::null()).spawn().unwrap();
    let files = format!("/proc/{}/fd", child.id());
    let here = at.0.path().as_os_str().as_encoded_bytes();
    let unfinished = |file: fs::DirEntry| {
        fs::read_link(file.path()).is_ok_and(|target| {
            let target = target.as_os_str().as_encoded_bytes();
            target.starts_with(here) && (target.ends_with(b" (deleted)") || target.ends_with(b".unfinished"))
        })
    };
    while child.try_wait().unwrap().is_none() {
        if fs::read_dir(&files).is_ok_and(|mut files| files.any(|file| file.is_ok_and(unfinished))) {
            child.kill().unwrap();
        }
    }
    let made: Vec<String> = at.entries().into_iter().filter(|entry| entry.starts_with(name)).collect();
    if made.iter().any(|file| file == name) {
        done(at.drive("info", &[name]));
        return;
    }
    if let Some(left) = made.first() {
        refused(at.create(name, &[]), 1, &[left, "remove"]);
        made.iter()
            .filter(|file| file.ends_with(".unfinished"))
            .for_each(|file| fs::remove_file(at.path(file)).unwrap());
        if made.iter().any(|file| !file.ends_with(".unfinished")) {
            done(at.drive("rm", &[name]));
        }
    }
    done(at.create(name, &[]));
}

#[test]
fn what_a_killed_create_or_copy_leaves_is_no_drive_or_a_whole_one() {
    let at = Place::new();
    File::options().write(true).open(at.path("x.img.1")).unwrap().write_all_at(&vec![7; 64 << 20], 1 << 40).unwrap();
    killed(&at, &["drive", "create", &at.name("y.img"), "--profile", "hgst-hsh721414al"], "y.img");
    killed(&at, &["drive", "cp", &at.name("x.img"), &at.name("z.img")], "z.img");
    done(at.drive("info", &["x.img"]));
    // One that is replaced is empty until the new one is whole: no drive, and told.
    File::options().write(true).open(at.path("y.img")).unwrap().set_len(0).unwrap();
    assert!(!at.drive("info", &["y.img"]).status.success());
    refused(at.create("y.img", &[]), 1, &["y.img", "exists", "--force"]);
    done(at.create("y.img", &["--force"]));
    done(at.drive("info", &["y.img"]));
}
