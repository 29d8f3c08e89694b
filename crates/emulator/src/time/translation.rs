//! The translation layer of a drive-managed shingled drive: what is where, and what has to be cleaned.
//!
//! The drive is cut into bands; writing into one destroys what lies behind in it, so it is written from its front. A write
//! that begins a band or continues where the last one left off, and is long enough, goes to the band itself. Every other one
//! is appended to the persistent cache at the outer edge, a log, and an extent map remembers it. When the log or the map is
//! full, or the drive idles, the band of the oldest entry is cleaned: read, merged with all that the cache has of it, written
//! as a whole. The shape is that of Skylight (Aghayev and Desnoyers, FAST 2015); how streams are recognised is assumed.
//!
//! It moves no bytes: it only says where the head has to go. Addresses and lengths in bytes; *physical* ones begin with the
//! cache.

use super::extents::Extents;
use super::kept::KeptTranslation;
use super::params::Params;
use std::collections::VecDeque;

const MIB: f64 = 1_048_576.0;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The first `len` bytes go there.
    Place { physical: u64, len: u64 },
    /// Like that, after the rest of a band that another stream left is read and written again.
    Merge { physical: u64, len: u64, rest: (u64, u64) },
    /// There is no room in the cache; a band has to be cleaned first.
    Full,
}

/// One band's cleaning: physical place and length of the band, and of what the cache has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) band: (u64, u64),
    pub(crate) cached: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Translation {
    capacity: u64,
    band: u64,
    cache: u64,
    most: usize,
    stream: u64,
    streams_most: usize,
    map: Extents,
    /// What was appended to the log, oldest first: position, address, length. Some of it, or all, may be written over or cleaned
    /// since; of the first one something is still there.
    log: VecDeque<(u64, u64, u64)>,
    /// Position and address of the oldest bytes that the cache still has.
    oldest: Option<(u64, u64)>,
    head: u64,
    /// Bands being written: where each goes on; oldest first.
    streams: VecDeque<u64>,
    /// Bands with something in them, a bit each.
    written: Vec<u64>,
}

impl Translation {
    pub(crate) fn new(params: &Params, capacity: u64) -> Translation {
        let blocks = |bytes: f64| (bytes / 4096.0).ceil() as u64 * 4096;
        let band = blocks(params.band_mib * MIB).max(4096);
        Translation {
            capacity,
            band,
            cache: blocks(params.persistent_cache_mib * MIB).max(2 * band),
            most: params.persistent_cache_extents.max(2.0) as usize,
            stream: blocks(params.stream_kib * 1024.0),
            streams_most: params.streams as usize,
            map: Extents::new(band),
            log: VecDeque::new(),
            oldest: None,
            head: 0,
            streams: VecDeque::new(),
            written: vec![0; (capacity.div_ceil(band) as usize).div_ceil(64)],
        }
    }

    /// Bytes of the cache, in front of everything.
    pub(crate) fn reserved(&self) -> u64 {
        self.cache
    }

    pub(crate) fn native(&self, at: u64) -> u64 {
        self.cache + at
    }

    pub(crate) fn logical(&self, place: u64) -> u64 {
        place.saturating_sub(self.cache)
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.map.is_empty()
    }

    fn band_end(&self, at: u64) -> u64 {
        (at / self.band + 1).saturating_mul(self.band).min(self.capacity)
    }

    fn has_data(&self, at: u64) -> bool {
        let band = at / self.band;
        self.written.get((band / 64) as usize).is_some_and(|word| word >> (band % 64) & 1 == 1)
    }

    fn mark(&mut self, at: u64) {
        let band = at / self.band;
        if let Some(word) = self.written.get_mut((band / 64) as usize) {
            *word |= 1 << (band % 64);
        }
    }

    /// Where the first bytes of a write go: of `whole` bytes that are known to follow one another, `piece` are written now.
    pub(crate) fn write(&mut self, at: u64, whole: u64, piece: u64) -> Route {
        let end = self.band_end(at);
        let len = piece.min(end.saturating_sub(at)).max(1);
        if let Some(i) = self.streams.iter().position(|next| *next == at) {
            self.streams.remove(i);
            return self.direct(at, len, None);
        }
        if at.is_multiple_of(self.band) && whole >= self.stream.min(self.band) && self.streams_most > 0 {
            // A stream that is left ends here; what lies behind it in a band that had something is saved.
            let left = (self.streams.len() >= self.streams_most).then(|| self.streams.pop_front()).flatten();
            let rest =
                left.filter(|next| self.has_data(*next)).map(|next| (self.native(next), self.band_end(next) - next));
            return self.direct(at, len, rest);
        }
        let used = self.used();
        // A piece does not lie around the log's end.
        let skip = if self.head % self.cache + len > self.cache { self.cache - self.head % self.cache } else { 0 };
        if used + skip + len > self.cache || self.map.len() + 2 > self.most {
            if self.map.is_empty() {
                self.head = self.head.next_multiple_of(self.cache);
                return self.direct(at, len, None);
            }
            return Route::Full;
        }
        self.unmap(at, len);
        self.head += skip;
        let physical = self.head % self.cache;
        self.map.insert((at, len, self.head));
        self.log.push_back((self.head, at, len));
        self.head += len;
        // The oldest bytes are still those that they were, unless there were none.
        if self.oldest.is_none() {
            self.trim();
        }
        if self.log.len() > 2 * self.most + 64 {
            self.compact();
        }
        Route::Place { physical, len }
    }

    fn direct(&mut self, at: u64, len: u64, rest: Option<(u64, u64)>) -> Route {
        self.unmap(at, len);
        if at + len < self.band_end(at) {
            self.streams.push_back(at + len);
        } else {
            self.mark(at);
        }
        let physical = self.native(at);
        match rest {
            Some(rest) => Route::Merge { physical, len, rest },
            None => Route::Place { physical, len },
        }
    }

    /// The cache no longer has these bytes.
    fn unmap(&mut self, at: u64, len: u64) {
        if self.map.cut(at, at + len) {
            self.trim();
        }
    }

    /// Forgets the front of the log of which nothing is left, and finds the oldest bytes that are.
    fn trim(&mut self) {
        // Mostly it is still what it was.
        if let Some((position, at)) = self.oldest
            && self.map.position(at) == Some(position)
        {
            return;
        }
        self.oldest = None;
        while let Some(&(position, at, len)) = self.log.front() {
            let mut there = self.map.overlapping(at, at + len);
            if let Some((start, _, held_at)) = there.find(|(start, _, held_at)| *held_at + at == position + *start) {
                self.oldest = Some((held_at, start));
                return;
            }
            self.log.pop_front();
        }
    }

    /// Leaves in the log what the cache still has, so that what is written over again and again does not make it long.
    fn compact(&mut self) {
        let entries = self.map.sorted().into_iter().map(|(at, len, position)| (position, at, len));
        self.log = entries.collect();
        self.log.make_contiguous().sort_unstable();
    }

    /// Bytes of the log from the oldest one that is still there.
    fn used(&self) -> u64 {
        self.head - self.oldest.map_or(self.head, |(position, _)| position)
    }

    /// Whether the cache has some of these bytes.
    pub(crate) fn scattered(&self, at: u64, end: u64) -> bool {
        self.map.overlapping(at, end).next().is_some()
    }

    /// The physical pieces of a read, in the order of addresses.
    pub(crate) fn read(&self, at: u64, len: u64) -> Vec<(u64, u64)> {
        let end = at + len;
        let (mut pieces, mut done) = (Vec::new(), at);
        for (start, held, position) in self.map.overlapping(at, end) {
            let (from, to) = (start.max(at), (start + held).min(end));
            if done < from {
                pieces.push((self.native(done), from - done));
            }
            pieces.push(((position + (from - start)) % self.cache, to - from));
            done = to;
        }
        if done < end {
            pieces.push((self.native(done), end - done));
        }
        pieces
    }

    /// Takes the band of the oldest entry out of the cache; the caller lets the time pass that it takes.
    pub(crate) fn clean(&mut self) -> Option<Job> {
        let (_, oldest) = self.oldest?;
        let (start, end) = (oldest / self.band * self.band, self.band_end(oldest));
        // No entry lies in two bands: a write ends with its band.
        let entries = self.map.take_band(oldest);
        let mut cached: Vec<_> = entries.map(|(_, len, position)| (position % self.cache, len)).collect();
        cached.sort_unstable();
        // Of the band nothing is left in the map, so not of these entries either.
        while self.log.front().is_some_and(|(_, at, _)| (start..end).contains(at)) {
            self.log.pop_front();
        }
        self.oldest = None;
        self.trim();
        self.mark(start);
        Some(Job { band: (self.native(start), end - start), cached })
    }

    /// As a drive that was written all over and whose cache holds `entries` single blocks, evenly spread over its bands.
    pub(crate) fn precondition(&mut self, entries: usize) {
        self.map.clear();
        self.log.clear();
        self.oldest = None;
        self.streams.clear();
        self.written.fill(u64::MAX);
        let blocks = (self.capacity / 4096).max(1);
        let entries = (entries.min(self.most.saturating_sub(2)) as u64).min(self.cache / 4096 - 1).min(blocks);
        for i in 0..entries {
            // Every block once, far from its neighbours: a step that shares no factor with the number of blocks would need
            // arithmetic; a stride of entries is spread well enough.
            self.write((u128::from(i) * u128::from(blocks) / u128::from(entries)) as u64 * 4096, 4096, 4096);
        }
    }

    /// Most streams and extents, and words of the bits of bands.
    pub(crate) fn limits(&self) -> (usize, usize, usize) {
        (self.streams_most, self.most, self.written.len())
    }

    pub(crate) fn keep(&self) -> KeptTranslation {
        KeptTranslation {
            log_head: self.head,
            streams: self.streams.iter().copied().collect(),
            extents: self.map.sorted(),
            bands: self.written.clone(),
        }
    }

    /// Goes on where a drive of these numbers stopped; `None` where what was kept cannot be that.
    pub(crate) fn resume(mut self, kept: KeptTranslation) -> Option<Translation> {
        let KeptTranslation { log_head, streams, extents, bands } = kept;
        let (most_streams, most_extents, words) = self.limits();
        if bands.len() != words || streams.len() > most_streams || extents.len() > most_extents {
            return None;
        }
        if log_head > 1 << 62 || streams.iter().any(|next| *next >= self.capacity) {
            return None;
        }
        let mut free_from = 0;
        for (at, len, position) in extents {
            let end = at.checked_add(len)?;
            let (log_end, lap) = (position.checked_add(len)?, log_head.saturating_sub(self.cache));
            let in_band = len > 0 && end <= self.band_end(at) && at >= free_from && end <= self.capacity;
            if !in_band || position < lap || log_end > log_head || position % self.cache + len > self.cache {
                return None;
            }
            free_from = end;
            self.map.insert((at, len, position));
        }
        self.compact();
        // No two of them share a place in the log.
        let mut log_from = 0;
        for (position, _, len) in &self.log {
            if *position < log_from {
                return None;
            }
            log_from = position + len;
        }
        (self.head, self.streams, self.written) = (log_head, streams.into(), bands);
        self.trim();
        Some(self)
    }

    /// Extents in the cache, and bytes of its log in use.
    pub(crate) fn load(&self) -> (usize, u64) {
        (self.map.len(), self.used())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    const MB: u64 = 1 << 20;

    fn small() -> Translation {
        let profile = crate::Profile::named("seagate-st8000as0022").unwrap();
        let mut params = Params::parse(&profile.parameters).unwrap();
        (params.band_mib, params.persistent_cache_mib, params.persistent_cache_extents) = (1.0, 4.0, 200.0);
        (params.stream_kib, params.streams) = (512.0, 2.0);
        Translation::new(&params, 64 * MB)
    }

    #[test]
    fn long_writes_go_to_their_band_and_short_ones_to_the_cache() {
        let mut drive = small();
        let native = drive.native(0);
        assert_eq!(drive.write(0, 2 * MB, 512 << 10), Route::Place { physical: native, len: 512 << 10 });
        assert_eq!(drive.write(512 << 10, 4096, 4096), Route::Place { physical: native + (512 << 10), len: 4096 });
        assert_eq!(drive.write(8192, 4096, 4096), Route::Place { physical: 0, len: 4096 });
        assert_eq!(
            drive.write(5 * MB + 4096, MB, MB),
            Route::Place { physical: 4096, len: MB - 4096 },
            "to its band's end"
        );
        assert_eq!(drive.read(4096, 12288), [(native + 4096, 4096), (0, 4096), (native + 12288, 4096)]);
        assert!(drive.scattered(8192, 8193) && !drive.scattered(0, 8192));
        let job = drive.clean().unwrap();
        assert_eq!((job.band, job.cached), ((native, MB), vec![(0, 4096)]));
        assert!(!drive.scattered(0, MB) && drive.has_work());
    }

    #[test]
    fn a_stream_that_is_left_saves_what_lies_behind_it() {
        let mut drive = small();
        drive.write(3 * MB, MB, MB);
        assert!(drive.has_data(3 * MB));
        drive.write(3 * MB, MB, 4096);
        drive.write(9 * MB, MB, 4096);
        let rest = (drive.native(3 * MB + 4096), MB - 4096);
        let physical = drive.native(20 * MB);
        assert_eq!(drive.write(20 * MB, MB, 4096), Route::Merge { physical, len: 4096, rest });
        // A band that never had anything behind needs no saving.
        assert_eq!(drive.write(21 * MB, MB, MB), Route::Place { physical: drive.native(21 * MB), len: MB });
    }

    #[test]
    fn a_full_cache_is_cleaned_band_by_band() {
        let mut drive = small();
        let mut cleaned = BTreeSet::new();
        for i in 0..2000_u64 {
            let at = (i * 37 % 60) * MB + 4096 + i / 60 * 8192;
            while drive.write(at, 4096, 4096) == Route::Full {
                cleaned.insert(drive.clean().unwrap().band);
            }
            assert!(drive.load().0 <= 200 && drive.load().1 <= 4 * MB);
        }
        assert_eq!(cleaned.len(), 60);
        while drive.clean().is_some() {}
        assert!(!drive.has_work());
    }

    #[test]
    fn every_byte_has_one_place_whatever_is_written() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let mut drive = small();
        for _ in 0..3000 {
            let at = rng.random_range(0..16_000_u64) * 4096;
            let whole = if rng.random_bool(0.2) { MB } else { rng.random_range(1..8) * 4096 }.min(64 * MB - at);
            match drive.write(at, whole, whole) {
                Route::Full => drop(drive.clean().unwrap()),
                Route::Place { len, .. } | Route::Merge { len, .. } => assert!(len <= whole),
            }
            let from = rng.random_range(0..15_000_u64) * 4096;
            let pieces = drive.read(from, 2 * MB);
            assert_eq!(pieces.iter().map(|piece| piece.1).sum::<u64>(), 2 * MB);
            assert!(pieces.iter().all(|(place, len)| place + len <= 68 * MB));
        }
        let entries: u64 = drive.map.sorted().iter().map(|(_, len, _)| len).sum();
        assert!(drive.log.iter().is_sorted());
        assert!(entries <= drive.load().1);
    }

    #[test]
    fn what_is_kept_goes_on_as_if_nothing_had_been() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(9);
        let mut drive = small();
        let mut step = |drive: &mut Translation| {
            let at = rng.random_range(0..16_000_u64) * 4096;
            let whole = if rng.random_bool(0.2) { MB } else { rng.random_range(1..8) * 4096 }.min(64 * MB - at);
            if drive.write(at, whole, whole) == Route::Full {
                drive.clean();
            }
        };
        (0..2000).for_each(|_| step(&mut drive));
        drive.write(3 * MB, MB, 4096);
        assert!(drive.load().0 > 20 && !drive.streams.is_empty());
        let resumed = small().resume(drive.keep()).unwrap();
        assert_eq!((resumed.keep(), resumed.oldest, resumed.load()), (drive.keep(), drive.oldest, drive.load()));
        let broken = |change: &dyn Fn(&mut KeptTranslation)| {
            let mut kept = drive.keep();
            change(&mut kept);
            small().resume(kept)
        };
        assert_eq!(broken(&|_| {}), Some(resumed));
        for change in [
            (|kept| kept.bands.push(0)) as fn(&mut KeptTranslation),
            |kept| kept.streams = vec![u64::MAX],
            |kept| kept.streams = vec![0; 3],
            |kept| kept.log_head = u64::MAX,
            |kept| kept.log_head = 0,
            |kept| kept.extents[3].0 = u64::MAX,
            |kept| kept.extents[3].1 = 2 * MB,
            |kept| kept.extents[3].1 = 0,
            |kept| kept.extents[3].2 = u64::MAX,
            |kept| kept.extents[3].2 = kept.extents[4].2,
            |kept| kept.extents.swap(3, 4),
            |kept| kept.extents = (0..201).map(|i| (i * 8192, 4096, i * 4096)).collect(),
        ] {
            assert_eq!(broken(&change), None);
        }
    }

    #[test]
    fn what_is_written_over_again_and_again_takes_no_room_in_memory() {
        let mut drive = small();
        drive.write(5 * MB + 4096, 4096, 4096);
        for i in 0..900 {
            assert_ne!(drive.write(9 * MB + 8192, 4096, 4096), Route::Full, "{i}");
            assert!(drive.log.len() <= 2 * 200 + 64);
        }
        assert_eq!(drive.load(), (2, 901 * 4096));
        assert_eq!(drive.clean().unwrap().band.0, drive.native(5 * MB));
        assert_eq!(drive.load(), (1, 4096));
    }

    #[test]
    fn preconditioning_fills_map_and_cache() {
        let mut drive = small();
        drive.precondition(usize::MAX);
        assert!(drive.load().0 >= 190 && drive.has_data(63 * MB));
    }
}
