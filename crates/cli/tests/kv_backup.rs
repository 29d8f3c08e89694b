//! `imbrex kv backup` and `restore`, as a user runs them.

mod support;

use imbrex_kv::{Bytewise, Kv, Make, MergeOperator, Order, register_order};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use support::*;

/// A place with an empty store on 64 zones of 1 MiB.
fn stored() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.kv("format", &[]));
    at
}

/// The store, in this process.
fn library(at: &Place) -> Kv {
    Kv::open_uri(&format!("imbrex://{}?survivor=off", at.drive()), &[]).unwrap()
}

/// Names of spaces as a program may choose them.
const SPACES: [&str; 4] = ["empty", "users", "../a b/\u{e4} \u{1f980}", "users_2"];

/// A place with spaces, any bytes, empty keys and values, deleted keys and ranges, in tables and in the log.
fn filled() -> Place {
    let at = stored();
    let lines: String = (0..3000).map(|n| format!("key{n:05}\tvalue {n} {}\n", "v".repeat(200))).collect();
    done(at.kv_given("load", &[], lines.as_bytes()));
    done(at.kv("compact", &[]));
    done(at.kv("rm", &["--from", "key00100", "--to", "key00200"]));
    done(at.kv("rm", &["key00007"]));
    done(at.kv("put", &["--space", "users", "over", "Ada", "--ttl", "1"]));
    let kv = library(&at);
    for (n, name) in SPACES.into_iter().enumerate() {
        let space = kv.space(name, Bytewise.name(), Make::IfMissing).unwrap();
        for byte in (0..=255).filter(|_| n > 0) {
            space.put(&[byte], &[&[byte; 3][..], name.as_bytes()].concat(), false).unwrap();
            space.put(&[255, byte, 0], b"", false).unwrap();
        }
    }
    let odd = kv.space(SPACES[2], Bytewise.name(), Make::Never).unwrap();
    odd.put(b"", b"of the empty key", false).unwrap();
    odd.put(&[b'k'; imbrex_kv::MAX_KEY], &bytes(500_000), true).unwrap();
    drop((kv, odd));
    at
}

/// What `imbrex kv scan` says of all spaces, and what `ls` says.
fn all(at: &Place) -> Vec<Vec<u8>> {
    let scan = |more: &[&str]| {
        let output = at.kv("scan", &[&["--format", "binary"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let ls = done(at.kv("ls", &["--json"]));
    let spaces: serde_json::Value = serde_json::from_str(&ls).unwrap();
    let spaces = spaces["spaces"].as_array().unwrap();
    let named = spaces.iter().map(|space| scan(&["--space", space["name"].as_str().unwrap()]));
    [ls.clone().into_bytes(), scan(&[])].into_iter().chain(named).collect()
}

/// The store has nothing at all.
#[track_caller]
fn has_nothing(at: &Place) {
    assert_eq!(done(at.kv("scan", &["--keys"])) + &done(at.kv("ls", &[])), "");
    says(&done(at.kv("check", &[])), &["nothing is wrong"]);
}

/// The pieces of a backup in a directory, in the order of their names.
fn pieces(backup: &str) -> Vec<PathBuf> {
    let inside = |path: &Path| {
        let mut found: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    inside(&Path::new(backup).join("files")).iter().flat_map(|space| inside(space)).collect()
}

#[test]
fn what_was_backed_up_comes_back_as_it_was() {
    let at = filled();
    let (before, image) = (all(&at), content(&at.path));
    let (dir, tar) = (at.host("monday"), at.host("monday.tar"));
    says(&done(at.kv("backup", &[&dir])), &["4,438 pairs of 5 spaces", "backed up to", "monday"]);
    let facts = json(at.kv("backup", &[&tar, "--json"]));
    assert_eq!((&facts["pairs"], &facts["spaces"]), (&4438.into(), &5.into()), "{facts}");
    let piped = at.kv("backup", &["-"]);
    assert!(piped.status.success() && piped.stderr.is_empty());
    assert!(content(&at.path) == image, "the drive stays as it was");
    let names = std::process::Command::new("tar").args(["tf", &tar]).output().unwrap();
    says(&text(&names.stdout), &["files/unnamed/00000000-", "files/4-users_2/", "imbrex-backup.json"]);
    for from in [&dir, &tar] {
        let new = stored();
        says(&done(new.kv("restore", &[from])), &["4,438 pairs of 5 spaces", "restored"]);
        assert!(all(&new) == before, "{from}");
        says(&done(new.kv("check", &[])), &["nothing is wrong"]);
    }
    // Spaces that are there and empty are no hindrance.
    let new = stored();
    done(new.kv("put", &["--space", "users", "x", "y"]));
    done(new.kv("rm", &["--space", "users", "x"]));
    let facts: serde_json::Value =
        serde_json::from_str(&done(new.kv_given("restore", &["-", "--json"], &piped.stdout))).unwrap();
    assert_eq!((&facts["pairs"], &facts["spaces"]), (&4438.into(), &5.into()), "{facts}");
    assert!(all(&new) == before);
    // A piece is what load takes.
    let new = stored();
    let piece = pieces(&dir).into_iter().find(|path| path.to_str().unwrap().contains("/unnamed/")).unwrap();
    done(new.kv("load", &["--format", "binary", piece.to_str().unwrap()]));
    assert!(all(&new)[1] == before[1]);
    // A store without anything has a backup, too.
    let (none, to) = (stored(), at.host("none"));
    says(&done(none.kv("backup", &[&to])), &["0 pairs of 1 space"]);
    says(&done(stored().kv("restore", &[&to])), &["0 pairs of 1 space"]);
}

#[test]
fn a_backup_is_of_one_moment_and_of_a_checkpoint_where_one_is_named() {
    let at = filled();
    done(at.kv("checkpoint", &["monday"]));
    let before = all(&at);
    done(at.kv("rm", &["--from", "key01", "--to", "key02"]));
    done(at.kv("put", &["--space", "users", "1", "Grace"]));
    done(at.kv("compact", &[]));
    let now = all(&at);
    assert!(before != now);
    for (more, want) in [(&["--at", "monday"][..], &before), (&[], &now)] {
        let (to, new) = (at.host(&format!("backup{}", more.len())), stored());
        done(at.kv("backup", &[&[&to[..]], more].concat()));
        done(new.kv("restore", &[&to]));
        assert!(all(&new) == *want, "{more:?}");
    }
    says(&fails(at.kv("backup", &[&at.host("x"), "--at", "tuesday"]), 1), &["there is no checkpoint \"tuesday\""]);
    assert!(!Path::new(&at.host("x")).exists() && !Path::new(&at.host("x.part")).exists());
}

#[test]
fn a_space_may_have_many_pieces() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--capacity", "256M"]));
    done(at.kv("format", &[]));
    let value = text(&[b'v'; 50_000]);
    let lines: String = (0..1500).map(|n| format!("key{n:05}\t{n}{value}\n")).collect();
    done(at.kv_given("load", &["--sorted"], lines.as_bytes()));
    done(at.kv("put", &["--space", "last", "a", "b"]));
    let (before, dir, tar) = (all(&at), at.host("b"), at.host("b.tar"));
    done(at.kv("backup", &[&dir]));
    done(at.kv("backup", &[&tar]));
    assert_eq!(pieces(&dir).len(), 4);
    for from in [&dir, &tar] {
        done(at.kv("format", &["--force"]));
        done(at.kv("restore", &[from]));
        assert!(all(&at) == before);
    }
    done(at.kv("format", &["--force"]));
    // What is missing in the middle of it is missed.
    let second = &pieces(&dir)[2];
    let name = format!("files/{}/{}", "unnamed", second.file_name().unwrap().to_str().unwrap());
    assert!(second.ends_with(name.strip_prefix("files/").unwrap()));
    let done_by_tar = std::process::Command::new("tar").args(["--delete", "-f", &tar, &name]).status().unwrap();
    assert!(done_by_tar.success());
    says(&fails(at.kv("restore", &[&tar]), 3), &["00000002-", "missing", "nothing of it was kept"]);
    has_nothing(&at);
}

#[test]
fn what_is_cut_off_or_changed_is_no_backup_and_leaves_nothing() {
    let at = filled();
    let (dir, tar) = (at.host("b"), at.host("b.tar"));
    done(at.kv("backup", &[&dir]));
    done(at.kv("backup", &[&tar]));
    let new = stored();
    let refused = |from: &str, why: &str| {
        says(&fails(new.kv("restore", &[from]), 3), &["is not a whole backup", why, "; nothing"]);
        has_nothing(&new);
    };
    let whole = content(&tar);
    for cut in [whole.len() / 3, whole.len() - 9000, whole.len() / 2 / 512 * 512, 1000, 100, 0] {
        refused(&at.file("cut.tar", &whole[..cut]), "");
    }
    // A bit of a key or value, of a name of a space in the beginning and in the list, and of the names of pieces.
    let find = |what: &[u8], last: bool| {
        let mut places = (0..whole.len() - what.len()).filter(|at| whole[*at..].starts_with(what));
        if last { places.next_back().unwrap() } else { places.next().unwrap() }
    };
    let flips = [
        (find(&bytes(500_000)[5000..5064], false), "is damaged"),
        (find(b"value 2999", false), "is damaged"),
        (find(b"\"users_2\"", false) + 3, "checksum of its list"),
        (find(b"\"users_2\"", true) + 3, "checksum of its list"),
        (find(b"files/2-", false) + 8, ""),
    ];
    for (place, why) in flips {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        refused(&at.file("flipped.tar", &flipped), why);
    }
    refused(&at.file("text.tar", "nonsense"), "");
    // Twice the same, and something behind the list.
    let end = whole.len() - 1024;
    refused(&at.file("twice.tar", [&whole[..end], &whole].concat()), "begins twice");
    let some = &pieces(&dir)[1];
    let good = content(some);
    let mut bad = good.clone();
    bad[20] ^= 4;
    std::fs::write(some, &bad).unwrap();
    refused(&dir, "is damaged");
    std::fs::write(some, &good[..good.len() - 1]).unwrap();
    refused(&dir, "bytes and should have");
    std::fs::remove_file(some).unwrap();
    refused(&dir, "No such file");
    let list = Path::new(&dir).join("imbrex-backup.json");
    let said = std::fs::read_to_string(&list).unwrap();
    for (from, to, why) in [
        ("\"pairs\": 5", "\"pairs\": 6", "checksum of its list"),
        ("\"pairs\": 4438", "\"pairs\": 4439", "totals of its list"),
        ("_backup\": 1", "_backup\": 2", "newer Imbrex"),
    ] {
        std::fs::write(&list, said.replace(from, to)).unwrap();
        refused(&dir, why);
    }
    std::fs::remove_file(&list).unwrap();
    refused(&dir, "there is no imbrex-backup.json");
}

#[test]
fn keys_that_are_there_are_kept_unless_asked() {
    let at = filled();
    let dir = at.host("b");
    done(at.kv("backup", &[&dir]));
    let new = stored();
    done(new.kv("put", &["key00000", "old"]));
    done(new.kv("put", &["key00000x", "mine"]));
    done(new.kv("put", &["--space", "mine", "k", "v"]));
    let before = all(&new);
    says(&fails(new.kv("restore", &[&dir]), 1), &["has keys", "--over", "imbrex kv format --force"]);
    assert!(all(&new) == before);
    says(&done(new.kv("restore", &[&dir, "--over"])), &["4,438 pairs of 5 spaces"]);
    says(&done(new.kv("get", &["key00000"])), &["value 0"]);
    assert_eq!(done(new.kv("get", &["key00000x"])) + &done(new.kv("get", &["--space", "mine", "k"])), "minev");
    assert_eq!(done(new.kv("ls", &[])).lines().count(), 5);
    // Nothing of a damaged piece is stored over anything.
    let other = stored();
    done(other.kv("put", &["--space", "users", "1", "old"]));
    let piece = pieces(&dir).into_iter().find(|path| path.to_str().unwrap().contains("-users/")).unwrap();
    let mut bad = content(&piece);
    bad[20] ^= 4;
    std::fs::write(&piece, &bad).unwrap();
    let sentence = fails(other.kv("restore", &[&dir, "--over"]), 3);
    says(&sentence, &["is damaged", "pairs of it are stored", ".imbrex-restore"]);
    assert_eq!(done(other.kv("get", &["--space", "users", "1"])), "old");
    says(&fails(other.kv("restore", &[&dir]), 1), &["has a part of a backup", "--over"]);
}

/// A stream whose third space is cut off in its middle, and where it is.
fn three_spaces() -> (Place, Vec<u8>, usize) {
    let at = stored();
    let value = text(&[b'v'; 1000]);
    let lines: String = (0..3000).map(|n| format!("key{n:05}\t{n}{value}\n")).collect();
    for space in [&[][..], &["--space", "a"], &["--space", "b"]] {
        done(at.kv_given("load", space, lines.as_bytes()));
    }
    let stream = at.kv("backup", &["-"]).stdout;
    let cut = stream.len() - 500_000;
    (at, stream, cut)
}

#[test]
fn an_interrupted_restore_leaves_nothing_and_a_killed_one_is_known() {
    let (at, stream, cut) = three_spaces();
    let before = all(&at);
    let new = stored();
    let begin = || {
        let mut child = new.piped(&["kv", "restore", new.drive(), "-"]);
        // What a pipe and the reader hold and no more is left when this returns: two spaces are read.
        child.stdin.as_mut().unwrap().write_all(&stream[..cut]).unwrap();
        child
    };
    let child = begin();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut child = child;
    let stdin = child.stdin.take();
    says(&fails(child.wait_with_output().unwrap(), 1), &["interrupted; nothing"]);
    drop(stdin);
    has_nothing(&new);
    let mut child = begin();
    child.kill().unwrap();
    child.wait().unwrap();
    says(&done(new.kv("ls", &[])), &[".imbrex-restore"]);
    says(&fails(new.kv("restore", &[&at.file("b.tar", &stream)]), 1), &["has a part of a backup", "ended early"]);
    says(&fails(new.kv("backup", &[&at.host("part")]), 1), &["only a part of a backup", ".imbrex-restore", "--over"]);
    done(new.kv("restore", &[&at.host("b.tar"), "--over"]));
    assert!(all(&new) == before);
}

#[test]
fn a_smaller_drive_is_refused_before_or_when_it_is_full() {
    let (at, stream, _) = three_spaces();
    let large = stored();
    let lines: String = (0..3000).map(|n| format!("key{n:05}\t{}\n", "v".repeat(9000))).collect();
    done(large.kv_given("load", &[], lines.as_bytes()));
    for (at, stream, of_dir) in
        [(&large, large.kv("backup", &["-"]).stdout, "has room for"), (&at, stream, "is full before all of")]
    {
        let (dir, tar) = (at.host("b"), at.file("b.tar", stream));
        done(at.kv("backup", &[&dir]));
        let small = place();
        let size = ["--capacity", "20M", "--conventional", "2"];
        done(small.run(&[&["drive", "create", small.drive(), "--profile", "tiny"][..], &size].concat()));
        done(small.kv("format", &[]));
        for (from, why) in [(&dir, of_dir), (&tar, "is full before all of")] {
            says(&fails(small.kv("restore", &[from]), 1), &[why, "larger drive", "nothing"]);
            has_nothing(&small);
        }
        // It can be used afterwards.
        done(small.kv("put", &["a", "b"]));
    }
}

#[test]
fn a_full_host_leaves_nothing_that_looks_whole() {
    let at = filled();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let out = at.command(&["kv", "backup", at.drive(), "-"]).stdout(Stdio::from(full())).output().unwrap();
    says(&fails(out, 1), &["failed", "No space left", "another place"]);
    // A limit on the size of files stands in for a full disk.
    for name in ["limited", "limited.tar"] {
        let to = at.host(name);
        let shell = format!("ulimit -f 100; exec {} kv backup {} {to}", env!("CARGO_BIN_EXE_imbrex"), at.drive());
        let mut command = std::process::Command::new("bash");
        let out = command.args(["-c", &shell]).env("IMBREX_SHM_DIR", at.host(".")).output().unwrap();
        says(&fails(out, 1), &["writing the backup", "failed"]);
        assert!(!Path::new(&to).exists() && !Path::new(&format!("{to}.part")).exists());
    }
    done(at.kv("backup", &[&at.host("taken")]));
    says(&fails(at.kv("backup", &[&at.host("taken")]), 1), &["is there already"]);
    says(&fails(at.kv("restore", &[&at.host("missing")]), 1), &["check the path"]);
    says(&fails(at.kv("backup", &[]), 2), &["<TO>"]);
    says(&fails(at.kv("restore", &[]), 2), &["<FROM>"]);
}

#[test]
fn each_engine_has_its_own_backups() {
    let (keys, files) = (filled(), formatted());
    done(files.fs("cp", &[&files.file("x", "x"), ":/x"]));
    says(&fails(keys.fs("backup", &[&keys.host("b")]), 1), &["formatted for kv", "use `imbrex kv backup`"]);
    says(&fails(files.kv("backup", &[&keys.host("b")]), 1), &["formatted for bluefs", "use `imbrex fs backup`"]);
    let (new_keys, new_files) = (stored(), formatted());
    for name in ["b", "b.tar"] {
        done(keys.kv("backup", &[&keys.host(name)]));
        done(files.fs("backup", &[&files.host(name)]));
        let told = fails(new_files.fs("restore", &[&keys.host(name)]), 1);
        says(&told, &["is a backup of a key-value store; restore it with `imbrex kv restore`"]);
        let told = fails(new_keys.kv("restore", &[&files.host(name)]), 1);
        says(&told, &["is a backup of a file system; restore it with `imbrex fs restore`"]);
        says(&fails(new_keys.fs("restore", &[&keys.host(name)]), 1), &["use `imbrex kv restore`"]);
        has_nothing(&new_keys);
    }
}

struct Numbers;

impl Order for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.len().cmp(&b.len()).then(a.cmp(b))
    }
}

struct Append;

impl MergeOperator for Append {
    fn merge(&self, _: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        [value.unwrap_or_default(), &operands.concat()].concat()
    }
}

#[test]
fn what_only_a_program_can_read_is_told() {
    let at = filled();
    let kv = library(&at);
    let users = kv.space("users", Bytewise.name(), Make::Never).unwrap();
    users.merge_operator(Arc::new(Append));
    users.merge(b"list", b"one", true).unwrap();
    drop((kv, users));
    let sentence = fails(at.kv("backup", &[&at.host("b")]), 1);
    says(&sentence, &["the space \"users\"", "merge operands", "compact the store first"]);
    assert!(!Path::new(&at.host("b")).exists() && !Path::new(&at.host("b.part")).exists());
    // The program that has the operator compacts it.
    let kv = library(&at);
    let users = kv.space("users", Bytewise.name(), Make::Never).unwrap();
    users.merge_operator(Arc::new(Append));
    kv.compact().unwrap();
    drop((kv, users));
    let new = stored();
    done(at.kv("backup", &[&at.host("b")]));
    done(new.kv("restore", &[&at.host("b")]));
    assert_eq!(done(new.kv("get", &["--space", "users", "list"])), "one");
    // An order of a program's own.
    register_order(Arc::new(Numbers));
    let kv = library(&at);
    kv.space("numbered", "numbers", Make::New).unwrap().put(b"10", b"ten", true).unwrap();
    drop(kv);
    let sentence = fails(at.kv("backup", &[&at.host("c")]), 1);
    says(&sentence, &["\"numbered\"", "in the order \"numbers\"", "does not know", "imbrex kv salvage"]);
}

#[test]
fn damage_is_told_and_no_backup_is_made_of_it() {
    let at = filled();
    done(at.kv("compact", &[]));
    // Also copies of it that do not count any more.
    let mut image = content(&at.path);
    let needle = &bytes(500_000)[300_000..300_064];
    let found: Vec<usize> = (0..image.len() - 64).filter(|at| image[*at..].starts_with(needle)).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| image[at] ^= 1);
    std::fs::write(&at.path, image).unwrap();
    let sentence = fails(at.kv("backup", &[&at.host("b")]), 3);
    says(&sentence, &["cannot be read, so there is no backup", "imbrex kv check", "imbrex kv salvage"]);
    assert!(!Path::new(&at.host("b")).exists() && !Path::new(&at.host("b.part")).exists());
}

#[test]
fn a_drive_that_another_process_has_is_busy() {
    let at = filled();
    let mut child = at.piped(&["kv", "load", at.drive()]);
    while json(at.run(&["drive", "info", at.drive(), "--json"]))["in_use_by"] != child.id() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    says(&fails(at.kv("backup", &[&at.host("b")]), 4), &["in use"]);
    assert!(!Path::new(&at.host("b")).exists());
    drop(child.stdin.take());
    child.wait().unwrap();
    done(at.kv("backup", &[&at.host("b")]));
}
