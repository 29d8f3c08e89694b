//! Where a drive may be mounted: `imbrex fs mount` and `imbrex drive serve` take an empty directory that is nobody's mount point.
//! What could hide a part of this machine runs in a mount namespace; what cannot run here says so on stderr ("not run: …").

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const IMBREX: &str = env!("CARGO_BIN_EXE_imbrex");

fn not_run(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {test}: {why}");
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

/// Images of one file system each.
fn drives(names: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let image = path(&dir, name);
        for args in [&["drive", "create", &image, "--profile", "tiny"][..], &["fs", "format", &image]] {
            assert!(Command::new(IMBREX).args(args).stdout(Stdio::null()).status().unwrap().success());
        }
    }
    dir
}

fn mountable() -> Result<(), String> {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    fuse.map(drop).map_err(|error| format!("needs /dev/fuse ({error})"))
}

/// In a mount namespace of its own, for half a minute at most (a mount that should have been refused stays until then).
fn apart(script: &str) -> Output {
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "timeout", "30", "sh", "-ec", script])
        .output()
        .unwrap()
}

/// Why there is no mount namespace of our own.
fn no_namespace() -> Option<String> {
    let done = Command::new("unshare").args(["--mount", "true"]).output();
    (!done.is_ok_and(|output| output.status.success())).then(|| "needs root and unshare (package util-linux)".into())
}

#[track_caller]
fn refused(output: &Output, code: i32, says: &str) {
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(sentence.contains(says) && sentence.lines().count() == 1, "{sentence:?} lacks {says:?}");
}

#[test]
fn the_systems_directories_and_mount_points_are_refused() {
    if let Some(why) = no_namespace() {
        return not_run("the_systems_directories_and_mount_points_are_refused", &why);
    }
    let dir = drives(&["drive.img"]);
    let image = path(&dir, "drive.img");
    for system in ["/proc", "/", "/dev", "/proc/self/fdinfo", "/proc/self/cwd/../../../../../proc"] {
        let output = apart(&format!("cd / && exec {IMBREX} fs mount {image} {system}"));
        refused(&output, 1, "belongs to the system");
    }
    let at = path(&dir, "at");
    fs::create_dir(&at).unwrap();
    // A bind mount of an empty directory has the same numbers as that.
    for mount in ["mount -t tmpfs none", &format!("mount --bind {at}")] {
        for command in [format!("fs mount {image} {at}"), format!("drive serve {image} --at {at}")] {
            refused(&apart(&format!("{mount} {at}; exec {IMBREX} {command}")), 4, "is a mount point already");
        }
    }
    fs::write(Path::new(&at).join("mine"), "x").unwrap();
    refused(&apart(&format!("exec {IMBREX} fs mount {image} {at}")), 1, "not empty");
    refused(&apart(&format!("exec {IMBREX} fs mount {image} {at}/mine")), 1, "no directory");
    refused(&apart(&format!("exec {IMBREX} fs mount {image} {at}/none")), 1, "mkdir");
}

/// Mounts, and gives the first line that it says; an empty one where it ended first.
struct Mounting {
    child: Child,
    said: String,
}

fn begin(image: &str, at: &str) -> Child {
    Command::new(IMBREX).args(["fs", "mount", image, at]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

impl Mounting {
    fn of(mut child: Child) -> Mounting {
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        Mounting { child, said }
    }

    fn end(self) -> Output {
        if !self.said.is_empty() {
            assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        }
        self.child.wait_with_output().unwrap()
    }
}

fn times_mounted(at: &str) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.split(' ').nth(4) == Some(at)).count()
}

#[test]
fn of_several_that_mount_at_once_one_wins() {
    if let Err(why) = mountable() {
        return not_run("of_several_that_mount_at_once_one_wins", &why);
    }
    let images = ["a.img", "b.img", "c.img", "d.img"];
    let dir = drives(&images);
    let at = fs::canonicalize(dir.path()).unwrap().join("at").to_str().unwrap().to_owned();
    fs::create_dir(&at).unwrap();
    for round in 0..8 {
        let children: Vec<Child> = images.iter().map(|image| begin(&path(&dir, image), &at)).collect();
        let all: Vec<Mounting> = children.into_iter().map(Mounting::of).collect();
        let won = all.iter().filter(|mounting| !mounting.said.is_empty()).count();
        let mounted = times_mounted(&at);
        // Later ones are refused, too.
        let late = Mounting::of(begin(&path(&dir, images[round % images.len()]), &at));
        let late_won = !late.said.is_empty();
        let outputs: Vec<(bool, Output)> =
            all.into_iter().chain([late]).map(|mounting| (!mounting.said.is_empty(), mounting.end())).collect();
        assert_eq!((won, mounted, late_won), (1, 1, false), "round {round}");
        for (won, output) in outputs {
            let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(if won { 0 } else { 4 }), "{sentence}");
        }
        assert_eq!(times_mounted(&at), 0);
    }
}
