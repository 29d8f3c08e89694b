//! `imbrex drive …` as a user runs it.

use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZonedDevice};
use imbrex_emulator::{Emulator, OpenOptions};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

struct Place {
    _dir: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    Place { _dir: dir, path }
}

fn imbrex(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_imbrex")).args(args).output().unwrap()
}

/// Runs `imbrex drive VERB PATH …`.
fn drive(verb: &str, path: &Path, more: &[&str]) -> Output {
    imbrex(&[&["drive", verb, path.to_str().unwrap()], more].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of a command that succeeds.
#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(output: Output) -> Value {
    serde_json::from_str(&done(output)).unwrap()
}

/// The one sentence of a command that fails.
#[track_caller]
fn fails(output: Output, code: i32) -> String {
    let sentence = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    if code == 1 {
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        assert!(sentence.starts_with("imbrex: "), "{sentence}");
    }
    sentence
}

fn tiny(path: &Path) {
    done(drive("create", path, &["--profile", "tiny"]));
}

fn open(path: &Path) -> Emulator {
    Emulator::open(path, OpenOptions::default()).unwrap()
}

fn write(drive: &Emulator, zone: u32, blocks: usize) {
    let mut buf = AlignedBuf::zeroed(4096 * blocks);
    buf.fill(7);
    drive.write_at(&buf, drive.geometry().start(ZoneId(zone)), Tag::new(Cause::Wal)).unwrap();
}

#[test]
fn create_makes_what_was_asked_for() {
    let at = place();
    let options = [
        "--profile",
        "hgst-hsh721414al",
        "--capacity",
        "1G",
        "--zone-size",
        "16M",
        "--conventional",
        "5",
        "--block-size",
        "512",
        "--write-cache",
        "off",
        "--max-io",
        "4M",
        "--json",
    ];
    let made = json(drive("create", &at.path, &options));
    let info = json(drive("info", &at.path, &["--json"]));
    assert_eq!(made, info);
    for (key, value) in [
        ("zones", 64),
        ("zone_size", 16 << 20),
        ("conventional", 5),
        ("block", 512),
        ("capacity", 1 << 30),
        ("max_io", 4 << 20),
    ] {
        assert_eq!(info[key], value, "{key}");
    }
    assert_eq!((&info["write_cache"], &info["profile"]), (&Value::Bool(false), &"hgst-hsh721414al".into()));
    let large = at.path.with_extension("large");
    assert!(done(drive("create", &large, &["--profile", "hgst-hsh721414al"])).contains("52,156 zones"));
    let info = json(drive("info", &large, &["--json"]));
    assert!(info["host_bytes"].as_u64().unwrap() < 32 << 20, "{info}");
    assert_eq!(info["max_io"], 1280 << 10, "what Linux passes by default");
    assert!(done(drive("info", &large, &[])).contains("nobody"));
}

#[test]
fn create_refuses_what_makes_no_sense_or_destroys() {
    let at = place();
    for (options, says) in [
        (vec!["--profile", "floppy"], "hgst-hsh721414al"),
        (vec!["--profile", "tiny", "--capacity", "lots"], "64G"),
        (vec!["--profile", "tiny", "--block-size", "1000"], "512 or 4096"),
        (vec!["--profile", "tiny", "--write-cache", "maybe"], "neither on nor off"),
        (vec!["--profile", "tiny", "--max-io", "long"], "64G"),
        (vec![], "--profile"),
    ] {
        let sentence = fails(drive("create", &at.path, &options), 2);
        assert!(sentence.contains(says), "{sentence}");
        assert!(!at.path.exists());
    }
    assert!(
        fails(drive("create", &at.path, &["--profile", "tiny", "--capacity", "1M"]), 2).contains("larger capacity")
    );
    for most in ["5000", "65M", "8G", "0"] {
        let sentence = fails(drive("create", &at.path, &["--profile", "tiny", "--max-io", most]), 2);
        assert!(sentence.contains("at most 64 MiB"), "{most}: {sentence}");
    }
    std::fs::write(&at.path, "precious").unwrap();
    assert!(fails(drive("create", &at.path, &["--profile", "tiny"]), 1).contains("--force"));
    assert_eq!(std::fs::read(&at.path).unwrap(), b"precious");
    done(drive("create", &at.path, &["--profile", "tiny", "--force"]));
}

#[test]
fn bad_paths_get_a_sentence() {
    let at = place();
    std::fs::write(&at.path, "not a drive").unwrap();
    for verb in ["info", "zones", "stats", "trace"] {
        assert!(fails(drive(verb, &at.path, &[]), 1).contains("not a drive image"));
        assert!(fails(drive(verb, Path::new("/nowhere/x.img"), &[]), 1).contains("imbrex drive create"));
        assert!(fails(drive(verb, Path::new("mem:"), &[]), 2).contains("drive image"));
    }
    for verb in ["info", "zones"] {
        assert!(fails(drive(verb, Path::new("/dev/null"), &[]), 1).contains("not a block device"));
        assert!(fails(drive(verb, Path::new("/dev/sdnone"), &[]), 1).contains("no such device"));
    }
    for verb in ["stats", "trace"] {
        assert!(fails(drive(verb, Path::new("/dev/null"), &[]), 2).contains("only emulated drives"));
    }
    for options in [&["5"][..], &["all", "--force"]] {
        assert!(fails(drive("reset", Path::new("/dev/null"), options), 1).contains("not a block device"));
    }
}

#[test]
fn profiles_name_their_sources() {
    let list = done(imbrex(&["drive", "profiles"]));
    for part in ["tiny", "seagate-st20000nm001j", "255.6 MB/s (SMRSTORE, Table 2)", "800 of them conventional"] {
        assert!(list.contains(part), "{list} lacks {part:?}");
    }
    let zns = "zns-made-up: 1 TB ZNS SSD, all figures made up\n  1T, 4,096 zones of 256M, 0 of them conventional, 8 may be open, 8 active, 192M of";
    assert!(list.contains(zns), "{list}");
    assert_eq!(json(imbrex(&["drive", "profiles", "--json"])).as_array().unwrap().len(), 8);
}

#[test]
fn looking_works_while_a_process_has_the_drive_and_changing_does_not() {
    let at = place();
    tiny(&at.path);
    let used = open(&at.path);
    write(&used, 9, 3);
    let stats = json(drive("stats", &at.path, &["--json"]));
    for (key, value) in [
        ("writes", 1),
        ("reads", 0),
        ("flushes", 0),
        ("zone_resets", 0),
        ("bytes_written", 12_288),
        ("bytes_read", 0),
        ("rule_violations", 0),
    ] {
        assert_eq!(stats[key], value, "{key}");
        assert_eq!(stats["by_cause"]["wal"][key], value, "{key}");
        assert_eq!(stats["by_cause"]["label"][key], 0, "{key}");
    }
    let zones = json(drive("zones", &at.path, &["--json"]));
    assert_eq!((&zones[9]["write_pointer"], &zones[9]["state"]), (&12_288.into(), &"implicitly-open".into()));
    let info = json(drive("info", &at.path, &["--json"]));
    assert_eq!((&info["in_use_by"], &info["unflushed_bytes"]), (&std::process::id().into(), &12_288.into()));
    for (verb, more) in [("reset", ["9", "--force"]), ("finish", ["9", "--json"]), ("power-loss", ["--seed", "1"])] {
        let sentence = fails(drive(verb, &at.path, &more), 4);
        // A child that another test is starting has the drive, too, until it is its own program.
        let me = format!(" {} (", std::process::id());
        assert!(sentence.contains("in use by process") && sentence.contains(&me), "{sentence}");
    }
    assert!(done(drive("stats", &at.path, &["--reset"])).contains("wal"));
    assert_eq!(used.stats().writes, 0, "the user's counters were set back");
}

#[test]
fn reset_wants_force_where_data_is() {
    let at = place();
    tiny(&at.path);
    write(&open(&at.path), 9, 3);
    let sentence = fails(drive("reset", &at.path, &["4-12"]), 1);
    assert!(sentence.contains("zone 9") && sentence.contains("--force"), "{sentence}");
    done(drive("reset", &at.path, &["4-8"]));
    let wp = || json(drive("zones", &at.path, &["--json"]))[9]["write_pointer"].clone();
    assert_eq!(wp(), 12_288);
    assert_eq!(json(drive("reset", &at.path, &["4-12", "--force", "--json"]))["zones"], 9);
    assert_eq!(wp(), 0);
    for (zones, says) in [("0-9", "conventional"), ("9-4", "write 4-9"), ("64", "0 to 63"), ("x", "5-9")] {
        assert!(fails(drive("reset", &at.path, &[zones]), 2).contains(says));
    }
    done(drive("reset", &at.path, &["all"]));
}

#[test]
fn finish_fills_zones() {
    let at = place();
    tiny(&at.path);
    assert_eq!(done(drive("finish", &at.path, &["5-7"])).trim(), format!("{}: finish of 3 zones", at.path.display()));
    let zones = json(drive("zones", &at.path, &["--json"]));
    let full: Vec<_> = (0..64).filter(|zone| zones[*zone]["state"] == "full").collect();
    assert_eq!(full, [5, 6, 7]);
}

#[test]
fn zones_are_opened_and_closed() {
    let at = place();
    tiny(&at.path);
    write(&open(&at.path), 9, 3);
    let states = || {
        let zones = json(drive("zones", &at.path, &["--json"]));
        [5, 7, 9].map(|zone: usize| zones[zone]["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(done(drive("open", &at.path, &["5-7"])).trim(), format!("{}: open of 3 zones", at.path.display()));
    assert_eq!(json(drive("open", &at.path, &["9", "--json"]))["zones"], 1);
    assert_eq!(states(), ["explicitly-open", "explicitly-open", "explicitly-open"]);
    // Eight may be open; what was opened by who asked for more stays open, and the sentence says what to do.
    let sentence = fails(drive("open", &at.path, &["20-30"]), 1);
    assert!(sentence.contains("open"), "{sentence}");
    assert_eq!(json(drive("zones", &at.path, &["--json"]))[23]["state"], "explicitly-open");
    assert_eq!(done(drive("close", &at.path, &["all"])).trim(), format!("{}: close of 8 zones", at.path.display()));
    // What is not open needs no closing, and what is full takes no more.
    assert!(fails(drive("close", &at.path, &["5-12"]), 1).contains("none of these zones is open"));
    done(drive("finish", &at.path, &["30"]));
    assert!(
        fails(drive("open", &at.path, &["29-31"]), 1)
            .contains("zone 30 is full and cannot be opened; nothing was opened")
    );
    assert_eq!(json(drive("zones", &at.path, &["--json"]))[29]["state"], "empty");
    // What nothing was written to is empty again; what was written stays.
    assert_eq!(states(), ["empty", "empty", "closed"]);
    assert_eq!(json(drive("zones", &at.path, &["--json"]))[9]["write_pointer"], 12_288);
    for verb in ["open", "close"] {
        for (zones, says) in [("0-9", "conventional"), ("9-4", "write 4-9"), ("64", "0 to 63"), ("x", "5-9")] {
            assert!(fails(drive(verb, &at.path, &[zones]), 2).contains(says), "{verb} {zones}");
        }
        let used = open(&at.path);
        assert!(fails(drive(verb, &at.path, &["9"]), 4).contains("in use by process"), "{verb}");
        drop(used);
    }
}

#[test]
fn zones_are_drawn() {
    let at = place();
    tiny(&at.path);
    let used = open(&at.path);
    write(&used, 9, 32);
    used.faults().make_offline(ZoneId(10)).unwrap();
    let picture = done(drive("zones", &at.path, &["--width", "16"]));
    assert!(picture.starts_with("====·····▁!·····\n"), "{picture}");
    assert!(picture.contains("48 more empty zones") && picture.contains("64 zones"), "{picture}");
    assert!(!picture.contains('\x1b'), "colours in a pipe");
    let list = done(drive("zones", &at.path, &["--list"]));
    assert_eq!(list.lines().count(), 3, "{list}");
}

#[test]
fn power_loss_follows_its_seed() {
    let at = place();
    let left = |seed: &str| {
        done(drive("create", &at.path, &["--profile", "tiny", "--force"]));
        write(&open(&at.path), 9, 30);
        let lost = json(drive("power-loss", &at.path, &["--seed", seed, "--json"]));
        assert_eq!((&lost["unflushed_bytes"], &lost["unflushed"][0]["zone"]), (&122_880.into(), &9.into()));
        json(drive("zones", &at.path, &["--json"]))[9]["write_pointer"].as_u64().unwrap()
    };
    let seeds = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let first: Vec<u64> = seeds.iter().map(|seed| left(seed)).collect();
    assert!(first.iter().any(|wp| *wp != first[0]), "{first:?}");
    assert_eq!(seeds.iter().map(|seed| left(seed)).collect::<Vec<_>>(), first);
    assert_eq!(json(drive("info", &at.path, &["--json"]))["power_losses"], 1);
}

#[test]
fn traces_start_and_stop() {
    let at = place();
    tiny(&at.path);
    assert!(fails(drive("trace", &at.path, &[]), 1).contains("--start"));
    done(drive("trace", &at.path, &["--start", "--entries", "2"]));
    let used = open(&at.path);
    (4..8).for_each(|zone| write(&used, zone, 1));
    let seen = json(drive("trace", &at.path, &["--json"]));
    assert_eq!(seen.as_array().unwrap().len(), 2);
    assert_eq!((&seen[1]["zone"], &seen[1]["op"], &seen[1]["cause"]), (&7.into(), &"write".into(), &"wal".into()));
    assert!(done(drive("trace", &at.path, &[])).contains("zone      7"));
    done(drive("trace", &at.path, &["--stop"]));
    assert!(fails(drive("trace", &at.path, &[]), 1).contains("not traced"));
    assert!(fails(drive("trace", &at.path, &["--start", "--stop"]), 2).contains("cannot be used with"));
}

#[test]
fn a_recorded_trace_is_replayed_on_the_time_of_other_drives() {
    let at = place();
    tiny(&at.path);
    assert!(fails(drive("replay", &at.path, &["--profile", "hitachi-hua72303"]), 1).contains("trace"));
    done(drive("trace", &at.path, &["--start"]));
    let used = open(&at.path);
    (4..12).for_each(|zone| write(&used, zone, 16));
    used.flush(Tag::new(Cause::Wal)).unwrap();
    drop(used);
    let replay = |profile: &str, more: &[&str]| drive("replay", &at.path, &[&["--profile", profile], more].concat());
    let seen = json(replay("hitachi-hua72303", &["--json"]));
    let time = &seen["time"];
    assert_eq!((&seen["commands"], &seen["commands_forgotten"]), (&9.into(), &0.into()));
    // 512 KiB at 160 MiB/s, and no more than a few turns.
    let elapsed = time["elapsed"].as_f64().unwrap();
    assert!((0.003..0.15).contains(&elapsed), "{seen}");
    assert_eq!(time["latency"]["wal"]["commands"], 9);
    assert!(
        done(replay("hgst-hsh721414al", &["--depth", "32", "--write-cache", "off"]))
            .contains("32 at once, write cache off")
    );
    // A profile of the user's own; its numbers change the model's name.
    let own = at.path.with_extension("toml");
    let built_in = include_str!("../../emulator/profiles/hitachi-hua72303.toml");
    std::fs::write(&own, built_in.replace("value = 7200.0", "value = 5400.0")).unwrap();
    let slow = json(replay(own.to_str().unwrap(), &["--json"]));
    assert_ne!(slow["model"], seen["model"]);
    std::fs::write(&own, built_in.replace("rotation_rpm", "colour")).unwrap();
    assert!(fails(replay(own.to_str().unwrap(), &[]), 1).contains("no parameter \"colour\""));
    std::fs::write(&own, built_in.replace("zone_size = 268_435_456", "zone_size = 0")).unwrap();
    assert!(fails(replay(own.to_str().unwrap(), &[]), 1).contains("make no drive"));
    assert!(fails(replay("hitachi", &[]), 2).contains("hitachi-hua72303"));
    assert!(fails(replay("tiny", &[]), 2).contains("no parameters"));
}

#[test]
fn a_conventional_disk_is_no_place_for_files() {
    let at = place();
    assert!(
        done(drive("create", &at.path, &["--profile", "hitachi-hua72303", "--capacity", "16G"]))
            .contains("64 of them conventional")
    );
    let path = at.path.to_str().unwrap();
    assert!(fails(imbrex(&["fs", "format", path]), 1).contains("?conventional=as-sequential"));
    let sequential = format!("{path}?conventional=as-sequential");
    done(imbrex(&["drive", "create", "--banded", &sequential]));
    done(imbrex(&["fs", "format", &sequential]));
}

#[test]
fn every_help_has_an_example() {
    let verbs = ["create", "profiles", "info", "zones", "stats", "reset", "finish", "power-loss", "trace", "replay"];
    for verb in verbs {
        let help = done(imbrex(&["drive", verb, "--help"]));
        assert!(help.contains("Example") && help.contains(&format!("imbrex drive {verb}")), "{help}");
    }
    for args in [&["--help"][..], &["drive", "--help"]] {
        assert!(done(imbrex(args)).contains("Example"));
    }
    assert_eq!(imbrex(&[]).status.code(), Some(2));
    assert_eq!(imbrex(&["drive", "explode"]).status.code(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let at = place();
    // Far more than a pipe holds.
    done(drive("create", &at.path, &["--profile", "hgst-hsh721414al"]));
    let script = "\"$0\" drive zones \"$1\" --json | head -n 1; exit ${PIPESTATUS[0]}";
    let exe = env!("CARGO_BIN_EXE_imbrex");
    let output = Command::new("bash").args(["-c", script, exe]).arg(&at.path).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}
