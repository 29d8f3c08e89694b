//! What a reader sees: the changes in memory and the tables at one moment. A view never changes; the next one takes its place.

use super::file::TableFile;
use super::ranges::Ranges;
use crate::manifest::Flushed;
use crate::memtable::MemTable;
use crate::order::Order;
use crate::policy::{Group, Key, Table};
use crate::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tables of which no key is in two, in the order of keys.
pub(crate) type Run = Vec<Arc<TableFile>>;

/// All tables.
#[derive(Default)]
pub(crate) struct Tables {
    by_id: BTreeMap<u64, Arc<TableFile>>,
    /// By their smallest keys.
    sorted: Run,
    /// All of them, in as few runs as can be.
    runs: Vec<Arc<Run>>,
    /// As a policy sees them, where these ranges are deleted.
    described: Mutex<Option<(Arc<Ranges>, Arc<Described>)>>,
}

/// Tables as a policy sees them, by their smallest keys.
pub(crate) struct Described {
    pub tables: Vec<Table>,
    /// What a change takes in tables, in bytes, on average.
    pub entry: u64,
}

impl Tables {
    pub fn of(order: &dyn Order, tables: impl IntoIterator<Item = Arc<TableFile>>) -> Tables {
        Tables::new(order, tables.into_iter().map(|table| (table.info.id, table)).collect())
    }

    fn new(order: &dyn Order, by_id: BTreeMap<u64, Arc<TableFile>>) -> Tables {
        let mut sorted: Run = by_id.values().cloned().collect();
        sorted.sort_by(|a, b| order.compare(a.info.first(), b.info.first()));
        let mut runs: Vec<Run> = Vec::new();
        for table in &sorted {
            let ended =
                |run: &Run| run.last().is_none_or(|last| order.compare(&last.info.largest, table.info.first()).is_lt());
            match runs.iter().position(ended) {
                Some(run) => runs[run].push(table.clone()),
                None => runs.push(vec![table.clone()]),
            }
        }
        Tables { by_id, sorted, runs: runs.into_iter().map(Arc::new).collect(), described: Mutex::default() }
    }

    /// The same with some more, and without some.
    pub fn with(&self, order: &dyn Order, more: &[Arc<TableFile>], less: &[u64]) -> Tables {
        let mut by_id = self.by_id.clone();
        by_id.retain(|id, _| !less.contains(id));
        by_id.extend(more.iter().map(|table| (table.info.id, table.clone())));
        Tables::new(order, by_id)
    }

    pub fn get(&self, id: u64) -> Option<&Arc<TableFile>> {
        self.by_id.get(&id)
    }

    /// As a policy sees them, where these ranges are deleted. It is found out once.
    fn described(&self, order: &dyn Order, ranges: &Arc<Ranges>) -> Arc<Described> {
        let mut known = lock(&self.described);
        if let Some((_, described)) = known.as_ref().filter(|(of, _)| Arc::ptr_eq(of, ranges)) {
            return described.clone();
        }
        let described = Arc::new(self.describe(order, ranges));
        *known = Some((ranges.clone(), described.clone()));
        described
    }

    fn describe(&self, order: &dyn Order, ranges: &Ranges) -> Described {
        let (mut bytes, mut puts) = (0, 0);
        for table in &self.sorted {
            bytes += table.info.len;
            puts += table.info.entries.saturating_sub(table.info.deletes);
        }
        let entry = bytes / puts.max(1);
        let mut hidden: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for range in ranges.iter().filter(|range| range.noted.is_some()) {
            for table in self.within(order, &range.deleted.begin, &range.deleted.end) {
                let hides = range.hides(order, &table.info);
                if hides > 0 {
                    let (dead, at) = hidden.entry(table.info.id).or_insert((0, u64::MAX));
                    (*dead, *at) = (*dead + hides, range.deleted.seq.min(*at));
                }
            }
        }
        let describe = |file: &Arc<TableFile>| {
            let mut table = file.info.described(entry);
            if let Some((dead, at)) = hidden.get(&file.info.id) {
                (table.dead, table.dead_at) = (*dead.min(&table.bytes), *at);
            }
            table
        };
        Described { tables: self.sorted.iter().map(describe).collect(), entry }
    }

    /// Tables that may have keys from `from` on and before `to`.
    pub fn within<'a>(
        &'a self,
        order: &'a dyn Order,
        from: &'a [u8],
        to: &'a [u8],
    ) -> impl Iterator<Item = &'a Arc<TableFile>> {
        self.runs.iter().flat_map(move |run| {
            let begin = run.partition_point(|table| order.compare(&table.info.largest, from).is_lt());
            run[begin..].iter().take_while(move |table| order.compare(table.info.first(), to).is_lt())
        })
    }

    /// By their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.by_id.values()
    }

    pub fn runs(&self) -> &[Arc<Run>] {
        &self.runs
    }

    /// Tables in which changes of a key may be, those with the newest change first.
    pub fn with_key(&self, order: &dyn Order, key: &[u8]) -> Vec<&Arc<TableFile>> {
        let in_run = |run: &Run| {
            let behind = run.partition_point(|table| order.compare(table.info.first(), key).is_le());
            behind.checked_sub(1).filter(|at| run[*at].info.covers(order, key))
        };
        let mut found: Vec<_> = self.runs.iter().filter_map(|run| in_run(run).map(|at| &run[at])).collect();
        found.sort_by_key(|table| std::cmp::Reverse(table.info.seqs.1));
        found
    }
}

/// A partition of the keys.
#[derive(Clone)]
pub(crate) struct Part {
    /// Never given again while something knows it.
    pub id: u32,
    /// Its first key; nothing for the first partition.
    pub from: Option<Key>,
    /// Changes that are not being flushed.
    pub memory: Arc<MemTable>,
}

/// Changes that are being flushed.
#[derive(Clone)]
pub(crate) struct Frozen {
    /// Whose tables they become, and of how many bytes at most.
    pub into: Group,
    pub table: u64,
    pub memory: Arc<MemTable>,
    /// With these, tables have all changes of some keys up to a number.
    pub upto: Flushed,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct View {
    /// In the order of keys; at least one.
    pub parts: Vec<Part>,
    /// The newest last.
    pub frozen: Vec<Frozen>,
    pub tables: Arc<Tables>,
    pub ranges: Arc<Ranges>,
    /// Up to this number tables may have newer changes of a key than memory has: that of the last pairs that were ingested, or what the opening found. Above it
    /// memory is newer.
    pub ingested: u64,
}

impl View {
    /// Tables as a policy sees them.
    pub fn described(&self, order: &dyn Order) -> Arc<Described> {
        self.tables.described(order, &self.ranges)
    }

    /// The partition of a key.
    pub fn part(&self, order: &dyn Order, key: &[u8]) -> &Part {
        let before = |part: &Part| part.from.as_ref().is_none_or(|from| order.compare(from, key).is_le());
        &self.parts[self.parts.partition_point(before).saturating_sub(1)]
    }

    /// Changes in memory, those of a key that are newer first.
    pub fn memory(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        self.parts.iter().map(|part| &part.memory).chain(self.frozen.iter().rev().map(|frozen| &frozen.memory))
    }

    /// The oldest record of the log that has what neither tables nor the metadata have: where it stands, and its number; `u64::MAX`: there is none.
    pub fn oldest_record(&self) -> (u64, u64) {
        let all = self.memory().map(|memory| memory.oldest()).chain(self.ranges.oldest_record());
        all.min().unwrap_or((u64::MAX, u64::MAX))
    }

    /// Whether memory has a change of the key that is not newer than `seq`.
    pub fn memory_has(&self, order: &dyn Order, key: &[u8], seq: u64) -> bool {
        let frozen = self.frozen.iter().map(|frozen| &frozen.memory);
        std::iter::once(&self.part(order, key).memory).chain(frozen).any(|memory| memory.get(key, seq).is_some())
    }

    /// Bytes of changes in memory.
    pub fn in_memory(&self) -> usize {
        self.memory().map(|memory| memory.bytes()).sum()
    }

    /// The same with other partitions: their numbers and first keys. Nobody writes meanwhile.
    pub fn divided(&self, order: &Arc<dyn Order>, parts: &[(u32, Option<Key>)]) -> View {
        let end = |at: usize| self.parts.get(at + 1).map(|next| &next.from);
        let piece = |(at, (id, from)): (usize, &(u32, Option<Key>))| {
            let until = parts.get(at + 1).map(|(_, next)| next);
            let same = |old: &usize| self.parts[*old].from == *from && end(*old) == until;
            if let Some(old) = (0..self.parts.len()).find(same) {
                return Part { id: *id, ..self.parts[old].clone() };
            }
            let memory = MemTable::new(order);
            for old in self.parts.iter().filter(|old| !old.memory.is_empty()) {
                memory.add_all(&old.memory, from.as_deref(), until.and_then(Option::as_deref));
            }
            Part { id: *id, from: from.clone(), memory: Arc::new(memory) }
        };
        View { parts: parts.iter().enumerate().map(piece).collect(), ..self.clone() }
    }
}
