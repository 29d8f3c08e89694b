//! A piece of memory seen as 64-bit atomic words: the heap for memory drives, a shared mapping of a file for images.
//!
//! Everything that changes while a drive is in use is a whole word in a region, so that a process killed between any two
//! instructions leaves a state behind that was true at some moment.

use imbrex_device::{AlignedBuf, MEM_ALIGN};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(target_endian = "little"))]
compile_error!("the words of a drive image are little-endian; this host is not");

enum Backing {
    Heap { _bytes: AlignedBuf },
    Map,
}

/// Words at a fixed address, valid as long as the value lives.
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    backing: Backing,
}

// SAFETY: shared access goes through atomics or through raw copies whose callers keep each other apart (see `copy_in`).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed heap memory of at least `len` bytes.
    pub(crate) fn heap(len: usize) -> Region {
        let mut bytes = AlignedBuf::zeroed(len.max(8).next_multiple_of(8));
        let len = bytes.len();
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Region { base, len, writable: true, backing: Backing::Heap { _bytes: bytes } }
    }

    /// `len` bytes of a file from its start, shared with every other process that maps it. The file must be that long and
    /// its blocks allocated, or a later access is a SIGBUS.
    pub(crate) fn map(file: &impl AsFd, len: usize, writable: bool) -> io::Result<Region> {
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let raw = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0)? };
        Self::mapped(raw.cast(), len, writable)
    }

    /// Anonymous memory of `len` bytes that costs nothing until it is touched.
    pub(crate) fn anonymous(len: usize, prefault: bool) -> io::Result<Region> {
        let mut flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        if prefault {
            flags |= MapFlags::POPULATE;
        }
        // SAFETY: as in `map`.
        let raw = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        Self::mapped(raw.cast(), len, true)
    }

    fn mapped(raw: *mut u8, len: usize, writable: bool) -> io::Result<Region> {
        let base = NonNull::new(raw).ok_or_else(|| io::Error::other("mapping at address 0"))?;
        Ok(Region { base, len, writable, backing: Backing::Map })
    }

    /// Whether it may be written.
    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// The word at byte `at`, a multiple of 8.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "word {at} of a region of {} bytes", self.len);
        // SAFETY: in bounds, aligned (the base is page aligned), and only ever accessed as an atomic or by `copy_*`.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Loads a word.
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Stores a word after everything that was stored before it.
    pub(crate) fn store(&self, at: usize, value: u64) {
        assert!(self.writable, "store into a read-only region");
        self.word(at).store(value, Ordering::Release);
    }

    /// Adds to a counter; returns what it was.
    pub(crate) fn add(&self, at: usize, value: u64) -> u64 {
        assert!(self.writable, "add to a read-only region");
        self.word(at).fetch_add(value, Ordering::Relaxed)
    }

    /// Copies `bytes` to `at`. The caller makes sure that nobody else touches that range meanwhile.
    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) {
        assert!(self.writable && at <= self.len && bytes.len() <= self.len - at, "copy out of a region's bounds");
        // SAFETY: in bounds; `bytes` is a borrow and so does not alias memory that only this region hands out as copies.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len()) }
    }

    /// Copies from `at` into `out`. The caller makes sure that nobody writes that range meanwhile, or checks what it got.
    pub(crate) fn copy_out(&self, at: usize, out: &mut [u8]) {
        assert!(at <= self.len && out.len() <= self.len - at, "copy out of a region's bounds");
        // SAFETY: in bounds, and `out` is exclusively borrowed.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// A heap copy of the first `len` bytes. The caller keeps writers out.
    pub(crate) fn to_heap(&self, len: usize) -> Region {
        let copy = Region::heap(len);
        let len = len.min(self.len);
        // SAFETY: both regions have `len` bytes and are distinct.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr(), copy.base.as_ptr(), len) }
        copy
    }

    /// Waits until a shared mapping is on the host's disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if let Backing::Map = self.backing {
            // SAFETY: exactly the mapping of this value; msync changes no memory.
            unsafe { msync(self.base.as_ptr().cast(), self.len, MsyncFlags::SYNC)? }
        }
        Ok(())
    }

    /// Gives whole pages inside a private anonymous range back to the system; they read as zeros afterwards.
    pub(crate) fn give_back(&self, at: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "give back out of a region's bounds");
        let from = at.next_multiple_of(MEM_ALIGN);
        let to = (at + len) / MEM_ALIGN * MEM_ALIGN;
        if from < to {
            // SAFETY: page-aligned and inside this value's own anonymous mapping. A failure leaves old bytes, which
            // nobody can read: they lie above a write pointer.
            let _ = unsafe {
                rustix::mm::madvise(self.base.as_ptr().add(from).cast(), to - from, rustix::mm::Advice::LinuxDontNeed)
            };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Backing::Map = self.backing {
            // SAFETY: mapped by this value with this length; nobody borrows from it any more.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_copies() {
        for region in [Region::heap(4096), Region::anonymous(4096, true).unwrap()] {
            region.store(8, 7);
            assert_eq!((region.add(8, 3), region.load(8), region.load(16)), (7, 10, 0));
            region.copy_in(100, b"abc");
            let copy = region.to_heap(4096);
            let mut out = [0; 3];
            copy.copy_out(100, &mut out);
            assert_eq!((&out, copy.load(8)), (b"abc", 10));
        }
    }

    #[test]
    fn pages_given_back_are_zero() {
        let region = Region::anonymous(3 * 4096, false).unwrap();
        region.copy_in(0, &[1; 3 * 4096]);
        region.give_back(1, 3 * 4096 - 1);
        assert_eq!((region.load(0), region.load(4096), region.load(8192)), (0x0101010101010101, 0, 0));
    }
}
