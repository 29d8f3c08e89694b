//! The object store's API and that of images, from C: compiles `store.c` against the header that is checked in, and runs it.

use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, OpenOptions};
use imbrex_store::Store;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn built(dir: &Path) -> PathBuf {
    // The library that was built with this test stands beside it.
    let exe = std::env::current_exe().expect("this program");
    let libraries = exe.parent().expect("its directory");
    // The program asks for it by its SONAME.
    std::os::unix::fs::symlink(libraries.join("libimbrex.so"), dir.join("libimbrex.so.1")).expect("a link");
    let program = dir.join("program");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(Path::new(HERE).join("tests/store.c"))
        .arg(format!("-I{HERE}"))
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", dir.display()))
        .arg("-limbrex")
        .output()
        .expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

#[test]
fn a_c_program_has_objects_and_images() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, path) = (built(dir.path()), dir.path().join("drive.img"));
    drop(Emulator::create(&path, &Config::tiny(), false).expect("a drive"));
    let drive =
        Drive { device: Arc::new(Emulator::open(&path, OpenOptions::default()).expect("the drive")), survivor: None };
    Store::format(&drive, None, false).expect("formatted");
    drop(drive);
    let uri = format!("imbrex://{}?survivor-size=1M&memtable=256K", path.display());
    for what in ["objects", "disks", "die", "dead"] {
        let ran =
            Command::new(&program).args([&uri, what]).env("IMBREX_SHM_DIR", dir.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.is_empty(), "{what}: {}: {said}", ran.status);
    }
}
