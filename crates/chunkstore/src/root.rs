//! Superzone: what the store keeps in the volume's label, from which all else is found (SMRSTORE §5.2).

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"IMBXCHNK";
const VERSION: u32 = 1;
/// The version of a root whose index a salvage has still to make: no other opening, and no older program, may believe its metazones.
const UNFINISHED: u32 = 2;
/// Most runs of neighbouring metazones.
const MAX_RUNS: usize = 100;
/// Most metazones, so that no root asks for more memory than any store needs: the paper's drive has 400.
const MAX_ZONES: usize = 1 << 20;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawRoot {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    runs: U32,
}
const HEADER: usize = size_of::<RawRoot>();
const _: () = assert!(HEADER == 24);

/// The metazones, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Their numbers; the first, third, … are the first ring, the others the second.
    pub metazones: Vec<u32>,
    /// The label was made anew of the zones' heads, and the salvage that makes the index has not come to its end.
    pub unfinished: bool,
}

impl Root {
    /// As the bytes of the tenant's root; `None`: the zones stand in too many places.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for zone in &self.metazones {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == *zone => *count += 1,
                _ => runs.push((*zone, 1)),
            }
        }
        if runs.len() > MAX_RUNS {
            return None;
        }
        let raw = RawRoot {
            magic: MAGIC,
            version: if self.unfinished { UNFINISHED } else { VERSION }.into(),
            length: ((HEADER + runs.len() * 8) as u32).into(),
            crc: 0.into(),
            runs: (runs.len() as u32).into(),
        };
        let mut bytes = raw.as_bytes().to_vec();
        for (first, count) in runs {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        Some(bytes)
    }

    /// From them.
    ///
    /// # Errors
    /// A phrase that says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Root, &'static str> {
        let (raw, runs) = RawRoot::read_from_prefix(bytes).map_err(|_| "it is too short")?;
        if raw.magic != MAGIC {
            return Err("it is none of a chunk store");
        }
        let mut unsummed = bytes.to_vec();
        unsummed[16..20].fill(0);
        if raw.length.get() as usize != bytes.len() || crc32c::crc32c(&unsummed) != raw.crc.get() {
            return Err("its checksum is wrong");
        }
        if raw.version.get() > UNFINISHED {
            return Err("it was written by a newer Imbrex; use that one");
        }
        if raw.version.get() < VERSION {
            return Err("its version makes no sense");
        }
        let runs = <[[U32; 2]]>::ref_from_bytes(runs).map_err(|_| "its length makes no sense")?;
        if raw.runs.get() as usize != runs.len() || runs.len() > MAX_RUNS {
            return Err("its length makes no sense");
        }
        let mut metazones: Vec<u32> = Vec::new();
        for [first, count] in runs {
            let (first, count) = (first.get(), count.get());
            let end = first
                .checked_add(count)
                .filter(|_| metazones.len() + count as usize <= MAX_ZONES)
                .ok_or("its zones make no sense")?;
            if metazones.last().is_some_and(|last| *last >= first) {
                return Err("its zones make no sense");
            }
            metazones.extend(first..end);
        }
        Ok(Root { metazones, unfinished: raw.version.get() == UNFINISHED })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_reads_back_and_a_damaged_one_does_not() {
        for unfinished in [false, true] {
            let root = Root { metazones: vec![4, 5, 6, 9, 10, 700], unfinished };
            let bytes = root.encode().unwrap();
            assert_eq!(Root::decode(&bytes), Ok(root));
            for at in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] ^= 4;
                assert!(Root::decode(&bytes).is_err(), "byte {at}");
                assert!(Root::decode(&bytes[..at]).is_err());
            }
        }
        let whole = Root { metazones: (0..MAX_ZONES as u32).collect(), unfinished: false };
        assert_eq!(Root::decode(&whole.encode().unwrap()), Ok(whole));
        let many = Root { metazones: (0..=MAX_ZONES as u32 + 1).filter(|n| *n != 9).collect(), unfinished: false };
        assert!(Root::decode(&many.encode().unwrap()).is_err(), "one more than there may be, in two runs");
        assert!(Root { metazones: (0..300).map(|n| n * 2).collect(), unfinished: false }.encode().is_none());
    }
}
