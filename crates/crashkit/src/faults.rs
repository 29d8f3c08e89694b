//! Fault campaigns: one command after the other fails, and nothing that was promised may be lost by it.
//!
//! Each run makes one command of the workload, or of a recovery, go wrong. The run may go on or end with a clean error, but
//! not panic, hang or show a wrong byte. Then the process is let die, and separately the power, at the end and at one
//! moment between, and the subject's check has to find what the log says was promised.

use crate::drive::{Loss, Model};
use crate::examine::Machine;
use crate::explore::Failure;
use crate::log::{Entry, History, Injected, Status};
use crate::plan::mix;
use crate::pool::{Failed, Job, Pool, caught, or_panic};
use crate::recorder::{Command, CountOnly, Injection, Moment, Recorder, Sink};
use crate::run::{Formatted, Run, Setup};
use crate::{Config, Crash, Log, Subject};
use imbrex_device::HeapSurvivor;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Environment variable that makes [`fault_sweep`] do only the run of this number.
pub const FAULT_REPLAY_VARIABLE: &str = "IMBREX_FAULT_REPLAY";

/// What goes wrong with one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A read fails with a medium error, this once.
    ReadMedia,
    /// A write fails and nothing of it is written.
    WriteError,
    /// A write fails with a medium error after some of its blocks.
    TornWrite,
    /// A flush fails and flushes nothing.
    FlushError,
    /// A zone operation fails and does nothing.
    ZoneOpError,
    /// A write finds no space (the host's disk under an image is full).
    NoSpace,
    /// The zone turns read-only before the write or zone operation. A conventional one: see [`FaultPlan::conventional`].
    ZoneReadOnly,
    /// The zone goes offline before the write or zone operation: its bytes are gone.
    ZoneOffline,
    /// A bit of what was just written is flipped, silently.
    BitFlip,
    /// A block of what was just written cannot be read any more.
    BadSector,
    /// The drive alone loses power before the command, which goes on as if nothing had happened. The drive
    /// [tells](imbrex_device::ZonedDevice::power_epoch), so nothing that is begun from then on may be called synced.
    PowerLoss,
    /// The same of a drive that does not tell, as real ones: write pointers alone show it.
    QuietPowerLoss,
}

impl FaultKind {
    /// Faults that take away nothing that was promised: the check has to find all of it.
    pub const PASSING: [FaultKind; 7] = [
        FaultKind::ReadMedia,
        FaultKind::WriteError,
        FaultKind::TornWrite,
        FaultKind::FlushError,
        FaultKind::ZoneOpError,
        FaultKind::NoSpace,
        FaultKind::ZoneReadOnly,
    ];
    /// Faults that damage what is on the drive: the check has to look at [`History::fault`] and accept a clear error or a
    /// loss of just these bytes, but no wrong ones.
    pub const DAMAGING: [FaultKind; 3] = [FaultKind::ZoneOffline, FaultKind::BitFlip, FaultKind::BadSector];

    /// Losses of power under a volume that is mounted. They take what was not synced: the check has to find what was, and
    /// what is called synced from then on. The run ends where the workload mounts anew.
    pub const POWER: [FaultKind; 2] = [FaultKind::PowerLoss, FaultKind::QuietPowerLoss];

    pub(crate) fn is_power(self) -> bool {
        FaultKind::POWER.contains(&self)
    }

    fn hits(self, command: &Command, mortal: impl Fn(&Command) -> bool) -> bool {
        let write = matches!(command, Command::Write { .. });
        let zone_op = matches!(command, Command::Zone { .. });
        match self {
            FaultKind::ReadMedia => matches!(command, Command::Read { .. }),
            FaultKind::FlushError => matches!(command, Command::Flush { .. }),
            FaultKind::ZoneOpError => zone_op,
            FaultKind::PowerLoss | FaultKind::QuietPowerLoss => command.mutates(),
            FaultKind::ZoneReadOnly | FaultKind::ZoneOffline => (write || zone_op) && mortal(command),
            _ => write,
        }
    }
}

/// What a sweep does. Start from [`FaultPlan::new`].
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// Seed of the workload and of everything random.
    pub seed: u64,
    /// Most runs; of more, this many are drawn, all equally likely. Each runs the workload once.
    pub max_runs: u64,
    /// What goes wrong.
    pub kinds: Vec<FaultKind>,
    /// Whether conventional zones die, too; otherwise only sequential ones do.
    pub conventional: bool,
    /// How many moments of the workload are recovered from, with every command of that recovery failing in turn.
    pub recoveries: u32,
    /// Worker threads; 0: as many as there are processors.
    pub threads: usize,
    /// How long one run may take.
    pub hang_limit: Duration,
}

impl FaultPlan {
    /// All passing faults, 1,000 runs, four recoveries.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan {
            seed,
            max_runs: 1_000,
            kinds: FaultKind::PASSING.to_vec(),
            conventional: false,
            recoveries: 4,
            threads: 0,
            hang_limit: Duration::from_secs(60),
        }
    }

    fn setup(&self) -> Setup {
        Setup {
            seed: self.seed,
            cuts_per_write: 0,
            keep_trace: false,
            expected: None,
            injection: None,
            forbid_violations: false,
        }
    }
}

/// What a sweep that found nothing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// Runs, each with one fault.
    pub runs: u64,
    /// Runs there are, by the plan.
    pub possible: u64,
    /// Runs that the workload or recovery ended with a clean error; the others went on to their end.
    pub refused: u64,
    /// Commands of the workload.
    pub commands: u64,
}

/// One run of the sweep.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The recovery that is hit; `None`: the workload.
    recovery: Option<usize>,
    injection: Injection,
    command: Command,
}

/// A moment from which recoveries start.
struct Base<Op> {
    moment: Moment,
    entries: Vec<Entry<Op>>,
}

/// Makes commands of the workload and of recoveries fail, one in each run.
///
/// # Errors
/// The failure of the lowest run. It names the run; `IMBREX_FAULT_REPLAY` repeats it alone.
pub fn fault_sweep<S: Subject>(subject: &Arc<S>, config: &Config, plan: &FaultPlan) -> Result<FaultReport, Failure> {
    let broken = |why: String| Failure::of_sweep(plan.seed, why);
    let formatted = Formatted::new(subject, config, plan.hang_limit).map_err(broken)?;
    let setup = Setup { keep_trace: true, ..plan.setup() };
    let counting = Run::new(subject, &formatted, &setup, |_| Box::new(CountOnly));
    let count = counting.guarded(plan.hang_limit, || None).map_err(broken)?;
    let bases = Arc::new(bases(subject, &formatted, plan, count.points).map_err(broken)?);

    let mut cases = Vec::new();
    add_cases(&mut cases, plan, config, None, &count.list);
    for (i, base) in bases.iter().enumerate() {
        let commands = recovery_commands(subject, base).map_err(broken)?;
        add_cases(&mut cases, plan, config, Some(i), &commands);
    }
    let possible = cases.len() as u64;
    let chosen = choose(plan, possible)?;

    let refused = Arc::new(AtomicU64::new(0));
    let (pool, feed) = Pool::start(plan.threads, plan.hang_limit);
    let cases = Arc::new(cases);
    let feeding = {
        let (cases, refused, subject) = (cases.clone(), refused.clone(), subject.clone());
        let (bases, formatted, setup) = (bases.clone(), formatted.clone(), plan.setup());
        std::thread::spawn(move || {
            for number in chosen {
                let case = cases[number as usize];
                let (subject, refused) = (subject.clone(), refused.clone());
                let (bases, formatted, setup) = (bases.clone(), formatted.clone(), setup.clone());
                let run = Box::new(move || {
                    let clean = match case.recovery {
                        None => hit_workload(&subject, &formatted, setup, case)?,
                        Some(i) => hit_recovery(subject.as_ref(), &bases[i], case)?,
                    };
                    refused.fetch_add(u64::from(!clean), Ordering::Relaxed);
                    Ok(())
                });
                feed.give(Job { number, run });
            }
        })
    };
    let describe = |failed: Failed| {
        let case = &cases[failed.number as usize];
        let phase = case.recovery.map_or("workload".into(), |i| format!("recovery {i} ({})", bases[i].moment.what));
        let at = format!("{:?} at the {} of the {phase}", case.injection.kind, case.command);
        Failure::of_fault(failed.number, case.injection.command, at, failed.why)
    };
    while !(feeding.is_finished() && pool.finished()) {
        std::thread::sleep(Duration::from_millis(1));
        if let Some(failed) = pool.hung() {
            return Err(describe(pool.abandon(failed)));
        }
    }
    match pool.result() {
        (_, Some(failed)) => Err(describe(failed)),
        (runs, None) => {
            let refused = refused.load(Ordering::Relaxed);
            Ok(FaultReport { runs, possible, refused, commands: count.commands })
        }
    }
}

fn choose(plan: &FaultPlan, possible: u64) -> Result<Vec<u64>, Failure> {
    let Some(only) = std::env::var_os(FAULT_REPLAY_VARIABLE) else {
        let drawing = crate::Plan { seed: plan.seed, max_states: plan.max_runs, ..crate::Plan::new(0) };
        return Ok(drawing.choose(possible));
    };
    match only.to_string_lossy().trim().parse::<u64>() {
        Ok(number) if number < possible => Ok(vec![number]),
        _ => Err(Failure::of_sweep(plan.seed, format!("{FAULT_REPLAY_VARIABLE} must be a number below {possible}"))),
    }
}

fn add_cases(cases: &mut Vec<Case>, plan: &FaultPlan, config: &Config, recovery: Option<usize>, list: &[Command]) {
    let conventional = u64::from(config.conventional) * config.zone_size;
    let mortal = |command: &Command| match command {
        Command::Write { at, .. } => plan.conventional || *at >= conventional,
        Command::Zone { zone, .. } => zone.0 >= config.conventional,
        _ => false,
    };
    for (number, command) in (0u64..).zip(list) {
        for kind in plan.kinds.iter().filter(|kind| kind.hits(command, mortal)) {
            let seed = mix(mix(plan.seed, cases.len() as u64), number);
            cases.push(Case {
                recovery,
                injection: Injection { command: number, kind: *kind, seed },
                command: *command,
            });
        }
    }
}

/// Moments of the workload, drawn evenly.
fn bases<S: Subject>(
    subject: &Arc<S>,
    formatted: &Formatted,
    plan: &FaultPlan,
    points: u64,
) -> Result<Vec<Base<S::Op>>, String> {
    let drawing = crate::Plan { seed: plan.seed, max_states: plan.recoveries.into(), ..crate::Plan::new(0) };
    let kept = Arc::new(Mutex::new(Vec::new()));
    let run = Run::new(subject, formatted, &plan.setup(), |log| {
        Box::new(Bases { points: drawing.choose(points), log: log.clone(), kept: kept.clone() })
    });
    run.guarded(plan.hang_limit, || None)?;
    let bases = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(bases)
}

struct Bases<Op> {
    points: Vec<u64>,
    log: Arc<Log<Op>>,
    kept: Arc<Mutex<Vec<Base<Op>>>>,
}

impl<Op: Clone + Send + Sync> Sink for Bases<Op> {
    fn wants(&mut self, point: u64, _faulted: bool) -> bool {
        self.points.binary_search(&point).is_ok()
    }
    fn take(&mut self, moment: Moment) {
        let entries = self.log.snapshot();
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Base { moment, entries });
    }
}

fn recorder_of<Op>(base: &Base<Op>) -> Arc<Recorder> {
    let (model, survivor) = (base.moment.model.fork(), base.moment.survivor.snapshot());
    Recorder::new(model, survivor, 0, 0, Box::new(CountOnly))
}

fn recovery_commands<S: Subject>(subject: &Arc<S>, base: &Base<S::Op>) -> Result<Vec<Command>, String> {
    let recorder = recorder_of(base);
    recorder.keep_trace();
    caught(|| subject.recover(recorder.drive()))
        .map_err(|why| format!("recovery without a fault failed, {}: {why}", base.moment.what))?;
    Ok(recorder.finish().list)
}

/// Whether the workload came to its end in spite of the fault.
fn hit_workload<S: Subject>(subject: &Arc<S>, formatted: &Formatted, setup: Setup, case: Case) -> Result<bool, String> {
    let setup = Setup { injection: Some(case.injection), ..setup };
    let between = Arc::new(Mutex::new(None));
    let begun = Arc::new(AtomicU64::new(0));
    let run = Run::new(subject, formatted, &setup, |log| {
        let rng = ChaCha8Rng::seed_from_u64(case.injection.seed);
        Box::new(AfterFault { rng, seen: 0, log: log.clone(), kept: between.clone(), begun: begun.clone() })
    });
    let clean = or_panic(|| run.here()).map_err(|panic| format!("the workload did not refuse cleanly: {panic}"))?;
    let injected = injected(&run.recorder)?;
    if injected.kind == FaultKind::PowerLoss {
        let begun = begun.load(Ordering::Relaxed) as usize;
        let later = run.log.snapshot().into_iter().skip(begun).find(|entry| entry.status == Status::Synced);
        if let Some(entry) = later {
            return Err(format!("{:?} was begun after the drive had lost power, and synced", entry.op));
        }
    }
    let (model, survivor) = run.recorder.now();
    let between: Option<Base<S::Op>> = between.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Base { moment, entries }) = between {
        crash_both_ways(subject.as_ref(), moment.model, &moment.survivor, &entries, (injected, case.injection))
            .map_err(|why| format!("{why} ({})", moment.what))?;
    }
    crash_both_ways(subject.as_ref(), model, &survivor, &run.log.snapshot(), (injected, case.injection))?;
    Ok(clean.is_ok())
}

/// Whether the recovery came to its end in spite of the fault.
fn hit_recovery<S: Subject>(subject: &S, base: &Base<S::Op>, case: Case) -> Result<bool, String> {
    let recorder = recorder_of(base);
    recorder.inject(case.injection);
    let clean = or_panic(|| subject.recover(recorder.drive()))
        .map_err(|panic| format!("recovery did not refuse cleanly: {panic}"))?;
    let injected = injected(&recorder)?;
    let (model, survivor) = recorder.now();
    crash_both_ways(subject, model, &survivor, &base.entries, (injected, case.injection))?;
    Ok(clean.is_ok())
}

fn injected(recorder: &Recorder) -> Result<Injected, String> {
    let never = "the command to be hit was never issued: the workload is not deterministic";
    recorder.finish().injected.ok_or_else(|| never.into())
}

/// A process crash, a power loss that takes all it may, and one with a random outcome.
fn crash_both_ways<S: Subject>(
    subject: &S,
    model: Model,
    survivor: &HeapSurvivor,
    entries: &[Entry<S::Op>],
    (injected, injection): (Injected, Injection),
) -> Result<(), String> {
    let machine = || Machine { model: model.fork(), survivor: survivor.snapshot(), cuts: 0, forbid_violations: false };
    let check = |machine: Machine, crash, floor| {
        let history = History::new(entries.to_vec(), floor).with_fault(Some(injected));
        caught(|| machine.check(subject, crash, &history)).map_err(|why| format!("after a {crash:?} crash: {why}"))
    };
    let floor = if injected.kind.is_power() { Status::Synced } else { Status::Acked };
    check(machine(), Crash::Process, floor)?;
    check(machine().power_loss(Loss::KeepNothing, true), Crash::Power, Status::Synced)?;
    let mut rng = ChaCha8Rng::seed_from_u64(injection.seed);
    check(machine().random_loss(&mut rng), Crash::Power, Status::Synced)
}

/// Keeps one of the moments after the fault: what was promised then may be made up for by the end.
struct AfterFault<Op> {
    rng: ChaCha8Rng,
    seen: u64,
    log: Arc<Log<Op>>,
    kept: Arc<Mutex<Option<Base<Op>>>>,
    /// Operations begun before the fault.
    begun: Arc<AtomicU64>,
}

impl<Op: Clone + Send + Sync> Sink for AfterFault<Op> {
    fn wants(&mut self, _point: u64, faulted: bool) -> bool {
        if !faulted {
            self.begun.store(self.log.len() as u64, Ordering::Relaxed);
        }
        self.seen += u64::from(faulted);
        faulted && self.rng.random_range(0..self.seen) == 0
    }
    fn take(&mut self, moment: Moment) {
        let entries = self.log.snapshot();
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Base { moment, entries });
    }
}
