//! What the library with RocksDB gives, and a database of it. The structs are those of `bindings/rocksdb-kv/src/guest.h`; who changes one changes both, and the version.

use super::host::Host;
use crate::error::{imbrex_error, result_of};
use crate::fs::{imbrex_fs, imbrex_fs_close};
use imbrex_bluefs::BlueFs;
use imbrex_device::Result;
use imbrex_store::rocksdb::{Database, DatabaseOptions};
use imbrex_store::{Change, Family, KeyValue, Pair};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::slice::from_raw_parts;

/// Of both sides.
pub(super) const VERSION: u32 = 2;

/// Who asks for so many pairs at once passes over most of a family, which others do not want in the cache.
const FAR: usize = 4096;

/// A database of the library.
enum Raw {}

#[repr(C)]
struct Options {
    memtable: u64,
    cache: u64,
    table: u64,
    families: *const *const c_char,
    family_count: usize,
    look: bool,
    create: bool,
}

#[repr(C)]
struct Step {
    kind: u32,
    family: u32,
    first: *const c_void,
    first_length: usize,
    second: *const c_void,
    second_length: usize,
}

#[repr(C)]
struct Range {
    family: u32,
    far: bool,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
    most: usize,
}

type Taker = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *const c_void, usize);

/// The functions of the library. They stay as long as the process, since it is never unloaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    open: unsafe extern "C" fn(*const imbrex_fs, *const Options, *mut *mut Raw) -> *mut imbrex_error,
    close: unsafe extern "C" fn(*mut Raw),
    get: unsafe extern "C" fn(*const Raw, u32, *const c_void, usize, *mut c_void, Taker) -> *mut imbrex_error,
    get_would_read: unsafe extern "C" fn(*const Raw, u32, *const c_void, usize) -> bool,
    pairs: unsafe extern "C" fn(*const Raw, *const Range, *mut c_void, Taker) -> *mut imbrex_error,
    write: unsafe extern "C" fn(*mut Raw, *const Step, usize) -> *mut imbrex_error,
    sync: unsafe extern "C" fn(*mut Raw) -> *mut imbrex_error,
    make_room: unsafe extern "C" fn(*mut Raw) -> *mut imbrex_error,
    check: unsafe extern "C" fn(*const Raw, *mut c_void, Taker) -> *mut imbrex_error,
}

/// The symbol that the library exports.
pub(super) type Entry = unsafe extern "C" fn(*const Host, *mut Guest) -> *const c_char;

/// Its name.
pub(super) const ENTRY: &CStr = c"imbrex_rocks";

/// Asks a library for its functions; or a sentence's end why it gives none.
///
/// # Safety
/// `entry` is that symbol of a library of ours that stays loaded.
pub(super) unsafe fn functions(entry: Entry) -> std::result::Result<Guest, String> {
    let mut guest = std::mem::MaybeUninit::<Guest>::uninit();
    // SAFETY: as required of the caller; both pointers are valid, and the host is a static.
    let why = unsafe { entry(&super::host::HOST, guest.as_mut_ptr()) };
    if why.is_null() {
        // SAFETY: the library has filled it, since it gives no reason why not.
        return Ok(unsafe { guest.assume_init() });
    }
    // SAFETY: a string that lives as long as the library.
    Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
}

/// An open database.
pub(super) struct Rocks {
    guest: Guest,
    raw: *mut Raw,
}

// SAFETY: the library allows any number of threads at once, and any thread to close.
unsafe impl Send for Rocks {}
// SAFETY: the same.
unsafe impl Sync for Rocks {}

/// Bytes of the library.
///
/// # Safety
/// `data` is NULL or valid for `length` bytes.
unsafe fn bytes(data: *const c_void, length: usize) -> Vec<u8> {
    if data.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: as required of the caller.
    unsafe { from_raw_parts(data.cast::<u8>(), length) }.to_vec()
}

/// Adds a pair to the `Vec` that the context is.
unsafe extern "C" fn take(context: *mut c_void, key: *const c_void, key_len: usize, value: *const c_void, len: usize) {
    // SAFETY: the context of each call below is such a `Vec`, which nobody else has meanwhile; the library's bytes are valid.
    unsafe { (*context.cast::<Vec<Pair>>()).push((bytes(key, key_len), bytes(value, len))) };
}

fn pointer(bytes: &[u8]) -> *const c_void {
    bytes.as_ptr().cast()
}

/// Its place among the names that the database was opened with.
fn place(family: Family) -> u32 {
    family as u32
}

impl Rocks {
    /// Opens the database that is in these files, or makes it if the options allow that.
    pub(super) fn open(guest: Guest, files: BlueFs, options: DatabaseOptions) -> Result<Rocks> {
        let names: Vec<CString> = Family::ALL.iter().filter_map(|family| CString::new(family.name()).ok()).collect();
        let names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let DatabaseOptions { memtable_bytes, cache_bytes, table_bytes, look, create } = options;
        let given = Options {
            memtable: memtable_bytes,
            cache: cache_bytes,
            table: table_bytes,
            families: names.as_ptr(),
            family_count: names.len(),
            look,
            create,
        };
        let (files, mut raw) = (Box::into_raw(Box::new(imbrex_fs::from(files))), null_mut());
        // SAFETY: the handle and the options live as long as the call; the library keeps a handle of its own.
        let opened = unsafe {
            let opened = (guest.open)(files, &given, &mut raw);
            imbrex_fs_close(files);
            result_of(opened)
        };
        opened.map(|()| Rocks { guest, raw })
    }

    /// What `call` gives to [`take`].
    fn taken(&self, call: impl FnOnce(*const Raw, *mut c_void) -> *mut imbrex_error) -> Result<Vec<Pair>> {
        let mut all: Vec<Pair> = Vec::new();
        let failed = call(self.raw, (&raw mut all).cast());
        // SAFETY: an error of the library, or NULL.
        unsafe { result_of(failed) }.map(|()| all)
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: it is open, and used by nobody any more.
        unsafe { (self.guest.close)(self.raw) }
    }
}

impl KeyValue for Rocks {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let get = self.guest.get;
        // SAFETY: the database is open, and all pointers are valid for the call.
        let mut found = self.taken(|raw, to| unsafe { get(raw, place(family), pointer(key), key.len(), to, take) })?;
        Ok(found.pop().map(|(_, value)| value))
    }

    fn get_would_read(&self, family: Family, key: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe { (self.guest.get_would_read)(self.raw, place(family), pointer(key), key.len()) }
    }

    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        let range = Range {
            family: place(family),
            far: most >= FAR,
            from: pointer(from),
            from_length: from.len(),
            to: to.map_or(null(), pointer),
            to_length: to.map_or(0, <[u8]>::len),
            most,
        };
        // SAFETY: as above.
        self.taken(|raw, to| unsafe { (self.guest.pairs)(raw, &range, to, take) })
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let step = |kind, family, first: &[u8], second: &[u8]| Step {
            kind,
            family: place(family),
            first: pointer(first),
            first_length: first.len(),
            second: pointer(second),
            second_length: second.len(),
        };
        let steps: Vec<Step> = changes
            .iter()
            .map(|change| match change {
                Change::Put(family, key, value) => step(0, *family, key, value),
                Change::Delete(family, key) => step(1, *family, key, &[]),
                Change::DeleteRange(family, from, to) => step(2, *family, from, to),
            })
            .collect();
        // SAFETY: as above; what the steps point to lives as long as the changes.
        unsafe { result_of((self.guest.write)(self.raw, steps.as_ptr(), steps.len())) }
    }

    fn make_room(&self) -> Result<()> {
        // SAFETY: as above.
        unsafe { result_of((self.guest.make_room)(self.raw)) }
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: as above.
        unsafe { result_of((self.guest.sync)(self.raw)) }
    }
}

impl Database for Rocks {
    fn check(&self) -> Result<Vec<String>> {
        // SAFETY: as above.
        let found = self.taken(|raw, to| unsafe { (self.guest.check)(raw, to, take) })?;
        Ok(found.into_iter().map(|(sentence, _)| String::from_utf8_lossy(&sentence).into_owned()).collect())
    }
}
