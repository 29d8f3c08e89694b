//! One command after the other fails while the store is at work or being opened: it refuses cleanly or goes on, and what was
//! promised is there; what damage may cost is only what stood in the damaged place.

use crate::crash_support::{Op, Scripted, cleaning, config, full, overlapped, short, through, turnover, zns};
use imbrex_crashkit::{Config, FaultKind, FaultPlan, fault_sweep, seeds};
use std::sync::Arc;

fn sweep(script: fn(u64) -> Vec<Op>, kinds: &[FaultKind], runs: u64) {
    // Where the label stands in sequential zones, a drive whose label's zone dies is one to look at, not to write to.
    let mortal = kinds.contains(&FaultKind::ZoneReadOnly);
    sweep_on(&[config(), cache_off(), zns()][..if mortal { 2 } else { 3 }], script, kinds, runs);
}

fn cache_off() -> Config {
    Config { write_cache: false, ..config() }
}

fn sweep_on(drives: &[Config], script: fn(u64) -> Vec<Op>, kinds: &[FaultKind], runs: u64) {
    for seed in seeds(1) {
        for config in drives {
            let plan = FaultPlan { kinds: kinds.to_vec(), max_runs: runs, ..FaultPlan::new(seed) };
            match fault_sweep(&Arc::new(Scripted(script)), config, &plan) {
                Ok(report) => assert!(report.runs > 0, "{report:?}"),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}

#[test]
fn failed_reads_lose_nothing() {
    sweep(cleaning, &[FaultKind::ReadMedia], 150);
}

#[test]
fn failed_writes_lose_nothing() {
    sweep(short, &[FaultKind::WriteError, FaultKind::TornWrite], 200);
    sweep(cleaning, &[FaultKind::WriteError, FaultKind::TornWrite], 200);
    sweep(overlapped, &[FaultKind::WriteError, FaultKind::TornWrite], 200);
    sweep_on(&[cache_off(), zns()], through, &[FaultKind::WriteError, FaultKind::TornWrite], 200);
}

#[test]
fn a_host_without_space_loses_nothing() {
    sweep(turnover, &[FaultKind::NoSpace], 200);
}

#[test]
fn failed_zone_operations_lose_nothing() {
    sweep(turnover, &[FaultKind::ZoneOpError], 100);
    sweep(cleaning, &[FaultKind::ZoneOpError], 100);
}

#[test]
fn failed_flushes_lose_nothing() {
    sweep(short, &[FaultKind::FlushError], 150);
    // With groups that are written and wait for a flush that fails, or for the one behind it.
    sweep(overlapped, &[FaultKind::FlushError], 150);
}

#[test]
fn zones_that_turn_read_only_lose_nothing() {
    sweep(short, &[FaultKind::ZoneReadOnly], 200);
    sweep(overlapped, &[FaultKind::ZoneReadOnly], 200);
    sweep_on(&[cache_off()], through, &[FaultKind::ZoneReadOnly], 200);
}

#[test]
fn zones_that_turn_read_only_while_others_are_cleaned_lose_nothing() {
    sweep(cleaning, &[FaultKind::ZoneReadOnly], 200);
}

/// The drive alone loses power, with the store open on it; of the two kinds of drive one tells and one does not.
#[test]
fn a_drive_that_loses_power_takes_nothing_that_was_promised() {
    for script in [short, turnover, cleaning, through, full] {
        sweep_on(&[config(), cache_off(), zns()], script, &FaultKind::POWER, 8);
    }
}
