//! `imbrex chunk`: kinds of streams of one's own, what is lost and damaged, Ctrl-C.

mod support;

use std::io::Write;
use std::process::Stdio;
use support::*;

const A: &str = "00000000000000000000000000000000000000000000000a";
const B: &str = "00000000000000000000000000000000000000000000000b";
const C: &str = "00000000000000000000000000000000000000000000000c";

/// A place with a drive of 64 zones of 1 MiB, four of them conventional.
fn created() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    at
}

fn stored() -> Place {
    let at = created();
    done(at.chunk("format", &[]));
    at
}

#[test]
fn a_put_leaves_no_memory_behind() {
    let at = stored();
    done(at.chunk_given("put", &["--id", A], b"a line"));
    // Where the survivor's memory is while the drive is open.
    let left: Vec<_> = std::fs::read_dir(at.host("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("imbrex-")), "{left:?}");
}

#[test]
fn kinds_of_streams_of_one_s_own_are_kept() {
    let at = created();
    // What makes no sense is told before anything is done.
    for (wrong, part) in
        [("logs", "NAME:DAYS:POOL"), ("gc:1:1", "already"), ("logs:30:8:2M", "2097152 is more than fits")]
    {
        says(&fails(at.chunk("format", &["--stream", wrong]), 2), &[part]);
    }
    says(&fails(at.chunk("ls", &[]), 1), &["has no Imbrex label", "`imbrex chunk format`"]);
    done(at.chunk("format", &["--stream", "logs:30:8", "--stream", "cold:365:4:100K"]));
    done(at.chunk_given("put", &["--id", A, "--stream", "logs"], b"a line"));
    done(at.chunk_given("put", &["--id", B, "--stream", "cold"], b"a block"));
    let list = done(at.chunk("ls", &["--long"]));
    assert!(list.lines().zip(["logs", "cold"]).all(|(line, name)| line.contains(name)), "{list}");
    assert_eq!(json(at.chunk("stat", &[A, "--json"]))["stream"], "logs");
    assert_eq!(json(at.chunk("stat", &["--json"]))["limits"]["cold"], 100 << 10);
    says(
        &fails(at.chunk_given("put", &["--stream", "log"], b"x"), 1),
        &["there is no stream \"log\"", "data, metadata, gc, logs, cold", "?streams="],
    );
    // One more behind the drive's name, once; and new settings for one that is there.
    let uri = format!("imbrex://{}?streams=cold:100:4:200K,media:9:2", at.drive());
    let mut put = at.command(&["chunk", "put", &uri, "--id", C, "--stream", "media"]);
    let mut child = put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a film").unwrap();
    done(child.wait_with_output().unwrap());
    let list = done(at.chunk("ls", &["--long"]));
    assert!(list.lines().zip(["logs", "cold", "media"]).all(|(line, name)| line.contains(name)), "{list}");
    assert_eq!(json(at.chunk("stat", &["--json"]))["limits"]["cold"], 200 << 10);
    let more: Vec<String> = (0..11).map(|i| format!("s{i}:1:1")).collect();
    let uri = format!("imbrex://{}?streams={}", at.drive(), more.join(","));
    says(&fails(at.run(&["chunk", "ls", &uri]), 1), &["has the streams logs, cold, media", "more than 16"]);
}

#[test]
fn what_is_lost_and_damaged_is_listed() {
    let at = stored();
    let clean = done(at.chunk("stat", &[]));
    says(&clean, &["scrub", "0 whole passes", "0 damaged records"]);
    assert!(!clean.contains("lost:"), "{clean}");
    done(at.chunk_given("put", &["--id", A], &bytes(500_000)));
    done(at.chunk_given("put", &["--id", B, "--stream", "gc"], &bytes(500_000)));
    let zone = json(at.chunk("stat", &[A, "--json"]))["places"][0]["zone"].as_u64().unwrap() as u32;
    let emulator = imbrex_emulator::Emulator::open(&at.path, imbrex_emulator::OpenOptions::default()).unwrap();
    emulator.faults().make_offline(imbrex_device::ZoneId(zone)).unwrap();
    drop(emulator);
    let stat = done(at.chunk("stat", &[]));
    says(&stat, &[&format!("Zone {zone} is offline"), &format!("lost: {A}, 500000 bytes at 0 (zone {zone})")]);
    assert!(!stat.contains(B), "{stat}");
    let lost = &json(at.chunk("stat", &["--json"]))["lost"];
    assert_eq!((lost[0]["id"].as_str(), lost[0]["len"].as_u64(), lost[1].is_null()), (Some(A), Some(500_000), true));
    says(&fails(at.chunk("get", &[A]), 3), &["is damaged at 0", &format!("zone {zone}")]);
    assert!(at.chunk("get", &[B]).stdout == bytes(500_000));
    done(at.chunk("rm", &[A]));
    let check = at.chunk("check", &[]);
    assert!(text(&check.stdout).contains("nothing is wrong"), "{}", text(&check.stdout));
    assert!(!done(at.chunk("stat", &[])).contains("offline"));
}

/// Ctrl-C takes back what a put has stored, as any failure does, also where it ends whoever writes to the pipe; and the drive is whole.
#[test]
fn an_interrupted_put_leaves_nothing() {
    for ends in [false, true] {
        let at = stored();
        done(at.chunk_given("put", &["--id", B], b"before"));
        let uri = format!("imbrex://{}?buffer=1M", at.drive());
        let mut command = at.command(&["chunk", "put", &uri, "--piece", "64K"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Several chunks; it waits for more when the signal comes.
        let mut stdin = child.stdin.take();
        stdin.as_mut().unwrap().write_all(&bytes(4_500_000)).unwrap();
        let pid = child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        if ends {
            drop(stdin.take());
        }
        let output = child.wait_with_output().unwrap();
        says(&fails(output, 1), &["interrupted", "nothing of it is stored"]);
        drop(stdin);
        assert_eq!(done(at.chunk("ls", &[])), format!("{B}\n"));
        assert_eq!(json(at.chunk("stat", &["--json"]))["clean"], true);
        assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
    }
}

#[test]
fn a_limit_of_a_stream_that_no_zone_has_room_for_is_refused() {
    let at = stored();
    let uri = format!("imbrex://{}?streams=logs:30:8:2M", at.drive());
    let sentence = fails(at.run(&["chunk", "ls", &uri]), 2);
    says(&sentence, &["logs", "2097152 is more than fits one of the drive's zones", "ask for"]);
}

/// Where a drive has conventional zones and chunks have it alone, those serve as sequential ones, and nobody has to say so again.
#[test]
fn conventional_zones_take_chunks_without_being_asked() {
    let at = place();
    let make = |more: &[&str]| {
        let mut args = vec!["drive", "create", at.drive(), "--profile", "tiny", "--conventional", "24", "--force"];
        args.extend(more);
        done(at.run(&args));
    };
    make(&[]);
    // What stands there is not destroyed without being asked.
    done(at.run(&["fs", "format", at.drive()]));
    done(at.run(&["fs", "cp", at.drive(), &at.file("in", b"precious"), ":/x"]));
    says(&fails(at.chunk("format", &[]), 1), &["already formatted", "--force"]);
    assert_eq!(done(at.run(&["fs", "cat", at.drive(), "/x"])), "precious");
    let total = json(at.chunk("format", &["--force", "--json"]))["total"].as_u64().unwrap();
    assert!(total > 50 << 20, "{total} bytes: conventional zones are not used");
    let zones = json(at.run(&["drive", "zones", at.drive(), "--json"]));
    assert!(zones.as_array().unwrap().iter().all(|zone| zone["state"] != "conventional"));
    // More than the drive's own 40 sequential zones hold.
    let all = bytes(45_000_000);
    let put = at.chunk("put", &[&at.file("big", &all)]);
    assert!(put.status.success());
    let ids = text(&put.stdout);
    let ids: Vec<&str> = ids.lines().collect();
    assert!(at.chunk("get", &ids).stdout == all);
    done(at.run(&["drive", "power-loss", at.drive(), "--seed", "3"]));
    assert!(at.chunk("get", &ids).stdout == all);
    done(at.chunk("check", &[]));
    let named = format!("{}?conventional=as-sequential", at.drive());
    assert_eq!(done(at.run(&["chunk", "ls", &named])).lines().count(), ids.len());
    says(&fails(at.chunk("format", &[]), 1), &["already formatted"]);
    done(at.chunk("format", &["--force"]));
    assert_eq!(done(at.chunk("ls", &[])), "");
    // A file system has a use of its own for them.
    says(&fails(at.run(&["fs", "format", at.drive()]), 1), &["--force"]);
    done(at.chunk("format", &["--with-fs", "--force"]));
    let zones = json(at.run(&["drive", "zones", at.drive(), "--json"]));
    let is_conventional = |zone: &&serde_json::Value| zone["state"] == "conventional";
    assert_eq!(zones.as_array().unwrap().iter().filter(is_conventional).count(), 24);
    // A store that was made before that goes on as it is; and so does one with few of them.
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--conventional", "8", "--force"]));
    done(at.chunk("format", &[]));
    let zones = json(at.run(&["drive", "zones", at.drive(), "--json"]));
    assert_eq!(zones.as_array().unwrap().iter().filter(is_conventional).count(), 8);
}

#[test]
fn fragmentation_is_0_until_something_dies_beside_what_lives() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.chunk("format", &[]));
    let score = || json(at.chunk("df", &["--score", "--json"]))["fragmentation"].as_f64().unwrap();
    assert_eq!(score(), 0.0, "an empty store");
    let data = at.file("data", bytes(300_000));
    for i in 0..12 {
        done(at.chunk("put", &[&data, "--name", &format!("chunk-{i}")]));
    }
    assert_eq!(score(), 0.0, "a store that was written in one go");
    for i in [1, 4, 7] {
        done(at.chunk("rm", &[&format!("chunk-{i}")]));
    }
    let torn = score();
    assert!(torn > 0.1 && torn < 0.9, "{torn}");
    says(&done(at.chunk("df", &["--score"])), &[&format!("fragmentation      {torn:.3}")]);
    assert!(json(at.chunk("df", &["--json"])).get("fragmentation").is_none(), "nobody asked");
    for i in (0..12).filter(|i| ![1, 4, 7].contains(i)) {
        done(at.chunk("rm", &[&format!("chunk-{i}")]));
    }
    assert_eq!(score(), 0.0, "where nothing lives nothing is scattered");
}
