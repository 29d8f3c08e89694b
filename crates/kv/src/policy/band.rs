//! `band`: SMRDB's compaction (SYSTOR 2015). Tables are as large as a zone, a *band*; there are two levels, and tables of both may
//! overlap. A merge takes few of the tables that overlap, those that leave the keys least in order.

use super::leveled::{flush, pressure};
use super::view::{cuts, overlap};
use super::{Choice, Goal, Group, Job, Key, Kind, Policy, Pressure, Sizes, Snapshot, Step, Table};
use crate::order::Order;

/// The job that orders everything.
const EVERYTHING: u8 = 2;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// Sizes.
    pub sizes: Sizes,
    /// Bands of level 0 that begin a merge.
    pub trigger: usize,
    /// Bands of level 0 that a merge takes, at most.
    pub most: usize,
    /// Bands of level 1 that overlap one, from which on it is merged.
    pub overlaps: usize,
    /// Pairs of bands that no longer overlap, for each band that is rewritten, that make a merge in level 1 worth its bytes.
    pub worth: usize,
    /// Whether a merge takes all tables that overlap, instead of the few that are least in order.
    pub unpruned: bool,
    /// Whether everything is to be put in order: the manual run.
    pub everything: bool,
}

impl Band {
    /// The paper's numbers.
    pub fn new(sizes: Sizes) -> Band {
        Band { sizes, trigger: 4, most: 8, overlaps: 8, worth: 4, unpruned: false, everything: false }
    }
}

/// Bytes of `table` between two keys, as its histogram has it.
fn inside(order: &dyn Order, table: &Table, from: &Key, to: &Key) -> u64 {
    let first = table.marks.partition_point(|mark| order.compare(mark, from).is_lt());
    let last = table.marks.partition_point(|mark| order.compare(mark, to).is_le());
    table.bytes * last.saturating_sub(first) as u64 / table.marks.len().max(1) as u64
}

/// How many of `others` overlap.
fn count(order: &dyn Order, table: &Table, others: &[&Table]) -> usize {
    others.iter().filter(|other| other.id != table.id && overlap(order, table, other)).count()
}

impl Band {
    fn merge(&self, tree: &Snapshot, tables: &[&Table], kind: Kind) -> Choice {
        let zones = tables.iter().map(|table| table.zone).collect();
        let mut closes: Vec<Group> = tables.iter().map(|table| table.group).collect();
        closes.sort_unstable();
        closes.dedup();
        Choice::Begin { job: Job { kind, part: 0, from: 0, before: tree.next, zones }, parts: Vec::new(), closes }
    }

    /// Of these bands of level 1 the one that is least in order, and the newer ones that it overlaps.
    fn prune<'a>(&self, order: &dyn Order, candidates: &[&'a Table], all: &[&'a Table]) -> Vec<&'a Table> {
        if self.unpruned {
            return candidates.to_vec();
        }
        let foreign = |table: &Table| {
            // Of hundreds of tables few overlap, which takes two comparisons.
            let others = all.iter().filter(|other| other.id != table.id && overlap(order, other, table));
            let bytes: u64 = others.map(|other| inside(order, other, &table.smallest, &table.largest)).sum();
            bytes as f64 / table.bytes.max(1) as f64
        };
        let candidates = candidates.iter().map(|table| (foreign(table), table));
        let Some((_, least)) = candidates.max_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
        let newer = |table: &&&Table| {
            table.id == least.id || table.group.level == 1 && table.id > least.id && overlap(order, least, table)
        };
        all.iter().filter(newer).copied().collect()
    }

    /// Whether a merge of these leaves so many fewer pairs that overlap that it is worth its bytes. So merges end.
    fn lowers(&self, tree: &Snapshot, inputs: &[&Table], all: &[&Table]) -> bool {
        let order = tree.order;
        let others: Vec<&Table> = all.iter().filter(|table| inputs.iter().all(|i| i.id != table.id)).copied().collect();
        let among: usize = inputs.iter().map(|table| count(order, table, inputs)).sum();
        let before = among / 2 + inputs.iter().map(|table| count(order, table, &others)).sum::<usize>();
        let bytes: u64 = inputs.iter().map(|table| table.bytes).sum();
        let pieces = bytes.div_ceil(tree.zone.max(1)).max(1) as usize;
        let ends = cuts(order, inputs.iter().copied(), (None, None), pieces);
        let first = inputs.iter().map(|table| &table.smallest).min_by(|a, b| order.compare(a, b));
        let last = inputs.iter().map(|table| &table.largest).max_by(|a, b| order.compare(a, b));
        let (Some(first), Some(last)) = (first, last) else { return false };
        let bounds: Vec<&Key> = std::iter::once(first).chain(&ends).chain(std::iter::once(last)).collect();
        let after: usize = bounds
            .windows(2)
            .map(|piece| {
                let meets = |table: &&&Table| {
                    order.compare(&table.smallest, piece[1]).is_le() && order.compare(piece[0], &table.largest).is_le()
                };
                others.iter().filter(meets).count()
            })
            .sum();
        after + self.worth * inputs.len() < before
    }

    /// Level 0: the oldest band, and newer ones that overlap it.
    fn level0(&self, tree: &Snapshot, zero: &[&Table], one: &[&Table]) -> Choice {
        let order = tree.order;
        let mut chosen: Vec<&Table> = vec![zero[0]];
        chosen.extend(zero[1..].iter().filter(|table| overlap(order, zero[0], table)).take(self.most - 1));
        let candidates: Vec<&Table> =
            one.iter().filter(|table| chosen.iter().any(|of| overlap(order, of, table))).copied().collect();
        // Its zone may have the end of the band before.
        let here: Vec<&Table> = zero.iter().filter(|table| table.zone == zero[0].zone).copied().collect();
        let alone = |table: &&Table| count(order, table, one) + count(order, table, zero) == 0;
        if chosen.len() == 1 && candidates.is_empty() && here.iter().all(alone) {
            return Choice::Relabel(here.iter().map(|table| table.id).collect(), Group { level: 1, part: 0 });
        }
        let all: Vec<&Table> = one.iter().chain(&chosen).copied().collect();
        let mut inputs = self.prune(order, &candidates, &all);
        inputs.retain(|table| table.group.level == 1);
        inputs.extend(chosen);
        self.merge(tree, &inputs, Kind::Own(0))
    }

    /// Level 1: where too many overlap. A merge that would leave too many pairs takes more bands, or is none.
    fn level1(&self, tree: &Snapshot, one: &[&Table]) -> Choice {
        let order = tree.order;
        let mut worst: Vec<(usize, &Table)> = one.iter().map(|table| (count(order, table, one), *table)).collect();
        worst.retain(|(count, _)| *count >= self.overlaps);
        worst.sort_by_key(|(count, table)| (std::cmp::Reverse(*count), table.id));
        for (_, table) in worst.into_iter().take(4) {
            let around: Vec<&Table> = one.iter().filter(|other| overlap(order, table, other)).copied().collect();
            for inputs in [self.prune(order, &around, one), around] {
                if inputs.len() > 1 && self.lowers(tree, &inputs, one) {
                    return self.merge(tree, &inputs, Kind::Own(1));
                }
            }
        }
        Choice::Nothing
    }
}

impl Policy for Band {
    fn choose(&self, tree: &Snapshot) -> Choice {
        if let Some(flush) = flush(tree, self.sizes, tree.zone) {
            return flush;
        }
        let mut of: [Vec<&Table>; 2] = [Vec::new(), Vec::new()];
        tree.tables.iter().for_each(|table| of[usize::from(table.group.level.min(1))].push(table));
        of.iter_mut().for_each(|tables| tables.sort_by_key(|table| table.id));
        let [zero, one] = of;
        if let Some(job) = tree.jobs.last() {
            let chosen = |table: &&Table| table.id < job.before && job.zones.contains(&table.zone);
            let inputs: Vec<u64> = tree.tables.iter().filter(chosen).map(|table| table.id).collect();
            if inputs.is_empty() {
                return Choice::End;
            }
            // A step writes a whole band: it is as large as its zone.
            let routes = vec![(None, Group { level: 1, part: 0 })];
            return Choice::Merge(Step { inputs, until: None, routes, most: tree.zone, table: tree.zone });
        }
        let all: Vec<&Table> = zero.iter().chain(&one).copied().collect();
        let unordered = || all.iter().any(|table| count(tree.order, table, &all) > 0);
        // The manual run.
        if tree.goal == Goal::All && unordered() {
            return self.merge(tree, &all, Kind::Own(EVERYTHING));
        }
        if zero.len() >= self.trigger {
            return self.level0(tree, &zero, &one);
        }
        // Under pressure everything is put in order, too, since what was overwritten goes then.
        if (self.everything || tree.free < tree.zones / 16) && unordered() {
            return self.merge(tree, &all, Kind::Own(EVERYTHING));
        }
        self.level1(tree, &one)
    }

    fn pressure(&self, tree: &Snapshot) -> Pressure {
        pressure(self, tree, self.sizes, self.trigger)
    }

    /// The paper's (section 4.3).
    fn histogram(&self) -> usize {
        4096
    }
}
