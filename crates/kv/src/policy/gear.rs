//! `gear`: GearDB's compaction (FAST 2019). Each level has a window of zones, and compactions invalidate tables in windows only; so the
//! zones of a window become empty together.
//!
//! What merges from one level into the next is divided by key: what lies in the window of the level below goes on into it, what lies in
//! none of its tables is dumped there, and the rest stays. The chain of all levels is one merge with an output for each.

use super::leveled::{Leveled, cheapest, flush, manual, pressure};
use super::view::next;
use super::{Choice, Group, Job, Key, Kind, Policy, Pressure, Sizes, Snapshot, Step, Table, Window};
use std::collections::HashSet;

/// Which tables begin a gear compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// As in the paper: level 0 with level 1; only windows are touched.
    Paper,
    /// As in the code: any level that is too large, with all tables of the next that overlap; only the one below that has a window.
    Code,
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Gear {
    /// Sizes of levels.
    pub levels: Leveled,
    /// Which tables begin.
    pub active: Active,
    /// A window has a `k`-th of a level: what is outside of 1 to 10 counts as the nearest of these.
    pub k: u64,
}

impl Gear {
    /// The paper's numbers.
    pub fn new(sizes: Sizes) -> Gear {
        Gear { levels: Leveled::new(sizes), active: Active::Paper, k: 4 }
    }

    /// Parts of a level that take turns as its window.
    fn parts(&self) -> u64 {
        self.k.clamp(1, 10)
    }

    /// The first level whose window is not the whole level.
    fn first(&self) -> u8 {
        match self.active {
            Active::Paper => 2,
            Active::Code => 3,
        }
    }
}

/// A plan for the keys of a step, level by level.
struct Plan {
    inputs: Vec<u64>,
    /// From which key on what goes where; in order.
    routes: Vec<(Option<Key>, u8)>,
}

impl Gear {
    fn window<'a>(&self, tree: &Snapshot<'a>, level: u8) -> Option<&'a Window> {
        tree.windows.iter().find(|window| window.level == level)
    }

    fn in_window(&self, tree: &Snapshot, table: &Table) -> bool {
        let level = table.group.level;
        level < self.first() || self.window(tree, level).is_some_and(|window| window.zones.contains(&table.zone))
    }

    /// Another window for a level whose window is empty: its oldest zones.
    fn rotate(&self, tree: &Snapshot) -> Option<Choice> {
        let levels: HashSet<u8> = tree.tables.iter().map(|table| table.group.level).collect();
        for level in levels.into_iter().filter(|level| *level >= self.first()) {
            let here: Vec<&Table> = tree.tables.iter().filter(|table| table.group.level == level).collect();
            if here.iter().any(|table| self.in_window(tree, table)) {
                continue;
            }
            let mut by_age: Vec<(u64, u32)> = here.iter().map(|table| (table.id, table.zone)).collect();
            by_age.sort_unstable();
            let mut zones: Vec<u32> = Vec::new();
            for (_, zone) in by_age {
                if !zones.contains(&zone) {
                    zones.push(zone);
                }
            }
            let size = match self.active {
                Active::Paper => (self.levels.limit(level) / self.parts() / tree.zone.max(1)) as usize,
                Active::Code => zones.len() / self.parts() as usize,
            };
            // A level that is smaller than its window is all window. The paper has it wait until it is as large; but what overlaps tables outside
            // of a window stays above, so with keys all over the range it would never grow.
            zones.truncate(size.max(1));
            if !zones.is_empty() {
                return Some(Choice::Window(Window { level, zones }));
            }
        }
        None
    }

    /// Whether what merges into this level may go on to the next.
    fn joins(&self, tree: &Snapshot, level: u8) -> bool {
        let bytes: u64 = tree.tables.iter().filter(|table| table.group.level == level).map(|table| table.bytes).sum();
        bytes >= self.levels.limit(level)
    }

    /// Divides what a step merges into `level`, from `start` to `until`, among this level and those below.
    fn divide(&self, tree: &Snapshot, level: u8, start: &Key, until: Option<&Key>, plan: &mut Plan) {
        let order = tree.order;
        let mut ranges: Vec<(Option<Key>, u8)> = vec![(None, level)];
        for target in level..14 {
            if !ranges.iter().any(|range| range.1 == target) || !self.joins(tree, target) {
                break;
            }
            let below: Vec<&Table> = tree.tables.iter().filter(|table| table.group.level == target + 1).collect();
            let mut divided: Vec<(Option<Key>, u8)> = Vec::new();
            for (at, (from, to)) in ranges.iter().enumerate() {
                let end = ranges.get(at + 1).and_then(|range| range.0.as_ref()).or(until);
                if *to != target {
                    divided.push((from.clone(), *to));
                    continue;
                }
                let begin = from.as_ref().unwrap_or(start);
                let inside = below.iter().filter(|table| {
                    order.compare(&table.largest, begin).is_ge()
                        && end.is_none_or(|end| order.compare(&table.smallest, end).is_lt())
                });
                // What is before the first table of the level below lies in none.
                divided.push((from.clone(), target + 1));
                for table in inside {
                    let window = self.in_window(tree, table);
                    if window {
                        plan.inputs.push(table.id);
                    }
                    let to = if window { target + 1 } else { target };
                    if order.compare(&table.smallest, begin).is_le() {
                        divided.pop();
                        divided.push((from.clone(), to));
                    } else {
                        divided.push((Some(table.smallest.clone()), to));
                    }
                }
            }
            divided.dedup_by(|next, before| next.1 == before.1);
            ranges = divided;
        }
        plan.routes = ranges;
    }

    fn go_on(&self, tree: &Snapshot, job: &Job) -> Choice {
        let Kind::Own(level) = job.kind else { return Choice::End };
        let of = |level: u8| tree.tables.iter().filter(move |table| table.group.level == level);
        let upper: Vec<&Table> = of(level).filter(|table| (job.from..job.before).contains(&table.id)).collect();
        if upper.is_empty() {
            return Choice::End;
        }
        let lower: Vec<&Table> = of(level + 1).collect();
        let sizes = self.levels.sizes;
        let Some((inputs, until)) = next(tree.order, &upper, &lower, |_| false, 4 * sizes.step) else {
            return Choice::End;
        };
        let start = inputs.iter().filter_map(|id| tree.tables.iter().find(|table| table.id == *id));
        let Some(start) = start.map(|table| &table.smallest).min_by(|a, b| tree.order.compare(a, b)) else {
            return Choice::End;
        };
        let mut plan = Plan { inputs, routes: Vec::new() };
        self.divide(tree, level + 1, start, until.as_ref(), &mut plan);
        let routes = plan.routes.into_iter().map(|(from, level)| (from, Group { level, part: 0 })).collect();
        plan.inputs.sort_unstable();
        plan.inputs.dedup();
        Choice::Merge(Step { inputs: plan.inputs, until, routes, most: 8 * sizes.step, table: sizes.table })
    }
}

impl Policy for Gear {
    fn choose(&self, tree: &Snapshot) -> Choice {
        if let Some(flush) = flush(tree, self.levels.sizes, self.levels.sizes.table) {
            return flush;
        }
        if let Some(window) = self.rotate(tree) {
            return window;
        }
        if let Some(job) = tree.jobs.last() {
            return self.go_on(tree, job);
        }
        if let Some(job) = manual(tree) {
            let Kind::Own(level) = job.kind else { return Choice::Nothing };
            return Choice::Begin { job, parts: Vec::new(), closes: vec![Group { level, part: 0 }] };
        }
        let level = self.levels.fullest(tree).filter(|level| *level == 0 || self.active == Active::Code);
        let zero: u64 = tree.tables.iter().filter(|table| table.group.level == 0).map(|table| table.bytes).sum();
        let level = match (level, self.active) {
            (Some(level), _) => level,
            // A level above that is fuller does not keep level 0 waiting.
            (None, Active::Paper) if zero >= self.levels.sizes.memtable * self.levels.trigger as u64 => 0,
            _ => return Choice::Nothing,
        };
        let victim =
            cheapest(tree, level, |table| self.in_window(tree, table)).or_else(|| cheapest(tree, level, |_| true));
        let Some(victim) = victim else { return Choice::Nothing };
        let (from, before) = if level == 0 { (0, tree.next) } else { (victim, victim + 1) };
        let job = Job { kind: Kind::Own(level), part: 0, from, before, zones: Vec::new() };
        Choice::Begin { job, parts: Vec::new(), closes: vec![Group { level, part: 0 }] }
    }

    fn pressure(&self, tree: &Snapshot) -> Pressure {
        pressure(self, tree, self.levels.sizes, self.levels.trigger)
    }
}
