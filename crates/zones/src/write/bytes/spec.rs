//! What a writer of bytes is told when it is made, and what it answers.

use crate::header::ZoneHeader;
use crate::medium::memory::Segment;
use crate::volume::OpenZone;
use imbrex_device::{Cause, ZoneId};
use std::sync::Arc;

/// How bytes stand in the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Nothing but the bytes; their number is the engine's business.
    Raw,
    /// A frame round each device write, so that the log tells its own size.
    Framed,
}

/// A place in the order of a group of writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Which group.
    pub group: u64,
    /// Which of the group.
    pub number: u64,
}

/// What a writer is like.
#[derive(Clone, Copy, Debug)]
pub struct WriterSpec {
    /// The engine's number of the file.
    pub file: u64,
    /// Tells this writer's left-behind segments from others of the same file number.
    pub life: u64,
    /// See [`Framing`].
    pub framing: Framing,
    /// Bytes of a segment, and so of a device write.
    pub segment_bytes: usize,
    /// How many segments may wait; an append waits for room beyond that.
    pub segments: usize,
    /// Why it writes.
    pub cause: Cause,
    /// Whether no byte may become durable before those before it, also across zones.
    pub ordered: bool,
    /// Its place in an order of several: before its first write, what writers with a lower number in its group have is made durable. One that begins
    /// in a zone waits for nobody, so it must be [first](crate::write::Writers::is_first).
    pub rank: Option<Rank>,
    /// How many full segments may wait in memory until it is short, they are old, or somebody drains the writer; 0: none, they are
    /// written at once.
    pub deferred: usize,
}

/// Where a writer begins: nothing for a new file.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriterStart {
    /// Logical offset of the next byte.
    pub logical: u64,
    /// The zone that the last bytes stand in, if it has room.
    pub zone: Option<OpenZone>,
    /// Sequence number of the next frame.
    pub sequence: u64,
}

/// A zone that an engine hands down.
#[derive(Clone, Debug)]
pub struct NewZone {
    /// The zone.
    pub zone: ZoneId,
    /// Its write pointer, in bytes from its start: 0 for an empty one, else what is behind the last file's bytes.
    pub at: u64,
    /// What to write there before the first bytes.
    pub header: ZoneHeader,
}

/// Bytes that are on the drive now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Logical offset of the first byte.
    pub logical: u64,
    /// How many.
    pub len: u64,
    /// In which zone.
    pub zone: ZoneId,
    /// The zone's life.
    pub life: u64,
    /// Where in the zone: the frame's header, or, raw, the first byte.
    pub at: u64,
}

/// Bytes that were [placed](Step::Placed), where they stand in memory.
pub struct PlacedBytes {
    pub(super) segment: Arc<Segment>,
    pub(super) from: usize,
    pub(super) len: usize,
}

impl PlacedBytes {
    /// The bytes.
    pub fn get(&self) -> &[u8] {
        self.segment.image().bytes(self.from, self.len)
    }
}

/// What [`WriteGuard::write`](super::WriteGuard::write) has done, or needs before it goes on. Whoever has the guard sees to that and calls again.
pub enum Step {
    /// No segment is sealed, or the writer has ended.
    Nothing,
    /// The oldest segment is on the drive, in so many bytes of device writes.
    Wrote(u64),
    /// A zone for the bytes from `logical` on, with room for a header and `need` bytes behind it:
    /// [`WriteGuard::give`](super::WriteGuard::give). The engine records it, in memory that survives the process, before it is given.
    Zone {
        /// Logical offset of the first byte that goes there.
        logical: u64,
        /// Bytes.
        need: u64,
    },
    /// The engine is to record, in memory that survives the process, that the bytes from `logical` on stand at `zone.at`: behind padding (raw), or at
    /// the start of a writer that goes on in a zone.
    Resume {
        /// Logical offset of the first byte that goes there.
        logical: u64,
        /// The zone, and where in it.
        zone: OpenZone,
    },
    /// Raw: the next write ends in padding, and the file's bytes at `size`. The engine records it before that write.
    Announce {
        /// Logical end.
        size: u64,
    },
    /// These bytes are on the drive (not yet durable). Readers look in memory for them until the next call.
    Placed(Placed, PlacedBytes),
}

/// Where a byte of a writer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// This many bytes were copied from memory.
    Memory(usize),
    /// On the drive, up to this logical offset.
    Drive(u64),
    /// Nowhere: at or behind the end.
    End,
}
