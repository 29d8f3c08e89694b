//! What the drive has taken and must have after a flush: a drive that loses power while it is mounted drops what was not flushed, goes on,
//! and says nothing. Its write pointers tell.
//!
//! Of each sequential zone that was written since it was last looked at, the end of what was acknowledged is kept here. A look reports
//! those zones after a flush. One whose write pointer is behind that end has lost bytes: the flush has failed then, and with it the volume.
//! A report is a command, so a volume with threads looks once a second at most ([`EVERY`]). A flush within that second is acknowledged without a
//! look; the writer's thread, or the next flush, makes up for it. An end of the volume looks first. A volume without threads looks after each flush.
//! A write that fails looks at its zone at once.
//!
//! Of conventional zones the drive tells nothing. What was lost there alone is noticed only where the drive
//! [can tell](imbrex_device::ZonedDevice::power_epoch) that its power went; the same holds for a zone that was finished before its bytes were flushed.
//!
//! Invariant: a zone that is about to be reset is forgotten first; a later life of it is another entry.

use crate::sync::{Mutex, lock};
use crate::volume::VolumeCore;
use crate::volume::active::is_active;
use imbrex_device::{Cause, Fault, Result, Zone, ZoneId, ZoneOp};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The end of what was acknowledged of one life of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    life: u64,
    bytes: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Taken {
    ends: Mutex<Ends>,
}

#[derive(Default)]
struct Ends {
    zones: BTreeMap<u32, End>,
    /// What the last flush was to make durable, where nobody has looked since.
    flushed: BTreeMap<u32, End>,
    lives: u64,
    /// Time of the volume when somebody looked last.
    looked: Option<Duration>,
}

/// A volume with threads looks so often at most.
const EVERY: Duration = Duration::from_secs(1);

/// Zones of one report: neighbours are asked for together.
const TOGETHER: usize = 32;

impl Taken {
    /// The drive has acknowledged what the zone has up to here.
    pub(crate) fn up_to(&self, zone: ZoneId, bytes: u64) {
        let mut ends = lock(&self.ends);
        let life = ends.lives;
        ends.lives += 1;
        let end = ends.zones.entry(zone.0).or_insert(End { life, bytes });
        end.bytes = end.bytes.max(bytes);
    }

    /// The zone is about to be reset.
    pub(crate) fn forget(&self, zone: ZoneId) {
        lock(&self.ends).zones.remove(&zone.0);
    }

    /// The end of what the zone has acknowledged, where nobody has looked since, and whether a flush has made that durable.
    fn unseen(&self, zone: ZoneId) -> Option<(End, bool)> {
        let ends = lock(&self.ends);
        let end = *ends.zones.get(&zone.0)?;
        Some((end, ends.flushed.get(&zone.0) == Some(&end)))
    }

    /// Whether the zone has still to have this.
    fn is_due(&self, zone: u32, end: &End) -> bool {
        let of = |now: &End| now.life == end.life && now.bytes >= end.bytes;
        lock(&self.ends).zones.get(&zone).is_some_and(of)
    }
}

impl VolumeCore {
    /// Makes durable what was acknowledged, and sees that it is there, unless it looked a moment ago.
    pub(crate) fn flush(&self, tag: imbrex_device::Tag) -> Result<()> {
        let device = self.drive.device.as_ref();
        // What is acknowledged from here on may stay behind in this flush.
        let due = lock(&self.taken.ends).zones.clone();
        device.flush(tag)?;
        self.has_power()?;
        let first = {
            let mut ends = lock(&self.taken.ends);
            std::mem::replace(&mut ends.flushed, due).is_empty()
        };
        match self.until_look() {
            Some(Duration::ZERO) => return self.look(),
            Some(_) if first => self.watch_clock(),
            _ => {}
        }
        Ok(())
    }

    /// Fails where the drive tells that its power went.
    pub(crate) fn has_power(&self) -> Result<()> {
        match self.drive.device.power_epoch() == self.epoch {
            true => Ok(()),
            false => Err(self.lost_power("it lost power while it was mounted")),
        }
    }

    /// How long until somebody should look at what was flushed; `None`: somebody has.
    pub(crate) fn until_look(&self) -> Option<Duration> {
        let ends = lock(&self.taken.ends);
        let every = if self.is_threaded() { EVERY } else { Duration::ZERO };
        let due = ends.looked.map_or(Duration::ZERO, |looked| looked + every);
        (!ends.flushed.is_empty()).then(|| due.saturating_sub(self.now()))
    }

    /// Sees that the drive has what was flushed.
    ///
    /// # Errors
    /// Where it does not, which is the end of the volume: the caller says so to the [flusher](crate::medium::flush).
    pub(crate) fn look(&self) -> Result<()> {
        let due = {
            let mut ends = lock(&self.taken.ends);
            ends.looked = Some(self.now());
            std::mem::take(&mut ends.flushed)
        };
        let (mut from, mut reported) = (0, 0);
        let mut report = [Zone::EMPTY; TOGETHER];
        for (&zone, end) in &due {
            if reported == 0 || zone >= from + reported as u32 {
                (from, reported) = (zone, self.drive.device.report(ZoneId(zone), &mut report)?);
            }
            let Some(now) = report[..reported].get((zone - from) as usize) else { continue };
            if now.wp.is_some_and(|wp| wp < end.bytes) && self.taken.is_due(zone, end) {
                return Err(self.lost(now, end.bytes));
            }
        }
        let mut ends = lock(&self.taken.ends);
        ends.zones.retain(|zone, end| due.get(zone) != Some(end));
        Ok(())
    }

    /// Finishes a zone that is active. What it has is durable before that, and seen to be there.
    pub(crate) fn finish_active(&self, zone: ZoneId) -> Result<()> {
        let mut now = self.report_one(zone)?;
        if let Some((end, flushed)) = self.taken.unseen(zone) {
            if is_active(&now) && !flushed {
                self.sync(Cause::Pool.into())?;
                now = self.report_one(zone)?;
            }
            // Where all of it went, the zone is not even active.
            if self.taken.is_due(zone.0, &end) {
                self.look_behind(&now, end.bytes)?;
            }
        }
        if !is_active(&now) {
            return Ok(());
        }
        self.drive.device.zone_op(ZoneOp::Finish, zone, Cause::Pool.into())
    }

    /// After a failed write to a zone that has taken bytes up to `end`: if it does not have them any more, nothing is written from now on.
    pub(crate) fn look_behind(&self, now: &Zone, end: u64) -> Result<()> {
        match now.wp {
            Some(wp) if wp < end => Err(self.flusher.poison(self.lost(now, end))),
            _ => Ok(()),
        }
    }

    fn lost(&self, now: &Zone, end: u64) -> imbrex_device::Error {
        let has = now.wp.unwrap_or(0);
        let what = format!(
            "the drive acknowledged the first {end} bytes of this zone and has {has} of them: it must have lost power while it was mounted"
        );
        self.lost_power(&what).at(now.id, self.geometry.start(now.id) + has)
    }

    fn lost_power(&self, what: &str) -> imbrex_device::Error {
        // Every tenant of the drive is to hear of it.
        lock(&self.memory).note_power_loss(u16::MAX);
        let sentence = format!(
            "{what}; what was not synced before is lost, and nothing more is written: close everything on the drive and open it again, which \
             recovers what is there"
        );
        self.error(Fault::Io(Arc::new(io::Error::other(sentence))))
    }
}
