//! What is counted of a drive's time, as words of a region: the heap for drives in memory, a shared mapping beside an image, so that
//! other processes read it while the drive is in use and afterwards.
//!
//! ```text
//! word 0       16                                              384
//! ┌────────────┬───────────────────────────────────────────────┬─────────────────┬ ─
//! │ clock, …   │ cause 0: kinds, sum, longest, 360 buckets      │ cause 1         │ …
//! └────────────┴───────────────────────────────────────────────┴─────────────────┴ ─
//! ```
//!
//! Times are whole nanoseconds; every word is right for itself at any moment. Only the process that has the drive writes, and
//! whoever resets.

use super::engine::Engine;
use super::mechanics::Ns;
use super::tally::{BUCKETS, Kind, Tally, bucket, middle};
use super::{Latency, Pace, PersistentCache, Seconds, TimeStats};
use crate::region::Region;
use imbrex_device::Cause;
use std::collections::BTreeMap;

/// The drive's clock.
const CLOCK: usize = 0;
/// The clock when the counters were reset.
const BASE: usize = 1;
/// Extents and bytes of a persistent cache, and 1 where there is one.
const EXTENTS: usize = 2;
const BYTES: usize = 3;
const TRANSLATES: usize = 4;
/// How whoever has the drive keeps time: 0 not at all, 1 account, 2 pace; and the speed, a double.
const PACE: usize = 5;
const SPEED: usize = 6;
/// 1 where service times were added up since the counters were reset, whoever did; that is told when nobody has the drive any more.
const ADDED_UP: usize = 7;
const CAUSES_AT: usize = 16;
/// Causes that have room, so that new ones need no new format.
pub(crate) const CAUSES: usize = 64;
const SUM: usize = 8;
const LONGEST: usize = 9;
/// Times that the head left its track, to write and to read.
const SEEKS: [usize; 2] = [10, 11];
const BUCKETS_AT: usize = 16;
const PER_CAUSE: usize = BUCKETS_AT + BUCKETS;
/// Bytes of all words.
pub(crate) const LEN: usize = 8 * (CAUSES_AT + CAUSES * PER_CAUSE);

const _: () = assert!(Cause::ALL.len() <= CAUSES && Kind::ALL.len() <= SUM);

/// The words, from byte `at` of a region on.
pub(crate) struct Ledger {
    region: Region,
    at: usize,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        Ledger { region: Region::heap(LEN), at: 0 }
    }

    /// Words that are there already; the region has [`LEN`] bytes from `at`, a multiple of 8.
    pub(crate) fn of(region: Region, at: usize) -> Ledger {
        Ledger { region, at }
    }

    fn load(&self, word: usize) -> u64 {
        self.region.load(self.at + 8 * word)
    }

    fn store(&self, word: usize, value: u64) {
        self.region.store(self.at + 8 * word, value);
    }

    fn add(&self, word: usize, value: u64) {
        self.region.add(self.at + 8 * word, value);
    }

    fn cause_at(cause: u8) -> usize {
        CAUSES_AT + usize::from(cause) % CAUSES * PER_CAUSE
    }

    /// The drive's clock when it was last used, in nanoseconds.
    pub(crate) fn clock(&self) -> Ns {
        self.load(CLOCK) as f64
    }

    /// Says how time is kept from now on; `None`: not any more.
    pub(crate) fn set_pace(&self, pace: Option<Pace>) {
        let (number, speed) = match pace {
            None => (0, 0.0),
            Some(Pace::Account) => (1, 0.0),
            Some(Pace::Real { speed }) => (2, speed),
        };
        self.store(PACE, number);
        self.store(SPEED, f64::to_bits(speed));
    }

    /// Some of the time from here on is added up.
    pub(crate) fn adds_up(&self) {
        self.store(ADDED_UP, 1);
    }

    /// Publishes where the engine is.
    pub(crate) fn publish(&self, engine: &Engine) {
        self.store(CLOCK, engine.now() as u64);
        if let Some(translation) = engine.translation() {
            let (extents, bytes) = translation.load();
            self.store(EXTENTS, extents as u64);
            self.store(BYTES, bytes);
            self.store(TRANSLATES, 1);
        }
    }

    /// Everything to 0, from the clock's time on.
    pub(crate) fn reset(&self) {
        for word in CAUSES_AT..LEN / 8 {
            self.store(word, 0);
        }
        self.store(BASE, self.load(CLOCK));
        self.store(ADDED_UP, 0);
    }

    pub(crate) fn stats(&self) -> TimeStats {
        let mut total = [0_u64; Kind::ALL.len()];
        let mut seeks = [0_u64; 2];
        let (mut by_cause, mut latency) = (BTreeMap::new(), BTreeMap::new());
        for &cause in Cause::ALL {
            let at = Self::cause_at(cause as u8);
            let kinds: [u64; Kind::ALL.len()] = std::array::from_fn(|kind| self.load(at + kind));
            let times = self.latency(at);
            seeks.iter_mut().zip(SEEKS).for_each(|(sum, word)| *sum = sum.saturating_add(self.load(at + word)));
            if kinds.iter().any(|ns| *ns > 0) || times.commands > 0 {
                total.iter_mut().zip(kinds).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
                by_cause.insert(cause.name(), Seconds::of(kinds));
                latency.insert(cause.name(), times);
            }
        }
        let total = Seconds::of(total);
        let elapsed = self.load(CLOCK).saturating_sub(self.load(BASE)) as f64 / 1e9;
        let persistent_cache = (self.load(TRANSLATES) == 1)
            .then(|| PersistentCache { extents: self.load(EXTENTS) as usize, bytes: self.load(BYTES) });
        let added_up = self.load(ADDED_UP) == 1;
        let pace = match self.load(PACE) {
            1 => Some(Pace::Account),
            2 => Some(Pace::Real { speed: f64::from_bits(self.load(SPEED)) }),
            _ => None,
        };
        let idle = (elapsed - total.busy()).max(0.0);
        let [writes, read_seeks] = seeks;
        let seeks = writes.saturating_add(read_seeks);
        TimeStats { elapsed, idle, total, by_cause, latency, seeks, read_seeks, persistent_cache, pace, added_up }
    }

    fn latency(&self, at: usize) -> Latency {
        let buckets: Vec<u64> = (0..BUCKETS).map(|bucket| self.load(at + BUCKETS_AT + bucket)).collect();
        let commands = buckets.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let longest = self.load(at + LONGEST) as f64;
        let part = |part: f64| {
            let rank = ((commands as f64 * part).ceil() as u64).max(1);
            let mut seen = 0_u64;
            let found = buckets.iter().position(|n| {
                seen = seen.saturating_add(*n);
                seen >= rank
            });
            found.map_or(0.0, |bucket| middle(bucket).min(longest) / 1e9)
        };
        let mean = if commands == 0 { 0.0 } else { self.load(at + SUM) as f64 / commands as f64 / 1e9 };
        Latency { commands, mean, p50: part(0.5), p95: part(0.95), p99: part(0.99), max: longest / 1e9 }
    }
}

impl Tally for Ledger {
    fn spent(&mut self, cause: u8, kind: Kind, ns: Ns) {
        if ns > 0.0 {
            self.add(Self::cause_at(cause) + kind as usize, ns.round() as u64);
        }
    }

    fn sought(&mut self, cause: u8, reads: bool) {
        self.add(Self::cause_at(cause) + SEEKS[usize::from(reads)], 1);
    }

    /// What is not busy is idle: nothing to count.
    fn idle(&mut self, _: Ns) {}

    fn took(&mut self, cause: u8, ns: Ns) {
        let at = Self::cause_at(cause);
        let ns = ns.round() as u64;
        self.add(at + SUM, ns);
        if ns > self.load(at + LONGEST) {
            self.store(at + LONGEST, ns);
        }
        self.add(at + BUCKETS_AT + bucket(ns), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_reads_back_and_is_reset() {
        let mut ledger = Ledger::new();
        let (wal, read) = (Cause::Wal as u8, Cause::UserRead as u8);
        ledger.spent(wal, Kind::Seek, 2e9);
        ledger.spent(wal, Kind::Transfer, 1e9);
        ledger.spent(read, Kind::Transfer, 5e8);
        for reads in [false, true, true] {
            ledger.sought(if reads { read } else { wal }, reads);
        }
        (1..=100).for_each(|ms| ledger.took(read, f64::from(ms) * 1e6));
        ledger.store(CLOCK, 10_000_000_000);
        let stats = ledger.stats();
        assert_eq!((stats.elapsed, stats.idle, stats.total.busy()), (10.0, 6.5, 3.5));
        assert_eq!((stats.seeks, stats.read_seeks), (3, 2));
        assert_eq!((stats.by_cause["wal"].seek, stats.by_cause["user_read"].transfer), (2.0, 0.5));
        let latency = stats.latency["user_read"];
        assert_eq!((latency.commands, latency.max), (100, 0.1));
        assert!((latency.mean - 0.0505).abs() < 1e-9 && (latency.p50 / 0.05 - 1.0).abs() < 0.08, "{latency:?}");
        assert!(latency.p50 < latency.p99 && latency.p99 <= latency.max);
        ledger.reset();
        let stats = ledger.stats();
        assert_eq!((stats.elapsed, stats.total.busy(), stats.by_cause.len(), stats.seeks), (0.0, 0.0, 0, 0));
    }
}
