//! Which changes a table keeps: those that somebody may still read.

use crate::core::Core;
use crate::core::file::TableFile;
use crate::core::view::Levels;
use crate::cursor::{At, Cursor};
use crate::table::Kind;
use imbrex_device::Result;
use std::sync::Arc;

/// Which changes somebody may still read.
pub(super) struct Keep {
    /// Numbers that somebody reads at, ascending, and the newest.
    seqs: Vec<u64>,
    /// Tables that are not merged, where a delete may hide something; `None`: anything may be below.
    others: Option<Levels>,
}

impl Keep {
    /// Of changes in memory.
    pub fn of_memory(core: &Core) -> Keep {
        let mut seqs = core.reader_seqs();
        seqs.push(u64::MAX);
        Keep { seqs, others: None }
    }

    /// Of a merge, beside which there are these tables.
    pub fn of_merge(core: &Core, others: impl IntoIterator<Item = Arc<TableFile>>) -> Keep {
        Keep { others: Some(Levels::of(core.order(), others)), ..Keep::of_memory(core) }
    }

    /// The first reader that sees a change with this number.
    fn reader(&self, seq: u64) -> usize {
        self.seqs.partition_point(|reader| *reader < seq)
    }

    /// Whether a delete hides nothing that is not merged, and no reader needs it.
    fn may_drop(&self, core: &Core, key: &[u8], seq: u64) -> bool {
        let older = |others: &Levels| others.with_key(core.order(), key).iter().any(|table| table.info.seqs.0 < seq);
        !self.others.as_ref().is_none_or(older) && self.reader(seq) == self.reader(0)
    }
}

/// The changes of a cursor that somebody may still read.
pub(super) struct Kept<'a, C> {
    core: &'a Core,
    pub cursor: C,
    keep: Keep,
    /// The key that the cursor is in, and the first reader of the last change of it that was passed on or dropped.
    pub last: Option<(Vec<u8>, usize)>,
}

impl<'a, C: Cursor> Kept<'a, C> {
    pub fn new(core: &'a Core, cursor: C, keep: Keep) -> Kept<'a, C> {
        Kept { core, cursor, keep, last: None }
    }

    /// Goes to the next change that is kept, from where the cursor is.
    pub fn settle(&mut self) -> Result<()> {
        while let Some(at) = self.cursor.at() {
            let reader = self.keep.reader(at.seq);
            let same = self.last.as_ref().filter(|(key, _)| self.core.order().compare(key, at.key).is_eq());
            let hidden = same.is_some_and(|(_, newer)| *newer == reader);
            let dropped = !hidden && at.kind == Kind::Delete && self.keep.may_drop(self.core, at.key, at.seq);
            if !hidden && !dropped {
                return Ok(());
            }
            if dropped {
                self.last = Some((at.key.to_vec(), reader));
            }
            self.cursor.next()?;
        }
        Ok(())
    }

    pub fn at(&self) -> Option<At<'_>> {
        self.cursor.at()
    }

    /// The change was taken.
    pub fn advance(&mut self) -> Result<()> {
        if let Some(at) = self.cursor.at() {
            self.last = Some((at.key.to_vec(), self.keep.reader(at.seq)));
        }
        self.cursor.next()
    }

    /// The key that comes next, where the last table has ended.
    pub fn next_key(&self) -> Option<Vec<u8>> {
        self.at().map(|at| at.key.to_vec())
    }
}
