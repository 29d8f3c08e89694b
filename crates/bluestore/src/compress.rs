//! Compression of blobs (BlueStore §5): what is stored instead of their bytes, where that takes at most 7 of 8 blocks.
//!
//! ```text
//!   0        4
//!   length   what the codec made of the bytes; zeros up to whole blocks
//! ```

use crate::codec::BLOCK;
use imbrex_device::AlignedBuf;

/// Blocks that are compressed together at most, 128 KiB: whoever reads one of them reads all.
pub(crate) const TOGETHER: u32 = 32;
/// How hard Zstandard tries: its own usual level.
const LEVEL: i32 = 3;
const HEAD: usize = 4;

/// What a store does with bytes of objects that a hint does not call incompressible ([`Hint::incompressible`](crate::Hint)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// It stores them as they are.
    #[default]
    Off,
    /// LZ4: hardly any time of a processor.
    Lz4,
    /// Zstandard, level 3: fewer bytes, and more time.
    Zstd,
}

impl Compression {
    /// As a number of a record.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_number(number: u8) -> Option<Compression> {
        [Compression::Off, Compression::Lz4, Compression::Zstd].get(usize::from(number)).copied()
    }

    /// By its name: `off`, `lz4`, `zstd`.
    pub fn of_name(name: &str) -> Option<Compression> {
        let all = [("off", Compression::Off), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];
        all.into_iter().find(|(of, _)| *of == name).map(|(_, compression)| compression)
    }
}

/// Whole blocks that stand for these; `None`: it does not pay.
pub(crate) fn compress(how: Compression, bytes: &[u8]) -> Option<AlignedBuf> {
    let most = bytes.len() / 8 * 7 / BLOCK as usize * BLOCK as usize;
    if how == Compression::Off || most == 0 {
        return None;
    }
    let packed = match how {
        Compression::Off => return None,
        Compression::Lz4 => lz4_flex::block::compress(bytes),
        Compression::Zstd => zstd::bulk::compress(bytes, LEVEL).ok()?,
    };
    let len = HEAD + packed.len();
    if len > most {
        return None;
    }
    let mut stored = AlignedBuf::zeroed(len.next_multiple_of(BLOCK as usize));
    stored[..HEAD].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    stored[HEAD..len].copy_from_slice(&packed);
    Some(stored)
}

/// The bytes that these stand for, so many blocks; `None`: they make no sense.
pub(crate) fn decompress(how: Compression, stored: &[u8], blocks: u32) -> Option<AlignedBuf> {
    let (len, rest) = stored.split_first_chunk::<HEAD>()?;
    let packed = rest.get(..u32::from_le_bytes(*len) as usize)?;
    let mut bytes = AlignedBuf::zeroed(blocks as usize * BLOCK as usize);
    let got = match how {
        Compression::Off => return None,
        Compression::Lz4 => lz4_flex::block::decompress_into(packed, &mut bytes).ok()?,
        Compression::Zstd => zstd::bulk::decompress_to_buffer(packed, &mut bytes[..]).ok()?,
    };
    (got == bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    fn text(blocks: usize) -> Vec<u8> {
        (0..blocks * BLOCK as usize).map(|n| b"zoned drives "[n % 13] ^ (n / 4096) as u8 & 1).collect()
    }

    #[test]
    fn what_is_compressed_comes_back_and_takes_fewer_blocks() {
        for how in ALL {
            for blocks in [2, 3, 8, 32] {
                let bytes = text(blocks);
                let stored = compress(how, &bytes).unwrap();
                assert!(stored.len() * 8 <= bytes.len() * 7 && stored.len().is_multiple_of(BLOCK as usize));
                assert_eq!(&decompress(how, &stored, blocks as u32).unwrap()[..], &bytes[..]);
                // Another length is refused.
                assert!(decompress(how, &stored, blocks as u32 - 1).is_none());
                assert!(decompress(how, &stored, blocks as u32 + 1).is_none());
            }
        }
    }

    #[test]
    fn what_gains_less_than_an_eighth_is_left_as_it_is() {
        let mut random = 1u64;
        let noise: Vec<u8> = (0..32 * BLOCK)
            .map(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (random >> 56) as u8
            })
            .collect();
        for how in ALL {
            assert!(compress(how, &noise).is_none());
            assert!(compress(how, &text(1)).is_none(), "a block cannot become fewer");
            // Three quarters of noise: 24 blocks and the codec's own bytes are 25 of 32.
            let mut most = noise.clone();
            most[24 * BLOCK as usize..].fill(0);
            assert_eq!(compress(how, &most).unwrap().len(), 25 * BLOCK as usize);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), blocks in 0..=32u32) {
            for how in ALL {
                let _ = decompress(how, &bytes, blocks);
                let sealed = [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat();
                let _ = decompress(how, &sealed, blocks);
            }
        }
    }
}
