//! Floor 4: append-only chunks on a zoned drive, everything a log (SMRSTORE, FAST 2023).

pub mod entry;
pub mod format;
mod id;

pub use id::{ChunkId, StreamType};
