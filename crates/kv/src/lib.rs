//! Floor 4: a key-value store that never cleans the drive.
//!
//! `docs/kv.md` walks through it.

mod api;
mod apply;
mod batch;
mod check;
mod core;
mod cursor;
mod done;
mod fuzz;
mod iter;
mod manifest;
mod memtable;
mod operator;
mod options;
mod order;
mod piece;
pub mod policy;
mod ranges;
mod read;
mod records;
mod recover;
mod salvage;
mod space;
mod sync;
pub mod table;
mod together;
mod ttl;
mod wal;
mod work;
mod write;

pub use api::engine::{Figures, Metrics, Watch, budget};
pub use api::ingest::Ingest;
pub use api::store::{Kv, Make, Snapshot};
pub use api::zones::{Holds, ZoneContent};
pub use batch::{Act, Batch, Change, MAX_KEY, MAX_VALUE};
pub use done::Done;
pub use fuzz::{fuzz_log, fuzz_metadata, fuzz_salvage};
pub use iter::Iter;
pub use operator::MergeOperator;
pub use options::{MakePolicy, Options};
pub use order::{Bytewise, Order};
pub use salvage::{FoundSpace, Pairs, Salvage, Salvaged};
pub use space::{Expiry, forget_order, register_order};
pub use ttl::TimeInValue;
