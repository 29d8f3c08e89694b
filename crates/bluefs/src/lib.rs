//! A user-space file system for RocksDB and LevelDB on zoned drives.

pub mod kind;
pub mod meta;
