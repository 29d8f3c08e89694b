//! What was decided, in the order of its numbers, and what of it the journal does not have yet.

use crate::format::entry::Entry;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(crate) struct Decisions {
    /// Number of the last thing that was decided.
    last: u64,
    /// Number of the last time that bytes found another place, or theirs took them after all. Those may have missed the commits before.
    landed: u64,
    /// Entries of the journal that are not written yet.
    entries: Vec<Entry>,
    /// Bytes of the names that are among these.
    naming: usize,
    /// Chunks that the journal does not know yet, by slot, and the numbers up to which it is to be written for that.
    creates: BTreeMap<u32, u64>,
}

impl Decisions {
    /// Number of the last thing that was decided.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// A number for something that is decided now.
    pub(crate) fn assign(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The journal is to say this.
    pub(crate) fn tell(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Entries that are not written yet.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes these, which are to be written now, and how many bytes of names are among them.
    pub(crate) fn take(&mut self) -> (Vec<Entry>, usize) {
        (std::mem::take(&mut self.entries), std::mem::take(&mut self.naming))
    }

    /// They could not be written: they come before what was decided since.
    pub(crate) fn put_back(&mut self, (entries, naming): (Vec<Entry>, usize)) {
        self.entries.splice(0..0, entries);
        self.naming += naming;
    }

    /// About so many bytes these take in the journal.
    pub(crate) fn bytes(&self) -> u64 {
        (64 * self.entries.len() + self.naming) as u64
    }

    /// Whether so many bytes of names can be written together with those that wait, in `most` bytes.
    pub(crate) fn has_room_for_names(&self, bytes: usize, most: usize) -> bool {
        self.naming == 0 || self.naming + bytes <= most
    }

    /// Names of so many bytes are to be written.
    pub(crate) fn name(&mut self, bytes: usize) {
        self.naming += bytes;
    }

    /// Number of the last time that bytes landed.
    pub(crate) fn landed(&self) -> u64 {
        self.landed
    }

    /// Bytes have landed: who waits for them needs one more commit.
    pub(crate) fn note_landed(&mut self) {
        self.landed = self.assign();
    }

    /// The chunk in this slot is known to the journal when it is written up to this number.
    pub(crate) fn created(&mut self, slot: u32, number: u64) {
        self.creates.insert(slot, number);
    }

    /// The chunk in this slot is gone.
    pub(crate) fn deleted(&mut self, slot: u32) {
        self.creates.remove(&slot);
    }

    /// The number up to which the journal is to be written so that it knows the chunk in this slot; 0: it does.
    pub(crate) fn known_with(&self, slot: u32) -> u64 {
        self.creates.get(&slot).copied().unwrap_or(0)
    }

    /// The journal is written up to this number.
    pub(crate) fn written(&mut self, number: u64) {
        self.creates.retain(|_, created| *created > number);
    }
}
