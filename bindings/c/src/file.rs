//! Writers, readers and files that are both.

use crate::error::{Status, free, guard, invalid, put, quiet, reference, text};
use crate::fs::imbrex_fs;
use imbrex_bluefs::{CreateOptions, Pattern, RandomFile, Reader, Writer};
use imbrex_device::Cause;
use std::ffi::{c_char, c_void};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// A file that is appended to.
pub struct imbrex_writer {
    writer: RwLock<Writer>,
}

/// A file that is read.
pub struct imbrex_reader {
    reader: Reader,
}

/// A file that is read and written at any offset.
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

/// A new, empty file; what had the name before is deleted.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_create(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_writer,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let writer = RwLock::new(fs.fs.create(path, CreateOptions::default())?);
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_writer { writer }))) }
    })
}

/// An existing file for appending, or a new one.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_reopen(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_writer,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let writer = RwLock::new(fs.fs.reopen(path)?);
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_writer { writer }))) }
    })
}

/// Appends.
///
/// # Safety
/// `writer` is NULL or live, `data` valid for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_append(writer: *const imbrex_writer, data: *const c_void, len: usize) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (writer, data) = unsafe { (reference(writer)?, bytes(data, len)?) };
        shared(&writer.writer).append(data)
    })
}

/// Makes all that was appended durable.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_sync(writer: *const imbrex_writer) -> Status {
    // SAFETY: as required of the caller.
    guard(|| shared(&unsafe { reference(writer)? }.writer).sync())
}

/// Bytes, unwritten ones included.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_size(writer: *const imbrex_writer) -> u64 {
    // SAFETY: as required of the caller.
    quiet(0, || unsafe { writer.as_ref() }.map_or(0, |w| shared(&w.writer).len()))
}

/// The file's number.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_serial(writer: *const imbrex_writer) -> u64 {
    // SAFETY: as required of the caller.
    quiet(0, || unsafe { writer.as_ref() }.map_or(0, |w| shared(&w.writer).serial()))
}

/// Cuts the file.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_truncate(writer: *const imbrex_writer, size: u64) -> Status {
    // SAFETY: as required of the caller.
    guard(|| shared(&unsafe { reference(writer)? }.writer).truncate(size))
}

/// Says how large the file will be.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_preallocate(writer: *const imbrex_writer, size: u64) -> Status {
    // SAFETY: as required of the caller.
    guard(|| shared(&unsafe { reference(writer)? }.writer).preallocate(size))
}

/// Says how long the bytes will live: short and medium are a memtable's, longer ones a compaction's.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_set_hint(writer: *const imbrex_writer, hint: u32) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let writer = shared(&unsafe { reference(writer)? }.writer);
        match hint {
            0 | 1 => {}
            2 | 3 => writer.set_cause(Cause::Flush),
            4 | 5 => writer.set_cause(Cause::Compaction),
            other => return Err(invalid(&format!("there is no write hint {other}"))),
        }
        Ok(())
    })
}

/// Says how urgent the writes are: low is a compaction's, high a memtable's.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_set_priority(writer: *const imbrex_writer, priority: u32) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
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

/// Writes what is buffered and closes the file.
///
/// # Safety
/// `writer` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_close(writer: *const imbrex_writer) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let writer = unsafe { reference(writer)? };
        writer.writer.write().unwrap_or_else(PoisonError::into_inner).close()
    })
}

/// Gives a writer back, closing it.
///
/// # Safety
/// `writer` is NULL or live and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_writer_free(writer: *mut imbrex_writer) {
    // SAFETY: as required of the caller.
    unsafe { free(writer) }
}

/// Opens a file for reading.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_open(
    fs: *const imbrex_fs,
    path: *const c_char,
    out: *mut *mut imbrex_reader,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let reader = fs.fs.open_read(path)?;
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_reader { reader }))) }
    })
}

/// Reads; `got` is less than `len` only at the file's end.
///
/// # Safety
/// `reader` is NULL or live, `buffer` valid for `len` bytes, `got` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_read(
    reader: *const imbrex_reader,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    got: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (reader, buffer) = unsafe { (reference(reader)?, bytes_mut(buffer, len)?) };
        let n = reader.reader.read_at(offset, buffer)?;
        // SAFETY: as required of the caller.
        unsafe { put(got, n) }
    })
}

/// Bytes, unwritten ones included.
///
/// # Safety
/// `reader` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_size(reader: *const imbrex_reader) -> u64 {
    // SAFETY: as required of the caller.
    quiet(0, || unsafe { reader.as_ref() }.map_or(0, |r| r.reader.size()))
}

/// The file's number.
///
/// # Safety
/// `reader` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_serial(reader: *const imbrex_reader) -> u64 {
    // SAFETY: as required of the caller.
    quiet(0, || unsafe { reader.as_ref() }.map_or(0, |r| r.reader.serial()))
}

/// Brings bytes into the cache.
///
/// # Safety
/// `reader` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_readahead(reader: *const imbrex_reader, offset: u64, len: u64) -> Status {
    // SAFETY: as required of the caller.
    guard(|| unsafe { reference(reader)? }.reader.readahead(offset, len))
}

/// Says how it is going to be read.
///
/// # Safety
/// `reader` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_set_pattern(reader: *const imbrex_reader, pattern: u32) -> Status {
    guard(|| {
        let pattern = match pattern {
            0 => Pattern::Normal,
            1 => Pattern::Random,
            2 => Pattern::Sequential,
            other => return Err(invalid(&format!("there is no access pattern {other}"))),
        };
        // SAFETY: as required of the caller.
        unsafe { reference(reader)? }.reader.set_pattern(pattern);
        Ok(())
    })
}

/// Gives a reader back.
///
/// # Safety
/// `reader` is NULL or live and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_reader_free(reader: *mut imbrex_reader) {
    // SAFETY: as required of the caller.
    unsafe { free(reader) }
}

/// Opens a file for reading and writing.
///
/// # Safety
/// The pointers are NULL or valid, the string ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_open(
    fs: *const imbrex_fs,
    path: *const c_char,
    create: bool,
    out: *mut *mut imbrex_random,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (fs, path) = unsafe { (reference(fs)?, text(path)?) };
        let file = RwLock::new(fs.fs.open_random(path, create)?);
        // SAFETY: as required of the caller.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_random { file }))) }
    })
}

/// Reads; `got` is less than `len` only at the file's end.
///
/// # Safety
/// `file` is NULL or live, `buffer` valid for `len` bytes, `got` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_read(
    file: *const imbrex_random,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    got: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (file, buffer) = unsafe { (reference(file)?, bytes_mut(buffer, len)?) };
        let n = shared(&file.file).read_at(offset, buffer)?;
        // SAFETY: as required of the caller.
        unsafe { put(got, n) }
    })
}

/// Writes.
///
/// # Safety
/// `file` is NULL or live, `data` valid for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_write(
    file: *const imbrex_random,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let (file, data) = unsafe { (reference(file)?, bytes(data, len)?) };
        shared(&file.file).write_at(offset, data)
    })
}

/// Makes everything written durable.
///
/// # Safety
/// `file` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_sync(file: *const imbrex_random) -> Status {
    // SAFETY: as required of the caller.
    guard(|| shared(&unsafe { reference(file)? }.file).sync())
}

/// Closes the file.
///
/// # Safety
/// `file` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_close(file: *const imbrex_random) -> Status {
    guard(|| {
        // SAFETY: as required of the caller.
        let file = unsafe { reference(file)? };
        file.file.write().unwrap_or_else(PoisonError::into_inner).close()
    })
}

/// Gives a file back, closing it.
///
/// # Safety
/// `file` is NULL or live and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_random_free(file: *mut imbrex_random) {
    // SAFETY: as required of the caller.
    unsafe { free(file) }
}
