//! Throttle of the scrub: a pure function. That of cleaning is the [cleaner](imbrex_zones::clean::throttle)'s.

use std::time::Duration;

/// How long the scrub rests after a burst that took `took` and verified `bytes`, so that about `live` bytes are verified in `period`, and no
/// user is slowed down by more than the factor.
pub fn scrub_rest(slowdown: f64, took: Duration, bytes: u64, live: u64, period: Duration) -> Duration {
    let due = period.mul_f64((bytes as f64 / live.max(bytes).max(1) as f64).min(1.0));
    let least = took.mul_f64(1.0 / (slowdown - 1.0).max(0.01));
    due.saturating_sub(took).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_scrub_takes_its_time_and_disturbs_nobody() {
        let day = Duration::from_secs(86_400);
        // 20 TB in 30 days, 4 MiB at a time that take 20 ms.
        let rest = scrub_rest(1.5, 20 * MS, 4 << 20, 20_000_000_000_000, 30 * day);
        assert!((0.52..0.53).contains(&rest.as_secs_f64()), "{rest:?}");
        // In a day it cannot be, if users are not to notice.
        assert_eq!(scrub_rest(1.5, 20 * MS, 4 << 20, 20_000_000_000_000, day), 40 * MS);
        assert_eq!(scrub_rest(1.5, Duration::ZERO, 1, 0, day), day, "all of it, once a day");
        assert_eq!(scrub_rest(1.5, MS, 0, 0, day), 2 * MS);
    }
}
