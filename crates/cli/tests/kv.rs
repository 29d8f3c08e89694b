//! The key-value store, as a user meets it.

mod support;

use serde_json::{Value, json as value};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::*;

const IMBREX: &str = env!("CARGO_BIN_EXE_imbrex");

/// Longest key.
const MAX_KEY: usize = 65_536;

/// A place with an empty store on 64 zones of 1 MiB.
fn stored() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.kv("format", &[]));
    at
}

/// A place with `pairs` of `key` and a number, and the numbers as values.
fn numbered(pairs: u32) -> Place {
    let at = stored();
    let lines: String = (0..pairs).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    done(at.kv_given("load", &[], lines.as_bytes()));
    at
}

/// What a command prints that succeeds, as bytes.
#[track_caller]
fn printed(output: Output) -> Vec<u8> {
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    output.stdout
}

fn keys(at: &Place) -> Vec<String> {
    done(at.kv("scan", &["--keys"])).lines().map(str::to_owned).collect()
}

/// The object of each line.
fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A record of the binary form.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&len(key)[..], &len(value), key, value].concat()
}

/// Waits until this process has the drive.
fn waits_for_drive(at: &Place, child: &mut Child) {
    while json(at.run(&["drive", "info", at.drive(), "--json"]))["in_use_by"] != child.id() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
}

#[test]
fn pairs_are_put_found_listed_and_removed() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    says(&done(at.kv("format", &[])), &["an empty key-value store"]);
    for (key, value) in [("user:1", "Ada"), ("user:2", "Grace"), ("zebra", ""), ("user:1", "Ada Lovelace")] {
        assert_eq!(done(at.kv("put", &[key, value])), "");
    }
    assert_eq!(done(at.kv("get", &["user:1"])), "Ada Lovelace");
    assert_eq!(done(at.kv("get", &["zebra"])), "");
    assert_eq!(objects(&done(at.kv("get", &["user:2", "--json"]))), [value!({ "key": "user:2", "value": "Grace" })]);
    assert_eq!(done(at.kv("scan", &[])), "user:1\tAda Lovelace\nuser:2\tGrace\nzebra\t\n");
    done(at.kv("rm", &["user:1", "zebra", "never there"]));
    says(&fails(at.kv("get", &["user:1"]), 1), &["there is no key \"user:1\"", "imbrex kv scan"]);
    assert_eq!(keys(&at), ["user:2"]);
    // From stdin, with every byte that there is.
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    done(at.kv_given("put", &["photo", "-"], &all));
    assert!(printed(at.kv("get", &["photo"])) == all);
    done(at.kv("compact", &[]));
    assert!(printed(at.kv("get", &["photo"])) == all);
    says(&done(at.kv("check", &[])), &["nothing is wrong"]);
    assert_eq!(json(at.kv("check", &["--json"])), value!({ "problems": [] }));
}

#[test]
fn a_key_may_be_any_bytes() {
    let at = stored();
    let key = std::ffi::OsStr::from_bytes(b"\xff\tkey");
    let run = |verb: &str, more: &[&str]| at.command(&["kv", verb, at.drive()]).arg(key).args(more).output().unwrap();
    done(run("put", &["value"]));
    assert_eq!(done(run("get", &[])), "value");
    assert_eq!(objects(&done(run("get", &["--json"]))), [value!({ "key_hex": "ff096b6579", "value": "value" })]);
    assert_eq!(objects(&done(run("scan", &["--json", "--keys"]))), [value!({ "key_hex": "ff096b6579" })]);
    done(run("rm", &[]));
    assert_eq!(keys(&at), [""; 0]);
}

#[test]
fn a_scan_has_ranges_and_both_directions() {
    let at = stored();
    for key in ["a", "b1", "b2", "b3", "c"] {
        done(at.kv("put", &[key, &key.to_uppercase()]));
    }
    let scan = |more: &[&str]| done(at.kv("scan", &[&["--keys"], more].concat())).replace('\n', " ");
    assert_eq!(scan(&[]), "a b1 b2 b3 c ");
    assert_eq!(scan(&["--reverse"]), "c b3 b2 b1 a ");
    assert_eq!(scan(&["b"]), "b1 b2 b3 ");
    assert_eq!(scan(&["b", "--reverse"]), "b3 b2 b1 ");
    assert_eq!(scan(&["b", "--reverse", "--limit", "2"]), "b3 b2 ");
    assert_eq!(scan(&["--from", "b2"]), "b2 b3 c ");
    assert_eq!(scan(&["--from", "b20"]), "b3 c ");
    assert_eq!(scan(&["--from", "b20", "--reverse"]), "b2 b1 a ");
    assert_eq!(scan(&["b", "--from", "b2"]), "b2 b3 ");
    assert_eq!(scan(&["b", "--from", "b2", "--reverse"]), "b2 b1 ");
    assert_eq!(scan(&["b", "--from", "x", "--reverse"]), "b3 b2 b1 ");
    assert_eq!(scan(&["b", "--from", "a"]), "b1 b2 b3 ");
    assert_eq!(scan(&["b", "--from", "a", "--reverse"]), "");
    assert_eq!(scan(&["--to", "b2"]), "a b1 ");
    assert_eq!(scan(&["b", "--from", "b2", "--to", "b3"]), "b2 ");
    assert_eq!(scan(&["--to", "b2", "--reverse"]), "c b3 ");
    assert_eq!(scan(&["--from", "b3", "--to", "b2"]), "");
    assert_eq!(scan(&["--limit", "0"]), "");
    assert_eq!(scan(&["nothing"]), "");
    assert_eq!(done(at.kv("scan", &["b", "--limit", "1"])), "b1\tB1\n");
}

/// Pairs with every byte in the key and the value.
fn awkward() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all: Vec<u8> = (0..=255).collect();
    let mut pairs: Vec<_> = all.iter().map(|byte| (vec![*byte], vec![b'v', *byte, *byte])).collect();
    pairs.push((all.clone(), all.repeat(40)));
    pairs.push((b"\\t".to_vec(), b"\\n\\\\\r\n".to_vec()));
    pairs.push((b"long".to_vec(), bytes(300_000)));
    pairs.push((b"nothing".to_vec(), Vec::new()));
    pairs.sort();
    pairs
}

#[test]
fn what_a_scan_prints_a_load_takes_whatever_the_bytes_are() {
    let (pairs, at) = (awkward(), stored());
    let records: Vec<u8> = pairs.iter().flat_map(|(key, value)| record(key, value)).collect();
    let loaded = done(at.kv_given("load", &["--format", "binary"], &records));
    assert_eq!(loaded, format!("{} pairs stored\n", pairs.len()));
    assert!(printed(at.kv("scan", &["--format", "binary"])) == records);
    for form in [&[][..], &["--format", "tsv"], &["--format", "binary"]] {
        let (other, stream) = (stored(), printed(at.kv("scan", form)));
        done(other.kv_given("load", form, &stream));
        assert!(printed(other.kv("scan", &["--format", "binary"])) == records, "{form:?}");
        // Also from a file.
        let (other, file) = (stored(), at.file("pairs", &stream));
        assert_eq!(json(other.kv("load", &[&[&file[..], "--json"], form].concat()))["loaded"], pairs.len());
        assert!(printed(other.kv("scan", form)) == stream, "{form:?}");
    }
    // A line is a pair, whatever is in it.
    assert_eq!(printed(at.kv("scan", &[])).split(|byte| *byte == b'\n').count(), pairs.len() + 1);
    assert_eq!(printed(at.kv("scan", &["--keys"])).split(|byte| *byte == b'\n').count(), pairs.len() + 1);
}

#[test]
fn tabs_line_ends_and_backslashes_are_escaped() {
    let at = stored();
    done(at.kv("put", &["a\tb", "c\nd\re\\f"]));
    assert_eq!(done(at.kv("scan", &[])), "a\\tb\tc\\nd\\re\\\\f\n");
    assert_eq!(done(at.kv("scan", &["--keys"])), "a\\tb\n");
    // The value may have tabs as they are, and the last line no end.
    done(at.kv_given("load", &[], b"g\\\\\tone\ttwo\nh\\n\t"));
    assert_eq!(done(at.kv("get", &["g\\"])), "one\ttwo");
    assert_eq!(done(at.kv("get", &["h\n"])), "");
}

/// Lines of which the last is wrong: all before it are stored, and the sentence names it.
#[test]
fn a_bad_line_is_named_and_costs_none_before_it() {
    let long = "k".repeat(MAX_KEY + 1);
    let wide = "v".repeat((1 << 20) + 1);
    let bad: [(&str, &[&str]); 9] = [
        ("no tab here", &["no tab between a key and a value"]),
        ("", &["no tab"]),
        ("\tvalue", &["an empty key"]),
        (&format!("{long}\tvalue"), &["65,536 bytes"]),
        (&format!("key\t{wide}"), &["value", "at most"]),
        ("key\tback\\slash", &["\\s, which is no escape", "\\\\"]),
        ("back\\x\tvalue", &["\\x, which is no escape"]),
        ("key\tvalue\\", &["backslash", "\\\\"]),
        ("back\\\tvalue", &["which is no escape"]),
    ];
    for (line, parts) in bad {
        for end in ["", "\n", "\nlast\tvalue\n"] {
            let at = stored();
            let lines = format!("one\t1\ntwo\t2\nthree\t3\n{line}{end}");
            if line.is_empty() && end.is_empty() {
                continue;
            }
            let sentence = fails(at.kv_given("load", &[], lines.as_bytes()), 1);
            says(&sentence, &["line 4 has ", "load the rest", "the first 3 pairs are stored"]);
            says(&sentence, parts);
            assert!(sentence.len() < 500, "{sentence}");
            assert_eq!(keys(&at), ["one", "three", "two"], "{sentence}");
        }
    }
    let at = stored();
    says(&fails(at.kv_given("load", &[], b"x\n"), 1), &["line 1 has no tab", "nothing is stored"]);
    let output = at.kv_given("load", &["--json"], b"a\tb\nx\n");
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    says(error["error"]["message"].as_str().unwrap(), &["line 2", "the first pair is stored"]);
}

/// What the store refuses by rules of its own is named, too.
#[test]
fn a_pair_that_no_zone_takes_is_named() {
    let at = stored();
    // Each may stand alone, but not both together: a key counts several times.
    let (key, value) = ("k".repeat(MAX_KEY), "v".repeat(900_000));
    let lines = format!("a\t1\n{key}\tsmall\nb\t{value}\n{key}\t{value}\nlast\t2\n");
    let sentence = fails(at.kv_given("load", &[], lines.as_bytes()), 1);
    says(&sentence, &["line 4", "too long for a zone of this drive", "the first 3 pairs are stored"]);
    assert_eq!(keys(&at), ["a", "b", &key]);
}

#[test]
fn a_bad_record_is_named_and_costs_none_before_it() {
    let whole = [record(b"one", b"1"), record(b"two", b"2")].concat();
    let lens = |key: u32, value: u32| [key.to_le_bytes(), value.to_le_bytes()].concat();
    let bad: [(Vec<u8>, &[&str]); 6] = [
        (record(&[b'k'; MAX_KEY + 1], b"value"), &["65,537 bytes", "65,536"]),
        // Lengths are believed only as far as there are bytes.
        (lens(u32::MAX, u32::MAX), &["4,294,967,295 bytes", "--format"]),
        (lens(3, u32::MAX), &["4,294,967,295 bytes", "--format"]),
        (lens(3, 900_000), &["cut off"]),
        ([&lens(3, 5)[..], b"keyvalu"].concat(), &["cut off"]),
        (vec![3, 0, 0], &["cut off"]),
    ];
    for (bytes, parts) in bad {
        let at = stored();
        let sentence = fails(at.kv_given("load", &["--format", "binary"], &[whole.clone(), bytes.clone()].concat()), 1);
        says(&sentence, &["record 3 ", "the first 2 pairs are stored"]);
        says(&sentence, parts);
        assert_eq!(keys(&at), ["one", "two"], "{sentence}");
    }
    // A program may have put an empty key; zeros are not many of them.
    let at = stored();
    let sentence =
        fails(at.kv_given("load", &["--format", "binary"], &[&record(b"", b"of no key")[..], &[0; 80]].concat()), 1);
    says(&sentence, &["record 2 has an empty key, and so had one before it", "the first pair is stored"]);
    assert_eq!(keys(&at), [""]);
    // Lines are no records.
    let at = stored();
    says(&fails(at.kv_given("load", &["--format", "binary"], b"key\tvalue\n"), 1), &["record 1", "--format"]);
    assert_eq!(keys(&at), [""; 0]);
}

/// The most memory that a process ever had, in KiB.
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_line_without_end_takes_no_memory_without_end() {
    for begin in [&b""[..], b"key\t", b"key\tv\\n"] {
        let at = stored();
        let mut child = at.piped(&["kv", "load", at.drive()]);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"first\tpair\n").unwrap();
        waits_for_drive(&at, &mut child);
        let before = peak(&child);
        stdin.write_all(begin).unwrap();
        let piece = vec![b'x'; 1 << 20];
        let (mut sent, mut most) = (0, before);
        // It ends long before all is sent.
        while stdin.write_all(&piece).is_ok() {
            sent += 1;
            assert!(sent < 64, "it reads on and on");
            if child.try_wait().unwrap().is_none() {
                most = most.max(peak(&child));
            }
        }
        assert!(most < before + (32 << 10), "{before} {most}");
        drop(stdin);
        let sentence = fails(child.wait_with_output().unwrap(), 1);
        says(&sentence, &["line 2", "at most", "the first pair is stored"]);
        assert_eq!(keys(&at), ["first"]);
    }
}

/// Ctrl-C, also where it ends whoever writes to the pipe.
#[test]
fn an_interrupted_load_keeps_what_it_has() {
    for (ends, sorted) in [(false, false), (true, false), (false, true), (true, true)] {
        let at = stored();
        let words = ["kv", "load", at.drive(), "--sorted"];
        let mut child = at.piped(&words[..if sorted { 4 } else { 3 }]);
        let mut stdin = child.stdin.take();
        let lines: String = (0..200_000).map(|n| format!("key{n:06}\tvalue\n")).collect();
        // Most of it, and half a line. What a pipe holds and no more is left when this returns, so it is at work.
        stdin.as_mut().unwrap().write_all(&lines.as_bytes()[..lines.len() - 4]).unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        if ends {
            drop(stdin.take());
        }
        let sentence = fails(child.wait_with_output().unwrap(), 1);
        drop(stdin);
        says(&sentence, &["interrupted", "the first ", " pairs are stored"]);
        let told = sentence.split("the first ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "");
        let found = keys(&at);
        assert_eq!(told.parse::<usize>().unwrap(), found.len());
        assert!(found.len() > 50_000 && found.len() < 200_000, "{}", found.len());
        assert!(found.iter().enumerate().all(|(n, key)| *key == format!("key{n:06}")));
        assert!(done(at.kv("check", &[])).contains("nothing is wrong"));
    }
}

#[test]
fn top_shows_the_levels_of_a_store_that_is_in_use() {
    for banded in [false, true] {
        let at = place();
        let (drive, made) = match banded {
            true => (
                format!("banded:{}", at.drive()),
                vec![
                    "drive",
                    "create",
                    "--banded",
                    at.drive(),
                    "--capacity",
                    "64M",
                    "--band",
                    "1M",
                    "--conventional",
                    "4",
                ],
            ),
            false => (at.drive().to_owned(), vec!["drive", "create", at.drive(), "--profile", "tiny"]),
        };
        done(at.run(&made));
        done(at.run(&["kv", "format", &drive]));
        let top = |more: &[&str]| at.run(&[&["top", &drive, "--count", "1", "--interval", "0.05"], more].concat());
        let lines: String = (0..20_000).map(|n| format!("key{n:06}\t{}\n", "v".repeat(300))).collect();
        let store = format!("{drive}?memtable=256K");
        let mut child = at.piped(&["kv", "load", &store]);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
        // Until the first tables are there.
        let (until, user) = (Instant::now() + Duration::from_secs(60), format!("process {} has it open", child.id()));
        loop {
            let shown = done(top(&[]));
            let has_tables = shown.contains("level 0 in ") || shown.contains("bottom in ");
            if has_tables && shown.contains(&user) && shown.contains("log in ") {
                says(&shown, &["; pairs: ", "metadata in 4 zones"]);
                break;
            }
            assert!(Instant::now() < until, "{shown}");
        }
        drop(stdin);
        done(child.wait_with_output().unwrap());
        let facts = json(top(&["--json"]));
        let own = json(at.run(&["drive", "zones", &drive, "--table", "--json"]));
        let held = |zone: &Value| zone["holds"].as_str().is_some_and(|holds| holds == "tables");
        let tables = facts["pairs"].as_object().unwrap().values().filter(|zone| held(zone)).count();
        assert!(tables > 0, "{facts}");
        assert!(own["zones"].as_array().unwrap().len() >= tables);
    }
    // A drive of another engine has no such part.
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.run(&["fs", "format", at.drive()]));
    assert!(!done(at.run(&["top", at.drive(), "--count", "1", "--interval", "0.05"])).contains("pairs"));
}

#[test]
fn a_second_interruption_does_not_wait_for_the_drive() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "hgst-hsh721414al", "--capacity", "8G"]));
    done(at.kv("format", &[]));
    // Each command takes half a second and more.
    let slow = format!("{}?time=pace&speed=0.02", at.drive());
    let mut child = at.piped(&["kv", "load", &slow]);
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = (0..20_000).map(|n| format!("key{n:06}\tvalue\n")).collect();
    stdin.write_all(lines.as_bytes()).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    // Two of a kind might become one.
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!([Some(130), Some(143)].contains(&output.status.code()), "{:?}: {}", output.status, text(&output.stderr));
    // How many it had put by then is chance.
    assert!(keys(&at).iter().enumerate().all(|(n, key)| *key == format!("key{n:06}")));
    assert!(done(at.kv("check", &[])).contains("nothing is wrong"));
}

#[test]
fn sorted_pairs_are_loaded_up_to_one_that_is_not_behind_the_one_before() {
    let at = stored();
    done(at.kv_given("load", &[], b"b\told\nz\told\n"));
    let lines: String = (0..5000).map(|n| format!("b{n:05}\tvalue {n}\n")).collect();
    assert_eq!(done(at.kv_given("load", &["--sorted"], format!("b\tnew\n{lines}").as_bytes())), "5,001 pairs stored\n");
    assert_eq!(done(at.kv("get", &["b"])), "new");
    assert_eq!(done(at.kv("get", &["b04999"])), "value 4999");
    assert_eq!((keys(&at).len(), done(at.kv("get", &["z"]))), (5002, "old".into()));
    assert!(done(at.kv("check", &[])).contains("nothing is wrong"));
    for (form, unit, line) in [("tsv", "line", &b"c\tsame\n"[..]), ("binary", "record", &record(b"b", b"before")[..])] {
        let at = stored();
        let first = match form {
            "tsv" => b"a\t1\nb\t2\nc\t3\n".to_vec(),
            _ => [record(b"a", b"1"), record(b"b", b"2"), record(b"c", b"3")].concat(),
        };
        let input = [&first[..], line, &first].concat();
        let sentence = fails(at.kv_given("load", &["--sorted", "--format", form], &input), 1);
        says(&sentence, &[&format!("{unit} 4 "), "leave --sorted out", "the first 3 pairs are stored"]);
        assert_eq!(keys(&at), ["a", "b", "c"]);
    }
    // Other errors are those of any load.
    let at = stored();
    let sentence = fails(at.kv_given("load", &["--sorted"], b"a\t1\nb\t2\nx\n"), 1);
    says(&sentence, &["line 3 has no tab", "the first 2 pairs are stored"]);
    let key = "k".repeat(MAX_KEY);
    let sentence =
        fails(at.kv_given("load", &["--sorted"], format!("c\t1\n{key}\t{}\n", "v".repeat(900_000)).as_bytes()), 1);
    says(&sentence, &["line 2", "too long for a zone of this drive", "the first pair is stored"]);
    assert_eq!(keys(&at), ["a", "b", "c"]);
    // A space has its own.
    done(at.kv_given("load", &["--sorted", "--space", "users"], b"1\tAda\n2\tGrace\n"));
    assert_eq!(done(at.kv("get", &["--space", "users", "2"])), "Grace");
}

#[test]
fn whoever_reads_may_have_enough_and_other_failures_are_told() {
    let at = numbered(20_000);
    done(at.kv_given("put", &["large", "-"], &bytes(900_000)));
    let runs: [&[&str]; 5] =
        [&["get", "large"], &["scan"], &["scan", "--json"], &["scan", "--keys"], &["scan", "--format", "binary"]];
    for words in runs {
        let words = [&["kv", words[0], at.drive()], &words[1..]].concat();
        let mut child = at.piped(&words);
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 100]).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", text(&output.stderr));
    }
    // A short value is written when the command ends.
    let runs: [&[&str]; 6] = [
        &["get", "key00001"],
        &["get", "key00001", "--json"],
        &["get", "large"],
        &["scan", "--limit", "1"],
        &["scan", "--limit", "1", "--json"],
        &["scan"],
    ];
    for words in runs {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = at.command(&[&["kv", words[0], at.drive()], &words[1..]].concat());
        let output = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        says(&text(&output.stderr), &["writing the output failed", "see where it goes"]);
    }
}

#[test]
fn json_is_an_object_a_line_and_loses_nothing() {
    let at = stored();
    done(at.kv_given("load", &["--format", "binary"], &[record(b"a", b"1"), record(b"b\xff", b"\0\xfe\n")].concat()));
    done(at.kv_given("load", &[], b"c\t\\n\\t\\\\\n"));
    let all = [
        value!({ "key": "a", "value": "1" }),
        value!({ "key_hex": "62ff", "value_hex": "00fe0a" }),
        value!({ "key": "c", "value": "\n\t\\" }),
    ];
    assert_eq!(objects(&done(at.kv("scan", &["--json"]))), all);
    let only = [value!({ "key": "a" }), value!({ "key_hex": "62ff" })];
    assert_eq!(objects(&done(at.kv("scan", &["--json", "--keys", "--limit", "2"]))), only);
    assert_eq!(done(at.kv("scan", &["nothing", "--json"])), "");
}

/// The first objects come while the store is still read: memory holds one pair, and not all.
#[test]
fn json_is_streamed() {
    let at = stored();
    let record = |n: u32| record(&n.to_be_bytes(), &bytes(500_000));
    let records: Vec<u8> = (0..30).flat_map(record).collect();
    done(at.kv_given("load", &["--format", "binary"], &records));
    let mut child = at.piped(&["kv", "scan", at.drive(), "--json"]);
    let mut all = String::new();
    let mut stdout = child.stdout.take().unwrap();
    let mut buf = vec![0; 1 << 20];
    let mut most = 0;
    loop {
        // While the pipe is full it cannot end.
        most = most.max(peak(&child));
        let n = stdout.read(&mut buf).unwrap();
        if n == 0 {
            break;
        }
        all.push_str(std::str::from_utf8(&buf[..n]).unwrap());
        if all.len() > 20_000_000 {
            break;
        }
    }
    assert!(all.len() > 20_000_000, "30 values, two digits a byte");
    drop(stdout);
    assert!(child.wait().unwrap().success());
    assert!(most < 120 << 10, "{most} KiB");
}

#[test]
fn figures_are_told_to_people_and_programs() {
    let at = numbered(1000);
    says(&done(at.kv("stat", &[])), &["level 0", "bottom", "in memory", "log", " used, ", "partitions", "slices"]);
    let figures = json(at.kv("stat", &["--json"]));
    let entries = |figures: &Value| -> u64 {
        figures["levels"].as_array().unwrap().iter().map(|level| level["entries"].as_u64().unwrap()).sum()
    };
    assert!(figures["memory"].as_u64().unwrap() > 0 || entries(&figures) > 0, "{figures}");
    done(at.kv("compact", &[]));
    let figures = json(at.kv("stat", &["--json"]));
    assert_eq!(entries(&figures), 1000, "{figures}");
    assert_eq!((&figures["slices"], &figures["partitions"]), (&1.into(), &1.into()), "{figures}");
    assert!(
        figures["zones"]["used"].as_u64().unwrap() > 0 && figures["zones"]["free"].as_u64().unwrap() > 0,
        "{figures}"
    );
    assert_eq!((&figures["memory"], keys(&at).len()), (&0.into(), 1000));
    let zones = figures["zones"]["used"].as_f64().unwrap() * f64::from(1 << 20);
    assert_eq!(figures["zones"]["used_bytes"].as_f64(), Some(zones), "{figures}");
    let bytes: f64 = figures["levels"].as_array().unwrap().iter().map(|level| level["bytes"].as_f64().unwrap()).sum();
    let part = |figures: &Value, of: &str| figures["space_efficiency"][of].as_f64();
    assert!((part(&figures, "tables").unwrap() - bytes / zones).abs() < 1e-9 && bytes > 0.0, "{figures}");
    assert_eq!((part(&figures, "pairs"), &figures["pairs"], &figures["merges"]), (None, &Value::Null, &0.into()));
    // Of all openings so far.
    let made = &figures["since_made"];
    assert_eq!((&made["puts"], &made["deletes"]), (&1000.into(), &0.into()), "{made}");
    let levels = made["levels"].as_array().unwrap();
    assert_eq!(levels.len(), figures["levels"].as_array().unwrap().len());
    let sum = |of: &str| levels.iter().map(|level| level[of].as_f64().unwrap()).sum::<f64>();
    assert!(sum("flushed") + sum("merged") >= bytes, "{made}");
    assert!((sum("write_amplification") - made["write_amplification"].as_f64().unwrap()).abs() < 1e-9, "{made}");
    assert!(made["steps_of_merges"].is_u64() && made["stalls"]["longest"].is_f64(), "{made}");
    says(&done(at.kv("stat", &[])), &["put so far", "1,000 pairs", "tables written", "times what was put"]);
    // Pairs of all spaces.
    done(at.kv("put", &["--space", "users", "1", "Ada"]));
    let counted = json(at.kv("stat", &["--count", "--json"]));
    let all: usize = (0..1000).map(|n| 8 + format!("value {n}").len()).sum::<usize>() + 4;
    assert_eq!(counted["pairs"], value!({ "number": 1001, "bytes": all }));
    let zones = counted["zones"]["used_bytes"].as_f64().unwrap();
    assert!((part(&counted, "pairs").unwrap() - all as f64 / zones).abs() < 1e-9, "{counted}");
    says(
        &done(at.kv("stat", &["--count"])),
        &["tables fill", "pairs", "1,001, ", "pairs fill", " % of the zones in use"],
    );
}

#[test]
fn a_format_says_what_is_there_and_names_its_own_command() {
    let at = stored();
    done(at.kv("put", &["a", "1"]));
    let sentence = fails(at.kv("format", &[]), 1);
    says(&sentence, &["is already formatted, and nothing was changed", "`imbrex kv format --force`"]);
    assert!(!sentence.contains("imbrex fs"), "{sentence}");
    assert_eq!(done(at.kv("get", &["a"])), "1");
    done(at.kv("format", &["--force"]));
    assert_eq!(keys(&at), [""; 0]);
    // A drive that holds nothing.
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let sentence = fails(at.kv("get", &["a"]), 1);
    says(&sentence, &["has no Imbrex label", "`imbrex kv format`"]);
    assert!(!sentence.contains("imbrex fs"), "{sentence}");
}

/// A drive's URI may have options: wrong ones are told before anything is destroyed, and the policy is the store's own.
#[test]
fn a_format_takes_a_uri() {
    let at = stored();
    done(at.kv("put", &["a", "1"]));
    let format = |options: &str| at.run(&["kv", "format", "--force", &format!("imbrex://{}?{options}", at.drive())]);
    says(&fails(format("nonsense=1"), 2), &["no option \"nonsense\""]);
    says(&fails(format("memtable=much"), 2), &["memtable"]);
    says(&fails(format("policy=none"), 2), &["policy"]);
    assert_eq!(done(at.kv("get", &["a"])), "1");
    says(&done(format("policy=leveled&memtable=1M")), &["an empty key-value store"]);
    assert_eq!(keys(&at), [""; 0]);
    done(at.kv("put", &["a", "1"]));
    let other = format!("imbrex://{}?policy=ring", at.drive());
    says(&fails(at.run(&["kv", "put", &other, "a", "2"]), 1), &["leveled"]);
    assert_eq!(json(at.kv("format", &["--force", "--json"])), value!({ "drive": at.drive() }));
    done(place().run(&["kv", "format", "mem:?profile=tiny"]));
}

#[test]
fn a_drive_of_another_engine_is_told() {
    let at = formatted();
    for (verb, more) in [("get", &["a"][..]), ("put", &["a", "1"]), ("scan", &[]), ("load", &["/dev/null"])] {
        says(&fails(at.kv(verb, more), 1), &["is formatted for bluefs, not for kv", "imbrex fs"]);
    }
    says(&fails(at.kv("format", &[]), 1), &["already formatted", "`imbrex kv format --force`"]);
    assert_eq!(done(at.fs("ls", &[])), "");
    says(&fails(stored().fs("ls", &[]), 1), &["is formatted for kv, not for bluefs"]);
}

#[test]
fn wrong_words_are_told() {
    let at = stored();
    let usage: [&[&str]; 8] = [
        &["get"],
        &["put", "a"],
        &["rm"],
        &["scan", "--limit", "many"],
        &["scan", "--format", "xml"],
        &["scan", "--format", "binary", "--keys"],
        &["scan", "--format", "tsv", "--json"],
        &["load", "--format", "xml", "x"],
    ];
    for words in usage {
        let output = at.kv(words[0], &words[1..]);
        assert!(output.stdout.is_empty(), "{words:?}");
        fails(output, 2);
    }
    says(&fails(at.run(&["kv", "delete", at.drive(), "a"]), 2), &["rm"]);
    says(&fails(at.kv("put", &["", "1"]), 1), &["a key needs at least one byte"]);
    says(&fails(at.kv("put", &[&"k".repeat(MAX_KEY + 1), "1"]), 1), &["65537 bytes is too long"]);
    says(&fails(at.kv_given("put", &["k", "-"], &bytes(2 << 20)), 1), &["too long for a zone"]);
    says(&fails(at.kv("load", &[&at.host("missing")]), 1), &["missing", "check the path"]);
    says(&fails(at.kv("load", &[&at.host("")]), 1), &["is a directory", "name a file"]);
    let missing = at.kv("get", &["a", "--json"]);
    assert_eq!((missing.status.code(), missing.stdout.is_empty()), (Some(1), true));
    let error: Value = serde_json::from_slice(&missing.stderr).unwrap();
    says(error["error"]["message"].as_str().unwrap(), &["there is no key"]);
    let nonsense = format!("imbrex://{}?memtable=much", at.drive());
    says(&fails(at.run(&["kv", "scan", &nonsense]), 2), &["memtable"]);
    for (option, sentence) in [
        ("memtable=NaN", "memtable=NaN"),
        ("memtable=99999999999999999999", "memtable"),
        ("cache=-1", "cache=-1"),
        ("bottom=100", "is not a number from 0 to 99"),
        ("gear-k=0", "is not a number from 1 to 10"),
        ("gear-active=both", "is neither paper nor code"),
        ("compression=snappy", "is not one of off, lz4, zstd"),
        ("reads-at-once=0", "is not a number from 1 to 256"),
        ("nothing=1", "there is no option"),
    ] {
        says(&fails(at.run(&["kv", "scan", &format!("imbrex://{}?{option}", at.drive())]), 2), &[sentence]);
    }
    assert_eq!(keys(&at), [""; 0]);
}

#[test]
fn two_at_once_are_one_too_many() {
    let at = stored();
    let mut child = at.piped(&["kv", "load", at.drive()]);
    waits_for_drive(&at, &mut child);
    let holder = format!("in use by process {}", child.id());
    let verbs: [(&str, &[&str]); 9] = [
        ("get", &["a"]),
        ("put", &["a", "1"]),
        ("rm", &["a"]),
        ("scan", &[]),
        ("load", &["/dev/null"]),
        ("stat", &[]),
        ("compact", &[]),
        ("check", &[]),
        ("format", &["--force"]),
    ];
    for (verb, more) in verbs {
        says(&fails(at.kv(verb, more), 4), &[&holder, "stop it first"]);
    }
    child.stdin.take().unwrap().write_all(b"a\t1\n").unwrap();
    assert_eq!(done(child.wait_with_output().unwrap()), "1 pair stored\n");
    assert_eq!(done(at.kv("get", &["a"])), "1");
}

/// A drive that is full says so, keeps what it has, and takes more when something was removed.
#[test]
fn a_full_drive_is_told_and_can_be_deleted_from() {
    let at = stored();
    let records = (0..400u32).flat_map(|n| record(format!("key{n:03}").as_bytes(), &bytes(200_000)));
    let records: Vec<u8> = records.collect();
    let sentence = fails(at.kv_given("load", &["--format", "binary"], &records), 1);
    says(&sentence, &["no space left; delete something", "the first ", " pairs are stored"]);
    let found = keys(&at);
    says(&sentence, &[&format!("the first {} pairs are stored", found.len())]);
    assert!(found.len() > 100, "{}", found.len());
    says(&fails(at.kv_given("put", &["one more", "-"], &bytes(900_000)), 1), &["no space left; delete something"]);
    assert_eq!(keys(&at), found);
    let half: Vec<&str> = found.iter().step_by(2).map(String::as_str).collect();
    done(at.kv("rm", &half));
    done(at.kv_given("put", &["one more", "-"], &bytes(900_000)));
    assert!(printed(at.kv("get", &["one more"])) == bytes(900_000));
    assert!(printed(at.kv("get", &[&found[1]])) == bytes(200_000));
    assert_eq!(keys(&at).len(), found.len() - half.len() + 1);
    assert!(done(at.kv("check", &[])).contains("nothing is wrong"));
}

#[test]
fn the_table_of_zones_says_whose_they_are() {
    let at = numbered(1000);
    done(at.kv("compact", &[]));
    says(&done(at.run(&["drive", "zones", at.drive(), "--table"])), &["kv: at least ", " leased", " free"]);
    let list = done(at.run(&["drive", "zones", at.drive(), "--table", "--list"]));
    says(&list, &["zones      0 to", "kv", "nobody's"]);
    let table = json(at.run(&["drive", "zones", at.drive(), "--table", "--json"]));
    let tenants = table["tenants"].as_array().unwrap();
    assert_eq!((tenants.len(), &tenants[0]["name"]), (1, &"kv".into()));
    let zones = table["zones"].as_array().unwrap();
    assert_eq!(zones.len(), 64);
    let leased = zones.iter().filter(|zone| zone["tenant"] == "kv" && zone["state"] != "free").count();
    assert!(leased > 0 && tenants[0]["leased"].as_u64().unwrap() > 0, "{table}");
    assert!(zones.iter().enumerate().all(|(n, zone)| zone["zone"] == n), "{table}");
    // And what the store has in them.
    let of = |key: &str, value: &str| zones.iter().filter(|zone| zone["content"][key] == value).collect::<Vec<_>>();
    let (bottom, metadata) = (of("level", "bottom"), of("holds", "metadata"));
    assert!(bottom.len() == 1 && bottom[0]["content"]["live"].as_u64() > Some(0) && !metadata.is_empty(), "{table}");
    assert!(zones.iter().all(|zone| zone["content"].is_null() || zone["tenant"] == "kv"), "{table}");
    says(&list, &[": bottom, ", " % of what is written counts", ": metadata"]);
    let drawn = done(at.run(&["drive", "zones", at.drive(), "--table"]));
    says(&drawn, &["\n     0  -", " M ", " B ▁", "B bottom"]);
    let svg = at.host("zones.svg");
    done(at.run(&["drive", "zones", at.drive(), "--picture", &svg]));
    says(&text(&content(svg)), &["bottom 1<", "metadata ", "of use"]);
    // Of a file system, and of a drive that holds nothing.
    let at = formatted();
    says(&done(at.run(&["drive", "zones", at.drive(), "--table"])), &["bluefs: at least "]);
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    says(&fails(at.run(&["drive", "zones", at.drive(), "--table"]), 1), &["has no Imbrex label"]);
}

#[test]
fn a_space_has_its_own_keys_until_it_is_dropped() {
    let at = stored();
    done(at.kv("put", &["key", "in none"]));
    done(at.kv("put", &["--space", "users", "key", "Ada"]));
    done(at.kv_given("load", &["--space", "more users"], b"a\t1\nb\t2\nc\t3\n"));
    assert_eq!(done(at.kv("ls", &[])), "more users\nusers\n");
    let all = json(at.kv("ls", &["--json"]));
    assert_eq!(all["spaces"][1], value!({ "name": "users", "order": "leveldb.BytewiseComparator" }));
    assert_eq!(done(at.kv("get", &["key"])), "in none");
    assert_eq!(done(at.kv("get", &["key", "--space", "users"])), "Ada");
    assert_eq!(done(at.kv("scan", &["--space", "more users", "--reverse"])), "c\t3\nb\t2\na\t1\n");
    for verb in ["get", "rm"] {
        says(&fails(at.kv(verb, &["key", "--space", "nobody's"]), 1), &["there is no space \"nobody's\""]);
    }
    says(&fails(at.kv("scan", &["--space", "nobody's"]), 1), &["there is no space \"nobody's\""]);
    done(at.kv("rm", &["--space", "more users", "a"]));
    done(at.kv("drop", &["users"]));
    says(&fails(at.kv("drop", &["users"]), 1), &["there is no space \"users\""]);
    assert_eq!(done(at.kv("ls", &[])), "more users\n");
    assert_eq!(done(at.kv("scan", &[])), "key\tin none\n");
    assert_eq!(done(at.kv("scan", &["--space", "more users"])), "b\t2\nc\t3\n");
    says(&done(at.kv("check", &[])), &["nothing is wrong"]);
}

#[test]
fn a_checkpoint_keeps_what_the_store_had() {
    let at = stored();
    done(at.kv("put", &["key", "old"]));
    done(at.kv("put", &["--space", "users", "1", "Ada"]));
    done(at.kv("checkpoint", &["monday"]));
    says(&fails(at.kv("checkpoint", &["monday"]), 1), &["there is a checkpoint \"monday\" already"]);
    done(at.kv("put", &["key", "new"]));
    done(at.kv("rm", &["--space", "users", "1"]));
    done(at.kv("compact", &[]));
    assert_eq!(done(at.kv("checkpoint", &[])), "monday\n");
    assert_eq!(json(at.kv("checkpoint", &["--json"])), value!({ "checkpoints": ["monday"] }));
    assert_eq!(done(at.kv("get", &["key"])), "new");
    assert_eq!(done(at.kv("get", &["key", "--at", "monday"])), "old");
    assert_eq!(done(at.kv("scan", &["--space", "users", "--at", "monday"])), "1\tAda\n");
    says(&fails(at.kv("scan", &["--at", "sunday"]), 1), &["there is no checkpoint \"sunday\""]);
    done(at.kv("checkpoint", &["monday", "--drop"]));
    says(&fails(at.kv("checkpoint", &["monday", "--drop"]), 1), &["there is no checkpoint \"monday\""]);
    assert_eq!(done(at.kv("checkpoint", &[])), "");
    fails(at.kv("checkpoint", &["--drop"]), 2);
}

#[test]
fn a_range_is_removed_with_one_command() {
    let at = numbered(3000);
    done(at.kv("rm", &["--from", "key00010", "--to", "key02990", "key00000"]));
    assert_eq!(keys(&at).len(), 19);
    done(at.kv("rm", &["--to", "key00005"]));
    assert_eq!(keys(&at)[0], "key00005");
    says(&fails(at.kv("rm", &["--from", "b", "--to", "a"]), 1), &["ends before it begins"]);
    says(&fails(at.kv("rm", &[]), 2), &["KEYS", "--help"]);
    done(at.kv("rm", &["--from", ""]));
    assert_eq!(keys(&at), [""; 0]);
    done(at.kv("compact", &[]));
    assert_eq!(json(at.kv("stat", &["--json"]))["deleted_ranges"], 0);
}

#[test]
fn values_have_a_time_to_live() {
    let at = stored();
    let past = |key: &str| {
        // A time of 2020, as a program writes it.
        let value = [&1_600_000_000u64.to_le_bytes()[..], b"old"].concat();
        done(at.kv_given("load", &["--format", "binary", "--space", "s"], &record(key.as_bytes(), &value)));
    };
    done(at.kv("put", &["--space", "s", "young", "Ada", "--ttl", "3600"]));
    done(at.kv("put", &["--space", "s", "never", "Grace", "--ttl", "0"]));
    past("over");
    done(at.kv_given("load", &["--space", "s", "--ttl", "100000"], b"loaded\tvalue\n"));
    let timed = |verb: &str, more: &[&str]| at.kv(verb, &[&["--space", "s", "--timed"], more].concat());
    assert_eq!(done(timed("scan", &[])), "loaded\tvalue\nnever\tGrace\nyoung\tAda\n");
    assert_eq!(done(timed("get", &["young"])), "Ada");
    assert_eq!(objects(&done(timed("get", &["never", "--json"]))), [value!({ "key": "never", "value": "Grace" })]);
    says(&fails(timed("get", &["over"]), 1), &["there is no key \"over\""]);
    // As it is stored.
    assert_eq!(&printed(at.kv("get", &["--space", "s", "over"]))[8..], b"old");
    // Also where it was merged before.
    done(at.kv("compact", &[]));
    past("over too");
    done(timed("compact", &[]));
    assert_eq!(done(at.kv("scan", &["--space", "s", "--keys"])), "loaded\nnever\nyoung\n");
    assert_eq!(json(at.kv("stat", &["--json", "--count"]))["pairs"]["number"], 3);
    // Two seconds are enough to read it, and it is over soon.
    done(at.kv("put", &["--space", "s", "soon", "gone", "--ttl", "2"]));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while timed("get", &["soon"]).status.success() {
        assert!(std::time::Instant::now() < until, "it is never over");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // What has no time is told, and nothing is taken for one.
    done(at.kv("put", &["plain", "Ada Lovelace"]));
    says(
        &fails(at.kv("get", &["plain", "--timed"]), 1),
        &["\"plain\"", "does not begin with a time", "without --timed"],
    );
    says(&fails(at.kv("scan", &["--timed"]), 1), &["does not begin with a time"]);
    assert_eq!(done(at.kv("scan", &["--timed", "--keys"])), "plain\n");
    done(at.kv("compact", &["--timed"]));
    assert_eq!(done(at.kv("get", &["plain"])), "Ada Lovelace");
    for bad in ["-1", "soon", "99999999999999999999"] {
        fails(at.kv("put", &["plain", "x", "--ttl", bad]), 2);
    }
}

#[test]
fn options_say_how_tables_are_made() {
    let at = stored();
    let lines: String = (0..4000).map(|n| format!("key{n:05}\t{}\n", "always this ".repeat(20))).collect();
    let stored = |option: &str| {
        let uri = format!("imbrex://{}?{option}", at.drive());
        done(at.given(&["kv", "load", &uri], lines.as_bytes()));
        done(at.run(&["kv", "compact", &uri, "--from", "key00000"]));
        let stat = json(at.kv("stat", &["--json"]));
        stat["levels"].as_array().unwrap().iter().map(|level| level["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let [off, lz4, zstd] = ["compression=off", "compression=lz4", "compression=zstd"].map(stored);
    assert!(lz4 < off / 4 && zstd < off / 4, "{off} {lz4} {zstd}");
    // Nobody has to say it again.
    assert_eq!(done(at.kv("scan", &[])), lines);
    says(&done(at.kv("check", &[])), &["nothing is wrong"]);
}

#[test]
fn a_full_disk_of_the_host_is_told_with_what_is_there() {
    let apart = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "timeout", "60", "sh", "-ec", script]);
        command.output()
    };
    if !apart("true").is_ok_and(|output| output.status.success()) {
        let test = "a_full_disk_of_the_host_is_told_with_what_is_there";
        eprintln!("not run: {test}: needs root and unshare (package util-linux)");
        return;
    }
    let at = place();
    let lines: String = (0..8000).map(|n| format!("key{n:05}\t{}\n", "x".repeat(4000))).collect();
    std::fs::write(at.host("lines"), lines).unwrap();
    std::fs::create_dir(at.host("small")).unwrap();
    let (lines, small) = (at.host("lines"), at.host("small"));
    let script = format!(
        "mount -t tmpfs -o size=12m none {small}
        export IMBREX_SHM_DIR={}
        {IMBREX} drive create {small}/d --profile tiny >/dev/null
        {IMBREX} kv format {small}/d >/dev/null
        ! {IMBREX} kv load {small}/d {lines}
        {IMBREX} kv scan {small}/d --keys",
        at.host("")
    );
    let output = apart(&script).unwrap();
    let sentence = text(&output.stderr);
    assert!(output.status.success(), "{sentence}");
    says(&sentence, &["the host's disk is full", "make room", "pairs"]);
    assert_eq!(sentence.matches("make room").count(), 1, "{sentence}");
    // What the sentence counts is there, since the image could take what the process had in memory.
    let there = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    let told = sentence.rsplit("; ").next().unwrap().trim_start_matches("the first ");
    let told: usize = told.split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(told > 500 && there >= told, "{there} of {told}");
}
