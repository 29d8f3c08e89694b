//! Runs a workload on a fresh drive under a recorder, on a thread of its own, so that a hang is a failure and not a wait
//! for ever.

use crate::drive::Model;
use crate::pool::caught;
use crate::recorder::{CountOnly, Injection, Recorder, Sink, Tally};
use crate::{Config, Log, Subject};
use imbrex_device::HeapSurvivor;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A freshly formatted drive, and the hash of the commands that formatted it.
#[derive(Clone)]
pub(crate) struct Formatted {
    model: Model,
    survivor: Arc<HeapSurvivor>,
    hash: u64,
}

impl Formatted {
    /// Formats a new drive.
    pub(crate) fn new<S: Subject>(subject: &Arc<S>, config: &Config, hang_limit: Duration) -> Result<Self, String> {
        let model = Model::new(config).map_err(|e| e.to_string())?;
        let recorder = Recorder::new(model, HeapSurvivor::new(), 0, 0, Box::new(CountOnly));
        let (drive, subject) = (recorder.drive(), subject.clone());
        let formatting = std::thread::spawn(move || caught(|| subject.format(&drive)));
        wait(&recorder, formatting, hang_limit, || None)
            .and_then(|result| result)
            .map_err(|why| format!("formatting failed: {why}"))?;
        let hash = recorder.finish().hash;
        let (model, survivor) = recorder.now();
        Ok(Formatted { model, survivor: Arc::new(survivor), hash })
    }
}

/// How a workload is to be run.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) cuts_per_write: u32,
    pub(crate) keep_trace: bool,
    pub(crate) expected: Option<Arc<Vec<u64>>>,
    pub(crate) injection: Option<Injection>,
    pub(crate) forbid_violations: bool,
}

/// A workload ready to be run: its recorder, and its log, which the recorder's sink may look into.
pub(crate) struct Run<S: Subject> {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) log: Arc<Log<S::Op>>,
    subject: Arc<S>,
    seed: u64,
    forbid_violations: bool,
}

impl<S: Subject> Run<S> {
    /// On its own copy of a formatted drive; `sink` is made for the log.
    pub(crate) fn new(
        subject: &Arc<S>,
        formatted: &Formatted,
        setup: &Setup,
        sink: impl FnOnce(&Arc<Log<S::Op>>) -> Box<dyn Sink>,
    ) -> Run<S> {
        let mut log = None;
        let (model, survivor) = (formatted.model.fork(), formatted.survivor.snapshot());
        let recorder = Arc::new_cyclic(|recorder: &Weak<Recorder>| {
            // Weak: the recorder's sink has the log.
            let recorder = recorder.clone();
            let new = Arc::new(Log::with_hook(Arc::new(move |event| {
                if let Some(recorder) = recorder.upgrade() {
                    recorder.promise(event);
                }
            })));
            let sink = sink(&new);
            log = Some(new);
            Recorder::unshared(model, survivor, setup.cuts_per_write, setup.seed, sink)
        });
        recorder.start_from(formatted.hash);
        if setup.keep_trace {
            recorder.keep_trace();
        }
        if let Some(expected) = &setup.expected {
            recorder.expect(expected.clone());
        }
        if let Some(injection) = setup.injection {
            recorder.inject(injection);
        }
        let log = log.unwrap_or_default();
        Run { recorder, log, subject: subject.clone(), seed: setup.seed, forbid_violations: setup.forbid_violations }
    }

    /// Runs the workload on this thread; panics where it does.
    pub(crate) fn here(&self) -> Result<(), String> {
        self.subject.workload(self.recorder.drive(), self.seed, &self.log)
    }

    /// Runs it on a thread of its own. `also` is asked again and again for another reason to give up.
    pub(crate) fn guarded(&self, hang_limit: Duration, also: impl FnMut() -> Option<String>) -> Result<Tally, String> {
        let (drive, subject, log, seed) = (self.recorder.drive(), self.subject.clone(), self.log.clone(), self.seed);
        let working = std::thread::spawn(move || caught(|| subject.workload(drive, seed, &log)));
        let result = wait(&self.recorder, working, hang_limit, also)?;
        let tally = self.recorder.finish();
        result.map_err(|why| format!("the workload failed: {why}"))?;
        match self.recorder.violations() {
            n if n > 0 && self.forbid_violations => Err(format!("the workload broke {n} rules of the drive")),
            _ => Ok(tally),
        }
    }
}

/// Waits for a thread that works on a recorded drive; the outer error says why that was given up, and the thread goes on.
fn wait(
    recorder: &Recorder,
    thread: std::thread::JoinHandle<Result<(), String>>,
    hang_limit: Duration,
    mut also: impl FnMut() -> Option<String>,
) -> Result<Result<(), String>, String> {
    let mut pause = Duration::from_micros(100);
    while !thread.is_finished() {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
        if recorder.silence() > hang_limit {
            return Err(format!("hung: no command for {} seconds", hang_limit.as_secs_f32()));
        }
        if let Some(why) = also() {
            return Err(why);
        }
    }
    Ok(thread.join().unwrap_or_else(|_| Err("panic".into())))
}
