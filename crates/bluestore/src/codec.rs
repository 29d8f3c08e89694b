//! Numbers and bytes in keys and values. A reader believes no length: what is not there is `None`.

/// Bytes of a block, the unit of everything here.
pub(crate) const BLOCK: u64 = 4096;
/// Nothing is numbered beyond this: there is always a next number.
pub(crate) const MAX_NUMBER: u64 = 1 << 56;

/// Seven bits a byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Length, then the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// In as few bytes as it takes, so that the order of the bytes is that of the numbers.
pub(crate) fn put_ordered(out: &mut Vec<u8>, n: u64) {
    let skip = n.leading_zeros() as usize / 8;
    out.push(8 - skip as u8);
    out.extend_from_slice(&n.to_be_bytes()[skip..]);
}

/// Bytes of any content and length, so that the order of what comes out is theirs, whatever is behind them. A zero becomes `00 ff`, the end is `00 00`.
pub(crate) fn put_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Reads from the front of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    pub fn big_u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    pub fn big_u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.take(8)?.first_chunk()?))
    }

    pub fn varint(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            n |= part << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    /// A number that must fit.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.varint()?).ok()
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.small()?;
        self.take(len)
    }

    pub fn ordered(&mut self) -> Option<u64> {
        let len = usize::from(self.byte()?);
        let mut bytes = [0; 8];
        bytes[8usize.checked_sub(len)?..].copy_from_slice(self.take(len)?);
        Some(u64::from_be_bytes(bytes))
    }

    /// A number of an object or of something like that, which may be counted on from.
    pub fn number(&mut self) -> Option<u64> {
        self.ordered().filter(|n| *n <= MAX_NUMBER)
    }

    pub fn escaped(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            match (self.byte()?, out.len()) {
                (0, _) => match self.byte()? {
                    0 => return Some(out),
                    0xff => out.push(0),
                    _ => return None,
                },
                (byte, _) => out.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_their_order_is_that_of_the_bytes() {
        let mut before = Vec::new();
        for n in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u64::MAX]) {
            let (mut varint, mut ordered) = (Vec::new(), Vec::new());
            put_varint(&mut varint, n);
            put_ordered(&mut ordered, n);
            assert_eq!(Reader(&varint).varint(), Some(n));
            assert_eq!(Reader(&ordered).ordered(), Some(n));
            assert_eq!(Reader(&varint[..varint.len() - 1]).varint(), None);
            before.push((n, ordered));
        }
        before.sort();
        assert!(before.is_sorted_by(|a, b| a.1 <= b.1));
        assert_eq!(Reader(&[0xff; 10]).varint(), None);
    }

    #[test]
    fn escaped_bytes_come_back_in_their_order_whatever_is_behind_them() {
        let all: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\0\xff", b"\x01", b"a", b"a\0", b"ab"];
        let keys: Vec<Vec<u8>> = all
            .iter()
            .map(|bytes| {
                let mut key = Vec::new();
                put_escaped(&mut key, bytes);
                key.extend_from_slice(&[0xff; 4]);
                assert_eq!(Reader(&key).escaped().as_deref(), Some(*bytes));
                key
            })
            .collect();
        assert!(keys.is_sorted());
        assert_eq!(Reader(b"ab\0").escaped(), None);
        assert_eq!(Reader(b"ab\0\x05").escaped(), None);
    }
}
