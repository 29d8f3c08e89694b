//! What a dead process left in the survivor, by tenant.
//!
//! A volume has several tenants, and not all of them are mounted by every process, or at the same time. Invariant: bytes that a dead
//! process of a tenant left are in the survivor's region, the old or the new one, until that tenant has asked for them and says
//! that it has recovered, and does not want to keep them any longer; what another tenant says changes nothing. The new region has its copies
//! of them before it takes the place of the old one, and takes it before the label counts the mount; a volume believes a region of the
//! mount that the label counts, and of the next one, which came so far. As long the pool holds for them the zones that are reserved for them.
//! A process that finds that the drive lost power under it notes that in the region for all tenants; each hears of it once, and what the region held of it does
//! not count. A region says from which label on it is the drive's: it goes up with each label that is written. A drive with an older one was put
//! back to an earlier state, and the region is not its memory.

use super::{Tenant, unusable};
use crate::medium::memory::{Hurry, LeftSegment, Segment, SegmentKey, SegmentMemory};
use crate::sync::lock;
use imbrex_device::{Cause, Region, Result, zeroed_region};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is left, and who knows.
pub(super) struct Left {
    segments: Vec<LeftSegment>,
    /// Tenants that have asked.
    asked: BTreeSet<u8>,
    /// Of those, the ones that have recovered.
    recovered: BTreeSet<u8>,
    /// The new region is there.
    moved: bool,
    /// In the new region, the bytes of tenants that have not recovered.
    held: Vec<Segment>,
    /// Tenants that have not recovered from a loss of power, a bit each.
    lost_power: u16,
}

/// A tenant's in a word; none of what is no tenant's number.
pub(super) fn bit(owner: u8) -> u16 {
    1u16.checked_shl(owner.into()).unwrap_or(0)
}

impl Left {
    pub(super) fn new(mut segments: Vec<LeftSegment>, lost_power: u16) -> Left {
        segments.retain(|segment| lost_power & bit(segment.key.owner) == 0);
        Left {
            segments,
            asked: BTreeSet::new(),
            recovered: BTreeSet::new(),
            moved: false,
            held: Vec::new(),
            lost_power,
        }
    }

    /// A tenant asks.
    pub(super) fn of(&mut self, owner: u8) -> Vec<LeftSegment> {
        self.asked.insert(owner);
        self.segments.iter().filter(|segment| segment.key.owner == owner).cloned().collect()
    }

    /// Whether no tenant has still to hear of a loss of power, and nothing is left in an old region that no tenant has asked for.
    pub(super) fn knows_all(&self) -> bool {
        self.lost_power == 0 && (self.moved || self.segments.is_empty())
    }

    /// How many zones a tenant had reserved for it at most: each of its files one.
    pub(super) fn reserved(&self, owner: u8) -> u32 {
        let keys = self.segments.iter().map(|segment| segment.key).filter(|key| key.owner == owner);
        keys.map(|key| key.file).collect::<BTreeSet<_>>().len() as u32
    }

    /// Copies what is left into the new region; `Err`: there is no room for all of it.
    fn copy_to(&mut self, memory: &Arc<SegmentMemory>) -> std::result::Result<(), usize> {
        let mut missing = 0;
        for segment in &self.segments {
            let mut done = 0;
            // Empty ones, too: where they begin says something.
            while done < segment.bytes.len() || done == 0 {
                let rest = &segment.bytes[done..];
                let key = SegmentKey { logical: segment.key.logical.saturating_add(done as u64), ..segment.key };
                let Some(copy) = memory.claim(key, 0, rest.len(), Hurry::Soon) else {
                    missing += rest.len();
                    break;
                };
                done += copy.append(rest);
                copy.leave();
                self.held.push(copy);
                if segment.bytes.is_empty() {
                    break;
                }
            }
        }
        if missing > 0 { Err(missing) } else { Ok(()) }
    }

    /// The tenant has on the drive what it asked for, but for what it still wants.
    fn forget(&mut self, owner: u8, still: &dyn Fn(&SegmentKey) -> bool) {
        if self.asked.contains(&owner) {
            self.recovered.insert(owner);
            self.lost_power &= !bit(owner);
        }
        let recovered = &self.recovered;
        let needed = |key: &SegmentKey| !recovered.contains(&key.owner) || (key.owner == owner && still(key));
        self.segments.retain(|segment| needed(&segment.key));
        self.held.retain(|segment| {
            let keep = needed(segment.key());
            if !keep {
                segment.give_back();
            }
            keep
        });
    }
}

impl Tenant {
    /// This tenant has replayed what was [left behind](Tenant::left_behind), and all of it is on the drive: makes that durable. The
    /// first time that a tenant of the volume says so it also counts the mount, and from then on unwritten bytes are in a new
    /// region of the survivor; what the other tenants' processes had left goes there with them.
    ///
    /// # Errors
    /// `Unusable` where the new region has no room for what other tenants had left; the old one is as it was.
    pub fn recovered(&self) -> Result<()> {
        self.recovered_but(&|_| false)
    }

    /// The same, but the bytes of which `still` says so are not on the drive: they stay in memory until the next call.
    ///
    /// # Errors
    /// Those of [`Tenant::recovered`].
    pub fn recovered_but(&self, still: &dyn Fn(&SegmentKey) -> bool) -> Result<()> {
        let core = self.core();
        core.sync(Cause::Recovery.into())?;
        let mut left = lock(&core.left);
        left.forget(self.owner, still);
        lock(&core.pool).left_reserved(self.owner, left.reserved(self.owner));
        if left.moved {
            lock(&core.memory).heard_of_power_loss(bit(self.owner));
            // The first tenant's mount has written the label before this one adopted a zone that was kept for nobody.
            return if core.adopted.swap(false, Ordering::AcqRel) { core.update_label(|_| ()) } else { Ok(()) };
        }
        let mut memory = None;
        let mut fill = |region: &Arc<dyn Region>| {
            let new = SegmentMemory::new(region.clone(), core.options.unit_bytes);
            new.goes_with(core.in_force.load(Ordering::Acquire));
            new.note_power_loss(left.lost_power);
            let copied = left.copy_to(&new);
            memory = Some(new);
            if !left.held.is_empty() && !core.drive.keeps_unwritten() {
                let sentence = "a process died and left unwritten bytes in shared memory that find no place on the drive now, or are another \
                                engine's; this mount could not keep them: open the drive with that engine first, or without survivor=off";
                return Err(unusable(core.drive.device.as_ref(), sentence));
            }
            copied.map_err(|missing| {
                let sentence = format!(
                    "another engine's process died and left unwritten bytes in shared memory, {missing} more than this \
                     mount's survivor has room for; open the drive with that engine first, or with a larger survivor-size"
                );
                unusable(core.drive.device.as_ref(), sentence)
            })
        };
        let made = match &core.drive.survivor {
            Some(survivor) => survivor.create_filled(&core.key(), core.options.survivor_bytes, &mut fill).map(drop),
            None => fill(&zeroed_region(core.options.survivor_bytes)),
        };
        let mount = core.key().mount;
        if let Err(error) = made.and_then(|()| core.update_label(|label| label.mount = mount)) {
            // The old region is as it was, or the new one has all that is needed of it, and is found.
            left.held.clear();
            return Err(error);
        }
        if let Some(memory) = memory {
            memory.goes_with(core.in_force.load(Ordering::Acquire));
            *lock(&core.memory) = memory;
        }
        core.adopted.store(false, Ordering::Release);
        left.moved = true;
        Ok(())
    }
}
