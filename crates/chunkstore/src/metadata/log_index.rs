//! What the journal is told of appends, so that opening has little to scan (SMRSTORE §5.6, where the zones alone tell it).
//!
//! Once so many bytes were appended, their index goes to the journal: 8 bytes a record and 64 a chunk, with whatever the journal has
//! to write anyway. No append waits for it. It is a small checkpoint: only what is durable is told, and whoever opens the store
//! reads the zones from there on.
//!
//! Invariants: what is told is durable when it is put into the journal; of a chunk always a front of its bytes is told; before a zone's
//! *told* end there is no record of use that is neither in a checkpoint nor told. What the cleaner moves was told before: when its
//! old zone is reset, no scan can find it any more.

use crate::core::{Core, State};
use crate::format::data_blocks;
use crate::format::entry::{Entry, GroupEntry, LOST, RecordIndex};
use crate::index::Chunk;
use crate::zone::ZoneTable;
use std::collections::BTreeMap;

/// The records of a chunk that are not told yet, zone by zone in the order of their offsets.
fn untold(chunk: &Chunk, zones: &ZoneTable) -> Vec<GroupEntry> {
    let mut groups = Vec::new();
    for group in chunk.groups().iter().rev() {
        let Some(z) = zones.get(group.zone) else { break };
        let known = group.records().iter().rposition(|r| r.at == LOST || r.at < z.told).map_or(0, |i| i + 1);
        let Some(records) = group.records().get(known..).filter(|records| !records.is_empty()) else { break };
        let start = if known == 0 { group.start } else { group.records()[known - 1].end };
        groups.push(GroupEntry { zone: group.zone, start, records: records.to_vec() });
        if known > 0 {
            break;
        }
    }
    groups.reverse();
    groups
}

impl State {
    /// Tells the journal where everything stands that is durable.
    pub(crate) fn log_index(&mut self) {
        let (slots, zones) = self.fresh.take(self.writer.flushed());
        // Up to where each zone is told: not behind a record that is not.
        let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
        for zone in zones {
            if let Some(z) = self.zones.get(zone) {
                ends.insert(zone, self.durable(zone).min(z.tail));
            }
        }
        for slot in slots {
            let Some(chunk) = self.index.chunk(slot) else { continue };
            let mut all = true;
            for mut group in untold(chunk, &self.zones) {
                let end = self.durable(group.zone);
                let told = |(start, record): &(u32, RecordIndex)| record.at + data_blocks(record.end - start) <= end;
                let durable = if all { group.spans().take_while(told).count() } else { 0 };
                for record in group.records.drain(durable..) {
                    all = false;
                    ends.entry(group.zone).and_modify(|end| *end = record.at.min(*end));
                }
                if !group.records.is_empty() {
                    self.decisions.tell(Entry::Told { id: chunk.id, serial: chunk.serial, group });
                }
            }
            if !all {
                self.fresh.grown(slot);
            }
        }
        for (zone, end) in ends {
            let Some(z) = self.zones.get_mut(zone) else { continue };
            if z.told < end {
                z.told = end;
                self.decisions.tell(Entry::ZoneTold { zone, life: z.life, tail: end });
            }
            if end < z.tail {
                self.fresh.put(zone);
            }
        }
    }
}

impl Core {
    /// Before the journal is written: tells it what became durable, if that is enough by now; sooner where it has something to write anyway.
    pub(crate) fn log_index_if_due(&self, state: &mut State) {
        let some = state.fresh.durable(self.writer.flushed()) >= self.options.tell_bytes / 4;
        if self.is_tell_due(state) || some && !state.decisions.entries().is_empty() {
            state.log_index();
        }
    }

    /// Whether so much became durable that the journal is to be told of it whatever else it is written for.
    pub(crate) fn is_tell_due(&self, state: &State) -> bool {
        let large = state.fresh.cost() >= 2 * self.limits.part_bytes as u64;
        large || state.fresh.durable(self.writer.flushed()) >= self.options.tell_bytes
    }
}
