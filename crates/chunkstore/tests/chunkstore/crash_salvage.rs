//! A salvage of a drive that has lost its label, interrupted at any command: it can be repeated, until it came to its end nothing else
//! opens the store, and no byte of it is ever lost on the way.

use crate::crash_support::config;
use crate::support::{bytes, content, id};
use imbrex_chunkstore::{ChunkStore, Relabel, StreamType, TENANT, budget};
use imbrex_crashkit::{Config, Crash, History, Log, Plan, Subject, explore, seeds};
use imbrex_device::{AlignedBuf, Cause, Drive, Tag, ZoneId, ZoneOp, ZoneState, report_all};
use imbrex_zones::{FormatOptions, TenantSpec, Volume};
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Other);

struct Salvage {
    /// The metazones are lost, too.
    metazones: bool,
}

fn text<T>(result: imbrex_chunkstore::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn salvage(drive: &Drive) -> Result<ChunkStore, String> {
    text(ChunkStore::salvage_as(drive.clone(), crate::support::options(), Relabel::Only, |_, _| {}))
}

impl Subject for Salvage {
    type Op = ();

    fn format(&self, drive: &Drive) -> Result<(), String> {
        let tenants = vec![TenantSpec { name: TENANT.into(), budget: budget(drive.device.geometry().zones) }];
        let format = FormatOptions { uuid: Some(*b"chunkstore-crash"), tenants, force: false };
        Volume::format(drive, &format).map_err(|e| e.to_string())?;
        let store = text(ChunkStore::open(drive.clone(), crate::support::options()))?;
        for n in 0..12 {
            text(store.create(id(n), StreamType::new(n as u8 % 3).unwrap_or(StreamType::DATA)))?;
            text(store.append(id(n), &bytes(20_000, n)))?;
        }
        if !self.metazones {
            text(store.delete(id(11)))?;
        }
        let root = store.volume().tenant(TENANT).map_err(|e| e.to_string())?.root();
        drop(store);
        let device = drive.device.as_ref();
        let geometry = device.geometry().clone();
        let failed = |error: imbrex_device::Error| error.to_string();
        for zone in &report_all(device).map_err(failed)?[..2] {
            if zone.state == ZoneState::Conventional {
                device.write_at(&AlignedBuf::zeroed(32 << 10), geometry.start(zone.id), TAG).map_err(failed)?;
            } else {
                device.zone_op(ZoneOp::Reset, zone.id, TAG).map_err(failed)?;
            }
        }
        if self.metazones {
            for zone in imbrex_zones::log::Root::decode(&root)?.zones {
                device.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).map_err(failed)?;
            }
        }
        device.flush(TAG).map_err(failed)
    }

    fn workload(&self, drive: Drive, _: u64, log: &Log<()>) -> Result<(), String> {
        let number = log.begun(());
        let store = salvage(&drive)?;
        log.synced(number);
        text(store.create(id(100), StreamType::DATA))?;
        text(store.append(id(100), b"after"))?;
        log.synced(log.begun(()));
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        salvage(&drive).map(drop)
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<()>) -> Result<(), String> {
        let must = history.must_prefix();
        let store = match text(ChunkStore::open(drive.clone(), crate::support::options())) {
            Ok(store) => store,
            Err(why) if must > 0 => return Err(format!("salvaged, and yet: {why}")),
            // The new label says that the salvage is over only when its checkpoints are durable.
            Err(why) if !why.contains("label") => return Err(format!("neither lost nor salvaged: {why}")),
            Err(_) => salvage(&drive)?,
        };
        let all = if self.metazones { 12 } else { 11 };
        for n in 0..all {
            text(store.stat(id(n)))?;
            if content(&store, id(n)) != bytes(20_000, n) {
                return Err(format!("{} is another one", id(n)));
            }
        }
        if store.stat(id(11)).is_ok() != self.metazones {
            return Err("what was deleted is back".into());
        }
        if must > 1 && content(&store, id(100)) != b"after" {
            return Err("what was appended after the salvage is lost".into());
        }
        let problems = text(store.check(|_, _| {}))?.problems;
        if !problems.is_empty() {
            return Err(format!("{problems:?}"));
        }
        text(store.create(id(200), StreamType::DATA))?;
        text(store.append(id(200), &bytes(9000, 3)))?;
        drop(store);
        let store = text(ChunkStore::open(drive, crate::support::options()))?;
        if content(&store, id(200)) == bytes(9000, 3) { Ok(()) } else { Err("what came after it is lost".into()) }
    }
}

#[test]
fn an_interrupted_salvage_is_repeated() {
    for seed in seeds(1) {
        for metazones in [false, true] {
            let drives = [config(), Config { conventional: 0, ..config() }, Config { write_cache: false, ..config() }];
            for config in drives {
                let plan = Plan { max_states: 600, power_outcomes: 4, cuts_per_write: 3, ..Plan::new(seed) };
                match explore(&Arc::new(Salvage { metazones }), &config, &plan) {
                    Ok(report) => println!("seed {seed}: {} of {} states", report.states, report.possible),
                    Err(failure) => {
                        panic!("metazones lost {metazones}, {} conventional: {failure}", config.conventional)
                    }
                }
            }
        }
    }
}
