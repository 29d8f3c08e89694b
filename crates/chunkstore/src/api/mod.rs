//! What callers hold: the open store, its figures, looks at it, and what the shell opens.

pub(crate) mod engine;
pub(crate) mod fragmentation;
pub(crate) mod look;
pub(crate) mod naming;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod uri;
