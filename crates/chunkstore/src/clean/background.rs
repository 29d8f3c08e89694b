//! What is done without being asked: cleaning ahead of those who need zones, verifying what is stored, and looking after zones that the
//! drive gives up (SMRSTORE §5.5; issue 5, parts 5 and 7).
//!
//! A thread, where the store has threads; else [`step`](crate::ChunkStore::step), a burst a call, so that crash tests and a virtual
//! clock see the same commands every time. How much at a time and how long a rest is the [cleaner](imbrex_zones::clean)'s. Who finds too few zones
//! free all the same cleans itself, as ever, so nothing ever depends on this thread: it may fail, or not be there.

use crate::core::Core;
use crate::error::Result;
use crate::format::BLOCK;
use crate::policy::throttle;
use imbrex_device::{Zone, ZoneState as DriveState, report_all};
use imbrex_zones::clean::Goal;
use imbrex_zones::clean::throttle::MOST;
use imbrex_zones::shell::Rest;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So often it is looked whether there is something to do, if nobody rings.
const LOOK: Duration = Duration::from_secs(2);
/// So often the drive is asked for the states of all zones.
const PATROL: Duration = Duration::from_secs(60);
/// After an error.
const TROUBLE: Duration = Duration::from_secs(10);
/// Bytes of a burst of the scrub.
const SCRUB: u64 = 4 << 20;

/// When the thread does what next.
pub(crate) struct Chores {
    patrol: Instant,
    scrub: Instant,
}

impl Default for Chores {
    fn default() -> Chores {
        let now = Instant::now();
        Chores { patrol: now + PATROL, scrub: now + LOOK }
    }
}

impl Core {
    /// Somebody cleans in the background, so users need not do it before zones are really short; asked by somebody who takes a zone now.
    pub(crate) fn attends_to_one_more(&self) -> bool {
        self.maintenance.is_attended() || self.cleaner.takes_one_more()
    }

    /// Nothing is done in the background any more once this returns.
    pub(crate) fn end_background(&self) {
        self.maintenance.end();
        self.cleaner.stands_in_for(0);
    }

    /// What the thread does between two rests.
    pub(crate) fn attend(&self, chores: &mut Chores) -> Option<Rest> {
        let slowdown = self.options.max_slowdown?;
        if Instant::now() >= chores.patrol {
            chores.patrol = Instant::now() + PATROL;
            if let Err(error) = self.patrol() {
                tracing::warn!(%error, "the drive did not say how its zones are");
            }
        }
        let (rest, idle) = match self.cleaner.pace(slowdown, &self.counters.meter.load, |bytes| self.burst(bytes)) {
            Ok(Some(rest)) => (rest, false),
            Ok(None) => (LOOK, true),
            Err(error) => {
                // Where nothing can be written before the store is opened again, everybody is told so.
                self.volume.check_poison().ok()?;
                tracing::warn!(%error, "cleaning in the background failed; it is tried again");
                (TROUBLE, false)
            }
        };
        if Instant::now() >= chores.scrub {
            chores.scrub = Instant::now() + self.scrub_burst(slowdown).unwrap_or(LOOK * 60);
        }
        // In its rests the cleaning is not disturbed by the scrub's, nor the other way.
        let until = chores.scrub.saturating_duration_since(Instant::now());
        Some(Rest { time: rest.min(until), until_rung: idle || until < rest })
    }

    /// Verifies a piece. How long to rest after it; `None`: nothing is to be scrubbed now, as where there are no chunks or all of them are still in
    /// memory.
    fn scrub_burst(&self, slowdown: f64) -> Option<Duration> {
        let period = self.options.scrub?;
        let began = Instant::now();
        match self.counters.meter.load.burst(|| self.scrub_on(SCRUB)) {
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
        // No more than about a zone: who knows whether more is needed then.
        let done = self.cleaner.clean(self, Goal::Rest, bytes.min(self.limits.zone_bytes))?;
        self.counters.background.fetch_add(done.moved, Ordering::Relaxed);
        self.reset_garbage(false);
        Ok((done.moved > 0 || done.freed > 0).then_some(done.moved))
    }

    /// A burst for who has no threads. False: there was nothing to do.
    pub(crate) fn step_background(&self) -> Result<bool> {
        if self.options.max_slowdown.is_none() {
            return Ok(false);
        }
        self.cleaner.stands_in_for(self.limits.clean_below.div_ceil(2));
        self.burst(MOST).map(|done| done.is_some())
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
                let Some(z) = state.zones.get_mut(*zone).filter(|_| !self.writer.waits(*zone)) else { continue };
                if z.dead && z.unreadable == *offline {
                    continue;
                }
                (z.dead, z.unreadable) = (true, *offline);
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
