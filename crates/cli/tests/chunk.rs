//! `imbrex chunk …` as a user runs it.

mod support;

use imbrex_device::{AlignedBuf, Cause, ZonedDevice};
use imbrex_emulator::{Emulator, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Output, Stdio};
use support::*;

const VERBS: [&str; 16] = [
    "format", "put", "append", "get", "seal", "rm", "name", "export", "import", "ls", "stat", "df", "check", "scrub",
    "clean", "salvage",
];
const A: &str = "00000000000000000000000000000000000000000000000a";
const B: &str = "00000000000000000000000000000000000000000000000b";
const C: &str = "00000000000000000000000000000000000000000000000c";

/// A place with an empty store on a drive of 64 zones of 1 MiB, four of them conventional.
fn stored() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.chunk("format", &[]));
    at
}

/// The ids that a put has printed, and what it said beside.
fn ids(output: &Output) -> (Vec<String>, String) {
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout).lines().map(str::to_owned).collect(), text(&output.stderr))
}

fn content_of(entry: &std::fs::DirEntry) -> Vec<u8> {
    std::fs::read(entry.path()).unwrap_or_default()
}

fn is_whole(at: &Place) {
    assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
}

#[test]
fn format_makes_an_empty_store_once() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let made = json(at.chunk("format", &["--json"]));
    assert_eq!((&made["drive"], &made["shared_with"]), (&at.drive().into(), &serde_json::json!([])));
    let (total, free) = (made["total"].as_u64().unwrap(), made["free"].as_u64().unwrap());
    // 60 sequential zones, six metazones, two for cleaning.
    assert!(total > 50 << 20 && total < 54 << 20 && free == total / 54 * 52, "{made}");
    assert_eq!(done(at.chunk("ls", &[])), "");

    done(at.chunk_given("put", &["--id", A], b"precious"));
    says(&fails(at.chunk("format", &[]), 1), &["already formatted", "`imbrex chunk format --force`"]);
    assert_eq!(done(at.chunk("get", &[A])), "precious");
    assert!(done(at.chunk("format", &["--force"])).contains("formatted, 5"));
    assert_eq!(done(at.chunk("ls", &[])), "");
    // A URI is as good as a path.
    done(at.run(&["chunk", "format", "--force", &format!("imbrex://{}?open-zones=3", at.drive())]));
}

#[test]
fn bytes_come_out_as_they_went_in() {
    let at = stored();
    let content = bytes(700_001);
    let (put, said) = ids(&at.chunk("put", &[&at.file("in", &content)]));
    assert_eq!((put.len(), said.as_str()), (1, ""));
    let id = put[0].as_str();
    assert!(at.chunk("get", &[id]).stdout == content);
    // From stdin, under a name of the user's choice, in odd pieces.
    done(at.chunk_given("put", &["--id", B, "--piece", "5001", "--stream", "gc"], &content));
    assert!(at.chunk("get", &[B]).stdout == content);
    // Both, one behind the other, into a file.
    let out = at.host("out");
    assert_eq!(json(at.chunk("get", &[id, B, "--output", &out, "--json"]))["bytes"], 1_400_002);
    assert!(content.repeat(2) == self::content(out));
    // Ranges of records, of slices, of single bytes, and to the end.
    for (range, from, to) in [
        ("0+1", 0, 1),
        ("4K+8K", 4096, 12_288),
        ("5000+3", 5000, 5003),
        ("600000+", 600_000, 700_001),
        ("700000+1", 700_000, 700_001),
    ] {
        for id in [id, B] {
            assert!(at.chunk("get", &[id, "--range", range]).stdout == content[from..to], "{range}");
        }
    }
    is_whole(&at);
    let stat = json(at.chunk("stat", &["--json", B]));
    assert_eq!((&stat["len"], &stat["stream"], &stat["sealed"]), (&700_001.into(), &"gc".into(), &true.into()));
    let places = stat["places"].as_array().unwrap();
    let sum = |what: &str| places.iter().map(|place| place[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((&stat["records"], sum("records"), sum("len")), (&140.into(), 140, 700_001));
    says(&done(at.chunk("stat", &[B])), &["700,001 bytes", "gc", "sealed", "140", "zone"]);
}

#[test]
fn what_is_longer_than_a_chunk_becomes_several_and_they_are_told() {
    let at = stored();
    let content = bytes(2_300_000);
    let output = at.chunk_given("put", &[], &content);
    let (put, said) = ids(&output);
    says(&said, &["3 chunks", "at most", "imbrex chunk get"]);
    let all: Vec<&str> = put.iter().map(String::as_str).collect();
    assert!(at.chunk("get", &all).stdout == content);
    let lens: Vec<u64> =
        all.iter().map(|id| json(at.chunk("stat", &["--json", id]))["len"].as_u64().unwrap()).collect();
    let limit = json(at.chunk("stat", &["--json"]))["limits"]["data"].as_u64().unwrap();
    assert_eq!((lens[0], lens[1], lens[2]), (limit, limit, 2_300_000 - 2 * limit));
    // A chunk that is just full begins no other one.
    let exact = json(at.chunk_given("put", &["--json"], &content[..2 * limit as usize]));
    assert_eq!((&exact["bytes"], exact["chunks"].as_array().unwrap().len()), (&(2 * limit).into(), 2));
    // One name is not enough for several.
    let sentence = fails(at.chunk_given("put", &["--id", A], &content), 1);
    says(&sentence, &["stdin needs more than one chunk", "leave --id out"]);
    says(&fails(at.chunk("get", &[A]), 1), &["there is no chunk"]);
    // Smaller ones on request.
    let uri = format!("imbrex://{}?chunk-limit=1000000", at.drive());
    let few = json(at.run(&["chunk", "put", &uri, &at.file("in", &content), "--json", "--no-name"]));
    assert_eq!((&few["chunks"][0]["len"], &few["chunks"][2]["len"]), (&1_000_000.into(), &300_000.into()));
    is_whole(&at);
}

#[test]
fn open_chunks_grow_until_they_are_sealed() {
    let at = stored();
    done(at.chunk_given("put", &["--open", "--id", A, "--stream", "metadata"], b""));
    assert_eq!(json(at.chunk("stat", &["--json", A]))["sealed"], false);
    assert_eq!(done(at.chunk_given("append", &[A], b"one ")), "4 bytes at 0\n");
    let second = json(at.chunk_given("append", &[A, "--offset", "4", "--json"], b"two"));
    assert_eq!((&second["offset"], &second["bytes"], &second["len"]), (&4.into(), &3.into(), &7.into()));
    // The answer was lost, and it is sent again.
    says(&fails(at.chunk_given("append", &[A, "--offset", "4"], b"two"), 1), &["ends at 7, not at 4", "go on at 7"]);
    assert_eq!(done(at.chunk("get", &[A])), "one two");
    let sealed = json(at.chunk("seal", &["--json", A]));
    assert_eq!((&sealed["sealed"][0]["id"], &sealed["sealed"][0]["len"]), (&A.into(), &7.into()));
    done(at.chunk("seal", &[A]));
    says(&fails(at.chunk_given("append", &[A], b"three"), 1), &[A, "sealed at 7"]);
    assert_eq!(done(at.chunk("get", &[A])), "one two");
    // The first append makes a chunk.
    done(at.chunk_given("append", &[C, "--stream", "gc"], b"new"));
    let stat = json(at.chunk("stat", &["--json", C]));
    assert_eq!((&stat["len"], &stat["stream"], &stat["sealed"]), (&3.into(), &"gc".into(), &false.into()));
}

#[test]
fn lists_come_in_pages_and_removed_chunks_are_gone() {
    let at = stored();
    for id in [B, A, C] {
        done(at.chunk_given("put", &["--id", id], id.as_bytes()));
    }
    assert_eq!(done(at.chunk("ls", &[])), format!("{A}\n{B}\n{C}\n"));
    let first = json(at.chunk("ls", &["--json", "--limit", "2"]));
    assert_eq!((&first["chunks"][1]["id"], &first["next"]), (&B.into(), &B.into()));
    let second = json(at.chunk("ls", &["--json", "--limit", "2", "--after", B]));
    assert_eq!((&second["chunks"][0]["id"], &second["next"]), (&C.into(), &serde_json::Value::Null));
    let long = done(at.chunk("ls", &["--long", "--after", A]));
    assert_eq!(long.lines().count(), 2);
    says(&long, &[B, " 48 ", "data", "sealed", "1 record in 1 zone"]);
    assert_eq!(json(at.chunk("rm", &["--json", A, C, A]))["removed"], 2);
    assert_eq!(done(at.chunk("ls", &[])), format!("{B}\n"));
    says(&fails(at.chunk("get", &[A]), 1), &["no chunk", A, "imbrex chunk ls"]);
    // Nothing is removed unless all are there.
    says(&fails(at.chunk("rm", &[B, C]), 1), &["no chunk", C]);
    assert_eq!(done(at.chunk("get", &[B])), B);
    // The name may be used again.
    done(at.chunk_given("put", &["--id", A], b"again"));
    assert_eq!(done(at.chunk("get", &[A])), "again");
    is_whole(&at);
}

#[test]
fn facts_are_told_to_people_and_programs() {
    let at = stored();
    let empty = json(at.chunk("df", &["--json"]));
    done(at.chunk("put", &[&at.file("in", bytes(900_000)), "--id", A]));
    let df = json(at.chunk("df", &["--json"]));
    assert_eq!((&df["live"], &df["chunks"], &df["total"]), (&900_000.into(), &1.into(), &empty["total"]));
    assert!(df["free"].as_u64() < empty["free"].as_u64());
    says(&done(at.chunk("df", &[])), &["size", "1 of 878.9K", "free when cleaned"]);
    let stat = json(at.chunk("stat", &["--json"]));
    assert_eq!((&stat["clean"], &stat["chunks"], &stat["zones"]["meta"]), (&true.into(), &1.into(), &6.into()));
    assert_eq!(stat["limits"]["metadata"], stat["limits"]["data"]);
    says(&done(at.chunk("stat", &[])), &["volume", "cleanly", "6 meta", "damage", "none"]);
    let check = json(at.chunk("check", &["--json"]));
    assert_eq!((&check["problems"], &check["bytes"]), (&serde_json::json!([]), &900_000.into()));
}

#[test]
fn a_look_changes_nothing() {
    let at = stored();
    done(at.chunk_given("put", &["--id", A], &bytes(50_000)));
    // Also where there is something to recover.
    let mut command = at.command(&["chunk", "append", &format!("imbrex://{}?buffer=1M", at.drive()), B]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&bytes(900_000)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let before = content(&at.path);
    let looks: [(&str, &[&str]); 7] =
        [("ls", &[]), ("get", &[A]), ("stat", &[A]), ("stat", &[]), ("check", &[]), ("scrub", &[]), ("df", &[])];
    for (verb, args) in looks {
        assert!(at.chunk(verb, args).status.success(), "{verb}");
        assert!(content(&at.path) == before, "{verb} changed the drive");
    }
}

#[test]
fn damage_is_found_named_and_read_around() {
    let at = stored();
    let content = bytes(300_000);
    done(at.chunk("put", &[&at.file("in", &content), "--id", A]));
    done(at.chunk_given("put", &["--id", B], b"whole"));
    assert!(done(at.chunk("scrub", &["--rate", "1G"])).contains("nothing is wrong"));
    // One byte of the first chunk, wherever the image has it.
    let mut image = self::content(&at.path);
    let needle = &content[100_000..100_064];
    let found = image.windows(64).position(|window| window == needle).unwrap();
    image[found] ^= 1;
    std::fs::write(&at.path, image).unwrap();
    says(&fails(at.chunk("get", &[A, "--output", &at.host("out")]), 3), &[A, "damaged at 98304", "rescue"]);
    let rescued = at.chunk("get", &[A, "--rescue"]);
    assert!(rescued.status.success() && rescued.stdout.len() == 300_000);
    assert_eq!(rescued.stdout.iter().zip(&content).filter(|(a, b)| a != b).count(), 1);
    assert_eq!(done(at.chunk("get", &[B])), "whole");
    for verb in ["check", "scrub"] {
        says(&fails(at.chunk(verb, &[]), 3), &["1 problem;", "imbrex chunk get", "--rescue"]);
        let found = at.chunk(verb, &["--json"]);
        let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
        assert!(report["problems"][0].as_str().unwrap().contains(A), "{report}");
    }
    // A scrub goes on where it stopped.
    assert!(done(at.chunk("scrub", &["--after", A])).contains("nothing is wrong in 5 (all)"));
}

#[test]
fn a_scrub_stops_and_goes_on() {
    let at = stored();
    for id in [A, B] {
        done(at.chunk_given("put", &["--id", id], id.as_bytes()));
    }
    let step = json(at.chunk("scrub", &["--json", "--bytes", "1"]));
    assert_eq!((&step["next"], &step["bytes"]), (&A.into(), &48.into()));
    says(&done(at.chunk("scrub", &["--bytes", "1"])), &["nothing is wrong in 48", &format!("--after {A}")]);
    let step = json(at.chunk("scrub", &["--json", "--bytes", "1", "--after", A]));
    assert_eq!((&step["next"], &step["bytes"]), (&serde_json::Value::Null, &48.into()));
}

#[test]
fn what_salvage_finds_is_what_there_was() {
    let at = stored();
    let all = bytes(60_000);
    done(at.chunk_given("put", &["--id", A], &all));
    let before = content(&at.path);
    assert_eq!(json(at.chunk("salvage", &["--dry-run", "--json"]))["chunks"], 1);
    assert!(content(&at.path) == before, "a dry run changed the drive");
    assert!(done(at.chunk("salvage", &[])).contains("1 chunk of 1 record in 1 zone\n"));
    assert!(at.chunk("get", &[A]).stdout == all);
    is_whole(&at);
}

/// Both copies of the label are overwritten: zones of 1 MiB, the label in the first two.
fn lose_label(at: &Place) {
    let device = Emulator::open(&at.path, OpenOptions::default()).unwrap();
    for zone in 0..2 {
        device.write_at(&AlignedBuf::zeroed(64 << 10), zone << 20, Cause::Other.into()).unwrap();
    }
}

#[test]
fn a_lost_label_is_made_anew_when_that_is_asked_for() {
    let at = stored();
    let all = bytes(60_000);
    done(at.chunk_given("put", &["--id", A], &all));
    done(at.chunk_given("put", &["--id", B], b"deleted"));
    done(at.chunk("rm", &[B]));
    lose_label(&at);
    says(&fails(at.chunk("get", &[A]), 1), &["no Imbrex label"]);
    let sentence = fails(at.chunk("salvage", &[]), 1);
    says(&sentence, &["lost both copies of its label", "1 zones of chunks", "--relabel", "zones 0 and 1"]);
    says(&fails(at.chunk("salvage", &["--dry-run"]), 1), &["--relabel"]);
    let uuid = sentence.split_once("on it: ").unwrap().1.split(' ').next().unwrap();
    let other = "00000000-0000-4000-8000-000000000000";
    says(&fails(at.chunk("salvage", &["--relabel", "--volume", other]), 1), &[other, uuid]);
    says(&fails(at.chunk("salvage", &["--volume", uuid]), 2), &["--relabel"]);
    says(&fails(at.chunk("salvage", &["--relabel", "--volume", "mine"]), 2), &["UUID"]);
    let before = content(&at.path);
    let look = json(at.chunk("salvage", &["--relabel", "--dry-run", "--json"]));
    assert_eq!((&look["chunks"], &look["volume"], &look["kept_zones"]), (&1.into(), &uuid.into(), &0.into()));
    assert!(content(&at.path) == before, "what was only looked at has changed");
    let said = done(at.chunk("salvage", &["--relabel", "--volume", uuid]));
    says(&said, &["the label was made anew, of volume", uuid, "1 chunk; journal and checkpoints are whole"]);
    assert!(at.chunk("get", &[A]).stdout == all);
    assert_eq!(done(at.chunk("ls", &[])).lines().count(), 1);
    is_whole(&at);
    let said = done(at.chunk("salvage", &["--relabel"]));
    assert!(!said.contains("made anew"), "{said}");
}

/// The file system beside it keeps its zones, and is there again.
#[test]
fn a_lost_label_costs_a_file_system_on_the_same_drive_nothing() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.chunk("format", &["--with-fs"]));
    let file = bytes(1_500_000);
    done(at.run(&["fs", "cp", at.drive(), &at.file("in", &file), ":/a.sst"]));
    done(at.chunk_given("put", &["--id", A], b"chunk"));
    lose_label(&at);
    let said = done(at.chunk("salvage", &["--relabel"]));
    says(&said, &["written zones are not this store's", "stay as they are"]);
    assert_eq!(done(at.chunk("get", &[A])), "chunk");
    // All the room that there is, twice: more than df counts, since zones that nobody owns count for one of the two, and who comes first takes them.
    let free = json(at.chunk("df", &["--json"]))["free"].as_u64().unwrap() as usize;
    assert!(free > 20 << 20, "{free}");
    let big = at.file("big", bytes(40 << 20));
    for _ in 0..2 {
        let (put, _) = ids(&at.chunk("put", &[&big]));
        done(at.chunk("rm", &put.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    is_whole(&at);
    assert!(at.run(&["fs", "cat", at.drive(), "/a.sst"]).stdout == file);
    says(&done(at.run(&["fs", "check", at.drive()])), &["1 file"]);
}

#[test]
fn cleaning_makes_room_of_what_was_removed() {
    let at = stored();
    // Pairs that share zones: one of each goes.
    let uri = format!("imbrex://{}?open-zones=1&chunk-limit=250000", at.drive());
    let content = bytes(20_000_000);
    let file = at.file("in", &content);
    let put = json(at.run(&["chunk", "put", &uri, &file, "--json", "--piece", "250000", "--no-name"]));
    let all: Vec<&str> = put["chunks"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    let odd: Vec<&str> = all.iter().copied().skip(1).step_by(2).collect();
    done(at.chunk("rm", &odd));
    let before = json(at.chunk("df", &["--json"]));
    let cleaned = json(at.chunk("clean", &["--json"]));
    assert!(cleaned["zones"].as_u64().unwrap() >= 5 && cleaned["moved"].as_u64().unwrap() > 1 << 20, "{cleaned}");
    assert!(cleaned["free"].as_u64().unwrap() >= before["free"].as_u64().unwrap() + (4 << 20), "{before} {cleaned}");
    let even: Vec<&str> = all.iter().copied().step_by(2).collect();
    let expected: Vec<u8> = content.chunks(250_000).step_by(2).flatten().copied().collect();
    assert!(at.chunk("get", &even).stdout == expected);
    is_whole(&at);
}

#[test]
fn a_put_that_is_killed_leaves_whole_appends_in_order() {
    let at = stored();
    done(at.chunk_given("put", &["--id", B], b"before"));
    let limit = json(at.chunk("stat", &["--json"]))["limits"]["data"].as_u64().unwrap() as usize;
    // What waits in memory is little, so that it goes to the drive early.
    let uri = format!("imbrex://{}?buffer=1M", at.drive());
    let mut command = at.command(&["chunk", "put", &uri, "--piece", "64K"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Several chunks, and never an end.
    let content = bytes(4_500_000);
    child.stdin.as_mut().unwrap().write_all(&content).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let list = json(at.chunk("ls", &["--json"]));
    let mut open = 0;
    let mut lens = vec![0; 5];
    for chunk in list["chunks"].as_array().unwrap() {
        let (id, sealed) = (chunk["id"].as_str().unwrap(), chunk["sealed"].as_bool().unwrap());
        if id == B {
            assert!(sealed);
            continue;
        }
        // By which the next put finds the others.
        if chunk["name"].as_str().is_some_and(|name| name.starts_with(".unfinished/")) {
            continue;
        }
        let got = at.chunk("get", &[id]).stdout;
        assert_eq!(chunk["len"].as_u64(), Some(got.len() as u64));
        assert!(got.len() == limit || !sealed && got.len().is_multiple_of(65_536), "{chunk}");
        open += usize::from(!sealed);
        if got.is_empty() {
            continue;
        }
        // Which one it is, its bytes say.
        let part = content.chunks(limit).position(|part| part.starts_with(&got[..64])).unwrap();
        assert!(content[part * limit..].starts_with(&got), "{chunk}");
        lens[part] = got.len();
    }
    // 3 MB and more did not fit the memory; nothing is there without what came before it in the same chunk.
    assert!(lens[0] == limit && open <= 1, "{lens:?} {list}");
    assert_eq!(done(at.chunk("get", &[B])), "before");
    // The store goes on, and the next put removes what was left.
    let put = at.chunk_given("put", &["--id", A], b"after");
    assert!(put.status.success());
    says(&text(&put.stderr), &["an earlier put or import was killed", "that it left"]);
    assert_eq!(done(at.chunk("ls", &["--ids"])), format!("{A}\n{B}\n"));
    is_whole(&at);
}

#[test]
fn a_put_that_fails_leaves_nothing() {
    let at = stored();
    // More than the drive has, and little of it waits in memory.
    let mut command = at.command(&["chunk", "put", &format!("imbrex://{}?buffer=1M", at.drive())]);
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let output = command.stdin(zeros).output().unwrap();
    says(&fails(output, 1), &["space"]);
    assert_eq!(done(at.chunk("ls", &[])), "");
    done(at.chunk_given("put", &["--id", A], b"there is room again"));
    is_whole(&at);
}

#[test]
fn a_drive_serves_chunks_and_files() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let made = json(at.chunk("format", &["--with-fs", "--json"]));
    assert_eq!(made["shared_with"][0], "bluefs");
    let content = bytes(3_000_000);
    let file = at.file("in", &content);
    for round in 0..3 {
        let (put, _) = ids(&at.chunk("put", &[&file, "--no-name"]));
        done(at.fs("cp", &[&file, &format!(":/{round}.sst")]));
        let put: Vec<&str> = put.iter().map(String::as_str).collect();
        assert!(at.chunk("get", &put).stdout == content);
        done(at.fs("cp", &[&format!(":/{round}.sst"), &at.host("out")]));
        assert!(self::content(at.host("out")) == content);
        if round == 1 {
            // Room that one gives back is the other's.
            done(at.chunk("rm", &put));
            done(at.fs("rm", &["/0.sst"]));
        }
    }
    is_whole(&at);
    assert!(done(at.fs("check", &[])).contains("nothing is wrong (2 files"));
    assert_eq!(done(at.fs("ls", &[])), "1.sst\n2.sst\n");
    // What a file system's process had not written when it was killed outlives the use of the other engine.
    let sent = bytes(5000);
    let mut child = at.copying(":/000003.log", &sent);
    let holds = |e: std::fs::DirEntry| {
        e.file_name() != "drive.img"
            && e.file_name() != "in"
            && e.file_name() != "out"
            && content_of(&e).windows(5000).any(|w| w == sent)
    };
    while !std::fs::read_dir(at.host("")).unwrap().flatten().any(holds) {
        assert!(child.try_wait().unwrap().is_none(), "{}", text(&child.wait_with_output().unwrap().stderr));
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    done(at.chunk_given("put", &["--id", A], b"between"));
    assert_eq!(done(at.chunk("get", &[A])), "between");
    assert!(at.fs("cat", &["/000003.log"]).stdout == sent, "what a killed process wrote is there");
    assert!(done(at.fs("check", &[])).contains("nothing is wrong"));
}

#[test]
fn a_picture_has_zones_by_kind_of_stream() {
    let at = stored();
    done(at.chunk_given("put", &["--id", A, "--stream", "gc"], &bytes(500_000)));
    done(at.chunk_given("put", &["--id", B], &bytes(500_000)));
    let picture = || {
        let path = at.host("zones.svg");
        done(at.run(&["drive", "zones", at.drive(), "--picture", &path]));
        text(&content(path))
    };
    says(&picture(), &["journal and checkpoints 6", "data 1<", "gc 1<", "of use", "pale"]);
    done(at.chunk("rm", &[A]));
    says(&picture(), &["data 1<", "gc 1<"]);
    // Without a chunk store it is as ever.
    done(at.fs("format", &["--force"]));
    let other = picture();
    assert!(!other.contains("checkpoints") && other.contains("fills from the bottom"), "{other}");
}

#[test]
fn every_verb_explains_itself_with_an_example() {
    let at = place();
    for verb in VERBS {
        let help = done(at.run(&["chunk", verb, "--help"]));
        says(&help, &["Example", &format!("imbrex chunk {verb} ")]);
        assert_eq!(at.run(&["chunk", verb]).status.code(), Some(2), "{verb}");
        assert_eq!(at.run(&["chunk", verb, "x.img", "--nonsense"]).status.code(), Some(2), "{verb}");
    }
}

#[test]
fn wrong_arguments_are_told_apart_from_failures() {
    let at = stored();
    done(at.chunk_given("put", &["--id", A], b"0123456789"));
    done(at.chunk_given("put", &["--id", B, "--open"], b""));
    let usage: [(&str, &[&str], &str); 13] = [
        ("get", &[A, "--range", "5-4"], "0-4 is five bytes"),
        ("get", &[A, "--range", "5"], "FROM+BYTES"),
        ("get", &[A, "--range", "0+0"], "one byte at least"),
        ("get", &[A, B, "--range", "0+1"], "one chunk"),
        ("get", &[A, "--json"], "--output"),
        ("put", &["--id", "zz"], "48 hexadecimal digits"),
        ("put", &["--piece", "0"], "--piece"),
        ("put", &["--piece", "1G"], "--piece"),
        ("ls", &["--limit", "0"], "--limit"),
        ("ls", &["--after", "12"], "48 hexadecimal digits"),
        ("scrub", &["--rate", "0"], "one byte at least"),
        ("scrub", &["--bytes", "0"], "one byte at least"),
        ("clean", &["--bytes", "0"], "one byte at least"),
    ];
    for (verb, more, part) in usage {
        says(&fails(at.chunk_given(verb, more, b"x"), 2), &[part]);
    }
    let failed: [(&str, &[&str], &[u8], &str); 15] = [
        ("get", &["12"], b"", "no chunk is named \"12\""),
        ("stat", &["000000000001"], b"", "no id begins so"),
        ("get", &[C], b"", "there is no chunk"),
        // A range beyond the end.
        ("get", &[A, "--range", "4+7"], b"", "ask for 4+6 at most"),
        ("get", &[A, "--range", "10+1"], b"", "nothing can be read from 10 on"),
        ("get", &[A, "--range", "11+"], b"", "nothing can be read from 11 on"),
        ("get", &[A, "--output", "/nowhere/x"], b"", "check the path"),
        // An empty append.
        ("append", &[B], b"", "at least one byte"),
        ("append", &[C], b"", "at least one byte"),
        ("append", &[C, "--offset", "5"], b"x", "there is no chunk"),
        ("put", &["--id", A], b"x", "exists already"),
        ("put", &["--stream", "logs"], b"x", "there are data, metadata, gc; ?streams="),
        ("put", &["/nowhere/x"], b"", "check the path"),
        ("put", &["/"], b"", "is a directory"),
        ("seal", &[C], b"", "there is no chunk"),
    ];
    for (verb, more, input, part) in failed {
        says(&fails(at.chunk_given(verb, more, input), 1), &[part]);
    }
    // Nothing of that has changed anything.
    assert_eq!(done(at.chunk("ls", &[])), format!("{A}\n{B}\n"));
    assert_eq!(done(at.chunk("get", &[A, B])), "0123456789");
}

#[test]
fn appends_that_are_too_much_are_refused_before_they_begin() {
    let at = stored();
    let limit = json(at.chunk("stat", &["--json"]))["limits"]["data"].as_u64().unwrap() as usize;
    done(at.chunk_given("put", &["--id", A, "--open"], &bytes(limit - 10)));
    let file = at.file("in", bytes(11));
    says(&fails(at.chunk("append", &[A, &file]), 1), &[A, "takes", "put these 11 into another one"]);
    says(&fails(at.chunk_given("append", &[A], &bytes(11)), 1), &["put these 11 into another one"]);
    done(at.chunk_given("append", &[A], &bytes(10)));
    assert_eq!(at.chunk("get", &[A]).stdout.len(), limit);
}

#[test]
fn settings_that_the_drive_cannot_do_are_refused() {
    let at = stored();
    let with = |options: &str| at.run(&["chunk", "put", &format!("imbrex://{}?{options}", at.drive()), "-"]);
    // Zones of 1 MiB, of which 8 can be open.
    says(
        &fails(with("chunk-limit=1M"), 2),
        &["chunk-limit=1048576 is more than fits one of the drive's zones", "ask for"],
    );
    says(&fails(with("open-zones=9"), 2), &["open-zones=9 is more than the 8 zones", "ask for 8"]);
    says(&fails(with("open-zones=0"), 2), &["from 1 to"]);
    says(&fails(with("chunk-limits=1G"), 2), &["there is no option", "the nearest are chunk-limit and "]);
    says(&fails(with("streams=logs"), 2), &["NAME:DAYS:POOL"]);
    let uri = format!("imbrex://{}?streams=logs:30:8", at.drive());
    done(at.run(&["chunk", "put", &uri, &at.file("in", "x"), "--stream", "logs", "--json"]));
    // The store knows the name from then on.
    says(&done(at.chunk("ls", &["--long"])), &["  1 logs "]);
}

#[test]
fn drives_of_others_and_drives_too_small_are_told() {
    let at = formatted();
    says(&fails(at.chunk("ls", &[]), 1), &["formatted for bluefs, not for chunkstore"]);
    says(&fails(at.chunk("format", &[]), 1), &["already formatted", "--force"]);
    let other = stored();
    says(&fails(other.fs("ls", &[]), 1), &["formatted for chunkstore, not for bluefs"]);
    let at = place();
    says(&fails(at.chunk("ls", &[]), 1), &[at.drive()]);
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    says(&fails(at.chunk("ls", &[]), 1), &["has no Imbrex label", "`imbrex chunk format`"]);

    // Too small for its metazones: says the smallest that works, and that works.
    let small = |size: &str, more: &[&str]| {
        let at = place();
        done(at.run(&[&["drive", "create", at.drive(), "--profile", "tiny", "--capacity", size], more].concat()));
        at
    };
    for conventional in ["4", "0"] {
        let at = small("10M", &["--conventional", conventional]);
        done(at.fs("format", &[]));
        done(at.fs("cp", &[&at.file("in", "kept"), ":/kept"]));
        let sentence = fails(at.chunk("format", &["--force"]), 1);
        says(&sentence, &["a chunk store needs 11", "6 metazones"]);
        let least = sentence.split("with as many conventional zones, of ").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(done(at.fs("cat", &["/kept"])), "kept", "nothing was destroyed");
        done(small(least, &["--conventional", conventional]).chunk("format", &[]));
        let less = (least.parse::<u64>().unwrap() - (1 << 20)).to_string();
        says(&fails(small(&less, &["--conventional", conventional]).chunk("format", &[]), 1), &["needs 11", least]);
    }
}

#[test]
fn two_processes_at_once_do_not_mix() {
    let at = stored();
    done(at.chunk_given("put", &["--id", B], b"before"));
    let mut command = at.command(&["chunk", "put", at.drive(), "--id", A]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"first").unwrap();
    // The child may not have it yet.
    while !json(at.run(&["drive", "info", at.drive(), "--json"]))["in_use_by"].is_u64() {
        assert!(child.try_wait().unwrap().is_none());
    }
    let busy = fails(at.chunk_given("put", &["--id", C], b"second"), 4);
    says(&busy, &[at.drive(), "in use by process", &child.id().to_string()]);
    drop(child.stdin.take());
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said.trim(), A);
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(child.wait().unwrap().success(), "{complaint}");
    assert_eq!(done(at.chunk("get", &[B, A])), "beforefirst");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let at = stored();
    done(at.chunk("put", &[&at.file("in", bytes(900_000)), "--id", A]));
    let mut child =
        at.command(&["chunk", "get", at.drive(), A]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn banded_disks_and_drives_in_memory_take_chunks() {
    let at = place();
    let disk = format!("banded:{}", at.host("disk.img"));
    done(at.run(&["drive", "create", "--banded", &at.host("disk.img"), "--capacity", "64M", "--band", "2M"]));
    done(at.run(&["chunk", "format", &disk]));
    let content = bytes(5_000_000);
    let (put, _) = ids(&at.run(&["chunk", "put", &disk, &at.file("in", &content)]));
    let all = [&["chunk", "get", disk.as_str()][..], &put.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    assert!(at.run(&all).stdout == content);
    assert!(done(at.run(&["chunk", "check", &disk])).contains("nothing is wrong"));
    says(&done(at.run(&["chunk", "df", "mem:?profile=tiny"])), &["size", "0 of 0"]);
    // A plain disk has no sequential zones.
    done(at.run(&["drive", "create", at.drive(), "--profile", "hitachi-hua72303", "--capacity", "1G"]));
    says(&fails(at.chunk("format", &[]), 1), &["all its zones are conventional", "as-sequential"]);
}
