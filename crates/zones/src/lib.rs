//! Floor 3: one volume, one pool, one scheduler per drive.
//!
//! A [`Volume`] is a drive with a label. It alone schedules writes ([`turn`]), flushes ([`Ticket`]) and hands out zones
//! ([`pool`]). Its tenants, the engines, append through [`AppendStream`]s, whose unwritten bytes stand in memory that
//! outlives the process ([`memory`]), and read through the volume and a [`cache`].
//! Whoever uses an engine opens it through its [`shell`].

pub mod cache;
pub mod frame;
pub mod label;
pub mod log;
mod medium;
pub mod shell;
mod sync;
mod table;
pub mod volume;
pub mod write;

pub use frame::ZoneHeader;
pub use label::budget::Budget;
pub use medium::flush::Ticket;
pub use medium::memory::LeftSegment;
pub use medium::{conventional, memory, turn};
pub use table::pool;
pub use table::pool::{PoolCounts, Urgency};
pub use volume::active::ZoneKeeper;
pub use volume::stream;
pub use volume::stream::{AppendStream, Framing, NewZone, OpenZone, Placed, Placer, StreamSpec, StreamStart, Where};
pub use volume::{Exec, FormatOptions, LostLabel, NewLabel, RESTORED, Tenant, TenantSpec, Volume, VolumeOptions};
