//! Ranges of bytes: as HTTP writes them (`0-4` is five bytes, `5-`, `-5`), and as a place and a number of bytes (`0+5`, `5+`).

use imbrex_drives::parse_size;

/// Some of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// So many bytes from here on, which must be there; `None`: all that follow.
    At(u64, Option<u64>),
    /// From the first byte to the last one, or to the end where that comes before.
    To(u64, u64),
    /// So many at the end, or all where there are fewer.
    Last(u64),
}

/// Reads a range.
pub(super) fn range(text: &str) -> Result<Range, String> {
    let wrong = "write it as FROM-TO (0-4 is five bytes), FROM-, -LAST, FROM+BYTES (1M+4K) or FROM+";
    if let Some((from, bytes)) = text.split_once('+') {
        let from = parse_size(from)?;
        let bytes = if bytes.is_empty() { None } else { Some(parse_size(bytes)?) };
        return match bytes {
            Some(0) => Err("a range has one byte at least".into()),
            Some(bytes) if from.checked_add(bytes).is_none() => Err("that is more than 64 bits can count".into()),
            bytes => Ok(Range::At(from, bytes)),
        };
    }
    let (from, to) = text.split_once('-').ok_or(wrong)?;
    match (from, to) {
        ("", "") => Err(wrong.into()),
        ("", last) => match parse_size(last)? {
            0 => Err("a range has one byte at least".into()),
            last => Ok(Range::Last(last)),
        },
        (from, "") => Ok(Range::At(parse_size(from)?, None)),
        (from, to) => match (parse_size(from)?, parse_size(to)?) {
            (from, to) if from > to => Err(format!("it ends before it begins; {wrong}")),
            (from, to) => Ok(Range::To(from, to)),
        },
    }
}

impl Range {
    /// Where it begins in so many bytes, and where it ends; the error is a phrase about them.
    pub(super) fn of(self, len: u64) -> Result<(u64, u64), String> {
        let (from, end) = match self {
            Range::At(from, bytes) => (from, bytes.map_or(len, |bytes| from + bytes)),
            Range::To(from, last) => (from, last.saturating_add(1).min(len)),
            Range::Last(bytes) => return Ok((len.saturating_sub(bytes), len)),
        };
        if from >= len {
            return Err(format!("has {len} bytes; nothing can be read from {from} on"));
        }
        if end > len {
            let most = len - from;
            return Err(format!(
                "has {len} bytes, and the range ends behind them; ask for {from}+{most} at most, or for {from}+"
            ));
        }
        Ok((from, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_understood() {
        let of = |text: &str, len| range(text).unwrap().of(len);
        assert_eq!(of("1M+4K", 2 << 20), Ok((1 << 20, (1 << 20) + 4096)));
        assert_eq!(of("0+", 5), Ok((0, 5)));
        // As HTTP counts: both ends are in it, and what is too long is cut.
        assert_eq!((of("0-4", 9), of("0-0", 9), of("2-99", 9)), (Ok((0, 5)), Ok((0, 1)), Ok((2, 9))));
        assert_eq!((of("5-", 9), of("-4", 9), of("-99", 9)), (Ok((5, 9)), Ok((5, 9)), Ok((0, 9))));
        assert_eq!((of("-5", 0), of("0-18446744073709551615", 3)), (Ok((0, 0)), Ok((0, 3))));
        assert!(of("9-", 9).is_err() && of("9+1", 9).is_err() && of("8+2", 9).is_err() && of("9-12", 9).is_err());
        for wrong in ["", "+", "-", "5", "+5", "6-5", "5+0", "-0", "1+2+3", "1-2-3", "18446744073709551615+1", "a-b"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
