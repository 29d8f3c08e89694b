//! Flushing: changes in memory of one partition become a sorted table, or several.

use super::Work;
use super::keep::{Keep, Kept};
use super::output::{TRIES, are_durable, died, write_tables};
use crate::core::Core;
use crate::core::file::TableFile;
use crate::core::view::{Frozen, Part, View};
use crate::cursor::{Cursor, InOrder};
use crate::manifest::{Flushed, Note};
use crate::memtable::MemTable;
use crate::policy::Group;
use crate::sync::lock;
use imbrex_device::{Cause, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes tables, of so many bytes at most, of what is in memory of the partition.
pub(super) fn flush(core: &Arc<Core>, work: &mut Work, part: u32, (into, table): (Group, u64)) -> Result<()> {
    match freeze(core, part, (into, table)) {
        Some(frozen) => flush_frozen(core, work, &frozen),
        None => Ok(()),
    }
}

/// From now on the partition's changes go to a new part of memory.
fn freeze(core: &Core, part: u32, (into, table): (Group, u64)) -> Option<Frozen> {
    let _nobody_writes = lock(&core.writing);
    let mut view = View::clone(&core.view());
    let at = view.parts.iter().position(|known| known.id == part)?;
    let to = view.parts.get(at + 1).and_then(|next| next.from.clone());
    let part: &mut Part = &mut view.parts[at];
    let upto = Flushed { from: part.from.clone(), to, seq: core.visible.load(Ordering::Acquire) };
    let memory = std::mem::replace(&mut part.memory, Arc::new(MemTable::new(&core.options.order)));
    let frozen = Frozen { into, table, memory, upto };
    view.frozen.push(frozen.clone());
    core.set_view(view);
    Some(frozen)
}

/// Writes the tables.
fn write(core: &Arc<Core>, frozen: &Frozen) -> Result<Vec<Arc<TableFile>>> {
    let mut cursor = InOrder::new(&frozen.memory);
    cursor.seek(None)?;
    write_tables(core, (frozen.into, frozen.table), &mut Kept::new(core, cursor, Keep::of_memory(core)))
}

pub(super) fn flush_frozen(core: &Arc<Core>, work: &mut Work, frozen: &Frozen) -> Result<()> {
    // A batch may have changes of other partitions, too. The table must not outlive those, so the log is durable before it counts: the same flush is for both.
    core.wal()?.write()?;
    let mut tries = 0;
    let tables = loop {
        let tables = write(core, frozen)?;
        if are_durable(core, &tables, Cause::Flush)? {
            break tables;
        }
        tries += 1;
        if tries == TRIES {
            return Err(died(core));
        }
    };
    core.counters.flushed(&tables);
    // All of them are durable: now they count, and the log's front goes on.
    let mut notes: Vec<_> = tables.iter().map(|table| Note::Table(table.info.clone())).collect();
    if frozen.memory.has_operands() {
        notes.push(Note::Flushed(frozen.upto.clone()));
    }
    {
        let _nobody_writes = lock(&core.writing);
        let mut next = View::clone(&core.view());
        next.frozen.retain(|other| !Arc::ptr_eq(&other.memory, &frozen.memory));
        next.tables = Arc::new(next.tables.with(core.order(), &tables, &[]));
        let end = (core.wal()?.end(), core.visible.load(Ordering::Acquire) + 1);
        notes.push(core.front(next.oldest_record().min(end))?);
        core.set_view(next);
    }
    work.decide(core, &notes, Cause::Flush)
}
