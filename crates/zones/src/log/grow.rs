//! Makes the ring of a log of one copy longer, and shorter again.

use super::{MetaLog, Root, empty_slot, ring};
use crate::table::pool::Urgency;
use imbrex_device::{Error, Fault, Result};

impl MetaLog {
    /// Takes one more zone for the ring; `root` names it, in the label too, when this returns. For a caller whose snapshot found no room.
    ///
    /// # Errors
    /// `NoSpace` where there is no zone, or the root has no room for one more. Then the ring is as before.
    pub fn grow(&mut self, root: &mut Root) -> Result<()> {
        self.check_single(root)?;
        let zone = self.tenant.take(Urgency::Metadata)?;
        let mut next = root.clone();
        next.zones.insert(next.zones.partition_point(|other| *other < zone.0), zone.0);
        let Some(bytes) = next.encode() else {
            self.tenant.release(zone);
            return Err(self.error(Fault::NoSpace));
        };
        // Where this fails the next mount may find either root. So nobody gets the zone before: it stays empty for the log, or nobody's.
        self.tenant.set_root(&bytes)?;
        *root = next;
        let slot = empty_slot(self.volume(), zone.0);
        self.rings[0].grow(slot);
        self.frame = ring::frame_of(self.zone_bytes());
        Ok(())
    }

    /// Gives back zones in which nothing of use stands while more than `least` zones take writes, and two at least. Returns how many.
    ///
    /// # Errors
    /// Where the label cannot be written. No frame goes to the zones any more, and the next mount finds them in the ring or free.
    pub fn shrink(&mut self, root: &mut Root, least: usize) -> Result<usize> {
        self.check_single(root)?;
        let zones = self.rings[0].spare(least.max(2));
        let mut next = root.clone();
        next.zones.retain(|zone| zones.iter().all(|spare| spare.0 != *zone));
        // Zones that leave a run in two pieces may be too many for the root: then all stay.
        let Some(bytes) = next.encode().filter(|_| !zones.is_empty()) else { return Ok(0) };
        // No frame may come to a zone that one copy of the label does not name any more.
        self.rings[0].shrink(&zones);
        self.tenant.set_root(&bytes)?;
        *root = next;
        zones.iter().for_each(|zone| self.tenant.release(*zone));
        Ok(zones.len())
    }

    /// With two copies a zone more would give the zones behind it to other rings.
    fn check_single(&self, root: &Root) -> Result<()> {
        match root.copies == 1 && self.rings.len() == 1 {
            true => Ok(()),
            false => Err(Error::invalid(&self.volume().name(), "only a metadata log of one copy grows and shrinks")),
        }
    }
}
