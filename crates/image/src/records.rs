//! What is stored of an image beside its bytes: its header, its snapshots, and when an object came and was copied. Each record has a magic, a version and a checksum.

use crate::limits::Limits;
use crate::names::{HEAD, MAX_IMAGE};
use imbrex_bluestore::MAX_ATTRIBUTE;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const MAGIC: [u8; 4] = *b"imIM";
const VERSION: u8 = 2;
/// Bytes of an object, as powers of two.
pub(crate) const ORDERS: RangeInclusive<u8> = 12..=30;

/// Where an image has what it has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParentLink {
    pub image: u64,
    pub snap: u64,
    /// So many bytes of it count.
    pub overlap: u64,
}

/// What an image is in the middle of. Whoever opens it next goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    #[default]
    None,
    /// It had this size, and what is behind the new one goes.
    Shrink(u64),
    /// It becomes what it was at this snapshot.
    Rollback(u64),
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// In bytes.
    pub size: u64,
    /// An object has so many bytes, as a power of two.
    pub order: u8,
    pub next_snap: u64,
    /// Seconds since 1970.
    pub created: u64,
    pub parent: Option<ParentLink>,
    pub work: Work,
    pub limits: Limits,
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snap {
    pub name: String,
    /// Of the image then, in bytes.
    pub size: u64,
    /// Bytes of the parent that counted then.
    pub overlap: u64,
    /// Seconds since 1970.
    pub created: u64,
    /// It is being removed, and is nobody's any more.
    pub going: bool,
}

/// Of an object: it is of no snapshot up to the first, and what it was at the second is kept or was the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    pub born: u64,
    pub copied: u64,
}

/// The attribute that has them. An object without it has zeros.
pub(crate) const EPOCHS: &[u8] = b"epochs";

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }
}

fn sealed(body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    body(&mut out);
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

fn put(out: &mut Vec<u8>, all: &[u64]) {
    all.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

fn unsealed<T>(bytes: &[u8], body: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Option<T> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    let mut from = Reader(content);
    if crc32c::crc32c(content) != u32::from_le_bytes(*crc) || from.take(4)? != MAGIC || from.byte()? != VERSION {
        return None;
    }
    body(&mut from).filter(|_| from.0.is_empty())
}

/// As many bytes as an image may have.
fn bytes_of(from: &mut Reader<'_>) -> Option<u64> {
    from.u64().filter(|size| *size <= MAX_IMAGE)
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        sealed(|out| {
            out.push(self.order);
            put(out, &[self.size, self.next_snap, self.created]);
            let (work, of) = match self.work {
                Work::None => (0, 0),
                Work::Shrink(size) => (1, size),
                Work::Rollback(snap) => (2, snap),
            };
            out.push(work);
            put(out, &[of]);
            let Limits { used, iops, bandwidth } = self.limits;
            // No limit is 0: that would be none that anybody could want.
            put(out, &[used, iops, bandwidth].map(|limit| limit.unwrap_or(0)));
            if let Some(ParentLink { image, snap, overlap }) = self.parent {
                put(out, &[image, snap, overlap]);
            }
        })
    }

    pub fn decode(bytes: &[u8]) -> Option<Header> {
        unsealed(bytes, |from| {
            let order = from.byte().filter(|order| ORDERS.contains(order))?;
            // The last number is the head's.
            let (size, next_snap) = (bytes_of(from)?, from.u64().filter(|next| (1..HEAD).contains(next))?);
            let created = from.u64()?;
            let work = match (from.byte()?, from.u64()?) {
                (0, 0) => Work::None,
                (1, size) if size <= MAX_IMAGE => Work::Shrink(size),
                (2, snap) if snap < next_snap => Work::Rollback(snap),
                _ => return None,
            };
            let mut limit = || from.u64().map(|limit| (limit > 0).then_some(limit));
            let limits = Limits { used: limit()?, iops: limit()?, bandwidth: limit()? };
            let parent = match from.0.is_empty() {
                true => None,
                false => Some(ParentLink { image: from.u64()?, snap: from.u64()?, overlap: bytes_of(from)? }),
            };
            Some(Header { size, order, next_snap, created, parent, work, limits })
        })
    }

    /// Bytes of an object.
    pub fn object_size(&self) -> u64 {
        1 << self.order
    }
}

impl Snap {
    pub fn encode(&self) -> Vec<u8> {
        sealed(|out| {
            put(out, &[self.size, self.overlap, self.created]);
            out.push(self.going.into());
            out.extend_from_slice(self.name.as_bytes());
        })
    }

    pub fn decode(bytes: &[u8]) -> Option<Snap> {
        unsealed(bytes, |from| {
            let (size, overlap, created) = (bytes_of(from)?, bytes_of(from)?, from.u64()?);
            let going = match from.byte()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let name = from.take(from.0.len())?;
            Some(Snap { name: std::str::from_utf8(name).ok()?.to_owned(), size, overlap, created, going })
        })
    }
}

impl Epochs {
    pub fn encode(self) -> Vec<u8> {
        sealed(|out| put(out, &[self.born, self.copied]))
    }

    pub fn of(attributes: &BTreeMap<Vec<u8>, Vec<u8>>) -> Option<Epochs> {
        attributes.get(EPOCHS).map_or(Some(Epochs::default()), |bytes| Epochs::decode(bytes))
    }

    fn decode(bytes: &[u8]) -> Option<Epochs> {
        unsealed(bytes, |from| Some(Epochs { born: from.u64()?, copied: from.u64()? }))
    }
}

/// What the fuzz target calls: a byte says of which kind the record is, or that it is a stream of changes. A record that is accepted, and written again, is the same when it is read.
pub fn fuzz_records(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    if kind % 4 == 3 {
        return crate::stream::fuzz(bytes);
    }
    // Sealed, so that what is behind the checksum is reached.
    let bytes = &sealed(|out| out.extend_from_slice(&bytes[..bytes.len().min(MAX_ATTRIBUTE)]));
    match kind % 4 {
        0 => _ = Header::decode(bytes).map(|header| assert_eq!(&header.encode(), bytes)),
        1 => _ = Snap::decode(bytes).map(|snap| assert_eq!(&snap.encode(), bytes)),
        _ => _ = Epochs::decode(bytes).map(|epochs| assert_eq!(&epochs.encode(), bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_changed_ones_do_not() {
        let parent = Some(ParentLink { image: 3, snap: 1, overlap: 77 });
        let (work, limits) = (Work::Rollback(4), Limits { used: Some(1 << 40), iops: None, bandwidth: Some(u64::MAX) });
        let header = Header { size: 5 << 40, order: 22, next_snap: 9, created: 1, parent, work, limits };
        let snap = Snap { name: "a ü".into(), size: 7, overlap: 5, created: 2, going: true };
        let epochs = Epochs { born: 3, copied: 8 };
        let all = [header.encode(), snap.encode(), epochs.encode()];
        assert_eq!(Header::decode(&all[0]), Some(header.clone()));
        assert_eq!(Snap::decode(&all[1]), Some(snap));
        assert_eq!(Epochs::decode(&all[2]), Some(epochs));
        let lone = Header { parent: None, work: Work::Shrink(8), ..header };
        assert_eq!(Header::decode(&lone.encode()), Some(lone));
        for bytes in &all {
            for bit in 0..bytes.len() * 8 {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    Header::decode(&other).is_none()
                        && Snap::decode(&other).is_none()
                        && Epochs::decode(&other).is_none()
                );
            }
            assert!((0..bytes.len()).all(|len| Header::decode(&bytes[..len]).is_none()));
        }
    }
}
