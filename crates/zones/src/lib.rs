//! Floor 3: one volume, one pool, one scheduler per drive.
//!
//! A [`Volume`] is a drive with a label. It alone schedules writes ([`turn`]), flushes ([`Ticket`]) and hands out zones
//! ([`pool`]). Its tenants, the engines, [write] records and bytes, of which those of files stand in memory that
//! outlives the process ([`memory`]) until they are on the drive, and read through the volume and a [`cache`].
//! Whoever uses an engine opens it through its [`shell`].

pub mod cache;
pub mod clean;
pub mod frame;
mod header;
pub mod helpers;
pub mod histogram;
pub mod label;
pub mod log;
mod medium;
pub mod shell;
mod sync;
mod table;
pub mod volume;
pub mod write;

pub use header::ZoneHeader;
pub use label::budget::Budget;
pub use medium::flush::Ticket;
pub use medium::memory::LeftSegment;
pub use medium::{conventional, memory, turn};
pub use table::pool;
pub use table::pool::{PoolCounts, Urgency};
pub use volume::active::ZoneKeeper;
pub use volume::{
    Exec, FormatOptions, LostLabel, NewLabel, OpenZone, RESTORED, Reservation, Tenant, TenantSpec, TenantZones, Volume,
    VolumeOptions, ZoneTable, ZoneUse,
};
