//! The chunk store's API, from C: compiles `chunk.c` against the header that is checked in, and runs it.

use imbrex_chunkstore::{ChunkStore, FormatOptions, Options};
use imbrex_device::{AlignedBuf, Cause, Drive, ZoneId, ZonedDevice};
use imbrex_emulator::{Config, Emulator, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

#[test]
fn a_c_program_keeps_chunks() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().expect("a directory");
    // The library that was built with this test stands beside it.
    let exe = std::env::current_exe().expect("this program");
    let libraries = exe.parent().expect("its directory");
    let program = dir.path().join("chunk");
    // The program asks for it by its SONAME.
    std::os::unix::fs::symlink(libraries.join("libimbrex.so"), dir.path().join("libimbrex.so.1")).expect("a link");
    let built = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(here.join("tests/chunk.c"))
        .arg(format!("-I{}", here.display()))
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", dir.path().display()))
        .arg("-limbrex")
        .output()
        .expect("cc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let path = dir.path().join("drive.img");
    drop(Emulator::create(&path, &Config::tiny(), false).expect("a drive"));
    let device = Arc::new(Emulator::open(&path, OpenOptions::default()).expect("the drive"));
    ChunkStore::format(&Drive { device, survivor: None }, &FormatOptions::default()).expect("formatted");

    let metrics = dir.path().join("imbrex.prom");
    let ran = Command::new(&program)
        .arg(format!("imbrex://{}?survivor-size=1M", path.display()))
        .env("IMBREX_METRICS", &metrics)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.is_empty(), "{said}");

    // Its last words: of the second opening, which read once, and wrote nothing but what opening writes.
    let text = std::fs::read_to_string(&metrics).expect("the metrics");
    let drive = format!("drive=\"{}\"", path.display());
    let value = |line: &str| -> Option<f64> {
        let wanted = format!("{} ", line.replace("DRIVE", &drive));
        text.lines().find_map(|found| found.strip_prefix(&wanted)?.parse().ok())
    };
    let told = |line: &str, expected: f64| assert_eq!(value(line), Some(expected), "{line}\n{text}");
    told("imbrex_chunks{DRIVE}", 1.0);
    told("imbrex_chunk_live_bytes{DRIVE}", 11.0);
    told("imbrex_chunk_operation_bytes_sum{DRIVE,operation=\"read\"}", 11.0);
    told("imbrex_chunk_operation_bytes_bucket{DRIVE,operation=\"read\",le=\"4096\"}", 1.0);
    told("imbrex_chunk_operation_bytes_bucket{DRIVE,operation=\"read\",le=\"+Inf\"}", 1.0);
    told("imbrex_chunk_seconds_count{DRIVE,operation=\"read\"}", 1.0);
    assert!(value("imbrex_chunk_seconds_sum{DRIVE,operation=\"read\"}").is_some_and(|s| s > 0.0 && s < 60.0), "{text}");
    assert_eq!(value("imbrex_chunk_seconds_count{DRIVE,operation=\"append\"}"), None, "{text}");
    told("imbrex_chunk_zones{DRIVE,stream=\"data\",state=\"activated\"}", 1.0);
    let zones = value("imbrex_chunk_zones_by_utilisation{DRIVE,le=\"1\"}").expect("zones");
    let empty = value("imbrex_chunk_zones_by_utilisation{DRIVE,le=\"0\"}").expect("zones");
    assert!(zones >= 1.0 && empty <= zones, "{text}");
    told("imbrex_poisoned{DRIVE}", 0.0);
    told("imbrex_mount_damage{DRIVE}", 0.0);
    assert!(value("imbrex_commands_total{DRIVE,cause=\"user_read\",command=\"read\"}") >= Some(1.0), "{text}");
    assert!(value("imbrex_chunk_free_bytes{DRIVE}") > Some(f64::from(40 << 20)), "{text}");

    // The same drive without its label, whose copies stand at the beginnings of the first two zones.
    let device = Emulator::open(&path, OpenOptions::default()).expect("the drive");
    for zone in 0..2 {
        device.write_at(&AlignedBuf::zeroed(64 << 10), zone << 20, Cause::Other.into()).expect("written");
    }
    drop(device);
    let uri = format!("imbrex://{}?survivor-size=1M", path.display());
    let ran = Command::new(&program).args([&uri, &format!("{uri}&read-only=on")]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.is_empty(), "{said}");

    // A bit of its chunk is another one; and then the zone of its next chunk is offline.
    for what in ["flipped", "offline"] {
        let open = || Emulator::open(&path, OpenOptions::default()).expect("the drive");
        let store = ChunkStore::open(Drive { device: Arc::new(open()), survivor: None }, Options::default())
            .expect("the store");
        let chunk = store.list(None, 1)[0].id;
        let place = store.places(chunk).expect("its places")[0];
        drop(store);
        let emulator = open();
        match place.at {
            // Behind the header of its first record.
            Some(at) if what == "flipped" => {
                emulator.faults().flip_bits((u64::from(place.zone) << 20) + at + 97, 1).expect("flipped");
            }
            _ => emulator.faults().make_offline(ZoneId(place.zone)).expect("offline"),
        }
        drop(emulator);
        let ran = Command::new(&program).args([&uri, "damaged", what]).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{what}: {said}");
    }
}
