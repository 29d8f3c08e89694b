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
    failed: bool,
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
    /// snapshots, one after the other, so that either is enough. The number of the next batch goes up, so that a table that nobody opened
    /// since it was copied is told from this one.
    pub(super) fn start(
        base: &dyn Base,
        layout: &Layout,
        (generation, sequence, epoch): (u64, u64, u64),
        words: Vec<Word>,
    ) -> Result<Journal, Fault> {
        let sequence = sequence + 1;
        let mut journal = Journal { layout: *layout, generation, sequence, epoch, slot: 0, words, failed: false };
        journal.roll(base)?;
        journal.roll(base)?;
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

    fn tried(&mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        self.failed |= result.is_err();
        result
    }

    /// Writes a batch and syncs everything: afterwards it is durable, with every write before.
    pub(super) fn commit(&mut self, base: &dyn Base, records: &[Record]) -> Result<(), Fault> {
        self.append(base, records)?;
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
        self.append(base, &[])
    }

    fn append(&mut self, base: &dyn Base, records: &[Record]) -> Result<(), Fault> {
        self.check()?;
        if self.slot + table::batch_blocks(records.len()) > self.layout.slots as usize {
            self.roll(base)?;
        }
        let place =
            Place { generation: self.generation, sequence: self.sequence, index: 0, count: 0, epoch: self.epoch };
        let blocks = table::encode_batch(&self.layout, place, records);
        let mut bytes = AlignedBuf::zeroed(blocks.len() * 2 * PAGE);
        for (slot, block) in bytes.chunks_mut(2 * PAGE).zip(&blocks) {
            slot.chunks_mut(PAGE).for_each(|copy| copy.copy_from_slice(block));
        }
        let at = self.layout.log_at(self.generation) + (self.slot * 2 * PAGE) as u64;
        self.tried(write_all(base, &bytes, at))?;
        self.slot += blocks.len();
        self.sequence += 1;
        Ok(())
    }

    /// Writes a new snapshot over the older one and begins its log. Everything that the log spoke of is durable now.
    fn roll(&mut self, base: &dyn Base) -> Result<(), Fault> {
        let generation = self.generation + 1;
        let bytes = table::encode_snapshot(&self.layout, generation, self.sequence, self.epoch, &self.words);
        let bytes = AlignedBuf::padded(&bytes, PAGE);
        self.tried(write_all(base, &bytes, self.layout.snapshot_at(generation)))?;
        self.sync(base)?;
        self.generation = generation;
        self.slot = 0;
        Ok(())
    }
}
