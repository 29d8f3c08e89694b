//! Victims: which closed zone is cleaned next (SMRSTORE §5.5).

/// A closed zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub zone: u32,
    /// Blocks of live records.
    pub live: u32,
    /// Blocks of the zone.
    pub capacity: u32,
    /// How long nothing has died in it, in appends.
    pub age: u64,
    /// Expected lifetime of its kind of stream, in any unit that is the same for all.
    pub lifetime: u64,
}

/// How the victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The one with the fewest live blocks: the paper's.
    Greedy,
    /// The most garbage for what has to be moved, weighed with its age, as log-structured file systems do.
    CostBenefit,
    /// As that, but the age is measured in the expected lifetime of the stream: what is about to die by itself is left alone.
    Lifetime,
}

/// The zone to clean; `None`: in no zone of these is anything dead.
pub fn victim(how: Victims, candidates: &[Candidate]) -> Option<u32> {
    let dead = candidates.iter().filter(|zone| zone.live < zone.capacity);
    let best = match how {
        Victims::Greedy => dead.min_by_key(|zone| (u64::from(zone.live) << 32) / u64::from(zone.capacity.max(1))),
        Victims::CostBenefit => dead.max_by(|a, b| benefit(a, a.age as f64).total_cmp(&benefit(b, b.age as f64))),
        Victims::Lifetime => {
            let worth = |zone: &Candidate| benefit(zone, zone.age as f64 / zone.lifetime.max(1) as f64);
            dead.max_by(|a, b| worth(a).total_cmp(&worth(b)))
        }
    };
    best.map(|zone| zone.zone)
}

/// (1 - u) * age / (1 + u), where u is the live part.
fn benefit(zone: &Candidate, age: f64) -> f64 {
    let live = f64::from(zone.live) / f64::from(zone.capacity.max(1));
    (1.0 - live) * (1.0 + age) / (1.0 + live)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(zone: u32, live: u32, age: u64, lifetime: u64) -> Candidate {
        Candidate { zone, live, capacity: 100, age, lifetime }
    }

    #[test]
    fn each_way_has_its_victim() {
        let zones = [zone(1, 40, 1, 10), zone(2, 50, 100, 1000), zone(3, 100, 1 << 30, 1), zone(4, 55, 60, 10)];
        assert_eq!(victim(Victims::Greedy, &zones), Some(1));
        assert_eq!(victim(Victims::CostBenefit, &zones), Some(2));
        assert_eq!(victim(Victims::Lifetime, &zones), Some(4), "it has outlived what was expected");
        for how in [Victims::Greedy, Victims::CostBenefit, Victims::Lifetime] {
            assert_eq!(victim(how, &zones[2..3]), None, "nothing is dead in a zone that is all live");
        }
    }
}
