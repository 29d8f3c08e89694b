//! `imbrex fs dump`: what it says is what other commands say, of clean drives and of crashed ones, and it changes nothing.

mod support;

use serde_json::Value;
use std::process::Stdio;
use support::{Place, bytes, content, done, fails, formatted, json, says, text};

/// The lines of a dump: its head, files, zones.
fn dumped(at: &Place) -> (Value, Vec<Value>, Vec<Value>) {
    let lines: Vec<Value> =
        done(at.fs("dump", &[])).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let (head, end) = (lines[0].clone(), lines.last().unwrap());
    let of = |name: &str| -> Vec<Value> { lines.iter().filter(|line| line.get(name).is_some()).cloned().collect() };
    let (files, zones) = (of("file"), of("zone"));
    assert_eq!(head["imbrex_fs_dump"], 1);
    assert_eq!((&end["end"]["files"], &end["end"]["zones"]), (&files.len().into(), &zones.len().into()));
    assert_eq!(lines.len(), files.len() + zones.len() + 2, "every line is one of these");
    (head, files, zones)
}

fn file<'a>(files: &'a [Value], path: &str) -> &'a Value {
    let has = |file: &&Value| file["paths"].as_array().unwrap().iter().any(|of| of == path);
    files.iter().find(has).unwrap_or_else(|| panic!("{path} is not in {files:?}"))
}

#[test]
fn a_dump_says_what_stat_and_zones_say() {
    let at = formatted();
    done(at.fs("mkdir", &["/db"]));
    done(at.fs("cp", &[&at.file("000007.sst", bytes(2_500_000)), ":/db/000007.sst"]));
    done(at.fs("cp", &[&at.file("CURRENT", "x"), ":/db/CURRENT"]));
    done(at.fs("ln", &["/db/000007.sst", "/again.sst"]));
    let (head, files, zones) = dumped(&at);
    assert_eq!((&head["clean"], &head["damage"].as_array().unwrap().len()), (&true.into(), &0));
    assert_eq!((&head["geometry"]["zones"], &head["geometry"]["zone_size"]), (&64.into(), &(1 << 20).into()));
    let stat = json(at.fs("stat", &["--json"]));
    assert_eq!((&head["uuid"], &head["mounts"]), (&stat["uuid"], &stat["mounts"]));

    let table = file(&files, "/db/000007.sst");
    assert_eq!(table["paths"].as_array().unwrap().len(), 2, "{table}");
    assert_eq!(file(&files, "/again.sst"), table);
    assert_eq!((file(&files, "/")["kind"].as_str(), file(&files, "/db")["kind"].as_str()), (Some("dir"), Some("dir")));
    for path in ["/db/000007.sst", "/db/CURRENT"] {
        let (dumped, stat) = (file(&files, path), json(at.fs("stat", &[path, "--json"])));
        for field in ["kind", "size", "allocated", "links", "modified_ns"] {
            assert_eq!(dumped[field], stat[field], "{path}: {field}");
        }
        let places = |of: &Value| -> Vec<[Value; 4]> {
            let extent = |e: &Value| ["logical", "bytes", "zone", "address"].map(|name| e[name].clone());
            of["extents"].as_array().unwrap().iter().map(extent).collect()
        };
        assert_eq!(places(dumped), places(&stat), "{path}");
    }
    // A zone says the same of its files as they do of it, the drive the same of its state.
    let extents = table["extents"].as_array().unwrap();
    assert!(extents.len() >= 3, "{table}");
    for extent in extents {
        let zone = &zones[extent["zone"].as_u64().unwrap() as usize];
        assert_eq!((&zone["holds"], &zone["life"]), (&"files".into(), &extent["life"]));
    }
    for named in head["journal"]["zones"].as_array().unwrap() {
        let zone = &zones[named["zone"].as_u64().unwrap() as usize];
        assert_eq!((&zone["holds"], &zone["life"]), (&"journal".into(), &named["life"]));
    }
    let report = json(at.run(&["drive", "zones", at.drive(), "--json"]));
    for (zone, reported) in zones.iter().zip(report.as_array().unwrap()) {
        for field in ["zone", "state", "capacity", "write_pointer"] {
            assert_eq!(zone[field], reported[field], "{zone}");
        }
    }
}

#[test]
fn a_crashed_drive_is_dumped_as_a_mount_would_find_it_and_stays_as_it_is() {
    let at = formatted();
    done(at.fs("cp", &[&at.file("whole.sst", bytes(1_500_000)), ":/whole.sst"]));
    let mut copy = at.copying(":/x.log", &bytes(600_000));
    // All but what a pipe holds was read, so it is mounted.
    copy.kill().unwrap();
    copy.wait().unwrap();
    let before = content(&at.path);
    let (head, files, _) = dumped(&at);
    assert_eq!(head["clean"], false);
    assert_eq!(file(&files, "/whole.sst")["size"], 1_500_000);
    assert!(content(&at.path) == before, "a look has changed the drive");
    // What a mount then finds is what was dumped.
    let listed = json(at.fs("ls", &["/", "--recursive", "--json"]));
    for one in listed.as_array().unwrap() {
        assert_eq!(file(&files, one["path"].as_str().unwrap())["size"], one["size"], "{one}");
    }
}

#[test]
fn who_stops_reading_is_no_failure_and_who_has_no_drive_is_told() {
    let at = formatted();
    for i in 0..40 {
        done(at.fs("mkdir", &[&format!("/a-directory-with-a-name-of-some-length-{i}")]));
    }
    let mut child =
        at.command(&["fs", "dump", at.drive()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.stderr.is_empty(), "{}", text(&ended.stderr));
    says(&fails(at.run(&["fs", "dump", &at.host("none.img")]), 1), &["imbrex drive create"]);
}
