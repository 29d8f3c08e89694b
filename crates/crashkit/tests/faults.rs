//! The fault campaign passes correct engines, and finds who hides, forgets or trips over an error.

mod toys;

use imbrex_crashkit::{Failure, FaultKind, FaultPlan, FaultReport, Subject, fault_sweep};
use std::sync::Arc;
use std::time::Duration;
use toys::batches::{self, Batches};
use toys::config;
use toys::pair::{self, Pair};

fn plan(seed: u64) -> FaultPlan {
    FaultPlan { threads: 2, ..FaultPlan::new(seed) }
}

fn run<S: Subject>(subject: S, plan: &FaultPlan) -> Result<FaultReport, Failure> {
    fault_sweep(&Arc::new(subject), &config(), plan)
}

#[test]
fn correct_engines_pass_every_fault() {
    for seed in 0..3 {
        let all = FaultPlan {
            kinds: [&FaultKind::PASSING[..], &FaultKind::DAMAGING[..]].concat(),
            max_runs: u64::MAX,
            recoveries: 16,
            ..plan(seed)
        };
        let report = run(Batches::new(batches::Defect::None), &all).unwrap();
        assert_eq!(report.runs, report.possible);
        // Some faults stop it, others it does not even notice.
        assert!(report.refused > 50 && report.runs - report.refused > 50, "{report:?}");

        // Both copies of the pair are read at each mount, so it cannot do without either: only errors that pass.
        let report = run(Pair::new(pair::Defect::None), &FaultPlan { max_runs: u64::MAX, ..plan(seed) }).unwrap();
        assert!(report.runs > 50 && report.refused > 50, "{report:?}");
    }
}

#[test]
fn each_kind_of_fault_hits_something_of_its_own() {
    for kind in [&FaultKind::PASSING[..], &FaultKind::DAMAGING[..]].concat() {
        let report = run(Batches::new(batches::Defect::None), &FaultPlan { kinds: vec![kind], ..plan(1) }).unwrap();
        // The log never resets, opens or finishes a zone.
        assert_eq!(report.runs > 0, kind != FaultKind::ZoneOpError, "{kind:?}: {report:?}");
        let silent = [FaultKind::BitFlip, FaultKind::BadSector].contains(&kind);
        let refused = report.refused > 0;
        assert!(refused || silent || report.runs == 0, "nobody noticed {kind:?}: {report:?}");
    }
}

#[test]
fn a_hidden_failed_flush_is_caught() {
    let failure = run(Batches::new(batches::Defect::HidesFailedFlush), &plan(1)).unwrap_err();
    let text = failure.to_string();
    for part in ["FlushError", "Power", "must be", "IMBREX_FAULT_REPLAY="] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    let again = run(Batches::new(batches::Defect::HidesFailedFlush), &plan(1)).unwrap_err();
    assert_eq!(text, again.to_string(), "the same seed finds the same failure");
}

#[test]
fn a_bad_block_taken_for_the_log_s_end_is_caught() {
    let many = FaultPlan { recoveries: 16, ..plan(1) };
    let failure = run(Batches::new(batches::Defect::TakesBadBlockForEnd), &many).unwrap_err();
    assert!(failure.at.contains("ReadMedia") && failure.at.contains("recovery"), "{failure}");
}

#[test]
fn a_panic_is_not_a_clean_error() {
    let failure = run(Batches::new(batches::Defect::UnwrapsFlush), &plan(1)).unwrap_err();
    assert!(failure.why.contains("did not refuse cleanly: panic"), "{failure}");
}

#[test]
fn endless_retries_are_hangs() {
    let kinds = vec![FaultKind::ZoneReadOnly];
    let impatient = FaultPlan { kinds, hang_limit: Duration::from_millis(300), ..plan(1) };
    let failure = run(Batches::new(batches::Defect::RetriesForEver), &impatient).unwrap_err();
    assert!(failure.why.contains("hung"), "{failure}");
}

#[test]
fn more_runs_than_wanted_are_sampled() {
    let report = run(Batches::new(batches::Defect::None), &FaultPlan { max_runs: 7, ..plan(1) }).unwrap();
    assert_eq!(report.runs, 7);
    assert!(report.possible > 50, "{report:?}");
}
