//! Sorted entries that share the beginnings of their keys: data blocks, and both levels of the index.

use super::{Kind, MAX_KEY, Malformed, varint};
use crate::order::Order;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of an entry beside key and value, with its restart point.
pub(super) const ENTRY: usize = 3 + 3 + 5 + varint::MAX + 4;
/// Bytes of a block beside its entries and restart points.
pub(super) const BLOCK: usize = 4;

/// The order of entries: by key, then the newest first.
pub(super) fn compare(order: &dyn Order, a: (&[u8], u64), b: (&[u8], u64)) -> Ordering {
    order.compare(a.0, b.0).then(b.1.cmp(&a.1))
}

/// Makes a block.
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    /// Entries since the last restart point.
    run: usize,
    /// A restart point every so many entries.
    interval: usize,
    last: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn new(interval: usize) -> Self {
        BlockBuilder { bytes: Vec::new(), restarts: Vec::new(), run: interval, interval, last: Vec::new() }
    }

    /// The caller sees to the order. Keys have at most [`MAX_KEY`] bytes, values fewer than 4 GiB.
    pub(super) fn add(&mut self, key: &[u8], seq: u64, kind: Kind, value: &[u8]) {
        let mut shared = 0;
        if self.run == self.interval {
            self.restarts.push(self.bytes.len() as u32);
            self.run = 0;
        } else {
            shared = common(&self.last, key);
        }
        self.run += 1;
        varint::put(&mut self.bytes, shared as u64);
        varint::put(&mut self.bytes, (key.len() - shared) as u64);
        varint::put(&mut self.bytes, (value.len() as u64) << 2 | kind as u64);
        varint::put(&mut self.bytes, seq);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// The last key added.
    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    /// How long the block is, if nothing else is added.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + BLOCK
    }

    /// The whole block. [`clear`](Self::clear) begins another one.
    pub(super) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.run = self.interval;
        self.last.clear();
    }
}

/// How many bytes both begin with.
fn common(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

/// A block in memory: verified and decompressed.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    /// Where the entries end, and the restart points begin.
    entries: usize,
    restarts: usize,
}

/// An entry's place in its block.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    at: usize,
    shared: usize,
    /// Where the rest of the key stands; the value follows.
    own: usize,
    pub(super) seq: u64,
    pub(super) kind: Kind,
    pub(super) value: Range<usize>,
}

impl Entry {
    /// Where it begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

impl Block {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Block, Malformed> {
        let (rest, restarts) = bytes.split_last_chunk::<4>().ok_or(Malformed("too short"))?;
        let restarts = u32::from_le_bytes(*restarts) as usize;
        let entries = restarts.checked_mul(4).and_then(|len| rest.len().checked_sub(len));
        let entries = entries.filter(|entries| *entries > 0).ok_or(Malformed("restart points"))?;
        let block = Block { bytes, entries, restarts };
        let mut all = (0..restarts).map(|n| block.restart(n));
        // The last one is the highest.
        if all.next() != Some(0) || !(0..restarts).is_sorted_by(|a, b| block.restart(*a) < block.restart(*b)) {
            return Err(Malformed("restart points"));
        }
        if block.restart(restarts - 1) >= entries {
            return Err(Malformed("restart points"));
        }
        Ok(block)
    }

    /// Memory that it takes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    pub(super) fn restart(&self, n: usize) -> usize {
        let bytes = self.bytes[self.entries + 4 * n..].first_chunk::<4>();
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
    }

    pub(super) fn restarts(&self) -> usize {
        self.restarts
    }

    /// The entry that begins there, which is before the end of all.
    #[inline]
    fn entry(&self, at: usize) -> Result<Entry, Malformed> {
        let bytes = &self.bytes[..self.entries];
        let mut own = at;
        let mut number = || varint::get(bytes, &mut own).ok_or(Malformed("entry"));
        let (shared, rest, value, seq) = (number()?, number()?, number()?, number()?);
        let kind = Kind::of(value as u8 & 3).ok_or(Malformed("kind of an entry"))?;
        if shared > MAX_KEY as u64 || rest > MAX_KEY as u64 - shared || value >> 2 > u64::from(u32::MAX) {
            return Err(Malformed("length of an entry"));
        }
        let start = own + rest as usize;
        let end = start + (value >> 2) as usize;
        if end > self.entries || (kind == Kind::Delete && start != end) {
            return Err(Malformed("length of an entry"));
        }
        Ok(Entry { at, shared: shared as usize, own, seq, kind, value: start..end })
    }

    /// The entry at a restart point, and its key.
    pub(super) fn entry_at_restart(&self, n: usize) -> Result<(Entry, &[u8]), Malformed> {
        let entry = self.entry(self.restart(n))?;
        if entry.shared != 0 {
            return Err(Malformed("restart points"));
        }
        let key = &self.bytes[entry.own..entry.value.start];
        Ok((entry, key))
    }

    /// The entry that begins at `at`, if that is not the end. `key` is the key before it, and becomes its key.
    #[inline]
    fn read(&self, at: usize, key: &mut Vec<u8>) -> Result<Option<Entry>, Malformed> {
        if at >= self.entries {
            return Ok(None);
        }
        let entry = self.entry(at)?;
        if entry.shared > key.len() {
            return Err(Malformed("beginning of a key"));
        }
        key.truncate(entry.shared);
        key.extend_from_slice(&self.bytes[entry.own..entry.value.start]);
        Ok(Some(entry))
    }

    /// The first entry that is not before `to`. Its key is then in `key`.
    pub(super) fn seek(
        &self,
        order: &dyn Order,
        to: (&[u8], u64),
        key: &mut Vec<u8>,
    ) -> Result<Option<Entry>, Malformed> {
        // Some restart point from `low` to `high` is the last whose entry is before `to`, or the first of all.
        let (mut low, mut high) = (0, self.restarts - 1);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let (entry, first) = self.entry_at_restart(middle)?;
            if compare(order, (first, entry.seq), to) == Ordering::Less {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        key.clear();
        let mut at = self.restart(low);
        while let Some(entry) = self.read(at, key)? {
            if compare(order, (key, entry.seq), to) != Ordering::Less {
                return Ok(Some(entry));
            }
            at = entry.value.end;
        }
        Ok(None)
    }
}

/// A place in a block: at an entry, or at none.
#[derive(Clone)]
pub(super) struct Cursor {
    block: Arc<Block>,
    entry: Option<Entry>,
    key: Vec<u8>,
}

impl Cursor {
    pub(super) fn new(block: Arc<Block>) -> Self {
        Cursor { block, entry: None, key: Vec::new() }
    }

    pub(super) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Goes to another block, and keeps the memory for keys.
    pub(super) fn enter(&mut self, block: Arc<Block>) {
        self.block = block;
        self.entry = None;
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<&Entry> {
        self.entry.as_ref()
    }

    /// Of the entry that it is at.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Of the entry that it is at.
    pub(super) fn value(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |entry| self.block.bytes(entry.value.clone()))
    }

    pub(super) fn seek(&mut self, order: &dyn Order, to: (&[u8], u64)) -> Result<(), Malformed> {
        self.entry = None;
        self.entry = self.block.seek(order, to, &mut self.key)?;
        Ok(())
    }

    pub(super) fn first(&mut self) -> Result<(), Malformed> {
        self.key.clear();
        self.read(0)
    }

    pub(super) fn last(&mut self) -> Result<(), Malformed> {
        self.until(self.block.entries)
    }

    /// From no entry it goes nowhere.
    #[inline]
    pub(super) fn next(&mut self) -> Result<(), Malformed> {
        match &self.entry {
            Some(entry) => self.read(entry.value.end),
            None => Ok(()),
        }
    }

    /// From no entry it goes nowhere.
    pub(super) fn prev(&mut self) -> Result<(), Malformed> {
        match self.entry.take() {
            Some(entry) if entry.at > 0 => self.until(entry.at),
            _ => Ok(()),
        }
    }

    #[inline]
    fn read(&mut self, at: usize) -> Result<(), Malformed> {
        self.entry = None;
        self.entry = self.block.read(at, &mut self.key)?;
        Ok(())
    }

    /// Goes to the entry that ends at `end`, which is not 0.
    fn until(&mut self, end: usize) -> Result<(), Malformed> {
        let block = &self.block;
        let (mut low, mut high) = (0, block.restarts);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if block.restart(middle) < end { low = middle } else { high = middle }
        }
        self.key.clear();
        self.read(self.block.restart(low))?;
        while let Some(entry) = &self.entry {
            match entry.value.end.cmp(&end) {
                Ordering::Less => self.read(entry.value.end)?,
                Ordering::Equal => return Ok(()),
                Ordering::Greater => break,
            }
        }
        self.entry = None;
        Err(Malformed("restart points"))
    }
}
