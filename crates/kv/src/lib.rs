//! Floor 4: a key-value store that never cleans the drive.
//!
//! `docs/kv.md` walks through it.

mod api;
mod batch;
mod core;
mod cursor;
mod fuzz;
mod iter;
mod manifest;
mod memtable;
mod options;
mod order;
pub mod policy;
mod ranges;
mod read;
mod recover;
mod space;
mod sync;
pub mod table;
mod wal;
mod work;
mod write;

pub use api::engine::{Figures, Metrics, Watch};
pub use api::store::{Kv, Make, Snapshot};
pub use api::zones::{Holds, ZoneContent};
pub use batch::{Act, Batch, Change, MAX_KEY, MAX_VALUE};
pub use core::counters::Done;
pub use fuzz::{fuzz_log, fuzz_metadata};
pub use iter::Iter;
pub use options::{MakePolicy, Options};
pub use order::{Bytewise, Order};
pub use space::{Expiry, forget_order, register_order};
