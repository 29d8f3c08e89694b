//! What has died of blobs while a transaction is prepared.

use crate::blob::{Blob, BlobId, Place, Run};
use crate::core::Core;
use crate::counts::CountChange;
use crate::home::{Stood, stood};
use crate::units::Units;
use imbrex_device::Result;

/// See the module.
#[derive(Default)]
pub(crate) struct Gone {
    /// What stood on the drive.
    pub blocks: Vec<(Place, u32)>,
    /// Units in which nothing lives any more of a store in place, with the life of their zone.
    pub units: Vec<(Units, u32)>,
    /// What stood where, of a store in place.
    pub stood: Vec<Stood>,
}

impl Gone {
    /// Makes a change of a blob's counts, and adds what is dead then.
    ///
    /// # Errors
    /// `Corrupt`: nobody names what is to be named no more.
    pub fn count(&mut self, core: &Core, (id, blob): (BlobId, &mut Blob), change: CountChange) -> Result<()> {
        let CountChange { first, blocks, more } = change;
        if more {
            blob.name(first, blocks);
            return Ok(());
        }
        let before: Vec<Run> = if core.goes_home() { blob.living().collect() } else { Vec::new() };
        let (dead, known) = blob.unname(first, blocks);
        if !known {
            return Err(core.corrupt("an extent that names a part of a blob that is gone"));
        }
        if let Some(unit) = core.data.unit {
            for (place, blocks) in &dead {
                self.units.extend(blob.dead_units(unit, *place, *blocks).into_iter().map(|units| (units, place.life)));
            }
        }
        if core.goes_home() {
            self.stood.extend(stood(id, blob.offset, &before, &dead));
        }
        self.blocks.extend(dead);
        Ok(())
    }

    /// What another one has is gone, too.
    pub fn extend(&mut self, other: Gone) {
        self.blocks.extend(other.blocks);
        self.units.extend(other.units);
        self.stood.extend(other.stood);
    }
}
