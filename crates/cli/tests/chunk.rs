//! `imbrex chunk …` as a user runs it.

mod support;

use std::process::Stdio;
use support::*;

const VERBS: [&str; 13] =
    ["format", "put", "append", "get", "seal", "rm", "ls", "stat", "check", "scrub", "clean", "salvage", "df"];

fn chunk(at: &Place, verb: &str, args: &[&str]) -> std::process::Output {
    at.run(&[&["chunk", verb, at.drive()], args].concat())
}

/// A place with a chunk store on a drive of 64 zones of 1 MiB.
fn store() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let made = done(chunk(&at, "format", &[]));
    assert!(made.contains("formatted, 5"), "{made}");
    at
}

#[test]
fn a_file_goes_in_and_comes_out() {
    let at = store();
    let all = bytes(700_000);
    let file = at.file("photo.raw", &all);
    let id = done(chunk(&at, "put", &[&file])).trim().to_owned();
    assert_eq!(id.len(), 48);
    assert!(chunk(&at, "get", &[&id]).stdout == all);
    let range = chunk(&at, "get", &[&id, "--offset", "4K", "--length", "100"]).stdout;
    assert!(range == all[4096..4196]);
    let facts = json(chunk(&at, "stat", &[&id, "--json"]));
    assert_eq!(
        (facts["len"].as_u64(), facts["sealed"].as_bool(), facts["stream"].as_str()),
        (Some(700_000), Some(true), Some("data"))
    );
    assert_eq!(done(chunk(&at, "ls", &[])).trim(), id);
    assert!(done(chunk(&at, "check", &[])).contains("nothing is wrong (1 chunks, 1 records, 683.6K)"));
    says(&fails(chunk(&at, "append", &[&id, &file]), 1), &["is sealed at 700000 bytes"]);
    done(chunk(&at, "rm", &[&id]));
    assert_eq!(done(chunk(&at, "ls", &[])), "");
    says(&fails(chunk(&at, "get", &[&id]), 1), &["there is no chunk", &id]);
}

#[test]
fn a_stream_that_is_longer_than_a_chunk_makes_several_and_says_so() {
    let at = store();
    let all = bytes(2_500_000);
    let mut command = at.command(&["chunk", "put", at.drive(), "-", "--stream", "gc"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &all).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("made 3 chunks"), "{output:?}");
    assert!(output.status.success());
    let ids = String::from_utf8(output.stdout).unwrap();
    let back: Vec<u8> = ids.lines().flat_map(|id| chunk(&at, "get", &[id]).stdout).collect();
    assert!(back == all && ids.lines().count() == 3);
    let file = at.file("large", &all);
    let id = "0".repeat(48);
    says(&fails(chunk(&at, "put", &[&file, "--id", &id]), 1), &["needs more than one chunk", "leave --id out"]);
    assert_eq!(json(chunk(&at, "ls", &["--json"])).as_array().unwrap().len(), 3, "nothing is left of it");
    assert!(done(chunk(&at, "ls", &["--long", "--limit", "1"])).contains(" gc       sealed"));
}

#[test]
fn a_chunk_grows_where_it_is_expected_to_end() {
    let at = store();
    let id = "ab".repeat(24);
    let (one, two) = (at.file("one", "hello "), at.file("two", "world"));
    assert_eq!(done(chunk(&at, "append", &[&id, &one])).trim(), "6 bytes at 0");
    done(chunk(&at, "append", &[&id, &two, "--offset", "6"]));
    says(&fails(chunk(&at, "append", &[&id, &two, "--offset", "6"]), 1), &["ends at 11, not at 6"]);
    says(&fails(chunk(&at, "append", &[&id, &at.file("none", "")]), 1), &["at least one byte"]);
    assert_eq!(chunk(&at, "get", &[&id]).stdout, b"hello world");
    assert_eq!(chunk(&at, "get", &[&id, "--offset", "11"]).stdout, b"");
    says(&fails(chunk(&at, "get", &[&id, "--offset", "12"]), 1), &["has 11 bytes", "from 12"]);
    done(chunk(&at, "seal", &[&id]));
    assert!(done(chunk(&at, "stat", &[&id])).contains("sealed"));
    assert!(done(chunk(&at, "df", &[])).contains("free zones"));
    assert!(done(chunk(&at, "clean", &[])).contains("moved"));
    assert!(done(chunk(&at, "scrub", &[])).contains("all chunks have been looked at"));
}

#[test]
fn what_salvage_finds_is_what_there_was() {
    let at = store();
    let all = bytes(60_000);
    let file = at.file("file", &all);
    let id = done(chunk(&at, "put", &[&file])).trim().to_owned();
    let before = std::fs::read(&at.path).unwrap();
    assert_eq!(json(chunk(&at, "salvage", &["--dry-run", "--json"]))["chunks"], 1);
    assert!(std::fs::read(&at.path).unwrap() == before, "a dry run changed the drive");
    assert!(done(chunk(&at, "salvage", &[])).contains("1 chunks of 1 records in 1 zones"));
    assert!(chunk(&at, "get", &[&id]).stdout == all);
    assert!(done(chunk(&at, "check", &[])).contains("nothing is wrong"));
}

#[test]
fn a_look_changes_nothing() {
    let at = store();
    let file = at.file("file", bytes(50_000));
    let id = done(chunk(&at, "put", &[&file])).trim().to_owned();
    let before = std::fs::read(&at.path).unwrap();
    for (verb, args) in
        [("ls", vec![]), ("get", vec![&id[..]]), ("stat", vec![&id[..]]), ("check", vec![]), ("df", vec![])]
    {
        assert!(chunk(&at, verb, &args).status.success(), "{verb}");
        assert!(std::fs::read(&at.path).unwrap() == before, "{verb} changed the drive");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    says(&fails(chunk(&at, "ls", &[]), 1), &["no Imbrex label"]);
    done(at.fs("format", &[]));
    says(&fails(chunk(&at, "ls", &[]), 1), &["is formatted for bluefs, not for chunkstore"]);
    says(&fails(chunk(&at, "format", &[]), 1), &["already formatted", "--force"]);
    done(chunk(&at, "format", &["--force"]));
    says(&fails(chunk(&at, "get", &["abc"]), 2), &["48 hexadecimal digits"]);
    says(&fails(chunk(&at, "put", &["/nowhere/at/all"]), 1), &["/nowhere/at/all", "check the path"]);
    for verb in VERBS {
        let help = done(at.run(&["chunk", verb, "--help"]));
        assert!(help.contains("Example"), "{verb}");
    }
}
