//! The worker, with an engine of nothing but sets: a piece is a number, and one byte long.

use super::choose::greedy;
use super::*;
use crate::volume::{Exec, FormatOptions, Tenant, TenantSpec, Volume, VolumeOptions};
use crate::{Budget, Urgency};
use imbrex_device::{Drive, Fault, ZoneId};
use imbrex_emulator::{Config, Emulator};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};

/// Pieces that a zone has room for.
const ZONE: u64 = 10;

#[derive(Clone, Default)]
struct Row {
    life: u64,
    live: BTreeSet<u64>,
    dying: bool,
    bad: bool,
}

/// A moment in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Chosen,
    Look,
    Copy,
    Sync,
    Switch,
    Named,
}

fn error(fault: Fault) -> Error {
    Error::new(&Arc::from("toy"), fault)
}

type Hook = Box<dyn FnOnce(&Toy) + Send>;

#[derive(Default)]
struct State {
    zones: BTreeMap<u32, Row>,
    /// Where copies go, and how many more.
    into: u32,
    room: u64,
    /// Of that, how many only if the cleaner is pressed.
    kept: u64,
    pressed: bool,
    copied: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    forgotten: BTreeSet<u32>,
    /// Zones in which copies are expected.
    incoming: BTreeSet<u32>,
    offline: Vec<u32>,
    /// What is done once, at the first such moment.
    hook: Option<(At, Hook)>,
    fail_sync: bool,
    /// Copies were named and are not committed.
    named: bool,
    commits: u32,
    under_way: u32,
    /// Each step looks before it copies, and once more at its end, unless it could not read.
    looks: u32,
}

struct Toy {
    emulator: Emulator,
    tenant: Tenant,
    cleaner: Cleaner,
    state: Mutex<State>,
}

impl Toy {
    /// Zones of so many pieces each, by number, which are consecutive across zones; one more takes copies.
    fn with(lives: &[u64]) -> (Toy, Vec<u32>) {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
        let tenants = vec![TenantSpec { name: "toy".into(), budget: Budget::keeping(0, 1) }];
        Volume::format(&drive, &FormatOptions { uuid: None, tenants, force: false }).unwrap();
        let options = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let tenant = Volume::open(drive, options).unwrap().tenant("toy").unwrap();
        tenant.begin().unwrap();
        tenant.adoption_done();
        tenant.recovered().unwrap();
        let mut state = State { room: u64::MAX, into: tenant.take(Urgency::Cleaning).unwrap().0, ..State::default() };
        state.zones.insert(state.into, Row { life: 9, ..Row::default() });
        let (mut next, mut zones) = (0, Vec::new());
        for &live in lives {
            let zone = tenant.take(Urgency::User).unwrap().0;
            state.zones.insert(zone, Row { life: 1, live: (next..next + live).collect(), ..Row::default() });
            next += live;
            zones.push(zone);
        }
        let cleaner = Cleaner::new(&tenant, Rules { below: 1000, leave: 0, zone: ZONE, step: 4 });
        (Toy { emulator, tenant, cleaner, state: Mutex::new(state) }, zones)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn hook(&self, at: At, hook: impl FnOnce(&Toy) + Send + 'static) {
        self.state().hook = Some((at, Box::new(hook)));
    }

    /// The cleaner has come so far, and holds no lock: it can be asked anything.
    fn at(&self, at: At) {
        self.cleaner.totals();
        let passed = self.cleaner.clean(self, Goal::Rest, 1).unwrap();
        assert_eq!(passed, Cleaned { waited: true, ..Cleaned::default() }, "{at:?}: a step is under way");
        let hook = self.state().hook.take_if(|(when, _)| *when == at);
        if let Some((_, hook)) = hook {
            hook(self);
        }
    }

    fn is_pinned(&self, zone: u32) -> bool {
        self.tenant.pinned().contains(&zone)
    }

    fn live(&self, zone: u32) -> Vec<u64> {
        self.state().zones[&zone].live.iter().copied().collect()
    }

    fn clean(&self, goal: Goal) -> (u64, u64) {
        let done = self.cleaner.clean(self, goal, 1000).unwrap();
        assert!(self.tenant.pinned().is_empty() && self.state().incoming.is_empty());
        (done.moved, done.freed)
    }
}

impl State {
    fn forget_if_empty(&mut self, zone: u32) {
        if self.zones[&zone].live.is_empty() && !self.incoming.contains(&zone) {
            self.forgotten.insert(zone);
        }
    }
}

impl Residents for Toy {
    type Piece = (u32, u64, u64);
    type Copy = (u32, u64, u64, u32);
    type Error = Error;

    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen> {
        let chosen = {
            let s = self.state();
            let of = |(zone, row): (&u32, &Row)| {
                let may = *zone != s.into && !row.live.is_empty() && !s.offline.contains(zone);
                let (life, live, dying) = (row.life, row.live.len() as u64, row.dying);
                may.then_some(Candidate { zone: *zone, life, live, capacity: ZONE, dying, ..Candidate::default() })
            };
            search.choose(greedy, s.zones.iter().filter_map(of))
        };
        self.at(At::Chosen);
        chosen
    }

    fn residents(&self, victim: &Victim) -> Vec<Self::Piece> {
        assert!(self.is_pinned(victim.zone));
        let pieces = {
            let mut s = self.state();
            s.under_way += 1;
            assert_eq!(s.under_way, 1);
            s.looks += 1;
            s.pressed = victim.pressed;
            let row = s.zones.get(&victim.zone).filter(|row| row.life == victim.life);
            let ids = row.map_or(Vec::new(), |row| row.live.iter().copied().take(victim.most as usize).collect());
            ids.into_iter().map(|id| (victim.zone, victim.life, id)).collect()
        };
        self.at(At::Look);
        self.state().under_way -= 1;
        pieces
    }

    fn copy(&self, piece: &Self::Piece, copies: &mut Vec<Self::Copy>) -> Result<(), Failed<Error>> {
        let (zone, life, id) = *piece;
        assert!(self.is_pinned(zone));
        self.at(At::Copy);
        if self.state().zones[&zone].bad {
            return Err(Failed::Unread(error(Fault::Media { len: 1 }).at(ZoneId(zone), id)));
        }
        let mut s = self.state();
        if s.room > if s.pressed { 0 } else { s.kept } {
            s.room -= 1;
            s.copied.insert(id);
            let into = s.into;
            s.incoming.insert(into);
            copies.push((zone, life, id, into));
        }
        Ok(())
    }

    fn commit(&self) -> Result<(), Error> {
        let mut s = self.state();
        s.commits += 1;
        // It says that copies count.
        let at = if std::mem::replace(&mut s.named, false) { At::Named } else { At::Sync };
        drop(s);
        self.at(at);
        let mut s = self.state();
        s.durable = s.copied.clone();
        if std::mem::take(&mut s.fail_sync) { Err(error(Fault::NoSpace)) } else { Ok(()) }
    }

    fn switch(&self, copies: Vec<Self::Copy>) -> Result<u64, Error> {
        self.at(At::Switch);
        let (mut s, mut moved) = (self.state(), 0);
        for (zone, life, id, to) in copies {
            assert!(self.is_pinned(zone) && s.incoming.contains(&to) && s.durable.contains(&id));
            assert!(!s.forgotten.contains(&to));
            if s.zones.get_mut(&zone).is_some_and(|row| row.life == life && row.live.remove(&id)) {
                s.zones.get_mut(&to).unwrap().live.insert(id);
                moved += 1;
            }
        }
        s.named = true;
        Ok(moved)
    }

    fn settle(&self) {
        let mut s = self.state();
        std::mem::take(&mut s.incoming).into_iter().for_each(|zone| s.forget_if_empty(zone));
    }

    fn note_unread(&self, zone: u32, offline: bool) -> bool {
        if offline {
            self.state().offline.push(zone);
        }
        offline
    }
}

#[test]
fn what_lives_moves_in_steps_and_the_zones_are_free() {
    let (toy, zones) = Toy::with(&[6, 3, 10]);
    assert_eq!(toy.clean(Goal::Ahead), (9, 2), "the last one is all alive");
    let into = toy.state().into;
    assert_eq!(toy.live(into), (0..9).collect::<Vec<_>>());
    assert_eq!(zones.iter().map(|zone| toy.live(*zone).len()).collect::<Vec<_>>(), [0, 0, 10]);
    // Three; then four, which nobody has committed, and two.
    let (looks, commits) = {
        let s = toy.state();
        (s.looks, s.commits)
    };
    assert_eq!((looks, commits), (6, 5));
    assert_eq!(toy.cleaner.totals(), Cleaned { moved: 9, freed: 2, waited: false });
    assert_eq!(toy.clean(Goal::Ahead), (0, 0));
}

#[test]
fn a_call_moves_about_as_much_as_it_was_asked_to() {
    let (toy, _) = Toy::with(&[9, 9]);
    let done = toy.cleaner.clean(&toy, Goal::Room, 5).unwrap();
    assert_eq!((done.moved, done.freed, toy.state().looks), (5, 0, 4));
    assert_eq!(toy.cleaner.clean(&toy, Goal::Room, 0).unwrap(), Cleaned::default());
}

#[test]
fn a_victim_that_dies_while_it_is_copied_is_left_and_others_are_cleaned() {
    let (toy, zones) = Toy::with(&[2, 5]);
    let victim = zones[0];
    toy.hook(At::Copy, move |toy| {
        toy.emulator.faults().make_offline(ZoneId(victim)).unwrap();
        toy.state().zones.get_mut(&victim).unwrap().bad = true;
    });
    // What it says is that it could not be read. That it is offline is found when it is looked at next.
    assert_eq!(toy.clean(Goal::Ahead), (5, 1));
    assert_eq!((toy.live(victim), toy.state().offline.clone()), (vec![0, 1], vec![]));
    assert_eq!(toy.clean(Goal::Ahead), (0, 0), "a zone that is gone is no error");
    assert_eq!(toy.state().offline, [victim]);
}

#[test]
fn what_was_copied_before_a_zone_became_unreadable_has_moved() {
    let (toy, zones) = Toy::with(&[3]);
    let victim = zones[0];
    toy.hook(At::Copy, |toy| {
        let spoil = move |toy: &Toy| toy.state().zones.get_mut(&victim_of(toy)).unwrap().bad = true;
        toy.hook(At::Copy, spoil);
    });
    assert_eq!(toy.clean(Goal::Ahead), (1, 0));
    assert_eq!(toy.live(victim), [1, 2]);
}

/// The only zone that is pinned.
fn victim_of(toy: &Toy) -> u32 {
    *toy.tenant.pinned().first().unwrap()
}

#[test]
fn a_zone_that_cannot_be_read_is_put_aside_and_told_only_where_no_other_can_be_cleaned() {
    for good in [true, false] {
        let (toy, zones) = Toy::with(&[1, 2, 3]);
        for zone in zones.iter().take(if good { 2 } else { 3 }) {
            toy.state().zones.get_mut(zone).unwrap().bad = true;
        }
        let done = toy.cleaner.clean(&toy, Goal::Room, 1000);
        assert_eq!(done.is_ok(), good, "{done:?}");
        assert_eq!(toy.state().looks, if good { 4 } else { 3 }, "each is tried once");
        // It may have been a passing fault.
        zones.iter().for_each(|zone| toy.state().zones.get_mut(zone).unwrap().bad = false);
        assert_eq!(toy.clean(Goal::Room), if good { (3, 2) } else { (6, 3) });
    }
}

#[test]
fn a_victim_with_a_new_life_between_choice_and_look_is_not_touched() {
    let (toy, zones) = Toy::with(&[2, 5]);
    let victim = zones[0];
    toy.hook(At::Chosen, move |toy| {
        let row = Row { life: 2, live: (100..110).collect(), ..Row::default() };
        toy.state().zones.insert(victim, row);
    });
    assert_eq!(toy.clean(Goal::Ahead), (5, 2), "the life that was chosen is over");
    assert_eq!(toy.live(victim), (100..110).collect::<Vec<_>>());
}

#[test]
fn what_is_deleted_at_any_moment_of_a_step_does_not_come_back() {
    for at in [At::Chosen, At::Look, At::Copy, At::Sync, At::Switch] {
        let (toy, zones) = Toy::with(&[3]);
        let victim = zones[0];
        toy.hook(at, move |toy| toy.state().zones.get_mut(&victim).unwrap().live.clear());
        assert_eq!(toy.clean(Goal::Ahead), (0, 1), "{at:?}");
        let into = toy.state().into;
        assert!(toy.live(into).is_empty() && toy.live(victim).is_empty(), "{at:?}");
        // Nothing was copied there before it was deleted, or the copies are nobody's.
        assert_eq!(toy.state().forgotten.contains(&into), !matches!(at, At::Chosen), "{at:?}");
    }
}

#[test]
fn a_zone_with_copies_that_nobody_names_yet_is_not_forgotten() {
    for fails in [false, true] {
        let (toy, _) = Toy::with(&[3]);
        toy.state().fail_sync = fails;
        toy.hook(At::Sync, |toy| {
            let mut s = toy.state();
            let into = s.into;
            s.forget_if_empty(into);
            assert!(s.forgotten.is_empty());
        });
        assert_eq!(toy.cleaner.clean(&toy, Goal::Ahead, 1000).is_err(), fails);
        let into = toy.state().into;
        assert!(toy.state().incoming.is_empty() && toy.tenant.pinned().is_empty());
        assert_eq!(toy.state().forgotten.contains(&into), fails, "what never counted keeps no zone");
    }
}

#[test]
fn where_copies_find_no_room_other_zones_are_tried_and_then_room_is_wasted() {
    let (toy, zones) = Toy::with(&[2, 3]);
    toy.state().room = 0;
    assert_eq!(toy.clean(Goal::Room), (0, 0));
    assert_eq!(toy.state().looks, 8, "both, and both once more under pressure");
    toy.state().room = 5;
    toy.state().kept = 5;
    assert_eq!(toy.clean(Goal::Room), (5, 2));
    assert!(zones.iter().all(|zone| toy.live(*zone).is_empty()));
}

#[test]
fn at_rest_only_dying_zones_are_emptied_while_enough_are_free() {
    for below in [0, 1000] {
        let (mut toy, zones) = Toy::with(&[2, 10]);
        let rules = Rules { below, leave: 0, zone: ZONE, step: 4 };
        toy.cleaner = Cleaner::new(&toy.tenant, rules);
        assert_eq!(toy.clean(Goal::Rest), if below == 0 { (0, 0) } else { (2, 1) });
        toy.state().zones.get_mut(&zones[1]).unwrap().dying = true;
        assert_eq!(toy.clean(Goal::Rest), (10, 1), "whatever lives there");
    }
}

#[test]
fn two_callers_take_their_steps_one_at_a_time() {
    let (toy, zones) = Toy::with(&[8; 12]);
    // The engine sees to it that no two steps overlap.
    let moved: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| toy.cleaner.clean(&toy, Goal::Ahead, 1000))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap().moved).sum()
    });
    assert_eq!((moved, toy.cleaner.totals().freed), (96, 12));
    assert!(zones.iter().all(|zone| toy.live(*zone).is_empty()) && toy.tenant.pinned().is_empty());
}

#[test]
fn a_step_under_way_is_waited_for_by_who_needs_room_and_passed_at_rest() {
    let (toy, zones) = Toy::with(&[3, 5]);
    let ((stands, stood), (go, goes)) = (channel(), channel());
    toy.hook(At::Copy, move |_| {
        stands.send(()).unwrap();
        goes.recv().unwrap();
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| toy.cleaner.clean(&toy, Goal::Ahead, 3).unwrap());
        stood.recv().unwrap();
        let passed = Cleaned { waited: true, ..Cleaned::default() };
        assert_eq!(toy.cleaner.clean(&toy, Goal::Rest, 1000).unwrap(), passed);
        let room = scope.spawn(|| toy.cleaner.clean(&toy, Goal::Room, 1000).unwrap());
        let ahead = scope.spawn(|| toy.cleaner.clean(&toy, Goal::Ahead, 1000).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!room.is_finished() && !ahead.is_finished());
        go.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Cleaned { moved: 3, freed: 1, waited: false });
        assert_eq!(room.join().unwrap(), passed, "it looks again first");
        assert_eq!(ahead.join().unwrap().moved, 5, "it does its own");
    });
    assert!(zones.iter().all(|zone| toy.live(*zone).is_empty()));
}

#[test]
fn the_pace_is_what_the_throttle_says_of_what_was_seen() {
    let (toy, _) = Toy::with(&[]);
    let load = Load::default();
    let burst = |moved| toy.cleaner.pace(1.5, &load, |bytes| Ok::<_, Error>(Some(bytes).filter(|_| moved)));
    assert_eq!(burst(false).unwrap(), None, "there is nothing to do");
    assert_eq!(burst(true).unwrap().unwrap(), std::time::Duration::ZERO, "nobody is disturbed");
    let bytes = std::cell::Cell::new(0);
    let failed = toy.cleaner.pace(1.5, &load, |asked| {
        bytes.set(asked);
        Err::<Option<u64>, _>(error(Fault::NoSpace))
    });
    assert!(failed.is_err());
    assert_eq!(bytes.get(), 2 * throttle::LEAST, "the burst before was fast");
}

#[test]
fn who_bursts_without_a_thread_stands_in_for_so_many_zones() {
    let (toy, _) = Toy::with(&[]);
    assert!(!toy.cleaner.takes_one_more());
    toy.cleaner.stands_in_for(2);
    assert_eq!([(); 3].map(|()| toy.cleaner.takes_one_more()), [true, true, false]);
}
