//! Floor 4: a key-value store that never cleans the drive.
//!
//! `docs/kv.md` walks through it.

mod order;
pub mod policy;
pub mod table;

pub use order::{Bytewise, Order};
