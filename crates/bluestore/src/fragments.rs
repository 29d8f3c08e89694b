//! What somebody has read to write it anew.

use crate::blob::{BLOCK, Blob, BlobId};
use crate::onode::Extent;
use imbrex_device::AlignedBuf;
use std::collections::BTreeMap;

/// Bytes of blobs, whole grains, by blob and first block; what was compressed is as it was before.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    of: BTreeMap<(BlobId, u32), AlignedBuf>,
    blocks: u64,
}

impl Fragments {
    /// Those of an extent, which may stand in several places.
    pub fn of(&self, extent: &Extent) -> Option<Vec<u8>> {
        let len = extent.blocks as usize * BLOCK as usize;
        let mut all = Vec::with_capacity(len);
        while all.len() < len {
            let at = extent.first + (all.len() as u64 / BLOCK) as u32;
            let ((_, first), bytes) = self.of.range((extent.blob, 0)..=(extent.blob, at)).next_back()?;
            let from = (at - first) as usize * BLOCK as usize;
            let rest = bytes.get(from..).filter(|rest| !rest.is_empty())?;
            all.extend_from_slice(&rest[..rest.len().min(len - all.len())]);
        }
        Some(all)
    }

    /// Blocks that were read for them.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// These stored blocks of a blob were read: its number, the first, and how many.
    pub fn keep(&mut self, (id, first, blocks): (BlobId, u32, u32), blob: &Blob, stored: AlignedBuf) {
        self.blocks += u64::from(blocks);
        if let Some(bytes) = blob.unpack(stored) {
            self.of.insert((id, first), bytes);
        }
    }
}
