//! Appends that are durable by themselves: with the drive's write cache off what is written is there, so whoever appends writes its own
//! zone and waits for no commit (SMRSTORE §3.1 runs with the cache off). Many zones are then at the drive at once, each as soon as
//! its own last write is complete.
//!
//! An append is acknowledged when recovery would find it, whatever else is lost. For that are on the drive
//!
//! 1. its record, and every earlier one of its chunk: what is behind a gap is dropped;
//! 2. the journal's entry of the chunk, if it was created only just now;
//! 3. the journal's entry of each zone in which one of these records stands *now*: of a zone that was taken and is not in the journal nothing is
//!    read. A record may have come there from another zone that died on the way.
//!
//! [`State::need`] says what of that is still missing; it is pure. What it says is asked again after each wait, because records move.
//! Everything else is a commit: create, seal, delete, the journal, checkpoints, and all errors, because finding another place for the bytes of a
//! zone takes the right to write.

use crate::core::{Core, FLUSH, State};
use crate::error::Result;
use crate::format::entry::LOST;
use crate::format::{BLOCK, data_blocks};
use crate::index::Group;
use imbrex_zones::write::Wrote;

/// What bytes of a chunk wait for until they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: they are.
    Nothing,
    /// What this zone has in memory up to this block is to be written.
    Write(u32, u32),
    /// The journal up to this number.
    Journal(u64),
    /// The chunk is gone, or it is not known where its bytes are: everything.
    Commit,
}

/// The block of their zone before which all of the group's records up to the chunk's offset `end` stand. Its records ascend in the zone,
/// but for those of the cleaner, which are in the index only when they are written.
fn end_of(group: &Group, end: u32) -> u32 {
    let records = group.records();
    let i = records.partition_point(|record| record.end < end).min(records.len().saturating_sub(1));
    let Some(last) = records.get(i).filter(|last| last.at != LOST) else { return 0 };
    let start = if i == 0 { group.start } else { records[i - 1].end };
    last.at + data_blocks(last.end - start)
}

impl State {
    /// What the first `end` bytes of the chunk of this serial number, in this slot, still wait for. The journal is written up to number `journaled`.
    pub(crate) fn need(&self, slot: u32, serial: u64, end: u32, journaled: u64) -> Need {
        let Some(chunk) = self.index.chunk(slot).filter(|chunk| chunk.serial == serial) else { return Need::Commit };
        let mut journal = self.decisions.known_with(slot);
        let mut write = None;
        for group in chunk.groups().iter().filter(|group| group.start < end) {
            let Some(z) = self.zones.get(group.zone) else { return Need::Commit };
            journal = journal.max(z.taken);
            // Where nothing waits in memory all is on the drive, also if nobody knows any more how far a zone was written: one that was offline
            // when the store was opened.
            let end = end_of(group, end);
            if self.written(group.zone) < end {
                write = Some(Need::Write(group.zone, end));
            }
        }
        match write {
            _ if journal > journaled => Need::Journal(journal),
            Some(write) => write,
            None => Need::Nothing,
        }
    }

    /// Whether some of the first `end` bytes of the chunk of this serial number, in this slot, have no place on the drive, or found one since the last
    /// commit.
    pub(crate) fn strands(&self, slot: u32, serial: u64, end: u32) -> bool {
        let Some(chunk) = self.index.chunk(slot).filter(|chunk| chunk.serial == serial) else { return false };
        chunk.groups().iter().filter(|group| group.start < end).any(|group| {
            self.zones.get(group.zone).is_some_and(|z| z.stranded) && self.durable(group.zone) < end_of(group, end)
        })
    }

    /// The last commit is so long ago that the work that goes with commits (telling the journal, checkpoints) would be late.
    fn wants_commit(&self, core: &Core) -> bool {
        let due = self.work.since_checkpoint() >= core.options.checkpoint_bytes || core.is_tell_due(self);
        due && self.work.since_commit() >= core.limits.tick && !core.commits.is_writing()
    }
}

impl Core {
    /// Returns when the first `end` bytes of the chunk of this serial number, in this slot, are durable; they were decided with number `target`.
    pub(crate) fn make_durable(&self, slot: u32, serial: u64, end: u32, target: u64) -> Result<()> {
        if !self.writer.writes_through() || self.state().wants_commit(self) {
            return self.commit_bytes(target, |state| state.strands(slot, serial, end));
        }
        let mut written = None;
        loop {
            let mut state = self.state();
            written.take().into_iter().for_each(|zone| state.note_landed(zone));
            match state.need(slot, serial, end, self.commits.logged()) {
                Need::Nothing => {
                    drop(state);
                    return Ok(self.volume.check_power()?);
                }
                Need::Commit => {
                    let target = state.decisions.last();
                    drop(state);
                    return self.commit(target);
                }
                Need::Journal(number) => {
                    drop(state);
                    let Some(guard) = self.commits.join_logged(number) else { continue };
                    let led = self.write_group(guard).and_then(|group| Ok(group.flush(FLUSH)?.tell()));
                    // What else went wrong in that commit is no business of these bytes.
                    if self.commits.logged() < number {
                        led?;
                    }
                }
                Need::Write(zone, block) => {
                    drop(state);
                    let Some(zone_guard) = self.writer.zone_guard(zone, u64::from(block) * BLOCK as u64) else {
                        continue;
                    };
                    let wrote = zone_guard.write();
                    drop(zone_guard);
                    if let Ok(Wrote::All) = wrote {
                        written = Some(zone);
                        continue;
                    }
                    // A commit meets the same error, and finds another place for the bytes.
                    let target = self.state().decisions.last();
                    let committed = self.commit_bytes(target, |state| state.strands(slot, serial, end));
                    if self.state().need(slot, serial, end, self.commits.logged()) != Need::Nothing {
                        committed?;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::placing::Placing;
    use crate::format::ZoneUse;
    use crate::format::id::{ChunkId, StreamType};
    use crate::index::Chunk;
    use crate::zone::{DataZone, ZoneState};
    use crate::{ChunkStore, FormatOptions, Options};
    use imbrex_device::{AlignedBuf, Drive, ZoneId};
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, OpenZone, VolumeOptions};
    use std::sync::Arc;

    fn open(state: &State, zone: u32, written: u32) {
        let at = u64::from(written) * BLOCK as u64;
        state.writer.open(OpenZone { zone: ZoneId(zone), life: 1, at, capacity: u64::MAX });
    }

    /// The zone is written up to this block, and has one more in memory.
    fn written(state: &State, zone: u32, block: u32) {
        open(state, zone, block);
        state.writer.push(zone, AlignedBuf::zeroed(BLOCK).into()).unwrap();
    }

    /// A chunk of two records in zone 5, of which the journal was told with number 7, and one in zone 6, with 9; each of one block.
    fn state() -> (State, u32) {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        let drive = Drive { device: Arc::new(emulator), survivor: None };
        ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive, Options { volume, ..Options::default() }).unwrap();
        let mut state = State::new(store.core.writer.clone(), Placing::new(1, true));
        let mut chunk = Chunk::new(ChunkId::of_number(1), 3, StreamType::DATA);
        for (zone, at) in [(5, 1), (5, 4), (6, 1)] {
            chunk.push(zone, 1000, at);
        }
        let slot = state.index.insert(chunk);
        for (zone, taken, written) in [(5, 7, 5), (6, 9, 2)] {
            let mut z = DataZone::new(ZoneState::Activated, 1, ZoneUse::Data(StreamType::DATA), 64, 8);
            z.taken = taken;
            state.zones.insert(zone, z);
            self::written(&state, zone, written);
        }
        (state, slot)
    }

    #[test]
    fn an_append_needs_its_record_and_all_before_it() {
        let (state, slot) = state();
        assert_eq!(state.need(slot, 3, 3000, 9), Need::Nothing);
        written(&state, 6, 1);
        assert_eq!(state.need(slot, 3, 3000, 9), Need::Write(6, 2));
        assert_eq!(state.need(slot, 3, 2000, 9), Need::Nothing, "what comes behind is no business of it");
        written(&state, 6, 2);
        written(&state, 5, 4);
        assert_eq!(state.need(slot, 3, 3000, 9), Need::Write(5, 5), "recovery would drop what is behind the gap");
        assert_eq!((state.need(slot, 3, 2000, 9), state.need(slot, 3, 1000, 9)), (Need::Write(5, 5), Need::Nothing));
        assert_eq!(state.need(slot, 4, 1000, 9), Need::Commit, "another chunk is in its place");
    }

    #[test]
    fn where_nothing_is_in_memory_nothing_is_to_be_written() {
        let (state, slot) = state();
        open(&state, 5, 0);
        assert_eq!(state.need(slot, 3, 3000, 9), Need::Nothing, "else whoever appends would write for ever");
    }

    #[test]
    fn an_append_needs_its_zones_and_its_chunk_in_the_journal() {
        let (mut state, slot) = state();
        assert_eq!(state.need(slot, 3, 3000, 8), Need::Journal(9), "of zone 6 nothing would be read");
        assert_eq!(state.need(slot, 3, 2000, 8), Need::Nothing);
        state.decisions.created(slot, 10);
        assert_eq!(state.need(slot, 3, 2000, 8), Need::Journal(10));
        assert_eq!(state.need(slot, 3, 3000, 10), Need::Nothing);
    }

    #[test]
    fn a_record_that_was_given_another_place_needs_that_ones_entry() {
        let (mut state, slot) = state();
        let mut z = DataZone::new(ZoneState::Activated, 2, ZoneUse::Data(StreamType::DATA), 64, 8);
        z.taken = 11;
        state.zones.insert(8, z);
        written(&state, 8, 8);
        assert!(state.index.chunk_mut(slot).unwrap().relocate(5, 1000, 8, 1));
        assert_eq!(state.need(slot, 3, 2000, 9), Need::Journal(11), "it is written, and nobody would look there");
        assert_eq!(state.need(slot, 3, 1000, 9), Need::Nothing);
        assert_eq!(state.need(slot, 3, 3000, 11), Need::Nothing);
    }
}
