//! Placement: which open zone takes the bytes of a chunk that has none (SMRSTORE §5.4).
//!
//! The paper's three strategies can be switched one by one, so that the effect of each can be measured: ① only chunks of one
//! kind of stream share a zone; ② chunks may be as large as a zone; ③ several zones are open at once, and chunks go round them,
//! so that a large chunk mostly has one to itself. Two imitations for comparison: placed at random, and one zone for all.

/// How a zone is chosen among those that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Round robin, idle zones first: strategy ③.
    RoundRobin,
    /// At random: the paper's "no optimisation".
    Random,
    /// There is only one: as F2FS does.
    One,
}

/// How chunks are placed; the default has all three strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Strategy ①: kinds of streams do not share zones.
    pub separate: bool,
    /// Strategy ②: the limit of a chunk is what a zone takes; else 64 MiB, or that if it is less.
    pub match_limit: bool,
    /// Strategy ③, or what is compared with it.
    pub pick: Pick,
}

impl Default for Placement {
    fn default() -> Self {
        Placement { separate: true, match_limit: true, pick: Pick::RoundRobin }
    }
}

impl Placement {
    /// The paper's "no optimisation": 64 MiB chunks of all kinds, at random over the open zones.
    pub const RANDOM: Placement = Placement { separate: false, match_limit: false, pick: Pick::Random };
    /// One zone for everything, as F2FS places it.
    pub const ONE_ZONE: Placement = Placement { separate: false, match_limit: true, pick: Pick::One };
}

/// An open zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// Which.
    pub zone: u32,
    /// Blocks that are left.
    pub room: u32,
    /// Chunks that go on there.
    pub writers: u32,
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

/// Where a chunk's next bytes go, which take `need` blocks. `pool`: the open zones that may take them, ascending by number, those
/// included that are too full. `most`: how many there may be. `free`: how many more can be had. `last`: the zone that was chosen
/// last. `random`: any number.
pub fn place(pick: Pick, pool: &[OpenZone], need: u32, most: usize, free: usize, last: u32, random: u64) -> Choice {
    let fit: Vec<&OpenZone> = pool.iter().filter(|zone| zone.room >= need).collect();
    let most = if pick == Pick::One { 1 } else { most.max(1) };
    if pool.len() < most && free > 0 && !(pick == Pick::RoundRobin && fit.iter().any(|zone| is_idle(zone, pool))) {
        return Choice::Open;
    }
    let chosen = match pick {
        Pick::One => fit.first(),
        Pick::Random => fit.get((random % fit.len().max(1) as u64) as usize),
        // The fewest writers, then the next one behind the last.
        Pick::RoundRobin => fit.iter().min_by_key(|zone| (zone.writers, zone.zone <= last, zone.zone)),
    };
    match chosen {
        Some(zone) => Choice::Use(zone.zone),
        None if pool.len() < most || free == 0 => Choice::Open,
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

    fn zone(zone: u32, room: u32, writers: u32) -> OpenZone {
        OpenZone { zone, room, writers }
    }

    #[test]
    fn chunks_go_round_the_zones_that_have_the_fewest_writers() {
        let pool = [zone(1, 90, 1), zone(4, 90, 1), zone(7, 90, 2), zone(9, 5, 0)];
        let at = |last| place(Pick::RoundRobin, &pool, 10, 4, 9, last, 0);
        assert_eq!(at(0), Choice::Use(1));
        assert_eq!(at(1), Choice::Use(4));
        assert_eq!(at(4), Choice::Use(1), "7 has more writers, 9 no room");
    }

    #[test]
    fn a_chunk_gets_a_zone_of_its_own_while_there_are_any() {
        let pool = [zone(1, 90, 1)];
        assert_eq!(place(Pick::RoundRobin, &pool, 10, 2, 9, 0, 0), Choice::Open);
        assert_eq!(place(Pick::RoundRobin, &pool, 10, 2, 0, 0, 0), Choice::Use(1), "there is no other");
        assert_eq!(place(Pick::RoundRobin, &[zone(1, 90, 0)], 10, 2, 9, 0, 0), Choice::Use(1), "nobody uses that one");
        assert_eq!(place(Pick::RoundRobin, &pool, 91, 1, 9, 0, 0), Choice::Replace(1));
        assert_eq!(place(Pick::RoundRobin, &pool, 91, 1, 0, 0, 0), Choice::Open, "nothing is closed for nothing");
        assert_eq!(place(Pick::RoundRobin, &[], 91, 1, 0, 0, 0), Choice::Open, "who asks hears that there is none");
    }

    #[test]
    fn one_zone_takes_all_until_it_is_full() {
        assert_eq!(place(Pick::One, &[zone(3, 90, 40)], 10, 55, 9, 0, 0), Choice::Use(3));
        assert_eq!(place(Pick::One, &[zone(3, 9, 40)], 10, 55, 9, 0, 0), Choice::Replace(3));
    }

    #[test]
    fn random_chunks_go_anywhere_that_has_room() {
        let pool = [zone(1, 90, 1), zone(4, 9, 0), zone(7, 90, 5)];
        let chosen: Vec<_> = (0..4).map(|random| place(Pick::Random, &pool, 10, 3, 9, 0, random)).collect();
        assert_eq!(chosen, [Choice::Use(1), Choice::Use(7), Choice::Use(1), Choice::Use(7)]);
        assert_eq!(place(Pick::Random, &pool, 10, 4, 9, 0, 0), Choice::Open);
    }
}
