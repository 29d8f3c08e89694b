//! Closed files that are not on the drive as a whole. Each stays open without a handle.
//!
//! - *Kept*: its closing failed. It is closed again whenever that may succeed: after something was deleted, and when everything is to be durable.
//! - *Waiting*: a write-ahead log whose bytes wait in memory, because it will probably be deleted soon.
//!
//! Invariant: a log waits only where its bytes outlive the process, and holds nothing that somebody else cannot get: neither memory nor zones.

use crate::file::File;
use crate::sync::lock;
use imbrex_device::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

/// See the module.
#[derive(Default)]
pub(crate) struct Unwritten {
    kept: Mutex<Vec<Arc<File>>>,
    waiting: Mutex<Vec<Arc<File>>>,
    /// Somebody syncs write-ahead logs: nothing of them waits then, or a sync would have all of it to write.
    syncs_logs: AtomicBool,
}

fn add(list: &Mutex<Vec<Arc<File>>>, file: Arc<File>) {
    let mut list = lock(list);
    if !list.iter().any(|other| Arc::ptr_eq(other, &file)) {
        list.push(file);
    }
}

/// Closes the file, where nobody has it open for writing again and it has a name. Whether it did. `waits`: also for who is at it just now.
fn close(file: &File, waits: bool) -> Result<bool> {
    let mut writing = match file.writing.try_lock() {
        Ok(writing) => writing,
        Err(TryLockError::Poisoned(writing)) => writing.into_inner(),
        Err(TryLockError::WouldBlock) if waits => lock(&file.writing),
        Err(TryLockError::WouldBlock) => return Ok(false),
    };
    // With a writer again it is that one's business; without a name it is nobody's.
    if writing.writers > 0 || file.state.is_orphan() {
        return Ok(false);
    }
    file.finish(&mut writing).map(|()| true)
}

impl Unwritten {
    /// Keeps a file whose closing failed.
    pub(crate) fn keep(&self, file: Arc<File>) {
        add(&self.kept, file);
    }

    /// Closes those that were kept. Called without any lock. What fails again is kept.
    ///
    /// # Errors
    /// The last of those.
    pub(crate) fn finish_kept(&self) -> Result<()> {
        let mut result = Ok(());
        let kept = std::mem::take(&mut *lock(&self.kept));
        for file in kept {
            if let Err(error) = close(&file, true) {
                self.keep(file);
                result = Err(error);
            }
        }
        result
    }

    /// Keeps a closed log whose bytes wait.
    pub(crate) fn keep_waiting(&self, file: Arc<File>) {
        add(&self.waiting, file);
        // Others may have been written, because they are old or memory was short: what is reserved for them is not needed any more.
        self.settle_waiting();
    }

    /// Writes and closes all logs that wait, but those that somebody is at just now. Whether there were any. For whoever finds no zone;
    /// called without a lock but that of the caller's file.
    pub(crate) fn write_waiting(&self) -> bool {
        let files = lock(&self.waiting).clone();
        let mut any = false;
        for file in files {
            // Whoever holds it may be waiting for the caller's.
            match close(&file, false) {
                Ok(closed) => any |= closed,
                Err(error) => tracing::debug!(%error, "a log that waits cannot be written"),
            }
        }
        any
    }

    /// Closes the logs that were written out meanwhile, and lets go of those that were deleted. Called without any lock.
    pub(crate) fn settle_waiting(&self) {
        let over: Vec<_> = lock(&self.waiting).extract_if(.., |file| file.waits_no_more()).collect();
        for file in over {
            if let Err(error) = close(&file, true) {
                tracing::debug!(%error, "a log cannot be closed yet");
                self.keep(file);
            }
        }
    }

    /// Lets go of all of them: what they hold is the next mount's business.
    pub(crate) fn forget(&self) {
        drop(std::mem::take(&mut *lock(&self.kept)));
        drop(std::mem::take(&mut *lock(&self.waiting)));
    }

    /// Somebody syncs write-ahead logs. True: for the first time.
    pub(crate) fn note_synced_log(&self) -> bool {
        !self.syncs_logs.swap(true, Ordering::AcqRel)
    }

    /// Whether nobody has synced a write-ahead log.
    pub(crate) fn may_wait(&self) -> bool {
        !self.syncs_logs.load(Ordering::Acquire)
    }
}
