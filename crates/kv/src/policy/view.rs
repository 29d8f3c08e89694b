//! What several policies look at.

use super::{Goal, Key, Part, Sizes, Snapshot, Table};
use crate::order::Order;
use std::cmp::Ordering;

/// How many of these tables have the same key in their range, at most.
pub(super) fn depth<'a>(order: &dyn Order, tables: impl Iterator<Item = &'a Table>) -> usize {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for table in tables {
        starts.push(&*table.smallest);
        ends.push(&*table.largest);
    }
    starts.sort_by(|a, b| order.compare(a, b));
    ends.sort_by(|a, b| order.compare(a, b));
    let (mut most, mut ended) = (0, 0);
    for (begun, start) in starts.iter().enumerate() {
        while order.compare(ends[ended], start) == Ordering::Less {
            ended += 1;
        }
        most = most.max(begun + 1 - ended);
    }
    most
}

/// Whether two tables may have the same key.
pub(super) fn overlap(order: &dyn Order, a: &Table, b: &Table) -> bool {
    order.compare(&a.smallest, &b.largest).is_le() && order.compare(&b.smallest, &a.largest).is_le()
}

/// The partition of a key.
pub(super) fn part_of(order: &dyn Order, parts: &[Part], key: &[u8]) -> usize {
    let after = |part: &Part| part.from.as_ref().is_none_or(|from| order.compare(from, key).is_le());
    parts.partition_point(after).saturating_sub(1)
}

/// Where a partition ends.
pub(super) fn end(parts: &[Part], at: usize) -> Option<&Key> {
    parts.get(at + 1).and_then(|next| next.from.as_ref())
}

/// The partition whose part of the memtable is flushed next: the one with the oldest entry where the log is nearly as long as it may
/// be or where all is wanted, or the largest where the memtable is full.
pub(super) fn due<'a>(tree: &Snapshot<'a>, sizes: Sizes) -> Option<&'a Part> {
    let oldest = tree.parts.iter().max_by_key(|part| part.log)?;
    let wanted = tree.goal == Goal::Flush || oldest.log >= longest(sizes) - sizes.memtable / 4;
    if oldest.bytes > 0 && wanted {
        return Some(oldest);
    }
    let full = tree.parts.iter().map(|part| part.bytes).sum::<u64>() >= sizes.memtable;
    tree.parts.iter().max_by_key(|part| part.bytes).filter(|_| full)
}

/// Bytes that may still be put, whatever waits for a merge, until memory or the log is at its bound.
pub(crate) fn headroom(tree: &Snapshot, memtable: u64) -> u64 {
    let full: u64 = tree.parts.iter().map(|part| part.bytes).sum();
    let log = tree.parts.iter().map(|part| part.log).max().unwrap_or(0);
    (memtable + memtable / 4).saturating_sub(full).min((2 * memtable).saturating_sub(log))
}

/// Bytes of the log at most.
pub(super) fn longest(sizes: Sizes) -> u64 {
    2 * sizes.memtable
}

/// New bounds within `from` and `until` that divide the bytes of these tables into so many pieces.
pub(super) fn cuts<'a>(
    order: &dyn Order,
    tables: impl Iterator<Item = &'a Table>,
    (from, until): (Option<&Key>, Option<&Key>),
    pieces: usize,
) -> Vec<Key> {
    let mut marks: Vec<(&Key, u64)> = Vec::new();
    let inside = |key: &Key| {
        from.is_none_or(|from| order.compare(from, key).is_lt())
            && until.is_none_or(|until| order.compare(key, until).is_lt())
    };
    for table in tables {
        let live: Vec<&Key> = table.marks.iter().filter(|mark| order.compare(mark, &table.smallest).is_ge()).collect();
        let live = if live.is_empty() { vec![&table.smallest] } else { live };
        let weight = table.bytes / live.len() as u64;
        marks.extend(live.into_iter().filter(|mark| inside(mark)).map(|mark| (mark, weight)));
    }
    marks.sort_by(|a, b| order.compare(a.0, b.0));
    let all: u64 = marks.iter().map(|mark| mark.1).sum();
    let (mut cuts, mut before): (Vec<Key>, u64) = (Vec::new(), 0);
    for (key, weight) in marks {
        let next = all * (cuts.len() as u64 + 1) / pieces as u64;
        if before >= next && cuts.len() + 1 < pieces && cuts.last().is_none_or(|last| order.compare(last, key).is_lt())
        {
            cuts.push(key.clone());
        }
        before += weight;
    }
    cuts
}

/// The next step of a merge of `upper` into `lower`: tables of `lower` do not overlap one another, both are in the order of keys. Tables
/// of `lower` that overlap none of `upper` stay, but for those that are `wanted`. The answer is the inputs and where the step ends.
pub(super) fn next(
    order: &dyn Order,
    upper: &[&Table],
    lower: &[&Table],
    wanted: impl Fn(&Table) -> bool,
    most: u64,
) -> Option<(Vec<u64>, Option<Key>)> {
    let merged = merged(order, upper, lower);
    let first = lower.iter().zip(&merged).find(|(table, merged)| **merged || wanted(table)).map(|(table, _)| *table);
    let start = match (upper.first(), first) {
        (Some(a), Some(b)) if order.compare(&a.smallest, &b.smallest).is_le() => &a.smallest,
        (Some(a), None) => &a.smallest,
        (_, b) => &b?.smallest,
    };
    let (mut inputs, mut until, mut bytes) = (Vec::new(), None, 0);
    for (table, merged) in lower.iter().zip(&merged) {
        if order.compare(&table.largest, start).is_lt() {
            continue;
        }
        if !*merged && !wanted(table) || bytes >= most {
            until = Some(table.smallest.clone());
            break;
        }
        bytes += table.bytes;
        inputs.push(table.id);
    }
    let begun = |table: &&&Table| until.as_ref().is_none_or(|end| order.compare(&table.smallest, end).is_lt());
    inputs.extend(upper.iter().filter(begun).map(|table| table.id));
    Some((inputs, until))
}

/// Which tables of `lower` overlap any of `upper`; both are in the order of keys.
pub(super) fn merged(order: &dyn Order, upper: &[&Table], lower: &[&Table]) -> Vec<bool> {
    let (mut at, mut reach): (usize, Option<&Key>) = (0, None);
    let overlaps = |table: &&Table| {
        while let Some(next) = upper.get(at).filter(|next| order.compare(&next.smallest, &table.largest).is_le()) {
            if reach.is_none_or(|reach| order.compare(reach, &next.largest).is_lt()) {
                reach = Some(&next.largest);
            }
            at += 1;
        }
        reach.is_some_and(|reach| order.compare(reach, &table.smallest).is_ge())
    };
    lower.iter().map(overlaps).collect()
}
