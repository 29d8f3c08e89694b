//! Changing the store: a batch gets its numbers, goes to the log, and then to memory, where readers see it.

use crate::batch::{Batch, Change, MAX_VALUE};
use crate::core::Core;
use crate::sync::lock;
use crate::table::{Kind, MAX_KEY};
use crate::work::Worker;
use imbrex_device::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// Refuses what the store cannot keep.
fn check(core: &Core, batch: &Batch) -> Result<()> {
    let refuse = |sentence: String| Err(Error::refused(Code::InvalidArgument, &core.tenant.volume().name(), sentence));
    for change in batch.changes() {
        if change.key.is_empty() {
            return refuse("a key needs at least one byte".into());
        }
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
    if let Some(change) = batch.changes().find(|change| entry_bytes(change) > most) {
        let (key, value) = (change.key.len(), change.value.len());
        return refuse(format!(
            "a key of {key} bytes with a value of {value} is too long for a zone of this drive, which takes {most} bytes of both"
        ));
    }
    if batch.bytes() > u32::MAX as usize {
        return refuse(format!("a batch of {} bytes is too long; write it in parts of less than 4 GiB", batch.bytes()));
    }
    Ok(())
}

/// What an entry takes of a table at the most: its key stands in the entry, in two indexes, and in the table's description.
fn entry_bytes(change: &Change<'_>) -> u64 {
    6 * change.key.len() as u64 + change.value.len() as u64
}

/// Writes a batch. It outlives the process when this returns, and a loss of power when `sync` was asked for.
pub(crate) fn write(core: &Core, worker: &Worker, batch: &Batch, sync: bool) -> Result<()> {
    check(core, batch)?;
    if !batch.is_empty() {
        let deletes = batch.changes().all(|change| change.kind == Kind::Delete);
        worker.make_room(batch.bytes() as u64, deletes)?;
        let _one = lock(&core.writing);
        core.tenant.volume().check_poison()?;
        let seq = core.visible.load(Ordering::Acquire) + 1;
        let at = core.wal()?.append(deletes, &[&batch.header(core.salt(), seq), batch.body()])?;
        insert(core, batch.changes(), (at, seq));
    }
    if sync { core.wal()?.sync() } else { Ok(()) }
}

/// Puts the changes of a record into memory, where readers see them; `record`: where it stands in the log, and the number of its first change.
pub(crate) fn insert<'a>(core: &Core, changes: impl Iterator<Item = Change<'a>>, record: (u64, u64)) {
    let (view, mut seq) = (core.view(), record.1);
    for change in changes {
        view.part(core.order(), change.key).memory.add(seq, change.kind, change.key, change.value, record);
        seq += 1;
    }
    // Never back: behind a hole of the log tables may have newer changes.
    core.visible.fetch_max(seq - 1, Ordering::Release);
}
