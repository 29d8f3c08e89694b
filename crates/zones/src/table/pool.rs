//! The pool: which zone is whose, and which is next.
//!
//! Pure bookkeeping over a snapshot of the drive's zones and the label's owner bytes; the volume carries out what it
//! decides. A sequential zone that a tenant owns is *leased* (the tenant's metadata refers to it, or is about to), *forgotten* (a
//! record that is perhaps not durable yet says that nobody refers to it), *empty*,
//! or *dirty* (written, but nobody refers to it: reset before use). A zone that is being reset in the background counts as free all
//! the while: whoever needs that very one waits for the reset. At mount the tenant adopts what its metadata refers to;
//! everything else it owns is free. Zones that are read-only or offline are never handed out.
//!
//! **Forgotten zones** are free once two things are true: the record that forgot them is durable, and nobody *pins* them. Pins are counted; who reads or
//! writes bytes that metadata may forget meanwhile has one. A forgotten zone that gets new bytes is [recalled](Pool::recall). Forgotten
//! zones count as leased, because nobody can take them.
//!
//! **Parked zones** are leased ones with room that nobody writes to, and that the engine keeps for its next file. Whoever takes one out of the list has
//! it: the engine, to go on there, or the volume, to finish it where few zones may be active. A forgotten zone is parked no more.
//!
//! **Zones that nobody owns** become a tenant's in batches, because each claim is a label to be written. A batch is the claimer's from the moment it
//! is chosen, so that no other tenant can choose it while the label is on its way; a claim whose label could not be written gives it back.
//! Until then a tenant's right to such zones is a number. What a tenant needs, its reserve and its reservations, and does not have
//! in free zones of its own is *held* for it: no other tenant takes, reserves or counts that. So is what it lacks of the least that its
//! [budget](Budget) says. The rest is common: who comes first takes it, up to the most of its budget, and each tenant counts its share.
//!
//! Invariants:
//! - What is held for all tenants together is never more than there are zones that nobody owns.
//! - What one tenant takes or reserves never lessens what is held for another.
//! - All tenants together count each zone that nobody owns once, or not at all where a budget ends.

use crate::label;
use crate::label::budget::Budget;
use imbrex_device::{Zone, ZoneId, ZoneState};
use std::collections::{BTreeMap, BTreeSet};

/// How deep into what a [budget](Budget) keeps free a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A user's write: leaves the reserve alone.
    User,
    /// Bytes that were acknowledged when this zone was [reserved](Pool::reserve): uses the reservation up, where there is a zone, and may
    /// take cleaning's zones should others have died since.
    Reserved,
    /// Bytes that a dead process had acknowledged, in the mount after it: as for a reservation.
    Recovered,
    /// Moving data so that zones become free: may take cleaning's zones.
    Cleaning,
    /// Metadata, without which nothing could even be deleted: may take all.
    Metadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Conventional,
    Label,
    /// Owned; not known yet whether the tenant refers to it.
    Unadopted,
    /// Nobody's; `true`: needs a reset before use.
    Unowned(bool),
    /// About to become its owner's, who writes that into the label this moment; `true`: needs a reset before use.
    Claimed(bool),
    Empty,
    Dirty,
    /// `true`: leased as soon as that is done.
    Resetting(bool),
    Leased,
    /// Leased, and in [`TenantZones::forgotten`].
    Forgotten,
    Dead,
}

/// Answer to a request for a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// This empty zone is leased now.
    Empty(ZoneId),
    /// This zone is leased once it has been reset: say [`Pool::reset_done`].
    Reset(ZoneId),
    /// Nobody owned these: make them the tenant's in the label, say [`Pool::claim_done`], ask again.
    Claim(Vec<ZoneId>),
    /// All that are free are being reset or claimed this moment: ask again once [`Pool::reset_done`] or [`Pool::claim_done`] was said.
    Wait,
    /// There is none for this urgency.
    NoSpace,
}

#[derive(Default, Clone)]
struct TenantZones {
    budget: Budget,
    /// Owned, and not known yet whether the tenant refers to them.
    unadopted: u32,
    empty: BTreeSet<u32>,
    dirty: BTreeSet<u32>,
    /// How many are being reset, to be empty then.
    resetting: u32,
    /// How many are on their way into the label.
    claimed: u32,
    /// Those that are being reset to be leased then count already, and forgotten ones still do.
    leased: u32,
    /// Forgotten zones, each with the record that forgot it.
    forgotten: BTreeMap<u32, u64>,
    /// Parked zones, and bytes of room in each.
    parked: BTreeMap<u32, u64>,
    reservations: u32,
    /// What a dead process had reserved for bytes that are not on the drive yet.
    left: u32,
    /// Of the zones that nobody owns, how many are held for it.
    held: usize,
}

impl TenantZones {
    /// Free zones of its own.
    fn own(&self) -> usize {
        self.empty.len() + self.dirty.len() + (self.resetting + self.claimed) as usize
    }

    /// All zones that it owns and that are of use.
    fn owned(&self) -> usize {
        self.own() + (self.leased + self.unadopted) as usize
    }

    /// How many more it may own.
    fn room(&self) -> usize {
        (self.budget.most as usize).saturating_sub(self.owned())
    }

    /// Zones that a user's write leaves alone.
    fn kept(&self) -> usize {
        (self.budget.reserve() + self.reservations + self.left) as usize
    }

    /// How many zones that nobody owns should be held for it.
    fn lacks(&self) -> usize {
        let least = (self.budget.least as usize).saturating_sub(self.owned());
        self.kept().saturating_sub(self.own()).max(least).min(self.room())
    }

    /// The first one from this zone on that is free, empty or to be reset.
    fn next(&self, from: u32) -> Option<u32> {
        [&self.empty, &self.dirty].into_iter().filter_map(|zones| zones.range(from..).next().copied()).min()
    }
}

/// Sequential zones of one tenant, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Leased.
    pub leased: u32,
    /// Of the leased ones, how many are free as soon as the record that forgot them is durable.
    pub forgotten: u32,
    /// Of the leased ones, how many are kept for the room behind what stands in them.
    pub parked: u32,
    /// Ready for use: empty, waiting for a reset, being reset, or nobody's; of those, what is held for this tenant and its share of the rest, so
    /// that no zone counts for two. It may take more than that, as long as others have not.
    pub free: u32,
    /// Free ones that it could take, as long as no other takes any.
    pub reach: u32,
    /// Of the free ones, how many are not reset yet.
    pub dirty: u32,
    /// Kept for metadata and cleaning.
    pub reserve: u32,
    /// Of the free ones, how many are reserved for bytes that are still in memory.
    pub reservations: u32,
    /// Read-only or offline and of no more use.
    pub dead: u32,
}

/// See the module.
pub struct Pool {
    zones: Vec<(u8, Use)>,
    tenants: Vec<TenantZones>,
    unowned: BTreeSet<u32>,
    /// How many hold each zone.
    pins: BTreeMap<u32, u32>,
    dead: u32,
    /// See [`Pool::gives_up`].
    kept: Option<u8>,
    claim_batch: usize,
}

impl Pool {
    /// From a report of all zones, the owner byte of each, and each tenant's budget.
    pub fn new(report: &[Zone], owners: &[u8], budgets: &[Budget]) -> Self {
        let mut pool = Pool {
            zones: Vec::with_capacity(report.len()),
            tenants: budgets.iter().map(|&budget| TenantZones { budget, ..Default::default() }).collect(),
            unowned: BTreeSet::new(),
            pins: BTreeMap::new(),
            dead: 0,
            kept: None,
            claim_batch: (report.len() / 64).clamp(4, 1024),
        };
        for (zone, &owner) in report.iter().zip(owners) {
            let dead = matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
            let usage = match (zone.state, owner) {
                (_, label::LABEL) => Use::Label,
                (ZoneState::Conventional, _) => Use::Conventional,
                (_, label::NOBODY) if dead => Use::Dead,
                (_, label::NOBODY) => Use::Unowned(zone.state != ZoneState::Empty),
                _ => Use::Unadopted,
            };
            match usage {
                Use::Unowned(_) => drop(pool.unowned.insert(zone.id.0)),
                Use::Dead => pool.dead += 1,
                Use::Unadopted => pool.tenant(owner).unadopted += 1,
                _ => {}
            }
            pool.zones.push((owner, usage));
        }
        pool.settle();
        pool
    }

    /// A dead process of the tenant had reserved so many zones at most, for bytes of it that are in memory still.
    pub fn left_reserved(&mut self, owner: u8, zones: u32) {
        self.tenant(owner).left = zones;
        self.settle();
    }

    /// Zones that nobody owns and that are held for nobody.
    fn common(&self) -> usize {
        self.unowned.len() - self.tenants.iter().map(|tenant| tenant.held).sum::<usize>()
    }

    /// Zones that nobody owns and that the tenant may make its own.
    fn claimable(&self, owner: u8) -> usize {
        let tenant = &self.tenants[usize::from(owner) - 1];
        (tenant.held + self.common()).min(tenant.room())
    }

    /// All zones that the tenant could take now.
    fn reach(&self, owner: u8) -> usize {
        self.tenants[usize::from(owner) - 1].own() + self.claimable(owner)
    }

    /// Of the zones that nobody owns, how many count for this tenant alone: what is held for it, and its share of the rest.
    fn share(&self, owner: u8) -> usize {
        let (i, n) = (usize::from(owner) - 1, self.tenants.len());
        (self.tenants[i].held + (self.common() + n - 1 - i) / n).min(self.tenants[i].room())
    }

    /// Holds for each tenant what it lacks, as far as there is something common, and no more than that.
    fn settle(&mut self) {
        for tenant in &mut self.tenants {
            tenant.held = tenant.held.min(tenant.lacks());
        }
        let mut common = self.common();
        for tenant in &mut self.tenants {
            let more = (tenant.lacks() - tenant.held).min(common);
            tenant.held += more;
            common -= more;
        }
    }

    fn tenant(&mut self, owner: u8) -> &mut TenantZones {
        &mut self.tenants[usize::from(owner) - 1]
    }

    /// The tenant's metadata refers to this zone. Fails with a phrase where it cannot be the tenant's.
    pub fn adopt(&mut self, zone: ZoneId, owner: u8) -> Result<(), &'static str> {
        match self.zones.get(zone.0 as usize) {
            None => Err("there is no such zone"),
            Some((o, Use::Unadopted)) if *o != owner && Some(*o) == self.kept => {
                let kept = *o;
                self.tenant(kept).unadopted -= 1;
                self.tenant(owner).leased += 1;
                self.zones[zone.0 as usize] = (owner, Use::Leased);
                Ok(())
            }
            Some((o, _)) if *o != owner => Err("the zone belongs to somebody else"),
            Some((_, Use::Unadopted)) => {
                self.zones[zone.0 as usize].1 = Use::Leased;
                let tenant = self.tenant(owner);
                tenant.unadopted -= 1;
                tenant.leased += 1;
                Ok(())
            }
            Some((_, Use::Leased)) => Ok(()),
            Some(_) => Err("the zone is not one that holds data"),
        }
    }

    /// Zones of this tenant go to whoever adopts them.
    pub fn gives_up(&mut self, kept: Option<u8>) {
        self.kept = kept;
    }

    /// Zones that the tenant owns and has not adopted so far.
    pub fn unadopted(&self, owner: u8) -> Vec<ZoneId> {
        let of = |(_, (o, u)): &(usize, &(u8, Use))| *o == owner && *u == Use::Unadopted;
        self.zones.iter().enumerate().filter(of).map(|(i, _)| ZoneId(i as u32)).collect()
    }

    /// The tenant has adopted all that it refers to: what else it owns is free.
    pub fn adoption_done(&mut self, owner: u8, report: &[Zone]) {
        for id in self.unadopted(owner) {
            let usage = match report[id.0 as usize].state {
                ZoneState::ReadOnly | ZoneState::Offline => Use::Dead,
                ZoneState::Empty => Use::Empty,
                _ => Use::Dirty,
            };
            self.tenant(owner).unadopted -= 1;
            self.set(id, usage);
        }
        self.settle();
    }

    fn set(&mut self, id: ZoneId, usage: Use) {
        let owner = self.zones[id.0 as usize].0;
        self.zones[id.0 as usize].1 = usage;
        match usage {
            Use::Empty => drop(self.tenant(owner).empty.insert(id.0)),
            Use::Dirty => drop(self.tenant(owner).dirty.insert(id.0)),
            Use::Dead => self.dead += 1,
            _ => {}
        }
    }

    /// A zone for the tenant: the first that is empty, else the first that is to be reset.
    pub fn take(&mut self, owner: u8, urgency: Urgency) -> Take {
        self.take_behind(None, owner, urgency)
    }

    /// A zone for the tenant. `behind`: the next behind this zone, round the drive, of those that are free and its own, whether they are empty or to
    /// be reset; and before that it makes so many its own, if there are, but no more than it does at a time.
    pub fn take_behind(&mut self, behind: Option<(ZoneId, usize)>, owner: u8, urgency: Urgency) -> Take {
        let tenant = &self.tenants[usize::from(owner) - 1];
        let keep = match urgency {
            Urgency::User => tenant.kept(),
            Urgency::Reserved | Urgency::Recovered | Urgency::Cleaning => tenant.budget.metadata as usize,
            Urgency::Metadata => 0,
        };
        if self.reach(owner) <= keep {
            return Take::NoSpace;
        }
        // One claim at a time: on a small drive each would take more than is needed.
        let may_claim = tenant.claimed == 0 && self.claimable(owner) > 0;
        // Each claim is a label to be written: on a small drive not one after the other.
        if may_claim && behind.is_some_and(|(_, least)| tenant.own() < least.min(self.claim_batch)) {
            return self.claim(owner);
        }
        let next = match behind {
            Some((last, _)) => tenant.next(last.0.saturating_add(1)).or_else(|| tenant.next(0)),
            None => tenant.empty.first().or(tenant.dirty.first()).copied(),
        };
        let taken = match next {
            Some(zone) => self.lease(zone, owner),
            None if may_claim => return self.claim(owner),
            None => return Take::Wait,
        };
        // In the same moment: else the zone and its reservation would both count.
        let tenant = self.tenant(owner);
        match urgency {
            Urgency::Reserved => tenant.reservations = tenant.reservations.saturating_sub(1),
            Urgency::Recovered => tenant.left = tenant.left.saturating_sub(1),
            Urgency::User | Urgency::Cleaning | Urgency::Metadata => {}
        }
        self.settle();
        taken
    }

    /// Leases one of the tenant's own free zones.
    fn lease(&mut self, zone: u32, owner: u8) -> Take {
        let tenant = self.tenant(owner);
        tenant.leased += 1;
        if tenant.empty.remove(&zone) {
            self.zones[zone as usize].1 = Use::Leased;
            return Take::Empty(ZoneId(zone));
        }
        tenant.dirty.remove(&zone);
        self.zones[zone as usize].1 = Use::Resetting(true);
        Take::Reset(ZoneId(zone))
    }

    /// The next that nobody owns: from now on they are the tenant's, whatever others ask for while the label is being written. No more than count
    /// for it, unless that is none.
    fn claim(&mut self, owner: u8) -> Take {
        let most = self.claim_batch.min(self.share(owner).max(1)).min(self.claimable(owner));
        let zones: Vec<ZoneId> = self.unowned.iter().take(most).map(|&zone| ZoneId(zone)).collect();
        for zone in &zones {
            self.unowned.remove(&zone.0);
            if let (_, Use::Unowned(dirty)) = self.zones[zone.0 as usize] {
                self.zones[zone.0 as usize] = (owner, Use::Claimed(dirty));
            }
        }
        let tenant = self.tenant(owner);
        tenant.claimed += zones.len() as u32;
        tenant.held -= zones.len().min(tenant.held);
        self.settle();
        Take::Claim(zones)
    }

    /// Reserves one of its free zones for the tenant, so that bytes which are acknowledged now have a place later. `leave`: how many
    /// zones beyond the reserve it must not take. False: there is none for a user.
    pub fn reserve(&mut self, owner: u8, leave: u32) -> bool {
        let tenant = &self.tenants[usize::from(owner) - 1];
        let ok = self.reach(owner) > tenant.kept().saturating_add(leave as usize);
        self.tenant(owner).reservations += u32::from(ok);
        self.settle();
        ok
    }

    /// The zone that was taken for a reservation has died before anything was written there.
    pub fn reserve_again(&mut self, owner: u8) {
        self.tenant(owner).reservations += 1;
        self.settle();
    }

    /// A reservation is not needed any more.
    pub fn end_reservation(&mut self, owner: u8) {
        let tenant = self.tenant(owner);
        tenant.reservations = tenant.reservations.saturating_sub(1);
        self.settle();
    }

    /// How [`Take::Claim`] ended. `ok`: the label says that these belong to the tenant; otherwise they are nobody's again.
    pub fn claim_done(&mut self, zones: &[ZoneId], owner: u8, ok: bool) {
        for &id in zones {
            let (_, Use::Claimed(dirty)) = self.zones[id.0 as usize] else {
                unreachable!("zone {id} was claimed by tenant {owner}, and is its own until it says how that ended")
            };
            if ok {
                self.set(id, if dirty { Use::Dirty } else { Use::Empty });
            } else {
                self.zones[id.0 as usize] = (label::NOBODY, Use::Unowned(dirty));
                self.unowned.insert(id.0);
            }
        }
        let tenant = self.tenant(owner);
        tenant.claimed -= zones.len() as u32;
        if !ok {
            // What was held for it before is held again, whoever else lacks some.
            tenant.held += zones.len().min(tenant.lacks().saturating_sub(tenant.held));
        }
        self.settle();
    }

    /// A zone to reset in the background, if any; say [`Pool::reset_done`] after.
    pub fn next_dirty(&mut self) -> Option<ZoneId> {
        let zone = self.tenants.iter().filter_map(|t| t.dirty.first().copied()).min()?;
        let owner = self.zones[zone as usize].0;
        let tenant = self.tenant(owner);
        tenant.dirty.remove(&zone);
        tenant.resetting += 1;
        self.zones[zone as usize].1 = Use::Resetting(false);
        Some(ZoneId(zone))
    }

    /// Whether there is something to wait for: a zone of the tenant is being reset in the background, or on its way into the label.
    pub fn is_changing(&self, owner: u8) -> bool {
        let tenant = &self.tenants[usize::from(owner) - 1];
        tenant.resetting + tenant.claimed > 0
    }

    /// How the reset of [`Take::Reset`] or [`Pool::next_dirty`] ended.
    pub fn reset_done(&mut self, zone: ZoneId, ok: bool) {
        let (owner, usage) = self.zones[zone.0 as usize];
        let lease = usage == Use::Resetting(true);
        debug_assert!(lease || usage == Use::Resetting(false));
        let tenant = self.tenant(owner);
        match (ok, lease) {
            (_, false) => tenant.resetting -= 1,
            (false, true) => tenant.leased -= 1,
            (true, true) => {}
        }
        self.set(
            zone,
            match (ok, lease) {
                (false, _) => Use::Dead,
                (true, false) => Use::Empty,
                (true, true) => Use::Leased,
            },
        );
        self.settle();
    }

    /// Where the zone is leased nobody gets it before this pin is [gone](Pool::unpin), whatever metadata forgets.
    pub fn pin(&mut self, zone: ZoneId) {
        *self.pins.entry(zone.0).or_default() += 1;
    }

    /// Who pinned the zone does not need it any more.
    pub fn unpin(&mut self, zone: ZoneId) {
        let held = self.pins.get_mut(&zone.0);
        debug_assert!(held.is_some(), "zone {zone} is unpinned but was not pinned");
        match held {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(self.pins.remove(&zone.0)),
        }
    }

    /// Zones of the tenant that somebody pins.
    pub fn pinned(&self, owner: u8) -> BTreeSet<u32> {
        self.pins.keys().copied().filter(|zone| self.zones[*zone as usize].0 == owner).collect()
    }

    /// With record `at` nobody refers to the leased zone any more; 0 is no record, and durable. Where that was said before, the later record
    /// counts.
    ///
    /// # Panics
    /// Where nobody has leased it.
    pub fn forget(&mut self, zone: ZoneId, at: u64) {
        let (owner, usage) = self.zones[zone.0 as usize];
        assert!(matches!(usage, Use::Leased | Use::Forgotten), "zone {zone} is forgotten but was not leased");
        self.zones[zone.0 as usize].1 = Use::Forgotten;
        let tenant = self.tenant(owner);
        tenant.parked.remove(&zone.0);
        let forgot = tenant.forgotten.entry(zone.0).or_default();
        *forgot = at.max(*forgot);
    }

    /// Nobody writes to the leased zone now, and it is kept for so many bytes of room.
    pub fn park(&mut self, zone: ZoneId, room: u64) {
        let (owner, usage) = self.zones[zone.0 as usize];
        debug_assert_eq!(usage, Use::Leased, "zone {zone}");
        self.tenant(owner).parked.insert(zone.0, room);
    }

    /// The caller has the zone from now on. False: it is not parked, and somebody else may have it.
    pub fn unpark(&mut self, zone: ZoneId) -> bool {
        let (owner, _) = self.zones[zone.0 as usize];
        self.tenants.get_mut(usize::from(owner).wrapping_sub(1)).is_some_and(|t| t.parked.remove(&zone.0).is_some())
    }

    /// Whether the zone is parked.
    pub fn is_parked(&self, zone: ZoneId) -> bool {
        let (owner, _) = self.zones[zone.0 as usize];
        self.tenants.get(usize::from(owner).wrapping_sub(1)).is_some_and(|t| t.parked.contains_key(&zone.0))
    }

    /// The tenant's parked zone with the least room. The caller has it from now on.
    pub fn unpark_fullest(&mut self, owner: u8) -> Option<ZoneId> {
        let parked = &mut self.tenant(owner).parked;
        let (&zone, _) = parked.iter().min_by_key(|(zone, room)| (**room, **zone))?;
        parked.remove(&zone);
        Some(ZoneId(zone))
    }

    /// Metadata refers to a zone again that may have been forgotten. Whoever says so has pinned it.
    pub fn recall(&mut self, zone: ZoneId) {
        let (owner, usage) = self.zones[zone.0 as usize];
        if usage == Use::Forgotten {
            debug_assert!(self.pins.contains_key(&zone.0), "zone {zone} could be reset before it is recalled");
            self.zones[zone.0 as usize].1 = Use::Leased;
            self.tenant(owner).forgotten.remove(&zone.0);
        }
    }

    /// Forgotten zones of the tenant that nobody pins and whose record is `durable`, as all are up to that one.
    pub fn forgotten(&self, owner: u8, durable: u64) -> Vec<ZoneId> {
        let forgotten = &self.tenants[usize::from(owner) - 1].forgotten;
        let free = forgotten.iter().filter(|(zone, at)| **at <= durable && !self.pins.contains_key(zone));
        free.map(|(&zone, _)| ZoneId(zone)).collect()
    }

    /// Of what was [forgotten](Pool::forgotten) up to record `durable`, this zone is free. False: somebody else was faster.
    pub fn free_forgotten(&mut self, zone: ZoneId, durable: u64, dead: bool) -> bool {
        let (owner, usage) = self.zones[zone.0 as usize];
        let at = if usage == Use::Forgotten { self.tenant(owner).forgotten.get(&zone.0) } else { None };
        if at.is_none_or(|at| *at > durable) || self.pins.contains_key(&zone.0) {
            return false;
        }
        let tenant = self.tenant(owner);
        tenant.forgotten.remove(&zone.0);
        tenant.leased -= 1;
        self.set(zone, if dead { Use::Dead } else { Use::Dirty });
        self.settle();
        true
    }

    /// Whether the zone is reset and ready.
    pub fn is_empty(&self, zone: ZoneId) -> bool {
        matches!(self.zones.get(zone.0 as usize), Some((_, Use::Empty | Use::Unowned(false) | Use::Claimed(false))))
    }

    /// What the tenant has, and could get.
    pub fn counts(&self, owner: u8) -> PoolCounts {
        let tenant = &self.tenants[usize::from(owner) - 1];
        PoolCounts {
            leased: tenant.leased,
            forgotten: self.forgotten(owner, u64::MAX).len() as u32,
            parked: tenant.parked.len() as u32,
            free: (tenant.own() + self.share(owner)) as u32,
            reach: self.reach(owner) as u32,
            dirty: tenant.dirty.len() as u32 + tenant.resetting,
            reserve: tenant.budget.reserve(),
            reservations: tenant.reservations + tenant.left,
            dead: self.dead,
        }
    }

    /// Of each zone its owner, 0 for nobody, and its state in the words of `docs/foundation.md`.
    pub fn states(&self) -> Vec<(u8, &'static str)> {
        let state = |(zone, (owner, of)): (usize, &(u8, Use))| {
            let pinned = self.pins.contains_key(&(zone as u32));
            let word = match of {
                Use::Conventional => "conventional",
                Use::Label => "label",
                Use::Unadopted => "owned",
                Use::Unowned(_) | Use::Claimed(_) | Use::Empty => "free",
                Use::Dirty => "dirty",
                Use::Resetting(_) => "resetting",
                Use::Leased if self.is_parked(ZoneId(zone as u32)) => "parked",
                Use::Leased => "leased",
                Use::Forgotten if pinned => "pinned",
                Use::Forgotten => "forgotten",
                Use::Dead => "dead",
            };
            let owner = if matches!(of, Use::Unowned(_) | Use::Label) { 0 } else { *owner };
            (owner, word)
        };
        self.zones.iter().enumerate().map(state).collect()
    }
}

#[cfg(test)]
mod tests;
