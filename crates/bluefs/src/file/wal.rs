//! Write-ahead logs wait in memory for being deleted. Those of a directory become durable in the order of their numbers
//! ([`Writers`](imbrex_zones::write::Writers)): a log's bytes only after those of the logs before it that still have a name.
//!
//! Invariant: a log waits only where its bytes outlive the process, and holds nothing that somebody else cannot get: neither memory nor zones.

use crate::file::core::Core;
use crate::file::{File, FileState, lock};
use crate::kind::{Purpose, wal_number};
use imbrex_zones::write::Rank;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
        self.writers.hurry_all();
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

    /// A write-ahead log's place among those of its directory.
    pub(crate) fn rank_of(&self, file: &FileState) -> Option<Rank> {
        let number = wal_number(&file.name).filter(|_| file.purpose == Purpose::Wal)?;
        Some(Rank { group: file.parent, number })
    }
}
