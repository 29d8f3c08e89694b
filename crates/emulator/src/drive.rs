//! The drive itself: the rules of the contract over a state and a store.
//!
//! Locks, in the order in which they are taken: `flushing` → `pre_images` → `open` → a zone's `side` (fork alone takes
//! several, in the order of zones) → `dirty`; `pre_images` → a zone's `data`. A zone's `side` is held for a few instructions only; while
//! bytes are copied the zone is *claimed* instead, so that a second command on it is seen and refused.
//!
//! A sequential write publishes its zone's write pointer by one atomic store after its bytes are in the store; readers
//! copy only what lies below the pointer they loaded. So reads and the one write of a zone go on side by side; only a
//! reset waits for readers (`data`).

use crate::config::Config;
use crate::faults::{FaultState, Faults};
use crate::image::TimeFile;
use crate::preimage::PreImages;
use crate::profile::Profile;
use crate::state::State;
use crate::stats::Stats;
use crate::store::{Store, flat::Flat, packed::Packed};
use crate::time::clock::{Asked, Clock};
use crate::time::engine::{Engine, What};
use crate::time::ledger::Ledger;
use crate::time::{Pace, Params, TimeStats};
use crate::trace::{Op, Place, TimedEntry, Trace, TraceEntry, Tracing};
use crate::zones::OpenZones;
use imbrex_device::{Cause, Error, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice};
use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

thread_local! {
    /// Arrival and completion of this thread's command, from where its time passes to where it is traced.
    static LAST: Cell<Option<(f64, f64)>> = const { Cell::new(None) };
}

/// A strict emulated zoned drive. A clone is the same drive; [`Emulator::fork`] makes another.
#[derive(Clone)]
pub struct Emulator {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) identity: Identity,
    /// The state's power epoch that belongs to the identity.
    pub(crate) epoch: u64,
    /// Shared by every command; a power loss has it alone.
    pub(crate) power: RwLock<()>,
    pub(crate) geometry: Geometry,
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) store: Store,
    pub(crate) slots: Vec<Slot>,
    pub(crate) open: Mutex<OpenZones>,
    pub(crate) flushing: Mutex<()>,
    /// Sequential zones with unflushed writes, oldest first.
    pub(crate) dirty: Mutex<VecDeque<u32>>,
    /// Unflushed bytes in sequential zones.
    pub(crate) at_risk: AtomicU64,
    pub(crate) pre_images: Mutex<PreImages>,
    pub(crate) faults: FaultState,
    pub(crate) mode: Mode,
    pub(crate) trace: Tracing,
    /// Set once, where it keeps time; with the file that remembers it, where there is one.
    pub(crate) clock: OnceLock<Clock>,
    time_file: OnceLock<TimeFile>,
    /// The image that it stands in, where that can be written.
    home: Option<PathBuf>,
}

/// What a drive is put together from.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) state: State,
    pub(crate) store: Store,
    pub(crate) pre_images: PreImages,
    pub(crate) faults: FaultState,
    pub(crate) mode: Mode,
    pub(crate) home: Option<PathBuf>,
}

/// How an image was opened; memory drives use the default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mode {
    pub(crate) read_only: bool,
    pub(crate) host_sync: bool,
    /// It stands in an image.
    pub(crate) image: bool,
}

/// What the running process knows of a zone beside its words.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) side: Mutex<Side>,
    /// Shared by readers and the writer at the write pointer; exclusive for whoever overwrites or discards.
    pub(crate) data: RwLock<()>,
}

#[derive(Default)]
pub(crate) struct Side {
    /// A write or a zone operation is in flight.
    pub(crate) claimed: bool,
    /// In the list of dirty zones.
    pub(crate) dirty: bool,
    /// Goes up with every reset, so that a slow flush does not call the next life's bytes durable.
    pub(crate) life: u64,
    /// Byte ranges of writes in flight to a conventional zone.
    pub(crate) ranges: Vec<(u64, u64)>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulator {
    /// A drive in copy-on-write memory: takes what is written, forks cheaply.
    pub fn memory(config: &Config) -> Result<Emulator> {
        config.check()?;
        Ok(Self::with(config, Store::cow(config)))
    }

    /// A drive in memory whose bytes are kept compressed, for experiments on drives that are larger than memory, with bytes that repeat
    /// themselves.
    pub fn memory_packed(config: &Config) -> Result<Emulator> {
        config.check()?;
        Ok(Self::with(config, Store::Packed(Packed::new(config))))
    }

    /// A drive in one flat piece of memory that is all there before the first command, for benchmarks. Needs as much
    /// memory as the drive has capacity.
    pub fn memory_prefaulted(config: &Config) -> Result<Emulator> {
        Self::flat(config, true)
    }

    /// A drive in one flat piece of memory that is touched as it is written.
    pub fn memory_flat(config: &Config) -> Result<Emulator> {
        Self::flat(config, false)
    }

    fn flat(config: &Config, prefault: bool) -> Result<Emulator> {
        config.check()?;
        let flat = Flat::new(config, prefault).map_err(|error| Error::io(&config.name.as_str().into(), error))?;
        Ok(Self::with(config, Store::Flat(flat)))
    }

    fn with(config: &Config, store: Store) -> Emulator {
        let state = State::in_memory(config);
        let pre_images = PreImages::in_memory(&state);
        Self::assemble(Parts {
            config: config.clone(),
            identity: memory_identity(config, &state),
            state,
            store,
            pre_images,
            faults: FaultState::default(),
            mode: Mode::default(),
            home: None,
        })
    }

    /// Puts a drive together and rebuilds from the state what only a running process keeps.
    pub(crate) fn assemble(parts: Parts) -> Emulator {
        let slots: Vec<Slot> = (0..parts.config.zones()).map(|_| Slot::default()).collect();
        let inner = Inner {
            identity: parts.identity,
            epoch: parts.state.epoch(),
            power: RwLock::default(),
            geometry: parts.config.geometry(),
            config: parts.config,
            state: parts.state,
            store: parts.store,
            slots,
            open: Mutex::default(),
            flushing: Mutex::default(),
            dirty: Mutex::default(),
            at_risk: AtomicU64::new(0),
            pre_images: Mutex::new(parts.pre_images),
            faults: parts.faults,
            mode: parts.mode,
            trace: Tracing::default(),
            clock: OnceLock::new(),
            time_file: OnceLock::new(),
            home: parts.home,
        };
        inner.rebuild();
        Emulator { inner: Arc::new(inner) }
    }

    /// What it was made of.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Its name in errors.
    pub fn name(&self) -> Arc<str> {
        self.inner.identity.name.clone()
    }

    /// Everything counted so far.
    pub fn stats(&self) -> Stats {
        Stats::load(&self.inner.state)
    }

    /// Sets all counters to 0.
    pub fn reset_stats(&self) {
        if !self.inner.mode.read_only {
            self.inner.state.reset_counters();
            if let Some(clock) = self.inner.clock.get() {
                clock.reset();
            }
        }
    }

    /// From now on commands take the time that the drive's own model says; see [`Emulator::keep_time`]. The error
    /// says what to do where its profile has none.
    pub fn keep_own_time(&self, pace: Pace) -> Result<()> {
        let Some(model) = &self.inner.config.model else {
            let with: Vec<_> =
                Profile::all().into_iter().filter(|p| !p.parameters.is_empty()).map(|p| p.name).collect();
            let sentence = format!(
                "its profile {:?} has no time model, so it keeps no time; make a drive of a profile that has one: {}",
                self.inner.config.profile,
                with.join(", ")
            );
            return Err(Error::unusable(&self.inner.identity.name, sentence));
        };
        self.keep_time(&model.effective(), pace)
    }

    /// From now on commands take the time that the model says for these parameters. A drive in memory is at rest at its outer edge;
    /// one in an image goes on where it stopped, which is remembered in the file [`time_path`](crate::time_path), and so is what is counted.
    /// Once in a drive's life in this process; the error says so.
    pub fn keep_time(&self, params: &Params, pace: Pace) -> Result<()> {
        let inner = &self.inner;
        let config = &inner.config;
        // Of a drive that is all conventional nothing lies elsewhere.
        let conventional =
            if config.conventional == config.zones() { 0 } else { u64::from(config.conventional) * config.zone_size };
        let cache = inner.state.write_cache();
        let engine = Engine::new(params, config.capacity, conventional, config.cache_bytes, cache);
        let again = || Error::unusable(&inner.identity.name, "it keeps time already; open it anew to begin again");
        if inner.clock.get().is_some() {
            return Err(again());
        }
        let clock = match &inner.home {
            None => Clock::new(params, pace, engine, Ledger::new()),
            Some(path) => {
                let (file, clock) = TimeFile::clock(path, config.uuid, params, pace, engine)?;
                inner.time_file.set(file).map_err(|_| again())?;
                clock
            }
        };
        inner.clock.set(clock).map_err(|_| again())
    }

    /// From now on a command's thread is not whose it is, as in a server: in `pace` threads that went on late have no credit of their
    /// own for that. Nothing where it keeps no time.
    pub fn serve_strangers(&self) {
        if let Some(clock) = self.inner.clock.get() {
            clock.serve_strangers();
        }
    }

    /// Makes a drive-managed drive as after a long life: every band has something in it, and the persistent cache holds
    /// `extents` single blocks that want cleaning (or as many as it can). The error says what is missing.
    pub fn precondition(&self, extents: usize) -> Result<()> {
        let done = self.inner.clock.get().is_some_and(|clock| clock.precondition(extents));
        let refuse = || {
            Error::unusable(
                &self.inner.identity.name,
                "only a drive-managed drive that keeps time can be preconditioned",
            )
        };
        if done { Ok(()) } else { Err(refuse()) }
    }

    /// What became of its time; `None` where it keeps none.
    pub fn time(&self) -> Option<TimeStats> {
        self.inner.clock.get().map(Clock::stats)
    }

    /// Records the last `entries` commands in memory from now on.
    pub fn start_trace(&self, entries: u32) {
        self.inner.trace.attach(Some(Trace::in_memory(entries)));
    }

    /// Forgets the trace and records no more.
    pub fn stop_trace(&self) {
        self.inner.trace.attach(None);
    }

    /// What the trace holds, oldest first; nothing where none was started.
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.timed_trace().into_iter().map(|timed| timed.entry).collect()
    }

    /// The same with the time of each command.
    pub fn timed_trace(&self) -> Vec<TimedEntry> {
        self.inner.trace.entries()
    }

    /// Injects faults.
    pub fn faults(&self) -> Faults<'_> {
        Faults::of(self)
    }

    /// A command is over.
    fn ended(&self, op: Op, at: u64, len: u64, tag: Tag, result: &Result<()>) {
        let time = self.inner.clock.get().and_then(|_| LAST.take());
        self.inner.trace.record(op, Place { zone: self.inner.geometry.zone_of(at), at, len, time }, tag, result);
        if let Some(clock) = self.inner.clock.get() {
            clock.over();
        }
    }

    /// While a command is under way.
    fn powered(&self) -> RwLockReadGuard<'_, ()> {
        self.inner.power.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault_state(&self) -> &FaultState {
        &self.inner.faults
    }

    pub(crate) fn flip_bits(&self, at: u64, mask: u8) -> Result<()> {
        let inner = &self.inner;
        let (zone, offset) = inner.place(at);
        if at >= inner.geometry.size() || offset >= inner.readable(zone) {
            return Err(Error::invalid(&inner.identity.name, "bits to flip where nothing was written").at(zone, at));
        }
        let _data = inner.slots[zone.0 as usize].data.write().unwrap_or_else(PoisonError::into_inner);
        let mut byte = [0];
        inner.store.read(zone.0, offset, &mut byte).map_err(|e| Error::io(&inner.identity.name, e))?;
        byte[0] ^= mask;
        inner.store.write(zone.0, offset, &byte).map_err(|e| Error::io(&inner.identity.name, e))
    }

    pub(crate) fn kill_zone(&self, zone: ZoneId, state: ZoneState) {
        self.inner.kill_zone(zone, state);
    }
}

impl Inner {
    /// Remembers the drive's time, where there is a file for that: the last thing that a drive does.
    pub(crate) fn keep_clock(&self) {
        if let (Some(clock), Some(file)) = (self.clock.get(), self.time_file.get()) {
            file.keep(&clock.rest(file.next_generation()));
        }
    }

    /// Lets the time pass that a command takes, where the drive keeps time.
    pub(crate) fn pass_time(&self, what: What, at: u64, len: u64, zone_ms: f64, tag: Tag) {
        if let Some(clock) = self.clock.get() {
            let times = clock.serve(Asked { what, at, len, cause: tag.cause, zone_time: zone_ms * 1e6 });
            LAST.set(Some(times));
        }
    }
}

/// Identity of a memory drive: nothing random, so that a run can be repeated.
pub(crate) fn memory_identity(config: &Config, state: &State) -> Identity {
    let name = if config.name.is_empty() { "mem:" } else { &config.name };
    Identity {
        name: name.into(),
        medium: config.uuid,
        power_epoch: hash16(&[&config.uuid, &state.epoch().to_le_bytes()]),
    }
}

/// 16 bytes that depend on all of `parts`; not cryptographic.
pub(crate) fn hash16(parts: &[&[u8]]) -> [u8; 16] {
    let mut out = [0; 16];
    for (half, seed) in out.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325_u64, 0x9e37_79b9_7f4a_7c15]) {
        let mut hash = seed;
        for part in parts {
            for byte in (part.len() as u64).to_le_bytes().iter().chain(*part) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        half.copy_from_slice(&(hash ^ hash >> 31).to_le_bytes());
    }
    out
}

impl ZonedDevice for Emulator {
    fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    fn power_epoch(&self) -> [u8; 16] {
        let (identity, epoch) = (&self.inner.identity, self.inner.state.epoch());
        match epoch == self.inner.epoch {
            true => identity.power_epoch,
            false => hash16(&[&identity.power_epoch, &epoch.to_le_bytes()]),
        }
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let _power = self.powered();
        Ok(self.inner.report(from, out))
    }

    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let _power = self.powered();
        let result = self.inner.read(buf, at, tag);
        self.ended(Op::Read, at, buf.len() as u64, tag, &result);
        result
    }

    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let _power = self.powered();
        let result = self.inner.write(buf, at, tag);
        self.ended(Op::Write, at, buf.len() as u64, tag, &result);
        result
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        let _power = self.powered();
        let result = self.inner.flush(tag);
        self.ended(Op::Flush, 0, 0, tag, &result);
        result
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let _power = self.powered();
        let result = self.inner.zone_op(op, zone, tag);
        self.ended(op.into(), self.inner.geometry.start(zone), 0, tag, &result);
        result
    }

    fn busy_seconds(&self) -> Vec<(Cause, &'static str, f64)> {
        let time = self.time();
        let by_cause = time.iter().flat_map(|time| &time.by_cause);
        let named = by_cause.filter_map(|(name, of)| {
            let cause = Cause::ALL.iter().find(|cause| cause.name() == *name)?;
            Some((*cause, of))
        });
        let kinds = |(cause, of): (Cause, &crate::time::Seconds)| {
            [
                ("seek", of.seek),
                ("rotation", of.rotation),
                ("transfer", of.transfer),
                ("zone_ops", of.zone_ops),
                ("cleaning", of.cleaning),
            ]
            .map(|(kind, seconds)| (cause, kind, seconds))
        };
        named.flat_map(kinds).collect()
    }
    fn write_cache(&self) -> Result<bool> {
        Ok(self.inner.state.write_cache())
    }

    fn set_write_cache(&self, on: bool) -> Result<()> {
        let result = self.inner.set_write_cache(on, Tag::new(Cause::Other));
        LAST.take();
        result
    }
}
