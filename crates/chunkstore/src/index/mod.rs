//! Where everything is: chunk table → index groups → record indexes, in memory (SMRSTORE §5.3).
//!
//! Invariants: a chunk's groups ascend by offset, without gaps, and end at its length; in a group the records do, too. What a
//! chunk has in one zone is one run of its bytes. A chunk keeps its *slot* as long as it lives, so zones can name those that
//! have something in them by four bytes.
//!
//! Memory: 72 bytes a chunk in pages of the table, about 5 in the list that is sorted by id, 4 to 8 in its zone's list, and 8
//! a record. Sealed chunks take no more than that; an open one has room for an eighth more records than it has. A chunk whose
//! bytes stand in several zones has 32 bytes more for each group.

pub(crate) mod fresh;
pub mod names;
pub(crate) mod scrub;

use crate::format::data_blocks;
use crate::format::entry::{ChunkEnd, GroupEntry, LOST, RecordIndex};
use crate::format::id::{ChunkId, StreamType};

/// Chunks in one page of the table.
const PAGE: usize = 256;
/// Most slots in one page of the sorted list.
const LIST_PAGE: usize = 512;
/// By how many its memory grows.
const LIST_STEP: usize = 32;

/// Index group: what stands of a chunk in one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The zone.
    pub zone: u32,
    /// Offset in the chunk of its first byte.
    pub start: u32,
    records: Vec<RecordIndex>,
}

impl Group {
    /// Its records, ascending by offset.
    pub fn records(&self) -> &[RecordIndex] {
        &self.records
    }

    /// Offset in the chunk where it ends.
    pub fn end(&self) -> u32 {
        self.records.last().map_or(self.start, |record| record.end)
    }

    /// Each record with the offset where its data begins.
    pub fn spans(&self) -> impl Iterator<Item = (u32, RecordIndex)> + '_ {
        let starts = std::iter::once(self.start).chain(self.records.iter().map(|r| r.end));
        starts.zip(self.records.iter().copied())
    }

    /// Blocks that its records take in the zone.
    pub fn blocks(&self) -> u32 {
        self.spans().filter(|(_, r)| r.at != LOST).map(|(start, r)| data_blocks(r.end - start)).sum()
    }

    fn push(&mut self, record: RecordIndex) {
        if self.records.len() == self.records.capacity() {
            // An eighth and not twice as much: the index is what the store needs memory for.
            self.records.reserve_exact((self.records.len() / 8).max(4));
        }
        self.records.push(record);
    }
}

impl From<&Group> for GroupEntry {
    fn from(group: &Group) -> GroupEntry {
        GroupEntry { zone: group.zone, start: group.start, records: group.records.clone() }
    }
}

impl From<GroupEntry> for Group {
    fn from(entry: GroupEntry) -> Group {
        let mut records = entry.records;
        records.shrink_to_fit();
        Group { zone: entry.zone, start: entry.start, records }
    }
}

/// Most chunks have all they have in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Groups {
    #[default]
    None,
    One(Group),
    #[expect(clippy::box_collection, reason = "the rare case must not make the common one larger")]
    Many(Box<Vec<Group>>),
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its id.
    pub id: ChunkId,
    /// Number that no other chunk of this id has.
    pub serial: u64,
    /// Bytes, those included that are not written yet.
    pub len: u32,
    /// Kind of stream.
    pub stream: StreamType,
    /// Takes no more appends.
    pub sealed: bool,
    /// Counts as a writer of the zone that its last group is in.
    pub bound: bool,
    /// What is known of its end.
    pub end: ChunkEnd,
    groups: Groups,
}

const _: () = assert!(size_of::<Option<Chunk>>() == 72);

/// Where a byte of a chunk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// In which zone.
    pub zone: u32,
    /// In the record at this block; [`LOST`]: nowhere.
    pub at: u32,
    /// Offset in the chunk where the record's data begins.
    pub start: u32,
    /// And where it ends.
    pub end: u32,
}

impl Chunk {
    /// A chunk without a byte.
    pub fn new(id: ChunkId, serial: u64, stream: StreamType) -> Chunk {
        Chunk { id, serial, len: 0, stream, sealed: false, bound: false, end: ChunkEnd::Known, groups: Groups::None }
    }

    /// Its groups, ascending by offset.
    pub fn groups(&self) -> &[Group] {
        match &self.groups {
            Groups::None => &[],
            Groups::One(group) => std::slice::from_ref(group),
            Groups::Many(groups) => groups,
        }
    }

    fn groups_mut(&mut self) -> &mut [Group] {
        match &mut self.groups {
            Groups::None => &mut [],
            Groups::One(group) => std::slice::from_mut(group),
            Groups::Many(groups) => groups,
        }
    }

    fn set_groups(&mut self, mut groups: Vec<Group>) {
        self.groups = match groups.len() {
            0 => Groups::None,
            1 => groups.pop().map_or(Groups::None, Groups::One),
            _ => {
                groups.shrink_to_fit();
                Groups::Many(Box::new(groups))
            }
        };
    }

    fn take_groups(&mut self) -> Vec<Group> {
        match std::mem::take(&mut self.groups) {
            Groups::None => Vec::new(),
            Groups::One(group) => vec![group],
            Groups::Many(groups) => *groups,
        }
    }

    /// How many records it has.
    pub fn records(&self) -> usize {
        self.groups().iter().map(|group| group.records.len()).sum()
    }

    /// `len` bytes more stand in a record at block `at` of the zone. True: they begin a new group.
    pub fn push(&mut self, zone: u32, len: u32, at: u32) -> bool {
        let start = self.len;
        self.len += len;
        self.end = ChunkEnd::Known;
        let record = RecordIndex { end: self.len, at };
        if let Some(last) = self.groups_mut().last_mut().filter(|last| last.zone == zone) {
            last.push(record);
            return false;
        }
        let mut group = Group { zone, start, records: Vec::new() };
        group.push(record);
        let mut groups = self.take_groups();
        groups.push(group);
        self.set_groups(groups);
        true
    }

    /// Its bytes up to `end` are known to be lost. They count as of this zone, where they stood or what is behind them does.
    pub fn lose(&mut self, zone: u32, end: u32) {
        if end > self.len {
            self.push(zone, end - self.len, LOST);
        }
    }

    /// Whether any of its bytes are known to be lost.
    pub fn has_lost(&self) -> bool {
        self.groups().iter().any(|group| group.records.iter().any(|record| record.at == LOST))
    }

    /// Bytes that are known to be lost, run by run: the zone as of which they count, where they begin and where they end.
    pub fn lost(&self) -> Vec<(u32, u32, u32)> {
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for group in self.groups() {
            for (start, record) in group.spans().filter(|(_, record)| record.at == LOST) {
                match runs.last_mut().filter(|(zone, _, end)| (*zone, *end) == (group.zone, start)) {
                    Some((.., end)) => *end = record.end,
                    None => runs.push((group.zone, start, record.end)),
                }
            }
        }
        runs
    }

    /// Records of a group that it may know already, all of them or those in front. Who tells of them knew what is before them, so bytes that are
    /// missing there are lost.
    pub fn go_on_with(&mut self, group: &GroupEntry) {
        self.lose(group.zone, group.start);
        let mut start = group.start;
        for record in &group.records {
            if start == self.len {
                self.push(group.zone, record.end - start, record.at);
            }
            start = record.end;
        }
    }

    /// From a checkpoint: all its groups at once, which ascend without gaps.
    pub fn with_groups(mut self, groups: Vec<GroupEntry>) -> Chunk {
        self.set_groups(groups.into_iter().map(Group::from).collect());
        self.len = self.groups().last().map_or(0, Group::end);
        self
    }

    /// The record that holds byte `offset`.
    pub fn find(&self, offset: u32) -> Option<Found> {
        let groups = self.groups();
        let group = &groups[groups.partition_point(|group| group.end() <= offset)..].first()?;
        let i = group.records.partition_point(|record| record.end <= offset);
        let record = group.records.get(i)?;
        let start = if i == 0 { group.start } else { group.records[i - 1].end };
        Some(Found { zone: group.zone, at: record.at, start, end: record.end })
    }

    /// The records from `to.start` on that stood first in their group of zone `from` stand where `to` says now. `None`: they do
    /// not stand there; nothing is changed. Else whether `to.zone` has a group that it had not before, and whether `from` has
    /// lost its group.
    pub fn move_front(&mut self, from: u32, to: &GroupEntry) -> Option<(bool, bool)> {
        let i = self.groups().iter().position(|group| group.zone == from && group.start == to.start)?;
        let moved = self.groups()[i].records.get(..to.records.len())?;
        if !moved.iter().map(|r| r.end).eq(to.records.iter().map(|r| r.end)) {
            return None;
        }
        let mut groups = self.take_groups();
        let emptied = groups[i].records.len() == to.records.len();
        if emptied {
            groups.remove(i);
        } else {
            groups[i].start = to.records.last().map_or(to.start, |r| r.end);
            groups[i].records.drain(..to.records.len());
            groups[i].records.shrink_to_fit();
        }
        // What stands in one zone is one group: joined with the neighbours that are there already.
        let before = i.checked_sub(1).filter(|b| groups[*b].zone == to.zone);
        let new = before.is_none();
        let at = match before {
            Some(b) => {
                groups[b].records.extend_from_slice(&to.records);
                b
            }
            None => {
                groups.insert(i, Group { zone: to.zone, start: to.start, records: to.records.clone() });
                i
            }
        };
        let mut joined = false;
        if groups.get(at + 1).is_some_and(|next| next.zone == to.zone) {
            let next = groups.remove(at + 1);
            groups[at].records.extend(next.records);
            joined = true;
        }
        groups[at].records.shrink_to_fit();
        self.set_groups(groups);
        Some((new && !joined, emptied))
    }

    /// The record of zone `from` whose data begins at `offset` stands in zone `to` now. False: there is no such record.
    pub fn relocate(&mut self, from: u32, offset: u32, to: u32, at: u32) -> bool {
        let mut found = false;
        self.rewrite(|zone, start, record, put| match zone == from && start == offset {
            true => {
                found = true;
                put(to, RecordIndex { at, ..record });
            }
            false => put(zone, record),
        });
        found
    }

    /// Bytes that were known to be lost, from `start` on, stand in this record after all. False: they are not lost.
    pub fn restore(&mut self, zone: u32, start: u32, found: RecordIndex) -> bool {
        let mut restored = false;
        self.rewrite(|of, from, record, put| {
            if record.at != LOST || start < from || found.end > record.end {
                return put(of, record);
            }
            restored = true;
            if from < start {
                put(of, RecordIndex { end: start, at: LOST });
            }
            put(zone, found);
            if found.end < record.end {
                put(zone, RecordIndex { end: record.end, at: LOST });
            }
        });
        restored
    }

    /// Makes its groups anew of what becomes of each of its records: of their zone, where they begin, and themselves.
    fn rewrite(&mut self, mut each: impl FnMut(u32, u32, RecordIndex, &mut dyn FnMut(u32, RecordIndex))) {
        let mut groups: Vec<Group> = Vec::new();
        for group in self.take_groups() {
            for (start, record) in group.spans() {
                let mut put = |zone: u32, record: RecordIndex| {
                    let start = groups.last().map_or(start, Group::end);
                    match groups.last_mut().filter(|last| last.zone == zone) {
                        Some(last) => last.push(record),
                        None => groups.push(Group { zone, start, records: vec![record] }),
                    }
                };
                each(group.zone, start, record, &mut put);
            }
        }
        self.set_groups(groups);
    }

    /// The bytes from `offset` on are there no more, as after a write that never was. Only whole records may go.
    pub fn cut(&mut self, offset: u32) {
        let mut groups = self.take_groups();
        groups.retain_mut(|group| {
            group.records.retain(|record| record.end <= offset);
            !group.records.is_empty()
        });
        self.len = groups.last().map_or(0, Group::end);
        self.set_groups(groups);
    }

    /// Gives back memory that only an open chunk needs.
    pub fn shrink(&mut self) {
        self.groups_mut().iter_mut().for_each(|group| group.records.shrink_to_fit());
    }
}

/// All chunks, by id and by slot.
#[derive(Default)]
pub struct Index {
    pages: Vec<Box<[Option<Chunk>]>>,
    free: Vec<u32>,
    /// Slots, sorted by the id of the chunk; no page is empty.
    sorted: Vec<Vec<u32>>,
    len: usize,
}

impl Index {
    /// How many chunks there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// No chunk has this slot or a higher one.
    pub fn slots(&self) -> u32 {
        (self.pages.len() * PAGE) as u32
    }

    /// The chunk in this slot.
    pub fn chunk(&self, slot: u32) -> Option<&Chunk> {
        self.pages.get(slot as usize / PAGE)?[slot as usize % PAGE].as_ref()
    }

    /// The same, to change; its id must stay.
    pub fn chunk_mut(&mut self, slot: u32) -> Option<&mut Chunk> {
        self.pages.get_mut(slot as usize / PAGE)?[slot as usize % PAGE].as_mut()
    }

    fn id(&self, slot: u32) -> ChunkId {
        self.chunk(slot).map_or(ChunkId::default(), |chunk| chunk.id)
    }

    /// Page and place in it of the first chunk that is not before `id`.
    fn place(&self, id: &ChunkId) -> (usize, usize) {
        let page = self.sorted.partition_point(|page| page.last().is_some_and(|last| self.id(*last) < *id));
        let within = self.sorted.get(page).map_or(0, |page| page.partition_point(|slot| self.id(*slot) < *id));
        (page, within)
    }

    /// The slot of the chunk of this id.
    pub fn find(&self, id: &ChunkId) -> Option<u32> {
        let (page, within) = self.place(id);
        self.sorted.get(page)?.get(within).copied().filter(|slot| self.id(*slot) == *id)
    }

    /// Puts in a chunk whose id nobody has.
    pub fn insert(&mut self, chunk: Chunk) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            let first = self.slots();
            self.pages.push(std::iter::repeat_with(|| None).take(PAGE).collect());
            self.free.extend((first + 1..first + PAGE as u32).rev());
            first
        });
        let (mut page, mut within) = self.place(&chunk.id);
        self.pages[slot as usize / PAGE][slot as usize % PAGE] = Some(chunk);
        self.len += 1;
        if page == self.sorted.len() {
            // Behind all others.
            match self.sorted.last() {
                Some(last) if last.len() < LIST_PAGE => (page, within) = (page - 1, last.len()),
                _ => self.sorted.push(Vec::new()),
            }
        } else if self.sorted[page].len() == LIST_PAGE {
            let rest = self.sorted[page].split_off(LIST_PAGE / 2);
            self.sorted[page].shrink_to(LIST_PAGE / 2 + LIST_STEP);
            self.sorted.insert(page + 1, rest);
            if within > LIST_PAGE / 2 {
                (page, within) = (page + 1, within - LIST_PAGE / 2);
            }
        }
        let list = &mut self.sorted[page];
        if list.len() == list.capacity() {
            list.reserve_exact(LIST_STEP);
        }
        list.insert(within, slot);
        slot
    }

    /// Takes out the chunk in this slot.
    pub fn remove(&mut self, slot: u32) -> Option<Chunk> {
        let id = self.chunk(slot)?.id;
        let (page, within) = self.place(&id);
        self.sorted[page].remove(within);
        let next = self.sorted.get(page + 1).map_or(LIST_PAGE, Vec::len);
        if self.sorted[page].is_empty() {
            self.sorted.remove(page);
        } else if self.sorted[page].len() + next <= LIST_PAGE / 2 {
            let rest = self.sorted.remove(page + 1);
            self.sorted[page].extend(rest);
        }
        self.len -= 1;
        self.free.push(slot);
        self.pages[slot as usize / PAGE][slot as usize % PAGE].take()
    }

    /// Chunks behind `after` (from the first, where it is none), by id.
    pub fn range(&self, after: Option<&ChunkId>) -> impl Iterator<Item = &Chunk> {
        let (page, within) = match after {
            None => (0, 0),
            Some(id) => {
                let (page, within) = self.place(id);
                let there = self.sorted.get(page).and_then(|p| p.get(within)).is_some_and(|slot| self.id(*slot) == *id);
                (page, within + usize::from(there))
            }
        };
        let first = self.sorted.get(page).and_then(|page| page.get(within..)).unwrap_or_default();
        let rest = self.sorted.get(page + 1..).unwrap_or_default().iter().flatten();
        first.iter().chain(rest).filter_map(|slot| self.chunk(*slot))
    }
}

/// Bytes of a checkpoint for a chunk, a group and a record.
pub(crate) const CHUNK_COST: u64 = 48;
pub(crate) const GROUP_COST: u64 = 12;
pub(crate) const RECORD_COST: u64 = 8;

/// Bytes of a checkpoint that a chunk takes.
pub(crate) fn cost(chunk: &Chunk) -> u64 {
    CHUNK_COST + GROUP_COST * chunk.groups().len() as u64 + RECORD_COST * chunk.records() as u64
}

#[cfg(test)]
mod tests;
