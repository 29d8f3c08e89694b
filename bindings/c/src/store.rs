//! The object store: collections, objects, transactions.

use crate::error::{
    free, free_elsewhere, guard, imbrex_error, invalid, put, quiet, reference, text, wanted, watch_forks,
};
use crate::kv::{bytes, exclusive};
use crate::log::listen;
use ::imbrex_store::{CollectionId, Hint, ObjectId, Store, Survives, Transaction, Usage};
use imbrex_bluefs::Result;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;

/// An open object store. Any number of threads may use it at once.
pub struct imbrex_store {
    store: Store,
}

/// Steps that happen together or not at all, in the order in which they are added. One thread may change it at a time.
pub struct imbrex_store_transaction {
    transaction: Transaction,
}

/// A part of a pool. Its objects' hashes have the same lowest bits as `seed`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_store_collection {
    /// Which pool.
    pool: i64,
    /// The lowest bits of its objects' hashes.
    seed: u32,
}

/// What an object is called. Any bytes will do for name and namespace, up to 4,096 each; they need not end with a zero byte.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_store_object {
    /// Which pool.
    pool: i64,
    /// Decides in which collection of the pool it is. imbrex_store_hash() gives one.
    hash: u32,
    /// Names of one namespace stand together. NULL where it is empty.
    namespace_: *const c_void,
    /// Bytes of the namespace.
    namespace_len: usize,
    /// Its name there. NULL where it is empty.
    name: *const c_void,
    /// Bytes of the name.
    name_len: usize,
    /// Of which snapshot: the caller's number.
    snap: u64,
    /// Which generation: the caller's number.
    generation: u64,
}

/// What a caller expects of an object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_store_hint {
    /// It will be this long, in bytes; 0: unknown.
    object: u64,
    /// It is written in pieces of so many bytes; 0: unknown.
    write: u64,
    /// It is written once, or only appended to, and read in long pieces.
    immutable: bool,
    /// It will be gone soon.
    short_lived: bool,
}

/// How full a store is, in bytes where nothing else is said.
#[repr(C)]
pub struct imbrex_store_usage {
    /// Objects.
    objects: u64,
    /// Of all objects, holes with them.
    bytes: u64,
    /// Of blocks that objects name on the drive, each once however many share it; and those of which changes wait (`uncounted`).
    stored: u64,
    /// Of blocks that wait in the metadata.
    deferred: u64,
    /// Of zones that are free for the store.
    free: u64,
    /// That the cleaner has moved since the opening.
    moved: u64,
    /// Changes of how many extents name a blob that wait until many are made together: not bytes.
    uncounted: u64,
    /// That the store can have, if no other engine of the drive takes more zones.
    capacity: u64,
}

/// Objects, or pairs of a key and a value, in order; or sentences. It does not change; any thread may look at it.
pub struct imbrex_store_list {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    objects: Vec<ObjectId>,
    sentences: Vec<CString>,
}

/// An object of the caller.
///
/// # Safety
/// `object` is NULL or valid, and so are its namespace and its name.
unsafe fn object_of(object: *const imbrex_store_object) -> Result<ObjectId> {
    // SAFETY: as required of the caller.
    unsafe {
        let object = reference(object)?;
        let namespace = bytes(object.namespace_, object.namespace_len, usize::MAX >> 1, "namespace")?.to_vec();
        let name = bytes(object.name, object.name_len, usize::MAX >> 1, "name")?.to_vec();
        let imbrex_store_object { pool, hash, snap, generation, .. } = *object;
        Ok(ObjectId { pool, hash, namespace, name, snap, generation })
    }
}

/// Bytes of the caller of any length.
///
/// # Safety
/// As [`bytes`].
unsafe fn any<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    // SAFETY: as required of the caller.
    unsafe { bytes(data, len, usize::MAX >> 1, what) }
}

fn collection_of(collection: imbrex_store_collection) -> CollectionId {
    CollectionId { pool: collection.pool, seed: collection.seed }
}

/// Adds a step.
///
/// # Safety
/// The crate's contract.
unsafe fn step(
    transaction: *mut imbrex_store_transaction,
    object: *const imbrex_store_object,
    add: impl FnOnce(&mut Transaction, &ObjectId) -> Result<()>,
) -> *mut imbrex_error {
    // SAFETY: as required of the caller.
    guard(|| unsafe { add(&mut exclusive(transaction)?.transaction, &object_of(object)?) })
}

/// Opens the object store of a URI, as "imbrex:///dev/sdb" or "imbrex:///data/drive.img?cache=256M"; what a crash has left is recovered. A process has one store of
/// a drive: opening it again gives another handle of the same. The drive is released when the last is given back. With format=on in the URI a drive that is not
/// formatted is formatted first. IMBREX_LOG counts as with imbrex_fs_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_open(uri: *const c_char, out: *mut *mut imbrex_store) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        watch_forks();
        listen();
        crate::rocksdb::provide();
        // SAFETY: the crate's contract.
        let store = Store::open_uri(unsafe { text(uri)? }, &[])?;
        crate::metrics::objects_opened(&store);
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_store { store }))) }
    })
}

/// Gives a store back. The last handle makes durable what was queued; an error of that is only logged, so call imbrex_store_sync() before. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_close(store: *mut imbrex_store) {
    // SAFETY: the crate's contract.
    unsafe { free_elsewhere(store) }
}

/// A hash of a namespace and a name, as `imbrex store` gives its objects: CRC-32C of both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_hash(
    namespace_: *const c_void,
    namespace_len: usize,
    name: *const c_void,
    name_len: usize,
) -> u32 {
    quiet(0, || {
        // SAFETY: the crate's contract.
        let both = unsafe { (any(namespace_, namespace_len, "namespace"), any(name, name_len, "name")) };
        match both {
            (Ok(namespace), Ok(name)) => ObjectId::new(0, namespace, name).hash,
            _ => 0,
        }
    })
}

/// A transaction without steps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_transaction_new(out: *mut *mut imbrex_store_transaction) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        let new = imbrex_store_transaction { transaction: Transaction::new() };
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(new))) }
    })
}

/// Gives a transaction back that was not queued. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_transaction_free(transaction: *mut imbrex_store_transaction) {
    // SAFETY: the crate's contract.
    unsafe { free(transaction) }
}

/// Makes a collection of the objects of its pool whose hashes have the same lowest `bits` bits as its seed, 0 to 32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_create_collection(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    bits: u8,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let transaction = unsafe { exclusive(transaction)? };
        transaction.transaction.create_collection(collection_of(collection), bits);
        Ok(())
    })
}

/// The collection, which must be empty, is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_remove_collection(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let transaction = unsafe { exclusive(transaction)? };
        transaction.transaction.remove_collection(collection_of(collection));
        Ok(())
    })
}

/// The collection goes by one bit more, and `into` is made of the objects for which that bit is one: its seed is that of `collection` with the bit. Two records change,
/// however many objects there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_split_collection(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    into: imbrex_store_collection,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let transaction = unsafe { exclusive(transaction)? };
        transaction.transaction.split_collection(collection_of(collection), collection_of(into));
        Ok(())
    })
}

/// The collection's objects are those of `into`, from which imbrex_store_split_collection() would have taken them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_merge_collection(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    into: imbrex_store_collection,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let transaction = unsafe { exclusive(transaction)? };
        transaction.transaction.merge_collection(collection_of(collection), collection_of(into));
        Ok(())
    })
}

/// The object is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_touch(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.touch(collection_of(collection), object);
            Ok(())
        })
    }
}

/// `len` bytes stand at `offset`. The bytes are copied. An object that ends before that has zeros between. To write nothing changes no size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_write(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    offset: u64,
    buffer: *const c_void,
    len: usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.write(collection_of(collection), object, offset, any(buffer, len, "buffer")?);
            Ok(())
        })
    }
}

/// `len` zeros stand at `offset`, and take no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_zero(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    offset: u64,
    len: u64,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.zero(collection_of(collection), object, offset, len);
            Ok(())
        })
    }
}

/// The object has this size. What is new is zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_truncate(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    size: u64,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.truncate(collection_of(collection), object, size);
            Ok(())
        })
    }
}

/// The object is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_remove(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.remove(collection_of(collection), object);
            Ok(())
        })
    }
}

/// The object is called `new_name`, which no object of the collection has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_rename(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    new_name: *const imbrex_store_object,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.rename(collection_of(collection), object, &object_of(new_name)?);
            Ok(())
        })
    }
}

/// `clone`, of the same collection, is what the object is: bytes, attributes, omap. It shares the bytes, which are not copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_clone(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    clone: *const imbrex_store_object,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.clone_object(collection_of(collection), object, &object_of(clone)?);
            Ok(())
        })
    }
}

/// `len` bytes of the object, from `from` on, stand in `other` at `at`. Whole blocks of 4 KiB are shared where `other` is another object and both offsets have the same
/// distance from one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_clone_range(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    other: *const imbrex_store_object,
    from: u64,
    len: u64,
    at: u64,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.clone_range(collection_of(collection), object, &object_of(other)?, (from, len, at));
            Ok(())
        })
    }
}

/// What is to be expected of the object's next writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_set_hint(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    hint: imbrex_store_hint,
) -> *mut imbrex_error {
    let imbrex_store_hint { object: size, write, immutable, short_lived } = hint;
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            let hint = Hint { object: size, write, immutable, short_lived, ..Hint::default() };
            to.hint(collection_of(collection), object, hint);
            Ok(())
        })
    }
}

/// The object has an attribute of this name and value beside its others: a name of 256 bytes at most, a value of 65,536, and 1 MiB of all together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_set_attribute(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    name: *const c_void,
    name_len: usize,
    value: *const c_void,
    value_len: usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            let (name, value) = (any(name, name_len, "name")?, any(value, value_len, "value")?);
            to.set_attributes(collection_of(collection), object, &[(name, value)]);
            Ok(())
        })
    }
}

/// The object has no attribute of this name; with NULL and 0 it has none at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_remove_attribute(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    name: *const c_void,
    name_len: usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            match name.is_null() && name_len == 0 {
                true => to.remove_attributes(collection_of(collection), object),
                false => to.remove_attribute(collection_of(collection), object, any(name, name_len, "name")?),
            };
            Ok(())
        })
    }
}

/// The object's omap has a pair of this key and value beside its others: a key of 32 KiB at most, a value of 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_omap_set(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            let (key, value) = (any(key, key_len, "key")?, any(value, value_len, "value")?);
            to.omap_set(collection_of(collection), object, &[(key, value)]);
            Ok(())
        })
    }
}

/// The object's omap has no key from `from` on and before `to`. With NULL and 0 for `to` it has not the key `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_omap_remove(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |transaction, object| {
            let from = any(from, from_len, "key")?;
            match to.is_null() && to_len == 0 {
                true => transaction.omap_remove(collection_of(collection), object, &[from]),
                false => {
                    let to = any(to, to_len, "key")?;
                    transaction.omap_remove_range(collection_of(collection), object, from, to)
                }
            };
            Ok(())
        })
    }
}

/// The object's omap has no keys and no header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_omap_clear(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.omap_clear(collection_of(collection), object);
            Ok(())
        })
    }
}

/// The object's omap has this header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_omap_set_header(
    transaction: *mut imbrex_store_transaction,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    header: *const c_void,
    len: usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        step(transaction, object, |to, object| {
            to.omap_header(collection_of(collection), object, any(header, len, "header")?);
            Ok(())
        })
    }
}

/// Makes the changes of a transaction, all of them or none; from then on everybody sees them. The transaction is empty then, whatever happens, and may take new steps.
/// `ticket`, which may be NULL, is for imbrex_store_wait(). Transactions become durable in the order of these calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_queue(
    store: *const imbrex_store,
    transaction: *mut imbrex_store_transaction,
    ticket: *mut u64,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (store, transaction) = unsafe { (reference(store)?, exclusive(transaction)?) };
        let queued = store.store.queue(std::mem::take(&mut transaction.transaction))?;
        // SAFETY: the crate's contract.
        if ticket.is_null() { Ok(()) } else { unsafe { put(ticket, queued.number()) } }
    })
}

/// Returns when a transaction that was queued, and all before it, survive the end of the process, or with `durable` a loss of power.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_wait(
    store: *const imbrex_store,
    ticket: u64,
    durable: bool,
) -> *mut imbrex_error {
    let what = if durable { Survives::Power } else { Survives::Process };
    guard(|| {
        // SAFETY: the crate's contract.
        let store = unsafe { reference(store)? };
        let ticket = store.store.ticket(ticket).ok_or_else(|| invalid("there is no ticket of this number"))?;
        store.store.wait_for(ticket, what)
    })
}

/// Makes the changes of a transaction, and returns when they are durable. The transaction is empty then, whatever happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_commit(
    store: *const imbrex_store,
    transaction: *mut imbrex_store_transaction,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let (store, transaction) = unsafe { (reference(store)?, exclusive(transaction)?) };
        store.store.commit(std::mem::take(&mut transaction.transaction))
    })
}

/// All that was queued is durable when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_sync(store: *const imbrex_store) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(store)? }.store.sync())
}

/// Reads bytes of an object from `offset` on: `len` of them, or fewer where it ends; how many is stored in `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_read(
    store: *const imbrex_store,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    out: *mut usize,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, object) = unsafe { (reference(store)?, object_of(object)?) };
        if len > 0 {
            wanted(buffer)?;
        }
        let found = store.store.read(collection_of(collection), &object, offset, len as u64)?;
        if !found.is_empty() {
            // SAFETY: not NULL, valid for `len` bytes as required of the caller, and there are no more.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), buffer.cast(), found.len()) };
        }
        // SAFETY: the crate's contract.
        unsafe { put(out, found.len()) }
    })
}

/// The size of an object in bytes. IMBREX_NOT_FOUND: there is no such object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_size(
    store: *const imbrex_store,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    out: *mut u64,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, object) = unsafe { (reference(store)?, object_of(object)?) };
        let size = store.store.stat(collection_of(collection), &object)?.size;
        // SAFETY: the crate's contract.
        unsafe { put(out, size) }
    })
}

fn list(entries: Vec<(Vec<u8>, Vec<u8>)>) -> *mut imbrex_store_list {
    Box::into_raw(Box::new(imbrex_store_list { entries, objects: Vec::new(), sentences: Vec::new() }))
}

/// The attributes of an object, as a list of names and values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_attributes(
    store: *const imbrex_store,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    out: *mut *mut imbrex_store_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, object) = unsafe { (reference(store)?, object_of(object)?) };
        let all = store.store.stat(collection_of(collection), &object)?.attributes;
        // SAFETY: the crate's contract.
        unsafe { put(out, list(all.into_iter().collect())) }
    })
}

/// Pairs of an object's omap from the key `from` on, `most` at most. A list of fewer is the last. The next one begins with the key behind its last: that key and a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_omap(
    store: *const imbrex_store,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    from: *const c_void,
    from_len: usize,
    most: usize,
    out: *mut *mut imbrex_store_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, object, from) = unsafe { (reference(store)?, object_of(object)?, any(from, from_len, "key")?) };
        let (mut all, mut next) = (Vec::new(), Some(from.to_vec()));
        // A page may have fewer, though there are more.
        while let Some(from) = next.take_if(|_| all.len() < most) {
            let page = store.store.omap(collection_of(collection), &object, &from, most - all.len())?;
            all.extend(page.all);
            next = page.next;
        }
        // SAFETY: the crate's contract.
        unsafe { put(out, list(all)) }
    })
}

/// The header of an object's omap, as a list of one entry whose value it is; of none where there is no header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_omap_header(
    store: *const imbrex_store,
    collection: imbrex_store_collection,
    object: *const imbrex_store_object,
    out: *mut *mut imbrex_store_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, object) = unsafe { (reference(store)?, object_of(object)?) };
        let header = store.store.omap_header(collection_of(collection), &object)?;
        let all = header.into_iter().map(|header| (Vec::new(), header)).collect();
        // SAFETY: the crate's contract.
        unsafe { put(out, list(all)) }
    })
}

/// Objects of a collection in the order of their hashes with the bits reversed, then of namespace, name, snapshot and generation: from `from` on, or from the first where that is NULL,
/// `most` at most. A list of fewer is the last. The next one begins with the last object of this one, with a generation that is one higher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_objects(
    store: *const imbrex_store,
    collection: imbrex_store_collection,
    from: *const imbrex_store_object,
    most: usize,
    out: *mut *mut imbrex_store_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let store = unsafe { reference(store)? };
        // SAFETY: the crate's contract.
        let from = if from.is_null() { None } else { Some(unsafe { object_of(from)? }) };
        let (mut objects, mut next, mut first) = (Vec::new(), from, true);
        while objects.len() < most && (first || next.is_some()) {
            let page = store.store.list(collection_of(collection), next.as_ref(), most - objects.len())?;
            objects.extend(page.all);
            (next, first) = (page.next, false);
        }
        let list = imbrex_store_list { entries: Vec::new(), objects, sentences: Vec::new() };
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(list))) }
    })
}

/// Makes all durable, and compares all records, with `deep` also all bytes with their checksums. `out`: a list of sentences about what is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_check(
    store: *const imbrex_store,
    deep: bool,
    out: *mut *mut imbrex_store_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let store = unsafe { reference(store)? };
        let wrong = store.store.check_all(deep)?.wrong;
        let sentences = wrong.into_iter().map(|one| CString::new(one.replace('\0', "?")).unwrap_or_default());
        let list = imbrex_store_list { entries: Vec::new(), objects: Vec::new(), sentences: sentences.collect() };
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(list))) }
    })
}

/// Says how full a store is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_stat(
    store: *const imbrex_store,
    out: *mut imbrex_store_usage,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let usage = unsafe { reference(store)? }.store.usage();
        let Usage { objects, bytes, stored, uncounted, deferred, free, capacity, moved, .. } = usage;
        // SAFETY: the crate's contract.
        unsafe { put(out, imbrex_store_usage { objects, bytes, stored, deferred, free, moved, uncounted, capacity }) }
    })
}

/// How many entries; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_list_len(list: *const imbrex_store_list) -> usize {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.map_or(0, |list| list.entries.len() + list.objects.len() + list.sentences.len())
}

/// The key of an entry, or the name of an attribute, and how many bytes it has in `len`, which may be NULL. Valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_list_key(
    list: *const imbrex_store_list,
    index: usize,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: the crate's contract.
    unsafe { crate::kv::shown(list.as_ref().and_then(|list| list.entries.get(index)).map(|entry| &entry.0[..]), len) }
}

/// The value of an entry, and how many bytes it has in `len`, which may be NULL. Valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_list_value(
    list: *const imbrex_store_list,
    index: usize,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: the crate's contract.
    unsafe { crate::kv::shown(list.as_ref().and_then(|list| list.entries.get(index)).map(|entry| &entry.1[..]), len) }
}

/// An object of the list. Its names are valid as long as the list. False beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_list_object(
    list: *const imbrex_store_list,
    index: usize,
    out: *mut imbrex_store_object,
) -> bool {
    // SAFETY: the crate's contract.
    let found = unsafe { list.as_ref() }.and_then(|list| list.objects.get(index)).filter(|_| !out.is_null());
    let Some(ObjectId { pool, hash, namespace, name, snap, generation }) = found else { return false };
    let object = imbrex_store_object {
        pool: *pool,
        hash: *hash,
        namespace_: namespace.as_ptr().cast(),
        namespace_len: namespace.len(),
        name: name.as_ptr().cast(),
        name_len: name.len(),
        snap: *snap,
        generation: *generation,
    };
    // SAFETY: not NULL, and valid as required of the caller.
    unsafe { out.write(object) };
    true
}

/// A sentence of the list. Valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_list_text(list: *const imbrex_store_list, index: usize) -> *const c_char {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.and_then(|list| list.sentences.get(index)).map_or(null(), |text| text.as_ptr())
}

/// Gives a list back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_store_list_free(list: *mut imbrex_store_list) {
    // SAFETY: the crate's contract.
    unsafe { free(list) }
}
