//! How much may be added to metadata. What a transaction brings is refused before they have no room: the commit that finds none ends the store, and then nothing can be deleted, either.

use imbrex_kv::Kv;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of what there is beyond what somebody asks for, such a part is given before it is looked again: a log, tables and compactions each take room for the same bytes.
const CAUTION: u64 = 8;

/// See the module. To look is not for nothing, so it is done now and then.
#[derive(Debug, Default)]
pub(crate) struct Spare(AtomicU64);

impl Spare {
    /// Whether so many bytes have room. `free`: looks how many have.
    pub(crate) fn takes(&self, bytes: u64, free: impl FnOnce() -> u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return true;
        }
        let free = free();
        self.0.store(free / CAUTION, Ordering::Relaxed);
        bytes < free
    }
}

/// Bytes that a key-value store has room for, with as much beside as merges and deletions need: what it has takes three quarters of its zones at most, those aside that it cannot do without. `little`: seven
/// eighths.
pub(crate) fn of_kv(kv: &Kv, little: bool) -> u64 {
    let (figures, volume) = (kv.figures(), kv.volume());
    let zones = (figures.zones.0 + figures.zones.1).saturating_sub(imbrex_kv::budget(volume.geometry()).least);
    let has = figures.levels.iter().map(|(_, bytes, _)| *bytes).sum::<u64>() + figures.memory;
    (u64::from(zones) * volume.least_capacity() / 8 * if little { 7 } else { 6 }).saturating_sub(has)
}

/// Bytes that RocksDB has room for: half as much again stays free as its own writes leave (see [`room`](crate::room)), and a third of all, since logs of many short deletions are there until tables
/// were written anew. `little`: a quarter as much, and a sixth. Where the objects share the drive they may take all but a few zones, so half of that half is left, and nothing of all.
pub(crate) fn of_files((free, total): (u64, u64), reserve: u64, (little, apart): (bool, bool)) -> u64 {
    let parts = if little { 2 } else { 1 };
    let left =
        if apart { (reserve + reserve / 2 / parts).max(total / 3 / parts) } else { reserve + reserve / 4 / parts };
    free.saturating_sub(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_looked_at_before_it_can_be_gone() {
        let spare = Spare::default();
        assert!(!spare.takes(100, || 100) && spare.takes(100, || 1601));
        // An eighth of that before it looks again.
        assert!(spare.takes(100, || panic!()) && spare.takes(100, || panic!()) && !spare.takes(100, || 0));
        assert!(!spare.takes(1, || 0));
        assert_eq!(
            [(100, 40), (100, 10), (30, 10)].map(|(free, reserve)| of_files((free, 120), reserve, (false, true))),
            [40, 60, 0]
        );
        assert_eq!([(100, 40), (30, 10)].map(|(free, reserve)| of_files((free, 120), reserve, (true, true))), [50, 10]);
        assert_eq!([false, true].map(|little| of_files((100, 120), 40, (little, false))), [50, 55]);
    }
}
