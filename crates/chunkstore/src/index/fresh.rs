//! What was appended and the journal does not know yet.

use crate::index::{GROUP_COST, RECORD_COST};
use std::collections::BTreeSet;

/// Bytes of the journal for a chunk whose records are told.
const TOLD_COST: u64 = 64;

/// What was appended since the journal was told the last time.
#[derive(Default)]
pub(crate) struct Fresh {
    /// Slots of chunks that got records, and zones where any were put.
    slots: BTreeSet<u32>,
    zones: BTreeSet<u32>,
    /// About as many bytes of the journal will it take.
    cost: u64,
    /// [Bytes that ever became durable](imbrex_zones::write::RecordWriter::flushed) at the last time.
    told: u64,
}

impl Fresh {
    /// A record went to this zone; the index will have it, unless the cleaner put it there.
    pub(crate) fn put(&mut self, zone: u32) {
        self.zones.insert(zone);
    }

    /// The chunk in this slot has one record more.
    pub(crate) fn grown(&mut self, slot: u32) {
        self.cost += RECORD_COST + if self.slots.insert(slot) { TOLD_COST + GROUP_COST } else { 0 };
    }

    /// About as many bytes of the journal will it take.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Bytes that became durable since the last time, of so many that ever did.
    pub(crate) fn durable(&self, flushed: u64) -> u64 {
        flushed - self.told
    }

    /// Begins anew, when so many bytes have become durable. Returns slots and zones of before.
    pub(crate) fn take(&mut self, flushed: u64) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let Fresh { slots, zones, .. } = std::mem::replace(self, Fresh { told: flushed, ..Fresh::default() });
        (slots, zones)
    }
}
