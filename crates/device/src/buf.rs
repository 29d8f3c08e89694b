//! Memory that drives accept.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every [`AlignedBuf`], in bytes: enough for `O_DIRECT` on any drive with blocks up to 4096.
pub const MEM_ALIGN: usize = 4096;

/// What the processor's large pages hold, in bytes (x86-64, and aarch64 with pages of 4 KiB).
const LARGE_PAGE: usize = 2 << 20;

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

/// A part of a larger piece of memory, owned like a `Box<[u8]>`; the memory is given back with the last part of it.
///
/// For many buffers of one size: from the heap, each of them may cost a system call (glibc's arenas grow by one page at a
/// time) and a page fault, and a read of it a miss in the processor's table of pages.
pub struct Part {
    start: NonNull<u8>,
    len: usize,
    _whole: Arc<Whole>,
}

struct Whole {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain bytes; each part is the only access to its range, and nothing touches the whole but to free it.
unsafe impl Send for Part {}
// SAFETY: `&Part` gives only `&[u8]`.
unsafe impl Sync for Part {}
// SAFETY: it is only freed, once, by whoever is last.
unsafe impl Send for Whole {}
// SAFETY: `&Whole` gives nothing.
unsafe impl Sync for Whole {}

impl Part {
    /// `count` zeroed parts of `len` bytes each, in one piece of memory. Aborts like `Vec` does when memory is exhausted, or
    /// the sizes make no sense; callers bound them. Pieces of 2 MiB and more ask for the processor's large pages.
    pub fn cut(count: usize, len: usize) -> Vec<Part> {
        if count == 0 || len == 0 {
            return Vec::new();
        }
        let size = count.checked_mul(len).expect("a size that fits the address space");
        let layout = Layout::from_size_align(size, if size >= LARGE_PAGE { LARGE_PAGE } else { MEM_ALIGN });
        let layout = layout.expect("a size that fits the address space");
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        if size >= LARGE_PAGE {
            // Before anything touches it: memory that has small pages keeps them.
            // SAFETY: the range is ours, and the advice changes none of its bytes. It may be refused: then pages are small.
            let _ = unsafe {
                rustix::mm::madvise(raw.cast(), size / LARGE_PAGE * LARGE_PAGE, rustix::mm::Advice::LinuxHugepage)
            };
        }
        // SAFETY: `size` bytes are ours.
        unsafe { raw.write_bytes(0, size) };
        let whole = Arc::new(Whole { ptr, layout });
        (0..count)
            // SAFETY: `i * len + len <= size`, so it stays within the allocation.
            .map(|i| Part { start: unsafe { ptr.add(i * len) }, len, _whole: whole.clone() })
            .collect()
    }
}

impl Part {
    /// The bytes of parts that stand one behind the other in one piece of memory, in this order; `None`: they do not.
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Option<&'a [u8]> {
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        let mut len = first.len;
        for part in parts {
            let next = first.start.as_ptr().wrapping_add(len);
            if !Arc::ptr_eq(&first._whole, &part._whole) || part.start.as_ptr() != next {
                return None;
            }
            len += part.len;
        }
        // SAFETY: initialised bytes of one allocation, whose pointer `start` was made of: each part follows the one before it. All of
        // them are borrowed, so nobody changes them, and the whole lives, for as long as the slice.
        Some(unsafe { std::slice::from_raw_parts(first.start.as_ptr(), len) })
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: allocated by `Part::cut` with this same layout; no part is left, and this is dropped once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

impl Deref for Part {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes at `start`, which live as long as the whole and are nobody else's.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_apart_and_outlive_each_other() {
        for (count, len) in [(3, 100), (130, 16 << 10)] {
            let mut parts = Part::cut(count, len);
            assert_eq!(parts.len(), count);
            for (i, part) in parts.iter_mut().enumerate() {
                assert!(part.len() == len && part.iter().all(|b| *b == 0));
                part.fill(i as u8 + 1);
            }
            let last = parts.pop();
            for (i, part) in parts.iter().enumerate() {
                assert!(part.iter().all(|b| *b == i as u8 + 1), "part {i}");
            }
            let elsewhere = std::thread::spawn(move || drop(parts));
            elsewhere.join().unwrap();
            assert!(last.unwrap().iter().all(|b| *b == count as u8));
        }
        assert!(Part::cut(0, 7).is_empty() && Part::cut(7, 0).is_empty());
    }

    #[test]
    fn only_neighbours_in_order_are_joined() {
        let mut parts = Part::cut(4, 100);
        for (i, part) in parts.iter_mut().enumerate() {
            part.fill(i as u8);
        }
        let other = Part::cut(1, 100);
        let [a, b, c, d] = &parts[..] else { panic!("four parts") };
        let joined = Part::joined([b, c, d]).unwrap();
        assert!(joined.len() == 300 && joined.chunks(100).zip(1u8..).all(|(part, i)| part.iter().all(|b| *b == i)));
        assert_eq!(Part::joined([a]).map(<[u8]>::len), Some(100));
        for apart in [[a, c], [b, a], [a, a], [d, &other[0]]] {
            assert!(Part::joined(apart).is_none());
        }
        assert!(Part::joined(std::iter::empty()).is_none());
    }

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
