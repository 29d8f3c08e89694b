//! Places where records of appends may have stood that nobody can read, and whose bytes may have been in them. Pure.
//!
//! The journal does not hold appends, so what stood in such a place is known only by what is missing elsewhere: a chunk that was sealed with more bytes than are
//! found, or one of which a later record is found. Where nothing is missing, the end of any open chunk that could have been written there is in doubt.
//! Too many are taken for lost rather than too few; but where no hole could have had bytes that are missing, these were never acknowledged.

use crate::format::data_blocks;
use crate::format::entry::ChunkEnd;
use crate::format::id::StreamType;
use crate::index::Chunk;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) zone: u32,
    /// The kind of stream that the zone is for; `None`: nobody knows.
    pub(super) stream: Option<StreamType>,
    /// How many blocks; `None`: the zone is offline, and nobody knows.
    pub(super) blocks: Option<u32>,
    /// What stood there was appended after the append of this number, and before that of that one, as far as is known.
    pub(super) after: u64,
    /// See `after`.
    pub(super) before: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Holes {
    all: Vec<Hole>,
    /// Kinds of streams share zones.
    pub(super) shared: bool,
}

/// Bytes that are missing behind a chunk's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    /// So many, at least.
    pub(super) bytes: u32,
    /// They were appended after the append of this number, and before that of that one, as far as is known.
    pub(super) after: u64,
    /// See `after`.
    pub(super) before: u64,
}

impl Holes {
    pub(super) fn push(&mut self, hole: Hole) {
        self.all.push(hole);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The hole that these bytes of the chunk may have stood in, one in its last zone before all; `None`: there is none.
    pub(super) fn of(&self, chunk: &Chunk, missing: Missing) -> Option<Hole> {
        let last = chunk.groups().last().map(|group| group.zone);
        // A chunk does not come back to a zone that it has left.
        let left = |zone: u32| last != Some(zone) && chunk.groups().iter().any(|group| group.zone == zone);
        let fits = |hole: &&Hole| {
            (self.shared || hole.stream.is_none_or(|stream| stream == chunk.stream))
                && hole.before > missing.after.max(chunk.serial)
                && hole.after < missing.before
                && !left(hole.zone)
        };
        let mut room = 0u64;
        let mut found: Option<Hole> = None;
        for hole in self.all.iter().filter(fits) {
            room += hole.blocks.map_or(u64::from(u32::MAX), u64::from);
            found = found.filter(|hole| Some(hole.zone) == last).or(Some(*hole));
        }
        found.filter(|_| room >= u64::from(data_blocks(missing.bytes)))
    }
}

impl Hole {
    /// What is known of the end of a chunk that may have gone on here.
    pub(super) fn end(&self) -> ChunkEnd {
        if self.blocks.is_some() { ChunkEnd::Unread } else { ChunkEnd::Lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::id::ChunkId;

    /// Of serial number 100, with a record in each of these zones.
    fn chunk(zones: &[u32]) -> Chunk {
        let mut chunk = Chunk::new(ChunkId::of_number(1), 100, StreamType::DATA);
        for zone in zones {
            chunk.push(*zone, 1000, 1);
        }
        chunk
    }

    fn hole(zone: u32, blocks: u32) -> Hole {
        Hole { zone, stream: Some(StreamType::DATA), blocks: Some(blocks), after: 0, before: u64::MAX }
    }

    fn of(holes: &[Hole], chunk: &Chunk, missing: Missing) -> Option<u32> {
        let holes = Holes { all: holes.to_vec(), shared: false };
        holes.of(chunk, missing).map(|hole| hole.zone)
    }

    const SOME: Missing = Missing { bytes: 1, after: 200, before: u64::MAX };

    #[test]
    fn bytes_are_missed_only_where_they_can_have_been() {
        assert_eq!(of(&[], &chunk(&[5]), SOME), None);
        assert_eq!(of(&[hole(5, 1)], &chunk(&[5]), SOME), Some(5));
        assert_eq!(of(&[hole(6, 1)], &chunk(&[5]), SOME), Some(6), "its next zone");
        assert_eq!(of(&[hole(6, 1)], &chunk(&[]), SOME), Some(6), "its first");
        assert_eq!(of(&[hole(5, 1)], &chunk(&[5, 6]), SOME), None, "it had left that one");
        assert_eq!(of(&[hole(7, 1), hole(6, 1), hole(8, 1)], &chunk(&[5, 6]), SOME), Some(6));
        let gc = Hole { stream: Some(StreamType::GC), ..hole(5, 1) };
        assert_eq!(of(&[gc], &chunk(&[5]), SOME), None, "another kind of stream");
        let shared = Holes { all: vec![gc], shared: true };
        assert!(shared.of(&chunk(&[5]), SOME).is_some());
        assert_eq!(
            of(&[Hole { stream: None, ..gc }], &chunk(&[5]), SOME),
            Some(5),
            "of any kind, for all that is known"
        );
    }

    #[test]
    fn bytes_are_missed_only_where_they_fit() {
        let missing = |bytes| Missing { bytes, ..SOME };
        assert_eq!(of(&[hole(5, 2)], &chunk(&[5]), missing(8000)), Some(5));
        assert_eq!(of(&[hole(5, 2)], &chunk(&[5]), missing(8100)), None);
        assert_eq!(of(&[hole(5, 2), hole(6, 1)], &chunk(&[5]), missing(8100)), Some(5));
        let offline = Hole { blocks: None, ..hole(7, 0) };
        assert_eq!(of(&[offline], &chunk(&[5]), missing(16 << 20)), Some(7));
        assert_eq!((offline.end(), hole(5, 1).end()), (ChunkEnd::Lost, ChunkEnd::Unread));
    }

    #[test]
    fn bytes_are_missed_only_when_they_can_have_been_written() {
        let at = |after, before| Hole { after, before, ..hole(5, 1) };
        assert_eq!(of(&[at(150, 201)], &chunk(&[5]), SOME), Some(5));
        assert_eq!(of(&[at(150, 200)], &chunk(&[5]), SOME), None, "its last record came later");
        assert_eq!(of(&[at(0, 90)], &chunk(&[]), Missing { after: 0, ..SOME }), None, "the chunk was made later");
        assert_eq!(
            of(&[at(300, 400)], &chunk(&[5]), Missing { before: 300, ..SOME }),
            None,
            "what is behind came before"
        );
        assert_eq!(of(&[at(299, 400)], &chunk(&[5]), Missing { before: 300, ..SOME }), Some(5));
    }
}
