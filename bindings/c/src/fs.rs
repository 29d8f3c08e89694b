//! Opening a file system, and its names.

use crate::error::{free, free_elsewhere, guard, imbrex_error, put, quiet, reference, text, wanted, watch_forks};
use crate::log::listen;
use imbrex_bluefs::{Attributes, BlueFs, FileKind, LockToken};
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// Version of this API; it changes when programs must be compiled anew. See imbrex_abi_version().
pub const IMBREX_ABI_VERSION: u32 = 1;

/// A file system on a drive. Any number of threads may use it at once.
pub struct imbrex_fs {
    pub(crate) fs: BlueFs,
}

/// For programs in Rust that bring a drive of their own.
impl From<BlueFs> for imbrex_fs {
    fn from(fs: BlueFs) -> Self {
        imbrex_fs { fs }
    }
}

/// The names in a directory, as they were when it was made. It does not change; any thread may look at it.
pub struct imbrex_list {
    entries: Vec<(CString, imbrex_attributes)>,
}

/// Holds a lock until it is given back.
pub struct imbrex_lock {
    _token: LockToken,
}

/// Whether a name stands for a file or a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum imbrex_kind {
    /// A file.
    IMBREX_FILE = 0,
    /// A directory.
    IMBREX_DIRECTORY = 1,
}

/// What a name stands for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_attributes {
    /// The number of the file, never given to a second one on the same drive.
    serial: u64,
    /// Bytes, those not yet durable included.
    size: u64,
    /// Bytes that it takes of the drive.
    allocated: u64,
    /// When it was changed, in nanoseconds since 1970-01-01 UTC.
    modified_ns: u64,
    /// How many names it has.
    links: u32,
    /// What it is.
    kind: imbrex_kind,
}

/// Space, in bytes.
#[repr(C)]
pub struct imbrex_space {
    /// What files can ever take.
    total: u64,
    /// What new files can take now.
    free: u64,
}

/// Settings for a log-structured database on the drive.
#[repr(C)]
pub struct imbrex_advice {
    /// Bytes of a memtable.
    write_buffer_size: u64,
    /// Bytes of a table: a little less than a zone holds.
    target_file_size: u64,
    /// Bytes that compactions read ahead.
    compaction_readahead_size: u64,
    /// Threads for flushes and compactions.
    background_jobs: u32,
}

impl From<Attributes> for imbrex_attributes {
    fn from(a: Attributes) -> Self {
        imbrex_attributes {
            serial: a.serial,
            size: a.size,
            allocated: a.allocated,
            modified_ns: a.modified,
            links: a.links,
            kind: match a.kind {
                FileKind::Directory => imbrex_kind::IMBREX_DIRECTORY,
                _ => imbrex_kind::IMBREX_FILE,
            },
        }
    }
}

/// The IMBREX_ABI_VERSION of the library; a program must not go on where it is another than that of its header.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_abi_version() -> u32 {
    IMBREX_ABI_VERSION
}

/// Version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What opens a URI: [`BlueFs::open_uri`]. A library in Rust that has all of this API and opens otherwise sets it when it is loaded.
#[doc(hidden)]
pub static OPENER: OnceLock<fn(&str) -> imbrex_bluefs::Result<BlueFs>> = OnceLock::new();

/// Opens the drive of a URI, as "imbrex:///dev/sdb?cache=2G", "imbrex:///data/drive.img" or "imbrex://mem:?profile=tiny". A
/// process has one file system of a drive: opening it again gives another handle of the same. The drive is released when the
/// last handle is closed and everything that was opened on it is given back.
///
/// Warnings go to standard error; the environment variable IMBREX_LOG asks for more ("debug") or none ("off"). IMBREX_METRICS
/// asks for metrics in Prometheus's format: "127.0.0.1:9899" serves them, "/path/imbrex.prom" keeps a file of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_open(uri: *const c_char, out: *mut *mut imbrex_fs) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        watch_forks();
        listen();
        // SAFETY: the crate's contract.
        let uri = unsafe { text(uri)? };
        let fs = OPENER.get_or_init(|| BlueFs::open_uri)(uri)?;
        crate::metrics::opened(&fs);
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_fs { fs }))) }
    })
}

/// One more handle of the same file system, to be closed like the first; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_clone(fs: *const imbrex_fs) -> *mut imbrex_fs {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: the crate's contract.
        let fs = unsafe { fs.as_ref() };
        fs.map_or(std::ptr::null_mut(), |fs| Box::into_raw(Box::new(imbrex_fs { fs: fs.fs.clone() })))
    })
}

/// Gives a handle of a file system back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_close(fs: *mut imbrex_fs) {
    // SAFETY: the crate's contract.
    unsafe { free_elsewhere(fs) }
}

/// What a path stands for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_stat(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut imbrex_attributes,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let attributes = fs.fs.stat(path)?.into();
        // SAFETY: the crate's contract.
        unsafe { put(out, attributes) }
    })
}

/// The names in a directory, sorted, with what they stand for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_list(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let entries = fs.fs.list(path)?;
        let entry = |e: imbrex_bluefs::Entry| Some((CString::new(e.name).ok()?, e.attributes.into()));
        let list = imbrex_list { entries: entries.into_iter().filter_map(entry).collect() };
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(list))) }
    })
}

/// How many names; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_len(list: *const imbrex_list) -> usize {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.map_or(0, |l| l.entries.len())
}

/// A name of the list, valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_name(list: *const imbrex_list, index: usize) -> *const c_char {
    // SAFETY: the crate's contract.
    let entry = unsafe { list.as_ref() }.and_then(|l| l.entries.get(index));
    entry.map_or(std::ptr::null(), |e| e.0.as_ptr())
}

/// What a name of the list stands for; nothing is stored beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_attributes(list: *const imbrex_list, index: usize, out: *mut imbrex_attributes) {
    // SAFETY: the crate's contract.
    let entry = unsafe { list.as_ref() }.and_then(|l| l.entries.get(index));
    if let (Some(entry), false) = (entry, out.is_null()) {
        // SAFETY: not NULL, and valid as required of the caller.
        unsafe { out.write(entry.1) }
    }
}

/// Gives a list back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_free(list: *mut imbrex_list) {
    // SAFETY: the crate's contract.
    unsafe { free(list) }
}

/// Makes a directory. Its parent must exist; it itself must not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_mkdir(fs: *const imbrex_fs, path: *const c_char) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        fs.fs.mkdir(path)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_rmdir(fs: *const imbrex_fs, path: *const c_char) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        fs.fs.rmdir(path)
    })
}

/// Removes a name of a file. The file lives on while it is open or has other names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_unlink(fs: *const imbrex_fs, path: *const c_char) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        fs.fs.unlink(path)
    })
}

/// Makes every change of names in this directory so far durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_sync_directory(fs: *const imbrex_fs, path: *const c_char) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        fs.fs.sync_dir(path)
    })
}

/// Renames a file or directory in one step; what has the new name is replaced, if it is a file or an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_rename(
    fs: *const imbrex_fs,
    from: *const c_char,
    to: *const c_char,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, from, to) = unsafe { (reference(fs)?, text(from)?, text(to)?) };
        fs.fs.rename(from, to)
    })
}

/// Gives a file one more name, which must not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_link(
    fs: *const imbrex_fs,
    from: *const c_char,
    to: *const c_char,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, from, to) = unsafe { (reference(fs)?, text(from)?, text(to)?) };
        fs.fs.link(from, to)
    })
}

/// Cuts a file to `size` bytes; it cannot be made longer this way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_truncate(fs: *const imbrex_fs, path: *const c_char, size: u64) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        fs.fs.truncate(path, size)
    })
}

/// How much room there is on the drive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_space(fs: *const imbrex_fs, out: *mut imbrex_space) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let space = unsafe { reference(fs)? }.fs.space();
        // SAFETY: the crate's contract.
        unsafe { put(out, imbrex_space { total: space.total, free: space.free }) }
    })
}

/// Settings that suit the drive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_advise(fs: *const imbrex_fs, out: *mut imbrex_advice) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let advice = unsafe { reference(fs)? }.fs.advise();
        let advice = imbrex_advice {
            write_buffer_size: advice.write_buffer_size,
            target_file_size: advice.target_file_size,
            compaction_readahead_size: advice.compaction_readahead_size,
            background_jobs: advice.background_jobs,
        };
        // SAFETY: the crate's contract.
        unsafe { put(out, advice) }
    })
}

/// Takes the lock of this name, or says IMBREX_LOCKED at once. The file is made where there is none. Locks are between the users
/// of one process: other processes cannot open the drive at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_lock(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_lock,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let token = fs.fs.lock(path)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_lock { _token: token }))) }
    })
}

/// Gives a lock back, releasing it. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_lock_free(lock: *mut imbrex_lock) {
    // SAFETY: the crate's contract.
    unsafe { free(lock) }
}
