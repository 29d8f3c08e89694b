//! Makes a table of sorted entries, piece by piece.

use super::block::{BLOCK, BlockBuilder, ENTRY};
use super::filter::{self, Filter};
use super::footer::{FOOTER, Footer, PROPERTIES, Parts, Properties};
use super::seal::{Packer, TRAILER, What};
use super::{Compression, Identity, Kind, MAX_KEY, varint};
use crate::order::Order;
use imbrex_device::{Error, Result};
use std::cmp::Ordering;
use std::sync::Arc;

/// A restart point every so many entries.
const DATA_INTERVAL: usize = 16;
/// Each look-up goes through two blocks of the index, and their keys share little.
const INDEX_INTERVAL: usize = 2;
/// Most bytes of an index entry beside its key.
const INDEX_ENTRY: u64 = (ENTRY + 2 * varint::MAX) as u64;
/// Bytes of a block beside its entries.
const AROUND: u64 = (BLOCK + TRAILER) as u64;
/// The length of the filter is estimated for a multiple of this many keys.
const FILTER_STEP: u64 = 256;

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// What a block is aimed at, in bytes: 4 to 64 KiB. A longer value has a block of its own.
    pub block: u32,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Whether it has a filter over its keys. Where the order may call different bytes equal it has none.
    pub filter: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { block: 16 << 10, compression: Compression::Off, filter: true }
    }
}

/// What is known of a finished table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Its bytes. [`Table::open`](super::Table::open) needs to know.
    pub len: u64,
    /// What it says about itself.
    pub properties: Properties,
}

/// An index block that waits for its place, and the last key in it.
struct IndexBlock {
    bytes: Vec<u8>,
    last: (Vec<u8>, u64),
}

/// Makes a table. Entries come in order; finished bytes can be taken at any time.
pub struct TableBuilder {
    order: Arc<dyn Order>,
    filter: bool,
    packer: Packer,
    properties: Properties,
    /// Finished bytes that nobody has taken.
    ready: Vec<u8>,
    /// All finished bytes.
    written: u64,
    data: BlockBuilder,
    /// Key and sequence number of the last entry.
    last: Option<(Vec<u8>, u64)>,
    /// A finished data block whose index entry waits for the next key.
    waiting: Option<(u64, u64)>,
    index: BlockBuilder,
    /// Sequence number of the last index entry.
    index_seq: u64,
    index_blocks: Vec<IndexBlock>,
    /// Most bytes that the finished index blocks need, and their entries in the top index.
    index_bytes: u64,
    hashes: Vec<u64>,
    /// Most bytes of a filter of so many keys.
    filter_bytes: (u64, u64),
}

impl TableBuilder {
    /// Begins a table.
    pub fn new(options: TableOptions, order: Arc<dyn Order>, identity: Identity) -> Result<Self> {
        if !(4 << 10..=64 << 10).contains(&options.block) {
            return Err(refused(format!("blocks of {} bytes; 4 to 64 KiB are possible", options.block)));
        }
        let properties = Properties {
            identity,
            order: order.name().to_owned(),
            compression: options.compression,
            block: options.block,
            smallest_seq: u64::MAX,
            ..Properties::default()
        };
        Ok(TableBuilder {
            order,
            filter: options.filter,
            packer: Packer::new(options.compression),
            properties,
            ready: Vec::new(),
            written: 0,
            data: BlockBuilder::new(DATA_INTERVAL),
            last: None,
            waiting: None,
            index: BlockBuilder::new(INDEX_INTERVAL),
            index_seq: 0,
            index_blocks: Vec::new(),
            index_bytes: 0,
            hashes: Vec::new(),
            filter_bytes: (0, 0),
        })
    }

    /// Adds an entry: behind the one before in the order of keys, or older than it for the same key. An entry that is refused changes nothing.
    pub fn add(&mut self, key: &[u8], seq: u64, kind: Kind, value: &[u8]) -> Result<()> {
        if key.len() > MAX_KEY || value.len() > u32::MAX as usize || (kind == Kind::Delete && !value.is_empty()) {
            return Err(refused(format!("an entry with a key of {} bytes and a value of {}", key.len(), value.len())));
        }
        let ordering = match &self.last {
            Some((last, _)) => self.order.compare(last, key),
            None => Ordering::Less,
        };
        if ordering == Ordering::Greater
            || ordering == Ordering::Equal && self.last.as_ref().is_some_and(|last| last.1 <= seq)
        {
            return Err(refused("an entry out of order".into()));
        }
        let block = self.properties.block as usize;
        if !self.data.is_empty() && self.data.len() + key.len() + value.len() + ENTRY > block {
            self.close_block();
        }
        if let Some(handle) = self.waiting.take() {
            self.index(handle, Some((key, ordering)));
        }
        self.data.add(key, seq, kind, value);
        if ordering == Ordering::Less {
            self.begin_key(key);
        }
        match &mut self.last {
            Some(last) => {
                last.0.clear();
                last.0.extend_from_slice(key);
                last.1 = seq;
            }
            last => *last = Some((key.to_vec(), seq)),
        }
        self.properties.count(key.len(), seq, kind, value.len());
        if self.data.len() >= block {
            self.close_block();
        }
        Ok(())
    }

    /// The deletions added hide so many bytes in other tables.
    pub fn add_hidden(&mut self, bytes: u64) {
        self.properties.hidden_bytes += bytes;
    }

    /// Finished bytes, behind those taken before.
    pub fn take_ready(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ready)
    }

    /// How many bytes [`take_ready`](Self::take_ready) would return.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Bytes of finished blocks so far.
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The table has at most so many bytes if it is finished now.
    pub fn estimated_len(&self) -> u64 {
        let last = self.last.as_ref().map_or(0, |last| last.0.len()) as u64;
        // The last index entry may begin one more index block. Then two of them are not in the top index yet.
        let index = self.index.len() as u64 + AROUND + last + INDEX_ENTRY + AROUND;
        let top = self.index.last().len() as u64 + last + 2 * INDEX_ENTRY + AROUND;
        let keys = self.properties.smallest.len() as u64 + last;
        let properties = (PROPERTIES + self.properties.order.len() + TRAILER) as u64 + keys;
        let data = self.data.len() as u64 + AROUND;
        let filter = self.filter_bytes.1 + TRAILER as u64;
        self.written + data + index + self.index_bytes + top + filter + properties + FOOTER as u64
    }

    /// The table has at most so many bytes if an entry of these lengths is added and the table finished then.
    pub fn estimated_len_with(&self, key: usize, value: usize) -> u64 {
        let last = self.last.as_ref().map_or(0, |last| last.0.len()) as u64;
        // It stands in a block, and may be the last of the table, of an index block and of the top index. What was last before may have got an
        // index entry and an entry of the top index. Three blocks may be one more.
        let keys = 5 * key as u64 + 3 * last;
        let filter = match self.filter {
            true if self.filter_bytes.0 <= self.hashes.len() as u64 => {
                filter::most_bytes(self.filter_bytes.0 + FILTER_STEP) - self.filter_bytes.1
            }
            _ => 0,
        };
        self.estimated_len() + keys + value as u64 + ENTRY as u64 + 3 * (INDEX_ENTRY + AROUND) + filter
    }

    /// The last bytes, behind those taken before, and what is known of the table.
    pub fn finish(mut self) -> Result<(Vec<u8>, TableMeta)> {
        if self.is_empty() {
            return Err(refused("a table of nothing".into()));
        }
        self.close_block();
        if let Some(handle) = self.waiting.take() {
            self.index(handle, None);
        }
        self.close_index();
        let mut parts = Parts { data: self.written, ..Parts::default() };
        let mut top = BlockBuilder::new(INDEX_INTERVAL);
        for block in std::mem::take(&mut self.index_blocks) {
            let at = self.written;
            let len = self.seal(What::Index, &block.bytes);
            top.add(&block.last.0, block.last.1, Kind::Put, &handle(at, len));
            parts.index += len;
        }
        if let Some(filter) = self.filter.then(|| std::mem::take(&mut self.hashes)).and_then(Filter::build) {
            parts.filter = self.seal(What::Filter, &filter.encode());
        }
        if !top.is_empty() {
            parts.top = self.seal(What::Top, top.finish());
        }
        self.properties.largest = self.last.take().map_or(Vec::new(), |last| last.0);
        parts.properties = self.seal(What::Properties, &self.properties.encode());
        Footer { identity: self.properties.identity, parts }.encode(&mut self.ready);
        Ok((self.ready, TableMeta { len: self.written + FOOTER as u64, properties: self.properties }))
    }

    /// A key that no entry had before.
    fn begin_key(&mut self, key: &[u8]) {
        if self.last.is_none() {
            self.properties.smallest = key.to_vec();
        }
        if self.filter && !self.order.is_exact(key) {
            self.filter = false;
            (self.hashes, self.filter_bytes) = (Vec::new(), (0, 0));
        }
        if self.filter {
            self.hashes.push(filter::hash(key));
            if self.filter_bytes.0 < self.hashes.len() as u64 {
                let keys = self.filter_bytes.0 + FILTER_STEP;
                self.filter_bytes = (keys, filter::most_bytes(keys));
            }
        }
    }

    fn close_block(&mut self) {
        if self.data.is_empty() {
            return;
        }
        let at = self.written;
        let life = self.properties.identity.life;
        let len = self.packer.seal(What::Data, self.data.finish(), life, at, &mut self.ready);
        self.data.clear();
        self.written += len;
        self.properties.data_blocks += 1;
        self.waiting = Some((at, len));
    }

    /// Adds a data block to the index. `next` is the key behind it, and how the last key in it compares to that.
    fn index(&mut self, block: (u64, u64), next: Option<(&[u8], Ordering)>) {
        let Some((last, last_seq)) = &self.last else { return };
        let (key, seq) = match next {
            // Versions of one key stand on both sides.
            Some((_, Ordering::Equal)) => (last.clone(), *last_seq),
            Some((next, _)) => {
                let short = self.order.separator(last, next);
                // An order that somebody else wrote is not believed.
                let between = short.len() <= last.len()
                    && self.order.compare(last, &short) != Ordering::Greater
                    && self.order.compare(&short, next) == Ordering::Less;
                (if between { short } else { last.clone() }, 0)
            }
            None => (last.clone(), 0),
        };
        if !self.index.is_empty()
            && self.index.len() + key.len() + INDEX_ENTRY as usize > self.properties.block as usize
        {
            self.close_index();
        }
        self.index.add(&key, seq, Kind::Put, &handle(block.0, block.1));
        self.index_seq = seq;
    }

    fn close_index(&mut self) {
        if self.index.is_empty() {
            return;
        }
        let last = (self.index.last().to_vec(), self.index_seq);
        let bytes = self.index.finish().to_vec();
        self.index.clear();
        self.index_bytes += bytes.len() as u64 + TRAILER as u64 + last.0.len() as u64 + INDEX_ENTRY;
        self.index_blocks.push(IndexBlock { bytes, last });
    }

    fn seal(&mut self, what: What, block: &[u8]) -> u64 {
        let len = self.packer.seal(what, block, self.properties.identity.life, self.written, &mut self.ready);
        self.written += len;
        len
    }
}

/// What an index entry has as its value.
fn handle(at: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * varint::MAX);
    varint::put(&mut bytes, at);
    varint::put(&mut bytes, len);
    bytes
}

fn refused(what: String) -> Error {
    Error::invalid(&"a table".into(), what)
}
