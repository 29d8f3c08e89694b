//! Floor 4: append-only chunks on a zoned drive, everything a log (SMRSTORE, FAST 2023).
//!
//! A [`ChunkStore`] keeps chunks, told apart by ids of 24 bytes and perhaps by names, that are appended to, sealed, read in any range and deleted. Their bytes go
//! to sequential zones as [records](mod@format); an [index] in memory says where; journal and checkpoints in metazones, and
//! the records themselves, make it again after a crash. `docs/chunk-store.md` walks through it.

mod api;
mod check;
mod clean;
mod core;
mod error;
pub mod format;
pub mod index;
mod metadata;
mod meter;
mod options;
pub mod policy;
mod read;
mod recover;
mod write;
mod zone;

pub use api::engine::{Figures, Metrics, Watch, uri_options};
pub use api::fragmentation::fragmentation;
pub use api::look::{Place, Space, ZoneInfo};
pub use api::naming::{NameOf, Named};
pub use api::store::{ChunkStore, Limits, PendingSync};
pub use check::scrub::{Damaged, Scrubbed};
pub use check::{CheckReport, ScrubStep};
pub use core::report::{LostStore, OpenReport, Relabelled};
pub use error::{Error, Result};
pub use format::entry;
pub use format::id::{ChunkId, StreamType};
pub use index::names;
pub use index::scrub::Lost;
pub use meter::{Histogram, Measured, Operation, Stats};
pub use options::{Append, ChunkInfo, Clock, Durability, FormatOptions, Options, StreamSettings};
pub use policy::place::{Ask, Choice, Fit, OpenZone, Placement, place};
pub use policy::victim::CleaningPolicy;
pub use recover::{OpenStep, RESERVE, Relabel, TENANT, budget};
pub use zone::{Event, ZoneState};
