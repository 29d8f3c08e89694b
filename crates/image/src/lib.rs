//! Floor 5: block images on the object store. An image is a disk of a virtual machine: thin, with snapshots, and with clones that share what nobody has changed.
//!
//! An image is cut into objects of 4 MiB, which exist once they are written. Before the first write to one behind a snapshot, the object is cloned for that snapshot; before
//! the first write to one that a parent has, it is cloned from there. Clones of objects share all bytes, so neither copies any. `docs/image.md` says more.
//!
//! ```
//! use imbrex_image::{Images, Survives};
//! use imbrex_store::Store;
//!
//! let store = Store::open_uri("imbrex://mem:?profile=tiny", &[])?;
//! let images = Images::open((*store).clone(), store)?;
//! images.create("disk", 1 << 30)?;
//! let disk = images.image("disk", false)?;
//! disk.write(4096, b"hello", Survives::Power)?;
//! images.snapshot("disk", "monday")?;
//! images.clone_image("disk", "monday", "copy")?;
//! let mut found = [0; 5];
//! images.image("copy", false)?.read(4096, &mut found)?;
//! assert_eq!(&found, b"hello");
//! # Ok::<(), imbrex_device::Error>(())
//! ```

mod charge;
pub mod control;
mod copies;
mod diff;
mod image;
mod images;
mod import;
mod info;
mod io;
mod lasting;
mod limits;
mod meter;
mod names;
mod objects;
mod optimize;
mod quota;
mod records;
mod requests;
mod rollback;
mod snapshots;
mod stream;
mod throttle;
mod watch;

pub use image::Image;
pub use images::Images;
pub use imbrex_bluestore::Survives;
pub use info::{Info, Parent, Snapshot};
pub use limits::{LimitChange, Limits};
pub use meter::{Kind, Requests};
pub use names::{MAX_IMAGE, MAX_IMAGE_NAME};
pub use optimize::Optimized;
pub use records::fuzz_records;
pub use stream::DIFF_MAGIC;
pub use throttle::Clock;
pub use watch::{Figures, Stat, StoreFigures, Takes, Watch};
