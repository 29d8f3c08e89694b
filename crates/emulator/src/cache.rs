//! The volatile write cache: what is at risk, destaging, flush.

use crate::drive::{Emulator, Inner, Side, lock};
use crate::faults::injected;
use crate::state::State;
use crate::stats::counter;
use crate::time::engine::What;
use crate::zones::OpenZones;
use imbrex_device::{Error, Fault, Result, Tag, ZoneId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A zone with acknowledged writes that a power loss may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtRisk {
    /// Which.
    pub zone: ZoneId,
    /// How many blocks are at risk. In a conventional zone a block counts once for each unflushed write to it.
    pub blocks: u64,
}

impl Emulator {
    /// The zones with something at risk, by number.
    pub fn unflushed(&self) -> Vec<AtRisk> {
        let inner = &self.inner;
        let log = lock(&inner.pre_images);
        let mut conventional = vec![0; inner.config.conventional as usize];
        for i in 0..log.len() {
            let (at, len) = log.range(i);
            conventional[inner.geometry.zone_of(at).0 as usize] += len as u64 / inner.block();
        }
        drop(log);
        let sequential = (inner.config.conventional..inner.geometry.zones).map(|zone| inner.zone_at_risk(zone));
        let blocks = conventional.into_iter().chain(sequential);
        let at_risk = blocks.enumerate().map(|(zone, blocks)| AtRisk { zone: ZoneId(zone as u32), blocks });
        at_risk.filter(|risk| risk.blocks > 0).collect()
    }
}

impl Inner {
    pub(crate) fn zone_at_risk(&self, zone: u32) -> u64 {
        at_risk(&self.state, zone)
    }

    /// Derives from the state what only a running process keeps.
    pub(crate) fn rebuild(&self) {
        let mut dirty = lock(&self.dirty);
        let mut bytes = 0;
        for zone in self.config.conventional..self.geometry.zones {
            if self.state.region.writable() {
                // A process killed in the middle of a reset leaves more flushed than written.
                self.state.set_flushed(zone, self.state.flushed(zone));
            }
            let blocks = self.zone_at_risk(zone);
            if blocks > 0 {
                bytes += blocks * self.block();
                lock(&self.slots[zone as usize].side).dirty = true;
                dirty.push_back(zone);
            }
        }
        self.at_risk.store(bytes, Ordering::Relaxed);
        *lock(&self.open) = OpenZones::of(&self.state, self.geometry.zones);
    }

    /// Everything that is written in the zone is durable. The caller holds its side.
    pub(crate) fn harden(&self, zone: ZoneId, side: &mut Side) {
        self.harden_up_to(zone, side, u64::MAX);
    }

    fn harden_up_to(&self, zone: ZoneId, side: &mut Side, limit: u64) {
        let (flushed, written) = (self.state.flushed(zone.0), self.state.zone(zone.0).written);
        let to = written.min(limit);
        if to > flushed {
            self.state.set_flushed(zone.0, to);
        }
        if side.dirty {
            let bytes = to.saturating_sub(flushed) * self.block();
            self.at_risk.fetch_sub(bytes, Ordering::Relaxed);
            if to == written {
                side.dirty = false;
                lock(&self.dirty).retain(|other| *other != zone.0);
            }
        }
    }

    /// The cache is full: the drive writes out what has waited longest.
    pub(crate) fn destage(&self) {
        while self.at_risk.load(Ordering::Relaxed) > self.config.cache_bytes {
            let Some(zone) = lock(&self.dirty).front().copied() else { return };
            self.harden(ZoneId(zone), &mut lock(&self.slots[zone as usize].side));
        }
    }

    pub(crate) fn flush(&self, tag: Tag) -> Result<()> {
        let fail = |error: io::Error| {
            self.state.count(tag.cause, counter::errors, 1);
            Error::new(&self.identity.name, Fault::Io(Arc::new(error)))
        };
        if self.faults.flush_fails() {
            return Err(fail(injected("flush")));
        }
        self.pass_time(What::Flush, 0, 0, 0.0, tag);
        self.make_durable().map_err(fail)?;
        self.state.count(tag.cause, counter::flushes, 1);
        Ok(())
    }

    fn make_durable(&self) -> io::Result<()> {
        if self.mode.read_only {
            return Ok(());
        }
        let _one_at_a_time = lock(&self.flushing);
        let mut log = lock(&self.pre_images);
        let covered = self.to_cover();
        if self.mode.host_sync {
            self.store.sync()?;
        }
        self.cover(&covered);
        log.clear(&self.state);
        drop(log);
        if self.mode.host_sync { self.state.region.sync() } else { Ok(()) }
    }

    /// What a flush that begins now covers: zone, its life, blocks written. Where the host has to be asked that takes long,
    /// and what is written meanwhile is not covered by it.
    fn to_cover(&self) -> Vec<(u32, u64, u64)> {
        let zones: Vec<u32> = lock(&self.dirty).iter().copied().collect();
        let now = |zone: u32| {
            let side = lock(&self.slots[zone as usize].side);
            (zone, side.life, self.state.zone(zone).written)
        };
        zones.into_iter().map(now).collect()
    }

    /// What a flush covered is durable; a zone that was reset meanwhile holds other bytes.
    fn cover(&self, covered: &[(u32, u64, u64)]) {
        for &(zone, life, written) in covered {
            let mut side = lock(&self.slots[zone as usize].side);
            if side.life == life {
                self.harden_up_to(ZoneId(zone), &mut side, written);
            }
        }
    }

    /// Data and state on the host's disk.
    pub(crate) fn sync_host(&self) -> io::Result<()> {
        self.store.sync()?;
        self.state.region.sync()
    }

    pub(crate) fn set_write_cache(&self, on: bool, tag: Tag) -> Result<()> {
        self.writable(ZoneId(0), 0, tag)?;
        self.state.set_write_cache(on);
        if let Some(clock) = self.clock.get() {
            clock.set_cache(on);
        }
        if !on {
            self.pass_time(What::Flush, 0, 0, 0.0, tag);
            // The switch comes first, so that nothing that is acknowledged from now on is left out.
            self.make_durable().map_err(|error| Error::io(&self.identity.name, error))?;
        }
        Ok(())
    }
}

/// Blocks of a sequential zone that a power loss may take.
pub(crate) fn at_risk(state: &State, zone: u32) -> u64 {
    state.zone(zone).written - state.flushed(zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use imbrex_device::{AlignedBuf, Cause, ZoneOp, ZonedDevice};

    const TAG: Tag = Tag::new(Cause::Other);

    fn append(drive: &Emulator, zone: u32, blocks: u64) {
        let at = drive.geometry().start(ZoneId(zone)) + drive.inner.state.zone(zone).written * 4096;
        drive.write_at(&AlignedBuf::zeroed(blocks as usize * 4096), at, TAG).unwrap();
    }

    #[test]
    fn a_flush_covers_only_what_was_there_when_it_began() {
        let drive = Emulator::memory(&Config::tiny()).unwrap();
        (4..7).for_each(|zone| append(&drive, zone, 3));
        let covered = drive.inner.to_cover();
        append(&drive, 5, 2);
        drive.zone_op(ZoneOp::Reset, ZoneId(6), TAG).unwrap();
        append(&drive, 6, 2);
        drive.inner.cover(&covered);
        let left = [(5, 2), (6, 2)].map(|(zone, blocks)| AtRisk { zone: ZoneId(zone), blocks });
        assert_eq!(drive.unflushed(), left);
        drive.flush(TAG).unwrap();
        assert!(drive.unflushed().is_empty());
        assert_eq!(drive.inner.at_risk.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_half_done_reset_makes_nothing_durable() {
        let drive = Emulator::memory(&Config::tiny()).unwrap();
        // The zone's word says empty, the other one was not stored any more.
        drive.inner.state.set_flushed(4, 9);
        let drive = drive.fork().unwrap();
        append(&drive, 4, 2);
        assert_eq!(drive.unflushed(), [AtRisk { zone: ZoneId(4), blocks: 2 }]);
    }
}
