//! The store as a policy looks at it.

use super::Core;
use super::view::Described;
use crate::manifest::MOST_HIDDEN;
use crate::order::Order;
use crate::piece::Piece;
use crate::policy::{Goal, Job, Open, Part, Snapshot, Window};
use std::sync::Arc;

/// What a [snapshot](Snapshot) is made of.
pub(crate) struct Tree {
    order: Arc<dyn Order>,
    described: Arc<Described>,
    parts: Vec<Part>,
    jobs: Vec<Job>,
    windows: Vec<Window>,
    open: Vec<Open>,
    zones: u32,
    free: u32,
    last: bool,
    zone: u64,
    writes: u32,
    next: u64,
    settled: u64,
    goal: Goal,
}

/// The beginning of a piece that is ingested.
pub(crate) struct Front {
    /// Whose keys it has.
    pub part: u32,
    /// How many pairs.
    pub end: usize,
}

/// Zones that only memory which mostly deletes may take: else a full store has no room to make room.
const SPARE: u32 = 2;

/// Zones that the log may come to have: twice the memory in bytes and a little more, one that is not full, and one in which it goes on.
pub(crate) fn log_zones(memtable: u64, zone: u64) -> u32 {
    (2 * memtable + memtable / 8).div_ceil(zone.max(1)).saturating_add(2).try_into().unwrap_or(u32::MAX)
}

/// Free zones, without those that the log may still take.
fn free_of_log(core: &Core) -> u32 {
    let most = log_zones(core.options.memtable_bytes as u64, core.zone_bytes());
    let has = core.look(|manifest| manifest.wal.len()) as u32;
    let counts = core.tenant.counts();
    counts.free.saturating_sub(counts.reservations.max(most.saturating_sub(has)))
}

/// Zones that tables may take, with those left that deletions on a full store need.
pub(crate) fn room(core: &Core) -> u32 {
    free_of_log(core).saturating_sub(SPARE)
}

impl Tree {
    /// As it is now. Nobody else carries choices out meanwhile.
    pub fn of(core: &Core, goal: Goal) -> Tree {
        let view = core.view();
        let described = view.described(core.order());
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
            hidden: (part.memory.deletes() as u64).saturating_mul(described.entry).min(MOST_HIDDEN),
            log: if part.memory.is_empty() { 0 } else { end.saturating_sub(part.memory.oldest().0).max(least) },
        };
        let (open, used) = core.zones_of_tables();
        let (deletes, changes) = view
            .memory()
            .fold((0, 0), |(deletes, changes), memory| (deletes + memory.deletes(), changes + memory.len()));
        let last = deletes * 4 > changes || goal == Goal::Delete;
        let spare = if last { 0 } else { SPARE };
        let free = free_of_log(core).saturating_sub(spare);
        Tree {
            parts: view.parts.iter().map(part).collect(),
            order: core.options.order.clone(),
            described,
            jobs,
            windows,
            open,
            zones: used + free,
            free,
            last,
            zone,
            writes: core.groups_at_once(),
            next,
            settled: core.settled(),
            goal,
        }
    }

    /// The same where the beginning of a piece, up to the end of its partition, must become tables before anything else: as if it were in memory.
    pub fn begin(&mut self, piece: &Piece) -> Front {
        let order = self.order.as_ref();
        let before = |part: &Part| part.from.as_ref().is_none_or(|from| order.compare(from, piece.first()).is_le());
        let at = self.parts.partition_point(before).saturating_sub(1);
        let until = self.parts.get(at + 1).and_then(|next| next.from.as_deref());
        let (end, bytes) = piece.before(order, until);
        let part = &mut self.parts[at];
        (part.bytes, part.log) = (part.bytes + bytes, u64::MAX);
        Front { part: part.id, end }
    }

    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            order: self.order.as_ref(),
            tables: &self.described.tables,
            parts: &self.parts,
            jobs: &self.jobs,
            windows: &self.windows,
            open: &self.open,
            zones: self.zones,
            free: self.free,
            last: self.last,
            zone: self.zone,
            writes: self.writes,
            next: self.next,
            settled: self.settled,
            goal: self.goal,
        }
    }
}
