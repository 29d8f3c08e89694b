//! Writers, readers and files that are both.

use crate::error::{free, guard, imbrex_error, invalid, put, quiet, reference, text, wanted};
use crate::fs::imbrex_fs;
use imbrex_bluefs::{CreateOptions, Pattern, RandomFile, Reader, Writer};
use imbrex_device::Cause;
use std::ffi::{c_char, c_void};
use std::ptr::null;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// How long what is written will live, with the numbers of Linux's and RocksDB's hints.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum imbrex_hint {
    /// Not said.
    IMBREX_HINT_NOT_SET = 0,
    /// No hint.
    IMBREX_HINT_NONE = 1,
    /// A log.
    IMBREX_HINT_SHORT = 2,
    /// A table of the first levels.
    IMBREX_HINT_MEDIUM = 3,
    /// A table of the lower levels.
    IMBREX_HINT_LONG = 4,
    /// A table of the last level.
    IMBREX_HINT_EXTREME = 5,
}

/// How urgent writes are, with RocksDB's numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum imbrex_priority {
    /// A compaction.
    IMBREX_PRIORITY_LOW = 0,
    /// In between.
    IMBREX_PRIORITY_MID = 1,
    /// A memtable that is flushed.
    IMBREX_PRIORITY_HIGH = 2,
    /// Somebody waits for it.
    IMBREX_PRIORITY_USER = 3,
    /// Not said.
    IMBREX_PRIORITY_NOT_SET = 4,
}

/// How a file is going to be read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum imbrex_pattern {
    /// Not said.
    IMBREX_PATTERN_NORMAL = 0,
    /// Here and there.
    IMBREX_PATTERN_RANDOM = 1,
    /// From the beginning to the end.
    IMBREX_PATTERN_SEQUENTIAL = 2,
}

/// A file that is appended to. One thread may append, truncate or close at a time; others may sync and ask meanwhile.
pub struct imbrex_writer {
    writer: RwLock<Writer>,
}

/// A file that is read. Any number of threads may use it at once. It sees what is appended while it is open.
pub struct imbrex_reader {
    reader: Reader,
}

/// A file that is read and written at any offset. One thread may write or close at a time; others may read and sync meanwhile.
pub struct imbrex_random {
    file: RwLock<RandomFile>,
}

fn shared<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of the caller.
///
/// # Safety
/// `data` is valid for reads of `len` bytes, or `len` is 0.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> imbrex_bluefs::Result<&'a [u8]> {
    match (len, data.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(invalid("the data is NULL")),
        // SAFETY: not NULL, and valid as required of the caller.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// Memory of the caller.
///
/// # Safety
/// `data` is valid for writes of `len` bytes and nobody else uses it, or `len` is 0. The bytes may be uninitialised for the
/// caller; only whole stores are made to them.
unsafe fn bytes_mut<'a>(data: *mut c_void, len: usize) -> imbrex_bluefs::Result<&'a mut [u8]> {
    match (len, data.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(invalid("the buffer is NULL")),
        // SAFETY: not NULL, and valid as required of the caller.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) }),
    }
}

/// A new, empty file under this name. A file that had the name before is deleted, but lives on where it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_create(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_writer,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let writer = RwLock::new(fs.fs.create(path, CreateOptions::default())?);
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_writer { writer }))) }
    })
}

/// An existing file for appending at its end, or a new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_reopen(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_writer,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let writer = RwLock::new(fs.fs.reopen(path)?);
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_writer { writer }))) }
    })
}

/// Appends. From now on the bytes survive the death of the process, not yet a power loss. No I/O unless buffers are full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_append(
    writer: *const imbrex_writer,
    data: *const c_void,
    len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (writer, data) = unsafe { (reference(writer)?, bytes(data, len)?) };
        shared(&writer.writer).append(data)
    })
}

/// Makes all that was appended before the call durable, and the file's name with it. A write and a flush, for a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_sync(writer: *const imbrex_writer) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| shared(&unsafe { reference(writer)? }.writer).sync())
}

/// The file's size in bytes, those not yet durable included; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_size(writer: *const imbrex_writer) -> u64 {
    // SAFETY: the crate's contract.
    quiet(0, || unsafe { writer.as_ref() }.map_or(0, |w| shared(&w.writer).len()))
}

/// The file's number, as in imbrex_attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_serial(writer: *const imbrex_writer) -> u64 {
    // SAFETY: the crate's contract.
    quiet(0, || unsafe { writer.as_ref() }.map_or(0, |w| shared(&w.writer).serial()))
}

/// Cuts the file to `size` bytes; its own size is fine and costs nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_truncate(writer: *const imbrex_writer, size: u64) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| shared(&unsafe { reference(writer)? }.writer).truncate(size))
}

/// Says how large the file will be. A hint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_preallocate(writer: *const imbrex_writer, size: u64) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| shared(&unsafe { reference(writer)? }.writer).preallocate(size))
}

/// Says how long the bytes will live: one of imbrex_hint. A hint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_set_hint(writer: *const imbrex_writer, hint: u32) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let writer = shared(&unsafe { reference(writer)? }.writer);
        match hint {
            0 | 1 => {}
            2 | 3 => writer.set_cause(Cause::Flush),
            4 | 5 => writer.set_cause(Cause::Compaction),
            other => return Err(invalid(&format!("there is no write hint {other}"))),
        }
        writer.set_hint(hint as u8)
    })
}

/// Says how urgent the writes are: one of imbrex_priority. A hint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_set_priority(writer: *const imbrex_writer, priority: u32) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let writer = shared(&unsafe { reference(writer)? }.writer);
        match priority {
            0 => writer.set_cause(Cause::Compaction),
            2 => writer.set_cause(Cause::Flush),
            1 | 3 | 4 => {}
            other => return Err(invalid(&format!("there is no priority {other}"))),
        }
        Ok(())
    })
}

/// Writes what is buffered and closes the file; not a sync. Closing again does nothing, appending is an error then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_close(writer: *const imbrex_writer) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let writer = unsafe { reference(writer)? };
        writer.writer.write().unwrap_or_else(PoisonError::into_inner).close()
    })
}

/// Gives a writer back, closing it without telling errors. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_free(writer: *mut imbrex_writer) {
    // SAFETY: the crate's contract.
    unsafe { free(writer) }
}

/// Opens a file for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_open(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_reader,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let reader = fs.fs.open_read(path)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_reader { reader }))) }
    })
}

/// Reads `len` bytes at `offset`; `got` is less only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_read(
    reader: *const imbrex_reader,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    got: *mut usize,
) -> *mut imbrex_error {
    guard(|| {
        wanted(got)?;
        // SAFETY: the crate's contract.
        let (reader, buffer) = unsafe { (reference(reader)?, bytes_mut(buffer, len)?) };
        let n = reader.reader.read_at(offset, buffer)?;
        // SAFETY: the crate's contract.
        unsafe { put(got, n) }
    })
}

/// As imbrex_reader_read, without a copy where that can be: `data` is where the bytes are, either in `buffer`, or in memory that
/// stays valid and as it is until the reader is freed, whatever becomes of the file. For the latter at most half of the cache is
/// held at a time. NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_view(
    reader: *const imbrex_reader,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    data: *mut *const c_void,
    got: *mut usize,
) -> *mut imbrex_error {
    guard(|| {
        wanted(data)?;
        wanted(got)?;
        // SAFETY: the crate's contract.
        let (reader, copy) = unsafe {
            put(data, null())?;
            (reference(reader)?, bytes_mut(buffer, len)?)
        };
        let (at, n) = match reader.reader.view(offset, len) {
            Some(bytes) => (bytes.as_ptr().cast(), len),
            None => (buffer.cast_const(), reader.reader.read_at(offset, copy)?),
        };
        // SAFETY: the crate's contract.
        unsafe {
            put(data, at)?;
            put(got, n)
        }
    })
}

/// Bytes of a span; see imbrex_reader_span.
pub const IMBREX_SPAN: u64 = 262144;
const _: () = assert!(IMBREX_SPAN == imbrex_bluefs::SPAN);

/// As imbrex_reader_view, of many bytes at once and without a copy, so that who keeps the answer need not ask again: the file in spans of
/// IMBREX_SPAN bytes, the last one shorter. `data` stays valid, with the bytes as they were when a span was first asked for, until the
/// reader is freed. NULL with `got` 0 where the span is not in the cache in one piece, or the cache is nearly full, or half of it is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_span(
    reader: *const imbrex_reader,
    span: u64,
    data: *mut *const c_void,
    got: *mut usize,
) -> *mut imbrex_error {
    guard(|| {
        wanted(data)?;
        wanted(got)?;
        // SAFETY: the crate's contract.
        let bytes = unsafe { reference(reader)? }.reader.span(span);
        // SAFETY: the crate's contract.
        unsafe {
            put(data, bytes.map_or(null(), |bytes| bytes.as_ptr().cast()))?;
            put(got, bytes.map_or(0, <[u8]>::len))
        }
    })
}

/// The file's size in bytes, those not yet durable included; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_size(reader: *const imbrex_reader) -> u64 {
    // SAFETY: the crate's contract.
    quiet(0, || unsafe { reader.as_ref() }.map_or(0, |r| r.reader.size()))
}

/// The file's number, as in imbrex_attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_serial(reader: *const imbrex_reader) -> u64 {
    // SAFETY: the crate's contract.
    quiet(0, || unsafe { reader.as_ref() }.map_or(0, |r| r.reader.serial()))
}

/// Brings bytes into the cache. A hint: reads find out by themselves that they follow each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_readahead(
    reader: *const imbrex_reader,
    offset: u64,
    len: u64,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(reader)? }.reader.readahead(offset, len))
}

/// Says how it is going to be read: one of imbrex_pattern. A hint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_set_pattern(reader: *const imbrex_reader, pattern: u32) -> *mut imbrex_error {
    guard(|| {
        let pattern = match pattern {
            0 => Pattern::Normal,
            1 => Pattern::Random,
            2 => Pattern::Sequential,
            other => return Err(invalid(&format!("there is no access pattern {other}"))),
        };
        // SAFETY: the crate's contract.
        unsafe { reference(reader)? }.reader.set_pattern(pattern);
        Ok(())
    })
}

/// Gives a reader back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_free(reader: *mut imbrex_reader) {
    // SAFETY: the crate's contract.
    unsafe { free(reader) }
}

/// Opens a file for reading and writing; with `create`, a new one where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_open(
    fs: *const imbrex_fs,
    path: *const c_char,
    create: bool,
    out: *mut *mut imbrex_random,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let file = RwLock::new(fs.fs.open_random(path, create)?);
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_random { file }))) }
    })
}

/// Reads `len` bytes at `offset`; `got` is less only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_read(
    file: *const imbrex_random,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    got: *mut usize,
) -> *mut imbrex_error {
    guard(|| {
        wanted(got)?;
        // SAFETY: the crate's contract.
        let (file, buffer) = unsafe { (reference(file)?, bytes_mut(buffer, len)?) };
        let n = shared(&file.file).read_at(offset, buffer)?;
        // SAFETY: the crate's contract.
        unsafe { put(got, n) }
    })
}

/// Writes at `offset`. A gap before it reads as zeros. In a table, written bytes can be overwritten, nothing appended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_write(
    file: *const imbrex_random,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (file, data) = unsafe { (reference(file)?, bytes(data, len)?) };
        shared(&file.file).write_at(offset, data)
    })
}

/// Makes everything written durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_sync(file: *const imbrex_random) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| shared(&unsafe { reference(file)? }.file).sync())
}

/// Closes the file; not a sync. Closing again does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_close(file: *const imbrex_random) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let file = unsafe { reference(file)? };
        file.file.write().unwrap_or_else(PoisonError::into_inner).close()
    })
}

/// Gives a file back, closing it without telling errors. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_free(file: *mut imbrex_random) {
    // SAFETY: the crate's contract.
    unsafe { free(file) }
}
