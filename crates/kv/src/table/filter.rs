//! The filter: tells of most keys that are not in a table that they are not, at about nine bits a key.

use super::Malformed;
use xorf::{BinaryFuse8, Filter as _};
use xxhash_rust::xxh3::xxh3_64;

/// Seed, segment length, number of segments.
const HEAD: usize = 8 + 4 + 4;
/// The longest segment that is ever built.
const MAX_SEGMENT: u32 = 1 << 18;

/// The hash of a key. The filter on the drive depends on it: XXH3, 64 bits, seed 0.
pub(super) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A binary fuse filter of 8-bit fingerprints (Graf and Lemire, 2022).
#[derive(Debug)]
pub(super) struct Filter(BinaryFuse8);

impl Filter {
    /// `None` where there is no filter of these hashes, which does not happen in practice.
    pub(super) fn build(mut hashes: Vec<u64>) -> Option<Filter> {
        hashes.sort_unstable();
        hashes.dedup();
        BinaryFuse8::try_from(&hashes).ok().map(Filter)
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.0.contains(&hash)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (shape, prints) = (&self.0.descriptor, &self.0.fingerprints);
        let mut out = Vec::with_capacity(HEAD + prints.len());
        out.extend_from_slice(&shape.seed.to_le_bytes());
        out.extend_from_slice(&shape.segment_length.to_le_bytes());
        out.extend_from_slice(&(shape.segment_count_length / shape.segment_length.max(1)).to_le_bytes());
        out.extend_from_slice(prints);
        out
    }

    pub(super) fn decode(mut bytes: Vec<u8>) -> Result<Filter, Malformed> {
        let bad = Malformed("shape");
        let (seed, rest) = bytes.split_first_chunk::<8>().ok_or(bad)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(bad)?;
        let (segments, prints) = rest.split_first_chunk::<4>().ok_or(bad)?;
        let (length, segments) = (u32::from_le_bytes(*length), u32::from_le_bytes(*segments));
        // A key is looked up in three neighbouring segments, and the first of them is one of `segments`. So no look-up goes
        // beyond the fingerprints, and no place needs more than 32 bits.
        let all = segments.checked_add(2).and_then(|all| all.checked_mul(length)).ok_or(bad)?;
        if !length.is_power_of_two() || length > MAX_SEGMENT || segments == 0 || prints.len() != all as usize {
            return Err(bad);
        }
        let mut filter = BinaryFuse8::try_from(&[0][..]).map_err(|_| bad)?;
        filter.descriptor.seed = u64::from_le_bytes(*seed);
        filter.descriptor.segment_length = length;
        filter.descriptor.segment_length_mask = length - 1;
        filter.descriptor.segment_count_length = segments * length;
        bytes.drain(..HEAD);
        filter.fingerprints = bytes.into_boxed_slice();
        Ok(Filter(filter))
    }
}

/// Most bytes of a filter of at most so many keys.
pub(super) fn most_bytes(keys: u64) -> u64 {
    if keys == 0 {
        return 0;
    }
    // The formulas of the paper, which `xorf` follows. Its logarithm may differ from this one in the last bits.
    let n = keys.max(2) as f64;
    let segment = (1u64 << (n.ln() / 3.33_f64.ln() + 2.25 + 1e-9) as u32).min(u64::from(MAX_SEGMENT));
    let factor = (0.875 + 0.25 * 1e6_f64.ln() / n.ln()).max(1.125);
    let capacity = (n * factor) as u64 + 2;
    HEAD as u64 + (capacity + segment).max(3 * segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distinct hashes that look like any.
    fn hashes(from: u64, n: u64) -> Vec<u64> {
        (from..from + n).map(|n| hash(&n.to_le_bytes())).collect()
    }

    #[test]
    fn the_bound_holds_and_rises() {
        let mut most = 0;
        for n in (1..3000).chain([4096, 10_000, 50_001, 99_999]) {
            assert!(most_bytes(n) >= most, "{n}");
            most = most_bytes(n);
            if n < 300 || n % 97 == 0 || n > 3000 {
                let filter = Filter::build(hashes(0, n)).unwrap().encode();
                assert!(filter.len() as u64 <= most, "{n} keys: {} > {most}", filter.len());
                assert!(n < 4096 || most < filter.len() as u64 * 5 / 4, "{n} keys: {} << {most}", filter.len());
            }
        }
    }

    #[test]
    fn few_keys_that_are_not_in_it_pass() {
        for n in [100, 1000, 20_000, 200_000] {
            let filter = Filter::build(hashes(0, n)).unwrap();
            let filter = Filter::decode(filter.encode()).unwrap();
            assert!(hashes(0, n).into_iter().all(|hash| filter.may_contain(hash)));
            let passed = hashes(1 << 40, 200_000).into_iter().filter(|hash| filter.may_contain(*hash)).count();
            assert!(passed < 1200, "{n} keys: {passed} of 200,000 passed");
        }
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let good = Filter::build(hashes(0, 100)).unwrap().encode();
        assert!(Filter::decode(good.clone()).is_ok());
        for (at, bytes) in [(8, [0; 4]), (8, [3, 0, 0, 0]), (12, [0; 4]), (12, [255; 4]), (8, [0, 0, 0, 0x80])] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&bytes);
            assert!(Filter::decode(bad).is_err());
        }
        for len in 0..good.len() {
            assert!(Filter::decode(good[..len].to_vec()).is_err());
        }
    }
}
