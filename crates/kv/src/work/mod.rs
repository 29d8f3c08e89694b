//! What the store does in the background: changes in memory become tables, and tables are merged. One flush and one merge at a time.
//!
//! **Space.** A merge frees zones of the bottom as it goes, and those of upper tables at its end. So it needs as many zones as upper tables have, and
//! [`ROOM`] more: the output's, the bottom zone that is half read, and one more at each side that it rewrites. A flush that would leave less waits for a merge, and
//! where that gains nothing there is no space. Changes that only delete may go two zones further, since the merge that follows gives more back.

mod flush;
mod keep;
mod merge;
mod output;

use crate::core::Core;
use crate::core::view::View;
use crate::sync::lock;
use imbrex_device::{Code, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Level of the tables that flushes make, and of the sorted ones below.
const UPPER: u8 = 0;
const BOTTOM: u8 = 1;

/// Zones that a merge needs beside those of upper tables.
pub(crate) const ROOM: u32 = 4;

/// Does one piece of work that must be done, if there is any.
pub(crate) fn step(core: &Arc<Core>) -> Result<bool> {
    match flush_step(core, u64::MAX, false) {
        // Whoever puts is told.
        Err(error) if error.code() == Code::NoSpace => merge_step(core, false),
        flushed => Ok(flushed? || merge_step(core, false)?),
    }
}

/// Whether there is so much in memory, or in the log, that tables must be made of it.
pub(crate) fn is_due(core: &Core) -> bool {
    part_to_flush(core).is_some()
}

/// Whether there is so much that who writes has to wait.
pub(crate) fn is_behind(core: &Core) -> bool {
    in_memory(&core.view()) > core.options.memtable_bytes * 3 / 2
}

/// How many bytes of changes are in memory.
fn in_memory(view: &View) -> usize {
    view.memory().map(|memory| memory.bytes()).sum()
}

/// The partition whose part of memory is flushed next, if one must be.
fn part_to_flush(core: &Core) -> Option<usize> {
    let view = core.view();
    // Else the log grows without end for a part that hardly changes.
    let oldest = (0..view.parts.len()).min_by_key(|part| view.parts[*part].oldest())?;
    let end = core.wal().map_or(0, |wal| wal.end());
    if end.saturating_sub(view.parts[oldest].oldest().0) > 2 * core.options.memtable_bytes as u64 {
        return Some(oldest);
    }
    let largest = (0..view.parts.len()).max_by_key(|part| view.parts[*part].bytes())?;
    (in_memory(&view) > core.options.memtable_bytes).then_some(largest)
}

/// Whether a flush of so many zones leaves enough for the merge that must follow.
fn leaves_room(free: u32, upper: u32, flush: u32, deletes: bool) -> bool {
    free >= upper + flush + ROOM + 2 * u32::from(!deletes)
}

fn may_flush(core: &Core, deletes: bool) -> bool {
    let (view, counts) = (core.view(), core.tenant.counts());
    let upper: BTreeSet<u32> = view.levels.at(UPPER).iter().map(|table| table.info.zone).collect();
    let flush = (in_memory(&view) as u64).div_ceil(core.tenant.volume().least_capacity()) as u32;
    // What the log has behind its last zone comes back with the flush.
    let log = core.look(|manifest| manifest.wal.len().saturating_sub(1)) as u32;
    let free = counts.free.saturating_sub(counts.reservations);
    free > flush && leaves_room(free + log, upper.len() as u32, flush, deletes)
}

/// Makes tables of what is in memory of one partition, where that is too much, or where it has a change that is not newer than `upto`. `deletes`: room is
/// made by what is about to come.
///
/// # Errors
/// `NoSpace` where not even a merge makes room for it.
pub(crate) fn flush_step(core: &Arc<Core>, upto: u64, deletes: bool) -> Result<bool> {
    let old = |part: &usize| upto < u64::MAX && core.view().parts[*part].oldest().1 <= upto;
    let wanted = || part_to_flush(core).or_else(|| (0..core.view().parts.len()).find(old));
    while wanted().is_some() && !may_flush(core, deletes) {
        if !merge_step(core, true)? {
            return Err(core.no_space());
        }
    }
    let _one = lock(&core.flushing);
    if let Some((part, frozen)) = core.view().frozen.first().cloned() {
        // An earlier attempt has failed.
        flush::flush_frozen(core, part as u32, &frozen)?;
        return Ok(true);
    }
    let Some(part) = wanted() else { return Ok(false) };
    let frozen = flush::freeze(core, part);
    flush::flush_frozen(core, part as u32, &frozen)?;
    Ok(true)
}

/// Merges one partition with the bottom, where there is too much above that; `all`: where there is anything.
pub(crate) fn merge_step(core: &Arc<Core>, all: bool) -> Result<bool> {
    let _one = lock(&core.merging);
    let mut of_groups = BTreeMap::<u32, u64>::new();
    for table in core.view().levels.at(UPPER) {
        *of_groups.entry(table.info.group).or_default() += table.info.len;
    }
    if !all && of_groups.values().sum::<u64>() <= core.options.upper_bytes {
        return Ok(false);
    }
    let Some((group, _)) = of_groups.into_iter().max_by_key(|(_, bytes)| *bytes) else { return Ok(false) };
    merge::merge(core, group)?;
    Ok(true)
}

/// Makes tables of all that readers see now.
pub(crate) fn flush_all(core: &Arc<Core>) -> Result<()> {
    let upto = core.visible.load(Ordering::Acquire);
    while flush_step(core, upto, true)? {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_leaves_room_for_the_merge_behind_it() {
        assert!(leaves_room(ROOM + 5, 2, 1, false));
        assert!(!leaves_room(ROOM + 4, 2, 1, false));
        assert!(leaves_room(ROOM + 3, 2, 1, true));
        assert!(!leaves_room(ROOM + 2, 2, 1, true));
    }
}
