//! Room for metadata in RocksDB. RocksDB has no notion of a full drive from which something is deleted: a deletion is a record, too, and gives room back only when tables
//! were written anew. So writes that bring bytes leave free what those tables need, and writes that make room may take it.

use imbrex_bluestore::Change;
use std::sync::atomic::{AtomicU64, Ordering};

/// A write that makes room has so many bytes of records at most: those of zones and sums; and so many for each deletion.
const RECORDS: (u64, u64) = (4096, 64);

/// Tables of one compaction: `kTablesAtOnce` of `bindings/rocksdb-kv/src/database.cc`.
const TABLES: u64 = 4;

/// Of what may be written until somebody looks how much is free, so much is said to be there: a log, tables and compactions each take room for the same bytes.
const CAUTION: u64 = 8;

/// Whether changes make room: they delete, and what they put is small beside that.
pub(crate) fn makes_room(changes: &[Change]) -> bool {
    let (mut put, mut deletions) = (0, 0);
    for change in changes {
        match change {
            Change::Put(_, key, value) => put += (key.len() + value.len()) as u64,
            Change::Delete(..) | Change::DeleteRange(..) => deletions += 1,
        }
    }
    deletions > 0 && put <= RECORDS.0 + RECORDS.1 * deletions
}

/// Bytes that writes which bring bytes leave free, of `total` that files can ever take: what is in memory becomes tables, and so does what comes meanwhile; a compaction;
/// the next log, and a zone that is not full.
pub(crate) fn reserve(memtable: u64, zone: u64, total: u64) -> u64 {
    (2 * memtable + (TABLES + 2) * zone).min(total / 2)
}

/// How much may be written. To look is not for nothing, so it is done now and then.
#[derive(Debug)]
pub(crate) struct Room {
    reserve: u64,
    /// Bytes that may be written before somebody looks again.
    left: AtomicU64,
}

impl Room {
    pub(crate) fn new(reserve: u64) -> Room {
        Room { reserve, left: AtomicU64::new(0) }
    }

    /// Whether there is room for these changes. `free`: looks.
    pub(crate) fn is_there(&self, changes: &[Change], free: impl FnOnce() -> u64) -> bool {
        let bytes: u64 = changes.iter().map(bytes_of).sum();
        let take = |left: u64| left.checked_sub(bytes);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() || makes_room(changes) {
            return true;
        }
        let beyond = free().saturating_sub(self.reserve);
        self.left.store(beyond / CAUTION, Ordering::Relaxed);
        // At least as often as so much is written: what is freed meanwhile is seen then.
        bytes < beyond
    }
}

fn bytes_of(change: &Change) -> u64 {
    match change {
        Change::Put(_, key, value) => (key.len() + value.len()) as u64,
        Change::Delete(_, key) => key.len() as u64,
        Change::DeleteRange(_, from, to) => (from.len() + to.len()) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_bluestore::Family::{Deferred, Onodes, Zones};

    #[test]
    fn what_deletes_more_than_it_puts_makes_room() {
        let put = |bytes| Change::Put(Zones, vec![1; 4], vec![0; bytes]);
        let delete = Change::Delete(Onodes, vec![1; 20]);
        assert!(!makes_room(&[]) && !makes_room(&[put(10)]), "nothing is deleted");
        assert!(makes_room(std::slice::from_ref(&delete)) && makes_room(&[put(4000), delete.clone()]));
        assert!(!makes_room(&[Change::Put(Deferred, vec![1; 8], vec![0; 4200]), delete.clone()]), "a block");
        let many: Vec<Change> = (0..100).map(|_| delete.clone()).chain((0..100).map(|_| put(60))).collect();
        assert!(makes_room(&many));
        assert!(makes_room(&[Change::DeleteRange(Onodes, vec![1], vec![2])]));
    }

    #[test]
    fn bytes_are_refused_before_the_reserve_and_deletions_are_not() {
        let room = Room::new(reserve(100, 50, 10_000));
        let (write, delete) = (Change::Put(Deferred, vec![1; 8], vec![0; 5000]), Change::Delete(Deferred, vec![1; 8]));
        let (write, delete) = (std::slice::from_ref(&write), std::slice::from_ref(&delete));
        assert!(!room.is_there(write, || 500) && !room.is_there(write, || 5008 + 500) && room.is_there(delete, || 0));
        assert!(room.is_there(write, || 500 + 8 * 10_016));
        // Two more before it looks again, and no third.
        assert!(room.is_there(write, || panic!()) && room.is_there(write, || panic!()));
        assert!(!room.is_there(write, || 0));
        assert_eq!((reserve(1 << 20, 1 << 20, 1 << 30), reserve(1 << 20, 1 << 20, 4 << 20)), (8 << 20, 2 << 20));
    }
}
