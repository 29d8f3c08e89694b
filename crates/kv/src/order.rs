//! The order of keys: bytewise, or the user's own.

use std::cmp::Ordering;

/// How the keys of a space are ordered. A space stores the [name](Order::name), and opens only with an order of that name.
pub trait Order: Send + Sync {
    /// What the space stores of it.
    fn name(&self) -> &str;

    /// A total order. Keys that are equal by it are one key.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Whether no other bytes than these are the same key. Tables have a filter only if that is so for all their keys.
    fn is_exact(&self, key: &[u8]) -> bool {
        let _ = key;
        false
    }

    /// A key, as short as it can be found, that is not before `from` and before `limit`. The index of a table keeps it.
    fn separator(&self, from: &[u8], limit: &[u8]) -> Vec<u8> {
        let _ = limit;
        from.to_vec()
    }
}

/// The order of bytes, which is LevelDB's and RocksDB's usual one, and has LevelDB's name for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytewise;

impl Order for Bytewise {
    fn name(&self) -> &str {
        "leveldb.BytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn is_exact(&self, _: &[u8]) -> bool {
        true
    }

    fn separator(&self, from: &[u8], limit: &[u8]) -> Vec<u8> {
        let common = from.iter().zip(limit).take_while(|(a, b)| a == b).count();
        match (from.get(common), limit.get(common)) {
            (Some(a), Some(b)) if a.checked_add(1).is_some_and(|next| next < *b) => {
                let mut short = from[..=common].to_vec();
                short[common] += 1;
                short
            }
            _ => from.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_lies_between_its_keys() {
        for (from, limit, want) in [
            (&b"abcdef"[..], &b"abzz"[..], &b"abd"[..]),
            (b"abc", b"abcd", b"abc"),
            (b"abc", b"abd", b"abc"),
            (b"a\xff", b"b", b"a\xff"),
        ] {
            let short = Bytewise.separator(from, limit);
            assert_eq!(short, want);
            assert!(short[..] >= *from && short[..] < *limit);
        }
    }
}
