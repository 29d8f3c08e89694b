//! Baselines: the kernel's own file systems on simulated conventional and drive-managed drives.

pub mod attached;
