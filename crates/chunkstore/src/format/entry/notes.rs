//! Two pieces of a checkpoint beside zones and chunks: how far the scrub is and what it has marked, and the kinds of streams that are
//! the user's own. An Imbrex that does not know them passes them over and loses nothing else.

use super::Input;
use crate::format::id::ChunkId;

const SCRUB: usize = 48;
const MARK: usize = 48;
const STREAM: usize = 56;
/// Most bytes of a stream's name.
pub const MOST_NAME: usize = 32;

/// A place in a chunk that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The chunk.
    pub id: ChunkId,
    /// Its serial number.
    pub serial: u64,
    /// Offset in it of the record's first byte.
    pub offset: u32,
    /// Bytes of the record.
    pub len: u32,
    /// The zone where it stood when it was verified.
    pub zone: u32,
    /// It was so when the store was opened, or when the record was moved: some of it is lost.
    pub lost: bool,
}

/// How far the scrub is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubEntry {
    /// How often all chunks were verified.
    pub passes: u64,
    /// Bytes that this pass has verified.
    pub bytes: u64,
    /// The chunk where it goes on, or behind which, if that is gone; `None`: at the first.
    pub next: Option<ChunkId>,
    /// The offset in it.
    pub offset: u32,
    /// What it has found, ascending by chunk and offset.
    pub marks: Vec<Mark>,
}

/// A kind of stream that the user has defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its number.
    pub number: u8,
    /// Zones that may be open for it, in proportion to the other kinds.
    pub pool: u32,
    /// Expected lifetime in seconds.
    pub lifetime: u64,
    /// Most bytes of a chunk; 0: what a zone takes.
    pub limit: u32,
    /// What people call it.
    pub name: String,
}

impl ScrubEntry {
    /// As a part's payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + SCRUB + MARK * self.marks.len());
        out.extend_from_slice(&3u32.to_le_bytes());
        out.extend_from_slice(&(self.marks.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.passes.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.next.unwrap_or_default().0);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&u32::from(self.next.is_some()).to_le_bytes());
        self.marks.iter().for_each(|mark| mark.encode(&mut out));
        out
    }

    pub(super) fn decode(input: &mut Input, count: usize) -> Option<ScrubEntry> {
        let (passes, bytes, id, offset, some) =
            (input.long()?, input.long()?, input.id()?, input.word()?, input.word()?);
        let next = match some {
            0 if id == ChunkId::default() && offset == 0 => None,
            1 => Some(id),
            _ => return None,
        };
        let count = (count <= input.0.len() / MARK).then_some(count)?;
        let marks = (0..count).map(|_| Mark::decode(input)).collect::<Option<Vec<Mark>>>()?;
        let ascend = marks.windows(2).all(|pair| (pair[0].id, pair[0].offset) < (pair[1].id, pair[1].offset));
        ascend.then_some(ScrubEntry { passes, bytes, next, offset, marks })
    }
}

impl Mark {
    /// As it stands in a checkpoint or in the journal.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.serial.to_le_bytes());
        for word in [self.offset, self.len, self.zone, u32::from(self.lost)] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub(super) fn decode(input: &mut Input) -> Option<Mark> {
        let (id, serial, offset, len, zone) = (input.id()?, input.long()?, input.word()?, input.word()?, input.word()?);
        let lost = input.word()?;
        (lost <= 1 && offset.checked_add(len).is_some()).then_some(Mark {
            id,
            serial,
            offset,
            len,
            zone,
            lost: lost == 1,
        })
    }
}

impl StreamEntry {
    /// All of them as a part's payload.
    pub fn encode(all: &[StreamEntry]) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + STREAM * all.len());
        out.extend_from_slice(&4u32.to_le_bytes());
        out.extend_from_slice(&(all.len() as u32).to_le_bytes());
        for one in all {
            let name = one.name.as_bytes();
            let len = name.len().min(MOST_NAME);
            out.extend_from_slice(&[one.number, len as u8, 0, 0]);
            out.extend_from_slice(&one.pool.to_le_bytes());
            out.extend_from_slice(&one.lifetime.to_le_bytes());
            out.extend_from_slice(&one.limit.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            let mut padded = [0; MOST_NAME];
            padded[..len].copy_from_slice(&name[..len]);
            out.extend_from_slice(&padded);
        }
        out
    }

    pub(super) fn decode_all(input: &mut Input, count: usize) -> Option<Vec<StreamEntry>> {
        let count = (count <= input.0.len() / STREAM).then_some(count)?;
        let all = (0..count).map(|_| stream(input)).collect::<Option<Vec<StreamEntry>>>()?;
        all.windows(2).all(|pair| pair[0].number < pair[1].number).then_some(all)
    }
}

fn stream(input: &mut Input) -> Option<StreamEntry> {
    let [number, len, 0, 0] = input.array()? else { return None };
    let (pool, lifetime, limit, zero) = (input.word()?, input.long()?, input.word()?, input.word()?);
    let name = input.array::<MOST_NAME>()?;
    let (name, rest) = name.split_at_checked(usize::from(len))?;
    if zero != 0
        || pool == 0
        || usize::from(number) >= crate::format::id::StreamType::MOST
        || rest.iter().any(|byte| *byte != 0)
    {
        return None;
    }
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?.to_owned();
    Some(StreamEntry { number, pool, lifetime, limit, name })
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;

    #[test]
    fn notes_read_back_whole_or_not_at_all() {
        let mark = |n, offset| Mark { id: ChunkId::of_number(n), serial: n, offset, len: 9, zone: 4, lost: n == 2 };
        let scrub = ScrubEntry {
            passes: 3,
            bytes: 1 << 40,
            next: Some(ChunkId::of_number(7)),
            offset: 4096,
            marks: vec![mark(1, 0), mark(1, 9), mark(2, 0)],
        };
        let stream =
            |number, name: &str| StreamEntry { number, pool: 4, lifetime: 86_400, limit: 0, name: name.into() };
        let streams = vec![stream(3, "logs"), stream(4, &"x".repeat(MOST_NAME))];
        for (payload, part) in [
            (scrub.encode(), Part::Scrub(scrub.clone())),
            (ScrubEntry::default().encode(), Part::Scrub(ScrubEntry::default())),
            (StreamEntry::encode(&streams), Part::Streams(streams.clone())),
        ] {
            assert_eq!(Part::decode(&payload), Some(part));
            assert!((0..payload.len()).all(|cut| Part::decode(&payload[..cut]).is_none()));
        }
        // What makes no sense is not taken.
        let twice = ScrubEntry { marks: vec![mark(1, 0), mark(1, 0)], ..scrub };
        assert_eq!(Part::decode(&twice.encode()), None);
        assert_eq!(Part::decode(&StreamEntry::encode(&[stream(4, "b"), stream(4, "a")])), None);
        assert_eq!(Part::decode(&StreamEntry::encode(&[stream(16, "b")])), None);
        assert_eq!(Part::decode(&StreamEntry::encode(&[stream(3, "")])), None);
    }
}
