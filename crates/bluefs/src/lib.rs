//! Floor 4: a user-space file system for RocksDB and LevelDB on zoned drives (BlueFS, CMU-PDL-19-102, §4).
//!
//! Metadata is a journal and nothing else ([`meta`], [`journal`]). Tables and logs get whole sequential zones, so that a
//! deleted file is a zone to reset and nothing is ever cleaned; small files that are rewritten get 256 KiB extents in
//! conventional zones. A log's size stands in the log, so a synced append is one write and one flush; what is not synced
//! stands in memory that outlives the process, so a `kill -9` loses nothing that was written.
//!
//! ```
//! # fn main() -> Result<(), imbrex_bluefs::Error> {
//! use imbrex_bluefs::{BlueFs, CreateOptions};
//! let fs = BlueFs::open_uri("imbrex://mem:?profile=tiny")?;
//! let mut log = fs.create("/000001.log", CreateOptions::default())?;
//! log.append(b"hello")?;
//! log.sync()?;
//! let mut out = [0; 5];
//! fs.open_read("/000001.log")?.read_at(0, &mut out)?;
//! assert_eq!(&out, b"hello");
//! # Ok(()) }
//! ```

mod ahead;
mod api;
mod clean;
mod cleaning;
mod file;
pub mod journal;
pub mod kind;
pub mod meta;
mod mount;
mod options;
mod parked;
mod policy;
mod read;
mod small;
mod space;
mod sync;
#[cfg(test)]
#[path = "../tests/unit/mod.rs"]
mod unit;

pub use api::check::CheckReport;
pub use api::dump::{Holds, JournalPlace, Node, Stretch, ZonePlace};
pub use api::engine::{Figures, Metrics, Watch, uri_options};
pub use api::fs::{Advice, Attributes, BlueFs, CreateOptions, Entry, Run, Space};
#[doc(hidden)]
pub use api::handles::SyncInSteps;
pub use api::handles::{LockToken, Pattern, RandomFile, Reader, Writer};
pub use api::salvage;
pub use clean::idle_pack::Packed;
pub use imbrex_device::{Code, Error, Result};
pub use kind::FileKind;
pub use mount::{MountReport, TENANT};
pub use options::{Clock, Options, Policy, Usual, default_cache_bytes};
pub use policy::{BUDGET, RESERVE, WAL_SPARE};
pub use read::SPAN;
