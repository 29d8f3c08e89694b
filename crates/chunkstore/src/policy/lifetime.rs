//! How long what lives will go on to live: estimated from what has died, by kind of stream and age.
//!
//! As SepBIT infers when a block is invalidated from how long others of its age lived (FAST 2022), for chunks: the part of all
//! live blocks of a kind and an age that dies in a stretch of time. Time is counted in [numbers](Births) that the store gives out, so that no
//! clock matters, and a chunk's serial number says when it was made. What is known of few deaths leans on what is known of the kind, and that on what its
//! stream is expected to live. What was long ago counts less and less.

use std::collections::BTreeMap;

/// Ages are told apart by powers of two.
const AGES: usize = 40;
/// The first age ends here.
const FIRST: u64 = 1 << 6;
/// More groups of chunks of about the same age are not kept of a kind.
const MOST: usize = 256;
/// Groups are joined that are together no more than this part of their age wide.
const WIDE: u64 = 4;
/// What a prior weighs, in zones' worth of deaths.
const PRIOR: f64 = 0.5;
/// Numbers of one mount are those that agree above this bit.
const MOUNT: u32 = 40;

/// When chunks were made, from their serial numbers: numbers of one mount follow each other, those of the next one begin far
/// behind them, and nothing happens in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Births {
    /// From this number on it is this time, and at most as late as where the next one begins.
    mounts: Vec<(u64, u64)>,
}

impl Births {
    /// From serial numbers that there are, and the first one that was not given out yet.
    pub fn new(serials: impl IntoIterator<Item = u64>, next: u64) -> Births {
        let mut mounts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for serial in serials.into_iter().filter(|serial| *serial < next).chain([next]) {
            let (first, last) = mounts.entry(serial >> MOUNT).or_insert((serial, serial));
            (*first, *last) = ((*first).min(serial), (*last).max(serial));
        }
        let mut at = 0u64;
        let begins = mounts.into_values().map(|(first, last)| {
            let begin = (first, at);
            at = at.saturating_add(last - first).saturating_add(1);
            begin
        });
        Births { mounts: begins.collect() }
    }

    /// When it was given out.
    pub fn time(&self, number: u64) -> u64 {
        let after = self.mounts.partition_point(|(first, _)| *first <= number);
        let Some((first, at)) = after.checked_sub(1).and_then(|i| self.mounts.get(i)) else { return 0 };
        let end = self.mounts.get(after).map_or(u64::MAX, |(_, at)| *at);
        at.saturating_add(number - first).min(end)
    }
}

/// What was seen of one kind at one age.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    /// Blocks that died.
    died: f64,
    /// Blocks that were alive, times the time.
    lived: f64,
}

impl Seen {
    /// What died of what lived, with `prior` believed as if it had been seen for as long as `weight` deaths take.
    fn rate(self, prior: f64, weight: f64) -> f64 {
        (self.died + weight) / (self.lived + weight / prior)
    }
}

/// One kind of stream.
#[derive(Clone, Debug, PartialEq)]
struct Kind {
    seen: [Seen; AGES],
    /// Live blocks by when their chunks were made: from this time up to the next one's, ascending.
    living: Vec<(u64, u64)>,
    /// How often its chunks are expected to die, in proportion to others.
    expected: f64,
}

impl Kind {
    fn group(&mut self, born: u64) -> Option<&mut (u64, u64)> {
        let after = self.living.partition_point(|(from, _)| *from <= born);
        self.living.get_mut(after.checked_sub(1)?)
    }

    fn grew(&mut self, born: u64, blocks: u64, now: u64) {
        let newest = self.living.last().map_or(0, |(from, _)| *from);
        if self.living.is_empty() {
            self.living.push((0, 0));
        }
        if born >= newest.saturating_add(FIRST) {
            self.join(now);
            self.living.push((born, 0));
        }
        if let Some((_, live)) = self.group(born) {
            *live = live.saturating_add(blocks);
        }
    }

    /// Joins groups that are so old that it makes no difference, where there are too many.
    fn join(&mut self, now: u64) {
        if self.living.len() < MOST {
            return;
        }
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(MOST);
        let mut ends = self.living.iter().skip(1).map(|(from, _)| *from);
        for (from, live) in &self.living {
            let end = ends.next().unwrap_or(now);
            match joined.last_mut().filter(|last| end.saturating_sub(last.0) <= now.saturating_sub(end) / WIDE) {
                Some(last) => last.1 = last.1.saturating_add(*live),
                None => joined.push((*from, *live)),
            }
        }
        self.living = joined;
    }
}

/// What was seen of all kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Deaths {
    kinds: Vec<Kind>,
    /// Blocks of a zone: what a prior weighs is in proportion to it.
    zone: f64,
    /// Up to here it was counted what lives.
    counted: u64,
}

fn age_class(age: u64) -> usize {
    ((age / FIRST + 1).ilog2() as usize).min(AGES - 1)
}

impl Deaths {
    /// Of kinds that are expected to live so long, in any unit; zones have `zone` blocks.
    pub fn new(lifetimes: impl IntoIterator<Item = f64>, zone: u32, now: u64) -> Deaths {
        let kind = |lifetime: f64| {
            // Wider and wider, so that what lives already may come in any order.
            let ages = std::iter::successors(Some(FIRST), |age| age.checked_add(age / (2 * WIDE)));
            let mut living: Vec<(u64, u64)> = ages.map_while(|age| now.checked_sub(age)).map(|at| (at, 0)).collect();
            living.push((0, 0));
            living.reverse();
            living.dedup();
            Kind { seen: [Seen::default(); AGES], living, expected: 1.0 / lifetime.max(1.0) }
        };
        let kinds = lifetimes.into_iter().map(kind).collect();
        Deaths { kinds, zone: f64::from(zone.max(1)), counted: now }
    }

    /// A chunk of a kind that was made then has so many more blocks.
    pub fn grew(&mut self, kind: usize, born: u64, blocks: u64, now: u64) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.grew(born, blocks, now);
        }
    }

    /// Blocks of a chunk that was made then have died.
    pub fn died(&mut self, kind: usize, born: u64, blocks: u64, now: u64) {
        let Some(kind) = self.kinds.get_mut(kind) else { return };
        kind.seen[age_class(now.saturating_sub(born))].died += blocks as f64;
        if let Some((_, live)) = kind.group(born) {
            *live = live.saturating_sub(blocks);
        }
    }

    /// Counts what has lived since it was counted last: cheap enough for once a zone that is written.
    pub fn count(&mut self, now: u64) {
        let time = now.saturating_sub(std::mem::replace(&mut self.counted, now)) as f64;
        for kind in &mut self.kinds {
            for (from, live) in kind.living.iter().filter(|(_, live)| *live > 0) {
                kind.seen[age_class(now.saturating_sub(*from))].lived += *live as f64 * time;
            }
        }
    }

    /// What was seen up to now counts half from here on.
    pub fn fade(&mut self) {
        for seen in self.kinds.iter_mut().flat_map(|kind| &mut kind.seen) {
            *seen = Seen { died: seen.died / 2.0, lived: seen.lived / 2.0 };
        }
    }

    /// Blocks that live.
    pub fn live(&self) -> u64 {
        self.kinds.iter().flat_map(|kind| &kind.living).fold(0, |sum, (_, live)| sum.saturating_add(*live))
    }

    fn sum<'a>(seen: impl IntoIterator<Item = &'a Seen>) -> Seen {
        let add = |a: Seen, b: &Seen| Seen { died: a.died + b.died, lived: a.lived + b.lived };
        seen.into_iter().fold(Seen::default(), add)
    }

    /// What is estimated of each kind and age, from what was seen so far.
    pub fn rates(&self) -> Rates {
        let all = Self::sum(self.kinds.iter().flat_map(|kind| &kind.seen));
        // Where nothing was seen only proportions count.
        let scale = if all.lived > 0.0 && all.died > 0.0 { all.died / all.lived } else { 1.0 };
        let mean = self.kinds.iter().map(|kind| kind.expected).sum::<f64>() / self.kinds.len().max(1) as f64;
        let weight = PRIOR * self.zone;
        let kind = |kind: &Kind| {
            let of_kind = Self::sum(&kind.seen).rate(scale * kind.expected / mean, weight);
            kind.seen.map(|seen| seen.rate(of_kind, weight))
        };
        Rates { kinds: self.kinds.iter().map(kind).collect(), unknown: scale }
    }
}

/// Estimates at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    kinds: Vec<[f64; AGES]>,
    unknown: f64,
}

impl Rates {
    /// The part of blocks of this kind and age that dies in one of time: one over what they will live, on average.
    pub fn of(&self, kind: usize, age: u64) -> f64 {
        self.kinds.get(kind).map_or(self.unknown, |ages| ages[age_class(age)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u32 = 1000;
    const NOW: u64 = 1 << 24;
    const OLD: u64 = 1 << 20;

    fn deaths(lifetimes: &[f64]) -> Deaths {
        Deaths::new(lifetimes.iter().copied(), ZONE, NOW)
    }

    #[test]
    fn without_deaths_only_what_is_expected_counts() {
        let rates = deaths(&[7.0, 60.0, 90.0]).rates();
        assert!(rates.of(0, 5) > 8.0 * rates.of(1, 5) && rates.of(1, 5) > 1.4 * rates.of(2, 5));
        assert_eq!(rates.of(9, 5), 1.0);
    }

    /// Of a hundred thousand blocks that lived for a million, so many died, of both ages.
    fn seen(deaths: &mut Deaths, kind: usize, young: u64, old: u64) {
        for (age, died) in [(0, young), (OLD, old)] {
            let seen = &mut deaths.kinds[kind].seen[age_class(age)];
            *seen = Seen { died: seen.died + died as f64, lived: seen.lived + 1e11 };
        }
    }

    #[test]
    fn deaths_that_are_seen_outweigh_what_was_expected() {
        let mut deaths = deaths(&[7.0, 90.0]);
        for kind in [0, 1] {
            seen(&mut deaths, kind, 50_000, 50_000);
        }
        let rates = deaths.rates();
        let rates = [(0, 0), (0, OLD), (1, 0), (1, OLD)].map(|(kind, age)| rates.of(kind, age));
        let (least, most) = rates.iter().fold((f64::MAX, 0f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
        assert!(most < 1.1 * least, "{rates:?}");
    }

    #[test]
    fn what_has_outlived_the_others_is_expected_to_go_on() {
        let mut deaths = deaths(&[7.0, 7.0]);
        seen(&mut deaths, 0, 90_000, 5_000);
        let rates = deaths.rates();
        assert!(rates.of(0, 0) > 8.0 * rates.of(0, OLD), "{rates:?}");
        // Of an age that nobody has had the kind's mean is believed.
        let mean = rates.of(0, 1 << 30);
        assert!(mean < rates.of(0, 0) && mean > rates.of(0, OLD));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut deaths = deaths(&[7.0, 7.0]);
        seen(&mut deaths, 0, 90_000, 90_000);
        let before = deaths.rates().of(0, 0);
        (0..10).for_each(|_| deaths.fade());
        seen(&mut deaths, 0, 0, 0);
        let after = deaths.rates().of(0, 0);
        assert!(after < before / 8.0, "{before} {after}");
    }

    /// Chunks of which nine of ten die fast, played through: the estimates are what is true of their ages.
    #[test]
    fn rates_are_those_that_chunks_die_by() {
        let mut deaths = Deaths::new([7.0], ZONE, 0);
        let mut random = 1u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut ends = BTreeMap::new();
        let (fast, slow) = (1.0 / 2_000.0, 1.0 / 20_000.0);
        for now in 0..400_000u64 {
            let rate = if next() < 0.9 { fast } else { slow };
            let end = now + 1 + (-next().max(1e-9).ln() / rate) as u64;
            ends.entry(end).or_insert_with(Vec::new).push(now);
            deaths.grew(0, now, 10, now);
            for born in ends.remove(&now).unwrap_or_default() {
                deaths.died(0, born, 10, now);
            }
            if now % 50 == 0 {
                deaths.count(now);
            }
        }
        let rates = deaths.rates();
        for age in [100u64, 700, 1_500, 3_000, 6_000, 12_000, 30_000] {
            let of = |part: f64, rate: f64| part * (-(rate * age as f64)).exp();
            let alive = (of(0.9, fast), of(0.1, slow));
            let truth = (alive.0 * fast + alive.1 * slow) / (alive.0 + alive.1);
            let ratio = rates.of(0, age) / truth;
            assert!((0.6..1.7).contains(&ratio), "{age}: {ratio}");
        }
        assert!(deaths.kinds[0].living.len() <= MOST);
        let live: usize = ends.values().map(Vec::len).sum();
        assert_eq!(deaths.live(), 10 * live as u64);
    }

    #[test]
    fn serial_numbers_of_several_mounts_tell_ages() {
        let mount = |n: u64| n << MOUNT;
        let births = Births::new([mount(3) + 5, mount(1) + 100, mount(3) + 9, mount(1) + 700], mount(9));
        let age = |number| births.time(mount(9) + 20) - births.time(number);
        assert_eq!([mount(9) + 15, mount(9), mount(3) + 9, mount(3) + 5].map(age), [5, 20, 21, 25]);
        assert_eq!([mount(1) + 700, mount(1) + 100, 0].map(age), [26, 626, 626]);
        assert_eq!(births.time(mount(3) + 400), births.time(mount(9)), "nothing is later than what came after it");
        assert_eq!(Births::default().time(7), 0);
    }

    proptest::proptest! {
        #[test]
        fn a_rate_is_a_number_above_none(
            now in 0u64..u64::MAX,
            seen in proptest::collection::vec((0usize..3, 0u64..u64::MAX, 0u64..1 << 40, 0u64..u64::MAX), 0..600)
        ) {
            let mut deaths = Deaths::new([0.0, 60.0], ZONE, now);
            for (kind, born, blocks, at) in seen {
                deaths.grew(kind, born, blocks, at);
                deaths.count(at);
                deaths.died(kind, born / 2, blocks / 3, at);
                let rate = deaths.rates().of(kind, at.saturating_sub(born));
                proptest::prop_assert!(rate.is_finite() && rate > 0.0, "{rate}");
                proptest::prop_assert!(deaths.kinds.iter().all(|kind| kind.living.is_sorted()));
            }
        }

        #[test]
        fn times_ascend_with_numbers(
            known in proptest::collection::vec((0u64..4, 0u64..9), 1..9),
            asked in proptest::collection::vec((0u64..4, 0u64..9), 1..50),
        ) {
            let number = |(mount, n): (u64, u64)| mount << MOUNT | n;
            let births = Births::new(known.into_iter().map(number), number((3, 9)));
            let mut numbers: Vec<u64> = asked.into_iter().map(number).collect();
            numbers.sort_unstable();
            proptest::prop_assert!(numbers.iter().map(|number| births.time(*number)).is_sorted());
        }
    }
}
