//! Figures of an open store, for whoever watches it: metrics of a program that has a drive open.
//!
//! A [`Watch`] does not keep the store open. Invariant: while figures are read the store is held, and its end waits for that, so
//! that a drive is given back when its last user lets go and not a moment later.

use crate::entry::ZoneState;
use crate::look::Space;
use crate::meter::Measured;
use crate::stats::Stats;
use crate::store::ChunkStore;
use imbrex_device::Cause;
use imbrex_drives::counted::{Count, Counters};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Figures of one open store. Bytes where not said otherwise.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Name of the drive.
    pub drive: String,
    /// Commands since it was opened, by cause; those of the opening included.
    pub commands: Vec<Count>,
    /// Seconds that the drive was busy, by cause and by what it did, where its time is modelled.
    pub seconds: Vec<(Cause, &'static str, f64)>,
    /// What operations took.
    pub operations: Vec<Measured>,
    /// What the store has done, and how full its zones are.
    pub stats: Stats,
    /// Room.
    pub space: Space,
    /// How many datazones there are of each kind of stream (the cleaner's with theirs) in each state.
    pub zones: Vec<(String, ZoneState, u64)>,
    /// How often the drive was opened, this time included.
    pub mount: u64,
    /// Sentences of damage that the opening found.
    pub damage: u64,
    /// A flush has failed: nothing can be written until the store is opened again.
    pub poisoned: bool,
}

type LastWords = Box<dyn FnOnce(Metrics) + Send>;

struct Source {
    store: ChunkStore,
    counters: Arc<Counters>,
    last_words: Vec<LastWords>,
}

/// The store's end of its watches: nobody sees it any more when this is dropped.
pub(crate) struct Watched(Arc<Mutex<Option<Source>>>);

/// Looks at a store without keeping it open.
#[derive(Clone)]
pub struct Watch(Arc<Mutex<Option<Source>>>);

fn lock(source: &Mutex<Option<Source>>) -> MutexGuard<'_, Option<Source>> {
    source.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    pub(crate) fn new(store: ChunkStore, counters: Arc<Counters>) -> Watched {
        Watched(Arc::new(Mutex::new(Some(Source { store, counters, last_words: Vec::new() }))))
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(self.0.clone())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let source = lock(&self.0).take();
        if let Some(source) = source.filter(|source| !source.last_words.is_empty()) {
            let figures = source.figures();
            source.last_words.into_iter().for_each(|say| say(figures.clone()));
        }
    }
}

impl Watch {
    /// The figures now; `None`: the store is not open any more.
    pub fn figures(&self) -> Option<Metrics> {
        lock(&self.0).as_ref().map(Source::figures)
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// `last_words` gets the last figures when the store is given back. It must not use the store.
    pub fn at_close(&self, last_words: impl FnOnce(Metrics) + Send + 'static) {
        if let Some(source) = lock(&self.0).as_mut() {
            source.last_words.push(Box::new(last_words));
        }
    }
}

impl Source {
    fn figures(&self) -> Metrics {
        let store = &self.store;
        let volume = store.volume();
        let mut zones: BTreeMap<(String, ZoneState), u64> = BTreeMap::new();
        for (stream, state) in store.datazones() {
            *zones.entry((store.stream_name(stream), state)).or_default() += 1;
        }
        Metrics {
            drive: volume.name().to_string(),
            commands: self.counters.read(),
            seconds: volume.device().busy_seconds(),
            operations: store.core.counters.meter.read(),
            stats: store.stats(),
            space: store.space(),
            zones: zones.into_iter().map(|((stream, state), n)| (stream, state, n)).collect(),
            mount: volume.mount(),
            damage: store.open_report().damage.len() as u64,
            poisoned: volume.check_poison().is_err(),
        }
    }
}
