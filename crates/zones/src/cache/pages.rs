//! The memory of cached pages: buffers are filled anew, not given back.
//!
//! Pages come and go on every thread that reads or writes, and a heap with an arena for each thread (glibc's) keeps what was
//! freed in the wrong one: a cache of 64 MiB was measured to hold 180 MiB. A buffer that stays costs its size once. A short
//! page, the end of a file, takes a whole one. Buffers are made many at a time: one by one, each cost a system call and
//! several page faults under the lock of the process's memory, a third of the processor time of filling a database.
//!
//! Pages of a file that are filled one after the other stand so in memory, [`RUN`] of them, where there is a place for it: who reads
//! the file without a copy then finds a quarter of a megabyte with one look.

use imbrex_device::Part;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Pages that shall stand one behind the other: those of a file from a multiple of this number on.
pub(super) const RUN: u32 = 16;
/// Of one allocation, in bytes: a large page of the processor.
const BATCH_BYTES: usize = 2 << 20;

/// Buffers of one size, and those of them that hold nothing now.
pub(super) struct Buffers {
    size: usize,
    /// How many are made at a time: some groups.
    batch: u32,
    group: u32,
    /// How many there may be for the sake of standing together.
    most: u64,
    free: Mutex<Free>,
}

/// In groups of [`RUN`] neighbours, or of a batch that has fewer. Those that miss some are used up before others are broken.
#[derive(Default)]
struct Free {
    groups: Vec<Group>,
    whole: BTreeSet<u32>,
    broken: BTreeSet<u32>,
    count: usize,
}

#[derive(Default)]
struct Group {
    parts: Vec<Option<Part>>,
    free: u32,
}

/// A cached page, or one that is being filled. Its buffer goes back when the last reader is gone.
pub struct Page {
    /// `None` only while it is dropped.
    buffer: Option<Part>,
    number: u32,
    len: u32,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Of `size` bytes each, for a cache of `capacity` bytes.
    pub(super) fn new(size: usize, capacity: u64) -> Arc<Self> {
        // Not more than a 128th of the cache lies idle.
        let bytes = usize::try_from(capacity / 128).unwrap_or(BATCH_BYTES).min(BATCH_BYTES);
        let batch = (bytes / size).max(1) as u32;
        let group = batch.min(RUN);
        let batch = batch / group * group;
        Arc::new(Buffers { size, batch, group, most: capacity / size.max(1) as u64, free: Mutex::default() })
    }

    /// A page that holds a copy of these pieces, one behind the other, which fit.
    pub(super) fn page(self: &Arc<Self>, data: &[&[u8]]) -> Arc<Page> {
        let mut page = self.blank();
        for piece in data {
            page.push(piece);
        }
        Arc::new(page)
    }

    /// A page without bytes and without room for any.
    pub(super) fn empty(self: &Arc<Self>) -> Arc<Page> {
        Arc::new(Page { buffer: None, number: 0, len: 0, home: self.clone() })
    }

    /// A page to be filled.
    pub(super) fn blank(self: &Arc<Self>) -> Page {
        let mut free = self.lock();
        if free.count == 0 {
            self.make(&mut free);
        }
        let group = free.broken.first().or(free.whole.first()).copied();
        let taken = group.and_then(|group| free.take(group, self.group));
        let (number, buffer) = taken.map_or((0, None), |(number, part)| (number, Some(part)));
        Page { buffer, number, len: 0, home: self.clone() }
    }

    /// [`RUN`] pages to be filled, one behind the other in memory; none where there is no such place, and no room to make one.
    pub(super) fn run(self: &Arc<Self>) -> Vec<Page> {
        let mut free = self.lock();
        let made = free.groups.len() as u64 * u64::from(self.group);
        if free.whole.is_empty() && made + u64::from(self.batch) <= self.most {
            self.make(&mut free);
        }
        let Some(group) = free.whole.first().copied().filter(|_| self.group == RUN) else { return Vec::new() };
        let taken = std::iter::from_fn(|| free.take(group, RUN)).take(RUN as usize);
        taken.map(|(number, part)| Page { buffer: Some(part), number, len: 0, home: self.clone() }).collect()
    }

    fn make(&self, free: &mut Free) {
        for part in Part::cut(self.batch as usize, self.size) {
            let number = match free.groups.last() {
                Some(group) if group.parts.len() < self.group as usize => group.parts.len() as u32,
                _ => {
                    free.groups.push(Group::default());
                    0
                }
            };
            let at = (free.groups.len() - 1) as u32;
            if let Some(group) = free.groups.last_mut() {
                group.parts.push(None);
            }
            free.put(at * self.group + number, part, self.group);
        }
    }

    /// Bytes of those that hold something.
    pub(super) fn used_bytes(&self) -> u64 {
        let free = self.lock();
        let made = free.groups.len() * self.group as usize;
        (made.saturating_sub(free.count) * self.size) as u64
    }

    /// How many hold nothing.
    pub(super) fn free(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// The first of a group, in the order of memory.
    fn take(&mut self, at: u32, size: u32) -> Option<(u32, Part)> {
        let group = self.groups.get_mut(at as usize)?;
        let (i, part) = group.parts.iter_mut().enumerate().find_map(|(i, part)| Some((i, part.take()?)))?;
        group.free -= 1;
        self.whole.remove(&at);
        match group.free {
            0 => self.broken.remove(&at),
            _ => self.broken.insert(at),
        };
        self.count -= 1;
        Some((at * size + i as u32, part))
    }

    fn put(&mut self, number: u32, part: Part, size: u32) {
        let at = number / size;
        let Some(group) = self.groups.get_mut(at as usize) else { return };
        let Some(place) = group.parts.get_mut((number % size) as usize) else { return };
        *place = Some(part);
        group.free += 1;
        if group.free == size {
            self.broken.remove(&at);
            self.whole.insert(at);
        } else {
            self.broken.insert(at);
        }
        self.count += 1;
    }
}

impl Page {
    /// Copies as much of `bytes` as there is room for behind those it has; returns how much.
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        let Some(buffer) = &mut self.buffer else { return 0 };
        let room = &mut buffer[self.len as usize..];
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.len += n as u32;
        n
    }

    /// All of its memory, also behind its bytes.
    pub(super) fn memory(&self) -> Option<&Part> {
        self.buffer.as_ref()
    }
}

impl Deref for Page {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.len as usize])
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.home.lock().put(self.number, buffer, self.home.group);
        }
    }
}
