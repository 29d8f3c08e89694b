//! Write-ahead logs: the order in which those of a directory become durable, and waiting in memory for being deleted.
//!
//! Invariants: a log's bytes become durable only after those of the logs before it that still have a name. A log waits only where its
//! bytes outlive the process, and holds nothing that somebody else cannot get: neither memory nor zones.

use crate::core::{Core, Wals};
use crate::error::Result;
use crate::file::{File, FileState, lock};
use crate::kind::wal_number;
use imbrex_device::{Cause, Priority, Tag};
use imbrex_zones::AppendStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// What keeps the write-ahead logs of a directory in order: a log's bytes may become durable only after its predecessor's.
pub(crate) struct WalTail {
    stream: Arc<AppendStream>,
    state: Arc<FileState>,
    before: Arc<Before>,
}

/// The log that must be durable before another one. Shared by whoever asks for it: a deleted log is left out for all of them, or those
/// that were deleted before they were written would be held by the next one for ever, each by the one behind it.
#[derive(Default)]
pub(crate) struct Before(Mutex<Option<Arc<WalTail>>>);

impl Before {
    pub(crate) fn of(before: Option<Arc<WalTail>>) -> Before {
        Before(Mutex::new(before))
    }

    pub(crate) fn get(&self) -> Option<Arc<WalTail>> {
        let mut gone = Vec::new();
        let mut slot = lock(&self.0);
        while let Some(deleted) = slot.take_if(|tail| tail.state.is_orphan()) {
            slot.clone_from(&lock(&deleted.before.0));
            gone.push(deleted);
        }
        let before = slot.clone();
        // Who is let go of may be the last to hold a stream: without a lock.
        drop(slot);
        before
    }

    pub(crate) fn is_none(&self) -> bool {
        lock(&self.0).is_none()
    }

    /// It is durable.
    pub(crate) fn clear(&self) {
        let before = lock(&self.0).take();
        drop(before);
    }
}

impl WalTail {
    pub(crate) fn new(stream: &Arc<AppendStream>, state: &Arc<FileState>, before: Arc<Before>) -> WalTail {
        WalTail { stream: stream.clone(), state: state.clone(), before }
    }

    /// Whether nobody has to wait for it any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.is_orphan()
            || (self.state.durable.load(Ordering::Acquire) >= self.stream.len() && self.before.is_none())
    }

    /// Lets go of the logs before it that were deleted.
    pub(crate) fn forget_deleted(&self) {
        self.before.get();
    }

    /// Makes everything that was appended to this log, and to those before it, durable.
    pub(crate) fn ensure_durable(&self, core: &Core) -> imbrex_device::Result<()> {
        if let Some(before) = self.before.get() {
            before.ensure_durable(core)?;
            self.before.clear();
        }
        let end = self.stream.len();
        if self.state.is_orphan() || self.state.durable.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        if !self.stream.is_abandoned()
            && let Err(error) = self.stream.drain(Priority::Normal)
        {
            // It was deleted meanwhile: then nobody has to wait for it.
            return if self.state.is_orphan() { Ok(()) } else { Err(error) };
        }
        core.volume.sync(Tag::new(Cause::Wal))?;
        self.state.durable.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }
}

impl Core {
    /// Whether new write-ahead logs wait in memory until it is short: not in a mount, which has to write what it found, and not
    /// where somebody syncs them, or the death of the process would cost them.
    pub(crate) fn logs_wait(&self) -> bool {
        self.volume.has_survivor()
            && !self.options.wal.unbuffered
            && !self.recovering.load(Ordering::Acquire)
            && !self.syncs_logs.load(Ordering::Acquire)
    }

    /// Somebody syncs write-ahead logs: from now on they are written as their bytes come.
    pub(crate) fn note_synced_log(&self) {
        if self.syncs_logs.swap(true, Ordering::AcqRel) {
            return;
        }
        let logs: Vec<Arc<WalTail>> = lock(&self.wals).values().flatten().map(|(_, tail)| tail.clone()).collect();
        logs.iter().for_each(|tail| tail.stream.hurry());
    }

    /// Keeps a closed log whose bytes wait.
    pub(crate) fn keep_waiting(&self, file: Arc<File>) {
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|other| Arc::ptr_eq(other, &file)) {
            waiting.push(file);
        }
        drop(waiting);
        // Others may have been written, because they are old or memory was short: what is promised to them is not needed any more.
        self.settle_waiting();
    }

    /// Writes and closes all logs that wait, but those that somebody is at just now. Whether there were any. For whoever finds no zone;
    /// called without a lock but that of the caller's file.
    pub(crate) fn write_waiting(&self) -> bool {
        let files = lock(&self.waiting).clone();
        let mut any = false;
        for file in files {
            // Whoever holds it may be waiting for the caller's.
            let Ok(mut writing) = file.writing.try_lock() else { continue };
            if writing.writers > 0 || file.state.is_orphan() {
                continue;
            }
            match file.finish(&mut writing) {
                Ok(()) => any = true,
                Err(error) => tracing::debug!(%error, "a log that waits cannot be written"),
            }
        }
        any
    }

    /// Closes the logs that were written out meanwhile, and lets go of those that were deleted. Called without any lock.
    pub(crate) fn settle_waiting(&self) {
        let (over, wait) = std::mem::take(&mut *lock(&self.waiting)).into_iter().partition(|file| file.waits_no_more());
        let over: Vec<Arc<File>> = over;
        lock(&self.waiting).extend::<Vec<Arc<File>>>(wait);
        for file in over {
            let mut writing = lock(&file.writing);
            if writing.writers > 0 || file.state.is_orphan() {
                continue;
            }
            if let Err(error) = file.finish(&mut writing) {
                tracing::debug!(%error, "a log cannot be closed yet");
                drop(writing);
                self.keep(file);
            }
        }
    }

    /// The write-ahead log that must be durable before this one.
    pub(crate) fn wal_before(&self, file: &FileState) -> Result<Option<Arc<WalTail>>> {
        let Some(number) = wal_number(&file.name) else { return Ok(None) };
        let wals = lock(&self.wals);
        let before =
            wals.get(&file.parent).and_then(|list| list.iter().filter(|(n, _)| *n < number).max_by_key(|(n, _)| *n));
        Ok(before.map(|(_, tail)| tail.clone()))
    }

    pub(crate) fn note_wal(&self, file: &FileState, tail: &Arc<WalTail>) {
        let Some(number) = wal_number(&file.name) else { return };
        let mut wals = lock(&self.wals);
        let list = wals.entry(file.parent).or_default();
        // Let go of without the lock: it may be the last to hold a stream.
        let (before, gone): (Wals, Wals) =
            std::mem::take(list).into_iter().partition(|(n, tail)| *n != number && !tail.is_settled());
        *list = before.clone();
        list.push((number, tail.clone()));
        drop(wals);
        drop(gone);
        before.iter().for_each(|(_, tail)| tail.forget_deleted());
    }
}
