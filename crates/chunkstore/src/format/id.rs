//! How chunks are told apart, and what kind of stream they come from.

use std::fmt;
use std::str::FromStr;

/// Id of a chunk: 24 bytes, written as 48 hexadecimal digits (SMRSTORE §2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ChunkId(pub [u8; 24]);

impl ChunkId {
    /// An id that nobody has had before.
    pub fn random() -> ChunkId {
        let mut id = [0; 24];
        id[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        id[16..].copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..8]);
        ChunkId(id)
    }

    /// An id made of a number: its last eight bytes, so that such ids sort like the numbers.
    pub fn of_number(n: u64) -> ChunkId {
        let mut id = [0; 24];
        id[16..].copy_from_slice(&n.to_be_bytes());
        ChunkId(id)
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ChunkId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no chunk's id; give its 48 hexadecimal digits, as `imbrex chunk ls` prints them");
        let digits = text.as_bytes();
        if digits.len() != 48 {
            return Err(wrong());
        }
        let digit = |byte: u8| (byte as char).to_digit(16).map(|d| d as u8).ok_or_else(wrong);
        let mut id = [0; 24];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(ChunkId(id))
    }
}

/// Kind of stream that a chunk belongs to. Only chunks of one kind share a zone, since they live about as long (SMRSTORE §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamType(u8);

impl StreamType {
    /// Objects' data on its way in.
    pub const DATA: StreamType = StreamType(0);
    /// Metadata of the layer above: logs and tables of its key-value store.
    pub const METADATA: StreamType = StreamType(1);
    /// What the layer above writes when it collects its own garbage (OSS GC in the paper).
    pub const GC: StreamType = StreamType(2);
    /// How many kinds there may be.
    pub const MOST: usize = 16;

    /// The kind of this number; `None` from [`StreamType::MOST`] on. Those after [`StreamType::GC`] are the user's own.
    pub const fn new(number: u8) -> Option<StreamType> {
        if (number as usize) < Self::MOST { Some(StreamType(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_nonsense_does_not() {
        let id = ChunkId::random();
        assert_eq!(id.to_string().parse::<ChunkId>(), Ok(id));
        assert_ne!(id, ChunkId::random());
        assert!(ChunkId::of_number(2) < ChunkId::of_number(300));
        let long = format!("{id}0");
        for wrong in ["", "12", &"g".repeat(48), &long, &"ä".repeat(24)] {
            assert!(wrong.parse::<ChunkId>().is_err(), "{wrong}");
        }
    }
}
