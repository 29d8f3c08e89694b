//! Figures of an open engine, for whoever watches it: metrics of a program that has a drive open.
//!
//! A [`Watch`] does not keep the engine open. Invariant: while figures are read the engine is held, and a close that begins
//! meanwhile waits for that, so that a drive is given back when its last user lets go and not a moment later.

use super::Engine;
use crate::sync::{Mutex, lock};
use imbrex_device::{Cause, ZoneState, report_all};
use imbrex_drives::counted::{Count, Counters};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How old the states of zones may be. A drive of 75,000 zones has better things to do than to report them every second.
const ZONES_FRESH: Duration = Duration::from_secs(10);

/// Figures of one open engine: those that every engine has, and behind a `Deref` its own. Bytes where not said otherwise.
#[derive(Clone, Debug)]
pub struct Metrics<F> {
    /// Name of the drive.
    pub drive: String,
    /// Commands since it was opened, by cause; those of the opening included.
    pub commands: Vec<Count>,
    /// Seconds that the drive was busy, by cause and by what it did, where its time is modelled.
    pub seconds: Vec<(Cause, &'static str, f64)>,
    /// How many of the drive's zones are in each state, at most ten seconds ago; empty where the drive does not tell any more.
    pub zones: Vec<(ZoneState, u64)>,
    /// How often the drive was opened, this time included.
    pub mount: u64,
    /// Sentences of damage that the opening found.
    pub damage: u64,
    /// A flush has failed: nothing can be written until the drive is opened again.
    pub poisoned: bool,
    /// The engine's own.
    pub own: F,
}

impl<F> Deref for Metrics<F> {
    type Target = F;
    fn deref(&self) -> &F {
        &self.own
    }
}

type LastWords<F> = Box<dyn FnOnce(Metrics<F>) + Send>;

struct Source<F> {
    /// `true`: the states of zones as they are now.
    read: Box<dyn FnMut(bool) -> Metrics<F> + Send>,
    last_words: Vec<LastWords<F>>,
}

/// Looks at an engine without keeping it open.
pub struct Watch<F>(Arc<Mutex<Option<Source<F>>>>);

impl<F> Clone for Watch<F> {
    fn clone(&self) -> Self {
        Watch(self.0.clone())
    }
}

impl<F: Clone + 'static> Watch<F> {
    /// A watch of an engine on a drive whose commands are counted here.
    pub(super) fn new<E: Engine<Figures = F>>(engine: Arc<E>, counters: Arc<Counters>) -> Watch<F> {
        let mut zones: Option<(Instant, Vec<(ZoneState, u64)>)> = None;
        let read = move |fresh: bool| {
            let volume = engine.volume();
            let old = zones.take().filter(|(when, _)| !fresh && when.elapsed() < ZONES_FRESH);
            let tally = old.or_else(|| {
                let report = report_all(volume.device().as_ref()).ok()?;
                let count = |state| (state, report.iter().filter(|zone| zone.state == state).count() as u64);
                Some((Instant::now(), ZoneState::ALL.into_iter().map(count).collect()))
            });
            zones.clone_from(&tally);
            Metrics {
                drive: volume.name().to_string(),
                commands: counters.read(),
                seconds: volume.device().busy_seconds(),
                zones: tally.map_or_else(Vec::new, |(_, zones)| zones),
                mount: volume.mount(),
                damage: engine.damage().len() as u64,
                poisoned: volume.check_poison().is_err(),
                own: engine.figures(),
            }
        };
        Watch(Arc::new(Mutex::new(Some(Source { read: Box::new(read), last_words: Vec::new() }))))
    }

    /// The figures now; `None`: it is not open any more.
    pub fn figures(&self) -> Option<Metrics<F>> {
        lock(&self.0).as_mut().map(|source| (source.read)(false))
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// `last_words` gets the figures as they are when the engine has closed. It must not use the engine.
    pub fn at_close(&self, last_words: impl FnOnce(Metrics<F>) + Send + 'static) {
        if let Some(source) = lock(&self.0).as_mut() {
            source.last_words.push(Box::new(last_words));
        }
    }

    /// Nobody sees the engine from now on. What is returned gives those who asked for them the last figures.
    pub(super) fn close(&self) -> impl FnOnce() + use<F> {
        let source = lock(&self.0).take();
        move || {
            if let Some(mut source) = source.filter(|source| !source.last_words.is_empty()) {
                let figures = (source.read)(true);
                source.last_words.into_iter().for_each(|say| say(figures.clone()));
            }
        }
    }
}
