//! Errors, panics and forks at the border.

use imbrex_bluefs::Code;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// An error that belongs to the caller: a code and a sentence.
pub struct imbrex_error {
    code: u32,
    message: CString,
}

/// What a function of the API returns: NULL, or an error.
pub type Status = *mut imbrex_error;

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
            tracing::warn!("children of fork cannot be recognised: {failed}");
        }
    });
}

/// Whether this process is a child of one that used the library.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Acquire)
}

fn status(code: Code, message: &str) -> Status {
    let clean: Vec<u8> = message.bytes().filter(|b| *b != 0).collect();
    let message = CString::new(clean).unwrap_or_default();
    Box::into_raw(Box::new(imbrex_error { code: code as u32, message }))
}

/// A call that makes no sense.
pub(crate) fn invalid(message: &str) -> imbrex_bluefs::Error {
    imbrex_bluefs::Error::new(Code::InvalidArgument, message)
}

/// Runs the body of a function of the API.
pub(crate) fn guard(body: impl FnOnce() -> imbrex_bluefs::Result<()>) -> Status {
    if forked() {
        let what = "the file system was opened before a fork; open it in one process only, after forking";
        return status(Code::ForkedChild, what);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(error)) => status(error.code(), &error.to_string()),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            status(Code::Panic, &format!("a bug in imbrex was caught ({text}); please report it"))
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
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> imbrex_bluefs::Result<&'a T> {
    // SAFETY: as required of the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid("a handle is NULL"))
}

/// Text from a pointer of the caller.
///
/// # Safety
/// `text` is NULL or a string that ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> imbrex_bluefs::Result<&'a str> {
    if text.is_null() {
        return Err(invalid("a string is NULL"));
    }
    // SAFETY: not NULL, and zero-terminated as required of the caller.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| invalid("a string is not UTF-8"))
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// `out` is NULL or valid for writes.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> imbrex_bluefs::Result<()> {
    if out.is_null() {
        return Err(invalid("an output parameter is NULL"));
    }
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
    drop(catch_unwind(AssertUnwindSafe(move || drop(owned))));
}

/// The error's code.
///
/// # Safety
/// `error` is NULL or an error of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_error_code(error: *const imbrex_error) -> u32 {
    // SAFETY: as required of the caller.
    unsafe { error.as_ref() }.map_or(0, |e| e.code)
}

/// The error's sentence; valid as long as the error.
///
/// # Safety
/// `error` is NULL or an error of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_error_message(error: *const imbrex_error) -> *const c_char {
    // SAFETY: as required of the caller.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |e| e.message.as_ptr())
}

/// Gives an error back.
///
/// # Safety
/// `error` is NULL or an error of this library that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_error_free(error: *mut imbrex_error) {
    if !error.is_null() {
        // SAFETY: as required of the caller. Errors are freed in children too: they hold nothing of the parent's.
        drop(unsafe { Box::from_raw(error) });
    }
}
