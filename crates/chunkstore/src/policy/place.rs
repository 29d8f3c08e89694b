//! Placement: which open zone takes the bytes of a chunk that has none (SMRSTORE §5.4).
//!
//! The paper has three strategies. ① Only chunks of one kind of stream share a zone. ② Chunks may be as large as a zone. ③ Several zones are
//! open at once, and chunks go round them, so that a large chunk mostly has one to itself. Who compares the store with another way
//! brings a [`Placement`].
//!
//! The store's own way, ④, takes the place of ③ once it knows how long chunks become: it keeps room in a zone for that. It knows it from the chunks of that
//! kind that were sealed last ([`Sizes`]). So chunks that fill a zone have one to themselves, even where a shorter one has left most of
//! another zone, and short ones share as few zones as they fit in, which are written in longer turns. Where short ones share zones, these are
//! filled to the end: to cut a chunk there costs nothing, and room that is left costs cleaning. One that grows beyond what was expected of it
//! [leaves](outgrows) them: what dies with one chunk stands together.

/// How chunks are placed. What stands here is the store's own way; who compares it with another one brings that. Whatever is
/// answered, chunks keep their bytes, and any store reads what any other wrote.
pub trait Placement: Send + Sync {
    /// Strategy ①: kinds of streams do not share zones.
    fn separates(&self) -> bool {
        true
    }

    /// Strategy ④: how long chunks become is kept in mind.
    fn remembers(&self) -> bool {
        true
    }

    /// Strategy ⑤: where appends are durable by themselves (write cache off) zones are taken round the drive, the next free one behind the last, so that zones that are open at the same time lie near each other
    /// and the head's ways are short; else the first that is free, which while chunks die is wherever one has.
    fn goes_round(&self) -> bool {
        true
    }

    /// Where a chunk's next bytes go: see [`place`].
    fn place(&self, pool: &[OpenZone], ask: Ask, most: usize, free: usize, last: u32) -> Choice {
        place(pool, ask, most, free, last)
    }
}

/// The store's own way.
pub struct Fit;
impl Placement for Fit {}

/// An open zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// Which.
    pub zone: u32,
    /// Blocks that are left.
    pub room: u32,
    /// Chunks that go on there.
    pub writers: u32,
    /// Blocks that these are still expected to take.
    pub promised: u32,
}

impl OpenZone {
    /// Blocks that nobody is expected to take.
    fn spare(&self) -> u32 {
        self.room.saturating_sub(self.promised)
    }
}

/// Lengths of the chunks of one kind that were sealed last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    ring: Vec<u32>,
    next: usize,
}

impl Sizes {
    /// So many are remembered.
    const MOST: usize = 32;
    /// From so many on something follows from them.
    const ENOUGH: usize = 8;

    /// A chunk was sealed with so many bytes.
    pub fn sealed(&mut self, len: u32) {
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = len,
            None => self.ring.push(len),
        }
        self.next = (self.next + 1) % Self::MOST;
    }

    /// What a chunk that becomes at least `least` bytes long is expected to become, in bytes: of those that did, three of four became as long or
    /// shorter. To split a long one costs more than the room behind a short one. Where none did, it is expected to end there. `None`: too few are known.
    pub fn expected(&self, least: u32) -> Option<u32> {
        if self.ring.len() < Self::ENOUGH {
            return None;
        }
        let mut sorted: Vec<u32> = self.ring.iter().copied().filter(|len| *len >= least).collect();
        sorted.sort_unstable();
        Some(sorted.get((sorted.len() * 3).div_ceil(4).saturating_sub(1)).copied().unwrap_or(least))
    }
}

/// Whether a chunk goes on in another zone while its own has room: it has outgrown what was expected when it began, and what is
/// expected of it now is more than what is left there and more than what it has. The end of the zone would cut it anyway, later; so most of it stands by
/// itself, and its zone is left to short ones. All in blocks: what it `has`, what a chunk is `usual`ly expected to become, what it is expected to take
/// from now on, and what is left of its zone.
pub fn outgrows(has: u32, usual: u32, expect: u32, room: u32) -> bool {
    has >= usual && expect > room && expect >= has
}

/// Chunks so short share zones to the last block.
pub fn shares(expect: u32, capacity: u32) -> bool {
    expect <= capacity / 2
}

/// How many zones a kind may have open that has `open` now, with a share of `share` in `pool`, of which all kinds have `all`: what others
/// leave is lent.
pub fn allowance(open: usize, share: usize, all: usize, pool: usize) -> usize {
    share.max(open + pool.saturating_sub(all))
}

/// What is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Blocks of the next append.
    pub need: u32,
    /// Blocks that the chunk is expected to take from now on, if that is known.
    pub expect: Option<u32>,
    /// Blocks of a zone.
    pub capacity: u32,
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To this zone.
    Use(u32),
    /// To one more that is opened for them.
    Open,
    /// To one that is opened when this one, which has too little room, is closed.
    Replace(u32),
}

/// Where a chunk's next bytes go: where there is room for all that it is expected to become, beside what is expected of others (④); if that
/// is not known, round robin, idle zones first (③). `pool`: the open zones that may take them, ascending by number, those
/// included that are too full. `most`: how many there may be. `free`: how many more can be had. `last`: the zone that was chosen last.
pub fn place(pool: &[OpenZone], ask: Ask, most: usize, free: usize, last: u32) -> Choice {
    let need = ask.need;
    let most = most.max(1);
    let fit: Vec<&OpenZone> = pool.iter().filter(|zone| zone.room >= need).collect();
    if let Some(expect) = ask.expect {
        return place_whole(pool, &fit, Ask { expect: Some(expect.max(need)), ..ask }, most, free);
    }
    if pool.len() < most && free > 0 && !fit.iter().any(|zone| is_idle(zone, pool)) {
        return Choice::Open;
    }
    // The fewest writers, then the next one behind the last.
    match fit.iter().min_by_key(|zone| (zone.writers, zone.zone <= last, zone.zone)) {
        Some(zone) => Choice::Use(zone.zone),
        None if pool.len() < most || free == 0 => Choice::Open,
        None => pool.iter().min_by_key(|zone| (zone.room, zone.zone)).map_or(Choice::Open, |z| Choice::Replace(z.zone)),
    }
}

/// See [`place`]; `fit` are those of the pool that take the next append.
fn place_whole(pool: &[OpenZone], fit: &[&OpenZone], ask: Ask, most: usize, free: usize) -> Choice {
    let expect = ask.expect.unwrap_or(ask.need);
    let whole = fit.iter().filter(|zone| zone.spare() >= expect);
    if let Some(zone) = whole.min_by_key(|zone| (zone.spare(), zone.zone)) {
        return Choice::Use(zone.zone);
    }
    if shares(expect, ask.capacity)
        && let Some(zone) = fit
            .iter()
            .filter(|zone| zone.spare() >= ask.need)
            .max_by_key(|zone| (zone.spare(), std::cmp::Reverse(zone.zone)))
    {
        return Choice::Use(zone.zone);
    }
    // What is left of a zone that nobody writes to is given up: nobody is expected to fit there.
    let idle = pool.iter().filter(|zone| zone.writers == 0).min_by_key(|zone| (zone.room, zone.zone));
    if let Some(zone) = idle.filter(|_| free > 0) {
        return Choice::Replace(zone.zone);
    }
    if free > 0 && pool.len() < most {
        return Choice::Open;
    }
    match fit.iter().max_by_key(|zone| (zone.spare(), zone.room, std::cmp::Reverse(zone.zone))) {
        Some(zone) => Choice::Use(zone.zone),
        None if free == 0 => Choice::Open,
        None => pool.iter().min_by_key(|zone| (zone.room, zone.zone)).map_or(Choice::Open, |z| Choice::Replace(z.zone)),
    }
}

/// Nobody writes to it and it is as empty as any.
fn is_idle(zone: &OpenZone, pool: &[OpenZone]) -> bool {
    zone.writers == 0 && pool.iter().all(|other| other.room <= zone.room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(need: u32) -> Ask {
        Ask { need, expect: None, capacity: 100 }
    }

    fn zone(zone: u32, room: u32, writers: u32) -> OpenZone {
        OpenZone { zone, room, writers, promised: 0 }
    }

    #[test]
    fn chunks_go_round_the_zones_that_have_the_fewest_writers() {
        let pool = [zone(1, 90, 1), zone(4, 90, 1), zone(7, 90, 2), zone(9, 5, 0)];
        let at = |last| place(&pool, ask(10), 4, 9, last);
        assert_eq!(at(0), Choice::Use(1));
        assert_eq!(at(1), Choice::Use(4));
        assert_eq!(at(4), Choice::Use(1), "7 has more writers, 9 no room");
    }

    #[test]
    fn a_chunk_gets_a_zone_of_its_own_while_there_are_any() {
        let pool = [zone(1, 90, 1)];
        assert_eq!(place(&pool, ask(10), 2, 9, 0), Choice::Open);
        assert_eq!(place(&pool, ask(10), 2, 0, 0), Choice::Use(1), "there is no other");
        assert_eq!(place(&[zone(1, 90, 0)], ask(10), 2, 9, 0), Choice::Use(1), "nobody uses that one");
        assert_eq!(place(&pool, ask(91), 1, 9, 0), Choice::Replace(1));
        assert_eq!(place(&pool, ask(91), 1, 0, 0), Choice::Open, "nothing is closed for nothing");
        assert_eq!(place(&[], ask(91), 1, 0, 0), Choice::Open, "who asks hears that there is none");
    }

    #[test]
    fn a_chunk_goes_where_all_of_it_fits_or_to_a_zone_of_its_own() {
        let pool = [zone(1, 90, 0), zone(4, 60, 2), zone(7, 20, 0)];
        let at = |expect, most, free| place(&pool, Ask { need: 4, expect, capacity: 100 }, most, free, 0);
        assert_eq!(at(Some(15), 4, 9), Choice::Use(7), "the fullest that takes it");
        assert_eq!(at(Some(30), 4, 9), Choice::Use(4), "zones are shared by those that fit");
        assert_eq!(at(Some(99), 4, 9), Choice::Replace(7), "nobody writes there, and the least is lost");
        let busy = [zone(4, 60, 2)];
        assert_eq!(place(&busy, Ask { need: 4, expect: Some(99), capacity: 60 }, 4, 9, 0), Choice::Open);
        assert_eq!(place(&busy, Ask { need: 4, expect: Some(99), capacity: 60 }, 1, 9, 0), Choice::Use(4));
        assert_eq!(at(Some(99), 3, 0), Choice::Use(1), "there is no other: where most is left");
        assert_eq!(at(None, 4, 9), Choice::Use(1), "nothing is known: the one that nobody uses");
        let promised = [OpenZone { promised: 50, ..zone(1, 90, 5) }];
        assert_eq!(place(&promised, Ask { need: 4, expect: Some(45), capacity: 60 }, 2, 9, 0), Choice::Open);
        assert_eq!(place(&promised, Ask { need: 4, expect: Some(40), capacity: 60 }, 2, 9, 0), Choice::Use(1));
        assert_eq!(
            place(&[zone(1, 3, 1)], Ask { need: 4, expect: Some(40), capacity: 60 }, 1, 9, 0),
            Choice::Replace(1)
        );
        assert_eq!(place(&[], Ask { need: 4, expect: Some(40), capacity: 60 }, 1, 0, 0), Choice::Open);
    }

    #[test]
    fn short_chunks_fill_their_zones_to_the_end() {
        let ask = |expect| Ask { need: 4, expect: Some(expect), capacity: 100 };
        let pool = [zone(1, 9, 0), zone(4, 30, 0), OpenZone { promised: 20, ..zone(7, 40, 1) }];
        let at = |expect| place(&pool, ask(expect), 4, 9, 0);
        assert_eq!(at(30), Choice::Use(4));
        assert_eq!(at(50), Choice::Use(4), "it is cut where most of it fits");
        assert_eq!(at(51), Choice::Replace(1), "a long one is not");
        let promised = [OpenZone { promised: 20, ..zone(7, 23, 1) }];
        assert_eq!(place(&promised, ask(30), 4, 9, 0), Choice::Open, "others are not cut for it");
    }

    #[test]
    fn a_chunk_that_has_outgrown_its_zone_leaves_it() {
        assert!(outgrows(6, 6, 57, 20));
        assert!(!outgrows(5, 6, 57, 20), "it may still become what was expected");
        assert!(!outgrows(6, 6, 57, 57), "it fits");
        assert!(!outgrows(30, 6, 29, 20), "most of it is there already");
    }

    #[test]
    fn what_a_chunk_becomes_is_known_from_the_last_ones() {
        let mut sizes = Sizes::default();
        (0..7).for_each(|_| sizes.sealed(5));
        assert_eq!(sizes.expected(1), None, "too few");
        sizes.sealed(5);
        assert_eq!(sizes.expected(1), Some(5));
        assert_eq!(sizes.expected(6), Some(6), "none was as long");
        (0..8).for_each(|_| sizes.sealed(100));
        assert_eq!(sizes.expected(1), Some(100), "half are longer");
        (0..22).for_each(|_| sizes.sealed(7));
        assert_eq!(sizes.expected(1), Some(7), "most of them");
        assert_eq!(sizes.expected(8), Some(100), "it is none of those");
        (0..12).for_each(|_| sizes.sealed(7));
        assert_eq!(sizes.expected(8), Some(8), "what was long ago is forgotten");
    }

    #[test]
    fn what_others_leave_of_the_pool_is_lent() {
        assert_eq!(allowance(3, 10, 30, 55), 28);
        assert_eq!(allowance(3, 10, 55, 55), 10, "its own share is its own");
        assert_eq!(allowance(14, 10, 55, 55), 14);
    }

    proptest::proptest! {
        #[test]
        fn a_choice_can_be_carried_out(
            rooms in proptest::collection::vec((0u32..100, 0u32..3, 0u32..100), 0..8), need in 1u32..50, expect in 1u32..100,
            most in 1usize..8, free in 0usize..3, capacity in 1u32..200,
        ) {
            let pool: Vec<OpenZone> = rooms.iter().enumerate()
                .map(|(i, (room, writers, promised))| OpenZone { zone: i as u32, room: *room, writers: *writers, promised: *promised }).collect();
            for expect in [Some(expect), None] {
                match place(&pool, Ask { need, expect, capacity }, most, free, 0) {
                    Choice::Use(zone) => proptest::prop_assert!(pool[zone as usize].room >= need),
                    // It is what the caller hears, too, when there is none.
                    Choice::Open => proptest::prop_assert!(free == 0 || pool.len() < most.max(1)),
                    Choice::Replace(zone) => proptest::prop_assert!(free > 0 && (zone as usize) < pool.len()),
                }
            }
        }
    }
}
