//! Opening a file system, and its names.

use crate::error::{Status, free, guard, put, quiet, reference, text, watch_forks};
use imbrex_bluefs::{Attributes, BlueFs, FileKind, LockToken};
use std::ffi::{CString, c_char};

/// A file system.
pub struct imbrex_fs {
    pub(crate) fs: BlueFs,
}

/// The names in a directory.
pub struct imbrex_list {
    entries: Vec<(CString, imbrex_attributes)>,
}

/// Holds a lock.
pub struct imbrex_lock {
    _token: LockToken,
}

/// What a name stands for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_attributes {
    serial: u64,
    size: u64,
    allocated: u64,
    modified_ns: u64,
    links: u32,
    kind: u32,
}

/// Space in bytes.
#[repr(C)]
pub struct imbrex_space {
    total: u64,
    free: u64,
}

/// Settings for a database on the drive.
#[repr(C)]
pub struct imbrex_advice {
    write_buffer_size: u64,
    target_file_size: u64,
    compaction_readahead_size: u64,
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
            kind: u32::from(a.kind == FileKind::Directory),
        }
    }
}

/// Version of this API.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_abi_version() -> u32 {
    1
}

/// Version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn imbrex_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Opens what a URI names.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_open(uri: *const c_char, out: *mut *mut imbrex_fs) -> Status {
    watch_forks();
    guard(|| {
        // SAFETY: as required of the caller.
        let fs = BlueFs::open_uri(unsafe { text(uri)? })?;
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_fs { fs }))) }
    })
}

/// One more handle of the same file system; NULL for NULL.
///
/// # Safety
/// `fs` is NULL or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_clone(fs: *const imbrex_fs) -> *mut imbrex_fs {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: as required of the caller.
        let fs = unsafe { fs.as_ref() };
        fs.map_or(std::ptr::null_mut(), |fs| Box::into_raw(Box::new(imbrex_fs { fs: fs.fs.clone() })))
    })
}

/// Gives a handle back.
///
/// # Safety
/// `fs` is NULL or a live handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_close(fs: *mut imbrex_fs) {
    // SAFETY: as required of the caller.
    unsafe { free(fs) }
}

/// What a path stands for.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_stat(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut imbrex_attributes,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let attributes = fs.fs.stat(path)?.into();
        // SAFETY: as required of the caller.
        unsafe { put(out, attributes) }
    })
}

/// The names in a directory.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_list(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_list,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let entries = fs.fs.list(path)?;
        let entry = |e: imbrex_bluefs::Entry| Some((CString::new(e.name).ok()?, e.attributes.into()));
        let list = imbrex_list { entries: entries.into_iter().filter_map(entry).collect() };
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(list))) }
    })
}

/// How many names.
///
/// # Safety
/// `list` is NULL or a live list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_len(list: *const imbrex_list) -> usize {
    // SAFETY: as required of the caller.
    unsafe { list.as_ref() }.map_or(0, |l| l.entries.len())
}

/// A name of the list, valid as long as the list; NULL beyond its end.
///
/// # Safety
/// `list` is NULL or a live list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_name(list: *const imbrex_list, index: usize) -> *const c_char {
    // SAFETY: as required of the caller.
    let entry = unsafe { list.as_ref() }.and_then(|l| l.entries.get(index));
    entry.map_or(std::ptr::null(), |e| e.0.as_ptr())
}

/// What a name of the list stands for; nothing is stored beyond its end.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_attributes(list: *const imbrex_list, index: usize, out: *mut imbrex_attributes) {
    // SAFETY: as required of the caller.
    let entry = unsafe { list.as_ref() }.and_then(|l| l.entries.get(index));
    if let (Some(entry), false) = (entry, out.is_null()) {
        // SAFETY: not NULL, and valid as required of the caller.
        unsafe { out.write(entry.1) }
    }
}

/// Gives a list back.
///
/// # Safety
/// `list` is NULL or a live list that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_list_free(list: *mut imbrex_list) {
    // SAFETY: as required of the caller.
    unsafe { free(list) }
}

macro_rules! path_calls {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// The pointers are NULL or valid, the string ends with a zero byte.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fs: *const imbrex_fs, path: *const c_char) -> Status {
            guard(|| {
                // SAFETY: as required of the caller.
                let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
                fs.fs.$method(path)
            })
        })*
    };
}

path_calls! {
    /// Makes a directory.
    imbrex_fs_mkdir = mkdir;
    /// Removes an empty directory.
    imbrex_fs_rmdir = rmdir;
    /// Removes a name.
    imbrex_fs_unlink = unlink;
    /// Makes every change of names so far durable.
    imbrex_fs_sync_directory = sync_dir;
}

/// Renames a file or directory.
///
/// # Safety
/// The pointers are NULL or valid, the strings end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_rename(fs: *const imbrex_fs, from: *const c_char, to: *const c_char) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, from, to) = unsafe { (reference(fs)?, text(from)?, text(to)?) };
        fs.fs.rename(from, to)
    })
}

/// Gives a file one more name.
///
/// # Safety
/// The pointers are NULL or valid, the strings end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_link(fs: *const imbrex_fs, from: *const c_char, to: *const c_char) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, from, to) = unsafe { (reference(fs)?, text(from)?, text(to)?) };
        fs.fs.link(from, to)
    })
}

/// Cuts a file.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_truncate(fs: *const imbrex_fs, path: *const c_char, size: u64) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        fs.fs.truncate(path, size)
    })
}

/// How much room there is.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_space(fs: *const imbrex_fs, out: *mut imbrex_space) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let space = unsafe { reference(fs)? }.fs.space();
        // SAFETY: as required of the caller.
        unsafe { put(out, imbrex_space { total: space.total, free: space.free }) }
    })
}

/// Settings that suit the drive.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_advise(fs: *const imbrex_fs, out: *mut imbrex_advice) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let advice = unsafe { reference(fs)? }.fs.advise();
        let advice = imbrex_advice {
            write_buffer_size: advice.write_buffer_size,
            target_file_size: advice.target_file_size,
            compaction_readahead_size: advice.compaction_readahead_size,
            background_jobs: advice.background_jobs,
        };
        // SAFETY: as required of the caller.
        unsafe { put(out, advice) }
    })
}

/// Takes the lock of this name.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_fs_lock(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_lock,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let token = fs.fs.lock(path)?;
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_lock { _token: token }))) }
    })
}

/// Gives a lock back.
///
/// # Safety
/// `lock` is NULL or a live lock that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_lock_free(lock: *mut imbrex_lock) {
    // SAFETY: as required of the caller.
    unsafe { free(lock) }
}
