//! Changing the store: a batch gets its numbers, goes to the log, and then to memory, where readers see it.

use crate::batch::{Act, Batch, Change, MAX_KEY, MAX_VALUE};
use crate::core::Core;
use crate::core::ranges::{MOST_RANGE_BYTES, MOST_RANGES};
use crate::manifest::MOST;
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
        if change.key.len() > MAX_KEY {
            return refuse(format!(
                "a key of {} bytes is too long; a key has {MAX_KEY} bytes at most",
                change.key.len()
            ));
        }
        if change.act == Act::DeleteRange {
            if change.value.len() > MAX_KEY {
                let len = change.value.len();
                return refuse(format!("a key of {len} bytes is too long; a key has {MAX_KEY} bytes at most"));
            }
            let (begin, end) = ends(&change);
            if core.order().compare(&begin, &end).is_gt() {
                return refuse("the range ends before it begins; give its first key first".into());
            }
            (ranges, bytes) = (ranges + 1, bytes + (begin.len() + end.len()) as u64);
        }
        if change.value.len() > MAX_VALUE {
            let len = change.value.len();
            return refuse(format!("a value of {len} bytes is too long; a value has {MAX_VALUE} bytes at most"));
        }
    }
    let most = core.largest_entry();
    if let Some(change) = batch.changes_in(space).find(|change| !change.is_range() && entry_bytes(change) > most) {
        let (key, value) = (change.key.len(), change.value.len());
        return refuse(format!(
            "a key of {key} bytes with a value of {value} is too long for a zone of this drive, which takes {most} bytes of both"
        ));
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

/// The keys of the tree between which a range is.
fn ends(change: &Change<'_>) -> (Vec<u8>, Vec<u8>) {
    let (from, to) = change.range();
    let (begin, end) = space::ends(change.space, from, to);
    if change.act == Act::DropSpace { (space::dropped(change.space).to_vec(), end) } else { (begin, end) }
}

/// What an entry takes of a table at the most: its key stands in the entry, in two indexes, and in the table's description.
fn entry_bytes(change: &Change<'_>) -> u64 {
    6 * (MARK + change.key.len()) as u64 + change.value.len() as u64
}

/// Writes a batch to a space. It outlives the process when this returns, and a loss of power when `sync` was asked for.
pub(crate) fn write(core: &Core, worker: &Worker, (batch, space): (&Batch, u16), sync: bool) -> Result<()> {
    let (ranges, bytes) = check(core, (batch, space))?;
    let nothing =
        |change: Change<'_>| change.is_range() && core.order().compare(&ends(&change).0, &ends(&change).1).is_ge();
    if !batch.changes_in(space).all(nothing) {
        let deletes = batch.changes_in(space).all(|change| change.act != Act::Put);
        if ranges > 0 {
            worker.make_room_for_ranges(ranges, bytes)?;
        }
        worker.make_room(batch.bytes() as u64, deletes)?;
        let one = lock(&core.writing);
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
        let at = core.wal()?.append(deletes, &[&batch.header(core.salt(), seq, space), batch.body()])?;
        insert(core, batch.changes_in(space), (at, seq));
        drop(one);
        core.counters.wrote(batch);
    }
    if sync { core.wal()?.sync() } else { Ok(()) }
}

/// Puts the changes of a record into memory, where readers see them; `record`: where it stands in the log, and the number of its first change.
pub(crate) fn insert<'a>(core: &Core, changes: impl Iterator<Item = Change<'a>>, record: (u64, u64)) {
    let (view, mut seq) = (core.view(), record.1);
    for change in changes {
        let kind = if change.act == Act::Put { Kind::Put } else { Kind::Delete };
        if change.act == Act::DropSpace {
            core.spaces.remove(change.space);
        }
        if change.is_range() {
            let (begin, end) = ends(&change);
            if core.order().compare(&begin, &end).is_lt() {
                core.delete_range(RangeTombstone { begin, end, seq }, record);
            }
        } else {
            let key = full(change.space, change.key);
            view.part(core.order(), &key).memory.add(seq, kind, &key, change.value, record);
        }
        seq += 1;
    }
    // Never back: behind a hole of the log tables may have newer changes.
    core.visible.fetch_max(seq - 1, Ordering::Release);
}
