//! More files with unsynced bytes than the survivor's memory has pieces: nobody is refused, and a kill loses nothing.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions, Writer};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use std::sync::Arc;

/// A third each of logs, of write-ahead logs, which wait for each other, and of tables, which have no frames.
const FILES: usize = 3000;

/// Zones enough for all of the files, as each has one to itself while it is written.
fn machine() -> (Emulator, Arc<HeapSurvivor>) {
    let over = Overrides {
        capacity: Some(1 << 30),
        zone_size: Some(256 << 10),
        conventional: Some(4),
        ..Overrides::default()
    };
    let emulator = Emulator::memory(&Config::new(&Profile::named("tiny").unwrap(), &over)).unwrap();
    let survivor = Arc::new(HeapSurvivor::new());
    BlueFs::format(&Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) }, false).unwrap();
    (emulator, survivor)
}

fn name(i: usize) -> String {
    match i % 3 {
        0 => format!("/MANIFEST-{i:06}"),
        1 => format!("/{i:06}.log"),
        _ => format!("/{i:06}.sst"),
    }
}

/// Short ones, and some of more than a piece of memory.
fn contents(i: usize, appends: usize) -> Vec<u8> {
    bytes(appends * (1 + i % 700 + if i.is_multiple_of(97) { 20_000 } else { 0 }), i as u8)
}

fn append(writer: &Writer, i: usize, before: usize) {
    writer.append(&contents(i, before + 1)[contents(i, before).len()..]).unwrap_or_else(|e| panic!("file {i}: {e}"));
}

#[test]
fn thousands_of_files_with_unsynced_bytes_are_all_taken_and_survive_a_kill() {
    let (emulator, survivor) = machine();
    let fs = BlueFs::mount(Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) }, options())
        .unwrap();
    let killed = |files: usize, twice: usize| {
        let survivor = Some(Arc::new(survivor.snapshot()) as _);
        let after = BlueFs::mount(Drive { device: Arc::new(emulator.fork().unwrap()), survivor }, options()).unwrap();
        for i in 0..files {
            let appends = 1 + usize::from(i < twice);
            assert!(read_all(&after, &name(i)) == contents(i, appends), "file {i} of {files}, {twice} appended twice");
        }
        after.mount_report().replayed_bytes
    };
    let mut writers = Vec::new();
    for i in 0..FILES {
        let writer = fs.create(&name(i), CreateOptions::default()).unwrap();
        append(&writer, i, 0);
        writers.push(writer);
        if [100, 1100, FILES].contains(&(i + 1)) {
            assert!(killed(i + 1, 0) > 0, "nothing was in memory any more");
        }
    }
    let (used, all) = fs.volume().unwritten();
    assert!(used > all / 2, "memory is used as long as there is some: {used} of {all}");
    // Those that were written go on, and others give up their memory for it.
    for (i, writer) in writers.iter().enumerate() {
        append(writer, i, 1);
    }
    killed(FILES, FILES);
    for i in (0..FILES).step_by(113) {
        assert!(read_all(&fs, &name(i)) == contents(i, 2), "file {i}");
        writers[i].sync().unwrap();
    }
    drop(writers);
    assert!(read_all(&fs, &name(FILES - 1)) == contents(FILES - 1, 2));
}
