//! Memory for records on their way, used again: from the heap, each of 1 MiB would cost a system call and a page fault for every
//! 4 KiB, more than its checksums do.

use crate::sync::{Mutex, lock};
use imbrex_device::AlignedBuf;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Smaller ones come from the heap.
const LEAST: usize = 64 << 10;
/// Most bytes that are kept for later.
const KEPT: usize = 64 << 20;

/// Buffers that nobody uses.
#[derive(Default)]
pub struct BufPool(Mutex<Free>);

#[derive(Default)]
struct Free {
    buffers: Vec<AlignedBuf>,
    bytes: usize,
}

/// Aligned memory of any content; goes back to its pool when dropped.
pub struct PooledBuf {
    buf: AlignedBuf,
    len: usize,
    pool: Option<Arc<BufPool>>,
}

impl BufPool {
    /// `len` bytes of any content.
    pub fn take(self: &Arc<Self>, len: usize) -> PooledBuf {
        if len < LEAST {
            return PooledBuf { buf: AlignedBuf::zeroed(len), len, pool: None };
        }
        // In few sizes, so that one fits the next; an eighth at most is not used.
        let size = len.next_multiple_of((len.next_power_of_two() / 16).max(LEAST));
        let mut free = lock(&self.0);
        let found = free.buffers.iter().rposition(|buf| buf.len() == size).map(|i| free.buffers.swap_remove(i));
        if found.is_some() {
            free.bytes -= size;
        }
        drop(free);
        PooledBuf { buf: found.unwrap_or_else(|| AlignedBuf::zeroed(size)), len, pool: Some(self.clone()) }
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let buf = std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        let mut free = lock(&pool.0);
        if free.bytes + buf.len() <= KEPT {
            free.bytes += buf.len();
            free.buffers.push(buf);
        }
    }
}

impl From<AlignedBuf> for PooledBuf {
    fn from(buf: AlignedBuf) -> PooledBuf {
        PooledBuf { len: buf.len(), buf, pool: None }
    }
}

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_not_kept_without_end() {
        let pool = Arc::new(BufPool::default());
        let first = pool.take(1 << 20);
        let place = first.as_ptr();
        drop(first);
        let again = pool.take((1 << 20) - 5);
        assert_eq!((again.as_ptr(), again.len()), (place, (1 << 20) - 5));
        assert_ne!(pool.take(1 << 20).as_ptr(), place, "that one is in use");
        let many: Vec<PooledBuf> = (0..200).map(|_| pool.take(1 << 20)).collect();
        drop(many);
        assert!(lock(&pool.0).bytes <= KEPT);
        assert_eq!(pool.take(100).len(), 100);
    }
}
