//! Pure choices, and what they remember: how much of a drive is kept back, which files share a zone, which zone is cleaned, which is packed at rest.

pub(crate) mod cleaning;
pub(crate) mod pack;
pub(crate) mod share;

use imbrex_zones::Budget;

/// What the file system may take of a drive. Two zones are its journal's for good. Of those that are free one is for cleaning, and for a journal that needs
/// more, so that a full drive can always be deleted from.
pub const BUDGET: Budget = Budget::keeping(0, 1).at_least(4);
/// Of its free zones, those that a user's write leaves alone.
pub const RESERVE: u32 = BUDGET.reserve();

/// Zones beyond the reserve that only the first bytes of a write-ahead log may take, so that a drive which becomes full refuses a
/// table, or the next record of a log, and not the first record of one. From those RocksDB recovers by itself, since it then has
/// something to flush and takes a new log. From a log whose first record failed it does not before the change in
/// <https://github.com/facebook/rocksdb/pull/12873>: with nothing to flush it goes on in the log that failed, which ends in an
/// error that only opening the database again cures, or in an assertion (`sync_without_flush_called_`; Debian builds with them).
///
/// Two are enough for two memtables (`max_write_buffer_number`), RocksDB's default: between the tables of two flushes it begins two
/// logs at most, and a table finds no zone unless both are free. On drives of fewer than 128 zones each parked zone of logs with half of its
/// room left stands for one of them.
pub const WAL_SPARE: u32 = 2;
