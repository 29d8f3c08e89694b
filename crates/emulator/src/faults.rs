//! Faults on request: bad blocks, flipped bits, failing flushes and writes, dying zones, a full host disk. They belong to
//! the open drive (and its forks), not to an image; only a zone's death is kept there.

use crate::drive::Emulator;
use crate::power::seeded;
use imbrex_device::{Error, Result, ZoneId, ZoneState};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which write an injected failure waits for.
#[derive(Clone, Copy, Debug)]
enum When {
    /// This many more writes pass first.
    After(u64),
    /// The next write to the zone.
    Zone(ZoneId),
}

#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// Bad byte ranges, sorted, apart from each other.
    bad: Vec<(u64, u64)>,
    failing_flushes: u64,
    writes: Vec<(When, u64)>,
    host_full: bool,
    holds: Vec<(ZoneId, Arc<Gate>)>,
}

#[derive(Default)]
struct Gate {
    /// Whether a write has arrived, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

/// Blocks to keep of a write that fails when it is done.
pub(crate) const WHOLE: u64 = u64::MAX;

/// What the plan does to a write.
pub(crate) enum WriteFate {
    Goes,
    /// Only so many blocks are written, then it fails; [`WHOLE`]: all.
    Torn(u64),
    /// The host's disk is full.
    HostFull,
}

/// The error of a command that was told to fail.
pub(crate) fn injected(what: &str) -> io::Error {
    io::Error::other(format!("injected failure of a {what}; clear the drive's faults"))
}

/// The plan of a drive, and a flag that keeps it off the path of a healthy one.
#[derive(Default)]
pub(crate) struct FaultState {
    any: AtomicBool,
    plan: Mutex<Plan>,
}

impl FaultState {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.plan();
        change(&mut plan);
        self.any.store(true, Ordering::Release);
    }

    fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// A copy for a fork; held writes stay with the original.
    pub(crate) fn copy(&self) -> FaultState {
        let plan = Plan { holds: Vec::new(), ..self.plan().clone() };
        FaultState { any: AtomicBool::new(self.any()), plan: Mutex::new(plan) }
    }

    /// Bytes that can be read of `at..at + len` before the first bad block, `None` for all.
    pub(crate) fn first_bad(&self, at: u64, len: u64, block: u64) -> Option<u64> {
        if !self.any() {
            return None;
        }
        let plan = self.plan();
        let bad = plan.bad.iter().find(|(from, to)| *from < at + len && at < *to)?;
        Some((bad.0.max(at) - at) / block * block)
    }

    /// Overwritten or reset blocks are good again.
    pub(crate) fn heal(&self, at: u64, len: u64) {
        if self.any() {
            self.plan().cut(at, at + len);
        }
    }

    pub(crate) fn flush_fails(&self) -> bool {
        if !self.any() {
            return false;
        }
        let mut plan = self.plan();
        let fails = plan.failing_flushes > 0;
        plan.failing_flushes = plan.failing_flushes.saturating_sub(1);
        fails
    }

    /// Decides about a write to `zone`; may wait where a test holds it.
    pub(crate) fn on_write(&self, zone: ZoneId) -> WriteFate {
        if !self.any() {
            return WriteFate::Goes;
        }
        let mut plan = self.plan();
        let gate = plan.holds.iter().position(|(held, _)| *held == zone).map(|i| plan.holds.remove(i).1);
        let mut fate = if plan.host_full { WriteFate::HostFull } else { WriteFate::Goes };
        plan.writes.retain_mut(|(when, keep)| {
            let now = match when {
                When::After(0) => true,
                When::After(n) => {
                    *n -= 1;
                    false
                }
                When::Zone(wanted) => *wanted == zone,
            };
            if now {
                fate = WriteFate::Torn(*keep);
            }
            !now
        });
        drop(plan);
        if let Some(gate) = gate {
            gate.hold();
        }
        fate
    }
}

impl Plan {
    fn cut(&mut self, from: u64, to: u64) {
        let old = std::mem::take(&mut self.bad);
        for (a, b) in old {
            if b <= from || to <= a {
                self.bad.push((a, b));
                continue;
            }
            if a < from {
                self.bad.push((a, from));
            }
            if to < b {
                self.bad.push((to, b));
            }
        }
    }
}

impl Gate {
    fn hold(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A write that stands still until this value goes away.
pub struct Held {
    gate: Arc<Gate>,
}

impl Held {
    /// Waits until the write has arrived.
    pub fn arrived(&self) {
        let mut state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.0 {
            state = self.gate.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gate.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.gate.changed.notify_all();
    }
}

/// Handle to inject faults into a drive, by [`Emulator::faults`].
pub struct Faults<'a> {
    drive: &'a Emulator,
}

impl<'a> Faults<'a> {
    pub(crate) fn of(drive: &'a Emulator) -> Self {
        Faults { drive }
    }

    fn state(&self) -> &FaultState {
        self.drive.fault_state()
    }

    /// Reads of any block in `at..at + len` fail with `Media` until it is overwritten, its zone reset, or
    /// [`Faults::clear`].
    pub fn media_error(&self, at: u64, len: u64) {
        self.state().change(|plan| {
            plan.cut(at, at + len);
            plan.bad.push((at, at + len));
            plan.bad.sort_unstable();
        });
    }

    /// Flips the bits of `mask` in the byte at `at`, as a medium does that lies. Fails where nothing was written.
    pub fn flip_bits(&self, at: u64, mask: u8) -> Result<()> {
        self.drive.flip_bits(at, mask)
    }

    /// The drive alone loses power and gets it back, while it is in use: commands go on as if nothing had happened. `choose` says what is left, as in
    /// [`Emulator::after_power_loss_choosing`]. `told`: the drive says so by [`power_epoch`](imbrex_device::ZonedDevice::power_epoch);
    /// real ones do not, and then write pointers alone show it. Waits for commands under way, held ones, too.
    pub fn lose_power(&self, told: bool, choose: &mut dyn FnMut(u64) -> u64) -> Result<()> {
        self.drive.lose_power_live(told, choose)
    }

    /// The same with an outcome that follows from `seed` alone.
    pub fn lose_power_by(&self, told: bool, seed: u64) -> Result<()> {
        self.lose_power(told, &mut seeded(seed))
    }

    /// The next `n` flushes fail with `Io` and make nothing durable.
    pub fn fail_flushes(&self, n: u64) {
        self.state().change(|plan| plan.failing_flushes = n);
    }

    /// The `nth` write from now (1 is the next one) writes `keep_blocks` blocks (at most all but one) and fails with
    /// `Io`.
    pub fn fail_write(&self, nth: u64, keep_blocks: u64) {
        self.state().change(|plan| plan.writes.push((When::After(nth.saturating_sub(1)), keep_blocks)));
    }

    /// The `nth` write from now writes all its blocks and fails with `Io` all the same.
    pub fn fail_write_late(&self, nth: u64) {
        self.fail_write(nth, WHOLE);
    }

    /// The next write to `zone` writes `keep_blocks` blocks (at most all but one) and fails with `Io`.
    pub fn fail_write_in(&self, zone: ZoneId, keep_blocks: u64) {
        self.state().change(|plan| plan.writes.push((When::Zone(zone), keep_blocks)));
    }

    /// While `on`, every write fails as if the host's disk under an image were full.
    pub fn host_full(&self, on: bool) {
        self.state().change(|plan| plan.host_full = on);
    }

    /// The zone can only be read from now on.
    pub fn make_read_only(&self, zone: ZoneId) -> Result<()> {
        self.kill(zone, ZoneState::ReadOnly)
    }

    /// The zone and its data are gone.
    pub fn make_offline(&self, zone: ZoneId) -> Result<()> {
        self.kill(zone, ZoneState::Offline)
    }

    fn kill(&self, zone: ZoneId, state: ZoneState) -> Result<()> {
        if zone.0 >= self.drive.config().zones() {
            return Err(Error::invalid(&self.drive.name(), format!("there is no zone {zone}")));
        }
        self.drive.kill_zone(zone, state);
        Ok(())
    }

    /// The next write to `zone` stands still in the middle until the returned value goes away.
    #[must_use = "the write goes on when this goes away"]
    pub fn hold_write(&self, zone: ZoneId) -> Held {
        let gate = Arc::new(Gate::default());
        self.state().change(|plan| plan.holds.push((zone, gate.clone())));
        Held { gate }
    }

    /// Takes back everything but dead zones and flipped bits.
    pub fn clear(&self) {
        self.state().change(|plan| *plan = Plan::default());
        self.state().any.store(false, Ordering::Release);
    }
}
