//! What is measured of Imbrex, and how.
//!
//! [`compare`]: what the host sees: bluefs on drives in memory against what it replaces, by the wall clock. [`experiment`]: what
//! takes place on drives whose time is modelled, beside the papers' figures. [`baseline`]: the kernel's own file systems on
//! simulated conventional drives. [`segments`]: what a chunk server does on one of them. [`ablation`]: the engines with an idea switched off.

#![warn(missing_docs)]

pub mod ablation;
pub mod baseline;
pub mod compare;
pub mod experiment;
mod process;
pub mod segments;
