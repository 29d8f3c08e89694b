//! The first record of a store: of which volume and tenant it is.

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
}
const _: () = assert!(size_of::<RawSuperBlock>() == 40);

/// See the module.
pub(crate) struct SuperBlock {
    pub volume: [u8; 16],
    pub tenant: u8,
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
        };
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        raw.as_bytes().to_vec()
    }

    /// Whether these bytes are this one's; else a whole sentence.
    pub fn check(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let raw = RawSuperBlock::read_from_bytes(bytes).ok().filter(|raw| raw.magic == MAGIC);
        let Some(raw) = raw else {
            return Err("the key-value store holds something else than an object store's metadata");
        };
        if raw.version.get() != VERSION {
            return Err("the object store is of another version of Imbrex; use that one");
        }
        let unsummed = RawSuperBlock { crc: 0.into(), ..raw.clone() };
        if crc32c::crc32c(unsummed.as_bytes()) != raw.crc.get() {
            return Err(
                "the first record of the object store is damaged; copy what is left with `imbrex store salvage`",
            );
        }
        match raw.volume == self.volume && raw.tenant.get() == u32::from(self.tenant) {
            true => Ok(()),
            false => Err("the metadata are those of an object store on another volume; open it there"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_again_and_nothing_else_is_taken_for_it() {
        let own = SuperBlock { volume: [7; 16], tenant: 2 };
        assert_eq!(own.check(&own.encode()), Ok(()));
        assert!(SuperBlock { volume: [7; 16], tenant: 1 }.check(&own.encode()).is_err());
        for at in 0..40 {
            let mut bytes = own.encode();
            bytes[at] ^= 1;
            assert!(own.check(&bytes).is_err(), "{at}");
        }
        assert!(own.check(b"").is_err());
    }
}
