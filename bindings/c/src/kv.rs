//! The key-value store: spaces of a store, their keys and values.

mod expiry;
mod operator;
mod order;

use crate::error::{free, free_elsewhere, guard, imbrex_error, invalid, put, reference, text, wanted, watch_forks};
use crate::log::listen;
use ::imbrex_kv::{Batch, Bytewise, Ingest, Iter, Kv, MAX_KEY, MAX_VALUE, Make, Order, Snapshot, TimeInValue};
use imbrex_bluefs::Result;
use order::{Held, hold, known_by};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Most bytes of a key.
pub const IMBREX_KV_KEY_BYTES: usize = 65536;
/// Most bytes of a value. A drive with small zones takes less.
pub const IMBREX_KV_VALUE_BYTES: u64 = 4294836224;

const _: () = assert!(IMBREX_KV_KEY_BYTES == MAX_KEY && IMBREX_KV_VALUE_BYTES == MAX_VALUE as u64);

/// What becomes of a space that is not there.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum imbrex_kv_mode {
    /// It is an error: IMBREX_NOT_FOUND.
    IMBREX_KV_OPEN = 0,
    /// It is made.
    IMBREX_KV_CREATE = 1,
    /// It is made. One that is there is an error: IMBREX_EXISTS.
    IMBREX_KV_CREATE_NEW = 2,
}

/// An order of keys. The name is copied. `compare` and `state` must stay valid as long as the process has any handle of a store, snapshot
/// or iterator: the library compares keys in the background, too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_kv_order {
    /// The store keeps it, and opens the space only with an order of this name.
    name: *const c_char,
    /// Less than 0, 0, or more than 0: `a` is before, the same key as, or behind `b`. Any thread may call it, and several at once. It must be a total
    /// order, and always the same. It must not call this library. An exception that leaves it ends the process.
    compare: Option<
        unsafe extern "C-unwind" fn(
            state: *mut c_void,
            a: *const c_void,
            a_len: usize,
            b: *const c_void,
            b_len: usize,
        ) -> c_int,
    >,
    /// What `compare` is called with.
    state: *mut c_void,
}

/// Bytes that the library has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_kv_bytes {
    data: *const c_void,
    len: usize,
}

/// How values of a space come of the one before and of operands. Functions and `state` must stay valid as long as the process has any handle of a store, snapshot
/// or iterator. Any thread may call the functions, several at once, also in the background. What they make must depend on their arguments alone. They must not call
/// this library, but for imbrex_kv_value_append(). An exception that leaves one ends the process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_kv_merge_operator {
    /// Appends the key's value to `result`, which is empty. `value`: the one before, NULL where there was none. `operands`: `count` of them, the oldest first.
    merge: Option<
        unsafe extern "C-unwind" fn(
            state: *mut c_void,
            key: *const c_void,
            key_len: usize,
            value: *const c_void,
            value_len: usize,
            operands: *const imbrex_kv_bytes,
            count: usize,
            result: *mut imbrex_kv_value,
        ),
    >,
    /// Appends one operand to `result` that does what these do together, the oldest first, and returns true. NULL, or false: there is none; then all are kept until the value
    /// before is known.
    combine: Option<
        unsafe extern "C-unwind" fn(
            state: *mut c_void,
            key: *const c_void,
            key_len: usize,
            operands: *const imbrex_kv_bytes,
            count: usize,
            result: *mut imbrex_kv_value,
        ) -> bool,
    >,
    /// What the functions are called with.
    state: *mut c_void,
}

/// A space of a key-value store: keys with values, in an order. Any number of threads may use it at once.
pub struct imbrex_kv {
    kv: Kv,
    _held: Held,
}

/// Changes that are made together. One thread may change it at a time.
pub struct imbrex_kv_batch {
    batch: Batch,
}

/// A moment of a store. It does not change; any thread may use it.
pub struct imbrex_kv_snapshot {
    snapshot: Snapshot,
    _held: Held,
}

/// A place among the keys of a space. One thread may use it at a time.
pub struct imbrex_kv_iterator {
    iter: Iter,
    _held: Held,
}

/// Sorted pairs on their way into a space. One thread may use it at a time.
pub struct imbrex_kv_ingest {
    ingest: Ingest,
    _held: Held,
}

/// A value. It does not change; any thread may look at it.
pub struct imbrex_kv_value {
    bytes: Vec<u8>,
}

/// Names of spaces, or sentences. It does not change; any thread may look at it.
pub struct imbrex_kv_list {
    entries: Vec<(CString, CString)>,
}

/// What a store has.
#[repr(C)]
pub struct imbrex_kv_figures {
    /// Bytes of changes in memory.
    memory: u64,
    /// Bytes of the write-ahead log that an opening would read.
    log: u64,
    /// Tables.
    tables: u64,
    /// Their bytes.
    table_bytes: u64,
    /// Their entries; a key may have several.
    entries: u64,
    /// Zones with tables or bytes of the log.
    zones_used: u32,
    /// Zones that may still be taken.
    zones_free: u32,
    /// Partitions of the keys.
    partitions: u32,
    /// Sorted runs of tables that may have a key.
    depth: u32,
}

/// Bytes of the caller.
///
/// # Safety
/// `data` is valid for reads of `len` bytes, or `len` is 0.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize, most: usize, what: &str) -> Result<&'a [u8]> {
    match (len, data.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(invalid(&format!("a {what} is NULL"))),
        (len, _) if len > most => {
            Err(invalid(&format!("a {what} of {len} bytes is too long; a {what} has {most} bytes at most")))
        }
        // SAFETY: not NULL, and valid as required of the caller.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// A key of the caller.
///
/// # Safety
/// As [`bytes`].
unsafe fn key_of<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    // SAFETY: as required of the caller.
    unsafe { bytes(data, len, MAX_KEY, "key") }
}

/// A value of the caller.
///
/// # Safety
/// As [`bytes`].
unsafe fn value_of<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    // SAFETY: as required of the caller.
    unsafe { bytes(data, len, MAX_VALUE, "value") }
}

/// An end of a range: NULL is none.
///
/// # Safety
/// As [`bytes`].
unsafe fn end_of<'a>(data: *const c_void, len: usize) -> Result<Option<&'a [u8]>> {
    if data.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: as required of the caller.
    unsafe { key_of(data, len) }.map(Some)
}

/// What one caller at a time may change.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` of this library that nobody else uses meanwhile.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as required of the caller.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid("a handle is NULL"))
}

/// The name of a space; NULL is the one of the unnamed space.
///
/// # Safety
/// The crate's contract for strings.
unsafe fn space_of<'a>(space: *const c_char) -> Result<&'a str> {
    // SAFETY: as required of the caller.
    if space.is_null() { Ok("") } else { unsafe { text(space) } }
}

fn mode_of(mode: u32) -> Result<Make> {
    match mode {
        0 => Ok(Make::Never),
        1 => Ok(Make::IfMissing),
        2 => Ok(Make::New),
        _ => Err(invalid("there is no such mode; give IMBREX_KV_OPEN, IMBREX_KV_CREATE or IMBREX_KV_CREATE_NEW")),
    }
}

/// The name of a caller's order, which this process knows from now on; NULL is the order of bytes.
///
/// # Safety
/// `order` is NULL or valid, and stays so as its type says.
unsafe fn order_of(order: *const imbrex_kv_order, held: &Held) -> Result<String> {
    // SAFETY: as required of the caller.
    match unsafe { order.as_ref() } {
        None => Ok(Bytewise.name().to_owned()),
        // SAFETY: as required of the caller.
        Some(order) => unsafe { known_by(order, held) },
    }
}

fn list_of(entries: impl Iterator<Item = (String, String)>) -> imbrex_kv_list {
    // A zero byte would end the text early for the caller.
    let c = |text: String| CString::new(text.replace('\0', "?")).unwrap_or_default();
    imbrex_kv_list { entries: entries.map(|(text, order)| (c(text), c(order))).collect() }
}

/// Opens a space of the key-value store of a URI, as "imbrex:///dev/sdb", "imbrex:///data/drive.img?memtable=256M" or
/// "imbrex://mem:?profile=tiny"; what a crash has left is recovered. `space`: its name, NULL for the unnamed space, which every store has. `order`:
/// the order of its keys, NULL for that of bytes. The unnamed space is in the order of bytes. `mode`: one of imbrex_kv_mode. A process has one store
/// of a drive: opening it again gives another handle of the same. The drive is released when the last handle, snapshot and iterator are given
/// back. With format=on in the URI a drive that is not formatted is formatted first. An opening needs the orders of all spaces of the store: see
/// imbrex_kv_know(). IMBREX_LOG and IMBREX_METRICS count as with imbrex_fs_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_open(
    uri: *const c_char,
    space: *const c_char,
    order: *const imbrex_kv_order,
    mode: u32,
    out: *mut *mut imbrex_kv,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        watch_forks();
        listen();
        let held = hold();
        let make = mode_of(mode)?;
        // SAFETY: the crate's contract.
        let (uri, space, order) = unsafe { (text(uri)?, space_of(space)?, order_of(order, &held)?) };
        let store = Kv::open_uri(uri, &[])?;
        crate::metrics::pairs_opened(&store);
        let kv = store.space(space, &order, make)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv { kv, _held: held }))) }
    })
}

/// Makes an order known to stores that are opened from now on. It must stay valid until the process ends, unlike one that is only given to
/// imbrex_kv_open(). Of two orders of one name, the later one counts for later openings. The order of bytes, "leveldb.BytewiseComparator", is always
/// known, and another one of its name is never called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_know(order: *const imbrex_kv_order) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { order::know(reference(order)?) })
}

/// Opens another space of the same store, as imbrex_kv_open() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_space(
    kv: *const imbrex_kv,
    name: *const c_char,
    order: *const imbrex_kv_order,
    mode: u32,
    out: *mut *mut imbrex_kv,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        let held = hold();
        let make = mode_of(mode)?;
        // SAFETY: the crate's contract.
        let (store, name, order) = unsafe { (reference(kv)?, space_of(name)?, order_of(order, &held)?) };
        let kv = store.kv.space(name, &order, make)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv { kv, _held: held }))) }
    })
}

/// Gives a handle of a space back. The last one of a store makes durable what was written; an error of that is only logged, so call imbrex_kv_sync()
/// before. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_close(kv: *mut imbrex_kv) {
    // SAFETY: the crate's contract.
    unsafe { free_elsewhere(kv) }
}

/// Deletes a space with its keys, durably. Handles of it can write nothing more. Where it is not in the order of bytes, the whole store is merged before this
/// returns; later openings need not know that order, unless a checkpoint keeps what it had. IMBREX_NOT_FOUND: there is none of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_drop(kv: *const imbrex_kv, space: *const c_char) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, space) = unsafe { (reference(kv)?, text(space)?) };
        kv.kv.drop_space(space)
    })
}

/// The names of a store's spaces, sorted, and of their orders. The unnamed space is not among them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_spaces(kv: *const imbrex_kv, out: *mut *mut imbrex_kv_list) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let spaces = unsafe { reference(kv)? }.kv.spaces();
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(list_of(spaces.into_iter())))) }
    })
}

/// From now on pairs of the space are over when `is_over` says so, until the store is closed: that is when the last handle, snapshot and iterator of it are given
/// back. Reads do not find such pairs then, at snapshots neither, and merges delete them for good. Whoever opens the store without the function sees those that are
/// left. A later call replaces the function. Once a pair is over, it must stay so. Any thread may call the function, several at once, also in the background, and
/// also the one that was replaced. Function and `state` must stay valid as long as the process has any handle of a store, snapshot or iterator. It must not call
/// this library. An exception that leaves it ends the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_expire(
    kv: *const imbrex_kv,
    is_over: Option<
        unsafe extern "C-unwind" fn(
            state: *mut c_void,
            key: *const c_void,
            key_len: usize,
            value: *const c_void,
            value_len: usize,
        ) -> bool,
    >,
    state: *mut c_void,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let kv = unsafe { reference(kv)? };
        let is_over = is_over.ok_or_else(|| invalid("the function that says which pairs are over is NULL"))?;
        kv.kv.expire(Arc::new(expiry::Foreign { is_over, state }));
        Ok(())
    })
}

/// The same for values that begin with the time from which on they are over, as `imbrex kv put --ttl` writes them: eight bytes, little-endian, seconds since 1970,
/// and 0 for never. A value that does not begin with 0 or a time from 2020 to 9999 is never over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_expire_by_time(kv: *const imbrex_kv) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        unsafe { reference(kv)? }.kv.expire(Arc::new(TimeInValue));
        Ok(())
    })
}

/// From now on, until the store is closed, values of the space come of operands in this way. Without it, keys that have operands cannot be read, and merges keep
/// their operands as they are. Nothing stores which operator it is: give a space the same one after each opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_set_merge_operator(
    kv: *const imbrex_kv,
    operator: *const imbrex_kv_merge_operator,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, operator) = unsafe { (reference(kv)?, reference(operator)?) };
        kv.kv.merge_operator(Arc::new(operator::Foreign::of(operator)?));
        Ok(())
    })
}

/// How many entries; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_list_len(list: *const imbrex_kv_list) -> usize {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.map_or(0, |l| l.entries.len())
}

/// An entry of the list: the name of a space, or a sentence. Valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_list_text(list: *const imbrex_kv_list, index: usize) -> *const c_char {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.and_then(|l| l.entries.get(index)).map_or(null(), |entry| entry.0.as_ptr())
}

/// The name of the order of a space in the list, empty for a sentence. Valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_list_order(list: *const imbrex_kv_list, index: usize) -> *const c_char {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.and_then(|l| l.entries.get(index)).map_or(null(), |entry| entry.1.as_ptr())
}

/// Gives a list back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_list_free(list: *mut imbrex_kv_list) {
    // SAFETY: the crate's contract.
    unsafe { free(list) }
}

/// Gives a key a value. Key and value may be empty. `durable`: it survives a loss of power when this returns. Else it survives the end of the process
/// now, and a loss of power after the next durable write or imbrex_kv_sync().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_put(
    kv: *const imbrex_kv,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    durable: bool,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, key, value) = unsafe { (reference(kv)?, key_of(key, key_len)?, value_of(value, value_len)?) };
        kv.kv.put(key, value, durable)
    })
}

/// Merges an operand into the value of a key, as the space's operator says, without a read. `durable`: as with imbrex_kv_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_merge(
    kv: *const imbrex_kv,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    durable: bool,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, key, operand) = unsafe { (reference(kv)?, key_of(key, key_len)?, value_of(operand, operand_len)?) };
        kv.kv.merge(key, operand, durable)
    })
}

/// Deletes a key. One that is not there is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_delete(
    kv: *const imbrex_kv,
    key: *const c_void,
    key_len: usize,
    durable: bool,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, key) = unsafe { (reference(kv)?, key_of(key, key_len)?) };
        kv.kv.delete(key, durable)
    })
}

/// Deletes all keys from `from` on that are before `to`, at once, however many they are. NULL: from the first key on, and to the last one. A range that
/// ends before it begins is IMBREX_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_delete_range(
    kv: *const imbrex_kv,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    durable: bool,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, from, to) = unsafe { (reference(kv)?, end_of(from, from_len)?, end_of(to, to_len)?) };
        kv.kv.delete_range(from, to, durable)
    })
}

/// The value of a key, now or at a snapshot. `at`: NULL is now. Stores NULL where the key is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_get(
    kv: *const imbrex_kv,
    at: *const imbrex_kv_snapshot,
    key: *const c_void,
    key_len: usize,
    out: *mut *mut imbrex_kv_value,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (kv, at, key) = unsafe { (reference(kv)?, at.as_ref(), key_of(key, key_len)?) };
        let value = match at {
            Some(at) => kv.kv.get_at(&at.snapshot, key)?,
            None => kv.kv.get(key)?,
        };
        let value = value.map_or(null_mut(), |bytes| Box::into_raw(Box::new(imbrex_kv_value { bytes })));
        // SAFETY: the crate's contract.
        unsafe { put(out, value) }
    })
}

/// The values of `count` keys, all at one moment, which is now or a snapshot's. Stores `count` values, in the order of the keys, and NULL for each that is not
/// there; after an error all are NULL. Up to reads-at-once=N of the URI reads of the drive are under way at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_multi_get(
    kv: *const imbrex_kv,
    at: *const imbrex_kv_snapshot,
    count: usize,
    keys: *const *const c_void,
    key_lens: *const usize,
    out: *mut *mut imbrex_kv_value,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        for i in 0..count {
            // SAFETY: the crate's contract.
            unsafe { put(out.wrapping_add(i), null_mut())? };
        }
        if count > 0 && (keys.is_null() || key_lens.is_null()) {
            return Err(invalid("the keys, or their lengths, are NULL"));
        }
        // SAFETY: the crate's contract.
        let key = |i| unsafe { key_of(*keys.wrapping_add(i), *key_lens.wrapping_add(i)) };
        let all = (0..count).map(key).collect::<Result<Vec<_>>>()?;
        // SAFETY: the crate's contract.
        let (kv, at) = unsafe { (reference(kv)?, at.as_ref()) };
        let values = match at {
            Some(at) => kv.kv.multi_get_at(&at.snapshot, &all)?,
            None => kv.kv.multi_get(&all)?,
        };
        for (i, bytes) in values.into_iter().enumerate() {
            let value = bytes.map_or(null_mut(), |bytes| Box::into_raw(Box::new(imbrex_kv_value { bytes })));
            // SAFETY: the crate's contract.
            unsafe { put(out.wrapping_add(i), value)? };
        }
        Ok(())
    })
}

/// Bytes, and how many where somebody wants to know.
///
/// # Safety
/// `len` is NULL or valid for writes.
pub(crate) unsafe fn shown(bytes: Option<&[u8]>, len: *mut usize) -> *const c_void {
    if !len.is_null() {
        // SAFETY: not NULL, and valid as required of the caller.
        unsafe { len.write(bytes.map_or(0, <[u8]>::len)) };
    }
    bytes.map_or(null(), |bytes| bytes.as_ptr().cast())
}

/// The bytes of a value, valid as long as the value, and how many in `len`, which may be NULL. NULL and 0 for NULL; never NULL for a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_value_data(value: *const imbrex_kv_value, len: *mut usize) -> *const c_void {
    // SAFETY: the crate's contract.
    unsafe { shown(value.as_ref().map(|value| value.bytes.as_slice()), len) }
}

/// Appends bytes to the value that a merge operator makes. Other values do not change: call it there only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_value_append(result: *mut imbrex_kv_value, bytes: *const c_void, len: usize) {
    // SAFETY: the crate's contract.
    if let (Ok(result), Ok(bytes)) = unsafe { (exclusive(result), value_of(bytes, len)) } {
        result.bytes.extend_from_slice(bytes);
    }
}

/// Gives a value back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_value_free(value: *mut imbrex_kv_value) {
    // SAFETY: the crate's contract.
    unsafe { free(value) }
}

/// A batch without changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_new(out: *mut *mut imbrex_kv_batch) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv_batch { batch: Batch::new() }))) }
    })
}

/// Gives a batch back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_free(batch: *mut imbrex_kv_batch) {
    // SAFETY: the crate's contract.
    unsafe { free(batch) }
}

/// What is added from here on goes to this space. Until the first call it goes to the space that the batch is written to. All spaces of a batch are of
/// one store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_space(batch: *mut imbrex_kv_batch, kv: *const imbrex_kv) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (batch, kv) = unsafe { (exclusive(batch)?, reference(kv)?) };
        batch.batch.space(&kv.kv);
        Ok(())
    })
}

/// The key gets this value. Of two changes of one key the later one counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_put(
    batch: *mut imbrex_kv_batch,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (batch, key, value) = unsafe { (exclusive(batch)?, key_of(key, key_len)?, value_of(value, value_len)?) };
        batch.batch.put(key, value);
        Ok(())
    })
}

/// The operand is merged into the key's value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_merge(
    batch: *mut imbrex_kv_batch,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (batch, key, operand) =
            unsafe { (exclusive(batch)?, key_of(key, key_len)?, value_of(operand, operand_len)?) };
        batch.batch.merge(key, operand);
        Ok(())
    })
}

/// The key goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_delete(
    batch: *mut imbrex_kv_batch,
    key: *const c_void,
    key_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (batch, key) = unsafe { (exclusive(batch)?, key_of(key, key_len)?) };
        batch.batch.delete(key);
        Ok(())
    })
}

/// All keys from `from` on that are before `to` go. NULL: from the first key on, and to the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_delete_range(
    batch: *mut imbrex_kv_batch,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (batch, from, to) = unsafe { (exclusive(batch)?, end_of(from, from_len)?, end_of(to, to_len)?) };
        batch.batch.delete_range(from, to);
        Ok(())
    })
}

/// Adds the changes of another batch. Those that name no space go where this one's go at the moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_append(
    batch: *mut imbrex_kv_batch,
    other: *const imbrex_kv_batch,
) -> *mut imbrex_error {
    guard(|| {
        // It may be the same one.
        // SAFETY: the crate's contract.
        let copy = if std::ptr::eq(batch, other) { Some(unsafe { reference(other)? }.batch.clone()) } else { None };
        // SAFETY: the crate's contract.
        let batch = unsafe { exclusive(batch)? };
        match copy {
            Some(copy) => batch.batch.append(&copy),
            // SAFETY: the crate's contract.
            None => batch.batch.append(&unsafe { reference(other)? }.batch),
        }
    })
}

/// Forgets all changes of a batch, and the space that they go to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_clear(batch: *mut imbrex_kv_batch) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        unsafe { exclusive(batch)? }.batch.clear();
        Ok(())
    })
}

/// How many changes a batch has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_len(batch: *const imbrex_kv_batch) -> usize {
    // SAFETY: the crate's contract.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.len())
}

/// Bytes that a batch takes of the write-ahead log; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_batch_bytes(batch: *const imbrex_kv_batch) -> usize {
    // SAFETY: the crate's contract.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.bytes())
}

/// Makes all changes of a batch, or none. `durable` is as with imbrex_kv_put(). The batch stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_write(
    kv: *const imbrex_kv,
    batch: *const imbrex_kv_batch,
    durable: bool,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, batch) = unsafe { (reference(kv)?, reference(batch)?) };
        kv.kv.write(&batch.batch, durable)
    })
}

/// Begins to take pairs of a space in the order of their keys, which are written as tables at once: once, and at the drive's rate. It gathers as many bytes as
/// memtable=SIZE of the URI, and makes one piece of them, or several where partitions of the store end. The larger that is, the less time it takes. A piece is there at once and durably, as if it
/// were one batch. All pieces together are not. It keeps the store open. IMBREX_NOT_FOUND: the space was dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_ingest_new(
    kv: *const imbrex_kv,
    out: *mut *mut imbrex_kv_ingest,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let ingest = unsafe { reference(kv)? }.kv.ingest()?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv_ingest { ingest, _held: hold() }))) }
    })
}

/// Takes a pair, whose key must be behind the one before: else it is IMBREX_INVALID_ARGUMENT. It is there after a later call, or imbrex_kv_ingest_finish().
/// After an error the pair is not taken, and what was taken before stays: the call may be made again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_ingest_put(
    ingest: *mut imbrex_kv_ingest,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (ingest, key, value) = unsafe { (exclusive(ingest)?, key_of(key, key_len)?, value_of(value, value_len)?) };
        ingest.ingest.put(key, value)
    })
}

/// All pairs that were taken are there, and survive a loss of power, when this returns. More may follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_ingest_finish(ingest: *mut imbrex_kv_ingest) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { exclusive(ingest)? }.ingest.finish())
}

/// How many pairs are there, and durable: the first ones of those that were taken; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_ingest_stored(ingest: *const imbrex_kv_ingest) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { ingest.as_ref() }.map_or(0, |ingest| ingest.ingest.stored())
}

/// Gives it back. What was taken since the last piece is not there. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_ingest_free(ingest: *mut imbrex_kv_ingest) {
    // SAFETY: the crate's contract.
    unsafe { free(ingest) }
}

/// Makes durable what has been written to any space of the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_sync(kv: *const imbrex_kv) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(kv)? }.kv.sync())
}

/// What all spaces of the store have now, for reads later. It keeps the store open, and what it shows takes room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_snapshot_new(
    kv: *const imbrex_kv,
    out: *mut *mut imbrex_kv_snapshot,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let snapshot = unsafe { reference(kv)? }.kv.snapshot();
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv_snapshot { snapshot, _held: hold() }))) }
    })
}

/// Keeps what all spaces of the store have now, durably and under a name, until imbrex_kv_checkpoint_drop(). No byte is copied: what is replaced or deleted from
/// now on keeps its room. A space that is dropped cannot be opened any more, not even at a checkpoint. IMBREX_EXISTS: there is one of this name.
/// IMBREX_NO_SPACE: there are 1,024.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_checkpoint_new(kv: *const imbrex_kv, name: *const c_char) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(kv)?.kv.checkpoint(text(name)?) })
}

/// What the checkpoint of this name has, as a snapshot to read from. IMBREX_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_checkpoint_open(
    kv: *const imbrex_kv,
    name: *const c_char,
    out: *mut *mut imbrex_kv_snapshot,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let snapshot = unsafe { reference(kv)?.kv.at_checkpoint(text(name)?)? };
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv_snapshot { snapshot, _held: hold() }))) }
    })
}

/// Deletes a checkpoint. What only it had is free as tables are merged. IMBREX_NOT_FOUND: there is none of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_checkpoint_drop(kv: *const imbrex_kv, name: *const c_char) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(kv)?.kv.drop_checkpoint(text(name)?) })
}

/// The names of all checkpoints, sorted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_checkpoints(
    kv: *const imbrex_kv,
    out: *mut *mut imbrex_kv_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let names = unsafe { reference(kv)? }.kv.checkpoints();
        let list = list_of(names.into_iter().map(|name| (name, String::new())));
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(list))) }
    })
}

/// Gives a snapshot back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_snapshot_free(snapshot: *mut imbrex_kv_snapshot) {
    // SAFETY: the crate's contract.
    unsafe { free(snapshot) }
}

/// An iterator over the keys of a space, as they are now or at a snapshot. `at`: NULL is now. It stands on no key until it is moved. It keeps the store
/// open, and what it shows takes room. Where the store is full and needs that room, an iterator that is older than lease=SECONDS of the URI (600) fails its
/// next move with IMBREX_EXPIRED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_new(
    kv: *const imbrex_kv,
    at: *const imbrex_kv_snapshot,
    out: *mut *mut imbrex_kv_iterator,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (kv, at) = unsafe { (reference(kv)?, at.as_ref()) };
        let iter = match at {
            Some(at) => kv.kv.iter_at(&at.snapshot)?,
            None => kv.kv.iter()?,
        };
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_kv_iterator { iter, _held: hold() }))) }
    })
}

/// Gives an iterator back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_free(iterator: *mut imbrex_kv_iterator) {
    // SAFETY: the crate's contract.
    unsafe { free(iterator) }
}

/// Goes to the first key. After an error the iterator stands on no key, as with all that move it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_first(iterator: *mut imbrex_kv_iterator) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { exclusive(iterator)? }.iter.seek_to_first())
}

/// Goes to the last key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_last(iterator: *mut imbrex_kv_iterator) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { exclusive(iterator)? }.iter.seek_to_last())
}

/// Goes to the first key that is not before this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_seek(
    iterator: *mut imbrex_kv_iterator,
    key: *const c_void,
    key_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (iterator, key) = unsafe { (exclusive(iterator)?, key_of(key, key_len)?) };
        iterator.iter.seek(key)
    })
}

/// Goes to the last key that is not behind this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_seek_for_prev(
    iterator: *mut imbrex_kv_iterator,
    key: *const c_void,
    key_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (iterator, key) = unsafe { (exclusive(iterator)?, key_of(key, key_len)?) };
        iterator.iter.seek_for_prev(key)
    })
}

/// Goes one key on; behind the last it stands on none. One that stands on none stays there, and one whose move fails stays where it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_next(iterator: *mut imbrex_kv_iterator) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { exclusive(iterator)? }.iter.advance())
}

/// Goes one key back; before the first it stands on none. One that stands on none stays there, and one whose move fails stays where it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_prev(iterator: *mut imbrex_kv_iterator) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { exclusive(iterator)? }.iter.retreat())
}

/// Whether it stands on a key; false for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_valid(iterator: *const imbrex_kv_iterator) -> bool {
    // SAFETY: the crate's contract.
    unsafe { iterator.as_ref() }.is_some_and(|iterator| iterator.iter.get().is_some())
}

/// The key that it stands on, valid until it is moved or given back, and its bytes in `len`, which may be NULL. NULL and 0 where it stands on none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_key(iterator: *const imbrex_kv_iterator, len: *mut usize) -> *const c_void {
    // SAFETY: the crate's contract.
    unsafe { shown(iterator.as_ref().and_then(|iterator| iterator.iter.get()).map(|(key, _)| key), len) }
}

/// The value of the key that it stands on, in the same way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_iterator_value(
    iterator: *const imbrex_kv_iterator,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: the crate's contract.
    unsafe { shown(iterator.as_ref().and_then(|iterator| iterator.iter.get()).map(|(_, value)| value), len) }
}

/// Makes tables of what all spaces of the store have in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_flush(kv: *const imbrex_kv) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(kv)? }.kv.flush())
}

/// Merges tables until each key of the space from `from` on that is before `to` is in one. NULL: from the first key on, and to the last one. Other keys
/// may be merged before. What all spaces have in memory becomes tables first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_compact(
    kv: *const imbrex_kv,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (kv, from, to) = unsafe { (reference(kv)?, end_of(from, from_len)?, end_of(to, to_len)?) };
        kv.kv.compact_range(from, to)
    })
}

/// Stores about how many bytes of tables the keys from `from` on have that are before `to`. NULL: from the first key on, and to the last one. Nothing is
/// read for it but indexes of tables. What is in memory only does not count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_approximate_bytes(
    kv: *const imbrex_kv,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    out: *mut u64,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (kv, from, to) = unsafe { (reference(kv)?, end_of(from, from_len)?, end_of(to, to_len)?) };
        let bytes = kv.kv.approximate_bytes(from, to)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, bytes) }
    })
}

/// What the store has, all spaces together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_figures_now(kv: *const imbrex_kv, out: *mut imbrex_kv_figures) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let now = unsafe { reference(kv)? }.kv.figures();
        let sum = |of: fn(&(u64, u64, u64)) -> u64| now.levels.iter().map(of).sum();
        let figures = imbrex_kv_figures {
            memory: now.memory,
            log: now.log,
            tables: sum(|level| level.0),
            table_bytes: sum(|level| level.1),
            entries: sum(|level| level.2),
            zones_used: now.zones.0,
            zones_free: now.zones.1,
            partitions: now.partitions as u32,
            depth: now.depth as u32,
        };
        // SAFETY: the crate's contract.
        unsafe { put(out, figures) }
    })
}

/// Reads everything, and stores sentences about what is wrong: first what the opening found damaged. An empty list: nothing is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_kv_check(kv: *const imbrex_kv, out: *mut *mut imbrex_kv_list) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let kv = &unsafe { reference(kv)? }.kv;
        let found = kv.damage().into_iter().chain(kv.check()?);
        let list = list_of(found.map(|sentence| (sentence, String::new())));
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(list))) }
    })
}
