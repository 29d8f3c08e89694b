//! A crash at any moment, and a fault at any command, leave what was promised: the changes of a number of transactions from the first on, and at least those that were durable.
//!
//! `IMBREX_STORE_STATES` says how many states of a seed each exploration looks at (2,900, some 20,000 in all), `IMBREX_CRASH_ROUNDS` of how many seeds.

mod support;

use imbrex_crashkit::{Config, FaultKind, FaultPlan, Plan, explore, fault_sweep, seeds};
use imbrex_device::{Drive, Result};
use imbrex_zones::Exec;
use std::sync::Arc;
use support::random::{Kind, Opened, Random};
use support::{config, few_active, format, open_hooked, packed};

/// With the metadata in the tests' own key-value store.
struct OnMap;

impl Kind for OnMap {
    fn format(&self, drive: &Drive) -> Result<()> {
        format(drive)
    }

    fn open(&self, drive: &Drive) -> Result<Opened> {
        let (store, hook) = open_hooked(drive, Exec::Inline, packed())?;
        Ok(Opened { store, hook, kept: Box::new(()) })
    }
}

fn drives() -> [Config; 3] {
    [config(), Config { write_cache: false, ..config() }, few_active()]
}

fn explored(subject: &Arc<Random<OnMap>>, config: &Config, seed: u64, most: u64) {
    let plan = Plan { threads: 2, max_states: most, ..Plan::new(seed) };
    let report = explore(subject, config, &plan).unwrap_or_else(|failure| panic!("{failure}"));
    println!("seed {seed}: {} of {} states", report.states, report.possible);
    assert!(report.states * 3 >= most.min(report.possible) * 2, "{report:?}");
}

fn states() -> u64 {
    std::env::var("IMBREX_STORE_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(2900)
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_transactions_and_those_that_were_durable() {
    for config in drives() {
        for seed in seeds(2) {
            explored(&Arc::new(Random { kind: OnMap, full: false }), &config, seed, states());
        }
    }
}

#[test]
fn so_does_one_of_a_drive_that_is_full() {
    for seed in seeds(2) {
        explored(&Arc::new(Random { kind: OnMap, full: true }), &config(), seed, states());
    }
}

#[test]
fn whatever_fails_nothing_that_was_durable_is_lost() {
    for config in drives() {
        for seed in seeds(1) {
            let mut kinds = [&FaultKind::PASSING[..], &FaultKind::POWER[..]].concat();
            // Where the label is in sequential zones and one of them has died, the other takes no label any more when it is full.
            kinds.retain(|kind| config.conventional > 0 || *kind != FaultKind::ZoneReadOnly);
            let plan = FaultPlan { threads: 2, max_runs: 200, recoveries: 2, kinds, ..FaultPlan::new(seed) };
            let report = fault_sweep(&Arc::new(Random { kind: OnMap, full: false }), &config, &plan)
                .unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.runs >= 80, "{report:?}");
        }
    }
}
