//! Background work of a volume: what its engines' writers have due, and resetting free zones, on threads or step by step.

use super::{Exec, Handle, VolumeCore};
use crate::sync::lock;
#[cfg(not(feature = "shuttle"))]
use crate::sync::{wait, wait_at_most};
use imbrex_device::{Cause, Priority, Result, Tag};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Work {
    resets: bool,
    stop: bool,
}

/// What a volume does for an engine in the background. Called without a lock.
pub(crate) trait Background: Send + Sync {
    /// Does one piece of what is due, of about so many bytes. False: nothing is.
    ///
    /// # Errors
    /// Whatever is done in vain is not due any more; who needs it done meets the error.
    fn step(&self, bytes: u64) -> Result<bool>;
    /// In how much time something is due; `None`: not before somebody [says so](VolumeCore::ring).
    #[cfg_attr(feature = "shuttle", expect(dead_code, reason = "nothing takes time under the model checker"))]
    fn until_due(&self) -> Option<Duration>;
}

impl Handle {
    pub(super) fn stop(&self) {
        lock(&self.core.work).stop = true;
        self.core.work_changed.notify_all();
        #[cfg(not(feature = "shuttle"))]
        for thread in lock(&self.threads).drain(..) {
            // The last reference may be dropped by a writer itself, which cannot wait for its own end. A writer that
            // panicked has already said so; files keep their bytes in memory.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
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
    /// An engine has something to do in the background from now on, as long as it is there.
    pub(crate) fn attend(&self, background: &Arc<dyn Background>) {
        let mut all = lock(&self.background);
        all.retain(|background| background.strong_count() > 0);
        all.push(Arc::downgrade(background));
    }

    fn background(&self) -> Vec<Arc<dyn Background>> {
        lock(&self.background).iter().filter_map(Weak::upgrade).collect()
    }

    /// Something is due: a thread that sleeps looks again.
    pub(crate) fn ring(&self) {
        drop(lock(&self.work));
        self.work_changed.notify_one();
    }

    /// Something is due at a certain time from now on: a thread that sleeps until there is something to do has to look at the clock.
    pub(crate) fn watch_clock(&self) {
        drop(lock(&self.work));
        self.work_changed.notify_all();
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

    /// There are zones to reset.
    pub(super) fn reset_soon(&self) {
        lock(&self.work).resets = true;
        self.work_changed.notify_one();
        if let Some(active) = &self.active {
            active.notify();
        }
    }

    pub(super) fn step(&self) -> Result<bool> {
        for background in self.background() {
            if background.step(1)? {
                return Ok(true);
            }
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

    /// In how much time something is due in the background.
    #[cfg(not(feature = "shuttle"))]
    fn until_due(&self) -> Option<Duration> {
        self.background().iter().filter_map(|background| background.until_due()).min()
    }

    #[cfg(not(feature = "shuttle"))]
    fn is_due(&self) -> bool {
        self.until_due() == Some(Duration::ZERO)
    }

    /// Waits until there is something to do. `None`: the volume ends; else whether there are zones to reset.
    #[cfg(not(feature = "shuttle"))]
    fn wait_for_work(&self) -> Option<bool> {
        let mut work = lock(&self.work);
        loop {
            if work.stop {
                return None;
            }
            match [self.until_due(), self.until_look()].into_iter().flatten().min() {
                _ if work.resets => return Some(std::mem::take(&mut work.resets)),
                Some(Duration::ZERO) => return Some(false),
                None => work = wait(&self.work_changed, work),
                Some(time) => work = wait_at_most(&self.work_changed, work, time),
            }
        }
    }

    #[cfg(not(feature = "shuttle"))]
    fn write_loop(&self) {
        while let Some(resets) = self.wait_for_work() {
            if self.until_look() == Some(Duration::ZERO)
                && let Err(error) = self.look()
            {
                self.flusher.poison(error);
            }
            for background in self.background() {
                if let Err(error) = background.step(self.options.turn_bytes) {
                    tracing::warn!(%error, "a background write failed");
                }
            }
            // What is written comes first.
            while resets && !self.is_due() && matches!(self.reset_one(), Ok(true)) {}
            if resets && self.is_due() {
                lock(&self.work).resets = true;
            }
        }
    }
}
