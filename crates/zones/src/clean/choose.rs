//! Which zone is cleaned next (SMRSTORE §5.5): pure functions of a look at all that could be.

/// A zone that could be cleaned. `live` and `capacity` count in any unit that is equal for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Which.
    pub zone: u32,
    /// Which life of it.
    pub life: u64,
    /// What lives in it and would have to move.
    pub live: u64,
    /// What cleaning it wins, `live` included.
    pub capacity: u64,
    /// How long nothing has died in it, in any unit that is equal for all.
    pub age: u64,
    /// The part of `live` that is estimated to die from now on, in any time that is equal for all.
    pub rate: f64,
    /// It takes no more writes and can still be read, who knows for how long.
    pub dying: bool,
}

/// A policy: which of these is most worth it. `None`: in none of them is anything dead.
pub type Choose = fn(&[Candidate]) -> Option<Candidate>;

/// The zone to clean: one that is dying, or else the policy's.
fn choose(policy: Choose, candidates: &[Candidate]) -> Option<Candidate> {
    candidates.iter().find(|zone| zone.dying).copied().or_else(|| policy(candidates))
}

/// The zone that is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub zone: u32,
    /// This life of it and no later one.
    pub life: u64,
    /// It takes no more writes: what was moved out of it is made durable at once.
    pub dying: bool,
}

/// A look for a victim.
pub struct Search<'a> {
    /// Only zones that are dying: enough are free.
    pub dying: bool,
    aside: &'a dyn Fn(u32) -> bool,
}

impl<'a> Search<'a> {
    /// One that passes over the zones for which `aside` is true: they gave nothing.
    pub fn new(dying: bool, aside: &'a dyn Fn(u32) -> bool) -> Search<'a> {
        Search { dying, aside }
    }

    /// Whether the zone may be chosen.
    pub fn may(&self, zone: u32) -> bool {
        !(self.aside)(zone)
    }

    /// The policy's choice among these.
    pub fn choose(&self, policy: Choose, candidates: impl Iterator<Item = Candidate>) -> Option<Chosen> {
        let may = |one: &Candidate| self.may(one.zone) && (one.dying || !self.dying);
        let candidates: Vec<Candidate> = candidates.filter(may).collect();
        choose(policy, &candidates).map(|one| Chosen { zone: one.zone, life: one.life, dying: one.dying })
    }
}

fn dead(candidates: &[Candidate]) -> impl Iterator<Item = Candidate> {
    candidates.iter().copied().filter(|zone| zone.live < zone.capacity)
}

/// The zone with the smallest live part.
pub fn greedy(candidates: &[Candidate]) -> Option<Candidate> {
    dead(candidates).min_by_key(|zone| (u128::from(zone.live) << 32) / u128::from(zone.capacity.max(1)))
}

/// The most garbage for what has to be moved, weighed with its age, as log-structured file systems do.
pub fn cost_benefit(candidates: &[Candidate]) -> Option<Candidate> {
    dead(candidates).max_by(|a, b| benefit(a).total_cmp(&benefit(b)))
}

/// The zone whose cleaning would become cheaper the slowest. What is about to die by itself is left alone. Where all dies alike it is [`greedy`].
pub fn lifetime(candidates: &[Candidate]) -> Option<Candidate> {
    dead(candidates).min_by(|a, b| decline(a).total_cmp(&decline(b)).then(a.live.cmp(&b.live)))
}

impl Candidate {
    /// The live part.
    fn part(&self) -> f64 {
        self.live as f64 / self.capacity.max(1) as f64
    }
}

/// How fast the cost to win a block there goes down by itself. The cost is u / (1 - u), with u the live part, which dies at its rate: so it
/// falls by rate * u / (1 - u)^2. This is Lomet and Luo, Efficiently Reclaiming Space in a Log Structured Store, ICDE 2021, for one rate a page.
fn decline(zone: &Candidate) -> f64 {
    zone.rate.max(f64::MIN_POSITIVE) * zone.part() / (1.0 - zone.part()).max(1e-9).powi(2)
}

/// (1 - u) * age / (1 + u), where u is the live part.
fn benefit(zone: &Candidate) -> f64 {
    (1.0 - zone.part()) * (1.0 + zone.age as f64) / (1.0 + zone.part())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(zone: u32, live: u64, age: u64, rate: f64) -> Candidate {
        Candidate { zone, live, capacity: 100, age, rate, ..Candidate::default() }
    }

    #[test]
    fn each_way_has_its_victim() {
        let zones = [zone(1, 40, 1, 0.9), zone(2, 50, 100, 0.5), zone(3, 100, 1 << 30, 0.0), zone(4, 55, 60, 0.1)];
        let chosen = |policy| choose(policy, &zones).map(|zone| zone.zone);
        assert_eq!(chosen(greedy), Some(1));
        assert_eq!(chosen(cost_benefit), Some(2));
        assert_eq!(chosen(lifetime), Some(4), "of the others half is gone soon");
        for policy in [greedy, cost_benefit, lifetime] {
            assert_eq!(choose(policy, &zones[2..3]), None, "nothing is dead in a zone that is all live");
            let dying = Candidate { dying: true, ..zones[2] };
            assert_eq!(choose(policy, &[zones[0], dying]), Some(dying), "it has to go, whatever it costs");
        }
    }

    proptest::proptest! {
        #[test]
        fn where_all_dies_alike_lifetimes_choose_as_greed_does(lives in proptest::collection::vec(0u64..=100, 1..30), rate in 1e-6f64..1e3) {
            let zones: Vec<Candidate> = lives.iter().enumerate().map(|(i, live)| zone(i as u32, *live, i as u64, rate)).collect();
            let live = |policy: Choose| policy(&zones).map(|zone| zone.live);
            proptest::prop_assert_eq!(live(lifetime), live(greedy));
        }
    }
}
