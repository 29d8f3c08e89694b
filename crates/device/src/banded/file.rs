//! What banded drives usually stand on: a file of the host, or a conventional disk.
//!
//! A file is read and written through the page cache, like a drive image. A disk is read and written past it (`O_DIRECT`);
//! only its live part goes through the page cache, which the kernel writes out when the last opener is gone.

use super::base::{Base, BaseFacts};
use super::hash;
use super::layout::PAGE;
use crate::kernel::{self, Access, PlainDisk};
use crate::{Error, Fault, Result};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Largest command of a file, and of a disk between these: what the kernel passes on in one piece. It may cut one, since what is written on a conventional
/// disk has no order.
const MAX_IO: u32 = 1 << 20;
const DISKS_MAX_IO: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;

/// A file or a disk, locked as long as it is open.
pub struct FileBase {
    facts: BaseFacts,
    /// For data and the table.
    file: File,
    /// For the live part, where `file` goes past the page cache.
    cached: Option<Cached>,
    /// The best block for a drive on it.
    good_block: u32,
}

/// A disk by the page cache, and its first page in memory, which is never touched there.
struct Cached {
    file: File,
    page: std::ptr::NonNull<std::ffi::c_void>,
}

// SAFETY: the mapping is never read or written; it only says what `msync` is for.
unsafe impl Send for Cached {}
// SAFETY: as above.
unsafe impl Sync for Cached {}

impl Cached {
    fn new(file: File) -> io::Result<Cached> {
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let page = unsafe { mmap(std::ptr::null_mut(), PAGE, protection, flags, &file, 0) }?;
        let page = std::ptr::NonNull::new(page).ok_or_else(|| told(ErrorKind::Other, "a page at address 0"))?;
        Ok(Cached { file, page })
    }

    /// Has the disk flush its cache. `fdatasync` would first write all pages of the live part that have changed, at a place of
    /// their own; `msync` writes those of its range, and this one never changes there.
    fn flush(&self) -> io::Result<()> {
        // SAFETY: mapped with this length as long as the value lives.
        Ok(unsafe { msync(self.page.as_ptr(), PAGE, MsyncFlags::SYNC) }?)
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        // SAFETY: mapped with this length when the value was made, and unmapped once.
        let _ = unsafe { munmap(self.page.as_ptr(), PAGE) };
    }
}

/// Where nothing is that could be opened.
pub(super) const NOT_THERE: &str =
    "there is no such file; make a banded disk with `imbrex drive create --banded PATH --capacity SIZE`";

impl FileBase {
    /// Opens the file or disk at `path`.
    ///
    /// Errors: `Unusable` with a sentence for what is neither, or is mounted, partitioned or zoned; `Busy` where somebody has
    /// it; `Io` otherwise.
    pub fn open(path: &Path, access: Access) -> Result<FileBase> {
        let name: Arc<str> = path.display().to_string().into();
        let meta = std::fs::metadata(path).map_err(|error| cannot_open(&name, error))?;
        let kind = meta.file_type();
        if kind.is_block_device() {
            return Self::disk(kernel::open_plain(path, &name, access)?, name, access);
        }
        if !kind.is_file() {
            return Err(Error::unusable(&name, "neither a file nor a disk; name a file, or a disk as /dev/sdb"));
        }
        let write = access == Access::Write;
        let file = File::options().read(true).write(write).open(path).map_err(|error| cannot_open(&name, error))?;
        Self::locked(file, name, access)
    }

    /// Makes a sparse file of `size` bytes at `path`, where there is none.
    pub fn create(path: &Path, size: u64) -> Result<FileBase> {
        let name: Arc<str> = path.display().to_string().into();
        let new = File::options().read(true).write(true).create_new(true).open(path);
        let file = new.map_err(|error| cannot_create(&name, error))?;
        let made = file.set_len(size).map_err(|error| cannot_create(&name, error));
        let made = made.and_then(|()| Self::locked(file, name, Access::Write));
        made.inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    fn locked(file: File, name: Arc<str>, access: Access) -> Result<FileBase> {
        let meta = file.metadata().map_err(|error| Error::io(&name, error))?;
        take(&file, &meta, &name, access)?;
        let medium = hash(&[b"file", &meta.dev().to_le_bytes(), &meta.ino().to_le_bytes()]);
        let facts = BaseFacts {
            name,
            size: meta.len(),
            block: 512,
            max_io: MAX_IO,
            rotational: kernel::is_rotational(meta.dev()),
            medium,
            boot: boot(&medium, ""),
        };
        Ok(FileBase { facts, file, cached: None, good_block: 4096 })
    }

    fn disk(disk: PlainDisk, name: Arc<str>, access: Access) -> Result<FileBase> {
        let block = match u32::try_from(disk.logical_block) {
            Ok(block @ (512 | 4096)) => block,
            _ => {
                let text = format!("a disk of {} byte blocks; disks of 512 or 4096 can be used", disk.logical_block);
                return Err(Error::unusable(&name, text));
            }
        };
        // The same open disk once more, whatever has become of its name.
        let again = format!("/proc/self/fd/{}", disk.file.as_raw_fd());
        let cached = File::options().read(true).write(access == Access::Write).open(again);
        let cached = cached.and_then(Cached::new).map_err(|error| Error::io(&name, error))?;
        let medium = hash(&[b"disk", disk.names.as_bytes()]);
        let facts = BaseFacts {
            name,
            size: disk.size,
            block,
            max_io: (disk.max_io.clamp(*DISKS_MAX_IO.start(), *DISKS_MAX_IO.end()) / 4096 * 4096) as u32,
            rotational: disk.rotational,
            medium,
            boot: boot(&medium, &disk.sequence),
        };
        let good_block = if disk.physical_block >= 4096 { 4096 } else { block };
        Ok(FileBase { facts, file: disk.file, cached: Some(cached), good_block })
    }

    /// The block that suits it: what it writes in one piece.
    pub fn good_block(&self) -> u32 {
        self.good_block
    }

    /// Whether it is a disk rather than a file.
    pub fn is_disk(&self) -> bool {
        self.cached.is_some()
    }

    fn by_cache(&self) -> &File {
        self.cached.as_ref().map_or(&self.file, |cached| &cached.file)
    }

    /// Who has it locked, where the system tells.
    pub fn in_use_by(&self) -> Option<u32> {
        self.file.metadata().ok().and_then(|meta| crate::lock_holder(&meta))
    }

    /// Bytes that it takes on the host; `None` for a disk.
    pub fn host_bytes(&self) -> Option<u64> {
        if self.is_disk() { None } else { self.file.metadata().ok().map(|meta| meta.blocks() * 512) }
    }
}

/// Under which boot, and on which appearance of the disk. Where the system tells no boot, every open is another.
fn boot(medium: &[u8; 16], sequence: &str) -> [u8; 16] {
    let boot = kernel::boot().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    hash(&[b"boot", medium, boot.as_bytes(), b"\n", sequence.as_bytes()])
}

impl Drop for FileBase {
    /// Closing the file is not enough: a child that another thread is just starting has it, too, until it runs its program.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn take(file: &File, meta: &Metadata, name: &Arc<str>, access: Access) -> Result<()> {
    let how = match access {
        Access::Write => FlockOperation::NonBlockingLockExclusive,
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::Observe => return Ok(()),
    };
    match flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::busy(name, crate::lock_holders(meta))),
        Err(error) => Err(Error::io(name, error.into())),
    }
}

fn told(kind: ErrorKind, sentence: impl Into<String>) -> io::Error {
    io::Error::new(kind, sentence.into())
}

fn cannot_open(name: &Arc<str>, error: io::Error) -> Error {
    let error = match error.kind() {
        kind @ ErrorKind::NotFound => told(kind, NOT_THERE),
        kind @ ErrorKind::PermissionDenied => {
            told(kind, "permission denied; run it as its owner or root, or change its mode")
        }
        kind @ ErrorKind::ReadOnlyFilesystem => {
            told(kind, "the file is on a read-only file system; open it read-only or copy it elsewhere")
        }
        _ => error,
    };
    Error::io(name, error)
}

fn cannot_create(name: &Arc<str>, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            Error::unusable(name, "this file exists; use another path, or --force to destroy what is in it")
        }
        kind @ ErrorKind::NotFound => Error::io(name, told(kind, "the directory does not exist; create it first")),
        ErrorKind::FileTooLarge => Error::unusable(
            name,
            "the host's file system or file size limit does not allow a sparse file this large; use a smaller one",
        ),
        _ => cannot_open(name, error),
    }
}

/// The disk says that these bytes cannot be read.
fn is_medium(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::IO | Errno::NODATA | Errno::REMOTEIO | Errno::ILSEQ | Errno::BADMSG))
}

fn fault_of(error: io::Error) -> Fault {
    let error = match error.kind() {
        kind @ ErrorKind::StorageFull => {
            told(kind, "the host's disk is full under the banded disk; make room on it and try again")
        }
        kind @ ErrorKind::QuotaExceeded => {
            told(kind, "the host's quota for the banded disk is used up; make room or have it raised, and try again")
        }
        kind @ ErrorKind::FileTooLarge => told(
            kind,
            "the host's limit on the size of files does not let the banded disk be written; raise it (`ulimit -f unlimited`) \
             and try again",
        ),
        ErrorKind::UnexpectedEof => told(ErrorKind::InvalidData, "the file has shrunk; restore it from a copy"),
        _ => error,
    };
    Fault::Io(Arc::new(error))
}

impl Base for FileBase {
    fn facts(&self) -> &BaseFacts {
        &self.facts
    }

    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault> {
        let Err(error) = self.file.read_exact_at(buf, at) else { return Ok(()) };
        if !is_medium(Errno::from_io_error(&error)) {
            return Err(fault_of(error));
        }
        // Block by block, to find the first bad one; what was a passing trouble goes away by it.
        let mut good = 0;
        for block in buf.chunks_mut(self.facts.block as usize) {
            match self.file.read_exact_at(block, at + good) {
                Ok(()) => good += block.len() as u64,
                Err(error) if is_medium(Errno::from_io_error(&error)) => return Err(Fault::Media { len: good }),
                Err(error) => return Err(fault_of(error)),
            }
        }
        Ok(())
    }

    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault> {
        self.file.write_all_at(buf, at).map_err(fault_of)
    }

    fn sync(&self) -> Result<(), Fault> {
        // What is written to a disk goes past the page cache.
        self.cached.as_ref().map_or_else(|| self.file.sync_data(), Cached::flush).map_err(fault_of)
    }

    /// A file gives the room back; a disk is left as it is, since most take discards slowly or not at all.
    fn discard(&self, at: u64, len: u64) {
        if self.cached.is_none() {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Not every file system can; then the bytes stay, and nobody asks for them.
            let _ = fallocate(&self.file, how, at, len);
        }
    }

    fn live(&self, _: &[u8; 16], at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; len];
        match self.by_cache().read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(bytes),
            Err(error) if is_medium(Errno::from_io_error(&error)) => Err(Fault::Media { len: 0 }),
            Err(error) => Err(fault_of(error)),
        }
    }

    fn start_live(&self, _: &[u8; 16], _: u64, _: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        self.by_cache().write_all_at(bytes, at).map_err(fault_of)
    }
}
