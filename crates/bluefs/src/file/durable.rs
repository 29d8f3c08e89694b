//! How a file's bytes become durable, whoever asks for it and however many at once.
//!
//! A sync is cut into steps ([`Syncing`]), and holds no lock of the file between them: others append, cut, overwrite and sync
//! meanwhile. So what it makes durable is what it saw when it began, in one look at the file ([`Mark`]), and each step asks whether
//! that still counts:
//!
//! - A size is told to the journal only after the bytes below it are where the size leads to: on the drive, or, where they were written
//!   in place, durable. Who finds that another one is at it waits for the drive as well, and does not take it for done.
//! - A size that another sync, a close or a cut has told already is not told again.
//! - What was cut is not taken for durable: it is written anew.

use crate::file::core::Core;
use crate::file::writer::FileWriter;
use crate::file::{File, FileState};
use crate::kind::{FileKind, Purpose};
use crate::meta::Record;
use crate::sync::lock;
use imbrex_device::{Cause, Priority, Result, Tag};
use imbrex_zones::Ticket;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Bytes below this are durable.
    end: u64,
    /// How often the file was cut.
    cuts: u64,
    /// Writes in place so far.
    written: u64,
    /// How many of them are durable.
    flushed: u64,
}

/// What of a file is durable.
#[derive(Debug, Default)]
pub(crate) struct Durable(Mutex<Marks>);

/// A moment of a file, whose bytes are to become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    end: u64,
    cuts: u64,
    written: u64,
}

impl Durable {
    /// Of a file of which so many bytes are durable. `in_place`: bytes that an earlier handle wrote in place may not be.
    pub(crate) fn new(end: u64, in_place: bool) -> Durable {
        Durable(Mutex::new(Marks { end, written: u64::from(in_place), ..Marks::default() }))
    }

    /// Bytes are about to be written in place.
    pub(crate) fn writes_in_place(&self) {
        lock(&self.0).written += 1;
    }

    /// The file ends at `end` now, and all of that is durable.
    pub(crate) fn cut(&self, end: u64) {
        let mut marks = lock(&self.0);
        marks.cuts += 1;
        marks.end = end;
    }

    fn mark(&self, end: u64) -> Mark {
        let marks = lock(&self.0);
        Mark { end, cuts: marks.cuts, written: marks.written }
    }

    /// Whether the file was cut since. Then what is left of the moment is durable: a cut waits for it.
    fn was_cut_since(&self, mark: &Mark) -> bool {
        lock(&self.0).cuts != mark.cuts
    }

    /// Whether bytes of the moment are not known to be durable.
    pub(crate) fn is_behind(&self, mark: &Mark) -> bool {
        let marks = lock(&self.0);
        marks.cuts == mark.cuts && marks.end < mark.end
    }

    /// Whether bytes that had been written in place by then are not known to be durable.
    fn owes_flush(&self, mark: &Mark) -> bool {
        lock(&self.0).flushed < mark.written
    }

    fn flushed(&self, mark: &Mark) {
        let mut marks = lock(&self.0);
        marks.flushed = marks.flushed.max(mark.written);
    }

    /// The bytes of the moment are durable.
    pub(crate) fn reached(&self, mark: &Mark) {
        let mut marks = lock(&self.0);
        if marks.cuts == mark.cuts {
            marks.end = marks.end.max(mark.end);
        }
    }
}

impl FileState {
    /// This moment. Of a file that is written meanwhile: some moment between the call and its return.
    pub(crate) fn mark(&self) -> Mark {
        self.durable.mark(self.size.load(Ordering::Acquire))
    }
}

/// What a sync does next. Between two steps anybody may do anything to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The bytes go to the drive; those that were written in place become durable.
    Bytes,
    /// The journal is told the size.
    Size,
    /// All of it becomes durable.
    Flush,
}

/// A sync that is under way.
pub(crate) struct Syncing {
    file: Arc<File>,
    mark: Mark,
    writer: Option<Arc<FileWriter>>,
    /// Covers what was written in place, and from the first step on all bytes.
    ticket: Ticket,
    next: Option<Step>,
}

impl Syncing {
    /// Of everything that was appended or written to the file so far, and of its name.
    pub(crate) fn begin(file: &Arc<File>) -> Syncing {
        let (file, writing) = file.lock_current();
        let (mark, writer) = (file.state.mark(), writing.writer.clone());
        drop(writing);
        let ticket = file.core.volume.ticket();
        if file.state.purpose == Purpose::Wal && file.state.durable.is_behind(&mark) {
            file.core.note_synced_log();
        }
        Syncing { file: file.clone(), mark, writer, ticket, next: Some(Step::Bytes) }
    }

    /// Does the next step. False: it was the last.
    pub(crate) fn step(&mut self) -> Result<bool> {
        self.next = match self.next {
            None => return Ok(false),
            Some(Step::Bytes) => {
                self.bytes()?;
                Some(Step::Size)
            }
            Some(Step::Size) => {
                self.size()?;
                Some(Step::Flush)
            }
            Some(Step::Flush) => {
                self.flush()?;
                None
            }
        };
        // It may have gone on as a log meanwhile: then what was synced is not what its name leads to.
        if self.next.is_none() && self.file.state.is_orphan() && !Arc::ptr_eq(self.file.lock_current().0, &self.file) {
            *self = Syncing::begin(&self.file);
        }
        Ok(self.next.is_some())
    }

    fn bytes(&mut self) -> Result<()> {
        let (core, state) = (&self.file.core, &self.file.state);
        if state.durable.owes_flush(&self.mark) {
            // In place: the bytes first, then the size that lets them be seen after a power loss.
            core.volume.durable(self.ticket, Tag::new(Cause::Small).at(Priority::High))?;
            state.durable.flushed(&self.mark);
        }
        if let Some(writer) = &self.writer {
            core.writers.drain(writer, Priority::High)?;
        }
        self.ticket = core.volume.ticket();
        Ok(())
    }

    fn size(&self) -> Result<()> {
        let (core, state) = (&self.file.core, &self.file.state);
        let log = state.kind == FileKind::Log;
        if log && core.options.policy.tells_length(state.purpose) && state.durable.is_behind(&self.mark) {
            core.volume.durable(self.ticket, Tag::new(Cause::Wal).at(Priority::High))?;
            core.log_about(state, &[Record::Times { serial: state.serial, modified: core.now() }])?;
        }
        if log { Ok(()) } else { core.log_size(state, &self.mark) }
    }

    fn flush(&self) -> Result<()> {
        let (core, state) = (&self.file.core, &self.file.state);
        let metadata = !state.is_orphan() && state.lsn.load(Ordering::Acquire) > core.durable_lsn();
        if metadata {
            core.sync_journal()?;
        }
        // Another one's sync of the journal may have been all that was needed there, and have flushed before these bytes were written.
        // As a rule the journal's flush was this one.
        if metadata || state.durable.is_behind(&self.mark) {
            core.volume.durable(self.ticket, Tag::new(self.file.default_cause()).at(Priority::High))?;
        }
        state.durable.reached(&self.mark);
        Ok(())
    }
}

impl File {
    /// Makes everything durable that was appended or written before the call, and the file's name with it.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        let mut syncing = Syncing::begin(self);
        while syncing.step()? {}
        Ok(())
    }
}

impl Core {
    /// Tells the journal how long a file was at a moment whose bytes are where that leads to; unless it was told by another one, or the
    /// file was closed, cut or deleted since.
    fn log_size(&self, file: &FileState, mark: &Mark) -> Result<()> {
        let mut state = lock(&self.meta);
        let told = state.meta.inode(file.serial).is_none_or(|inode| inode.closed || inode.size >= mark.end);
        if told || file.is_orphan() || file.durable.was_cut_since(mark) {
            return Ok(());
        }
        let size = Record::Size { serial: file.serial, size: mark.end, time: self.now(), volatile: false };
        let lsn = self.log(&mut state, &file.name, &[size])?;
        file.lsn.fetch_max(lsn, Ordering::AcqRel);
        drop(state);
        self.compact_if_large()
    }

    /// Logs that a file ends at `size`: from then on nobody tells a size from before. All that is left must be durable.
    pub(crate) fn log_cut(&self, file: &FileState, size: u64, records: &[Record]) -> Result<()> {
        let mut state = lock(&self.meta);
        let named = !file.is_orphan();
        if named {
            let lsn = self.log(&mut state, &file.name, records)?;
            file.lsn.fetch_max(lsn, Ordering::AcqRel);
        }
        file.durable.cut(size);
        drop(state);
        if named {
            self.compact_if_large()?;
            self.refresh(file);
        }
        Ok(())
    }
}
