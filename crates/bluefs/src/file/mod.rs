//! Open files, and what they share with their writers. How their bytes become durable is [`crate::file::durable`]'s.
//!
//! [`FileState`] is shared by everybody; [`File`] is what handles hold: when the last handle goes, the writer is ended and,
//! if the file has no name any more, its space is given up. A writer holds only the state, so that a thread of the volume
//! never is the last to let go of a [`File`].

pub(crate) mod core;
pub(crate) mod durable;
pub(crate) mod extents;
pub(crate) mod grow;
pub(crate) mod log;
pub(crate) mod overwrite;
pub(crate) mod unwritten;
pub(crate) mod writer;

use crate::file::core::Core;
use crate::file::durable::Durable;
use crate::file::log::LogIndex;
use crate::file::writer::{FileWriter, deferred_segments};
use crate::kind::{FileKind, Purpose, wal_number};
use crate::meta::inline::Inline;
use crate::meta::{Extent, Record, Serial};
use crate::policy::share::Class;
use crate::sync::lock;
use imbrex_device::{Cause, Code, Priority, Result, Tag};
use imbrex_zones::cache::{Filling, Views};
use imbrex_zones::write::{Framing, Rank, Writer as _, WriterSpec, WriterStart};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

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

/// What readers and writers of one file share.
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
    pub(crate) durable: Durable,
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
    /// Conventional space of a file without a name, given up with the last handle; `None`: it has a name.
    pub(crate) orphan: Mutex<Option<Vec<(u64, u64)>>>,
    /// Zones of a file without a name, its own and those that it shares: pinned until the last handle is closed.
    pub(crate) pinned: Mutex<BTreeSet<u32>>,
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
    /// A write-ahead log's place among those of its directory: those that have a name become durable in the order of their numbers.
    pub(crate) fn rank(&self) -> Option<Rank> {
        let number = wal_number(&self.name).filter(|_| self.purpose == Purpose::Wal)?;
        Some(Rank { group: self.parent, number })
    }
    pub(crate) fn class(&self) -> Class {
        Class::of(self.kind, self.purpose, self.hint.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
pub(crate) struct Writing {
    pub(crate) writer: Option<Arc<FileWriter>>,
    pub(crate) cause: Option<Cause>,
    /// Open for writing so many times.
    pub(crate) writers: u32,
}

/// An open file.
pub(crate) struct File {
    /// Itself, for who reads ahead.
    pub(crate) me: Weak<File>,
    pub(crate) state: Arc<FileState>,
    pub(crate) core: Arc<Core>,
    pub(crate) writing: Mutex<Writing>,
    /// For readers, without the writers' lock.
    pub(crate) writer: RwLock<Option<Arc<FileWriter>>>,
    /// The log that the file went on as; see [`grow`](crate::file::grow).
    pub(crate) successor: OnceLock<Arc<File>>,
    /// What readers hold of it in memory; made when the first asks for it.
    pub(crate) views: OnceLock<Views>,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(writer) = lock(&self.writing).writer.take() {
            // What could not be written until now, at unmount, is written by the next mount.
            if self.state.is_orphan() { writer.abandon() } else { writer.leave() }
        }
        // It stays a file without a name, for the writers that know it.
        let space = lock(&self.state.orphan).as_mut().map(std::mem::take);
        if let Some(space) = space {
            self.core.forget_pages_of(self.state.serial, self.state.size.load(Ordering::Acquire));
            self.core.small.forget(space, self.state.lsn.load(Ordering::Acquire));
        }
        self.core.unpin_of(&self.state);
    }
}

impl File {
    pub(crate) fn writer(&self) -> Option<Arc<FileWriter>> {
        self.writer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_writer(&self, writing: &mut Writing, writer: Option<Arc<FileWriter>>) {
        *self.writer.write().unwrap_or_else(PoisonError::into_inner) = writer.clone();
        writing.writer = writer;
    }

    pub(crate) fn drop_writer(&self, writing: &mut Writing) {
        self.set_writer(writing, None);
    }

    pub(crate) fn default_cause(&self) -> Cause {
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
            let why = match self.write_in_place(&writing, at, bytes) {
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
        let writer = match &writing.writer {
            Some(writer) => writer.clone(),
            None => self.start_writer(&mut writing)?,
        };
        let result = self.core.writers.append(&writer, bytes);
        self.state.size.store(writer.bytes().len(), Ordering::Release);
        result?;
        if self.core.options.policy.writes_at_once(self.state.purpose) {
            self.core.writers.drain(&writer, Priority::Normal)?;
        }
        Ok(())
    }

    fn start_writer(&self, writing: &mut Writing) -> Result<Arc<FileWriter>> {
        let core = &self.core;
        let state = &self.state;
        let size = state.size.load(Ordering::Acquire);
        let (segment_bytes, segments) = core.segment_sizes(state.purpose, state.kind);
        let rank = state.rank().filter(|_| !state.is_orphan());
        // One that has to wait for other logs must not keep a zone from them.
        let goes_on = size > 0 && rank.is_none_or(|rank| core.writers.is_first(rank));
        let zone = if goes_on { core.open_zone_of(state) } else { None };
        let spec = WriterSpec {
            file: state.serial,
            life: 0,
            framing: match state.kind {
                FileKind::Log => Framing::Framed,
                _ => Framing::Raw,
            },
            segment_bytes,
            segments,
            cause: writing.cause.unwrap_or_else(|| self.default_cause()),
            ordered: state.kind == FileKind::Log,
            rank,
            // What is in memory fits into as many zones, whatever becomes of the one that is open.
            deferred: match state.purpose {
                Purpose::Wal if core.logs_wait() => deferred_segments(core, segment_bytes),
                _ => 0,
            },
        };
        let start = WriterStart { logical: size, zone, sequence: 0 };
        let writer = FileWriter::new(core, state, spec, start);
        if state.is_orphan() {
            // It was deleted just now: nobody waits for it.
            rank.into_iter().for_each(|rank| core.writers.leave_order(rank, state.serial));
        }
        if spec.deferred > 0 && !core.logs_wait() {
            // Somebody synced one just now, and did not know of this one.
            core.writers.hurry(&writer);
        }
        self.set_writer(writing, Some(writer.clone()));
        Ok(writer)
    }

    /// One writer less. The last one writes what is buffered and fixes the size; where that fails, the file stays open without
    /// a handle until it succeeds ([`unwritten`](crate::file::unwritten)).
    pub(crate) fn close_writer(self: &Arc<Self>) -> Result<()> {
        let (file, mut writing) = self.lock_current();
        writing.writers = writing.writers.saturating_sub(1);
        if writing.writers > 0 {
            return Ok(());
        }
        if let Some(bytes) = writing.writer.as_ref().map(|writer| writer.bytes()).filter(|bytes| bytes.is_deferred())
            && file.state.kind == FileKind::Log
            && bytes.placed() < bytes.len()
            && file.core.logs_wait()
        {
            // Most logs are closed just before they are deleted. One without a name goes with its last handle. A table that bears the name
            // of a log may be overwritten next.
            bytes.seal();
            drop(writing);
            if !file.state.is_orphan() {
                file.core.unwritten.keep_waiting(file.clone());
            }
            return Ok(());
        }
        let result = file.finish(&mut writing);
        drop(writing);
        if result.is_err() && !file.state.is_orphan() {
            file.core.unwritten.keep(file.clone());
        }
        result
    }

    /// Whether a closed log is on the drive as a whole, or deleted.
    pub(crate) fn waits_no_more(&self) -> bool {
        self.state.is_orphan() || self.writer().is_none_or(|writer| writer.bytes().placed() >= writer.bytes().len())
    }

    /// Writes what is buffered and fixes the size in the journal.
    pub(crate) fn finish(&self, writing: &mut Writing) -> Result<()> {
        let state = &self.state;
        let Some(writer) = writing.writer.clone() else {
            // In place: the size becomes final only with a sync, so that a power loss cannot show bytes that were never
            // written.
            return Ok(());
        };
        if !state.is_orphan() {
            self.core.writers.drain(&writer, Priority::Normal)?;
            let size = writer.bytes().len();
            self.core.cache.end(&mut lock(&state.filling), state.serial);
            let seal = Record::Seal { serial: state.serial, size, time: self.core.now() };
            self.core.log_about(state, &[seal])?;
            self.core.refresh(state);
            if let Some(open) = writer.give_back() {
                self.core.park(state, open);
            }
        } else {
            self.core.writers.drain(&writer, Priority::Normal)?;
            if let Some(open) = writer.give_back() {
                self.core.tenant.finish_unused(open.zone);
            }
        }
        self.set_writer(writing, None);
        Ok(())
    }

    /// Ends the writer and drops what is not on the drive: the file ends there and has no writer.
    pub(crate) fn give_up_unwritten(&self, writing: &mut Writing) -> Result<()> {
        let state = &self.state;
        if let Some(writer) = writing.writer.clone() {
            writer.abandon();
            let size = writer.bytes().placed();
            let seal = Record::Seal { serial: state.serial, size, time: self.core.now() };
            self.core.volume.sync(Tag::new(self.default_cause()))?;
            self.core.log_cut(state, size, &[seal])?;
            state.size.store(size, Ordering::Release);
            self.set_writer(writing, None);
        }
        writing.writers = 0;
        Ok(())
    }

    /// Sets what the file's writes are for.
    pub(crate) fn set_cause(&self, cause: Cause) {
        let mut writing = lock(&self.writing);
        writing.cause = Some(cause);
        if let Some(writer) = &writing.writer {
            writer.bytes().set_cause(cause);
        }
    }
}
