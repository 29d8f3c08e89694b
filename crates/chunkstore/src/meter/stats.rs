//! What the store has done since it was opened.

use crate::meter::Meter;
use std::sync::atomic::AtomicU64;

/// Counters that go up.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appends: AtomicU64,
    pub(crate) appended: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) background: AtomicU64,
    pub(crate) scrubbed: AtomicU64,
    /// What operations took.
    pub(crate) meter: Meter,
}

/// A look at the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Appends, and bytes of them.
    pub appends: u64,
    /// Bytes of chunks that were appended.
    pub appended_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Commits, each one flush.
    pub commits: u64,
    /// Reads that met damage.
    pub damaged: u64,
    /// Bytes that cleaning has moved, framing included.
    pub moved_bytes: u64,
    /// Zones that cleaning has freed.
    pub cleaned_zones: u64,
    /// Of `moved_bytes`, what was moved in the background.
    pub background_bytes: u64,
    /// Bytes that the scrub in the background has verified, how often it had verified all chunks (also before the store was opened),
    /// and how many records of chunks are damaged by it.
    pub scrubbed_bytes: u64,
    /// See `scrubbed_bytes`.
    pub scrub_passes: u64,
    /// See `scrubbed_bytes`.
    pub damaged_records: u64,
    /// Bytes of chunks that are [lost](crate::ChunkStore::lost).
    pub lost_bytes: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes that wait in memory.
    pub buffered_bytes: u64,
    /// Bytes that a checkpoint takes.
    pub index_bytes: u64,
    /// Datazones opened and not used, written, closed, and garbage.
    pub opened_zones: u32,
    /// See `opened_zones`.
    pub activated_zones: u32,
    /// See `opened_zones`.
    pub closed_zones: u32,
    /// See `opened_zones`.
    pub garbage_zones: u32,
    /// Zones that can be taken, the reserve included.
    pub free_zones: u32,
    /// Of the datazones that hold something, the live part of each in thousandths, ascending.
    pub utilisation: Vec<u16>,
}
