//! Data on their way to zones: what needs a place, and the zones that are being written.

use crate::blob::{BLOCK, MAX_GRAIN, Place};
use crate::lock::lock;
use crate::names::{Name, Names};
use crate::run::{A_BLOCK, RunPiece};
use imbrex_device::AlignedBuf;
use imbrex_zones::write::{RecordOptions, RecordWriter};
use imbrex_zones::{OpenZone, Tenant};
use std::sync::{Arc, Mutex};

/// Where blobs go: those that live and die alike go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// Long writes.
    Cold,
    /// Short ones, and what will be gone soon.
    Hot,
    /// What the cleaner moves. It has outlived what was written with it.
    Moved,
}

/// How many there are.
pub(crate) const STREAMS: usize = 3;

/// Blocks of a blob that need a place.
#[derive(Clone)]
pub(crate) struct Todo {
    pub stream: Stream,
    pub piece: RunPiece,
    /// All of the blob.
    pub bytes: Arc<AlignedBuf>,
    /// Checksums of all grains of the blob.
    pub sums: Arc<[u32]>,
    /// Where it stands now, if it is to be moved.
    pub from: Option<Place>,
    /// In place: where it is to stand if that is free.
    pub wanted: Option<Place>,
}

/// Such blocks that have one.
pub(crate) struct Placed {
    pub todo: Todo,
    pub place: Place,
}

impl Placed {
    /// Where they end in the zone, in bytes.
    pub fn end(&self) -> u64 {
        u64::from(self.place.block + self.todo.piece.blocks) * BLOCK
    }
}

/// Of so many zones one is left to the metadata, 32 at most.
const LEFT: u32 = 32;

/// See the module.
pub(crate) struct Data {
    pub records: Arc<RecordWriter>,
    /// The zones that the streams write to, by stream; whoever commits has them.
    pub open: Mutex<[Option<OpenZone>; STREAMS]>,
    /// Names of objects that were written lately.
    pub names: Mutex<Names>,
    /// Names of those that the cleaner moves.
    pub moved_names: Mutex<Names>,
    /// Zones that take no more, since the last [`Data::take_closed`].
    pub closed: Mutex<Vec<u32>>,
    /// Blocks that the smallest zone takes, its header aside.
    capacity: u64,
    left: u32,
    /// Blocks of an allocation unit of a store in place.
    pub unit: Option<u32>,
}

impl Data {
    pub fn new(tenant: &Tenant, unit: Option<u32>, elsewhere: bool) -> Data {
        let options = RecordOptions { gather: 1 << 20, block: BLOCK as usize, zones_at_once: None };
        let capacity = (tenant.volume().least_capacity() / BLOCK).saturating_sub(1);
        Data {
            records: Arc::new(RecordWriter::new(tenant, options)),
            open: Mutex::default(),
            names: Mutex::default(),
            moved_names: Mutex::default(),
            closed: Mutex::default(),
            capacity,
            left: if elsewhere { 0 } else { (tenant.volume().geometry().zones / LEFT).min(32) },
            unit,
        }
    }

    /// The longest grain that a zone of this drive takes without waste, as a power of two of blocks.
    pub fn longest_grain(&self) -> u8 {
        ((self.capacity / 8).max(1).ilog2() as u8).min(MAX_GRAIN)
    }

    /// Zones that a user's bytes leave free for the metadata, without which nothing could even be deleted. None where these are on another drive.
    pub fn left_to_metadata(&self) -> u32 {
        self.left
    }

    /// Blocks of data that a zone surely takes, with headers of runs and a rest at its end that is too short.
    pub fn zone_takes(&self) -> u64 {
        if let Some(unit) = self.unit.map(u64::from) {
            // But for the unit that has the zone's header.
            return ((self.capacity + 1) / unit).saturating_sub(1).max(1) * unit;
        }
        let headers = self.capacity / A_BLOCK as u64 + 2;
        self.capacity.saturating_sub(headers + (1 << self.longest_grain())).max(1)
    }

    /// What an object is called, where that is known without a look at the metadata.
    pub fn name(&self, number: u64) -> Option<Arc<Name>> {
        let name = lock(&self.names).get(number);
        name.or_else(|| lock(&self.moved_names).get(number))
    }

    /// Copies bytes that are not on the drive yet.
    pub fn in_memory(&self, zone: u32, at: u64, out: &mut [u8]) -> bool {
        self.records.read(zone, at, out)
    }

    /// What the record writer thinks of zones that are to be given back.
    pub fn forget(&self, zone: u32) -> bool {
        self.records.forget(zone)
    }

    /// Zones to which nothing more goes, when all that was written there counts.
    pub fn take_closed(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.closed))
    }
}
