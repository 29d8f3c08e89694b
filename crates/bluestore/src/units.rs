//! Which units of zones are free, and where so many stand together. Nothing here does I/O.
//!
//! Bitmaps in three levels, as BlueStore's allocator has them. The lowest has a bit for each unit of a zone. The next has two for each word of 64 of these: whether any is free, and whether all are. So
//! whoever looks for free units, or for their end, passes over 4,096 at once. On top, zones are listed by the length of their longest free stretch, as a power of two: nobody looks into a zone that
//! has no stretch as long.
//!
//! The choice is next fit: what is written one after the other stands side by side, as long as there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bits of a word.
const WORD: u32 = 64;
/// Lengths of stretches, as powers of two.
const CLASSES: usize = 32;

/// Units of a zone, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Units {
    pub zone: u32,
    pub first: u32,
    pub units: u32,
}

impl Units {
    pub fn range(&self) -> Range<u32> {
        self.first..self.first + self.units
    }
}

/// Units of one zone.
struct Bits {
    /// A bit for each unit that is free; then one for each word of these that has a free one, and one for each that has no other.
    words: Box<[u64]>,
    units: u32,
    free: u32,
    /// No stretch of free units is longer.
    longest: u32,
    /// Nobody gets any of them.
    closed: bool,
}

impl Bits {
    /// All are free.
    fn new(units: u32) -> Bits {
        let (low, high) = Bits::levels(units);
        let mut bits =
            Bits { words: vec![0; low + 2 * high].into_boxed_slice(), units, free: 0, longest: 0, closed: false };
        bits.set(0..units, true);
        bits.longest = units;
        bits
    }

    /// Words of the lowest level, and of each of the two above.
    fn levels(units: u32) -> (usize, usize) {
        let low = units.div_ceil(WORD);
        (low as usize, low.div_ceil(WORD) as usize)
    }

    fn is_free(&self, unit: u32) -> bool {
        unit < self.units && self.words[(unit / WORD) as usize] >> (unit % WORD) & 1 == 1
    }

    /// Changes those of a range that are not so.
    fn set(&mut self, range: Range<u32>, free: bool) {
        let (low, high) = Bits::levels(self.units);
        let end = range.end.min(self.units);
        let mut at = range.start;
        while at < end {
            let (word, to) = ((at / WORD) as usize, end.min((at / WORD + 1) * WORD));
            let ones = to - at;
            let mask = (u64::MAX >> (WORD - ones)) << (at % WORD);
            let was = self.words[word];
            let now = if free { was | mask } else { was & !mask };
            self.words[word] = now;
            self.free = self.free + now.count_ones() - was.count_ones();
            let (above, bit) = (word / WORD as usize, 1u64 << (word % WORD as usize));
            for (level, is) in [(low + above, now != 0), (low + high + above, now == u64::MAX)] {
                if is { self.words[level] |= bit } else { self.words[level] &= !bit }
            }
            at = to;
        }
    }

    /// The first from `from` on that is free, or that is not; `units`, where there is none.
    fn next(&self, from: u32, free: bool) -> u32 {
        if from >= self.units {
            return self.units;
        }
        let (low, high) = Bits::levels(self.units);
        let wanted = |word: u64| if free { word } else { !word };
        let first = wanted(self.words[(from / WORD) as usize]) & (u64::MAX << (from % WORD));
        if first != 0 {
            return (from / WORD * WORD + first.trailing_zeros()).min(self.units);
        }
        // A word that has one.
        let level = if free { low } else { low + high };
        let mut word = from as usize / WORD as usize + 1;
        while word < low {
            let above = wanted(self.words[level + word / WORD as usize]) & (u64::MAX << (word % WORD as usize));
            if above != 0 {
                word = word / WORD as usize * WORD as usize + above.trailing_zeros() as usize;
                break;
            }
            word = (word / WORD as usize + 1) * WORD as usize;
        }
        let Some(bits) = self.words[..low].get(word).map(|word| wanted(*word)) else { return self.units };
        (word as u32 * WORD + bits.trailing_zeros()).min(self.units)
    }

    /// Where the free stretch begins in which a free unit is.
    fn begin_of(&self, unit: u32) -> u32 {
        let mut word = unit / WORD;
        let mut taken = !self.words[word as usize] & !(u64::MAX << (unit % WORD));
        while taken == 0 && word > 0 {
            word -= 1;
            taken = !self.words[word as usize];
        }
        if taken == 0 { 0 } else { word * WORD + WORD - taken.leading_zeros() }
    }

    /// The first stretch of so many from `from` on, or the longest, if none is as long.
    fn find(&self, from: u32, want: u32) -> Range<u32> {
        let (mut longest, mut at) = (0..0, self.next(from, true));
        while at < self.units {
            let end = self.next(at, false);
            if end - at >= want {
                return at..at + want;
            }
            if end - at > longest.end - longest.start {
                longest = at..end;
            }
            at = self.next(end, true);
        }
        longest
    }
}

/// See the module.
pub(crate) struct Allocator {
    /// Units of each zone.
    units: u32,
    zones: BTreeMap<u32, Bits>,
    /// Zones that may have a stretch of so many free units: at least 2 to the power of the place here.
    classes: [BTreeSet<u32>; CLASSES],
    free: u64,
    /// Where the last ones were found.
    last: (u32, u32),
}

impl Allocator {
    /// Of zones of so many units.
    pub fn new(units: u32) -> Allocator {
        Allocator { units, zones: BTreeMap::new(), classes: Default::default(), free: 0, last: (0, 0) }
    }

    /// Bytes of memory that it takes, about.
    #[cfg(test)]
    fn memory(&self) -> u64 {
        // What the heap and the nodes of a tree have beside what is in them.
        let (heap, node) = (16, 3);
        let of = |bits: &Bits| {
            (size_of_val(&*bits.words) + heap + size_of::<(u32, Bits)>() * node / 2 + 4 * node / 2) as u64
        };
        self.zones.values().map(of).sum()
    }

    /// Another zone, all of which is free.
    pub fn add(&mut self, zone: u32) {
        self.remove(zone);
        let bits = Bits::new(self.units);
        self.free += u64::from(bits.free);
        self.zones.insert(zone, bits);
        self.list(zone, 0);
    }

    /// The zone is no more.
    pub fn remove(&mut self, zone: u32) {
        if let Some(bits) = self.zones.remove(&zone) {
            if !bits.closed {
                self.free -= u64::from(bits.free);
            }
            self.classes.iter_mut().for_each(|class| _ = class.remove(&zone));
        }
    }

    /// Nobody gets units of the zone any more.
    pub fn close(&mut self, zone: u32) {
        if let Some(bits) = self.zones.get_mut(&zone)
            && !std::mem::replace(&mut bits.closed, true)
        {
            self.free -= u64::from(bits.free);
            self.classes.iter_mut().for_each(|class| _ = class.remove(&zone));
        }
    }

    pub fn zones(&self) -> impl Iterator<Item = u32> {
        self.zones.keys().copied()
    }

    /// Units that somebody may get.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Units of a zone that are not free.
    pub fn taken(&self, zone: u32) -> u32 {
        self.zones.get(&zone).map_or(0, |bits| bits.units - bits.free)
    }

    /// The zone where the last ones were found.
    pub fn last(&self) -> u32 {
        self.last.0
    }

    pub fn is_free(&self, zone: u32, unit: u32) -> bool {
        self.zones.get(&zone).is_some_and(|bits| bits.is_free(unit))
    }

    /// Which of 64 units, from this multiple of 64 on, are not free.
    pub fn word(&self, zone: u32, word: u32) -> u64 {
        let Some(bits) = self.zones.get(&zone) else { return 0 };
        let rest = bits.units.saturating_sub(word * WORD).min(WORD);
        if rest == 0 { 0 } else { !bits.words[word as usize] & (u64::MAX >> (WORD - rest)) }
    }

    /// These are free no more, whether or not they were.
    pub fn set_taken(&mut self, of: Units) {
        self.change(of, false);
    }

    /// These are free.
    pub fn give(&mut self, of: Units) {
        self.change(of, true);
    }

    fn change(&mut self, of: Units, free: bool) {
        let Some(bits) = self.zones.get_mut(&of.zone) else { return };
        let (was, longest) = (bits.free, bits.longest);
        bits.set(of.range(), free);
        if free && bits.is_free(of.first) {
            let stretch = bits.begin_of(of.first)..bits.next(of.first, false);
            bits.longest = longest.max(stretch.end - stretch.start);
        }
        if !bits.closed {
            self.free = self.free - u64::from(was) + u64::from(bits.free);
            self.list(of.zone, longest);
        }
    }

    /// Lists a zone whose longest stretch had so many units before.
    fn list(&mut self, zone: u32, was: u32) {
        let Some(bits) = self.zones.get(&zone) else { return };
        let class = |longest: u32| longest.checked_ilog2().map(|class| class as usize);
        let (old, new) = (class(was), class(bits.longest));
        if old != new
            && let Some(old) = old
        {
            self.classes[old].remove(&zone);
        }
        if let Some(new) = new {
            self.classes[new].insert(zone);
        }
    }

    /// The zone's longest stretch is known.
    fn measured(&mut self, zone: u32, longest: u32) {
        let Some(bits) = self.zones.get_mut(&zone) else { return };
        let was = std::mem::replace(&mut bits.longest, longest);
        self.list(zone, was);
    }

    /// Takes so many that stand together, the next ones behind those that were taken last. `None`: nowhere do so many.
    pub fn take(&mut self, want: u32) -> Option<Units> {
        let class = want.checked_ilog2()? as usize;
        let mut round = [self.last.0..u32::MAX, 0..self.last.0].into_iter();
        let mut left = round.next()?;
        loop {
            let next = self.classes.get(class..)?.iter().filter_map(|class| class.range(left.clone()).next()).min();
            let Some(zone) = next.copied() else {
                left = round.next()?;
                continue;
            };
            left.start = zone + 1;
            let bits = self.zones.get(&zone)?;
            if bits.longest < want {
                continue;
            }
            let from = if zone == self.last.0 { self.last.1 } else { 0 };
            let mut found = bits.find(from, want);
            if found.len() < want as usize && from > 0 {
                found = bits.find(0, want);
            }
            if found.len() < want as usize {
                self.measured(zone, found.len() as u32);
                continue;
            }
            return Some(self.taken_now(zone, found));
        }
    }

    /// Takes these. False: not all of them are free, or nobody gets any of the zone.
    pub fn take_at(&mut self, of: Units) -> bool {
        let free = self.zones.get(&of.zone).is_some_and(|bits| {
            let end = of.first.checked_add(of.units).filter(|end| *end <= bits.units);
            !bits.closed && bits.is_free(of.first) && end.is_some_and(|end| bits.next(of.first, false) >= end)
        });
        if free {
            self.set_taken(of);
        }
        free
    }

    /// Takes about the longest stretch that there is, of fewer than `want`: a multiple of `step`. `None`: none has as many as `step`.
    pub fn take_part(&mut self, want: u32, step: u32) -> Option<Units> {
        for class in (0..CLASSES).rev() {
            let mut from = 0;
            while let Some(zone) = self.classes[class].range(from..).next().copied() {
                from = zone + 1;
                let found = self.zones.get(&zone)?.find(0, want);
                let len = found.len() as u32;
                if len < want {
                    self.measured(zone, len);
                }
                // Else others of this class may be twice as long, which is no matter.
                let whole = len / step.max(1) * step.max(1);
                if whole > 0 && len.ilog2() as usize >= class.min(want.ilog2() as usize) {
                    return Some(self.taken_now(zone, found.start..found.start + whole));
                }
            }
        }
        None
    }

    fn taken_now(&mut self, zone: u32, found: Range<u32>) -> Units {
        let of = Units { zone, first: found.start, units: found.end - found.start };
        self.set_taken(of);
        self.last = (zone, found.end);
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// The same, as plainly as can be.
    struct Naive(BTreeMap<u32, Vec<bool>>);

    impl Naive {
        fn longest(&self) -> u32 {
            let of = |bits: &Vec<bool>| bits.split(|free| !free).map(<[bool]>::len).max().unwrap_or(0);
            self.0.values().map(of).max().unwrap_or(0) as u32
        }

        fn set(&mut self, of: Units, from: bool) {
            for unit in of.range() {
                let bit = &mut self.0.get_mut(&of.zone).unwrap()[unit as usize];
                assert_eq!(*bit, from, "unit {unit} of {of:?}");
                *bit = !from;
            }
        }

        fn agrees(&self, with: &Allocator) {
            for (zone, bits) in &self.0 {
                let free = bits.iter().filter(|free| **free).count() as u32;
                assert_eq!(with.taken(*zone), bits.len() as u32 - free);
                for (unit, is) in bits.iter().enumerate() {
                    assert_eq!(with.is_free(*zone, unit as u32), *is, "unit {unit} of zone {zone}");
                    let bit = with.word(*zone, unit as u32 / WORD) >> (unit as u32 % WORD) & 1;
                    assert_eq!(bit == 0, *is);
                }
            }
        }
    }

    #[test]
    fn it_is_what_a_plain_list_of_units_is() {
        for seed in 0..60 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // Zones that end in the middle of a word, and of a word of words.
            let units = [1, 63, 64, 65, 200, 4096, 4097, 9001][seed as usize % 8];
            let (mut it, mut naive) = (Allocator::new(units), Naive(BTreeMap::new()));
            let mut had: Vec<Units> = Vec::new();
            for zone in [3, 4, 9] {
                it.add(zone);
                naive.0.insert(zone, vec![true; units as usize]);
            }
            // Fragments: each so manieth is taken for good.
            let every = rng.random_range(2..40);
            for unit in (0..units).step_by(every) {
                let of = Units { zone: 4, first: unit, units: 1 };
                it.set_taken(of);
                naive.set(of, true);
            }
            for _ in 0..400 {
                if rng.random_bool(0.4) && !had.is_empty() {
                    let of = had.swap_remove(rng.random_range(0..had.len()));
                    // A part goes first, sometimes.
                    let head = rng.random_range(1..=of.units);
                    for part in
                        [Units { units: head, ..of }, Units { first: of.first + head, units: of.units - head, ..of }]
                    {
                        it.give(part);
                        naive.set(part, false);
                    }
                    continue;
                }
                let most = rng.random_range(1..=units.min(300));
                let want = rng.random_range(1..=most);
                let (longest, step) = (naive.longest(), rng.random_range(1..=4));
                let taken = match it.take(want) {
                    Some(of) => {
                        assert_eq!(of.units, want);
                        Some(of)
                    }
                    None => {
                        assert!(longest < want, "seed {seed}: {want} of {longest} were not found");
                        let part = it.take_part(want, step);
                        let least = if longest < step { 0 } else { (longest / 2).max(1) };
                        assert!(
                            part.map_or(0, |of| of.units + step - 1) >= least,
                            "seed {seed}: {part:?} of {longest}"
                        );
                        assert!(part.is_none_or(|of| of.units.is_multiple_of(step) && of.units < want));
                        part
                    }
                };
                if let Some(of) = taken {
                    naive.set(of, true);
                    had.push(of);
                }
            }
            naive.agrees(&it);
            let free: usize = naive.0.values().flatten().filter(|free| **free).count();
            assert_eq!(it.free(), free as u64);
        }
    }

    #[test]
    fn what_is_taken_one_after_the_other_stands_side_by_side() {
        let mut it = Allocator::new(1000);
        (5..8).for_each(|zone| it.add(zone));
        let all: Vec<_> = (0..29).map(|_| it.take(100).unwrap()).collect();
        for two in all.windows(2) {
            let (a, b) = (two[0], two[1]);
            assert!((b.zone, b.first) == (a.zone, a.first + 100) || (b.zone, b.first) == (a.zone + 1, 0), "{two:?}");
        }
        // Behind the last ones, and not where something has come free.
        it.give(all[0]);
        assert_eq!(it.take(50), Some(Units { zone: 7, first: 900, units: 50 }));
        assert_eq!(it.take(60), Some(Units { zone: 5, first: 0, units: 60 }));
    }

    #[test]
    fn nobody_gets_units_of_a_zone_that_is_closed_or_gone() {
        let mut it = Allocator::new(100);
        it.add(1);
        it.add(2);
        let of = it.take(10).unwrap();
        it.close(of.zone);
        assert_eq!(it.free(), 100);
        it.give(of);
        assert_eq!((it.free(), it.taken(of.zone)), (100, 0));
        assert_eq!(it.take(100).unwrap().zone, 2);
        assert_eq!((it.take(1), it.take_part(7, 1)), (None, None));
        it.remove(1);
        it.remove(2);
        assert_eq!((it.free(), it.zones().count()), (0, 0));
        it.add(1);
        assert_eq!(it.take(100), Some(Units { zone: 1, first: 0, units: 100 }));
    }

    #[test]
    fn a_terabyte_of_units_of_4_kib_takes_35_mib() {
        for (band, terabytes) in [(80u64 << 20, 1), (256 << 20, 1), (256 << 20, 4)] {
            let zones = (terabytes << 40) / band;
            let mut it = Allocator::new((band / 4096) as u32);
            (0..zones).for_each(|zone| it.add(zone as u32));
            // As fragmented as can be.
            for zone in (0..zones).step_by(97) {
                (0..it.units).step_by(2).for_each(|first| it.set_taken(Units { zone: zone as u32, first, units: 1 }));
            }
            let mib = it.memory() as f64 / terabytes as f64 / f64::from(1 << 20);
            println!("bands of {} MiB: {mib:.1} MiB a TiB", band >> 20);
            assert!(mib <= 35.0, "{mib} MiB");
        }
    }
}
