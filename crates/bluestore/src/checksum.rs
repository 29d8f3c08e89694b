//! Checksums of grains: which function makes them (BlueStore §4.1). Each blob says which one it has, so a store may have blobs of each.

use xxhash_rust::xxh3::xxh3_64;

/// How a store makes checksums of the bytes that it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C: most processors have an instruction for it.
    #[default]
    Crc32c,
    /// The lower 32 bits of XXH3-64: for processors without that instruction.
    Xxh3,
}

impl Checksum {
    const ALL: [(&'static str, Checksum); 2] = [("crc32c", Checksum::Crc32c), ("xxh3", Checksum::Xxh3)];

    /// As a number of a record.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_number(number: u8) -> Option<Checksum> {
        Checksum::ALL.get(usize::from(number)).map(|(_, checksum)| *checksum)
    }

    /// By its name: `crc32c`, `xxh3`.
    pub fn of_name(name: &str) -> Option<Checksum> {
        Checksum::ALL.into_iter().find(|(of, _)| *of == name).map(|(_, checksum)| checksum)
    }

    /// Of these bytes.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        match self {
            Checksum::Crc32c => crc32c::crc32c(bytes),
            Checksum::Xxh3 => xxh3_64(bytes) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_the_function_that_its_name_says() {
        // RFC 3720, B.4; and the published values of XXH3-64 with seed 0.
        assert_eq!(Checksum::Crc32c.of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(Checksum::Xxh3.of(b""), 0x38d3_94c2);
        for (number, (name, checksum)) in Checksum::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(checksum.number()), number);
            assert_eq!(Checksum::of_number(checksum.number()), Some(checksum));
            assert_eq!(Checksum::of_name(name), Some(checksum));
        }
        assert_eq!(Checksum::of_number(2), None);
        assert_eq!(Checksum::of_name("none"), None);
    }
}
