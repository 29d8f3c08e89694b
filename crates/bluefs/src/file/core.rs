//! The mounted file system: metadata and its journal, space, open files.
//!
//! Every change of metadata goes through [`Core::log`]: it is applied to the in-memory state, which refuses what is illegal,
//! and appended to the journal in one step, under one lock. A record is in memory that survives the process from then on,
//! and durable after [`Core::sync_journal`]. Space that a record freed is given back only after that.
//!
//! Lock order: a file's `writing` → `meta` → `small`, `parked`. A writer's guard is taken before
//! `meta`, never after, except the journal's.

use crate::ahead::Ahead;
use crate::cleaning::Cleaning;
use crate::file::durable::Durable;
use crate::file::log::LogIndex;
use crate::file::unwritten::Unwritten;
use crate::file::writer::FileWriter;
use crate::file::{File, FileMap, FileState};
use crate::journal::{Journal, bytes_of, step_of};
use crate::kind::{FileKind, Purpose, purpose};
use crate::meta::inline::Inline;
use crate::meta::{Extent, Inode, Meta, MetaError, Name, Record, Serial};
use crate::options::Options;
use crate::parked::Parked;
use crate::policy::share::Parking;
use crate::small::SmallSpace;
use crate::sync::lock;
use imbrex_device::{Code, Error, Fault, Result, ZoneId};
use imbrex_drives::counted::Counters;
use imbrex_zones::cache::BlockCache;
use imbrex_zones::conventional::ConventionalSpace;
use imbrex_zones::log::Admission;
use imbrex_zones::shell::Maintenance;
use imbrex_zones::write::Writers;
use imbrex_zones::{Exec, Tenant, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

/// Freed zones and pieces of conventional space that wait for the journal before somebody syncs it for them.
const PENDING: usize = 8;

pub(crate) struct MetaState {
    pub(crate) meta: Meta,
    /// By number, so that who does something with all of them does it in an order that can be repeated.
    pub(crate) files: BTreeMap<Serial, Weak<File>>,
}

pub(crate) struct Core {
    pub(crate) volume: Volume,
    pub(crate) tenant: Tenant,
    pub(crate) writers: Arc<Writers<FileWriter>>,
    pub(crate) options: Options,
    pub(crate) counters: Arc<Counters>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) cache: BlockCache,
    pub(crate) ahead: Ahead,
    /// Bytes that a zone header takes.
    pub(crate) front: u64,
    /// Bytes that a sequential zone takes, the smallest of the drive.
    pub(crate) zone_capacity: u64,
    pub(crate) meta: Mutex<MetaState>,
    pub(crate) journal: Journal,
    pub(crate) small: SmallSpace,
    pub(crate) locks: Mutex<BTreeSet<Serial>>,
    pub(crate) unwritten: Unwritten,
    /// Zones with room behind the bytes of closed files.
    pub(crate) parked: Parked,
    pub(crate) cleaning: Cleaning,
    /// The mount is not over: what a dead process had reserved may use the reserve.
    pub(crate) recovering: AtomicBool,
}

pub(crate) struct Parts {
    pub(crate) volume: Volume,
    pub(crate) tenant: Tenant,
    pub(crate) options: Options,
    pub(crate) counters: Arc<Counters>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) meta: Meta,
    pub(crate) journal: Journal,
    pub(crate) conventional: ConventionalSpace,
    pub(crate) parking: Parking,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Arc<Core> {
        let geometry = parts.volume.geometry();
        let (front, zone_capacity) = (u64::from(geometry.block.max(4096)), parts.volume.least_capacity());
        let mut meta = parts.meta;
        meta.set_footprint(front, u64::from(geometry.block));
        meta.take_touched();
        Arc::new(Core {
            front,
            zone_capacity,
            ahead: Ahead::new(parts.options.volume.exec != Exec::Inline && parts.options.cache_bytes > 0),
            cache: parts.options.policy.cache(parts.options.cache_bytes, parts.options.page_bytes),
            parked: Parked::new(parts.tenant.clone(), parts.parking, &meta),
            meta: Mutex::new(MetaState { meta, files: BTreeMap::new() }),
            journal: parts.journal,
            small: SmallSpace::new(parts.conventional, parts.tenant.conventional_ranges().is_empty()),
            writers: Writers::new(&parts.tenant),
            cleaning: Cleaning::new(&parts.tenant, zone_capacity),
            volume: parts.volume,
            tenant: parts.tenant,
            options: parts.options,
            counters: parts.counters,
            maintenance: parts.maintenance,
            locks: Mutex::default(),
            unwritten: Unwritten::default(),
            recovering: AtomicBool::new(true),
        })
    }

    pub(crate) fn now(&self) -> u64 {
        (self.options.clock)()
    }

    /// Bytes of a segment and how many, for a file of this purpose. Small drives get small ones.
    pub(crate) fn segment_sizes(&self, purpose: Purpose, kind: FileKind) -> (usize, usize) {
        let large = self.options.segment_bytes;
        let (bytes, count) = match purpose {
            // What waits in memory takes a place for the zone header with each segment.
            Purpose::Wal if self.logs_wait() => (large, 4),
            Purpose::Wal => (large / 2, 4),
            Purpose::Manifest | Purpose::InfoLog => (large / 32, 2),
            _ if kind == FileKind::Log => (large / 8, 2),
            _ => (large, 4),
        };
        let most = (self.zone_capacity / 8) as usize;
        let unit = self.options.volume.unit_bytes;
        // Whole pages of the cache behind the block for the zone header, so that written pages can be kept as they are.
        let page = self.cache.page_size() as usize;
        let bytes = bytes.min(most).max(unit) / unit * unit;
        match kind {
            FileKind::Log => (bytes, count),
            _ => ((bytes / page).max(1) * page, count),
        }
    }

    // ---- records

    /// Whether conventional space stands in the journal.
    pub(crate) fn has_inline(&self) -> bool {
        self.small.is_inline()
    }

    /// Fails where nothing may change any more.
    pub(crate) fn check(&self) -> Result<()> {
        self.journal.check()
    }

    /// Refuses changes of a file system that is mounted only to look at it.
    pub(crate) fn check_writable(&self, path: &str) -> Result<()> {
        if self.options.read_only && !self.recovering.load(Ordering::Acquire) {
            let what = "the drive is mounted read-only; mount it without `read-only` to change it";
            return Err(Error::refused(Code::ReadOnly, path, what));
        }
        Ok(())
    }

    /// Applies records and appends them to the journal, as one step. The first must be the only one that may be illegal. Returns the number of the
    /// step.
    pub(crate) fn log(&self, state: &mut MetaState, path: &str, records: &[Record]) -> Result<u64> {
        self.check()?;
        self.check_writable(path)?;
        let step = step_of(records);
        // What only takes room leaves the last of it to what frees some, and to bytes that were acknowledged.
        let last = !matches!(records, [Record::Mkdir { .. } | Record::Create { .. } | Record::Link { .. }]);
        let room = self.admit(state, step.len() as u64, last)?;
        let applied: Result<Vec<_>, _> = records.iter().map(|record| state.meta.apply(record)).collect();
        let effects = match applied {
            Ok(effects) => effects,
            Err(error) => {
                self.journal.give_back(room);
                return Err(error.at(path));
            }
        };
        let lsn = self.journal.append(room, step)?;
        for effect in effects {
            self.note_freed(state, effect, lsn);
        }
        let touched = state.meta.take_touched();
        self.parked.note(touched.into_iter().map(|zone| (zone, state.meta.movable(zone))));
        Ok(lsn)
    }

    /// Room in the journal for records of so many bytes. Where there is none but for a snapshot it is written anew, and gets more zones if that does not
    /// help. `last`: who then finds none may take the last room. It is kept so that a full drive can be deleted from.
    fn admit(&self, state: &mut MetaState, bytes: u64, last: bool) -> Result<Admission> {
        for attempt in 0..16 {
            if let Some(room) = self.journal.admit(bytes, false) {
                return Ok(room);
            }
            let more = if attempt == 0 { self.compact(state) } else { self.journal.grow() };
            if let Err(error) = more {
                tracing::debug!(%error, "the journal gets no more room");
                break;
            }
        }
        self.volume.check_poison()?;
        let room = if last { self.journal.admit(bytes, true) } else { None };
        room.ok_or_else(|| Error::new(&self.volume.name(), Fault::NoSpace))
    }

    /// Logs something about an open file.
    pub(crate) fn log_about(&self, file: &FileState, records: &[Record]) -> Result<()> {
        self.log_unless_orphan(file, records).map(drop)
    }

    /// The same, unless the file has no name any more; then false.
    pub(crate) fn log_unless_orphan(&self, file: &FileState, records: &[Record]) -> Result<bool> {
        let mut state = lock(&self.meta);
        if file.is_orphan() {
            return Ok(false);
        }
        let lsn = self.log(&mut state, &file.name, records)?;
        file.lsn.fetch_max(lsn, Ordering::AcqRel);
        drop(state);
        self.compact_if_large()?;
        Ok(true)
    }

    /// A file without a name goes on in this zone: nothing of it may come back after a crash. One that no metadata refers to is
    /// given up with the last handle.
    pub(crate) fn log_freed(&self, file: &FileState, zone: u32, life: u64) -> Result<()> {
        let mut state = lock(&self.meta);
        if state.meta.zone_life(zone).is_some() {
            return Ok(());
        }
        if !state.meta.is_forgotten(zone, life) {
            let lsn = self.log(&mut state, &file.name, &[Record::FreedZone { zone, life }])?;
            file.lsn.fetch_max(lsn, Ordering::AcqRel);
        }
        self.pin_for(file, std::iter::once(zone));
        self.tenant.forget(ZoneId(zone), file.lsn.load(Ordering::Acquire));
        Ok(())
    }

    /// Takes the extents of a file from the metadata into its map.
    pub(crate) fn refresh(&self, file: &FileState) {
        let state = lock(&self.meta);
        if let Some(inode) = state.meta.inode(file.serial) {
            // Under the lock: else what the cleaner has moved meanwhile would seem to be where it was.
            file.map_mut().set_extents(inode.extents.clone());
        }
    }

    pub(crate) fn durable_lsn(&self) -> u64 {
        self.journal.durable()
    }

    /// Makes every record that was logged before the call durable, and gives back the space that was waiting for that.
    pub(crate) fn sync_journal(&self) -> Result<()> {
        self.journal.sync()?;
        self.release_pending();
        Ok(())
    }

    /// After an operation that may have freed much.
    fn after_delete(&self) -> Result<()> {
        self.unwritten.settle_waiting();
        if let Err(error) = self.unwritten.finish_kept() {
            tracing::debug!(%error, "files whose closing failed still cannot be written");
        }
        if self.waiting_for_journal() >= PENDING { self.sync_journal() } else { Ok(()) }
    }

    /// Writes the journal anew where it then has zones to give back. False: it has none.
    pub(crate) fn shrink_journal(&self) -> Result<bool> {
        if self.journal.spare_zones(0) == 0 {
            return Ok(false);
        }
        let mut state = lock(&self.meta);
        let needs = bytes_of(&state.meta);
        // One that is hardly longer than what it says is not written again and again.
        if self.journal.spare_zones(needs) == 0 || self.journal.len() < needs + needs / 4 {
            return Ok(false);
        }
        self.compact(&mut state)?;
        Ok(self.journal.shrink()? > 0)
    }

    /// Whether this mount has recorded anything.
    pub(crate) fn has_recorded(&self) -> bool {
        self.journal.has_recorded()
    }

    pub(crate) fn compact_if_large(&self) -> Result<()> {
        let due = || self.journal.grown() >= self.options.journal_bytes.max(self.journal.snapshot_bytes());
        if !due() {
            return Ok(());
        }
        let mut state = lock(&self.meta);
        if due() { self.compact(&mut state) } else { Ok(()) }
    }

    /// Writes all metadata to the journal anew.
    pub(crate) fn compact(&self, state: &mut MetaState) -> Result<()> {
        state.meta.retain_forgotten(|zone| !self.tenant.is_empty(ZoneId(zone)));
        self.journal.compact(&state.meta).or_else(|error| {
            tracing::warn!(%error, "the journal could not be compacted; it goes on growing");
            self.check()
        })
    }

    // ---- open files

    pub(crate) fn state_of(&self, meta: &Meta, inode: &Inode, parent: Serial, name: &str) -> FileState {
        let mut inline = Inline::default();
        for (addr, len) in inode.extents.iter().filter(|_| self.has_inline()).filter_map(Extent::conventional) {
            meta.inline().range(addr, len).for_each(|(at, page)| inline.write(at, page));
        }
        let name = name.to_owned();
        let size = match inode.kind {
            FileKind::Random => inode.known_size(),
            _ => inode.size,
        };
        FileState {
            serial: inode.serial,
            kind: inode.kind,
            purpose: purpose(&name),
            parent,
            name,
            size: AtomicU64::new(size),
            placed: AtomicU64::new(size),
            // What was written in place through earlier handles may not be durable yet.
            durable: Durable::new(inode.size, inode.extents.iter().any(|extent| extent.conventional().is_some())),
            lsn: AtomicU64::new(0),
            modified: AtomicU64::new(inode.modified),
            map: RwLock::new(FileMap { version: 0, extents: inode.extents.clone(), tail: None }),
            inline: Mutex::new(inline),
            log: Mutex::new(LogIndex::default()),
            filling: Mutex::default(),
            rewritten: AtomicBool::new(false),
            orphan: Mutex::new(None),
            pinned: Mutex::default(),
            hint: AtomicU8::new(0),
            expected: AtomicU64::new(0),
        }
    }

    /// The open file of this serial, opened now if nobody had it open.
    pub(crate) fn file(
        self: &Arc<Self>,
        state: &mut MetaState,
        serial: Serial,
        parent: Serial,
        name: &str,
    ) -> Result<Arc<File>> {
        if let Some(file) = state.files.get(&serial).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let inode = state.meta.inode(serial).ok_or_else(|| MetaError::NotFound.at(name))?;
        if inode.is_directory() {
            return Err(MetaError::IsADirectory.at(name));
        }
        let file = self.new_file(self.state_of(&state.meta, inode, parent, name));
        // What was logged about it before counts as not durable yet.
        file.state.lsn.store(self.journal.last(), Ordering::Release);
        if state.files.len() >= 1024 && state.files.len().is_power_of_two() {
            state.files.retain(|_, f| f.strong_count() > 0);
        }
        state.files.insert(serial, Arc::downgrade(&file));
        Ok(file)
    }

    /// A file that nobody has a handle of yet.
    pub(crate) fn new_file(self: &Arc<Self>, state: FileState) -> Arc<File> {
        Arc::new_cyclic(|me| File {
            me: me.clone(),
            state: Arc::new(state),
            core: self.clone(),
            writing: Mutex::default(),
            writer: RwLock::new(None),
            successor: OnceLock::new(),
            views: OnceLock::new(),
        })
    }

    /// The file if it is open.
    pub(crate) fn open_file(&self, state: &MetaState, serial: Serial) -> Option<Arc<File>> {
        state.files.get(&serial).and_then(Weak::upgrade)
    }

    /// Every open file.
    pub(crate) fn open_files(&self) -> Vec<Arc<File>> {
        lock(&self.meta).files.values().filter_map(Weak::upgrade).collect()
    }

    /// The small files that were closed and not synced: a power loss would take from them what was written since.
    pub(crate) fn open_unsynced(self: &Arc<Self>) -> Result<Vec<Arc<File>>> {
        let mut state = lock(&self.meta);
        let unsynced = |inode: &&Inode| inode.kind == FileKind::Random && inode.volatile_size.is_some();
        let unsynced: Vec<Serial> = state.meta.files().filter(unsynced).map(|inode| inode.serial).collect();
        let mut files = Vec::new();
        for serial in unsynced {
            let name = state.meta.name_of(serial).map(|(parent, name)| (parent, name.clone()));
            if let Some((parent, name)) = name.filter(|_| self.open_file(&state, serial).is_none()) {
                files.push(self.file(&mut state, serial, parent, name.as_str())?);
            }
        }
        Ok(files)
    }

    /// Whether new write-ahead logs wait in memory until it is short: not in a mount, which has to write what it found, and not
    /// where somebody syncs them, or the death of the process would cost them.
    pub(crate) fn logs_wait(&self) -> bool {
        self.volume.has_survivor()
            && !self.options.policy.writes_at_once(Purpose::Wal)
            && !self.recovering.load(Ordering::Acquire)
            && self.unwritten.may_wait()
    }

    /// Somebody syncs write-ahead logs: from now on they are written as their bytes come.
    pub(crate) fn note_synced_log(&self) {
        if self.unwritten.note_synced_log() {
            self.writers.hurry_all();
        }
    }

    // ---- names

    pub(crate) fn unlink(&self, path: &str) -> Result<()> {
        let mut state = lock(&self.meta);
        let (parent, name) = self.parent(&state, path)?;
        let record = state.meta.unlink_record(parent, &name).map_err(|e| e.at(path))?;
        self.log(&mut state, path, &[record])?;
        drop(state);
        self.compact_if_large()?;
        self.after_delete()
    }

    pub(crate) fn parent(&self, state: &MetaState, path: &str) -> Result<(Serial, Name)> {
        state.meta.resolve_parent(path).map_err(|e| e.at(path))
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = lock(&self.meta);
        let (from_parent, from_name) = self.parent(&state, from)?;
        let (to_parent, to_name) = self.parent(&state, to)?;
        let serial = state.meta.lookup(from_parent, from_name.as_str()).map_err(|e| e.at(from))?;
        let record = state
            .meta
            .rename_record((from_parent, &from_name), (to_parent, &to_name), self.now())
            .map_err(|e| e.at(to))?;
        let lsn = self.log(&mut state, to, &[record])?;
        if let Some(file) = self.open_file(&state, serial) {
            file.state.lsn.fetch_max(lsn, Ordering::AcqRel);
        }
        drop(state);
        self.compact_if_large()?;
        self.after_delete()
    }

    /// Logs one record that names this path's parent and name.
    pub(crate) fn log_named(
        &self,
        path: &str,
        record: impl FnOnce(&MetaState, Serial, Name) -> Result<Record>,
    ) -> Result<u64> {
        let mut state = lock(&self.meta);
        let (parent, name) = self.parent(&state, path)?;
        let record = record(&state, parent, name)?;
        let lsn = self.log(&mut state, path, &[record])?;
        drop(state);
        self.compact_if_large()?;
        Ok(lsn)
    }
}
