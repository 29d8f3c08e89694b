//! Every kind of crash at any moment: what was acknowledged is there byte for byte, what was deleted stays deleted, what was
//! sealed stays sealed, nothing else is there, and no zone is lost. Checkpoints and recovery itself are crashed, too.
//!
//! `IMBREX_CHUNK_STATES` says how many states each test looks at (1,100: a share of that on
//! each drive, 20,000 altogether), `IMBREX_CRASH_ROUNDS` of how many seeds.

use crate::crash_support::{
    Op, Scripted, checkpoints, cleaning, config, damaged, full, names, overlapped, random, short, through, turnover,
    unflushed, zns,
};
use imbrex_crashkit::{Config, Plan, explore, seeds};
use std::sync::Arc;

fn look_at(script: fn(u64) -> Vec<Op>, drive: &str, config: &Config, plan: &Plan) {
    match explore(&Arc::new(Scripted(script)), config, plan) {
        // For long runs, which are counted.
        Ok(report) => println!("seed {}, {drive}: {} of {} states", plan.seed, report.states, report.possible),
        Err(failure) => panic!("{drive}: {failure}"),
    }
}

fn run(script: fn(u64) -> Vec<Op>, share: u64) {
    let all: u64 = std::env::var("IMBREX_CHUNK_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_100);
    let states = (all * share / 100).max(1);
    for seed in seeds(1) {
        let drives = [
            ("write cache on", config(), states),
            ("write cache off", Config { write_cache: false, ..config() }, states / 4),
            ("no conventional zones", Config { conventional: 0, ..config() }, states / 4),
            ("eight active zones", zns(), states / 4),
        ];
        for (drive, config, states) in drives {
            let plan = Plan { max_states: states.max(1), cuts_per_write: 3, ..Plan::new(seed) };
            look_at(script, drive, &config, &plan);
        }
    }
}

#[test]
fn cleaning_survives() {
    run(cleaning, 100);
}

#[test]
fn checkpoints_of_what_is_not_durable_survive() {
    run(checkpoints, 40);
}

#[test]
fn a_full_drive_survives() {
    run(full, 20);
}

#[test]
fn short_lives_survive() {
    run(short, 100);
}

#[test]
fn zones_that_are_used_again_survive() {
    run(turnover, 60);
}

#[test]
fn marks_of_what_is_damaged_survive() {
    run(damaged, 40);
}

#[test]
fn names_survive_with_what_they_stand_for() {
    run(names, 60);
}

#[test]
fn metazones_that_are_left_unflushed_survive() {
    run(unflushed, 40);
}

#[test]
fn random_workloads_survive() {
    run(random, 60);
}

#[test]
fn groups_that_are_written_before_the_last_one_is_flushed_survive() {
    run(overlapped, 100);
}

#[test]
fn appends_that_are_durable_by_themselves_survive() {
    let all: u64 = std::env::var("IMBREX_CHUNK_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_100);
    for seed in seeds(2) {
        // Commands that are shorter than records, too.
        for (conventional, max_io) in [(4, config().max_io), (0, 16 << 10)] {
            let config = Config { write_cache: false, conventional, max_io, ..config() };
            let plan = Plan { max_states: (all / 2).max(1), cuts_per_write: 3, ..Plan::new(seed) };
            look_at(
                through,
                if conventional == 0 { "no conventional zones" } else { "write cache off" },
                &config,
                &plan,
            );
        }
    }
}

#[test]
fn one_seed_gives_one_hash() {
    let hash = || {
        let plan = Plan { max_states: 1, ..Plan::new(5) };
        explore(&Arc::new(Scripted(random)), &config(), &plan).unwrap().hash
    };
    assert_eq!(hash(), hash());
}
