//! Changing the store: what it cannot keep is refused, and the rest is admitted and [applied](crate::apply).

use crate::apply::{append, ends, entry_bytes, insert};
use crate::batch::{Act, Batch, Change, MAX_KEY, MAX_VALUE};
use crate::core::Core;
use crate::core::ranges::{MOST_RANGE_BYTES, MOST_RANGES};
use crate::operator::MISSING;
use crate::sync::lock;
use crate::work::Worker;
use imbrex_device::{Code, Result};

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
