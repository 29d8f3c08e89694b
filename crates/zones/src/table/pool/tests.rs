use super::*;
use proptest::prelude::*;

fn zone(id: u32, state: ZoneState) -> Zone {
    Zone { id: ZoneId(id), state, capacity: 100, wp: Some(0) }
}

fn pool() -> (Pool, Vec<Zone>) {
    use ZoneState::*;
    let states = [Conventional, Conventional, Empty, Full, Closed, ReadOnly, Empty, Full];
    let report: Vec<_> = states.iter().enumerate().map(|(i, &s)| zone(i as u32, s)).collect();
    let owners = [label::LABEL, 1, 1, 1, 1, 1, 0, 0];
    (Pool::new(&report, &owners, &[Budget::keeping(0, 1)]), report)
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
    assert_eq!(
        counts,
        PoolCounts {
            leased: 1,
            forgotten: 0,
            parked: 0,
            free: 4,
            reach: 4,
            dirty: 1,
            reserve: 1,
            reservations: 0,
            dead: 1
        }
    );
    assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(2)));
    assert_eq!(pool.take(1, Urgency::User), Take::Reset(ZoneId(4)));
    pool.reset_done(ZoneId(4), true);
    let Take::Claim(zones) = pool.take(1, Urgency::User) else { panic!() };
    assert_eq!(zones, [ZoneId(6), ZoneId(7)]);
    pool.claim_done(&zones, 1, true);
    assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(6)));
    assert_eq!(pool.take(1, Urgency::User), Take::NoSpace, "the reserve");
    assert_eq!(pool.take(1, Urgency::Metadata), Take::Reset(ZoneId(7)));
    pool.reset_done(ZoneId(7), false);
    assert_eq!(pool.take(1, Urgency::Metadata), Take::NoSpace);
    released(&mut pool, ZoneId(3), false);
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
    pool.claim_done(&zones, 1, true);
    assert_eq!(behind(&mut pool, 4, 9, Urgency::User), Take::Empty(ZoneId(6)), "there are no more to choose from");
    assert_eq!(behind(&mut pool, 7, 9, Urgency::User), Take::Empty(ZoneId(2)), "from the first on again");
    assert_eq!(behind(&mut pool, 2, 9, Urgency::User), Take::NoSpace, "the reserve");
    assert_eq!(behind(&mut pool, u32::MAX, 9, Urgency::Metadata), Take::Reset(ZoneId(7)));
    pool.reset_done(ZoneId(7), true);
    assert_eq!((pool.counts(1).leased, pool.counts(1).free), (5, 0));
}

#[test]
fn a_reserved_zone_is_for_whom_it_was_reserved() {
    let (mut pool, report) = pool();
    pool.adoption_done(1, &report);
    let free = pool.counts(1).free;
    for _ in 1..free {
        assert!(!pool.reserve(1, free), "more is to be left than there is");
        assert!(pool.reserve(1, 0));
    }
    assert!(!pool.reserve(1, 0), "the reserve cannot be reserved");
    assert_eq!(pool.take(1, Urgency::User), Take::NoSpace, "all are reserved");
    pool.end_reservation(1);
    assert!(matches!(pool.take(1, Urgency::User), Take::Empty(_)));
    let counts = pool.counts(1);
    assert!(matches!(pool.take(1, Urgency::Reserved), Take::Empty(_) | Take::Reset(_)));
    let after = pool.counts(1);
    assert_eq!((after.free, after.reservations), (counts.free - 1, counts.reservations - 1), "both in one moment");
    assert!(matches!(pool.take(1, Urgency::Recovered), Take::Empty(_) | Take::Reset(_) | Take::Claim(_)));
    assert_eq!(pool.counts(1).reservations, after.reservations, "that was nobody's reservation");
}

#[test]
fn a_zone_that_is_being_reset_is_free_and_waited_for() {
    let (mut pool, report) = pool();
    pool.adoption_done(1, &report);
    let free = pool.counts(1).free;
    let resetting: Vec<_> = std::iter::from_fn(|| pool.next_dirty()).collect();
    assert_eq!(resetting, [ZoneId(3), ZoneId(4)]);
    assert_eq!((pool.counts(1).free, pool.counts(1).dirty), (free, 2));
    assert!(pool.reserve(1, free - 2), "all but the reserve are to be had");
    pool.end_reservation(1);
    assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(2)));
    let Take::Claim(zones) = pool.take(1, Urgency::User) else { panic!() };
    pool.claim_done(&zones, 1, true);
    assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(6)));
    assert_eq!(pool.take(1, Urgency::User), Take::Reset(ZoneId(7)));
    assert_eq!(pool.take(1, Urgency::User), Take::Wait, "beside the reserve one is left");
    pool.reset_done(ZoneId(3), false);
    assert_eq!(pool.take(1, Urgency::User), Take::NoSpace, "it has died, and the last one is the reserve");
    assert_eq!(pool.take(1, Urgency::Metadata), Take::Wait);
    pool.reset_done(ZoneId(4), true);
    assert_eq!(pool.take(1, Urgency::Metadata), Take::Empty(ZoneId(4)));
    pool.reset_done(ZoneId(7), true);
    assert_eq!(
        pool.counts(1),
        PoolCounts {
            leased: 4,
            forgotten: 0,
            parked: 0,
            free: 0,
            reach: 0,
            dirty: 0,
            reserve: 1,
            reservations: 0,
            dead: 2
        }
    );
}

fn released(pool: &mut Pool, zone: ZoneId, dead: bool) {
    pool.forget(zone, 0);
    assert!(pool.free_forgotten(zone, 0, dead));
}

/// A drive of one empty zone, leased.
fn one_leased() -> Pool {
    let mut pool = Pool::new(&[zone(0, ZoneState::Empty)], &[1], &[keeping(0)]);
    pool.adoption_done(1, &[zone(0, ZoneState::Empty)]);
    assert_eq!(pool.take(1, Urgency::User), Take::Empty(ZoneId(0)));
    pool
}

#[test]
fn a_forgotten_zone_is_free_when_its_record_is_durable_and_nobody_pins_it() {
    let it = ZoneId(0);
    for durable_first in [false, true] {
        let mut pool = one_leased();
        pool.pin(it);
        pool.pin(it);
        pool.forget(it, 7);
        assert_eq!((pool.forgotten(1, 7), pool.counts(1).forgotten), (vec![], 0), "two hold it");
        assert_eq!((pool.counts(1).leased, pool.take(1, Urgency::Metadata)), (1, Take::NoSpace));
        pool.unpin(it);
        assert!(!pool.free_forgotten(it, 7, false), "one holds it");
        assert_eq!(pool.pinned(1), BTreeSet::from([0]));
        if !durable_first {
            pool.unpin(it);
            assert_eq!((pool.forgotten(1, 6), pool.counts(1).forgotten), (vec![], 1), "the record is not durable");
            assert!(!pool.free_forgotten(it, 6, false));
        } else {
            pool.unpin(it);
        }
        assert_eq!((pool.forgotten(1, 7), pool.pinned(1)), (vec![it], BTreeSet::new()));
        assert!(pool.free_forgotten(it, 7, false));
        assert!(!pool.free_forgotten(it, 7, false), "somebody else was faster");
        assert_eq!((pool.counts(1).leased, pool.counts(1).dirty), (0, 1));
        assert_eq!(pool.next_dirty(), Some(it));
    }
}

#[test]
fn a_zone_that_is_forgotten_twice_waits_for_the_later_record() {
    for records in [[7, 9], [9, 7]] {
        let mut pool = one_leased();
        records.iter().for_each(|at| pool.forget(ZoneId(0), *at));
        assert_eq!((pool.forgotten(1, 8), pool.forgotten(1, 9)), (vec![], vec![ZoneId(0)]));
    }
}

#[test]
fn a_recalled_zone_is_leased_as_before() {
    let it = ZoneId(0);
    let mut pool = one_leased();
    pool.pin(it);
    pool.recall(it);
    pool.forget(it, 7);
    pool.recall(it);
    pool.unpin(it);
    assert_eq!((pool.forgotten(1, u64::MAX), pool.counts(1).leased, pool.counts(1).forgotten), (vec![], 1, 0));
    assert!(!pool.free_forgotten(it, u64::MAX, false));
    pool.forget(it, 3);
    assert_eq!(pool.forgotten(1, 3), [it], "what forgot it before does not count");
}

#[test]
fn a_parked_zone_has_one_taker_and_a_forgotten_one_has_none() {
    let it = ZoneId(0);
    let mut pool = one_leased();
    assert!(!pool.unpark(it) && pool.unpark_fullest(1).is_none(), "leased");
    pool.park(it, 10);
    assert!(pool.is_parked(it));
    assert_eq!((pool.counts(1).leased, pool.counts(1).parked), (1, 1));
    assert!(pool.unpark(it) && !pool.unpark(it) && !pool.is_parked(it));
    pool.park(it, 10);
    assert_eq!((pool.unpark_fullest(1), pool.unpark(it)), (Some(it), false));
    pool.park(it, 10);
    pool.pin(it);
    pool.forget(it, 7);
    assert!(!pool.unpark(it) && pool.unpark_fullest(1).is_none(), "all in it was deleted");
    pool.recall(it);
    assert!(!pool.is_parked(it), "somebody writes there");
    pool.park(it, 10);
    assert_eq!(pool.counts(1).parked, 1);
    // Zones of nobody, and such as do not hold data, are never parked.
    let (mut pool, report) = self::pool();
    assert!(report.iter().all(|zone| !pool.unpark(zone.id) && !pool.is_parked(zone.id)));
}

#[test]
fn the_fullest_parked_zone_is_the_one_with_the_least_room() {
    let report: Vec<Zone> = (0..4).map(|n| zone(n, ZoneState::Empty)).collect();
    let mut pool = Pool::new(&report, &[1, 1, 1, 2], &[keeping(0), keeping(0)]);
    [1, 2].into_iter().for_each(|owner| pool.adoption_done(owner, &report));
    for owner in [1, 1, 1, 2] {
        assert!(matches!(pool.take(owner, Urgency::User), Take::Empty(_)));
    }
    [(0, 30), (1, 10), (2, 10), (3, 1)].into_iter().for_each(|(n, room)| pool.park(ZoneId(n), room));
    let fullest: Vec<_> = std::iter::from_fn(|| pool.unpark_fullest(1)).collect();
    assert_eq!(fullest, [1, 2, 0].map(ZoneId), "and none of the other tenant's");
    assert_eq!(pool.counts(2).parked, 1);
}

#[test]
fn a_forgotten_zone_that_has_died_is_dead() {
    let mut pool = one_leased();
    pool.forget(ZoneId(0), 7);
    assert!(pool.free_forgotten(ZoneId(0), 7, true));
    assert_eq!((pool.counts(1).leased, pool.counts(1).dead, pool.next_dirty()), (0, 1, None));
}

#[test]
fn only_leased_zones_can_be_forgotten() {
    let states: [fn() -> Pool; 5] = [
        || pool().0,
        || {
            let mut pool = one_leased();
            released(&mut pool, ZoneId(0), false);
            pool
        },
        || {
            let mut pool = one_leased();
            released(&mut pool, ZoneId(0), true);
            pool
        },
        || {
            let mut pool = one_leased();
            released(&mut pool, ZoneId(0), false);
            pool.next_dirty();
            pool
        },
        || {
            let mut pool = one_leased();
            released(&mut pool, ZoneId(0), false);
            assert_eq!(pool.take(1, Urgency::User), Take::Reset(ZoneId(0)));
            pool
        },
    ];
    for make in states {
        let forget = || make().forget(ZoneId(0), 0);
        assert!(std::panic::catch_unwind(forget).is_err());
    }
}

/// Half of it, rounded down, is for metadata alone.
fn keeping(reserve: u32) -> Budget {
    Budget::keeping(reserve / 2, reserve - reserve / 2)
}

/// Two tenants with these reserves, and so many zones that nobody owns.
fn two(unowned: u32, reserves: [u32; 2]) -> Pool {
    two_of(unowned, reserves.map(keeping))
}

/// Two tenants with these budgets, and so many zones that nobody owns.
fn two_of(unowned: u32, budgets: [Budget; 2]) -> Pool {
    let report: Vec<_> = (0..unowned).map(|i| zone(i, ZoneState::Empty)).collect();
    let mut pool = Pool::new(&report, &vec![label::NOBODY; unowned as usize], &budgets);
    (1..=2).for_each(|owner| pool.adoption_done(owner, &report));
    pool
}

/// A zone as the volume gets it; `None`: there is none.
fn get(pool: &mut Pool, owner: u8, urgency: Urgency) -> Option<ZoneId> {
    loop {
        match pool.take(owner, urgency) {
            Take::Empty(zone) => return Some(zone),
            Take::Reset(zone) => {
                pool.reset_done(zone, true);
                return Some(zone);
            }
            Take::Claim(zones) => pool.claim_done(&zones, owner, true),
            Take::Wait => panic!("nobody else is at work"),
            Take::NoSpace => return None,
        }
    }
}

#[test]
fn a_batch_that_is_on_its_way_into_the_label_is_nobody_elses() {
    let mut pool = two(20, [0, 0]);
    let Take::Claim(first) = pool.take(1, Urgency::User) else { panic!() };
    let Take::Claim(second) = pool.take(2, Urgency::User) else { panic!() };
    assert!(first.iter().all(|zone| !second.contains(zone)), "{first:?} {second:?}");
    assert_eq!(pool.take(1, Urgency::User), Take::Wait, "for its own claim, not with another one");
    assert!(pool.is_changing(1));
    pool.claim_done(&second, 2, true);
    pool.claim_done(&first, 1, false);
    assert!(!pool.is_changing(1));
    let Take::Claim(again) = pool.take(1, Urgency::User) else { panic!() };
    assert_eq!(again, first, "what could not be claimed is nobody's");
}

#[test]
fn what_one_has_reserved_and_its_reserve_are_not_for_the_other() {
    let mut pool = two(30, [3, 2]);
    for _ in 0..10 {
        assert!(pool.reserve(1, 0));
    }
    let mut taken = 0;
    while get(&mut pool, 2, Urgency::Metadata).is_some() {
        taken += 1;
    }
    assert_eq!((taken, pool.counts(1).free, pool.counts(2).free), (30 - 10 - 3, 13, 0));
    for _ in 0..10 {
        assert!(get(&mut pool, 1, Urgency::Reserved).is_some());
    }
    assert_eq!(get(&mut pool, 1, Urgency::User), None);
    for _ in 0..3 {
        assert!(get(&mut pool, 1, Urgency::Metadata).is_some());
    }
    assert_eq!(get(&mut pool, 1, Urgency::Metadata), None);
}

#[test]
fn a_reserve_that_was_used_is_not_filled_up_from_the_others() {
    let mut pool = two(6, [3, 3]);
    while get(&mut pool, 1, Urgency::Metadata).is_some() {}
    assert_eq!((pool.counts(1).leased, pool.counts(2).free), (3, 3));
    for _ in 0..3 {
        assert!(get(&mut pool, 2, Urgency::Metadata).is_some());
    }
}

#[test]
fn what_a_dead_process_had_reserved_is_held_until_somebody_asks_for_it() {
    let mut pool = two(10, [1, 1]);
    pool.left_reserved(1, 4);
    while get(&mut pool, 2, Urgency::User).is_some() {}
    assert_eq!((pool.counts(2).leased, pool.counts(1).free), (4, 5));
    for left in (0..4).rev() {
        assert!(get(&mut pool, 1, Urgency::Recovered).is_some());
        assert_eq!(pool.counts(1).reservations, left);
    }
    let mut pool = two(10, [1, 1]);
    pool.left_reserved(1, 4);
    pool.left_reserved(1, 0);
    while get(&mut pool, 2, Urgency::User).is_some() {}
    assert_eq!(pool.counts(2).leased, 8, "they need no zone any more");
}

#[test]
fn each_zone_that_nobody_owns_counts_for_one_tenant_only() {
    for unowned in 0..40 {
        let mut pool = two(unowned, [3, 2]);
        for _ in 0..7 {
            assert_eq!(pool.counts(1).free + pool.counts(2).free + pool.counts(1).leased, unowned);
            get(&mut pool, 1, Urgency::User);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Take(u8, Urgency),
    Behind(u8, u32, usize),
    Reserve(u8, u32),
    EndReservation(u8),
    Forget(prop::sample::Index, u64),
    Pin(prop::sample::Index),
    Unpin(prop::sample::Index),
    Recall(prop::sample::Index),
    Park(prop::sample::Index, u64),
    Unpark(prop::sample::Index),
    Finish(u8),
    /// So many records are durable; whether a zone that is free then has died.
    Durable(u8, u64, bool),
    Clean,
    Reset(prop::sample::Index, bool),
    Claim(prop::sample::Index, bool),
    Left(u8, u32),
}

fn any_op() -> impl Strategy<Value = Op> {
    use Urgency::*;
    let owner = || 1..=2u8;
    let urgency = prop::sample::select(vec![User, Reserved, Recovered, Cleaning, Metadata]);
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (owner(), urgency).prop_map(|(owner, urgency)| Op::Take(owner, urgency)),
        2 => (owner(), 0..40u32, 0..8usize).prop_map(|(owner, last, least)| Op::Behind(owner, last, least)),
        3 => (owner(), 0..4u32).prop_map(|(owner, leave)| Op::Reserve(owner, leave)),
        1 => owner().prop_map(Op::EndReservation),
        4 => (index(), 0..9u64).prop_map(|(which, at)| Op::Forget(which, at)),
        2 => index().prop_map(Op::Pin),
        2 => index().prop_map(Op::Unpin),
        1 => index().prop_map(Op::Recall),
        2 => (index(), 0..9u64).prop_map(|(which, room)| Op::Park(which, room)),
        1 => index().prop_map(Op::Unpark),
        1 => owner().prop_map(Op::Finish),
        4 => (owner(), 0..9u64, prop::bool::weighted(0.1)).prop_map(|(owner, at, dead)| Op::Durable(owner, at, dead)),
        2 => Just(Op::Clean),
        3 => (index(), prop::bool::weighted(0.9)).prop_map(|(which, ok)| Op::Reset(which, ok)),
        4 => (index(), prop::bool::weighted(0.7)).prop_map(|(which, ok)| Op::Claim(which, ok)),
        1 => (owner(), 0..3u32).prop_map(|(owner, zones)| Op::Left(owner, zones)),
    ]
}

prop_compose! {
    fn any_budget()(reserve in 0..4u32, more in 0..8u32, most in prop_oneof![Just(u32::MAX), 0..20u32]) -> Budget {
        let budget = keeping(reserve).at_least(reserve + more);
        budget.at_most(most.max(budget.least))
    }
}

/// What the volume is doing for the two tenants, and what they have.
#[derive(Default)]
struct Doing {
    leased: Vec<(ZoneId, u8)>,
    forgotten: BTreeMap<ZoneId, u64>,
    /// Parked zones: whose, and with how much room.
    parked: BTreeMap<ZoneId, (u8, u64)>,
    /// A zone for each pin.
    pins: Vec<ZoneId>,
    resets: Vec<(ZoneId, u8, bool)>,
    claims: Vec<(Vec<ZoneId>, u8)>,
}

impl Doing {
    fn took(&mut self, pool: &Pool, owner: u8, take: Take) {
        match take {
            Take::Empty(zone) => self.leased.push((zone, owner)),
            Take::Reset(zone) => self.resets.push((zone, owner, true)),
            Take::Claim(zones) => {
                assert!(!zones.is_empty());
                self.claims.push((zones, owner));
            }
            Take::Wait => assert!(pool.is_changing(owner), "nobody would ever wake it"),
            Take::NoSpace => {}
        }
    }

    /// What is forgotten up to this record, and pinned by nobody.
    fn free_at(&self, owner: u8, durable: u64) -> Vec<ZoneId> {
        let forgot = |zone: &ZoneId| self.forgotten.get(zone).is_some_and(|at| *at <= durable);
        let of = |(zone, o): &&(ZoneId, u8)| *o == owner && forgot(zone) && !self.pins.contains(zone);
        let mut free: Vec<ZoneId> = self.leased.iter().filter(of).map(|(zone, _)| *zone).collect();
        free.sort_unstable();
        free
    }

    /// Nobody has what somebody else has.
    fn check(&self, pool: &Pool) {
        let mut all: Vec<u32> = self.leased.iter().map(|(zone, _)| zone.0).collect();
        all.extend(self.resets.iter().map(|(zone, ..)| zone.0));
        all.extend(self.claims.iter().flat_map(|(zones, _)| zones.iter().map(|zone| zone.0)));
        all.extend(pool.unowned.iter());
        let leased = self.leased.len();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n, "a zone is in two hands");
        let counts = [pool.counts(1), pool.counts(2)];
        let leased = leased + self.resets.iter().filter(|(.., lease)| *lease).count();
        assert_eq!(counts[0].leased + counts[1].leased, leased as u32);
        for owner in [1, 2] {
            assert_eq!(counts[usize::from(owner) - 1].forgotten as usize, self.free_at(owner, u64::MAX).len());
            assert!(pool.pinned(owner).iter().all(|zone| self.pins.contains(&ZoneId(*zone))));
            let parked = self.parked.values().filter(|(of, _)| *of == owner).count();
            assert_eq!(counts[usize::from(owner) - 1].parked as usize, parked);
        }
        let free = pool.zones.len() - leased - counts[0].dead as usize;
        let counted = (counts[0].free + counts[1].free) as usize;
        assert!(counted <= free, "each free zone counts once: {counts:?}");
        if pool.tenants.iter().all(|tenant| tenant.budget.most == u32::MAX) {
            assert_eq!(counted, free, "{counts:?}");
        }
        for tenant in &pool.tenants {
            assert!(tenant.owned() <= tenant.budget.most as usize, "more than its most");
        }
        assert!(pool.tenants.iter().map(|tenant| tenant.held).sum::<usize>() <= pool.unowned.len());
    }
}

/// What the tenant can rely on: its reservations and its reserve, as far as they are there.
fn sure(pool: &Pool, owner: u8) -> usize {
    let tenant = &pool.tenants[usize::from(owner) - 1];
    (tenant.own() + tenant.held).min(tenant.kept())
}

/// Of the least that its budget says, how much nobody can take from it.
fn least(pool: &Pool, owner: u8) -> usize {
    let tenant = &pool.tenants[usize::from(owner) - 1];
    (tenant.owned() + tenant.held).min(tenant.budget.least as usize)
}

#[test]
fn zones_below_a_tenants_least_are_not_lent() {
    let mut pool = two_of(20, [keeping(2).at_least(9), keeping(2)]);
    while get(&mut pool, 2, Urgency::Metadata).is_some() {}
    assert_eq!((pool.counts(2).leased, pool.counts(1).free), (20 - 9, 9));
    let mut taken = 0;
    while get(&mut pool, 1, Urgency::Metadata).is_some() {
        taken += 1;
    }
    assert_eq!(taken, 9);
}

#[test]
fn no_tenant_gets_more_than_its_most() {
    let mut pool = two_of(20, [keeping(2), keeping(2).at_most(6)]);
    assert!(pool.reserve(2, 3) && !pool.reserve(2, 3), "six but for two, three and one");
    pool.end_reservation(2);
    assert_eq!(pool.counts(2).free, 6);
    let mut taken = Vec::new();
    while let Some(zone) = get(&mut pool, 2, Urgency::User) {
        taken.push(zone);
    }
    assert_eq!((taken.len(), pool.counts(2).free), (4, 2), "its reserve stays");
    released(&mut pool, taken[0], false);
    assert!(get(&mut pool, 2, Urgency::User).is_some(), "what it gave back it may take again");
    assert_eq!(get(&mut pool, 2, Urgency::User), None);
    let mut others = 0;
    while get(&mut pool, 1, Urgency::Metadata).is_some() {
        others += 1;
    }
    assert_eq!(others, 14);
}

proptest! {
    /// Whatever one tenant does, and however it ends: the other one keeps what it has reserved, its reserve and its least, and can take all that it
    /// has reserved and its reserve. Nobody owns more than its most.
    #[test]
    fn one_tenant_takes_nothing_that_is_for_the_other(
        unowned in 1..40u32,
        budgets in [any_budget(), any_budget()],
        ops in prop::collection::vec(any_op(), 1..150),
    ) {
        let mut pool = two_of(unowned, budgets);
        let mut doing = Doing::default();
        for op in ops {
            let before = [1, 2].map(|owner| (sure(&pool, owner), least(&pool, owner)));
            let whose = match op {
                Op::Take(owner, urgency) => {
                    let take = pool.take(owner, urgency);
                    doing.took(&pool, owner, take);
                    owner
                }
                Op::Behind(owner, last, least) => {
                    let take = pool.take_behind(Some((ZoneId(last), least)), owner, Urgency::User);
                    doing.took(&pool, owner, take);
                    owner
                }
                Op::Reserve(owner, leave) => {
                    let (reservations, kept) = (pool.counts(owner).reservations, sure(&pool, owner));
                    if pool.reserve(owner, leave) {
                        prop_assert_eq!(pool.counts(owner).reservations, reservations + 1);
                        let reserve = pool.counts(owner).reserve;
                        prop_assert_eq!(sure(&pool, owner), (reserve + reservations + 1) as usize);
                    } else {
                        prop_assert_eq!(sure(&pool, owner), kept);
                    }
                    owner
                }
                Op::EndReservation(owner) => { pool.end_reservation(owner); owner }
                Op::Left(owner, zones) => { pool.left_reserved(owner, zones); owner }
                Op::Forget(which, at) if !doing.leased.is_empty() => {
                    let (zone, owner) = *which.get(&doing.leased);
                    pool.forget(zone, at);
                    doing.parked.remove(&zone);
                    let forgot = doing.forgotten.entry(zone).or_insert(at);
                    *forgot = at.max(*forgot);
                    owner
                }
                Op::Pin(which) if !doing.leased.is_empty() => {
                    let (zone, owner) = *which.get(&doing.leased);
                    pool.pin(zone);
                    doing.pins.push(zone);
                    owner
                }
                Op::Unpin(which) if !doing.pins.is_empty() => {
                    let zone = doing.pins.swap_remove(which.index(doing.pins.len()));
                    pool.unpin(zone);
                    pool.zones[zone.0 as usize].0
                }
                Op::Recall(which) if !doing.pins.is_empty() => {
                    let zone = *which.get(&doing.pins);
                    pool.recall(zone);
                    doing.forgotten.remove(&zone);
                    pool.zones[zone.0 as usize].0
                }
                Op::Park(which, room) if !doing.leased.is_empty() => {
                    let (zone, owner) = *which.get(&doing.leased);
                    if !doing.forgotten.contains_key(&zone) {
                        pool.park(zone, room);
                        doing.parked.insert(zone, (owner, room));
                    }
                    owner
                }
                Op::Unpark(which) if !doing.leased.is_empty() => {
                    let (zone, owner) = *which.get(&doing.leased);
                    prop_assert_eq!(pool.unpark(zone), doing.parked.remove(&zone).is_some());
                    owner
                }
                Op::Finish(owner) => {
                    let rooms = doing.parked.iter().filter(|(_, (of, _))| *of == owner);
                    let fullest = rooms.map(|(zone, (_, room))| (*room, *zone)).min().map(|(_, zone)| zone);
                    prop_assert_eq!(pool.unpark_fullest(owner), fullest);
                    doing.parked.retain(|zone, _| Some(*zone) != fullest);
                    owner
                }
                Op::Durable(owner, durable, dead) => {
                    let free = pool.forgotten(owner, durable);
                    prop_assert_eq!(&free, &doing.free_at(owner, durable));
                    for zone in free {
                        prop_assert!(pool.free_forgotten(zone, durable, dead));
                        doing.leased.retain(|(leased, _)| *leased != zone);
                        doing.forgotten.remove(&zone);
                    }
                    owner
                }
                Op::Clean => match pool.next_dirty() {
                    Some(zone) => {
                        let owner = pool.zones[zone.0 as usize].0;
                        doing.resets.push((zone, owner, false));
                        owner
                    }
                    None => continue,
                },
                Op::Reset(which, ok) if !doing.resets.is_empty() => {
                    let (zone, owner, lease) = doing.resets.swap_remove(which.index(doing.resets.len()));
                    pool.reset_done(zone, ok);
                    if ok && lease {
                        doing.leased.push((zone, owner));
                    }
                    owner
                }
                Op::Claim(which, ok) if !doing.claims.is_empty() => {
                    let (zones, owner) = doing.claims.swap_remove(which.index(doing.claims.len()));
                    pool.claim_done(&zones, owner, ok);
                    owner
                }
                _ => continue,
            };
            doing.check(&pool);
            let other = 3 - whose;
            let (kept, owned) = before[usize::from(other) - 1];
            prop_assert!(sure(&pool, other) >= kept && least(&pool, other) >= owned, "{op:?} took what was the other's");
        }
        // What is on its way comes to its end; then each gets all that it can rely on, whoever asks first.
        for (zones, owner) in doing.claims.drain(..) { pool.claim_done(&zones, owner, true); }
        for (zone, ..) in doing.resets.drain(..) { pool.reset_done(zone, true); }
        let sure = [sure(&pool, 1), sure(&pool, 2)];
        while get(&mut pool, 1, Urgency::Metadata).is_some() {}
        for _ in 0..sure[1] {
            prop_assert!(get(&mut pool, 2, Urgency::Metadata).is_some());
        }
    }
}
