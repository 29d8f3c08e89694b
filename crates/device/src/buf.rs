//! Memory that drives accept.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every [`AlignedBuf`], in bytes: enough for `O_DIRECT` on any drive with blocks up to 4096.
pub const MEM_ALIGN: usize = 4096;

/// A zeroed heap buffer aligned to [`MEM_ALIGN`]. Its length is fixed.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer is plain bytes, owned by this value alone.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` gives only `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes. Aborts like `Vec` does when memory is exhausted; callers bound `len`.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return AlignedBuf { ptr: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        AlignedBuf { ptr, len }
    }

    /// A copy of `bytes`, padded with zeros to a multiple of `unit`.
    pub fn padded(bytes: &[u8], unit: usize) -> Self {
        let mut buf = Self::zeroed(bytes.len().next_multiple_of(unit.max(1)));
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, MEM_ALIGN).expect("a buffer length that fits the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated by `zeroed` with this same layout, and dropped once.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes live at `ptr` (dangling only for length 0).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_padded() {
        let buf = AlignedBuf::padded(b"hello", 512);
        assert_eq!(buf.as_ptr() as usize % MEM_ALIGN, 0);
        assert_eq!(buf.len(), 512);
        assert_eq!(&buf[..5], b"hello");
        assert!(buf[5..].iter().all(|b| *b == 0));
        assert!(AlignedBuf::zeroed(0).is_empty());
    }
}
