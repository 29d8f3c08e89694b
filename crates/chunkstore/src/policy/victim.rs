//! CleaningPolicy: which closed zone is cleaned next (SMRSTORE §5.5).

/// A closed zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub zone: u32,
    /// Blocks of live records.
    pub live: u32,
    /// Blocks of the zone.
    pub capacity: u32,
    /// How long nothing has died in it, in appends.
    pub age: u64,
    /// What is estimated to die of its live blocks from now on, as a part of them in any time that is the same for all.
    pub rate: f64,
}

/// How the victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningPolicy {
    /// The one with the fewest live blocks: the paper's.
    Greedy,
    /// The most garbage for what has to be moved, weighed with its age, as log-structured file systems do.
    CostBenefit,
    /// The one whose cleaning would become cheaper the slowest, by the [estimated](super::lifetime) remaining lifetime of what lives in it: what is
    /// about to die by itself is left alone. Where all dies alike it is the one with the fewest live blocks.
    Lifetime,
}

/// The zone to clean; `None`: in no zone of these is anything dead.
pub fn victim(how: CleaningPolicy, candidates: &[Candidate]) -> Option<u32> {
    let dead = candidates.iter().filter(|zone| zone.live < zone.capacity);
    let best = match how {
        CleaningPolicy::Greedy => {
            dead.min_by_key(|zone| (u64::from(zone.live) << 32) / u64::from(zone.capacity.max(1)))
        }
        CleaningPolicy::CostBenefit => {
            dead.max_by(|a, b| benefit(a, a.age as f64).total_cmp(&benefit(b, b.age as f64)))
        }
        CleaningPolicy::Lifetime => dead.min_by(|a, b| decline(a).total_cmp(&decline(b)).then(a.live.cmp(&b.live))),
    };
    best.map(|zone| zone.zone)
}

/// How fast what it costs to win a block there goes down by itself: that is u / (1 - u), with u the live part, which dies at its
/// rate, so rate * u / (1 - u)^2 (Lomet and Luo, Efficiently Reclaiming Space in a Log Structured Store, ICDE 2021, for one rate a page).
fn decline(zone: &Candidate) -> f64 {
    let live = f64::from(zone.live) / f64::from(zone.capacity.max(1));
    zone.rate.max(f64::MIN_POSITIVE) * live / (1.0 - live).max(1e-9).powi(2)
}

/// (1 - u) * age / (1 + u), where u is the live part.
fn benefit(zone: &Candidate, age: f64) -> f64 {
    let live = f64::from(zone.live) / f64::from(zone.capacity.max(1));
    (1.0 - live) * (1.0 + age) / (1.0 + live)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(zone: u32, live: u32, age: u64, rate: f64) -> Candidate {
        Candidate { zone, live, capacity: 100, age, rate }
    }

    #[test]
    fn each_way_has_its_victim() {
        let zones = [zone(1, 40, 1, 0.9), zone(2, 50, 100, 0.5), zone(3, 100, 1 << 30, 0.0), zone(4, 55, 60, 0.1)];
        assert_eq!(victim(CleaningPolicy::Greedy, &zones), Some(1));
        assert_eq!(victim(CleaningPolicy::CostBenefit, &zones), Some(2));
        assert_eq!(victim(CleaningPolicy::Lifetime, &zones), Some(4), "of the others half is gone soon");
        for how in [CleaningPolicy::Greedy, CleaningPolicy::CostBenefit, CleaningPolicy::Lifetime] {
            assert_eq!(victim(how, &zones[2..3]), None, "nothing is dead in a zone that is all live");
        }
    }

    proptest::proptest! {
        #[test]
        fn where_all_dies_alike_lifetimes_choose_as_greed_does(lives in proptest::collection::vec(0u32..=100, 1..30), rate in 1e-6f64..1e3) {
            let zones: Vec<Candidate> = lives.iter().enumerate().map(|(i, live)| zone(i as u32, *live, i as u64, rate)).collect();
            let live = |how| victim(how, &zones).map(|zone| lives[zone as usize]);
            proptest::prop_assert_eq!(live(CleaningPolicy::Lifetime), live(CleaningPolicy::Greedy));
        }
    }
}
