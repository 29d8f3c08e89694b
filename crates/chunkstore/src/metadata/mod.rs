//! Entries and checkpoints on their way to the metadata log.

pub(crate) mod checkpoint;
pub(crate) mod log_index;
