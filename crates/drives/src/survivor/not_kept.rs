//! `survivor=off`: a mount that keeps nothing in shared memory, and does not throw away what the mount before it left there.

use super::ShmSurvivor;
use imbrex_device::{Fill, Region, Result, Survivor, SurvivorKey, zeroed_region};
use std::sync::Arc;

/// A survivor whose regions are plain memory. What a dead process left in shared memory is still read, and given up only when the volume
/// has it on the drive.
#[derive(Debug)]
pub struct NotKept(pub ShmSurvivor);

impl Survivor for NotKept {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        if self.0.has_dir() { self.0.left_behind(key) } else { Ok(None) }
    }

    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        let region = zeroed_region(capacity);
        fill(&region)?;
        self.discard(&key.volume)?;
        Ok(region)
    }

    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        if self.0.has_dir() { self.0.discard(volume) } else { Ok(()) }
    }

    fn keeps(&self) -> bool {
        false
    }
}
