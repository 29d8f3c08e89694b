//! What a stream is told when it is made, and what it asks the engine that made it ([`Placer`]).

use crate::frame::ZoneHeader;
use imbrex_device::{Cause, Result, ZoneId};

/// How bytes stand in the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Nothing but the bytes; their number is the engine's business.
    Raw,
    /// A frame round each device write, so that the log tells its own size.
    Framed,
}

/// What a stream is like.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// The engine's number of the file.
    pub file: u64,
    /// Tells this stream's left-behind segments from others of the same file number.
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
    /// How many full segments may wait in memory until it is short, they are old, or somebody drains the stream; 0: none, they are
    /// written at once.
    pub deferred: usize,
}

/// A zone that a stream is to go on in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// Which.
    pub zone: ZoneId,
    /// Its life.
    pub life: u64,
    /// Its write pointer, in bytes from its start.
    pub at: u64,
    /// Bytes that can be written to it, from its start.
    pub capacity: u64,
}

/// Where a stream begins: nothing for a new file.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamStart {
    /// Logical offset of the next byte.
    pub logical: u64,
    /// The zone that the last bytes stand in, if it has room.
    pub zone: Option<OpenZone>,
    /// Sequence number of the next frame.
    pub sequence: u64,
}

/// A new zone from the placer.
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

/// The engine's side of a stream. Called with the stream's writing right held, and no other lock of this crate.
pub trait Placer: Send + Sync {
    /// Before the first of some writes: what must be durable earlier is made so here.
    fn before_write(&self) -> Result<()> {
        Ok(())
    }
    /// More bytes may come into memory than the open zone has room for: the engine makes sure that
    /// [`next_zone`](Placer::next_zone) will find a zone, or room for `bytes`, which is the most that will be in memory. Called often; one
    /// promise at a time is enough. `deferred`: they need not be in memory; where zones are scarce they are rather written soon.
    ///
    /// # Errors
    /// `NoSpace`: then nothing is appended that has no place.
    fn reserve(&self, _bytes: u64, _deferred: bool) -> Result<()> {
        Ok(())
    }
    /// A zone for the bytes from `logical` on, with room for the header and `need` bytes behind it. The engine records it (in memory that survives the process) before it returns.
    fn next_zone(&self, logical: u64, need: u64) -> Result<NewZone>;
    /// The bytes from `logical` on stand at `at` of the same zone: behind padding (raw streams), or at the start of a stream
    /// that goes on in a zone.
    fn resume(&self, _logical: u64, _zone: ZoneId, _life: u64, _at: u64) -> Result<()> {
        Ok(())
    }
    /// Raw streams: the next write ends in padding; the file's bytes end at `size`. Recorded before that write.
    fn announce(&self, _size: u64) -> Result<()> {
        Ok(())
    }
    /// The stream loses its zone, which others need more, and will go on elsewhere; all its bytes, up to `end`, are on the drive.
    /// The engine records the end, because the zone's write pointer will not tell any more, and keeps the zone (see
    /// [`ZoneKeeper`](crate::ZoneKeeper)) or finishes it. False: not now.
    fn leave_zone(&self, _zone: &OpenZone, _end: u64) -> Result<bool> {
        Ok(false)
    }
    /// Nothing of the stream is in memory: what was [promised](Placer::reserve) to it is not needed any more.
    fn idle(&self) {}
    /// Whether bytes can be written now without waiting for another stream.
    fn can_write(&self) -> bool {
        true
    }
    /// These bytes are on the drive (not yet durable).
    fn placed(&self, _placed: &Placed, _bytes: &[u8]) {}
}
