//! The room of writing: how what an engine has decided becomes durable.
//!
//! - [`records`](RecordWriter): of each open zone what waits in memory, who writes it, and what a zone does not take;
//! - [`bytes`](ByteWriter): those of one file, raw or in frames, in memory that outlives the process; [`Writers`]: all of an engine's;
//! - [`commit`](Committer): group commit, the log first, then the zones;
//! - [`turns`]: which zone's command goes first (pure);
//! - [`BufPool`]: memory for all that.
//!
//! Nothing here calls an engine. Zones are handed down before bytes of them are taken, and what a call cannot finish comes back as a value.

mod buffer;
mod bytes;
mod commit;
mod memory;
mod records;
pub mod turns;
mod writers;

pub use buffer::Segment;
pub use bytes::{
    ByteWriter, Framing, NewZone, PlaceRequest, Placed, PlacedBytes, Rank, Step, Took, Where, WriteGuard, WriterSpec,
    WriterStart,
};
pub use commit::{Committer, Flushed, Join, Lead, Seq, Written};
pub use memory::{BufPool, PooledBuf};
pub use records::{Due, RecordOptions, RecordWriter, Wrote, ZoneGuard};
pub use writers::{Waiting, Why, Writer, Writers, next_to_write};
