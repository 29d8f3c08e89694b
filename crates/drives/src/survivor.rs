//! The survivor of production: a preallocated file in shared memory.
//!
//! One file per volume and medium, `imbrex-<volume>-<medium>` in `/dev/shm` (or `IMBREX_SHM_DIR`): a header page with the
//! [`SurvivorKey`], then the region. DESIGN §5 (Survivor) asks for these invariants:
//!
//! - **Never SIGBUS**: every byte is allocated (`fallocate`) before the file is mapped, and the mapping never grows. Where
//!   shared memory is full, `create` says so at once.
//! - **Never a half-made file**: it is made under a name of its own (`O_EXCL`), filled, and only then renamed over the
//!   volume's name. A process that dies in between leaves the old file in place.
//! - **Never a planted file**: what is believed must be a regular file of one name, owned by our user, closed to everybody
//!   else, and exactly as long as its header says; symbolic links are not followed.
//! - **Never somebody else's bytes lost**: a file of another user that is, or may be, this drive's memory is neither read nor replaced.
//!   The mount is refused, and the error names the user.
//! - **Never a stale file**: magic, version, checksum and the whole key must match, else it counts as nothing.
//!
//! The medium is part of the name, so that a copied image that is mounted beside its original does not replace the
//! original's region. Only one process has a drive at a time (its own lock sees to that), so nobody else uses the names.

mod not_kept;

pub use not_kept::NotKept;

use imbrex_device::{Error, Fill, Identity, Region, Result, Survivor, SurvivorKey};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where survivors live unless [`SHM_DIR_VARIABLE`] says otherwise.
pub const DEFAULT_SHM_DIR: &str = "/dev/shm";
/// Environment variable that names another directory (absolute; it should be on a tmpfs).
pub const SHM_DIR_VARIABLE: &str = "IMBREX_SHM_DIR";
/// Bytes before the region: the header and zeros up to a page, so that the region is aligned to
/// [`imbrex_device::MEM_ALIGN`].
pub const HEADER_BYTES: u64 = 4096;
/// Largest region that is made or believed, in bytes.
pub const MAX_CAPACITY: u64 = 1 << 40;

const MAGIC: [u8; 8] = *b"IMBXSURV";
const VERSION: u32 = 1;
const HEADER_LEN: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER_LEN == 88 && HEADER_LEN as u64 <= HEADER_BYTES);
const _: () = assert!((HEADER_BYTES as usize).is_multiple_of(imbrex_device::MEM_ALIGN));

/// The header as it lies in the file; the checksum covers all of it with `crc` as zero.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    length: U32,
    volume: [u8; 16],
    medium: [u8; 16],
    power_epoch: [u8; 16],
    mount: U64,
    capacity: U64,
    reserved: U32,
    crc: U32,
}

/// What a survivor's file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose memory it is.
    pub key: SurvivorKey,
    /// Bytes of the region behind the header page.
    pub capacity: u64,
}

impl Header {
    /// The header as bytes, checksum included.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: (HEADER_LEN as u32).into(),
            volume: self.key.volume,
            medium: self.key.medium,
            power_epoch: self.key.power_epoch,
            mount: self.key.mount.into(),
            capacity: self.capacity.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        raw.as_bytes().to_vec()
    }

    /// Reads a header from the start of a file. `None` for anything but an intact header of this version. Never panics.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let (mut raw, _) = RawHeader::read_from_prefix(bytes).ok()?;
        let crc = raw.crc.get();
        raw.crc = 0.into();
        let intact = raw.magic == MAGIC
            && raw.version.get() == VERSION
            && raw.length.get() as usize == HEADER_LEN
            && crc32c::crc32c(raw.as_bytes()) == crc;
        let capacity = raw.capacity.get();
        (intact && capacity > 0 && capacity <= MAX_CAPACITY).then_some(Header {
            key: SurvivorKey {
                volume: raw.volume,
                medium: raw.medium,
                power_epoch: raw.power_epoch,
                mount: raw.mount.get(),
            },
            capacity,
        })
    }
}

/// Keeps the unwritten bytes of one drive's volume in shared memory. See the module's page.
#[derive(Debug)]
pub struct ShmSurvivor {
    drive: Arc<str>,
    medium: [u8; 16],
    dir: PathBuf,
}

impl ShmSurvivor {
    /// The survivor of a drive, in `IMBREX_SHM_DIR` where that is set, else in `/dev/shm`. Touches nothing yet.
    pub fn new(identity: &Identity) -> Self {
        let dir = std::env::var_os(SHM_DIR_VARIABLE).filter(|dir| !dir.is_empty());
        Self::in_dir(identity, dir.map_or_else(|| PathBuf::from(DEFAULT_SHM_DIR), PathBuf::from))
    }

    /// The same in a directory of the caller's choice.
    pub fn in_dir(identity: &Identity, dir: impl Into<PathBuf>) -> Self {
        ShmSurvivor { drive: identity.name.clone(), medium: identity.medium, dir: dir.into() }
    }

    /// Where the file of a volume stands.
    pub fn path(&self, volume: &[u8; 16]) -> PathBuf {
        self.dir.join(self.file_name(volume))
    }

    fn file_name(&self, volume: &[u8; 16]) -> String {
        format!("imbrex-{}-{}", hex(volume), hex(&self.medium))
    }

    /// Whether there is a directory to look into.
    fn has_dir(&self) -> bool {
        self.dir.is_dir()
    }

    fn open_dir(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.dir, flags, Mode::empty()).map_err(|e| self.cannot("cannot use", &self.dir, e))
    }

    /// Removes files that a process killed in the middle of `create` left behind. They belong to this drive, which we
    /// hold, so nobody is still working on them. Failing to is no reason not to mount.
    fn sweep(&self, dir: &OwnedFd, prefix: &str) {
        let Ok(entries) = rustix::fs::Dir::read_from(dir) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_bytes().starts_with(prefix.as_bytes()) {
                let _ = rustix::fs::unlinkat(dir, entry.file_name(), AtFlags::empty());
            }
        }
    }

    /// Makes, allocates, maps and labels a file under a temporary name.
    fn make(&self, dir: &OwnedFd, name: &str, header: &Header) -> Result<Mapping> {
        let path = self.dir.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.cannot("cannot create", &path, e))?;
        let made = self.fill(&file, &path, header);
        if made.is_err() {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
        made
    }

    fn fill(&self, file: &OwnedFd, path: &Path, header: &Header) -> Result<Mapping> {
        let len = HEADER_BYTES + header.capacity;
        // Asked first, because filling /dev/shm to the brim before giving up would hurt other programs.
        if let Ok(fs) = rustix::fs::fstatvfs(file)
            && let Err(free) = has_room(fs.f_blocks, fs.f_bavail, fs.f_frsize, len)
        {
            return Err(self.no_room(len, Some(free)));
        }
        loop {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOMEM) => return Err(self.no_room(len, None)),
                Err(e) => return Err(self.cannot("cannot allocate", path, e)),
            }
        }
        let mut mapping = Mapping::new(file, len).map_err(|e| self.cannot("cannot map", path, e))?;
        mapping.write_header(&header.encode());
        Ok(mapping)
    }

    /// The bytes of an intact file with this key, `None` for any other file that can be read or is not ours to trust.
    fn read(&self, dir: &OwnedFd, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        let path = self.path(&key.volume);
        // NONBLOCK: a planted fifo must not make us wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::openat(dir, self.file_name(&key.volume), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            // Another user's, who alone can tell whether it is needed.
            Err(Errno::ACCESS | Errno::PERM) => return Err(self.is_anothers(dir, &path, &key.volume)),
            Err(e) => return Ok(self.ignore(&path, &format!("it cannot be opened ({e})"))),
        };
        let facts = rustix::fs::fstat(&file).map_err(|e| self.cannot("cannot inspect", &path, e))?;
        let user = rustix::process::geteuid().as_raw();
        if facts.st_uid != user && header_of(&file).is_some_and(|header| header.key == *key) {
            return Err(self.anothers(&path, Some(facts.st_uid)));
        }
        if let Err(why) = trust(&facts, user) {
            return Ok(self.ignore(&path, why));
        }
        let len = u64::try_from(facts.st_size).unwrap_or(0);
        let Some(header) = header_of(&file) else { return Ok(self.ignore(&path, "its header is damaged")) };
        if header.capacity + HEADER_BYTES != len {
            return Ok(self.ignore(&path, "its length is not what its header says"));
        }
        if header.key != *key {
            return Ok(self.ignore(&path, "it belongs to another mount, medium or power epoch"));
        }
        let capacity = usize::try_from(header.capacity).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(capacity).is_err() {
            return Err(self.cannot("cannot load", &path, Errno::NOMEM));
        }
        bytes.resize(capacity, 0);
        // Read, not mapped: whatever happens to the file meanwhile, this is an error and not a signal.
        match read_exact_at(&file, &mut bytes, HEADER_BYTES) {
            Ok(()) => Ok(Some(bytes)),
            Err(e) => Ok(self.ignore(&path, &format!("it cannot be read ({e})"))),
        }
    }

    fn ignore(&self, path: &Path, why: &str) -> Option<Vec<u8>> {
        tracing::warn!(drive = %self.drive, file = %path.display(), "survivor file ignored: {why}");
        None
    }

    fn cannot(&self, what: &str, path: &Path, e: Errno) -> Error {
        let shown = path.display();
        let sentence = format!(
            "{what} the survivor's shared memory at {shown} ({e}); set {SHM_DIR_VARIABLE} to a directory on a tmpfs \
             that you may write to, or mount with survivor=off (a killed process then loses what it had not synced)"
        );
        Error::unusable(&self.drive, sentence)
    }

    /// The error about the volume's file, which is another user's.
    fn is_anothers(&self, dir: &OwnedFd, path: &Path, volume: &[u8; 16]) -> Error {
        let facts = rustix::fs::statat(dir, self.file_name(volume), AtFlags::SYMLINK_NOFOLLOW);
        self.anothers(path, facts.ok().map(|facts| facts.st_uid))
    }

    fn anothers(&self, path: &Path, user: Option<u32>) -> Error {
        let shown = path.display();
        let (who, how) = match user {
            Some(user) => (format!("user {user}"), format!("as user {user} (`sudo -u '#{user}' …`)")),
            None => ("another user".into(), "as that user".into()),
        };
        let sentence = format!(
            "{who} used it last and ended without unmounting it; bytes that are not on the drive yet may be in shared memory at {shown}; \
             mount it once {how}, which writes them to the drive; to see the drive without them, open it with \
             read-only=on&survivor=off; only if nobody needs them, remove that file"
        );
        Error::unusable(&self.drive, sentence)
    }

    fn no_room(&self, need: u64, free: Option<u64>) -> Error {
        let shown = self.dir.display();
        let has = free.map_or_else(|| "is full".to_owned(), |free| format!("has {} KiB free", free >> 10));
        Error::unusable(
            &self.drive,
            format!(
                "the survivor needs {} KiB of shared memory but {shown} {has}; free some, enlarge it (mount -o \
                 remount,size=…), ask for a smaller survivor, set {SHM_DIR_VARIABLE} to another tmpfs, or mount with \
                 survivor=off (a killed process then loses what it had not synced)",
                need.div_ceil(1024)
            ),
        )
    }
}

impl Survivor for ShmSurvivor {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        let dir = self.open_dir()?;
        self.read(&dir, key)
    }

    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        let header = Header { key: *key, capacity: capacity as u64 };
        if header.capacity == 0 || header.capacity > MAX_CAPACITY {
            return Err(Error::invalid(&self.drive, format!("a survivor of {capacity} bytes")));
        }
        if key.medium != self.medium {
            return Err(Error::invalid(&self.drive, "a survivor's key of another medium"));
        }
        let dir = self.open_dir()?;
        let name = self.file_name(&key.volume);
        let prefix = format!(".{name}.");
        self.sweep(&dir, &prefix);
        let temporary = format!("{prefix}{}", uuid::Uuid::new_v4().simple());
        let mapping: Arc<dyn Region> = Arc::new(self.make(&dir, &temporary, &header)?);
        if let Err(error) = fill(&mapping) {
            let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
            return Err(error);
        }
        if let Err(e) = rustix::fs::renameat(&dir, &temporary, &dir, &name) {
            let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
            let path = self.dir.join(&name);
            return Err(match e {
                Errno::ACCESS | Errno::PERM => self.is_anothers(&dir, &path, &key.volume),
                e => self.cannot("cannot replace", &path, e),
            });
        }
        Ok(mapping)
    }

    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        let path = self.path(volume);
        match rustix::fs::unlink(&path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.cannot("cannot remove", &path, e)),
        }
    }
}

/// A shared mapping of a whole survivor file; the region is what follows the header page. Dropping it keeps the file.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that stays where it is until the value is dropped.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` only tells where the memory is; its users order their accesses (contract of `Region`).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes (more than the header page), all of which the file must have allocated.
    fn new(file: &OwnedFd, len: u64) -> std::result::Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, len })
    }

    fn write_header(&mut self, header: &[u8]) {
        assert!(header.len() as u64 <= HEADER_BYTES && header.len() <= self.len);
        // SAFETY: the mapping holds at least `header.len()` bytes, and `&mut self` says that nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), self.start.as_ptr(), header.len()) }
    }
}

impl Region for Mapping {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: the mapping is longer than the header page.
        unsafe { self.start.add(HEADER_BYTES as usize) }
    }
    fn len(&self) -> usize {
        self.len - HEADER_BYTES as usize
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, and nobody may use it after the last owner is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// What a file says about itself, if that is whole.
fn header_of(file: &OwnedFd) -> Option<Header> {
    let mut head = [0u8; HEADER_LEN];
    read_exact_at(file, &mut head, 0).ok()?;
    Header::decode(&head)
}

/// Whether a file may be believed; else why not.
fn trust(facts: &rustix::fs::Stat, user: u32) -> std::result::Result<(), &'static str> {
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err("it is not a regular file");
    }
    if facts.st_uid != user {
        return Err("another user owns it");
    }
    if facts.st_mode & 0o077 != 0 {
        return Err("other users may open it");
    }
    if facts.st_nlink != 1 {
        return Err("it has another name");
    }
    match u64::try_from(facts.st_size) {
        Ok(len) if len > HEADER_BYTES && len <= HEADER_BYTES + MAX_CAPACITY => Ok(()),
        _ => Err("its length is impossible"),
    }
}

/// Whether a file system of `blocks` blocks (0: without limit), `free` of them free, takes `need` bytes; else the bytes
/// free.
fn has_room(blocks: u64, free: u64, block: u64, need: u64) -> std::result::Result<(), u64> {
    let bytes = free.saturating_mul(block);
    if blocks == 0 || need <= bytes { Ok(()) } else { Err(bytes) }
}

fn read_exact_at(file: &OwnedFd, buf: &mut [u8], at: u64) -> std::result::Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(file, &mut buf[done..], at + done as u64) {
            Ok(0) => return Err(Errno::NODATA),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SurvivorKey = SurvivorKey { volume: [1; 16], medium: [2; 16], power_epoch: [3; 16], mount: 4 };

    #[test]
    fn a_header_is_believed_only_whole() {
        let header = Header { key: KEY, capacity: 1 << 20 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for short in 0..bytes.len() {
            assert_eq!(Header::decode(&bytes[..short]), None);
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn an_intact_header_with_an_impossible_capacity_is_refused() {
        for capacity in [0, MAX_CAPACITY + 1, u64::MAX] {
            assert_eq!(Header::decode(&Header { key: KEY, capacity }.encode()), None);
        }
    }

    #[test]
    fn room_is_counted_in_bytes_and_a_tmpfs_without_limit_has_room() {
        assert_eq!(has_room(100, 16, 4096, 65536), Ok(()));
        assert_eq!(has_room(100, 16, 4096, 65537), Err(65536));
        assert_eq!(has_room(0, 0, 4096, 65537), Ok(()));
    }
}
