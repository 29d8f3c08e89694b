//! What the store does in the background: changes in memory become tables, and tables are merged. One piece of work at a time.

use crate::core::file::TableFile;
use crate::core::view::View;
use crate::core::{Core, Group};
use crate::cursor::{At, Cursor, InMemory, Merged};
use crate::manifest::{Note, TableInfo};
use crate::memtable::MemTable;
use crate::sync::lock;
use crate::table::{Identity, Kind, TableBuilder};
use imbrex_device::{Cause, Code, Error, Result};
use imbrex_zones::{OpenZone, Urgency};
use std::cmp::Ordering as Order;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Level of the tables that flushes make, and of the sorted ones below.
pub(crate) const UPPER: u8 = 0;
pub(crate) const BOTTOM: u8 = 1;

/// Bytes of a table that wait in memory at most.
const AHEAD: usize = 4 << 20;
/// A zone with less room than this part of a table is closed.
const LEAST: u64 = 8;
/// Bytes of a table beside its entries.
const AROUND: u64 = 12 << 10;
/// So often a table is written again whose zone died.
const TRIES: usize = 4;

/// Does one piece of work, if there is any that must be done; `all`: also what need not be done yet.
pub(crate) fn step(core: &Arc<Core>, all: bool) -> Result<bool> {
    Ok(flush_step(core, all)? || merge_step(core, all)?)
}

/// Makes tables of what is in memory of one partition, where that is too much.
pub(crate) fn flush_step(core: &Arc<Core>, all: bool) -> Result<bool> {
    let _one = lock(&core.flushing);
    if let Some((part, frozen)) = core.view().frozen.first().cloned() {
        // An earlier attempt has failed.
        flush_frozen(core, part as u32, &frozen)?;
        return Ok(true);
    }
    let Some(part) = part_to_flush(core, all) else { return Ok(false) };
    let frozen = freeze(core, part);
    flush_frozen(core, part as u32, &frozen)?;
    Ok(true)
}

/// Merges one partition with the bottom, where there is too much above that.
pub(crate) fn merge_step(core: &Arc<Core>, all: bool) -> Result<bool> {
    let _one = lock(&core.merging);
    let Some(tables) = tables_to_merge(core, all) else { return Ok(false) };
    merge(core, tables)?;
    Ok(true)
}

/// Whether there is so much in memory that who writes has to wait.
pub(crate) fn is_behind(core: &Core) -> bool {
    in_memory(&core.view()) > core.options.memtable_bytes * 3 / 2
}

/// Whether something must be done.
pub(crate) fn is_due(core: &Core) -> bool {
    in_memory(&core.view()) > core.options.memtable_bytes
}

/// How many bytes of changes are in memory.
fn in_memory(view: &View) -> usize {
    view.memory().map(|memory| memory.bytes()).sum()
}

fn part_to_flush(core: &Core, all: bool) -> Option<usize> {
    let view = core.view();
    // Else the log grows without end for a part that hardly changes.
    let oldest = (0..view.parts.len()).min_by_key(|part| view.parts[*part].oldest())?;
    let end = core.wal().map_or(0, |wal| wal.end());
    if end.saturating_sub(view.parts[oldest].oldest().0) > 2 * core.options.memtable_bytes as u64 {
        return Some(oldest);
    }
    let largest = (0..view.parts.len()).max_by_key(|part| view.parts[*part].bytes())?;
    let must = in_memory(&view) > core.options.memtable_bytes;
    (must || all && !view.parts[largest].is_empty()).then_some(largest)
}

fn tables_to_merge(core: &Core, all: bool) -> Option<Vec<Arc<TableFile>>> {
    let view = core.view();
    let mut of_groups = BTreeMap::<u32, u64>::new();
    for table in &view.levels.get(usize::from(UPPER))?.tables {
        *of_groups.entry(table.info.group).or_default() += table.info.len;
    }
    if !all && of_groups.values().sum::<u64>() <= core.options.upper_bytes {
        return None;
    }
    let (group, _) = of_groups.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    Some(merge_of(core, &view, group))
}

/// The upper tables of a group, and what lies below them.
fn merge_of(core: &Core, view: &View, group: u32) -> Vec<Arc<TableFile>> {
    let order = core.order();
    let upper = &view.levels[usize::from(UPPER)].tables;
    let mut tables: Vec<_> = upper.iter().filter(|table| table.info.group == group).cloned().collect();
    let below = view.levels.get(usize::from(BOTTOM)).map_or(&[][..], |level| &level.tables[..]);
    let overlaps = |table: &&Arc<TableFile>| {
        tables.iter().any(|upper| {
            order.compare(upper.info.first(), &table.info.largest).is_le()
                && order.compare(table.info.first(), &upper.info.largest).is_le()
        })
    };
    let below: Vec<_> = below.iter().filter(overlaps).cloned().collect();
    tables.extend(below);
    tables
}

/// From now on the partition's changes go to a new part of memory.
fn freeze(core: &Arc<Core>, part: usize) -> Arc<MemTable> {
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

fn flush_frozen(core: &Arc<Core>, group: u32, frozen: &Arc<MemTable>) -> Result<()> {
    // A batch may have changes of other partitions, too. The table must not outlive those, so the log is durable before it counts: the same flush is for both.
    core.wal()?.write()?;
    let mut cursor = InMemory::new(frozen.clone());
    cursor.seek(None)?;
    let keep = Keep::new(core, None);
    let mut tables = Vec::new();
    let mut source = Kept::new(core, cursor, keep);
    loop {
        match write_table(core, (UPPER, group), &mut source, Cause::Flush) {
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

/// Merges tables to the bottom, in steps: each ends with the tables that it has written, and takes from the others what is in them.
fn merge(core: &Arc<Core>, mut left: Vec<Arc<TableFile>>) -> Result<()> {
    let order = &core.options.order;
    if let [table] = &left[..] {
        return relabel(core, table);
    }
    let cursors = left.iter().map(|table| table.scan()).collect::<Result<_>>()?;
    let mut cursor = Merged::new(order, cursors);
    cursor.seek(None)?;
    let keep = Keep::new(core, Some(&left));
    let mut source = Kept::new(core, cursor, keep);
    loop {
        let written = write_table(core, (BOTTOM, 0), &mut source, Cause::Compaction)?;
        // From here on the inputs still count.
        let next = source.next_key();
        let mut notes: Vec<_> = written.iter().map(|table| Note::Table(table.info.clone())).collect();
        let (mut gone, mut more) = (Vec::new(), written.iter().cloned().collect::<Vec<_>>());
        left.retain_mut(|table| {
            let over = next.as_ref().is_none_or(|next| order.compare(&table.info.largest, next) == Order::Less);
            let moves = next.as_ref().is_some_and(|next| order.compare(table.info.first(), next) == Order::Less);
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
        source.cursor.drop_ended();
        core.commit(number, Cause::Compaction)?;
        if next.is_none() {
            return Ok(());
        }
    }
}

/// A table that overlaps nothing below goes there as it is.
fn relabel(core: &Arc<Core>, table: &Arc<TableFile>) -> Result<()> {
    let info = TableInfo { level: BOTTOM, ..table.info.clone() };
    let moved = table.changed(info.clone());
    let number = core.note(&[Note::Table(info)]);
    core.change_view(|view| view.with_tables(core.order(), std::slice::from_ref(&moved), &[table.info.id]));
    core.commit(number, Cause::Compaction)
}

/// Which changes somebody may still read.
struct Keep {
    /// Numbers that somebody reads at, ascending, and the newest.
    seqs: Vec<u64>,
    /// Tables that are not merged, where a delete may hide something; `None`: all.
    others: Option<Vec<Arc<TableFile>>>,
}

impl Keep {
    /// Of a merge of these tables; `None`: of changes in memory, below which anything may be.
    fn new(core: &Core, merged: Option<&[Arc<TableFile>]>) -> Keep {
        let mut seqs = core.reader_seqs();
        seqs.push(u64::MAX);
        let others = merged.map(|merged| {
            let view = core.view();
            let other = |table: &&Arc<TableFile>| merged.iter().all(|merged| merged.info.id != table.info.id);
            view.tables().filter(other).cloned().collect()
        });
        Keep { seqs, others }
    }

    /// The first reader that sees a change with this number.
    fn reader(&self, seq: u64) -> usize {
        self.seqs.partition_point(|reader| *reader < seq)
    }

    /// Whether a delete hides nothing that is not merged, and no reader needs it.
    fn may_drop(&self, core: &Core, key: &[u8], seq: u64) -> bool {
        let older = |table: &Arc<TableFile>| table.info.seqs.0 < seq && table.info.covers(core.order(), key);
        let hides = self.others.as_ref().is_none_or(|others| others.iter().any(older));
        !hides && self.reader(seq) == self.reader(0)
    }
}

/// The changes of a cursor that somebody may still read.
struct Kept<'a, C> {
    core: &'a Core,
    cursor: C,
    keep: Keep,
    /// The key that the cursor is in, and the first reader of the last change of it that was passed on or dropped.
    last: Option<(Vec<u8>, usize)>,
}

impl<'a, C: Cursor> Kept<'a, C> {
    fn new(core: &'a Core, cursor: C, keep: Keep) -> Kept<'a, C> {
        Kept { core, cursor, keep, last: None }
    }

    /// Goes to the next change that is kept, from where the cursor is.
    fn settle(&mut self) -> Result<()> {
        while let Some(at) = self.cursor.at() {
            let reader = self.keep.reader(at.seq);
            let same = self.last.as_ref().filter(|(key, _)| self.core.order().compare(key, at.key).is_eq());
            let hidden = same.is_some_and(|(_, newer)| *newer == reader);
            let dropped = !hidden && at.kind == Kind::Delete && self.keep.may_drop(self.core, at.key, at.seq);
            if !hidden && !dropped {
                return Ok(());
            }
            if dropped {
                self.last = Some((at.key.to_vec(), reader));
            }
            self.cursor.next()?;
        }
        Ok(())
    }

    fn at(&self) -> Option<At<'_>> {
        self.cursor.at()
    }

    /// The change was taken.
    fn advance(&mut self) -> Result<()> {
        if let Some(at) = self.cursor.at() {
            self.last = Some((at.key.to_vec(), self.keep.reader(at.seq)));
        }
        self.cursor.next()
    }

    /// The key that comes next, where the last table has ended.
    fn next_key(&self) -> Option<Vec<u8>> {
        self.at().map(|at| at.key.to_vec())
    }
}

/// Writes one table of what comes next; `None`: nothing comes. Its bytes are durable when it returns, and nothing names it yet.
fn write_table<C: Cursor>(
    core: &Arc<Core>,
    group: Group,
    source: &mut Kept<'_, C>,
    cause: Cause,
) -> Result<Option<Arc<TableFile>>> {
    let mut until: Option<Vec<u8>> = None;
    for _ in 0..TRIES {
        source.settle()?;
        let Some(first) = source.at().map(|at| (at.key.to_vec(), at.seq)) else { return Ok(None) };
        let begun = source.last.clone();
        let alone = until.as_ref().is_some_and(|until| core.order().compare(until, &first.0).is_eq());
        let id = core.next_table();
        let open = core.zone_for(id, group, room_for(core, source.at(), alone), urgency(cause))?;
        let tried = try_table(core, (id, open), group, source, until.as_deref().filter(|_| !alone), cause);
        if !matches!(tried, Ok(Tried::Table(_))) {
            core.give_up(id, group, open.zone.0);
        }
        match tried? {
            Tried::Table(table) => return Ok(Some(table)),
            Tried::Died => {}
            Tried::Full(_) if alone => {
                let sentence = "so many values of a key are kept for those who read that no zone takes them; let go of snapshots and iterators";
                return Err(Error::refused(Code::NoSpace, &core.tenant.volume().name(), sentence));
            }
            Tried::Full(key) => until = Some(key),
        }
        // Again, from the beginning.
        source.cursor.seek(Some((&first.0, first.1)))?;
        source.last = begun;
    }
    Err(Error::damaged(&core.tenant.volume().name(), "one zone after another refuses to be written; look at the drive"))
}

/// What came of a table.
enum Tried {
    Table(Arc<TableFile>),
    /// Its zone takes no more.
    Died,
    /// The zone has no room for all changes of this key.
    Full(Vec<u8>),
}

/// Bytes of room that the zone of a table must have that begins with this change; `alone`: it must be empty.
fn room_for(core: &Core, first: Option<At<'_>>, alone: bool) -> u64 {
    let volume = core.tenant.volume();
    let most = volume.least_capacity() - u64::from(volume.geometry().block.max(4096));
    let first = first.map_or(0, |at| 6 * at.key.len() as u64 + at.value.len() as u64);
    let need = (core.options.table_bytes / LEAST).max(first + AROUND).min(most);
    if alone { most } else { need }
}

/// Writes the table of this number to its zone. It ends before the key `until`, with the zone, or when it is long enough.
fn try_table<C: Cursor>(
    core: &Arc<Core>,
    (id, open): (u64, OpenZone),
    group: Group,
    source: &mut Kept<'_, C>,
    until: Option<&[u8]>,
    cause: Cause,
) -> Result<Tried> {
    let block = u64::from(core.tenant.volume().geometry().block);
    let room = (open.capacity - open.at) / block * block;
    let identity = Identity { table: id, space: 0, life: open.life };
    let mut builder = TableBuilder::new(core.options.table, core.options.order.clone(), identity)?;
    let mut out = Output { core, zone: open.zone.0, at: open.at, waiting: Vec::new(), block: block as usize };
    let mut key: Option<Vec<u8>> = None;
    loop {
        source.settle()?;
        let Some(at) = source.at() else { break };
        // All changes of a key are in one table.
        let new = key.as_ref().is_none_or(|key| core.order().compare(key, at.key).is_ne());
        let len = builder.estimated_len_with(at.key.len(), at.value.len());
        let over = until.is_some_and(|until| core.order().compare(at.key, until).is_ge());
        if new && !builder.is_empty() && (over || len > room.min(core.options.table_bytes)) {
            break;
        }
        if len > room {
            return Ok(Tried::Full(at.key.to_vec()));
        }
        builder.add(at.key, at.seq, at.kind, at.value)?;
        if new {
            key = Some(at.key.to_vec());
        }
        source.advance()?;
        out.waiting.append(&mut builder.take_ready());
        if !out.flush_whole()? {
            return Ok(Tried::Died);
        }
    }
    let (mut rest, meta) = builder.finish()?;
    let properties = meta.properties;
    out.waiting.append(&mut rest);
    if !out.finish()? {
        return Ok(Tried::Died);
    }
    core.advance(group, out.at);
    let seq = core.note(&[]);
    core.commit(seq, cause)?;
    if core.zones.durable(open.zone.0) < out.at {
        return Ok(Tried::Died);
    }
    let info = TableInfo {
        id,
        space: 0,
        level: group.0,
        group: group.1,
        zone: open.zone.0,
        life: open.life,
        at: open.at,
        len: meta.len,
        entries: properties.entries,
        deletes: properties.deletions,
        hidden: properties.hidden_bytes,
        seqs: (properties.smallest_seq, properties.largest_seq),
        smallest: properties.smallest,
        largest: properties.largest,
        from: None,
    };
    Ok(Tried::Table(core.new_file(info)))
}

/// Merges give zones back, so they may use what is kept free for that. A flush is refused before: what it has is in the log.
fn urgency(cause: Cause) -> Urgency {
    if cause == Cause::Compaction { Urgency::Cleaning } else { Urgency::User }
}

/// Bytes of a table on their way to its zone.
struct Output<'a> {
    core: &'a Core,
    zone: u32,
    /// Where the next byte goes.
    at: u64,
    waiting: Vec<u8>,
    block: usize,
}

impl Output<'_> {
    fn push(&mut self, len: usize) -> bool {
        let mut memory = self.core.zones.memory(len);
        memory[..].copy_from_slice(&self.waiting[..len]);
        self.waiting.drain(..len);
        let pushed = self.core.zones.push(self.zone, memory).is_some();
        self.at += len as u64;
        pushed
    }

    /// Passes whole blocks on, and has them written where many wait. False: the zone takes no more.
    fn flush_whole(&mut self) -> Result<bool> {
        let whole = self.waiting.len() / self.block * self.block;
        if whole < (1 << 20).max(self.block) {
            return Ok(true);
        }
        let pushed = self.push(whole);
        if self.core.zones.buffered() > AHEAD as u64 {
            self.core.write_tables()?;
        }
        Ok(pushed)
    }

    /// The rest, padded.
    fn finish(&mut self) -> Result<bool> {
        self.waiting.resize(self.waiting.len().next_multiple_of(self.block), 0);
        let len = self.waiting.len();
        Ok(len == 0 || self.push(len))
    }
}
