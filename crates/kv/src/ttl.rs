//! A time to live that stands in the value itself: a convention that programs share with `imbrex kv put --ttl`.
//!
//! The value begins with a number of eight bytes, little-endian: the time from which on the pair is over, in seconds since 1970, or 0 for never. What the program
//! wants to keep comes behind it.

use crate::space::Expiry;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of the time.
const TIME: usize = 8;
/// The beginning of 2020 and the end of 9999. Another number is no time: so bytes that are text, or a small number, are never taken for one.
const TIMES: std::ops::RangeInclusive<u64> = 1_577_836_800..=253_402_300_799;

/// Pairs are over at the time with which their values begin: what [`Kv::expire`](crate::Kv::expire) may be given.
///
/// A value that does not begin with 0 or a time from 2020 to 9999 is never over.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeInValue;

impl TimeInValue {
    /// The value that is over at this time, in seconds since 1970; 0 is never. A time before 2020 becomes the beginning of 2020, and one behind 9999 never.
    pub fn value(time: u64, value: &[u8]) -> Vec<u8> {
        let time = if time == 0 || time > *TIMES.end() { 0 } else { time.max(*TIMES.start()) };
        [&time.to_le_bytes()[..], value].concat()
    }

    /// The time of a value, 0 for never, and what comes behind it. `None`: it begins with none.
    pub fn split(value: &[u8]) -> Option<(u64, &[u8])> {
        let (time, rest) = value.split_first_chunk::<TIME>()?;
        let time = u64::from_le_bytes(*time);
        (time == 0 || TIMES.contains(&time)).then_some((time, rest))
    }

    /// What the clock of the host says, in seconds since 1970.
    pub fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

impl Expiry for TimeInValue {
    fn is_over(&self, _: &[u8], value: &[u8]) -> bool {
        TimeInValue::split(value).is_some_and(|(time, _)| time != 0 && time <= TimeInValue::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_from_what_is_none() {
        for (time, stored) in [(0, 0), (5, 1_577_836_800), (1_800_000_000, 1_800_000_000), (u64::MAX, 0)] {
            let value = TimeInValue::value(time, b"rest");
            assert_eq!(TimeInValue::split(&value), Some((stored, &b"rest"[..])));
        }
        for none in [&b""[..], b"seven b", b"Ada Lovelace", &5u64.to_le_bytes(), &1_577_836_799u64.to_le_bytes()] {
            assert_eq!(TimeInValue::split(none), None, "{none:?}");
            assert!(!TimeInValue.is_over(b"", none));
        }
        let now = TimeInValue::now();
        assert!(TimeInValue.is_over(b"k", &TimeInValue::value(now - 1, b"")));
        assert!(!TimeInValue.is_over(b"k", &TimeInValue::value(now + 100, b"")));
        assert!(!TimeInValue.is_over(b"k", &TimeInValue::value(0, b"")));
    }
}
