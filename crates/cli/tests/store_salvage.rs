//! `imbrex store export`, `import`, `salvage` and `label`, as a user calls them.

mod support;

use imbrex_device::AlignedBuf;
use imbrex_device::{Cause, ZoneOp, ZonedDevice, report_all};
use imbrex_emulator::{Emulator, OpenOptions};
use imbrex_zones::ZoneHeader;
use serde_json::Value;
use std::path::Path;
use support::*;

/// A place with a store of a long object, and of one with a name that no file may have.
fn filled() -> (Place, Vec<u8>) {
    let (at, photo) = (place(), bytes(900_001));
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.store("format", &[]));
    done(at.store("put", &["photo", &at.file("photo", &photo)]));
    done(at.store("put", &["../etc/x", &at.file("x", bytes(200_000))]));
    done(at.store("clone", &["photo", "copy"]));
    (at, photo)
}

/// Another drive beside it.
fn other(at: &Place) -> String {
    let path = at.host("other.img");
    done(at.run(&["drive", "create", &path, "--profile", "tiny"]));
    done(at.run(&["store", "format", &path]));
    path
}

fn lose_metadata(at: &Place) {
    let drive = Emulator::open(&at.path, OpenOptions::default()).unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    for zone in report_all(&drive).unwrap().into_iter().filter(|zone| zone.wp.is_some_and(|wp| wp >= 4096)) {
        drive.read_at(&mut buf, drive.geometry().start(zone.id), Cause::Check.into()).unwrap();
        // Zones of data have no name.
        if ZoneHeader::decode(&buf).is_some_and(|header| !header.name.is_empty()) {
            drive.zone_op(ZoneOp::Reset, zone.id, Cause::Check.into()).unwrap();
        }
    }
}

fn get(at: &Place, drive: &str, name: &str) -> Vec<u8> {
    let output = at.run(&["store", "get", drive, name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

#[test]
fn a_stream_goes_to_a_file_or_through_a_pipe_and_comes_back() {
    let (at, photo) = filled();
    let (file, to) = (at.host("objects"), other(&at));
    says(&done(at.store("export", &[&file])), &["3 objects"]);
    says(&fails(at.store("export", &[&file]), 1), &["give a new file"]);
    let piped = at.store("export", &["-"]);
    assert!(piped.status.success() && piped.stdout == content(&file));
    says(&done(at.run(&["store", "import", &to, &file])), &["3 objects imported"]);
    assert!(get(&at, &to, "photo") == photo && get(&at, &to, "copy") == photo);
    says(&fails(at.run(&["store", "import", &to, &file]), 1), &["exists", "--replace"]);
    says(&done(at.given(&["store", "import", &to, "-", "--replace"], &piped.stdout)), &["3 objects"]);
    // One object alone, and what is none.
    let one = at.store("export", &["-", "--name", "copy"]);
    assert!(one.status.success() && one.stdout.len() < piped.stdout.len() * 2 / 3);
    says(&fails(at.store("export", &["-", "--name", "none"]), 1), &["does not exist"]);
    says(&fails(at.store("export", &["-", "--collection", "x"]), 2), &["POOL.SEED"]);
    let half = &piped.stdout[..piped.stdout.len() / 2];
    says(&fails(at.given(&["store", "import", &to, "-", "--replace"], half), 3), &["ends early", "imported before"]);
    says(&fails(at.given(&["store", "import", &to, "-"], b"something else that is no stream"), 2), &["is no export"]);
    assert!(get(&at, &to, "photo") == photo);
    says(&done(at.run(&["store", "check", &to, "--deep"])), &["nothing is wrong"]);
}

fn list(dir: &str) -> Vec<Value> {
    let lines = text(&content(Path::new(dir).join("objects.jsonl")));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_store_whose_metadata_are_gone_comes_to_a_directory_and_to_another_store() {
    let (at, photo) = filled();
    // As long as all is whole nothing is doubtful.
    let dir = at.host("whole");
    says(&done(at.store("salvage", &["--to", &dir])), &["3 objects", "0 without metadata"]);
    assert!(content(Path::new(&dir).join("photo")) == photo && content(Path::new(&dir).join("copy")) == photo);
    assert_eq!(list(&dir).len(), 3);
    says(&fails(at.store("salvage", &["--to", &dir]), 1), &["not an empty directory"]);
    lose_metadata(&at);
    says(&fails(at.store("ls", &[]), 1), &["imbrex store salvage"]);
    let dir = at.host("left");
    let output = at.store("salvage", &["--to", &dir]);
    let said = text(&output.stdout);
    fails(output, 3);
    says(&said, &["note: ", "2 objects", "2 without metadata, 0 without a name; 0 lost"]);
    assert!(content(Path::new(&dir).join("photo")) == photo);
    assert!(content(Path::new(&dir).join("%2e.%2fetc%2fx")) == bytes(200_000));
    assert!(list(&dir).iter().all(|object| object["doubts"].as_array().is_some_and(|doubts| doubts.len() == 1)));
    let to = other(&at);
    let output = at.store("salvage", &["--to", &to, "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((&said["objects"], &said["lost_bytes"], &said["whole_metadata"]), (&2.into(), &0.into(), &false.into()));
    assert!(get(&at, &to, "photo") == photo);
    says(&fails(at.store("salvage", &["--to", &to]), 1), &["exists"]);
    // Of another volume nothing is there.
    let dir = at.host("none");
    says(&fails(at.store("salvage", &["--to", &dir, "--volume", &"0".repeat(32)]), 1), &["no object store"]);
    says(&fails(at.store("salvage", &["--to", &dir, "--volume", "x"]), 2), &["UUID"]);
    assert!(!Path::new(&dir).exists());
}

#[test]
fn a_long_object_has_its_name_without_the_metadata() {
    let (at, long) = (place(), bytes(9_000_001));
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--capacity", "96M", "--zone-size", "1M"]));
    done(at.store("format", &[]));
    let file = at.file("long", &long);
    for _ in 0..2 {
        // The second one replaces the first.
        done(at.store("put", &["long", &file]));
    }
    lose_metadata(&at);
    let dir = at.host("left");
    fails(at.store("salvage", &["--to", &dir]), 3);
    // Its end waits in the metadata until it is packed.
    let found = content(Path::new(&dir).join("long"));
    assert!(found.len() >= 8 << 20 && found[..8 << 20] == long[..8 << 20], "{:?}", list(&dir));
}

#[test]
fn a_label_is_read_without_the_metadata() {
    let (at, _) = filled();
    says(&done(at.store("label", &["--set", "rack=7", "--set", "who=Ada=B"])), &["rack", "Ada=B", "object store"]);
    done(at.store("label", &["--unset", "rack"]));
    says(&fails(at.store("label", &["--set", "none"]), 2), &["KEY=VALUE"]);
    lose_metadata(&at);
    let label = json(at.store("label", &["--json"]));
    assert_eq!(label["pairs"], serde_json::json!({ "who": "Ada=B" }));
    assert!(label["made"].as_u64().unwrap() > 1_600_000_000 && label["volume"].as_str().unwrap().len() == 32);
}
