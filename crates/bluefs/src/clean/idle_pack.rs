//! What is done while nobody uses the drive: live bytes of tables move together, so that at rest files take hardly more zones than
//! they have bytes. Which zone goes where is [`crate::policy::pack`]'s, and how bytes move is [`crate::clean`]'s: copy, flush, journal,
//! flush, and only then the zone is free.
//!
//! A thread looks now and then whether the drive had a command from anybody else; after [`Options::idle_pack`] without one it begins, one
//! zone at a time, and stops with the next command of somebody else. An unmount waits for a mebibyte at most. The bytes that are
//! moved are bounded ([`crate::policy::pack::budget`]), so that whoever writes and rests in turn pays little for it.
//!
//! [`Options::idle_pack`]: crate::Options::idle_pack

use super::Wish;
use crate::file::core::Core;
use imbrex_device::{Cause, Result};
use imbrex_zones::clean::Goal;
use imbrex_zones::shell::Rest;
use std::time::Duration;

/// While nothing happens at all it is looked less and less often, up to so many times [`Options::idle_pack`](crate::Options::idle_pack).
const SELDOM: u32 = 16;

/// What was moved while nobody used the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Zones that were emptied.
    pub zones: u32,
    /// Bytes that were written for that, headers included.
    pub bytes: u64,
}

/// What the maintenance thread keeps in mind.
#[derive(Default)]
pub(crate) struct IdleWatch {
    /// How many commands had come from others when it was last looked.
    before: Option<u64>,
    /// As many when zones were packed.
    packed: Option<u64>,
    wait: Duration,
}

impl Core {
    /// Packs as much as it may while `go_on`.
    pub(crate) fn pack(&self, go_on: impl Fn() -> bool) -> Result<Packed> {
        let mut packed = Packed::default();
        if !self.options.policy.shares() || self.options.read_only {
            return Ok(packed);
        }
        while !self.maintenance.is_over() && go_on() {
            self.check()?;
            let budget = self.cleaning.rest_budget(self.parked.look(|parking| parking.live()));
            let done = self.clean(Wish::Packed { budget, rest: true, logs: false }, Goal::Rest)?;
            self.cleaning.moved_at_rest(done.written);
            packed = Packed { zones: packed.zones + done.cleaned.freed as u32, bytes: packed.bytes + done.written };
            // Where somebody took the room, that is not rest.
            if done.over || done.cleaned.waited || !done.cleaned.gained() {
                break;
            }
        }
        Ok(packed)
    }

    /// Commands of the drive that came from somebody else.
    fn commands_of_others(&self) -> u64 {
        let own = |cause| matches!(cause, Cause::Cleaning | Cause::Journal | Cause::Pool);
        self.counters.read().iter().filter(|of| !own(of.cause)).flat_map(|of| of.commands).sum()
    }

    /// Packs where nobody else has used the drive since the last look.
    pub(crate) fn idle_chore(&self, idle: &mut IdleWatch) -> Option<Rest> {
        let rest = self.options.idle_pack?;
        let now = self.commands_of_others();
        if idle.before != Some(now) {
            (idle.before, idle.wait) = (Some(now), rest);
        } else if idle.packed == Some(now) {
            idle.wait = (idle.wait * 2).min(rest * SELDOM);
        } else {
            match self.pack(|| self.commands_of_others() == now) {
                Ok(done) if done.zones > 0 => tracing::debug!(zones = done.zones, bytes = done.bytes, "packed at rest"),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "tables could not be packed"),
            }
            idle.packed = Some(now);
        }
        Some(Rest { time: idle.wait, until_rung: false })
    }
}
