//! The first record of a store: of which volume and tenant it is.

use crate::codec::BLOCK;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBXblue";
const VERSION: u32 = 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawSuperBlock {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    tenant: U32,
    volume: [u8; 16],
    unit: U32,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 44);

/// Longest unit of a store in place, in bytes.
pub(crate) const MAX_UNIT: u32 = 1 << 20;

/// See the module.
pub(crate) struct SuperBlock {
    pub volume: [u8; 16],
    pub tenant: u8,
    /// Bytes of an allocation unit of a store that overwrites in place; 0: it writes runs to zones.
    pub unit: u32,
}

impl SuperBlock {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawSuperBlock {
            magic: MAGIC,
            version: VERSION.into(),
            length: (size_of::<RawSuperBlock>() as u32).into(),
            crc: 0.into(),
            tenant: u32::from(self.tenant).into(),
            volume: self.volume,
            unit: self.unit.into(),
        };
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        raw.as_bytes().to_vec()
    }

    /// Of which volume this record is, if it is whole.
    pub fn volume_of(bytes: &[u8]) -> Option<[u8; 16]> {
        let raw = RawSuperBlock::read_from_bytes(bytes).ok()?;
        let own = SuperBlock { volume: raw.volume, tenant: u8::try_from(raw.tenant.get()).ok()?, unit: 0 };
        own.check(bytes).ok().map(|_| raw.volume)
    }

    /// Whether these bytes are this one's, whatever its unit: that; else a whole sentence.
    pub fn check(&self, bytes: &[u8]) -> Result<u32, &'static str> {
        let other = "the object store is of another version of Imbrex; use that one";
        let Ok(raw) = RawSuperBlock::read_from_bytes(bytes) else {
            // Versions before were shorter.
            return Err(if bytes.starts_with(&MAGIC) {
                other
            } else {
                "the key-value store holds something else than an object store's metadata"
            });
        };
        if raw.magic != MAGIC {
            return Err("the key-value store holds something else than an object store's metadata");
        }
        if raw.version.get() != VERSION {
            return Err(other);
        }
        let unsummed = RawSuperBlock { crc: 0.into(), ..raw.clone() };
        if crc32c::crc32c(unsummed.as_bytes()) != raw.crc.get() {
            return Err(
                "the first record of the object store is damaged; copy what is left with `imbrex store salvage`",
            );
        }
        let unit = raw.unit.get();
        if unit > 0 && !is_unit(unit) {
            return Err("the first record of the object store is damaged; restore its metadata");
        }
        match raw.volume == self.volume && raw.tenant.get() == u32::from(self.tenant) {
            true => Ok(unit),
            false => Err("the metadata are those of an object store on another volume; open it there"),
        }
    }
}

/// Whether a store in place may have units of so many bytes.
pub(crate) fn is_unit(bytes: u32) -> bool {
    bytes.is_power_of_two() && (BLOCK as u32..=MAX_UNIT).contains(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_again_and_nothing_else_is_taken_for_it() {
        for unit in [0, 4096, 64 << 10] {
            let own = SuperBlock { volume: [7; 16], tenant: 2, unit };
            assert_eq!(SuperBlock { unit: 1, ..own }.check(&own.encode()), Ok(unit));
            assert!(SuperBlock { volume: [7; 16], tenant: 1, unit }.check(&own.encode()).is_err());
            for at in 0..44 {
                let mut bytes = own.encode();
                bytes[at] ^= 1;
                assert!(own.check(&bytes).is_err() && SuperBlock::volume_of(&bytes).is_none(), "{at}");
            }
            assert!(own.check(b"").is_err() && SuperBlock::volume_of(b"").is_none());
            assert_eq!(SuperBlock::volume_of(&own.encode()), Some([7; 16]));
        }
        for unit in [1, 2048, 4097, 12 << 10, 2 << 20] {
            let odd = SuperBlock { volume: [7; 16], tenant: 2, unit };
            assert!(odd.check(&odd.encode()).is_err(), "{unit}");
        }
        let earlier = &SuperBlock { volume: [7; 16], tenant: 2, unit: 0 }.encode()[..40];
        let own = SuperBlock { volume: [7; 16], tenant: 2, unit: 0 };
        assert!(own.check(earlier).unwrap_err().contains("another version"));
    }
}
