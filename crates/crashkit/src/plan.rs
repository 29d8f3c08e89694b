//! Which crash states a run looks at: the plan, the names of states, and the choice among too many of them.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Environment variable that says for which seeds [`seeds`] goes: how many from 0 on, or `FROM..TO`.
pub const ROUNDS_VARIABLE: &str = "IMBREX_CRASH_ROUNDS";

/// Seeds `0..default`, or those that `IMBREX_CRASH_ROUNDS` says: for tests that a long run can make more of, and for one seed
/// of such a run alone (`48..49`).
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    std::env::var(ROUNDS_VARIABLE).ok().and_then(|rounds| range_of(&rounds)).unwrap_or(0..default)
}

fn range_of(rounds: &str) -> Option<std::ops::Range<u64>> {
    let number = |text: &str| text.trim().parse().ok();
    match rounds.split_once("..") {
        Some((from, to)) => Some(number(from)?..number(to)?),
        None => Some(0..number(rounds)?),
    }
}

/// What happened to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Crash {
    /// The process died; drive and survivor are as they were.
    Process,
    /// The drive lost power: what was not flushed is kept in part, and no survivor may be believed.
    Power,
    /// The process died, the volume was mounted again, and during or after that mount the power failed.
    ProcessThenPower,
}

/// How a state comes about. The second crash of a pair hits [`crate::Subject::recover`], at a command or after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// The process died.
    Process,
    /// Power loss that keeps all the drive had acknowledged.
    PowerAll,
    /// Power loss that keeps nothing that was not flushed.
    PowerNone,
    /// Power loss with an outcome drawn from the state's seed.
    Power,
    /// Process crash, recovery, power loss.
    ProcessPower,
    /// Process crash, again a process crash during recovery.
    ProcessProcess,
    /// Power loss, then power loss during recovery.
    PowerPower,
    /// Power loss, then a process crash during recovery.
    PowerProcess,
    /// Process crash, recovery to its end, a copy of the drive; process crash of a later mount; and the copy is restored in place,
    /// under the survivor of what it replaces.
    Restored,
}

impl Variant {
    const NAMES: [(Variant, &'static str); 9] = [
        (Variant::Process, "process"),
        (Variant::PowerAll, "power-all"),
        (Variant::PowerNone, "power-none"),
        (Variant::Power, "power"),
        (Variant::ProcessPower, "process-power"),
        (Variant::ProcessProcess, "process-process"),
        (Variant::PowerPower, "power-power"),
        (Variant::PowerProcess, "power-process"),
        (Variant::Restored, "restored"),
    ];

    /// What [`crate::Subject::check`] is told.
    pub fn crash(self) -> Crash {
        match self {
            Variant::Process | Variant::ProcessProcess | Variant::Restored => Crash::Process,
            Variant::PowerAll | Variant::PowerNone | Variant::Power | Variant::PowerPower | Variant::PowerProcess => {
                Crash::Power
            }
            Variant::ProcessPower => Crash::ProcessThenPower,
        }
    }
}

/// Names one state of one run: enough to build it again alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId {
    /// Seed of the workload ([`Plan::seed`]).
    pub workload: u64,
    /// Number of the crash point, from 0.
    pub point: u64,
    /// How the state comes about.
    pub variant: Variant,
    /// Seed of everything random in it.
    pub seed: u64,
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Variant::NAMES.iter().find(|(v, _)| *v == self.variant).map_or("?", |(_, name)| name);
        write!(f, "{:x}:{}:{name}:{:x}", self.workload, self.point, self.seed)
    }
}

impl FromStr for StateId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} does not name a crash state; take it from the failure's message");
        let parts: Vec<&str> = text.trim().split(':').collect();
        let [workload, point, name, seed] = parts[..] else { return Err(wrong()) };
        Ok(StateId {
            workload: u64::from_str_radix(workload, 16).map_err(|_| wrong())?,
            point: point.parse().map_err(|_| wrong())?,
            variant: Variant::NAMES.iter().find(|(_, n)| *n == name).map(|(v, _)| *v).ok_or_else(wrong)?,
            seed: u64::from_str_radix(seed, 16).map_err(|_| wrong())?,
        })
    }
}

/// What to explore. Start from [`Plan::new`] and change fields.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the workload, the choice of states and every random outcome.
    pub seed: u64,
    /// Most states to check; of more, this many are drawn, all equally likely.
    pub max_states: u64,
    /// Kinds of crashes.
    pub crashes: Vec<Crash>,
    /// Whether recovery is crashed as well, by process crash after process crash, and after power loss by both; and a recovered drive is
    /// restored from a copy after a later mount was crashed.
    pub recrash: bool,
    /// Random power-loss outcomes per crash point, beside the two extremes (all kept, nothing kept).
    pub power_outcomes: u32,
    /// Most places to cut one write, at block boundaries inside it; a longer write is cut at its first and last boundary
    /// and at random ones between.
    pub cuts_per_write: u32,
    /// Worker threads; 0: as many as there are processors. Results do not depend on it.
    pub threads: usize,
    /// How long a workload may issue no command, and how long a check may take, before it counts as hung.
    pub hang_limit: Duration,
    /// Whether a broken rule of the drive (a write beside the write pointer, …) is a failure even where it was survived.
    pub forbid_violations: bool,
}

impl Plan {
    /// Every kind of crash, recovery included, 2,000 states.
    pub fn new(seed: u64) -> Plan {
        Plan {
            seed,
            max_states: 2_000,
            crashes: vec![Crash::Process, Crash::Power, Crash::ProcessThenPower],
            recrash: true,
            power_outcomes: 2,
            cuts_per_write: 8,
            threads: 0,
            hang_limit: Duration::from_secs(60),
            forbid_violations: true,
        }
    }

    /// The variants built at every crash point, in order.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        let has = |crash| self.crashes.contains(&crash);
        if has(Crash::Process) {
            variants.push(Variant::Process);
            if self.recrash {
                variants.extend([Variant::ProcessProcess, Variant::Restored]);
            }
        }
        if has(Crash::Power) {
            variants.extend([Variant::PowerAll, Variant::PowerNone]);
            variants.extend((0..self.power_outcomes).map(|_| Variant::Power));
            if self.recrash {
                variants.extend([Variant::PowerPower, Variant::PowerProcess]);
            }
        }
        if has(Crash::ProcessThenPower) {
            variants.push(Variant::ProcessPower);
        }
        variants
    }

    /// The state at position `index` of all possible ones: point by point, variant by variant.
    pub(crate) fn state(&self, variants: &[Variant], index: u64) -> StateId {
        let n = variants.len() as u64;
        let (point, slot) = (index / n, index % n);
        StateId {
            workload: self.seed,
            point,
            variant: variants[slot as usize],
            seed: mix(mix(mix(0, self.seed), point), slot),
        }
    }

    /// Which of `total` possible states to check, ascending.
    pub(crate) fn choose(&self, total: u64) -> Vec<u64> {
        if total <= self.max_states {
            return (0..total).collect();
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let amount = usize::try_from(self.max_states).unwrap_or(usize::MAX);
        let mut chosen: Vec<u64> =
            rand::seq::index::sample(&mut rng, total, amount).into_iter().map(|i| i as u64).collect();
        chosen.sort_unstable();
        chosen
    }
}

/// One step of a 64-bit hash: every bit of both inputs reaches every bit of the result (the finalizer of SplitMix64).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut z = hash.rotate_left(7) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_s_name_reads_back() {
        for (variant, _) in Variant::NAMES {
            let id = StateId { workload: 7, point: 12, variant, seed: 0xdead };
            assert_eq!(id.to_string().parse::<StateId>().unwrap(), id);
        }
        for bad in ["", "1:2:process", "1:2:nothing:3", "1:x:process:3", "1:2:process:3:4"] {
            assert!(bad.parse::<StateId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn few_states_are_all_taken_and_many_are_drawn_evenly_and_repeatably() {
        let plan = Plan { max_states: 500, ..Plan::new(3) };
        assert_eq!(plan.choose(500), (0..500).collect::<Vec<_>>());
        let drawn = plan.choose(50_000);
        assert_eq!(drawn, plan.choose(50_000));
        assert_ne!(drawn, Plan { seed: 4, ..plan.clone() }.choose(50_000));
        assert_eq!(drawn.len(), 500);
        assert!(drawn.windows(2).all(|w| w[0] < w[1]));
        let early = drawn.iter().filter(|i| **i < 25_000).count();
        assert!((150..350).contains(&early), "{early} of 500 in the first half");
    }

    #[test]
    fn each_kind_of_crash_can_be_left_out() {
        let only = |crashes: &[Crash]| Plan { crashes: crashes.to_vec(), recrash: false, ..Plan::new(0) }.variants();
        assert_eq!(only(&[Crash::Process]), [Variant::Process]);
        assert_eq!(only(&[Crash::ProcessThenPower]), [Variant::ProcessPower]);
        assert_eq!(only(&[Crash::Power]), [Variant::PowerAll, Variant::PowerNone, Variant::Power, Variant::Power]);
        assert_eq!(Plan::new(0).variants().len(), 10);
    }
}
