//! Finds entries in a table.

use super::ahead::Ahead;
use super::block::Block;
use super::filter::{self, Filter};
use super::footer::{BadFooter, FOOTER, Footer, Parts, Properties};
use super::seal::{self, TRAILER, What};
use super::{Identity, Kind, Malformed, varint};
use crate::order::Order;
use imbrex_device::{Error, Result};
use std::cmp::Ordering;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// What is read at once when a table is opened, from its end.
const TAIL: u64 = 32 << 10;

/// Where a table's bytes are.
pub trait Source: Send + Sync {
    /// So many bytes from there on, all of them within the table.
    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>>;

    /// The drive that errors name.
    fn drive(&self) -> Arc<str>;

    /// Whether the way to a place takes as long as reading many bytes there.
    fn rotates(&self) -> bool {
        false
    }
}

/// A cache of blocks.
pub trait Blocks: Send + Sync {
    /// The block at `at` in the table of this number: the one that is cached, or what `load` reads.
    fn block(&self, table: u64, at: u64, load: &mut dyn FnMut() -> Result<Arc<Block>>) -> Result<Arc<Block>>;

    /// The block, if it is cached. That is no use of it.
    fn peek(&self, table: u64, at: u64) -> Option<Arc<Block>>;
}

/// No cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncached;

impl Blocks for Uncached {
    fn block(&self, _: u64, _: u64, load: &mut dyn FnMut() -> Result<Arc<Block>>) -> Result<Arc<Block>> {
        load()
    }

    fn peek(&self, _: u64, _: u64) -> Option<Arc<Block>> {
        None
    }
}

/// A value where it was read. It keeps its block in memory.
#[derive(Clone)]
pub struct Value {
    pub(super) block: Arc<Block>,
    pub(super) range: Range<usize>,
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.bytes(self.range.clone())
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// One version of a key.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its sequence number.
    pub seq: u64,
    /// What it does to the key.
    pub kind: Kind,
    /// Empty where it deletes the key.
    pub value: Value,
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Handle {
    pub(super) fn end(self) -> u64 {
        self.at + self.len
    }

    /// What stands in an index entry, if it is within these bytes of the table.
    pub(super) fn decode(bytes: &[u8], within: Range<u64>) -> Result<Handle, Malformed> {
        let mut end = 0;
        let at = varint::get(bytes, &mut end);
        let len = varint::get(bytes, &mut end);
        let (Some(at), Some(len)) = (at, len) else { return Err(Malformed("place of a block")) };
        let inside = at >= within.start && at.checked_add(len).is_some_and(|end| end <= within.end);
        if !inside || len <= TRAILER as u64 || end != bytes.len() {
            return Err(Malformed("place of a block"));
        }
        Ok(Handle { at, len })
    }
}

/// A table, open. Its top index, filter and properties are in memory.
pub struct Table {
    pub(super) source: Arc<dyn Source>,
    blocks: Arc<dyn Blocks>,
    pub(super) order: Arc<dyn Order>,
    pub(super) properties: Properties,
    pub(super) parts: Parts,
    pub(super) top: Option<Arc<Block>>,
    pub(super) filter: Option<Filter>,
}

impl Table {
    /// Opens the table of exactly `len` bytes that must have this identity and this order of keys.
    pub fn open(
        source: Arc<dyn Source>,
        len: u64,
        order: Arc<dyn Order>,
        identity: Identity,
        blocks: Arc<dyn Blocks>,
    ) -> Result<Table> {
        let tail = Tail::read(&*source, identity, len)?;
        let footer = tail.footer()?;
        let parts = footer.parts;
        let at = Handle { at: parts.properties_at(), len: parts.properties };
        let parse = |bytes: Vec<u8>| Properties::decode(&bytes, identity);
        let properties = tail
            .part(What::Properties, at, parse)?
            .ok_or_else(|| tail.damaged(What::Properties, at.at, Malformed("missing")))?;
        if properties.order != order.name() {
            let sentence = format!(
                "table {} has its keys in the order {:?}, not {:?}; open it with the order that it was written with",
                identity.table,
                properties.order,
                order.name()
            );
            return Err(Error::unusable(&source.drive(), sentence));
        }
        let at = Handle { at: parts.top_at(), len: parts.top };
        let top = tail.part(What::Top, at, |bytes| Block::parse(bytes).map(Arc::new))?;
        let at = Handle { at: parts.filter_at(), len: parts.filter };
        let filter = tail.part(What::Filter, at, Filter::decode)?;
        drop(tail);
        Ok(Table { source, blocks, order, properties, parts, top, filter })
    }

    /// What the table says about itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Memory that an open table takes, about: of filter and top index.
    pub fn memory(&self) -> usize {
        (self.parts.filter + self.parts.top) as usize + size_of::<Self>()
    }

    /// Whether an entry may have this key. A table without a filter always says so.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.top.is_some() && self.filter.as_ref().is_none_or(|filter| filter.may_contain(filter::hash(key)))
    }

    /// The newest version of a key that has at most this sequence number.
    pub fn get(&self, key: &[u8], at_seq: u64) -> Result<Option<Version>> {
        if self.may_contain(key) { self.version(key, at_seq) } else { Ok(None) }
    }

    fn version(&self, key: &[u8], at_seq: u64) -> Result<Option<Version>> {
        let to = (key, at_seq);
        let mut found = Vec::new();
        let Some((block, handle)) = self.data_block(to, &mut found)? else { return Ok(None) };
        let entry = block.seek(&*self.order, to, &mut found);
        // What is behind the end of this block is another key's: the index would have led to the next block.
        let Some(entry) = entry.map_err(|why| self.damaged(What::Data, handle.at, why))? else { return Ok(None) };
        if self.order.compare(&found, key) != Ordering::Equal {
            return Ok(None);
        }
        let value = Value { block, range: entry.value };
        Ok(Some(Version { seq: entry.seq, kind: entry.kind, value }))
    }

    /// The data block where to look for the first entry that is not before `to`.
    fn data_block(&self, to: (&[u8], u64), key: &mut Vec<u8>) -> Result<Option<(Arc<Block>, Handle)>> {
        let Some(handle) = self.data_handle(to, key)? else { return Ok(None) };
        Ok(Some((self.block(What::Data, handle, None)?, handle)))
    }

    fn data_handle(&self, to: (&[u8], u64), key: &mut Vec<u8>) -> Result<Option<Handle>> {
        let Some(top) = &self.top else { return Ok(None) };
        let Some(handle) = self.look_up(What::Top, top, self.parts.top_at(), to, key)? else { return Ok(None) };
        let index = self.block(What::Index, handle, None)?;
        self.look_up(What::Index, &index, handle.at, to, key)
    }

    /// Whether the drive has to be asked for the block of the first entry that is not before `to`. Damage is for whoever reads it.
    pub fn would_read(&self, to: (&[u8], u64)) -> bool {
        let (table, mut key) = (self.properties.identity.table, Vec::new());
        let Some(top) = &self.top else { return false };
        let Ok(Some(at)) = self.look_up(What::Top, top, self.parts.top_at(), to, &mut key) else { return false };
        let Some(index) = self.blocks.peek(table, at.at) else { return true };
        match self.look_up(What::Index, &index, at.at, to, &mut key) {
            Ok(Some(data)) => self.blocks.peek(table, data.at).is_none(),
            _ => false,
        }
    }

    /// Where the block stands that an index block at `at` names for `to`.
    fn look_up(
        &self,
        what: What,
        index: &Block,
        at: u64,
        to: (&[u8], u64),
        key: &mut Vec<u8>,
    ) -> Result<Option<Handle>> {
        let handle = index.seek(&*self.order, to, key).and_then(|entry| {
            entry.map(|entry| Handle::decode(index.bytes(entry.value), self.region(what))).transpose()
        });
        handle.map_err(|why| self.damaged(what, at, why))
    }

    /// Where the blocks stand that an index of this kind leads to.
    pub(super) fn region(&self, what: What) -> Range<u64> {
        match what {
            What::Top => self.parts.data..self.parts.filter_at(),
            _ => 0..self.parts.data,
        }
    }

    /// How many bytes of data stand before the entries of this key, about.
    pub fn approximate_offset(&self, key: &[u8]) -> Result<u64> {
        let handle = self.data_handle((key, u64::MAX), &mut Vec::new())?;
        Ok(handle.map_or(self.parts.data, |handle| handle.at))
    }

    /// A block through the cache, or from `source` past it.
    pub(super) fn block(&self, what: What, handle: Handle, source: Option<&dyn Source>) -> Result<Arc<Block>> {
        if let Some(source) = source {
            return self.load(what, handle, source);
        }
        let mut load = || self.load(what, handle, &*self.source);
        self.blocks.block(self.properties.identity.table, handle.at, &mut load)
    }

    /// A data block of who goes through the table. `on`: the one next to it was read, too.
    pub(super) fn block_ahead(&self, handle: Handle, ahead: &mut Ahead, back: bool, on: bool) -> Result<Arc<Block>> {
        let mut load = || {
            let wanted = handle.at..handle.end();
            let bytes = match back {
                true => ahead.read_back(&*self.source, wanted, on)?,
                false => ahead.read(&*self.source, wanted, self.parts.data, on)?,
            };
            self.unpack(What::Data, handle, bytes)
        };
        self.blocks.block(self.properties.identity.table, handle.at, &mut load)
    }

    pub(super) fn load(&self, what: What, handle: Handle, source: &dyn Source) -> Result<Arc<Block>> {
        self.unpack(what, handle, source.read(handle.at, handle.len as usize)?)
    }

    fn unpack(&self, what: What, handle: Handle, bytes: Vec<u8>) -> Result<Arc<Block>> {
        let block = match bytes.len() as u64 == handle.len {
            true => seal::unseal(what, bytes, self.properties.identity.life, handle.at).and_then(Block::parse),
            false => Err(Malformed("too short")),
        };
        block.map(Arc::new).map_err(|why| self.damaged(what, handle.at, why))
    }

    pub(super) fn damaged(&self, what: What, at: u64, why: Malformed) -> Error {
        damaged(&*self.source, self.properties.identity, what.name(), at, why)
    }
}

fn damaged(source: &dyn Source, identity: Identity, what: &str, at: u64, why: Malformed) -> Error {
    Error::corrupt(&source.drive(), format!("table {}, {what} at {at} ({})", identity.table, why.0))
        .checked_by("imbrex kv check")
}

/// The end of a table that is being opened.
struct Tail<'a> {
    source: &'a dyn Source,
    identity: Identity,
    len: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Tail<'a> {
    fn read(source: &'a dyn Source, identity: Identity, len: u64) -> Result<Self> {
        let at = len.saturating_sub(TAIL);
        let bytes = source.read(at, (len - at) as usize)?;
        if bytes.len() as u64 != len - at || bytes.len() < FOOTER {
            return Err(damaged(source, identity, "footer", at, Malformed("too short")));
        }
        Ok(Tail { source, identity, len, at, bytes })
    }

    fn footer(&self) -> Result<Footer> {
        let at = self.len - FOOTER as u64;
        let bad = |why| damaged(self.source, self.identity, "footer", at, Malformed(why));
        match Footer::decode(&self.bytes[self.bytes.len() - FOOTER..], self.len) {
            Ok(footer) if footer.identity == self.identity => Ok(footer),
            Ok(_) => Err(bad("another table's")),
            Err(BadFooter::Malformed(why)) => Err(bad(why.0)),
            Err(BadFooter::Version(version)) => {
                let table = self.identity.table;
                let sentence =
                    format!("table {table} has version {version} of its format; use the program that wrote it");
                Err(Error::unusable(&self.source.drive(), sentence))
            }
        }
    }

    /// A part of one block; `None` where it is not there.
    fn part<T>(
        &self,
        what: What,
        at: Handle,
        parse: impl FnOnce(Vec<u8>) -> Result<T, Malformed>,
    ) -> Result<Option<T>> {
        if at.len == 0 {
            return Ok(None);
        }
        let bytes = match at.at.checked_sub(self.at) {
            Some(from) => self.bytes[from as usize..(from + at.len) as usize].to_vec(),
            None => self.source.read(at.at, at.len as usize)?,
        };
        let part = match bytes.len() as u64 == at.len {
            true => seal::unseal(what, bytes, self.identity.life, at.at).and_then(parse),
            false => Err(Malformed("too short")),
        };
        part.map(Some).map_err(|why| self.damaged(what, at.at, why))
    }

    fn damaged(&self, what: What, at: u64, why: Malformed) -> Error {
        damaged(self.source, self.identity, what.name(), at, why)
    }
}
