//! A drive as the one file of a directory, by FUSE.
//!
//! Nothing is kept here: a read or write of the file is a command of the drive, in the thread that took it from the kernel,
//! and a sync of the file is a flush of the drive. The kernel sends as many at once as the drive's queue is deep, and there are
//! threads for all of them, so that a drive that keeps time sees them all and chooses among them.
//!
//! The file is used as a block device would be with `O_DIRECT`: whole blocks, or `EINVAL`. Writes that overlap go one after
//! the other, since a drive takes no second write where one is in flight; everything else goes side by side.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use imbrex_bench::baseline::attached::FILE as NAME;
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Tag, ZonedDevice};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel may believe what it was told: nothing changes.
const TTL: Duration = Duration::from_secs(3600);
const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
/// Most bytes of one request: the kernel's own limit by default, and what a host adapter passes in one command.
const MOST: u32 = 1 << 20;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Byte ranges that are being written.
#[derive(Default)]
struct Ranges {
    taken: Mutex<Vec<(u64, u64)>>,
    left: Condvar,
}

struct Taken<'a>(&'a Ranges, (u64, u64));

impl Ranges {
    /// Waits until nothing in `from..to` is being written, and takes it.
    fn take(&self, from: u64, to: u64) -> Taken<'_> {
        let mut taken = lock(&self.taken);
        while taken.iter().any(|other| other.0 < to && from < other.1) {
            taken = self.left.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.push((from, to));
        Taken(self, (from, to))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taken = lock(&self.0.taken);
        if let Some(at) = taken.iter().position(|range| *range == self.1) {
            taken.swap_remove(at);
        }
        drop(taken);
        self.0.left.notify_all();
    }
}

/// A drive that looks like a directory with one file.
pub(super) struct Served {
    drive: Arc<dyn ZonedDevice>,
    /// Commands at once.
    depth: u16,
    /// Largest command, in bytes.
    most: u32,
    writing: Ranges,
    /// Aligned memory of requests that are over, for the next ones.
    spare: Mutex<Vec<AlignedBuf>>,
    since: SystemTime,
    uid: u32,
    gid: u32,
}

impl Served {
    pub(super) fn new(drive: Arc<dyn ZonedDevice>, depth: u16) -> Served {
        let most = drive.geometry().max_io.min(MOST);
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let since = SystemTime::now();
        Served { drive, depth, most, writing: Ranges::default(), spare: Mutex::default(), since, uid, gid }
    }

    fn buffer(&self) -> AlignedBuf {
        lock(&self.spare).pop().unwrap_or_else(|| AlignedBuf::zeroed(self.most as usize))
    }

    fn give_back(&self, buffer: AlignedBuf) {
        lock(&self.spare).push(buffer);
    }

    /// Whether `len` bytes at `at` are whole blocks.
    fn whole(&self, at: u64, len: u64) -> bool {
        let block = u64::from(self.drive.geometry().block);
        at.is_multiple_of(block) && len.is_multiple_of(block)
    }

    /// The pieces of `len` bytes at `at` that one command each may touch: up to the largest command, and of writes up to
    /// the end of a zone, which is how the image is cut and nothing that the host of such a drive knows.
    fn pieces(&self, at: u64, len: usize, in_zones: bool) -> impl Iterator<Item = (u64, usize, usize)> {
        let (most, zone) = (self.most as usize, self.drive.geometry().zone_size);
        let mut done = 0;
        std::iter::from_fn(move || {
            let from = at + done as u64;
            let mut n = (len - done).min(most);
            if in_zones {
                n = n.min(usize::try_from(zone - from % zone).unwrap_or(n));
            }
            let piece = (from, done, done + n);
            done += n;
            (n > 0).then_some(piece)
        })
    }

    fn read_into(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let cross = self.drive.geometry().reads_cross_zones;
        self.pieces(at, out.len(), !cross).try_for_each(|(at, from, to)| match out.get_mut(from..to) {
            Some(part) => self.drive.read_at(part, at, Tag::new(Cause::UserRead)),
            None => Ok(()),
        })
    }

    fn write_from(&self, at: u64, data: &[u8]) -> Result<()> {
        let _taken = self.writing.take(at, at + data.len() as u64);
        let mut buffer = self.buffer();
        let done = self.pieces(at, data.len(), true).try_for_each(|(at, from, to)| {
            // The kernel's request is not aligned in memory.
            match (data.get(from..to), buffer.get_mut(..to - from)) {
                (Some(part), Some(aligned)) => {
                    aligned.copy_from_slice(part);
                    self.drive.write_at(aligned, at, Tag::new(Cause::UserWrite))
                }
                _ => Ok(()),
            }
        });
        self.give_back(buffer);
        done
    }

    fn size(&self) -> u64 {
        self.drive.geometry().size()
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match ino {
            ROOT => (FileType::Directory, 0o500, 2, 0),
            FILE => (FileType::RegularFile, 0o600, 1, self.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: self.drive.geometry().block,
            flags: 0,
        })
    }
}

/// Whether each write is to be durable: of such a file, past the page cache, the kernel asks for no syncs itself.
fn durable(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0 as u32).intersects(OFlags::DSYNC)
}

/// The system's number for a failed command.
fn errno(error: &Error) -> Errno {
    tracing::warn!(%error, "a command of the served drive failed");
    match &error.fault {
        Fault::InvalidInput(_) => Errno::EINVAL,
        Fault::NoSpace => Errno::ENOSPC,
        Fault::ReadOnly => Errno::EROFS,
        Fault::Io(error) if error.kind() == ErrorKind::StorageFull => Errno::ENOSPC,
        _ => Errno::EIO,
    }
}

impl Filesystem for Served {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it the kernel sends one command after the other.
        if config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).is_err() {
            let sentence = "the kernel's FUSE sends one command at a time (no FUSE_ASYNC_DIO); use Linux 3.10 or newer";
            return Err(std::io::Error::new(ErrorKind::Unsupported, sentence));
        }
        // These fail for nothing but 0 and what is more than 16 MiB; the nearest that goes is as good.
        let _ = config.set_max_background(self.depth);
        let _ = config.set_congestion_threshold(self.depth);
        let _ = config.set_max_write(self.most);
        let _ = config.set_max_readahead(self.most);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if parent == ROOT && name == NAME => reply.entry(&TTL, &attributes, Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A drive has one size. Opened to be cut to nothing it stays as it is, like a block device.
        if size.is_some_and(|size| size != 0 && size != self.size()) {
            return reply.error(Errno::EPERM);
        }
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        // Past the page cache, which belongs to whoever uses the drive; and writers do not wait for each other.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.size().saturating_sub(offset).min(u64::from(size));
        if len == 0 {
            return reply.data(&[]);
        }
        if !self.whole(offset, len) || len > u64::from(self.most) {
            return reply.error(Errno::EINVAL);
        }
        let mut buffer = self.buffer();
        match buffer.get_mut(..len as usize).map(|out| (self.read_into(offset, out), out)) {
            Some((Ok(()), out)) => reply.data(out),
            Some((Err(error), _)) => reply.error(errno(&error)),
            None => reply.error(Errno::EINVAL),
        }
        self.give_back(buffer);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let left = self.size().saturating_sub(offset);
        let len = data.len() as u64;
        if len > left {
            return reply.error(Errno::ENOSPC);
        }
        if !self.whole(offset, len) {
            return reply.error(Errno::EINVAL);
        }
        let written = self.write_from(offset, data).and_then(|()| match durable(flags) {
            true => self.drive.flush(Tag::new(Cause::UserWrite)),
            false => Ok(()),
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Somebody closes the file, which asks nothing of a drive.
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.drive.flush(Tag::new(Cause::UserWrite)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        // Disks of these kinds know no discard.
        reply.error(Errno::EOPNOTSUPP);
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let all =
            [(".", ROOT, FileType::Directory), ("..", ROOT, FileType::Directory), (NAME, FILE, FileType::RegularFile)];
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (i, (name, ino, kind)) in all.into_iter().enumerate().skip(from) {
            if reply.add(ino, i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_emulator::{Config, Emulator};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn served() -> (Emulator, Served) {
        let config = Config { conventional: 64, ..Config::tiny() };
        let drive = Emulator::memory(&config).unwrap();
        (drive.clone(), Served::new(Arc::new(drive), 32))
    }

    #[test]
    fn writes_end_at_zones_and_at_the_largest_command_and_reads_cross() {
        let (drive, served) = served();
        let zone = drive.geometry().zone_size;
        let most = u64::from(served.most);
        let data: Vec<u8> = (0..most as usize).map(|i| (i / 4096) as u8 + 1).collect();
        served.write_from(zone - 8192, &data).unwrap();
        let mut back = AlignedBuf::zeroed(data.len());
        served.read_into(zone - 8192, &mut back).unwrap();
        assert!(*back == *data);
        let counts = drive.stats();
        assert_eq!(counts.total.rule_violations, 0);
        assert_eq!((counts.total.writes, counts.total.bytes_written), (2, most));
        assert_eq!(counts.by_cause["user_write"].writes, 2);
        assert_eq!(counts.by_cause["user_read"].reads, 1);
    }

    #[test]
    fn writes_that_overlap_wait_for_each_other_and_others_do_not() {
        let ranges = Ranges::default();
        let passed = AtomicBool::new(false);
        let first = ranges.take(4096, 8192);
        drop(ranges.take(0, 4096));
        drop(ranges.take(8192, 9000));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = ranges.take(0, 4097);
                passed.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(30));
            assert!(!passed.load(Ordering::SeqCst));
            drop(first);
        });
        assert!(passed.load(Ordering::SeqCst) && lock(&ranges.taken).is_empty());
    }

    #[test]
    fn overlapping_writers_break_no_rule_of_the_drive() {
        let (drive, served) = served();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let served = &served;
                scope.spawn(move || {
                    for round in 0..50 {
                        served.write_from((thread + round) % 5 * 4096, &[thread as u8; 16384]).unwrap();
                    }
                });
            }
        });
        assert_eq!((drive.stats().total.rule_violations, drive.stats().total.writes), (0, 400));
    }
}
