//! Numbers of as few bytes as they need: seven bits a byte, the lowest first, the top bit says that another byte follows.

/// Most bytes of one.
pub(super) const MAX: usize = 10;

pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// The number at `*at`, which moves behind it. `None` where the bytes end in it, or where it has another encoding than the shortest.
#[inline(always)]
pub(super) fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 { Some(u64::from(first)) } else { rest(bytes, at, u64::from(first & 0x7f)) }
}

fn rest(bytes: &[u8], at: &mut usize, mut n: u64) -> Option<u64> {
    for place in 1..MAX as u32 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return None;
        }
        n |= bits << (7 * place);
        if byte < 0x80 {
            return (byte != 0).then_some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_have_one_encoding() {
        for n in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put(&mut bytes, n);
            let mut at = 0;
            assert_eq!((get(&bytes, &mut at), at), (Some(n), bytes.len()));
            assert_eq!(get(&bytes[..bytes.len() - 1], &mut 0), None);
        }
        for bad in [&[0x80, 0][..], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]] {
            assert_eq!(get(bad, &mut 0), None, "{bad:x?}");
        }
    }
}
