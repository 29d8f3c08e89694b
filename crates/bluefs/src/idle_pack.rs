//! What is done while nobody uses the drive: live bytes of tables move together, so that at rest files take hardly more zones than
//! they have bytes. Which zone goes where is [`crate::pack`]'s, and how bytes move is [`crate::clean`]'s: copy, flush, journal,
//! flush, and only then the zone is free.
//!
//! A thread looks now and then whether the drive had a command from anybody else; after [`Options::idle_pack`] without one it begins, one
//! zone at a time, and stops with the next command of somebody else. An unmount waits for a mebibyte at most. The bytes that are
//! moved are bounded ([`crate::pack::budget`]), so that whoever writes and rests in turn pays little for it.
//!
//! [`Options::idle_pack`]: crate::Options::idle_pack

use crate::core::Core;
use crate::error::{Code, Result};
use crate::file::lock;
use crate::fs::BlueFs;
use crate::pack::budget;
use imbrex_device::Cause;
use imbrex_drives::counted::Counters;
use imbrex_zones::Exec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// While nothing happens at all it is looked less and less often, up to so many times [`Options::idle_pack`](crate::Options::idle_pack).
const SELDOM: u32 = 16;

/// What was moved while nobody used the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Zones that were emptied.
    pub zones: u32,
    /// Bytes that were moved for that, headers included.
    pub bytes: u64,
}

/// Of one mount.
#[derive(Default)]
pub(crate) struct IdlePack {
    over: AtomicBool,
    /// Bytes that were written to tables since the mount.
    pub(crate) written: AtomicU64,
    moved: AtomicU64,
}

impl IdlePack {
    /// The unmount has begun.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Core {
    /// Packs as much as it may while `go_on`.
    pub(crate) fn pack(&self, go_on: impl Fn() -> bool) -> Result<Packed> {
        let mut packed = Packed::default();
        if !self.options.share || self.options.read_only {
            return Ok(packed);
        }
        while !self.idle_pack.is_over() && go_on() {
            self.check()?;
            let live = lock(&self.parking).live();
            let [written, moved] = [&self.idle_pack.written, &self.idle_pack.moved].map(|n| n.load(Ordering::Relaxed));
            match self.pack_one(budget(live, written, moved)) {
                Ok(Some(bytes)) => {
                    self.idle_pack.moved.fetch_add(bytes, Ordering::Relaxed);
                    packed = Packed { zones: packed.zones + 1, bytes: packed.bytes + bytes };
                }
                Ok(None) => break,
                // Somebody took the room: that is not rest.
                Err(error) if error.code() == Code::NoSpace => break,
                Err(error) => return Err(error),
            }
        }
        Ok(packed)
    }
}

impl BlueFs {
    /// Does at once what is done otherwise while nobody uses the drive: empties zones into the room behind the tables in others,
    /// within the same bounds. Whoever writes meanwhile is not disturbed.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn pack(&self) -> Result<Packed> {
        self.core().pack(|| true)
    }
}

type Bell = (Mutex<()>, Condvar);

/// The thread that looks whether anybody uses the drive.
pub(crate) struct Maintenance {
    core: Arc<Core>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Maintenance {
    /// Sets out, where the mount has threads and asks for it.
    pub(crate) fn new(core: &Arc<Core>, counters: &Arc<Counters>) -> Maintenance {
        let options = &core.options;
        let threads = matches!(options.volume.exec, Exec::Threads(_));
        let wanted = options.idle_pack.filter(|_| threads && options.share && !options.read_only);
        let bell = Arc::new(Bell::default());
        let thread = wanted.and_then(|rest| {
            let (core, counters, bell) = (core.clone(), counters.clone(), bell.clone());
            let watch = move || watch(&core, &counters, &bell, rest);
            // Without a thread (the system has no more) nothing is packed.
            let started = std::thread::Builder::new().name("imbrex-idle".into()).spawn(watch);
            started.inspect_err(|error| tracing::warn!(%error, "no thread for times of rest")).ok()
        });
        Maintenance { core: core.clone(), bell, thread }
    }

    /// Nothing is moved any more once this returns.
    pub(crate) fn end(&mut self) {
        self.core.idle_pack.over.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        drop(lock(&self.bell.0));
        self.bell.1.notify_all();
        // One that panicked has already said so.
        drop(thread.join());
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.end();
    }
}

/// Commands of the drive that came from somebody else.
fn others(counters: &Counters) -> u64 {
    let own = |cause| matches!(cause, Cause::Cleaning | Cause::Journal | Cause::Pool);
    counters.read().iter().filter(|of| !own(of.cause)).flat_map(|of| of.commands).sum()
}

fn watch(core: &Core, counters: &Counters, bell: &Bell, rest: Duration) {
    let (mut before, mut packed, mut wait) = (others(counters), None, rest);
    let mut guard = lock(&bell.0);
    loop {
        // Looked at under the lock: who sets it rings only after.
        if core.idle_pack.is_over() {
            return;
        }
        guard = bell.1.wait_timeout(guard, wait).unwrap_or_else(PoisonError::into_inner).0;
        let now = others(counters);
        if core.idle_pack.is_over() || now != before {
            (before, wait) = (now, rest);
            continue;
        }
        if packed == Some(now) {
            wait = (wait * 2).min(rest * SELDOM);
            continue;
        }
        drop(guard);
        match core.pack(|| others(counters) == now) {
            Ok(done) if done.zones > 0 => tracing::debug!(zones = done.zones, bytes = done.bytes, "packed at rest"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "tables could not be packed"),
        }
        packed = Some(now);
        guard = lock(&bell.0);
    }
}
