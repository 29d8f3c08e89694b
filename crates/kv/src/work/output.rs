//! Writing tables: what comes of a cursor goes to a zone, and is durable before anybody names it.

use super::keep::Kept;
use crate::core::Core;
use crate::core::file::TableFile;
use crate::cursor::{At, Cursor};
use crate::manifest::TableInfo;
use crate::policy::{Group, Key};
use crate::table::{Identity, Kind, TableBuilder};
use imbrex_device::{Cause, Code, Error, Result};
use imbrex_zones::OpenZone;
use std::sync::Arc;

/// Bytes of a table that wait in memory at most.
const AHEAD: usize = 4 << 20;
/// A zone with less room than this part of a table is closed.
const LEAST: u64 = 8;
/// Bytes of a table beside its entries.
const AROUND: u64 = 12 << 10;
/// So often a table is written again whose zone died.
pub(super) const TRIES: usize = 4;

/// A table has so many marks at the least, if its keys are not longer than this.
const MARKS: usize = 8;
const LONGEST_MARK: usize = 64;

/// Keys that divide the bytes of a table evenly, as they come by: as many as a policy's [histogram](crate::policy::Policy::histogram) has room for.
struct Marks {
    keys: Vec<Key>,
    /// Bytes of the table from one to the next.
    apart: u64,
    /// Bytes that are left for keys.
    left: usize,
}

impl Marks {
    /// Those of a table of so many bytes at most, whose keys are about as long as the first one.
    fn new(histogram: usize, first: &[u8], most: u64) -> Marks {
        let keys = (histogram / first.len().max(1)).max(MARKS) as u64;
        Marks { keys: Vec::new(), apart: most / keys, left: histogram }
    }

    /// A new key begins at this byte of the table.
    fn comes(&mut self, key: &[u8], at: u64) {
        let room = key.len() <= self.left || self.keys.len() < MARKS;
        if key.len() <= LONGEST_MARK && room && at >= self.keys.len() as u64 * self.apart {
            self.keys.push(key.into());
            self.left = self.left.saturating_sub(key.len());
        }
    }
}

/// Writes one table of the group, of so many bytes at most, of what comes next; `None`: nothing comes. It ends before the key `cut`. Its bytes
/// [are durable](are_durable) only later, and nothing names it yet.
pub(super) fn write_table<C: Cursor>(
    core: &Arc<Core>,
    (group, most): (Group, u64),
    source: &mut Kept<'_, C>,
    cut: Option<&[u8]>,
) -> Result<Option<Arc<TableFile>>> {
    let mut until: Option<Vec<u8>> = None;
    for _ in 0..TRIES {
        source.settle()?;
        let (Some(first), Some(begun)) = (source.at(), source.place()) else { return Ok(None) };
        let alone = until.as_ref().is_some_and(|until| core.order().compare(until, first.key).is_eq());
        let end =
            [cut, until.as_deref().filter(|_| !alone)].into_iter().flatten().min_by(|a, b| core.order().compare(a, b));
        let id = core.next_table();
        let open = core.zone_for(id, group, room_for(core, &first, most, alone))?;
        let tried = try_table(core, (id, open), (group, most), source, end);
        if !matches!(tried, Ok(Tried::Table(_))) {
            core.give_up(id, group, open.zone.0);
        }
        match tried? {
            Tried::Table(table) => return Ok(Some(table)),
            Tried::Died => {}
            // A change may hide all of it that this merge has not: else one key would stop all merges for ever.
            Tried::Full(_) if alone && source.pass_superseded(&begun)? => {
                until = None;
                continue;
            }
            Tried::Full(_) if alone => {
                let sentence = "so many values or operands of a key are kept that no zone takes them; let go of snapshots and iterators, or delete that key";
                return Err(core.refused(Code::NoSpace, sentence));
            }
            Tried::Full(key) => until = Some(key),
        }
        // Again, from the beginning.
        source.go_back(&begun)?;
    }
    Err(died(core))
}

/// Writes tables of the group of all that comes. Their bytes [are durable](are_durable) only later, and nothing names them yet.
pub(super) fn write_tables<C: Cursor>(
    core: &Arc<Core>,
    into: (Group, u64),
    source: &mut Kept<'_, C>,
) -> Result<Vec<Arc<TableFile>>> {
    let mut tables = Vec::new();
    loop {
        match write_table(core, into, source, None) {
            Ok(Some(table)) => tables.push(table),
            Ok(None) => return Ok(tables),
            Err(error) => {
                give_up(core, &tables);
                return Err(error);
            }
        }
    }
}

/// The error where zones die all the time.
pub(super) fn died(core: &Core) -> Error {
    Error::damaged(&core.tenant.volume().name(), "one zone after another refuses to be written; look at the drive")
}

/// Whether all bytes of these tables are durable when it returns. If not, a zone has died, and the tables are given up.
///
/// # Errors
/// Those of the writes and of the flush; then, too.
pub(super) fn are_durable(core: &Core, tables: &[Arc<TableFile>], cause: Cause) -> Result<bool> {
    let durable = core.commit(core.note(&[]), cause).map(|()| {
        let block = u64::from(core.tenant.volume().geometry().block);
        let end = |table: &TableFile| table.info.at + table.info.len.next_multiple_of(block);
        tables.iter().all(|table| core.zones.durable(table.info.zone) >= end(table))
    });
    if !matches!(durable, Ok(true)) {
        give_up(core, tables);
    }
    durable
}

/// Nothing comes of these tables.
pub(super) fn give_up(core: &Core, tables: &[Arc<TableFile>]) {
    tables.iter().for_each(|table| core.give_up(table.info.id, table.info.group, table.info.zone));
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
fn room_for(core: &Core, first: &At<'_>, table: u64, alone: bool) -> u64 {
    let most = core.zone_bytes();
    let first = 6 * first.key.len() as u64 + first.value.len() as u64;
    let need = (table.min(core.options.table_bytes) / LEAST).max(first + AROUND).min(most);
    if alone { most } else { need }
}

/// Writes the table of this number to its zone. It ends before the key `until`, with the zone, or when it is long enough.
fn try_table<C: Cursor>(
    core: &Arc<Core>,
    (id, open): (u64, OpenZone),
    (group, most): (Group, u64),
    source: &mut Kept<'_, C>,
    until: Option<&[u8]>,
) -> Result<Tried> {
    let block = u64::from(core.tenant.volume().geometry().block);
    let room = (open.capacity - open.at) / block * block;
    let identity = Identity { table: id, life: open.life };
    let mut builder = TableBuilder::new(core.options.table, core.options.order.clone(), identity)?;
    let mut out = Output { core, zone: open.zone.0, at: open.at, waiting: Vec::new(), block: block as usize };
    let (mut key, mut marks): (Option<Vec<u8>>, Option<Marks>) = (None, None);
    // Operands hide nothing of what is behind them.
    let (mut stale, mut hides) = (0, false);
    loop {
        source.settle()?;
        let Some(at) = source.at() else { break };
        // All changes of a key are in one table.
        let new = key.as_ref().is_none_or(|key| core.order().compare(key, at.key).is_ne());
        let len = builder.estimated_len_with(at.key.len(), at.value.len());
        let over = until.is_some_and(|until| core.order().compare(at.key, until).is_ge());
        if new && !builder.is_empty() && (over || len > room.min(most)) {
            break;
        }
        source.combine()?;
        let Some(at) = source.at() else { break };
        if builder.estimated_len_with(at.key.len(), at.value.len()) > room {
            return Ok(Tried::Full(at.key.to_vec()));
        }
        if new {
            let marks = marks.get_or_insert_with(|| Marks::new(core.histogram, at.key, room.min(most)));
            marks.comes(at.key, builder.bytes());
        }
        builder.add(at.key, at.seq, at.kind, at.value)?;
        if new {
            (key, hides) = (Some(at.key.to_vec()), false);
        }
        stale += u64::from(hides);
        hides |= at.kind != Kind::Merge;
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
    let info = TableInfo {
        id,
        group,
        zone: open.zone.0,
        life: open.life,
        at: open.at,
        len: meta.len,
        live: meta.len,
        entries: properties.entries,
        deletes: properties.deletions,
        stale,
        seqs: (properties.smallest_seq, properties.largest_seq),
        ingested: false,
        smallest: properties.smallest.into(),
        largest: properties.largest.into(),
        from: None,
        marks: marks.map_or_else(Vec::new, |marks| marks.keys).into(),
    };
    Ok(Tried::Table(core.new_file(info)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(histogram: usize, len: usize) -> Vec<Key> {
        let key = |n: u32| [&n.to_be_bytes()[..], &vec![7; len - 4]].concat();
        let mut marks = Marks::new(histogram, &key(0), 1 << 20);
        (0..1 << 12).for_each(|n| marks.comes(&key(n), u64::from(n) << 8));
        marks.keys
    }

    #[test]
    fn marks_are_as_many_as_a_histogram_has_room_for_and_divide_a_table_evenly() {
        let number = |key: &Key| u32::from_be_bytes(key[..4].try_into().unwrap());
        for (histogram, len, wanted) in [(4096, 16, 256), (4096, 64, 64), (0, 16, 8), (0, 64, 8), (4096, 65, 0)] {
            let keys = marks(histogram, len);
            assert_eq!(keys.len(), wanted, "{histogram} bytes, keys of {len}");
            let apart = (1 << 12) / (wanted as u32).max(1);
            assert!((0..).zip(&keys).all(|(n, key)| number(key) == n * apart));
        }
        // Keys that become longer take no more room.
        let mut marks = Marks::new(4096, b"short", 1 << 20);
        (0..1u32 << 12).for_each(|n| marks.comes(&[9; 60], u64::from(n) << 8));
        assert_eq!(marks.keys.len(), 4096 / 60);
    }
}
