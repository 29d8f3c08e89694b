//! One volume, one pool, one scheduler per drive: labels, leases, append streams, conventional space, block cache.

pub mod cache;
pub mod conventional;
pub mod label;
pub mod registry;

pub mod frame;
pub mod memory;
mod sync;
