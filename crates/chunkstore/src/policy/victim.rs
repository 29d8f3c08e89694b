//! Which closed zone is cleaned next (SMRSTORE §5.5): the store's names for the [policies](imbrex_zones::clean::choose) of `zones`.

use imbrex_zones::clean::Choose;
use imbrex_zones::clean::choose::{cost_benefit, greedy, lifetime};

/// How the victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningPolicy {
    /// The one with the fewest live blocks: the paper's.
    Greedy,
    /// The most garbage for what has to be moved, weighed with its age, as log-structured file systems do.
    CostBenefit,
    /// The one whose cleaning would become cheaper the slowest, by the [estimated](super::lifetime) remaining lifetime of what lives in it.
    Lifetime,
}

impl CleaningPolicy {
    pub(crate) fn choose(self) -> Choose {
        match self {
            CleaningPolicy::Greedy => greedy,
            CleaningPolicy::CostBenefit => cost_benefit,
            CleaningPolicy::Lifetime => lifetime,
        }
    }
}
