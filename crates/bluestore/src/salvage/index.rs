//! What a salvage keeps of runs and metadata, in a key-value store of its own, so that it needs hardly any memory.
//!
//! Families of metadata have there what they have in a store. Others have:
//!
//! | family | key | value |
//! | --- | --- | --- |
//! | zones | ordered: object, span, blob; mount, group, first block, place | zone, block, the piece of the run and its checksums |
//! | super | `n`, ordered: object; version | a name, as in the header of a run |
//! | statistics | `n`, key of an object | version and number of the object that has this name |
//! | statistics | `k`, ordered: object | nothing: the metadata know the object |
//! | statistics | `h`, ordered: object | nothing: its blobs are listed, as the next line says |
//! | statistics | `h`, ordered: object, blob | the span in which the blob is |

use crate::blob::{Blob, BlobId};
use crate::codec::{Reader, put_ordered};
use crate::keyvalue::{Change, Family, KeyValue, Pair};
use crate::names::{self, Name};
use crate::onode::SPAN;
use crate::run::{RunHeader, RunPiece};
use imbrex_device::Result;
use std::sync::Arc;

/// Bytes of changes that are written together.
const TOGETHER: usize = 1 << 20;
/// Records of where blobs are that are written together.
const HOMES: usize = 4096;
/// Where a piece is that waits in the metadata.
pub(super) const DEFERRED: u32 = u32::MAX;
/// The mount of places that the metadata tell: they are the newest.
const OF_METADATA: u32 = u32::MAX;

/// Blocks of a blob at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub piece: RunPiece,
    pub sums: Vec<u32>,
    pub zone: u32,
    /// In blocks from the zone's start.
    pub block: u32,
}

impl Stored {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [self.zone.to_le_bytes(), self.block.to_le_bytes()].concat();
        out.extend(self.piece.encode());
        self.sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Stored> {
        let mut from = Reader(bytes);
        let (zone, block) = (from.u32()?, from.u32()?);
        let piece = RunPiece::decode(from.take(24)?)?;
        let sums = (0..piece.grains()).map(|_| from.u32()).collect::<Option<_>>()?;
        from.is_empty().then_some(Stored { piece, sums, zone, block })
    }
}

pub(super) fn span_keys(onode: u64, span: u64) -> (Vec<u8>, Vec<u8>) {
    let key = |span| {
        let mut key = Vec::with_capacity(18);
        put_ordered(&mut key, onode);
        put_ordered(&mut key, span);
        key
    };
    (key(span), key(span + 1))
}

/// The object and the span of such a key.
pub(super) fn of_key(key: &[u8]) -> Option<(u64, u64)> {
    let mut key = Reader(key);
    Some((key.ordered()?, key.ordered()?))
}

/// The blob's number in such a key.
fn blob_of_key(key: &[u8]) -> Option<u64> {
    let mut key = Reader(key);
    key.ordered().and(key.ordered()).and(key.ordered())
}

fn home_key(mut listed: Vec<u8>, blob: u64) -> Vec<u8> {
    put_ordered(&mut listed, blob);
    listed
}

pub(super) fn marked(mark: u8, number: u64) -> Vec<u8> {
    let mut key = vec![mark];
    put_ordered(&mut key, number);
    key
}

/// See the module.
pub(super) struct Index {
    pub kv: Arc<dyn KeyValue>,
    changes: Vec<Change>,
    bytes: usize,
    /// The family of the last pair of the metadata.
    family: Option<Family>,
}

impl Index {
    pub fn new(kv: Arc<dyn KeyValue>) -> Index {
        Index { kv, changes: Vec::new(), bytes: 0, family: None }
    }

    pub fn put(&mut self, family: Family, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.bytes += key.len() + value.len() + 64;
        self.changes.push(Change::Put(family, key, value));
        if self.bytes >= TOGETHER { self.flush() } else { Ok(()) }
    }

    pub fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        match std::mem::take(&mut self.changes) {
            changes if changes.is_empty() => Ok(()),
            changes => self.kv.write(&changes),
        }
    }

    fn put_piece(&mut self, stored: &Stored, (mount, group): (u32, u64)) -> Result<()> {
        let RunPiece { blob, offset, first, .. } = stored.piece;
        let (mut key, _) = span_keys(blob.onode, offset / SPAN);
        put_ordered(&mut key, blob.number);
        // Of two blobs of one number the older one was never durable: its number was given again after a crash.
        key.extend(mount.to_be_bytes());
        key.extend(group.to_be_bytes());
        key.push(first as u8);
        // Two places of one moment are kept both.
        key.extend(stored.zone.to_be_bytes());
        key.extend(stored.block.to_be_bytes());
        self.put(Family::Zones, key, stored.encode())
    }

    /// Adds a run, whose data begin at a block of its zone, which ends at another.
    pub fn add_run(&mut self, header: &RunHeader, (data, end): (u64, u64)) -> Result<()> {
        let mut block = data;
        for (piece, sums) in header.summed() {
            let behind = block + u64::from(piece.blocks);
            // A crash may have cut the run.
            if behind <= end {
                let (zone, block) = (header.at.zone, block as u32);
                // No header is as sure as the metadata.
                let moment = (header.mount.min(OF_METADATA - 1), header.group);
                self.put_piece(&Stored { piece: *piece, sums: sums.to_vec(), zone, block }, moment)?;
            }
            block = behind;
        }
        for (number, name) in &header.names {
            let mut key = marked(b'n', *number);
            key.extend(name.version.to_be_bytes());
            self.put(Family::Super, key, names::encode(name, None).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Adds a pair of the metadata. Bytes that wait come before the records of their blobs.
    pub fn add_pair(&mut self, family: Family, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        if self.family.replace(family) != Some(family) {
            self.flush()?;
        }
        match family {
            Family::Super | Family::Zones | Family::Statistics | Family::Counts => Ok(()),
            Family::Blobs => {
                self.add_blob(&key, &value)?;
                self.put(family, key, value)
            }
            _ => self.put(family, key, value),
        }
    }

    fn add_blob(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some((id, blob)) = BlobId::of_key(key).zip(Blob::decode(value)) else { return Ok(()) };
        let sums = blob.sums();
        for run in blob.living() {
            let piece = RunPiece::of_blob(id, &blob, run.first, run.blocks);
            let from = (run.first >> piece.grain) as usize;
            let sums = sums.get(from..from + piece.grains()).unwrap_or_default().to_vec();
            let (zone, block) = run.place.map_or((DEFERRED, 0), |place| (place.zone, place.block));
            self.put_piece(&Stored { piece, sums, zone, block }, (OF_METADATA, 0))?;
        }
        Ok(())
    }

    /// The newest name of an object that headers of runs have.
    pub fn name(&self, number: u64) -> Result<Option<Name>> {
        let (from, to) = (marked(b'n', number), marked(b'n', number + 1));
        let mut found = None;
        self.each(Family::Super, from, Some(to), |_, value| {
            // Their order is that of versions.
            found = names::decode(&mut Reader(&value), None).flatten().or(found.take());
            Ok(true)
        })?;
        Ok(found)
    }

    /// Where the last piece of an object ends, in blocks: of those that are of its blobs from a number on. 0: there is none.
    pub fn end_of(&self, number: u64, blob: u64) -> Result<u64> {
        let (from, to) = (span_keys(number, 0).0, span_keys(number + 1, 0).0);
        let mut end = 0;
        self.each(Family::Zones, from, Some(to), |key, value| {
            if blob_of_key(&key).is_some_and(|of| of >= blob) {
                let piece = Stored::decode(&value).map(|stored| stored.piece);
                end = end.max(piece.map_or(0, |piece| piece.offset + u64::from(piece.named)));
            }
            Ok(true)
        })?;
        Ok(end)
    }

    /// The span in which a blob is, of an object of which others name blobs. The blobs of such an object are listed when they are asked for first: it may have many, and as many may ask.
    pub fn home_of(&self, blob: BlobId) -> Result<Option<u64>> {
        let listed = marked(b'h', blob.onode);
        if self.kv.get(Family::Statistics, &listed)?.is_none() {
            self.list_homes(blob.onode)?;
            self.kv.write(&[Change::Put(Family::Statistics, listed.clone(), Vec::new())])?;
        }
        let found = self.kv.get(Family::Statistics, &home_key(listed, blob.number))?;
        Ok(found.and_then(|span| Reader(&span).u64()))
    }

    fn list_homes(&self, onode: u64) -> Result<()> {
        let (from, to) = (span_keys(onode, 0).0, span_keys(onode + 1, 0).0);
        let mut all = Vec::new();
        self.each(Family::Zones, from, Some(to), |key, _| {
            if let Some(((_, span), number)) = of_key(&key).zip(blob_of_key(&key)) {
                let key = home_key(marked(b'h', onode), number);
                all.push(Change::Put(Family::Statistics, key, span.to_le_bytes().to_vec()));
            }
            if all.len() >= HOMES {
                self.kv.write(&std::mem::take(&mut all))?
            }
            Ok(true)
        })?;
        if all.is_empty() { Ok(()) } else { self.kv.write(&all) }
    }

    /// Calls `one` for pairs of a range, until it says that it has enough.
    pub fn each(
        &self,
        family: Family,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
        mut one: impl FnMut(Vec<u8>, Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let mut next = Some(from);
        while let Some(from) = next.take() {
            let pairs: Vec<Pair> = self.kv.pairs(family, &from, to.as_deref(), 256)?;
            next = pairs.last().map(|(key, _)| [&key[..], &[0]].concat());
            for (key, value) in pairs {
                if !one(key, value)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
