//! A cursor over a level.

use super::file::TableFile;
use crate::cursor::{At, Cursor};
use crate::order::Order;
use imbrex_device::Result;
use std::sync::Arc;

/// Of tables of which no key is in two, one behind the other. A table is opened when the cursor comes to it.
pub(crate) struct InLevel {
    order: Arc<dyn Order>,
    tables: Vec<Arc<TableFile>>,
    open: Option<(usize, Box<dyn Cursor>)>,
    /// All of it is read, once.
    once: bool,
}

impl InLevel {
    pub fn new(order: &Arc<dyn Order>, tables: Vec<Arc<TableFile>>) -> InLevel {
        InLevel { order: order.clone(), tables, open: None, once: false }
    }

    /// The same for who reads all of it once.
    pub fn once(order: &Arc<dyn Order>, tables: Vec<Arc<TableFile>>) -> InLevel {
        InLevel { once: true, ..InLevel::new(order, tables) }
    }

    fn open(&mut self, table: usize) -> Result<Option<&mut Box<dyn Cursor>>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != table) {
            self.open = None;
            let Some(file) = self.tables.get(table) else { return Ok(None) };
            self.open = Some((table, if self.once { file.scan()? } else { file.cursor()? }));
        }
        Ok(self.open.as_mut().map(|(_, cursor)| cursor))
    }

    /// Goes on to the next tables until there is a change.
    fn skip_on(&mut self) -> Result<()> {
        while let Some((table, cursor)) = &self.open
            && cursor.at().is_none()
        {
            if let Some(cursor) = self.open(table + 1)? {
                cursor.seek(None)?;
            }
        }
        Ok(())
    }

    fn skip_back(&mut self) -> Result<()> {
        while let Some((table, cursor)) = &self.open
            && cursor.at().is_none()
        {
            let Some(before) = table.checked_sub(1) else {
                self.open = None;
                break;
            };
            if let Some(cursor) = self.open(before)? {
                cursor.seek_before(None)?;
            }
        }
        Ok(())
    }
}

impl Cursor for InLevel {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        let behind = |key| self.tables.partition_point(|table| self.order.compare(&table.info.largest, key).is_lt());
        let table = to.map_or(0, |(key, _)| behind(key));
        if let Some(cursor) = self.open(table)? {
            cursor.seek(to)?;
        }
        self.skip_on()
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        let upto = |key| self.tables.partition_point(|table| self.order.compare(table.info.first(), key).is_le());
        let Some(table) = to.map_or(self.tables.len(), |(key, _)| upto(key)).checked_sub(1) else {
            self.open = None;
            return Ok(());
        };
        if let Some(cursor) = self.open(table)? {
            cursor.seek_before(to)?;
        }
        self.skip_back()
    }

    fn next(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.open {
            cursor.next()?;
        }
        self.skip_on()
    }

    fn prev(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.open {
            cursor.prev()?;
        }
        self.skip_back()
    }

    fn drop_passed(&mut self) {
        let passed = self.open.as_ref().map_or(self.tables.len(), |(table, _)| *table);
        self.tables.drain(..passed);
        self.open.iter_mut().for_each(|(table, _)| *table -= passed);
    }

    fn at(&self) -> Option<At<'_>> {
        self.open.as_ref().and_then(|(_, cursor)| cursor.at())
    }
}
