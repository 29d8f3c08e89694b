//! `imbrex kv salvage`: what comes back of a store that does not open, and what is said where nothing does.

mod support;

use imbrex_device::{AlignedBuf, Cause, ZoneId, ZoneOp, ZonedDevice, report_all};
use imbrex_emulator::{Emulator, OpenOptions};
use imbrex_zones::ZoneHeader;
use imbrex_zones::log::format::LOG_KIND;
use std::path::Path;
use support::*;

const TAG: Cause = Cause::Check;

/// A place with two spaces, in tables and in the log.
fn filled() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.kv("format", &[]));
    let lines: String = (0..3000).map(|n| format!("key{n:05}\tvalue {n} {}\n", "v".repeat(200))).collect();
    done(at.kv_given("load", &[], lines.as_bytes()));
    done(at.kv("rm", &["--from", "key00100", "--to", "key00200"]));
    done(at.kv("compact", &[]));
    done(at.kv("put", &["--space", "users", "1", "Ada"]));
    // As a program may have put it: a key of no bytes.
    done(at.kv_given("load", &["--space", "users", "--format", "binary"], b"\0\0\0\0\x06\0\0\0of all"));
    done(at.kv("put", &["key00007", "new"]));
    done(at.kv("rm", &["key00008"]));
    at
}

fn emulator(at: &Place) -> Emulator {
    Emulator::open(&at.path, OpenOptions::default()).unwrap()
}

fn destroy_labels(at: &Place) {
    let drive = emulator(at);
    for zone in [0, 1] {
        drive.write_at(&AlignedBuf::zeroed(64 << 10), drive.geometry().start(ZoneId(zone)), TAG.into()).unwrap();
    }
    drive.flush(TAG.into()).unwrap();
}

/// Zones with such a header.
fn zones(at: &Place, is: impl Fn(&ZoneHeader) -> bool) -> Vec<ZoneId> {
    let (drive, mut buf) = (emulator(at), AlignedBuf::zeroed(4096));
    let written = report_all(&drive).unwrap().into_iter().filter(|zone| zone.wp.is_some_and(|wp| wp >= 4096));
    let mut has = |zone: ZoneId| {
        drive.read_at(&mut buf, drive.geometry().start(zone), TAG.into()).unwrap();
        ZoneHeader::decode(&buf).is_some_and(|header| is(&header))
    };
    written.map(|zone| zone.id).filter(|zone| has(*zone)).collect()
}

fn destroy_metadata(at: &Place) {
    let log = zones(at, |header| header.kind == LOG_KIND);
    let drive = emulator(at);
    assert!(!log.is_empty());
    log.into_iter().for_each(|zone| drive.zone_op(ZoneOp::Reset, zone, TAG.into()).unwrap());
}

/// What a scan prints, as load takes it.
fn scan(at: &Place, more: &[&str]) -> Vec<u8> {
    let output = at.kv("scan", &[&["--format", "binary"], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

fn pairs(to: &str, file: &str) -> Vec<u8> {
    std::fs::read(Path::new(to).join(file)).unwrap()
}

fn files(to: &str) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(to).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_store_that_is_whole_comes_as_a_scan_has_it_and_loads_again() {
    let at = filled();
    let (unnamed, users) = (scan(&at, &[]), scan(&at, &["--space", "users"]));
    let before = content(&at.path);
    let to = at.host("salvaged");
    let facts = json(at.kv("salvage", &[&to, "--json"]));
    assert!(content(&at.path) == before, "the drive stays as it was");
    assert_eq!((&facts["whole_metadata"], facts["notes"].as_array().unwrap().len()), (&true.into(), 0), "{facts}");
    assert_eq!((&facts["pairs"], &facts["damaged_tables"]), (&2901.into(), &0.into()), "{facts}");
    assert_eq!((&facts["spaces"][1]["name"], &facts["spaces"][1]["file"]), (&"users".into(), &"1-users.pairs".into()));
    assert_eq!(files(&to), ["1-users.pairs", "unnamed.pairs"]);
    assert!(pairs(&to, "unnamed.pairs") == unnamed && pairs(&to, "1-users.pairs") == users);
    let other = place();
    done(other.run(&["drive", "create", other.drive(), "--profile", "tiny"]));
    done(other.kv("format", &[]));
    let file = |name: &str| format!("{to}/{name}");
    done(other.kv("load", &["--format", "binary", &file("unnamed.pairs")]));
    done(other.kv("load", &["--format", "binary", "--space", "users", &file("1-users.pairs")]));
    assert!(scan(&other, &[]) == unnamed && scan(&other, &["--space", "users"]) == users);
    // What is there is not written over.
    says(&fails(at.kv("salvage", &[&to]), 1), &["not empty", "new directory"]);
    let said = done(at.kv("salvage", &[&at.host("again")]));
    says(
        &said,
        &["unnamed.pairs: 2,899 pairs of the space without a name", "2 pairs of the space \"users\"", "2,901 pairs"],
    );
}

#[test]
fn without_labels_or_metadata_the_pairs_are_back() {
    for (labels, metadata) in [(true, false), (false, true), (true, true)] {
        let at = filled();
        let (unnamed, users) = (scan(&at, &[]), scan(&at, &["--space", "users"]));
        if labels {
            destroy_labels(&at);
        }
        if metadata {
            destroy_metadata(&at);
        }
        fails(at.kv("scan", &[]), 1);
        let before = content(&at.path);
        let to = at.host("salvaged");
        let facts = json(at.kv("salvage", &[&to, "--json"]));
        assert!(content(&at.path) == before, "the drive stays as it was");
        assert_eq!(facts["whole_metadata"], false);
        let second = if metadata { "1.pairs" } else { "1-users.pairs" };
        assert_eq!(files(&to), [second, "unnamed.pairs"], "{facts}");
        assert!(pairs(&to, second) == users, "{labels} {metadata}");
        // The range was merged away, and zones that had its keys may not be reset yet: they come back only then.
        let found = pairs(&to, "unnamed.pairs");
        assert!(metadata && found.len() >= unnamed.len() || found == unnamed, "{labels} {metadata}: {facts}");
        let said = done(at.kv("salvage", &[&at.host("again")]));
        says(&said, if labels { &["note: The drive does not open as it is", "made anew"] } else { &["note: "] });
        if metadata {
            says(&said, &["metadata is lost", "may come back", "number 1, whose name is lost"]);
        }
    }
}

#[test]
fn a_damaged_table_costs_a_block_and_is_told() {
    let at = filled();
    let all = scan(&at, &[]);
    let zone = *zones(&at, |header| header.name == "tables").last().unwrap();
    let drive = emulator(&at);
    let place = drive.geometry().start(zone) + 4096 + 20_000;
    let faults = drive.faults();
    faults.flip_bits(place, 1).unwrap();
    drop(drive);
    let to = at.host("salvaged");
    let facts = json(at.kv("salvage", &[&to, "--json"]));
    let lost = all.len() - pairs(&to, "unnamed.pairs").len();
    assert!(lost > 0 && lost < 20_000, "{lost}: {facts}");
    assert_eq!(facts["damaged_tables"], 1);
    says(facts["notes"][0].as_str().unwrap(), &["cannot be read in 1 places", "pairs there are lost"]);
    says(&fails(at.kv("check", &[]), 3), &["imbrex kv salvage"]);
}

#[test]
fn what_is_no_store_gets_one_sentence() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let to = at.host("salvaged");
    says(&fails(at.kv("salvage", &[&to]), 1), &["no zone of it was ever written by Imbrex"]);
    assert!(!Path::new(&to).exists(), "nothing is made for it");
    let files = formatted();
    says(&fails(files.kv("salvage", &[&to]), 1), &["is formatted for bluefs, not for kv"]);
    done(files.fs("cp", &[&files.file("x", "x"), ":/x"]));
    destroy_labels(&files);
    says(&fails(files.kv("salvage", &[&to]), 1), &["zones of bluefs", "none of a key-value store"]);
    // A store without pairs has no file.
    done(at.kv("format", &[]));
    says(&done(at.kv("salvage", &[&to])), &["0 pairs salvaged"]);
    assert_eq!(self::files(&to), [""; 0]);
}

#[test]
fn a_directory_that_takes_nothing_is_named_and_what_came_before_is_kept() {
    let at = filled();
    says(&fails(at.kv("salvage", &["/nowhere/salvaged"]), 1), &["/nowhere/salvaged", "directory of the host"]);
    says(&fails(at.kv("salvage", &[&at.file("file", "x")]), 1), &["file"]);
    // A limit of the process for files stands for a disk that is full.
    let to = at.host("full");
    let script = format!("trap '' XFSZ; ulimit -f 100; exec \"$0\" kv salvage '{}' '{to}'", at.drive());
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_imbrex")]).env("IMBREX_SHM_DIR", at.host("."));
    says(&fails(command.output().unwrap(), 1), &["large", ".part", "give another directory"]);
    assert_eq!(files(&to), ["unnamed.pairs.part"]);
    // What is there is whole pairs but for the last.
    assert!(scan(&at, &[]).starts_with(&pairs(&to, "unnamed.pairs.part")));
}

#[test]
fn a_drive_that_another_process_has_is_busy() {
    let at = filled();
    let mut child = at.piped(&["kv", "load", at.drive()]);
    while json(at.run(&["drive", "info", at.drive(), "--json"]))["in_use_by"] != child.id() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    let to = at.host("salvaged");
    says(&fails(at.kv("salvage", &[&to]), 4), &["in use"]);
    assert!(!Path::new(&to).exists());
    drop(child.stdin.take());
    child.wait().unwrap();
    done(at.kv("salvage", &[&to]));
}
