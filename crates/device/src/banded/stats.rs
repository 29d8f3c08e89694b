//! What a banded drive counts, by cause. Counters are kept in a page of the disk, written when the drive is closed and now
//! and then before, so a killed process may take a part of its own counts with it.

use super::layout::PAGE;
use crate::Cause;
use std::sync::atomic::{AtomicU64, Ordering};

/// Causes that have room.
const CAUSES: usize = 48;
const FIELDS: usize = 10;
/// The words that are used; the last eight bytes of the page are the checksum.
const WORDS: usize = CAUSES * FIELDS;

const _: () = assert!(Cause::ALL.len() <= CAUSES && WORDS * 8 <= PAGE - 8);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum Counter {
    Writes,
    Reads,
    Flushes,
    Resets,
    Finishes,
    BytesWritten,
    BytesRead,
    WritesConventional,
    BytesWrittenConventional,
    /// Commands that broke a rule of the contract; each failed.
    Violations,
}

/// Counters of a drive.
#[derive(Debug)]
pub struct Counters(Vec<AtomicU64>);

impl Counters {
    /// All 0.
    pub(super) fn new() -> Counters {
        Counters((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn at(&self, cause: Cause, counter: Counter) -> Option<&AtomicU64> {
        self.0.get(cause as usize * FIELDS + counter as usize)
    }

    pub(super) fn count(&self, cause: Cause, counter: Counter, n: u64) {
        if let Some(word) = self.at(cause, counter) {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// One counter.
    pub fn get(&self, cause: Cause, counter: Counter) -> u64 {
        self.at(cause, counter).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets all to 0.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    pub(super) fn encode(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let mut page: Vec<u8> = self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        page.resize(PAGE - 8, 0);
        let sum = crc32c::crc32c_append(crc32c::crc32c(uuid), &page);
        page.extend_from_slice(&u64::from(sum).to_le_bytes());
        page
    }

    /// Counters from a page; all 0 where it is not one.
    pub(super) fn decode(page: &[u8], uuid: &[u8; 16]) -> Counters {
        let counters = Counters::new();
        let Some((words, sum)) = page.split_last_chunk::<8>() else { return counters };
        if u64::from(crc32c::crc32c_append(crc32c::crc32c(uuid), words)) == u64::from_le_bytes(*sum) {
            for (counter, bytes) in counters.0.iter().zip(words.as_chunks::<8>().0) {
                counter.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_back_and_damage_is_zeros() {
        let counters = Counters::new();
        let last = Cause::ALL[Cause::ALL.len() - 1];
        counters.count(last, Counter::Violations, 7);
        counters.count(Cause::Wal, Counter::Writes, 3);
        let mut page = counters.encode(&[1; 16]);
        assert_eq!(page.len(), PAGE);
        let read = Counters::decode(&page, &[1; 16]);
        assert_eq!((read.get(last, Counter::Violations), read.get(Cause::Wal, Counter::Writes)), (7, 3));
        page[9] ^= 1;
        assert_eq!(Counters::decode(&page, &[1; 16]).get(Cause::Wal, Counter::Writes), 0);
    }
}
