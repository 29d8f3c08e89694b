//! Exit codes (0 done, 1 failed, 2 usage, 3 damage found, 4 busy), and errors as JSON on stderr where `--json` asks for JSON.

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::process::Output;
use support::*;

/// The error of a command that was asked for JSON: one line on stderr. What it found, if anything, is on stdout.
fn error(output: &Output, code: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let value: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    let kind = ["done", "failed", "usage", "damage", "busy"][code as usize];
    let object = value.as_object().filter(|object| object.len() == 1).unwrap_or_else(|| panic!("{said}"));
    let error = object["error"].as_object().unwrap();
    assert_eq!((error.len(), &error["code"], &error["kind"]), (3, &code.into(), &kind.into()), "{said}");
    error["message"].as_str().unwrap().to_owned()
}

/// The subcommands that the help of a command lists.
fn below(at: &Place, command: &[String]) -> Vec<Vec<String>> {
    let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let help = done(at.run(&words));
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let all = names.map(|name| [command, &[name.to_owned()]].concat());
    all.flat_map(|name| match below(at, &name) {
        below if below.is_empty() => vec![name],
        below => below,
    })
    .collect()
}

#[test]
fn every_command_tells_a_wrong_command_line_as_such() {
    let at = place();
    let commands = below(&at, &[]);
    assert!(commands.len() > 40, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--no-such-option"]).collect();
        says(&fails(at.run(&words), 2), &["--no-such-option"]);
        let output = at.run(&[&words[..], &["--json"]].concat());
        assert!(output.stdout.is_empty(), "{words:?}");
        says(&error(&output, 2), &["--no-such-option"]);
    }
    // Help is no mistake, and no JSON.
    says(&done(at.run(&["fs", "ls", "--help", "--json"])), &["Usage:"]);
    says(&done(at.run(&["--help"])), &["Exit status:", "  4  Somebody else uses"]);
}

/// What each command of engines and drives needs behind the drive.
const NEEDS: [&[&str]; 49] = [
    &["fs", "ls"],
    &["fs", "cat", "/x"],
    &["fs", "cp", "/dev/null", ":/x"],
    &["fs", "rm", "/x"],
    &["fs", "df"],
    &["fs", "stat"],
    &["fs", "check"],
    &["fs", "advise"],
    &["fs", "backup", "/nowhere/backup"],
    &["fs", "restore", "/"],
    &["fs", "format"],
    &["fs", "format", "--force"],
    &["chunk", "ls"],
    &["chunk", "put", "/dev/null"],
    &["chunk", "df"],
    &["chunk", "stat"],
    &["chunk", "check"],
    &["chunk", "scrub"],
    &["chunk", "clean"],
    &["chunk", "format"],
    &["chunk", "salvage"],
    &["drive", "reset", "9"],
    &["drive", "finish", "9"],
    &["drive", "power-loss", "--seed", "1"],
    &["drive", "precondition"],
    &["fs", "salvage", "/nowhere/salvaged"],
    &["kv", "get", "x"],
    &["kv", "put", "x", "1"],
    &["kv", "rm", "x"],
    &["kv", "scan"],
    &["kv", "load", "/dev/null"],
    &["kv", "stat"],
    &["kv", "compact"],
    &["kv", "check"],
    &["kv", "salvage", "/nowhere/salvaged"],
    &["kv", "backup", "/nowhere/backup"],
    &["kv", "restore", "/"],
    &["kv", "format"],
    &["kv", "format", "--force"],
    &["store", "put", "x", "/dev/null"],
    &["store", "get", "x"],
    &["store", "rm", "x"],
    &["store", "mv", "x", "y"],
    &["store", "clone", "x", "y"],
    &["store", "ls"],
    &["store", "stat"],
    &["store", "check"],
    &["store", "format"],
    &["store", "format", "--force"],
];

fn run(at: &Place, needs: &[&str], drive: &str) -> Output {
    at.run(&[&needs[..2], &[drive], &needs[2..], &["--json"]].concat())
}

#[test]
fn what_is_not_there_has_failed_and_a_name_that_makes_no_sense_is_usage() {
    let at = place();
    for needs in NEEDS {
        says(&error(&run(&at, needs, &at.host("missing.img")), 1), &["missing.img: there is no such file"]);
        if needs[0] != "drive" {
            let nonsense = format!("imbrex://{}?nonsense=1", at.host("missing.img"));
            says(&error(&run(&at, needs, &nonsense), 2), &["no option \"nonsense\""]);
        }
        assert!(error(&run(&at, needs, "mem:tiny"), 2).contains("question mark"), "{needs:?}");
    }
    for (verb, option) in
        [("fs", "cache=lots"), ("fs", "idle-pack=soon"), ("chunk", "open-zones=0"), ("chunk", "scrub=x")]
    {
        let named = format!("imbrex://{}?{option}", at.host("missing.img"));
        says(&error(&at.run(&[verb, "df", &named, "--json"]), 2), &[option]);
    }
    says(
        &error(&at.run(&["drive", "create", &at.host("x"), "--profile", "tiny", "--capacity", "1", "--json"]), 2),
        &["zone"],
    );
}

#[test]
fn a_drive_in_use_is_busy() {
    let at = formatted();
    let mut child = at.copying(":/stream", b"the first bytes");
    let holder = child.id();
    while json(at.run(&["drive", "info", at.drive(), "--json"]))["in_use_by"] != holder {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    for needs in NEEDS {
        says(&error(&run(&at, needs, at.drive()), 4), &[&format!("in use by process {holder}")]);
    }
    says(&fails(at.fs("ls", &[]), 4), &["in use by process"]);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    done(at.fs("ls", &[]));
}

/// Changes one byte of what the image holds of `content`, from `from` on.
fn flip(at: &Place, content: &[u8], from: usize) {
    let mut image = std::fs::read(&at.path).unwrap();
    let needle = &content[from..from + 64];
    let found = image.windows(64).position(|window| window == needle).unwrap();
    image[found] ^= 1;
    std::fs::write(&at.path, image).unwrap();
}

#[test]
fn damage_that_is_found_is_told_apart() {
    let at = formatted();
    done(at.fs("cp", &[&at.file("log", bytes(200_000)), ":/000001.log"]));
    flip(&at, &bytes(200_000), 100_000);
    let check = at.fs("check", &["--json"]);
    says(&error(&check, 3), &["problem"]);
    assert!(!serde_json::from_slice::<Value>(&check.stdout).unwrap()["problems"].as_array().unwrap().is_empty());
    says(&fails(at.fs("cat", &["/000001.log"]), 3), &["is damaged"]);
    says(&error(&at.fs("backup", &[&at.host("backup"), "--json"]), 3), &["cannot be read"]);
    // Both copies of the label.
    for zone in [0, 1] {
        let file = std::fs::File::options().write(true).open(&at.path).unwrap();
        let data_at = std::fs::metadata(&at.path).unwrap().len() - (64 << 20);
        file.write_all_at(b"xxxx", data_at + (zone << 20) + 20).unwrap();
    }
    says(&error(&at.fs("ls", &["--json"]), 3), &["damaged label"]);
}

#[test]
fn damage_of_chunks_is_told_apart() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.chunk("format", &[]));
    let id = done(at.chunk("put", &[&at.file("x", bytes(300_000))])).trim().to_owned();
    flip(&at, &bytes(300_000), 100_000);
    says(&error(&at.chunk("get", &[&id, "--output", &at.host("y"), "--json"]), 3), &["is damaged at"]);
    says(&error(&at.chunk("check", &["--json"]), 3), &["problem"]);
    says(&error(&at.chunk("scrub", &["--json"]), 3), &["problem"]);
    done(at.chunk("get", &[&id, "--rescue", "--output", &at.host("y")]));
}

/// Of each engine's store, closed: the check tells of one damaged copy of the label and changes nothing, the next opening repairs it.
#[test]
fn one_damaged_label_is_told_of_every_engine() {
    let engines = [
        ("fs", vec!["mkdir", "/x"], vec!["check", "--repair"]),
        ("chunk", vec!["put", "/dev/null"], vec!["clean"]),
        ("kv", vec!["put", "key", "value"], vec!["put", "key", "value"]),
        ("store", vec!["put", "name", "/dev/null"], vec!["put", "name", "/dev/null"]),
    ];
    for (engine, fill, open) in engines {
        for copy in [0, 1] {
            let at = place();
            done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
            let run = |words: &[&str]| at.run(&[&[engine, words[0], at.drive()], &words[1..]].concat());
            done(run(&["format"]));
            done(run(&fill));
            done(run(&["check"]));
            // The last label of each of the two zones that have labels.
            let mut image = std::fs::read(&at.path).unwrap();
            let data_at = image.len() - (64 << 20);
            let begins = |place: &usize| image[*place..].starts_with(b"IMBXLABL");
            let labels = (data_at..image.len()).step_by(4096).filter(begins);
            let last: BTreeMap<usize, usize> = labels.map(|place| ((place - data_at) >> 20, place)).collect();
            let last: Vec<usize> = last.into_values().collect();
            assert_eq!(last.len(), 2, "{engine}");
            image[last[copy] + 20] ^= 1;
            std::fs::write(&at.path, image).unwrap();
            for _ in 0..2 {
                let check = run(&["check"]);
                says(&text(&check.stdout), &[&format!("Copy {copy} of the label")]);
                assert_eq!(check.status.code(), Some(3), "{engine}");
            }
            run(&open);
            done(run(&["check"]));
        }
    }
}

#[test]
fn a_truncated_image_is_damage() {
    let at = formatted();
    std::fs::File::options().write(true).open(&at.path).unwrap().set_len(30 << 20).unwrap();
    says(&error(&at.fs("ls", &["--json"]), 3), &["truncated"]);
    says(&error(&at.run(&["drive", "info", at.drive(), "--json"]), 3), &["truncated"]);
}
