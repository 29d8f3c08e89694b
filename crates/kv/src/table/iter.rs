//! Goes through a table in both directions.

use super::ahead::Ahead;
use super::block::Cursor;
use super::read::{Handle, Source, Table, Value};
use super::seal::What;
use super::{Kind, Malformed};
use imbrex_device::Result;
use std::ops::Range;
use std::sync::Arc;

/// A place in a table: at an entry, or at none. After an error it is at none.
pub struct Iter {
    table: Arc<Table>,
    /// Where blocks come from, if not through the cache.
    source: Option<Arc<dyn Source>>,
    top: Option<Cursor>,
    index: Option<(Cursor, Handle)>,
    data: Option<(Cursor, Handle)>,
    ahead: Ahead,
}

/// Which end of a block comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
}

impl Table {
    /// An iterator at no entry yet, which reads through the cache.
    pub fn iter(self: &Arc<Self>) -> Iter {
        let top = self.top.clone().map(Cursor::new);
        Iter { table: self.clone(), source: None, top, index: None, data: None, ahead: Ahead::default() }
    }

    /// The same, but it reads from `source` and leaves the cache alone: for whoever reads a whole table once.
    pub fn scan(self: &Arc<Self>, source: Arc<dyn Source>) -> Iter {
        Iter { source: Some(source), ..self.iter() }
    }
}

impl Iter {
    /// Whether it is at an entry. The next four tell of that entry.
    pub fn valid(&self) -> bool {
        self.data.as_ref().is_some_and(|(data, _)| data.entry().is_some())
    }

    /// The entry's key; empty where there is none.
    pub fn key(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |(data, _)| data.key())
    }

    /// The entry's sequence number.
    pub fn seq(&self) -> u64 {
        self.data.as_ref().and_then(|(data, _)| data.entry()).map_or(0, |entry| entry.seq)
    }

    /// What the entry does.
    pub fn kind(&self) -> Kind {
        self.data.as_ref().and_then(|(data, _)| data.entry()).map_or(Kind::Delete, |entry| entry.kind)
    }

    /// The entry's value.
    pub fn value(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |(data, _)| data.value())
    }

    /// The entry's value, to be kept while the iterator goes on.
    pub fn shared_value(&self) -> Option<Value> {
        let (data, _) = self.data.as_ref()?;
        Some(Value { block: data.block().clone(), range: data.entry()?.value.clone() })
    }

    /// Where the block of the entry begins in the table, in bytes; `None`: it is at no entry.
    pub fn offset(&self) -> Option<u64> {
        self.data.as_ref().map(|(_, at)| at.at)
    }

    /// Goes to the first entry of all.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek_to_end(Way::Forward)
    }

    /// Goes to the last entry of all.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.seek_to_end(Way::Back)
    }

    /// Goes to the newest version with at most this sequence number of this key, or else to the first entry behind it.
    pub fn seek(&mut self, key: &[u8], at_seq: u64) -> Result<()> {
        let done = self.try_seek((key, at_seq));
        self.ended(done)
    }

    /// Goes to the next entry; from the last one, or from none, to none.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it goes both ways, and lends its entries")]
    pub fn next(&mut self) -> Result<()> {
        self.step(Way::Forward)
    }

    /// Goes to the entry before; from the first one, or from none, to none.
    pub fn prev(&mut self) -> Result<()> {
        self.step(Way::Back)
    }

    fn ended(&mut self, done: Result<()>) -> Result<()> {
        if done.is_err() {
            self.data = None;
        }
        done
    }

    fn seek_to_end(&mut self, way: Way) -> Result<()> {
        (self.index, self.data) = (None, None);
        let done = self.turn_top(way, true).and_then(|_| self.turn_data(way));
        self.ended(done)
    }

    fn try_seek(&mut self, to: (&[u8], u64)) -> Result<()> {
        (self.index, self.data) = (None, None);
        let table = self.table.clone();
        let Some(top) = &mut self.top else { return Ok(()) };
        let order = &*table.order;
        top.seek(order, to).map_err(|why| table.damaged(What::Top, table.parts.top_at(), why))?;
        if top.entry().is_none() {
            return Ok(());
        }
        self.turn_top(Way::Forward, false)?;
        if let Some((index, at)) = &mut self.index {
            index.seek(order, to).map_err(|why| table.damaged(What::Index, at.at, why))?;
        }
        self.turn_data(Way::Forward)?;
        if let Some((data, at)) = &mut self.data {
            data.seek(order, to).map_err(|why| table.damaged(What::Data, at.at, why))?;
            if data.entry().is_none() {
                self.leave(Way::Forward)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, way: Way) -> Result<()> {
        let Some((data, at)) = &mut self.data else { return Ok(()) };
        if data.entry().is_none() {
            return Ok(());
        }
        let moved = turn(data, way, false).map_err(|why| self.table.damaged(What::Data, at.at, why));
        let done = match moved {
            Ok(()) if data.entry().is_none() => self.leave(way),
            moved => moved,
        };
        self.ended(done)
    }

    /// Goes to the next data block.
    fn leave(&mut self, way: Way) -> Result<()> {
        let table = self.table.clone();
        let Some((index, at)) = &mut self.index else { return Ok(()) };
        turn(index, way, false).map_err(|why| table.damaged(What::Index, at.at, why))?;
        if index.entry().is_none()
            && let Some(top) = &mut self.top
        {
            turn(top, way, false).map_err(|why| table.damaged(What::Top, table.parts.top_at(), why))?;
            self.turn_top(way, false)?;
        }
        self.turn_data(way)
    }

    /// Loads the index block that the top index is at, or at whose end it shall be, and goes to its end.
    fn turn_top(&mut self, way: Way, to_end: bool) -> Result<()> {
        let Some(top) = &mut self.top else { return Ok(()) };
        let (table, at) = (&*self.table, self.table.parts.top_at());
        let damaged = |why| table.damaged(What::Top, at, why);
        if to_end {
            turn(top, way, true).map_err(damaged)?;
        }
        if top.entry().is_none() {
            self.index = None;
            return Ok(());
        }
        let region = table.region(What::Top);
        let handle = Handle::decode(top.value(), region.clone()).map_err(damaged)?;
        neighbours(handle, self.index.as_ref().map(|(_, at)| *at), region, way, to_end).map_err(damaged)?;
        let block = table.block(What::Index, handle, self.source.as_deref())?;
        let mut index = Cursor::new(block);
        turn(&mut index, way, true).map_err(|why| table.damaged(What::Index, handle.at, why))?;
        self.index = Some((index, handle));
        Ok(())
    }

    /// Loads the data block that the index is at, and goes to its end.
    fn turn_data(&mut self, way: Way) -> Result<()> {
        let table = &*self.table;
        let Some((index, at)) = self.index.as_ref().filter(|(index, _)| index.entry().is_some()) else {
            self.data = None;
            return Ok(());
        };
        let damaged = |why| table.damaged(What::Index, at.at, why);
        let region = table.region(What::Index);
        let handle = Handle::decode(index.value(), region.clone()).map_err(damaged)?;
        neighbours(handle, self.data.as_ref().map(|(_, at)| *at), region, way, false).map_err(damaged)?;
        let block = match &self.source {
            None => table.block_ahead(handle, &mut self.ahead, way == Way::Back, self.data.is_some())?,
            source => table.block(What::Data, handle, source.as_deref())?,
        };
        let (data, at) = self.data.get_or_insert_with(|| (Cursor::new(block.clone()), handle));
        data.enter(block);
        *at = handle;
        turn(data, way, true).map_err(|why| table.damaged(What::Data, handle.at, why))
    }
}

/// Takes a step, or goes to the end that comes first.
#[inline]
fn turn(cursor: &mut Cursor, way: Way, to_end: bool) -> Result<(), Malformed> {
    match (way, to_end) {
        (Way::Forward, false) => cursor.next(),
        (Way::Back, false) => cursor.prev(),
        (Way::Forward, true) => cursor.first(),
        (Way::Back, true) => cursor.last(),
    }
}

/// Blocks stand one behind the other. So no damaged index leads in a circle.
fn neighbours(
    handle: Handle,
    before: Option<Handle>,
    region: Range<u64>,
    way: Way,
    outermost: bool,
) -> Result<(), Malformed> {
    let fits = match (before, way) {
        (Some(before), Way::Forward) => before.end() == handle.at,
        (Some(before), Way::Back) => handle.end() == before.at,
        (None, Way::Forward) => !outermost || handle.at == region.start,
        (None, Way::Back) => !outermost || handle.end() == region.end,
    };
    fits.then_some(()).ok_or(Malformed("order of blocks"))
}
