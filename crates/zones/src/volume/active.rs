//! Active zones of a drive that limits them: a zone that was written to takes one of the drive's resources until it is full,
//! finished or reset (ZNS). No engine sees the limit as an error; what it costs is zones that are finished before they are full.
//!
//! The limit is divided beforehand. The label's rings have their share for themselves, because nobody could wait for them. The rest is divided among
//! the tenants ([`shares`](crate::label::budget::shares)): none waits for another's zones, and none takes a zone from another. Of a tenant's share two are for
//! its log, one is the cleaner's, and the rest is for writers. Whoever then needs one more zone gets it in one of these ways, the first that works:
//!
//! - Zones that are free anyway are reset.
//! - A zone that nobody writes to, and that the engine has [parked](Tenant::park) for its next file, is finished. The fullest is first.
//! - The writer that has not written for the longest time gives up its zone.
//! - Who needs the zone waits for a writer that is writing this moment. Whatever may let it in wakes it ([`ActiveZones::notify`]).
//!
//! What costs room in a zone that somebody goes on in waits until others have stopped writing for a moment ([`PATIENCE`]). Two writers that
//! cannot share a zone would else take it from each other with every write, and leave finished zones behind that are nearly empty.
//!
//! What is active is never trusted for long: before somebody is to lose a zone, the drive is asked.

use crate::label::NOBODY;
use crate::sync::{Condvar, Mutex, lock, wait_at_most};
use crate::volume::{Exec, VolumeCore};
use imbrex_device::{Result, Tag, Zone, ZoneId, ZoneOp, ZoneState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Nobody wrote for so long: then who wants a zone need not wait for others to fill theirs.
const PATIENCE: Duration = Duration::from_millis(10);
/// After so many writes of others one has waited long enough.
const PATIENT_EVENTS: u32 = 64;
/// After so long without any event it is time for a look all the same: where a writer could not write, nobody says when it could.
const AT_MOST: Duration = Duration::from_secs(1);

/// Zones of an engine's log that are written, one of each copy.
const LOG: u32 = 2;
/// Zones of a cleaner.
const CLEANER: u32 = 1;

/// Who writes to a zone, and so which share of the limit it is from.
#[derive(Clone)]
pub(crate) enum Holder {
    /// A writer of this number, as long as it is there.
    Writer(u64, Weak<AtomicU64>),
    /// The cleaner: not to be taken away.
    Cleaner,
    /// Nobody: it is parked for the engine's next file, or all that stood in it was deleted.
    Nobody,
    /// The engine has just taken it for a writer.
    Taken,
    /// Nobody: it is from before the volume was opened and the engine has not said that it keeps it, or its writer has ended.
    Before,
    /// Nobody: somebody finishes it, and nobody else must. It counts until that is done.
    Finishing,
}

impl Holder {
    /// Nobody will write there or ask for it.
    fn is_gone(&self) -> bool {
        match self {
            Holder::Writer(_, writer) => writer.strong_count() == 0,
            Holder::Before => true,
            Holder::Cleaner | Holder::Nobody | Holder::Taken | Holder::Finishing => false,
        }
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Holder::Writer(_, writer) if writer.strong_count() == 0 => "writer that ended",
            Holder::Writer(..) => "writer",
            Holder::Cleaner => "cleaner",
            Holder::Nobody => "nobody",
            Holder::Taken => "taken",
            Holder::Before => "left",
            Holder::Finishing => "being finished",
        })
    }
}

/// What an engine can give up where it waits for an active zone. It says so with the call that waits: no lock of this crate is held then, but the
/// guard of the writer that needs the zone.
pub trait ZoneKeeper {
    /// Makes durable what the engine's metadata says of where files end: a zone that is finished no longer tells.
    ///
    /// # Errors
    /// Those of the write or flush.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Has the writer that has not written for the longest time, of those that can, give up its zone ([`Writers::leave_one`](crate::write::Writers::leave_one)). False: none can.
    ///
    /// # Errors
    /// Those of a volume that takes no more writes.
    fn leave_one(&self) -> Result<bool>;
}

/// Those of all tenants of a volume.
pub(crate) struct Active {
    tenants: Vec<ActiveZones>,
    /// Held while a zone is reset or finished, so that nobody does both to one, or to one that is somebody else's by now.
    ending: Mutex<()>,
}

impl Active {
    /// Of a drive with such a report, on which the tenants have these shares of the limit; `owners`: of each zone.
    pub(crate) fn new(shares: &[u32], report: &[Zone], owners: &[u8]) -> Active {
        let tenants = (1u8..).zip(shares).map(|(tenant, share)| {
            // One that nobody owns is the first tenant's to finish.
            let is_its = |owner: u8| owner == tenant || owner == NOBODY && tenant == 1;
            let active = report.iter().zip(owners).filter(|(zone, owner)| is_active(zone) && is_its(**owner));
            ActiveZones::new(*share, active.map(|(zone, _)| zone.id.0))
        });
        Active { tenants: tenants.collect(), ending: Mutex::new(()) }
    }

    /// Those of the tenant of this number.
    pub(crate) fn of(&self, owner: u8) -> &ActiveZones {
        &self.tenants[usize::from(owner) - 1]
    }

    /// Something happened that may let anybody in who waits.
    pub(crate) fn notify(&self) {
        self.tenants.iter().for_each(ActiveZones::notify);
    }

    fn forget(&self, zone: ZoneId) {
        self.tenants.iter().for_each(|active| active.forget(zone));
    }
}

/// Those of one tenant: its share of the limit.
pub(crate) struct ActiveZones {
    share: u32,
    /// For writers; the cleaner may have one more.
    limit: usize,
    zones: Mutex<BTreeMap<u32, Holder>>,
    /// How often something happened that may let a waiting one in.
    events: Mutex<u64>,
    happened: Condvar,
}

pub(crate) fn is_active(zone: &Zone) -> bool {
    zone.state.is_open() || zone.state == ZoneState::Closed
}

impl ActiveZones {
    fn new(share: u32, active: impl Iterator<Item = u32>) -> ActiveZones {
        ActiveZones {
            share,
            limit: share.saturating_sub(LOG + CLEANER).max(1) as usize,
            zones: Mutex::new(active.map(|zone| (zone, Holder::Before)).collect()),
            events: Mutex::new(0),
            happened: Condvar::new(),
        }
    }

    /// A zone changed hands or is active no more, or a writer has stopped writing: who waits looks again.
    pub(crate) fn notify(&self) {
        *lock(&self.events) += 1;
        self.happened.notify_all();
    }

    fn events(&self) -> u64 {
        *lock(&self.events)
    }

    /// Waits until something has happened since there were `seen` events. False: nothing has happened for so long.
    fn wait_beyond(&self, seen: u64, time: Duration) -> bool {
        let events = lock(&self.events);
        if *events != seen {
            return true;
        }
        *wait_at_most(&self.happened, events, time) != seen
    }

    /// How many the tenant may have.
    pub(crate) fn share(&self) -> u32 {
        self.share
    }

    pub(crate) fn hold(&self, zone: ZoneId, holder: Holder) {
        lock(&self.zones).insert(zone.0, holder);
        self.notify();
    }

    /// Nobody writes to the zone any more, and it may have room.
    pub(crate) fn let_go(&self, zone: ZoneId) {
        if let Some(holder) = lock(&self.zones).get_mut(&zone.0) {
            *holder = Holder::Nobody;
        }
        self.notify();
    }

    /// A zone that is still held so is to be finished, and by nobody else. False: it is not.
    fn mark(&self, zone: ZoneId, held: impl Fn(&Holder) -> bool) -> bool {
        let mut zones = lock(&self.zones);
        let holder = zones.get_mut(&zone.0).filter(|holder| held(holder));
        holder.map(|holder| *holder = Holder::Finishing).is_some()
    }

    /// Somebody has taken the parked zone and is about to write to it.
    pub(crate) fn taken(&self, zone: ZoneId) {
        if let Some(holder) = lock(&self.zones).get_mut(&zone.0) {
            *holder = Holder::Taken;
        }
    }

    /// A writer has ended in the zone without giving it back.
    pub(crate) fn left_behind(&self, zone: ZoneId) {
        if let Some(holder @ Holder::Writer(..)) = lock(&self.zones).get_mut(&zone.0) {
            *holder = Holder::Before;
        }
        self.notify();
    }

    fn nobodys(&self) -> Vec<ZoneId> {
        let zones = lock(&self.zones);
        zones.iter().filter(|(_, holder)| matches!(holder, Holder::Nobody)).map(|(zone, _)| ZoneId(*zone)).collect()
    }

    pub(crate) fn forget(&self, zone: ZoneId) {
        lock(&self.zones).remove(&zone.0);
        self.notify();
    }

    /// Takes a place for the zone, if there is one.
    fn enter(&self, zone: ZoneId, holder: &Holder) -> bool {
        let mut zones = lock(&self.zones);
        let limit = self.limit + usize::from(matches!(holder, Holder::Cleaner));
        let others = zones.len() - usize::from(zones.contains_key(&zone.0));
        let fits = zones.contains_key(&zone.0) || others < limit;
        if fits {
            zones.insert(zone.0, holder.clone());
        }
        fits
    }

    /// Numbers of the writers that have a zone.
    pub(crate) fn writers(&self) -> BTreeSet<u64> {
        let of = |holder: &Holder| match holder {
            Holder::Writer(id, writer) if writer.strong_count() > 0 => Some(*id),
            _ => None,
        };
        lock(&self.zones).values().filter_map(of).collect()
    }

    /// Zones that nobody will write to or ask for: their writer ended without giving them back, or they are from before.
    fn left(&self) -> Vec<ZoneId> {
        lock(&self.zones).iter().filter(|(_, holder)| holder.is_gone()).map(|(zone, _)| ZoneId(*zone)).collect()
    }
}

impl VolumeCore {
    /// The tenant's active zones, on a drive that limits them.
    pub(crate) fn active_of(&self, owner: u8) -> Option<&ActiveZones> {
        self.active.as_ref().map(|active| active.of(owner))
    }

    /// Before the first write to a zone that is empty, or that somebody kept: waits until the drive has room for one more
    /// active zone. Nothing on a drive without such a limit.
    pub(crate) fn activate(
        &self,
        owner: u8,
        zone: ZoneId,
        holder: Holder,
        keeper: Option<&dyn ZoneKeeper>,
    ) -> Result<()> {
        let Some(active) = self.active_of(owner) else { return Ok(()) };
        // Nobody else writes where the engine's one thread does everything, and nothing takes time under the model checker.
        let mut patience = match self.options.exec {
            Exec::Threads(_) if cfg!(not(feature = "shuttle")) && !matches!(holder, Holder::Cleaner) => PATIENT_EVENTS,
            _ => 0,
        };
        loop {
            self.flusher.check()?;
            // Before the look: what happens during it is not missed.
            let seen = active.events();
            if active.enter(zone, &holder) || self.ask_the_drive(active)? || self.reset_one()? {
                if lock(&active.zones).contains_key(&zone.0) {
                    return Ok(());
                }
                continue;
            }
            let left = active.left();
            if let Some(keeper) = keeper
                && !left.is_empty()
            {
                keeper.settle()?;
                for zone in left {
                    self.finish_if(active, zone, Holder::is_gone);
                }
                continue;
            }
            if patience > 0 {
                patience = if active.wait_beyond(seen, PATIENCE) { patience - 1 } else { 0 };
                continue;
            }
            if let Some(keeper) = keeper
                && let Some(parked) = self.unpark_fullest(owner)
            {
                keeper.settle()?;
                // Unless all in it was deleted, and it is somebody else's by now.
                self.finish_if(active, parked, |holder| matches!(holder, Holder::Nobody));
                continue;
            }
            if let Some(keeper) = keeper
                && self.give_up_deleted(active, keeper)?
            {
                continue;
            }
            if matches!(holder, Holder::Cleaner) {
                // Writers may be waiting for it.
                active.hold(zone, holder);
                return Ok(());
            }
            if let Some(keeper) = keeper
                && keeper.leave_one()?
            {
                continue;
            }
            // Every other writer is writing this moment.
            let zones = || -> Vec<String> {
                lock(&active.zones).iter().map(|(zone, holder)| format!("{zone} {holder:?}")).collect()
            };
            if !active.wait_beyond(seen, AT_MOST) {
                tracing::warn!(drive = %self.drive.device.identity().name, zones = ?zones(), "waiting for an active zone");
            }
        }
    }

    /// Zones in which all was deleted: reset once that is durable, or finished where somebody still reads them.
    fn give_up_deleted(&self, active: &ActiveZones, keeper: &dyn ZoneKeeper) -> Result<bool> {
        if active.nobodys().is_empty() {
            return Ok(false);
        }
        keeper.settle()?;
        if self.reset_one()? {
            return Ok(true);
        }
        let mut any = false;
        for zone in active.nobodys() {
            let marked = {
                // Whoever parks a zone, or takes one that is parked, marks it under this lock.
                let pool = lock(&self.pool);
                !pool.is_parked(zone) && active.mark(zone, |holder| matches!(holder, Holder::Nobody))
            };
            if marked {
                self.finish_marked(active, zone);
                any = true;
            }
        }
        Ok(any)
    }

    fn unpark_fullest(&self, owner: u8) -> Option<ZoneId> {
        lock(&self.pool).unpark_fullest(owner)
    }

    /// The zone is empty, and whoever writes to it next has to ask again.
    pub(crate) fn is_reset(&self, zone: ZoneId) {
        if let Some(active) = &self.active {
            active.forget(zone);
        }
    }

    /// Whether one more active zone would cost somebody else's.
    pub(crate) fn is_crowded(&self, owner: u8) -> Result<bool> {
        match self.active_of(owner) {
            Some(active) if lock(&active.zones).len() >= active.limit => {
                self.ask_the_drive(active)?;
                Ok(lock(&active.zones).len() >= active.limit)
            }
            _ => Ok(false),
        }
    }

    /// Before a log writes to a zone that is empty: its share is its own, except for what it left and is not reset yet.
    pub(crate) fn activate_log(&self) -> Result<()> {
        if self.active.is_some() {
            while self.reset_one()? {}
        }
        Ok(())
    }

    /// Forgets zones that the drive does not count any more. False: there are none.
    fn ask_the_drive(&self, active: &ActiveZones) -> Result<bool> {
        let known: Vec<u32> = lock(&active.zones).keys().copied().collect();
        let mut any = false;
        for zone in known {
            let report = self.report_one(ZoneId(zone))?;
            // An empty zone that somebody holds is about to be written.
            let held = matches!(lock(&active.zones).get(&zone), Some(Holder::Cleaner | Holder::Writer(..)));
            if is_active(&report) || (held && report.state == ZoneState::Empty) {
                continue;
            }
            active.forget(ZoneId(zone));
            any = true;
        }
        Ok(any)
    }

    /// Resets a zone that nobody has.
    pub(crate) fn reset_zone(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        let ending = self.active.as_ref().map(|active| lock(&active.ending));
        self.taken.forget(zone);
        let result = self.drive.device.zone_op(ZoneOp::Reset, zone, tag);
        tracing::debug!(zone = zone.0, cause = tag.cause.name(), done = result.is_ok(), "zone reset");
        self.is_reset(zone);
        drop(ending);
        result
    }

    /// Finishes a zone that the engine had and does not go on in, unless it was reset meanwhile, on a drive that limits active
    /// ones. A zone that cannot be finished is left as it is.
    pub(crate) fn finish_unused(&self, owner: u8, zone: ZoneId) {
        if let Some(active) = self.active_of(owner) {
            let written = |holder: &Holder| matches!(holder, Holder::Writer(_, writer) if writer.strong_count() > 0);
            self.finish_if(active, zone, |holder| !written(holder));
        }
    }

    /// The same of a zone that the caller's writer has.
    pub(crate) fn finish(&self, owner: u8, zone: ZoneId) {
        if let Some(active) = self.active_of(owner) {
            lock(&active.zones).insert(zone.0, Holder::Finishing);
            self.finish_marked(active, zone);
        }
    }

    /// Finishes a zone that is still held so. False: it is not.
    fn finish_if(&self, active: &ActiveZones, zone: ZoneId, held: impl Fn(&Holder) -> bool) -> bool {
        let marked = active.mark(zone, held);
        if marked {
            self.finish_marked(active, zone);
        }
        marked
    }

    fn finish_marked(&self, active: &ActiveZones, zone: ZoneId) {
        let ending = self.active.as_ref().map(|all| lock(&all.ending));
        // All in it was deleted, and it was reset before its turn came: then it may be somebody else's.
        if !matches!(lock(&active.zones).get(&zone.0), Some(Holder::Finishing)) {
            return;
        }
        if let Err(error) = self.finish_active(zone) {
            tracing::warn!(%error, "a zone that nobody goes on in could not be finished");
        }
        active.forget(zone);
        drop(ending);
    }
}
