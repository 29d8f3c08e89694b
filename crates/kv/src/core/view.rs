//! What a reader sees: the changes in memory and the tables at one moment. A view never changes; the next one takes its place.

use super::file::TableFile;
use crate::memtable::MemTable;
use crate::order::Order;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tables of one level, by their smallest keys.
#[derive(Clone, Default)]
pub(crate) struct Level {
    pub tables: Vec<Arc<TableFile>>,
    /// No key is in two of them.
    pub disjoint: bool,
}

/// Tables, by levels.
#[derive(Clone, Default)]
pub(crate) struct Levels(Vec<Level>);

impl Levels {
    pub fn of(order: &dyn Order, tables: impl IntoIterator<Item = Arc<TableFile>>) -> Levels {
        let mut levels: Vec<Level> = Vec::new();
        for table in tables {
            let level = usize::from(table.info.level);
            if levels.len() <= level {
                levels.resize_with(level + 1, Level::default);
            }
            levels[level].tables.push(table);
        }
        for level in &mut levels {
            level.tables.sort_by(|a, b| order.compare(a.info.first(), b.info.first()));
            let apart = |pair: &[Arc<TableFile>]| order.compare(&pair[0].info.largest, pair[1].info.first()).is_lt();
            level.disjoint = level.tables.windows(2).all(apart);
        }
        Levels(levels)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Level> {
        self.0.iter()
    }

    /// Those of a level, by their smallest keys.
    pub fn at(&self, level: u8) -> &[Arc<TableFile>] {
        self.0.get(usize::from(level)).map_or(&[], |level| &level.tables)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.0.iter().flat_map(|level| &level.tables)
    }

    /// Tables in which changes of a key may be, those with the newest change first.
    pub fn with_key(&self, order: &dyn Order, key: &[u8]) -> Vec<&Arc<TableFile>> {
        let mut found = Vec::new();
        for level in &self.0 {
            if level.disjoint {
                let behind = level.tables.partition_point(|table| order.compare(table.info.first(), key).is_le());
                found.extend(level.tables[..behind].last().filter(|table| table.info.covers(order, key)));
            } else {
                found.extend(level.tables.iter().filter(|table| table.info.covers(order, key)));
            }
        }
        found.sort_by_key(|table| std::cmp::Reverse(table.info.seqs.1));
        found
    }
}

/// See the module.
pub(crate) struct View {
    /// Where the partitions begin, but for the first.
    pub bounds: Arc<Vec<Vec<u8>>>,
    /// Changes of each partition that are not being flushed.
    pub parts: Vec<Arc<MemTable>>,
    /// Those that are, and of which partition, the newest last.
    pub frozen: Vec<(usize, Arc<MemTable>)>,
    pub levels: Levels,
}

impl View {
    /// The partition of a key.
    pub fn part(&self, order: &dyn Order, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| order.compare(bound, key).is_le())
    }

    /// Changes in memory, those of a key that are newer first.
    pub fn memory(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        self.parts.iter().chain(self.frozen.iter().rev().map(|(_, memory)| memory))
    }

    /// The same with some tables more and some less.
    pub fn with_tables(&self, order: &dyn Order, more: &[Arc<TableFile>], less: &[u64]) -> View {
        let less: BTreeSet<u64> = less.iter().copied().collect();
        let stay = self.levels.tables().filter(|table| !less.contains(&table.info.id)).cloned();
        let levels = Levels::of(order, stay.chain(more.iter().cloned()));
        View { bounds: self.bounds.clone(), parts: self.parts.clone(), frozen: self.frozen.clone(), levels }
    }
}
