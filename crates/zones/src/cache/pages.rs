//! The memory of cached pages: buffers are filled anew, not given back.
//!
//! Pages come and go on every thread that reads or writes, and a heap with an arena for each thread (glibc's) keeps what was
//! freed in the wrong one: a cache of 64 MiB was measured to hold 180 MiB. A buffer that stays costs its size once. A short
//! page, the end of a file, takes a whole one.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of one size, and those of them that hold nothing now.
pub(super) struct Buffers {
    size: usize,
    free: Mutex<Vec<Box<[u8]>>>,
}

/// A cached page. Its buffer goes back when the last reader is gone.
pub(super) struct Page {
    buffer: Box<[u8]>,
    len: u32,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Of `size` bytes each.
    pub(super) fn new(size: usize) -> Arc<Self> {
        Arc::new(Buffers { size, free: Mutex::default() })
    }

    /// A page that holds a copy of `data`, which fits.
    pub(super) fn page(self: &Arc<Self>, data: &[u8]) -> Arc<Page> {
        let free = self.lock().pop();
        let mut buffer = free.unwrap_or_else(|| vec![0; self.size].into_boxed_slice());
        buffer[..data.len()].copy_from_slice(data);
        Arc::new(Page { buffer, len: data.len() as u32, home: self.clone() })
    }

    /// How many hold nothing.
    pub(super) fn free(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<[u8]>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Page {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len as usize]
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.home.lock().push(buffer);
    }
}
