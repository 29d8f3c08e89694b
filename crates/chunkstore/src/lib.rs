//! Floor 4: append-only chunks on a zoned drive, everything a log (SMRSTORE, FAST 2023).
//!
//! A [`ChunkStore`] keeps chunks, told apart by ids of 24 bytes and perhaps by names, that are appended to, sealed, read in any range and deleted. Their bytes go
//! to sequential zones as [records](mod@format); an [index] in memory says where; journal and checkpoints in metazones, and
//! the records themselves, make it again after a crash. `docs/chunk-store.md` walks through it.

mod append;
mod background;
mod buffer;
mod check;
mod checkpoint;
mod clean;
mod core;
mod engine;
pub mod entry;
mod error;
pub mod format;
mod fragmentation;
mod id;
pub mod index;
mod lifetime_model;
mod log_index;
mod look;
mod losses;
mod meter;
pub mod names;
mod naming;
mod options;
pub mod policy;
mod pool;
mod read;
mod recover;
mod relocate;
mod scan;
mod scrub;
mod stats;
mod store;
mod take;
mod turns;
mod uri;
mod write;
mod write_through;
mod zone;

pub use check::{CheckReport, ScrubStep};
pub use engine::{Figures, Metrics, Watch, uri_options};
pub use error::{Error, Result};
pub use fragmentation::fragmentation;
pub use id::{ChunkId, StreamType};
pub use look::{Place, Space, ZoneInfo};
pub use losses::Lost;
pub use meter::{Histogram, Measured, Operation};
pub use naming::{NameOf, Named};
pub use options::{Append, ChunkInfo, Clock, Durability, FormatOptions, Options, StreamSettings};
pub use policy::place::{Pick, Placement};
pub use policy::victim::CleaningPolicy;
pub use recover::{KEPT, LostStore, OpenReport, OpenStep, RESERVE, Relabel, Relabelled, TENANT, budget};
pub use scrub::{Damaged, Scrubbed};
pub use stats::Stats;
pub use store::{ChunkStore, Limits, PendingSync};
pub use zone::{Event, ZoneState};
