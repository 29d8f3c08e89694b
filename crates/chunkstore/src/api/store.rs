//! The chunk store as its users see it.

use crate::api::engine::Opening;
use crate::api::look;
use crate::check::scrub::Scrubbed;
use crate::check::{CheckReport, ScrubStep};
use crate::core::report::OpenReport;
use crate::core::{Core, FLUSH, State};
use crate::error::{Error, Result};
use crate::format::id::{ChunkId, StreamType};
use crate::index::Chunk;
use crate::meter::Operation;
use crate::meter::Stats;
use crate::options::{Append, ChunkInfo, Durability, FormatOptions, Options};
use crate::read::Care;
use crate::recover::{self, OpenStep, Progress, Relabel, TENANT};
use imbrex_device::Drive;
use imbrex_zones::clean::Goal;
use imbrex_zones::shell::Shell;
use imbrex_zones::write::Written;
use imbrex_zones::{Tenant, TenantSpec, Volume};

/// An open chunk store. Clones are the same one; any number of threads may use it.
///
/// Whatever has returned from a [durable](Durability::Durable) call survives the death of the process and the loss of power.
/// Nothing relies on [`ChunkStore::close`], which only makes the next opening quicker.
///
/// ```
/// use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
/// # use imbrex_device::Drive;
/// # let emulator = imbrex_emulator::Emulator::memory(&imbrex_emulator::Config::tiny())?;
/// # let drive = Drive { device: std::sync::Arc::new(emulator), survivor: None };
/// ChunkStore::format(&drive, &FormatOptions::default())?;
/// let store = ChunkStore::open(drive, Options::default())?;
/// let id = ChunkId::random();
/// store.create(id, StreamType::DATA)?;
/// assert_eq!(store.append(id, b"hello ")?, 0);
/// // A retry whose answer was lost cannot append twice.
/// let at = Append { offset: Some(6), durability: Durability::Durable };
/// assert_eq!(store.append_with(id, b"world", at)?, 6);
/// let mut out = [0; 5];
/// assert_eq!(store.read(id, 6, &mut out)?, 5);
/// assert_eq!(&out, b"world");
/// assert_eq!(store.seal(id)?, 11);
/// store.delete(id)?;
/// # store.close()?;
/// # Ok::<(), imbrex_chunkstore::Error>(())
/// ```
#[derive(Clone)]
pub struct ChunkStore {
    pub(crate) core: Shell<Core>,
}

/// Limits of an open store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one append.
    pub append: u32,
    /// Most appends of one chunk.
    pub records: usize,
}

/// What [`ChunkStore::begin_sync`] has written. Dropped, it is durable with a later sync.
#[must_use]
pub struct PendingSync<'a> {
    core: &'a Core,
    target: u64,
    group: Written<'a>,
}

impl PendingSync<'_> {
    /// Makes it durable.
    ///
    /// # Errors
    /// Those of [`ChunkStore::sync`].
    pub fn finish(self) -> Result<()> {
        self.group.flush(FLUSH)?.tell();
        self.core.commit_bytes(self.target, State::has_stranded)
    }
}

impl ChunkStore {
    /// Makes an empty store of a drive.
    ///
    /// # Errors
    /// [`Error::Drive`]: `Unusable` with a whole sentence where the drive holds something and `force` is not set, or is too small.
    pub fn format(drive: &Drive, options: &FormatOptions) -> Result<()> {
        Self::format_shared(drive, options, Vec::new())
    }

    /// The same of a drive that was opened [as it is](imbrex_drives::OpenOptions::as_it_is) and is this store's alone: where it has 8 or more
    /// conventional zones beside what the band table takes, they become sequential ones first, and every opening by the drive's name finds them so. Returns
    /// the drive as it is to be opened.
    ///
    /// # Errors
    /// Those of [`ChunkStore::format`].
    pub fn format_alone(drive: Drive, options: &FormatOptions) -> Result<Drive> {
        let mut force = options.force;
        let drive = imbrex_drives::all_sequential(drive, |drive| -> Result<()> {
            look::check_size(drive)?;
            if !options.force {
                Volume::check_unused(drive)?;
            }
            // Nothing of what stands there is of use any more.
            force = true;
            Ok(())
        })?;
        Self::format(&drive, &FormatOptions { force, ..options.clone() })?;
        Ok(drive)
    }

    /// Makes an empty store of a drive that it shares with other engines, whose part is as empty; the first of them gets the
    /// conventional zones.
    ///
    /// # Errors
    /// Those of [`ChunkStore::format`].
    pub fn format_shared(drive: &Drive, options: &FormatOptions, others: Vec<TenantSpec>) -> Result<()> {
        // A drive that is too small loses nothing by being formatted.
        let zones = look::check_size(drive)?;
        let mut tenants = others;
        tenants.push(TenantSpec { name: TENANT.into(), budget: recover::budget(zones) });
        let format = imbrex_zones::FormatOptions { uuid: options.uuid, tenants, force: options.force };
        Volume::format(drive, &format)?;
        let inline = Options {
            volume: imbrex_zones::VolumeOptions { exec: imbrex_zones::Exec::Inline, ..Default::default() },
            ..Options::default()
        };
        Self::open(drive.clone(), inline)?.close()
    }

    /// Opens the store of a drive; recovers it, if it was not closed.
    ///
    /// # Errors
    /// [`Error::Drive`]: `Unusable` with a whole sentence where the drive has no chunk store, one of a newer version, or one
    /// whose metadata is lost.
    pub fn open(drive: Drive, options: Options) -> Result<ChunkStore> {
        Self::open_watched(drive, options, |_, _, _| {})
    }

    /// The same; `progress` hears what recovery is doing, and how many of how many zones are done.
    ///
    /// ```
    /// # use imbrex_chunkstore::{ChunkStore, FormatOptions, OpenStep, Options};
    /// # let emulator = imbrex_emulator::Emulator::memory(&imbrex_emulator::Config::tiny())?;
    /// # let drive = imbrex_device::Drive { device: std::sync::Arc::new(emulator.clone()), survivor: None };
    /// # ChunkStore::format(&drive, &FormatOptions::default())?;
    /// let mut metazones = 0;
    /// ChunkStore::open_watched(drive, Options::default(), |step, _done, _all| {
    ///     metazones += u64::from(step == OpenStep::Metazones);
    /// })?;
    /// assert_eq!(metazones, 2, "one of each copy is in use");
    /// # Ok::<(), imbrex_chunkstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ChunkStore::open`].
    pub fn open_watched(
        drive: Drive,
        options: Options,
        mut progress: impl FnMut(OpenStep, u64, u64),
    ) -> Result<ChunkStore> {
        Self::open_drive(drive, options, None, &mut progress)
    }

    /// Opens the store of a drive whose checkpoints are lost: reads every zone and rebuilds the index from the records. What is left of the
    /// journal says which chunks were deleted and sealed; without it, deleted chunks come back as long as their zones were not
    /// reset, and all chunks are open. `progress` hears how many of how many zones are done.
    ///
    /// # Errors
    /// Those of [`ChunkStore::open`], but for the checkpoints.
    pub fn salvage(drive: Drive, options: Options, progress: impl FnMut(u64, u64)) -> Result<ChunkStore> {
        Self::salvage_as(drive, options, Relabel::No, progress)
    }

    /// The same of a drive that may have lost both copies of its label, too: with `how` a new one is written first, from what the zones say,
    /// to where the lost ones stood ([`OpenReport::relabelled`]). Zones that are not this store's, and are not empty, stay as they
    /// are; other engines get theirs back. If the metazones are whole, everything is as it was; else every zone is read. A salvage that did not
    /// come to its end is begun again: until then the store does not open.
    ///
    /// ```
    /// # use imbrex_chunkstore::{ChunkId, ChunkStore, FormatOptions, Options, Relabel, StreamType};
    /// # let emulator = imbrex_emulator::Emulator::memory(&imbrex_emulator::Config::tiny())?;
    /// # let drive = || imbrex_device::Drive { device: std::sync::Arc::new(emulator.clone()), survivor: None };
    /// # ChunkStore::format(&drive(), &FormatOptions::default())?;
    /// # let id = ChunkId::random();
    /// # let store = ChunkStore::open(drive(), Options::default())?;
    /// # store.create(id, StreamType::DATA)?;
    /// # store.append(id, b"bytes")?;
    /// # drop(store);
    /// emulator.faults().flip_bits(16, 1)?; // A label stands at the beginning of the first zone,
    /// emulator.faults().flip_bits((1 << 20) + 16, 1)?; // and of the second.
    /// assert!(ChunkStore::open(drive(), Options::default()).is_err());
    /// let store = ChunkStore::salvage_as(drive(), Options::default(), Relabel::Only, |_done, _all| {})?;
    /// assert_eq!(store.stat(id)?.len, 5);
    /// assert_eq!(store.open_report().relabelled.map(|new| new.kept), Some(0));
    /// # Ok::<(), imbrex_chunkstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ChunkStore::salvage`]; `Unusable` with a whole sentence where the label is lost and `how` does not allow for a new one, where zones of
    /// several stores are there and `how` does not say which, and where no label can be written without risk.
    pub fn salvage_as(
        drive: Drive,
        options: Options,
        how: Relabel,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<ChunkStore> {
        Self::open_drive(drive, options, Some(how), &mut |_, done, all| progress(done, all))
    }

    /// Opens the store of a tenant (named [`TENANT`]) of a volume that is open already, which may have other tenants. Once: to open it
    /// again the volume has to be opened anew.
    ///
    /// # Errors
    /// Those of [`ChunkStore::open`]; `Unusable`, too, where the tenant has been opened on this volume before.
    pub fn open_tenant(tenant: Tenant, options: Options) -> Result<ChunkStore> {
        Shell::open_tenant(tenant, options.into()).map(|core| ChunkStore { core })
    }

    fn open_drive(drive: Drive, options: Options, salvage: Option<Relabel>, progress: Progress) -> Result<ChunkStore> {
        let mut opening = Opening { salvage, relabelled: None, progress };
        Shell::open_drive(drive, options.into(), false, &mut opening).map(|core| ChunkStore { core })
    }

    /// Opens the store of a drive that a URI names, or hands out the one that this process has open (then with the options of the
    /// first). Another engine of this process may have the same drive by its name, `imbrex_bluefs`' for one. The drive is let go of when
    /// the last clone of all is gone; a store that was closed before that can be opened again only then. With `read-only=on` the drive stays as it is, also where there
    /// is something to recover: changes are kept in memory, and forgotten. A drive in memory formats itself, and so does with
    /// `format=on` one that is not formatted.
    ///
    /// ```
    /// use imbrex_chunkstore::{ChunkId, ChunkStore, StreamType};
    /// let store = ChunkStore::open_uri("imbrex://mem:?profile=tiny&chunk-limit=512K")?;
    /// let id = ChunkId::random();
    /// store.create(id, StreamType::DATA)?;
    /// store.append(id, b"bytes")?;
    /// assert_eq!(store.list(None, 10).len(), 1);
    /// assert_eq!(store.space().live, 5);
    /// assert!(store.space().free > 20 << 20);
    /// # Ok::<(), imbrex_chunkstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Drive`]: `Unusable` with a whole sentence where the URI makes no sense for this drive, and those of
    /// [`ChunkStore::open`].
    pub fn open_uri(uri: &str) -> Result<ChunkStore> {
        Self::open_uri_with(uri, &[])
    }

    /// The same with options, as `("read-only", "on")`, that count where the URI does not give them; errors show the URI without.
    ///
    /// # Errors
    /// Those of [`ChunkStore::open_uri`].
    pub fn open_uri_with(uri: &str, more: &[(&str, &str)]) -> Result<ChunkStore> {
        Self::open_uri_watched(uri, more, |_, _, _| {})
    }

    /// Whether a URI and options make sense for its drive, before anything is done to that.
    ///
    /// # Errors
    /// [`Error::Drive`]: `Misuse` with a whole sentence.
    pub fn check_uri(uri: &str, more: &[(&str, &str)], drive: &Drive) -> Result<()> {
        Shell::<Core>::check_uri(uri, more, drive)
    }

    /// The same; `progress` hears what recovery is doing, and how many of how many zones are done.
    ///
    /// # Errors
    /// Those of [`ChunkStore::open_uri`].
    pub fn open_uri_watched(
        uri: &str,
        more: &[(&str, &str)],
        mut progress: impl FnMut(OpenStep, u64, u64),
    ) -> Result<ChunkStore> {
        Self::open_named(uri, more, None, &mut progress)
    }

    /// [`ChunkStore::salvage_as`] of a drive that a URI names and that this process does not have open.
    ///
    /// ```
    /// # use imbrex_chunkstore::{ChunkStore, Relabel};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("drive.img");
    /// # drop(imbrex_emulator::Emulator::create(&path, &imbrex_emulator::Config::tiny(), false)?);
    /// # let uri = format!("imbrex://{}?format=on", path.display());
    /// drop(ChunkStore::open_uri(&uri)?);
    /// let store = ChunkStore::salvage_uri(&uri, &[], Relabel::No, |_step, _done, _all| {})?;
    /// assert!(ChunkStore::salvage_uri(&uri, &[], Relabel::No, |_, _, _| {}).is_err(), "it is open");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ChunkStore::salvage_as`]; `Busy` where this process has the store open.
    pub fn salvage_uri(
        uri: &str,
        more: &[(&str, &str)],
        how: Relabel,
        mut progress: impl FnMut(OpenStep, u64, u64),
    ) -> Result<ChunkStore> {
        Self::open_named(uri, more, Some(how), &mut progress)
    }

    fn open_named(
        uri: &str,
        more: &[(&str, &str)],
        salvage: Option<Relabel>,
        progress: Progress,
    ) -> Result<ChunkStore> {
        let mut opening = Opening { salvage, relabelled: None, progress };
        Shell::open_uri(uri, more, &mut opening).map(|core| ChunkStore { core })
    }
    /// What opening found.
    pub fn open_report(&self) -> &OpenReport {
        &self.core.report
    }

    /// Makes a chunk, durably.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSuchStream`], [`Error::IndexFull`], [`Error::Drive`].
    pub fn create(&self, id: ChunkId, stream: StreamType) -> Result<()> {
        self.create_with(id, stream, Durability::Durable)
    }

    /// Makes a chunk.
    ///
    /// # Errors
    /// Those of [`ChunkStore::create`].
    pub fn create_with(&self, id: ChunkId, stream: StreamType, durability: Durability) -> Result<()> {
        self.core.counters.meter.measure(Operation::Create, |()| 0, || self.core.create(id, stream, durability))
    }

    /// Appends bytes durably; returns the offset of the first. All of them are there after a crash, or none.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Sealed`], [`Error::Limit`], [`Error::TooLong`], [`Error::Empty`],
    /// [`Error::TooManyRecords`], [`Error::IndexFull`]; [`Error::Drive`], after which the bytes may be there or not.
    pub fn append(&self, id: ChunkId, bytes: &[u8]) -> Result<u64> {
        self.append_with(id, bytes, Append::default())
    }

    /// Appends bytes, where the chunk ends at the expected offset. Appends of several threads to one chunk come in some order.
    ///
    /// # Errors
    /// [`Error::Offset`], and those of [`ChunkStore::append`].
    pub fn append_with(&self, id: ChunkId, bytes: &[u8], how: Append) -> Result<u64> {
        self.core.counters.meter.measure(Operation::Append, |_| bytes.len() as u64, || self.core.append(id, bytes, how))
    }

    /// Reads from `offset` on, verified; returns how many bytes there were: less than asked for only at the chunk's end.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Range`], [`Error::Damaged`], [`Error::Drive`].
    pub fn read(&self, id: ChunkId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.core.counters.meter.measure(
            Operation::Read,
            |n| *n as u64,
            || self.core.read(id, offset, out, Care::Verify),
        )
    }

    /// The same, but damaged slices are given out as they are, and zeros for what cannot be read at all.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Range`], [`Error::Drive`].
    pub fn rescue_read(&self, id: ChunkId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.core.counters.meter.measure(
            Operation::Read,
            |n| *n as u64,
            || self.core.read(id, offset, out, Care::Rescue),
        )
    }

    /// The chunk takes no more appends, durably. Returns its length. Sealing it again changes nothing.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Drive`].
    pub fn seal(&self, id: ChunkId) -> Result<u64> {
        self.seal_with(id, Durability::Durable)
    }

    /// The same, with a choice of when it returns.
    ///
    /// # Errors
    /// Those of [`ChunkStore::seal`].
    pub fn seal_with(&self, id: ChunkId, durability: Durability) -> Result<u64> {
        self.core.counters.meter.measure(Operation::Seal, |_| 0, || self.core.seal(id, durability))
    }

    /// The chunk is gone, durably; its id may be used again.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Drive`].
    pub fn delete(&self, id: ChunkId) -> Result<()> {
        self.delete_with(id, Durability::Durable)
    }

    /// The same, with a choice of when it returns.
    ///
    /// # Errors
    /// Those of [`ChunkStore::delete`].
    pub fn delete_with(&self, id: ChunkId, durability: Durability) -> Result<()> {
        self.core.counters.meter.measure(Operation::Delete, |()| 0, || self.core.delete(id, durability))
    }

    /// What a chunk is.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn stat(&self, id: ChunkId) -> Result<ChunkInfo> {
        let state = self.core.state();
        let chunk = state.index.find(&id).and_then(|slot| state.index.chunk(slot));
        chunk.map(info).ok_or(Error::NotFound(id))
    }

    /// The next `most` chunks behind `after` by id, from the first where that is none.
    pub fn list(&self, after: Option<ChunkId>, most: usize) -> Vec<ChunkInfo> {
        self.core.state().index.range(after.as_ref()).take(most).map(info).collect()
    }

    /// Makes everything durable that has returned.
    ///
    /// # Errors
    /// [`Error::Drive`]; `NoSpace` where a zone has died and there is no other place for what waits in memory for it: all else is durable then.
    pub fn sync(&self) -> Result<()> {
        let target = self.core.state().decisions.last();
        let sync = || self.core.commit_bytes(target, State::has_stranded);
        self.core.counters.meter.measure(Operation::Sync, |()| 0, sync)
    }

    /// Writes everything that has returned, and does not wait until it is durable: [`PendingSync::finish`] does. Meanwhile others write, and may sync.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn begin_sync(&self) -> Result<PendingSync<'_>> {
        let core = &*self.core;
        let target = core.state().decisions.last();
        Ok(PendingSync { core, target, group: core.write_group(core.commits.lead())? })
    }

    /// Makes durable what has been appended to a chunk, and that it was created; other chunks' bytes may be, too. With the drive's write
    /// cache off only their zones are written, where [`ChunkStore::sync`] writes all.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Drive`].
    pub fn sync_chunk(&self, id: ChunkId) -> Result<()> {
        let (slot, serial, len, target) = {
            let state = self.core.state();
            let slot = state.index.find(&id).ok_or(Error::NotFound(id))?;
            let chunk = state.index.chunk(slot).ok_or(Error::NotFound(id))?;
            (slot, chunk.serial, chunk.len, state.decisions.last())
        };
        let sync = || self.core.make_durable(slot, serial, len, target);
        self.core.counters.meter.measure(Operation::Sync, |()| 0, sync)
    }

    /// Most bytes that a chunk of this kind of stream takes; 0: there is no such kind.
    pub fn chunk_limit(&self, stream: StreamType) -> u32 {
        self.core.limit(stream)
    }

    /// Other limits.
    pub fn limits(&self) -> Limits {
        Limits { append: self.core.limits.most_append, records: self.core.limits.most_records }
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// The volume that it is on.
    pub fn volume(&self) -> &Volume {
        &self.core.volume
    }

    /// Writes a whole checkpoint now.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn checkpoint(&self) -> Result<()> {
        let target = self.core.state().assign();
        self.core.commit(target)?;
        let mut guard = self.core.commits.lead();
        // The one that is under way knows less.
        guard.log().abandon_snapshot();
        self.core.checkpoint_whole(&mut guard)
    }

    /// Does one piece of background work: a piece of the checkpoint that is under way, a burst of [cleaning](Options::max_slowdown) if that is
    /// due, or a piece of the volume's. False: there was nothing to do.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn step(&self) -> Result<bool> {
        self.core.step()
    }

    /// Begins a checkpoint, unless one is under way; commits and [`ChunkStore::step`]s write it piece by piece.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn begin_checkpoint(&self) -> Result<()> {
        self.core.checkpoint_begin(&mut self.core.commits.lead())
    }

    /// Cleans now: moves about `most` bytes out of zones that the drive does not let be written any more, then out of those that are
    /// most worth it. Returns how many were moved; 0: there is nothing to gain.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn clean(&self, most: u64) -> Result<u64> {
        self.core.patrol()?;
        self.core.cleaner.clean(&*self.core, Goal::Ahead, most).map(|done| done.moved)
    }

    /// Asks the drive how its zones are, which is done every minute where there are threads. Zones that have turned read-only are
    /// drained next, in the background or by [`ChunkStore::clean`]; what stood in those that are offline is [lost](ChunkStore::lost).
    /// Returns the numbers of zones that it found so for the first time.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn patrol(&self) -> Result<Vec<u32>> {
        self.core.patrol()
    }

    /// Compares every record with the index, and every slice with its checksum. `progress` hears how many of how many chunks are
    /// done. What others delete meanwhile is passed over.
    ///
    /// # Errors
    /// [`Error::Drive`], for what is no damage.
    pub fn check(&self, progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        self.core.check(progress)
    }

    /// Verifies about `most` bytes of the chunks behind `after` by id: the next step of a scrub, which may be gone on with at
    /// any time, also after opening the store again.
    ///
    /// # Errors
    /// [`Error::Drive`], for what is no damage.
    pub fn scrub(&self, after: Option<ChunkId>, most: u64) -> Result<ScrubStep> {
        self.core.scrub(after, most)
    }

    /// Goes on with the scrub of the background: verifies about `most` bytes from where it is, and marks what is damaged. Position and
    /// marks are kept in checkpoints, so it goes on there when the store is opened again. `next`: where it is then; `None`: all
    /// chunks have been verified, and the next call begins anew.
    ///
    /// # Errors
    /// [`Error::Drive`], for what is no damage.
    pub fn scrub_on(&self, most: u64) -> Result<ScrubStep> {
        let (bytes, problems, over) = self.core.scrub_on(most)?;
        let next = self.scrubbed().next.filter(|_| !over);
        Ok(ScrubStep { next, bytes, problems })
    }

    /// How far the scrub in the background is, and what it has marked.
    pub fn scrubbed(&self) -> Scrubbed {
        self.core.scrubbed()
    }

    /// Makes everything durable and writes a checkpoint, so that the next opening has nothing to recover; nothing is done in the
    /// background any more. Whoever still has a clone may go on.
    ///
    /// # Errors
    /// [`Error::Drive`].
    pub fn close(&self) -> Result<()> {
        self.core.end_background();
        // Also where some bytes have no place: all others are kept.
        let synced = self.sync();
        self.core.reset_garbage(true);
        self.checkpoint()?;
        synced
    }
}

fn info(chunk: &Chunk) -> ChunkInfo {
    ChunkInfo {
        id: chunk.id,
        stream: chunk.stream,
        len: chunk.len,
        sealed: chunk.sealed,
        records: chunk.records() as u32,
        zones: chunk.groups().len() as u32,
    }
}
