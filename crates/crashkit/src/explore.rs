//! The exploration itself: count the crash points, choose states, run again and check them while the workload goes on.

use crate::examine::{Situation, examine};
use crate::plan::{Plan, StateId};
use crate::pool::{Failed, Feed, Job, Pool};
use crate::recorder::{CountOnly, Moment, Sink};
use crate::run::{Formatted, Run, Setup};
use crate::{Config, Crash, Log, Subject};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Environment variable that makes [`explore`] look at one state only, as named by a [`Failure`].
pub const REPLAY_VARIABLE: &str = "IMBREX_CRASH_REPLAY";

/// What an exploration that found nothing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// States checked.
    pub states: u64,
    /// States there are, by the plan.
    pub possible: u64,
    /// Crash points of the workload.
    pub points: u64,
    /// Commands of the workload.
    pub commands: u64,
    /// Hash of every command of formatting and workload: kind, address, length, data, cause. The same for the same seed.
    pub hash: u64,
}

/// What is wrong, and how to see it again.
#[derive(Clone)]
pub struct Failure {
    /// What is wrong.
    pub why: String,
    /// The state it was found in; `None` where the workload itself failed.
    pub state: Option<StateId>,
    /// What the check was told.
    pub crash: Option<Crash>,
    /// How many commands the workload had issued.
    pub command: u64,
    /// Where in the workload the crash hit.
    pub at: String,
    /// How to run it alone.
    pub replay: String,
}

impl Failure {
    fn of_workload(plan: &Plan, why: String) -> Failure {
        let replay = format!("the workload of seed {:#x} fails by itself", plan.seed);
        Failure { why, state: None, crash: None, command: 0, at: String::new(), replay }
    }

    pub(crate) fn of_sweep(seed: u64, why: String) -> Failure {
        let replay = format!("the workload of seed {seed:#x} without a fault");
        Failure { why, state: None, crash: None, command: 0, at: String::new(), replay }
    }

    pub(crate) fn of_fault(number: u64, command: u64, at: String, why: String) -> Failure {
        let replay = replay_line(crate::FAULT_REPLAY_VARIABLE, &number.to_string());
        Failure { why, state: None, crash: None, command, at, replay }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.why)?;
        if let (Some(state), Some(crash)) = (self.state, self.crash) {
            writeln!(f, "  crash:  {crash:?} ({state}), {}, {} commands in", self.at, self.command)?;
        } else if !self.at.is_empty() {
            writeln!(f, "  fault:  {}, {} commands in", self.at, self.command)?;
        }
        write!(f, "  replay: {}", self.replay)
    }
}

/// The same text, so that `unwrap` prints something to read.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Failure {}

/// Explores the crash states of a workload on a new drive of this configuration.
///
/// The workload runs twice, once to count its crash points, once to check the chosen states; it must do exactly the same
/// both times (single-threaded, no clocks, no randomness but its seed), which is checked. With `IMBREX_CRASH_REPLAY` set,
/// only that state is looked at.
///
/// # Errors
/// The failure that comes first in the order of crash points, whichever was found first.
pub fn explore<S: Subject>(subject: &Arc<S>, config: &Config, plan: &Plan) -> Result<Report, Failure> {
    if let Some(id) = std::env::var_os(REPLAY_VARIABLE) {
        let id = id.to_string_lossy().parse().map_err(|why| Failure::of_workload(plan, why))?;
        return replay(subject, config, plan, &id);
    }
    let workload_failure = |why| Failure::of_workload(plan, why);
    let formatted = Formatted::new(subject, config, plan.hang_limit).map_err(workload_failure)?;
    let setup = Setup { keep_trace: true, ..setup(plan) };
    let counting = Run::new(subject, &formatted, &setup, |_| Box::new(CountOnly));
    let count = counting.guarded(plan.hang_limit, || None).map_err(workload_failure)?;
    drop(counting);

    let variants = plan.variants();
    let possible = count.points * variants.len() as u64;
    let states: Vec<StateId> = plan.choose(possible).into_iter().map(|index| plan.state(&variants, index)).collect();
    // A drive formatted anew, so that formatting has to be repeatable too.
    let formatted = Formatted::new(subject, config, plan.hang_limit).map_err(workload_failure)?;
    let setup = Setup { keep_trace: false, expected: Some(Arc::new(count.trace)), ..setup };
    let (done, again) = check_states(subject, &formatted, plan, &setup, states)?;
    if again.hash != count.hash || again.points != count.points {
        let first = match again.diverged {
            Some((number, command)) => format!("command {number} ({command}) is the first that was another one before"),
            None => format!("{} crash points after {} before", again.points, count.points),
        };
        return Err(workload_failure(format!("the workload is not deterministic: {first}")));
    }
    Ok(Report { states: done, possible, points: count.points, commands: count.commands, hash: count.hash })
}

/// Looks at one state only.
///
/// # Errors
/// As [`explore`].
pub fn replay<S: Subject>(subject: &Arc<S>, config: &Config, plan: &Plan, id: &StateId) -> Result<Report, Failure> {
    let plan = Plan { seed: id.workload, ..plan.clone() };
    let formatted = Formatted::new(subject, config, plan.hang_limit).map_err(|why| Failure::of_workload(&plan, why))?;
    let (states, tally) = check_states(subject, &formatted, &plan, &setup(&plan), vec![*id])?;
    if states == 0 {
        let why = format!("the workload has {} crash points; {id} is not one of them", tally.points);
        return Err(Failure::of_workload(&plan, why));
    }
    let points = tally.points;
    Ok(Report { states, possible: states, points, commands: tally.commands, hash: tally.hash })
}

fn setup(plan: &Plan) -> Setup {
    Setup {
        seed: plan.seed,
        cuts_per_write: plan.cuts_per_write,
        keep_trace: false,
        expected: None,
        injection: None,
        forbid_violations: plan.forbid_violations,
    }
}

/// Runs the workload and checks these states (ascending by point); how many, and what the run was.
fn check_states<S: Subject>(
    subject: &Arc<S>,
    formatted: &Formatted,
    plan: &Plan,
    setup: &Setup,
    states: Vec<StateId>,
) -> Result<(u64, crate::recorder::Tally), Failure> {
    let (pool, feed) = Pool::start(plan.threads, plan.hang_limit);
    let states = Arc::new(states);
    let places = Places::default();
    let run = Run::new(subject, formatted, setup, |log| {
        Box::new(Feeder {
            states: states.clone(),
            next: 0,
            places: places.clone(),
            feed,
            log: log.clone(),
            subject: subject.clone(),
            plan: plan.clone(),
        })
    });
    let found = |failed: Failed| failure_at(&states[failed.number as usize], &places, failed.why);
    let mut hung = None;
    let result = run.guarded(plan.hang_limit, || {
        hung = pool.hung();
        hung.as_ref().map(|failed| failed.why.clone())
    });
    if let Some(failed) = hung {
        return Err(found(pool.abandon(failed)));
    }
    if let Err(why) = &result
        && why.starts_with("hung")
    {
        pool.abandon(Failed { number: u64::MAX, why: why.clone() });
        return Err(Failure::of_workload(plan, why.clone()));
    }
    while !pool.finished() {
        std::thread::sleep(Duration::from_millis(1));
        if let Some(failed) = pool.hung() {
            return Err(found(pool.abandon(failed)));
        }
    }
    let (done, failed) = pool.result();
    match (failed, result) {
        (Some(failed), _) => Err(found(failed)),
        (None, Err(why)) => Err(Failure::of_workload(plan, why)),
        (None, Ok(tally)) => Ok((done, tally)),
    }
}

fn failure_at(id: &StateId, places: &Places, why: String) -> Failure {
    let (command, at) = places.get(id.point);
    Failure {
        why,
        state: Some(*id),
        crash: Some(id.variant.crash()),
        command,
        at,
        replay: replay_line(REPLAY_VARIABLE, &id.to_string()),
    }
}

/// The command that repeats a failure; a test's thread has the test's name.
fn replay_line(variable: &str, value: &str) -> String {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("<the test>");
    let package = std::env::var("CARGO_PKG_NAME").map_or_else(|_| String::new(), |name| format!(" -p {name}"));
    format!("{variable}={value} cargo test{package} -- --exact {test}")
}

/// Where the points that were looked at lie: number of commands before, and a description.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<BTreeMap<u64, (u64, String)>>>);

impl Places {
    fn note(&self, moment: &Moment) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(moment.point, (moment.command, moment.what.clone()));
    }
    fn get(&self, point: u64) -> (u64, String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&point).cloned().unwrap_or_default()
    }
}

/// Turns moments into jobs for the pool.
struct Feeder<S: Subject> {
    states: Arc<Vec<StateId>>,
    next: usize,
    places: Places,
    feed: Feed,
    log: Arc<Log<S::Op>>,
    subject: Arc<S>,
    plan: Plan,
}

impl<S: Subject> Sink for Feeder<S> {
    fn wants(&mut self, point: u64, _faulted: bool) -> bool {
        self.states.get(self.next).is_some_and(|id| id.point == point)
    }

    fn take(&mut self, moment: Moment) {
        self.places.note(&moment);
        let (moment, entries) = (Arc::new(moment), Arc::new(self.log.snapshot()));
        while let Some(id) = self.states.get(self.next).filter(|id| id.point == moment.point) {
            let situation = Situation {
                id: *id,
                moment: moment.clone(),
                entries: entries.clone(),
                cuts_per_write: self.plan.cuts_per_write,
                forbid_violations: self.plan.forbid_violations,
            };
            let subject = self.subject.clone();
            let run = Box::new(move || examine(subject.as_ref(), &situation));
            self.feed.give(Job { number: self.next as u64, run });
            self.next += 1;
        }
    }
}
