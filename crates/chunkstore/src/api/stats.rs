//! What the store has done since it was opened.

use crate::core::Core;
use crate::zone::ZoneState;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that go up.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appends: AtomicU64,
    pub(crate) appended: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) cleaned: AtomicU64,
    pub(crate) background: AtomicU64,
    pub(crate) scrubbed: AtomicU64,
    /// What operations took.
    pub(crate) meter: crate::meter::Meter,
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

impl Core {
    pub(crate) fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        let free = self.tenant.counts().free;
        let lost_bytes = self.lost().iter().map(|one| u64::from(one.len)).sum();
        let scrubbed = self.scrubbed();
        let state = self.state();
        let count = |of| state.zones.count(of) as u32;
        let used = state.zones.all().values().filter(|z| z.state() != ZoneState::Opened);
        let mut utilisation: Vec<u16> =
            used.map(|z| (u64::from(z.live_blocks) * 1000 / u64::from(z.capacity.max(1))) as u16).collect();
        utilisation.sort_unstable();
        Stats {
            appends: get(&c.appends),
            appended_bytes: get(&c.appended),
            reads: get(&c.reads),
            read_bytes: get(&c.read),
            commits: get(&c.commits),
            damaged: get(&c.damaged),
            moved_bytes: get(&c.moved),
            cleaned_zones: get(&c.cleaned),
            background_bytes: get(&c.background),
            scrubbed_bytes: get(&c.scrubbed),
            scrub_passes: scrubbed.passes,
            damaged_records: scrubbed.damaged.len() as u64,
            lost_bytes,
            chunks: state.index.len() as u64,
            buffered_bytes: self.writer.buffered(),
            index_bytes: state.index_bytes,
            opened_zones: count(ZoneState::Opened),
            activated_zones: count(ZoneState::Activated),
            closed_zones: count(ZoneState::Closed),
            garbage_zones: count(ZoneState::Garbage),
            free_zones: free,
            utilisation,
        }
    }
}
