//! Block images, as a user meets them. Serving them is `scripts/test-images`.

mod support;

use imbrex_image::control::Control;
use imbrex_image::{Images, Survives};
use imbrex_store::Store;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::*;

/// A place with an empty store on 64 zones of 1 MiB.
fn stored() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.store("format", &[]));
    at
}

fn image(at: &Place, verb: &str, more: &[&str]) -> std::process::Output {
    at.run(&[&["image", verb, at.drive()], more].concat())
}

fn listed(at: &Place) -> Vec<Value> {
    let all: Value = serde_json::from_str(&done(image(at, "ls", &["--json"]))).unwrap();
    all["images"].as_array().unwrap().clone()
}

fn names(at: &Place) -> Vec<String> {
    listed(at).iter().map(|image| image["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn images_are_made_listed_renamed_cloned_and_removed() {
    let at = stored();
    assert!(listed(&at).is_empty());
    done(image(&at, "create", &["disk", "10G"]));
    done(image(&at, "snap", &["disk@one"]));
    done(image(&at, "clone", &["disk@one", "copy"]));
    done(image(&at, "resize", &["copy", "1M"]));
    done(image(&at, "mv", &["disk", "root"]));
    says(&done(image(&at, "ls", &[])), &["10G", "root@one, 1 clone", "copy, a clone of root@one"]);
    let all = listed(&at);
    assert_eq!(all[0]["parent"]["snapshot"], "one");
    assert_eq!((&all[1]["name"], &all[1]["size"]), (&Value::from("root"), &Value::from(10u64 << 30)));
    assert_eq!(done(image(&at, "ls", &["copy", "--json"])).matches("\"name\"").count(), 1);
    // A look changes nothing.
    let before = std::fs::read(&at.path).unwrap();
    done(image(&at, "ls", &[]));
    assert!(image(&at, "export-diff", &["root@one"]).status.success());
    assert!(std::fs::read(&at.path).unwrap() == before);
    done(image(&at, "rollback", &["root@one"]));
    done(image(&at, "flatten", &["copy"]));
    done(image(&at, "rm", &["root@one", "root"]));
    assert_eq!(names(&at), ["copy"]);
    says(&done(at.store("check", &["--deep"])), &["nothing is wrong"]);
    // Objects of images are none of a user's.
    assert_eq!(done(at.store("ls", &[])), "");
}

#[test]
fn limits_are_kept_with_an_image_and_shown() {
    let at = stored();
    done(image(&at, "create", &["disk", "5M"]));
    assert_eq!(listed(&at)[0]["limits"]["used"], Value::Null);
    done(image(&at, "limit", &["disk", "--used", "2M", "--iops", "500"]));
    done(image(&at, "limit", &["disk", "--bandwidth", "10M"]));
    says(&done(image(&at, "ls", &[])), &["disk, takes 0 of 2M with its snapshots, 500 requests/s, 10M/s"]);
    let all = listed(&at);
    let limits = serde_json::json!({ "used": 2 << 20, "iops": 500, "bandwidth": 10 << 20 });
    assert_eq!((&all[0]["limits"], &all[0]["kept"]), (&limits, &Value::from(0)));
    done(image(&at, "limit", &["disk", "--used", "none", "--iops", "none"]));
    let limits = serde_json::json!({ "used": null, "iops": null, "bandwidth": 10 << 20 });
    assert_eq!(listed(&at)[0]["limits"], limits);
    says(&fails(image(&at, "limit", &["none", "--used", "1M"]), 1), &["there is no image of this name"]);
    for words in [&["disk"][..], &["disk", "--iops", "0"], &["disk", "--used", "much"], &["disk", "--bandwidth", "-1"]]
    {
        assert_eq!(image(&at, "limit", words).status.code(), Some(2), "{words:?}");
    }
}

/// This process serves the images, as nbdkit does.
fn served(at: &Place) -> (Images, Control) {
    let store = Store::open_uri(&format!("imbrex://{}?survivor=off&memtable=256K", at.drive()), &[]).unwrap();
    let images = Images::open((*store).clone(), store).unwrap();
    let about = std::fs::metadata(&at.path).unwrap();
    let socket = at.host(&format!("imbrex-images-{}/{:x}-{:x}", about.uid(), about.dev(), about.ino()));
    let control = Control::new(images.clone(), Path::new(&socket)).unwrap();
    (images, control)
}

#[test]
fn a_server_tells_what_it_has_counted() {
    let at = stored();
    done(image(&at, "create", &["disk", "5M"]));
    says(&fails(image(&at, "stat", &["disk"]), 1), &["nobody serves the images of", "imbrex image ls"]);
    let (images, control) = served(&at);
    let disk = images.image("disk", false).unwrap();
    disk.write(0, &[1; 8192], Survives::Process).unwrap();
    disk.write(0, &[1; 4096], Survives::Process).unwrap();
    disk.read(0, &mut [0; 5000]).unwrap();
    disk.read(5 << 20, &mut [0]).unwrap_err();
    done(image(&at, "limit", &["disk", "--used", "2M"]));
    let stat: Value = serde_json::from_str(&done(image(&at, "stat", &["disk", "--json"]))).unwrap();
    let requests = &stat["image"]["requests"];
    assert_eq!((&requests[0]["kind"], &requests[0]["bytes"]), (&Value::from("read"), &Value::from(5000)));
    assert_eq!((&requests[0]["failed"], &requests[1]["nanoseconds"]["count"]), (&Value::from(1), &Value::from(2)));
    assert_eq!(stat["image"]["taken"]["used"], 8192);
    let of_store = |what: &str| stat["store"][what].as_u64().unwrap();
    assert_eq!(of_store("stored") + of_store("deferred"), 8192);
    let said = done(image(&at, "stat", &["disk"]));
    says(&said, &["disk: 5M with 0 snapshots, limited to 2M taken", "takes 8K, and 0 for snapshots, 0 seconds ago"]);
    says(&said, &["write             2        12K        0", "held back by limits: 0", "its store: 8K in"]);
    says(&fails(image(&at, "stat", &["none"]), 1), &["there is no image of this name"]);
    drop((disk, control));
}

#[test]
fn a_diff_is_a_stream_of_its_format() {
    let at = stored();
    done(image(&at, "create", &["disk", "5M"]));
    done(image(&at, "snap", &["disk@one"]));
    let diff = image(&at, "export-diff", &["disk@one"]);
    assert!(diff.status.success());
    let expected = [b"rbd diff v1\nt\x03\0\0\0ones", &(5u64 << 20).to_le_bytes()[..], b"e"].concat();
    assert_eq!(diff.stdout, expected);
}

#[test]
fn an_optimized_image_says_what_was_written() {
    let at = stored();
    done(image(&at, "create", &["disk", "5M"]));
    says(&done(image(&at, "optimize", &["disk"])), &["0 of 0 written anew"]);
    let told: Value =
        serde_json::from_str(&done(image(&at, "optimize", &["disk", "--memory", "1M", "--json"]))).unwrap();
    assert_eq!(told, serde_json::json!({ "looked": 0, "written": 0, "left": 0 }));
    says(&fails(image(&at, "optimize", &["none"]), 1), &["there is no image of this name"]);
    says(&fails(image(&at, "optimize", &["disk", "--memory", "1K"]), 2), &["say 1M to 64G"]);
}

#[test]
fn changes_go_from_one_drive_to_another_also_through_a_server() {
    let (one, two) = (stored(), stored());
    let import = |stream: &[u8]| two.given(&["image", "import-diff", two.drive(), "disk"], stream);
    done(image(&one, "create", &["disk", "5M"]));
    done(image(&one, "snap", &["disk@one"]));
    {
        let (images, _control) = served(&one);
        images.image("disk", false).unwrap().write(1 << 20, &bytes(300_000), Survives::Process).unwrap();
        images.snapshot("disk", "two").unwrap();
    }
    let all = image(&one, "export-diff", &["disk@one"]).stdout;
    let changes = image(&one, "export-diff", &["disk@two", "--from", "one"]).stdout;
    says(&fails(import(&all), 1), &["there is no image of this name"]);
    done(image(&two, "create", &["disk", "1"]));
    says(&fails(import(&changes), 1), &["has no snapshot \"one\""]);
    done(import(&all));
    says(&fails(import(&changes[..changes.len() - 1]), 3), &["it ends in the middle"]);
    says(&fails(import(b"something else"), 3), &["its first line is not"]);
    let (images, control) = served(&two);
    says(&fails(import(&changes[..changes.len() - 1]), 3), &["it ends in the middle"]);
    done(import(&changes));
    let mut found = vec![0; 300_000];
    images.image("disk@two", true).unwrap().read(1 << 20, &mut found).unwrap();
    assert!(found == bytes(300_000));
    says(&fails(import(&changes), 1), &["has a snapshot \"two\" already"]);
    drop((images, control));
    assert_eq!(image(&two, "export-diff", &["disk@two", "--from", "one"]).stdout, changes);
}

#[test]
fn what_makes_no_sense_is_one_sentence() {
    let at = stored();
    done(image(&at, "create", &["disk", "1M"]));
    done(image(&at, "snap", &["disk@one"]));
    done(image(&at, "clone", &["disk@one", "copy"]));
    let long = "x".repeat(256);
    for (verb, words, sentence) in [
        ("create", &["disk", "1M"][..], "an image of this name exists"),
        ("create", &["a@b", "1M"], "can be no name"),
        ("create", &["", "1M"], "can be no name"),
        ("create", &["a\nb", "1M"], "can be no name"),
        ("create", &[&long, "1M"], "a name of 256 bytes is too long"),
        ("create", &["huge", "2048T"], "too many; an image has"),
        ("snap", &["disk@one"], "has a snapshot \"one\""),
        ("snap", &["none@one"], "there is no image of this name"),
        ("clone", &["disk@two", "b"], "has no snapshot \"two\""),
        ("clone", &["disk@one", "copy"], "an image of this name exists"),
        ("rollback", &["disk@two"], "has no snapshot \"two\""),
        ("mv", &["disk", "copy"], "an image of this name exists"),
        ("mv", &["none", "b"], "there is no image of this name"),
        ("rm", &["disk"], "this image has snapshots"),
        ("rm", &["none"], "there is no image of this name"),
        ("resize", &["none", "1M"], "there is no image of this name"),
        ("ls", &["none"], "there is no image of this name"),
        ("export-diff", &["disk", "--from", "two"], "has no snapshot \"two\""),
    ] {
        let failed = image(&at, verb, words);
        assert!(failed.stdout.is_empty() || verb == "export-diff", "{verb} {words:?}");
        says(&fails(failed, 1), &[sentence]);
    }
    says(&fails(image(&at, "rm", &["disk@one"]), 4), &["has 1 clones; flatten or remove them"]);
    for (verb, words) in [("snap", &["disk"][..]), ("snap", &["disk@"]), ("create", &["disk", "much"]), ("rm", &[])] {
        assert_eq!(image(&at, verb, words).status.code(), Some(2), "{verb} {words:?}");
    }
    assert_eq!(names(&at), ["copy", "disk"]);
    // Drives of other engines, and serving where that cannot be.
    says(&fails(image(&formatted(), "ls", &[]), 1), &["bluestore"]);
    says(&fails(at.run(&["image", "serve", "mem:?profile=tiny", "--socket", "s"]), 2), &["in memory"]);
    let plugin = at.host("none.so");
    let words = ["image", "serve", &at.host("none.img"), "--socket", &at.host("s"), "--plugin", &plugin];
    says(&fails(at.run(&words), 1), &["none.img"]);
    // Whoever is started by it gives metrics: of these it says nothing.
    let output = at.command(&words).env("IMBREX_METRICS", "1").output().unwrap();
    says(&fails(output, 1), &["none.img"]);
}
