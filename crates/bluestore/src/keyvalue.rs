//! What the store needs of a key-value store, in which all its metadata is.
//!
//! The store knows no more of it than this. It may be another engine of the same drive, or something else altogether.

use imbrex_device::Result;

/// Keys of one kind. Each has an order of its own, that of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// The store itself.
    Super,
    /// Collections.
    Collections,
    /// Objects: the onodes.
    Onodes,
    /// Where an object's data are, in blobs; by its number and a piece of it.
    Extents,
    /// Blobs: where they are on the drive, who uses them, checksums; by the number of the object that wrote them.
    Blobs,
    /// Changes of how many extents name blocks of a blob, which its record does not know of yet.
    Counts,
    /// Bytes of blobs that have no place of their own yet.
    Deferred,
    /// What users keep beside objects.
    Omap,
    /// Zones: their lives, and how many blocks live in them.
    Zones,
    /// Sums over all objects.
    Statistics,
    /// Which units of zones are taken, of a store that overwrites in place.
    Units,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 11] = [
        Family::Super,
        Family::Collections,
        Family::Onodes,
        Family::Extents,
        Family::Blobs,
        Family::Counts,
        Family::Deferred,
        Family::Omap,
        Family::Zones,
        Family::Statistics,
        Family::Units,
    ];

    /// Its name where families have names: a letter.
    pub fn name(self) -> &'static str {
        ["S", "C", "O", "X", "P", "R", "D", "M", "Z", "T", "B"][self as usize]
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value.
    Put(Family, Vec<u8>, Vec<u8>),
    /// The key is gone.
    Delete(Family, Vec<u8>),
    /// All keys from the first on and before the second are gone. No other change of the batch is of such a key, but a [`Change::Put`] behind this.
    DeleteRange(Family, Vec<u8>, Vec<u8>),
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A key-value store. Its calls may wait for a drive; the store holds no lock when it makes one.
pub trait KeyValue: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// Those of the drive.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Whether getting a key would have to wait for a drive, as things stand. Who says no lets the store get each record when it needs it; who says yes lets it gather what can wait.
    fn get_would_read(&self, family: Family, key: &[u8]) -> bool {
        let _ = (family, key);
        false
    }

    /// Pairs in order, from `from` on and before `to`, `most` of them at most, all of one moment.
    ///
    /// # Errors
    /// Those of the drive.
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>>;

    /// Makes these changes, all or none, in this order. They outlive the process when it returns, and become durable in the order of these calls.
    ///
    /// # Errors
    /// Those of the drive, and `NoSpace`. Then the changes may be there after a restart or not. Whoever gets an error makes no more of them before.
    fn write(&self, changes: &[Change]) -> Result<()>;

    /// Whether it takes so many bytes of changes, beside so many that it was not given yet and of which it has said so, and has enough for deletions then. `little`: they come with a deletion, and may have a part
    /// of what is kept for these.
    fn has_room(&self, bytes: u64, waiting: u64, little: bool) -> bool {
        let _ = (bytes, waiting, little);
        true
    }

    /// Where [`KeyValue::has_room`] has said no: makes room of what was deleted, if that can be. It may take as long as writing all anew, and nobody else waits for it.
    ///
    /// # Errors
    /// Those of the drive.
    fn make_room(&self) -> Result<()> {
        Ok(())
    }

    /// All changes so far are durable when it returns.
    ///
    /// # Errors
    /// Those of the drive. Nothing more becomes durable then.
    fn sync(&self) -> Result<()>;
}

/// Records of a page of a pass over a family.
const PAGE: usize = 4096;

/// Has `one` see all pairs of a family in order, as the key-value store has them: without what a store has in memory.
pub(crate) fn each(kv: &dyn KeyValue, family: Family, mut one: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        let pairs = kv.pairs(family, &from, None, PAGE)?;
        next = pairs.last().map(|(key, _)| [&key[..], &[0]].concat());
        pairs.iter().try_for_each(|(key, value)| one(key, value))?;
    }
    Ok(())
}
