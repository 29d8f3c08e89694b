//! The pool: which zone is whose, and which is next.
//!
//! Pure bookkeeping over a snapshot of the drive's zones and the label's owner bytes; the volume carries out what it
//! decides. A sequential zone that a tenant owns is *leased* (the tenant's metadata refers to it, or is about to), *empty*,
//! or *dirty* (written, but nobody refers to it: reset before use). A zone that is being reset in the background counts as free all
//! the while: whoever needs that very one waits for the reset. At mount the tenant adopts what its metadata refers to;
//! everything else it owns is free. Zones that are read-only or offline are never handed out.

use crate::label;
use imbrex_device::{Zone, ZoneId, ZoneState};
use std::collections::BTreeSet;

/// How deep into the reserve a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A user's write: leaves the reserve alone.
    User,
    /// Bytes that were acknowledged when this zone was [promised](Pool::promise): uses the promise up, where there is a zone, and may
    /// take half of the reserve should zones have died since.
    Promised,
    /// Bytes that a dead process had acknowledged, in the mount after it: may take half of the reserve.
    Recovered,
    /// Moving data so that zones become free: may take half of the reserve.
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
    Empty,
    Dirty,
    /// `true`: leased as soon as that is done.
    Resetting(bool),
    Leased,
    Dead,
}

/// Answer to a request for a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// This empty zone is leased now.
    Empty(ZoneId),
    /// This zone is leased once it has been reset: say [`Pool::reset_done`].
    Reset(ZoneId),
    /// Nobody owns these: make them the tenant's in the label, say [`Pool::claimed`], ask again.
    Claim(Vec<ZoneId>),
    /// All that are free are being reset this moment: ask again once [`Pool::reset_done`] was said of one.
    Wait,
    /// There is none for this urgency.
    NoSpace,
}

#[derive(Default, Clone)]
struct TenantZones {
    empty: BTreeSet<u32>,
    dirty: BTreeSet<u32>,
    /// How many are being reset, to be empty then.
    resetting: u32,
    leased: u32,
    reserve: u32,
    promised: u32,
}

impl TenantZones {
    /// Its free zones; `unowned`: how many it could have beside its own.
    fn free(&self, unowned: usize) -> usize {
        self.empty.len() + self.dirty.len() + self.resetting as usize + unowned
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
    /// Ready for use: empty, waiting for a reset, being reset, or nobody's.
    pub free: u32,
    /// Of the free ones, how many are not reset yet.
    pub dirty: u32,
    /// Kept for metadata and cleaning.
    pub reserve: u32,
    /// Of the free ones, how many are promised to bytes that are still in memory.
    pub promised: u32,
    /// Read-only or offline and of no more use.
    pub dead: u32,
}

/// See the module.
pub struct Pool {
    zones: Vec<(u8, Use)>,
    tenants: Vec<TenantZones>,
    unowned: BTreeSet<u32>,
    dead: u32,
    claim_batch: usize,
}

impl Pool {
    /// From a report of all zones, the owner byte of each, and each tenant's reserve.
    pub fn new(report: &[Zone], owners: &[u8], reserves: &[u32]) -> Self {
        let mut pool = Pool {
            zones: Vec::with_capacity(report.len()),
            tenants: reserves.iter().map(|&reserve| TenantZones { reserve, ..Default::default() }).collect(),
            unowned: BTreeSet::new(),
            dead: 0,
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
                _ => {}
            }
            pool.zones.push((owner, usage));
        }
        pool
    }

    fn tenant(&mut self, owner: u8) -> &mut TenantZones {
        &mut self.tenants[usize::from(owner) - 1]
    }

    /// The tenant's metadata refers to this zone. Fails with a phrase where it cannot be the tenant's.
    pub fn adopt(&mut self, zone: ZoneId, owner: u8) -> Result<(), &'static str> {
        match self.zones.get(zone.0 as usize) {
            None => Err("there is no such zone"),
            Some((o, _)) if *o != owner => Err("the zone belongs to somebody else"),
            Some((_, Use::Unadopted)) => {
                self.zones[zone.0 as usize].1 = Use::Leased;
                self.tenant(owner).leased += 1;
                Ok(())
            }
            Some((_, Use::Leased)) => Ok(()),
            Some(_) => Err("the zone is not one that holds data"),
        }
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
            self.set(id, usage);
        }
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
        let unowned = self.unowned.len();
        let tenant = &self.tenants[usize::from(owner) - 1];
        let keep = match urgency {
            Urgency::User => (tenant.reserve + tenant.promised) as usize,
            Urgency::Promised | Urgency::Recovered | Urgency::Cleaning => tenant.reserve as usize / 2,
            Urgency::Metadata => 0,
        };
        if tenant.free(unowned) <= keep {
            return Take::NoSpace;
        }
        // In the same moment: else the zone and the promise of it would both count.
        let used = u32::from(urgency == Urgency::Promised);
        // Each claim is a label to be written: on a small drive not one after the other.
        if unowned > 0 && behind.is_some_and(|(_, least)| tenant.free(0) < least.min(self.claim_batch)) {
            return self.claim();
        }
        let next = match behind {
            Some((last, _)) => tenant.next(last.0.saturating_add(1)).or_else(|| tenant.next(0)),
            None => tenant.empty.first().or(tenant.dirty.first()).copied(),
        };
        if let Some(zone) = next.filter(|zone| tenant.empty.contains(zone)) {
            let tenant = self.tenant(owner);
            tenant.empty.remove(&zone);
            tenant.leased += 1;
            tenant.promised -= used.min(tenant.promised);
            self.zones[zone as usize].1 = Use::Leased;
            return Take::Empty(ZoneId(zone));
        }
        if let Some(zone) = next {
            let tenant = self.tenant(owner);
            tenant.dirty.remove(&zone);
            tenant.promised -= used.min(tenant.promised);
            self.zones[zone as usize].1 = Use::Resetting(true);
            return Take::Reset(ZoneId(zone));
        }
        if unowned == 0 {
            return Take::Wait;
        }
        self.claim()
    }

    /// The next that nobody owns.
    fn claim(&self) -> Take {
        Take::Claim(self.unowned.iter().take(self.claim_batch).map(|&z| ZoneId(z)).collect())
    }

    /// Promises the tenant one of its free zones, so that bytes which are acknowledged now have a place later. `leave`: how many
    /// zones beyond the reserve it must not take. False: there is none for a user.
    pub fn promise(&mut self, owner: u8, leave: u32) -> bool {
        let unowned = self.unowned.len();
        let tenant = self.tenant(owner);
        let free = tenant.free(unowned);
        let ok = free as u64 > u64::from(tenant.reserve) + u64::from(tenant.promised) + u64::from(leave);
        tenant.promised += u32::from(ok);
        ok
    }

    /// The zone that was taken for a promise has died before anything was written there.
    pub fn promise_again(&mut self, owner: u8) {
        self.tenant(owner).promised += 1;
    }

    /// A promise is not needed any more.
    pub fn promise_over(&mut self, owner: u8) {
        let tenant = self.tenant(owner);
        tenant.promised = tenant.promised.saturating_sub(1);
    }

    /// The label now says that these belong to the tenant.
    pub fn claimed(&mut self, zones: &[ZoneId], owner: u8) {
        for &id in zones {
            if let (_, Use::Unowned(dirty)) = self.zones[id.0 as usize] {
                self.unowned.remove(&id.0);
                self.zones[id.0 as usize].0 = owner;
                self.set(id, if dirty { Use::Dirty } else { Use::Empty });
            }
        }
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

    /// Whether one of the tenant's zones is being reset in the background.
    pub fn is_resetting(&self, owner: u8) -> bool {
        self.tenants[usize::from(owner) - 1].resetting > 0
    }

    /// How the reset of [`Take::Reset`] or [`Pool::next_dirty`] ended.
    pub fn reset_done(&mut self, zone: ZoneId, ok: bool) {
        let (owner, usage) = self.zones[zone.0 as usize];
        let lease = usage == Use::Resetting(true);
        debug_assert!(lease || usage == Use::Resetting(false));
        if !lease {
            self.tenant(owner).resetting -= 1;
        }
        match (ok, lease) {
            (false, _) => self.set(zone, Use::Dead),
            (true, false) => self.set(zone, Use::Empty),
            (true, true) => {
                self.tenant(owner).leased += 1;
                self.zones[zone.0 as usize].1 = Use::Leased;
            }
        }
    }

    /// The metadata that referred to a leased zone is durably gone, and so is its last reader.
    pub fn release(&mut self, zone: ZoneId, dead: bool) {
        let (owner, usage) = self.zones[zone.0 as usize];
        assert_eq!(usage, Use::Leased, "zone {zone} is released but was not leased");
        self.tenant(owner).leased -= 1;
        self.set(zone, if dead { Use::Dead } else { Use::Dirty });
    }

    /// Whether the zone is reset and ready.
    pub fn is_empty(&self, zone: ZoneId) -> bool {
        matches!(self.zones.get(zone.0 as usize), Some((_, Use::Empty | Use::Unowned(false))))
    }

    /// What the tenant has, and could get.
    pub fn counts(&self, owner: u8) -> PoolCounts {
        let tenant = &self.tenants[usize::from(owner) - 1];
        PoolCounts {
            leased: tenant.leased,
            free: tenant.free(self.unowned.len()) as u32,
            dirty: tenant.dirty.len() as u32 + tenant.resetting,
            reserve: tenant.reserve,
            promised: tenant.promised,
            dead: self.dead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(id: u32, state: ZoneState) -> Zone {
        Zone { id: ZoneId(id), state, capacity: 100, wp: Some(0) }
    }

    fn pool() -> (Pool, Vec<Zone>) {
        use ZoneState::*;
        let states = [Conventional, Conventional, Empty, Full, Closed, ReadOnly, Empty, Full];
        let report: Vec<_> = states.iter().enumerate().map(|(i, &s)| zone(i as u32, s)).collect();
        let owners = [label::LABEL, 1, 1, 1, 1, 1, 0, 0];
        (Pool::new(&report, &owners, &[1]), report)
    }

    #[test]
    fn what_is_owned_and_not_adopted_is_free() {
        let (mut pool, report) = pool();
        assert_eq!(pool.adopt(ZoneId(3), 1), Ok(()));
        assert!(pool.adopt(ZoneId(0), 1).is_err());
        assert!(pool.adopt(ZoneId(1), 1).is_err(), "conventional");
        assert!(pool.adopt(ZoneId(6), 1).is_err(), "nobody's");
        assert!(pool.adopt(ZoneId(99), 1).is_err());
        pool.adoption_done(1, &report);
        let counts = pool.counts(1);
        assert_eq!(counts, PoolCounts { leased: 1, free: 4, dirty: 1, reserve: 1, promised: 0, dead: 1 });
        assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(2)));
        assert_eq!(pool.take(1, Urgency::User), Take::Reset(ZoneId(4)));
        pool.reset_done(ZoneId(4), true);
        let Take::Claim(zones) = pool.take(1, Urgency::User) else { panic!() };
        assert_eq!(zones, [ZoneId(6), ZoneId(7)]);
        pool.claimed(&zones, 1);
        assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(6)));
        assert_eq!(pool.take(1, Urgency::User), Take::NoSpace, "the reserve");
        assert_eq!(pool.take(1, Urgency::Metadata), Take::Reset(ZoneId(7)));
        pool.reset_done(ZoneId(7), false);
        assert_eq!(pool.take(1, Urgency::Metadata), Take::NoSpace);
        pool.release(ZoneId(3), false);
        assert_eq!(pool.next_dirty(), Some(ZoneId(3)));
        pool.reset_done(ZoneId(3), true);
        assert_eq!(pool.next_dirty(), None);
        assert_eq!(pool.take(1, Urgency::Metadata), Take::Empty(ZoneId(3)));
    }

    #[test]
    fn zones_are_taken_round_the_drive() {
        let (mut pool, report) = pool();
        pool.adopt(ZoneId(3), 1).unwrap();
        pool.adoption_done(1, &report);
        let behind = |pool: &mut Pool, zone, least, urgency| pool.take_behind(Some((ZoneId(zone), least)), 1, urgency);
        let Take::Claim(zones) = behind(&mut pool, 2, 3, Urgency::User) else { panic!() };
        assert_eq!(behind(&mut pool, 2, 2, Urgency::User), Take::Reset(ZoneId(4)), "the next one, to be reset or not");
        pool.reset_done(ZoneId(4), true);
        pool.claimed(&zones, 1);
        assert_eq!(behind(&mut pool, 4, 9, Urgency::User), Take::Empty(ZoneId(6)), "there are no more to choose from");
        assert_eq!(behind(&mut pool, 7, 9, Urgency::User), Take::Empty(ZoneId(2)), "from the first on again");
        assert_eq!(behind(&mut pool, 2, 9, Urgency::User), Take::NoSpace, "the reserve");
        assert_eq!(behind(&mut pool, u32::MAX, 9, Urgency::Metadata), Take::Reset(ZoneId(7)));
        pool.reset_done(ZoneId(7), true);
        assert_eq!((pool.counts(1).leased, pool.counts(1).free), (5, 0));
    }

    #[test]
    fn a_promised_zone_is_for_whom_it_was_promised() {
        let (mut pool, report) = pool();
        pool.adoption_done(1, &report);
        let free = pool.counts(1).free;
        for _ in 1..free {
            assert!(!pool.promise(1, free), "more is to be left than there is");
            assert!(pool.promise(1, 0));
        }
        assert!(!pool.promise(1, 0), "the reserve is not promised");
        assert_eq!(pool.take(1, Urgency::User), Take::NoSpace, "all are promised");
        pool.promise_over(1);
        assert!(matches!(pool.take(1, Urgency::User), Take::Empty(_)));
        let counts = pool.counts(1);
        assert!(matches!(pool.take(1, Urgency::Promised), Take::Empty(_) | Take::Reset(_)));
        let after = pool.counts(1);
        assert_eq!((after.free, after.promised), (counts.free - 1, counts.promised - 1), "both in one moment");
        assert!(matches!(pool.take(1, Urgency::Recovered), Take::Empty(_) | Take::Reset(_) | Take::Claim(_)));
        assert_eq!(pool.counts(1).promised, after.promised, "that was nobody's promise");
    }

    #[test]
    fn a_zone_that_is_being_reset_is_free_and_waited_for() {
        let (mut pool, report) = pool();
        pool.adoption_done(1, &report);
        let free = pool.counts(1).free;
        let resetting: Vec<_> = std::iter::from_fn(|| pool.next_dirty()).collect();
        assert_eq!(resetting, [ZoneId(3), ZoneId(4)]);
        assert_eq!((pool.counts(1).free, pool.counts(1).dirty), (free, 2));
        assert!(pool.promise(1, free - 2), "all but the reserve are to be had");
        pool.promise_over(1);
        assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(2)));
        let Take::Claim(zones) = pool.take(1, Urgency::User) else { panic!() };
        pool.claimed(&zones, 1);
        assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(6)));
        assert_eq!(pool.take(1, Urgency::User), Take::Reset(ZoneId(7)));
        assert_eq!(pool.take(1, Urgency::User), Take::Wait, "beside the reserve one is left");
        pool.reset_done(ZoneId(3), false);
        assert_eq!(pool.take(1, Urgency::User), Take::NoSpace, "it has died, and the last one is the reserve");
        assert_eq!(pool.take(1, Urgency::Metadata), Take::Wait);
        pool.reset_done(ZoneId(4), true);
        assert_eq!(pool.take(1, Urgency::Metadata), Take::Empty(ZoneId(4)));
        pool.reset_done(ZoneId(7), true);
        assert_eq!(pool.counts(1), PoolCounts { leased: 4, free: 0, dirty: 0, reserve: 1, promised: 0, dead: 2 });
    }
}
