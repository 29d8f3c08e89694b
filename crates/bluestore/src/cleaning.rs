//! What the cleaner of an open store goes by, and what it keeps in mind between its steps.

use crate::blob::{BLOCK, Blob, BlobId, Place, Run};
use imbrex_device::AlignedBuf;
use imbrex_zones::clean::Rules;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

/// Most bytes that are in memory at once, on their way.
pub(crate) const STEP: u64 = 32 << 20;
/// Shares of the zones that shall be free: a 64th, within bounds.
const FREE: u32 = 64;

/// How much is cleaned, and when. `leave`: zones that users' bytes leave free. `attended`: somebody cleans in the background, and is to be ahead of those who write. Zones that are kept free are missing
/// among those that die, so more bytes move.
pub(crate) fn rules(zones: u32, zone: u64, leave: u32, attended: bool) -> Rules {
    let below = (zones / FREE).clamp(2, 16);
    Rules { below: if attended { below } else { below / 2 }, leave, zone, step: STEP.min(zone) }
}

/// Parts of a blob that live in the victim.
pub(crate) struct Resident {
    pub id: BlobId,
    pub blob: Blob,
    pub runs: Vec<Run>,
}

/// Records of blobs. Decoded ones take four times as much memory.
pub(crate) type Records = BTreeMap<BlobId, Box<[u8]>>;

/// Who reads records while others change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Cleaner,
    /// Who makes changes of counts that wait.
    Recount,
}

/// What the cleaner keeps in mind.
#[derive(Default)]
pub(crate) struct Memory {
    /// What has not moved of the victim under way, and of those that are likely to be next, in the order of the zone; by zone and life.
    pub listed: BTreeMap<(u32, u64), VecDeque<BlobId>>,
    /// What was read of the victim for the step under way: where each part begins, in blocks from the zone's start.
    pub read: BTreeMap<u32, AlignedBuf>,
    /// Records of the blobs that are listed, as the key-value store has them.
    pub records: Records,
    /// Blobs whose records have changed since somebody began to read them.
    changed: [Option<HashSet<BlobId>>; 2],
    /// Zones whose bytes cannot be read, and their lives.
    pub unread: BTreeSet<(u32, u64)>,
}

impl Memory {
    /// Blocks of the victim that were read.
    pub fn bytes(&self, place: Place, blocks: u32) -> Option<&[u8]> {
        let (first, bytes) = self.read.range(..=place.block).next_back()?;
        let from = (place.block - first) as usize * BLOCK as usize;
        bytes.get(from..from + blocks as usize * BLOCK as usize)
    }

    /// The record is about to change in the key-value store.
    pub fn forget(&mut self, id: BlobId) {
        self.records.remove(&id);
        self.changed.iter_mut().flatten().for_each(|changed| _ = changed.insert(id));
    }

    /// Somebody begins to read records.
    pub fn begins(&mut self, who: Reader) {
        self.changed[who as usize] = Some(HashSet::new());
    }

    /// Returns what has changed since.
    pub fn ends(&mut self, who: Reader) -> HashSet<BlobId> {
        self.changed[who as usize].take().unwrap_or_default()
    }

    /// Whether a record has changed since somebody began to read.
    pub fn has_changed(&self, who: Reader, id: BlobId) -> bool {
        self.changed[who as usize].as_ref().is_none_or(|changed| changed.contains(&id))
    }

    /// Nobody asks for records now.
    pub fn is_idle(&self) -> bool {
        self.records.is_empty() && self.changed.iter().all(Option::is_none)
    }
}
