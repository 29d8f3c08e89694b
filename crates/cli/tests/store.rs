//! The object store, as a user meets it.

mod support;

use serde_json::Value;
use std::process::Output;
use support::*;

/// A place with an empty store on 64 zones of 1 MiB.
fn stored() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.store("format", &[]));
    at
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len as u64).map(|n| ((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8 ^ seed).collect()
}

/// What a command prints that succeeds, as bytes.
#[track_caller]
fn printed(output: Output) -> Vec<u8> {
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    output.stdout
}

fn names(at: &Place) -> Vec<(String, u64)> {
    let lines = done(at.store("ls", &["--json"]));
    let one = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap();
        (object["name"].as_str().unwrap().to_owned(), object["bytes"].as_u64().unwrap())
    };
    let mut all: Vec<_> = lines.lines().map(one).collect();
    all.sort();
    all
}

/// The library with RocksDB is where `make build` puts it, and not beside the program of these tests.
#[test]
fn without_rocksdb_a_store_is_not_formatted_for_it() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let uri = format!("imbrex://{}?metadata=rocksdb", at.drive());
    let said = fails(at.run(&["store", "format", &uri]), 1);
    says(&said, &["RocksDB", "librocksdb_kv_imbrex-*.so is not in", "make build"]);
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    let bad = fails(at.run(&["store", "format", &uri.replace("rocksdb", "leveldb")]), 2);
    says(&bad, &["metadata=leveldb is neither kv nor rocksdb"]);
    // Nothing was done to the drive, so this needs no --force.
    done(at.store("format", &[]));
    says(&fails(at.run(&["store", "ls", &uri]), 1), &["its metadata are in kv", "metadata=rocksdb"]);
}

#[test]
fn objects_are_put_listed_read_renamed_cloned_and_deleted() {
    let at = stored();
    let (long, short) = (bytes(9_000_000, 1), bytes(100, 2));
    let file = at.file("long", &long);
    done(at.store("put", &["a photo", &file]));
    done(at.given(&["store", "put", at.drive(), "note", "-"], &short));
    assert_eq!(names(&at), [("a photo".into(), 9_000_000), ("note".into(), 100)]);
    assert!(printed(at.store("get", &["a photo"])) == long);
    assert!(
        printed(at.store("get", &["a photo", "--offset", "4000000", "--length", "5000"])) == long[4_000_000..4_005_000]
    );
    assert!(printed(at.store("get", &["note", "--offset", "101"])).is_empty());
    let stored = |at: &Place| json(at.store("stat", &["--json"]))["stored_bytes"].as_u64().unwrap();
    assert_eq!(json(at.store("stat", &["--json"]))["layout"], "zones");
    assert!(String::from_utf8(printed(at.store("stat", &[]))).unwrap().contains("in runs on zones"));
    let before = stored(&at);
    done(at.store("clone", &["a photo", "copy"]));
    assert_eq!(stored(&at), before, "a clone takes no room");
    // One that is there is replaced, and the clone keeps what it has.
    done(at.given(&["store", "put", at.drive(), "a photo", "-"], &short));
    assert!(printed(at.store("get", &["a photo"])) == short);
    assert!(printed(at.store("get", &["copy"])) == long);
    done(at.store("mv", &["copy", "kept"]));
    done(at.store("rm", &["a photo", "note"]));
    assert_eq!(names(&at), [("kept".into(), 9_000_000)]);
    says(
        &done(at.store("stat", &[])),
        &["1 object", "8.6M", "0 with success, 0 in vain", "last scrub ended", "0 places"],
    );
    says(&done(at.store("ls", &[])), &["9000000  kept"]);
    for deep in [&[][..], &["--deep"], &["--repair"], &["--repair", "--quick", "--deep"]] {
        says(&done(at.store("check", deep)), &["nothing is wrong with 1 object"]);
    }
}

#[test]
fn what_makes_no_sense_is_one_sentence() {
    let at = stored();
    done(at.given(&["store", "put", at.drive(), "a", "-"], b"x"));
    for (verb, words) in
        [("get", &["none"][..]), ("rm", &["a", "none"]), ("mv", &["none", "b"]), ("clone", &["none", "b"])]
    {
        says(&fails(at.store(verb, words), 1), &["there is no object \"none\"", "imbrex store ls"]);
    }
    done(at.given(&["store", "put", at.drive(), "b", "-"], b"y"));
    says(&fails(at.store("mv", &["a", "b"]), 1), &["there is an object \"b\" already"]);
    says(&fails(at.store("put", &["c", &at.host("nothing")]), 1), &["nothing: ", "check the path"]);
    says(&fails(at.store("put", &["c", &at.host("")]), 1), &["is a directory"]);
    let long = "x".repeat(4097);
    says(&fails(at.store("put", &[&long, "/dev/null"]), 1), &["a name of 4097 bytes is too long"]);
    says(&fails(at.store("format", &[]), 1), &["--force"]);
    assert_eq!(names(&at), [("a".into(), 1), ("b".into(), 1)]);
    // Drives of other engines.
    let other = formatted();
    says(&fails(other.store("ls", &[]), 1), &["bluestore"]);
    says(&fails(at.kv("put", &["key", "value"]), 1), &["kv"]);
}

#[test]
fn a_full_drive_takes_no_object_and_has_the_others() {
    let at = stored();
    let file = at.file("file", bytes(5_000_000, 3));
    let mut n = 0;
    let failed = loop {
        let put = at.store("put", &[&n.to_string(), &file]);
        if !put.status.success() {
            break put;
        }
        n += 1;
    };
    says(&fails(failed, 1), &["no space left in the object store"]);
    assert!(n >= 5, "{n} objects of 5 MB on 64 MiB");
    assert_eq!(names(&at).len(), n);
    says(&done(at.store("check", &["--deep"])), &["nothing is wrong"]);
    done(at.store("rm", &["0", "1"]));
    done(at.store("put", &["again", &file]));
    assert!(printed(at.store("get", &["again"])) == bytes(5_000_000, 3));
}

#[test]
fn a_flipped_bit_is_told_and_costs_one_object() {
    let at = stored();
    let content = bytes(300_000, 7);
    for name in ["a", "b"] {
        let file = at.file(name, if name == "a" { content.clone() } else { bytes(300_000, 9) });
        done(at.store("put", &[name, &file]));
    }
    let mut image = std::fs::read(&at.path).unwrap();
    let place = image.windows(64).position(|bytes| *bytes == content[200_704..200_768]).unwrap();
    image[place + 5] ^= 4;
    std::fs::write(&at.path, image).unwrap();
    says(&fails(at.store("get", &["a"]), 3), &["not those that were written"]);
    assert!(printed(at.store("get", &["b"])) == bytes(300_000, 9));
    let check = at.store("check", &["--deep"]);
    assert_eq!(check.status.code(), Some(3));
    says(&text(&check.stdout), &["cannot be read"]);
    let scrub = at.store("scrub", &[]);
    assert_eq!(scrub.status.code(), Some(3));
    says(&text(&scrub.stdout), &[" bytes of object 0:", " on cannot be read"]);
    says(&done(at.store("stat", &[])), &[" ago", "1 place"]);
    let known = || json(at.store("stat", &["--json"]))["scrub"]["damaged_places"].as_u64();
    assert_eq!(known(), Some(1));
    // What is put again is whole.
    done(at.given(&["store", "put", at.drive(), "a", "-"], &content));
    assert_eq!(known(), Some(0));
    says(&done(at.store("scrub", &[])), &["nothing is wrong with"]);
}
