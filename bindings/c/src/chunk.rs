//! The chunk store: append-only chunks on a drive.

use crate::error::{
    Failed, free, guard_chunk, imbrex_error, invalid, put, quiet, reference, text, wanted, watch_forks,
};
use crate::log::listen;
use imbrex_bluefs::Result;
use imbrex_chunkstore::{Append, ChunkId, ChunkInfo, ChunkStore, Durability, Relabel, StreamType};
use std::ffi::c_char;

/// Bytes of a chunk's id.
pub const IMBREX_CHUNK_ID_BYTES: usize = 24;
/// Kind of stream: objects' data on its way in.
pub const IMBREX_STREAM_DATA: u8 = 0;
/// Kind of stream: metadata of the layer above.
pub const IMBREX_STREAM_METADATA: u8 = 1;
/// Kind of stream: what the layer above writes when it collects its own garbage.
pub const IMBREX_STREAM_GC: u8 = 2;
/// For imbrex_chunk_append(): wherever the chunk ends.
pub const IMBREX_ANY_OFFSET: u64 = u64::MAX;

/// A chunk store on a drive. Any number of threads may use it at once.
pub struct imbrex_chunk_store {
    pub(crate) store: ChunkStore,
}

/// Id of a chunk; ids sort by their bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_chunk_id {
    /// Any bytes.
    bytes: [u8; IMBREX_CHUNK_ID_BYTES],
}

/// What a chunk is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_chunk_info {
    /// Its id.
    id: imbrex_chunk_id,
    /// Bytes.
    len: u64,
    /// In how many appends it came.
    records: u32,
    /// In how many zones it stands.
    zones: u32,
    /// Its kind of stream.
    stream: u8,
    /// Whether it takes no more appends.
    sealed: bool,
}

/// Room, in bytes.
#[repr(C)]
pub struct imbrex_chunk_space {
    /// What the drive takes of chunks that are appended in pieces of 1 MiB.
    total: u64,
    /// Of chunks.
    live: u64,
    /// What surely can be appended so before anything is cleaned.
    free: u64,
    /// What cleaning makes room of.
    dead: u64,
}

/// What a salvage has found.
#[repr(C)]
pub struct imbrex_chunk_salvaged {
    /// Chunks that are there.
    chunks: u64,
    /// Records that were found in zones that were read; 0 where journal and checkpoints were whole.
    records: u64,
    /// Zones that were read.
    zones: u64,
    /// Sentences about damage, each of which is logged as a warning.
    damage: u64,
    /// Of a new label: written zones that are not this store's, which are kept as they are.
    kept_zones: u32,
    /// The label was lost, and was made anew.
    relabelled: bool,
}

/// Bytes of a chunk that are not there as they were written.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct imbrex_chunk_damage {
    /// The chunk.
    id: imbrex_chunk_id,
    /// Offset in the chunk of the first byte.
    offset: u64,
    /// Bytes; where they are damaged and not lost, some of them are. 0: the chunk is open and may have been longer, by how much is not known.
    len: u64,
    /// The zone where they stood.
    zone: u32,
    /// The zone is offline, and nothing of it can be read. Else the scrub has found them damaged.
    lost: bool,
}

impl From<ChunkId> for imbrex_chunk_id {
    fn from(id: ChunkId) -> Self {
        imbrex_chunk_id { bytes: id.0 }
    }
}

impl From<ChunkInfo> for imbrex_chunk_info {
    fn from(info: ChunkInfo) -> Self {
        imbrex_chunk_info {
            id: info.id.into(),
            len: u64::from(info.len),
            records: info.records,
            zones: info.zones,
            stream: info.stream.number(),
            sealed: info.sealed,
        }
    }
}

/// The id behind a pointer of the caller.
///
/// # Safety
/// `id` is NULL or valid.
pub(crate) unsafe fn id_of(id: *const imbrex_chunk_id) -> Result<ChunkId> {
    // SAFETY: as required of the caller.
    unsafe { id.as_ref() }.map(|id| ChunkId(id.bytes)).ok_or_else(|| invalid("a chunk's id is NULL"))
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// `out` is NULL or valid for writes.
pub(crate) unsafe fn give<T>(out: *mut T, value: T) -> std::result::Result<(), Failed> {
    // SAFETY: as required of the caller.
    unsafe { put(out, value) }.map_err(Failed::from)
}

fn durability(durable: bool) -> Durability {
    if durable { Durability::Durable } else { Durability::Buffered }
}

fn stream_of(number: u8) -> Result<StreamType> {
    StreamType::new(number).ok_or_else(|| invalid("there are 16 kinds of streams at most; give a number from 0 to 15"))
}

/// A buffer of the caller.
///
/// # Safety
/// `buf` is NULL or valid for `len` bytes, and nobody else writes there meanwhile.
unsafe fn buffer<'a>(buf: *mut u8, len: usize) -> Result<&'a mut [u8]> {
    match (buf.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(invalid("a buffer is NULL")),
        // SAFETY: not NULL, and valid as required of the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(buf, len) }),
    }
}

/// Opens the chunk store of a URI, as "imbrex:///dev/sdb", "imbrex:///data/drive.img?open-zones=8" or
/// "imbrex://mem:?profile=tiny"; what a crash has left is recovered. A process has one store of a drive: opening it again gives
/// another handle of the same. The drive is released when the last handle is closed. IMBREX_LOG and IMBREX_METRICS count as with
/// imbrex_fs_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_open(uri: *const c_char, out: *mut *mut imbrex_chunk_store) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(out)?;
        watch_forks();
        listen();
        // SAFETY: the crate's contract.
        let store = ChunkStore::open_uri(unsafe { text(uri)? })?;
        crate::metrics::chunks_opened(&store);
        // SAFETY: the crate's contract.
        unsafe { give(out, Box::into_raw(Box::new(imbrex_chunk_store { store }))) }
    })
}

/// Opens the chunk store of a URI that imbrex_chunk_open() refuses: its journal and checkpoints are lost, and the index is made anew from
/// what stands in the zones, all of which are read. What was deleted may be back and what was sealed may be open, as far as the journal does
/// not say so any more. With `relabel` also the store of a drive that has lost both copies of its label: a new one is written in their
/// place; `volume` are the 16 bytes of the UUID where zones of several stores are there, else NULL. Written zones that are not this store's
/// stay as they are; other engines get theirs back. With read-only=on in the URI nothing on the drive changes, and the handle shows what would be
/// there. `what` may be NULL. The process must not have the store open; a salvage that did not return is to be repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_salvage(
    uri: *const c_char,
    relabel: bool,
    volume: *const u8,
    out: *mut *mut imbrex_chunk_store,
    what: *mut imbrex_chunk_salvaged,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(out)?;
        watch_forks();
        listen();
        // SAFETY: NULL, or 16 bytes, which need not be aligned.
        let volume = unsafe { volume.cast::<[u8; 16]>().as_ref() };
        let how = match (relabel, volume) {
            (true, Some(volume)) => Relabel::Volume(*volume),
            (true, None) => Relabel::Only,
            (false, None) => Relabel::No,
            (false, Some(_)) => return Err(invalid("a volume is named, but no new label is asked for").into()),
        };
        // SAFETY: the crate's contract.
        let store = ChunkStore::salvage_uri(unsafe { text(uri)? }, &[], how, |_, _, _| {})?;
        crate::metrics::chunks_opened(&store);
        let report = store.open_report();
        report.damage.iter().for_each(|what| tracing::warn!("salvage: {what}"));
        let salvaged = imbrex_chunk_salvaged {
            chunks: store.stats().chunks,
            records: report.records,
            zones: report.scanned_zones,
            damage: report.damage.len() as u64,
            kept_zones: report.relabelled.map_or(0, |new| new.kept),
            relabelled: report.relabelled.is_some(),
        };
        if !what.is_null() {
            // SAFETY: the crate's contract.
            unsafe { put(what, salvaged)? };
        }
        // SAFETY: the crate's contract.
        unsafe { give(out, Box::into_raw(Box::new(imbrex_chunk_store { store }))) }
    })
}

/// Gives a handle of a chunk store back. What was not durable may be lost with the process' last handle: see imbrex_chunk_sync().
/// NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_close(store: *mut imbrex_chunk_store) {
    // SAFETY: the crate's contract.
    unsafe { free(store) }
}

/// Stores an id that nobody has had before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_random_id(out: *mut imbrex_chunk_id) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard_chunk(|| unsafe { give(out, ChunkId::random().into()) })
}

/// Makes a chunk of a kind of stream (IMBREX_STREAM_DATA, …). `durable`: it is there after a crash when this returns; else after
/// the next imbrex_chunk_sync(), durable create, seal or delete of anybody, or imbrex_chunk_sync_chunk() or durable append of the same chunk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_create(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    stream: u8,
    durable: bool,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        store.store.create_with(id, stream_of(stream)?, durability(durable)).map_err(Failed::from)
    })
}

/// Appends `len` bytes, at least one and at most imbrex_chunk_most_append(): all of them are there after a crash, or none. Where
/// `expected` is not IMBREX_ANY_OFFSET the chunk must end there, so that repeating an append whose answer was lost is safe. Stores
/// the offset of the first byte; `offset` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_append(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    bytes: *const u8,
    len: usize,
    expected: u64,
    durable: bool,
    offset: *mut u64,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        if bytes.is_null() {
            return Err(invalid("a buffer is NULL").into());
        }
        // SAFETY: the crate's contract.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
        let expected = Some(expected).filter(|expected| *expected != IMBREX_ANY_OFFSET);
        let at = store.store.append_with(id, bytes, Append { offset: expected, durability: durability(durable) })?;
        if !offset.is_null() {
            // SAFETY: the crate's contract.
            unsafe { put(offset, at)? };
        }
        Ok(())
    })
}

/// What the two kinds of reading share.
///
/// # Safety
/// The crate's contract for pointers.
unsafe fn read_by(
    read: fn(&ChunkStore, ChunkId, u64, &mut [u8]) -> imbrex_chunkstore::Result<usize>,
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    offset: u64,
    buf: *mut u8,
    len: usize,
    out: *mut usize,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(out)?;
        // SAFETY: as required of the caller.
        let (store, id, buf) = unsafe { (reference(store)?, id_of(id)?, buffer(buf, len)?) };
        let n = read(&store.store, id, offset, buf)?;
        // SAFETY: as required of the caller.
        unsafe { give(out, n) }
    })
}

/// Reads from `offset` on, verified, and stores how many bytes there were: less than `len` only at the chunk's end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_read(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    offset: u64,
    buf: *mut u8,
    len: usize,
    out: *mut usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { read_by(ChunkStore::read, store, id, offset, buf, len, out) }
}

/// The same, but damaged bytes are given out as they are, and zeros for what cannot be read at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_rescue_read(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    offset: u64,
    buf: *mut u8,
    len: usize,
    out: *mut usize,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { read_by(ChunkStore::rescue_read, store, id, offset, buf, len, out) }
}

/// The chunk takes no more appends; sealing it again changes nothing. Stores its length; `len` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_seal(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    durable: bool,
    len: *mut u64,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        let sealed = store.store.seal_with(id, durability(durable))?;
        if !len.is_null() {
            // SAFETY: the crate's contract.
            unsafe { put(len, sealed)? };
        }
        Ok(())
    })
}

/// The chunk is gone; its id may be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_delete(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    durable: bool,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        store.store.delete_with(id, durability(durable)).map_err(Failed::from)
    })
}

/// What a chunk is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_stat(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
    out: *mut imbrex_chunk_info,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        let info = store.store.stat(id)?.into();
        // SAFETY: the crate's contract.
        unsafe { give(out, info) }
    })
}

/// Stores the next chunks behind `after` by id, which need not be there, or the first ones where it is NULL: `most` at most, and
/// in `count` how many. Fewer than `most` are the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_list(
    store: *const imbrex_chunk_store,
    after: *const imbrex_chunk_id,
    infos: *mut imbrex_chunk_info,
    most: usize,
    count: *mut usize,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(count)?;
        wanted(infos)?;
        // SAFETY: the crate's contract.
        let (store, after) = unsafe { (reference(store)?, after.as_ref()) };
        let page = store.store.list(after.map(|after| ChunkId(after.bytes)), most);
        for (i, info) in page.iter().enumerate() {
            // SAFETY: there is room for `most`, and a page has no more.
            unsafe { infos.add(i).write((*info).into()) };
        }
        // SAFETY: the crate's contract.
        unsafe { give(count, page.len()) }
    })
}

/// How much room there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_room(
    store: *const imbrex_chunk_store,
    out: *mut imbrex_chunk_space,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let space = unsafe { reference(store)? }.store.space();
        let space = imbrex_chunk_space { total: space.total, live: space.live, free: space.free, dead: space.dead };
        // SAFETY: the crate's contract.
        unsafe { give(out, space) }
    })
}

/// Stores the number of a kind of stream by its name: "data", "metadata", "gc", or one of the store's own (streams= in the URI, or
/// `imbrex chunk format --stream`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_stream(
    store: *const imbrex_chunk_store,
    name: *const c_char,
    out: *mut u8,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (store, name) = unsafe { (reference(store)?, text(name)?) };
        let stream = store.store.stream_of(name).ok_or_else(|| {
            let names = store.store.stream_names().join(", ");
            invalid(&format!("there is no stream {name:?}; there are {names}"))
        })?;
        // SAFETY: the crate's contract.
        unsafe { give(out, stream.number()) }
    })
}

/// Moves about `most` bytes out of zones that are mostly dead, or that take no more writes, which is done in the background, too. Stores how
/// many were moved, 0 where nothing is to be gained.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_clean(
    store: *const imbrex_chunk_store,
    most: u64,
    moved: *mut u64,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(moved)?;
        // SAFETY: the crate's contract.
        let bytes = unsafe { reference(store)? }.store.clean(most)?;
        // SAFETY: the crate's contract.
        unsafe { give(moved, bytes) }
    })
}

/// Goes on with the scrub of the background: verifies about `most` bytes from where it is, and stores how many it were, and whether all
/// chunks are verified now; the next call begins anew then. What is damaged is told by imbrex_chunk_damaged(), and is no error here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_scrub(
    store: *const imbrex_chunk_store,
    most: u64,
    bytes: *mut u64,
    over: *mut bool,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(bytes)?;
        wanted(over)?;
        // SAFETY: the crate's contract.
        let step = unsafe { reference(store)? }.store.scrub_on(most)?;
        // SAFETY: the crate's contract.
        unsafe {
            give(bytes, step.bytes)?;
            give(over, step.next.is_none())
        }
    })
}

/// Stores what is known to be lost, because its zone is offline, and behind that what the scrub has found damaged: `most` at most, without the first
/// `skip`, and in `count` how many. Fewer than `most` are the last. To be restored from copies, or removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_damaged(
    store: *const imbrex_chunk_store,
    skip: usize,
    damaged: *mut imbrex_chunk_damage,
    most: usize,
    count: *mut usize,
) -> *mut imbrex_error {
    guard_chunk(|| {
        wanted(count)?;
        wanted(damaged)?;
        // SAFETY: the crate's contract.
        let store = &unsafe { reference(store)? }.store;
        let of = |id: ChunkId, offset: u32, len: u32, zone: u32, lost: bool| imbrex_chunk_damage {
            id: id.into(),
            offset: u64::from(offset),
            len: u64::from(len),
            zone,
            lost,
        };
        let lost = store.lost().into_iter().map(|one| of(one.id, one.offset, one.len, one.zone, true));
        let marked = store.scrubbed().damaged.into_iter().map(|one| of(one.id, one.offset, one.len, one.zone, false));
        let mut written = 0;
        for one in lost.chain(marked).skip(skip).take(most) {
            // SAFETY: there is room for `most`.
            unsafe { damaged.add(written).write(one) };
            written += 1;
        }
        // SAFETY: the crate's contract.
        unsafe { give(count, written) }
    })
}

/// Makes everything durable that has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_sync(store: *const imbrex_chunk_store) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard_chunk(|| unsafe { reference(store)? }.store.sync().map_err(Failed::from))
}

/// Makes durable what has been appended to a chunk, and that it was created; other chunks' bytes may be, too. With the drive's write cache off
/// only their zones are written, where imbrex_chunk_sync() writes all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_sync_chunk(
    store: *const imbrex_chunk_store,
    id: *const imbrex_chunk_id,
) -> *mut imbrex_error {
    guard_chunk(|| {
        // SAFETY: the crate's contract.
        let (store, id) = unsafe { (reference(store)?, id_of(id)?) };
        store.store.sync_chunk(id).map_err(Failed::from)
    })
}

/// Makes everything durable and writes a checkpoint, so that the next opening has nothing to recover: for the end of a program.
/// The store may be used on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_checkpoint(store: *const imbrex_chunk_store) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard_chunk(|| unsafe { reference(store)? }.store.close().map_err(Failed::from))
}

/// Most bytes that a chunk of a kind of stream takes; 0: there is no such kind, or the store is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_limit(store: *const imbrex_chunk_store, stream: u8) -> u64 {
    quiet(0, || {
        // SAFETY: the crate's contract.
        let store = unsafe { store.as_ref() };
        store.zip(StreamType::new(stream)).map_or(0, |(store, stream)| u64::from(store.store.chunk_limit(stream)))
    })
}

/// Most bytes of one append; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_chunk_most_append(store: *const imbrex_chunk_store) -> usize {
    // SAFETY: the crate's contract.
    quiet(0, || unsafe { store.as_ref() }.map_or(0, |store| store.store.limits().append as usize))
}
