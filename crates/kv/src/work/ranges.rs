//! Deleted ranges on their way: into the metadata, over the tables that they cover, and out of it.

use super::Work;
use crate::core::Core;
use crate::core::ranges::{Meets, Range};
use crate::core::view::View;
use crate::manifest::{Note, Space};
use crate::policy::Key;
use crate::space::{begin, dropped, end};
use crate::sync::lock;
use imbrex_device::{Cause, Result};
use std::sync::atomic::Ordering;

/// Makes durable what was deleted, takes away the tables that have nothing else, and forgets ranges of which nothing is left. False: there was nothing to do.
pub(super) fn settle(core: &Core, work: &mut Work) -> Result<bool> {
    let view = core.view();
    if view.ranges.is_empty() {
        return Ok(false);
    }
    let order = core.order();
    let fresh: Vec<Range> = view.ranges.iter().filter(|range| range.noted.is_none()).cloned().collect();
    if !fresh.is_empty() {
        // The rest of the batch is as durable as this before it counts.
        core.wal()?.sync()?;
    }
    let (mut notes, mut gone, mut over) = (Vec::new(), Vec::new(), Vec::new());
    notes.extend(front(core)?);
    let (front, next) = core.look(|manifest| (manifest.front.1, manifest.next));
    let settled = core.settled();
    for range in view.ranges.iter() {
        if range.noted.is_none() {
            notes.extend(dropped_space(core, range));
            notes.push(Note::Range(range.deleted.clone()));
        }
        if settled < range.deleted.seq {
            // Somebody reads what is deleted.
            continue;
        }
        let mut left = false;
        for table in view.tables.within(order, &range.deleted.begin, &range.deleted.end) {
            match range.meets(order, &table.info) {
                Meets::All => gone.push(table.info.id),
                Meets::Some => left = true,
                Meets::No => {}
            }
        }
        // What the log has from its front on an opening reads again.
        if !left && range.noted.is_some() && front > range.deleted.seq {
            if let Some((number, _)) = space_of(core, range)
                && let Some(parts) = without_bounds(core, &view, number)
            {
                // Whoever opens the store without its order could not tell whether they ascend.
                if core.look(|manifest| manifest.jobs.is_empty()) {
                    work.divide(core, parts, Vec::new())?;
                    return Ok(true);
                }
                continue;
            }
            over.push(range.deleted.seq);
            notes.extend(gone_space(core, range));
            notes.push(Note::NoRange(range.deleted.seq));
        }
    }
    gone.sort_unstable();
    gone.dedup();
    gone.iter().for_each(|id| drop(work.scans.remove(id)));
    notes.extend(gone.iter().map(|id| Note::Gone(*id)));
    if notes.is_empty() {
        return Ok(false);
    }
    {
        let _nobody_writes = lock(&core.writing);
        let view = core.view();
        let noted = |range: &mut Range| {
            if fresh.iter().any(|fresh| fresh.deleted.seq == range.deleted.seq) {
                range.noted = Some(next);
            }
        };
        let ranges = view.ranges.changed(order, |all| {
            all.retain(|range| !over.contains(&range.deleted.seq));
            all.iter_mut().for_each(noted);
        });
        core.set_view(View {
            tables: view.tables.with(order, &[], &gone).into(),
            ranges: ranges.into(),
            ..View::clone(&view)
        });
    }
    work.decide(core, &notes, Cause::Compaction)?;
    Ok(true)
}

/// The log's front goes to its end where all of it is in tables, and some ranges are kept for nothing else.
fn front(core: &Core) -> Result<Option<Note>> {
    let _nobody_writes = lock(&core.writing);
    let (view, end) = (core.view(), core.wal()?.end());
    let next = core.visible.load(Ordering::Acquire) + 1;
    let behind = core.look(|manifest| {
        view.ranges.iter().any(|range| range.noted.is_some() && manifest.front.1 <= range.deleted.seq)
    });
    let empty = view.memory().all(|memory| memory.is_empty()) && view.ranges.oldest_record().is_none();
    if behind && empty { core.front((end, next)).map(Some) } else { Ok(None) }
}

/// Tables that were written while somebody read what a range deletes may still have that: only later ones are known to have nothing of it. `settled`: what was
/// [settled](Core::settled) before they were written.
pub(super) fn kept(core: &Core, settled: u64) {
    let kept = |range: &Range| range.noted.is_some() && range.deleted.seq > settled;
    if core.view().ranges.iter().any(kept) {
        let next = core.look(|manifest| manifest.next);
        let _nobody_writes = lock(&core.writing);
        let view = core.view();
        let all = |all: &mut Vec<Range>| {
            all.iter_mut().filter(|range| kept(range)).for_each(|range| range.noted = Some(next))
        };
        core.set_view(View { ranges: view.ranges.changed(core.order(), all).into(), ..View::clone(&view) });
    }
}

/// The space that was dropped with this range.
fn space_of(core: &Core, range: &Range) -> Option<(u16, Space)> {
    let whole = |number: u16| range.deleted.begin == dropped(number) && range.deleted.end == end(number);
    core.look(|manifest| {
        manifest.spaces.iter().find(|(number, _)| whole(**number)).map(|(number, space)| (*number, space.clone()))
    })
}

/// Partitions that do not begin in the space, in which nothing is left; `None`: none does now.
fn without_bounds(core: &Core, view: &View, number: u16) -> Option<Vec<(u32, Option<Key>)>> {
    let (order, first, last) = (core.order(), begin(number), end(number));
    let within = |from: &Option<Key>| {
        from.as_ref().is_some_and(|from| order.compare(&first, from).is_lt() && order.compare(from, &last).is_lt())
    };
    view.parts.iter().any(|part| within(&part.from)).then(|| {
        let all = view.parts.iter().enumerate();
        let kept = all.filter_map(|(at, part)| {
            let ends = view.parts.get(at + 1).and_then(|next| next.from.as_ref());
            match within(&part.from) {
                false => Some((part.id, part.from.clone())),
                true if ends.is_some_and(|ends| order.compare(ends, &last).is_le()) => None,
                true => Some((part.id, Some(Key::from(&last[..])))),
            }
        });
        kept.collect()
    })
}

/// What is noted where a space was dropped.
fn dropped_space(core: &Core, range: &Range) -> Option<Note> {
    let (number, space) = space_of(core, range)?;
    Some(Note::Space(number, Space { dropped: true, ..space }))
}

fn gone_space(core: &Core, range: &Range) -> Option<Note> {
    space_of(core, range).filter(|(_, space)| space.dropped).map(|(number, _)| Note::NoSpace(number))
}
