//! Write-ahead logs: the order in which those of a directory become durable, and waiting in memory for being deleted.
//!
//! Invariants: a log's bytes become durable only after those of the logs before it that still have a name. A log waits only where its
//! bytes outlive the process, and holds nothing that somebody else cannot get: neither memory nor zones.

use crate::file::core::{Core, Wals};
use crate::file::writer::FileWriter;
use crate::file::{File, FileState, lock};
use crate::kind::wal_number;
use imbrex_device::{Cause, Priority, Result, Tag};
use imbrex_zones::write::Writer as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A log as those behind it see it: what keeps the write-ahead logs of a directory in order is that a log's bytes may become durable only
/// after those before it. It stays the same while the log is cut and goes on, so that who waits for it waits for all of it.
#[derive(Default)]
pub(crate) struct WalTail(Mutex<Option<Tail>>);

/// What a log is appended to by, and what it has to wait for itself.
#[derive(Clone)]
pub(crate) struct Tail {
    pub(crate) state: Arc<FileState>,
    pub(crate) writer: Arc<FileWriter>,
    pub(crate) before: Arc<Before>,
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
        while let Some(deleted) = slot.take_if(|tail| tail.is_deleted()) {
            *slot = deleted.now().and_then(|tail| lock(&tail.before.0).clone());
            gone.push(deleted);
        }
        let before = slot.clone();
        // Who is let go of may be the last to hold a writer: without a lock.
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
    /// The log goes on in this way: after its beginning, a cut, or a close.
    pub(crate) fn goes_on(&self, now: Tail) {
        let before = lock(&self.0).replace(now);
        // Let go of without the lock: it may be the last to hold a writer.
        drop(before);
    }

    fn now(&self) -> Option<Tail> {
        lock(&self.0).clone()
    }

    fn is_deleted(&self) -> bool {
        self.now().is_some_and(|tail| tail.state.is_orphan())
    }

    /// Whether nobody has to wait for it any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.now().is_none_or(|Tail { state, before, .. }| {
            state.is_orphan() || (!state.durable.is_behind(&state.mark()) && before.is_none())
        })
    }

    /// Lets go of the logs before it that were deleted.
    fn forget_deleted(&self) {
        self.now().map(|tail| tail.before.get());
    }

    fn hurry(&self, core: &Core) {
        if let Some(tail) = self.now() {
            core.writers.hurry(&tail.writer);
        }
    }

    /// Makes everything that was appended to this log, and to those before it, durable.
    pub(crate) fn ensure_durable(&self, core: &Core) -> Result<()> {
        let Some(Tail { state, before, .. }) = self.now() else { return Ok(()) };
        if let Some(first) = before.get() {
            first.ensure_durable(core)?;
            before.clear();
        }
        // First the moment, then the writer: all bytes of the moment are on the drive, or in this writer.
        let mark = state.mark();
        let Some(Tail { state, writer, .. }) = self.now() else { return Ok(()) };
        if state.is_orphan() || !state.durable.is_behind(&mark) {
            return Ok(());
        }
        if writer.bytes().placed() < mark.end()
            && let Err(error) = writer.drain(Priority::Normal)
        {
            // It was deleted meanwhile: then nobody has to wait for it.
            return if state.is_orphan() { Ok(()) } else { Err(error) };
        }
        core.volume.sync(Tag::new(Cause::Wal))?;
        state.durable.reached(&mark);
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
        logs.iter().for_each(|tail| tail.hurry(self));
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
        // Let go of without the lock: it may be the last to hold a writer.
        let (before, gone): (Wals, Wals) =
            std::mem::take(list).into_iter().partition(|(n, tail)| *n != number && !tail.is_settled());
        *list = before.clone();
        list.push((number, tail.clone()));
        drop(wals);
        drop(gone);
        before.iter().for_each(|(_, tail)| tail.forget_deleted());
    }
}
