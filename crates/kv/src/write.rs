//! Changing the store: a batch gets its numbers, goes to the log, and then to memory, where readers see it.

use crate::batch::{Act, Batch, Change, MAX_KEY, MAX_VALUE};
use crate::core::Core;
use crate::core::ranges::{MOST_RANGE_BYTES, MOST_RANGES};
use crate::manifest::MOST;
use crate::operator::MISSING;
use crate::ranges::RangeTombstone;
use crate::space::{self, MARK, full};
use crate::sync::lock;
use crate::table::Kind;
use crate::work::Worker;
use imbrex_device::{Code, Result};
use std::sync::atomic::Ordering;

/// Refuses what the store cannot keep. Returns how many ranges are deleted, and bytes of their keys in the tree.
fn check(core: &Core, (batch, space): (&Batch, u16)) -> Result<(usize, u64)> {
    let refuse = |sentence: String| Err(core.refused(Code::InvalidArgument, sentence));
    if batch.store().is_some_and(|store| store != core.opening()) {
        return refuse("the batch names spaces of another store, or of an earlier opening; make it anew".into());
    }
    let (mut ranges, mut bytes) = (0, 0);
    for change in batch.changes_in(space) {
        if change.act == Act::DeleteRange {
            check_pair(core, change.key.len(), 0)?;
            check_pair(core, change.value.len(), 0)?;
            let (begin, end) = ends(&change);
            if core.order().compare(&begin, &end).is_gt() {
                return refuse("the range ends before it begins; give its first key first".into());
            }
            (ranges, bytes) = (ranges + 1, bytes + (begin.len() + end.len()) as u64);
        } else {
            check_pair(core, change.key.len(), change.value.len())?;
        }
        if change.act == Act::Merge && core.spaces.operator(change.space).is_none() {
            return refuse(MISSING.into());
        }
    }
    if ranges > MOST_RANGES || bytes > MOST_RANGE_BYTES {
        return refuse(format!(
            "a batch that deletes {ranges} ranges with {bytes} bytes of keys is too long; one has {MOST_RANGES} and {MOST_RANGE_BYTES} at most"
        ));
    }
    if batch.bytes() > u32::MAX as usize {
        return refuse(format!("a batch of {} bytes is too long; write it in parts of less than 4 GiB", batch.bytes()));
    }
    Ok((ranges, bytes))
}

/// Refuses a key and a value of lengths that the store cannot keep.
pub(crate) fn check_pair(core: &Core, key: usize, value: usize) -> Result<()> {
    let refuse = |sentence: String| Err(core.refused(Code::InvalidArgument, sentence));
    if key > MAX_KEY {
        return refuse(format!("a key of {key} bytes is too long; a key has {MAX_KEY} bytes at most"));
    }
    if value > MAX_VALUE {
        return refuse(format!("a value of {value} bytes is too long; a value has {MAX_VALUE} bytes at most"));
    }
    let most = core.largest_entry();
    if entry_bytes(key, value) > most {
        return refuse(format!(
            "a key of {key} bytes with a value of {value} is too long for a zone of this drive, which takes {most} bytes of both"
        ));
    }
    Ok(())
}

/// The keys of the tree between which a range is.
pub(crate) fn ends(change: &Change<'_>) -> (Vec<u8>, Vec<u8>) {
    let (from, to) = change.range();
    let (begin, end) = space::ends(change.space, from, to);
    if change.act == Act::DropSpace { (space::dropped(change.space).to_vec(), end) } else { (begin, end) }
}

/// What an entry of a user's key takes of a table at the most: it stands in the entry, in two indexes, and in the table's description.
pub(crate) fn entry_bytes(key: usize, value: usize) -> u64 {
    6 * (MARK + key) as u64 + value as u64
}

/// Writes a batch to a space. It outlives the process when this returns, and a loss of power when `sync` was asked for.
pub(crate) fn write(core: &Core, worker: &Worker, (batch, space): (&Batch, u16), sync: bool) -> Result<()> {
    let (ranges, bytes) = check(core, (batch, space))?;
    let nothing =
        |change: Change<'_>| change.is_range() && core.order().compare(&ends(&change).0, &ends(&change).1).is_ge();
    if !batch.changes_in(space).all(nothing) {
        let deletes = batch.changes_in(space).all(|change| !change.adds());
        if ranges > 0 {
            worker.make_room_for_ranges(ranges, bytes)?;
        }
        worker.make_room(batch.bytes() as u64, deletes)?;
        let one = lock(&core.writing);
        let record = append(core, (batch, space), deletes)?;
        insert(core, batch.changes_in(space), record, |_, _| false);
        drop(one);
        core.counters.wrote(batch);
    }
    if sync { core.wal()?.sync() } else { Ok(()) }
}

/// Gives a batch its numbers, and appends it to the log. Returns where its record stands, and the number of its first change. Whoever calls is the only one that
/// writes, and [inserts](insert) the changes next. `spare`: it makes room.
pub(crate) fn append(core: &Core, (batch, space): (&Batch, u16), spare: bool) -> Result<(u64, u64)> {
    core.tenant.volume().check_poison()?;
    if !core.spaces.are_there(batch.changes_in(space).map(|change| change.space)) {
        let sentence = "the space is gone; it was dropped";
        return Err(core.refused(Code::NotFound, sentence));
    }
    let seq = core.visible.load(Ordering::Acquire) + 1;
    if seq + batch.len() as u64 > MOST {
        let sentence = "the numbers of changes are used up; copy what it has to a new store";
        return Err(core.refused(Code::NoSpace, sentence));
    }
    Ok((core.wal()?.append(spare, &[&batch.header(core.salt(), seq, space), batch.body()])?, seq))
}

/// What a change of a single key is in a table.
pub(crate) fn kind_of(act: Act) -> Kind {
    match act {
        Act::Put => Kind::Put,
        Act::Merge => Kind::Merge,
        Act::Delete | Act::DeleteRange | Act::DropSpace | Act::Ingest => Kind::Delete,
    }
}

/// Puts the changes of a record into memory, where readers see them; `record`: where it stands in the log, and the number of its first change. `is_known`: tables have the
/// operand of that number already.
pub(crate) fn insert<'a>(
    core: &Core,
    changes: impl Iterator<Item = Change<'a>>,
    record: (u64, u64),
    is_known: impl Fn(&[u8], u64) -> bool,
) {
    let (view, mut seq) = (core.view(), record.1);
    for change in changes {
        let kind = kind_of(change.act);
        if change.act == Act::DropSpace {
            core.spaces.remove(change.space);
        }
        if change.is_range() {
            let (begin, end) = ends(&change);
            if core.order().compare(&begin, &end).is_lt() {
                core.delete_range(RangeTombstone { begin, end, seq }, record);
            }
        } else if change.act != Act::Ingest {
            let key = full(change.space, change.key);
            if kind != Kind::Merge || !is_known(&key, seq) {
                view.part(core.order(), &key).memory.add(seq, kind, &key, change.value, record);
            }
        }
        seq += 1;
    }
    // Never back: behind a hole of the log tables may have newer changes.
    core.visible.fetch_max(seq - 1, Ordering::Release);
}
