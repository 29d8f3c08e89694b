//! The crash explorer on a drive whose conventional zones serve as sequential ones: the store uses bands and zones alike, and what is
//! acknowledged is there in both.

use crate::crash_support::{Op, Scripted, cleaning, config, full, random, short, turnover};
use imbrex_chunkstore::ZoneState;
use imbrex_crashkit::{Config, Crash, FaultKind, FaultPlan, History, Log, Plan, Subject, explore, fault_sweep, seeds};
use imbrex_device::banded::SequentialOnly;
use imbrex_device::kernel::Access;
use imbrex_device::{Drive, ZonedDevice};
use std::sync::Arc;

/// The same on the drive's bands.
struct OnBands(Scripted);

fn cut(drive: Drive) -> Result<Drive, String> {
    let device = SequentialOnly::open(drive.device, drive.survivor, Access::Write).map_err(|e| e.to_string())?;
    Ok(Drive { device: Arc::new(device), survivor: None })
}

impl Subject for OnBands {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        SequentialOnly::format_as(&drive.device, *b"the-band-table--").map_err(|e| e.to_string())?;
        self.0.format(&cut(drive.clone())?)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        self.0.workload(cut(drive)?, seed, log)
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.0.recover(cut(drive)?)
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        self.0.check(cut(drive)?, crash, history)
    }
}

/// 22 conventional zones of 32, two of which hold the table: the label, the metazones and most chunks stand in bands.
fn drive() -> Config {
    Config { conventional: 22, ..config() }
}

#[test]
fn bands_lose_nothing() {
    for seed in seeds(1) {
        for script in [short, turnover, random] {
            for write_cache in [true, false] {
                let plan = Plan { max_states: 350, cuts_per_write: 3, ..Plan::new(seed) };
                let config = Config { write_cache, ..drive() };
                if let Err(failure) = explore(&Arc::new(OnBands(Scripted(script))), &config, &plan) {
                    panic!("write cache {write_cache}: {failure}");
                }
            }
        }
    }
}

/// A drive that says nothing of it is another matter: its conventional zones have no write pointers that would tell.
#[test]
fn bands_that_lose_power_under_the_store_keep_what_was_promised() {
    for seed in seeds(1) {
        for script in [turnover, cleaning, full] {
            for write_cache in [true, false] {
                let plan = FaultPlan { kinds: vec![FaultKind::PowerLoss], max_runs: 30, ..FaultPlan::new(seed) };
                let config = Config { write_cache, ..drive() };
                match fault_sweep(&Arc::new(OnBands(Scripted(script))), &config, &plan) {
                    Ok(report) => assert!(report.runs > 0, "{report:?}"),
                    Err(failure) => panic!("write cache {write_cache}: {failure}"),
                }
            }
        }
    }
}

/// The explorer would see nothing if no chunk stood in a band.
#[test]
fn chunks_stand_in_bands() {
    let emulator = imbrex_emulator::Emulator::memory(&drive()).unwrap();
    let device: Arc<dyn ZonedDevice> = Arc::new(emulator);
    SequentialOnly::format(&device).unwrap();
    let cut = SequentialOnly::open(device, None, Access::Write).unwrap();
    let bands = cut.bands();
    let drive = Drive { device: Arc::new(cut), survivor: None };
    let subject = Scripted(turnover);
    subject.format(&drive).unwrap();
    subject.workload(drive.clone(), 1, &Log::new()).unwrap();
    let store = imbrex_chunkstore::ChunkStore::open(drive, crate::support::options()).unwrap();
    let used =
        |zone: &imbrex_chunkstore::ZoneInfo| zone.zone < bands && zone.live > 0 && zone.state != ZoneState::Garbage;
    let chunks = store.zones().iter().filter(|zone| used(zone) && zone.chunks > 0).count();
    assert!(chunks > 2, "{bands} bands");
}
