//! Which keys are put into a key-value store, one after the other.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Which keys are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Uniform,
    Sequential,
    /// Zipf with 0.99, scattered over the keys.
    Zipf,
    /// 90 % of puts go to a twentieth of the keys, and to another one after a million.
    Moving,
    /// 90 % of puts go to a tenth of the keys, scattered.
    Fixed,
    /// New keys at the end, and as many are deleted from the beginning.
    Queue,
}

impl Keys {
    pub(super) const ALL: [(Keys, &str); 6] = [
        (Keys::Uniform, "uniform"),
        (Keys::Sequential, "sequential"),
        (Keys::Zipf, "zipf 0.99"),
        (Keys::Moving, "moving hot spot"),
        (Keys::Fixed, "90/10"),
        (Keys::Queue, "queue"),
    ];
}

/// Puts at full size after which a hot spot moves.
const MOVES: u64 = 1_000_000;

/// The keys of a distribution, one after the other.
pub(super) struct Source {
    keys: Keys,
    space: u64,
    moves: u64,
    hot: u64,
    random: ChaCha8Rng,
    /// Sum of the weights of the ranks before this power of two: a rank is drawn by its power, then evenly.
    zipf: Vec<f64>,
}

impl Source {
    pub(super) fn new(keys: Keys, space: u64, scale: u64) -> Source {
        let mut sum = 0.0;
        let power = |from: u64| {
            let to = (from * 2).min(space + 1);
            sum += (from..to).map(|rank| (rank as f64).powf(-0.99)).sum::<f64>();
            sum
        };
        let zipf = (0..).map(|bit| 1u64 << bit).take_while(|from| *from <= space).map(power).collect();
        Source { keys, space, moves: MOVES / scale, hot: 0, random: ChaCha8Rng::seed_from_u64(1), zipf }
    }

    pub(super) fn next(&mut self, at: u64) -> u64 {
        let any = self.random.random_range(0..self.space);
        let often = self.random.random_bool(0.9);
        match self.keys {
            Keys::Uniform => any,
            Keys::Sequential => at % self.space,
            Keys::Queue => self.space + at,
            Keys::Fixed if often => (any % (self.space / 10).max(1)) * 7919 % self.space,
            Keys::Moving => {
                if at.is_multiple_of(self.moves.max(1)) {
                    self.hot = any;
                }
                if often { (self.hot + any % (self.space / 20).max(1)) % self.space } else { any }
            }
            Keys::Fixed => any,
            Keys::Zipf => {
                let drawn = self.random.random_range(0.0..self.zipf.last().copied().unwrap_or(1.0));
                let bit = self.zipf.partition_point(|sum| *sum <= drawn);
                let from = 1u64 << bit;
                let rank = self.random.random_range(from..(from * 2).min(self.space + 1));
                rank.wrapping_mul(2_654_435_761) % self.space
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_what_they_say() {
        let of = |keys| {
            let mut source = Source::new(keys, 1000, 1);
            let mut counts = vec![0u32; 4000];
            (0..3000).for_each(|at| counts[source.next(at) as usize] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        assert!(of(Keys::Sequential)[..1000].iter().all(|count| *count == 3));
        assert!(of(Keys::Queue)[..3000].iter().all(|count| *count == 1));
        assert!(of(Keys::Uniform)[0] < 15);
        assert!(of(Keys::Zipf)[0] > 200, "the first of 1,000 ranks has an eighth");
        assert!(of(Keys::Fixed)[..100].iter().sum::<u32>() > 2600);
        assert!(of(Keys::Moving)[..50].iter().sum::<u32>() > 2600);
    }
}
