//! An image that was written at random is made one that is read in order.

use crate::images::Images;
use crate::names::{ALL, HEAD};
use imbrex_bluestore::Defragmented;
use imbrex_device::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// How far it is, in bytes; a line of JSON each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Optimized {
    /// Stored bytes that it has looked at.
    pub looked: u64,
    /// Bytes that it has written anew.
    pub written: u64,
    /// Bytes in many places that stay there, since snapshots or clones share them or they cannot be read.
    pub left: u64,
}

impl Images {
    /// Writes what an image has in many places anew, one behind the other, so that it is read in order again. About `memory` bytes are in memory at once: the more, the fewer ways of a disk's
    /// head. The image may be used meanwhile. What a snapshot or a clone shares stays where it is. Tells `out` how far it is, a line of JSON for each step: [`Optimized`].
    ///
    /// # Errors
    /// `NotFound`; those of the store, and of `out`. What was done before stays so.
    pub fn optimize(&self, name: &str, memory: u64, out: &mut dyn Write) -> Result<()> {
        let core = self.named(&mut self.lock(), name)?;
        let object = core.state().header.object_size();
        let (mut done, mut heads) = (Optimized::default(), Vec::new());
        let about = name.into();
        let mut step = |heads: &mut Vec<_>| {
            let Defragmented { looked, written, left } = core.store.defragment(ALL, heads, memory)?;
            heads.clear();
            done.looked += looked;
            done.written += written;
            done.left += left;
            let line = serde_json::to_vec(&done).map_err(std::io::Error::from);
            let told = line.and_then(|line| out.write_all(&line)).and_then(|()| out.write_all(b"\n"));
            told.and_then(|()| out.flush()).map_err(|error| Error::io(&about, error))
        };
        core.each(0, |number, snaps| {
            if snaps.contains(&HEAD) {
                heads.push(core.object(number, HEAD));
            }
            if heads.len() as u64 * object >= memory.max(object) { step(&mut heads) } else { Ok(()) }
        })?;
        step(&mut heads)
    }
}
