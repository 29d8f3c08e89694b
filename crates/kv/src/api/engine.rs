//! The store as an engine of a volume: what the [shell](imbrex_zones::shell) needs of it.

use super::zones::capacity_in_use;
use crate::core::Core;
use crate::done::Done;
use crate::options::Options;
use crate::policy::{ALL, Active, BOTTOM, Goal, Group};
use crate::recover;
use crate::table::Compression;
use crate::work::Worker;
use imbrex_device::{Cause, Drive, Error, Geometry, Result};
use imbrex_zones::shell::{self, Engine, Opened, Rest, Start, UriOption};
use imbrex_zones::{Budget, Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the maintenance thread rests after an error.
const FAILED: Duration = Duration::from_secs(1);
/// A store to which nothing was written for so long is idle.
const QUIET: Duration = Duration::from_secs(2);

/// Since when nothing was written.
pub(crate) struct Quiet {
    /// The number of the last change.
    last: u64,
    since: Instant,
    /// Nothing was left to do.
    settled: bool,
    /// When there was nothing to do, if that was the last time that it was looked.
    rested: Option<Instant>,
}

impl Default for Quiet {
    fn default() -> Quiet {
        Quiet { last: 0, since: Instant::now(), settled: false, rested: None }
    }
}

/// Figures of an open store, beside those that every engine has.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Of each level, the bottom last: tables, their bytes that count, and their entries.
    pub levels: Vec<(u64, u64, u64)>,
    /// Bytes of changes in memory.
    pub memory: u64,
    /// Bytes in memory of filters and top indexes of the tables that were read so far, about. They stay until their tables go, and are beside
    /// [`Options::cache_bytes`](crate::Options::cache_bytes), which has the blocks below the top indexes.
    pub indexes: u64,
    /// Bytes of the write-ahead log that an opening would read.
    pub log: u64,
    /// Zones with tables or bytes of the log, and those that may still be taken.
    pub zones: (u32, u32),
    /// Deleted ranges of keys of which something may be left.
    pub ranges: usize,
    /// Partitions of the keys.
    pub partitions: usize,
    /// Slices that a key is in at most; the bottom is one.
    pub depth: usize,
    /// Bytes that the zones in use can hold.
    pub capacity_used: u64,
    /// Merges that have begun and go on.
    pub merges: usize,
    /// What was done since the store was opened; as many levels as in `levels`.
    pub done: Done,
    /// What was done since the store was made, as far as openings before this one have noted it: with the last table that each made. As many levels as in `levels`, or more.
    pub since_made: Done,
}

/// Figures of an open store, and those that every engine has.
pub type Metrics = shell::Metrics<Figures>;
/// Figures that do not keep a store open.
pub type Watch = shell::Watch<Figures>;

/// An open store.
pub(crate) struct Store {
    pub core: Arc<Core>,
    pub worker: Worker,
    damage: Vec<String>,
}

impl Store {
    /// See [`Kv::tend`](super::store::Kv::tend).
    pub fn tend(&self) -> Result<bool> {
        self.core.free();
        self.worker.tend(true)
    }

    pub fn figures_now(&self) -> Figures {
        let view = self.core.view();
        // The bottom comes behind the others.
        let level = |group: Group| if group == BOTTOM { usize::MAX } else { group.level.into() };
        let highest = view.tables.iter().map(|table| level(table.info.group)).filter(|level| *level < usize::MAX).max();
        let done = self.core.counters.done(highest.map_or(1, |highest| highest + 1));
        let mut levels = vec![(0, 0, 0); done.written.len()];
        let bottom = levels.len() - 1;
        for table in view.tables.iter() {
            let (tables, bytes, entries) = &mut levels[level(table.info.group).min(bottom)];
            (*tables, *bytes, *entries) = (*tables + 1, *bytes + table.info.live, *entries + table.info.entries);
        }
        let end = self.core.wal().map_or(0, |wal| wal.end());
        let log_zones = self.core.look(|manifest| manifest.wal.len()) as u32;
        Figures {
            levels,
            memory: view.in_memory() as u64,
            indexes: view.tables.iter().map(|table| table.memory()).sum(),
            log: end.saturating_sub(self.core.look(|manifest| manifest.front.0)),
            zones: (self.core.zones_of_tables().1 + log_zones, self.core.tenant.counts().free),
            ranges: view.ranges.iter().count(),
            partitions: view.parts.len(),
            depth: view.tables.runs().len(),
            capacity_used: capacity_in_use(&self.core),
            merges: self.core.look(|manifest| manifest.jobs.len()),
            since_made: self.core.counters.since_made(),
            done,
        }
    }
}

impl Engine for Store {
    const TENANT: &'static str = recover::TENANT;
    const OPTIONS: &'static [UriOption<Options>] = &[
        ("memtable", |o, given| given.size(64 << 10..=64 << 30).map(|bytes| o.memtable_bytes = bytes as usize)),
        ("cache", |o, given| given.size(0..=1 << 50).map(|bytes| o.cache_bytes = bytes)),
        ("policy", |o, given| {
            let names: Vec<_> = ALL.iter().map(|(name, _)| (*name, *name)).collect();
            given.one_of(&names).map(|name| o.policy = Some(name.into()))
        }),
        ("lease", |o, given| given.number(0..=1 << 32).map(|seconds| o.lease = Duration::from_secs(seconds))),
        ("reads-at-once", |o, given| given.number(1..=256).map(|reads| o.reads_at_once = reads as usize)),
        ("bottom", |o, given| given.number(0..=99).map(|percent| o.bottom = percent as u32)),
        ("gear-k", |o, given| given.number(1..=10).map(|k| o.gear_k = k as u32)),
        ("gear-active", |o, given| {
            given.one_of(&[("paper", Active::Paper), ("code", Active::Code)]).map(|active| o.gear_active = active)
        }),
        ("compression", |o, given| {
            let names = [("off", Compression::Off), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];
            given.one_of(&names).map(|compression| o.table.compression = compression)
        }),
    ];
    type Options = Options;
    type Error = Error;
    type Figures = Figures;
    type Chores = Quiet;

    fn opened() -> &'static Opened<Store> {
        #[cfg(not(feature = "shuttle"))]
        static OPENED: std::sync::LazyLock<Opened<Store>> = std::sync::LazyLock::new(Opened::default);
        // Each run of the model checker has its own.
        #[cfg(feature = "shuttle")]
        shuttle::lazy_static! {
            static ref OPENED: Opened<Store> = Opened::default();
        }
        &OPENED
    }

    fn volume_options(options: &mut Options) -> &mut VolumeOptions {
        &mut options.volume
    }

    fn look(options: &mut Options) {
        // Who only looks has nothing to gain from merges.
        options.volume.exec = Exec::Inline;
    }

    fn format(drive: &Drive) -> Result<()> {
        format(drive, None, false)
    }

    fn open(start: Start<Store>) -> Result<Store> {
        let (core, policy) = recover::open(&start.tenant, start.options)?;
        let worker = Worker::new(core.clone(), policy, start.maintenance);
        Ok(Store { damage: core.damage(), core, worker })
    }

    fn volume(&self) -> &Volume {
        self.core.tenant.volume()
    }

    fn damage(&self) -> &[String] {
        &self.damage
    }

    fn figures(&self) -> Figures {
        self.figures_now()
    }

    fn step(&self) -> Result<bool> {
        self.core.free();
        self.worker.step(Goal::Idle)
    }

    fn wants_thread(&self) -> bool {
        true
    }

    fn chore(&self, quiet: &mut Quiet) -> Option<Rest> {
        let last = self.core.visible.load(Ordering::Acquire);
        if last != quiet.last {
            *quiet = Quiet { last, since: Instant::now(), settled: false, rested: quiet.rested };
        }
        self.core.free();
        let goal = if quiet.since.elapsed() >= QUIET { Goal::Idle } else { Goal::Usual };
        let rest = self.core.options.rest.max(Duration::from_millis(1));
        // A whole rest that no put has ended: they leave the drive some time.
        let ahead = quiet.rested.take().is_some_and(|since| since.elapsed() >= rest);
        let done = match goal {
            _ if quiet.settled => Ok(false),
            Goal::Idle => self.worker.step(goal),
            _ => self.worker.tend(ahead),
        };
        quiet.rested = matches!(done, Ok(false)).then(Instant::now);
        quiet.settled = goal == Goal::Idle && matches!(done, Ok(false));
        let time = match done {
            Ok(true) => Duration::ZERO,
            Ok(false) => rest,
            Err(error) => {
                tracing::warn!(%error, "tables could not be made or merged");
                FAILED
            }
        };
        Some(Rest { time, until_rung: true })
    }

    fn close(&self) -> Result<()> {
        self.core.wal()?.sync()?;
        let (noted, done) = (self.core.look(|manifest| manifest.done.clone()), self.core.counters.since_made());
        if (noted.puts, noted.deletes) != (done.puts, done.deletes) {
            let seq = self.core.note(&[self.core.done_note()]);
            if let Err(error) = self.core.commit(seq, Cause::Manifest) {
                // All that was put is durable.
                tracing::warn!(%error, "what the store has done could not be noted");
            }
        }
        Ok(())
    }
}

/// What a store needs of a drive: for whoever formats one for a store and others.
pub fn budget(geometry: &Geometry) -> Budget {
    recover::budget(geometry.zones, geometry.zone_size)
}

/// Formats a drive for a store alone.
pub(crate) fn format(drive: &Drive, uuid: Option<[u8; 16]>, force: bool) -> Result<()> {
    let tenants = vec![TenantSpec { name: recover::TENANT.into(), budget: budget(drive.device.geometry()) }];
    Volume::format(drive, &FormatOptions { uuid, tenants, force })
}
