//! Zone states: reports, open and active limits, zone operations.

use crate::drive::{Inner, lock};
use crate::state::{State, ZoneWord};
use crate::stats::{CLOSED_BY_DRIVE, Rule, counter};
use crate::time::engine::What;
use imbrex_device::{Fault, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// Who holds the drive's open and active resources.
#[derive(Clone, Default)]
pub(crate) struct OpenZones {
    /// Implicitly open zones in the order in which they were opened; the drive closes the first one when it must.
    implicit: VecDeque<u32>,
    explicit: u32,
    closed: u32,
}

impl OpenZones {
    pub(crate) fn of(state: &State, zones: u32) -> OpenZones {
        let mut open = OpenZones::default();
        for zone in 0..zones {
            open.enter(zone, state.zone(zone).state);
        }
        open
    }

    pub(crate) fn enter(&mut self, zone: u32, state: ZoneState) {
        match state {
            ZoneState::ImplicitlyOpen => self.implicit.push_back(zone),
            ZoneState::ExplicitlyOpen => self.explicit += 1,
            ZoneState::Closed => self.closed += 1,
            _ => {}
        }
    }

    pub(crate) fn leave(&mut self, zone: u32, state: ZoneState) {
        match state {
            ZoneState::ImplicitlyOpen => self.implicit.retain(|other| *other != zone),
            ZoneState::ExplicitlyOpen => self.explicit -= 1,
            ZoneState::Closed => self.closed -= 1,
            _ => {}
        }
    }

    fn open(&self) -> u32 {
        self.implicit.len() as u32 + self.explicit
    }

    fn active(&self) -> u32 {
        self.open() + self.closed
    }
}

/// What a zone that was open is when it no longer is.
pub(crate) fn closed_state(word: ZoneWord) -> ZoneState {
    if word.written == 0 { ZoneState::Empty } else { ZoneState::Closed }
}

impl Inner {
    pub(crate) fn report(&self, from: ZoneId, out: &mut [Zone]) -> usize {
        let zones = from.0..self.geometry.zones;
        let mut n = 0;
        for (slot, zone) in out.iter_mut().zip(zones) {
            *slot = report_zone(&self.config, &self.state, zone);
            n += 1;
        }
        n
    }

    /// Changes a zone's word, keeping the books of open zones. The zone is claimed by the caller, or is nobody's.
    fn change(&self, open: &mut OpenZones, zone: ZoneId, new: ZoneWord) {
        let _side = lock(&self.slot(zone).side);
        let old = self.state.zone(zone.0);
        if matches!(old.state, ZoneState::ReadOnly | ZoneState::Offline) && new.state != ZoneState::Offline {
            return;
        }
        open.leave(zone.0, old.state);
        open.enter(zone.0, new.state);
        self.state.set_zone(zone.0, new);
    }

    /// Opens a zone that the caller has claimed; makes room by closing an implicitly open one, and tells whether it did.
    pub(crate) fn open_zone(&self, zone: ZoneId, explicit: bool, at: u64, tag: Tag) -> Result<bool> {
        let mut closed = false;
        loop {
            let mut open = lock(&self.open);
            let word = self.state.zone(zone.0);
            self.dead(word, zone, at, tag)?;
            let limit = |limit: Option<std::num::NonZeroU32>| limit.map_or(u32::MAX, |n| n.get());
            if word.state == ZoneState::Empty && open.active() >= limit(self.geometry.max_active) {
                return Err(self.violation(Rule::ActiveLimit, Fault::TooManyActive, zone, at, tag));
            }
            if !word.state.is_open() && open.open() >= limit(self.geometry.max_open) {
                if open.implicit.is_empty() {
                    return Err(self.violation(Rule::OpenLimit, Fault::TooManyOpen, zone, at, tag));
                }
                if !self.close_one(&mut open) {
                    // All of them are being written this moment; their commands end without this lock.
                    drop(open);
                    std::thread::yield_now();
                    continue;
                }
                closed = true;
            }
            let state = if explicit { ZoneState::ExplicitlyOpen } else { ZoneState::ImplicitlyOpen };
            self.change(&mut open, zone, ZoneWord { state, ..word });
            return Ok(closed);
        }
    }

    /// The drive closes the implicitly open zone that has been open longest and is not being written.
    fn close_one(&self, open: &mut OpenZones) -> bool {
        for i in 0..open.implicit.len() {
            let zone = open.implicit[i];
            let side = lock(&self.slots[zone as usize].side);
            if side.claimed {
                continue;
            }
            let word = self.state.zone(zone);
            let state = closed_state(word);
            open.leave(zone, word.state);
            open.enter(zone, state);
            self.state.set_zone(zone, ZoneWord { state, ..word });
            self.state.count_global(CLOSED_BY_DRIVE, 1);
            return true;
        }
        false
    }

    /// Undoes `open_zone` where the write that needed it did not happen.
    pub(crate) fn unopen_zone(&self, zone: ZoneId, before: ZoneWord) {
        let mut open = lock(&self.open);
        if self.state.zone(zone.0).state == ZoneState::ImplicitlyOpen {
            self.change(&mut open, zone, before);
        }
    }

    pub(crate) fn kill_zone(&self, zone: ZoneId, state: ZoneState) {
        let mut open = lock(&self.open);
        let word = self.state.zone(zone.0);
        self.change(&mut open, zone, ZoneWord { state, ..word });
    }

    pub(crate) fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let at = self.geometry.start(zone);
        let refuse = |rule, text: String| Err(self.violation(rule, Fault::InvalidInput(text.into()), zone, at, tag));
        if zone.0 >= self.geometry.zones {
            return refuse(Rule::Range, format!("there is no zone {zone}"));
        }
        if self.conventional(zone) {
            return refuse(Rule::ConventionalOp, format!("{} of a conventional zone", op.name()));
        }
        self.writable(zone, at, tag)?;
        let _claim = self.claim(zone, at, tag)?;
        let word = self.state.zone(zone.0);
        self.dead(word, zone, at, tag)?;
        let transition = || format!("{} of a zone that is {}", op.name(), word.state.name());
        let mut closed = false;
        let counted = match op {
            ZoneOp::Open if word.state == ZoneState::Full => return refuse(Rule::Transition, transition()),
            ZoneOp::Open => {
                if word.state != ZoneState::ExplicitlyOpen {
                    closed = self.open_zone(zone, true, at, tag)?;
                }
                counter::zone_opens
            }
            ZoneOp::Close => {
                if !word.state.is_open() && word.state != ZoneState::Closed {
                    return refuse(Rule::Transition, transition());
                }
                let state = closed_state(word);
                self.change(&mut lock(&self.open), zone, ZoneWord { state, ..word });
                counter::zone_closes
            }
            ZoneOp::Finish => {
                let finished = word.finished || word.written < self.capacity_blocks(zone);
                let new = ZoneWord { state: ZoneState::Full, finished, ..word };
                self.change(&mut lock(&self.open), zone, new);
                counter::zone_finishes
            }
            ZoneOp::Reset => {
                self.reset(zone, word, tag);
                counter::zone_resets
            }
        };
        if let Some(clock) = self.clock.get() {
            let ms = clock.params().zone_op_ms(op, closed);
            self.pass_time(What::Zone { drops: op == ZoneOp::Reset }, at, self.geometry.zone_size, ms, tag);
        }
        self.state.count(tag.cause, counted, 1);
        if self.mode.host_sync {
            let synced = self.state.region.sync();
            synced.map_err(|error| self.failure(Fault::Io(Arc::new(error)), zone, at, tag))?;
        }
        if op == ZoneOp::Reset {
            self.discard(zone, word);
        }
        Ok(())
    }

    fn reset(&self, zone: ZoneId, word: ZoneWord, tag: Tag) {
        let before = match (word.state, word.written) {
            (ZoneState::Full, _) => counter::zone_resets_full,
            (_, 0) => counter::zone_resets_empty,
            _ => counter::zone_resets_partial,
        };
        self.state.count(tag.cause, before, 1);
        let mut open = lock(&self.open);
        let mut side = lock(&self.slot(zone).side);
        open.leave(zone.0, word.state);
        // The old life's bytes at risk are gone for good, whatever comes.
        self.harden(zone, &mut side);
        self.state.set_zone(zone.0, ZoneWord::EMPTY);
        self.state.set_flushed(zone.0, 0);
        side.life += 1;
        drop((side, open));
        self.faults.heal(self.geometry.start(zone), self.geometry.zone_size);
    }

    /// Waits for reads that began before the reset, then lets the bytes go.
    fn discard(&self, zone: ZoneId, before: ZoneWord) {
        let _data = self.slot(zone).data.write().unwrap_or_else(PoisonError::into_inner);
        self.store.discard(zone.0, before.written * self.block());
    }
}

/// A zone as the state describes it.
pub(crate) fn report_zone(config: &crate::config::Config, state: &State, zone: u32) -> Zone {
    let word = state.zone(zone);
    let conventional = zone < config.conventional;
    let capacity = if conventional { config.zone_size } else { config.zone_capacity };
    let wp = match word.state {
        // ZBC: the write pointer of these is not valid, so nobody may rely on it.
        ZoneState::ReadOnly | ZoneState::Offline => None,
        _ if conventional => None,
        ZoneState::Full => Some(capacity),
        _ => Some(word.written * u64::from(config.block)),
    };
    Zone { id: ZoneId(zone), state: word.state, capacity, wp }
}
