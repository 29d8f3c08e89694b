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

#[cfg(test)]
mod accounts;
mod ahead;
mod check;
mod clean;
mod core;
mod dump;
mod durable;
mod engine;
mod file;
mod fs;
mod grow;
mod handles;
mod idle_pack;
pub mod journal;
pub mod kind;
mod log;
pub mod meta;
mod mount;
mod options;
mod overwrite;
mod pack;
mod placer;
mod policy;
mod read;
mod relog;
#[cfg(test)]
mod replay;
mod rescue;
pub mod salvage;
mod share;
mod space;
mod wal;

pub use check::CheckReport;
pub use dump::{Holds, JournalPlace, Node, Stretch, ZonePlace};
pub use engine::{Figures, Metrics, Watch, uri_options};
pub use fs::{Advice, Attributes, BUDGET, BlueFs, CreateOptions, Entry, RESERVE, Run, Space, WAL_SPARE};
#[doc(hidden)]
pub use handles::SyncInSteps;
pub use handles::{LockToken, Pattern, RandomFile, Reader, SPAN, Writer};
pub use idle_pack::Packed;
pub use imbrex_device::{Code, Error, Result};
pub use kind::FileKind;
pub use mount::{MountReport, TENANT};
pub use options::{Clock, Options, WalPlacement, default_cache_bytes};
