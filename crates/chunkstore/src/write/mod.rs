//! What has gathered goes to the drive: the journal, then the zones, several of them side by side.
//!
//! The journal is first, so that of a zone in which there is something it is known whose it is as soon as can be; nothing depends on it, because
//! nothing is acknowledged before both are there: after a crash any of these writes may be there or not. The zones of a commit do not
//! depend on each other either. On a rotating drive with its write cache off each command waits for its place to come round, so as many as
//! the drive's queue holds are given to it at once, one a zone, and it takes whichever comes round first (SMRSTORE §3.1 runs with a queue
//! of 32). With threads each zone has one; without, zone follows zone.
//!
//! Invariants: of each zone one write is at the drive at a time, in the order of its blocks; who does it has the zone's [`ZoneGuard`]. An error of one zone
//! stops no other: what the others wrote counts.

pub(crate) mod append;
pub(crate) mod relocate;
pub(crate) mod take;
pub(crate) mod turns;
pub(crate) mod write_through;

use crate::core::{CommitGuard, Core, State};
use crate::error::Result;
use crate::format::BLOCK;
use crate::format::entry::Entry;
use crate::metadata::checkpoint::Meta;
use crate::write::relocate::Relocated;
use crate::zone::pool::Image;
use crate::zone::{DataZone, ZoneState};
use imbrex_device::{Cause, Tag, ZoneId};
use imbrex_zones::OpenZone;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// So often a write is tried again where its zone still takes some.
const TRIES: u32 = 2;

/// The right to write one zone; given back when dropped.
pub(crate) struct ZoneGuard<'a> {
    core: &'a Core,
    zone: u32,
}

impl Drop for ZoneGuard<'_> {
    fn drop(&mut self) {
        if let Some(z) = self.core.state().zones.get_mut(self.zone) {
            z.writing = false;
        }
        self.core.changed.notify_all();
    }
}

/// What became of a zone's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// They are on the drive.
    All,
    /// It takes no more of them: what is left needs another place.
    Refused,
}

impl Core {
    /// Writes what has gathered: the journal first, then the zones. Returns the number up to which all is written, but for what waits for zones that
    /// take no writes while there is no other place for it ([stranded](DataZone::stranded)).
    pub(crate) fn write_out(&self, meta: &mut Meta, guard: &CommitGuard) -> Result<u64> {
        loop {
            let (entries, target, zones) = {
                let mut state = self.state();
                self.log_index_if_due(&mut state);
                let waiting = state.zones.active().filter(|(_, z)| !z.buffer.is_empty());
                // Those that are closed first, so that they count no more as open when others are opened.
                let (closed, open): (Vec<_>, Vec<_>) = waiting.partition(|(_, z)| !z.state().is_open());
                let zones: Vec<(u32, u32)> = closed.iter().chain(&open).map(|(zone, z)| (*zone, z.tail)).collect();
                state.naming = 0;
                debug_assert!(state.journal.iter().all(|entry| match entry {
                    Entry::Told { group, .. } | Entry::Moved { to: group, .. } => state.is_durable(group),
                    _ => true,
                }));
                // A number of its own: what is written later is in another group.
                (std::mem::take(&mut state.journal), state.assign(), zones)
            };
            if let Err(error) = self.log_entries(meta, &entries) {
                self.state().journal.splice(0..0, entries);
                return Err(error);
            }
            meta.log.write()?;
            self.state().creates.retain(|_, created| *created > target);
            guard.logged(target);
            self.finish_closed();
            let mut moved = false;
            for zone in self.write_zones(&zones)? {
                let came = self.relocate(zone, guard)?;
                moved |= came == Relocated::Moved;
                if came != Relocated::StillStranded {
                    // What it tells of these bytes' places is not so any more, or never will be.
                    meta.log.abandon_snapshot();
                }
            }
            if !moved {
                return Ok(target);
            }
        }
    }

    /// Writes what these zones have in memory, up to these blocks at least. Returns those that did not take it.
    fn write_zones(&self, zones: &[(u32, u32)]) -> Result<Vec<u32>> {
        let next = AtomicUsize::new(0);
        let outcome = Mutex::new((Vec::new(), Ok(())));
        let work = || {
            while let Some((zone, upto)) = zones.get(next.fetch_add(1, Ordering::Relaxed)) {
                let wrote = self.zone_guard(*zone, *upto).map_or(Ok(Wrote::All), |guard| self.write_with(&guard));
                self.finish_closed();
                let mut outcome = crate::core::lock(&outcome);
                match wrote {
                    Ok(Wrote::All) => {}
                    Ok(Wrote::Refused) => outcome.0.push(*zone),
                    Err(error) if outcome.1.is_ok() => outcome.1 = Err(error),
                    // The first says enough.
                    Err(_) => {}
                }
            }
        };
        let helpers = if self.is_threaded() { self.beside.min(zones.len()).saturating_sub(1) } else { 0 };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                // Without them (the system has no more) this one does it all.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        let (refused, result) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.map(|()| refused)
    }

    /// Waits for the right to write the zone; `None`: others have written it up to block `upto`, or it is no zone of the store any more.
    pub(crate) fn zone_guard(&self, zone: u32, upto: u32) -> Option<ZoneGuard<'_>> {
        let mut state = self.state();
        loop {
            if let Some(guard) = self.try_zone_guard(&mut state, zone) {
                return Some(guard);
            }
            if state.zones.get(zone)?.buffer.written() >= upto {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// The same without waiting; `None`: somebody else has it.
    pub(crate) fn try_zone_guard(&self, state: &mut State, zone: u32) -> Option<ZoneGuard<'_>> {
        let z = state.zones.get_mut(zone).filter(|z| !z.writing)?;
        z.writing = true;
        Some(ZoneGuard { core: self, zone })
    }

    /// Writes what the guard's zone has in memory this moment.
    pub(crate) fn write_with(&self, guard: &ZoneGuard<'_>) -> Result<Wrote> {
        let zone = guard.zone;
        let (upto, stranded) = self.state().zones.get(zone).map_or((0, false), |z| (z.tail, z.stranded));
        if stranded && self.report_wp(zone)?.is_none() {
            // It would only say so again.
            return Ok(Wrote::Refused);
        }
        let mut tried = 0;
        // Command by command where others append meanwhile: what is left of a record goes with what has gathered behind it.
        let command = self.volume.geometry().max_io as usize / BLOCK * BLOCK;
        let most = if self.write_through { command.max(BLOCK) } else { usize::MAX };
        loop {
            let Some(_turn) = self.turn(zone, upto) else { return Ok(Wrote::All) };
            let (segments, life, capacity, written) = {
                let mut state = self.state();
                let Some(z) = state.zones.get_mut(zone).filter(|z| z.buffer.written() < upto) else {
                    return Ok(Wrote::All);
                };
                (z.buffer.front(self.together), z.life, z.capacity, z.buffer.written())
            };
            if written == 0 {
                self.tenant.activate(ZoneId(zone))?;
            }
            let at = u64::from(written) * BLOCK as u64;
            let capacity = u64::from(capacity) * BLOCK as u64;
            let mut open = OpenZone { zone: ZoneId(zone), life, at, capacity };
            let Some((first, more)) = segments.split_first() else { return Ok(Wrote::All) };
            // Part of it may be there already, after an error or because it was longer than a command.
            let rest = &first.bytes()[(written - first.at) as usize * BLOCK..];
            let mut left = most;
            let mut pieces = Vec::new();
            for piece in std::iter::once(rest).chain(more.iter().map(|segment| segment.bytes())) {
                let piece = &piece[..piece.len().min(left)];
                left -= piece.len();
                pieces.push(piece);
            }
            pieces.retain(|piece| !piece.is_empty());
            let len = pieces.iter().map(|piece| piece.len()).sum();
            let mut joined = None;
            let bytes = match &pieces[..] {
                [one] => one,
                _ => {
                    let all: &mut Image = joined.insert(self.gather.pool.take(len));
                    let mut at = 0;
                    for piece in pieces {
                        all[at..at + piece.len()].copy_from_slice(piece);
                        at += piece.len();
                    }
                    &all[..]
                }
            };
            let end = written + (len / BLOCK) as u32;
            let tag = Tag::new(Cause::UserWrite);
            let result = match self.beside {
                1 => self.volume.write_sequential(&mut open, bytes, tag),
                _ => self.volume.write_beside(&mut open, bytes, tag),
            };
            drop(joined);
            let now = match &result {
                Ok(()) => end,
                Err(_) => self.report_wp(zone)?.map_or(written, |wp| wp.clamp(written, end)),
            };
            {
                let mut state = self.state();
                state.buffered = state.buffered.saturating_sub(u64::from(now - written) * BLOCK as u64);
                let mut landed = false;
                match self.write_through {
                    true => state.durable_to(zone, life, now),
                    false => drop(state.unflushed.insert(zone)),
                }
                if let Some(z) = state.zones.get_mut(zone) {
                    z.buffer.written_to(now);
                    landed = z.stranded && z.buffer.is_empty();
                    z.stranded &= !landed;
                }
                if landed {
                    state.landed = state.assign();
                }
                self.changed.notify_all();
            }
            if let Err(error) = result {
                self.volume.check_poison()?;
                tried += 1;
                tracing::warn!(%error, zone, "a write failed; the zone was asked what it took");
                if tried > TRIES || self.report_wp(zone)?.is_none() {
                    return Ok(Wrote::Refused);
                }
            }
        }
    }

    /// The zone's write pointer in blocks; `None`: it takes no writes.
    fn report_wp(&self, zone: u32) -> Result<Option<u32>> {
        let mut report = [imbrex_device::Zone::EMPTY];
        self.volume.device().report(ZoneId(zone), &mut report)?;
        let [report] = report;
        Ok(report.wp.filter(|_| report.state.writable()).map(|wp| (wp / BLOCK as u64) as u32))
    }

    /// Finishes the zones that are closed and all of whose bytes are on the drive. What fails is tried again with the next commit.
    fn finish_closed(&self) {
        let closed: Vec<u32> = {
            let mut state = self.state();
            // Where active zones are limited, garbage counts until it is reset, which waits for a flush.
            let limited = self.tenant.limits_active();
            let ended = |z: &DataZone| z.state() == ZoneState::Closed || limited && z.state() == ZoneState::Garbage;
            let due = |z: &DataZone| ended(z) && !z.finished && z.buffer.is_empty();
            let due: Vec<u32> = state.zones.active().filter(|(_, z)| due(z)).map(|(zone, _)| zone).collect();
            // Garbage is found here once: it settles now.
            state.zones.settle();
            // Nobody may give them back meanwhile, and others begin a new life of one.
            for zone in &due {
                if let Some(z) = state.zones.get_mut(*zone) {
                    z.finished = true;
                    self.tenant.pin(ZoneId(*zone));
                }
            }
            due
        };
        for zone in closed {
            let finished = self.tenant.finish(ZoneId(zone));
            if let Err(error) = &finished {
                tracing::warn!(%error, "a zone could not be finished");
            }
            if finished.is_err() {
                self.state().zones.unfinished(zone);
            }
            self.tenant.unpin(ZoneId(zone));
        }
    }
}
