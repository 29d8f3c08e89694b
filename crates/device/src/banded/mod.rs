//! Plain disks cut into bands (SMRDB §4.1): any file or conventional disk as a zoned drive.
//!
//! Bands obey the rules of sequential zones: they are written at a write pointer, up to their end, until they are reset.
//! Where the write pointer is, how often a band was reset (its *life*) and what state it is in stand in the *band table* at
//! the disk's beginning; the first bands may stay conventional. `docs/on-disk-format.md` draws the table.
//!
//! **A write costs no write of the table.** What has to outlive the process is kept in the *live* part, one word a band,
//! which lies in the kernel's page cache: a small write there is memory, and is there for whoever opens the disk next under
//! the same boot. (`pwrite` rather than a mapping: no `SIGBUS` when the disk dies, errors that can be told, no `unsafe`.)
//! The kernel writes it to the disk whenever it likes, so after a reboot it is not believed.
//!
//! **A flush costs one flush of the disk.** What has to outlive the power is in snapshots and a log: a flush writes one batch
//! of the bands that changed, and syncs. **It carries small writes**, which wait for it in memory and in the live part
//! ([`staging`]): so a small write and its flush are one write and one flush of the disk. Longer ones go to their bands, and the
//! batch may become durable before the bytes that it speaks of: each record carries the checksum of the bytes since the last
//! flush, and where they are not there after a power loss, the band is cut to what was durable before. That is checked for the
//! last batch only (one follows only after the flush of the one before has ended), and of at most [`CHECKED_BYTES`]: where more
//! was written, the disk is synced first.
//!
//! **A reset is a batch with a new life, synced before it is acknowledged**; so it never comes undone, and the record of an
//! earlier life never gives old bytes a meaning. Reads above the write pointer are zeros that the disk is not asked for.
//!
//! **A band that is set in place** is as if it had been written to its end, by a batch that is synced before it is acknowledged.
//! Then its blocks are the disk's own: a write is one write of the disk, and a flush of it one sync, without a batch.
//!
//! **A flush that failed** ends writing: the live part is invalidated, so that the next open takes it for a power loss (with
//! a new power epoch) and believes only what is proved to be there.

mod base;
mod conventional;
mod drive;
mod file;
mod journal;
mod layout;
mod recover;
mod sequential;
mod staging;
mod stats;
mod table;

pub use base::{Base, BaseFacts, MemoryBase};
pub use conventional::ConventionalZones;
pub use file::FileBase;
pub use layout::{Layout, NoHeader, decode_header};
pub use sequential::SequentialOnly;
pub use stats::{Counter, Counters};

use crate::kernel::Access;
use crate::{AlignedBuf, Error, Fault, Geometry, Identity, Result, ZoneId, ZoneState};
use journal::Journal;
use layout::{COPY_AT, PAGE};
use staging::{Piece, Staging};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use table::{Proof, Record, Word};

/// Bytes of unflushed bands that one flush leaves to checksums; with more it syncs twice. An open after a power loss reads
/// so many bytes at most to check them.
pub const CHECKED_BYTES: u64 = 4 << 20;

/// A new table erases so many bytes at the beginning of each of so many conventional bands: where labels and superblocks are.
const ERASED_BYTES: u64 = 1 << 20;
const ERASED_BANDS: u32 = 16;

/// How often an observer looks where the table seems damaged.
const OBSERVER_TRIES: u32 = 5;

/// Whether what begins with these bytes begins like a banded disk.
pub fn begins_banded(bytes: &[u8]) -> bool {
    bytes.starts_with(&layout::MAGIC)
}

/// Whether the file at `path` begins like a banded disk.
pub fn is_banded(path: &Path) -> bool {
    let mut magic = [0; 8];
    let read =
        std::fs::File::open(path).and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, 0));
    read.is_ok() && begins_banded(&magic)
}

/// A disk cut into bands, as a zoned drive.
pub struct Banded {
    base: Box<dyn Base>,
    layout: Layout,
    access: Access,
    identity: Identity,
    geometry: Geometry,
    slots: Vec<Slot>,
    /// `None` where it was opened to look.
    journal: Option<Mutex<Journal>>,
    /// Bands with bytes that the table does not speak of.
    dirty: Mutex<BTreeSet<u32>>,
    staging: Mutex<Staging>,
    /// The caller wants the cache; `false` makes every write durable before it returns.
    cache: AtomicBool,
    counters: Counters,
    flushes: AtomicU64,
    /// [`CHECKED_BYTES`], or less in tests.
    checked_bytes: u64,
}

struct Slot {
    side: Mutex<Side>,
    /// Held for reading while bytes are read, for writing while a reset makes them nobody's.
    bytes: RwLock<()>,
    /// Held while what waits in memory is written into the band.
    home: Mutex<()>,
    /// Held by who sets the band in place because it is written so.
    settling: Mutex<()>,
}

/// What is known of a band now.
struct Side {
    word: Word,
    /// A write or an operation is in flight.
    claimed: bool,
    /// Writes in place that are.
    in_place: u32,
    /// Blocks that the last batch spoke of.
    told: u64,
    /// Checksum of the blocks since.
    sum: u32,
    /// What is not in the band yet, in order: its end, and where the drive was opened to look or the band does not take it, any part.
    ahead: Vec<Piece>,
    /// The disk did not take that.
    stuck: bool,
    /// What is written in place stays: nothing of what was written before is to be checked, or on its way.
    settled: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a disk without a header of ours is none that can be opened.
fn no_header(name: &Arc<str>, why: NoHeader) -> Error {
    match why {
        NoHeader::Foreign => Error::unusable(
            name,
            format!(
                "it has no band table; make one with `imbrex drive create --banded {name}`, which destroys what is there"
            ),
        ),
        NoHeader::Newer => Error::unusable(name, "its band table was made by a newer version; use that version"),
        NoHeader::Damaged => Error::corrupt(name, "the header of the band table"),
        NoHeader::Shrunk(needs) => Error::damaged(
            name,
            format!("its bands were {needs} bytes with their table, and it is smaller now; restore it from a copy"),
        ),
    }
}

impl Banded {
    /// Makes a band table on `base` for `layout` (from [`Layout::plan`]). The sequential bands are empty, and the first
    /// conventional ones begin with zeros; cut short, there is no table. Without a UUID it gets a random one.
    pub fn format(base: &dyn Base, layout: &Layout) -> Result<Layout> {
        let name = &base.facts().name;
        let fail = |fault| Error::new(name, fault);
        let uuid = if layout.uuid == [0; 16] { *uuid::Uuid::new_v4().as_bytes() } else { layout.uuid };
        let layout = Layout { uuid, ..*layout };
        let write = |at: u64, bytes: &[u8]| base.write(&AlignedBuf::padded(bytes, PAGE), at).map_err(fail);
        // An older table is none before the new one is begun.
        write(0, &[0])?;
        write(COPY_AT, &[0])?;
        base.sync().map_err(fail)?;
        // Real zeros, so that later writes to the table need no room on a host.
        let zeros = AlignedBuf::zeroed((base.facts().max_io as usize / PAGE).max(1) * PAGE);
        let mut at = 0;
        let end = layout.table_end();
        while at < end {
            let n = (zeros.len() as u64).min(end - at) as usize;
            base.write(&zeros[..n], at).map_err(fail)?;
            at += n as u64;
        }
        let word = |band| if band < layout.conventional { Word::CONVENTIONAL } else { Word::empty(0) };
        Journal::start(base, &layout, (0, 1, 1), (0..layout.bands).map(word).collect(), &Default::default())
            .map_err(fail)?;
        base.discard(layout.data_at, u64::from(layout.bands) * layout.band);
        // Conventional bands hold what the disk held there; nobody shall take that for a label or a file system.
        let mut seen = AlignedBuf::zeroed(zeros.len());
        for band in 0..layout.conventional.min(ERASED_BANDS) {
            let end = layout.start(band) + ERASED_BYTES.min(layout.band);
            let mut at = layout.start(band);
            while at < end {
                let n = (seen.len() as u64).min(end - at) as usize;
                // A file that is sparse there stays so. What cannot be read may be writable.
                let empty = base.read(&mut seen[..n], at).is_ok() && seen[..n].iter().all(|byte| *byte == 0);
                if !empty {
                    base.write(&zeros[..n], at).map_err(fail)?;
                }
                at += n as u64;
            }
        }
        write(COPY_AT, &layout.encode())?;
        base.sync().map_err(fail)?;
        write(0, &layout.encode())?;
        base.sync().map_err(fail)?;
        Ok(layout)
    }

    /// The layout of the table on `base`; errors are those of [`Banded::open`].
    pub fn layout_of(base: &dyn Base) -> Result<Layout> {
        let name = &base.facts().name;
        let header = recover::read_header(base).map_err(|fault| Error::new(name, fault))?;
        header.map(|(layout, _)| layout).map_err(|why| no_header(name, why))
    }

    /// Opens the banded disk on `base`.
    ///
    /// Errors: `Unusable` with a sentence where there is no table of ours, `Corrupt` where it is damaged beyond its copies.
    pub fn open(base: Box<dyn Base>, access: Access) -> Result<Banded> {
        let name = base.facts().name.clone();
        let fail = |fault| Error::new(&name, fault);
        let (layout, repair) =
            recover::read_header(base.as_ref()).map_err(fail)?.map_err(|why| no_header(&name, why))?;
        if layout.block < base.facts().block {
            return Err(Error::unusable(
                &name,
                format!(
                    "its band table was made for blocks of {} bytes, but the disk has blocks of {}; use the disk that it \
                     was made on",
                    layout.block,
                    base.facts().block
                ),
            ));
        }
        // Before the table: what its owner moves from here into the log, or home, is found there then.
        let live = match base.live(&layout.uuid, layout.live_at(), layout.live_len() + PAGE) {
            // A power loss may have torn it, and then it is not needed. Any other trouble may hide what a killed process has left.
            Err(Fault::Media { .. }) => {
                tracing::warn!(
                    "{name}: what outlives the process cannot be read; the disk is opened as after a power loss"
                );
                Vec::new()
            }
            live => live.map_err(fail)?,
        };
        let mut found = recover::read(base.as_ref(), &layout).map_err(fail)?;
        let told = found.words.clone();
        match recover::live_words(&live, &layout, &base.facts().boot, &found) {
            Some(words) => {
                for (word, live) in found.words.iter_mut().zip(words) {
                    // A reset that was durable and not yet acknowledged may be ahead of its live word.
                    if live.life >= word.life {
                        *word = live;
                    }
                }
                found.take_staged(&live, &layout);
            }
            None => {
                let cut = found.lose_power(base.as_ref(), &layout).map_err(fail)?;
                tracing::info!("{name}: opened as after a power loss; {cut} bands lost bytes that were not flushed");
                found.epoch += 1;
            }
        }
        found.keep_pieces_of_now(&layout);
        let counters = Counters::decode(live.get(layout.live_len()..).unwrap_or_default(), &layout.uuid);
        let (mut journal, mut staging) = (None, Staging::default());
        if access == Access::Write {
            // What a dead process left unflushed is durable from here on; then the table can speak of it.
            let again = bring_home(base.as_ref(), &layout, &mut found, &told);
            base.sync().map_err(fail)?;
            if repair {
                for at in [COPY_AT, 0] {
                    base.write(&AlignedBuf::padded(&layout.encode(), PAGE), at).map_err(fail)?;
                    base.sync().map_err(fail)?;
                }
            }
            let from = (found.generation, found.sequence, found.epoch);
            let started = Journal::start(base.as_ref(), &layout, from, found.words.clone(), &again).map_err(fail)?;
            let number = (found.epoch, started.sequence());
            staging = start_live(base.as_ref(), &layout, number, &found.words).map_err(fail)?;
            journal = Some(Mutex::new(started));
            base.put(&counters.encode(&layout.uuid), layout.counters_at()).map_err(fail)?;
        }
        let slots: Vec<Slot> =
            found.words.iter().enumerate().map(|(band, word)| Slot::new(&layout, band as u32, *word)).collect();
        for piece in found.pieces {
            if let Some(slot) = slots.get(piece.band as usize) {
                staging.bands.insert(piece.band);
                let mut side = lock(&slot.side);
                side.ahead.push(piece);
                (side.stuck, side.settled) = (true, false);
            }
        }
        Ok(Banded {
            identity: identity(base.facts(), &layout, found.epoch),
            geometry: geometry(base.facts(), &layout),
            slots,
            base,
            layout,
            access,
            journal,
            dirty: Mutex::new(BTreeSet::new()),
            staging: Mutex::new(staging),
            cache: AtomicBool::new(true),
            counters,
            flushes: AtomicU64::new(0),
            checked_bytes: CHECKED_BYTES,
        })
    }

    /// Looks at the banded disk at `path` beside whoever has it: what is seen may be old when it is looked at. Errors are those
    /// of [`Banded::open`].
    pub fn observe(path: &Path) -> Result<Banded> {
        let mut tries = 0;
        loop {
            let seen = Banded::open(Box::new(FileBase::open(path, Access::Observe)?), Access::Observe);
            tries += 1;
            match seen {
                // The table was changing under our eyes.
                Err(Error { fault: Fault::Corrupt { .. }, .. }) if tries < OBSERVER_TRIES => {}
                other => return other,
            }
        }
    }

    /// How the disk is cut.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Leaves less to checksums, so that tests on small disks come past the bound.
    pub fn set_checked_bytes(&mut self, bytes: u64) {
        self.checked_bytes = bytes.min(CHECKED_BYTES);
    }

    /// What was counted since the drive was made or the counters were cleared.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets all counters to 0.
    pub fn clear_counters(&self) {
        self.counters.clear();
    }

    /// How often each band was reset.
    pub fn resets(&self, zone: ZoneId) -> Option<u32> {
        self.slots.get(zone.0 as usize).map(|slot| lock(&slot.side).word.life)
    }
}

/// Writes into their bands what is not there yet, and leaves in `found` what these do not take: the log is to go on with it, behind
/// records of the words that it did not say.
fn bring_home(base: &dyn Base, layout: &Layout, found: &mut recover::Found, told: &[Word]) -> (Vec<Record>, Vec<u8>) {
    let (mut again, mut stuck) = ((Vec::new(), Vec::new()), Vec::new());
    for pieces in std::mem::take(&mut found.pieces).chunk_by(|a, b| a.band == b.band) {
        if let Err(fault) = staging::bring_home(base, layout, pieces) {
            tracing::warn!("{}: {fault:?}: the log keeps what belongs to a band", base.facts().name);
            stuck.extend_from_slice(pieces);
        }
    }
    if stuck.is_empty() {
        return again;
    }
    for (band, (word, _)) in found.words.iter().zip(told).enumerate().filter(|(_, (word, told))| word != told) {
        again.0.push(Record { band: band as u32, word: *word, from: word.written, proof: Proof::Durable });
    }
    for pieces in stuck.chunk_by(|a, b| a.band == b.band) {
        if let Some(word) = pieces.first().and_then(|first| found.words.get(first.band as usize)) {
            staging::carry_on(layout, *word, pieces, &mut again);
        }
    }
    found.pieces = stuck;
    again
}

/// Fills the live part; only its header, which comes last, makes it count.
fn start_live(
    base: &dyn Base,
    layout: &Layout,
    (epoch, sequence): (u64, u64),
    words: &[Word],
) -> Result<Staging, Fault> {
    base.start_live(&layout.uuid, layout.live_at(), layout.live_len() + PAGE)?;
    let words = words.iter().enumerate();
    let bytes: Vec<u8> = words.flat_map(|(band, word)| table::encode_live(layout, band as u32, *word)).collect();
    base.put(&bytes, layout.live_word_at(0))?;
    let staging = Staging::start(base, layout, epoch, sequence)?;
    base.put(&table::encode_live_mark(layout, sequence), layout.live_mark_at())?;
    base.put(&table::encode_live_head(layout, &base.facts().boot, epoch), layout.live_at())?;
    Ok(staging)
}

impl Slot {
    fn new(layout: &Layout, band: u32, word: Word) -> Slot {
        let sum = table::seed(layout, band, word.life, word.written);
        Slot {
            side: Mutex::new(Side {
                word,
                claimed: false,
                in_place: 0,
                told: word.written,
                sum,
                ahead: Vec::new(),
                stuck: false,
                settled: true,
            }),
            bytes: RwLock::new(()),
            home: Mutex::new(()),
            settling: Mutex::new(()),
        }
    }
}

fn hash(parts: &[&[u8]]) -> [u8; 16] {
    *uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &parts.concat()).as_bytes()
}

fn identity(facts: &BaseFacts, layout: &Layout, epoch: u64) -> Identity {
    Identity {
        name: facts.name.clone(),
        medium: hash(&[b"imbrex banded medium", &layout.uuid, &facts.medium]),
        power_epoch: hash(&[b"imbrex banded epoch", &layout.uuid, &facts.medium, &facts.boot, &epoch.to_le_bytes()]),
    }
}

fn geometry(facts: &BaseFacts, layout: &Layout) -> Geometry {
    Geometry {
        block: layout.block,
        mem_align: layout.block,
        max_io: facts.max_io,
        zones: layout.bands,
        zone_size: layout.band,
        max_open: None,
        max_active: None,
        rotational: facts.rotational,
        reads_cross_zones: true,
        reads_above_wp: true,
    }
}

impl Drop for Banded {
    /// What a closed drive was told is durable, and nothing is left to check.
    fn drop(&mut self) {
        if self.journal.is_some()
            && let Err(error) = self.close()
        {
            tracing::warn!("{error}");
        }
    }
}

impl std::fmt::Debug for Banded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Banded({}, {} bands of {})", self.identity.name, self.layout.bands, self.layout.band)
    }
}

/// Whether a state of a band lets it be written.
fn is_conventional(word: &Word) -> bool {
    word.state == ZoneState::Conventional
}
