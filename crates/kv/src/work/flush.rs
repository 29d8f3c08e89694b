//! Flushing: changes in memory of one partition become a sorted table, or several.

use super::UPPER;
use super::keep::{Keep, Kept};
use super::output::write_table;
use crate::core::Core;
use crate::core::view::View;
use crate::cursor::{Cursor, InMemory};
use crate::manifest::Note;
use crate::memtable::MemTable;
use crate::sync::lock;
use imbrex_device::{Cause, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From now on the partition's changes go to a new part of memory.
pub(super) fn freeze(core: &Arc<Core>, part: usize) -> Arc<MemTable> {
    let _nobody_writes = lock(&core.writing);
    let frozen = core.view().parts[part].clone();
    core.change_view(|view| {
        let (mut parts, mut all) = (view.parts.clone(), view.frozen.clone());
        parts[part] = Arc::new(MemTable::new(&core.options.order));
        all.push((part, frozen.clone()));
        View { bounds: view.bounds.clone(), parts, frozen: all, levels: view.levels.clone() }
    });
    frozen
}

pub(super) fn flush_frozen(core: &Arc<Core>, group: u32, frozen: &Arc<MemTable>) -> Result<()> {
    // A batch may have changes of other partitions, too. The table must not outlive those, so the log is durable before it counts: the same flush is for both.
    core.wal()?.write()?;
    let mut cursor = InMemory::new(frozen.clone());
    cursor.seek(None)?;
    let keep = Keep::of_memory(core);
    let mut tables = Vec::new();
    let mut source = Kept::new(core, cursor, keep);
    loop {
        match write_table(core, (UPPER, group), &mut source, None, Cause::Flush) {
            Ok(Some(table)) => tables.push(table),
            Ok(None) => break,
            Err(error) => {
                tables.iter().for_each(|table| core.give_up(table.info.id, (UPPER, group), table.info.zone));
                return Err(error);
            }
        }
    }
    // All of them are durable: now they count, and the log's front goes on.
    let (position, seq) = {
        let _nobody_writes = lock(&core.writing);
        let (view, end) = (core.view(), core.wal()?.end());
        let others = view.memory().filter(|other| !Arc::ptr_eq(other, frozen));
        let oldest = others.map(|other| other.oldest()).min();
        oldest.unwrap_or((u64::MAX, u64::MAX)).min((end, core.visible.load(Ordering::Acquire) + 1))
    };
    let mut notes: Vec<_> = tables.iter().map(|table| Note::Table(table.info.clone())).collect();
    notes.push(Note::Front { position, seq });
    let number = core.note(&notes);
    core.change_view(|view| {
        let mut next = view.with_tables(core.order(), &tables, &[]);
        next.frozen.retain(|(_, other)| !Arc::ptr_eq(other, frozen));
        next
    });
    core.commit(number, Cause::Flush)
}
