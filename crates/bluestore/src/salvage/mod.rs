//! Salvage: objects of a drive whose metadata are lost or cannot be opened, without changing a bit of it.
//!
//! 1. A walk reads the headers of all runs (`walk`). They name objects by number, blobs by number within their objects, and places. They have checksums of all grains, and
//!    most have the objects' names and sizes.
//! 2. Whoever has pairs of the metadata adds them ([`Salvage::add`]): names, sizes, attributes, omaps, extents, checksums, bytes that wait. All this is kept in a key-value store that the caller gives (`index`).
//! 3. An object whose record is there is what that says. A block that is not where its blob's record says is looked for by the headers: a copy that was moved is as good.
//!    Where the metadata are not whole, blobs that are numbered behind the record's are newer than it, and so may a name in a header be.
//! 4. Of other objects the newest blob of each block counts (`span`). Where that is damaged, an older one stands for it, and the object is doubtful.
//! 5. An object is as long as its record says, or the newest name, and longer where blobs that are newer than that end behind it. Nobody knows where in their last block they end.
//!
//! What only the metadata knew is lost with them: attributes, omaps, clones that nobody has written to, holes and truncations since the last write, deferred bytes. What was
//! deleted or overwritten comes back where nothing newer was found, and so may the last writes before a crash that nobody was promised.

mod index;
mod span;
mod walk;

pub use walk::Walked;

use crate::blob::BLOCK;
use crate::codec::{MAX_NUMBER, Reader};
use crate::id::{CollectionId, ObjectId, bits_of};
use crate::keyvalue::{Family, KeyValue};
use crate::omap;
use crate::onode::{Hint, MAX_OBJECT, Onode, SPAN, Span, of_span_key, span_key};
use crate::run::RunHeader;
use crate::super_block::SuperBlock;
use crate::taker::{Head, Taker};
use imbrex_device::{Result, ZonedDevice};
use index::{Index, marked, of_key, span_keys};
use span::{Block, SpanBytes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The namespace of objects whose names are lost.
pub const UNNAMED: &[u8] = b"salvaged";
/// Sentences about one object at most.
const MOST_DOUBTS: usize = 20;
/// Bytes of pairs that are handed over together.
const PAIRS: usize = 1 << 20;

/// The volume whose metadata these are, by the first record of its store; `None`: the record makes no sense. That record is of the family [`Super`](Family::Super), and its key is `all`.
pub fn volume_of(record: &[u8]) -> Option<[u8; 16]> {
    SuperBlock::volume_of(record)
}

/// How objects are chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// The metadata are whole: objects that they do not know were deleted.
    pub whole: bool,
    /// Those come as well.
    pub deleted: bool,
}

/// What came of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Objects that were handed over.
    pub objects: u64,
    /// Those of which only runs tell.
    pub of_runs: u64,
    /// Those without a name.
    pub unnamed: u64,
    /// Those of which something is doubtful.
    pub doubtful: u64,
    /// Bytes that were handed over.
    pub bytes: u64,
    /// Bytes that are lost, and read as zeros.
    pub lost: u64,
    /// Bytes that stand for newer ones, which are lost.
    pub older: u64,
    /// Records of objects that make no sense.
    pub senseless: u64,
}

/// See the module.
pub struct Salvage {
    device: Arc<dyn ZonedDevice>,
    index: Index,
    walked: Walked,
    /// All records of objects that came make sense.
    sensible: bool,
}

/// An object that is being put together.
struct Found {
    number: u64,
    head: Head,
    /// Its record; `None`: only runs tell of it.
    onode: Option<Onode>,
    doubts: Vec<String>,
    more_doubts: u64,
}

impl Found {
    fn doubt(&mut self, sentence: String) {
        if self.doubts.len() < MOST_DOUBTS { self.doubts.push(sentence) } else { self.more_doubts += 1 }
    }
}

impl Salvage {
    /// Walks over the runs of a drive: those of the volume that is asked for, or of the one that was written to last. `scratch` is an empty key-value store that is this salvage's. `progress` gets zones,
    /// and of how many.
    ///
    /// # Errors
    /// Those of `scratch`, and of a report of zones. What cannot be read is no error.
    pub fn walk(
        device: Arc<dyn ZonedDevice>,
        scratch: Arc<dyn KeyValue>,
        volume: Option<[u8; 16]>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Salvage> {
        let mut index = Index::new(scratch);
        let mut each = |header: &RunHeader, data, end| index.add_run(header, (data, end));
        let walked = walk::walk(device.as_ref(), volume, &mut each, progress)?;
        index.flush()?;
        Ok(Salvage { device, index, walked, sensible: true })
    }

    /// What the walk has seen.
    pub fn walked(&self) -> &Walked {
        &self.walked
    }

    /// Adds a pair of the metadata. Pairs come family by family, in the order of their letters.
    ///
    /// # Errors
    /// Those of `scratch`.
    pub fn add(&mut self, family: Family, key: &[u8], value: &[u8]) -> Result<()> {
        if family == Family::Onodes {
            self.sensible &= of_pair(key, value).is_some();
        }
        self.index.add_pair(family, key.to_vec(), value.to_vec())
    }

    /// Whether all records of objects that were added make sense. Where one does not, [`Salvage::read`] takes the metadata for not whole: the object of that record was not deleted.
    pub fn is_sensible(&self) -> bool {
        self.sensible
    }

    /// Hands over all objects. Call it once.
    ///
    /// # Errors
    /// Those of `to` and of `scratch`, and of a drive that takes no commands.
    pub fn read(&mut self, choice: Choice, to: &mut dyn Taker) -> Result<Salvaged> {
        self.index.flush()?;
        let choice = Choice { whole: choice.whole && self.sensible, ..choice };
        let mut told = Salvaged::default();
        self.collections(to)?;
        self.known(choice, to, &mut told)?;
        self.index.flush()?;
        if choice.deleted || !choice.whole {
            self.choose_names()?;
            self.others(to, &mut told)?;
        }
        Ok(told)
    }

    fn collections(&self, to: &mut dyn Taker) -> Result<()> {
        self.index.each(Family::Collections, Vec::new(), None, |key, value| {
            if let Some((collection, bits)) = CollectionId::of_key(&key).zip(bits_of(&value)) {
                to.collection(collection, bits)?;
            }
            Ok(true)
        })
    }

    /// Objects that the metadata know.
    fn known(&mut self, choice: Choice, to: &mut dyn Taker, told: &mut Salvaged) -> Result<()> {
        let mut next = Some(Vec::new());
        while let Some(from) = next.take() {
            let pairs = self.index.kv.pairs(Family::Onodes, &from, None, 64)?;
            next = pairs.last().map(|(key, _)| [&key[..], &[0]].concat());
            for (key, value) in pairs {
                let Some((id, onode)) = of_pair(&key, &value) else {
                    told.senseless += 1;
                    continue;
                };
                self.index.put(Family::Statistics, marked(b'k', onode.number), Vec::new())?;
                let mut name = vec![b'n'];
                name.extend(key);
                // No name of a run is newer.
                self.index.put(Family::Statistics, name, winner(u64::MAX, onode.number))?;
                let head = Head { id, size: onode.size, hint: onode.hint, attributes: onode.attributes.clone() };
                let number = onode.number;
                let mut found = Found { number, head, onode: Some(onode), doubts: Vec::new(), more_doubts: 0 };
                if !choice.whole {
                    self.grow(&mut found)?;
                }
                self.hand_over(found, choice, to, told)?;
            }
        }
        Ok(())
    }

    /// Of several objects with one name the last has it: one may have been deleted before the other was made.
    fn choose_names(&mut self) -> Result<()> {
        let mut number = Some(0);
        while let Some(from) = number {
            number = self.next_number(from)?;
            let Some(found) = number else { break };
            number = found.checked_add(1);
            let Some(name) = self.index.name(found)? else { continue };
            let key = [b"n", &name.id.key()[..]].concat();
            let there = self.index.kv.get(Family::Statistics, &key)?;
            if there.and_then(|there| of_winner(&there)).is_none_or(|(version, _)| version < name.version) {
                self.index.put(Family::Statistics, key, winner(name.version, found))?;
                self.index.flush()?;
            }
        }
        Ok(())
    }

    /// The next number of an object that has a piece.
    fn next_number(&self, from: u64) -> Result<Option<u64>> {
        let pairs = self.index.kv.pairs(Family::Zones, &span_keys(from, 0).0, None, 1)?;
        Ok(pairs.first().and_then(|(key, _)| of_key(key)).map(|(number, _)| number).filter(|n| *n <= MAX_NUMBER))
    }

    /// Objects that only runs tell of.
    fn others(&mut self, to: &mut dyn Taker, told: &mut Salvaged) -> Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            let Some(number) = self.next_number(from)? else { break };
            next = number.checked_add(1);
            if self.index.kv.get(Family::Statistics, &marked(b'k', number))?.is_some() {
                continue;
            }
            let mut found = self.found(number, told)?;
            found.doubt("the metadata do not tell of it: its bytes are the newest that its blobs have".into());
            told.of_runs += 1;
            self.hand_over(found, Choice::default(), to, told)?;
        }
        Ok(())
    }

    fn found(&self, number: u64, told: &mut Salvaged) -> Result<Found> {
        let named = self.index.name(number)?;
        let winner = match &named {
            Some(name) => self.index.kv.get(Family::Statistics, &[b"n", &name.id.key()[..]].concat())?,
            None => None,
        };
        let has_it = winner.and_then(|winner| of_winner(&winner)).is_some_and(|(_, of)| of == number);
        let unnamed = || self.unnamed(number);
        let mut doubts = Vec::new();
        let size = named.as_ref().map_or(0, |named| named.size);
        let id = match named {
            Some(name) if has_it => name.id,
            Some(name) => {
                doubts.push(format!("it had the name of {}, which a newer object has", name.id));
                unnamed()?
            }
            None => {
                doubts.push("its name is lost, and its size: it ends with a whole block".into());
                unnamed()?
            }
        };
        told.unnamed += u64::from(id.namespace == UNNAMED);
        let head = Head { id, size: size.min(MAX_OBJECT), hint: Hint::default(), attributes: BTreeMap::new() };
        let mut found = Found { number, head, onode: None, doubts, more_doubts: 0 };
        self.grow(&mut found)?;
        Ok(found)
    }

    /// A name for an object without one, which no other object has: one may come from a salvage before.
    fn unnamed(&self, number: u64) -> Result<ObjectId> {
        let mut id = ObjectId::new(0, UNNAMED, format!("object-{number}").as_bytes());
        let mut more = 0u64;
        while self.index.kv.get(Family::Statistics, &[b"n", &id.key()[..]].concat())?.is_some() {
            more += 1;
            id = ObjectId::new(0, UNNAMED, format!("object-{number}-{more}").as_bytes());
        }
        Ok(id)
    }

    /// The object gets the size that the newest of its record and its names says, and is longer where blobs that are newer than that end behind it.
    fn grow(&self, found: &mut Found) -> Result<()> {
        let named = self.index.name(found.number)?;
        let (version, next) = found.onode.as_ref().map_or((0, 0), |onode| (onode.version, onode.next_blob));
        let newer = named.as_ref().filter(|named| found.onode.is_none() || named.version > version);
        let size = newer.map_or(found.head.size, |named| named.size.min(MAX_OBJECT));
        if size != found.head.size {
            found
                .doubt(format!("its size is that of a header of a run, which is newer than its record ({size} bytes)"));
            found.head.size = size;
        }
        let behind = newer.map_or(next, |named| next.max(named.next_blob));
        let end = (self.index.end_of(found.number, behind)? * BLOCK).min(MAX_OBJECT);
        if found.onode.is_some() && self.index.end_of(found.number, next)? > 0 {
            found.doubt("its record is older than some of its bytes: they are those of the newest blobs".into());
        }
        if end > size {
            if found.onode.is_some() || named.is_some() {
                found.doubt(format!(
                    "bytes were written behind its size of {size}, which is older: it ends with a whole block, at {end}"
                ));
            }
            found.head.size = end;
        }
        Ok(())
    }

    fn hand_over(&self, mut found: Found, choice: Choice, to: &mut dyn Taker, told: &mut Salvaged) -> Result<()> {
        to.begin(&found.head)?;
        let spans = found.head.size.div_ceil(SPAN * BLOCK);
        let mut next = Some(0);
        while let Some(from) = next.take() {
            let Some(span) = self.next_span(&found, choice, from)?.filter(|span| *span < spans) else { break };
            next = Some(span + 1);
            let bytes = self.span(&mut found, choice, span)?;
            give(&mut found, span, &bytes, to, told)?;
        }
        if let Some(onode) = found.onode.as_ref().filter(|onode| onode.omap > 0) {
            self.omap(onode.omap, to)?;
        }
        if found.more_doubts > 0 {
            found.doubts.push(format!("and {} more", found.more_doubts));
        }
        found.doubts.iter().try_for_each(|doubt| to.doubt(doubt))?;
        told.objects += 1;
        told.doubtful += u64::from(!found.doubts.is_empty());
        to.end()
    }

    /// The next span from one on of which anything tells.
    fn next_span(&self, found: &Found, choice: Choice, from: u64) -> Result<Option<u64>> {
        let (number, mut next) = (found.number, None::<u64>);
        let mut first = |span: u64| next = Some(next.map_or(span, |next| next.min(span)));
        if let Some(onode) = &found.onode {
            if from == 0 && !onode.first.0.is_empty() {
                return Ok(Some(0));
            }
            let end = span_key(number, u64::MAX);
            let pairs = self.index.kv.pairs(Family::Extents, &span_key(number, from.max(1)), Some(&end), 1)?;
            pairs.first().and_then(|(key, _)| of_span_key(key)).into_iter().for_each(|(_, span)| first(span));
        }
        if found.onode.is_none() || !choice.whole {
            let end = span_keys(number + 1, 0).0;
            let pairs = self.index.kv.pairs(Family::Zones, &span_keys(number, from).0, Some(&end), 1)?;
            pairs.first().and_then(|(key, _)| of_key(key)).into_iter().for_each(|(_, span)| first(span));
        }
        Ok(next)
    }

    fn span(&self, found: &mut Found, choice: Choice, span: u64) -> Result<SpanBytes> {
        let reader = span::Reader { device: self.device.as_ref(), index: &self.index };
        let Some(onode) = &found.onode else { return reader.of_runs(found.number, span) };
        let newer = (!choice.whole).then_some(onode.next_blob);
        if span == 0 {
            return reader.of_extents(found.number, span, &onode.first.0, newer);
        }
        let record = self.index.kv.get(Family::Extents, &span_key(found.number, span))?;
        let extents = record.as_ref().map(|record| Span::of_record(record, found.number));
        match extents {
            Some(Some(extents)) => reader.of_extents(found.number, span, &extents.0, newer),
            Some(None) => {
                found.doubt(format!(
                    "the record of its bytes from {} on makes no sense; they are the newest that its blobs have",
                    span * SPAN * BLOCK
                ));
                reader.of_runs(found.number, span)
            }
            // What is behind the end of the record is newer than it.
            None if !choice.whole && span * SPAN * BLOCK >= onode.size => {
                reader.of_extents(found.number, span, &[], newer)
            }
            // The record is lost, or the bytes were deleted and are there still.
            None if !choice.whole => {
                found.doubt(format!(
                    "no record tells of its bytes from {} on; they are the newest that its blobs have",
                    span * SPAN * BLOCK
                ));
                reader.of_runs(found.number, span)
            }
            None => reader.of_extents(found.number, span, &[], None),
        }
    }

    fn omap(&self, number: u64, to: &mut dyn Taker) -> Result<()> {
        if let Some(header) = self.index.kv.get(Family::Omap, &omap::header_key(number))? {
            to.omap_header(&header)?;
        }
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        self.index.each(Family::Omap, omap::pair_key(number, &[]), Some(omap::end_key(number)), |key, value| {
            bytes += key.len() + value.len();
            pairs.push((omap::user_key(number, &key).to_vec(), value));
            if bytes >= PAIRS {
                bytes = 0;
                to.omap(std::mem::take(&mut pairs))?;
            }
            Ok(true)
        })?;
        if pairs.is_empty() { Ok(()) } else { to.omap(pairs) }
    }
}

fn of_pair(key: &[u8], value: &[u8]) -> Option<(ObjectId, Onode)> {
    ObjectId::of_key(key).zip(Onode::decode(value))
}

fn winner(version: u64, number: u64) -> Vec<u8> {
    [version.to_le_bytes(), number.to_le_bytes()].concat()
}

fn of_winner(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut from = Reader(bytes);
    Some((from.u64()?, from.u64()?))
}

/// A record of the index: hostile bytes are refused, or are what they were.
pub(crate) fn fuzz_stored(bytes: &[u8]) {
    if let Some(stored) = index::Stored::decode(bytes) {
        assert_eq!(index::Stored::decode(&stored.encode()), Some(stored));
    }
}

/// Hands over what a span has, and notes what it has not.
fn give(found: &mut Found, span: u64, of: &SpanBytes, to: &mut dyn Taker, told: &mut Salvaged) -> Result<()> {
    let (begin, size) = (span * SPAN * BLOCK, found.head.size);
    let within = |block: usize| (begin + block as u64 * BLOCK).min(size);
    let mut at = 0;
    while at < of.blocks.len() {
        let is = of.blocks[at];
        let end = at + of.blocks[at..].iter().take_while(|block| **block == is).count();
        let (from, until) = (within(at), within(end));
        if from < until && matches!(is, Block::Whole | Block::Older) {
            let first = at * BLOCK as usize;
            to.bytes(from, &of.bytes[first..first + (until - from) as usize])?;
            told.bytes += until - from;
        }
        if from < until && is == Block::Older {
            told.older += until - from;
            found.doubt(format!("bytes {from} to {until} are older than those that were written last, which are lost"));
        }
        if from < until && is == Block::Lost {
            told.lost += until - from;
            found.doubt(format!("bytes {from} to {until} are lost, and read as zeros"));
        }
        at = end;
    }
    Ok(())
}
