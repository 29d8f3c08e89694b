//! How long what lives will go on to live: estimated from what has died, by kind of stream and age.
//!
//! As SepBIT infers when a block is invalidated from how long others of its age lived (FAST 2022), for chunks: the part of all
//! live blocks of a kind and an age that dies in a stretch of time. Time is counted in blocks that were written, so that no clock matters. What is known
//! of few deaths leans on what is known of the kind, and that on what its stream is expected to live. What was long ago counts less and less.

/// Ages are told apart by powers of two.
const AGES: usize = 24;
/// The first age ends here, in blocks written.
const FIRST: u64 = 1 << 14;

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

/// What was seen of all kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Deaths {
    kinds: Vec<[Seen; AGES]>,
    /// Of each kind, how often its chunks are expected to die, in proportion to others.
    expected: Vec<f64>,
    /// Blocks of a zone: what a prior weighs is so many deaths.
    zone: f64,
}

fn age_class(age: u64) -> usize {
    ((age / FIRST + 1).ilog2() as usize).min(AGES - 1)
}

impl Deaths {
    /// Of kinds that are expected to live so long, in any unit; zones have `zone` blocks.
    pub fn new(lifetimes: impl IntoIterator<Item = f64>, zone: u32) -> Deaths {
        let expected: Vec<f64> = lifetimes.into_iter().map(|lifetime| 1.0 / lifetime.max(1.0)).collect();
        Deaths { kinds: vec![[Seen::default(); AGES]; expected.len()], expected, zone: f64::from(zone.max(1)) }
    }

    /// Blocks of a kind have died at this age.
    pub fn died(&mut self, kind: usize, age: u64, blocks: u64) {
        if let Some(seen) = self.kinds.get_mut(kind) {
            seen[age_class(age)].died += blocks as f64;
        }
    }

    /// Blocks of a kind and this age have lived for so long.
    pub fn lived(&mut self, kind: usize, age: u64, blocks: u64, time: u64) {
        if let Some(seen) = self.kinds.get_mut(kind) {
            seen[age_class(age)].lived += blocks as f64 * time as f64;
        }
    }

    /// What was seen up to now counts half from here on.
    pub fn fade(&mut self) {
        for seen in self.kinds.iter_mut().flatten() {
            *seen = Seen { died: seen.died / 2.0, lived: seen.lived / 2.0 };
        }
    }

    fn sum<'a>(seen: impl IntoIterator<Item = &'a Seen>) -> Seen {
        let add = |a: Seen, b: &Seen| Seen { died: a.died + b.died, lived: a.lived + b.lived };
        seen.into_iter().fold(Seen::default(), add)
    }

    /// What is estimated of each kind and age, from what was seen so far.
    pub fn rates(&self) -> Rates {
        let all = Self::sum(self.kinds.iter().flatten());
        // Where nothing was seen only proportions count.
        let scale = if all.lived > 0.0 && all.died > 0.0 { all.died / all.lived } else { 1.0 };
        let mean = self.expected.iter().sum::<f64>() / self.expected.len().max(1) as f64;
        let kind = |(seen, expected): (&[Seen; AGES], &f64)| {
            let of_kind = Self::sum(seen).rate(scale * expected / mean, 2.0 * self.zone);
            seen.map(|seen| seen.rate(of_kind, 2.0 * self.zone))
        };
        Rates { kinds: self.kinds.iter().zip(&self.expected).map(kind).collect(), unknown: scale }
    }

    /// One of them, see [`Rates::of`].
    pub fn rate(&self, kind: usize, age: u64) -> f64 {
        self.rates().of(kind, age)
    }
}

/// Estimates at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    kinds: Vec<[f64; AGES]>,
    unknown: f64,
}

impl Rates {
    /// The part of blocks of this kind and age that dies while a block is written: one over what they will live, on average.
    pub fn of(&self, kind: usize, age: u64) -> f64 {
        self.kinds.get(kind).map_or(self.unknown, |ages| ages[age_class(age)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u32 = 1000;
    const LONG: u64 = 1 << 22;

    #[test]
    fn without_deaths_only_what_is_expected_counts() {
        let deaths = Deaths::new([7.0, 60.0, 90.0], ZONE);
        let rate = |kind| deaths.rate(kind, 5);
        assert!(rate(0) > 8.0 * rate(1) && rate(1) > 1.4 * rate(2) && rate(9) == 1.0);
    }

    #[test]
    fn deaths_that_are_seen_outweigh_what_was_expected() {
        let mut deaths = Deaths::new([7.0, 90.0], ZONE);
        for kind in [0, 1] {
            for age in [0, LONG] {
                deaths.lived(kind, age, 100_000, 1_000_000);
                deaths.died(kind, age, 50_000);
            }
        }
        let rates: Vec<f64> = [(0, 0), (0, LONG), (1, 0), (1, LONG)].map(|(kind, age)| deaths.rate(kind, age)).into();
        let (least, most) = rates.iter().fold((f64::MAX, 0f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
        assert!(most < 1.1 * least, "{rates:?}");
    }

    #[test]
    fn what_has_outlived_the_others_is_expected_to_go_on() {
        let mut deaths = Deaths::new([7.0, 7.0], ZONE);
        deaths.lived(0, 0, 100_000, 1_000_000);
        deaths.died(0, 0, 90_000);
        deaths.lived(0, LONG, 100_000, 1_000_000);
        deaths.died(0, LONG, 5_000);
        assert!(deaths.rate(0, 0) > 8.0 * deaths.rate(0, LONG));
        // Of an age that nobody has had the kind's mean is believed.
        let mean = deaths.rate(0, u64::MAX);
        assert!(mean < deaths.rate(0, 0) && mean > deaths.rate(0, LONG));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut deaths = Deaths::new([7.0, 7.0], ZONE);
        deaths.lived(0, 0, 100_000, 1_000_000);
        deaths.died(0, 0, 90_000);
        let before = deaths.rate(0, 0);
        (0..10).for_each(|_| deaths.fade());
        deaths.lived(0, 0, 100_000, 1_000_000);
        assert!(deaths.rate(0, 0) < before / 8.0);
    }

    proptest::proptest! {
        #[test]
        fn a_rate_is_a_number_above_none(seen in proptest::collection::vec((0usize..3, 0u64..u64::MAX, 0u64..1 << 40, 0u64..1 << 40), 0..50)) {
            let mut deaths = Deaths::new([0.0, 60.0], ZONE);
            for (kind, age, blocks, time) in seen {
                deaths.lived(kind, age, blocks, time);
                deaths.died(kind, age / 2, blocks / 3);
                let rate = deaths.rate(kind, age);
                proptest::prop_assert!(rate.is_finite() && rate > 0.0, "{rate}");
            }
        }
    }
}
