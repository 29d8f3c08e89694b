//! The handles that a [`BlueFs`] gives out: writers, readers, files that are both, locks. Each keeps the file system mounted.

use crate::api::fs::BlueFs;
use crate::file::File;
use crate::file::durable::Syncing;
use crate::kind::{FileKind, Purpose};
use crate::meta::{Record, Serial};
use crate::read::Readahead;
use crate::sync::lock;
use imbrex_device::{Cause, Code, Error, Result, Tag};
use imbrex_zones::write::Writer as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// A file that is appended to. One thread appends at a time; any may sync. Dropping it closes it, without telling errors.
pub struct Writer {
    pub(crate) file: Option<Arc<File>>,
    pub(crate) fs: BlueFs,
}

impl Writer {
    fn file(&self) -> Result<&Arc<File>> {
        let file = self.file.as_ref().ok_or_else(|| Error::refused(Code::InvalidArgument, "", "the file is closed"))?;
        Ok(file.current())
    }

    /// Appends. The bytes survive the death of the process from now on; no I/O unless buffers are full.
    pub fn append(&self, bytes: &[u8]) -> Result<()> {
        self.file()?.append(bytes)
    }

    /// Makes all that was appended durable, and the file's name.
    pub fn sync(&self) -> Result<()> {
        self.file()?.sync()
    }

    /// [`Writer::sync`] in steps, between which other calls may come: for tests of what several threads do to one file.
    #[doc(hidden)]
    pub fn sync_in_steps(&self) -> Result<SyncInSteps> {
        Ok(SyncInSteps { syncing: Syncing::begin(self.file()?), _fs: self.fs.clone() })
    }

    /// Bytes, unwritten ones included.
    pub fn len(&self) -> u64 {
        self.file.as_ref().map_or(0, |f| f.current().state.size.load(Ordering::Acquire))
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file's number.
    pub fn serial(&self) -> u64 {
        self.file.as_ref().map_or(0, |f| f.current().state.serial)
    }

    /// Cuts the file.
    pub fn truncate(&self, size: u64) -> Result<()> {
        truncate(self.file()?, size)
    }

    /// Says how large the file will be, in bytes: one that fills a zone gets a zone of its own.
    pub fn preallocate(&self, bytes: u64) -> Result<()> {
        self.file()?.state.expected.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Says how long the bytes will live, as Linux and RocksDB number it: 0 or 1 unknown, 2 short to 5 extreme. Files of one
    /// number share zones.
    pub fn set_hint(&self, hint: u8) -> Result<()> {
        self.file()?.state.hint.store(hint, Ordering::Relaxed);
        Ok(())
    }

    /// Says what a table's writes are for; other files tell by their names.
    pub fn set_cause(&self, cause: Cause) {
        if let Some(file) = self.file.as_ref().filter(|f| matches!(f.state.purpose, Purpose::Table | Purpose::Blob)) {
            file.set_cause(cause);
        }
    }

    /// Writes what is buffered and closes the file. Not a sync.
    pub fn close(&mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => file.close_writer(),
            None => Ok(()),
        }
    }

    /// The file system.
    pub fn fs(&self) -> &BlueFs {
        &self.fs
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(why) = self.close() {
            tracing::warn!(%why, "a file could not be closed");
        }
    }
}

/// A sync that is under way.
#[doc(hidden)]
pub struct SyncInSteps {
    syncing: Syncing,
    _fs: BlueFs,
}

impl SyncInSteps {
    /// Does the next step. False: it was the last.
    #[doc(hidden)]
    pub fn step(&mut self) -> Result<bool> {
        self.syncing.step()
    }
}

/// How a reader is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pattern {
    /// Not said.
    Normal = 0,
    /// Here and there.
    Random = 1,
    /// From the beginning to the end.
    Sequential = 2,
}

/// A file that is read. Any number of threads may read at once.
pub struct Reader {
    pub(crate) file: Arc<File>,
    pub(crate) ahead: Mutex<Readahead>,
    pub(crate) pattern: AtomicU8,
    pub(crate) _fs: BlueFs,
}

impl Reader {
    /// Reads at `offset`; returns how many bytes, which is less than asked only at the file's end.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.file.current().read_at(offset, out, &self.ahead, Cause::UserRead)
    }

    /// Bytes at `offset` where they stand in memory, without a copy: all `len` of them, or `None`, and then they have to be
    /// [read](Self::read_at). They stay as they are as long as the reader lives, whatever becomes of the file; for that at
    /// most half of the cache is held at a time, and what was found in it only. Never any I/O.
    pub fn view(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.file.current().view(offset, len)
    }

    /// As [`view`](Self::view), of many bytes at once, so that who keeps the answer need not ask again: those of the span of this number, of
    /// [`SPAN`](crate::SPAN) bytes each, or up to the file's end. As they were when they were first asked for. `None` where they do not stand
    /// together in the cache, or the cache is nearly full.
    pub fn span(&self, span: u64) -> Option<&[u8]> {
        self.file.current().span(span)
    }

    /// Bytes, unwritten ones included.
    pub fn size(&self) -> u64 {
        self.file.current().state.size.load(Ordering::Acquire)
    }

    /// The file's number.
    pub fn serial(&self) -> u64 {
        self.file.current().state.serial
    }

    /// Brings bytes into the cache.
    pub fn readahead(&self, offset: u64, len: u64) -> Result<()> {
        if !self.file.core.cache.keeps_reads() {
            return Ok(());
        }
        let mut left = len.min(crate::read::MAX_READAHEAD) as usize;
        let mut at = offset;
        let mut buf = vec![0; left.min(256 << 10)];
        while left > 0 {
            let n = left.min(buf.len());
            let got = self.file.current().read_at(at, &mut buf[..n], &self.ahead, Cause::Readahead)?;
            if got == 0 {
                break;
            }
            (left, at) = (left - got, at + got as u64);
        }
        Ok(())
    }

    /// Says how it is going to be read. Streams are detected anyway.
    pub fn set_pattern(&self, pattern: Pattern) {
        self.pattern.store(pattern as u8, Ordering::Relaxed);
    }
}

/// A file that is read and written at any offset.
pub struct RandomFile {
    pub(crate) file: Option<Arc<File>>,
    pub(crate) ahead: Mutex<Readahead>,
    pub(crate) _fs: BlueFs,
}

impl RandomFile {
    fn file(&self) -> Result<&Arc<File>> {
        let file = self.file.as_ref().ok_or_else(|| Error::refused(Code::InvalidArgument, "", "the file is closed"))?;
        Ok(file.current())
    }

    /// Reads at `offset`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.file()?.read_at(offset, out, &self.ahead, Cause::UserRead)
    }

    /// Writes at `offset`; it is on the drive when this returns, durable after a sync. A gap reads as zeros.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file()?.write_at(offset, bytes)
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<()> {
        self.file()?.sync()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, |f| f.current().state.size.load(Ordering::Acquire))
    }

    /// Closes it.
    pub fn close(&mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => file.close_writer(),
            None => Ok(()),
        }
    }
}

impl Drop for RandomFile {
    fn drop(&mut self) {
        if let Err(why) = self.close() {
            tracing::warn!(%why, "a file could not be closed");
        }
    }
}

/// Holds a lock until it is dropped.
pub struct LockToken {
    pub(crate) fs: BlueFs,
    pub(crate) serial: Serial,
}

impl Drop for LockToken {
    fn drop(&mut self) {
        lock(&self.fs.core().locks).remove(&self.serial);
    }
}

/// Cuts a file.
pub(crate) fn truncate(file: &Arc<File>, size: u64) -> Result<()> {
    let (file, mut writing) = file.lock_current();
    let core = &file.core;
    let state = &file.state;
    let now = state.size.load(Ordering::Acquire);
    if size == now {
        return Ok(());
    }
    if size > now {
        let what = "a file cannot be made longer by truncation; write to it instead";
        return Err(Error::refused(Code::NotSupported, &state.name, what));
    }
    // What stays must be there before the record that cuts the rest can be.
    if let Some(writer) = writing.writer.clone() {
        core.writers.drain(&writer, imbrex_device::Priority::Normal)?;
        let seal = Record::Seal { serial: state.serial, size: writer.bytes().len(), time: core.now() };
        core.log_about(state, &[seal])?;
        writer.abandon();
        file.drop_writer(&mut writing);
    }
    if size > 0 {
        core.volume.sync(Tag::new(Cause::Small))?;
    }
    let mut records = vec![Record::Truncate { serial: state.serial, size, time: core.now() }];
    if writing.writers > 0 && state.kind.is_sequential() {
        records.push(Record::Reopen { serial: state.serial });
    }
    core.log_cut(state, size, &records)?;
    state.map_mut().version += 1;
    lock(&state.log).clear();
    state.rewritten.store(true, Ordering::Release);
    state.size.store(size, Ordering::Release);
    state.placed.store(size, Ordering::Release);
    // The next append of a small file goes where the cut bytes stand, and that of a log behind the frames that held them:
    // until the record of the cut is durable, a power loss would show the new ones as if they followed the old.
    let cut = if size > 0 && state.kind != FileKind::Table { core.sync_journal() } else { Ok(()) };
    *lock(&state.filling) = Default::default();
    // Once more: who looked where the bytes are when they were cut already, but not yet the size, keeps nothing of it.
    state.map_mut().version += 1;
    let page = u64::from(core.cache.page_size());
    for page in size / page..now.div_ceil(page) {
        core.cache.remove(state.serial, page);
    }
    cut
}
