//! `imbrex fs …` as a user runs it.

mod support;

use std::process::Stdio;
use support::*;

const VERBS: [&str; 12] = ["format", "ls", "cat", "cp", "rm", "mkdir", "mv", "ln", "df", "stat", "check", "advise"];

#[test]
fn names_are_made_moved_and_given_twice() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.fs("format", &[]));
    done(at.fs("mkdir", &["/a"]));
    says(&fails(at.fs("mkdir", &["/b/c"]), 1), &["/b"]);
    done(at.fs("mkdir", &["/b/c", "/a", "--parents"]));
    done(at.fs("cp", &[&at.file("in", b"bytes"), ":/a/x"]));
    done(at.fs("cp", &[&at.file("in", b"other"), ":/a/y"]));
    done(at.fs("mv", &["/a/x", "/b/c"]));
    assert_eq!(done(at.fs("cat", &["/b/c/x"])), "bytes");
    says(&fails(at.fs("mv", &["/b/c/x", "/a/y"]), 1), &["/a/y is there already"]);
    assert_eq!(done(at.fs("cat", &["/a/y"])), "other");
    done(at.fs("ln", &["/b/c/x", "/a/z"]));
    done(at.fs("mv", &["/b/c/x", "/a/y", "--force"]));
    assert_eq!(done(at.fs("ls", &["/a"])), "y\nz\n");
    assert_eq!(done(at.fs("cat", &["/a/y"])), "bytes");
    done(at.fs("rm", &["/a/y"]));
    assert_eq!(done(at.fs("cat", &["/a/z"])), "bytes");
    says(&fails(at.fs("ln", &["/a", "/d"]), 1), &["is a directory"]);
    says(&fails(at.fs("mv", &["/none", "/d"]), 1), &["/none", "no such file"]);
    assert!(done(at.fs("check", &[])).contains("nothing is wrong"));
}

#[test]
fn format_makes_an_empty_file_system_once() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let made = json(at.fs("format", &["--json"]));
    assert_eq!(made["drive"], at.drive());
    let (total, free) = (made["total"].as_u64().unwrap(), made["free"].as_u64().unwrap());
    // One zone is for what is left over at the ends of others.
    assert!(total > 54 << 20 && (total - (2 << 20)..total).contains(&free), "{made}");
    assert_eq!(done(at.fs("ls", &[])), "");

    let precious = at.file("precious", "precious");
    done(at.fs("cp", &[&precious, ":/"]));
    says(&fails(at.fs("format", &[]), 1), &["already formatted", "--force"]);
    assert_eq!(done(at.fs("cat", &["/precious"])), "precious");
    assert!(done(at.fs("format", &["--force"])).contains("formatted, 54"));
    assert_eq!(done(at.fs("ls", &[])), "");
    // A URI is as good as a path.
    done(at.run(&["fs", "format", "--force", &format!("imbrex://{}?cache=1M", at.drive())]));
}

#[test]
fn files_and_directories_go_in_out_and_about() {
    let at = formatted();
    let large = bytes(3_000_000);
    std::fs::create_dir_all(at.host("in/sub/empty")).unwrap();
    at.file("in/CURRENT", "MANIFEST-000001\n");
    at.file("in/sub/000001.sst", &large);
    at.file("in/sub/000002.log", &large[..100_000]);
    done(at.fs("cp", &[&at.host("in"), ":/db"]));
    let list = "/db/\n/db/CURRENT\n/db/sub/\n/db/sub/000001.sst\n/db/sub/000002.log\n/db/sub/empty/\n";
    assert_eq!(done(at.fs("ls", &["-R"])), list);
    // Into a directory that exists, under its own name.
    done(at.fs("cp", &[":/db/CURRENT", ":/db/sub/empty"]));
    assert_eq!(done(at.fs("cat", &["/db/sub/empty/CURRENT", "/db/CURRENT"])), "MANIFEST-000001\n".repeat(2));
    done(at.fs("cp", &[":/db", ":/copy"]));
    done(at.fs("rm", &["-r", "/db"]));
    assert_eq!(done(at.fs("ls", &[])), "copy/\n");
    let copied = json(at.fs("cp", &["--json", ":/copy", &at.host("out")]));
    assert_eq!(copied["bytes"], 3_100_032);
    for name in ["CURRENT", "sub/000001.sst", "sub/000002.log"] {
        assert!(content(at.host(&format!("in/{name}"))) == content(at.host(&format!("out/{name}"))), "{name}");
    }
    // What is there is replaced.
    done(at.fs("cp", &[&at.file("new", "new"), ":/copy/CURRENT"]));
    assert_eq!(done(at.fs("cp", &[":/copy/CURRENT", "-"])), "new");
    assert!(done(at.fs("check", &[])).contains("nothing is wrong (4 files"));
}

#[test]
fn a_stream_goes_in() {
    let at = formatted();
    let mut child = at.copying(":/stream", b"first ");
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"second").unwrap();
    done(child.wait_with_output().unwrap());
    assert_eq!(done(at.fs("cat", &["/stream"])), "first second");
}

#[test]
fn facts_are_told_to_people_and_programs() {
    let at = formatted();
    done(at.fs("cp", &[&at.file("000001.sst", bytes(1_500_000)), ":/"]));
    done(at.fs("cp", &[&at.file("CURRENT", "x"), ":/"]));
    let list = done(at.fs("ls", &["-l"]));
    let words: Vec<Vec<&str>> = list.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    assert_eq!((words[0][0], words[0][2], words[0][3], words[0][6]), ("table", "1500000", "2M", "000001.sst"));
    assert_eq!((words[1][0], words[1][2], words[1][6]), ("small", "1", "CURRENT"));
    let list = json(at.fs("ls", &["--json"]));
    assert_eq!((&list[0]["path"], &list[0]["size"]), (&"/000001.sst".into(), &1_500_000.into()));
    assert_eq!(done(at.fs("ls", &["/CURRENT"])), "CURRENT\n");

    let table = json(at.fs("stat", &["/000001.sst", "--json"]));
    let places = table["extents"].as_array().unwrap();
    assert_eq!(places.len(), 2, "two zones of 1 MiB: {table}");
    assert_eq!(places.iter().map(|p| p["bytes"].as_u64().unwrap()).sum::<u64>(), 1_500_000);
    says(&done(at.fs("stat", &["/CURRENT"])), &["kind          small", "size          1 byte\n", "conventional"]);
    let whole = json(at.fs("stat", &["--json"]));
    assert_eq!((&whole["clean"], whole["damage"].as_array().unwrap().len()), (&true.into(), 0), "{whole}");
    says(&done(at.fs("stat", &[])), &["cleanly", "none"]);

    let space = json(at.fs("df", &["--json"]));
    assert_eq!(space["used"].as_u64().unwrap() + space["free"].as_u64().unwrap(), space["total"].as_u64().unwrap());
    assert!(
        space["used"].as_u64().unwrap() >= 1_500_000 && space["small_free"].as_u64() < space["small_total"].as_u64()
    );
    says(&done(at.fs("df", &[])), &["54.8M", "small files"]);
    assert!(json(at.fs("check", &["--json"]))["problems"].as_array().unwrap().is_empty());
    says(&done(at.fs("advise", &["--flags"])), &["--write_buffer_size=", "--target_file_size_base="]);
}

#[test]
fn looks_change_nothing() {
    let at = formatted();
    done(at.fs("cp", &[&at.file("a", "a"), ":/"]));
    let before = content(&at.path);
    for (verb, more) in [("ls", vec!["-R"]), ("cat", vec!["/a"]), ("cp", vec![":/a", "-"]), ("df", vec![])] {
        done(at.fs(verb, &more));
    }
    for verb in ["stat", "check", "advise"] {
        done(at.fs(verb, &[]));
    }
    assert!(content(&at.path) == before);
    done(at.run(&["fs", "ls", &format!("imbrex://{}?read-only=on", at.drive())]));
}

#[test]
fn removing_asks_for_recursive() {
    let at = formatted();
    std::fs::create_dir(at.host("d")).unwrap();
    at.file("d/a", "a");
    done(at.fs("cp", &[&at.host("d"), ":/d"]));
    says(&fails(at.fs("rm", &["/d"]), 1), &["is a directory", "--recursive"]);
    assert_eq!(done(at.fs("ls", &["/d"])), "a\n");
    assert_eq!(json(at.fs("rm", &["/d", "-r", "--json"]))["removed"], 2);
    assert_eq!(done(at.fs("ls", &[])), "");
}

#[test]
fn every_help_has_an_example() {
    let at = place();
    for verb in VERBS {
        let help = done(at.run(&["fs", verb, "--help"]));
        says(&help, &["Example", &format!("imbrex fs {verb}")]);
    }
    says(&done(at.run(&["fs", "--help"])), &["Example"]);
    for wrong in [&["fs"][..], &["fs", "explode"], &["fs", "cat", "x"], &["fs", "ls", "x", "--cache", "lots"]] {
        fails(at.run(wrong), 2);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let at = formatted();
    // Far more than a pipe holds.
    done(at.fs("cp", &[&at.file("large", bytes(3_000_000)), ":/large"]));
    let mut command = at.command(&["fs", "cat", at.drive(), "/large"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}
