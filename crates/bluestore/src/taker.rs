//! Who takes objects one after the other: a stream, another store, files of a host.

use crate::id::{CollectionId, ObjectId};
use crate::keyvalue::Pair;
use crate::onode::Hint;
use imbrex_device::Result;
use std::collections::BTreeMap;

/// What an object is, without its bytes and its omap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its name.
    pub id: ObjectId,
    /// Its size in bytes.
    pub size: u64,
    /// What was said of its writes.
    pub hint: Hint,
    /// Its attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// See the module. Collections come first. An object begins, its bytes and its omap come in order, and it ends; what does not come of its bytes is zeros.
///
/// An error of a call ends the whole.
pub trait Taker {
    /// There is such a collection.
    ///
    /// # Errors
    /// They end it.
    fn collection(&mut self, collection: CollectionId, bits: u8) -> Result<()>;

    /// An object begins.
    ///
    /// # Errors
    /// They end it.
    fn begin(&mut self, head: &Head) -> Result<()>;

    /// Bytes of it, at most a MiB.
    ///
    /// # Errors
    /// They end it.
    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()>;

    /// The header of its omap.
    ///
    /// # Errors
    /// They end it.
    fn omap_header(&mut self, header: &[u8]) -> Result<()>;

    /// Pairs of its omap, in order.
    ///
    /// # Errors
    /// They end it.
    fn omap(&mut self, pairs: Vec<Pair>) -> Result<()>;

    /// Something of it is not as it was, in a sentence. Only a salvage says so.
    ///
    /// # Errors
    /// They end it.
    fn doubt(&mut self, sentence: &str) -> Result<()> {
        let _ = sentence;
        Ok(())
    }

    /// Others have changed the object meanwhile: what came of it is void, and it begins again, or nothing more comes of it.
    ///
    /// # Errors
    /// They end it.
    fn again(&mut self) -> Result<()>;

    /// All of it has come.
    ///
    /// # Errors
    /// They end it.
    fn end(&mut self) -> Result<()>;
}
