//! What the cleaner of an open store goes by, and what it keeps in mind between its steps.

use crate::blob::BlobId;
use imbrex_zones::clean::Rules;
use std::collections::{BTreeSet, VecDeque};

/// Most bytes that are in memory at once, on their way.
pub(crate) const STEP: u64 = 32 << 20;
/// Shares of the zones that shall be free: a 64th, within bounds.
const FREE: u32 = 64;

/// How much is cleaned, and when.
pub(crate) fn rules(zones: u32, zone: u64) -> Rules {
    Rules { below: (zones / FREE).clamp(2, 16), zone, step: STEP.min(zone) }
}

/// What the cleaner keeps in mind.
#[derive(Default)]
pub(crate) struct Memory {
    /// Blobs of the victim under way that have not been looked at: whose zone and life they are, and their numbers in the order of the zone.
    pub listed: Option<(u32, u64, VecDeque<BlobId>)>,
    /// Zones whose bytes cannot be read, and their lives.
    pub unread: BTreeSet<(u32, u64)>,
}
