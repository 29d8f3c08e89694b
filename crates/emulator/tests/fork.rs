//! A lock ends with who took it, also while another thread starts programs. A test program of its own, since other tests ask who has a drive.

use imbrex_device::banded::FileBase;
use imbrex_device::kernel::Access;
use imbrex_emulator::{Config, Emulator, OpenOptions, copy_image, remove_image};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

fn open(path: &Path) -> imbrex_device::Result<Emulator> {
    Emulator::open(path, OpenOptions::default())
}

/// Opens an image whose first byte is another one, in vain.
fn refuses(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut was = [0];
    file.read_exact_at(&mut was, 0).unwrap();
    file.write_all_at(&[!was[0]], 0).unwrap();
    let refused = open(path).is_err();
    file.write_all_at(&was, 0).unwrap();
    refused
}

#[test]
fn a_program_that_is_just_being_started_holds_no_drive_that_was_closed() {
    // Between its fork and its exec it has all files that were open.
    let (ended, begun) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let began = Instant::now();
        let rounds = std::panic::catch_unwind(|| {
            for round in 0.. {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("drive.img");
                drop(Emulator::create(&path, &Config::tiny(), false).unwrap());
                assert!(refuses(&path));
                drop(open(&path).unwrap());
                let copy = path.with_extension("copy");
                copy_image(&path, &copy).unwrap();
                drop(open(&path).unwrap());
                drop(Emulator::create(&copy, &Config::tiny(), true).unwrap());
                assert!(remove_image(&copy).is_ok());
                let banded = path.with_extension("banded");
                drop(FileBase::create(&banded, 64 << 20).unwrap());
                drop(FileBase::open(&banded, Access::Write).unwrap());
                if round >= 20 && begun.load(Ordering::Relaxed) >= 200 || began.elapsed().as_secs() > 60 {
                    return;
                }
            }
        });
        ended.store(true, Ordering::Relaxed);
        rounds.unwrap();
    });
}
