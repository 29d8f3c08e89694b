//! The journal of Ceph's FileStore, and the transactions in it, as 16.2 writes them.
//!
//! ```text
//! block 0    version 4, length, then: flags, fsid, block size, alignment, size, start, committed up to (0 where nobody has said), first number
//! entries    from `start` on, each of whole blocks:
//!            header (number, checksum and length of the payload, padding before and behind, position, fsid ^ number ^ length),
//!            padding, payload, padding, the header again
//! payload    transactions: data, operations of 72 bytes, collections, objects
//! ```
//!
//! It is input from outside: each length is compared with what there is.

/// Bytes of an operation.
const OP: usize = 72;
/// Bytes of the header of an entry.
const HEADER: usize = 40;

pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What Ceph calls a collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coll {
    Meta,
    Group { pool: i64, seed: u32, shard: Option<u8> },
}

/// What Ceph calls an object: the names that it has beside those of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub pool: i64,
    pub hash: u32,
    pub namespace: Vec<u8>,
    pub key: Vec<u8>,
    pub name: Vec<u8>,
    pub snap: u64,
    pub generation: u64,
    /// Which part of an erasure-coded object.
    pub shard: Option<u8>,
}

/// The generation of an object that is no older one.
pub const NEWEST: u64 = u64::MAX;

/// An object in its collection.
pub type Place = (Coll, Name);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Nothing,
    Touch(Place),
    Write(Place, u64, Vec<u8>),
    Zero(Place, u64, u64),
    Truncate(Place, u64),
    Remove(Place),
    SetAttributes(Place, Pairs),
    RemoveAttribute(Place, Vec<u8>),
    RemoveAttributes(Place),
    Clone(Place, Name),
    CloneRange { from: Place, to: Name, at: u64, len: u64, goal: u64 },
    Rename { from: Place, to: Place, must: bool },
    OmapClear(Place),
    OmapSet(Place, Pairs),
    OmapRemove(Place, Vec<Vec<u8>>),
    OmapRemoveRange(Place, Vec<u8>, Vec<u8>),
    OmapHeader(Place, Vec<u8>),
    Hint { of: Place, object: u64, write: u64, flags: u32 },
    CreateCollection(Coll, u8),
    RemoveCollection(Coll),
    Split { from: Coll, bits: u8, into: Coll },
    Merge { from: Coll, into: Coll },
}

/// Transactions that happen together.
pub struct Entry {
    pub number: u64,
    pub ops: Vec<Op>,
}

type Read<T> = Result<T, String>;

/// Reads from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| format!("{len} bytes of {}", self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().unwrap())
    }

    fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// As many as the first number says; each takes at least a byte.
    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.u32()?;
        if count as usize > self.0.len() {
            return Err(format!("{count} things in {} bytes", self.0.len()));
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn pairs(&mut self) -> Read<Pairs> {
        self.many(|from| Ok((from.bytes()?.to_vec(), from.bytes()?.to_vec())))
    }

    /// What is in an envelope of this version, or a later one that says it can be read so.
    fn versioned(&mut self, known: u8) -> Read<(u8, Reader<'a>)> {
        let (version, least) = (self.u8()?, self.u8()?);
        let inside = self.bytes()?;
        if least > known {
            return Err(format!("version {version}, of which {known} is known"));
        }
        Ok((version, Reader(inside)))
    }

    fn shard(&mut self) -> Read<Option<u8>> {
        match self.u8()? {
            0xff => Ok(None),
            shard @ 0..0x80 => Ok(Some(shard)),
            shard => Err(format!("a shard {shard}")),
        }
    }

    fn coll(&mut self) -> Read<Coll> {
        match self.u8()? {
            2 => {
                let kind = self.u8()?;
                let (_, mut group) = self.versioned(1)?;
                group.u8()?;
                let (pool, seed) = (group.u64()? as i64, group.u32()?);
                group.u32()?;
                let shard = group.shard()?;
                self.u64()?;
                match kind {
                    0 => Ok(Coll::Meta),
                    2 => Ok(Coll::Group { pool, seed, shard }),
                    _ => Err(format!("a collection of kind {kind}")),
                }
            }
            version => Err(format!("a collection of version {version}")),
        }
    }

    fn name(&mut self) -> Read<Name> {
        let (version, mut from) = self.versioned(6)?;
        let (key, name) = (from.bytes()?.to_vec(), from.bytes()?.to_vec());
        let (snap, hash, max) = (from.u64()?, from.u32()?, from.u8()?);
        let (namespace, pool) = (from.bytes()?.to_vec(), from.u64()? as i64);
        let (generation, shard) = (from.u64()?, from.shard()?);
        if version < 6 || max != 0 {
            return Err("an object that is no object".into());
        }
        Ok(Name { pool, hash, namespace, key, name, snap, generation, shard })
    }
}

/// An operation, as it stands in the list.
struct Raw {
    op: u32,
    coll: u32,
    object: u32,
    offset: u64,
    len: u64,
    other_coll: u32,
    other: u32,
    goal: u64,
    flags: u32,
    size: u64,
    write: u64,
    bits: u32,
}

impl Raw {
    fn read(from: &mut Reader<'_>) -> Read<Raw> {
        let raw = Raw {
            op: from.u32()?,
            coll: from.u32()?,
            object: from.u32()?,
            offset: from.u64()?,
            len: from.u64()?,
            other_coll: from.u32()?,
            other: from.u32()?,
            goal: from.u64()?,
            flags: from.u32()?,
            size: from.u64()?,
            write: from.u64()?,
            bits: from.u32()?,
        };
        from.u32()?;
        Ok(raw)
    }
}

/// What a transaction's operations name by numbers.
struct Names {
    colls: Vec<(Coll, u32)>,
    objects: Vec<(Name, u32)>,
}

impl Names {
    fn coll(&self, number: u32) -> Read<Coll> {
        let found = self.colls.iter().find(|(_, n)| *n == number);
        found.map(|(coll, _)| coll.clone()).ok_or_else(|| format!("no collection {number}"))
    }

    fn object(&self, number: u32) -> Read<Name> {
        let found = self.objects.iter().find(|(_, n)| *n == number);
        found.map(|(name, _)| name.clone()).ok_or_else(|| format!("no object {number}"))
    }

    fn op(&self, raw: &Raw, data: &mut Reader<'_>) -> Read<Op> {
        let coll = || self.coll(raw.coll);
        let place = || Ok::<_, String>((self.coll(raw.coll)?, self.object(raw.object)?));
        let bits = || u8::try_from(raw.bits).map_err(|_| format!("{} bits", raw.bits));
        Ok(match raw.op {
            0 => Op::Nothing,
            7 | 9 => Op::Touch(place()?),
            10 => {
                let bytes = data.bytes()?.to_vec();
                if bytes.len() as u64 != raw.len {
                    return Err(format!("a write of {} bytes has {}", raw.len, bytes.len()));
                }
                Op::Write(place()?, raw.offset, bytes)
            }
            11 => Op::Zero(place()?, raw.offset, raw.len),
            12 => Op::Truncate(place()?, raw.offset),
            13 => Op::Remove(place()?),
            14 => Op::SetAttributes(place()?, vec![(data.bytes()?.to_vec(), data.bytes()?.to_vec())]),
            15 => Op::SetAttributes(place()?, data.pairs()?),
            16 => Op::RemoveAttribute(place()?, data.bytes()?.to_vec()),
            17 => Op::Clone(place()?, self.object(raw.other)?),
            20 => Op::CreateCollection(coll()?, bits()?),
            21 => Op::RemoveCollection(coll()?),
            28 => Op::RemoveAttributes(place()?),
            30 => {
                let (from, to) = (place()?, self.object(raw.other)?);
                Op::CloneRange { from, to, at: raw.offset, len: raw.len, goal: raw.goal }
            }
            31 => Op::OmapClear(place()?),
            32 => Op::OmapSet(place()?, data.pairs()?),
            33 => Op::OmapRemove(place()?, data.many(|from| Ok(from.bytes()?.to_vec()))?),
            34 => Op::OmapHeader(place()?, data.bytes()?.to_vec()),
            36 => Op::Split { from: coll()?, bits: bits()?, into: self.coll(raw.other_coll)? },
            37 => Op::OmapRemoveRange(place()?, data.bytes()?.to_vec(), data.bytes()?.to_vec()),
            38 => {
                let to = (self.coll(raw.other_coll)?, self.object(raw.other)?);
                Op::Rename { from: place()?, to, must: true }
            }
            39 => Op::Hint { of: place()?, object: raw.size, write: raw.write, flags: raw.flags },
            40 => {
                data.bytes()?;
                Op::Nothing
            }
            41 => Op::Rename { from: place()?, to: (coll()?, self.object(raw.other)?), must: false },
            // A collection's bits, which its creation or its division has said.
            42 => Op::Nothing,
            43 => Op::Merge { from: coll()?, into: self.coll(raw.other_coll)? },
            other => return Err(format!("operation {other}")),
        })
    }
}

fn transaction(from: &mut Reader<'_>) -> Read<Vec<Op>> {
    let (version, mut from) = from.versioned(9)?;
    if version < 9 {
        return Err(format!("a transaction of version {version}"));
    }
    let (mut data, list) = (Reader(from.bytes()?), from.bytes()?);
    let colls = from.many(|from| Ok((from.coll()?, from.u32()?)))?;
    let objects = from.many(|from| Ok((from.name()?, from.u32()?)))?;
    let names = Names { colls, objects };
    if list.len() % OP != 0 {
        return Err(format!("operations of {} bytes", list.len()));
    }
    let ops = list.chunks(OP).map(|raw| names.op(&Raw::read(&mut Reader(raw))?, &mut data));
    let ops = ops.collect::<Read<Vec<Op>>>()?;
    if data.0.is_empty() { Ok(ops) } else { Err(format!("{} bytes that no operation asks for", data.0.len())) }
}

/// All entries of a journal, in order.
pub fn entries(journal: &[u8]) -> Read<Vec<Entry>> {
    let mut from = Reader(journal);
    let version = from.u32()?;
    let mut header = Reader(from.bytes()?);
    header.u64()?;
    let fsid = header.array::<16>()?;
    let fsid = u64::from_le_bytes(fsid[..8].try_into().unwrap());
    let (block, _) = (header.u32()?, header.u32()?);
    let (_, start, committed, first) = (header.u64()?, header.u64()?, header.u64()?, header.u64()?);
    if version != 4 || block == 0 || committed >= first {
        return Err(format!("version {version}, blocks of {block}, numbers from {first} on, and {committed} is done"));
    }
    let (mut all, mut at) = (Vec::new(), start);
    loop {
        let behind = journal.get(usize::try_from(at).map_err(|_| "a position".to_string())?..).unwrap_or(&[]);
        let mut from = Reader(behind);
        let Ok(head) = from.take(HEADER) else { break };
        let mut header = Reader(head);
        let (number, sum, len) = (header.u64()?, header.u32()?, header.u32()?);
        let (before, after) = (header.u32()?, header.u32()?);
        let (position, magic) = (header.u64()?, header.u64()?);
        // What an earlier life of the journal left is not an entry of this one.
        if position != at
            || magic != fsid ^ number ^ u64::from(len)
            || Some(number) != first.checked_add(all.len() as u64)
        {
            break;
        }
        from.take(before as usize)?;
        let payload = from.take(len as usize)?;
        from.take(after as usize)?;
        // The last one may not be whole. Ceph's checksum begins with zero, and is not inverted.
        if from.take(HEADER).ok() != Some(head) || !crc32c::crc32c_append(!0, payload) != sum {
            break;
        }
        let (mut payload, mut ops) = (Reader(payload), Vec::new());
        while !payload.0.is_empty() {
            ops.extend(transaction(&mut payload).map_err(|why| format!("entry {number}: {why}"))?);
        }
        all.push(Entry { number, ops });
        at += 2 * HEADER as u64 + u64::from(before) + u64::from(len) + u64::from(after);
    }
    Ok(all)
}
