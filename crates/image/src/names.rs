//! What images are called, and their objects.

use imbrex_bluestore::{CollectionId, ObjectId};
use imbrex_device::{Code, Error, Result};

/// Longest name of an image or a snapshot, in bytes.
pub const MAX_IMAGE_NAME: usize = 255;
/// Longest image, in bytes: 1 PiB.
pub const MAX_IMAGE: u64 = 1 << 50;

/// Objects of images have a pool of their own.
const POOL: i64 = 1;
/// And one collection.
pub(crate) const ALL: CollectionId = CollectionId { pool: POOL, seed: 0 };
/// In the place of a snapshot's number: the object as it is now. It comes behind all snapshots.
pub(crate) const HEAD: u64 = u64::MAX;

fn object(hash: u32, namespace: &[u8], name: &[u8], snap: u64) -> ObjectId {
    ObjectId { pool: POOL, hash, namespace: namespace.to_vec(), name: name.to_vec(), snap, generation: 0 }
}

/// The list of all images.
pub(crate) fn directory() -> ObjectId {
    object(0, b"", b"images", 0)
}

/// What is known of an image.
pub(crate) fn header(image: u64) -> ObjectId {
    object(0, b"image", &image.to_be_bytes(), 0)
}

/// A piece of an image, now or at a snapshot. All of an image stand together, in their order.
pub(crate) fn data(image: u64, number: u64, snap: u64) -> ObjectId {
    object(image as u32, &image.to_be_bytes(), &number.to_be_bytes(), snap)
}

/// The number of a piece of this image, and its snapshot.
pub(crate) fn number_of(image: u64, id: &ObjectId) -> Option<(u64, u64)> {
    let own = id.hash == image as u32 && id.namespace == image.to_be_bytes();
    let number = id.name[..].try_into().ok().filter(|_| own)?;
    Some((u64::from_be_bytes(number), id.snap))
}

/// Refuses a name that no image and no snapshot can have.
pub(crate) fn check(name: &str) -> Result<()> {
    if name.len() > MAX_IMAGE_NAME {
        let sentence = format!("a name of {} bytes is too long; it may have {MAX_IMAGE_NAME}", name.len());
        return Err(Error::refused(Code::NameTooLong, "", sentence));
    }
    if name.is_empty() || name.contains('@') || name.chars().any(char::is_control) {
        let sentence = format!(
            "{name:?} can be no name of an image or a snapshot: it is empty, or has an @ or a control character"
        );
        return Err(Error::refused(Code::InvalidArgument, "", sentence));
    }
    Ok(())
}
