//! The key-value store's API, from C and C++: compiles `kv.c` and `kv_throws.cc` against the header that is checked in, and runs them.

use imbrex_bluefs::BlueFs;
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, OpenOptions};
use imbrex_kv::Kv;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A program made of a source, which is named from this directory.
fn built(dir: &Path, source: impl AsRef<Path>, compiler: &[&str]) -> PathBuf {
    // The library that was built with this test stands beside it.
    let exe = std::env::current_exe().expect("this program");
    let libraries = exe.parent().expect("its directory");
    // The program asks for it by its SONAME.
    std::os::unix::fs::symlink(libraries.join("libimbrex.so"), dir.join("libimbrex.so.1")).expect("a link");
    let program = dir.join("program");
    let built = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(Path::new(HERE).join("tests").join(source))
        .arg(format!("-I{HERE}"))
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", dir.display()))
        .arg("-limbrex")
        .output()
        .expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// An image of a drive.
fn drive(path: &Path) -> Drive {
    drop(Emulator::create(path, &Config::tiny(), false).expect("a drive"));
    Drive { device: Arc::new(Emulator::open(path, OpenOptions::default()).expect("the drive")), survivor: None }
}

fn uri(path: &Path) -> String {
    format!("imbrex://{}?survivor-size=1M&memtable=256K", path.display())
}

fn succeeded(ran: &Output) {
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.is_empty(), "{}: {said}", ran.status);
}

#[test]
fn a_c_program_keeps_keys_and_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = built(dir.path(), "kv.c", &["cc", "-std=gnu11"]);
    let path = dir.path().join("drive.img");
    Kv::format(&drive(&path), None, false).expect("formatted");
    for what in ["all", "die", "dead"] {
        succeeded(&Command::new(&program).args([&uri(&path), what]).output().expect("it runs"));
    }
    let refused = |uri: &str| {
        let ran = Command::new(&program).args([uri, "refused"]).output().expect("it runs");
        succeeded(&ran);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let (code, sentence) = said.split_once(' ').expect("a code and a sentence");
        (code.parse::<u32>().expect("a code"), sentence.to_owned())
    };
    // A space's order is the program's own.
    let (code, sentence) = refused(&uri(&path));
    assert!(code == 7 && sentence.contains("numbers downwards"), "{code} {sentence}");
    let other = dir.path().join("files.img");
    BlueFs::format(&drive(&other), false).expect("formatted");
    let (code, sentence) = refused(&uri(&other));
    assert!(code == 7 && sentence.contains("bluefs") && sentence.contains("kv"), "{code} {sentence}");
    let (code, sentence) = refused(&uri(&dir.path().join("missing.img")));
    assert!(code == 1 && sentence.contains("missing.img"), "{code} {sentence}");
    let (code, sentence) = refused(&format!("{}&policy=none", uri(&path)));
    assert!(code == 7 && sentence.contains("policy"), "{code} {sentence}");
}

#[test]
fn an_exception_that_leaves_a_function_of_the_program_ends_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = built(dir.path(), "kv_throws.cc", &["c++", "-std=c++17"]);
    let all = [
        (&[][..], "\"throws\""),
        (&["over"], "which pairs are over"),
        (&["merged", "too"], "merges operands into a value"),
    ];
    for (arguments, words) in all {
        let ran = Command::new(&program).args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.signal() == Some(6) && said.contains(words), "{}: {said}", ran.status);
    }
}

#[test]
fn the_example_of_the_documentation_does_what_it_says() {
    let text = std::fs::read_to_string(Path::new(HERE).join("../../docs/kv.md")).expect("docs/kv.md");
    let example = text.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let example = example.replace("imbrex:///data/pairs.img", "imbrex://mem:?profile=tiny&survivor-size=1M");
    let source = format!("#include \"imbrex.h\"\n#include <stdio.h>\nint main(void) {{\n{example}\nreturn 0;\n}}\n");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("example.c");
    std::fs::write(&path, source).expect("written");
    let ran = Command::new(built(dir.path(), &path, &["cc", "-std=c11"])).output().expect("it runs");
    succeeded(&ran);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "Ada\n");
}
