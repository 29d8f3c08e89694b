//! Several threads at one file at once, on a drive without faults: no call fails, and what a sync says is durable is: a witness
//! beside the drive knows for each block whether a flush began after it was written.
//!
//! What a crash leaves of such calls is looked at by `crash_explore.rs`, step by step.

use imbrex_bluefs::{BlueFs, CreateOptions, Options};
use imbrex_device::{
    Drive, Geometry, HeapSurvivor, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice, report_all,
};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What was written when, and up to when all of it is durable.
#[derive(Default)]
struct Seen {
    /// Writes that were acknowledged.
    writes: u64,
    /// By the number of the block: the last write to it.
    blocks: HashMap<u64, u64>,
    /// Writes up to this one are durable.
    flushed: u64,
}

struct Witness {
    below: Emulator,
    seen: Mutex<Seen>,
}

impl Witness {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks of a file that no flush covers. Zones are not shared in these tests.
    fn unsafe_blocks(&self, fs: &BlueFs, path: &str) -> Vec<u64> {
        let (block, geometry) = (u64::from(self.geometry().block), self.geometry());
        let runs = fs.runs(path).unwrap();
        let size = fs.stat(path).unwrap().size;
        let ranges: Vec<_> = runs
            .iter()
            .map(|run| match run.zone {
                Some(zone) => {
                    geometry.start(ZoneId(zone)) / block..(geometry.start(ZoneId(zone)) + geometry.zone_size) / block
                }
                None => {
                    run.address / block..(run.address + run.len.min(size.saturating_sub(run.logical))).div_ceil(block)
                }
            })
            .collect();
        let seen = self.seen();
        let late = |(at, when): (&u64, &u64)| {
            (*when > seen.flushed && ranges.iter().any(|range| range.contains(at))).then_some(*at)
        };
        seen.blocks.iter().filter_map(late).collect()
    }
}

impl ZonedDevice for Witness {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.below.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.below.write_at(buf, at, tag)?;
        let block = u64::from(self.geometry().block);
        let mut seen = self.seen();
        seen.writes += 1;
        let now = seen.writes;
        seen.blocks.extend((at / block..(at + buf.len() as u64) / block).map(|n| (n, now)));
        Ok(())
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        let covered = self.seen().writes;
        // Long enough for others to come in between.
        std::thread::sleep(Duration::from_micros(500));
        self.below.flush(tag)?;
        let mut seen = self.seen();
        seen.flushed = seen.flushed.max(covered);
        Ok(())
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
}

fn options() -> Options {
    let volume =
        VolumeOptions { exec: Exec::Threads(2), survivor_bytes: 2 << 20, unit_bytes: 16 << 10, turn_bytes: 1 << 20 };
    Options {
        cache_bytes: 0,
        journal_bytes: 16 << 10,
        segment_bytes: 64 << 10,
        policy: Arc::new(crate::support::Apart),
        volume,
        ..Options::default()
    }
}

fn mounted(config: &Config) -> (BlueFs, Arc<Witness>) {
    let witness = Arc::new(Witness { below: Emulator::memory(config).unwrap(), seen: Mutex::default() });
    let drive = Drive { device: witness.clone(), survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap();
    (BlueFs::mount(drive, options()).unwrap(), witness)
}

/// Tells the other threads that it is over, also where that is because something is wrong.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// How the file may be cut while it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    No,
    Yes,
}

/// One thread appends and syncs, others sync the same file, everything, and names; one may cut it.
fn one_appends_and_others_sync(path: &str, cut: Cut, config: &Config) {
    let (fs, witness) = mounted(config);
    // The log before it, which becomes durable first.
    let before = fs.create("/000001.log", CreateOptions::default()).unwrap();
    before.append(&[7; 3000]).unwrap();
    let file = fs.create(path, CreateOptions::default()).unwrap();
    let over = AtomicBool::new(false);
    let going = || !over.load(Ordering::Acquire);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _over = Over(&over);
            for n in 0..200 {
                file.append(&vec![n as u8; 1 + n * 37 % 5000]).unwrap();
                if n % 4 > 0 {
                    // Others sync it, at least.
                    std::thread::sleep(Duration::from_micros(300));
                    continue;
                }
                file.sync().unwrap();
                assert_eq!(witness.unsafe_blocks(&fs, path), [0; 0], "{path}: append {n} was synced");
            }
        });
        for _ in 0..4 {
            s.spawn(|| {
                while going() {
                    file.sync().unwrap();
                }
            });
        }
        s.spawn(|| {
            let mut n = 0;
            while going() {
                fs.mkdir(&format!("/{n}")).unwrap();
                fs.rename(&format!("/{n}"), &format!("/{n} again")).unwrap();
                fs.sync_dir("/").unwrap();
                fs.rmdir(&format!("/{n} again")).unwrap();
                fs.sync_all().unwrap();
                n += 1;
            }
        });
        if cut == Cut::Yes {
            s.spawn(|| {
                while going() {
                    // It may have been cut by nobody else, and only grows meanwhile.
                    file.truncate(file.len() / 3).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
    });
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "{path}");
}

/// None of them conventional: small files stand in the journal.
fn without_conventional() -> Config {
    Config { conventional: 0, ..Config::tiny() }
}

#[test]
fn whoever_syncs_a_file_while_others_do_has_it_durable() {
    for config in [Config::tiny(), without_conventional()] {
        for path in ["/1.sst", "/small", "/000002.log", "/MANIFEST-2"] {
            one_appends_and_others_sync(path, Cut::No, &config);
        }
    }
}

#[test]
fn whoever_syncs_a_file_that_others_cut_has_it_durable() {
    for config in [Config::tiny(), without_conventional()] {
        for path in ["/1.sst", "/small", "/000002.log", "/MANIFEST-2"] {
            one_appends_and_others_sync(path, Cut::Yes, &config);
        }
    }
}

/// A file that is closed by one and synced by another, who syncs everything: neither fails.
#[test]
fn a_file_that_is_closed_while_everything_is_synced_is_whole() {
    let (fs, _) = mounted(&Config::tiny());
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _over = Over(&over);
            for n in 0..200 {
                let path = ["/a.sst", "/b.log", "/c"][n % 3];
                let mut file = fs.create(path, CreateOptions::default()).unwrap();
                file.append(&vec![n as u8; 5000]).unwrap();
                file.close().unwrap();
                assert_eq!(fs.stat(path).unwrap().size, 5000);
            }
        });
        s.spawn(|| {
            while !over.load(Ordering::Acquire) {
                fs.sync_all().unwrap();
            }
        });
    });
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

/// A small file that goes on as a log while another thread syncs it.
#[test]
fn a_small_file_that_outgrows_its_space_while_it_is_synced_is_durable() {
    let config = Config { conventional: 3, ..Config::tiny() };
    let (fs, witness) = mounted(&config);
    assert!(report_all(witness.as_ref()).unwrap().len() > 8);
    let file = fs.create("/data", CreateOptions::default()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _over = Over(&over);
            for n in 0..80 {
                file.append(&vec![n as u8; 50_000]).unwrap();
                file.sync().unwrap();
                assert_eq!(witness.unsafe_blocks(&fs, "/data"), [0; 0], "append {n} was synced");
            }
        });
        for _ in 0..2 {
            s.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    file.sync().unwrap();
                }
            });
        }
    });
    assert_eq!(fs.stat("/data").unwrap().size, 80 * 50_000);
    assert_eq!(fs.stat("/data").unwrap().kind, imbrex_bluefs::FileKind::Log, "it has outgrown its space");
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}
