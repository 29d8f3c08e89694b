//! What a user of the store calls, and what the shell of all engines needs of it.

mod checkpoint;
pub(crate) mod engine;
pub(crate) mod ingest;
mod size;
pub(crate) mod space;
pub(crate) mod store;
pub(crate) mod zones;
