//! The chunk store: names of chunks.

use crate::chunk::{give, id_of, imbrex_chunk_id, imbrex_chunk_store};
use crate::error::{guard_chunk, imbrex_error, invalid, reference, text, wanted};
use imbrex_bluefs::Result;
use imbrex_chunkstore::ChunkId;
use std::ffi::c_char;

/// Most bytes of a chunk's name, and its NUL.
pub const IMBREX_CHUNK_NAME_BYTES: usize = 1024;

/// A name and what it stands for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_chunk_named_info {
    /// Ends with a NUL.
    name: [c_char; IMBREX_CHUNK_NAME_BYTES],
    /// How many chunks it stands for.
    chunks: usize,
    /// Their bytes.
    len: u64,
    /// All of them take no more appends.
    sealed: bool,
}

/// A name with its NUL, in as many bytes as the longest needs.
fn of(name: &str) -> [c_char; IMBREX_CHUNK_NAME_BYTES] {
    let mut out = [0; IMBREX_CHUNK_NAME_BYTES];
    for (to, byte) in out.iter_mut().take(IMBREX_CHUNK_NAME_BYTES - 1).zip(name.bytes()) {
        *to = byte as c_char;
    }
    out
}

/// Names chunks durably: `count` of them in order, at least one, as for a file that is longer than a chunk may be. A name is a relative path, UTF-8, of
/// at most IMBREX_CHUNK_NAME_BYTES bytes with its NUL. After a crash it is there or not, with all that the chunks held when this was called. A chunk
/// has one name at most: one that these had before is gone. Where other chunks have this name that is an error (IMBREX_EXISTS), or, with `replace`,
/// they are deleted with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_name(
    store: *const imbrex_chunk_store,
    name: *const c_char,
    ids: *const imbrex_chunk_id,
    count: usize,
    replace: bool,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, name) = unsafe { (reference(store)?, text(name)?) };
        // SAFETY: the crate's contract: NULL, or `count` ids.
        let ids = (0..count).map(|i| unsafe { id_of(if ids.is_null() { ids } else { ids.add(i) }) });
        let ids = ids.collect::<Result<Vec<ChunkId>>>()?;
        Ok(store.store.name(&[(name, &ids)], replace)?)
    })
}

/// The chunks of a name have none any more, durably. IMBREX_NOT_FOUND: there is no such name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_unname(
    store: *const imbrex_chunk_store,
    name: *const c_char,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, name) = unsafe { (reference(store)?, text(name)?) };
        Ok(store.store.unname(name)?)
    })
}

/// Stores the ids of the chunks that a name stands for, in order, `most` at most, and in `count` how many there are. `ids` may be NULL where `most` is 0.
/// IMBREX_NOT_FOUND: there is no such name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_named(
    store: *const imbrex_chunk_store,
    name: *const c_char,
    ids: *mut imbrex_chunk_id,
    most: usize,
    count: *mut usize,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(count)?;
        if ids.is_null() && most > 0 {
            return Err(invalid("an output parameter is NULL").into());
        }
        // SAFETY: the crate's contract.
        let (store, name) = unsafe { (reference(store)?, text(name)?) };
        let found = store.store.named(name)?;
        for (i, id) in found.iter().take(most).enumerate() {
            // SAFETY: there is room for `most`.
            unsafe { ids.add(i).write((*id).into()) };
        }
        // SAFETY: the crate's contract.
        unsafe { give(count, found.len()) }
    })
}

/// Stores the name of a chunk with its NUL, in a buffer of IMBREX_CHUNK_NAME_BYTES bytes; an empty one where the chunk has none. Stores its place among the
/// chunks that the name stands for, from 0; `place` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_name_of(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    name: *mut c_char,
    place: *mut usize,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(name)?;
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        store.store.stat(id)?;
        let found = store.store.name_of(id);
        let text = found.as_ref().map_or("", |found| &found.name);
        // SAFETY: the crate's contract: so many bytes, which need no alignment.
        unsafe { give(name.cast(), of(text))? };
        if !place.is_null() {
            // SAFETY: the crate's contract.
            unsafe { give(place, found.map_or(0, |found| found.place as usize))? };
        }
        Ok(())
    })
}

/// Stores the next names behind `after`, which need not be there, or the first ones where it is NULL, of those that begin with `prefix`, or of all where
/// that is NULL: `most` at most, and in `count` how many. Fewer than `most` are the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_names(
    store: *const imbrex_chunk_store,
    after: *const c_char,
    prefix: *const c_char,
    names: *mut imbrex_chunk_named_info,
    most: usize,
    count: *mut usize,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(count)?;
        wanted(names)?;
        // SAFETY: the crate's contract.
        let store = unsafe { reference(store)? };
        // SAFETY: the crate's contract.
        let after = if after.is_null() { None } else { Some(unsafe { text(after)? }) };
        // SAFETY: the crate's contract.
        let prefix = if prefix.is_null() { "" } else { unsafe { text(prefix)? } };
        let page = store.store.names(after, prefix, most);
        for (i, found) in page.iter().enumerate() {
            let info = imbrex_chunk_named_info {
                name: of(&found.name),
                chunks: found.chunks as usize,
                len: found.len,
                sealed: found.sealed,
            };
            // SAFETY: there is room for `most`, and a page has no more.
            unsafe { names.add(i).write(info) };
        }
        // SAFETY: the crate's contract.
        unsafe { give(count, page.len()) }
    })
}
