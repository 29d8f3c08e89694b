//! Merging: upper tables of a partition, and what lies below them, become sorted tables of the bottom.
//!
//! Zones of the bottom that a merge touches are rewritten whole: else they stay half dead for ever. An output ends where a bottom table stands that is no
//! input, so the bottom's tables never overlap.

use super::keep::{Keep, Kept};
use super::output::write_table;
use super::{BOTTOM, UPPER};
use crate::core::Core;
use crate::core::file::TableFile;
use crate::core::level::InLevel;
use crate::core::view::View;
use crate::cursor::{Cursor, Merged};
use crate::manifest::{Note, TableInfo};
use crate::order::Order;
use imbrex_device::{Cause, Result};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is merged, and what lies beside it.
struct Plan {
    upper: Vec<Arc<TableFile>>,
    /// In the order of keys.
    bottom: Vec<Arc<TableFile>>,
    others: Vec<Arc<TableFile>>,
}

/// The upper tables of a group, and what lies below them.
fn plan(order: &dyn Order, view: &View, group: u32) -> Plan {
    let (upper, mut others): (Vec<_>, Vec<_>) =
        view.levels.at(UPPER).iter().cloned().partition(|table| table.info.group == group);
    let below = view.levels.at(BOTTOM);
    let overlaps = |table: &Arc<TableFile>| {
        upper.iter().any(|upper| {
            order.compare(upper.info.first(), &table.info.largest).is_le()
                && order.compare(table.info.first(), &upper.info.largest).is_le()
        })
    };
    let zones: BTreeSet<u32> = below.iter().filter(|table| overlaps(table)).map(|table| table.info.zone).collect();
    let (bottom, beside): (Vec<_>, Vec<_>) = below.iter().cloned().partition(|table| zones.contains(&table.info.zone));
    others.extend(beside);
    Plan { upper, bottom, others }
}

/// Merges the upper tables of a group to the bottom, in steps: each ends with the table that it has written, and takes from the others what is in that.
pub(super) fn merge(core: &Arc<Core>, group: u32) -> Result<()> {
    let order = &core.options.order;
    let Plan { upper, bottom, others } = plan(order.as_ref(), &core.view(), group);
    // What is written from here on goes to other zones than those that are about to become empty.
    core.close_zones(&upper.iter().chain(&bottom).map(|table| table.info.zone).collect());
    if let ([table], []) = (&upper[..], &bottom[..])
        && table.info.deletes == 0
        && table.info.len >= core.tenant.volume().least_capacity() / 2
    {
        return relabel(core, table);
    }
    let mut cursors = upper.iter().map(TableFile::scan).collect::<Result<Vec<_>>>()?;
    cursors.push(Box::new(InLevel::once(order, bottom.clone())));
    let mut cursor = Merged::new(order, cursors);
    cursor.seek(None)?;
    // First keys of what the outputs must not reach over.
    let beside = others.iter().filter(|table| table.info.level == BOTTOM);
    let cuts: Vec<Vec<u8>> = beside.map(|table| table.info.first().to_vec()).collect();
    let mut source = Kept::new(core, cursor, Keep::of_merge(core, others));
    let mut left: Vec<_> = upper.into_iter().chain(bottom).collect();
    loop {
        source.settle()?;
        let from = source.next_key();
        let cut = from.as_ref().and_then(|from| cuts.iter().find(|cut| order.compare(cut, from).is_gt()));
        let written = write_table(core, (BOTTOM, 0), &mut source, cut.map(Vec::as_slice), Cause::Compaction)?;
        source.settle()?;
        // From here on the inputs still count.
        let next = source.next_key();
        let mut notes: Vec<_> = written.iter().map(|table| Note::Table(table.info.clone())).collect();
        let (mut gone, mut more) = (Vec::new(), written.into_iter().collect::<Vec<_>>());
        left.retain_mut(|table| {
            let over = next.as_ref().is_none_or(|next| order.compare(&table.info.largest, next) == Ordering::Less);
            let moves = next.as_ref().is_some_and(|next| order.compare(table.info.first(), next) == Ordering::Less);
            if over {
                gone.push(table.info.id);
                notes.push(Note::Gone(table.info.id));
            } else if let Some(next) = next.as_ref().filter(|_| moves) {
                gone.push(table.info.id);
                notes.push(Note::From { id: table.info.id, key: next.clone() });
                let info = TableInfo { from: Some(next.clone()), ..table.info.clone() };
                *table = table.changed(info);
                more.push(table.clone());
            }
            !over
        });
        if notes.is_empty() {
            return Ok(());
        }
        let number = core.note(&notes);
        core.change_view(|view| view.with_tables(core.order(), &more, &gone));
        // Zones of what is over become free with this commit.
        drop(more);
        source.cursor.drop_passed();
        core.commit(number, Cause::Compaction)?;
        if next.is_none() {
            return Ok(());
        }
    }
}

/// A table that overlaps nothing below goes there as it is, if its zone is not wasted on it.
fn relabel(core: &Arc<Core>, table: &Arc<TableFile>) -> Result<()> {
    let info = TableInfo { level: BOTTOM, ..table.info.clone() };
    let moved = table.changed(info.clone());
    let number = core.note(&[Note::Table(info)]);
    core.change_view(|view| view.with_tables(core.order(), std::slice::from_ref(&moved), &[table.info.id]));
    core.commit(number, Cause::Compaction)
}
