//! Other ways of placing chunks (SMRSTORE §5.4 and §6.3): the paper's strategies one by one, and two imitations.

use imbrex_chunkstore::{Ask, Choice, Fit, OpenZone, Options, place};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a zone is chosen among those that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Round robin, idle zones first: strategy ③.
    RoundRobin,
    /// The store's own way, ④.
    Fit,
    /// At random: the paper's "no optimisation".
    Random,
    /// There is only one: as F2FS does.
    One,
}

/// A way to place chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Strategy ①: kinds of streams do not share zones.
    pub separate: bool,
    /// Strategy ②: the limit of a chunk is what a zone takes; else 64 MiB, or that if it is less.
    pub match_limit: bool,
    /// Strategy ③ or ④, or what is compared with them.
    pub pick: Pick,
    /// Strategy ⑤: zones are taken round the drive.
    pub round: bool,
}

impl Placement {
    /// The store's own.
    pub const OURS: Placement = Placement { separate: true, match_limit: true, pick: Pick::Fit, round: true };
    /// The paper's three strategies.
    pub const STREAMS: Placement =
        Placement { separate: true, match_limit: true, pick: Pick::RoundRobin, round: false };
    /// The paper's "no optimisation": 64 MiB chunks of all kinds, at random over the open zones.
    pub const RANDOM: Placement = Placement { separate: false, match_limit: false, pick: Pick::Random, round: false };
    /// One zone for everything, as F2FS places it.
    pub const ONE_ZONE: Placement = Placement { separate: false, match_limit: true, pick: Pick::One, round: false };

    /// Options of a store that places chunks so.
    pub fn options(self) -> Options {
        let mut options = Options::default();
        if self != Placement::OURS {
            options.placement = Arc::new(Way { placement: self, random: AtomicU64::new(1) });
        }
        if !self.match_limit {
            for stream in &mut options.streams {
                stream.limit = Some(stream.limit.map_or(UNMATCHED, |own| own.min(UNMATCHED)));
            }
        }
        options
    }
}

/// Bytes of a chunk, at most, where its limit does not follow from the zones.
const UNMATCHED: u32 = 64 << 20;

/// A placement at work.
struct Way {
    placement: Placement,
    /// State of the generator; never 0.
    random: AtomicU64,
}

impl imbrex_chunkstore::Placement for Way {
    fn separates(&self) -> bool {
        self.placement.separate
    }

    fn remembers(&self) -> bool {
        self.placement.pick == Pick::Fit
    }

    fn goes_round(&self) -> bool {
        self.placement.round
    }

    fn place(&self, pool: &[OpenZone], ask: Ask, most: usize, free: usize, last: u32) -> Choice {
        match self.placement.pick {
            Pick::RoundRobin | Pick::Fit => Fit.place(pool, ask, most, free, last),
            // Where one may be open, going round is to stay there.
            Pick::One => place(pool, ask, 1, free, last),
            Pick::Random => at_random(pool, ask, most.max(1), free, self.next()),
        }
    }
}

impl Way {
    /// The next random number (xorshift): the same in every run. The store places one chunk at a time.
    fn next(&self) -> u64 {
        let mut random = self.random.load(Ordering::Relaxed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, Ordering::Relaxed);
        random
    }
}

fn at_random(pool: &[OpenZone], ask: Ask, most: usize, free: usize, random: u64) -> Choice {
    if pool.len() < most && free > 0 {
        return Choice::Open;
    }
    let fit: Vec<&OpenZone> = pool.iter().filter(|zone| zone.room >= ask.need).collect();
    match fit.get((random % fit.len().max(1) as u64) as usize) {
        Some(zone) => Choice::Use(zone.zone),
        // None has room: the one with the least is closed.
        None => place(pool, ask, most, free, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_chunkstore::Placement as _;

    fn ask(need: u32) -> Ask {
        Ask { need, expect: None, capacity: 100 }
    }

    fn zone(zone: u32, room: u32, writers: u32) -> OpenZone {
        OpenZone { zone, room, writers, promised: 0 }
    }

    #[test]
    fn one_zone_takes_all_until_it_is_full() {
        let one = Placement::ONE_ZONE.options().placement;
        assert_eq!(one.place(&[zone(3, 90, 40)], ask(10), 55, 9, 0), Choice::Use(3));
        assert_eq!(one.place(&[zone(3, 9, 40)], ask(10), 55, 9, 0), Choice::Replace(3));
        assert_eq!(one.place(&[], ask(10), 55, 9, 0), Choice::Open);
    }

    #[test]
    fn random_chunks_go_anywhere_that_has_room() {
        let pool = [zone(1, 90, 1), zone(4, 9, 0), zone(7, 90, 5)];
        let chosen: Vec<_> = (0..4).map(|random| at_random(&pool, ask(10), 3, 9, random)).collect();
        assert_eq!(chosen, [Choice::Use(1), Choice::Use(7), Choice::Use(1), Choice::Use(7)]);
        assert_eq!(at_random(&pool, ask(10), 4, 9, 0), Choice::Open);
        assert_eq!(at_random(&pool, ask(91), 3, 9, 0), Choice::Replace(4));
        assert_eq!(at_random(&pool, ask(91), 3, 0, 0), Choice::Open, "who asks hears that there is none");
        let way = Way { placement: Placement::RANDOM, random: AtomicU64::new(1) };
        let places: std::collections::BTreeSet<_> =
            (0..32).map(|_| format!("{:?}", way.place(&pool, ask(10), 3, 9, 0))).collect();
        assert_eq!(places.len(), 2);
    }

    #[test]
    fn chunks_are_limited_where_that_does_not_follow_from_the_zones() {
        let limits = |placement: Placement| placement.options().streams.iter().map(|s| s.limit).collect::<Vec<_>>();
        assert_eq!(limits(Placement::OURS), limits(Placement::STREAMS));
        assert_eq!(limits(Placement::RANDOM), [Some(UNMATCHED); 3]);
        let streams = Placement::STREAMS.options().placement;
        assert_eq!((streams.separates(), streams.remembers(), streams.goes_round()), (true, false, false));
        let ours = Placement::OURS.options().placement;
        assert_eq!((ours.separates(), ours.remembers(), ours.goes_round()), (true, true, true));
    }
}
