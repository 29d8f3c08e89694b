//! The one metadata log: snapshots and records of an engine, in one copy or two (SMRSTORE §5.2, §5.6; BlueFS §4, "Journaling").
//!
//! The log knows bytes. An engine hands it *records*, and now and then a *snapshot* in *pieces*. Whoever opens the log gets the pieces of the
//! newest whole snapshot, and every record after its beginning, in order, with sentences about what could not be read.
//!
//! Each copy is a *ring* of zones that the engine leases for good. The [root](Root) in the label names them, and changes only with them.
//! In a ring, frames follow each other from zone to zone. Each ring holds all records. Snapshots stand in the rings by turns. So either ring alone
//! is enough to recover, and whatever happens to one zone loses nothing. When a snapshot is whole and durable, the zones before it are reset.
//!
//! A log of one copy [grows](MetaLog::grow) where a frame finds no room in it, and can give zones back. It takes another zone for one that died. Its
//! frames are short: of what one place of the drive loses no copy is left. Two copies have their zones by turns in the root, so their rings stay as they are.
//!
//! One of two rings of which fewer than two zones take writes is *lost*: a snapshot that begins where the one before ends could never give a zone
//! back. Nothing more is written to a lost ring, and all snapshots go to the other one.
//!
//! A ring is *stuck* where a zone died in it and no other zone is free. The other ring has everything, so it takes the next snapshot. When that is whole, all
//! zones of the stuck ring are reset.
//!
//! Record frames are a [`chain`]: each names the one before it, as the mount knew it that wrote it. A frame that one mount could not read, and
//! the next one can, is not taken for what followed instead.
//!
//! Within a zone the drive keeps a front of what was not flushed. Before a ring goes on in its next zone the log flushes. So a power loss
//! takes a ring's end, and never leaves a gap.
//!
//! - `ring` and `items` are arithmetic and cutting, without I/O; [`format`](mod@format) is what stands on the drive;
//! - `open` reads the rings, `write` writes to them.
//!
//! Every call of a [`MetaLog`] that returns a `Result` may read, write, flush or reset. An engine makes it from one thread at a time. Meanwhile any thread
//! appends, by the log's [`Appender`].

mod appender;
pub mod chain;
pub mod format;
mod grow;
pub mod items;
mod kept;
mod open;
mod rebuild;
mod ring;
mod root;
mod write;

pub use appender::{Admission, Admitted, Appender};
pub use chain::Since;
pub use items::Batch;
pub use kept::KEPT;
pub use open::{Keep, Replay};
pub use root::Root;

use crate::table::pool::Urgency;
use crate::volume::{Tenant, Volume};
use imbrex_device::{Error, Fault, Result, ZoneId};
use ring::{Ring, Room, Slot};
use std::sync::Arc;

/// Frames begin and end at multiples of this, in bytes, whatever the drive's block.
pub const BLOCK: u64 = 4096;

/// Blocks that hold a zone's header, each all of it: with the only one of a log of one copy all of the zone would be lost.
const HEADS: u64 = 2;

/// What is said where one of two copies is lost.
pub const ONE_COPY: &str = "One of the two copies of the metadata has too few zones left that take writes; the other one is all there is. \
                            Move what is on the drive to another one.";

/// What time it is, in nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A snapshot that is being written.
#[derive(Debug)]
struct Progress {
    number: u64,
    ring: usize,
    /// Place of the zone where it begins in the order of its ring.
    order: u64,
    frames: u64,
    /// Where the records begin in the stream of all record items that the snapshot does not know.
    logical: u64,
    /// It knows all that were appended when it began.
    knows_all: bool,
}

/// A zone of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogZone {
    /// Which.
    pub zone: ZoneId,
    /// Of the first copy, or the second.
    pub copy: u8,
    /// Its life.
    pub life: u64,
    /// Bytes that it takes.
    pub capacity: u64,
    /// Bytes in it that are of use.
    pub written: u64,
    /// What it is used for.
    pub state: LogZoneState,
}

/// How a zone of the log is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogZoneState {
    /// It is empty.
    Empty,
    /// Nothing in it is of use, and it is reset before the next write.
    Dirty,
    /// Frames go there now.
    Current,
    /// It holds frames that are of use.
    Full,
}

/// See the module.
pub struct MetaLog {
    tenant: Tenant,
    clock: Clock,
    root: Root,
    rings: Vec<Ring>,
    /// The label does not name it before so many more snapshots are whole.
    unnamed: u8,
    appender: Appender,
    /// Bytes of a frame at most.
    frame: u64,
    /// Bytes of one device write at most.
    run: u64,
    /// Number of the last record frame, which the next one names.
    last: u64,
    /// No frame has that number so far; this is the one before it.
    unmarked: Option<u64>,
    /// The last number that a frame, or the life of a zone, was given.
    given: u64,
    /// Number of the last snapshot that is whole.
    snapshot: u64,
    /// Number of the last one that was begun.
    begun: u64,
    /// Bytes of record frames since then.
    grown: u64,
    progress: Option<Progress>,
    /// A write of records failed, and the drive may have frames of it that the log knows nothing of.
    spilled: bool,
    /// A zone that the label was to name, and may: it is for the log and nobody else.
    half_taken: Option<ZoneId>,
    /// Where the next record to be written begins in the stream of all record items of the log, in bytes.
    placed: u64,
    /// See [`MetaLog::is_damaged`].
    damaged: bool,
}

/// A zone that was just taken.
fn empty_slot(volume: &Volume, zone: u32) -> Slot {
    Slot { capacity: volume.capacity(ZoneId(zone)) / BLOCK * BLOCK, ..Slot::empty(ZoneId(zone)) }
}

impl MetaLog {
    /// A log of a tenant that has none, in so many copies and zones, which it takes. The caller writes as many snapshots as there are copies; when these are whole the
    /// label names the log. `engine`: what the engine wants to know before it reads the log.
    ///
    /// # Errors
    /// `NoSpace`, those of the drive, and where the zones stand in too many places. Zones that were taken are nobody's after the next mount.
    pub fn create(tenant: &Tenant, copies: u8, zones: u32, engine: Vec<u8>, clock: Clock) -> Result<MetaLog> {
        let mut zones = (0..zones).map(|_| Ok(tenant.take(Urgency::Metadata)?.0)).collect::<Result<Vec<u32>>>()?;
        zones.sort_unstable();
        let (root, volume) = (Root { copies, zones, unfinished: false, engine }, tenant.volume());
        if root.encode().is_none() {
            let sentence = "its free zones stand in too many places for a metadata log; format it anew";
            return Err(Error::unusable(&volume.name(), sentence));
        }
        let slot = |zone| empty_slot(volume, zone);
        let rings = (0..copies).map(|copy| Ring::new(root.ring(copy).map(slot).collect(), 0)).collect();
        Ok(MetaLog { unnamed: copies, ..MetaLog::of(tenant, &root, rings, clock) })
    }

    fn of(tenant: &Tenant, root: &Root, mut rings: Vec<Ring>, clock: Clock) -> MetaLog {
        if rings.len() == 1 {
            rings = rings.into_iter().map(Ring::alone).collect();
        }
        let mut log = MetaLog {
            tenant: tenant.clone(),
            clock,
            root: root.clone(),
            rings,
            unnamed: 0,
            appender: Appender::new(tenant),
            frame: 0,
            run: 0,
            last: 0,
            unmarked: None,
            given: 0,
            snapshot: 0,
            begun: 0,
            grown: 0,
            progress: None,
            spilled: false,
            half_taken: None,
            placed: 0,
            damaged: false,
        };
        log.measure();
        log
    }

    /// How long frames are.
    fn measure(&mut self) {
        self.run = ring::run_of(self.zone_bytes());
        self.frame = if self.rings.len() > 1 { self.run } else { BLOCK };
        self.appender.tail().zones = self.ring_size().0;
        self.publish();
    }

    /// What the label says of it.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Appends records, from any thread.
    pub fn appender(&self) -> &Appender {
        &self.appender
    }

    fn rooms(&self) -> Vec<Room> {
        self.alive().map(|ring| self.rings[ring].room(self.frame)).collect()
    }

    /// Whoever appends gets the room that there is.
    fn publish(&self) {
        self.appender.tail().publish(self.rooms(), self.rings.len() as u64, self.frame);
    }

    fn volume(&self) -> &Volume {
        self.tenant.volume()
    }

    fn error(&self, fault: Fault) -> Error {
        Error::new(&self.volume().name(), fault)
    }

    /// Zones of a ring, and the bytes that the smallest zone of all takes.
    pub fn ring_size(&self) -> (u64, u64) {
        (self.rings.first().map_or(0, |ring| ring.slots().len() as u64), self.zone_bytes())
    }

    fn zone_bytes(&self) -> u64 {
        self.rings.iter().flat_map(|ring| ring.slots()).map(|slot| slot.capacity).min().unwrap_or(0)
    }

    /// Its zones, ring by ring.
    pub fn zones(&self) -> Vec<LogZone> {
        let of = |(copy, ring): (usize, &Ring)| {
            let zone = move |(slot, state): (Slot, LogZoneState)| LogZone {
                zone: slot.zone,
                copy: copy as u8,
                life: slot.life,
                capacity: slot.capacity,
                written: if slot.order > 0 { slot.tail } else { 0 },
                state,
            };
            ring.states().map(zone).collect::<Vec<_>>()
        };
        self.rings.iter().enumerate().flat_map(of).collect()
    }

    /// Whether an opening has found damage in one of two copies that goes away with a whole snapshot in each copy.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Whether one of two copies is lost.
    fn has_lost_copy(&self) -> bool {
        self.rings.iter().any(Ring::is_lost)
    }

    /// Bytes of record frames since the beginning of the last whole snapshot of this mount.
    pub fn grown(&self) -> u64 {
        self.grown
    }

    /// Number of the last snapshot that is whole.
    pub fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// Bytes of an item that fills a frame.
    pub fn item_bytes(&self) -> usize {
        self.frame as usize - format::FRONT - items::LENGTH
    }

    /// Whether a snapshot is being written.
    pub fn in_snapshot(&self) -> bool {
        self.progress.is_some()
    }

    /// Drops the snapshot that is being written; the one before counts.
    pub fn abandon_snapshot(&mut self) {
        if let Some(Progress { ring, .. }) = self.progress.take() {
            self.rings[ring].drop_useless();
            self.publish();
        }
    }

    /// Whether records are appended and not written.
    pub fn has_unwritten(&self) -> bool {
        self.appender.tail().has_unwritten()
    }

    /// The rings that are written.
    fn alive(&self) -> impl Iterator<Item = usize> {
        (0..self.rings.len()).filter(|ring| self.rings[*ring].is_written())
    }

    /// The ring that a snapshot goes to.
    fn ring_of(&self, snapshot: u64) -> usize {
        let copies = self.rings.len().max(1);
        let wanted = (snapshot % copies as u64) as usize;
        (0..copies).map(|n| (wanted + n) % copies).find(|ring| self.rings[*ring].is_written()).unwrap_or(wanted)
    }
}
