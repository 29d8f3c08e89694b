//! How full a store is.

/// What it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    /// All.
    Room,
    /// All; somebody should make room.
    Near,
    /// What makes room, and nothing else.
    Full,
}

impl Fullness {
    /// In a word.
    pub fn name(self) -> &'static str {
        ["room", "nearly full", "full"][self as usize]
    }
}

/// Of a store that has `used` of so many blocks, by its limits in per cent. What is more than the second is too much.
pub(crate) fn fullness(used: u64, capacity: u64, (near, full): (u8, u8)) -> Fullness {
    let beyond = |percent: u8| u128::from(used) * 100 > u128::from(capacity) * u128::from(percent);
    // At 100 only the drive says no: what is kept for the worst case may be used.
    match (beyond(near), full < 100 && beyond(full)) {
        (_, true) => Fullness::Full,
        (true, _) => Fullness::Near,
        _ => Fullness::Room,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_full_beyond_its_limits() {
        let of = |used| fullness(used, 1000, (85, 95));
        let all = [0, 850, 851, 950, 951, u64::MAX].map(of);
        use Fullness::{Full, Near, Room};
        assert_eq!(all, [Room, Room, Near, Near, Full, Full]);
        // All that there is may be used.
        assert_eq!([1000, 1001].map(|used| fullness(used, 1000, (100, 100))), [Room, Near]);
        assert_eq!(fullness(1, 0, (85, 95)), Full);
        assert_eq!(fullness(0, 0, (85, 95)), Room);
    }
}
