//! The switches that turn bluefs back into what the paper measured it against (BlueFS §5.3, §5.5): they may be slower, but
//! they keep every promise.

use super::*;
use imbrex_bluefs::CreateOptions;
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};

const USUAL: Switches =
    Switches { conventional: false, unbuffered: false, unprepared: false, apart: false, fifo: false };
const WALS: [Switches; 5] = [
    USUAL,
    Switches { unbuffered: true, ..USUAL },
    Switches { conventional: true, ..USUAL },
    Switches { conventional: true, unbuffered: true, ..USUAL },
    Switches { unprepared: true, ..USUAL },
];
const FIFO: Switches = Switches { fifo: true, ..USUAL };

/// For tiny drives.
fn options(switches: Switches) -> Options {
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 4 << 20, unit_bytes: 16 << 10, turn_bytes: 256 << 10 };
    Options {
        cache_bytes: 512 << 10,
        journal_bytes: 64 << 10,
        segment_bytes: 64 << 10,
        policy: Arc::new(switches),
        volume,
        ..Options::default()
    }
}

/// Bytes that differ by place and seed.
fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

/// All of a file.
fn read(fs: &BlueFs, path: &str) -> Vec<u8> {
    let reader = fs.open_read(path).unwrap();
    let mut out = vec![0; reader.size() as usize];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), out.len(), "{path}");
    out
}

fn new() -> (Emulator, Arc<HeapSurvivor>, Drive) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let survivor = Arc::new(HeapSurvivor::new());
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) };
    BlueFs::format(&drive, false).unwrap();
    (emulator, survivor, drive)
}

#[test]
fn write_ahead_logs_keep_their_promises_wherever_they_are() {
    let whole = bytes(60_000, 1);
    for wal in WALS {
        for stop in [3, 40, 77] {
            let (emulator, survivor, drive) = new();
            let fs = BlueFs::mount(drive, options(wal)).unwrap();
            let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
            let (mut synced, mut end) = (0, 0);
            for (i, piece) in whole.chunks(700).enumerate().take(stop) {
                log.append(piece).unwrap();
                end += piece.len();
                if i % 10 == 0 {
                    log.sync().unwrap();
                    synced = end;
                }
            }
            assert_eq!(read(&fs, "/000001.log"), whole[..end], "{wal:?}, live");
            let conventional = fs.runs("/000001.log").unwrap().iter().all(|run| run.zone.is_none());
            assert_eq!(conventional, wal.conventional, "{wal:?}");
            std::mem::forget((fs, log));

            // Also with the other placement: what is on a drive does not depend on how it is mounted.
            for after in [wal, WALS[0], WALS[3]] {
                let killed = Arc::new(emulator.fork().unwrap());
                let drive = Drive { device: killed, survivor: Some(Arc::new(survivor.snapshot())) };
                let fs = BlueFs::mount(drive, options(after)).unwrap();
                assert_eq!(fs.mount_report().damage, Vec::<String>::new());
                assert!(read(&fs, "/000001.log") == whole[..end], "{wal:?} then {after:?}: after a kill");
                let log = fs.reopen("/000001.log").unwrap();
                log.append(b"more").unwrap();
                log.sync().unwrap();
                assert!(read(&fs, "/000001.log").ends_with(b"more"));
            }
            for seed in 0..6 {
                let device = Arc::new(emulator.after_power_loss(seed).unwrap());
                let drive = Drive { device, survivor: Some(Arc::new(HeapSurvivor::new())) };
                let fs = BlueFs::mount(drive, options(wal)).unwrap();
                let found = read(&fs, "/000001.log");
                assert!(found.len() >= synced && whole.starts_with(&found), "{wal:?}: {} of {synced}", found.len());
            }
        }
    }
}

#[test]
fn what_the_switches_cost_is_a_write_an_append() {
    for wal in WALS {
        let (emulator, _, drive) = new();
        let fs = BlueFs::mount(drive, options(wal)).unwrap();
        let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
        log.append(&[1; 400]).unwrap();
        log.sync().unwrap();
        emulator.reset_stats();
        (0..20).for_each(|_| log.append(&[7; 400]).unwrap());
        let writes = emulator.stats().total.writes;
        let buffered = !(wal.conventional || wal.unbuffered);
        // In conventional space a write may have to be cut in two.
        assert!(if buffered { writes == 0 } else { (20..=22).contains(&writes) }, "{wal:?}: {writes}");
        // The block that an append goes on in is still in memory.
        assert_eq!(emulator.stats().total.reads, 0, "{wal:?}");
    }
}

#[test]
fn a_zone_that_is_not_prepared_costs_a_flush() {
    for (wal, flushes) in [(WALS[0], 1), (WALS[4], 2), (WALS[2], 2)] {
        let (emulator, _, drive) = new();
        let fs = BlueFs::mount(drive, options(wal)).unwrap();
        let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
        log.append(&[1; 400]).unwrap();
        log.sync().unwrap();
        emulator.reset_stats();
        for _ in 0..20 {
            log.append(&[7; 400]).unwrap();
            log.sync().unwrap();
        }
        // Now and then the journal is written anew.
        let told = emulator.stats().total.flushes;
        assert!((20 * flushes..20 * flushes + 5).contains(&told), "{wal:?}: {told}");
    }
}

#[test]
fn the_papers_cache_keeps_whole_files_and_only_what_was_written() {
    let (emulator, _, drive) = new();
    let fs = BlueFs::mount(drive.clone(), options(FIFO)).unwrap();
    let names: Vec<String> = (1..=6).map(|n| format!("/{n:06}.sst")).collect();
    for (i, name) in names.iter().enumerate() {
        let mut table = fs.create(name, CreateOptions::default()).unwrap();
        table.append(&bytes(150_000, i as u8)).unwrap();
        table.close().unwrap();
    }
    let reads = |i: usize| {
        emulator.reset_stats();
        assert_eq!(read(&fs, &names[i]), bytes(150_000, i as u8));
        emulator.stats().total.bytes_read
    };
    // The last two fit; the first have left as wholes, and reading does not bring them back.
    let (hot, cold) = (reads(5).max(reads(4)), reads(0));
    assert!(hot < 100_000 && cold >= 150_000 && reads(0) == cold, "{hot} bytes against {cold}");
    // What is overwritten is read anew.
    let random = fs.open_random(&names[5], false).unwrap();
    random.write_at(70_000, b"sequence").unwrap();
    random.sync().unwrap();
    drop(random);
    let mut want = bytes(150_000, 5);
    want[70_000..70_008].copy_from_slice(b"sequence");
    assert_eq!(read(&fs, &names[5]), want);
    drop(fs);
    let fs = BlueFs::mount(drive, options(FIFO)).unwrap();
    assert_eq!(read(&fs, &names[5]), want);
}

#[test]
fn where_the_cache_keeps_no_reads_nothing_is_read_ahead() {
    let (emulator, _, drive) = new();
    let data = bytes(2 << 20, 3);
    let fs = BlueFs::mount(drive.clone(), options(FIFO)).unwrap();
    let mut table = fs.create("/000001.sst", CreateOptions::default()).unwrap();
    table.append(&data).unwrap();
    table.close().unwrap();
    drop(fs);
    let mut options = Options { cache_bytes: 2 << 20, ..options(FIFO) };
    options.volume.exec = Exec::Threads(1);
    let fs = BlueFs::mount(drive, options).unwrap();
    emulator.reset_stats();
    let reader = fs.open_read("/000001.sst").unwrap();
    let mut out = vec![0; 4096];
    for (i, piece) in data.chunks(4096).enumerate() {
        reader.read_at(i as u64 * 4096, &mut out).unwrap();
        assert!(out == piece);
    }
    assert_eq!(emulator.stats().by_cause["readahead"].bytes_read, 0);
}

#[test]
fn files_that_do_not_share_zones_have_some_of_their_own() {
    let (_, _, drive) = new();
    for apart in [true, false] {
        let fs = BlueFs::mount(drive.clone(), options(Switches { apart, ..USUAL })).unwrap();
        let zones = [1, 2].map(|n| {
            let name = format!("/{n}-{apart}.sst");
            let mut table = fs.create(&name, CreateOptions::default()).unwrap();
            table.append(&bytes(50_000, n)).unwrap();
            table.close().unwrap();
            fs.runs(&name).unwrap()[0].zone.unwrap()
        });
        assert_eq!(zones[0] != zones[1], apart, "{zones:?}");
    }
}

#[test]
fn a_uri_has_the_switches_beside_what_bluefs_understands() {
    let names = ["sequential", "conventional", "unbuffered", "unprepared", "first"];
    for (name, switches) in names.into_iter().zip([WALS[0], WALS[2], WALS[1], WALS[4], WALS[3]]) {
        for policy in ["block", "fifo"] {
            let uri = format!("imbrex://mem:?profile=tiny&wal={name}&cache-policy={policy}&cache=1M&share=on");
            let (rest, asked) = Asked::of_uri(&uri).unwrap();
            assert_eq!(rest, "imbrex://mem:?profile=tiny&cache=1M");
            assert_eq!(asked, Asked { switches: Switches { fifo: policy == "fifo", ..switches }, scale: 1 });
            let fs = open(&uri).unwrap();
            let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
            log.append(b"hello").unwrap();
            log.sync().unwrap();
            let run = fs.runs("/000001.log").unwrap()[0];
            let found = (run.zone.is_none(), read(&fs, "/000001.log"));
            assert_eq!(found, (switches.conventional, b"hello".to_vec()), "{name}");
        }
    }
    assert!(Asked::of_uri("imbrex://x.img?share=off").unwrap().1.switches.apart);
    for bad in ["wal=fast", "cache-policy=lru", "share=some", "io-scale=0", "io-scale=1/64", "io-scale=65537"] {
        let why = open(&format!("imbrex://mem:?profile=tiny&{bad}")).err().unwrap().to_string();
        assert!(why.contains(bad), "{why}");
    }
    let why = open("imbrex://mem:?profile=tiny&wall=first").err().unwrap().to_string();
    assert!(why.contains("there is no option"), "{why}");
}

#[test]
fn commands_shrink_with_the_drive_and_to_no_less_than_a_block() {
    let scaled = |query: &str| {
        let mut options = Options::default();
        Asked::of_uri(&format!("imbrex://x.img?{query}")).unwrap().1.tune(&mut options);
        options
    };
    let (whole, scaled) = (scaled("io-scale=1"), scaled("io-scale=64"));
    assert_eq!((whole.segment_bytes, whole.page_bytes), (2 << 20, 16 << 10));
    assert_eq!((scaled.segment_bytes, scaled.readahead_bytes), (32 << 10, 128 << 10));
    assert_eq!((scaled.page_bytes, scaled.volume.unit_bytes, scaled.volume.turn_bytes), (4096, 16 << 10, 256 << 10));
}
