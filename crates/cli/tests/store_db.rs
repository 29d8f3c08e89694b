//! An object store whose metadata are on another drive, as a user meets it.

mod support;

use serde_json::Value;
use support::*;

/// A hard disk and an SSD, formatted for one store with one object.
fn stored() -> (Place, String, Vec<u8>) {
    let (at, photo) = (place(), bytes(3_000_001));
    let ssd = at.host("fast & small.img");
    for path in [at.drive(), &ssd] {
        done(at.run(&["drive", "create", path, "--profile", "tiny"]));
    }
    says(&done(at.store("format", &["--db", &ssd])), &["an empty object store", "fast %26 small.img"]);
    done(at.store("put", &["photo", &at.file("photo", &photo), "--db", &ssd]));
    (at, ssd, photo)
}

fn get(at: &Place, drive: &[&str]) -> Vec<u8> {
    let output = at.run(&[&["store", "get"], drive, &["photo"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

#[test]
fn a_store_with_its_metadata_on_another_drive_is_used_by_naming_both() {
    let (at, ssd, photo) = stored();
    let db = ["--db", &ssd];
    let uri = format!("imbrex://{}?db={}", at.drive(), ssd.replace('&', "%26"));
    assert!(get(&at, &[at.drive(), "--db", &ssd]) == photo && get(&at, &[&uri]) == photo);
    let stat = json(at.store("stat", &[&db[..], &["--json"]].concat()));
    assert_eq!((&stat["metadata"]["in"], &stat["metadata"]["drive"]), (&Value::from("kv"), &Value::from(&*ssd)));
    let label = json(at.store("label", &["--json"]));
    assert_eq!(label["metadata_volume"], stat["metadata"]["volume"]);
    assert_eq!(label["metadata_volume"].as_str().unwrap().len(), 32);
    says(&done(at.store("stat", &db)), &["metadata", &ssd, "in kv"]);
    says(&done(at.store("label", &[])), &["on another drive, volume"]);
    done(at.store("label", &[&db[..], &["--set", "rack=7"]].concat()));
    assert_eq!(json(at.store("label", &["--json"]))["metadata_volume"], label["metadata_volume"]);
    for verb in ["ls", "check", "scrub"] {
        done(at.store(verb, &db));
    }
    says(&done(at.store("check", &[&db[..], &["--deep"]].concat())), &["nothing is wrong"]);
    done(at.store("clone", &[&db[..], &["photo", "copy"]].concat()));
    done(at.store("mv", &[&db[..], &["copy", "other"]].concat()));
    done(at.store("rm", &[&db[..], &["other"]].concat()));

    // Images, too.
    let image = |verb: &str, more: &[&str]| at.run(&[&["image", verb, at.drive(), "--db", &ssd], more].concat());
    done(image("create", &["disk", "1G"]));
    done(image("snap", &["disk@one"]));
    says(&done(image("ls", &[])), &["disk@one"]);
    says(&done(at.run(&["image", "ls", &uri])), &["disk@one"]);
    says(&fails(at.run(&["image", "ls", at.drive()]), 1), &["on another drive"]);
}

#[test]
fn a_drive_without_that_of_its_metadata_is_told_in_one_sentence() {
    let (at, ssd, photo) = stored();
    let copies = [at.host("old.img"), at.host("old-ssd.img")];
    says(&fails(at.store("ls", &[]), 1), &["on another drive (volume ", "--db /path/to/drive", "db=/path/to/drive"]);
    says(&fails(at.store("ls", &["--db", &at.host("none.img")]), 1), &["none.img"]);
    says(&fails(at.store("ls", &["--db", at.drive()]), 2), &["named for its own metadata"]);
    says(
        &fails(at.run(&["store", "ls", &ssd]), 1),
        &["not for bluestore; use `imbrex store` or its option --db with the drive of the objects"],
    );
    let uri = format!("imbrex://{}?db={}", at.drive(), ssd.replace('&', "%26"));
    says(&fails(at.run(&["store", "ls", &uri, "--db", &ssd]), 2), &["leave --db out"]);
    // Nothing is formatted over.
    says(&fails(at.store("format", &["--db", &ssd]), 1), &["already formatted", "`imbrex store format --force`"]);
    let blank = at.host("blank.img");
    done(at.run(&["drive", "create", &blank, "--profile", "tiny"]));
    says(&fails(at.run(&["store", "format", &blank, "--db", &ssd]), 1), &["already formatted"]);
    says(&fails(at.store("ls", &["--db", &blank]), 1), &["blank.img", "format"]);
    for (from, to) in [at.drive(), &ssd].into_iter().zip(&copies) {
        std::fs::copy(from, to).unwrap();
    }
    done(at.store("put", &["more", &at.file("more", "more"), "--db", &ssd]));
    says(&fails(at.store("ls", &["--db", &copies[1]]), 1), &["is a copy of an earlier moment", "copies of one moment"]);
    let old = ["store", "ls", &copies[0], "--db"];
    says(&fails(at.run(&[&old[..], &[&ssd]].concat()), 1), &["is a copy of an earlier moment"]);
    done(at.run(&[&old[..], &[&copies[1]]].concat()));
    assert!(get(&at, &[at.drive(), "--db", &ssd]) == photo);
}

#[test]
fn objects_are_salvaged_with_the_metadata_and_without() {
    let (at, ssd, photo) = stored();
    let (with, without) = (at.host("with"), at.host("without"));
    says(&done(at.store("salvage", &["--to", &with, "--db", &ssd])), &["1 object"]);
    assert!(content(format!("{with}/photo")) == photo);
    // Without them its name is known, and nobody knows what was deleted.
    let output = at.store("salvage", &["--to", &without]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    says(&text(&output.stdout), &["on another drive (volume ", "name it with --db"]);
    let found = content(format!("{without}/photo"));
    assert!(found == photo, "{} bytes", found.len());
}
