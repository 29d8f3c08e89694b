//! Background work of a volume: writing full segments and resetting free zones, on threads or step by step.

use super::{Exec, Handle, VolumeCore};
use crate::sync::lock;
#[cfg(not(feature = "shuttle"))]
use crate::sync::{wait, wait_at_most};
#[cfg(not(feature = "shuttle"))]
use crate::volume::deferred;
use crate::volume::stream::StreamCore;
use imbrex_device::{Cause, Priority, Result, Tag};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Work {
    ready: VecDeque<Arc<StreamCore>>,
    resets: bool,
    /// Memory is nearly short.
    relieve: bool,
    stop: bool,
}

impl Handle {
    pub(super) fn stop(&self) {
        lock(&self.core.work).stop = true;
        self.core.work_changed.notify_all();
        #[cfg(not(feature = "shuttle"))]
        for thread in lock(&self.threads).drain(..) {
            // The last reference may be dropped by a writer itself, which cannot wait for its own end. A writer that
            // panicked has already said so; its streams keep their bytes.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
        // Streams hold the volume, so the volume must not go on holding streams.
        lock(&self.core.work).ready.clear();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(not(feature = "shuttle"))]
pub(super) fn spawn_writers(core: &Arc<VolumeCore>) -> Vec<std::thread::JoinHandle<()>> {
    let n = match core.options.exec {
        Exec::Inline => 0,
        Exec::Threads(_) if core.geometry.rotational => 1,
        Exec::Threads(n) => n.max(1),
    };
    let spawn = |i| {
        let core = core.clone();
        std::thread::Builder::new().name(format!("imbrex-write-{i}")).spawn(move || core.write_loop())
    };
    // Without a thread (the system has no more) the appenders write for themselves.
    (0..n).filter_map(|i| spawn(i).inspect_err(|error| tracing::warn!(%error, "no writer thread")).ok()).collect()
}

impl VolumeCore {
    /// A stream has a full segment.
    pub(crate) fn enqueue(&self, stream: Arc<StreamCore>) {
        lock(&self.work).ready.push_back(stream);
        self.work_changed.notify_one();
    }

    /// Time since the volume was opened. Without threads it stands still but for [`Volume::pass`](super::Volume::pass), so that every run
    /// is the same.
    pub(crate) fn now(&self) -> Duration {
        let passed = Duration::from_nanos(self.passed.load(Ordering::Acquire));
        if self.is_threaded() { passed + self.opened.elapsed() } else { passed }
    }

    /// Whether the volume has threads, whose time passes by itself.
    pub(crate) fn is_threaded(&self) -> bool {
        matches!(self.options.exec, Exec::Threads(_)) && !cfg!(feature = "shuttle")
    }

    /// Something is due at a certain time from now on: a writer that sleeps until there is something to do has to look at the clock.
    pub(crate) fn watch_clock(&self) {
        drop(lock(&self.work));
        self.work_changed.notify_all();
    }

    /// Memory is nearly short: some of what waits in it is to be written.
    pub(crate) fn relieve_soon(&self) {
        lock(&self.work).relieve = true;
        self.work_changed.notify_one();
    }

    /// Writes a turn's worth of what waits, where memory is still nearly short.
    fn relieve_some(&self) -> Result<bool> {
        if !std::mem::take(&mut lock(&self.work).relieve) || !self.is_nearly_short() || !self.relieve_deferred()? {
            return Ok(false);
        }
        if self.is_nearly_short() {
            lock(&self.work).relieve = true;
        }
        Ok(true)
    }

    /// There are zones to reset.
    pub(super) fn reset_soon(&self) {
        lock(&self.work).resets = true;
        self.work_changed.notify_one();
        if let Some(active) = &self.active {
            active.notify();
        }
    }

    pub(super) fn step(&self) -> Result<bool> {
        let stream = lock(&self.work).ready.pop_front();
        if let Some(stream) = stream {
            stream.write_ready(1)?;
            return Ok(true);
        }
        if self.relieve_some()? || self.write_old()? {
            return Ok(true);
        }
        self.reset_one()
    }

    pub(crate) fn reset_one(&self) -> Result<bool> {
        let Some(zone) = lock(&self.pool).next_dirty() else { return Ok(false) };
        let result = self.reset_zone(zone, Tag::new(Cause::Pool).at(Priority::Background));
        lock(&self.pool).reset_done(zone, result.is_ok());
        self.freed.notify_all();
        if let Err(error) = result {
            tracing::warn!(%error, "a zone that cannot be reset is given up");
        }
        Ok(true)
    }

    #[cfg(not(feature = "shuttle"))]
    fn write_loop(&self) {
        let mut looked = self.now();
        loop {
            let mut work = lock(&self.work);
            let stream = loop {
                if work.stop {
                    return;
                }
                if let Some(stream) = work.ready.pop_front() {
                    break Some(stream);
                }
                if work.relieve || std::mem::take(&mut work.resets) {
                    break None;
                }
                let deferred =
                    (!self.deferred.is_empty()).then(|| (looked + deferred::LOOK).saturating_sub(self.now()));
                match [deferred, self.until_look()].into_iter().flatten().min() {
                    None => work = wait(&self.work_changed, work),
                    Some(Duration::ZERO) => break None,
                    Some(time) => work = wait_at_most(&self.work_changed, work, time),
                }
            };
            drop(work);
            if self.until_look() == Some(Duration::ZERO)
                && let Err(error) = self.look()
            {
                self.flusher.poison(error);
            }
            if self.now() >= looked + deferred::LOOK {
                // Whatever goes wrong here is met by whoever needs these bytes on the drive.
                while matches!(self.write_old(), Ok(true)) {}
                looked = self.now();
            }
            if stream.is_none()
                && let Err(error) = self.relieve_some()
            {
                tracing::warn!(%error, "a background write failed");
            }
            match stream {
                Some(stream) => {
                    if let Err(error) = stream.write_ready(self.options.turn_bytes) {
                        // The bytes stay where they are; whoever syncs or needs their room meets the error.
                        tracing::warn!(%error, "a background write failed");
                    }
                }
                None => {
                    while matches!(self.reset_one(), Ok(true)) {
                        if !lock(&self.work).ready.is_empty() {
                            lock(&self.work).resets = true;
                            break;
                        }
                    }
                }
            }
        }
    }
}
