//! Figures of a mounted file system, for whoever watches it: metrics of a program that has a drive open.
//!
//! A [`Watch`] does not keep the file system mounted. Invariant: while figures are read the mount is held, and an unmount that
//! begins meanwhile waits for that, so that a drive is given back when its last user lets go and not a moment later.

use crate::core::Core;
use crate::file::lock;
use crate::fs::{Space, space};
use imbrex_device::{Cause, ZoneState, report_all};
use imbrex_drives::counted::{Count, Counters};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How old the states of zones may be. A drive of 75,000 zones has better things to do than to report them every second.
const ZONES_FRESH: Duration = Duration::from_secs(10);

/// Figures of one mounted file system. Bytes where not said otherwise.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Name of the drive.
    pub drive: String,
    /// Commands since the mount, by cause; those of the mount included.
    pub commands: Vec<Count>,
    /// Seconds that the drive was busy, by cause and by what it did, where its time is modelled.
    pub seconds: Vec<(Cause, &'static str, f64)>,
    /// How many zones are in each state, at most ten seconds ago; empty where the drive does not tell any more.
    pub zones: Vec<(ZoneState, u64)>,
    /// Room.
    pub space: Space,
    /// Pages that were found in the cache, and those that were not.
    pub cache_hits: u64,
    /// See `cache_hits`.
    pub cache_misses: u64,
    /// Bytes in the cache.
    pub cache_used: u64,
    /// Bytes that it may hold.
    pub cache_capacity: u64,
    /// Bytes of the journal's records.
    pub journal: u64,
    /// Bytes of memory that outlives the process in which appended bytes stand that are not written yet.
    pub survivor_used: u64,
    /// All of that memory.
    pub survivor_capacity: u64,
    /// Zones that hold bytes of files, or the journal.
    pub zones_used: u64,
    /// Bytes of all files, as far as the journal knows: of an open one what was synced.
    pub live: u64,
    /// Files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Number of this mount, from 1.
    pub mount: u64,
    /// Sentences of damage that the mount found.
    pub damage: u64,
    /// A flush has failed: nothing can be written until the drive is mounted again.
    pub poisoned: bool,
}

type LastWords = Box<dyn FnOnce(Metrics) + Send>;

struct Source {
    core: Arc<Core>,
    counters: Arc<Counters>,
    damage: u64,
    zones: Option<(Instant, Vec<(ZoneState, u64)>)>,
    last_words: Vec<LastWords>,
}

/// The mount's end of its watches.
pub(crate) struct Watched(Arc<Mutex<Option<Source>>>);

/// Looks at a file system without keeping it mounted.
#[derive(Clone)]
pub struct Watch(Arc<Mutex<Option<Source>>>);

impl Watched {
    pub(crate) fn new(core: Arc<Core>, counters: Arc<Counters>, damage: usize) -> Self {
        let (zones, last_words) = (None, Vec::new());
        Watched(Arc::new(Mutex::new(Some(Source { core, counters, damage: damage as u64, zones, last_words }))))
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(self.0.clone())
    }

    /// Nobody sees the mount from now on. What is returned gives those who asked for them the last figures.
    pub(crate) fn close(&self) -> impl FnOnce() + use<> {
        let source = lock(&self.0).take();
        move || {
            if let Some(mut source) = source.filter(|source| !source.last_words.is_empty()) {
                source.zones = None;
                let figures = source.figures();
                source.last_words.into_iter().for_each(|say| say(figures.clone()));
            }
        }
    }
}

impl Watch {
    /// The figures now; `None`: it is not mounted any more.
    pub fn figures(&self) -> Option<Metrics> {
        lock(&self.0).as_mut().map(Source::figures)
    }

    /// Whether it is mounted.
    pub fn is_mounted(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// `last_words` gets the figures as they are after the unmount. It must not use the file system.
    pub fn at_unmount(&self, last_words: impl FnOnce(Metrics) + Send + 'static) {
        if let Some(source) = lock(&self.0).as_mut() {
            source.last_words.push(Box::new(last_words));
        }
    }
}

impl Source {
    fn figures(&mut self) -> Metrics {
        let core = self.core.clone();
        let (journal, inodes, live) = {
            let state = lock(&core.meta);
            // Of open files what the journal knows: a look takes no handle of a file.
            let live = state.meta.files().map(|inode| inode.known_size()).sum();
            (state.journal.len(), state.meta.counts(), live)
        };
        let (used, capacity) = core.volume.unwritten();
        Metrics {
            drive: core.volume.name().to_string(),
            commands: self.counters.read(),
            seconds: core.volume.device().busy_seconds(),
            zones: self.tally(),
            space: space(&core),
            cache_hits: core.cache.hits(),
            cache_misses: core.cache.misses(),
            cache_used: core.cache.used_bytes(),
            cache_capacity: core.cache.capacity(),
            journal,
            survivor_used: used,
            survivor_capacity: capacity,
            zones_used: u64::from(core.tenant.counts().leased),
            live,
            files: inodes.files as u64,
            directories: inodes.directories as u64,
            mount: core.volume.mount(),
            damage: self.damage,
            poisoned: core.volume.check_poison().is_err(),
        }
    }

    fn tally(&mut self) -> Vec<(ZoneState, u64)> {
        if let Some((when, tally)) = &self.zones
            && when.elapsed() < ZONES_FRESH
        {
            return tally.clone();
        }
        let Ok(zones) = report_all(self.core.volume.device().as_ref()) else { return Vec::new() };
        let count = |state| (state, zones.iter().filter(|zone| zone.state == state).count() as u64);
        let tally: Vec<_> = ZoneState::ALL.into_iter().map(count).collect();
        self.zones = Some((Instant::now(), tally.clone()));
        tally
    }
}
