//! The list of `docs/bad-input.md` on every kind of drive that a file can hold: `fs_bad_input.rs` asks everything of a plain
//! image, this asks each other kind what depends on the kind. One sentence, the right exit code, and nothing lost.

mod support;

use std::path::Path;
use std::process::{Command, Output};
use support::*;

/// A kind of drive: how it is made at a path, and how it is named.
struct Kind {
    create: &'static [&'static str],
    /// Of what was made so, the rest of the drive is made by its name.
    bands: bool,
    before: &'static str,
    behind: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind {
        create: &["--banded", "--capacity", "72M", "--band", "1M", "--conventional", "4"],
        bands: false,
        before: "banded:",
        behind: "",
    },
    Kind {
        create: &["--banded", "--capacity", "72M", "--band", "1M", "--conventional", "0"],
        bands: false,
        before: "banded:",
        behind: "",
    },
    Kind { create: &["--profile", "tiny", "--conventional", "0"], bands: false, before: "", behind: "" },
    Kind {
        create: &["--profile", "tiny", "--conventional", "8"],
        bands: true,
        before: "",
        behind: "?conventional=as-sequential",
    },
];

/// A place with a drive of one kind.
struct Drive {
    at: Place,
    kind: &'static Kind,
}

impl Drive {
    fn named(&self, path: &str) -> String {
        format!("{}{path}{}", self.kind.before, self.kind.behind)
    }

    fn name(&self) -> String {
        self.named(self.at.drive())
    }

    fn fs(&self, verb: &str, more: &[&str]) -> Output {
        self.at.run(&[&["fs", verb, &self.name()], more].concat())
    }

    /// A table of two zones, a log and a small file are as they were.
    fn intact(&self) {
        for (name, n) in CONTENT {
            assert!(self.fs("cat", &[&format!("/{name}")]).stdout == bytes(n), "{name} of {}", self.name());
        }
    }
}

/// Names, and how many bytes.
const CONTENT: [(&str, usize); 3] = [("000001.sst", 1_500_000), ("000002.log", 200_000), ("CURRENT", 1)];

/// A drive of each kind: empty, or formatted and with files.
fn each(filled: bool, check: impl Fn(Drive)) {
    for kind in &KINDS {
        let drive = Drive { at: place(), kind };
        println!("{}", drive.name());
        done(drive.at.run(&[&["drive", "create", drive.at.drive()], kind.create].concat()));
        if kind.bands {
            done(drive.at.run(&["drive", "create", "--banded", &drive.name()]));
        }
        if filled {
            done(drive.fs("format", &[]));
            for (name, n) in CONTENT {
                done(drive.fs("cp", &[&drive.at.file(name, bytes(n)), ":/"]));
            }
        }
        check(drive);
    }
}

#[test]
fn what_is_not_there_and_what_is_no_drive() {
    each(false, |drive| {
        let plain = drive.at.file("plain", "somebody's letter");
        for (path, parts) in [
            (drive.at.host("missing"), ["there is no such file", "imbrex drive create"]),
            (plain.clone(), ["", "imbrex drive create"]),
            (drive.at.host(""), ["", "name"]),
        ] {
            for verb in ["ls", "format"] {
                says(&fails(drive.at.run(&["fs", verb, &drive.named(&path)]), 1), &parts);
            }
        }
        assert_eq!(content(plain), b"somebody's letter");
    });
}

#[test]
fn unformatted_formatted_and_somebody_else_s() {
    each(false, |drive| {
        says(&fails(drive.fs("ls", &[]), 1), &["has no Imbrex label", "imbrex fs format"]);
        done(drive.at.run(&["drive", "finish", &drive.name(), "9"]));
        says(&fails(drive.fs("format", &[]), 1), &["somebody else in zone 9", "imbrex fs format --force"]);
        done(drive.fs("format", &["--force"]));
        says(&fails(drive.fs("format", &[]), 1), &["already formatted", "imbrex fs format --force"]);
        done(drive.fs("ls", &[]));
    });
}

#[test]
fn in_use_by_another_process() {
    each(true, |drive| {
        let mut command = drive.at.command(&["fs", "cp", &drive.name(), "-", ":/stream"]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let holder = format!("in use by process {}", child.id());
        // The child may not have it yet, and shall not find it in use by us.
        let info = format!("{}{}", drive.kind.before, drive.at.drive());
        while !json(drive.at.run(&["drive", "info", &info, "--json"]))["in_use_by"].is_u64() {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            std::thread::yield_now();
        }
        for words in [&["ls"][..], &["format", "--force"], &["rm", "/CURRENT"]] {
            says(&fails(drive.fs(words[0], &words[1..]), 4), &[&holder, "stop it first"]);
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        drive.intact();
    });
}

#[test]
fn cut_short() {
    each(true, |drive| {
        let copy = drive.at.host("copy.img");
        std::fs::copy(&drive.at.path, &copy).unwrap();
        let cut = std::fs::metadata(&copy).unwrap().len() / 2;
        std::fs::File::options().write(true).open(&copy).unwrap().set_len(cut).unwrap();
        for verb in ["ls", "format", "check"] {
            says(&fails(drive.at.run(&["fs", verb, &drive.named(&copy)]), 3), &["restore it from a copy"]);
        }
        assert_eq!(std::fs::metadata(&copy).unwrap().len(), cut);
        drive.intact();
    });
}

#[test]
fn a_copy_is_a_drive_of_its_own() {
    each(true, |drive| {
        let copy = drive.at.host("copy.img");
        std::fs::copy(&drive.at.path, &copy).unwrap();
        done(drive.at.run(&["fs", "rm", &drive.named(&copy), "/CURRENT"]));
        drive.intact();
        says(&done(drive.at.run(&["fs", "check", &drive.named(&copy)])), &["nothing is wrong (2 files"]);
    });
}

#[test]
fn no_room_on_the_host() {
    each(true, |drive| {
        let limited = |words: &str| {
            let script = format!("ulimit -f 20000; exec \"$0\" {words}");
            let mut shell = Command::new("bash");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_imbrex")]);
            let more = if drive.kind.behind.is_empty() { "?survivor=off" } else { "&survivor=off" };
            shell.env("DRIVE", format!("imbrex://{}{more}", drive.name())).env("BIG", drive.at.host("big"));
            shell.env("NEW", drive.at.host("new.img")).output().unwrap()
        };
        drive.at.file("big", bytes(24_000_000));
        says(&fails(limited("fs cp \"$DRIVE\" \"$BIG\" :/big.sst"), 1), &["limit on", "raise it", "ulimit -f"]);
        assert!(!done(drive.fs("ls", &[])).contains("big"), "no half of a copy");
        drive.intact();
        done(drive.fs("cp", &[&drive.at.host("big"), ":/big.sst"]));
        if drive.kind.before == "banded:" {
            let sentence = fails(limited("drive create --banded \"$NEW\" --capacity 1G --band 1M"), 1);
            says(&sentence, &["file size limit", "use a smaller one"]);
            assert!(!Path::new(&drive.at.host("new.img")).exists(), "no half of a disk");
        }
    });
}

#[test]
fn a_full_drive_can_be_deleted_from() {
    each(true, |drive| {
        drive.at.file("big", bytes(24_000_000));
        let copy = |name: &str| drive.fs("cp", &[&drive.at.host("big"), &format!(":/{name}.sst")]);
        done(copy("1"));
        done(copy("2"));
        says(&fails(copy("3"), 1), &["no space left", "delete something"]);
        drive.intact();
        done(drive.fs("rm", &["/1.sst"]));
        done(copy("3"));
        assert!(drive.fs("cat", &["/3.sst"]).stdout == bytes(24_000_000));
        says(&done(drive.fs("check", &[])), &["nothing is wrong (5 files"]);
    });
}

#[test]
fn shared_memory_that_cannot_be_had() {
    each(true, |drive| {
        let words = ["fs", "rm", &drive.name(), "/CURRENT"];
        let output = drive.at.command(&words).env("IMBREX_SHM_DIR", drive.at.host("nothing")).output().unwrap();
        says(&fails(output, 1), &["IMBREX_SHM_DIR", "survivor=off"]);
        drive.intact();
    });
}

#[test]
fn names_and_options() {
    each(true, |drive| {
        for (path, part) in [("/", "directory"), ("/none", "check the path")] {
            says(&fails(drive.fs("cat", &[path]), 1), &[part]);
        }
        let long = format!(":/{}", "x".repeat(256));
        says(&fails(drive.fs("cp", &["/dev/null", &long]), 1), &["255 bytes"]);
        let more = if drive.kind.behind.is_empty() { "?colour=3" } else { "&colour=3" };
        let name = format!("{}{more}", drive.name());
        says(&fails(drive.at.run(&["fs", "ls", &name]), 2), &["no option \"colour\"", "the nearest are", &name]);
        drive.intact();
    });
}

#[test]
fn salvage_backup_and_restore() {
    each(false, |drive| {
        let to = drive.at.host("to");
        says(&fails(drive.fs("salvage", &[&to]), 1), &["nothing to salvage", "right drive"]);
        drop(drive);
    });
    each(true, |drive| {
        let (backup, to) = (drive.at.host("backup"), drive.at.host("to"));
        done(drive.fs("backup", &[&backup]));
        // A smaller drive of the same kind.
        let small = drive.at.host("small.img");
        let mut create = drive.kind.create.to_vec();
        match create.iter().position(|word| *word == "--capacity") {
            Some(place) => create[place + 1] = "16M",
            None => create.extend(["--capacity", "16M"]),
        }
        done(drive.at.run(&[&["drive", "create", &small], &create[..]].concat()));
        if drive.kind.bands {
            done(drive.at.run(&["drive", "create", "--banded", &drive.named(&small)]));
        }
        done(drive.at.run(&["fs", "format", &drive.named(&small)]));
        drive.at.file("big", bytes(30_000_000));
        done(drive.fs("cp", &[&drive.at.host("big"), ":/big.sst"]));
        let large = drive.at.host("large");
        done(drive.fs("backup", &[&large]));
        let sentence = fails(drive.at.run(&["fs", "restore", &drive.named(&small), &large]), 1);
        says(&sentence, &["nothing was restored", "larger drive"]);
        done(drive.at.run(&["fs", "restore", &drive.named(&small), &backup]));
        assert!(drive.at.run(&["fs", "cat", &drive.named(&small), "/000001.sst"]).stdout == bytes(1_500_000));
        done(drive.fs("salvage", &[&to]));
    });
}
