//! Conventional space: an allocator of fixed-size units over what may be written anywhere.
//!
//! Conventional zones are few, and what is rewritten or small lives there. Space is given out in units of 4 KiB, as contiguous pieces. The allocator lives in memory alone: at mount every engine *adopts*
//! what its metadata refers to, and the rest is free. When freed space may be given out again (not before the record that
//! forgot it is durable) is the caller's business.
//!
//! Invariants:
//! - A piece never crosses the end of a range, so a range is as far as one command may reach.
//! - The same calls in the same order give the same addresses, whatever the machine: crash exploration depends on it.
//! - A unit of a zone that has died ([`ConventionalSpace::retire`]) is never handed out, and is neither free nor counted; what
//!   stands there may be adopted and freed like everything else.
//! - A unit that the allocator gave out, or adopted, is given to nobody else until it is freed.
//!
//! Source: DESIGN §5; extents in conventional zones: BlueFS §4.

/// The unit, in bytes: a block of 4096, or whole blocks of 512. The paper's is 256 KiB (BlueFS §4), of which a file of some bytes would waste nearly all.
pub const UNIT: u64 = 4096;

/// One range of the drive, cut into units.
#[derive(Clone, Debug)]
struct Range {
    start: u64,
    units: u64,
    /// One bit a unit, set when used or retired. Bits behind the last unit are set, so that they are never found free.
    used: Vec<u64>,
    /// First unit and end of what is retired; disjoint, in order.
    retired: Vec<(u64, u64)>,
    /// No unit before this one is free.
    hint: u64,
}

/// Allocator of conventional space. Addresses and lengths are in bytes.
#[derive(Clone, Debug)]
pub struct ConventionalSpace {
    ranges: Vec<Range>,
    free_units: u64,
}

impl ConventionalSpace {
    /// All of `ranges` (start and length in bytes) as free space, in units from each range's start; what is left of a range behind its
    /// last whole unit is not used.
    ///
    /// # Panics
    /// When the ranges overlap or exceed the address space.
    pub fn new(ranges: &[(u64, u64)]) -> Self {
        let mut ranges: Vec<Range> =
            ranges.iter().filter(|(_, len)| *len >= UNIT).map(|&(start, len)| Range::new(start, len / UNIT)).collect();
        ranges.sort_by_key(|r| r.start);
        for pair in ranges.windows(2) {
            assert!(pair[0].end() <= pair[1].start, "ranges of conventional space overlap");
        }
        let free_units = ranges.iter().map(|r| r.units).sum();
        ConventionalSpace { ranges, free_units }
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free_units * UNIT
    }

    /// Bytes that are free or used: whole units only, and none that are retired.
    pub fn total_bytes(&self) -> u64 {
        let live = |r: &Range| r.units - r.retired.iter().map(|(from, to)| to - from).sum::<u64>();
        self.ranges.iter().map(live).sum::<u64>() * UNIT
    }

    /// Never hands out any unit that touches these bytes (a zone that has died) any more; what is used there stays so.
    pub fn retire(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        for range in &mut self.ranges {
            let from = addr.saturating_sub(range.start) / UNIT;
            let to = end.saturating_sub(range.start).div_ceil(UNIT).min(range.units);
            for (from, to) in range.live(from.min(to), to) {
                let free: u64 = (from..to).map(|at| u64::from(range.all(at, 1, false))).sum();
                range.set(from, to - from, true);
                range.retired.push((from, to));
                self.free_units -= free;
            }
            range.retired.sort_unstable();
        }
    }

    /// Takes one contiguous piece of up to `bytes` rounded up to units, and returns its address and length: the lowest free
    /// place where all of it fits, else the longest free piece there is (the lowest of equals). `None` when nothing is free
    /// or `bytes` is 0.
    pub fn alloc(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let wanted = bytes.div_ceil(UNIT);
        if wanted == 0 || self.free_units == 0 {
            return None;
        }
        let mut best = (0, 0, 0);
        for (i, range) in self.ranges.iter_mut().enumerate() {
            let (at, units) = range.find(wanted);
            if units > best.2 {
                best = (i, at, units);
            }
            if units == wanted {
                break;
            }
        }
        let (i, at, units) = best;
        assert!(units > 0, "the count of free units is right");
        self.ranges[i].set(at, units, true);
        self.free_units -= units;
        Some((self.ranges[i].start + at * UNIT, units * UNIT))
    }

    /// Marks a piece used that metadata on the drive refers to. Fails, changing nothing, when it is not whole units of one
    /// range or a part of it is used already: then the metadata is damaged.
    pub fn adopt(&mut self, addr: u64, len: u64) -> Result<(), String> {
        let (i, at, units) = self.locate(addr, len)?;
        let live = self.ranges[i].live(at, at + units);
        if !live.iter().all(|&(from, to)| self.ranges[i].all(from, to - from, false)) {
            return Err(format!("{len} bytes at {addr} of conventional space belong to two owners"));
        }
        for (from, to) in live {
            self.ranges[i].set(from, to - from, true);
            self.free_units -= to - from;
        }
        Ok(())
    }

    /// Gives a piece (or whole units of one) back.
    ///
    /// # Panics
    /// When it is not whole units of one range, or a part of it is free already: going on would give the same space to two
    /// owners.
    pub fn free(&mut self, addr: u64, len: u64) {
        let (i, at, units) = match self.locate(addr, len) {
            Ok(found) => found,
            Err(why) => panic!("cannot free: {why}"),
        };
        assert!(self.ranges[i].all(at, units, true), "{len} bytes at {addr} of conventional space are freed twice");
        for (from, to) in self.ranges[i].live(at, at + units) {
            self.ranges[i].set(from, to - from, false);
            self.free_units += to - from;
        }
    }

    /// Gives back the units of a piece, also the last one where it ends in its middle; but not the first one where it begins
    /// in its middle, since somebody keeps the front of that. Units are counted from the beginning of their range.
    ///
    /// # Panics
    /// As [`ConventionalSpace::free`].
    pub fn free_behind(&mut self, addr: u64, len: u64) {
        let start = match self.ranges.partition_point(|r| r.start <= addr).checked_sub(1) {
            Some(i) => self.ranges[i].start,
            None => 0,
        };
        let offset = addr.saturating_sub(start);
        let (from, to) = (offset.next_multiple_of(UNIT), (offset + len).next_multiple_of(UNIT));
        if from < to {
            self.free(start + from, to - from);
        }
    }

    /// Index of the range, first unit and number of units of a piece.
    fn locate(&self, addr: u64, len: u64) -> Result<(usize, u64, u64), String> {
        let outside = || format!("{len} bytes at {addr} are not in conventional space");
        let i = self.ranges.partition_point(|r| r.start <= addr).checked_sub(1).ok_or_else(outside)?;
        let range = &self.ranges[i];
        let offset = addr - range.start;
        if offset.checked_add(len).is_none_or(|end| end > range.units * UNIT) {
            return Err(outside());
        }
        if len == 0 || !offset.is_multiple_of(UNIT) || !len.is_multiple_of(UNIT) {
            return Err(format!("{len} bytes at {addr} of conventional space are not whole units of {UNIT} bytes"));
        }
        Ok((i, offset / UNIT, len / UNIT))
    }
}

impl Range {
    fn new(start: u64, units: u64) -> Self {
        let words = usize::try_from(units.div_ceil(64)).expect("a bitmap that fits memory");
        let mut range = Range { start, units, used: vec![0; words], retired: Vec::new(), hint: 0 };
        if let (Some(last), tail @ 1..) = (range.used.last_mut(), units % 64) {
            *last = !0 << tail;
        }
        range
    }

    /// What of the units `from..to` is not retired, in order.
    fn live(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let (mut live, mut at) = (Vec::new(), from);
        for &(dead, alive) in self.retired.iter().filter(|(dead, alive)| *dead < to && *alive > from) {
            live.extend((at < dead).then_some((at, dead)));
            at = alive;
        }
        live.extend((at < to).then_some((at, to)));
        live
    }

    fn end(&self) -> u64 {
        self.units
            .checked_mul(UNIT)
            .and_then(|len| len.checked_add(self.start))
            .expect("a range within the address space")
    }

    /// The first free run of `wanted` units, cut to them; else the longest free run (the first of equals, maybe 0 units).
    fn find(&mut self, wanted: u64) -> (u64, u64) {
        self.hint = self.next(self.hint, self.units, false);
        let (mut at, mut best) = (self.hint, (0, 0));
        while at < self.units {
            let end = self.next(at, self.units.min(at.saturating_add(wanted)), true);
            if end - at > best.1 {
                best = (at, end - at);
            }
            if best.1 == wanted {
                break;
            }
            at = self.next(end, self.units, false);
        }
        best
    }

    /// The first unit of `from..to` that is used (or free), or `to`. It looks no further: a drive has millions.
    fn next(&self, from: u64, to: u64, used: bool) -> u64 {
        let mut word = (from / 64) as usize;
        let mut mask = !0u64 << (from % 64);
        while (word as u64) < to.div_ceil(64)
            && let Some(&bits) = self.used.get(word)
        {
            let hits = if used { bits } else { !bits } & mask;
            if hits != 0 {
                return (word as u64 * 64 + u64::from(hits.trailing_zeros())).min(to);
            }
            mask = !0;
            word += 1;
        }
        to
    }

    /// Whether all of these units are used (or all are free).
    fn all(&self, at: u64, units: u64, used: bool) -> bool {
        self.next(at, at + units, !used) >= at + units
    }

    fn set(&mut self, at: u64, units: u64, used: bool) {
        for unit in at..at + units {
            let bit = 1u64 << (unit % 64);
            let word = &mut self.used[(unit / 64) as usize];
            *word = if used { *word | bit } else { *word & !bit };
        }
        if !used {
            self.hint = self.hint.min(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const U: u64 = UNIT;

    #[test]
    fn takes_the_lowest_place_that_fits_else_the_longest() {
        let mut space = ConventionalSpace::new(&[(0, 10 * U), (100 * U, 20 * U)]);
        assert_eq!(space.total_bytes(), 30 * U);
        assert_eq!(space.alloc(1), Some((0, U)));
        assert_eq!(space.alloc(3 * U - 1), Some((U, 3 * U)));
        // Six are left of the first range: seven fit only the second.
        assert_eq!(space.alloc(7 * U), Some((100 * U, 7 * U)));
        assert_eq!(space.alloc(6 * U), Some((4 * U, 6 * U)));
        // Thirteen are left in one piece.
        assert_eq!(space.alloc(u64::MAX), Some((107 * U, 13 * U)));
        assert_eq!((space.alloc(1), space.free_bytes()), (None, 0));
        // Of holes that are all too small the longest is taken, and the lowest of equals.
        space.free(U, U);
        space.free(4 * U, 2 * U);
        space.free(7 * U, 2 * U);
        assert_eq!(space.alloc(5 * U), Some((4 * U, 2 * U)));
        assert_eq!(space.alloc(5 * U), Some((7 * U, 2 * U)));
        assert_eq!(space.alloc(5 * U), Some((U, U)));
        assert_eq!(space.alloc(0), None);
    }

    #[test]
    fn a_piece_never_crosses_ranges_that_touch() {
        let mut space = ConventionalSpace::new(&[(4 * U, 4 * U), (0, 4 * U)]);
        assert_eq!(space.alloc(8 * U), Some((0, 4 * U)));
        assert_eq!(space.alloc(8 * U), Some((4 * U, 4 * U)));
        assert!(space.adopt(3 * U, 2 * U).is_err());
    }

    #[test]
    fn what_is_less_than_a_unit_is_left_out() {
        let space = ConventionalSpace::new(&[(0, U - 1), (10 * U + 512, 3 * U - 512)]);
        assert_eq!(space.total_bytes(), 2 * U);
        assert_eq!(space.clone().alloc(U), Some((10 * U + 512, U)));
        assert_eq!(ConventionalSpace::new(&[]).alloc(1), None);
    }

    #[test]
    fn adopting_what_makes_no_sense_changes_nothing() {
        let mut space = ConventionalSpace::new(&[(10 * U, 70 * U)]);
        space.adopt(12 * U, 3 * U).unwrap();
        let before = space.free_bytes();
        let bad =
            [(9 * U, U), (79 * U, 2 * U), (80 * U, U), (11 * U, 2 * U), (14 * U, U), (20 * U + 1, U), (20 * U, U + 1)];
        for (addr, len) in bad.into_iter().chain([(20 * U, 0), (u64::MAX - 1, U), (20 * U, u64::MAX), (0, U)]) {
            assert!(space.adopt(addr, len).is_err(), "{addr}+{len}");
            assert_eq!(space.free_bytes(), before);
        }
        space.adopt(11 * U, U).unwrap();
        space.adopt(15 * U, 65 * U).unwrap();
        assert_eq!(space.free_bytes(), U);
    }

    #[test]
    fn units_are_counted_from_the_beginning_of_their_range() {
        let start = U / 2;
        let mut space = ConventionalSpace::new(&[(start, 10 * U)]);
        assert_eq!(space.alloc(4 * U), Some((start, 4 * U)));
        // The file keeps the first unit and a bit of the second.
        space.free_behind(start + U + 5, 2 * U);
        assert_eq!(space.free_bytes(), 8 * U);
        space.free_behind(start + U, 1);
        space.free_behind(start + 1, U / 2);
        assert_eq!(space.free_bytes(), 9 * U);
        space.free_behind(start, U - 7);
        assert_eq!(space.free_bytes(), 10 * U);
    }

    #[test]
    fn what_is_retired_is_never_handed_out_and_may_be_adopted_and_freed() {
        let mut space = ConventionalSpace::new(&[(0, 10 * U), (100 * U, 4 * U)]);
        assert_eq!(space.alloc(3 * U), Some((0, 3 * U)));
        space.retire(2 * U + 1, 2 * U);
        space.retire(3 * U, U);
        assert_eq!((space.total_bytes(), space.free_bytes()), (11 * U, 9 * U));
        assert_eq!(space.alloc(4 * U), Some((5 * U, 4 * U)), "behind it");
        // In use when it died, and partly in it.
        space.free(0, 3 * U);
        assert_eq!(space.free_bytes(), 7 * U);
        space.adopt(U, 4 * U).unwrap();
        assert!(space.adopt(U, 4 * U).is_err(), "its live part belongs to somebody");
        space.free(U, 4 * U);
        assert_eq!(space.alloc(4 * U), Some((100 * U, 4 * U)));
        assert_eq!(space.alloc(4 * U), Some((0, 2 * U)));
        space.retire(0, u64::MAX);
        assert_eq!((space.total_bytes(), space.free_bytes(), space.alloc(U)), (0, 0, None));
        space.free(100 * U, 4 * U);
        assert_eq!((space.free_bytes(), space.alloc(U)), (0, None));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_caught() {
        let mut space = ConventionalSpace::new(&[(0, 10 * U)]);
        let (addr, len) = space.alloc(2 * U).unwrap();
        space.free(addr, U);
        space.free(addr, len);
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn overlapping_ranges_are_caught() {
        ConventionalSpace::new(&[(0, 10 * U), (9 * U, 10 * U)]);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Alloc(u64),
        Adopt(u64, u64),
        Free(prop::sample::Index),
        FreePart(prop::sample::Index),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..40 * U).prop_map(Op::Alloc),
            2 => (0..300u64, 1..9u64).prop_map(|(a, n)| Op::Adopt(a, n)),
            3 => any::<prop::sample::Index>().prop_map(Op::Free),
            1 => any::<prop::sample::Index>().prop_map(Op::FreePart),
        ]
    }

    /// The model: one bool a unit, and the rules written as plainly as they read.
    struct Model {
        units: Vec<(u64, usize, bool)>,
    }

    impl Model {
        fn free_run(&self, from: usize) -> usize {
            let mut n = 0;
            while let Some(&(addr, range, used)) = self.units.get(from + n) {
                if used || range != self.units[from].1 || addr != self.units[from].0 + n as u64 * U {
                    break;
                }
                n += 1;
            }
            n
        }
        fn alloc(&mut self, bytes: u64) -> Option<(u64, u64)> {
            let wanted = bytes.div_ceil(U) as usize;
            let runs: Vec<usize> = (0..self.units.len()).map(|i| self.free_run(i)).collect();
            let longest = runs.iter().copied().max().unwrap_or(0).min(wanted);
            if longest == 0 {
                return None;
            }
            let at = runs.iter().position(|n| *n >= longest)?;
            self.mark(self.units[at].0, longest as u64 * U, true);
            Some((self.units[at].0, longest as u64 * U))
        }
        fn mark(&mut self, addr: u64, len: u64, used: bool) {
            for unit in self.units.iter_mut().filter(|u| u.0 >= addr && u.0 < addr + len) {
                unit.2 = used;
            }
        }
        fn adopt(&mut self, addr: u64, len: u64) -> bool {
            let Some(at) = self.units.iter().position(|u| u.0 == addr) else { return false };
            let ok = (self.free_run(at) as u64) * U >= len;
            if ok {
                self.mark(addr, len, true);
            }
            ok
        }
    }

    proptest! {
        #[test]
        fn behaves_like_the_model(
            gaps in prop::collection::vec((0..3u64, 0..90u64), 1..4),
            ops in prop::collection::vec(any_op(), 1..120),
        ) {
            let (mut at, mut ranges, mut units) = (7 * U, Vec::new(), Vec::new());
            for (i, (gap, n)) in gaps.into_iter().enumerate() {
                at += gap * U;
                ranges.push((at, n * U));
                units.extend((0..n).map(|u| (at + u * U, i, false)));
                at += n * U;
            }
            let (mut space, mut model) = (ConventionalSpace::new(&ranges), Model { units });
            let mut held: Vec<(u64, u64)> = Vec::new();
            for op in ops {
                match op {
                    Op::Alloc(bytes) => {
                        let got = space.alloc(bytes);
                        prop_assert_eq!(got, model.alloc(bytes));
                        held.extend(got);
                    }
                    Op::Adopt(addr, n) => {
                        let ok = model.adopt(addr * U, n * U);
                        prop_assert_eq!(space.adopt(addr * U, n * U).is_ok(), ok);
                        if ok { held.push((addr * U, n * U)); }
                    }
                    Op::Free(which) if !held.is_empty() => {
                        let (addr, len) = held.swap_remove(which.index(held.len()));
                        space.free(addr, len);
                        model.mark(addr, len, false);
                    }
                    Op::FreePart(which) if !held.is_empty() => {
                        // The first half goes, the second is still held.
                        let piece = which.index(held.len());
                        let (addr, len) = held[piece];
                        if len > U {
                            let half = len / U / 2 * U;
                            space.free(addr, half);
                            model.mark(addr, half, false);
                            held[piece] = (addr + half, len - half);
                        }
                    }
                    Op::Free(_) | Op::FreePart(_) => {}
                }
                let free = model.units.iter().filter(|u| !u.2).count() as u64 * U;
                prop_assert_eq!(space.free_bytes(), free);
                prop_assert_eq!(space.total_bytes(), model.units.len() as u64 * U);
            }
            for (addr, len) in held {
                space.free(addr, len);
            }
            prop_assert_eq!(space.free_bytes(), space.total_bytes());
        }
    }
}
