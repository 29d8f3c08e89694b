//! What a new user meets: messages say what is wrong and what to do, and nothing destructive first.

mod support;

use std::os::unix::fs::MetadataExt;
use support::*;

/// A place with an empty chunk store on a drive of 64 zones of 1 MiB.
fn with_chunks() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.chunk("format", &[]));
    at
}

/// An empty file of the host of so many bytes, which takes no room.
fn sparse(at: &Place, name: &str, len: u64) -> String {
    let path = at.file(name, "");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
    path
}

fn lacks(sentence: &str, part: &str) {
    assert!(!sentence.contains(part), "{sentence:?} has {part:?}");
}

#[test]
fn a_drive_of_another_engine_is_not_to_be_formatted_anew() {
    let at = with_chunks();
    let sentence = fails(at.fs("ls", &[]), 1);
    says(&sentence, &["is formatted for chunkstore, not for bluefs; use `imbrex chunk`, or name another drive"]);
    lacks(&sentence, "format it");
    let at = formatted();
    says(&fails(at.chunk("ls", &[]), 1), &["is formatted for bluefs, not for chunkstore; use `imbrex fs`, or name"]);
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let sentence = fails(at.fs("ls", &[]), 1);
    assert!(sentence.find("right drive").unwrap() < sentence.find("format a new one").unwrap(), "{sentence}");
}

#[test]
fn a_capacity_that_is_too_small_is_told_as_it_was_given() {
    let at = place();
    let sentence = fails(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--capacity", "100"]), 2);
    says(&sentence, &["a capacity of 100 bytes is less than two zones of 1048576", "larger capacity"]);
    lacks(&sentence, "mem:");
    let sentence = fails(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--conventional", "65"]), 2);
    says(&sentence, &["65 conventional zones are more than all 64"]);
    lacks(&sentence, "mem:");
    assert!(!at.path.exists());
}

#[test]
fn a_range_that_runs_backwards_is_turned_round() {
    let at = formatted();
    says(&fails(at.run(&["drive", "reset", at.drive(), "9-5"]), 2), &["9-5 runs backwards; write 5-9"]);
    says(&fails(at.run(&["drive", "finish", at.drive(), "60-64"]), 2), &["its zones are 0 to 63"]);
}

#[test]
fn precondition_speaks_of_nothing_that_was_not_asked_for() {
    let at = formatted();
    let sentence = fails(at.run(&["drive", "precondition", at.drive()]), 1);
    says(&sentence, &["no drive-managed drive", "imbrex drive create", "--profile seagate-st8000as0022"]);
    lacks(&sentence, "time=");
    // Who asked for it is told to leave it out.
    let named = format!("{}?time=account", at.drive());
    says(&fails(at.run(&["fs", "ls", &named]), 1), &["no time model", "leave time= out"]);
}

#[test]
fn a_profile_with_an_error_is_told_in_one_line() {
    let at = place();
    let own = at.file("own.toml", "name = \"own\"\ndescription = \"mine\"\nzonesize = 4096\n");
    for words in
        [&["drive", "create", at.drive(), "--profile", &own][..], &["drive", "replay", at.drive(), "--profile", &own]]
    {
        let sentence = text(&at.run(words).stderr);
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        says(&sentence, &["own.toml", "line 3: unknown field `zonesize`; the nearest are zone_size and "]);
    }
}

#[test]
fn more_than_a_chunk_takes_is_told_with_the_limit() {
    let at = with_chunks();
    let id = done(at.chunk("put", &[&at.file("x", "abc"), "--open"])).trim().to_owned();
    let limit = json(at.chunk("stat", &[&id, "--json"]))["limit"].to_string();
    let sentence = fails(at.chunk("append", &[&id, &sparse(&at, "big", 5 << 30)]), 1);
    says(&sentence, &[&format!("a chunk takes {limit} bytes at most, and these are 5368709120"), "imbrex chunk put"]);
}

#[test]
fn a_number_of_nothing_is_told_without_that_of_all_numbers() {
    let at = with_chunks();
    let sentence = fails(at.chunk("ls", &["--limit", "0"]), 2);
    says(&sentence, &["\"0\" is no number from 1 on"]);
    lacks(&sentence, "18446744073709551615");
}

#[test]
fn no_space_says_how_much_is_needed_and_how_much_is_free() {
    let at = formatted();
    let big = sparse(&at, "big", 100 << 20);
    let sentence = fails(at.fs("cp", &[&big, ":/big.sst"]), 1);
    says(
        &sentence,
        &["no space left; delete something", "; /big.sst needs 104,857,600 bytes, and ", " bytes are free ("],
    );
    lacks(&sentence, " and 0 bytes are free");
    let at = with_chunks();
    let free = json(at.chunk("df", &["--json"]))["free"].as_u64().unwrap();
    let sentence = fails(at.chunk("put", &[&sparse(&at, "big", 100 << 20)]), 1);
    says(&sentence, &["no space left", "it needs 104,857,600 bytes"]);
    assert!(sentence.replace(',', "").contains(&format!("and {free} bytes are free")), "{free}: {sentence}");
}

#[test]
fn verbs_of_other_programs_lead_to_ours() {
    let at = place();
    for (words, part) in [
        (["chunk", "delete"], "'rm'"),
        (["fs", "delete"], "'rm'"),
        (["chunk", "mv"], "'rm'"),
        (["drive", "mkfs"], "'create'"),
    ] {
        says(&fails(at.run(&[words[0], words[1], "x.img"]), 2), &["unrecognized subcommand", part]);
    }
}

#[test]
fn of_an_unknown_option_the_nearest_two_are_named() {
    let at = formatted();
    for (verb, option, nearest) in [("fs", "cach=1M", "cache and "), ("chunk", "openzones=3", "open-zones and ")] {
        let named = format!("imbrex://{}?{option}", at.drive());
        let sentence = fails(at.run(&[verb, "df", &named]), 2);
        says(&sentence, &["there is no option", "the nearest are", nearest]);
        assert!(sentence.len() < 160 + at.drive().len(), "{sentence}");
    }
    let sentence = fails(at.run(&["drive", "create", &at.host("y"), "--profile", "hgst-hsh721414"]), 2);
    says(&sentence, &["the nearest are hgst-hsh721414al and ", "imbrex drive profiles"]);
}

#[test]
fn an_experiment_that_is_none_is_told_before_what_is_missing() {
    let at = place();
    let sentence = fails(at.run(&["bench", "run", "chunk-wirte"]), 2);
    says(
        &sentence,
        &["there is no experiment \"chunk-wirte\"", "the nearest are chunk-write and ", "imbrex bench list"],
    );
    lacks(&sentence, "--out");
    says(&fails(at.run(&["bench", "run", "all"]), 2), &["--out"]);
}

#[test]
fn a_list_of_zones_is_short_on_a_new_drive() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "hgst-hsh721414al"]));
    assert_eq!(done(at.run(&["drive", "zones", at.drive(), "--list"])), "zones     0 to 523  conventional\n");
    let at = formatted();
    done(at.fs("cp", &[&at.file("x", bytes(100_000)), ":/x.sst"]));
    let list = done(at.run(&["drive", "zones", at.drive(), "--list"]));
    assert!(list.starts_with("zones     0 to 3  conventional\nzone      4  ") && list.lines().count() < 6, "{list}");
}

#[test]
fn info_tells_of_bands_in_conventional_zones() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--conventional", "16"]));
    let info = |more: &[&str]| at.run(&[&["drive", "info", at.drive()], more].concat());
    lacks(&done(info(&[])), "bands");
    assert!(json(info(&["--json"]))["bands"].is_null());
    let named = format!("{}?conventional=as-sequential", at.drive());
    let bands = json(at.run(&["drive", "create", "--banded", &named, "--json"]))["bands"].clone();
    says(&done(info(&[])), &[&format!("conventional       16; they serve as {bands} sequential zones (bands)")]);
    assert_eq!(json(info(&["--json"]))["bands"], bands);
    // Also while somebody has the drive.
    done(at.run(&["fs", "format", &named]));
    let mut child = at.copying(":/x", b"bytes");
    while json(info(&["--json"]))["in_use_by"].is_null() {
        assert!(child.try_wait().unwrap().is_none());
    }
    assert_eq!(json(info(&["--json"]))["bands"], bands);
    drop(child.stdin.take());
    done(child.wait_with_output().unwrap());
}

#[test]
fn metrics_that_a_command_does_not_give_are_a_warning() {
    let at = with_chunks();
    let file = at.file("x", "abc");
    let put = |more: &[&str]| {
        let words = [&["chunk", "put", at.drive(), &file, "--no-name"], more].concat();
        let output = at.command(&words).env("IMBREX_METRICS", "127.0.0.1:9899").output().unwrap();
        assert!(output.status.success());
        text(&output.stderr)
    };
    let warning = put(&[]);
    says(&warning, &["imbrex: IMBREX_METRICS is for programs that load libimbrex.so", "imbrex top"]);
    assert_eq!(warning.lines().count(), 1);
    let warning: serde_json::Value = serde_json::from_str(&put(&["--json"])).unwrap();
    says(warning["warning"].as_str().unwrap(), &["IMBREX_METRICS"]);
    done(at.chunk("ls", &[]));
}

#[test]
fn a_large_drive_of_chunks_takes_little_on_the_host() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "seagate-st20000nm001j", "--capacity", "4T"]));
    let on_host = || std::fs::metadata(&at.path).unwrap().blocks() * 512;
    let before = on_host();
    done(at.chunk("format", &[]));
    assert!(on_host() - before < 32 << 20, "{} bytes more", on_host() - before);
}

#[test]
fn one_thing_has_no_s() {
    let at = with_chunks();
    let id = done(at.chunk("put", &[&at.file("x", "a")])).trim().to_owned();
    says(&done(at.chunk("check", &[])), &["(1 chunk, 1 record, 1 verified)"]);
    says(&done(at.chunk("stat", &[&id])), &["1 byte in 1 record, zone", "size     1 byte\n"]);
    says(&done(at.chunk("ls", &["--long"])), &["1 record in 1 zone"]);
    let at = formatted();
    done(at.fs("cp", &[&at.file("x", "a"), ":/x.sst"]));
    says(&done(at.fs("check", &[])), &["(1 file, "]);
    says(&done(at.fs("backup", &[&at.host("backup")])), &["1 file, 1 backed up"]);
    says(&done(at.run(&["drive", "finish", at.drive(), "60"])), &["finish of 1 zone\n"]);
}

#[test]
fn man_pages_say_what_a_command_does() {
    let at = place();
    let dir = at.host("man");
    std::fs::create_dir(&dir).unwrap();
    done(at.run(&["man", &dir]));
    let page = |name: &str| text(&content(format!("{dir}/{name}.1")));
    lacks(&page("imbrex"), "The imbrex command");
    says(&page("imbrex"), &["imbrex \\- Store files and chunks on zoned drives"]);
    says(&page("imbrex-chunk-get"), &["imbrex\\-chunk\\-get \\- Print chunks"]);
    says(&page("imbrex"), &["imbrex 0.1.0", "imbrex\\-drive(1)", ".SS \"Of imbrex chunk:\""]);
    says(&page("imbrex-fs-ls"), &[".B cache=", ".SH \"SEE ALSO\"\nimbrex\\-fs(1)"]);
    lacks(&page("imbrex-drive-create"), "URI OPTIONS");
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let page = text(&content(&path));
        lacks(&page, "help(1)");
        lacks(&page, ".SH EXTRA");
        says(&page, &[".SH EXAMPLES\n.nf\n", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT"]);
        let name = page.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap();
        assert!(name.split_once(" \\- ").is_some_and(|(_, what)| what.len() > 10), "{path:?}: {name}");
    }
}
