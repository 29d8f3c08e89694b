//! Names of chunks, ranges, and tar streams, as a user meets them.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use support::*;
use tar::{Builder, EntryType, Header};

fn stored() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.chunk("format", &[]));
    at
}

/// A directory of this place with files in it.
fn tree(at: &Place) -> String {
    let root = at.host("photos");
    std::fs::create_dir_all(format!("{root}/2026/märz")).unwrap();
    std::fs::write(format!("{root}/2026/märz/a b.jpg"), bytes(5000)).unwrap();
    std::fs::write(format!("{root}/2026/large"), bytes(2_300_000)).unwrap();
    std::fs::write(format!("{root}/empty"), b"").unwrap();
    root
}

fn names(at: &Place) -> Vec<String> {
    done(at.chunk("ls", &["--names"])).lines().map(str::to_owned).collect()
}

#[test]
fn files_are_stored_and_found_by_name() {
    let at = stored();
    let file = at.file("report.txt", b"hello");
    let id = done(at.chunk("put", &[&file])).trim().to_owned();
    assert_eq!(id.len(), 48);
    for which in ["report.txt", &id, &id[..9], &id[..4].to_uppercase()] {
        assert_eq!(done(at.chunk("get", &[which])), "hello", "{which}");
    }
    assert_eq!(done(at.chunk("ls", &[])), format!("{id}  report.txt\n"));
    assert_eq!(done(at.chunk("ls", &["--ids"])), format!("{id}\n"));
    says(&done(at.chunk("stat", &["report.txt"])), &[&id, "report.txt", "sealed"]);
    assert_eq!(json(at.chunk("stat", &["report.txt", "--json"]))["name"], "report.txt");
    // What is there is not replaced without being asked, and a put that is refused stores nothing.
    std::fs::write(&file, b"hello again").unwrap();
    says(&fails(at.chunk("put", &[&file]), 1), &["named \"report.txt\" already", "--replace", "--no-name"]);
    assert_eq!(names(&at), ["report.txt"]);
    done(at.chunk("put", &[&file, "--replace"]));
    assert_eq!(done(at.chunk("get", &["report.txt"])), "hello again");
    assert_eq!(done(at.chunk("ls", &[])).lines().count(), 1, "the one before is gone");
    says(&fails(at.chunk("get", &[&id]), 1), &["there is no chunk"]);
    // From stdin, renamed, and without a name.
    done(at.chunk_given("put", &["--name", "dumps/today"], b"dump"));
    done(at.chunk("name", &["dumps/old", "dumps/today"]));
    assert_eq!(done(at.chunk("ls", &["dumps/"])), "dumps/old\n");
    done(at.chunk("name", &["report.txt", "--off"]));
    assert_eq!(names(&at), ["dumps/old"]);
    done(at.chunk("rm", &["dumps/old"]));
    assert_eq!(names(&at), [""; 0]);
    says(&fails(at.chunk_given("put", &["--name", "../up"], b"x"), 1), &["relative path"]);
    // An append makes what it names.
    done(at.chunk_given("append", &["log"], b"one "));
    done(at.chunk_given("append", &["log"], b"two"));
    assert_eq!(done(at.chunk("get", &["log"])), "one two");
    assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
}

#[test]
fn directories_are_stored_whole_or_not_at_all() {
    let at = stored();
    let root = tree(&at);
    says(&fails(at.chunk("put", &[&root]), 1), &["is a directory", "--recursive"]);
    let said = done(at.chunk("put", &[&root, "--recursive"]));
    // 2,300,000 bytes are three chunks.
    assert_eq!(said.lines().count(), 5, "{said}");
    assert_eq!(names(&at), ["photos/2026/large", "photos/2026/märz/a b.jpg", "photos/empty"]);
    assert!(at.chunk("get", &["photos/2026/large"]).stdout == bytes(2_300_000));
    // A range over the joints of chunks.
    let part = at.chunk("get", &["photos/2026/large", "--range", "1000000-1099999"]).stdout;
    assert!(part == bytes(2_300_000)[1_000_000..1_100_000]);
    says(&done(at.chunk("ls", &[])), &["photos/2026/large (1 of 3)", "photos/2026/large (3 of 3)"]);
    let ids: Vec<String> = json(at.chunk("ls", &["photos/2026/large", "--json"]))["names"][0]["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    says(&fails(at.chunk("rm", &[&ids[1]]), 1), &["one of the 3 chunks of \"photos/2026/large\""]);
    says(&fails(at.chunk_given("append", &["photos/2026/large"], b"x"), 1), &["stands for 3 chunks"]);
    done(at.chunk("rm", &["photos/2026/large"]));
    assert_eq!(names(&at).len(), 2);
    // One of the files has a name that is taken: none is stored.
    says(&fails(at.chunk("put", &[&root, "-r"]), 1), &["already"]);
    assert_eq!(done(at.chunk("ls", &["--ids"])).lines().count(), 2);
    done(at.chunk("put", &[&root, "-r", "--prefix", "copy/"]));
    done(at.chunk("put", &[&root, "-r", "--replace"]));
    assert_eq!(names(&at).len(), 6);
    std::os::unix::fs::symlink("/etc/passwd", format!("{root}/link")).unwrap();
    says(&fails(at.chunk("put", &[&root, "-r", "--prefix", "more/"]), 1), &["link", "neither a file nor a directory"]);
    assert_eq!(names(&at).len(), 6);
    assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
}

#[test]
fn ranges_are_those_of_http() {
    let at = stored();
    done(at.chunk_given("put", &["--name", "digits"], b"0123456789"));
    for (range, part) in [
        ("0-4", "01234"),
        ("-5", "56789"),
        ("5-", "56789"),
        ("0+5", "01234"),
        ("9-9", "9"),
        ("8-99", "89"),
        ("-99", "0123456789"),
    ] {
        assert_eq!(done(at.chunk("get", &["digits", "--range", range])), part, "{range}");
    }
    says(&fails(at.chunk("get", &["digits", "--range", "10-"]), 1), &["nothing can be read from 10 on"]);
    says(&fails(at.chunk("get", &["digits", "--range", "x"]), 2), &["0-4 is five bytes", "FROM+BYTES"]);
}

#[test]
fn a_beginning_of_several_ids_is_no_answer() {
    let at = stored();
    let id = |last: char| format!("abcdef{}{last}", "0".repeat(41));
    for last in ['1', '2'] {
        done(at.chunk_given("put", &["--id", &id(last)], b"x"));
    }
    says(&fails(at.chunk("get", &["abcd"]), 1), &["several ids begin with abcd", &id('1'), &id('2'), "more digits"]);
    assert_eq!(done(at.chunk("get", &[&id('2')])), "x");
    // A name is a name, also where it could be the beginning of an id.
    done(at.chunk_given("put", &["--name", "abcd"], b"named"));
    assert_eq!(done(at.chunk("get", &["abcd"])), "named");
}

#[test]
fn what_is_exported_is_imported_again() {
    let at = stored();
    let root = tree(&at);
    done(at.chunk("put", &[&root, "-r"]));
    let id = done(at.chunk_given("put", &[], b"no name")).trim().to_owned();
    let long = format!("long/{}", "n".repeat(700));
    done(at.chunk_given("put", &["--name", &long], b"long"));
    let file = at.host("all.tar");
    let said = json(at.chunk("export", &["--output", &file, "--json"]));
    assert_eq!((&said["files"], &said["bytes"]), (&5.into(), &2_305_011.into()));
    // Any tar reads it.
    let to = at.host("out");
    std::fs::create_dir(&to).unwrap();
    assert!(Command::new("tar").args(["xf", &file, "-C", &to, "photos"]).status().unwrap().success());
    assert!(content(format!("{to}/photos/2026/large")) == bytes(2_300_000));
    assert!(content(format!("{to}/photos/2026/märz/a b.jpg")) == bytes(5000));
    // Nothing of it is taken where anything is there already.
    says(&fails(at.chunk("import", &[&file]), 1), &["already", "--replace"]);
    done(at.chunk("format", &["--force"]));
    let said = json(at.chunk("import", &[&file, "--json"]));
    assert_eq!((said["files"].as_array().unwrap().len(), &said["bytes"]), (5, &2_305_011.into()));
    assert_eq!(done(at.chunk("get", &[&id])), "no name");
    assert_eq!(done(at.chunk("get", &[&long])), "long");
    assert!(at.chunk("get", &["photos/2026/large"]).stdout == bytes(2_300_000));
    // A part of it, by way of a pipe.
    let part = at.chunk("export", &["photos/2026/"]);
    assert!(part.status.success());
    done(at.chunk_given("import", &["--prefix", "copy/"], &part.stdout));
    assert_eq!(done(at.chunk("ls", &["copy/"])).lines().count(), 2);
    assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
}

fn entry(tar: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, size: u64, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
    if kind.is_symlink() || kind.is_hard_link() {
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    tar.append(&header, data).unwrap();
}

#[test]
fn a_stream_that_means_ill_stores_nothing() {
    let at = stored();
    let good = |tar: &mut Builder<Vec<u8>>| entry(tar, EntryType::Regular, "good", 4, b"good");
    let made = |bad: &dyn Fn(&mut Builder<Vec<u8>>)| {
        let mut tar = Builder::new(Vec::new());
        good(&mut tar);
        bad(&mut tar);
        tar.into_inner().unwrap()
    };
    let named = |path: &'static str| made(&move |tar| entry(tar, EntryType::Regular, path, 1, b"x"));
    let huge = made(&|tar| entry(tar, EntryType::Regular, "huge", 1 << 50, b"x"));
    let names = made(&|tar| entry(tar, EntryType::GNULongName, "././@LongLink", 4 << 20, &vec![b'x'; 4 << 20]));
    let whole = made(&|tar| entry(tar, EntryType::Regular, "big", 300_000, &bytes(300_000)));
    let streams: Vec<(Vec<u8>, &str)> = vec![
        (named("/etc/passwd"), "relative path"),
        (named("../../up"), "relative path"),
        (named("a/./b"), "relative path"),
        (named("esc\u{1b}[2J"), "control character"),
        (named("good"), "in it twice"),
        (made(&|tar| entry(tar, EntryType::Symlink, "link", 0, b"")), "a link or a special file"),
        (made(&|tar| entry(tar, EntryType::Link, "link", 0, b"")), "a link or a special file"),
        (made(&|tar| entry(tar, EntryType::Char, "tty", 0, b"")), "a link or a special file"),
        (made(&|tar| entry(tar, EntryType::GNUSparse, "sparse", 0, b"")), "tar"),
        (huge, "are free"),
        (names, "longer than 1 MiB"),
        (whole[..100_000].to_vec(), "nothing of the stream was stored"),
        (bytes(100_000), "no whole tar stream"),
    ];
    for (stream, said) in streams {
        says(&fails(at.chunk_given("import", &[], &stream), 1), &[said]);
        assert_eq!(done(at.chunk("ls", &[])), "", "{said}");
    }
    done(at.chunk_given("import", &[], &whole));
    assert_eq!(done(at.chunk("get", &["good"])), "good");
}

#[test]
fn an_interrupted_import_leaves_nothing() {
    let at = stored();
    let mut tar = Builder::new(Vec::new());
    for n in 0..20 {
        entry(&mut tar, EntryType::Regular, &format!("file {n}"), 200_000, &bytes(200_000));
    }
    let stream = tar.into_inner().unwrap();
    let uri = format!("imbrex://{}?buffer=1M", at.drive());
    let mut command = at.command(&["chunk", "import", &uri]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Most of it, and no end. What a pipe holds and no more is left when this returns, so it is at work.
    child.stdin.as_mut().unwrap().write_all(&stream[..3_500_000]).unwrap();
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    says(&fails(output, 1), &["interrupted, and nothing of it is stored"]);
    assert_eq!(done(at.chunk("ls", &[])), "");
    assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
}

#[test]
fn kinds_of_streams_and_open_chunks_come_back_from_an_export() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let format = || done(at.chunk("format", &["--stream", "logs:30:8", "--force"]));
    format();
    done(at.chunk_given("put", &["--name", "plain"], b"plain"));
    done(at.chunk_given("put", &["--name", "log", "--stream", "logs", "--open"], b"first "));
    done(at.chunk_given("put", &["--name", "kept", "--stream", "metadata"], b"kept"));
    // More than one chunk, which is told.
    let put = at.chunk_given("put", &["--name", "long", "--stream", "logs", "--open"], &bytes(2_200_000));
    says(&text(&put.stderr), &["3 chunks"]);
    let of = |name: &str| {
        let stat = json(at.chunk("stat", &[name, "--json"]));
        let last = stat["chunks"].as_array().and_then(|all| all.last().cloned()).unwrap_or(stat);
        (last["stream"].as_str().unwrap().to_owned(), last["sealed"].as_bool().unwrap())
    };
    let all = || ["plain", "log", "kept", "long"].map(of);
    let before = all();
    assert_eq!(before[1], ("logs".to_owned(), false));
    let file = at.host("all.tar");
    done(at.chunk("export", &["--output", &file]));
    // Any tar reads it; what it does not know it says and skips.
    let listed = Command::new("tar").args(["tf", &file]).output().unwrap();
    assert!(listed.status.success());
    assert_eq!(text(&listed.stdout), "kept\nlog\nlong\nplain\n");
    format();
    done(at.chunk("import", &[&file]));
    assert_eq!(all(), before);
    done(at.chunk_given("append", &["log"], b"second"));
    assert_eq!(done(at.chunk("get", &["log"])), "first second");
    assert!(at.chunk("get", &["long"]).stdout == bytes(2_200_000));
    // Who names a kind means all of it.
    format();
    done(at.chunk("import", &[&file, "--stream", "gc"]));
    assert_eq!(all().map(|(kind, _)| kind), ["gc", "gc", "gc", "gc"]);
    // A store that has no such kind says so, and has nothing of it.
    done(at.chunk("format", &["--force"]));
    says(&fails(at.chunk("import", &[&file]), 1), &["there is no stream \"logs\"", "--stream"]);
    assert_eq!(done(at.chunk("ls", &[])), "");
    done(at.chunk("import", &[&file, "--stream", "data"]));
}

#[test]
fn what_a_killed_put_left_is_removed_by_the_next_one() {
    for power in [false, true] {
        let at = stored();
        done(at.chunk_given("put", &["--name", "before"], b"before"));
        let kept = done(at.chunk_given("put", &[], b"no name")).trim().to_owned();
        let open = done(at.chunk_given("put", &["--open", "--no-name"], b"open")).trim().to_owned();
        let uri = format!("imbrex://{}?buffer=1M", at.drive());
        let mut command = at.command(&["chunk", "put", &uri, "--piece", "64K", "--name", "half"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Four chunks and a half; what a pipe holds and no more is left when this returns.
        child.stdin.as_mut().unwrap().write_all(&bytes(4_500_000)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        if power {
            done(at.run(&["drive", "power-loss", at.drive(), "--seed", "5"]));
        }
        let unnamed = || done(at.chunk("ls", &["--ids"])).lines().count();
        assert!(power || unnamed() > 4, "it left chunks");
        says(&done(at.chunk("ls", &["--names"])), &[".unfinished/"]);
        says(&fails(at.chunk("get", &["half"]), 1), &["half"]);
        let put = at.chunk_given("put", &["--name", "after"], b"after");
        assert!(put.status.success(), "{}", text(&put.stderr));
        assert!(power || text(&put.stderr).contains("that it left "), "{}", text(&put.stderr));
        assert_eq!(unnamed(), 4);
        assert!(!done(at.chunk("ls", &["--names"])).contains(".unfinished/"));
        for (what, content) in [("before", "before"), (&kept, "no name"), (&open, "open"), ("after", "after")] {
            assert_eq!(done(at.chunk("get", &[what])), content);
        }
        assert!(done(at.chunk("check", &[])).contains("nothing is wrong"));
        // Once more there is nothing to say.
        done(at.chunk_given("put", &["--name", "again"], b"again"));
    }
}

#[test]
fn names_of_puts_under_way_are_not_for_others() {
    let at = stored();
    says(&fails(at.chunk_given("put", &["--name", ".unfinished/x"], b"x"), 1), &["puts under way", "--prefix"]);
    done(at.chunk_given("put", &["--name", "unfinished/x"], b"x"));
    assert_eq!(done(at.chunk("ls", &["--ids"])).lines().count(), 1);
}

#[test]
fn a_progress_bar_is_one_line_on_any_terminal() {
    let at = stored();
    let file = at.file("large", bytes(3_000_000));
    for columns in [20, 40, 80, 200] {
        // `script` is a terminal.
        let put = format!("{} chunk put {} {file} --replace", env!("CARGO_BIN_EXE_imbrex"), at.drive());
        let mut command = Command::new("script");
        command.args(["-qec", &format!("stty cols {columns} rows 24; {put}"), "/dev/null"]).stdin(Stdio::null());
        let output = command.env("IMBREX_SHM_DIR", at.host("")).env("TERM", "xterm").output().unwrap();
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}");
        // A bar that needs a second line goes back to the first one.
        assert!(said.contains('%') || said.contains("MiB"), "{columns}: no bar in {said:?}");
        assert!(!said.contains("\u{1b}[1A"), "{columns}: {said:?}");
        let drawn = said.split(['\r', '\n']).map(|line| line.replace("\u{1b}[2K", ""));
        let longest =
            drawn.filter(|line| line.contains('%') || line.contains("MiB")).map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= columns), "{columns}: {longest:?} {said:?}");
    }
    // Where there is no terminal there is no bar.
    let put = at.chunk("put", &[&file, "--replace"]);
    assert_eq!(text(&put.stderr).lines().count(), 1, "{}", text(&put.stderr));
    assert!(text(&put.stderr).starts_with("imbrex: 3 chunks"), "{}", text(&put.stderr));
}
