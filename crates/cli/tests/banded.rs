//! `imbrex drive` and `imbrex fs` on a file cut into bands, as a user runs them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn imbrex(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_imbrex")).args(args).output().unwrap()
}

#[track_caller]
fn done(args: &[&str]) -> String {
    let output = imbrex(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).unwrap()
}

#[track_caller]
fn fails(args: &[&str], code: i32, says: &str) {
    let output = imbrex(args);
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {sentence}");
    assert!(sentence.contains(says), "{args:?}: {sentence:?} lacks {says:?}");
}

/// A banded disk; its path and its locator.
fn disk(dir: &Path) -> (PathBuf, String) {
    let path = dir.join("disk.img");
    done(&[
        "drive",
        "create",
        "--banded",
        path.to_str().unwrap(),
        "--capacity",
        "256M",
        "--band",
        "4M",
        "--conventional",
        "6",
    ]);
    let locator = format!("banded:{}", path.display());
    (path, locator)
}

#[test]
fn a_banded_disk_is_made_looked_at_reset_and_finished() {
    let dir = tempfile::tempdir().unwrap();
    let (_, drive) = disk(dir.path());
    let info = json(&["drive", "info", &drive, "--json"]);
    assert_eq!(
        (&info["zone_size"], &info["conventional"], &info["block"]),
        (&(4 << 20).into(), &6.into(), &4096.into())
    );
    assert!(info["host_bytes"].as_u64().unwrap() < 8 << 20, "{info}");
    done(&["drive", "finish", &drive, "7-8"]);
    let zones = json(&["drive", "zones", &drive, "--json"]);
    let state = |zones: &Value, zone: usize| zones[zone]["state"].as_str().unwrap().to_owned();
    let states = |zones: &Value| [5, 6, 7, 8].map(|zone| state(zones, zone));
    assert_eq!(states(&zones), ["conventional", "empty", "full", "full"]);
    fails(&["drive", "reset", &drive, "all"], 1, "--force");
    done(&["drive", "reset", &drive, "8", "--force"]);
    let zones = json(&["drive", "zones", &drive, "--json"]);
    assert_eq!(states(&zones), ["conventional", "empty", "full", "empty"]);
    assert_eq!(json(&["drive", "info", &drive, "--json"])["resets"], 1);
    let stats = json(&["drive", "stats", &drive, "--json", "--reset"]);
    assert_eq!((&stats["zone_resets"], &stats["zone_finishes"]), (&1.into(), &2.into()));
    assert_eq!(json(&["drive", "stats", &drive, "--json"])["zone_resets"], 0);
    done(&["drive", "info", &drive]);
    done(&["drive", "zones", &drive]);
    done(&["drive", "stats", &drive]);
}

#[test]
fn files_are_kept_on_a_banded_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (_, drive) = disk(dir.path());
    fails(&["fs", "ls", &drive, "/"], 1, "imbrex fs format");
    done(&["fs", "format", &drive]);
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let bytes: Vec<u8> = (0..11_000_000u32).map(|i| (i / 251 + i) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    done(&["fs", "cp", &drive, from.to_str().unwrap(), ":/big.sst"]);
    done(&["fs", "cp", &drive, ":/big.sst", to.to_str().unwrap()]);
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert!(done(&["fs", "ls", &drive, "/"]).contains("big.sst"));
    done(&["fs", "check", &drive]);
    assert_eq!(json(&["drive", "stats", &drive, "--json"])["rule_violations"], 0);
    done(&["fs", "rm", &drive, "/big.sst"]);
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let (path, drive) = disk(dir.path());
    let path = path.to_str().unwrap();
    fails(&["drive", "info", path], 1, &drive);
    fails(&["fs", "ls", path, "/"], 1, &drive);
    fails(&["drive", "create", "--banded", path], 1, "--force");
    fails(&["drive", "power-loss", &drive, "--seed", "1"], 2, "only emulated drives");
    fails(&["drive", "trace", &drive], 2, "only emulated drives");
    fails(&["drive", "create", &drive, "--profile", "tiny"], 2, "--banded");
    fails(&["drive", "info", &format!("{drive}x")], 1, "drive create --banded");
    let new = dir.path().join("new");
    let new = new.to_str().unwrap();
    fails(&["drive", "create", "--banded", new], 2, "--capacity");
    fails(&["drive", "create", "--banded", new, "--capacity", "16M"], 2, "larger disk or smaller bands");
    fails(&["drive", "create", "--banded", new, "--capacity", "16M", "--band", "5000"], 2, "multiples of 4096");
    assert!(!Path::new(new).exists());
    fails(&["drive", "create", "--banded", "/dev/null"], 1, "neither a file nor a disk");
    fails(&["drive", "create", "--banded", "/dev/sdnone9", "--capacity", "1G"], 1, "no such device");
    fails(&["drive", "create", "/dev/sdnone9", "--profile", "tiny"], 2, "--banded");
    std::fs::write(new, b"mine").unwrap();
    fails(&["drive", "create", "--banded", new, "--capacity", "16M", "--band", "1M"], 1, "--force");
    done(&["drive", "create", "--banded", new, "--capacity", "16M", "--band", "1M", "--force"]);
    assert_eq!(json(&["drive", "info", &format!("banded:{new}"), "--json"])["zone_size"], 1 << 20);
}

/// A drive of 64 MiB with 16 conventional zones, and its name with those as sequential ones.
fn zoned(dir: &Path) -> (String, String) {
    let path = dir.join("drive.img").to_str().unwrap().to_owned();
    done(&["drive", "create", &path, "--profile", "tiny", "--conventional", "16"]);
    let drive = format!("{path}?conventional=as-sequential");
    (path, drive)
}

#[test]
fn conventional_zones_serve_as_sequential_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (path, drive) = zoned(dir.path());
    done(&["fs", "format", &path]);
    fails(&["fs", "ls", &drive, "/"], 1, &format!("imbrex drive create --banded '{drive}'"));
    fails(&["drive", "create", "--banded", &drive], 1, "--force");
    fails(&["drive", "create", "--banded", &drive, "--force", "--band", "2M"], 2, "leave out");
    let made = json(&["drive", "create", "--banded", &drive, "--force", "--json"]);
    let bands = made["bands"].as_u64().unwrap() as usize;
    // Without the option, too; but who formats without it is asked whether the bands may go.
    fails(&["fs", "ls", &path, "/"], 1, "has no Imbrex label");
    fails(&["fs", "format", &path], 1, "--force");
    done(&["fs", "format", &drive]);
    let zones = json(&["drive", "zones", &drive, "--json"]);
    assert_eq!(zones.as_array().unwrap().len(), 48 + bands);
    assert!(zones.as_array().unwrap().iter().all(|zone| zone["state"] != "conventional"));
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    // More than the drive's own zones hold.
    let bytes: Vec<u8> = (0..50 << 20).map(|i: u32| (i / 251 + i) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    done(&["fs", "cp", &drive, from.to_str().unwrap(), ":/big.sst"]);
    done(&["drive", "power-loss", &path, "--seed", "7"]);
    done(&["fs", "check", &drive]);
    done(&["fs", "cp", &drive, ":/big.sst", to.to_str().unwrap()]);
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert_eq!(json(&["drive", "stats", &path, "--json"])["rule_violations"], 0);
    done(&["fs", "rm", &drive, "/big.sst"]);
    fails(&["drive", "reset", &drive, "all"], 1, "--force");
    done(&["drive", "finish", &drive, "1-3"]);
    done(&["drive", "reset", &drive, "all", "--force"]);
    fails(&["fs", "ls", &drive, "/"], 1, "imbrex fs format");
}

#[test]
fn what_is_asked_of_conventional_zones_and_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, drive) = zoned(dir.path());
    fails(&["fs", "ls", &format!("{path}?conventional=yes"), "/"], 2, "conventional=as-sequential");
    fails(&["drive", "info", &drive], 2, &format!("name it {path}"));
    fails(&["drive", "create", "--banded", &format!("{path}x?conventional=as-sequential")], 1, "no such file");
    done(&["drive", "create", &path, "--profile", "tiny", "--conventional", "0", "--force"]);
    fails(&["drive", "create", "--banded", &drive], 1, "does not begin with conventional zones");
    fails(&["fs", "ls", &drive, "/"], 1, "does not begin with conventional zones");
    done(&["drive", "create", &path, "--profile", "tiny", "--conventional", "3", "--force"]);
    fails(&["drive", "create", "--banded", &drive], 1, "use the drive as it is");
}
