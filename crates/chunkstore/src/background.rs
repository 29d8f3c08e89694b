//! What is done without being asked: cleaning ahead of those who need zones, verifying what is stored, and looking after zones that the
//! drive gives up (SMRSTORE §5.5; issue 5, parts 5 and 7).
//!
//! A thread, where the store has threads; else [`step`](crate::ChunkStore::step), a burst a call, so that crash tests and a virtual
//! clock see the same commands every time. How much at a time and how long a rest is [`throttle`]'s. Who finds too few zones
//! free all the same cleans itself, as ever, so nothing ever depends on this thread: it may fail, or not be there.
//!
//! Invariants: the thread holds no lock while it rests; it is told to stop before the store's memory goes, and joined; a burst that is under
//! way then ends by itself, after [`throttle::MOST`] bytes at the latest.

use crate::clean::Victim;
use crate::core::{Core, lock};
use crate::error::Result;
use crate::format::BLOCK;
use crate::policy::throttle::{self, Pace, Seen};
use imbrex_device::{Zone, ZoneState as DriveState, report_all};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So often it is looked whether there is something to do, if nobody rings.
const LOOK: Duration = Duration::from_secs(2);
/// So often the drive is asked for the states of all zones.
const PATROL: Duration = Duration::from_secs(60);
/// After an error.
const TROUBLE: Duration = Duration::from_secs(10);
/// Bytes of a burst of the scrub.
const SCRUB: u64 = 4 << 20;

#[derive(Default)]
struct Signal {
    over: bool,
    rung: bool,
}

/// Of one open store.
#[derive(Default)]
pub(crate) struct Tending {
    signal: Mutex<Signal>,
    changed: Condvar,
    /// Somebody cleans in the background, so users need not do it before zones are really short.
    attended: AtomicBool,
    /// When [stepping](crate::ChunkStore::step) without threads: run after users take this many zones. Who has stepped once need
    /// not do so ever again.
    stepped: AtomicU32,
    pace: Mutex<Pace>,
}

impl Tending {
    /// Zones run short: it is time to look.
    pub(crate) fn ring(&self) {
        if self.is_attended() {
            lock(&self.signal).rung = true;
            self.changed.notify_all();
        }
    }

    fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }

    /// The same, for somebody who takes a zone now.
    pub(crate) fn attends_to_one_more(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.is_attended() || self.stepped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    fn end(&self) {
        lock(&self.signal).over = true;
        self.attended.store(false, Ordering::Relaxed);
        self.stepped.store(0, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits for so long, or until it is over, or (where it is only idle) until somebody rings. True: it is over.
    fn rest(&self, time: Duration, idle: bool) -> bool {
        let until = Instant::now() + time;
        let mut signal = lock(&self.signal);
        while !(signal.over || idle && signal.rung) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            signal = match self.changed.wait_timeout(signal, left) {
                Ok((signal, _)) => signal,
                Err(error) => PoisonError::into_inner(error).0,
            };
        }
        signal.rung = false;
        signal.over
    }
}

/// The thread; it has ended when this is gone.
pub(crate) struct Maintenance {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    /// Sets out, where the store has threads and shall be cleaned in the background.
    pub(crate) fn new(core: &Arc<Core>) -> Maintenance {
        let thread = core.options.max_slowdown.filter(|_| core.is_threaded()).and_then(|slowdown| {
            let with = core.clone();
            let attend = move || attend(&with, slowdown);
            // Without a thread (the system has no more) whoever takes a zone cleans.
            let started = std::thread::Builder::new().name("imbrex-chunks".into()).spawn(attend);
            started.inspect_err(|error| tracing::warn!(%error, "no thread to clean in the background")).ok()
        });
        core.tending.attended.store(thread.is_some(), Ordering::Relaxed);
        Maintenance { core: core.clone(), thread: Mutex::new(thread) }
    }

    /// Nothing is done in the background any more once this returns, also if somebody else ends it at the same time.
    pub(crate) fn end(&self) {
        self.core.tending.end();
        let mut thread = lock(&self.thread);
        // One that panicked has already said so.
        drop(thread.take().map(JoinHandle::join));
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.end();
    }
}

fn attend(core: &Core, slowdown: f64) {
    let mut looked = Instant::now();
    let mut scrub = Instant::now() + LOOK;
    loop {
        if looked.elapsed() >= PATROL {
            looked = Instant::now();
            if let Err(error) = core.patrol() {
                tracing::warn!(%error, "the drive did not say how its zones are");
            }
        }
        let (rest, idle) = match core.tend(slowdown) {
            Ok(Some(rest)) => (rest, false),
            Ok(None) => (LOOK, true),
            Err(error) => {
                if core.volume.check_poison().is_err() {
                    // Nothing can be written before the store is opened again, and everybody is told so.
                    core.tending.attended.store(false, Ordering::Relaxed);
                    return;
                }
                tracing::warn!(%error, "cleaning in the background failed; it is tried again");
                (TROUBLE, false)
            }
        };
        if Instant::now() >= scrub {
            scrub = Instant::now() + core.scrub_burst(slowdown).unwrap_or(LOOK * 60);
        }
        // In its rests the cleaning is not disturbed by the scrub's, nor the other way.
        let until = scrub.saturating_duration_since(Instant::now());
        if core.tending.rest(rest.min(until), idle || until < rest) {
            return;
        }
    }
}

impl Core {
    /// One burst of cleaning, where there is something to do. How long to rest after it; `None`: there is nothing to do.
    fn tend(&self, slowdown: f64) -> Result<Option<Duration>> {
        let before = *lock(&self.tending.pace);
        let meter = &self.counters.meter;
        let began = Instant::now();
        meter.burst(true);
        let done = self.burst(before.bytes);
        meter.burst(false);
        let Some(moved) = done? else { return Ok(None) };
        let (calm, all) = meter.since_last();
        let (free, below) = (self.free_for_users(), self.facts.clean_below);
        let seen = Seen { free, below, took: began.elapsed(), moved, calm, all };
        let pace = throttle::pace(before, slowdown, &seen);
        *lock(&self.tending.pace) = pace;
        Ok(Some(pace.rest))
    }

    /// Verifies a piece. How long to rest after it; `None`: nothing is to be scrubbed now, as where there are no chunks or all of them are still in
    /// memory.
    fn scrub_burst(&self, slowdown: f64) -> Option<Duration> {
        let period = self.options.scrub?;
        let began = Instant::now();
        self.counters.meter.burst(true);
        let done = self.scrub_on(SCRUB);
        self.counters.meter.burst(false);
        match done {
            Ok((bytes, problems, _)) => {
                problems.iter().for_each(|problem| tracing::error!("{problem}"));
                let live = self.live_bytes();
                (bytes > 0).then(|| throttle::scrub_rest(slowdown, began.elapsed(), bytes, live, period))
            }
            Err(error) => {
                tracing::warn!(%error, "the scrub cannot go on");
                None
            }
        }
    }

    /// Bytes of all chunks.
    fn live_bytes(&self) -> u64 {
        self.state().zones.all().values().map(|z| u64::from(z.live_blocks)).sum::<u64>() * BLOCK as u64
    }

    /// Cleans about so many bytes, if that is due. `None`: it is not, or nothing is to be gained.
    fn burst(&self, bytes: u64) -> Result<Option<u64>> {
        self.reset_garbage(false);
        let short = throttle::is_due(self.free_for_users(), self.facts.clean_below);
        let victim = if short { Victim::Any } else { Victim::Dying };
        if !short && !self.has_dying() {
            return Ok(None);
        }
        // No more than about a zone: who knows whether more is needed then.
        let (moved, freed) = self.clean(bytes.min(self.facts.zone_bytes), victim)?;
        self.counters.background.fetch_add(moved, Ordering::Relaxed);
        self.reset_garbage(false);
        Ok((moved > 0 || freed).then_some(moved))
    }

    /// A burst for who has no threads. False: there was nothing to do.
    pub(crate) fn step_background(&self) -> Result<bool> {
        if self.options.max_slowdown.is_none() {
            return Ok(false);
        }
        self.tending.stepped.store(self.facts.clean_below.div_ceil(2), Ordering::Relaxed);
        self.burst(throttle::MOST).map(|done| done.is_some())
    }

    /// Free zones without the reserve.
    pub(crate) fn free_for_users(&self) -> u32 {
        let counts = self.tenant.counts();
        counts.free.saturating_sub(counts.reserve)
    }

    /// Asks the drive for the states of all zones. Those that take no more writes are closed, to be drained next; of those that are offline
    /// it is told. Returns the numbers of all that it found so for the first time.
    pub(crate) fn patrol(&self) -> Result<Vec<u32>> {
        let report = report_all(self.volume.device().as_ref())?;
        let dying = report.into_iter().filter_map(|Zone { id, state, .. }| match state {
            DriveState::Offline => Some((id.0, true)),
            DriveState::ReadOnly => Some((id.0, false)),
            _ => None,
        });
        Ok(self.zones_died(&dying.collect::<Vec<_>>()))
    }

    /// These zones take no more writes or (true) are offline: closes and tells those of which that was not known. Their numbers.
    pub(crate) fn zones_died(&self, dead: &[(u32, bool)]) -> Vec<u32> {
        let mut found = Vec::new();
        let mut lost = false;
        {
            let mut state = self.state();
            for (zone, offline) in dead {
                // What waits for it in memory is given another place by whoever writes it.
                let Some(z) = state.zones.get_mut(*zone).filter(|z| z.buffer.is_empty()) else { continue };
                if z.dead && z.unreadable == *offline {
                    continue;
                }
                (z.dead, z.finished, z.unreadable) = (true, true, *offline);
                state.close_zone(*zone);
                found.push((*zone, *offline));
                lost |= offline;
            }
        }
        for (zone, offline) in &found {
            let state = if *offline { "offline" } else { "read-only" };
            tracing::warn!(zone, state, "the drive has given up a zone");
        }
        if lost {
            self.lost_sentences().iter().for_each(|sentence| tracing::error!("{sentence}"));
        }
        found.into_iter().map(|(zone, _)| zone).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};
    use std::sync::Arc;

    /// Without chunks, with one that is empty, and with one whose bytes are all in memory still, as while a `put` is under way: no pass is
    /// counted, and the thread goes to sleep.
    #[test]
    fn where_nothing_can_be_verified_the_scrub_rests() {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive, Options { volume, buffer_bytes: 8 << 20, ..Options::default() }).unwrap();
        let id = ChunkId::of_number;
        let rests = || (store.core.scrub_burst(1.5), store.scrubbed().passes);
        for step in 0..3 {
            for _ in 0..5 {
                assert_eq!(rests(), (None, 0), "step {step}");
            }
            match step {
                0 => store.create(id(1), StreamType::DATA).unwrap(),
                _ => {
                    let how = Append { offset: None, durability: Durability::Buffered };
                    store.append_with(id(1), &[1; 9000], how).unwrap();
                }
            }
        }
        store.sync().unwrap();
        assert!(rests().0.is_some_and(|rest| rest.as_secs() > 60), "all of it was verified in one burst");
        while store.scrubbed().passes == 0 {
            store.core.scrub_burst(1.5);
        }
        store.delete(id(1)).unwrap();
        for _ in 0..5 {
            assert_eq!(rests(), (None, 1), "deleted");
        }
    }
}
