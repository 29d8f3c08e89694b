//! What a persistent cache has, by address: the extent map of a drive-managed drive.
//!
//! An extent never lies in two bands, and whatever changes it stays within one. So each band has a small map of its own, found by its
//! number, and a band that is cleaned takes its map along: on a drive of 8 TB whose cache holds 200,000 extents most of these maps have one
//! entry, where a single one would be searched from its root to its leaves for each of these steps.

use std::collections::{BTreeMap, HashMap};

/// Address, length, position in the log.
pub(super) type Extent = (u64, u64, u64);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extents {
    band: u64,
    /// By the number of the band; none is empty. Address → length, position in the log.
    bands: HashMap<u64, BTreeMap<u64, (u64, u64)>>,
    count: usize,
}

impl Extents {
    /// None, of a drive with bands of so many bytes.
    pub(super) fn new(band: u64) -> Extents {
        Extents { band, bands: HashMap::new(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        self.bands.clear();
        self.count = 0;
    }

    /// Position of the extent that begins at `at`.
    pub(super) fn position(&self, at: u64) -> Option<u64> {
        self.bands.get(&(at / self.band))?.get(&at).map(|(_, position)| *position)
    }

    /// The extent lies in one band and overlaps no other.
    pub(super) fn insert(&mut self, (at, len, position): Extent) {
        let before = self.bands.entry(at / self.band).or_default().insert(at, (len, position));
        self.count += usize::from(before.is_none());
    }

    /// Takes these bytes, which lie in one band, out of it. False: nothing of them was there.
    pub(super) fn cut(&mut self, at: u64, end: u64) -> bool {
        let number = at / self.band;
        let Some(band) = self.bands.get_mut(&number) else { return false };
        let before =
            band.range(..at).next_back().filter(|(start, (len, _))| *start + len > at).map(|(start, _)| *start);
        let inside = band.range(at..end).map(|(start, _)| *start);
        let there: Vec<u64> = before.into_iter().chain(inside).collect();
        let entries = band.len();
        for start in &there {
            let Some((held, position)) = band.remove(start) else { continue };
            let stop = start + held;
            if *start < at {
                band.insert(*start, (at - start, position));
            }
            if stop > end {
                band.insert(end, (stop - end, position + (end - start)));
            }
        }
        self.count = self.count - entries + band.len();
        if band.is_empty() {
            self.bands.remove(&number);
        }
        !there.is_empty()
    }

    /// Everything of the band in which `at` lies, in the order of addresses.
    pub(super) fn take_band(&mut self, at: u64) -> impl Iterator<Item = Extent> + use<> {
        let band = self.bands.remove(&(at / self.band)).unwrap_or_default();
        self.count -= band.len();
        band.into_iter().map(|(at, (len, position))| (at, len, position))
    }

    /// Those that begin in `at..end`, and the one that reaches into it, in the order of addresses.
    pub(super) fn overlapping(&self, at: u64, end: u64) -> impl Iterator<Item = Extent> + '_ {
        let bands = (at < end).then(|| at / self.band..=(end - 1) / self.band);
        bands.into_iter().flatten().filter_map(|number| self.bands.get(&number)).flat_map(move |band| {
            let before = band.range(..at).next_back().filter(move |(start, (len, _))| *start + len > at);
            before.into_iter().chain(band.range(at..end)).map(|(start, (len, position))| (*start, *len, *position))
        })
    }

    /// All of them, in the order of addresses.
    pub(super) fn sorted(&self) -> Vec<Extent> {
        let all = self.bands.values().flatten().map(|(at, (len, position))| (*at, *len, *position));
        let mut all: Vec<Extent> = all.collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn it_answers_as_one_map_of_blocks_would() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let (mut extents, mut blocks) = (Extents::new(16), BTreeMap::<u64, u64>::new());
        let mut log = 0;
        for _ in 0..20_000 {
            let at = rng.random_range(0..160);
            let end = rng.random_range(at..=(at / 16 + 1) * 16);
            match rng.random_range(0..8) {
                0 => {
                    let taken: u64 = extents.take_band(at).map(|(_, len, _)| len).sum();
                    let before = blocks.len() as u64;
                    blocks.retain(|block, _| block / 16 != at / 16);
                    assert_eq!(taken, before - blocks.len() as u64);
                }
                1..4 if at < end => {
                    let there = blocks.range(at..end).next().is_some();
                    assert_eq!(extents.cut(at, end), there);
                    blocks.retain(|block, _| !(at..end).contains(block));
                }
                4..7 if at < end => {
                    extents.cut(at, end);
                    extents.insert((at, end - at, log));
                    (at..end).for_each(|block| _ = blocks.insert(block, log + block - at));
                    assert_eq!(extents.position(at), Some(log));
                    log += end - at;
                }
                _ => {
                    let end = rng.random_range(at..=160);
                    let found: Vec<(u64, u64)> = extents
                        .overlapping(at, end)
                        .flat_map(|(start, len, position)| (0..len).map(move |i| (start + i, position + i)))
                        .filter(|(block, _)| (at..end).contains(block))
                        .collect();
                    let wanted: Vec<_> = blocks.range(at..end).map(|(block, position)| (*block, *position)).collect();
                    assert_eq!(found, wanted);
                }
            }
            let all = extents.sorted();
            assert_eq!((all.len(), all.is_empty()), (extents.len(), extents.is_empty()));
            assert_eq!(all.iter().map(|(_, len, _)| len).sum::<u64>(), blocks.len() as u64);
            assert!(extents.bands.values().all(|band| !band.is_empty()));
        }
        extents.clear();
        assert!(extents.is_empty() && extents.sorted().is_empty());
    }
}
