//! The same as `crash.rs` for a store in place on a plain disk that is cut into bands. The disk may tear, lose and reorder what was not flushed, block by block, and the band table is a part of
//! what is cut.
//!
//! `IMBREX_STORE_STATES` says how many states of a seed each exploration looks at, `IMBREX_CRASH_ROUNDS` of how many seeds.

mod support;

use imbrex_bluestore::Options;
use imbrex_crashkit::{Config, FaultKind, FaultPlan, Plan, explore, fault_sweep, seeds};
use imbrex_device::{Drive, Result};
use imbrex_zones::Exec;
use std::sync::Arc;
use support::random::{Kind, Opened, Random};
use support::{bands, format, in_place, make_bands, open_hooked, plain};

/// On bands, in units of so many bytes.
struct OnPlain(u32);

impl OnPlain {
    fn options(&self) -> Options {
        in_place(self.0)
    }
}

impl Kind for OnPlain {
    fn format(&self, drive: &Drive) -> Result<()> {
        make_bands(drive)?;
        format(&bands(drive)?)
    }

    fn open(&self, drive: &Drive) -> Result<Opened> {
        let (store, hook) = open_hooked(&bands(drive)?, Exec::Inline, self.options())?;
        Ok(Opened { store, hook, kept: Box::new(()) })
    }
}

fn explored(subject: &Arc<Random<OnPlain>>, config: &Config, seed: u64, most: u64) {
    let plan = Plan { threads: 2, max_states: most, ..Plan::new(seed) };
    let report = explore(subject, config, &plan).unwrap_or_else(|failure| panic!("{failure}"));
    println!("seed {seed}: {} of {} states", report.states, report.possible);
    assert!(report.states * 3 >= most.min(report.possible) * 2, "{report:?}");
}

fn states() -> u64 {
    std::env::var("IMBREX_STORE_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1200)
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_transactions_and_those_that_were_durable() {
    for (unit, config) in [(4 << 10, plain()), (16 << 10, Config { write_cache: false, ..plain() })] {
        for seed in seeds(2) {
            explored(&Arc::new(Random { kind: OnPlain(unit), full: false }), &config, seed, states());
        }
    }
}

#[test]
fn so_does_one_of_a_disk_that_is_full() {
    for seed in seeds(1) {
        explored(&Arc::new(Random { kind: OnPlain(4 << 10), full: true }), &plain(), seed, states() / 4);
    }
}

/// A write or a flush of the disk that fails may be one of the band table, and then nothing is believed that is not proved to be there: `in_place.rs` has faults above the bands instead.
#[test]
fn a_disk_that_loses_power_or_cannot_be_read_costs_nothing_that_was_durable() {
    for seed in seeds(1) {
        let kinds = vec![FaultKind::PowerLoss, FaultKind::ReadMedia];
        let plan = FaultPlan { threads: 2, max_runs: 120, recoveries: 2, kinds, ..FaultPlan::new(seed) };
        let report = fault_sweep(&Arc::new(Random { kind: OnPlain(4 << 10), full: false }), &plain(), &plan)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.runs >= 80, "{report:?}");
    }
}
