//! One crash state: from the moment of the crash to what the subject's check says about it.

use crate::drive::{Loss, Model};
use crate::log::{Entry, History, Status};
use crate::plan::{StateId, Variant};
use crate::pool::caught;
use crate::recorder::{CountOnly, Moment, Recorder, Sink};
use crate::{Crash, Subject};
use imbrex_device::{Drive, HeapSurvivor};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Mutex, PoisonError};

/// What is needed to look at one state.
pub(crate) struct Situation<Op> {
    pub(crate) id: StateId,
    pub(crate) moment: Arc<Moment>,
    pub(crate) entries: Arc<Vec<Entry<Op>>>,
    pub(crate) cuts_per_write: u32,
    pub(crate) forbid_violations: bool,
}

/// Builds the state, and says what is wrong with it.
pub(crate) fn examine<S: Subject>(subject: &S, situation: &Situation<S::Op>) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(situation.id.seed);
    let machine = Machine {
        model: situation.moment.model.fork(),
        survivor: situation.moment.survivor.snapshot(),
        cuts: situation.cuts_per_write,
        forbid_violations: situation.forbid_violations,
    };
    let crash = situation.id.variant.crash();
    let (machine, floor) = match situation.id.variant {
        Variant::Process => (machine, Status::Acked),
        Variant::PowerAll => (machine.power_loss(Loss::KeepAll, true), Status::Synced),
        Variant::PowerNone => (machine.power_loss(Loss::KeepNothing, true), Status::Synced),
        Variant::Power => (machine.random_loss(&mut rng), Status::Synced),
        Variant::ProcessProcess => (machine.interrupted(subject, &mut rng)?.0, Status::Acked),
        Variant::ProcessPower => {
            let (machine, complete) = machine.interrupted(subject, &mut rng)?;
            // A mount that came to its end has made durable whatever the dead process had been promised.
            let floor = if complete { Status::Acked } else { Status::Synced };
            (machine.random_loss(&mut rng), floor)
        }
        Variant::PowerProcess => {
            let machine = machine.random_loss(&mut rng).interrupted(subject, &mut rng)?.0;
            (machine, Status::Synced)
        }
        Variant::PowerPower => {
            let machine = machine.random_loss(&mut rng).interrupted(subject, &mut rng)?.0;
            (machine.random_loss(&mut rng), Status::Synced)
        }
        Variant::Restored => {
            let history = History::new(situation.entries.as_ref().clone(), Status::Acked);
            (machine.restored(subject, crash, &history, &mut rng)?, Status::Acked)
        }
    };
    let history = History::new(situation.entries.as_ref().clone(), floor);
    machine.check(subject, crash, &history)
}

/// Drive and survivor between two lives of the process.
pub(crate) struct Machine {
    pub(crate) model: Model,
    pub(crate) survivor: HeapSurvivor,
    /// Most crash points inside one write of recovery.
    pub(crate) cuts: u32,
    /// Whether a broken rule of the drive is a failure.
    pub(crate) forbid_violations: bool,
}

impl Machine {
    /// Cuts the power. Shared memory is lost with it, except where `stale` keeps it: it may lie on a disk, and a drive may
    /// lose power alone; then its power epoch gives it away.
    pub(crate) fn power_loss(self, loss: Loss, stale: bool) -> Machine {
        let survivor = if stale { self.survivor } else { HeapSurvivor::new() };
        Machine { model: self.model.power_loss(loss), survivor, ..self }
    }

    pub(crate) fn random_loss(self, rng: &mut ChaCha8Rng) -> Machine {
        let (seed, stale) = (rng.next_u64(), rng.random_bool(0.5));
        self.power_loss(Loss::Random(seed), stale)
    }

    /// Recovers, and stops at a random crash point of the recovery; true where that was its end.
    fn interrupted<S: Subject>(self, subject: &S, rng: &mut ChaCha8Rng) -> Result<(Machine, bool), String> {
        // Most points of a recovery lie in its middle; its end is worth more than its share.
        let to_the_end = rng.random_bool(0.25);
        self.stopped(to_the_end, rng, |drive| {
            caught(|| subject.recover(drive)).map_err(|why| format!("recovery failed: {why}"))
        })
    }

    /// Recovers, is copied, and mounted again by a process that is killed while it works on. Then the copy is put in the drive's place,
    /// and shared memory knows nothing of that.
    fn restored<S: Subject>(
        self,
        subject: &S,
        crash: Crash,
        history: &History<S::Op>,
        rng: &mut ChaCha8Rng,
    ) -> Result<Machine, String> {
        let failed = |why| format!("recovery failed: {why}");
        let recovered = self.stopped(true, rng, |drive| caught(|| subject.recover(drive)).map_err(failed))?.0;
        let copy = recovered.model.fork();
        let later = recovered.stopped(false, rng, |drive| subject.check(drive, crash, history))?.0;
        Ok(Machine { model: copy, ..later })
    }

    /// Works on the drive, and stops at the end or at a random crash point; true where that was the end.
    fn stopped(
        self,
        to_the_end: bool,
        rng: &mut ChaCha8Rng,
        work: impl FnOnce(Drive) -> Result<(), String>,
    ) -> Result<(Machine, bool), String> {
        let kept = Arc::new(Mutex::new(None));
        let sink: Box<dyn Sink> = if to_the_end {
            Box::new(CountOnly)
        } else {
            Box::new(Reservoir { rng: ChaCha8Rng::seed_from_u64(rng.next_u64()), seen: 0, kept: kept.clone() })
        };
        let before = self.model.violations();
        let recorder = Recorder::new(self.model, self.survivor, self.cuts, rng.next_u64(), sink);
        work(recorder.drive())?;
        if self.forbid_violations && recorder.violations() > before {
            return Err(format!("recovery broke {} rules of the drive", recorder.violations() - before));
        }
        let tally = recorder.finish();
        let moment: Option<Moment> = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (model, survivor, complete) = match moment {
            Some(moment) => (moment.model, moment.survivor, moment.point + 1 == tally.points),
            None => {
                let (model, survivor) = recorder.now();
                (model, survivor, true)
            }
        };
        let (cuts, forbid_violations) = (self.cuts, self.forbid_violations);
        Ok((Machine { model, survivor, cuts, forbid_violations }, complete))
    }

    /// Lets the subject look at it.
    pub(crate) fn check<S: Subject>(self, subject: &S, crash: Crash, history: &History<S::Op>) -> Result<(), String> {
        let before = self.model.violations();
        subject.check(self.model.drive(self.survivor), crash, history)?;
        match self.model.violations() - before {
            n if n > 0 && self.forbid_violations => Err(format!("the check broke {n} rules of the drive")),
            _ => Ok(()),
        }
    }
}

/// Keeps one of the points it sees, each as likely as any other, without knowing how many there will be.
struct Reservoir {
    rng: ChaCha8Rng,
    seen: u64,
    kept: Arc<Mutex<Option<Moment>>>,
}

impl Sink for Reservoir {
    fn wants(&mut self, _point: u64, _faulted: bool) -> bool {
        self.seen += 1;
        self.rng.random_range(0..self.seen) == 0
    }
    fn take(&mut self, moment: Moment) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(moment);
    }
}
