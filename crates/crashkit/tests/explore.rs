//! The explorer passes correct engines and finds the defect of every broken one.

mod toys;

use imbrex_crashkit::{Config, Crash, Failure, Plan, Report, StateId, Subject, Variant, explore, replay};
use std::sync::Arc;
use std::time::Duration;
use toys::batches::{self, Batches};
use toys::config;
use toys::pair::{self, Pair};

fn plan(seed: u64) -> Plan {
    Plan { threads: 2, ..Plan::new(seed) }
}

fn run<S: Subject>(subject: S, plan: &Plan) -> Result<Report, Failure> {
    explore(&Arc::new(subject), &config(), plan)
}

/// The failure's text, which must name the state and how to see it again.
fn caught<S: Subject>(subject: S, plan: &Plan) -> (Failure, StateId) {
    let subject = Arc::new(subject);
    let failure = explore(&subject, &config(), plan).expect_err("the defect was not found");
    let state = failure.state.expect("found in a crash state");
    assert!(failure.to_string().contains(&format!("IMBREX_CRASH_REPLAY={state}")), "{failure}");
    let again = replay(&subject, &config(), plan, &state).expect_err("the failure does not repeat alone");
    assert_eq!((again.state, &again.why, &again.at), (failure.state, &failure.why, &failure.at));
    (failure, state)
}

#[test]
fn correct_engines_pass_every_state() {
    for seed in 0..2 {
        let all = Plan { max_states: u64::MAX, ..plan(seed) };
        let report = run(Pair::new(pair::Defect::None), &all).unwrap();
        assert!(report.states == report.possible && report.states > 300, "{report:?}");
        let report = run(Batches { puts: 12, ..Batches::new(batches::Defect::None) }, &all).unwrap();
        assert!(report.states == report.possible && report.states > 300, "{report:?}");
    }
}

#[test]
fn correct_engines_pass_without_a_write_cache() {
    let config = Config { write_cache: false, ..config() };
    explore(&Arc::new(Pair::new(pair::Defect::None)), &config, &plan(1)).unwrap();
    explore(&Arc::new(Batches::new(batches::Defect::None)), &config, &plan(1)).unwrap();
    // What is not flushed is safe there.
    explore(&Arc::new(Batches::new(batches::Defect::ForgetsFlush)), &config, &plan(1)).unwrap();
}

#[test]
fn broken_pairs_are_caught() {
    use pair::Defect::*;
    for (defect, crash) in
        [(OverwritesBoth, Crash::Power), (BelievesTornCopies, Crash::Process), (SyncsNothing, Crash::Power)]
    {
        let (failure, state) = caught(Pair::new(defect), &plan(5));
        assert_eq!(state.variant.crash(), crash, "{defect:?}: {failure}");
    }
}

#[test]
fn broken_logs_are_caught() {
    use batches::Defect::*;
    for (defect, crash) in [
        (ForgetsFlush, Crash::Power),
        (TrustsWritePointer, Crash::Process),
        (ReplaysStaleSurvivor, Crash::Process),
        (AcksTooEarly, Crash::Process),
        (DropsSurvivorTooEarly, Crash::Process),
        (NeverFlushesReplay, Crash::ProcessThenPower),
    ] {
        let (failure, state) = caught(Batches::new(defect), &plan(5));
        assert_eq!(state.variant.crash(), crash, "{defect:?}: {failure}");
    }
}

#[test]
fn a_stale_survivor_is_offered_after_power_loss() {
    let power_only = Plan { crashes: vec![Crash::Power], recrash: false, ..plan(5) };
    let (_, state) = caught(Batches::new(batches::Defect::ReplaysStaleSurvivor), &power_only);
    assert_eq!(state.variant.crash(), Crash::Power);
}

#[test]
fn defects_of_recovery_need_a_crash_of_recovery() {
    let defect = batches::Defect::DropsSurvivorTooEarly;
    let once = Plan { crashes: vec![Crash::Process, Crash::Power], recrash: false, ..plan(5) };
    run(Batches::new(defect), &once).unwrap();
    let (_, state) = caught(Batches::new(defect), &Plan { recrash: true, ..once });
    assert_eq!(state.variant, Variant::ProcessProcess);
}

#[test]
fn one_seed_gives_one_hash_and_another_seed_another() {
    let report = |seed, threads| run(Batches::new(batches::Defect::None), &Plan { threads, ..plan(seed) }).unwrap();
    let first = report(7, 1);
    assert_eq!(first, report(7, 4));
    assert_eq!(
        first.hash, 13166519256048236396,
        "the same in every process and release; changes only with the toy's own commands"
    );
    assert_ne!(first.hash, report(8, 4).hash);
}

#[test]
fn more_states_than_wanted_are_sampled() {
    let few = Plan { max_states: 50, ..plan(3) };
    let report = run(Batches::new(batches::Defect::None), &few).unwrap();
    assert_eq!(report.states, 50);
    assert!(report.possible > 200);
    let subject = || Batches { puts: 30, ..Batches::new(batches::Defect::ForgetsFlush) };
    let (one, two) = (caught(subject(), &few).1, caught(subject(), &few).1);
    assert_eq!(one, two);
}

#[test]
fn a_workload_that_is_not_deterministic_is_refused() {
    // Nothing but the comparison of the two runs looks at it.
    let blind = Plan { crashes: Vec::new(), ..plan(1) };
    let failure = run(Batches::new(batches::Defect::LooksAtClock), &blind).unwrap_err();
    assert!(failure.why.contains("not deterministic") && failure.why.contains("write of"), "{failure}");
}

#[test]
fn broken_rules_are_failures_even_where_they_were_survived() {
    let failure = run(Batches::new(batches::Defect::GuessesWritePointer), &plan(1)).unwrap_err();
    assert!(failure.why.contains("rules of the drive"), "{failure}");
    let lenient = Plan { forbid_violations: false, ..plan(1) };
    run(Batches::new(batches::Defect::GuessesWritePointer), &lenient).unwrap();
}

#[test]
fn panics_are_failures() {
    let (failure, _) = caught(Batches::new(batches::Defect::PanicsInCheck), &plan(1));
    assert_eq!(failure.why, "panic: as it was told");
}

#[test]
fn hangs_are_failures() {
    let impatient = Plan { hang_limit: Duration::from_millis(200), ..plan(1) };
    for defect in [batches::Defect::HangsInCheck, batches::Defect::HangsInWorkload] {
        let failure = run(Batches::new(defect), &impatient).unwrap_err();
        assert!(failure.why.contains("hung"), "{failure}");
        assert_eq!(failure.state.is_some(), defect == batches::Defect::HangsInCheck);
    }
}

#[test]
fn a_state_that_does_not_exist_is_said() {
    let id = StateId { workload: 1, point: 1_000_000, variant: Variant::Power, seed: 0 };
    let failure = replay(&Arc::new(Pair::new(pair::Defect::None)), &config(), &plan(1), &id).unwrap_err();
    assert!(failure.why.contains("crash points"), "{failure}");
}
