//! Where blocks stood that deferred bytes have overwritten, of a store in place. Packing puts the new bytes there again, if that place is free by then. So an object that was written in order stays
//! in order on its disk, however often it is overwritten.
//!
//! A place is a wish. Nothing depends on it: the allocator has the last word, and it gives units only that are durably free ([`Space`](crate::space::Space)). So packing waits until counts were
//! made and are durable ([`Phase`]). What is here is in memory only, of a bounded number of blocks. A block that is not here, or whose place is taken, gets any other.

use crate::blob::{BlobId, Place, Run};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of an object that are dead, and where they stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stood {
    pub onode: u64,
    /// In blocks of the object.
    pub first: u64,
    pub blocks: u32,
    pub place: Place,
}

/// Where blocks of a blob stood that are dead now. `offset`: where the blob is in its object; `before`: what lived of it; `dead`: what is dead now.
pub(crate) fn stood(id: BlobId, offset: u64, before: &[Run], dead: &[(Place, u32)]) -> Vec<Stood> {
    let within = |run: &Run, place: &Place| {
        let at = run.place.filter(|at| (at.zone, at.life) == (place.zone, place.life))?;
        let from = place.block.checked_sub(at.block).filter(|from| *from < run.blocks)?;
        Some(run.first + from)
    };
    let of = |(place, blocks): &(Place, u32)| {
        let first = before.iter().find_map(|run| within(run, place))?;
        Some(Stood { onode: id.onode, first: offset + u64::from(first), blocks: *blocks, place: *place })
    };
    dead.iter().filter_map(of).collect()
}

#[derive(Clone, Copy)]
struct Home {
    /// The last group that has deferred the block.
    group: u64,
    /// `None`: what it has overwritten is not known to be dead yet.
    place: Option<Place>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Homes {
    /// By object and block: those that are deferred.
    of: BTreeMap<(u64, u64), Home>,
    pub phase: Phase,
}

impl Homes {
    /// A group has deferred these blocks of an object. No more than `most` blocks are remembered.
    pub fn expect(&mut self, onode: u64, blocks: Range<u64>, group: u64, most: usize) {
        for block in blocks {
            let full = self.of.len() >= most;
            match self.of.get_mut(&(onode, block)) {
                // What was deferred before had no place, and what that has overwritten has the same home.
                Some(home) => home.group = group,
                None if full => return,
                None => _ = self.of.insert((onode, block), Home { group, place: None }),
            }
        }
    }

    /// These are dead. The last place counts.
    pub fn died(&mut self, stood: &Stood) {
        for n in 0..stood.blocks {
            if let Some(home) = self.of.get_mut(&(stood.onode, stood.first + u64::from(n))) {
                home.place = Some(Place { block: stood.place.block + n, ..stood.place });
            }
        }
    }

    /// Where blocks of an object stood.
    pub fn find(&self, onode: u64, first: u64, blocks: u32) -> Vec<Option<Place>> {
        let place = |n| self.of.get(&(onode, first + u64::from(n))).and_then(|home| home.place);
        (0..blocks).map(place).collect()
    }

    /// What groups before this one have deferred of these blocks gets its places now. Later ones want the same.
    pub fn packed(&mut self, onode: u64, first: u64, blocks: u32, group: u64) {
        for block in first..first + u64::from(blocks) {
            if self.of.get(&(onode, block)).is_some_and(|home| home.group < group) {
                self.of.remove(&(onode, block));
            }
        }
    }

    /// Groups before this one have nothing deferred any more.
    pub fn forget(&mut self, group: u64) {
        self.of.retain(|_, home| home.group >= group);
    }
}

/// Cuts a piece, which begins and ends with grains, where its parts want to stand in different places. Returns how many blocks each part has, and the place that it wants.
pub(crate) fn stretches(homes: &[Option<Place>], grain: u32) -> Vec<(u32, Option<Place>)> {
    let behind = |place: Place, blocks: u32| Place { block: place.block.saturating_add(blocks), ..place };
    let mut all: Vec<(u32, Option<Place>)> = Vec::new();
    for of in homes.chunks(grain.max(1) as usize) {
        let stands = |first: &Place| (0..).zip(of).all(|(n, home)| *home == Some(behind(*first, n)));
        let (blocks, home) = (of.len() as u32, of.first().copied().flatten().filter(stands));
        match all.last_mut() {
            Some((last, wanted)) if wanted.map(|place| behind(place, *last)) == home => *last += blocks,
            _ => all.push((blocks, home)),
        }
    }
    all
}

/// A part of what is to be packed: blocks of an object, and where these stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub onode: u64,
    pub first: u64,
    pub home: Option<Place>,
}

impl Part {
    /// Where another part stands if the object stands in order, as seen from this one.
    fn implies(&self, other: &Part) -> Option<Place> {
        let home = self.home.filter(|_| self.onode == other.onode)?;
        let ways = i64::try_from(other.first).ok()? - i64::try_from(self.first).ok()?;
        let block = i64::from(home.block).checked_add(ways)?;
        Some(Place { block: u32::try_from(block).ok()?, ..home })
    }

    fn agrees(&self, other: &Part) -> bool {
        other.home.is_some() && self.implies(other) == other.home
    }
}

/// Where parts are to go, which are in the order of objects and blocks; `None`: anywhere.
///
/// A way of the head for each is worth it where the object stands in order, so that it stays so. Then its parts have homes as far from one another as they are in the object. Where those
/// beside a part agree with each other it belongs between them, wherever it was. Of what nothing else tells, most of all that is packed together decides.
pub(crate) fn wishes(parts: &[Part]) -> Vec<Option<Place>> {
    let same_zone = |two: &&[Part]| {
        let zone = |part: &Part| part.home.map(|home| home.zone);
        two[0].onode == two[1].onode && zone(&two[0]).is_some() && zone(&two[0]) == zone(&two[1])
    };
    // An object may go on in another zone.
    let pairs = || parts.windows(2).filter(same_zone);
    let in_order = pairs().filter(|two| two[0].agrees(&two[1])).count() * 2 >= pairs().count();
    let wish = |(n, part): (usize, &Part)| {
        let beside = |n: Option<usize>| n.and_then(|n| parts.get(n)).filter(|other| other.onode == part.onode);
        let (left, right) = (beside(n.checked_sub(1)), beside(Some(n + 1)));
        if left.into_iter().chain(right).any(|other| other.agrees(part)) {
            return part.home;
        }
        let between = left.zip(right).filter(|(left, right)| left.agrees(right));
        let implied = between.and_then(|(left, _)| left.implies(part));
        implied.or(part.home.filter(|_| in_order))
    };
    parts.iter().enumerate().map(wish).collect()
}

/// How far a store in place is with packing what has gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Deferred bytes gather.
    #[default]
    Gathers,
    /// Counts are made that wait, so that it is known where those blocks stood that groups up to this one have overwritten.
    Counts { last: u64 },
    /// All up to group `until` has to be durable: then their units are free.
    Settles { last: u64, until: u64 },
    /// Each commit packs some of what groups up to this one have deferred.
    Packs { last: u64 },
}

/// What of the store decides how to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// So much is deferred that it is to be packed.
    pub due: bool,
    /// Changes of counts that wait, and blocks that are stored.
    pub waiting: u64,
    pub stored: u64,
    /// Changes of counts are being made.
    pub counting: bool,
    /// The group that gathers, and the last durable one.
    pub group: u64,
    pub durable: u64,
}

/// What somebody has to do for the next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    Nothing,
    /// Begin to make counts.
    Count,
    /// Make all up to this group durable.
    Sync(u64),
}

/// A pass over the records of blobs is worth it where at least one change waits for so many stored blocks. Such a block takes 5 to 30 bytes of records, so that is at most 2 ms of a disk for each
/// write. Fewer writes go where there is room.
const SPARSE: u64 = 8192;

impl Phase {
    /// Goes on as far as it can. Returns what is to be done then.
    pub fn next(self, now: &Now) -> (Phase, Must) {
        // More may come to the group that gathers, and its counts may wait.
        let last = now.group.saturating_sub(1);
        match self {
            Phase::Gathers if !now.due => (self, Must::Nothing),
            Phase::Gathers if now.waiting > 0 && now.waiting.saturating_mul(SPARSE) >= now.stored => {
                (Phase::Counts { last }, Must::Count)
            }
            Phase::Gathers => Phase::Settles { last, until: last }.next(now),
            Phase::Counts { .. } if now.counting => (self, Must::Nothing),
            Phase::Counts { last } => Phase::Settles { last, until: now.group }.next(now),
            Phase::Settles { until, .. } if now.durable < until => (self, Must::Sync(until)),
            Phase::Settles { last, .. } => (Phase::Packs { last }, Must::Nothing),
            Phase::Packs { .. } => (self, Must::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(zone: u32, block: u32) -> Place {
        Place { zone, block, life: 7 }
    }

    #[test]
    fn dead_blocks_are_those_of_the_object_at_their_places() {
        let id = BlobId { onode: 3, number: 1 };
        let run = |first, blocks, place| Run { first, blocks, place };
        let before = [run(0, 4, Some(at(1, 10))), run(4, 2, None), run(6, 8, Some(at(2, 10)))];
        let dead = [(at(1, 12), 2), (at(2, 10), 1), (at(2, 17), 1), (at(2, 18), 1), (at(9, 10), 1)];
        let of = |first, blocks, place| Stood { onode: 3, first, blocks, place };
        let expected = [of(102, 2, at(1, 12)), of(106, 1, at(2, 10)), of(113, 1, at(2, 17))];
        assert_eq!(stood(id, 100, &before, &dead), expected);
        // Another life of the zone.
        assert_eq!(stood(id, 100, &before, &[(Place { life: 8, ..at(1, 12) }, 2)]), []);
    }

    #[test]
    fn a_block_that_is_overwritten_again_and_again_has_one_home() {
        let mut homes = Homes::default();
        let old = |place| Stood { onode: 1, first: 8, blocks: 4, place };
        // Nobody has deferred it.
        homes.died(&old(at(1, 100)));
        assert_eq!(homes.find(1, 8, 1), [None]);
        homes.expect(1, 9..11, 5, 100);
        homes.expect(1, 9..10, 6, 100);
        homes.died(&old(at(1, 100)));
        homes.expect(1, 9..10, 7, 100);
        assert_eq!(homes.find(1, 8, 4), [None, Some(at(1, 101)), Some(at(1, 102)), None]);
        assert_eq!(homes.find(2, 9, 1), [None]);
        // Of group 7 nothing is packed with group 7.
        homes.packed(1, 8, 4, 7);
        assert_eq!(homes.find(1, 8, 4), [None, Some(at(1, 101)), None, None]);
        homes.died(&old(at(2, 0)));
        assert_eq!(homes.find(1, 9, 1), [Some(at(2, 1))]);
        homes.forget(7);
        assert_eq!(homes.of.len(), 1);
        homes.forget(8);
        assert_eq!(homes.of.len(), 0);
    }

    #[test]
    fn no_more_blocks_are_remembered_than_may_be() {
        let mut homes = Homes::default();
        homes.expect(1, 0..6, 1, 10);
        homes.expect(2, 0..1 << 40, 1, 10);
        assert_eq!(homes.of.len(), 10);
        homes.expect(1, 0..6, 2, 10);
        homes.packed(1, 0, 6, 2);
        assert_eq!(homes.of.len(), 10);
        homes.packed(1, 0, 6, 3);
        assert_eq!(homes.of.len(), 4);
    }

    #[test]
    fn pieces_are_cut_where_their_places_are_not_one() {
        let homes = [None, Some(at(1, 5)), Some(at(1, 6)), Some(at(2, 7)), Some(at(2, 6)), None, None, Some(at(1, 8))];
        let cut =
            [(1, None), (2, Some(at(1, 5))), (1, Some(at(2, 7))), (1, Some(at(2, 6))), (2, None), (1, Some(at(1, 8)))];
        assert_eq!(stretches(&homes, 1), cut);
        // Only a whole grain has a place, and the last may be shorter.
        assert_eq!(stretches(&homes[..7], 2), [(7, None)]);
        assert_eq!(stretches(&homes[1..4], 2), [(2, Some(at(1, 5))), (1, Some(at(2, 7)))]);
        assert_eq!(stretches(&[Some(at(1, 5)), Some(at(1, 6)), Some(at(1, 7))], 2), [(3, Some(at(1, 5)))]);
        assert_eq!(stretches(&[], 1), []);
    }

    #[test]
    fn parts_go_where_the_object_stands_in_order() {
        let part = |onode, first, home| Part { onode, first, home };
        let of = |parts: &[(u64, u64, Option<Place>)]| {
            wishes(&parts.iter().map(|(onode, first, home)| part(*onode, *first, *home)).collect::<Vec<_>>())
        };
        let place = |zone, block| Some(at(zone, block));
        // One alone.
        assert_eq!(of(&[(1, 5, place(1, 9))]), [place(1, 9)]);
        assert_eq!(of(&[]), []);
        // In order, with one that was elsewhere and one of which nothing is known; and an end of a zone.
        let parts = [
            (1, 5, place(1, 105)),
            (1, 20, place(1, 3)),
            (1, 30, place(1, 130)),
            (1, 31, None),
            (1, 40, place(1, 140)),
            (1, 50, place(2, 3)),
            (2, 60, place(2, 13)),
        ];
        let expected = [105, 120, 130, 131, 140].map(|block| place(1, block));
        // Of what stands in one zone most decides where neighbours do not.
        assert_eq!(of(&parts), [None, expected[1], None, expected[3], None, None, None]);
        assert_eq!(of(&parts[4..]), [place(1, 140), place(2, 3), place(2, 13)]);
        let more = [(3, 1, place(1, 1)), (3, 2, place(1, 2)), (3, 3, place(1, 3)), (3, 9, place(1, 9))];
        let all = of(&[&parts[..], &more[..]].concat());
        assert_eq!(all[..5], expected);
        assert_eq!(all[5..], [place(2, 3), place(2, 13), place(1, 1), place(1, 2), place(1, 3), place(1, 9)]);
        // Written at random: they go together, and nowhere else.
        let scattered: Vec<_> = (0..9).map(|n| (1, n * 7, place(1, 500 - n as u32))).collect();
        assert_eq!(of(&scattered), vec![None; 9]);
        // The same numbers in another object, or in another life of the zone, are no order.
        assert_eq!(of(&[(1, 5, place(1, 5)), (1, 6, Some(Place { life: 8, ..at(1, 6) }))]), [None, None]);
        // Before the zone's begin, and behind all.
        let one = part(1, 9, place(1, 2));
        assert_eq!([8, 0, u64::MAX].map(|first| one.implies(&part(1, first, None))), [place(1, 1), None, None]);
    }

    #[test]
    fn what_has_gathered_is_packed_when_its_counts_are_durable() {
        let quiet = Now { due: false, waiting: 9, stored: 100, counting: false, group: 5, durable: 3 };
        assert_eq!(Phase::Gathers.next(&quiet), (Phase::Gathers, Must::Nothing));
        let due = Now { due: true, ..quiet };
        let counts = Phase::Counts { last: 4 };
        assert_eq!(Phase::Gathers.next(&due), (counts, Must::Count));
        assert_eq!(counts.next(&Now { counting: true, ..due }), (counts, Must::Nothing));
        // Counts were made with a later group than those that packing is for.
        let settles = Phase::Settles { last: 4, until: 6 };
        assert_eq!(counts.next(&Now { group: 6, ..due }), (settles, Must::Sync(6)));
        assert_eq!(settles.next(&Now { durable: 5, group: 7, ..due }), (settles, Must::Sync(6)));
        let packs = Phase::Packs { last: 4 };
        assert_eq!(settles.next(&Now { durable: 6, group: 7, ..due }), (packs, Must::Nothing));
        assert_eq!(packs.next(&due), (packs, Must::Nothing));
        // Nothing waits, or so little that a pass over all records is not worth it.
        let at_once = Phase::Settles { last: 4, until: 4 };
        assert_eq!(Phase::Gathers.next(&Now { waiting: 0, ..due }), (at_once, Must::Sync(4)));
        assert_eq!(Phase::Gathers.next(&Now { waiting: 0, durable: 4, ..due }), (packs, Must::Nothing));
        let few = Now { stored: 9 * SPARSE + 1, ..due };
        assert_eq!(Phase::Gathers.next(&few), (at_once, Must::Sync(4)));
        assert_eq!(Phase::Gathers.next(&Now { stored: 9 * SPARSE, ..due }), (counts, Must::Count));
    }
}
