//! The memory of cached pages: buffers are filled anew, not given back.
//!
//! Pages come and go on every thread that reads or writes, and a heap with an arena for each thread (glibc's) keeps what was
//! freed in the wrong one: a cache of 64 MiB was measured to hold 180 MiB. A buffer that stays costs its size once. A short
//! page, the end of a file, takes a whole one. Buffers are made many at a time: one by one, each cost a system call and
//! several page faults under the lock of the process's memory, a third of the processor time of filling a database.

use imbrex_device::Part;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Of one allocation, in bytes: a large page of the processor.
const BATCH_BYTES: usize = 2 << 20;

/// Buffers of one size, and those of them that hold nothing now.
pub(super) struct Buffers {
    size: usize,
    /// How many are made at a time.
    batch: usize,
    free: Mutex<Vec<Part>>,
}

/// A cached page. Its buffer goes back when the last reader is gone.
pub(super) struct Page {
    /// `None` only while it is dropped.
    buffer: Option<Part>,
    len: u32,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Of `size` bytes each, for a cache of `capacity` bytes.
    pub(super) fn new(size: usize, capacity: u64) -> Arc<Self> {
        // Not more than a 128th of the cache lies idle.
        let bytes = usize::try_from(capacity / 128).unwrap_or(BATCH_BYTES).min(BATCH_BYTES);
        Arc::new(Buffers { size, batch: (bytes / size).max(1), free: Mutex::default() })
    }

    /// A page that holds a copy of these pieces, one behind the other, which fit.
    pub(super) fn page(self: &Arc<Self>, data: &[&[u8]]) -> Arc<Page> {
        let mut buffer = self.buffer();
        let mut len = 0;
        if let Some(buffer) = &mut buffer {
            for piece in data {
                buffer[len..len + piece.len()].copy_from_slice(piece);
                len += piece.len();
            }
        }
        Arc::new(Page { buffer, len: len as u32, home: self.clone() })
    }

    /// A page without bytes.
    pub(super) fn empty(self: &Arc<Self>) -> Arc<Page> {
        Arc::new(Page { buffer: None, len: 0, home: self.clone() })
    }

    fn buffer(&self) -> Option<Part> {
        let mut free = self.lock();
        if free.is_empty() {
            *free = Part::cut(self.batch, self.size);
        }
        free.pop()
    }

    /// How many hold nothing.
    pub(super) fn free(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Part>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Page {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.len as usize])
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.home.lock().extend(self.buffer.take());
    }
}
