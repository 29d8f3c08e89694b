//! Limits of requests and bytes a second: token buckets that hold a second's worth.
//!
//! In any `t` seconds requests begin of at most `t + 1` times the rate. A request of more than a second's worth waits until the bucket has paid for the rest of it. Requests are let through
//! in the order in which they came. Nobody waits with a lock of the image, and a change of the limits counts for those that wait, too.

use crate::limits::Limits;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So long a bucket fills.
const BURST: Duration = Duration::from_secs(1);

/// The time by which requests are limited, since any moment. A test may drive it.
pub trait Clock: Send + Sync {
    /// What time it is. It never goes back.
    fn now(&self) -> Duration;

    /// How long a request sleeps before it looks again, where it has to wait so long.
    fn nap(&self, left: Duration) -> Duration {
        left
    }
}

/// The time of this machine.
pub(crate) struct Real(Instant);

impl Default for Real {
    fn default() -> Real {
        Real(Instant::now())
    }
}

impl Clock for Real {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

#[derive(Default)]
struct Bucket {
    /// Units a second; 0: no limit.
    rate: u64,
    /// When all that was let through is paid for.
    paid: Duration,
}

impl Bucket {
    /// Takes units out, and says from when on who wants them may go on.
    fn take(&mut self, now: Duration, units: u64) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        let nanoseconds = u128::from(units) * BURST.as_nanos() / u128::from(self.rate);
        let time = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.paid = self.paid.max(now).saturating_add(time);
        self.paid.saturating_sub(BURST)
    }
}

#[derive(Default)]
struct Buckets {
    requests: Bucket,
    bytes: Bucket,
    /// How often the limits have changed.
    changes: u64,
}

impl Buckets {
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        self.requests.take(now, 1).max(self.bytes.take(now, bytes))
    }
}

/// Holds requests of an image back.
pub(crate) struct Throttle {
    clock: Arc<dyn Clock>,
    limited: AtomicBool,
    buckets: Mutex<Buckets>,
    changed: Condvar,
}

impl Throttle {
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Throttle {
        let (limited, buckets, changed) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        let throttle = Throttle { clock, limited, buckets, changed };
        throttle.set(limits);
        throttle
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These count from now on. The buckets are full.
    pub fn set(&self, limits: Limits) {
        let mut buckets = self.buckets();
        let bucket = |rate: Option<u64>| Bucket { rate: rate.unwrap_or(0), paid: Duration::ZERO };
        let changes = buckets.changes + 1;
        *buckets = Buckets { requests: bucket(limits.iops), bytes: bucket(limits.bandwidth), changes };
        self.limited.store(limits.iops.or(limits.bandwidth).is_some(), Ordering::Release);
        drop(buckets);
        self.changed.notify_all();
    }

    /// Waits until a request of so many bytes may begin, and says how long that was.
    pub fn wait(&self, bytes: u64) -> Duration {
        if !self.limited.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let began = self.clock.now();
        let mut buckets = self.buckets();
        let (mut changes, mut from) = (buckets.changes, buckets.take(began, bytes));
        loop {
            let now = self.clock.now();
            if buckets.changes != changes {
                (changes, from) = (buckets.changes, buckets.take(now, bytes));
            }
            if now >= from {
                return now.saturating_sub(began);
            }
            let nap = self.clock.nap(from - now);
            buckets = self.changed.wait_timeout(buckets, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn bucket(rate: u64) -> Bucket {
        Bucket { rate, paid: Duration::ZERO }
    }

    #[test]
    fn a_bucket_has_a_second_and_then_its_rate() {
        let mut ten = bucket(10);
        assert!((0..10).all(|_| ten.take(SECOND, 1) <= SECOND));
        assert_eq!(ten.take(SECOND, 1), SECOND + SECOND / 10);
        assert_eq!(ten.take(SECOND, 2), SECOND + SECOND * 3 / 10);
        // A pause fills it, and not with more than a second's worth.
        assert!((0..10).all(|_| ten.take(100 * SECOND, 1) <= 100 * SECOND));
        assert_eq!(ten.take(100 * SECOND, 1), 100 * SECOND + SECOND / 10);
    }

    #[test]
    fn in_any_time_no_more_begins_than_was_said() {
        let (mut bucket, mut began, mut now) = (bucket(1000), Vec::new(), Duration::ZERO);
        for n in 0..5000u64 {
            now += Duration::from_micros(n * 7919 % 1300);
            let units = n * 31 % 5;
            began.push((bucket.take(now, units).max(now), units));
        }
        for (at, (from, _)) in began.iter().enumerate().step_by(97) {
            let mut all = 0;
            for (to, units) in &began[at..] {
                all += units;
                let most = 1000.0 * ((*to - *from).as_secs_f64() + 1.0) + 0.01;
                assert!(all as f64 <= most, "{all} in {:?}", *to - *from);
            }
        }
    }

    #[test]
    fn requests_too_long_for_a_bucket_wait_and_no_number_is_too_large() {
        assert_eq!(bucket(10).take(SECOND, 35), SECOND + SECOND * 5 / 2);
        let mut slow = bucket(1);
        assert!(slow.take(SECOND, u64::MAX) > 1000 * SECOND);
        assert!(slow.take(SECOND, u64::MAX) > 1000 * SECOND);
        assert_eq!(bucket(0).take(SECOND, u64::MAX), Duration::ZERO);
    }
}
