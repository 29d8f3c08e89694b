//! Which zone is emptied into which others while nobody uses the drive: pure functions over what stands in each. The mechanism
//! is [`crate::clean::idle_pack`].
//!
//! A table that was announced as large as a zone gets one of its own, and each compaction ends with one that is shorter: at rest
//! such zones are a fifth of all (docs/experiments.md, bluefs-space). While the drive is busy it would cost more to move each than
//! it is worth, since most of them are deleted soon; those that are left when it is at rest stay for long.
//!
//! The zone with the fewest live bytes is emptied if the others have room for them. So each step frees a zone for the fewest
//! bytes moved, and what has room is filled from the fullest on; where only dead bytes stand in the way, a zone that is half
//! dead goes to an empty one, which then is room for others. Every step leaves one zone less, or one less with dead bytes: it
//! ends. A stretch is a sixteenth of a zone at least where a piece has to be cut, as for files that share zones: with crumbs in
//! each, no zone would be free when its table is deleted.

use crate::policy::cleaning::least_dead;
use crate::policy::share::worth_parking;

/// A zone in which nothing but closed pieces of tables stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The zone.
    pub zone: u32,
    /// Bytes that would have to be moved, headers included.
    pub live: u64,
    /// Bytes that can be written behind them now; 0: nothing is written there any more.
    pub room: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    /// Move all of this zone to the room in others.
    Others(Partial),
    /// Move all of it to an empty zone.
    Empty(Partial),
}

impl Pack {
    /// The zone to empty.
    pub fn victim(&self) -> Partial {
        let (Pack::Others(victim) | Pack::Empty(victim)) = *self;
        victim
    }
}

/// What to do next with these zones of `capacity` bytes, of which a header takes `front`. At most `budget` bytes are moved. `None`:
/// nothing is worth it.
pub fn next(mut zones: Vec<Partial>, capacity: u64, front: u64, budget: u64) -> Option<Pack> {
    // A zone that is nearly full is not worth its reading and writing.
    let most = (capacity / 4 * 3).min(budget);
    let usable = |zone: &Partial| if zone.room < worth_parking(capacity) { 0 } else { zone.room - front };
    let room: u64 = zones.iter().map(usable).sum();
    zones.retain(|zone| zone.live <= most);
    zones.sort_unstable_by_key(|zone| (zone.live, zone.zone));
    if let Some(victim) = zones.iter().find(|zone| zone.live <= room - usable(zone)) {
        return Some(Pack::Others(*victim));
    }
    // Two at least go into one, and neither is only waiting for more.
    let mut dead = zones.iter().filter(|zone| capacity.saturating_sub(zone.live + zone.room) >= least_dead(capacity));
    let (first, second) = (dead.next()?, dead.next()?);
    (first.live + second.live + 2 * front <= capacity.min(budget)).then_some(Pack::Empty(*first))
}

/// Of zones with so much room (room, zone), the one for a piece that takes `need` bytes with its header: the fullest that takes
/// all of it, or the one that takes most, if that is worth a stretch.
pub fn destination(rooms: impl Iterator<Item = (u64, u32)>, need: u64, capacity: u64) -> Option<u32> {
    let rooms: Vec<(u64, u32)> = rooms.collect();
    let whole = rooms.iter().filter(|(room, _)| *room >= need).min();
    let most = || rooms.iter().filter(|(room, _)| *room >= worth_parking(capacity)).max();
    whole.or_else(most).map(|(_, zone)| *zone)
}

/// Bytes that may be moved at rest: a quarter of what is `live`, and a sixteenth of what was `written` to tables since the mount,
/// less what was `moved` so far. So whoever writes and rests in turn pays a sixteenth more at most.
pub fn budget(live: u64, written: u64, moved: u64) -> u64 {
    (live / 4 + written / 16).saturating_sub(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1600;

    fn zones(of: &[(u64, u64)]) -> Vec<Partial> {
        of.iter().enumerate().map(|(i, &(live, room))| Partial { zone: i as u32, live, room }).collect()
    }

    fn pack(of: &[(u64, u64)]) -> Option<(bool, u32)> {
        let pack = next(zones(of), CAPACITY, 4, u64::MAX)?;
        Some((matches!(pack, Pack::Others(_)), pack.victim().zone))
    }

    #[test]
    fn the_least_is_moved_where_others_have_room_for_it() {
        assert_eq!(pack(&[(1000, 600), (300, 1300), (200, 1400)]), Some((true, 2)));
        assert_eq!(pack(&[(1500, 100), (90, 1510)]), Some((true, 1)));
        assert_eq!(pack(&[(1500, 100), (97, 1503)]), None, "with its header it does not fit");
        assert_eq!(pack(&[(1000, 600), (1000, 600), (1000, 600)]), Some((true, 0)), "in two pieces");
        assert_eq!(pack(&[(800, 0)]), None, "there is no other");
        assert_eq!(pack(&[(1201, 0), (400, 1200)]), None, "too much to move");
    }

    #[test]
    fn crumbs_of_room_are_left() {
        assert_eq!(pack(&[(50, 1550), (1501, 99), (1501, 99)]), None);
        let rooms = [(99, 1), (400, 2), (300, 3), (310, 4)];
        let find = |need| destination(rooms.into_iter(), need, CAPACITY);
        assert_eq!((find(99), find(100), find(305), find(1000)), (Some(1), Some(3), Some(4), Some(2)));
        assert_eq!(destination([(99, 1)].into_iter(), 100, CAPACITY), None);
    }

    #[test]
    fn half_dead_zones_go_to_an_empty_one_two_at_least() {
        assert_eq!(pack(&[(700, 0), (800, 0)]), Some((false, 0)));
        assert_eq!(pack(&[(700, 0), (900, 0)]), None, "they do not fit into one");
        assert_eq!(pack(&[(700, 0)]), None);
        assert_eq!(
            pack(&[(1100, 502), (1100, 502)]),
            None,
            "what has many pieces seems to have more bytes than it has"
        );
        assert_eq!(pack(&[(700, 900), (800, 700)]), Some((true, 1)), "the dead one goes to the other");
    }

    #[test]
    fn no_more_is_moved_than_allowed() {
        let some = zones(&[(1000, 600), (300, 1300), (200, 1400)]);
        assert!(next(some.clone(), CAPACITY, 4, 200).is_some());
        assert_eq!(next(some, CAPACITY, 4, 199), None);
        assert_eq!((budget(400, 160, 0), budget(400, 160, 100), budget(0, 0, 1)), (110, 10, 0));
    }

    /// Carries out what is chosen, pieces whole, and says how many zones are left and how much was moved.
    fn settle(mut of: Vec<Partial>) -> (usize, u64) {
        let (mut moved, mut steps, first) = (0, 0, of.len());
        while let Some(pack) = next(of.clone(), CAPACITY, 4, u64::MAX) {
            let victim = pack.victim();
            of.retain(|zone| zone.zone != victim.zone);
            let mut rest = victim.live;
            while rest > 0 {
                let rooms = of.iter().map(|zone| (zone.room, zone.zone));
                match destination(rooms, rest + 4, CAPACITY).filter(|_| matches!(pack, Pack::Others(_))) {
                    Some(zone) => {
                        let into = of.iter_mut().find(|z| z.zone == zone).unwrap();
                        let n = rest.min(into.room - 4);
                        (into.live, into.room, rest) = (into.live + n + 4, into.room - n - 4, rest - n);
                    }
                    None => {
                        assert!(matches!(pack, Pack::Empty(_)), "{rest} bytes have no room: {of:?}");
                        of.push(Partial { zone: 10_000 + steps, live: rest, room: CAPACITY - rest });
                        rest = 0;
                    }
                }
            }
            moved += victim.live;
            steps += 1;
            assert!(steps as usize <= 3 * first, "it does not end");
        }
        (of.len(), moved)
    }

    #[test]
    fn every_choice_can_be_carried_out_and_it_ends() {
        for seed in 0..500u64 {
            let mut n = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: u64| {
                n ^= n << 13;
                n ^= n >> 7;
                n ^= n << 17;
                n % below
            };
            let count = 1 + draw(60);
            let zone = |zone, live, room| Partial { zone, live, room };
            let of: Vec<Partial> = (0..count as u32)
                .map(|i| {
                    let live = 1 + draw(CAPACITY - 4);
                    zone(i, live, if draw(3) == 0 { draw(CAPACITY - live + 1) } else { CAPACITY - live })
                })
                .collect();
            let live: u64 = of.iter().map(|zone| zone.live).sum();
            let (left, moved) = settle(of);
            assert!(moved <= 2 * live, "seed {seed}: {moved} of {live}");
            assert!(left as u64 <= live / (CAPACITY / 2) + count / 2 + 2, "seed {seed}");
        }
    }

    #[test]
    fn what_compactions_leave_is_packed_for_a_twentieth_of_it() {
        // 70 tables that fill a zone, and 36 shorter ones, as db_bench leaves them.
        let short = (0..36).map(|i| 1600 * (i * 37 % 36) / 38);
        let of: Vec<(u64, u64)> = (0..70).map(|_| (1578, 22)).chain(short.map(|n| (n + 4, 1596 - n))).collect();
        let live: u64 = of.iter().map(|(live, _)| live).sum();
        let (left, moved) = settle(zones(&of));
        assert!(left as f64 * 1600.0 <= 1.03 * live as f64, "{left} zones for {live} bytes");
        assert!(moved * 20 <= live * 2, "{moved} of {live}");
    }
}
