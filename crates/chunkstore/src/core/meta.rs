//! The metadata log of an open store, behind a lock of its own.

use imbrex_zones::log::MetaLog;
use std::sync::Arc;

/// The metadata log, and how far the checkpoint that is being written has come.
pub(crate) struct Meta {
    pub(crate) log: MetaLog,
    pub(crate) progress: Progress,
}

/// See [`Meta`].
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) next_slot: u32,
    /// The name that was written last.
    pub(crate) last_name: Option<Arc<str>>,
    /// What was appended when it began.
    pub(crate) appended: u64,
}

impl Meta {
    pub(crate) fn new(log: MetaLog) -> Meta {
        Meta { log, progress: Progress::default() }
    }
}
