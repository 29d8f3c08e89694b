//! What callers hold: the mounted file system, its files' handles, its figures, and what the shell opens.

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod engine;
pub(crate) mod fs;
pub(crate) mod handles;
pub mod salvage;
