//! When the scrub does a step (pure): a round takes a period, and users have the drive before it, unless it is late.

use imbrex_bluestore::Scrub;
use std::time::Duration;

/// Bytes of a step, which a disk reads in some hundredths of a second where they stand together.
pub(crate) const STEP: u64 = 4 << 20;
/// A step is followed by a rest of so many times its own time.
pub(crate) const REST: u32 = 3;
const DAY: u64 = 86_400;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The round of this period is done.
    Nobodys,
    /// The scrub's, when users leave the drive alone.
    WhenQuiet,
    /// The scrub's.
    Scrubs,
}

/// At this time, where so many bytes live. Seconds since 1970.
pub(crate) fn turn(period: Duration, now: u64, scrub: &Scrub, living: u64) -> Turn {
    let period = period.as_secs().max(1);
    // A clock that was set back begins anew.
    let since = now.checked_sub(scrub.began).filter(|_| scrub.began > 0);
    match (scrub.is_under_way, since) {
        (false, Some(since)) if since < period => Turn::Nobodys,
        (false, _) | (true, None) => Turn::Scrubs,
        (true, Some(since)) => {
            let due = u128::from(living) * u128::from(since) / u128::from(period);
            if u128::from(scrub.read) < due { Turn::Scrubs } else { Turn::WhenQuiet }
        }
    }
}

/// `7d`, `12h`, or a number of days.
pub(crate) fn period(text: &str) -> Option<Option<Duration>> {
    if text == "off" {
        return Some(None);
    }
    let (number, unit) = match text.as_bytes().last()? {
        b'd' => (text.strip_suffix('d')?, DAY),
        b'h' => (text.strip_suffix('h')?, 3600),
        _ => (text, DAY),
    };
    let number: u64 = number.parse().ok().filter(|n| (1..=100_000).contains(n))?;
    Some(Some(Duration::from_secs(number * unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_a_period_and_waits_for_users_unless_it_is_late() {
        let week = Duration::from_secs(7 * DAY);
        let at = |day: u64, began: u64, is_under_way: bool, read: u64| {
            let scrub = Scrub { began: began * DAY, is_under_way, read, ..Scrub::default() };
            turn(week, day * DAY, &scrub, 700)
        };
        assert_eq!(at(100, 0, false, 0), Turn::Scrubs, "there was none");
        assert_eq!(at(106, 100, false, 700), Turn::Nobodys);
        assert_eq!(at(107, 100, false, 700), Turn::Scrubs);
        assert_eq!(at(103, 100, true, 299), Turn::Scrubs);
        assert_eq!(at(103, 100, true, 300), Turn::WhenQuiet);
        assert_eq!(at(100, 100, true, 0), Turn::WhenQuiet);
        assert_eq!(at(99, 100, false, 0), Turn::Scrubs, "the clock was set back");
        assert_eq!(at(1 << 40, 100, true, 699), Turn::Scrubs);
    }

    #[test]
    fn a_period_is_days_or_hours_or_off() {
        let seconds = |text| period(text).map(|period| period.map(|period| period.as_secs()));
        assert_eq!(seconds("7d"), Some(Some(7 * DAY)));
        assert_eq!(seconds("7"), seconds("7d"));
        assert_eq!((seconds("12h"), seconds("off")), (Some(Some(DAY / 2)), Some(None)));
        for bad in ["", "d", "0", "0d", "-1", "7w", "on", "1000000", "é"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
