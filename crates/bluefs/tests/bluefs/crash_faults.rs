//! One command after the other fails while the file system is at work or being mounted: it refuses cleanly or goes on, and
//! what was promised is there; what damage may cost is only what stood in the damaged place.

use crate::crash_support::{Op, Op::*, Scripted, config, zns};
use imbrex_crashkit::{Config, FaultKind, FaultPlan, fault_sweep, seeds};
use std::sync::Arc;

fn mixed(_: u64) -> Vec<Op> {
    vec![
        Mkdir("/d"),
        Create("/d/1.log"),
        Append("/d/1.log", 700, 1),
        Sync("/d/1.log"),
        Create("/d/2.sst"),
        Append("/d/2.sst", 70_000, 2),
        Sync("/d/2.sst"),
        Close("/d/2.sst"),
        Append("/d/1.log", 5000, 3),
        Create("/d/tmp"),
        Append("/d/tmp", 16, 4),
        Sync("/d/tmp"),
        Close("/d/tmp"),
        Rename("/d/tmp", "/d/CURRENT"),
        SyncDir,
        Overwrite("/d/2.sst", 100, 5),
        Append("/d/1.log", 5000, 6),
        Sync("/d/1.log"),
        Unlink("/d/2.sst"),
        SyncDir,
        Create("/d/3.sst"),
        Append("/d/3.sst", 3000, 7),
        Sync("/d/3.sst"),
    ]
}

/// Zones are given up, reset and taken again.
fn recycling(_: u64) -> Vec<Op> {
    let mut ops = vec![Create("/1.log"), Append("/1.log", 700, 1), Sync("/1.log")];
    for i in 0..9 {
        ops.extend([Create("/a.sst"), Append("/a.sst", 30_000, i), Sync("/a.sst"), Close("/a.sst")]);
        ops.extend([Rename("/a.sst", "/b.sst"), SyncDir, Step, Append("/1.log", 500, i), Sync("/1.log"), Step]);
    }
    ops
}

/// Small files that grow, are overwritten and replaced, and a table with overwritten blocks: all in conventional zones.
fn in_place(_: u64) -> Vec<Op> {
    let mut ops = vec![Create("/t.sst"), Append("/t.sst", 70_000, 2), Sync("/t.sst"), Create("/grows")];
    for i in 0..6 {
        ops.extend([Append("/grows", 3000, i), Sync("/grows"), Overwrite("/t.sst", 100 + 9000 * u32::from(i), i)]);
        ops.extend([Create("/tmp"), Append("/tmp", 16, i), Sync("/tmp"), Close("/tmp"), Rename("/tmp", "/CURRENT")]);
        ops.extend([SyncDir, Step]);
    }
    ops
}

/// Short tables of a zone each, which are packed at rest.
fn packed(_: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for (path, n, seed) in
        [("/1.sst", 120_001, 1), ("/2.sst", 20_000, 2), ("/3.sst", 90_000, 3), ("/4.sst", 100_000, 4)]
    {
        let table = [Create(path), Preallocate(path, 250_000), Append(path, n, seed), Sync(path), Close(path)];
        ops.extend(table);
    }
    ops.extend([Pack, Unlink("/1.sst"), SyncDir, Step, Pack, Create("/5.sst"), Append("/5.sst", 30_000, 5)]);
    ops.extend([Sync("/5.sst"), Pack, Close("/5.sst"), Pack, SyncDir]);
    ops
}

#[test]
fn whatever_fails_while_tables_are_packed_loses_nothing() {
    use FaultKind::*;
    for seed in seeds(1) {
        let kinds = vec![ReadMedia, WriteError, TornWrite, NoSpace, FlushError, ZoneReadOnly, ZoneOpError];
        let plan = FaultPlan { kinds, max_runs: 600, ..FaultPlan::new(seed) };
        let subject = Arc::new(Scripted { script: packed, journal_bytes: 64 << 10, chain: &[] });
        match fault_sweep(&subject, &config(), &plan) {
            Ok(report) => assert!(report.runs > 100, "{report:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

fn sweep(kinds: &[FaultKind], journal_bytes: u64, runs: u64, rounds: u64) {
    for seed in seeds(rounds) {
        let plan = FaultPlan { kinds: kinds.to_vec(), max_runs: runs, ..FaultPlan::new(seed) };
        let subject = Arc::new(Scripted { script: mixed, journal_bytes, chain: &[] });
        match fault_sweep(&subject, &config(), &plan) {
            Ok(report) => assert!(report.runs > 10, "{report:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// The drive alone loses power under a mount and goes on: what was synced before is there, and what is called synced after it. `kinds`: whether
/// the drive tells; of one that does not only write pointers show it, which conventional zones do not have.
fn power(drive: &Config, kinds: &[FaultKind]) {
    for (script, journal_bytes) in
        [(mixed as fn(u64) -> Vec<Op>, 4 << 10), (recycling, 64 << 10), (in_place, 4 << 10), (packed, 64 << 10)]
    {
        for seed in seeds(1) {
            let plan = FaultPlan { kinds: kinds.to_vec(), max_runs: 5000, ..FaultPlan::new(seed) };
            match fault_sweep(&Arc::new(Scripted { script, journal_bytes, chain: &[] }), drive, &plan) {
                Ok(report) => assert!(report.runs > 50 && report.refused > 10, "{report:?}"),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}

#[test]
fn a_power_loss_of_the_drive_alone_that_it_tells_of_loses_nothing_synced() {
    power(&config(), &[FaultKind::PowerLoss]);
}

#[test]
fn a_power_loss_of_the_drive_alone_loses_nothing_synced_with_few_active_zones() {
    power(&zns(), &FaultKind::POWER);
}

#[test]
fn failed_reads_lose_nothing() {
    sweep(&[FaultKind::ReadMedia], 64 << 10, 400, 6);
}

#[test]
fn failed_writes_lose_nothing() {
    sweep(&[FaultKind::WriteError, FaultKind::TornWrite, FaultKind::NoSpace], 4 << 10, 500, 2);
}

#[test]
fn failed_zone_operations_lose_nothing() {
    for seed in seeds(1) {
        let kinds = vec![FaultKind::ZoneOpError];
        let plan = FaultPlan { kinds, max_runs: 200, recoveries: 8, ..FaultPlan::new(seed) };
        let subject = Arc::new(Scripted { script: recycling, journal_bytes: 4 << 10, chain: &[] });
        // The journal's ring goes round in short zones.
        let short = Config { zone_size: 64 << 10, zone_capacity: 64 << 10, ..config() };
        match fault_sweep(&subject, &short, &plan) {
            // The volume takes another zone: nobody above hears of it.
            Ok(report) => assert!(report.runs > 5 && report.refused == 0, "{report:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn failed_flushes_lose_nothing() {
    sweep(&[FaultKind::FlushError], 4 << 10, 300, 2);
}

#[test]
fn zones_that_turn_read_only_lose_nothing() {
    sweep(&[FaultKind::ZoneReadOnly], 4 << 10, 300, 20);
}

#[test]
fn conventional_zones_that_turn_read_only_lose_nothing() {
    for seed in seeds(2) {
        let kinds = vec![FaultKind::ZoneReadOnly];
        let plan = FaultPlan { kinds, conventional: true, max_runs: 300, recoveries: 8, ..FaultPlan::new(seed) };
        let subject = Arc::new(Scripted { script: in_place, journal_bytes: 4 << 10, chain: &[] });
        match fault_sweep(&subject, &config(), &plan) {
            // What stood there moves, the other copy of the label goes on alone: nobody above hears of it.
            Ok(report) => assert!(report.runs > 100 && report.refused == 0, "{report:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn damage_costs_what_stood_there_and_nothing_else() {
    for kind in FaultKind::DAMAGING {
        for seed in seeds(1) {
            let plan = FaultPlan { kinds: vec![kind], max_runs: 200, ..FaultPlan::new(seed) };
            let subject = Arc::new(Scripted { script: mixed, journal_bytes: 64 << 10, chain: &[] });
            if let Err(failure) = fault_sweep(&subject, &config(), &plan) {
                panic!("{failure}");
            }
        }
    }
}
