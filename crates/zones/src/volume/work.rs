//! Background work of a volume: writing full segments and resetting free zones, on threads or step by step.

#[cfg(not(feature = "shuttle"))]
use super::Exec;
use super::{Handle, VolumeCore};
use crate::stream::StreamCore;
use crate::sync::lock;
#[cfg(not(feature = "shuttle"))]
use crate::sync::wait;
use imbrex_device::{Cause, Priority, Result, Tag};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Work {
    ready: VecDeque<Arc<StreamCore>>,
    resets: bool,
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

    /// There are zones to reset.
    pub(super) fn reset_soon(&self) {
        lock(&self.work).resets = true;
        self.work_changed.notify_one();
        if let Some(active) = &self.active {
            active.tell();
        }
    }

    pub(super) fn step(&self) -> Result<bool> {
        let stream = lock(&self.work).ready.pop_front();
        if let Some(stream) = stream {
            stream.write_ready(1)?;
            return Ok(true);
        }
        self.reset_one()
    }

    pub(crate) fn reset_one(&self) -> Result<bool> {
        let Some(zone) = lock(&self.pool).next_dirty() else { return Ok(false) };
        let result = self.reset_zone(zone, Tag::new(Cause::Pool).at(Priority::Background));
        lock(&self.pool).reset_done(zone, result.is_ok());
        self.reset.notify_all();
        if let Err(error) = result {
            tracing::warn!(%error, "a zone that cannot be reset is given up");
        }
        Ok(true)
    }

    #[cfg(not(feature = "shuttle"))]
    fn write_loop(&self) {
        loop {
            let mut work = lock(&self.work);
            let stream = loop {
                if work.stop {
                    return;
                }
                if let Some(stream) = work.ready.pop_front() {
                    break Some(stream);
                }
                if std::mem::take(&mut work.resets) {
                    break None;
                }
                work = wait(&self.work_changed, work);
            };
            drop(work);
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
