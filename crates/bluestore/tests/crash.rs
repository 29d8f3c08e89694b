//! A crash at any moment, and a fault at any command, leave what was promised: the changes of a number of transactions from the first on, and at least those that were durable.

mod support;

use imbrex_bluestore::{BlueStore, Ticket, Transaction};
use imbrex_crashkit::{
    Config, Crash, FaultKind, FaultPlan, History, Log, OpId, Plan, Subject, explore, fault_sweep, seeds,
};
use imbrex_device::{Code, Drive, Error};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Mutex};
use support::{Hook, Model, Op, any_transaction, config, few_active, first, format, open, open_hooked, options};

/// What the store is after a transaction: the digest of its model.
type State = u64;

const FULL: &str = "full";

/// Transactions at random, some waited for, some not; and packing.
struct Random {
    /// Until nothing has room any more.
    full: bool,
}

fn text(error: Error) -> String {
    error.to_string()
}

struct Run<'a> {
    store: BlueStore,
    hook: Hook,
    model: Model,
    log: &'a Log<State>,
    /// Transactions that are not durable.
    waiting: Vec<OpId>,
}

impl Run<'_> {
    fn queued(&mut self, op: OpId, queued: Result<Ticket, Error>, then: Model) -> Result<(), String> {
        queued.map_err(|error| if error.code() == Code::NoSpace { FULL.into() } else { text(error) })?;
        self.model = then;
        self.waiting.push(op);
        Ok(())
    }

    fn queue(&mut self, transaction: Transaction, then: Model) -> Result<(), String> {
        let op = self.log.begun(then.digest());
        let queued = self.store.queue(transaction);
        self.queued(op, queued, then)
    }

    /// Makes all durable. In the middle of it another transaction is queued, perhaps.
    fn commit(&mut self, rng: &mut ChaCha8Rng, most: u64, pack: bool) -> Result<(), String> {
        let durable = std::mem::take(&mut self.waiting);
        let between = rng.random_bool(0.6).then(|| {
            let (_, transaction, then) = any_transaction(rng, &self.model, most);
            let (done, queued) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Some(transaction))));
            let (store, to, what) = (self.store.clone(), done.clone(), queued.clone());
            self.hook.set(move || *to.lock().unwrap() = Some(store.queue(what.lock().unwrap().take().unwrap())));
            (self.log.begun(then.digest()), then, done, queued)
        });
        let committed = if pack { self.store.pack().map(drop) } else { self.store.sync() };
        self.hook.set(|| ());
        committed.map_err(text)?;
        durable.into_iter().for_each(|op| self.log.synced(op));
        let Some((op, then, done, queued)) = between else { return Ok(()) };
        let done = done.lock().unwrap().take();
        // The commit had nothing to do.
        let done = done.unwrap_or_else(|| self.store.queue(queued.lock().unwrap().take().unwrap()));
        self.queued(op, done, then)
    }

    fn step(&mut self, rng: &mut ChaCha8Rng, most: u64) -> Result<(), String> {
        match rng.random_range(0..10) {
            0 => self.commit(rng, most, true),
            1..4 => self.commit(rng, most, false),
            _ => {
                let (_, transaction, then) = any_transaction(rng, &self.model, most);
                self.queue(transaction, then)
            }
        }
    }
}

impl Subject for Random {
    type Op = State;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        format(drive).map_err(text)?;
        open(drive, Exec::Inline).map(drop).map_err(text)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<State>) -> Result<(), String> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut model = Model::default();
        for mount in 0..2 {
            let (store, hook) = open_hooked(&drive, Exec::Inline, options()).map_err(text)?;
            let mut run = Run { store, hook, model, log, waiting: Vec::new() };
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
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        open(&drive, Exec::Inline).map(drop).map_err(text)
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<State>) -> Result<(), String> {
        let store = open(&drive, Exec::Inline).map_err(text)?;
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
        drop(store);
        let store = open(&drive, Exec::Inline).map_err(text)?;
        if Model::of(&store).map_err(text)? != model {
            return Err("what was written after the crash is not there after a restart".into());
        }
        let report = store.check(true).map_err(text)?;
        if report.wrong.is_empty() { Ok(()) } else { Err(format!("after the crash: {:?}", report.wrong)) }
    }
}

fn drives() -> [Config; 3] {
    [config(), Config { write_cache: false, ..config() }, few_active()]
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_transactions_and_those_that_were_durable() {
    for config in drives() {
        for seed in seeds(2) {
            let plan = Plan { threads: 2, max_states: 250, ..Plan::new(seed) };
            let report = explore(&Arc::new(Random { full: false }), &config, &plan)
                .unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.states >= 200, "{report:?}");
        }
    }
}

#[test]
fn so_does_one_of_a_drive_that_is_full() {
    for seed in seeds(1) {
        let plan = Plan { threads: 2, max_states: 200, ..Plan::new(seed) };
        let report =
            explore(&Arc::new(Random { full: true }), &config(), &plan).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.states >= 150, "{report:?}");
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
            let report = fault_sweep(&Arc::new(Random { full: false }), &config, &plan)
                .unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.runs >= 80, "{report:?}");
        }
    }
}
