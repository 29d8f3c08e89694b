//! What is to be written to a zone and is not yet: whole records, one behind the other, in few large pieces of memory.
//!
//! Invariants: segments follow each other without gaps from `written` to `end`; one that is sealed does not change any more, so it
//! can be written and read at the same time; bytes stay here until the drive has them.

use super::memory::{BufPool, PooledBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// Some records that go to the drive in one write.
pub struct Segment {
    at: u64,
    image: PooledBuf,
    used: usize,
}

impl Segment {
    /// Where it begins, in bytes from the zone's start.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Its bytes, whole records.
    pub fn bytes(&self) -> &[u8] {
        &self.image[..self.used]
    }

    /// Where the next segment begins.
    pub fn end(&self) -> u64 {
        self.at + self.used as u64
    }
}

/// See the module.
pub(super) struct ZoneBuffer {
    /// Bytes that are on the drive.
    written: u64,
    /// Where the next record goes.
    end: u64,
    sealed: VecDeque<Arc<Segment>>,
    filling: Option<Segment>,
}

impl ZoneBuffer {
    /// Of a zone that is written up to here.
    pub(super) fn new(written: u64) -> ZoneBuffer {
        ZoneBuffer { written, end: written, sealed: VecDeque::new(), filling: None }
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether all is on the drive.
    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_empty() && self.filling.is_none()
    }

    /// Adds a record. Small ones gather in pieces of `gather` bytes; others are not copied.
    pub(super) fn push(&mut self, record: PooledBuf, gather: usize, pool: &Arc<BufPool>) {
        let (at, used) = (self.end, record.len());
        self.end += used as u64;
        if used * 2 > gather {
            self.seal();
            self.sealed.push_back(Arc::new(Segment { at, image: record, used }));
            return;
        }
        if self.filling.as_ref().is_some_and(|s| s.used + used > s.image.len()) {
            self.seal();
        }
        let segment = self.filling.get_or_insert_with(|| Segment { at, image: pool.take(gather), used: 0 });
        segment.image[segment.used..segment.used + used].copy_from_slice(&record);
        segment.used += used;
    }

    fn seal(&mut self) {
        self.sealed.extend(self.filling.take().map(Arc::new));
    }

    /// The first segments that are not on the drive: one, or as many as have `most` bytes. They stay until [`ZoneBuffer::written_to`].
    pub(super) fn front(&mut self, most: usize) -> Vec<Arc<Segment>> {
        if self.sealed.is_empty() || most > 0 {
            self.seal();
        }
        let mut bytes = 0;
        let fits = |segment: &&Arc<Segment>| {
            bytes += segment.used;
            bytes <= most
        };
        let n = self.sealed.iter().take_while(fits).count().max(1);
        self.sealed.iter().take(n).cloned().collect()
    }

    /// The drive has everything before this.
    pub(super) fn written_to(&mut self, at: u64) {
        while self.sealed.front().is_some_and(|segment| segment.end() <= at) {
            self.sealed.pop_front();
        }
        self.written = at;
    }

    /// Forgets everything that is not on the drive. Returns how many bytes that were.
    pub(super) fn discard(&mut self) -> u64 {
        let waiting = self.end - self.written;
        *self = ZoneBuffer::new(self.written);
        waiting
    }

    /// Copies bytes from `from` on, counted from the zone's start. False: not all of them are here.
    pub(super) fn read(&self, from: u64, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let here = from + done as u64;
            let holds = |segment: &&Segment| (segment.at..segment.end()).contains(&here);
            let all = self.sealed.iter().map(Arc::as_ref).chain(&self.filling);
            let Some(segment) = { all }.find(holds) else { return false };
            let skip = (here - segment.at) as usize;
            let n = (segment.used - skip).min(out.len() - done);
            out[done..done + n].copy_from_slice(&segment.bytes()[skip..skip + n]);
            done += n;
        }
        true
    }
}

/// The bytes of these segments that the next command takes, `most` at most, where the drive has all before `written`: part of the first one may be there,
/// after an error or because it was longer than a command.
pub(super) fn command(segments: &[Arc<Segment>], written: u64, mut most: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    for segment in segments {
        let rest = segment.bytes().get(written.saturating_sub(segment.at) as usize..).unwrap_or_default();
        let piece = &rest[..rest.len().min(most)];
        most -= piece.len();
        pieces.extend(Some(piece).filter(|piece| !piece.is_empty()));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn record(blocks: usize, fill: u8) -> PooledBuf {
        imbrex_device::AlignedBuf::padded(&vec![fill; blocks * BLOCK], BLOCK).into()
    }

    fn filled() -> ZoneBuffer {
        let (pool, mut buffer) = (Arc::default(), ZoneBuffer::new(BLOCK as u64));
        for (blocks, fill) in [(1, 1), (2, 2), (8, 3), (1, 4), (2, 5), (2, 6)] {
            buffer.push(record(blocks, fill), 4 * BLOCK, &pool);
        }
        buffer
    }

    #[test]
    fn small_records_gather_and_all_are_read_until_they_are_written() {
        let mut buffer = filled();
        let at = |buffer: &ZoneBuffer, block: usize, n: usize| {
            let mut out = vec![0; n];
            buffer.read((block * BLOCK) as u64 - 3, &mut out).then_some(out)
        };
        assert_eq!(at(&buffer, 4, 6), Some(vec![2, 2, 2, 3, 3, 3]));
        assert_eq!(at(&buffer, 13, 6), Some(vec![4, 4, 4, 5, 5, 5]));
        assert_eq!(at(&buffer, 17, 6), None, "behind the end");
        let block = |at: u64| at / BLOCK as u64;
        let mut pieces = Vec::new();
        let together = buffer.front(6 * BLOCK);
        let ends = together.iter().map(|s| (block(s.at()), block(s.end())));
        assert_eq!(ends.collect::<Vec<_>>(), [(1, 4)], "the next one has eight");
        assert_eq!(buffer.front(16 * BLOCK).len(), 4);
        while let [segment, ..] = &buffer.front(0)[..] {
            pieces.push((block(segment.at()), block(segment.end())));
            buffer.written_to(segment.end());
        }
        assert_eq!(pieces, [(1, 4), (4, 12), (12, 15), (15, 17)]);
        assert!(buffer.is_empty() && block(buffer.written()) == 17 && at(&buffer, 4, 6).is_none());
    }

    #[test]
    fn a_command_begins_where_the_drive_ends_and_is_no_longer_than_it_may_be() {
        let mut buffer = filled();
        let segments = buffer.front(usize::MAX);
        let blocks = |written: u64, most: usize| -> Vec<(usize, u8)> {
            let pieces = command(&segments, written * BLOCK as u64, most);
            pieces.iter().map(|piece| (piece.len() / BLOCK, piece[0])).collect()
        };
        assert_eq!(blocks(1, usize::MAX), [(3, 1), (8, 3), (3, 4), (2, 6)]);
        assert_eq!(blocks(3, 5 * BLOCK), [(1, 2), (4, 3)]);
        assert_eq!(blocks(4, 8 * BLOCK), [(8, 3)], "the first is there");
        assert_eq!(blocks(16, usize::MAX), [(1, 6)]);
    }

    #[test]
    fn what_is_discarded_is_what_the_drive_does_not_have() {
        let mut buffer = filled();
        buffer.front(0);
        buffer.written_to(3 * BLOCK as u64);
        assert_eq!((buffer.discard(), buffer.end(), buffer.is_empty()), (14 * BLOCK as u64, 3 * BLOCK as u64, true));
    }
}
