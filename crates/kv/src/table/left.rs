//! What is left of a damaged table: its entries in order, without the blocks that do not verify.
//!
//! Blocks stand one behind the other, and each verifies at its own place. So the end of a block can be found where no index tells it: the first trailer behind its
//! beginning that verifies. Indexes are only needed behind a block that is lost, to tell where the next one begins.

use super::block::{Block, Cursor};
use super::footer::{FOOTER, Footer, Parts, Properties};
use super::read::{Handle, Source};
use super::seal::{self, Packer, TRAILER, What};
use super::{Compression, Identity, Kind};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are searched for the end of a block at a time.
const PIECE: u64 = 64 << 10;

/// What stands where a block should.
enum Next {
    Block(Arc<Block>),
    /// Nothing that verifies.
    Lost(Range<u64>),
    /// No block of this kind comes any more.
    End,
}

/// Blocks of one kind, one behind the other.
struct Walk {
    source: Arc<dyn Source>,
    life: u64,
    what: What,
    at: u64,
    end: u64,
}

impl Walk {
    /// The next block. `told`: where an index says that a block stands, which is not before this place.
    fn next(&mut self, told: Option<Handle>) -> Next {
        if self.at >= self.end {
            return Next::End;
        }
        let told = told.filter(|told| told.end() <= self.end);
        if let Some(told) = told.filter(|told| told.at == self.at) {
            self.at = told.end();
            return self.load(told).map_or(Next::Lost(told.at..told.end()), Next::Block);
        }
        let limit = told.map_or(self.end, |told| told.at);
        match self.find(limit) {
            Some((what, _)) if what != self.what as u8 => {
                self.at = self.end;
                Next::End
            }
            Some((_, handle)) => {
                self.at = handle.end();
                self.load(handle).map_or(Next::Lost(handle.at..handle.end()), Next::Block)
            }
            None => Next::Lost(std::mem::replace(&mut self.at, limit)..limit),
        }
    }

    fn load(&self, handle: Handle) -> Option<Arc<Block>> {
        let bytes = self.source.read(handle.at, handle.len as usize).ok()?;
        let block = seal::unseal(self.what, bytes, self.life, handle.at).and_then(Block::parse);
        block.ok().map(Arc::new)
    }

    /// The block that begins at this place, and what it is, by its trailer, which ends at `limit` at the most.
    fn find(&self, limit: u64) -> Option<(u8, Handle)> {
        let mut search = seal::Search::new(self.life, self.at);
        let mut at = self.at;
        while at < limit {
            let bytes = self.source.read(at, PIECE.min(limit - at) as usize).ok().filter(|bytes| !bytes.is_empty())?;
            at += bytes.len() as u64;
            if let Some((what, len)) = search.more(&bytes) {
                return Some((what, Handle { at: self.at, len }));
            }
        }
        None
    }
}

/// Where data blocks stand, as the index says, as far as it can be read.
struct Index {
    walk: Walk,
    /// Where index blocks stand.
    top: Option<Cursor>,
    block: Option<Cursor>,
}

impl Index {
    /// The first data block at or behind `at` that it tells.
    fn told(&mut self, at: u64, data: u64) -> Option<Handle> {
        loop {
            while let Some(cursor) = self.block.as_mut().filter(|cursor| cursor.entry().is_some()) {
                match Handle::decode(cursor.value(), 0..data) {
                    Ok(handle) if handle.at >= at => return Some(handle),
                    _ if cursor.next().is_err() => break,
                    _ => {}
                }
            }
            let told = loop {
                let Some(top) = self.top.as_mut().filter(|top| top.entry().is_some()) else { break None };
                match Handle::decode(top.value(), self.walk.at..self.walk.end) {
                    Ok(handle) => break Some(handle),
                    Err(_) if top.next().is_err() => break None,
                    Err(_) => {}
                }
            };
            match self.walk.next(told) {
                Next::Block(block) => {
                    let mut cursor = Cursor::new(block);
                    self.block = cursor.first().is_ok().then_some(cursor);
                }
                Next::Lost(_) => self.block = None,
                Next::End => return None,
            }
        }
    }
}

/// Goes once through what is left.
pub(crate) struct Left {
    data: Walk,
    index: Option<Index>,
    block: Option<Cursor>,
    lost: (u64, u64),
    footer: bool,
    some: bool,
}

impl Left {
    /// Of the table of this life and of `len` bytes, the last of which may be of other things where its footer is lost. `data` and `index` both read the table: the
    /// one forward, the other here and there.
    pub fn new(data: Arc<dyn Source>, index: Arc<dyn Source>, len: u64, life: u64) -> Left {
        let parts = footer(&*index, len).filter(|footer| footer.identity.life == life).map(|footer| footer.parts);
        let index = parts.map(|parts| Index::new(index, parts, life));
        let end = parts.map_or(len, |parts| parts.data);
        let data = Walk { source: data, life, what: What::Data, at: 0, end };
        Left { data, index, block: None, lost: (0, 0), footer: parts.is_some(), some: false }
    }

    /// Goes to the next entry that is left. False: there is none.
    pub fn next(&mut self) -> bool {
        loop {
            if let Some(cursor) = &mut self.block {
                if cursor.next().is_err() {
                    // The rest of the block makes no sense.
                    self.lost.0 += 1;
                } else if cursor.entry().is_some() {
                    return true;
                }
                self.block = None;
            }
            let told = self.index.as_mut().and_then(|index| index.told(self.data.at, self.data.end));
            match self.data.next(told) {
                Next::Block(block) => {
                    let mut cursor = Cursor::new(block);
                    if cursor.first().is_ok() && cursor.entry().is_some() {
                        (self.block, self.some) = (Some(cursor), true);
                        return true;
                    }
                    self.lost.0 += 1;
                }
                Next::Lost(range) => self.lost = (self.lost.0 + 1, self.lost.1 + (range.end - range.start)),
                Next::End => return false,
            }
        }
    }

    /// The entry: key, number, what it does, and value. Only behind a [`next`](Left::next) that found one.
    pub fn entry(&self) -> Option<(&[u8], u64, Kind, &[u8])> {
        let cursor = self.block.as_ref()?;
        let entry = cursor.entry()?;
        Some((cursor.key(), entry.seq, entry.kind, cursor.value()))
    }

    /// Places where entries are lost, so far, and their bytes.
    pub fn lost(&self) -> (u64, u64) {
        self.lost
    }

    /// Whether it had an entry.
    pub fn has_some(&self) -> bool {
        self.some
    }

    /// Whether the table has its footer. Without it a loss is told where the data ends, too.
    pub fn has_footer(&self) -> bool {
        self.footer
    }
}

impl Index {
    fn new(source: Arc<dyn Source>, parts: Parts, life: u64) -> Index {
        let at = parts.top_at();
        let top = source.read(at, parts.top as usize).ok();
        let top = top.and_then(|bytes| seal::unseal(What::Top, bytes, life, at).and_then(Block::parse).ok());
        let top = top.map(|block| Cursor::new(Arc::new(block))).and_then(|mut top| top.first().ok().map(|()| top));
        let walk = Walk { source, life, what: What::Index, at: parts.data, end: parts.filter_at() };
        Index { walk, top, block: None }
    }
}

fn footer(source: &dyn Source, len: u64) -> Option<Footer> {
    let at = len.checked_sub(FOOTER as u64)?;
    Footer::decode(&source.read(at, FOOTER).ok()?, len).ok()
}

/// The footers that end in these bytes: where each ends, the bytes of its table, and which table that is.
pub(crate) fn footers(bytes: &[u8]) -> impl Iterator<Item = (usize, u64, Identity)> {
    let fronts = bytes.windows(super::footer::MAGIC.len()).enumerate();
    let found = fronts.filter(|(_, front)| *front == super::footer::MAGIC);
    found.filter_map(|(at, _)| {
        let footer = Footer::decode_any(bytes.get(at..at + FOOTER)?)?;
        Some((at + FOOTER, footer.parts.end(5) + FOOTER as u64, footer.identity))
    })
}

/// Bytes of a footer.
pub(crate) const FOOTER_BYTES: usize = FOOTER;

/// What a table says about itself, if that can be read.
pub(crate) fn properties(source: &dyn Source, len: u64, life: u64) -> Option<Properties> {
    let Footer { identity, parts } = footer(source, len).filter(|footer| footer.identity.life == life)?;
    let at = parts.properties_at();
    let bytes = source.read(at, parts.properties as usize).ok()?;
    let bytes = seal::unseal(What::Properties, bytes, life, at).ok()?;
    Properties::decode(&bytes, identity).ok()
}

/// These bytes as data blocks of a table of this life, one behind the other and with the right sums, compressed or not: for who tries what stands behind the sums.
pub(crate) fn sealed<'a>(blocks: impl Iterator<Item = &'a [u8]>, compression: Compression, life: u64) -> Vec<u8> {
    let (mut packer, mut table) = (Packer::new(compression), Vec::new());
    for block in blocks {
        let at = table.len() as u64;
        packer.seal(What::Data, block, life, at, &mut table);
    }
    table
}

const _: () = assert!(TRAILER < FOOTER);

#[cfg(test)]
mod tests {
    use super::super::{TableBuilder, TableOptions};
    use super::*;
    use crate::order::Bytewise;
    use imbrex_device::Result;

    struct Bytes(Vec<u8>);

    impl Source for Bytes {
        fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
            Ok(self.0[at as usize..][..len].to_vec())
        }

        fn drive(&self) -> Arc<str> {
            "bytes".into()
        }
    }

    const LIFE: u64 = 99;

    type Entries = Vec<(Vec<u8>, u64, Vec<u8>)>;

    /// A table with values of all lengths, also longer than what is searched at a time.
    fn table(compression: Compression) -> (Vec<u8>, Entries) {
        let options = TableOptions { block: 4096, compression, ..TableOptions::default() };
        let identity = Identity { table: 5, life: LIFE };
        let mut builder = TableBuilder::new(options, Arc::new(Bytewise), identity).unwrap();
        let (mut random, mut entries) = (1u64, Vec::new());
        for n in 0..120u64 {
            let len = [3, 700, 4084, 70_000, 200_000][n as usize % 5];
            let byte = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Many zeros, so that many places look like the end of a block.
                ((random >> 61) as u8).saturating_sub(4)
            };
            let value: Vec<u8> = std::iter::repeat_with(byte).take(len).collect();
            builder.add(format!("key {n:03}").as_bytes(), n, Kind::Put, &value).unwrap();
            entries.push((format!("key {n:03}").into_bytes(), n, value));
        }
        (builder.finish().unwrap().0, entries)
    }

    fn left(bytes: &[u8]) -> (Entries, (u64, u64)) {
        let source = || Arc::new(Bytes(bytes.to_vec()));
        let mut left = Left::new(source(), source(), bytes.len() as u64, LIFE);
        let mut found = Vec::new();
        while left.next() {
            let (key, seq, _, value) = left.entry().unwrap();
            found.push((key.to_vec(), seq, value.to_vec()));
        }
        (found, left.lost())
    }

    #[test]
    fn no_index_and_no_footer_is_needed() {
        for compression in [Compression::Off, Compression::Lz4, Compression::Zstd] {
            let (bytes, entries) = table(compression);
            let Some(footer) = footer(&Bytes(bytes.clone()), bytes.len() as u64) else { panic!("it has one") };
            assert_eq!(footers(&bytes).collect::<Vec<_>>(), [(bytes.len(), bytes.len() as u64, footer.identity)]);
            assert!(left(&bytes) == (entries.clone(), (0, 0)));
            // All indexes and the footer are gone, or only the footer.
            let mut bad = bytes.clone();
            bad[footer.parts.data as usize..].fill(0);
            assert!(left(&bad).0 == entries);
            let mut bad = bytes.clone();
            bad[bytes.len() - 1] ^= 1;
            assert!(left(&bad) == (entries.clone(), (0, 0)));
            // An index block, or the top index.
            for at in [footer.parts.data, footer.parts.top_at()] {
                let mut bad = bytes.clone();
                bad[at as usize + 3] ^= 1;
                assert!(left(&bad) == (entries.clone(), (0, 0)), "{at}");
            }
            // Nothing is read of another life.
            assert!(!Left::new(Arc::new(Bytes(bytes.clone())), Arc::new(Bytes(bytes)), 4096, LIFE + 1).next());
        }
    }
}
