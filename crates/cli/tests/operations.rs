//! What an operator looks at: pictures, `imbrex top`, completions, man pages, and files through the kernel.

mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::*;

#[test]
fn pictures_show_every_zone() {
    let at = formatted();
    done(at.fs("cp", &[&at.file("x.sst", bytes(2_000_000)), ":/x.sst"]));
    let (svg, png) = (at.host("zones.svg"), at.host("zones.png"));
    done(at.run(&["drive", "zones", at.drive(), "--picture", &svg]));
    done(at.run(&["drive", "zones", at.drive(), "--picture", &png]));
    let svg = text(&content(svg));
    assert!(svg.starts_with("<svg") && svg.matches("<rect").count() > 64, "{svg}");
    says(&svg, &["64 zones of 1M", "conventional", "full"]);
    let png = content(png);
    assert_eq!(&png[1..4], b"PNG");
    let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
    says(&svg, &[&format!("width=\"{width}\"")]);
    says(&fails(at.run(&["drive", "zones", at.drive(), "--picture", "zones.gif"]), 2), &[".png or .svg"]);
    says(&fails(at.run(&["drive", "zones", at.drive(), "--picture", "/nowhere/z.png"]), 1), &["somewhere else"]);
}

#[test]
fn top_sees_what_another_process_does() {
    let at = formatted();
    let mut top = at.command(&["top", at.drive(), "--interval", "0.5", "--count", "4", "--json"]);
    let top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut copy = at.copying(":/x.sst", &bytes(3_000_000));
    let output = top.wait_with_output().unwrap();
    let looks: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 4);
    let written: u64 = looks.iter().filter_map(|look| look["rates"]["total"]["bytes_written"].as_u64()).sum();
    assert!(written > 1_000_000, "{looks:?}");
    assert!(looks.iter().any(|look| look["in_use_by"] == copy.id()), "{looks:?}");
    assert_eq!(looks[3]["zones"].as_object().unwrap().values().filter_map(|n| n.as_u64()).sum::<u64>(), 64);
    drop(copy.stdin.take());
    assert!(copy.wait().unwrap().success());
    // Plain lines where there is no terminal.
    let plain = done(at.run(&["top", at.drive(), "--interval", "0.05", "--count", "2"]));
    assert_eq!(plain.lines().count(), 2);
    assert!(!plain.contains('\x1b'), "{plain:?}");
    says(&plain, &["written 0/s", "conventional", "nobody that says so has it open"]);
    let banded = format!("banded:{}", at.host("disk.img"));
    done(at.run(&["drive", "create", "--banded", &at.host("disk.img"), "--capacity", "64M", "--band", "1M"]));
    says(&done(at.run(&["top", &banded, "--interval", "0.05", "--count", "1"])), &["written 0/s", "empty"]);
    says(&fails(at.run(&["top", at.drive(), "--interval", "0"]), 2), &["between 0.05 and 3600"]);
    says(&fails(at.run(&["top", &at.host("none.img")]), 1), &["imbrex drive create"]);
}

#[test]
fn top_sees_a_key_value_store() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.kv("format", &[]));
    let mut top = at.command(&["top", at.drive(), "--interval", "0.5", "--count", "4", "--json"]);
    let top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut load = at.piped(&["kv", "load", at.drive()]);
    let mut stdin = load.stdin.take().unwrap();
    let lines = (0..8000).map(|n| format!("key{n:05}\t{n:0400}\n"));
    stdin.write_all(lines.collect::<String>().as_bytes()).unwrap();
    let looks = text(&top.wait_with_output().unwrap().stdout);
    let looks: Vec<serde_json::Value> = looks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    drop(stdin);
    assert!(load.wait().unwrap().success());
    assert!(looks.iter().any(|look| look["in_use_by"] == load.id()), "{looks:?}");
    let written = |cause: &str| -> u64 {
        looks.iter().filter_map(|look| look["rates"]["by_cause"][cause]["bytes_written"].as_u64()).sum()
    };
    // The log and tables; and where those are.
    assert!(written("wal") + written("user_write") > 1_000_000 && written("journal") > 0, "{looks:?}");
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let at = place();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        says(&done(at.run(&["completions", shell])), &["salvage", "power-loss", "host-sync"]);
    }
    let bash = at.file("imbrex.bash", done(at.run(&["completions", "bash"])));
    let checked = Command::new("bash").args(["-n", &bash]).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    // What bash completes behind these words, the last of them begun.
    let completed = |words: &str| {
        let asked = format!(
            ". {bash}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _imbrex imbrex \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo ${{COMPREPLY[*]}}"
        );
        let answer = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
        text(&answer.stdout).trim().to_owned()
    };
    assert_eq!(
        completed("imbrex drive create x.img --profile seagate-st1"),
        "seagate-st13125nm007 seagate-st16000nm001g"
    );
    assert_eq!(completed("imbrex drive replay x.img --profile ti"), "tiny");
    assert_eq!(completed("imbrex bench run bluefs-a"), "bluefs-async");
    assert_eq!(completed("imbrex bench run al"), "all");
    for shell in ["zsh", "fish"] {
        says(&done(at.run(&["completions", shell])), &["hgst-hsh721414al", "chunk-recovery"]);
    }
    let dir = at.host("man");
    says(&fails(at.run(&["man", &dir]), 1), &["mkdir -p"]);
    std::fs::create_dir(&dir).unwrap();
    done(at.run(&["man", &dir]));
    for (page, says_so) in [
        ("imbrex.1", "imbrex\\-drive(1)"),
        ("imbrex-drive-zones.1", "\\-\\-picture"),
        ("imbrex-fs-salvage.1", "\\-\\-quick"),
        ("imbrex-top.1", "\\-\\-interval"),
    ] {
        let page = text(&content(Path::new(&dir).join(page)));
        says(&page, &[".TH imbrex", says_so]);
    }
}

/// Why directories cannot be mounted here; `None`: they can.
fn no_fuse() -> Option<String> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    device.err().map(|error| format!("/dev/fuse: {error}"))
}

#[test]
fn files_are_seen_through_the_kernel() {
    let at = formatted();
    let source = at.host("source");
    std::fs::create_dir_all(Path::new(&source).join("db")).unwrap();
    std::fs::write(Path::new(&source).join("db/000007.sst"), bytes(2_500_001)).unwrap();
    std::fs::write(Path::new(&source).join("CURRENT"), "x\n").unwrap();
    done(at.fs("cp", &[&source, ":/all"]));
    says(&fails(at.fs("mount", &[&at.host("none")]), 1), &["mkdir"]);
    if let Some(why) = no_fuse() {
        println!("not tested: {why}");
        return;
    }
    let dir = at.host("mounted");
    std::fs::create_dir(&dir).unwrap();
    let before = content(&at.path);
    let mut mount = at.command(&["fs", "mount", at.drive(), &dir]);
    let mut mount = mount.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let seen = Path::new(&dir).join("all/db/000007.sst");
    let end = Instant::now() + Duration::from_secs(30);
    while !seen.exists() {
        if let Some(status) = mount.try_wait().unwrap() {
            let output = mount.wait_with_output().unwrap();
            panic!("{status}: {}", text(&output.stderr));
        }
        assert!(Instant::now() < end, "it is mounted within half a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    let look = || {
        assert!(content(&seen) == bytes(2_500_001));
        let find = Command::new("find").args([&dir, "-type", "f"]).output().unwrap();
        assert_eq!(text(&find.stdout).lines().count(), 2);
        let copy = at.host("copy");
        assert!(Command::new("cp").args(["-r", &format!("{dir}/all"), &copy]).status().unwrap().success());
        assert_eq!(content(Path::new(&copy).join("CURRENT")), b"x\n");
        std::fs::write(Path::new(&dir).join("new"), "x").unwrap_err();
        std::fs::remove_file(&seen).unwrap_err();
    };
    // Whatever a look finds, nothing stays mounted.
    let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
    let killed = Command::new("kill").args(["-INT", &mount.id().to_string()]).status().unwrap();
    let output = mount.wait_with_output().unwrap();
    if let Err(panic) = looked {
        std::panic::resume_unwind(panic);
    }
    assert!(killed.success() && output.status.success(), "{}", text(&output.stderr));
    assert!(!seen.exists(), "it is unmounted");
    assert!(content(&at.path) == before, "the drive stays as it was");
}
