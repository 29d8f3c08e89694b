//! Makes the ring of a log of one copy longer, and shorter again.

use super::{MetaLog, Root, empty_slot};
use crate::table::pool::Urgency;
use imbrex_device::{Error, Fault, Result};

impl MetaLog {
    /// Takes one more zone for the ring, which the label names when this returns. A write that finds no zone free does so by itself; a caller does who is
    /// admitted no more although a snapshot was just written.
    ///
    /// # Errors
    /// `NoSpace` where there is no zone, or the root has no room for one more. Then the ring is as before.
    pub fn grow(&mut self, urgency: Urgency) -> Result<()> {
        self.check_single()?;
        let zone = match self.half_taken {
            Some(zone) => zone,
            None => self.tenant.take(urgency)?,
        };
        let mut next = self.root.clone();
        next.zones.insert(next.zones.partition_point(|other| *other < zone.0), zone.0);
        if next.encode().is_none() {
            self.half_taken = None;
            self.tenant.release(zone);
            return Err(self.error(Fault::NoSpace));
        }
        // Where this fails the next mount may find either root. So nobody else gets the zone before.
        self.half_taken = Some(zone);
        self.set_root(next)?;
        self.half_taken = None;
        let slot = empty_slot(self.volume(), zone.0);
        self.rings[0].grow(slot);
        self.measure();
        Ok(())
    }

    /// Gives back zones in which nothing of use stands while more than `least` zones take writes, and two at least; and those that take none. Returns
    /// how many.
    ///
    /// # Errors
    /// Where the label cannot be written. No frame goes to the zones any more, and the next mount finds them in the ring or free.
    pub fn shrink(&mut self, least: usize) -> Result<usize> {
        self.check_single()?;
        let zones = self.rings[0].spare(least.max(2));
        let mut next = self.root.clone();
        next.zones.retain(|zone| zones.iter().all(|spare| spare.0 != *zone));
        // Zones that leave a run in two pieces may be too many for the root: then all stay.
        if zones.is_empty() || next.encode().is_none() {
            return Ok(0);
        }
        // No frame may come to a zone that one copy of the label does not name any more.
        self.rings[0].shrink(&zones);
        self.measure();
        self.set_root(next)?;
        zones.iter().for_each(|zone| self.tenant.release(*zone));
        Ok(zones.len())
    }

    /// What the engine wants to know before it reads the log; durable when it returns. A root that was [unfinished](Root::unfinished) is no more: what the log
    /// says counts.
    ///
    /// # Errors
    /// Where the label cannot be written: then the next mount may find either. Or those are too many bytes.
    pub fn set_engine(&mut self, engine: Vec<u8>) -> Result<()> {
        match self.root.engine == engine && !self.root.unfinished {
            true => Ok(()),
            false => self.set_root(Root { engine, unfinished: false, ..self.root.clone() }),
        }
    }

    pub(super) fn set_root(&mut self, root: Root) -> Result<()> {
        let bytes = root.encode().ok_or_else(|| self.error(Fault::InvalidInput("a root is too long".into())))?;
        // The label names a new log only when it can be read.
        if self.unnamed == 0 {
            self.tenant.set_root(&bytes)?;
        }
        self.root = root;
        Ok(())
    }

    /// A single ring with one zone left gets another one, if there is any: else it would end where that zone does.
    pub(super) fn keep_two(&mut self) {
        if self.rings.len() == 1
            && self.rings[0].alive() < 2
            && let Err(error) = self.grow(Urgency::Metadata)
        {
            tracing::error!(%error, "the metadata log has one zone left that takes writes, and gets no other");
        }
    }

    /// With two copies a zone more would give the zones behind it to other rings.
    fn check_single(&self) -> Result<()> {
        match self.rings.len() == 1 {
            true => Ok(()),
            false => Err(Error::invalid(&self.volume().name(), "only a metadata log of one copy grows and shrinks")),
        }
    }
}
