//! What the library with RocksDB is handed: functions of this API by their names, a way to make errors, a log.

use super::guest::VERSION;
use crate::error::{error_of, imbrex_error};
use crate::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

/// `imbrex_rocks_host` of `bindings/rocksdb-kv/src/guest.h`.
#[repr(C)]
pub(super) struct Host {
    version: u32,
    abi: u32,
    function: unsafe extern "C" fn(*const c_char) -> *const c_void,
    failure: unsafe extern "C" fn(u32, *const c_char, usize) -> *mut imbrex_error,
    log: unsafe extern "C" fn(bool, *const c_char, usize),
}

pub(super) static HOST: Host = Host { version: VERSION, abi: IMBREX_ABI_VERSION, function, failure, log };

macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        /// Functions of the API that the library may have: those that it calls, and no others.
        fn by_name(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($name) => Some($name as *const c_void),)*
                _ => None,
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

functions! {
    imbrex_error_code, imbrex_error_free, imbrex_error_message,
    imbrex_fs_advise, imbrex_fs_clone, imbrex_fs_close, imbrex_fs_link, imbrex_fs_list, imbrex_fs_lock, imbrex_fs_mkdir, imbrex_fs_rename,
    imbrex_fs_rmdir, imbrex_fs_space, imbrex_fs_stat, imbrex_fs_sync_directory, imbrex_fs_truncate, imbrex_fs_unlink,
    imbrex_list_attributes, imbrex_list_free, imbrex_list_len, imbrex_list_name, imbrex_lock_free,
    imbrex_random_close, imbrex_random_free, imbrex_random_open, imbrex_random_read, imbrex_random_sync, imbrex_random_write,
    imbrex_reader_free, imbrex_reader_open, imbrex_reader_read, imbrex_reader_readahead, imbrex_reader_serial, imbrex_reader_set_pattern,
    imbrex_reader_size,
    imbrex_writer_append, imbrex_writer_close, imbrex_writer_create, imbrex_writer_free, imbrex_writer_preallocate, imbrex_writer_reopen,
    imbrex_writer_serial, imbrex_writer_set_hint, imbrex_writer_set_priority, imbrex_writer_size, imbrex_writer_sync, imbrex_writer_truncate,
}

/// Text of the library. It need not be UTF-8: RocksDB shows keys in some of its sentences.
///
/// # Safety
/// `text` is NULL or valid for `length` bytes.
unsafe fn said(text: *const c_char, length: usize) -> String {
    if text.is_null() || length == 0 {
        return String::new();
    }
    // SAFETY: as required of the caller.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) }).into_owned()
}

unsafe extern "C" fn function(name: *const c_char) -> *const c_void {
    if name.is_null() {
        return null();
    }
    // SAFETY: the library's names end with a zero byte.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().ok().and_then(by_name).unwrap_or(null())
}

unsafe extern "C" fn failure(code: u32, sentence: *const c_char, length: usize) -> *mut imbrex_error {
    // SAFETY: the library's sentences are valid.
    let sentence = unsafe { said(sentence, length) };
    error_of(code, &sentence)
}

unsafe extern "C" fn log(severe: bool, line: *const c_char, length: usize) {
    // SAFETY: the library's lines are valid.
    let line = unsafe { said(line, length) };
    // RocksDB warns of what is usual, too, as of writes that wait for a compaction.
    if severe {
        tracing::warn!("RocksDB: {line}");
    } else {
        tracing::debug!("RocksDB: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_finds_all_that_it_calls_and_nothing_else_is_there() {
        let header = include_str!("../../../rocksdb-kv/src/host.h");
        let list = header.split("#define IMBREX_FUNCTIONS(each)").nth(1).and_then(|rest| rest.split("\n\n").next());
        let list = list.expect("the list of the header").split("each(").skip(1);
        let wanted: Vec<&str> = list.filter_map(|rest| rest.split(')').next()).collect();
        assert!(wanted.len() > 40, "{wanted:?}");
        assert_eq!(wanted, NAMES);
        for name in wanted {
            assert!(
                header.contains(&format!("#define {name} IMBREX_FORWARD({name})\n")),
                "{name} is not a call by the table"
            );
            let name = std::ffi::CString::new(name).expect("a name");
            // SAFETY: it ends with a zero byte.
            assert!(!unsafe { function(name.as_ptr()) }.is_null());
        }
        // SAFETY: NULL and a name.
        assert!(unsafe { function(null()).is_null() && function(c"imbrex_fs_open".as_ptr()).is_null() });
    }

    #[test]
    fn the_versions_are_those_of_the_header() {
        let header = include_str!("../../../rocksdb-kv/src/guest.h");
        assert!(header.contains(&format!("#define IMBREX_ROCKS_VERSION {VERSION}\n")));
    }
}
