//! A tenant: one engine's part of a volume.

use super::labels::label_bytes;
use super::{Volume, VolumeCore};
use crate::header::ZoneHeader;
use crate::label;
use crate::label::budget::{Budget, shares};
use crate::medium::memory::{LeftSegment, SegmentMemory};
use crate::sync::lock;
use crate::table::pool::{PoolCounts, Urgency};
use crate::volume::active::{ActiveZones, Holder, ZoneKeeper};
use imbrex_device::{Cause, Fault, Result, ZoneId, ZoneState};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Conventional space begins at a multiple of this many bytes in a zone with labels.
const LABEL_APART: u64 = 256 << 10;

/// One engine's part of a volume.
#[derive(Clone)]
pub struct Tenant {
    pub(super) volume: Volume,
    pub(super) owner: u8,
}

/// A zone that will be there for bytes that are acknowledged before they are written. Dropped, it is everybody's again.
pub struct Reservation {
    core: Arc<VolumeCore>,
    owner: u8,
    redeemed: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.redeemed {
            lock(&self.core.pool).end_reservation(self.owner);
        }
    }
}

impl Tenant {
    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Its number in the label.
    pub fn owner(&self) -> u8 {
        self.owner
    }

    /// Its name in the label.
    pub fn name(&self) -> String {
        lock(&self.core().label).tenants[usize::from(self.owner) - 1].name.clone()
    }

    /// What the label lets it take.
    pub fn budget(&self) -> Budget {
        lock(&self.core().label).tenants[usize::from(self.owner) - 1].budget
    }

    pub(super) fn core(&self) -> &VolumeCore {
        &self.volume.handle.core
    }

    /// Where unwritten bytes stand that outlive the process.
    pub(crate) fn memory(&self) -> Arc<SegmentMemory> {
        self.core().memory()
    }

    /// The root blob; empty on a fresh volume.
    pub fn root(&self) -> Vec<u8> {
        lock(&self.core().label).tenants[usize::from(self.owner) - 1].root.clone()
    }

    /// Replaces the root blob (at most 1024 bytes); durable, in both copies of the label, when it returns.
    pub fn set_root(&self, root: &[u8]) -> Result<()> {
        self.core().update_label(|label| {
            let tenant = &mut label.tenants[usize::from(self.owner) - 1];
            tenant.root = root.to_vec();
            tenant.root_generation += 1;
        })
    }

    /// What a dead process of this tenant left behind, sorted by file, life and offset. Empty after a power loss. Whoever asks
    /// sees to it that these bytes are on the drive before its next [`Tenant::recovered`], which forgets them.
    pub fn left_behind(&self) -> Vec<LeftSegment> {
        lock(&self.core().left).of(self.owner)
    }

    /// Its engine begins, and is about to change the drive. Once for a volume that is open: what the volume knows of the zones is of
    /// the moment when it was opened, and an engine that begins again would take that for what is there.
    ///
    /// # Errors
    /// `Unusable` where it has begun before.
    pub fn begin(&self) -> Result<()> {
        if lock(self.volume.engines()).begin(self.owner) {
            return Ok(());
        }
        let (core, name) = (self.core(), self.name());
        let sentence = format!(
            "its {name} is open, or has been since the volume was opened; close everything on the drive, and then open the volume anew"
        );
        Err(super::unusable(core.drive.device.as_ref(), sentence))
    }

    /// This tenant's metadata refers to the zone. One that is [kept](label::KEPT) is the tenant's from now on, and the next label says so.
    ///
    /// # Errors
    /// `Corrupt` where the zone is somebody else's, or holds no data.
    pub fn adopt(&self, zone: ZoneId) -> Result<()> {
        let adopted = lock(&self.core().pool).adopt(zone, self.owner);
        adopted.map_err(|what| {
            let what = format!("metadata that refers to zone {zone} ({what})");
            self.core().error(Fault::Corrupt { what: what.into(), check: None }).at(zone, 0)
        })?;
        if let Some(owner) = lock(&self.core().label).owners.get_mut(zone.0 as usize)
            && *owner != self.owner
        {
            *owner = self.owner;
            self.core().adopted.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Zones that it owns and has not adopted so far.
    pub fn unadopted(&self) -> Vec<ZoneId> {
        lock(&self.core().pool).unadopted(self.owner)
    }

    /// All that its metadata refers to is adopted; the rest is free.
    pub fn adoption_done(&self) {
        let core = self.core();
        lock(&core.pool).adoption_done(self.owner, &core.report);
        core.reset_soon();
    }

    /// An empty zone.
    ///
    /// # Errors
    /// `NoSpace` where there is none for this urgency.
    pub fn take(&self, urgency: Urgency) -> Result<ZoneId> {
        self.core().take(None, self.owner, urgency)
    }

    /// An empty zone: the next behind `last`, round the drive, of those that are the tenant's own. So that there is one near, `least` of them
    /// are, where there are so many.
    ///
    /// # Errors
    /// `NoSpace` where there is none for this urgency.
    pub fn take_behind(&self, last: ZoneId, least: usize, urgency: Urgency) -> Result<ZoneId> {
        self.core().take(Some((last, least)), self.owner, urgency)
    }

    /// Reserves a zone for bytes that are about to be acknowledged, to be [redeemed](Tenant::redeem) later. `leave`: how many zones beyond the reserve are
    /// kept for more important bytes than these. Waits for nothing.
    ///
    /// # Errors
    /// `NoSpace` where a user's write would find none.
    pub fn reserve(&self, leave: u32) -> Result<Reservation> {
        match lock(&self.core().pool).reserve(self.owner, leave) {
            true => Ok(Reservation { core: self.volume.core().clone(), owner: self.owner, redeemed: false }),
            false => Err(self.core().error(Fault::NoSpace)),
        }
    }

    /// An empty zone for one of these reservations, which is used up where there is a zone.
    ///
    /// # Errors
    /// Those of the drive, and `NoSpace` where there is no reservation, or too many zones have died.
    pub fn redeem(&self, reservations: &mut Vec<Reservation>) -> Result<ZoneId> {
        let Some(last) = reservations.last_mut() else { return Err(self.core().error(Fault::NoSpace)) };
        let zone = self.core().take(None, self.owner, Urgency::Reserved)?;
        // The pool has struck it off together with the zone.
        last.redeemed = true;
        reservations.pop();
        Ok(zone)
    }

    /// Nothing durable refers to the leased zone: it is free, as soon as nobody pins it.
    pub fn release(&self, zone: ZoneId) {
        self.forget(zone, 0);
        self.forgot(0);
    }

    /// Whatever metadata forgets, a leased zone is not reset before [`Tenant::unpin`]. Pins are counted. Waits for nothing.
    pub fn pin(&self, zone: ZoneId) {
        lock(&self.core().pool).pin(zone);
    }

    /// Who pinned the zone does not need it any more. Where it is forgotten, the next [`Tenant::forgot`] frees it. Waits for nothing.
    pub fn unpin(&self, zone: ZoneId) {
        lock(&self.core().pool).unpin(zone);
    }

    /// Its zones that somebody pins.
    pub fn pinned(&self) -> BTreeSet<u32> {
        lock(&self.core().pool).pinned(self.owner)
    }

    /// With record `at` of the tenant's log nobody refers to the leased zone any more: it is free once that record is durable and the zone's last
    /// pin is gone. Waits for nothing.
    pub fn forget(&self, zone: ZoneId, at: u64) {
        lock(&self.core().pool).forget(zone, at);
    }

    /// Metadata refers again to a zone that the caller has pinned and that may have been forgotten. Waits for nothing.
    pub fn recall(&self, zone: ZoneId) {
        lock(&self.core().pool).recall(zone);
    }

    /// All records up to `durable` are durable: frees the zones that they forgot and nobody pins. True: there were such zones. Reads the
    /// drive's report of each.
    pub fn forgot(&self, durable: u64) -> bool {
        let zones = self.forgotten(durable);
        self.free(&zones, durable);
        !zones.is_empty()
    }

    /// Zones that records up to `durable` have forgotten and nobody pins. Waits for nothing.
    pub fn forgotten(&self, durable: u64) -> Vec<ZoneId> {
        lock(&self.core().pool).forgotten(self.owner, durable)
    }

    /// Frees those that are [forgotten](Tenant::forgotten). Reads the drive's report of each.
    pub fn free(&self, zones: &[ZoneId], durable: u64) {
        let core = self.core();
        for &zone in zones {
            let dead = core.has_died(zone);
            lock(&core.pool).free_forgotten(zone, durable, dead);
        }
        if !zones.is_empty() {
            core.reset_soon();
        }
    }

    /// Whether the drive limits active zones: those that are kept for later count.
    pub fn limits_active(&self) -> bool {
        self.core().active.is_some()
    }

    /// How many active zones the tenant may have; `None`: the drive limits none.
    pub fn most_active(&self) -> Option<u32> {
        self.core().active_of(self.owner).map(ActiveZones::share)
    }

    /// How many open zones the tenant may have, of those that the drive can; `None`: it limits none.
    pub fn most_open(&self) -> Option<u32> {
        let core = self.core();
        let budgets: Vec<Budget> = lock(&core.label).tenants.iter().map(|tenant| tenant.budget).collect();
        core.geometry.max_open.map(|limit| shares(&budgets, limit.get())[usize::from(self.owner) - 1])
    }

    /// Before the first write of [`Volume::write_sequential`] to a zone: waits for one of the drive's active zones. `keeper`: has others of the engine
    /// give up theirs.
    ///
    /// # Errors
    /// Those of what has to be written to make room.
    pub fn activate(&self, zone: ZoneId, keeper: Option<&dyn ZoneKeeper>) -> Result<()> {
        self.core().activate(self.owner, zone, Holder::Cleaner, keeper)
    }

    /// Whether the drive had lost power under an earlier process, and only that process found out. What it left in memory counts for nothing.
    pub fn lost_power_before(&self) -> bool {
        self.core().lost_power & super::left::bit(self.owner) > 0
    }

    /// Before the log writes to a zone that is empty: the zones of its rings have active ones of their own, but for what it left and is not reset yet.
    pub(crate) fn make_room_for_log(&self) -> Result<()> {
        self.core().activate_log()
    }

    /// A zone of the log counts among those, and nobody finishes it for another one.
    pub(crate) fn is_of_log(&self, zone: ZoneId) {
        self.core().is_reset(zone);
    }

    /// Makes a zone empty that the caller has leased and keeps; durable when it returns. Nothing durable may refer to its bytes.
    ///
    /// # Errors
    /// Those of the drive; the zone may be dead then.
    pub fn reset(&self, zone: ZoneId) -> Result<()> {
        self.core().flusher.check()?;
        self.core().reset_zone(zone, Cause::Pool.into())
    }

    /// Makes a zone full that the caller has leased and writes no more, so that it takes none of the drive's open zones. Where its
    /// bytes end must be known from elsewhere than its write pointer.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn finish(&self, zone: ZoneId) -> Result<()> {
        let core = self.core();
        core.flusher.check()?;
        core.finish_active(zone)?;
        core.is_reset(zone);
        Ok(())
    }

    /// Has a zone that the caller has leased be written in place from now on, until it is reset: by [`Volume::write_in_place`]. For all others it is full.
    ///
    /// # Errors
    /// Those of the drive; `InvalidInput` where the drive does not [overwrite](Volume::overwrites).
    pub fn set_in_place(&self, zone: ZoneId) -> Result<()> {
        let core = self.core();
        core.flusher.check()?;
        core.drive.device.set_in_place(zone, Cause::Pool.into())
    }

    /// Whether one more active zone would cost somebody else's.
    ///
    /// # Errors
    /// Those of a report of zones.
    pub fn is_crowded(&self) -> Result<bool> {
        self.core().is_crowded(self.owner)
    }

    /// Nobody writes to this leased zone for now; it is kept for so many bytes of room. Where few zones may be active it may be finished, the fullest first.
    pub fn park(&self, zone: ZoneId, room: u64) {
        let mut pool = lock(&self.core().pool);
        pool.park(zone, room);
        if let Some(active) = self.core().active_of(self.owner) {
            active.let_go(zone);
        }
    }

    /// A [parked](Tenant::park) zone is about to get a writer. False: it is not parked any more.
    pub fn take_parked(&self, zone: ZoneId) -> bool {
        let mut pool = lock(&self.core().pool);
        let taken = pool.unpark(zone);
        if let Some(active) = self.core().active_of(self.owner).filter(|_| taken) {
            // Before anybody can see that it is parked no more.
            active.taken(zone);
        }
        taken
    }

    /// Nobody goes on in this zone, whatever stands there.
    pub fn unpark(&self, zone: ZoneId) {
        lock(&self.core().pool).unpark(zone);
    }

    /// Whether the zone is still [parked](Tenant::park).
    pub fn is_parked(&self, zone: ZoneId) -> bool {
        lock(&self.core().pool).is_parked(zone)
    }

    /// Nobody will write to this zone any more: on a drive that limits active zones it is finished. What stands in it, and how
    /// far, must be known from elsewhere than its write pointer.
    pub fn finish_unused(&self, zone: ZoneId) {
        self.core().finish_unused(self.owner, zone);
    }

    /// Whether the zone was reset and nobody has it: nothing stands in it.
    pub fn is_empty(&self, zone: ZoneId) -> bool {
        lock(&self.core().pool).is_empty(zone)
    }

    /// Its zones, counted.
    pub fn counts(&self) -> PoolCounts {
        lock(&self.core().pool).counts(self.owner)
    }

    /// Conventional space of this tenant, as byte ranges: its conventional zones, and for the first tenant what is left of
    /// the zones that hold labels. Zones that have died are among them: they may hold files; see
    /// [`Tenant::dead_conventional`].
    pub fn conventional_ranges(&self) -> Vec<(u64, u64)> {
        let core = self.core();
        let label = lock(&core.label);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (zone, &owner) in core.report.iter().zip(&label.owners) {
            let start = core.geometry.start(zone.id);
            let range = match owner {
                _ if zone.id.0 >= label.geometry.conventional => continue,
                label::LABEL if self.owner == 1 => {
                    // Who overwrites the first sectors of a disk by accident hits a label, of which there is a copy, and no file.
                    let apart = LABEL_APART.min(core.geometry.zone_size / 16).max(crate::medium::conventional::UNIT);
                    let skip = (2 * label_bytes(&core.geometry)).next_multiple_of(apart);
                    (start + skip, core.geometry.zone_size.saturating_sub(skip))
                }
                o if o == self.owner => (start, core.geometry.zone_size),
                _ => continue,
            };
            match ranges.last_mut() {
                Some((from, len)) if *from + *len == range.0 => *len += range.1,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Conventional zones that were read-only or offline when the volume was opened, as byte ranges: nothing new goes there.
    pub fn dead_conventional(&self) -> Vec<(u64, u64)> {
        let core = self.core();
        let conventional = lock(&core.label).geometry.conventional as usize;
        let dead = core.report.iter().take(conventional).filter(|zone| zone.state != ZoneState::Conventional);
        dead.map(|zone| (core.geometry.start(zone.id), core.geometry.zone_size)).collect()
    }

    /// The header of a zone of this life, for the engine to say what it holds.
    pub fn header(&self, zone: ZoneId, life: u64) -> ZoneHeader {
        let core = self.core();
        ZoneHeader {
            volume: core.uuid,
            owner: self.owner,
            kind: 0,
            file: 0,
            life,
            logical: 0,
            created: 0,
            zone: zone.0,
            mount: self.volume.mount() as u32,
            name: String::new(),
        }
    }

    /// A number that no zone of this volume had as its life before: from the label's generation at the opening, which every
    /// recovery that wrote anything has raised, and a counter.
    pub fn new_life(&self) -> u64 {
        let core = self.core();
        let n = core.lives.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0u8; 32];
        bytes[..16].copy_from_slice(&core.uuid);
        bytes[16..24].copy_from_slice(&core.first_generation.to_le_bytes());
        bytes[24..].copy_from_slice(&n.to_le_bytes());
        mix(&bytes)
    }
}

/// A 64-bit mix of the volume, the mount and a counter: the same in every run of a test, unlike any other in practice
/// (finaliser of SplitMix64 over the words).
fn mix(bytes: &[u8; 32]) -> u64 {
    let mut h = 0x9e37_79b9_7f4a_7c15u64;
    for word in bytes.chunks_exact(8) {
        let mut w = [0u8; 8];
        w.copy_from_slice(word);
        h = h.wrapping_add(u64::from_le_bytes(w)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^= h >> 31;
    }
    h
}
