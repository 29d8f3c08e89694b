//! The header of a zone: the first block of every sequential zone in use, whichever engine's it is. It says whose the zone is, so that a zone whose metadata
//! is lost still has a name. Where files share a zone, one stands before each of them.
//!
//! It is bound to its place: it names its zone under a checksum. So bytes that were copied, or that a user wrote, are never taken for one.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBXzone";
const VERSION: u32 = 1;
/// Longest file name in a header, in bytes.
const MAX_NAME: usize = 255;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawZoneHeader {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    owner: u8,
    kind: u8,
    name_len: U16,
    volume: [u8; 16],
    file: U64,
    life: U64,
    logical: U64,
    created: U64,
    zone: U32,
    mount: U32,
    name: [u8; 256],
}
const _: () = assert!(size_of::<RawZoneHeader>() == 336);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneHeader {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Number of the tenant.
    pub owner: u8,
    /// The engine's word for what the zone holds: `owner` says whose word.
    pub kind: u8,
    /// The engine's number of the file; 0 where the zone is of none.
    pub file: u64,
    /// This life of the zone.
    pub life: u64,
    /// Logical offset in the file of the zone's first byte.
    pub logical: u64,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// The zone itself.
    pub zone: u32,
    /// Mount generation (low 32 bits).
    pub mount: u32,
    /// The file's name when the zone was taken, cut to 255 bytes; of a metadata log its tenant's name; else empty.
    pub name: String,
}

impl ZoneHeader {
    /// Writes it into the first bytes of `block` (at least 512 zeroed bytes).
    pub fn encode_into(&self, block: &mut [u8]) {
        let mut cut = self.name.len().min(MAX_NAME);
        while !self.name.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut raw = RawZoneHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: (size_of::<RawZoneHeader>() as u32).into(),
            crc: 0.into(),
            owner: self.owner,
            kind: self.kind,
            name_len: (cut as u16).into(),
            volume: self.volume,
            file: self.file.into(),
            life: self.life.into(),
            logical: self.logical.into(),
            created: self.created.into(),
            zone: self.zone.into(),
            mount: self.mount.into(),
            name: [0; 256],
        };
        raw.name[..cut].copy_from_slice(&self.name.as_bytes()[..cut]);
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        block[..size_of::<RawZoneHeader>()].copy_from_slice(raw.as_bytes());
    }

    /// Reads one; `None` where the bytes are not a whole header of this version.
    pub fn decode(block: &[u8]) -> Option<ZoneHeader> {
        let (raw, _) = RawZoneHeader::read_from_prefix(block).ok()?;
        if raw.magic != MAGIC || raw.version.get() != VERSION {
            return None;
        }
        let mut unsummed = raw.clone();
        unsummed.crc = 0.into();
        if crc32c::crc32c(unsummed.as_bytes()) != raw.crc.get() || usize::from(raw.name_len.get()) > MAX_NAME {
            return None;
        }
        let name = std::str::from_utf8(&raw.name[..usize::from(raw.name_len.get())]).ok()?;
        Some(ZoneHeader {
            volume: raw.volume,
            owner: raw.owner,
            kind: raw.kind,
            file: raw.file.get(),
            life: raw.life.get(),
            logical: raw.logical.get(),
            created: raw.created.get(),
            zone: raw.zone.get(),
            mount: raw.mount.get(),
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> ZoneHeader {
        ZoneHeader {
            volume: [3; 16],
            owner: 1,
            kind: 2,
            file: 5,
            life: 77,
            logical: 0,
            created: 9,
            zone: 4,
            mount: 1,
            name: "000012.log".into(),
        }
    }

    #[test]
    fn zone_header_round_trips_and_any_flipped_bit_is_noticed() {
        let mut block = vec![0; 512];
        header().encode_into(&mut block);
        assert_eq!(ZoneHeader::decode(&block), Some(header()));
        for bit in 0..size_of::<RawZoneHeader>() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ZoneHeader::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let mut block = vec![0; 512];
        ZoneHeader { name: "ä".repeat(200), ..header() }.encode_into(&mut block);
        assert_eq!(ZoneHeader::decode(&block).unwrap().name, "ä".repeat(127));
    }
}
