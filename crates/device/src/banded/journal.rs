//! Writing the band table: batches behind the snapshot, and a new snapshot where the log is full.
//!
//! One batch is in flight at a time. A batch, or a sync of one, that fails ends it: the table takes no more until the drive
//! is opened again, since nobody knows what of it reached the disk.

use super::base::Base;
use super::layout::{Layout, PAGE};
use super::table::{self, Place, Record, Word};
use crate::{AlignedBuf, Fault};

/// The writing end of a table.
pub(super) struct Journal {
    layout: Layout,
    generation: u64,
    sequence: u64,
    epoch: u64,
    /// Next free slot of the log.
    slot: usize,
    /// What the table says; all of it durable, but for what the batch in flight changes.
    words: Vec<Word>,
    /// The log carries bytes that may be nowhere else.
    carries: bool,
    failed: bool,
}

/// Where the log is full of what bands do not take.
fn too_much() -> Fault {
    let what = "the disk does not take bytes that the log of the band table has for its bands, and they fill it; open it read-only and \
                copy what is there";
    Fault::Io(std::sync::Arc::new(std::io::Error::other(what)))
}

fn write_all(base: &dyn Base, bytes: &[u8], at: u64) -> Result<(), Fault> {
    let step = (base.facts().max_io as usize).max(PAGE) / PAGE * PAGE;
    for (i, part) in bytes.chunks(step).enumerate() {
        base.write(part, at + (i * step) as u64)?;
    }
    Ok(())
}

impl Journal {
    /// Goes on from a table that said `generation` and `sequence`, with `words` as they are now: writes them into both
    /// snapshots, one after the other, so that either is enough. `again` begins their logs: what could not be brought home, behind records of
    /// all words that the table did not say. The number of the next batch goes up, so that a table that nobody opened
    /// since it was copied is told from this one.
    pub(super) fn start(
        base: &dyn Base,
        layout: &Layout,
        (generation, sequence, epoch): (u64, u64, u64),
        words: Vec<Word>,
        again: &(Vec<Record>, Vec<u8>),
    ) -> Result<Journal, Fault> {
        // A batch that goes on with the log there has the next number, and counts from the moment that it is whole.
        let sequence = sequence + u64::from(again.0.is_empty());
        let mut journal =
            Journal { layout: *layout, generation, sequence, epoch, slot: 0, words, carries: false, failed: false };
        journal.roll(base, again)?;
        journal.roll(base, again)?;
        Ok(journal)
    }

    /// An error once something failed.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if !self.failed {
            return Ok(());
        }
        let text = "an earlier flush failed, and nobody knows what of it is on the disk; open the drive again";
        Err(Fault::Io(std::sync::Arc::new(std::io::Error::other(text))))
    }

    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    /// The number of the next batch.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn word(&self, band: u32) -> Option<Word> {
        self.words.get(band as usize).copied()
    }

    pub(super) fn sync(&mut self, base: &dyn Base) -> Result<(), Fault> {
        self.check()?;
        self.tried(base.sync())
    }

    /// An error ends the table, as one of a batch does.
    pub(super) fn tried(&mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        self.failed |= result.is_err();
        result
    }

    /// Whether bands have bytes that are durable in the log only. They are brought home, and synced, before the log ends.
    pub(super) fn carries(&self) -> bool {
        self.carries
    }

    /// Whether the log has room for a batch of so many records, which carry so many bytes.
    pub(super) fn has_room(&self, records: usize, carried: usize) -> bool {
        self.slot + table::batch_blocks(records, carried) <= self.layout.slots as usize
    }

    /// Writes a batch, for which there is room, and syncs everything: afterwards it is durable, with every write before.
    pub(super) fn commit(&mut self, base: &dyn Base, records: &[Record], carried: &[u8]) -> Result<(), Fault> {
        self.append(base, records, carried)?;
        self.sync(base)?;
        for record in records {
            if let Some(word) = self.words.get_mut(record.band as usize) {
                *word = record.word;
            }
        }
        Ok(())
    }

    /// Confirms the last batch, so that the next open need not check it. Worth no sync: without it the check is made.
    pub(super) fn confirm(&mut self, base: &dyn Base) -> Result<(), Fault> {
        self.append(base, &[], &[])
    }

    fn append(&mut self, base: &dyn Base, records: &[Record], carried: &[u8]) -> Result<(), Fault> {
        self.check()?;
        if !self.has_room(records.len(), carried.len()) {
            return self.tried(Err(too_much()));
        }
        self.slot += self.write(base, self.generation, self.slot, (records, carried))?;
        self.carries |= !carried.is_empty();
        self.sequence += 1;
        Ok(())
    }

    /// Writes the next batch into slots of the log of `generation`, and says how many.
    fn write(
        &mut self,
        base: &dyn Base,
        generation: u64,
        slot: usize,
        (records, carried): (&[Record], &[u8]),
    ) -> Result<usize, Fault> {
        let place = Place { generation, sequence: self.sequence, index: 0, count: 0, epoch: self.epoch };
        let blocks = table::encode_batch(&self.layout, place, records, carried);
        let mut bytes = AlignedBuf::zeroed(blocks.len() * 2 * PAGE);
        for (slot, block) in bytes.chunks_mut(2 * PAGE).zip(&blocks) {
            slot.chunks_mut(PAGE).for_each(|copy| copy.copy_from_slice(block));
        }
        let at = self.layout.log_at(generation) + (slot * 2 * PAGE) as u64;
        self.tried(write_all(base, &bytes, at))?;
        Ok(blocks.len())
    }

    /// Writes a new snapshot over the older one and begins its log. Everything that the log spoke of is durable now, and nothing in it
    /// alone but `again`, which begins the new log: that goes on with this one until the snapshot is whole, so it comes first.
    pub(super) fn roll(&mut self, base: &dyn Base, (again, carried): &(Vec<Record>, Vec<u8>)) -> Result<(), Fault> {
        self.check()?;
        let generation = self.generation + 1;
        let mut slot = 0;
        if !again.is_empty() {
            if table::batch_blocks(again.len(), carried.len()) > self.layout.slots as usize {
                return self.tried(Err(too_much()));
            }
            slot = self.write(base, generation, 0, (again, carried))?;
            self.sync(base)?;
        }
        let bytes = table::encode_snapshot(&self.layout, generation, self.sequence, self.epoch, &self.words);
        let bytes = AlignedBuf::padded(&bytes, PAGE);
        self.tried(write_all(base, &bytes, self.layout.snapshot_at(generation)))?;
        self.sync(base)?;
        self.generation = generation;
        (self.slot, self.carries) = (slot, !carried.is_empty());
        self.sequence += u64::from(slot > 0);
        Ok(())
    }
}
