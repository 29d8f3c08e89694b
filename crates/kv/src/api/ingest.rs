//! Sorted pairs on their way into a store, past the write-ahead log.

use super::store::Kv;
use crate::piece::Piece;
use crate::space::full;
use crate::write::check_pair;
use imbrex_device::{Code, Result};

/// Takes the pairs of a space in the order of their keys, and writes them as tables at once: neither into the write-ahead log nor into memory where reads look.
///
/// It gathers as much as the store's memory may have ([`Options::memtable_bytes`](crate::Options)), and makes one *piece* of it, or several where partitions of the
/// store end. The larger that is, the less of the time goes into commits. A piece is there at once and durably, as if it had been put and synced as one batch at that moment: it replaces what its keys had, and others may put,
/// delete and read meanwhile. All of the ingest together is not atomic. Where it is dropped or fails, the pieces that are there stay, and the rest is not there.
/// Puts of others wait while a piece is made durable.
pub struct Ingest {
    kv: Kv,
    piece: Piece,
    /// The last key, of the tree.
    last: Option<Vec<u8>>,
    stored: u64,
}

impl Ingest {
    pub(super) fn new(kv: Kv, space: u16) -> Result<Ingest> {
        if !kv.core().spaces.are_there([space].into_iter()) {
            return Err(kv.core().refused(Code::NotFound, "the space is gone; it was dropped"));
        }
        Ok(Ingest { kv, piece: Piece::new(space), last: None, stored: 0 })
    }

    /// Takes a pair, whose key is behind the one before in the order of the space. It is there after a later call, or after [`Ingest::finish`]. Where it fails the
    /// pair is not taken, and what was taken before stays: the call may be made again.
    ///
    /// # Errors
    /// `InvalidArgument` where the key is not behind the one before, and where key or value are too long. `NoSpace`, `NotFound` where the space was dropped, and
    /// those of the drive: of a piece that was to be made room by.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let core = self.kv.core();
        check_pair(core, key.len(), value.len())?;
        let key = full(self.piece.space, key);
        if !self.is_behind(&key) {
            let sentence = "the key is not behind the one before it; ingest ascending keys, each once, or put them";
            return Err(core.refused(Code::InvalidArgument, sentence));
        }
        if self.piece.memory() + key.len() + value.len() > core.options.memtable_bytes {
            self.commit()?;
        }
        self.piece.push(&key, value);
        self.last = Some(key);
        Ok(())
    }

    /// Whether a key is behind the last one that was taken.
    pub fn may_follow(&self, key: &[u8]) -> bool {
        self.is_behind(&full(self.piece.space, key))
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        self.last.as_ref().is_none_or(|last| self.kv.core().order().compare(last, key).is_lt())
    }

    /// All pairs that were taken are there, and durable, when it returns. More may follow.
    ///
    /// # Errors
    /// Those of a piece, as of [`Ingest::put`]. What is not there yet stays, and the call may be made again.
    pub fn finish(&mut self) -> Result<()> {
        self.commit()
    }

    /// So many pairs are there, and durable: the first ones of those that were taken.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    fn commit(&mut self) -> Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let before = self.piece.len();
        let done = self.kv.worker().ingest(&mut self.piece);
        self.stored += (before - self.piece.len()) as u64;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Cursor;
    use crate::options::Options;
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};
    use std::sync::Arc;

    #[test]
    fn changes_of_a_table_have_the_number_of_the_piece_whoever_seeks_them() {
        let drive = Drive { device: Arc::new(Emulator::memory(&Config::tiny()).unwrap()), survivor: None };
        Kv::format(&drive, None, false).unwrap();
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let kv = Kv::open(drive, Options { volume, ..Options::default() }).unwrap();
        (0..7).for_each(|_| kv.put(b"other", b"", false).unwrap());
        let before = kv.core().view();
        assert!(kv.core().is_whole(&before));
        let mut ingest = kv.ingest().unwrap();
        [b"a", b"b", b"c"].iter().for_each(|key| ingest.put(*key, b"").unwrap());
        ingest.finish().unwrap();
        let view = kv.core().view();
        // Who has the view of before does not look at the piece's number with it.
        assert!(!kv.core().is_whole(&before) && kv.core().is_whole(&view));
        let table = view.tables.iter().next().unwrap();
        assert_eq!((table.info.seqs, table.info.ingested, view.ingested), ((8, 8), true, 8));
        let (a, b, c) = (full(0, b"a"), full(0, b"b"), full(0, b"c"));
        let seq = |at: u64| table.get(&b, at).unwrap().map(|found| found.seq);
        assert_eq!((seq(7), seq(8), seq(u64::MAX)), (None, Some(8), Some(8)));
        let cursors: [Box<dyn Cursor>; 2] = [table.cursor().unwrap(), Box::new(table.scan().unwrap())];
        for mut cursor in cursors {
            let mut at = |go: &dyn Fn(&mut dyn Cursor) -> Result<()>| {
                go(cursor.as_mut()).unwrap();
                cursor.at().map(|at| (at.key.to_vec(), at.seq))
            };
            // Changes of a key are ordered from the newest to the oldest.
            for (seq, found, before) in [(u64::MAX, &b, &a), (8, &b, &a), (7, &c, &b), (0, &c, &b)] {
                assert_eq!(at(&|cursor| cursor.seek(Some((&b, seq)))), Some((found.clone(), 8)), "{seq}");
                assert_eq!(at(&|cursor| cursor.seek_before(Some((&b, seq)))), Some((before.clone(), 8)), "{seq}");
            }
            assert_eq!(at(&|cursor| cursor.seek(Some((&c, 7)))), None);
            assert_eq!(at(&|cursor| cursor.seek_before(Some((&a, 8)))), None);
        }
    }
}
