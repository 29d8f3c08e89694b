//! How long a command may be, and memory from which the kernel takes a long write in one piece.
//!
//! The kernel cuts what is written past its page cache where it has gathered 256 pieces of memory that do not stand one behind the other (`BIO_MAX_VECS`), and
//! where they are more than the drive's adapter takes (`max_segments`). In memory of small pages each page is a piece, so a command is 1 MiB at most;
//! with an AHCI adapter, which takes 168 pieces, 672 KiB. In large pages (2 MiB) a piece is as long as the adapter allows (`max_segment_size`), and what limits a
//! command is `max_sectors_kb`. A write to a zone must not be cut: its parts could get there in another order, or half of a refused one could stay. So a
//! write that is longer than small pages allow goes to the drive from a [large buffer](Large).

use super::sysfs::Sysfs;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Pieces of memory in one bio of the kernel, at most (`BIO_MAX_VECS`).
const BIO_PIECES: u64 = 256;
/// Bytes of a page; larger ones only make the limit looser.
const PAGE: u64 = 4096;
/// Bytes of a large page (x86-64, and aarch64 with pages of 4 KiB).
const LARGE_PAGE: u64 = 2 << 20;
/// Commands are cut to multiples of this, where they are larger than it.
const ROUND_IO: u64 = 64 << 10;
/// No command is longer: a drive gains nothing by it.
const MOST: u64 = 16 << 20;
/// Large buffers that are kept for the next writes.
const KEPT: usize = 8;

/// How long commands may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Longest {
    /// From any memory.
    pub(super) plain: u32,
    /// From a [`Large`] buffer.
    pub(super) large: u32,
}

impl Longest {
    /// Of the device of this directory, for blocks of `block` bytes.
    pub(super) fn of(sysfs: &Sysfs, block: u32) -> Longest {
        let sectors = sysfs.number("queue/max_sectors_kb").unwrap_or(128).saturating_mul(1024).min(MOST);
        let segments = sysfs.number("queue/max_segments").unwrap_or(BIO_PIECES);
        let segment = sysfs.number("queue/max_segment_size").unwrap_or(PAGE).clamp(PAGE, LARGE_PAGE);
        // A buffer that begins inside a page touches one page more.
        let spare = u64::from(u64::from(block) < PAGE);
        let pages = segments.min(BIO_PIECES).saturating_sub(spare);
        // Large pages one by one, since two of them need not stand one behind the other.
        let each = LARGE_PAGE.div_ceil(segment);
        let large = segments / each * LARGE_PAGE + segments % each * segment;
        let whole = |most: u64| {
            let unit = if most >= ROUND_IO { ROUND_IO } else { u64::from(block) };
            ((most / unit * unit) as u32).max(block)
        };
        let plain = whole(sectors.min(pages.saturating_mul(PAGE)));
        Longest { plain, large: whole(sectors.min(large)).max(plain) }
    }
}

/// Memory in large pages.
pub(super) struct Large {
    /// What was mapped, and how much; the buffer is in it.
    map: NonNull<c_void>,
    mapped: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes, owned by this value alone.
unsafe impl Send for Large {}

impl Large {
    /// `None`: the system has no large pages to give now, or none at all.
    fn new(len: usize) -> Option<Large> {
        let (page, len) = (LARGE_PAGE as usize, len.next_multiple_of(LARGE_PAGE as usize));
        let mapped = len + page;
        // SAFETY: a new mapping where the kernel likes.
        let map = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let map = NonNull::new(map.ok()?)?;
        let skip = (map.as_ptr() as usize).next_multiple_of(page) - map.as_ptr() as usize;
        // SAFETY: `skip` is less than a large page, so `len` bytes are left of the mapping.
        let start = unsafe { map.cast::<u8>().add(skip) };
        let large = Large { map, mapped, start, len };
        // SAFETY: the range is ours, and the advice changes none of its bytes.
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) }.ok()?;
        // SAFETY: `len` bytes are ours.
        unsafe { start.as_ptr().write_bytes(0, len) };
        is_large(&std::fs::read_to_string("/proc/self/smaps").ok()?, start.as_ptr() as u64).then_some(large)
    }

    /// A copy of `bytes`, which are not longer than it.
    fn filled(&mut self, bytes: &[u8]) -> &[u8] {
        // SAFETY: `len` initialised bytes, and `&mut self` is the only access.
        let own = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) };
        let (copy, _) = own.split_at_mut(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and unmapped once.
        let _ = unsafe { munmap(self.map.as_ptr(), self.mapped) };
    }
}

/// Whether all memory that is there of the mapping which holds this address is in large pages, by a text like `/proc/self/smaps`.
fn is_large(smaps: &str, address: u64) -> bool {
    let range = |line: &str| {
        let (from, rest) = line.split_once('-')?;
        let (to, _) = rest.split_once(' ')?;
        Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
    };
    let mut lines = smaps.lines().skip_while(|line| range(line).is_none_or(|range| !range.contains(&address)));
    lines.next();
    let of_it = lines.take_while(|line| range(line).is_none());
    let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let (mut there, mut large) = (None, None);
    for line in of_it {
        match line.split(':').next() {
            Some("Rss") => there = number(line),
            Some("AnonHugePages") => large = number(line),
            _ => {}
        }
    }
    large.is_some_and(|large| large > 0 && there == Some(large))
}

/// Large buffers of one length, for as many writes at once as want one.
pub(super) struct LargeBuffers {
    len: usize,
    kept: Mutex<Vec<Large>>,
}

impl LargeBuffers {
    /// `None`: the system gives no large pages.
    pub(super) fn new(len: u32) -> Option<LargeBuffers> {
        let len = len as usize;
        Some(LargeBuffers { len, kept: Mutex::new(vec![Large::new(len)?]) })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Large>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a copy of `bytes` in large pages; `None`: they are too long, or there are no large pages now.
    pub(super) fn with<T>(&self, bytes: &[u8], what: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if bytes.len() > self.len {
            return None;
        }
        let spare = self.kept().pop();
        let mut buffer = spare.or_else(|| Large::new(self.len))?;
        let done = what(buffer.filled(bytes));
        let mut kept = self.kept();
        if kept.len() < KEPT {
            kept.push(buffer);
        }
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(files: &[(&str, &str)], block: u32) -> (u32, u32) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("queue")).unwrap();
        files.iter().for_each(|(file, text)| std::fs::write(dir.path().join("queue").join(file), text).unwrap());
        let Longest { plain, large } = Longest::of(&Sysfs::at(dir.path()), block);
        (plain >> 10, large >> 10)
    }

    #[test]
    fn small_pages_limit_a_command_and_large_ones_leave_it_to_the_settings() {
        let of = |sectors, segments, size| {
            longest(&[("max_sectors_kb", sectors), ("max_segments", segments), ("max_segment_size", size)], 4096)
        };
        // Linux' usual setting; an AHCI adapter; newer kernels.
        assert_eq!(of("1280", "2048", "65536"), (1024, 1280));
        assert_eq!(of("1280", "168", "65536"), (640, 1280));
        assert_eq!(of("4096", "168", "65536"), (640, 4096));
        assert_eq!(of("4096", "2048", "4294967295"), (1024, 4096));
        assert_eq!(of("128", "168", "65536"), (128, 128));
        // Few pieces: a large page and two pieces of the next one.
        assert_eq!(of("4096", "34", "65536"), (128, 2048 + 128));
        assert_eq!(of("4096", "128", "4096"), (512, 512), "each page is a piece to it");
        assert_eq!(of("1048576", "4294967295", "4294967295"), (1024, 16 << 10), "that is enough");
        assert_eq!(longest(&[], 4096), (128, 128), "nothing is known");
        assert_eq!(longest(&[("max_sectors_kb", "1280"), ("max_segments", "256")], 512), (960, 1024));
    }

    #[test]
    fn a_mapping_is_large_where_all_of_it_that_is_there_is() {
        let smaps = |rss: u64, huge: u64| {
            format!(
                "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize: 2048 kB\nRss: 12 kB\nAnonHugePages: 0 kB\n\
                 7f0000200000-7f0000600000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nRss:  {rss} kB\nAnonHugePages:   {huge} kB\n\
                 VmFlags: rd wr\n7f0000600000-7f0000601000 rw-p 00000000 00:00 0 \nRss: 4 kB\nAnonHugePages: 4 kB\n"
            )
        };
        assert!(is_large(&smaps(4096, 4096), 0x7f00_0040_0000));
        for (rss, huge, at) in
            [(4096, 2048, 0x7f00_0040_0000), (0, 0, 0x7f00_0040_0000), (4096, 4096, 0x7f00_0010_0000), (4096, 4096, 7)]
        {
            assert!(!is_large(&smaps(rss, huge), at), "{rss} {huge} {at:x}");
        }
    }

    #[test]
    fn writes_at_once_have_a_buffer_each_and_one_that_is_too_long_none() {
        // A system without large pages has none to try.
        let Some(buffers) = LargeBuffers::new(3 << 20) else { return };
        let bytes: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
        let inner = buffers.with(&bytes[..5000], |outer| {
            assert_eq!(outer.as_ptr() as usize % LARGE_PAGE as usize, 0);
            let inner = buffers.with(&bytes, |inner| inner == bytes && inner.as_ptr() != outer.as_ptr());
            assert_eq!(outer, &bytes[..5000]);
            inner
        });
        assert!(matches!(inner, Some(None | Some(true))), "{inner:?}");
        assert_eq!(buffers.with(&[0; (4 << 20) + 1], |_| ()), None);
    }
}
