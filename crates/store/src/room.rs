//! Room for metadata in RocksDB. RocksDB has no notion of a full drive from which something is deleted: a deletion is a record, too, and gives room back only when tables
//! were written anew. So writes that bring bytes leave free what those tables need, and writes that make room may take it.

use imbrex_bluestore::{Change, Family};
use std::sync::atomic::{AtomicU64, Ordering};

/// A write that makes room has so many bytes of records at most; and so many for each deletion.
const RECORDS: (u64, u64) = (4096, 64);

/// Tables of one compaction: `kTablesAtOnce` of `bindings/rocksdb-kv/src/database.cc`.
const TABLES: u64 = 4;

/// Of what may be written until somebody looks how much is free, so much is said to be there: a log, tables and compactions each take room for the same bytes.
const CAUTION: u64 = 8;

/// Whether changes make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    No,
    /// They delete, and what they put beside records of zones and sums is small: these are few, and written anew with each deletion.
    Room,
    /// They delete, and put a few KiB of other records, as who removes a clone does. So may somebody who adds pairs and removes one with each: it counts how many.
    Perhaps,
}

fn makes(changes: &[Change]) -> Makes {
    let (mut sums, mut others, mut deletions) = (0, 0, 0);
    for change in changes {
        match change {
            Change::Put(Family::Zones | Family::Statistics | Family::Units, ..) => sums += bytes_of(change),
            Change::Put(..) => others += bytes_of(change),
            Change::Delete(..) | Change::DeleteRange(..) => deletions += 1,
        }
    }
    match RECORDS.1 * deletions {
        0 => Makes::No,
        small if sums <= RECORDS.0 + small && others <= small => Makes::Room,
        small if sums + others <= RECORDS.0 + small => Makes::Perhaps,
        _ => Makes::No,
    }
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
    /// Bytes of the reserve that writes may take which perhaps make room, until there is room beyond it again.
    lent: AtomicU64,
}

impl Room {
    pub(crate) fn new(reserve: u64) -> Room {
        Room { reserve, left: AtomicU64::new(0), lent: AtomicU64::new(reserve / CAUTION) }
    }

    /// Whether there is room for these changes. `free`: looks.
    pub(crate) fn is_there(&self, changes: &[Change], free: impl FnOnce() -> u64) -> bool {
        let bytes: u64 = changes.iter().map(bytes_of).sum();
        let take = |left: u64| left.checked_sub(bytes);
        let taken_of = |from: &AtomicU64| from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        let makes = makes(changes);
        if taken_of(&self.left) || makes == Makes::Room {
            return true;
        }
        let beyond = free().saturating_sub(self.reserve);
        self.left.store(beyond / CAUTION, Ordering::Relaxed);
        // At least as often as so much is written: what is freed meanwhile is seen then.
        if bytes < beyond {
            self.lent.store(self.reserve / CAUTION, Ordering::Relaxed);
            return true;
        }
        makes == Makes::Perhaps && taken_of(&self.lent)
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
    use imbrex_bluestore::Family::{Blobs, Deferred, Omap, Onodes, Zones};

    #[test]
    fn what_deletes_more_than_it_puts_makes_room() {
        let put = |family, bytes| Change::Put(family, vec![1; 4], vec![0; bytes]);
        let delete = Change::Delete(Onodes, vec![1; 20]);
        assert_eq!((makes(&[]), makes(&[put(Zones, 10)])), (Makes::No, Makes::No), "nothing is deleted");
        assert_eq!(makes(std::slice::from_ref(&delete)), Makes::Room);
        assert_eq!(makes(&[put(Zones, 4000), put(Onodes, 60), delete.clone()]), Makes::Room);
        assert_eq!(makes(&[put(Zones, 4200), delete.clone()]), Makes::No);
        for family in [Omap, Onodes, Blobs, Deferred] {
            assert_eq!(makes(&[put(family, 61), delete.clone()]), Makes::Perhaps, "{family:?}");
            assert_eq!(makes(&[put(family, 4200), delete.clone()]), Makes::No, "{family:?}");
        }
        let many: Vec<Change> = (0..100).map(|_| delete.clone()).chain((0..100).map(|_| put(Omap, 60))).collect();
        assert_eq!(makes(&many), Makes::Room);
        assert_eq!(makes(&[Change::DeleteRange(Onodes, vec![1], vec![2])]), Makes::Room);
    }

    #[test]
    fn what_perhaps_makes_room_takes_a_part_of_the_reserve_and_no_more() {
        let room = Room::new(80_000);
        let both = [Change::Put(Omap, vec![1; 8], vec![0; 4000]), Change::Delete(Omap, vec![1; 8])];
        let taken = (0..100).filter(|_| room.is_there(&both, || 80_000)).count();
        assert_eq!(taken, 2, "an eighth of the reserve");
        assert!(room.is_there(&both[1..], || 0), "a deletion");
        // There is room again, and no more of it then.
        assert!(room.is_there(&both, || 80_000 + 5000) && room.is_there(&both, || 0) && room.is_there(&both, || 0));
        assert!(!room.is_there(&both, || 0));
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
