//! What is written together: a batch of changes, and how it stands in the write-ahead log.
//!
//! A record of the log is a header and the changes of one batch. Its number is that of the first change; each change has the next one. So a reader of
//! the log sees whether a batch is missing before the one that it reads. The header has a checksum of its own, so its length can be believed before the
//! changes are there.

use imbrex_device::{Error, Result};
use std::ops::Range;

/// Longest key, in bytes.
pub const MAX_KEY: usize = 65_536;
/// Longest value, in bytes: a change of such a value still fits a record.
pub const MAX_VALUE: usize = (1 << 32) - (128 << 10);

/// Bytes before the changes of a record.
pub(crate) const HEADER: usize = 32;
/// Bytes before a change's key.
const CHANGE: usize = 11;
pub(crate) const MAGIC: u32 = 0x626b_7669;
/// In place of a space's number: that of the record.
const WRITERS: u16 = u16::MAX;

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Act {
    /// The key goes.
    Delete = 0,
    /// The key gets this value.
    Put = 1,
    /// All keys of a range go: from the change's key on, and before its value. Either end may be open.
    DeleteRange = 2,
    /// The space goes, and all its keys.
    DropSpace = 3,
    /// An operand is merged into the key's value.
    Merge = 4,
    /// Pairs of the space came as tables. The log has only the number that they have.
    Ingest = 5,
}

/// The ends that a range has: bits of the byte before its end.
const HAS_FROM: u8 = 1;
const HAS_TO: u8 = 2;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Of which space.
    pub(crate) space: u16,
    /// What it does.
    pub act: Act,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The ends of a range, in bits.
    ends: u8,
}

impl<'a> Change<'a> {
    /// A change of a single key of a space.
    pub(crate) fn of_key(space: u16, act: Act, key: &'a [u8], value: &'a [u8]) -> Change<'a> {
        Change { space, act, key, value, ends: 0 }
    }

    /// What stands before its key. Lengths are looked at when it is written.
    fn head(&self) -> [u8; CHANGE] {
        let mut head = [0; CHANGE];
        head[..2].copy_from_slice(&self.space.to_le_bytes());
        head[2] = self.act as u8 | self.ends << 4;
        head[3..7].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        head[7..].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        head
    }

    /// Whether its key has something more from now on.
    pub(crate) fn adds(&self) -> bool {
        matches!(self.act, Act::Put | Act::Merge)
    }

    /// Whether it deletes a range of keys, or all of a space.
    pub(crate) fn is_range(&self) -> bool {
        matches!(self.act, Act::DeleteRange | Act::DropSpace)
    }

    /// The first key of a range, and the key behind the last; `None`: there is no such end.
    pub fn range(&self) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        ((self.ends & HAS_FROM != 0).then_some(self.key), (self.ends & HAS_TO != 0).then_some(self.value))
    }
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    count: u32,
    /// Where the next change goes.
    space: u16,
    /// The opening of the store whose spaces were named.
    store: Option<u64>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { bytes: Vec::new(), count: 0, space: WRITERS, store: None }
    }
}

impl Batch {
    /// An empty one. Changes go to the space that it is written to.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// What is added from here on goes to the space of this number, of the store of that one.
    pub(crate) fn go_to(&mut self, space: u16, store: u64) {
        (self.space, self.store) = (space, Some(store));
    }

    /// The store that it must be written to.
    pub(crate) fn store(&self) -> Option<u64> {
        self.store
    }

    /// The key gets this value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(Change::of_key(self.space, Act::Put, key, value));
    }

    /// The space's [operator](crate::Kv::merge_operator) merges this operand into the key's value.
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) {
        self.push(Change::of_key(self.space, Act::Merge, key, operand));
    }

    /// The key goes.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(Change::of_key(self.space, Act::Delete, key, &[]));
    }

    /// All keys go from `from` on and before `to`; `None`: from the first, or to the last.
    pub fn delete_range(&mut self, from: Option<&[u8]>, to: Option<&[u8]>) {
        let ends = if from.is_some() { HAS_FROM } else { 0 } | if to.is_some() { HAS_TO } else { 0 };
        let (key, value) = (from.unwrap_or_default(), to.unwrap_or_default());
        self.push(Change { space: self.space, act: Act::DeleteRange, key, value, ends });
    }

    /// A space goes.
    pub(crate) fn drop_space(&mut self, space: u16) {
        self.push(Change::of_key(space, Act::DropSpace, &[], &[]));
    }

    /// Pairs of the space it is written to come as tables.
    pub(crate) fn ingest(&mut self) {
        self.push(Change::of_key(self.space, Act::Ingest, &[], &[]));
    }

    /// Adds the changes of another one. Those that name no space go where this one goes at the moment.
    ///
    /// # Errors
    /// `InvalidArgument` where the two name spaces of different stores.
    pub fn append(&mut self, other: &Batch) -> Result<()> {
        if self.store.is_some() && other.store.is_some() && self.store != other.store {
            return Err(Error::invalid(
                &"a batch".into(),
                "two batches that name spaces of different stores cannot become one",
            ));
        }
        self.store = self.store.or(other.store);
        Body::Batch(other).changes_in(self.space).for_each(|change| self.push(change));
        Ok(())
    }

    /// Any change.
    pub(crate) fn push(&mut self, change: Change<'_>) {
        self.bytes.reserve(CHANGE + change.key.len() + change.value.len());
        self.bytes.extend_from_slice(&change.head());
        self.bytes.extend_from_slice(change.key);
        self.bytes.extend_from_slice(change.value);
        self.count += 1;
    }

    /// How many changes it has.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all changes, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.space, self.store) = (0, WRITERS, None);
    }

    /// Bytes of its record.
    pub fn bytes(&self) -> usize {
        HEADER + self.bytes.len()
    }

    /// Its changes, in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        Body::Batch(self).changes_in(WRITERS)
    }
}

/// What is written together. A batch has its changes in one piece; a single change stays where its user has it, so that a large value is not copied for the log.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    Batch(&'a Batch),
    One(Change<'a>),
}

impl<'a> Body<'a> {
    /// Bytes of its record.
    pub fn bytes(&self) -> usize {
        match self {
            Body::Batch(batch) => batch.bytes(),
            Body::One(change) => HEADER + CHANGE + change.key.len() + change.value.len(),
        }
    }

    /// How many changes it has.
    pub fn len(&self) -> usize {
        match self {
            Body::Batch(batch) => batch.len(),
            Body::One(_) => 1,
        }
    }

    /// The store that it must be written to.
    pub fn store(&self) -> Option<u64> {
        match self {
            Body::Batch(batch) => batch.store(),
            Body::One(_) => None,
        }
    }

    /// Its changes, in order, where it is written to this space.
    pub fn changes_in(&self, space: u16) -> impl Iterator<Item = Change<'a>> + use<'a> {
        match *self {
            Body::Batch(batch) => Changes { first: None, rest: &batch.bytes, space },
            Body::One(change) => Changes { first: Some(change), rest: &[], space },
        }
    }

    /// Its record, in two parts, where its first change has this number and it is written to this space. `salt`: a number of the store, so that no record of another one, perhaps
    /// in a value, passes for one of this log.
    pub fn record(&self, salt: u32, seq: u64, space: u16) -> (Vec<u8>, &'a [u8]) {
        let mut front = Vec::new();
        let rest = match *self {
            Body::Batch(batch) => {
                front.reserve_exact(HEADER);
                front.resize(HEADER, 0);
                &batch.bytes[..]
            }
            Body::One(change) => {
                front.reserve_exact(HEADER + CHANGE + change.key.len());
                front.resize(HEADER, 0);
                front.extend_from_slice(&change.head());
                front.extend_from_slice(change.key);
                change.value
            }
        };
        let (header, changes) = front.split_at_mut(HEADER);
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&((changes.len() + rest.len()) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(self.len() as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(salt, changes), rest);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        header[16..24].copy_from_slice(&seq.to_le_bytes());
        header[24..26].copy_from_slice(&space.to_le_bytes());
        let crc = crc32c::crc32c_append(salt, &header[..28]);
        header[28..].copy_from_slice(&crc.to_le_bytes());
        (front, rest)
    }
}

/// Changes that stand one behind the other, or a single one.
struct Changes<'a> {
    first: Option<Change<'a>>,
    rest: &'a [u8],
    /// That of changes which name none.
    space: u16,
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        if self.first.is_some() {
            return self.first.take();
        }
        let (head, rest) = self.rest.split_at_checked(CHANGE)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (key, rest) = rest.split_at_checked(word(3))?;
        let (value, rest) = rest.split_at_checked(word(7))?;
        self.rest = rest;
        let space = match u16::from_le_bytes([head[0], head[1]]) {
            WRITERS => self.space,
            named => named,
        };
        let (act, ends) = (head[2] & 15, head[2] >> 4);
        let known = [Act::Delete, Act::Put, Act::DeleteRange, Act::DropSpace, Act::Merge, Act::Ingest];
        let act = known.into_iter().find(|known| *known as u8 == act)?;
        let may = if act == Act::DeleteRange { HAS_FROM | HAS_TO } else { 0 };
        (ends & !may == 0).then_some(Change { space, act, key, value, ends })
    }
}

/// A record that was read.
pub(crate) struct Record<'a> {
    /// Number of the first change.
    pub seq: u64,
    changes: (&'a [u8], u16),
    count: u32,
}

impl Record<'_> {
    /// Its changes.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let (rest, space) = self.changes;
        Changes { first: None, rest, space }
    }

    /// How many changes it has.
    pub fn count(&self) -> u64 {
        self.count.into()
    }
}

/// What stands at the beginning of some bytes of the log.
pub(crate) enum Found<'a> {
    /// A record, and how many bytes it takes.
    Record(Record<'a>, usize),
    /// Perhaps a record, for which so many bytes must be there.
    Cut(usize),
    /// No record.
    Nothing,
}

/// Makes the checksums of a record right, as far as its changes are there: for who tries what stands behind them.
pub(crate) fn seal(salt: u32, record: &mut [u8]) {
    let Some((head, body)) = record.split_at_mut_checked(HEADER) else { return };
    head[12..16].copy_from_slice(&crc32c::crc32c_append(salt, body).to_le_bytes());
    let crc = crc32c::crc32c_append(salt, &head[..28]);
    head[28..].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a record of the store with this number.
pub(crate) fn read(salt: u32, bytes: &[u8]) -> Found<'_> {
    let Some((head, rest)) = bytes.split_at_checked(HEADER) else {
        let prefix = &MAGIC.to_le_bytes()[..bytes.len().min(4)];
        return if bytes.starts_with(prefix) { Found::Cut(HEADER) } else { Found::Nothing };
    };
    let word = |range: Range<usize>| u32::from_le_bytes(head[range].try_into().unwrap_or_default());
    if word(0..4) != MAGIC || crc32c::crc32c_append(salt, &head[..28]) != word(28..32) {
        return Found::Nothing;
    }
    let (len, count) = (word(4..8) as usize, word(8..12));
    let Some(body) = rest.get(..len) else { return Found::Cut(HEADER + len) };
    let space = word(24..28) as u16;
    let whole = || Changes { first: None, rest: body, space }.count() == count as usize;
    if crc32c::crc32c_append(salt, body) != word(12..16) || !whole() {
        return Found::Nothing;
    }
    let mut seq = [0; 8];
    seq.copy_from_slice(&head[16..24]);
    Found::Record(Record { seq: u64::from_le_bytes(seq), changes: (body, space), count }, HEADER + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u32 = 77;

    fn image(batch: &Batch, seq: u64) -> Vec<u8> {
        let (front, rest) = Body::Batch(batch).record(SALT, seq, 3);
        [&front[..], rest].concat()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut batch = Batch::new();
        batch.put(b"one", b"1");
        batch.delete(b"two");
        batch.go_to(7, 0);
        batch.put(b"three", b"");
        batch.merge(b"four", b"4");
        batch.delete_range(None, Some(b"x"));
        let bytes = image(&batch, 42);
        assert_eq!(bytes.len(), batch.bytes());
        let Found::Record(record, len) = read(SALT, &bytes) else { panic!("it is whole") };
        assert_eq!((record.seq, record.count(), len), (42, 5, bytes.len()));
        assert!(record.changes().eq(Body::Batch(&batch).changes_in(3)));
        assert_eq!(record.changes().map(|change| change.space).collect::<Vec<_>>(), [3, 3, 7, 7, 7]);
        assert_eq!(record.changes().last().unwrap().range(), (None, Some(&b"x"[..])));
        assert!(matches!(read(SALT + 1, &bytes), Found::Nothing));
        // Each front of it is cut, and says how much must be there.
        for n in 0..bytes.len() {
            let whole = if n < HEADER { HEADER } else { bytes.len() };
            assert!(matches!(read(SALT, &bytes[..n]), Found::Cut(len) if len == whole), "{n}");
        }
        // A length counts only with the checksum of the header: what looks like one in a value asks for nothing.
        let like = [&MAGIC.to_le_bytes()[..], &[0xff; 60]].concat();
        assert!(matches!(read(SALT, &like), Found::Nothing));
        // A length that may be true takes no memory before its bytes are there.
        let mut long = Body::Batch(&batch).record(SALT, 42, 3).0;
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        seal(SALT, &mut long);
        assert!(matches!(read(SALT, &long), Found::Cut(len) if len == HEADER + u32::MAX as usize));
        // No flipped bit passes for a record with other changes.
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(read(SALT, &bad), Found::Record(..)), "bit {bit}");
        }
    }

    #[test]
    fn a_single_change_has_the_record_of_a_batch_of_it() {
        for (act, value) in [(Act::Put, &b"value"[..]), (Act::Delete, b""), (Act::Merge, b"operand")] {
            let mut batch = Batch::new();
            batch.go_to(3, 0);
            batch.push(Change::of_key(3, act, b"key", value));
            let one = Body::One(Change::of_key(3, act, b"key", value));
            let (front, rest) = one.record(SALT, 42, 3);
            assert_eq!(rest, value, "it is not copied");
            assert_eq!([&front[..], rest].concat(), image(&batch, 42));
            assert_eq!((one.bytes(), one.len()), (batch.bytes(), 1));
            assert!(one.changes_in(3).eq(Body::Batch(&batch).changes_in(3)));
        }
    }
}
