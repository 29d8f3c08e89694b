//! `imbrex fs backup` and `restore`, as a user runs them.

mod support;

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use support::*;

/// A drive with directories, files of every kind, hard links, an empty file and an empty directory.
fn filled() -> Place {
    let at = formatted();
    let source = at.host("source");
    for dir in ["db/empty", "other"] {
        std::fs::create_dir_all(Path::new(&source).join(dir)).unwrap();
    }
    let file = |name: &str, content: &[u8]| std::fs::write(Path::new(&source).join(name), content).unwrap();
    file("db/000007.sst", &bytes(2_500_001));
    file("db/000008.log", &bytes(70_000));
    file("db/CURRENT", b"MANIFEST-000001\n");
    file("db/nothing", b"");
    file("other/ein Name mit Leerzeichen und Ümlaut", b"x");
    file(&format!("other/{}", "n".repeat(250)), b"long");
    done(at.fs("cp", &[&source, ":/all"]));
    at
}

/// Everything that a listing says and a backup must keep: path, size, time, number of names.
fn listing(at: &Place, from: &str) -> Vec<(String, u64, u64, u64)> {
    let all = json(at.fs("ls", &[from, "-R", "--json"]));
    let number = |v: &serde_json::Value| v.as_u64().unwrap();
    let row = |e: &serde_json::Value| {
        let path = e["path"].as_str().unwrap().to_owned();
        (path, number(&e["size"]), number(&e["modified_ns"]), number(&e["links"]))
    };
    all.as_array().unwrap().iter().map(row).collect()
}

fn same_files(one: &Place, other: &Place) {
    assert_eq!(listing(one, "/"), listing(other, "/"));
    for (path, size, _, _) in listing(one, "/").iter().filter(|(_, size, _, _)| *size > 0) {
        let content = |at: &Place| at.fs("cat", &[path]).stdout;
        assert!(content(one) == content(other), "{path}");
        assert_eq!(content(one).len() as u64, *size);
    }
    done(other.fs("check", &[]));
}

#[test]
fn what_was_backed_up_comes_back_as_it_was() {
    let at = filled();
    let backup = at.host("monday");
    let said = done(at.fs("backup", &[&backup]));
    says(&said, &["6 files", "monday"]);
    assert_eq!(content(Path::new(&backup).join("files/all/db/000007.sst")), bytes(2_500_001));
    let new = formatted();
    says(&done(new.fs("restore", &[&backup])), &["6 files"]);
    same_files(&at, &new);
    // And once more into a directory, beside what is there.
    done(new.fs("restore", &[&backup, "--to", "/again"]));
    assert_eq!(new.fs("cat", &["/again/all/db/000008.log"]).stdout, bytes(70_000));
    assert_eq!(json(at.fs("backup", &[&at.host("tuesday"), "--json"]))["files"], 6);
}

#[test]
fn a_stream_is_a_tar_that_tar_understands_and_comes_back_as_it_was() {
    let at = filled();
    let tar = at.host("monday.tar");
    done(at.fs("backup", &[&tar]));
    let names = std::process::Command::new("tar").args(["tf", &tar]).output().unwrap();
    says(&text(&names.stdout), &["files/all/db/000007.sst", "imbrex-backup.json"]);
    let new = formatted();
    done(new.fs("restore", &[&tar]));
    same_files(&at, &new);
    let piped = at.fs("backup", &["-"]);
    assert!(piped.status.success() && piped.stdout == content(&tar));
    let third = formatted();
    let mut command = third.command(&["fs", "restore", third.drive(), "-"]);
    done(command.stdin(File::open(&tar).unwrap()).output().unwrap());
    same_files(&at, &third);
}

#[test]
fn hard_links_and_parts_of_a_drive() {
    let at = filled();
    done(at.fs("cp", &[":/all/db/CURRENT", ":/copy"]));
    let fs = imbrex_bluefs::BlueFs::open_uri(&format!("imbrex://{}?survivor=off", at.drive())).unwrap();
    fs.link("/all/db/000007.sst", "/all/other/linked.sst").unwrap();
    drop(fs);
    for form in ["linked", "linked.tar"] {
        let backup = at.host(form);
        done(at.fs("backup", &[&backup, "--from", "/all"]));
        let new = formatted();
        done(new.fs("restore", &[&backup]));
        let stat = |path: &str| json(new.fs("stat", &[path, "--json"]));
        assert_eq!(stat("/other/linked.sst")["serial"], stat("/db/000007.sst")["serial"]);
        assert_eq!(stat("/db/000007.sst")["links"], 2);
        says(&fails(new.fs("stat", &["/copy"]), 1), &["no such file"]);
    }
}

#[test]
fn what_is_cut_off_or_changed_is_no_backup_and_leaves_nothing() {
    let at = filled();
    let (dir, tar) = (at.host("b"), at.host("b.tar"));
    done(at.fs("backup", &[&dir]));
    done(at.fs("backup", &[&tar]));
    let new = formatted();
    let refused = |from: &str, why: &str| {
        says(&fails(new.fs("restore", &[from]), 3), &["is not a whole backup", why]);
        assert_eq!(done(new.fs("ls", &["/"])).trim(), "", "nothing of it is left");
    };
    let whole = content(&tar);
    for cut in [whole.len() / 3, whole.len() - 9000, 100] {
        refused(&at.file("cut.tar", &whole[..cut]), "");
    }
    let mut flipped = whole.clone();
    let somewhere = &bytes(2_500_001)[1_000_000..1_000_064];
    let place = whole.windows(64).position(|w| w == somewhere).unwrap();
    flipped[place] ^= 1;
    refused(&at.file("flipped.tar", &flipped), "000007.sst in it is not what its list says");
    let log = Path::new(&dir).join("files/all/db/000008.log");
    std::fs::write(&log, &bytes(70_000)[1..]).unwrap();
    refused(&dir, "000008.log in it is not what its list says");
    std::fs::remove_file(&log).unwrap();
    refused(&dir, "000008.log");
    std::fs::remove_file(Path::new(&dir).join("imbrex-backup.json")).unwrap();
    refused(&dir, "there is no imbrex-backup.json");
    refused(&at.file("text.tar", "nonsense"), "");
    done(new.fs("check", &[]));
}

#[test]
fn a_smaller_drive_is_refused_before_or_when_it_is_full() {
    let at = filled();
    let (dir, tar) = (at.host("b"), at.host("b.tar"));
    done(at.fs("backup", &[&dir]));
    done(at.fs("backup", &[&tar]));
    done(at.fs("cp", &[&at.file("000009.sst", bytes(6_000_000)), ":/000009.sst"]));
    let (dir2, tar2) = (at.host("c"), at.host("c.tar"));
    done(at.fs("backup", &[&dir2]));
    done(at.fs("backup", &[&tar2]));
    let small = place();
    let size = ["--capacity", "9M", "--conventional", "3"];
    done(small.run(&[&["drive", "create", small.drive(), "--profile", "tiny"][..], &size].concat()));
    done(small.fs("format", &[]));
    let space = json(small.fs("df", &["--json"]));
    let when_full = "is full before all of";
    for (from, why) in [(&dir, when_full), (&tar, when_full), (&dir2, "has room for"), (&tar2, "has room for")] {
        says(&fails(small.fs("restore", &[from]), 1), &["larger drive", why]);
        assert_eq!(done(small.fs("ls", &["/"])).trim(), "");
    }
    assert_eq!(json(small.fs("df", &["--json"]))["total"], space["total"]);
    done(small.fs("check", &[]));
}

#[test]
fn a_full_host_leaves_nothing_that_looks_whole() {
    let at = filled();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let out = at.command(&["fs", "backup", at.drive(), "-"]).stdout(Stdio::from(full())).output().unwrap();
    says(&fails(out, 1), &["failed", "No space left", "another place"]);
    says(&fails(at.fs("backup", &["/dev/full"]), 1), &["No space left"]);
    // A limit on the size of files stands in for a full disk, where files have names.
    for name in ["limited", "limited.tar"] {
        let to = at.host(name);
        let shell = format!("ulimit -f 1000; exec {} fs backup {} {to}", env!("CARGO_BIN_EXE_imbrex"), at.drive());
        let out = std::process::Command::new("bash").args(["-c", &shell]).output().unwrap();
        says(&fails(out, 1), &["writing the backup", "failed"]);
        assert!(!Path::new(&to).exists() && !Path::new(&format!("{to}.part")).exists());
    }
    done(at.fs("backup", &[&at.host("taken")]));
    says(&fails(at.fs("backup", &[&at.host("taken")]), 1), &["is there already"]);
    says(&fails(at.fs("restore", &[&at.host("taken")]), 1), &["has files", "--to"]);
    says(&fails(at.fs("restore", &[&at.host("missing")]), 1), &["check the path"]);
}

#[test]
fn a_list_that_claims_to_be_huge_is_refused_before_it_is_read() {
    // A sparse entry of tar's GNU format: 512 bytes that stand for 1 TiB of zeros.
    let mut header = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    let huge = [&[0x80][..], &(1u128 << 40).to_be_bytes()[5..]].concat();
    put(0, b"imbrex-backup.json");
    put(100, b"0000644\0");
    for at in [124, 136, 398] {
        put(at, b"00000000000\0");
    }
    put(156, b"S");
    put(257, b"ustar  \0");
    put(386, &huge);
    put(483, &huge);
    put(148, b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let at = formatted();
    let stream = at.host("huge.tar");
    std::fs::write(&stream, [&header[..], &[0; 1024]].concat()).unwrap();
    says(&fails(at.fs("restore", &[&stream]), 3), &["no plain file", "nothing of it was kept"]);
}
