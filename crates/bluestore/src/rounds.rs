//! Rounds of the scrub: where one is, when it began and ended, and what was found. A record of family [`Super`](crate::keyvalue::Family::Super) has it, so that a restart goes on.

use crate::blob::BlobId;
use crate::codec::{Reader, put_varint};
use std::ops::Range;

/// Key of the record.
pub(crate) const SCRUB: &[u8] = b"scrub";
const VERSION: u8 = 1;
/// So many damaged places are listed; more are only counted.
pub(crate) const LISTED: usize = 256;
/// Before all blobs.
pub(crate) const FIRST: BlobId = BlobId { onode: 0, number: 0 };

/// A grain that cannot be read. Without blocks: records of blobs, from this one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Damaged {
    pub blob: BlobId,
    /// The first block, in the blob.
    pub first: u32,
    pub blocks: u32,
    /// Where it was written in its object, in blocks.
    pub offset: u64,
}

/// See the module. Times are seconds since 1970; 0: never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// When the last round began.
    pub began: u64,
    /// When the last one ended that went over all.
    pub ended: u64,
    /// Where the one that is under way goes on.
    pub next: Option<BlobId>,
    /// Bytes that it has read.
    pub read: u64,
    /// How often something was read once more since the store was made, with success and in vain.
    pub again: (u64, u64),
    /// In order.
    pub found: Vec<Damaged>,
    /// Damaged places that had no room in the list: of the last round that ended, and of the one under way.
    pub unlisted: (u64, u64),
}

impl Rounds {
    /// Begins a round where none is under way. Returns where it goes on.
    pub fn begin(&mut self, now: u64) -> BlobId {
        if self.next.is_none() {
            (self.began, self.read, self.unlisted.1) = (now, 0, 0);
        }
        *self.next.get_or_insert(FIRST)
    }

    /// The round has seen these blobs. What was found of them before is forgotten. `next`: where it goes on; `None`: it is over.
    pub fn pass(&mut self, from: BlobId, next: Option<BlobId>, (read, found): (u64, Vec<Damaged>), now: u64) {
        self.found.retain(|old| old.blob < from || next.is_some_and(|next| old.blob >= next));
        let room = LISTED.saturating_sub(self.found.len());
        self.unlisted.1 += found.len().saturating_sub(room) as u64;
        self.found.extend(found.into_iter().take(room));
        self.found.sort_unstable();
        self.read += read;
        self.next = next;
        if next.is_none() {
            (self.ended, self.unlisted.0) = (now, self.unlisted.1);
        }
    }

    /// Damaged places that are known.
    pub fn known(&self) -> u64 {
        let unlisted = if self.next.is_some() { self.unlisted.0.max(self.unlisted.1) } else { self.unlisted.0 };
        self.found.len() as u64 + unlisted
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.next.is_some())];
        let next = self.next.unwrap_or(FIRST);
        let numbers = [self.began, self.ended, next.onode, next.number, self.read, self.again.0, self.again.1];
        numbers.into_iter().chain([self.unlisted.0, self.unlisted.1]).for_each(|n| put_varint(&mut out, n));
        put_varint(&mut out, self.found.len() as u64);
        for Damaged { blob, first, blocks, offset } in &self.found {
            let all = [blob.onode, blob.number, u64::from(*first), u64::from(*blocks), *offset];
            all.into_iter().for_each(|n| put_varint(&mut out, n));
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Rounds> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        Rounds::decode_body(body)
    }

    /// Without its checksum.
    pub fn decode_body(body: &[u8]) -> Option<Rounds> {
        let mut from = Reader(body);
        let (version, under_way) = (from.byte()?, from.byte()?);
        if version != VERSION || under_way > 1 {
            return None;
        }
        let (began, ended) = (from.varint()?, from.varint()?);
        let next = blob_id(&mut from)?;
        let (read, again) = (from.varint()?, (from.varint()?, from.varint()?));
        let unlisted = (from.varint()?, from.varint()?);
        let len = from.small::<usize>().filter(|len| *len <= LISTED)?;
        let mut found = Vec::with_capacity(len);
        for _ in 0..len {
            let blob = blob_id(&mut from)?;
            let (first, blocks, offset) = (from.small()?, from.small()?, from.varint()?);
            found.push(Damaged { blob, first, blocks, offset });
        }
        let next = (under_way == 1).then_some(next);
        let sane = from.is_empty() && found.is_sorted() && found.iter().all(Damaged::is_sane);
        sane.then_some(Rounds { began, ended, next, read, again, found, unlisted })
    }
}

impl Damaged {
    /// Blocks of its object, as it was written.
    pub fn blocks_of_object(&self) -> Range<u64> {
        let first = self.offset + u64::from(self.first);
        first..first + u64::from(self.blocks)
    }

    fn is_sane(&self) -> bool {
        let end = self.first.checked_add(self.blocks);
        end.is_some_and(|end| end <= crate::blob::MAX_BLOCKS) && self.offset <= crate::onode::MAX_OBJECT
    }
}

fn blob_id(from: &mut Reader<'_>) -> Option<BlobId> {
    let id = BlobId { onode: from.varint()?, number: from.varint()? };
    (id.onode <= crate::codec::MAX_NUMBER && id.number <= crate::codec::MAX_NUMBER).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> BlobId {
        BlobId { onode: 3, number }
    }

    fn damaged(number: u64) -> Damaged {
        Damaged { blob: id(number), first: 2, blocks: 1, offset: 64 }
    }

    #[test]
    fn a_round_goes_on_where_it_was_and_a_flipped_bit_is_told() {
        let mut rounds = Rounds { again: (3, 4), ..Rounds::default() };
        assert_eq!(rounds.begin(100), FIRST);
        rounds.pass(FIRST, Some(id(9)), (4096, vec![damaged(5)]), 101);
        let mut bytes = rounds.encode();
        let mut again = Rounds::decode(&bytes).unwrap();
        assert_eq!(again, rounds);
        assert_eq!((again.begin(102), again.began, again.ended), (id(9), 100, 0));
        again.pass(id(9), None, (4096, vec![]), 103);
        assert_eq!((again.next, again.ended, again.read, again.known()), (None, 103, 8192, 1));
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(Rounds::decode(&bytes), None, "{at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Rounds::decode(&[]), None);
    }

    #[test]
    fn what_is_whole_the_next_time_is_forgotten_and_the_list_has_an_end() {
        let mut rounds = Rounds::default();
        rounds.begin(1);
        rounds.pass(FIRST, None, (0, (0..LISTED as u64 + 7).map(damaged).collect()), 2);
        assert_eq!((rounds.found.len(), rounds.known()), (LISTED, LISTED as u64 + 7));
        assert_eq!(Rounds::decode(&rounds.encode()), Some(rounds.clone()));
        rounds.begin(3);
        rounds.pass(FIRST, Some(id(10)), (0, vec![damaged(4)]), 4);
        assert_eq!(rounds.found[..2], [damaged(4), damaged(10)]);
        // Those that had no room are known until the round is over.
        assert_eq!(rounds.known(), LISTED as u64 - 9 + 7);
        rounds.pass(id(10), None, (0, vec![]), 5);
        assert_eq!((rounds.known(), rounds.ended), (1, 5));
    }
}
