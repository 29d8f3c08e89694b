//! Small files that are appended to beyond the space that small files have: they go on as logs.
//!
//! What a file of unknown name will be shows only as it grows. It begins where it could be overwritten; when an append finds
//! no conventional (or inline) space any more, its bytes are copied to frames of a new file, which has no name until they are
//! durable. The journal then says where they are, and gives it all names of the old one, in one step. So a crash finds the old file or the
//! new one, and the zones of a copy that was not finished are nobody's. Handles find the new one by [`File::current`].

use crate::file::{File, Writing};
use crate::kind::{FileKind, Purpose};
use crate::meta::{Inode, Record};
use crate::sync::lock;
use imbrex_device::{Cause, Code, Error, Priority, Result, Tag, ZoneId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes that are copied at a time.
const PIECE: u64 = 256 << 10;

impl File {
    /// The file that a handle means: this one, or the log that it went on as.
    pub(crate) fn current(self: &Arc<Self>) -> &Arc<File> {
        let mut file = self;
        while let Some(next) = file.successor.get() {
            file = next;
        }
        file
    }

    /// The right to write the file, or the log that it went on as by then.
    pub(crate) fn lock_current(self: &Arc<Self>) -> (&Arc<File>, MutexGuard<'_, Writing>) {
        loop {
            let file = self.current();
            let writing = lock(&file.writing);
            if file.successor.get().is_none() {
                return (file, writing);
            }
        }
    }

    /// Whether the file may go on as a log: nobody else has it open for writing, perhaps to overwrite it. A write-ahead log
    /// stands in conventional space only where that was asked for.
    pub(crate) fn can_go_on_as_log(&self, writing: &Writing) -> bool {
        self.state.kind == FileKind::Random && self.state.purpose != Purpose::Wal && writing.writers == 1
    }

    /// Makes a log of the file; from now on handles mean that. NoSpace: no zone is free either; the file is as it was.
    pub(crate) fn go_on_as_log(&self, writing: &mut Writing) -> Result<Arc<File>> {
        let (core, old) = (&self.core, &self.state);
        let next = self.copy_as_log()?;
        let mut state = lock(&core.meta);
        if let Some(inode) = state.meta.inode(old.serial).filter(|_| !old.is_orphan()) {
            let serial = next.state.serial;
            let mut records = vec![Record::Inode {
                serial,
                kind: FileKind::Log,
                created: inode.created,
                modified: core.now(),
                size: next.state.size.load(Ordering::Acquire),
                volatile_size: None,
                closed: false,
                allocated: 0,
            }];
            records.extend(next.state.map().extents.iter().map(|extent| Record::Extent { serial, extent: *extent }));
            records.push(Record::Replace { old: old.serial, new: serial });
            let lsn = core.log(&mut state, &old.name, &records)?;
            next.state.lsn.fetch_max(lsn, Ordering::AcqRel);
            *lock(&next.state.orphan) = None;
            lock(&next.state.pinned).iter().for_each(|zone| core.tenant.recall(ZoneId(*zone)));
            core.unpin_of(&next.state);
            state.files.insert(serial, Arc::downgrade(&next));
        }
        drop(state);
        lock(&next.writing).writers = std::mem::take(&mut writing.writers);
        // Only who may write the file gets here, and only once.
        let _ = self.successor.set(next.clone());
        Ok(next)
    }

    /// The file's bytes, durable, in frames of a file without a name.
    fn copy_as_log(&self) -> Result<Arc<File>> {
        let (core, old) = (&self.core, &self.state);
        let mut state = lock(&core.meta);
        let serial = state.meta.next_serial();
        core.log(&mut state, &old.name, &[Record::NextSerial { serial: serial + 1 }])?;
        let now = core.now();
        let inode = Inode {
            serial,
            kind: FileKind::Log,
            closed: false,
            nlink: 0,
            created: now,
            modified: now,
            size: 0,
            volatile_size: None,
            allocated: 0,
            extents: Vec::new(),
        };
        let file_state = core.state_of(&state.meta, &inode, old.parent, &old.name);
        drop(state);
        *lock(&file_state.orphan) = Some(Vec::new());
        let next = core.new_file(file_state);
        let (size, ahead) = (old.size.load(Ordering::Acquire), Mutex::default());
        let mut buf = vec![0; size.min(PIECE) as usize];
        let mut at = 0;
        while at < size {
            let n = (size - at).min(PIECE) as usize;
            let n = self.read_at(at, &mut buf[..n], &ahead, Cause::Small)?;
            if n == 0 {
                let what = "the file ends before its size; copy what is left of it, and run `imbrex fs check`";
                return Err(Error::refused(Code::Corruption, &old.name, what));
            }
            next.append(&buf[..n])?;
            at += n as u64;
        }
        if let Some(writer) = next.writer() {
            core.writers.drain(&writer, Priority::Normal)?;
            core.volume.sync(Tag::new(Cause::Small))?;
        }
        next.state.durable.reached(&next.state.mark());
        Ok(next)
    }
}
