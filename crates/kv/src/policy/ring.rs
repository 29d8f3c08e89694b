//! `ring`: slices of the memtable lie in zones of their partition, and partitions take turns to be merged into the bottom, in key order.
//!
//! The memtable's part of a partition is flushed into a zone of that partition alone. When the upper level has taken the free space less
//! a reserve, the heaviest partition is *swept*: its slices merge with the bottom tables of its range into one output. Zones of both
//! become empty together, in order. `docs/kv.md` has the rules, and what justifies them.

use super::view::{cuts, depth, due, end, headroom, longest, merged, next, overlap, part_of};
use super::{
    BOTTOM, Choice, Goal, Group, HIGHEST, Job, Key, Kind, Part, Policy, Pressure, Sizes, Snapshot, Step, Table,
};
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// As few slices as are worth a merge: a level that has fewer merges with the ones above it.
const WORTH: usize = 2;
/// A merge reads and writes so many memories, or zones, at most.
const MERGE: u64 = 64;
/// Merges take a few steps more than their bytes tell. What may be put meanwhile must last.
const MORE: u64 = 4;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Sizes.
    pub sizes: Sizes,
    /// Slices that may have a key, at most.
    pub slices: usize,
    /// The dial between space and speed: the part of all zones in use that the bottom takes at least, in percent. With 0 the upper level
    /// takes all free space, less the reserve.
    pub bottom: u32,
    /// Zones that the upper level may always take, whatever the dial says; two for each partition, if that is more.
    pub least: u32,
}

impl Ring {
    /// The usual numbers.
    pub fn new(sizes: Sizes) -> Ring {
        Ring { sizes, slices: 12, bottom: 0, least: 24 }
    }
}

/// What a partition has.
struct Share<'a> {
    part: &'a Part,
    /// Slices that are not being swept.
    upper: Vec<&'a Table>,
    /// Bytes of those.
    bytes: u64,
    /// Bytes that their tombstones hide, and those in memory.
    hidden: u64,
    /// Bottom bytes.
    bottom: u64,
    /// Its bottom tables.
    lower: Range<usize>,
    /// Bytes of the bottom that a sweep of it holds at most.
    held: OnceCell<u64>,
}

impl Share<'_> {
    /// What a sweep would settle.
    fn weight(&self) -> u64 {
        self.bytes + self.hidden
    }

    /// All bytes, with those in memory.
    fn size(&self) -> u64 {
        self.bytes + self.bottom + self.part.bytes
    }
}

/// A tree, sorted out.
struct Tree<'a> {
    of: &'a Snapshot<'a>,
    shares: Vec<Share<'a>>,
    bottom: Vec<&'a Table>,
    /// Bytes of the bottom.
    low: u64,
    /// Bytes of slices that are not being swept.
    upper: u64,
    /// Tables of partitions that are being swept.
    retired: Vec<&'a Table>,
    /// Of all jobs: zones that they may take before they give any back, and zones that their slices have more than their bytes need.
    under_way: OnceCell<(u64, u64)>,
    /// Which tables of the bottom each zone has, in the order of keys.
    zones_of_bottom: OnceCell<HashMap<u32, Vec<usize>>>,
}

/// Bytes of tables, and how many zones they are in.
fn sum(tables: &[&Table]) -> (u64, u64) {
    let zones: HashSet<u32> = tables.iter().map(|table| table.zone).collect();
    (tables.iter().map(|table| table.bytes).sum(), zones.len() as u64)
}

/// Bytes that a merge of these tables holds at most: in the order of keys, it has read them, but their zones have other tables that it has not read.
fn held(tables: &[&Table]) -> u64 {
    let mut zones: HashMap<u32, (usize, u64)> = HashMap::new();
    for table in tables {
        let (count, bytes) = zones.entry(table.zone).or_default();
        (*count, *bytes) = (*count + 1, *bytes + table.bytes);
    }
    let (mut held, mut most) = (0, 0);
    for table in tables {
        held += table.bytes;
        most = most.max(held);
        if let Some((count, bytes)) = zones.get_mut(&table.zone) {
            *count -= 1;
            held -= if *count == 0 { *bytes } else { 0 };
        }
    }
    most
}

impl<'a> Tree<'a> {
    fn of(of: &'a Snapshot<'a>) -> Tree<'a> {
        let share = |part: &'a Part| Share {
            part,
            upper: Vec::new(),
            bytes: 0,
            hidden: part.hidden,
            bottom: 0,
            lower: 0..0,
            held: OnceCell::new(),
        };
        let mut shares: Vec<Share> = of.parts.iter().map(share).collect();
        let at: HashMap<u32, usize> = of.parts.iter().enumerate().map(|(at, part)| (part.id, at)).collect();
        let (mut bottom, mut retired, mut here) = (Vec::new(), Vec::new(), 0);
        for table in of.tables {
            if table.group == BOTTOM {
                while end(of.parts, here).is_some_and(|end| of.order.compare(end, &table.smallest).is_le()) {
                    here += 1;
                }
                shares[here].bottom += table.bytes;
                if shares[here].lower.is_empty() {
                    shares[here].lower.start = bottom.len();
                }
                bottom.push(table);
                shares[here].lower.end = bottom.len();
            } else if let Some(share) = at.get(&table.group.part).map(|at| &mut shares[*at]) {
                share.bytes += table.bytes;
                share.hidden += table.hidden;
                share.upper.push(table);
            } else {
                retired.push(table);
            }
        }
        let low = bottom.iter().map(|table| table.bytes).sum();
        let upper = shares.iter().map(|share| share.bytes).sum();
        Tree { of, shares, bottom, low, upper, retired, under_way: OnceCell::new(), zones_of_bottom: OnceCell::new() }
    }

    fn zones(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.of.zone.max(1))
    }

    /// The partition that is swept next.
    fn heaviest(&self) -> Option<&Share<'a>> {
        self.shares.iter().filter(|share| share.weight() > 0).max_by_key(|share| share.weight())
    }

    /// Zones that a sweep of so many bytes of slices may take before it gives any back.
    fn need(&self, bytes: u64, held: u64) -> u64 {
        // What it holds it has read by half on the average. Where one sweep lacks a zone another one may not.
        self.zones(bytes + (self.of.zone + held) / 2) + 1
    }

    /// The same, however little of what it holds it has read when it takes the last of them; with a few more, as long as deletions may need them. Slices that overlap nothing of the bottom need no sweep.
    fn most_of(&self, share: &Share, more: u64) -> u64 {
        let overlaps = self.under(share).contains(&true);
        if !overlaps && !share.upper.is_empty() {
            return self.need_of(share, more);
        }
        let few = if overlaps && !self.of.last { self.of.zones / 64 } else { 0 };
        self.zones(share.bytes + more + self.of.zone + self.held_of(share)) + 1 + u64::from(few)
    }

    /// Which tables of the bottom a sweep of this partition merges.
    fn under(&self, share: &Share) -> Vec<bool> {
        merged(self.of.order, &share.upper, &self.bottom)
    }

    /// Whether so much of all zones is in use that there may be no other sweep where one lacks a zone.
    fn is_tight(&self) -> bool {
        self.zones(self.low + self.upper) * 8 >= u64::from(self.of.zones) * 7
    }

    /// What the bottom has in these zones, in the order of keys.
    fn bottom_in<'z>(&self, zones: impl IntoIterator<Item = &'z u32>) -> Vec<&'a Table> {
        let all = self.zones_of_bottom.get_or_init(|| {
            let mut all: HashMap<u32, Vec<usize>> = HashMap::new();
            self.bottom.iter().enumerate().for_each(|(at, table)| all.entry(table.zone).or_default().push(at));
            all
        });
        let mut here: Vec<usize> = zones.into_iter().filter_map(|zone| all.get(zone)).flatten().copied().collect();
        here.sort_unstable();
        here.into_iter().map(|at| self.bottom[at]).collect()
    }

    /// Zones that a sweep of this partition may take before it gives any back, once it has so many bytes more.
    fn need_of(&self, share: &Share, more: u64) -> u64 {
        self.need(share.bytes + more, self.held_of(share))
    }

    /// Bytes of the bottom that a sweep of this partition holds at most.
    fn held_of(&self, share: &Share) -> u64 {
        let of = || {
            let zones: HashSet<u32> = self.bottom[share.lower.clone()].iter().map(|table| table.zone).collect();
            held(&self.bottom_in(&zones))
        };
        *share.held.get_or_init(of)
    }

    /// Zones that the next sweep may take before it gives any back, once this partition has so many bytes more.
    fn reserve(&self, at: usize, more: u64) -> u64 {
        let more = |n: usize| if n == at { more } else { 0 };
        let heaviest = self.shares.iter().enumerate().max_by_key(|(n, share)| share.bytes + more(*n));
        let need = |(n, share): (usize, &Share)| match self.is_tight() {
            true => self.most_of(share, more(n)),
            false => self.need_of(share, more(n)),
        };
        heaviest.map_or(0, need)
    }

    /// Slices that a job has still to merge.
    fn slices_of(&self, job: &Job) -> impl Iterator<Item = &'a Table> {
        let level = if let Kind::Slices(level) = job.kind { level } else { HIGHEST };
        let (part, before) = (job.part, job.before);
        let merges = move |table: &&Table| table.group.part == part && table.group.level <= level && table.id < before;
        self.of.tables.iter().filter(merges)
    }

    /// Zones that the jobs under way may take before they give any back, and zones that come free beside once their slices are merged.
    fn jobs(&self) -> (u64, u64) {
        let of = |job: &Job| {
            let (bytes, zones) = sum(&self.slices_of(job).collect::<Vec<_>>());
            let mut lower = self.bottom_in(&job.zones);
            lower.retain(|table| table.id < job.before);
            (self.need(bytes, held(&lower)), zones.saturating_sub(self.zones(bytes)))
        };
        *self
            .under_way
            .get_or_init(|| self.of.jobs.iter().map(of).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)))
    }

    /// Whether so many zones may be taken, of which so many are kept, for so many bytes of a partition: what is under way can end, and the next sweep after it.
    fn spares(&self, (zones, kept): (u64, u64), at: usize, more: u64) -> bool {
        let (promised, returned) = self.jobs();
        let free = u64::from(self.of.free);
        free >= zones + promised && free + returned >= kept + self.reserve(at, more)
    }

    /// The number for another partition.
    fn unused(&self) -> u32 {
        let jobs = self.of.jobs.iter().map(|job| job.part);
        self.of.parts.iter().map(|part| part.id).chain(jobs).max().unwrap_or(0) + 1
    }

    /// Slices of the partition itself that have a key, at most.
    fn own_slices(&self, at: usize) -> usize {
        depth(self.of.order, self.shares[at].upper.iter().copied())
    }

    /// Slices that have a key of this partition, at most, with those of a sweep.
    fn slices(&self, at: usize) -> usize {
        let order = self.of.order;
        let (from, until) = (self.shares[at].part.from.as_ref(), end(self.of.parts, at));
        let inside = |table: &&&Table| {
            from.is_none_or(|from| order.compare(&table.largest, from).is_ge())
                && until.is_none_or(|until| order.compare(&table.smallest, until).is_lt())
        };
        depth(order, self.shares[at].upper.iter().chain(self.retired.iter().filter(inside)).copied())
    }
}

impl Ring {
    /// Bytes of a partition at most: a sweep reads and writes them, and what shares zones with them.
    fn most(&self, tree: &Tree) -> u64 {
        let merge = self.sizes.memtable.max(tree.of.zone) * MERGE;
        (merge / 2).saturating_sub(5 * tree.of.zone).max(merge / 4)
    }

    /// Bytes of a partition from which on it is swept or divided: what may come while another one is swept still fits.
    fn large(&self, tree: &Tree) -> u64 {
        self.most(tree) - (self.most(tree) / 8).min(self.slack(tree) * tree.of.zone)
    }

    /// Bytes that two partitions may have together to become one.
    fn small(&self, tree: &Tree) -> u64 {
        self.ideal(tree).min(self.large(tree) / 16 * 15)
    }

    /// Zones that the upper level may still take, as the dial has it: while a sweep is under way, it may be exceeded.
    fn left(&self, tree: &Tree) -> u64 {
        let free = u64::from(tree.of.free);
        let low = tree.zones(tree.low);
        let Some(dialled) = (low * 100).checked_div(u64::from(self.bottom)) else { return free };
        // Each partition has a zone that it writes, and mostly one of merged slices.
        let least = u64::from(self.least).max(2 * tree.shares.len() as u64);
        free.min((dialled.max(low + least) + free).saturating_sub(tree.of.zones.into()))
    }

    /// Whether the dial leaves the upper level nothing.
    fn is_exceeded(&self, tree: &Tree) -> bool {
        self.bottom > 0 && self.left(tree) == 0
    }

    /// Zones that puts may take while a sweep is under way.
    fn slack(&self, tree: &Tree) -> u64 {
        ((self.left(tree) + tree.zones(tree.upper)) / 8).max(2)
    }

    /// Bytes that a partition would have if all had as many.
    fn ideal(&self, tree: &Tree) -> u64 {
        let all = tree.low + tree.upper;
        // The heaviest partition has twice the mean of the upper level.
        let full = all + 2 * (self.left(tree) * tree.of.zone);
        // Each has a zone that it writes, and so has the bottom.
        let least = u64::from(tree.of.writes.saturating_sub(1)).clamp(1, 8);
        let parts = full.div_ceil(self.most(tree)).max(least);
        (all / parts).max(8 * tree.of.zone)
    }

    /// In how many pieces a partition of this size is divided.
    fn pieces(&self, tree: &Tree, size: u64) -> u64 {
        let ideal = self.ideal(tree);
        let large = size > self.large(tree);
        ((size + ideal / 2) / ideal).max(1 + u64::from(large))
    }

    fn flush(&self, tree: &Tree) -> Option<Choice> {
        let due = due(tree.of, self.sizes)?;
        let at = tree.of.parts.iter().position(|part| part.id == due.id)?;
        let busy = |job: &Job| job.part == due.id;
        let flush = |part: u32| Choice::Flush { part, into: Group { level: 0, part }, table: self.sizes.table };
        if self.is_deep(tree, at) {
            if !tree.of.jobs.iter().any(busy)
                && self.is_deep_itself(tree, at)
                && self.slices_to_merge(tree, at).is_some_and(|(_, bytes)| bytes <= self.interrupts(tree))
                && let Some(merge) = self.merge_slices(tree, at)
            {
                return Some(merge);
            }
        } else if self.fits(tree, at) {
            return Some(flush(due.id));
        }
        self.instead(tree, due).map(flush)
    }

    /// Bytes of slices whose merge may interrupt the job under way. A merge of slices is interrupted by a much shorter one only, lest many are under way and none ends.
    fn interrupts(&self, tree: &Tree) -> u64 {
        match tree.of.jobs.last() {
            Some(job) if job.kind != Kind::Sweep => self.rest(tree, job) / 2,
            _ => u64::MAX,
        }
    }

    /// Slices of a partition that has as many as it may have, and whose part of memory will be due before they are merged if that does not begin now. Puts would
    /// wait for the rest: the log has little room by then. It is the merge that they would wait for, so it costs nothing.
    fn soon(&self, tree: &Tree) -> Option<Choice> {
        let most = self.interrupts(tree);
        let late = |(at, part): (usize, &Part)| {
            if part.bytes == 0 || !self.is_deep_itself(tree, at) || tree.of.jobs.iter().any(|job| job.part == part.id) {
                return None;
            }
            let (_, bytes) = self.slices_to_merge(tree, at)?;
            // The log grows meanwhile by less than half of what is merged. What is ingested stands for a log without end.
            let log = part.log.saturating_add(bytes / 2);
            (log >= longest(self.sizes) / 8 * 5 && bytes <= most).then_some((log, at, bytes))
        };
        let (_, at, bytes) = tree.of.parts.iter().enumerate().filter_map(late).max()?;
        // Where zones lack, flushes need them more. A merge takes zones before it gives some back, and the dial is for space.
        let needs = tree.zones(bytes) + 2 + self.slack(tree);
        let dialled = self.bottom == 0 || self.left(tree) >= needs;
        (dialled && tree.spares((needs, needs), at, 0)).then(|| self.merge_slices(tree, at)).flatten()
    }

    /// The partition that is flushed while the one that is due waits for the jobs under way: the largest that need not wait, if it is worth a slice.
    fn instead(&self, tree: &Tree, due: &Part) -> Option<u32> {
        let full = tree.of.parts.iter().map(|part| part.bytes).sum::<u64>() >= self.sizes.memtable;
        if tree.of.jobs.is_empty() || !full {
            return None;
        }
        let may = |(at, part): &(usize, &Part)| {
            part.id != due.id && part.bytes >= due.bytes / 2 && !self.is_deep(tree, *at) && self.fits(tree, *at)
        };
        let parts = tree.of.parts.iter().enumerate().filter(may);
        parts.max_by_key(|(_, part)| part.bytes).map(|(_, part)| part.id)
    }

    /// Bytes that may be put before a partition is so large that it must be swept first, where the fullest gets twice as much as others.
    fn growth(&self, tree: &Tree) -> u64 {
        let left = |share: &Share| self.most(tree).saturating_sub(share.size());
        let least = tree.shares.iter().filter(|share| share.bytes > 0).map(left).min().unwrap_or(u64::MAX);
        least.saturating_mul(tree.shares.len() as u64) / 2
    }

    /// Bytes that may be put while a sweep is under way: zones that merges do not need, and not more than the partitions have room for.
    fn room(&self, tree: &Tree) -> u64 {
        let (promised, _) = tree.jobs();
        let zones = u64::from(tree.of.free).saturating_sub(promised);
        // A part of them: the next sweep begins with some left.
        let zones =
            if self.bottom == 0 { zones.div_ceil(2) } else { zones.min(self.slack(tree)).min(self.left(tree)) / 2 };
        (zones * tree.of.zone).min(self.growth(tree))
    }

    /// Slices of a partition that are worth a merge before all of it is swept: while that lasts its successors have the more room for slices of their own.
    fn slim(&self, tree: &Tree, at: usize) -> Option<Choice> {
        let share = &tree.shares[at];
        let (_, bytes) = self.slices_to_merge(tree, at)?;
        let deep = tree.own_slices(at) * 2 > self.slices;
        if deep && bytes * 2 <= share.bytes { self.merge_slices(tree, at) } else { None }
    }

    /// Slices that are merged while the drive has time, so that nobody waits for it later.
    fn ahead(&self, tree: &Tree) -> Option<Choice> {
        if tree.of.goal != Goal::Ahead {
            return None;
        }
        let depth = |at: &usize| tree.own_slices(*at);
        let at = (0..tree.shares.len()).max_by_key(depth).filter(|at| depth(at) * 3 >= self.slices * 2)?;
        self.merge_slices(tree, at)
    }

    /// Whether this partition has as many slices as it may have.
    fn is_deep(&self, tree: &Tree, at: usize) -> bool {
        // One more slice may come while the partition is swept.
        tree.own_slices(at) + 1 >= self.slices || tree.slices(at) >= self.slices
    }

    /// Whether its own slices are so many that some must be merged. Where those of a sweep are most of them, the sweep makes room: few slices of its own would be merged
    /// again with each flush, and the sweep would not go on meanwhile.
    fn is_deep_itself(&self, tree: &Tree, at: usize) -> bool {
        let own = tree.own_slices(at);
        own >= WORTH && own + 1 >= self.slices
    }

    /// Bytes that are merged before this partition's part of memory can be flushed, if it has to wait.
    fn waits(&self, tree: &Tree, at: usize) -> Option<u64> {
        let (share, jobs) = (&tree.shares[at], tree.of.jobs);
        let rest = |jobs: &[Job]| jobs.iter().map(|job| self.rest(tree, job)).sum::<u64>();
        if !self.is_deep(tree, at) {
            return (!self.fits(tree, at)).then(|| rest(jobs));
        }
        if let Some(own) = jobs.iter().rposition(|job| job.part == share.part.id) {
            return Some(rest(&jobs[own..]));
        }
        if !self.is_deep_itself(tree, at) {
            return Some(rest(jobs));
        }
        let (_, bytes) = self.slices_to_merge(tree, at)?;
        Some(bytes + if self.merge_slices(tree, at).is_none() { rest(jobs) } else { 0 })
    }

    /// Bytes that a job still reads.
    fn rest(&self, tree: &Tree, job: &Job) -> u64 {
        let upper: Vec<&Table> = tree.slices_of(job).collect();
        let of_upper = upper.iter().map(|table| table.bytes).sum::<u64>();
        if job.kind != Kind::Sweep {
            return of_upper;
        }
        let lower: Vec<&Table> = tree.bottom.iter().filter(|table| table.id < job.before).copied().collect();
        let merged = merged(tree.of.order, &upper, &lower);
        let under = lower.iter().zip(merged).filter(|(table, merged)| *merged || job.zones.contains(&table.zone));
        of_upper + under.map(|(table, _)| table.bytes).sum::<u64>()
    }

    /// Whether this partition can be flushed so that what must be merged then still can.
    fn fits(&self, tree: &Tree, at: usize) -> bool {
        let share = &tree.shares[at];
        let part = share.part;
        if share.bytes > 0 && share.size() > self.most(tree) {
            return false;
        }
        let group = Group { level: 0, part: part.id };
        let room = tree.of.open.iter().find(|open| open.group == group).map_or(0, |open| open.room);
        let takes = tree.zones(part.bytes.saturating_sub(room));
        tree.spares((takes, takes), at, part.bytes)
    }

    /// The slices of a partition that are merged next, up to which level, and their bytes: the fewest levels, from below, that have some.
    fn slices_to_merge(&self, tree: &Tree, at: usize) -> Option<(u8, u64)> {
        let share = &tree.shares[at];
        let up_to = |level: u8| share.upper.iter().filter(move |table| table.group.level <= level).copied();
        let highest = share.upper.iter().map(|table| table.group.level).max()?;
        let level = (0..highest).find(|level| depth(tree.of.order, up_to(*level)) >= WORTH).unwrap_or(highest);
        Some((level, up_to(level).map(|table| table.bytes).sum()))
    }

    /// Begins to merge slices of a partition.
    fn merge_slices(&self, tree: &Tree, at: usize) -> Option<Choice> {
        let share = &tree.shares[at];
        let (level, bytes) = self.slices_to_merge(tree, at)?;
        if tree.of.jobs.is_empty() && bytes >= share.bottom {
            return Some(self.sweep(tree, share));
        }
        if !tree.spares((tree.zones(bytes) + 1, 1), at, 0) {
            return None;
        }
        let job =
            Job { kind: Kind::Slices(level), part: share.part.id, from: 0, before: tree.of.next, zones: Vec::new() };
        let closes = (0..=level).map(|level| Group { level, part: share.part.id }).collect();
        Some(Choice::Begin { job, parts: Vec::new(), closes })
    }

    fn go_on(&self, tree: &Tree, job: &Job) -> Choice {
        let order = tree.of.order;
        let upper: Vec<&Table> = tree.slices_of(job).collect();
        let step = |inputs, until, group| {
            let routes = vec![(None, group)];
            Choice::Merge(Step { inputs, until, routes, most: self.sizes.step, table: self.sizes.table })
        };
        if let Kind::Slices(level) = job.kind {
            if upper.is_empty() {
                return Choice::End;
            }
            let group = Group { level: (level + 1).min(HIGHEST), part: job.part };
            return step(upper.iter().map(|table| table.id).collect(), None, group);
        }
        let lower: Vec<&Table> = tree.bottom.iter().filter(|table| table.id < job.before).copied().collect();
        let wanted = |table: &Table| job.zones.contains(&table.zone);
        match next(order, &upper, &lower, wanted, self.sizes.step) {
            Some((inputs, until)) => step(inputs, until, BOTTOM),
            None => Choice::End,
        }
    }

    /// The partition that must be swept, lest one of them becomes larger than a sweep may be while it waits for others. Where the drive has time, all that wait count.
    fn too_large<'t, 'a>(&self, tree: &'t Tree<'a>) -> Option<&'t Share<'a>> {
        let mut largest: Vec<&Share> = tree.shares.iter().filter(|share| share.bytes > 0).collect();
        largest.sort_unstable_by_key(|share| Reverse(share.size()));
        let parts = tree.shares.len() as u64;
        let ahead = tree.of.goal == Goal::Ahead;
        let late = |(before, share): &(usize, &&Share)| {
            // While one is swept, about as much is put as it had in slices.
            let comes = if ahead { *before as u64 * share.bytes / parts } else { 0 };
            share.size() + comes > self.large(tree)
        };
        let last = largest.iter().enumerate().filter(late).map(|(at, _)| at).max()?;
        largest[..=last].iter().copied().max_by_key(|share| share.bytes)
    }

    /// The partition that is too large for what is due of it in memory, and that puts wait for. Its successors can be flushed as soon as its sweep begins.
    fn waited_for<'t, 'a>(&self, tree: &'t Tree<'a>) -> Option<&'t Share<'a>> {
        let due = due(tree.of, self.sizes)?;
        let waits = |share: &&Share| share.part.id == due.id && share.bytes > 0 && share.size() > self.most(tree);
        let has_room = |share: &&Share| u64::from(tree.of.free) >= tree.need_of(share, 0);
        tree.shares.iter().find(waits).filter(has_room)
    }

    /// The partition that must be swept now.
    fn over<'t, 'a>(&self, tree: &'t Tree<'a>) -> Option<&'t Share<'a>> {
        let heaviest = tree.heaviest()?;
        if let Some(share) = self.too_large(tree) {
            return Some(share);
        }
        let all: u64 = tree.shares.iter().map(Share::weight).sum();
        let free = u64::from(tree.of.free).saturating_sub(tree.reserve(0, 0) + self.slack(tree));
        let left = self.left(tree).min(free);
        let budget = (left + tree.zones(tree.upper)) * tree.of.zone;
        let used = (tree.of.zones - tree.of.free) as usize;
        let zones: HashSet<u32> = tree.shares.iter().flat_map(|share| &share.upper).map(|table| table.zone).collect();
        let rests = tree.of.goal == Goal::Idle && (zones.len().max(tree.zones(all) as usize) * 40 > used.max(40));
        // The earlier a sweep begins, the more room have puts while it lasts.
        let ahead = tree.of.goal == Goal::Ahead && all > budget / 2;
        (left == 0 || all > budget || ahead || rests || tree.of.goal == Goal::All).then_some(heaviest)
    }

    /// Begins to sweep a partition. Its number goes with it: what is flushed from now on is its successors'.
    fn sweep(&self, tree: &Tree, share: &Share) -> Choice {
        let order = tree.of.order;
        let at = part_of(order, tree.of.parts, share.upper[0].smallest.as_ref());
        let lower = tree.under(share);
        let touched: HashSet<u32> =
            tree.bottom.iter().zip(&lower).filter(|(_, merged)| **merged).map(|(table, _)| table.zone).collect();
        let mut zones: Vec<u32> = touched.iter().copied().collect();
        zones.sort_unstable();
        let job = Job { kind: Kind::Sweep, part: share.part.id, from: 0, before: tree.of.next, zones };
        let mut closes: Vec<Group> = share.upper.iter().map(|table| table.group).collect();
        closes.push(Group { level: 0, part: share.part.id });
        closes.extend(tree.of.open.iter().filter(|open| touched.contains(&open.zone)).map(|open| open.group));
        closes.sort_unstable();
        closes.dedup();
        let pieces = self.pieces(tree, share.bytes + share.bottom);
        let parts = self.joined(tree, at).unwrap_or_else(|| self.divided(tree, at, pieces as usize, None));
        Choice::Begin { job, parts, closes }
    }

    /// Begins to write zones of the bottom again whose tables have waste: of so many bytes at most, but at least one.
    fn rewrite(&self, tree: &Tree, most: u64, has_waste: impl Fn(&Table) -> bool) -> Option<Choice> {
        let (mut zones, mut bytes) = (HashSet::new(), 0);
        for table in tree.bottom.iter().filter(|table| has_waste(table)) {
            if zones.insert(table.zone) {
                bytes += tree.of.zone;
            }
            if bytes >= most {
                break;
            }
        }
        let closes = tree.of.open.iter().filter(|open| zones.contains(&open.zone)).map(|open| open.group).collect();
        let mut zones: Vec<u32> = zones.into_iter().collect();
        zones.sort_unstable();
        let job = Job { kind: Kind::Sweep, part: tree.unused(), from: 0, before: tree.of.next, zones };
        (!job.zones.is_empty()).then_some(Choice::Begin { job, parts: Vec::new(), closes })
    }

    /// What is last when nothing else makes room: zones of the bottom are written again that have what a snapshot or iterator needed, which is gone by now. Else those
    /// that have room between them for one zone more.
    fn make_room(&self, tree: &Tree) -> Option<Choice> {
        // All that is written has room before the first of these zones is free.
        let room = tree.of.free.checked_sub(1).filter(|zones| *zones > 0)?;
        let most = self.most(tree).min(u64::from(room) * tree.of.zone);
        // Tombstones may have to stay: with them this would never end.
        let rewritten = self.rewrite(tree, most, |table| table.has_old(tree.of.settled));
        rewritten.or_else(|| self.gather(tree))
    }

    /// Begins to write zones of the bottom again that have room between them for one zone more.
    fn gather(&self, tree: &Tree) -> Option<Choice> {
        let is_open = |zone: u32| tree.of.open.iter().any(|open| open.zone == zone);
        // Long entries do not fill zones, and the next time it would be the same again.
        let is_long = |table: &Table| table.stale > 0 || table.bytes / table.entries.max(1) > tree.of.zone / 16;
        let mut live: HashMap<u32, (u64, bool)> = HashMap::new();
        for table in tree.bottom.iter().filter(|table| !is_open(table.zone)) {
            let (bytes, long) = live.entry(table.zone).or_default();
            (*bytes, *long) = (*bytes + table.bytes, *long || is_long(table));
        }
        let fill = live.into_iter().filter(|(_, (_, long))| !long);
        let mut zones: Vec<(u64, u32)> = fill.map(|(zone, (bytes, _))| (bytes, zone)).collect();
        zones.sort_unstable();
        let (mut bytes, mut gathered) = (0, Vec::new());
        for (live, zone) in zones {
            bytes += live;
            gathered.push(zone);
            // Zones that are written anew do not become quite full either.
            let needs = tree.zones(bytes + bytes / 3);
            if bytes > self.most(tree) || tree.of.free < 2 {
                return None;
            }
            if needs < gathered.len() as u64 {
                gathered.sort_unstable();
                let job =
                    Job { kind: Kind::Sweep, part: tree.unused(), from: 0, before: tree.of.next, zones: gathered };
                return Some(Choice::Begin { job, parts: Vec::new(), closes: Vec::new() });
            }
        }
        None
    }

    /// All partitions, once neighbours have the range of this one, too: one of them, or both a piece, where they are small.
    fn joined(&self, tree: &Tree, at: usize) -> Option<Vec<(u32, Option<Key>)>> {
        let size = |at: usize| tree.shares[at].bottom + tree.shares[at].bytes;
        let right = Some(at + 1).filter(|right| *right < tree.shares.len());
        let with = [at.checked_sub(1), right].into_iter().flatten().min_by_key(|other| size(*other))?;
        let mut bounds: Vec<_> = tree.of.parts.iter().map(|part| (part.id, part.from.clone())).collect();
        if size(at) + size(with) <= self.small(tree) {
            let (_, from) = bounds.remove(at);
            if with > at {
                bounds[at].1 = from;
            }
            return Some(bounds);
        }
        let (left, right) = (at.checked_sub(1)?, right?);
        let half = (size(left) + size(at) + size(right)) / 2;
        if half > self.small(tree) || size(left).max(size(right)) >= half {
            return None;
        }
        let cuts = self.cuts(tree, at, 16);
        let cut = cuts.get(((half - size(left)) * cuts.len() as u64 / size(at)) as usize)?;
        bounds[right].1 = Some(cut.clone());
        bounds.remove(at);
        Some(bounds)
    }

    /// Keys that divide what a partition has.
    fn cuts(&self, tree: &Tree, at: usize, pieces: usize) -> Vec<Key> {
        let (order, parts) = (tree.of.order, tree.of.parts);
        let here = tree.bottom.iter().filter(|table| part_of(order, parts, &table.smallest) == at);
        let range = (parts[at].from.as_ref(), end(parts, at));
        cuts(order, here.chain(&tree.shares[at].upper).copied(), range, pieces)
    }

    /// All partitions, once this one is divided. The piece that has the key of `keeps` keeps the number.
    fn divided(&self, tree: &Tree, at: usize, pieces: usize, keeps: Option<(&Key, &Key)>) -> Vec<(u32, Option<Key>)> {
        let (order, parts) = (tree.of.order, tree.of.parts);
        let mut cuts = self.cuts(tree, at, pieces);
        if let Some((first, last)) = keeps {
            cuts.retain(|cut| order.compare(cut, first).is_le() || order.compare(cut, last).is_gt());
        }
        let mut bounds: Vec<(u32, Option<Key>)> = parts.iter().map(|part| (part.id, part.from.clone())).collect();
        let mut unused = tree.unused();
        let froms: Vec<Option<Key>> =
            std::iter::once(parts[at].from.clone()).chain(cuts.into_iter().map(Some)).collect();
        let holder = keeps.map(|(first, _)| {
            froms
                .partition_point(|from| from.as_ref().is_none_or(|from| order.compare(from, first).is_le()))
                .saturating_sub(1)
        });
        let pieces = froms.into_iter().enumerate().map(|(piece, from)| {
            if Some(piece) == holder {
                return (parts[at].id, from);
            }
            unused += 1;
            (unused - 1, from)
        });
        let pieces: Vec<_> = pieces.collect();
        bounds.splice(at..=at, pieces);
        bounds
    }

    /// Bounds that fit better. Only a partition without slices, or a piece without any, changes its number.
    fn bounds(&self, tree: &Tree) -> Option<Choice> {
        let most = self.small(tree);
        for (at, share) in tree.shares.iter().enumerate() {
            // One that must be swept for its size need not be if its slices are on one side, as those of keys in order. Small ones would become one again.
            let large = share.bytes > 0 && share.size() > self.large(tree) && share.bytes + share.bottom >= most;
            let pieces = self.pieces(tree, share.bottom).max(1 + u64::from(large));
            if pieces > 1 {
                let first = share.upper.iter().map(|table| &table.smallest).min_by(|a, b| tree.of.order.compare(a, b));
                let last = share.upper.iter().map(|table| &table.largest).max_by(|a, b| tree.of.order.compare(a, b));
                let divided = self.divided(tree, at, pieces as usize, first.zip(last));
                if divided.len() > tree.shares.len() {
                    return Some(Choice::Bounds(divided));
                }
            }
        }
        let small = |two: &[Share]| {
            let bytes: u64 = two.iter().map(|share| share.bottom + share.bytes).sum();
            two.iter().any(|share| share.upper.is_empty()) && bytes < most
        };
        let at = tree.shares.windows(2).position(small)?;
        let mut bounds: Vec<_> = tree.of.parts.iter().map(|part| (part.id, part.from.clone())).collect();
        let goes = bounds.remove(at + 1);
        if tree.shares[at].upper.is_empty() {
            bounds[at].0 = goes.0;
        }
        Some(Choice::Bounds(bounds))
    }

    /// Full zones of slices that overlap nothing belong to the bottom as they are.
    fn relabel(&self, tree: &Tree) -> Option<Choice> {
        let order = tree.of.order;
        let is_open = |zone: u32| tree.of.open.iter().any(|open| open.zone == zone);
        let alone = |share: &Share, table: &Table| {
            let at = tree.bottom.partition_point(|low| order.compare(&low.largest, &table.smallest).is_lt());
            tree.bottom.get(at).is_none_or(|low| order.compare(&low.smallest, &table.largest).is_gt())
                && table.tombstones == 0
                && share
                    .upper
                    .iter()
                    .chain(&tree.retired)
                    .all(|other| other.id == table.id || !overlap(order, other, table))
        };
        for share in &tree.shares {
            let mut zones: HashMap<u32, (bool, Vec<u64>)> = HashMap::new();
            for table in share.upper.iter().filter(|table| !is_open(table.zone)) {
                let zone = zones.entry(table.zone).or_insert((true, Vec::new()));
                zone.0 = zone.0 && alone(share, table);
                zone.1.push(table.id);
            }
            let mut tables: Vec<u64> = zones.into_values().filter(|zone| zone.0).flat_map(|zone| zone.1).collect();
            if !tables.is_empty() {
                tables.sort_unstable();
                return Some(Choice::Relabel(tables, BOTTOM));
            }
        }
        None
    }
}

impl Policy for Ring {
    fn choose(&self, of: &Snapshot) -> Choice {
        let tree = Tree::of(of);
        // Where the dial leaves nothing, a sweep begins before what is due is flushed: with many partitions something is always due.
        let sweeps = of.jobs.is_empty() && self.is_exceeded(&tree) && self.over(&tree).is_some();
        if !sweeps && let Some(choice) = self.flush(&tree) {
            return choice;
        }
        if let Some(job) = of.jobs.last() {
            return self.soon(&tree).unwrap_or_else(|| self.go_on(&tree, job));
        }
        if let Some(choice) = self.relabel(&tree).or_else(|| self.bounds(&tree)) {
            return choice;
        }
        if let Some(share) = self.waited_for(&tree) {
            return self.sweep(&tree, share);
        }
        let stuck = due(of, self.sizes).is_some().then(|| tree.heaviest()).flatten();
        let Some(share) = self.over(&tree).or(stuck) else {
            let more = self.soon(&tree).or_else(|| match of.goal {
                Goal::All => self.rewrite(&tree, self.most(&tree), |table| table.has_waste(of.settled)),
                _ => due(of, self.sizes).and_then(|_| self.make_room(&tree)).or_else(|| self.ahead(&tree)),
            });
            return more.unwrap_or(Choice::Nothing);
        };
        // Tombstones that are only in memory hide bytes, too.
        let in_memory = |share: &Share| share.part.hidden > share.hidden / 2 && share.part.bytes > 0;
        let flush_of = |share: &Share| {
            let part = share.part.id;
            Choice::Flush { part, into: Group { level: 0, part }, table: self.sizes.table }
        };
        if in_memory(share) {
            let fits = |(at, share): &(usize, &Share)| in_memory(share) && self.fits(&tree, *at);
            let heaviest = tree.shares.iter().enumerate().filter(fits).max_by_key(|(_, share)| share.weight());
            if let Some((_, share)) = heaviest {
                return flush_of(share);
            }
        }
        // There may be no room for it, or for its tombstones. Another sweep may make some, if it does not lack a zone in its middle: it would never end.
        let has_room = |share: &&Share| !share.upper.is_empty() && u64::from(of.free) >= tree.need_of(share, 0);
        let others = || tree.shares.iter().filter(has_room).max_by_key(|share| share.weight());
        // Nothing is kept that would help one out which lacks a zone then.
        let ends = |share: &&Share| has_room(share) && u64::from(of.free) >= tree.most_of(share, 0);
        let sure = || tree.shares.iter().filter(ends).max_by_key(|share| share.weight());
        let surely = if of.last { Some(share).filter(ends).or_else(sure) } else { None };
        if let Some(share) = surely.or_else(|| Some(share).filter(has_room)).or_else(others) {
            let at = of.parts.iter().position(|part| part.id == share.part.id);
            return at.and_then(|at| self.slim(&tree, at)).unwrap_or_else(|| self.sweep(&tree, share));
        }
        // What is left is to use the last zones: a sweep that deletes much gives some back before it lacks one, or there is no space for ever.
        let upper = tree.shares.iter().filter(|share| !share.upper.is_empty() && of.free > 0);
        if let Some(share) = upper.min_by_key(|share| (tree.need_of(share, 0), Reverse(share.weight()))) {
            return self.sweep(&tree, share);
        }
        let takes = |share: &&Share| u64::from(of.free) > tree.zones(share.part.bytes);
        let last = tree.shares.iter().filter(|share| in_memory(share)).filter(takes).max_by_key(|share| share.weight());
        let last = last.map(flush_of).or_else(|| self.make_room(&tree));
        // No sweep has begun, so what is due need not wait for one.
        last.or_else(|| self.flush(&tree).filter(|_| sweeps)).unwrap_or(Choice::Nothing)
    }

    fn pressure(&self, of: &Snapshot) -> Pressure {
        let headroom = headroom(of, self.sizes.memtable);
        if headroom == 0 {
            let stuck = of.jobs.is_empty() && matches!(self.choose(of), Choice::Nothing);
            return if stuck { Pressure::Full } else { Pressure::Stop };
        }
        let due = due(of, self.sizes);
        if of.jobs.is_empty() {
            let dialled = self.bottom > 0 && self.is_exceeded(&Tree::of(of));
            // What is due is flushed next, or a merge begins for it, or for the dial.
            let begins = (due.is_some() || dialled) && !matches!(self.choose(of), Choice::Nothing);
            let part = if dialled { 64 } else { 4 };
            return if begins { Pressure::Slow(headroom / part) } else { Pressure::None };
        }
        let tree = Tree::of(of);
        let dialled = self.is_exceeded(&tree);
        let steps = |bytes: u64| bytes / self.sizes.step.max(1) + 1;
        // Where the dial leaves nothing, less is put than sweeps take from the upper level. Flushes would make room in memory for more.
        let less = || {
            let swept = |job: &&Job| job.kind == Kind::Sweep;
            let slices =
                of.jobs.iter().filter(swept).map(|job| tree.slices_of(job).map(|table| table.bytes).sum::<u64>());
            (slices.sum::<u64>() / 2).max(headroom / 16)
        };
        // What may be put with the next step while a sweep is under way.
        let evenly = || {
            let rest = of.jobs.iter().map(|job| self.rest(&tree, job)).sum();
            let room = self.room(&tree).max(headroom / 2);
            if dialled { room.min(less()) / steps(rest) } else { room / steps(rest) }
        };
        let even = (dialled || of.jobs.iter().any(|job| job.kind == Kind::Sweep)).then(evenly);
        // What cannot be flushed until a merge is over stays in memory so long, and in the log: both must last.
        let at = due.and_then(|due| of.parts.iter().position(|part| part.id == due.id));
        if let Some((bytes, due)) = at.and_then(|at| Some((self.waits(&tree, at)?, due?))) {
            let parts = steps(bytes) + MORE;
            // Others are flushed meanwhile, but the log has what waits.
            let log = of.parts.iter().map(|part| part.log).max().unwrap_or(0);
            let log = (longest(self.sizes) - log) / parts;
            let more = self.instead(&tree, due).map_or(0, |_| log.min(headroom / 4).min(even.unwrap_or(u64::MAX)));
            let most = even.filter(|_| dialled).unwrap_or(u64::MAX);
            return Pressure::Slow(more.max(headroom / parts).min(most));
        }
        match (even, due) {
            (Some(even), _) => Pressure::Slow(even.min(headroom / 4)),
            (None, Some(_)) => Pressure::Slow(headroom / 4),
            (None, None) => Pressure::None,
        }
    }
}
