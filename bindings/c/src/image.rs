//! Block images on an object store.

use crate::error::{
    free, free_elsewhere, guard, imbrex_error, invalid, put, quiet, reference, text, wanted, watch_forks,
};
use crate::log::listen;
use ::imbrex_image::control::{Control, socket_of};
use ::imbrex_image::{Image, Images, LimitChange, Survives, Watch};
use imbrex_device::Result;
use imbrex_store::Store;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::null;

/// The images of an object store. Any number of threads may use them at once.
pub struct imbrex_images {
    /// Gone before the images are.
    _control: Option<Control>,
    images: Images,
    drive: String,
    /// Behind the images.
    _looks: Looks,
}

impl Drop for imbrex_images {
    fn drop(&mut self) {
        crate::metrics::images_closing(&self.drive, &self.images);
    }
}

/// Who has let the images go has let the drive go, too: metrics that are being read keep it for a moment.
struct Looks(Watch);

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.wait_for_looks();
    }
}

/// An open image, or a snapshot of one. Any number of threads may use it at once.
pub struct imbrex_image {
    image: Image,
}

/// Names of images. It does not change; any thread may look at it.
pub struct imbrex_image_list {
    names: Vec<CString>,
}

/// Limits of an image. 0: there is none.
#[repr(C)]
pub struct imbrex_image_limits {
    /// Bytes that it may take: `used` and `kept` of imbrex_image_info together. A write beyond them fails with IMBREX_NO_SPACE.
    used: u64,
    /// Reads, writes and discards a second, of all clients together. Others wait.
    iops: u64,
    /// Bytes that are read and written a second, of all clients together. Others wait.
    bandwidth: u64,
}

/// What an image is.
#[repr(C)]
pub struct imbrex_image_info {
    /// Its size in bytes.
    size: u64,
    /// Bytes of blocks that stand for it now. Those that it shares with others count; those that it has of a parent do not.
    used: u64,
    /// Bytes of blocks that were kept for its snapshots when it changed behind them.
    kept: u64,
    /// What it may take, and what may be asked of it.
    limits: imbrex_image_limits,
    /// Seconds since 1970 when it was made.
    created: u64,
    /// Its snapshots.
    snapshots: u32,
    /// It is a clone, and has what it has not changed of its parent.
    clone: bool,
}

fn survives(durable: bool) -> Survives {
    if durable { Survives::Power } else { Survives::Process }
}

/// Has `act` do something with the image of a name.
///
/// # Safety
/// The crate's contract.
unsafe fn named(
    images: *const imbrex_images,
    name: *const c_char,
    act: impl FnOnce(&Images, &str) -> Result<()>,
) -> *mut imbrex_error {
    // SAFETY: as required of the caller.
    guard(|| unsafe { act(&reference(images)?.images, text(name)?) })
}

/// Opens the images of the object store of a URI, as "imbrex:///dev/sdb" or "imbrex:///data/drive.img?cache=256M"; what a crash has left is recovered.
/// With format=on in the URI a drive that is not formatted is formatted first. The drive is released when these and all images are given back.
/// `control`: other processes of this user, as `imbrex image`, reach these images by a socket until they are given back. IMBREX_LOG and IMBREX_METRICS
/// count as with imbrex_fs_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_images_open(
    uri: *const c_char,
    control: bool,
    out: *mut *mut imbrex_images,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        watch_forks();
        listen();
        crate::rocksdb::provide();
        // SAFETY: the crate's contract.
        let uri = unsafe { text(uri)? };
        let store = Store::open_uri(uri, &[])?;
        let images = Images::open((*store).clone(), store.clone())?;
        crate::metrics::images_opened(&store, &images);
        let (drive, looks) = (store.volume().name().to_string(), Looks(images.watch()));
        drop(store);
        let path = uri.strip_prefix(imbrex_drives::SCHEME).map(|rest| rest.split('?').next().unwrap_or_default());
        let socket = path.filter(|_| control).and_then(|path| socket_of(Path::new(path)));
        let control = socket.and_then(|socket| match Control::new(images.clone(), &socket) {
            Ok(control) => Some(control),
            Err(error) => {
                tracing::warn!(%error, "other commands cannot reach these images");
                None
            }
        });
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_images { _control: control, images, drive, _looks: looks }))) }
    })
}

/// Gives images back. When the last handle of a store is given back, all that was written is made durable; an error of that is only logged, so call
/// imbrex_image_flush() before. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_images_close(images: *mut imbrex_images) {
    // SAFETY: the crate's contract.
    unsafe { free_elsewhere(images) }
}

/// Makes an image of `size` bytes. It has zeros, which take no room. A name has 1 to 255 bytes, without '@' and control characters. IMBREX_EXISTS:
/// there is one of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_create(
    images: *const imbrex_images,
    name: *const c_char,
    size: u64,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.create(name, size)) }
}

/// Removes an image that has no snapshots and that nobody has open to write. IMBREX_NOT_EMPTY: it has snapshots. IMBREX_BUSY: somebody has it open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_remove(images: *const imbrex_images, name: *const c_char) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.remove(name)) }
}

/// Gives an image another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_rename(
    images: *const imbrex_images,
    name: *const c_char,
    to: *const c_char,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.rename(name, text(to)?)) }
}

/// Gives an image another size. What is new is zeros. IMBREX_BUSY: it becomes smaller, and somebody has it open to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_resize(
    images: *const imbrex_images,
    name: *const c_char,
    size: u64,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.resize(name, size)) }
}

/// Gives an image these limits, all three, durably. They count at once, for requests that wait, too. What it takes already is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_limit(
    images: *const imbrex_images,
    name: *const c_char,
    limits: *const imbrex_image_limits,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe {
        named(images, name, |images, name| {
            let imbrex_image_limits { used, iops, bandwidth } = reference(limits)?;
            images.limit(name, LimitChange { used: Some(*used), iops: Some(*iops), bandwidth: Some(*bandwidth) })
        })
    }
}

/// Keeps what an image has now, all writes that have returned, as a snapshot: durably, and without a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_snapshot(
    images: *const imbrex_images,
    name: *const c_char,
    snapshot: *const c_char,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.snapshot(name, text(snapshot)?)) }
}

/// Removes a snapshot. IMBREX_BUSY: it has clones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_snapshot_remove(
    images: *const imbrex_images,
    name: *const c_char,
    snapshot: *const c_char,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.remove_snapshot(name, text(snapshot)?)) }
}

/// An image is again what it was at a snapshot. IMBREX_BUSY: somebody has it open to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_rollback(
    images: *const imbrex_images,
    name: *const c_char,
    snapshot: *const c_char,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.rollback(name, text(snapshot)?)) }
}

/// Makes an image `to` that has what another had at a snapshot. It shares all bytes with it until either changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_clone(
    images: *const imbrex_images,
    name: *const c_char,
    snapshot: *const c_char,
    to: *const c_char,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.clone_image(name, text(snapshot)?, text(to)?)) }
}

/// A clone needs its parent no more. No byte is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_flatten(images: *const imbrex_images, name: *const c_char) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    unsafe { named(images, name, |images, name| images.flatten(name)) }
}

/// Says what an image is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_stat(
    images: *const imbrex_images,
    name: *const c_char,
    out: *mut imbrex_image_info,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (images, name) = unsafe { (reference(images)?, text(name)?) };
        let info = images.images.info(name)?;
        let (snapshots, clone) = (info.snapshots.len() as u32, info.parent.is_some());
        let of = |limit: Option<u64>| limit.unwrap_or(0);
        let limits = imbrex_image_limits {
            used: of(info.limits.used),
            iops: of(info.limits.iops),
            bandwidth: of(info.limits.bandwidth),
        };
        let (size, used, kept, created) = (info.size, info.used, info.kept, info.created);
        let info = imbrex_image_info { size, used, kept, limits, created, snapshots, clone };
        // SAFETY: the crate's contract.
        unsafe { put(out, info) }
    })
}

/// Lists the names of all images, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_names(
    images: *const imbrex_images,
    out: *mut *mut imbrex_image_list,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let names = unsafe { reference(images)? }.images.names()?;
        let names = names.into_iter().map(|name| CString::new(name).unwrap_or_default()).collect();
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_image_list { names }))) }
    })
}

/// How many names; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_list_len(list: *const imbrex_image_list) -> usize {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.map_or(0, |list| list.names.len())
}

/// A name. Valid as long as the list; NULL beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_list_name(list: *const imbrex_image_list, index: usize) -> *const c_char {
    // SAFETY: the crate's contract.
    unsafe { list.as_ref() }.and_then(|list| list.names.get(index)).map_or(null(), |name| name.as_ptr())
}

/// Gives a list back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_list_free(list: *mut imbrex_image_list) {
    // SAFETY: the crate's contract.
    unsafe { free(list) }
}

/// Opens an image, or a snapshot of one as "NAME@SNAPSHOT", which is open for reading only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_open(
    images: *const imbrex_images,
    name: *const c_char,
    read_only: bool,
    out: *mut *mut imbrex_image,
) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (images, name) = unsafe { (reference(images)?, text(name)?) };
        let image = images.images.image(name, read_only)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, Box::into_raw(Box::new(imbrex_image { image }))) }
    })
}

/// Gives an open image back. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_close(image: *mut imbrex_image) {
    // SAFETY: the crate's contract.
    unsafe { free_elsewhere(image) }
}

/// Whether nothing is written through this; true for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_is_read_only(image: *const imbrex_image) -> bool {
    // SAFETY: the crate's contract.
    quiet(true, || unsafe { image.as_ref() }.is_none_or(|image| image.image.is_read_only()))
}

/// The size of an open image in bytes. IMBREX_NOT_FOUND: it was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_size(image: *const imbrex_image, out: *mut u64) -> *mut imbrex_error {
    guard(|| {
        wanted(out)?;
        // SAFETY: the crate's contract.
        unsafe { put(out, reference(image)?.image.size()?) }
    })
}

/// Reads `len` bytes from `offset` on. What nobody wrote is zeros. IMBREX_RANGE: they are not in the image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_read(
    image: *const imbrex_image,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let image = unsafe { reference(image)? };
        if len == 0 {
            return image.image.read(offset, &mut []);
        }
        wanted(buffer)?;
        // SAFETY: not NULL, and valid for `len` bytes as required of the caller.
        image.image.read(offset, unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) })
    })
}

/// Writes `len` bytes from `offset` on. `durable`: they survive a loss of power when this returns. Else they survive the end of the process now, and a loss
/// of power after imbrex_image_flush() of any image of the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_write(
    image: *const imbrex_image,
    offset: u64,
    buffer: *const c_void,
    len: usize,
    durable: bool,
) -> *mut imbrex_error {
    guard(|| {
        // SAFETY: the crate's contract.
        let image = unsafe { reference(image)? };
        let bytes = match (len, buffer.is_null()) {
            (0, _) => &[],
            (_, true) => return Err(invalid("a buffer is NULL")),
            // SAFETY: not NULL, and valid for `len` bytes as required of the caller.
            _ => unsafe { std::slice::from_raw_parts(buffer.cast(), len) },
        };
        image.image.write(offset, bytes, survives(durable))
    })
}

/// `len` zeros stand from `offset` on, and take no room: a discard, too. `durable`: as for imbrex_image_write().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_zero(
    image: *const imbrex_image,
    offset: u64,
    len: u64,
    durable: bool,
) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(image)? }.image.zero(offset, len, survives(durable)))
}

/// All that was written to any image of the store is durable when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_flush(image: *const imbrex_image) -> *mut imbrex_error {
    // SAFETY: the crate's contract.
    guard(|| unsafe { reference(image)? }.image.flush())
}

/// Whether anything is stored at `offset`, and for how many bytes from there on that is so: `len` is how many are asked about at most. What is not stored is zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imbrex_image_extent(
    image: *const imbrex_image,
    offset: u64,
    len: u64,
    stored: *mut bool,
    out: *mut u64,
) -> *mut imbrex_error {
    guard(|| {
        wanted(stored)?;
        wanted(out)?;
        // SAFETY: the crate's contract.
        let (is, run) = unsafe { reference(image)? }.image.extent(offset, len)?;
        // SAFETY: the crate's contract.
        unsafe { put(stored, is).and_then(|()| put(out, run)) }
    })
}
