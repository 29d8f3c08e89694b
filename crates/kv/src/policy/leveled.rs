//! `leveled`: LevelDB's rule, for comparison. Each level is ten times as large as the one before; the fullest one gives the
//! table that overlaps the next one least. Zones have tables of one level, and nobody empties a zone on purpose.

use super::view::{due, headroom, next};
use super::{Choice, Goal, Group, Job, Kind, Part, Policy, Pressure, Sizes, Snapshot, Step, Table};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Leveled {
    /// Sizes.
    pub sizes: Sizes,
    /// Slices in level 0 that begin a compaction.
    pub trigger: usize,
    /// Bytes of level 1.
    pub base: u64,
    /// How many times as large the next level is.
    pub factor: u64,
}

impl Leveled {
    /// The usual numbers.
    pub fn new(sizes: Sizes) -> Leveled {
        Leveled { sizes, trigger: 4, base: 4 * sizes.memtable, factor: 10 }
    }

    /// Bytes of a level at most.
    pub(super) fn limit(&self, level: u8) -> u64 {
        self.base.saturating_mul(self.factor.saturating_pow(u32::from(level) - 1))
    }

    /// The level that is fullest for its limit, where one is over it.
    pub(super) fn fullest(&self, tree: &Snapshot) -> Option<u8> {
        let mut bytes = [0u64; 16];
        for table in tree.tables {
            bytes[usize::from(table.group.level.min(15))] += table.bytes;
        }
        let zero = bytes[0] as f64 / (self.sizes.memtable * self.trigger as u64) as f64;
        let scores = (1..15).map(|level| (level, bytes[usize::from(level)] as f64 / self.limit(level) as f64));
        let full = std::iter::once((0, zero)).chain(scores).max_by(|a, b| a.1.total_cmp(&b.1))?;
        (full.1 >= 1.0).then_some(full.0)
    }
}

/// The table of a level that overlaps fewest bytes of the next, for its size. LevelDB goes round by key instead, which needs a cursor.
pub(super) fn cheapest(tree: &Snapshot, level: u8, of: impl Fn(&Table) -> bool) -> Option<u64> {
    let lower: Vec<&Table> = tree.tables.iter().filter(|table| table.group.level == level + 1).collect();
    let cost = |table: &Table| {
        let first = lower.partition_point(|low| tree.order.compare(&low.largest, &table.smallest).is_lt());
        let under = lower[first..].iter().take_while(|low| tree.order.compare(&low.smallest, &table.largest).is_le());
        under.map(|low| low.bytes).sum::<u64>() as f64 / table.bytes.max(1) as f64
    };
    let here = tree.tables.iter().filter(|table| table.group.level == level && of(table));
    here.min_by(|a, b| cost(a).total_cmp(&cost(b))).map(|table| table.id)
}

/// Where each key is to come to be in one table: a job for all of the highest level, until there is one level and it is not the highest.
pub(super) fn manual(tree: &Snapshot) -> Option<Job> {
    let levels = || tree.tables.iter().map(|table| table.group.level);
    let (highest, lowest) = (levels().min()?, levels().max()?);
    let wanted = tree.goal == Goal::All && (highest == 0 || highest < lowest);
    wanted.then(|| Job { kind: Kind::Own(highest), part: 0, from: 0, before: tree.next, zones: Vec::new() })
}

/// Zones that merges need at least.
const RESERVE: u64 = 3;

/// A flush of the whole memtable into level 0, if one is due, and if it leaves room for merges.
pub(super) fn flush(tree: &Snapshot, sizes: Sizes, table: u64) -> Option<Choice> {
    let room = |part: &&Part| u64::from(tree.free) >= part.bytes.div_ceil(tree.zone.max(1)) + RESERVE;
    let part = due(tree, sizes).filter(room)?;
    Some(Choice::Flush { part: part.id, into: Group { level: 0, part: 0 }, table })
}

/// Holds puts back once level 0 has twice as many bytes as begin a compaction, and where memory or the log has no room.
pub(super) fn pressure(policy: &dyn Policy, tree: &Snapshot, sizes: Sizes, trigger: usize) -> Pressure {
    if headroom(tree, sizes.memtable) == 0 {
        let stuck = tree.jobs.is_empty() && matches!(policy.choose(tree), Choice::Nothing);
        return if stuck { Pressure::Full } else { Pressure::Stop };
    }
    let zero: u64 = tree.tables.iter().filter(|table| table.group.level == 0).map(|table| table.bytes).sum();
    match zero / (sizes.memtable / 2).max(1) {
        halves if halves >= 4 * trigger as u64 => Pressure::Stop,
        halves if halves >= 2 * trigger as u64 => Pressure::Slow(sizes.memtable / 32),
        _ => Pressure::None,
    }
}

impl Policy for Leveled {
    fn choose(&self, tree: &Snapshot) -> Choice {
        if let Some(flush) = flush(tree, self.sizes, self.sizes.table) {
            return flush;
        }
        let of = |level: u8| tree.tables.iter().filter(move |table| table.group.level == level);
        if let Some(job) = tree.jobs.last() {
            let Kind::Own(level) = job.kind else { return Choice::End };
            let upper: Vec<&Table> = of(level).filter(|table| (job.from..job.before).contains(&table.id)).collect();
            let lower: Vec<&Table> = of(level + 1).collect();
            let Some((inputs, until)) =
                next(tree.order, &upper, &lower, |_| false, self.sizes.step).filter(|_| !upper.is_empty())
            else {
                return Choice::End;
            };
            let routes = vec![(None, Group { level: level + 1, part: 0 })];
            return Choice::Merge(Step { inputs, until, routes, most: self.sizes.step, table: self.sizes.table });
        }
        if let Some(job) = manual(tree) {
            return Choice::Begin { job, parts: Vec::new(), closes: Vec::new() };
        }
        let Some(level) = self.fullest(tree) else { return Choice::Nothing };
        let Some(victim) = cheapest(tree, level, |_| true) else { return Choice::Nothing };
        // Of level 0 all tables, since they overlap.
        let (from, before) = if level == 0 { (0, tree.next) } else { (victim, victim + 1) };
        let job = Job { kind: Kind::Own(level), part: 0, from, before, zones: Vec::new() };
        Choice::Begin { job, parts: Vec::new(), closes: Vec::new() }
    }

    fn pressure(&self, tree: &Snapshot) -> Pressure {
        pressure(self, tree, self.sizes, self.trigger)
    }
}
