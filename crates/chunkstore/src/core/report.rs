//! What opening a store finds.

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The store was closed before; there was nothing to recover.
    pub clean: bool,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Journal records that were replayed.
    pub journal_records: u64,
    /// Datazones that were scanned, bytes of them, and the records found there.
    pub scanned_zones: u64,
    /// See `scanned_zones`.
    pub scanned_bytes: u64,
    /// See `scanned_zones`.
    pub records: u64,
    /// Damage that was found, a sentence each.
    pub damage: Vec<String>,
    /// Of a salvage: the label was lost, and was made anew.
    pub relabelled: Option<Relabelled>,
}

/// What a drive's new label was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relabelled {
    /// The store.
    pub store: LostStore,
    /// Written zones that are another engine's or of another volume, or whose nobody can tell: they are kept as they are.
    pub kept: u32,
}

/// A chunk store of which there are zones on a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostStore {
    /// UUID of its volume.
    pub volume: [u8; 16],
    /// Zones of its journal and checkpoints.
    pub metazones: u32,
    /// Zones of its chunks.
    pub datazones: u32,
    /// When the last of them was taken: nanoseconds since 1970.
    pub newest: u64,
}
