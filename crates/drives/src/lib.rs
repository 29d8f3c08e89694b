//! From a locator to an open drive, and the shared-memory survivor.

pub mod survivor;
