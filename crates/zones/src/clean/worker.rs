//! The worker: what a step does, in which order, and who waits for it.

use super::choose::{Chosen, Search};
use super::throttle::{self, Pace, Seen};
use super::{Failed, Load, Residents, Victim};
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::volume::Tenant;
use imbrex_device::{Error, Fault, Zone, ZoneId, ZoneState};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// So many zones are tried in one call that give nothing.
const MOST_TRIED: usize = 16;

/// What the engine says about its cleaning once and for all.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// So many zones shall be free beside the reserve.
    pub below: u32,
    /// So many more users leave to others.
    pub leave: u32,
    /// Bytes of a zone.
    pub zone: u64,
    /// Most bytes that are copied before they are made durable and the metadata names them.
    pub step: u64,
}

/// What cleaning is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Somebody pays for zones that will be needed. It waits for its turn, and then does all of its own.
    Ahead,
    /// Somebody needs a zone. It waits for a step that is under way, and [looks again](Cleaned::waited) before it cleans itself.
    Room,
    /// Nobody waits. Where a step is under way it passes. While enough zones are free, only zones that are dying are emptied.
    Rest,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Bytes that stand elsewhere now.
    pub moved: u64,
    /// Zones in which nothing lives any more.
    pub freed: u64,
    /// The call ended at the step of somebody else. Where room was needed, that step is over, and there may be some.
    pub waited: bool,
}

impl Cleaned {
    fn add(&mut self, moved: u64, freed: bool) {
        self.moved += moved;
        self.freed += u64::from(freed);
    }

    /// Whether there may be more room than before.
    pub fn gained(&self) -> bool {
        self.moved > 0 || self.freed > 0 || self.waited
    }
}

/// The cleaner of an engine.
pub struct Cleaner {
    tenant: Tenant,
    rules: Rules,
    turn: Mutex<Turn>,
    over: Condvar,
    pace: Mutex<Pace>,
    /// Somebody without threads has burst lately. That counts until users have taken this many zones.
    stepped: AtomicU32,
    totals: Mutex<Cleaned>,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    /// A step is under way.
    taken: bool,
    /// Steps that ended, and how often zones became free otherwise.
    news: u64,
}

/// The right to take a step.
struct Step<'a>(&'a Cleaner);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        lock(&self.0.turn).taken = false;
        self.0.zones_freed();
    }
}

impl Cleaner {
    /// Of this tenant's zones.
    pub fn new(tenant: &Tenant, rules: Rules) -> Cleaner {
        Cleaner {
            tenant: tenant.clone(),
            rules,
            turn: Mutex::default(),
            over: Condvar::new(),
            pace: Mutex::default(),
            stepped: AtomicU32::new(0),
            totals: Mutex::default(),
        }
    }

    /// Zones that users may take: those that are free, without the reserve.
    pub fn free(&self) -> u32 {
        let counts = self.tenant.counts();
        counts.free.min(counts.reach.saturating_sub(self.rules.leave)).saturating_sub(counts.reserve)
    }

    /// Whether fewer zones are free than shall be.
    pub fn is_due(&self) -> bool {
        throttle::is_due(self.free(), self.rules.below)
    }

    /// Whether so few are free that whoever cleans in the background [no longer rests](throttle::is_short).
    pub fn is_short(&self) -> bool {
        throttle::is_short(self.free(), self.rules.below)
    }

    /// What came of all calls so far.
    pub fn totals(&self) -> Cleaned {
        *lock(&self.totals)
    }

    /// Cleans, as long as there is something to gain, until about `most` bytes were moved. Victims are pinned until after the last commit, so the engine
    /// frees what is [forgotten](Tenant::forgotten) afterwards.
    ///
    /// # Errors
    /// The engine's. A victim that cannot be read is an error only where nothing was gained from any other.
    pub fn clean<E: Residents>(&self, engine: &E, goal: Goal, most: u64) -> Result<Cleaned, E::Error> {
        let (mut done, mut unread, mut pressed) = (Cleaned::default(), None, false);
        // Zones that gave nothing, and whether only room was missing.
        let mut tried = BTreeMap::new();
        while done.moved < most {
            let Some(_step) = self.begin(goal) else {
                done.waited = true;
                break;
            };
            let aside = |zone: u32| tried.contains_key(&zone);
            let search = Search::new(goal == Goal::Rest && !self.is_due(), &aside);
            let chosen = if tried.len() < MOST_TRIED { engine.next_victim(&search) } else { None };
            let Some(Chosen { zone, life, dying }) = chosen else {
                if pressed || !tried.values().any(|stuck| *stuck) {
                    break;
                }
                pressed = true;
                tried.retain(|_, stuck| !*stuck);
                continue;
            };
            let most = self.rules.step.min(most - done.moved);
            let victim = Victim { zone, life, most, pressed };
            let (moved, freed, error) = self.step(engine, &victim, dying)?;
            done.add(moved, freed);
            lock(&self.totals).add(moved, freed);
            match error {
                Some(error) => {
                    tried.insert(zone, false);
                    unread = self.cannot_read(engine, zone, error).or(unread);
                }
                // Also one in which nothing lived any more: an engine that lists it again is not asked for it again.
                None if moved == 0 => drop(tried.insert(zone, !freed)),
                None => pressed = false,
            }
        }
        match unread.filter(|_| !done.gained()) {
            Some(error) => Err(error.into()),
            None => Ok(done),
        }
    }

    /// Whoever takes a zone while few are free cleans as much as [`throttle::ahead`] says. `attended`: somebody cleans in the background. Then users do so only
    /// where that falls behind.
    ///
    /// # Errors
    /// Those of a volume that takes no more writes. Others are told: there are zones that can be taken.
    pub fn clean_ahead<E: Residents<Error: std::fmt::Display>>(
        &self,
        engine: &E,
        attended: bool,
    ) -> Result<(), E::Error> {
        let want = throttle::users_below(self.rules.below, attended);
        let most = throttle::ahead(self.free(), want, self.rules.zone);
        if let Err(error) = self.clean(engine, Goal::Ahead, most) {
            self.tenant.volume().check_poison()?;
            tracing::warn!(%error, "cleaning ahead failed");
        }
        Ok(())
    }

    /// Has `burst` move as many bytes as the throttle allows, and returns how long to rest then. So users' operations take no more than `slowdown` times
    /// as long. `burst` returns how many bytes it moved. `None`, here as there: there was nothing to do.
    ///
    /// # Errors
    /// Those of the burst.
    pub fn pace<E>(
        &self,
        slowdown: f64,
        load: &Load,
        burst: impl FnOnce(u64) -> Result<Option<u64>, E>,
    ) -> Result<Option<Duration>, E> {
        let (before, began) = (*lock(&self.pace), Instant::now());
        let Some(moved) = load.burst(|| burst(before.bytes))? else { return Ok(None) };
        let (calm, all) = load.since_last();
        let seen = Seen { free: self.free(), below: self.rules.below, took: began.elapsed(), moved, calm, all };
        let pace = throttle::pace(before, slowdown, &seen);
        *lock(&self.pace) = pace;
        Ok(Some(pace.rest))
    }

    /// Somebody without threads does a burst now and then. This one counts until users have taken `zones`. Nobody has to go on with that.
    pub fn stands_in_for(&self, zones: u32) {
        self.stepped.store(zones, Ordering::Relaxed);
    }

    /// A user takes a zone. Whether somebody [stands in](Cleaner::stands_in_for) for a thread.
    pub fn takes_one_more(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.stepped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Zones have become free. Whoever waits for room looks again.
    pub fn zones_freed(&self) {
        lock(&self.turn).news += 1;
        self.over.notify_all();
    }

    /// The right to take a step. `None`: somebody else's was under way.
    fn begin(&self, goal: Goal) -> Option<Step<'_>> {
        let mut turn = lock(&self.turn);
        let before = *turn;
        let waits = |now: Turn| match goal {
            Goal::Ahead => now.taken,
            Goal::Room => now.taken && now == before,
            Goal::Rest => false,
        };
        while waits(*turn) {
            turn = wait(&self.over, turn);
        }
        let begins = !turn.taken && (goal == Goal::Ahead || *turn == before);
        begins.then(|| {
            turn.taken = true;
            Step(self)
        })
    }

    /// A victim could not be read. Where the engine does not note that, it is an error, `Some`.
    fn cannot_read<E: Residents>(&self, engine: &E, zone: u32, error: Error) -> Option<Error> {
        let offline = |error: &Error| matches!(error.fault, Fault::Offline);
        let gone = offline(&error) && self.check_zone(ZoneId(zone)).is_err_and(|error| offline(&error));
        tracing::warn!(%error, zone, "a zone cannot be cleaned now; others are");
        (!engine.note_unread(zone, gone)).then_some(error)
    }

    /// Fails where the zone is offline.
    fn check_zone(&self, zone: ZoneId) -> Result<(), Error> {
        let mut report = [Zone::EMPTY];
        let volume = self.tenant.volume();
        volume.device().report(zone, &mut report)?;
        match report[0].state {
            ZoneState::Offline => Err(Error::new(&volume.name(), Fault::Offline).at(zone, 0)),
            _ => Ok(()),
        }
    }

    /// Moves what lives in the victim, or a piece of it. Returns the bytes that were moved, whether nothing is left, and why more could not be read.
    fn step<E: Residents>(
        &self,
        engine: &E,
        victim: &Victim,
        dying: bool,
    ) -> Result<(u64, bool, Option<Error>), E::Error> {
        let zone = ZoneId(victim.zone);
        if let Err(error) = self.check_zone(zone) {
            return Ok((0, false, Some(error)));
        }
        self.tenant.pin(zone);
        let moved = self.carry_out(engine, &engine.residents(victim));
        // Until here nobody has forgotten the zones of the copies, whatever the metadata says.
        engine.settle();
        let done = moved.and_then(|(moved, unread)| {
            let freed = unread.is_none() && engine.is_empty(victim);
            if (freed || dying) && moved > 0 {
                engine.commit()?;
            }
            tracing::debug!(%zone, moved, freed, unread = unread.is_some(), "cleaned");
            Ok((moved, freed, unread))
        });
        self.tenant.unpin(zone);
        done
    }

    /// Copies, makes durable, switches.
    fn carry_out<E: Residents>(&self, engine: &E, pieces: &[E::Piece]) -> Result<(u64, Option<Error>), E::Error> {
        let mut copies = Vec::new();
        let unread = match pieces.iter().try_for_each(|piece| engine.copy(piece, &mut copies)) {
            Ok(()) => None,
            // What was copied before is as good as it was.
            Err(Failed::Unread(error)) => Some(error),
            Err(Failed::Other(error)) => return Err(error),
        };
        if copies.is_empty() {
            return Ok((0, unread));
        }
        engine.flush()?;
        Ok((engine.switch(copies)?, unread))
    }
}
