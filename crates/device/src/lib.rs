//! Floor 0: what a zoned drive is.
//!
//! [`ZonedDevice`] is the contract between every backend (the emulated drive, [kernel devices](kernel), [banded plain
//! disks](banded)) and everything built on drives. It follows ZBC/ZAC and ZNS:
//!
//! - A drive is an array of equal zones. A *conventional* zone is written anywhere; a *sequential* one only at its write
//!   pointer, up to its capacity, until it is reset.
//! - Buffers, offsets and lengths are aligned to the logical block. What is not aligned is an error, never rounded.
//! - A failed write changes nothing that the caller may rely on; it must [report](ZonedDevice::report) the zone first.
//! - **Power loss** with the write cache on: since the last flush each sequential zone keeps a prefix of its acknowledged
//!   writes, cut at a block boundary; conventional writes are each kept, lost or torn at a block boundary; zone
//!   operations are durable when they return. With the write cache off, acknowledged is durable.
//! - At most one write may be in flight per zone. A second one is a violation.
//! - A drive that [overwrites](ZonedDevice::overwrites) lets a sequential zone be written *in place*: it is full then, and written anywhere until it is
//!   reset, as a conventional zone is, with the same promises. Several writes of such a zone may be in flight where they do not overlap.
//!
//! The [`Survivor`] is the other thing that floor 0 names: memory that outlives the process, not the power.

#![warn(missing_docs)]

pub mod banded;
mod buf;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
mod held;
pub mod kernel;
mod lock;
mod survivor;
pub mod words;
mod zone;

use std::sync::Arc;

pub use buf::{AlignedBuf, MEM_ALIGN, Part};
pub use error::{Class, Code, Error, Fault, Result};
pub use held::Held;
pub use lock::{Holder, holders_in_words, lock_holder, lock_holders, openers};
pub use survivor::{Fill, HeapSurvivor, Region, Survivor, SurvivorKey, heap_region, zeroed_region};
pub use zone::{Written, Zone, ZoneId, ZoneOp, ZoneState};

use std::num::NonZeroU32;

/// Who a drive is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What a person calls it: a path, or `mem:…`.
    pub name: Arc<str>,
    /// The medium. A copied image is another medium.
    pub medium: [u8; 16],
    /// Changes whenever the drive may have lost power since (boot id, and for emulated drives power cuts).
    pub power_epoch: [u8; 16],
}

/// The fixed facts of a drive. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block: 4096 or 512 bytes.
    pub block: u32,
    /// Alignment that the memory of a buffer needs, in bytes.
    pub mem_align: u32,
    /// Largest read or write command, in bytes; a multiple of `block`.
    pub max_io: u32,
    /// Number of zones.
    pub zones: u32,
    /// Distance from one zone's start to the next, in bytes.
    pub zone_size: u64,
    /// How many sequential zones may be open at once; `None`: no limit.
    pub max_open: Option<NonZeroU32>,
    /// How many may be open or closed (ZNS) at once; `None`: no limit.
    pub max_active: Option<NonZeroU32>,
    /// Whether seeks cost time, so that writes should come in long turns.
    pub rotational: bool,
    /// Whether one read may cross a zone's end.
    pub reads_cross_zones: bool,
    /// Whether a read above the write pointer returns zeros (else it fails).
    pub reads_above_wp: bool,
}

impl Geometry {
    /// Byte address of a zone's first block.
    pub fn start(&self, zone: ZoneId) -> u64 {
        u64::from(zone.0) * self.zone_size
    }
    /// The zone that holds byte address `at`.
    pub fn zone_of(&self, at: u64) -> ZoneId {
        ZoneId(u32::try_from(at / self.zone_size).unwrap_or(u32::MAX))
    }
    /// Size of the address space in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.zones) * self.zone_size
    }
    /// `n` rounded up to whole blocks.
    pub fn round_up(&self, n: u64) -> u64 {
        n.next_multiple_of(u64::from(self.block))
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a command was issued. Statistics are kept by cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Cause { $($(#[$doc])* $name,)* }
        impl Cause {
            /// Every cause, in the order of their numbers.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];
            /// The name that statistics and traces print.
            pub fn name(self) -> &'static str {
                match self { $(Cause::$name => $text,)* }
            }
        }
    };
}

causes! {
    /// Whatever has no better name.
    Other = "other",
    /// Volume labels.
    Label = "label",
    /// Metadata journal of an engine.
    Journal = "journal",
    /// Write-ahead log of a database.
    Wal = "wal",
    /// A database's own metadata log (MANIFEST).
    Manifest = "manifest",
    /// Human-readable logs (LOG).
    InfoLog = "infolog",
    /// A memtable being written out.
    Flush = "flush",
    /// A compaction's reads or writes.
    Compaction = "compaction",
    /// Small files in conventional zones.
    Small = "small",
    /// A user's read.
    UserRead = "user_read",
    /// A user's write that is none of the above.
    UserWrite = "user_write",
    /// Speculative reads ahead of a detected stream.
    Readahead = "readahead",
    /// Moving live data to free a zone.
    Cleaning = "cleaning",
    /// A compaction of metadata to a new place.
    Checkpoint = "checkpoint",
    /// Reads and writes of a mount.
    Recovery = "recovery",
    /// An offline check.
    Check = "check",
    /// Zone resets and preparation by the pool.
    Pool = "pool",
}

/// How urgent a command is; the drive's scheduler serves higher ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Nobody waits for it.
    Background,
    /// Somebody waits.
    Normal,
    /// A synchronous commit waits.
    High,
}

/// What every command carries beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Why.
    pub cause: Cause,
    /// How urgent.
    pub priority: Priority,
}

impl Tag {
    /// A tag of normal priority.
    pub const fn new(cause: Cause) -> Self {
        Tag { cause, priority: Priority::Normal }
    }
    /// The same cause at another priority.
    pub const fn at(self, priority: Priority) -> Self {
        Tag { cause: self.cause, priority }
    }
}

impl From<Cause> for Tag {
    fn from(cause: Cause) -> Self {
        Tag::new(cause)
    }
}

/// A zoned drive. Object safe, blocking, shared by threads.
///
/// Every method fails with an [`Error`] that names drive, zone and offset.
pub trait ZonedDevice: Send + Sync {
    /// Who it is. Constant while the drive is open.
    fn identity(&self) -> &Identity;
    /// The power epoch now: another one than [`Identity::power_epoch`] where the drive has lost power since it was opened, and can tell. Drives of
    /// the kernel cannot.
    fn power_epoch(&self) -> [u8; 16] {
        self.identity().power_epoch
    }
    /// Its geometry. Constant while the drive is open.
    fn geometry(&self) -> &Geometry;
    /// Fills `out` with the state of the zones from `from` on; returns how many were filled (less than `out.len()` only at
    /// the drive's end).
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize>;
    /// Reads `buf.len()` bytes (whole blocks) at byte address `at` (block-aligned) into aligned memory. `Media { len }`
    /// says how many bytes before the bad block were read.
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()>;
    /// Writes whole blocks at `at`; in a sequential zone only at its write pointer. After an error the caller must report
    /// the zone before going on.
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()>;
    /// Makes every write that was acknowledged before the call durable. No cheaper than it has to be: with the write
    /// cache off it is counted but has nothing to do.
    fn flush(&self, tag: Tag) -> Result<()>;
    /// Opens, closes, finishes or resets a sequential zone; durable when it returns.
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()>;
    /// Whether sequential zones can be written [in place](ZonedDevice::set_in_place).
    fn overwrites(&self) -> bool {
        false
    }
    /// Makes a sequential zone full, so that it can be written in place. What stands where nothing was written is anything. Durable when it returns, with
    /// what was written to the zone before; cut by a crash it has happened or not.
    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        let (_, name) = (tag, &self.identity().name);
        Err(Error::invalid(name, "a write in place, which this drive does not allow").at(zone, 0))
    }
    /// Writes whole blocks anywhere in a zone that is written to its end, or was [set in place](ZonedDevice::set_in_place).
    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let (_, _, name) = (buf, tag, &self.identity().name);
        let error = Error::invalid(name, "a write in place, which this drive does not allow");
        Err(error.at(self.geometry().zone_of(at), at))
    }
    /// Whether the volatile write cache is on.
    fn write_cache(&self) -> Result<bool>;
    /// Turns the volatile write cache on, or off (which first makes everything durable).
    fn set_write_cache(&self, on: bool) -> Result<()>;
    /// Seconds that the drive was busy, by cause and by what it did (`seek`, `rotation`, `transfer`, `zone_ops`, `cleaning`), since its
    /// counters are kept. Only drives whose time is modelled know; of all others it is empty.
    fn busy_seconds(&self) -> Vec<(Cause, &'static str, f64)> {
        Vec::new()
    }
}

/// Reports all zones of a drive.
pub fn report_all(device: &dyn ZonedDevice) -> Result<Vec<Zone>> {
    let n = device.geometry().zones as usize;
    let mut zones = vec![Zone::EMPTY; n];
    let mut done = 0;
    while done < n {
        let got = device.report(ZoneId(done as u32), &mut zones[done..])?;
        if got == 0 {
            break;
        }
        done += got;
    }
    zones.truncate(done);
    Ok(zones)
}

/// An open drive, as a locator resolves to it: the device, and the memory that outlives this process.
#[derive(Clone)]
pub struct Drive {
    /// The drive itself.
    pub device: Arc<dyn ZonedDevice>,
    /// Where unwritten bytes are kept against the death of the process, and where those of the last one are; `None`: nowhere.
    pub survivor: Option<Arc<dyn Survivor>>,
}

impl Drive {
    /// Whether what is not written yet outlives the process.
    pub fn keeps_unwritten(&self) -> bool {
        self.survivor.as_ref().is_some_and(|survivor| survivor.keeps())
    }
}
