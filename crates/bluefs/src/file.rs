//! Open files: what they share with the streams that write them, and how bytes become durable.
//!
//! [`FileState`] is shared by everybody; [`File`] is what handles hold: when the last handle goes, the stream is ended and,
//! if the file has no name any more, its space is given up. A stream's placer holds only the state, so that a writer thread
//! never is the last to let go of a [`File`].

use crate::core::Core;
use crate::error::{Code, Result};
use crate::kind::{FileKind, Purpose};
use crate::log::LogIndex;
use crate::meta::inline::Inline;
use crate::meta::{Extent, FreedPlace, OPEN, Place, Record, Serial};
use crate::share::Class;
use imbrex_device::{Cause, Fault, Priority, Tag, ZoneId};
use imbrex_zones::cache::{Filling, Views};
use imbrex_zones::{
    AppendStream, Framing, NewZone, OpenZone, Placed, Placer, StreamSpec, StreamStart, Urgency, ZoneHeader,
};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest of the lifetimes that applications tell: RocksDB's last levels.
const EXTREME: u8 = 5;

/// Where a file's bytes are, for readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileMap {
    /// Changes whenever bytes that were readable change or move.
    pub(crate) version: u64,
    pub(crate) extents: Vec<Extent>,
    /// The last block that was written in place and not to its end: its address, and what stands there. Whoever appends need not
    /// read it back. Only while the address is the file's.
    pub(crate) tail: Option<(u64, Vec<u8>)>,
}

impl FileMap {
    /// The file's bytes are in these places from now on.
    pub(crate) fn set_extents(&mut self, extents: Vec<Extent>) {
        let holds = |at: u64, extent: &Extent| extent.conventional().is_some_and(|(a, len)| a <= at && at < a + len);
        self.tail = self.tail.take().filter(|(at, _)| extents.iter().any(|extent| holds(*at, extent)));
        self.extents = extents;
    }
}

/// What readers, writers and the placer of one file share.
pub(crate) struct FileState {
    pub(crate) serial: Serial,
    pub(crate) kind: FileKind,
    pub(crate) purpose: Purpose,
    /// The directory that it was opened in: write-ahead logs of one directory are in order.
    pub(crate) parent: Serial,
    /// Its name when it was opened, for zone headers and messages.
    pub(crate) name: String,
    /// Logical size, unwritten bytes included.
    pub(crate) size: AtomicU64,
    /// Bytes below this are on the drive.
    pub(crate) placed: AtomicU64,
    /// Bytes below this are durable.
    pub(crate) durable: AtomicU64,
    /// What the application says of its lifetime; see [`Class`].
    pub(crate) hint: AtomicU8,
    /// Bytes that the application says it will have.
    pub(crate) expected: AtomicU64,
    /// Sequence number of the last journal record about it.
    pub(crate) lsn: AtomicU64,
    pub(crate) modified: AtomicU64,
    pub(crate) map: RwLock<FileMap>,
    /// Its bytes in inline space, also when the metadata has forgotten the file: readers look here.
    pub(crate) inline: Mutex<Inline>,
    pub(crate) log: Mutex<LogIndex>,
    /// The page of the cache that a table's end is being written to.
    pub(crate) filling: Mutex<Filling>,
    /// Bytes were overwritten or cut since it was opened: what readers hold of it is not what it is any more.
    pub(crate) rewritten: AtomicBool,
    /// Space of a file without a name, given up with the last handle; `None`: it has a name.
    pub(crate) orphan: Mutex<Option<Vec<FreedPlace>>>,
    /// Zones that a file without a name shares with others: they are not reset before it is closed.
    pub(crate) pinned: Mutex<Vec<u32>>,
}

impl FileState {
    pub(crate) fn map(&self) -> std::sync::RwLockReadGuard<'_, FileMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn map_mut(&self) -> std::sync::RwLockWriteGuard<'_, FileMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn is_orphan(&self) -> bool {
        lock(&self.orphan).is_some()
    }
    /// Whether it still has bytes up to `to` that can be read where it stands: it was not cut meanwhile.
    pub(crate) fn reaches(&self, to: u64) -> bool {
        let end = if self.kind == FileKind::Random { &self.size } else { &self.placed };
        end.load(Ordering::Acquire) >= to
    }
    pub(crate) fn class(&self) -> Class {
        Class::of(self.kind, self.purpose, self.hint.load(Ordering::Relaxed))
    }
}

/// What keeps the write-ahead logs of a directory in order: a log's bytes may become durable only after its predecessor's.
pub(crate) struct WalTail {
    pub(crate) stream: Arc<AppendStream>,
    state: Arc<FileState>,
    before: Arc<Before>,
}

/// The log that must be durable before another one. Shared by whoever asks for it: a deleted log is left out for all of them, or those
/// that were deleted before they were written would be held by the next one for ever, each by the one behind it.
#[derive(Default)]
pub(crate) struct Before(Mutex<Option<Arc<WalTail>>>);

impl Before {
    fn get(&self) -> Option<Arc<WalTail>> {
        let mut gone = Vec::new();
        let mut slot = lock(&self.0);
        while let Some(deleted) = slot.take_if(|tail| tail.state.is_orphan()) {
            slot.clone_from(&lock(&deleted.before.0));
            gone.push(deleted);
        }
        let before = slot.clone();
        // Who is let go of may be the last to hold a stream: without a lock.
        drop(slot);
        before
    }

    fn is_none(&self) -> bool {
        lock(&self.0).is_none()
    }

    /// It is durable.
    fn clear(&self) {
        let before = lock(&self.0).take();
        drop(before);
    }
}

impl WalTail {
    /// Whether nobody has to wait for it any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.is_orphan()
            || (self.state.durable.load(Ordering::Acquire) >= self.stream.len() && self.before.is_none())
    }

    /// Lets go of the logs before it that were deleted.
    pub(crate) fn forget_deleted(&self) {
        self.before.get();
    }

    /// Makes everything that was appended to this log, and to those before it, durable.
    fn ensure_durable(&self, core: &Core) -> imbrex_device::Result<()> {
        if let Some(before) = self.before.get() {
            before.ensure_durable(core)?;
            self.before.clear();
        }
        let end = self.stream.len();
        if self.state.is_orphan() || self.state.durable.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        if !self.stream.is_abandoned()
            && let Err(error) = self.stream.drain(Priority::Normal)
        {
            // It was deleted meanwhile: then nobody has to wait for it.
            return if self.state.is_orphan() { Ok(()) } else { Err(error) };
        }
        core.volume.sync(Tag::new(Cause::Wal))?;
        self.state.durable.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Writing {
    pub(crate) stream: Option<Arc<AppendStream>>,
    pub(crate) wal: Option<Arc<WalTail>>,
    pub(crate) cause: Option<Cause>,
    /// Open for writing so many times.
    pub(crate) writers: u32,
    /// Bytes were written in place (conventional space) since the last sync.
    pub(crate) dirty: bool,
}

/// An open file.
pub(crate) struct File {
    /// Itself, for who reads ahead.
    pub(crate) me: Weak<File>,
    pub(crate) state: Arc<FileState>,
    pub(crate) core: Arc<Core>,
    pub(crate) writing: Mutex<Writing>,
    /// For readers, without the writers' lock.
    pub(crate) stream: RwLock<Option<Arc<AppendStream>>>,
    /// The log that the file went on as; see [`grow`](crate::grow).
    pub(crate) successor: OnceLock<Arc<File>>,
    /// What readers hold of it in memory; made when the first asks for it.
    pub(crate) views: OnceLock<Views>,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(stream) = lock(&self.writing).stream.take() {
            // What could not be written until now, at unmount, is written by the next mount.
            if self.state.is_orphan() { stream.abandon() } else { stream.leave() }
        }
        let _ = self.core.unpin(&std::mem::take(&mut *lock(&self.state.pinned)));
        // It stays a file without a name, for the streams that know it.
        let places = lock(&self.state.orphan).as_mut().map(std::mem::take);
        if let Some(places) = places {
            self.core.forget_pages_of(self.state.serial, self.state.size.load(Ordering::Acquire));
            self.core.give_up(places, self.state.lsn.load(Ordering::Acquire));
        }
    }
}

impl File {
    pub(crate) fn stream(&self) -> Option<Arc<AppendStream>> {
        self.stream.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_stream(&self, writing: &mut Writing, stream: Option<Arc<AppendStream>>) {
        *self.stream.write().unwrap_or_else(PoisonError::into_inner) = stream.clone();
        writing.stream = stream;
    }

    pub(crate) fn drop_stream(&self, writing: &mut Writing) {
        self.set_stream(writing, None);
    }

    fn default_cause(&self) -> Cause {
        match self.state.purpose {
            Purpose::Wal => Cause::Wal,
            Purpose::Manifest => Cause::Manifest,
            Purpose::InfoLog => Cause::InfoLog,
            Purpose::Table | Purpose::Blob => Cause::Flush,
            _ if self.state.kind == FileKind::Random => Cause::Small,
            _ => Cause::UserWrite,
        }
    }

    /// Appends at the end of the file.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut writing = lock(&self.writing);
        if let Some(next) = self.successor.get() {
            drop(writing);
            return next.append(bytes);
        }
        if !self.state.kind.is_sequential() {
            let at = self.state.size.load(Ordering::Acquire);
            let why = match self.write_in_place(&mut writing, at, bytes) {
                Err(why) if why.code() == Code::NoSpace && self.can_go_on_as_log(&writing) => why,
                other => return other,
            };
            let next = match self.go_on_as_log(&mut writing) {
                Err(error) if error.code() == Code::NoSpace => return Err(why),
                other => other?,
            };
            drop(writing);
            return next.append(bytes);
        }
        let stream = match &writing.stream {
            Some(stream) => stream.clone(),
            None => self.start_stream(&mut writing)?,
        };
        let result = stream.append(bytes);
        self.state.size.store(stream.len(), Ordering::Release);
        result?;
        if self.core.options.wal.unbuffered && self.state.purpose == Purpose::Wal {
            stream.drain(Priority::Normal)?;
        }
        Ok(())
    }

    fn start_stream(&self, writing: &mut Writing) -> Result<Arc<AppendStream>> {
        let core = &self.core;
        let state = &self.state;
        let size = state.size.load(Ordering::Acquire);
        let (segment_bytes, segments) = core.segment_sizes(state.purpose, state.kind);
        let spec = StreamSpec {
            file: state.serial,
            life: 0,
            framing: match state.kind {
                FileKind::Log => Framing::Framed { max_frame: 0 },
                _ => Framing::Raw,
            },
            segment_bytes,
            segments,
            cause: writing.cause.unwrap_or_else(|| self.default_cause()),
            ordered: state.kind == FileKind::Log,
            // What is in memory fits into as many zones, whatever becomes of the one that is open.
            patient: match state.purpose {
                Purpose::Wal if core.logs_wait() => PATIENT_ZONES * (zone_room(core) as usize / segment_bytes),
                _ => 0,
            },
            journal: false,
        };
        let zone = if size > 0 { core.open_zone_of(state) } else { None };
        let start = StreamStart { logical: size, zone, sequence: 0 };
        let before = match state.purpose {
            Purpose::Wal if !state.is_orphan() => core.wal_before(state)?,
            _ => None,
        };
        let before = Arc::new(Before(Mutex::new(before)));
        let placer = Arc::new(FilePlacer {
            core: Arc::downgrade(core),
            state: state.clone(),
            before: before.clone(),
            patient: spec.patient > 0,
            promised: AtomicU32::new(0),
            promised_room: AtomicBool::new(false),
            going_on: Mutex::new(zone.map(|open| open.zone.0)),
        });
        let stream = Arc::new(AppendStream::new(&core.tenant, spec, start, placer));
        if state.purpose == Purpose::Wal {
            let tail = WalTail { stream: stream.clone(), state: state.clone(), before };
            let tail = Arc::new(tail);
            core.note_wal(state, &tail);
            if spec.patient > 0 && !core.logs_wait() {
                // Somebody synced one just now, and did not know of this one.
                stream.hurry();
            }
            writing.wal = Some(tail);
        }
        self.set_stream(writing, Some(stream.clone()));
        Ok(stream)
    }

    /// Makes everything durable that was appended or written before the call, and the file's name with it.
    pub(crate) fn sync(&self) -> Result<()> {
        let core = &self.core;
        let state = &self.state;
        let (stream, dirty) = {
            let mut writing = lock(&self.writing);
            (writing.stream.clone(), std::mem::take(&mut writing.dirty))
        };
        let end = state.size.load(Ordering::Acquire);
        if state.purpose == Purpose::Wal && state.durable.load(Ordering::Acquire) < end {
            core.note_synced_log();
        }
        let result = (|| {
            if dirty {
                // In place: the bytes first, then the size that lets them be seen after a power loss.
                core.volume.sync(Tag::new(Cause::Small).at(Priority::High))?;
            }
            if let Some(stream) = &stream {
                stream.drain(Priority::High)?;
            }
            let longer = !state.is_orphan() && state.durable.load(Ordering::Acquire) < end;
            if core.options.wal.unprepared && state.purpose == Purpose::Wal && state.kind == FileKind::Log && longer {
                core.volume.sync(Tag::new(Cause::Wal).at(Priority::High))?;
                core.log_about(state, &[Record::Times { serial: state.serial, modified: core.now() }])?;
            }
            let needs_size = state.kind != FileKind::Log && state.durable.load(Ordering::Acquire) < end;
            if needs_size && !state.is_orphan() {
                let size = Record::Size { serial: state.serial, size: end, time: core.now(), volatile: false };
                core.log_about(state, &[size])?;
            }
            let lsn = state.lsn.load(Ordering::Acquire);
            let metadata = !state.is_orphan() && lsn > core.durable_lsn();
            if metadata {
                core.sync_journal()?;
            } else if state.durable.load(Ordering::Acquire) < end {
                let cause = self.default_cause();
                core.volume.sync(Tag::new(cause).at(Priority::High))?;
            }
            state.durable.fetch_max(end, Ordering::AcqRel);
            Ok(())
        })();
        if result.is_err() && dirty {
            lock(&self.writing).dirty = true;
        }
        result
    }

    /// One writer less. The last one writes what is buffered and fixes the size; where that fails, the file stays open without
    /// a handle until it succeeds ([`Core::finish_kept`]).
    pub(crate) fn close_writer(self: &Arc<Self>) -> Result<()> {
        let mut writing = lock(&self.writing);
        writing.writers = writing.writers.saturating_sub(1);
        if writing.writers > 0 {
            return Ok(());
        }
        if let Some(stream) = writing.stream.as_ref().filter(|stream| stream.is_patient())
            && stream.placed() < stream.len()
            && self.core.logs_wait()
        {
            // Most logs are closed just before they are deleted. One without a name goes with its last handle.
            stream.seal();
            drop(writing);
            if !self.state.is_orphan() {
                self.core.keep_waiting(self.clone());
            }
            return Ok(());
        }
        let result = self.finish(&mut writing);
        drop(writing);
        if result.is_err() && !self.state.is_orphan() {
            self.core.keep(self.clone());
        }
        result
    }

    /// Whether a closed log is on the drive as a whole, or deleted.
    pub(crate) fn waits_no_more(&self) -> bool {
        self.state.is_orphan() || self.stream().is_none_or(|stream| stream.placed() >= stream.len())
    }

    /// Writes what is buffered and fixes the size in the journal.
    pub(crate) fn finish(&self, writing: &mut Writing) -> Result<()> {
        let state = &self.state;
        let Some(stream) = writing.stream.clone() else {
            // In place: the size becomes final only with a sync, so that a power loss cannot show bytes that were never
            // written.
            return Ok(());
        };
        if !state.is_orphan() {
            stream.drain(Priority::Normal)?;
            let size = stream.len();
            self.core.cache.end(&mut lock(&state.filling), state.serial);
            let seal = Record::Seal { serial: state.serial, size, time: self.core.now() };
            self.core.log_about(state, &[seal])?;
            self.core.refresh(state);
            if let Some(open) = stream.give_back() {
                self.core.park(state, open);
            }
        } else {
            stream.drain(Priority::Normal)?;
            if let Some(open) = stream.give_back() {
                self.core.tenant.finish(open.zone);
            }
        }
        self.set_stream(writing, None);
        Ok(())
    }

    /// Ends the stream and drops what is not on the drive: the file ends there and has no writer.
    pub(crate) fn give_up_unwritten(&self, writing: &mut Writing) -> Result<()> {
        let state = &self.state;
        if let Some(stream) = writing.stream.clone() {
            stream.abandon();
            let size = stream.placed();
            let seal = Record::Seal { serial: state.serial, size, time: self.core.now() };
            self.core.log_about(state, &[seal])?;
            self.core.refresh(state);
            state.size.store(size, Ordering::Release);
            self.set_stream(writing, None);
        }
        writing.writers = 0;
        Ok(())
    }

    /// Sets what the file's writes are for.
    pub(crate) fn set_cause(&self, cause: Cause) {
        let mut writing = lock(&self.writing);
        writing.cause = Some(cause);
        if let Some(stream) = &writing.stream {
            stream.set_cause(cause);
        }
    }
}

/// Zones that a write-ahead log waiting in memory may need at most: RocksDB's are somewhat longer than a memtable, for which a zone is a
/// good size.
const PATIENT_ZONES: usize = 2;
/// Zones beyond the reserve that must be free besides, or logs do not wait.
const PLENTY: u32 = 8;

/// Bytes of a file that an empty zone takes.
fn zone_room(core: &Core) -> u64 {
    core.zone_capacity.saturating_sub(core.front)
}

/// Gives a file's stream its zones and records where its bytes are.
struct FilePlacer {
    core: Weak<Core>,
    state: Arc<FileState>,
    before: Arc<Before>,
    /// Whether the stream was made to wait.
    patient: bool,
    /// Zones that are promised to what is in memory.
    promised: AtomicU32,
    /// Room in a zone with other files is.
    promised_room: AtomicBool,
    /// The zone that the stream is to go on in, before metadata says so: nobody else may clean it.
    going_on: Mutex<Option<u32>>,
}

impl Drop for FilePlacer {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else { return };
        self.unpin(&core);
        self.release_promises(&core);
    }
}

impl FilePlacer {
    fn release_promises(&self, core: &Core) {
        for _ in 0..self.promised.swap(0, Ordering::AcqRel) {
            core.tenant.promise_over();
        }
        if self.promised_room.swap(false, Ordering::AcqRel) {
            lock(&core.parking).promise_over(self.state.serial);
        }
    }

    fn unpin(&self, core: &Core) {
        if let Some(zone) = lock(&self.going_on).take() {
            let _ = core.unpin(&[zone]);
        }
    }

    fn core(&self) -> imbrex_device::Result<Arc<Core>> {
        let gone = || imbrex_device::Error::invalid(&"bluefs".into(), "the file system was closed");
        self.core.upgrade().ok_or_else(gone)
    }

    fn place(&self, zone: ZoneId, life: u64, offset: u64) -> Place {
        match self.state.kind {
            FileKind::Log => Place::Framed { zone: zone.0, life, offset },
            _ => Place::Raw { zone: zone.0, life, offset },
        }
    }

    /// What tells, in the zone itself, whose the bytes behind it are.
    fn header(&self, core: &Core, zone: ZoneId, life: u64, logical: u64) -> ZoneHeader {
        ZoneHeader {
            volume: core.volume.uuid(),
            owner: core.tenant.owner(),
            kind: self.state.kind as u8,
            file: self.state.serial,
            life,
            logical,
            created: core.now(),
            zone: zone.0,
            mount: core.volume.mount() as u32,
            name: self.state.name.clone(),
        }
    }

    /// Room behind the bytes of other files, if there is any for this one.
    fn shared_zone(
        &self,
        core: &Core,
        logical: u64,
        need: u64,
        crowded: bool,
    ) -> imbrex_device::Result<Option<NewZone>> {
        let make = |open: &OpenZone| Record::Extend {
            serial: self.state.serial,
            extent: Extent { logical, len: OPEN, place: self.place(open.zone, open.life, open.at + core.front) },
        };
        let taken = core.take_room(&self.state, need, crowded, make).map_err(|e| core.device_error(&e))?;
        let Some(open) = taken else { return Ok(None) };
        core.refresh(&self.state);
        self.promised_room.store(false, Ordering::Release);
        // What is in memory fits in there; but more may wait than this room holds.
        if !self.patient && self.promised.swap(0, Ordering::AcqRel) > 0 {
            core.tenant.promise_over();
        }
        let header = self.header(core, open.zone, open.life, logical);
        Ok(Some(NewZone { zone: open.zone, at: open.at, header }))
    }

    fn extend(&self, core: &Core, extent: Extent) -> imbrex_device::Result<()> {
        let record = Record::Extend { serial: self.state.serial, extent };
        match core.log_unless_orphan(&self.state, &[record]) {
            Ok(true) => {
                core.refresh(&self.state);
                Ok(())
            }
            Ok(false) => {
                // Nobody will find it again: only this process has to know, and the journal that it is nobody's.
                if let Some((zone, life)) = extent.place.zone() {
                    core.log_freed(&self.state.name, zone, life).map_err(|e| core.device_error(&e))?;
                }
                let mut map = self.state.map_mut();
                let known = map.extents.iter().any(|e| e.place.zone() == extent.place.zone());
                if let Some(last) = map.extents.last_mut().filter(|e| e.len == OPEN) {
                    last.len = extent.logical - last.logical;
                }
                map.extents.retain(|e| e.len > 0);
                map.extents.push(extent);
                let mut orphan = lock(&self.state.orphan);
                if let (Some((zone, life)), Some(places), false) = (extent.place.zone(), orphan.as_mut(), known) {
                    let place = FreedPlace::Zone { zone, life };
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
                Ok(())
            }
            Err(error) => Err(core.device_error(&error)),
        }
    }
}

impl Placer for FilePlacer {
    fn before_write(&self) -> imbrex_device::Result<()> {
        if let Some(before) = self.before.get() {
            before.ensure_durable(&*self.core()?)?;
            self.before.clear();
        }
        Ok(())
    }

    fn reserve(&self, bytes: u64, patient: bool) -> imbrex_device::Result<()> {
        let core = self.core()?;
        // What a dead process was promised is taken as far as there is room: a mount must not fail for it.
        if core.recovering.load(Ordering::Acquire) {
            return Ok(());
        }
        if patient {
            let zones = bytes.div_ceil(zone_room(&core).max(1));
            // Only where there is plenty: nothing is cleaned for what will probably be deleted.
            while u64::from(self.promised.load(Ordering::Acquire)) < zones {
                core.tenant.promise(PLENTY)?;
                self.promised.fetch_add(1, Ordering::AcqRel);
            }
            return Ok(());
        }
        if self.promised.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        let new_wal = self.state.purpose == Purpose::Wal && self.state.map().extents.is_empty();
        let mut result = core.promise_zone(new_wal);
        if result.is_err() && core.write_waiting() {
            // Logs that wait are promised more than they take.
            result = core.promise_zone(new_wal);
        }
        match result {
            Ok(()) => drop(self.promised.fetch_add(1, Ordering::AcqRel)),
            Err(error) => {
                let (segment, _) = core.segment_sizes(self.state.purpose, self.state.kind);
                let need = core.front + bytes + segment as u64;
                if !core.promise_room(&self.state, need) {
                    return Err(error);
                }
                self.promised_room.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    fn next_zone(&self, logical: u64, need: u64) -> imbrex_device::Result<NewZone> {
        let core = self.core()?;
        if self.state.kind == FileKind::Table {
            core.clean_ahead();
        }
        if let Some(open) = self.shared_zone(&core, logical, need, false)? {
            return Ok(open);
        }
        // Where few zones may be active, files share them before any is finished early.
        if core.options.share && core.tenant.is_crowded()? {
            if let Some(open) = self.shared_zone(&core, logical, need, true)? {
                return Ok(open);
            }
            let framed = self.state.kind == FileKind::Log;
            if core.tenant.free_to_share(framed, core.front + need)?
                && let Some(open) = self.shared_zone(&core, logical, need, true)?
            {
                return Ok(open);
            }
        }
        let promised = self.promised.load(Ordering::Acquire) > 0;
        // In a mount what a dead process was promised may use half of the reserve, like a promise; the rest is the journal's.
        let urgency = match core.recovering.load(Ordering::Acquire) {
            _ if promised => Urgency::Promised,
            true => Urgency::Recovered,
            false => Urgency::User,
        };
        if urgency == Urgency::User {
            core.make_room(0).map_err(|e| core.device_error(&e))?;
        }
        let zone = match core.take_zone(urgency) {
            Err(error) if matches!(error.fault, Fault::NoSpace) => {
                return self.shared_zone(&core, logical, need, true)?.ok_or(error);
            }
            other => other?,
        };
        if promised {
            // Used up with the zone.
            self.promised.fetch_sub(1, Ordering::AcqRel);
        }
        let life = core.tenant.new_life();
        let extent = Extent { logical, len: OPEN, place: self.place(zone, life, core.front) };
        if let Err(error) = self.extend(&core, extent) {
            core.tenant.release(zone);
            return Err(error);
        }
        Ok(NewZone { zone, at: 0, header: self.header(&core, zone, life, logical) })
    }

    fn resume(&self, logical: u64, zone: ZoneId, life: u64, at: u64) -> imbrex_device::Result<()> {
        let core = self.core()?;
        let extent = Extent { logical, len: OPEN, place: self.place(zone, life, at) };
        self.extend(&core, extent)?;
        self.unpin(&core);
        Ok(())
    }

    fn leave_zone(&self, zone: &OpenZone, end: u64) -> imbrex_device::Result<bool> {
        let core = self.core()?;
        let serial = self.state.serial;
        // Together: what stands in the zone has its length, and the file goes on.
        let ends = [Record::Seal { serial, size: end, time: core.now() }, Record::Reopen { serial }];
        if core.log_unless_orphan(&self.state, &ends).map_err(|e| core.device_error(&e))? {
            core.refresh(&self.state);
        }
        self.unpin(&core);
        core.park(&self.state, *zone);
        Ok(true)
    }

    fn idle(&self) {
        // The stream itself may live on for a while: in the queue of background work, or as a log that others wait for.
        if let Some(core) = self.core.upgrade() {
            self.release_promises(&core);
        }
    }

    fn can_write(&self) -> bool {
        self.before.is_none()
    }

    fn announce(&self, size: u64) -> imbrex_device::Result<()> {
        let core = self.core()?;
        let record = Record::Size { serial: self.state.serial, size, time: core.now(), volatile: true };
        core.log_unless_orphan(&self.state, &[record]).map_err(|e| core.device_error(&e))?;
        if core.recovering.load(Ordering::Acquire) {
            // The memory of this mount does not survive it yet: the record must not be missing where the padding is there.
            core.sync_journal().map_err(|e| core.device_error(&e))?;
        }
        Ok(())
    }

    fn placed(&self, placed: &Placed, bytes: &[u8]) {
        if let Some(core) = self.core.upgrade()
            && self.state.kind == FileKind::Table
        {
            core.tables_written.fetch_add(placed.len, Ordering::Relaxed);
            core.resting.written.fetch_add(placed.len, Ordering::Relaxed);
            // What will live longest is what a compaction reads last: it takes no room from others.
            if self.state.hint.load(Ordering::Relaxed) < EXTREME || !core.cache.is_nearly_full() {
                core.cache.append(&mut lock(&self.state.filling), self.state.serial, placed.logical, bytes);
            }
        }
        if self.state.kind == FileKind::Log {
            lock(&self.state.log).note_tail(placed);
        }
        self.state.placed.store(placed.logical + placed.len, Ordering::Release);
    }
}
