//! Merging: a step of it writes some tables, and takes from its inputs what is in those.

use super::Work;
use super::keep::{Keep, Kept};
use super::output::{are_durable, give_up, write_table};
use crate::core::Core;
use crate::core::file::{InTable, TableFile};
use crate::cursor::{Cursor, Merged};
use crate::manifest::Note;
use crate::policy::{Key, Step};
use imbrex_device::{Cause, Result};
use std::sync::Arc;

type Source<'a> = Kept<'a, Merged<InTable>>;

/// Carries a step out.
pub(super) fn merge(core: &Arc<Core>, work: &mut Work, step: &Step) -> Result<()> {
    let view = core.view();
    let inputs: Vec<_> = step.inputs.iter().filter_map(|id| view.tables.get(*id).cloned()).collect();
    let scans = inputs.iter().map(|input| work.scan(input)).collect::<Result<Vec<_>>>()?;
    let keep = Keep::of_merge(core, view, step.inputs.iter().copied().collect());
    let mut source = Kept::new(core, Merged::going_on(&core.options.order, scans), keep);
    let mut written = Vec::new();
    let end = match write(core, &mut source, step, &mut written) {
        Ok(end) => end,
        Err(error) => {
            give_up(core, &written);
            return Err(error);
        }
    };
    if !are_durable(core, &written, Cause::Compaction)? {
        // The policy will choose the same once more, and another zone is written.
        return Ok(());
    }
    core.counters.merged(&written);
    let notes = take(core, work, (inputs, source.into_cursor().into_cursors()), end, written);
    work.decide(core, &notes, Cause::Compaction)
}

/// Writes the tables of a step, and returns the key where it has ended; `None`: nothing is left of its inputs.
fn write(
    core: &Arc<Core>,
    source: &mut Source<'_>,
    step: &Step,
    written: &mut Vec<Arc<TableFile>>,
) -> Result<Option<Key>> {
    let (order, table) = (core.order(), step.table.min(step.most));
    let mut bytes = 0;
    loop {
        source.settle()?;
        let Some(key) = source.at().map(|at| Key::from(at.key)) else { return Ok(None) };
        let over = step.until.as_ref().is_some_and(|until| order.compare(&key, until).is_ge());
        // A table may have ended with its zone: a short one behind it is not worth its while.
        if over || bytes >= (step.most / 2).max(1) {
            return Ok(Some(key));
        }
        let begun = |(from, _): &(Option<Key>, _)| from.as_ref().is_none_or(|from| order.compare(from, &key).is_le());
        let route = step.routes.partition_point(begun).saturating_sub(1);
        let next = step.routes.get(route + 1).and_then(|(from, _)| from.as_ref());
        let cut = [next, step.until.as_ref()].into_iter().flatten().min_by(|a, b| order.compare(a, b));
        let group = step.routes[route].1;
        if let Some(table) = write_table(core, (group, table), source, cut.map(|cut| &**cut))? {
            bytes += table.info.len;
            written.push(table);
        }
    }
}

/// From here on the tables count, and their inputs only from the key on where the step has ended.
fn take(
    core: &Core,
    work: &mut Work,
    (inputs, scans): (Vec<Arc<TableFile>>, Vec<InTable>),
    end: Option<Key>,
    mut more: Vec<Arc<TableFile>>,
) -> Vec<Note> {
    let order = core.order();
    let mut notes: Vec<_> = more.iter().map(|table| Note::Table(table.info.clone())).collect();
    let mut gone = Vec::new();
    for (input, scan) in inputs.into_iter().zip(scans) {
        let id = input.info.id;
        let Some(end) = end.as_ref().filter(|end| order.compare(&input.info.largest, end).is_ge()) else {
            gone.push(id);
            notes.push(Note::Gone(id));
            continue;
        };
        let mut from = input.info.from.clone();
        if order.compare(input.info.first(), end).is_lt() {
            from = Some(end.clone());
            let live = scan.left().min(input.info.live);
            notes.push(Note::From { id, key: end.clone(), live });
            more.push(input.changed(|info| (info.from, info.live) = (Some(end.clone()), live)));
        }
        // Also of one that the step has not come to: what was read ahead is needed next.
        work.scans.insert(id, (from, scan));
    }
    core.change_tables(&more, &gone);
    notes
}

impl Work {
    /// A reader of what counts of the table, at its beginning.
    fn scan(&mut self, table: &Arc<TableFile>) -> Result<InTable> {
        if let Some((from, scan)) = self.scans.remove(&table.info.id)
            && from == table.info.from
        {
            // Who seeks back must not find what is before the front by now.
            return Ok(scan.of(table));
        }
        let mut scan = table.scan()?;
        scan.seek(None)?;
        Ok(scan)
    }
}
