//! Throttle: how much is cleaned in the background at a time, and how long it rests then. What users do takes no more than a configured factor
//! longer. Pure functions of what was seen.
//!
//! A burst of cleaning that takes B is followed by a rest R. Whoever does one operation after the other has the drive in R and waits
//! in B. So its operations take (B + R) / R times as long on average, and R = B / (slowdown - 1) keeps the factor. Where more wait for the
//! drive at once, a burst delays them all. So the rest is stretched while operations that a burst touched took longer than the factor
//! allows. No operation waits for more than one burst, and bursts are short while there are users.

use std::time::Duration;

/// Bytes of a burst, at most.
pub const MOST: u64 = 16 << 20;
/// Bytes of the first burst, and at least.
pub const LEAST: u64 = 1 << 20;
/// About as long is a burst while there are users; and while there are none, who may come any moment.
const BURST: Duration = Duration::from_millis(200);
const LONG_BURST: Duration = Duration::from_secs(1);
/// The longest rest: nothing waits for ever because one burst took long.
const LONGEST: Duration = Duration::from_secs(30);
/// The rest is stretched by this factor at most. Long operations are touched by bursts more often than short ones, whatever cleaning does, so
/// not all of a difference is its fault.
const STRETCH: f64 = 8.0;
/// From so few operations of a kind nothing is concluded.
const FEW: u64 = 4;

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mean {
    /// How many.
    pub count: u64,
    /// What they took together.
    pub nanoseconds: u64,
}

impl Mean {
    pub(super) fn add(&mut self, nanoseconds: u64) {
        self.count += 1;
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
    }

    fn of_one(self) -> Option<f64> {
        (self.count >= FEW).then(|| self.nanoseconds as f64 / self.count as f64)
    }
}

/// What was seen since the burst before the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Zones that users may take, and how many shall be free.
    pub free: u32,
    /// See `free`.
    pub below: u32,
    /// How long the last burst took.
    pub took: Duration,
    /// Bytes that it moved.
    pub moved: u64,
    /// What users did meanwhile: appends and reads. Those that no burst touched.
    pub calm: [Mean; 2],
    /// All of them.
    pub all: [Mean; 2],
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// No burst for so long.
    pub rest: Duration,
    /// Bytes of the next burst.
    pub bytes: u64,
    /// The rest is longer by this factor than one client would need.
    pub stretch: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { rest: Duration::ZERO, bytes: LEAST, stretch: 1.0 }
    }
}

/// Whether cleaning in the background has something to do.
pub fn is_due(free: u32, below: u32) -> bool {
    free < below
}

/// Below so many free zones whoever takes one cleans, too: the background has not kept pace.
pub fn users_below(below: u32, attended: bool) -> u32 {
    if attended { below.div_ceil(2) } else { below }
}

/// Which part of a rest is left where so many zones are free: all while few of those that shall be are missing, and none below half of them. Else users would have to clean, all at once.
fn leisure(free: u32, below: u32) -> f64 {
    let none = below.div_ceil(2).saturating_sub(1);
    let (left, all) = (free.saturating_sub(none), below.saturating_sub(none).max(1));
    (2.0 * f64::from(left) / f64::from(all)).min(1.0)
}

/// Whether a rest ends, however long it was to be.
pub fn is_short(free: u32, below: u32) -> bool {
    leisure(free, below) == 0.0
}

/// How it goes on after a burst. `before`: the pace that it had.
pub fn pace(before: Pace, slowdown: f64, seen: &Seen) -> Pace {
    let bytes = |time: Duration| {
        let fits = seen.moved as f64 * time.as_secs_f64() / seen.took.as_secs_f64().max(1e-6);
        (fits as u64).clamp(LEAST, MOST).min(before.bytes.saturating_mul(2).max(LEAST))
    };
    let operations: u64 = seen.all.iter().map(|of| of.count).sum();
    if operations == 0 {
        // Nobody is disturbed.
        return Pace { rest: Duration::ZERO, bytes: bytes(LONG_BURST), stretch: 1.0 };
    }
    let worse = |(all, calm): (&Mean, &Mean)| Some(all.of_one()? / calm.of_one()?.max(1.0));
    let strain = seen.all.iter().zip(&seen.calm).filter_map(worse).fold(0.0, f64::max);
    let stretch = if strain > slowdown { before.stretch * 1.5 } else { before.stretch * 0.9 }.clamp(1.0, STRETCH);
    let factor = stretch * leisure(seen.free, seen.below) / (slowdown - 1.0).max(0.01);
    let rest = seen.took.mul_f64(factor.min(1e6)).min(LONGEST);
    Pace { rest, bytes: bytes(BURST), stretch }
}

/// Bytes that whoever takes a zone moves first, where so many zones are free and so many are [wanted](users_below). The fewer are free, the more: two zones
/// at most. So cleaning keeps pace with what is written and no faster.
pub fn ahead(free: u32, want: u32, zone: u64) -> u64 {
    2 * zone * u64::from(want.saturating_sub(free)) / u64::from(want.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn seen(took: Duration, moved: u64) -> Seen {
        let some = [Mean { count: 10, nanoseconds: 10_000_000 }; 2];
        Seen { free: 9, below: 10, took, moved, calm: some, all: some }
    }

    #[test]
    fn the_rest_is_what_the_factor_asks_for() {
        let after = |slowdown| pace(Pace::default(), slowdown, &seen(100 * MS, 1 << 20)).rest;
        assert_eq!([1.25, 1.5, 2.0, 11.0].map(after), [400 * MS, 200 * MS, 100 * MS, 10 * MS]);
        assert_eq!(after(1.0), 10 * Duration::from_secs(1), "no factor is no reason for none at all");
    }

    #[test]
    fn there_is_no_rest_for_nobody_nor_when_zones_run_short() {
        let idle = Seen { all: Default::default(), calm: Default::default(), ..seen(100 * MS, 1 << 20) };
        assert_eq!(pace(Pace::default(), 1.5, &idle), Pace { rest: Duration::ZERO, bytes: 2 << 20, stretch: 1.0 });
        let rest = |free| pace(Pace::default(), 1.5, &Seen { free, ..seen(100 * MS, 1 << 20) }).rest.as_millis();
        assert_eq!([9, 8, 7, 6, 5, 4].map(rest), [200, 200, 200, 133, 66, 0]);
        assert_eq!([3, 2, 1].map(|free| is_short(free, 4)), [false, false, true]);
        assert_eq!([1, 0].map(|free| is_short(free, 2)), [false, true]);
        assert!(is_due(9, 10) && !is_due(10, 10));
        assert_eq!((users_below(10, true), users_below(10, false), users_below(1, true)), (5, 10, 1));
    }

    #[test]
    fn who_takes_a_zone_pays_the_more_the_fewer_are_free() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|free| ahead(free, 4, 100)), [200, 150, 100, 50, 0, 0]);
        assert_eq!(ahead(0, 0, 100), 0, "nothing shall be free");
    }

    #[test]
    fn bursts_become_as_long_as_they_may_and_no_longer() {
        let mut pace_ = Pace::default();
        // 100 MB/s.
        for _ in 0..10 {
            let took = Duration::from_secs_f64(pace_.bytes as f64 / 100e6);
            pace_ = pace(pace_, 1.5, &seen(took, pace_.bytes));
        }
        assert!(pace_.bytes > 15 << 20 && pace_.bytes <= MOST, "{pace_:?}");
        // Suddenly slow.
        pace_ = pace(pace_, 1.5, &seen(Duration::from_secs(2), 16 << 20));
        assert_eq!(pace_.bytes, (16u64 << 20) / 10);
    }

    #[test]
    fn who_is_slowed_down_more_is_given_longer_rests() {
        let slow = Mean { count: 10, nanoseconds: 16_000_000 };
        let strained = Seen { all: [slow, Mean::default()], ..seen(100 * MS, 1 << 20) };
        let mut now = Pace::default();
        for _ in 0..20 {
            now = pace(now, 1.5, &strained);
        }
        assert_eq!((now.stretch, now.rest), (STRETCH, 1600 * MS));
        for _ in 0..30 {
            now = pace(now, 1.7, &strained);
        }
        assert_eq!(now.stretch, 1.0);
        let few = Seen { all: [Mean { count: 3, nanoseconds: u64::MAX }, Mean::default()], ..strained };
        assert_eq!(pace(Pace::default(), 1.5, &few).stretch, 1.0, "three are no measure");
    }

    /// One client, one operation after the other, on a drive that does one thing at a time: played through, its mean stays within
    /// the factor, whatever bursts and operations take.
    #[test]
    fn a_client_s_mean_latency_stays_within_the_factor() {
        for slowdown in [1.1, 1.5, 3.0] {
            for operation in [0.002, 0.02, 0.3] {
                for speed in [2e6, 20e6, 200e6] {
                    let (mut now, mut free, mut all, mut n) = (0.0f64, 0.0f64, 0.0, 0u64);
                    let (mut pace_, mut next) = (Pace::default(), 0.0f64);
                    let (mut calm, mut every) = ([Mean::default(); 2], [Mean::default(); 2]);
                    // The first bursts know nothing of anybody.
                    while now < 60.0 || n < 20_000 {
                        // Whoever came first has the drive.
                        let mut touched = free > now;
                        if next <= now && free <= now {
                            let took = pace_.bytes as f64 / speed;
                            free = now + took;
                            let seen = Seen {
                                free: 9,
                                below: 10,
                                took: Duration::from_secs_f64(took),
                                moved: pace_.bytes,
                                calm: std::mem::take(&mut calm),
                                all: std::mem::take(&mut every),
                            };
                            pace_ = pace(pace_, slowdown, &seen);
                            next = free + pace_.rest.as_secs_f64();
                            touched = true;
                        }
                        let end = now.max(free) + operation;
                        let took = end - now;
                        let nanoseconds = (took * 1e9) as u64;
                        every[0] = Mean { count: every[0].count + 1, nanoseconds: every[0].nanoseconds + nanoseconds };
                        if !touched {
                            calm[0] = Mean { count: calm[0].count + 1, nanoseconds: calm[0].nanoseconds + nanoseconds };
                        }
                        if now >= 60.0 {
                            (all, n) = (all + took, n + 1);
                        }
                        now = end;
                    }
                    let factor = all / n as f64 / operation;
                    // One operation more between two bursts, at most, for where the rest ends in the middle of one.
                    assert!(factor < slowdown * 1.02, "{slowdown} {operation} {speed}: {factor}");
                }
            }
        }
    }
}
