//! Reading: a key, or keys in order, as they were at one moment.

use crate::core::Core;
use crate::core::run::InRun;
use crate::core::view::View;
use crate::cursor::{At, Cursor, InMemory, Merged};
use crate::order::Order;
use crate::space::{MARK, begin, end, full, user};
use crate::sync::lock;
use crate::table::Kind;
use imbrex_device::Result;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A moment, which reads see as long as this is there.
pub(crate) struct Reader {
    core: Arc<Core>,
    pub seq: u64,
    /// What keeps the store open.
    open: Arc<dyn Any + Send + Sync>,
}

impl Reader {
    /// Now; `open` keeps the store open.
    pub fn new(core: &Arc<Core>, open: Arc<dyn Any + Send + Sync>) -> Reader {
        let mut readers = lock(&core.readers);
        let seq = core.visible.load(Ordering::Acquire);
        *readers.entry(seq).or_default() += 1;
        Reader { core: core.clone(), seq, open }
    }

    /// Whether this is a moment of that store.
    pub fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }
}

impl Clone for Reader {
    fn clone(&self) -> Reader {
        *lock(&self.core.readers).entry(self.seq).or_default() += 1;
        Reader { core: self.core.clone(), seq: self.seq, open: self.open.clone() }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut readers = lock(&self.core.readers);
        if let Some(count) = readers.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.seq);
            }
        }
    }
}

/// The value of a key, as it is now.
pub(crate) fn get_now(core: &Core, key: &[u8]) -> Result<Option<Vec<u8>>> {
    loop {
        // In this order: whatever was written before this call is in the view.
        let view = core.view();
        let seq = core.visible.load(Ordering::Acquire);
        // A range that was deleted since makes another view, and is there before its number is seen.
        if core.last_range() <= view.ranges.newest() {
            return get(core, &view, key, seq);
        }
    }
}

/// The value of a key, as it was at `seq`.
pub(crate) fn get(core: &Core, view: &View, key: &[u8], seq: u64) -> Result<Option<Vec<u8>>> {
    let order = core.order();
    let value = |kind: Kind, value| (kind == Kind::Put).then_some(value);
    let floor = view.ranges.floor(order, key, seq);
    let mut newest: Option<(u64, Kind, Vec<u8>)> = None;
    // Changes in memory are newer than all in tables; those being flushed are older than the others.
    let frozen = view.frozen.iter().rev().map(|frozen| &frozen.memory);
    for memory in std::iter::once(&view.part(order, key).memory).chain(frozen) {
        if let Some(found) = memory.get(key, seq) {
            if !core.has_holes() {
                return Ok(value(found.kind, found.value).filter(|_| found.seq >= floor));
            }
            // Behind a hole of the log a table may have a newer one.
            newest = Some((found.seq, found.kind, found.value));
            break;
        }
    }
    for table in view.tables.with_key(order, key) {
        if newest.as_ref().is_some_and(|(found, ..)| *found > table.info.seqs.1) {
            break;
        }
        if table.info.seqs.0 > seq || table.info.seqs.1 < floor {
            continue;
        }
        if let Some(found) = table.get(key, seq)?
            && newest.as_ref().is_none_or(|(newest, ..)| *newest < found.seq)
        {
            newest = Some((found.seq, found.kind, found.value.to_vec()));
        }
    }
    Ok(newest.filter(|(found, ..)| *found >= floor).and_then(|(_, kind, bytes)| value(kind, bytes)))
}

/// All changes of a view, sorted.
pub(crate) fn all(order: &Arc<dyn Order>, view: &View) -> Result<Merged> {
    let memory = view.memory().filter(|memory| !memory.is_empty());
    let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
    cursors.extend(memory.map(|memory| Box::new(InMemory::new(memory.clone())) as Box<dyn Cursor>));
    for run in view.tables.runs() {
        cursors.push(Box::new(InRun::new(order, run.clone())));
    }
    Ok(Merged::new(order, cursors))
}

/// Keys and values in order, as they were when it was made, in both directions.
pub struct Iter {
    order: Arc<dyn Order>,
    reader: Reader,
    merged: Merged,
    /// Going back, the cursor stands before the key, and this is what the key has.
    at: Option<(Vec<u8>, Vec<u8>)>,
    /// Of this space; keys in `at` are the tree's.
    space: u16,
    back: bool,
    /// What keeps the tables.
    view: Arc<View>,
}

impl Iter {
    pub(crate) fn new(core: &Arc<Core>, reader: Reader, space: u16) -> Result<Iter> {
        let (order, view) = (core.options.order.clone(), core.view());
        let merged = all(&order, &view)?;
        Ok(Iter { order, reader, merged, at: None, space, back: false, view })
    }

    /// The key and the value that it stands on; `None`: it stands on none.
    pub fn get(&self) -> Option<(&[u8], &[u8])> {
        self.at.as_ref().map(|(key, value)| (&key[MARK..], value.as_slice()))
    }

    /// Goes to the first key at or behind this one.
    ///
    /// # Errors
    /// Those of the reads; `Corrupt`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.merged.seek(Some((&full(self.space, key), u64::MAX)))?;
        self.settle_on()
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.merged.seek(Some((&begin(self.space), u64::MAX)))?;
        self.settle_on()
    }

    /// Goes to the last key.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.merged.seek_before(Some((&end(self.space), u64::MAX)))?;
        self.settle_back()
    }

    /// Goes to the last key at or before this one.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key)?;
        match self.get() {
            Some(_) if self.is_at(&full(self.space, key)) => Ok(()),
            Some(_) => self.retreat(),
            None => self.seek_to_last(),
        }
    }

    /// Whether a deleted range hides a change.
    fn is_deleted(&self, at: &At<'_>) -> bool {
        at.seq < self.view.ranges.floor(self.order.as_ref(), at.key, self.reader.seq)
    }

    fn is_at(&self, key: &[u8]) -> bool {
        self.at.as_ref().is_some_and(|(at, _)| self.order.compare(at, key).is_eq())
    }

    /// Goes one key on.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn advance(&mut self) -> Result<()> {
        let Some((key, _)) = self.at.take() else { return Ok(()) };
        if self.back {
            self.merged.seek(Some((&key, 0)))?;
        }
        self.skip_key(&key)?;
        self.settle_on()
    }

    /// Goes one key back.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn retreat(&mut self) -> Result<()> {
        let Some((key, _)) = self.at.take() else { return Ok(()) };
        if !self.back {
            self.merged.seek_before(Some((&key, u64::MAX)))?;
        }
        self.settle_back()
    }

    /// Passes what is left of a key's changes.
    fn skip_key(&mut self, key: &[u8]) -> Result<()> {
        while self.merged.at().is_some_and(|at| self.order.compare(at.key, key).is_eq()) {
            self.merged.next()?;
        }
        Ok(())
    }

    /// From a change on to the first key that has a value. Stays on the change with it.
    fn settle_on(&mut self) -> Result<()> {
        self.back = false;
        self.at = None;
        while let Some(at) = self.merged.at().filter(|at| user(self.space, at.key).is_some()) {
            if at.seq > self.reader.seq {
                self.merged.next()?;
            } else if at.kind == Kind::Put && !self.is_deleted(&at) {
                self.at = Some((at.key.to_vec(), at.value.to_vec()));
                return Ok(());
            } else {
                let key = at.key.to_vec();
                self.skip_key(&key)?;
            }
        }
        Ok(())
    }

    /// From a change back to the last key that has a value. Stays before all changes of that key.
    fn settle_back(&mut self) -> Result<()> {
        self.back = true;
        self.at = None;
        while let Some(at) = self.merged.at().filter(|at| user(self.space, at.key).is_some()) {
            let key = at.key.to_vec();
            let mut value = None;
            // From the oldest to the newest that the reader sees.
            while let Some(at) = self.merged.at().filter(|at| self.order.compare(at.key, &key).is_eq()) {
                if at.seq <= self.reader.seq {
                    value = (at.kind == Kind::Put && !self.is_deleted(&at)).then(|| at.value.to_vec());
                }
                self.merged.prev()?;
            }
            if let Some(value) = value {
                self.at = Some((key, value));
                return Ok(());
            }
        }
        Ok(())
    }
}
