//! Cursors over sorted changes: what all have in common, of a part of memory, and of several together.
//!
//! Changes are ordered by key, and those of a key from the newest to the oldest. A cursor stands on a change, or nowhere.

use crate::memtable::{MemTable, Stand, Version};
use crate::order::Order;
use crate::table::Kind;
use crate::together::together;
use imbrex_device::Result;
use std::cmp::Ordering;
use std::sync::Arc;

/// The change that a cursor stands on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub key: &'a [u8],
    pub seq: u64,
    pub kind: Kind,
    pub value: &'a [u8],
}

/// See the module.
pub(crate) trait Cursor {
    /// Goes to the first change at or behind (key, seq); `None`: to the first of all.
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()>;
    /// Goes to the last change before (key, seq); `None`: to the last of all.
    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()>;
    /// Goes one on; from nowhere it goes nowhere.
    fn next(&mut self) -> Result<()>;
    /// Goes one back.
    fn prev(&mut self) -> Result<()>;
    fn at(&self) -> Option<At<'_>>;
    /// Whether [`Cursor::seek`] has to ask the drive.
    fn seek_would_read(&self, _to: Option<(&[u8], u64)>) -> bool {
        false
    }
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        (**self).seek(to)
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        (**self).seek_before(to)
    }

    fn next(&mut self) -> Result<()> {
        (**self).next()
    }

    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }

    fn at(&self) -> Option<At<'_>> {
        (**self).at()
    }

    fn seek_would_read(&self, to: Option<(&[u8], u64)>) -> bool {
        (**self).seek_would_read(to)
    }
}

/// Of a part of memory.
pub(crate) struct InMemory {
    table: Arc<MemTable>,
    at: Option<Version>,
}

impl InMemory {
    pub fn new(table: Arc<MemTable>) -> InMemory {
        InMemory { table, at: None }
    }
}

impl Cursor for InMemory {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.at = self.table.at_or_after(to);
        Ok(())
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.at = self.table.before(to);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at = self.at.take().and_then(|at| self.table.after(&at.key, at.seq));
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.take().and_then(|at| self.table.before(Some((&at.key, at.seq))));
        Ok(())
    }

    fn at(&self) -> Option<At<'_>> {
        self.at.as_ref().map(|at| At { key: &at.key, seq: at.seq, kind: at.kind, value: &at.value })
    }
}

/// The same for who goes through all of it: it searches only where it is told to seek.
pub(crate) struct InOrder<'a> {
    table: &'a MemTable,
    at: Option<Stand<'a>>,
}

impl<'a> InOrder<'a> {
    pub fn new(table: &'a MemTable) -> InOrder<'a> {
        InOrder { table, at: None }
    }
}

impl Cursor for InOrder<'_> {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.at = self.table.stand(to);
        Ok(())
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.at = self.table.stand_before(to);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at = self.at.take().and_then(|at| at.next());
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.take().and_then(|at| at.prev());
        Ok(())
    }

    fn at(&self) -> Option<At<'_>> {
        self.at.as_ref().map(|at| {
            let (key, seq, kind, value) = at.change();
            At { key, seq, kind, value }
        })
    }
}

/// Of several together.
pub(crate) struct Merged<C = Box<dyn Cursor + Send>> {
    order: Arc<dyn Order>,
    cursors: Vec<C>,
    /// The one with the change that it stands on.
    current: Option<usize>,
    back: bool,
}

impl<C: Cursor> Merged<C> {
    pub fn new(order: &Arc<dyn Order>, cursors: Vec<C>) -> Merged<C> {
        Merged { order: order.clone(), cursors, current: None, back: false }
    }

    /// Of cursors that all stand on changes which come next, or at their ends.
    pub fn going_on(order: &Arc<dyn Order>, cursors: Vec<C>) -> Merged<C> {
        let mut merged = Merged::new(order, cursors);
        merged.choose();
        merged
    }

    /// The cursors, in the order in which they were given.
    pub fn into_cursors(self) -> Vec<C> {
        self.cursors
    }

    fn choose(&mut self) {
        let compare = |a: &At<'_>, b: &At<'_>| self.order.compare(a.key, b.key).then(b.seq.cmp(&a.seq));
        let mut best: Option<(usize, At<'_>)> = None;
        for (i, cursor) in self.cursors.iter().enumerate() {
            let Some(at) = cursor.at() else { continue };
            let wanted = if self.back { Ordering::Greater } else { Ordering::Less };
            if best.as_ref().is_none_or(|(_, best)| compare(&at, best) == wanted) {
                best = Some((i, at));
            }
        }
        self.current = best.map(|(i, _)| i);
    }

    /// Where it stands, copied.
    fn place(&self) -> Option<(Vec<u8>, u64)> {
        self.at().map(|at| (at.key.to_vec(), at.seq))
    }
}

impl<C: Cursor + Send> Merged<C> {
    /// Seeks; of what the drive has to be asked for, up to `most` reads are under way at once.
    pub fn seek_together(&mut self, to: Option<(&[u8], u64)>, most: usize) -> Result<()> {
        if most <= 1 {
            return self.seek(to);
        }
        self.back = false;
        let all = self.cursors.iter_mut();
        let (mut waiting, others): (Vec<&mut C>, Vec<&mut C>) = all.partition(|cursor| cursor.seek_would_read(to));
        others.into_iter().try_for_each(|cursor| cursor.seek(to))?;
        together(most, &mut waiting, |cursor| cursor.seek(to))?;
        self.choose();
        Ok(())
    }
}

impl<C: Cursor> Cursor for Merged<C> {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.back = false;
        self.cursors.iter_mut().try_for_each(|cursor| cursor.seek(to))?;
        self.choose();
        Ok(())
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.back = true;
        self.cursors.iter_mut().try_for_each(|cursor| cursor.seek_before(to))?;
        self.choose();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.back {
            // The others stand before this change.
            let Some((key, seq)) = self.place() else { return Ok(()) };
            self.back = false;
            for cursor in &mut self.cursors {
                cursor.seek(Some((&key, seq)))?;
            }
            // One may have a copy of the change itself.
            for cursor in &mut self.cursors {
                while cursor.at().is_some_and(|at| at.seq == seq && self.order.compare(at.key, &key).is_eq()) {
                    cursor.next()?;
                }
            }
        } else {
            self.cursors[current].next()?;
        }
        self.choose();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.back {
            self.cursors[current].prev()?;
        } else {
            let Some((key, seq)) = self.place() else { return Ok(()) };
            self.back = true;
            for cursor in &mut self.cursors {
                cursor.seek_before(Some((&key, seq)))?;
            }
        }
        self.choose();
        Ok(())
    }

    fn at(&self) -> Option<At<'_>> {
        self.cursors.get(self.current?)?.at()
    }
}
