//! Changes of counts that wait. An extent that comes or goes changes how many extents name blocks of a blob. Where the blob's record would have to be read from the drive for that, the change is
//! written down alone ([`Family::Counts`](crate::keyvalue::Family::Counts)). Later many of them are made together, in the order of blobs: what would be a random read for each overwrite becomes a pass over the records.
//!
//! Whoever reads a record to change it makes those that wait before. A record counts no block as dead that an extent names, whatever waits for it: changes come in the order in which
//! extents did, and an extent that was there when the record was written keeps its count until all that wait are made.

use crate::blob::BlobId;
use crate::codec::{Reader, put_ordered, put_varint};
use crate::keyvalue::{Family, KeyValue, each};
use imbrex_device::Result;
use std::collections::BTreeMap;

/// One more extent names these blocks of a blob, or one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountChange {
    pub first: u32,
    pub blocks: u32,
    pub more: bool,
}

/// Those of a transaction, by its number.
pub(crate) type OfOne = (u64, Vec<CountChange>);

/// All that wait, in memory as they are in the key-value store and in what it does not have yet.
#[derive(Default)]
pub(crate) struct Waiting {
    all: BTreeMap<BlobId, Vec<OfOne>>,
    len: usize,
    /// They are being made, from this blob on.
    pub sweep: Option<BlobId>,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Those of a blob, the oldest first.
    pub fn of(&self, id: BlobId) -> &[OfOne] {
        self.all.get(&id).map_or(&[], |all| all)
    }

    pub fn add(&mut self, id: BlobId, of: OfOne) {
        self.len += of.1.len();
        self.all.entry(id).or_default().push(of);
    }

    /// They were made.
    pub fn remove(&mut self, id: BlobId) {
        let made = self.all.remove(&id).unwrap_or_default();
        self.len -= made.iter().map(|(_, changes)| changes.len()).sum::<usize>();
    }

    /// Blobs for which any wait, from one on.
    pub fn from(&self, id: BlobId) -> impl Iterator<Item = BlobId> {
        self.all.range(id..).map(|(id, _)| *id)
    }
}

/// Key of what a transaction of this number changes.
pub(crate) fn key(id: BlobId, version: u64) -> Vec<u8> {
    let mut key = id.key();
    put_ordered(&mut key, version);
    key
}

pub(crate) fn of_key(key: &[u8]) -> Option<(BlobId, u64)> {
    let mut key = Reader(key);
    let of = (BlobId { onode: key.number()?, number: key.number()? }, key.number()?);
    key.is_empty().then_some(of)
}

pub(crate) fn encode(changes: &[CountChange]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * changes.len());
    for change in changes {
        put_varint(&mut out, u64::from(change.first) << 1 | u64::from(change.more));
        put_varint(&mut out, change.blocks.into());
    }
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<CountChange>> {
    let (mut from, mut all) = (Reader(bytes), Vec::new());
    while !from.is_empty() {
        let (head, blocks) = (from.varint()?, from.small::<u32>()?);
        let first = u32::try_from(head >> 1).ok()?;
        first.checked_add(blocks).filter(|end| blocks > 0 && *end <= crate::blob::MAX_BLOCKS)?;
        all.push(CountChange { first, blocks, more: head & 1 == 1 });
    }
    Some(all)
}

/// What waits, of which the key-value store knows; `None`: something makes no sense, which a repair passes over.
pub(crate) fn load(kv: &dyn KeyValue, repair: bool) -> Result<Option<Waiting>> {
    let (mut waiting, mut sound) = (Waiting::default(), true);
    each(kv, Family::Counts, |key, value| {
        match of_key(key).zip(decode(value)) {
            Some(((id, version), changes)) => waiting.add(id, (version, changes)),
            None => sound = false,
        }
        Ok(())
    })?;
    Ok((sound || repair).then_some(waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_and_nothing_else_is_taken_for_them() {
        let change = |first, blocks, more| CountChange { first, blocks, more };
        let all = [change(0, 64, false), change(63, 1, true), change(7, 2, false)];
        assert_eq!(decode(&encode(&all)).as_deref(), Some(&all[..]));
        for bad in [&[0, 0][..], &[0], &[126, 2], &[0x80], &[0xff; 12]] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
        let id = BlobId { onode: 300, number: 0 };
        assert_eq!(of_key(&key(id, 1 << 40)), Some((id, 1 << 40)));
        assert_eq!(of_key(&id.key()), None);
    }
}
