//! Tables: the sorted, immutable pieces of a store. `docs/on-disk-format.md` draws one.
//!
//! This room only knows bytes. [`TableBuilder`] makes them of entries; [`Table`] finds entries in them through a [`Source`], which the
//! engine puts on a drive, and [`Blocks`], which is its cache.

mod ahead;
mod block;
mod build;
mod check;
mod filter;
mod footer;
mod iter;
pub(crate) mod left;
mod read;
mod seal;
mod varint;

pub use block::Block;
pub use build::{TableBuilder, TableMeta, TableOptions};
pub use footer::Properties;
pub use iter::Iter;
pub use read::{Blocks, Source, Table, Uncached, Value, Version};

/// Longest key, in bytes: a user's, and the mark of its space.
pub const MAX_KEY: usize = crate::batch::MAX_KEY + crate::space::MARK;

/// What an entry does to its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is gone; there is no value.
    #[default]
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// The key's value is what this operand makes of the one before.
    Merge = 2,
}

impl Kind {
    pub(crate) fn of(number: u8) -> Option<Kind> {
        [Kind::Delete, Kind::Put, Kind::Merge].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// How the blocks of a table are compressed. A block that does not become an eighth shorter is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    Off = 0,
    /// LZ4: hardly slower than none.
    Lz4 = 1,
    /// Zstandard: shorter, and slower.
    Zstd = 2,
}

impl Compression {
    fn of(number: u8) -> Option<Compression> {
        [Compression::Off, Compression::Lz4, Compression::Zstd].into_iter().find(|way| *way as u8 == number)
    }
}

/// Which table this is. All its blocks are tied to the life, the footer has both numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Number of the table.
    pub table: u64,
    /// A random number of this table. Blocks of whatever stood in the zone before never pass for its own.
    pub life: u64,
}

/// Bytes are not what a table has; the word says what of them.
#[derive(Clone, Copy, Debug)]
struct Malformed(&'static str);
