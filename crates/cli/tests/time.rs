//! Emulated drives that keep time, as a user runs them.

mod support;

use imbrex_device::{AlignedBuf, Cause, ZonedDevice};
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Emulator, OpenOptions};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{done, json, place, text};

fn imbrex(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_imbrex")).args(args).output().unwrap()
}

/// Runs `imbrex drive VERB PATH …`.
fn drive(verb: &str, path: &Path, more: &[&str]) -> Output {
    imbrex(&[&["drive", verb, path.to_str().unwrap()], more].concat())
}

/// The one sentence of a command that fails.
#[track_caller]
fn fails(output: Output, code: i32) -> String {
    let sentence = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    sentence
}

const HGST: &[&str] = &["--profile", "hgst-hsh721414al"];
/// 256 zones of 4 MiB: a small part of the drive, at 1/64.
const SMALL: &[&str] = &["--profile", "hgst-hsh721414al", "--scale", "1/64", "--capacity", "1G"];

#[test]
fn a_drive_is_scaled_down_and_remembers_it() {
    let at = place();
    let made = json(drive("create", &at.path, &[HGST, &["--scale", "64", "--json"]].concat()));
    assert_eq!(
        (&made["zones"], &made["zone_size"], &made["max_io"]),
        (&52_156.into(), &(4 << 20).into(), &20_480.into())
    );
    assert_eq!((&made["scale"], &made["mechanics"]), (&64.into(), &"scaled".into()));
    assert_eq!(json(drive("info", &at.path, &["--json"]))["scale"], 64);
    let real = [HGST, &["--scale", "64", "--mechanics", "real", "--force", "--json"]].concat();
    let made = json(drive("create", &at.path, &real));
    assert_eq!((&made["zones"], &made["zone_size"]), (&814.into(), &(256 << 20).into()));
    assert!(done(drive("info", &at.path, &[])).contains("1/64 of its profile, mechanics real"));
    for (wrong, says) in [
        (&["--scale", "0"][..], "no scale"),
        (&["--scale", "1/1000000"], "no scale"),
        (&["--mechanics", "real"], "--scale"),
        (&["--scale", "2", "--mechanics", "wooden"], "neither scaled nor real"),
    ] {
        let sentence = fails(drive("create", &at.path, &[HGST, &["--force"], wrong].concat()), 2);
        assert!(sentence.contains(says), "{sentence} lacks {says}");
    }
}

#[test]
fn a_profile_of_the_users_own_makes_a_drive_that_keeps_its_time() {
    let at = place();
    let own = at.path.with_extension("toml");
    let built_in = include_str!("../../emulator/profiles/hgst-hsh721414al.toml");
    let text =
        built_in.replace("value = 7200.0", "value = 60.0").replace("name = \"hgst-hsh721414al\"", "name = \"mine\"");
    std::fs::write(&own, text).unwrap();
    let own = own.to_str().unwrap();
    let made = json(drive("create", &at.path, &["--profile", own, "--capacity", "1G", "--json"]));
    assert_eq!(made["profile"], "mine");
    // The file is needed no more.
    std::fs::remove_file(own).unwrap();
    let image = Emulator::open(&at.path, OpenOptions::default()).unwrap();
    assert_eq!(image.config().model.unwrap().effective().rotation_rpm, 60.0);
    std::fs::write(own, "name = 7").unwrap();
    let sentence = fails(drive("create", &at.path, &["--profile", own, "--force"]), 2);
    assert!(sentence.contains("no profile of a drive"), "{sentence}");
}

#[test]
fn options_of_time_are_understood_wherever_a_drive_is_named() {
    let at = place();
    done(drive("create", &at.path, SMALL));
    let name = |options: &str| format!("{}?{options}", at.path.display());
    done(imbrex(&["fs", "format", &name("time=account")]));
    done(imbrex(&["fs", "check", &name("time=pace&speed=1000")]));
    done(imbrex(&["fs", "ls", &format!("imbrex://{}", name("time=pace&speed=1000&cache=8M"))]));
    done(imbrex(&["drive", "info", &name("time=account")]));
    for (options, says) in [
        ("time=fast", "off, account"),
        ("time=pace&speed=0", "between"),
        ("time=account&speed=2", "nobody waits"),
        ("speed=2", "goes with time=pace"),
        ("time=pace&time=off", "twice"),
    ] {
        let sentence = fails(imbrex(&["fs", "df", &name(options)]), 2);
        assert!(sentence.contains(says), "{options}: {sentence} lacks {says}");
    }
}

#[test]
fn a_drive_without_a_time_model_says_so() {
    let at = place();
    done(drive("create", &at.path, &["--profile", "tiny"]));
    let name = format!("{}?time=pace", at.path.display());
    let sentence = fails(imbrex(&["fs", "format", &name]), 1);
    for part in ["\"tiny\" has no time model", "leave time= out", "hgst-hsh721414al"] {
        assert!(sentence.contains(part), "{sentence} lacks {part}");
    }
    assert!(done(drive("info", &at.path, &[])).contains("keeps no time"));
}

#[test]
fn where_the_time_went_is_seen_by_several_processes_while_the_drive_is_used() {
    let at = place();
    done(drive("create", &at.path, SMALL));
    assert_eq!(json(drive("stats", &at.path, &["--json"]))["time"], Value::Null);
    let used = Emulator::open(&at.path, OpenOptions::default()).unwrap();
    used.keep_own_time(Pace::Account).unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    (0..100).for_each(|i| used.read_at(&mut buf, (i * 37 % 100) << 23, Cause::UserRead.into()).unwrap());
    let look = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imbrex"));
        command.args(["drive", "stats", at.path.to_str().unwrap(), "--json"]).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let looks: Vec<_> = (0..4).map(|_| look()).collect();
    let seen: Vec<Value> = looks.into_iter().map(|child| json(child.wait_with_output().unwrap())).collect();
    assert!(seen.iter().all(|look| *look == seen[0]));
    let time = &seen[0]["time"];
    let number = |name: &str| time[name].as_f64().unwrap();
    let busy: f64 = ["seek", "rotation", "transfer", "zone_ops", "cleaning"].iter().map(|kind| number(kind)).sum();
    assert!((busy + number("idle") - number("elapsed")).abs() < 1e-6 && number("seek") > 0.0, "{time}");
    assert_eq!((&time["latency"]["user_read"]["commands"], &time["scale"]), (&100.into(), &64.into()));
    let known = json(imbrex(&["drive", "profiles", "--json"]));
    let hgst = known.as_array().unwrap().iter().find(|profile| profile["name"] == "hgst-hsh721414al").unwrap();
    assert_eq!((&time["model"], &time["formulas"]), (&hgst["model"], &hgst["formulas"]));
    let text = done(drive("stats", &at.path, &["--reset"]));
    for part in ["device time", "user_read", "host think time counts as none"] {
        assert!(text.contains(part), "{text}");
    }
    let said = || done(drive("stats", &at.path, &[])).contains("host think time counts as none");
    drop(used);
    assert_eq!(json(drive("stats", &at.path, &["--json"]))["time"]["seek"], 0.0);
    assert!(!said(), "nothing was added up since the reset");
    let again = Emulator::open(&at.path, OpenOptions::default()).unwrap();
    again.keep_own_time(Pace::Account).unwrap();
    again.read_at(&mut buf, 0, Cause::UserRead.into()).unwrap();
    drop(again);
    assert!(said(), "also when nobody has it any more");
}

#[test]
fn a_drive_managed_drive_is_preconditioned() {
    let at = place();
    let dm = ["--profile", "seagate-st8000as0022", "--scale", "64", "--capacity", "16G"];
    done(drive("create", &at.path, &dm));
    let made = json(drive("precondition", &at.path, &["--extents", "500", "--json"]));
    assert_eq!((&made["extents"], &made["bytes"]), (&500.into(), &(500 * 4096).into()));
    let seen = json(drive("stats", &at.path, &["--json"]));
    assert_eq!(seen["time"]["persistent_cache"]["extents"], 500);
    assert!(done(drive("precondition", &at.path, &["--fill", "0.01"])).contains("2,000 extents"));
    assert!(fails(drive("precondition", &at.path, &["--fill", "2"]), 2).contains("from 0 to 1"));
    done(drive("create", &at.path, &[SMALL, &["--force"]].concat()));
    assert!(fails(drive("precondition", &at.path, &[]), 1).contains("drive-managed"));
}

#[test]
fn a_trace_has_the_drives_time_and_is_drawn() {
    let at = place();
    done(drive("create", &at.path, SMALL));
    done(drive("trace", &at.path, &["--start"]));
    let pictures = at.path.with_extension("d");
    let plot = ["--plot", pictures.to_str().unwrap()];
    let name = format!("{}?time=account", at.path.display());
    done(imbrex(&["fs", "format", &name]));
    let traced = json(drive("trace", &at.path, &["--json"]));
    let times =
        |name: &str| traced.as_array().unwrap().iter().map(|entry| entry[name].as_f64().unwrap()).collect::<Vec<_>>();
    let (began, ended) = (times("began"), times("ended"));
    assert!(began.len() > 5 && began.iter().zip(&ended).all(|(began, ended)| began < ended));
    let clock = json(drive("stats", &at.path, &["--json"]))["time"]["elapsed"].as_f64().unwrap();
    assert!(ended.iter().all(|ended| *ended <= clock + 1e-9), "{clock} {ended:?}");
    assert!(done(drive("trace", &at.path, &[])).contains(" ms"));
    let drawn = json(drive("trace", &at.path, &[&plot[..], &["--json"]].concat()));
    assert_eq!((&drawn["commands"], drawn["pictures"].as_array().unwrap().len()), (&began.len().into(), 4));
    for name in ["places", "throughput"] {
        let svg = std::fs::read_to_string(pictures.join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("seconds of the drive"), "{name}");
        let png = std::fs::read(pictures.join(format!("{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 1000, "{name}");
    }
    // Without time commands stand in their order.
    done(drive("trace", &at.path, &["--start"]));
    done(imbrex(&["fs", "format", "--force", at.path.to_str().unwrap()]));
    assert_eq!(json(drive("trace", &at.path, &["--json"]))[0]["ended"], Value::Null);
    done(drive("trace", &at.path, &plot));
    assert!(std::fs::read_to_string(pictures.join("places.svg")).unwrap().contains("kept no time"));
    std::fs::write(at.path.with_extension("file"), "").unwrap();
    let no_directory = at.path.with_extension("file");
    assert!(fails(drive("trace", &at.path, &["--plot", no_directory.to_str().unwrap()]), 1).contains("somewhere else"));
}
