//! Floor 2: from a locator to an open drive, and the shared-memory survivor.
//!
//! A *locator* names a drive: `drive.img` (an emulated drive in an image), `mem:?profile=tiny&size=64M` (one in memory that
//! goes away with the process), `/dev/sdb` (a zoned block device of the kernel), `banded:disk.img` or `banded:/dev/sdc` (a file
//! or a conventional disk cut into bands); `drive.img?conventional=as-sequential` is a drive whose conventional zones serve as
//! sequential ones. A *URI* is `imbrex://`, a locator and options, as
//! `imbrex:///data/drive.img?cache=2G`; [`parse_uri`] takes it apart.

#![warn(missing_docs)]

mod banded;
pub mod counted;
mod limited;
mod locator;
pub mod overlay;
pub mod survivor;
mod time;
mod uri;

pub use banded::{BANDED, BANDED_OPTIONS, BandedDisk, USUAL_BAND};
pub use locator::{
    AS_SEQUENTIAL, Locator, MEMORY_OPTIONS, OpenOptions, ZONED_OPTIONS, all_sequential, key, make_sequential, open,
};
pub use time::{TIME_OPTIONS, Time};
pub use uri::{DRIVE_OPTIONS, SCHEME, Uri, parse_bool, parse_size, parse_uri};
