//! The store as a policy looks at it.

use super::Core;
use super::file::TableFile;
use super::view::View;
use crate::order::Order;
use crate::policy::{Goal, Job, Open, Part, Snapshot, Table, Window};
use std::sync::Arc;

/// What a [snapshot](Snapshot) is made of.
pub(crate) struct Tree {
    order: Arc<dyn Order>,
    tables: Vec<Table>,
    parts: Vec<Part>,
    jobs: Vec<Job>,
    windows: Vec<Window>,
    open: Vec<Open>,
    zones: u32,
    free: u32,
    zone: u64,
    writes: u32,
    next: u64,
    settled: u64,
    goal: Goal,
}

/// Zones that the log may come to have: twice the memory in bytes and a little more, one that is not full, and one in which it goes on.
pub(crate) fn log_zones(memtable: u64, zone: u64) -> u32 {
    (2 * memtable + memtable / 8).div_ceil(zone.max(1)).saturating_add(2).try_into().unwrap_or(u32::MAX)
}

/// What one of the changes that are there takes in tables, in bytes.
fn entry(view: &View) -> u64 {
    let (mut bytes, mut puts) = (0, 0);
    for table in view.tables.iter() {
        bytes += table.info.len;
        puts += table.info.entries.saturating_sub(table.info.deletes);
    }
    bytes / puts.max(1)
}

fn table(file: &TableFile, entry: u64) -> Table {
    let info = &file.info;
    let live = |count: u64| (u128::from(count) * u128::from(info.live) / u128::from(info.len.max(1))) as u64;
    Table {
        id: info.id,
        group: info.group,
        smallest: info.from.clone().unwrap_or_else(|| info.smallest.clone()),
        largest: info.largest.clone(),
        oldest: info.seqs.0,
        newest: info.seqs.1,
        bytes: info.live,
        entries: live(info.entries),
        tombstones: live(info.deletes),
        hidden: live(info.deletes).saturating_mul(entry),
        stale: live(info.stale),
        zone: info.zone,
        marks: info.marks.clone(),
    }
}

impl Tree {
    /// As it is now. Nobody else carries choices out meanwhile.
    pub fn of(core: &Core, goal: Goal) -> Tree {
        let (view, counts) = (core.view(), core.tenant.counts());
        let (entry, order) = (entry(&view), core.options.order.clone());
        let mut tables: Vec<Table> = view.tables.iter().map(|file| table(file, entry)).collect();
        tables.sort_by(|a, b| order.compare(&a.smallest, &b.smallest));
        let (memtable, zone) = (core.options.memtable_bytes as u64, core.zone_bytes());
        let log_most = log_zones(memtable, zone);
        let (log_zones, jobs, windows, next) = core.look(|manifest| {
            let windows = manifest.windows.values().cloned().collect();
            (manifest.wal.len() as u32, manifest.jobs.clone(), windows, manifest.next)
        });
        let end = core.wal().map_or(0, |wal| wal.end());
        // Each opening begins a zone: many zones may have few bytes.
        let least = if log_zones >= log_most { 2 * memtable } else { 1 };
        let part = |part: &super::view::Part| Part {
            id: part.id,
            from: part.from.clone(),
            bytes: part.memory.bytes() as u64,
            hidden: (part.memory.deletes() as u64).saturating_mul(entry),
            log: if part.memory.is_empty() { 0 } else { end.saturating_sub(part.memory.oldest().0).max(least) },
        };
        let (open, used) = core.zones_of_tables();
        // What the log may still take is not for tables.
        let free = counts.free.saturating_sub(counts.reservations.max(log_most.saturating_sub(log_zones)));
        Tree {
            parts: view.parts.iter().map(part).collect(),
            order,
            tables,
            jobs,
            windows,
            open,
            zones: used + free,
            free,
            zone,
            writes: core.groups_at_once(),
            next,
            settled: core.settled(),
            goal,
        }
    }

    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            order: self.order.as_ref(),
            tables: &self.tables,
            parts: &self.parts,
            jobs: &self.jobs,
            windows: &self.windows,
            open: &self.open,
            zones: self.zones,
            free: self.free,
            zone: self.zone,
            writes: self.writes,
            next: self.next,
            settled: self.settled,
            goal: self.goal,
        }
    }
}
