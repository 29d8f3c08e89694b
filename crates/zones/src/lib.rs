//! Floor 3: one volume, one pool, one scheduler per drive.
//!
//! A [`Volume`] is a drive with a label. It alone schedules writes ([`turn`]), flushes ([`Ticket`]) and hands out zones
//! ([`pool`]). Its tenants, the engines, append through [`AppendStream`]s, whose unwritten bytes stand in memory that
//! outlives the process ([`memory`]), and read through the volume and a [`cache`].
//! Whoever uses an engine opens it through its [`shell`].

mod active;
mod budget;
pub mod cache;
pub mod conventional;
mod deferred;
mod flush;
pub mod frame;
pub mod label;
pub mod log;
pub mod memory;
pub mod pool;
pub mod shell;
pub mod stream;
mod sync;
mod taken;
pub mod turn;
pub mod volume;
pub mod write;
mod writers;

pub use active::ZoneKeeper;
pub use budget::Budget;
pub use flush::Ticket;
pub use frame::ZoneHeader;
pub use memory::LeftSegment;
pub use pool::{PoolCounts, Urgency};
pub use stream::{AppendStream, Framing, NewZone, OpenZone, Placed, Placer, StreamSpec, StreamStart, Where};
pub use volume::{Exec, FormatOptions, LostLabel, NewLabel, RESTORED, Tenant, TenantSpec, Volume, VolumeOptions};
