//! How [records](Record) stand in the journal.
//!
//! ```text
//! 0    2  length of the whole record in bytes, these included
//! 2    1  type
//! 3    …  fields in the order of the enum, little-endian, without padding
//! ```
//!
//! A name is one length byte and its bytes; an optional number is a byte 0 or 1 and, with 1, the number; a place is its
//! type byte (1 conventional, 2 raw, 3 framed) and its fields. Every record is shorter than [`MAX_RECORD`]. A later
//! version that needs other fields takes another type number, so an old reader can step over it by its length. Records
//! carry no checksum of their own: the frame of the journal that holds them has one. The numbers are on the drive and
//! never change.

use super::inline::MAX_INLINE;
use super::{Extent, MAX_NAME, Name, Place, Record, Victim};
use crate::kind::FileKind;

/// No encoded record is this long, in bytes.
pub const MAX_RECORD: usize = 1024;

/// Length and type.
const HEAD: usize = 3;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a record.
    #[error("the journal ends inside a record")]
    Truncated,
    /// No record has this length: what follows cannot be found.
    #[error("a journal record claims a length of {len} bytes")]
    Length {
        /// The length it claims.
        len: usize,
    },
    /// A type of a newer version.
    #[error("journal record of unknown type {kind}; it was written by a newer version of Imbrex")]
    Unknown {
        /// The type byte.
        kind: u8,
        /// Length of the record in bytes.
        len: usize,
    },
    /// The fields make no sense.
    #[error("a journal record of type {kind} is damaged")]
    Malformed {
        /// The type byte.
        kind: u8,
        /// Length of the record in bytes.
        len: usize,
    },
}

impl DecodeError {
    /// How many bytes to step over to come to the next record; `None` when nobody can know.
    pub fn skip(&self) -> Option<usize> {
        match *self {
            DecodeError::Truncated | DecodeError::Length { .. } => None,
            DecodeError::Unknown { len, .. } | DecodeError::Malformed { len, .. } => Some(len),
        }
    }
}

mod number {
    pub const MKDIR: u8 = 1;
    pub const CREATE: u8 = 2;
    pub const LINK: u8 = 3;
    pub const UNLINK: u8 = 4;
    pub const RMDIR: u8 = 5;
    pub const RENAME: u8 = 6;
    pub const EXTEND: u8 = 7;
    pub const SIZE: u8 = 8;
    pub const SEAL: u8 = 9;
    pub const REOPEN: u8 = 10;
    pub const REMAP: u8 = 11;
    pub const TRUNCATE: u8 = 12;
    pub const TIMES: u8 = 13;
    pub const INODE: u8 = 14;
    pub const EXTENT: u8 = 15;
    pub const ENTRY: u8 = 16;
    pub const NEXT_SERIAL: u8 = 17;
    pub const ALLOCATE: u8 = 18;
    pub const FREED_ZONE: u8 = 19;
    pub const INLINE: u8 = 20;
    pub const REPLACE: u8 = 21;
    pub const SETTLED: u8 = 22;

    pub const PLACE_CONVENTIONAL: u8 = 1;
    pub const PLACE_RAW: u8 = 2;
    pub const PLACE_FRAMED: u8 = 3;
}
use number::*;

impl Record {
    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        let kind = self.encode_body(&mut Writer(out));
        let len = out.len() - start;
        debug_assert!(len < MAX_RECORD);
        out[start..start + 2].copy_from_slice(&(len as u16).to_le_bytes());
        out[start + 2] = kind;
    }

    /// What stands behind the head; returns the number of its kind.
    fn encode_body(&self, w: &mut Writer<'_>) -> u8 {
        match self {
            Record::Mkdir { parent, name, serial, time } => {
                w.u64(*parent).name(name).u64(*serial).u64(*time);
                MKDIR
            }
            Record::Create { parent, name, serial, kind, time } => {
                w.u64(*parent).name(name).u64(*serial).u8(*kind as u8).u64(*time);
                CREATE
            }
            Record::Link { serial, parent, name } => {
                w.u64(*serial).u64(*parent).name(name);
                LINK
            }
            Record::Unlink { parent, name, victim } => {
                w.u64(*parent).name(name).victim(victim);
                UNLINK
            }
            Record::Rmdir { parent, name, serial } => {
                w.u64(*parent).name(name).u64(*serial);
                RMDIR
            }
            Record::Rename { from_parent, from, to_parent, to, serial, victim, time } => {
                w.u64(*from_parent).name(from).u64(*to_parent).name(to).u64(*serial);
                match victim {
                    None => w.u8(0),
                    Some(victim) => w.u8(1).victim(victim),
                };
                w.u64(*time);
                RENAME
            }
            Record::Extend { serial, extent } => {
                w.u64(*serial).extent(extent);
                EXTEND
            }
            Record::Size { serial, size, time, volatile } => {
                w.u64(*serial).u64(*size).u64(*time).u8(u8::from(*volatile));
                SIZE
            }
            Record::Seal { serial, size, time } => {
                w.u64(*serial).u64(*size).u64(*time);
                SEAL
            }
            Record::Reopen { serial } => {
                w.u64(*serial);
                REOPEN
            }
            Record::Remap { serial, logical, len, place } => {
                w.u64(*serial).u64(*logical).u64(*len).place(place);
                REMAP
            }
            Record::Truncate { serial, size, time } => {
                w.u64(*serial).u64(*size).u64(*time);
                TRUNCATE
            }
            Record::Times { serial, modified } => {
                w.u64(*serial).u64(*modified);
                TIMES
            }
            Record::Inode { serial, kind, created, modified, size, volatile_size, closed, allocated } => {
                w.u64(*serial).u8(*kind as u8).u64(*created).u64(*modified).u64(*size);
                w.option(*volatile_size).u8(u8::from(*closed)).u64(*allocated);
                INODE
            }
            Record::Extent { serial, extent } => {
                w.u64(*serial).extent(extent);
                EXTENT
            }
            Record::Entry { parent, name, serial } => {
                w.u64(*parent).name(name).u64(*serial);
                ENTRY
            }
            Record::NextSerial { serial } => {
                w.u64(*serial);
                NEXT_SERIAL
            }
            Record::Replace { old, new } => {
                w.u64(*old).u64(*new);
                REPLACE
            }
            Record::Settled => SETTLED,
            Record::Allocate { serial, bytes } => {
                w.u64(*serial).u64(*bytes);
                ALLOCATE
            }
            Record::FreedZone { zone, life } => {
                w.zone(*zone).u64(*life);
                FREED_ZONE
            }
            Record::Inline { addr, bytes } => {
                debug_assert!((1..=MAX_INLINE).contains(&bytes.len()));
                w.u64(*addr).0.extend_from_slice(bytes);
                INLINE
            }
        }
    }

    /// Reads the first record of `bytes`; returns it and its length. Never panics.
    pub fn decode(bytes: &[u8]) -> Result<(Record, usize), DecodeError> {
        let Some((head, _)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(DecodeError::Truncated);
        };
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let kind = head[2];
        if !(HEAD..MAX_RECORD).contains(&len) {
            return Err(DecodeError::Length { len });
        }
        let Some(body) = bytes.get(HEAD..len) else {
            return Err(DecodeError::Truncated);
        };
        if !(MKDIR..=SETTLED).contains(&kind) {
            return Err(DecodeError::Unknown { kind, len });
        }
        match decode_body(kind, body) {
            Some(record) => Ok((record, len)),
            None => Err(DecodeError::Malformed { kind, len }),
        }
    }
}

fn decode_body(kind: u8, body: &[u8]) -> Option<Record> {
    let mut r = Reader(body);
    let record = match kind {
        MKDIR => Record::Mkdir { parent: r.u64()?, name: r.name()?, serial: r.u64()?, time: r.u64()? },
        CREATE => {
            Record::Create { parent: r.u64()?, name: r.name()?, serial: r.u64()?, kind: r.kind()?, time: r.u64()? }
        }
        LINK => Record::Link { serial: r.u64()?, parent: r.u64()?, name: r.name()? },
        UNLINK => Record::Unlink { parent: r.u64()?, name: r.name()?, victim: r.victim()? },
        RMDIR => Record::Rmdir { parent: r.u64()?, name: r.name()?, serial: r.u64()? },
        RENAME => Record::Rename {
            from_parent: r.u64()?,
            from: r.name()?,
            to_parent: r.u64()?,
            to: r.name()?,
            serial: r.u64()?,
            victim: if r.bool()? { Some(r.victim()?) } else { None },
            time: r.u64()?,
        },
        EXTEND => Record::Extend { serial: r.u64()?, extent: r.extent()? },
        SIZE => Record::Size { serial: r.u64()?, size: r.u64()?, time: r.u64()?, volatile: r.bool()? },
        SEAL => Record::Seal { serial: r.u64()?, size: r.u64()?, time: r.u64()? },
        REOPEN => Record::Reopen { serial: r.u64()? },
        REMAP => Record::Remap { serial: r.u64()?, logical: r.u64()?, len: r.u64()?, place: r.place()? },
        TRUNCATE => Record::Truncate { serial: r.u64()?, size: r.u64()?, time: r.u64()? },
        TIMES => Record::Times { serial: r.u64()?, modified: r.u64()? },
        INODE => Record::Inode {
            serial: r.u64()?,
            kind: r.kind()?,
            created: r.u64()?,
            modified: r.u64()?,
            size: r.u64()?,
            volatile_size: r.option()?,
            closed: r.bool()?,
            allocated: r.u64()?,
        },
        EXTENT => Record::Extent { serial: r.u64()?, extent: r.extent()? },
        ENTRY => Record::Entry { parent: r.u64()?, name: r.name()?, serial: r.u64()? },
        NEXT_SERIAL => Record::NextSerial { serial: r.u64()? },
        REPLACE => Record::Replace { old: r.u64()?, new: r.u64()? },
        SETTLED => Record::Settled,
        ALLOCATE => Record::Allocate { serial: r.u64()?, bytes: r.u64()? },
        FREED_ZONE => Record::FreedZone { zone: r.u32()?, life: r.u64()? },
        INLINE => {
            let addr = r.u64()?;
            let bytes = std::mem::take(&mut r.0);
            (1..=MAX_INLINE).contains(&bytes.len()).then(|| Record::Inline { addr, bytes: bytes.to_vec() })?
        }
        _ => return None,
    };
    r.0.is_empty().then_some(record)
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, n: u8) -> &mut Self {
        self.0.push(n);
        self
    }
    fn u64(&mut self, n: u64) -> &mut Self {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }
    fn option(&mut self, n: Option<u64>) -> &mut Self {
        match n {
            None => self.u8(0),
            Some(n) => self.u8(1).u64(n),
        }
    }
    fn name(&mut self, name: &Name) -> &mut Self {
        const { assert!(MAX_NAME <= u8::MAX as usize) };
        self.u8(name.len() as u8);
        self.0.extend_from_slice(name.as_bytes());
        self
    }
    fn victim(&mut self, victim: &Victim) -> &mut Self {
        self.u64(victim.serial).u8(u8::from(victim.last))
    }
    fn place(&mut self, place: &Place) -> &mut Self {
        match *place {
            Place::Conventional { addr } => self.u8(PLACE_CONVENTIONAL).u64(addr),
            Place::Raw { zone, life, offset } => self.u8(PLACE_RAW).zone(zone).u64(life).u64(offset),
            Place::Framed { zone, life, offset } => self.u8(PLACE_FRAMED).zone(zone).u64(life).u64(offset),
        }
    }
    fn zone(&mut self, zone: u32) -> &mut Self {
        self.0.extend_from_slice(&zone.to_le_bytes());
        self
    }
    fn extent(&mut self, e: &Extent) -> &mut Self {
        self.u64(e.logical).u64(e.len).place(&e.place)
    }
}

/// Takes fields off the front; `None` when they are not there or not valid.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[b]| b)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn option(&mut self) -> Option<Option<u64>> {
        if self.bool()? { self.u64().map(Some) } else { Some(None) }
    }
    fn name(&mut self) -> Option<Name> {
        let len = usize::from(self.u8()?);
        let (name, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Name::from_bytes(name).ok()
    }
    fn victim(&mut self) -> Option<Victim> {
        Some(Victim { serial: self.u64()?, last: self.bool()? })
    }
    fn kind(&mut self) -> Option<FileKind> {
        FileKind::from_number(self.u8()?)
    }
    fn place(&mut self) -> Option<Place> {
        Some(match self.u8()? {
            PLACE_CONVENTIONAL => Place::Conventional { addr: self.u64()? },
            PLACE_RAW => Place::Raw { zone: self.u32()?, life: self.u64()?, offset: self.u64()? },
            PLACE_FRAMED => Place::Framed { zone: self.u32()?, life: self.u64()?, offset: self.u64()? },
            _ => return None,
        })
    }
    fn extent(&mut self) -> Option<Extent> {
        Some(Extent { logical: self.u64()?, len: self.u64()?, place: self.place()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_record_never_change() {
        let mut out = Vec::new();
        let place = Place::Raw { zone: 7, life: 0x0102, offset: 4096 };
        Record::Extend { serial: 16, extent: Extent { logical: 5, len: u64::MAX, place } }.encode(&mut out);
        let mut want = vec![48, 0, 7];
        want.extend_from_slice(&16u64.to_le_bytes());
        want.extend_from_slice(&5u64.to_le_bytes());
        want.extend_from_slice(&[0xff; 8]);
        want.extend_from_slice(&[2, 7, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        want.extend_from_slice(&4096u64.to_le_bytes());
        assert_eq!(out, want);

        out.clear();
        let victim = Victim { serial: 16, last: true };
        Record::Unlink { parent: 1, name: Name::new("ab").unwrap(), victim }.encode(&mut out);
        assert_eq!(out, [23, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 2, b'a', b'b', 16, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn the_longest_record_is_within_bounds() {
        let name = Name::new(&"x".repeat(255)).unwrap();
        let mut out = Vec::new();
        let victim = Some(Victim { serial: 3, last: false });
        let (from, to) = (name.clone(), name);
        Record::Rename { from_parent: 1, from, to_parent: 1, to, serial: 2, victim, time: 1 }.encode(&mut out);
        assert!(out.len() < MAX_RECORD);
        assert_eq!(Record::decode(&out).map(|(_, n)| n), Ok(out.len()));
    }

    #[test]
    fn bad_bytes_get_their_error() {
        let mut good = Vec::new();
        Record::Reopen { serial: 17 }.encode(&mut good);
        let change = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Record::decode(&bytes)
        };
        for cut in 0..good.len() {
            assert_eq!(Record::decode(&good[..cut]), Err(DecodeError::Truncated));
        }
        assert_eq!(change(2, 200), Err(DecodeError::Unknown { kind: 200, len: 11 }));
        assert_eq!(change(2, 0), Err(DecodeError::Unknown { kind: 0, len: 11 }));
        assert_eq!(change(0, 2), Err(DecodeError::Length { len: 2 }));
        assert_eq!(change(1, 4), Err(DecodeError::Length { len: 11 + 1024 }));
        assert_eq!(change(0, 10), Err(DecodeError::Malformed { kind: 10, len: 10 }));
        // A record with a byte too many is as wrong as one with a byte too few.
        let mut long = good.clone();
        long[0] = 12;
        long.push(0);
        assert_eq!(Record::decode(&long), Err(DecodeError::Malformed { kind: 10, len: 12 }));
        assert_eq!(DecodeError::Unknown { kind: 200, len: 11 }.skip(), Some(11));
        assert_eq!(DecodeError::Length { len: 2 }.skip(), None);
    }

    #[test]
    fn names_and_flags_are_checked() {
        let mut out = Vec::new();
        Record::Rmdir { parent: 1, name: Name::new("ab").unwrap(), serial: 16 }.encode(&mut out);
        for (byte, want) in [(b'/', false), (0, false), (0xff, false), (b'z', true)] {
            out[13] = byte;
            assert_eq!(Record::decode(&out).is_ok(), want, "{byte}");
        }
        let mut out = Vec::new();
        Record::Size { serial: 1, size: 2, time: 3, volatile: true }.encode(&mut out);
        let last = out.len() - 1;
        out[last] = 2;
        assert_eq!(Record::decode(&out), Err(DecodeError::Malformed { kind: 8, len: out.len() }));
    }
}
