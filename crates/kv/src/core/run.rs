//! A cursor over a run of tables.

use super::view::Run;
use crate::cursor::{At, Cursor};
use crate::order::Order;
use imbrex_device::Result;
use std::sync::Arc;

/// How far somebody goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Some keys, of blocks that the cache may have.
    Near,
    /// Many keys once: in long pieces, which leave the cache alone.
    Far,
}

/// Of tables of which no key is in two, one behind the other. A table is opened when the cursor comes to it.
pub(crate) struct InRun {
    order: Arc<dyn Order>,
    tables: Arc<Run>,
    reach: Reach,
    open: Option<(usize, Box<dyn Cursor + Send>)>,
}

impl InRun {
    pub fn new(order: &Arc<dyn Order>, tables: Arc<Run>, reach: Reach) -> InRun {
        InRun { order: order.clone(), tables, reach, open: None }
    }

    /// The table in which the first change stands that is not before `to`.
    fn table_of(&self, to: Option<(&[u8], u64)>) -> usize {
        let behind = |key| self.tables.partition_point(|table| self.order.compare(&table.info.largest, key).is_lt());
        to.map_or(0, |(key, _)| behind(key))
    }

    fn open(&mut self, table: usize) -> Result<Option<&mut Box<dyn Cursor + Send>>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != table) {
            self.open = None;
            let Some(file) = self.tables.get(table) else { return Ok(None) };
            let cursor = match self.reach {
                Reach::Near => file.cursor()?,
                Reach::Far => Box::new(file.scan_far()?),
            };
            self.open = Some((table, cursor));
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

impl Cursor for InRun {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        if let Some(cursor) = self.open(self.table_of(to))? {
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

    fn seek_would_read(&self, to: Option<(&[u8], u64)>) -> bool {
        self.tables.get(self.table_of(to)).is_some_and(|table| table.seek_would_read(to))
    }

    fn at(&self) -> Option<At<'_>> {
        self.open.as_ref().and_then(|(_, cursor)| cursor.at())
    }
}
