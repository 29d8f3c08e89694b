//! Floor 1: a strict emulated zoned drive.
//!
//! [`Emulator`] is a [`ZonedDevice`](imbrex_device::ZonedDevice) in copy-on-write memory, in flat memory, or in an image
//! file. It enforces every rule of the contract and counts each one that the host breaks ([`Stats`]); it loses power on
//! request and then keeps only what the contract promises; it has faults on request ([`Faults`]). Nothing it does depends
//! on time or on the order of a hash table: the same commands and seeds give the same bytes.

#![warn(missing_docs)]

mod cache;
mod commands;
mod config;
mod drive;
mod faults;
mod image;
mod power;
mod preimage;
mod profile;
mod region;
mod state;
mod stats;
mod store;
pub mod time;
mod trace;
mod zones;

pub use cache::AtRisk;
pub use config::{Config, Overrides};
pub use drive::Emulator;
pub use faults::{Faults, Held};
pub use image::{
    Header, Observed, Observer, OpenOptions, TimeHeader, decode_header, decode_time_header, time_path, trace_path,
};
pub use image::{copy_image, remove_image, rename_image};
pub use preimage::{RingRecord, decode_ring};
pub use profile::{Fact, Kind, Measure, Profile};
pub use stats::{Counts, Rule, Stats};
pub use trace::{
    Op, TimedEntry, TraceEntry, decode_record, decode_trace_header, image_trace_length, read_image_trace,
    read_timed_trace, start_image_trace,
};
