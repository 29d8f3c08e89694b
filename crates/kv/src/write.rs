//! Changing the store: a batch gets its numbers, goes to the log, and then to memory, where readers see it.

use crate::batch::{Batch, Change, MAX_KEY, MAX_VALUE};
use crate::core::Core;
use crate::space::{MARK, full};
use crate::sync::lock;
use crate::table::Kind;
use crate::work::Worker;
use imbrex_device::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// Refuses what the store cannot keep.
fn check(core: &Core, (batch, space): (&Batch, u16)) -> Result<()> {
    let refuse = |sentence: String| Err(Error::refused(Code::InvalidArgument, &core.tenant.volume().name(), sentence));
    for change in batch.changes_in(space) {
        if change.key.len() > MAX_KEY {
            return refuse(format!(
                "a key of {} bytes is too long; a key has {MAX_KEY} bytes at most",
                change.key.len()
            ));
        }
        if change.value.len() > MAX_VALUE {
            let len = change.value.len();
            return refuse(format!("a value of {len} bytes is too long; a value has {MAX_VALUE} bytes at most"));
        }
    }
    let most = core.largest_entry();
    if let Some(change) = batch.changes_in(space).find(|change| entry_bytes(change) > most) {
        let (key, value) = (change.key.len(), change.value.len());
        return refuse(format!(
            "a key of {key} bytes with a value of {value} is too long for a zone of this drive, which takes {most} bytes of both"
        ));
    }
    if batch.store().is_some_and(|store| store != core.salt()) {
        return refuse("the batch names spaces of another store; write it to that one".into());
    }
    if batch.bytes() > u32::MAX as usize {
        return refuse(format!("a batch of {} bytes is too long; write it in parts of less than 4 GiB", batch.bytes()));
    }
    Ok(())
}

/// What an entry takes of a table at the most: its key stands in the entry, in two indexes, and in the table's description.
fn entry_bytes(change: &Change<'_>) -> u64 {
    6 * (MARK + change.key.len()) as u64 + change.value.len() as u64
}

/// Writes a batch to a space. It outlives the process when this returns, and a loss of power when `sync` was asked for.
pub(crate) fn write(core: &Core, worker: &Worker, (batch, space): (&Batch, u16), sync: bool) -> Result<()> {
    check(core, (batch, space))?;
    if !batch.is_empty() {
        let deletes = batch.changes_in(space).all(|change| change.kind == Kind::Delete);
        worker.make_room(batch.bytes() as u64, deletes)?;
        let _one = lock(&core.writing);
        core.tenant.volume().check_poison()?;
        if !core.has_spaces(batch.changes_in(space).map(|change| change.space)) {
            let sentence = "the space is gone; it was dropped";
            return Err(Error::refused(Code::NotFound, &core.tenant.volume().name(), sentence));
        }
        let seq = core.visible.load(Ordering::Acquire) + 1;
        let at = core.wal()?.append(deletes, &[&batch.header(core.salt(), seq, space), batch.body()])?;
        insert(core, batch.changes_in(space), (at, seq));
    }
    if sync { core.wal()?.sync() } else { Ok(()) }
}

/// Puts the changes of a record into memory, where readers see them; `record`: where it stands in the log, and the number of its first change.
pub(crate) fn insert<'a>(core: &Core, changes: impl Iterator<Item = Change<'a>>, record: (u64, u64)) {
    let (view, mut seq) = (core.view(), record.1);
    for change in changes {
        let key = full(change.space, change.key);
        view.part(core.order(), &key).memory.add(seq, change.kind, key, change.value, record);
        seq += 1;
    }
    // Never back: behind a hole of the log tables may have newer changes.
    core.visible.fetch_max(seq - 1, Ordering::Release);
}
