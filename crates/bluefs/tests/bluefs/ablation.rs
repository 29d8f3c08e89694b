//! The switches that turn bluefs back into what the paper measured it against (BlueFS §5.3, §5.5): they may be slower, but
//! they keep every promise.

use crate::support::{bytes, read_all as read};
use imbrex_bluefs::{BlueFs, CreateOptions, Options, WalPlacement};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::cache::CachePolicy;
use std::sync::Arc;

const WALS: [WalPlacement; 5] = [
    WalPlacement { conventional: false, unbuffered: false, unprepared: false },
    WalPlacement { conventional: false, unbuffered: true, unprepared: false },
    WalPlacement { conventional: true, unbuffered: false, unprepared: false },
    WalPlacement { conventional: true, unbuffered: true, unprepared: false },
    WalPlacement { conventional: false, unbuffered: false, unprepared: true },
];

fn options(wal: WalPlacement, cache_policy: CachePolicy) -> Options {
    Options { cache_bytes: 512 << 10, cache_policy, wal, journal_bytes: 64 << 10, ..crate::support::options() }
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
            let fs = BlueFs::mount(drive, options(wal, CachePolicy::ByBlock)).unwrap();
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
                let fs = BlueFs::mount(drive, options(after, CachePolicy::ByBlock)).unwrap();
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
                let fs = BlueFs::mount(drive, options(wal, CachePolicy::ByBlock)).unwrap();
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
        let fs = BlueFs::mount(drive, options(wal, CachePolicy::ByBlock)).unwrap();
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
        let fs = BlueFs::mount(drive, options(wal, CachePolicy::ByBlock)).unwrap();
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

/// The block that is remembered is not taken for one that stands in its place by now.
#[test]
fn cut_and_written_again_a_file_in_place_has_its_own_bytes() {
    let (_, _, drive) = new();
    let fs = BlueFs::mount(drive, options(WALS[2], CachePolicy::ByBlock)).unwrap();
    let file = fs.create("/notes", CreateOptions::default()).unwrap();
    let other = fs.create("/others", CreateOptions::default()).unwrap();
    let mut want = (Vec::new(), Vec::new());
    for round in 0..6_u8 {
        let piece = bytes(5000 + usize::from(round) * 700, round);
        file.append(&piece).unwrap();
        want.0.extend_from_slice(&piece);
        other.append(&piece[100..]).unwrap();
        want.1.extend_from_slice(&piece[100..]);
        assert_eq!((read(&fs, "/notes"), read(&fs, "/others")), want, "{round}");
        let keep = if round % 2 == 0 { 0 } else { 4500 };
        file.truncate(keep as u64).unwrap();
        file.sync().unwrap();
        want.0.truncate(keep);
    }
    file.append(b"end").unwrap();
    want.0.extend_from_slice(b"end");
    drop((file, other));
    assert_eq!((read(&fs, "/notes"), read(&fs, "/others")), want);
}

#[test]
fn the_papers_cache_keeps_whole_files_and_only_what_was_written() {
    let (emulator, _, drive) = new();
    let fs = BlueFs::mount(drive.clone(), options(WALS[0], CachePolicy::FifoByFile)).unwrap();
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
    let fs = BlueFs::mount(drive, options(WALS[0], CachePolicy::FifoByFile)).unwrap();
    assert_eq!(read(&fs, &names[5]), want);
}

#[test]
fn the_switches_of_a_uri() {
    let names = ["sequential", "conventional", "unbuffered", "unprepared", "first"];
    for (name, conventional) in names.into_iter().zip([false, true, false, false, true]) {
        for policy in ["block", "fifo"] {
            let fs = BlueFs::open_uri(&format!("imbrex://mem:?profile=tiny&wal={name}&cache-policy={policy}&cache=1M"));
            let fs = fs.unwrap();
            let log = fs.create("/000001.log", CreateOptions::default()).unwrap();
            log.append(b"hello").unwrap();
            log.sync().unwrap();
            let run = fs.runs("/000001.log").unwrap()[0];
            assert_eq!((run.zone.is_none(), read(&fs, "/000001.log")), (conventional, b"hello".to_vec()), "{name}");
        }
    }
    for bad in ["wal=fast", "cache-policy=lru"] {
        let why = BlueFs::open_uri(&format!("imbrex://mem:?profile=tiny&{bad}")).err().unwrap().to_string();
        assert!(why.contains(bad.split('=').next_back().unwrap()), "{why}");
    }
}
