//! A workload of transactions at random for the crash explorer, on any kind of store.

use super::{Hook, Model, Op, any_transaction, defragment_all, first};
use imbrex_bluestore::{BlueStore, Survives, Ticket, Transaction};
use imbrex_crashkit::{Crash, History, Log, OpId, Subject};
use imbrex_device::{Code, Drive, Error};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::any::Any;
use std::sync::{Arc, Mutex};

/// What the store is after a transaction: the digest of its model.
pub type State = u64;

const FULL: &str = "full";

/// An object store that is open, and what keeps it so.
pub struct Opened {
    pub store: BlueStore,
    pub hook: Hook,
    pub kept: Box<dyn Any>,
}

/// How stores are made and opened.
pub trait Kind: Send + Sync + 'static {
    fn format(&self, drive: &Drive) -> Result<(), Error>;
    fn open(&self, drive: &Drive) -> Result<Opened, Error>;
}

/// Transactions at random; some are durable, some outlive the process, some are not waited for; and packing.
pub struct Random<K> {
    pub kind: K,
    /// Until nothing has room any more.
    pub full: bool,
}

fn text(error: Error) -> String {
    error.to_string()
}

/// What leads to a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Sync,
    Pack,
    Clean,
    Defragment,
}

struct Run<'a> {
    store: BlueStore,
    hook: Hook,
    model: Model,
    log: &'a Log<State>,
    /// Transactions that are not durable.
    waiting: Vec<OpId>,
    /// The last of them.
    last: Option<Ticket>,
}

impl Run<'_> {
    fn queued(&mut self, op: OpId, queued: Result<Ticket, Error>, then: Model) -> Result<(), String> {
        self.last =
            Some(queued.map_err(|error| if error.code() == Code::NoSpace { FULL.into() } else { text(error) })?);
        self.model = then;
        self.waiting.push(op);
        Ok(())
    }

    fn queue(&mut self, transaction: Transaction, then: Model) -> Result<(), String> {
        let op = self.log.begun(then.digest());
        let queued = self.store.queue(transaction);
        self.queued(op, queued, then)
    }

    /// Makes all durable, or cleans. In the middle of it another transaction is queued, perhaps.
    fn commit(&mut self, rng: &mut ChaCha8Rng, most: u64, how: How) -> Result<(), String> {
        let between = rng.random_bool(0.6).then(|| {
            let (_, transaction, then) = any_transaction(rng, &self.model, most);
            let (done, queued) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Some(transaction))));
            let (store, to, what) = (self.store.clone(), done.clone(), queued.clone());
            let times = if matches!(how, How::Clean | How::Defragment) { rng.random_range(0..12) } else { 0 };
            let between = move || *to.lock().unwrap() = Some(store.queue(what.lock().unwrap().take().unwrap()));
            match how {
                How::Defragment => self.hook.set_outside_gets(times, between),
                _ => self.hook.set_behind(times, between),
            }
            (self.log.begun(then.digest()), then, done, queued)
        });
        let committed = match how {
            How::Sync => self.store.sync(),
            How::Pack => self.store.pack().map(drop),
            // A part of a zone, mostly.
            How::Clean => self
                .store
                .scrub_step(most / 4, 1)
                .and_then(|_| self.store.clean(rng.random_range(1..most / 2)))
                .map(drop),
            How::Defragment => defragment_all(&self.store, rng.random_range(1..most)),
        };
        self.hook.set(|| ());
        let full = match committed {
            // What it wrote before stays. Nobody was promised anything.
            Err(error) if how == How::Defragment && error.code() == Code::NoSpace => true,
            committed => {
                committed.map_err(text)?;
                false
            }
        };
        if !full && how != How::Clean {
            self.waiting.drain(..).for_each(|op| self.log.synced(op));
        }
        if let Some((op, then, done, queued)) = between {
            let (done, queued) = (done.lock().unwrap().take(), queued.lock().unwrap().take());
            // The commit had nothing to do.
            let done = done.or_else(|| queued.filter(|_| !full).map(|queued| self.store.queue(queued)));
            done.map_or(Ok(()), |done| self.queued(op, done, then))?;
        }
        if full { Err(FULL.into()) } else { Ok(()) }
    }

    /// All outlives the process.
    fn keep(&mut self) -> Result<(), String> {
        let Some(last) = self.last else { return Ok(()) };
        self.store.wait_for(last, Survives::Process).map_err(text)?;
        self.waiting.iter().for_each(|op| self.log.acked(*op));
        Ok(())
    }

    fn step(&mut self, rng: &mut ChaCha8Rng, most: u64) -> Result<(), String> {
        match rng.random_range(0..10) {
            0 => self.commit(rng, most, How::Pack),
            1..3 => self.commit(rng, most, How::Sync),
            3..5 => self.keep(),
            5 if rng.random_bool(0.6) => self.commit(rng, most, How::Clean),
            5 => self.commit(rng, most, How::Defragment),
            _ => {
                let (_, transaction, then) = any_transaction(rng, &self.model, most);
                self.queue(transaction, then)
            }
        }
    }
}

impl<K: Kind> Subject for Random<K> {
    type Op = State;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        self.kind.format(drive).map_err(text)?;
        self.kind.open(drive).map(drop).map_err(text)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<State>) -> Result<(), String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut model = Model::default();
        for mount in 0..2 {
            let opened = self.kind.open(&drive).map_err(text)?;
            let (store, hook) = (opened.store.clone(), opened.hook.clone());
            let mut run = Run { store, hook, model, log, waiting: Vec::new(), last: None };
            if mount == 0 {
                let (mut begin, (c, bits)) = (Transaction::new(), first());
                run.model.apply(&Op::Create(c, bits), &mut begin).map_err(|code| format!("{code:?}"))?;
                let then = run.model.clone();
                run.queue(begin, then)?;
            }
            for _ in 0..if self.full { 40 } else { 18 } {
                match run.step(&mut rng, if self.full { 1_500_000 } else { 300_000 }) {
                    Err(why) if why == FULL && self.full => {
                        // A transaction that was refused is none.
                        let (mut none, then) = (Transaction::new(), run.model.clone());
                        none.on_commit(drop);
                        run.queue(none, then)?;
                    }
                    other => other?,
                }
            }
            run.store.sync().map_err(text)?;
            run.waiting.drain(..).for_each(|op| log.synced(op));
            model = run.model;
            drop((run.store, opened));
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.kind.open(&drive).map(drop).map_err(text)
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<State>) -> Result<(), String> {
        let opened = self.kind.open(&drive).map_err(text)?;
        let store = opened.store.clone();
        let report = store.check(true).map_err(text)?;
        if !report.wrong.is_empty() {
            return Err(format!("{:?}", report.wrong));
        }
        let mut model = Model::of(&store).map_err(text)?;
        let (found, entries) = (model.digest(), history.entries());
        let least = history.must_prefix();
        let after = |n: usize| if n == 0 { Model::default().digest() } else { entries[n - 1].op };
        if !(least..=entries.len()).any(|n| after(n) == found) {
            let earlier = (0..least).find(|n| after(*n) == found);
            let what = format!(
                "the store is as after {earlier:?} transactions of {}, of which {least} were durable",
                entries.len()
            );
            return Err(format!("{what}: {} objects, {:?}", model.objects.len(), model.collections));
        }
        // It goes on.
        let mut rng = ChaCha8Rng::seed_from_u64(found);
        for n in 0..3 {
            let (ops, transaction, then) = any_transaction(&mut rng, &model, 40_000);
            match store.commit(transaction) {
                Ok(()) => model = then,
                Err(error) if self.full && error.code() == Code::NoSpace => {}
                Err(error) => return Err(format!("after the crash, {n}: {error}, {ops:?}")),
            }
        }
        drop((store, opened));
        let opened = self.kind.open(&drive).map_err(text)?;
        let store = &opened.store;
        if Model::of(store).map_err(text)? != model {
            return Err("what was written after the crash is not there after a restart".into());
        }
        let report = store.check(true).map_err(text)?;
        if report.wrong.is_empty() { Ok(()) } else { Err(format!("after the crash: {:?}", report.wrong)) }
    }
}
