//! Errors, panics and forks at the border.

use imbrex_device::{Code, Error, Result};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// What kind of an error it is. Later versions may add codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum imbrex_code {
    /// No error.
    IMBREX_OK = 0,
    /// No such file or directory.
    IMBREX_NOT_FOUND = 1,
    /// It exists already.
    IMBREX_EXISTS = 2,
    /// A component of the path, or the thing itself, is no directory.
    IMBREX_NOT_A_DIRECTORY = 3,
    /// It is a directory.
    IMBREX_IS_A_DIRECTORY = 4,
    /// The directory has entries.
    IMBREX_NOT_EMPTY = 5,
    /// A name of more than 255 bytes, or a path that is too long or too deep.
    IMBREX_NAME_TOO_LONG = 6,
    /// The call makes no sense; the message says why.
    IMBREX_INVALID_ARGUMENT = 7,
    /// The drive is full. Deleting still works.
    IMBREX_NO_SPACE = 8,
    /// Bytes are not what they were.
    IMBREX_CORRUPTION = 9,
    /// The drive or the system failed.
    IMBREX_IO = 10,
    /// Another process has the drive.
    IMBREX_BUSY = 11,
    /// Only reads are possible.
    IMBREX_READ_ONLY = 12,
    /// Deliberately not supported.
    IMBREX_NOT_SUPPORTED = 13,
    /// The name is locked.
    IMBREX_LOCKED = 14,
    /// An earlier failure stopped all writes: close everything and open the drive again.
    IMBREX_POISONED = 15,
    /// A child of fork used its parent's file system.
    IMBREX_FORKED_CHILD = 16,
    /// A bug of the library. What the call was to do may have happened or not.
    IMBREX_PANIC = 17,
    /// The chunk is sealed: it takes no more appends.
    IMBREX_SEALED = 18,
    /// The chunk does not end at the offset that the append expects, and nothing was appended.
    IMBREX_WRONG_OFFSET = 19,
    /// The chunk has no room for the append: go on in another one.
    IMBREX_CHUNK_FULL = 20,
    /// There is nothing at this offset of the chunk.
    IMBREX_RANGE = 21,
    /// The iterator was kept for too long: the store was full, and needed the old values. Begin another one.
    IMBREX_EXPIRED = 22,
}

impl From<Code> for imbrex_code {
    fn from(code: Code) -> Self {
        match code {
            Code::NotFound => imbrex_code::IMBREX_NOT_FOUND,
            Code::Exists => imbrex_code::IMBREX_EXISTS,
            Code::NotADirectory => imbrex_code::IMBREX_NOT_A_DIRECTORY,
            Code::IsADirectory => imbrex_code::IMBREX_IS_A_DIRECTORY,
            Code::NotEmpty => imbrex_code::IMBREX_NOT_EMPTY,
            Code::NameTooLong => imbrex_code::IMBREX_NAME_TOO_LONG,
            Code::InvalidArgument => imbrex_code::IMBREX_INVALID_ARGUMENT,
            Code::NoSpace => imbrex_code::IMBREX_NO_SPACE,
            Code::Corruption => imbrex_code::IMBREX_CORRUPTION,
            Code::Io => imbrex_code::IMBREX_IO,
            Code::Busy => imbrex_code::IMBREX_BUSY,
            Code::ReadOnly => imbrex_code::IMBREX_READ_ONLY,
            Code::NotSupported => imbrex_code::IMBREX_NOT_SUPPORTED,
            Code::Locked => imbrex_code::IMBREX_LOCKED,
            Code::Poisoned => imbrex_code::IMBREX_POISONED,
            Code::ForkedChild => imbrex_code::IMBREX_FORKED_CHILD,
            Code::Panic => imbrex_code::IMBREX_PANIC,
            Code::Sealed => imbrex_code::IMBREX_SEALED,
            Code::WrongOffset => imbrex_code::IMBREX_WRONG_OFFSET,
            Code::ChunkFull => imbrex_code::IMBREX_CHUNK_FULL,
            Code::Range => imbrex_code::IMBREX_RANGE,
            Code::Expired => imbrex_code::IMBREX_EXPIRED,
        }
    }
}

/// An error: a code and a sentence. It does not change; any thread may look at it.
pub struct imbrex_error {
    code: imbrex_code,
    message: CString,
}

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH_FORKS: Once = Once::new();

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Release);
}

/// From now on children of `fork` are recognised.
pub(crate) fn watch_forks() {
    WATCH_FORKS.call_once(|| {
        // SAFETY: registers a handler that only stores to an atomic.
        let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            tracing::warn!("children of fork cannot be recognised: error {failed}");
        }
    });
}

/// Whether this process is a child of one that used the library.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Acquire)
}

fn failed(code: imbrex_code, message: &str) -> *mut imbrex_error {
    // A zero byte would end the sentence early for the caller.
    let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    Box::into_raw(Box::new(imbrex_error { code, message }))
}

/// An error of a code that another library gives, which need not be one.
pub(crate) fn error_of(code: u32, message: &str) -> *mut imbrex_error {
    let code = CODES.into_iter().find(|known| *known as u32 == code).unwrap_or(Code::Io);
    failed(code.into(), message)
}

/// The same the other way: takes an error that such a library has made, or NULL.
///
/// # Safety
/// `error` is NULL or a live error, and is not used again.
pub(crate) unsafe fn result_of(error: *mut imbrex_error) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: as required of the caller.
    let imbrex_error { code, message } = *unsafe { Box::from_raw(error) };
    let code = CODES.into_iter().find(|known| *known as u32 == code as u32).unwrap_or(Code::Io);
    Err(Error::refused(code, "", &*message.to_string_lossy()))
}

/// All kinds of errors.
const CODES: [Code; 22] = [
    Code::NotFound,
    Code::Exists,
    Code::NotADirectory,
    Code::IsADirectory,
    Code::NotEmpty,
    Code::NameTooLong,
    Code::InvalidArgument,
    Code::NoSpace,
    Code::Corruption,
    Code::Io,
    Code::Busy,
    Code::ReadOnly,
    Code::NotSupported,
    Code::Locked,
    Code::Poisoned,
    Code::ForkedChild,
    Code::Panic,
    Code::Sealed,
    Code::WrongOffset,
    Code::ChunkFull,
    Code::Range,
    Code::Expired,
];

/// A call that makes no sense.
pub(crate) fn invalid(message: &str) -> Error {
    Error::refused(Code::InvalidArgument, "", message)
}

/// What an error becomes at the border.
pub(crate) struct Failed(imbrex_code, String);

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(error.code().into(), error.to_string())
    }
}

impl From<imbrex_chunkstore::Error> for Failed {
    fn from(error: imbrex_chunkstore::Error) -> Failed {
        Failed(error.code().into(), error.to_string())
    }
}

/// Runs the body of a function of the API.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> *mut imbrex_error {
    guard_chunk(|| body().map_err(Failed::from))
}

/// Runs the body of a function of the chunk store's API.
pub(crate) fn guard_chunk(body: impl FnOnce() -> std::result::Result<(), Failed>) -> *mut imbrex_error {
    if forked() {
        let what = "this process is a child of fork, and its parent has the file system; \
                    open it in one process only, after forking";
        return failed(imbrex_code::IMBREX_FORKED_CHILD, what);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => null_mut(),
        Ok(Err(Failed(code, message))) => failed(code, &message),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            failed(imbrex_code::IMBREX_PANIC, &format!("a bug in imbrex was caught ({text}); please report it"))
        }
    }
}

/// Runs the body of a function that has no way to fail; a panic gives `fallback`.
pub(crate) fn quiet<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    if forked() {
        return fallback;
    }
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// A reference from a pointer of the caller.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` of this library.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: as required of the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid("a handle is NULL"))
}

/// Text from a pointer of the caller.
///
/// # Safety
/// `text` is NULL or a string that ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid("a string is NULL"));
    }
    // SAFETY: not NULL, and zero-terminated as required of the caller.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| invalid("a string is not UTF-8"))
}

/// Checks that a result can be stored before the work is done that leads to it.
pub(crate) fn wanted<T>(out: *mut T) -> Result<()> {
    if out.is_null() { Err(invalid("an output parameter is NULL")) } else { Ok(()) }
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// `out` is valid for writes; [`wanted`] was asked before.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    wanted(out)?;
    // SAFETY: not NULL, and valid as required of the caller.
    unsafe { out.write(value) };
    Ok(())
}

/// Gives a handle back; in a child of `fork` it is left alone, because what it would write is the parent's.
///
/// # Safety
/// `handle` is NULL or came from `Box::into_raw`, and is not used again.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() || forked() {
        return;
    }
    // SAFETY: as required of the caller.
    let owned = unsafe { Box::from_raw(handle) };
    if catch_unwind(AssertUnwindSafe(move || drop(owned))).is_err() {
        tracing::error!("a bug in imbrex was caught while a handle was given back; please report it");
    }
}

/// As [`free`], on a thread of its own: exit handlers run when the thread-local variables of their thread are gone, which whoever
/// writes may need (an emulated drive that keeps time does).
///
/// # Safety
/// As [`free`].
pub(crate) unsafe fn free_elsewhere<T: Send + 'static>(handle: *mut T) {
    if handle.is_null() || forked() {
        return;
    }
    // SAFETY: as required of the caller.
    let owned = unsafe { Box::from_raw(handle) };
    let dropped = catch_unwind(AssertUnwindSafe(move || {
        // Where there is no thread to be had, the closure is dropped here, and the handle with it.
        match std::thread::Builder::new().spawn(move || drop(owned)) {
            Ok(thread) => thread.join().is_ok(),
            Err(_) => true,
        }
    }));
    if !matches!(dropped, Ok(true)) {
        tracing::error!("a bug in imbrex was caught while a handle was given back; please report it");
    }
}

/// The error's code; IMBREX_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_error_code(error: *const imbrex_error) -> imbrex_code {
    // SAFETY: NULL or a live error, see the crate's documentation.
    unsafe { error.as_ref() }.map_or(imbrex_code::IMBREX_OK, |e| e.code)
}

/// The error's sentence, which says what to do; valid as long as the error. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_error_message(error: *const imbrex_error) -> *const c_char {
    // SAFETY: NULL or a live error, see the crate's documentation.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |e| e.message.as_ptr())
}

/// Gives an error back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_error_free(error: *mut imbrex_error) {
    if !error.is_null() {
        // SAFETY: a live error that is not used again. Errors are freed in children too: they hold nothing of the parent's.
        drop(unsafe { Box::from_raw(error) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(error: *mut imbrex_error) -> (imbrex_code, String) {
        // SAFETY: a live error, freed once.
        unsafe {
            let message = CStr::from_ptr(imbrex_error_message(error)).to_string_lossy().into_owned();
            let code = imbrex_error_code(error);
            imbrex_error_free(error);
            (code, message)
        }
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let fixed = guard(|| panic!("no such luck"));
        let made = guard(|| panic!("{} times", 3));
        let fallback = quiet(7, || panic!("quietly"));
        std::panic::set_hook(hook);
        let (code, message) = parts(fixed);
        assert_eq!(code, imbrex_code::IMBREX_PANIC);
        assert!(message.contains("no such luck") && message.contains("report"), "{message}");
        assert!(parts(made).1.contains("3 times"));
        assert_eq!(fallback, 7);
    }

    #[test]
    fn an_error_keeps_its_code_and_its_whole_message() {
        assert!(guard(|| Ok(())).is_null());
        let (code, message) = parts(guard(|| Err(Error::refused(Code::NoSpace, "", "full\0 really"))));
        assert_eq!(code, imbrex_code::IMBREX_NO_SPACE);
        assert_eq!(message, "full? really");
    }

    #[test]
    fn an_error_of_another_library_keeps_its_code_if_it_is_one() {
        for (given, code) in
            [(8, Code::NoSpace), (22, Code::Expired), (0, Code::Io), (23, Code::Io), (u32::MAX, Code::Io)]
        {
            // SAFETY: a live error.
            let error = unsafe { result_of(error_of(given, "a\0 sentence")) }.unwrap_err();
            assert_eq!((error.code(), &*error.to_string()), (code, "a? sentence"));
        }
        // SAFETY: NULL.
        assert!(unsafe { result_of(null_mut()) }.is_ok());
    }

    #[test]
    fn codes_have_the_engines_numbers() {
        for (i, code) in CODES.into_iter().enumerate() {
            assert_eq!(code as u32, i as u32 + 1);
            assert_eq!(imbrex_code::from(code) as u32, code as u32);
        }
    }
}
