//! A stream of objects: what `imbrex store export` writes and `import` reads.
//!
//! ```text
//!   magic "IMBXobjs", version = 1 (4 bytes), CRC-32C of both; then records:
//!   kind (1), zeros (3), length of what follows (4), number of the record from 0 (8), CRC-32C of these and of what follows (4), what follows
//! ```
//!
//! | kind | what follows |
//! | --- | --- |
//! | 1 collection | pool (8), seed (4), bits (1) |
//! | 2 an object begins | pool, snapshot, generation, size (8 each), expected size and write (8 each), hash (4), flags of the hint (1); lengths (4 each) and bytes of namespace and name; attributes: a count (4), lengths (4 each) and bytes |
//! | 3 bytes | offset (8), bytes |
//! | 4 header of the omap | its bytes |
//! | 5 pairs of the omap | lengths of key and value (4 each), both; until the record ends |
//! | 6 what came of this object is void | |
//! | 7 the object is whole | |
//! | 8 the stream is whole | objects (8) |
//!
//! A reader believes nothing: an object counts when its end has come, and all before it made sense.

use imbrex_bluestore::{
    CollectionId, Head, Hint, MAX_ATTRIBUTE, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTES, MAX_NAME, MAX_OBJECT, MAX_OMAP_KEY,
    MAX_OMAP_VALUE, ObjectId, Pair, Taker,
};
use imbrex_device::{Code, Error, Result};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

const MAGIC: [u8; 8] = *b"IMBXobjs";
const VERSION: u32 = 1;
/// Longest record: a pair of an omap, or pairs that are written together.
const LONGEST: usize = MAX_OMAP_KEY + MAX_OMAP_VALUE + (1 << 20);
/// Bytes of an object in one record at most.
const MOST_BYTES: usize = 1 << 20;
/// Pairs of one record, in bytes.
const TOGETHER: usize = 256 << 10;

const COLLECTION: u8 = 1;
const BEGIN: u8 = 2;
const BYTES: u8 = 3;
const HEADER: u8 = 4;
const PAIRS: u8 = 5;
const AGAIN: u8 = 6;
const END: u8 = 7;
const WHOLE: u8 = 8;

fn head_of(kind: u8, len: usize, number: u64) -> [u8; 16] {
    let mut head = [0; 16];
    head[0] = kind;
    head[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    head[8..].copy_from_slice(&number.to_le_bytes());
    head
}

/// Writes a stream.
pub struct StreamWriter<W> {
    to: W,
    number: u64,
    objects: u64,
}

impl<W: Write> StreamWriter<W> {
    /// Begins one.
    ///
    /// # Errors
    /// `Io`, those of `to`.
    pub fn new(mut to: W) -> Result<StreamWriter<W>> {
        let head = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let crc = crc32c::crc32c(&head).to_le_bytes();
        to.write_all(&head).and_then(|()| to.write_all(&crc)).map_err(|error| host(&error))?;
        Ok(StreamWriter { to, number: 0, objects: 0 })
    }

    fn record(&mut self, kind: u8, parts: &[&[u8]]) -> Result<()> {
        let head = head_of(kind, parts.iter().map(|part| part.len()).sum(), self.number);
        self.number += 1;
        let crc = parts.iter().fold(crc32c::crc32c(&head), |crc, part| crc32c::crc32c_append(crc, part));
        let written = self.to.write_all(&head).and_then(|()| self.to.write_all(&crc.to_le_bytes()));
        let written = written.and_then(|()| parts.iter().try_for_each(|part| self.to.write_all(part)));
        written.map_err(|error| host(&error))
    }

    /// The stream is whole. Returns what it was written to.
    ///
    /// # Errors
    /// `Io`, those of `to`.
    pub fn finish(mut self) -> Result<W> {
        self.record(WHOLE, &[&self.objects.to_le_bytes()])?;
        self.to.flush().map_err(|error| host(&error))?;
        Ok(self.to)
    }
}

fn host(error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::StorageFull { Code::NoSpace } else { Code::Io };
    Error::refused(code, "the stream", error.to_string())
}

fn long(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

impl<W: Write> Taker for StreamWriter<W> {
    fn collection(&mut self, collection: CollectionId, bits: u8) -> Result<()> {
        self.record(COLLECTION, &[&collection.pool.to_le_bytes(), &collection.seed.to_le_bytes(), &[bits]])
    }

    fn begin(&mut self, head: &Head) -> Result<()> {
        let Head { id, size, hint, attributes } = head;
        let mut out = Vec::new();
        for n in [id.pool as u64, id.snap, id.generation, *size, hint.object, hint.write] {
            out.extend(n.to_le_bytes());
        }
        out.extend(id.hash.to_le_bytes());
        out.push(u8::from(hint.immutable) | u8::from(hint.short_lived) << 1 | u8::from(hint.incompressible) << 2);
        long(&id.namespace, &mut out);
        long(&id.name, &mut out);
        out.extend((attributes.len() as u32).to_le_bytes());
        for (name, value) in attributes {
            long(name, &mut out);
            long(value, &mut out);
        }
        self.record(BEGIN, &[&out])
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut parts = bytes.chunks(MOST_BYTES).zip((at..).step_by(MOST_BYTES));
        parts.try_for_each(|(part, at)| self.record(BYTES, &[&at.to_le_bytes(), part]))
    }

    fn omap_header(&mut self, header: &[u8]) -> Result<()> {
        self.record(HEADER, &[header])
    }

    fn omap(&mut self, pairs: Vec<Pair>) -> Result<()> {
        let mut out = Vec::new();
        for (key, value) in pairs {
            out.extend((key.len() as u32).to_le_bytes());
            long(&value, &mut out);
            // The key stands before the value.
            let at = out.len() - value.len();
            out.splice(at..at, key);
            if out.len() >= TOGETHER {
                self.record(PAIRS, &[&std::mem::take(&mut out)])?;
            }
        }
        if out.is_empty() { Ok(()) } else { self.record(PAIRS, &[&out]) }
    }

    fn again(&mut self) -> Result<()> {
        self.record(AGAIN, &[])
    }

    fn end(&mut self) -> Result<()> {
        self.objects += 1;
        self.record(END, &[])
    }
}

/// Reads from the front of a record. `None`: it is not there.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn long(&mut self, most: usize) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        if len <= most { self.take(len) } else { None }
    }
}

fn collection_of(bytes: &[u8]) -> Option<(CollectionId, u8)> {
    let mut from = Parts(bytes);
    let (pool, seed) = (from.u64()? as i64, from.u32()?);
    let bits = from.take(1)?[0];
    let has_seed = bits >= 32 || seed < 1 << bits;
    (from.0.is_empty() && bits <= 32 && has_seed).then_some((CollectionId { pool, seed }, bits))
}

fn head_in(bytes: &[u8]) -> Option<Head> {
    let mut from = Parts(bytes);
    let (pool, snap, generation, size) = (from.u64()? as i64, from.u64()?, from.u64()?, from.u64()?);
    let (object, write, hash) = (from.u64()?, from.u64()?, from.u32()?);
    let flags = from.take(1)?[0];
    let (namespace, name) = (from.long(MAX_NAME)?.to_vec(), from.long(MAX_NAME)?.to_vec());
    let (mut attributes, mut all) = (BTreeMap::new(), 0);
    for _ in 0..from.u32()? {
        let (name, value) = (from.long(MAX_ATTRIBUTE_NAME)?.to_vec(), from.long(MAX_ATTRIBUTE)?.to_vec());
        all += name.len() + value.len();
        if attributes.last_key_value().is_some_and(|(last, _)| *last >= name) {
            return None;
        }
        attributes.insert(name, value);
    }
    let hint =
        Hint { object, write, immutable: flags & 1 > 0, short_lived: flags & 2 > 0, incompressible: flags & 4 > 0 };
    let id = ObjectId { pool, hash, namespace, name, snap, generation };
    let sane = from.0.is_empty() && flags < 8 && size <= MAX_OBJECT && all <= MAX_ATTRIBUTES;
    sane.then_some(Head { id, size, hint, attributes })
}

fn pairs_in(bytes: &[u8]) -> Option<Vec<Pair>> {
    let (mut from, mut all) = (Parts(bytes), Vec::new());
    while !from.0.is_empty() {
        let (key, value) = (from.u32()? as usize, from.u32()? as usize);
        if key > MAX_OMAP_KEY || value > MAX_OMAP_VALUE {
            return None;
        }
        all.push((from.take(key)?.to_vec(), from.take(value)?.to_vec()));
    }
    all.is_sorted_by(|a, b| a.0 < b.0).then_some(all).filter(|all| !all.is_empty())
}

/// What a stream is in the middle of.
struct Under {
    size: u64,
    /// Where its bytes end so far.
    end: u64,
    last_key: Option<Vec<u8>>,
    has_header: bool,
}

struct Reading<'a> {
    to: &'a mut dyn Taker,
    under: Option<Under>,
    objects: u64,
    number: u64,
}

impl Reading<'_> {
    fn wrong(&self, what: &str) -> Error {
        Error::damaged(
            &"the stream".into(),
            format!("{what} (record {}); objects that were whole before are there, export it again", self.number),
        )
    }

    /// True: the stream is whole.
    fn record(&mut self, kind: u8, bytes: &[u8]) -> Result<bool> {
        let senseless = self.wrong("a record makes no sense");
        let empty = if bytes.is_empty() { Ok(()) } else { Err(senseless.clone()) };
        match (kind, self.under.as_mut()) {
            (COLLECTION, None) => {
                let (collection, bits) = collection_of(bytes).ok_or(senseless)?;
                self.to.collection(collection, bits)?;
            }
            (BEGIN, None) => {
                let head = head_in(bytes).ok_or(senseless)?;
                self.to.begin(&head)?;
                self.under = Some(Under { size: head.size, end: 0, last_key: None, has_header: false });
            }
            (BYTES, Some(under)) => {
                let (at, bytes) = bytes.split_first_chunk::<8>().ok_or_else(|| senseless.clone())?;
                let at = u64::from_le_bytes(*at);
                let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= under.size && at >= under.end);
                under.end = end.filter(|_| (1..=MOST_BYTES).contains(&bytes.len())).ok_or(senseless)?;
                self.to.bytes(at, bytes)?;
            }
            (HEADER, Some(under)) => {
                if bytes.len() > MAX_OMAP_VALUE || std::mem::replace(&mut under.has_header, true) {
                    return Err(senseless);
                }
                self.to.omap_header(bytes)?;
            }
            (PAIRS, Some(under)) => {
                let pairs = pairs_in(bytes).ok_or_else(|| senseless.clone())?;
                if under.last_key.as_ref().zip(pairs.first()).is_some_and(|(last, (first, _))| last >= first) {
                    return Err(senseless);
                }
                under.last_key = pairs.last().map(|(key, _)| key.clone());
                self.to.omap(pairs)?;
            }
            (AGAIN, Some(_)) => {
                empty?;
                self.under = None;
                self.to.again()?;
            }
            (END, Some(_)) => {
                empty?;
                self.under = None;
                self.objects += 1;
                self.to.end()?;
            }
            (WHOLE, None) => {
                let told = *bytes.as_array::<8>().ok_or(senseless)?;
                return match u64::from_le_bytes(told) == self.objects {
                    true => Ok(true),
                    false => Err(self.wrong("objects are missing")),
                };
            }
            _ => return Err(senseless),
        }
        Ok(false)
    }
}

/// Reads a stream to its end, and hands over what it has. Returns how many objects it had. An object under way counts for nothing where this fails.
///
/// # Errors
/// Those of `to`; `Corrupt` where the stream makes no sense, or ends early; `Io`, those of `from`.
pub fn read_stream(from: &mut dyn Read, to: &mut dyn Taker) -> Result<u64> {
    let mut reading = Reading { to, under: None, objects: 0, number: 0 };
    let cut = |reading: &Reading<'_>, error: &io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => reading.wrong("it ends early"),
        _ => host(error),
    };
    let mut head = [0; 16];
    from.read_exact(&mut head).map_err(|error| cut(&reading, &error))?;
    if head[..8] != MAGIC {
        return Err(Error::misuse(&"the stream".into(), "is no export of an object store; check the file"));
    }
    if head[8..12] != VERSION.to_le_bytes() {
        return Err(Error::misuse(&"the stream".into(), "is of another version of Imbrex; import it with that one"));
    }
    if head[12..] != crc32c::crc32c(&head[..12]).to_le_bytes() {
        return Err(reading.wrong("its first bytes are damaged"));
    }
    let mut bytes = Vec::new();
    loop {
        let mut head = [0; 20];
        from.read_exact(&mut head).map_err(|error| cut(&reading, &error))?;
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if len > LONGEST || head[..16] != head_of(head[0], len, reading.number) {
            return Err(reading.wrong("the head of a record is damaged"));
        }
        bytes.clear();
        // Memory grows with what comes, and not with what was announced.
        let read = from.take(len as u64).read_to_end(&mut bytes).map_err(|error| host(&error))?;
        if read < len {
            return Err(reading.wrong("it ends early"));
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..16]), &bytes);
        if crc.to_le_bytes() != head[16..] {
            return Err(reading.wrong("a record is damaged"));
        }
        if reading.record(head[0], &bytes)? {
            let behind = from.take(1).read_to_end(&mut bytes).map_err(|error| host(&error))?;
            return if behind == 0 { Ok(reading.objects) } else { Err(reading.wrong("something follows its end")) };
        }
        reading.number += 1;
    }
}

/// Nobody who takes anything; the order of calls is looked at.
struct Nobody(bool, u64);

impl Taker for Nobody {
    fn collection(&mut self, _: CollectionId, _: u8) -> Result<()> {
        Ok(())
    }
    fn begin(&mut self, head: &Head) -> Result<()> {
        assert!(!std::mem::replace(&mut self.0, true) && head.size <= MAX_OBJECT);
        self.1 = 0;
        Ok(())
    }
    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        assert!(self.0 && at >= self.1 && at + bytes.len() as u64 <= MAX_OBJECT);
        self.1 = at + bytes.len() as u64;
        Ok(())
    }
    fn omap_header(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn omap(&mut self, _: Vec<Pair>) -> Result<()> {
        Ok(())
    }
    fn again(&mut self) -> Result<()> {
        self.0 = false;
        Ok(())
    }
    fn end(&mut self) -> Result<()> {
        assert!(std::mem::replace(&mut self.0, false));
        Ok(())
    }
}

/// What the fuzz target calls: a stream as it is, and one whose records are sealed, so that what is behind checksums is reached. There each record is a kind, a length (2 bytes) and bytes.
pub fn fuzz_stream(data: &[u8]) {
    let _ = read_stream(&mut &data[..], &mut Nobody(false, 0));
    if let Ok(mut writer) = StreamWriter::new(Vec::new()) {
        let mut rest = data;
        while let Some(([kind, low, high], behind)) = rest.split_first_chunk::<3>() {
            let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(behind.len()));
            let _ = writer.record(*kind, &[bytes]);
            rest = behind;
        }
        let _ = read_stream(&mut &writer.to[..], &mut Nobody(false, 0));
    }
    let _ = crate::label::Label::decode(data);
    if let Some(back) = crate::pair::Back::decode(data) {
        assert!(back.encode() == data);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = crate::db::Db::of_option(text);
    }
}
